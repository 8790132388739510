// SPDX-License-Identifier: MPL-2.0

//! Times of the frames of a file, read from its container without decoding.

use std::sync::Arc;

use gst::ClockTime;
use gst::prelude::*;
use parking_lot::Mutex;

use crate::error::Error;
use crate::ladder::Coded;
use crate::{Input, TimeRange};

/// Time of a frame, and if it is a key frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Presentation time in nanoseconds.
    pub time: u64,
    /// Decoding can begin here.
    pub key: bool,
}

/// Longest time without progress.
const STALL_TIMEOUT: ClockTime = ClockTime::from_seconds(60);

/// The frames of a video in display order.
#[derive(Debug)]
pub struct Timeline {
    /// At least two.
    pub frames: Vec<Frame>,
    /// Bytes of each.
    bytes: Vec<u64>,
}

impl Timeline {
    /// Reads the timeline of a file, if its container has one.
    pub fn read(input: &Input) -> Option<Self> {
        if is_playlist(input) {
            return None;
        }
        let (frames, bytes): (Vec<_>, Vec<_>) = packets(input).ok()?.into_iter().unzip();
        (frames.len() > 1).then_some(Self { frames, bytes })
    }

    fn distances(&self) -> impl Iterator<Item = u64> {
        self.frames.windows(2).map(|pair| pair[1].time - pair[0].time)
    }

    /// Returns the median distance of frames in nanoseconds.
    pub fn distance(&self) -> Option<u64> {
        super::middle(self.distances().collect())
    }

    /// Returns the distance of frames if it is constant except for rounding, which is to milliseconds in Matroska.
    pub fn constant(&self) -> Option<f64> {
        let (first, last) = (self.frames.first()?.time, self.frames.last()?.time);
        let distance = (last - first) as f64 / (self.frames.len() - 1) as f64;
        let expected = |i: usize| first as f64 + distance * i as f64;
        let slack = (distance / 10.0).min(1_600_000.0);
        let fits = |(i, frame): (usize, &Frame)| (frame.time as f64 - expected(i)).abs() <= slack;
        (distance > 0.0 && self.frames.iter().enumerate().all(fits)).then_some(distance)
    }

    /// Returns true if the distances of frames are equal.
    pub fn is_regular(&self) -> bool {
        self.constant().is_some()
    }

    /// Returns true if both have the same number of frames at the same times.
    pub fn agrees(&self, other: &Self) -> bool {
        let slack = other.distance().map_or(0, |distance| distance / 8);
        let pairs = self.frames.iter().zip(&other.frames);
        self.frames.len() == other.frames.len()
            && pairs.into_iter().all(|(a, b)| a.time.abs_diff(b.time) <= slack)
    }

    /// Returns the time at which a frame begins, also for the one after the last.
    pub fn begin(&self, number: u64) -> Result<ClockTime, Error> {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let time = self.frames.get(number).map(|frame| ClockTime::from_nseconds(frame.time));
        let end = || self.end().filter(|_| number >= self.frames.len());
        time.or_else(end).ok_or_else(|| Error::Usage(format!("there is no frame {number}")))
    }

    /// Returns the number of the first frame at this time or later.
    pub fn number(&self, time: ClockTime) -> u64 {
        self.frames.partition_point(|frame| frame.time < time.nseconds()) as u64
    }

    /// Returns true if the last frame is after the container's duration, where a seek would lose it.
    pub fn exceeds(frames: &[Frame], duration: Option<ClockTime>) -> bool {
        frames.last().zip(duration).is_some_and(|(last, duration)| last.time > duration.nseconds())
    }

    /// Returns the end of the last frame.
    pub fn end(&self) -> Option<ClockTime> {
        Some(ClockTime::from_nseconds(self.frames.last()?.time + self.distance()?))
    }

    /// Returns what the frames take that begin in a part.
    pub fn coded(&self, part: Option<TimeRange>) -> Option<Coded> {
        let from = part.map_or(0, |part| part.from.nseconds());
        let end = part.and_then(|part| part.to).into_iter().chain([self.end()?]).min()?;
        let is_in = |frame: &Frame| frame.time >= from && frame.time < end.nseconds();
        let (mut bytes, mut first) = (0, None);
        for (frame, of_frame) in self.frames.iter().zip(&self.bytes).filter(|(frame, _)| is_in(frame)) {
            bytes += of_frame;
            first = first.or(Some(frame.time));
        }
        let seconds = end.nseconds().saturating_sub(first?) as f64 / 1e9;
        (seconds > 0.0).then_some(Coded { bytes, seconds })
    }

    /// Returns the frame rate if it is constant, preferably the container's value.
    pub fn rate(&self, said: Option<gst::Fraction>) -> Option<gst::Fraction> {
        let rate = 1e9 / self.constant()?;
        let near =
            |of: &gst::Fraction| (f64::from(of.numer()) / f64::from(of.denom()) / rate - 1.0).abs() < 2e-3;
        let whole = rate.round();
        let usual = [(whole, 1), (whole * 1000.0, 1001)].map(|(n, d)| gst::Fraction::new(n as i32, d));
        let nearest = |of: &gst::Fraction| {
            (f64::from(of.numer()) / f64::from(of.denom()) / rate - 1.0).abs() < 2e-4 && of.numer() > 0
        };
        said.filter(near)
            .or_else(|| usual.into_iter().find(nearest))
            .or(Some(gst::Fraction::new((rate * 1000.0).round() as i32, 1000)))
    }
}

/// Returns true for playlists, whose frames are in other files.
fn is_playlist(input: &Input) -> bool {
    use std::io::Read as _;
    let path = input.uri().and_then(|uri| glib::filename_from_uri(uri).ok()).map(|(path, _)| path);
    let mut head = vec![];
    let read = path.and_then(|path| std::fs::File::open(path).ok()?.take(512).read_to_end(&mut head).ok());
    let head = String::from_utf8_lossy(&head);
    read.is_some() && ["#EXTM3U", "<MPD", "<SmoothStreamingMedia"].iter().any(|mark| head.contains(mark))
}

#[derive(Default)]
struct Found {
    /// Frames with their bytes.
    frames: Vec<(Frame, u64)>,
    streams: usize,
    problem: Option<&'static str>,
}

/// Returns the frames of a file's video in display order.
pub fn frames(input: &Input) -> Result<Vec<Frame>, Error> {
    Ok(packets(input)?.into_iter().map(|(frame, _)| frame).collect())
}

/// Returns the frames of a file's video in display order, with their bytes.
fn packets(input: &Input) -> Result<Vec<(Frame, u64)>, Error> {
    let pipeline = gst::Pipeline::new();
    let uri = input.uri().ok_or("it has no container")?;
    let source = gst::ElementFactory::make("urisourcebin").property("uri", uri).build()?;
    let parse = gst::ElementFactory::make("parsebin").build()?;
    pipeline.add_many([&source, &parse])?;
    source.connect_pad_added({
        let sink = parse.static_pad("sink").ok_or("parsebin has no sink")?;
        move |_, pad| {
            // A failed link leads to an error on the bus.
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
                found.lock().streams += 1;
                let found = found.clone();
                pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
                    if let Some(buffer) = info.buffer() {
                        let mut found = found.lock();
                        match time(pad, buffer) {
                            Some(gst::Signed::Positive(time)) => {
                                let key = !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT);
                                let frame = Frame { time: time.nseconds(), key };
                                found.frames.push((frame, buffer.size() as u64));
                            }
                            // Before the beginning given by an edit list: decoded, but not displayed.
                            Some(gst::Signed::Negative(_)) => {}
                            None => found.problem = Some("its container has no frame times"),
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
    let mut found = found.lock();
    match (found.problem, found.streams) {
        (Some(problem), _) => Err(problem.into()),
        (None, 1) => {
            let mut frames = std::mem::take(&mut found.frames);
            frames.sort_by_key(|(frame, _)| frame.time);
            Ok(frames)
        }
        (None, streams) => Err(Error::Failed(format!("it has {streams} video streams"))),
    }
}

/// Waits for the end while there is progress.
fn end_of(pipeline: &gst::Pipeline, bus: &gst::Bus) -> Result<(), Error> {
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let mut last = None;
    loop {
        match bus.timed_pop_filtered(STALL_TIMEOUT, &kinds) {
            Some(message) => match message.view() {
                gst::MessageView::Error(error) => return Err(error.error().message().into()),
                _ => return Ok(()),
            },
            None => {
                let now = pipeline.query_position::<ClockTime>();
                if now == last {
                    return Err("it delivers no data".into());
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

/// Links the pad to a fakesink.
fn end(pipeline: &gst::Pipeline, pad: &gst::Pad) -> Result<(), Error> {
    let sink =
        gst::ElementFactory::make("fakesink").property("sync", false).property("async", false).build()?;
    pipeline.add(&sink)?;
    sink.sync_state_with_parent()?;
    let sink = sink.static_pad("sink").ok_or("fakesink has no pad")?;
    pad.link(&sink).map_err(|error| Error::Failed(error.to_string()))?;
    Ok(())
}

fn time(pad: &gst::Pad, buffer: &gst::BufferRef) -> Option<gst::Signed<ClockTime>> {
    let event = pad.sticky_event::<gst::event::Segment>(0)?;
    let segment = event.segment().downcast_ref::<ClockTime>()?;
    segment.to_stream_time_full(buffer.pts()?)
}
