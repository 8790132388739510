// SPDX-License-Identifier: MPL-2.0

//! Errors by what the user can do about them, and exit codes.

use std::process::ExitCode;

/// Description of the exit codes for the help and the man pages.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    Success.
  1    Something failed: a file that cannot be opened, decoded, scored or written.
  2    The command line is wrong: an option, a value, or the name of a model.
  3    The videos do not match: HDR and SDR, unrelated pictures, or with --strict any mismatch.
  4    A video is damaged. The decoded part was scored, if there is any, and is marked.
  130  Interrupted by Ctrl-C; the scores so far are printed and written.
  143  Ended by SIGTERM, in the same way.";

/// Exit code for damaged videos.
pub const DAMAGED: u8 = 4;

/// Reason for a premature end of the program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line must be changed.
    #[error("{0}")]
    Usage(String),
    /// The videos must be changed, or the user must confirm the difference with an option.
    #[error("{0}")]
    Refused(String),
    /// A video is damaged or incomplete.
    #[error("{0}")]
    Damaged(String),
    /// A task of the program failed.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// Adds the subject of the error in front.
    pub fn within(self, what: &str) -> Self {
        let text = format!("{what}: {self}");
        match self {
            Self::Usage(_) => Self::Usage(text),
            Self::Refused(_) => Self::Refused(text),
            Self::Damaged(_) => Self::Damaged(text),
            Self::Failed(_) => Self::Failed(text),
        }
    }

    /// Returns the exit code for this error.
    pub fn code(&self) -> ExitCode {
        match self {
            Self::Failed(_) => ExitCode::FAILURE,
            Self::Usage(_) => ExitCode::from(2),
            Self::Refused(_) => ExitCode::from(3),
            Self::Damaged(_) => ExitCode::from(DAMAGED),
        }
    }
}

/// Returns the exit code for a signal, as shells define it.
pub fn exit_code(signal: i32) -> ExitCode {
    u8::try_from(128 + signal).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Converts other errors, which have no exit code of their own.
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
