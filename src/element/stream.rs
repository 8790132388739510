// SPDX-License-Identifier: MPL-2.0

//! What happens between the pads: pairing, scoring, the delay line, and what is to be posted and pushed.
//!
//! Nothing here calls out of the element. Everything to be pushed or posted is collected as an
//! [`Action`], in order, for the caller to carry out once it holds no lock.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use engine::EngineError;
use engine::backend::hip::{self, Hip};
use engine::backend::{Backend, BackendError, Completion};
use engine::model::pool::Pool;
use engine::scale::{Method, Scaling};
use engine::session::{PairScore, Session};
use gpu::{Device, Selection, devices};
use gst::prelude::*;
use gst::{ClockTime, Structure};
use gst_base::AggregatorPad;
use gst_base::prelude::*;
use gst_video::VideoInfo;
use watch::alarm::{Dropout, Hold, Latch};
use watch::prometheus;
use watch::summary::Histogram;
use watch::thumbnail::Thumbnail;
use watch::window;

use super::delay::{Damage, DelayLine, Delayed, Heat, Outcome, Stamp};
use super::device_memory::{Kind, gpu_of};
use super::error::Error;
use super::event::{Event, EventMessage};
use super::import::{Mapped, geometry};
use super::input::Input;
use super::message::{Common, FrameMessage};
use super::meta::{PadScore, ScoreMeta, ScoreState};
use super::monitor::event;
use super::pads::{Align, HipVmafPad};
use super::pairing::{Head, Rule, Step, step};
use super::rendition::{Rendition, Reported, Shown, stats};
use super::settings::{Live, MissingFrame, Output, Overload, Pairing, PoolMethod, ResultsFormat, Settings};
use super::{CAT, caps, painter};

/// Something for the outside, to be done without holding a lock.
pub enum Action {
    Caps(gst::Caps),
    Segment(gst::Segment),
    Latency(ClockTime),
    Push(gst::Buffer),
    /// Push a heat map of this reference frame.
    Paint(gst::Buffer, Heat),
    Post(Structure),
    /// A pair was left out; so many frames were scored and so many left out.
    Qos {
        stamp: Stamp,
        late: Option<ClockTime>,
        scored: u64,
        skipped: u64,
    },
    /// Replace the metrics file.
    Metrics(PathBuf, prometheus::Figures),
    /// Have [`Stream::collect`] called after this.
    Await(Completion),
}

/// The rendition that can be looked at downstream: that of `dist_sink`, which is always there.
const DISPLAYED: usize = 0;

/// How long sources may take for their first frame before that is a dropout.
const START: ClockTime = ClockTime::from_seconds(5);

/// Makes the backend to go on with when the first one fails before its first frame.
pub type Fallback = Box<dyn FnOnce(&BackendError) -> Result<Box<dyn Backend>, BackendError> + Send>;

/// What the clock says, in live pipelines.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// Running time of frames that should be leaving right now.
    pub due: Option<ClockTime>,
    /// The same where waiting is over: frames up to there leave, whatever has become of them.
    pub deadline: Option<ClockTime>,
}

/// The element between start and stop.
pub struct Stream {
    attach_meta: bool,
    output: Output,
    reported: Reported,
    pairing: Pairing,
    ignore_inactive: bool,
    results: Option<(PathBuf, ResultsFormat)>,
    /// For distorted frames of another size.
    scale: Option<Method>,
    session: Session,
    /// Until a frame was computed.
    fallback: Option<Fallback>,
    /// Until then too: the GPU can be chosen by where the frames are.
    follow: bool,
    /// When each group in flight was submitted.
    started: VecDeque<Instant>,
    /// An error was reported; nothing more is done.
    failed: bool,
    reference: Input,
    /// In the order in which their pads were made.
    renditions: Vec<Rendition>,
    next_number: u64,
    line: DelayLine,
    /// Where distorted frames leave: the last one, and the caps last announced.
    displayed: Option<gst::Buffer>,
    displayed_caps: Option<gst::Caps>,
    /// Caps and segment of the reference, to be announced before its next frame.
    announce: Vec<Action>,
    /// Latency last announced.
    latency: ClockTime,
    /// The engine is set up for the frames of this section.
    prepared: bool,
    next_index: u64,
    /// Running time of the last reference frame.
    last_time: Option<ClockTime>,
    /// Running time up to which frames have come, if any has, and up to which silence since then was seen to.
    silent_since: Option<ClockTime>,
    silent_until: ClockTime,
    /// Of groups, in milliseconds.
    compute_time: (Pool, Histogram),
    /// Distorted frames that find no reference frame.
    reference_dropout: Dropout,
    overload: Latch,
    metrics: Option<PathBuf>,
    /// Running time up to which the metrics file has been written.
    metrics_time: Option<u64>,
    last_score: Option<SystemTime>,
}

impl Stream {
    pub fn new(
        settings: &Settings,
        session: Session,
        fallback: Option<Fallback>,
        reference: AggregatorPad,
    ) -> Self {
        Self {
            attach_meta: settings.attach_meta,
            output: settings.output,
            reported: Reported {
                confidence: settings.conf_interval,
                psnr: settings.psnr,
                ssim: settings.ssim,
                ms_ssim: settings.ms_ssim,
            },
            pairing: settings.pairing,
            ignore_inactive: settings.ignore_inactive_pads,
            results: settings.results(),
            scale: settings.scale_method.method(),
            session,
            fallback,
            follow: settings.follows_input(),
            started: VecDeque::new(),
            failed: false,
            reference: Input::new(reference),
            renditions: vec![],
            next_number: 0,
            line: DelayLine::default(),
            displayed: None,
            displayed_caps: None,
            announce: vec![],
            latency: ClockTime::ZERO,
            prepared: false,
            next_index: 0,
            last_time: None,
            silent_since: None,
            silent_until: ClockTime::ZERO,
            compute_time: Default::default(),
            reference_dropout: Dropout::default(),
            overload: Latch::new(Hold::NONE, Hold::time(ClockTime::SECOND.nseconds())),
            metrics: settings.metrics_filename.as_ref().map(PathBuf::from),
            metrics_time: None,
            last_score: None,
        }
    }

    pub fn backend_name(&self) -> &'static str {
        self.session.backend_name()
    }

    pub fn device_name(&self) -> Option<String> {
        self.session.gpu().map(|gpu| gpu.info().name.clone())
    }

    /// A new distorted stream.
    pub fn add(&mut self, pad: HipVmafPad, live: &Live) -> Result<(), Error> {
        let results = self.results.as_ref().map(|(path, format)| (path.as_path(), *format));
        self.renditions.push(Rendition::new(self.next_number, pad, &live.watch, results)?);
        self.next_number += 1;
        Ok(())
    }

    /// A distorted stream goes.
    pub fn release(&mut self, pad: &HipVmafPad, live: &Live, actions: &mut Vec<Action>) -> Result<(), Error> {
        let Some(i) = self.renditions.iter().position(|rendition| rendition.pad == *pad) else {
            return Ok(());
        };
        self.end_run(i, false);
        self.collect(live, actions)?;
        self.end_rendition(i, "released", live.pool_method, actions);
        let mut gone = self.renditions.remove(i);
        self.line.forget(gone.number);
        gone.finish_results(self.session.plan(), self.session.geometry())
    }

    fn rendition(&mut self, pad: &AggregatorPad) -> Option<usize> {
        self.renditions.iter().position(|rendition| rendition.input.pad == *pad)
    }

    /// New caps on a sink pad. They take effect before the next frame is looked at.
    pub fn set_caps(
        &mut self,
        pad: &AggregatorPad,
        caps: &gst::CapsRef,
        live: &Live,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let readable = caps::readable(&self.memories());
        let Some(info) = caps::info(caps).filter(|_| caps.is_subset(&readable)) else {
            let kind = Kind::ALL.into_iter().find(|kind| caps.is_subset(&caps::readable(&[*kind])));
            return Err(match kind {
                Some(kind) => {
                    Error::Memory { pad: pad.name().into(), kind, backend: self.session.backend_name() }
                }
                None => Error::Caps(caps.to_owned()),
            });
        };
        if info.is_interlaced() {
            return Err(Error::Interlaced(pad.name().into()));
        }
        if *pad == self.reference.pad {
            let caps = match self.output {
                Output::Reference => Some(caps.to_owned()),
                // Comes with the first frame.
                Output::Distorted => None,
                Output::Heatmap => Some(painter::caps(&info)?),
            };
            if self.reference.set_info(info) {
                self.end_section("caps", live, actions)?;
            }
            self.announce.extend(caps.map(Action::Caps));
            self.announce_latency(None, actions);
        } else if let Some(i) = self.rendition(pad) {
            self.renditions[i].cosited = caps::cosited(caps);
            if self.renditions[i].input.set_info(info) {
                // It cannot be read as what comes now.
                self.renditions[i].shown = None;
                self.end_run(i, false);
                self.collect(live, actions)?;
                self.end_rendition(i, "caps", live.pool_method, actions);
            }
            self.prepared &= self.scaling(&self.renditions[i]) == self.renditions[i].scaling;
        }
        Ok(())
    }

    /// How many frames of the reference frames are held back by.
    fn delay(&self) -> u32 {
        match self.output {
            _ if self.attach_meta => self.session.lookahead() + 1,
            // A heat map only waits for its own frame.
            Output::Heatmap => 1,
            Output::Reference | Output::Distorted => 0,
        }
    }

    /// Says how long frames are held back, should that have changed: until they can carry their scores, and until
    /// distorted frames come that are late by more than their timestamps say. Where the caps do not tell the frame
    /// rate, the longest `duration` counts.
    fn announce_latency(&mut self, duration: Option<ClockTime>, actions: &mut Vec<Action>) {
        let frames = u64::from(self.delay());
        let late = |rendition: &Rendition| rendition.offset().saturating_neg().max(0) as u64;
        let late = self.renditions.iter().map(late).max().unwrap_or(0);
        let frame = self.reference.frame_duration();
        let latency = frame.or(duration).unwrap_or(ClockTime::ZERO).saturating_mul(frames);
        let latency = latency.saturating_add(ClockTime::from_nseconds(late));
        if latency > self.latency || (frame.is_some() && latency != self.latency) {
            self.latency = latency;
            actions.push(Action::Latency(latency));
        }
    }

    /// New segment of the reference.
    pub fn set_segment(&mut self, segment: gst::Segment) {
        self.announce.push(Action::Segment(segment));
        self.reference.restart();
    }

    /// Frames from after a flush are a new section; those still here will not leave.
    pub fn flush(&mut self, live: &Live, actions: &mut Vec<Action>) -> Result<(), Error> {
        self.line.drop_buffers();
        self.displayed = None;
        self.reference.restart();
        for rendition in &mut self.renditions {
            rendition.restart();
        }
        self.end_section("flush", live, actions)
    }

    /// The frames of a single stream were flushed.
    pub fn flush_pad(&mut self, pad: &AggregatorPad) {
        if *pad == self.reference.pad {
            (0..self.renditions.len()).for_each(|i| self.end_run(i, true));
            self.reference.restart();
        } else if let Some(i) = self.rendition(pad) {
            self.end_run(i, true);
            self.renditions[i].restart();
        }
    }

    /// Starts counting and pooling again.
    pub fn reset_stats(&mut self, live: &Live, actions: &mut Vec<Action>) {
        for i in 0..self.renditions.len() {
            self.end_rendition(i, "reset", live.pool_method, actions);
            self.renditions[i].reset_stats();
        }
        self.compute_time = Default::default();
    }

    /// Reference frames that can be here at once.
    pub fn held(&self) -> u32 {
        self.delay() + self.in_flight()
    }

    /// Distorted frames that can be here at once, beside the one that is looked at.
    pub fn held_distorted(&self) -> u32 {
        // Those that leave, and the last one, which may have to leave again.
        let displayed = if self.output == Output::Distorted { self.delay() + 1 } else { 0 };
        displayed + self.in_flight()
    }

    /// Pairs that the backend works on while the element goes on.
    fn in_flight(&self) -> u32 {
        self.session.gpu().map_or(0, |_| self.session.depth() as u32)
    }

    /// The GPU that scores.
    pub fn gpu(&self) -> Option<&Arc<Device>> {
        self.session.gpu()
    }

    /// Memory that frames can lie in, beside the system's.
    pub fn memories(&self) -> Vec<Kind> {
        let Some(gpu) = self.session.gpu() else { return vec![] };
        let suits = |kind: &Kind| {
            kind.suits(gpu.info())
                || self.follow && devices().iter().any(|info| hip::supports(info) && kind.suits(info))
        };
        Kind::ALL.into_iter().filter(suits).collect()
    }

    /// The backend works on pairs while the element goes on.
    pub fn is_asynchronous(&self) -> bool {
        self.in_flight() > 0
    }

    /// Whether the next pair can be submitted.
    pub fn has_room(&self) -> bool {
        self.failed || self.session.room()
    }

    /// Whether everything in flight has to be collected before the next pair is submitted.
    pub fn must_settle(&self) -> bool {
        !self.failed && self.must_prepare() && self.session.in_flight() > 0
    }

    /// Whether there is something better to do than to wait for scores.
    pub fn is_busy(&self) -> bool {
        let ready = |input: &Input| input.pad.has_buffer() || input.pad.is_eos();
        self.failed
            || self.session.in_flight() == 0
            || ready(&self.reference) && self.renditions.iter().all(|rendition| ready(&rendition.input))
    }

    /// Gives up because of an error, which is reported after what is to be done first. The results files would not be
    /// complete.
    pub fn fail(&mut self, err: &Error) -> Option<Action> {
        self.failed = true;
        self.renditions.iter_mut().for_each(Rendition::drop_results);
        let lost = matches!(err, Error::Engine(EngineError::Backend(err)) if err.is_device_lost());
        let event =
            EventMessage { event: Event::DeviceLost, running_time: self.last_time, ..Default::default() };
        lost.then(|| self.reference_event(event))
    }

    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// The reference's size and format, which distorted video has to match.
    pub fn reference_info(&self) -> Option<&VideoInfo> {
        self.reference.info.as_ref()
    }

    /// Running time at which something has to leave or be given up, or silence is to be reported.
    pub fn next_time(&self, live: &Live) -> Option<ClockTime> {
        self.next_frame_time().or_else(|| self.next_beat(live))
    }

    /// The earlier of these, if there are frames.
    fn next_frame_time(&self) -> Option<ClockTime> {
        // All that is left is to end, which a silent distorted stream must not hold up.
        let ended = self.reference.pad.is_eos();
        // All is here but what is not waited for.
        let here = |rendition: &Rendition| rendition.absent || rendition.input.pad.has_buffer();
        let absent = self.renditions.iter().any(|rendition| rendition.absent);
        let complete = absent && self.reference.pad.has_buffer() && self.renditions.iter().all(here);
        if ended || complete && self.renditions.len() > 1 {
            return Some(ClockTime::ZERO);
        }
        let heads = self.renditions.iter().map(|rendition| rendition.input.head_time());
        heads.chain([self.line.next_time(), self.reference.head_time()]).flatten().min()
    }

    /// Running time at which silence is reported: once it is a dropout, and then with each window or metrics file.
    fn next_beat(&self, live: &Live) -> Option<ClockTime> {
        let patience = ClockTime::from_nseconds(Dropout::TIME);
        let dropout = self.silent_since.map_or(START, |since| since.saturating_add(patience));
        if self.silent_until < dropout {
            return Some(dropout);
        }
        let interval = live.watch.window_interval.max(1);
        let next = (self.silent_until.nseconds() / interval + 1).saturating_mul(interval);
        let watched = live.watch.window > 0 || self.metrics.is_some();
        watched.then(|| ClockTime::from_nseconds(next))
    }

    /// The time, if nothing is left and silence is to be reported.
    pub fn silent(&self, live: &Live, clock: Clock) -> Option<ClockTime> {
        let now = clock.deadline.filter(|_| self.next_frame_time().is_none())?;
        self.next_beat(live).is_some_and(|beat| beat <= now).then_some(now)
    }

    /// Reports that nothing has come for a while. Scores that wait for the next pair wait no longer; nothing may be in
    /// flight, so that windows have them in time.
    fn silence(&mut self, now: ClockTime, live: &Live, actions: &mut Vec<Action>) -> Result<(), Error> {
        let since = self.silent_since.unwrap_or(ClockTime::ZERO);
        if let Some(change) = self.reference_dropout.silence(since.nseconds(), now.nseconds()) {
            actions.push(self.reference_event(event(Event::Dropout, now, change)));
        }
        for i in self.active() {
            let rendition = &mut self.renditions[i];
            let event = rendition.monitor.silence(since, now);
            actions.extend(event.map(|event| Action::Post(rendition.event(event))));
            self.end_run(i, true);
        }
        self.silent_until = now;
        self.collect(live, actions)
    }

    /// A frame has come that lasts until then.
    fn heard(&mut self, at: ClockTime, duration: Option<ClockTime>) {
        let until = at.saturating_add(duration.unwrap_or(ClockTime::ZERO));
        self.silent_since = Some(until);
        self.silent_until = until;
    }

    /// The renditions that take part, by their place.
    fn active(&self) -> Vec<usize> {
        (0..self.renditions.len()).filter(|i| self.renditions[*i].pad.settings().enabled).collect()
    }

    /// Decides what to do with the frames at hand.
    pub fn decide(&mut self, live: &Live, clock: Clock) -> Result<Step, Error> {
        let mut reference = self.reference.head(self.pairing, 0)?;
        while let Head::Gap(_) = reference {
            self.reference.take();
            reference = self.reference.head(self.pairing, 0)?;
        }
        let mut heads = vec![];
        let several = self.active().len() > 1;
        for rendition in &mut self.renditions {
            let offset = rendition.offset();
            if !rendition.pad.settings().enabled {
                continue;
            }
            heads.push(match rendition.input.head(self.pairing, offset)? {
                Head::Empty if self.ignore_inactive && rendition.pad.is_inactive() => Head::Eos,
                // In live pipelines, others shall not be late because of it.
                Head::Empty if rendition.absent && several && clock.due.is_some() => Head::Eos,
                head => head,
            });
        }
        let half = || {
            let frame = self.reference.head_duration().unwrap_or(40 * ClockTime::MSECOND);
            frame.nseconds() / 2
        };
        let tolerance = match self.pairing {
            Pairing::Index => 0,
            _ => live.pairing_tolerance.map_or_else(half, ClockTime::nseconds),
        };
        let day = (24 * 60 * 60 * ClockTime::SECOND).nseconds() as i64;
        let period = (self.pairing == Pairing::Timecode).then_some(day);
        Ok(step(reference, &heads, &Rule { tolerance, period, deadline: clock.deadline }))
    }

    /// Does what was decided, unless something else is to be done by now.
    pub fn perform(
        &mut self,
        decided: &Step,
        live: &Live,
        clock: Clock,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        if self.decide(live, clock)? != *decided {
            return Ok(());
        }
        let frame = self.reference.head_duration().map_or(40_000_000, ClockTime::nseconds);
        for rendition in &mut self.renditions {
            rendition.monitor.configure(&live.watch);
            rendition.configure_alignment(frame);
        }
        match decided {
            Step::Take(paired) => self.take(paired, live, clock, actions)?,
            Step::Drop(rendition) => self.drop_head(*rendition, actions)?,
            Step::Wait => {
                if let Some(now) = self.silent(live, clock) {
                    self.silence(now, live, actions)?;
                }
            }
            Step::Finished => {
                for rendition in &mut self.renditions {
                    while rendition.input.pad.has_buffer() {
                        rendition.drop_head();
                    }
                }
                self.end_section("eos", live, actions)?;
                self.finish_results()?;
            }
        }
        self.leave(clock.deadline, actions);
        if let Some(now) = clock.deadline.or(self.last_time) {
            self.advance(now, live, actions);
        }
        Ok(())
    }

    /// Drops the head of an active rendition.
    fn drop_head(&mut self, active: usize, actions: &mut Vec<Action>) -> Result<(), Error> {
        let Some(i) = self.active().get(active).copied() else { return Ok(()) };
        let offset = self.renditions[i].offset();
        let head = self.renditions[i].input.head(self.pairing, offset)?;
        if let Head::Gap(_) = head {
            self.renditions[i].input.take();
            return Ok(());
        }
        if let Head::Frame(frame) = head {
            self.heard(frame.at, self.reference.frame_duration());
            if !self.reference.pad.has_buffer()
                && let Some(change) = self.reference_dropout.update(frame.at.nseconds(), false)
            {
                actions.push(self.reference_event(event(Event::Dropout, frame.at, change)));
            }
            if let Some(buffer) = self.renditions[i].input.pad.peek_buffer() {
                self.look_at_distorted(i, frame.at, &buffer, None, actions);
            }
        }
        self.renditions[i].drop_head();
        Ok(())
    }

    /// Something that happened to the reference.
    fn reference_event(&self, event: EventMessage) -> Action {
        let name = self.reference.name();
        Action::Post(EventMessage { pad: name.clone(), label: name, ..event }.to_structure())
    }

    /// Takes the reference head, and compares it with the heads of the active renditions that are paired with it.
    fn take(
        &mut self,
        paired: &[bool],
        live: &Live,
        clock: Clock,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let active = self.active();
        let partners: Vec<_> =
            active.iter().zip(paired).filter(|(_, paired)| **paired).map(|(i, _)| *i).collect();
        let shown = |i: &usize| self.renditions[*i].shown.is_some();
        if (!partners.is_empty() || active.iter().any(shown)) && self.must_prepare() {
            self.prepare(live, actions)?;
        }
        let Some(buffer) = self.reference.pad.peek_buffer() else { return Ok(()) };
        let stamp = self.stamp(&buffer)?;
        let at = stamp.running_time;
        self.announce_latency(stamp.duration, actions);
        if let Some(change) = self.reference_dropout.update(at.nseconds(), true) {
            actions.push(self.reference_event(event(Event::Dropout, at, change)));
        }
        self.heard(at, stamp.duration);
        let late = self.is_late(&stamp, live, clock);
        let Some(reference) = self.reference.take() else { return Ok(()) };
        self.drop_disabled(at)?;
        let thumbnail = self.look_at_reference(at, &reference, &active, actions);
        let since = Instant::now();
        let mut outcomes = vec![];
        let mut shown = vec![];
        let mut displayed = None;
        for i in active {
            let found = if partners.contains(&i) { self.show(i, live)? } else { self.repeat(i, live) };
            let has_partner = found.is_some();
            if i == DISPLAYED && self.output == Output::Distorted {
                displayed = found.as_ref().map(|shown| shown.buffer.clone());
            }
            if let (Some(Shown { buffer, running_time }), true) = (&found, partners.contains(&i)) {
                self.look_at_distorted(i, *running_time, buffer, thumbnail.as_ref(), actions);
            }
            let rendition = &mut self.renditions[i];
            rendition.stamped(&stamp);
            for event in rendition.monitor.frame(at, partners.contains(&i)) {
                actions.push(Action::Post(rendition.event(event)));
            }
            rendition.absent = rendition.monitor.is_dropped_out();
            let counts = window::Counts {
                unpaired: u64::from(!has_partner),
                skipped: u64::from(has_partner && late),
                repeated: u64::from(has_partner && !partners.contains(&i)),
            };
            rendition.count(at, counts);
            let outcome = match found {
                None if live.missing_frame == MissingFrame::Error => {
                    return Err(Error::Missing { pad: rendition.input.name(), at });
                }
                None => Outcome::Unpaired,
                Some(_) if late => Outcome::Skipped,
                Some(Shown { buffer, running_time }) => {
                    shown.push((i, buffer));
                    let repeated = counts.repeated > 0;
                    Outcome::Pending { since, dist_running_time: running_time, repeated }
                }
            };
            outcomes.push((rendition.number, outcome));
            if has_partner && !late {
                self.renditions[i].running = true;
            } else {
                self.end_run(i, true);
            }
        }
        let compared = shown.iter().any(|(i, _)| *i == DISPLAYED);
        if !shown.is_empty() {
            self.submit(reference.clone(), shown)?;
            self.started.push_back(since);
        }
        let heat = self.reference.info.clone().filter(|_| self.output == Output::Heatmap);
        let damage = if compared { Damage::Pending } else { Damage::None };
        let heat = heat.map(|info| Heat { info, damage });
        let buffer = match self.output {
            Output::Distorted => self.display(displayed, &reference),
            Output::Reference | Output::Heatmap => Some(reference),
        };
        // Not without a frame.
        let announce = if buffer.is_some() { std::mem::take(&mut self.announce) } else { vec![] };
        self.overloaded(&stamp, late && !partners.is_empty(), clock, actions);
        self.line.push(Delayed { stamp, outcomes, buffer, heat, announce });
        self.settle(live, actions)
    }

    /// The distorted frame that leaves in place of a reference frame: the one that was found, else the last one again,
    /// as a viewer would see it. None before the first.
    fn display(&mut self, found: Option<gst::Buffer>, reference: &gst::BufferRef) -> Option<gst::Buffer> {
        if let Some(found) = found {
            self.displayed = Some(found);
            let caps = self.displayed_caps();
            if caps != self.displayed_caps {
                self.announce.extend(caps.clone().map(Action::Caps));
                self.displayed_caps = caps;
            }
        }
        let mut buffer = self.displayed.clone()?;
        let to = buffer.make_mut();
        to.set_pts(reference.pts());
        to.set_dts(reference.dts());
        to.set_duration(reference.duration());
        to.set_offset(reference.offset());
        to.set_offset_end(reference.offset_end());
        Some(buffer)
    }

    /// Caps of distorted frames that leave, which come as often as the reference's.
    fn displayed_caps(&self) -> Option<gst::Caps> {
        let mut caps = self.renditions.get(DISPLAYED)?.pad.current_caps()?;
        let reference = self.reference.info.as_ref()?;
        caps.make_mut().set("framerate", reference.fps());
        Some(caps)
    }

    /// Drops the frames of disabled renditions up to there: in step with the reference, as the base class waits for
    /// frames on all pads.
    fn drop_disabled(&mut self, at: ClockTime) -> Result<(), Error> {
        for rendition in self.renditions.iter_mut().filter(|rendition| !rendition.pad.settings().enabled) {
            let offset = rendition.offset();
            while let Head::Frame(frame) | Head::Gap(frame) = rendition.input.head(self.pairing, offset)?
                && frame.at <= at
            {
                rendition.input.take();
            }
        }
        Ok(())
    }

    /// Takes the distorted frame at the head of a rendition.
    fn show(&mut self, i: usize, live: &Live) -> Result<Option<Shown>, Error> {
        let rendition = &mut self.renditions[i];
        let offset = rendition.offset();
        let Head::Frame(frame) = rendition.input.head(self.pairing, offset)? else { return Ok(None) };
        let Some(buffer) = rendition.input.take() else { return Ok(None) };
        let shown = Shown { buffer, running_time: frame.at };
        let keep = live.missing_frame == MissingFrame::Repeat;
        rendition.shown =
            keep.then(|| Shown { buffer: shown.buffer.clone(), running_time: shown.running_time });
        Ok(Some(shown))
    }

    /// Shows a reference frame to what looks at pictures.
    fn look_at_reference(
        &mut self,
        at: ClockTime,
        buffer: &gst::Buffer,
        active: &[usize],
        actions: &mut Vec<Action>,
    ) -> Option<Thumbnail> {
        active.iter().any(|i| self.renditions[*i].wants_thumbnails()).then_some(())?;
        let thumbnail = self.reference.thumbnail(buffer)?;
        for i in active {
            let event = self.renditions[*i].align_reference(at, &thumbnail);
            self.aligned(*i, event, actions);
        }
        Some(thumbnail)
    }

    /// The same for a distorted frame, and for the reference frame it is paired with.
    fn look_at_distorted(
        &mut self,
        i: usize,
        at: ClockTime,
        buffer: &gst::Buffer,
        reference: Option<&Thumbnail>,
        actions: &mut Vec<Action>,
    ) {
        let rendition = &mut self.renditions[i];
        if !rendition.wants_thumbnails() {
            return;
        }
        let Some(thumbnail) = rendition.input.thumbnail(buffer) else { return };
        if let Some(reference) = reference {
            for event in rendition.monitor.pictures(at, reference, &thumbnail) {
                actions.push(Action::Post(rendition.event(event)));
            }
        }
        let event = rendition.align_distorted(at, &thumbnail);
        self.aligned(i, event, actions);
    }

    /// Reports an offset that was found. If frames are moved by it, others are paired from now on.
    fn aligned(&mut self, i: usize, event: Option<EventMessage>, actions: &mut Vec<Action>) {
        let Some(event) = event else { return };
        actions.push(Action::Post(self.renditions[i].event(event)));
        if self.renditions[i].pad.settings().align == Align::Auto {
            self.end_run(i, true);
            self.announce_latency(None, actions);
        }
    }

    /// The last distorted frame of a rendition, if it is to stand in for one that is missing.
    fn repeat(&mut self, i: usize, live: &Live) -> Option<Shown> {
        let shown =
            self.renditions[i].shown.as_ref().filter(|_| live.missing_frame == MissingFrame::Repeat)?;
        Some(Shown { buffer: shown.buffer.clone(), running_time: shown.running_time })
    }

    /// Whether scoring may be left out for the video to go on.
    pub fn may_skip(live: &Live, clock: Clock) -> bool {
        match live.overload {
            Overload::Auto => clock.due.is_some(),
            Overload::Wait => false,
            Overload::Skip => true,
        }
    }

    /// Whether scoring has to be left out now.
    fn is_late(&self, stamp: &Stamp, live: &Live, clock: Clock) -> bool {
        // The frame before has left by then, if nothing holds things up here.
        let frame = stamp.duration.unwrap_or(ClockTime::ZERO);
        let overdue = clock.due.is_some_and(|due| stamp.running_time.saturating_add(frame) < due);
        Self::may_skip(live, clock) && (overdue || !self.session.room())
    }

    /// Reports pairs that are left out.
    fn overloaded(&mut self, stamp: &Stamp, late: bool, clock: Clock, actions: &mut Vec<Action>) {
        if late {
            let mut counts = (0, 0);
            for rendition in &self.renditions {
                let of = rendition.counts();
                counts = (counts.0 + of.scored, counts.1 + of.frames.skipped);
            }
            let late = clock.due.and_then(|due| due.checked_sub(stamp.running_time));
            actions.push(Action::Qos { stamp: stamp.clone(), late, scored: counts.0, skipped: counts.1 });
        }
        if let Some(change) = self.overload.update(stamp.running_time.nseconds(), late, !late) {
            actions.push(self.reference_event(event(Event::Overload, stamp.running_time, change)));
        }
    }

    /// Goes on with the GPU that has the first frames in its memory.
    fn follow<'a>(&mut self, mut buffers: impl Iterator<Item = &'a gst::Buffer>) -> Result<(), Error> {
        let owner = buffers.find_map(|buffer| gpu_of(buffer));
        let (Some(owner), Some(gpu)) = (owner, self.session.gpu()) else { return Ok(()) };
        if !std::ptr::eq(owner, gpu.info()) {
            let selection = Selection { vendor: Some(owner.vendor), ordinal: Some(owner.ordinal) };
            let hip = Hip::open(&selection, self.session.depth()).map_err(EngineError::from)?;
            gst::info!(CAT, "scoring on the {hip}, which has the video in its memory");
            self.session.set_backend(Box::new(hip));
        }
        Ok(())
    }

    /// Collects what the backend has computed, or has it collected once it is computed.
    fn settle(&mut self, live: &Live, actions: &mut Vec<Action>) -> Result<(), Error> {
        if self.is_asynchronous() {
            actions.push(Action::Await(self.session.completion().unwrap_or_else(|| Box::new(|| ()))));
            return Ok(());
        }
        self.collect(live, actions)
    }

    /// Takes the scores that are complete.
    pub fn collect(&mut self, live: &Live, actions: &mut Vec<Action>) -> Result<(), Error> {
        let scores = self.session.collect()?;
        let displayed = self.renditions.get(DISPLAYED).and_then(|rendition| rendition.track);
        while let Some((track, damage)) = self.session.take_damage() {
            if Some(track) == displayed {
                self.line.set_damage(damage);
            }
        }
        while self.started.len() > self.session.in_flight() {
            let Some(since) = self.started.pop_front() else { break };
            let taken = since.elapsed().as_secs_f64() * 1e3;
            self.compute_time.0.push(taken);
            self.compute_time.1.push(taken);
        }
        scores.into_iter().try_for_each(|score| self.scored(score, live, actions))
    }

    /// Ends a rendition's run of unbroken pairs. `broken` says that pairs are missing.
    fn end_run(&mut self, i: usize, broken: bool) {
        let rendition = &mut self.renditions[i];
        if std::mem::take(&mut rendition.running)
            && let Some(track) = rendition.track
        {
            self.session.end_run(track, broken);
        }
    }

    /// Numbers the reference frame that is about to be taken.
    fn stamp(&mut self, buffer: &gst::BufferRef) -> Result<Stamp, Error> {
        let times = self.reference.times(buffer)?;
        let stamp = Stamp {
            index: self.next_index,
            timestamp: Some(times.timestamp),
            stream_time: times.stream_time,
            running_time: times.running_time.unwrap_or(times.timestamp),
            duration: buffer.duration().or(self.reference.frame_duration()),
        };
        self.next_index += 1;
        self.last_time = Some(stamp.running_time);
        Ok(stamp)
    }

    /// The engine is not set up for the frames and renditions at hand.
    fn must_prepare(&self) -> bool {
        !self.prepared || self.renditions.iter().any(|rendition| rendition.track.is_none())
    }

    /// How the frames of a rendition are scaled. What cannot be compared is refused when it is to be.
    fn scaling(&self, rendition: &Rendition) -> Option<Scaling> {
        rendition.scaling(self.reference.info.as_ref()?, self.scale).ok().flatten()
    }

    /// Sets the engine up for the format of the reference and all renditions. Nothing is in flight.
    fn prepare(&mut self, live: &Live, actions: &mut Vec<Action>) -> Result<(), Error> {
        let reference = self.reference.info.clone();
        let reference = reference.ok_or_else(|| Error::NoCaps(self.reference.name()))?;
        let unknown = || Error::Caps(reference.to_caps().unwrap_or_else(|_| gst::Caps::new_empty()));
        let geometry = geometry(&reference).ok_or_else(unknown)?;
        (0..self.renditions.len()).for_each(|i| self.end_run(i, true));
        self.collect(live, actions)?;
        if std::mem::take(&mut self.follow) {
            let distorted = self.renditions.iter().map(|rendition| &rendition.input.pad);
            let pads = std::iter::once(&self.reference.pad).chain(distorted);
            let heads: Vec<_> = pads.filter_map(|pad| pad.peek_buffer()).collect();
            self.follow(heads.iter())?;
        }
        let scalings: Vec<_> = self.renditions.iter().map(|rendition| self.scaling(rendition)).collect();
        match (self.session.prepare(geometry, &scalings), self.fallback.take()) {
            (Err(EngineError::Backend(err)), Some(fallback)) if err.is_device() => {
                self.session.set_backend(fallback(&err).map_err(EngineError::from)?);
                self.session.prepare(geometry, &scalings)?;
            }
            (result, _) => result?,
        }
        for (track, (rendition, scaling)) in self.renditions.iter_mut().zip(&scalings).enumerate() {
            (rendition.track, rendition.scaling) = (Some(track), *scaling);
            rendition.begin_results(self.session.plan(), geometry.width, geometry.height)?;
        }
        gst::debug!(CAT, "{geometry:?}, renditions: {scalings:?}");
        self.prepared = true;
        Ok(())
    }

    /// Hands a reference frame and the distorted frames of these renditions to the engine.
    fn submit(&mut self, reference: gst::Buffer, distorted: Vec<(usize, gst::Buffer)>) -> Result<(), Error> {
        let info = self.reference.info.clone().ok_or_else(|| Error::NoCaps(self.reference.name()))?;
        let chroma = self.session.plan().work.chroma();
        let gpu = self.session.gpu();
        let reference = self.reference.map(reference, gpu, chroma)?;
        let mut mapped: Vec<(usize, Mapped)> = vec![];
        for (i, buffer) in distorted {
            self.renditions[i].scaling(&info, self.scale)?;
            mapped.push((i, self.renditions[i].input.map(buffer, gpu, chroma)?));
        }
        let reference = self.reference.picture(&reference)?;
        let mut pictures = vec![];
        for (i, mapped) in &mapped {
            let rendition = &self.renditions[*i];
            let picture = rendition.input.picture(mapped)?;
            pictures.extend(rendition.track.map(|track| (track, picture)));
        }
        Ok(self.session.submit(reference, pictures)?)
    }

    /// Takes the result for the oldest pending frame of a rendition.
    fn scored(&mut self, score: PairScore, live: &Live, actions: &mut Vec<Action>) -> Result<(), Error> {
        let Some(i) = self.renditions.iter().position(|r| r.track == Some(score.rendition)) else {
            return Ok(());
        };
        let rendition = &mut self.renditions[i];
        rendition.results_totals += &score.totals;
        let Some((stamp, outcome)) = self.line.oldest_pending(rendition.number) else { return Ok(()) };
        let at = stamp.running_time;
        let Some(values) = score.values else {
            *outcome = Outcome::Skipped;
            rendition.count(at, window::Counts { skipped: 1, ..Default::default() });
            return Ok(());
        };
        let stamp = stamp.clone();
        let pending = std::mem::replace(outcome, Outcome::Scored(values.clone()));
        let plan = self.session.plan();
        let first = plan.models.first().and_then(|model| values.get(model.column)).copied();
        rendition.scored(&stamp, &values, first)?;
        self.last_score = Some(SystemTime::now());
        if let Outcome::Pending { since, dist_running_time, repeated } = pending
            && live.frame_message
        {
            let message = FrameMessage {
                common: Common {
                    timestamp: stamp.timestamp,
                    stream_time: stamp.stream_time,
                    running_time: Some(at),
                    duration: stamp.duration,
                    ..rendition.common(plan, &values, self.reported)
                },
                index: index_field(stamp.index),
                dist_running_time: Some(dist_running_time),
                discont: score.discont,
                repeated,
                compute_time: ClockTime::from_nseconds(since.elapsed().as_nanos() as u64),
            };
            actions.push(Action::Post(message.to_structure()));
        }
        self.advance_rendition(i, at, live, actions);
        if let Some(score) = first
            && let Some(event) = self.renditions[i].monitor.scored(at, score)
        {
            actions.push(Action::Post(self.renditions[i].event(event)));
        }
        self.write_metrics(at, live, actions);
        Ok(())
    }

    /// No frame before `now` is waited for any more: windows end even if nothing comes.
    fn advance(&mut self, now: ClockTime, live: &Live, actions: &mut Vec<Action>) {
        for i in 0..self.renditions.len() {
            let pending = self.line.oldest_pending(self.renditions[i].number);
            let now = pending.map_or(now, |(stamp, _)| stamp.running_time.min(now));
            self.advance_rendition(i, now, live, actions);
        }
        // Otherwise with the scores to come.
        if self.line.pending() == 0 {
            self.write_metrics(now, live, actions);
        }
    }

    fn advance_rendition(&mut self, i: usize, now: ClockTime, live: &Live, actions: &mut Vec<Action>) {
        for figures in self.renditions[i].monitor.advance(now) {
            let length = live.watch.window;
            let message = self.renditions[i].window(self.session.plan(), &figures, length, live.pool_method);
            actions.push(Action::Post(message));
        }
    }

    /// Has the metrics file replaced, once per interval.
    fn write_metrics(&mut self, now: ClockTime, live: &Live, actions: &mut Vec<Action>) {
        let Some(path) = &self.metrics else { return };
        let interval = now.nseconds() / live.watch.window_interval.max(1);
        if self.metrics_time.replace(interval) != Some(interval) {
            actions.push(Action::Metrics(path.clone(), self.figures()));
        }
    }

    /// Figures for Prometheus.
    fn figures(&self) -> prometheus::Figures {
        let model = self.session.plan().models.first().map(|first| first.model.name()).unwrap_or_default();
        let pad = |rendition: &Rendition| {
            let summary = rendition.monitor.figures().map_or(rendition.summary(), |window| &window.summary);
            let score = |(stat, value)| prometheus::Score { model: model.into(), stat, value };
            let counts = rendition.counts();
            prometheus::Pad {
                name: rendition.pad.name().into(),
                label: rendition.pad.display_label(),
                scores: stats(summary).fields().into_iter().map(score).collect(),
                frames: vec![
                    ("scored", counts.scored),
                    ("unpaired", counts.frames.unpaired),
                    ("skipped", counts.frames.skipped),
                    ("repeated", counts.frames.repeated),
                ],
                alarms: rendition
                    .monitor
                    .alarms()
                    .into_iter()
                    .map(|(event, raised)| (event.name(), raised))
                    .collect(),
                offset: rendition.estimate().map(|estimate| estimate.offset as f64 / 1e9),
            }
        };
        let (pool, histogram) = &self.compute_time;
        let time = pool.pooled().map(|pooled| prometheus::ComputeTime {
            quantiles: [0.5, 0.9, 0.99].map(|q| (q, histogram.percentile(q * 100.0) / 1e3)).into(),
            sum: pooled.mean * pooled.count as f64 / 1e3,
            count: pooled.count,
        });
        let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).ok();
        prometheus::Figures {
            pads: self.renditions.iter().map(pad).collect(),
            compute_time: time,
            last_score: self.last_score.and_then(since).map(|time| time.as_secs_f64()),
        }
    }

    /// Lets frames go whose outcome is known or that are due.
    fn leave(&mut self, deadline: Option<ClockTime>, actions: &mut Vec<Action>) {
        while let Some(frame) = self.line.pop(self.attach_meta, deadline) {
            actions.extend(frame.announce);
            let Some(mut buffer) = frame.buffer else { continue };
            if self.attach_meta {
                let meta = self.meta(&frame.stamp, &frame.outcomes);
                if let Err(err) = meta.attach(buffer.make_mut()) {
                    gst::warning!(CAT, "frame {} goes without its meta: {err}", frame.stamp.index);
                }
            }
            actions.push(match frame.heat {
                Some(heat) => Action::Paint(buffer, heat),
                None => Action::Push(buffer),
            });
        }
    }

    fn meta(&self, stamp: &Stamp, outcomes: &[(u64, Outcome)]) -> ScoreMeta {
        let score = |(number, outcome): &(u64, Outcome)| {
            let rendition = self.renditions.iter().find(|rendition| rendition.number == *number)?;
            let state = match outcome {
                Outcome::Scored(_) => ScoreState::Scored,
                Outcome::Pending { .. } => ScoreState::Late,
                Outcome::Skipped => ScoreState::Skipped,
                Outcome::Unpaired => ScoreState::Unpaired,
            };
            let (pad, label) = (rendition.pad.name().into(), rendition.pad.display_label());
            let score = PadScore { pad, label, state, ..PadScore::default() };
            let Outcome::Scored(values) = outcome else { return Some(score) };
            let common = rendition.common(self.session.plan(), values, self.reported);
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
            scores: outcomes.iter().filter_map(score).collect(),
        }
    }

    /// Completes all frames at hand, lets them leave, and posts what the section comes to.
    fn end_section(&mut self, reason: &str, live: &Live, actions: &mut Vec<Action>) -> Result<(), Error> {
        (0..self.renditions.len()).for_each(|i| self.end_run(i, false));
        self.collect(live, actions)?;
        self.leave(None, actions);
        for i in 0..self.renditions.len() {
            self.end_rendition(i, reason, live.pool_method, actions);
        }
        self.prepared = false;
        Ok(())
    }

    /// Posts what the section of a rendition comes to.
    fn end_rendition(&mut self, i: usize, reason: &str, method: PoolMethod, actions: &mut Vec<Action>) {
        let rendition = &mut self.renditions[i];
        if reason != "reset"
            && let Some(event) = rendition.monitor.end_gap()
        {
            actions.push(Action::Post(rendition.event(event)));
        }
        let pooled = rendition.end_section(self.session.plan(), reason, method, self.reported);
        actions.extend(pooled.map(Action::Post));
    }

    /// Gives the results files their names. Later calls do nothing.
    pub fn finish_results(&mut self) -> Result<(), Error> {
        for rendition in &mut self.renditions {
            rendition.finish_results(self.session.plan(), self.session.geometry())?;
        }
        Ok(())
    }

    /// Counters and figures since the start of a distorted pad, for its property `stats`.
    pub fn pad_stats(&self, pad: &HipVmafPad) -> Option<Structure> {
        Some(self.renditions.iter().find(|rendition| rendition.pad == *pad)?.stats())
    }

    /// Those of `dist_sink` with what concerns all, for the property `stats` of the element.
    pub fn stats(&self) -> Structure {
        let mut s = self.renditions.first().map(Rendition::stats);
        let s = s.get_or_insert_with(|| Structure::new_empty("stats"));
        s.set("in-flight", self.line.pending() as u64);
        let (pool, histogram) = &self.compute_time;
        if let Some(pooled) = pool.pooled() {
            s.set("compute-time-mean", pooled.mean);
            s.set("compute-time-p99", histogram.percentile(99.0));
        }
        if let Some(name) = self.device_name() {
            s.set("device-name", name);
        }
        s.clone()
    }
}

/// Frame numbers are `int` in messages, as in GStreamer's `vmaf` element; they start again from 0 after 2^31.
fn index_field(index: u64) -> i32 {
    (index & 0x7fff_ffff) as i32
}
