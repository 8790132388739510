// SPDX-License-Identifier: MPL-2.0

//! Applies a pairing: frames get the times of their partners, or are dropped before the element.

use std::sync::Arc;

use gst::prelude::*;
use gst::{ClockTime, PadProbeData, PadProbeReturn, PadProbeType};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// New times for the videos of a job.
#[derive(Clone, Debug, Default)]
pub struct Timings {
    pub(super) reference: Option<Arc<Timing>>,
    pub(super) renditions: Vec<Option<Arc<Timing>>>,
}

impl Timings {
    /// Returns true if frames are paired by new times.
    pub fn any(&self) -> bool {
        self.reference.is_some()
    }

    /// Returns true if this rendition has new times.
    pub fn has(&self, rendition: usize) -> bool {
        self.renditions.get(rendition).is_some_and(Option::is_some)
    }

    /// Gives the frames at these sink pads, one per rendition, their new times.
    pub(crate) fn apply(&self, reference: &gst::Pad, renditions: &[Option<gst::Pad>]) {
        self.reference.iter().for_each(|timing| timing.clone().apply(reference));
        for (timing, pad) in self.renditions.iter().zip(renditions) {
            if let (Some(timing), Some(pad)) = (timing, pad) {
                timing.clone().apply(pad);
            }
        }
    }
}

/// New times for the frames of a video, in order.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Timing {
    /// New running time of each frame in nanoseconds; `None` for dropped frames.
    pub times: Vec<Option<u64>>,
    /// Position of each frame in the stream, in nanoseconds.
    pub positions: Vec<u64>,
    /// The stream's segments are kept, since results contain its timestamps. Otherwise times begin at 0.
    pub keeps_segments: bool,
    /// Highest frame rate, for caps with a variable rate, so that pauses are not losses.
    pub most: Option<(i32, i32)>,
    /// Frames are found by position with this tolerance in nanoseconds, because not all of them arrive.
    #[serde(skip)]
    pub by_position: Option<u64>,
}

impl Timing {
    /// Returns the number of the frame at a position.
    pub fn locate(&self, position: u64) -> Option<usize> {
        let slack = self.by_position.unwrap_or_default();
        let near = self.positions.partition_point(|of| *of + slack < position);
        self.positions.get(near).is_some_and(|of| of.abs_diff(position) <= slack).then_some(near)
    }

    /// Gives the frames at a sink pad their new times.
    pub fn apply(self: Arc<Self>, pad: &gst::Pad) {
        let state = Mutex::new(State { next: 0, end: self.end(), segment: None, own: None, ended: false });
        let mask = PadProbeType::BUFFER | PadProbeType::EVENT_DOWNSTREAM;
        pad.add_probe(mask, move |pad, info| {
            let mut state = state.lock();
            let goes_on = match &mut info.data {
                Some(PadProbeData::Buffer(buffer)) => match number(&mut state, &self, buffer) {
                    Some(number) => frame(&state, &self, number, buffer),
                    None => {
                        if let Some(element) = pad.parent_element() {
                            let why = "a frame is not where the examination found it";
                            gst::element_error!(element, gst::StreamError::Failed, ("{why}"));
                        }
                        false
                    }
                },
                Some(PadProbeData::Event(event)) => change(&mut state, &self, event),
                _ => true,
            };
            if goes_on {
                return PadProbeReturn::Ok;
            }
            let ends = state.next > state.end && !std::mem::replace(&mut state.ended, true);
            drop(state);
            if ends {
                // Fails only if the stream has ended already.
                let _ = pad.send_event(gst::event::Eos::new());
            }
            // Taken instead of dropped, since GStreamer 1.22 frees what is dropped at a sink pad twice.
            info.data = None;
            PadProbeReturn::Handled
        });
    }

    /// Returns the number of frames up to the last kept one.
    fn end(&self) -> usize {
        self.times.iter().rposition(Option::is_some).map_or(0, |last| last + 1)
    }
}

struct State {
    next: usize,
    end: usize,
    /// Segments of the output and of the input.
    segment: Option<gst::FormattedSegment<ClockTime>>,
    own: Option<gst::FormattedSegment<ClockTime>>,
    ended: bool,
}

/// Returns the number of a frame, or `None` if it is unknown.
fn number(state: &mut State, timing: &Timing, buffer: &gst::Buffer) -> Option<usize> {
    if timing.by_position.is_some() {
        let position = state.own.as_ref().zip(buffer.pts());
        let position = position.and_then(|(segment, pts)| segment.to_stream_time(pts)).unwrap_or_default();
        state.next = timing.locate(position.nseconds())?;
    }
    let number = state.next;
    state.next += 1;
    Some(number)
}

/// Gives a frame its new time. Returns false if it is dropped.
fn frame(state: &State, timing: &Timing, number: usize, buffer: &mut gst::Buffer) -> bool {
    let Some(time) = timing.times.get(number).copied().flatten().map(ClockTime::from_nseconds) else {
        return false;
    };
    let own = state.segment.as_ref().filter(|_| timing.keeps_segments);
    let pts = own.map_or(Some(time), |segment| match buffer.pts() {
        Some(pts) if segment.to_running_time(pts) == Some(time) => Some(pts),
        _ => segment.position_from_running_time(time),
    });
    if buffer.pts() != pts {
        buffer.make_mut().set_pts(pts);
    }
    true
}

/// Adapts an event to the new times. Returns false if it is dropped.
fn change(state: &mut State, timing: &Timing, event: &mut gst::Event) -> bool {
    if let gst::EventView::Segment(segment) = event.view() {
        state.own = segment.segment().downcast_ref::<ClockTime>().cloned();
    }
    match event.view() {
        gst::EventView::Gap(_) => return false,
        gst::EventView::Caps(caps) => {
            let mut caps = caps.caps_owned();
            if let Some((numer, denom)) = timing.most {
                let most = gst::Fraction::new(numer, denom);
                caps.make_mut().set("framerate", gst::Fraction::new(0, 1));
                caps.make_mut().set("max-framerate", most);
                *event = gst::event::Caps::new(&caps);
            }
        }
        gst::EventView::Segment(segment) if timing.keeps_segments => {
            state.segment = segment.segment().downcast_ref::<ClockTime>().cloned();
        }
        gst::EventView::Segment(segment) => {
            let id = segment.seqnum();
            let plain = gst::FormattedSegment::<ClockTime>::new();
            if state.segment.replace(plain.clone()).is_some() {
                return false;
            }
            *event = gst::event::Segment::builder(&plain).seqnum(id).build();
        }
        _ => {}
    }
    true
}
