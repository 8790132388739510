// SPDX-License-Identifier: MPL-2.0

//! CAMBI, a measure of banding: options, tables, and the formulas from sums of contrast values to scores.
//!
//! Formulas and constants are those of libvmaf 3.2.0's `cambi` (BSD-2-Clause-Patent). All steps up to the contrast
//! values are integer arithmetic. Contrast values are multiples of 2^-24, so their sums are exact integers.

use std::sync::LazyLock;

use super::extractor::{About, Extract};
use super::metric::{Metric, Misfit};
use super::options::{Options, Row, bool, float, number};
use super::score::{OptionsError, Scorer, Source, plain};
use super::work::{Work, place};
use crate::frame::Geometry;

/// Scales of the analysis, each half the size of the one before.
pub const SCALES: usize = 5;
/// Weights of the scales.
const SCALE_WEIGHTS: [f64; SCALES] = [16.0, 8.0, 4.0, 2.0, 1.0];
/// Smallest length of the longer side, in pixels.
pub const MIN_SIDE: usize = 216;
/// Largest side of the square in which pixels are counted.
pub const MAX_WINDOW: usize = 65;
/// Range of luma at 10 bits.
const FOOT: i32 = 64;
const HEAD: i32 = 940;
const PEAK: i32 = 1023;
/// Weights of a contrast of 1, 2, … codes.
const CONTRAST_WEIGHTS: [i32; 32] =
    [1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];
/// Number of pixels from which `cambi_high_res_speedup` takes effect, by its value.
const SPEEDUP_PIXELS: [(u32, usize); 3] = [(1080, 1920 * 1080), (1440, 2560 * 1440), (2160, 3840 * 2160)];

/// `1 / i` for every number of pixels that a window can hold, and 0 for an empty one. libvmaf lists them with 9 decimal
/// digits, which rounds 42 of them differently.
pub static RECIPROCALS: LazyLock<[f32; MAX_WINDOW * MAX_WINDOW + 1]> = LazyLock::new(|| {
    std::array::from_fn(|i| match i {
        0 => 0.0,
        i => format!("{:.8e}", 1.0 / i as f64).parse().unwrap_or_default(),
    })
});

/// Transfer function from codes to luminance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eotf {
    /// ITU-R BT.1886, for standard dynamic range.
    #[default]
    Bt1886,
    /// SMPTE ST 2084.
    Pq,
}

impl Eotf {
    /// libvmaf's names.
    pub const NAMES: [&str; 2] = ["bt1886", "pq"];

    /// Returns libvmaf's name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Finds the function with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Bt1886, Self::Pq].into_iter().find(|eotf| eotf.name() == name)
    }

    /// Computes the luminance in cd/m² of a 10-bit luma code.
    fn luminance(self, code: i32) -> f64 {
        let t = f64::from(code.clamp(FOOT, HEAD) - FOOT) / f64::from(HEAD - FOOT);
        match self {
            // ITU-R BT.1886 with a white of 300 cd/m² and a black of 0.01.
            Self::Bt1886 => {
                let (gamma, white, black) = (2.4, 300f64.powf(1.0 / 2.4), 0.01f64.powf(1.0 / 2.4));
                (white - black).powf(gamma) * (t + black / (white - black)).max(0.0).powf(gamma)
            }
            // SMPTE ST 2084.
            Self::Pq => {
                let root = t.powf(1.0 / 78.84375);
                let ratio = (root - 0.8359375).max(0.0) / (18.8515625 - 18.6875 * root);
                10000.0 * ratio.powf(1.0 / 0.1593017578125)
            }
        }
    }

    /// Returns the largest code below the first one at which a step of `step` codes is invisible.
    fn visible_limit(self, step: i32, threshold: f64) -> i32 {
        let visible = |code| {
            let base = self.luminance(code);
            self.luminance(code + step) - base > threshold * base
        };
        let (mut low, mut high) = (FOOT, HEAD - step - 1);
        if !visible(low) {
            return 0;
        }
        if visible(high) {
            return if visible(high + 1) { PEAK } else { high };
        }
        // Bisects as libvmaf does, since steps may become visible again at higher codes.
        loop {
            let middle = low + (high - low) / 2;
            match (visible(middle), visible(middle + 1)) {
                (true, false) => return middle,
                (true, true) => low = middle,
                _ => high = middle,
            }
        }
    }

    /// Returns the smallest code with a luminance of at least `threshold`, 0 if all codes have it; `None` if none has.
    fn dark_limit(self, threshold: f64) -> Option<i32> {
        let limit = (FOOT..=HEAD).find(|code| self.luminance(*code) >= threshold)?;
        Some(if limit == FOOT { 0 } else { limit })
    }
}

/// Options of libvmaf's `cambi`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CambiOptions {
    /// `cambi_eotf`; wins over `eotf` unless it is [`Eotf::Bt1886`].
    pub cambi_eotf: Eotf,
    /// `cambi_high_res_speedup`: analyse half the size from pictures of 1080, 1440 or 2160 rows on. 0 for never.
    pub high_res_speedup: u32,
    /// `cambi_max_val`, 0.0..=1000.0: limit of the scores.
    pub max_val: f64,
    /// `cambi_topk`, 0.0001..=1.0; used while `topk` is at its default.
    pub cambi_topk: f64,
    /// `cambi_vis_lum_threshold`, 0.0..=300.0 cd/m²: banding in darker pixels is ignored.
    pub vis_lum_threshold: f64,
    /// `enc_bitdepth`, 6..=16: bit depth of the encoding, 0 for that of the samples.
    pub enc_bitdepth: u32,
    /// `enc_height`, 150..=7680: height of the encoding, 0 for the height of the picture.
    pub enc_height: u32,
    /// `enc_width`, 180..=7680: width of the encoding, 0 for the width of the picture.
    pub enc_width: u32,
    /// `eotf`.
    pub eotf: Eotf,
    /// `full_ref`: also `cambi_source` and `cambi_full_reference`.
    pub full_ref: bool,
    /// `max_log_contrast`, 0..=5: analyses steps of up to 2 to this power.
    pub max_log_contrast: u32,
    /// `src_height`, 200..=4320: height of the source, 0 for the height of the reference.
    pub src_height: u32,
    /// `src_width`, 320..=7680: width of the source, 0 for the width of the reference.
    pub src_width: u32,
    /// `topk`, 0.0001..=1.0: share of the pixels that counts, those with the most banding.
    pub topk: f64,
    /// `tvi_threshold`, 0.0001..=1.0: the smallest visible step, relative to the luminance.
    pub tvi_threshold: f64,
    /// `window_size`, 15..=127: side of the square in which pixels are counted, at 3840x2160.
    pub window_size: u32,
}

impl Default for CambiOptions {
    fn default() -> Self {
        Self {
            cambi_eotf: Eotf::Bt1886,
            high_res_speedup: 0,
            max_val: 1000.0,
            cambi_topk: 0.6,
            vis_lum_threshold: 0.0,
            enc_bitdepth: 0,
            enc_height: 0,
            enc_width: 0,
            eotf: Eotf::Bt1886,
            full_ref: false,
            max_log_contrast: 2,
            src_height: 0,
            src_width: 0,
            topk: 0.6,
            tvi_threshold: 0.019,
            window_size: 65,
        }
    }
}

impl CambiOptions {
    /// Returns the pixel work for these options. It depends on all of them but the limit of the scores.
    pub fn analysis(&self) -> CambiAnalysis {
        CambiAnalysis(Self { max_val: Self::default().max_val, ..*self })
    }
}

/// Reasons why frames have no CAMBI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CambiError {
    #[error("the CAMBI metric needs frames with a side of at least {MIN_SIDE}, these are {0}x{1}")]
    TooSmall(usize, usize),
    #[error("CAMBI cannot analyse frames of {0}x{1} with a window of {2}: they are too large for its size")]
    Window(usize, usize, usize),
    #[error("CAMBI cannot analyse frames of {0}x{1}: one side is too long for the other")]
    TooLong(usize, usize),
    #[error("the source size of the CAMBI options is larger than the encoded size in one direction only")]
    Sizes,
    #[error("the darkest luminance of the CAMBI options lies above every step that they make visible")]
    Dark,
}

/// The pixel work of one set of options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CambiAnalysis(CambiOptions);

/// How a step of a number of codes counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contrast {
    /// Only pixels above this code count, up to and including `up_to`.
    pub above: i32,
    pub up_to: i32,
    pub weight: i32,
}

/// One scale of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CambiScale {
    pub width: usize,
    pub height: usize,
    /// Number of the largest contrast values that count.
    pub top: usize,
}

/// The analysis of one picture.
#[derive(Clone, Debug, PartialEq)]
pub struct CambiPicture {
    /// Size of the 10-bit picture whose flat areas are found.
    pub width: usize,
    pub height: usize,
    /// A pixel is in a flat area if more than this many of the 7x7 pixels around it equal their neighbours.
    pub flat_limit: u32,
    /// Side of the square in which pixels are counted; odd.
    pub window: usize,
    pub scales: [CambiScale; SCALES],
}

/// [`CambiAnalysis`] for frames of one geometry.
#[derive(Clone, Debug, PartialEq)]
pub struct CambiPlan {
    pub distorted: CambiPicture,
    /// Present with [`CambiOptions::full_ref`].
    pub source: Option<CambiPicture>,
    /// Means of four pixels are taken first.
    pub anti_dither: bool,
    /// The first scale has half the picture's size.
    pub halved: bool,
    /// Steps of 1, 2, … codes.
    pub contrasts: Vec<Contrast>,
}

impl CambiPlan {
    /// Returns the range of codes that can have a contrast value: above the first, which is -1 or more, and up to the
    /// second.
    pub fn active(&self) -> (i32, i32) {
        let above = self.contrasts.iter().map(|contrast| contrast.above).min();
        let up_to = self.contrasts.iter().map(|contrast| contrast.up_to).max();
        (above.map_or(PEAK, |above| above.max(-1)), up_to.unwrap_or(0))
    }
}

impl CambiAnalysis {
    /// Plans the work for frames of a geometry.
    pub fn plan(&self, geometry: Geometry) -> Result<CambiPlan, CambiError> {
        let options = &self.0;
        let whole = (geometry.width, geometry.height);
        let given = |width: u32, height: u32| match (width as usize, height as usize) {
            (0, _) | (_, 0) => whole,
            size => size,
        };
        let mut encoded = given(options.enc_width, options.enc_height);
        if options.enc_width as usize > whole.0 || options.enc_height as usize > whole.1 {
            encoded = whole;
        }
        let source = given(options.src_width, options.src_height);
        for (width, height) in [encoded, source] {
            if width.max(height) < MIN_SIDE {
                return Err(CambiError::TooSmall(width, height));
            }
        }
        if (source.0 > encoded.0 && source.1 < encoded.1) || (source.0 < encoded.0 && source.1 > encoded.1) {
            return Err(CambiError::Sizes);
        }
        let speedup = SPEEDUP_PIXELS.iter().find(|(rows, _)| *rows == options.high_res_speedup);
        let halved = speedup.is_some_and(|(_, pixels)| encoded.0 * encoded.1 >= *pixels);
        let topk = if options.topk != 0.6 { options.topk } else { options.cambi_topk };
        let eotf = if options.cambi_eotf != Eotf::Bt1886 { options.cambi_eotf } else { options.eotf };

        let steps = 1 << options.max_log_contrast;
        let dark = eotf.dark_limit(options.vis_lum_threshold).ok_or(CambiError::Dark)?;
        // libvmaf tests the largest step besides the present one.
        let contrasts: Vec<_> = (1..=steps)
            .zip(CONTRAST_WEIGHTS)
            .map(|(step, weight)| Contrast {
                above: dark - steps - step,
                up_to: eotf.visible_limit(step, options.tvi_threshold),
                weight,
            })
            .collect();
        if contrasts.iter().all(|contrast| contrast.up_to < dark) && dark > 0 {
            return Err(CambiError::Dark);
        }
        let bits = if options.enc_bitdepth == 0 { geometry.depth.bits() } else { options.enc_bitdepth };
        let picture = |size| CambiPicture::new(size, options.window_size as usize, halved, topk);
        // libvmaf checks the source's window even if it does not analyse the source.
        let from_source = picture(source)?;
        Ok(CambiPlan {
            distorted: picture(encoded)?,
            source: options.full_ref.then_some(from_source),
            anti_dither: bits < 10,
            halved,
            contrasts,
        })
    }
}

impl CambiPicture {
    fn new(
        (width, height): (usize, usize),
        window_size: usize,
        halved: bool,
        topk: f64,
    ) -> Result<Self, CambiError> {
        let mut window = (window_size * (width + height) / 375) >> 4;
        if halved {
            window = window.div_ceil(2);
        }
        window |= 1;
        if window > MAX_WINDOW {
            return Err(CambiError::Window(width, height, window));
        }
        let (mut w, mut h) = (width, height);
        let scales = std::array::from_fn(|scale| {
            if scale > 0 || halved {
                (w, h) = (w.div_ceil(2), h.div_ceil(2));
            }
            CambiScale { width: w, height: h, top: ((topk * (w * h) as f64) as usize).clamp(1, w * h) }
        });
        // If a window is larger than the whole picture, libvmaf reads data left over from an earlier scale.
        if scales.iter().any(|scale| scale.width.min(scale.height) < window / 2) {
            return Err(CambiError::TooLong(width, height));
        }
        let blocks = (width >> 6) * (height >> 6);
        let log2 = blocks.max(1).next_power_of_two().trailing_zeros();
        Ok(Self { width, height, flat_limit: (15 + 3 * log2) >> 1, window, scales })
    }
}

/// Returns, for each of `to` samples in a row or column, the index of its source among `from` samples. libvmaf adds up
/// in binary32.
pub fn nearest(from: usize, to: usize) -> Vec<u32> {
    let ratio = from as f32 / to as f32;
    let mut at = (f64::from(ratio / 2.0) - 0.5) as f32;
    (0..to)
        .map(|_| {
            let index = (f64::from(at) + 0.5) as u32;
            at += ratio;
            index.min(from as u32 - 1)
        })
        .collect()
}

/// Sum of the largest [`CambiScale::top`] contrast values of each scale, in units of 2^-24.
pub type ScaleSums = [u64; SCALES];

/// The sums of one pair in one analysis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CambiSums {
    pub distorted: ScaleSums,
    /// Present with [`CambiOptions::full_ref`].
    pub source: Option<ScaleSums>,
}

/// Features of one pair; a larger value means more banding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CambiScores {
    pub cambi: f64,
    pub source: Option<f64>,
    pub full_reference: Option<f64>,
}

/// Turns the sums of frames of one size into scores.
#[derive(Clone, Debug)]
pub struct CambiScorer {
    max_val: f64,
    plan: CambiPlan,
}

impl CambiScorer {
    pub fn new(options: &CambiOptions, geometry: Geometry) -> Result<Self, CambiError> {
        Ok(Self { max_val: options.max_val, plan: options.analysis().plan(geometry)? })
    }

    pub fn scores(&self, sums: &CambiSums) -> CambiScores {
        let limited = |score: f64| if score < self.max_val { score } else { self.max_val };
        let distorted = self.plan.distorted.score(&sums.distorted);
        let source = self.plan.source.as_ref().zip(sums.source).map(|(picture, sums)| picture.score(&sums));
        CambiScores {
            cambi: limited(distorted),
            source: source.map(limited),
            full_reference: source.map(|source| limited((distorted - source).max(0.0))),
        }
    }
}

impl CambiPicture {
    fn score(&self, sums: &ScaleSums) -> f64 {
        let unit = f64::from(1 << 24);
        let means = sums.iter().zip(&self.scales).map(|(sum, scale)| *sum as f64 / unit / scale.top as f64);
        let score = means.zip(SCALE_WEIGHTS).fold(0.0, |score, (mean, weight)| score + mean * weight);
        score / (self.window * self.window) as f64
    }
}

/// Banding.
pub struct Cambi;

/// The pixel work: one analysis for each set of options.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CambiWork {
    /// The distinct analyses.
    pub analyses: Vec<CambiAnalysis>,
}

impl Metric for Cambi {
    const NAME: &'static str = "cambi";
    type Work = CambiWork;
    /// The sums of each analysis.
    type Sums = Vec<CambiSums>;

    fn check(work: &CambiWork, geometry: Geometry) -> Result<(), Misfit> {
        work.analyses.iter().try_for_each(|analysis| Ok(analysis.plan(geometry).map(|_| ())?))
    }
}

impl From<CambiError> for Misfit {
    fn from(error: CambiError) -> Self {
        Self::Other(Box::new(error))
    }
}

/// Describes an option whose field is an [`Eotf`], as [`name`] does.
macro_rules! eotf {
    ($name:literal, $alias:literal, $field:ident) => {
        $crate::metrics::options::name(
            $name,
            $alias,
            |o| o.$field.name(),
            |o, name| Eotf::from_name(name).map(|eotf| o.$field = eotf),
            &Eotf::NAMES,
        )
    };
}

impl Options for CambiOptions {
    const EXTRACTOR: &'static str = "cambi";
    const TABLE: &'static [Row<Self>] = &[
        eotf!("cambi_eotf", "ceot", cambi_eotf),
        number!("cambi_high_res_speedup", Some("hrs"), high_res_speedup, 0..=2160),
        float("cambi_max_val", Some("cmxv"), |o| &mut o.max_val, 0.0..=1000.0),
        float("cambi_topk", Some("ctpk"), |o| &mut o.cambi_topk, 0.0001..=1.0),
        float("cambi_vis_lum_threshold", Some("vlt"), |o| &mut o.vis_lum_threshold, 0.0..=300.0),
        number!("enc_bitdepth", Some("encbd"), enc_bitdepth, 6..=16),
        number!("enc_height", Some("ench"), enc_height, 150..=7680),
        number!("enc_width", Some("encw"), enc_width, 180..=7680),
        eotf!("eotf", "eotf", eotf),
        bool("full_ref", None, |o| &mut o.full_ref),
        number!("max_log_contrast", Some("mlc"), max_log_contrast, 0..=5),
        number!("src_height", Some("srch"), src_height, 200..=4320),
        number!("src_width", Some("srcw"), src_width, 320..=7680),
        float("topk", Some("topk"), |o| &mut o.topk, 0.0001..=1.0),
        float("tvi_threshold", Some("tvit"), |o| &mut o.tvi_threshold, 0.0001..=1.0),
        number!("window_size", Some("ws"), window_size, 15..=127),
    ];
}

/// Identifies a feature of [`CambiOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CambiOutput {
    Distorted,
    Source,
    FullReference,
}

impl Extract for CambiOptions {
    type Output = CambiOutput;
    const FEATURES: &'static [(&'static str, CambiOutput)] = &[
        ("cambi", CambiOutput::Distorted),
        ("cambi_source", CambiOutput::Source),
        ("cambi_full_reference", CambiOutput::FullReference),
    ];
    const ABOUT: &'static [About] = &[About {
        reported: "`cambi`; with `full_ref=true` also `cambi_source`, `cambi_full_reference`",
        tells: "visible bands in the distorted video",
        range: "0 to about 24; from 5 on it annoys",
        equal: "not 0 if the reference has bands",
        source: "P. Tandon et al., PCS 2021",
    }];

    fn lacks(&self, output: CambiOutput) -> Option<&'static str> {
        (output != CambiOutput::Distorted && !self.full_ref).then_some("full_ref")
    }

    fn yielding(output: CambiOutput) -> Self {
        Self { full_ref: output != CambiOutput::Distorted, ..Self::default() }
    }

    /// Excludes the features to which libvmaf adds no suffix.
    fn has_suffix(output: CambiOutput) -> bool {
        output == CambiOutput::Distorted
    }

    fn in_models(name: &str) -> Option<String> {
        (name == "cambi").then(|| "Cambi_feature_cambi_score".into())
    }

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        let new = self.analysis();
        let index = work.extend::<Cambi, _>(CambiWork::default(), |work| place(&mut work.analyses, new));
        Ok(Box::new(CambiSource { options: *self, index }))
    }
}

/// `index`: index in [`CambiWork::analyses`].
#[derive(Clone, Copy, Debug)]
struct CambiSource {
    options: CambiOptions,
    index: usize,
}

impl Source for CambiSource {
    fn scorer(&self, geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        let scorer = CambiScorer::new(&self.options, geometry)?;
        let index = self.index;
        Ok(plain(move |sums| {
            let scores = sums.get::<Cambi>().and_then(|sums| sums.get(index)).map(|sums| scorer.scores(sums));
            let value = |output| match output {
                CambiOutput::Distorted => scores.map(|scores| scores.cambi),
                CambiOutput::Source => scores?.source,
                CambiOutput::FullReference => scores?.full_reference,
            };
            CambiOptions::values(|output| value(output).unwrap_or(f64::NAN))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::BitDepth;

    fn plan(options: CambiOptions, width: usize, height: usize) -> Result<CambiPlan, CambiError> {
        let depth = BitDepth::new(8).unwrap();
        options.analysis().plan(Geometry { width, height, depth, chroma: None })
    }

    /// Returns the options of the v1 models.
    fn v1() -> CambiOptions {
        CambiOptions {
            high_res_speedup: 1080,
            max_val: 17.0,
            vis_lum_threshold: 0.06,
            ..CambiOptions::default()
        }
    }

    #[test]
    fn reciprocals_are_rounded_twice() {
        let differ = |sign: i32| {
            (1..RECIPROCALS.len() as i32)
                .filter(move |i| {
                    let correct = (1.0 / f64::from(*i)) as f32;
                    (RECIPROCALS[*i as usize].to_bits() as i32 - correct.to_bits() as i32) == sign
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(differ(1), [82, 83, 244, 488, 564, 614, 664, 1419, 1699, 1906, 2443, 2740, 3812, 4130]);
        assert_eq!(
            differ(-1),
            [
                504, 510, 528, 749, 760, 892, 2040, 2071, 2112, 2223, 2555, 2927, 3285, 3515, 3525, 3705,
                3795, 3797, 3837, 3885, 4033, 4080, 4091, 4095, 4142, 4203, 4218, 4224
            ]
        );
    }

    #[test]
    fn visibility_follows_the_luminance() {
        let limits = |eotf: Eotf| [1, 2, 3, 4, 5, 6, 7, 32].map(|step| eotf.visible_limit(step, 0.019));
        assert_eq!(limits(Eotf::Bt1886), [178, 305, 432, 559, 686, 813, 1023, 1023]);
        assert_eq!(limits(Eotf::Pq), [233, 1023, 1023, 1023, 1023, 1023, 1023, 1023]);
        let dark = |eotf: Eotf| [0.0, 0.06, 0.01].map(|threshold| eotf.dark_limit(threshold));
        assert_eq!(dark(Eotf::Bt1886), [Some(0), Some(78), Some(65)]);
        assert_eq!(dark(Eotf::Pq)[1], Some(108));
        assert_eq!(Eotf::Bt1886.dark_limit(301.0), None);
    }

    #[test]
    fn windows_and_flat_areas_follow_the_size() {
        let found = |options, width, height| {
            plan(options, width, height).map(|plan| (plan.distorted.window, plan.distorted.flat_limit))
        };
        let default = CambiOptions::default();
        assert_eq!(found(default, 576, 324), Ok((9, 16)));
        assert_eq!(found(default, 1280, 720), Ok((21, 19)));
        assert_eq!(found(default, 1920, 1080), Ok((33, 21)));
        assert_eq!(found(v1(), 1920, 1080), Ok((17, 21)));
        assert_eq!(found(default, 3840, 2160), Ok((65, 24)));
        assert_eq!(found(v1(), 3840, 2160), Ok((33, 24)));
        assert_eq!(found(v1(), 7680, 4320).unwrap().0, 65);
        assert_eq!(found(default, 7680, 4320), Err(CambiError::Window(7680, 4320, 131)));
    }

    #[test]
    fn sizes_that_libvmaf_refuses_are_refused() {
        let default = CambiOptions::default();
        for (width, height) in [(216, 216), (219, 33), (33, 217)] {
            assert!(plan(default, width, height).is_ok());
        }
        for (width, height) in [(160, 90), (214, 214)] {
            let error = plan(default, width, height).unwrap_err();
            assert_eq!(error, CambiError::TooSmall(width, height));
        }
        let odd =
            CambiOptions { enc_width: 640, enc_height: 360, src_width: 320, src_height: 400, ..default };
        assert_eq!(plan(odd, 1280, 720), Err(CambiError::Sizes));
        assert_eq!(plan(default, 4000, 100), Err(CambiError::TooLong(4000, 100)));
        let dark = CambiOptions { vis_lum_threshold: 299.0, ..default };
        assert_eq!(plan(dark, 640, 360), Err(CambiError::Dark));
    }

    #[test]
    fn scores_are_limited_after_the_difference() {
        let options = CambiOptions { full_ref: true, max_val: 2.0, ..CambiOptions::default() };
        let depth = BitDepth::new(8).unwrap();
        let geometry = Geometry { width: 640, height: 360, depth, chroma: None };
        let scorer = CambiScorer::new(&options, geometry).unwrap();
        // Every counted pixel of all scales has the contrast of the window: 16 + 8 + 4 + 2 + 1.
        let plan = options.analysis().plan(geometry).unwrap();
        let sums = |n: u64| plan.distorted.scales.map(|scale| ((scale.top as u64) << 24) * 121 * n / 31);
        let score = |distorted, source| {
            scorer.scores(&CambiSums { distorted: sums(distorted), source: Some(sums(source)) })
        };
        let near = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() < 1e-6, "{a:?} {b}");
        let scores = score(4, 3);
        assert_eq!((scores.cambi, scores.source), (2.0, Some(2.0)));
        near(scores.full_reference, 1.0);
        near(score(1, 3).source, 2.0);
        assert_eq!(score(1, 3).full_reference, Some(0.0));
    }

    #[test]
    fn samples_are_picked_at_rounded_positions() {
        assert_eq!(nearest(4, 4), [0, 1, 2, 3]);
        assert_eq!(nearest(8, 4), [1, 3, 5, 7]);
        assert_eq!(nearest(3, 6), [0, 0, 1, 1, 2, 2]);
    }
}
