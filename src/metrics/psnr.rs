// SPDX-License-Identifier: MPL-2.0

//! Peak signal-to-noise ratio from sums of squared errors.
//!
//! Formulas are those of libvmaf 3.2.0's `psnr` (BSD-2-Clause-Patent).

use crate::frame::BitDepth;

/// Options of libvmaf's `psnr`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PsnrOptions {
    /// `enable_chroma`: also `psnr_cb` and `psnr_cr`.
    pub chroma: bool,
    /// `reduced_hbd_peak`: above 8 bits the peak is 255 scaled, not the largest sample.
    pub reduced_hbd_peak: bool,
    /// `min_sse`: the sum of squared errors that limits the result, 0.0 for the usual limit.
    pub min_sse: f64,
}

impl Default for PsnrOptions {
    fn default() -> Self {
        Self { chroma: true, reduced_hbd_peak: false, min_sse: 0.0 }
    }
}

impl PsnrOptions {
    /// `psnr_y`, `psnr_cb` or `psnr_cr` in dB of a plane with this sum and number of samples.
    pub fn psnr(&self, depth: BitDepth, sse: u64, samples: u64) -> f64 {
        let peak = self.peak(depth) as f64;
        let limit = if self.min_sse == 0.0 {
            f64::from(6 * depth.bits() + 12)
        } else {
            (10.0 * (peak * peak / (self.min_sse / samples as f64)).log10()).ceil()
        };
        // A plane without samples has no mean error: it scores the limit, as nothing is below NaN.
        let mse = mse(sse, samples);
        let psnr = 10.0 * (peak * peak / if mse > 1e-16 { mse } else { 1e-16 }).log10();
        if psnr < limit { psnr } else { limit }
    }

    fn peak(&self, depth: BitDepth) -> u64 {
        u64::from(if self.reduced_hbd_peak { 255 << (depth.bits() - 8) } else { depth.max() })
    }
}

/// `mse_y`, `mse_cb` or `mse_cr`: mean squared error, NaN of no samples.
pub fn mse(sse: u64, samples: u64) -> f64 {
    sse as f64 / samples as f64
}

/// `apsnr_y`, `apsnr_cb` or `apsnr_cr`: the ratio over all samples of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AggregatePsnr {
    sse: u64,
    samples: u64,
}

impl AggregatePsnr {
    /// Adds a frame's plane.
    pub fn add(&mut self, sse: u64, samples: u64) {
        self.sse += sse;
        self.samples += samples;
    }

    /// The ratio so far in dB.
    pub fn score(&self, options: &PsnrOptions, depth: BitDepth) -> f64 {
        let square = options.peak(depth).pow(2);
        let ratio = (square as f64).log10() + (self.samples as f64).log10() - (self.sse as f64).log10();
        let range = square.wrapping_mul(self.samples).wrapping_mul(2);
        let limit = (10.0 * (range as f64).log10()).ceil();
        if 10.0 * ratio < limit { 10.0 * ratio } else { limit }
    }
}

/// Options of the PSNR extractor; names and ranges as in libvmaf 3.2.0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PsnrOptions {
    pub enable_chroma: bool,
    pub enable_mse: bool,
    pub enable_apsnr: bool,
    pub reduced_hbd_peak: bool,
    pub min_sse: f64,
}

impl Default for PsnrOptions {
    fn default() -> Self {
        Self {
            enable_chroma: true,
            enable_mse: false,
            enable_apsnr: false,
            reduced_hbd_peak: false,
            min_sse: 0.0,
        }
    }
}

/// Planes whose squared error is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsnrWork {
    /// Cb and Cr besides luma; ignored where the frames carry no chroma.
    pub chroma: bool,
}

/// Sums of squared errors of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PsnrSums {
    pub y: u64,
    /// Cb and Cr.
    pub chroma: Option<[u64; 2]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(bits: u32) -> BitDepth {
        BitDepth::new(bits).unwrap()
    }

    #[test]
    fn like_planes_score_the_limit_of_their_depth() {
        let options = PsnrOptions::default();
        let limits = [8, 10, 12, 16].map(|bits| options.psnr(depth(bits), 0, 100));
        assert_eq!(limits, [60.0, 72.0, 84.0, 108.0]);
        assert_eq!(options.psnr(depth(8), 0, 0), 60.0);
        // 10 log10(255^2 / (0.5 / 1000)) = 81.1
        let limited = PsnrOptions { min_sse: 0.5, ..options };
        assert_eq!(limited.psnr(depth(8), 0, 1000), 82.0);
    }

    #[test]
    fn ratio_depends_on_the_peak() {
        let options = PsnrOptions::default();
        let reduced = PsnrOptions { reduced_hbd_peak: true, ..options };
        // A mean squared error of 1 % of the squared peak is 20 dB.
        assert_eq!(options.psnr(depth(8), 65025, 100), 20.0);
        assert_eq!(options.psnr(depth(10), 1023 * 1023, 100), 20.0);
        assert_eq!(reduced.psnr(depth(10), 1020 * 1020, 100), 20.0);
        assert_eq!(reduced.psnr(depth(8), 65025, 100), 20.0);
    }

    #[test]
    fn aggregate_pools_errors_not_ratios() {
        let options = PsnrOptions::default();
        let mut all = AggregatePsnr::default();
        all.add(0, 100);
        // No error at all: ceil(10 log10(255^2 200)).
        assert_eq!(all.score(&options, depth(8)), 72.0);
        all.add(2 * 65025, 100);
        assert!((all.score(&options, depth(8)) - 20.0).abs() < 1e-12);
    }
}
