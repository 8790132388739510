// SPDX-License-Identifier: MPL-2.0

//! From the sums of a frame to the features of one source, with the history that some of them need.

use std::collections::VecDeque;

use super::plan::Source;
use crate::backend::BackendError;
use crate::error::EngineError;
use crate::frame::Geometry;
use crate::metrics::adm::AdmScorer;
use crate::metrics::cambi::CambiScorer;
use crate::metrics::feature::Output;
use crate::metrics::motion::{MotionScores, MotionStream, MotionSums};
use crate::metrics::psnr::PlaneError;
use crate::metrics::{FrameSums, ciede, psnr, psnr_hvs};

/// A source of features, set up for frames of one size.
pub enum Scorer {
    Adm(Box<AdmScorer>),
    Cambi(Box<CambiScorer>),
    /// With the results that no pending pair has taken yet.
    Motion(MotionStream, VecDeque<MotionScores>),
    /// With the errors of Y, Cb and Cr in all frames so far.
    Psnr([PlaneError; 3]),
    /// What needs no more than the sums of the frame.
    Plain,
}

impl Scorer {
    pub fn new(source: &Source, geometry: Geometry) -> Result<Self, EngineError> {
        let Geometry { width, height, .. } = geometry;
        Ok(match source {
            Source::Adm { options, .. } => Self::Adm(Box::new(AdmScorer::new(*options, width, height)?)),
            Source::Cambi { options, .. } => {
                Self::Cambi(Box::new(CambiScorer::new(options, geometry).map_err(BackendError::from)?))
            }
            Source::Motion(options) => {
                Self::Motion(MotionStream::new(*options, width, height), VecDeque::new())
            }
            Source::Psnr(_) => Self::Psnr(Default::default()),
            Source::Ciede
            | Source::MsSsim(_)
            | Source::PsnrHvs
            | Source::Speed { .. }
            | Source::Ssim { .. }
            | Source::Vif { .. } => Self::Plain,
        })
    }

    /// Adds the values of these outputs for one pair. Those of motion are not known yet, and not a number.
    pub fn features(
        &self,
        source: &Source,
        sums: &FrameSums,
        geometry: Geometry,
        outputs: impl Iterator<Item = Output>,
        values: &mut Vec<f64>,
    ) {
        match (source, self) {
            (Source::Adm { pass, .. }, Self::Adm(scorer)) => {
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
            (Source::Cambi { index, .. }, Self::Cambi(scorer)) => {
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

    /// Takes what the next pair adds to the history.
    pub fn push(&mut self, sums: &FrameSums, motion: Option<&MotionSums>, geometry: Geometry) {
        match self {
            Self::Motion(stream, ready) => {
                ready.extend(motion.into_iter().flat_map(|sums| stream.push(sums)));
            }
            Self::Psnr(totals) => {
                let planes = sums.psnr.map(|sums| sums.planes(geometry)).unwrap_or_default();
                for (total, plane) in totals.iter_mut().zip(planes) {
                    *total += plane.unwrap_or_default();
                }
            }
            _ => {}
        }
    }

    /// Ends a run of pairs.
    pub fn finish(&mut self) {
        if let Self::Motion(stream, ready) = self {
            ready.extend(stream.finish());
        }
    }

    /// What the oldest pending pair needs is known.
    pub fn is_ready(&self) -> bool {
        !matches!(self, Self::Motion(_, ready) if ready.is_empty())
    }

    /// The motion of the oldest pending pair.
    pub fn take_motion(&mut self) -> Option<MotionScores> {
        match self {
            Self::Motion(_, ready) => ready.pop_front(),
            _ => None,
        }
    }
}
