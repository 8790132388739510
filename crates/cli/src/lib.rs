// SPDX-License-Identifier: MPL-2.0

//! The program `hipvmaf`: scores video files, watches live video, and lists the GPUs and models that it can use.
//!
//! Each large command is a crate of its own: `score`, `archive`, `monitor` and `bench`. All but the first are features, on by
//! default; a program without them is built in less time. The plugin is linked in, so the program needs no installation of it.

pub mod devices;
#[cfg(feature = "generate")]
pub mod generate;
pub mod models;

use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Parser, Subcommand};
use score::VERSION;
use score::error::{EXIT_CODES, Error};

/// Version and commit, and the GPUs that the program has code for.
static LONG_VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{VERSION}\nGPU code: {}", engine::backend::hip::built_for()));

/// Measure perceptual video quality: VMAF and classic metrics, on GPUs and CPUs
#[derive(Parser)]
#[command(name = "hipvmaf", version = VERSION, long_version = LONG_VERSION.as_str(), after_long_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(visible_alias = "ladder", after_long_help = EXIT_CODES)]
    Score(Box<score::Args>),
    #[cfg(feature = "monitor")]
    Monitor(Box<monitor::Args>),
    /// Watch the quality of live video (not in this build)
    #[cfg(not(feature = "monitor"))]
    #[command(disable_help_flag = true)]
    Monitor(Missing),
    #[cfg(feature = "archive")]
    #[command(subcommand, after_long_help = EXIT_CODES)]
    Archive(archive::Command),
    /// Score many titles in chunks (not in this build)
    #[cfg(not(feature = "archive"))]
    #[command(disable_help_flag = true)]
    Archive(Missing),
    /// List the GPUs of this machine, the preferred one first
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check a GPU: versions, self-tests, a bit-exact comparison with the CPU, and its speed
    ///
    /// Paste this report into issues. It takes less than two minutes. Each section runs in its own process, so that a crash or
    /// a hang still leaves a report.
    #[cfg(feature = "bench")]
    #[command(after_long_help = EXIT_CODES)]
    Check {
        #[command(flatten)]
        device: bench::Device,
        /// Print this section of the report only
        #[arg(long, hide = true)]
        part: Option<usize>,
    },
    /// Measure how many pairs of frames are scored per second, and how long one pair takes
    #[cfg(feature = "bench")]
    #[command(after_long_help = EXIT_CODES)]
    Bench {
        /// Measure the steps from a new process to the first scores instead
        #[arg(long)]
        start: bool,
        #[command(flatten)]
        args: bench::Args,
    },
    /// Check a GPU (not in this build)
    #[cfg(not(feature = "bench"))]
    #[command(disable_help_flag = true)]
    Check(Missing),
    /// Measure the speed (not in this build)
    #[cfg(not(feature = "bench"))]
    #[command(disable_help_flag = true)]
    Bench(Missing),
    /// List the built-in models
    Models {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write man pages and shell completions into a folder
    #[cfg(feature = "generate")]
    #[command(hide = true)]
    Generate {
        /// Folder in which the folders man and completions are made
        folder: std::path::PathBuf,
    },
}

/// The arguments of a command that this build does not have. All are accepted, and none is used.
#[cfg(not(all(feature = "archive", feature = "bench", feature = "monitor")))]
#[derive(clap::Args)]
struct Missing {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<std::ffi::OsString>,
}

#[cfg(not(all(feature = "archive", feature = "bench", feature = "monitor")))]
fn missing(command: &str) -> Error {
    Error::Usage(format!(
        "this build has no command {command}; build the whole program with: make plugin (in a clone of the repository)"
    ))
}

fn run(command: &Command) -> Result<ExitCode, Error> {
    match command {
        Command::Score(args) => return score::command::run(args),
        #[cfg(feature = "archive")]
        Command::Archive(command) => return archive::run(command),
        #[cfg(not(feature = "archive"))]
        Command::Archive(_) => return Err(missing("archive")),
        #[cfg(feature = "monitor")]
        Command::Monitor(args) => monitor::run(args)?,
        #[cfg(not(feature = "monitor"))]
        Command::Monitor(_) => return Err(missing("monitor")),
        Command::Devices { json } => devices::list(*json)?,
        #[cfg(feature = "bench")]
        Command::Check { device, part } => {
            check(device, *part).map_err(|error| Error::Failed(error.to_string()))?
        }
        #[cfg(not(feature = "bench"))]
        Command::Check(_) => return Err(missing("check")),
        #[cfg(not(feature = "bench"))]
        Command::Bench(_) => return Err(missing("bench")),
        #[cfg(feature = "bench")]
        Command::Bench { start, args } => {
            let run = if *start { bench::start } else { bench::measure };
            run(args).map_err(|error| Error::Failed(error.to_string()))?;
        }
        Command::Models { json } => models::list(*json)?,
        #[cfg(feature = "generate")]
        Command::Generate { folder } => generate::write(folder)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the report, or one section of it.
#[cfg(feature = "bench")]
fn check(device: &bench::Device, part: Option<usize>) -> Result<(), Box<dyn std::error::Error>> {
    let args = bench::Args::of(device.clone())?;
    match part {
        Some(part) => bench::report_part(&args, part),
        None => bench::report(&args),
    }
}

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    run(&Cli::parse().command).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        error.code()
    })
}
