// SPDX-License-Identifier: MPL-2.0

//! The scores of a rendition: each frame by each model, and pooled values.

use super::ladder::Rung;
use super::metric::{Metric, Unit};
use super::pairing::Pairing;
use engine::metrics::jod_of_frames;
use gst::ClockTime;
use gsthipvmaf::message::{FrameMessage, PooledMessage, ScoreState, Values};
use serde::Serialize;
use watch::counts::Counts;
use watch::summary::{self, Summary};

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
    /// Its place in a ladder.
    pub rung: Rung,
    /// Pairing with the original, if it was examined.
    pub pairing: Option<Pairing>,
    /// Figures of all frames together that are no means, by name. Without any if the video changes.
    pub aggregates: Values,
    /// The element's summary of each section; more than one if the video changes.
    pub sections: Vec<PooledMessage>,
}

impl Frame {
    /// Returns the value of the first model or feature.
    pub fn score(&self) -> f64 {
        self.scores.first().copied().unwrap_or(f64::NAN)
    }
}

impl Scores {
    /// Creates the scores of a rendition without frames, of these models and features.
    pub fn new(label: String, models: Vec<String>, features: Vec<String>) -> Self {
        Self {
            label,
            models,
            features,
            frames: vec![],
            offset: None,
            rung: Rung::default(),
            pairing: None,
            aggregates: vec![],
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

    /// Adds the element's summary of a section. Its figures of all frames together are kept if no other section has frames.
    pub(super) fn end_section(&mut self, mut section: PooledMessage) {
        let aggregates = std::mem::take(&mut section.aggregates);
        if section.counts.scored > 0 {
            let is_only = self.count(|other| other.counts.scored) == 0;
            self.aggregates = if is_only { aggregates } else { vec![] };
        }
        self.sections.push(section);
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

    /// Returns the models and features, in the order of a frame's values.
    pub fn metrics(&self) -> impl Iterator<Item = Metric> {
        let models = self.models.iter().map(|name| Metric::model(name));
        models.chain(self.features.iter().map(|key| Metric::feature(key)))
    }

    /// Returns the figures of each model and feature over some frames.
    pub fn figures(&self, frames: &[Frame]) -> Vec<Figures> {
        self.metrics().enumerate().map(|(column, metric)| Figures::of(metric, column, frames)).collect()
    }

    /// Returns the figures over all frames, with those of all frames together.
    pub fn all_figures(&self) -> Vec<Figures> {
        let mut figures = self.figures(&self.frames);
        for figures in figures.iter_mut().skip(self.models.len()) {
            let name = figures.metric.aggregate();
            let known = self.aggregates.iter().find(|(of, _)| *of == name);
            figures.overall = known.map(|(_, value)| *value).or(figures.overall);
            if let (Unit::Jod, Some(frames), Some(overall)) =
                (figures.metric.unit, &mut figures.frames, figures.overall)
            {
                frames.mean = overall;
            }
        }
        figures
    }

    /// Returns the frames with the worst scores of the first model or feature, worst first.
    pub fn worst(&self, count: usize) -> Vec<&Frame> {
        let mut frames: Vec<_> = self.frames.iter().collect();
        let first = self.metrics().next();
        let sign = if first.as_ref().is_some_and(Metric::more_is_worse) { -1.0 } else { 1.0 };
        let score = |frame: &Frame| first.as_ref().map_or(f64::NAN, |of| sign * of.of_frame(frame.score()));
        frames.sort_by(|a, b| score(a).total_cmp(&score(b)));
        frames.truncate(count);
        frames
    }
}

/// Pools values; `None` without any.
fn pooled(values: impl Iterator<Item = f64>) -> Option<Pooled> {
    let mut summary = Summary::<summary::Values>::default();
    values.for_each(|value| summary.push(value));
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

/// Figures of a model or a feature over many frames.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The model or feature.
    pub metric: Metric,
    /// Statistics of the frames. The mean of JODs is that of all frames together.
    pub frames: Option<Pooled>,
    /// Figure of all frames together, if it is no mean.
    pub overall: Option<f64>,
}

impl Figures {
    /// Returns the figure for the quality of a video: the mean of the frames, or the JOD of all together.
    pub fn quality(&self) -> Option<f64> {
        self.overall.filter(|_| self.metric.unit == Unit::Jod).or(self.frames.map(|frames| frames.mean))
    }

    fn of(metric: Metric, column: usize, frames: &[Frame]) -> Self {
        let values = frames.iter().filter_map(|frame| frame.scores.get(column).copied());
        let mut pooled = pooled(values.clone().map(|value| metric.of_frame(value)));
        let mut overall = None;
        if let Some(pooled) = pooled.as_mut().filter(|_| metric.unit == Unit::Jod) {
            pooled.mean = jod_of_frames(values);
            pooled.harmonic_mean = f64::NAN;
            overall = Some(pooled.mean);
        }
        Self { metric, frames: pooled, overall }
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
