// SPDX-License-Identifier: MPL-2.0

//! Visual information fidelity, streamed in bands of rows: four rows at a time go through the
//! vertical filters, the horizontal filters, the statistics and the decimation while they are in cache.
//!
//! Several distorted pictures share the reference: the first one goes through all of this together with it, the others
//! (`FIRST` is false) find its means and variances kept.
//!
//! Wider operands are split in 16-bit halves:
//! `(sum(F q) + 2^(s-1)) >> s == (sum(F hi) << (16 - s)) + ((sum(F lo) + 2^(s-1)) >> s)`.

use super::filter::{
    BLOCK, FILTERS, FLIPPED, Line, PAD, bias, extend, horizontal, load_samples, mirror, row_stride, whole,
};
use super::log2::Log2;
use super::simd::{Lanes, Level, dispatch};
use crate::frame::{BitDepth, Plane, Sample};
use crate::metrics::vif::{EPSILON, LOG2_BIAS, MIN_SIZE, NOISE, VifScaleSums, VifSums, VifWork};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Rows that are filtered together.
const ROWS: usize = 4;
/// Row pairs that four rows of the longest filter read.
const PAIRS: usize = 10;
/// Scratch rows for each filtered row: two means, and high and low halves of three products.
const PLANES: usize = 8;
/// The highest bits of both halves.
const FLIP: i32 = 0x8000_8000_u32 as i32;

/// Rows in work, for one thread.
struct Scratch {
    /// [`PAIRS`] row pairs of the reference, and after them those of each distorted picture; for each block of
    /// columns the pairs of the even columns, then of the odd ones.
    ring: Vec<Line>,
    /// Vertically filtered rows: [`ROWS`] times [`PLANES`], and before that the rows to decimate.
    rows: Vec<Line>,
    /// Means and variances of the reference in [`ROWS`] rows, where more than one distorted picture needs them.
    kept: Vec<Line>,
    /// Lanes of the numerators, one vector for each gain limit.
    numerators: Vec<Line>,
}

impl Scratch {
    fn new(width: usize, gain_limits: usize, renditions: usize) -> Self {
        let kept = if renditions > 1 { ROWS * kept_stride(width) * 4 } else { 0 };
        Self {
            ring: Line::zeroed((1 + renditions) * PAIRS * slot(width) * 4),
            rows: Line::zeroed(ROWS * PLANES * row_stride(width) * 2),
            kept: Line::zeroed(kept),
            numerators: Line::zeroed(gain_limits * 64),
        }
    }
}

/// Numbers from one row pair of the ring to the next: a cache line more than the columns, as pairs of some widths
/// would compete for the same lines of the cache.
fn slot(width: usize) -> usize {
    width.next_multiple_of(BLOCK) + 16
}

/// Numbers from one row of kept means and variances to the next.
fn kept_stride(width: usize) -> usize {
    2 * width.next_multiple_of(BLOCK)
}

/// The pictures at a scale above 0, the reference first.
struct Octave {
    planes: Vec<Vec<u16>>,
    width: usize,
    height: usize,
    stride: usize,
}

impl Octave {
    /// Half of `width` and `height`, with room for what whole vectors and an odd last row write.
    fn below(width: usize, height: usize, pictures: usize) -> Self {
        let stride = width.next_multiple_of(BLOCK) / 2;
        let planes = vec![vec![0; stride * height.div_ceil(2)]; pictures];
        Self { planes, width: width / 2, height: height / 2, stride }
    }

    /// The first `pictures` pictures.
    fn planes(&self, pictures: usize) -> Vec<Plane<'_, u16>> {
        let planes = self.planes.iter().take(pictures);
        planes.filter_map(|plane| Plane::new(plane, self.width, self.height, self.stride)).collect()
    }
}

/// VIF of a reference and distorted pictures of one size; owns the pyramid.
pub struct Vif {
    work: VifWork,
    size: (usize, usize),
    depth: BitDepth,
    bands: usize,
    renditions: usize,
    pyramid: [Octave; 3],
    /// Scratch that no thread is using.
    idle: Mutex<Vec<Scratch>>,
}

impl Vif {
    /// Work on frames of `width` x `height` samples, both at least [`MIN_SIZE`], up to `renditions` distorted pictures
    /// for each reference, in about `bands` parts that may run at the same time. `None` when the frames are too small.
    pub fn new(
        work: &VifWork,
        width: usize,
        height: usize,
        depth: BitDepth,
        renditions: usize,
        bands: usize,
    ) -> Option<Self> {
        if width.min(height) < MIN_SIZE {
            return None;
        }
        let one = Octave::below(width, height, 1 + renditions);
        let two = Octave::below(one.width, one.height, 1 + renditions);
        let three = Octave::below(two.width, two.height, 1 + renditions);
        let idle = Mutex::new(vec![Scratch::new(width, work.gain_limits.len(), renditions)]);
        Some(Self {
            work: work.clone(),
            size: (width, height),
            depth,
            bands: bands.max(1),
            renditions,
            pyramid: [one, two, three],
            idle,
        })
    }

    /// The sums of each distorted luma plane with the reference's, of the depth given to [`Vif::new`]; `None` when they
    /// are not of the size given there or more than that. Runs in the current rayon pool.
    pub fn compute<T: Sample>(
        &mut self,
        level: Level,
        reference: Plane<T>,
        distorted: &[Plane<T>],
    ) -> Option<Vec<VifSums>> {
        let planes: Vec<_> = [&[reference], distorted].concat();
        let n = planes.len();
        if planes.iter().any(|plane| (plane.width(), plane.height()) != self.size) || n > 1 + self.renditions
        {
            return None;
        }
        let mut sums = vec![vec![[VifScaleSums::default(); 4]; self.work.gain_limits.len()]; distorted.len()];
        let (work, idle, bands, width, renditions) =
            (&self.work, &self.idle, self.bands, self.size.0, self.renditions);
        let run = Run { level, work, idle, bands, width, renditions };
        let [one, two, three] = &mut self.pyramid;
        run.scale::<T, 0, 1>(&planes, self.depth.bits(), Some(one), &mut sums);
        run.scale::<u16, 1, 2>(&one.planes(n), 16, Some(two), &mut sums);
        run.scale::<u16, 2, 3>(&two.planes(n), 16, Some(three), &mut sums);
        run.scale::<u16, 3, 3>(&three.planes(n), 16, None, &mut sums);
        Some(sums)
    }

    /// The reference and the first `distorted` distorted pictures of the last group at scale 1.
    pub fn halves(&self, distorted: usize) -> Vec<Plane<'_, u16>> {
        self.pyramid[0].planes(1 + distorted)
    }
}

/// What the scales of a frame have in common.
struct Run<'a> {
    level: Level,
    work: &'a VifWork,
    idle: &'a Mutex<Vec<Scratch>>,
    bands: usize,
    width: usize,
    renditions: usize,
}

impl Run<'_> {
    /// Adds up one scale of these planes, the reference first, and makes the next one. Samples have `bits` bits; those
    /// above scale 0 have 16.
    fn scale<T: Sample, const SCALE: usize, const NEXT: usize>(
        &self,
        planes: &[Plane<T>],
        bits: u32,
        next: Option<&mut Octave>,
        sums: &mut [VifSums],
    ) {
        let height = planes[0].height();
        let rows = height.div_ceil(self.bands).next_multiple_of(ROWS);
        let mut parts: Vec<_> = (0..height).step_by(rows).map(|_| None).collect();
        if let Some(Octave { planes: next, stride, .. }) = next {
            for plane in next.iter_mut().take(planes.len()) {
                for (part, rows) in parts.iter_mut().zip(plane.chunks_mut(*stride * rows / 2)) {
                    let (planes, _) = part.get_or_insert_with(|| (vec![], *stride));
                    planes.push(rows);
                }
            }
        }
        let work = |(i, next): (usize, Option<Next<'_>>)| {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let taken = idle.pop();
            drop(idle);
            let mut scratch = taken
                .unwrap_or_else(|| Scratch::new(self.width, self.work.gain_limits.len(), self.renditions));
            let sums = band::<T, SCALE, NEXT>(
                self.level,
                Band {
                    level: self.level,
                    planes,
                    bits,
                    rows: i * rows..height.min((i + 1) * rows),
                    gain_limits: &self.work.gain_limits,
                    statistics: SCALE > 0 || self.work.scale0,
                    next,
                },
                &mut scratch,
            );
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
            sums
        };
        let bands: Vec<Vec<BandSums>> = parts.into_par_iter().enumerate().with_max_len(1).map(work).collect();
        for band in bands {
            for (sums, parts) in sums.iter_mut().zip(band) {
                for (sum, part) in sums.iter_mut().zip(parts) {
                    sum[SCALE] += part;
                }
            }
        }
    }
}

/// Where a part's rows of the next scale go, for each picture, and their stride.
type Next<'a> = (Vec<&'a mut [u16]>, usize);

/// Sums of a part of a scale, for each gain limit.
type BandSums = Vec<VifScaleSums>;

/// A part of a scale for one thread.
struct Band<'a, T> {
    level: Level,
    /// Of the reference and of at least one distorted picture.
    planes: &'a [Plane<'a, T>],
    bits: u32,
    /// Begins at a multiple of [`ROWS`].
    rows: Range<usize>,
    gain_limits: &'a [f64],
    statistics: bool,
    next: Option<Next<'a>>,
}

dispatch!(fn band[T: Sample, const SCALE: usize, const NEXT: usize](
    band: Band<'_, T>, scratch: &mut Scratch,
) -> Vec<BandSums> = process[T, SCALE, NEXT]);

/// Half of the range of `bits` bit samples, in both halves of a lane.
const fn middle(bits: u32) -> i32 {
    (0x0001_0001_u32 << (bits - 1)) as i32
}

/// The sums of a band, for each distorted picture.
#[inline(always)]
unsafe fn process<V: Log2, T: Sample, const SCALE: usize, const NEXT: usize>(
    mut band: Band<'_, T>,
    scratch: &mut Scratch,
) -> Vec<BandSums> {
    let planes = band.planes;
    let (width, height) = (planes[0].width(), planes[0].height());
    let pair_count = const { FILTERS[SCALE].radius + 2 };
    let slot = slot(width);
    let ring = scratch.ring.as_mut_ptr().cast::<i32>();
    let first = (band.rows.start as isize - const { FILTERS[SCALE].radius as isize }) / 2;
    let mut sums = vec![vec![VifScaleSums::default(); band.gain_limits.len()]; planes.len() - 1];
    let mut ready = 0;
    // SAFETY: the caller vouches for the instructions. The ring holds PAIRS slots of the widest scale for each picture;
    // a slot covers the width rounded up to whole vectors. It is only read where it has been written.
    unsafe {
        for y in band.rows.clone().step_by(ROWS) {
            let group = (y - band.rows.start) / 2;
            while ready < group + pair_count {
                let pair = 2 * (first + ready as isize);
                for (i, plane) in planes.iter().enumerate() {
                    let lines = [plane.row(mirror(pair, height)), plane.row(mirror(pair + 1, height))];
                    let at = ring.add((i * PAIRS + ready % pair_count) * slot);
                    interleave::<V, T>(at, lines, band.bits);
                }
                ready += 1;
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                if i == 0 {
                    four_rows::<T, SCALE, NEXT, true>(band.level, &mut band, scratch, 1, y, sums);
                } else {
                    four_rows::<T, SCALE, NEXT, false>(band.level, &mut band, scratch, 1 + i, y, sums);
                }
            }
        }
    }
    if let Some((first, others)) = sums.split_first_mut() {
        for (sum, first) in others.iter_mut().flat_map(|sums| sums.iter_mut().zip(&*first)) {
            (sum.den_log, sum.flat_count) = (first.den_log, first.flat_count);
        }
    }
    sums
}

/// Row pairs of the reference, and those of a distorted picture so many numbers after them.
#[derive(Clone, Copy)]
struct Pairs<'a> {
    reference: &'a [*const i32],
    apart: usize,
}

// Not part of the function around it: compilers need far longer for one that has all of this twice.
dispatch!(fn four_rows[T: Sample, const SCALE: usize, const NEXT: usize, const FIRST: bool](
    band: &mut Band<'_, T>, scratch: &mut Scratch, i: usize, y: usize, sums: &mut [VifScaleSums],
) -> () = process_four_rows[T, SCALE, NEXT, FIRST]);

/// Decimates four rows from `y` on, and adds them up for distorted picture `i`, which is 1 for the first.
#[inline(always)]
unsafe fn process_four_rows<V: Log2, T: Sample, const SCALE: usize, const NEXT: usize, const FIRST: bool>(
    band: &mut Band<'_, T>,
    scratch: &mut Scratch,
    i: usize,
    y: usize,
    sums: &mut [VifScaleSums],
) {
    let (width, bits) = (band.planes[0].width(), band.bits);
    let stride = row_stride(width);
    let rows = scratch.rows.as_mut_ptr().cast::<u16>();
    let kept = (band.planes.len() > 2).then(|| scratch.kept.as_mut_ptr().cast::<i32>());
    let (pair_count, group) = (const { FILTERS[SCALE].radius + 2 }, (y - band.rows.start) / 2);
    let slot = slot(width);
    let ring = scratch.ring.as_ptr().cast::<i32>();
    let mut pairs = [ring; PAIRS];
    for (s, pair) in pairs[..pair_count].iter_mut().enumerate() {
        *pair = ring.wrapping_add((group + s) % pair_count * slot);
    }
    let pairs = Pairs { reference: &pairs, apart: i * PAIRS * slot };
    // SAFETY: the caller vouches for the instructions. The ring holds PAIRS slots for each picture, and the rows hold
    // ROWS * PLANES strides of the widest scale; a stride covers the width rounded up to whole vectors and PAD samples
    // more on either side. Both are only read where they have been written (or zeroed when they were made). For several
    // distorted pictures ROWS strides are kept.
    unsafe {
        if let Some((planes, next_stride)) = &mut band.next {
            let at = group * *next_stride;
            decimate::<V, SCALE, NEXT, FIRST>(pairs, rows, width, bits, (planes, i), at, *next_stride);
        }
        if band.statistics {
            for x in (0..width).step_by(2 * V::N) {
                if size_of::<T>() == 1 {
                    vertical8::<V, FIRST>(pairs, x, rows.add(PAD + x), stride);
                } else {
                    vertical16::<V, SCALE, FIRST>(pairs, x, rows.add(PAD + x), stride, bits);
                }
            }
            for row in 0..ROWS.min(band.rows.end - y) {
                let from = rows.add(row * PLANES * stride + PAD);
                for plane in 0..PLANES {
                    extend(from.add(plane * stride), width, FILTERS[SCALE].radius);
                }
                let kept = kept.map(|kept| kept.wrapping_add(row * kept_stride(width)));
                let numerators = scratch.numerators.as_mut_ptr().cast::<i32>();
                statistics::<V, SCALE, FIRST>(from, stride, width, kept, band.gain_limits, numerators, sums);
            }
        }
    }
}

/// Writes a row pair into the ring: for each block of columns a vector for the even and one for the odd columns, the
/// upper row in the low halves, less half of the sample range to be signed.
#[inline(always)]
unsafe fn interleave<V: Lanes, T: Sample>(at: *mut i32, lines: [&[T]; 2], bits: u32) {
    // SAFETY: whole vectors are read inside the rows, the rest from an array of a vector's size; the caller
    // provides two vectors to write for each block of columns.
    unsafe {
        let middle = V::splat(middle(bits));
        for x in (0..lines[0].len()).step_by(2 * V::N) {
            let upper = V::sub16(load_samples::<V, T>(lines[0], x), middle);
            let lower = V::sub16(load_samples::<V, T>(lines[1], x), middle);
            V::store(at.add(x), V::blend16(upper, V::shl::<16>(lower)));
            V::store(at.add(x + V::N), V::blend16(V::shr::<16>(upper), lower));
        }
    }
}

/// The first quantity that is computed: quantity 0 is the reference's own.
const fn own(first: bool) -> usize {
    if first { 0 } else { 1 }
}

/// What the vertical filters run on: 16-bit quantities of row pairs of both pictures, first that of the reference
/// alone, then that of the distorted picture alone.
trait Quantities<V: Lanes, const Q: usize> {
    /// From samples less `middle`.
    unsafe fn of(reference: V::I, distorted: V::I, middle: V::I) -> [V::I; Q];
}

/// The samples, less `middle`.
struct Samples;
/// Products of 8-bit samples less 128, which are at most 2^14; those of both pictures with the distorted picture's
/// samples as they are, which are less than 2^15.
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
        // SAFETY: the caller vouches for the instructions.
        unsafe { [V::mul16(r, r), V::mul16(d, d), V::mul16(r, V::add16(d, middle))] }
    }
}

impl<V: Lanes> Quantities<V, 3> for Low {
    #[inline(always)]
    unsafe fn of(r: V::I, d: V::I, middle: V::I) -> [V::I; 3] {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let (r, d, flip) = (V::add16(r, middle), V::add16(d, middle), V::splat(FLIP));
            [V::xor(V::mul16(r, r), flip), V::xor(V::mul16(d, d), flip), V::xor(V::mul16(r, d), flip)]
        }
    }
}

impl<V: Lanes> Quantities<V, 3> for High {
    #[inline(always)]
    unsafe fn of(r: V::I, d: V::I, middle: V::I) -> [V::I; 3] {
        // SAFETY: the caller vouches for the instructions.
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
#[inline(always)]
unsafe fn add_pair<V: Lanes, const Q: usize, const TAPS: usize, const FIRST: bool>(
    sums: &mut [[V::I; Q]; ROWS],
    row: usize,
    quantities: [V::I; Q],
    step: usize,
) {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        for odd in 0..2 {
            let taps = V::splat(FILTERS[TAPS].taps[step][odd]);
            for q in own(FIRST)..Q {
                sums[row + odd][q] = V::add(sums[row + odd][q], V::madd16(quantities[q], taps));
            }
        }
    }
}

/// Filters quantities of row pairs, `at` so many numbers into each, for four rows. Without `FIRST`, quantity 0 means
/// nothing.
#[inline(always)]
unsafe fn vertical<V: Lanes, G: Quantities<V, Q>, const Q: usize, const TAPS: usize, const FIRST: bool>(
    Pairs { reference, apart }: Pairs<'_>,
    at: usize,
    middle: V::I,
    begin: [u32; Q],
) -> [[V::I; Q]; ROWS] {
    let steps = const { FILTERS[TAPS].radius + 1 };
    // SAFETY: the caller vouches for the instructions, and for a vector of each picture at `at` in every
    // pair.
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

/// The same for 32-bit numbers, rounded down by 16 bits: high halves, and low halves `apart` numbers later.
#[inline(always)]
unsafe fn horizontal_wide<V: Lanes, const TAPS: usize>(from: *const u16, apart: usize) -> [V::I; 2] {
    // SAFETY: as for either half.
    unsafe {
        let high = horizontal::<V, TAPS>(from, FLIPPED);
        let low = horizontal::<V, TAPS>(from.add(apart), FLIPPED + (1 << 15));
        [V::add(high[0], V::shr::<16>(low[0])), V::add(high[1], V::shr::<16>(low[1]))]
    }
}

/// Stores `16 + bits` bit sums of samples, rounded to 16 bits, of even and odd columns side by side.
#[inline(always)]
unsafe fn store_means<V: Lanes>(to: *mut u16, [even, odd]: [V::I; 2], bits: u32) {
    // SAFETY: the caller vouches for the instructions and for 2 N numbers at `to`.
    unsafe { V::store16(to, V::blend16(V::shr_by(even, bits), V::shl_by(odd, 16 - bits))) }
}

/// Stores the flipped high and low halves of even and odd columns, the low ones `apart` numbers later.
#[inline(always)]
unsafe fn store_halves<V: Lanes>(to: *mut u16, [even, odd]: [V::I; 2], apart: usize) {
    // SAFETY: the caller vouches for the instructions and for 2 N numbers at `to` and `apart` numbers
    // later.
    unsafe {
        let flip = V::splat(FLIP);
        V::store16(to, V::xor(V::blend16(V::shr::<16>(even), odd), flip));
        V::store16(to.add(apart), V::xor(V::blend16(even, V::shl::<16>(odd)), flip));
    }
}

/// Vertically filters `2 N` columns of four rows of 8-bit video into the scratch rows at `to`.
///
/// With `r = r' + 128` and sums over the taps, which add up to 2^16:
/// `sum(F r r) = sum(F r' r') + 256 sum(F r') + 2^30`, and
/// `sum(F r d) = sum(F r' d) + 128 sum(F d') + 2^30`.
#[inline(always)]
unsafe fn vertical8<V: Lanes, const FIRST: bool>(pairs: Pairs<'_>, x: usize, to: *mut u16, stride: usize) {
    // The means begin with a rounding half of 128, which squares see as 2^15 and products as half of that.
    const MEANS: [u32; 2] = [128; 2];
    const SQUARE: u32 = (1 << 30) - (1 << 15);
    const PRODUCTS: [u32; 3] = [SQUARE, SQUARE, (1 << 30) - (1 << 14)];
    // SAFETY: the caller vouches for the instructions, the columns in the pairs and the room at `to`.
    unsafe {
        let middle = V::splat(middle(8));
        let mut sums = [[[middle; 5]; 2]; ROWS];
        for side in 0..2 {
            let at = x + side * V::N;
            let means = vertical::<V, Samples, 2, 0, FIRST>(pairs, at, middle, MEANS);
            let products = vertical::<V, Products8, 3, 0, FIRST>(pairs, at, middle, PRODUCTS);
            for row in 0..ROWS {
                let ([m1, m2], [xx, yy, xy]) = (means[row], products[row]);
                let xx = V::add(xx, V::shl::<8>(m1));
                let yy = V::add(yy, V::shl::<8>(m2));
                let xy = V::add(xy, V::shl::<7>(m2));
                sums[row][side] = [m1, m2, xx, yy, xy];
            }
        }
        for (row, [even, odd]) in sums.into_iter().enumerate() {
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

/// Vertically filters `2 N` columns of four rows of deeper samples into the scratch rows at `to`.
#[inline(always)]
unsafe fn vertical16<V: Lanes, const SCALE: usize, const FIRST: bool>(
    pairs: Pairs<'_>,
    x: usize,
    to: *mut u16,
    stride: usize,
    bits: u32,
) {
    let shift = 2 * (bits - 8);
    // SAFETY: the caller vouches for the instructions, the columns in the pairs and the room at `to`.
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

/// Filtered products of samples, shifted down with rounding.
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

/// Makes two rows of the next scale, from number `at` on in the planes, of picture `i` and with `FIRST` of the
/// reference.
#[inline(always)]
unsafe fn decimate<V: Lanes, const SCALE: usize, const NEXT: usize, const FIRST: bool>(
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
    // SAFETY: the caller vouches for the instructions and the pairs; `rows` are at least four scratch
    // rows. The columns written are the width rounded up to whole blocks, halved, which is the next
    // scale's stride.
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

/// The same for even and odd columns: two chains of instructions for the machine to interleave.
macro_rules! sides {
    ($i:ident => $e:expr) => {
        [
            {
                let $i = 0;
                $e
            },
            {
                let $i = 1;
                $e
            },
        ]
    };
}

/// Sums of a row in lanes.
struct Tally<V: Log2> {
    den_log: V::I,
    flat_count: u32,
    flat_energy: V::L,
    /// A vector for each gain limit.
    numerators: *mut i32,
}

/// Horizontally filters a row of eight planes and adds its pixels up. The first picture leaves the reference's means
/// and variances in `kept`, if it is given, where the others find them; these do not add up what depends on the
/// reference only.
#[inline(always)]
unsafe fn statistics<V: Log2, const SCALE: usize, const FIRST: bool>(
    from: *const u16,
    stride: usize,
    width: usize,
    kept: Option<*mut i32>,
    gain_limits: &[f64],
    numerators: *mut i32,
    sums: &mut [VifScaleSums],
) {
    // SAFETY: the caller vouches for the instructions, eight mirrored scratch rows from `from`, a kept row, and a
    // vector for each gain limit at `numerators`. A lane adds less than 2^16 for each of its pixels, so
    // 32 bits last for 2^15 of them: rows of 2^18 samples.
    unsafe {
        let zero = V::splat(0);
        let mut tally = Tally::<V> { den_log: zero, flat_count: 0, flat_energy: V::splat64(0), numerators };
        for limit in 0..gain_limits.len() {
            V::store(numerators.add(limit * V::N), zero);
        }
        for x in (0..width).step_by(2 * V::N) {
            let from = from.add(x);
            let mut m1 = [zero; 2];
            let mut var1 = [zero; 2];
            if FIRST {
                m1 = horizontal::<V, SCALE>(from, FLIPPED);
                let xx = horizontal_wide::<V, SCALE>(from.add(2 * stride), 3 * stride);
                var1 = sides!(i => V::sub(xx[i], square_mean::<V>(m1[i], m1[i])));
            }
            if let Some(kept) = kept {
                let at = sides!(i => kept.add(2 * x + i * 2 * V::N));
                for i in 0..2 {
                    if FIRST {
                        V::store(at[i], m1[i]);
                        V::store(at[i].add(V::N), var1[i]);
                    } else {
                        m1[i] = V::load(at[i]);
                        var1[i] = V::load(at[i].add(V::N));
                    }
                }
            }
            let m2 = horizontal::<V, SCALE>(from.add(stride), FLIPPED);
            let yy = horizontal_wide::<V, SCALE>(from.add(3 * stride), 3 * stride);
            let xy = horizontal_wide::<V, SCALE>(from.add(4 * stride), 3 * stride);
            let inside = sides!(i => V::first((width - x + 1 - i) / 2));
            let var2 = sides!(i => V::max(V::sub(yy[i], square_mean::<V>(m2[i], m2[i])), zero));
            let cov = sides!(i => V::sub(xy[i], square_mean::<V>(m1[i], m2[i])));
            tally.pixels::<FIRST>(var1, var2, cov, inside, gain_limits);
        }
        let den_log = V::sum(tally.den_log);
        for (limit, sum) in sums.iter_mut().enumerate() {
            *sum += VifScaleSums {
                num_log: V::sum(V::load(numerators.add(limit * V::N))),
                den_log,
                flat_count: i64::from(tally.flat_count),
                flat_energy: V::sum64(tally.flat_energy),
            };
        }
    }
}

/// `a b` of means with 16 fraction bits, rounded to as many.
#[inline(always)]
unsafe fn square_mean<V: Lanes>(a: V::I, b: V::I) -> V::I {
    // SAFETY: the caller vouches for the instructions.
    unsafe { V::high(V::add64(V::mul_wide_u(a, b), V::splat64(1 << 31))) }
}

impl<V: Log2> Tally<V> {
    /// Adds the pixels `inside` with these variances and covariance, of even and odd columns; what depends on the
    /// reference only for the first picture.
    #[inline(always)]
    unsafe fn pixels<const FIRST: bool>(
        &mut self,
        var1: [V::I; 2],
        var2: [V::I; 2],
        cov: [V::I; 2],
        inside: [V::M; 2],
        gain_limits: &[f64],
    ) {
        // SAFETY: the caller vouches for the instructions and the vectors of the numerators.
        unsafe {
            let (zero, noise) = (V::splat(0), V::splat(NOISE));
            let busy = sides!(i => V::both(inside[i], V::gt(var1[i], V::splat(NOISE - 1))));
            let flat = sides!(i => V::except(inside[i], busy[i]));
            if V::any(flat[0]) || V::any(flat[1]) {
                for i in 0..2 {
                    if FIRST {
                        self.flat_count += V::count(flat[i]);
                    }
                    self.flat_energy = V::add64(self.flat_energy, V::widen_u(V::keep(flat[i], var2[i])));
                }
                if !V::any(busy[0]) && !V::any(busy[1]) {
                    return;
                }
            }
            let alike = sides!(i => V::both(busy[i], V::gt(V::min(cov[i], var2[i]), zero)));
            let s1 = sides!(i => V::to_f64(var1[i]));
            let c = sides!(i => V::to_f64(cov[i]));
            let gain = sides!(i => V::div_f64(c[i], V::add_f64(s1[i], V::splat_f64(EPSILON))));
            if FIRST {
                for i in 0..2 {
                    let log = V::sub(V::log2(V::add(var1[i], noise)), V::splat(LOG2_BIAS + 34816));
                    self.den_log = V::add(self.den_log, V::keep(busy[i], log));
                }
            }
            // By Cauchy and Schwarz, allowing for the rounding of the means, `gain cov` and with it the
            // signal stays below 2^31 where the reference has a variance of at least NOISE.
            let s2 = sides!(i => V::to_f64(var2[i]));
            let rest = sides!(i => V::trunc(V::sub_f64(s2[i], V::mul_f64(gain[i], c[i]))));
            let noise = sides!(i => V::add(V::max(rest[i], zero), noise));
            let log_noise = sides!(i => V::log2(noise[i]));
            for (k, limit) in gain_limits.iter().enumerate() {
                let gain = sides!(i => V::min_f64(gain[i], V::splat_f64(*limit)));
                let square = sides!(i => V::mul_f64(gain[i], gain[i]));
                let signal = sides!(i => V::trunc(V::mul_f64(square[i], s1[i])));
                let log = sides!(i => V::sub(V::log2(V::add(signal[i], noise[i])), log_noise[i]));
                let sum = V::add(V::keep(alike[0], log[0]), V::keep(alike[1], log[1]));
                let numerator = self.numerators.add(k * V::N);
                V::store(numerator, V::add(V::load(numerator), sum));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::tests::{Picture, content, group, planes, synthetic};
    use crate::metrics::vif::{TAPS, VifOptions, log2_table};

    /// The specification in plain loops.
    struct Naive {
        width: usize,
        height: usize,
        planes: [Vec<u64>; 2],
        bits: u32,
    }

    fn round(x: u64, shift: u32) -> u64 {
        (x + ((1 << shift) >> 1)) >> shift
    }

    impl Naive {
        fn filter(&self, taps: &[u16], shifts: [u32; 2], sample: impl Fn(usize) -> u64) -> Vec<u64> {
            let (w, h, centre) = (self.width as isize, self.height as isize, taps.len() as isize / 2);
            let reflect = |i: isize, n: isize| if i.abs() < n { i.abs() } else { 2 * (n - 1) - i };
            let at = |x: isize, y: isize| (reflect(y, h) * w + reflect(x, w)) as usize;
            let taps = || taps.iter().enumerate().map(|(k, tap)| (k as isize - centre, u64::from(*tap)));
            let all = || (0..h).flat_map(|y| (0..w).map(move |x| (x, y)));
            let column = |(x, y)| taps().map(|(k, tap)| tap * sample(at(x, y + k))).sum();
            let rows: Vec<u64> = all().map(column).map(|sum| round(sum, shifts[0])).collect();
            let row = |(x, y)| taps().map(|(k, tap)| tap * rows[at(x + k, y)]).sum();
            all().map(row).map(|sum| round(sum, shifts[1])).collect()
        }

        fn sums(&self, scale: usize, limit: f64, table: &[u16]) -> VifScaleSums {
            let [r, d] = &self.planes;
            let mean = |p: &[u64]| self.filter(TAPS[scale], [self.bits, 0], |i| p[i]);
            let product =
                |p: &[u64], q: &[u64]| self.filter(TAPS[scale], [2 * (self.bits - 8), 16], |i| p[i] * q[i]);
            let (m1, m2, xx, yy, xy) = (mean(r), mean(d), product(r, r), product(d, d), product(r, d));
            let log = |v: i64| {
                let k = 48 - (v as u64).leading_zeros();
                i64::from(table[(v as usize >> k) - 32768]) + 2048 * i64::from(k)
            };
            let noise = i64::from(NOISE);
            let mut sums = VifScaleSums::default();
            for i in 0..r.len() {
                let var1 = xx[i] as i64 - round(m1[i] * m1[i], 32) as i64;
                let var2 = (yy[i] as i64 - round(m2[i] * m2[i], 32) as i64).max(0);
                let cov = xy[i] as i64 - round(m1[i] * m2[i], 32) as i64;
                if var1 < noise {
                    sums.flat_count += 1;
                    sums.flat_energy += var2;
                    continue;
                }
                sums.den_log += log(var1 + noise) - 34816;
                if cov > 0 && var2 > 0 {
                    let gain = cov as f64 / (var1 as f64 + EPSILON);
                    let noise = ((var2 as f64 - gain * cov as f64) as i64).max(0) + noise;
                    let gain = gain.min(limit);
                    sums.num_log += log((gain * gain * var1 as f64) as i64 + noise) - log(noise);
                }
            }
            sums
        }

        fn next(&self, scale: usize) -> Self {
            let planes = [0, 1].map(|i| {
                let blurred = self.filter(TAPS[scale + 1], [self.bits, 16], |at| self.planes[i][at]);
                let row = |y: usize| &blurred[y * self.width..(y + 1) * self.width];
                let half =
                    |row: &[u64]| row.iter().step_by(2).take(self.width / 2).copied().collect::<Vec<_>>();
                (0..self.height / 2).flat_map(|y| half(row(2 * y))).collect()
            });
            Self { width: self.width / 2, height: self.height / 2, planes, bits: 16 }
        }
    }

    fn naive(pair: [&Picture; 2], work: &VifWork) -> VifSums {
        let table = log2_table();
        let planes = [0, 1].map(|i| pair[i].samples().into_iter().map(u64::from).collect());
        let mut scale =
            Naive { width: pair[0].width, height: pair[0].height, planes, bits: pair[0].depth.bits() };
        let mut sums = vec![[VifScaleSums::default(); 4]; work.gain_limits.len()];
        for i in 0..4 {
            if i > 0 {
                scale = scale.next(i - 1);
            }
            for (sum, limit) in sums.iter_mut().zip(&work.gain_limits) {
                if i > 0 || work.scale0 {
                    sum[i] = scale.sums(i, *limit, &table);
                }
            }
        }
        sums
    }

    fn run(level: Level, pictures: &[Picture], work: &VifWork, bands: usize) -> Vec<VifSums> {
        let Picture { width, height, depth, .. } = pictures[0];
        let mut vif = Vif::new(work, width, height, depth, 3, bands).unwrap();
        planes!(pictures, |p| vif.compute(level, p[0], &p[1..]).unwrap())
    }

    fn check(pair: &[Picture; 2], work: &VifWork, bands: usize) {
        let pictures = group(pair);
        let expected = [1, 2, 3].map(|i| naive([&pictures[0], &pictures[i]], work));
        for level in Level::available() {
            for n in 1..=expected.len() {
                let (w, h, depth) = (pair[0].width, pair[0].height, pair[0].depth);
                let found = run(level, &pictures[..=n], work, bands);
                assert_eq!(found, expected[..n], "{level:?} {w}x{h} {depth:?} {bands}");
            }
        }
    }

    #[test]
    fn known_sums_of_synthetic_frames() {
        let work = VifWork { gain_limits: vec![100.0], scale0: true };
        let expected = [
            (8, [0.5683950185775757, 0.99435955286026, 0.9979311227798462, 0.9983858466148376]),
            (10, [0.37429991364479065, 0.9960730075836182, 0.9988610744476318, 0.9984826445579529]),
            (12, [0.17268498241901398, 0.993869960308075, 0.9963793754577637, 0.9963874220848083]),
            (16, [0.997290313243866, 0.999994695186615, 0.9999958872795105, 0.9999945163726807]),
        ];
        for level in Level::available() {
            for (bits, scores) in expected {
                let sums = run(level, &synthetic(0, bits), &work, 3);
                assert_eq!(VifOptions::default().scores(&sums[0][0]), scores, "{level:?} {bits}");
            }
        }
    }

    #[test]
    fn equals_the_specification_at_every_size() {
        let work = VifWork { gain_limits: vec![100.0], scale0: true };
        let sizes = (16..=71).flat_map(|n| [(n, 16 + n % 7), (16 + n % 5, n)]);
        for (i, (width, height)) in sizes.enumerate() {
            let bits = [8, 10, 12, 16][i / 2 % 4];
            check(&content(i, width, height, bits), &work, 1 + i % 5);
        }
    }

    #[test]
    fn equals_the_specification_for_all_content_depths_and_limits() {
        let work = VifWork { gain_limits: vec![1.0, 100.0, 1.2], scale0: true };
        for i in 0..48 {
            check(&content(i, 67, 34, 8 + i as u32 % 9), &work, 2);
        }
        check(&content(0, 67, 34, 8), &VifWork { scale0: false, ..work }, 1);
    }

    #[test]
    fn frames_of_another_size_are_refused() {
        let work = VifWork { gain_limits: vec![100.0], scale0: true };
        let [r, d] = content(0, 32, 24, 8);
        let mut vif = Vif::new(&work, 24, 32, r.depth, 1, 1).unwrap();
        assert_eq!(vif.compute(Level::detect(), r.bytes().plane(), &[d.bytes().plane()]), None);
    }

    #[test]
    fn too_small_frames_are_refused() {
        let work = VifWork { gain_limits: vec![100.0], scale0: true };
        let depth = BitDepth::new(8).unwrap();
        assert!(Vif::new(&work, 16, 15, depth, 1, 1).is_none());
        assert!(Vif::new(&work, 15, 16, depth, 1, 1).is_none());
    }
}
