// SPDX-License-Identifier: MPL-2.0

//! Chooses the frames for stills: the worst frame in the seconds before an alarm, and the worst frame of an hour.
//!
//! Scores arrive after their frames, so the latest frames of each pad are held, within a memory limit.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gst::ClockTime;
use gst::prelude::*;
use gsthipvmaf::message::FrameMessage;
use parking_lot::Mutex;

use super::state::{Worst, wall_clock};
use super::still_store::{Shot, StillStore};

/// Largest size and number of the frames held for each pad.
const BYTES: usize = 32 << 20;
const FRAMES: usize = 25;
/// Time before an alarm in which the worst frame is searched.
const BEFORE: Duration = Duration::from_secs(5);
/// Time for which the worst frame stays, unless a worse one comes.
const SHOWN: Duration = Duration::from_secs(3600);
/// Difference by which a frame must be worse, so that stills are not made all the time.
const WORSE: f64 = 0.5;

/// The latest frames of a pad.
#[derive(Default)]
struct Held {
    frames: VecDeque<(ClockTime, gst::Sample)>,
    bytes: usize,
}

/// The lowest score of the last seconds, with its frames.
struct Lowest {
    score: f64,
    /// Beginning of this period.
    since: Instant,
    time: f64,
    shot: Shot,
}

/// Frames held for a pipeline.
pub struct Stills {
    held: Arc<Mutex<HashMap<String, Held>>>,
    lowest: HashMap<String, Lowest>,
    worst: HashMap<String, (f64, Instant)>,
    still_store: StillStore,
}

impl Stills {
    /// Begins to hold frames.
    pub fn new(element: &gst::Element, still_store: StillStore) -> Self {
        let held: Arc<Mutex<HashMap<String, Held>>> = Arc::default();
        for pad in element.sink_pads() {
            let (held, name) = (held.clone(), pad.name().to_string());
            pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
                if let Some(gst::PadProbeData::Buffer(buffer)) = &info.data {
                    held.lock().entry(name.clone()).or_default().push(pad, buffer);
                }
                gst::PadProbeReturn::Ok
            });
        }
        Self { held, lowest: HashMap::new(), worst: HashMap::new(), still_store }
    }

    /// Adds the score of a frame. Returns the worst frame of the hour if it is recent and its still is being made.
    pub fn score(&mut self, frame: &FrameMessage) -> Option<Worst> {
        let (pad, score) = (&frame.pad, frame.score);
        let old = self.lowest.get(pad).is_some_and(|lowest| lowest.since.elapsed() > BEFORE);
        let worst = if old { self.worst(pad) } else { None };
        let lowest = self.lowest.get(pad).filter(|_| !old);
        if lowest.is_none_or(|lowest| score < lowest.score)
            && let Some(shot) = self.find(frame)
        {
            let since = lowest.map_or_else(Instant::now, |lowest| lowest.since);
            self.lowest.insert(pad.clone(), Lowest { score, since, time: wall_clock(), shot });
        }
        worst
    }

    /// Starts a still of the worst frame of the last seconds, and returns its number.
    pub fn alarm(&self, pad: &str) -> Option<u64> {
        let lowest = self.lowest.get(pad).filter(|lowest| lowest.since.elapsed() <= BEFORE * 2)?;
        self.still_store.add(lowest.shot.clone())
    }

    fn worst(&mut self, pad: &str) -> Option<Worst> {
        let lowest = self.lowest.get(pad)?;
        let known = self.worst.get(pad).filter(|(_, at)| at.elapsed() < SHOWN);
        if known.is_some_and(|(score, _)| lowest.score > score - WORSE) {
            return None;
        }
        let still = self.still_store.add(lowest.shot.clone())?;
        self.worst.insert(pad.to_owned(), (lowest.score, Instant::now()));
        Some(Worst { time: lowest.time, score: lowest.score, still })
    }

    fn find(&self, frame: &FrameMessage) -> Option<Shot> {
        let held = self.held.lock();
        let find = |pad: &str, time: Option<ClockTime>| {
            let frames = &held.get(pad)?.frames;
            frames.iter().find(|(at, _)| Some(*at) == time).map(|(_, sample)| sample.clone())
        };
        let reference = find("ref_sink", frame.running_time)?;
        Some(Shot { reference, distorted: find(&frame.pad, frame.dist_running_time)? })
    }
}

impl Held {
    fn push(&mut self, pad: &gst::Pad, buffer: &gst::Buffer) {
        let segment = pad.sticky_event::<gst::event::Segment>(0);
        let time = segment.as_ref().and_then(|event| event.segment().downcast_ref::<ClockTime>());
        let time = time.and_then(|segment| segment.to_running_time(buffer.pts()?));
        let (Some(time), Some(caps)) = (time, pad.current_caps()) else { return };
        self.bytes += buffer.size();
        self.frames.push_back((time, gst::Sample::builder().buffer(buffer).caps(&caps).build()));
        while self.frames.len() > FRAMES || (self.bytes > BYTES && self.frames.len() > 1) {
            let Some((_, sample)) = self.frames.pop_front() else { return };
            self.bytes -= sample.buffer().map_or(0, |buffer| buffer.size());
        }
    }
}
