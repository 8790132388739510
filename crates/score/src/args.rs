// SPDX-License-Identifier: MPL-2.0

//! The arguments of the command.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Parser as _, ValueEnum};

use super::crop::Crop;
use super::reader::Raw;
use super::rendition::Encoding;
use super::source::Decoder;
use super::span::Position;

/// Score videos against their original
///
/// A video is a file, a URI, an image sequence as frames_%04d.png, or standard input (-): whatever GStreamer can open, Y4M
/// and raw video. Several encodings are
/// scored in one pass, which costs less than one after the other. Videos of another size than the original's are scaled to
/// it, as a player does.
#[derive(clap::Args)]
pub struct Args {
    /// The original
    pub reference: String,
    /// What is scored
    #[arg(required_unless_present = "encodings")]
    pub distorted: Vec<String>,
    /// Score an encoding of the original by x264 as well, at this bit rate and of its size unless another is named
    #[arg(long = "x264", value_name = "[WIDTHxHEIGHT:]KBIT/S")]
    pub encodings: Vec<Encoding>,

    /// Built-in name or JSON file of a model; may be repeated. `auto` is the model of version 1 for the size and rate of the
    /// original, `auto-v0` that of version 0
    #[arg(long = "model", value_name = "MODEL", default_value = "vmaf_v0.6.1")]
    pub models: Vec<String>,
    /// A further metric by libvmaf's name, as psnr or cambi=full_ref=true; may be repeated
    #[arg(long = "feature", value_name = "NAME[=OPTION=VALUE[:…]]")]
    pub features: Vec<String>,
    /// How videos of another size are scaled to the original's, bicubic if it is not said; with `none` they are an error
    #[arg(long, value_enum)]
    pub scale: Option<Scale>,
    /// What to do about colours that are coded in different ways
    #[arg(long, value_enum, default_value = "strict")]
    pub colorimetry: Colorimetry,
    /// By what frames are paired: what the files, looked at before, say; their timestamps or their numbers, unseen; or their
    /// pictures alone
    #[arg(long, value_enum, default_value = "auto")]
    pub pair: Pair,
    /// Look for an offset between the videos: report it, or compare frames accordingly
    #[arg(long, value_enum, default_value = "off")]
    pub align: Align,
    /// By how much the distorted videos are late, or early if it is negative
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, allow_hyphen_values = true, value_parser = offset)]
    pub offset: f64,

    /// Cut off so much of the original on its sides, in even numbers of samples, and as much of the others; `auto` finds
    /// black bars and leaves the smallest rectangle that holds the pictures of all
    #[arg(long, value_name = "auto|LEFT:RIGHT:TOP:BOTTOM")]
    pub crop: Option<Crop>,
    /// Bring videos of another rate to the original's, by leaving out frames or repeating them as a player does
    #[arg(long)]
    pub rate: bool,

    /// Refuse videos that do not fit the original, or that would have to be scaled or deinterlaced
    #[arg(long)]
    pub strict: bool,

    /// Where to begin: the number of a frame of the original, or a time as 12.5s or 1:02:03
    #[arg(long, value_name = "POSITION")]
    pub from: Option<Position>,
    /// Where to end, without the frame that is named
    #[arg(long, value_name = "POSITION")]
    pub to: Option<Position>,
    /// How many frames of the original to score
    #[arg(long, value_name = "N", conflicts_with = "to", value_parser = clap::value_parser!(u64).range(1..))]
    pub frames: Option<u64>,

    /// Which decoders to use
    #[arg(long, value_enum, default_value = "auto")]
    pub decoder: Decoder,
    /// Frames per second of image sequences, as 25 or 24000/1001
    #[arg(long, value_name = "RATE", default_value = "25", value_parser = rate)]
    pub image_rate: gst::Fraction,
    /// What raw video is, in files as film.yuv and in streams without a header: its size, the format by ffmpeg's name, and
    /// frames per second, as 1920x1080:yuv420p10le:25
    #[arg(long, value_name = "WIDTHxHEIGHT:FORMAT:RATE")]
    pub raw: Option<Raw>,
    /// Where the work on pixels is done
    #[arg(long, value_name = "auto|hip|cpu", default_value = "auto")]
    pub backend: String,
    /// Threads of the CPU, 0 for one each
    #[arg(long, default_value_t = 0)]
    pub threads: u32,
    /// Set any other property of the element hipvmaf; may be repeated
    #[arg(long = "set", value_name = "PROPERTY=VALUE", value_parser = property)]
    pub properties: Vec<(String, String)>,

    /// Write all scores and features into a file in libvmaf's schema: .json, .xml or .csv. Further encodings have files of
    /// their own, with their names in it
    #[arg(long, value_name = "FILE", value_parser = results)]
    pub results: Option<PathBuf>,
    /// Leave out of the results what made them and how fast, so that files of different runs can be compared
    #[arg(long)]
    pub no_provenance: bool,
    /// Draw the scores over time into an SVG file
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Write a page into an HTML file that needs nothing else: curves to zoom into, histogram, percentiles, pictures of the
    /// worst frames with heat maps, and what made the scores
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// How many of the worst frames to list
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub worst: usize,
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
    /// Returns the arguments of a command line without the name of the command.
    pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Self, clap::Error> {
        Line::try_parse_from(words).map(|line| line.args)
    }

    /// Returns the arguments that name files alone.
    pub fn of_files(files: [&Path; 2]) -> Result<Self, clap::Error> {
        // Names that begin with a dash are no options.
        Self::parse([OsStr::new("--")].into_iter().chain(files.map(Path::as_os_str)).map(OsStr::to_owned))
    }
}

/// A value of the element's property `scale-method`.
#[derive(Clone, Copy, ValueEnum)]

pub enum Scale {
    None,
    Bilinear,
    Bicubic,
    Lanczos,
}

impl Scale {
    /// The method of GStreamer's `videoscale` that comes nearest.
    pub fn of_videoscale(self) -> &'static str {
        match self {
            Self::Bilinear => "bilinear2",
            Self::None | Self::Bicubic => "catrom",
            Self::Lanczos => "lanczos",
        }
    }
}

/// A value of the element's property `colorimetry`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Colorimetry {
    /// Colours that are coded in different ways are an error
    Strict,
    /// Samples are compared as they are
    Ignore,
}

/// By what frames are paired.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pair {
    /// What explains the pictures: numbers, timestamps with an offset, or the pictures themselves
    Auto,
    /// Frames of one time are compared
    Time,
    /// Frames of one number are compared
    Number,
    /// Frames that show the same are compared
    Picture,
}

/// A value of the pads' property `align`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Align {
    /// Frames of one time are compared
    Off,
    /// The offset is reported
    Detect,
    /// Frames are compared by the offset that is found
    Auto,
}

/// The name of a value, as the element has it.
pub fn nick(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn offset(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|seconds: &f64| seconds.abs() < 1e6).ok_or("not a number of seconds")
}

/// Frames per second.
pub fn rate(text: &str) -> Result<gst::Fraction, &'static str> {
    let (numer, denom) = text.split_once('/').unwrap_or((text, "1"));
    match [numer, denom].map(|number| number.parse().ok().filter(|number| (1..1_000_000).contains(number))) {
        [Some(numer), Some(denom)] => Ok(gst::Fraction::new(numer, denom)),
        _ => Err("a rate is written as 25 or 24000/1001"),
    }
}

fn property(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("properties are written as NAME=VALUE")?;
    Ok((name.into(), value.into()))
}

fn results(text: &str) -> Result<PathBuf, &'static str> {
    let ending = Path::new(text).extension().and_then(|ending| ending.to_str());
    let known = ending.filter(|ending| ["json", "csv", "xml"].contains(ending));
    known.map(|_| text.into()).ok_or("the name of a results file ends in .json, .csv or .xml")
}
