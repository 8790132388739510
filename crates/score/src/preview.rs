// SPDX-License-Identifier: MPL-2.0

//! Pictures for an examination before scoring: the luma of the frames as they will be decoded.

use std::sync::Arc;

use gst::ClockTime;
use gst::prelude::*;
use gst_video::prelude::*;
use gst_video::video_frame::Readable;
use gst_video::{VideoColorRange, VideoFrame, VideoInfo};
use parking_lot::Mutex;

use super::decoders::Decoders;
use super::preprocessing::{Orientation, Preprocessing};
use super::source::{self, Input};
use crate::error::Error;
use crate::{interrupt, redact};

/// Longest wait for a picture.
const PICTURE_TIMEOUT: ClockTime = ClockTime::from_seconds(30);

/// Interval of the checks for errors.
const LOOK: ClockTime = ClockTime::from_mseconds(50);

/// A video under examination.
pub struct Preview {
    pipeline: gst::Pipeline,
    sink: gst_app::AppSink,
    said: Arc<Mutex<Said>>,
    decoders: Decoders,
    /// The video as the user wrote it.
    given: String,
}

/// Caps and tags of the frames before their conversion to luma.
#[derive(Default)]
struct Said {
    caps: Option<gst::Caps>,
    orientation: Option<Orientation>,
}

impl Said {
    fn hear(&mut self, info: &gst::PadProbeInfo) {
        match info.event().map(|event| event.view()) {
            Some(gst::EventView::Caps(event)) => self.caps = Some(event.caps_owned()),
            Some(gst::EventView::Tag(event)) => {
                if let Some(tag) = event.tag().get::<gst::tags::ImageOrientation>() {
                    self.orientation = Orientation::of_tag(tag.get());
                }
            }
            _ => {}
        }
    }
}

/// A picture with 8-bit luma.
pub struct Picture {
    /// Running time.
    pub time: ClockTime,
    /// Stream time.
    pub position: ClockTime,
    frame: VideoFrame<Readable>,
}

impl Preview {
    /// Opens a video.
    pub fn open(input: &Input, preprocessing: Preprocessing) -> Result<Self, Error> {
        let pipeline = gst::parse::bin_from_description(
            "queue name=first max-size-buffers=2 ! videoconvert ! video/x-raw,format=I420 \
             ! appsink name=sink sync=false max-buffers=2",
            false,
        )?;
        let sink = pipeline.by_name("sink").and_downcast::<gst_app::AppSink>().ok_or("there is no sink")?;
        let first = pipeline.by_name("first").ok_or("there is no queue")?;
        let whole = gst::Pipeline::new();
        whole.add(&pipeline)?;
        let ghost = gst::GhostPad::with_target(&first.static_pad("sink").ok_or("a queue has no pad")?)?;
        pipeline.add_pad(&ghost)?;
        ghost.set_active(true)?;
        let said = Arc::new(Mutex::new(Said::default()));
        ghost.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, {
            let said = said.clone();
            move |_, info| {
                said.lock().hear(info);
                gst::PadProbeReturn::Ok
            }
        });
        let decoders = source::decode(&whole, input, preprocessing, pipeline.upcast_ref())?;
        let preview = Self { pipeline: whole, sink, said, decoders, given: input.given().to_owned() };
        preview.pipeline.set_state(gst::State::Playing).map_err(|_| preview.failure())?;
        Ok(preview)
    }

    /// Returns the next picture, or `None` at the end.
    pub fn next(&self) -> Result<Option<Picture>, Error> {
        let Some(sample) = self.pull()? else { return Ok(None) };
        let segment = sample.segment().and_then(|segment| segment.downcast_ref::<ClockTime>().cloned());
        let (Some(buffer), Some(caps)) = (sample.buffer_owned(), sample.caps()) else {
            return Err("a picture lacks its data".into());
        };
        let timed = segment.as_ref().zip(buffer.pts());
        let time = timed.and_then(|(segment, pts)| segment.to_running_time(pts));
        let position = timed.and_then(|(segment, pts)| segment.to_stream_time(pts));
        let frame = VideoFrame::from_buffer_readable(buffer, &VideoInfo::from_caps(caps)?)
            .map_err(|_| "a picture cannot be read")?;
        let [time, position] = [time, position].map(Option::unwrap_or_default);
        Ok(Some(Picture { time, position, frame }))
    }

    /// Returns the next sample, or `None` at the end. Stops waiting on an error.
    fn pull(&self) -> Result<Option<gst::Sample>, Error> {
        let bus = self.pipeline.bus().ok_or("the pipeline has no bus")?;
        let mut waited = ClockTime::ZERO;
        while waited < PICTURE_TIMEOUT {
            if let Some(sample) = self.sink.try_pull_sample(LOOK) {
                return Ok(Some(sample));
            }
            if self.sink.is_eos() {
                return Ok(None);
            }
            if let Some(error) = bus.pop_filtered(&[gst::MessageType::Error]) {
                return Err(self.explain(Some(&error)));
            }
            if interrupt::caught().is_some() {
                return Ok(None);
            }
            waited += LOOK;
        }
        Err(self.explain(None))
    }

    /// Returns the caps of the decoded frames after the first one.
    pub fn caps(&self) -> Option<gst::Caps> {
        self.said.lock().caps.clone()
    }

    /// Returns the orientation of the frames after the first one.
    pub fn orientation(&self) -> Option<Orientation> {
        self.said.lock().orientation
    }

    /// Seeks to the key frame near this time. Returns false if the video cannot seek.
    pub fn seek(&self, to: ClockTime) -> bool {
        self.pipeline.seek_simple(gst::SeekFlags::FLUSH | gst::SeekFlags::KEY_UNIT, to).is_ok()
    }

    fn failure(&self) -> Error {
        let bus = self.pipeline.bus();
        self.explain(bus.and_then(|bus| bus.pop_filtered(&[gst::MessageType::Error])).as_ref())
    }

    fn explain(&self, message: Option<&gst::Message>) -> Error {
        let why = match message.map(|message| message.view()) {
            Some(gst::MessageView::Error(error)) => {
                let is_stuck = error.error().matches(gst::StreamError::Failed);
                let stuck = is_stuck.then(|| self.decoders.stuck()).flatten();
                stuck.unwrap_or_else(|| redact::quoted(error.error().message()))
            }
            _ => "it delivers no data".into(),
        };
        let named = why.contains(&self.given);
        Error::Failed(if named { why } else { format!("{}: {why}", self.given) })
    }
}

impl Drop for Preview {
    fn drop(&mut self) {
        // Always succeeds for a pipeline.
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}

impl Picture {
    /// Returns width and height.
    pub fn size(&self) -> (usize, usize) {
        (self.frame.width() as usize, self.frame.height() as usize)
    }

    /// Returns the bytes per row.
    pub fn stride(&self) -> usize {
        self.frame.plane_stride().first().and_then(|stride| usize::try_from(*stride).ok()).unwrap_or_default()
    }

    /// Returns the value of black: 16 in limited range, otherwise 0.
    pub fn black(&self) -> u8 {
        match self.frame.info().colorimetry().range() {
            VideoColorRange::Range16_235 => 16,
            _ => 0,
        }
    }

    /// Returns all rows.
    pub fn samples(&self) -> &[u8] {
        self.frame.plane_data(0).unwrap_or_default()
    }
}
