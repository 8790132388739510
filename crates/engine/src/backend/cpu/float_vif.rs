// SPDX-License-Identifier: MPL-2.0

//! Visual information fidelity in single precision, streamed in tiles of sixteen rows.
//!
//! The additions of a row have to be made from left to right, so a vector holds one column of sixteen rows: tiles are
//! filtered vertically as they lie, turned, and from then on each lane adds up its own row. Turned tiles are filtered
//! across by the code that filters them vertically.

use super::filter::mirror;
use super::image::{Centred, Image, Singles};
use super::metric::{Metric, Pictures, Setup, typed};
use super::simd::{Lanes, Level, dispatch};
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Plane, Sample};
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::float_vif::{
    EPSILON, FloatVifSums, FloatVifWork, LOG2, Layout, Resampling, SCALES, ScaleSums, Variant,
};
use rayon::prelude::*;
use std::ops::Range;

/// Rows and columns of a tile.
const TILE: usize = 16;
/// Outputs that are summed side by side, so that no addition waits for the one before.
const CHAINS: usize = 8;
/// Rows of a part, in whole tiles.
const BAND: usize = 2 * TILE;
/// Tiles that a strip takes before it moves those that are still needed.
const ROOM: usize = 4;

/// Sixteen numbers: a row of a tile, or a column of a turned one.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line([f32; TILE]);

/// Sixteen lines, one after another.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Tile([f32; TILE * TILE]);

impl Tile {
    const ZERO: Self = Self([0.0; TILE * TILE]);
}

/// Float VIF of a reference and distorted pictures of one size.
pub struct FloatVif {
    geometry: Geometry,
    filterings: Vec<Filtering>,
}

/// One filtering, with the pictures that it makes, the reference's first.
struct Filtering {
    pyramid: Pyramid,
    /// Scale 0, if it is resampled.
    resampled: Option<(Resampling, Vec<Singles>)>,
}

struct Pyramid {
    taps: [Vec<f32>; SCALES],
    scale0: bool,
    variants: Vec<Variant>,
    /// Scales 1 to 3.
    smaller: [Vec<Singles>; SCALES - 1],
}

impl FloatVif {
    /// Prepares for frames for which it is defined, with up to `renditions` distorted pictures for each reference.
    pub fn new(work: &FloatVifWork, geometry: Geometry, renditions: usize) -> Self {
        let pictures = |size| vec![Singles::new(size); 1 + renditions];
        let filtering = |work: &metrics::float_vif::FilteringWork| {
            let Layout { sizes, taps, resampling } = work.filtering.layout(geometry);
            let smaller = std::array::from_fn(|i| pictures(sizes[1 + i]));
            let (scale0, variants) = (work.scale0, work.variants.clone());
            Filtering {
                pyramid: Pyramid { taps, scale0, variants, smaller },
                resampled: resampling.map(|resampling| (resampling, pictures(sizes[0]))),
            }
        };
        Self { geometry, filterings: work.filterings.iter().map(filtering).collect() }
    }

    /// Computes the sums of each distorted luma plane with the reference's, no more than were given to
    /// [`FloatVif::new`]; `None` if they do not have the size given there. Runs in the current rayon pool.
    pub fn compute<T: Sample>(
        &mut self,
        level: Level,
        reference: Plane<T>,
        distorted: &[Plane<T>],
    ) -> Option<Vec<FloatVifSums>> {
        let Geometry { width, height, depth, .. } = self.geometry;
        let planes = [&[reference], distorted].concat();
        if planes.iter().any(|plane| (plane.width(), plane.height()) != (width, height)) {
            return None;
        }
        let planes: Vec<_> = planes.into_iter().map(|plane| Centred::new(plane, depth.unit())).collect();
        let mut sums = vec![vec![]; distorted.len()];
        for Filtering { pyramid, resampled } in &mut self.filterings {
            let of_pictures = match resampled {
                None => pyramid.sums(level, &planes),
                Some((resampling, wholes)) => {
                    for (to, from) in wholes.iter_mut().zip(&planes) {
                        resampling.resample(*from, to);
                    }
                    pyramid.sums(level, &wholes.iter().take(planes.len()).collect::<Vec<_>>())
                }
            };
            for (sums, of_picture) in sums.iter_mut().zip(of_pictures) {
                sums.push(of_picture);
            }
        }
        Some(sums)
    }
}

impl Resampling {
    /// Resamples a picture.
    fn resample<I: Image>(&self, from: I, to: &mut Singles) {
        let (width, _) = from.size();
        let rows = || vec![0.0; width * self.spread];
        to.samples.par_chunks_mut(to.width).zip(self.y.par_chunks(self.spread)).for_each_init(
            rows,
            |rows, (to, y)| {
                for (row, y) in rows.chunks_exact_mut(width).zip(y) {
                    from.read(y.index as usize, row);
                }
                for (to, x) in to.iter_mut().zip(self.x.chunks_exact(self.spread)) {
                    let (mut value, mut total) = (0f32, 0f32);
                    for (row, y) in rows.chunks_exact(width).zip(y) {
                        for x in x {
                            let weight = y.weight * x.weight;
                            value += row[x.index as usize] * weight;
                            total += weight;
                        }
                    }
                    *to = if self.normalised { value / total } else { value };
                }
            },
        );
    }
}

impl Pyramid {
    /// Computes the sums of each picture with the first one, for each variant.
    fn sums<I: Image>(&mut self, level: Level, pictures: &[I]) -> Vec<Vec<ScaleSums>> {
        let Self { taps, scale0, variants, smaller } = self;
        let mut sums = vec![vec![ScaleSums::default(); variants.len()]; pictures.len() - 1];
        let mut put = |scale: usize, found: Vec<[f32; 2]>| {
            for (sums, found) in sums.iter_mut().flatten().zip(found) {
                sums[scale] = found;
            }
        };
        if *scale0 {
            put(0, scale_sums(level, pictures, &taps[0], variants));
        }
        for scale in 1..SCALES {
            let taps = &taps[scale];
            let (above, this) = smaller.split_at_mut(scale - 1);
            for (i, (to, whole)) in this[0].iter_mut().zip(pictures).enumerate() {
                match above.last() {
                    None => halve(level, *whole, taps, to),
                    Some(above) => halve(level, &above[i], taps, to),
                }
            }
            let pictures: Vec<_> = this[0].iter().take(pictures.len()).collect();
            put(scale, scale_sums(level, &pictures, taps, variants));
        }
        sums
    }
}

/// Computes numerator and denominator of each picture with the first one, for each variant.
fn scale_sums<I: Image>(level: Level, pictures: &[I], taps: &[f32], variants: &[Variant]) -> Vec<[f32; 2]> {
    let (width, height) = pictures[0].size();
    let work = |scratch: &mut Scratch, i: usize| {
        let rows = i * BAND..height.min((i + 1) * BAND);
        sums_band(level, pictures, rows, taps, variants, scratch)
    };
    let scratch = || Scratch::new(width, pictures.len(), 3 * pictures.len() - 1, taps.len(), 1);
    let bands = (0..height.div_ceil(BAND)).into_par_iter().with_max_len(1);
    let bands: Vec<_> = bands.map_init(scratch, work).collect();
    let add = |sum: [f32; 2], row: &[f32; 2]| [sum[0] + row[0], sum[1] + row[1]];
    let sum = |i: usize| bands.iter().flat_map(|rows| &rows[i]).fold([0.0; 2], add);
    (0..(pictures.len() - 1) * variants.len()).map(sum).collect()
}

/// Filters a picture, and keeps every other column of every other row.
fn halve<I: Image>(level: Level, from: I, taps: &[f32], to: &mut Singles) {
    let scratch = || Scratch::new(from.size().0, 1, 1, taps.len(), 2);
    let (width, height) = (to.width, to.height);
    let bands = to.samples.par_chunks_mut(BAND * width).enumerate().with_max_len(1);
    bands.for_each_init(scratch, |scratch, (i, to)| {
        halve_band(level, from, i * BAND..height.min((i + 1) * BAND), taps, scratch, width, to);
    });
}

/// Working memory of one thread.
struct Scratch {
    /// The latest rows of each picture.
    rows: Vec<Rows>,
    /// Quantities that are filtered.
    strips: Vec<Strip>,
    /// The same columns of consecutive rows: of the reference, of a distorted picture, and products.
    lines: [Vec<Line>; 3],
}

impl Scratch {
    /// `step`: rows and columns from one output of the filter to the next.
    fn new(width: usize, pictures: usize, strips: usize, taps: usize, step: usize) -> Self {
        let rows = step * (TILE - 1) + taps;
        let lines = || vec![Line::default(); rows];
        Self {
            rows: (0..pictures).map(|_| Rows::new(width, rows)).collect(),
            strips: (0..strips).map(|_| Strip::new(width, taps / 2, step)).collect(),
            lines: [lines(), lines(), lines()],
        }
    }
}

/// The latest rows of a picture. Those above the first and below the last are mirrored.
struct Rows {
    /// Row `y` is number `y` modulo `count`.
    samples: Vec<f32>,
    stride: usize,
    count: usize,
    /// The next row to be read.
    next: isize,
}

impl Rows {
    fn new(width: usize, count: usize) -> Self {
        let stride = width.next_multiple_of(TILE);
        Self { samples: vec![0.0; stride * count], stride, count, next: isize::MIN }
    }

    #[inline(always)]
    fn place(&self, y: isize) -> usize {
        y.rem_euclid(self.count as isize) as usize * self.stride
    }

    /// Reads the rows from `first` on that are not there yet.
    #[inline(always)]
    fn read<I: Image>(&mut self, picture: &I, first: isize) {
        let (width, height) = picture.size();
        let end = first + self.count as isize;
        for y in self.next.max(first)..end {
            let place = self.place(y);
            picture.read(mirror(y, height), &mut self.samples[place..][..width]);
        }
        self.next = end;
    }

    /// Copies a tile's columns of the rows from `first` on.
    #[inline(always)]
    fn copy(&self, first: isize, tile: usize, to: &mut [Line]) {
        for (y, line) in (first..).zip(to) {
            line.0.copy_from_slice(&self.samples[self.place(y) + tile * TILE..][..TILE]);
        }
    }
}

/// Columns of a quantity after the vertical filter, in sixteen rows. Those before the first and after the last are
/// mirrored.
struct Strip {
    lines: Vec<Line>,
    /// The column of the first line.
    first: isize,
    /// The column after the last one.
    next: isize,
    width: isize,
    reach: isize,
    /// Columns before the next tile that are still needed.
    kept: isize,
}

impl Strip {
    fn new(width: usize, reach: usize, step: usize) -> Self {
        let kept = (2 * lag(reach) + step - 1) * TILE;
        let lines = vec![Line::default(); kept + ROOM * TILE];
        Self { lines, first: 0, next: 0, width: width as isize, reach: reach as isize, kept: kept as isize }
    }

    #[inline(always)]
    fn clear(&mut self) {
        self.next = 0;
        self.first = -(lag(self.reach as usize) as isize) * TILE as isize;
    }

    #[inline(always)]
    fn at(&self, column: isize) -> usize {
        (column - self.first) as usize
    }

    /// Makes room for the next tile. Returns its place.
    #[inline(always)]
    fn extend(&mut self) -> usize {
        if self.at(self.next) + TILE > self.lines.len() {
            let from = self.next - self.kept;
            let kept = self.at(from)..self.at(self.next);
            self.lines.copy_within(kept, 0);
            self.first = from;
        }
        let place = self.at(self.next);
        self.next += TILE as isize;
        place
    }

    /// Appends the next tile of columns: these rows after the vertical filter.
    ///
    /// # Safety
    ///
    /// The CPU must have the instructions of `V`.
    #[inline(always)]
    unsafe fn push<V: Lanes, const STEP: usize>(&mut self, rows: &[Line], taps: &[f32]) {
        let place = self.extend();
        let mut tile = Tile::ZERO;
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe {
            filter::<V, STEP>(rows, taps, &mut tile);
            turn::<V>(&tile, &mut self.lines[place..]);
        }
    }

    /// Mirrors columns at the right edge if they belong to the latest tile, and those at the left edge if `left`.
    #[inline(always)]
    fn mirror(&mut self, left: bool) {
        let end = self.width + self.reach;
        for column in self.width.max(self.next - TILE as isize)..end.min(self.next) {
            let to = self.at(column);
            self.lines[to] = self.lines[self.at(2 * self.width - 2 - column)];
        }
        for column in 1..=if left { self.reach } else { 0 } {
            let to = self.at(-column);
            self.lines[to] = self.lines[self.at(column)];
        }
    }

    /// Applies the horizontal filter at sixteen columns from `column` on.
    ///
    /// # Safety
    ///
    /// The CPU must have the instructions of `V`.
    #[inline(always)]
    unsafe fn filtered<V: Lanes, const STEP: usize>(&self, column: usize, taps: &[f32], to: &mut Tile) {
        let from = &self.lines[self.at(column as isize - self.reach)..];
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe { filter::<V, STEP>(from, taps, to) };
    }
}

/// Returns by how many tiles the horizontal filter follows the vertical one.
fn lag(reach: usize) -> usize {
    reach.div_ceil(TILE)
}

/// Computes sixteen sums of products of the taps and consecutive lines, the first ones of which are `STEP` apart.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn filter<V: Lanes, const STEP: usize>(from: &[Line], taps: &[f32], to: &mut Tile) {
    assert!(from.len() >= STEP * (TILE - 1) + taps.len());
    let (from, to) = (from.as_ptr().cast::<f32>(), to.0.as_mut_ptr());
    for place in (0..TILE).step_by(CHAINS) {
        for lane in (0..TILE).step_by(V::N) {
            // SAFETY: the CPU has the instructions, as the caller has promised, and both have all lines.
            unsafe {
                let from = from.add(STEP * place * TILE + lane);
                // A sum of zeros has another sign without the zero before, which changes nothing.
                let mut sums = [V::splat_f32(0.0); CHAINS];
                let tap = V::splat_f32(taps[0]);
                for i in 0..CHAINS {
                    sums[i] = V::mul_f32(tap, V::load_f32(from.add(STEP * i * TILE)));
                }
                for k in 1..taps.len() {
                    let tap = V::splat_f32(taps[k]);
                    for i in 0..CHAINS {
                        let value = V::load_f32(from.add((STEP * i + k) * TILE));
                        sums[i] = V::add_f32(sums[i], V::mul_f32(tap, value));
                    }
                }
                for i in 0..CHAINS {
                    V::store_f32(to.add((place + i) * TILE + lane), sums[i]);
                }
            }
        }
    }
}

/// Makes rows of columns.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn turn<V: Lanes>(from: &Tile, to: &mut [Line]) {
    let to = &mut to[..TILE];
    let (from, to) = (from.0.as_ptr(), to.as_mut_ptr().cast::<f32>());
    for y in (0..TILE).step_by(V::N) {
        for x in (0..TILE).step_by(V::N) {
            // SAFETY: the CPU has the instructions, as the caller has promised, and both have sixteen lines.
            unsafe { V::transpose_f32(from.add(y * TILE + x), to.add(x * TILE + y), TILE) };
        }
    }
}

/// Multiplies lines, as many as each has.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn products<V: Lanes>(a: &[Line], b: &[Line], to: &mut [Line]) {
    for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
        for lane in (0..TILE).step_by(V::N) {
            // SAFETY: the CPU has the instructions, as the caller has promised, and lines hold whole vectors.
            unsafe {
                let (a, b) = (V::load_f32(a.0.as_ptr().add(lane)), V::load_f32(b.0.as_ptr().add(lane)));
                V::store_f32(to.0.as_mut_ptr().add(lane), V::mul_f32(a, b));
            }
        }
    }
}

dispatch!(fn sums_band[I: Image](
    pictures: &[I], rows: Range<usize>, taps: &[f32], variants: &[Variant], scratch: &mut Scratch,
) -> Vec<Vec<[f32; 2]>> = process_sums[I]);

/// Computes the sums of these rows, of each picture with the first one, for each variant.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process_sums<V: Lanes, I: Image>(
    pictures: &[I],
    band: Range<usize>,
    taps: &[f32],
    variants: &[Variant],
    scratch: &mut Scratch,
) -> Vec<Vec<[f32; 2]>> {
    let (width, _) = pictures[0].size();
    let reach = taps.len() / 2;
    let (lag, tiles) = (lag(reach), width.div_ceil(TILE));
    let Scratch { rows, strips, lines: [x, y, product] } = scratch;
    let mut found = vec![Vec::with_capacity(BAND); (pictures.len() - 1) * variants.len()];
    let mut filtered = [Tile::ZERO; 5];
    let mut terms = [Tile::ZERO; 2];
    rows.iter_mut().for_each(|rows| rows.next = isize::MIN);
    for top in band.clone().step_by(TILE) {
        let first = top as isize - reach as isize;
        for (rows, picture) in rows.iter_mut().zip(pictures) {
            rows.read(picture, first);
        }
        strips.iter_mut().for_each(Strip::clear);
        let mut sums = vec![[Line::default(); 2]; found.len()];
        for tile in 0..tiles + lag {
            // SAFETY: the CPU has the instructions, as the caller has promised.
            unsafe {
                if tile < tiles {
                    rows[0].copy(first, tile, x);
                    strips[0].push::<V, 1>(x, taps);
                    products::<V>(x, x, product);
                    strips[1].push::<V, 1>(product, taps);
                    for (rows, strips) in rows[1..].iter().zip(strips[2..].chunks_exact_mut(3)) {
                        rows.copy(first, tile, y);
                        strips[0].push::<V, 1>(y, taps);
                        products::<V>(y, y, product);
                        strips[1].push::<V, 1>(product, taps);
                        products::<V>(x, y, product);
                        strips[2].push::<V, 1>(product, taps);
                    }
                } else {
                    for strip in strips.iter_mut() {
                        strip.extend();
                    }
                }
                for strip in strips.iter_mut() {
                    strip.mirror(tile == lag);
                }
                let Some(column) = tile.checked_sub(lag).map(|tile| tile * TILE) else { continue };
                let columns = TILE.min(width - column);
                strips[0].filtered::<V, 1>(column, taps, &mut filtered[0]);
                strips[1].filtered::<V, 1>(column, taps, &mut filtered[1]);
                for (strips, sums) in strips[2..].chunks_exact(3).zip(sums.chunks_exact_mut(variants.len())) {
                    for i in 0..3 {
                        strips[i].filtered::<V, 1>(column, taps, &mut filtered[2 + i]);
                    }
                    for (variant, sums) in variants.iter().zip(sums) {
                        match variant.exact_inverse() {
                            Some(inverse) => statistics::<true>(&filtered, variant, inverse, &mut terms),
                            None => statistics::<false>(&filtered, variant, 0.0, &mut terms),
                        }
                        for (sum, terms) in sums.iter_mut().zip(&terms) {
                            add_columns::<V>(terms, columns, sum);
                        }
                    }
                }
            }
        }
        for (found, sums) in found.iter_mut().zip(&sums) {
            for row in 0..TILE.min(band.end - top) {
                found.push(sums.each_ref().map(|sum| sum.0[row]));
            }
        }
    }
    found
}

/// Adds columns to the sums of their rows, one after another.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn add_columns<V: Lanes>(terms: &Tile, columns: usize, sums: &mut Line) {
    for lane in (0..TILE).step_by(V::N) {
        // SAFETY: the CPU has the instructions, as the caller has promised, and a tile has at most sixteen columns.
        unsafe {
            let to = sums.0.as_mut_ptr().add(lane);
            let mut sum = V::load_f32(to);
            for column in 0..columns.min(TILE) {
                sum = V::add_f32(sum, V::load_f32(terms.0.as_ptr().add(column * TILE + lane)));
            }
            V::store_f32(to, sum);
        }
    }
}

/// Computes numerators and denominators from means and mean squares of the reference, those of the distorted picture, and
/// mean products. `EXACT`: products with the inverse of the noise are exact.
#[inline(always)]
fn statistics<const EXACT: bool>(
    filtered: &[Tile; 5],
    variant: &Variant,
    inverse: f32,
    terms: &mut [Tile; 2],
) {
    let Variant { gain_limit, noise } = *variant;
    let (flat_factor, noise_limit) = (variant.flat_factor(), variant.noise_limit());
    let [mean1, square1, mean2, square2, product] = filtered;
    let [nums, dens] = terms;
    let mut linear = [0f32; TILE * TILE];
    for i in 0..TILE * TILE {
        let (m1, m2) = (mean1.0[i], mean2.0[i]);
        let variance1 = square1.0[i] - m1 * m1;
        let variance2 = square2.0[i] - m2 * m2;
        let covariance = product.0[i] - m1 * m2;
        let mut variance1 = if variance1 > 0.0 { variance1 } else { 0.0 };
        let variance2 = if variance2 > 0.0 { variance2 } else { 0.0 };
        let mut gain = covariance / (variance1 + EPSILON);
        let mut rest = variance2 - gain * covariance;
        let flat1 = variance1 < EPSILON;
        gain = if flat1 { 0.0 } else { gain };
        rest = if flat1 { variance2 } else { rest };
        variance1 = if flat1 { 0.0 } else { variance1 };
        let flat2 = variance2 < EPSILON;
        gain = if flat2 { 0.0 } else { gain };
        rest = if flat2 { 0.0 } else { rest };
        rest = if gain < 0.0 { variance2 } else { rest };
        gain = if gain < 0.0 { 0.0 } else { gain };
        rest = if rest > EPSILON { rest } else { EPSILON };
        gain = if gain < gain_limit { gain } else { gain_limit };
        let kept = f64::from((gain * gain) * variance1) / (f64::from(rest) + noise);
        // Below the noise, the logarithms are 0 and 1, and the first takes the numerator as it is.
        let below = variance1 < noise_limit;
        linear[i] = if below { 1.0 - variance2 * flat_factor } else { 0.0 };
        nums.0[i] = if below | (covariance < 0.0) { 1.0 } else { (1.0 + kept) as f32 };
        // The sum of 1 and a single is the same in both precisions, once it is rounded to single precision.
        let information =
            if EXACT { 1.0 + variance1 * inverse } else { (1.0 + f64::from(variance1) / noise) as f32 };
        dens.0[i] = if below { 2.0 } else { information };
    }
    // Logarithms take long, one step after another: in loops of their own, CPUs compute many at a time.
    for i in 0..TILE * TILE {
        nums.0[i] = log2(nums.0[i]) + linear[i];
    }
    for i in 0..TILE * TILE {
        dens.0[i] = log2(dens.0[i]);
    }
}

/// Computes the logarithm of a number from 1 on; 128 and more for infinity and what is no number.
#[inline(always)]
fn log2(x: f32) -> f32 {
    let bits = x.to_bits();
    let exponent = ((bits >> 23 & 255) as i32 - 127) as f32;
    let rest = f32::from_bits(bits & 0x7f_ffff | 1f32.to_bits()) - 1.0;
    // The polynomial without the product by zero at its beginning and the zero at its end, which change nothing.
    let mut log = LOG2[0];
    for k in 1..LOG2.len() - 1 {
        log = log * rest + LOG2[k];
    }
    exponent + log * rest
}

dispatch!(fn halve_band[I: Image](
    from: I, rows: Range<usize>, taps: &[f32], scratch: &mut Scratch, width: usize, to: &mut [f32],
) -> () = process_halves[I]);

/// Writes these rows of a picture of half the size, `width` columns each.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process_halves<V: Lanes, I: Image>(
    from: I,
    band: Range<usize>,
    taps: &[f32],
    scratch: &mut Scratch,
    width: usize,
    to: &mut [f32],
) {
    let reach = taps.len() / 2;
    let (lag, tiles) = (lag(reach), from.size().0.div_ceil(TILE));
    let Scratch { rows, strips, lines: [x, ..] } = scratch;
    let (rows, strip) = (&mut rows[0], &mut strips[0]);
    let mut turned = Tile::ZERO;
    let mut tile_out = [Line::default(); TILE];
    rows.next = isize::MIN;
    for (top, to) in band.step_by(TILE).zip(to.chunks_mut(TILE * width)) {
        let first = 2 * top as isize - reach as isize;
        rows.read(&from, first);
        strip.clear();
        for tile in 0..2 * width.div_ceil(TILE) + lag {
            // SAFETY: the CPU has the instructions, as the caller has promised.
            unsafe {
                if tile < tiles {
                    rows.copy(first, tile, x);
                    strip.push::<V, 2>(x, taps);
                } else {
                    strip.extend();
                }
                strip.mirror(tile == lag);
                let Some(pair) = tile.checked_sub(lag).filter(|tile| tile % 2 == 1) else { continue };
                let column = pair / 2 * TILE;
                strip.filtered::<V, 2>(2 * column, taps, &mut turned);
                turn::<V>(&turned, &mut tile_out);
                let columns = TILE.min(width - column);
                for (to, line) in to.chunks_exact_mut(width).zip(&tile_out) {
                    to[column..][..columns].copy_from_slice(&line.0[..columns]);
                }
            }
        }
    }
}

impl Metric for FloatVif {
    type Of = metrics::float_vif::FloatVif;

    fn prepare(work: &FloatVifWork, setup: &Setup) -> Result<Self, BackendError> {
        Ok(Self::new(work, setup.geometry, setup.renditions))
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<FloatVifSums>> {
        typed!(PlaneGroup: &pictures.luma, |r, d| self.compute(pictures.level, *r, d))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::tests::{Picture, content, group, planes};
    use crate::metrics::float_vif::{FilteringWork, FloatVifOptions};
    use crate::metrics::options::Options;

    /// The specification in plain loops.
    mod naive {
        use super::*;

        #[derive(Clone)]
        pub struct Map {
            pub samples: Vec<f32>,
            pub width: usize,
            pub height: usize,
        }

        impl Map {
            pub fn new(picture: &Picture) -> Self {
                let unit = f32::from(1u16 << (picture.depth.bits() - 8));
                let samples =
                    picture.samples().iter().map(|sample| f32::from(*sample) / unit - 128.0).collect();
                Self { samples, width: picture.width, height: picture.height }
            }

            fn at(&self, x: usize, y: usize) -> f32 {
                self.samples[y * self.width + x]
            }

            fn from(width: usize, height: usize, sample: impl Fn(usize, usize) -> f32) -> Self {
                let samples = (0..width * height).map(|i| sample(i % width, i / width)).collect();
                Self { samples, width, height }
            }

            fn times(&self, other: &Self) -> Self {
                Self::from(self.width, self.height, |x, y| self.at(x, y) * other.at(x, y))
            }

            /// Filters the rows of each column, and then the columns of each row.
            fn filtered(&self, taps: &[f32]) -> Self {
                let reach = taps.len() as isize / 2;
                let at = |i: usize, k: usize, n: usize| {
                    let i = i as isize + k as isize - reach;
                    let i = if i < 0 { -i } else { i } as usize;
                    if i < n { i } else { 2 * n - 2 - i }
                };
                let sum =
                    |of: &dyn Fn(usize) -> f32| (0..taps.len()).fold(0.0, |sum, k| sum + taps[k] * of(k));
                let down =
                    Self::from(self.width, self.height, |x, y| sum(&|k| self.at(x, at(y, k, self.height))));
                Self::from(self.width, self.height, |x, y| sum(&|k| down.at(at(x, k, self.width), y)))
            }

            pub fn halved(&self, taps: &[f32]) -> Self {
                let whole = self.filtered(taps);
                Self::from(self.width / 2, self.height / 2, |x, y| whole.at(2 * x, 2 * y))
            }

            pub fn resampled(&self, resampling: &Resampling) -> Self {
                let Resampling { spread, x, y, normalised } = resampling;
                Self::from(x.len() / spread, y.len() / spread, |column, row| {
                    let (mut value, mut total) = (0f32, 0f32);
                    for y in &y[row * spread..][..*spread] {
                        for x in &x[column * spread..][..*spread] {
                            value += self.at(x.index as usize, y.index as usize) * (x.weight * y.weight);
                            total += x.weight * y.weight;
                        }
                    }
                    if *normalised { value / total } else { value }
                })
            }
        }

        fn log2(x: f32) -> f32 {
            let x = if x.is_nan() { f32::NAN.abs() } else { x };
            let exponent = (x.to_bits() >> 23) as i32 - 127;
            let rest = f32::from_bits(x.to_bits() & 0x7f_ffff | 0x3f80_0000) - 1.0;
            exponent as f32 + LOG2.iter().fold(0.0, |log, c| log * rest + c)
        }

        pub fn sums(a: &Map, b: &Map, taps: &[f32], variant: &Variant) -> [f32; 2] {
            let [mean1, mean2] = [a, b].map(|map| map.filtered(taps));
            let [square1, square2] = [a, b].map(|map| map.times(map).filtered(taps));
            let product = a.times(b).filtered(taps);
            let mut sums = [0f32; 2];
            for y in 0..a.height {
                let mut row = [0f32; 2];
                for x in 0..a.width {
                    let (m1, m2) = (mean1.at(x, y), mean2.at(x, y));
                    let mut v1 = (square1.at(x, y) - m1 * m1).max(0.0);
                    let v2 = (square2.at(x, y) - m2 * m2).max(0.0);
                    let covariance = product.at(x, y) - m1 * m2;
                    let mut gain = covariance / (v1 + 1e-10);
                    let mut rest = v2 - gain * covariance;
                    if v1 < 1e-10 {
                        (gain, rest, v1) = (0.0, v2, 0.0);
                    }
                    if v2 < 1e-10 {
                        (gain, rest) = (0.0, 0.0);
                    }
                    if gain < 0.0 {
                        (gain, rest) = (0.0, v2);
                    }
                    rest = rest.max(1e-10);
                    gain = gain.min(variant.gain_limit);
                    let kept = f64::from(gain * gain * v1) / (f64::from(rest) + variant.noise);
                    let mut num = log2((1.0 + kept) as f32);
                    let mut den = log2((1.0 + f64::from(v1) / variant.noise) as f32);
                    if covariance < 0.0 {
                        num = 0.0;
                    }
                    if f64::from(v1) < variant.noise {
                        num = 1.0 - v2 * variant.flat_factor();
                        den = 1.0;
                    }
                    row = [row[0] + num, row[1] + den];
                }
                sums = [sums[0] + row[0], sums[1] + row[1]];
            }
            sums
        }
    }
    use naive::Map;

    fn options(set: &[(&str, &str)]) -> FloatVifOptions {
        let mut options = FloatVifOptions::default();
        set.iter().for_each(|(name, value)| assert_eq!(options.set(name, value), Ok(true)));
        options
    }

    /// Returns work that has all these options in one filtering.
    fn work(all: &[FloatVifOptions]) -> FloatVifWork {
        let filtering = all[0].filtering().unwrap();
        let scale0 = all.iter().any(|options| !options.skip_scale0);
        let variants = all.iter().map(|options| options.variant()).collect();
        FloatVifWork { filterings: vec![FilteringWork { filtering, scale0, variants }] }
    }

    fn run(level: Level, work: &FloatVifWork, geometry: Geometry, pictures: &[Picture]) -> Vec<FloatVifSums> {
        let mut vif = FloatVif::new(work, geometry, 3);
        planes!(pictures, |p| vif.compute(level, p[0], &p[1..]).unwrap())
    }

    fn check(pair: &[Picture; 2], all: &[FloatVifOptions]) {
        let Picture { width, height, depth, .. } = pair[0];
        let geometry = Geometry { width, height, depth, chroma: None };
        let work = work(all);
        let FilteringWork { filtering, scale0, variants } = &work.filterings[0];
        let Layout { taps, resampling, .. } = filtering.layout(geometry);
        let pictures = group(pair);
        let mut maps = pictures.each_ref().map(Map::new);
        if let Some(resampling) = &resampling {
            maps = maps.map(|map| map.resampled(resampling));
        }
        let mut expected = vec![vec![vec![ScaleSums::default(); variants.len()]]; 3];
        for scale in 0..SCALES {
            if scale > 0 {
                maps = maps.map(|map| map.halved(&taps[scale]));
            }
            for (map, expected) in maps[1..].iter().zip(&mut expected) {
                for (variant, sums) in variants.iter().zip(&mut expected[0]) {
                    if scale > 0 || *scale0 {
                        sums[scale] = naive::sums(&maps[0], map, &taps[scale], variant);
                    }
                }
            }
        }
        for level in Level::available() {
            for n in [1, 3] {
                let found = run(level, &work, geometry, &pictures[..=n]);
                assert_eq!(found, expected[..n], "{level:?} {geometry:?} {all:?}");
            }
        }
    }

    #[test]
    fn equals_the_specification_at_every_size_and_depth() {
        let default = [options(&[])];
        for (i, n) in (16..=68).enumerate() {
            for (width, height) in [(n, 16 + n % 7), (16 + n % 5, n)] {
                check(&content(i, width, height, [8, 9 + i as u32 % 8, 16][i % 3]), &default);
            }
        }
        check(&content(1, 70, 99, 8), &default);
    }

    #[test]
    fn equals_the_specification_with_every_option() {
        for seed in 0..8 {
            let pair = content(seed, 41, 37, [8, 10, 12, 16][seed % 4]);
            check(
                &pair,
                &[
                    options(&[("vif_enhn_gain_limit", "1")]),
                    options(&[("vif_sigma_nsq", "0.3")]),
                    options(&[("vif_sigma_nsq", "0"), ("vif_enhn_gain_limit", "1.5")]),
                ],
            );
            check(&pair, &[options(&[("vif_skip_scale0", "true"), ("vif_sigma_nsq", "4.7")])]);
        }
    }

    #[test]
    fn equals_the_specification_with_every_filter() {
        for (i, scale) in
            ["0.5", "1.5", "2", "2.4", "3", "3.711340206", "0.4444444444", "1.111111"].iter().enumerate()
        {
            check(&content(i, 60, 57 + i, [8, 10][i % 2]), &[options(&[("vif_kernelscale", scale)])]);
        }
        for (i, method) in ["nearest", "bilinear", "bicubic", "lanczos4"].iter().enumerate() {
            for (scale, width, height) in [("0.6", 61, 58), ("2", 21, 24), ("1.01", 33, 70)] {
                let options = options(&[("vif_prescale", scale), ("vif_prescale_method", method)]);
                check(&content(2 + i, width, height, [8, 12][i % 2]), &[options]);
            }
        }
    }
}
