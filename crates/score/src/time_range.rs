// SPDX-License-Identifier: MPL-2.0

//! A range of the videos between two times of the reference.
//!
//! Frames outside of it are dropped after the decoder, which is exact for any file. Containers with an index are
//! seeked to the beginning of the range first, to avoid decoding what comes before.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use gst::ClockTime;
use gst::prelude::*;

use crate::error::Error;

/// A position in the reference, as the user wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Number of a frame, from 0.
    Frame(u64),
    /// Stream time.
    Time(ClockTime),
}

impl FromStr for Position {
    type Err = &'static str;

    /// Parses `250`, `12.5s`, `1:30` or `1:02:03.25`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(frame) = text.parse() {
            return Ok(Self::Frame(frame));
        }
        let wrong =
            "a position is the number of a frame (250), seconds (12.5s), or a time (1:30, 1:02:03.25)";
        let parts: Vec<&str> = match text.strip_suffix('s') {
            Some(seconds) => vec![seconds],
            None if text.contains(':') => text.split(':').collect(),
            None => return Err(wrong),
        };
        if parts.len() > 3 {
            return Err(wrong);
        }
        let seconds = parts.iter().try_fold(0.0, |sum, part| {
            let number = part.parse::<f64>().ok().filter(|number| (0.0..1e9).contains(number))?;
            Some(sum * 60.0 + number)
        });
        Ok(Self::Time(ClockTime::from_nseconds((seconds.ok_or(wrong)? * 1e9).round() as u64)))
    }
}

impl Position {
    /// Returns the time of the frame at this rate.
    pub fn time(self, rate: Option<gst::Fraction>) -> Result<ClockTime, Error> {
        match (self, rate) {
            (Self::Time(time), _) => Ok(time),
            (Self::Frame(0), _) => Ok(ClockTime::ZERO),
            (Self::Frame(number), Some(rate)) => frames(number, rate),
            (Self::Frame(_), None) => Err(Error::Usage(
                "the frame rate of the reference is not known or varies, so frames cannot be found by their \
                 number: name times, as in --from 12.5s --to 20s"
                    .into(),
            )),
        }
    }
}

/// Returns the duration of a number of frames.
fn frames(number: u64, rate: gst::Fraction) -> Result<ClockTime, Error> {
    let [numer, denom] = [rate.numer(), rate.denom()].map(|n| u64::try_from(n).unwrap_or_default());
    let nanoseconds = u128::from(number) * u128::from(denom) * 1_000_000_000;
    nanoseconds
        .checked_div(u128::from(numer))
        .and_then(|time| u64::try_from(time).ok())
        .map(ClockTime::from_nseconds)
        .ok_or_else(|| Error::Usage(format!("there is no frame {number}")))
}

/// The range to score.
#[derive(Clone, Copy, Debug)]
pub struct TimeRange {
    /// Beginning of its first frame.
    pub from: ClockTime,
    /// End of its last frame; `None` for the end of the video.
    pub to: Option<ClockTime>,
    /// Tolerance for early timestamps, which are rounded to milliseconds in Matroska.
    pub slack: ClockTime,
    /// Seek to the beginning, since the container has an index.
    pub seek: bool,
}

impl TimeRange {
    /// Drops frames outside the range at a pad, and ends the stream after it.
    pub fn apply(self, pad: &gst::Pad) {
        let first = self.from.saturating_sub(self.slack);
        let end = self.to.map(|to| to.saturating_sub(self.slack));
        pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
            let Some(time) = info.buffer().and_then(|buffer| stream_time(pad, buffer)) else {
                return gst::PadProbeReturn::Ok;
            };
            if time < first {
                return gst::PadProbeReturn::Drop;
            }
            if end.is_none_or(|end| time < end) {
                return gst::PadProbeReturn::Ok;
            }
            // Fails only if the stream has ended already. Frames decoded until the other sides end are dropped.
            let _ = pad.peer().is_some_and(|sink| sink.send_event(gst::event::Eos::new()));
            gst::PadProbeReturn::Drop
        });
        if self.seek && self.from > ClockTime::ZERO {
            self.seek(pad);
        }
    }

    /// Seeks to the beginning after the decoder's first output. Nothing downstream of the pad notices it.
    fn seek(self, pad: &gst::Pad) {
        // Decoders change the timestamp of the frame displayed at the target to the target. If that is the frame
        // before the range, its new time must still be too early.
        let target = self.from.saturating_sub(self.slack * 2);
        let sent = AtomicBool::new(false);
        pad.add_probe(gst::PadProbeType::BLOCK | gst::PadProbeType::BUFFER, move |pad, info| {
            if sent.swap(true, Ordering::Relaxed) {
                return gst::PadProbeReturn::Ok;
            }
            let (Some(block), Some(element)) = (info.id.take(), pad.parent_element()) else {
                return gst::PadProbeReturn::Remove;
            };
            // Taken instead of dropped, since GStreamer 1.22 frees dropped flush events twice.
            let flush = pad.add_probe(gst::PadProbeType::EVENT_FLUSH, |_, info| {
                info.data = None;
                gst::PadProbeReturn::Handled
            });
            let pad = pad.clone();
            element.call_async(move |_| {
                let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE;
                let (set, none) = (gst::SeekType::Set, gst::SeekType::None);
                let seek = gst::event::Seek::new(1.0, flags, set, target, none, ClockTime::NONE);
                // Otherwise running time would begin at 0 here, but not on sides without a seek.
                pad.set_offset(i64::try_from(target.nseconds()).unwrap_or_default());
                if !pad.send_event(seek) {
                    // Reads from the beginning instead.
                    pad.set_offset(0);
                }
                flush.into_iter().for_each(|flush| pad.remove_probe(flush));
                pad.remove_probe(block);
            });
            gst::PadProbeReturn::Ok
        });
    }
}

/// Returns the stream time of a buffer at a pad.
pub(super) fn stream_time(pad: &gst::Pad, buffer: &gst::BufferRef) -> Option<ClockTime> {
    let event = pad.sticky_event::<gst::event::Segment>(0)?;
    let segment = event.segment().downcast_ref::<ClockTime>()?;
    // A frame may begin before its segment; it is not kept.
    segment.to_stream_time_full(buffer.pts()?)?.positive().or(Some(ClockTime::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_frames_or_times() {
        let time = |ms| Ok(Position::Time(ClockTime::from_mseconds(ms)));
        assert_eq!("250".parse(), Ok(Position::Frame(250)));
        assert_eq!("12.5s".parse::<Position>(), time(12_500));
        assert_eq!("1:30".parse::<Position>(), time(90_000));
        assert_eq!("1:02:03.25".parse::<Position>(), time(3_723_250));
        for wrong in ["", "-1", "1.5", "s", "x:1", "1:2:3:4", "-1s", "infs", "NaNs"] {
            assert!(wrong.parse::<Position>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn frames_have_times_at_a_rate() {
        let film = Some(gst::Fraction::new(24000, 1001));
        assert_eq!(Position::Frame(24).time(film).unwrap(), ClockTime::from_nseconds(1_001_000_000));
        assert_eq!(Position::Frame(0).time(None).unwrap(), ClockTime::ZERO);
        assert!(matches!(Position::Frame(1).time(None), Err(Error::Usage(_))));
        assert!(matches!(Position::Frame(u64::MAX).time(film), Err(Error::Usage(_))));
    }
}
