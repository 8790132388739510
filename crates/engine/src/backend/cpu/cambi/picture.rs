// SPDX-License-Identifier: MPL-2.0

//! The way from samples to the filtered pictures of all scales, row by row.
//!
//! Beyond their last column and row, pictures contain any data that is there: so the anti-dithering filter and the
//! comparison of neighbours need no special cases.

use crate::backend::cpu::filter::{BLOCK, Line, PAD, load_samples, row_stride};
use crate::backend::cpu::plane::{Plane, Row, Sample, prefetch};
use crate::backend::cpu::simd::{Lanes, Level, dispatch};
use crate::metrics::cambi::{CambiScale, SCALES};
use rayon::prelude::*;

/// Marks a sample outside of flat areas.
const UNEVEN: i32 = 1 << 14;
/// Vertical distance of the farthest rows that count for a flat area.
const RADIUS: usize = 3;
/// Number of rows that are kept: those that count, and one more.
const RING: usize = 8;

/// Returns a lane with the low 16 bits of `x` in both halves.
const fn twice(x: i32) -> i32 {
    x << 16 | x & 0xffff
}

/// A plane of 16-bit numbers whose rows have room for whole vectors.
pub(super) struct Numbers {
    pub width: usize,
    pub height: usize,
    stride: usize,
    data: Vec<u16>,
}

impl Numbers {
    fn new(width: usize, height: usize) -> Self {
        let stride = width.next_multiple_of(BLOCK);
        Self { width, height, stride, data: vec![0; stride * height] }
    }

    /// Returns row `y` including the padding after its last number.
    #[inline]
    pub fn row(&self, y: usize) -> &[u16] {
        &self.data[y * self.stride..(y + 1) * self.stride]
    }
}

/// Converts filtered samples to numbers of histogram bins.
#[derive(Clone, Copy)]
pub(super) struct Codes {
    /// Sample of bin 0.
    pub lowest: i32,
    /// The number of samples that are in no bin.
    pub none: usize,
}

/// The input of the pyramid.
pub(super) struct Input<'a, T> {
    pub plane: Plane<'a, T>,
    pub bits: u32,
    /// Columns and rows to use.
    pub picks: Option<&'a [Vec<u32>; 2]>,
    /// Size after that selection.
    pub width: usize,
    pub height: usize,
    pub anti_dither: bool,
    /// Only even columns and rows are used.
    pub halved: bool,
    pub flat_limit: u32,
}

impl<T> Input<'_, T> {
    /// Returns the distance of columns and rows that are used.
    fn step(&self) -> usize {
        1 + usize::from(self.halved)
    }
}

/// The scales of a picture. The input of the first scale's codes is never stored whole: it would be two to four times
/// as large as the picture and would leave the cache before it is read.
pub(super) struct Pyramid {
    /// The input of each scale but the first: the filtered samples in even columns and rows of the scale before, with
    /// [`UNEVEN`].
    shrunk: [Numbers; SCALES - 1],
    /// The filtered samples of each scale as numbers of histogram bins, see [`Codes`].
    pub codes: [Numbers; SCALES],
}

impl Pyramid {
    pub fn new(scales: &[CambiScale; SCALES]) -> Self {
        let numbers = |scale: &CambiScale| Numbers::new(scale.width, scale.height);
        Self {
            shrunk: std::array::from_fn(|i| numbers(&scales[i + 1])),
            codes: scales.each_ref().map(numbers),
        }
    }

    /// Fills all scales, each divided into up to `bands` bands of rows.
    pub fn fill<T: Sample>(&mut self, level: Level, input: &Input<'_, T>, codes: Codes, bands: usize) {
        let Self { shrunk, codes: numbers } = self;
        for (scale, numbers) in numbers.iter_mut().enumerate() {
            let (made, to_make) = shrunk.split_at_mut(scale);
            let width = numbers.width;
            let bands = Band::cut(numbers, to_make.first_mut(), bands).into_par_iter();
            match made.last() {
                None => bands.for_each_init(
                    || (FlatScratch::new(input.width), ModeScratch::new(width)),
                    |(flat, mode), band| first_scale::<T>(level, input, flat, band, codes, mode),
                ),
                Some(from) => bands.for_each_init(
                    || ModeScratch::new(width),
                    |mode, band| later_scale(level, from, band, codes, mode),
                ),
            }
        }
    }
}

/// The source of the mode filter: samples with [`UNEVEN`].
trait Unfiltered {
    /// Writes row `y` in whole vectors. Rows are requested in order.
    ///
    /// # Safety
    ///
    /// The CPU must have the instructions of `V`. `to` must point to a row of scratch of the width of the scale.
    unsafe fn put<V: Lanes>(&mut self, y: usize, to: *mut u16);
}

impl Unfiltered for &Numbers {
    #[inline(always)]
    unsafe fn put<V: Lanes>(&mut self, y: usize, to: *mut u16) {
        let line = self.row(y);
        for x in (0..self.width).step_by(2 * V::N) {
            // SAFETY: the caller has promised that the CPU has the instructions, and a row of scratch; a plane's rows
            // hold whole vectors.
            unsafe { V::store16(to.add(x), V::load16(line[x..].as_ptr())) }
        }
    }
}

/// Row buffers on the way to the first scale, for one thread.
struct FlatScratch {
    width: usize,
    lines: Vec<Line>,
    picked: Vec<u16>,
}

impl FlatScratch {
    fn new(width: usize) -> Self {
        let lines = Line::zeroed((2 + 2 * RING + 1) * row_stride(width) * 2);
        Self { width, lines, picked: vec![0; width] }
    }

    /// Returns two rows of samples, [`RING`] rows of averages, as many of flat pixels, and a row of their sums.
    fn rows(&mut self) -> [*mut u16; 4] {
        let row = row_stride(self.width);
        let first = self.lines.as_mut_ptr().cast::<u16>().wrapping_add(PAD);
        [0, 2, 2 + RING, 2 + 2 * RING].map(|i| first.wrapping_add(i * row))
    }
}

dispatch!(fn first_scale[T: Sample](
    input: &Input<'_, T>, flat: &mut FlatScratch, to: Band<'_>, codes: Codes, mode: &mut ModeScratch,
) -> () = filter_picture[T]);

/// Applies the mode filter to the picture.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn filter_picture<V: Lanes, T: Sample>(
    input: &Input<'_, T>,
    flat: &mut FlatScratch,
    to: Band<'_>,
    codes: Codes,
    mode: &mut ModeScratch,
) {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe {
        let rows = FlatRows::begin::<V>(input, to.before(), flat);
        filter_rows::<V, _>(rows, to, codes, mode);
    }
}

/// Rows of the picture with samples outside of flat areas marked.
struct FlatRows<'a, T> {
    input: &'a Input<'a, T>,
    scratch: &'a mut FlatScratch,
    /// The first row that counts for a flat area, and the next one to compare with its neighbours.
    start: usize,
    next: usize,
}

impl<'a, T: Sample> FlatRows<'a, T> {
    /// Begins with row `first`.
    ///
    /// # Safety
    ///
    /// The CPU must have the instructions of `V`.
    #[inline(always)]
    unsafe fn begin<V: Lanes>(input: &'a Input<'a, T>, first: usize, scratch: &'a mut FlatScratch) -> Self {
        let start = (first * input.step()).saturating_sub(RADIUS);
        let row = row_stride(input.width);
        let [samples, averages, _, sums] = scratch.rows();
        // SAFETY: the CPU has the instructions, as the caller has promised. All rows have PAD numbers on either side and
        // room for whole vectors; rings are indexed below their sizes.
        unsafe {
            std::slice::from_raw_parts_mut(sums.sub(PAD), row).fill(0);
            if input.anti_dither {
                ten_bits::<V, T>(input, start, samples.add(start % 2 * row), &mut scratch.picked);
            }
            average::<V, T>(input, start, [samples, averages], &mut scratch.picked);
        }
        Self { input, scratch, start, next: start }
    }
}

impl<T: Sample> Unfiltered for FlatRows<'_, T> {
    #[inline(always)]
    unsafe fn put<V: Lanes>(&mut self, y: usize, to: *mut u16) {
        let Self { input, start, .. } = *self;
        let (width, height) = (input.width, input.height);
        let row = row_stride(width);
        let [samples, averages, flat, sums] = self.scratch.rows();
        let picked = &mut self.scratch.picked;
        let limit = twice(input.flat_limit as i32 + 1);
        let y = y * input.step();
        // SAFETY: the CPU has the instructions, as the caller has promised, and there is a row of scratch for the result. All
        // rows have PAD numbers on either side and room for whole vectors; rings are indexed below their sizes.
        unsafe {
            while self.next <= y + RADIUS {
                let next = self.next;
                let old = flat.add((next + 1) % RING * row);
                // Rows from `next - 6` to `next` count.
                let leaves = next > start + 2 * RADIUS;
                let enters = next < height;
                if enters {
                    average::<V, T>(input, next + 1, [samples, averages], picked);
                }
                let [above, below] = [0, 1].map(|k| averages.add((next + k) % RING * row));
                let new = flat.add(next % RING * row);
                for x in (0..width).step_by(2 * V::N) {
                    let here = V::load16(above.add(x));
                    let right = V::eq16(here, V::load16(above.add(x + 1)));
                    let down = V::eq16(here, V::load16(below.add(x)));
                    let like = if enters { V::and(right, down) } else { V::splat(0) };
                    V::store16(new.add(x), like);
                    // Flat pixels are -1.
                    let mut sum = V::sub16(V::load16(sums.add(x)), like);
                    if leaves {
                        sum = V::add16(sum, V::load16(old.add(x)));
                    }
                    V::store16(sums.add(x), sum);
                }
                // Pixels outside do not count.
                (0..RADIUS).for_each(|k| *sums.add(width + k) = 0);
                self.next += 1;
            }
            let line = averages.add(y % RING * row);
            for x in (0..width).step_by(2 * V::N) {
                let mut count = V::load16(sums.add(x));
                for k in 1..=RADIUS {
                    let [left, right] = [V::load16(sums.add(x).sub(k)), V::load16(sums.add(x + k))];
                    count = V::add16(count, V::add16(left, right));
                }
                // The sign is negative if too few pixels are flat.
                let sign = V::sub16(count, V::splat(limit));
                let uneven = V::and(V::shr::<1>(sign), V::splat(twice(UNEVEN)));
                let sample = V::or(V::load16(line.add(x)), uneven);
                if input.halved {
                    V::store_low16(to.add(x / 2), sample);
                } else {
                    V::store16(to.add(x), sample);
                }
            }
        }
    }
}

/// Writes row `y`, after the anti-dithering filter if it is enabled, to the ring of `averages`. The samples of row `y`
/// must be there; those of the next row are there afterwards.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. `samples` and `averages` must point into rings of 2 and of `RING` rows of
/// scratch of this width, `PAD` numbers after their beginning.
#[inline(always)]
unsafe fn average<V: Lanes, T: Sample>(
    input: &Input<'_, T>,
    y: usize,
    [samples, averages]: [*mut u16; 2],
    picked: &mut [u16],
) {
    let row = row_stride(input.width);
    // SAFETY: the caller has promised that the CPU has the instructions, and both rings.
    unsafe {
        let to = averages.add(y % RING * row);
        if !input.anti_dither {
            return ten_bits::<V, T>(input, y, to, picked);
        }
        let [upper, lower] = [0, 1].map(|k| samples.add((y + k) % 2 * row));
        ten_bits::<V, T>(input, y + 1, lower, picked);
        for x in (0..input.width).step_by(2 * V::N) {
            let above = V::add16(V::load16(upper.add(x)), V::load16(upper.add(x + 1)));
            let below = V::add16(V::load16(lower.add(x)), V::load16(lower.add(x + 1)));
            let sum = V::add16(above, below);
            V::store16(to.add(x), V::and(V::shr::<2>(sum), V::splat(twice(0x3fff))));
        }
        *to.add(input.width) = *to.add(input.width - 1);
    }
}

/// Converts row `y`, or the last one if there is no such row, to numbers of 10 bits.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. `to` must point to a row of scratch of this width.
#[inline(always)]
unsafe fn ten_bits<V: Lanes, T: Sample>(input: &Input<'_, T>, y: usize, to: *mut u16, picked: &mut [u16]) {
    let y = y.min(input.height - 1);
    // SAFETY: the caller has promised that the CPU has the instructions, and a row of scratch.
    unsafe {
        match input.picks {
            None => {
                convert::<V, T>(input.plane.row(y), input.plane.ahead(y + 2), input.bits, to);
            }
            Some([columns, rows]) => {
                let line = input.plane.row(rows[y] as usize);
                for (to, column) in picked.iter_mut().zip(columns) {
                    let sample: u32 = line.at(*column as usize).into();
                    *to = sample as u16;
                }
                convert::<V, u16>(Row::new(picked), &[], input.bits, to);
            }
        }
        *to.add(input.width) = *to.add(input.width - 1);
    }
}

/// Converts samples to numbers of 10 bits and prefetches the row `ahead`.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. `to` must point to a row of scratch that is as wide as the row.
#[inline(always)]
unsafe fn convert<V: Lanes, T: Sample>(row: Row<'_, T>, ahead: &[T], bits: u32, to: *mut u16) {
    // SAFETY: the caller has promised that the CPU has the instructions, and a row of scratch.
    unsafe {
        for x in (0..row.len()).step_by(2 * V::N) {
            prefetch(ahead, x, 2 * V::N);
            let sample = load_samples::<V, T>(row, x);
            let ten = if bits <= 10 {
                V::shl_by(sample, 10 - bits)
            } else {
                let kept = twice(0xffff >> (bits - 11));
                let half = V::and(V::shr_by(sample, bits - 11), V::splat(kept));
                V::and(V::shr::<1>(V::add16(half, V::splat(twice(1)))), V::splat(twice(0x7fff)))
            };
            V::store16(to.add(x), ten);
        }
    }
}

/// Rows that the mode filter keeps: of samples, and as many of filtered ones.
const MODE_RING: usize = 4;
/// Smallest height of a band: for its first row, a band of the picture processes seven rows more.
const BAND: usize = 16;

/// Row buffers of the mode filter, for one thread.
struct ModeScratch(Vec<Line>);

impl ModeScratch {
    fn new(width: usize) -> Self {
        Self(Line::zeroed(2 * MODE_RING * row_stride(width) * 2))
    }
}

/// Rows of a scale to compute.
struct Band<'a> {
    codes: &'a mut [u16],
    stride: usize,
    /// Receives the even columns and rows for the next scale; empty for the last scale.
    shrunk: &'a mut [u16],
    shrunk_stride: usize,
    /// The first row; even.
    first: usize,
    /// Size of the scale.
    width: usize,
    height: usize,
}

impl<'a> Band<'a> {
    /// Divides a scale, and the input of the next one, into up to `count` bands.
    fn cut(codes: &'a mut Numbers, shrunk: Option<&'a mut Numbers>, count: usize) -> Vec<Self> {
        let Numbers { width, height, stride, .. } = *codes;
        let rows = height.div_ceil(count).max(BAND).next_multiple_of(2);
        let shrunk_stride = shrunk.as_ref().map_or(0, |shrunk| shrunk.stride);
        let mut shrunk = shrunk.map(|shrunk| shrunk.data.chunks_mut(rows / 2 * shrunk_stride));
        let bands = codes.data.chunks_mut(rows * stride).enumerate().map(|(i, codes)| {
            let shrunk = shrunk.as_mut().and_then(Iterator::next).unwrap_or_default();
            Self { codes, stride, shrunk, shrunk_stride, first: i * rows, width, height }
        });
        bands.collect()
    }

    /// Returns the row before the first, which its filter reads, unless the band begins at the top.
    fn before(&self) -> usize {
        self.first.saturating_sub(1)
    }
}

dispatch!(fn later_scale[](from: &Numbers, to: Band<'_>, codes: Codes, mode: &mut ModeScratch) -> () = filter_shrunk[]);

/// Applies the mode filter to the input from the scale before.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn filter_shrunk<V: Lanes>(from: &Numbers, to: Band<'_>, codes: Codes, mode: &mut ModeScratch) {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe { filter_rows::<V, _>(from, to, codes, mode) }
}

/// Applies the mode filter. It leaves the first and the last row unchanged and filters the outer columns only
/// vertically.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn filter_rows<V: Lanes, U: Unfiltered>(
    mut from: U,
    to: Band<'_>,
    codes: Codes,
    ModeScratch(scratch): &mut ModeScratch,
) {
    let mut next = to.before();
    let Band { codes: numbers, stride, shrunk, shrunk_stride, first, width, height } = to;
    let row = row_stride(width);
    let raw = scratch.as_mut_ptr().cast::<u16>().wrapping_add(PAD);
    let across = raw.wrapping_add(MODE_RING * row);
    let value = twice(UNEVEN - 1);
    // SAFETY: the caller has promised that the CPU has the instructions, and scratch of this width. Rings are indexed
    // below their sizes, and rows of all planes have room for whole vectors.
    unsafe {
        for (y, numbers) in (first..).zip(numbers.chunks_exact_mut(stride)) {
            while next <= (y + 1).min(height - 1) {
                let [raw, across] = [raw, across].map(|ring| ring.add(next % MODE_RING * row));
                from.put::<V>(next, raw);
                for x in (0..width).step_by(2 * V::N) {
                    let [a, b, c] =
                        [V::load16(raw.add(x).sub(1)), V::load16(raw.add(x)), V::load16(raw.add(x + 1))];
                    let [a, b, c] =
                        [V::and(a, V::splat(value)), V::and(b, V::splat(value)), V::and(c, V::splat(value))];
                    V::store16(across.add(x), mode::<V>(a, b, c));
                }
                for x in [0, width - 1] {
                    *across.add(x) = *raw.add(x) & value as u16;
                }
                next += 1;
            }
            let inner = y > 0 && y + 1 < height;
            let line = raw.add(y % MODE_RING * row);
            let wanted = y % 2 == 0 && !shrunk.is_empty();
            let half =
                wanted.then(|| shrunk[(y - first) / 2 * shrunk_stride..][..shrunk_stride].as_mut_ptr());
            for x in (0..width).step_by(2 * V::N) {
                let mut sample = V::load16(line.add(x));
                if inner {
                    let above = V::load16(across.add((y - 1) % MODE_RING * row + x));
                    let here = V::load16(across.add(y % MODE_RING * row + x));
                    let below = V::load16(across.add((y + 1) % MODE_RING * row + x));
                    let uneven = V::and(sample, V::splat(twice(UNEVEN)));
                    sample = V::or(mode::<V>(above, here, below), uneven);
                }
                if let Some(half) = half {
                    V::store_low16(half.add(x / 2), sample);
                }
                // Samples below the lowest one become large numbers, as uneven ones already are.
                let code = V::and(V::sub16(sample, V::splat(twice(codes.lowest))), V::splat(twice(0x7fff)));
                V::store16(numbers[x..].as_mut_ptr(), V::min16(code, V::splat(twice(codes.none as i32))));
            }
        }
    }
}

/// Returns the number that occurs at least twice among three, or else the smallest.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn mode<V: Lanes>(a: V::I, b: V::I, c: V::I) -> V::I {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe {
        let [low, high] = [V::min16(a, b), V::max16(a, b)];
        let middle = V::max16(low, V::min16(high, c));
        let [low, high] = [V::min16(low, c), V::max16(high, c)];
        V::xor(low, V::and(V::eq16(middle, high), V::xor(low, high)))
    }
}
