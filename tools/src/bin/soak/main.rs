// SPDX-License-Identifier: MPL-2.0

//! Runs the element for a long time under disturbances, to check that it leaks nothing, never hangs, pairs no wrong
//! frames and reports every gap:
//!
//! ```sh
//! cargo run --release -p hipvmaf-tools --bin soak -- --duration 180
//! ```
//!
//! The first part is live: two encoders send over RTP, packets are lost, senders are started anew, and the size of
//! the video changes (`live.rs`). The second part seeks a thousand times (`seeks.rs`). Every frame carries a number
//! in its picture (`number.rs`), so the pictures of a pair show if the right frames were compared, independently of the
//! element's messages.

mod checks;
mod live;
mod number;
mod random;
mod seeks;
mod watchdog;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;

/// Run the element for long, with losses, restarts and seeks
#[derive(Parser)]
struct Args {
    /// Length of the live part in seconds, and of nothing if 0
    #[arg(long, default_value_t = 180)]
    duration: u64,
    /// Seeks in the second part
    #[arg(long, default_value_t = 1000)]
    seeks: u32,
    /// Where losses and seeks happen follows from this
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    gst::init()?;
    gsthipvmaf::plugin_register_static()?;
    let mut faults = vec![];
    if args.duration > 0 {
        faults.extend(live::run(args.duration, args.seed)?);
    }
    if args.seeks > 0 {
        faults.extend(seeks::run(args.seeks, args.seed)?);
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n       ").into()) }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err}");
            ExitCode::FAILURE
        }
    }
}
