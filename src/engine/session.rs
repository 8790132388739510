// SPDX-License-Identifier: MPL-2.0

//! The walk of frame pairs through a backend, the metrics and the models, in order, with the history
//! that some features need.

use std::collections::VecDeque;
use std::sync::Arc;

use super::EngineError;
use super::plan::{Plan, Source};
use crate::backend::{Backend, BackendError, Completion, Pair, Ticket};
use crate::frame::{Geometry, Picture};
use crate::hip::Device;
use crate::metrics::adm::AdmScorer;
use crate::metrics::cambi::CambiScorer;
use crate::metrics::feature::Output;
use crate::metrics::motion::{MotionScores, MotionStream};
use crate::metrics::psnr::PlaneError;
use crate::metrics::{FrameSums, ciede, psnr, psnr_hvs};

/// The result of one submitted pair. Results come in the order of submission, one for each pair.
#[derive(Clone, Debug, PartialEq)]
pub struct PairScore {
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
    Pair {
        ticket: Ticket,
        history_only: bool,
    },
    /// The end of a run of pairs; `true` where pairs are missing.
    End(bool),
}

/// A source of features, set up for frames of one size.
enum Scorer {
    Adm(Box<AdmScorer>),
    Cambi(Box<CambiScorer>),
    /// With the results that no pending pair has taken yet.
    Motion(MotionStream, VecDeque<MotionScores>),
    /// With the errors of Y, Cb and Cr in all frames so far.
    Psnr([PlaneError; 3]),
    /// What needs no more than the sums of the frame.
    Plain,
}

/// Scores the pairs of a stream.
pub struct Session {
    plan: Arc<Plan>,
    backend: Box<dyn Backend>,
    subsample: u64,
    geometry: Option<Geometry>,
    /// For each of [`Plan::sources`].
    scorers: Vec<Scorer>,
    queue: VecDeque<Queued>,
    /// Pairs submitted since the geometry was set, and those of them whose sums were fetched.
    submitted: u64,
    fetched: u64,
    /// The next pair is the first after a break.
    broken: bool,
    pending: VecDeque<Pending>,
}

impl Session {
    /// `subsample`: every n-th pair is scored, the others only serve as history; 1 scores all.
    pub fn new(plan: Arc<Plan>, backend: Box<dyn Backend>, subsample: u32) -> Self {
        Self {
            plan,
            backend,
            subsample: subsample.max(1).into(),
            geometry: None,
            scorers: vec![],
            queue: VecDeque::new(),
            submitted: 0,
            fetched: 0,
            broken: false,
            pending: VecDeque::new(),
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

    /// Sets the size and depth of the frames to come. Earlier pairs are forgotten: end their run first.
    pub fn prepare(&mut self, geometry: Geometry) -> Result<(), EngineError> {
        let Geometry { width, height, .. } = geometry;
        self.backend.prepare(&self.plan.work, geometry)?;
        let scorer = |source: &Source| {
            Ok(match source {
                Source::Adm { options, .. } => {
                    Scorer::Adm(Box::new(AdmScorer::new(*options, width, height)?))
                }
                Source::Cambi { options, .. } => {
                    let scorer = CambiScorer::new(options, geometry).map_err(BackendError::from)?;
                    Scorer::Cambi(Box::new(scorer))
                }
                Source::Motion(options) => {
                    Scorer::Motion(MotionStream::new(*options, width, height), VecDeque::new())
                }
                Source::Psnr(_) => Scorer::Psnr(Default::default()),
                Source::Ciede
                | Source::MsSsim(_)
                | Source::PsnrHvs
                | Source::Speed { .. }
                | Source::Ssim { .. }
                | Source::Vif { .. } => Scorer::Plain,
            })
        };
        self.scorers = self.plan.sources.iter().map(scorer).collect::<Result<_, EngineError>>()?;
        self.geometry = Some(geometry);
        self.queue.clear();
        self.submitted = 0;
        self.fetched = 0;
        self.broken = false;
        self.pending.clear();
        Ok(())
    }

    /// Takes the next pair. Pictures must be of the geometry given to [`Session::prepare`], and there must be
    /// [`Session::room`].
    pub fn submit(&mut self, reference: Picture<'_>, distorted: Picture<'_>) -> Result<(), EngineError> {
        let history_only = !self.submitted.is_multiple_of(self.subsample);
        let ticket = self.backend.submit(Pair { reference, distorted, history_only })?;
        self.submitted += 1;
        self.queue.push_back(Queued::Pair { ticket, history_only });
        Ok(())
    }

    /// Ends a run of unbroken pairs: completes what waits for a later pair, and makes the next pair the
    /// first of a new run. `broken` says that pairs are missing here, as opposed to the stream's end.
    pub fn end_run(&mut self, broken: bool) {
        self.backend.reset();
        self.queue.push_back(Queued::End(broken));
    }

    /// Pairs that were submitted and whose sums were not fetched since.
    pub fn in_flight(&self) -> usize {
        (self.submitted - self.fetched) as usize
    }

    /// Another pair can be submitted before results are collected.
    pub fn room(&self) -> bool {
        self.in_flight() < self.backend.depth().max(1)
    }

    /// Pairs that can be in flight when [`Session::submit`] returns; 0 if none.
    pub fn depth(&self) -> usize {
        self.backend.depth()
    }

    /// How to wait for the pair submitted last; `None` from a backend that computes while it is submitted.
    pub fn completion(&self) -> Option<Completion> {
        match self.queue.back()? {
            Queued::Pair { ticket, .. } => self.backend.completion(*ticket),
            Queued::End(_) => None,
        }
    }

    /// The scores that have become complete, in the order of submission.
    pub fn collect(&mut self) -> Result<Vec<PairScore>, EngineError> {
        let mut scores = vec![];
        while let Some(next) = self.queue.front() {
            match *next {
                Queued::Pair { ticket, history_only } => {
                    let Some(sums) = self.backend.poll(ticket)? else { break };
                    self.fetched += 1;
                    self.take(&sums, history_only);
                }
                Queued::End(broken) => self.finish(broken),
            }
            self.queue.pop_front();
            scores.extend(self.complete());
        }
        Ok(scores)
    }

    /// What is known of all pairs since the geometry was set, together: names and values.
    pub fn aggregates(&self) -> Vec<(&'static str, f64)> {
        let Some(geometry) = self.geometry else { return vec![] };
        let mut aggregates = vec![];
        for (source, scorer) in self.plan.sources.iter().zip(&self.scorers) {
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

    /// Takes the sums of the next pair.
    fn take(&mut self, sums: &FrameSums, history_only: bool) {
        let features = (!history_only).then(|| self.features(sums));
        let discont = std::mem::take(&mut self.broken);
        self.pending.push_back(Pending { discont, features });
        for scorer in &mut self.scorers {
            match (scorer, self.geometry) {
                (Scorer::Motion(stream, ready), _) => {
                    ready.extend(sums.motion.iter().flat_map(|sums| stream.push(sums)));
                }
                (Scorer::Psnr(totals), Some(geometry)) => {
                    let planes = sums.psnr.map(|sums| sums.planes(geometry)).unwrap_or_default();
                    for (total, plane) in totals.iter_mut().zip(planes) {
                        *total += plane.unwrap_or_default();
                    }
                }
                _ => {}
            }
        }
    }

    /// Completes the pairs that wait for a later one.
    fn finish(&mut self, broken: bool) {
        for scorer in &mut self.scorers {
            if let Scorer::Motion(stream, ready) = scorer {
                ready.extend(stream.finish());
            }
        }
        if broken {
            self.broken = self.fetched > 0;
            if let Some(last) = self.pending.back_mut() {
                last.discont = true;
            }
        }
    }

    /// Takes the pending pairs whose motion is known.
    fn complete(&mut self) -> Vec<PairScore> {
        let ready = self.scorers.iter().filter_map(|scorer| match scorer {
            Scorer::Motion(_, ready) => Some(ready.len()),
            _ => None,
        });
        let complete = ready.min().unwrap_or(self.pending.len());
        (0..complete)
            .map_while(|_| {
                let pair = self.pending.pop_front()?;
                let motion: Vec<_> = self.scorers.iter_mut().map(Scorer::take_motion).collect();
                let values = pair.features.map(|features| self.values(features, &motion));
                Some(PairScore { discont: pair.discont, values })
            })
            .collect()
    }

    /// Feature values of one pair, motion not known yet.
    fn features(&self, sums: &FrameSums) -> Vec<f64> {
        let Some(geometry) = self.geometry else { return vec![] };
        let mut values = Vec::with_capacity(self.plan.columns.len());
        for (index, (source, scorer)) in self.plan.sources.iter().zip(&self.scorers).enumerate() {
            let outputs = self.plan.features.iter().filter(|f| f.source == index).map(|f| f.output);
            match (source, scorer) {
                (Source::Adm { pass, .. }, Scorer::Adm(scorer)) => {
                    let sums =
                        sums.adm.as_ref().and_then(|sums| Some((&sums.reference, sums.passes.get(*pass)?)));
                    let scores = sums.map(|(reference, pass)| scorer.scores(reference, pass));
                    values.extend(outputs.map(|output| match (output, &scores) {
                        (Output::Adm2, Some(s)) => s.adm2,
                        (Output::Aim, Some(s)) => s.aim.unwrap_or(f64::NAN),
                        (Output::Adm3, Some(s)) => s.adm3.unwrap_or(f64::NAN),
                        (Output::AdmScale(scale), Some(s)) => s.scale[scale],
                        _ => f64::NAN,
                    }));
                }
                (Source::Cambi { index, .. }, Scorer::Cambi(scorer)) => {
                    let scores = sums.cambi.get(*index).map(|sums| scorer.scores(sums));
                    values.extend(outputs.map(|output| {
                        let score = match output {
                            Output::Cambi => scores.map(|s| s.cambi),
                            Output::CambiSource => scores.and_then(|s| s.source),
                            _ => scores.and_then(|s| s.full_reference),
                        };
                        score.unwrap_or(f64::NAN)
                    }));
                }
                (Source::Vif { options, gain }, _) => {
                    let scores = sums.vif.as_ref().and_then(|s| s.get(*gain)).map(|s| options.scores(s));
                    values.extend(outputs.map(|output| match (output, scores) {
                        (Output::VifScale(scale), Some(scores)) => scores[scale],
                        _ => f64::NAN,
                    }));
                }
                (Source::Speed { options, scaling }, _) => {
                    let sums = sums.speed.as_ref().and_then(|sums| sums.get(*scaling));
                    let scores = sums.map(|sums| options.scores(sums));
                    values.extend(outputs.map(|output| match (output, scores) {
                        (Output::SpeedU, Some(scores)) => scores.u,
                        (Output::SpeedV, Some(scores)) => scores.v,
                        (Output::SpeedUv, Some(scores)) => scores.uv,
                        _ => f64::NAN,
                    }));
                }
                (Source::Psnr(options), _) => {
                    let planes = sums.psnr.map(|sums| sums.planes(geometry)).unwrap_or_default();
                    values.extend(outputs.map(|output| match output {
                        Output::Psnr(i) => {
                            planes[i].map_or(f64::NAN, |p| options.psnr(geometry.depth, p.sse, p.samples))
                        }
                        Output::Mse(i) => planes[i].map_or(f64::NAN, |p| psnr::mse(p.sse, p.samples)),
                        _ => f64::NAN,
                    }));
                }
                (Source::Ssim { options, scale }, _) => {
                    let sums = sums.ssim.as_ref().and_then(|sums| sums.scales.get(*scale));
                    let scores = sums.map(|sums| options.scores(sums, geometry));
                    values.extend(outputs.map(|output| match (output, scores) {
                        (Output::Ssim, Some(s)) => s.score,
                        (Output::SsimTerm(term), Some(s)) => s.lcs[term],
                        _ => f64::NAN,
                    }));
                }
                (Source::MsSsim(options), _) => {
                    let sums = sums.ssim.as_ref().and_then(|sums| sums.multi_scale.as_ref());
                    let scores = sums.map(|sums| options.scores(sums, geometry));
                    values.extend(outputs.map(|output| match (output, scores) {
                        (Output::MsSsim, Some(s)) => s.score,
                        (Output::MsSsimTerm { term, scale }, Some(s)) => s.lcs[scale][term],
                        _ => f64::NAN,
                    }));
                }
                (Source::PsnrHvs, _) => {
                    let scores = sums.psnr_hvs.map(|sums| psnr_hvs::scores(sums, geometry));
                    values.extend(outputs.map(|output| match (output, scores) {
                        (Output::PsnrHvs, Some(s)) => s.all,
                        (Output::PsnrHvsPlane(i), Some(s)) => s.planes[i],
                        _ => f64::NAN,
                    }));
                }
                (Source::Ciede, _) => {
                    let score = sums.ciede.map_or(f64::NAN, |sum| ciede::score(sum, geometry));
                    values.extend(outputs.map(|_| score));
                }
                _ => values.extend(outputs.map(|_| f64::NAN)),
            }
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

impl Scorer {
    /// The motion of the oldest pending pair.
    fn take_motion(&mut self) -> Option<MotionScores> {
        match self {
            Self::Motion(_, ready) => ready.pop_front(),
            _ => None,
        }
    }
}
