// SPDX-License-Identifier: MPL-2.0

//! A part of the videos: from one moment of the reference to another.
//!
//! Frames outside are thrown away behind the decoder, which is exact whatever the file. Containers with an index are sent
//! to the beginning first, so that what comes before it need not be decoded.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use gst::ClockTime;
use gst::prelude::*;

use crate::error::Error;

/// A moment of the reference, as the user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The number of a frame, from 0.
    Frame(u64),
    /// Stream time.
    Time(ClockTime),
}

impl FromStr for Position {
    type Err = &'static str;

    /// `250`, `12.5s`, `1:30` or `1:02:03.25`.
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
    /// The moment at which this frame begins, at this rate.
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

/// How long so many frames are.
fn frames(number: u64, rate: gst::Fraction) -> Result<ClockTime, Error> {
    let [numer, denom] = [rate.numer(), rate.denom()].map(|n| u64::try_from(n).unwrap_or_default());
    let nanoseconds = u128::from(number) * u128::from(denom) * 1_000_000_000;
    nanoseconds
        .checked_div(u128::from(numer))
        .and_then(|time| u64::try_from(time).ok())
        .map(ClockTime::from_nseconds)
        .ok_or_else(|| Error::Usage(format!("there is no frame {number}")))
}

/// The part of the videos that is scored.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Where its first frame begins.
    pub from: ClockTime,
    /// Where its last frame ends; nothing for the end of the videos.
    pub to: Option<ClockTime>,
    /// By how much time stamps may be earlier than they should be: they are rounded, to milliseconds in Matroska.
    pub slack: ClockTime,
    /// Seek to the beginning: the container has an index.
    pub seek: bool,
}

impl Span {
    /// Keeps what is outside of the span from leaving a pad, and ends the stream there behind it.
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
            // Refused only by a pad that has seen its end. What is decoded until the other sides have come to theirs is lost.
            let _ = pad.peer().is_some_and(|sink| sink.send_event(gst::event::Eos::new()));
            gst::PadProbeReturn::Drop
        });
        if self.seek && self.from > ClockTime::ZERO {
            self.seek(pad);
        }
    }

    /// Has the decoder of a pad go to the beginning, as soon as it has delivered something. Nobody behind the pad hears of
    /// it.
    fn seek(self, pad: &gst::Pad) {
        // Decoders make the frame that is shown at this moment begin there. That is to be too early to be kept if it is the
        // one before.
        let target = self.from.saturating_sub(self.slack * 2);
        let sent = AtomicBool::new(false);
        pad.add_probe(gst::PadProbeType::BLOCK | gst::PadProbeType::BUFFER, move |pad, info| {
            if sent.swap(true, Ordering::Relaxed) {
                return gst::PadProbeReturn::Ok;
            }
            let (Some(block), Some(element)) = (info.id.take(), pad.parent_element()) else {
                return gst::PadProbeReturn::Remove;
            };
            // Taken rather than dropped: GStreamer 1.22 lets go of flushes that are dropped twice.
            let flush = pad.add_probe(gst::PadProbeType::EVENT_FLUSH, |_, info| {
                info.data = None;
                gst::PadProbeReturn::Handled
            });
            let pad = pad.clone();
            element.call_async(move |_| {
                let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE;
                let (set, none) = (gst::SeekType::Set, gst::SeekType::None);
                let seek = gst::event::Seek::new(1.0, flags, set, target, none, ClockTime::NONE);
                // Running time would begin at 0 here, and not on a side that does not seek.
                pad.set_offset(i64::try_from(target.nseconds()).unwrap_or_default());
                if !pad.send_event(seek) {
                    // It is read from its beginning.
                    pad.set_offset(0);
                }
                flush.into_iter().for_each(|flush| pad.remove_probe(flush));
                pad.remove_probe(block);
            });
            gst::PadProbeReturn::Ok
        });
    }
}

/// Where a buffer that leaves a pad is in the stream.
pub(super) fn stream_time(pad: &gst::Pad, buffer: &gst::BufferRef) -> Option<ClockTime> {
    let event = pad.sticky_event::<gst::event::Segment>(0)?;
    let segment = event.segment().downcast_ref::<ClockTime>()?;
    // A frame may begin before its segment does; it is not kept.
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
