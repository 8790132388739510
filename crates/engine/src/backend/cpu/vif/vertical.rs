// SPDX-License-Identifier: MPL-2.0

//! The vertical filters of VIF: from row pairs of the ring to four filtered rows, or to two rows of the next scale.
//!
//! The filters run on 16-bit quantities ([`Quantities`]) of two pictures. Wider operands are split in 16-bit halves:
//! `(sum(F q) + 2^(s-1)) >> s == (sum(F hi) << (16 - s)) + ((sum(F lo) + 2^(s-1)) >> s)`.

use crate::backend::cpu::filter::{
    FILTERS, FLIPPED, PAD, bias, extend, horizontal, load_samples, row_stride, whole,
};
use crate::backend::cpu::plane::{Row, Sample, prefetch};
use crate::backend::cpu::simd::Lanes;

/// Rows that are filtered together.
pub const ROWS: usize = 4;
/// Buffered rows for each filtered row: two means, and high and low halves of three products.
pub const PLANES: usize = 8;

/// The highest bits of both halves.
const FLIP: i32 = 0x8000_8000_u32 as i32;

/// Returns half of the range of `bits` bit samples, in both halves of a lane.
pub(super) const fn middle(bits: u32) -> i32 {
    (0x0001_0001_u32 << (bits - 1)) as i32
}

/// Row pairs of the reference, and those of a distorted picture `apart` numbers after them.
#[derive(Clone, Copy)]
pub(super) struct Pairs<'a> {
    pub reference: &'a [*const i32],
    pub apart: usize,
}

/// Writes a row pair into the ring: for each block of columns a vector for the even and one for the odd columns, the
/// upper row in the low halves, less half of the sample range to make them signed. Prefetches the rows `ahead`.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. `at` must have room for two vectors for each block of `2 N` columns of
/// the lines.
#[inline(always)]
pub(super) unsafe fn interleave<V: Lanes, T: Sample>(
    at: *mut i32,
    lines: [Row<'_, T>; 2],
    ahead: [&[T]; 2],
    bits: u32,
) {
    // SAFETY: whole vectors are read inside the rows, the rest from an array of a vector's size; the caller
    // provides two vectors to write for each block of columns.
    unsafe {
        let middle = V::splat(middle(bits));
        for x in (0..lines[0].len()).step_by(2 * V::N) {
            ahead.iter().for_each(|row| prefetch(row, x, 2 * V::N));
            let upper = V::sub16(load_samples::<V, T>(lines[0], x), middle);
            let lower = V::sub16(load_samples::<V, T>(lines[1], x), middle);
            V::store(at.add(x), V::blend16(upper, V::shl::<16>(lower)));
            V::store(at.add(x + V::N), V::blend16(V::shr::<16>(upper), lower));
        }
    }
}

/// Returns the first quantity to compute: quantity 0 belongs to the reference alone.
const fn own(first: bool) -> usize {
    if first { 0 } else { 1 }
}

/// The operands of the vertical filters: 16-bit quantities of row pairs of both pictures, first that of the reference
/// alone, then that of the distorted picture alone.
trait Quantities<V: Lanes, const Q: usize> {
    /// Computes the quantities of a vector of samples of each picture. The samples come less `middle`, half of their
    /// range.
    ///
    /// # Safety
    ///
    /// The CPU must have the instructions of `V`.
    unsafe fn of(reference: V::I, distorted: V::I, middle: V::I) -> [V::I; Q];
}

/// The samples, less `middle`.
struct Samples;
/// Products of 8-bit samples less 128, which are at most 2^14. In the products of both pictures, the distorted samples
/// are not reduced; these products are less than 2^15.
struct Products8;
/// Low halves of the products of samples, flipped.
struct Low;
/// High halves of the products of samples, flipped.
struct High;

impl<V: Lanes> Quantities<V, 2> for Samples {
    #[inline(always)]
    unsafe fn of(r: V::I, d: V::I, _: V::I) -> [V::I; 2] {
        [r, d]
    }
}

impl<V: Lanes> Quantities<V, 3> for Products8 {
    #[inline(always)]
    unsafe fn of(r: V::I, d: V::I, middle: V::I) -> [V::I; 3] {
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe { [V::mul16(r, r), V::mul16(d, d), V::mul16(r, V::add16(d, middle))] }
    }
}

impl<V: Lanes> Quantities<V, 3> for Low {
    #[inline(always)]
    unsafe fn of(r: V::I, d: V::I, middle: V::I) -> [V::I; 3] {
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe {
            let (r, d, flip) = (V::add16(r, middle), V::add16(d, middle), V::splat(FLIP));
            [V::xor(V::mul16(r, r), flip), V::xor(V::mul16(d, d), flip), V::xor(V::mul16(r, d), flip)]
        }
    }
}

impl<V: Lanes> Quantities<V, 3> for High {
    #[inline(always)]
    unsafe fn of(r: V::I, d: V::I, middle: V::I) -> [V::I; 3] {
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe {
            let (r, d, flip) = (V::add16(r, middle), V::add16(d, middle), V::splat(FLIP));
            [
                V::xor(V::mulhi_u16(r, r), flip),
                V::xor(V::mulhi_u16(d, d), flip),
                V::xor(V::mulhi_u16(r, d), flip),
            ]
        }
    }
}

/// Adds a row pair, the filter's `step`th, to the sums of an even row and the odd row after it.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn add_pair<V: Lanes, const Q: usize, const TAPS: usize, const FIRST: bool>(
    sums: &mut [[V::I; Q]; ROWS],
    row: usize,
    quantities: [V::I; Q],
    step: usize,
) {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe {
        for odd in 0..2 {
            let taps = V::splat(FILTERS[TAPS].taps[step][odd]);
            for q in own(FIRST)..Q {
                sums[row + odd][q] = V::dot16(sums[row + odd][q], quantities[q], taps);
            }
        }
    }
}

/// Filters quantities of row pairs for four rows, at number `at` of each pair. Without `FIRST`, quantity 0 is
/// undefined.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. From `at` on, every row pair must have a vector of each picture.
#[inline(always)]
unsafe fn vertical<V: Lanes, G: Quantities<V, Q>, const Q: usize, const TAPS: usize, const FIRST: bool>(
    Pairs { reference, apart }: Pairs<'_>,
    at: usize,
    middle: V::I,
    begin: [u32; Q],
) -> [[V::I; Q]; ROWS] {
    let steps = const { FILTERS[TAPS].radius + 1 };
    // SAFETY: the caller has promised that the CPU has the instructions, and a vector of each picture at `at` in
    // every pair.
    unsafe {
        let mut sums = [[V::splat(0); Q]; ROWS];
        for row in 0..ROWS {
            for q in 0..Q {
                sums[row][q] = bias::<V, TAPS>(begin[q]);
            }
        }
        let [first, last] = [reference[0].add(at), reference[steps].add(at)];
        let quantities = G::of(V::load(first), V::load(first.add(apart)), middle);
        add_pair::<V, Q, TAPS, FIRST>(&mut sums, 0, quantities, 0);
        for s in 1..steps {
            let pair = reference[s].add(at);
            let quantities = G::of(V::load(pair), V::load(pair.add(apart)), middle);
            add_pair::<V, Q, TAPS, FIRST>(&mut sums, 0, quantities, s);
            add_pair::<V, Q, TAPS, FIRST>(&mut sums, 2, quantities, s - 1);
        }
        let quantities = G::of(V::load(last), V::load(last.add(apart)), middle);
        add_pair::<V, Q, TAPS, FIRST>(&mut sums, 2, quantities, steps - 1);
        for q in sums.as_flattened_mut() {
            *q = whole::<V, TAPS>(*q);
        }
        sums
    }
}

/// Stores `16 + bits` bit sums of samples, rounded to 16 bits, of even and odd columns side by side.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. `to` must have room for `2 N` numbers.
#[inline(always)]
unsafe fn store_means<V: Lanes>(to: *mut u16, [even, odd]: [V::I; 2], bits: u32) {
    // SAFETY: the caller has promised that the CPU has the instructions, and 2 N numbers at `to`.
    unsafe { V::store16(to, V::blend16(V::shr_by(even, bits), V::shl_by(odd, 16 - bits))) }
}

/// Stores the flipped high and low halves of even and odd columns, the low ones `apart` numbers later.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. `to` must have room for `2 N` numbers, and so many again `apart` numbers
/// later.
#[inline(always)]
unsafe fn store_halves<V: Lanes>(to: *mut u16, [even, odd]: [V::I; 2], apart: usize) {
    // SAFETY: the caller has promised that the CPU has the instructions, and 2 N numbers at `to` and `apart` numbers
    // later.
    unsafe {
        let flip = V::splat(FLIP);
        V::store16(to, V::xor(V::blend16(V::shr::<16>(even), odd), flip));
        V::store16(to.add(apart), V::xor(V::blend16(even, V::shl::<16>(odd)), flip));
    }
}

/// Filters `2 N` columns of four rows of 8-bit video vertically into the buffered rows at `to`.
///
/// With `r = r' + 128` and sums over the taps, which add up to 2^16: `sum(F r r) = sum(F r' r') + 256 sum(F r') +
/// 2^30`, and `sum(F r d) = sum(F r' d) + 128 sum(F d') + 2^30`.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. Row pairs must have the columns of both pictures, and from `to` on there
/// must be `ROWS` times `PLANES` rows of scratch, `stride` numbers apart, with room for them.
#[inline(always)]
pub(super) unsafe fn vertical8<V: Lanes, const FIRST: bool>(
    pairs: Pairs<'_>,
    x: usize,
    to: *mut u16,
    stride: usize,
) {
    // SAFETY: the caller has promised that the CPU has the instructions, the columns in the pairs and the room at
    // `to`.
    unsafe {
        let even = columns8::<V, FIRST>(pairs, x);
        let odd = columns8::<V, FIRST>(pairs, x + V::N);
        for row in 0..ROWS {
            let (even, odd) = (even[row], odd[row]);
            let to = to.add(row * PLANES * stride);
            for q in own(FIRST)..2 {
                store_means::<V>(to.add(q * stride), [even[q], odd[q]], 8);
            }
            for q in 2 + own(FIRST)..5 {
                store_halves::<V>(to.add(q * stride), [even[q], odd[q]], 3 * stride);
            }
        }
    }
}

/// Filters samples of both pictures and their products, the squares first, of a vector of 8-bit columns in four rows.
/// It is a function of its own because two vectors in a loop would go through memory.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. From `at` on, every row pair must have a vector of each picture.
#[inline(always)]
unsafe fn columns8<V: Lanes, const FIRST: bool>(pairs: Pairs<'_>, at: usize) -> [[V::I; 5]; ROWS] {
    // The means begin with a rounding half of 128, which adds 2^15 to squares and half of that to products.
    const MEANS: [u32; 2] = [128; 2];
    const SQUARE: u32 = (1 << 30) - (1 << 15);
    const PRODUCTS: [u32; 3] = [SQUARE, SQUARE, (1 << 30) - (1 << 14)];
    // SAFETY: as for the filter.
    unsafe {
        let middle = V::splat(middle(8));
        let means = vertical::<V, Samples, 2, 0, FIRST>(pairs, at, middle, MEANS);
        let products = vertical::<V, Products8, 3, 0, FIRST>(pairs, at, middle, PRODUCTS);
        let mut sums = [[middle; 5]; ROWS];
        for row in 0..ROWS {
            let ([m1, m2], [xx, yy, xy]) = (means[row], products[row]);
            let xx = V::add(xx, V::shl::<8>(m1));
            let yy = V::add(yy, V::shl::<8>(m2));
            let xy = V::add(xy, V::shl::<7>(m2));
            sums[row] = [m1, m2, xx, yy, xy];
        }
        sums
    }
}

/// Filters `2 N` columns of four rows of deeper samples vertically into the buffered rows at `to`.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. Row pairs must have the columns of both pictures, and from `to` on there
/// must be `ROWS` times `PLANES` rows of scratch, `stride` numbers apart, with room for them.
#[inline(always)]
pub(super) unsafe fn vertical16<V: Lanes, const SCALE: usize, const FIRST: bool>(
    pairs: Pairs<'_>,
    x: usize,
    to: *mut u16,
    stride: usize,
    bits: u32,
) {
    let shift = 2 * (bits - 8);
    // SAFETY: the caller has promised that the CPU has the instructions, the columns in the pairs and the room at
    // `to`.
    unsafe {
        let middle = V::splat(middle(bits));
        let half = [1 << (bits - 1); 2];
        let at = [x, x + V::N];
        let even = vertical::<V, Samples, 2, SCALE, FIRST>(pairs, at[0], middle, half);
        let odd = vertical::<V, Samples, 2, SCALE, FIRST>(pairs, at[1], middle, half);
        for row in 0..ROWS {
            for q in own(FIRST)..2 {
                let to = to.add((row * PLANES + q) * stride);
                store_means::<V>(to, [even[row][q], odd[row][q]], bits);
            }
        }
        let even = products16::<V, SCALE, FIRST>(pairs, at[0], middle, shift);
        let odd = products16::<V, SCALE, FIRST>(pairs, at[1], middle, shift);
        for row in 0..ROWS {
            for q in own(FIRST)..3 {
                let to = to.add((row * PLANES + 2 + q) * stride);
                store_halves::<V>(to, [even[row][q], odd[row][q]], 3 * stride);
            }
        }
    }
}

/// Filters products of samples and shifts them down with rounding.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. From `at` on, every row pair must have a vector of each picture.
#[inline(always)]
unsafe fn products16<V: Lanes, const SCALE: usize, const FIRST: bool>(
    pairs: Pairs<'_>,
    at: usize,
    middle: V::I,
    shift: u32,
) -> [[V::I; 3]; ROWS] {
    // SAFETY: as for the filter.
    unsafe {
        let half = FLIPPED + ((1 << shift) >> 1);
        let low = vertical::<V, Low, 3, SCALE, FIRST>(pairs, at, middle, [half; 3]);
        let mut sums = vertical::<V, High, 3, SCALE, FIRST>(pairs, at, middle, [FLIPPED; 3]);
        for row in 0..ROWS {
            for q in 0..3 {
                let high = V::shl_by(sums[row][q], 16 - shift);
                sums[row][q] = V::add(high, V::shr_by(low[row][q], shift));
            }
        }
        sums
    }
}

/// Computes two rows of the next scale, from number `at` on in the planes, of picture `i` and, with `FIRST`, of the
/// reference.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. Row pairs must have `width` columns, rounded up to whole blocks, of both
/// pictures, and `rows` must point to four rows of scratch of that width.
#[inline(always)]
pub(super) unsafe fn decimate<V: Lanes, const SCALE: usize, const NEXT: usize, const FIRST: bool>(
    pairs: Pairs<'_>,
    rows: *mut u16,
    width: usize,
    bits: u32,
    (planes, i): (&mut [&mut [u16]], usize),
    at: usize,
    next_stride: usize,
) {
    let stride = row_stride(width);
    let reference = &pairs.reference[const { (FILTERS[SCALE].radius - FILTERS[NEXT].radius) / 2 }..];
    let pairs = Pairs { reference, ..pairs };
    // SAFETY: the caller has promised that the CPU has the instructions, and the pairs; `rows` are at least four
    // scratch rows. The columns written are the width rounded up to whole blocks, halved, which is the next scale's
    // stride.
    unsafe {
        let zero = V::splat(0);
        let half = [1 << (bits - 1); 2];
        for x in (0..width).step_by(2 * V::N) {
            let even = vertical::<V, Samples, 2, NEXT, FIRST>(pairs, x, zero, half);
            let odd = vertical::<V, Samples, 2, NEXT, FIRST>(pairs, x + V::N, zero, half);
            for row in [0, 2] {
                for q in own(FIRST)..2 {
                    let to = rows.add((row + q) * stride + PAD + x);
                    store_means::<V>(to, [even[row][q], odd[row][q]], bits);
                }
            }
        }
        for q in own(FIRST)..2 {
            let plane = &mut planes[q * i][at..];
            for (row, out) in plane.chunks_exact_mut(next_stride).take(2).enumerate() {
                let from = rows.add((2 * row + q) * stride + PAD);
                extend(from, width, FILTERS[NEXT].radius);
                for x in (0..width).step_by(2 * V::N) {
                    let [even, _] = horizontal::<V, NEXT>(from.add(x), FLIPPED + (1 << 15));
                    V::store_low16(out.as_mut_ptr().add(x / 2), V::shr::<16>(even));
                }
            }
        }
    }
}
