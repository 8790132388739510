// SPDX-License-Identifier: MPL-2.0

//! The clock of a channel, and the conversion of live timestamps to the running time of its pipeline.
//!
//! Most live sources stamp frames on arrival. Others have an arbitrary origin: RTMP counts from the start of the
//! broadcast, HLS from the first segment. Any source may jump after its sender restarts or its clock is set. A frame
//! an hour ahead of the clock would be waited for that long. So the timestamps of a source are shifted to the current
//! clock time at its first frame, and whenever they are far from it.

use std::sync::atomic::{AtomicBool, Ordering};

use gst::ClockTime;
use gst::prelude::*;

use super::source::Source;

/// Largest distance from the clock for the first frame of a source that stamps on arrival.
const FIRST: ClockTime = ClockTime::from_seconds(2);
/// Largest distance from the clock for all other frames.
const LEAP: ClockTime = ClockTime::from_seconds(8);
/// Extra delay for sources that are not in real time, because decoders need a while to start.
pub const LEAD: ClockTime = ClockTime::from_mseconds(500);

/// Gives a pipeline its own system clock. GStreamer shares one clock in the process, and every wait takes the same
/// lock. With a few hundred live pipelines, threads that wait for the lock delay others until hardly any frame is on
/// time.
pub fn give(pipeline: &gst::Pipeline) {
    pipeline.use_clock(Some(&glib::Object::new::<gst::SystemClock>()));
}

/// Keeps the frames that leave this pad near the pipeline's clock. The frame that causes a shift is lost.
pub fn follow(pad: &gst::Pad, pipeline: &gst::Pipeline, source: &Source) {
    let pipeline = pipeline.downgrade();
    let stamped = source.stamps_arrival();
    let first = AtomicBool::new(true);
    pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
        let time = info.buffer().and_then(|buffer| running_time(pad, buffer));
        let now = pipeline.upgrade().and_then(|pipeline| pipeline.current_running_time());
        let (Some(time), Some(now)) = (time, now) else { return gst::PadProbeReturn::Ok };
        match moved(time, pad.offset(), now, stamped, first.swap(false, Ordering::Relaxed)) {
            // The current frame is still sent with the old offset.
            Some(offset) => {
                pad.set_offset(offset);
                gst::PadProbeReturn::Drop
            }
            None => gst::PadProbeReturn::Ok,
        }
    });
}

/// Returns the new offset for a pad from which a frame with this time leaves now, or `None` if the old one is good.
fn moved(time: ClockTime, offset: i64, now: ClockTime, stamped: bool, first: bool) -> Option<i64> {
    let time = i128::from(time.nseconds());
    let away = (time + i128::from(offset)).abs_diff(now.nseconds().into());
    let allowed = if first { FIRST } else { LEAP };
    if away <= allowed.nseconds().into() && (stamped || !first) {
        return None;
    }
    let begin = if stamped { now } else { now + LEAD };
    i64::try_from(i128::from(begin.nseconds()) - time).ok()
}

/// Returns the running time of a buffer, without the pad's offset.
fn running_time(pad: &gst::Pad, buffer: &gst::BufferRef) -> Option<ClockTime> {
    let event = pad.sticky_event::<gst::event::Segment>(0)?;
    event.segment().downcast_ref::<ClockTime>()?.to_running_time(buffer.pts()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn at(time: u64, offset: i64, now: u64, stamped: bool, first: bool) -> Option<i64> {
        moved(ClockTime::from_seconds(time), offset * S, ClockTime::from_seconds(now), stamped, first)
            .map(|offset| offset / (S / 10))
    }

    #[test]
    fn pipelines_do_not_share_a_clock() {
        gst::init().unwrap();
        let clock = || {
            let pipeline = gst::Pipeline::new();
            give(&pipeline);
            pipeline.set_state(gst::State::Playing).unwrap();
            let clock = pipeline.clock().unwrap();
            pipeline.set_state(gst::State::Null).unwrap();
            clock
        };
        let clocks = [clock(), clock(), gst::SystemClock::obtain()];
        assert!(clocks.iter().all(|clock| clock.is::<gst::SystemClock>()));
        assert!(clocks[0] != clocks[1] && clocks[0] != clocks[2]);
    }

    #[test]
    fn stamps_of_arrival_are_kept_unless_they_are_far_off() {
        assert_eq!(at(60, 0, 61, true, true), None);
        assert_eq!(at(0, 0, 61, true, true), Some(610));
        assert_eq!(at(0, 61, 61, true, false), None);
        // A restarted sender, and a sender whose clock was set.
        assert_eq!(at(3600, 0, 61, true, false), Some(-35_390));
        assert_eq!(at(0, 0, 3600, true, false), Some(36_000));
        assert_eq!(at(68, 0, 61, true, false), None);
    }

    #[test]
    fn other_stamps_begin_when_they_are_first_seen() {
        assert_eq!(at(0, 0, 1, false, true), Some(15));
        assert_eq!(at(1, 1, 1, false, false), None);
        assert_eq!(at(100, 1, 1, false, false), Some(-985));
    }

    #[test]
    fn times_that_cannot_be_are_no_panic() {
        assert_eq!(moved(ClockTime::MAX, i64::MIN, ClockTime::ZERO, true, false), None);
        assert_eq!(moved(ClockTime::ZERO, i64::MAX, ClockTime::ZERO, true, false), Some(0));
    }
}
