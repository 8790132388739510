// SPDX-License-Identifier: MPL-2.0

//! ColorVideoVDP: pictures of opponent colours, their temporal filters, pyramids, and the visible differences of bands.
//!
//! The opponent colours of the latest pictures of each stream are kept, as all of them enter each result. So the groups
//! of a run have to come in their order. A pair's history begins with the first frame since which both pictures were
//! there without a gap; earlier frames are taken to be equal to that one, in both streams.
//!
//! Pictures have their channels row by row: each row of a picture is a row of each channel. All loops over the columns of
//! a row are plain, and the compiler vectorises them. `kernels/cvvdp.hip` has the same operations in the same order.

use std::ops::Range;

use rayon::prelude::*;

use super::metric::{Metric, Pictures, Setup};
use super::simd::{self, Lanes, dispatch};
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Plane, PlaneGroup, Sample};
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::cvvdp::float::{exp2, larger, log2, pow, smaller};
use crate::metrics::cvvdp::heat::{cells, side, starts};
use crate::metrics::cvvdp::tables::{BLUR, BLUR_HALF, Front, Level, Masking, NODES, REDUCE, Tables};
use crate::metrics::cvvdp::{CHANNELS, CvvdpSums, CvvdpWork, Eotf, fraction};

/// Opponent colours.
const COLOURS: usize = 3;
/// Least rows of a part.
const PART: usize = 16;
/// Columns that are filtered at a time.
const BLOCK: usize = 512;
/// Added to a double, it leaves the nearest integer in the lowest bits.
const TO_INTEGER: f64 = 6755399441055744.0; // 1.5 x 2^52

/// A row of channels, or rows of them.
type Rows<'a> = &'a [f32];

/// Luma and chroma of one picture.
#[derive(Clone, Copy)]
struct Planes<'a, T> {
    luma: Plane<'a, T>,
    /// Cb and Cr, unless the picture is grey.
    chroma: Option<[Plane<'a, T>; 2]>,
}

/// Returns where sample `i` of `n` is interpolated from among `from` samples: the nearer and the farther one, and their
/// weights in quarters.
fn interpolation(i: usize, n: usize, from: usize, cosited: bool) -> ([usize; 2], [i32; 2]) {
    let last = from - 1;
    let near = (i >> 1).min(last);
    match (from < n, cosited, i & 1) {
        (false, ..) => ([i.min(last); 2], [4, 0]),
        (_, true, 0) => ([near; 2], [4, 0]),
        (_, true, _) => ([near, (near + 1).min(last)], [2, 2]),
        (_, false, 0) => ([near, near.saturating_sub(1)], [3, 1]),
        (_, false, _) => ([near, (near + 1).min(last)], [3, 1]),
    }
}

/// Working memory for a row of chroma.
struct ChromaRow {
    column: Vec<i32>,
    u: Vec<f32>,
    v: Vec<f32>,
}

dispatch!(fn convert[T: Sample](front: &Front, planes: Planes<'_, T>, from: usize, to: &mut [f32]) -> () = convert_rows[T]);

/// Converts the rows from `from` on to opponent colours.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn convert_rows<V: Lanes, T: Sample>(
    front: &Front,
    planes: Planes<'_, T>,
    from: usize,
    to: &mut [f32],
) {
    let width = planes.luma.width();
    let [u, v] = [(); 2].map(|()| vec![0.0; width]);
    let mut chroma = ChromaRow { column: vec![], u, v };
    for (y, to) in (from..).zip(to.chunks_exact_mut(COLOURS * width)) {
        interpolate(front, &planes, y, &mut chroma);
        let luma = planes.luma.row(y).memory();
        match front.eotf {
            Eotf::Srgb => colours::<T>(front, luma, &chroma, to, srgb, |rgb| rgb),
            Eotf::Pq => colours::<T>(front, luma, &chroma, to, |v| pq(front, v), |rgb| rgb),
            Eotf::Hlg => colours::<T>(front, luma, &chroma, to, |v| hlg(front, v), |rgb| system(front, rgb)),
        }
    }
}

/// Interpolates a row of chroma.
#[inline(always)]
fn interpolate<T: Sample>(front: &Front, planes: &Planes<'_, T>, y: usize, to: &mut ChromaRow) {
    let ChromaRow { column, u, v } = to;
    let middle = ((front.chroma.low + front.chroma.high).div_ceil(2) * 16) as f32;
    let (width, height) = (planes.luma.width(), planes.luma.height());
    for (i, to) in [u, v].into_iter().enumerate() {
        let Some(plane) = planes.chroma.map(|chroma| chroma[i]) else {
            to.fill(middle.mul_add(front.chroma.scale, front.chroma.offset));
            continue;
        };
        let ([near, far], [a, b]) = interpolation(y, height, plane.height(), front.cosited[1]);
        let (near, far) = (plane.row(near).memory(), plane.row(far).memory());
        let (low, high) = (front.chroma.low as i32, front.chroma.high as i32);
        let clamp = |sample: &T| <T as Into<i32>>::into(*sample).max(low).min(high);
        column.clear();
        column.extend(near.iter().zip(far).map(|(near, far)| clamp(near) * a + clamp(far) * b));
        let column = &column[..];
        let last = column.len() - 1;
        let number = |sum: i32| (sum as f32).mul_add(front.chroma.scale, front.chroma.offset);
        if column.len() == width {
            to.iter_mut().zip(column).for_each(|(to, column)| *to = number(column * 4));
            continue;
        }
        let each = |x: usize| {
            let ([near, far], [a, b]) = interpolation(x, width, last + 1, front.cosited[0]);
            number(column[near] * a + column[far] * b)
        };
        let pairs = last.saturating_sub(1).min(width / 2 - 1);
        let (first, rest) = to.split_at_mut(2);
        (first[0], first[1]) = (each(0), each(1));
        let (inner, end) = rest.split_at_mut(2 * pairs);
        for (to, column) in inner.chunks_exact_mut(2).zip(column.windows(3)) {
            let [before, here, after] = [column[0], column[1], column[2]];
            let both = if front.cosited[0] {
                [here * 4, here * 2 + after * 2]
            } else {
                [here * 3 + before, here * 3 + after]
            };
            (to[0], to[1]) = (number(both[0]), number(both[1]));
        }
        let start = 2 + 2 * pairs;
        end.iter_mut().enumerate().for_each(|(x, to)| *to = each(start + x));
    }
}

/// Converts a row. `linear`: the light of a component; `system`: that of all components together.
#[inline(always)]
fn colours<T: Sample>(
    front: &Front,
    luma: &[T],
    ChromaRow { u, v, .. }: &ChromaRow,
    to: &mut [f32],
    linear: impl Fn(f32) -> f32,
    system: impl Fn([f32; 3]) -> [f32; 3],
) {
    let n = luma.len();
    let (d0, rest) = to.split_at_mut(n);
    let (d1, d2) = rest.split_at_mut(n);
    let (d0, d1, d2, u, v) = (&mut d0[..n], &mut d1[..n], &mut d2[..n], &u[..n], &v[..n]);
    let (low, high) = (front.luma.low as i32, front.luma.high as i32);
    let [vr, ug, vg, ub] = front.matrix;
    let unit = |x: f32| smaller(larger(x, 0.0), 1.0);
    let [m0, m1, m2] = front.colours;
    let [o0, o1, o2] = front.offsets;
    for x in 0..n {
        let code = <T as Into<i32>>::into(luma[x]).max(low).min(high);
        let y = (code as f32).mul_add(front.luma.scale, front.luma.offset);
        let added = if front.is_rgb { 0.0 } else { y };
        let r = unit(vr.mul_add(v[x], added));
        let g = unit(vg.mul_add(v[x], ug.mul_add(u[x], y)));
        let b = unit(ub.mul_add(u[x], added));
        let [r, g, b] = system([linear(r), linear(g), linear(b)]);
        d0[x] = m0[0].mul_add(r, m0[1].mul_add(g, m0[2].mul_add(b, o0)));
        d1[x] = m1[0].mul_add(r, m1[1].mul_add(g, m1[2].mul_add(b, o1)));
        d2[x] = m2[0].mul_add(r, m2[1].mul_add(g, m2[2].mul_add(b, o2)));
    }
}

/// Numbers that do not matter, except that they are above 0.
const TINY: f32 = f32::from_bits((127 - 100) << 23); // 2^-100

#[inline(always)]
fn srgb(v: f32) -> f32 {
    const A: f32 = (1.0f64 / 1.055) as f32;
    const B: f32 = (0.055f64 / 1.055) as f32;
    const C: f32 = (1.0f64 / 12.92) as f32;
    let high = pow(v.mul_add(A, B), 2.4);
    if v > 0.04045 { high } else { v * C }
}

#[allow(clippy::excessive_precision, reason = "the number is exact")]
#[inline(always)]
fn pq(front: &Front, v: f32) -> f32 {
    let t = pow(larger(v, TINY), (1.0f64 / 78.84375) as f32);
    let u = larger(t - 0.8359375, TINY) / (-18.6875f32).mul_add(t, 18.8515625);
    let light = pow(u, (1.0f64 / 0.1593017578125) as f32) * 10000.0;
    smaller(larger(light, 0.005), front.peak)
}

#[inline(always)]
fn hlg(front: &Front, v: f32) -> f32 {
    let [k, j, b] = front.hlg;
    let high = exp2(v.mul_add(k, j)).mul_add((1.0f64 / 12.0) as f32, b);
    if v <= 0.5 { (v * v) * ((1.0f64 / 3.0) as f32) } else { high }
}

#[inline(always)]
fn system(front: &Front, [r, g, b]: [f32; 3]) -> [f32; 3] {
    let luminance = 0.0593f32.mul_add(b, 0.6780f32.mul_add(g, 0.2627 * r));
    let gain = pow(larger(luminance, TINY), front.gamma);
    [r * gain, g * gain, b * gain]
}

dispatch!(fn filter[](
    frames: &[Rows<'_>], taps: &[[f32; CHANNELS]], width: usize, from: usize, to: &mut [f32],
) -> () = filter_rows[]);

/// Filters the rows from `from` on of frames of opponent colours, the oldest first, to channels.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn filter_rows<V: Lanes>(
    frames: &[Rows<'_>],
    taps: &[[f32; CHANNELS]],
    width: usize,
    from: usize,
    to: &mut [f32],
) {
    for (y, to) in (from..).zip(to.chunks_exact_mut(CHANNELS * width)) {
        for (channel, to) in to.chunks_exact_mut(width).enumerate() {
            // The changes are those of the achromatic channel.
            let row = (y * COLOURS + channel % COLOURS) * width;
            for (block, to) in to.chunks_mut(BLOCK).enumerate() {
                let at = row + block * BLOCK;
                for (k, (frame, taps)) in frames.iter().zip(taps).enumerate() {
                    let (frame, tap) = (&frame[at..][..to.len()], taps[channel]);
                    if k == 0 {
                        to.iter_mut().zip(frame).for_each(|(to, sample)| *to = tap * sample);
                    } else {
                        to.iter_mut().zip(frame).for_each(|(to, sample)| *to = tap.mul_add(*sample, *to));
                    }
                }
            }
        }
    }
}

/// Returns the rows of one channel of a picture.
#[inline(always)]
fn row(picture: Rows<'_>, width: usize, channel: usize, y: usize) -> Rows<'_> {
    &picture[(y * CHANNELS + channel) * width..][..width]
}

dispatch!(fn reduce[](picture: Rows<'_>, size: (usize, usize), from: usize, to: &mut [f32]) -> () = reduce_rows[]);

/// Computes the rows from `from` on of a picture at half the size.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn reduce_rows<V: Lanes>(
    picture: Rows<'_>,
    (width, height): (usize, usize),
    from: usize,
    to: &mut [f32],
) {
    let half = width.div_ceil(2);
    let mut extended = vec![0.0; width + 4];
    let [mut even, mut odd] = [(); 2].map(|()| vec![0.0f32; half + 2]);
    let [k0, k1, k2, k3, k4] = REDUCE;
    for (y, to) in (from..).zip(to.chunks_exact_mut(CHANNELS * half)) {
        for (channel, to) in to.chunks_exact_mut(half).enumerate() {
            // Row i - 2; before the first rows and after the last ones they are mirrored.
            let at = |i: usize| {
                let i = if i < 2 { 1 - i } else { i - 2 };
                row(picture, width, channel, if i < height { i } else { 2 * height - 1 - i })
            };
            let rows: [_; 5] = std::array::from_fn(|i| at(2 * y + i));
            let column = &mut extended[2..][..width];
            for x in 0..width {
                let mut sum = k0 * rows[0][x];
                sum = k1.mul_add(rows[1][x], sum);
                sum = k2.mul_add(rows[2][x], sum);
                sum = k3.mul_add(rows[3][x], sum);
                column[x] = k4.mul_add(rows[4][x], sum);
            }
            (extended[0], extended[1]) = (extended[3], extended[2]);
            let (last, previous) = (extended[width + 1], extended[width]);
            // The end of rows follows the parity of the height as well.
            (extended[width + 2], extended[width + 3]) = match (width % 2, height % 2) {
                (0, 1) => (5.0f32.mul_add(last, previous), last),
                (1, 0) => (0.0, last),
                _ => (last, previous),
            };
            for (i, pair) in extended.chunks_exact(2).enumerate() {
                (even[i], odd[i]) = (pair[0], pair[1]);
            }
            if width % 2 == 1 {
                even[half + 1] = extended[width + 3];
            }
            let n = to.len();
            let (e0, e1, e2) = (&even[..n], &even[1..][..n], &even[2..][..n]);
            let (o0, o1) = (&odd[..n], &odd[1..][..n]);
            for x in 0..n {
                let mut sum = k0 * e0[x];
                sum = k1.mul_add(o0[x], sum);
                sum = k2.mul_add(e1[x], sum);
                sum = k3.mul_add(o1[x], sum);
                to[x] = k4.mul_add(e2[x], sum);
            }
        }
    }
}

/// A picture of a level and the next smaller one.
#[derive(Clone, Copy)]
struct Pair<'a> {
    picture: Rows<'a>,
    smaller: Rows<'a>,
}

/// Expands one row of a channel of the smaller picture to the size of the level. `column` is working memory.
#[inline(always)]
fn expand(pair: &Pair<'_>, level: &Level, channel: usize, y: usize, column: &mut [f32], to: &mut [f32]) {
    let (width, height) = (level.width.div_ceil(2), level.height.div_ceil(2));
    let at = |y: usize| row(pair.smaller, width, channel, y);
    let m = y / 2;
    let (here, next) = (at(m), at((m + 1).min(height - 1)));
    let inner = &mut column[1..][..width];
    if y.is_multiple_of(2) {
        let before = at(m.saturating_sub(1));
        for x in 0..width {
            inner[x] = 0.1f32.mul_add(next[x], 0.8f32.mul_add(here[x], 0.1 * before[x]));
        }
    } else {
        for x in 0..width {
            inner[x] = (here[x] + next[x]) * 0.5;
        }
    }
    column[0] = column[1];
    column[width + 1] = column[width];
    for (to, column) in to[..2 * width].chunks_exact_mut(2).zip(column.windows(3)) {
        let [before, here, next] = [column[0], column[1], column[2]];
        to[0] = 0.1f32.mul_add(next, 0.8f32.mul_add(here, 0.1 * before));
        to[1] = (here + next) * 0.5;
    }
}

/// Working memory for the rows of one stream: its contrasts, one over its background, and an expanded row of each
/// channel.
struct Contrasts {
    column: Vec<f32>,
    expanded: Vec<f32>,
    inverse: Vec<f32>,
    /// A row of each channel.
    contrast: Vec<f32>,
    width: usize,
}

impl Contrasts {
    fn new(width: usize) -> Self {
        let n = width + 1;
        Self {
            column: vec![0.0; width / 2 + 3],
            expanded: vec![0.0; n],
            inverse: vec![0.0; n],
            contrast: vec![0.0; CHANNELS * width],
            width,
        }
    }

    fn contrast(&self, channel: usize) -> Rows<'_> {
        &self.contrast[channel * self.width..][..self.width]
    }

    /// Computes the contrasts of a row, each times the sensitivity of its channel. `background`: called with the
    /// background before.
    #[inline(always)]
    fn compute(
        &mut self,
        pair: &Pair<'_>,
        level: &Level,
        y: usize,
        sensitivity: &mut [f32],
        background: impl FnOnce(Rows<'_>, &mut [f32]),
    ) {
        let n = self.width;
        let mut background = Some(background);
        for channel in 0..CHANNELS {
            expand(pair, level, channel, y, &mut self.column, &mut self.expanded);
            let (expanded, inverse) = (&mut self.expanded[..n], &mut self.inverse[..n]);
            if let Some(background) = background.take() {
                for x in 0..n {
                    inverse[x] = 1.0 / larger(expanded[x], 0.01);
                }
                background(expanded, sensitivity);
            }
            let picture = row(pair.picture, n, channel, y);
            let sensitivity = &sensitivity[channel * n..][..n];
            let contrast = &mut self.contrast[channel * n..][..n];
            for x in 0..n {
                contrast[x] = smaller((picture[x] - expanded[x]) * inverse[x], 1000.0) * sensitivity[x];
            }
        }
    }
}

/// Computes the sensitivity of each channel for a row of luminances.
#[inline(always)]
fn sensitivity(masking: &Masking, level: &Level, luminance: Rows<'_>, nodes: &mut [i32], to: &mut [f32]) {
    let n = luminance.len();
    let [a, b] = masking.nodes;
    let nodes = &mut nodes[..n];
    // The fraction is kept in the row of the last channel.
    let (to, fractions) = to.split_at_mut((CHANNELS - 1) * n);
    let fractions = &mut fractions[..n];
    for x in 0..n {
        let t = log2(larger(luminance[x], 0.01)).mul_add(a, b);
        let t = smaller(larger(t, 0.0), (NODES - 1) as f32);
        // SAFETY: the number is between 0 and 31.
        let node: i32 = unsafe { t.to_int_unchecked() };
        nodes[x] = node;
        fractions[x] = t - node as f32;
    }
    for (channel, to) in to.chunks_exact_mut(n).enumerate() {
        let (values, steps) = (&level.sensitivity[channel], &level.steps[channel]);
        for x in 0..n {
            let node = nodes[x] as usize % NODES;
            to[x] = exp2(fractions[x].mul_add(steps[node], values[node]));
        }
    }
    let (values, steps) = (&level.sensitivity[CHANNELS - 1], &level.steps[CHANNELS - 1]);
    for x in 0..n {
        let node = nodes[x] as usize % NODES;
        fractions[x] = exp2(fractions[x].mul_add(steps[node], values[node]));
    }
}

/// Rows of a distorted picture around the present one: what is masked, filtered along the row, and the differences.
struct Masked {
    contrasts: Contrasts,
    masked: Vec<f32>,
    differences: Vec<f32>,
    sums: [u64; CHANNELS],
    heat: Option<Cells>,
}

impl Masked {
    fn new(width: usize, heat: Option<Cells>) -> Self {
        let rows = || vec![0.0; BLUR * CHANNELS * width];
        let (masked, differences) = (rows(), rows());
        Self { contrasts: Contrasts::new(width), masked, differences, sums: [0; CHANNELS], heat }
    }
}

/// Sums of the heat map for some rows of a level.
struct Cells {
    side: usize,
    columns: usize,
    /// The first row of cells.
    first: usize,
    sums: Vec<u64>,
    /// Fourth powers of the norms of a row.
    row: Vec<f32>,
}

impl Cells {
    /// Prepares for these rows of a level, by its number.
    fn new(level: usize, width: usize, rows: &Range<usize>) -> Self {
        let side = side(level);
        let (first, end) = (rows.start / side, rows.end.div_ceil(side));
        let columns = width.div_ceil(side);
        Self { side, columns, first, sums: vec![0; columns * (end - first)], row: vec![0.0; width] }
    }

    /// Adds the strengths of row `y`.
    #[inline(always)]
    fn add(&mut self, masking: &Masking, y: usize) {
        let sums = &mut self.sums[(y / self.side - self.first) * self.columns..];
        for (sum, strengths) in sums.iter_mut().zip(self.row.chunks(self.side)) {
            *sum +=
                strengths.iter().map(|strength| u64::from(masking.strength.units(*strength))).sum::<u64>();
        }
    }
}

/// The sums of rows of a band: of each channel, and of the heat map.
type BandSums = ([u64; CHANNELS], Vec<u64>);

/// Returns the rows of [`Masked`] that picture row `y` is in.
#[inline(always)]
fn kept(y: usize, channel: usize, width: usize) -> Range<usize> {
    let at = (y % BLUR * CHANNELS + channel) * width;
    at..at + width
}

dispatch!(fn band[](
    masking: &Masking, level: &Level, reference: Pair<'_>, distorted: &[Pair<'_>], rows: Range<usize>, heat: Option<usize>,
) -> Vec<BandSums> = band_rows[]);

/// Sums the differences in these rows of a band, for each distorted picture. `heat`: the number of the level, if the sums of
/// the heat map are computed.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn band_rows<V: Lanes>(
    masking: &Masking,
    level: &Level,
    reference: Pair<'_>,
    distorted: &[Pair<'_>],
    rows: Range<usize>,
    heat: Option<usize>,
) -> Vec<BandSums> {
    let (n, height) = (level.width, level.height);
    let half = if is_blurred(level) { BLUR_HALF } else { 0 };
    let mut of_reference = Contrasts::new(n);
    let mut sensitivities = vec![0.0; CHANNELS * n];
    let mut nodes = vec![0; n];
    let mut padded = vec![0.0; n + 2 * BLUR_HALF];
    let mut powers = vec![0.0; CHANNELS * n];
    let cells = || heat.map(|number| Cells::new(number, n, &rows));
    let mut masked: Vec<_> = distorted.iter().map(|_| Masked::new(n, cells())).collect();
    let mut next = rows.start;
    for y in rows.start.saturating_sub(half)..height.min(rows.end + half) {
        of_reference.compute(&reference, level, y, &mut sensitivities, |luminance, to| {
            sensitivity(masking, level, luminance, &mut nodes, to);
        });
        for (pair, masked) in distorted.iter().zip(&mut masked) {
            masked.contrasts.compute(pair, level, y, &mut sensitivities, |_, _| ());
            for channel in 0..CHANNELS {
                let (r, t) = (of_reference.contrast(channel), masked.contrasts.contrast(channel));
                let at = kept(y, channel, n);
                let differences = &mut masked.differences[at.clone()];
                let least = &mut padded[BLUR_HALF..][..n];
                for x in 0..n {
                    differences[x] = (t[x] - r[x]).abs();
                    least[x] = smaller(t[x].abs(), r[x].abs());
                }
                let to = &mut masked.masked[at];
                if half == 0 {
                    to.copy_from_slice(least);
                } else {
                    blur_row(&masking.horizontal, &mut padded, to);
                }
            }
        }
        while next < rows.end && (next + half).min(height - 1) <= y {
            for masked in &mut masked {
                mask_row(masking, level, next, &mut powers, masked);
            }
            next += 1;
        }
    }
    let biases = (rows.len() as u64).wrapping_mul(n as u64).wrapping_mul(TO_INTEGER.to_bits());
    let sums = |masked: Masked| {
        (masked.sums.map(|sum| sum.wrapping_sub(biases)), masked.heat.map_or(vec![], |cells| cells.sums))
    };
    masked.into_iter().map(sums).collect()
}

/// Returns true if a band is large enough for the taps of masking.
fn is_blurred(level: &Level) -> bool {
    level.width > BLUR_HALF && level.height > BLUR_HALF
}

/// Filters a row that has room for the taps on both sides.
#[inline(always)]
fn blur_row(taps: &[f32; BLUR], padded: &mut [f32], to: &mut [f32]) {
    let n = to.len();
    for i in 1..=BLUR_HALF {
        padded[BLUR_HALF - i] = padded[BLUR_HALF + i];
        padded[BLUR_HALF + n - 1 + i] = padded[BLUR_HALF + n - 1 - i];
    }
    let rows: [_; BLUR] = std::array::from_fn(|k| &padded[k..][..n]);
    blur(taps, rows, to);
}

/// Adds thirteen rows, each with its weight.
#[inline(always)]
fn blur(taps: &[f32; BLUR], rows: [Rows<'_>; BLUR], to: &mut [f32]) {
    let n = to.len();
    let rows = rows.map(|row| &row[..n]);
    for x in 0..n {
        let mut sum = taps[0] * rows[0][x];
        for k in 1..BLUR {
            sum = taps[k].mul_add(rows[k][x], sum);
        }
        to[x] = sum;
    }
}

/// Adds the differences of row `y` to the sums.
#[inline(always)]
fn mask_row(masking: &Masking, level: &Level, y: usize, powers: &mut [f32], of: &mut Masked) {
    let (n, height) = (level.width, level.height);
    for (channel, to) in powers.chunks_exact_mut(n).enumerate() {
        if is_blurred(level) {
            let mirrored = |k: usize| {
                let y = (y + k).abs_diff(BLUR_HALF);
                if y < height { y } else { 2 * (height - 1) - y }
            };
            let rows = std::array::from_fn(|k| &of.masked[kept(mirrored(k), channel, n)]);
            blur(&masking.vertical, rows, to);
        } else {
            let masked = &of.masked[kept(y, channel, n)];
            to.iter_mut().zip(masked).for_each(|(to, masked)| *to = masked * masking.small);
        }
        let exponent = masking.powers[channel];
        to.iter_mut().for_each(|m| *m = pow(*m + masking.epsilon, exponent));
    }
    let scale = (1u64 << fraction(n, height)) as f64;
    let powers: [_; CHANNELS] = std::array::from_fn(|channel| &powers[channel * n..][..n]);
    of.heat.iter_mut().for_each(|cells| cells.row.fill(masking.strength.epsilon));
    for channel in 0..CHANNELS {
        let weights = masking.cross.map(|row| row[channel]);
        let differences = &of.differences[kept(y, channel, n)];
        let difference = |x: usize| {
            let mut masked = masking.offsets[channel];
            masked = weights[3].mul_add(powers[3][x], masked);
            masked = weights[2].mul_add(powers[2][x], masked);
            masked = weights[1].mul_add(powers[1][x], masked);
            masked = weights[0].mul_add(powers[0][x], masked);
            let u = pow(differences[x] + masking.epsilon, masking.power) - masking.zero;
            let u = larger(u, 0.0);
            u / u.mul_add(masking.top, masked)
        };
        let mut sum = 0u64;
        for x in 0..n {
            let d = difference(x);
            let v = d * (d + masking.two_epsilons);
            sum = sum.wrapping_add((f64::from(v) * scale + TO_INTEGER).to_bits());
        }
        of.sums[channel] = of.sums[channel].wrapping_add(sum);
        if let Some(Cells { row, .. }) = &mut of.heat {
            let (row, weight) = (&mut row[..n], masking.strength.weights[channel]);
            for x in 0..n {
                row[x] = masking.strength.add(row[x], difference(x), weight);
            }
        }
    }
    of.heat.iter_mut().for_each(|cells| cells.add(masking, y));
}

/// Sums numbers in double precision in a fixed order: 64 strided sums, whose halves are added until one is left.
fn strided(numbers: impl Iterator<Item = f32>) -> f64 {
    let mut lanes = [0.0; 64];
    for (i, number) in numbers.enumerate() {
        lanes[i % 64] += f64::from(number);
    }
    let mut n = 32;
    while n > 0 {
        for i in 0..n {
            lanes[i] += lanes[i + n];
        }
        n /= 2;
    }
    lanes[0]
}

/// Returns the bits of the sums of the base band, and the sums of the heat map where it is asked for. `heat`: the number of
/// the level.
fn base(
    masking: &Masking,
    level: &Level,
    reference: Rows<'_>,
    distorted: Rows<'_>,
    heat: Option<usize>,
) -> BandSums {
    let (width, height) = (level.width, level.height);
    let of = |picture, channel| (0..height).flat_map(move |y| row(picture, width, channel, y)).copied();
    let background = |picture| {
        let sum = strided(of(picture, 0).map(|sample| larger(sample, 0.01)));
        (sum / (width * height) as f64) as f32
    };
    let (of_reference, of_distorted) = (background(reference), background(distorted));
    let (one, two) = (1.0 / of_reference, 1.0 / of_distorted);
    let mut sensitivities = [0.0; CHANNELS];
    sensitivity(masking, level, &[of_reference], &mut [0], &mut sensitivities);
    let differences = |channel: usize| {
        let pairs = of(reference, channel).zip(of(distorted, channel));
        let sensitivity = sensitivities[channel];
        pairs.map(move |(r, t)| (smaller(t * two, 1000.0) - smaller(r * one, 1000.0)).abs() * sensitivity)
    };
    let sums = std::array::from_fn(|channel| {
        strided(differences(channel).map(|d| d * (d + masking.two_epsilons))).to_bits()
    });
    let heat = heat.map_or(vec![], |number| {
        let mut cells = Cells::new(number, width, &(0..height));
        let mut all: [_; CHANNELS] = std::array::from_fn(differences);
        for y in 0..height {
            for x in 0..width {
                let channels = all.iter_mut().zip(masking.strength.base);
                cells.row[x] = channels.fold(masking.strength.epsilon, |sum, (differences, weight)| {
                    masking.strength.add(sum, differences.next().unwrap_or_default(), weight)
                });
            }
            cells.add(masking, y);
        }
        cells.sums
    });
    (sums, heat)
}

/// The latest pictures of a stream, at their number modulo the length of the history, and how many of them follow each
/// other without a gap.
#[derive(Default)]
struct Stream {
    pictures: Vec<Vec<f32>>,
    age: usize,
}

/// The pyramid of a picture: channels of each level.
type Pyramid = Vec<Vec<f32>>;

/// ColorVideoVDP, with the history of all streams and working memory.
pub struct Cvvdp {
    geometry: Geometry,
    tables: Tables,
    /// Where the sums of the heat map begin for each level; empty if it is not asked for.
    heat: Vec<usize>,
    /// The reference, and each rendition.
    streams: Vec<Stream>,
    /// Number of the next group in the run.
    next: usize,
    pyramids: Vec<Pyramid>,
}

/// Divides rows into parts that may run in parallel.
fn part(rows: usize, bands: usize) -> usize {
    if bands == 1 { rows } else { rows.div_ceil(2 * bands).max(PART) }
}

/// Converts a picture with its bands in parallel.
fn converted<T: Sample>(
    level: simd::Level,
    front: &Front,
    planes: Planes<'_, T>,
    bands: usize,
    to: &mut Vec<f32>,
) {
    let (width, height) = (planes.luma.width(), planes.luma.height());
    to.resize(COLOURS * width * height, 0.0);
    let rows = part(height, bands);
    let parts = to.par_chunks_mut(COLOURS * width * rows).with_max_len(1).enumerate();
    parts.for_each(|(i, to)| convert(level, front, planes, i * rows, to));
}

/// A plane of the reference, and those of the distorted pictures.
type Component<'a, 'b, T> = (Plane<'a, T>, &'b [Plane<'a, T>]);

/// Returns the planes of the reference, and of each distorted picture.
fn planes<'a, T: Sample>(
    luma: Component<'a, '_, T>,
    chroma: Option<[Component<'a, '_, T>; 2]>,
) -> Vec<Planes<'a, T>> {
    fn at<'a, T: Sample>((reference, distorted): Component<'a, '_, T>, i: usize) -> Plane<'a, T> {
        i.checked_sub(1).map_or(reference, |i| distorted[i])
    }
    let picture =
        |i| Planes { luma: at(luma, i), chroma: chroma.map(|chroma| chroma.map(|plane| at(plane, i))) };
    (0..=luma.1.len()).map(picture).collect()
}

impl Cvvdp {
    fn taps(&self) -> usize {
        self.tables.taps.len()
    }

    /// Takes the pictures of a group: of the reference, and of these renditions.
    fn take<T: Sample>(&mut self, pictures: &Pictures<'_>, planes: Vec<Planes<'_, T>>) {
        let place = pictures.run % self.taps();
        let taken = [0].into_iter().chain(pictures.renditions.iter().map(|rendition| 1 + rendition));
        let mut taken: Vec<_> = taken.zip(planes).collect();
        taken.sort_by_key(|(stream, _)| *stream);
        let mut taken = taken.into_iter().peekable();
        let streams = self.streams.iter_mut().enumerate().map(|(i, stream)| {
            let planes = taken.next_if(|(stream, _)| *stream == i).map(|(_, planes)| planes);
            (stream, planes)
        });
        let taps = self.tables.taps.len();
        streams.collect::<Vec<_>>().into_par_iter().with_max_len(1).for_each(|(stream, planes)| {
            let Some(planes) = planes else {
                stream.age = 0;
                return;
            };
            stream.age = (stream.age + 1).min(taps);
            stream.pictures.resize_with(taps, Vec::new);
            converted(
                pictures.level,
                &self.tables.front,
                planes,
                pictures.bands,
                &mut stream.pictures[place],
            );
        });
    }

    /// Computes the pyramid of a stream, with this many frames of its history.
    fn build(&self, level: simd::Level, bands: usize, stream: usize, age: usize, to: &mut Pyramid) {
        let Tables { taps, levels, .. } = &self.tables;
        let (n, now) = (taps.len(), self.next + taps.len() - 1);
        let pictures = &self.streams[stream].pictures;
        let frame = |k: usize| &pictures[(now - (n - 1 - k).min(age - 1)) % n][..];
        let frames: Vec<_> = (0..n).map(frame).collect();
        to.resize_with(levels.len(), Vec::new);
        for (i, Level { width, height, .. }) in levels.iter().enumerate() {
            let (above, this) = to.split_at_mut(i);
            let Some(this) = this.first_mut() else { return };
            this.resize(CHANNELS * width * height, 0.0);
            let rows = part(*height, bands);
            let parts = this.par_chunks_mut(CHANNELS * width * rows).with_max_len(1).enumerate();
            match above.last().zip(i.checked_sub(1)) {
                None => parts.for_each(|(i, to)| filter(level, &frames, taps, *width, i * rows, to)),
                Some((above, at)) => {
                    let size = (levels[at].width, levels[at].height);
                    parts.for_each(|(i, to)| reduce(level, above, size, i * rows, to));
                }
            }
        }
    }

    /// Computes the sums of pairs with the same history. `reference`, `distorted`: indices of pyramids.
    fn compare(&self, pictures: &Pictures<'_>, reference: usize, distorted: &[usize]) -> Vec<CvvdpSums> {
        let Tables { levels, masking, .. } = &self.tables;
        let bands = levels.len() - 1;
        let parts = levels[..bands].iter().enumerate().flat_map(|(b, level)| {
            let rows = part(level.height, pictures.bands);
            (0..level.height).step_by(rows).map(move |y| (b, y..level.height.min(y + rows)))
        });
        let pair = |pyramid: usize, b: usize| {
            let pyramid = &self.pyramids[pyramid];
            Pair { picture: &pyramid[b], smaller: &pyramid[b + 1] }
        };
        let parts: Vec<_> = parts.collect();
        let sums = parts.into_par_iter().with_max_len(1).map(|(b, rows)| {
            let distorted: Vec<_> = distorted.iter().map(|pyramid| pair(*pyramid, b)).collect();
            let first = self.heat.get(b).map(|start| {
                let columns = cells(b, (levels[b].width, levels[b].height)).0;
                start + rows.start / side(b) * columns
            });
            let heat = first.map(|_| b);
            let sums = band(pictures.level, masking, &levels[b], pair(reference, b), &distorted, rows, heat);
            (b, first.unwrap_or(0), sums)
        });
        let sums: Vec<_> = sums.collect();
        let one = |(i, pyramid): (usize, &usize)| {
            let level = |pyramid: usize| &self.pyramids[pyramid][bands][..];
            let number = self.heat.get(bands).map(|_| bands);
            let (base, of_base) = base(masking, &levels[bands], level(reference), level(*pyramid), number);
            let mut all = vec![[0; CHANNELS]; bands];
            let mut heat = vec![0; self.heat.last().copied().unwrap_or(0)];
            let start = heat.len() - of_base.len();
            heat[start..].copy_from_slice(&of_base);
            for (b, first, sums) in &sums {
                let (channels, cells) = &sums[i];
                for (sum, part) in all[*b].iter_mut().zip(channels) {
                    *sum = u64::wrapping_add(*sum, *part);
                }
                heat[*first..].iter_mut().zip(cells).for_each(|(sum, part)| *sum += part);
            }
            CvvdpSums::new(all, base, heat, self.geometry)
        };
        distorted.iter().enumerate().map(one).collect()
    }
}

impl Metric for Cvvdp {
    type Of = metrics::cvvdp::Cvvdp;

    fn prepare(work: &CvvdpWork, setup: &Setup) -> Result<Self, BackendError> {
        let tables = Tables::new(work, setup.geometry)?;
        let streams = (0..=setup.renditions).map(|_| Stream::default()).collect();
        let sizes = tables.levels.iter().map(|level| (level.width, level.height));
        let heat = if work.heat { starts(sizes) } else { vec![] };
        Ok(Self { geometry: setup.geometry, tables, heat, streams, next: 0, pyramids: vec![] })
    }

    fn remember(&mut self, pictures: &Pictures<'_>) {
        if pictures.run == 0 || pictures.run != self.next {
            self.streams.iter_mut().for_each(|stream| stream.age = 0);
        }
        match (&pictures.luma, &pictures.chroma) {
            (PlaneGroup::U8(y, ys), None) => self.take(pictures, planes((*y, ys), None)),
            (PlaneGroup::U16(y, ys), None) => self.take(pictures, planes((*y, ys), None)),
            (PlaneGroup::U8(y, ys), Some([PlaneGroup::U8(b, bs), PlaneGroup::U8(r, rs)])) => {
                self.take(pictures, planes((*y, ys), Some([(*b, bs), (*r, rs)])));
            }
            (PlaneGroup::U16(y, ys), Some([PlaneGroup::U16(b, bs), PlaneGroup::U16(r, rs)])) => {
                self.take(pictures, planes((*y, ys), Some([(*b, bs), (*r, rs)])));
            }
            // Planes of different sample types are no picture; without its frame, the group has no sums.
            _ => self.streams.iter_mut().for_each(|stream| stream.age = 0),
        }
        self.next = pictures.run + 1;
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<CvvdpSums>> {
        let streams: Vec<_> = pictures.renditions.iter().map(|rendition| 1 + rendition).collect();
        let ages: Vec<_> =
            streams.iter().map(|stream| self.streams.get(*stream).map_or(0, |s| s.age)).collect();
        if ages.contains(&0) {
            return None;
        }
        // A reference for each length of history.
        let mut distinct = ages.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let wanted =
            distinct.iter().map(|age| (0, *age)).chain(streams.iter().copied().zip(ages.iter().copied()));
        let wanted: Vec<_> = wanted.collect();
        let mut pyramids = std::mem::take(&mut self.pyramids);
        pyramids.resize_with(pyramids.len().max(wanted.len()), Vec::new);
        pyramids.par_iter_mut().with_max_len(1).zip(&wanted).for_each(|(pyramid, (stream, age))| {
            self.build(pictures.level, pictures.bands, *stream, *age, pyramid);
        });
        self.pyramids = pyramids;
        let mut sums = vec![None; streams.len()];
        for (reference, age) in distinct.iter().enumerate() {
            let alike: Vec<_> = (0..ages.len()).filter(|i| ages[*i] == *age).collect();
            let distorted: Vec<_> = alike.iter().map(|i| distinct.len() + i).collect();
            for (i, of) in alike.into_iter().zip(self.compare(pictures, reference, &distorted)) {
                sums[i] = Some(of);
            }
        }
        sums.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
