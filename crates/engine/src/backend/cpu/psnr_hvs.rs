// SPDX-License-Identifier: MPL-2.0

//! PSNR-HVS: as many blocks at a time as a vector has lanes.
//!
//! The errors of a plane have to be added in single precision one after the other. Only this step runs on one thread
//! per plane: it adds the errors that the others have found, without the zeros.

use super::metric::{Metric, Pictures, Setup, typed};
use super::simd::{Lanes, Level, dispatch};
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Plane, PlaneGroup, Sample};
use crate::metrics;
use crate::metrics::psnr_hvs::{BLOCK, PsnrHvsSums, PsnrHvsWork, STEP, TABLES, Tables, blocks};
use rayon::prelude::*;
use std::ops::Range;

/// Samples in a block.
const SIZE: usize = BLOCK * BLOCK;
/// Rows of blocks in a part.
const BAND: usize = 8;
/// Lanes of the widest vectors.
const MAX_LANES: usize = 16;

/// Computes the bits of the sum of all errors of each distorted plane. Runs in the current rayon pool.
pub fn errors<T: Sample>(
    level: Level,
    reference: Plane<T>,
    distorted: &[Plane<T>],
    tables: &Tables,
) -> Vec<u32> {
    let rows = blocks(reference.height());
    let work = |i| band::<T>(level, reference, distorted, i * BAND..rows.min((i + 1) * BAND), tables);
    let bands: Vec<Vec<Vec<f32>>> =
        (0..rows.div_ceil(BAND)).into_par_iter().with_max_len(1).map(work).collect();
    let sum = |i: usize| bands.iter().flat_map(|band| &band[i]).fold(0.0, |sum: f32, error| sum + error);
    (0..distorted.len()).map(|i| sum(i).to_bits()).collect()
}

dispatch!(fn band[T: Sample](
    reference: Plane<'_, T>, distorted: &[Plane<'_, T>], rows: Range<usize>, tables: &Tables,
) -> Vec<Vec<f32>> = process[T]);

/// Computes the errors of each distorted plane in these rows of blocks, in order, without zeros.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process<V: Lanes, T: Sample>(
    reference: Plane<'_, T>,
    distorted: &[Plane<'_, T>],
    rows: Range<usize>,
    tables: &Tables,
) -> Vec<Vec<f32>> {
    let columns = blocks(reference.width());
    let mut found = vec![Vec::new(); distorted.len()];
    let mut errors = [0f32; SIZE * MAX_LANES];
    // SAFETY: the CPU has the instructions, as the caller has promised; vectors have at most MAX_LANES lanes.
    unsafe {
        for y in rows {
            for x in (0..columns).step_by(V::N) {
                let (reference, least) = spectrum::<V, T>(&reference, [x, y], columns, tables);
                let least = V::max_f32(least, V::splat_f32(0.0));
                for (plane, found) in distorted.iter().zip(&mut found) {
                    let (distorted, strength) = spectrum::<V, T>(plane, [x, y], columns, tables);
                    // The distorted picture counts only if its strength is greater.
                    let strength = V::max_f32(strength, least);
                    for k in 0..SIZE {
                        let mut error = V::to_f32(V::abs(V::sub(reference[k], distorted[k])));
                        if k > 0 {
                            let mask = V::splat_f32(tables.mask[k / BLOCK][k % BLOCK]);
                            let threshold = V::div_f32(strength, mask);
                            let above = V::gt_f32(error, threshold);
                            error = V::keep_f32(above, V::sub_f32(error, threshold));
                        }
                        let error = V::mul_f32(error, V::splat_f32(tables.csf[k / BLOCK][k % BLOCK]));
                        V::store_f32(errors.as_mut_ptr().add(k * V::N), V::mul_f32(error, error));
                    }
                    for lane in 0..V::N.min(columns - x) {
                        append(found, &errors[lane..], V::N);
                    }
                }
            }
        }
    }
    found
}

/// Computes the coefficients of neighbouring blocks from block (x, y) on, and the strength with which they mask errors.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn spectrum<V: Lanes, T: Sample>(
    plane: &Plane<'_, T>,
    from: [usize; 2],
    columns: usize,
    tables: &Tables,
) -> ([V::I; SIZE], V::F) {
    let mut samples = [0i32; SIZE * MAX_LANES];
    // SAFETY: the CPU has the instructions, as the caller has promised; vectors have at most MAX_LANES lanes.
    unsafe {
        load::<T>(plane, from, columns, V::N, &mut samples);
        let mut block = [V::splat(0); SIZE];
        for k in 0..SIZE {
            block[k] = V::load(samples.as_ptr().add(k * V::N));
        }
        let ratio = activity::<V>(&block);
        transform::<V>(&mut block);
        (block, masking::<V>(&block, ratio, tables))
    }
}

/// Appends the nonzero errors of a block.
#[inline(always)]
fn append(found: &mut Vec<f32>, errors: &[f32], step: usize) {
    let mut block = [0.0; SIZE];
    let mut n = 0;
    for k in 0..SIZE {
        let error = errors[k * step];
        block[n] = error;
        n += usize::from(error != 0.0);
    }
    found.extend_from_slice(&block[..n]);
}

/// Loads the samples of `n` neighbouring blocks from block (x, y) on, sample by sample. The last block of the row
/// stands in for those after it.
#[inline(always)]
fn load<T: Sample>(plane: &Plane<'_, T>, [x, y]: [usize; 2], columns: usize, n: usize, to: &mut [i32]) {
    for i in 0..BLOCK {
        let row = plane.row(y * STEP + i);
        for lane in 0..n {
            let from = (x + lane).min(columns - 1) * STEP;
            for j in 0..BLOCK {
                to[(i * BLOCK + j) * n + lane] = row.at(from + j).into();
            }
        }
    }
}

/// Computes the sum of the quadrants' variances over that of the block, 0 for flat blocks.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn activity<V: Lanes>(block: &[V::I; SIZE]) -> V::F {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe {
        let all = V::mul_f32(deviation::<V, BLOCK>(block, 0), V::splat_f32((1.0f32 / 63.0) * 64.0));
        let mut quarters = V::splat_f32(0.0);
        // Top left, bottom left, top right, bottom right.
        for first in [0, 4 * BLOCK, 4, 4 * BLOCK + 4] {
            let factor = V::splat_f32((1.0f32 / 15.0) * 16.0);
            quarters = V::add_f32(quarters, V::mul_f32(deviation::<V, 4>(block, first), factor));
        }
        V::keep_f32(V::gt_f32(all, V::splat_f32(0.0)), V::div_f32(quarters, all))
    }
}

/// Computes the sum of squared differences from the mean of `N` x `N` samples, the first of which is `first`.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn deviation<V: Lanes, const N: usize>(block: &[V::I; SIZE], first: usize) -> V::F {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe {
        let mut sum = V::splat(0);
        for k in 0..N * N {
            sum = V::add(sum, block[first + k / N * BLOCK + k % N]);
        }
        let mean = V::mul_f32(V::to_f32(sum), V::splat_f32(1.0 / (N * N) as f32));
        let mut squares = V::splat_f32(0.0);
        for k in 0..N * N {
            let difference = V::sub_f32(V::to_f32(block[first + k / N * BLOCK + k % N]), mean);
            squares = V::add_f32(squares, V::mul_f32(difference, difference));
        }
        squares
    }
}

/// Computes the strength with which a block with these coefficients masks errors.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn masking<V: Lanes>(coefficients: &[V::I; SIZE], ratio: V::F, tables: &Tables) -> V::F {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe {
        let mut energy = V::splat_f32(0.0);
        for k in 1..SIZE {
            let square = V::to_f32(V::mul(coefficients[k], coefficients[k]));
            let weight = V::splat_f32(tables.mask[k / BLOCK][k % BLOCK]);
            energy = V::add_f32(energy, V::mul_f32(square, weight));
        }
        V::mul_f32(V::sqrt_f32(V::mul_f32(energy, ratio)), V::splat_f32(1.0 / 32.0))
    }
}

/// Transforms a block, first the columns, then the rows.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn transform<V: Lanes>(block: &mut [V::I; SIZE]) {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe {
        for j in 0..BLOCK {
            transform8::<V>(block, j, BLOCK);
        }
        for i in 0..BLOCK {
            transform8::<V>(block, i * BLOCK, 1);
        }
    }
}

/// Computes the integer DCT of eight numbers `step` apart, as a cascade of lifting steps.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn transform8<V: Lanes>(block: &mut [V::I; SIZE], first: usize, step: usize) {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe {
        let x0 = block[first];
        let x1 = block[first + step];
        let x2 = block[first + 2 * step];
        let x3 = block[first + 3 * step];
        let x4 = block[first + 4 * step];
        let x5 = block[first + 5 * step];
        let x6 = block[first + 6 * step];
        let x7 = block[first + 7 * step];
        let d07 = V::sub(x0, x7);
        let h07 = half::<V>(d07);
        let s07 = V::sub(x0, h07);
        let s16 = V::add(x1, x6);
        let h16 = half::<V>(s16);
        let d16 = V::sub(x6, h16);
        let d25 = V::sub(x2, x5);
        let s25 = V::sub(x2, half::<V>(d25));
        let s34 = V::add(x3, x4);
        let h34 = half::<V>(s34);
        let d34 = V::sub(h34, x4);

        let mut e0 = V::add(s07, h34);
        let mut e6 = V::sub(e0, s34);
        let mut e2 = V::sub(h16, s25);
        let mut e4 = V::sub(e2, s16);
        e0 = V::sub(e0, scaled::<V, 15>(e4, 13573));
        e4 = V::add(e4, scaled::<V, 14>(e0, 11585));
        e0 = V::sub(e0, scaled::<V, 15>(e4, 13573));
        e6 = V::sub(e6, scaled::<V, 15>(e2, 21895));
        e2 = V::add(e2, scaled::<V, 14>(e6, 15137));
        e6 = V::sub(e6, scaled::<V, 15>(e2, 21895));

        let mut o3 = V::add(d25, scaled::<V, 15>(d16, 19195));
        let mut o5 = V::add(d16, scaled::<V, 14>(o3, 11585));
        o3 = V::sub(o3, scaled::<V, 13>(o5, 7489));
        let mut o7 = V::sub(half::<V>(o5), d34);
        o5 = V::sub(o5, o7);
        o3 = V::sub(h07, o3);
        let mut o1 = V::sub(d07, o3);
        o7 = V::add(o7, scaled::<V, 15>(o1, 3227));
        o1 = V::sub(o1, scaled::<V, 15>(o7, 6393));
        o7 = V::add(o7, scaled::<V, 15>(o1, 3227));
        o5 = V::add(o5, scaled::<V, 13>(o3, 2485));
        o3 = V::sub(o3, scaled::<V, 15>(o5, 18205));
        o5 = V::add(o5, scaled::<V, 13>(o3, 2485));

        block[first] = e0;
        block[first + step] = o1;
        block[first + 2 * step] = e2;
        block[first + 3 * step] = o3;
        block[first + 4 * step] = e4;
        block[first + 5 * step] = o5;
        block[first + 6 * step] = e6;
        block[first + 7 * step] = o7;
    }
}

/// Halves a number, rounding towards zero.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn half<V: Lanes>(a: V::I) -> V::I {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe { V::sra::<1>(V::sub(a, V::sra::<31>(a))) }
}

/// Computes `(a factor + 2^(K-1)) >> K`.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn scaled<V: Lanes, const K: u32>(a: V::I, factor: i32) -> V::I {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe { V::sra::<K>(V::add(V::mul(a, V::splat(factor)), V::splat(1 << (K - 1)))) }
}

/// PSNR-HVS of Y, Cb and Cr. Its blocks need no working memory.
pub struct PsnrHvs;

impl Metric for PsnrHvs {
    type Of = metrics::psnr_hvs::PsnrHvs;

    fn prepare(_work: &PsnrHvsWork, _setup: &Setup) -> Result<Self, BackendError> {
        Ok(Self)
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<PsnrHvsSums>> {
        let [cb, cr] = pictures.chroma.as_ref()?;
        let components = [&pictures.luma, cb, cr];
        let sums = |(planes, tables): (&PlaneGroup<'_>, _)| typed!(PlaneGroup: planes, |r, d| errors(pictures.level, *r, d, tables));
        let sums: Vec<_> = components.into_par_iter().zip(&TABLES).with_max_len(1).map(sums).collect();
        Some((0..pictures.distorted()).map(|i| [sums[0][i], sums[1][i], sums[2][i]]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::tests::{Picture, content, group, planes};
    use crate::metrics::psnr_hvs::TABLES;

    /// The specification in plain loops.
    mod naive {
        use super::*;

        type Block = [[i64; BLOCK]; BLOCK];

        fn transform8(x: [i64; BLOCK]) -> [i64; BLOCK] {
            let half = |a: i64| (a + i64::from(a < 0)) >> 1;
            let m = |a: i64, factor: i64, shift: u32| (a * factor + (1 << (shift - 1))) >> shift;
            let (d07, s16, d25, s34) = (x[0] - x[7], x[1] + x[6], x[2] - x[5], x[3] + x[4]);
            let (h07, h16, h34) = (half(d07), half(s16), half(s34));
            let (s07, d16, s25, d34) = (x[0] - h07, x[6] - h16, x[2] - half(d25), h34 - x[4]);
            let mut e = [s07 + h34, 0, h16 - s25, 0];
            e[3] = e[0] - s34;
            e[1] = e[2] - s16;
            e.swap(1, 2);
            let [mut e0, mut e2, mut e4, mut e6] = e;
            e0 -= m(e4, 13573, 15);
            e4 += m(e0, 11585, 14);
            e0 -= m(e4, 13573, 15);
            e6 -= m(e2, 21895, 15);
            e2 += m(e6, 15137, 14);
            e6 -= m(e2, 21895, 15);
            let mut o3 = d25 + m(d16, 19195, 15);
            let mut o5 = d16 + m(o3, 11585, 14);
            o3 -= m(o5, 7489, 13);
            let mut o7 = half(o5) - d34;
            o5 -= o7;
            o3 = h07 - o3;
            let mut o1 = d07 - o3;
            o7 += m(o1, 3227, 15);
            o1 -= m(o7, 6393, 15);
            o7 += m(o1, 3227, 15);
            o5 += m(o3, 2485, 13);
            o3 -= m(o5, 18205, 15);
            o5 += m(o3, 2485, 13);
            [e0, o1, e2, o3, e4, o5, e6, o7]
        }

        fn transform(block: &Block) -> Block {
            let transposed = |b: &Block| -> Block { std::array::from_fn(|i| b.map(|row| row[i])) };
            let columns = transposed(&transposed(block).map(transform8));
            columns.map(transform8)
        }

        /// Computes the sum of squared differences from the mean over `n` x `n` samples.
        fn deviation(block: &Block, top: usize, left: usize, n: usize) -> f32 {
            let samples = || (0..n * n).map(|k| block[top + k / n][left + k % n] as f32);
            let mean = samples().sum::<f32>() / (n * n) as f32;
            samples().fold(0.0, |sum, v| sum + (v - mean) * (v - mean))
        }

        fn strength(block: &Block, tables: &Tables) -> f32 {
            let all = deviation(block, 0, 0, 8) * ((1.0f32 / 63.0) * 64.0);
            let quarter = |top, left| deviation(block, top, left, 4) * ((1.0f32 / 15.0) * 16.0);
            let quarters = ((quarter(0, 0) + quarter(4, 0)) + quarter(0, 4)) + quarter(4, 4);
            let ratio = if all > 0.0 { quarters / all } else { 0.0 };
            let coefficients = transform(block);
            let term = |k: usize| (coefficients[k / 8][k % 8].pow(2)) as f32 * tables.mask[k / 8][k % 8];
            let energy = (1..64).fold(0.0, |sum, k| sum + term(k));
            f64::from(energy * ratio).sqrt() as f32 / 32.0
        }

        pub fn errors(pair: &[&Picture; 2], tables: &Tables) -> u32 {
            let (w, h) = (pair[0].width, pair[0].height);
            let samples = pair.map(Picture::samples);
            let mut total = 0.0f32;
            for y in (0..h - 7).step_by(7) {
                for x in (0..w - 7).step_by(7) {
                    let [a, b]: [Block; 2] = samples.each_ref().map(|samples| {
                        let at = |i: usize, j: usize| i64::from(samples[(y + i) * w + x + j]);
                        std::array::from_fn(|i| std::array::from_fn(|j| at(i, j)))
                    });
                    let (s1, s2) = (strength(&a, tables), strength(&b, tables));
                    let s = if s2 > s1 { s2 } else { s1 };
                    let (a, b) = (transform(&a), transform(&b));
                    for (i, j) in (0..8).flat_map(|i| (0..8).map(move |j| (i, j))) {
                        let mut d = (a[i][j] - b[i][j]).abs() as f32;
                        if (i, j) != (0, 0) {
                            let t = s / tables.mask[i][j];
                            d = if d < t { 0.0 } else { d - t };
                        }
                        let e = d * tables.csf[i][j];
                        total += e * e;
                    }
                }
            }
            total.to_bits()
        }
    }

    fn check(pair: &[Picture; 2], tables: &Tables) {
        let pictures = group(pair);
        let expected = [1, 2, 3].map(|i| naive::errors(&[&pictures[0], &pictures[i]], tables));
        for level in Level::available() {
            for n in 1..=expected.len() {
                let found = planes!(&pictures[..=n], |p| errors(level, p[0], &p[1..], tables));
                assert_eq!(found, expected[..n], "{level:?} {}x{}", pair[0].width, pair[0].height);
            }
        }
    }

    #[test]
    fn equals_the_specification_at_every_size_and_depth() {
        for (i, n) in (8..=75).enumerate() {
            for (width, height) in [(n, 8 + n % 17), (8 + n % 13, n)] {
                for bits in [8, 9 + i as u32 % 4, 12] {
                    check(&content(i, width, height, bits), &TABLES[i % 3]);
                }
            }
        }
        check(&content(1, 250, 130, 8), &TABLES[0]);
    }
}
