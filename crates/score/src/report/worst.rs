// SPDX-License-Identifier: MPL-2.0

//! Pictures of the worst frames, taken where frames leave the element with their scores.
//!
//! The worst frames are known only at the end, when most frames are gone, and reading the sources again might not
//! give the same frames: encodes are not stored, and a URI may deliver its video once. So the worst frames so far are
//! held. With `attach-frames`, the element outputs each reference frame with all scores and the exact frames they
//! belong to, so that no frame is mistaken for another with any offset, rate or gap.
//!
//! Frames of one bad moment look alike, so only the worst frame of each second counts. This also limits the work: one
//! pair of pictures is held per rendition. At the end of its second, if it is among the worst, it becomes three JPEG
//! pictures of a few hundred kilobytes, at most once per second even if the video keeps getting worse.

use std::sync::Arc;

use gst::ClockTime;
use gst::prelude::*;
use gst_video::video_frame::Readable;
use gst_video::{VideoFrame, VideoInfo, VideoTimeCodeMeta};
use gsthipvmaf::meta::{ScoreMeta, ScoreState};
use parking_lot::Mutex;
use serde::Serialize;

use super::super::job::Job;
use super::super::metric::Metric;
use super::super::time_range::stream_time;
use super::picture::{self, Pictures};

/// Bytes of all pictures of a report, so that a page is small enough to be sent.
const PICTURES: usize = 1_500_000;

/// A frame with its pictures.
#[derive(Serialize)]
pub struct Still {
    /// Number of the reference frame.
    frame: i32,
    /// Time in the reference, in seconds.
    time: f64,
    /// Timecode of the reference frame, if it has one.
    time_code: Option<String>,
    /// Score of the first model or feature.
    score: f64,
    /// Pictures; `None` if they could not be made.
    pictures: Option<Pictures>,
    /// Reason why there are no pictures.
    trouble: Option<String>,
}

/// Collects the worst frames.
#[derive(Clone)]
pub struct Worst(Arc<Mutex<State>>);

struct State {
    /// Number of frames wanted for each rendition.
    count: usize,
    made: Made,
    renditions: Vec<Rendition>,
}

/// How pictures are made.
struct Made {
    /// Scaling method for distorted frames of another size.
    scale: String,
    /// Most bytes for the pictures of a frame.
    most: usize,
    /// The metric of the scores.
    metric: Metric,
}

#[derive(Default)]
struct Rendition {
    /// Its sink pad.
    pad: String,
    /// Second of the latest frame.
    second: u64,
    /// Worst frame of that second, if it is bad enough.
    candidate: Option<Pair>,
    /// Stills of earlier seconds, worst first.
    stills: Vec<Still>,
}

/// A frame with its partner, both in system memory.
struct Pair {
    frame: i32,
    time: ClockTime,
    time_code: Option<String>,
    /// Score, of which less is worse.
    score: f64,
    /// `None` if the CPU cannot read them.
    pictures: Option<[gst::Sample; 2]>,
}

impl Worst {
    /// Collects this many frames of each rendition of the job.
    pub fn new(job: &Job, count: usize) -> Self {
        let scale = job.properties.iter().rev().find(|(name, _)| name == "scale-method");
        let scale = scale.map_or("none", |(_, value)| value).to_owned();
        let renditions: Vec<_> = job.renditions.iter().map(|_| Rendition::default()).collect();
        let most = PICTURES / (count * renditions.len()).max(1);
        let first = job.models.first().map(|name| Metric::model(name));
        let first = first.or_else(|| job.features().first().map(|key| Metric::feature(key)));
        let made = Made { scale, most, metric: first.unwrap_or(Metric::model("")) };
        Self(Arc::new(Mutex::new(State { count, made, renditions })))
    }

    /// Makes the element output the frames, and watches them.
    pub fn watch(&self, element: &gst::Element) {
        let mut state = self.0.lock();
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
                    worst.0.lock().see(buffer, &caps, stream_time(pad, buffer).unwrap_or_default());
                }
                gst::PadProbeReturn::Ok
            });
        }
    }

    /// Returns the stills of each rendition, after the last frame.
    pub fn finish(&self) -> Vec<Vec<Still>> {
        let mut state = self.0.lock();
        let State { count, made, renditions } = &mut *state;
        renditions.iter_mut().map(|of| of.finish(*count, made)).collect()
    }
}

impl Made {
    /// Returns the factor with which less is worse.
    fn sign(&self) -> f64 {
        if self.metric.more_is_worse() { -1.0 } else { 1.0 }
    }
}

impl State {
    /// Handles a reference frame at the output.
    fn see(&mut self, buffer: &gst::BufferRef, caps: &gst::CapsRef, time: ClockTime) {
        let Some(meta) = ScoreMeta::from_buffer(buffer) else { return };
        // Copied only if a rendition needs it.
        let mut reference = None;
        for of in &meta.scores {
            let Some(score) = of.score.filter(|score| of.state == ScoreState::Scored && score.is_finite())
            else {
                continue;
            };
            let Some(rendition) = self.renditions.iter_mut().find(|rendition| rendition.pad == of.pad) else {
                continue;
            };
            let score = self.made.sign() * self.made.metric.of_frame(score);
            rendition.begin(time, self.count, &self.made);
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
    /// Begins a new second if this time is in it.
    fn begin(&mut self, time: ClockTime, count: usize, made: &Made) {
        if time.seconds() != self.second {
            self.end_second(count, made);
            self.second = time.seconds();
        }
    }

    /// Returns true if this score would be the worst of its second, and among the worst of all.
    fn wants(&self, score: f64, count: usize) -> bool {
        let of_second = self.candidate.as_ref().is_none_or(|candidate| score < candidate.score);
        of_second && (self.stills.len() < count || self.stills.last().is_some_and(|last| score < last.score))
    }

    fn end_second(&mut self, count: usize, made: &Made) {
        let Some(pair) = self.candidate.take() else { return };
        let still = pair.still(made);
        let place = self.stills.partition_point(|other| other.score <= still.score);
        self.stills.insert(place, still);
        self.stills.truncate(count);
    }

    fn finish(&mut self, count: usize, made: &Made) -> Vec<Still> {
        self.end_second(count, made);
        let mut stills = std::mem::take(&mut self.stills);
        stills.iter_mut().for_each(|still| still.score *= made.sign());
        stills
    }
}

impl Pair {
    fn still(self, made: &Made) -> Still {
        let pictures = match &self.pictures {
            Some([reference, distorted]) => picture::make(reference, distorted, &made.scale, made.most),
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

/// Copies a frame, so that the decoder gets its buffer back.
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
