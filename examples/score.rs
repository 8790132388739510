// SPDX-License-Identifier: MPL-2.0

//! Scores a video file against the original, or an x264 encoding that is made on the fly:
//!
//! ```sh
//! cargo run --release --example score -- original.mkv encoded.mp4 --results scores.json --plot scores.svg
//! cargo run --release --example score -- original.mkv --x264 800 --model vmaf_v0.6.1 --model vmaf_v0.6.1neg
//! ```
//!
//! Ctrl-C and SIGTERM end it with the scores so far, and with the exit code 130 or 143.
//!
//! It shows how a program embeds the element: the plugin is linked in, so it needs no installation, and the
//! scores arrive as typed messages on the bus (`score/pipeline.rs`). The rest is presentation.

#[path = "common/files.rs"]
mod files;
#[path = "common/interrupt.rs"]
mod interrupt;
#[path = "score/pipeline.rs"]
mod pipeline;
#[path = "score/plot.rs"]
mod plot;
#[path = "score/table.rs"]
mod table;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Score a video with VMAF
#[derive(Parser)]
struct Args {
    /// The original video, in any format that GStreamer decodes
    reference: PathBuf,
    /// The video to score
    #[arg(required_unless_present = "x264", conflicts_with = "x264")]
    distorted: Option<PathBuf>,
    /// Score an x264 encoding of the original at this bit rate
    #[arg(long, value_name = "KBIT/S", value_parser = clap::value_parser!(u32).range(1..=2_048_000))]
    x264: Option<u32>,
    /// Built-in name or JSON file of a model; several are scored in one pass
    #[arg(long = "model", value_name = "MODEL", default_value = "vmaf_v0.6.1")]
    models: Vec<String>,
    /// Worker threads, 0 for one per CPU
    #[arg(long, default_value_t = 0)]
    threads: u32,
    /// Write all scores and features to a .json, .csv or .xml file
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Draw the score over time into an SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// How many of the worst frames to list
    #[arg(long, value_name = "N", default_value_t = 5)]
    worst: usize,
}

fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    gst::init()?;
    gsthipvmaf::plugin_register_static()?;
    let scores = pipeline::score(args)?;
    let code = match scores.signal {
        Some(signal) => {
            eprintln!("interrupted: the scores are those of the first {} frames", scores.frames.len());
            files::exit_code(signal)
        }
        None => ExitCode::SUCCESS,
    };
    if scores.frames.is_empty() {
        if scores.signal.is_some() {
            return Ok(code);
        }
        return Err("no frame was scored: the two videos share no moment in time".into());
    }
    table::print(&scores, args.worst);
    if let Some(path) = &args.plot {
        plot::draw(path, &scores.frames).map_err(|err| format!("cannot draw {}: {err}", path.display()))?;
    }
    for path in [&args.results, &args.plot].into_iter().flatten() {
        println!("{} written", path.display());
    }
    Ok(code)
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(err) => {
            eprintln!("error: {err}");
            ExitCode::FAILURE
        }
    }
}
