// SPDX-License-Identifier: MPL-2.0

//! The scores of a rendition: each frame by each model, and pooled values.

use super::pairing::Pairing;
use gst::ClockTime;
use gsthipvmaf::message::{FrameMessage, PooledMessage, ScoreState};
use serde::Serialize;
use watch::counts::Counts;
use watch::summary::{Summary, Values};

/// A scored frame, in a few dozen bytes, so that hours of video fit into memory.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Number of the reference frame.
    pub index: i32,
    /// Time in the reference.
    pub time: ClockTime,
    /// Scores of the models in order, followed by the features.
    pub scores: Vec<f64>,
}

/// A rendition and its scores.
#[derive(Clone, Debug)]
pub struct Scores {
    /// Label of the rendition.
    pub label: String,
    /// Names of the models.
    pub models: Vec<String>,
    /// Names of the features shown in addition.
    pub features: Vec<String>,
    /// All frames with valid scores.
    pub frames: Vec<Frame>,
    /// Delay of the video in nanoseconds, as last found from its pictures.
    pub offset: Option<i64>,
    /// Pairing with the original, if it was examined.
    pub pairing: Option<Pairing>,
    /// The element's summary of each section; more than one if the video changes.
    pub sections: Vec<PooledMessage>,
}

impl Frame {
    /// Returns the pooled score of the first model.
    pub fn score(&self) -> f64 {
        self.scores.first().copied().unwrap_or(f64::NAN)
    }
}

impl Scores {
    pub(super) fn new(label: String, features: Vec<String>) -> Self {
        Self {
            label,
            models: vec![],
            features,
            frames: vec![],
            offset: None,
            pairing: None,
            sections: vec![],
        }
    }

    pub(super) fn push(&mut self, message: &FrameMessage) {
        if self.models.is_empty() {
            self.models = message.models.iter().map(|(name, _)| name.clone()).collect();
        }
        if message.state != ScoreState::Scored {
            return;
        }
        let feature = |name: &String| {
            message.features.iter().find(|(of, _)| of == name).map_or(f64::NAN, |(_, value)| *value)
        };
        let features = self.features.iter().map(feature);
        self.frames.push(Frame {
            index: message.index,
            time: message.stream_time.unwrap_or_default(),
            scores: message.models.iter().map(|(_, score)| *score).chain(features).collect(),
        });
    }

    /// Returns the names of the models, then of the features.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.models.iter().chain(&self.features)
    }

    /// Sums a count over all sections.
    pub fn count(&self, count: impl Fn(&PooledMessage) -> u64) -> u64 {
        self.sections.iter().map(count).sum()
    }

    /// Returns the share of the reference frames that were scored, of those that were sent to the element.
    pub fn coverage(&self) -> f64 {
        let mut all = Counts::default();
        self.sections.iter().for_each(|section| all += section.counts);
        all.coverage()
    }

    /// Returns the number of frames without a partner: of the original, and of the rendition.
    pub fn unpaired(&self) -> [u64; 2] {
        let [own, other] = self.pairing.as_ref().map_or([0, 0], |pairing| pairing.left_out);
        [
            own + self.count(|section| section.counts.unpaired),
            other + self.count(|section| section.counts.dist_unmatched),
        ]
    }

    /// Pools the values of a model or a feature; `None` without scores.
    pub fn pooled(&self, model: usize) -> Option<Pooled> {
        let mut summary = Summary::<Values>::default();
        let scores = self.frames.iter().filter_map(|frame| frame.scores.get(model));
        scores.for_each(|score| summary.push(*score));
        let pooled = summary.pool.pooled()?;
        let [p1, p5, p10, p50] = [1.0, 5.0, 10.0, 50.0].map(|percent| summary.percentile(percent));
        Some(Pooled {
            mean: pooled.mean,
            harmonic_mean: pooled.harmonic_mean,
            min: pooled.min,
            max: pooled.max,
            stddev: pooled.stddev,
            p1,
            p5,
            p10,
            p50,
        })
    }

    /// Returns the frames with the lowest scores of the first model, worst first.
    pub fn worst(&self, count: usize) -> Vec<&Frame> {
        let mut frames: Vec<_> = self.frames.iter().collect();
        frames.sort_by(|a, b| a.score().total_cmp(&b.score()));
        frames.truncate(count);
        frames
    }
}

/// Statistics of many scores. Percentiles are exact.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(missing_docs, reason = "their names say it")]
pub struct Pooled {
    pub mean: f64,
    pub harmonic_mean: f64,
    pub min: f64,
    pub max: f64,
    pub stddev: f64,
    pub p1: f64,
    pub p5: f64,
    pub p10: f64,
    pub p50: f64,
}
