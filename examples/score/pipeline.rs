// SPDX-License-Identifier: MPL-2.0

//! Builds the pipeline, runs it, and collects what the element says on the bus.

use std::error::Error;
use std::path::Path;

use gst::prelude::*;
use gst::{ClockTime, MessageView};
use gsthipvmaf::message::{FrameMessage, PooledMessage, VmafMessage};
use indicatif::{ProgressBar, ProgressStyle};

use crate::Args;

/// What the element has reported.
pub struct Scores {
    pub frames: Vec<FrameMessage>,
    /// One for each section: more than one if the size or format of the video changes on the way.
    pub pooled: Vec<PooledMessage>,
}

/// Runs the videos through the element.
pub fn score(args: &Args) -> Result<Scores, Box<dyn Error>> {
    let pipeline = build(args)?;
    let bus = pipeline.bus().ok_or("the pipeline has no bus")?;
    let result = match pipeline.set_state(gst::State::Playing) {
        Ok(_) => follow(&pipeline, &bus),
        // The element that refused has said why.
        Err(err) => Err(match bus.pop_filtered(&[gst::MessageType::Error]) {
            Some(message) => explain(&message),
            None => err.into(),
        }),
    };
    pipeline.set_state(gst::State::Null)?;
    result
}

fn build(args: &Args) -> Result<gst::Pipeline, Box<dyn Error>> {
    let decode = "decodebin ! videoconvert";
    let inputs = match args.x264 {
        // The encoder keeps some frames before it gives back the first one, so the queue on the other way
        // must hold as many; it never holds more.
        Some(bitrate) => format!(
            "filesrc name=ref ! {decode} ! tee name=film \
             film. ! queue max-size-buffers=0 max-size-bytes=0 max-size-time=0 ! score.ref_sink \
             film. ! queue ! x264enc bitrate={bitrate} ! avdec_h264 ! score.dist_sink"
        ),
        None => format!(
            "filesrc name=ref ! {decode} ! queue ! score.ref_sink \
             filesrc name=dist ! {decode} ! queue ! score.dist_sink"
        ),
    };
    let pipeline = gst::parse::launch(&format!("{inputs} hipvmaf name=score frame-message=true ! fakesink"))?
        .downcast::<gst::Pipeline>()
        .map_err(|_| "not a pipeline")?;

    let element = |name| pipeline.by_name(name).ok_or_else(|| format!("no element {name} in the pipeline"));
    element("ref")?.set_property("location", &args.reference);
    if let Some(path) = &args.distorted {
        element("dist")?.set_property("location", path);
    }
    let score = element("score")?;
    score.set_property("model-filename", &args.models[0]);
    score.set_property("extra-models", args.models[1..].join(";"));
    score.set_property("threads", args.threads);
    if let Some(path) = &args.results {
        score.set_property_from_str("results-format", results_format(path)?);
        score.set_property(
            "results-filename",
            path.to_str().ok_or("the name of the results file is not UTF-8")?,
        );
    }
    Ok(pipeline)
}

fn results_format(path: &Path) -> Result<&str, String> {
    path.extension()
        .and_then(|extension| extension.to_str())
        .filter(|extension| ["json", "csv", "xml"].contains(extension))
        .ok_or_else(|| format!("{}: the results file must end in .json, .csv or .xml", path.display()))
}

/// Collects messages until the end of the stream.
fn follow(pipeline: &gst::Pipeline, bus: &gst::Bus) -> Result<Scores, Box<dyn Error>> {
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}")?);
    let mut scores = Scores { frames: vec![], pooled: vec![] };
    for message in bus.iter_timed(None) {
        match message.view() {
            MessageView::Element(element) => match element.structure().map(VmafMessage::try_from) {
                Some(Ok(VmafMessage::Frame(frame))) => {
                    let length = pipeline.query_duration::<ClockTime>();
                    bar.set_length(length.unwrap_or_default().mseconds());
                    bar.set_position(frame.stream_time.unwrap_or_default().mseconds());
                    bar.set_message(format!("frame {}, {:.2}", frame.index, frame.score));
                    scores.frames.push(frame);
                }
                Some(Ok(VmafMessage::Pooled(pooled))) => scores.pooled.push(pooled),
                // A window, or a message of another kind.
                Some(Ok(VmafMessage::Window(_)) | Err(_)) | None => {}
            },
            MessageView::Warning(warning) => bar.println(format!("warning: {}", warning.error().message())),
            MessageView::Error(_) => return Err(explain(&message)),
            MessageView::Eos(_) => break,
            _ => {}
        }
    }
    bar.finish_and_clear();
    Ok(scores)
}

/// The text of an error message, followed by its hint: what comes after the first line of the debug text,
/// which says where in the code it was posted.
fn explain(message: &gst::Message) -> Box<dyn Error> {
    let MessageView::Error(error) = message.view() else { return "not an error message".into() };
    let debug = error.debug().unwrap_or_default();
    let hint = debug.split_once('\n').map_or("", |(_, hint)| hint);
    format!("{}\n{hint}", error.error().message()).trim_end().into()
}
