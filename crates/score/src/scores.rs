// SPDX-License-Identifier: MPL-2.0

//! The scores of a rendition: of each frame by each model, and what they come to together.

use super::pairing::Pairing;
use gst::ClockTime;
use gsthipvmaf::message::{FrameMessage, PooledMessage, ScoreState};
use serde::Serialize;
use watch::summary::{Summary, Values};

/// A frame that was scored. What a film of hours leaves of each is a few dozen bytes.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Number of the reference frame.
    pub index: i32,
    /// Where it is in the reference.
    pub time: ClockTime,
    /// By the models, in their order, and the features behind them.
    pub scores: Vec<f64>,
}

/// A rendition and its scores.
#[derive(Clone, Debug)]
pub struct Scores {
    /// What a user recognises the rendition by.
    pub label: String,
    /// Names of the models.
    pub models: Vec<String>,
    /// Names of the features that are shown besides.
    pub features: Vec<String>,
    /// All frames whose scores count.
    pub frames: Vec<Frame>,
    /// By how many nanoseconds the video is late, as its pictures have said last, if that was looked for.
    pub offset: Option<i64>,
    /// How its frames were paired with the original, where that was looked for.
    pub pairing: Option<Pairing>,
    /// What the element said at the end of each section: more than one if the video changes on the way.
    pub sections: Vec<PooledMessage>,
}

impl Frame {
    /// By the first model.
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

    /// Names of all that is shown: the models, then the features.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.models.iter().chain(&self.features)
    }

    /// Sum of a count over all sections.
    pub fn count(&self, count: impl Fn(&PooledMessage) -> u64) -> u64 {
        self.sections.iter().map(count).sum()
    }

    /// Frames of the original that have no partner, and those of the rendition.
    pub fn unpaired(&self) -> [u64; 2] {
        let [own, other] = self.pairing.as_ref().map_or([0, 0], |pairing| pairing.left_out);
        [own + self.count(|section| section.unpaired), other + self.count(|section| section.dist_unmatched)]
    }

    /// What the values of a model or a feature come to; nothing without scores.
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

    /// The frames with the lowest scores by the first model, the worst first.
    pub fn worst(&self, count: usize) -> Vec<&Frame> {
        let mut frames: Vec<_> = self.frames.iter().collect();
        frames.sort_by(|a, b| a.score().total_cmp(&b.score()));
        frames.truncate(count);
        frames
    }
}

/// The scores of many frames in a few figures. Percentiles are exact.
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
