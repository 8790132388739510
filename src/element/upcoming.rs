// SPDX-License-Identifier: MPL-2.0

//! The buffers and events behind the head of a sink pad.
//!
//! The base class shows the first buffer of a pad only. The next frame decides whether a distorted frame belongs to the
//! reference frame at hand or to the one after it, and whether a timestamp is wild. So each frame is noted when upstream hands
//! it over, which may be before there is room for it on the pad.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use gst::ClockTime;

use super::lock;

/// Something that upstream has handed over.
enum Entry {
    Frame(gst::Buffer),
    /// New caps, which change neither the time nor what may come next.
    Caps,
    /// A gap that begins at this timestamp.
    Gap(ClockTime),
    /// A segment, in which another time may begin.
    Segment(gst::Segment),
    /// Something else than a frame, which may keep the next frame back until those before are gone: the end, a query that
    /// waits for its turn.
    Boundary,
}

/// The next entry: a frame, as a buffer or as something made of it.
#[derive(Clone, Debug)]
pub enum Next<T> {
    Frame(T),
    /// A gap that begins at this time.
    Gap(ClockTime),
    /// Nothing that this frame can be compared with.
    Nothing,
    /// The next frame has not arrived yet.
    Unknown,
}

/// Entries that upstream has handed over to a sink pad, and that were not taken from it since.
#[derive(Default)]
pub struct Upcoming {
    entries: Mutex<VecDeque<Entry>>,
    /// Serialized events and queries that were handed over, and that the base class has not handled yet.
    serialized: AtomicUsize,
}

impl Upcoming {
    /// Notes a frame that upstream hands over.
    pub fn frame(&self, buffer: gst::Buffer) {
        lock(&self.entries).push_back(Entry::Frame(buffer));
    }

    /// Forgets a frame that the pad has refused.
    pub fn refused(&self, buffer: *const gst::ffi::GstBuffer) {
        lock(&self.entries).retain(|entry| !is(entry, buffer));
    }

    /// Notes what upstream hands over besides frames.
    pub fn event(&self, event: &gst::EventRef) {
        use gst::EventType::{CustomDownstream, CustomDownstreamSticky, Tag, Toc};
        match event.view() {
            gst::EventView::FlushStop(_) => self.clear(),
            gst::EventView::Caps(_) => self.note(Entry::Caps),
            gst::EventView::Gap(gap) => self.note(Entry::Gap(gap.get().0)),
            gst::EventView::Segment(segment) => {
                let mut entries = lock(&self.entries);
                // Of several in a row, the last one counts.
                if matches!(entries.back(), Some(Entry::Segment(_))) {
                    entries.pop_back();
                }
                entries.push_back(Entry::Segment(segment.segment().clone()));
            }
            _ if [Tag, Toc, CustomDownstream, CustomDownstreamSticky].contains(&event.type_()) => {}
            _ if event.is_serialized() => self.boundary(),
            _ => {}
        }
    }

    /// Notes something that may wait until the frames before are taken, as serialized queries do.
    pub fn boundary(&self) {
        self.note(Entry::Boundary);
    }

    /// Notes something, of several of a kind in a row the first: a stream may have nothing but gaps for hours.
    fn note(&self, entry: Entry) {
        let mut entries = lock(&self.entries);
        let kind = std::mem::discriminant(&entry);
        if entries.back().map(std::mem::discriminant) != Some(kind) {
            entries.push_back(entry);
        }
    }

    /// Forgets everything up to this buffer, which was taken from the pad.
    pub fn taken(&self, buffer: &gst::BufferRef) {
        let mut entries = lock(&self.entries);
        if let Some(place) = entries.iter().position(|entry| is(entry, buffer.as_ptr())) {
            entries.drain(..=place);
        }
    }

    /// Returns what comes behind this buffer, the head of the pad.
    pub fn after(&self, buffer: &gst::BufferRef) -> Next<gst::Buffer> {
        let entries = lock(&self.entries);
        let place = entries.iter().position(|entry| is(entry, buffer.as_ptr()));
        // Gaps become buffers of the base class's own, behind which comes whatever is next.
        let mut behind = entries.iter().skip(place.map_or(0, |place| place + 1));
        match behind.find(|entry| !matches!(entry, Entry::Caps)) {
            Some(Entry::Frame(next)) => Next::Frame(next.clone()),
            Some(Entry::Gap(time)) => Next::Gap(*time),
            Some(Entry::Segment(_) | Entry::Boundary | Entry::Caps) => Next::Nothing,
            None => Next::Unknown,
        }
    }

    /// Returns the running time of the next frame, if a new segment begins between it and this buffer, the head of the pad.
    pub fn after_segment(&self, buffer: &gst::BufferRef) -> Next<ClockTime> {
        let entries = lock(&self.entries);
        let Some(place) = entries.iter().position(|entry| is(entry, buffer.as_ptr())) else {
            return Next::Nothing;
        };
        let mut segment: Option<&gst::FormattedSegment<ClockTime>> = None;
        for entry in entries.iter().skip(place + 1) {
            match entry {
                Entry::Segment(new) => segment = new.downcast_ref::<ClockTime>(),
                Entry::Frame(next) => {
                    let time =
                        segment.zip(next.pts()).and_then(|(segment, pts)| segment.to_running_time(pts));
                    return time.map_or(Next::Nothing, Next::Frame);
                }
                // Of these, the beginning of a stream comes before its segment, and the end of one after it.
                Entry::Boundary if segment.is_some() => return Next::Nothing,
                Entry::Caps | Entry::Boundary => {}
                Entry::Gap(_) => return Next::Nothing,
            }
        }
        if segment.is_some() { Next::Unknown } else { Next::Nothing }
    }

    /// Returns true if a frame was handed over that was not taken yet.
    pub fn has_frame(&self) -> bool {
        lock(&self.entries).iter().any(|entry| matches!(entry, Entry::Frame(_)))
    }

    /// Returns true if a serialized event or query was handed over that the base class has not handled yet.
    pub fn has_serialized(&self) -> bool {
        self.serialized.load(Ordering::Acquire) > 0
    }

    /// Counts a serialized event or query that is handed over.
    pub fn begin_serialized(&self) {
        self.serialized.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes note that one was handled or refused. A flush may have dropped it.
    pub fn end_serialized(&self) {
        let one_less = |count: usize| count.checked_sub(1);
        let _ = self.serialized.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less);
    }

    /// Forgets everything.
    pub fn clear(&self) {
        lock(&self.entries).clear();
        self.serialized.store(0, Ordering::Release);
    }
}

fn is(entry: &Entry, buffer: *const gst::ffi::GstBuffer) -> bool {
    matches!(entry, Entry::Frame(frame) if std::ptr::eq(frame.as_ptr(), buffer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_frame_is_known_before_there_is_room_for_it() {
        gst::init().unwrap();
        let [first, second, third] = [(); 3].map(|()| gst::Buffer::new());
        let upcoming = Upcoming::default();
        upcoming.frame(first.clone());
        assert!(matches!(upcoming.after(&first), Next::Unknown));
        upcoming.frame(second.clone());
        assert!(matches!(upcoming.after(&first), Next::Frame(next) if next.as_ptr() == second.as_ptr()));
        upcoming.event(&gst::event::Caps::new(&gst::Caps::new_empty_simple("video/x-raw")));
        assert!(matches!(upcoming.after(&second), Next::Unknown));
        upcoming.frame(third.clone());
        assert!(matches!(upcoming.after(&second), Next::Frame(next) if next.as_ptr() == third.as_ptr()));
        upcoming.event(&gst::event::Segment::new(&gst::FormattedSegment::<ClockTime>::new()));
        upcoming.taken(&first);
        assert!(matches!(upcoming.after(&third), Next::Nothing));
        assert!(matches!(upcoming.after_segment(&third), Next::Unknown));
        let mut segment = gst::FormattedSegment::<ClockTime>::new();
        segment.set_base(ClockTime::SECOND);
        upcoming.event(&gst::event::Segment::new(&segment));
        let mut timed = gst::Buffer::new();
        timed.make_mut().set_pts(ClockTime::from_mseconds(40));
        upcoming.frame(timed.clone());
        let Next::Frame(time) = upcoming.after_segment(&third) else { panic!("a frame came") };
        assert_eq!(time, ClockTime::from_mseconds(1040));
        upcoming.refused(timed.as_ptr());
        upcoming.taken(&second);
        upcoming.refused(third.as_ptr());
        upcoming.taken(&third);
        assert!(!upcoming.has_frame());
        upcoming.frame(first.clone());
        assert!(upcoming.has_frame());
        upcoming.event(&gst::event::FlushStop::new(true));
        assert!(matches!(upcoming.after(&third), Next::Unknown));
        assert!(!upcoming.has_frame());
    }
}
