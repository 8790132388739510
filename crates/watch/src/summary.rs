// SPDX-License-Identifier: MPL-2.0

//! Statistics of scores: in constant memory for endless streams, exact for windows.

use std::collections::BTreeMap;

use engine::model::pool::Pool;

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

/// Counts values by their sign, power of two and next 11 binary digits, so that percentiles are accurate to 1/4096 of
/// their value, be it a score, decibels or a share. Memory grows with the range of the values, not with their number.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    bins: BTreeMap<i32, u64>,
    count: u64,
}

/// Binary digits of a single-precision number that do not matter.
const DROPPED: u32 = 12;

/// Returns the bin of a value. Bins are in the order of their values.
fn bin(value: f64) -> i32 {
    let bits = (value as f32).to_bits();
    let magnitude = ((bits & i32::MAX as u32) >> DROPPED) as i32;
    if value < 0.0 { -1 - magnitude } else { magnitude }
}

/// Returns the value in the middle of a bin.
fn middle(bin: i32) -> f64 {
    let magnitude = if bin < 0 { -1 - bin } else { bin } as u32;
    let middle = f64::from(f32::from_bits((magnitude << DROPPED) | (1 << (DROPPED - 1))));
    if bin < 0 { -middle } else { middle }
}

impl Distribution for Histogram {
    fn push(&mut self, value: f64) {
        *self.bins.entry(bin(value)).or_default() += 1;
        self.count += 1;
    }

    fn merge(&mut self, other: &Self) {
        for (bin, count) in &other.bins {
            *self.bins.entry(*bin).or_default() += count;
        }
        self.count += other.count;
    }

    fn percentile(&self, percent: f64) -> f64 {
        let rank = rank(percent, self.count);
        let mut seen = 0;
        let bin = self.bins.iter().find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        bin.map_or(0.0, |(bin, _)| middle(*bin))
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
    fn percentiles_are_accurate_at_any_scale() {
        for scale in [1e-6, 1e-3, 0.1, 1.0, 1e4, -1.0] {
            let mut summary: Summary = Summary::default();
            for i in 0..1000 {
                summary.push(f64::from(i) / 10.0 * scale);
            }
            let rank =
                |percent: f64| if scale < 0.0 { 1000.0 - percent * 10.0 } else { percent * 10.0 - 1.0 };
            for percent in [1.0, 5.0, 10.0, 50.0, 100.0] {
                let exact = rank(percent) / 10.0 * scale;
                let found = summary.percentile(percent);
                assert!(
                    (found - exact).abs() <= exact.abs() / 4095.0,
                    "{percent} of {scale}: {found}, {exact}"
                );
            }
        }
    }

    #[test]
    fn merged_percentiles_are_those_of_all_values() {
        let mut parts: [Summary; 2] = Default::default();
        let mut all: Summary = Summary::default();
        for i in 0..1000 {
            let value = f64::from((i * 7919) % 1000) / 9.0 - 20.0;
            parts[i as usize % 2].push(value);
            all.push(value);
        }
        let [mut first, second] = parts;
        first.merge(&second);
        for percent in [0.0, 1.0, 20.0, 50.0, 99.0] {
            assert_eq!(first.percentile(percent), all.percentile(percent));
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
    fn odd_values_do_not_disturb() {
        let mut summary: Summary = Summary::default();
        assert!(summary.percentile(50.0).is_nan());
        summary.push(-5.0);
        summary.push(1e9);
        assert!((summary.percentile(50.0) + 5.0).abs() < 0.002);
        summary.push(f64::NAN);
        summary.percentile(50.0);
        let mut same: Summary = Summary::default();
        same.push(83.856284);
        assert_eq!(same.percentile(1.0), 83.856284);
    }
}
