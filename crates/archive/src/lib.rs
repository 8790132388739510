// SPDX-License-Identifier: MPL-2.0

//! Archives: many titles, each scored in chunks, by as many processes on as many machines as there are.
//!
//! `plan` writes down once what is to be done, a `manifest` in a folder that all machines see. Every `chunk` is scored by
//! itself, with the frames around it that its scores depend on, and leaves one file that is there as a whole or not at all.
//! `merge` puts the chunks of a title together as the very file that `score` writes of the whole title. That the frames of a
//! chunk are those of the whole title is proven and not assumed: neighbours overlap, and frames that both have decoded must
//! have the same samples (`seam`). Titles that cannot be cut are one chunk. `submit` gives the chunks to an engine: this machine,
//! `slurm` or `ray`.

mod chunk;
mod list;
mod manifest;
mod merge;
mod plan;
mod ray;
mod run;
mod seam;
mod slurm;
mod status;
mod submit;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use score::error::{DAMAGED, Error};

/// Score many titles in chunks that any number of processes and machines work on
#[derive(Subcommand)]
pub enum Command {
    /// Look at the titles of a list, and write down the chunks to score
    Plan(plan::Args),
    /// Score the chunks that are missing, or those that are named
    Run(run::Args),
    /// Have this machine, Slurm or Ray score all that is missing, and merge it
    Submit(Box<submit::Args>),
    /// Write the results of each title that is complete: OUT/NAME.json
    Merge(merge::Args),
    /// Say what is complete, and what is missing and why
    Status {
        /// The folder of the plan
        folder: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs a command.
pub fn run(command: &Command) -> Result<ExitCode, Error> {
    match command {
        Command::Plan(args) => plan::run(args),
        Command::Run(args) => run::run(args),
        Command::Submit(args) => submit::run(args),
        Command::Merge(args) => merge::run(args),
        Command::Status { folder, json } => status::run(folder, *json),
    }
}

/// A word of a command line, as shells have it.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./,:@%+=-".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Success if nothing is missing.
fn complete(all: bool) -> ExitCode {
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The same, where some of what is there may be the scores of damaged videos.
fn complete_unless(all: bool, damaged: bool) -> ExitCode {
    if all && damaged { ExitCode::from(DAMAGED) } else { complete(all) }
}
