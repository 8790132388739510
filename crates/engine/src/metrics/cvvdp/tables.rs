// SPDX-License-Identifier: MPL-2.0

//! Everything that depends only on the size, the display and the rate: computed in double precision, once, and rounded
//! to the single precision of the pixel work.

#![allow(clippy::excessive_precision, reason = "numbers are written as ColorVideoVDP has them")]

use std::f64::consts::{LN_2, LOG2_E};

use super::csf::{FREQUENCIES, SENSITIVITY};
use super::display::{Display, Eotf};
use super::double::{cos_turn, exp2, log2, pow};
use super::heat::Strength;
use super::{BASE_WEIGHTS, CHANNEL_WEIGHTS, CHANNELS, CvvdpWork, Matrix, float};
use crate::frame::Geometry;
use crate::metrics::Misfit;
use crate::video::FrameRate;

/// Added to numbers before norms and powers.
pub const EPSILON: f64 = 1e-5;
/// Rows and columns of masking before and after a sample.
pub const BLUR_HALF: usize = 6;
/// Taps of masking.
pub const BLUR: usize = 2 * BLUR_HALF + 1;
/// Luminances in the table of the sensitivity.
pub const NODES: usize = 32;
/// The weights of the five taps of a reduction.
pub const REDUCE: [f32; 5] = [0.05, 0.25, 0.4, 0.25, 0.05];

const MASK_POWER: f64 = 2.264355182647705;
const MASK_GAIN: f64 = -0.7954971194267273;
const POWERS: [f64; CHANNELS] =
    [1.302622675895691, 2.8885908126831055, 3.6807713508605957, 3.588787317276001];
/// Binary logarithms of the weights between channels: rows for those that mask.
const CROSS: [[f64; CHANNELS]; CHANNELS] = [
    [-0.18950104713439941, -5.962151050567627, -4.31834602355957, -1.9321587085723877],
    [2.5655593872070312, 0.34406712651252747, -2.719646453857422, -0.4970424771308899],
    [3.8118371963500977, -1.0051705837249756, -0.5193376541137695, -0.5653647780418396],
    [-7.054771423339844, -5.527150630950928, -3.5106418132781982, -2.08804988861084],
];
const LARGEST: f64 = 2.5642454624176025;
const SENSITIVITY_DB: f64 = -0.2797423303127289;
const GAINS: [f64; CHANNELS] = [1.0, 1.45, 1.0, 1.0];
const SIGMAS: [f64; CHANNELS] = [5.79336, 14.1255, 6.63661, 0.12314];
const BETAS: [f64; CHANNELS] = [1.3314, 1.1196, 0.947901, 0.1898];
const XYZ_TO_LMS: [[f64; 3]; 3] = [
    [0.187596268556126, 0.585168649077728, -0.026384263306304],
    [-0.133397430663221, 0.405505777260049, 0.034502127690364],
    [0.000244379021663, -0.000542995890619, 0.019406849066323],
];
const LMS_TO_DKL: [[f64; 3]; 3] =
    [[1.0, 1.0, 0.0], [1.0, -2.311130179947035, 0.0], [-1.0, -1.0, 50.977571328718781]];
const BT709_TO_XYZ: [[f64; 3]; 3] =
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]];
const BT2020_TO_XYZ: [[f64; 3]; 3] =
    [[0.6370, 0.1446, 0.1689], [0.2627, 0.6780, 0.0593], [0.0000, 0.0281, 1.0610]];

/// The limits of the samples of a component, and their conversion to a number.
#[derive(Clone, Copy, Debug)]
pub struct Codes {
    pub low: u32,
    pub high: u32,
    pub scale: f32,
    pub offset: f32,
}

/// The conversion of samples to opponent colours.
#[derive(Clone, Debug)]
pub struct Front {
    pub luma: Codes,
    /// Of interpolated chroma, which is 16 times as large; the limits are those of samples.
    pub chroma: Codes,
    /// The weights of Cr in red, of Cb and Cr in green, and of Cb in blue.
    pub matrix: [f32; 4],
    /// True for R'G'B', whose planes are G, B and R: red and blue are without luma, and green is luma alone.
    pub is_rgb: bool,
    pub eotf: Eotf,
    pub peak: f32,
    /// HLG: the exponent of luminance, and the constants of its upper part.
    pub gamma: f32,
    pub hlg: [f32; 3],
    pub colours: [[f32; 3]; 3],
    pub offsets: [f32; 3],
    /// The chroma samples lie in the columns, and in the rows, of luma samples.
    pub cosited: [bool; 2],
}

/// A level of the pyramid.
#[derive(Clone, Debug)]
pub struct Level {
    pub width: usize,
    pub height: usize,
    /// Binary logarithms of the sensitivity of each channel at each luminance, and the steps to the next.
    pub sensitivity: [[f32; NODES]; CHANNELS],
    pub steps: [[f32; NODES]; CHANNELS],
}

/// The constants of masking.
#[derive(Clone, Debug)]
pub struct Masking {
    pub horizontal: [f32; BLUR],
    pub vertical: [f32; BLUR],
    /// The factor in pictures that are too small for the taps.
    pub small: f32,
    pub powers: [f32; CHANNELS],
    /// Weights between channels: rows for those that mask.
    pub cross: [[f32; CHANNELS]; CHANNELS],
    pub offsets: [f32; CHANNELS],
    pub power: f32,
    /// The power of no difference.
    pub zero: f32,
    /// One over the largest difference.
    pub top: f32,
    pub epsilon: f32,
    pub two_epsilons: f32,
    /// The node of a luminance is its binary logarithm, times the first, plus the second.
    pub nodes: [f32; 2],
    pub strength: Strength,
}

/// All tables.
#[derive(Clone, Debug)]
pub struct Tables {
    pub front: Front,
    /// The weights of the frames for each channel, the oldest frame first.
    pub taps: Vec<[f32; CHANNELS]>,
    /// The levels of the pyramid; the last one is the base.
    pub levels: Vec<Level>,
    pub masking: Masking,
}

impl Tables {
    pub fn new(work: &CvvdpWork, geometry: Geometry) -> Result<Self, Misfit> {
        // A still picture has no changes, which then mask and differ nowhere.
        let still = || vec![[1.0, 1.0, 1.0, 0.0]];
        let taps = work.rate()?.map_or_else(still, taps);
        Ok(Self {
            front: Front::new(work, geometry),
            taps,
            levels: levels(geometry, work.options.display),
            masking: Masking::new(),
        })
    }
}

impl Front {
    fn new(work: &CvvdpWork, geometry: Geometry) -> Self {
        let display = work.options.display;
        let bits = geometry.depth.bits();
        let unit = 1u32 << (bits - 8);
        let (k, top) = (f64::from(unit), f64::from(geometry.depth.max()));
        let codes = |low: u32, high: u32, scale: f64, offset: f64| Codes {
            low: low * unit,
            high: if work.full { geometry.depth.max() } else { high * unit },
            scale: scale as f32,
            offset: offset as f32,
        };
        let (luma, chroma) = if work.full {
            let middle = f64::from(1u32 << (bits - 1));
            (codes(0, 0, 1.0 / top, 0.0), codes(0, 0, 1.0 / (16.0 * top), -middle / top))
        } else {
            (
                codes(16, 235, 1.0 / (219.0 * k), -16.0 / 219.0),
                codes(16, 240, 1.0 / (16.0 * 224.0 * k), -128.0 / 224.0),
            )
        };
        let is_rgb = work.matrix == Matrix::Rgb && geometry.chroma.is_some();
        let chroma = if is_rgb { Codes { scale: luma.scale / 16.0, ..luma } } else { chroma };
        let to_xyz = if display.eotf == Eotf::Srgb { &BT709_TO_XYZ } else { &BT2020_TO_XYZ };
        let colours = product(&product(&LMS_TO_DKL, &XYZ_TO_LMS), to_xyz);
        let scale = if display.eotf == Eotf::Pq { 1.0 } else { display.peak - display.black() };
        let base = display.black() + display.reflected();
        let (gamma, hlg) = hlg(display);
        Self {
            luma,
            chroma,
            matrix: match work.matrix {
                Matrix::Bt709 => [1.5748, -0.1873, -0.4681, 1.8556],
                Matrix::Bt2020 => [1.47460, -0.16455, -0.57135, 1.88140],
                Matrix::Bt601 => [1.402, -0.344136, -0.714136, 1.772],
                Matrix::Rgb => [1.0, 0.0, 0.0, 1.0],
            },
            is_rgb,
            eotf: display.eotf,
            peak: display.peak as f32,
            gamma,
            hlg,
            colours: colours.map(|row| row.map(|weight| (weight * scale) as f32)),
            offsets: colours.map(|row| (((row[0] + row[1]) + row[2]) * base) as f32),
            cosited: work.cosited,
        }
    }
}

fn product(a: &[[f64; 3]; 3], b: &[[f64; 3]; 3]) -> [[f64; 3]; 3] {
    a.map(|row| std::array::from_fn(|j| (row[0] * b[0][j] + row[1] * b[1][j]) + row[2] * b[2][j]))
}

/// Returns the exponent of luminance less one, and the constants of the upper part of HLG.
fn hlg(display: &Display) -> (f32, [f32; 3]) {
    let mut gamma = 1.2;
    if display.peak > 1000.0 {
        let log10 = 1.0 / log2(10.0);
        gamma =
            1.2 + 0.42 * (log2(display.peak / 1000.0) * log10) - 0.07623 * (log2(display.lux / 5.0) * log10);
    }
    let a = 0.17883277;
    let b = 1.0 - 4.0 * a;
    let c = 0.5 - a * (log2(4.0 * a) * LN_2);
    ((gamma - 1.0) as f32, [(LOG2_E / a) as f32, (-c * LOG2_E / a) as f32, (b / 12.0) as f32])
}

/// Returns half the number of taps at a rate, less the middle one.
pub fn half(rate: FrameRate) -> u64 {
    u64::from(rate.num()).div_ceil(8 * u64::from(rate.den()))
}

/// Computes the temporal filters: the inverse transforms of responses that are given by frequency.
fn taps(rate: FrameRate) -> Vec<[f32; CHANNELS]> {
    let half = half(rate) as i64;
    let n = 2 * half + 1;
    let fps = f64::from(rate.num()) / f64::from(rate.den());
    let centre = pow(5.0, BETAS[3]);
    let response = |c: usize, k: i64| {
        let x = pow((fps / 2.0) * k as f64 / half as f64, BETAS[c]);
        let d = x - centre;
        let exponent = if c < 3 { -x / SIGMAS[c] } else { -(d * d) / SIGMAS[c] };
        exp2(exponent * LOG2_E)
    };
    let responses: [Vec<f64>; CHANNELS] =
        std::array::from_fn(|c| (0..=half).map(|k| response(c, k)).collect());
    let tap = |k: i64| {
        responses.each_ref().map(|response| {
            let mut sum = 0.0;
            for (j, response) in (0..).zip(response).skip(1) {
                sum += response * cos_turn(j * (k - half), n);
            }
            ((response[0] + 2.0 * sum) / n as f64) as f32
        })
    };
    (0..n).map(tap).collect()
}

/// Returns the sizes of at most `levels` levels of the pyramid.
pub fn sizes(width: usize, height: usize) -> impl Iterator<Item = (usize, usize)> {
    std::iter::successors(Some((width, height)), |(w, h)| Some((w.div_ceil(2), h.div_ceil(2))))
}

/// Returns the centre frequencies of the levels in cycles per degree; the last one is that of the base.
fn frequencies(geometry: Geometry, ppd: f64) -> Vec<f64> {
    let most = (geometry.width.min(geometry.height).max(4).ilog2() - 1) as usize;
    let mut all = vec![1.0 * ppd / 2.0];
    all.extend((0..14).map(|k| 0.3228 * exp2(-f64::from(k)) * ppd / 2.0));
    let lowest = all.iter().position(|frequency| *frequency <= 0.2).map_or(most, |lowest| lowest + 1);
    all.truncate(lowest.min(most));
    all.push(0.1);
    all
}

fn levels(geometry: Geometry, display: &Display) -> Vec<Level> {
    let frequencies = frequencies(geometry, display.ppd);
    let base = frequencies.len() - 1;
    let sizes = sizes(geometry.width, geometry.height);
    let level = |(b, ((width, height), frequency)): (usize, ((usize, usize), f64))| {
        let factor = if b == 0 { 1.0 } else { 2.0 };
        let gains = if b == base { [1.0; CHANNELS] } else { GAINS.map(|gain| gain * factor) };
        let sensitivity = sensitivity(frequency, gains);
        let next = |table: [f32; NODES], i: usize| if i < 31 { table[i + 1] - table[i] } else { 0.0 };
        let steps = sensitivity.map(|table| std::array::from_fn(|i| next(table, i)));
        Level { width, height, sensitivity, steps }
    };
    sizes.zip(frequencies).enumerate().map(level).collect()
}

/// Computes the binary logarithms of the sensitivity of each channel at a frequency.
fn sensitivity(frequency: f64, gains: [f64; CHANNELS]) -> [[f32; NODES]; CHANNELS] {
    let x = log2(frequency);
    let nodes = FREQUENCIES.map(log2);
    let i = (0..30).find(|i| nodes[i + 1] >= x).unwrap_or(30);
    let fraction = (x - nodes[i]) / (nodes[i + 1] - nodes[i]);
    let digits = log2(10.0);
    std::array::from_fn(|c| {
        SENSITIVITY[c].map(|row| {
            let (a, b) = (f64::from(row[i]), f64::from(row[i + 1]));
            let s = a + (b - a) * fraction + SENSITIVITY_DB / 20.0;
            (s * digits + log2(gains[c])) as f32
        })
    })
}

impl Masking {
    fn new() -> Self {
        let ten = log2(10.0);
        let taps: [f64; BLUR] = std::array::from_fn(|i| {
            let j = i as f64 - BLUR_HALF as f64;
            exp2((-0.5 * (j / 3.0) * (j / 3.0)) * LOG2_E)
        });
        let total = taps.iter().fold(0.0, |sum, tap| sum + tap);
        let gain = exp2(MASK_GAIN * ten);
        let (dark, bright) = (log2(0.005), log2(10000.0));
        let epsilon = EPSILON as f32;
        let power = MASK_POWER as f32;
        let offset = |o: usize| {
            let masked = |rest: f64, i: usize| rest - exp2(CROSS[i][o]) * pow(EPSILON, POWERS[i]);
            (0..CHANNELS).fold(1.0, masked) as f32
        };
        Self {
            horizontal: taps.map(|tap| (tap / total) as f32),
            vertical: taps.map(|tap| (tap / total * gain) as f32),
            small: gain as f32,
            powers: POWERS.map(|power| power as f32),
            cross: CROSS.map(|row| row.map(|weight| exp2(weight) as f32)),
            offsets: std::array::from_fn(offset),
            power,
            zero: float::pow(epsilon, power),
            top: (1.0 / exp2(LARGEST * ten)) as f32,
            epsilon,
            two_epsilons: (2.0 * EPSILON) as f32,
            nodes: [(31.0 / (bright - dark)) as f32, (-dark * 31.0 / (bright - dark)) as f32],
            strength: strength(epsilon),
        }
    }
}

fn strength(epsilon: f32) -> Strength {
    let weights = CHANNEL_WEIGHTS.map(|weight| weight as f32);
    let base = std::array::from_fn(|channel| (CHANNEL_WEIGHTS[channel] * BASE_WEIGHTS[channel]) as f32);
    let mut strength = Strength { weights, base, epsilon, zero: 0.0 };
    let none = weights.iter().fold(epsilon, |sum, weight| strength.add(sum, 0.0, *weight));
    strength.zero = Strength::norm(none);
    strength
}
