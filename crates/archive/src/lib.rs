// SPDX-License-Identifier: MPL-2.0

//! Archives: many titles, each scored in chunks by any number of processes and machines.
//!
//! `plan` writes the work to be done into a `manifest`, in a folder that all machines can read. Each `chunk` is
//! scored independently, together with the surrounding frames that its scores depend on, and its file appears
//! complete or not at all. `merge` joins the chunks of a title into the same file that `score` writes for the whole
//! title. Nothing is assumed about decoding from the middle of a file: neighbouring chunks overlap, and the frames
//! that both decode must have the same samples (`boundary`), or are decoded again (`repair`). A title that cannot be cut is one chunk. `submit` hands
//! the chunks to a cluster: `slurm`, `ray`, or this machine.

mod boundary;
mod chunk;
mod list;
mod manifest;
mod merge;
mod plan;
mod progress;
mod ray;
mod repair;
mod run;
mod slurm;
mod status;
mod submit;
mod summary;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;

use manifest::Title;
use score::error::{DAMAGED, Error};
use score::interrupt;
use submit::Cluster;

/// Score many titles in chunks, on any number of processes and machines
#[derive(Subcommand)]
pub enum Command {
    /// Examine the titles of a list, and write a plan of the chunks to score
    Plan(plan::Args),
    /// Score all missing chunks, or the named ones
    Run(run::Args),
    /// Score everything that is missing on this machine, Slurm or Ray, then merge
    Submit(Box<submit::Args>),
    /// Write the results of each complete title to OUT/NAME.json
    Merge(merge::Args),
    /// List what is complete, and what is missing and why
    Status {
        /// Folder of the plan
        folder: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs a subcommand.
pub fn run(command: &Command) -> Result<ExitCode, Error> {
    match command {
        Command::Plan(args) => plan::run(args),
        Command::Run(args) => run::run(args),
        Command::Submit(args) => submit(args),
        Command::Merge(args) => merge::run(args),
        Command::Status { folder, json } => status::run(folder, *json),
    }
}

/// Scores everything that is missing on this machine or a cluster, and merges it. A cluster's scheduler places the
/// chunks on machines and runs `archive run` there.
fn submit(args: &submit::Args) -> Result<ExitCode, Error> {
    args.check()?;
    match &args.on {
        Cluster::Local(jobs) => submit_here(args, *jobs),
        Cluster::Slurm => slurm::submit(args),
        Cluster::Ray(address) => ray::run(args, address.as_deref()),
    }
}

/// Scores on this machine, several chunks at a time, and merges.
fn submit_here(args: &submit::Args, jobs: u16) -> Result<ExitCode, Error> {
    let run = run::Args::all(args.merge.folder.clone(), jobs, args.retries, args.hardware.clone());
    let scored = run::run(&run)?;
    if interrupt::caught().is_some() {
        return Ok(scored);
    }
    let merged = merge::run(&args.merge)?;
    Ok(if scored == ExitCode::SUCCESS { merged } else { scored })
}

/// Returns the advice to score a title as one chunk.
fn as_whole(folder: &Path, title: &Title) -> String {
    format!(
        "score it as one chunk: hipvmaf archive plan LIST -o {} --whole {}",
        word(&folder.to_string_lossy()),
        word(&title.name)
    )
}

/// Quotes a word for a shell.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./,:@%+=-".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns success if nothing is missing.
fn complete(all: bool) -> ExitCode {
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the exit code for damaged videos if nothing is missing but some videos are damaged.
fn complete_unless(all: bool, damaged: bool) -> ExitCode {
    if all && damaged { ExitCode::from(DAMAGED) } else { complete(all) }
}
