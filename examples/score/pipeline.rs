// SPDX-License-Identifier: MPL-2.0

//! Builds the pipeline, runs it, and collects what the element says on the bus.

use std::error::Error;
use std::path::Path;

use gst::prelude::*;
use gst::{ClockTime, MessageView};
use gsthipvmaf::message::{FrameMessage, PooledMessage, VmafMessage};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{Args, files, interrupt};

/// What the element has reported.
pub struct Scores {
    pub frames: Vec<FrameMessage>,
    /// One for each section: more than one if the size or format of the video changes on the way.
    pub pooled: Vec<PooledMessage>,
    /// The signal that ended it before the end of the stream.
    pub signal: Option<i32>,
}

/// Runs the videos through the element.
pub fn score(args: &Args) -> Result<Scores, Box<dyn Error>> {
    let pipeline = build(args)?;
    let bus = pipeline.bus().ok_or("the pipeline has no bus")?;
    interrupt::watch(&bus)?;
    let result = match pipeline.set_state(gst::State::Playing) {
        Ok(_) => follow(&pipeline, &bus),
        // The element that refused has said why.
        Err(err) => Err(match bus.pop_filtered(&[gst::MessageType::Error]).as_ref().map(|m| m.view()) {
            Some(MessageView::Error(error)) => files::explain(error),
            _ => err.into(),
        }),
    };
    pipeline.set_state(gst::State::Null)?;
    result
}

fn build(args: &Args) -> Result<gst::Pipeline, Box<dyn Error>> {
    let inputs = match args.x264 {
        // The encoder keeps some frames before it gives back the first one, so the queue on the other way
        // must hold as many; it never holds more.
        Some(bitrate) => format!(
            "tee name=ref \
             ref. ! queue max-size-buffers=0 max-size-bytes=0 max-size-time=0 ! score.ref_sink \
             ref. ! queue ! videoconvert ! x264enc bitrate={bitrate} ! avdec_h264 ! score.dist_sink"
        ),
        None => "queue name=ref ! score.ref_sink queue name=dist ! score.dist_sink".into(),
    };
    let pipeline = gst::parse::launch(&format!("{inputs} hipvmaf name=score frame-message=true ! fakesink"))?
        .downcast::<gst::Pipeline>()
        .map_err(|_| "not a pipeline")?;

    let element = |name| pipeline.by_name(name).ok_or_else(|| format!("no element {name} in the pipeline"));
    files::decode(&pipeline, &args.reference, &element("ref")?)?;
    if let Some(path) = &args.distorted {
        files::decode(&pipeline, path, &element("dist")?)?;
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

/// Collects messages until the end of the stream, which a signal brings on.
fn follow(pipeline: &gst::Pipeline, bus: &gst::Bus) -> Result<Scores, Box<dyn Error>> {
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}")?);
    let mut scores = Scores { frames: vec![], pooled: vec![], signal: None };
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
            // The bar itself prints to terminals only.
            MessageView::Warning(warning) => {
                bar.suspend(|| eprintln!("warning: {}", warning.error().message()))
            }
            MessageView::Application(application) => {
                scores.signal = files::signal(application);
                files::end_stream(&pipeline.by_name("score").ok_or("no element score in the pipeline")?);
            }
            MessageView::Error(error) => return Err(files::explain(error)),
            MessageView::Eos(_) => break,
            _ => {}
        }
    }
    bar.finish_and_clear();
    Ok(scores)
}
