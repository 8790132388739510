// SPDX-License-Identifier: MPL-2.0

//! Figures kept over many frames in constant memory.

use engine::model::pool::Pool;

/// Width of a histogram bin.
const STEP: f64 = 0.05;
/// Bins up to 110, the highest score of any model.
const BINS: usize = 2200;

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

impl Histogram {
    /// Counts a value.
    pub fn push(&mut self, value: f64) {
        // A float to integer cast saturates: negative values and NaN count at 0.
        self.bins[((value / STEP) as usize).min(BINS - 1)] += 1;
        self.count += 1;
    }

    /// Counts what another has counted too.
    pub fn merge(&mut self, other: &Self) {
        self.bins.iter_mut().zip(&other.bins).for_each(|(bin, other)| *bin += other);
        self.count += other.count;
    }

    /// The smallest value that at least `percent` of the values do not exceed, accurate to a bin.
    pub fn percentile(&self, percent: f64) -> f64 {
        let rank = ((percent / 100.0 * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let bin = self.bins.iter().position(|n| {
            seen += n;
            seen >= rank
        });
        bin.map_or(0.0, |bin| (bin as f64 + 0.5) * STEP)
    }
}

/// Scores of a model over a section or stream.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Means, extremes and deviation of the scores.
    pub pool: Pool,
    histogram: Histogram,
}

impl Summary {
    /// Takes the score of the next frame.
    pub fn push(&mut self, score: f64) {
        self.pool.push(score);
        self.histogram.push(score);
    }

    /// Adds the scores that another summary took after those of this one.
    pub fn merge(&mut self, later: &Self) {
        self.pool.merge(&later.pool);
        self.histogram.merge(&later.histogram);
    }

    /// A percentile of the scores, accurate to 0.05 and never outside their range; not a number without
    /// scores.
    pub fn percentile(&self, percent: f64) -> f64 {
        // Not `clamp`, which panics on the NaN bounds that NaN scores leave.
        let pooled = self.pool.pooled();
        pooled.map_or(f64::NAN, |pooled| self.histogram.percentile(percent).max(pooled.min).min(pooled.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_bin() {
        let mut summary = Summary::default();
        for i in 0..1000 {
            summary.push(f64::from(i) / 10.0);
        }
        for (percent, exact) in [(1.0, 0.9), (5.0, 4.9), (10.0, 9.9), (50.0, 49.9), (100.0, 99.9)] {
            assert!((summary.percentile(percent) - exact).abs() <= STEP, "{percent}");
        }
    }

    #[test]
    fn odd_values_do_not_disturb() {
        let mut summary = Summary::default();
        assert!(summary.percentile(50.0).is_nan());
        summary.push(-5.0);
        summary.push(1e9);
        assert_eq!(summary.percentile(50.0), 0.025);
        summary.push(f64::NAN);
        summary.percentile(50.0);
        let mut same = Summary::default();
        same.push(83.856284);
        assert_eq!(same.percentile(1.0), 83.856284);
    }
}
