// SPDX-License-Identifier: MPL-2.0

//! One sink pad: what stands at its head, when it is due, and what pairs it with a frame of another pad.

use std::sync::Arc;

use gst::ClockTime;
use gst::prelude::*;
use gst_base::AggregatorPad;
use gst_base::prelude::*;
use gst_video::{ValidVideoTimeCode, VideoInfo, VideoTimeCodeFlags, VideoTimeCodeMeta};
use watch::alarm::is_calm;

use super::cadence::Cadence;
use super::caps::Colors;
use super::error::Error;
use super::metas;
use super::report::event::{Event, EventMessage, EventState};
use super::schedule::{Frame, Head};
use super::settings::Pairing;
use super::stall_watchdog::Quiet;
use super::time::{Pace, StreamTime, moved};
use super::upcoming::{self, Upcoming};

/// The limit by which a timestamp may be ahead of earlier ones, or of the clock, before it is doubted.
pub const AHEAD: ClockTime = ClockTime::from_seconds(2);

/// Bits of a frame's number that count frames within a segment; those above count segments.
const NUMBER_BITS: u32 = 40;

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
    /// The orientation of the pictures in tags: a value of `image-orientation`.
    pub orientation: Option<String>,
    /// The colorimetry of those caps.
    pub colors: Option<Colors>,
    upcoming: Arc<Upcoming>,
    /// Timestamp of the next buffer, should it have none.
    next_pts: Option<ClockTime>,
    /// Running time of the last frame that was taken and not skipped.
    last: Option<ClockTime>,
    /// Running time of the head that was noted last as far ahead.
    jump: Option<ClockTime>,
    /// Frames that were far ahead since that was reported, and when it was.
    jumps: u64,
    jump_reported: Option<ClockTime>,
    /// The segment of the frames at the head, with its number among the seeks of its source.
    segment: Option<(gst::Segment, gst::Seqnum)>,
    /// The number of segments so far.
    segments: u64,
    /// Frames taken in this segment.
    taken: u64,
    /// Buffers taken since the start, frames or not.
    pub popped: u64,
    /// The time for which the pad has been empty.
    pub quiet: Quiet,
    /// The distance of the frames that were taken.
    pub cadence: Cadence,
}

/// When a buffer is due.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub timestamp: StreamTime,
    /// `None` outside the segment.
    pub running_time: Option<ClockTime>,
    pub stream_time: Option<StreamTime>,
    pub pace: Pace,
}

/// A buffer at the head of a pad.
#[derive(Clone, Debug)]
pub struct Item {
    pub buffer: gst::Buffer,
    /// Running time with the pad's offset; of a gap that of its end.
    pub at: ClockTime,
    /// Running time without the offset.
    unmoved: ClockTime,
    /// There are no frames up to `at`, and the buffer is none.
    pub is_gap: bool,
    /// Running time with the offset, which may be before the start.
    time: i64,
    /// The number of frames that were taken from the pad before.
    number: u64,
    offset: i64,
}

/// The next buffer of a pad.
#[derive(Clone, Debug)]
pub enum Next {
    Item(Item),
    /// Nothing has arrived yet.
    Empty,
    /// Nothing will arrive any more.
    Eos,
}

/// The doubt about the timestamp of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    None,
    /// The timestamp is far ahead, and no frame behind it shows that it is wrong.
    Ahead,
    /// The timestamp is far ahead of the frames before and behind it.
    Wild,
}

impl Next {
    /// Returns the head as the schedule sees it: without the buffer, and with the key that pairs it. `margin`: how far ahead
    /// of the deadline a head may be without doubt.
    pub fn head(&self, key: Option<i64>, doubt: Doubt, margin: ClockTime) -> Head {
        match self {
            Self::Item(_) if doubt == Doubt::Wild => Head::Wild,
            Self::Item(item) if doubt == Doubt::Ahead => Head::Ahead(item.at.saturating_sub(margin)),
            Self::Item(item) if item.is_gap => Head::Gap(Frame { at: item.at, key }),
            Self::Item(item) => Head::Frame(Frame { at: item.at, key }),
            Self::Empty => Head::Empty,
            Self::Eos => Head::Eos,
        }
    }
}

impl Input {
    /// Owns a sink pad, of which `upcoming` notes what upstream hands over.
    pub fn new(pad: AggregatorPad, upcoming: Arc<Upcoming>) -> Self {
        upcoming.clear();
        Self {
            pad,
            upcoming,
            info: None,
            stored: None,
            caps: None,
            orientation: None,
            colors: None,
            next_pts: None,
            last: None,
            jump: None,
            jumps: 0,
            jump_reported: None,
            segment: None,
            segments: 0,
            taken: 0,
            popped: 0,
            quiet: Quiet::default(),
            cadence: Cadence::default(),
        }
    }

    pub fn name(&self) -> String {
        self.pad.name().to_string()
    }

    /// Returns how long a frame lasts by the frame rate in the caps, if that is constant.
    pub fn frame_duration(&self) -> Option<StreamTime> {
        // A VideoInfo has the highest rate here where it varies.
        duration(self.caps.as_ref()?.structure(0)?.get("framerate").ok()?)
    }

    /// Returns how long a frame lasts at least, where the caps say that the rate varies.
    pub fn least_duration(&self) -> Option<StreamTime> {
        let max = self.caps.as_ref()?.structure(0)?.get("max-framerate").ok();
        max.filter(|_| self.frame_duration().is_none()).and_then(duration)
    }

    /// Returns how long a buffer lasts in the stream, by itself or else by the caps.
    pub fn duration_of(&self, buffer: &gst::BufferRef) -> Option<StreamTime> {
        buffer.duration().map(StreamTime).or(self.frame_duration()).or(self.least_duration())
    }

    /// Returns how fast the frames at the head play.
    pub fn pace(&self) -> Pace {
        Pace::of(self.pad.segment().rate())
    }

    /// Takes what the caps and the segment of the head say of the distance of frames.
    pub fn configure_cadence(&mut self) {
        let pace = self.pace();
        let constant = self.frame_duration().map(|duration| pace.running(duration));
        self.cadence.announce(constant, self.least_duration().is_some());
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
        let timestamp = match (buffer.pts(), self.frame_duration().or(self.least_duration())) {
            (Some(pts), _) => pts,
            (None, Some(_)) => self.next_pts.or(segment.start()).unwrap_or(ClockTime::ZERO),
            (None, None) => return Err(missing()),
        };
        Ok(Some(Times {
            timestamp: StreamTime(timestamp),
            running_time: segment.to_running_time(timestamp),
            stream_time: segment.to_stream_time(timestamp).map(StreamTime),
            pace: Pace::of(segment.rate()),
        }))
    }

    /// Returns what comes next, `offset` nanoseconds later than it says; `None` if the buffer at the head is outside of its
    /// segment and has to go first.
    pub fn peek(&self, offset: i64) -> Result<Option<Next>, Error> {
        let Some(buffer) = self.pad.peek_buffer() else {
            return Ok(Some(if self.pad.is_eos() { Next::Eos } else { Next::Empty }));
        };
        let Some(times) = self.times(&buffer)? else { return Ok(Some(Next::Empty)) };
        Ok(self.item(buffer, times, offset).map(Next::Item))
    }

    /// Returns what comes next, `offset` nanoseconds later than it says. Buffers outside of the segment go to `dropped`.
    pub fn next(&mut self, offset: i64, dropped: &mut Vec<gst::Buffer>) -> Result<Next, Error> {
        loop {
            if let Some(next) = self.peek(offset)? {
                return Ok(next);
            }
            dropped.extend(self.pop());
        }
    }

    /// Returns true if upstream has handed over a frame that is not at the head yet. `next`: what was seen there.
    pub fn is_coming(&self, next: &Next) -> bool {
        matches!(next, Next::Empty) && self.upcoming.has_frame()
    }

    /// Returns true if the base class has an event or a query of this pad to handle before the next frame comes to the head.
    pub fn has_serialized(&self) -> bool {
        !self.pad.has_buffer() && self.upcoming.has_serialized()
    }

    /// Makes an item of a buffer that is due within the segment.
    fn item(&self, buffer: gst::Buffer, times: Times, offset: i64) -> Option<Item> {
        let unmoved = times.running_time?;
        let is_gap = buffer.size() == 0 && buffer.flags().contains(gst::BufferFlags::GAP);
        // Played backwards, the start of a gap in the stream is its end in running time.
        let length = self.duration_of(&buffer).filter(|_| is_gap && !times.pace.is_reverse());
        let end = unmoved.saturating_add(length.map_or(ClockTime::ZERO, |length| times.pace.running(length)));
        let time = i64::try_from(end.nseconds()).unwrap_or(i64::MAX).saturating_add(offset);
        let number = self.segments << NUMBER_BITS | self.taken;
        Some(Item { buffer, at: moved(end, offset), unmoved, is_gap, time, number, offset })
    }

    /// Returns what comes behind the head, in running time; `None` where there is none that can be compared with it.
    pub fn behind(&self, head: &Item) -> Option<upcoming::Next<Item>> {
        Some(match self.upcoming.after(&head.buffer) {
            upcoming::Next::Nothing => upcoming::Next::Nothing,
            upcoming::Next::Unknown => upcoming::Next::Unknown,
            upcoming::Next::Gap(start) => {
                let segment = self.pad.segment().downcast::<ClockTime>().ok()?;
                upcoming::Next::Gap(segment.to_running_time(start)?)
            }
            upcoming::Next::Frame(buffer) => {
                let times = self.times(&buffer).ok()??;
                upcoming::Next::Frame(self.item(buffer, times, head.offset)?)
            }
        })
    }

    /// Returns the running time of the frame or gap behind the head, where no clock runs also of the first one in a new segment.
    fn time_behind(&self, head: &Item, is_live: bool) -> Option<upcoming::Next<ClockTime>> {
        Some(match self.behind(head)? {
            upcoming::Next::Frame(next) => upcoming::Next::Frame(next.unmoved),
            upcoming::Next::Gap(start) => upcoming::Next::Gap(start),
            upcoming::Next::Unknown => upcoming::Next::Unknown,
            upcoming::Next::Nothing if is_live => upcoming::Next::Nothing,
            upcoming::Next::Nothing => self.upcoming.after_segment(&head.buffer),
        })
    }

    /// Returns whether the timestamp of a head can be right. `horizon`: running time up to which it is not doubted, where a
    /// clock says what the time is; elsewhere the frames before say it.
    fn doubt(&self, head: &Item, horizon: Option<ClockTime>) -> Doubt {
        let known = self.last.unwrap_or(ClockTime::ZERO).saturating_add(AHEAD);
        if head.is_gap || horizon.map_or(head.unmoved <= known, |horizon| head.at <= horizon) {
            return Doubt::None;
        }
        match self.time_behind(head, horizon.is_some()) {
            Some(upcoming::Next::Frame(next) | upcoming::Next::Gap(next))
                if next.saturating_add(AHEAD / 2) < head.unmoved =>
            {
                Doubt::Wild
            }
            // The frame or event behind it would have to wait for its time to come.
            Some(upcoming::Next::Nothing) if horizon.is_some() => Doubt::Wild,
            Some(upcoming::Next::Unknown) => Doubt::Ahead,
            _ if horizon.is_some() => Doubt::Ahead,
            _ => Doubt::None,
        }
    }

    /// Returns whether the timestamp of what comes next can be right. `looks`: frames behind the heads are waited for.
    pub fn doubt_of(&self, next: &Next, horizon: Option<ClockTime>, looks: bool) -> Doubt {
        let Next::Item(head) = next else { return Doubt::None };
        match self.doubt(head, horizon) {
            Doubt::Ahead if horizon.is_none() && !looks => Doubt::None,
            doubt => doubt,
        }
    }

    /// Returns true if the head has a timestamp far ahead that was not noted yet. Where no clock runs, the frame behind it
    /// decides first whether it is wild.
    pub fn is_news(&self, next: &Next, doubt: Doubt, is_live: bool) -> bool {
        let is_jump = doubt == Doubt::Wild || doubt == Doubt::Ahead && is_live;
        is_jump && matches!(next, Next::Item(head) if self.jump != Some(head.unmoved))
    }

    /// Notes a head whose timestamp is far ahead. Returns the event that reports it with others, at most one in
    /// [`CALM`](watch::alarm::CALM), of which the caller knows the pad.
    pub fn note_doubt(&mut self, next: &Next, doubt: Doubt, is_live: bool) -> Option<EventMessage> {
        let Next::Item(head) = next else { return None };
        if !self.is_news(next, doubt, is_live) {
            return None;
        }
        self.jump = Some(head.unmoved);
        self.jumps += 1;
        let last = self.last.unwrap_or(ClockTime::ZERO);
        if self.jump_reported.is_some_and(|at| !is_calm(at.nseconds(), last.nseconds())) {
            return None;
        }
        self.jump_reported = Some(last);
        Some(EventMessage {
            event: Event::TimestampJump,
            state: EventState::Info,
            running_time: Some(last),
            count: Some(std::mem::take(&mut self.jumps)),
            offset: i64::try_from(head.unmoved.saturating_sub(last).nseconds()).ok(),
            ..EventMessage::default()
        })
    }

    /// Takes the frame at the head.
    pub fn take(&mut self) -> Option<gst::Buffer> {
        let buffer = self.pad.peek_buffer();
        let times = buffer.and_then(|buffer| self.times(&buffer).ok().flatten());
        self.last = times.and_then(|times| times.running_time).or(self.last);
        self.skip()
    }

    /// Takes the frame at the head, whose timestamp says nothing about the frames to come.
    pub fn skip(&mut self) -> Option<gst::Buffer> {
        self.taken += 1;
        self.pop()
    }

    /// Takes the buffer at the head, which counts as no frame.
    pub fn pop(&mut self) -> Option<gst::Buffer> {
        let buffer = self.pad.pop_buffer()?;
        self.popped += 1;
        self.upcoming.taken(&buffer);
        let duration = self.duration_of(&buffer);
        let timestamp = self.times(&buffer).ok().flatten().map(|times| times.timestamp);
        self.next_pts = timestamp.zip(duration).map(|(time, duration)| time.saturating_add(duration).0);
        Some(buffer)
    }

    /// Forgets the frames before a flush: those after it have nothing to do with them.
    pub fn restart(&mut self) {
        self.cadence.restart();
        self.next_pts = None;
        self.last = None;
        self.segment = None;
        self.taken = 0;
    }

    /// Takes the segment of the frames to come. One that goes on with the one before, or changes how far it reaches, changes
    /// nothing; in another one frames are numbered from 0 again.
    pub fn set_segment(&mut self, segment: &gst::Segment, seqnum: gst::Seqnum) {
        let before = self.segment.replace((segment.clone(), seqnum));
        let Some((before, last)) = before else { return };
        if last != seqnum && !is_update(&before, segment) {
            self.segments += 1;
            self.taken = 0;
            self.next_pts = None;
            self.last = None;
        }
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
        // A picture that cannot be read is refused when it is to be compared.
        let shown = metas::shown(&head, self.stored.as_ref()?).ok()?;
        let size = |info: &VideoInfo| (info.width(), info.height());
        self.info.as_ref().is_some_and(|info| size(info) != size(&shown)).then_some(shown)
    }
}

/// Returns how long a frame lasts at this rate, `None` for the rates that stand for none.
fn duration(rate: gst::Fraction) -> Option<StreamTime> {
    let positive = |number: i32| u64::try_from(number).ok().filter(|number| *number > 0);
    let (numer, denom) = (positive(rate.numer())?, positive(rate.denom())?);
    ClockTime::SECOND.mul_div_round(denom, numer).filter(|time| !time.is_zero()).map(StreamTime)
}

/// Returns true if each timestamp has the same running time in both segments.
fn is_update(before: &gst::Segment, after: &gst::Segment) -> bool {
    let map = |of: &gst::Segment| {
        let of = of.downcast_ref::<ClockTime>()?;
        Some((
            of.rate().to_bits(),
            of.applied_rate().to_bits(),
            of.base(),
            of.start(),
            of.time(),
            of.offset(),
        ))
    };
    map(before).is_some() && map(before) == map(after)
}

/// Returns the keys by which a reference frame and a distorted one are paired, in the same terms.
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
        assert!(matches!(Input::new(pad, Arc::default()).times(&buffer), Ok(None)));
    }

    /// Time codes that GStreamer makes of the last frame of the day, and of the next.
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
