// SPDX-License-Identifier: MPL-2.0

//! Measures and checks the GPU backend by itself, without GStreamer pipelines:
//!
//! ```sh
//! cargo run --release -p hipvmaf-tools --bin hipvmaf-bench -- --list
//! cargo run --release -p hipvmaf-tools --bin hipvmaf-bench -- --size 3840x2160 --depth 10 --memory pinned --streams 4
//! cargo run --release -p hipvmaf-tools --bin hipvmaf-bench -- --check
//! cargo run --release -p hipvmaf-tools --bin hipvmaf-bench -- --report
//! ```
//!
//! `docs/gpu.md` says what to make of the figures.

mod check;
mod clip;
mod measure;
mod report;
mod system;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{Parser, ValueEnum};
use engine::backend::hip;
use engine::frame::BitDepth;
use engine::metrics::feature::Feature;
use engine::metrics::feature_list;
use engine::model::{Model, ScoreOptions};
use engine::plan::Plan;
use gpu::Selection;

use clip::{Format, Place};

#[derive(Clone, Copy, ValueEnum)]
enum Vendor {
    Amd,
    Nvidia,
}

/// Version and commit.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-", env!("COMMIT_ID"));

/// Measure how fast a GPU scores video, or check that it scores as the CPU does
#[derive(Clone, Parser)]
#[command(name = "hipvmaf-bench", version = VERSION)]
struct Args {
    /// List all GPUs, also those that this build has no code for
    #[arg(long, group = "mode")]
    list: bool,
    /// Compare sums and scores with those of the CPU, bit for bit
    #[arg(long, group = "mode")]
    check: bool,
    /// Measure the steps from a fresh process to the first scores
    #[arg(long, group = "mode")]
    start: bool,
    /// Print what to paste into an issue: versions, self-tests, a short check, short measurements. It sets options to less
    /// than their defaults
    #[arg(long, group = "mode")]
    report: bool,
    /// The one part of the report that this process is for
    #[arg(long, hide = true, requires = "report")]
    part: Option<usize>,
    /// Whose GPU to use
    #[arg(long)]
    vendor: Option<Vendor>,
    /// Number of the GPU, as listed
    #[arg(long, value_name = "N")]
    device: Option<i32>,
    /// Built-in names or JSON files of models
    #[arg(long, value_name = "MODEL,...", value_delimiter = ',', default_value = "vmaf_v0.6.1")]
    models: Vec<String>,
    /// Further metrics, in the syntax of the element's property `features`
    #[arg(long, value_name = "NAME[=OPTION=VALUE...];...", default_value = "")]
    features: String,
    /// Width and height of the frames
    #[arg(long, value_name = "WxH", value_parser = size, default_value = "1920x1080")]
    size: (usize, usize),
    /// Bits of a sample
    #[arg(long, default_value = "8", value_parser = bit_depth)]
    depth: BitDepth,
    /// Where the frames lie
    #[arg(long, default_value = "device")]
    memory: Place,
    /// Pairs of frames that take turns; their luma should not fit into the GPU's caches
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count)]
    pairs: usize,
    /// Pairs that each stream has in flight
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = count,
        default_value_if("report", ArgPredicate::IsPresent, "4"))]
    in_flight: usize,
    /// Threads that copy a picture in ordinary memory, 0 for one per CPU
    #[arg(long, value_name = "N", default_value_t = 0)]
    copiers: usize,
    /// Independent sessions, each with a thread and frames of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    streams: usize,
    /// Distorted pictures that are compared with each reference picture
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    renditions: usize,
    /// Length of a run
    #[arg(long, default_value_t = 2.0, value_parser = seconds,
        default_value_if("report", ArgPredicate::IsPresent, "1"))]
    seconds: f64,
    /// Runs, for the median
    #[arg(long, default_value_t = 5, value_parser = count,
        default_value_if("report", ArgPredicate::IsPresent, "3"))]
    runs: usize,
    /// Launches of each kernel to time, 0 for none
    #[arg(long, value_name = "N", default_value_t = 100)]
    repeat: u32,
    /// Sizes to check
    #[arg(long, value_name = "WxH,...", value_delimiter = ',', value_parser = size,
        default_value = "576x324,1280x720,1920x1080",
        default_value_if("report", ArgPredicate::IsPresent, "576x324"))]
    check_sizes: Vec<(usize, usize)>,
    /// How many clips of random size to check
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        default_value_if("report", ArgPredicate::IsPresent, "12")
    )]
    check_random: usize,
    /// Print a line of JSON
    #[arg(long)]
    json: bool,
}

fn size(text: &str) -> Result<(usize, usize), String> {
    let sides = text.split_once('x').and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
    sides
        .filter(|(w, h)| (1..=16384).contains(w) && (1..=16384).contains(h))
        .ok_or("not like 1920x1080".into())
}

fn bit_depth(text: &str) -> Result<BitDepth, String> {
    text.parse().ok().and_then(BitDepth::new).ok_or("not between 8 and 16".into())
}

fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| (1..=1024).contains(count)).ok_or("not between 1 and 1024".into())
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.0..=3600.0).contains(seconds))
        .ok_or("not between 0 and 3600".into())
}

impl Args {
    fn selection(&self) -> Selection {
        let vendor = self.vendor.map(|vendor| match vendor {
            Vendor::Amd => gpu::Vendor::Amd,
            Vendor::Nvidia => gpu::Vendor::Nvidia,
        });
        Selection { vendor, ordinal: self.device }
    }

    /// Format of the frames to measure with.
    fn format(&self) -> Format {
        let (width, height) = self.size;
        Format { width, height, depth: self.depth, align: 256, interleaved: false, high: false }
    }

    /// What the models, the features named and these features need.
    fn plan(&self, features: &[Feature]) -> Result<Arc<Plan>, Box<dyn Error>> {
        let models = self.models.iter().filter(|name| !name.is_empty());
        let models = models.map(|name| Model::load(name)).collect::<Result<_, _>>()?;
        let listed = feature_list::parse(&self.features, &[])?;
        let listed = listed.iter().flat_map(|extractor| extractor.features(true));
        let features: Vec<_> = listed.chain(features.iter().cloned()).collect();
        Ok(Arc::new(Plan::new(models, &features, ScoreOptions::default())?))
    }

    /// That, and more of the metrics that models share, for a check against the CPU.
    fn check_plan(&self) -> Result<Arc<Plan>, Box<dyn Error>> {
        let psnr = Feature::resolve("psnr_cb", [])?;
        let lag2 = Feature::resolve("integer_motion2", [("motion_five_frame_window", "true")])?;
        self.plan(&[psnr, lag2, Feature::resolve("integer_aim", [])?])
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    match args.part {
        Some(number) => report::part(args, number),
        None if args.report => report::report(args),
        None if args.list => list(),
        None if args.check => check(args),
        None if args.start => start(args),
        None => measure(args),
    }
}

/// Prints a line for each GPU.
fn list() -> Result<(), Box<dyn Error>> {
    hip::gpus()?.iter().for_each(|gpu| println!("{gpu}"));
    Ok(())
}

fn check(args: &Args) -> Result<(), Box<dyn Error>> {
    let checked = check::check(args, &args.check_plan()?, Duration::MAX)?;
    if !checked.differing.is_empty() {
        return Err(checked.to_string().into());
    }
    println!("{checked}");
    Ok(())
}

fn start(args: &Args) -> Result<(), Box<dyn Error>> {
    let steps = measure::start(args, &args.plan(&[])?)?;
    if args.json {
        println!("{}", serde_json::to_string(&steps)?);
    } else {
        steps.iter().for_each(|(step, ms)| println!("{ms:9.2} ms  {step}"));
    }
    Ok(())
}

fn measure(args: &Args) -> Result<(), Box<dyn Error>> {
    let report = measure::measure(args, &args.plan(&[])?, Duration::MAX)?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    Ok(())
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
