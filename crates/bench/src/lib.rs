// SPDX-License-Identifier: MPL-2.0

//! Measures the backends without GStreamer pipelines, and checks that a GPU computes the same as the CPU:
//!
//! ```sh
//! hipvmaf-bench --list
//! hipvmaf-bench --size 3840x2160 --depth 10 --memory pinned --streams 4
//! hipvmaf-bench --check
//! hipvmaf-bench --report
//! ```
//!
//! `docs/gpu.md` explains the figures.

mod check;
mod clip;
mod measure;
mod report;
mod several;
mod system;

use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args as _, Command, FromArgMatches, ValueEnum};
use engine::backend::hip;
use engine::frame::BitDepth;
use engine::metrics::feature::Feature;
use engine::metrics::feature_list;
use engine::model::{Model, ScoreOptions};
use engine::plan::Plan;
use gpu::Selection;
use serde::Serialize;

use clip::{Format, Place};

pub use report::{part as report_part, report};
pub use several::Devices;

/// Version and commit.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-", env!("COMMIT_ID"));

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Vendor {
    Amd,
    Nvidia,
}

/// Backend to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BackendChoice {
    /// A GPU if there is one, else the CPU
    Auto,
    /// A GPU
    Hip,
    /// The CPU
    Cpu,
}

/// Selects a GPU and the output format.
#[derive(Clone, Debug, clap::Args)]
pub struct Device {
    /// Vendor of the GPU
    #[arg(long)]
    vendor: Option<Vendor>,
    /// Number of the GPU, as listed
    #[arg(long, value_name = "N")]
    device: Option<i32>,
    /// Print a line of JSON
    #[arg(long)]
    json: bool,
}

/// Selects the measurements or checks, and their extent.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    device: Device,
    /// GPUs to measure at the same time, by their numbers, or every one that can be used
    #[arg(long, value_name = "all|N,...", conflicts_with = "device")]
    devices: Option<Devices>,
    /// Backend to use
    #[arg(long, default_value = "auto")]
    backend: BackendChoice,
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
    /// Memory of the frames; the CPU always uses ordinary memory
    #[arg(long, default_value = "device")]
    memory: Place,
    /// Pairs of frames that take turns; their luma should not fit into the GPU's caches
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count)]
    pairs: usize,
    /// Pairs that each stream has in flight [default: 8]
    #[arg(long, value_name = "N", value_parser = count)]
    in_flight: Option<usize>,
    /// Threads that compute on the CPU, or that copy a picture in ordinary memory, 0 for one per CPU
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Independent sessions, each with a thread and frames of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    streams: usize,
    /// Distorted pictures that are compared with each reference picture
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    renditions: usize,
    /// Length of a run [default: 2]
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Runs, for the median [default: 5]
    #[arg(long, value_parser = count)]
    runs: Option<usize>,
    /// Launches of each kernel to time, 0 for none
    #[arg(long, value_name = "N", default_value_t = 100)]
    repeat: u32,
    /// Sizes to check [default: 576x324,1280x720,1920x1080]
    #[arg(long, value_name = "WxH,...", value_delimiter = ',', value_parser = size)]
    check_sizes: Option<Vec<(usize, usize)>>,
    /// How many clips of random size to check [default: 100]
    #[arg(long, value_name = "N")]
    check_random: Option<usize>,
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
    /// Returns the defaults for this GPU.
    ///
    /// # Errors
    ///
    /// Fails only if the options of this crate are invalid, which is a bug.
    pub fn of(device: Device) -> Result<Self, Box<dyn Error>> {
        let matches = Self::augment_args(Command::new("bench")).try_get_matches_from(["bench"])?;
        Ok(Self { device, ..Self::from_arg_matches(&matches)? })
    }

    fn selection(&self) -> Selection {
        let vendor = self.device.vendor.map(|vendor| match vendor {
            Vendor::Amd => gpu::Vendor::Amd,
            Vendor::Nvidia => gpu::Vendor::Nvidia,
        });
        Selection { vendor, ordinal: self.device.device }
    }

    fn in_flight(&self) -> usize {
        self.in_flight.unwrap_or(8)
    }

    fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(2.0)
    }

    fn runs(&self) -> usize {
        self.runs.unwrap_or(5)
    }

    fn check_sizes(&self) -> Vec<(usize, usize)> {
        self.check_sizes.clone().unwrap_or_else(|| vec![(576, 324), (1280, 720), (1920, 1080)])
    }

    fn check_random(&self) -> usize {
        self.check_random.unwrap_or(100)
    }

    /// Reduces the work to the extent of a report, except where options are given.
    fn brief(&self) -> Self {
        Self {
            backend: BackendChoice::Hip,
            in_flight: self.in_flight.or(Some(4)),
            seconds: self.seconds.or(Some(1.0)),
            runs: self.runs.or(Some(3)),
            check_sizes: self.check_sizes.clone().or_else(|| Some(vec![(576, 324)])),
            check_random: self.check_random.or(Some(12)),
            ..self.clone()
        }
    }

    /// Returns the number of threads.
    fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            some => some,
        }
    }

    /// Returns the format of the frames to measure with.
    fn format(&self) -> Format {
        let (width, height) = self.size;
        Format { width, height, depth: self.depth, align: 256, interleaved: false, high: false }
    }

    /// Plans the models, the features of the options and these features.
    fn plan(&self, features: &[Feature]) -> Result<Arc<Plan>, Box<dyn Error>> {
        let models = self.models.iter().filter(|name| !name.is_empty());
        let models = models.map(|name| Model::load(name)).collect::<Result<_, _>>()?;
        let listed = feature_list::parse(&self.features, &[])?;
        let listed = listed.iter().flat_map(|extractor| extractor.features(true));
        let features: Vec<_> = listed.chain(features.iter().cloned()).collect();
        Ok(Arc::new(Plan::new(models, &features, ScoreOptions::default())?))
    }

    /// Plans that and more of the metrics that models share, for a check against the CPU.
    fn check_plan(&self) -> Result<Arc<Plan>, Box<dyn Error>> {
        let psnr = Feature::resolve("psnr_cb", [])?;
        let lag2 = Feature::resolve("integer_motion2", [("motion_five_frame_window", "true")])?;
        self.plan(&[psnr, lag2, Feature::resolve("integer_aim", [])?])
    }
}

/// Rejects several GPUs for operations on one.
pub(crate) fn only_one(args: &Args) -> Result<(), Box<dyn Error>> {
    let refused = "--devices is for measurements of the frame rate; name one GPU with --device";
    args.devices.is_none().then_some(()).ok_or(refused.into())
}

/// Prints a line for each GPU.
///
/// # Errors
///
/// The reason why there is none.
pub fn list() -> Result<(), Box<dyn Error>> {
    hip::gpus()?.iter().for_each(|gpu| println!("{gpu}"));
    Ok(())
}

/// Compares the sums and scores of many clips with those of the CPU, bit for bit.
///
/// # Errors
///
/// The differences, or the reason why there is no GPU.
pub fn check(args: &Args) -> Result<(), Box<dyn Error>> {
    only_one(args)?;
    let checked = check::check(args, &args.check_plan()?, Duration::MAX)?;
    if !checked.differing.is_empty() {
        return Err(checked.to_string().into());
    }
    println!("{checked}");
    Ok(())
}

/// Prints the steps from a fresh process to the first scores of a GPU, in milliseconds.
///
/// # Errors
///
/// The failed step, or the reason why there is no GPU.
pub fn start(args: &Args) -> Result<(), Box<dyn Error>> {
    only_one(args)?;
    let steps = measure::start(args, &args.plan(&[])?)?;
    if args.device.json {
        println!("{}", serde_json::to_string(&steps)?);
    } else {
        steps.iter().for_each(|(step, ms)| println!("{ms:9.2} ms  {step}"));
    }
    Ok(())
}

/// Prints the pairs scored per second, the latency of one pair, and on a GPU the time of each kernel. With several
/// GPUs, prints a line for each, and their sum.
///
/// # Errors
///
/// The failed step, or the reason why there is no GPU.
pub fn measure(args: &Args) -> Result<(), Box<dyn Error>> {
    let plan = args.plan(&[])?;
    match &args.devices {
        None => print(args, &measure::measure(args, &plan, Duration::MAX)?),
        Some(_) if args.backend == BackendChoice::Cpu => {
            Err("--devices is for GPUs, and --backend says cpu".into())
        }
        Some(devices) => print(args, &several::measure(args, &plan, devices)?),
    }
}

fn print(args: &Args, report: &(impl Display + Serialize)) -> Result<(), Box<dyn Error>> {
    if args.device.json {
        println!("{}", serde_json::to_string(report)?);
    } else {
        print!("{report}");
    }
    Ok(())
}
