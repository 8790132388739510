// SPDX-License-Identifier: MPL-2.0

//! Additive detail measure in floating point: options, contrast sensitivity weights, and the formulas from sums to `adm2`,
//! `aim` and `adm3`.
//!
//! The definition is that of the float ADM of libvmaf 3.2.0 (BSD-2-Clause-Patent), whose constants are listed here:
//!
//! - Samples are scaled to the range of 8 bits, less 128.
//! - Each of four scales filters rows and columns with [`LOW_PASS`] and [`HIGH_PASS`]. The next scale filters the band
//!   that is low in both directions.
//! - A coefficient `t` of the distorted picture beside `o` of the reference is restored detail `r`, which is
//!   `o clamp(t / (o + 1e-30), 0, 1)`, plus the additive part `t - r`. Where the vectors of the bands h and v differ by
//!   less than one degree, `r` is multiplied by `adm_enhn_gain_limit`, up to `t`. The quotient is `t` times the
//!   approximate reciprocal of x86 after one Newton step, `y + y (1 - x y)`; other architectures divide.
//! - Both parts are weighted by the contrast sensitivity. The magnitude of one part, less a threshold that is made of the
//!   other, counts where it is positive. The threshold is the sum over the bands, each in the order of rows, of a
//!   thirtieth of the eight neighbours and a fifteenth of the coefficient itself. Beyond the first row or column lies the
//!   second one, beyond the last one the last one.
//! - The sums are those of cubes (`adm_p_norm`) in single precision: over the columns of a row, then over the rows.
//!
//! Every floating point operation keeps libvmaf's order and precision, so the scores have the bits of libvmaf on the same
//! machine.

use std::f64::consts::PI;

use super::adm::{barten, exp2, limit, root, scales, sum_bands, total, watson};
use super::extractor::{About, Extract};
use super::metric::{Metric, Misfit};
use super::options::{Options, Row, bool, float, int, number};
use super::score::{OptionsError, Scorer, Source, fractions, plain};
use super::work::{FrameSums, Work};
use crate::frame::Geometry;

/// Low-pass taps of the db2 wavelet.
pub const LOW_PASS: [f32; 4] = [0.482_962_9, 0.836_516_3, 0.224_143_86, -0.129_409_52];
/// High-pass taps of the db2 wavelet.
pub const HIGH_PASS: [f32; 4] = [-0.129_409_52, -0.224_143_86, 0.836_516_3, -0.482_962_9];

/// The factor of neighbours in the masking threshold.
pub const NEIGHBOUR: f64 = 0.033_333_335_1;
/// The factor of the coefficient itself in its masking threshold.
pub const CENTRE: f64 = 0.066_666_670_1;
/// The number that keeps coefficients from being divided by zero.
pub const EPSILON: f32 = 1e-30;
/// Squared cosine of one degree: the limit of the direction test.
pub const COS_SQUARED: f32 = super::adm::COS_SQUARED as f32;

/// Smallest frame extent with defined scores; libvmaf reads outside its buffers below.
pub const MIN_SIZE: usize = 17;

/// The exponent for which libvmaf multiplies; it calls `powf` for all others.
const CUBE: f64 = 3.0;

/// The options of libvmaf's `float_adm` extractor, with its names less the `adm_` prefix, and its defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FloatAdmOptions {
    /// Compute `adm3` as the harmonic mean of `adm2` and `aim`.
    pub adm3_apply_hm: bool,
    /// Leave the masking threshold out if it is 1.
    pub bypass_cm: u32,
    /// Factor of the diagonal weights in mode 1, 0..=50.
    pub csf_diag_scale: f64,
    /// Contrast sensitivity: 1 is Barten's at 100 cd/m², 2 that of the paper, all others Watson's thresholds of 1997.
    pub csf_mode: u32,
    /// Factor of the horizontal and vertical weights in mode 1, 0..=50.
    pub csf_scale: f64,
    /// Share of `adm2` in `adm3`, 0..=1; the rest is that of `1 - aim`.
    pub dlm_weight: f64,
    /// How far detail may be enhanced and still count as restored, 1..=100.
    pub enhn_gain_limit: f64,
    /// For each scale, the weights of the bands h and v in place of those of the mode, unless negative.
    pub f1: [f64; 4],
    /// For each scale, the weight of the band d in place of that of the mode, unless negative.
    pub f2: [f64; 4],
    /// Lower limit of `adm3`, 0..=1.
    pub min_val: f64,
    /// Noise added to numerator and denominator, per coefficient, 0..=1500.
    pub noise_weight: f64,
    /// Viewing distance in display heights, 0.75..=24.
    pub norm_view_dist: f64,
    /// Exponent of the sums, 1..=20.
    pub p_norm: f64,
    /// Display height in pixels, 1..=4320.
    pub ref_display_height: u32,
    /// The scale that `aim` leaves out.
    pub skip_aim_scale: Option<u32>,
    /// Leave scale 0 out of the scores.
    pub skip_scale0: bool,
}

impl Default for FloatAdmOptions {
    fn default() -> Self {
        Self {
            adm3_apply_hm: false,
            bypass_cm: 0,
            csf_diag_scale: 1.0,
            csf_mode: 0,
            csf_scale: 1.0,
            dlm_weight: 0.5,
            enhn_gain_limit: 100.0,
            f1: [-1.0; 4],
            f2: [-1.0; 4],
            min_val: 0.0,
            noise_weight: 0.03125,
            norm_view_dist: 3.0,
            p_norm: CUBE,
            ref_display_height: 1080,
            skip_aim_scale: None,
            skip_scale0: false,
        }
    }
}

impl FloatAdmOptions {
    /// Returns the pixel work for these options. `aim`: `aim` or `adm3` is wanted besides `adm2`.
    pub fn pass(&self, aim: bool) -> FloatAdmPass {
        FloatAdmPass {
            gain_limit: self.enhn_gain_limit,
            weights: self.weights(),
            masks: self.bypass_cm == 0,
            exponent: self.p_norm,
            aim,
        }
    }

    /// Computes the contrast sensitivity of scales 0 to 3: for the h and v bands, and for the d band.
    fn weights(&self) -> [[f32; 2]; 4] {
        let display = self.norm_view_dist * f64::from(self.ref_display_height);
        let factors = [self.csf_scale, self.csf_diag_scale];
        std::array::from_fn(|scale| {
            let given = [self.f1[scale], self.f2[scale]];
            std::array::from_fn(|kind| match (self.csf_mode, given[kind]) {
                (_, given) if given >= 0.0 => given as f32,
                (1, _) => barten(scale, display, factors[kind]),
                (2, _) => native(scale, kind, display),
                _ => watson(scale, kind, display),
            })
        })
    }
}

/// Computes the sensitivity of the paper: `kind` 0 for the h and v bands, 1 for d.
fn native(scale: usize, kind: usize, display: f64) -> f32 {
    let frequency = (f64::from((display * PI / 180.0) as f32) / exp2(scale as i32 + 1)) as f32;
    let frequency = f64::from(if kind == 0 { frequency } else { (f64::from(frequency) / 0.7) as f32 });
    ((0.31 + 0.69 * frequency) * (-0.29 * frequency).exp()) as f32
}

/// Pixel work for ADM in floating point: the wavelet bands once, sums for each distinct pass.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatAdmWork {
    /// Parameters of the sums.
    pub passes: Vec<FloatAdmPass>,
}

/// One way of weighting and masking: everything in the options that the pixel work depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FloatAdmPass {
    /// `adm_enhn_gain_limit`, 1.0..=100.0.
    pub gain_limit: f64,
    /// Weights of each scale: the one of the h and v bands, the one of the d band.
    pub weights: [[f32; 2]; 4],
    /// One part of the coefficients masks the other.
    pub masks: bool,
    /// `adm_p_norm`, 1.0..=20.0.
    pub exponent: f64,
    /// The additive impairment (`aim`, `adm3`) is needed besides the restored detail (`adm2`).
    pub aim: bool,
}

impl FloatAdmPass {
    /// Returns true if the sums are those of cubes.
    pub fn is_cubic(&self) -> bool {
        self.exponent == CUBE
    }
}

/// The sums of one scale for the three bands h, v, d.
pub type BandSums = [f32; 3];

/// The sums that a backend returns: one for each pass of [`FloatAdmWork`], in its order.
pub type FloatAdmSums = Vec<FloatAdmPassSums>;

/// Sums of one pass, scales 0 to 3.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FloatAdmPassSums {
    /// The weighted coefficients of the reference: the denominator.
    pub reference: [BandSums; 4],
    /// Restored detail masked by the additive part: the numerator of `adm2`.
    pub restored: [BandSums; 4],
    /// Additive part masked by the restored detail: the numerator of `aim`.
    pub additive: Option<[BandSums; 4]>,
}

/// Features of one frame pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FloatAdmScores {
    /// Restored detail relative to the reference; about 1 for equal frames, can exceed 1.
    pub adm2: f64,
    /// Additive impairment relative to the reference, 0 for equal frames, at most 1; if the pass computed it.
    pub aim: Option<f64>,
    /// Mixture of both, at least `min_val`; if the pass computed `aim`.
    pub adm3: Option<f64>,
    /// `adm2` of each scale alone; not a number where the reference is flat and the noise weight 0.
    pub scale: [f64; 4],
    /// The numerator and the denominator of `adm2`.
    pub fraction: [f64; 2],
    /// The numerator and the denominator of each scale.
    pub fractions: [[f32; 2]; 4],
}

/// Turns the sums of frames of one size into features for one set of options.
#[derive(Clone, Copy, Debug)]
pub struct FloatAdmScorer {
    options: FloatAdmOptions,
    /// Amount that the noise adds to each band.
    noise: [f32; 4],
    /// Smaller totals count as zero.
    limit: f64,
}

impl FloatAdmScorer {
    /// Prepares for frames of `width` x `height` luma samples.
    pub fn new(options: FloatAdmOptions, width: usize, height: usize) -> Self {
        let noise = scales(width, height).map(|scale| {
            let area = (scale.rows.len() * scale.columns.len()) as f64;
            norm((area * options.noise_weight) as f32, options.p_norm)
        });
        Self { options, noise, limit: limit(width, height) }
    }

    /// Computes the features from the sums of the pass for these options.
    pub fn scores(&self, sums: &FloatAdmPassSums) -> FloatAdmScores {
        let restored = self.scales(&sums.restored, self.noise, 0.0);
        let detail = self.scales(&sums.reference, self.noise, 1e-10);
        let [num, den] = [restored, detail].map(|scales| {
            let total = total(scales);
            if total < self.limit { 0.0 } else { total }
        });
        let additive = sums.additive.map(|sums| self.scales(&sums, [0.0; 4], 0.0));
        // libvmaf leaves aim undefined if the reference has no detail.
        let (adm2, aim) = if den == 0.0 {
            (1.0, additive.map(|_| 0.0))
        } else {
            (num / den, additive.map(|additive| self.aim(additive, detail)))
        };
        FloatAdmScores {
            adm2,
            aim,
            adm3: aim.map(|aim| self.adm3(adm2, aim)),
            scale: std::array::from_fn(|s| f64::from(restored[s]) / f64::from(detail[s])),
            fraction: [num, den],
            fractions: std::array::from_fn(|s| [restored[s], detail[s]]),
        }
    }

    /// Computes the amounts of the scales. `skipped` stands for scale 0 if it is left out.
    fn scales(&self, sums: &[BandSums; 4], noise: [f32; 4], skipped: f32) -> [f32; 4] {
        std::array::from_fn(|scale| match scale {
            0 if self.options.skip_scale0 => skipped,
            _ => sum_bands(|band| norm(sums[scale][band], self.options.p_norm) + noise[scale]),
        })
    }

    fn aim(&self, additive: [f32; 4], detail: [f32; 4]) -> f64 {
        let left = |scales: [f32; 4]| {
            let counts = |scale: usize| self.options.skip_aim_scale != Some(scale as u32);
            (0..4).filter(|scale| counts(*scale)).fold(0.0, |sum, scale| sum + f64::from(scales[scale]))
        };
        let aim = left(additive) / left(detail);
        // A quotient of zeros counts as 1, as in libvmaf.
        if aim < 1.0 { aim } else { 1.0 }
    }

    fn adm3(&self, adm2: f64, aim: f64) -> f64 {
        let FloatAdmOptions { dlm_weight, min_val, adm3_apply_hm, .. } = self.options;
        let mixed = if adm3_apply_hm {
            2.0 * adm2 * aim / (adm2 + aim)
        } else {
            adm2 * dlm_weight + (1.0 - aim) * (1.0 - dlm_weight)
        };
        if mixed > min_val { mixed } else { min_val }
    }
}

/// Computes the root of a sum of powers with this exponent.
fn norm(sum: f32, exponent: f64) -> f32 {
    if exponent == CUBE { root(sum) } else { sum.powf((1.0 / exponent) as f32) }
}

/// The additive detail measure in floating point.
pub struct FloatAdm;

impl Metric for FloatAdm {
    const NAME: &'static str = "float_adm";
    type Work = FloatAdmWork;
    type Sums = FloatAdmSums;

    fn check(_work: &FloatAdmWork, geometry: Geometry) -> Result<(), Misfit> {
        Misfit::at_least("float ADM", MIN_SIZE, geometry)
    }
}

/// Describes the option for the weight of a scale.
macro_rules! weight {
    ($name:literal, $alias:literal, $field:ident, $scale:literal) => {
        float($name, Some($alias), |o| &mut o.$field[$scale], -1.0..=10.0)
    };
}

impl Options for FloatAdmOptions {
    const EXTRACTOR: &'static str = "float_adm";
    const TABLE: &'static [Row<Self>] = &[
        bool("adm_adm3_apply_hm", Some("aah"), |o| &mut o.adm3_apply_hm),
        number!("adm_bypass_cm", Some("bcm"), bypass_cm, 0..=1),
        float("adm_csf_diag_scale", Some("scfd"), |o| &mut o.csf_diag_scale, 0.0..=50.0),
        number!("adm_csf_mode", Some("csf"), csf_mode, 0..=9),
        float("adm_csf_scale", Some("scf"), |o| &mut o.csf_scale, 0.0..=50.0),
        float("adm_dlm_weight", Some("dlmw"), |o| &mut o.dlm_weight, 0.0..=1.0),
        float("adm_enhn_gain_limit", Some("egl"), |o| &mut o.enhn_gain_limit, 1.0..=100.0),
        weight!("adm_f1s0", "f1s0", f1, 0),
        weight!("adm_f1s1", "f1s1", f1, 1),
        weight!("adm_f1s2", "f1s2", f1, 2),
        weight!("adm_f1s3", "f1s3", f1, 3),
        weight!("adm_f2s0", "f2s0", f2, 0),
        weight!("adm_f2s1", "f2s1", f2, 1),
        weight!("adm_f2s2", "f2s2", f2, 2),
        weight!("adm_f2s3", "f2s3", f2, 3),
        float("adm_min_val", Some("min"), |o| &mut o.min_val, 0.0..=1.0),
        float("adm_noise_weight", Some("nw"), |o| &mut o.noise_weight, 0.0..=1500.0),
        float("adm_norm_view_dist", Some("nvd"), |o| &mut o.norm_view_dist, 0.75..=24.0),
        float("adm_p_norm", Some("apn"), |o| &mut o.p_norm, 1.0..=20.0),
        number!("adm_ref_display_height", Some("rdf"), ref_display_height, 1..=4320),
        int(
            "adm_skip_aim_scale",
            Some("sasc"),
            |o| o.skip_aim_scale.unwrap_or(u32::MAX),
            |o, scale| {
                o.skip_aim_scale = Some(scale);
                Some(())
            },
            0..=3,
        ),
        bool("adm_skip_scale0", Some("ssz"), |o| &mut o.skip_scale0),
    ];
}

/// Identifies a feature of [`FloatAdmOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatAdmOutput {
    Adm2,
    Aim,
    Adm3,
    /// Scale 0..=3.
    Scale(usize),
}

impl Extract for FloatAdmOptions {
    type Output = FloatAdmOutput;
    const FEATURES: &'static [(&'static str, FloatAdmOutput)] = &[
        ("adm2", FloatAdmOutput::Adm2),
        ("aim", FloatAdmOutput::Aim),
        ("adm3", FloatAdmOutput::Adm3),
        ("adm_scale0", FloatAdmOutput::Scale(0)),
        ("adm_scale1", FloatAdmOutput::Scale(1)),
        ("adm_scale2", FloatAdmOutput::Scale(2)),
        ("adm_scale3", FloatAdmOutput::Scale(3)),
    ];
    const ABOUT: &'static [About] = &[
        About {
            reported: "`adm2`, `adm_scale0` to `3`",
            tells: "as `adm`, in floating point",
            range: "0 to about 1",
            equal: "about 1",
            source: "S. Li et al., IEEE Trans. Multimedia 2011",
        },
        About {
            reported: "`aim`",
            tells: "as `adm`, in floating point",
            range: "0 to 1",
            equal: "0",
            source: "",
        },
        About {
            reported: "`adm3`",
            tells: "both in one number",
            range: "`adm_min_val` to about 1",
            equal: "about 1",
            source: "",
        },
    ];

    fn is_costly(output: FloatAdmOutput) -> bool {
        matches!(output, FloatAdmOutput::Aim | FloatAdmOutput::Adm3)
    }

    fn in_models(name: &str) -> Option<String> {
        Some(format!("VMAF_feature_{name}_score"))
    }

    fn plan(&self, costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        let new = self.pass(costly);
        let pass = work.extend::<FloatAdm, _>(FloatAdmWork { passes: vec![] }, |FloatAdmWork { passes }| {
            let same = |pass: &FloatAdmPass| FloatAdmPass { aim: new.aim, ..*pass } == new;
            let pass = passes.iter().position(same).unwrap_or(passes.len());
            match passes.get_mut(pass) {
                Some(pass) => pass.aim |= costly,
                None => passes.push(new),
            }
            pass
        });
        Ok(Box::new(FloatAdmSource { options: *self, pass }))
    }
}

/// `pass`: index in [`FloatAdmWork::passes`].
#[derive(Clone, Copy, Debug)]
struct FloatAdmSource {
    options: FloatAdmOptions,
    pass: usize,
}

impl FloatAdmSource {
    fn scorer_for(&self, Geometry { width, height, .. }: Geometry) -> FloatAdmScorer {
        FloatAdmScorer::new(self.options, width, height)
    }
}

impl Source for FloatAdmSource {
    fn part(&self) -> String {
        format!(" pass {}", self.pass)
    }

    fn scorer(&self, geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        let (pass, scorer) = (self.pass, self.scorer_for(geometry));
        Ok(plain(move |sums| {
            let sums = sums.get::<FloatAdm>().and_then(|sums| sums.get(pass));
            let scores = sums.map(|sums| scorer.scores(sums));
            let value = |scores: &FloatAdmScores, output| match output {
                FloatAdmOutput::Adm2 => Some(scores.adm2),
                FloatAdmOutput::Aim => scores.aim,
                FloatAdmOutput::Adm3 => scores.adm3,
                FloatAdmOutput::Scale(scale) => Some(scores.scale[scale]),
            };
            FloatAdmOptions::values(|output| {
                scores.as_ref().and_then(|s| value(s, output)).unwrap_or(f64::NAN)
            })
        }))
    }

    fn fractions(&self, sums: &FrameSums, geometry: Geometry) -> Result<Vec<(String, f64)>, OptionsError> {
        let Some(sums) = sums.get::<FloatAdm>().and_then(|sums| sums.get(self.pass)) else {
            return Ok(vec![]);
        };
        let scores = self.scorer_for(geometry).scores(sums);
        Ok(fractions("adm", scores.adm2, scores.fraction, scores.fractions))
    }
}
