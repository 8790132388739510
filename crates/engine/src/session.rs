// SPDX-License-Identifier: MPL-2.0

//! Sessions: they pass frame pairs in order through a backend, the metrics and the models, and keep the history that
//! some features need.
//!
//! History belongs to the reference: motion compares each reference frame with the one before, whether or not a
//! rendition has frames for both. So a *run* is an unbroken sequence of reference frames, common to all renditions, and
//! reference frames without distorted frames are submitted as well. A rendition whose scores begin or end within a run
//! has the same motion as in a stream without gaps.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::AddAssign;
use std::sync::Arc;

use gpu::Device;
use serde::{Deserialize, Serialize};

use crate::EngineError;
use crate::audit::{Audit, Verify};
use crate::backend::{Backend, BackendError, Completion, Group, Ticket};
use crate::frame::{Geometry, Picture};
use crate::heatmap::HeatSums;
use crate::metrics::{Difference, FrameSums, Scorer, Values, Work};
use crate::plan::{Plan, PlannedSource};
use crate::scale::Scaling;
use crate::video::Video;

/// Identifies a group for the caller. The session returns it with all results of the group and does not read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Number of the reference frame.
    pub index: u64,
    /// Time of the reference frame, in ns.
    pub time: u64,
}

/// The result of one submitted pair. Each rendition has one per pair, in the order of submission.
#[derive(Clone, Debug, PartialEq)]
pub struct PairScore {
    /// Number of the rendition, from 0.
    pub rendition: usize,
    /// The group of the pair.
    pub tag: Tag,
    /// True if reference frames are missing that the values depend on. The first pairs after a break between runs, and
    /// the last before one, then have other values than in the stream.
    pub discont: bool,
    /// A value for each of [`Plan::columns`]; `None` for pairs that subsampling skips.
    pub values: Option<Vec<f64>>,
    /// The amounts that the pair adds to the stream's totals; pairs that subsampling skips add to them too.
    pub totals: Totals,
    /// The geometry of its reference frame.
    pub geometry: Geometry,
}

/// Totals of many pairs, from which figures of the whole stream are computed. The caller keeps them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Totals {
    /// The numbers of all sources, one source after another in the order of [`Plan::sources`].
    numbers: Vec<u64>,
}

impl AddAssign<&Self> for Totals {
    fn add_assign(&mut self, other: &Self) {
        self.numbers.resize(self.numbers.len().max(other.numbers.len()), 0);
        for (sum, number) in self.numbers.iter_mut().zip(&other.numbers) {
            *sum = sum.wrapping_add(*number);
        }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        *self += &other;
    }
}

impl Totals {
    /// Computes the amounts that a pair adds.
    fn of(plan: &Plan, sums: &FrameSums, geometry: Geometry) -> Self {
        let sources = plan.sources.iter();
        Self { numbers: sources.flat_map(|source| source.source.totals(sums, geometry)).collect() }
    }

    /// Computes the figures of all pairs: names, with the suffix of the features' names, and values. The pairs must come
    /// from sessions with this plan and frames of this geometry.
    pub fn aggregates(&self, plan: &Plan, geometry: Geometry) -> Vec<(Cow<'static, str>, f64)> {
        let mut numbers = &self.numbers[..];
        let mut aggregates = vec![];
        for planned in &plan.sources {
            let count = planned.source.totals(&FrameSums::default(), geometry).len();
            let (own, others) = numbers.split_at(count.min(numbers.len()));
            let figures = planned.source.aggregates(own, geometry).into_iter();
            aggregates.extend(figures.map(|(name, value)| (planned.extractor.named_figure(name), value)));
            numbers = others;
        }
        aggregates
    }
}

/// Totals of the pairs of a stream since the geometry of its frames last changed: figures of several geometries together
/// are not defined.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamTotals {
    geometry: Option<Geometry>,
    totals: Totals,
}

impl From<&PairScore> for StreamTotals {
    fn from(pair: &PairScore) -> Self {
        Self { geometry: Some(pair.geometry), totals: pair.totals.clone() }
    }
}

impl AddAssign<&Self> for StreamTotals {
    /// Adds the totals of later pairs. Those of another geometry take the place of all before.
    fn add_assign(&mut self, later: &Self) {
        if later.geometry.is_some() && later.geometry != self.geometry {
            *self = Self { geometry: later.geometry, totals: Totals::default() };
        }
        self.totals += &later.totals;
    }
}

impl StreamTotals {
    /// Computes the figures of all pairs: names and values. The pairs must come from sessions with this plan.
    pub fn aggregates(&self, plan: &Plan) -> Vec<(Cow<'static, str>, f64)> {
        self.geometry.map(|geometry| self.totals.aggregates(plan, geometry)).unwrap_or_default()
    }
}

/// A reference frame whose sums are known and whose values may still be incomplete.
enum Pending {
    Pair {
        tag: Tag,
        discont: bool,
        /// Subsampling skips the pair.
        left_out: bool,
        totals: Totals,
    },
    /// The rendition has no frame for it.
    Alone,
}

/// The result of recomputing a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The group.
    pub tag: Tag,
    /// The renditions of the group, each with its error; empty if the CPU could not compute the group.
    pub wrong: Vec<(usize, Option<Wrong>)>,
}

/// Sums of a pair that differ from those of the CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Wrong {
    /// The difference.
    pub difference: Difference,
    /// Scores that were computed from the wrong sums and returned before the error was found. All others are computed
    /// from the CPU's sums.
    pub affected: Affected,
}

/// The returned scores that wrong sums of a pair have affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affected {
    /// None.
    Nothing,
    /// Those of earlier pairs, which waited for this one: motion depends on the following pair.
    Earlier,
    /// That of the pair itself as well.
    All,
}

/// Input that was not processed yet, in order.
enum QueueItem {
    Group {
        tag: Tag,
        ticket: Ticket,
        renditions: Vec<usize>,
        history_only: bool,
        /// Its number, if it is recomputed.
        audit: Option<u64>,
    },
    /// Reference frames are missing, but the run goes on.
    Gap,
    /// Completes pairs that wait for a later pair of this rendition.
    Finish { rendition: usize, broken: bool },
    /// The end of a run; `broken` if reference frames are missing.
    End { broken: bool },
}

/// A group whose sums were fetched while it is still being recomputed.
struct Open {
    number: u64,
    tag: Tag,
    renditions: Vec<usize>,
    tracks: Vec<Checkpoint>,
}

/// The state of a rendition before it took the sums of a group, so that the sums can be replaced.
struct Checkpoint {
    rendition: usize,
    /// The index of the rendition's pair in the group; `None` if it has no frame there.
    pair: Option<usize>,
    sums: FrameSums,
    scorers: Vec<(Box<dyn Scorer>, VecDeque<Values>)>,
    run: usize,
    /// Number of frames that were pending.
    pending: usize,
    /// [`Track::changes`] after the sums were taken.
    changes: u64,
}

/// The state of one rendition.
struct Track {
    /// The scorer of each of [`Plan::sources`], with the values that pending pairs have not taken yet.
    scorers: Vec<(Box<dyn Scorer>, VecDeque<Values>)>,
    /// Number of reference frames of the present run that the scorers have taken.
    run: usize,
    /// Counts pushes and ends of runs.
    changes: u64,
    pending: VecDeque<Pending>,
}

/// Scores the pairs of a reference and one or more renditions of it.
pub struct Session {
    plan: Arc<Plan>,
    backend: Box<dyn Backend>,
    subsample: u64,
    video: Video,
    geometry: Option<Geometry>,
    /// The plan's work, for the video.
    work: Work,
    /// How the pictures of each rendition are scaled.
    scalings: Vec<Option<Scaling>>,
    tracks: Vec<Track>,
    /// Number of reference frames since the last gap.
    since_gap: usize,
    /// Number of groups with pairs since the pictures were lost that metrics keep of all streams.
    since_loss: usize,
    /// Sums of the latest reference frames of the run, oldest first, as many as values depend on.
    history: VecDeque<FrameSums>,
    queue: VecDeque<QueueItem>,
    /// Groups with pairs that were submitted since the geometry was set.
    pairs: u64,
    /// Groups submitted since the geometry was set.
    submitted: u64,
    /// Submitted groups whose sums were fetched.
    fetched: u64,
    /// Heat of pairs whose sums were fetched, with their renditions and groups, in order, until it is taken.
    heat: VecDeque<(usize, Tag, Option<HeatSums>)>,
    /// An error that occurred after scores had become complete in the same call. The next call returns it.
    error: Option<EngineError>,
    audit: Option<Audit>,
    open: Vec<Open>,
    verdicts: VecDeque<Verdict>,
}

impl Session {
    /// Creates a session. `subsample`: every n-th group is scored, the others only serve as history; 1 scores all.
    pub fn new(plan: Arc<Plan>, backend: Box<dyn Backend>, subsample: u32) -> Self {
        Self {
            work: plan.work.clone(),
            plan,
            backend,
            subsample: subsample.max(1).into(),
            video: Video::default(),
            geometry: None,
            scalings: vec![],
            tracks: vec![],
            since_gap: usize::MAX,
            since_loss: usize::MAX,
            history: VecDeque::new(),
            queue: VecDeque::new(),
            pairs: 0,
            submitted: 0,
            fetched: 0,
            heat: VecDeque::new(),
            error: None,
            audit: None,
            open: vec![],
            verdicts: VecDeque::new(),
        }
    }

    /// Sets the properties of the reference stream. Takes effect with [`Session::prepare`].
    pub fn set_video(&mut self, video: Video) {
        self.video = video;
    }

    /// Enables the audit: the CPU recomputes a random share of the groups that a GPU computes
    /// ([`audit`](crate::audit)). Takes effect with [`Session::prepare`].
    pub fn set_audit(&mut self, verify: Verify) {
        self.audit = Some(Audit::new(verify));
    }

    /// Sets the share of later groups that are recomputed.
    pub fn set_verified_share(&mut self, share: f64) {
        self.audit.iter_mut().for_each(|audit| audit.set_share(share));
    }

    /// Sets whether the session waits for later groups to be recomputed ([`Verify::patient`]).
    pub fn set_patient(&mut self, patient: bool) {
        self.audit.iter_mut().for_each(|audit| audit.set_patient(patient));
    }

    /// Sets how many threads may copy a picture ([`Backend::set_copiers`]).
    pub fn set_copiers(&mut self, threads: usize) {
        self.backend.set_copiers(threads);
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the prepared geometry of the reference frames.
    pub fn geometry(&self) -> Option<Geometry> {
        self.geometry
    }

    /// Returns the short name of the backend for users: `cpu`, `hip`.
    pub fn backend_name(&self) -> &'static str {
        self.backend.name()
    }

    /// Describes the backend ([`Backend::made_by`]).
    pub fn made_by(&self) -> Vec<(&'static str, String)> {
        self.backend.made_by()
    }

    /// Describes how metrics read the stream: their names, and a text. Empty before [`Session::prepare`].
    pub fn readings(&self) -> Vec<(&'static str, String)> {
        self.geometry.map(|geometry| self.work.readings(geometry)).unwrap_or_default()
    }

    /// Returns the GPU of the backend, if it has one.
    pub fn gpu(&self) -> Option<&Arc<Device>> {
        self.backend.gpu()
    }

    /// Continues with another backend. Nothing may be in flight; call [`Session::prepare`] next.
    pub fn set_backend(&mut self, backend: Box<dyn Backend>) {
        self.backend = backend;
    }

    /// Continues with another backend within a run. Nothing may be in flight. `earlier`: the last groups of the run,
    /// oldest first, up to [`Session::lags`] of them, as metrics compare with their references.
    pub fn take_over(
        &mut self,
        mut backend: Box<dyn Backend>,
        earlier: Vec<Group<'_>>,
    ) -> Result<(), EngineError> {
        if let Some(geometry) = self.geometry {
            backend.prepare(&self.work, geometry, &self.scalings)?;
            for group in earlier {
                let ticket = backend.submit(Group { history_only: true, ..group })?;
                backend.wait(ticket)?;
            }
            self.has_lost_pictures();
        }
        self.backend = backend;
        Ok(())
    }

    /// Notes that frames to come follow those from before [`Session::prepare`], which metrics that keep pictures do not have:
    /// pairs are marked until these have as many again as they read.
    pub fn has_lost_pictures(&mut self) {
        self.since_loss = 0;
    }

    /// Returns how many earlier reference pictures of a run the metrics read.
    pub fn lags(&self) -> usize {
        self.work.lags()
    }

    /// Returns how many earlier reference frames of a run a score may depend on ([`Plan::lookback`]).
    pub fn lookback(&self) -> usize {
        self.plan.lookback_of(&self.work)
    }

    /// Returns how many later reference frames may be needed before a score is known.
    pub fn lookahead(&self) -> u32 {
        self.plan.lookahead() as u32
    }

    /// Sets the size and depth of the reference frames, and for each rendition how its frames are scaled to that size;
    /// `None` if they have it. Earlier pairs are forgotten, so end their runs first.
    pub fn prepare(&mut self, geometry: Geometry, renditions: &[Option<Scaling>]) -> Result<(), EngineError> {
        self.backend.expect_history(self.subsample > 1);
        self.plan.work.check_video(&self.video).map_err(BackendError::from)?;
        let work = self.plan.work.suited(&self.video, geometry);
        self.backend.prepare(&work, geometry, renditions)?;
        self.work = work;
        let track = |_: &_| {
            let scorer = |source: &PlannedSource| Ok((source.source.scorer(geometry)?, VecDeque::new()));
            let scorers = self.plan.sources.iter().map(scorer).collect::<Result<_, _>>();
            Ok(Track {
                scorers: scorers.map_err(EngineError::Options)?,
                run: 0,
                changes: 0,
                pending: VecDeque::new(),
            })
        };
        self.tracks = renditions.iter().map(track).collect::<Result<_, EngineError>>()?;
        self.geometry = Some(geometry);
        self.scalings = renditions.to_vec();
        if let Some(audit) = &mut self.audit {
            audit.prepare(&self.work, geometry, renditions, self.backend.gpu());
            self.open.drain(..).for_each(|_| audit.skip());
        }
        self.history.clear();
        self.queue.clear();
        self.heat.clear();
        self.verdicts.clear();
        self.error = None;
        self.pairs = 0;
        self.submitted = 0;
        self.fetched = 0;
        Ok(())
    }

    /// Takes the next reference frame with the distorted frames to compare with it, each with the number of its
    /// rendition, and a tag that comes back with the results. Without any, the frame only serves as history. Pictures must have the sizes given to
    /// [`Session::prepare`], and there must be [`Session::room`].
    pub fn submit(
        &mut self,
        tag: Tag,
        reference: Picture<'_>,
        distorted: Vec<(usize, Picture<'_>)>,
    ) -> Result<(), EngineError> {
        let history_only = distorted.is_empty() || !self.pairs.is_multiple_of(self.subsample);
        self.pairs += u64::from(!distorted.is_empty());
        let renditions: Vec<_> = distorted.iter().map(|(rendition, _)| *rendition).collect();
        let group = Group { reference, distorted, history_only };
        // Only GPUs are audited.
        let audit = self.audit.as_mut().filter(|_| self.backend.gpu().is_some());
        let audit = audit.and_then(|audit| audit.offer(&group));
        let ticket = self.backend.submit(group)?;
        self.submitted += 1;
        self.queue.push_back(QueueItem::Group { tag, ticket, renditions, history_only, audit });
        Ok(())
    }

    /// Marks a gap between the submitted reference frames and the following ones. They are compared as if there were no
    /// gap, as libvmaf does, and the pairs whose values depend on it are marked.
    pub fn gap(&mut self) {
        self.queue.push_back(QueueItem::Gap);
    }

    /// Completes the scores of a rendition that wait for a later reference frame, as at the end of a stream. The run
    /// continues, for this rendition too. `broken`: the stream does not end here, so these scores are marked.
    pub fn finish(&mut self, rendition: usize, broken: bool) {
        if rendition < self.tracks.len() {
            self.queue.push_back(QueueItem::Finish { rendition, broken });
        }
    }

    /// Ends the run: completes the pairs that wait for a later reference frame. The next frame is the first of a new
    /// run. `broken`: reference frames are missing here; otherwise the stream ends.
    pub fn end_run(&mut self, broken: bool) {
        self.queue.push_back(QueueItem::End { broken });
        self.backend.reset();
        self.audit.iter_mut().for_each(Audit::reset);
    }

    /// Returns the number of submitted groups whose sums were not fetched.
    pub fn in_flight(&self) -> usize {
        (self.submitted - self.fetched) as usize
    }

    /// Returns true if scores of pairs are outstanding that were submitted with a tag that `is_meant` accepts.
    pub fn owes(&self, is_meant: impl Fn(Tag) -> bool) -> bool {
        let pending = self.tracks.iter().flat_map(|track| &track.pending);
        let pending = pending.filter_map(|pending| match pending {
            Pending::Pair { tag, .. } => Some(*tag),
            Pending::Alone => None,
        });
        let queued = self.queue.iter().filter_map(|queued| match queued {
            QueueItem::Group { tag, renditions, .. } if !renditions.is_empty() => Some(*tag),
            _ => None,
        });
        pending.chain(queued).any(is_meant)
    }

    /// Returns true if another group can be submitted before results are collected.
    pub fn room(&self) -> bool {
        self.in_flight() < self.depth()
    }

    /// Returns how many groups can be in flight, at least 1.
    pub fn depth(&self) -> usize {
        self.backend.depth().max(1)
    }

    /// Returns a function that waits for the last submitted group; `None` if its sums were fetched.
    pub fn completion(&self) -> Option<Completion> {
        self.queue.iter().rev().find_map(|queued| match queued {
            QueueItem::Group { ticket, .. } => self.backend.completion(*ticket),
            QueueItem::Gap | QueueItem::Finish { .. } | QueueItem::End { .. } => None,
        })
    }

    /// Returns the scores that have become complete. An error after some of them is returned by the next call. After an
    /// error, call [`Session::prepare`].
    pub fn collect(&mut self) -> Result<Vec<PairScore>, EngineError> {
        let mut scores = vec![];
        let result = match self.error.take() {
            Some(error) => Err(error),
            None => {
                // Done before later pairs are fetched, because the scores that these complete can no longer be
                // corrected.
                self.judge_open(&mut scores);
                self.fetch(&mut scores)
            }
        };
        match result {
            Err(error) if scores.is_empty() => Err(error),
            result => {
                self.error = result.err();
                Ok(scores)
            }
        }
    }

    /// Fetches the available sums, up to the first group that is not done.
    fn fetch(&mut self, scores: &mut Vec<PairScore>) -> Result<(), EngineError> {
        while let (Some(next), Some(geometry)) = (self.queue.pop_front(), self.geometry) {
            match next {
                QueueItem::Group { tag, ticket, renditions, history_only, audit } => {
                    let Some(mut sums) = self.backend.poll(ticket)? else {
                        self.queue.push_front(QueueItem::Group {
                            tag,
                            ticket,
                            renditions,
                            history_only,
                            audit,
                        });
                        break;
                    };
                    self.fetched += 1;
                    if let Some(number) = audit {
                        self.judge(number, tag, &renditions, &mut sums);
                    }
                    let history = sums.first().map(|sums| self.work.of_reference(sums));
                    let history = history.unwrap_or_default();
                    let alone = (0..self.tracks.len()).filter(|track| !renditions.contains(track));
                    for rendition in alone.collect::<Vec<_>>() {
                        self.tracks[rendition].push(&history, Pending::Alone);
                        self.complete(rendition, scores);
                    }
                    let lookback = self.lookback();
                    let discont = self.since_gap < lookback || self.since_loss < self.work.history();
                    let pairs = !renditions.is_empty();
                    for (rendition, mut sums) in renditions.into_iter().zip(sums) {
                        if HeatSums::are_planned(&self.work) {
                            self.heat.push_back((rendition, tag, HeatSums::take(&self.work, &mut sums)));
                        }
                        let totals = Totals::of(&self.plan, &sums, geometry);
                        let track = &mut self.tracks[rendition];
                        track.push(&sums, Pending::Pair { tag, discont, left_out: history_only, totals });
                        self.complete(rendition, scores);
                    }
                    self.since_gap = self.since_gap.saturating_add(1);
                    self.since_loss = self.since_loss.saturating_add(pairs.into());
                    self.history.push_back(history);
                    let more = self.history.len().saturating_sub(lookback);
                    self.history.drain(..more);
                }
                QueueItem::Gap => {
                    (self.since_gap, self.since_loss) = (0, 0);
                    self.tracks.iter_mut().for_each(Track::mark);
                }
                QueueItem::Finish { rendition, broken } => {
                    self.tracks[rendition].finish();
                    if broken && self.lookback() > 0 {
                        self.tracks[rendition].mark();
                    }
                    self.complete(rendition, scores);
                    self.history.iter().for_each(|sums| self.tracks[rendition].push(sums, Pending::Alone));
                    self.complete(rendition, scores);
                }
                QueueItem::End { broken } => {
                    self.history.clear();
                    self.since_gap = if broken { 0 } else { usize::MAX };
                    self.since_loss = self.since_gap;
                    for rendition in 0..self.tracks.len() {
                        self.tracks[rendition].finish();
                        if broken && self.lookback() > 0 {
                            self.tracks[rendition].mark();
                        }
                        self.complete(rendition, scores);
                    }
                }
            }
        }
        Ok(())
    }

    /// Compares the sums of a group with the CPU's and replaces them. If the CPU's sums are not there yet, keeps the
    /// state for a later replacement.
    fn judge(&mut self, number: u64, tag: Tag, renditions: &[usize], sums: &mut [FrameSums]) {
        let result = self.audit.as_mut().and_then(|audit| audit.result(number));
        match result {
            Some(Ok(expected)) => {
                let judge = |(got, expected): (&mut FrameSums, FrameSums)| {
                    let difference = expected.difference(got)?;
                    *got = expected;
                    Some(Wrong { difference, affected: Affected::Nothing })
                };
                let wrong =
                    renditions.iter().copied().zip(sums.iter_mut().zip(expected).map(judge)).collect();
                self.verdicts.push_back(Verdict { tag, wrong });
            }
            Some(Err(_)) => self.skip_audit(tag),
            None => {
                let Some(first) = sums.first() else { return };
                let checkpoint = |(rendition, track): (usize, &Track)| {
                    let pair = renditions.iter().position(|of| *of == rendition);
                    let sums = pair.and_then(|pair| sums.get(pair)).unwrap_or(first);
                    track.checkpoint(rendition, pair, sums)
                };
                let tracks = self.tracks.iter().enumerate().map(checkpoint).collect();
                self.open.push(Open { number, tag, renditions: renditions.to_vec(), tracks });
            }
        }
    }

    /// Processes the results of the audit that have arrived.
    fn judge_open(&mut self, scores: &mut Vec<PairScore>) {
        let mut at = 0;
        while let Some(open) = self.open.get(at) {
            let Some(result) = self.audit.as_mut().and_then(|audit| audit.result(open.number)) else {
                at += 1;
                continue;
            };
            let Open { tag, renditions, tracks, .. } = self.open.remove(at);
            let Ok(expected) = result else {
                self.skip_audit(tag);
                continue;
            };
            let mut wrong: Vec<_> = renditions.into_iter().map(|rendition| (rendition, None)).collect();
            for track in tracks {
                let pair = track.pair;
                let Some(expected) = expected.get(pair.unwrap_or(0)) else { continue };
                if let Some(difference) = expected.difference(&track.sums) {
                    let affected = self.exchange(track, expected);
                    if let Some(wrong) = pair.and_then(|pair| wrong.get_mut(pair)) {
                        wrong.1 = Some(Wrong { difference, affected });
                    }
                }
            }
            self.verdicts.push_back(Verdict { tag, wrong });
            (0..self.tracks.len()).for_each(|rendition| self.complete(rendition, scores));
        }
    }

    /// Reports that a group was not verified.
    fn skip_audit(&mut self, tag: Tag) {
        self.audit.iter_mut().for_each(Audit::skip);
        self.verdicts.push_back(Verdict { tag, wrong: vec![] });
    }

    /// Replaces the sums of a group, unless later groups have completed the scores.
    fn exchange(&mut self, of: Checkpoint, sums: &FrameSums) -> Affected {
        let (Some(track), Some(geometry)) = (self.tracks.get_mut(of.rendition), self.geometry) else {
            return Affected::All;
        };
        let Some(pending) = track.pending.back_mut().filter(|_| track.changes == of.changes) else {
            return Affected::All;
        };
        let history = self.work.of_reference(sums);
        let sums = match pending {
            Pending::Pair { totals, .. } => {
                *totals = Totals::of(&self.plan, sums, geometry);
                sums
            }
            Pending::Alone => &history,
        };
        let gone = (of.pending + 1).saturating_sub(track.pending.len());
        track.scorers = of.scorers;
        for (scorer, ready) in &mut track.scorers {
            scorer.push(sums, of.run, ready);
            // Values of earlier pairs that this one completed have been returned.
            ready.drain(..gone.min(ready.len()));
        }
        if let Some(last) = self.history.back_mut() {
            *last = history;
        }
        if gone > 0 { Affected::Earlier } else { Affected::Nothing }
    }

    /// Waits until all groups have been recomputed, if the audit is patient. Call [`Session::collect`] next.
    pub fn settle_audit(&mut self) {
        self.audit.iter_mut().for_each(Audit::settle);
    }

    /// Returns the result of the next recomputed group.
    pub fn take_verdict(&mut self) -> Option<Verdict> {
        self.verdicts.pop_front()
    }

    /// Returns how many chosen groups were not recomputed since the last call.
    pub fn take_left_out(&mut self) -> u64 {
        self.audit.as_mut().map_or(0, Audit::take_skipped)
    }

    /// Returns the heat of the next pair whose sums were fetched, with its rendition and group; `None` for pairs that
    /// subsampling skips. It needs no later pair. There is one per pair if the plan includes a heat map.
    pub fn take_heat(&mut self) -> Option<(usize, Tag, Option<HeatSums>)> {
        self.heat.pop_front()
    }

    /// Takes the pending pairs of a rendition whose values are all known.
    fn complete(&mut self, rendition: usize, scores: &mut Vec<PairScore>) {
        // Without a geometry there are no pairs.
        let Some(geometry) = self.geometry else { return };
        while let Some((pending, sources)) = self.tracks[rendition].pop() {
            let Pending::Pair { tag, discont, left_out, totals } = pending else { continue };
            let values = (!left_out).then(|| self.values(&sources));
            scores.push(PairScore { rendition, tag, discont, values, totals, geometry });
        }
    }

    /// Computes all columns of one pair from the values of each source.
    fn values(&self, sources: &[Values]) -> Vec<f64> {
        let mut values = Vec::with_capacity(self.plan.columns.len());
        values.extend(self.plan.features.iter().map(|feature| sources[feature.source][feature.output]));
        for planned in &self.plan.models {
            let inputs: Vec<f64> = planned.inputs.iter().map(|i| values[*i]).collect();
            let score = planned.model.score(&inputs, self.plan.score_options);
            values.push(score.score);
            if let Some(b) = score.bootstrap {
                values.extend(b.members);
                values.extend([b.bagging, b.stddev, b.ci_lo, b.ci_hi]);
            }
        }
        values
    }
}

impl Track {
    /// Takes the sums of the next reference frame: of its pair, or of the reference alone.
    fn push(&mut self, sums: &FrameSums, pending: Pending) {
        self.pending.push_back(pending);
        for (scorer, ready) in &mut self.scorers {
            scorer.push(sums, self.run, ready);
        }
        self.run += 1;
        self.changes += 1;
    }

    /// Saves the state of the rendition before it takes the sums of the next group.
    fn checkpoint(&self, rendition: usize, pair: Option<usize>, sums: &FrameSums) -> Checkpoint {
        Checkpoint {
            rendition,
            pair,
            sums: sums.clone(),
            scorers: self.scorers.iter().map(|(scorer, ready)| (scorer.boxed(), ready.clone())).collect(),
            run: self.run,
            pending: self.pending.len(),
            changes: self.changes + 1,
        }
    }

    /// Completes the pairs that wait for a later frame.
    fn finish(&mut self) {
        self.scorers.iter_mut().for_each(|(scorer, ready)| scorer.finish(ready));
        self.changes += 1;
        self.run = 0;
    }

    /// Marks the pending pairs, as frames are missing that their values depend on.
    fn mark(&mut self) {
        for pending in &mut self.pending {
            if let Pending::Pair { discont, .. } = pending {
                *discont = true;
            }
        }
    }

    /// Returns the oldest pending frame with the values of each source once all of them are known.
    fn pop(&mut self) -> Option<(Pending, Vec<Values>)> {
        if self.scorers.iter().any(|(_, ready)| ready.is_empty()) {
            return None;
        }
        let pending = self.pending.pop_front()?;
        Some((pending, self.scorers.iter_mut().filter_map(|(_, ready)| ready.pop_front()).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendError;
    use crate::backend::cpu::Cpu;
    use crate::frame::BitDepth;
    use crate::metrics::Work;
    use crate::metrics::feature_list;
    use crate::model::ScoreOptions;

    fn plan() -> Arc<Plan> {
        let extractors = feature_list::parse("psnr=enable_apsnr=true;motion", &[]).unwrap();
        let features: Vec<_> = extractors.iter().flat_map(|extractor| extractor.features(true)).collect();
        Arc::new(Plan::new(vec![], &features, ScoreOptions::default()).unwrap())
    }

    fn geometry() -> Geometry {
        Geometry { width: 8, height: 4, depth: BitDepth::new(8).unwrap(), chroma: None }
    }

    /// A backend whose third group fails.
    struct Failing(Cpu, u32);

    impl Backend for Failing {
        fn name(&self) -> &'static str {
            "failing"
        }

        fn depth(&self) -> usize {
            4
        }

        fn prepare(
            &mut self,
            work: &Work,
            geometry: Geometry,
            renditions: &[Option<Scaling>],
        ) -> Result<(), BackendError> {
            self.0.prepare(work, geometry, renditions)
        }

        fn submit(&mut self, group: Group<'_>) -> Result<Ticket, BackendError> {
            self.0.submit(group)
        }

        fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<FrameSums>>, BackendError> {
            self.1 += 1;
            if self.1 == 3 { Err(BackendError::Panicked) } else { self.0.poll(ticket) }
        }

        fn completion(&self, ticket: Ticket) -> Option<Completion> {
            self.0.completion(ticket)
        }

        fn reset(&mut self) {
            self.0.reset();
        }
    }

    #[test]
    fn what_is_complete_comes_before_an_error() {
        let mut session = Session::new(plan(), Box::new(Failing(Cpu::new(3).unwrap(), 0)), 1);
        session.prepare(geometry(), &[None]).unwrap();
        let picture = || Picture::packed(&[9; 32], geometry()).unwrap();
        for _ in 0..3 {
            session.submit(Tag::default(), picture(), vec![(0, picture())]).unwrap();
        }
        // Motion delays the first pair until the second.
        assert_eq!(session.collect().unwrap().len(), 1);
        assert!(matches!(session.collect(), Err(EngineError::Backend(BackendError::Panicked))));
        session.prepare(geometry(), &[None]).unwrap();
        assert_eq!(session.collect().unwrap(), []);
    }

    #[test]
    fn totals_outlive_what_they_are_of() {
        let (plan, geometry) = (plan(), geometry());
        let mut session = Session::new(plan.clone(), Box::new(Cpu::new(1).unwrap()), 2);
        let mut totals = Totals::default();
        // 10 log10(255^2 / mse), where the mean error includes pairs that are not scored.
        for errors in [[0u8, 4, 2], [8, 6, 0]] {
            session.prepare(geometry, &[None]).unwrap();
            for error in errors {
                let (reference, distorted) = ([100; 32], [100 + error; 32]);
                let picture = |bytes| Picture::packed(bytes, geometry).unwrap();
                let distorted = vec![(0, picture(&distorted))];
                session.submit(Tag::default(), picture(&reference), distorted).unwrap();
                let pairs = session.collect().unwrap();
                pairs.iter().for_each(|pair| totals += &pair.totals);
            }
            session.end_run(false);
            let pairs = session.collect().unwrap();
            pairs.into_iter().for_each(|pair| totals += pair.totals);
        }
        let [(name, value)] = &totals.aggregates(&plan, geometry)[..] else { panic!("luma alone") };
        let mse = f64::from(16 + 4 + 64 + 36) / 6.0;
        assert_eq!(*name, "apsnr_y");
        assert!((value - 10.0 * (255.0 * 255.0 / mse).log10()).abs() < 1e-9, "{value}");
        assert_eq!(Totals::default().aggregates(&plan, geometry), []);
    }

    #[test]
    fn figures_of_variants_have_the_suffix_of_their_features() {
        let extractors = feature_list::parse("xpsnr;xpsnr=xpsnr_inf=inf", &[]).unwrap();
        let features: Vec<_> = extractors.iter().flat_map(|extractor| extractor.features(true)).collect();
        let plan = Arc::new(Plan::new(vec![], &features, ScoreOptions::default()).unwrap());
        let mut session = Session::new(plan.clone(), Box::new(Cpu::new(1).unwrap()), 1);
        session.prepare(geometry(), &[None]).unwrap();
        let picture = || Picture::packed(&[100; 32], geometry()).unwrap();
        session.submit(Tag::default(), picture(), vec![(0, picture())]).unwrap();
        session.end_run(false);
        let pairs = session.collect().unwrap();
        let aggregates = pairs[0].totals.aggregates(&plan, geometry());
        let names: Vec<_> = aggregates.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["axpsnr_y", "axpsnr_min", "axpsnr_y_inf_inf", "axpsnr_min_inf_inf"]);
        assert!(aggregates[0].1.is_finite() && aggregates[2].1.is_infinite());
    }

    /// Returns the values of each pair with the number of its reference frame and its mark. `present`: which of two
    /// renditions have a frame; `finished`: the frame after which the second rendition's scores are completed;
    /// `breaks`: the frames before which reference frames are missing.
    fn followed(
        options: &str,
        present: impl Fn(usize) -> [bool; 2],
        finished: Option<usize>,
        breaks: &[usize],
    ) -> [Vec<(usize, bool, Vec<f64>)>; 2] {
        let geometry = geometry();
        let extractors = feature_list::parse(options, &[]).unwrap();
        let features: Vec<_> = extractors.iter().flat_map(|extractor| extractor.features(true)).collect();
        let plan = Arc::new(Plan::new(vec![], &features, ScoreOptions::default()).unwrap());
        let mut session = Session::new(plan, Box::new(Cpu::new(1).unwrap()), 1);
        session.prepare(geometry, &[None, None]).unwrap();
        let mut submitted = [0, 0];
        let mut scores = [vec![], vec![]];
        let mut collect = |session: &mut Session| {
            for score in session.collect().unwrap() {
                let frame = score.tag.index as usize;
                scores[score.rendition].push((frame, score.discont, score.values.unwrap()));
            }
        };
        for frame in 0..12usize {
            let samples: Vec<u8> =
                (0..32).map(|i| (i * 31 + frame * frame * 13 + i * frame * 7) as u8).collect();
            let picture = |samples| Picture::packed(samples, geometry).unwrap();
            let distorted = (0..2).filter(|i| present(frame)[*i]).map(|i| (i, picture(&[90; 32])));
            let distorted: Vec<_> = distorted.collect();
            distorted.iter().for_each(|(i, _)| submitted[*i] += 1);
            if breaks.contains(&frame) {
                if frame % 2 == 0 { session.end_run(true) } else { session.gap() }
            }
            session.submit(Tag { index: frame as u64, time: 0 }, picture(&samples), distorted).unwrap();
            if finished == Some(frame) {
                session.finish(1, false);
            }
            collect(&mut session);
        }
        session.end_run(false);
        collect(&mut session);
        assert!(!session.owes(|_| true));
        assert_eq!(scores.each_ref().map(Vec::len), submitted);
        scores
    }

    const MOTIONS: [&str; 4] = [
        "motion",
        "motion=motion_five_frame_window=true",
        "motion=motion_moving_average=true",
        "motion=motion_five_frame_window=true:motion_moving_average=true",
    ];

    /// A rendition that lacks frames has the reference's motion at its frames.
    #[test]
    fn motion_does_not_depend_on_frames_that_a_rendition_lacks() {
        for options in MOTIONS {
            let whole = followed(options, |_| [true, true], None, &[]);
            let sparse =
                followed(options, |frame| [frame % 2 == 0, frame % 5 == 3 || frame > 8], Some(4), &[]);
            for (sparse, whole) in sparse.iter().zip(&whole) {
                assert!(sparse.len() > 3 && sparse.len() < whole.len());
                assert!(sparse.iter().all(|pair| whole.contains(pair)), "{options}: {sparse:?} of {whole:?}");
            }
            let [alone, _] = followed(options, |frame| [frame == 6, false], None, &[]);
            assert_eq!(alone, whole[0][6..=6], "{options}");
        }
    }

    /// The end of a rendition within a run has the values of a stream's end. Later frames have the values of the whole
    /// run.
    #[test]
    fn a_rendition_that_ends_leaves_the_run_as_it_is() {
        for options in MOTIONS {
            let [whole, _] = followed(options, |_| [true, true], None, &[]);
            let [first, second] = followed(options, |_| [true, true], Some(5), &[]);
            assert_eq!(first, whole);
            let differ: Vec<_> = (0..12).filter(|i| second[*i] != whole[*i]).collect();
            assert!(differ.iter().all(|i| *i == 5), "{options}: {differ:?}");
        }
    }

    /// Exactly the pairs whose values depend on missing reference frames are marked.
    #[test]
    fn pairs_beside_missing_reference_frames_are_marked() {
        let marked = |options: &str, present: fn(usize) -> [bool; 2], breaks: &[usize]| {
            followed(options, present, None, breaks).map(|scores| {
                scores.iter().filter(|(_, discont, _)| *discont).map(|(frame, ..)| *frame).collect::<Vec<_>>()
            })
        };
        assert_eq!(marked("motion", |_| [true, true], &[4]), [[3, 4], [3, 4]]);
        assert_eq!(marked(MOTIONS[3], |_| [true, true], &[4])[0], [3, 4, 5, 6, 7]);
        // If the run continues, the values are those without a gap.
        assert_eq!(marked("motion", |_| [true, true], &[5]), [[4, 5], [4, 5]]);
        let values = |breaks: &[usize]| {
            let [first, _] = followed("motion", |_| [true, true], None, breaks);
            first.into_iter().map(|(frame, _, values)| (frame, values)).collect::<Vec<_>>()
        };
        assert_eq!(values(&[5]), values(&[]));
        assert_eq!(marked("motion", |frame| [frame != 4, frame != 3], &[4]), [vec![3], vec![4]]);
        assert!(marked("psnr", |_| [true, true], &[4])[0].is_empty());
    }

    /// Covers each time at which the CPU's sums may arrive.
    #[test]
    fn scores_that_wrong_sums_got_into_are_known() {
        let geometry = geometry();
        let (still, wrong) = ([100; 32], [130; 32]);
        let submit = |session: &mut Session, reference: &[u8; 32], audited: bool| {
            let picture = |bytes| Picture::packed(bytes, geometry).unwrap();
            session.submit(Tag::default(), picture(reference), vec![(0, picture(&[90; 32]))]).unwrap();
            let Some(QueueItem::Group { audit, .. }) = session.queue.back_mut() else {
                panic!("was submitted")
            };
            *audit = audited.then_some(7);
        };
        let begin = |before: usize| {
            let mut session = Session::new(plan(), Box::new(Cpu::new(4).unwrap()), 1);
            session.prepare(geometry, &[None]).unwrap();
            session.set_audit(Verify { share: 0.0, seed: 0, patient: true, threads: 1 });
            (0..before).for_each(|_| submit(&mut session, &still, false));
            session.collect().unwrap();
            session
        };
        for (before, late, after, expected) in [
            (1, false, 0, Affected::Nothing),
            (0, true, 0, Affected::Nothing),
            (1, true, 0, Affected::Earlier),
            (1, true, 1, Affected::All),
        ] {
            // The CPU's sums of the group.
            let mut right = begin(before);
            submit(&mut right, &still, false);
            let Some(QueueItem::Group { ticket, .. }) = right.queue.back() else { panic!("was submitted") };
            let sums = right.backend.wait(*ticket).unwrap();
            let mut session = begin(before);
            submit(&mut session, &wrong, true);
            let insert = |session: &mut Session| session.audit.as_mut().unwrap().insert(7, sums.clone());
            if late {
                session.collect().unwrap();
                (0..after).for_each(|_| submit(&mut session, &still, false));
                session.collect().unwrap();
            }
            insert(&mut session);
            session.collect().unwrap();
            let affected = session.take_verdict().unwrap().wrong[0].1.as_ref().unwrap().affected;
            assert_eq!(affected, expected, "{before} before, {late}, {after} after");
        }
    }
}
