// SPDX-License-Identifier: MPL-2.0

//! Additive detail measure: options, contrast sensitivity weights, the shape of the wavelet bands, and the formulas
//! from sums to `adm2`, `aim` and `adm3`.
//!
//! The formulas are those of the fixed-point ADM of libvmaf 3.2.0 (BSD-2-Clause-Patent), whose tables and constants are
//! listed here. Every floating point operation keeps its order, so equal sums give equal scores.

use std::f64::consts::{PI, SQRT_2};
use std::ops::Range;

use super::extractor::{About, Extract};
use super::metric::{Metric, Misfit};
use super::options::{Options, Row, bool, float, int, number};
use super::score::{OptionsError, Scorer, Source, fractions, plain};
use super::work::{FrameSums, Work};
use crate::frame::Geometry;

/// Low-pass taps of the db2 wavelet in units of 2^-15.
pub const LOW_PASS: [i16; 4] = [15826, 27411, 7345, -4240];
/// High-pass taps of the db2 wavelet in units of 2^-15.
pub const HIGH_PASS: [i16; 4] = [-4240, -7345, 27411, -15826];

/// Squared cosine of one degree in single precision: the limit of the direction test of decoupling.
pub const COS_SQUARED: f64 = 0.9996954202651978;

/// Smallest frame extent with defined scores; libvmaf reads outside its buffers below.
pub const MIN_SIZE: usize = 33;

/// Smallest product of viewing distance and display height.
const MIN_DISPLAY: f64 = 3240.0;

/// Options within their ranges ([`super::options`]) that cannot be combined.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AdmError {
    #[error("adm_norm_view_dist times adm_ref_display_height must be at least 3240, it is {0}")]
    DisplayTooClose(f64),
    #[error("adm_csf_mode has no table for adm_ref_display_height {height} at adm_norm_view_dist {distance}")]
    NoTable { height: u32, distance: f64 },
    #[error("the contrast sensitivity {0} is outside the range of the fixed-point weights (adm_csf_scale)")]
    Weight(f32),
}

/// Contrast sensitivity function, `adm_csf_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CsfMode {
    /// Watson's wavelet thresholds of 1997 (mode 0).
    #[default]
    Watson,
    /// Barten at 100 cd/m² (mode 1).
    Barten,
    /// Blended curve, by table (mode 2).
    Blend,
    /// Blended curve fitted for the mean absolute error, by table (mode 3).
    BlendMae,
}

impl CsfMode {
    /// Returns the mode with the number that models and options use; `None` above 3.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Watson, Self::Barten, Self::Blend, Self::BlendMae].get(number as usize).copied()
    }
}

/// The options of libvmaf's `adm` extractor, with its names less the `adm_` prefix, and its defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmOptions {
    /// Factor of the diagonal weights in `CsfMode::Barten`, 0..=50.
    pub csf_diag_scale: f64,
    /// Which model of contrast sensitivity.
    pub csf_mode: CsfMode,
    /// Factor of the horizontal and vertical weights in `CsfMode::Barten`, 0..=50.
    pub csf_scale: f64,
    /// Share of `adm2` in `adm3`, 0..=1; the rest is that of `1 - aim`.
    pub dlm_weight: f64,
    /// How far detail may be enhanced and still count as restored, 1..=100.
    pub enhn_gain_limit: f64,
    /// Lower limit of `adm3`, 0..=1.
    pub min_val: f64,
    /// Noise added to numerator and denominator, per coefficient, 0..=1500.
    pub noise_weight: f64,
    /// Viewing distance in display heights, 0.75..=24.
    pub norm_view_dist: f64,
    /// Display height in pixels, 1..=4320.
    pub ref_display_height: u32,
    /// Report `aim` as 0 instead of computing it.
    pub skip_aim: bool,
    /// Leave scale 0 out of the scores.
    pub skip_scale0: bool,
}

impl Default for AdmOptions {
    fn default() -> Self {
        Self {
            csf_diag_scale: 1.0,
            csf_mode: CsfMode::Watson,
            csf_scale: 1.0,
            dlm_weight: 0.5,
            enhn_gain_limit: 100.0,
            min_val: 0.0,
            noise_weight: 0.03125,
            norm_view_dist: 3.0,
            ref_display_height: 1080,
            skip_aim: false,
            skip_scale0: false,
        }
    }
}

impl AdmOptions {
    /// Returns the pixel work for these options. `aim`: `aim` or `adm3` is wanted besides `adm2`.
    pub fn pass(&self, aim: bool) -> Result<AdmPass, AdmError> {
        let exact_default = self.csf_mode == CsfMode::Watson && (self.display() - MIN_DISPLAY).abs() < 1e-8;
        let mut weights = [[0; 2]; 4];
        for (scale, (quantised, weight)) in weights.iter_mut().zip(self.weights()?).enumerate() {
            *quantised = match scale {
                // libvmaf lists these two instead of computing them (36451, 49414).
                0 if exact_default => [36453, 49417],
                0 => [quantise(weight[0], 21, MAX_WEIGHT0[0])?, quantise(weight[1], 23, MAX_WEIGHT0[1])?],
                _ => [quantise(weight[0], 32, MAX_WEIGHT)?, quantise(weight[1], 32, MAX_WEIGHT)?],
            };
        }
        Ok(AdmPass { gain_limit: self.enhn_gain_limit, weights, aim: aim && !self.skip_aim })
    }

    fn display(&self) -> f64 {
        self.norm_view_dist * f64::from(self.ref_display_height)
    }

    /// Computes the contrast sensitivity of scales 0 to 3: for the h and v bands, and for the d band.
    fn weights(&self) -> Result<[[f32; 2]; 4], AdmError> {
        if self.display() < MIN_DISPLAY {
            return Err(AdmError::DisplayTooClose(self.display()));
        }
        let table: &[Blend] = match self.csf_mode {
            CsfMode::Watson => {
                return Ok(std::array::from_fn(|s| [0, 1].map(|b| watson(s, b, self.display()))));
            }
            CsfMode::Barten => {
                let factors = [self.csf_scale, self.csf_diag_scale];
                return Ok(std::array::from_fn(|s| factors.map(|f| barten(s, self.display(), f))));
            }
            CsfMode::Blend => &BLEND,
            CsfMode::BlendMae => &BLEND_MAE,
        };
        let (height, distance) = (self.ref_display_height, self.norm_view_dist);
        table
            .iter()
            .find(|(displays, ..)| displays.contains(&(height, distance)))
            .map(|(_, hv, d)| std::array::from_fn(|s| [hv[s], d[s]]))
            .ok_or(AdmError::NoTable { height, distance })
    }
}

/// Largest quantised weights of scale 0, for h and v, and d. Up to these, weighted coefficients and side terms fit 16
/// bits, and squares of masked coefficients fit 32 bits.
const MAX_WEIGHT0: [u32; 2] = [40_000, 54_000];
/// Largest quantised weight of scales 1 to 3: signed 32 bits.
const MAX_WEIGHT: u32 = i32::MAX as u32;

fn quantise(weight: f32, bits: i32, max: u32) -> Result<u32, AdmError> {
    let scaled = f64::from(weight) * exp2(bits);
    // NaN fails the comparison, as it should.
    if scaled >= 0.0 && scaled < f64::from(max) + 1.0 {
        Ok(scaled as u32)
    } else {
        Err(AdmError::Weight(weight))
    }
}

/// Computes the sensitivity after Watson et al. 1997, luma: `kind` 0 for the h and v bands, 1 for d.
pub(super) fn watson(scale: usize, kind: usize, display: f64) -> f32 {
    const AMPLITUDE: [[f32; 4]; 2] =
        [[0.67234, 0.41317, 0.22727, 0.11792], [0.72709, 0.49428, 0.28688, 0.15214]];
    const A: f32 = 0.495;
    const K: f32 = 0.466;
    const F0: f32 = 0.401;
    const G: [f32; 2] = [1.0, 0.534];
    let pixels_per_degree = (display * PI / 180.0) as f32;
    let frequency = exp2(scale as i32 + 1) * f64::from(F0) * f64::from(G[kind]);
    let tau = (frequency / f64::from(pixels_per_degree)).log10() as f32;
    let exponent = K * tau * tau;
    let threshold =
        (2.0 * f64::from(A) * 10f64.powf(exponent.into()) / f64::from(AMPLITUDE[kind][scale])) as f32;
    1.0 / threshold
}

/// Computes the sensitivity after Barten 1999 with the optics of Watson 2013, for 100 cd/m², times `factor`.
///
/// The mixture of single and double precision is libvmaf's.
pub(super) fn barten(scale: usize, display: f64, factor: f64) -> f32 {
    const LUMINANCE: f64 = 100.0;
    let f = f64::from;
    let frequency = (f((display * PI / 180.0) as f32) / exp2(scale as i32 + 1)) as f32;
    // Parameters fitted at 20 and at 150 cd/m², interpolated over the logarithm.
    let [low, high, at] = [20.0, 150.0, LUMINANCE].map(|l| f64::log10(l) as f32);
    let [p0, p1, p2, p3] =
        [(0.334278f32, 0.394533f32), (3.79542, 2.7755), (1.07327, 1.16577), (6.4635, 7.45665)]
            .map(|(a, b)| a + (b - a) / (high - low) * (at - low));
    let a = (1.0 + f(p0 * frequency).powf(f(p1))) as f32;
    let b = (1.0 / (1.0 - (-f(frequency / 7.0).powf(2.0)).exp()).powf(f(p2))) as f32;
    let neural = (f(p3) / f(a * b).powf(0.5)) as f32;
    let optics = [
        (0.424_838_6_f32, 0.028f32),
        (0.572_435_1, 0.37),
        (0.000_167_576_24, 37.0),
        (0.002_558_723_5, 360.0),
    ]
    .into_iter()
    .fold(0f32, |sum, (k, d)| (f(sum) + f(k) * f(-d * frequency).exp()) as f32);
    let sensitivity = (f(30.162f32)
        * (f(4.0627f32 / LUMINANCE as f32).powf(f(1.6596f32)) + 1.0).powf(f(-0.2712f32)))
        as f32;
    (f(neural * optics * sensitivity) * factor) as f32
}

/// (Display height, viewing distance) pairs, weights of h and v, weights of d for scales 0 to 3.
type Blend = (&'static [(u32, f64)], [f32; 4], [f32; 4]);

/// Tables of [`CsfMode::Blend`]. libvmaf's rows for smaller displays are left out, as [`MIN_DISPLAY`] excludes them.
static BLEND: [Blend; 5] = [
    (
        &[(1080, 3.0), (2160, 1.5)],
        [0.01183, 0.025026, 0.04295, 0.058621],
        [0.004302, 0.011778, 0.023918, 0.035901],
    ),
    (&[(1080, 5.0)], [0.004212, 0.014809, 0.029642, 0.047464], [0.000984, 0.005852, 0.0146, 0.027574]),
    (&[(2160, 3.0)], [0.00226, 0.01183, 0.025026, 0.04295], [0.000479, 0.004302, 0.011778, 0.023918]),
    (&[(2160, 5.0)], [0.000092, 0.004212, 0.014809, 0.029642], [0.000050, 0.000984, 0.005852, 0.0146]),
    (&[(720, 5.0)], [0.010144, 0.022561, 0.040309, 0.05672], [0.003463, 0.010282, 0.021839, 0.034641]),
];

/// Tables of [`CsfMode::BlendMae`].
static BLEND_MAE: [Blend; 5] = [
    (
        &[(1080, 3.0), (2160, 1.5)],
        [0.011249, 0.022606, 0.035930, 0.045673],
        [0.004097, 0.010921, 0.021430, 0.031313],
    ),
    (&[(1080, 5.0)], [0.004052, 0.013939, 0.026298, 0.038833], [0.000927, 0.005544, 0.013415, 0.024515]),
    (&[(2160, 3.0)], [0.002166, 0.011249, 0.022606, 0.035930], [0.000447, 0.004097, 0.010921, 0.021430]),
    (&[(2160, 5.0)], [0.000077, 0.004052, 0.013939, 0.026298], [0.000045, 0.000927, 0.005544, 0.013415]),
    (&[(720, 5.0)], [0.009689, 0.020577, 0.034162, 0.044523], [0.003302, 0.009579, 0.019661, 0.030318]),
];

/// Pixel work for ADM: the pyramids and the denominator once, a numerator for each distinct pass.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmWork {
    /// Parameters of the numerators.
    pub passes: Vec<AdmPass>,
}

/// One way of weighting and masking: everything in the options that the pixel work depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmPass {
    /// `adm_enhn_gain_limit`, 1.0..=100.0.
    pub gain_limit: f64,
    /// Quantised weights of each scale: the one of the h and v bands, the one of the d band. In units of
    /// 2^-21 and 2^-23, at most 40000 and 54000 at scale 0; of 2^-32 and below 2^31 at the others.
    pub weights: [[u32; 2]; 4],
    /// The additive impairment (`aim`, `adm3`) is needed besides the restored detail (`adm2`).
    pub aim: bool,
}

/// Extents and shifts of one scale of the wavelet pyramid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmScale {
    /// Coefficients per row of each band.
    pub width: usize,
    /// Rows of each band.
    pub height: usize,
    /// The rows that are scored.
    pub rows: Range<usize>,
    /// The columns that are scored.
    pub columns: Range<usize>,
    /// How the cubes in the numerators are shifted.
    pub numerator: CubeShifts,
    /// How the cubes in the denominator are shifted, which depends on the reference alone.
    pub reference: CubeShifts,
}

impl AdmScale {
    /// Returns the columns whose coefficients the scores depend on. Masking reads one column beyond the scored ones.
    pub fn halo_columns(&self) -> Range<usize> {
        halo(&self.columns, self.width)
    }

    /// Returns the rows whose coefficients the scores depend on.
    pub fn halo_rows(&self) -> Range<usize> {
        halo(&self.rows, self.height)
    }
}

/// How cubes are scaled down, for the bands h, v, d: `x·x >> square`, `· x >> cube`, row sum `>> row`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CubeShifts {
    pub square: [u32; 3],
    pub cube: [u32; 3],
    pub row: u32,
}

/// Computes the four scales of a frame of `width` x `height` luma samples, both at least 1.
pub fn scales(width: usize, height: usize) -> [AdmScale; 4] {
    let mut extent = (width, height);
    std::array::from_fn(|scale| {
        extent = (extent.0.div_ceil(2), extent.1.div_ceil(2));
        let (width, height) = extent;
        let (rows, columns) = (scored(height), scored(width));
        let cube = match scale {
            0 => [4, 4, 3].map(|unit| ceil_log2(width).saturating_sub(unit)),
            _ => [ceil_log2(width); 3],
        };
        let square = if scale == 0 { [29, 29, 30] } else { [30; 3] };
        let numerator = CubeShifts { square, cube, row: ceil_log2(height) };
        let reference = match scale {
            0 => CubeShifts {
                square: [0; 3],
                cube: [0; 3],
                row: ceil_log2(rows.len() * columns.len()).saturating_sub(20),
            },
            _ => CubeShifts {
                square: [if scale == 2 { 30 } else { 31 }; 3],
                cube: [ceil_log2(columns.len()); 3],
                row: ceil_log2(rows.len()),
            },
        };
        AdmScale { width, height, rows, columns, numerator, reference }
    })
}

/// Returns a range with one neighbour on each side, where there is one.
fn halo(range: &Range<usize>, extent: usize) -> Range<usize> {
    range.start.saturating_sub(1)..(range.end + 1).min(extent)
}

/// Returns the part of a band that is scored: all but about a tenth at each end.
fn scored(extent: usize) -> Range<usize> {
    let margin = extent.saturating_sub(5) / 10;
    margin..extent - margin
}

/// Returns the smallest exponent of a power of two that is at least `n`.
fn ceil_log2(n: usize) -> u32 {
    n.next_power_of_two().trailing_zeros()
}

/// The sums of one scale for the three bands h, v, d: the `acc` of the specification.
pub type BandSums = [i64; 3];

/// The sums that a backend returns for ADM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmSums {
    /// Scales 0 to 3 of the denominator; independent of all options.
    pub reference: [BandSums; 4],
    /// One for each pass of [`AdmWork`], in its order.
    pub passes: Vec<AdmPassSums>,
}

/// Numerator sums of one pass, scales 0 to 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmPassSums {
    /// Restored detail masked by the additive part: the numerator of `adm2`.
    pub restored: [BandSums; 4],
    /// Additive part masked by the restored detail: the numerator of `aim`.
    pub additive: Option<[BandSums; 4]>,
}

/// Features of one frame pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmScores {
    /// Restored detail relative to the reference; about 1 for equal frames, can exceed 1.
    pub adm2: f64,
    /// Additive impairment relative to the reference, 0 for equal frames; if the pass computed it.
    pub aim: Option<f64>,
    /// Mixture of both, at least `min_val`; if the pass computed `aim`.
    pub adm3: Option<f64>,
    /// `adm2` of each scale alone; not a number where the reference is flat and the noise weight 0.
    pub scale: [f64; 4],
}

/// Turns the sums of frames of one size into features for one set of options.
#[derive(Clone, Debug)]
pub struct AdmScorer {
    options: AdmOptions,
    scales: [AdmScale; 4],
    /// Cubed weights of the bands h, v, d.
    cubed_weights: [[f64; 3]; 4],
    /// Amount that the noise adds to each band.
    noise: [f32; 4],
    /// Smaller totals count as zero.
    limit: f64,
}

impl AdmScorer {
    /// Prepares for frames of `width` x `height` luma samples.
    pub fn new(options: AdmOptions, width: usize, height: usize) -> Result<Self, AdmError> {
        let scales = scales(width, height);
        let cube = |weight: f32| f64::from(weight) * f64::from(weight) * f64::from(weight);
        Ok(Self {
            cubed_weights: options.weights()?.map(|[hv, d]| [cube(hv), cube(hv), cube(d)]),
            noise: scales.each_ref().map(|scale| {
                root(((scale.rows.len() * scale.columns.len()) as f64 * options.noise_weight) as f32)
            }),
            limit: limit(width, height),
            scales,
            options,
        })
    }

    /// Computes the features from the denominator sums of [`AdmSums`] and the sums of the pass for these options.
    pub fn scores(&self, reference: &[BandSums; 4], pass: &AdmPassSums) -> AdmScores {
        let (restored, detail) = self.fractions(reference, pass);
        let [num, den] = [restored, detail].map(|scales| self.limited(total(scales)));
        let additive = match pass.additive {
            _ if self.options.skip_aim => Some(0.0),
            sums => sums.map(|sums| total(std::array::from_fn(|s| self.numerator(s, &sums[s], 0.0)))),
        };
        // libvmaf leaves aim undefined if the reference has no detail, and reports 0.
        let (adm2, aim) =
            if den == 0.0 { (1.0, additive.map(|_| 0.0)) } else { (num / den, additive.map(|a| a / den)) };
        let AdmOptions { dlm_weight, min_val, .. } = self.options;
        let adm3 = aim.map(|aim| {
            let mixed = adm2 * dlm_weight + (1.0 - aim) * (1.0 - dlm_weight);
            if mixed > min_val { mixed } else { min_val }
        });
        AdmScores {
            adm2,
            aim,
            adm3,
            scale: std::array::from_fn(|s| f64::from(restored[s]) / f64::from(detail[s])),
        }
    }

    /// Returns the restored and the available detail of each scale.
    fn fractions(&self, reference: &[BandSums; 4], pass: &AdmPassSums) -> ([f32; 4], [f32; 4]) {
        let restored = std::array::from_fn(|s| self.numerator(s, &pass.restored[s], self.noise[s]));
        (restored, std::array::from_fn(|s| self.denominator(s, &reference[s])))
    }

    fn limited(&self, total: f64) -> f64 {
        if total < self.limit { 0.0 } else { total }
    }

    fn numerator(&self, scale: usize, sums: &BandSums, noise: f32) -> f32 {
        if scale == 0 && self.options.skip_scale0 {
            return 0.0;
        }
        let shifts = &self.scales[scale].numerator;
        let unit = if scale == 0 { [52, 52, 57] } else { [[45, 39, 36][scale - 1]; 3] };
        sum_bands(|band| {
            let divisor = exp2(unit[band] - (shifts.cube[band] + shifts.row) as i32);
            let acc = sums[band];
            let cubed = if scale == 0 { (acc as f64 / divisor) as f32 } else { acc as f32 / divisor as f32 };
            root(cubed) + noise
        })
    }

    fn denominator(&self, scale: usize, sums: &BandSums) -> f32 {
        if scale == 0 && self.options.skip_scale0 {
            return 1e-10;
        }
        let shifts = &self.scales[scale].reference;
        sum_bands(|band| {
            let divisor = exp2([18, 32, 27, 23][scale] - (shifts.cube[band] + shifts.row) as i32);
            root((sums[band] as f64 / divisor * self.cubed_weights[scale][band]) as f32) + self.noise[scale]
        })
    }
}

/// Returns the total below which frames of this size count as without detail.
pub(super) fn limit(width: usize, height: usize) -> f64 {
    1e-10 * (width * height) as f64 / (1920.0 * 1080.0)
}

/// Sums h, v and d in single precision, in this order.
pub(super) fn sum_bands(part: impl Fn(usize) -> f32) -> f32 {
    part(0) + part(1) + part(2)
}

/// Sums scales 0 to 3 in double precision, in this order.
pub(super) fn total(scales: [f32; 4]) -> f64 {
    scales.into_iter().fold(0.0, |sum, scale| sum + f64::from(scale))
}

/// Returns an exact power of two, for exponents far inside the range of `f64`.
pub(super) fn exp2(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Computes `powf(x, 1/3)` in single precision with the bits of glibc on every platform; 0 for 0.
///
/// The exponent is the single next to one third, and the result is not always the correctly rounded one. Method and
/// constants are those of powf in the Arm optimized routines (MIT), which glibc uses.
pub(super) fn root(x: f32) -> f32 {
    const THIRD: f64 = (1f32 / 3f32) as f64;
    /// Reciprocal of the middle of a sixteenth of the mantissa range, and its binary logarithm, negated.
    #[rustfmt::skip]
    const LOG_TABLE: [(f64, f64); 16] = [
        (1.398907162146528, -0.48430022186289673), (1.3403141896637998, -0.42257122959194704),
        (1.286432210124115, -0.3633754347673556), (1.2367150214269895, -0.30651309567405577),
        (1.1906977166711752, -0.25180720160537634), (1.1479821020556429, -0.19910014943794563),
        (1.1082251448272158, -0.14825100623281615), (1.0711297413057381, -0.09913323807318392),
        (1.036437278977283, -0.051632812977629436), (1.0, 0.0),
        (0.9492859795739057, 0.07508531937943004), (0.8951049428609004, 0.15987125980713107),
        (0.8476821620351103, 0.2384046664317681), (0.8050314851692001, 0.31288288605863257),
        (0.7664671008843108, 0.38370422656453185), (0.731428603316328, 0.451211048935815),
    ];
    /// Binary logarithm of 1 + t, without the constant term, highest power first.
    const LOG: [f64; 5] =
        [0.288457581109214, -0.36092606229713164, 0.480898481472577, -0.7213474675006291, 1.4426950408774342];
    /// 2^d, without the constant term, highest power first.
    const EXP: [f64; 3] = [0.05550361559341535, 0.2402284522445722, 0.6931471806916203];
    /// 2^(n/32).
    #[rustfmt::skip]
    const EXP_TABLE: [f64; 32] = [
        1.0, 1.0218971486541166, 1.0442737824274138, 1.0671404006768237,
        1.0905077326652577, 1.1143867425958924, 1.1387886347566916, 1.1637248587775775,
        1.189207115002721, 1.215247359980469, 1.241857812073484, 1.2690509571917332,
        1.2968395546510096, 1.3252366431597413, 1.3542555469368927, 1.383909881963832,
        SQRT_2, 1.4451808069770467, 1.4768261459394993, 1.5091644275934228,
        1.5422108254079407, 1.5759808451078865, 1.6104903319492543, 1.645755478153965,
        1.681792830507429, 1.718619298122478, 1.7562521603732995, 1.7947090750031072,
        1.8340080864093424, 1.8741676341103, 1.9152065613971474, 1.9571441241754002,
    ];
    if x <= 0.0 {
        return 0.0;
    }
    if !x.is_finite() {
        return x;
    }
    // Numbers below the normal ones get an exponent below the range of singles.
    let bits = if x < f32::MIN_POSITIVE {
        (x * (1u32 << 23) as f32).to_bits().wrapping_sub(23 << 23)
    } else {
        x.to_bits()
    };
    let offset = bits.wrapping_sub(0x3f33_0000);
    let exponent = offset as i32 >> 23;
    let (inverse, log) = LOG_TABLE[(offset >> 19) as usize & 15];
    let mantissa = f32::from_bits(bits.wrapping_sub((exponent as u32) << 23));
    let t = f64::from(mantissa) * inverse - 1.0;
    let t2 = t * t;
    let log2 = (LOG[0] * t + LOG[1]) * (t2 * t2)
        + ((LOG[2] * t + LOG[3]) * t2 + (LOG[4] * t + (log + f64::from(exponent))));
    let e = THIRD * log2;
    let n = (e * 32.0).round_ties_even();
    let d = e - n / 32.0;
    let n = n as i32;
    let power = EXP_TABLE[n.rem_euclid(32) as usize] * exp2(n.div_euclid(32));
    (((EXP[0] * d + EXP[1]) * (d * d) + (EXP[2] * d + 1.0)) * power) as f32
}

/// The additive detail measure.
pub struct Adm;

impl Metric for Adm {
    const NAME: &'static str = "adm";
    type Work = AdmWork;
    type Sums = AdmSums;

    fn check(_work: &AdmWork, geometry: Geometry) -> Result<(), Misfit> {
        Misfit::at_least("ADM", MIN_SIZE, geometry)
    }
}

impl Options for AdmOptions {
    const EXTRACTOR: &'static str = "adm";
    const TABLE: &'static [Row<Self>] = &[
        float("adm_csf_diag_scale", Some("scfd"), |o| &mut o.csf_diag_scale, 0.0..=50.0),
        int(
            "adm_csf_mode",
            Some("csf"),
            |o| o.csf_mode as u32,
            |o, number| CsfMode::from_number(number).map(|mode| o.csf_mode = mode),
            0..=3,
        ),
        float("adm_csf_scale", Some("scf"), |o| &mut o.csf_scale, 0.0..=50.0),
        float("adm_dlm_weight", Some("dlmw"), |o| &mut o.dlm_weight, 0.0..=1.0),
        float("adm_enhn_gain_limit", Some("egl"), |o| &mut o.enhn_gain_limit, 1.0..=100.0),
        float("adm_min_val", Some("min"), |o| &mut o.min_val, 0.0..=1.0),
        float("adm_noise_weight", Some("nw"), |o| &mut o.noise_weight, 0.0..=1500.0),
        float("adm_norm_view_dist", Some("nvd"), |o| &mut o.norm_view_dist, 0.75..=24.0),
        number!("adm_ref_display_height", Some("rdh"), ref_display_height, 1..=4320),
        bool("adm_skip_aim", None, |o| &mut o.skip_aim),
        bool("adm_skip_scale0", Some("ssz"), |o| &mut o.skip_scale0),
    ];
}

/// Identifies a feature of [`AdmOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmOutput {
    Adm2,
    Aim,
    Adm3,
    /// Scale 0..=3.
    Scale(usize),
}

impl Extract for AdmOptions {
    type Output = AdmOutput;
    const FEATURES: &'static [(&'static str, AdmOutput)] = &[
        ("integer_adm2", AdmOutput::Adm2),
        ("integer_aim", AdmOutput::Aim),
        ("integer_adm3", AdmOutput::Adm3),
        ("integer_adm_scale0", AdmOutput::Scale(0)),
        ("integer_adm_scale1", AdmOutput::Scale(1)),
        ("integer_adm_scale2", AdmOutput::Scale(2)),
        ("integer_adm_scale3", AdmOutput::Scale(3)),
    ];
    const ABOUT: &'static [About] = &[
        About {
            reported: "`integer_adm2`, `integer_adm_scale0` to `3`",
            tells: "detail that survived, weighted by what the eye can see",
            range: "0 to about 1",
            equal: "about 1",
            source: "S. Li et al., IEEE Trans. Multimedia 2011",
        },
        About {
            reported: "`integer_aim`",
            tells: "what was added (noise, blocks) relative to the detail",
            range: "0 up",
            equal: "0",
            source: "",
        },
        About {
            reported: "`integer_adm3`",
            tells: "both in one number",
            range: "`adm_min_val` to about 1",
            equal: "about 1",
            source: "",
        },
    ];

    fn is_costly(output: AdmOutput) -> bool {
        matches!(output, AdmOutput::Aim | AdmOutput::Adm3)
    }

    fn plan(&self, costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        let new = self
            .pass(costly)
            .map_err(|error| format!("the ADM options of a model or feature cannot be used: {error}"))?;
        let pass = work.extend::<Adm, _>(AdmWork { passes: vec![] }, |AdmWork { passes }| {
            let same = |pass: &AdmPass| pass.gain_limit == new.gain_limit && pass.weights == new.weights;
            let pass = passes.iter().position(same).unwrap_or(passes.len());
            match passes.get_mut(pass) {
                Some(pass) => pass.aim |= costly,
                None => passes.push(new),
            }
            pass
        });
        Ok(Box::new(AdmSource { options: *self, pass }))
    }
}

/// `pass`: index in [`AdmWork::passes`].
#[derive(Clone, Copy, Debug)]
struct AdmSource {
    options: AdmOptions,
    pass: usize,
}

impl Source for AdmSource {
    fn part(&self) -> String {
        format!(" pass {}", self.pass)
    }

    fn scorer(&self, Geometry { width, height, .. }: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        let Self { options, pass } = *self;
        let scorer = AdmScorer::new(options, width, height)?;
        Ok(plain(move |sums| {
            let sums = sums.get::<Adm>().and_then(|sums| Some((&sums.reference, sums.passes.get(pass)?)));
            let scores = sums.map(|(reference, pass)| scorer.scores(reference, pass));
            let value = |scores: &AdmScores, output| match output {
                AdmOutput::Adm2 => Some(scores.adm2),
                AdmOutput::Aim => scores.aim,
                AdmOutput::Adm3 => scores.adm3,
                AdmOutput::Scale(scale) => Some(scores.scale[scale]),
            };
            AdmOptions::values(|output| scores.as_ref().and_then(|s| value(s, output)).unwrap_or(f64::NAN))
        }))
    }

    fn fractions(&self, sums: &FrameSums, geometry: Geometry) -> Result<Vec<(String, f64)>, OptionsError> {
        let scorer = AdmScorer::new(self.options, geometry.width, geometry.height)?;
        let found = sums.get::<Adm>().and_then(|sums| Some((&sums.reference, sums.passes.get(self.pass)?)));
        let Some((reference, pass)) = found else { return Ok(vec![]) };
        let (restored, detail) = scorer.fractions(reference, pass);
        let all = [restored, detail].map(|scales| scorer.limited(total(scales)));
        let scales = std::array::from_fn(|s| [restored[s], detail[s]]);
        Ok(fractions("integer_adm", scorer.scores(reference, pass).adm2, all, scales))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default() -> AdmOptions {
        AdmOptions::default()
    }

    /// Compares with libvmaf's weights, as bit patterns, and their quantised values.
    #[test]
    fn known_weights() {
        let blend = AdmOptions { csf_mode: CsfMode::Blend, ..default() };
        let mae = AdmOptions { csf_mode: CsfMode::BlendMae, norm_view_dist: 5.0, ..default() };
        let far = AdmOptions { norm_view_dist: 5.0, ..default() };
        let barten =
            AdmOptions { csf_mode: CsfMode::Barten, csf_scale: 1e-3, csf_diag_scale: 2e-3, ..default() };
        #[rustfmt::skip]
        let expected = [
            (
                default(),
                [[0x3c8e63ba, 0x3bc106aa], [0x3d030286, 0x3c6a46a3], [0x3d31a788, 0x3cc7dc06], [0x3d3b140b, 0x3d0041c9]],
                [[36453, 49417], [137373792, 61414028], [186284160, 104783920], [196165808, 134487184]],
            ),
            (
                blend,
                [[0x3c41d29e, 0x3b8cf7cb], [0x3ccd0353, 0x3c40f883], [0x3d2fec57, 0x3cc3efae], [0x3d701c93, 0x3d130ced]],
                [[24809, 36087], [107485848, 50586124], [184468848, 102727024], [251775280, 154193616]],
            ),
            (
                far,
                [[0x3be01b27, 0x3b056bff], [0x3c6df82c, 0x3bbae33c], [0x3cba3608, 0x3c380033], [0x3ce24e24, 0x3c884687]],
                [[14342, 17077], [62382256, 24495736], [97628224, 48234700], [118649120, 71447608]],
            ),
            (
                mae,
                [[0x3b84c6a4, 0x3a7301eb], [0x3c646067, 0x3bb5aa71], [0x3cd76ee7, 0x3c5bca97], [0x3d1f0f5a, 0x3cc8d3ae]],
                [[8497, 7776], [59867548, 23811298], [112949048, 57616988], [166786464, 105291120]],
            ),
            (
                barten,
                [[0x3a9ea986, 0x3b1ea986], [0x3ba5393a, 0x3c25393a], [0x3c6fa65b, 0x3cefa65b], [0x3cdcfc86, 0x3d5cfc86]],
                [[2538, 20308], [21656180, 43312360], [62822764, 125645528], [115860528, 231721056]],
            ),
        ];
        for (options, bits, weights) in expected {
            assert_eq!(options.weights().unwrap().map(|pair| pair.map(f32::to_bits)), bits, "{options:?}");
            assert_eq!(options.pass(true).unwrap().weights, weights, "{options:?}");
        }
        let same = AdmOptions { norm_view_dist: 1.5, ref_display_height: 2160, ..blend };
        assert_eq!(same.pass(true), blend.pass(true));
    }

    #[test]
    fn unusable_options_are_refused() {
        let near = AdmOptions { norm_view_dist: 2.9, ..default() };
        assert_eq!(near.pass(false), Err(AdmError::DisplayTooClose(2.9 * 1080.0)));
        let unknown = AdmOptions { csf_mode: CsfMode::Blend, norm_view_dist: 4.0, ..default() };
        assert_eq!(unknown.pass(false), Err(AdmError::NoTable { height: 1080, distance: 4.0 }));
        let barten = AdmOptions { csf_mode: CsfMode::Barten, ..default() };
        assert!(matches!(barten.pass(false), Err(AdmError::Weight(_))));
        assert_eq!(CsfMode::from_number(3), Some(CsfMode::BlendMae));
        assert_eq!(CsfMode::from_number(4), None);
    }

    /// Compares with results of glibc's powf; the last four before those at the ends of the range are not the correctly rounded powers.
    #[test]
    fn root_has_the_bits_of_powf() {
        let known = [
            (0x00000000, 0x00000000),
            (0x2edbe6ff, 0x39f35a56),
            (0x3f000000, 0x3f4b2ff5),
            (0x3f800000, 0x3f800000),
            (0x40490fd0, 0x3fbb77bc),
            (0x41d80000, 0x40400000),
            (0x47f12065, 0x42472c6f),
            (0x60ad78ec, 0x4a8da66e),
            (0x30eb7c2a, 0x3a9cd76d),
            (0x4c228713, 0x43aea1ff),
            (0x5383d71f, 0x4622ddee),
            (0x5702deb8, 0x474cb1df),
            (0x00000001, 0x26a1450d),
            (0x00002345, 0x28d1e252),
            (0x007fffff, 0x2a7ffff1),
            (0x00800000, 0x2a7ffff1),
            (0x7f7fffff, 0x54cb3001),
            (0x7f800000, 0x7f800000),
        ];
        for (x, y) in known {
            assert_eq!(root(f32::from_bits(x)).to_bits(), y, "{x:#x}");
        }
    }

    #[test]
    fn scored_part_and_shifts_of_full_hd() {
        let [first, .., last] = scales(1920, 1080);
        assert_eq!((first.rows.clone(), first.columns.clone()), (53..487, 95..865));
        assert_eq!(first.halo_columns(), 94..866);
        assert_eq!(first.numerator, CubeShifts { square: [29, 29, 30], cube: [6, 6, 7], row: 10 });
        assert_eq!(first.reference, CubeShifts { square: [0; 3], cube: [0; 3], row: 0 });
        assert_eq!((last.width, last.height), (120, 68));
        assert_eq!(last.numerator, CubeShifts { square: [30; 3], cube: [7; 3], row: 7 });
        assert_eq!(last.reference, CubeShifts { square: [31; 3], cube: [7; 3], row: 6 });
        // Too narrow for a margin: all columns are scored and none lies outside.
        let [.., tiny] = scales(64, 64);
        assert_eq!(tiny.rows, 0..4);
    }

    #[test]
    fn a_flat_reference_scores_by_the_noise_alone() {
        let sums = [[0; 3]; 4];
        let pass = AdmPassSums { restored: sums, additive: Some(sums) };
        let scores = AdmScorer::new(default(), 576, 324).unwrap().scores(&sums, &pass);
        assert_eq!((scores.adm2, scores.aim, scores.adm3), (1.0, Some(0.0), Some(1.0)));
        let silent = AdmOptions { noise_weight: 0.0, ..default() };
        let scores = AdmScorer::new(silent, 576, 324).unwrap().scores(&sums, &pass);
        assert_eq!((scores.adm2, scores.aim, scores.adm3), (1.0, Some(0.0), Some(1.0)));
        assert!(scores.scale[0].is_nan());
    }

    #[test]
    fn aim_is_optional() {
        let pass = AdmPassSums { restored: [[1 << 40; 3]; 4], additive: None };
        let reference = [[1 << 40; 3]; 4];
        let scores = |options| AdmScorer::new(options, 576, 324).unwrap().scores(&reference, &pass);
        assert_eq!((scores(default()).aim, scores(default()).adm3), (None, None));
        let skipped = scores(AdmOptions { skip_aim: true, ..default() });
        assert_eq!((skipped.aim, skipped.adm3), (Some(0.0), Some(skipped.adm2 * 0.5 + 0.5)));
        assert!(!AdmOptions { skip_aim: true, ..default() }.pass(true).unwrap().aim);
    }
}
