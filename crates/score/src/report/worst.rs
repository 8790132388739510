// SPDX-License-Identifier: MPL-2.0

//! Pictures of the worst frames, taken where frames leave the element with their scores.
//!
//! Which frames are the worst is known at the end, when most are gone, and a second look at the sources would not show the
//! same: encodings that are made on the way are not kept, and a URI may give its video once. So the worst frames so far are
//! kept. The element hands out each reference frame together with the scores of all renditions and the very frames that
//! they are of (`attach-frames`), so that no frame can be taken for another, whatever offset, rate or gap there is.
//!
//! Frames of one bad moment look alike, so of each second of the reference only the worst frame counts. That bounds the
//! work as well: of each rendition one pair of pictures is held as it is decoded, and at the end of its second, if it is
//! among the worst, it is made into three pictures of some hundred kilobytes, at most once a second however steadily a
//! film gets worse.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gst::ClockTime;
use gst::prelude::*;
use gst_video::video_frame::Readable;
use gst_video::{VideoFrame, VideoInfo, VideoTimeCodeMeta};
use gsthipvmaf::meta::{ScoreMeta, ScoreState};
use serde::Serialize;

use super::super::run::Job;
use super::super::span::stream_time;
use super::picture::{self, Pictures};

/// A frame, with pictures of it.
#[derive(Serialize)]
pub struct Still {
    /// Number of the reference frame.
    frame: i32,
    /// Where it is in the reference, in seconds.
    time: f64,
    /// Of the reference frame, where it carries one.
    time_code: Option<String>,
    /// By the first model.
    score: f64,
    /// Of the frame; nothing if they could not be made.
    pictures: Option<Pictures>,
    /// Why they could not.
    trouble: Option<String>,
}

/// Looks for the worst frames.
#[derive(Clone)]
pub struct Worst(Arc<Mutex<State>>);

struct State {
    /// How many frames of each rendition are wanted.
    count: usize,
    /// How distorted frames of another size are scaled.
    scale: String,
    renditions: Vec<Rendition>,
}

#[derive(Default)]
struct Rendition {
    /// Its sink pad.
    pad: String,
    /// The second that the last frame was in.
    second: u64,
    /// The worst frame of that second, if it is bad enough.
    candidate: Option<Pair>,
    /// Of the seconds before; the worst first.
    stills: Vec<Still>,
}

/// A frame and what it was compared with, both in the system's memory.
struct Pair {
    frame: i32,
    time: ClockTime,
    time_code: Option<String>,
    score: f64,
    /// Nothing if the CPU cannot read them.
    pictures: Option<[gst::Sample; 2]>,
}

impl Worst {
    /// Looks for so many frames of each rendition of the job.
    pub fn new(job: &Job, count: usize) -> Self {
        let scale = job.properties.iter().rev().find(|(name, _)| name == "scale-method");
        let scale = scale.map_or("none", |(_, value)| value).to_owned();
        let renditions = job.renditions.iter().map(|_| Rendition::default()).collect();
        Self(Arc::new(Mutex::new(State { count, scale, renditions })))
    }

    /// Has the element hand out what is needed, and looks at it.
    pub fn watch(&self, element: &gst::Element) {
        let mut state = self.lock();
        if state.count == 0 {
            return;
        }
        let pads = element.sink_pads().into_iter().filter(|pad| pad.has_property("label"));
        state.renditions.iter_mut().zip(pads).for_each(|(of, pad)| of.pad = pad.name().into());
        drop(state);
        element.set_property("attach-meta", true);
        element.set_property("attach-frames", true);
        let worst = self.clone();
        for pad in element.src_pads() {
            let worst = worst.clone();
            pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
                if let (Some(buffer), Some(caps)) = (info.buffer(), pad.current_caps()) {
                    worst.lock().see(buffer, &caps, stream_time(pad, buffer).unwrap_or_default());
                }
                gst::PadProbeReturn::Ok
            });
        }
    }

    /// The worst frames of each rendition, once no more frames come.
    pub fn finish(&self) -> Vec<Vec<Still>> {
        let mut state = self.lock();
        let State { count, scale, renditions } = &mut *state;
        renditions.iter_mut().map(|of| of.finish(*count, scale)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A reference frame leaves.
    fn see(&mut self, buffer: &gst::BufferRef, caps: &gst::CapsRef, time: ClockTime) {
        let Some(meta) = ScoreMeta::from_buffer(buffer) else { return };
        // Made for the first rendition that wants it.
        let mut reference = None;
        for of in &meta.scores {
            let Some(score) = of.score.filter(|score| of.state == ScoreState::Scored && score.is_finite())
            else {
                continue;
            };
            let Some(rendition) = self.renditions.iter_mut().find(|rendition| rendition.pad == of.pad) else {
                continue;
            };
            rendition.begin(time, self.count, &self.scale);
            if !rendition.wants(score, self.count) {
                continue;
            }
            let reference = reference.get_or_insert_with(|| in_system_memory(buffer, caps));
            let distorted = ScoreMeta::frame(buffer, &of.pad);
            let distorted =
                distorted.as_ref().and_then(|frame| in_system_memory(frame.buffer()?, frame.caps()?));
            rendition.candidate = Some(Pair {
                frame: meta.index,
                time,
                time_code: buffer.meta::<VideoTimeCodeMeta>().map(|code| code.tc().to_string()),
                score,
                pictures: reference.clone().zip(distorted).map(<[_; 2]>::from),
            });
        }
    }
}

impl Rendition {
    /// A frame at this time is looked at: the second before may be over.
    fn begin(&mut self, time: ClockTime, count: usize, scale: &str) {
        if time.seconds() != self.second {
            self.end_second(count, scale);
            self.second = time.seconds();
        }
    }

    /// A frame with this score would be the worst of its second, and among the worst.
    fn wants(&self, score: f64, count: usize) -> bool {
        let of_second = self.candidate.as_ref().is_none_or(|candidate| score < candidate.score);
        of_second && (self.stills.len() < count || self.stills.last().is_some_and(|last| score < last.score))
    }

    fn end_second(&mut self, count: usize, scale: &str) {
        let Some(pair) = self.candidate.take() else { return };
        let still = pair.still(scale);
        let place = self.stills.partition_point(|other| other.score <= still.score);
        self.stills.insert(place, still);
        self.stills.truncate(count);
    }

    fn finish(&mut self, count: usize, scale: &str) -> Vec<Still> {
        self.end_second(count, scale);
        std::mem::take(&mut self.stills)
    }
}

impl Pair {
    fn still(self, scale: &str) -> Still {
        let pictures = match &self.pictures {
            Some([reference, distorted]) => picture::make(reference, distorted, scale),
            None => Err("the frames are in memory that the CPU cannot read: see --decoder software".into()),
        };
        let (pictures, trouble) = match pictures {
            Ok(pictures) => (Some(pictures), None),
            Err(error) => (None, Some(format!("There are no pictures of it: {error}"))),
        };
        let (frame, score, time_code) = (self.frame, self.score, self.time_code);
        Still { frame, time: self.time.nseconds() as f64 / 1e9, time_code, score, pictures, trouble }
    }
}

/// A copy of a frame, so that a decoder gets its own back.
fn in_system_memory(buffer: &gst::BufferRef, caps: &gst::CapsRef) -> Option<gst::Sample> {
    let mut caps = caps.to_owned();
    caps.make_mut().set_features_simple(None);
    let info = VideoInfo::from_caps(&caps).ok()?;
    let from = VideoFrame::<Readable>::from_buffer_readable(buffer.to_owned(), &info).ok()?;
    let copy = gst::Buffer::with_size(info.size()).ok()?;
    let mut to = VideoFrame::from_buffer_writable(copy, &info).ok()?;
    from.copy(&mut to).ok()?;
    let mut copy = to.into_buffer();
    copy.get_mut()?.set_pts(ClockTime::ZERO);
    Some(gst::Sample::builder().buffer(&copy).caps(&caps).build())
}
