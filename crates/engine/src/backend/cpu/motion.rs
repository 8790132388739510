// SPDX-License-Identifier: MPL-2.0

//! Motion: the sum of absolute blurred differences of two frames, two rows at a time.
//!
//! Filters multiply numbers of 16 bits. Differences of samples of 16 bits have 17, and so have blurred differences of
//! samples of any depth, as a vertical blur goes on in 2^-16 of the range. In real frames hardly any row has
//! differences of half the range, which take the last bit; those that have are blurred again, in two parts.
//!
//! A number `e` of 17 bits is filtered in two parts, `e = 2 h + b`:
//! `(sum(F e) + 2^(s-1)) >> s == (sum(F h) + ((sum(F b) + 2^(s-1)) >> 1)) >> (s-1)`.

use super::filter::{BLOCK, FILTERS, Line, PAD, extend, horizontal, load_samples, mirror, row_stride};
use super::metric::{Metric, Pictures, Setup, typed};
use super::simd::{Lanes, Level, dispatch};
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Plane, Row, Sample, prefetch};
use crate::frame::BitDepth;
use crate::metrics;
use crate::metrics::motion::{MotionSums, MotionWork};
use rayon::prelude::*;

/// Uses the five taps of VIF's scale 2 for the blur.
const BLUR: usize = 2;
/// Row pairs that two output rows read.
const PAIRS: usize = FILTERS[BLUR].radius + 1;
/// Rows of a part; even.
const BAND: usize = 64;

/// Sums the absolute values of the blurred difference of two luma planes of the same size (at least `MIN_SIZE` of the
/// metric) and depth, in 1/256 of an 8-bit step. Runs in the current rayon pool.
pub fn sad<T: Sample>(level: Level, earlier: Plane<T>, later: Plane<T>, depth: BitDepth) -> u64 {
    let (planes, bits) = ([earlier, later], depth.bits());
    let bands = earlier.height().div_ceil(BAND);
    let scratch = || Scratch::new(earlier.width());
    let work = |scratch: &mut Scratch, i| match bits {
        16 => band::<T, true>(level, planes, i * BAND, bits, scratch),
        _ => band::<T, false>(level, planes, i * BAND, bits, scratch),
    };
    (0..bands).into_par_iter().map_init(scratch, work).sum()
}

/// Rows in work, for one thread.
struct Scratch {
    /// [`PAIRS`] row pairs; for each block of columns the vectors that [`difference`] writes.
    ring: Vec<Line>,
    /// Two vertically blurred rows, each as [`blur`] writes it.
    rows: Vec<Line>,
}

impl Scratch {
    fn new(width: usize) -> Self {
        let ring = Line::zeroed(PAIRS * width.next_multiple_of(BLOCK) * 8);
        Self { ring, rows: Line::zeroed(4 * row_stride(width) * 2) }
    }
}

dispatch!(vnni fn band[T: Sample, const SPLIT: bool](
    planes: [Plane<'_, T>; 2], from: usize, bits: u32, scratch: &mut Scratch
) -> u64 = process[T, SPLIT]);

/// Computes the part of the sum from row `from`. With `SPLIT`, differences are filtered in two parts.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process<V: Lanes, T: Sample, const SPLIT: bool>(
    planes: [Plane<'_, T>; 2],
    from: usize,
    bits: u32,
    scratch: &mut Scratch,
) -> u64 {
    let (width, height) = (planes[0].width(), planes[0].height());
    let slot = width.next_multiple_of(BLOCK) * 2;
    let stride = row_stride(width);
    let ring = scratch.ring.as_mut_ptr().cast::<i32>();
    let rows = scratch.rows.as_mut_ptr().cast::<u16>().wrapping_add(PAD);
    let end = height.min(from + BAND);
    let mut total = 0;
    let mut ready = 0;
    // SAFETY: the caller has promised that the CPU has the instructions, and scratch of this width; the ring holds
    // PAIRS slots of four vectors for each block of columns, the rows are the two parts of two rows, with PAD numbers
    // on either side.
    unsafe {
        for y in (from..end).step_by(2) {
            let group = (y - from) / 2;
            while ready < group + PAIRS {
                let row = from as isize - FILTERS[BLUR].radius as isize + 2 * ready as isize;
                let [upper, lower] = [mirror(row, height), mirror(row + 1, height)];
                let lines =
                    [planes[0].row(upper), planes[1].row(upper), planes[0].row(lower), planes[1].row(lower)];
                let ahead = planes.map(|plane| plane.pair_ahead(row));
                difference::<V, T, SPLIT>(ring.add(ready % PAIRS * slot), lines, ahead);
                ready += 1;
            }
            let pairs = std::array::from_fn(|s| ring.add((group + s) % PAIRS * slot).cast_const());
            let wide = blur::<V, SPLIT, false>(pairs, width, bits, rows);
            if wide {
                blur::<V, SPLIT, true>(pairs, width, bits, rows);
            }
            for row in 0..2.min(end - y) {
                let from = rows.add(2 * row * stride);
                extend(from, width, FILTERS[BLUR].radius);
                if wide {
                    extend(from.add(stride), width, FILTERS[BLUR].radius);
                    total += row_sum::<V, true>(from, width);
                } else {
                    total += row_sum::<V, false>(from, width);
                }
            }
        }
    }
    total
}

/// Writes the differences of a row pair of the earlier and the later frame: for each block of columns a vector of the
/// even columns and one of the odd columns, the upper row in the low halves. With `SPLIT`, these are halved, and two
/// vectors with the lowest bits of the even and of the odd columns follow. Prefetches the rows `ahead`.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. `at` must have room for four vectors for each block of `2 N` columns of
/// the lines.
#[inline(always)]
unsafe fn difference<V: Lanes, T: Sample, const SPLIT: bool>(
    at: *mut i32,
    lines: [Row<'_, T>; 4],
    ahead: [[&[T]; 2]; 2],
) {
    // SAFETY: the caller has promised that the CPU has the instructions, and four vectors for each block of columns
    // at `at`.
    unsafe {
        for x in (0..lines[0].len()).step_by(2 * V::N) {
            ahead.as_flattened().iter().for_each(|row| prefetch(row, x, 2 * V::N));
            let (a0, b0) = (load_samples::<V, T>(lines[0], x), load_samples::<V, T>(lines[1], x));
            let (a1, b1) = (load_samples::<V, T>(lines[2], x), load_samples::<V, T>(lines[3], x));
            let at = at.add(2 * x);
            if SPLIT {
                let bit = V::splat(0x0001_0001);
                store_pair::<V>(at, half_difference::<V>(a0, b0), half_difference::<V>(a1, b1));
                store_pair::<V>(at.add(2 * V::N), V::and(V::xor(a0, b0), bit), V::and(V::xor(a1, b1), bit));
            } else {
                store_pair::<V>(at, V::sub16(a0, b0), V::sub16(a1, b1));
            }
        }
    }
}

/// Computes `(a - b) >> 1` of unsigned 16-bit lanes.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn half_difference<V: Lanes>(a: V::I, b: V::I) -> V::I {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe {
        let low = V::splat(0x7fff_7fff);
        let (a2, b2) = (V::and(V::shr::<1>(a), low), V::and(V::shr::<1>(b), low));
        // One less if an odd number is subtracted from an even one.
        let borrow = V::and(V::and(V::xor(a, b), b), V::splat(0x0001_0001));
        V::sub16(V::sub16(a2, b2), borrow)
    }
}

/// Stores two rows interleaved: even columns, then odd ones.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. `at` must have room for two vectors.
#[inline(always)]
unsafe fn store_pair<V: Lanes>(at: *mut i32, upper: V::I, lower: V::I) {
    // SAFETY: the caller has promised that the CPU has the instructions, and the room.
    unsafe {
        V::store(at, V::blend16(upper, V::shl::<16>(lower)));
        V::store(at.add(V::N), V::blend16(V::shr::<16>(upper), lower));
    }
}

/// Blurs two rows vertically. Returns true if a number has more than 16 bits. With `WIDE`, the halves of the numbers go
/// to the first and the third of four rows, and their lowest bits to the rows after these; otherwise their low 16 bits
/// go to the first and the third.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. The pairs must be as [`difference`] writes them. From `rows` on there
/// must be four rows of scratch of this width.
#[inline(always)]
unsafe fn blur<V: Lanes, const SPLIT: bool, const WIDE: bool>(
    pairs: [*const i32; PAIRS],
    width: usize,
    bits: u32,
    rows: *mut u16,
) -> bool {
    let stride = row_stride(width);
    // SAFETY: the caller has promised that the CPU has the instructions, the pairs, and room for the rows.
    unsafe {
        let begin = V::splat(1 << (bits - 1));
        let mut range = V::splat(0);
        for x in (0..width).step_by(2 * V::N) {
            // For each row, of the even and of the odd columns: the sums of the differences, or of their halves and of
            // their lowest bits.
            let mut sums = [[if SPLIT { V::splat(0) } else { begin }; 2]; 2];
            let mut lowest = [[begin; 2]; 2];
            for s in 0..PAIRS {
                let taps = FILTERS[BLUR].taps[s];
                for side in 0..2 {
                    let at = pairs[s].add(2 * x + side * V::N);
                    let values = V::load(at);
                    for row in 0..2 {
                        sums[row][side] = V::dot16(sums[row][side], values, V::splat(taps[row]));
                        if SPLIT {
                            let bit = V::load(at.add(2 * V::N));
                            lowest[row][side] = V::dot16(lowest[row][side], bit, V::splat(taps[row]));
                        }
                    }
                }
            }
            for row in 0..2 {
                let mut blurred = sums[row];
                for side in 0..2 {
                    blurred[side] = if SPLIT {
                        V::sra_by(V::add(sums[row][side], V::shr::<1>(lowest[row][side])), bits - 1)
                    } else {
                        V::sra_by(sums[row][side], bits)
                    };
                    range = V::or(range, V::add(blurred[side], V::splat(1 << 15)));
                }
                let [even, odd] = blurred;
                let to = rows.add(2 * row * stride + x);
                if WIDE {
                    V::store16(to, V::blend16(V::sra::<1>(even), V::shl::<15>(odd)));
                    let bit = V::splat(0x0001_0001);
                    V::store16(to.add(stride), V::and(V::blend16(even, V::shl::<16>(odd)), bit));
                } else {
                    V::store16(to, V::blend16(even, V::shl::<16>(odd)));
                }
            }
        }
        // The bias has made all numbers of 16 bits positive and smaller than 2^16.
        V::any(V::gt(V::shr::<16>(range), V::splat(0)))
    }
}

/// Blurs a row horizontally and sums its absolute values.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. `from` must point to a row of scratch of this width, as [`blur`] writes
/// it, with its ends mirrored.
#[inline(always)]
unsafe fn row_sum<V: Lanes, const WIDE: bool>(from: *const u16, width: usize) -> u64 {
    // SAFETY: the caller has promised that the CPU has the instructions, and the mirrored row. A lane adds
    // at most 2^16 for each of its pixels, so 31 bits last for rows of 2^18 samples.
    unsafe {
        let mut sum = V::splat(0);
        for x in (0..width).step_by(2 * V::N) {
            let mut sums = horizontal::<V, BLUR>(from.add(x), if WIDE { 0 } else { 1 << 15 });
            if WIDE {
                let low = horizontal::<V, BLUR>(from.add(row_stride(width) + x), 1 << 15);
                for side in 0..2 {
                    sums[side] = V::add(sums[side], V::shr::<1>(low[side]));
                }
            }
            for side in 0..2 {
                let blurred = if WIDE { V::sra::<15>(sums[side]) } else { V::sra::<16>(sums[side]) };
                let inside = V::first((width - x + 1 - side) / 2);
                sum = V::add(sum, V::keep(inside, V::abs(blurred)));
            }
        }
        V::sum(sum) as u64
    }
}

/// Motion of the reference, which all distorted pictures of a group share.
pub struct Motion(MotionWork);

impl Metric for Motion {
    type Of = metrics::motion::Motion;
    const HISTORY: bool = true;

    fn prepare(work: &MotionWork, _setup: &Setup) -> Result<Self, BackendError> {
        Ok(Self(*work))
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<MotionSums>> {
        let Pictures { level, depth, .. } = *pictures;
        let sum = |lag: usize| {
            let pair = pictures.earlier.get(lag - 1)?;
            Some(typed!(PlanePair: *pair, |earlier, later| sad(level, earlier, later, depth)))
        };
        let Self(MotionWork { lag1, lag2 }) = *self;
        let sums = MotionSums { lag1: lag1.then(|| sum(1)).flatten(), lag2: lag2.then(|| sum(2)).flatten() };
        Some(vec![sums; pictures.distorted()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::tests::{Picture, content, synthetic};
    use crate::metrics::vif::TAPS;

    /// Computes the specification in plain loops.
    fn naive(a: &Picture, b: &Picture) -> u64 {
        let (w, h) = (a.width as isize, a.height as isize);
        let (a, b, bits) = (a.samples(), b.samples(), a.depth.bits());
        let reflect = |i: isize, n: isize| if i.abs() < n { i.abs() } else { 2 * (n - 1) - i };
        let at = |x: isize, y: isize| (reflect(y, h) * w + reflect(x, w)) as usize;
        let taps = || TAPS[2].iter().enumerate().map(|(k, tap)| (k as isize - 2, i64::from(*tap)));
        let all = || (0..h).flat_map(|y| (0..w).map(move |x| (x, y)));
        let e: Vec<i64> = a.iter().zip(&b).map(|(a, b)| i64::from(*a) - i64::from(*b)).collect();
        let column = |(x, y)| taps().map(|(k, tap)| tap * e[at(x, y + k)]).sum::<i64>();
        let v: Vec<i64> = all().map(column).map(|sum| (sum + (1 << (bits - 1))) >> bits).collect();
        let row = |(x, y)| taps().map(|(k, tap)| tap * v[at(x + k, y)]).sum::<i64>();
        all().map(row).map(|sum| ((sum + 32768) >> 16).unsigned_abs()).sum()
    }

    fn run(level: Level, a: &Picture, b: &Picture) -> u64 {
        match a.depth.bits() {
            8 => sad(level, a.bytes().plane(), b.bytes().plane(), a.depth),
            _ => sad(level, a.words().plane(), b.words().plane(), a.depth),
        }
    }

    #[test]
    fn known_sums_of_synthetic_frames() {
        let expected = [
            (8, [27815245, 29110955, 29885617, 26052228, 23352541]),
            (10, [9211093, 11147059, 12873315, 18940336, 21743180]),
            (12, [2031373, 2261774, 2492121, 4293142, 4753909]),
            (16, [126971, 141366, 155767, 268315, 297117]),
        ];
        for level in Level::available() {
            for (bits, sums) in expected {
                for ((from, to), sum) in [(0, 1), (1, 2), (2, 3), (0, 2), (1, 3)].into_iter().zip(sums) {
                    let [[a, _], [b, _]] = [synthetic(from, bits), synthetic(to, bits)];
                    assert_eq!(run(level, &a, &b), sum, "{level:?} {bits} {from} {to}");
                }
            }
        }
    }

    #[test]
    fn equals_the_specification_at_every_size_and_depth() {
        let sizes = (3..=71).flat_map(|n| [(n, 3 + n % 7), (3 + n % 5, n), (n, 64 + n % 3)]);
        for (i, (width, height)) in sizes.enumerate() {
            for bits in [8, 9 + i as u32 % 8, 16] {
                let [a, b] = content(i, width, height, bits);
                let expected = [naive(&a, &b), naive(&b, &a)];
                for level in Level::available() {
                    let found = [run(level, &a, &b), run(level, &b, &a)];
                    assert_eq!(found, expected, "{level:?} {width}x{height} {bits}");
                }
            }
        }
    }
}
