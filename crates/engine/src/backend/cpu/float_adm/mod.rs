// SPDX-License-Identifier: MPL-2.0

//! ADM in floating point. Each scale is transformed to planes of its four bands, and then summed up.
//!
//! The order of all additions is that of the definition: terms are computed for whole rows by vectors, and added from the
//! left to the right. Rows are independent until their sums are added, so they are divided among threads.

mod detail;
#[cfg(test)]
mod naive;
mod transform;

use std::ops::Range;

use rayon::prelude::*;

use super::image::Centred;
use super::metric::{Metric, Pictures, Setup, typed};
use super::plane::{Plane, Sample};
use super::simd::Level;
use crate::backend::BackendError;
use crate::frame::{BitDepth, Geometry};
use crate::metrics;
use crate::metrics::adm::{AdmScale, scales};
use crate::metrics::float_adm::{BandSums, FloatAdmPass, FloatAdmPassSums, FloatAdmSums, FloatAdmWork};
use detail::{Masking, RowSums, mask_rows, reference_rows};
use transform::Bands;

/// Fewest rows of a part. Parts compute a row of their neighbours on each side.
const MIN_ROWS: usize = 8;

/// ADM of frames of one size, with the bands of all scales, those of the reference first.
pub struct FloatAdm {
    work: FloatAdmWork,
    depth: BitDepth,
    scales: [AdmScale; 4],
    bands: [Vec<Bands>; 4],
}

impl FloatAdm {
    /// Prepares for frames of a size for which it is defined, with up to `renditions` distorted pictures for each
    /// reference.
    pub fn new(work: &FloatAdmWork, geometry: Geometry, renditions: usize) -> Self {
        let scales = scales(geometry.width, geometry.height);
        let bands = |scale: &AdmScale| (0..1 + renditions).map(|_| Bands::new(scale)).collect();
        Self { work: work.clone(), depth: geometry.depth, bands: scales.each_ref().map(bands), scales }
    }

    /// Computes the sums of each distorted luma plane. All planes must have the size given to [`FloatAdm::new`], and there
    /// must be no more of them than given there. `parts`: how many parts of a picture may run in parallel, in the current
    /// rayon pool.
    pub fn compute<T: Sample>(
        &mut self,
        level: Level,
        parts: usize,
        reference: Plane<T>,
        distorted: &[Plane<T>],
    ) -> Vec<FloatAdmSums> {
        let planes = [&[reference], distorted].concat();
        let luma: Vec<_> = planes.iter().map(|plane| Centred::new(*plane, self.depth.unit())).collect();
        let mut done: &[Bands] = &[];
        for (scale, bands) in self.scales.iter().zip(&mut self.bands) {
            let pictures = bands[..planes.len()].par_iter_mut().enumerate();
            pictures.for_each(|(i, bands)| match done.get(i) {
                None => bands.fill(level, parts, scale, luma[i]),
                Some(above) => bands.fill(level, parts, scale, above),
            });
            done = bands;
        }
        let passes = self.work.passes.iter();
        let of_reference: Vec<_> = passes.map(|pass| self.of_reference(level, parts, pass)).collect();
        let sums = |picture: usize| {
            let pass = |(pass, reference): (&FloatAdmPass, &[BandSums; 4])| {
                self.of_pass(level, parts, pass, *reference, picture)
            };
            self.work.passes.iter().zip(&of_reference).map(pass).collect()
        };
        (1..planes.len()).into_par_iter().map(sums).collect()
    }

    /// Computes the sums of the reference.
    fn of_reference(&self, level: Level, parts: usize, pass: &FloatAdmPass) -> [BandSums; 4] {
        std::array::from_fn(|s| {
            let (scale, bands) = (&self.scales[s], &self.bands[s][0]);
            let rows = in_parts(scale.rows.clone(), parts, |rows| {
                reference_rows(level, rows, scale, bands, pass, weights(pass, s))
            });
            total(rows.into_iter())
        })
    }

    /// Computes the sums of a distorted picture.
    fn of_pass(
        &self,
        level: Level,
        parts: usize,
        pass: &FloatAdmPass,
        reference: [BandSums; 4],
        picture: usize,
    ) -> FloatAdmPassSums {
        let mut sums =
            FloatAdmPassSums { reference, additive: pass.aim.then_some([[0.0; 3]; 4]), ..Default::default() };
        for (s, scale) in self.scales.iter().enumerate() {
            let masking = Masking {
                scale,
                reference: &self.bands[s][0],
                distorted: &self.bands[s][picture],
                pass,
                weights: weights(pass, s),
            };
            let rows: Vec<RowSums> =
                in_parts(scale.rows.clone(), parts, |rows| mask_rows(level, rows, &masking));
            sums.restored[s] = total(rows.iter().map(|row| row[0]));
            if let Some(additive) = &mut sums.additive {
                additive[s] = total(rows.iter().map(|row| row[1]));
            }
        }
        sums
    }
}

/// Returns the weights of the bands h, v and d.
fn weights(pass: &FloatAdmPass, scale: usize) -> [f32; 3] {
    let [hv, d] = pass.weights[scale];
    [hv, hv, d]
}

/// Computes something for each row, in parts that may run in parallel.
fn in_parts<T: Send>(
    rows: Range<usize>,
    parts: usize,
    part: impl Fn(Range<usize>) -> Vec<T> + Sync,
) -> Vec<T> {
    let size = rows.len().div_ceil(parts.max(1)).max(MIN_ROWS);
    let end = rows.end;
    let starts: Vec<_> = rows.step_by(size).collect();
    let each = starts.into_par_iter().with_max_len(1).map(|start| part(start..end.min(start + size)));
    each.collect::<Vec<_>>().into_iter().flatten().collect()
}

/// Adds the sums of rows from the top to the bottom.
fn total(rows: impl Iterator<Item = BandSums>) -> BandSums {
    rows.fold([0.0; 3], |sums, row| std::array::from_fn(|band| sums[band] + row[band]))
}

impl Metric for FloatAdm {
    type Of = metrics::float_adm::FloatAdm;

    fn prepare(work: &FloatAdmWork, setup: &Setup) -> Result<Self, BackendError> {
        Ok(Self::new(work, setup.geometry, setup.renditions))
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<FloatAdmSums>> {
        Some(typed!(PlaneGroup: &pictures.luma, |r, d| {
            FloatAdm::compute(self, pictures.level, pictures.bands, *r, d)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::tests::{Picture, content, group, planes};
    use crate::metrics::float_adm::FloatAdmOptions;

    fn work(options: &[FloatAdmOptions]) -> FloatAdmWork {
        let passes = options.iter().enumerate().map(|(i, options)| options.pass(i % 3 != 1));
        FloatAdmWork { passes: passes.collect() }
    }

    /// Returns passes with all options that pixel work depends on, besides the exponent.
    fn several() -> FloatAdmWork {
        let default = FloatAdmOptions::default();
        work(&[
            default,
            FloatAdmOptions { enhn_gain_limit: 1.0, ..default },
            FloatAdmOptions { enhn_gain_limit: 1.2, csf_mode: 2, f2: [-1.0, 0.0, 0.5, -0.5], ..default },
            FloatAdmOptions { bypass_cm: 1, csf_mode: 1, ..default },
        ])
    }

    fn run(level: Level, pictures: &[Picture], work: &FloatAdmWork, parts: usize) -> Vec<FloatAdmSums> {
        let Picture { width, height, depth, .. } = pictures[0];
        let mut adm = FloatAdm::new(work, Geometry { width, height, depth, chroma: None }, 3);
        planes!(pictures, |p| adm.compute(level, parts, p[0], &p[1..]))
    }

    fn check(pair: &[Picture; 2], work: &FloatAdmWork, parts: usize) {
        let pictures = group(pair);
        let samples = pictures.each_ref().map(Picture::samples);
        let (width, bits) = (pair[0].width, pair[0].depth.bits());
        let expected = [1, 2, 3].map(|i| naive::sums(work, &samples[0], &samples[i], width, bits));
        for level in Level::available() {
            for n in 1..=expected.len() {
                let found = run(level, &pictures[..=n], work, parts);
                assert_eq!(found, expected[..n], "{level:?} {}x{} {parts}", width, pair[0].height);
            }
        }
    }

    #[test]
    fn equals_the_definition_at_every_size() {
        let work = work(&[FloatAdmOptions::default()]);
        let sizes = (17..=71).flat_map(|n| [(n, 17 + n % 7), (17 + n % 5, n)]);
        for (i, (width, height)) in sizes.chain([(175, 34), (532, 33), (40, 301)]).enumerate() {
            check(&content(i, width, height, [8, 10, 12, 16][i / 2 % 4]), &work, 1 + i % 5);
        }
    }

    #[test]
    fn equals_the_definition_for_all_content_depths_and_passes() {
        for i in 0..24 {
            check(&content(i, 77, 50, 8 + i as u32 % 9), &several(), 1 + i % 3);
        }
        // Coefficients of a checkerboard are differences of nearly nothing.
        let board = |odd: u32| Picture::new(96, 80, 8, move |x, y| if (x + y) % 2 == 0 { 127 } else { odd });
        check(&[board(129), board(130)], &several(), 2);
    }

    #[test]
    fn equals_the_definition_for_other_exponents() {
        let option = |p_norm| FloatAdmOptions { p_norm, ..Default::default() };
        let work = work(&[option(1.0), option(2.5), option(20.0)]);
        for i in 0..8 {
            check(&content(i, 60, 45, 8), &work, 1);
        }
    }

    #[test]
    fn a_frame_does_not_depend_on_earlier_ones() {
        let [first, second] = [content(3, 64, 48, 8), content(6, 64, 48, 8)];
        let Picture { width, height, depth, .. } = first[0];
        let geometry = Geometry { width, height, depth, chroma: None };
        for level in Level::available() {
            let mut adm = FloatAdm::new(&several(), geometry, 2);
            planes!(&group(&first)[..3], |p| adm.compute(level, 3, p[0], &p[1..]));
            let again = planes!(&second, |p| adm.compute(level, 2, p[0], &p[1..]));
            assert_eq!(again, run(level, &second, &several(), 1));
        }
    }
}
