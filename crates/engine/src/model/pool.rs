// SPDX-License-Identifier: MPL-2.0

//! Pooling: combines the scores of many frames into one number, in constant memory.

/// Takes scores one by one in the order of the frames.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    count: u64,
    sum: f64,
    inverse_sum: f64,
    min: f64,
    max: f64,
    /// Mean and sum of squared deviations by Welford's recurrence, which keeps small differences of large scores.
    /// libvmaf's mean has to be computed from `sum`.
    running_mean: f64,
    squares: f64,
}

/// The pooled values of at least one score. Minimum, maximum, mean and harmonic mean are libvmaf's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pooled {
    /// Number of scores.
    pub count: u64,
    /// Lowest score.
    pub min: f64,
    /// Highest score.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Harmonic mean of the scores plus one, less one, as 0 is a valid score.
    pub harmonic_mean: f64,
    /// Population standard deviation.
    pub stddev: f64,
}

impl Pool {
    /// Adds the score of the next frame.
    pub fn push(&mut self, score: f64) {
        if self.count == 0 || score < self.min {
            self.min = score;
        }
        if self.count == 0 || score > self.max {
            self.max = score;
        }
        self.count += 1;
        self.sum += score;
        self.inverse_sum += 1.0 / (score + 1.0);
        let delta = score - self.running_mean;
        self.running_mean += delta / self.count as f64;
        self.squares += delta * (score - self.running_mean);
    }

    /// Adds the scores of another pool, which took them after those of this one.
    pub fn merge(&mut self, later: &Self) {
        if later.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = later.clone();
            return;
        }
        let (own, others) = (self.count as f64, later.count as f64);
        self.min = if later.min < self.min { later.min } else { self.min };
        self.max = if later.max > self.max { later.max } else { self.max };
        self.count += later.count;
        self.sum += later.sum;
        self.inverse_sum += later.inverse_sum;
        // The pairwise form of Welford's recurrence (Chan, Golub and LeVeque, 1983).
        let delta = later.running_mean - self.running_mean;
        self.running_mean += delta * others / (own + others);
        self.squares += later.squares + delta * delta * own * others / (own + others);
    }

    /// Returns the pooled values; `None` before the first score.
    pub fn pooled(&self) -> Option<Pooled> {
        let count = self.count as f64;
        (self.count > 0).then(|| Pooled {
            count: self.count,
            min: self.min,
            max: self.max,
            mean: self.sum / count,
            harmonic_mean: count / self.inverse_sum - 1.0,
            stddev: (self.squares / count).sqrt(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pooled(scores: &[f64]) -> Option<Pooled> {
        let mut pool = Pool::default();
        scores.iter().for_each(|score| pool.push(*score));
        pool.pooled()
    }

    #[test]
    fn no_scores_pool_to_nothing() {
        assert_eq!(pooled(&[]), None);
    }

    #[test]
    fn pooling_is_that_of_libvmaf() {
        // Computed with the reference of the specification; the deviation with Python's `statistics.pstdev`.
        let scores = [64.56509478033067, 66.97844149512467, 0.0, 100.0, 62.216773607950586];
        assert_eq!(
            pooled(&scores),
            Some(Pooled {
                count: 5,
                min: 0.0,
                max: 100.0,
                mean: 58.75206197668118,
                harmonic_mean: 3.736274118498618,
                stddev: 32.45509536184715,
            })
        );
    }

    #[test]
    fn scores_below_zero_pool_too() {
        let below = pooled(&[-3.0, -5.0]).unwrap();
        assert_eq!((below.min, below.max, below.mean), (-5.0, -3.0, -4.0));
        assert_eq!(pooled(&[50.0, -1.0]).unwrap().harmonic_mean, -1.0);
    }

    #[test]
    fn merged_pools_are_one() {
        let scores = [64.5, 66.75, 1.0, 100.0, 62.25];
        let whole = pooled(&scores);
        for split in 0..=scores.len() {
            let [mut first, mut second] = [Pool::default(), Pool::default()];
            scores[..split].iter().for_each(|score| first.push(*score));
            scores[split..].iter().for_each(|score| second.push(*score));
            first.merge(&second);
            let merged = first.pooled();
            let close = |f: fn(Pooled) -> f64| (merged.map(f).unwrap() - whole.map(f).unwrap()).abs() < 1e-9;
            assert!(close(|p| p.count as f64) && close(|p| p.min) && close(|p| p.max), "{split}");
            assert!(close(|p| p.mean) && close(|p| p.harmonic_mean) && close(|p| p.stddev), "{split}");
        }
    }

    #[test]
    fn deviation_survives_large_scores() {
        assert_eq!(pooled(&[1e9, 1e9 + 2.0]).unwrap().stddev, 1.0);
    }
}
