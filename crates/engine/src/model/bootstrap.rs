// SPDX-License-Identifier: MPL-2.0

//! The confidence interval of a collection of models.

/// The agreement of the members of a collection on a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Bootstrap {
    /// Scores of the bootstrap members in the order of the file, without the main model. libvmaf names them
    /// `NAME_0001`, `NAME_0002`, …
    pub members: Vec<f64>,
    /// The mean of the members (`NAME_bagging`).
    pub bagging: f64,
    /// The standard deviation of the members, scaled to the transformed and clipped score (`NAME_stddev`).
    pub stddev: f64,
    /// Lower end of the 95 % confidence interval (`NAME_ci_p95_lo`).
    pub ci_lo: f64,
    /// Upper end of the 95 % confidence interval (`NAME_ci_p95_hi`).
    pub ci_hi: f64,
}

impl Bootstrap {
    /// Summarises the `raw` scores of the members (at least one), before transform and clip. `finish` applies transform
    /// and clip to the first of them.
    pub(super) fn new(members: Vec<f64>, mut raw: Vec<f64>, finish: impl Fn(f64) -> f64) -> Self {
        const DELTA: f64 = 0.01;
        let n = raw.len() as f64;
        let mean = raw.iter().fold(0.0, |sum, r| sum + r) / n;
        let variance = raw.iter().fold(0.0, |sum, r| sum + (r - mean) * (r - mean)) / n;
        let slope = (finish(mean + DELTA) - finish(mean - DELTA)) / (2.0 * DELTA);
        raw.sort_by(f64::total_cmp);
        Self {
            members,
            bagging: finish(mean),
            stddev: variance.sqrt() * slope,
            ci_lo: finish(percentile(&raw, 2.5)),
            ci_hi: finish(percentile(&raw, 97.5)),
        }
    }
}

/// Interpolates linearly between the neighbours in `sorted`, which must not be empty.
fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let p = percent * (sorted.len() - 1) as f64 / 100.0;
    let (low, high) = (p.floor(), p.ceil());
    let at = |index: f64| sorted[index as usize];
    if low == high { at(low) } else { at(low) * (high - p) + at(high) * (p - low) }
}
