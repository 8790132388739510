// SPDX-License-Identifier: MPL-2.0

//! How the program ends: errors by what the caller can do about them, and the exit codes.

use std::process::ExitCode;

/// What the exit codes say, for the help and the man pages.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    All was done.
  1    Something failed: a file that cannot be opened, decoded, scored or written.
  2    The command line is wrong: an option, a value, or the name of a model.
  3    The videos do not fit together: HDR and SDR, pictures of different films, or with --strict anything.
  4    A video is damaged. What could be decoded of it was scored, if anything, and is marked.
  130  Interrupted by Ctrl-C; what was scored until then is printed and written.
  143  Ended by SIGTERM, in the same way.";

/// The exit code where a video is damaged.
pub const DAMAGED: u8 = 4;

/// Why the program ends early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line has to change.
    #[error("{0}")]
    Usage(String),
    /// The videos have to change, or the user has to say that it is meant.
    #[error("{0}")]
    Refused(String),
    /// A video is damaged, or was not written to its end.
    #[error("{0}")]
    Damaged(String),
    /// What the program was to do has failed.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// The same, with what it is about in front.
    pub fn within(self, what: &str) -> Self {
        let text = format!("{what}: {self}");
        match self {
            Self::Usage(_) => Self::Usage(text),
            Self::Refused(_) => Self::Refused(text),
            Self::Damaged(_) => Self::Damaged(text),
            Self::Failed(_) => Self::Failed(text),
        }
    }

    /// The exit code of a program that this has ended.
    pub fn code(&self) -> ExitCode {
        match self {
            Self::Failed(_) => ExitCode::FAILURE,
            Self::Usage(_) => ExitCode::from(2),
            Self::Refused(_) => ExitCode::from(3),
            Self::Damaged(_) => ExitCode::from(DAMAGED),
        }
    }
}

/// The exit code of a program that a signal has ended, as shells have it.
pub fn exit_code(signal: i32) -> ExitCode {
    u8::try_from(128 + signal).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Whatever has a text and no special meaning has failed.
macro_rules! failures {
    ($($of:ty),*) => { $(
        impl From<$of> for Error {
            fn from(error: $of) -> Self {
                Self::Failed(error.to_string())
            }
        }
    )* };
}
failures!(
    &str,
    String,
    std::io::Error,
    serde_json::Error,
    glib::Error,
    glib::BoolError,
    gst::StateChangeError,
    Box<dyn std::error::Error>
);
