// SPDX-License-Identifier: MPL-2.0

//! The frames, caps, segments and events that leave the element, in order.
//!
//! A reference frame waits here until its scores are known or until it is due. Caps and segments of upstream belong before the
//! first frame that came after them, and no earlier: they leave with that frame. When a flush drops frames, their announcement
//! is kept, and goes before the next frame that leaves. All other serialized events keep their place between the frames, and
//! leave as soon as the frame before has.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use engine::heatmap::HeatSums;
use gst::ClockTime;
use gst_video::VideoInfo;

use super::report::message::ScoreState;
use super::time::StreamTime;

/// Number and times of a reference frame, for messages and metas.
#[derive(Clone, Debug)]
pub struct Stamp {
    /// Number of the reference frame since the element was started.
    pub index: u64,
    pub timestamp: Option<StreamTime>,
    pub stream_time: Option<StreamTime>,
    pub running_time: ClockTime,
    /// The duration of the frame in stream time.
    pub duration: Option<StreamTime>,
    /// The duration in running time.
    pub lasts: Option<ClockTime>,
    /// The time code of the frame, if any: hours, minutes, seconds and frames.
    pub time_code: Option<Arc<str>>,
}

/// The fate of a reference frame in one rendition.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Submitted, waiting for its score.
    Pending(Pair),
    /// Decided, with a value for each column of the plan if the frame has a score.
    Known { state: ScoreState, values: Vec<f64> },
}

/// The fate of a frame without a score.
impl From<ScoreState> for Outcome {
    fn from(state: ScoreState) -> Self {
        Self::Known { state, values: vec![] }
    }
}

/// A pair that waits for its score.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// When it was submitted.
    pub since: Instant,
    /// Running time of the distorted frame, moved by the rendition's offset.
    pub dist_running_time: ClockTime,
    /// Nanoseconds that were added to it for that.
    pub offset: i64,
    /// The distorted frame was used before.
    pub repeated: bool,
    /// The score will not count: the offset of the distorted video is not known yet.
    pub provisional: bool,
}

/// An [`Outcome`] and whose it is.
#[derive(Clone, Debug)]
pub struct Compared {
    /// Number of the rendition.
    pub rendition: u64,
    /// Section of the rendition that the frame belongs to.
    pub section: u32,
    pub outcome: Outcome,
    /// The distorted frame, if it leaves with the reference frame.
    pub frame: Option<gst::Sample>,
}

impl Compared {
    /// Returns the present outcome, with the frame, which is not kept any longer.
    fn leave(&mut self) -> Self {
        let frame = self.frame.take();
        Self { frame, ..self.clone() }
    }
}

/// The damage of a frame, as far as it is known.
#[derive(Debug, Default)]
pub enum Damage {
    /// Nothing is known and nothing will be: no damage is shown.
    #[default]
    None,
    /// The frame was submitted, and its damage will be known.
    Pending,
    Known(HeatSums),
}

/// The data for the heat map of a frame.
#[derive(Debug)]
pub struct Heat {
    /// Format that the caps of the frame say.
    pub info: Arc<VideoInfo>,
    pub damage: Damage,
}

/// Caps and segment that go downstream before a frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Announcement {
    pub caps: Option<gst::Caps>,
    pub segment: Option<gst::Segment>,
}

impl Announcement {
    /// Returns the announcement that stands for this one and then `later`.
    fn then(self, later: Self) -> Self {
        Self { caps: later.caps.or(self.caps), segment: later.segment.or(self.segment) }
    }
}

/// A reference frame and what became of it.
pub struct Delayed {
    pub stamp: Stamp,
    pub compared: Vec<Compared>,
    /// The frame that leaves; `None` once it has left, or where no frame leaves.
    pub buffer: Option<gst::Buffer>,
    /// The data for the heat map, until the frame leaves; `None` where no heat maps leave.
    pub heat: Option<Heat>,
}

impl Delayed {
    fn is_pending(&self) -> bool {
        self.compared.iter().any(|compared| matches!(compared.outcome, Outcome::Pending(_)))
    }

    fn is_damage_pending(&self) -> bool {
        self.heat.as_ref().is_some_and(|heat| matches!(heat.damage, Damage::Pending))
    }
}

/// A frame or an event that leaves, after its announcement.
pub enum Departure {
    Frame(Leaving),
    Event(gst::Event),
}

/// A frame that leaves.
pub struct Leaving {
    pub stamp: Stamp,
    pub compared: Vec<Compared>,
    pub buffer: gst::Buffer,
    pub heat: Option<Heat>,
}

/// A frame or an event on its way.
enum Item {
    Frame(Delayed),
    Event(gst::Event),
}

impl Item {
    fn frame(&self) -> Option<&Delayed> {
        if let Self::Frame(frame) = self { Some(frame) } else { None }
    }

    fn frame_mut(&mut self) -> Option<&mut Delayed> {
        if let Self::Frame(frame) = self { Some(frame) } else { None }
    }

    /// Returns true if the frame has not left.
    fn leaves(&self) -> bool {
        self.frame().is_none_or(|frame| frame.buffer.is_some())
    }
}

/// The way out.
pub struct Downstream {
    /// Frames wait for their scores.
    hold: bool,
    /// Frames and events in stream order, each with what goes before it.
    items: VecDeque<(Announcement, Item)>,
    /// The announcement before the next frame or event that comes.
    owed: Announcement,
    /// Caps, and a segment, were announced or are owed: no event goes before them.
    has_caps: bool,
    has_segment: bool,
    /// Events that came before those.
    early: Vec<gst::Event>,
    /// The latency that was last reported.
    latency: ClockTime,
}

impl Downstream {
    /// `hold` says whether frames wait for their scores.
    pub fn new(hold: bool) -> Self {
        Self {
            hold,
            items: VecDeque::new(),
            owed: Announcement::default(),
            has_caps: false,
            has_segment: false,
            early: vec![],
            latency: ClockTime::ZERO,
        }
    }

    fn frames(&self) -> impl Iterator<Item = &Delayed> {
        self.items.iter().filter_map(|(_, item)| item.frame())
    }

    fn frames_mut(&mut self) -> impl Iterator<Item = &mut Delayed> {
        self.items.iter_mut().filter_map(|(_, item)| item.frame_mut())
    }

    /// The frames to come have these caps.
    pub fn set_caps(&mut self, caps: gst::Caps) {
        self.owed.caps = Some(caps);
        self.has_caps = true;
    }

    /// The frames to come belong to this segment.
    pub fn set_segment(&mut self, segment: gst::Segment) {
        self.owed.segment = Some(segment);
        self.has_segment = true;
    }

    /// Takes an event that leaves after the frames so far.
    pub fn place(&mut self, event: gst::Event) {
        self.early.push(event);
        self.place_early();
    }

    /// Takes a buffer that stands for a gap, of which downstream is to know.
    pub fn place_gap(&mut self, gap: &gst::BufferRef) {
        if let Some(at) = gap.pts() {
            self.place(gst::event::Gap::builder(at).duration(gap.duration()).build());
        }
    }

    /// Places the events that came before anything that has to go first.
    fn place_early(&mut self) {
        if self.has_caps && self.has_segment {
            for event in std::mem::take(&mut self.early) {
                self.items.push_back((std::mem::take(&mut self.owed), Item::Event(event)));
            }
        }
    }

    /// Takes the latency that frames have here. The new one if it has to be reported: it has grown, or it is `exact`
    /// and another one.
    pub fn set_latency(&mut self, latency: ClockTime, exact: bool) -> Option<ClockTime> {
        let changes = latency > self.latency || exact && latency != self.latency;
        changes.then(|| {
            self.latency = latency;
            latency
        })
    }

    pub fn push(&mut self, frame: Delayed) {
        self.place_early();
        // Without a frame, nothing is announced yet.
        let announcement =
            if frame.buffer.is_some() { std::mem::take(&mut self.owed) } else { Announcement::default() };
        self.items.push_back((announcement, Item::Frame(frame)));
    }

    /// The stamp of a frame that waits for its score of a rendition, and what became of it so far.
    pub fn pending(&mut self, rendition: u64, index: u64) -> Option<(&Stamp, &mut Compared)> {
        let frame = self.frames_mut().find(|frame| frame.stamp.index == index)?;
        let mut compared = frame.compared.iter_mut();
        let compared =
            compared.find(|of| of.rendition == rendition && matches!(of.outcome, Outcome::Pending(_)))?;
        Some((&frame.stamp, compared))
    }

    /// Pairs of a rendition from this running time on were wrong: scores that are still to come do not count.
    pub fn doubt(&mut self, rendition: u64, from: ClockTime) {
        let frames = self.frames_mut().filter(|frame| frame.stamp.running_time >= from);
        let compared = frames.flat_map(|frame| &mut frame.compared).filter(|of| of.rendition == rendition);
        for of in compared {
            if let Outcome::Pending(pair) = &mut of.outcome {
                pair.provisional = true;
            }
        }
    }

    /// Running time of the oldest frame that waits for its score of a rendition.
    pub fn oldest_pending(&self, rendition: u64) -> Option<ClockTime> {
        let waits = |of: &Compared| of.rendition == rendition && matches!(of.outcome, Outcome::Pending(_));
        let frame = self.frames().find(|frame| frame.compared.iter().any(waits))?;
        Some(frame.stamp.running_time)
    }

    /// Takes what is known of a frame's damage. A frame that has left without has no use for it any more.
    pub fn set_damage(&mut self, index: u64, damage: Option<HeatSums>) {
        let frame = self.frames_mut().find(|frame| frame.stamp.index == index);
        if let Some(heat) = frame.and_then(|frame| frame.heat.as_mut())
            && matches!(heat.damage, Damage::Pending)
        {
            heat.damage = damage.map_or(Damage::None, Damage::Known);
        }
    }

    /// Takes the next frame or event that can leave. A frame can if what becomes of it is known, it is due at `deadline`, or
    /// frames are not held back but for what they are painted with. One that leaves while pending stays in line for its score.
    pub fn pop(&mut self, deadline: Option<ClockTime>) -> Option<(Announcement, Departure)> {
        while self
            .items
            .front()
            .and_then(|(_, item)| item.frame())
            .is_some_and(|frame| frame.buffer.is_none() && !frame.is_pending() && !frame.is_damage_pending())
        {
            self.items.pop_front();
        }
        if !self.can_leave(deadline) {
            return None;
        }
        let at = self.items.iter().position(|(_, item)| item.leaves())?;
        let (announcement, item) = self.items.get_mut(at)?;
        let Item::Frame(next) = item else {
            let (announcement, item) = self.items.remove(at)?;
            let Item::Event(event) = item else { return None };
            return Some((announcement, Departure::Event(event)));
        };
        let heat = next.heat.as_mut().map(|heat| Heat {
            info: heat.info.clone(),
            damage: match &heat.damage {
                Damage::Pending => Damage::None,
                Damage::None | Damage::Known(_) => std::mem::take(&mut heat.damage),
            },
        });
        let frame = Leaving {
            stamp: next.stamp.clone(),
            compared: next.compared.iter_mut().map(Compared::leave).collect(),
            buffer: next.buffer.take()?,
            heat,
        };
        Some((std::mem::take(announcement), Departure::Frame(frame)))
    }

    /// Returns true if the next frame or event can leave, which a frame that waits can at `deadline`.
    pub fn can_leave(&self, deadline: Option<ClockTime>) -> bool {
        match self.items.iter().map(|(_, item)| item).find(|item| item.leaves()) {
            Some(Item::Frame(next)) => {
                let due = deadline.is_some_and(|deadline| next.stamp.running_time <= deadline);
                due || !(self.hold && next.is_pending() || next.is_damage_pending())
            }
            Some(Item::Event(_)) => true,
            None => false,
        }
    }

    /// Running time of the oldest frame that has not left.
    pub fn next_time(&self) -> Option<ClockTime> {
        Some(self.frames().find(|frame| frame.buffer.is_some())?.stamp.running_time)
    }

    /// Frames that wait for a score.
    pub fn count_pending(&self) -> usize {
        self.frames().filter(|frame| frame.is_pending()).count()
    }

    /// Gives up the frames, as a flush does, and returns them. What they would have announced is still owed, and those
    /// that wait for their score stay in line for it. Of the events, those stay that stick to a pad.
    pub fn flush(&mut self) -> Vec<gst::Buffer> {
        let items = self.items.iter_mut().map(|(announcement, _)| std::mem::take(announcement));
        let dropped = items.fold(Announcement::default(), Announcement::then);
        self.owed = dropped.then(std::mem::take(&mut self.owed));
        let early = std::mem::take(&mut self.early);
        let mut events = vec![];
        self.items.retain(|(_, item)| {
            if let Item::Event(event) = item {
                events.push(event.clone());
            }
            item.frame().is_some()
        });
        self.early = events.into_iter().chain(early).filter(|event| event.is_sticky()).collect();
        self.frames_mut().filter_map(|frame| frame.buffer.take()).collect()
    }

    /// Gives up the frames of a rendition that would leave with reference frames.
    pub fn forget_pictures(&mut self, rendition: u64) {
        let compared = self.frames_mut().flat_map(|frame| &mut frame.compared);
        compared
            .filter(|compared| compared.rendition == rendition)
            .for_each(|compared| compared.frame = None);
    }

    /// Gives up the scores of a rendition.
    pub fn forget(&mut self, rendition: u64) {
        for frame in self.frames_mut() {
            frame.compared.retain(|compared| compared.rendition != rendition);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(index: u64, pending: bool, buffer: bool) -> Delayed {
        let running_time = ClockTime::from_mseconds(40 * index);
        let stamp = Stamp {
            index,
            timestamp: None,
            stream_time: None,
            running_time,
            duration: None,
            lasts: None,
            time_code: None,
        };
        let pair = Pair {
            since: Instant::now(),
            dist_running_time: running_time,
            offset: 0,
            repeated: false,
            provisional: false,
        };
        let outcome = if pending { Outcome::Pending(pair) } else { ScoreState::Unpaired.into() };
        let compared = vec![Compared { rendition: 0, section: 0, outcome, frame: None }];
        Delayed { stamp, compared, buffer: buffer.then(gst::Buffer::new), heat: None }
    }

    fn caps(width: i32) -> gst::Caps {
        gst::Caps::builder("video/x-raw").field("width", width).build()
    }

    fn left(downstream: &mut Downstream, deadline: Option<u64>) -> Vec<(u64, Option<gst::Caps>)> {
        let deadline = deadline.map(ClockTime::from_mseconds);
        let left = std::iter::from_fn(|| downstream.pop(deadline));
        left.map(|(announcement, departure)| (frame_of(departure).stamp.index, announcement.caps)).collect()
    }

    fn frame_of(departure: Departure) -> Leaving {
        match departure {
            Departure::Frame(frame) => frame,
            Departure::Event(event) => panic!("{event:?}"),
        }
    }

    #[test]
    fn caps_go_right_before_the_first_frame_after_them() {
        gst::init().unwrap();
        let mut downstream = Downstream::new(true);
        downstream.set_caps(caps(64));
        downstream.push(frame(0, true, true));
        downstream.set_caps(caps(96));
        // Nothing leaves for this one, so nothing is announced with it.
        downstream.push(frame(1, false, false));
        downstream.push(frame(2, false, true));
        assert_eq!(left(&mut downstream, None), []);
        downstream.pending(0, 0).unwrap().1.outcome = ScoreState::Skipped.into();
        assert_eq!(left(&mut downstream, None), [(0, Some(caps(64))), (2, Some(caps(96)))]);
        assert!(downstream.items.len() <= 1);
    }

    #[test]
    fn a_flush_leaves_what_was_not_announced_yet() {
        gst::init().unwrap();
        let mut downstream = Downstream::new(true);
        downstream.set_caps(caps(64));
        downstream.push(frame(0, true, true));
        downstream.set_caps(caps(96));
        downstream.set_segment(gst::FormattedSegment::<ClockTime>::new().upcast());
        downstream.push(frame(1, true, true));
        assert_eq!(downstream.flush().len(), 2);
        assert_eq!(downstream.next_time(), None);
        assert_eq!(downstream.count_pending(), 2, "scores are still to come");
        downstream.push(frame(2, false, true));
        let (announcement, departure) = downstream.pop(None).unwrap();
        assert_eq!((frame_of(departure).stamp.index, announcement.caps), (2, Some(caps(96))));
        assert!(announcement.segment.is_some());
    }

    /// Returns what leaves: the number of a frame, or the type of an event, each with whether caps go before it.
    fn departures(downstream: &mut Downstream) -> Vec<(Result<u64, gst::EventType>, bool)> {
        let name = |departure| match departure {
            Departure::Frame(frame) => Ok(frame.stamp.index),
            Departure::Event(event) => Err(event.type_()),
        };
        let left = std::iter::from_fn(|| downstream.pop(None));
        left.map(|(announcement, departure)| (name(departure), announcement.caps.is_some())).collect()
    }

    fn tag() -> gst::Event {
        gst::event::Tag::new(gst::TagList::new())
    }

    #[test]
    fn events_leave_right_after_the_frame_before_them() {
        gst::init().unwrap();
        let mut downstream = Downstream::new(true);
        downstream.set_caps(caps(64));
        // Not before there is a segment.
        downstream.place(tag());
        assert_eq!(departures(&mut downstream), []);
        downstream.set_segment(gst::FormattedSegment::<ClockTime>::new().upcast());
        downstream.push(frame(0, true, true));
        downstream.place(gst::event::SegmentDone::new(ClockTime::ZERO));
        downstream.push(frame(1, false, true));
        assert_eq!(departures(&mut downstream), [(Err(gst::EventType::Tag), true)]);
        downstream.pending(0, 0).unwrap().1.outcome = ScoreState::Skipped.into();
        let rest = [Ok(0), Err(gst::EventType::SegmentDone), Ok(1)];
        assert_eq!(departures(&mut downstream), rest.map(|name| (name, false)));
        downstream.place(tag());
        assert_eq!(departures(&mut downstream), [(Err(gst::EventType::Tag), false)]);
    }

    #[test]
    fn a_flush_leaves_the_events_that_stick() {
        gst::init().unwrap();
        let mut downstream = Downstream::new(true);
        downstream.set_caps(caps(64));
        downstream.set_segment(gst::FormattedSegment::<ClockTime>::new().upcast());
        downstream.push(frame(0, true, true));
        downstream.place(tag());
        let mut gap = gst::Buffer::new();
        gap.make_mut().set_pts(ClockTime::ZERO);
        downstream.place_gap(&gap);
        assert_eq!(downstream.flush().len(), 1);
        downstream.push(frame(1, false, true));
        assert_eq!(departures(&mut downstream), [(Err(gst::EventType::Tag), true), (Ok(1), false)]);
    }

    #[test]
    fn frames_leave_when_they_are_due_and_stay_in_line_for_their_score() {
        gst::init().unwrap();
        let mut downstream = Downstream::new(true);
        (0..3).for_each(|i| downstream.push(frame(i, true, true)));
        assert_eq!(left(&mut downstream, Some(39)), [(0, None)]);
        assert_eq!(downstream.next_time(), Some(ClockTime::from_mseconds(40)));
        assert_eq!(downstream.oldest_pending(0), Some(ClockTime::ZERO));
        assert!(downstream.pending(0, 0).is_some());
        downstream.forget(0);
        assert_eq!(left(&mut downstream, None), [(1, None), (2, None)]);
    }

    #[test]
    fn the_latency_is_reported_when_it_grows_or_is_exact() {
        let mut downstream = Downstream::new(true);
        let ms = ClockTime::from_mseconds;
        assert_eq!(downstream.set_latency(ms(80), false), Some(ms(80)));
        assert_eq!(downstream.set_latency(ms(40), false), None);
        assert_eq!(downstream.set_latency(ms(40), true), Some(ms(40)));
        assert_eq!(downstream.set_latency(ms(40), true), None);
    }
}
