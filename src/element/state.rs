// SPDX-License-Identifier: MPL-2.0

//! Everything that the element knows between start and stop, the only thing behind its mutex.
//!
//! A `State` owns the reference, the renditions and what is on its way downstream, and ties them together: what a step of
//! the [schedule](super::schedule) does to them, and what news of the [worker](super::worker) does. Nothing here looks at
//! pictures, touches a file or a GPU, or calls out of the element. What is to be done outside is collected as [`Action`]s,
//! in order, for the caller to carry out once it holds no lock.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::backend::hip;
use engine::plan::Plan;
use engine::scale::Scaling;
use engine::session::{Told, Wrong};
use gpu::Selection;
use gst::prelude::*;
use gst::{ClockTime, Structure};
use gst_base::AggregatorPad;
use gst_base::prelude::*;
use gst_video::VideoInfo;
use watch::compute_time::ComputeTime;
use watch::prometheus;
use watch::thumbnail::Thumbnail;
use watch::window;

use super::CAT;
use super::caps::{self, Colors, shape};
use super::downstream::{Compared, Damage, Delayed, Departure, Downstream, Heat, Outcome, Pair, Stamp};
use super::error::Error;
use super::heatmap;
use super::input::{AHEAD, Doubt, Input, Item, Next, keys, time_code_period};
use super::memory::device_memory::Kind;
use super::memory::import::geometry;
use super::overload::{Cause, OverloadAlarm};
use super::pads::{HipVmafPad, REFERENCE};
use super::pushing::Pushing;
use super::reference::Reference;
use super::rendition::{Alignment, Rendition, Reported, Rules, Shown, Trouble, stats};
use super::report::event::{Event, EventMessage, EventState};
use super::report::message::{Common, FrameMessage};
use super::report::meta::{PadScore, ScoreMeta, ScoreState};
use super::report::provenance::Provenance;
use super::report::provenance::named;
use super::report::results::{Ending, Format, Heading, Row, columns};
use super::report::writer::Job;
use super::schedule::{Behind, Role, Rule, Side, Step, View, decide};
use super::settings::{
    Colorimetry, MissingFrame, OnWrongScore, Output, Overload, Pairing, PoolMethod, Settings, Tunables,
};
use super::time::running;
use super::upcoming::{self, Upcoming};
use super::worker::{Frame, Group, Jobs, News, Setup, Used};

/// Something for the outside, to be done without holding a lock.
pub enum Action {
    Caps(gst::Caps),
    Segment(gst::Segment),
    Latency(ClockTime),
    Push(gst::Buffer),
    /// Push an event of upstream.
    Event(gst::Event),
    /// Push a heat map of this reference frame.
    Paint(gst::Buffer, Heat),
    Post(Structure),
    /// Post a warning.
    Warn(Error),
    /// A pair was left out; so many frames were scored and so many left out.
    Qos {
        stamp: Stamp,
        late: Option<ClockTime>,
        scored: u64,
        skipped: u64,
    },
    /// Have something written.
    Write(Job),
    /// Ask upstream of a rendition for caps like these, and tell [`State::renegotiates`] whether it can have them.
    Reconfigure {
        rendition: u64,
        pad: HipVmafPad,
        matching: gst::Caps,
    },
    /// Let go of buffers, which may free memory of a GPU.
    Release(Vec<gst::Buffer>),
}

/// The source pad, as whose events tell of downstream.
const SOURCE: &str = "src";

/// The rendition that can be looked at downstream: that of `dist_sink`, which is always there.
const DISPLAYED: usize = 0;

/// Distances of frames up to this are no matter of which frames are partners, where the distance is not known: no video has
/// frames that are closer than four times that.
const CERTAIN: ClockTime = ClockTime::from_mseconds(1);

/// How many more reference frames than groups may wait for the worker to follow their motion.
const HISTORY: usize = 8;

/// Whether the frames behind the heads are waited for, where no clock runs. Where one thread feeds both sides, they do not come
/// before those at the heads are taken. A file that was slow once looks the same: so it is tried again, after twice as many
/// frames each time.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    /// Reference frames to take without waiting for those behind.
    off_for: u32,
    /// How many it was the last time.
    last: u32,
}

impl Look {
    /// Most reference frames that are taken without waiting for those behind.
    const LONGEST: u32 = 1024;

    fn is_off(self) -> bool {
        self.off_for > 0
    }

    fn was_futile(&mut self) {
        self.last = (2 * self.last).clamp(1, Self::LONGEST);
        self.off_for = self.last;
    }

    fn taken(&mut self) {
        self.off_for = self.off_for.saturating_sub(1);
    }
}

/// What the clock says, in live pipelines.
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

/// A step, and for which renditions it was decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub step: Step,
    generation: u64,
}

/// Pictures that a step is about, in small.
#[derive(Default)]
pub struct Seen {
    pub reference: Option<Thumbnail>,
    /// Thumbnails of distorted frames, each with the number of its rendition.
    pub distorted: Vec<(u64, Thumbnail)>,
}

/// What pictures a step is about: buffers and the format of their frames.
#[derive(Default)]
pub struct ToSee {
    pub reference: Option<(gst::Buffer, Arc<VideoInfo>)>,
    pub distorted: Vec<(u64, gst::Buffer, Arc<VideoInfo>)>,
}

/// The element between start and stop.
pub struct State {
    plan: Arc<Plan>,
    attach_meta: bool,
    attach_frames: bool,
    output: Output,
    reported: Reported,
    pairing: Pairing,
    rules: Rules,
    /// Least share of the reference frames that has to be scored.
    min_coverage: f64,
    /// The GPU that scores, or the last one that did.
    gpu: Option<String>,
    /// Groups that were to be computed again and were not.
    not_verified: u64,
    /// What makes the scores, but for the backend.
    provenance: Provenance,
    /// Somebody was told that the models are not for this video.
    told_hdr: bool,
    /// Of these GPUs one can be chosen by where the first frames are.
    follow: Option<Selection>,
    has_results: bool,
    /// Scores that do not count are in the results too.
    provisional_results: bool,
    metrics: Option<PathBuf>,

    /// Settings of the present step.
    tunables: Tunables,
    /// What the clock said at the last step.
    clock: Clock,
    /// Running time at which the element began to play.
    begun: ClockTime,
    look: Look,
    /// What is still to be carried out.
    deferred: Vec<Action>,
    /// Counts the renditions that came and went, which decisions do not survive.
    generation: u64,
    reference: Reference,
    /// The renditions, in the order in which their pads were made.
    renditions: Vec<Rendition>,
    downstream: Downstream,
    /// The last distorted frame that left, where the output is the distorted video.
    displayed: Option<Shown>,
    /// Caps of distorted frames that were announced last.
    displayed_caps: Option<gst::Caps>,

    jobs: Jobs,
    used: Used,
    /// Groups with pairs that the worker has and has not done.
    in_flight: usize,
    /// Reference frames without partners that it has and has not done.
    history_in_flight: usize,
    /// Scores are being told on another thread: frames leave after the messages about them.
    telling: u32,
    /// The session is set up for the frames of this section.
    prepared: bool,
    /// What came up elsewhere and ends the run.
    trouble: Option<Error>,
    /// An error was reported; nothing more is done.
    failed: bool,

    started: Instant,
    compute_time: ComputeTime,
    overload: OverloadAlarm,
    pushing: Pushing,
    /// Interval of running time for which the metrics file was written last.
    metrics_interval: Option<u64>,
}

impl State {
    pub fn new(
        settings: &Settings,
        tunables: Tunables,
        plan: Arc<Plan>,
        used: Used,
        jobs: Jobs,
        reference: AggregatorPad,
        upcoming: Arc<Upcoming>,
    ) -> Self {
        Self {
            provenance: Provenance::new(settings, &plan),
            plan,
            attach_meta: settings.attach_meta,
            attach_frames: settings.attach_frames,
            output: settings.output,
            reported: Reported {
                confidence: settings.conf_interval,
                psnr: settings.psnr,
                ssim: settings.ssim,
                ms_ssim: settings.ms_ssim,
            },
            pairing: settings.pairing,
            rules: Rules {
                scale: settings.scale_method.method(),
                colors: settings.colorimetry == Colorimetry::Strict,
            },
            min_coverage: settings.min_coverage,
            gpu: None,
            not_verified: 0,
            told_hdr: false,
            follow: settings.follows_input(),
            has_results: settings.results().is_some(),
            provisional_results: settings.results_provisional,
            metrics: settings.metrics_filename.as_ref().map(PathBuf::from),
            tunables,
            clock: Clock::default(),
            begun: ClockTime::ZERO,
            look: Look::default(),
            deferred: vec![],
            generation: 0,
            reference: Reference::new(reference, upcoming),
            renditions: vec![],
            downstream: Downstream::new(settings.attach_meta),
            displayed: None,
            displayed_caps: None,
            jobs,
            used,
            in_flight: 0,
            history_in_flight: 0,
            telling: 0,
            prepared: false,
            trouble: None,
            failed: false,
            started: Instant::now(),
            compute_time: ComputeTime::default(),
            overload: OverloadAlarm::default(),
            pushing: Pushing::default(),
            metrics_interval: None,
        }
    }

    // What downstream does.

    /// The element begins to play.
    pub fn begin(&mut self, now: Option<ClockTime>) {
        self.begun = now.unwrap_or(ClockTime::ZERO);
        self.reference.begin(self.begun);
    }

    /// Returns the running time that the stream has come to: that of the last reference frame; before there is one, what
    /// the clock says, or when the element began to play.
    fn reached(&self) -> ClockTime {
        self.reference.last_time.or(self.clock.due).unwrap_or(self.begun)
    }

    /// A frame is about to be pushed.
    pub fn begin_push(&mut self, now: Instant, running: Option<ClockTime>) {
        self.pushing.begin(now, running.filter(|_| self.clock.is_live));
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
        patience: Option<Duration>,
        clock: Option<(ClockTime, ClockTime)>,
        configured: ClockTime,
    ) -> bool {
        let clock = clock.filter(|_| self.clock.is_live);
        let latency = clock.map(|(running, due)| running.saturating_sub(due).max(configured));
        !self.failed && self.pushing.is_stuck(now, patience, clock.map(|(running, _)| running), latency)
    }

    /// While downstream takes nothing, time goes on in a live pipeline all the same. `stuck`: that is to be reported.
    pub fn look_downstream(&mut self, stuck: bool, due: Option<ClockTime>, actions: &mut Vec<Action>) {
        let due = due.filter(|_| self.clock.is_live);
        if stuck {
            let at = due.unwrap_or_else(|| self.reached());
            let event = self.overload.stuck(at);
            actions.extend(event.map(|event| self.overload_event(event)));
            // Windows have all scores in time, those too that wait for the next pair, which will come too late to be scored.
            if self.clock.is_live && self.tunables.overload != Overload::Wait {
                self.complete(None, true);
            }
        }
        if let Some(due) = due.filter(|_| self.is_pushing() && !self.failed) {
            self.advance(due, actions);
        }
    }

    /// An alarm of this machine or of downstream.
    fn overload_event(&self, event: EventMessage) -> Action {
        let of_source = |event| EventMessage { pad: SOURCE.into(), label: SOURCE.into(), ..event };
        let event = match event.event {
            Event::DownstreamBlocked => of_source(event),
            _ => self.reference.event(event),
        };
        Action::Post(event.to_structure())
    }

    // What others want to know.

    pub fn used(&self) -> &Used {
        &self.used
    }

    pub fn device_name(&self) -> Option<String> {
        self.used.gpu.as_ref().map(|gpu| gpu.info().to_string())
    }

    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// The reference's size and format, which distorted video has to match.
    pub fn reference_info(&self) -> Option<&Arc<VideoInfo>> {
        self.reference.input.info.as_ref()
    }

    /// Memory that frames can lie in, beside the system's.
    pub fn memories(&self) -> Vec<Kind> {
        let Some(gpu) = &self.used.gpu else { return vec![] };
        let suits = |kind: &Kind| {
            kind.suits(gpu.info())
                || self.follow.is_some_and(|all| {
                    gpu::selected(&all).into_iter().any(|info| hip::supports(info) && kind.suits(info))
                })
        };
        Kind::ALL.into_iter().filter(suits).collect()
    }

    /// Reference frames that can be here at once.
    pub fn held(&self) -> u32 {
        self.delay() + self.used.depth as u32 + self.plan.lookback() as u32
    }

    /// Distorted frames that can be here at once, beside the one that is looked at.
    pub fn held_distorted(&self) -> u32 {
        // Those that leave, and the last one, which may have to leave again.
        let displayed = if self.output == Output::Distorted { self.delay() + 1 } else { 0 };
        displayed + self.used.depth as u32
    }

    /// The next pair can be handed to the worker without waiting for one before.
    pub fn has_room(&self) -> bool {
        self.failed || self.in_flight < self.used.depth
    }

    /// There is something better to do than to wait for scores.
    pub fn is_busy(&self) -> bool {
        let ready = |pad: &AggregatorPad| pad.has_buffer() || pad.is_eos();
        self.failed
            || self.in_flight == 0 && self.telling == 0
            || ready(&self.reference.input.pad) && self.renditions.iter().all(|of| ready(&of.input.pad))
    }

    /// Running times, without latency, at which the next frame has to leave, and after which it is too late to score the
    /// reference head.
    pub fn deadlines(&self) -> (Option<ClockTime>, Option<ClockTime>) {
        let input = &self.reference.input;
        let head = || {
            let buffer = input.pad.peek_buffer()?;
            let times = input.times(&buffer).ok()??;
            let lasts = input.duration_of(&buffer).map(|duration| times.pace.running(duration));
            Some(times.running_time?.saturating_add(lasts.unwrap_or(ClockTime::ZERO)))
        };
        (self.downstream.next_time(), head())
    }

    /// WorkerThread may be left out for the video to go on.
    pub fn may_skip(&self, clock: Clock) -> bool {
        match self.tunables.overload {
            Overload::Auto => clock.is_live,
            Overload::Wait => false,
            Overload::Skip => true,
        }
    }

    /// Counters and figures since the start of a distorted pad, for its property `stats`.
    pub fn pad_stats(&self, pad: &HipVmafPad) -> Option<Structure> {
        Some(self.renditions.iter().find(|rendition| rendition.pad == *pad)?.stats())
    }

    /// Counters and figures of `dist_sink`, with those that concern all renditions, for the element's property `stats`.
    pub fn stats(&self) -> Structure {
        let mut s = self.renditions.first().map(Rendition::stats);
        let s = s.get_or_insert_with(|| Structure::new_empty("stats"));
        s.set("in-flight", self.downstream.count_pending() as u64);
        s.set("not-verified", self.not_verified);
        if let Some(mean) = self.compute_time.mean() {
            let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
            s.set("compute-time-mean", nanoseconds(mean));
            let p99 = self.compute_time.quantiles(self.recent(), self.now(), [0.99]);
            s.set("compute-time-p99", nanoseconds(p99[0]));
        }
        if let Some(name) = self.device_name() {
            s.set("device-name", name);
        }
        s.clone()
    }

    /// Monotonic time, in seconds.
    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// How many seconds back compute times are looked at.
    fn recent(&self) -> f64 {
        match self.tunables.watch.window {
            0 => 60.0,
            window => window as f64 / 1e9,
        }
    }

    // Pads, caps and segments.

    /// A new distorted stream, numbered by the caller.
    pub fn add(&mut self, number: u64, pad: HipVmafPad, upcoming: Arc<Upcoming>) {
        gst::debug!(CAT, obj = pad, "rendition {number}");
        self.renditions.push(Rendition::new(number, pad, upcoming, &self.tunables.watch));
        self.generation += 1;
    }

    /// A distorted stream is about to go: nothing more of it is taken.
    pub fn begin_release(&mut self, pad: &HipVmafPad) {
        if let Some(i) = self.renditions.iter().position(|rendition| rendition.pad == *pad) {
            self.jobs.finish(self.renditions[i].number, false);
            self.renditions[i].leaving = true;
            self.generation += 1;
        }
    }

    /// A distorted stream goes, all of whose scores have come.
    pub fn release(&mut self, pad: &HipVmafPad, actions: &mut Vec<Action>) {
        let Some(i) = self.renditions.iter().position(|rendition| rendition.pad == *pad) else { return };
        self.end_rendition(i, "released", actions);
        let gone = self.renditions.remove(i);
        self.generation += 1;
        self.downstream.forget(gone.number);
        self.finish_results(&gone, actions);
    }

    fn rendition(&self, pad: &AggregatorPad) -> Option<usize> {
        self.renditions.iter().position(|rendition| rendition.input.pad == *pad)
    }

    /// Returns the rendition that a pad belongs to, or `None` for the reference; nothing for a pad that was released.
    fn side(&self, pad: &AggregatorPad) -> Option<Option<usize>> {
        if *pad == self.reference.input.pad { Some(None) } else { self.rendition(pad).map(Some) }
    }

    /// Returns the input of a rendition, or else of the reference.
    fn input(&mut self, rendition: Option<usize>) -> &mut Input {
        match rendition {
            Some(i) => &mut self.renditions[i].input,
            None => &mut self.reference.input,
        }
    }

    fn numbered(&self, number: u64) -> Option<usize> {
        self.renditions.iter().position(|rendition| rendition.number == number)
    }

    /// Numbers of the renditions whose pairs would not go on under new caps of a pad.
    pub fn affected(&mut self, pad: &AggregatorPad, caps: &gst::CapsRef) -> Vec<u64> {
        let info = caps::info(caps);
        let changes =
            |input: &Input| input.stored.as_ref().is_some_and(|stored| Some(&**stored) != info.as_ref());
        match self.side(pad) {
            Some(side) if changes(self.input(side)) => self.numbers(side),
            _ => vec![],
        }
    }

    /// Returns the number of a rendition, or of all.
    pub fn numbers(&self, rendition: Option<usize>) -> Vec<u64> {
        let wanted = |(i, _): &(usize, &Rendition)| rendition.is_none_or(|rendition| rendition == *i);
        self.renditions.iter().enumerate().filter(wanted).map(|(_, rendition)| rendition.number).collect()
    }

    /// Caps that can be read, as what they stand for.
    fn readable(&self, pad: &AggregatorPad, caps: &gst::CapsRef) -> Result<VideoInfo, Error> {
        let name = || pad.name().to_string();
        let readable = caps::readable(&self.memories());
        let Some(info) = caps::info(caps).filter(|_| caps.is_subset(&readable)) else {
            let kind = Kind::ALL.into_iter().find(|kind| caps.is_subset(&caps::readable(&[*kind])));
            return Err(match kind {
                Some(kind) => Error::Memory { pad: name(), kind, backend: self.used.name },
                None => Error::Caps { pad: name(), caps: caps.to_owned() },
            });
        };
        if info.is_interlaced() { Err(Error::Interlaced(name())) } else { Ok(info) }
    }

    /// New caps on a sink pad. They take effect before the next frame is looked at. Nothing of the
    /// [affected](State::affected) renditions is in flight.
    pub fn set_caps(
        &mut self,
        pad: &AggregatorPad,
        caps: &gst::CapsRef,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        gst::info!(CAT, obj = pad, "caps {caps}");
        let info = self.readable(pad, caps);
        if *pad == self.reference.input.pad {
            self.set_reference_caps(caps, info?, actions)
        } else if let Some(i) = self.rendition(pad) {
            match info {
                Ok(info) => self.set_distorted_caps(i, caps, info, actions),
                Err(err) => self.fail_rendition(i, Trouble::Stream, err, actions),
            }
        } else {
            Ok(())
        }
    }

    fn set_reference_caps(
        &mut self,
        caps: &gst::CapsRef,
        info: VideoInfo,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let first = self.reference.input.info.is_none();
        let changes = self.reference.input.set_format(caps, info);
        self.reference.input.configure_cadence();
        self.follow_reference(first, changes, actions)?;
        if self.output == Output::Reference {
            self.downstream.set_caps(caps.to_owned());
        }
        self.tell_hdr(self.reference.input.colors, REFERENCE.into(), actions);
        Ok(())
    }

    /// Goes on with the format that the reference has by now.
    fn follow_reference(
        &mut self,
        first: bool,
        changes: bool,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        if changes {
            self.end_section("caps", actions);
        }
        // Those of distorted frames come with the first of them.
        if let Some(info) = self.reference_info().filter(|_| self.output == Output::Heatmap) {
            let caps = heatmap::caps(info)?;
            self.downstream.set_caps(caps);
        }
        self.announce_latency(None, actions);
        if first || changes {
            for i in 0..self.renditions.len() {
                self.renegotiate(i, actions);
                self.retry(i, Trouble::Mismatch, actions)?;
                self.renditions[i].untold = true;
            }
        }
        Ok(())
    }

    /// Goes on with the size of the head of a rendition, or else of the reference: where pictures are parts of their frames,
    /// their size may change without new caps. Nothing that this concerns is in flight.
    fn resize(&mut self, rendition: Option<usize>, actions: &mut Vec<Action>) -> Result<(), Error> {
        let input = self.input(rendition);
        let Some(info) = input.resized() else { return Ok(()) };
        gst::info!(CAT, obj = input.pad, "pictures of {}x{}", info.width(), info.height());
        input.info = Some(info);
        match rendition {
            Some(i) => self.follow_distorted(i, true, actions),
            None => self.follow_reference(false, true, actions),
        }
    }

    /// Returns the rendition whose head is of another size than its pictures before, or `None` for the reference, if there is
    /// one.
    fn resized(&self) -> Option<Option<usize>> {
        if self.reference.input.resized().is_some() {
            return Some(None);
        }
        self.renditions.iter().position(|rendition| rendition.input.resized().is_some()).map(Some)
    }

    /// Takes how the pictures of a stream are to be turned before they are shown, if anything says so.
    pub fn set_orientation(
        &mut self,
        pad: &AggregatorPad,
        orientation: Option<&str>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let Some(rendition) = self.side(pad) else { return Ok(()) };
        let input = self.input(rendition);
        if input.orientation.as_deref() == orientation {
            return Ok(());
        }
        gst::info!(CAT, obj = pad, "orientation {orientation:?}");
        input.orientation = orientation.map(Into::into);
        for i in 0..self.renditions.len() {
            if rendition.is_none_or(|rendition| rendition == i) {
                self.renditions[i].untold = true;
                self.retry(i, Trouble::Mismatch, actions)?;
            }
        }
        Ok(())
    }

    /// Asks upstream of a rendition for caps that suit the reference, unless it has those, or none yet: whoever begins
    /// asks what is wanted. Nobody else is disturbed, as the event may reach a source that feeds the reference as well,
    /// which then negotiates anew and waits until the frames before are taken, for ever if an encoder keeps their partners.
    fn renegotiate(&self, i: usize, actions: &mut Vec<Action>) {
        let Some(reference) = self.reference_info() else { return };
        let rendition = &self.renditions[i];
        if rendition.input.info.is_some() && !self.suits(i) {
            actions.push(Action::Reconfigure {
                rendition: rendition.number,
                pad: rendition.pad.clone(),
                matching: caps::matching(reference, &self.memories(), false),
            });
        }
    }

    /// Upstream of a rendition was asked for other caps, and can have them or not.
    pub fn renegotiates(&mut self, rendition: u64, possible: bool) {
        let Some(i) = self.numbered(rendition) else { return };
        let suits = self.reference_info().is_none() || self.scaling(i).is_ok();
        self.renditions[i].expect_renegotiation(possible && !suits);
    }

    /// The caps of a rendition are known, and suit those of the reference as far as these are.
    fn suits(&self, i: usize) -> bool {
        match self.reference_info() {
            Some(_) => self.scaling(i).is_ok(),
            None => self.renditions[i].input.info.is_some(),
        }
    }

    fn scaling(&self, i: usize) -> Result<Option<Scaling>, Error> {
        self.renditions[i].scaling(&self.reference.input, self.rules)
    }

    fn set_distorted_caps(
        &mut self,
        i: usize,
        caps: &gst::CapsRef,
        info: VideoInfo,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let rendition = &mut self.renditions[i];
        rendition.cosited = caps::cosited(caps);
        let changes = rendition.input.set_format(caps, info);
        self.follow_distorted(i, changes, actions)?;
        let input = &self.renditions[i].input;
        self.tell_hdr(input.colors, input.name(), actions);
        Ok(())
    }

    /// Goes on with the format that a rendition has by now.
    fn follow_distorted(&mut self, i: usize, changes: bool, actions: &mut Vec<Action>) -> Result<(), Error> {
        if changes {
            // It cannot be read as what comes now.
            self.renditions[i].shown = None;
            self.end_rendition(i, "caps", actions);
        }
        self.forget_other_scaling(i);
        self.renditions[i].untold = true;
        if self.suits(i) {
            self.renditions[i].expect_renegotiation(false);
        } else {
            // It may not have known yet, or not be able to have others.
            self.renegotiate(i, actions);
        }
        self.retry(i, Trouble::Stream, actions)
    }

    /// Warns, once, that the models are not for such video.
    fn tell_hdr(&mut self, colors: Option<Colors>, pad: String, actions: &mut Vec<Action>) {
        if let Some(transfer) = colors.and_then(Colors::hdr)
            && !std::mem::replace(&mut self.told_hdr, true)
        {
            actions.push(Action::Warn(Error::Hdr { pad, transfer }));
        }
    }

    /// Warns of what can be scored and may not be meant: other frame rates, and pictures of another shape. That is known when
    /// frames meet: where both streams get other caps, one does so before the other.
    fn tell_differences(&mut self, i: usize, actions: &mut Vec<Action>) {
        if !std::mem::take(&mut self.renditions[i].untold) {
            return;
        }
        let pad = self.renditions[i].input.name();
        let infos = self.reference_info().cloned().zip(self.renditions[i].input.info.clone());
        let Some((reference, distorted)) = infos else { return };
        let known = reference.fps().numer() > 0 && distorted.fps().numer() > 0;
        let rates = (known && reference.fps() != distorted.fps()).then(|| (reference.fps(), distorted.fps()));
        if rates != std::mem::replace(&mut self.renditions[i].told_rates, rates)
            && let Some((reference, distorted)) = rates
        {
            let with = match self.pairing {
                Pairing::RunningTime => "the distorted frame of its time, within pairing-tolerance",
                Pairing::Index => "the distorted frame of its number",
                Pairing::Timecode => "the distorted frame of its time code",
                Pairing::ReferenceTimestamp => "the distorted frame of its reference timestamp",
            };
            let pad = pad.clone();
            actions.push(Action::Warn(Error::Rates { pad, reference, distorted, with }));
        }
        // Sizes that were rounded to whole samples differ a little.
        let differ = (shape(&reference) / shape(&distorted) - 1.0).abs() > 0.01;
        if differ != std::mem::replace(&mut self.renditions[i].told_shape, differ) && differ {
            actions.push(Action::Warn(Error::Shape { pad, reference, distorted }));
        }
        let turned = self.turned(i);
        let differ = turned.is_some();
        if differ != std::mem::replace(&mut self.renditions[i].told_orientation, differ) {
            actions.extend(turned.map(Action::Warn));
        }
    }

    /// Returns what is to be said where one side of a rendition's pairs is to be turned, and nothing says how the other is.
    fn turned(&self, i: usize) -> Option<Error> {
        let [reference, distorted] = [&self.reference.input, &self.renditions[i].input];
        let (turned, other) = match (&reference.orientation, &distorted.orientation) {
            (Some(_), None) => (reference, distorted),
            (None, Some(_)) => (distorted, reference),
            _ => return None,
        };
        let orientation = turned.orientation.clone().filter(|orientation| orientation != "rotate-0")?;
        Some(Error::Turned { turned: turned.name(), orientation, other: other.name() })
    }

    /// The session has to be set up anew for a rendition whose frames are to be scaled in another way.
    fn forget_other_scaling(&mut self, i: usize) {
        if self.reference_info().is_some() {
            let scaling = self.scaling(i).ok();
            self.renditions[i]
                .prepared
                .take_if(|prepared| scaling.is_some_and(|scaling| scaling != *prepared));
        }
    }

    /// Looks whether a rendition that has failed with such a trouble can be scored again.
    fn retry(&mut self, i: usize, mended: Trouble, actions: &mut Vec<Action>) -> Result<(), Error> {
        if !self.renditions[i].is_failed() {
            return Ok(());
        }
        let mismatch = self.reference_info().and_then(|_| self.scaling(i).err());
        match mismatch {
            Some(err) if mended == Trouble::Stream => {
                self.fail_rendition(i, Trouble::Mismatch, err, actions)?
            }
            Some(_) => {}
            None => {
                self.forget_other_scaling(i);
                let event = self.renditions[i].recover(mended, self.reference.last_time);
                if let Some(event) = event {
                    gst::info!(CAT, obj = self.renditions[i].pad, "can be scored again");
                    self.jobs.retry(self.renditions[i].number);
                    actions.push(Action::Post(self.renditions[i].event(event)));
                }
            }
        }
        Ok(())
    }

    /// A rendition cannot be scored. Where it is the only one, that ends everything.
    fn fail_rendition(
        &mut self,
        i: usize,
        trouble: Trouble,
        err: Error,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        if self.renditions.len() == 1 {
            return Err(err);
        }
        let rendition = &mut self.renditions[i];
        gst::debug!(CAT, obj = rendition.pad, "cannot be scored: {err}");
        let events = rendition.fail(trouble, err.to_string(), self.reference.last_time);
        if !events.is_empty() {
            actions.extend(events.into_iter().map(|event| Action::Post(rendition.event(event))));
            actions.push(Action::Warn(err));
        }
        Ok(())
    }

    /// How many frames of the reference frames are held back by.
    fn delay(&self) -> u32 {
        match self.output {
            _ if self.attach_meta => self.plan.lookahead() as u32 + 1,
            // A heat map only waits for its own frame.
            Output::Heatmap => 1,
            Output::Reference | Output::Distorted => 0,
        }
    }

    /// Says how long frames are held back, should that have changed: until they can carry their scores, and until
    /// distorted frames come that are late by more than their timestamps say. Where the caps do not announce the distance
    /// of frames, the timestamps and `lasts`, how long the last frame does, show it.
    fn announce_latency(&mut self, lasts: Option<ClockTime>, actions: &mut Vec<Action>) {
        let late = |rendition: &Rendition| rendition.offset().saturating_neg().max(0) as u64;
        let late = self.renditions.iter().map(late).max().unwrap_or(0);
        let announced = self.reference.input.frame_duration().is_some();
        let typical = self.reference.input.cadence.typical();
        let frame = typical.max(lasts.filter(|_| !announced)).unwrap_or(ClockTime::ZERO);
        let latency = frame.saturating_mul(self.delay().into()).saturating_add(running(late));
        if let Some(latency) = self.downstream.set_latency(latency, announced) {
            gst::debug!(CAT, "latency {latency}");
            actions.push(Action::Latency(latency));
        }
    }

    /// Takes an event of the reference that leaves between the frames that it came between.
    pub fn take_event(&mut self, event: gst::Event, actions: &mut Vec<Action>) {
        self.downstream.place(event);
        self.leave(None, actions);
    }

    /// New segment of a sink pad.
    pub fn set_segment(&mut self, pad: &AggregatorPad, segment: gst::Segment, seqnum: gst::Seqnum) {
        if *pad == self.reference.input.pad {
            self.reference.input.set_segment(&segment, seqnum);
            self.downstream.set_segment(segment);
        } else if let Some(i) = self.rendition(pad) {
            self.renditions[i].input.set_segment(&segment, seqnum);
        }
    }

    /// Frames from after a flush are a new section; those still here will not leave. Nothing is in flight.
    pub fn flush(&mut self, actions: &mut Vec<Action>) {
        actions.push(Action::Release(self.downstream.flush()));
        self.displayed = None;
        self.end_section("flush", actions);
        self.metrics_interval = None;
        self.reference.restart();
        self.look = Look::default();
        for rendition in &mut self.renditions {
            rendition.restart();
            rendition.health.restart();
        }
    }

    /// The frames of a single stream were flushed. Those of it that are still here will not leave.
    pub fn flush_pad(&mut self, pad: &AggregatorPad, actions: &mut Vec<Action>) {
        let Some(rendition) = self.side(pad) else { return };
        // The base class may have kept the frame at the head.
        let input = self.input(rendition);
        actions.push(Action::Release(std::iter::from_fn(|| input.pop()).collect()));
        match rendition {
            None => {
                self.jobs.end_run(true);
                self.renditions.iter_mut().for_each(|rendition| rendition.health.restart());
                self.reference.restart();
            }
            Some(i) => {
                self.renditions[i].restart();
                self.downstream.forget_pictures(self.renditions[i].number);
            }
        }
        let leaves = match self.output {
            Output::Reference | Output::Heatmap => rendition.is_none(),
            Output::Distorted => rendition == Some(DISPLAYED),
        };
        if leaves {
            actions.push(Action::Release(self.downstream.flush()));
            self.displayed = None;
        }
    }

    /// Returns the numbers of the renditions whose pairs have to be completed before nothing of a pad's frames is needed;
    /// `None` for the reference, whose frames the next pairs need as well.
    pub fn drained(&self, pad: &AggregatorPad) -> Option<Vec<u64>> {
        let rendition = self.rendition(pad)?;
        let leaves = self.attach_frames || self.output == Output::Distorted && rendition == DISPLAYED;
        Some(self.numbers((!leaves).then_some(rendition)))
    }

    /// Takes the frames of a pad that may be used again: the last one, where missing frames are repeated, and the one that was
    /// displayed last.
    pub fn take_kept(&mut self, pad: &AggregatorPad) -> [Option<Shown>; 2] {
        let Some(i) = self.rendition(pad) else { return [None, None] };
        let displayed = self.displayed.take_if(|_| i == DISPLAYED);
        [self.renditions[i].shown.take(), displayed]
    }

    /// Takes copies of the frames that were [taken](State::take_kept).
    pub fn put_kept(&mut self, pad: &AggregatorPad, [shown, displayed]: [Option<Shown>; 2]) {
        if let Some(i) = self.rendition(pad) {
            self.renditions[i].shown = shown;
            self.displayed = displayed.or(self.displayed.take());
        }
    }

    /// Starts counting and pooling again.
    pub fn reset_stats(&mut self, actions: &mut Vec<Action>) {
        for i in 0..self.renditions.len() {
            self.end_rendition(i, "reset", actions);
            self.renditions[i].reset_stats();
        }
        self.compute_time = ComputeTime::default();
    }

    /// Nothing more is done, but what was handed over is still scored.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// Ends the run at the next occasion.
    pub fn set_trouble(&mut self, err: Error) {
        self.trouble.get_or_insert(err);
    }

    /// What ends the run.
    pub fn take_trouble(&mut self) -> Option<Error> {
        self.trouble.take()
    }

    /// Gives up because of an error. The rows that were written are kept.
    pub fn abandon(&self, err: &Error, actions: &mut Vec<Action>) {
        if self.has_results {
            let abandon =
                |rendition: &Rendition| Action::Write(Job::Abandon(rendition.number, err.to_string()));
            actions.extend(self.renditions.iter().map(abandon));
        }
        if err.is_device_lost() {
            let running_time = self.reference.last_time;
            let lost = EventMessage { event: Event::DeviceLost, running_time, ..EventMessage::default() };
            actions.push(Action::Post(self.reference.event(lost).to_structure()));
        }
    }

    // Steps.

    /// Begins a step with a copy of all settings. What has changed takes effect.
    pub fn begin_step(&mut self, tunables: Tunables, actions: &mut Vec<Action>) {
        let (verify, on_wrong) = (tunables.verify, tunables.on_wrong_score);
        if (verify, on_wrong) != (self.tunables.verify, self.tunables.on_wrong_score) {
            self.jobs.verify(verify, on_wrong);
        }
        self.tunables = tunables;
        self.reference.input.configure_cadence();
        let frame = self.reference.input.cadence.typical().map_or(40_000_000, ClockTime::nseconds);
        let now = self.reached();
        for i in 0..self.renditions.len() {
            let rendition = &mut self.renditions[i];
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
                    self.jobs.finish(rendition.number, true);
                }
            }
        }
    }

    /// What stands at the heads, for the schedule. Frames that cannot be looked at at all go on the way.
    fn view(&mut self, actions: &mut Vec<Action>) -> Result<View, Error> {
        let mut dropped = vec![];
        let mut reference = self.reference.input.next(0, &mut dropped)?;
        while let Next::Item(item) = &reference
            && item.is_gap
        {
            if let Some(gap) = self.reference.input.take() {
                self.downstream.place_gap(&gap);
                dropped.push(gap);
            }
            reference = self.reference.input.next(0, &mut dropped)?;
        }
        let is_live = self.clock.is_live;
        let ignore = self.tunables.ignore_inactive_pads;
        let head = if let Next::Item(item) = &reference { Some(item.clone()) } else { None };
        let behind = head.as_ref().and_then(|head| self.behind(&self.reference.input, head));
        let distance = head.as_ref().and_then(|head| {
            let behind = if let Some(upcoming::Next::Frame(behind)) = &behind { Some(behind) } else { None };
            self.reference.distance(head, behind)
        });
        let mut sides = vec![];
        for i in 0..self.renditions.len() {
            if head.is_some() {
                self.meet(i, actions)?;
            }
            let offset = self.renditions[i].offset();
            let next = match self.renditions[i].input.next(offset, &mut dropped) {
                Ok(next) => next,
                Err(err) => {
                    if self.renditions[i].is_active() {
                        self.fail_rendition(i, Trouble::Stream, err, actions)?;
                    }
                    // Without times they are in step with nothing.
                    let rendition = &mut self.renditions[i];
                    dropped.extend(std::iter::from_fn(|| rendition.input.pop()));
                    if rendition.pad.is_eos() { Next::Eos } else { Next::Empty }
                }
            };
            sides.push(self.side_view(i, head.as_ref(), behind.as_ref(), distance, &next, actions));
        }
        if !dropped.is_empty() {
            actions.push(Action::Release(dropped));
        }
        let rule = match self.pairing {
            Pairing::Index => Rule { tolerance: Some(0), period: None },
            pairing => Rule {
                tolerance: self
                    .tunables
                    .pairing_tolerance
                    .or(distance.map(|distance| distance / 2))
                    .map(ClockTime::nseconds),
                period: head
                    .as_ref()
                    .filter(|_| pairing == Pairing::Timecode)
                    .and_then(|head| time_code_period(&head.buffer)),
            },
        };
        let doubt = match self.pairing {
            // Frames that are paired by their number are in order whatever their timestamps say.
            Pairing::Index if !is_live => Doubt::None,
            _ => self.reference.input.doubt_of(&reference, self.horizon()),
        };
        actions.extend(
            self.reference
                .input
                .note_doubt(&reference, doubt, self.clock.is_live)
                .map(|jump| Action::Post(self.reference.event(jump).to_structure())),
        );
        let watched = self.tunables.watch.window > 0 || self.metrics.is_some();
        Ok(View {
            reference: reference.head(None, doubt, self.margin()),
            reference_ignored: ignore && is_live && self.reference.input.pad.is_inactive(),
            sides,
            live: is_live,
            rule,
            leaving: self.downstream.next_time(),
            beat: self.reference.beat(watched.then_some(self.tunables.watch.window_interval)),
        })
    }

    /// A rendition as the schedule sees it. `distance`: how far apart the frames of the reference are, where that is known.
    fn side_view(
        &mut self,
        i: usize,
        head: Option<&Item>,
        behind: Option<&upcoming::Next<Item>>,
        distance: Option<ClockTime>,
        next: &Next,
        actions: &mut Vec<Action>,
    ) -> Side {
        let doubt = match self.pairing {
            Pairing::Index => Doubt::None,
            _ => self.renditions[i].input.doubt_of(next, self.horizon()),
        };
        let jump = self.renditions[i].input.note_doubt(next, doubt, self.clock.is_live);
        actions.extend(jump.map(|jump| Action::Post(self.renditions[i].event(jump))));
        let role = self.renditions[i].role(self.tunables.ignore_inactive_pads);
        let mut side = Side {
            role,
            head: next.head(None, doubt, self.margin()),
            behind: Behind::Nothing,
            reference_key: None,
            reference_before: None,
            reference_behind: Behind::Nothing,
            certain: self.certain(i, distance).nseconds(),
        };
        let (Some(reference), Next::Item(distorted)) = (head, next) else { return side };
        let [of_reference, of_distorted] = keys(self.pairing, reference, distorted);
        side.head = next.head(of_distorted, doubt, self.margin());
        side.reference_key = of_reference;
        if self.pairing != Pairing::Index {
            let of = |head: &Item,
                      next: Option<&upcoming::Next<Item>>,
                      key: &dyn Fn(&Item) -> Option<i64>| match next {
                // Its timestamp may be wild.
                Some(upcoming::Next::Frame(next)) if next.at > head.at.saturating_add(AHEAD) => {
                    Behind::Nothing
                }
                Some(upcoming::Next::Frame(next)) => key(next).map_or(Behind::Nothing, Behind::Key),
                Some(upcoming::Next::Unknown) => Behind::Unknown,
                Some(upcoming::Next::Gap(_) | upcoming::Next::Nothing) | None => Behind::Nothing,
            };
            let own = self.behind(&self.renditions[i].input, distorted);
            side.behind = of(distorted, own.as_ref(), &|own| keys(self.pairing, reference, own)[1]);
            side.reference_behind = of(reference, behind, &|behind| keys(self.pairing, behind, distorted)[0]);
            side.reference_before = self.reference.last_key;
        }
        side
    }

    /// Returns by how much partners may differ whatever comes behind them: by a quarter of the distance that the frames of
    /// either stream have.
    fn certain(&self, i: usize, distance: Option<ClockTime>) -> ClockTime {
        let own = self.renditions[i].input.cadence.close();
        match (self.pairing, distance.zip(own)) {
            (Pairing::Index, _) => ClockTime::ZERO,
            (_, Some((distance, own))) => distance.min(own) / 4,
            (_, None) => CERTAIN,
        }
    }

    /// The frame behind a head, unless it is not worth waiting for.
    fn behind(&self, input: &Input, head: &Item) -> Option<upcoming::Next<Item>> {
        input.behind(head).filter(|next| !(self.look.is_off() && matches!(next, upcoming::Next::Unknown)))
    }

    /// Does without the frames behind the heads for a while: they did not come.
    pub fn stop_looking(&mut self) {
        self.look.was_futile();
        self.reference.input.trust_head();
        self.renditions.iter_mut().for_each(|rendition| rendition.input.trust_head());
    }

    /// How far ahead of the deadline a head may be.
    fn margin(&self) -> ClockTime {
        self.clock.latency.saturating_mul(2).saturating_add(AHEAD)
    }

    /// Running time up to which heads can be right, where a clock says what time it is.
    fn horizon(&self) -> Option<ClockTime> {
        Some(self.clock.due?.saturating_add(self.margin()))
    }

    /// The base class has something at all pads that it waits for, so that it does not wait before it calls again.
    pub fn is_full(&self) -> bool {
        let has = |input: &Input| input.pad.has_buffer() || input.pad.is_eos();
        let ignored = |pad: &AggregatorPad| self.tunables.ignore_inactive_pads && pad.is_inactive();
        let inputs = self.renditions.iter().map(|rendition| &rendition.input).chain([&self.reference.input]);
        inputs.into_iter().all(|input| has(input) || self.clock.is_live && ignored(&input.pad))
    }

    /// Looks at the formats of the heads of the reference and of a rendition, which need not be compared with each other.
    fn meet(&mut self, i: usize, actions: &mut Vec<Action>) -> Result<(), Error> {
        if self.reference_info().is_none() {
            return Err(Error::NoCaps(self.reference.input.name()));
        }
        if self.renditions[i].is_active() && self.renditions[i].input.pad.has_buffer() {
            let scaling = self.scaling(i);
            self.renditions[i].meets(scaling.is_ok());
            match scaling {
                Err(err @ Error::NoCaps(_)) => self.fail_rendition(i, Trouble::Mismatch, err, actions)?,
                Err(_) => {}
                Ok(_) => self.tell_differences(i, actions),
            }
        }
        Ok(())
    }

    /// Leaves those pairs whose frames can be compared. Frames that upstream sent before it could know what is wanted
    /// are dropped, and their reference frame goes on without them: it may be what the source waits for.
    fn suiting(&mut self, paired: &[bool], actions: &mut Vec<Action>) -> Result<Vec<bool>, Error> {
        let mut suiting = paired.to_vec();
        for (i, is_paired) in suiting.iter_mut().enumerate().filter(|(_, is_paired)| **is_paired) {
            let Err(err) = self.scaling(i) else { continue };
            *is_paired = false;
            // Upstream was asked for another size or format, and for nothing else.
            let was_asked = !matches!(err, Error::Colors { .. } | Error::Orientation { .. });
            if !was_asked || !self.renditions[i].excuses_mismatch() {
                self.fail_rendition(i, Trouble::Mismatch, err, actions)?;
                continue;
            }
            let at = self.reached();
            let rendition = &mut self.renditions[i];
            gst::debug!(CAT, obj = rendition.pad, "dropped a frame from before renegotiation: {err}");
            actions.push(Action::Release(rendition.drop_head(at).into_iter().collect()));
        }
        Ok(suiting)
    }

    /// Decides what to do with the frames at hand.
    pub fn decide(&mut self, clock: Clock, actions: &mut Vec<Action>) -> Result<Decision, Error> {
        self.clock = clock;
        let step = self.next_step(clock.deadline, actions)?;
        gst::trace!(CAT, "{step:?} at {:?}", clock.deadline);
        Ok(Decision { step, generation: self.generation })
    }

    /// Returns what is to be done next. A new size comes before everything that looks at the frame.
    fn next_step(&mut self, deadline: Option<ClockTime>, actions: &mut Vec<Action>) -> Result<Step, Error> {
        if let Some(resized) = self.resized() {
            return Ok(Step::Resize(resized));
        }
        let view = self.view(actions)?;
        Ok(decide(&view, deadline))
    }

    /// Running time at which the element has to be woken up if nothing comes before.
    pub fn wake_up(&mut self) -> Option<ClockTime> {
        match self.wait() {
            Some(until) => until,
            None => Some(ClockTime::ZERO),
        }
    }

    /// There is something to do before the clock says so.
    pub fn has_work(&mut self) -> bool {
        self.failed || self.telling == 0 && self.downstream.can_leave(None) || self.wait().is_none()
    }

    /// Until when to wait; `None` if there is something to do, be it to report what is wrong.
    fn wait(&mut self) -> Option<Option<ClockTime>> {
        let mut actions = vec![];
        let step = self.next_step(None, &mut actions);
        self.deferred.append(&mut actions);
        match step {
            Ok(Step::Wait(until)) if self.deferred.is_empty() => Some(until),
            Ok(_) | Err(_) => None,
        }
    }

    /// What came up when nothing could be carried out.
    pub fn take_deferred(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.deferred)
    }

    /// The pictures that a step is about, where somebody looks at pictures.
    pub fn to_see(&self, decision: &Decision) -> ToSee {
        let mut see = ToSee::default();
        if decision.generation != self.generation {
            return see;
        }
        let head = |input: &Input| input.pad.peek_buffer().zip(input.stored.clone());
        let wants = |i: usize| self.renditions[i].is_active() && self.renditions[i].wants_thumbnails();
        let distorted = |i: usize| {
            let rendition = &self.renditions[i];
            head(&rendition.input).map(|(buffer, info)| (rendition.number, buffer, info))
        };
        match &decision.step {
            Step::Take(paired) => {
                if (0..paired.len()).any(wants) {
                    see.reference = head(&self.reference.input);
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
        actions: &mut Vec<Action>,
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
                self.check_last_caps(actions)?;
                let at = self.reached();
                for rendition in &mut self.renditions {
                    let mut rest: Vec<_> = std::iter::from_fn(|| rendition.drop_head(at)).collect();
                    rest.extend(rendition.shown.take().map(|shown| shown.buffer));
                    actions.push(Action::Release(rest));
                }
                self.displayed = None;
                self.end_section("eos", actions);
                self.finish_all_results(actions);
                self.check_coverage()?;
            }
        }
        self.leave(clock.deadline, actions);
        if let Some(now) = clock.deadline.or(self.reference.last_time) {
            self.advance(now, actions);
        }
        Ok(())
    }

    /// Drops the head of a rendition.
    fn drop_head(&mut self, i: usize, seen: &Seen, clock: Clock, actions: &mut Vec<Action>) {
        let offset = self.renditions[i].offset();
        let mut dropped = vec![];
        if let Ok(Next::Item(item)) = self.renditions[i].input.next(offset, &mut dropped) {
            if item.is_gap || !self.renditions[i].is_active() {
                dropped.extend(self.renditions[i].input.take());
            } else {
                self.reference.heard(item.at, self.reference.input.cadence.typical());
                if !self.reference.input.pad.has_buffer() {
                    let event = self.reference.seen(item.at, false, self.excuses(item.at, clock));
                    actions.extend(event.map(|event| Action::Post(event.to_structure())));
                    if self.reference.is_excused() {
                        self.note_overload(item.at, Some(Cause::Machine), actions);
                    }
                }
                gst::log!(CAT, obj = self.renditions[i].pad, "frame {} has no reference frame", item.at);
                self.look_at_distorted(i, item.at, self.renditions[i].unmoved(item.at), seen, actions);
                let at = self.reference.last_time.unwrap_or(item.at);
                self.renditions[i].input.cadence.push(item.at);
                dropped.extend(self.renditions[i].drop_head(at));
            }
        }
        actions.push(Action::Release(dropped));
    }

    /// Takes a frame whose timestamp is wild. It has no partner, and no time runs by it. Where a clock does, the frame does
    /// not leave either: downstream would wait for its time to come.
    fn skip(&mut self, which: Option<usize>, clock: Clock, actions: &mut Vec<Action>) -> Result<(), Error> {
        let now = self.reached();
        if let Some(i) = which {
            let rendition = &mut self.renditions[i];
            let unmatched = u64::from(rendition.is_active());
            let dropped = rendition.input.skip();
            rendition.count(now, window::Counts { unmatched, ..window::Counts::default() });
            actions.push(Action::Release(dropped.into_iter().collect()));
            return Ok(());
        }
        let Some(buffer) = self.reference.input.pad.peek_buffer() else { return Ok(()) };
        let Some(stamp) = self.reference.stamp(&buffer, true)? else { return Ok(()) };
        let Some(reference) = self.reference.input.skip() else { return Ok(()) };
        let mut compared = vec![];
        for rendition in self.renditions.iter_mut().filter(|rendition| rendition.is_active()) {
            rendition.stamped(&stamp);
            rendition.count(now, window::Counts { unpaired: 1, ..window::Counts::default() });
            let outcome = Outcome::Unpaired;
            let (rendition, section) = (rendition.number, rendition.section_number);
            compared.push(Compared { rendition, section, outcome, frame: None });
        }
        self.submit(stamp.index, stamp.running_time, &reference, vec![]);
        let buffer = match self.output {
            _ if clock.is_live => {
                actions.push(Action::Release(vec![reference]));
                None
            }
            Output::Distorted => self.display(None, &reference),
            Output::Reference | Output::Heatmap => Some(reference),
        };
        let info = self.reference.input.stored.clone().filter(|_| self.output == Output::Heatmap);
        let heat = info.map(|info| Heat { info, damage: Damage::None });
        self.downstream.push(Delayed { stamp, compared, buffer, heat });
        Ok(())
    }

    /// Hands a reference frame to the worker, with its partners. Without any it goes on with the motion of the reference,
    /// as far as the worker keeps up.
    fn submit(&mut self, index: u64, at: ClockTime, reference: &gst::Buffer, distorted: Vec<(u64, Frame)>) {
        let Some(info) = self.reference.input.stored.clone() else { return };
        if distorted.is_empty() {
            if self.plan.lookback() == 0 {
                return;
            }
            if self.history_in_flight > self.used.depth + HISTORY {
                gst::debug!(CAT, "frame {index} is missing in the history of the reference");
                self.jobs.end_run(true);
                return;
            }
            self.history_in_flight += 1;
        } else {
            self.in_flight += 1;
        }
        let reference = Frame { buffer: reference.clone(), info };
        self.jobs.submit(Group { index, running_time: at, reference, distorted });
    }

    /// Frames that do not suit may have been taken for those from before upstream heard of it. At the end it is clear that
    /// they were not. Of a stream that had ended by the time the reference changed, there were none.
    fn check_last_caps(&mut self, actions: &mut Vec<Action>) -> Result<(), Error> {
        for i in 0..self.renditions.len() {
            let unsuited = self.renditions[i].is_active() && self.renditions[i].is_unsuited();
            if let Some(err) = self.scaling(i).err().filter(|_| unsuited) {
                self.fail_rendition(i, Trouble::Mismatch, err, actions)?;
            }
        }
        Ok(())
    }

    /// Too many frames without a score make all the others worth little.
    fn check_coverage(&self) -> Result<(), Error> {
        for rendition in self.renditions.iter().filter(|rendition| rendition.settings.enabled) {
            let (coverage, least) = (rendition.counts().coverage(), self.min_coverage);
            if coverage < least {
                return Err(Error::Coverage { pad: rendition.input.name(), coverage, least });
            }
        }
        Ok(())
    }

    /// Reports that nothing has come for a while. Scores that waited for the next pair have come.
    fn silence(&mut self, now: ClockTime, clock: Clock, actions: &mut Vec<Action>) {
        let excused = self.excuses(now, clock);
        let (since, event) = self.reference.silence(now, excused);
        actions.extend(event.map(|event| Action::Post(event.to_structure())));
        for rendition in self.renditions.iter_mut().filter(|rendition| rendition.is_active()) {
            let event = rendition.health.silence(since, now, excused);
            actions.extend(event.map(|event| Action::Post(rendition.event(event))));
        }
        if self.reference.is_excused() {
            self.note_overload(now, Some(Cause::Machine), actions);
        }
    }

    /// Frames that are missing now are not the fault of their streams.
    fn excuses(&self, now: ClockTime, clock: Clock) -> bool {
        clock.starved || self.overload.is_recent(now)
    }

    /// Takes a frame, and why the machine had no time for it, if so.
    fn note_overload(&mut self, at: ClockTime, cause: Option<Cause>, actions: &mut Vec<Action>) {
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
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let Some(buffer) = self.reference.input.pad.peek_buffer() else { return Ok(()) };
        let paired = self.suiting(paired, actions)?;
        let active: Vec<usize> =
            (0..self.renditions.len()).filter(|i| self.renditions[*i].is_active()).collect();
        let repeats = self.tunables.missing_frame == MissingFrame::Repeat;
        let compares = |i: &&usize| paired[**i] || repeats && self.renditions[**i].shown.is_some();
        let partners: Vec<usize> = active.iter().filter(compares).copied().collect();
        if !partners.is_empty() && self.must_prepare(&partners) {
            self.prepare(&partners, &buffer, !clock.is_live && !self.may_skip(clock))?;
        }
        let Ok(Next::Item(head)) = self.reference.input.next(0, &mut vec![]) else { return Ok(()) };
        let Some(stamp) = self.reference.stamp(&buffer, false)? else { return Ok(()) };
        let at = stamp.running_time;
        if self.pairing != Pairing::Index && self.reference.input.cadence.is_gap(at) {
            gst::debug!(CAT, "reference frames are missing before frame {} at {at}", stamp.index);
            self.jobs.gap();
        }
        self.reference.note(&head, self.pairing);
        self.look.taken();
        self.announce_latency(stamp.lasts, actions);
        let late = self.is_late(&stamp, clock);
        let excused = late || self.excuses(at, clock);
        let event = self.reference.seen(at, true, excused);
        actions.extend(event.map(|event| Action::Post(event.to_structure())));
        self.reference.heard(at, stamp.lasts);
        let Some(reference) = self.reference.input.take() else { return Ok(()) };
        self.drop_idle(at, actions);
        let since = Instant::now();
        let mut compared = vec![];
        let mut submitted = vec![];
        let mut shown = vec![];
        let mut displayed = None;
        for (i, is_paired) in paired.iter().copied().enumerate() {
            if !active.contains(&i) {
                let rendition = &mut self.renditions[i];
                if rendition.is_failed() && rendition.settings.enabled && !rendition.leaving {
                    let (rendition, section) = (rendition.number, rendition.section_number);
                    compared.push(Compared { rendition, section, outcome: Outcome::Failed, frame: None });
                }
                continue;
            }
            let found =
                if is_paired { self.show(i) } else { self.renditions[i].shown.clone().filter(|_| repeats) };
            let has_partner = found.is_some();
            if i == DISPLAYED && self.output == Output::Distorted {
                displayed = found.clone();
            }
            if let (Some(Shown { running_time, .. }), true) = (&found, is_paired) {
                shown.push((i, *running_time, self.renditions[i].unmoved(*running_time)));
            }
            let rendition = &mut self.renditions[i];
            rendition.stamped(&stamp);
            for event in rendition.health.frame(at, is_paired, excused) {
                actions.push(Action::Post(rendition.event(event)));
            }
            rendition.absent = rendition.health.is_dropped_out();
            let counts = window::Counts {
                unpaired: u64::from(!has_partner),
                skipped: u64::from(has_partner && late),
                repeated: u64::from(has_partner && !is_paired),
                ..window::Counts::default()
            };
            rendition.count(at, counts);
            let frame = found.as_ref().filter(|_| self.attach_frames).map(Shown::sample);
            let outcome = match found {
                None if self.tunables.missing_frame == MissingFrame::Error => {
                    return Err(Error::Missing { pad: rendition.input.name(), at });
                }
                None => Outcome::Unpaired,
                Some(_) if late => Outcome::Skipped,
                Some(Shown { buffer, running_time, .. }) => {
                    if self.has_results
                        && let (Some(reference), Some(distorted)) =
                            (&self.reference.input.info, &rendition.input.info)
                        && !std::mem::replace(&mut rendition.has_begun, true)
                    {
                        // Written with the first score: what makes it is known by then.
                        rendition.heading = Some(Heading {
                            columns: columns(&self.plan),
                            pad: rendition.input.name(),
                            label: rendition.label(),
                            reference: Format::of(reference),
                            distorted: Format::of(distorted),
                            provenance: self.provenance.clone(),
                        });
                    }
                    let stored = rendition.input.stored.clone();
                    submitted.extend(stored.map(|info| (rendition.number, Frame { buffer, info })));
                    let provisional = rendition.is_provisional(at);
                    actions.extend(rendition.gave_up(at).map(|event| Action::Post(rendition.event(event))));
                    Outcome::Pending(Pair {
                        since,
                        dist_running_time: running_time,
                        offset: rendition.offset(),
                        repeated: counts.repeated > 0,
                        provisional,
                    })
                }
            };
            compared.push(Compared {
                rendition: rendition.number,
                section: rendition.section_number,
                outcome,
                frame,
            });
        }
        gst::log!(CAT, "frame {} at {at}: {} of {} compared", stamp.index, submitted.len(), active.len());
        let info = self.reference.input.stored.clone();
        let first = self.renditions.get(DISPLAYED).map(|rendition| rendition.number);
        let damage = if submitted.iter().any(|(number, _)| Some(*number) == first) {
            Damage::Pending
        } else {
            Damage::None
        };
        self.submit(stamp.index, at, &reference, submitted);
        let heat = info.filter(|_| self.output == Output::Heatmap).map(|info| Heat { info, damage });
        let buffer = match self.output {
            Output::Distorted => self.display(displayed, &reference),
            Output::Reference | Output::Heatmap => Some(reference),
        };
        let left_out = late && paired.contains(&true);
        if left_out {
            self.left_out(&stamp, clock, actions);
        }
        let missed = || active.iter().any(|i| self.renditions[*i].health.is_excused());
        let cause = left_out.then(|| self.cause_of_lateness(&stamp));
        let cause = cause.or_else(|| missed().then_some(Cause::Machine));
        self.note_overload(at, cause, actions);
        self.downstream.push(Delayed { stamp, compared, buffer, heat });
        // What is found now counts from the next frame on.
        if let Some(thumbnail) = &seen.reference {
            for i in active {
                let found = self.renditions[i].align_reference(at, thumbnail);
                self.aligned(i, found, actions);
            }
        }
        for (i, at, unmoved) in shown {
            self.look_at_distorted(i, at, unmoved, seen, actions);
        }
        Ok(())
    }

    /// The distorted frame that leaves in place of a reference frame: the one that was found, else the last one again,
    /// as a viewer would see it. None before the first.
    fn display(&mut self, found: Option<Shown>, reference: &gst::BufferRef) -> Option<gst::Buffer> {
        if let Some(found) = found {
            let mut caps = found.caps.clone()?;
            // They come as often as the reference's.
            caps.make_mut().set("framerate", self.reference_info()?.fps());
            self.displayed = Some(found);
            if self.displayed_caps.as_ref() != Some(&caps) {
                self.downstream.set_caps(caps.clone());
                self.displayed_caps = Some(caps);
            }
        }
        let mut buffer = self.displayed.as_ref()?.buffer.clone();
        let to = buffer.make_mut();
        to.set_pts(reference.pts());
        to.set_dts(reference.dts());
        to.set_duration(reference.duration());
        to.set_offset(reference.offset());
        to.set_offset_end(reference.offset_end());
        Some(buffer)
    }

    /// Drops the frames of idle renditions up to there: in step with the reference, as the base class waits for frames
    /// on all pads.
    fn drop_idle(&mut self, at: ClockTime, actions: &mut Vec<Action>) {
        let mut dropped = vec![];
        for rendition in self.renditions.iter_mut().filter(|rendition| !rendition.is_active()) {
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
        let rendition = &mut self.renditions[i];
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
        actions: &mut Vec<Action>,
    ) {
        let rendition = &mut self.renditions[i];
        let Some((_, thumbnail)) = seen.distorted.iter().find(|(number, _)| *number == rendition.number)
        else {
            return;
        };
        if let Some(reference) = &seen.reference {
            for event in rendition.health.pictures(at, reference, thumbnail) {
                actions.push(Action::Post(rendition.event(event)));
            }
        }
        let found = rendition.align_distorted(unmoved, thumbnail);
        self.aligned(i, found, actions);
    }

    /// Reports an offset that was found. If frames are moved by it, others are paired from now on, and those that were
    /// paired wrongly are named.
    fn aligned(&mut self, i: usize, found: Option<Alignment>, actions: &mut Vec<Action>) {
        let Some(Alignment { event, wrong_since }) = found else { return };
        let rendition = &self.renditions[i];
        let offset = event.offset;
        gst::debug!(CAT, obj = rendition.pad, "late by {offset:?} ns");
        actions.push(Action::Post(rendition.event(event)));
        if let (Some(first), Some(last)) = (wrong_since, self.reference.last_time)
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
        if rendition.is_moved() {
            self.announce_latency(None, actions);
        }
    }

    /// Whether scoring has to be left out now.
    fn is_late(&self, stamp: &Stamp, clock: Clock) -> bool {
        // The frame before has left by then, if nothing holds things up here.
        let frame = stamp.lasts.unwrap_or(ClockTime::ZERO);
        let overdue = clock.due.is_some_and(|due| stamp.running_time.saturating_add(frame) < due);
        self.may_skip(clock) && (overdue || !self.has_room())
    }

    /// Why a pair came too late to be scored.
    fn cause_of_lateness(&self, stamp: &Stamp) -> Cause {
        let due = stamp.running_time.saturating_add(stamp.lasts.unwrap_or(ClockTime::ZERO));
        if self.has_room() && self.pushing.excuses(due) { Cause::Downstream } else { Cause::WorkerThread }
    }

    /// Reports pairs that are left out.
    fn left_out(&self, stamp: &Stamp, clock: Clock, actions: &mut Vec<Action>) {
        let mut counts = (0, 0);
        for rendition in &self.renditions {
            let of = rendition.counts();
            counts = (counts.0 + of.scored, counts.1 + of.frames.skipped);
        }
        let late = clock.due.and_then(|due| due.checked_sub(stamp.running_time));
        gst::debug!(CAT, "frame {} is left out, late by {late:?}", stamp.index);
        actions.push(Action::Qos { stamp: stamp.clone(), late, scored: counts.0, skipped: counts.1 });
    }

    /// Looks for pads that have had nothing for longer than `patience` while frames wait, or come, at another one. Without
    /// patience nothing is meant to move.
    pub fn look_for_stall(&mut self, now: Instant, patience: Option<Duration>, actions: &mut Vec<Action>) {
        let (is_live, failed, ignore) = (self.clock.is_live, self.failed, self.tunables.ignore_inactive_pads);
        // Where no clock runs, the base class waits for all pads.
        let waited_for = |rendition: &Rendition| match rendition.role(ignore && is_live) {
            Role::Active | Role::Absent => true,
            Role::Idle => !is_live && !rendition.leaving,
            Role::Ignored => false,
        };
        let waited_for: Vec<bool> =
            std::iter::once(true).chain(self.renditions.iter().map(waited_for)).collect();
        let mut busy = vec![];
        for (input, waited_for) in self.inputs().zip(&waited_for) {
            let has_buffer = input.pad.has_buffer();
            let ended = input.pad.is_eos() || !waited_for || failed;
            let moved = input.quiet.look(now, input.popped, has_buffer || ended);
            if moved && !ended {
                busy.push(input.name());
            }
            if patience.is_none() {
                input.quiet.rest(now);
            }
        }
        let mut changes = vec![];
        for (i, input) in self.inputs().enumerate() {
            changes.extend(input.quiet.judge(now, patience, busy.is_empty()).map(|stalled| (i, stalled)));
        }
        for (i, stalled) in changes {
            let event = EventMessage {
                event: Event::Stalled,
                state: if stalled { EventState::Raised } else { EventState::Cleared },
                running_time: self.reference.last_time,
                ..EventMessage::default()
            };
            let input = self.inputs().nth(i).map(|input| (input.name(), input.pad.is_linked()));
            let posted = match i.checked_sub(1).and_then(|i| self.renditions.get(i)) {
                Some(rendition) => rendition.event(event),
                None => self.reference.event(event).to_structure(),
            };
            actions.push(Action::Post(posted));
            if let (Some((pad, linked)), Some(time), true) = (input, patience, stalled) {
                actions.push(Action::Warn(Error::Stalled { pad, linked, busy: busy.clone(), time, is_live }));
            }
        }
    }

    /// The sink pads: that of the reference, and then those of the renditions.
    fn inputs(&mut self) -> impl Iterator<Item = &mut Input> {
        let renditions = self.renditions.iter_mut().map(|rendition| &mut rendition.input);
        std::iter::once(&mut self.reference.input).chain(renditions)
    }

    // Scores.

    /// Has the scores of these renditions completed that wait for later reference frames. Where none are named, the row of
    /// reference frames ends for all; `broken` says that some are missing.
    pub fn complete(&mut self, renditions: Option<&[u64]>, broken: bool) {
        match renditions {
            Some(numbers) => numbers.iter().for_each(|number| self.jobs.finish(*number, broken)),
            None => self.jobs.end_run(broken),
        }
    }

    /// The session is not set up for the frames and renditions at hand.
    fn must_prepare(&self, partners: &[usize]) -> bool {
        !self.prepared || partners.iter().any(|i| self.renditions[*i].prepared.is_none())
    }

    /// Has the session set up for the format of the reference and for all renditions, those too that may come later: it
    /// has to forget all history for that.
    fn prepare(&mut self, partners: &[usize], head: &gst::Buffer, patient: bool) -> Result<(), Error> {
        let reference = self.reference_info().cloned();
        let reference = reference.ok_or_else(|| Error::NoCaps(self.reference.input.name()))?;
        let unknown = || Error::Caps {
            pad: self.reference.input.name(),
            caps: self.reference.input.caps.clone().unwrap_or_else(gst::Caps::new_empty),
        };
        let geometry = geometry(&reference).ok_or_else(unknown)?;
        // Scores of pairs before are those of an unbroken row.
        let at = self.reached();
        self.submit(self.reference.next_index(), at, head, vec![]);
        let mut renditions: Vec<(u64, Option<Scaling>)> = vec![];
        for rendition in &mut self.renditions {
            // What cannot be compared now may have the size of the reference when it can.
            let scaling = rendition.scaling(&self.reference.input, self.rules).unwrap_or(None);
            rendition.prepared = Some(scaling);
            renditions.push((rendition.number, scaling));
        }
        let heads = partners.iter().filter_map(|i| self.renditions[*i].input.pad.peek_buffer());
        let heads = std::iter::once(head.clone()).chain(heads).collect();
        gst::info!(CAT, "scoring {geometry:?}: {renditions:?}");
        self.follow = None;
        self.jobs.prepare(Setup { geometry, renditions, heads, patient });
        self.prepared = true;
        Ok(())
    }

    /// What the worker has told was carried out.
    pub fn told(&mut self) {
        self.telling = self.telling.saturating_sub(1);
    }

    /// Takes what the worker tells. [`State::told`] comes next.
    pub fn hear(&mut self, news: Vec<News>, actions: &mut Vec<Action>) -> Result<(), Error> {
        self.telling += 1;
        for news in news {
            match news {
                News::Scored { rendition, index, score } => self.scored(rendition, index, score, actions),
                News::Damaged { rendition, index, damage } => {
                    if self.renditions.get(DISPLAYED).is_some_and(|first| first.number == rendition) {
                        self.downstream.set_damage(index, damage);
                    }
                }
                News::Failed { rendition, index, reason } => {
                    if let Some((_, compared)) = self.downstream.pending(rendition, index) {
                        compared.outcome = Outcome::Failed;
                    }
                    self.downstream.set_damage(index, None);
                    if let (Some(i), Some(source)) = (self.numbered(rendition), reason) {
                        let err = Error::Buffer { pad: self.renditions[i].input.name(), source };
                        self.fail_rendition(i, Trouble::Stream, err, actions)?;
                    }
                }
                News::Verified { rendition, index, running_time, wrong } => {
                    self.verified(rendition, index, running_time, wrong, actions)?;
                }
                News::NotVerified(groups) => self.not_verified += groups,
                News::Done { pairs: false, .. } => {
                    self.history_in_flight = self.history_in_flight.saturating_sub(1);
                }
                News::Done { pairs: true, taken } => {
                    self.in_flight = self.in_flight.saturating_sub(1);
                    if let Some(taken) = taken {
                        let now = self.now();
                        self.compute_time.push(now, taken.as_secs_f64());
                    }
                }
                News::Backend(used) => {
                    self.gpu = used.gpu.as_ref().map(|gpu| gpu.info().to_string()).or(self.gpu.take());
                    self.used = used;
                }
                News::Error(err) => return Err(err),
            }
        }
        Ok(())
    }

    /// Takes the result for a frame of a rendition.
    fn scored(
        &mut self,
        number: u64,
        index: u64,
        score: engine::session::PairScore,
        actions: &mut Vec<Action>,
    ) {
        let Some(i) = self.numbered(number) else { return };
        let rendition = &mut self.renditions[i];
        let Some((stamp, compared)) = self.downstream.pending(number, index) else { return };
        let Outcome::Pending(pair) = compared.outcome else { return };
        let at = stamp.running_time;
        let written = self.has_results && (self.provisional_results || !pair.provisional);
        if written {
            rendition.add_totals(&score.totals);
        }
        let Some(values) = score.values else {
            compared.outcome = Outcome::Skipped;
            rendition.count(at, window::Counts { skipped: 1, ..Default::default() });
            return;
        };
        let (stamp, section) = (stamp.clone(), compared.section);
        let state = match (pair.provisional, score.discont) {
            (true, _) => ScoreState::Aligning,
            (_, true) => ScoreState::Discont,
            _ => ScoreState::Scored,
        };
        compared.outcome = Outcome::Scored { values: values.clone(), state };
        let first = self.plan.models.first().and_then(|model| values.get(model.column)).copied();
        gst::log!(CAT, obj = rendition.pad, "frame {index}: {first:?}");
        match state {
            ScoreState::Aligning => {
                rendition.count(at, window::Counts { aligning: 1, ..Default::default() });
            }
            ScoreState::Discont => {
                rendition.count(at, window::Counts { discont: 1, ..Default::default() });
            }
            _ => rendition.scored(&stamp, &values, first, pair.repeated),
        }
        if written {
            let row = Row {
                index,
                timestamp: stamp.timestamp.map(|time| time.0),
                running_time: at,
                time_code: stamp.time_code.clone(),
                offset: pair.offset.saturating_neg(),
                state,
                section,
                coverage: rendition.run_counts().coverage(),
                values: values.clone(),
                totals: score.totals,
            };
            if let Some(heading) = rendition.heading.take() {
                let provenance = heading.provenance.on(&self.used.made_by);
                let heading = Heading { provenance, ..heading };
                actions.push(Action::Write(Job::Begin(number, Box::new(heading))));
            }
            actions.push(Action::Write(Job::Row(number, row)));
        }
        if self.tunables.frame_message {
            let message = FrameMessage {
                common: Common {
                    timestamp: stamp.timestamp.map(|time| time.0),
                    stream_time: stamp.stream_time.map(|time| time.0),
                    running_time: Some(at),
                    duration: stamp.duration.map(|time| time.0),
                    section,
                    ..rendition.common(&self.plan, &values, self.reported)
                },
                index: index_field(stamp.index),
                state,
                dist_running_time: Some(pair.dist_running_time),
                discont: score.discont,
                repeated: pair.repeated,
                compute_time: running(pair.since.elapsed().as_nanos() as u64),
            };
            actions.push(Action::Post(message.to_structure()));
        }
        self.advance_rendition(i, at, actions);
        if state == ScoreState::Scored
            && let Some(score) = first
            && let Some(event) = self.renditions[i].health.scored(at, score)
        {
            actions.push(Action::Post(self.renditions[i].event(event)));
        }
        self.write_metrics(at, actions);
    }

    /// Takes what has come of computing a frame again.
    fn verified(
        &mut self,
        number: u64,
        index: u64,
        at: ClockTime,
        wrong: Option<Wrong>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let Some(i) = self.numbered(number) else { return Ok(()) };
        let rendition = &mut self.renditions[i];
        let counts = window::Counts { verified: 1, wrong: wrong.is_some().into(), ..Default::default() };
        rendition.count(at, counts);
        let Some(Wrong { difference, told }) = wrong else { return Ok(()) };
        let score = match told {
            Told::Nothing => "its score was corrected before it was told",
            Told::Earlier => "its score was corrected before it was told, that of the frame before was not",
            Told::All => "its score was told before",
        };
        let device = self.gpu.clone().unwrap_or_default();
        gst::error!(CAT, obj = rendition.pad, "frame {index} is wrong on {device}: {difference}; {score}");
        let event = EventMessage {
            event: Event::WrongScore,
            running_time: Some(at),
            frame: Some(index),
            metric: Some(difference.metric.clone()),
            expected: Some(difference.expected.clone()),
            got: Some(difference.got.clone()),
            reason: Some(score.into()),
            ..EventMessage::default()
        };
        actions.push(Action::Post(rendition.event(event)));
        match self.tunables.on_wrong_score {
            OnWrongScore::Error => Err(Error::WrongScore { device, frame: index, difference }),
            OnWrongScore::Report | OnWrongScore::Cpu => Ok(()),
        }
    }

    /// No frame before `now` is waited for any more: windows end even if nothing comes.
    fn advance(&mut self, now: ClockTime, actions: &mut Vec<Action>) {
        let event = self.reference.advance(now);
        actions.extend(event.map(|event| Action::Post(self.reference.event(event).to_structure())));
        let events = self.overload.advance(now);
        actions.extend(events.into_iter().map(|event| self.overload_event(event)));
        for i in 0..self.renditions.len() {
            let pending = self.downstream.oldest_pending(self.renditions[i].number);
            self.advance_rendition(i, pending.map_or(now, |pending| pending.min(now)), actions);
        }
        // Otherwise with the scores to come.
        if self.downstream.count_pending() == 0 {
            self.write_metrics(now, actions);
        }
    }

    fn advance_rendition(&mut self, i: usize, now: ClockTime, actions: &mut Vec<Action>) {
        let (ended, events) = self.renditions[i].health.advance(now);
        actions.extend(events.into_iter().map(|event| Action::Post(self.renditions[i].event(event))));
        for figures in ended {
            let (length, method) = (self.tunables.watch.window, self.tunables.pool_method);
            let message = self.renditions[i].window(&self.plan, &figures, length, method);
            actions.push(Action::Post(message));
        }
    }

    /// Has the metrics file replaced, once per interval.
    fn write_metrics(&mut self, now: ClockTime, actions: &mut Vec<Action>) {
        let Some(path) = &self.metrics else { return };
        let interval = now.nseconds() / self.tunables.watch.window_interval.max(1);
        if self.metrics_interval.is_none_or(|last| interval > last) {
            self.metrics_interval = Some(interval);
            actions.push(Action::Write(Job::Metrics(path.clone(), self.figures())));
        }
    }

    /// Figures for Prometheus.
    pub fn figures(&self) -> prometheus::Figures {
        let model = self.plan.models.first().map(|first| first.model.name()).unwrap_or_default();
        let pad = |rendition: &Rendition| {
            let all = || stats(rendition.summary());
            let figures = rendition.health.figures().map_or_else(all, |window| stats(&window.summary));
            let score = |(stat, value)| prometheus::Score { model: model.into(), stat, value };
            let counts = rendition.counts();
            prometheus::Pad {
                name: rendition.pad.name().to_string(),
                label: rendition.label(),
                scores: figures.fields().into_iter().map(score).collect(),
                frames: vec![
                    ("scored", counts.scored - counts.scored_again),
                    ("unpaired", counts.frames.unpaired),
                    ("skipped", counts.frames.skipped),
                    ("repeated", counts.frames.repeated),
                    ("unmatched", counts.frames.unmatched),
                    ("aligning", counts.frames.aligning),
                    ("discont", counts.frames.discont),
                ],
                alarms: rendition
                    .health
                    .alarms()
                    .into_iter()
                    .chain([(Event::Failed, rendition.is_failed())])
                    .chain([(Event::Stalled, rendition.input.quiet.is_stalled())])
                    .map(|(event, raised)| (event.name(), raised))
                    .collect(),
                offset: rendition.estimate().map(|estimate| estimate.offset as f64 / 1e9),
                last_score: rendition.last_score_time(),
                verified: counts.frames.verified,
                wrong: counts.frames.wrong,
            }
        };
        let quantiles = [0.5, 0.9, 0.99];
        let time = self.compute_time.mean().map(|_| prometheus::ComputeTime {
            quantiles: quantiles
                .into_iter()
                .zip(self.compute_time.quantiles(self.recent(), self.now(), quantiles))
                .collect(),
            sum: self.compute_time.sum(),
            count: self.compute_time.count(),
        });
        let (pads, not_verified) = (self.renditions.iter().map(pad).collect(), self.not_verified);
        prometheus::Figures { pads, compute_time: time, not_verified }
    }

    // What leaves.

    /// Lets frames go whose outcome is known or that are due.
    pub fn leave(&mut self, deadline: Option<ClockTime>, actions: &mut Vec<Action>) {
        while self.telling == 0
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
                let meta = self.meta(&frame.stamp, &frame.compared);
                let frames = frame.compared.into_iter().filter_map(|of| Some((of.rendition, of.frame?)));
                let frames = frames.filter_map(|(number, frame)| {
                    Some((self.renditions[self.numbered(number)?].pad.name(), frame))
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

    fn meta(&self, stamp: &Stamp, compared: &[Compared]) -> ScoreMeta {
        let score = |compared: &Compared| {
            let rendition = &self.renditions[self.numbered(compared.rendition)?];
            let state = match compared.outcome {
                Outcome::Scored { state, .. } => state,
                Outcome::Pending(_) => ScoreState::Late,
                Outcome::Skipped => ScoreState::Skipped,
                Outcome::Unpaired => ScoreState::Unpaired,
                Outcome::Failed => ScoreState::Failed,
            };
            let (pad, label) = (rendition.pad.name().to_string(), rendition.label());
            let score = PadScore { pad, label, section: compared.section, state, ..PadScore::default() };
            let Outcome::Scored { values, .. } = &compared.outcome else { return Some(score) };
            let common = rendition.common(&self.plan, values, self.reported);
            Some(PadScore {
                score: Some(common.score),
                models: common.models,
                features: common.features,
                ..score
            })
        };
        ScoreMeta {
            index: index_field(stamp.index),
            section: self.renditions.first().map_or(0, |rendition| rendition.section_number),
            running_time: Some(stamp.running_time),
            scores: compared.iter().filter_map(score).collect(),
        }
    }

    /// Lets all frames leave, and posts what the section comes to. All runs have ended, and nothing is in flight.
    fn end_section(&mut self, reason: &str, actions: &mut Vec<Action>) {
        gst::info!(CAT, "end of a section: {reason}");
        self.jobs.end_run(false);
        self.leave(None, actions);
        for i in 0..self.renditions.len() {
            self.end_rendition(i, reason, actions);
        }
        let now = self.reached();
        let event = self.reference.end(now);
        actions.extend(event.map(|event| Action::Post(self.reference.event(event).to_structure())));
        let events = self.overload.end(now);
        actions.extend(events.into_iter().map(|event| self.overload_event(event)));
        self.prepared = false;
    }

    /// Posts what the section of a rendition comes to.
    fn end_rendition(&mut self, i: usize, reason: &str, actions: &mut Vec<Action>) {
        let now = self.reached();
        let rendition = &mut self.renditions[i];
        if reason != "reset" {
            let events = rendition.health.end_section(now);
            actions.extend(events.into_iter().map(|event| Action::Post(rendition.event(event))));
        }
        let method: PoolMethod = self.tunables.pool_method;
        let provenance = self.provenance.on(&self.used.made_by).to_structure();
        let pooled = rendition.end_section(&self.plan, provenance, reason, method, self.reported);
        actions.extend(pooled.map(Action::Post));
    }

    /// Completes the results files, once all scores have come. A stream that could not be scored in the end has no
    /// complete results.
    pub fn finish_all_results(&self, actions: &mut Vec<Action>) {
        self.renditions.iter().for_each(|rendition| self.finish_results(rendition, actions));
    }

    /// Takes over what the application has said of the results since the last step. At the stop, when no lock is held.
    pub fn hear_of_results(&mut self) {
        for rendition in &mut self.renditions {
            let said = rendition.pad.settings();
            (rendition.settings.incomplete, rendition.settings.damaged) = (said.incomplete, said.damaged);
        }
    }

    fn finish_results(&self, rendition: &Rendition, actions: &mut Vec<Action>) {
        if self.has_results && self.reference.has_begun() {
            let totals = rendition.results_totals();
            let geometry = self.reference_info().and_then(|info| geometry(info));
            let aggregates = geometry.map(|geometry| totals.aggregates(&self.plan, geometry));
            let ending = Ending {
                aggregates: named(&aggregates.unwrap_or_default()),
                offset: rendition.offset().saturating_neg(),
                coverage: rendition.run_counts().coverage(),
                frames: named(&rendition.run_counts().named()),
                backend: named(&self.used.made_by),
                incomplete: rendition.settings.incomplete.clone(),
                damaged: rendition.settings.damaged.clone(),
            };
            actions.push(Action::Write(match rendition.failure() {
                Some(reason) => Job::Abandon(rendition.number, reason.into()),
                None => Job::Finish(rendition.number, ending),
            }));
        }
    }
}

/// Frame numbers are `int` in messages, as in GStreamer's `vmaf` element; they start again from 0 after 2^31.
fn index_field(index: u64) -> i32 {
    (index & 0x7fff_ffff) as i32
}
