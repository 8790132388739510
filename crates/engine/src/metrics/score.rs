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
