// SPDX-License-Identifier: MPL-2.0

//! When the frames of a file are, read from its container without decoding anything.

use std::sync::{Arc, Mutex, PoisonError};

use gst::ClockTime;
use gst::prelude::*;

use crate::error::Error;
use crate::score::Input;

/// A frame: when it is shown, and whether decoders can begin with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub time: u64,
    pub key: bool,
}

/// How long nothing may come.
const PATIENCE: ClockTime = ClockTime::from_seconds(60);

#[derive(Default)]
struct Found {
    frames: Vec<Frame>,
    streams: usize,
    problem: Option<&'static str>,
}

/// The frames of the video of a file in the order in which they are shown.
pub fn frames(input: &Input) -> Result<Vec<Frame>, Error> {
    let pipeline = gst::Pipeline::new();
    let uri = input.uri().ok_or("it is in no container")?;
    let source = gst::ElementFactory::make("urisourcebin").property("uri", uri).build()?;
    let parse = gst::ElementFactory::make("parsebin").build()?;
    pipeline.add_many([&source, &parse])?;
    source.connect_pad_added({
        let sink = parse.static_pad("sink").ok_or("parsebin has no sink")?;
        move |_, pad| {
            // A pad that is refused ends in an error on the bus.
            let _ = pad.link(&sink);
        }
    });
    let found = Arc::new(Mutex::new(Found::default()));
    parse.connect_pad_added({
        let (found, pipeline) = (found.clone(), pipeline.downgrade());
        move |parse, pad| {
            let linked = pipeline
                .upgrade()
                .ok_or("there is no pipeline".into())
                .and_then(|pipeline| end(&pipeline, pad));
            if let Err(error) = linked {
                gst::element_error!(parse, gst::CoreError::Pad, ("{error}"));
            }
            if is_video(pad) {
                found.lock().unwrap_or_else(PoisonError::into_inner).streams += 1;
                let found = found.clone();
                pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
                    if let Some(buffer) = info.buffer() {
                        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                        match time(pad, buffer) {
                            Some(time) => {
                                let key = !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT);
                                found.frames.push(Frame { time: time.nseconds(), key });
                            }
                            None => found.problem = Some("its container does not say when its frames are"),
                        }
                    }
                    gst::PadProbeReturn::Ok
                });
            }
        }
    });
    let bus = pipeline.bus().ok_or("the pipeline has no bus")?;
    let ended = match pipeline.set_state(gst::State::Playing) {
        Ok(_) => end_of(&pipeline, &bus),
        Err(error) => Err(error.into()),
    };
    pipeline.set_state(gst::State::Null)?;
    ended?;
    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
    match (found.problem, found.streams) {
        (Some(problem), _) => Err(problem.into()),
        (None, 1) => {
            let mut frames = std::mem::take(&mut found.frames);
            frames.sort_by_key(|frame| frame.time);
            Ok(frames)
        }
        (None, streams) => Err(Error::Failed(format!("it has {streams} video streams"))),
    }
}

/// Waits for the end, as long as it comes nearer.
fn end_of(pipeline: &gst::Pipeline, bus: &gst::Bus) -> Result<(), Error> {
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let mut last = None;
    loop {
        match bus.timed_pop_filtered(PATIENCE, &kinds) {
            Some(message) => match message.view() {
                gst::MessageView::Error(error) => return Err(error.error().message().into()),
                _ => return Ok(()),
            },
            None => {
                let now = pipeline.query_position::<ClockTime>();
                if now == last {
                    return Err("nothing comes of it".into());
                }
                last = now;
            }
        }
    }
}

fn is_video(pad: &gst::Pad) -> bool {
    let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
    caps.structure(0).is_some_and(|s| s.name().starts_with("video/") || s.name().starts_with("image/"))
}

/// Has what comes of a pad go nowhere.
fn end(pipeline: &gst::Pipeline, pad: &gst::Pad) -> Result<(), Error> {
    let sink =
        gst::ElementFactory::make("fakesink").property("sync", false).property("async", false).build()?;
    pipeline.add(&sink)?;
    sink.sync_state_with_parent()?;
    let sink = sink.static_pad("sink").ok_or("fakesink has no pad")?;
    pad.link(&sink).map_err(|error| Error::Failed(error.to_string()))?;
    Ok(())
}

fn time(pad: &gst::Pad, buffer: &gst::BufferRef) -> Option<ClockTime> {
    let event = pad.sticky_event::<gst::event::Segment>(0)?;
    let segment = event.segment().downcast_ref::<ClockTime>()?;
    segment.to_stream_time_full(buffer.pts()?)?.positive()
}
