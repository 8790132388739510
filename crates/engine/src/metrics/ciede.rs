// SPDX-License-Identifier: MPL-2.0

//! Mean colour difference after CIEDE2000.
//!
//! The formula is that of libvmaf 3.2.0's `ciede` (BSD-2-Clause-Patent). libvmaf's score is undefined in two cases,
//! because it reads chroma outside the picture. With odd sizes, the last chroma sample is repeated here. In 4:2:2, each
//! luma sample gets the chroma at its place.

use super::extractor::{About, Extract};
use super::fixed::FixedSum;
use super::metric::{Metric, Misfit};
use super::options::{Options, Row};
use super::score::{OptionsError, Scorer, Source, plain};
use super::work::Work;
use crate::frame::{BitDepth, Geometry};

/// `ciede` has no options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CiedeOptions;

/// Converts samples of limited range into fractions.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Luma of black, and the reciprocal of the number of steps from black to white.
    pub black: f64,
    pub luma: f64,
    /// Chroma of grey, and the reciprocal of the number of steps between the chroma extremes.
    pub grey: f64,
    pub chroma: f64,
}

impl Range {
    pub fn new(depth: BitDepth) -> Self {
        let step = f64::from(1u32 << (depth.bits() - 8));
        Self {
            black: 16.0 * step,
            luma: 1.0 / (219.0 * step),
            grey: 128.0 * step,
            chroma: 1.0 / (224.0 * step),
        }
    }
}

/// Differences are below `2^MAGNITUDE`.
const MAGNITUDE: u32 = 10;

/// Returns the fixed-point format in which the differences of a frame are summed.
pub fn fixed_sum(geometry: Geometry) -> FixedSum {
    FixedSum::new(geometry.width * geometry.height, MAGNITUDE)
}

/// Computes the score of a frame from the sum of its differences; infinite for equal pictures.
pub fn score(sum: u64, geometry: Geometry) -> f64 {
    45.0 - 20.0 * fixed_sum(geometry).mean(sum).log10()
}

/// CIEDE2000.
pub struct Ciede;

/// The pixel work; it has no parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CiedeWork;

impl Metric for Ciede {
    const NAME: &'static str = "ciede";
    type Work = CiedeWork;
    /// The colour differences as summed by [`FixedSum`].
    type Sums = u64;

    fn chroma(_work: &CiedeWork) -> bool {
        true
    }

    fn check(_work: &CiedeWork, geometry: Geometry) -> Result<(), Misfit> {
        match geometry.chroma {
            Some((width, height)) if width.min(height) > 0 => Ok(()),
            _ => Err(Misfit::NoChroma { metric: "CIEDE2000" }),
        }
    }
}

impl Options for CiedeOptions {
    const EXTRACTOR: &'static str = "ciede";
    const TABLE: &'static [Row<Self>] = &[];
}

impl Extract for CiedeOptions {
    type Output = ();
    const FEATURES: &'static [(&'static str, ())] = &[("ciede2000", ())];
    const ABOUT: &'static [About] = &[About {
        reported: "`ciede2000`",
        tells: "difference in colour as 45 - 20 log10 of the mean CIEDE2000",
        range: "dB-like, larger is better",
        equal: "infinite",
        source: "G. Sharma et al., Color Research & Application 2005",
    }];

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        work.set::<Ciede>(CiedeWork);
        Ok(Box::new(CiedeSource))
    }
}

#[derive(Clone, Copy, Debug)]
struct CiedeSource;

impl Source for CiedeSource {
    fn scorer(&self, geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        Ok(plain(move |sums| vec![sums.get::<Ciede>().map_or(f64::NAN, |sum| score(*sum, geometry))]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_fall_by_twenty_for_ten_times_the_difference() {
        let geometry =
            Geometry { width: 9, height: 7, depth: BitDepth::new(8).unwrap(), chroma: Some((4, 3)) };
        let of = |difference: f64| {
            let bits = (difference + fixed_sum(geometry).bias()).to_bits();
            score(bits.wrapping_mul(63), geometry)
        };
        assert_eq!([of(1.0), of(10.0), of(100.0)], [45.0, 25.0, 5.0]);
        assert_eq!(of(0.0), f64::INFINITY);
    }
}
