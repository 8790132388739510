// SPDX-License-Identifier: MPL-2.0

//! The heads of the sink pads, as the [schedule](super::schedule) is to see them.
//!
//! [`Heads::tidy`] takes away buffers that no decision is about, and reports what is wrong with the heads. [`Heads::view`]
//! only looks, so that the timer and other threads can ask at any time what is to be done.

use gst::ClockTime;
use gst_base::prelude::*;

use super::action::{Action, Actions};
use super::downstream::Downstream;
use super::error::Error;
use super::input::{AHEAD, Doubt, Input, Item, Next, keys, time_code_period};
use super::rendition::Trouble;
use super::schedule::{Behind, Rule, Side, View};
use super::settings::{Pairing, Tunables};
use super::streams::Streams;
use super::upcoming;

/// Distances of frames up to this do not decide which frames are partners, where the distance is not known: no video has
/// frames that are closer than four times that.
const CERTAIN: ClockTime = ClockTime::from_mseconds(1);

/// The times that the clock of a live pipeline gives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    pub is_live: bool,
    /// Time that frames spend on their way through the pipeline.
    pub latency: ClockTime,
    /// Running time of frames that should be leaving right now; `None` where no clock runs.
    pub due: Option<ClockTime>,
    /// Running time up to which waiting is over: frames up to there leave, whatever has become of them. `None` where
    /// nothing is due.
    pub deadline: Option<ClockTime>,
    /// The machine has no computing time left.
    pub starved: bool,
}

impl Clock {
    /// Returns how far ahead of the deadline a head may be without doubt.
    fn margin(&self) -> ClockTime {
        self.latency.saturating_mul(2).saturating_add(AHEAD)
    }

    /// Returns the running time up to which heads can be right, where a clock says what time it is.
    fn horizon(&self) -> Option<ClockTime> {
        Some(self.due?.saturating_add(self.margin()))
    }
}

/// Decides whether to wait for the frames behind the heads, where no clock runs. Where one thread feeds both sides, they do
/// not come before those at the heads are taken. A file that was slow once looks the same: so it is tried again, after twice
/// as many frames each time.
#[derive(Clone, Copy, Debug, Default)]
struct Lookahead {
    /// Reference frames to take without waiting for those behind.
    off_for: u32,
    /// The number that was set the last time.
    last: u32,
}

impl Lookahead {
    /// Most reference frames that are taken without waiting for those behind.
    const LONGEST: u32 = 1024;

    fn was_futile(&mut self) {
        self.last = (2 * self.last).clamp(1, Self::LONGEST);
        self.off_for = self.last;
    }
}

/// The settings by which heads are paired.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    pub pairing: Pairing,
    /// The clock at the last step.
    pub clock: Clock,
    lookahead: Lookahead,
}

impl Heads {
    pub fn new(pairing: Pairing) -> Self {
        Self { pairing, clock: Clock::default(), lookahead: Lookahead::default() }
    }

    /// Does without the frames behind the heads for a while: they did not come.
    pub fn stop_looking(&mut self) {
        self.lookahead.was_futile();
    }

    /// Returns true if no clock runs and a head is far ahead of the frames before, so that the frame behind it decides what
    /// becomes of it, or has just done so.
    pub fn is_doubtful(&self, streams: &Streams) -> bool {
        let doubtful = |input: &Input| {
            let next = input.peek(0).ok().flatten();
            next.is_some_and(|next| input.doubt_of(&next, None, true) != Doubt::None)
        };
        !self.clock.is_live && self.pairing != Pairing::Index && streams.inputs().any(doubtful)
    }

    /// Returns true if frames behind the heads are waited for.
    fn looks(&self) -> bool {
        self.lookahead.off_for == 0
    }

    /// Takes note that a reference frame was taken.
    pub fn taken(&mut self) {
        self.lookahead.off_for = self.lookahead.off_for.saturating_sub(1);
    }

    /// Forgets that frames did not come: those after a flush are others.
    pub fn flush(&mut self) {
        self.lookahead = Lookahead::default();
    }

    /// Takes away gaps of the reference and what cannot be looked at, and reports what is wrong with the heads.
    pub fn tidy(
        &self,
        streams: &mut Streams,
        downstream: &mut Downstream,
        actions: &mut Actions,
    ) -> Result<(), Error> {
        let mut dropped = vec![];
        let input = &mut streams.reference.input;
        let mut reference = input.next(0, &mut dropped)?;
        while let Next::Item(item) = &reference
            && item.is_gap
        {
            if let Some(gap) = input.take() {
                downstream.place_gap(&gap);
                dropped.push(gap);
            }
            reference = input.next(0, &mut dropped)?;
        }
        let doubt = self.doubt_of_reference(input, &reference);
        let jump = input.note_doubt(&reference, doubt, self.clock.is_live);
        actions.extend(jump.map(|jump| streams.event(None, jump)));
        for i in 0..streams.renditions.len() {
            if matches!(reference, Next::Item(_)) {
                streams.meet(i, self.pairing, actions)?;
            }
            let offset = streams.renditions[i].offset();
            match streams.renditions[i].input.next(offset, &mut dropped) {
                Ok(next) => {
                    let input = &mut streams.renditions[i].input;
                    let doubt = self.doubt_of_distorted(input, &next);
                    let jump = input.note_doubt(&next, doubt, self.clock.is_live);
                    actions.extend(jump.map(|jump| streams.event(Some(i), jump)));
                }
                Err(err) => {
                    if streams.renditions[i].is_active() {
                        streams.fail(i, Trouble::Stream, err, actions)?;
                    }
                    // Without times they are in step with nothing.
                    let input = &mut streams.renditions[i].input;
                    dropped.extend(std::iter::from_fn(|| input.pop()));
                }
            }
        }
        if !dropped.is_empty() {
            actions.push(Action::Release(dropped));
        }
        Ok(())
    }

    /// Returns what stands at the heads, or `None` if they are to be [tidied](Heads::tidy) first. `leaving`: running time of the
    /// oldest frame that has not left. `watched`: windows end even if nothing comes.
    pub fn view(
        &self,
        streams: &Streams,
        tunables: &Tunables,
        leaving: Option<ClockTime>,
        watched: bool,
    ) -> Option<View> {
        let is_live = self.clock.is_live;
        let ignore = tunables.ignore_inactive_pads;
        let input = &streams.reference.input;
        let reference = input.peek(0).ok()??;
        let doubt = self.doubt_of_reference(input, &reference);
        let head = if let Next::Item(item) = &reference { Some(item) } else { None };
        if head.is_some_and(|head| head.is_gap) || input.is_news(&reference, doubt, is_live) {
            return None;
        }
        let behind = head.and_then(|head| self.behind(input, head));
        let distance = head.and_then(|head| {
            let behind = if let Some(upcoming::Next::Frame(behind)) = &behind { Some(behind) } else { None };
            streams.reference.distance(head, behind)
        });
        let side = |i| self.side(streams, i, head, behind.as_ref(), distance, ignore);
        Some(View {
            reference: reference.head(None, doubt, self.clock.margin()),
            reference_ignored: ignore && is_live && input.pad.is_inactive(),
            sides: (0..streams.renditions.len()).map(side).collect::<Option<_>>()?,
            live: is_live,
            rule: self.rule(tunables, head, distance),
            leaving,
            // After a push that was blocked for long, the next frame takes a moment to come to the head: that is no silence.
            beat: streams
                .reference
                .beat(watched.then_some(tunables.watch.window_interval))
                .filter(|_| !input.is_coming(&reference)),
        })
    }

    /// Returns when frames belong together. `distance`: how far apart the frames of the reference are, where that is known.
    fn rule(&self, tunables: &Tunables, head: Option<&Item>, distance: Option<ClockTime>) -> Rule {
        if self.pairing == Pairing::Index {
            return Rule { tolerance: Some(0), period: None };
        }
        let tolerance = tunables.tolerance().or(distance.map(|distance| distance / 2));
        let head = head.filter(|_| self.pairing == Pairing::Timecode);
        Rule {
            tolerance: tolerance.map(ClockTime::nseconds),
            period: head.and_then(|head| time_code_period(&head.buffer)),
        }
    }

    /// Returns a rendition as the schedule sees it, or `None` if its head is to be tidied first.
    fn side(
        &self,
        streams: &Streams,
        i: usize,
        head: Option<&Item>,
        behind: Option<&upcoming::Next<Item>>,
        distance: Option<ClockTime>,
        ignore_inactive: bool,
    ) -> Option<Side> {
        let rendition = &streams.renditions[i];
        let input = &rendition.input;
        let next = input.peek(rendition.offset()).ok()??;
        let doubt = self.doubt_of_distorted(input, &next);
        if input.is_news(&next, doubt, self.clock.is_live) {
            return None;
        }
        let margin = self.clock.margin();
        let mut side = Side {
            role: rendition.role(ignore_inactive),
            head: next.head(None, doubt, margin),
            behind: Behind::Nothing,
            reference_key: None,
            reference_before: None,
            reference_behind: Behind::Nothing,
            certain: self.certain(input, distance).nseconds(),
        };
        let (Some(reference), Next::Item(distorted)) = (head, &next) else { return Some(side) };
        let [of_reference, of_distorted] = keys(self.pairing, reference, distorted);
        side.head = next.head(of_distorted, doubt, margin);
        side.reference_key = of_reference;
        if self.pairing != Pairing::Index {
            let own = self.behind(input, distorted);
            side.behind = key_behind(distorted, own.as_ref(), |own| keys(self.pairing, reference, own)[1]);
            side.reference_behind =
                key_behind(reference, behind, |behind| keys(self.pairing, behind, distorted)[0]);
            side.reference_before = streams.reference.last_key;
        }
        Some(side)
    }

    /// Returns whether the timestamp of the reference head can be right. Frames that are paired by their number are in order
    /// whatever their timestamps say.
    fn doubt_of_reference(&self, input: &Input, next: &Next) -> Doubt {
        match self.pairing {
            Pairing::Index if !self.clock.is_live => Doubt::None,
            _ => input.doubt_of(next, self.clock.horizon(), self.looks()),
        }
    }

    fn doubt_of_distorted(&self, input: &Input, next: &Next) -> Doubt {
        match self.pairing {
            Pairing::Index => Doubt::None,
            _ => input.doubt_of(next, self.clock.horizon(), self.looks()),
        }
    }

    /// Returns by how much partners may differ whatever comes behind them: by a quarter of the distance that the frames of
    /// either stream have.
    fn certain(&self, distorted: &Input, distance: Option<ClockTime>) -> ClockTime {
        match (self.pairing, distance.zip(distorted.cadence.close())) {
            (Pairing::Index, _) => ClockTime::ZERO,
            (_, Some((distance, own))) => distance.min(own) / 4,
            (_, None) => CERTAIN,
        }
    }

    /// Returns the frame behind a head, unless it is not worth waiting for.
    fn behind(&self, input: &Input, head: &Item) -> Option<upcoming::Next<Item>> {
        input.behind(head).filter(|next| self.looks() || !matches!(next, upcoming::Next::Unknown))
    }
}

/// Returns the key of what comes behind a head.
fn key_behind(
    head: &Item,
    next: Option<&upcoming::Next<Item>>,
    key: impl Fn(&Item) -> Option<i64>,
) -> Behind {
    match next {
        // Its timestamp may be wild.
        Some(upcoming::Next::Frame(next)) if next.at > head.at.saturating_add(AHEAD) => Behind::Nothing,
        Some(upcoming::Next::Frame(next)) => key(next).map_or(Behind::Nothing, Behind::Key),
        Some(upcoming::Next::Unknown) => Behind::Unknown,
        Some(upcoming::Next::Gap(_) | upcoming::Next::Nothing) | None => Behind::Nothing,
    }
}
