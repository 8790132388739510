// SPDX-License-Identifier: MPL-2.0

//! Man pages and shell completions, generated from the definition of the command line.

use std::fs;
use std::path::Path;

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::Cli;
use score::error::Error;

/// Writes a page for the program and for each command, and a file for each shell.
pub fn write(folder: &Path) -> Result<(), Error> {
    let [man, completions] = ["man", "completions"].map(|name| folder.join(name));
    for folder in [&man, &completions] {
        fs::create_dir_all(folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    }
    clap_mangen::generate_to(Cli::command(), &man)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut Cli::command(), "hipvmaf", &completions)?;
    }
    Ok(())
}
