// SPDX-License-Identifier: MPL-2.0

//! SSIMULACRA2: pictures become light, light becomes XYB, and both pictures are compared on up to six scales.
//!
//! Each scale is processed in bands of rows, and each band in strips of columns whose planes stay in the cache. On the
//! way, a strip leaves the light of the next scale. The loops over the columns of a row are plain: columns are
//! independent, and the compiler vectorises the loops for each level. `mul_add` has one rounding; without an instruction
//! for it, it is a slow function with the same results.

use super::metric::{Metric, Pictures, Setup};
use super::simd::{Lanes, Level, dispatch};
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Plane, PlaneGroup, Row, Sample};
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::cvvdp::float::{larger, smaller};
use crate::metrics::ssimulacra2::{
    BIAS, C2, ChromaConversion, Conversion, LEAST_MIXTURE, MIXTURES, MOST_SIGNAL, MapSums, PairSums, REACH,
    RUN, STEPS, Sampling, ScaleSums, Ssimulacra2Work, TAPS, Y_OFFSET, scales,
};
use rayon::prelude::*;
use std::array::from_fn;
use std::ops::Range;

/// Rows of a part: whole runs, and pairs of rows for the next scale.
const BAND: usize = 64;
/// Columns of a strip, an even number.
const STRIP: usize = 128;
/// Rows of a band, and columns of a strip, with those that the blur reads beside them.
const WIDE_BAND: usize = BAND + 2 * REACH;
const WIDE: usize = STRIP + 2 * REACH;

/// Red, green and blue, or X, Y and B, of a part of a row.
type Colours = [[f32; WIDE]; 3];

/// A picture that can be read as linear light.
trait Image: Copy + Send + Sync {
    fn size(&self) -> (usize, usize);
    /// Reads these columns of row `y`. The first one is even.
    fn read(&self, y: usize, columns: Range<usize>, to: &mut Colours);
}

/// Samples with their conversion.
#[derive(Clone, Copy)]
struct Coded<'a, T> {
    luma: Plane<'a, T>,
    chroma: Option<([Plane<'a, T>; 2], ChromaConversion)>,
    conversion: &'a Conversion,
    /// That of the curve.
    table: &'a [[f32; 2]],
}

impl<T: Sample> Image for Coded<'_, T> {
    fn size(&self) -> (usize, usize) {
        (self.luma.width(), self.luma.height())
    }

    #[inline(always)]
    fn read(&self, y: usize, columns: Range<usize>, to: &mut Colours) {
        let n = columns.len();
        let Conversion { black, luma: scale, .. } = *self.conversion;
        let mut luma = [0.0; WIDE];
        let row = self.luma.row(y);
        for (to, sample) in luma[..n].iter_mut().zip(&row.memory()[columns.clone()]) {
            let sample: i32 = row.clamp(*sample).into();
            *to = (sample - black) as f32 * scale;
        }
        match &self.chroma {
            None => *to = [luma; 3],
            Some(([cb, cr], conversion)) => {
                let (mut u, mut v) = ([0.0; WIDE], [0.0; WIDE]);
                upsample(*cb, conversion, y, &columns, &mut u);
                upsample(*cr, conversion, y, &columns, &mut v);
                let ChromaConversion { is_rgb, red_cr, green_cb, green_cr, blue_cb, .. } = *conversion;
                let added: &[f32; WIDE] = if is_rgb { &[0.0; WIDE] } else { &luma };
                let [red, green, blue] = to;
                for i in 0..n {
                    red[i] = red_cr.mul_add(v[i], added[i]);
                    green[i] = green_cr.mul_add(v[i], green_cb.mul_add(u[i], luma[i]));
                    blue[i] = blue_cb.mul_add(u[i], added[i]);
                }
            }
        }
        for plane in to.iter_mut() {
            to_light(&mut plane[..n], self.table);
        }
        if let Some(matrix) = &self.conversion.primaries {
            for i in 0..n {
                let [r, g, b] = [to[0][i], to[1][i], to[2][i]];
                for (to, row) in to.iter_mut().zip(matrix) {
                    to[i] = row[0].mul_add(r, row[1].mul_add(g, row[2] * b));
                }
            }
        }
    }
}

/// Brings chroma of these columns of row `y` to the size of luma, as differences from grey times the scales of both
/// axes. Samples beyond the edge are those at the edge.
#[inline(always)]
fn upsample<T: Sample>(
    plane: Plane<'_, T>,
    conversion: &ChromaConversion,
    y: usize,
    columns: &Range<usize>,
    to: &mut [f32; WIDE],
) {
    let ChromaConversion { columns: across, rows: down, grey, .. } = *conversion;
    let last = plane.width() as isize - 1;
    // The chroma samples that are read, of which some may be beyond the edge.
    let (first, end) = match across {
        Sampling::Whole => (columns.start as isize, columns.end as isize),
        _ => ((columns.start / 2) as isize - 2, columns.end.div_ceil(2) as isize + 2),
    };
    let inside = first.max(0) as usize..(end.min(last + 1)) as usize;
    let (before, n) = ((inside.start as isize - first) as usize, inside.len());
    let mut sums = [0i32; WIDE + 4];
    let (taps, top) = down.taps(y);
    let row = |k: usize| plane.row((top + k as isize).clamp(0, plane.height() as isize - 1) as usize);
    if down == Sampling::Whole {
        let row = row(0);
        for (to, sample) in sums[before..][..n].iter_mut().zip(&row.memory()[inside]) {
            *to = row.clamp(*sample).into();
        }
    } else {
        let rows = [row(0), row(1), row(2), row(3)];
        weigh(rows, taps, inside, &mut sums[before..][..n]);
    }
    let (left, right) = (sums[before], sums[before + n - 1]);
    sums[..before].fill(left);
    sums[before + n..].fill(right);
    if across == Sampling::Whole {
        for (to, sum) in to.iter_mut().zip(&sums) {
            *to = (*sum - grey) as f32;
        }
        return;
    }
    let ((even, e), (odd, o)) = (across.taps(0), across.taps(1));
    let (e, o) = ((e + 2) as usize, (o + 2) as usize);
    for (j, to) in to.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        let at = |i: usize| sums[j + i];
        let weighed = |taps: [i32; 4], i: usize| {
            taps[0] * at(i) + taps[1] * at(i + 1) + taps[2] * at(i + 2) + taps[3] * at(i + 3)
        };
        *to = [(weighed(even, e) - grey) as f32, (weighed(odd, o) - grey) as f32];
    }
}

/// Computes weighted sums of four rows.
#[inline(always)]
fn weigh<T: Sample>(rows: [Row<'_, T>; 4], taps: [i32; 4], columns: Range<usize>, to: &mut [i32]) {
    let [a, b, c, d] = rows.map(|row| &row.memory()[columns.clone()][..to.len()]);
    let value = |sample: T| -> i32 { rows[0].clamp(sample).into() };
    for x in 0..to.len() {
        let [a, b, c, d] = [value(a[x]), value(b[x]), value(c[x]), value(d[x])];
        to[x] = taps[0] * a + taps[1] * b + taps[2] * c + taps[3] * d;
    }
}

/// Converts R', G' or B' to light, by the line between two entries of the table.
#[inline(always)]
fn to_light(values: &mut [f32], table: &[[f32; 2]]) {
    let Some(table) = table.first_chunk::<{ 2 * STEPS }>() else { return };
    for value in values {
        let place = smaller(larger(*value, 0.0), MOST_SIGNAL) * STEPS as f32;
        let step = place as i32;
        let [light, distance] = table[step as usize % (2 * STEPS)];
        *value = (place - step as f32).mul_add(distance, light);
    }
}

/// The light of a picture on a scale: for each row, red, green and blue.
#[derive(Clone, Default)]
struct Light {
    samples: Vec<f32>,
    width: usize,
    height: usize,
}

impl Light {
    fn new((width, height): (usize, usize)) -> Self {
        Self { samples: vec![0.0; 3 * width * height], width, height }
    }
}

impl Image for &Light {
    fn size(&self) -> (usize, usize) {
        (self.width, self.height)
    }

    #[inline(always)]
    fn read(&self, y: usize, columns: Range<usize>, to: &mut Colours) {
        for (channel, to) in to.iter_mut().enumerate() {
            let row = &self.samples[(3 * y + channel) * self.width..][..self.width];
            to[..columns.len()].copy_from_slice(&row[columns.clone()]);
        }
    }
}

/// A conversion, and the table of its curve.
struct Converter {
    conversion: Conversion,
    table: Vec<[f32; 2]>,
}

/// SSIMULACRA2 of a reference and distorted pictures of one size. It owns their light on scales 1 and up.
pub struct Ssimulacra2 {
    geometry: Geometry,
    converters: Vec<Converter>,
    /// For each scale from 1 on the pictures, the reference first.
    pyramid: Vec<Vec<Light>>,
}

impl Ssimulacra2 {
    /// Prepares for frames for which the conversions are defined, with up to `renditions` distorted pictures for each
    /// reference.
    pub fn new(conversions: &[Conversion], geometry: Geometry, renditions: usize) -> Self {
        let sizes = scales(geometry.width, geometry.height).skip(1);
        let converter = |conversion: &Conversion| {
            let table = conversion.curve.table();
            Converter { conversion: *conversion, table }
        };
        Self {
            geometry,
            converters: conversions.iter().map(converter).collect(),
            pyramid: sizes.map(|size| vec![Light::new(size); 1 + renditions]).collect(),
        }
    }

    /// Computes the sums of each distorted picture with the first one, of which there are no more than were given to
    /// [`Ssimulacra2::new`], one for each conversion; `None` if they do not have the geometry given there. Pictures are
    /// luma, Cb and Cr. Runs in the current rayon pool.
    pub fn compute<T: Sample>(
        &mut self,
        level: Level,
        luma: &[Plane<'_, T>],
        chroma: Option<[&[Plane<'_, T>]; 2]>,
    ) -> Option<Vec<Vec<PairSums>>> {
        let Self { geometry, converters, pyramid } = self;
        let is = |planes: &[Plane<'_, T>], size: (usize, usize)| {
            planes.len() == luma.len() && planes.iter().all(|plane| (plane.width(), plane.height()) == size)
        };
        let like = match (&chroma, geometry.chroma) {
            (Some(planes), Some(size)) => planes.iter().all(|planes| is(planes, size)),
            (None, None) => true,
            _ => false,
        };
        if !like || !is(luma, (geometry.width, geometry.height)) {
            return None;
        }
        let mut sums = vec![vec![]; luma.len() - 1];
        for Converter { conversion, table } in converters {
            let coded = |i: usize| {
                let chroma = chroma.zip(conversion.chroma).map(|([cb, cr], of)| ([cb[i], cr[i]], of));
                Coded { luma: luma[i], chroma, conversion, table }
            };
            let whole: Vec<_> = (0..luma.len()).map(coded).collect();
            for (sums, pair) in sums.iter_mut().zip(all_scales(level, &whole, pyramid)) {
                sums.push(pair);
            }
        }
        Some(sums)
    }
}

/// Computes the sums of each picture with the first one.
fn all_scales<T: Sample>(level: Level, whole: &[Coded<'_, T>], pyramid: &mut [Vec<Light>]) -> Vec<PairSums> {
    let mut sums = vec![PairSums::default(); whole.len() - 1];
    let mut put = |scale: usize, found: Vec<ScaleSums>| {
        for (sums, found) in sums.iter_mut().zip(found) {
            sums[scale] = found;
        }
    };
    put(0, scale_sums(level, whole, pyramid.first_mut()));
    for scale in 1..=pyramid.len() {
        let (above, next) = pyramid.split_at_mut(scale);
        let pictures: Vec<_> = above[scale - 1].iter().take(whole.len()).collect();
        put(scale, scale_sums(level, &pictures, next.first_mut()));
    }
    sums
}

/// Computes the sums of each picture with the first one on a scale, and the light of the next scale if there is one.
fn scale_sums<I: Image>(level: Level, pictures: &[I], next: Option<&mut Vec<Light>>) -> Vec<ScaleSums> {
    let (_, height) = pictures[0].size();
    let distorted = pictures.len() - 1;
    // The rows of the next scale that each band makes, of each picture.
    let mut made: Vec<Vec<&mut [f32]>> = (0..height.div_ceil(BAND)).map(|_| vec![]).collect();
    for light in next.into_iter().flatten().take(pictures.len()) {
        let rows = light.samples.chunks_mut(3 * light.width * BAND / 2);
        made.iter_mut().zip(rows).for_each(|(made, rows)| made.push(rows));
    }
    let work = |scratch: &mut Scratch, (i, mut made): (usize, Vec<&mut [f32]>)| {
        let rows = i * BAND..height.min((i + 1) * BAND);
        band(level, pictures, rows, &mut made, scratch)
    };
    let add = |mut a: Vec<ScaleSums>, b: Vec<ScaleSums>| {
        for (a, b) in a.iter_mut().zip(&b) {
            a.as_flattened_mut()
                .as_flattened_mut()
                .iter_mut()
                .zip(b.as_flattened().as_flattened())
                .for_each(|(a, b)| *a += b);
        }
        a
    };
    let bands = made.into_par_iter().enumerate().with_max_len(1);
    let sums = bands.map_init(|| Scratch::new(pictures.len()), work);
    sums.reduce(|| vec![ScaleSums::default(); distorted], add)
}

/// Buffers of one thread.
struct Scratch {
    light: Colours,
    /// Light of the row above, where it is the first of two that become one.
    above: Colours,
    /// The band of each picture in XYB, for each row. Samples outside the picture are 0.
    xyb: Vec<[Colours; WIDE_BAND]>,
    /// The reference, the distorted picture, the sum of their squares, and the square of their difference, blurred along
    /// rows.
    blurred: [Box<[[f32; STRIP]; WIDE_BAND]>; 4],
}

impl Scratch {
    fn new(pictures: usize) -> Self {
        let colours = [[0.0; WIDE]; 3];
        Self {
            light: colours,
            above: colours,
            xyb: vec![[colours; WIDE_BAND]; pictures],
            blurred: from_fn(|_| Box::new([[0.0; STRIP]; WIDE_BAND])),
        }
    }
}

dispatch!(fn band[I: Image](
    pictures: &[I], rows: Range<usize>, made: &mut [&mut [f32]], scratch: &mut Scratch,
) -> Vec<ScaleSums> = process_band[I]);

/// Computes the part of the sums for these rows, and writes the light of the next scale to `made`, which is empty if
/// there is no next scale.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process_band<V: Lanes, I: Image>(
    pictures: &[I],
    rows: Range<usize>,
    made: &mut [&mut [f32]],
    scratch: &mut Scratch,
) -> Vec<ScaleSums> {
    let (width, _) = pictures[0].size();
    let mut sums = vec![ScaleSums::default(); pictures.len() - 1];
    for first in (0..width).step_by(STRIP) {
        let strip = first..width.min(first + STRIP);
        for (i, picture) in pictures.iter().enumerate() {
            let made = made.get_mut(i).map(|made| &mut **made);
            convert(*picture, rows.clone(), strip.clone(), made, i, scratch);
        }
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe { compare::<V>(rows.len(), strip.len(), scratch, &mut sums) };
    }
    sums
}

/// Converts a strip of a band of picture `i` to XYB, and writes its light for the next scale.
#[inline(always)]
fn convert<I: Image>(
    picture: I,
    rows: Range<usize>,
    strip: Range<usize>,
    mut made: Option<&mut [f32]>,
    i: usize,
    scratch: &mut Scratch,
) {
    let Scratch { light, above, xyb, .. } = scratch;
    let (width, height) = picture.size();
    let columns = strip.start.saturating_sub(REACH)..width.min(strip.end + REACH);
    // Columns outside the picture.
    let (before, n) = (REACH + columns.start - strip.start, columns.len());
    for (r, to) in xyb[i][..rows.len() + 2 * REACH].iter_mut().enumerate() {
        let y = (rows.start + r).wrapping_sub(REACH);
        if y >= height {
            *to = [[0.0; WIDE]; 3];
            continue;
        }
        picture.read(y, columns.clone(), light);
        let [a, b, c] = to;
        to_xyb(light, [&mut a[before..][..n], &mut b[before..][..n], &mut c[before..][..n]]);
        for plane in to {
            plane[..before].fill(0.0);
            plane[before + n..].fill(0.0);
        }
        let Some(made) = made.as_mut().filter(|_| rows.contains(&y)) else { continue };
        // The last row of an odd number becomes one with itself.
        if y.is_multiple_of(2) {
            *above = *light;
        }
        if !y.is_multiple_of(2) || y + 1 == height {
            let (half, left) = (width.div_ceil(2), REACH - before);
            for channel in 0..3 {
                let row = &mut made[(3 * ((y - rows.start) / 2) + channel) * half..][strip.start / 2..];
                let row = &mut row[..strip.len().div_ceil(2)];
                halve(&above[channel][left..][..strip.len()], &light[channel][left..][..strip.len()], row);
            }
        }
    }
}

/// Computes a row of the next scale from two rows. The last of an odd number of columns becomes one with itself.
#[inline(always)]
fn halve(above: &[f32], below: &[f32], to: &mut [f32]) {
    let (above, last) = above.as_chunks::<2>();
    let (below, last_below) = below.as_chunks::<2>();
    for ((to, [a, b]), [c, d]) in to.iter_mut().zip(above).zip(below) {
        *to = (((a + b) + c) + d) * 0.25;
    }
    if let ([a], [c], Some(to)) = (last, last_below, to.last_mut()) {
        *to = (((a + a) + c) + c) * 0.25;
    }
}

/// Converts light to XYB.
#[inline(always)]
fn to_xyb(light: &Colours, to: [&mut [f32]; 3]) {
    let [x, y, b] = to;
    let n = x.len();
    let (y, b) = (&mut y[..n], &mut b[..n]);
    let [red, green, blue] = [&light[0][..n], &light[1][..n], &light[2][..n]];
    for i in 0..n {
        let c0 = mixture(MIXTURES[0], red[i], green[i], blue[i]);
        let c1 = mixture(MIXTURES[1], red[i], green[i], blue[i]);
        let c2 = mixture(MIXTURES[2], red[i], green[i], blue[i]);
        let sum = c0 + c1;
        x[i] = 7.0f32.mul_add(c0 - c1, 0.42);
        y[i] = 0.5f32.mul_add(sum, Y_OFFSET);
        b[i] = (-0.5f32).mul_add(sum, c2) + 0.55;
    }
}

/// Computes the cube root of a mixture of red, green and blue.
#[inline(always)]
fn mixture(weights: [f32; 3], red: f32, green: f32, blue: f32) -> f32 {
    let mixed = weights[0].mul_add(red, weights[1].mul_add(green, weights[2].mul_add(blue, BIAS)));
    cube_root(if mixed > LEAST_MIXTURE { mixed } else { LEAST_MIXTURE })
}

/// Computes the cube root of a number from 2^-30 on: its inverse by two cubic steps from a guess, times the square of
/// the number.
#[inline(always)]
fn cube_root(m: f32) -> f32 {
    let mut r = f32::from_bits(0x54a1_f000 - m.to_bits() / 3);
    for _ in 0..2 {
        let cube = (r * r) * r;
        let h = (-m).mul_add(cube, 1.0);
        let q = h.mul_add(2.0 / 9.0, 1.0 / 3.0) * h;
        r = r.mul_add(q, r);
    }
    (m * r) * r
}

/// Adds the part of the sums of a strip of a band with this size.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn compare<V: Lanes>(rows: usize, n: usize, scratch: &mut Scratch, sums: &mut [ScaleSums]) {
    let Scratch { xyb, blurred, .. } = scratch;
    let Some((reference, distorted)) = xyb.split_first() else { return };
    let wide = rows + 2 * REACH;
    for channel in 0..3 {
        let [x, y, s, q] = &mut *blurred;
        for (to, row) in x[..wide].iter_mut().zip(reference) {
            // SAFETY: the CPU has the instructions, as the caller has promised.
            unsafe { across::<V>(&row[channel], to) };
        }
        for (distorted, sums) in distorted.iter().zip(sums.iter_mut()) {
            for r in 0..wide {
                let (a, b) = (&reference[r][channel], &distorted[r][channel]);
                let (mut squares, mut error) = ([0.0; WIDE], [0.0; WIDE]);
                for i in 0..WIDE {
                    squares[i] = a[i].mul_add(a[i], b[i] * b[i]);
                    error[i] = (a[i] - b[i]) * (a[i] - b[i]);
                }
                // SAFETY: the CPU has the instructions, as the caller has promised.
                unsafe {
                    across::<V>(b, &mut y[r]);
                    across::<V>(&squares, &mut s[r]);
                    across::<V>(&error, &mut q[r]);
                }
            }
            for first in (0..rows).step_by(RUN) {
                let mut run = Sums { plain: [[0.0; STRIP]; 3], fourth: [[0.0; STRIP]; 3] };
                for r in first..rows.min(first + RUN) {
                    // SAFETY: the CPU has the instructions, as the caller has promised.
                    let planes =
                        unsafe { [down::<V>(x, r), down::<V>(y, r), down::<V>(s, r), down::<V>(q, r)] };
                    let (a, b) = (&reference[r + REACH][channel], &distorted[r + REACH][channel]);
                    maps(a, b, &planes, &mut run);
                }
                run.add_to(n, &mut sums[channel]);
            }
        }
    }
}

/// Blurs the samples from `p` on along a line, on which samples are `step` apart.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. Vectors must be readable at `p` and at the places of the blur beside it.
#[inline(always)]
unsafe fn blur<V: Lanes>(p: *const f32, step: usize) -> V::F {
    // SAFETY: promised by the caller.
    unsafe {
        let mut sum = V::mul_f32(V::splat_f32(TAPS[0]), V::load_f32(p));
        for k in 1..=REACH {
            let both = V::add_f32(V::load_f32(p.sub(k * step)), V::load_f32(p.add(k * step)));
            sum = V::fma_f32(V::splat_f32(TAPS[k]), both, sum);
        }
        sum
    }
}

/// Blurs a row along itself.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn across<V: Lanes>(row: &[f32; WIDE], to: &mut [f32; STRIP]) {
    for i in (0..STRIP).step_by(V::N) {
        // SAFETY: the CPU has the instructions, as the caller has promised. A strip is whole vectors, and the row has as
        // many more samples on both sides as the blur reads.
        unsafe { V::store_f32(to.as_mut_ptr().add(i), blur::<V>(row.as_ptr().add(REACH + i), 1)) };
    }
}

/// Blurs the columns of row `r` of a band, which begins with the rows above it.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn down<V: Lanes>(plane: &[[f32; STRIP]; WIDE_BAND], r: usize) -> [f32; STRIP] {
    let rows = &plane[r..=r + 2 * REACH];
    let mut to = [0.0; STRIP];
    for i in (0..STRIP).step_by(V::N) {
        // SAFETY: the CPU has the instructions, as the caller has promised. A row is whole vectors, and as many rows lie
        // above and below as the blur reads.
        unsafe {
            let p = rows.as_ptr().cast::<f32>().add(REACH * STRIP + i);
            V::store_f32(to.as_mut_ptr().add(i), blur::<V>(p, STRIP));
        }
    }
    to
}

/// The sums of a run in each column, for each map.
struct Sums {
    plain: [[f32; STRIP]; 3],
    fourth: [[f32; STRIP]; 3],
}

/// Adds a row of the maps. `planes`: the reference, the distorted picture, the sum of their squares, and the square of
/// their difference, blurred.
#[inline(always)]
fn maps(reference: &[f32; WIDE], distorted: &[f32; WIDE], planes: &[[f32; STRIP]; 4], run: &mut Sums) {
    let [mean1, mean2, squares, error] = planes;
    let Sums { plain: [d1, a1, l1], fourth: [d4, a4, l4] } = run;
    for i in 0..STRIP {
        let (x, y, m1, m2) = (reference[i + REACH], distorted[i + REACH], mean1[i], mean2[i]);
        let g = m1 - m2;
        let u = g * g;
        let v = larger(error[i] - u, 0.0);
        let denominator = (-m2).mul_add(m2, (-m1).mul_add(m1, squares[i])) + C2;
        let d = larger((1.0 - u).mul_add(v / denominator, u), 0.0);
        let (a, b) = ((y - m2).abs(), (x - m1).abs());
        let e = (a - b) / (1.0 + b);
        let (artefact, lost) = (larger(e, 0.0), larger(-e, 0.0));
        d1[i] += d;
        a1[i] += artefact;
        l1[i] += lost;
        let (d, artefact, lost) = (d * d, artefact * artefact, lost * lost);
        d4[i] += d * d;
        a4[i] += artefact * artefact;
        l4[i] += lost * lost;
    }
}

impl Sums {
    /// Adds the first `n` columns as integers.
    #[inline(always)]
    fn add_to(&self, n: usize, sums: &mut [MapSums; 3]) {
        for ((plain, fourth), sums) in self.plain.iter().zip(&self.fourth).zip(sums) {
            let mut more = [0u64; 4];
            for (plain, fourth) in plain[..n].iter().zip(&fourth[..n]) {
                let high = fourth * (1u32 << 22) as f32;
                let middle = (high - (high as u32) as f32) * (1u64 << 32) as f32;
                let low = (middle - (middle as u32) as f32) * (1u64 << 32) as f32;
                more[0] += u64::from(plain.mul_add((1u32 << 27) as f32, 0.5) as u32);
                more[1] += u64::from(high as u32);
                more[2] += u64::from(middle as u32);
                more[3] += u64::from(low as u32);
            }
            for (sum, more) in sums.iter_mut().zip(more) {
                *sum += more;
            }
        }
    }
}

impl Metric for Ssimulacra2 {
    type Of = metrics::ssimulacra2::Ssimulacra2;

    fn prepare(work: &Ssimulacra2Work, setup: &Setup) -> Result<Self, BackendError> {
        Ok(Self::new(&work.conversions(setup.geometry)?, setup.geometry, setup.renditions))
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<Vec<PairSums>>> {
        match (&pictures.luma, &pictures.chroma) {
            (PlaneGroup::U8(r, d), None) => self.compute(pictures.level, &joined(r, d), None),
            (PlaneGroup::U16(r, d), None) => self.compute(pictures.level, &joined(r, d), None),
            (PlaneGroup::U8(r, d), Some([PlaneGroup::U8(cb, cbs), PlaneGroup::U8(cr, crs)])) => {
                let chroma = [&joined(cb, cbs)[..], &joined(cr, crs)];
                self.compute(pictures.level, &joined(r, d), Some(chroma))
            }
            (PlaneGroup::U16(r, d), Some([PlaneGroup::U16(cb, cbs), PlaneGroup::U16(cr, crs)])) => {
                let chroma = [&joined(cb, cbs)[..], &joined(cr, crs)];
                self.compute(pictures.level, &joined(r, d), Some(chroma))
            }
            _ => None,
        }
    }
}

/// Returns the planes of all pictures, the reference first.
fn joined<'a, T: Sample>(reference: &Plane<'a, T>, distorted: &[Plane<'a, T>]) -> Vec<Plane<'a, T>> {
    [&[*reference], distorted].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::tests::{Picture, content, planes};
    use crate::metrics::options::Options;
    use crate::metrics::ssimulacra2::{MIN_SIZE, Ssimulacra2Options, score};
    use crate::random::noise;

    /// The specification in plain loops, with whole pictures.
    mod naive {
        use super::*;

        /// A plane, row by row.
        #[derive(Clone)]
        pub struct Map(Vec<f32>, usize, usize);

        impl Map {
            fn new(w: usize, h: usize, value: impl Fn(usize, usize) -> f32) -> Self {
                Self((0..w * h).map(|i| value(i % w, i / w)).collect(), w, h)
            }

            pub fn at(&self, x: usize, y: usize) -> f32 {
                self.0[y * self.1 + x]
            }

            fn zip(&self, other: &Self, f: impl Fn(f32, f32) -> f32) -> Self {
                Self(self.0.iter().zip(&other.0).map(|(a, b)| f(*a, *b)).collect(), self.1, self.2)
            }

            fn halved(&self) -> Self {
                let Self(_, w, h) = *self;
                Self::new(w.div_ceil(2), h.div_ceil(2), |x, y| {
                    let (x1, y1) = ((2 * x + 1).min(w - 1), (2 * y + 1).min(h - 1));
                    let sum = (self.at(2 * x, 2 * y) + self.at(x1, 2 * y)) + self.at(2 * x, y1);
                    (sum + self.at(x1, y1)) * 0.25
                })
            }

            fn blurred(&self) -> Self {
                let Self(_, w, h) = *self;
                let tap = |x: usize, y: usize, dx: isize, dy: isize, map: &Self| {
                    let (x, y) = (x.wrapping_add_signed(dx), y.wrapping_add_signed(dy));
                    if x < w && y < h { map.at(x, y) } else { 0.0 }
                };
                let pass = |map: &Self, dx: isize, dy: isize| {
                    Self::new(w, h, |x, y| {
                        (1..5).fold(TAPS[0] * map.at(x, y), |sum, k| {
                            let far = k as isize;
                            let both =
                                tap(x, y, -far * dx, -far * dy, map) + tap(x, y, far * dx, far * dy, map);
                            TAPS[k].mul_add(both, sum)
                        })
                    })
                };
                pass(&pass(self, 1, 0), 0, 1)
            }
        }

        /// Computes light from Y, or Y, Cb and Cr.
        pub fn light(planes: &[Picture], conversion: &Conversion) -> [Map; 3] {
            let samples: Vec<_> = planes.iter().map(Picture::samples).collect();
            let (w, h) = (planes[0].width, planes[0].height);
            let chroma = |plane: usize, x: usize, y: usize| {
                let ChromaConversion { columns, rows, grey, .. } = conversion.chroma.unwrap();
                let ((across, left), (down, top)) = (columns.taps(x), rows.taps(y));
                let (cw, ch) = (planes[plane].width as isize, planes[plane].height as isize);
                let mut sum = -i64::from(grey);
                for (k, l) in (0..4).flat_map(|k| (0..4).map(move |l| (k, l))) {
                    let at = |first: isize, k: usize, n: isize| (first + k as isize).clamp(0, n - 1) as usize;
                    let sample = samples[plane][at(top, l, ch) * cw as usize + at(left, k, cw)];
                    sum += i64::from(across[k]) * i64::from(down[l]) * i64::from(sample);
                }
                sum as f32
            };
            let table = conversion.curve.table();
            let curve = |v: f32| {
                let p = v.clamp(0.0, MOST_SIGNAL) * 1024.0;
                let [light, distance] = table[p as usize];
                (p - p.floor()).mul_add(distance, light)
            };
            let coded = |i: usize, x: usize, y: usize| {
                let luma = (i32::from(samples[0][y * w + x]) - conversion.black) as f32 * conversion.luma;
                let Some(c) = conversion.chroma else { return luma };
                let (u, v) = (chroma(1, x, y), chroma(2, x, y));
                match i {
                    0 => c.red_cr.mul_add(v, luma),
                    1 => c.green_cr.mul_add(v, c.green_cb.mul_add(u, luma)),
                    _ => c.blue_cb.mul_add(u, luma),
                }
            };
            let rgb: [Map; 3] = from_fn(|i| Map::new(w, h, |x, y| curve(coded(i, x, y))));
            let Some(matrix) = conversion.primaries else { return rgb };
            from_fn(|i| {
                let [r, g, b] = &rgb;
                let m = matrix[i];
                r.zip(&g.zip(b, |g, b| m[1].mul_add(g, m[2] * b)), |r, rest| m[0].mul_add(r, rest))
            })
        }

        fn xyb(light: &[Map; 3]) -> [Map; 3] {
            let Map(_, w, h) = light[0];
            let value = |i: usize, x: usize, y: usize| {
                let c = MIXTURES.map(|[r, g, b]| {
                    let m = r.mul_add(
                        light[0].at(x, y),
                        g.mul_add(light[1].at(x, y), b.mul_add(light[2].at(x, y), BIAS)),
                    );
                    cube_root(m.max(LEAST_MIXTURE))
                });
                let t = c[0] + c[1];
                match i {
                    0 => 7.0f32.mul_add(c[0] - c[1], 0.42),
                    1 => 0.5f32.mul_add(t, Y_OFFSET),
                    _ => (-0.5f32).mul_add(t, c[2]) + 0.55,
                }
            };
            from_fn(|i| Map::new(w, h, |x, y| value(i, x, y)))
        }

        fn channel(x: &Map, y: &Map) -> [MapSums; 3] {
            let s = x.zip(y, |x, y| x.mul_add(x, y * y)).blurred();
            let q = x.zip(y, |x, y| (x - y) * (x - y)).blurred();
            let (m1, m2) = (x.blurred(), y.blurred());
            let Map(_, w, h) = *x;
            let structure = Map::new(w, h, |i, j| {
                let (m1, m2) = (m1.at(i, j), m2.at(i, j));
                let u = (m1 - m2) * (m1 - m2);
                let v = (q.at(i, j) - u).max(0.0);
                let den = (-m2).mul_add(m2, (-m1).mul_add(m1, s.at(i, j))) + 0.0009;
                (1.0 - u).mul_add(v / den, u).max(0.0)
            });
            let edge = Map::new(w, h, |i, j| {
                let (a, b) = ((y.at(i, j) - m2.at(i, j)).abs(), (x.at(i, j) - m1.at(i, j)).abs());
                (a - b) / (1.0 + b)
            });
            let zero = edge.zip(&edge, |_, _| 0.0);
            [structure, edge.zip(&zero, f32::max), edge.zip(&zero, |e, zero| (-e).max(zero))].map(|map| {
                let mut sums = [0; 4];
                for (x, y) in (0..h).step_by(8).flat_map(|y| (0..w).map(move |x| (x, y))) {
                    let run = || (y..h.min(y + 8)).map(|y| map.at(x, y));
                    let add = |values: &mut dyn Iterator<Item = f32>| {
                        let first = values.next().unwrap();
                        values.fold(first, |sum, value| sum + value)
                    };
                    let r1 = add(&mut run());
                    let mut z = add(&mut run().map(|p| (p * p) * (p * p))) * 4194304.0;
                    sums[0] += u64::from(r1.mul_add(134217728.0, 0.5) as u32);
                    for sum in &mut sums[1..] {
                        *sum += u64::from(z as u32);
                        z = (z - z.floor()) * 4294967296.0;
                    }
                }
                sums
            })
        }

        pub fn sums(mut a: [Map; 3], mut b: [Map; 3]) -> PairSums {
            let mut sums = PairSums::default();
            for (i, sums) in sums.iter_mut().enumerate() {
                if i > 0 {
                    if a[0].1.min(a[0].2) < MIN_SIZE {
                        break;
                    }
                    (a, b) = (a.map(|map| map.halved()), b.map(|map| map.halved()));
                }
                let (x, y) = (xyb(&a), xyb(&b));
                *sums = from_fn(|c| channel(&x[c], &y[c]));
            }
            sums
        }
    }

    /// Y, or Y, Cb and Cr of a picture.
    type Components = Vec<Picture>;

    fn geometry(picture: &Components) -> Geometry {
        let Picture { width, height, depth, .. } = picture[0];
        let chroma = picture.get(1).map(|chroma| (chroma.width, chroma.height));
        Geometry { width, height, depth, chroma }
    }

    fn conversions(options: &[&[(&str, &str)]], geometry: Geometry) -> Vec<Conversion> {
        let options = options.iter().map(|options| {
            let mut set = Ssimulacra2Options::default();
            for (name, value) in *options {
                assert_eq!(set.set(name, value), Ok(true));
            }
            set
        });
        let work = Ssimulacra2Work { options: options.collect(), ..Default::default() };
        work.conversions(geometry).unwrap()
    }

    fn run(level: Level, conversions: &[Conversion], pictures: &[Components]) -> Vec<Vec<PairSums>> {
        let of = |i: usize| pictures.iter().map(|picture| picture[i].clone()).collect::<Vec<_>>();
        let mut metric = Ssimulacra2::new(conversions, geometry(&pictures[0]), 3);
        if pictures[0].len() == 1 {
            return planes!(&of(0), |luma| metric.compute(level, &luma, None)).unwrap();
        }
        let (y, cb, cr) = (of(0), of(1), of(2));
        planes!(&y, |y| {
            let all = [cb, cr].concat();
            // All planes have the sample type of luma.
            chroma(level, &mut metric, &y, &all)
        })
    }

    /// Computes the sums with the planes of Cb, followed by those of Cr.
    fn chroma<T: Sample>(
        level: Level,
        metric: &mut Ssimulacra2,
        luma: &[Plane<'_, T>],
        all: &[Picture],
    ) -> Vec<Vec<PairSums>> {
        let data: Vec<Vec<T>> =
            all.iter().map(|p| p.samples().iter().map(|v| T::low((*v).into())).collect()).collect();
        let planes: Vec<_> = data
            .iter()
            .zip(all)
            .map(|(data, p)| Plane::new(data, p.width, p.height, p.width).unwrap())
            .collect();
        let (cb, cr) = planes.split_at(luma.len());
        metric.compute(level, luma, Some([cb, cr])).unwrap()
    }

    /// Returns the pair of frames that the specification has check values for.
    fn synthetic(width: usize, height: usize, bits: u32, chroma: Option<(usize, usize)>) -> [Components; 2] {
        let sizes = [Some((width, height)), chroma, chroma];
        let picture = |distorted: bool| {
            let plane = |(p, (w, h)): (usize, (usize, usize))| {
                Picture::new(w, h, bits, |x, y| {
                    let sample =
                        (((3 * x * x + 5 * y + 7 * x * y + 11 * p * (x + y)) / 16) % (1 << bits)) as u32;
                    let noise = (((31 * x + 17 * y + p) % 23) << (bits - 8)) as u32;
                    if distorted { (sample + noise).min((1 << bits) - 1) } else { sample }
                })
            };
            sizes.into_iter().flatten().enumerate().map(plane).collect()
        };
        [picture(false), picture(true)]
    }

    /// Width, height, bits, size of chroma, options, and the bits of the score.
    type Case = (usize, usize, u32, Option<(usize, usize)>, &'static [(&'static str, &'static str)], u64);

    #[test]
    fn scores_are_those_of_the_specification() {
        let bt709: &[(&str, &str)] = &[("matrix", "709")];
        let cases: [Case; 6] = [
            (96, 64, 8, Some((48, 32)), bt709, 0x4046_7110_a8b2_c1c0),
            (
                97,
                67,
                10,
                Some((49, 34)),
                &[("site", "topleft"), ("matrix", "2020"), ("primaries", "2020")],
                0x4033_e1ef_b47e_0f68,
            ),
            (
                160,
                120,
                8,
                Some((160, 120)),
                &[("range", "full"), ("matrix", "601"), ("transfer", "srgb")],
                0x404b_04dd_02ba_6298,
            ),
            (200, 130, 12, Some((100, 130)), &[("site", "center"), ("matrix", "709")], 0x4041_b567_9f7d_b100),
            (64, 48, 8, None, &[], 0x4056_fc94_75fa_98dd),
            (8, 8, 8, Some((4, 4)), bt709, 0x4055_cf1a_fe8e_20d9),
        ];
        for (width, height, bits, chroma, options, expected) in cases {
            let pair = synthetic(width, height, bits, chroma);
            let geometry = geometry(&pair[0]);
            let conversions = conversions(&[options], geometry);
            for level in Level::available() {
                let sums = run(level, &conversions, &pair);
                let found = score(&sums[0][0], geometry);
                assert_eq!(found, f64::from_bits(expected), "{level:?} {width}x{height}");
            }
        }
    }

    #[test]
    fn sums_are_those_of_the_specification() {
        let pair = synthetic(96, 64, 8, Some((48, 32)));
        let conversions = conversions(&[&[("matrix", "709")]], geometry(&pair[0]));
        let sums = run(Level::detect(), &conversions, &pair)[0][0];
        let whole: ScaleSums = [
            [
                [36867766005, 3748499, 1361263755310, 40818966528],
                [4856854693, 1410, 973761242902, 41052389376],
                [3341811126, 676, 791854095074, 130829230016],
            ],
            [
                [14880270264, 1010332, 1106782344922, 0],
                [8589763821, 7864, 1612076480971, 3758096384],
                [5971964059, 4371, 1447313065792, 66202009600],
            ],
            [
                [37268322602, 4596608, 1399463036846, 33738981376],
                [4748297048, 1222, 1065219612419, 57113313280],
                [4172219965, 1437, 964043100316, 133680376320],
            ],
        ];
        let smallest: ScaleSums = [
            [
                [8044850, 0, 17314005, 9663676416],
                [33017254, 0, 14510558336, 0],
                [2168683, 0, 202246077, 2147483648],
            ],
            [[7970239, 0, 17836271, 6442450944], [38557036, 3, 11659271424, 0], [70117, 0, 1341, 3090153472]],
            [[4880865, 0, 2457137, 14898167808], [30324134, 0, 7255344896, 0], [1444059, 0, 241390048, 0]],
        ];
        assert_eq!((sums[0], sums[4], sums[5]), (whole, smallest, ScaleSums::default()));
    }

    #[test]
    fn light_is_that_of_the_specification() {
        let [reference, _] = synthetic(96, 64, 8, Some((48, 32)));
        let conversion = conversions(&[&[("matrix", "709")]], geometry(&reference))[0];
        let found = naive::light(&reference, &conversion).map(|map| from_fn::<_, 4, _>(|x| map.at(x, 0)));
        assert_eq!(found[0], [0.0; 4]);
        assert_eq!(found[1], [0.056356147, 0.056094177, 0.055515077, 0.056365773]);
    }

    /// Covers all layouts, depths and options, sizes around those of strips and bands, and several distorted pictures.
    #[test]
    fn equals_plain_arithmetic() {
        let options: [&[(&str, &str)]; 4] = [
            &[],
            &[("site", "topleft"), ("matrix", "2020"), ("primaries", "2020"), ("range", "full")],
            &[("site", "center"), ("transfer", "srgb"), ("primaries", "p3"), ("matrix", "fcc")],
            &[("transfer", "gamma28"), ("primaries", "470bg"), ("matrix", "240")],
        ];
        let sizes =
            [(8, 8), (9, 13), (31, 8), (64, 65), (127, 15), (128, 66), (129, 33), (137, 130), (263, 9)];
        for (i, (width, height)) in sizes.into_iter().enumerate() {
            let bits = [8, 10, 8, 12, 16, 9][i % 6];
            let (down, up) = (|n: usize| n / 2, |n: usize| n.div_ceil(2));
            let chroma = [
                Some((up(width), up(height))),
                Some((down(width), down(height))),
                Some((up(width), height)),
                None,
                Some((width, height)),
                Some((width, down(height))),
            ];
            let chroma = chroma[(i + i / 6) % 6];
            let sizes = [Some((width, height)), chroma, chroma];
            let planes: Vec<_> = sizes
                .into_iter()
                .flatten()
                .enumerate()
                .map(|(p, (w, h))| content(i + 3 * p, w, h, bits))
                .collect();
            let of = |which: usize| planes.iter().map(|pair| pair[which].clone()).collect::<Components>();
            let noisy =
                sizes.into_iter().flatten().map(|(w, h)| Picture::new(w, h, bits, |x, y| noise(9, x, y)));
            let pictures = [of(0), of(1), of(0), noisy.collect()];
            let geometry = geometry(&pictures[0]);
            let conversions = conversions(&[options[i % 4], options[(i + 1) % 4]], geometry);
            let light = |picture: &Components| {
                conversions.iter().map(|c| naive::light(picture, c)).collect::<Vec<_>>()
            };
            let reference = light(&pictures[0]);
            let expected: Vec<Vec<_>> = pictures[1..]
                .iter()
                .map(|picture| {
                    let pairs = reference.iter().cloned().zip(light(picture));
                    pairs.map(|(a, b)| naive::sums(a, b)).collect()
                })
                .collect();
            assert_eq!(expected[1].iter().map(|sums| score(sums, geometry)).collect::<Vec<_>>(), [100.0; 2]);
            for level in Level::available() {
                for n in 1..=expected.len() {
                    let found = run(level, &conversions, &pictures[..=n]);
                    assert!(found == expected[..n], "{level:?} {geometry:?}");
                }
            }
        }
    }

    #[test]
    fn cube_roots_are_near() {
        assert_eq!(cube_root(0.25).to_bits(), 0x3f21_4518);
        let mut m = LEAST_MIXTURE;
        while m < 8.0 {
            let error = f64::from(cube_root(m)) / f64::from(m).cbrt() - 1.0;
            assert!(error.abs() < 2.47e-7, "{m} {error}");
            m *= 1.000_01;
        }
    }

    #[test]
    #[ignore = "takes seconds: all numbers from 2^-30 to 8"]
    fn cube_roots_of_all_numbers_are_those_of_the_specification() {
        let range = LEAST_MIXTURE.to_bits()..=8f32.to_bits();
        let sum: u64 = range.map(|bits| u64::from(cube_root(f32::from_bits(bits)).to_bits())).sum();
        assert_eq!(sum, 284377013412172847);
    }
}
