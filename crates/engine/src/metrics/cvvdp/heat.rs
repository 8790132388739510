// SPDX-License-Identifier: MPL-2.0

//! The heat map: the visible differences of all bands and channels at each place.
//!
//! A sample of a level has a strength, the norm of the differences of its channels. Backends sum the strengths of each
//! level in cells that cover as much of the picture as those of the damage map, or in the samples themselves where these
//! cover more. [`map`] combines the levels as ColorVideoVDP does.

use std::sync::Arc;

use super::float::smaller;
use super::tables::sizes;
use super::{CvvdpSums, CvvdpWork, jod};
use crate::frame::Geometry;
use crate::metrics::damage::CELL;

/// The first level whose samples are as far from each other as cells.
const COARSE: usize = CELL.ilog2() as usize;
/// Units of the sums in a strength of 1.
const UNIT: f32 = 65536.0;
/// The largest strength. Those of bands stay below 512.
const LARGEST: f32 = 32767.0;

/// The constants of strengths.
#[derive(Clone, Debug)]
pub struct Strength {
    /// Weights of the channels.
    pub weights: [f32; super::CHANNELS],
    /// Weights of the channels in the base band.
    pub base: [f32; super::CHANNELS],
    pub epsilon: f32,
    /// The norm of no differences.
    pub zero: f32,
}

impl Strength {
    /// Adds the difference of a channel to the fourth power of the norm.
    #[inline(always)]
    pub fn add(&self, sum: f32, difference: f32, weight: f32) -> f32 {
        let x = difference.mul_add(weight, self.epsilon);
        let square = x * x;
        square.mul_add(square, sum)
    }

    /// Computes the norm from its fourth power.
    #[inline(always)]
    pub fn norm(sum: f32) -> f32 {
        sum.sqrt().sqrt()
    }

    /// Computes the strength, in units of the sums, from the fourth power of the norm.
    #[inline(always)]
    pub fn units(&self, sum: f32) -> u32 {
        (smaller(Self::norm(sum) - self.zero, LARGEST) * UNIT) as u32
    }
}

/// Returns the width and height of a cell in samples of a level.
pub fn side(level: usize) -> usize {
    (CELL >> level).max(1)
}

/// Returns the columns and rows of cells of a level of this size.
pub fn cells(level: usize, (width, height): (usize, usize)) -> (usize, usize) {
    (width.div_ceil(side(level)), height.div_ceil(side(level)))
}

/// Returns where the sums of each level of these sizes begin, and at last where they end.
pub fn starts(sizes: impl IntoIterator<Item = (usize, usize)>) -> Vec<usize> {
    let mut starts = vec![0];
    for (level, size) in sizes.into_iter().enumerate() {
        let (columns, rows) = cells(level, size);
        starts.push(starts[level] + columns * rows);
    }
    starts
}

/// The sums of a heat map.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    levels: usize,
    /// The weight of all differences.
    weight: f64,
    sums: Arc<[u64]>,
}

impl CvvdpSums {
    /// Returns the sums of the heat map, if they were computed.
    pub fn heat(&self, work: &CvvdpWork) -> Option<Heat> {
        let (levels, weight) = (self.bands.len() + 1, work.options.weight());
        (!self.heat.is_empty()).then(|| Heat { levels, weight, sums: self.heat.clone() })
    }
}

impl Heat {
    /// Computes the visible difference of each cell, row by row: a tenth of what it takes from 10 JOD.
    pub fn map(&self, geometry: Geometry) -> Vec<f64> {
        let sizes: Vec<_> = sizes(geometry.width, geometry.height).take(self.levels).collect();
        let starts = starts(sizes.iter().copied());
        let mut map = vec![];
        for level in (0..self.levels).rev() {
            let sums = self.sums.get(starts[level]..starts[level + 1]).unwrap_or_default();
            let weight = if level == 0 || level + 1 == self.levels { 1.0 } else { 0.5 };
            let means = means(level, sizes[level], sums).map(|mean| mean * weight);
            if level + 1 < self.levels && level >= COARSE {
                map = expand(&map, sizes[level + 1], sizes[level]);
            }
            map.resize(sums.len(), 0.0);
            map.iter_mut().zip(means).for_each(|(sum, mean)| *sum += mean);
            if level == COARSE {
                map = centred(&map, sizes[level].0);
            }
        }
        map.into_iter().map(|strength| (10.0 - jod(strength * self.weight)) / 10.0).collect()
    }
}

/// Returns the mean strength of each cell.
fn means(level: usize, size: (usize, usize), sums: &[u64]) -> impl Iterator<Item = f64> {
    let ((columns, _), side) = (cells(level, size), side(level));
    let length = move |cell: usize, length: usize| side.min(length - cell * side);
    sums.iter().enumerate().map(move |(i, sum)| {
        let samples = length(i % columns, size.0) * length(i / columns, size.1);
        *sum as f64 / (f64::from(UNIT) * samples as f64)
    })
}

/// Moves values from the first sample of each cell to its centre, half the way to the next cells.
fn centred(map: &[f64], columns: usize) -> Vec<f64> {
    let rows = map.len() / columns;
    let at = |x: usize, y: usize| map[y.min(rows - 1) * columns + x.min(columns - 1)];
    let places = (0..rows).flat_map(|y| (0..columns).map(move |x| (x, y)));
    places.map(|(x, y)| (at(x, y) + at(x + 1, y) + at(x, y + 1) + at(x + 1, y + 1)) * 0.25).collect()
}

/// Expands a level to the size of the one before.
fn expand(from: &[f64], (width, height): (usize, usize), (to_width, to_height): (usize, usize)) -> Vec<f64> {
    let between = |at: &dyn Fn(usize) -> f64, n: usize, i: usize| {
        let (here, next) = (at(i / 2), at((i / 2 + 1).min(n - 1)));
        if i % 2 == 1 {
            (here + next) * 0.5
        } else {
            0.1 * at((i / 2).saturating_sub(1)) + 0.8 * here + 0.1 * next
        }
    };
    let places = |width: usize| (0..to_height).flat_map(move |y| (0..width).map(move |x| (x, y)));
    let rows: Vec<_> = places(width).map(|(x, y)| between(&|y| from[y * width + x], height, y)).collect();
    places(to_width).map(|(x, y)| between(&|x| rows[y * width + x], width, x)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::BitDepth;

    /// Of a picture with the same strength everywhere in each level, the map is that of the sum of strengths.
    #[test]
    fn equal_strengths_add_up_at_every_size() {
        for (width, height, levels) in [(4, 4, 2), (17, 33, 4), (100, 70, 6), (333, 250, 7)] {
            let geometry = Geometry { width, height, depth: BitDepth::new(8).unwrap(), chroma: None };
            let mut sums = vec![];
            for (level, size) in sizes(width, height).take(levels).enumerate() {
                let mut counts = vec![0; cells(level, size).0 * cells(level, size).1];
                let at = |x: usize, y: usize| y / side(level) * cells(level, size).0 + x / side(level);
                (0..size.1).for_each(|y| (0..size.0).for_each(|x| counts[at(x, y)] += 3 * UNIT as u64));
                sums.extend(counts);
            }
            let map = Heat { levels, weight: 1.0, sums: sums.into() }.map(geometry);
            assert_eq!(map.len(), width.div_ceil(16) * height.div_ceil(16));
            let expected = (10.0 - jod(6.0 + 1.5 * (levels - 2) as f64)) / 10.0;
            assert!(map.iter().all(|value| (value - expected).abs() < 1e-9), "{width}x{height}: {map:?}");
        }
    }
}
