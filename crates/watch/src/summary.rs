// SPDX-License-Identifier: MPL-2.0

//! Statistics of scores: in constant memory for endless streams, exact for windows.

use engine::model::pool::Pool;

/// Width of a histogram bin.
const STEP: f64 = 0.05;
/// Bins up to 110, the highest score of any model.
const BINS: usize = 2200;

/// A distribution of values.
pub trait Distribution: Default {
    /// Adds a value.
    fn push(&mut self, value: f64);

    /// Adds the values of another distribution.
    fn merge(&mut self, other: &Self);

    /// Returns the smallest value that at least `percent` of the values do not exceed; 0 without values.
    fn percentile(&self, percent: f64) -> f64;
}

/// Returns the rank of the percentile among `count` values, at least one.
fn rank(percent: f64, count: u64) -> u64 {
    ((percent / 100.0 * count as f64).ceil() as u64).clamp(1, count.max(1))
}

/// All values: eight bytes each, with exact percentiles.
#[derive(Clone, Debug, Default)]
pub struct Values(Vec<f64>);

impl Distribution for Values {
    fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    fn merge(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }

    fn percentile(&self, percent: f64) -> f64 {
        let mut values = self.0.clone();
        if values.is_empty() {
            return 0.0;
        }
        let place = rank(percent, values.len() as u64) as usize - 1;
        *values.select_nth_unstable_by(place, f64::total_cmp).1
    }
}

/// Counts values in steps of 0.05 from 0 to 110; values outside count at the ends.
#[derive(Clone, Debug)]
pub struct Histogram {
    bins: Vec<u64>,
    count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { bins: vec![0; BINS], count: 0 }
    }
}

impl Distribution for Histogram {
    fn push(&mut self, value: f64) {
        // A float to integer cast saturates: negative values and NaN become 0.
        self.bins[((value / STEP) as usize).min(BINS - 1)] += 1;
        self.count += 1;
    }

    fn merge(&mut self, other: &Self) {
        self.bins.iter_mut().zip(&other.bins).for_each(|(bin, other)| *bin += other);
        self.count += other.count;
    }

    /// Accurate to a bin: returns the middle of the value's bin.
    fn percentile(&self, percent: f64) -> f64 {
        let rank = rank(percent, self.count);
        let mut seen = 0;
        let bin = self.bins.iter().position(|n| {
            seen += n;
            seen >= rank
        });
        // Division by an integer gives short decimals.
        bin.map_or(0.0, |bin| (2 * bin + 1) as f64 / (2.0 / STEP))
    }
}

/// Scores of a model over a section or stream, or exactly over a window with [`Values`].
#[derive(Clone, Debug, Default)]
pub struct Summary<D = Histogram> {
    /// Means, extremes and deviation.
    pub pool: Pool,
    distribution: D,
}

impl<D: Distribution> Summary<D> {
    /// Adds the score of the next frame.
    pub fn push(&mut self, score: f64) {
        self.pool.push(score);
        self.distribution.push(score);
    }

    /// Adds the scores of a later summary.
    pub fn merge(&mut self, later: &Self) {
        self.pool.merge(&later.pool);
        self.distribution.merge(&later.distribution);
    }

    /// Returns a percentile with the accuracy of the distribution, and never outside the range of the scores; NaN
    /// without scores.
    pub fn percentile(&self, percent: f64) -> f64 {
        // `clamp` would panic on the NaN bounds that NaN scores cause.
        let pooled = self.pool.pooled();
        pooled
            .map_or(f64::NAN, |pooled| self.distribution.percentile(percent).max(pooled.min).min(pooled.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_bin() {
        let mut summary: Summary = Summary::default();
        for i in 0..1000 {
            summary.push(f64::from(i) / 10.0);
        }
        for (percent, exact) in [(1.0, 0.9), (5.0, 4.9), (10.0, 9.9), (50.0, 49.9), (100.0, 99.9)] {
            assert!((summary.percentile(percent) - exact).abs() <= STEP, "{percent}");
        }
    }

    #[test]
    fn percentiles_of_all_values_are_exact() {
        let mut summary = Summary::<Values>::default();
        for i in (0..1000).rev() {
            summary.push(f64::from(i) / 7.0);
        }
        for (percent, rank) in [(0.0, 0), (1.0, 9), (5.0, 49), (50.0, 499), (99.95, 999), (100.0, 999)] {
            assert_eq!(summary.percentile(percent), f64::from(rank) / 7.0);
        }
        summary.push(f64::NAN);
        assert_eq!(summary.percentile(1.0), 10.0 / 7.0);
        assert!(Summary::<Values>::default().percentile(50.0).is_nan());
    }

    #[test]
    fn middles_of_bins_have_few_decimals() {
        let mut summary: Summary = Summary::default();
        (0..2000).for_each(|i| summary.push(f64::from(i) * STEP + 0.01));
        for percent in 1..100 {
            let text = summary.percentile(f64::from(percent)).to_string();
            assert!(text.len() <= 7, "{text}");
        }
    }

    #[test]
    fn odd_values_do_not_disturb() {
        let mut summary: Summary = Summary::default();
        assert!(summary.percentile(50.0).is_nan());
        summary.push(-5.0);
        summary.push(1e9);
        assert_eq!(summary.percentile(50.0), 0.025);
        summary.push(f64::NAN);
        summary.percentile(50.0);
        let mut same: Summary = Summary::default();
        same.push(83.856284);
        assert_eq!(same.percentile(1.0), 83.856284);
    }
}
