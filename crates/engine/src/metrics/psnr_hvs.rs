// SPDX-License-Identifier: MPL-2.0

//! PSNR-HVS-M: squared error of DCT coefficients, weighted by contrast sensitivity and reduced by masking.
//!
//! Formulas and tables are those of libvmaf 3.2.0's `psnr_hvs` (BSD-2-Clause-Patent), which has them from Daala
//! (Xiph.Org, BSD-2-Clause).

use super::extractor::{About, Extract};
use super::metric::{Metric, Misfit};
use super::options::{Options, Row};
use super::score::{OptionsError, Scorer, Source, plain};
use super::work::Work;
use crate::frame::Geometry;

/// Width and height of a block.
pub const BLOCK: usize = 8;
/// Distance of blocks in samples: they overlap by one.
pub const STEP: usize = 7;
/// Highest bit depth: with more, squared coefficients exceed 32 bits.
pub const MAX_BITS: u32 = 12;

/// Contrast sensitivity of a plane, for each coefficient by vertical and horizontal frequency.
#[derive(Debug)]
pub struct Tables {
    /// Factors of the errors.
    pub csf: [[f32; BLOCK]; BLOCK],
    /// Factors of the squared coefficients in the masking strength.
    pub mask: [[f32; BLOCK]; BLOCK],
}

impl Tables {
    /// Expands the rows of the upper triangle of a symmetric table.
    const fn new(triangle: [&[f32]; BLOCK]) -> Self {
        let (mut csf, mut mask) = ([[0.0; BLOCK]; BLOCK], [[0.0; BLOCK]; BLOCK]);
        let mut at = 0;
        while at < BLOCK * BLOCK {
            let (i, j) = (at / BLOCK, at % BLOCK);
            let weight = if i < j { triangle[i][j - i] } else { triangle[j][i - j] };
            csf[i][j] = weight;
            let scaled = weight as f64 * 0.3885746225901003;
            mask[i][j] = (scaled * scaled) as f32;
            at += 1;
        }
        Self { csf, mask }
    }
}

/// The tables of Y, Cb and Cr. Those of chroma are made for 4:2:0 and used for every format.
#[rustfmt::skip]
#[allow(clippy::excessive_precision, reason = "as published")]
pub static TABLES: [Tables; 3] = [
    Tables::new([
        &[1.6193873005, 2.2901594831, 2.08509755623, 1.48366094411,
          1.00227514334, 0.678296995242, 0.466224900598, 0.3265091542],
        &[1.94321815382, 2.04793073064, 1.68731108984, 1.2305666963, 0.868920337363, 0.61280991668, 0.436405793551],
        &[1.34329019223, 1.09205635862, 0.875748795257, 0.670882927016, 0.501731932449, 0.372504254596],
        &[0.772819797575, 0.605636379554, 0.48309405692, 0.380429446972, 0.295774038565],
        &[0.448996256676, 0.352889268808, 0.283006984131, 0.226951348204],
        &[0.27032073436, 0.215017739696, 0.17408067321],
        &[0.168869545842, 0.136153931001],
        &[0.109083846276],
    ]),
    Tables::new([
        &[1.91113096927, 2.46074210438, 1.18284184739, 1.14982565193,
          1.05017074788, 0.898018824055, 0.74725392039, 0.615105596242],
        &[1.58529308355, 1.21363250036, 1.38190029285, 1.33100189972, 1.17428548929, 0.996404342439, 0.830890433625],
        &[0.978712413627, 1.02624506078, 1.03145147362, 0.960060382087, 0.849823426169, 0.731221236837],
        &[0.861317501629, 0.801821139099, 0.751437590932, 0.685398513368, 0.608694761374],
        &[0.676555426187, 0.605503172737, 0.55002013668, 0.495804539034],
        &[0.514674450957, 0.454353482512, 0.407050308965],
        &[0.389234902883, 0.342353999733],
        &[0.295530605237],
    ]),
    Tables::new([
        &[2.03871978502, 2.62502345193, 1.26180942886, 1.11019789803,
          1.01397751469, 0.867069376285, 0.721500455585, 0.593906509971],
        &[1.69112867013, 1.17180569821, 1.3342742857, 1.28513006198, 1.13381474809, 0.962064122248, 0.802254508198],
        &[0.944981930573, 0.990876405848, 0.995903384143, 0.926972725286, 0.820534991409, 0.706020324706],
        &[0.831632933426, 0.77418706195, 0.725539939514, 0.661776842059, 0.587716619023],
        &[0.653238524286, 0.584635025748, 0.531064164893, 0.478717061273],
        &[0.496936637883, 0.438694579826, 0.393021669543],
        &[0.375820256136, 0.330555063063],
        &[0.285345396658],
    ]),
];

/// `psnr_hvs` has no options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PsnrHvsOptions;

/// For Y, Cb and Cr, the bits of the single precision sum of all errors. Errors are added block by block in raster
/// order, and within a block coefficient by coefficient. Another order would change the sum and the score.
pub type PsnrHvsSums = [u32; 3];

/// Scores in dB; infinite for equal pictures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PsnrHvsScores {
    /// All planes together, luma with a weight of 0.8.
    pub all: f64,
    /// Y, Cb and Cr.
    pub planes: [f64; 3],
}

/// Returns the number of blocks along a side of `extent` samples.
pub fn blocks(extent: usize) -> usize {
    extent.checked_sub(BLOCK).map_or(0, |rest| rest / STEP + 1)
}

/// Computes the scores of a frame of this geometry, which has chroma.
pub fn scores(sums: PsnrHvsSums, geometry: Geometry) -> PsnrHvsScores {
    let luma = (geometry.width, geometry.height);
    let chroma = geometry.without_half_samples().chroma.unwrap_or_default();
    let peak = geometry.depth.max();
    let mut means = [0.0; 3];
    for ((mean, sum), (width, height)) in means.iter_mut().zip(sums).zip([luma, chroma, chroma]) {
        let terms = BLOCK * BLOCK * blocks(width) * blocks(height);
        *mean = f64::from((f32::from_bits(sum) / terms as f32) / (peak * peak) as f32);
    }
    let decibels = |mean: f64| 10.0 * -mean.log10();
    let [y, cb, cr] = means;
    PsnrHvsScores { all: decibels(y * 0.8 + 0.1 * (cb + cr)), planes: means.map(decibels) }
}

/// PSNR-HVS-M.
pub struct PsnrHvs;

/// The pixel work; it has no parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsnrHvsWork;

impl Metric for PsnrHvs {
    const NAME: &'static str = "psnr_hvs";
    type Work = PsnrHvsWork;
    type Sums = PsnrHvsSums;

    fn chroma(_work: &PsnrHvsWork) -> bool {
        true
    }

    fn check(_work: &PsnrHvsWork, geometry: Geometry) -> Result<(), Misfit> {
        let metric = "PSNR-HVS";
        let chroma = geometry.chroma.filter(|(width, height)| width.min(height) > &0);
        let (width, height) = chroma.ok_or(Misfit::NoChroma { metric })?;
        let subsampled = width < geometry.width || height < geometry.height;
        Misfit::too_small(width.min(height) < BLOCK, metric, BLOCK << u32::from(subsampled), geometry)?;
        match geometry.depth.bits() {
            bits if bits > MAX_BITS => Err(Misfit::TooDeep { metric, max: MAX_BITS, bits }),
            _ => Ok(()),
        }
    }
}

impl Options for PsnrHvsOptions {
    const EXTRACTOR: &'static str = "psnr_hvs";
    const TABLE: &'static [Row<Self>] = &[];
}

impl Extract for PsnrHvsOptions {
    /// Y, Cb or Cr, or `None` for all of them.
    type Output = Option<usize>;
    const FEATURES: &'static [(&'static str, Option<usize>)] =
        &[("psnr_hvs_y", Some(0)), ("psnr_hvs_cb", Some(1)), ("psnr_hvs_cr", Some(2)), ("psnr_hvs", None)];
    const ABOUT: &'static [About] = &[About {
        reported: "`psnr_hvs_y`, `_cb`, `_cr`, `psnr_hvs`",
        tells: "error of 8x8 cosine transforms, weighted and masked as the eye does; up to 12 bits",
        range: "dB",
        equal: "infinite",
        source: "N. Ponomarenko et al., VPQM 2007",
    }];

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        work.set::<PsnrHvs>(PsnrHvsWork);
        Ok(Box::new(PsnrHvsSource))
    }
}

#[derive(Clone, Copy, Debug)]
struct PsnrHvsSource;

impl Source for PsnrHvsSource {
    fn scorer(&self, geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        Ok(plain(move |sums| {
            let scores = sums.get::<PsnrHvs>().map(|sums| scores(*sums, geometry));
            let value = |scores: PsnrHvsScores, plane: Option<usize>| match plane {
                Some(plane) => scores.planes[plane],
                None => scores.all,
            };
            PsnrHvsOptions::values(|plane| scores.map_or(f64::NAN, |scores| value(scores, plane)))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::BitDepth;

    #[test]
    fn blocks_overlap_by_a_sample_and_fit() {
        assert_eq!([7, 8, 14, 15, 22, 1920].map(blocks), [0, 1, 1, 2, 3, 274]);
    }

    #[test]
    fn tables_are_symmetric() {
        for tables in &TABLES {
            for (i, j) in (0..BLOCK).flat_map(|i| (0..BLOCK).map(move |j| (i, j))) {
                assert_eq!(tables.csf[i][j], tables.csf[j][i]);
                assert!(tables.csf[i][j] > 0.1 && tables.mask[i][j] > 0.0);
            }
        }
    }

    #[test]
    fn scores_are_peak_over_mean_error() {
        let geometry =
            Geometry { width: 16, height: 16, depth: BitDepth::new(8).unwrap(), chroma: Some((8, 8)) };
        // One hundredth of the squared peak for each term: four blocks of luma and one of each chroma plane.
        let sum = |blocks: f32| (blocks * 64.0 * 650.25).to_bits();
        let found = scores([sum(4.0), sum(1.0), sum(1.0)], geometry);
        assert!((found.all - 20.0).abs() < 1e-6 && found.planes.iter().all(|p| (p - 20.0).abs() < 1e-6));
        assert_eq!(scores([0; 3], geometry).all, f64::INFINITY);
    }
}
