// SPDX-License-Identifier: MPL-2.0

//! Scaling of pictures to the size of the reference: the definition that both backends follow to the last bit.
//! docs/metrics.md states it too.
//!
//! Along each axis, output sample `k` lies at `c = (k + o) S / T - o` among the source samples. `S` and `T` are the
//! luma sizes of source and target, and `o` is a half, or a quarter if chroma samples lie on luma samples. The output
//! is the sum of the source samples around `c`, weighted with a kernel that is stretched by `S / T` if that is above 1.
//! Beyond its ends, a line continues with its last sample. The weights are rounded to multiples of `2^-14`, and the
//! largest weight is adjusted so that their sum is 1.
//!
//! Rows come first. Their sums are rounded to `2^-(16 - bits)`, so that they fit 18 bits for any depth. The sums of the
//! columns are rounded to whole numbers from 0 to the maximum. Both round halves up and fit 32 bits.

use crate::frame::{BitDepth, Geometry};

/// The scaling kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A triangle, over 2 samples.
    Bilinear,
    /// Catmull-Rom's spline (B = 0, C = 1/2), over 4 samples.
    Bicubic,
    /// Lanczos with 3 lobes, over 6 samples.
    Lanczos,
}

impl Method {
    /// Returns the radius of the kernel in samples.
    fn radius(self) -> usize {
        match self {
            Self::Bilinear => 1,
            Self::Bicubic => 2,
            Self::Lanczos => 3,
        }
    }

    /// Returns the kernel at a distance from its centre below the radius.
    fn at(self, x: f64) -> f64 {
        let x = x.abs();
        let sinc = |x: f64| {
            if x == 0.0 { 1.0 } else { (std::f64::consts::PI * x).sin() / (std::f64::consts::PI * x) }
        };
        match self {
            Self::Bilinear => 1.0 - x,
            Self::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Self::Bicubic => ((2.5 - 0.5 * x) * x - 4.0) * x + 2.0,
            Self::Lanczos => sinc(x) * sinc(x / 3.0),
        }
    }
}

/// Fraction bits of weights.
const WEIGHT_BITS: u32 = 14;
/// Sum of the weights of an output sample.
pub const ONE: i32 = 1 << WEIGHT_BITS;
/// Bits of a sample and its fraction between rows and columns.
const ROW_BITS: u32 = 16;

/// Returns by how many bits the weighted sums along a row, and then along a column, are shifted with rounding.
pub fn shifts(depth: BitDepth) -> [u32; 2] {
    let fraction = ROW_BITS - depth.bits();
    [WEIGHT_BITS - fraction, WEIGHT_BITS + fraction]
}

/// The output samples of one axis: for each, a window of source samples inside the picture, and their weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    taps: usize,
    first: Vec<u32>,
    weights: Vec<i16>,
}

impl Axis {
    /// Computes the axis of `target` output samples made of `source` samples, both at least 1, in a picture that is
    /// scaled from `size.0` to `size.1` luma samples. `quarters`: distance of the first sample's centre from the
    /// picture's border, in quarters of a sample.
    fn new(method: Method, source: usize, target: usize, size: (usize, usize), quarters: usize) -> Self {
        let (s, t) = (size.0 as i64, size.1 as i64);
        let (radius, quarters) = (method.radius() as i64, quarters as i64);
        // All distances are whole multiples of 1 / unit, so both halves of a picture get the same weights.
        let unit = 4 * s.max(t);
        let taps = (2 * method.radius() * size.0.max(size.1)).div_ceil(size.1).min(source);
        let last = source as i64 - 1;
        let mut axis = Self { taps, first: vec![], weights: vec![] };
        let mut exact = vec![];
        for k in 0..target as i64 {
            let centre = (4 * k + quarters) * s - quarters * t;
            let from = (centre - radius * unit).div_euclid(4 * t) + 1;
            let first = from.clamp(0, source as i64 - taps as i64);
            exact.clear();
            exact.resize(taps, 0.0);
            for j in from.. {
                let distance = 4 * t * j - centre;
                if distance >= radius * unit {
                    break;
                }
                // Integers, so that their sums do not depend on the order.
                let weight = (method.at(distance as f64 / unit as f64) * (1u64 << 40) as f64).round();
                exact[(j.clamp(0, last) - first) as usize] += weight;
            }
            axis.first.push(first as u32);
            // Twice the distance of each sample from the middle of the picture.
            let distance = |i: &usize| (2 * (first + *i as i64) - last).abs();
            axis.push_weights(&exact, distance);
        }
        axis
    }

    /// Rounds the weights of one output sample.
    fn push_weights(&mut self, exact: &[f64], distance: impl Fn(&usize) -> i64) {
        let sum: f64 = exact.iter().sum();
        let start = self.weights.len();
        self.weights.extend(exact.iter().map(|weight| (weight / sum * f64::from(ONE)).round() as i16));
        let weights = &mut self.weights[start..];
        let left = ONE - weights.iter().map(|weight| i32::from(*weight)).sum::<i32>();
        // Compares the exact weights: a mirrored picture must get mirrored weights.
        let largest = exact.iter().copied().fold(f64::MIN, f64::max);
        let mut largest: Vec<_> = (0..weights.len()).filter(|i| exact[*i] == largest).collect();
        // Alternates if two are equally large.
        largest.sort_by_key(distance);
        for i in largest.iter().cycle().take(left.unsigned_abs() as usize) {
            weights[*i] += left.signum() as i16;
        }
    }

    /// Returns the number of output samples.
    pub fn len(&self) -> usize {
        self.first.len()
    }

    /// Returns true if there are no output samples.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Returns the number of source samples for each output sample.
    pub fn taps(&self) -> usize {
        self.taps
    }

    /// Returns the first source sample for output sample `k`; it never decreases with `k`.
    pub fn first(&self, k: usize) -> usize {
        self.first[k] as usize
    }

    /// Returns the weights of output sample `k`, in units of 1 / [`ONE`].
    pub fn weights(&self, k: usize) -> &[i16] {
        &self.weights[k * self.taps..][..self.taps]
    }
}

/// Reasons why pictures cannot be scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScalingError {
    /// Width or height of the source or the target is less than [`MIN_SIZE`].
    #[error("pictures to be scaled have at least {MIN_SIZE}x{MIN_SIZE} samples")]
    TooSmall,
    /// Width or height would change by more than a factor of [`MAX_RATIO`].
    #[error("width and height can become at most {MAX_RATIO} times as large or as small")]
    Ratio,
    /// Source and target differ in bit depth or chroma subsampling, which scaling does not change.
    #[error("bit depth and chroma subsampling stay as they are")]
    Unlike,
}

/// Smallest width and height before and after scaling.
pub const MIN_SIZE: usize = 16;
/// Largest ratio of sizes along either axis.
pub const MAX_RATIO: usize = 16;

/// Scales pictures of one size to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaling {
    method: Method,
    source: Geometry,
    target: Geometry,
    cosited: (bool, bool),
}

impl Scaling {
    /// Creates a scaling. `cosited`: whether horizontally, and vertically, subsampled chroma samples lie on luma
    /// samples instead of between them.
    pub fn new(
        method: Method,
        source: Geometry,
        target: Geometry,
        cosited: (bool, bool),
    ) -> Result<Self, ScalingError> {
        let smallest = [source, target].map(|geometry| geometry.width.min(geometry.height));
        if smallest[0].min(smallest[1]) < MIN_SIZE {
            return Err(ScalingError::TooSmall);
        }
        let far = |a: usize, b: usize| a.max(b) > MAX_RATIO * a.min(b);
        if far(source.width, target.width) || far(source.height, target.height) {
            return Err(ScalingError::Ratio);
        }
        if source.depth != target.depth || source.subsampled() != target.subsampled() {
            return Err(ScalingError::Unlike);
        }
        Ok(Self { method, source, target, cosited })
    }

    /// Returns the scaling kernel.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Returns whether horizontally, and vertically, subsampled chroma samples lie on luma samples.
    pub(crate) fn cosited(&self) -> (bool, bool) {
        self.cosited
    }

    /// Returns the size and format of the pictures before scaling.
    pub fn source(&self) -> Geometry {
        self.source
    }

    /// Returns the columns and rows of luma.
    pub fn luma(&self) -> [Axis; 2] {
        let Self { method, source, target, .. } = *self;
        let axis = |from, to| Axis::new(method, from, to, (from, to), 2);
        [axis(source.width, target.width), axis(source.height, target.height)]
    }

    /// Returns the columns and rows of Cb and Cr, if there are any.
    pub fn chroma(&self) -> Option<[Axis; 2]> {
        let Self { method, source, target, cosited } = *self;
        let (from, to, subsampled) = (source.chroma?, target.chroma?, source.subsampled()?);
        let quarters = |cosited: bool, subsampled: bool| if cosited && subsampled { 1 } else { 2 };
        let (x, y) = (quarters(cosited.0, subsampled.0), quarters(cosited.1, subsampled.1));
        Some([
            Axis::new(method, from.0, to.0, (source.width, target.width), x),
            Axis::new(method, from.1, to.1, (source.height, target.height), y),
        ])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const METHODS: [Method; 3] = [Method::Bilinear, Method::Bicubic, Method::Lanczos];

    fn geometry(width: usize, height: usize) -> Geometry {
        let chroma = Some((width / 2, height / 2));
        Geometry { width, height, depth: BitDepth::new(8).unwrap(), chroma }
    }

    /// Returns the axes for this width and height, and for 16x16.
    fn axes(method: Method, from: usize, to: usize) -> [Axis; 4] {
        let scaling = Scaling::new(method, geometry(from, 16), geometry(to, 16), (true, false)).unwrap();
        let ([x, y], [cx, cy]) = (scaling.luma(), scaling.chroma().unwrap());
        [x, y, cx, cy]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn weights_sum_to_one_in_windows_inside_the_picture(
            method in 0..3usize, from in 16..600usize, to in 16..600usize,
        ) {
            prop_assume!(from.max(to) <= MAX_RATIO * from.min(to));
            let [luma, _, chroma, _] = axes(METHODS[method], from, to);
            for (axis, from, to) in [(luma, from, to), (chroma, from / 2, to / 2)] {
                prop_assert_eq!(axis.len(), to);
                let mut last = 0;
                for k in 0..to {
                    let sum: i32 = axis.weights(k).iter().map(|weight| i32::from(*weight)).sum();
                    prop_assert_eq!(sum, ONE);
                    let absolute: i32 = axis.weights(k).iter().map(|weight| i32::from(*weight).abs()).sum();
                    // Sums of 16-bit samples must fit 32 bits.
                    prop_assert!(absolute < ONE * 25 / 16, "{}", absolute);
                    prop_assert!(axis.first(k) >= last && axis.first(k) + axis.taps() <= from);
                    last = axis.first(k);
                }
            }
        }

        #[test]
        fn centred_samples_are_weighted_alike_from_both_ends(
            method in 0..3usize, from in 16..600usize, to in 16..600usize,
        ) {
            prop_assume!(from.max(to) <= MAX_RATIO * from.min(to));
            let [axis, ..] = axes(METHODS[method], from, to);
            // Windows may differ in samples of weight 0.
            let weights = |k: usize| {
                let all = (axis.first(k)..).zip(axis.weights(k).iter().copied());
                all.filter(|(_, weight)| *weight != 0).collect::<Vec<_>>()
            };
            for k in 0..to {
                let mirrored: Vec<_> = weights(to - 1 - k).into_iter().rev().map(|(i, w)| (from - 1 - i, w)).collect();
                prop_assert_eq!(weights(k), mirrored);
            }
        }
    }

    #[test]
    fn equal_sizes_leave_every_sample_as_it_is() {
        for method in METHODS {
            for axis in axes(method, 97, 97) {
                for k in 0..axis.len() {
                    let all = axis.weights(k).iter().enumerate();
                    let weights: Vec<_> = all.filter(|(_, w)| **w != 0).collect();
                    assert_eq!(weights, [(k - axis.first(k), &(ONE as i16))], "{method:?}");
                }
            }
        }
    }

    /// The weights of doubling and halving were computed by hand.
    #[test]
    fn kernels_have_their_textbook_weights() {
        let middle = |method| axes(method, 64, 128)[0].weights(40).to_vec();
        assert_eq!(middle(Method::Bilinear), [4096, 12288]);
        assert_eq!(middle(Method::Bicubic), [-384, 3712, 14208, -1152]);
        assert_eq!(axes(Method::Bilinear, 128, 64)[0].weights(20), [2048, 6144, 6144, 2048]);
        // Column 40 of chroma is at column 80 of luma, which is at 39.75 of the source.
        let [_, _, chroma, _] = axes(Method::Bilinear, 64, 128);
        assert_eq!((chroma.first(40), chroma.weights(40)), (19, &[2048, 14336][..]));
    }

    #[test]
    fn what_cannot_be_scaled_is_refused() {
        let scaling = |from, to| Scaling::new(Method::Bicubic, from, to, (true, false)).err();
        let grey = Geometry { chroma: None, ..geometry(64, 64) };
        let deep = Geometry { depth: BitDepth::new(10).unwrap(), ..geometry(64, 64) };
        let full = Geometry { chroma: Some((64, 64)), ..grey };
        assert_eq!(scaling(geometry(16, 17), geometry(256, 272)), None);
        assert_eq!(scaling(geometry(15, 64), geometry(64, 64)), Some(ScalingError::TooSmall));
        assert_eq!(scaling(geometry(64, 64), geometry(64, 15)), Some(ScalingError::TooSmall));
        assert_eq!(scaling(geometry(16, 64), geometry(257, 64)), Some(ScalingError::Ratio));
        assert_eq!(scaling(geometry(64, 1025), geometry(64, 64)), Some(ScalingError::Ratio));
        for other in [grey, deep, full] {
            assert_eq!(scaling(other, geometry(32, 32)), Some(ScalingError::Unlike));
        }
    }
}
