// SPDX-License-Identifier: MPL-2.0

//! CAMBI: finds flat areas on the 10-bit picture, filters it at five scales, and counts the pixels of nearly equal
//! value around every flat pixel of each scale.

mod contrast;
mod picture;

use crate::backend::BackendError;
use crate::backend::cpu::metric::{Metric, Pictures, Setup, typed};
use crate::backend::cpu::plane::{Plane, Sample};
use crate::backend::cpu::simd::Level;
use crate::frame::Geometry;
use crate::metrics::cambi::{
    CambiAnalysis, CambiError, CambiPicture, CambiPlan, CambiSums, CambiWork, SCALES, ScaleSums, nearest,
};
use crate::metrics::{self, Misfit};
use contrast::{Counting, Tile};
use picture::{Codes, Input, Pyramid};
use rayon::prelude::*;

/// CAMBI of frames of one geometry, with all its memory.
pub struct Analysis {
    bits: u32,
    plan: CambiPlan,
    counting: Counting,
    distorted: Side,
    source: Option<Side>,
}

impl Analysis {
    /// Prepares the analysis for frames of this geometry.
    pub fn new(analysis: &CambiAnalysis, geometry: Geometry) -> Result<Self, CambiError> {
        let plan = analysis.plan(geometry)?;
        let side = |picture: &CambiPicture| Side::new(picture, geometry);
        Ok(Self {
            bits: geometry.depth.bits(),
            counting: Counting::new(&plan),
            distorted: side(&plan.distorted),
            source: plan.source.as_ref().map(side),
            plan,
        })
    }

    /// Computes the sums of each distorted luma plane with the reference's, all of the prepared geometry. Runs in the
    /// current rayon pool. The rows of a large picture are divided into `bands` parts, at least 1.
    pub fn compute<T: Sample>(
        &mut self,
        level: Level,
        bands: usize,
        reference: Plane<'_, T>,
        distorted: &[Plane<'_, T>],
    ) -> Vec<CambiSums> {
        let Self { bits, plan, counting, distorted: side, source } = self;
        let of = |side: &mut Side, picture: &CambiPicture, plane| {
            side.compute(Run { level, bands, plan, counting, bits: *bits }, picture, plane)
        };
        let (distorted, source) = rayon::join(
            || distorted.iter().map(|plane| of(side, &plan.distorted, *plane)).collect::<Vec<_>>(),
            || source.as_mut().zip(plan.source.as_ref()).map(|(side, picture)| of(side, picture, reference)),
        );
        distorted.into_iter().map(|distorted| CambiSums { distorted, source }).collect()
    }
}

/// Settings that both pictures share.
struct Run<'a> {
    level: Level,
    bands: usize,
    plan: &'a CambiPlan,
    counting: &'a Counting,
    bits: u32,
}

/// The analysis of one picture.
struct Side {
    /// Columns and rows of the samples to use, if the picture is resized.
    picks: Option<[Vec<u32>; 2]>,
    pyramid: Pyramid,
    tiles: Vec<Tile>,
    /// Contrast values of a scale of which only the largest count.
    values: Vec<i32>,
}

impl Side {
    fn new(picture: &CambiPicture, geometry: Geometry) -> Self {
        let Geometry { width, height, .. } = geometry;
        let resized = (picture.width, picture.height) != (width, height);
        Self {
            picks: resized.then(|| [nearest(width, picture.width), nearest(height, picture.height)]),
            pyramid: Pyramid::new(&picture.scales),
            tiles: vec![],
            values: vec![],
        }
    }

    fn compute<T: Sample>(
        &mut self,
        Run { level, bands, plan, counting, bits }: Run<'_>,
        picture: &CambiPicture,
        plane: Plane<'_, T>,
    ) -> ScaleSums {
        let Self { picks, pyramid, tiles, values } = self;
        let input = Input {
            plane,
            bits,
            picks: picks.as_ref(),
            width: picture.width,
            height: picture.height,
            anti_dither: plan.anti_dither,
            halved: plan.halved,
            flat_limit: picture.flat_limit,
        };
        let codes = Codes { lowest: counting.lowest, none: counting.none() };
        pyramid.fill(level, &input, codes, bands);
        Tile::cut(tiles, picture, bands);
        tiles.par_iter_mut().with_max_len(1).for_each_init(
            || counting.scratch(picture.window),
            |scratch, tile| {
                let level_codes = &pyramid.codes[tile.scale];
                tile.compute(level, counting, level_codes, picture.window, scratch);
            },
        );
        let mut sums = [0; SCALES];
        for (scale, sum) in sums.iter_mut().enumerate() {
            let tiles = || tiles.iter().filter(move |tile| tile.scale == scale);
            let top = picture.scales[scale].top;
            if tiles().map(|tile| tile.nonzero).sum::<usize>() <= top {
                *sum = tiles().map(|tile| tile.total).sum();
            } else {
                values.clear();
                tiles().for_each(|tile| values.extend_from_slice(&tile.values));
                *sum = contrast::largest(values, top);
            }
        }
        sums
    }
}

/// The analyses run one after another. They share nothing but the pictures.
pub struct Cambi(Vec<Analysis>);

impl Metric for Cambi {
    type Of = metrics::cambi::Cambi;

    fn prepare(work: &CambiWork, setup: &Setup) -> Result<Self, BackendError> {
        let analysis = |analysis| Analysis::new(analysis, setup.geometry).map_err(Misfit::from);
        Ok(Self(work.analyses.iter().map(analysis).collect::<Result<_, _>>()?))
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<Vec<CambiSums>>> {
        let mut sums = vec![vec![]; pictures.distorted()];
        for analysis in &mut self.0 {
            let found = typed!(PlaneGroup: &pictures.luma, |r, d| {
                analysis.compute(pictures.level, pictures.bands, *r, d)
            });
            sums.iter_mut().zip(found).for_each(|(sums, found)| sums.push(found));
        }
        Some(sums)
    }
}

#[cfg(test)]
mod naive;

#[cfg(test)]
mod tests {
    use super::naive::naive;
    use super::*;
    use crate::backend::cpu::tests::{Picture, planes};
    use crate::metrics::cambi::{CambiOptions, CambiScorer, Eotf};
    use crate::random::noise;

    /// Returns ramps with steps, flat areas, grain, some noise, and steps up to the largest sample.
    fn picture(seed: usize, width: usize, height: usize, bits: u32) -> Picture {
        Picture::new(width, height, bits, |x, y| {
            let (x, y) = (x + 13 * seed, y + 7 * seed);
            let value = match seed % 6 {
                0 => 100 + 4 * (x / 17) as u32 + (y / 40) as u32,
                1 => 40 * 4 + (x * x / 900 + y * y / 1100) as u32 % 600,
                2 => 300 + (noise(seed as u32, x / 9, y / 11) >> 29) + (noise(seed as u32, x, y) >> 31 << 2),
                3 => noise(seed as u32, x, y) >> 22,
                4 => 1019 + (x / 17 + y / 40) as u32 % 5,
                _ => 70 + (x / 9 + y / 5) as u32 % 40 * 4,
            };
            if bits >= 10 {
                value << (bits - 10) | noise(seed as u32 + 1, x, y) >> 30
            } else {
                value >> (10 - bits)
            }
        })
    }

    fn check(options: CambiOptions, seed: usize, width: usize, height: usize, bits: u32) {
        let [a, b] = [picture(seed, width, height, bits), picture(seed + 1, width, height, bits)];
        let geometry = Geometry { width, height, depth: a.depth, chroma: None };
        let analysis = options.analysis();
        let plan = analysis.plan(geometry).unwrap();
        let expected = CambiSums {
            distorted: naive(&plan, &plan.distorted, &b),
            source: plan.source.as_ref().map(|source| naive(&plan, source, &a)),
        };
        for level in Level::available() {
            let mut cambi = Analysis::new(&analysis, geometry).unwrap();
            for bands in [1, 5, 2] {
                // No data of an earlier frame or picture may remain.
                for pictures in [&[a.clone(), b.clone()][..], &[a.clone(), b.clone(), b.clone()]] {
                    let found = planes!(pictures, |p| cambi.compute(level, bands, p[0], &p[1..]));
                    let expected = vec![expected; pictures.len() - 1];
                    assert_eq!(
                        found, expected,
                        "{level:?} {bands} {seed} {width}x{height} {bits} {options:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn equals_the_specification_at_every_size_and_depth() {
        let default = CambiOptions { full_ref: true, ..Default::default() };
        let v1 = CambiOptions { vis_lum_threshold: 0.06, ..default };
        for (i, width) in (216..=249).enumerate() {
            let bits = [8, 10, 9, 12, 16][i % 5];
            check(if i % 2 == 0 { default } else { v1 }, i, width, 23 + i % 9, bits);
        }
        for (i, (width, height)) in [(33, 217), (219, 33), (257, 130), (300, 66)].into_iter().enumerate() {
            check(default, i, width, height, 8);
        }
    }

    #[test]
    fn equals_the_specification_with_every_option() {
        let default = CambiOptions { full_ref: true, ..Default::default() };
        let options = [
            CambiOptions { enc_bitdepth: 8, ..default },
            CambiOptions { enc_width: 230, enc_height: 90, src_width: 220, src_height: 80, ..default },
            CambiOptions { src_width: 320, src_height: 200, ..default },
            CambiOptions { window_size: 127, ..default },
            CambiOptions { topk: 0.01, ..default },
            CambiOptions { cambi_topk: 0.0001, tvi_threshold: 0.002, ..default },
            CambiOptions { max_log_contrast: 0, ..default },
            CambiOptions { max_log_contrast: 1, vis_lum_threshold: 2.0, ..default },
            CambiOptions { max_log_contrast: 3, ..default },
            CambiOptions { max_log_contrast: 4, vis_lum_threshold: 0.06, ..default },
            CambiOptions { max_log_contrast: 5, ..default },
            CambiOptions { eotf: Eotf::Pq, ..default },
        ];
        for (i, options) in options.into_iter().enumerate() {
            for (seed, bits) in [8, 10, 9, 16, 12, 10].into_iter().enumerate() {
                check(options, i + seed, 251, 91, bits);
            }
        }
    }

    /// Compares with libvmaf 3.2.0's scores of these pictures, to its six decimals.
    #[test]
    fn scores_are_those_of_libvmaf() {
        let default = CambiOptions { full_ref: true, ..Default::default() };
        let other = CambiOptions { vis_lum_threshold: 0.06, window_size: 127, topk: 0.1, ..default };
        for (bits, options, expected) in [
            (8, default, [2.767099, 3.120919, 0.0]),
            (8, other, [13.053546, 14.340021, 0.0]),
            (10, default, [14.957579, 13.606158, 1.351422]),
            (10, other, [18.510224, 18.223338, 0.286886]),
        ] {
            let picture = |which: usize| {
                Picture::new(320, 240, bits, |x, y| {
                    let rings = (x * x / (700 + 100 * which) + y * y / 900) % 5;
                    let dots = 2 * which * usize::from((3 * x + 5 * y) % 97 == 0);
                    let value = (60 + x / 12 + y / 20 + rings - dots) << (bits - 8);
                    (value + if bits > 8 { (x + y) / 90 } else { 0 }) as u32
                })
            };
            let [a, b] = [picture(0), picture(1)];
            let geometry = Geometry { width: 320, height: 240, depth: a.depth, chroma: None };
            let mut cambi = Analysis::new(&options.analysis(), geometry).unwrap();
            let sums = planes!(&[a, b], |p| cambi.compute(Level::detect(), 1, p[0], &p[1..]));
            let scores = CambiScorer::new(&options, geometry).unwrap().scores(&sums[0]);
            let found = [Some(scores.cambi), scores.source, scores.full_reference];
            assert_eq!(found.map(|score| (score.unwrap() * 1e6).round() / 1e6), expected);
        }
    }

    #[test]
    fn high_resolutions_are_halved() {
        let v1 = CambiOptions { high_res_speedup: 1080, vis_lum_threshold: 0.06, ..Default::default() };
        check(v1, 0, 1921, 1081, 8);
        check(v1, 4, 2048, 1020, 10);
    }
}
