// SPDX-License-Identifier: MPL-2.0

//! The offset of one distorted stream to the reference: the search for it, by thumbnails of both (`align`), and the
//! correction of running times by what was found (`align=auto`).

use gst::ClockTime;
use watch::align::{Aligner, Estimate, UNRELATED};
use watch::thumbnail::Thumbnail;

use super::cadence::alike;
use super::pads::Align;
use super::report::event::{Event, EventMessage, EventState};
use super::time::{moved, running};

/// The time for which scores are provisional while an offset is searched for. The search takes a few seconds if the
/// pictures show the offset. If they do not, the stream is monitored with its present offset.
const SEARCH: ClockTime = ClockTime::from_seconds(30);

/// The search for an offset to move frames by, in running times of the reference.
#[derive(Debug, Default)]
struct Search {
    /// The first pair of it.
    begun: Option<ClockTime>,
    /// The first pair whose score counted though nothing was found.
    given_up: Option<ClockTime>,
}

/// An offset that was found.
pub struct Found {
    /// The event to be posted.
    pub event: EventMessage,
    /// Running time of the first reference frame that was paired by another offset though this one was right.
    pub wrong_since: Option<ClockTime>,
}

/// The offset of one distorted stream.
#[derive(Default)]
pub struct Alignment {
    align: Align,
    aligner: Option<Aligner>,
    /// The settings of the aligner: the range in frames, and the duration of a frame in nanoseconds.
    aligned: (u32, u64),
    /// Nanoseconds by which `align=auto` moves the frames.
    correction: i64,
    search: Search,
    /// The event that the pictures are of another programme is raised.
    is_other: bool,
}

impl Alignment {
    /// Takes the settings of a new step, in which a reference frame lasts `frame` nanoseconds.
    pub fn configure(&mut self, align: Align, range: u32, frame: u64) {
        let before = std::mem::replace(&mut self.align, align);
        if align == Align::Off {
            self.aligner = None;
        } else if self.aligner.is_none()
            || self.aligned.0 != range
            || !alike(running(self.aligned.1), running(frame))
        {
            self.aligner = Some(Aligner::new(range, frame));
            self.aligned = (range, frame);
        }
        if align != before {
            self.search = Search::default();
            // An offset that was only reported so far counts now.
            let found = self.estimate().filter(|_| align == Align::Auto);
            self.correction = found.map_or(0, |estimate| estimate.offset.saturating_neg());
        }
    }

    /// Returns the nanoseconds by which frames are moved.
    pub fn correction(&self) -> i64 {
        self.correction
    }

    /// Returns true if thumbnails of this stream's frames and of the reference's are needed.
    pub fn wants_thumbnails(&self) -> bool {
        self.aligner.is_some()
    }

    /// Returns true if frames of the stream are moved by the offset that is found (`align=auto`).
    pub fn is_moved(&self) -> bool {
        self.align == Align::Auto
    }

    /// Takes the running time of a pair. Returns true if frames are to be moved by an offset that is not known yet: then the
    /// pair may be wrong, and its score does not count.
    pub fn is_provisional(&mut self, at: ClockTime) -> bool {
        if !self.is_moved() || self.aligner.as_ref().is_some_and(Aligner::has_found) {
            self.search = Search::default();
            return false;
        }
        // Time that steps back is a new beginning.
        let begun = self.search.begun.filter(|begun| *begun <= at).unwrap_or(at);
        let given_up = (at - begun >= SEARCH).then(|| self.search.given_up.unwrap_or(at));
        self.search = Search { begun: Some(begun), given_up };
        given_up.is_none()
    }

    /// Returns the event for a search that was given up at this pair.
    pub fn gave_up(&self, at: ClockTime) -> Option<EventMessage> {
        (self.search.given_up == Some(at)).then(|| EventMessage {
            event: Event::Alignment,
            state: EventState::Info,
            running_time: Some(at),
            value: self.aligner.as_ref().and_then(Aligner::guess).map(|guess| guess.confidence),
            reason: Some(format!(
                "no offset was found in {} s, so scores count as frames are paired now; a still picture has none to be \
                 found, and one beyond align-range is not",
                SEARCH.seconds()
            )),
            ..EventMessage::default()
        })
    }

    /// Shows the next reference frame to the search. Returns what it has found, if that is news.
    pub fn push_reference(&mut self, at: ClockTime, thumbnail: &Thumbnail) -> Option<Found> {
        let estimate = self.aligner.as_mut()?.push_reference(at.nseconds(), thumbnail)?;
        Some(self.found(at, estimate))
    }

    /// Shows the next distorted frame to the search, with its time before it was moved. Returns what it has found, if that is
    /// news.
    pub fn push_distorted(&mut self, unmoved: ClockTime, thumbnail: &Thumbnail) -> Option<Found> {
        let estimate = self.aligner.as_mut()?.push_distorted(unmoved.nseconds(), thumbnail)?;
        let at = unmoved.nseconds().saturating_add_signed(self.correction);
        Some(self.found(running(at), estimate))
    }

    /// Returns the running time of a distorted frame before it was moved.
    pub fn unmoved(&self, at: ClockTime) -> ClockTime {
        moved(at, self.correction.saturating_neg())
    }

    fn found(&mut self, at: ClockTime, estimate: Estimate) -> Found {
        let mut wrong_since = None;
        if self.is_moved() {
            // Distorted frames of that time were paired with reference frames of this one.
            let paired = |since: u64| moved(running(since), self.correction);
            let moved = estimate.offset.saturating_add(self.correction).unsigned_abs() > self.aligned.1 / 2;
            let given_up = std::mem::take(&mut self.search).given_up.filter(|_| moved);
            wrong_since = estimate.since.map(paired).or(given_up);
            self.correction = estimate.offset.saturating_neg();
        }
        let event = EventMessage {
            event: Event::Alignment,
            state: EventState::Info,
            running_time: Some(at),
            value: Some(estimate.confidence),
            offset: Some(estimate.offset),
            ..EventMessage::default()
        };
        Found { event, wrong_since }
    }

    /// Returns the event that the pictures are of another programme, or are not any more.
    pub fn programme(&mut self, at: ClockTime) -> Option<EventMessage> {
        let unrelated = self.aligner.as_ref().and_then(Aligner::unrelated);
        let decided = self.aligner.as_ref().is_none_or(Aligner::knows_kinship);
        if !decided || unrelated.is_some() == std::mem::replace(&mut self.is_other, unrelated.is_some()) {
            return None;
        }
        let frames = self.aligned.0;
        Some(EventMessage {
            event: Event::OtherProgramme,
            state: if unrelated.is_some() { EventState::Raised } else { EventState::Cleared },
            running_time: Some(at),
            value: unrelated,
            threshold: unrelated.and(Some(UNRELATED.into())),
            reason: unrelated.map(|_| {
                format!("the pictures match those of the reference at no offset of up to {frames} frames")
            }),
            ..EventMessage::default()
        })
    }

    /// Returns true if the pictures are of another programme.
    pub fn is_other_programme(&self) -> bool {
        self.is_other
    }

    /// Returns the offset that was found, and how sure it is.
    pub fn estimate(&self) -> Option<Estimate> {
        self.aligner.as_ref()?.estimate()
    }

    /// Begins the search anew: frames to come have nothing to do with those before.
    pub fn restart(&mut self) {
        self.search = Search::default();
        self.aligner.iter_mut().for_each(Aligner::restart);
    }
}
