// SPDX-License-Identifier: MPL-2.0

//! The program `hipvmaf`: scores video files, watches live video, and says what this machine has for it.
//!
//! Each command is a module with its arguments and a function that runs it. The plugin is linked in, so that the program
//! needs no installation of it. What other programs may want of this one is [`score`]: it compares files with a reference
//! and hands out scores frame by frame.

pub mod archive;
pub mod devices;
pub mod error;
pub mod generate;
pub mod interrupt;
pub mod models;
pub mod monitor;
pub mod output;
mod property;
mod redact;
pub mod score;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Parser, Subcommand};

use error::{EXIT_CODES, Error};

/// Version and commit.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-", env!("COMMIT_ID"));

/// The same, and for which GPUs the program has code.
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
    Monitor(Box<monitor::Args>),
    #[command(subcommand, after_long_help = EXIT_CODES)]
    Archive(archive::Command),
    /// List the GPUs of this machine, the one that is used first at the top
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Have a GPU prove itself: versions, self-tests, a comparison with the CPU bit for bit, and how fast it is
    ///
    /// This is what to paste into an issue. It takes less than two minutes, and says as much as there is where something fails.
    #[command(after_long_help = EXIT_CODES)]
    Check {
        #[command(flatten)]
        device: bench::Device,
        /// The one part of the report that this process is for
        #[arg(long, hide = true)]
        part: Option<usize>,
    },
    /// Measure how fast pairs of frames are scored, and how long one takes
    #[command(after_long_help = EXIT_CODES)]
    Bench {
        /// Measure the steps from a fresh process to the first scores instead
        #[arg(long)]
        start: bool,
        #[command(flatten)]
        args: bench::Args,
    },
    /// List the models that are built in
    Models {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write man pages and shell completions into a folder
    #[command(hide = true)]
    Generate {
        /// Gets the folders man and completions
        folder: PathBuf,
    },
}

fn run(command: &Command) -> Result<ExitCode, Error> {
    match command {
        Command::Score(args) => return score::command::run(args),
        Command::Archive(command) => return archive::run(command),
        Command::Monitor(args) => monitor::run(args)?,
        Command::Devices { json } => devices::list(*json)?,
        Command::Check { device, part } => {
            check(device, *part).map_err(|error| Error::Failed(error.to_string()))?
        }
        Command::Bench { start, args } => {
            let run = if *start { bench::start } else { bench::measure };
            run(args).map_err(|error| Error::Failed(error.to_string()))?;
        }
        Command::Models { json } => models::list(*json)?,
        Command::Generate { folder } => generate::write(folder)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The report, or the part of it that this process is for.
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

/// Has GStreamer and the element ready; more than once is no mistake.
fn init() -> Result<(), Error> {
    gst::init()?;
    score::decoders::prefer_exact();
    Ok(gsthipvmaf::plugin_register_static()?)
}
