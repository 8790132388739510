// SPDX-License-Identifier: MPL-2.0

//! The wavelet transform of one row of coefficients, in 16-bit multiply-adds at every scale.
//!
//! Values beyond 16 bits are kept as two planes of halves, `lower + 2^16 upper`, both signed. The filters are linear,
//! so they run on each half alone; only the shift joins the two sums.

use super::lines::{Approximation, Coef, LEAD, Mid, Rows};
use crate::backend::cpu::plane::{Plane, Sample, prefetch};
use crate::backend::cpu::simd::{Lanes, each};
use crate::metrics::adm::{AdmScale, HIGH_PASS, LOW_PASS};

/// The input of a vertical filter.
pub(super) trait Source: Copy + Send + Sync {
    /// 1 if values fit 16 bits, else 2.
    const HALVES: usize;
    /// Returns the number of values per row.
    fn width(self) -> usize;
    fn height(self) -> usize;
    /// The element type of rows.
    type Element: Copy;
    /// Returns the address of row `y`, below `height`, of the lower (0) or upper (1) halves.
    fn row(self, half: usize, y: usize) -> *const Self::Element;
    /// Loads `2 N` values, all of them too large by [`Source::surplus`].
    ///
    /// # Safety
    ///
    /// Needs the instructions of `V` and `2 N` elements of a row at `p`.
    unsafe fn load<V: Lanes>(self, p: *const Self::Element) -> V::I;
    /// Returns rows to prefetch, as [`Plane::pair_ahead`] does; empty if all rows are in the cache.
    fn pair_ahead<'a>(self, _pair: isize) -> [&'a [Self::Element]; 2]
    where
        Self: 'a,
    {
        [&[]; 2]
    }
    /// Returns the amount by which [`Source::load`] exceeds the values. It is subtracted from the sums of a filter
    /// instead of from each value.
    fn surplus(self) -> i32 {
        0
    }
}

/// A luma plane at least as wide as any vector. Its samples are taken relative to the middle of their range.
#[derive(Clone, Copy)]
pub(super) struct Luma<'a, T> {
    pub plane: Plane<'a, T>,
    /// Half of the range of the samples.
    pub middle: i32,
}

impl<T: Sample> Source for Luma<'_, T> {
    const HALVES: usize = 1;

    fn width(self) -> usize {
        self.plane.width()
    }

    fn height(self) -> usize {
        self.plane.height()
    }

    type Element = T;

    #[inline(always)]
    fn row(self, _half: usize, y: usize) -> *const T {
        self.plane.row(y).memory().as_ptr()
    }

    #[inline(always)]
    fn pair_ahead<'a>(self, pair: isize) -> [&'a [T]; 2]
    where
        Self: 'a,
    {
        self.plane.pair_ahead(pair)
    }

    #[inline(always)]
    unsafe fn load<V: Lanes>(self, p: *const T) -> V::I {
        // SAFETY: as the caller promises; the cast is to the type that T is.
        unsafe {
            if size_of::<T>() == 1 {
                V::load16_u8(p.cast())
            } else {
                let samples = V::min_u16(V::load16(p.cast()), V::splat16(self.plane.max().into()));
                // Multiply-adds take signed numbers. 16-bit samples become signed by subtracting the middle.
                V::sub16(samples, V::splat16(self.middle))
            }
        }
    }

    fn surplus(self) -> i32 {
        if size_of::<T>() == 1 { self.middle } else { 0 }
    }
}

/// The approximation of a finer scale, with `H` halves.
#[derive(Clone, Copy)]
pub(super) struct Coarse<'a, const H: usize>(pub &'a Approximation);

impl<const H: usize> Source for Coarse<'_, H> {
    const HALVES: usize = H;

    fn width(self) -> usize {
        self.0.width
    }

    fn height(self) -> usize {
        self.0.height
    }

    type Element = i16;

    #[inline(always)]
    fn row(self, half: usize, y: usize) -> *const i16 {
        self.0.halves[half].at(y * self.0.stride)
    }

    #[inline(always)]
    unsafe fn load<V: Lanes>(self, p: *const i16) -> V::I {
        // SAFETY: as the caller promises.
        unsafe { V::load16(p.cast()) }
    }
}

/// Packs four taps as factors of two multiply-adds.
///
/// # Safety
///
/// Needs the instructions of `V`.
#[inline(always)]
unsafe fn factors<V: Lanes>(taps: [i16; 4]) -> [V::I; 2] {
    // SAFETY: as the caller promises.
    unsafe { each!(i in [0, 2] => V::splat(i32::from(taps[i]) & 0xffff | i32::from(taps[i + 1]) << 16)) }
}

/// Returns the initial value of the sums of the lower halves, which makes the later shift round.
fn rounding(shift: u32) -> i32 {
    (1 << shift) >> 1
}

/// Joins the sums of the lower and the upper halves and shifts them right by at most 16.
///
/// # Safety
///
/// Needs the instructions of `V`.
#[inline(always)]
unsafe fn join<V: Lanes>(sums: [V::I; 2], halves: usize, shift: u32) -> V::I {
    // SAFETY: as the caller promises.
    unsafe {
        let lower = V::sra_by(sums[0], shift);
        if halves == 1 { lower } else { V::add(V::shl_by(sums[1], 16 - shift), lower) }
    }
}

/// Returns the four input positions of output `i` along an axis of `n` inputs. Positions are mirrored at both ends:
/// without repeating the first input, but repeating the last.
fn taps_of(i: usize, n: usize) -> [usize; 4] {
    [(2 * i).abs_diff(1), 2 * i, 2 * i + 1, 2 * i + 2].map(|m| if m >= n { 2 * n - 1 - m } else { m })
}

/// Filters the rows for coefficient row `y` vertically into `mid`: low-pass in all columns, and, if `detail` is set,
/// high-pass in the columns that the scored ones need.
///
/// # Safety
///
/// Needs the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn vertical<V: Lanes, S: Source, C: Coef>(
    source: S,
    y: usize,
    shift: u32,
    detail: Option<&AdmScale>,
    mid: &mut [Mid; 2],
) {
    let width = source.width();
    let rows = taps_of(y, source.height());
    let ahead = source.pair_ahead(2 * y as isize + 1);
    let (first, last) = match detail {
        Some(scale) => {
            let columns = scale.halo_columns();
            ((2 * columns.start).saturating_sub(1), (2 * columns.end + 1).min(width))
        }
        None => (0, 0),
    };
    // SAFETY: the instructions are promised; `taps_of` stays below the height.
    unsafe {
        if last > 0 {
            filter_rows::<V, S, C, false>(source, rows, ahead, 0..first, shift, mid);
            filter_rows::<V, S, C, true>(source, rows, ahead, first..last, shift, mid);
        }
        filter_rows::<V, S, C, false>(source, rows, ahead, last..width, shift, mid);
    }
    for line in &mut mid[..if last > 0 { 2 } else { 1 }] {
        for half in &mut line.halves[..C::HALVES] {
            let row = &mut half[LEAD - 1..];
            row[0] = row[2];
            row[width + 1] = row[width];
            row[width + 2] = row[width - 1];
        }
    }
}

/// # Safety
///
/// Needs the instructions of `V` and rows inside the source.
#[inline(always)]
unsafe fn filter_rows<V: Lanes, S: Source, C: Coef, const HIGH: bool>(
    source: S,
    rows: [usize; 4],
    ahead: [&[S::Element]; 2],
    columns: std::ops::Range<usize>,
    shift: u32,
    mid: &mut [Mid; 2],
) {
    // The last vector of a row ends with the row. It computes some columns again, with the same result.
    let last = source.width().saturating_sub(2 * V::N);
    let filters = if HIGH { 2 } else { 1 };
    let starts = [0, S::HALVES - 1].map(|half| rows.map(|y| source.row(half, y)));
    let out = mid.each_mut().map(|line| line.halves.each_mut().map(|half| half.at_mut(LEAD)));
    for x in columns.step_by(2 * V::N) {
        ahead.iter().for_each(|row| prefetch(row, x, 2 * V::N));
        let x = x.min(last);
        // SAFETY: the instructions and the rows are promised; `x` is at most `last`; a line of `mid` has
        // room for a vector from any column on.
        unsafe {
            // [filter][half][place in the order of zip16]
            let mut sums = [[[V::splat(0); 2]; 2]; 2];
            let taps = [factors::<V>(LOW_PASS), factors::<V>(HIGH_PASS)];
            let begin = each!(taps in [LOW_PASS, HIGH_PASS] => {
                let surplus = source.surplus() * taps.iter().map(|tap| i32::from(*tap)).sum::<i32>();
                [V::splat(rounding(shift) - surplus), V::splat(0)]
            });
            for half in 0..S::HALVES {
                let [a, b, c, d] =
                    each!(i in [0, 1, 2, 3] => source.load::<V>(starts[half][i].wrapping_add(x)));
                let (upper, lower) = (V::zip16(a, b), V::zip16(c, d));
                for filter in 0..filters {
                    for place in 0..2 {
                        let sum = V::dot16(begin[filter][half], upper[place], taps[filter][0]);
                        sums[filter][half][place] = V::dot16(sum, lower[place], taps[filter][1]);
                    }
                }
            }
            for filter in 0..filters {
                let [lower, upper] = sums[filter];
                let values =
                    each!(place in [0, 1] => join::<V>([lower[place], upper[place]], S::HALVES, shift));
                if C::HALVES == 1 {
                    V::store16(out[filter][0].add(x).cast(), V::unzip16(values));
                } else {
                    let [lower, upper] = split::<V>(values);
                    V::store16(out[filter][0].add(x).cast(), V::unzip16(lower));
                    V::store16(out[filter][1].add(x).cast(), V::unzip16(upper));
                }
            }
        }
    }
}

/// Returns the signed lower halves and the upper halves that belong to them.
///
/// # Safety
///
/// Needs the instructions of `V`.
#[inline(always)]
unsafe fn split<V: Lanes>(values: [V::I; 2]) -> [[V::I; 2]; 2] {
    // SAFETY: as the caller promises.
    unsafe {
        [
            each!(x in [values[0], values[1]] => V::sra::<16>(V::shl::<16>(x))),
            each!(x in [values[0], values[1]] => V::sra::<16>(V::add(x, V::splat(0x8000)))),
        ]
    }
}

/// Computes `N` outputs of a horizontal filter from column `x`.
///
/// # Safety
///
/// Needs the instructions of `V`, and the columns `2 x - 1` to `2 x + 2 N` within the padded line.
#[inline(always)]
unsafe fn across<V: Lanes, C: Coef>(line: &Mid, x: usize, taps: [V::I; 2], shift: u32) -> V::I {
    // SAFETY: as the caller promises.
    unsafe {
        let mut sums = [V::splat(rounding(shift)), V::splat(0)];
        for (sum, half) in sums.iter_mut().zip(&line.halves).take(C::HALVES) {
            let inputs = half.at(LEAD + 2 * x - 1).cast();
            *sum = V::dot16(*sum, V::load16(inputs), taps[0]);
            *sum = V::dot16(*sum, V::load16(inputs.add(2)), taps[1]);
        }
        join::<V>(sums, C::HALVES, shift)
    }
}

/// Computes the approximation row for the next scale: `width` values in halves.
///
/// # Safety
///
/// Needs the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn approximate<V: Lanes, C: Coef>(
    mid: &Mid,
    width: usize,
    shift: u32,
    out: [&mut [i16]; 2],
) {
    let [lower, upper] = out.map(|half| half.as_mut_ptr());
    for x in (0..width).step_by(V::N) {
        // SAFETY: the instructions are promised; lines and rows are padded by more than a vector.
        unsafe {
            let value = across::<V, C>(mid, x, factors::<V>(LOW_PASS), shift);
            V::store_low16(lower.add(x).cast(), value);
            if C::HALVES == 2 {
                let [_, [high, _]] = split::<V>([value; 2]);
                V::store_low16(upper.add(x).cast(), high);
            }
        }
    }
}

/// Computes the detail coefficients h, v, d of the scored columns and of one more on each side.
///
/// # Safety
///
/// Needs the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn details<V: Lanes, C: Coef>(
    mid: &[Mid; 2],
    scale: &AdmScale,
    shift: u32,
    out: &mut Rows<C>,
) {
    let columns = scale.halo_columns();
    for x in (0..columns.len()).step_by(V::N) {
        let column = columns.start + x;
        // SAFETY: the instructions are promised; lines and rows are padded by more than a vector.
        unsafe {
            let (low, high) = (factors::<V>(LOW_PASS), factors::<V>(HIGH_PASS));
            let [h, v, d] = [
                across::<V, C>(&mid[1], column, low, shift),
                across::<V, C>(&mid[0], column, high, shift),
                across::<V, C>(&mid[1], column, high, shift),
            ];
            C::store::<V>(out.at_mut(0, x), h);
            C::store::<V>(out.at_mut(1, x), v);
            C::store::<V>(out.at_mut(2, x), d);
        }
    }
}
