// SPDX-License-Identifier: MPL-2.0

//! Scores the renditions of an ABR ladder against their reference in one pass:
//!
//! ```sh
//! cargo run --release --example ladder -- original.mkv 1080p.mp4 720p.mp4 360p.mp4
//! cargo run --release --example ladder -- original.mkv --x264 2500 --x264 1280x720:1500 --x264 640x360:600
//! ```
//!
//! The element scales renditions of another size to that of the reference, as a player does. What depends on the
//! reference alone is computed once for all of them. Ctrl-C and SIGTERM end it with the scores so far, and with the exit
//! code 130 or 143.

#[path = "common/files.rs"]
mod files;
#[path = "common/interrupt.rs"]
mod interrupt;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use clap::Parser;
use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use gst::prelude::*;
use gst::{ClockTime, MessageView};
use gsthipvmaf::message::{PooledMessage, VmafMessage};

/// Score the renditions of a ladder
#[derive(Parser)]
struct Args {
    /// The original, in any format that GStreamer decodes
    reference: PathBuf,
    /// Encodings of it
    renditions: Vec<PathBuf>,
    /// Encode a rendition with x264, at this bit rate and of the original's size unless another is named
    #[arg(long = "x264", value_name = "[WIDTHxHEIGHT:]KBIT/S")]
    encodings: Vec<Encoding>,
    /// Built-in name or JSON file of the model
    #[arg(long, default_value = "vmaf_v0.6.1")]
    model: String,
}

#[derive(Clone)]
struct Encoding {
    size: Option<(u32, u32)>,
    kbits: u32,
}

impl FromStr for Encoding {
    type Err = Box<dyn Error + Send + Sync>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((size, kbits)) = text.split_once(':') else {
            return Ok(Self { size: None, kbits: text.parse()? });
        };
        let (width, height) = size.split_once('x').ok_or("a size is written as WIDTHxHEIGHT")?;
        Ok(Self { size: Some((width.parse()?, height.parse()?)), kbits: kbits.parse()? })
    }
}

impl Encoding {
    fn label(&self) -> String {
        let size = self.size.map_or(String::new(), |(width, height)| format!("{width}x{height} "));
        format!("{size}{} kbit/s", self.kbits)
    }

    /// Elements from the reference to the decoded rendition, and the link to what follows.
    fn description(&self) -> String {
        let size = self.size.map_or(String::new(), |(width, height)| {
            format!("! videoscale ! video/x-raw,width={width},height={height},pixel-aspect-ratio=1/1 ")
        });
        format!("ref. ! queue ! videoconvert {size}! x264enc bitrate={} ! avdec_h264 ! ", self.kbits)
    }
}

/// Where frames wait for those of slower renditions. It never holds more than an encoder does, as the queues before
/// the encoders are bounded.
const WAIT: &str = "queue max-size-buffers=0 max-size-bytes=0 max-size-time=0";

fn build(args: &Args) -> Result<gst::Pipeline, Box<dyn Error>> {
    let files = args.renditions.iter().map(|path| {
        let label = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (label, String::new())
    });
    let encodings = args.encodings.iter().map(|encoding| (encoding.label(), encoding.description()));
    let (labels, descriptions): (Vec<_>, Vec<_>) = files.chain(encodings).unzip();
    if labels.is_empty() {
        return Err("there is nothing to score: name files or bit rates (--x264)".into());
    }
    let pad = |i: usize| if i == 0 { "dist_sink" } else { "dist_%u" };
    let branches = descriptions
        .iter()
        .enumerate()
        .map(|(i, description)| format!("{description}{WAIT} name=wait{i} ! score.{} ", pad(i)));
    let pipeline = gst::parse::launch(&format!(
        "tee name=ref ref. ! {WAIT} ! score.ref_sink {} \
         hipvmaf name=score attach-meta=false scale-method=bicubic ! fakesink",
        branches.collect::<String>()
    ))?
    .downcast::<gst::Pipeline>()
    .map_err(|_| "not a pipeline")?;
    let element =
        |name: &str| pipeline.by_name(name).ok_or_else(|| format!("no element {name} in the pipeline"));
    files::decode(&pipeline, &args.reference, &element("ref")?)?;
    for (i, path) in args.renditions.iter().enumerate() {
        files::decode(&pipeline, path, &element(&format!("wait{i}"))?)?;
    }
    let score = element("score")?;
    score.set_property("model-filename", &args.model);
    // In the order in which they were asked for.
    let pads = score.sink_pads().into_iter().filter(|pad| pad.has_property("label"));
    for (pad, label) in pads.zip(&labels) {
        pad.set_property("label", label);
    }
    Ok(pipeline)
}

/// Runs to the end, or to the signal that comes before: what each rendition comes to.
fn score(args: &Args) -> Result<(Vec<PooledMessage>, Option<i32>), Box<dyn Error>> {
    let pipeline = build(args)?;
    let bus = pipeline.bus().ok_or("the pipeline has no bus")?;
    interrupt::watch(&bus)?;
    let mut renditions = vec![];
    let mut signal = None;
    // What refuses to start says why on the bus.
    let started = pipeline.set_state(gst::State::Playing);
    let timeout = if started.is_ok() { ClockTime::NONE } else { Some(ClockTime::ZERO) };
    let mut result = started.map(|_| ()).map_err(Into::into);
    for message in bus.iter_timed(timeout) {
        match message.view() {
            MessageView::Element(element) => {
                if let Some(Ok(VmafMessage::Pooled(pooled))) = element.structure().map(VmafMessage::try_from)
                {
                    renditions.push(pooled);
                }
            }
            MessageView::Application(application) => {
                signal = files::signal(application);
                files::end_stream(&pipeline.by_name("score").ok_or("no element score in the pipeline")?);
            }
            MessageView::Warning(warning) => eprintln!("warning: {}", warning.error().message()),
            MessageView::Error(error) => {
                result = Err(files::explain(error));
                break;
            }
            MessageView::Eos(_) => break,
            _ => {}
        }
    }
    pipeline.set_state(gst::State::Null)?;
    result.map(|()| (renditions, signal))
}

fn table(renditions: &[PooledMessage]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(["rendition", "frames", "unpaired", "mean", "harmonic", "p1", "p5", "p50", "lowest"]);
    for rendition in renditions {
        let stats = rendition.stats;
        let mut row =
            vec![rendition.label.clone(), rendition.frames.to_string(), rendition.unpaired.to_string()];
        let scores = [stats.mean, stats.harmonic_mean, stats.p1, stats.p5, stats.p50, stats.min];
        row.extend(scores.map(|score| format!("{score:.2}")));
        table.add_row(row);
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    gst::init()?;
    gsthipvmaf::plugin_register_static()?;
    let (renditions, signal) = score(args)?;
    if let Some(signal) = signal {
        eprintln!("interrupted: the scores are those of the frames so far");
        println!("{}", table(&renditions));
        return Ok(files::exit_code(signal));
    }
    if renditions.iter().all(|rendition| rendition.frames == 0) {
        return Err("no frame was scored: the videos share no moment in time".into());
    }
    println!("{}", table(&renditions));
    Ok(ExitCode::SUCCESS)
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
