// SPDX-License-Identifier: MPL-2.0

//! The program `hipvmaf-bench`, which needs no GStreamer. `hipvmaf bench` and `hipvmaf check` do the same on machines
//! with GStreamer.

use std::error::Error;
use std::process::ExitCode;

use bench::{Args, VERSION};
use clap::Parser;

/// Measure how fast a GPU scores video, or check that it scores as the CPU does
#[derive(Parser)]
#[command(name = "hipvmaf-bench", version = VERSION)]
struct Program {
    /// List all GPUs, also those that this build has no code for
    #[arg(long, group = "mode")]
    list: bool,
    /// Compare sums and scores with those of the CPU, bit for bit
    #[arg(long, group = "mode")]
    check: bool,
    /// Measure the steps from a fresh process to the first scores
    #[arg(long, group = "mode")]
    start: bool,
    /// Print a report to paste into an issue: versions, self-tests, a short check, short measurements. It does less
    /// than the defaults of the options
    #[arg(long, group = "mode")]
    report: bool,
    /// Number of the report's section to run in this process
    #[arg(long, hide = true, requires = "report")]
    part: Option<usize>,
    #[command(flatten)]
    args: Args,
}

fn run(program: &Program) -> Result<(), Box<dyn Error>> {
    let args = &program.args;
    match program {
        Program { part: Some(number), .. } => bench::report_part(args, *number),
        Program { report: true, .. } => bench::report(args),
        Program { list: true, .. } => bench::list(),
        Program { check: true, .. } => bench::check(args),
        Program { start: true, .. } => bench::start(args),
        _ => bench::measure(args),
    }
}

fn main() -> ExitCode {
    match run(&Program::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err}");
            ExitCode::FAILURE
        }
    }
}
