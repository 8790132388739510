// SPDX-License-Identifier: MPL-2.0

//! The steps of the streaming task: what is to be done with the frames at the heads of the pads, and doing it.

use std::sync::Arc;
use std::time::Instant;

use gst::ClockTime;
use gst_base::prelude::*;
use gst_video::VideoInfo;
use watch::counts::Counts;
use watch::thumbnail::Thumbnail;

use super::CAT;
use super::action::{Action, Actions};
use super::alignment::Found;
use super::caps;
use super::downstream::{Compared, Damage, Delayed, Heat, Outcome, Pair, Stamp};
use super::error::Error;
use super::heads::Clock;
use super::input::{Input, Next};
use super::overload::Cause;
use super::rendition::Shown;
use super::report::event::{Event, EventMessage, EventState};
use super::report::message::ScoreState;
use super::schedule::{Step, decide};
use super::settings::{MissingFrame, Output, Pairing};
use super::state::{DISPLAYED, State};
use super::worker::Frame;

/// A step, and for which renditions it was decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub step: Step,
    generation: u64,
}

/// A reference frame that was taken.
struct Taken {
    stamp: Stamp,
    /// The frame was too late for its pairs to be scored.
    late: bool,
    /// Frames that are missing beside it are not the fault of their stream.
    excused: bool,
}

/// Pictures that a step is about, in small.
#[derive(Default)]
pub struct Seen {
    pub reference: Option<Thumbnail>,
    /// Thumbnails of distorted frames, each with the number of its rendition.
    pub distorted: Vec<(u64, Thumbnail)>,
}

/// Pictures that a step is about: buffers and the format of their frames.
#[derive(Default)]
pub struct ToSee {
    pub reference: Option<(gst::Buffer, Arc<VideoInfo>)>,
    pub distorted: Vec<(u64, gst::Buffer, Arc<VideoInfo>)>,
}

impl State {
    /// Does without the frames behind the heads for a while: they did not come.
    pub fn stop_looking(&mut self) {
        self.heads.stop_looking();
    }

    /// Returns true if a frame may be handed over that decides something though the base class does not hear of it: one behind
    /// a doubtful head, while others are empty.
    pub fn looks_behind(&self) -> bool {
        self.heads.is_doubtful(&self.streams) && !self.streams.inputs().any(Input::has_serialized)
    }

    /// Returns true if the base class has something at all pads that it waits for, so that it does not wait before it calls
    /// again. It handles events and queries between calls only, also those of pads that it does not wait for.
    pub fn is_full(&self) -> bool {
        let has = |input: &Input| input.pad.has_buffer() || input.pad.is_eos();
        let ignored = |input: &Input| {
            self.tunables.ignore_inactive_pads && input.pad.is_inactive() && !input.has_serialized()
        };
        self.streams.inputs().all(|input| has(input) || self.heads.clock.is_live && ignored(input))
    }

    /// Decides what to do with the frames at hand.
    pub fn decide(&mut self, clock: Clock, actions: &mut Actions) -> Result<Decision, Error> {
        self.heads.clock = clock;
        // A new size comes before everything that looks at the frame.
        if self.streams.resized().is_none() {
            self.heads.tidy(&mut self.streams, &mut self.downstream, actions)?;
        }
        // Buffers that have come since then are looked at in the next step.
        let step = self.next_step(clock.deadline).unwrap_or(Step::Wait(None));
        gst::trace!(CAT, "{step:?} at {:?}", clock.deadline);
        Ok(Decision { step, generation: self.streams.generation })
    }

    /// Returns what is to be done next; `None` if the heads are to be tidied first.
    fn next_step(&self, deadline: Option<ClockTime>) -> Option<Step> {
        if let Some(resized) = self.streams.resized() {
            return Some(Step::Resize(resized));
        }
        let watched = self.tunables.watch.window > 0 || self.tally.has_metrics();
        let leaving = self.downstream.next_time();
        let view = self.heads.view(&self.streams, &self.tunables, leaving, watched)?;
        Some(decide(&view, deadline))
    }

    /// Returns the running time at which the element has to be woken up if nothing comes before.
    pub fn wake_up(&self) -> Option<ClockTime> {
        match self.next_step(None) {
            Some(Step::Wait(until)) => until,
            _ => Some(ClockTime::ZERO),
        }
    }

    /// Returns true if there is something to do before the clock says so.
    pub fn has_work(&self) -> bool {
        self.failed
            || self.posting == 0 && self.downstream.can_leave(None)
            || !matches!(self.next_step(None), Some(Step::Wait(_)))
    }

    /// Returns the pictures that a step is about, where thumbnails are needed.
    pub fn to_see(&self, decision: &Decision) -> ToSee {
        let mut see = ToSee::default();
        if decision.generation != self.streams.generation {
            return see;
        }
        let head = |input: &Input| input.pad.peek_buffer().zip(input.stored.clone());
        let wants = |i: usize| {
            self.streams.renditions[i].is_active() && self.streams.renditions[i].wants_thumbnails()
        };
        let distorted = |i: usize| {
            let rendition = &self.streams.renditions[i];
            head(&rendition.input).map(|(buffer, info)| (rendition.number, buffer, info))
        };
        match &decision.step {
            Step::Take(paired) => {
                if (0..paired.len()).any(wants) {
                    see.reference = head(&self.streams.reference.input);
                }
                see.distorted
                    .extend((0..paired.len()).filter(|i| paired[*i] && wants(*i)).filter_map(distorted));
            }
            Step::Drop(i) if wants(*i) => see.distorted.extend(distorted(*i)),
            _ => {}
        }
        see
    }

    /// Does what was decided, unless something else is to be done by now. Before the end and before silence, all runs
    /// have been [completed](State::complete) and nothing is in flight.
    pub fn perform(
        &mut self,
        decision: &Decision,
        seen: &Seen,
        clock: Clock,
        actions: &mut Actions,
    ) -> Result<(), Error> {
        if self.decide(clock, actions)? != *decision {
            return Ok(());
        }
        match &decision.step {
            Step::Take(paired) => self.take(paired, seen, clock, actions)?,
            Step::Drop(i) => self.drop_head(*i, seen, clock, actions),
            Step::Skip(which) => self.skip(*which, clock, actions)?,
            Step::Resize(rendition) => self.resize(*rendition, actions)?,
            Step::Silence(now) => self.silence(*now, clock, actions),
            Step::Wait(_) => {}
            Step::Finished => {
                self.streams.check_last_caps(actions)?;
                let at = self.reached();
                for rendition in &mut self.streams.renditions {
                    let mut rest: Vec<_> = std::iter::from_fn(|| rendition.drop_head(at)).collect();
                    rest.extend(rendition.shown.take().map(|shown| shown.buffer));
                    actions.push(Action::Release(rest));
                }
                self.display.take();
                self.end_section("eos", actions);
                self.finish_all_results(actions);
            }
        }
        self.leave(clock.deadline, actions);
        if let Some(now) = clock.deadline.or(self.streams.reference.last_time) {
            self.advance(now, actions);
        }
        Ok(())
    }

    /// Drops the head of a rendition.
    fn drop_head(&mut self, i: usize, seen: &Seen, clock: Clock, actions: &mut Actions) {
        let rendition = &mut self.streams.renditions[i];
        let mut dropped = vec![];
        if let Ok(Next::Item(item)) = rendition.input.next(rendition.offset(), &mut dropped) {
            if item.is_gap || !rendition.is_active() {
                dropped.extend(rendition.input.take());
            } else {
                gst::log!(CAT, obj = rendition.pad, "frame {} has no reference frame", item.at);
                self.miss_reference(item.at, clock, actions);
                let unmoved = self.streams.renditions[i].alignment.unmoved(item.at);
                self.look_at_distorted(i, item.at, unmoved, seen, actions);
                let at = self.streams.reference.last_time.unwrap_or(item.at);
                let rendition = &mut self.streams.renditions[i];
                rendition.input.cadence.push(item.at);
                dropped.extend(rendition.drop_head(at));
            }
        }
        actions.push(Action::Release(dropped));
    }

    /// Takes note of a distorted frame without a reference frame.
    fn miss_reference(&mut self, at: ClockTime, clock: Clock, actions: &mut Actions) {
        let excused = self.excuses(at, clock);
        let reference = &mut self.streams.reference;
        reference.heard(at, reference.input.cadence.typical());
        if reference.input.pad.has_buffer() {
            return;
        }
        let event = reference.seen(at, false, excused);
        let is_excused = reference.is_excused();
        actions.extend(event.map(|event| Action::Post(event.to_structure())));
        if is_excused {
            self.note_overload(at, Some(Cause::Machine), actions);
        }
    }

    /// Takes a frame whose timestamp is wild. It has no partner, and no time runs by it. Where a clock does, the frame does
    /// not leave either: downstream would wait for its time to come.
    fn skip(&mut self, which: Option<usize>, clock: Clock, actions: &mut Actions) -> Result<(), Error> {
        let now = self.reached();
        if let Some(i) = which {
            let rendition = &mut self.streams.renditions[i];
            let dist_unmatched = u64::from(rendition.is_active());
            let dropped = rendition.input.skip();
            rendition.count(now, Counts { dist_unmatched, ..Default::default() });
            actions.push(Action::Release(dropped.into_iter().collect()));
            return Ok(());
        }
        let Some(buffer) = self.streams.reference.input.pad.peek_buffer() else { return Ok(()) };
        let Some(stamp) = self.streams.reference.stamp(&buffer, true)? else { return Ok(()) };
        let Some(reference) = self.streams.reference.input.skip() else { return Ok(()) };
        let mut compared = vec![];
        for rendition in self.streams.renditions.iter_mut().filter(|rendition| rendition.is_active()) {
            rendition.record.stamped(&stamp);
            rendition.count(now, Counts { unpaired: 1, ..Default::default() });
            compared.push(rendition.compared(ScoreState::Unpaired.into()));
        }
        self.submit(&stamp, &reference, vec![]);
        if clock.is_live {
            self.downstream.push(Delayed { stamp, compared, buffer: None, heat: None });
            actions.push(Action::Release(vec![reference]));
        } else {
            self.send_on(stamp, compared, reference, None, Damage::None);
        }
        Ok(())
    }

    /// Puts a reference frame, or what leaves in its place, in line to leave. `displayed`: the distorted frame of `dist_sink`.
    fn send_on(
        &mut self,
        stamp: Stamp,
        compared: Vec<Compared>,
        reference: gst::Buffer,
        displayed: Option<Shown>,
        damage: Damage,
    ) {
        let buffer = match self.output {
            Output::Distorted => {
                // Distorted frames leave as often as the reference's come.
                let fps = self.reference_info().map(|info| info.fps());
                let frame = fps.and_then(|fps| self.display.frame(displayed, &reference, fps));
                frame.map(|(buffer, caps)| {
                    caps.into_iter().for_each(|caps| self.downstream.set_caps(caps));
                    buffer
                })
            }
            Output::Reference | Output::Heatmap => Some(reference),
        };
        let info = self.streams.reference.input.stored.clone().filter(|_| self.output == Output::Heatmap);
        let heat = info.map(|info| Heat { info, damage });
        self.downstream.push(Delayed { stamp, compared, buffer, heat });
    }

    /// Hands a reference frame to the worker, with its partners.
    fn submit(&mut self, stamp: &Stamp, reference: &gst::Buffer, distorted: Vec<(u64, Frame)>) {
        let Some(info) = self.streams.reference.input.stored.clone() else { return };
        let reference = Frame { buffer: reference.clone(), info };
        self.work.submit(stamp.index, stamp.running_time, reference, distorted);
    }

    /// Reports that nothing has come for a while. Scores that waited for the next pair have come.
    fn silence(&mut self, now: ClockTime, clock: Clock, actions: &mut Actions) {
        let excused = self.excuses(now, clock);
        let (since, event) = self.streams.reference.silence(now, excused);
        actions.extend(event.map(|event| Action::Post(event.to_structure())));
        for rendition in self.streams.renditions.iter_mut().filter(|rendition| rendition.is_active()) {
            let event = rendition.health.silence(since, now, excused);
            actions.extend(event.map(|event| Action::Post(rendition.event(event))));
        }
        if self.streams.reference.is_excused() {
            self.note_overload(now, Some(Cause::Machine), actions);
        }
    }

    /// Frames that are missing now are not the fault of their streams.
    fn excuses(&self, now: ClockTime, clock: Clock) -> bool {
        clock.starved || self.overload.is_recent(now)
    }

    /// Takes a frame, and why the machine had no time for it, if so.
    fn note_overload(&mut self, at: ClockTime, cause: Option<Cause>, actions: &mut Actions) {
        // Downstream, which has been reported, may be the cause of what is missing.
        let cause = cause.filter(|cause| *cause != Cause::Machine || !self.overload.is_blocked(at));
        let events = self.overload.frame(at, cause);
        actions.extend(events.into_iter().map(|event| self.overload_event(event)));
    }

    /// Takes the reference head, and compares it with the heads of the renditions that are paired with it.
    fn take(
        &mut self,
        paired: &[bool],
        seen: &Seen,
        clock: Clock,
        actions: &mut Actions,
    ) -> Result<(), Error> {
        let reached = self.reached();
        let paired = self.streams.suiting(paired, reached, actions)?;
        self.prepare(&paired, clock)?;
        let Some((taken, reference)) = self.take_reference(clock, actions)? else { return Ok(()) };
        let at = taken.stamp.running_time;
        self.drop_idle(at, actions);
        let renditions = 0..self.streams.renditions.len();
        let active: Vec<bool> = renditions.clone().map(|i| self.streams.renditions[i].is_active()).collect();
        let (mut compared, mut submitted, mut shown, mut displayed) = (vec![], vec![], vec![], None);
        for i in renditions.clone() {
            if !active[i] {
                let rendition = &self.streams.renditions[i];
                if rendition.is_failed() && rendition.settings.enabled && !rendition.leaving {
                    compared.push(rendition.compared(ScoreState::Failed.into()));
                }
                continue;
            }
            let found = if paired[i] { self.show(i) } else { self.repeated(i) };
            if i == DISPLAYED && self.output == Output::Distorted {
                displayed = found.clone();
            }
            if let (Some(Shown { running_time, .. }), true) = (&found, paired[i]) {
                shown.push((i, *running_time, self.streams.renditions[i].alignment.unmoved(*running_time)));
            }
            compared.push(self.compare(i, found, paired[i], &taken, &mut submitted, actions)?);
        }
        gst::log!(CAT, "frame {} at {at}: {} compared", taken.stamp.index, submitted.len());
        let first = self.streams.renditions.get(DISPLAYED).map(|rendition| rendition.number);
        let is_pending = submitted.iter().any(|(number, _)| Some(*number) == first);
        let damage = if is_pending { Damage::Pending } else { Damage::None };
        self.submit(&taken.stamp, &reference, submitted);
        let left_out = taken.late && paired.contains(&true);
        if left_out {
            self.left_out(&taken.stamp, clock, actions);
        }
        let missed = renditions.clone().any(|i| active[i] && self.streams.renditions[i].health.is_excused());
        let cause = left_out.then(|| self.cause_of_lateness(&taken.stamp));
        self.note_overload(at, cause.or(missed.then_some(Cause::Machine)), actions);
        self.send_on(taken.stamp, compared, reference, displayed, damage);
        // An offset that is found now counts from the next frame on.
        if let Some(thumbnail) = &seen.reference {
            for i in renditions.filter(|i| active[*i]) {
                let found = self.streams.renditions[i].alignment.push_reference(at, thumbnail);
                self.aligned(i, found, actions);
            }
        }
        for (i, at, unmoved) in shown {
            self.look_at_distorted(i, at, unmoved, seen, actions);
        }
        Ok(())
    }

    /// Takes the reference head, with what follows from its time. Returns nothing if it is being flushed.
    fn take_reference(
        &mut self,
        clock: Clock,
        actions: &mut Actions,
    ) -> Result<Option<(Taken, gst::Buffer)>, Error> {
        let Some(buffer) = self.streams.reference.input.pad.peek_buffer() else { return Ok(None) };
        let Ok(Next::Item(head)) = self.streams.reference.input.next(0, &mut vec![]) else { return Ok(None) };
        let Some(stamp) = self.streams.reference.stamp(&buffer, false)? else { return Ok(None) };
        let at = stamp.running_time;
        if self.heads.pairing != Pairing::Index && self.streams.reference.input.cadence.is_gap(at) {
            gst::debug!(CAT, "reference frames are missing before frame {} at {at}", stamp.index);
            self.work.jobs.gap();
        }
        self.streams.reference.note(&head, self.heads.pairing);
        self.heads.taken();
        self.announce_latency(stamp.lasts, actions);
        let late = self.is_late(&stamp, clock);
        let excused = late || self.excuses(at, clock);
        let event = self.streams.reference.seen(at, true, excused);
        actions.extend(event.map(|event| Action::Post(event.to_structure())));
        self.streams.reference.heard(at, stamp.lasts);
        let reference = self.streams.reference.input.take();
        Ok(reference.map(|reference| (Taken { stamp, late, excused }, reference)))
    }

    /// Compares a reference frame that was taken with the distorted frame that was found for it, which joins `submitted` if it
    /// is to be scored. `is_paired`: it was not used before.
    fn compare(
        &mut self,
        i: usize,
        found: Option<Shown>,
        is_paired: bool,
        taken: &Taken,
        submitted: &mut Vec<(u64, Frame)>,
        actions: &mut Actions,
    ) -> Result<Compared, Error> {
        let Taken { stamp, late, excused } = taken;
        let at = stamp.running_time;
        let rendition = &mut self.streams.renditions[i];
        rendition.record.stamped(stamp);
        for event in rendition.health.frame(at, is_paired, *excused) {
            actions.push(Action::Post(rendition.event(event)));
        }
        rendition.absent = rendition.health.is_dropped_out();
        let counts = Counts {
            unpaired: u64::from(found.is_none()),
            skipped: u64::from(found.is_some() && *late),
            repeated: u64::from(found.is_some() && !is_paired),
            ..Default::default()
        };
        rendition.count(at, counts);
        let frame = found.as_ref().filter(|_| self.attach_frames).map(Shown::sample);
        let outcome = match found {
            None if self.tunables.missing_frame == MissingFrame::Error => {
                return Err(Error::Missing { pad: rendition.input.name(), at });
            }
            None => ScoreState::Unpaired.into(),
            Some(_) if *late => ScoreState::Skipped.into(),
            Some(Shown { buffer, running_time, .. }) => {
                self.scores.begin_results(rendition, self.streams.reference.input.info.as_deref());
                let stored = rendition.input.stored.clone();
                submitted.extend(stored.map(|info| (rendition.number, Frame { buffer, info })));
                let provisional = rendition.alignment.is_provisional(at);
                actions.extend(
                    rendition.alignment.gave_up(at).map(|event| Action::Post(rendition.event(event))),
                );
                Outcome::Pending(Pair {
                    since: Instant::now(),
                    dist_running_time: running_time,
                    offset: rendition.offset(),
                    repeated: counts.repeated > 0,
                    provisional,
                })
            }
        };
        Ok(Compared { frame, ..rendition.compared(outcome) })
    }

    /// Returns the last distorted frame, where it is to stand for one that is missing.
    fn repeated(&self, i: usize) -> Option<Shown> {
        let repeats = self.tunables.missing_frame == MissingFrame::Repeat;
        self.streams.renditions[i].shown.clone().filter(|_| repeats)
    }

    /// Sets the session up for the format of the reference and for all renditions, those too that may come later, unless it is
    /// set up for the pairs at hand: it has to forget all history for that.
    fn prepare(&mut self, paired: &[bool], clock: Clock) -> Result<(), Error> {
        let partners: Vec<usize> = (0..paired.len())
            .filter(|i| self.streams.renditions[*i].is_active())
            .filter(|i| paired[*i] || self.repeated(*i).is_some())
            .collect();
        let is_prepared = |i: &usize| self.streams.renditions[*i].prepared.is_some();
        if partners.is_empty() || self.work.prepared && partners.iter().all(is_prepared) {
            return Ok(());
        }
        let input = &self.streams.reference.input;
        let Some(head) = input.pad.peek_buffer() else { return Ok(()) };
        let (Some(info), Some(stored), Some(caps)) =
            (input.info.clone(), input.stored.clone(), input.caps.clone())
        else {
            return Err(Error::NoCaps(input.name()));
        };
        // Scores of pairs before are those of an unbroken row.
        let (index, at) = (self.streams.reference.next_index(), self.reached());
        self.work.submit(index, at, Frame { buffer: head.clone(), info: stored }, vec![]);
        let heads = partners.iter().filter_map(|i| self.streams.renditions[*i].input.pad.peek_buffer());
        let heads = std::iter::once(head).chain(heads).collect();
        let patient = !clock.is_live && !self.may_skip(clock);
        let renditions = self.streams.prepare();
        if !self.work.prepare(&info, caps::video(&caps, &info), renditions, heads, patient) {
            return Err(Error::Caps { pad: self.streams.reference.input.name(), caps });
        }
        Ok(())
    }

    /// Drops the frames of idle renditions up to there: in step with the reference, as the base class waits for frames
    /// on all pads.
    fn drop_idle(&mut self, at: ClockTime, actions: &mut Actions) {
        let mut dropped = vec![];
        for rendition in self.streams.renditions.iter_mut().filter(|rendition| !rendition.is_active()) {
            let offset = rendition.offset();
            while let Ok(Next::Item(item)) = rendition.input.next(offset, &mut dropped)
                && item.at <= at
            {
                dropped.extend(rendition.input.take());
            }
        }
        actions.push(Action::Release(dropped));
    }

    /// Takes the distorted frame at the head of a rendition.
    fn show(&mut self, i: usize) -> Option<Shown> {
        let rendition = &mut self.streams.renditions[i];
        let mut dropped = vec![];
        let Ok(Next::Item(item)) = rendition.input.next(rendition.offset(), &mut dropped) else {
            return None;
        };
        let buffer = rendition.input.take()?;
        rendition.input.cadence.push(item.at);
        let shown = Shown { buffer, caps: rendition.input.caps.clone(), running_time: item.at };
        rendition.shown = (self.tunables.missing_frame == MissingFrame::Repeat).then(|| shown.clone());
        Some(shown)
    }

    /// Shows a distorted frame, and the reference frame it is paired with, to what looks at pictures. `unmoved`: when the
    /// frame was before it was moved by the offset that it was paired with.
    fn look_at_distorted(
        &mut self,
        i: usize,
        at: ClockTime,
        unmoved: ClockTime,
        seen: &Seen,
        actions: &mut Actions,
    ) {
        let rendition = &mut self.streams.renditions[i];
        let programme = rendition.alignment.programme(at);
        actions.extend(programme.map(|event| Action::Post(rendition.event(event))));
        let Some((_, thumbnail)) = seen.distorted.iter().find(|(number, _)| *number == rendition.number)
        else {
            return;
        };
        if let Some(reference) = &seen.reference {
            for event in rendition.health.pictures(at, reference, thumbnail) {
                actions.push(Action::Post(rendition.event(event)));
            }
        }
        let found = rendition.alignment.push_distorted(unmoved, thumbnail);
        self.aligned(i, found, actions);
    }

    /// Reports an offset that was found. If frames are moved by it, others are paired from now on, and those that were
    /// paired wrongly are named.
    fn aligned(&mut self, i: usize, found: Option<Found>, actions: &mut Actions) {
        let Some(Found { event, wrong_since }) = found else { return };
        let rendition = &self.streams.renditions[i];
        let offset = event.offset;
        gst::debug!(CAT, obj = rendition.pad, "late by {offset:?} ns");
        actions.push(Action::Post(rendition.event(event)));
        if let (Some(first), Some(last)) = (wrong_since, self.streams.reference.last_time)
            && first <= last
        {
            let mispaired = EventMessage {
                event: Event::Mispaired,
                state: EventState::Info,
                since: Some(first),
                running_time: Some(last),
                offset,
                ..EventMessage::default()
            };
            actions.push(Action::Post(rendition.event(mispaired)));
            self.downstream.doubt(rendition.number, first);
        }
        if rendition.alignment.is_moved() {
            self.announce_latency(None, actions);
        }
    }

    /// Returns true if scoring has to be left out now.
    fn is_late(&self, stamp: &Stamp, clock: Clock) -> bool {
        // The frame before has left by then, if nothing holds things up here.
        let frame = stamp.lasts.unwrap_or(ClockTime::ZERO);
        let overdue = clock.due.is_some_and(|due| stamp.running_time.saturating_add(frame) < due);
        self.may_skip(clock) && (overdue || !self.has_room())
    }

    /// Why a pair came too late to be scored.
    fn cause_of_lateness(&self, stamp: &Stamp) -> Cause {
        let due = stamp.running_time.saturating_add(stamp.lasts.unwrap_or(ClockTime::ZERO));
        if self.has_room() && self.pushing.excuses(due) { Cause::Downstream } else { Cause::Scoring }
    }

    /// Reports pairs that are left out.
    fn left_out(&self, stamp: &Stamp, clock: Clock, actions: &mut Actions) {
        let mut counts = Counts::default();
        self.streams.renditions.iter().for_each(|rendition| counts += rendition.record.counts());
        let late = clock.due.and_then(|due| due.checked_sub(stamp.running_time));
        gst::debug!(CAT, "frame {} is left out, late by {late:?}", stamp.index);
        actions.push(Action::Qos {
            stamp: stamp.clone(),
            late,
            scored: counts.scored,
            skipped: counts.skipped,
        });
    }
}
