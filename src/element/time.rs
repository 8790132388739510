// SPDX-License-Identifier: MPL-2.0

//! The two kinds of time in the element.
//!
//! *Running time* is the time of the pipeline: what frames are paired by, when they leave, how long windows and alarms are.
//! It is a plain [`ClockTime`] everywhere in the element. *Stream time* is what buffers and caps say: timestamps, and how
//! long frames last. At a playback rate of 2, a frame that lasts 40 ms in the stream lasts 20 ms of running time. So stream
//! time has a type of its own, and only a [`Pace`] makes running time of it.

use gst::ClockTime;

/// A position or a duration in the time of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamTime(pub ClockTime);

impl StreamTime {
    /// Adds two times, up to the largest there is.
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// The playback rate of a stream, from its segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace(f64);

impl Default for Pace {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Pace {
    /// Returns the pace of a segment. A rate of 0 is none that GStreamer allows, and counts as 1.
    pub fn of(rate: f64) -> Self {
        let speed = rate.abs();
        Self(if speed.is_finite() && speed > 0.0 { rate } else { 1.0 })
    }

    /// Returns true if the stream plays backwards.
    pub fn is_reverse(self) -> bool {
        self.0 < 0.0
    }

    /// Returns how much running time a duration of the stream takes.
    pub fn running(self, duration: StreamTime) -> ClockTime {
        if self.0.abs() == 1.0 {
            return duration.0;
        }
        running((duration.0.nseconds() as f64 / self.0.abs()).round() as u64)
    }
}

/// Returns this many nanoseconds as a time; the largest number stands for no time in GStreamer, and is one less here.
pub fn running(nanoseconds: u64) -> ClockTime {
    ClockTime::from_nseconds(nanoseconds.min(ClockTime::MAX.nseconds()))
}

/// Moves a running time by this many nanoseconds, not beyond the start and not beyond the end of time.
pub fn moved(time: ClockTime, by: i64) -> ClockTime {
    running(time.nseconds().saturating_add_signed(by))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_shrink_with_the_rate() {
        let frame = StreamTime(ClockTime::from_mseconds(40));
        let running = |rate| Pace::of(rate).running(frame).mseconds();
        assert_eq!([1.0, 2.0, -2.0, 0.5, -1.0, 0.0].map(running), [40, 20, 20, 80, 40, 40]);
        assert_eq!(Pace::of(1e-30).running(frame), ClockTime::MAX);
    }

    #[test]
    fn no_number_is_beyond_time() {
        assert_eq!(running(u64::MAX), ClockTime::MAX);
        assert_eq!(moved(ClockTime::MAX, i64::MAX), ClockTime::MAX);
        assert_eq!(moved(ClockTime::SECOND, i64::MIN), ClockTime::ZERO);
    }
}
