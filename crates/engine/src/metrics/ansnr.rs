// SPDX-License-Identifier: MPL-2.0

//! ANSNR: the ratio of the low-passed reference to its difference to the low-passed distorted picture.
//!
//! Formulas and filters are those of libvmaf 3.2.0's `float_ansnr` (BSD-2-Clause-Patent). A sample `v` of `bits` bits is
//! `v / 2^(bits - 8) - 128`. The reference is filtered by [`REFERENCE`], the distorted picture by [`DISTORTED`]: each output
//! is the sum over the rows of the filter, from above, of the sums over their taps, from the left. Row and column `-i` are
//! `i`, and `n - 1 + i` are `n - i`, where there are `n`. The signal is the sum of the squares of the filtered reference, the
//! noise that of its differences to the filtered distorted picture: of each row from the left, then of the rows from above.
//! All of this is in single precision, and rounded at each step.

use super::extractor::{About, Extract};
use super::metric::{Metric, Misfit};
use super::options::{Options, Row};
use super::score::{OptionsError, Scorer, Source, plain};
use super::work::Work;
use crate::frame::{BitDepth, Geometry};

/// Smallest width and height; libvmaf reads outside of smaller pictures.
const MIN_SIZE: usize = 3;

/// The outer and the middle row of the filter of the reference, which is exact in any order.
pub const REFERENCE: [[f32; 3]; 2] =
    [[1.0 / 16.0, 2.0 / 16.0, 1.0 / 16.0], [2.0 / 16.0, 4.0 / 16.0, 2.0 / 16.0]];
/// The rows of the filter of the distorted picture from the outer one to the middle.
pub const DISTORTED: [[f32; 5]; 3] = [
    [2.0 / 571.0, 7.0 / 571.0, 12.0 / 571.0, 7.0 / 571.0, 2.0 / 571.0],
    [7.0 / 571.0, 31.0 / 571.0, 52.0 / 571.0, 31.0 / 571.0, 7.0 / 571.0],
    [12.0 / 571.0, 52.0 / 571.0, 127.0 / 571.0, 52.0 / 571.0, 12.0 / 571.0],
];

/// `float_ansnr`, which has no options.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AnsnrOptions;

/// The work, of which there is only one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnsnrWork;

/// Signal and noise of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnsnrSums {
    pub signal: f32,
    pub noise: f32,
}

/// Returns the largest score in dB.
fn limit(depth: BitDepth) -> f64 {
    f64::from(6 * depth.bits() + 12)
}

impl AnsnrSums {
    /// Computes `float_ansnr` in dB.
    fn ratio(&self, depth: BitDepth) -> f64 {
        if self.noise == 0.0 { limit(depth) } else { 10.0 * f64::from(self.signal / self.noise).log10() }
    }

    /// Computes `float_anpsnr` in dB.
    fn peak_ratio(&self, Geometry { width, height, depth, .. }: Geometry) -> f64 {
        let peak = f64::from(depth.max()) * f64::from(depth.unit());
        let noise = f64::from(self.noise).max(1e-10);
        (10.0 * (peak * peak * width as f64 * height as f64 / noise).log10()).min(limit(depth))
    }
}

/// The ratio of signal to noise behind a low pass.
pub struct Ansnr;

impl Metric for Ansnr {
    const NAME: &'static str = "float_ansnr";
    type Work = AnsnrWork;
    type Sums = AnsnrSums;

    fn check(_work: &AnsnrWork, geometry: Geometry) -> Result<(), Misfit> {
        Misfit::at_least("float_ansnr", MIN_SIZE, geometry)
    }
}

impl Options for AnsnrOptions {
    const EXTRACTOR: &'static str = "float_ansnr";
    const TABLE: &'static [Row<Self>] = &[];
}

/// Identifies a feature of [`AnsnrOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsnrOutput {
    Ansnr,
    Anpsnr,
}

impl Extract for AnsnrOptions {
    type Output = AnsnrOutput;
    const FEATURES: &'static [(&'static str, AnsnrOutput)] =
        &[("float_ansnr", AnsnrOutput::Ansnr), ("float_anpsnr", AnsnrOutput::Anpsnr)];
    const ABOUT: &'static [About] = &[About {
        reported: "`float_ansnr`, `float_anpsnr`",
        tells: "luma behind a low pass, relative to its error; the same with the peak in place of the signal",
        range: "dB; `float_anpsnr` up to 6 times the bits plus 12",
        equal: "depends on detail; 60 (8 bits) where there is none",
        source: "",
    }];

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        work.set::<Ansnr>(AnsnrWork);
        Ok(Box::new(AnsnrSource))
    }
}

#[derive(Debug)]
struct AnsnrSource;

impl Source for AnsnrSource {
    fn scorer(&self, geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        Ok(plain(move |sums| {
            let sums = sums.get::<Ansnr>();
            let value = |sums: &AnsnrSums, output| match output {
                AnsnrOutput::Ansnr => sums.ratio(geometry.depth),
                AnsnrOutput::Anpsnr => sums.peak_ratio(geometry),
            };
            AnsnrOptions::values(|output| sums.map_or(f64::NAN, |sums| value(sums, output)))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_noise_the_score_is_the_limit_of_the_depth() {
        let quiet = AnsnrSums { signal: 3.0, noise: 0.0 };
        for (bits, limit) in [(8, 60.0), (10, 72.0), (12, 84.0), (16, 108.0)] {
            let depth = BitDepth::new(bits).unwrap();
            let geometry = Geometry { width: 4, height: 3, depth, chroma: None };
            assert_eq!((quiet.ratio(depth), quiet.peak_ratio(geometry)), (limit, limit));
        }
    }

    #[test]
    fn ratios_are_those_of_signal_and_peak_to_noise() {
        let depth = BitDepth::new(8).unwrap();
        let sums = AnsnrSums { signal: 5000.0, noise: 50.0 };
        assert_eq!(sums.ratio(depth), 20.0);
        // 255^2 x 100 / 65025 = 100
        let sums = AnsnrSums { noise: 65025.0, ..sums };
        assert_eq!(sums.peak_ratio(Geometry { width: 20, height: 5, depth, chroma: None }), 20.0);
        assert_eq!(AnsnrSums { signal: 0.0, noise: 1.0 }.ratio(depth), f64::NEG_INFINITY);
    }
}
