// SPDX-License-Identifier: MPL-2.0

//! Sums of squared differences, of samples and of their squares, by the definition of `metrics/moments.rs`.
//!
//! The loops over the columns of a row have no branches, so the compiler vectorises them.

use rayon::prelude::*;

use super::metric::{Metric, Pictures, Setup, typed};
use super::psnr::sse;
use super::simd::{Lanes, Level, dispatch};
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Plane, Row, Sample};
use crate::frame::BitDepth;
use crate::metrics;
use crate::metrics::moments::{MomentSums, MomentWork, Moments as Definition, PictureMoments};

/// Rows of a part.
const BAND: usize = 64;
/// Most bits of samples whose squares have no more than 24 bits, so that none is rounded.
const WHOLE_BITS: u32 = 12;
/// Samples of a row whose squares fit the sum in 32 bits.
const CHUNK: usize = 128;
/// Sums that are added side by side.
const BESIDE: usize = 16;

/// Computes the sums of each distorted picture. Runs in the current rayon pool.
pub fn sums<T: Sample>(
    level: Level,
    work: MomentWork,
    depth: BitDepth,
    reference: Plane<'_, T>,
    distorted: &[Plane<'_, T>],
) -> Vec<MomentSums> {
    let of = |plane: Plane<'_, T>| match work.moments {
        true => moments(level, depth, plane),
        false => PictureMoments::default(),
    };
    let of_reference = of(reference);
    let pair = |distorted: &Plane<'_, T>| MomentSums {
        error: if work.error { error(level, depth, reference, *distorted) } else { 0.0 },
        reference: of_reference,
        distorted: of(*distorted),
    };
    distorted.iter().map(pair).collect()
}

fn error<T: Sample>(level: Level, depth: BitDepth, a: Plane<'_, T>, b: Plane<'_, T>) -> f64 {
    if depth.bits() <= WHOLE_BITS {
        return sse(level, a, b) as f64;
    }
    let error = bands(a, |from| errors::<T>(level, [a, b], from));
    exact(error).unwrap_or_else(|| in_order(a, |x, y| number(a, x, y) - number(b, x, y)))
}

fn moments<T: Sample>(level: Level, depth: BitDepth, plane: Plane<'_, T>) -> PictureMoments {
    if depth.bits() <= WHOLE_BITS {
        let parts = (0..plane.height().div_ceil(BAND)).into_par_iter().with_max_len(1);
        let parts = parts.map(|i| whole::<T>(level, plane, i * BAND));
        let [first, second] = parts.reduce(|| [0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
        return PictureMoments { first: first as f64, second: second as f64 };
    }
    let first = bands(plane, |from| samples::<T>(level, plane, from));
    let second = bands(plane, |from| squares::<T>(level, plane, from));
    let second = exact(second).unwrap_or_else(|| in_order(plane, |x, y| number(plane, x, y)));
    PictureMoments { first, second }
}

/// Adds the sums of all bands.
fn bands<T: Sample>(plane: Plane<'_, T>, sum: impl Fn(usize) -> f64 + Sync) -> f64 {
    let bands = plane.height().div_ceil(BAND);
    (0..bands).into_par_iter().with_max_len(1).map(|i| sum(i * BAND)).reduce(|| 0.0, |a, b| a + b)
}

/// Returns a sum if no addition had to round.
fn exact(sum: f64) -> Option<f64> {
    (sum < Definition::EXACT).then_some(sum)
}

fn number<T: Sample>(plane: Plane<'_, T>, x: usize, y: usize) -> f32 {
    let sample: i32 = plane.row(y).at(x).into();
    sample as f32
}

/// Adds the squares of numbers row by row, from the left.
fn in_order<T: Sample>(plane: Plane<'_, T>, number: impl Fn(usize, usize) -> f32) -> f64 {
    let mut sum = 0.0;
    for y in 0..plane.height() {
        for x in 0..plane.width() {
            let number = number(x, y);
            sum += f64::from(number * number);
        }
    }
    sum
}

dispatch!(fn whole[T: Sample](plane: Plane<'_, T>, from: usize) -> [u64; 2] = process_whole[T]);

/// Sums the samples and their squares of a band, of at most [`WHOLE_BITS`] bits.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process_whole<V: Lanes, T: Sample>(plane: Plane<'_, T>, from: usize) -> [u64; 2] {
    let mut sums = [0; 2];
    for y in from..plane.height().min(from + BAND) {
        for some in plane.row(y).chunks(CHUNK) {
            let (mut first, mut second) = (0u32, 0u32);
            for sample in some.iter() {
                let sample: u32 = sample.into();
                first += sample;
                second += sample * sample;
            }
            sums[0] += u64::from(first);
            sums[1] += u64::from(second);
        }
    }
    sums
}

dispatch!(fn errors[T: Sample](planes: [Plane<'_, T>; 2], from: usize) -> f64 = process_errors[T]);
dispatch!(fn samples[T: Sample](plane: Plane<'_, T>, from: usize) -> f64 = process_samples[T]);
dispatch!(fn squares[T: Sample](plane: Plane<'_, T>, from: usize) -> f64 = process_squares[T]);

/// Sums the squared differences of a band.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process_errors<V: Lanes, T: Sample>([a, b]: [Plane<'_, T>; 2], from: usize) -> f64 {
    band_sum([a, b], from, |[a, b]| (a - b) * (a - b))
}

/// Sums the samples of a band.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process_samples<V: Lanes, T: Sample>(plane: Plane<'_, T>, from: usize) -> f64 {
    band_sum([plane], from, |[a]| a)
}

/// Sums the squared samples of a band.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process_squares<V: Lanes, T: Sample>(plane: Plane<'_, T>, from: usize) -> f64 {
    band_sum([plane], from, |[a]| a * a)
}

/// Sums a function of the samples of a band, in any order.
#[inline(always)]
fn band_sum<T: Sample, const N: usize>(
    planes: [Plane<'_, T>; N],
    from: usize,
    term: impl Fn([f32; N]) -> f32 + Copy,
) -> f64 {
    let mut sums = [0.0; BESIDE];
    for y in from..planes[0].height().min(from + BAND) {
        let mut rows = [planes[0].row(y); N];
        for k in 0..N {
            rows[k] = planes[k].row(y);
        }
        row_sum(rows, &mut sums, term);
    }
    let mut total = 0.0;
    for sum in sums {
        total += sum;
    }
    total
}

#[inline(always)]
fn row_sum<T: Sample, const N: usize>(
    rows: [Row<'_, T>; N],
    sums: &mut [f64; BESIDE],
    term: impl Fn([f32; N]) -> f32,
) {
    let width = rows[0].len();
    let value = |x: usize| {
        let mut values = [0.0; N];
        for k in 0..N {
            let sample: i32 = rows[k].at(x).into();
            values[k] = sample as f32;
        }
        f64::from(term(values))
    };
    let whole = width / BESIDE * BESIDE;
    for x in (0..whole).step_by(BESIDE) {
        for i in 0..BESIDE {
            sums[i] += value(x + i);
        }
    }
    for x in whole..width {
        sums[x - whole] += value(x);
    }
}

/// Mean squared error and moments.
pub struct Moments(MomentWork);

impl Metric for Moments {
    type Of = metrics::moments::Moments;

    fn prepare(work: &MomentWork, _setup: &Setup) -> Result<Self, BackendError> {
        Ok(Self(*work))
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<MomentSums>> {
        let Pictures { level, depth, .. } = *pictures;
        Some(typed!(PlaneGroup: &pictures.luma, |r, d| sums(level, self.0, depth, *r, d)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::tests::{Picture, content, group, planes};

    /// Computes the definition sample by sample, in 8-bit steps.
    fn naive(reference: &Picture, distorted: &Picture) -> MomentSums {
        let scale = 2f32.powi(reference.depth.bits() as i32 - 8);
        let [a, b] = [reference, distorted].map(|picture| -> Vec<f32> {
            picture.samples().into_iter().map(|v| f32::from(v) / scale).collect()
        });
        let sum = |term: &dyn Fn(usize) -> f32| (0..a.len()).fold(0.0, |sum, i| sum + f64::from(term(i)));
        let scale = f64::from(scale);
        let picture = |v: &[f32]| PictureMoments {
            first: sum(&|i| v[i]) * scale,
            second: sum(&|i| v[i] * v[i]) * scale * scale,
        };
        let error = sum(&|i| (a[i] - b[i]) * (a[i] - b[i])) * scale * scale;
        MomentSums { error, reference: picture(&a), distorted: picture(&b) }
    }

    fn check(pictures: &[Picture]) {
        let expected: Vec<_> = pictures[1..].iter().map(|picture| naive(&pictures[0], picture)).collect();
        let (work, bits) = (MomentWork { error: true, moments: true }, pictures[0].depth);
        for level in Level::available() {
            let found = planes!(pictures, |planes| sums(level, work, bits, planes[0], &planes[1..]));
            let Picture { width, height, depth, .. } = &pictures[0];
            assert_eq!(found, expected, "{level:?} {width}x{height} {depth:?}");
        }
    }

    #[test]
    fn equals_the_definition_at_every_size_and_depth() {
        for (i, n) in (1..=71).enumerate() {
            for (width, height) in [(n, 1 + n % 7), (1 + n % 5, n)] {
                for bits in [8, 9 + i as u32 % 8, 16] {
                    check(&group(&content(i, width, height, bits)));
                }
            }
        }
    }

    /// Sums of more than 53 bits, to which odd squares are added.
    #[test]
    fn sums_that_round_are_added_in_order() {
        let picture = |seed: u32| {
            Picture::new(2060, 2050, 16, move |x, y| {
                let noise = crate::random::noise(seed, x, y);
                if noise.is_multiple_of(3) { noise >> 21 } else { 0xf000 + (noise >> 20) }
            })
        };
        let [a, b] = [picture(1), picture(2)];
        let sums = naive(&a, &b);
        assert!(sums.reference.second > Definition::EXACT && sums.distorted.second > Definition::EXACT);
        check(&[a.clone(), b, a]);
    }
}
