// SPDX-License-Identifier: MPL-2.0

//! Sums of squared errors.

use super::filter::load_samples;
use super::metric::{Metric, Pictures, Setup, typed};
use super::simd::{Lanes, Level, dispatch};
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Plane, PlaneGroup, Row, Sample};
use crate::metrics;
use crate::metrics::psnr::{PsnrSums, PsnrWork};
use rayon::prelude::*;

/// Rows of a part.
const BAND: usize = 64;
/// Bytes of a row whose squares fit the sum in a 32-bit lane: two in each vector, below 2^16 each.
const RUN: usize = 1 << 14;

/// Sums the squared differences of two planes of the same size. Runs in the current rayon pool.
pub fn sse<T: Sample>(level: Level, a: Plane<T>, b: Plane<T>) -> u64 {
    let bands = a.height().div_ceil(BAND);
    (0..bands).into_par_iter().map(|i| band::<T>(level, [a, b], i * BAND)).sum()
}

dispatch!(fn band[T: Sample](planes: [Plane<'_, T>; 2], from: usize) -> u64 = process[T]);

/// Computes the part of the sum from row `from`.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process<V: Lanes, T: Sample>(planes: [Plane<'_, T>; 2], from: usize) -> u64 {
    let mut total = 0;
    for y in from..planes[0].height().min(from + BAND) {
        for (a, b) in planes[0].row(y).chunks(RUN).zip(planes[1].row(y).chunks(RUN)) {
            // SAFETY: the CPU has the instructions, as the caller has promised. Both rows read as zero after their
            // end.
            total += unsafe { if size_of::<T>() == 1 { bytes::<V, T>(a, b) } else { words::<V, T>(a, b) } };
        }
    }
    total
}

/// Computes the sum for 8-bit samples.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn bytes<V: Lanes, T: Sample>(a: Row<'_, T>, b: Row<'_, T>) -> u64 {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe {
        let mut sum = V::splat(0);
        for x in (0..a.len()).step_by(2 * V::N) {
            let error = V::sub16(load_samples::<V, T>(a, x), load_samples::<V, T>(b, x));
            sum = V::add(sum, V::madd16(error, error));
        }
        V::sum(sum) as u64
    }
}

/// Computes the sum for deeper samples.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn words<V: Lanes, T: Sample>(a: Row<'_, T>, b: Row<'_, T>) -> u64 {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe {
        let low = V::splat(0xffff);
        let mut sum = V::splat64(0);
        for x in (0..a.len()).step_by(2 * V::N) {
            let (a, b) = (load_samples::<V, T>(a, x), load_samples::<V, T>(b, x));
            let even = V::sub(V::and(a, low), V::and(b, low));
            let odd = V::sub(V::shr::<16>(a), V::shr::<16>(b));
            sum = V::add64(sum, V::add64(V::mul_wide(even, even), V::mul_wide(odd, odd)));
        }
        V::sum64(sum) as u64
    }
}

/// PSNR of Y, and of Cb and Cr if they are requested and present.
pub struct Psnr(PsnrWork);

impl Metric for Psnr {
    type Of = metrics::psnr::Psnr;
    const HISTORY: bool = true;

    fn prepare(work: &PsnrWork, _setup: &Setup) -> Result<Self, BackendError> {
        Ok(Self(*work))
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<PsnrSums>> {
        fn all<T: Sample>(level: Level, reference: Plane<'_, T>, distorted: &[Plane<'_, T>]) -> Vec<u64> {
            distorted.iter().map(|distorted| sse(level, reference, *distorted)).collect()
        }
        let sums = |planes: &PlaneGroup<'_>| typed!(PlaneGroup: planes, |r, d| all(pictures.level, *r, d));
        let y = sums(&pictures.luma);
        let chroma = pictures.chroma.as_ref().filter(|_| self.0.chroma);
        let chroma = chroma.map(|[cb, cr]| [sums(cb), sums(cr)]);
        let of = |i: usize| PsnrSums { y: y[i], chroma: chroma.as_ref().map(|[cb, cr]| [cb[i], cr[i]]) };
        Some((0..y.len()).map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::tests::{Picture, content};

    fn check(a: &Picture, b: &Picture) {
        let difference = |(a, b): (u16, u16)| u64::from(a.abs_diff(b)).pow(2);
        let expected: u64 = a.samples().into_iter().zip(b.samples()).map(difference).sum();
        for level in Level::available() {
            let found = match a.depth.bits() {
                8 => sse(level, a.bytes().plane(), b.bytes().plane()),
                _ => sse(level, a.words().plane(), b.words().plane()),
            };
            assert_eq!(found, expected, "{level:?} {}x{}", a.width, a.height);
        }
    }

    #[test]
    fn equals_plain_arithmetic_at_every_size_and_depth() {
        for (i, n) in (1..=71).enumerate() {
            for (width, height) in [(n, 1 + n % 7), (1 + n % 5, n)] {
                for bits in [8, 9 + i as u32 % 8, 16] {
                    let [a, b] = content(i, width, height, bits);
                    check(&a, &b);
                }
            }
        }
    }

    #[test]
    fn long_rows_of_the_largest_error_do_not_overflow() {
        for bits in [8, 16] {
            let flat = |value| Picture::new(150_000, 2, bits, move |_, _| value);
            check(&flat(0), &flat(0xffff));
        }
    }
}
