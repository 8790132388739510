// SPDX-License-Identifier: MPL-2.0

//! Signal and noise of ANSNR, by the definition of `metrics/ansnr.rs`.
//!
//! The loops over the columns of a row have no branches, so the compiler vectorises them.

use rayon::prelude::*;

use super::image::{Centred, Image};
use super::metric::{Metric, Pictures, Setup, typed};
use super::ordered::{ROWS, Terms, total};
use super::simd::{Lanes, Level, dispatch};
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Plane, Sample};
use crate::metrics;
use crate::metrics::ansnr::{AnsnrSums, AnsnrWork, DISTORTED, REFERENCE};

/// Rows of a part.
const BAND: usize = 64;
/// Rows and columns around a sample that its filter reads.
const REACH: usize = 2;
/// Rows of a filter.
const TAPS: usize = 2 * REACH + 1;

/// Computes signal and noise of each distorted picture. Runs in the current rayon pool.
pub fn sums<T: Sample>(
    level: Level,
    reference: Plane<'_, T>,
    distorted: &[Plane<'_, T>],
    unit: f32,
) -> Vec<AnsnrSums> {
    let planes = [&[reference], distorted].concat();
    let pictures: Vec<_> = planes.into_iter().map(|plane| Centred::new(plane, unit)).collect();
    let bands = reference.height().div_ceil(BAND);
    let part = |i| band::<T>(level, &pictures, i * BAND);
    let bands: Vec<_> = (0..bands).into_par_iter().with_max_len(1).map(part).collect();
    let sum = |plane: usize| total(bands.iter().flat_map(|band| &band[plane]));
    let signal = sum(0);
    (1..pictures.len()).map(|plane| AnsnrSums { signal, noise: sum(plane) }).collect()
}

dispatch!(fn band[T: Sample](pictures: &[Centred<'_, T>], from: usize) -> Vec<Vec<f32>> = process[T]);

/// Returns the sums of the rows from `from` on: of the signal, and of the noise of each distorted picture.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process<V: Lanes, T: Sample>(pictures: &[Centred<'_, T>], from: usize) -> Vec<Vec<f32>> {
    let (width, height) = pictures[0].size();
    let rows = height.min(from + BAND) - from;
    let mut line = vec![0.0; width + 2 * REACH];
    // The rows that the filters read, filtered along themselves.
    let mut of_reference: [_; TAPS] = std::array::from_fn(|_| [vec![0.0; width], vec![0.0; width]]);
    let mut of_distorted: Vec<[_; TAPS]> = (1..pictures.len())
        .map(|_| std::array::from_fn(|_| [vec![0.0; width], vec![0.0; width], vec![0.0; width]]))
        .collect();
    let mut terms: Vec<Terms> = pictures.iter().map(|_| Terms::new(width)).collect();
    let mut filtered = vec![0.0; width];
    let mut sums: Vec<Vec<f32>> =
        pictures.iter().map(|_| Vec::with_capacity(rows.next_multiple_of(ROWS))).collect();
    for next in 0..rows + 2 * REACH {
        let y = mirror((from + next) as isize - REACH as isize, height);
        read(&pictures[0], y, &mut line);
        across(&line[1..], &REFERENCE, &mut of_reference[next % TAPS]);
        for (picture, ring) in pictures[1..].iter().zip(&mut of_distorted) {
            read(picture, y, &mut line);
            across(&line, &DISTORTED, &mut ring[next % TAPS]);
        }
        let Some(row) = next.checked_sub(2 * REACH) else { continue };
        let taps = [1, 2, 3].map(|k| &of_reference[(row + k) % TAPS]);
        down([&taps[0][0], &taps[1][1], &taps[2][0]], &mut filtered);
        let (signal, noise) = terms.split_at_mut(1);
        square(&filtered, signal[0].row(row % ROWS));
        for (ring, noise) in of_distorted.iter().zip(noise) {
            let tap = |k: usize| &ring[(row + k) % TAPS][k.min(TAPS - 1 - k)][..];
            let to = noise.row(row % ROWS);
            down([tap(0), tap(1), tap(2), tap(3), tap(4)], to);
            for (to, signal) in to.iter_mut().zip(&filtered) {
                let difference = signal - *to;
                *to = difference * difference;
            }
        }
        if row % ROWS == ROWS - 1 || row == rows - 1 {
            let count = row % ROWS + 1;
            sums.iter_mut().zip(&terms).for_each(|(sums, terms)| sums.extend(&terms.sums()[..count]));
        }
    }
    sums
}

/// Mirrors a row or column at the first one, and behind the last one.
fn mirror(i: isize, n: usize) -> usize {
    let i = i.unsigned_abs();
    if i < n { i } else { 2 * n - 1 - i }
}

/// Reads a row of a picture, with the columns on either side that filters read.
#[inline(always)]
fn read(picture: &impl Image, y: usize, to: &mut [f32]) {
    let (width, _) = picture.size();
    picture.read(y, &mut to[REACH..][..width]);
    for i in 1..=REACH {
        to[REACH - i] = to[REACH + mirror(-(i as isize), width)];
        to[REACH + width - 1 + i] = to[REACH + mirror((width - 1 + i) as isize, width)];
    }
}

/// Filters a line by each row of a filter.
#[inline(always)]
fn across<const N: usize, const KINDS: usize>(line: &[f32], filter: &[[f32; N]; KINDS], to: &mut [Vec<f32>]) {
    for kind in 0..KINDS {
        let to = &mut to[kind][..];
        let n = to.len();
        let mut taps = [&line[..n]; N];
        for k in 0..N {
            taps[k] = &line[k..][..n];
        }
        for x in 0..n {
            let mut sum = 0.0;
            for k in 0..N {
                sum += filter[kind][k] * taps[k][x];
            }
            to[x] = sum;
        }
    }
}

/// Adds rows, from the first on.
#[inline(always)]
fn down<const N: usize>(rows: [&[f32]; N], to: &mut [f32]) {
    let n = to.len();
    let mut taps = rows;
    for k in 0..N {
        taps[k] = &rows[k][..n];
    }
    for x in 0..n {
        let mut sum = 0.0;
        for k in 0..N {
            sum += taps[k][x];
        }
        to[x] = sum;
    }
}

#[inline(always)]
fn square(values: &[f32], to: &mut [f32]) {
    for (to, value) in to.iter_mut().zip(values) {
        *to = value * value;
    }
}

/// Signal and noise.
pub struct Ansnr;

impl Metric for Ansnr {
    type Of = metrics::ansnr::Ansnr;

    fn prepare(_work: &AnsnrWork, _setup: &Setup) -> Result<Self, BackendError> {
        Ok(Self)
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<AnsnrSums>> {
        let Pictures { level, depth, .. } = *pictures;
        Some(typed!(PlaneGroup: &pictures.luma, |r, d| sums(level, *r, d, depth.unit())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::tests::{Picture, content, group, planes};

    /// Computes the definition in plain loops, tap by tap.
    fn naive(reference: &Picture, distorted: &Picture) -> AnsnrSums {
        let (width, height) = (reference.width, reference.height);
        let outer = |i: usize, n: usize| i.min(n - 1 - i);
        let filter = |picture: &Picture, taps: usize, weight: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
            let unit = 2f32.powi(8 - picture.depth.bits() as i32);
            let samples: Vec<_> =
                picture.samples().into_iter().map(|v| f32::from(v) * unit - 128.0).collect();
            let at = |i: usize, k: usize, n: usize| mirror((i + k) as isize - (taps / 2) as isize, n);
            let pixel = |x: usize, y: usize| {
                (0..taps).fold(0.0, |sum, fi| {
                    let term =
                        |fj: usize| weight(fi, fj) * samples[at(y, fi, height) * width + at(x, fj, width)];
                    sum + (0..taps).fold(0f32, |sum, fj| sum + term(fj))
                })
            };
            (0..width * height).map(|i| pixel(i % width, i / width)).collect()
        };
        let a = filter(reference, 3, &|fi, fj| REFERENCE[outer(fi, 3)][fj]);
        let b = filter(distorted, 5, &|fi, fj| DISTORTED[outer(fi, 5)][fj]);
        let sum = |term: &dyn Fn(usize) -> f32| {
            let row = |y: usize| (0..width).fold(0f32, |sum, x| sum + term(y * width + x));
            (0..height).fold(0f32, |sum, y| sum + row(y))
        };
        let noise = |i: usize| (a[i] - b[i]) * (a[i] - b[i]);
        AnsnrSums { signal: sum(&|i| a[i] * a[i]), noise: sum(&noise) }
    }

    #[test]
    fn equals_the_definition_at_every_size_and_depth() {
        let sizes = (3..=40).flat_map(|n| [(n, 3 + n % 7), (3 + n % 5, n), (n, 64 + n % 5)]);
        for (i, (width, height)) in sizes.chain([(131, 200)]).enumerate() {
            for bits in [8, 9 + i as u32 % 8, 16] {
                let pictures = group(&content(i, width, height, bits));
                let expected: Vec<_> =
                    pictures[1..].iter().map(|picture| naive(&pictures[0], picture)).collect();
                for level in Level::available() {
                    let unit = pictures[0].depth.unit();
                    let found = planes!(&pictures, |planes| sums(level, planes[0], &planes[1..], unit));
                    assert_eq!(found, expected, "{level:?} {width}x{height} {bits}");
                }
            }
        }
    }
}
