// SPDX-License-Identifier: MPL-2.0

//! Mean squared error and moments of luma, in floating point: `float_psnr` and `float_moment`.
//!
//! Formulas are those of libvmaf 3.2.0 (BSD-2-Clause-Patent). A sample of `bits` bits is divided by `2^(bits - 8)`. Squares
//! of samples and of differences are rounded to single precision, and added in double precision row by row, from the left.
//! The sums here are in units of samples; they have the same digits. All terms are integers, so that sums below 2^53 are
//! exact in any order. Larger ones, of pictures of 16 bits, depend on it.

use super::extractor::{About, Extract};
use super::metric::Metric;
use super::options::{Options, Row};
use super::score::{OptionsError, Scorer, Source, plain};
use super::work::Work;
use crate::frame::{BitDepth, Geometry};

/// The sums that are needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MomentWork {
    /// That of the squared differences.
    pub error: bool,
    /// Those of each picture.
    pub moments: bool,
}

/// Sums over the samples of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PictureMoments {
    pub first: f64,
    /// Of the squares.
    pub second: f64,
}

/// Sums of a pair; 0 where they are not needed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MomentSums {
    /// Of the squared differences.
    pub error: f64,
    pub reference: PictureMoments,
    pub distorted: PictureMoments,
}

/// Mean squared error and moments.
pub struct Moments;

impl Metric for Moments {
    const NAME: &'static str = "float_moment";
    type Work = MomentWork;
    type Sums = MomentSums;
}

impl Moments {
    /// Sums of squares below this are exact.
    pub const EXACT: f64 = (1u64 << 53) as f64;

    /// Returns true if all sums of pictures of this geometry are exact.
    pub fn is_exact(Geometry { width, height, depth, .. }: Geometry) -> bool {
        let square = f64::from(depth.max()).powi(2);
        (width * height) as f64 * square < Self::EXACT
    }
}

/// Divides a sum by the number of samples.
fn mean(sum: f64, Geometry { width, height, .. }: Geometry) -> f64 {
    sum / (width * height) as f64
}

/// `float_psnr`, which has no options.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FloatPsnrOptions;

impl FloatPsnrOptions {
    /// Computes the score in dB from the sum of squared differences.
    fn score(error: f64, geometry: Geometry) -> f64 {
        let depth: BitDepth = geometry.depth;
        let unit = f64::from(depth.unit());
        let peak = f64::from(depth.max()) * unit;
        let noise = mean(error * (unit * unit), geometry).max(1e-10);
        (10.0 * (peak * peak / noise).log10()).min(f64::from(6 * depth.bits() + 12))
    }
}

impl Options for FloatPsnrOptions {
    const EXTRACTOR: &'static str = "float_psnr";
    const TABLE: &'static [Row<Self>] = &[];
}

impl Extract for FloatPsnrOptions {
    type Output = ();
    const FEATURES: &'static [(&'static str, ())] = &[("float_psnr", ())];
    const ABOUT: &'static [About] = &[About {
        reported: "`float_psnr`",
        tells: "mean squared error of luma",
        range: "dB, up to 6 times the bits plus 12",
        equal: "60 (8 bits), 72 (10 bits)",
        source: "",
    }];

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        work.extend::<Moments, _>(MomentWork::default(), |work| work.error = true);
        Ok(Box::new(FloatPsnrSource))
    }
}

#[derive(Debug)]
struct FloatPsnrSource;

impl Source for FloatPsnrSource {
    fn scorer(&self, geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        let score = move |sums: &MomentSums| FloatPsnrOptions::score(sums.error, geometry);
        Ok(plain(move |sums| vec![sums.get::<Moments>().map_or(f64::NAN, score)]))
    }
}

/// `float_moment`, which has no options.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MomentOptions;

/// Identifies a feature of [`MomentOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MomentOutput {
    Reference1,
    Distorted1,
    Reference2,
    Distorted2,
}

impl MomentSums {
    /// Computes a feature.
    fn moment(&self, output: MomentOutput, geometry: Geometry) -> f64 {
        let unit = f64::from(geometry.depth.unit());
        let sum = match output {
            MomentOutput::Reference1 => self.reference.first * unit,
            MomentOutput::Distorted1 => self.distorted.first * unit,
            MomentOutput::Reference2 => self.reference.second * (unit * unit),
            MomentOutput::Distorted2 => self.distorted.second * (unit * unit),
        };
        mean(sum, geometry)
    }
}

impl Options for MomentOptions {
    const EXTRACTOR: &'static str = "float_moment";
    const TABLE: &'static [Row<Self>] = &[];
}

impl Extract for MomentOptions {
    type Output = MomentOutput;
    const FEATURES: &'static [(&'static str, MomentOutput)] = &[
        ("float_moment_ref1st", MomentOutput::Reference1),
        ("float_moment_dis1st", MomentOutput::Distorted1),
        ("float_moment_ref2nd", MomentOutput::Reference2),
        ("float_moment_dis2nd", MomentOutput::Distorted2),
    ];
    const ABOUT: &'static [About] = &[About {
        reported: "`float_moment_ref1st`, `_dis1st`, `_ref2nd`, `_dis2nd`",
        tells: "mean of the luma samples of each picture, in 8-bit steps, and of their squares",
        range: "0 to 256; 0 to 65536",
        equal: "those of the reference",
        source: "",
    }];

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        work.extend::<Moments, _>(MomentWork::default(), |work| work.moments = true);
        Ok(Box::new(MomentSource))
    }
}

#[derive(Debug)]
struct MomentSource;

impl Source for MomentSource {
    fn scorer(&self, geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        Ok(plain(move |sums| {
            let sums = sums.get::<Moments>();
            MomentOptions::values(|output| sums.map_or(f64::NAN, |sums| sums.moment(output, geometry)))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(width: usize, height: usize, bits: u32) -> Geometry {
        Geometry { width, height, depth: BitDepth::new(bits).unwrap(), chroma: None }
    }

    #[test]
    fn scores_are_in_steps_of_8_bits() {
        for bits in [8, 10, 12, 16] {
            let (unit, geometry) = (f64::from(1u32 << (bits - 8)), geometry(10, 10, bits));
            let peak = f64::from((1u32 << bits) - 1);
            assert_eq!(FloatPsnrOptions::score(peak * peak, geometry), 20.0);
            assert_eq!(FloatPsnrOptions::score(0.0, geometry), f64::from(6 * bits + 12));
            let sums = MomentSums {
                reference: PictureMoments { first: 300.0 * unit, second: 500.0 * unit * unit },
                ..Default::default()
            };
            let outputs = [MomentOutput::Reference1, MomentOutput::Reference2, MomentOutput::Distorted1];
            assert_eq!(outputs.map(|output| sums.moment(output, geometry)), [3.0, 5.0, 0.0]);
        }
    }

    #[test]
    fn only_large_pictures_of_many_bits_have_inexact_sums() {
        assert!(Moments::is_exact(geometry(7680, 4320, 12)));
        assert!(Moments::is_exact(geometry(1920, 1080, 16)));
        assert!(!Moments::is_exact(geometry(2048, 1088, 16)));
    }
}
