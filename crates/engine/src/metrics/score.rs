// SPDX-License-Identifier: MPL-2.0

//! The step from the sums of pairs to the features of one extractor, with the history that some features need.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt::Debug;

use super::work::FrameSums;
use crate::frame::Geometry;

/// Reason why options cannot be used, in the metric's own words.
pub type OptionsError = Box<dyn Error + Send + Sync>;

/// Locates the features of an extractor in the sums of the work that it planned. Plain data.
pub trait Source: Debug + Send + Sync {
    /// Names its part of the work, for the log. A text that is not empty begins with a space.
    fn part(&self) -> String {
        String::new()
    }

    /// Returns how many later pairs may be needed before the values of a pair are known.
    fn lookahead(&self) -> usize {
        0
    }

    /// Returns how many earlier pairs of the run the values of a pair may depend on, if that is more than the pictures
    /// that the metric reads.
    fn lookback(&self) -> usize {
        0
    }

    /// Creates the scorer for the pairs of one rendition, for frames of this geometry.
    fn scorer(&self, geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError>;

    /// Returns the fractions behind the values of a pair, by libvmaf's names and in its order; nothing for extractors that
    /// have none.
    fn fractions(&self, _sums: &FrameSums, _geometry: Geometry) -> Result<Vec<(String, f64)>, OptionsError> {
        Ok(vec![])
    }

    /// Returns the amounts that a pair adds to the stream's totals. Every pair returns the same number of them.
    fn totals(&self, _sums: &FrameSums, _geometry: Geometry) -> Vec<u64> {
        vec![]
    }

    /// Computes the stream's figures from the totals of all pairs, with their names without option suffix.
    fn aggregates(&self, _totals: &[u64], _geometry: Geometry) -> Vec<(&'static str, f64)> {
        vec![]
    }

    /// Returns the figure that stands in place of a mean of a feature's values, where that has no meaning.
    fn pooled(&self, _output: usize) -> Option<Pooled> {
        None
    }
}

/// A figure of many pairs in place of the mean of a feature's values.
#[derive(Clone, Copy, Debug)]
pub struct Pooled {
    /// Its name in [`Source::aggregates`].
    pub name: &'static str,
    /// Computes it for one pair alone, from the value of the feature.
    pub of_pair: fn(f64) -> f64,
}

/// The values of a pair, one for each feature of the extractor in the order of its list.
pub type Values = Vec<f64>;

/// Scores the pairs of one rendition in order.
pub trait Scorer: Send {
    /// Copies the scorer with its state.
    fn boxed(&self) -> Box<dyn Scorer>;

    /// Takes the next pair, which has `run` pairs before it in its run. Appends the values that this completes to
    /// `ready`, those of each pair once and in order. Values that were not computed are NaN.
    fn push(&mut self, sums: &FrameSums, run: usize, ready: &mut VecDeque<Values>);

    /// Ends the run, which completes the values of all its pairs.
    fn finish(&mut self, _ready: &mut VecDeque<Values>) {}
}

/// Names a score, its numerator and denominator, and those of four scales, as libvmaf does where it is asked for more output.
pub(super) fn fractions(name: &str, score: f64, all: [f64; 2], scales: [[f32; 2]; 4]) -> Vec<(String, f64)> {
    let mut named = vec![(name.to_string(), score)];
    let parts = ["num", "den"];
    named.extend(parts.iter().zip(all).map(|(part, value)| (format!("{name}_{part}"), value)));
    for (scale, fraction) in scales.into_iter().enumerate() {
        let value = |(part, value): (&&str, f32)| (format!("{name}_{part}_scale{scale}"), f64::from(value));
        named.extend(parts.iter().zip(fraction).map(value));
    }
    named
}

/// A scorer without history.
struct Plain<F>(F);

impl<F: Fn(&FrameSums) -> Values + Clone + Send + 'static> Scorer for Plain<F> {
    fn boxed(&self) -> Box<dyn Scorer> {
        Box::new(Self(self.0.clone()))
    }

    fn push(&mut self, sums: &FrameSums, _run: usize, ready: &mut VecDeque<Values>) {
        ready.push_back((self.0)(sums));
    }
}

/// Creates the scorer of features that need only the sums of their pair.
pub(super) fn plain(values: impl Fn(&FrameSums) -> Values + Clone + Send + 'static) -> Box<dyn Scorer> {
    Box::new(Plain(values))
}
