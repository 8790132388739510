// SPDX-License-Identifier: MPL-2.0

//! The wavelet transform of rows.

use rayon::prelude::*;

use super::MIN_ROWS;
use crate::backend::cpu::image::Image;
use crate::backend::cpu::simd::{Lanes, Level, dispatch};
use crate::metrics::adm::AdmScale;
use crate::metrics::float_adm::{HIGH_PASS, LOW_PASS};

/// Numbers after a row, as many as the widest vector has.
pub const PADDING: usize = 16;

/// The bands of one scale of a picture.
pub struct Bands {
    /// For each row those of the bands a, h, v and d, each with padding.
    data: Vec<f32>,
    width: usize,
    height: usize,
}

impl Bands {
    pub fn new(scale: &AdmScale) -> Self {
        let AdmScale { width, height, .. } = *scale;
        Self { data: vec![0.0; 4 * (width + PADDING) * height], width, height }
    }

    /// Returns row `y` of the bands a, h, v and d, with padding.
    #[inline(always)]
    pub fn row(&self, y: usize) -> [&[f32]; 4] {
        let stride = self.width + PADDING;
        let rows = &self.data[4 * stride * y..][..4 * stride];
        let (a, rest) = rows.split_at(stride);
        let (h, rest) = rest.split_at(stride);
        let (v, d) = rest.split_at(stride);
        [a, h, v, d]
    }

    /// Transforms a picture: band a as a whole, the other bands as far as the sums depend on them.
    pub fn fill<I: Image>(&mut self, level: Level, parts: usize, scale: &AdmScale, image: I) {
        let size = self.height.div_ceil(parts.max(1)).max(MIN_ROWS);
        let parts = self.data.par_chunks_mut(4 * (self.width + PADDING) * size).enumerate().with_max_len(1);
        parts.for_each(|(i, to)| transform_rows(level, image, i * size, scale, to));
    }
}

impl Image for &Bands {
    fn size(&self) -> (usize, usize) {
        (self.width, self.height)
    }

    #[inline(always)]
    fn read(&self, y: usize, to: &mut [f32]) {
        to.copy_from_slice(&self.row(y)[0][..to.len()]);
    }
}

dispatch!(fn transform_rows[I: Image](image: I, first: usize, scale: &AdmScale, to: &mut [f32]) -> ()
    = process[I]);

/// Returns the place of row or column `i - 1` after mirroring: beyond the first one lies the second, beyond the last one
/// the last.
#[inline(always)]
fn mirror(i: usize, n: usize) -> usize {
    match i {
        0 => 1,
        i if i > n => 2 * n - i,
        i => i - 1,
    }
}

/// Writes the bands from row `first` on.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process<V: Lanes, I: Image>(image: I, first: usize, scale: &AdmScale, to: &mut [f32]) {
    let (width, height) = image.size();
    let n = scale.width;
    let (halo_rows, columns) = (scale.halo_rows(), scale.halo_columns());
    // The rows that were read, by number modulo 4.
    let mut ring = [const { vec![] }; 4];
    ring.iter_mut().for_each(|row: &mut Vec<f32>| row.resize(width, 0.0));
    // The rows after the vertical filter, from column -1 on.
    let [mut low, mut high] = [vec![0.0; 2 * n + 2], vec![0.0; 2 * n + 2]];
    let mut next = (2 * first).saturating_sub(1);
    for (y, to) in (first..).zip(to.chunks_exact_mut(4 * (n + PADDING))) {
        while next < height.min(2 * y + 3) {
            image.read(next, &mut ring[next % 4]);
            next += 1;
        }
        let row = |k: usize| &ring[mirror(2 * y + k, height) % 4][..];
        let taps = [row(0), row(1), row(2), row(3)];
        let (a, to) = to.split_at_mut(n + PADDING);
        down(taps, &LOW_PASS, &mut low, width);
        across(&low, &LOW_PASS, &mut a[..n]);
        if !halo_rows.contains(&y) {
            continue;
        }
        down(taps, &HIGH_PASS, &mut high, width);
        let (h, to) = to.split_at_mut(n + PADDING);
        let (v, d) = to.split_at_mut(n + PADDING);
        across(&high[2 * columns.start..], &LOW_PASS, &mut h[columns.clone()]);
        across(&low[2 * columns.start..], &HIGH_PASS, &mut v[columns.clone()]);
        across(&high[2 * columns.start..], &HIGH_PASS, &mut d[columns.clone()]);
    }
}

/// Applies the vertical filter to four rows. The result begins with column -1.
#[inline(always)]
fn down(rows: [&[f32]; 4], filter: &[f32; 4], to: &mut [f32], width: usize) {
    weigh(
        &rows[0][..width],
        &rows[1][..width],
        &rows[2][..width],
        &rows[3][..width],
        filter,
        &mut to[1..=width],
    );
    for i in [0, width + 1, width + 2] {
        if i < to.len() {
            to[i] = to[1 + mirror(i, width)];
        }
    }
}

#[inline(always)]
fn weigh(a: &[f32], b: &[f32], c: &[f32], d: &[f32], filter: &[f32; 4], to: &mut [f32]) {
    for x in 0..to.len() {
        to[x] = filter[0] * a[x] + filter[1] * b[x] + filter[2] * c[x] + filter[3] * d[x];
    }
}

/// Applies the horizontal filter to a row that begins with column -1 of the first result.
#[inline(always)]
fn across(row: &[f32], filter: &[f32; 4], to: &mut [f32]) {
    let pairs = &row.as_chunks::<2>().0[..=to.len()];
    for x in 0..to.len() {
        let ([a, b], [c, d]) = (pairs[x], pairs[x + 1]);
        to[x] = filter[0] * a + filter[1] * b + filter[2] * c + filter[3] * d;
    }
}
