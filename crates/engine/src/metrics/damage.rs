// SPDX-License-Identifier: MPL-2.0

//! Local damage: VIF's formula applied to small parts of the luma pictures.
//!
//! For each cell of [`CELL`] x [`CELL`] samples, a backend computes the variances and the covariance of a window around
//! it. The window is wider than the cell, so that each edge of a coding block lies inside a window.

use std::ops::Range;

use super::metric::Metric;
use super::vif::NOISE;
use super::work::Work;
use crate::frame::Geometry;

/// Width and height of a cell in luma samples.
pub const CELL: usize = 16;
/// Samples that a window extends beyond its cell on each side.
pub const MARGIN: usize = 8;

/// Bits per sample that are added to the information of a window, so that a small loss in an almost flat window stays
/// small.
const LITTLE: f64 = 2.0;

/// Returns the number of columns and rows of cells.
pub fn cells(geometry: Geometry) -> (usize, usize) {
    (geometry.width.div_ceil(CELL), geometry.height.div_ceil(CELL))
}

/// Returns the columns or rows, of `length`, in the window of a cell.
pub fn window(cell: usize, length: usize) -> Range<usize> {
    (cell * CELL).saturating_sub(MARGIN)..length.min((cell + 1) * CELL + MARGIN)
}

/// Statistics of the two pictures in one window, in 1/65536 of a squared 8-bit step, rounded towards zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Variance of the reference.
    pub reference: u32,
    /// Variance of the distorted picture.
    pub distorted: u32,
    /// Covariance of both.
    pub covariance: i32,
}

/// The windows of all cells, row by row.
pub type DamageSums = Vec<Window>;

impl Window {
    /// Computes the statistics from 1 to 1024 pairs of samples with this many bits: the sums of each, of their squares
    /// and of their products.
    pub fn new(bits: u32, n: u64, [r, d]: [u64; 2], [rr, dd, rd]: [u64; 3]) -> Self {
        // At most 2^52, whatever the depth.
        let unit = 1u64 << (32 - 2 * bits);
        let variance = |squares: u64, sum: u64| ((n * squares - sum * sum) * unit / (n * n)) as u32;
        let covariance = ((n * rd) as i64 - (r * d) as i64) * unit as i64 / (n * n) as i64;
        Self { reference: variance(rr, r), distorted: variance(dd, d), covariance: covariance as i32 }
    }

    /// Returns the share of the information that is lost, 0 to 1: 1 - num/den in VIF's terms. But structure that the
    /// reference lacks counts as damage, and added contrast does not compensate for losses.
    pub fn loss(&self) -> f64 {
        let noise = f64::from(NOISE);
        let [r, d, c] = [self.reference.into(), self.distorted.into(), f64::from(self.covariance)];
        let explained = if c > 0.0 && r > 0.0 { (c * c / r).min(d) } else { 0.0 };
        let added = ((d - explained) / noise + 1.0).log2();
        let faded = ((r + noise) / (d + noise)).log2().max(0.0);
        let available = (r / noise + 1.0).log2();
        ((added + faded) / (available + LITTLE)).min(1.0)
    }
}

/// The damage map. It has no extractor: callers add its work.
pub struct Damage;

/// The pixel work; it has no parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamageWork;

impl Metric for Damage {
    const NAME: &'static str = "damage";
    type Work = DamageWork;
    type Sums = DamageSums;
}

impl Damage {
    /// Adds the map to the work of others.
    pub fn plan(work: &mut Work) {
        work.set::<Self>(DamageWork);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(reference: u32, distorted: u32, covariance: i32) -> f64 {
        const UNIT: u32 = 65536;
        let window = Window {
            reference: reference * UNIT,
            distorted: distorted * UNIT,
            covariance: covariance * UNIT as i32,
        };
        window.loss()
    }

    #[test]
    fn what_is_alike_is_not_damaged() {
        for variance in [0, 1, 2, 100, 10_000] {
            assert!(loss(variance, variance, variance as i32) < 1e-6, "{variance}");
        }
        assert!(loss(100, 400, 200) < 1e-6, "more contrast");
    }

    #[test]
    fn damage_grows_with_what_is_lost_or_added() {
        let blurred = [100, 81, 49, 16, 1].map(|v: u32| loss(100, v, (f64::from(v) * 100.0).sqrt() as i32));
        assert!(blurred.is_sorted() && blurred[4] > 0.5, "{blurred:?}");
        let noisy = [0, 1, 10, 100, 1000].map(|noise| loss(100, 100 + noise, 100));
        assert!(noisy.is_sorted() && noisy[4] > 0.5, "{noisy:?}");
        let artefacts = [0, 1, 4, 100].map(|v| loss(0, v, 0));
        assert!(artefacts.is_sorted() && artefacts[3] == 1.0, "{artefacts:?}");
        assert!(loss(100, 100, -100) > 0.5, "inverted");
    }

    #[test]
    fn faint_texture_that_goes_is_little_damage() {
        assert!(loss(1, 0, 0) < 0.3 && loss(100, 0, 0) > 0.7);
    }
}
