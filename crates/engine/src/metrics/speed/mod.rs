// SPDX-License-Identifier: MPL-2.0

//! SpEED chroma: the difference of the spatial entropy of Cb and Cr between the pictures, at a sixteenth of their size.
//!
//! Formulas, constants and the order of all floating point operations are those of libvmaf 3.2.0's `speed_chroma`
//! (BSD-2-Clause-Patent) in its plain C form.

mod entropy;
mod four;
mod linear;
pub mod temporal;

use std::f64::consts::PI;

use self::entropy::LOG2_2PIE;
use super::extractor::{About, Extract};
use super::metric::{self, Metric};
use super::options::{Options, Row, float, name, number};
use super::score::{OptionsError, Scorer, Source, plain};
use super::work::{Work, place};
use crate::frame::{BitDepth, Geometry};

/// Width and height of a block.
pub const BLOCK: usize = 5;
/// Samples of a block.
pub const ELEMENTS: usize = BLOCK * BLOCK;
/// Decimation of the chroma planes, as a power of two.
const DECIMATION: u32 = 4;

/// How a plane is resampled to the prescaled size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// The nearest sample.
    #[default]
    Nearest,
    /// A weighted sum of 2 x 2 samples.
    Bilinear,
    /// A weighted sum of 4 x 4 samples.
    Bicubic,
    /// A weighted sum of 8 x 8 samples.
    Lanczos4,
}

impl Method {
    /// Values of `speed_prescale_method`, in the order of the variants.
    pub const NAMES: [&str; 4] = ["nearest", "bilinear", "bicubic", "lanczos4"];

    /// Returns libvmaf's name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Finds the method with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Nearest, Self::Bilinear, Self::Bicubic, Self::Lanczos4];
        all.into_iter().find(|method| method.name() == name)
    }
}

/// Options of libvmaf's `speed_chroma`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeedOptions {
    /// `speed_kernelscale`: factor on the length of the low-pass filters, one of `KERNEL_SCALES`.
    pub kernel_scale: f64,
    /// `speed_max_val`: largest result.
    pub max_val: f64,
    /// `speed_nn_floor`: minimum difference between the entropy of a block and that of noise.
    pub nn_floor: f64,
    /// `speed_prescale`: scaling factor of the planes before all other steps.
    pub prescale: f64,
    /// `speed_prescale_method`.
    pub prescale_method: Method,
    /// `speed_sigma_nn`: variance of the neural noise, in squared 8-bit steps.
    pub sigma_nn: f64,
    /// `speed_weight_var_mode`: which variances weight the entropies, 0..=6.
    pub weight_var_mode: u32,
}

impl Default for SpeedOptions {
    fn default() -> Self {
        Self {
            kernel_scale: 1.0,
            max_val: 1000.0,
            nn_floor: 0.0,
            prescale: 1.0,
            prescale_method: Method::default(),
            sigma_nn: 0.29,
            weight_var_mode: 0,
        }
    }
}

/// Values of `speed_kernelscale`.
pub const KERNEL_SCALES: [f64; 21] = [
    1.0,
    1.0 / 2.0,
    3.0 / 2.0,
    2.0,
    2.0 / 3.0,
    2.4,
    360.0 / 97.0,
    4.0 / 3.0,
    3.5 / 3.0,
    3.75 / 3.0,
    4.25 / 3.0,
    5.0 / 3.0,
    3.0,
    1.0 / 2.25,
    1.4746,
    1.54,
    1.6,
    1.06667,
    0.711111,
    0.740740,
    1.111111,
];

/// Reasons why options cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpeedError {
    #[error("libvmaf knows no speed_kernelscale of {0}; among others it knows 0.5, 1, 1.5, 2 and 3")]
    KernelScale(f64),
}

/// How a plane is reduced to a small image. Statistics of planes depend on nothing else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlaneScaling {
    kernel_scale: f64,
    /// Factor and method, if the planes are resampled.
    prescale: Option<(f64, Method)>,
}

/// The statistics to compute, one set for each scaling.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeedWork {
    /// The distinct scalings.
    pub scalings: Vec<PlaneScaling>,
    /// Variances of the neural noise for which entropies are needed; see [`SpeedOptions::sigma`].
    pub sigmas: Vec<f32>,
}

impl SpeedOptions {
    /// Returns the variance of the neural noise in the precision of the entropies.
    pub fn sigma(&self) -> f32 {
        self.sigma_nn as f32
    }

    /// Returns how the planes are scaled.
    pub fn scaling(&self) -> Result<PlaneScaling, SpeedError> {
        // The tolerance is libvmaf's in both cases.
        let is = |value: f64, other: f64| (value - other).abs() < 1e-3;
        if !KERNEL_SCALES.iter().any(|scale| is(self.kernel_scale, *scale)) {
            return Err(SpeedError::KernelScale(self.kernel_scale));
        }
        let prescale = (!is(self.prescale, 1.0)).then_some((self.prescale, self.prescale_method));
        Ok(PlaneScaling { kernel_scale: self.kernel_scale, prescale })
    }
}

/// Reasons why the planes of a format have no statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeedMisfit {
    NoChroma,
    /// Planes of this size are too small; each side needs `min` samples.
    TooSmall {
        width: usize,
        height: usize,
        min: usize,
    },
}

impl PlaneScaling {
    /// Returns the length of an axis after prescaling.
    fn prescaled(&self, samples: usize) -> usize {
        self.prescale.map_or(samples, |(factor, _)| (samples as f64 * factor + 0.5) as usize)
    }

    /// Returns the size of the chroma planes of this geometry if they have statistics.
    fn fits(&self, geometry: Geometry) -> Result<(usize, usize), SpeedMisfit> {
        self.fits_plane(geometry.without_half_samples().chroma.ok_or(SpeedMisfit::NoChroma)?)
    }

    /// Returns the size of a plane if it has statistics.
    fn fits_plane(&self, (width, height): (usize, usize)) -> Result<(usize, usize), SpeedMisfit> {
        let enough = |samples: usize| self.prescaled(samples) >> DECIMATION >= BLOCK;
        if enough(width) && enough(height) {
            return Ok((width, height));
        }
        let min = (1..).find(|samples| enough(*samples)).unwrap_or(usize::MAX);
        Err(SpeedMisfit::TooSmall { width, height, min })
    }

    /// Computes the tables for the chroma planes of this geometry.
    pub fn layout(&self, geometry: Geometry) -> Result<Layout, SpeedMisfit> {
        Ok(self.layout_of(self.fits(geometry)?, geometry.depth))
    }

    /// Computes the tables for a plane that fits.
    fn layout_of(&self, (width, height): (usize, usize), depth: BitDepth) -> Layout {
        let size = filter_size(9, self.kernel_scale);
        let small = filter_size(2, self.kernel_scale);
        // An axis that keeps its size is resampled if the other one is.
        let resampled = [width, height].iter().any(|samples| self.prescaled(*samples) != *samples);
        let method = self.prescale.filter(|_| resampled).map(|(_, method)| method);
        let [x, y] = [width, height].map(|samples| self.axis(samples, size, method));
        let blocks = (x.size / BLOCK, y.size / BLOCK);
        Layout {
            blocks,
            low_pass: gaussian(size, (2.0 * size as f64 / 5.0) as f32),
            local_mean: gaussian(small, small as f32 / 5.0),
            normalised: method == Some(Method::Lanczos4),
            unit: depth.unit(),
            x,
            y,
        }
    }

    /// Computes the sources of an axis of `samples` samples for a low-pass filter of this length.
    fn axis(&self, samples: usize, filter: usize, method: Option<Method>) -> Axis {
        let scaled = self.prescaled(samples);
        let size = scaled >> DECIMATION;
        let mut sources = vec![];
        for i in 0..size {
            for tap in 0..filter {
                let at = (i << DECIMATION) as isize + tap as isize - (filter / 2) as isize;
                resample(method, reflect(at, scaled), samples, scaled, &mut sources);
            }
        }
        Axis { size, spread: sources.len() / (size * filter), sources }
    }
}

/// A sample of a plane and its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub index: u32,
    pub weight: f32,
}

/// The sources of the samples along one axis of the small image.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Length of the small image.
    pub size: usize,
    /// Samples of the plane per resampled sample; 1 if the plane is not resampled.
    pub spread: usize,
    /// [`Axis::spread`] samples for each sample of the small image and each tap of the low-pass filter.
    pub sources: Vec<Sample>,
}

/// Tables for planes of one size.
///
/// A sample of the small image is the sum over the column taps, from the left, of the sums over the row taps, from
/// above. Each factor is a sample of the plane, times [`Layout::unit`], less 128. If the plane is resampled, each
/// factor is the sum of such samples times the product of their column and row weights, row by row, divided by the sum
/// of the weights if [`Layout::normalised`]. Every step is rounded to single precision.
#[derive(Clone, Debug)]
pub struct Layout {
    pub x: Axis,
    pub y: Axis,
    /// Taps of the low-pass filter before decimation.
    pub low_pass: Vec<f32>,
    /// Taps of the filter whose result is subtracted from the small image.
    pub local_mean: Vec<f32>,
    pub normalised: bool,
    /// Factor from a sample to 8-bit steps.
    pub unit: f32,
    /// Number of blocks in a row and in a column.
    pub blocks: (usize, usize),
}

impl Layout {
    /// Returns the size of the part of the small image that consists of whole blocks.
    pub fn used(&self) -> (usize, usize) {
        (self.blocks.0 * BLOCK, self.blocks.1 * BLOCK)
    }

    /// Returns the number of block positions along each axis, over which a covariance is computed.
    pub fn window(&self) -> (usize, usize) {
        let (width, height) = self.used();
        (width + 1 - BLOCK, height + 1 - BLOCK)
    }
}

/// Reflects index `i` at the first and the last of `n` samples.
pub fn reflect(i: isize, n: usize) -> usize {
    let i = i.unsigned_abs();
    if i < n { i } else { (2 * (n - 1)).saturating_sub(i) }
}

/// Returns the length of a low-pass filter that has `taps` taps at kernel scale 1.
pub fn filter_size(taps: u32, kernel_scale: f64) -> usize {
    let size = (taps as f32 * kernel_scale as f32).ceil() as usize;
    (size | 1).max(3)
}

/// Returns the samples, of `from`, that make the resampled ones, all `to` of them in turn.
pub fn resampled(method: Method, from: usize, to: usize) -> Vec<Sample> {
    let mut sources = vec![];
    (0..to).for_each(|i| resample(Some(method), i, from, to, &mut sources));
    sources
}

/// Appends the samples, of `from`, that make sample `i` of `to` resampled ones.
pub fn resample(method: Option<Method>, i: usize, from: usize, to: usize, sources: &mut Vec<Sample>) {
    let ratio = from as f32 / to as f32;
    let position = ((i as f64 + 0.5) * f64::from(ratio) - 0.5) as f32;
    let base = position.floor();
    let last = (from - 1) as f32;
    let mirrored = |at: f32| match at {
        at if at < 0.0 => -at,
        at if at > last => 2.0 * last - at,
        at => at,
    };
    let source = |at: f32, weight| Sample { index: (at as u32).min(last as u32), weight };
    let taps = |offsets: std::ops::RangeInclusive<i8>, weight: fn(f32) -> f32| {
        let fraction = position - base;
        offsets.map(f32::from).map(move |o| source(mirrored(base + o), weight(o - fraction)))
    };
    match method {
        None => sources.push(source(i as f32, 1.0)),
        Some(Method::Nearest) => sources.push(source(i as f32 * ratio, 1.0)),
        Some(Method::Bilinear) => {
            let [a, b] = [base, position.ceil()].map(mirrored);
            let fraction = position - a;
            sources.extend([source(a, 1.0 - fraction), source(b, fraction)]);
        }
        Some(Method::Bicubic) => sources.extend(taps(-1..=2, cubic)),
        Some(Method::Lanczos4) => sources.extend(taps(-4..=4, lanczos)),
    }
}

/// Returns the weight of a sample at this distance from a resampled one.
fn cubic(distance: f32) -> f32 {
    const A: f32 = -0.75;
    match distance.abs() {
        t if t < 1.0 => ((A + 2.0) * t - (A + 3.0)) * t * t + 1.0,
        t if t < 2.0 => (((t - 5.0) * t + 8.0) * t - 4.0) * A,
        _ => 0.0,
    }
}

/// Returns the weight of a sample at this distance from a resampled one.
fn lanczos(distance: f32) -> f32 {
    match f64::from(distance) {
        0.0 => 1.0,
        t if t.abs() < 4.0 => (4.0 * (PI * t).sin() * (PI * t / 4.0).sin() / (PI * PI * t * t)) as f32,
        _ => 0.0,
    }
}

/// Computes the taps of a Gaussian, which sum to about one.
pub fn gaussian(size: usize, deviation: f32) -> Vec<f32> {
    let s = f64::from(deviation);
    let norm = (1.0 / (s * (2.0 * PI).sqrt())) as f32;
    let tap = |i: usize| {
        let i = i as f64 - (size / 2) as f64;
        (-0.5 * i / s * i / s).exp() as f32 / norm
    };
    let taps: Vec<f32> = (0..size).map(tap).collect();
    let sum = taps.iter().fold(0.0, |sum, tap| sum + tap);
    taps.iter().map(|tap| tap / sum).collect()
}

/// The covariances of the samples of a block, over all positions in a plane.
pub type Covariance = [[f32; ELEMENTS]; ELEMENTS];

/// The moments of the samples of one plane.
pub struct PlaneMoments {
    pub covariance: Covariance,
    /// The variance field of each block in raster order; `None` if the covariance turns out to be singular.
    pub variances: Option<Vec<f32>>,
}

impl PlaneMoments {
    /// Computes the variances from the used part of the small image less its local mean, row by row.
    pub fn new(covariance: Covariance, image: &[f32], blocks: (usize, usize)) -> Self {
        Self { variances: linear::variances(&covariance, image, blocks), covariance }
    }
}

/// Statistics of one plane.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaneStatistics {
    /// Eigenvalues of the covariance in the order of computation.
    pub eigenvalues: [f32; ELEMENTS],
    /// The variance field of each block, in raster order; `None` if the covariance is singular.
    pub variances: Option<Vec<f32>>,
    /// The entropies of the blocks for each of [`SpeedWork::sigmas`].
    pub entropies: Vec<(f32, Vec<f32>)>,
}

impl PlaneStatistics {
    /// Computes the statistics of planes together: the eigenvalues of several take hardly longer than those of one.
    pub fn of(planes: Vec<PlaneMoments>, sigmas: &[f32]) -> Vec<Self> {
        let covariances: Vec<_> = planes.iter().map(|plane| &plane.covariance).collect();
        let eigenvalues = linear::eigenvalues(&covariances);
        let of_plane = |(plane, eigenvalues): (PlaneMoments, [f32; ELEMENTS])| {
            let regular = !eigenvalues.iter().any(|value| f64::from(*value) < linear::EPSILON);
            let variances = plane.variances.filter(|_| regular);
            let blocks = variances.as_deref().unwrap_or_default();
            let of = |sigma: f32| (sigma, entropy::entropies(&eigenvalues, blocks, sigma));
            Self { eigenvalues, entropies: sigmas.iter().map(|sigma| of(*sigma)).collect(), variances }
        };
        planes.into_iter().zip(eigenvalues).map(of_plane).collect()
    }

    /// Returns the variances and the entropies of the blocks; `None` if there is too little texture.
    fn blocks(&self, sigma: f32) -> Option<impl Iterator<Item = (f32, f32)>> {
        let (_, entropies) = self.entropies.iter().find(|(of, _)| *of == sigma)?;
        Some(self.variances.as_ref()?.iter().copied().zip(entropies.iter().copied()))
    }
}

/// Statistics of one scaling: of Cb and Cr, in the reference and in the distorted picture.
#[derive(Clone, Debug, PartialEq)]
pub struct ChromaStatistics(pub [[PlaneStatistics; 2]; 2]);

/// Statistics of a frame pair, for each [`SpeedWork::scalings`].
pub type SpeedSums = Vec<ChromaStatistics>;

/// The features of a frame pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeedScores {
    /// Cb.
    pub u: f64,
    /// Cr.
    pub v: f64,
    pub uv: f64,
}

impl SpeedOptions {
    /// Computes the features of a frame pair from the statistics of these options' scaling.
    pub fn scores(&self, sums: &ChromaStatistics) -> SpeedScores {
        let [u, v] = sums.0.each_ref().map(|[reference, distorted]| self.plane(reference, distorted));
        let uv = match (u, v) {
            (Some(u), None) => u,
            (None, Some(v)) => v,
            _ => (f64::from(u.unwrap_or(0.0) + v.unwrap_or(0.0)) / 2.0) as f32,
        };
        let clipped = |score: f32| match f64::from(score) {
            score if score < self.max_val => score,
            _ => self.max_val,
        };
        SpeedScores { u: clipped(u.unwrap_or(0.0)), v: clipped(v.unwrap_or(0.0)), uv: clipped(uv) }
    }

    /// Computes the score of a plane; `None` if a picture has too little texture there.
    fn plane(&self, reference: &PlaneStatistics, distorted: &PlaneStatistics) -> Option<f32> {
        let sigma = self.sigma();
        let count = reference.variances.as_ref()?.len();
        let blocks = reference.blocks(sigma)?.zip(distorted.blocks(sigma)?);
        let noise = (1.0 + self.nn_floor as f32) * sigma;
        let base = (ELEMENTS as f64 * (f64::from(noise).log2() + LOG2_2PIE)) as f32;
        let mut sum = 0f32;
        for ((r, entropy_r), (d, entropy_d)) in blocks {
            if entropy_r < base && entropy_d < base {
                continue;
            }
            let [weight_r, weight_d] = self.weights(r, d);
            let weighted = |entropy: f32, weight: f64| (f64::from(entropy) * weight.log2()) as f32;
            sum += (weighted(entropy_r, weight_r) - weighted(entropy_d, weight_d)).abs();
        }
        Some(sum / count as f32)
    }

    /// Computes the factors of a block's entropies: logarithms of the block's variances. Mixed variances are not
    /// rounded to single precision, so modes 4 to 6 do not score equal pictures as equal.
    fn weights(&self, reference: f32, distorted: f32) -> [f64; 2] {
        let (r, d) = (f64::from(1.0 + reference), f64::from(1.0 + distorted));
        let mean = 1.0 + f64::from(reference + distorted) / 2.0;
        let mixed = |a: f64, b: f64| 1.0 + (a * f64::from(reference) + b * f64::from(distorted));
        match self.weight_var_mode {
            0 => [r, d],
            1 => [r, r],
            2 => [d, d],
            3 => [mean, mean],
            4 => [r, mean],
            5 => [r, mixed(0.75, 0.25)],
            _ => [r, mixed(0.25, 0.75)],
        }
    }
}

/// SpEED of the chroma planes.
pub struct Speed;

impl Metric for Speed {
    const NAME: &'static str = "speed_chroma";
    type Work = SpeedWork;
    type Sums = SpeedSums;

    fn chroma(_work: &SpeedWork) -> bool {
        true
    }

    fn check(work: &SpeedWork, geometry: Geometry) -> Result<(), metric::Misfit> {
        work.scalings.iter().try_for_each(|scaling| Ok(scaling.fits(geometry).map(|_| ())?))
    }
}

impl From<SpeedMisfit> for metric::Misfit {
    fn from(misfit: SpeedMisfit) -> Self {
        let metric = "SpEED chroma";
        match misfit {
            SpeedMisfit::NoChroma => Self::NoChroma { metric },
            SpeedMisfit::TooSmall { width, height, min } => {
                Self::ChromaTooSmall { metric, min, width, height }
            }
        }
    }
}

impl Options for SpeedOptions {
    const EXTRACTOR: &'static str = "speed_chroma";
    const TABLE: &'static [Row<Self>] = &[
        float("speed_kernelscale", Some("ks"), |o| &mut o.kernel_scale, 0.1..=4.0),
        float("speed_max_val", Some("mxv"), |o| &mut o.max_val, 0.0..=1000.0),
        float("speed_nn_floor", Some("nnf"), |o| &mut o.nn_floor, 0.0..=1.0),
        float("speed_prescale", Some("ps"), |o| &mut o.prescale, 0.1..=4.0),
        name(
            "speed_prescale_method",
            "psm",
            |o| o.prescale_method.name(),
            |o, name| Method::from_name(name).map(|method| o.prescale_method = method),
            &Method::NAMES,
        ),
        float("speed_sigma_nn", Some("snn"), |o| &mut o.sigma_nn, 0.1..=2.0),
        number!("speed_weight_var_mode", Some("wvm"), weight_var_mode, 0..=6),
    ];
}

impl Extract for SpeedOptions {
    /// Cb or Cr (0 and 1), or `None` for both.
    type Output = Option<usize>;
    const FEATURES: &'static [(&'static str, Option<usize>)] =
        &[("speed_chroma_u", Some(0)), ("speed_chroma_v", Some(1)), ("speed_chroma_uv", None)];
    const ABOUT: &'static [About] = &[About {
        reported: "`speed_chroma_u`, `_v`, `_uv`",
        tells: "difference in local entropy of the chroma planes, at a sixteenth of their size",
        range: "0 up",
        equal: "0, or up to some 1e-5",
        source: "C. Bampis et al., IEEE Signal Processing Letters 2017",
    }];

    fn in_models(name: &str) -> Option<String> {
        Some(format!("Speed_chroma_feature_{name}_score"))
    }

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        let new = self.scaling()?;
        let scaling = work.extend::<Speed, _>(SpeedWork::default(), |work| {
            place(&mut work.sigmas, self.sigma());
            place(&mut work.scalings, new)
        });
        Ok(Box::new(SpeedSource { options: *self, scaling }))
    }
}

/// `scaling`: index in [`SpeedWork::scalings`].
#[derive(Clone, Copy, Debug)]
struct SpeedSource {
    options: SpeedOptions,
    scaling: usize,
}

impl Source for SpeedSource {
    fn scorer(&self, _geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        let Self { options, scaling } = *self;
        Ok(plain(move |sums| {
            let sums = sums.get::<Speed>().and_then(|sums| sums.get(scaling));
            let scores = sums.map(|sums| options.scores(sums));
            let value = |scores: SpeedScores, plane| match plane {
                Some(0) => scores.u,
                Some(_) => scores.v,
                None => scores.uv,
            };
            SpeedOptions::values(|plane: Option<usize>| scores.map_or(f64::NAN, |s| value(s, plane)))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misfit(options: SpeedOptions, chroma: Option<(usize, usize)>) -> Option<SpeedMisfit> {
        let depth = BitDepth::new(8).unwrap();
        options.scaling().unwrap().layout(Geometry { width: 1, height: 1, depth, chroma }).err()
    }

    #[test]
    fn taps_are_those_of_libvmaf() {
        let bits = |taps: Vec<f32>| taps.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let low_pass = [0x3d9aedc6, 0x3dcaf6b8, 0x3df6259e, 0x3e0a2cd8, 0x3e0f9c33];
        let both = low_pass.iter().chain(low_pass[..4].iter().rev()).copied();
        assert_eq!(bits(gaussian(9, 3.6)), both.collect::<Vec<u32>>());
        assert_eq!(bits(gaussian(3, 0.6)), [0x3e2a5f21, 0x3f2ad06f, 0x3e2a5f21]);
    }

    #[test]
    fn the_smallest_planes_are_named() {
        let plain = SpeedOptions::default();
        let too_small = |width, height, min| Some(SpeedMisfit::TooSmall { width, height, min });
        assert_eq!(misfit(plain, None), Some(SpeedMisfit::NoChroma));
        assert_eq!(misfit(plain, Some((80, 80))), None);
        assert_eq!(misfit(plain, Some((79, 200))), too_small(79, 200, 80));
        assert_eq!(misfit(plain, Some((200, 79))), too_small(200, 79, 80));
        for (prescale, min) in [(0.5, 159), (0.6, 133), (2.0, 40)] {
            let scaled = SpeedOptions { prescale, ..plain };
            assert_eq!(misfit(scaled, Some((min, min))), None);
            assert_eq!(misfit(scaled, Some((min - 1, 500))), too_small(min - 1, 500, min));
        }
    }

    #[test]
    fn kernel_scales_are_those_of_libvmaf() {
        let scaling = |kernel_scale| SpeedOptions { kernel_scale, ..Default::default() }.scaling();
        assert!(scaling(1.4746).is_ok());
        assert!(scaling(3.7113).is_ok(), "360/97, about");
        assert_eq!(scaling(0.9).unwrap_err(), SpeedError::KernelScale(0.9));
    }

    #[test]
    fn scalings_differ_by_what_changes_the_planes() {
        let plain = SpeedOptions::default();
        let scaling = |options: SpeedOptions| options.scaling().unwrap();
        let others = SpeedOptions { sigma_nn: 0.19, prescale_method: Method::Bilinear, ..plain };
        assert_eq!(scaling(others), scaling(plain));
        assert_ne!(scaling(SpeedOptions { prescale: 0.5, ..plain }), scaling(plain));
    }
}
