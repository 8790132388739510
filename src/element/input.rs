// SPDX-License-Identifier: MPL-2.0

//! One sink pad: what stands at its head, when it is due, and what pairs it with a frame of another pad.

use std::sync::Arc;

use gst::ClockTime;
use gst::prelude::*;
use gst_base::AggregatorPad;
use gst_base::prelude::*;
use gst_video::{ValidVideoTimeCode, VideoInfo, VideoTimeCodeFlags, VideoTimeCodeMeta};

use super::caps::Colors;
use super::error::Error;
use super::metas;
use super::schedule::{Frame, Head};
use super::settings::Pairing;
use super::stall::Quiet;

/// A sink pad.
pub struct Input {
    pub pad: AggregatorPad,
    /// Format of the pictures at the head and of those that were taken last. The caps that stick to the pad may be of
    /// frames that are still queued behind.
    pub info: Option<Arc<VideoInfo>>,
    /// Format of the frames that the pictures lie in, by their caps. Pictures may be parts of their frames, of another size.
    pub stored: Option<Arc<VideoInfo>>,
    /// The caps that `stored` was made of.
    pub caps: Option<gst::Caps>,
    /// How pictures are to be turned before they are shown, where tags say so: a value of `image-orientation`.
    pub orientation: Option<String>,
    /// How those caps say that colours are coded.
    pub colors: Option<Colors>,
    /// Timestamp of the next buffer, should it have none.
    next_pts: Option<ClockTime>,
    /// Frames taken since the last flush.
    taken: u64,
    /// Buffers taken since the start, frames or not.
    pub popped: u64,
    /// How long the pad has had nothing.
    pub quiet: Quiet,
}

/// When a buffer is due.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub timestamp: ClockTime,
    /// `None` outside the segment.
    pub running_time: Option<ClockTime>,
    pub stream_time: Option<ClockTime>,
}

/// A buffer at the head of a pad.
#[derive(Clone, Debug)]
pub struct Item {
    pub buffer: gst::Buffer,
    /// Running time with the pad's offset; of a gap that of its end.
    pub at: ClockTime,
    /// There are no frames up to `at`, and the buffer is none.
    pub is_gap: bool,
    /// Running time with the offset, which may be before the start.
    time: i64,
    /// How many frames of the pad were taken before.
    number: u64,
    offset: i64,
}

/// What a pad has to offer next.
#[derive(Clone, Debug)]
pub enum Next {
    Item(Item),
    /// Nothing has arrived yet.
    Empty,
    /// Nothing will arrive any more.
    Eos,
}

impl Next {
    /// What comes next as the schedule sees it: without the buffer, and with the key that pairs it.
    pub fn head(&self, key: Option<i64>) -> Head {
        match self {
            Self::Item(item) if item.is_gap => Head::Gap(Frame { at: item.at, key }),
            Self::Item(item) => Head::Frame(Frame { at: item.at, key }),
            Self::Empty => Head::Empty,
            Self::Eos => Head::Eos,
        }
    }
}

impl Input {
    pub fn new(pad: AggregatorPad) -> Self {
        Self {
            pad,
            info: None,
            stored: None,
            caps: None,
            orientation: None,
            colors: None,
            next_pts: None,
            taken: 0,
            popped: 0,
            quiet: Quiet::default(),
        }
    }

    pub fn name(&self) -> String {
        self.pad.name().to_string()
    }

    /// How long a frame lasts by the frame rate in the caps, the highest one where it varies.
    pub fn frame_duration(&self) -> Option<ClockTime> {
        let duration = |fps: gst::Fraction| {
            (fps.numer() > 0 && fps.denom() > 0)
                .then(|| ClockTime::SECOND.mul_div_round(fps.denom() as u64, fps.numer() as u64))
                .flatten()
        };
        duration(self.info.as_ref()?.fps())
            .or_else(|| duration(self.caps.as_ref()?.structure(0)?.get("max-framerate").ok()?))
    }

    /// How long the frame at the head lasts, as far as anything says so.
    pub fn head_duration(&self) -> Option<ClockTime> {
        self.frame_duration().or_else(|| self.pad.peek_buffer()?.duration())
    }

    /// When this buffer is due; `None` where it is being flushed. That may happen at any time, in another thread, and takes the
    /// segment away before the buffer, so all times of a buffer are of one look at the segment.
    pub fn times(&self, buffer: &gst::BufferRef) -> Result<Option<Times>, Error> {
        let missing = || Error::Timestamp(self.name());
        let segment = self.pad.segment();
        if segment.format() == gst::Format::Undefined {
            return Ok(None);
        }
        let segment = segment.downcast::<ClockTime>().map_err(|_| missing())?;
        let timestamp = match (buffer.pts(), self.frame_duration()) {
            (Some(pts), _) => pts,
            (None, Some(_)) => self.next_pts.or(segment.start()).unwrap_or(ClockTime::ZERO),
            (None, None) => return Err(missing()),
        };
        Ok(Some(Times {
            timestamp,
            running_time: segment.to_running_time(timestamp),
            stream_time: segment.to_stream_time(timestamp),
        }))
    }

    /// What comes next, `offset` nanoseconds later than it says. Buffers outside the segment go to `dropped`.
    pub fn next(&mut self, offset: i64, dropped: &mut Vec<gst::Buffer>) -> Result<Next, Error> {
        while let Some(buffer) = self.pad.peek_buffer() {
            let Some(times) = self.times(&buffer)? else { return Ok(Next::Empty) };
            if let Some(running_time) = times.running_time {
                let is_gap = buffer.size() == 0 && buffer.flags().contains(gst::BufferFlags::GAP);
                let length = buffer.duration().or(self.frame_duration()).filter(|_| is_gap);
                let end = running_time.saturating_add(length.unwrap_or(ClockTime::ZERO));
                let time = i64::try_from(end.nseconds()).unwrap_or(i64::MAX).saturating_add(offset);
                let at = ClockTime::from_nseconds(end.nseconds().saturating_add_signed(offset));
                return Ok(Next::Item(Item { buffer, at, is_gap, time, number: self.taken, offset }));
            }
            dropped.extend(self.pop());
        }
        Ok(if self.pad.is_eos() { Next::Eos } else { Next::Empty })
    }

    /// Takes the frame at the head.
    pub fn take(&mut self) -> Option<gst::Buffer> {
        self.taken += 1;
        self.pop()
    }

    /// Takes the buffer at the head, which counts as no frame.
    pub fn pop(&mut self) -> Option<gst::Buffer> {
        let buffer = self.pad.pop_buffer()?;
        self.popped += 1;
        let duration = buffer.duration().or(self.frame_duration());
        let timestamp = self.times(&buffer).ok().flatten().map(|times| times.timestamp);
        self.next_pts = timestamp.zip(duration).map(|(time, duration)| time.saturating_add(duration));
        Some(buffer)
    }

    /// A new segment or what follows a flush: frames without timestamps are counted from its start.
    pub fn restart(&mut self) {
        self.next_pts = None;
        self.taken = 0;
    }

    /// Takes the format of the frames to come. Returns true if it is another one than that of the frames before.
    pub fn set_format(&mut self, caps: &gst::CapsRef, info: VideoInfo) -> bool {
        self.caps = Some(caps.to_owned());
        self.colors = Some(Colors::of(caps));
        if self.stored.as_deref() == Some(&info) {
            return false;
        }
        let stored = Arc::new(info);
        self.info = Some(stored.clone());
        self.stored.replace(stored).is_some()
    }

    /// Returns the format of the picture at the head where it has another size than those before.
    pub fn resized(&self) -> Option<Arc<VideoInfo>> {
        let head = self.pad.peek_buffer().filter(|head| head.size() > 0)?;
        // What cannot be read is refused when it is to be compared.
        let shown = metas::shown(&head, self.stored.as_ref()?).ok()?;
        let size = |info: &VideoInfo| (info.width(), info.height());
        self.info.as_ref().is_some_and(|info| size(info) != size(&shown)).then_some(shown)
    }
}

/// What tells whether a reference frame and a distorted one belong together: keys of both, in the same terms.
pub fn keys(pairing: Pairing, reference: &Item, distorted: &Item) -> [Option<i64>; 2] {
    match pairing {
        Pairing::RunningTime => [Some(reference.time), Some(distorted.time)],
        Pairing::Index => [reference, distorted].map(|item| {
            let next = item.number.saturating_add(u64::from(item.is_gap));
            i64::try_from(next).ok()
        }),
        Pairing::Timecode => [reference, distorted].map(|item| {
            let meta = item.buffer.meta::<VideoTimeCodeMeta>()?;
            let time = i64::try_from(meta.tc().time_since_daily_jam().nseconds()).ok()?;
            Some(time.saturating_add(item.offset))
        }),
        Pairing::ReferenceTimestamp => {
            let of = |item: &Item, clock: &gst::CapsRef| {
                let mut metas = item.buffer.iter_meta::<gst::ReferenceTimestampMeta>();
                let meta = metas.find(|meta| *meta.reference() == *clock)?;
                Some((meta.timestamp().nseconds() as i64).saturating_add(item.offset))
            };
            let clocks = reference.buffer.iter_meta::<gst::ReferenceTimestampMeta>();
            // The first clock that both sides were stamped by.
            let common =
                clocks.map(|meta| meta.reference().to_owned()).find(|clock| of(distorted, clock).is_some());
            match common {
                Some(clock) => [of(reference, &clock), of(distorted, &clock)],
                // A reference frame without a timestamp goes alone, and others are not kept for it. What has no clock in
                // common with a reference frame will not have one with the next either, and goes first.
                None => {
                    let stamped = |item: &Item| item.buffer.meta::<gst::ReferenceTimestampMeta>().is_some();
                    [None, (stamped(distorted) && !stamped(reference)).then_some(0)]
                }
            }
        }
    }
}

/// After how many nanoseconds the time codes of a buffer start again from 0.
pub fn time_code_period(buffer: &gst::BufferRef) -> Option<i64> {
    day(&buffer.meta::<VideoTimeCodeMeta>()?.tc())
}

/// The duration of all frames that are numbered within 24 hours of a time code: more than a day where the rate is a
/// little less than the number of frames in a second of the code, as in 29.97 frames per second without dropped numbers.
fn day(code: &ValidVideoTimeCode) -> Option<i64> {
    let fps = code.fps();
    let (numer, denom) = (u64::try_from(fps.numer()).ok()?, u64::try_from(fps.denom()).ok()?);
    let second = numer.checked_add(denom / 2)?.checked_div(denom)?;
    let drops = code.flags().contains(VideoTimeCodeFlags::DROP_FRAME);
    // Two numbers in 30 are left out at the start of each minute, but for every tenth.
    let dropped = if drops { 24 * 54 * (second / 15) } else { 0 };
    let frames = ClockTime::SECOND.checked_mul(24 * 3600 * second - dropped)?;
    i64::try_from(frames.mul_div_round(denom, numer)?.nseconds()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gst_video::VideoTimeCode;

    /// A pad has a buffer and no segment for a moment, when another thread flushes it.
    #[test]
    fn what_is_being_flushed_is_no_error() {
        gst::init().unwrap();
        let pad = gst::PadBuilder::<AggregatorPad>::new(gst::PadDirection::Sink).build();
        let buffer = gst::Buffer::new();
        assert!(matches!(Input::new(pad).times(&buffer), Ok(None)));
    }

    /// What GStreamer makes of the last frame of the day, and one frame more.
    #[test]
    fn a_day_of_time_codes_ends_with_its_last_frame() {
        gst::init().unwrap();
        for (numer, denom, drop, last) in [
            (25, 1, false, 24),
            (24, 1, false, 23),
            (50, 1, false, 49),
            (30_000, 1001, false, 29),
            (30_000, 1001, true, 29),
            (24_000, 1001, false, 23),
            (60_000, 1001, false, 59),
            (60_000, 1001, true, 59),
        ] {
            let flags = if drop { VideoTimeCodeFlags::DROP_FRAME } else { VideoTimeCodeFlags::empty() };
            let fps = gst::Fraction::new(numer, denom);
            let code = VideoTimeCode::new(fps, None, flags, 23, 59, 59, last, 0);
            let code = ValidVideoTimeCode::try_from(code).unwrap();
            let end =
                code.time_since_daily_jam().nseconds() as f64 + 1e9 * f64::from(denom) / f64::from(numer);
            let day = day(&code).unwrap() as f64;
            assert!((day - end).abs() < 2.0, "{fps:?} {drop}: {day} and {end}");
        }
    }
}
