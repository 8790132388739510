// SPDX-License-Identifier: MPL-2.0

//! Compute time of the latest groups of frames.

use std::collections::VecDeque;

/// Number of groups remembered.
const REMEMBERED: usize = 8192;

/// Times in seconds: number and sum for all groups, and the individual times of the latest.
#[derive(Clone, Debug, Default)]
pub struct ComputeTime {
    sum: f64,
    count: u64,
    /// Completion time and duration of the latest groups.
    recent: VecDeque<(f64, f64)>,
}

impl ComputeTime {
    /// Adds a group that was completed at `now`, a monotonic time in seconds.
    pub fn push(&mut self, now: f64, seconds: f64) {
        self.sum += seconds;
        self.count += 1;
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((now, seconds));
    }

    /// Returns the sum of all durations in seconds.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Returns the number of groups.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean of all groups, if there were any.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// Returns quantiles (0 to 1) of the groups completed in the `length` seconds before `now`, from the latest 8192
    /// groups at most; NaN without any.
    pub fn quantiles<const N: usize>(&self, length: f64, now: f64, shares: [f64; N]) -> [f64; N] {
        let within = self.recent.iter().filter(|(done, _)| *done >= now - length);
        let mut times: Vec<f64> = within.map(|(_, seconds)| *seconds).collect();
        times.sort_by(f64::total_cmp);
        shares.map(|share| {
            let rank = (share * times.len() as f64).ceil() as usize;
            times.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_whatever_the_times() {
        let mut time = ComputeTime::default();
        assert!(time.quantiles(60.0, 0.0, [0.5])[0].is_nan());
        assert_eq!(time.mean(), None);
        (1..=1000).for_each(|i| time.push(f64::from(i) / 100.0, f64::from(i)));
        assert_eq!(time.quantiles(60.0, 10.0, [0.001, 0.5, 0.99, 1.0]), [1.0, 500.0, 990.0, 1000.0]);
        assert_eq!((time.count(), time.mean()), (1000, Some(500.5)));
    }

    #[test]
    fn what_is_long_over_does_not_count() {
        let mut time = ComputeTime::default();
        time.push(0.0, 5.0);
        (0..100).for_each(|i| time.push(100.0 + f64::from(i) / 100.0, 0.01));
        assert_eq!(time.quantiles(60.0, 101.0, [0.99]), [0.01]);
        assert_eq!(time.count(), 101);
        (0..20_000).for_each(|_| time.push(102.0, 0.02));
        assert_eq!(time.recent.len(), REMEMBERED);
        assert_eq!(time.quantiles(60.0, 103.0, [0.01, 0.99]), [0.02; 2]);
    }
}
