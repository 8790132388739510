// SPDX-License-Identifier: MPL-2.0

//! The arguments of the command.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::builder::ArgPredicate;
use clap::{CommandFactory as _, Parser as _, ValueEnum};
use gsthipvmaf::{Align, Backend, Colorimetry, ScaleMethod};

use super::crop::Crop;
use super::decoders::Decoder;
use super::property::Nick;
use super::reader::{Raw, frames_per_second};
use super::rendition::Encoding;
use super::time_range::Position;

/// Score videos against their original
///
/// A video is a file, a URI, an image sequence such as frames_%04d.png, or standard input (-). It can be anything
/// that GStreamer reads, and Y4M and raw video. Several encodes are scored in one pass, which costs less than
/// separate runs. Encodes of another size are scaled to the original's, as a player would.
// As many fields as the command has options, which is why they are more than twenty.
#[derive(clap::Args)]
pub struct Args {
    /// Original video
    pub reference: String,
    /// Encodes to score, each as FILE or NAME=FILE; those of one name are a series of rates
    #[arg(required_unless_present = "encodings", value_name = "[NAME=]DISTORTED")]
    pub distorted: Vec<String>,
    /// Also encode the original with x264 and score that, at this bit rate and, by default, the original's size
    #[arg(long = "x264", value_name = "[WIDTHxHEIGHT:]KBIT/S")]
    pub encodings: Vec<Encoding>,

    /// Built-in name or JSON file of a model; may be repeated. `auto` picks the v1 model for the original's size and
    /// rate, `auto-v0` the v0 model; `none` leaves only the metrics of --feature
    #[arg(
        long = "model",
        value_name = "MODEL",
        default_value = "vmaf_v0.6.1",
        default_value_if("preset", ArgPredicate::IsPresent, None)
    )]
    pub models: Vec<String>,
    /// Further metric by libvmaf's name, such as psnr or cambi=full_ref=true; may be repeated
    #[arg(long = "feature", value_name = "NAME[=OPTION=VALUE[:…]]")]
    pub features: Vec<String>,
    /// Model and metrics for a viewer in front of a screen of 1080 lines, of 2160 lines, or of a phone, or all metrics;
    /// in addition to --model and --feature. HDR video gets ColorVideoVDP with an HDR display
    #[arg(long, value_enum)]
    pub preset: Option<Preset>,
    /// How to scale videos of another size [default: bicubic]; with `none` they are an error
    #[arg(long)]
    pub scale: Option<Nick<ScaleMethod>>,
    /// How to handle videos with different colour coding
    #[arg(long, default_value = "strict")]
    pub colorimetry: Nick<Colorimetry>,
    /// How to pair frames: by examining the files, only by their timestamps or numbers, or only by their pictures
    #[arg(long, value_enum, default_value = "auto")]
    pub pair: Pair,
    /// Find an offset between the videos: report it, or pair frames with it
    #[arg(long, default_value = "off")]
    pub align: Nick<Align>,
    /// Delay of the encodes; negative if they are early
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, allow_negative_numbers = true, value_parser = offset)]
    pub offset: f64,

    /// Remove this many samples from each side of the original, in even numbers, and the same area from the encodes;
    /// `auto` finds black bars and keeps the smallest rectangle with all pictures
    #[arg(long, value_name = "auto|LEFT:RIGHT:TOP:BOTTOM")]
    pub crop: Option<Crop>,
    /// Drop or repeat frames of videos with another frame rate to match the original's, as a player would
    #[arg(long)]
    pub rate: bool,

    /// Fail instead of adapting videos that do not match the original
    #[arg(long)]
    pub strict: bool,
    /// Fail if fewer of the original's frames were scored than this share, from 0 to 1
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, value_parser = share)]
    pub min_coverage: Option<f64>,

    /// First frame: its number in the original, or a time such as 12.5s or 1:02:03
    #[arg(long, value_name = "POSITION", allow_negative_numbers = true)]
    pub from: Option<Position>,
    /// First frame that is no longer scored
    #[arg(long, value_name = "POSITION", allow_negative_numbers = true)]
    pub to: Option<Position>,
    /// Number of frames of the original to score
    #[arg(long, value_name = "N", conflicts_with = "to", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub frames: Option<u64>,

    /// Decoders to use
    #[arg(long, value_enum, default_value = "auto")]
    pub decoder: Decoder,
    /// Frames per second of image sequences, such as 25 or 24000/1001
    #[arg(long, value_name = "RATE", default_value = "25", allow_negative_numbers = true, value_parser = frames_per_second)]
    pub image_rate: gst::Fraction,
    /// Format of raw video, in files such as film.yuv and in streams without a header: size, pixel format by ffmpeg's
    /// name, and frames per second, such as 1920x1080:yuv420p10le:25
    #[arg(long, value_name = "WIDTHxHEIGHT:FORMAT:RATE")]
    pub raw: Option<Raw>,
    /// Where pixels are processed
    #[arg(long, default_value = "auto")]
    pub backend: Nick<Backend>,
    /// CPU threads; 0 means one per core
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub threads: u32,
    /// Set any other property of the element hipvmaf; may be repeated
    #[arg(long = "set", value_name = "PROPERTY=VALUE", value_parser = property)]
    pub properties: Vec<(String, String)>,

    /// Write all scores and features into a file in libvmaf's schema: .json, .xml or .csv. With several encodes, each
    /// further one gets a file with its name inserted
    #[arg(long, value_name = "FILE", value_parser = results)]
    pub results: Option<PathBuf>,
    /// Omit version, backend and speed from the results, so that two runs can be compared
    #[arg(long)]
    pub no_provenance: bool,
    /// Write a self-contained HTML report: zoomable curves, histogram, percentiles, worst frames with heatmaps, and
    /// provenance
    #[arg(long, value_name = "FILE", value_parser = report)]
    pub report: Option<PathBuf>,
    /// Write a table with a row for each encode: rate, size, and the figures of each model and metric, as .csv
    #[arg(long, value_name = "FILE", value_parser = summary)]
    pub summary: Option<PathBuf>,
    /// Number of worst frames to list [default: 5], and to show in the report [default: 5, fewer for many encodes]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub worst: Option<usize>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// A command line.
#[derive(clap::Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    args: Args,
}

impl Args {
    /// Parses arguments that do not begin with the name of the command.
    pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Self, clap::Error> {
        let args = Line::try_parse_from(words)?.args;
        // Titles of archives have neither a summary nor a choice that depends on the video.
        if args.preset.is_some() || args.summary.is_some() {
            let text = "--preset and --summary are for videos, not for titles of an archive";
            return Err(Line::command().error(clap::error::ErrorKind::ArgumentConflict, text));
        }
        Ok(args)
    }

    /// Returns the arguments for two files, without options.
    pub fn of_files(files: [&Path; 2]) -> Result<Self, clap::Error> {
        // After `--`, names may begin with a dash.
        Self::parse([OsStr::new("--")].into_iter().chain(files.map(Path::as_os_str)).map(OsStr::to_owned))
    }
}

/// Number of worst frames to list.
const WORST: usize = 5;
/// Most worst frames in a report, of all encodes, and least number for each.
const IN_REPORT: usize = 14;
const OF_EACH: usize = 2;

impl Args {
    /// Returns the number of worst frames to list.
    pub fn worst(&self) -> usize {
        self.worst.unwrap_or(WORST)
    }

    /// Returns the number of worst frames of each encode in the report.
    pub fn worst_in_report(&self, encodes: usize) -> usize {
        self.worst.unwrap_or((IN_REPORT / encodes.max(1)).clamp(OF_EACH, WORST))
    }
}

/// Models and metrics for a purpose.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// A screen of 1080 lines: vmaf_v0.6.1, ssimulacra2, xpsnr, cvvdp
    Hd,
    /// A screen of 2160 lines: vmaf_4k_v0.6.1, ssimulacra2, xpsnr, cvvdp
    #[value(name = "4k")]
    Uhd,
    /// A phone: vmaf_v1.0.16_5d0h, xpsnr, cvvdp
    Phone,
    /// VMAF for the original's size, and every metric that can be computed for it
    All,
}

/// How frames are paired.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pair {
    /// By examination: by number, by timestamp with an offset, or by picture
    Auto,
    /// Frames with the same timestamp
    Time,
    /// Frames with the same number
    Number,
    /// Frames with the same picture
    Picture,
}

fn offset(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|seconds: &f64| seconds.abs() < 1e6).ok_or("not a number of seconds")
}

fn share(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or("not a share from 0 to 1")
}

fn property(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("properties are written as NAME=VALUE")?;
    Ok((name.into(), value.into()))
}

fn report(text: &str) -> Result<PathBuf, &'static str> {
    let ending = Path::new(text).extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    let is_picture =
        ending.is_some_and(|ending| ["png", "jpg", "jpeg", "svg", "webp", "pdf"].contains(&&*ending));
    (!is_picture).then(|| text.into()).ok_or("a report is an HTML page, with a name such as report.html")
}

fn summary(text: &str) -> Result<PathBuf, &'static str> {
    let is_csv = Path::new(text).extension().is_some_and(|ending| ending == "csv");
    is_csv.then(|| text.into()).ok_or("the name of a summary ends in .csv")
}

fn results(text: &str) -> Result<PathBuf, &'static str> {
    let ending = Path::new(text).extension().and_then(|ending| ending.to_str());
    let known = ending.filter(|ending| ["json", "csv", "xml"].contains(ending));
    known.map(|_| text.into()).ok_or("the name of a results file ends in .json, .csv or .xml")
}
