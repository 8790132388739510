// SPDX-License-Identifier: MPL-2.0

//! Standard output, which may be closed early, for example by `head`.

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use crate::error::Error;

/// Prints lines. A reader that has closed the pipe is not an error.
pub fn print(text: impl std::fmt::Display) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::Failed(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints JSON.
pub fn print_json(value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
    print(serde_json::to_string_pretty(value)?)
}
