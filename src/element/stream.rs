// SPDX-License-Identifier: MPL-2.0

//! What happens between the pads: pairing, scoring, the delay line, and what is to be posted and pushed.
//!
//! Nothing here calls out of the element. Everything to be pushed or posted is collected as an
//! [`Action`], in order, for the caller to carry out once it holds no lock.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use gst::prelude::*;
use gst::{ClockTime, Structure};
use gst_base::AggregatorPad;
use gst_base::prelude::*;
use gst_video::VideoInfo;

use super::delay::{DelayLine, Delayed, Outcome, Stamp};
use super::device_memory::{Kind, gpu_of};
use super::error::Error;
use super::import::{ImportError, Importer, Mapped, geometry};
use super::message::{Common, Confidence, FrameMessage, PooledMessage, Stats};
use super::meta::{PadScore, ScoreMeta, ScoreState};
use super::pairing::{Head, Step, step};
use super::results::Results;
use super::settings::{Live, PoolMethod, Settings};
use super::{CAT, caps};
use crate::backend::{Backend, BackendError, Completion};
use crate::engine::EngineError;
use crate::engine::session::{PairScore, Session};
use crate::engine::summary::{Histogram, Summary};
use crate::frame::Picture;
use crate::hip::{Device, Hip, Selection, devices};
use crate::metrics::feature::Output;
use crate::model::pool::{Pool, Pooled};

/// Something for the outside, to be done without holding a lock.
pub enum Action {
    Caps(gst::Caps),
    Segment(gst::Segment),
    Latency(ClockTime),
    Push(gst::Buffer),
    Post(Structure),
    /// Have [`Stream::collect`] called after this.
    Await(Completion),
}

/// Makes the backend to go on with when the first one fails before its first frame.
pub type Fallback = Box<dyn FnOnce(&BackendError) -> Result<Box<dyn Backend>, BackendError> + Send>;

/// One sink pad.
struct Input {
    pad: AggregatorPad,
    info: Option<VideoInfo>,
    /// For the format of `info`; made when the first pair of a section is compared.
    importer: Option<Importer>,
    /// Timestamp of the next buffer, should it have none.
    next_pts: Option<ClockTime>,
}

impl Input {
    fn new(pad: AggregatorPad) -> Self {
        Self { pad, info: None, importer: None, next_pts: None }
    }

    fn name(&self) -> String {
        self.pad.name().to_string()
    }

    /// From the frame rate in the caps.
    fn frame_duration(&self) -> Option<ClockTime> {
        let fps = self.info.as_ref()?.fps();
        (fps.numer() > 0 && fps.denom() > 0)
            .then(|| ClockTime::SECOND.mul_div_round(fps.denom() as u64, fps.numer() as u64))
            .flatten()
    }

    /// Timestamp, running time and stream time of a buffer; no running time outside the segment.
    fn times(
        &self,
        buffer: &gst::BufferRef,
    ) -> Result<(ClockTime, Option<ClockTime>, Option<ClockTime>), Error> {
        let missing = || Error::Timestamp(self.name());
        let segment = self.pad.segment().downcast::<ClockTime>().map_err(|_| missing())?;
        let pts = match (buffer.pts(), self.frame_duration()) {
            (Some(pts), _) => pts,
            (None, Some(_)) => self.next_pts.or(segment.start()).unwrap_or(ClockTime::ZERO),
            (None, None) => return Err(missing()),
        };
        Ok((pts, segment.to_running_time(pts), segment.to_stream_time(pts)))
    }

    /// What stands at the head. Gaps and buffers outside the segment are dropped on the way.
    fn head(&mut self) -> Result<Head, Error> {
        while let Some(buffer) = self.pad.peek_buffer() {
            let gap = buffer.size() == 0 && buffer.flags().contains(gst::BufferFlags::GAP);
            if !gap && let (_, Some(running_time), _) = self.times(&buffer)? {
                return Ok(Head::Frame(running_time));
            }
            self.pop();
        }
        Ok(if self.pad.is_eos() { Head::Eos } else { Head::Empty })
    }

    /// Running time of whatever stands at the head.
    fn head_time(&self) -> Option<ClockTime> {
        let buffer = self.pad.peek_buffer()?;
        self.times(&buffer).ok()?.1
    }

    fn map(&mut self, buffer: gst::Buffer, gpu: Option<&Arc<Device>>) -> Result<Mapped, Error> {
        let mapped = self.importer.as_mut().map(|importer| importer.map(buffer, gpu));
        mapped.unwrap_or(Err(ImportError::Small)).map_err(|source| Error::Buffer { pad: self.name(), source })
    }

    fn picture<'a>(&self, mapped: &'a Mapped) -> Result<Picture<'a>, Error> {
        let picture = self.importer.as_ref().and_then(|importer| importer.picture(mapped));
        picture.ok_or_else(|| Error::Buffer { pad: self.name(), source: ImportError::Small })
    }

    fn pop(&mut self) -> Option<gst::Buffer> {
        let buffer = self.pad.pop_buffer()?;
        let duration = buffer.duration().or(self.frame_duration());
        let pts = self.times(&buffer).ok().map(|(pts, ..)| pts);
        self.next_pts = pts.zip(duration).map(|(pts, duration)| pts.saturating_add(duration));
        Some(buffer)
    }
}

/// What was counted over a section or since the start.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    scored: u64,
    unpaired: u64,
    skipped: u64,
    dist_unmatched: u64,
}

/// Everything that a section is condensed from.
#[derive(Default)]
struct Section {
    counts: Counts,
    /// Of the first model.
    summary: Summary,
    /// For each column of the plan.
    pools: Vec<Pool>,
    /// Duration of the scored frames, and of the last reference frame its stamp.
    duration: ClockTime,
    last: Option<Stamp>,
}

/// The element between start and stop.
pub struct Stream {
    attach_meta: bool,
    conf_interval: bool,
    psnr: bool,
    ssim: bool,
    ms_ssim: bool,
    session: Session,
    /// Until a frame was computed.
    fallback: Option<Fallback>,
    /// Until then too: the GPU can be chosen by where the frames are.
    follow: bool,
    /// When each pair in flight was submitted.
    started: VecDeque<Instant>,
    /// An error was reported; nothing more is done.
    failed: bool,
    results: Option<(PathBuf, Results)>,
    reference: Input,
    distorted: Input,
    line: DelayLine,
    /// Caps and segment of the reference, to be announced before its next frame.
    announce: Vec<Action>,
    /// The engine is set up for the frames of this section.
    prepared: bool,
    section_number: u32,
    section: Section,
    next_index: u64,
    /// Since the start.
    totals: Counts,
    summary: Summary,
    last_score: Option<f64>,
    compute_time: (Pool, Histogram),
}

impl Stream {
    pub fn new(
        settings: &Settings,
        session: Session,
        fallback: Option<Fallback>,
        reference: AggregatorPad,
        distorted: AggregatorPad,
    ) -> Result<Self, Error> {
        let results = settings
            .results()
            .map(|(path, format)| match Results::create(&path, format) {
                Ok(results) => Ok((path, results)),
                Err(source) => Err(Error::Results { path, source }),
            })
            .transpose()?;
        Ok(Self {
            attach_meta: settings.attach_meta,
            conf_interval: settings.conf_interval,
            psnr: settings.psnr,
            ssim: settings.ssim,
            ms_ssim: settings.ms_ssim,
            section: Section::default(),
            session,
            fallback,
            follow: settings.follows_input(),
            started: VecDeque::new(),
            failed: false,
            results,
            reference: Input::new(reference),
            distorted: Input::new(distorted),
            line: DelayLine::default(),
            announce: vec![],
            prepared: false,
            section_number: 0,
            next_index: 0,
            totals: Counts::default(),
            summary: Summary::default(),
            last_score: None,
            compute_time: Default::default(),
        })
    }

    pub fn backend_name(&self) -> &'static str {
        self.session.backend_name()
    }

    pub fn device_name(&self) -> Option<String> {
        self.session.gpu().map(|gpu| gpu.info().name.clone())
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
        let is_reference = *pad == self.reference.pad;
        let input = if is_reference { &mut self.reference } else { &mut self.distorted };
        if input.info.replace(info.clone()).is_some_and(|old| old != info) {
            self.end_section("caps", live, actions)?;
        }
        if is_reference {
            self.announce.push(Action::Caps(caps.to_owned()));
            if self.attach_meta
                && let Some(frame) = self.reference.frame_duration()
            {
                actions.push(Action::Latency(frame * (u64::from(self.session.lookahead()) + 1)));
            }
        }
        Ok(())
    }

    /// New segment of the reference.
    pub fn set_segment(&mut self, segment: gst::Segment) {
        self.announce.push(Action::Segment(segment));
        self.reference.next_pts = None;
    }

    /// Frames from after a flush are a new section; those still here will not leave.
    pub fn flush(&mut self, live: &Live, actions: &mut Vec<Action>) -> Result<(), Error> {
        self.line.drop_buffers();
        self.reference.next_pts = None;
        self.distorted.next_pts = None;
        self.end_section("flush", live, actions)
    }

    /// Reference frames that can be here at once.
    pub fn held(&self) -> u32 {
        let delayed = if self.attach_meta { self.session.lookahead() + 1 } else { 0 };
        delayed + self.session.depth() as u32
    }

    /// Distorted frames that can be here at once, beside the one that is looked at.
    pub fn held_distorted(&self) -> u32 {
        self.session.depth() as u32
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
                || self.follow && devices().iter().any(|info| info.is_supported() && kind.suits(info))
        };
        Kind::ALL.into_iter().filter(suits).collect()
    }

    /// The backend works on pairs while the element goes on.
    pub fn is_asynchronous(&self) -> bool {
        self.session.depth() > 0
    }

    /// Whether the next pair can be submitted.
    pub fn has_room(&self) -> bool {
        self.failed || self.session.room()
    }

    /// Whether there is something better to do than to wait for scores.
    pub fn is_busy(&self) -> bool {
        let waiting = |input: &Input| input.pad.has_buffer();
        self.failed || self.session.in_flight() == 0 || (waiting(&self.reference) && waiting(&self.distorted))
    }

    /// Gives up: an error was reported. The results file would not be complete.
    pub fn fail(&mut self) {
        self.failed = true;
        self.results = None;
    }

    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// The reference's size and format, which distorted video has to match.
    pub fn reference_info(&self) -> Option<&VideoInfo> {
        self.reference.info.as_ref()
    }

    /// Running time at which something has to leave or be given up.
    pub fn next_time(&self) -> Option<ClockTime> {
        if self.reference.pad.is_eos() {
            // All that is left is to end, which a silent distorted stream must not hold up.
            return Some(ClockTime::ZERO);
        }
        let times = [self.line.next_time(), self.reference.head_time(), self.distorted.head_time()];
        times.into_iter().flatten().min()
    }

    /// Decides what to do with the frames at hand.
    pub fn decide(&mut self, live: &Live, deadline: Option<ClockTime>) -> Result<Step, Error> {
        let (reference, distorted) = (self.reference.head()?, self.distorted.head()?);
        let tolerance = live.pairing_tolerance.unwrap_or_else(|| {
            let frame =
                self.reference.frame_duration().or_else(|| self.reference.pad.peek_buffer()?.duration());
            frame.unwrap_or(40 * ClockTime::MSECOND) / 2
        });
        Ok(step(reference, distorted, tolerance, deadline))
    }

    /// Does what was decided.
    pub fn perform(
        &mut self,
        step: Step,
        live: &Live,
        deadline: Option<ClockTime>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        match step {
            Step::Pair => self.pair(live, actions)?,
            Step::DropDistorted => {
                if self.distorted.pop().is_some() {
                    self.section.counts.dist_unmatched += 1;
                }
            }
            Step::Unpaired => self.unpaired(live, actions)?,
            Step::Wait => {}
            Step::Finished => {
                while self.distorted.pop().is_some() {
                    self.section.counts.dist_unmatched += 1;
                }
                self.end_section("eos", live, actions)?;
                self.finish_results()?;
            }
        }
        self.leave(deadline, actions);
        Ok(())
    }

    /// Compares the two heads.
    fn pair(&mut self, live: &Live, actions: &mut Vec<Action>) -> Result<(), Error> {
        let distorted_time = match self.distorted.head()? {
            Head::Frame(time) => time,
            _ => return Ok(()),
        };
        let Some(buffer) = self.reference.pad.peek_buffer() else { return Ok(()) };
        let stamp = self.stamp(&buffer)?;
        let (Some(reference), Some(distorted)) = (self.reference.pop(), self.distorted.pop()) else {
            return Ok(());
        };
        if std::mem::take(&mut self.follow) {
            self.follow([&reference, &distorted])?;
        }
        if !self.prepared {
            self.prepare()?;
        }
        let since = Instant::now();
        self.submit(reference.clone(), distorted)?;
        self.started.push_back(since);
        self.line.push(Delayed {
            stamp,
            outcome: Outcome::Pending { since, dist_running_time: distorted_time },
            buffer: Some(reference),
            announce: std::mem::take(&mut self.announce),
        });
        self.settle(live, actions)
    }

    /// Goes on with the GPU that has the first frames in its memory.
    fn follow(&mut self, buffers: [&gst::Buffer; 2]) -> Result<(), Error> {
        let owner = buffers.into_iter().find_map(|buffer| gpu_of(buffer));
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
        while self.started.len() > self.session.in_flight() {
            let Some(since) = self.started.pop_front() else { break };
            let taken = since.elapsed().as_secs_f64() * 1e3;
            self.compute_time.0.push(taken);
            self.compute_time.1.push(taken);
        }
        scores.into_iter().try_for_each(|score| self.scored(score, live, actions))
    }

    /// Gives up on a partner for the reference head.
    fn unpaired(&mut self, live: &Live, actions: &mut Vec<Action>) -> Result<(), Error> {
        let Some(buffer) = self.reference.pad.peek_buffer() else { return Ok(()) };
        let stamp = self.stamp(&buffer)?;
        self.session.end_run(true);
        self.settle(live, actions)?;
        self.section.counts.unpaired += 1;
        let announce = std::mem::take(&mut self.announce);
        self.line.push(Delayed { stamp, outcome: Outcome::Unpaired, buffer: self.reference.pop(), announce });
        Ok(())
    }

    /// Numbers the reference frame that is about to be taken.
    fn stamp(&mut self, buffer: &gst::BufferRef) -> Result<Stamp, Error> {
        let (timestamp, running_time, stream_time) = self.reference.times(buffer)?;
        let stamp = Stamp {
            index: self.next_index,
            timestamp: Some(timestamp),
            stream_time,
            running_time: running_time.unwrap_or(timestamp),
            duration: buffer.duration().or(self.reference.frame_duration()),
        };
        self.next_index += 1;
        self.section.last = Some(stamp.clone());
        Ok(stamp)
    }

    /// Sets the engine up for the formats on the pads.
    fn prepare(&mut self) -> Result<(), Error> {
        let info = |input: &Input| input.info.clone().ok_or_else(|| Error::NoCaps(input.name()));
        let (reference, distorted) = (&info(&self.reference)?, &info(&self.distorted)?);
        let boxed = || (Box::new(reference.clone()), Box::new(distorted.clone()));
        let unknown =
            |info: &VideoInfo| Error::Caps(info.to_caps().unwrap_or_else(|_| gst::Caps::new_empty()));
        let geometry_ref = geometry(reference).ok_or_else(|| unknown(reference))?;
        let geometry_dist = geometry(distorted).ok_or_else(|| unknown(distorted))?;
        if (geometry_ref.width, geometry_ref.height) != (geometry_dist.width, geometry_dist.height) {
            let (reference, distorted) = boxed();
            return Err(Error::Size { reference, distorted });
        }
        if geometry_ref != geometry_dist {
            let (reference, distorted) = boxed();
            return Err(Error::Format { reference, distorted });
        }
        let chroma = self.session.plan().work.chroma();
        self.reference.importer = Some(Importer::new(reference, chroma));
        self.distorted.importer = Some(Importer::new(distorted, chroma));
        match (self.session.prepare(geometry_ref), self.fallback.take()) {
            (Err(EngineError::Backend(err)), Some(fallback)) if err.is_device() => {
                self.session.set_backend(fallback(&err).map_err(EngineError::from)?);
                self.session.prepare(geometry_ref)?;
            }
            (result, _) => result?,
        }
        if let Some((path, results)) = &mut self.results {
            results
                .begin(&self.session.plan().columns, geometry_ref.width, geometry_ref.height)
                .map_err(|source| Error::Results { path: path.clone(), source })?;
        }
        gst::debug!(CAT, "section {}: {geometry_ref:?}", self.section_number);
        self.prepared = true;
        Ok(())
    }

    fn submit(&mut self, reference: gst::Buffer, distorted: gst::Buffer) -> Result<(), Error> {
        let gpu = self.session.gpu();
        let (reference, distorted) =
            (self.reference.map(reference, gpu)?, self.distorted.map(distorted, gpu)?);
        let pictures = (self.reference.picture(&reference)?, self.distorted.picture(&distorted)?);
        Ok(self.session.submit(pictures.0, pictures.1)?)
    }

    /// Takes the result for the oldest pending frame.
    fn scored(&mut self, score: PairScore, live: &Live, actions: &mut Vec<Action>) -> Result<(), Error> {
        let Some(frame) = self.line.oldest_pending() else { return Ok(()) };
        let Some(values) = score.values else {
            frame.outcome = Outcome::Skipped;
            self.section.counts.skipped += 1;
            return Ok(());
        };
        let outcome = std::mem::replace(&mut frame.outcome, Outcome::Scored(values.clone()));
        let stamp = frame.stamp.clone();
        if let Some((path, results)) = &mut self.results {
            results
                .row(stamp.index, &values)
                .map_err(|source| Error::Results { path: path.clone(), source })?;
        }
        self.section.counts.scored += 1;
        let duration = stamp.duration.unwrap_or(ClockTime::ZERO);
        self.section.duration = self.section.duration.saturating_add(duration);
        self.section.pools.resize(values.len(), Pool::default());
        for (pool, value) in self.section.pools.iter_mut().zip(&values) {
            pool.push(*value);
        }
        if let Some(score) = self.score_column().and_then(|column| values.get(column)) {
            self.section.summary.push(*score);
            self.summary.push(*score);
            self.last_score = Some(*score);
        }
        if let Outcome::Pending { since, dist_running_time } = outcome
            && live.frame_message
        {
            let message = FrameMessage {
                common: Common {
                    timestamp: stamp.timestamp,
                    stream_time: stamp.stream_time,
                    running_time: Some(stamp.running_time),
                    duration: stamp.duration,
                    ..self.common(&values)
                },
                index: index_field(stamp.index),
                dist_running_time: Some(dist_running_time),
                discont: score.discont,
                compute_time: ClockTime::from_nseconds(since.elapsed().as_nanos() as u64),
            };
            actions.push(Action::Post(message.to_structure()));
        }
        Ok(())
    }

    /// Lets frames go whose outcome is known or that are due.
    fn leave(&mut self, deadline: Option<ClockTime>, actions: &mut Vec<Action>) {
        while let Some(frame) = self.line.pop(self.attach_meta, deadline) {
            actions.extend(frame.announce);
            let Some(mut buffer) = frame.buffer else { continue };
            if self.attach_meta {
                let meta = self.meta(&frame.stamp, &frame.outcome);
                if let Err(err) = meta.attach(buffer.make_mut()) {
                    gst::warning!(CAT, "frame {} goes without its meta: {err}", frame.stamp.index);
                }
            }
            actions.push(Action::Push(buffer));
        }
    }

    fn meta(&self, stamp: &Stamp, outcome: &Outcome) -> ScoreMeta {
        let pad = self.distorted.name();
        let score = match outcome {
            Outcome::Scored(values) => {
                let common = self.common(values);
                PadScore {
                    state: ScoreState::Scored,
                    score: Some(common.score),
                    models: common.models,
                    features: common.features,
                    ..PadScore::new(pad)
                }
            }
            Outcome::Pending { .. } => PadScore { state: ScoreState::Late, ..PadScore::new(pad) },
            Outcome::Skipped => PadScore { state: ScoreState::Skipped, ..PadScore::new(pad) },
            Outcome::Unpaired => PadScore { state: ScoreState::Unpaired, ..PadScore::new(pad) },
        };
        ScoreMeta {
            index: index_field(stamp.index),
            section: self.section_number,
            running_time: Some(stamp.running_time),
            scores: vec![score],
        }
    }

    /// Column of the first model's score.
    fn score_column(&self) -> Option<usize> {
        self.session.plan().models.first().map(|model| model.column)
    }

    /// The part of a message or meta that follows from column values, be they of a frame or pooled.
    fn common(&self, values: &[f64]) -> Common {
        let plan = self.session.plan();
        let value = |column: usize| values.get(column).copied().unwrap_or(f64::NAN);
        let named = |(column, name): (usize, &str)| (name.to_string(), value(column));
        let pad = self.distorted.name();
        let first = plan.models.first();
        let confidence = first
            .filter(|_| self.conf_interval)
            .and_then(|first| first.confidence_columns())
            .map(|columns| columns.map(value))
            .map(|[stddev, low, high]| Confidence { stddev, low, high });
        let metric =
            |on: bool, output| plan.features.iter().position(|f| on && f.output == output).map(value);
        Common {
            label: pad.clone(),
            pad,
            model: first.map(|first| first.model.name().to_string()).unwrap_or_default(),
            section: self.section_number,
            score: self.score_column().map_or(f64::NAN, value),
            confidence,
            psnr_y: metric(self.psnr, Output::Psnr(0)),
            ssim: metric(self.ssim, Output::Ssim),
            ms_ssim: metric(self.ms_ssim, Output::MsSsim),
            models: plan.models.iter().map(|m| (m.column, m.model.name())).map(named).collect(),
            // Chroma features of grey video have no value.
            features: plan
                .features
                .iter()
                .enumerate()
                .map(|(column, feature)| named((column, &feature.key)))
                .filter(|(_, value)| !value.is_nan())
                .collect(),
            ..Common::default()
        }
    }

    /// Completes all frames at hand, lets them leave, and posts what the section comes to.
    fn end_section(&mut self, reason: &str, live: &Live, actions: &mut Vec<Action>) -> Result<(), Error> {
        self.session.end_run(false);
        self.collect(live, actions)?;
        self.leave(None, actions);
        let section = std::mem::take(&mut self.section);
        if section.last.is_some() {
            actions.push(Action::Post(self.pooled(&section, reason, live.pool_method).to_structure()));
            self.section_number += 1;
        }
        self.totals.add(&section.counts);
        self.prepared = false;
        Ok(())
    }

    fn pooled(&self, section: &Section, reason: &str, method: PoolMethod) -> PooledMessage {
        let values: Vec<f64> = section.pools.iter().map(|pool| method.of(pool)).collect();
        let end = |time: Option<ClockTime>, last: &Stamp| {
            Some(time?.saturating_add(last.duration.unwrap_or(ClockTime::ZERO)))
        };
        let last = section.last.as_ref();
        PooledMessage {
            common: Common {
                timestamp: last.and_then(|last| end(last.timestamp, last)),
                stream_time: last.and_then(|last| end(last.stream_time, last)),
                running_time: last.and_then(|last| end(Some(last.running_time), last)),
                duration: Some(section.duration),
                ..self.common(&values)
            },
            pool_method: method.nick(),
            reason: reason.into(),
            frames: section.counts.scored,
            unpaired: section.counts.unpaired,
            skipped: section.counts.skipped,
            repeated: 0,
            stats: stats(&section.summary),
        }
    }

    /// Gives the results file its name. Later calls do nothing.
    pub fn finish_results(&mut self) -> Result<(), Error> {
        match self.results.take() {
            Some((path, results)) => {
                results.finish(&self.session.aggregates()).map_err(|source| Error::Results { path, source })
            }
            None => Ok(()),
        }
    }

    /// Counters and figures since the start, for the property `stats`.
    pub fn stats(&self) -> Structure {
        let mut counts = self.totals;
        counts.add(&self.section.counts);
        let open = self.section.last.is_some();
        let mut s = Structure::builder("stats")
            .field("frames-scored", counts.scored)
            .field("frames-unpaired", counts.unpaired)
            .field("frames-skipped", counts.skipped)
            .field("frames-repeated", 0u64)
            .field("dist-unmatched", counts.dist_unmatched)
            .field("sections", u64::from(self.section_number) + u64::from(open))
            .field("in-flight", self.line.pending() as u64)
            .field_if_some("score-last", self.last_score)
            .build();
        if counts.scored > 0 {
            for (name, value) in stats(&self.summary).fields() {
                s.set(format!("score-{name}"), value);
            }
            let (pool, histogram) = &self.compute_time;
            s.set("compute-time-mean", PoolMethod::Mean.of(pool));
            s.set("compute-time-p99", histogram.percentile(99.0));
        }
        s
    }
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.scored += other.scored;
        self.unpaired += other.unpaired;
        self.skipped += other.skipped;
        self.dist_unmatched += other.dist_unmatched;
    }
}

/// All not a number without scores.
fn stats(summary: &Summary) -> Stats {
    let nan = f64::NAN;
    let none = Pooled { count: 0, min: nan, max: nan, mean: nan, harmonic_mean: nan, stddev: nan };
    let pooled = summary.pool.pooled().unwrap_or(none);
    Stats {
        min: pooled.min,
        max: pooled.max,
        mean: pooled.mean,
        harmonic_mean: pooled.harmonic_mean,
        stddev: pooled.stddev,
        p1: summary.percentile(1.0),
        p5: summary.percentile(5.0),
        p10: summary.percentile(10.0),
        p50: summary.percentile(50.0),
    }
}

/// Frame numbers are `int` in messages, as in GStreamer's `vmaf` element; they start again from 0 after 2^31.
fn index_field(index: u64) -> i32 {
    (index & 0x7fff_ffff) as i32
}
