// SPDX-License-Identifier: MPL-2.0

//! Peak signal-to-noise ratio from sums of squared errors.
//!
//! Formulas are those of libvmaf 3.2.0's `psnr` (BSD-2-Clause-Patent).

use super::extractor::{About, Extract};
use super::metric::Metric;
use super::options::{Options, Row, bool, float};
use super::score::{OptionsError, Scorer, Source, plain};
use super::work::{FrameSums, Work};
use crate::frame::{BitDepth, Geometry};

/// Options of libvmaf's `psnr`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PsnrOptions {
    /// `enable_apsnr`: also reports `apsnr_y` and so on at the end of the stream, from the errors of all frames.
    pub enable_apsnr: bool,
    /// `enable_chroma`: also reports `psnr_cb` and `psnr_cr`.
    pub enable_chroma: bool,
    /// `enable_mse`: also reports `mse_y` and so on.
    pub enable_mse: bool,
    /// `reduced_hbd_peak`: above 8 bits the peak is the scaled 255, not the largest sample.
    pub reduced_hbd_peak: bool,
    /// `min_sse`: sum of squared errors that limits the result, 0.0 for the usual limit.
    pub min_sse: f64,
}

impl Default for PsnrOptions {
    fn default() -> Self {
        Self {
            enable_apsnr: false,
            enable_chroma: true,
            enable_mse: false,
            reduced_hbd_peak: false,
            min_sse: 0.0,
        }
    }
}

impl PsnrOptions {
    /// Computes `psnr_y`, `psnr_cb` or `psnr_cr` in dB of a plane with this sum and number of samples.
    pub fn psnr(&self, depth: BitDepth, sse: u64, samples: u64) -> f64 {
        let peak = self.peak(depth) as f64;
        let limit = if self.min_sse == 0.0 {
            f64::from(6 * depth.bits() + 12)
        } else {
            (10.0 * (peak * peak / (self.min_sse / samples as f64)).log10()).ceil()
        };
        // A plane without samples has no mean error. Its score is the limit, as comparisons with NaN are false.
        let mse = mse(sse, samples);
        let psnr = 10.0 * (peak * peak / if mse > 1e-16 { mse } else { 1e-16 }).log10();
        if psnr < limit { psnr } else { limit }
    }

    /// Computes `apsnr_y`, `apsnr_cb` or `apsnr_cr` in dB of a plane from its errors and samples in all frames.
    pub fn aggregate(&self, depth: BitDepth, total: PlaneError) -> f64 {
        let peak = self.peak(depth).pow(2);
        let PlaneError { sse, samples } = total;
        // Limited to an error of one half in the whole stream. The product wraps modulo 2^64 as in libvmaf.
        let limit = (10.0 * (peak.wrapping_mul(samples).wrapping_mul(2) as f64).log10()).ceil();
        let psnr = 10.0 * ((peak as f64).log10() + (samples as f64).log10() - (sse as f64).log10());
        if psnr < limit { psnr } else { limit }
    }

    fn peak(&self, depth: BitDepth) -> u64 {
        u64::from(if self.reduced_hbd_peak { 255 << (depth.bits() - 8) } else { depth.max() })
    }
}

/// Computes `mse_y`, `mse_cb` or `mse_cr` of a plane with this sum and number of samples.
pub fn mse(sse: u64, samples: u64) -> f64 {
    sse as f64 / samples as f64
}

/// Planes whose squared error is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsnrWork {
    /// Includes Cb and Cr; ignored if the frames have no chroma.
    pub chroma: bool,
}

/// Sums of squared errors of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PsnrSums {
    pub y: u64,
    /// Cb and Cr.
    pub chroma: Option<[u64; 2]>,
}

/// Squared error and number of samples of a plane, in one frame or many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaneError {
    pub sse: u64,
    pub samples: u64,
}

impl PsnrSums {
    /// Returns the errors of Y, Cb and Cr; `None` for planes that were not compared.
    pub fn planes(&self, geometry: Geometry) -> [Option<PlaneError>; 3] {
        let plane =
            |sse, (width, height): (usize, usize)| PlaneError { sse, samples: (width * height) as u64 };
        let size = geometry.without_half_samples().chroma;
        let chroma = |i: usize| Some(plane(self.chroma?[i], size?));
        [Some(plane(self.y, (geometry.width, geometry.height))), chroma(0), chroma(1)]
    }
}

/// Peak signal-to-noise ratio.
pub struct Psnr;

impl Metric for Psnr {
    const NAME: &'static str = "psnr";
    type Work = PsnrWork;
    type Sums = PsnrSums;

    fn chroma(work: &PsnrWork) -> bool {
        work.chroma
    }
}

impl Options for PsnrOptions {
    const EXTRACTOR: &'static str = "psnr";
    const TABLE: &'static [Row<Self>] = &[
        bool("enable_apsnr", None, |o| &mut o.enable_apsnr),
        bool("enable_chroma", None, |o| &mut o.enable_chroma),
        bool("enable_mse", None, |o| &mut o.enable_mse),
        float("min_sse", None, |o| &mut o.min_sse, 0.0..=f64::MAX),
        bool("reduced_hbd_peak", None, |o| &mut o.reduced_hbd_peak),
    ];
}

/// Identifies a feature of [`PsnrOptions`]: of Y, Cb or Cr (0..=2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PsnrOutput {
    Psnr(usize),
    Mse(usize),
}

impl Extract for PsnrOptions {
    type Output = PsnrOutput;
    const FEATURES: &'static [(&'static str, PsnrOutput)] = &[
        ("psnr_y", PsnrOutput::Psnr(0)),
        ("psnr_cb", PsnrOutput::Psnr(1)),
        ("psnr_cr", PsnrOutput::Psnr(2)),
        ("mse_y", PsnrOutput::Mse(0)),
        ("mse_cb", PsnrOutput::Mse(1)),
        ("mse_cr", PsnrOutput::Mse(2)),
    ];
    const ABOUT: &'static [About] = &[About {
        reported: "`psnr_y`, `psnr_cb`, `psnr_cr`; with `enable_mse=true` also `mse_y`, …",
        tells: "mean squared error",
        range: "dB, up to 6 times the bits plus 12",
        equal: "60 (8 bits), 72 (10 bits)",
        source: "",
    }];

    fn lacks(&self, output: PsnrOutput) -> Option<&'static str> {
        let (PsnrOutput::Psnr(plane) | PsnrOutput::Mse(plane)) = output;
        let needs = |option, on: bool| (!on).then_some(option);
        let chroma = needs("enable_chroma", plane == 0 || self.enable_chroma);
        let mse = needs("enable_mse", matches!(output, PsnrOutput::Psnr(_)) || self.enable_mse);
        chroma.or(mse)
    }

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        work.extend::<Psnr, _>(PsnrWork { chroma: false }, |work| work.chroma |= self.enable_chroma);
        Ok(Box::new(PsnrSource(*self)))
    }
}

#[derive(Clone, Copy, Debug)]
struct PsnrSource(PsnrOptions);

impl Source for PsnrSource {
    fn scorer(&self, geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        let Self(options) = *self;
        Ok(plain(move |sums| {
            let planes = sums.get::<Psnr>().map(|sums| sums.planes(geometry)).unwrap_or_default();
            let value = |output| match output {
                PsnrOutput::Psnr(i) => planes[i].map(|p| options.psnr(geometry.depth, p.sse, p.samples)),
                PsnrOutput::Mse(i) => planes[i].map(|p| mse(p.sse, p.samples)),
            };
            PsnrOptions::values(|output| value(output).unwrap_or(f64::NAN))
        }))
    }

    /// Returns the errors and sample counts of Y, Cb and Cr.
    fn totals(&self, sums: &FrameSums, geometry: Geometry) -> Vec<u64> {
        if !self.0.enable_apsnr {
            return vec![];
        }
        let planes = sums.get::<Psnr>().map(|sums| sums.planes(geometry)).unwrap_or_default();
        planes
            .into_iter()
            .flat_map(|plane| plane.map_or([0; 2], |plane| [plane.sse, plane.samples]))
            .collect()
    }

    fn aggregates(&self, totals: &[u64], geometry: Geometry) -> Vec<(&'static str, f64)> {
        let planes = totals.chunks_exact(2).map(|total| PlaneError { sse: total[0], samples: total[1] });
        let compared = ["apsnr_y", "apsnr_cb", "apsnr_cr"].into_iter().zip(planes);
        let compared = compared.filter(|(_, total)| total.samples > 0);
        compared.map(|(name, total)| (name, self.0.aggregate(geometry.depth, total))).collect()
    }
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
    fn aggregates_are_those_of_all_errors_together() {
        let options = PsnrOptions { enable_apsnr: true, ..Default::default() };
        let total = PlaneError { sse: 0, samples: 50 };
        // 10 log10(255^2 x 50 x 2) = 68.1
        assert_eq!(options.aggregate(depth(8), total), 69.0);
        let total = PlaneError { sse: 65025, samples: 100 };
        assert!((options.aggregate(depth(8), total) - 20.0).abs() < 1e-12);
    }

    #[test]
    fn planes_without_sums_or_samples_have_no_error() {
        let mut geometry = Geometry { width: 4, height: 2, depth: depth(8), chroma: Some((2, 1)) };
        let sums = PsnrSums { y: 8, chroma: Some([2, 6]) };
        let errors = |geometry| sums.planes(geometry).map(|plane| plane.map(|p| mse(p.sse, p.samples)));
        assert_eq!(errors(geometry), [Some(1.0), Some(1.0), Some(3.0)]);
        geometry.chroma = None;
        assert_eq!(errors(geometry), [Some(1.0), None, None]);
    }
}
