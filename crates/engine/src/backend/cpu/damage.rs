// SPDX-License-Identifier: MPL-2.0

//! Windows of the damage map, a row of cells at a time.

use rayon::prelude::*;

use super::metric::{Metric, Pictures, Setup};
use crate::backend::cpu::plane::Plane;
use crate::backend::{BackendError, Halves};
use crate::metrics;
use crate::metrics::damage::{DamageSums, DamageWork, MARGIN, STEP, Window, window};

/// Width of the parts whose sums windows share: the largest width of which each window has a whole number.
const PART: usize = MARGIN;

/// Sums of both samples, of their squares and of their products.
type Sums = ([u64; 2], [u64; 3]);

/// Computes the windows of two pictures of one size at scale 1 of VIF. Runs in the current rayon pool.
pub fn windows(planes: [Plane<'_, u16>; 2]) -> DamageSums {
    let rows = planes[0].height().div_ceil(STEP);
    (0..rows).into_par_iter().flat_map_iter(|row| row_of_windows(planes, row)).collect()
}

fn row_of_windows([reference, distorted]: [Plane<'_, u16>; 2], row: usize) -> Vec<Window> {
    let (width, rows) = (reference.width(), window(row, reference.height()));
    let mut parts = vec![Sums::default(); width.div_ceil(PART)];
    for y in rows.clone() {
        let samples = reference.row(y).chunks(PART).zip(distorted.row(y).chunks(PART));
        for (part, (r, d)) in parts.iter_mut().zip(samples) {
            for (r, d) in r.iter().zip(d.iter()) {
                let (r, d) = (u64::from(r), u64::from(d));
                add(part, &([r, d], [r * r, d * d, r * d]));
            }
        }
    }
    let window = |cell| {
        let columns = window(cell, width);
        let mut sums = Sums::default();
        for part in &parts[columns.start / PART..columns.end.div_ceil(PART)] {
            add(&mut sums, part);
        }
        Window::new((columns.len() * rows.len()) as u64, sums.0, sums.1)
    };
    (0..width.div_ceil(STEP)).map(window).collect()
}

fn add(to: &mut Sums, from: &Sums) {
    (0..2).for_each(|i| to.0[i] += from.0[i]);
    (0..3).for_each(|i| to.1[i] += from.1[i]);
}

/// The damage map, computed from VIF's half-size pictures.
pub struct Damage;

impl Metric for Damage {
    type Of = metrics::damage::Damage;
    const HALVES: Halves = Halves::Needed;

    fn prepare(_work: &DamageWork, _setup: &Setup) -> Result<Self, BackendError> {
        Ok(Self)
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<DamageSums>> {
        let (reference, distorted) = pictures.halves.split_first()?;
        Some(distorted.iter().map(|distorted| windows([*reference, *distorted])).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::tests::content;

    #[test]
    fn windows_are_what_they_are_said_to_be() {
        for (i, (width, height)) in [(8, 8), (9, 20), (37, 11), (64, 50), (3, 1)].into_iter().enumerate() {
            let pair = content(i, width, height, 16);
            let planes = pair.each_ref().map(|picture| picture.words());
            let samples = pair.each_ref().map(|picture| picture.samples());
            let found = windows(planes.each_ref().map(|plane| plane.plane()));
            let mut expected = vec![];
            for (row, column) in
                (0..height.div_ceil(8)).flat_map(|row| (0..width.div_ceil(8)).map(move |c| (row, c)))
            {
                let near = |at: usize, cell: usize| at + 4 >= 8 * cell && at < 8 * cell + 12;
                let at: Vec<_> = (0..width * height)
                    .filter(|at| near(at % width, column) && near(at / width, row))
                    .map(|at| [i64::from(samples[0][at]), i64::from(samples[1][at])])
                    .collect();
                let n = at.len() as i64;
                let covariance = |a: usize, b: usize| {
                    let sum = |of: &dyn Fn(&[i64; 2]) -> i64| at.iter().map(of).sum::<i64>();
                    (n * sum(&|s| s[a] * s[b]) - sum(&|s| s[a]) * sum(&|s| s[b])) / (n * n)
                };
                expected.push(Window {
                    reference: covariance(0, 0) as u32,
                    distorted: covariance(1, 1) as u32,
                    covariance: covariance(0, 1) as i32,
                });
            }
            assert_eq!(found, expected, "{width}x{height}");
        }
    }
}
