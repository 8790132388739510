// SPDX-License-Identifier: MPL-2.0

//! Windows of the damage map.

use rayon::prelude::*;

use super::metric::{Metric, Pictures, Setup, typed};
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Plane, Sample};
use crate::metrics;
use crate::metrics::damage::{CELL, DamageSums, DamageWork, MARGIN, Window, window};

/// Width and height of the parts whose sums windows share: the largest ones of which each window has a whole number.
const PART: usize = MARGIN;

/// Sums of both samples, of their squares and of their products.
type Sums = ([u64; 2], [u64; 3]);

/// Computes the windows of two pictures of one size. Runs in the current rayon pool.
fn windows<T: Sample>(bits: u32, reference: Plane<'_, T>, distorted: Plane<'_, T>) -> DamageSums {
    let (width, height) = (reference.width(), reference.height());
    let rows = (0..height.div_ceil(PART)).into_par_iter();
    let parts: Vec<_> = rows.map(|row| row_of_parts([reference, distorted], row)).collect();
    let cells = |length: usize| 0..length.div_ceil(CELL);
    let places = cells(height).flat_map(|y| cells(width).map(move |x| (x, y)));
    let window = |(x, y)| {
        let (columns, rows) = (window(x, width), window(y, height));
        let mut sums = Sums::default();
        for row in &parts[rows.start / PART..rows.end.div_ceil(PART)] {
            row[columns.start / PART..columns.end.div_ceil(PART)]
                .iter()
                .for_each(|part| add(&mut sums, part));
        }
        Window::new(bits, (columns.len() * rows.len()) as u64, sums.0, sums.1)
    };
    places.map(window).collect()
}

fn row_of_parts<T: Sample>([reference, distorted]: [Plane<'_, T>; 2], row: usize) -> Vec<Sums> {
    let mut parts = vec![Sums::default(); reference.width().div_ceil(PART)];
    for y in row * PART..reference.height().min((row + 1) * PART) {
        let samples = reference.row(y).chunks(PART).zip(distorted.row(y).chunks(PART));
        for (part, (r, d)) in parts.iter_mut().zip(samples) {
            for (r, d) in r.iter().zip(d.iter()) {
                let [r, d] = [r, d].map(|sample| u64::from(<T as Into<u32>>::into(sample)));
                add(part, &([r, d], [r * r, d * d, r * d]));
            }
        }
    }
    parts
}

fn add((of_each, of_products): &mut Sums, (each, products): &Sums) {
    of_each.iter_mut().zip(each).for_each(|(sum, each)| *sum += each);
    of_products.iter_mut().zip(products).for_each(|(sum, product)| *sum += product);
}

/// The damage map.
pub struct Damage;

impl Metric for Damage {
    type Of = metrics::damage::Damage;

    fn prepare(_work: &DamageWork, _setup: &Setup) -> Result<Self, BackendError> {
        Ok(Self)
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<DamageSums>> {
        let bits = pictures.depth.bits();
        let sums = typed!(PlaneGroup: &pictures.luma, |reference, distorted| {
            distorted.iter().map(|distorted| windows(bits, *reference, *distorted)).collect()
        });
        Some(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::tests::{Picture, content};

    fn found([reference, distorted]: &[Picture; 2]) -> DamageSums {
        let bits = reference.depth.bits();
        match bits {
            8 => windows(bits, reference.bytes().plane(), distorted.bytes().plane()),
            _ => windows(bits, reference.words().plane(), distorted.words().plane()),
        }
    }

    #[test]
    fn windows_are_what_they_are_said_to_be() {
        for (i, (width, height)) in [(16, 16), (17, 40), (73, 21), (128, 99), (3, 1)].into_iter().enumerate()
        {
            let bits = [8, 10, 12, 16][i % 4];
            let pair = content(i, width, height, bits);
            let samples = pair.each_ref().map(|picture| picture.samples());
            let mut expected = vec![];
            for (row, column) in
                (0..height.div_ceil(16)).flat_map(|row| (0..width.div_ceil(16)).map(move |c| (row, c)))
            {
                let near = |at: usize, cell: usize| at + 8 >= 16 * cell && at < 16 * cell + 24;
                let at: Vec<_> = (0..width * height)
                    .filter(|at| near(at % width, column) && near(at / width, row))
                    .map(|at| [i64::from(samples[0][at]), i64::from(samples[1][at])])
                    .collect();
                let n = at.len() as i64;
                let covariance = |a: usize, b: usize| {
                    let sum = |of: &dyn Fn(&[i64; 2]) -> i64| at.iter().map(of).sum::<i64>();
                    let scale = 1 << (32 - 2 * bits);
                    scale * (n * sum(&|s| s[a] * s[b]) - sum(&|s| s[a]) * sum(&|s| s[b])) / (n * n)
                };
                expected.push(Window {
                    reference: covariance(0, 0) as u32,
                    distorted: covariance(1, 1) as u32,
                    covariance: covariance(0, 1) as i32,
                });
            }
            assert_eq!(found(&pair), expected, "{width}x{height} {bits} bits");
        }
    }

    #[test]
    fn stripes_of_one_sample_that_were_flattened_are_damage() {
        for bits in [8, 10] {
            let unit = 1 << (bits - 8);
            let stripes = Picture::new(64, 48, bits, |x, _| if x % 2 == 0 { 96 * unit } else { 160 * unit });
            let flat = Picture::new(64, 48, bits, |_, _| 128 * unit);
            let losses: Vec<_> = found(&[stripes, flat]).iter().map(Window::loss).collect();
            assert!(losses.len() == 12 && losses.iter().all(|loss| *loss > 0.8), "{losses:?}");
        }
    }

    #[test]
    fn the_largest_samples_do_not_overflow() {
        for bits in [8, 16] {
            let half =
                |first| Picture::new(32, 32, bits, move |x, _| if (x < 16) == first { 0xffff } else { 0 });
            for window in found(&[half(true), half(false)]) {
                assert!(window.reference > 1 << 29 && window.covariance < -(1 << 29), "{window:?}");
            }
        }
    }
}
