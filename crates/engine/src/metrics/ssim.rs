// SPDX-License-Identifier: MPL-2.0

//! Structural similarity on one scale and on five: options, tables, and the formulas from sums to scores.
//!
//! Formulas and constants are those of libvmaf 3.2.0's `float_ssim` and `float_ms_ssim` (BSD-2-Clause-Patent), whose
//! filters come from the reference implementation of Wang, Simoncelli and Bovik.

use super::extractor::{About, Extract};
use super::fixed::FixedSum;
use super::metric::{Metric, Misfit};
use super::options::{Options, Row, bool, number};
use super::score::{OptionsError, Scorer, Source, plain};
use super::work::{Work, place};
use crate::frame::Geometry;

/// Width and height of the window. It is applied only where it fits into the picture.
pub const WINDOW_SIZE: usize = 11;

/// Taps of the window, the same in both directions.
pub const WINDOW: [f32; WINDOW_SIZE] = [
    0.001028, 0.007599, 0.036001, 0.109361, 0.213006, 0.266012, 0.213006, 0.109361, 0.036001, 0.007599,
    0.001028,
];

/// Width and height of the filter between the scales of MS-SSIM.
pub const LOW_PASS_SIZE: usize = 9;

/// The filter between the scales of MS-SSIM. Rounding makes it inseparable.
pub const LOW_PASS: [[f32; LOW_PASS_SIZE]; LOW_PASS_SIZE] = {
    // The upper left quarter including the middle row and column.
    let quarter = [
        [0.000714, -0.000450, -0.002090, 0.007132, 0.016114],
        [-0.000450, 0.000283, 0.001316, -0.004490, -0.010146],
        [-0.002090, 0.001316, 0.006115, -0.020867, -0.047149],
        [0.007132, -0.004490, -0.020867, 0.071207, 0.160885],
        [0.016114, -0.010146, -0.047149, 0.160885, 0.363505],
    ];
    let mut taps = [[0.0; LOW_PASS_SIZE]; LOW_PASS_SIZE];
    let mut i = 0;
    while i < LOW_PASS_SIZE * LOW_PASS_SIZE {
        let (v, u) = (i / LOW_PASS_SIZE, i % LOW_PASS_SIZE);
        taps[v][u] = quarter[if v < 5 { v } else { 8 - v }][if u < 5 { u } else { 8 - u }];
        i += 1;
    }
    taps
};

/// Keeps the luminance term finite: `(0.01 L)^2` for the range `L` = 255, to which samples of any depth are scaled.
pub const C1: f32 = (0.01f32 * 255.0) * (0.01f32 * 255.0);
/// Keeps the contrast term finite: `(0.03 L)^2`.
pub const C2: f32 = (0.03f32 * 255.0) * (0.03f32 * 255.0);
/// Keeps the structure term finite.
pub const C3: f32 = C2 / 2.0;

/// Scales of MS-SSIM.
pub const SCALES: usize = 5;
/// Smallest width and height for MS-SSIM, at which the window fits into the last scale.
pub const MULTI_SCALE_MIN_SIZE: usize = WINDOW_SIZE << (SCALES - 1);
/// Exponents of the luminance term.
const LUMINANCE: [f32; SCALES] = [0.0, 0.0, 0.0, 0.0, 0.1333];
/// Exponents of the contrast and of the structure term.
const CONTRAST: [f32; SCALES] = [0.0448, 0.2856, 0.3001, 0.2363, 0.1333];

/// Options of libvmaf's `float_ssim`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SsimOptions {
    /// `enable_lcs`: also reports the means of the luminance, contrast and structure terms.
    pub enable_lcs: bool,
    /// `enable_db`: reports the score in dB.
    pub enable_db: bool,
    /// `clip_db`: limits the score in dB to the largest possible one for this size and depth.
    pub clip_db: bool,
    /// `scale`: decimation factor of the pictures, 1..=10; 0 chooses it by their size.
    pub scale: u32,
}

/// Options of libvmaf's `float_ms_ssim`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsSsimOptions {
    /// `enable_lcs`: also reports the means of the luminance, contrast and structure terms of each scale.
    pub enable_lcs: bool,
    /// `enable_db`: reports the score in dB.
    pub enable_db: bool,
    /// `clip_db`: limits the score in dB to the largest possible one for this size and depth.
    pub clip_db: bool,
}

/// A score and the means of its luminance, contrast and structure terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SsimScores {
    pub score: f64,
    pub lcs: [f64; 3],
}

/// A score and the means of the luminance, contrast and structure terms of each scale. Without `enable_lcs`, luminance
/// means that the score does not depend on are `NaN`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MsSsimScores {
    pub score: f64,
    pub lcs: [[f64; 3]; SCALES],
}

impl SsimOptions {
    /// Computes the scores of a frame from the sums of its decimated pictures.
    pub fn scores(&self, sums: &MapSums, geometry: Geometry) -> SsimScores {
        let size = decimated(geometry.width, geometry.height, factor(self.scale, geometry));
        let [ssim, lcs @ ..] = means(sums, size);
        let score = if self.enable_db { decibels(ssim, self.clip_db, geometry) } else { ssim };
        SsimScores { score, lcs }
    }
}

impl MsSsimOptions {
    /// Computes the scores of a frame from the sums of its scales.
    pub fn scores(&self, sums: &[MapSums; SCALES], geometry: Geometry) -> MsSsimScores {
        let mut size = (geometry.width, geometry.height);
        let mut score = 1.0;
        let mut all = [[0.0; 3]; SCALES];
        for (scale, sums) in sums.iter().enumerate() {
            let [_, mut lcs @ ..] = means(sums, size);
            let [luminance, contrast] = [LUMINANCE, CONTRAST].map(|weights| f64::from(weights[scale]));
            if luminance == 0.0 && !self.enable_lcs {
                lcs[0] = f64::NAN;
            }
            // The power of 0 is 1 for any luminance, NaN included.
            score *= (lcs[0].powf(luminance) * lcs[1].powf(contrast)) * lcs[2].powf(contrast);
            all[scale] = lcs;
            size = decimated(size.0, size.1, 2);
        }
        if self.enable_db {
            score = decibels(score, self.clip_db, geometry);
        }
        MsSsimScores { score, lcs: all }
    }
}

/// Computes `-10 log10(1 - score)`; NaN becomes the limit.
fn decibels(score: f64, clip: bool, geometry: Geometry) -> f64 {
    let peak = f64::from(geometry.depth.max());
    let samples = (geometry.width * geometry.height) as f64;
    let limit = if clip { (10.0 * (peak * peak / (0.5 / samples)).log10()).ceil() } else { f64::INFINITY };
    let value = -10.0 * (1.0 - score).log10();
    if value < limit { value } else { limit }
}

/// Returns the decimation factor for the option `scale`: its value, or for 0 the factor to about 256 samples on the
/// shorter side.
pub fn factor(scale: u32, geometry: Geometry) -> usize {
    match scale {
        0 => ((geometry.width.min(geometry.height) as f32 / 256.0 + 0.5) as usize).max(1),
        scale => scale as usize,
    }
}

/// Returns the size of a picture after decimation. Odd sizes get one more sample than whole steps, even if it lies
/// beyond the edge.
pub fn decimated(width: usize, height: usize, factor: usize) -> (usize, usize) {
    let extent = |n: usize| if factor == 1 { n } else { n / factor + n % 2 };
    (extent(width), extent(height))
}

/// Returns the index of a sample outside `n` samples: the edge is mirrored and repeated.
pub fn mirror(i: isize, n: usize) -> usize {
    let i = if i < 0 { (-1 - i) as usize } else { i as usize };
    if i < n { i } else { (2 * n - 1).saturating_sub(i) }
}

/// Returns the factor that scales samples of a depth to the range of 8 bits; exact.
pub fn unit(geometry: Geometry) -> f32 {
    1.0 / (1u32 << (geometry.depth.bits() - 8)) as f32
}

/// The pixel work for each frame pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SsimWork {
    /// Distinct values of the option `scale` of SSIM.
    pub scales: Vec<u32>,
    /// MS-SSIM is requested.
    pub multi_scale: bool,
    /// The luminance term of all scales of MS-SSIM is requested, not only of those that its score depends on.
    pub every_luminance: bool,
}

impl SsimWork {
    /// Returns true if all sums of a scale of MS-SSIM are needed, not only contrast and structure. SSIM with factor 1
    /// also reads scale 0.
    pub fn all_terms(&self, scale: usize, geometry: Geometry) -> bool {
        let plain = || self.scales.iter().any(|scale| factor(*scale, geometry) == 1);
        self.every_luminance || LUMINANCE[scale] > 0.0 || (scale == 0 && plain())
    }
}

/// The sums of SSIM and of its luminance, contrast and structure terms over all window positions in one picture pair,
/// as summed by [`FixedSum`]. The first two are 0 unless they are requested.
pub type MapSums = [u64; 4];

/// The sums of one frame pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SsimSums {
    /// One per scale of [`SsimWork`], in its order.
    pub scales: Vec<MapSums>,
    /// The five scales of MS-SSIM.
    pub multi_scale: Option<[MapSums; SCALES]>,
}

/// Terms are below `2^MAGNITUDE`.
const MAGNITUDE: u32 = 1;

/// Returns the fixed-point format in which the terms of a picture pair of this size are summed.
pub fn fixed_sum((width, height): (usize, usize)) -> FixedSum {
    FixedSum::new((width - (WINDOW_SIZE - 1)) * (height - (WINDOW_SIZE - 1)), MAGNITUDE)
}

/// Computes the means of the terms of a picture pair of this size, each rounded to single precision.
fn means(sums: &MapSums, size: (usize, usize)) -> [f64; 4] {
    sums.map(|sum| f64::from(fixed_sum(size).mean(sum) as f32))
}

/// Structural similarity on one scale and on five. The work that both share is done once.
pub struct Ssim;

impl Metric for Ssim {
    const NAME: &'static str = "ssim";
    type Work = SsimWork;
    type Sums = SsimSums;

    fn check(work: &SsimWork, geometry: Geometry) -> Result<(), Misfit> {
        for scale in &work.scales {
            let factor = factor(*scale, geometry);
            let (width, height) = decimated(geometry.width, geometry.height, factor);
            Misfit::too_small(width.min(height) < WINDOW_SIZE, "SSIM", WINDOW_SIZE * factor, geometry)?;
        }
        if work.multi_scale { Misfit::at_least("MS-SSIM", MULTI_SCALE_MIN_SIZE, geometry) } else { Ok(()) }
    }
}

impl Options for SsimOptions {
    const EXTRACTOR: &'static str = "float_ssim";
    const TABLE: &'static [Row<Self>] = &[
        bool("clip_db", None, |o| &mut o.clip_db),
        bool("enable_db", None, |o| &mut o.enable_db),
        bool("enable_lcs", None, |o| &mut o.enable_lcs),
        number!("scale", None, scale, 0..=10),
    ];
}

impl Extract for SsimOptions {
    /// The luminance, contrast or structure term (0..=2), or `None` for the score.
    type Output = Option<usize>;
    const FEATURES: &'static [(&'static str, Option<usize>)] = &[
        ("float_ssim", None),
        ("float_ssim_l", Some(0)),
        ("float_ssim_c", Some(1)),
        ("float_ssim_s", Some(2)),
    ];
    const ABOUT: &'static [About] = &[About {
        reported: "`float_ssim`; with `enable_lcs=true` its three terms",
        tells: "luminance, contrast and structure of luma, at about 256 lines",
        range: "-1 to 1",
        equal: "1",
        source: "Z. Wang et al., IEEE Trans. Image Processing 2004",
    }];

    fn lacks(&self, term: Option<usize>) -> Option<&'static str> {
        (term.is_some() && !self.enable_lcs).then_some("enable_lcs")
    }

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        let scale = work.extend::<Ssim, _>(SsimWork::default(), |work| place(&mut work.scales, self.scale));
        Ok(Box::new(SsimSource { options: *self, scale }))
    }
}

/// `scale`: index in [`SsimWork::scales`].
#[derive(Clone, Copy, Debug)]
struct SsimSource {
    options: SsimOptions,
    scale: usize,
}

impl Source for SsimSource {
    fn scorer(&self, geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        let Self { options, scale } = *self;
        Ok(plain(move |sums| {
            let sums = sums.get::<Ssim>().and_then(|sums| sums.scales.get(scale));
            let scores = sums.map(|sums| options.scores(sums, geometry));
            let value = |scores: SsimScores, term| match term {
                Some(term) => scores.lcs[term],
                None => scores.score,
            };
            SsimOptions::values(|term: Option<usize>| scores.map_or(f64::NAN, |scores| value(scores, term)))
        }))
    }
}

impl Options for MsSsimOptions {
    const EXTRACTOR: &'static str = "float_ms_ssim";
    const TABLE: &'static [Row<Self>] = &[
        bool("clip_db", None, |o| &mut o.clip_db),
        bool("enable_db", None, |o| &mut o.enable_db),
        bool("enable_lcs", None, |o| &mut o.enable_lcs),
    ];
}

/// Identifies a feature of [`MsSsimOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MsSsimOutput {
    Score,
    /// The mean of the luminance, contrast or structure term (0..=2) of a scale (0..=4).
    Term(usize, usize),
}

impl Extract for MsSsimOptions {
    type Output = MsSsimOutput;
    const FEATURES: &'static [(&'static str, MsSsimOutput)] = &[
        ("float_ms_ssim", MsSsimOutput::Score),
        ("float_ms_ssim_l_scale0", MsSsimOutput::Term(0, 0)),
        ("float_ms_ssim_l_scale1", MsSsimOutput::Term(0, 1)),
        ("float_ms_ssim_l_scale2", MsSsimOutput::Term(0, 2)),
        ("float_ms_ssim_l_scale3", MsSsimOutput::Term(0, 3)),
        ("float_ms_ssim_l_scale4", MsSsimOutput::Term(0, 4)),
        ("float_ms_ssim_c_scale0", MsSsimOutput::Term(1, 0)),
        ("float_ms_ssim_c_scale1", MsSsimOutput::Term(1, 1)),
        ("float_ms_ssim_c_scale2", MsSsimOutput::Term(1, 2)),
        ("float_ms_ssim_c_scale3", MsSsimOutput::Term(1, 3)),
        ("float_ms_ssim_c_scale4", MsSsimOutput::Term(1, 4)),
        ("float_ms_ssim_s_scale0", MsSsimOutput::Term(2, 0)),
        ("float_ms_ssim_s_scale1", MsSsimOutput::Term(2, 1)),
        ("float_ms_ssim_s_scale2", MsSsimOutput::Term(2, 2)),
        ("float_ms_ssim_s_scale3", MsSsimOutput::Term(2, 3)),
        ("float_ms_ssim_s_scale4", MsSsimOutput::Term(2, 4)),
    ];
    const ABOUT: &'static [About] = &[About {
        reported: "`float_ms_ssim` and terms",
        tells: "the same over five scales; frames of at least 176x176",
        range: "0 to 1",
        equal: "1",
        source: "Z. Wang et al., Asilomar 2003",
    }];

    fn lacks(&self, output: MsSsimOutput) -> Option<&'static str> {
        (output != MsSsimOutput::Score && !self.enable_lcs).then_some("enable_lcs")
    }

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        work.extend::<Ssim, _>(SsimWork::default(), |work| {
            work.multi_scale = true;
            work.every_luminance |= self.enable_lcs;
        });
        Ok(Box::new(MsSsimSource(*self)))
    }
}

#[derive(Clone, Copy, Debug)]
struct MsSsimSource(MsSsimOptions);

impl Source for MsSsimSource {
    fn scorer(&self, geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        let Self(options) = *self;
        Ok(plain(move |sums| {
            let sums = sums.get::<Ssim>().and_then(|sums| sums.multi_scale.as_ref());
            let scores = sums.map(|sums| options.scores(sums, geometry));
            let value = |scores: MsSsimScores, output| match output {
                MsSsimOutput::Score => scores.score,
                MsSsimOutput::Term(term, scale) => scores.lcs[scale][term],
            };
            MsSsimOptions::values(|output| scores.map_or(f64::NAN, |scores| value(scores, output)))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::BitDepth;

    fn geometry(width: usize, height: usize) -> Geometry {
        Geometry { width, height, depth: BitDepth::new(8).unwrap(), chroma: None }
    }

    /// Returns the sums of a picture pair whose terms are the same everywhere.
    fn sums(terms: [f64; 4], (width, height): (usize, usize)) -> MapSums {
        let (places, bias) = ((width - 10) * (height - 10), fixed_sum((width, height)).bias());
        terms.map(|term| (places as u64).wrapping_mul((term + bias).to_bits()))
    }

    #[test]
    fn automatic_factors_are_those_of_libvmaf() {
        let sizes = [(11, 11), (640, 383), (640, 384), (1280, 639), (1280, 720), (1920, 1080), (3840, 2160)];
        assert_eq!(sizes.map(|(w, h)| factor(0, geometry(w, h))), [1, 1, 2, 2, 3, 4, 8]);
        assert_eq!(factor(7, geometry(1920, 1080)), 7);
    }

    #[test]
    fn odd_extents_keep_their_end() {
        assert_eq!(decimated(577, 324, 2), (289, 162));
        assert_eq!(decimated(575, 323, 3), (192, 108));
        assert_eq!(decimated(575, 323, 1), (575, 323));
    }

    #[test]
    fn like_pictures_score_one_or_the_limit_in_decibels() {
        let geometry = geometry(176, 176);
        let like = sums([1.0; 4], (176, 176));
        let plain = SsimOptions::default();
        assert_eq!(plain.scores(&like, geometry), SsimScores { score: 1.0, lcs: [1.0; 3] });
        let db = SsimOptions { enable_db: true, ..plain };
        assert_eq!(db.scores(&like, geometry).score, f64::INFINITY);
        // 10 log10(255^2 / (0.5 / 176^2)) = 96.05
        assert_eq!(SsimOptions { clip_db: true, ..db }.scores(&like, geometry).score, 97.0);
        let scale = |n: usize| sums([1.0; 4], (176 >> n, 176 >> n));
        let scales = std::array::from_fn(scale);
        assert_eq!(MsSsimOptions::default().scores(&scales, geometry).score, 1.0);
    }

    #[test]
    fn scales_are_weighted() {
        let geometry = geometry(176, 176);
        let scales = std::array::from_fn(|n| sums([0.5, 0.5, 0.5, 0.5], (176 >> n, 176 >> n)));
        // The exponents add up to 0.1333 + 2 x 1.0001.
        let expected = 0.5f64.powf(0.1333 + 2.0 * 1.0001);
        let found = MsSsimOptions::default().scores(&scales, geometry).score;
        assert!((found - expected).abs() < 1e-7, "{found}");
    }
}
