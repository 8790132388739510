// SPDX-License-Identifier: MPL-2.0

//! Decodes the first audio stream of a source in a pipeline of its own.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gst::prelude::*;
use parking_lot::Mutex;

use super::meter::{Heard, Meter};
use crate::clock;

/// Time after which decoding is tried again after an error.
const RETRY: Duration = Duration::from_secs(10);
/// Element of a source that decodes.
const DECODER: &str = "decoder";
/// The pipeline. Encoded audio that is not decoded in time is dropped.
const DESCRIPTION: &str = "appsrc name=in format=time is-live=true max-bytes=1048576 leaky-type=downstream \
     ! decodebin ! audioconvert \
     ! appsink name=out sync=false async=false max-buffers=50 drop=true caps=audio/x-raw,format=F32LE,layout=interleaved";

/// Makes a source hand out its audio as it was sent. Audio that cannot be decoded is then no error of the source.
pub fn keep_encoded(source: &gst::Bin) {
    let Some(decoder) = source.by_name(DECODER) else { return };
    decoder.connect("autoplug-continue", false, |values| {
        let caps = values.get(2).and_then(|caps| caps.get::<gst::Caps>().ok());
        Some((!caps.is_some_and(|caps| is_audio(&caps))).to_value())
    });
}

fn is_audio(caps: &gst::Caps) -> bool {
    caps.structure(0).is_some_and(|structure| structure.name().starts_with("audio/"))
}

/// The audio of a source.
pub struct Audio {
    meter: Arc<Mutex<Meter>>,
    /// Input of the pipeline, while there is one.
    input: Arc<Mutex<Option<gst_app::AppSrc>>>,
    pipeline: Option<gst::Pipeline>,
    /// Error of the last pipeline, if nothing was decoded since.
    reason: Option<String>,
    /// Time of the next attempt after an error.
    retry: Option<Instant>,
}

impl Audio {
    /// Measures the first audio stream of a source. Sources without a decoder have no audio.
    pub fn attach(source: &gst::Bin) -> Option<Self> {
        let decoder = source.by_name(DECODER)?;
        let input: Arc<Mutex<Option<gst_app::AppSrc>>> = Arc::default();
        let (sent, taken) = (input.clone(), Mutex::<Option<gst::Pad>>::default());
        decoder.connect_pad_added(move |_, pad| {
            let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
            let mut taken = taken.lock();
            if !is_audio(&caps) || taken.as_ref().is_some_and(|pad| pad.parent().is_some()) {
                return;
            }
            *taken = Some(pad.clone());
            let sent = sent.clone();
            // The pad stays without a peer: demultiplexed streams without one keep in step with the pictures.
            pad.add_probe(gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST, move |pad, info| {
                if let (Some(input), Some(caps)) = (sent.lock().as_ref(), pad.current_caps()) {
                    push(input, &caps, info);
                }
                gst::PadProbeReturn::Ok
            });
        });
        let mut audio = Self { meter: Arc::default(), input, pipeline: None, reason: None, retry: None };
        audio.open(Instant::now());
        Some(audio)
    }

    /// Returns the measurements since the last call, and keeps the decoder running.
    pub fn heard(&mut self, now: Instant) -> Heard {
        let failed = self.pipeline.as_ref().and_then(error);
        if failed.is_some() {
            self.close();
            self.reason = failed;
            self.retry = Some(now + RETRY);
        }
        if self.pipeline.is_none() && self.retry.is_none_or(|retry| retry <= now) {
            self.open(now);
        }
        let heard = self.meter.lock().heard(now);
        if heard.present {
            self.reason = None;
        }
        Heard { reason: self.reason.clone(), ..heard }
    }

    fn open(&mut self, now: Instant) {
        match decode(&self.meter) {
            Ok((pipeline, input)) => {
                self.pipeline = Some(pipeline);
                *self.input.lock() = Some(input);
                self.retry = None;
            }
            Err(error) => {
                self.reason = Some(error.to_string());
                self.retry = Some(now + RETRY);
            }
        }
    }

    /// Ends the pipeline without waiting for it.
    fn close(&mut self) {
        *self.input.lock() = None;
        if let Some(pipeline) = self.pipeline.take() {
            pipeline.call_async(|pipeline| {
                // It is dropped in any case.
                let _ = pipeline.set_state(gst::State::Null);
            });
        }
    }
}

impl Drop for Audio {
    fn drop(&mut self) {
        self.close();
    }
}

/// Copies what passes a pad to the pipeline, which never blocks.
fn push(input: &gst_app::AppSrc, caps: &gst::Caps, info: &gst::PadProbeInfo) {
    let send = |buffer: &gst::BufferRef| {
        let sample = gst::Sample::builder().buffer(&buffer.copy()).caps(caps).build();
        // Fails only while the pipeline ends.
        let _ = input.push_sample(&sample);
    };
    match &info.data {
        Some(gst::PadProbeData::Buffer(buffer)) => send(buffer),
        Some(gst::PadProbeData::BufferList(list)) => list.iter().for_each(send),
        _ => {}
    }
}

/// Returns the error of a pipeline, if it has failed.
fn error(pipeline: &gst::Pipeline) -> Option<String> {
    let message = pipeline.bus()?.pop_filtered(&[gst::MessageType::Error])?;
    match message.view() {
        gst::MessageView::Error(error) => Some(error.error().message().into()),
        _ => None,
    }
}

/// Starts a pipeline that decodes into a meter.
fn decode(meter: &Arc<Mutex<Meter>>) -> Result<(gst::Pipeline, gst_app::AppSrc), Box<dyn Error>> {
    let bin = gst::parse::bin_from_description(DESCRIPTION, false)?;
    let input = bin.by_name("in").and_then(|input| input.downcast::<gst_app::AppSrc>().ok());
    let output = bin.by_name("out").and_then(|output| output.downcast::<gst_app::AppSink>().ok());
    let (input, output) = (input.ok_or("there is no appsrc")?, output.ok_or("there is no appsink")?);
    let meter = meter.clone();
    let new_sample = move |output: &gst_app::AppSink| {
        let sample = output.pull_sample().map_err(|_| gst::FlowError::Eos)?;
        measure(&meter, &sample).ok_or(gst::FlowError::NotNegotiated)?;
        Ok(gst::FlowSuccess::Ok)
    };
    output.set_callbacks(gst_app::AppSinkCallbacks::builder().new_sample(new_sample).build());
    let pipeline = gst::Pipeline::new();
    clock::give(&pipeline);
    pipeline.add(&bin)?;
    pipeline.set_state(gst::State::Playing)?;
    Ok((pipeline, input))
}

/// Measures samples, or returns nothing if their format cannot be.
fn measure(meter: &Mutex<Meter>, sample: &gst::Sample) -> Option<()> {
    let structure = sample.caps()?.structure(0)?;
    let number = |name| u32::try_from(structure.get::<i32>(name).ok()?).ok();
    let format = (number("rate")?, number("channels")?);
    let map = sample.buffer()?.map_readable().ok()?;
    let (samples, _) = map.as_chunks::<4>();
    // Some decoders make others of damaged data, and the filters of the meter would never forget them.
    let finite = |sample: f32| if sample.is_finite() { sample } else { 0.0 };
    let samples: Vec<_> = samples.iter().map(|bytes| finite(f32::from_le_bytes(*bytes))).collect();
    meter.lock().add(&samples, format, Instant::now()).ok()
}
