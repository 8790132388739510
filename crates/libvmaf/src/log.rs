// SPDX-License-Identifier: MPL-2.0

//! Messages on standard error, as libvmaf has them. The level is that of the process, set by the latest context.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error = 1,
    Warning,
    Info,
    Debug,
}

impl Level {
    /// Its name, and its colour on a terminal.
    fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::Error => ("ERROR", "\x1b[31m"),
            Self::Warning => ("WARNING", "\x1b[33m"),
            Self::Info => ("INFO", "\x1b[32m"),
            Self::Debug => ("DEBUG", "\x1b[34m"),
        }
    }
}

static LEVEL: AtomicU32 = AtomicU32::new(Level::Info as u32);
static TERMINAL: AtomicBool = AtomicBool::new(false);

/// Sets the level up to which messages are written; 0 for none.
pub fn set_level(level: u32) {
    LEVEL.store(level.min(Level::Debug as u32), Ordering::Relaxed);
    TERMINAL.store(std::io::stderr().is_terminal(), Ordering::Relaxed);
}

/// Writes a message, unless the level leaves it out.
pub fn log(level: Level, message: impl Display) {
    if level as u32 > LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let (name, colour) = level.text();
    let line = match TERMINAL.load(Ordering::Relaxed) {
        true => format!("\x1b[35mlibvmaf\x1b[0m {colour}{name}\x1b[0m {message}\n"),
        false => format!("libvmaf {name} {message}\n"),
    };
    print(&line);
}

/// Writes text to standard error. Where that cannot be written, there is nowhere to say so.
pub fn print(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
