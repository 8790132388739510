// SPDX-License-Identifier: MPL-2.0

//! The state of the element between start and stop, behind one mutex.
//!
//! A `State` combines the parts of it: the [streams](super::streams), their [heads](super::heads), the jobs of the
//! [worker](super::work), the [scores](super::scores), and the frames on their way [downstream](super::downstream). It
//! performs the steps of the [schedule](super::schedule), and takes the results of the worker. Nothing here reads pictures,
//! touches a file or a GPU, or calls out of the element. Work outside is collected as [`Action`]s, in order, which are
//! performed once no lock is held.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::session::PairScore;
use gst::prelude::*;
use gst::{ClockTime, Structure};
use gst_base::AggregatorPad;
use gst_base::prelude::*;
use gst_video::VideoInfo;
use watch::prometheus;

use super::CAT;
use super::action::{Action, Actions};
use super::caps;
use super::display::Display;
use super::downstream::{Departure, Downstream};
use super::error::Error;
use super::heads::{Clock, Heads};
use super::heatmap;
use super::input::Input;
use super::memory::device_memory::Kind;
use super::overload::OverloadAlarm;
use super::pads::{HipVmafPad, REFERENCE};
use super::pushing::Pushing;
use super::reference::Reference;
use super::rendition::{Rendition, Rules, Shown, Trouble};
use super::report::event::{Event, EventMessage, EventState};
use super::report::figures::Figures;
use super::report::message::ScoreState;
use super::schedule::Role;
use super::scores::Scores;
use super::settings::{Colorimetry, Output, Overload, Settings, Tunables};
use super::streams::{Streams, readable};
use super::tally::Tally;
use super::time::running;
use super::upcoming::Upcoming;
use super::work::Work;
use super::worker::{Jobs, News, Used};

/// The source pad, in events about downstream.
const SOURCE: &str = "src";

/// The rendition that can be looked at downstream: that of `dist_sink`, which is always there.
pub const DISPLAYED: usize = 0;

/// The element between start and stop.
pub struct State {
    pub attach_meta: bool,
    pub attach_frames: bool,
    pub output: Output,
    /// Settings of the present step.
    pub tunables: Tunables,
    /// Running time at which the element began to play.
    pub begun: ClockTime,
    pub streams: Streams,
    pub heads: Heads,
    pub work: Work,
    pub scores: Scores,
    pub tally: Tally,
    pub downstream: Downstream,
    /// The last distorted frame that left, where the output is the distorted video.
    pub display: Display,
    pub overload: OverloadAlarm,
    pub pushing: Pushing,
    /// Scores are being posted on another thread: frames leave after the messages about them.
    pub posting: u32,
    /// An error of another thread, which ends the run.
    pub trouble: Option<Error>,
    /// An error was reported; nothing more is done.
    pub failed: bool,
}

impl State {
    pub fn new(
        settings: &Settings,
        tunables: Tunables,
        figures: Figures,
        used: Used,
        jobs: Jobs,
        reference: AggregatorPad,
        upcoming: Arc<Upcoming>,
    ) -> Self {
        let plan = figures.plan.clone();
        let rules = Rules {
            scale: settings.scale_method.method(),
            colors: settings.colorimetry == Colorimetry::Strict,
        };
        Self {
            attach_meta: settings.attach_meta,
            attach_frames: settings.attach_frames,
            output: settings.output,
            tunables,
            begun: ClockTime::ZERO,
            streams: Streams::new(Reference::new(reference, upcoming), rules, !plan.models.is_empty()),
            heads: Heads::new(settings.pairing),
            scores: Scores::new(settings, &tunables, figures),
            work: Work::new(plan, jobs, used, settings.follows_input()),
            tally: Tally::new(settings.metrics_filename.as_ref().map(PathBuf::from)),
            downstream: Downstream::new(settings.attach_meta),
            display: Display::default(),
            overload: OverloadAlarm::default(),
            pushing: Pushing::default(),
            posting: 0,
            trouble: None,
            failed: false,
        }
    }

    // Downstream.

    /// The element begins to play.
    pub fn begin(&mut self, now: Option<ClockTime>) {
        self.begun = now.unwrap_or(ClockTime::ZERO);
        self.streams.reference.begin(self.begun);
    }

    /// Returns the running time that the stream has come to: that of the last reference frame; before there is one, what
    /// the clock says, or when the element began to play.
    pub fn reached(&self) -> ClockTime {
        self.streams.reference.last_time.or(self.heads.clock.due).unwrap_or(self.begun)
    }

    /// A frame is about to be pushed.
    pub fn begin_push(&mut self, now: Instant, running: Option<ClockTime>) {
        self.pushing.begin(now, running.filter(|_| self.heads.clock.is_live));
    }

    /// Downstream has taken or refused it; frames of the running time `due` should be leaving now.
    pub fn end_push(&mut self, due: Option<ClockTime>) {
        self.pushing.end(due);
    }

    pub fn is_pushing(&self) -> bool {
        self.pushing.is_open()
    }

    /// Returns true if a push has lasted for too long. `clock`: the running time, and that of frames that should be leaving now.
    /// `configured`: the latency of the pipeline, which may be longer than the element's own.
    pub fn is_stuck(
        &self,
        now: Instant,
        limit: Option<Duration>,
        clock: Option<(ClockTime, ClockTime)>,
        configured: ClockTime,
    ) -> bool {
        let clock = clock.filter(|_| self.heads.clock.is_live);
        let latency = clock.map(|(running, due)| running.saturating_sub(due).max(configured));
        !self.failed && self.pushing.is_stuck(now, limit, clock.map(|(running, _)| running), latency)
    }

    /// While downstream takes nothing, time goes on in a live pipeline all the same. `stuck`: that is to be reported.
    pub fn look_downstream(&mut self, stuck: bool, due: Option<ClockTime>, actions: &mut Actions) {
        let due = due.filter(|_| self.heads.clock.is_live);
        if stuck {
            let at = due.unwrap_or_else(|| self.reached());
            let event = self.overload.stuck(at);
            actions.extend(event.map(|event| self.overload_event(event)));
            // Windows have all scores in time, those too that wait for the next pair, which will come too late to be scored.
            if self.heads.clock.is_live && self.tunables.overload != Overload::Wait {
                self.complete(None, true);
            }
        }
        if let Some(due) = due.filter(|_| self.is_pushing() && !self.failed) {
            self.advance(due, actions);
        }
    }

    /// An alarm of this machine or of downstream.
    pub fn overload_event(&self, event: EventMessage) -> Action {
        let of_source = |event| EventMessage { pad: SOURCE.into(), label: SOURCE.into(), ..event };
        let event = match event.event {
            Event::DownstreamBlocked => of_source(event),
            _ => self.streams.reference.event(event),
        };
        Action::Post(event.to_structure())
    }

    // Queries.

    pub fn used(&self) -> &Used {
        &self.work.used
    }

    pub fn device_name(&self) -> Option<String> {
        self.work.used.gpu.as_ref().map(|gpu| gpu.info().to_string())
    }

    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Returns the reference's size and format, which distorted video has to match.
    pub fn reference_info(&self) -> Option<&Arc<VideoInfo>> {
        self.streams.reference_info()
    }

    /// Returns the kinds of memory that frames can lie in, beside the system's.
    pub fn memories(&self) -> Vec<Kind> {
        self.work.memories()
    }

    /// Returns true if all metrics are defined for R'G'B'.
    pub fn takes_rgb(&self) -> bool {
        self.work.plan.work.takes_rgb()
    }

    /// Returns how many reference frames can be here at once.
    pub fn held(&self) -> u32 {
        self.delay() + self.work.held()
    }

    /// Distorted frames that can be here at once, beside the one that is looked at.
    pub fn held_distorted(&self) -> u32 {
        // The frames that leave, and the last one, which may have to leave again.
        let displayed = if self.output == Output::Distorted { self.delay() + 1 } else { 0 };
        displayed + self.work.used.depth as u32
    }

    /// Returns true if the next pair can be handed to the worker without waiting for one before.
    pub fn has_room(&self) -> bool {
        self.failed || self.work.has_room()
    }

    /// Returns true if the next reference frame can be handed to the worker, with partners or without.
    pub fn has_room_for_all(&self) -> bool {
        self.has_room() && (self.failed || self.work.has_history_room())
    }

    /// Returns true if there is something better to do than to wait for scores.
    pub fn is_busy(&self) -> bool {
        let ready = |input: &Input| input.pad.has_buffer() || input.pad.is_eos();
        self.failed || self.work.is_idle() && self.posting == 0 || self.streams.inputs().all(ready)
    }

    /// Running times, without latency, at which the next frame has to leave, and after which it is too late to score the
    /// reference head.
    pub fn deadlines(&self) -> (Option<ClockTime>, Option<ClockTime>) {
        let input = &self.streams.reference.input;
        let head = || {
            let buffer = input.pad.peek_buffer()?;
            let times = input.times(&buffer).ok()??;
            let lasts = input.duration_of(&buffer).map(|duration| times.pace.running(duration));
            Some(times.running_time?.saturating_add(lasts.unwrap_or(ClockTime::ZERO)))
        };
        (self.downstream.next_time(), head())
    }

    /// Returns true if scoring may be left out for the video to go on.
    pub fn may_skip(&self, clock: Clock) -> bool {
        match self.tunables.overload {
            Overload::Auto => clock.is_live,
            Overload::Wait => false,
            Overload::Skip => true,
        }
    }

    /// Counters and figures since the start of a distorted pad, for its property `stats`.
    pub fn pad_stats(&self, pad: &HipVmafPad) -> Option<Structure> {
        Some(
            self.streams
                .renditions
                .iter()
                .find(|rendition| rendition.pad == *pad)?
                .stats(&self.scores.figures),
        )
    }

    /// Returns counters and figures of `dist_sink`, with those that concern all renditions, for the element's property `stats`.
    pub fn stats(&self) -> Structure {
        let first = self.streams.renditions.first().map(|first| first.stats(&self.scores.figures));
        let mut stats = first.unwrap_or_else(|| Structure::new_empty("stats"));
        stats.set("in-flight", self.downstream.count_pending() as u64);
        self.tally.add_to(&mut stats, &self.tunables.watch);
        if let Some(name) = self.device_name() {
            stats.set("device-name", name);
        }
        stats
    }

    // Pads, caps and segments.

    /// Adds a distorted stream, numbered by the caller.
    pub fn add(&mut self, number: u64, pad: HipVmafPad, upcoming: Arc<Upcoming>) {
        self.streams.add(number, pad, upcoming, &self.tunables.watch);
    }

    /// A distorted stream is about to go: nothing more of it is taken.
    pub fn begin_release(&mut self, pad: &HipVmafPad) {
        if let Some(i) = self.streams.renditions.iter().position(|rendition| rendition.pad == *pad) {
            self.work.jobs.finish(self.streams.renditions[i].number, false);
            self.streams.renditions[i].leaving = true;
            self.streams.generation += 1;
        }
    }

    /// Removes a distorted stream, all of whose scores have come.
    pub fn release(&mut self, pad: &HipVmafPad, actions: &mut Actions) {
        let Some(i) = self.streams.renditions.iter().position(|rendition| rendition.pad == *pad) else {
            return;
        };
        self.end_rendition(i, "released", actions);
        let gone = self.streams.remove(i);
        self.downstream.forget(gone.number);
        self.finish_results(&gone, actions);
    }

    /// Takes new caps of a sink pad. They take effect before the next frame is looked at. Nothing of the
    /// [affected](Streams::affected) renditions is in flight.
    pub fn set_caps(
        &mut self,
        pad: &AggregatorPad,
        caps: &gst::CapsRef,
        actions: &mut Actions,
    ) -> Result<(), Error> {
        gst::info!(CAT, obj = pad, "caps {caps}");
        let info = readable(pad, caps, &self.memories(), self.work.used.name);
        match self.streams.side(pad) {
            None => Ok(()),
            Some(None) => self.set_reference_caps(caps, info?, actions),
            Some(Some(i)) => match info {
                Ok(info) => self.set_distorted_caps(i, caps, info, actions),
                Err(err) => self.streams.fail(i, Trouble::Stream, err, actions),
            },
        }
    }

    fn set_reference_caps(
        &mut self,
        caps: &gst::CapsRef,
        info: VideoInfo,
        actions: &mut Actions,
    ) -> Result<(), Error> {
        let first = self.streams.reference.input.info.is_none();
        let changes = self.streams.reference.input.set_format(caps, info);
        self.streams.reference.input.configure_cadence();
        self.follow_reference(first, changes, actions)?;
        if self.output == Output::Reference {
            self.downstream.set_caps(caps.to_owned());
        }
        let colors = self.streams.reference.input.colors;
        self.streams.warn_of_hdr(colors, REFERENCE.into(), actions);
        if let Some(info) = self.streams.reference.input.stored.clone() {
            self.streams.warn_of_metrics(&self.work.plan.work, &caps::video(caps, &info), actions);
        }
        Ok(())
    }

    /// Goes on with the format that the reference has by now.
    fn follow_reference(&mut self, first: bool, changes: bool, actions: &mut Actions) -> Result<(), Error> {
        if changes {
            self.end_section("caps", actions);
        }
        // The caps of distorted frames leave with the first of them.
        if let Some(info) = self.reference_info().filter(|_| self.output == Output::Heatmap) {
            let caps = heatmap::caps(info)?;
            self.downstream.set_caps(caps);
        }
        self.announce_latency(None, actions);
        if first || changes {
            let memories = self.memories();
            for i in 0..self.streams.renditions.len() {
                self.streams.renegotiate(i, &memories, actions);
                self.streams.retry(i, Trouble::Mismatch, &self.work.jobs, actions)?;
                self.streams.renditions[i].unwarned = true;
            }
        }
        Ok(())
    }

    /// Goes on with the size of the head of a rendition, or else of the reference: where pictures are parts of their frames,
    /// their size may change without new caps. Nothing that this concerns is in flight.
    pub fn resize(&mut self, rendition: Option<usize>, actions: &mut Actions) -> Result<(), Error> {
        let input = self.streams.input(rendition);
        let Some(info) = input.resized() else { return Ok(()) };
        gst::info!(CAT, obj = input.pad, "pictures of {}x{}", info.width(), info.height());
        input.info = Some(info);
        match rendition {
            Some(i) => self.follow_distorted(i, true, actions),
            None => self.follow_reference(false, true, actions),
        }
    }

    /// Takes how the pictures of a stream are to be turned before they are shown, if anything says so.
    pub fn set_orientation(
        &mut self,
        pad: &AggregatorPad,
        orientation: Option<&str>,
        actions: &mut Actions,
    ) -> Result<(), Error> {
        let Some(side) = self.streams.side(pad) else { return Ok(()) };
        let input = self.streams.input(side);
        if input.orientation.as_deref() == orientation {
            return Ok(());
        }
        gst::info!(CAT, obj = pad, "orientation {orientation:?}");
        input.orientation = orientation.map(Into::into);
        for i in side.map_or(0..self.streams.renditions.len(), |i| i..i + 1) {
            self.streams.renditions[i].unwarned = true;
            self.streams.retry(i, Trouble::Mismatch, &self.work.jobs, actions)?;
        }
        Ok(())
    }

    fn set_distorted_caps(
        &mut self,
        i: usize,
        caps: &gst::CapsRef,
        info: VideoInfo,
        actions: &mut Actions,
    ) -> Result<(), Error> {
        let rendition = &mut self.streams.renditions[i];
        rendition.cosited = caps::cosited(caps);
        let changes = rendition.input.set_format(caps, info);
        self.follow_distorted(i, changes, actions)?;
        let input = &self.streams.renditions[i].input;
        let (colors, name) = (input.colors, input.name());
        self.streams.warn_of_hdr(colors, name, actions);
        Ok(())
    }

    /// Goes on with the format that a rendition has by now.
    fn follow_distorted(&mut self, i: usize, changes: bool, actions: &mut Actions) -> Result<(), Error> {
        if changes {
            // The frame cannot be read with the new caps.
            self.streams.renditions[i].shown = None;
            self.end_rendition(i, "caps", actions);
        }
        self.streams.forget_other_scaling(i);
        self.streams.renditions[i].unwarned = true;
        if self.streams.suits(i) {
            self.streams.renditions[i].expect_renegotiation(false);
        } else {
            // Upstream may not know the wanted caps yet, or may have no others.
            self.streams.renegotiate(i, &self.memories(), actions);
        }
        self.streams.retry(i, Trouble::Stream, &self.work.jobs, actions)
    }

    /// Returns the number of frames by which reference frames are delayed.
    pub fn delay(&self) -> u32 {
        match self.output {
            _ if self.attach_meta => self.work.plan.lookahead() as u32 + 1,
            // A heat map only waits for its own frame.
            Output::Heatmap => 1,
            Output::Reference | Output::Distorted => 0,
        }
    }

    /// Says how long frames are held back, should that have changed: until they can carry their scores, and until
    /// distorted frames come that are late by more than their timestamps say. Where the caps do not announce the distance
    /// of frames, the timestamps and `lasts`, how long the last frame does, show it.
    pub fn announce_latency(&mut self, lasts: Option<ClockTime>, actions: &mut Actions) {
        let late = |rendition: &Rendition| rendition.offset().saturating_neg().max(0) as u64;
        let late = self.streams.renditions.iter().map(late).max().unwrap_or(0);
        let announced = self.streams.reference.input.frame_duration().is_some();
        let typical = self.streams.reference.input.cadence.typical();
        let frame = typical.max(lasts.filter(|_| !announced)).unwrap_or(ClockTime::ZERO);
        let latency = frame.saturating_mul(self.delay().into()).saturating_add(running(late));
        if let Some(latency) = self.downstream.set_latency(latency, announced) {
            gst::debug!(CAT, "latency {latency}");
            actions.push(Action::Latency(latency));
        }
    }

    /// Takes an event of the reference that leaves between the frames that it came between.
    pub fn take_event(&mut self, event: gst::Event, actions: &mut Actions) {
        self.downstream.place(event);
        self.leave(None, actions);
    }

    /// New segment of a sink pad.
    pub fn set_segment(&mut self, pad: &AggregatorPad, segment: gst::Segment, seqnum: gst::Seqnum) {
        if *pad == self.streams.reference.input.pad {
            self.streams.reference.input.set_segment(&segment, seqnum);
            self.downstream.set_segment(segment);
        } else if let Some(i) = self.streams.rendition(pad) {
            self.streams.renditions[i].input.set_segment(&segment, seqnum);
        }
    }

    /// Takes note that all streams were flushed. Frames that come now are a new section; those still here will not leave.
    /// Nothing is in flight.
    pub fn flush(&mut self, actions: &mut Actions) {
        self.drop_leaving(actions);
        self.restart(actions);
        self.streams.renditions.iter_mut().for_each(Rendition::restart);
    }

    /// Drops the frames that have not left.
    fn drop_leaving(&mut self, actions: &mut Actions) {
        actions.push(Action::Release(self.downstream.flush()));
        self.display.take();
    }

    /// Begins a section with reference frames whose times have nothing to do with those before. Nothing is in flight.
    fn restart(&mut self, actions: &mut Actions) {
        self.end_section("flush", actions);
        self.tally.flush();
        self.streams.reference.restart();
        self.heads.flush();
        self.streams.renditions.iter_mut().for_each(|rendition| rendition.health.restart());
    }

    /// Takes note that a single stream was flushed. Those of its frames that are still here will not leave. Of the reference,
    /// nothing is in flight.
    pub fn flush_pad(&mut self, pad: &AggregatorPad, actions: &mut Actions) {
        let Some(side) = self.streams.side(pad) else { return };
        // The base class may have kept the frame at the head.
        let input = self.streams.input(side);
        actions.push(Action::Release(std::iter::from_fn(|| input.pop()).collect()));
        // Distorted frames leave at the times of the reference frames that they replace.
        if side.is_none() || self.output == Output::Distorted && side == Some(DISPLAYED) {
            self.drop_leaving(actions);
        }
        match side {
            None => self.restart(actions),
            Some(i) => {
                self.streams.renditions[i].restart();
                self.downstream.forget_pictures(self.streams.renditions[i].number);
            }
        }
    }

    /// Returns the numbers of the renditions whose pairs have to be completed before nothing of a pad's frames is needed;
    /// `None` for the reference, whose frames the next pairs need as well.
    pub fn drained(&self, pad: &AggregatorPad) -> Option<Vec<u64>> {
        let rendition = self.streams.rendition(pad)?;
        let leaves = self.attach_frames || self.output == Output::Distorted && rendition == DISPLAYED;
        Some(self.streams.numbers((!leaves).then_some(rendition)))
    }

    /// Takes the frames of a pad that may be used again: the last one, where missing frames are repeated, and the one that was
    /// displayed last.
    pub fn take_kept(&mut self, pad: &AggregatorPad) -> [Option<Shown>; 2] {
        let Some(i) = self.streams.rendition(pad) else { return [None, None] };
        let displayed = if i == DISPLAYED { self.display.take() } else { None };
        [self.streams.renditions[i].shown.take(), displayed]
    }

    /// Takes copies of the frames that were [taken](State::take_kept).
    pub fn put_kept(&mut self, pad: &AggregatorPad, [shown, displayed]: [Option<Shown>; 2]) {
        if let Some(i) = self.streams.rendition(pad) {
            self.streams.renditions[i].shown = shown;
            self.display.put(displayed);
        }
    }

    /// Starts counting and pooling again.
    pub fn reset_stats(&mut self, actions: &mut Actions) {
        for i in 0..self.streams.renditions.len() {
            self.end_rendition(i, "reset", actions);
            self.streams.renditions[i].record.reset();
        }
        self.tally.reset();
    }

    /// Nothing more is done, but what was handed over is still scored.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// Ends the run at the next occasion.
    pub fn set_trouble(&mut self, err: Error) {
        self.trouble.get_or_insert(err);
    }

    /// Returns the error that ends the run.
    pub fn take_trouble(&mut self) -> Option<Error> {
        self.trouble.take()
    }

    /// Gives up because of an error. The rows that were written are kept.
    pub fn abandon(&self, err: &Error, actions: &mut Actions) {
        self.scores.abandon_results(&self.streams.renditions, err, actions);
        if err.is_device_lost() {
            let running_time = self.streams.reference.last_time;
            let lost = EventMessage { event: Event::DeviceLost, running_time, ..EventMessage::default() };
            actions.push(self.streams.event(None, lost));
        }
    }

    /// Begins a step with a copy of all settings. What has changed takes effect.
    pub fn begin_step(&mut self, tunables: Tunables, actions: &mut Actions) {
        let (verify, on_wrong) = (tunables.verify, tunables.on_wrong_score);
        if (verify, on_wrong) != (self.tunables.verify, self.tunables.on_wrong_score) {
            self.work.jobs.verify(verify, on_wrong);
        }
        self.tunables = tunables;
        self.streams.reference.input.configure_cadence();
        let frame = self.streams.reference.input.cadence.typical().map_or(40_000_000, ClockTime::nseconds);
        let now = self.reached();
        for i in 0..self.streams.renditions.len() {
            let rendition = &mut self.streams.renditions[i];
            rendition.input.configure_cadence();
            let settings = rendition.pad.settings();
            let enabled = settings.enabled;
            let switched = enabled != rendition.settings.enabled;
            rendition.configure(settings, frame);
            for event in rendition.health.configure(&self.tunables.watch, now) {
                actions.push(Action::Post(rendition.event(event)));
            }
            if switched {
                gst::debug!(CAT, obj = rendition.pad, "{}", if enabled { "enabled" } else { "disabled" });
                rendition.absent = false;
                rendition.shown = None;
                if !enabled {
                    self.work.jobs.finish(rendition.number, true);
                }
            }
        }
    }

    /// Looks for pads that have had nothing for longer than `limit` while frames wait, or come, at another one. Without a
    /// limit nothing is meant to move.
    pub fn look_for_stall(&mut self, now: Instant, limit: Option<Duration>, actions: &mut Actions) {
        let (is_live, failed) = (self.heads.clock.is_live, self.failed);
        let ignore = self.tunables.ignore_inactive_pads && is_live;
        // Without live sources, the base class waits for all pads.
        let waits_for = |rendition: &Rendition| match rendition.role(ignore) {
            Role::Active | Role::Absent => true,
            Role::Idle => !is_live && !rendition.leaving,
            Role::Ignored => false,
        };
        // After an error nothing moves any more.
        let (changes, busy) = self.streams.look_for_stall(now, limit, |of| waits_for(of) && !failed);
        for (side, stalled) in changes {
            let event = EventMessage {
                event: Event::Stalled,
                state: if stalled { EventState::Raised } else { EventState::Cleared },
                running_time: self.streams.reference.last_time,
                ..EventMessage::default()
            };
            actions.push(self.streams.event(side, event));
            let input = self.streams.input(side);
            let (pad, linked) = (input.name(), input.pad.is_linked());
            if let (Some(time), true) = (limit, stalled) {
                actions.push(Action::Warn(Error::Stalled { pad, linked, busy: busy.clone(), time, is_live }));
            }
        }
    }

    // Scores.

    /// Completes the scores of these renditions that wait for later reference frames. Where none are named, the row of
    /// reference frames ends for all; `broken` says that some are missing.
    pub fn complete(&mut self, renditions: Option<&[u64]>, broken: bool) {
        match renditions {
            Some(numbers) => numbers.iter().for_each(|number| self.work.jobs.finish(*number, broken)),
            None => self.work.jobs.end_run(broken),
        }
    }

    /// Marks the news of one [`State::hear`] as carried out.
    pub fn heard(&mut self) {
        self.posting = self.posting.saturating_sub(1);
    }

    /// Takes what the worker reports. [`State::heard`] comes next.
    pub fn hear(&mut self, news: Vec<News>, actions: &mut Actions) -> Result<(), Error> {
        self.posting += 1;
        for news in news {
            match news {
                News::Scored { rendition, index, score } => self.scored(rendition, index, score, actions),
                News::Damaged { rendition, index, damage } => {
                    if self.streams.renditions.get(DISPLAYED).is_some_and(|first| first.number == rendition) {
                        self.downstream.set_damage(index, damage);
                    }
                }
                News::Failed { rendition, index, reason } => {
                    if let Some((_, compared)) = self.downstream.pending(rendition, index) {
                        compared.outcome = ScoreState::Failed.into();
                    }
                    self.downstream.set_damage(index, None);
                    if let (Some(i), Some(source)) = (self.streams.numbered(rendition), reason) {
                        let err = Error::Buffer { pad: self.streams.renditions[i].input.name(), source };
                        self.streams.fail(i, Trouble::Stream, err, actions)?;
                    }
                }
                News::Verified { rendition, index, running_time, wrong } => {
                    if let Some(i) = self.streams.numbered(rendition) {
                        let rendition = &mut self.streams.renditions[i];
                        let (gpu, on_wrong) = (self.work.gpu.as_deref(), self.tunables.on_wrong_score);
                        Scores::verified(rendition, (index, running_time), wrong, gpu, on_wrong, actions)?;
                    }
                }
                News::NotVerified(groups) => self.tally.not_verified(groups),
                News::Done { pairs, taken } => {
                    self.work.done(pairs);
                    taken.filter(|_| pairs).into_iter().for_each(|taken| self.tally.computed(taken));
                }
                News::Backend(used) => self.work.uses(used),
                News::Error(err) => return Err(err),
            }
        }
        Ok(())
    }

    /// Takes the result for a frame of a rendition.
    fn scored(&mut self, number: u64, index: u64, score: PairScore, actions: &mut Actions) {
        let Some(i) = self.streams.numbered(number) else { return };
        let (made_by, message) = (&self.work.used.made_by, self.tunables.frame_message);
        let rendition = &mut self.streams.renditions[i];
        let Some(pending) = self.downstream.pending(number, index) else { return };
        let scored = self.scores.scored(rendition, pending, score, made_by, message, actions);
        let Some((at, counted)) = scored else { return };
        let rendition = &mut self.streams.renditions[i];
        self.scores.advance(rendition, at, &self.tunables, actions);
        let event = counted.and_then(|(score, totals)| rendition.health.scored(at, score, &totals));
        actions.extend(event.map(|event| self.streams.event(Some(i), event)));
        self.write_metrics(at, actions);
    }

    /// No frame before `now` is waited for any more: windows end even if nothing comes.
    pub fn advance(&mut self, now: ClockTime, actions: &mut Actions) {
        let event = self.streams.reference.advance(now);
        actions.extend(event.map(|event| Action::Post(self.streams.reference.event(event).to_structure())));
        let events = self.overload.advance(now);
        actions.extend(events.into_iter().map(|event| self.overload_event(event)));
        for i in 0..self.streams.renditions.len() {
            let rendition = &mut self.streams.renditions[i];
            let pending = self.downstream.oldest_pending(rendition.number);
            let now = pending.map_or(now, |pending| pending.min(now));
            self.scores.advance(rendition, now, &self.tunables, actions);
        }
        // Otherwise with the scores to come.
        if self.downstream.count_pending() == 0 {
            self.write_metrics(now, actions);
        }
    }

    /// Asks for a new metrics file, once per interval.
    fn write_metrics(&mut self, now: ClockTime, actions: &mut Actions) {
        let watch = &self.tunables.watch;
        let job = self.tally.metrics_job(now, &self.scores.figures, &self.streams.renditions, watch);
        actions.extend(job.map(Action::Write));
    }

    /// Returns the figures for Prometheus.
    pub fn figures(&self) -> prometheus::Figures {
        self.tally.figures(&self.scores.figures, &self.streams.renditions, &self.tunables.watch)
    }

    // Frames that leave.

    /// Lets frames go whose outcome is known or that are due.
    pub fn leave(&mut self, deadline: Option<ClockTime>, actions: &mut Actions) {
        while self.posting == 0
            && let Some((announcement, departure)) = self.downstream.pop(deadline)
        {
            actions.extend(announcement.caps.map(Action::Caps));
            actions.extend(announcement.segment.map(Action::Segment));
            let frame = match departure {
                Departure::Frame(frame) => frame,
                Departure::Event(event) => {
                    actions.push(Action::Event(event));
                    continue;
                }
            };
            let mut buffer = frame.buffer;
            if self.attach_meta {
                let meta = self.scores.meta(&self.streams, &frame.stamp, &frame.compared);
                let frames = frame.compared.into_iter().filter_map(|of| Some((of.rendition, of.frame?)));
                let frames = frames.filter_map(|(number, frame)| {
                    Some((self.streams.renditions[self.streams.numbered(number)?].pad.name(), frame))
                });
                if let Err(err) = meta.attach(buffer.make_mut(), frames) {
                    gst::warning!(CAT, "frame {} goes without its meta: {err}", frame.stamp.index);
                }
            }
            actions.push(match frame.heat {
                Some(heat) => Action::Paint(buffer, heat),
                None => Action::Push(buffer),
            });
        }
    }

    /// Lets all frames leave, and posts what the section comes to. All runs have ended, and nothing is in flight.
    pub fn end_section(&mut self, reason: &str, actions: &mut Actions) {
        gst::info!(CAT, "end of a section: {reason}");
        self.work.jobs.end_run(false);
        self.leave(None, actions);
        for i in 0..self.streams.renditions.len() {
            self.end_rendition(i, reason, actions);
        }
        let now = self.reached();
        let event = self.streams.reference.end(now);
        actions.extend(event.map(|event| Action::Post(self.streams.reference.event(event).to_structure())));
        let events = self.overload.end(now);
        actions.extend(events.into_iter().map(|event| self.overload_event(event)));
        self.work.prepared = false;
    }

    /// Posts what the section of a rendition comes to.
    fn end_rendition(&mut self, i: usize, reason: &str, actions: &mut Actions) {
        let now = self.reached();
        let (method, made_by) = (self.tunables.pool_method, &self.work.used.made_by);
        let rendition = &mut self.streams.renditions[i];
        self.scores.end_section(rendition, reason, now, method, made_by, actions);
    }

    /// Completes the results files, once all scores have come.
    pub fn finish_all_results(&self, actions: &mut Actions) {
        self.streams.renditions.iter().for_each(|rendition| self.finish_results(rendition, actions));
    }

    fn finish_results(&self, rendition: &Rendition, actions: &mut Actions) {
        let reference = &self.streams.reference;
        self.scores.finish_results(rendition, reference, &self.work.used.made_by, actions);
    }

    /// Takes over what the application has said of the results since the last step. At the stop, when no lock is held.
    pub fn hear_of_results(&mut self) {
        for rendition in &mut self.streams.renditions {
            let said = rendition.pad.settings();
            (rendition.settings.incomplete, rendition.settings.damaged) = (said.incomplete, said.damaged);
        }
    }
}
