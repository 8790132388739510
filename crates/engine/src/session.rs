// SPDX-License-Identifier: MPL-2.0

//! The walk of frame pairs through a backend, the metrics and the models, in order, with the history
//! that some features need.

use std::collections::VecDeque;
use std::sync::Arc;

use super::plan::{Plan, Source};
use super::scorer::Scorer;
use crate::backend::{Backend, Completion, Group, Ticket};
use crate::error::EngineError;
use crate::frame::{Geometry, Picture};
use crate::metrics::FrameSums;
use crate::metrics::damage::DamageSums;
use crate::metrics::feature::Output;
use crate::metrics::motion::{MotionScores, MotionSums};
use crate::scale::Scaling;
use gpu::Device;

/// The result of one submitted pair. Those of a rendition come in the order of submission, one for each pair.
#[derive(Clone, Debug, PartialEq)]
pub struct PairScore {
    /// Number of the rendition, from 0.
    pub rendition: usize,
    /// The pair is the first after a break in the run of pairs, or the last before one.
    pub discont: bool,
    /// A value for each of [`Plan::columns`]; `None` for pairs left out by subsampling.
    pub values: Option<Vec<f64>>,
}

/// A pair whose sums are known and whose motion is not.
struct Pending {
    discont: bool,
    /// Feature values, motion still missing; `None` when the pair is left out.
    features: Option<Vec<f64>>,
}

/// What was handed in and not looked at since, in order.
enum Queued {
    Group {
        ticket: Ticket,
        renditions: Vec<usize>,
        history_only: bool,
    },
    /// The end of a rendition's run of pairs; `broken` where pairs are missing.
    End {
        rendition: usize,
        broken: bool,
    },
}

/// What one rendition has beside the others.
struct Track {
    /// For each of [`Plan::sources`].
    scorers: Vec<Scorer>,
    /// Pairs in the present run, of those whose sums were fetched.
    run: usize,
    /// Pairs whose sums were fetched.
    fetched: u64,
    /// No pair of the present run was submitted.
    fresh: bool,
    /// The next pair is the first after a break.
    broken: bool,
    pending: VecDeque<Pending>,
}

/// Scores the pairs of a reference and one or more renditions of it.
pub struct Session {
    plan: Arc<Plan>,
    backend: Box<dyn Backend>,
    subsample: u64,
    geometry: Option<Geometry>,
    tracks: Vec<Track>,
    queue: VecDeque<Queued>,
    /// Groups submitted since the geometry was set, and those of them whose sums were fetched.
    submitted: u64,
    fetched: u64,
    /// Of the groups that were fetched, and nobody took yet.
    damage: VecDeque<(usize, Option<DamageSums>)>,
}

impl Session {
    /// `subsample`: every n-th group is scored, the others only serve as history; 1 scores all.
    pub fn new(plan: Arc<Plan>, backend: Box<dyn Backend>, subsample: u32) -> Self {
        Self {
            plan,
            backend,
            subsample: subsample.max(1).into(),
            geometry: None,
            tracks: vec![],
            queue: VecDeque::new(),
            submitted: 0,
            fetched: 0,
            damage: VecDeque::new(),
        }
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn backend_name(&self) -> &'static str {
        self.backend.name()
    }

    /// The GPU that the backend computes on, if it does.
    pub fn gpu(&self) -> Option<&Arc<Device>> {
        self.backend.gpu()
    }

    /// Goes on with another backend. Nothing may be in flight; [`Session::prepare`] comes next.
    pub fn set_backend(&mut self, backend: Box<dyn Backend>) {
        self.backend = backend;
    }

    /// How many later pairs a score waits for, at most.
    pub fn lookahead(&self) -> u32 {
        let lookahead = |source: &Source| match source {
            Source::Motion(options) => options.lookahead() as u32,
            _ => 0,
        };
        self.plan.sources.iter().map(lookahead).max().unwrap_or(0)
    }

    /// Sets the size and depth of the reference frames to come, and for each rendition how its frames are brought to
    /// that size, unless they have it. Earlier pairs are forgotten: end their runs first.
    pub fn prepare(&mut self, geometry: Geometry, renditions: &[Option<Scaling>]) -> Result<(), EngineError> {
        self.backend.prepare(&self.plan.work, geometry, renditions)?;
        let track = |_: &_| {
            let scorers = self.plan.sources.iter().map(|source| Scorer::new(source, geometry));
            Ok(Track {
                scorers: scorers.collect::<Result<_, _>>()?,
                run: 0,
                fetched: 0,
                fresh: true,
                broken: false,
                pending: VecDeque::new(),
            })
        };
        self.tracks = renditions.iter().map(track).collect::<Result<_, EngineError>>()?;
        self.geometry = Some(geometry);
        self.queue.clear();
        self.damage.clear();
        self.submitted = 0;
        self.fetched = 0;
        Ok(())
    }

    /// Takes the next reference frame with the distorted frames to compare with it, by number of their rendition.
    /// Pictures must be of the sizes given to [`Session::prepare`], there must be at least one distorted, and there
    /// must be [`Session::room`].
    pub fn submit(
        &mut self,
        reference: Picture<'_>,
        distorted: Vec<(usize, Picture<'_>)>,
    ) -> Result<(), EngineError> {
        let history_only = !self.submitted.is_multiple_of(self.subsample);
        let renditions: Vec<_> = distorted.iter().map(|(rendition, _)| *rendition).collect();
        let ticket = self.backend.submit(Group { reference, distorted, history_only })?;
        self.submitted += 1;
        for rendition in &renditions {
            self.tracks[*rendition].fresh = false;
        }
        self.queue.push_back(Queued::Group { ticket, renditions, history_only });
        Ok(())
    }

    /// Ends a rendition's run of unbroken pairs: completes what waits for a later pair, and makes the next pair the
    /// first of a new run. `broken` says that pairs are missing here, as opposed to the stream's end.
    pub fn end_run(&mut self, rendition: usize, broken: bool) {
        let Some(track) = self.tracks.get_mut(rendition) else { return };
        track.fresh = true;
        self.queue.push_back(Queued::End { rendition, broken });
        if self.tracks.iter().all(|track| track.fresh) {
            self.backend.reset();
        }
    }

    /// Groups that were submitted and whose sums were not fetched since.
    pub fn in_flight(&self) -> usize {
        (self.submitted - self.fetched) as usize
    }

    /// Another group can be submitted before results are collected.
    pub fn room(&self) -> bool {
        self.in_flight() < self.backend.depth().max(1)
    }

    /// Groups that can be in flight when [`Session::submit`] returns; 0 if none.
    pub fn depth(&self) -> usize {
        self.backend.depth()
    }

    /// How to wait for the group submitted last; `None` from a backend that computes while it is submitted.
    pub fn completion(&self) -> Option<Completion> {
        match self.queue.back()? {
            Queued::Group { ticket, .. } => self.backend.completion(*ticket),
            Queued::End { .. } => None,
        }
    }

    /// The scores that have become complete.
    pub fn collect(&mut self) -> Result<Vec<PairScore>, EngineError> {
        let mut scores = vec![];
        while let Some(next) = self.queue.pop_front() {
            match next {
                Queued::Group { ticket, renditions, history_only } => {
                    let Some(sums) = self.backend.poll(ticket)? else {
                        self.queue.push_front(Queued::Group { ticket, renditions, history_only });
                        break;
                    };
                    self.fetched += 1;
                    for (rendition, mut sums) in renditions.into_iter().zip(sums) {
                        if self.plan.work.damage {
                            self.damage.push_back((rendition, sums.damage.take()));
                        }
                        let sums = &sums;
                        let features = (!history_only).then(|| self.features(rendition, sums));
                        if let Some(geometry) = self.geometry {
                            self.tracks[rendition].take(features, sums, geometry);
                        }
                        self.complete(rendition, &mut scores);
                    }
                }
                Queued::End { rendition, broken } => {
                    self.tracks[rendition].finish(broken);
                    self.complete(rendition, &mut scores);
                }
            }
        }
        Ok(scores)
    }

    /// Where the next pair is damaged, of those whose sums were fetched: its rendition, and `None` for pairs left out by
    /// subsampling. Needs no later pair. One for each pair, if the plan's work is to find that.
    pub fn take_damage(&mut self) -> Option<(usize, Option<DamageSums>)> {
        self.damage.pop_front()
    }

    /// Takes the pending pairs of a rendition whose motion is known.
    fn complete(&mut self, rendition: usize, scores: &mut Vec<PairScore>) {
        while let Some((pending, motion)) = self.tracks[rendition].pop() {
            let values = pending.features.map(|features| self.values(features, &motion));
            scores.push(PairScore { rendition, discont: pending.discont, values });
        }
    }

    /// What is known of all pairs of a rendition since the geometry was set, together: names and values.
    pub fn aggregates(&self, rendition: usize) -> Vec<(&'static str, f64)> {
        let (Some(geometry), Some(track)) = (self.geometry, self.tracks.get(rendition)) else {
            return vec![];
        };
        let mut aggregates = vec![];
        for (source, scorer) in self.plan.sources.iter().zip(&track.scorers) {
            if let (Source::Psnr(options), Scorer::Psnr(totals)) = (source, scorer)
                && options.enable_apsnr
            {
                let planes = ["apsnr_y", "apsnr_cb", "apsnr_cr"].into_iter().zip(totals);
                let compared = planes.filter(|(_, total)| total.samples > 0);
                aggregates
                    .extend(compared.map(|(name, total)| (name, options.aggregate(geometry.depth, *total))));
            }
        }
        aggregates
    }

    /// Feature values of one pair, motion not known yet.
    fn features(&self, rendition: usize, sums: &FrameSums) -> Vec<f64> {
        let Some(geometry) = self.geometry else { return vec![] };
        let mut values = Vec::with_capacity(self.plan.columns.len());
        let scorers = &self.tracks[rendition].scorers;
        for (index, (source, scorer)) in self.plan.sources.iter().zip(scorers).enumerate() {
            let outputs = self.plan.features.iter().filter(|f| f.source == index).map(|f| f.output);
            scorer.features(source, sums, geometry, outputs, &mut values);
        }
        values
    }

    /// All columns of one pair.
    fn values(&self, mut values: Vec<f64>, motion: &[Option<MotionScores>]) -> Vec<f64> {
        for (value, feature) in values.iter_mut().zip(&self.plan.features) {
            if let Some(Some(motion)) = motion.get(feature.source) {
                *value = match feature.output {
                    Output::Motion2 => motion.motion2,
                    Output::Motion3 => motion.motion3,
                    _ => motion.sad,
                };
            }
        }
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
    /// Takes what is known of the next pair.
    fn take(&mut self, features: Option<Vec<f64>>, sums: &FrameSums, geometry: Geometry) {
        self.pending.push_back(Pending { discont: std::mem::take(&mut self.broken), features });
        // The backend compares with the reference frames before, whether or not this rendition had them.
        let motion = sums.motion.map(|MotionSums { lag1, lag2 }| MotionSums {
            lag1: lag1.filter(|_| self.run >= 1),
            lag2: lag2.filter(|_| self.run >= 2),
        });
        for scorer in &mut self.scorers {
            scorer.push(sums, motion.as_ref(), geometry);
        }
        self.run += 1;
        self.fetched += 1;
    }

    /// Completes the pairs that wait for a later one.
    fn finish(&mut self, broken: bool) {
        self.scorers.iter_mut().for_each(Scorer::finish);
        self.run = 0;
        if broken {
            self.broken = self.fetched > 0;
            if let Some(last) = self.pending.back_mut() {
                last.discont = true;
            }
        }
    }

    /// The oldest pending pair with its motion by source, once that is known.
    fn pop(&mut self) -> Option<(Pending, Vec<Option<MotionScores>>)> {
        if !self.scorers.iter().all(Scorer::is_ready) {
            return None;
        }
        let pending = self.pending.pop_front()?;
        Some((pending, self.scorers.iter_mut().map(Scorer::take_motion).collect()))
    }
}
