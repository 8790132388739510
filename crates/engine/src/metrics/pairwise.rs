// SPDX-License-Identifier: MPL-2.0

//! Values of single pairs, for callers that keep order and history themselves: libvmaf's interface takes pairs in any order
//! and fills a table of scores.

use std::collections::VecDeque;

use super::extractor::Extractor;
use super::float_motion::{FloatMotion, FloatMotionOptions};
use super::motion::{Motion, MotionOptions};
use super::score::{OptionsError, Scorer, Source};
use super::work::{FrameSums, Work};
use crate::frame::Geometry;

/// An extractor whose work was added to that of others.
#[derive(Debug)]
pub struct Pairwise {
    extractor: Extractor,
    source: Box<dyn Source>,
}

impl Pairwise {
    /// Adds all work of an extractor, its costly features' too, to that of others.
    pub fn plan(extractor: &Extractor, work: &mut Work) -> Result<Self, OptionsError> {
        Ok(Self { extractor: extractor.clone(), source: extractor.plan(true, work)? })
    }

    /// Creates the scorer of pairs of this geometry.
    pub fn scorer(&self, geometry: Geometry) -> Result<PairScorer, OptionsError> {
        Ok(PairScorer { scorer: self.source.scorer(geometry)? })
    }

    /// Returns the fractions behind the values of a pair, by libvmaf's names and in its order; nothing for extractors that
    /// have none.
    pub fn fractions(
        &self,
        sums: &FrameSums,
        geometry: Geometry,
    ) -> Result<Vec<(String, f64)>, OptionsError> {
        self.source.fractions(sums, geometry)
    }

    /// Returns the amounts that a pair adds to the stream's totals.
    pub fn totals(&self, sums: &FrameSums, geometry: Geometry) -> Vec<u64> {
        self.source.totals(sums, geometry)
    }

    /// Computes the stream's figures from the totals of all pairs.
    pub fn aggregates(&self, totals: &[u64], geometry: Geometry) -> Vec<(&'static str, f64)> {
        self.source.aggregates(totals, geometry)
    }

    /// Returns how motion follows from the differences to earlier pictures, if this is the extractor of motion.
    pub fn motion(&self) -> Option<MotionRule> {
        self.extractor.options_as::<MotionOptions>().map(|options| MotionRule { options: *options })
    }

    /// Returns how floating-point motion follows from the differences to earlier pictures, if this is its extractor, whose
    /// work is part of this.
    pub fn float_motion(&self, work: &Work) -> Option<FloatMotionRule> {
        let options = *self.extractor.options_as::<FloatMotionOptions>()?;
        let index = work.get::<FloatMotion>().and_then(|work| {
            let wanted = options.difference();
            work.iter().position(|difference| *difference == wanted)
        });
        Some(FloatMotionRule { options, index: index.unwrap_or(0) })
    }
}

/// Turns the sums of pairs into the values of an extractor that looks at no other pair.
pub struct PairScorer {
    scorer: Box<dyn Scorer>,
}

impl PairScorer {
    /// Returns the values of a pair, by [`Feature::output`](super::feature::Feature::output).
    pub fn values(&mut self, sums: &FrameSums) -> Vec<f64> {
        let mut ready = VecDeque::new();
        self.scorer.push(sums, 0, &mut ready);
        ready.pop_front().unwrap_or_default()
    }
}

/// How motion follows from the differences to earlier reference pictures.
#[derive(Clone, Copy, Debug)]
pub struct MotionRule {
    options: MotionOptions,
}

impl MotionRule {
    /// Returns how many pictures before its own a picture is compared with.
    pub fn lag(&self) -> usize {
        1 + usize::from(self.options.five_frame_window)
    }

    /// Returns true if all values are 0, and no picture is compared.
    pub fn is_zero(&self) -> bool {
        self.options.force_zero
    }

    /// Returns true if `motion3` is the mean of two pictures.
    pub fn averages(&self) -> bool {
        self.options.moving_average
    }

    /// Returns the score of the difference to the earlier picture; 0 where there is none.
    pub fn difference(&self, sums: &FrameSums, Geometry { width, height, .. }: Geometry) -> f64 {
        let sums = sums.get::<Motion>().copied().unwrap_or_default();
        let sum = if self.options.five_frame_window { sums.lag2 } else { sums.lag1 };
        sum.map_or(0.0, |sum| self.options.score(sum, (width * height) as f64))
    }

    /// Returns `motion3`, before averaging, where `motion2` is this.
    pub fn blend(&self, motion2: f64) -> f64 {
        self.options.blend(motion2)
    }
}

/// How floating-point motion follows from the differences to earlier reference pictures.
#[derive(Clone, Copy, Debug)]
pub struct FloatMotionRule {
    options: FloatMotionOptions,
    /// Index of the difference among those that are computed.
    index: usize,
}

impl FloatMotionRule {
    /// Returns true if all values are 0, and no picture is compared.
    pub fn is_zero(&self) -> bool {
        self.options.force_zero
    }

    /// Returns the difference to the earlier picture; 0 where there is none.
    pub fn difference(&self, sums: &FrameSums) -> f64 {
        let sum = sums.get::<FloatMotion>().and_then(|sums| sums.get(self.index).copied().flatten());
        sum.unwrap_or(0.0)
    }

    /// Returns `motion` of a picture with this difference, or `motion2` where it is the lesser of two.
    pub fn limited(&self, difference: f64) -> f64 {
        self.options.limited(difference)
    }

    /// Returns `motion3` where `motion2` is of this difference.
    pub fn blended(&self, difference: f64) -> f64 {
        self.options.blended(difference)
    }
}
