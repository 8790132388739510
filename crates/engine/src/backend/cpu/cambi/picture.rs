// SPDX-License-Identifier: MPL-2.0

//! From samples to the filtered pictures of all scales.
//!
//! Beyond their last column and row pictures go on with what is there: the filter against dithering and the
//! comparison of neighbours then have no special cases.

use crate::backend::cpu::filter::{BLOCK, Line, PAD, load_samples, row_stride};
use crate::backend::cpu::plane::{Plane, Row, Sample};
use crate::backend::cpu::simd::{Lanes, Level, dispatch};
use crate::metrics::cambi::{CambiScale, SCALES};
use rayon::prelude::*;

/// Bit of a sample that is not in a flat area.
const UNEVEN: i32 = 1 << 14;
/// Distance of the rows that count for a flat area.
const RADIUS: usize = 3;
/// Rows kept: as many as count, and one more.
const RING: usize = 8;

/// A lane with the low 16 bits of `x` in both halves.
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

    /// Row `y` with what follows its last number.
    #[inline]
    pub fn row(&self, y: usize) -> &[u16] {
        &self.data[y * self.stride..(y + 1) * self.stride]
    }

    fn bands(&mut self, rows: usize) -> rayon::slice::ChunksMut<'_, u16> {
        self.data.par_chunks_mut(self.stride * rows)
    }
}

/// How filtered samples become numbers of histogram bins.
#[derive(Clone, Copy)]
pub(super) struct Codes {
    /// Sample of bin 0.
    pub lowest: i32,
    /// The number of samples that are in no bin.
    pub none: usize,
}

/// What the pyramid is made from.
pub(super) struct Input<'a, T> {
    pub plane: Plane<'a, T>,
    pub bits: u32,
    /// Which columns and rows to take.
    pub picks: Option<&'a [Vec<u32>; 2]>,
    /// Size of what is taken.
    pub width: usize,
    pub height: usize,
    pub anti_dither: bool,
    /// Only even columns and rows go on.
    pub halved: bool,
    pub flat_limit: u32,
}

/// The scales of a picture.
pub(super) struct Pyramid {
    /// The unfiltered first scale.
    base: Numbers,
    /// Filtered samples of each scale, with [`UNEVEN`].
    samples: [Numbers; SCALES],
    /// The filtered samples of each scale as numbers of histogram bins, see [`Codes`].
    pub codes: [Numbers; SCALES],
}

impl Pyramid {
    pub fn new(scales: &[CambiScale; SCALES]) -> Self {
        let numbers = |scale: &CambiScale| Numbers::new(scale.width, scale.height);
        Self {
            base: numbers(&scales[0]),
            samples: scales.each_ref().map(numbers),
            codes: scales.each_ref().map(numbers),
        }
    }

    /// Fills all scales, a band of `rows` at a time.
    pub fn fill<T: Sample>(&mut self, level: Level, input: &Input<'_, T>, codes: Codes, rows: usize) {
        let Self { base, samples, codes: numbers } = self;
        let stride = base.stride;
        base.bands(rows).enumerate().for_each_init(
            || FlatScratch::new(input.width),
            |scratch, (i, band)| find_flat::<T>(level, input, band, stride, i * rows, scratch),
        );
        for scale in 0..SCALES {
            let (finer, rest) = samples.split_at_mut(scale);
            let from = Shrunk { numbers: finer.last().unwrap_or(base), halved: scale > 0 };
            let to = &mut rest[0];
            let (width, stride) = (to.width, to.stride);
            to.bands(rows).zip(numbers[scale].bands(rows)).enumerate().for_each_init(
                || Line::zeroed(2 * MODE_RING * row_stride(width) * 2),
                |scratch, (i, (to, numbers))| {
                    let band = Band { samples: to, codes: numbers, stride, first: i * rows, width };
                    filter(level, &from, band, codes, scratch);
                },
            );
        }
    }
}

/// Rows in work, for one thread.
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

    /// Two rows of samples, [`RING`] rows of averaged ones, as many of flat pixels, and a row of their sums.
    fn rows(&mut self) -> [*mut u16; 4] {
        let row = row_stride(self.width);
        let first = self.lines.as_mut_ptr().cast::<u16>().wrapping_add(PAD);
        [0, 2, 2 + RING, 2 + 2 * RING].map(|i| first.wrapping_add(i * row))
    }
}

dispatch!(fn find_flat[T: Sample](
    input: &Input<'_, T>, to: &mut [u16], stride: usize, first: usize, scratch: &mut FlatScratch,
) -> () = flat_rows[T]);

/// Rows of the first scale from row `first` on.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn flat_rows<V: Lanes, T: Sample>(
    input: &Input<'_, T>,
    to: &mut [u16],
    stride: usize,
    first: usize,
    scratch: &mut FlatScratch,
) {
    let (width, height) = (input.width, input.height);
    let row = row_stride(width);
    let [samples, averages, flat, sums] = scratch.rows();
    let picked = &mut scratch.picked;
    let step = 1 + usize::from(input.halved);
    let start = (first * step).saturating_sub(RADIUS);
    let limit = twice(input.flat_limit as i32 + 1);
    // SAFETY: the CPU has the instructions, as the caller has promised. All rows have PAD numbers on either side and
    // room for whole vectors; rings are indexed below their sizes. Rows of `to` have room for whole vectors as well.
    unsafe {
        std::slice::from_raw_parts_mut(sums.sub(PAD), row).fill(0);
        if input.anti_dither {
            ten_bits::<V, T>(input, start, samples.add(start % 2 * row), picked);
        }
        average::<V, T>(input, start, [samples, averages], picked);
        let mut next = start;
        for (y, to) in (first * step..).step_by(step).zip(to.chunks_exact_mut(stride)) {
            while next <= y + RADIUS {
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
                // Nothing counts outside.
                (0..RADIUS).for_each(|k| *sums.add(width + k) = 0);
                next += 1;
            }
            let line = averages.add(y % RING * row);
            for x in (0..width).step_by(2 * V::N) {
                let mut count = V::load16(sums.add(x));
                for k in 1..=RADIUS {
                    let [left, right] = [V::load16(sums.add(x).sub(k)), V::load16(sums.add(x + k))];
                    count = V::add16(count, V::add16(left, right));
                }
                // The sign shows that too few are flat.
                let sign = V::sub16(count, V::splat(limit));
                let uneven = V::and(V::shr::<1>(sign), V::splat(twice(UNEVEN)));
                let sample = V::or(V::load16(line.add(x)), uneven);
                if input.halved {
                    V::store_low16(to[x / 2..].as_mut_ptr(), sample);
                } else {
                    V::store16(to[x..].as_mut_ptr(), sample);
                }
            }
        }
    }
}

/// Puts row `y`, filtered against dithering if that is wanted, into the ring of `averages`; the samples of row
/// `y` are there then, those of the next row are afterwards.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. `samples` and `averages` must point into rings of 2 and of `RING` rows
/// of scratch of this width, `PAD` numbers after their beginning.
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

/// Row `y`, or the last one, as numbers of 10 bits.
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
                input.plane.prefetch(y + 2);
                convert::<V, T>(input.plane.row(y), input.bits, to);
            }
            Some([columns, rows]) => {
                let line = input.plane.row(rows[y] as usize);
                for (to, column) in picked.iter_mut().zip(columns) {
                    let sample: u32 = line.at(*column as usize).into();
                    *to = sample as u16;
                }
                convert::<V, u16>(Row::new(picked), input.bits, to);
            }
        }
        *to.add(input.width) = *to.add(input.width - 1);
    }
}

/// Samples as numbers of 10 bits.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. `to` must point to a row of scratch that is as wide as the row.
#[inline(always)]
unsafe fn convert<V: Lanes, T: Sample>(row: Row<'_, T>, bits: u32, to: *mut u16) {
    // SAFETY: the caller has promised that the CPU has the instructions, and a row of scratch.
    unsafe {
        for x in (0..row.len()).step_by(2 * V::N) {
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

/// Rows of samples, and of filtered ones, that the mode filter keeps of each.
const MODE_RING: usize = 4;

/// Numbers, or those in even columns and rows.
struct Shrunk<'a> {
    numbers: &'a Numbers,
    halved: bool,
}

/// Rows of a scale to be made.
struct Band<'a> {
    samples: &'a mut [u16],
    codes: &'a mut [u16],
    stride: usize,
    first: usize,
    width: usize,
}

dispatch!(fn filter[](from: &Shrunk<'_>, to: Band<'_>, codes: Codes, scratch: &mut [Line]) -> () = filter_rows[]);

/// The mode filter. The first and the last row are not filtered at all, the outer columns only vertically.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn filter_rows<V: Lanes>(from: &Shrunk<'_>, to: Band<'_>, codes: Codes, scratch: &mut [Line]) {
    let Band { samples, codes: numbers, stride, first, width } = to;
    let height = from.numbers.height.div_ceil(1 + usize::from(from.halved));
    let row = row_stride(width);
    let raw = scratch.as_mut_ptr().cast::<u16>().wrapping_add(PAD);
    let across = raw.wrapping_add(MODE_RING * row);
    let mut next = first.saturating_sub(1);
    let value = twice(UNEVEN - 1);
    // SAFETY: the caller has promised that the CPU has the instructions, and scratch of this width. Rings are indexed
    // below their sizes, and rows of all planes have room for whole vectors.
    unsafe {
        let rows = samples.chunks_exact_mut(stride).zip(numbers.chunks_exact_mut(stride));
        for (y, (to, numbers)) in (first..).zip(rows) {
            while next <= (y + 1).min(height - 1) {
                let [raw, across] = [raw, across].map(|ring| ring.add(next % MODE_RING * row));
                load_row::<V>(from, next, width, raw);
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
            for x in (0..width).step_by(2 * V::N) {
                let mut sample = V::load16(line.add(x));
                if inner {
                    let above = V::load16(across.add((y - 1) % MODE_RING * row + x));
                    let here = V::load16(across.add(y % MODE_RING * row + x));
                    let below = V::load16(across.add((y + 1) % MODE_RING * row + x));
                    let uneven = V::and(sample, V::splat(twice(UNEVEN)));
                    sample = V::or(mode::<V>(above, here, below), uneven);
                }
                V::store16(to[x..].as_mut_ptr(), sample);
                // What is below the lowest sample becomes large, as what is uneven already is.
                let code = V::and(V::sub16(sample, V::splat(twice(codes.lowest))), V::splat(twice(0x7fff)));
                V::store16(numbers[x..].as_mut_ptr(), V::min16(code, V::splat(twice(codes.none as i32))));
            }
        }
    }
}

/// Row `y` of what there is to be filtered.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. `to` must point to a row of scratch of this width.
#[inline(always)]
unsafe fn load_row<V: Lanes>(from: &Shrunk<'_>, y: usize, width: usize, to: *mut u16) {
    // SAFETY: the caller has promised that the CPU has the instructions, and a row of scratch; a plane's rows hold
    // whole vectors.
    unsafe {
        if from.halved {
            let line = from.numbers.row(2 * y);
            for x in (0..width).step_by(V::N) {
                V::store_low16(to.add(x), V::load16(line[2 * x..].as_ptr()));
            }
        } else {
            let line = from.numbers.row(y);
            for x in (0..width).step_by(2 * V::N) {
                V::store16(to.add(x), V::load16(line[x..].as_ptr()));
            }
        }
    }
}

/// What occurs at least twice among three numbers, or else the smallest.
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
