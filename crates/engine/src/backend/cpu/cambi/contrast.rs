// SPDX-License-Identifier: MPL-2.0

//! Contrast values: they compare the number of pixels around a pixel that have its value with the number that differ by
//! a step.
//!
//! The rows of a tile of columns are processed from top to bottom. Each column, and some on both sides, has a histogram
//! of its pixels in the rows of the window; a row that enters or leaves changes one bin of each. The histogram of the
//! window is their sum. Neighbouring pixels in flat areas have similar values, so only some bins of that sum are kept.
//! They move along the row until a pixel needs other bins.

use super::picture::Numbers;
use crate::backend::cpu::filter::{Line, load_numbers};
use crate::backend::cpu::plane::prefetch;
use crate::backend::cpu::simd::{Lanes, Level, dispatch};
use crate::metrics::cambi::{CambiPicture, CambiPlan, Contrast, MAX_WINDOW, RECIPROCALS};
use std::ops::Range;

/// Columns of a tile.
const COLUMNS: usize = 128;
/// Height of a tile in windows at which counting the rows before it pays off.
const WINDOWS: usize = 4;
/// Distance at which rows are prefetched.
const AHEAD: usize = 3;
/// Bins of the window that are kept for steps of up to 8 codes.
const NARROW: usize = 32;
/// Bins of the window that are kept for steps of more than 8 codes.
const WIDE: usize = 96;

/// Parameters of the counting.
pub(super) struct Counting {
    /// Sample of bin 0.
    pub lowest: i32,
    bins: usize,
    /// First and last bin of pixels that can have a contrast value.
    active: [usize; 2],
    /// Distance of the farthest bins that a pixel reads.
    reach: usize,
    /// The contrasts, with codes as bins; an even number of them.
    contrasts: Vec<Contrast>,
}

/// Counters of one thread.
pub(super) struct Scratch {
    histograms: Vec<Line>,
    /// The active pixels of a row: their columns, their bins, and the counts of the bins around them.
    columns: Vec<Line>,
    bins: Vec<Line>,
    found: Vec<Line>,
}

impl Counting {
    pub fn new(plan: &CambiPlan) -> Self {
        let (above, up_to) = plan.active();
        let mut contrasts = plan.contrasts.clone();
        if contrasts.len() % 2 == 1 {
            contrasts.push(Contrast { weight: 0, ..contrasts[0] });
        }
        let reach = contrasts.len();
        let lowest = above + 1 - reach as i32;
        let bin = |code: i32| code - lowest;
        for contrast in &mut contrasts {
            (contrast.above, contrast.up_to) = (bin(contrast.above), bin(contrast.up_to));
        }
        let active = [reach, (bin(up_to).max(0) as usize).max(reach)];
        Self { lowest, bins: active[1] + reach + 1, active, reach, contrasts }
    }

    /// Returns the number of samples that are in no bin.
    pub fn none(&self) -> usize {
        self.bins
    }

    /// Returns the number of bins of the window that are kept.
    fn span(&self) -> usize {
        if 2 * self.reach < NARROW / 2 + 1 { NARROW } else { WIDE }
    }

    /// Returns the bytes from one column's histogram to the next: an odd number of cache lines, so that neighbours do
    /// not map to the same cache set.
    fn stride(&self) -> usize {
        (self.bins + 1 + self.span()).next_multiple_of(64) | 64
    }

    pub fn scratch(&self, window: usize) -> Scratch {
        Scratch {
            histograms: Line::zeroed((COLUMNS + window - 1) * self.stride()),
            columns: Line::zeroed((COLUMNS + 16) * 4),
            bins: Line::zeroed((COLUMNS + 16) * 4),
            found: Line::zeroed((COLUMNS + 2) * self.span() * 2),
        }
    }
}

/// A part of a scale with its contrast values.
pub(super) struct Tile {
    pub scale: usize,
    columns: Range<usize>,
    rows: Range<usize>,
    /// Binary32 contrast values of all pixels that can have one.
    pub values: Vec<i32>,
    /// Number of contrast values that are not 0.
    pub nonzero: usize,
    /// Sum of the contrast values, in units of 2^-24.
    pub total: u64,
}

impl Tile {
    /// Divides all scales, the large ones first, into up to `bands` bands of rows each. Keeps the memory for contrast
    /// values.
    pub fn cut(tiles: &mut Vec<Self>, picture: &CambiPicture, bands: usize) {
        let mut rooms = std::mem::take(tiles).into_iter().map(|tile| tile.values);
        for (scale, size) in picture.scales.iter().enumerate() {
            let rows = size.height.div_ceil(bands).max(WINDOWS * picture.window);
            for top in (0..size.height).step_by(rows) {
                for left in (0..size.width).step_by(COLUMNS) {
                    tiles.push(Self {
                        scale,
                        columns: left..size.width.min(left + COLUMNS),
                        rows: top..size.height.min(top + rows),
                        values: rooms.next().unwrap_or_default(),
                        nonzero: 0,
                        total: 0,
                    });
                }
            }
        }
    }

    /// Computes the contrast values of a tile.
    pub fn compute(
        &mut self,
        level: Level,
        counting: &Counting,
        codes: &Numbers,
        window: usize,
        scratch: &mut Scratch,
    ) {
        match counting.span() {
            NARROW => walk::<NARROW>(level, self, counting, codes, window, scratch),
            _ => walk::<WIDE>(level, self, counting, codes, window, scratch),
        }
    }
}

dispatch!(fn walk[const SPAN: usize](
    tile: &mut Tile, counting: &Counting, codes: &Numbers, window: usize, scratch: &mut Scratch,
) -> () = rows[SPAN]);

/// Computes the contrast values of a tile row by row.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn rows<V: Lanes, const SPAN: usize>(
    tile: &mut Tile,
    counting: &Counting,
    codes: &Numbers,
    window: usize,
    scratch: &mut Scratch,
) {
    let radius = window / 2;
    let Range { start: left, end: right } = tile.columns;
    // The columns of the picture that a window of this tile can reach, and the index of the first one's histogram.
    let reached = left.saturating_sub(radius)..codes.width.min(right + radius);
    let skipped = reached.start + radius - left;
    let stride = counting.stride();
    let histograms = scratch.histograms.as_mut_ptr().cast::<u8>();
    tile.values.clear();
    (tile.nonzero, tile.total) = (0, 0);
    // SAFETY: the CPU has the instructions, as the caller has promised. There is a histogram for each column of a
    // tile and `radius` more to either side; `codes` has no numbers above `none()`, for which there is a bin too, and
    // SPAN bytes more.
    unsafe {
        let first = histograms.add(skipped * stride);
        let line = |y: usize| &codes.row(y)[reached.clone()];
        // Rows before the tile that are in the window of its first row.
        let mut next = tile.rows.start.saturating_sub(radius);
        let top = next;
        while next < codes.height.min(tile.rows.start + radius) {
            count::<V>(first, stride, Some(line(next)), None);
            next += 1;
        }
        for y in tile.rows.clone() {
            let enters = (y + radius < codes.height).then(|| line(y + radius));
            let leaves = (y > top + radius).then(|| line(y - radius - 1));
            count::<V>(first, stride, enters, leaves);
            if y + radius + AHEAD < codes.height {
                let ahead = line(y + radius + AHEAD);
                (0..ahead.len()).step_by(2 * V::N).for_each(|x| prefetch(ahead, x, 2 * V::N));
            }
            let row = &codes.row(y)[left..right];
            let n = gather::<V, SPAN>(counting, histograms, row, window, scratch);
            contrasts::<V, SPAN>(counting, scratch, n, tile);
        }
        // Empties all bins.
        let last = tile.rows.end - 1;
        for y in top.max(last.saturating_sub(radius))..codes.height.min(last + radius + 1) {
            count::<V>(first, stride, None, Some(line(y)));
        }
    }
}

/// Adds to the bin of each pixel of a row, and subtracts from the bin of each pixel of another row, modulo 256. If both
/// are in the same bin, as pixels in no bin always are, nothing changes; vectors of such pixels are skipped.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. For each number of a row there must be a histogram, `stride` bytes after
/// that of the number before it, with a bin for that number. Two rows must be of the same length.
#[inline(always)]
unsafe fn count<V: Lanes>(histogram: *mut u8, stride: usize, enters: Option<&[u16]>, leaves: Option<&[u16]>) {
    let add = |histogram: *mut u8, code: &u16, number: u8| {
        // SAFETY: the caller has promised a histogram for each number, with a bin for it.
        unsafe {
            let bin = histogram.add(usize::from(*code));
            *bin = (*bin).wrapping_add(number);
        }
    };
    if let (Some(enters), Some(leaves)) = (enters, leaves) {
        let blocks = enters.chunks(2 * V::N).zip(leaves.chunks(2 * V::N));
        for (i, (enters, leaves)) in blocks.enumerate() {
            // SAFETY: the caller has promised that the CPU has the instructions.
            let differ = unsafe {
                let both = V::xor(load_numbers::<V, u16>(enters, 0), load_numbers::<V, u16>(leaves, 0));
                // Numbers are below 2^15, so no lane is negative.
                V::any(V::gt(both, V::splat(0)))
            };
            if !differ {
                continue;
            }
            let mut histogram = histogram.wrapping_add(i * 2 * V::N * stride);
            for (enters, leaves) in enters.iter().zip(leaves) {
                add(histogram, enters, 1);
                add(histogram, leaves, u8::MAX);
                histogram = histogram.wrapping_add(stride);
            }
        }
    } else {
        for (codes, number) in [(enters, 1), (leaves, u8::MAX)] {
            let mut histogram = histogram;
            for code in codes.unwrap_or_default() {
                add(histogram, code, number);
                histogram = histogram.wrapping_add(stride);
            }
        }
    }
}

/// Collects, for each active pixel of a row, the counts of the window in the bins around its own. Writes SPAN numbers
/// for each pixel to `found`, the first of them for the bin `reach` below, and the pixel's bin to `bins`. Returns the
/// number of active pixels.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. From `histograms` on there must be those of all columns that windows of
/// the row reach, `stride` bytes apart, each with `SPAN` bytes more behind the bins of active pixels. The scratch must
/// have room for all pixels of the row.
#[inline(always)]
unsafe fn gather<V: Lanes, const SPAN: usize>(
    counting: &Counting,
    histograms: *const u8,
    row: &[u16],
    window: usize,
    scratch: &mut Scratch,
) -> usize {
    let stride = counting.stride();
    let [first, last] = counting.active;
    let reach = counting.reach;
    // Largest distance of the lowest bin that is read from the lowest that is kept.
    let slack = SPAN - (2 * reach + 1);
    let found = scratch.found.as_mut_ptr().cast::<u16>();
    let [columns, bins] = [&mut scratch.columns, &mut scratch.bins].map(|x| x.as_mut_ptr().cast::<i32>());
    let mut n = 0;
    // SAFETY: the caller has promised that the CPU has the instructions, and the histograms, of which `window` ones
    // from that of the pixel's number on are those of its window. Numbers of a pixel go SPAN numbers further than its
    // predecessor's, less at most `slack`; those before its own belong to what no longer matters there.
    unsafe {
        let [lowest, highest] = [first, last].map(|bin| V::splat((bin | bin << 16) as i32));
        for (i, block) in row.chunks(2 * V::N).enumerate() {
            let codes = load_numbers::<V, u16>(block, 0);
            let active = V::eq16(codes, V::min16(V::max16(codes, lowest), highest));
            // Shifted right, as all lanes with any bit set must count as positive.
            if !V::any(V::gt(V::shr::<1>(active), V::splat(0))) {
                continue;
            }
            for (k, code) in block.iter().enumerate() {
                let bin = usize::from(*code);
                *columns.add(n) = (i * 2 * V::N + k) as i32;
                *bins.add(n) = bin as i32;
                n += usize::from(bin.wrapping_sub(first) <= last - first);
            }
        }
        // Sized for the narrowest vectors.
        let mut sums = [V::splat(0); WIDE / 8];
        let (mut at, mut base) = (0, usize::MAX / 2);
        for i in 0..n {
            let (x, low) = (*columns.add(i) as usize, *bins.add(i) as usize - reach);
            if low.wrapping_sub(base) <= slack && 2 * (x - at) <= window {
                let mut leaves = histograms.add(at * stride + base);
                for _ in at..x {
                    let enters = leaves.add(window * stride);
                    for k in 0..const { SPAN / (2 * V::N) } {
                        let [old, new] =
                            [V::load16_u8(leaves.add(2 * V::N * k)), V::load16_u8(enters.add(2 * V::N * k))];
                        sums[k] = V::add16(sums[k], V::sub16(new, old));
                    }
                    leaves = leaves.add(stride);
                }
            } else {
                base = low.saturating_sub(slack / 2);
                for k in 0..const { SPAN / (2 * V::N) } {
                    sums[k] = V::splat(0);
                }
                let mut column = histograms.add(x * stride + base);
                for _ in 0..window {
                    for k in 0..const { SPAN / (2 * V::N) } {
                        sums[k] = V::add16(sums[k], V::load16_u8(column.add(2 * V::N * k)));
                    }
                    column = column.add(stride);
                }
            }
            at = x;
            let to = found.add((i + 1) * SPAN).sub(low - base);
            for k in 0..const { SPAN / (2 * V::N) } {
                V::store16(to.add(2 * V::N * k), sums[k]);
            }
        }
    }
    n
}

/// Adds the contrast values of `n` pixels to those of the tile.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. The scratch must hold `n` pixels, behind which a vector more can be read.
#[inline(always)]
unsafe fn contrasts<V: Lanes, const SPAN: usize>(
    counting: &Counting,
    scratch: &Scratch,
    n: usize,
    tile: &mut Tile,
) {
    const LANES: [i32; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    let reciprocals = RECIPROCALS.as_ptr().cast::<u32>();
    let (found, bins) = (scratch.found.as_ptr().cast::<u32>(), scratch.bins.as_ptr().cast::<i32>());
    tile.values.reserve(n + V::N);
    let values = tile.values.spare_capacity_mut().as_mut_ptr().cast::<i32>();
    let low = 0xffff;
    // SAFETY: the caller has promised that the CPU has the instructions, and `n` entries, after which a vector can
    // still be read. There is a reciprocal for each sum of counts, and other numbers are limited to those.
    unsafe {
        let pixels = V::mul(V::load(LANES.as_ptr()), V::splat(SPAN as i32 / 2));
        let mut total = V::splat64(0);
        for i in (0..n).step_by(V::N) {
            let valid = V::first(n - i);
            let bin = V::load(bins.add(i));
            // Each lane holds two counts, that of the lower bin in the low half.
            let counts = found.add((i + 1) * SPAN / 2);
            let mut up = V::gather(counts.add(counting.reach / 2), pixels);
            let own = V::keep(valid, V::and(up, V::splat(low)));
            let mut best = V::splat(0);
            for (j, [odd, even]) in counting.contrasts.as_chunks::<2>().0.iter().enumerate() {
                let down = V::gather(counts.add(counting.reach / 2 - 1 - j), pixels);
                let near = V::shr::<16>(V::max16(up, down));
                up = V::gather(counts.add(counting.reach / 2 + 1 + j), pixels);
                let far = V::and(V::max16(up, down), V::splat(low));
                for (other, contrast) in [(near, odd), (far, even)] {
                    let seen = V::both(
                        V::gt(bin, V::splat(contrast.above)),
                        V::gt(V::splat(contrast.up_to + 1), bin),
                    );
                    let sum = V::min(V::add(own, other), V::splat((MAX_WINDOW * MAX_WINDOW) as i32));
                    let product = V::mul(V::madd16(own, other), V::splat(contrast.weight));
                    let value = V::mul_bits(product, V::gather(reciprocals, sum));
                    // The bit patterns of positive numbers have the order of the numbers.
                    best = V::max(best, V::keep(seen, value));
                }
            }
            V::store(values.add(i), best);
            tile.nonzero += V::count(V::gt(best, V::splat(0))) as usize;
            // Converted to a double whose lowest bit is 2^0, so that its fraction is the integer.
            let scaled = V::mul_f64(V::from_f32(best), V::splat_f64(f64::from(1 << 24)));
            let integer = V::to_bits(V::add_f64(scaled, V::splat_f64(INTEGER)));
            total = V::add64(total, V::and64(integer, V::splat64((1 << 52) - 1)));
        }
        tile.total += V::sum64(total) as u64;
        let len = tile.values.len();
        tile.values.set_len(len + n);
    }
}

/// 2^52: added to it, a smaller integer becomes the fraction of a double.
const INTEGER: f64 = 4503599627370496.0;

/// Sums the `top` largest of at least `top` binary32 values, in units of 2^-24.
pub(super) fn largest(values: &mut [i32], top: usize) -> u64 {
    let rest = values.len() - top;
    values.select_nth_unstable(rest);
    let fixed = |bits: &i32| (f64::from(f32::from_bits(*bits as u32)) * f64::from(1 << 24)) as u64;
    values[rest..].iter().map(fixed).sum()
}
