// SPDX-License-Identifier: MPL-2.0

//! From the sums of pairs to the features of one extractor, with the history that some of them need.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt::Debug;

use super::work::FrameSums;
use crate::frame::Geometry;

/// Why options cannot be used, in words of the metric.
pub type OptionsError = Box<dyn Error + Send + Sync>;

/// Where the features of an extractor come from in the sums of the work that it planned. Plain data.
pub trait Source: Debug + Send + Sync {
    /// Which part of the work is meant, for the log; begins with a space if it says anything.
    fn part(&self) -> String {
        String::new()
    }

    /// How many later pairs the values of a pair wait for, at most.
    fn lookahead(&self) -> usize {
        0
    }

    /// How many earlier pairs of their run the values of a pair depend on, at most.
    fn lookback(&self) -> usize {
        0
    }

    /// What scores the pairs of one rendition, of frames of this geometry.
    fn scorer(&self, geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError>;

    /// Returns the fractions behind the values of a pair, by libvmaf's names and in its order; nothing for extractors that
    /// have none.
    fn fractions(&self, _sums: &FrameSums, _geometry: Geometry) -> Result<Vec<(String, f64)>, OptionsError> {
        Ok(vec![])
    }

    /// What a pair adds to the figures of all pairs together. As many numbers for each pair.
    fn totals(&self, _sums: &FrameSums, _geometry: Geometry) -> Vec<u64> {
        vec![]
    }

    /// The figures of all pairs together, with their names, from the sum of what the pairs have added.
    fn aggregates(&self, _totals: &[u64], _geometry: Geometry) -> Vec<(&'static str, f64)> {
        vec![]
    }
}

/// The values of a pair: one for each feature of the extractor, in the order of its list.
pub type Values = Vec<f64>;

/// Scores the pairs of one rendition in order.
pub trait Scorer: Send {
    /// Another one in the same state.
    fn boxed(&self) -> Box<dyn Scorer>;

    /// Takes the next pair, which has `run` pairs before it in its run; the values that have become known with it go to
    /// `ready`, those of each pair once and in order. What was not computed has values that are not numbers.
    fn push(&mut self, sums: &FrameSums, run: usize, ready: &mut VecDeque<Values>);

    /// Ends the run: the values of all of its pairs are known now.
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

/// The scorer of features that need the sums of their pair alone.
pub(super) fn plain(values: impl Fn(&FrameSums) -> Values + Clone + Send + 'static) -> Box<dyn Scorer> {
    Box::new(Plain(values))
}
