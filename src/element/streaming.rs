// SPDX-License-Identifier: MPL-2.0

//! Drives the [`State`]: the streaming task takes one step after the other, the worker's news come in between, and the actions
//! that either asks for are carried out here, when no lock is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gst::format::Buffers;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::AggregatorPad;
use gst_base::prelude::*;
use gst_video::VideoInfo;
use watch::load;
use watch::thumbnail::Thumbnail;

use super::action::Action;
use super::downstream::Heat;
use super::error::Error;
use super::heads::Clock;
use super::heatmap::{self, Painter};
use super::imp::HipVmaf;
use super::memory::import::{Importer, geometry};
use super::messages::{LIVE_END, Messages};
use super::metas;
use super::pads::HipVmafPad;
use super::report::writer::Job;
use super::schedule::Step;
use super::settings::OnResultsError;
use super::state::State;
use super::steps::{Decision, Seen, ToSee};
use super::worker::News;
use super::{CAT, lock};

/// The time that a live pipeline waits for scores when it could go on. A working GPU returns results long before, even
/// those of the first frames, which wait for the setup.
const RESULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that a pipeline without live sources waits for the frame that decides a pair.
const LOOK: Duration = Duration::from_secs(1);

impl HipVmaf {
    /// Runs `work` on the state and carries out what it asks for, in order, once the lock is free; messages are queued
    /// before. An error ends the run.
    pub(super) fn with_state<T>(
        &self,
        work: impl FnOnce(&mut State, &mut Vec<Action>) -> Result<T, Error>,
    ) -> Result<T, gst::FlowError> {
        let mut actions = vec![];
        let result = match lock(&self.run().state).as_mut() {
            Some(state) if state.has_failed() => Err(None),
            Some(state) => {
                let result = state.take_trouble().map_or(Ok(()), Err);
                let result = result.and_then(|()| work(state, &mut actions)).map_err(|err| {
                    state.fail();
                    Some(err)
                });
                self.queue_messages(&mut actions);
                result
            }
            None => return Err(gst::FlowError::Flushing),
        };
        let flow = self.carry_out_all(actions);
        match result {
            Ok(value) => flow.map(|_| value),
            Err(err) => {
                if let Some(err) = err {
                    self.give_up(&err);
                }
                Err(gst::FlowError::Error)
            }
        }
    }

    /// Waits until the error that has ended the run is on the bus, before the streaming task returns it: upstream posts an
    /// error of its own when it hears of this one, and the cause comes first.
    pub(super) fn wait_until_reported(&self) {
        let failed = || lock(&self.run().state).as_ref().is_some_and(State::has_failed);
        let reported = || self.is_interrupted() || self.run().reported.load(Ordering::Acquire) || !failed();
        self.progress.wait_until(Some(RESULT_TIMEOUT), reported);
    }

    /// Reports an error once everything that was scored before it is posted and written.
    fn give_up(&self, err: &Error) {
        if let Some(state) = lock(&self.run().state).as_mut() {
            state.complete(None, false);
        }
        self.settle();
        let mut actions = vec![];
        if let Some(state) = lock(&self.run().state).as_mut() {
            state.abandon(err, &mut actions);
            self.queue_messages(&mut actions);
        }
        // There are no frames to push among these.
        let _ = self.carry_out_all(actions);
        self.written();
        self.post_error_message(err.message());
    }

    /// Ends the run as one of its threads has panicked, and what that was to do is not done.
    pub(super) fn thread_failed(&self, err: &Error) {
        let failed = lock(&self.run().state).as_mut().is_some_and(|state| {
            let failed = state.has_failed();
            state.fail();
            failed
        });
        self.progress.made();
        if !failed {
            self.give_up(err);
        }
    }

    /// Posts a message now, on this thread. Returns false if the bus is flushing, which is no error.
    pub(super) fn post_now(&self, message: gst::Message) -> bool {
        let is_error = message.type_() == gst::MessageType::Error;
        let posted = self.parent_post_message(message);
        if is_error {
            self.run().reported.store(true, Ordering::Release);
            self.progress.made();
        }
        posted
    }

    /// The queue of messages, between start and stop.
    pub(super) fn messages(&self) -> Option<Arc<Messages>> {
        lock(&self.run().messages).clone()
    }

    /// Waits until the application has returned from all messages so far; a live pipeline waits for `limit` at most.
    fn wait_for_application(&self, limit: Duration) {
        let Some(messages) = self.messages() else { return };
        let limit = messages.is_live().then_some(limit);
        if limit != Some(Duration::ZERO) {
            self.progress.wait_until(limit, || self.is_interrupted() || messages.is_idle());
        }
    }

    fn carry_out_all(&self, actions: Vec<Action>) -> Result<gst::FlowSuccess, gst::FlowError> {
        let mut flow = Ok(gst::FlowSuccess::Ok);
        for action in actions {
            flow = self.carry_out(action, flow);
        }
        flow
    }

    /// Puts the messages among these into the queue. It is called with the lock of the state held, as two threads carry out
    /// what the state asks for: messages leave in the order in which they were decided.
    fn queue_messages(&self, actions: &mut Vec<Action>) {
        let Some(messages) = self.messages() else { return };
        actions.retain(|action| self.message(action).is_none_or(|message| messages.post(message).is_err()));
    }

    /// Returns the message that an action posts, if it is one that does.
    fn message(&self, action: &Action) -> Option<gst::Message> {
        let obj = self.obj();
        match action {
            Action::Post(structure) => {
                Some(gst::message::Element::builder(structure.clone()).src(&*obj).build())
            }
            Action::Warn(err) => Some(err.warning(&*obj)),
            Action::Qos { stamp, late, scored, skipped } => {
                let late = late.map_or(0, |late| late.nseconds() as i64);
                let message = gst::message::Qos::builder(true)
                    .running_time(stamp.running_time)
                    .stream_time(stamp.stream_time.map(|time| time.0))
                    .timestamp(stamp.timestamp.map(|time| time.0))
                    .duration(stamp.duration.map(|time| time.0))
                    .values(late, 1.0, 1_000_000)
                    .stats(Buffers::from_u64(*scored), Buffers::from_u64(*skipped))
                    .src(&*obj);
                Some(message.build())
            }
            _ => None,
        }
    }

    /// Posts a warning.
    pub(super) fn warn(&self, err: &Error) {
        let obj = self.obj();
        let _ = obj.post_message(err.warning(&*obj));
    }

    /// Carries out an action of the state. Nothing is pushed any more once `flow` says that downstream takes nothing.
    fn carry_out(
        &self,
        action: Action,
        flow: Result<gst::FlowSuccess, gst::FlowError>,
    ) -> Result<gst::FlowSuccess, gst::FlowError> {
        let obj = self.obj();
        match action {
            Action::Caps(caps) => obj.set_src_caps(&caps),
            Action::Segment(segment) => obj.update_segment(&segment),
            Action::Latency(latency) => self.set_latency(latency),
            Action::Push(buffer) => {
                flow?;
                return self.push(buffer);
            }
            Action::Event(event) => {
                flow?;
                return self.push_event(event);
            }
            Action::Paint(buffer, heat) => {
                flow?;
                return self.paint(buffer, &heat).and_then(|painted| self.push(painted));
            }
            Action::Post(_) | Action::Warn(_) | Action::Qos { .. } => {
                if let Some(message) = self.message(&action) {
                    let _ = obj.post_message(message);
                }
            }
            Action::Write(job) => self.write(job),
            Action::Reconfigure { rendition, pad, matching } => {
                let possible = self.ask_for_caps(&pad, &matching);
                if let Some(state) = lock(&self.run().state).as_mut() {
                    state.streams.renegotiates(rendition, possible);
                }
            }
            Action::Release(buffers) => drop(buffers),
        }
        flow
    }

    /// Pushes a frame, after the messages about it unless the pipeline is live.
    fn push(&self, buffer: gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
        self.wait_for_application(Duration::ZERO);
        self.give_downstream(|| self.obj().finish_buffer(buffer))
    }

    /// Pushes an event where the stream has come to it.
    fn push_event(&self, event: gst::Event) -> Result<gst::FlowSuccess, gst::FlowError> {
        self.wait_for_application(Duration::ZERO);
        // The base class sends what has to come before any event (the beginning of the stream, caps, the segment) with a
        // buffer only. This one goes no further than to the probe of `watch_source`.
        self.introducing.store(true, Ordering::Release);
        let flow = self.obj().finish_buffer(gst::Buffer::new());
        self.introducing.store(false, Ordering::Release);
        flow?;
        // An event that no element takes is no error.
        self.give_downstream(|| self.obj().src_pad().push_event(event));
        Ok(gst::FlowSuccess::Ok)
    }

    /// Pushes something, which downstream may block.
    fn give_downstream<T>(&self, push: impl FnOnce() -> T) -> T {
        self.run().pushed.store(true, Ordering::Release);
        let (now, running) = (Instant::now(), self.running_time());
        if let Some(state) = lock(&self.run().state).as_mut() {
            state.begin_push(now, running);
        }
        let pushed = push();
        let due = self.due();
        if let Some(state) = lock(&self.run().state).as_mut() {
            state.end_push(due);
        }
        pushed
    }

    /// Looks whether a pad has nothing while frames wait at another, or downstream takes nothing, on the thread of the
    /// watchdog.
    pub(super) fn look_for_stall(&self) {
        let mut actions = vec![];
        let is_playing = self.playing.load(Ordering::Acquire);
        let moves = is_playing || self.is_prerolling();
        let stall_time = self.stall_time();
        let (now, running, due) = (Instant::now(), self.running_time(), self.due());
        let latency = gst::ClockTime::from_nseconds(self.run().configured_latency.load(Ordering::Relaxed));
        if let Some(state) = lock(&self.run().state).as_mut() {
            let moves = moves && !state.is_pushing();
            state.look_for_stall(now, stall_time.filter(|_| moves), &mut actions);
            if is_playing {
                let stuck = state.is_stuck(now, stall_time, running.zip(due), latency);
                state.look_downstream(stuck, due, &mut actions);
            }
            self.queue_messages(&mut actions);
        }
        // There are no frames to push among these.
        let _ = self.carry_out_all(actions);
    }

    /// Running time, while the element plays.
    fn running_time(&self) -> Option<gst::ClockTime> {
        // Before, it may have a clock and not know yet at what time the pipeline started.
        self.playing.load(Ordering::Acquire).then(|| self.obj().current_running_time()).flatten()
    }

    /// Running time of frames that should be leaving right now, in live pipelines.
    fn due(&self) -> Option<gst::ClockTime> {
        let running = self.running_time()?;
        Some(running.saturating_sub(self.obj().latency()?))
    }

    /// Returns how long a pad may have nothing; `None` if that is not watched.
    pub(super) fn stall_time(&self) -> Option<Duration> {
        let time = lock(&self.tunables).stall_time;
        (time > 0).then(|| Duration::from_nanos(time))
    }

    /// Returns true if the pipeline waits for the first frame. A live one does not before it plays, and once a frame has left,
    /// the sink has it.
    fn is_prerolling(&self) -> bool {
        let is_live = |pad: gst::Pad| {
            let mut query = gst::query::Latency::new();
            pad.peer_query(&mut query) && query.result().0
        };
        !self.run().pushed.load(Ordering::Acquire) && !self.obj().sink_pads().into_iter().any(is_live)
    }

    /// Says how long frames are held back, unless that has been said. What the last run said does not hold for the next.
    pub(super) fn set_latency(&self, latency: gst::ClockTime) {
        if self.latency.swap(latency.nseconds(), Ordering::AcqRel) != latency.nseconds() {
            self.obj().set_latency(latency, latency);
        }
    }

    /// Passes a job to the thread that writes.
    pub(super) fn write(&self, job: Job) {
        let writer = lock(&self.run().writer).clone();
        if let Some(writer) = writer {
            writer.write(job);
        }
    }

    /// A file cannot be written, says the thread that writes. Where that is to end the stream, the streaming task does
    /// so, which can wait for what is still to be written.
    pub(super) fn file_failed(&self, err: Error) {
        let ends = err.is_of_results() && lock(&self.settings).on_results_error == OnResultsError::Error;
        if !ends {
            return self.warn(&err);
        }
        // Posted once the lock is free: a handler may ask for statistics.
        let stopped = match lock(&self.run().state).as_mut() {
            Some(state) => {
                state.set_trouble(err);
                None
            }
            None => Some(err),
        };
        if let Some(err) = stopped {
            self.post_error_message(err.message());
        }
    }

    /// Waits until everything is written.
    fn written(&self) {
        let writer = lock(&self.run().writer).clone();
        if let Some(writer) = writer {
            writer.settle();
        }
    }

    /// A reference frame as a heat map. What goes wrong is posted.
    fn paint(&self, buffer: gst::Buffer, heat: &Heat) -> Result<gst::Buffer, gst::FlowError> {
        let run = self.run();
        let mut painter = lock(&run.painter);
        let paint = || {
            let shown = metas::shown(&buffer, &heat.info).map_err(heatmap::unreadable)?;
            painter.take_if(|painter| !painter.suits(&heat.info, &shown));
            match &mut *painter {
                Some(painter) => painter.paint(buffer, &heat.damage),
                none => none.insert(Painter::new(&heat.info, &shown)?).paint(buffer, &heat.damage),
            }
        };
        let painted = paint();
        drop(painter);
        painted.or_else(|err| self.with_state(|_, _| Err(err)))
    }

    /// Takes the worker's news, on its thread. Errors are posted, and the streaming task learns of them at its next step;
    /// scores before that still count.
    pub(super) fn hear(&self, news: Vec<News>) {
        self.run().overdue.store(false, Ordering::Relaxed);
        let mut actions = vec![];
        let mut error = None;
        if let Some(state) = lock(&self.run().state).as_mut() {
            let failed = state.has_failed();
            if let Err(err) = state.hear(news, &mut actions)
                && !failed
            {
                state.fail();
                error = Some(err);
            }
            self.queue_messages(&mut actions);
        }
        // No thread but the worker waits for a disk.
        let (files, others) = actions.into_iter().partition(|action| matches!(action, Action::Write(_)));
        // There are no frames to push among these.
        let _ = self.carry_out_all(others);
        if let Some(state) = lock(&self.run().state).as_mut() {
            state.heard();
        }
        self.progress.made();
        let _ = self.carry_out_all(files);
        if let Some(err) = error {
            self.give_up(&err);
        }
        self.progress.made();
    }

    /// Waits until everything handed to the worker is done and reported.
    fn settle(&self) {
        let settled = lock(&self.run().worker).as_ref().and_then(|worker| worker.settled());
        if let Some(settled) = settled {
            // An error means that the worker has ended, with nothing left to do.
            let _ = settled.recv();
        }
    }

    /// Completes the scores of these renditions, of all if none are named ([`State::complete`]), and waits for them.
    fn complete(&self, renditions: Option<&[u64]>, broken: bool) {
        let ended = self.with_state(|state, _| {
            state.complete(renditions, broken);
            Ok(())
        });
        // Refused only where nothing is waited for any more.
        if ended.is_ok() {
            self.settle();
        }
    }

    /// The streaming task is to return: a seek or a stop waits for it.
    fn is_interrupted(&self) -> bool {
        self.run().stopping.load(Ordering::Acquire)
            || self.obj().src_pad().pad_flags().contains(gst::PadFlags::FLUSHING)
    }

    /// Waits for results or frames, whatever makes this true, at most for so long. At once if the element is to stop.
    fn wait_until(&self, limit: Option<Duration>, ready: impl Fn(&State) -> bool) -> bool {
        let ready = || self.is_interrupted() || lock(&self.run().state).as_ref().is_none_or(&ready);
        self.progress.wait_until(limit, ready)
    }

    fn clock(&self, timeout: bool) -> Clock {
        let obj = self.obj();
        let Some(latency) = obj.latency() else { return Clock::default() };
        let due = self.running_time().map(|time| time.saturating_sub(latency));
        let deadline = due.filter(|_| timeout);
        // By a clock that is not of this world (all others are made of the system's), no frame is late for lack of time.
        let is_real = obj.clock().is_some_and(|clock| clock.is::<gst::SystemClock>());
        let starved = is_real && load::is_exhausted(Instant::now());
        Clock { is_live: true, latency, due, deadline, starved }
    }

    /// The streaming task: one step after the other, until there is nothing to do.
    pub(super) fn step_on(&self, mut timeout: bool) -> Result<gst::FlowSuccess, gst::FlowError> {
        loop {
            // Inputs may go on for as long as they find room.
            if self.is_interrupted() {
                return Err(gst_base::AGGREGATOR_FLOW_NEED_DATA);
            }
            let clock = self.clock(timeout);
            if let Some(messages) = self.messages() {
                messages.set_live(clock.is_live);
            }
            let tunables = self.tunables();
            let decision = self.with_state(|state, actions| {
                state.begin_step(tunables, actions);
                state.decide(clock, actions)
            })?;
            self.get_ready(&decision, clock)?;
            let seen = self.look(&decision);
            self.with_state(|state, actions| state.perform(&decision, &seen, clock, actions))?;
            match decision.step {
                Step::Take(_) | Step::Drop(_) | Step::Skip(_) | Step::Resize(_) | Step::Silence(_) => {}
                Step::Wait(until) if lock(&self.run().state).as_ref().is_some_and(State::is_full) => {
                    timeout |= self.wait_at_full_heads(until.filter(|_| clock.due.is_some()));
                }
                Step::Wait(_) if lock(&self.run().state).as_ref().is_some_and(State::looks_behind) => {
                    self.wait_until(Some(LOOK), |state| {
                        state.has_work() || state.is_full() || !state.looks_behind()
                    });
                }
                Step::Wait(_) => return Err(gst_base::AGGREGATOR_FLOW_NEED_DATA),
                Step::Finished => {
                    self.written();
                    // Fails if the results could not be completed.
                    self.with_state(|_, _| Ok(()))?;
                    self.wait_for_application(LIVE_END);
                    return Err(gst::FlowError::Eos);
                }
            }
        }
    }

    /// Waits for what a step needs to be done.
    fn get_ready(&self, decision: &Decision, clock: Clock) -> Result<(), gst::FlowError> {
        match decision.step {
            Step::Take(_) => {
                // Lets applications look at the frames, see `peek_next_sample`.
                let none = gst::ClockTime::NONE;
                self.obj().selected_samples(none, none, none, None);
                self.wait_for_room(clock)?;
            }
            // Frames can leave with the scores to come, unless others come first.
            Step::Wait(_) => {
                let hopeless = clock.is_live && self.run().overdue.load(Ordering::Relaxed);
                let limit = clock.is_live.then_some(if hopeless { Duration::ZERO } else { RESULT_TIMEOUT });
                if !self.wait_until(limit, State::is_busy) {
                    self.run().overdue.store(true, Ordering::Relaxed);
                }
            }
            // Windows have all scores in time.
            Step::Silence(_) => self.complete(None, true),
            Step::Finished => self.complete(None, false),
            Step::Resize(rendition) => {
                let numbers = lock(&self.run().state).as_ref().map(|state| state.streams.numbers(rendition));
                self.complete(numbers.as_deref(), false);
            }
            Step::Drop(_) | Step::Skip(_) => {}
        }
        Ok(())
    }

    /// Waits for something to do where there is something at all heads, as the base class would call again at once. Returns
    /// true if `until`, a running time without latency, is over before that.
    fn wait_at_full_heads(&self, until: Option<gst::ClockTime>) -> bool {
        let goes_on = |state: &State| state.has_work() || !state.is_full();
        let has_work = || lock(&self.run().state).as_ref().is_none_or(goes_on) || self.is_interrupted();
        let obj = self.obj();
        let now = until.and_then(|_| obj.current_running_time());
        let Some(((until, now), latency)) = until.zip(now).zip(obj.latency()) else {
            let found = self.progress.wait_until(Some(LOOK), has_work);
            if !found && let Some(state) = lock(&self.run().state).as_mut() {
                // Upstream may wait for a frame here to be taken before it sends the one that is waited for.
                gst::info!(CAT, imp = self, "no longer waiting for frames behind those at the heads");
                state.stop_looking();
            }
            return false;
        };
        !self.wait_on_clock(until.saturating_add(latency).saturating_sub(now), has_work)
    }

    /// Waits until the worker takes another group; where pairs may be left out, no longer than the video can wait. Frames
    /// that are due meanwhile leave.
    fn wait_for_room(&self, clock: Clock) -> Result<(), gst::FlowError> {
        let begun = Instant::now();
        loop {
            let look = |state: &State| state.may_skip(clock).then(|| (state.has_room(), state.deadlines()));
            let looked = lock(&self.run().state).as_ref().map(look);
            if looked == Some(None) {
                self.wait_until(None, State::has_room_for_all);
                return Ok(());
            }
            let Some(Some((false, (leaving, overdue)))) = looked else { return Ok(()) };
            let obj = self.obj();
            let times = clock.due.and_then(|_| obj.current_running_time()).zip(obj.latency());
            let (Some((now, latency)), Some(overdue)) = (times, overdue) else { return Ok(()) };
            if overdue.saturating_add(latency) <= now
                || begun.elapsed() > RESULT_TIMEOUT
                || self.is_interrupted()
            {
                return Ok(());
            }
            let next = leaving.map_or(overdue, |leaving| leaving.min(overdue)).saturating_add(latency);
            if next <= now {
                let due = now.saturating_sub(latency);
                self.with_state(|state, actions| {
                    state.leave(Some(due), actions);
                    Ok(())
                })?;
            } else {
                let has_room = || lock(&self.run().state).as_ref().is_none_or(State::has_room);
                self.wait_on_clock(next.saturating_sub(now), || has_room() || self.is_interrupted());
            }
        }
    }

    /// Waits until `ready`, but no longer than so much time passes on the element's clock, whichever that is. Returns whether
    /// it is ready.
    fn wait_on_clock(&self, left: gst::ClockTime, ready: impl Fn() -> bool) -> bool {
        let Some(clock) = self.obj().clock() else { return ready() };
        let (over, progress) = (Arc::new(AtomicBool::new(false)), self.progress.clone());
        let alarm = clock.new_single_shot_id(clock.time().saturating_add(left));
        let ring = over.clone();
        let rings = alarm.wait_async(move |_, _, _| {
            ring.store(true, Ordering::Release);
            progress.made();
        });
        if rings.is_ok() {
            self.progress.wait_until(Some(RESULT_TIMEOUT), || ready() || over.load(Ordering::Acquire));
            alarm.unschedule();
        }
        ready()
    }

    /// Makes thumbnails of the pictures that a step is about, where they are needed.
    fn look(&self, decision: &Decision) -> Seen {
        let ToSee { reference, distorted } =
            lock(&self.run().state).as_ref().map(|state| state.to_see(decision)).unwrap_or_default();
        let of = |(number, buffer, info): (u64, gst::Buffer, Arc<VideoInfo>)| {
            thumbnail(buffer, &info).map(|thumbnail| (number, thumbnail))
        };
        Seen {
            reference: reference.and_then(|(buffer, info)| thumbnail(buffer, &info)),
            distorted: distorted.into_iter().filter_map(of).collect(),
        }
    }

    /// Running time at which the base class has to call again if no frames come before. It asks under its own lock, so
    /// nothing is carried out here.
    pub(super) fn wake_up(&self) -> Option<gst::ClockTime> {
        // Without a clock nothing is ever due.
        self.playing.load(Ordering::Acquire).then_some(())?;
        lock(&self.run().state).as_ref().and_then(State::wake_up)
    }

    /// The frames on their way are dropped, and those to come begin a new section.
    pub(super) fn flush_all(&self) -> Result<gst::FlowSuccess, gst::FlowError> {
        self.complete(None, false);
        self.run().pushed.store(false, Ordering::Release);
        self.with_state(|state, actions| {
            state.flush(actions);
            Ok(gst::FlowSuccess::Ok)
        })
    }

    /// The frames of one stream were flushed. Those of the reference begin a new section.
    pub(super) fn flush_pad(&self, pad: &AggregatorPad) {
        if pad == self.reference() {
            self.complete(None, true);
        }
        // Refused only where there is nothing to forget.
        let _ = self.with_state(|state, actions| {
            state.flush_pad(pad, actions);
            Ok(())
        });
        // The worker has none of them any more.
        self.settle();
    }

    /// Lets go of everything that has come by a pad, and has downstream do the same where its frames travel on.
    pub(super) fn drain(&self, pad: &AggregatorPad, query: &mut gst::query::Drain) {
        let numbers = lock(&self.run().state).as_ref().and_then(|state| state.drained(pad));
        self.complete(numbers.as_deref(), true);
        // Refused only where nothing leaves any more.
        let _ = self.with_state(|state, actions| {
            state.leave(None, actions);
            Ok(())
        });
        self.copy_kept(pad);
        if self.travels_on(pad) {
            // Elements downstream may answer that they keep something all the same.
            self.obj().src_pad().peer_query(query);
        }
    }

    /// Goes on with copies of those frames of a pad that may be used again.
    pub(super) fn copy_kept(&self, pad: &AggregatorPad) {
        let kept = lock(&self.run().state).as_mut().map(|state| state.take_kept(pad)).unwrap_or_default();
        let copies = kept.map(|kept| kept.and_then(|kept| kept.copied()));
        if let Some(state) = lock(&self.run().state).as_mut() {
            state.put_kept(pad, copies);
        }
    }

    /// Takes how the pictures of a stream are to be turned before they are shown.
    pub(super) fn take_orientation(&self, pad: &AggregatorPad, orientation: Option<&str>) {
        // Refused only where nothing is compared any more.
        let _ = self.with_state(|state, actions| state.set_orientation(pad, orientation, actions));
    }

    /// Caps take effect before the next frame is looked at: pairs before them have their scores by then.
    pub(super) fn take_caps(&self, pad: &AggregatorPad, caps: &gst::CapsRef) -> bool {
        let affected = lock(&self.run().state)
            .as_mut()
            .map(|state| state.streams.affected(pad, caps))
            .unwrap_or_default();
        if !affected.is_empty() {
            self.complete(Some(&affected), false);
        }
        let taken = self.with_state(|state, actions| state.set_caps(pad, caps, actions));
        if taken == Err(gst::FlowError::Error) {
            self.wait_until_reported();
        }
        taken.is_ok()
    }

    /// Takes an event that keeps its place between the frames of its stream. Only those of the reference leave, as the video
    /// that leaves has its times.
    pub(super) fn take_event(&self, event: gst::Event) {
        if event.type_() == gst::EventType::SegmentDone {
            // The event follows the last frame and its score.
            self.complete(None, false);
        }
        // Refused only where nothing leaves any more.
        let _ = self.with_state(|state, actions| {
            state.take_event(event, actions);
            Ok(())
        });
    }

    pub(super) fn take_segment(&self, pad: &AggregatorPad, segment: gst::Segment, seqnum: gst::Seqnum) {
        if let Some(state) = lock(&self.run().state).as_mut() {
            state.set_segment(pad, segment, seqnum);
        }
    }

    /// Adds a distorted stream, to be scored from now on.
    pub(super) fn add_rendition(&self, pad: &HipVmafPad) -> Result<(), gst::FlowError> {
        if lock(&self.run().state).as_ref().is_none_or(State::has_failed) {
            // The next start takes the pads that are there by then.
            return Ok(());
        }
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let opened = self.open_results(number, pad);
        self.with_state(|state, _| {
            opened?;
            state.add(number, pad.clone(), self.upcoming(pad));
            Ok(())
        })
    }

    /// Takes leave of a distorted stream, once all of its scores have come.
    pub(super) fn release_rendition(&self, pad: &HipVmafPad) {
        // Refused only where the pad has nothing to leave behind.
        let begun = self.with_state(|state, _| {
            state.begin_release(pad);
            Ok(())
        });
        if begun.is_err() {
            return;
        }
        self.settle();
        let released = self.with_state(|state, actions| {
            state.release(pad, actions);
            Ok(())
        });
        if released.is_ok() {
            self.written();
        }
    }

    /// Applies new settings where no frame has to come for that.
    pub(super) fn settings_changed(&self) {
        if lock(&self.run().state).as_ref().is_none_or(State::has_failed) {
            return;
        }
        if let Some(watchdog) = &*lock(&self.run().watchdog) {
            watchdog.set_limit(self.stall_time());
        }
        let tunables = self.tunables();
        // Refused only where there is nothing to be changed any more.
        let _ = self.with_state(|state, actions| {
            state.begin_step(tunables, actions);
            Ok(())
        });
    }

    pub(super) fn reset_stats(&self) {
        if let Some(messages) = self.messages() {
            messages.reset_counts();
        }
        // Refused only where there is nothing to reset.
        let _ = self.with_state(|state, actions| {
            state.reset_stats(actions);
            Ok(())
        });
    }
}

/// The luma of a frame in small; `None` if the CPU cannot read it. Memory of a GPU is brought to it.
fn thumbnail(buffer: gst::Buffer, info: &VideoInfo) -> Option<Thumbnail> {
    let depth = geometry(info)?.depth;
    let mut importer = Importer::new(info, false);
    let mapped = importer.map(buffer, None).ok()?;
    Thumbnail::new(&importer.picture(&mapped)?.luma, depth)
}
