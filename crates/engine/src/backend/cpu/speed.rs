// SPDX-License-Identifier: MPL-2.0

//! SpEED chroma: small images of the planes, and their covariances.

use rayon::prelude::*;

use super::filter::load_samples;
use super::metric::{Metric, Pictures, Setup};
use super::simd::{Lanes, Level, dispatch, each};
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Plane, PlaneGroup, Sample};
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::speed::{
    BLOCK, ChromaStatistics, Covariance, ELEMENTS, Layout, PlaneMoments, PlaneStatistics, SpeedMisfit,
    SpeedSums, SpeedWork, reflect,
};

/// Rows of the small image in a part.
const BAND: usize = 8;
/// Room for the offsets in a block, in whole vectors of any instruction set.
const OFFSETS: usize = ELEMENTS.next_multiple_of(16);

/// State for frames of one geometry.
pub struct Speed {
    layouts: Vec<Layout>,
    sigmas: Vec<f32>,
}

impl Speed {
    /// Prepares for frames of a geometry.
    pub fn new(work: &SpeedWork, geometry: Geometry) -> Result<Self, SpeedMisfit> {
        let layouts = work.scalings.iter().map(|scaling| scaling.layout(geometry));
        Ok(Self { layouts: layouts.collect::<Result<_, _>>()?, sigmas: work.sigmas.clone() })
    }

    /// Computes the statistics of Cb and of Cr, of the reference and each distorted picture. Runs in the current rayon
    /// pool.
    pub fn compute(&self, level: Level, planes: [PlaneGroup<'_>; 2]) -> Vec<SpeedSums> {
        let component = |layout: &Layout, planes: &PlaneGroup<'_>| match planes {
            PlaneGroup::U8(reference, distorted) => {
                all(level, layout, &self.sigmas, &[&[*reference], &distorted[..]].concat())
            }
            PlaneGroup::U16(reference, distorted) => {
                all(level, layout, &self.sigmas, &[&[*reference], &distorted[..]].concat())
            }
        };
        let scaling = |layout: &Layout| {
            let [u, v] = &planes;
            let (u, v) = rayon::join(|| component(layout, u), || component(layout, v));
            pairs(u).zip(pairs(v)).map(|(u, v)| ChromaStatistics([u, v])).collect()
        };
        let scalings: Vec<Vec<ChromaStatistics>> = self.layouts.par_iter().map(scaling).collect();
        let mut scalings: Vec<_> = scalings.into_iter().map(Vec::into_iter).collect();
        // Reorders from scalings to pictures.
        let picture = || scalings.iter_mut().map(Iterator::next).collect();
        std::iter::from_fn(picture).collect()
    }
}

/// Computes the statistics of each plane.
fn all<T: Sample>(
    level: Level,
    layout: &Layout,
    sigmas: &[f32],
    planes: &[Plane<'_, T>],
) -> Vec<PlaneStatistics> {
    let of_plane =
        |plane: &Plane<'_, T>| moments(level, layout, Samples { plane: *plane, unit: layout.unit });
    PlaneStatistics::of(planes.par_iter().with_max_len(1).map(of_plane).collect(), sigmas)
}

/// Pairs the statistics of the first plane, the reference's, with each of the others.
fn pairs(statistics: Vec<PlaneStatistics>) -> impl Iterator<Item = [PlaneStatistics; 2]> {
    let mut statistics = statistics.into_iter();
    let reference = statistics.next();
    statistics.filter_map(move |distorted| Some([reference.clone()?, distorted]))
}

/// A plane of numbers that are made of samples.
pub trait Numbers: Copy + Sync {
    /// Returns the numbers in a row.
    fn width(self) -> usize;

    /// Computes a number.
    fn at(self, x: usize, y: usize) -> f32;

    /// Computes `2 N` numbers of a row from column `x` on. Those after its end are meaningless.
    ///
    /// # Safety
    ///
    /// The CPU must have the instructions of `V`.
    unsafe fn some<V: Lanes>(self, x: usize, y: usize) -> [V::F; 2];
}

/// Samples of a plane in 8-bit steps, less 128.
#[derive(Clone, Copy)]
struct Samples<'a, T> {
    plane: Plane<'a, T>,
    unit: f32,
}

impl<T: Sample> Numbers for Samples<'_, T> {
    fn width(self) -> usize {
        self.plane.width()
    }

    fn at(self, x: usize, y: usize) -> f32 {
        let sample: i32 = self.plane.row(y).at(x).into();
        sample as f32 * self.unit - 128.0
    }

    #[inline(always)]
    unsafe fn some<V: Lanes>(self, x: usize, y: usize) -> [V::F; 2] {
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe {
            let (unit, middle) = (V::splat_f32(self.unit), V::splat_f32(128.0));
            let samples = V::widen_u16(load_samples::<V, T>(self.plane.row(y), x));
            each!(half in [samples[0], samples[1]] => V::sub_f32(V::mul_f32(V::to_f32(half), unit), middle))
        }
    }
}

/// Computes the moments of a plane. Runs in the current rayon pool.
pub fn moments(level: Level, layout: &Layout, numbers: impl Numbers) -> PlaneMoments {
    let image = less_local_mean(layout, &downscale(level, layout, numbers));
    let covariance = covariance(level, layout, &image, means(layout, &image));
    PlaneMoments::new(covariance, &image, layout.blocks)
}

/// Computes the small image.
fn downscale<N: Numbers>(level: Level, layout: &Layout, numbers: N) -> Vec<f32> {
    let width = layout.x.size;
    let mut image = vec![0.0; width * layout.y.size];
    image.par_chunks_mut(width * BAND).enumerate().for_each_init(Vec::new, |line, (band, rows)| {
        for (i, row) in rows.chunks_mut(width).enumerate() {
            small_row::<N>(level, layout, numbers, band * BAND + i, line, row);
        }
    });
    image
}

dispatch!(fn small_row[N: Numbers](layout: &Layout, numbers: N, y: usize, line: &mut Vec<f32>,
    row: &mut [f32]) -> () = process[N]);

/// Computes row `y` of the small image. `line` is working memory for the vertical filter.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process<V: Lanes, N: Numbers>(
    layout: &Layout,
    numbers: N,
    y: usize,
    line: &mut Vec<f32>,
    row: &mut [f32],
) {
    let taps = &layout.low_pass[..];
    if layout.x.spread == 1 {
        let rows = &layout.y.sources[y * taps.len()..][..taps.len()];
        line.resize(numbers.width().next_multiple_of(2 * V::N), 0.0);
        // SAFETY: the CPU has the instructions, as the caller has promised, and the line has room for whole pairs of
        // vectors.
        unsafe {
            for x in (0..numbers.width()).step_by(2 * V::N) {
                let mut sums = [V::splat_f32(0.0); 2];
                for (source, tap) in rows.iter().zip(taps) {
                    let values = numbers.some::<V>(x, source.index as usize);
                    for half in 0..2 {
                        sums[half] = V::add_f32(sums[half], V::mul_f32(V::splat_f32(*tap), values[half]));
                    }
                }
                for half in 0..2 {
                    V::store_f32(line[x + half * V::N..].as_mut_ptr(), sums[half]);
                }
            }
        }
        for (out, columns) in row.iter_mut().zip(layout.x.sources.chunks_exact(taps.len())) {
            *out = columns
                .iter()
                .zip(taps)
                .fold(0.0, |sum, (column, tap)| sum + tap * line[column.index as usize]);
        }
    } else {
        let rows = layout.y.sources[y * taps.len() * layout.y.spread..].chunks_exact(layout.y.spread);
        line.clear();
        line.resize(row.len() * taps.len(), 0.0);
        for (rows, tap) in rows.zip(taps) {
            for (sum, columns) in line.iter_mut().zip(layout.x.sources.chunks_exact(layout.x.spread)) {
                let (mut value, mut total) = (0f32, 0f32);
                for y in rows {
                    for x in columns {
                        let weight = y.weight * x.weight;
                        value += numbers.at(x.index as usize, y.index as usize) * weight;
                        total += weight;
                    }
                }
                *sum += tap * if layout.normalised { value / total } else { value };
            }
        }
        for (out, line) in row.iter_mut().zip(line.chunks_exact(taps.len())) {
            *out = line.iter().zip(taps).fold(0.0, |sum, (value, tap)| sum + tap * value);
        }
    }
}

/// Computes the used part of a small image less its local mean.
fn less_local_mean(layout: &Layout, image: &[f32]) -> Vec<f32> {
    let (width, height) = (layout.x.size, layout.y.size);
    let (used_width, used_height) = layout.used();
    let taps = &layout.local_mean;
    let at = |i: usize, tap: usize, n| reflect((i + tap) as isize - (taps.len() / 2) as isize, n);
    let mut result = Vec::with_capacity(used_width * used_height);
    let mut line = vec![0f32; width];
    for y in 0..used_height {
        line.fill(0.0);
        for (k, tap) in taps.iter().enumerate() {
            for (sum, value) in line.iter_mut().zip(&image[at(y, k, height) * width..]) {
                *sum += tap * value;
            }
        }
        result.extend((0..used_width).map(|x| {
            let mean = taps.iter().enumerate().fold(0.0, |sum, (k, tap)| sum + tap * line[at(x, k, width)]);
            image[y * width + x] - mean
        }));
    }
    result
}

/// Computes the mean sample at each offset in a block, over all positions of the window.
fn means(layout: &Layout, image: &[f32]) -> [f32; ELEMENTS] {
    let ((width, height), (stride, _)) = (layout.window(), layout.used());
    let mut sums = [0f32; ELEMENTS];
    for y in 0..height {
        for x in 0..width {
            for r in 0..BLOCK {
                let samples = &image[(y + r) * stride + x..][..BLOCK];
                for c in 0..BLOCK {
                    sums[r * BLOCK + c] += samples[c];
                }
            }
        }
    }
    sums.map(|sum| sum / (width * height) as f32)
}

dispatch!(fn covariance[](layout: &Layout, image: &[f32], means: [f32; ELEMENTS]) -> Covariance = covariances[]);

/// Sums of the products of deviations at each pair of offsets. Only those up to the diagonal are used.
type Products = [[f64; OFFSETS]; OFFSETS];

/// Computes the covariances of the samples of a block, summed in double precision in raster order.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn covariances<V: Lanes>(layout: &Layout, image: &[f32], means: [f32; ELEMENTS]) -> Covariance {
    let ((width, height), (stride, _)) = (layout.window(), layout.used());
    let mut sums: Products = [[0.0; OFFSETS]; OFFSETS];
    let mut deviations = vec![[0.0; OFFSETS]; width];
    for y in 0..height {
        for (x, deviations) in deviations.iter_mut().enumerate() {
            for r in 0..BLOCK {
                let samples = &image[(y + r) * stride + x..][..BLOCK];
                for c in 0..BLOCK {
                    let e = r * BLOCK + c;
                    deviations[e] = f64::from(samples[c]) - f64::from(means[e]);
                }
            }
        }
        let mut x = 0;
        while x < ELEMENTS {
            // SAFETY: the CPU has the instructions, as the caller has promised. Rows and columns beyond the last
            // offset are zero.
            x += unsafe {
                match x / V::N {
                    0 => products::<V, 4, 1>(&deviations, x, 0, &mut sums),
                    1 => products::<V, 2, 2>(&deviations, x, 0, &mut sums),
                    2 => products::<V, 1, 3>(&deviations, x, 0, &mut sums),
                    3 => products::<V, 1, 4>(&deviations, x, 0, &mut sums),
                    _ => {
                        products::<V, 1, 4>(&deviations, x, 0, &mut sums);
                        products::<V, 1, 3>(&deviations, x, 4 * V::N, &mut sums)
                    }
                }
            };
        }
    }
    let count = (width * height) as f64;
    let mut covariance = [[0.0; ELEMENTS]; ELEMENTS];
    for x in 0..ELEMENTS {
        for y in 0..=x {
            covariance[x][y] = (sums[x][y] / count) as f32;
            covariance[y][x] = covariance[x][y];
        }
    }
    covariance
}

/// Adds a row of positions to the sums of `ROWS` offsets from `x` on with the offsets from `y` on in `VECTORS` vectors.
/// Returns `ROWS`.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. `VECTORS` vectors from offset `y` on must end before `OFFSETS`.
#[inline(always)]
unsafe fn products<V: Lanes, const ROWS: usize, const VECTORS: usize>(
    deviations: &[[f64; OFFSETS]],
    x: usize,
    y: usize,
    sums: &mut Products,
) -> usize {
    // SAFETY: the caller has promised that the CPU has the instructions and that there are this many vectors.
    unsafe {
        let mut rows = [[V::splat_f64(0.0); VECTORS]; ROWS];
        for i in 0..ROWS {
            for j in 0..VECTORS {
                rows[i][j] = V::load_f64(sums[x + i][y + j * V::N..].as_ptr());
            }
        }
        for deviations in deviations {
            for i in 0..ROWS {
                let one = V::splat_f64(deviations[x + i]);
                for j in 0..VECTORS {
                    let other = V::load_f64(deviations[y + j * V::N..].as_ptr());
                    rows[i][j] = V::add_f64(rows[i][j], V::mul_f64(one, other));
                }
            }
        }
        for i in 0..ROWS {
            for j in 0..VECTORS {
                V::store_f64(sums[x + i][y + j * V::N..].as_mut_ptr(), rows[i][j]);
            }
        }
    }
    ROWS
}

impl Metric for Speed {
    type Of = metrics::speed::Speed;

    fn prepare(work: &SpeedWork, setup: &Setup) -> Result<Self, BackendError> {
        Ok(Self::new(work, setup.geometry).map_err(metrics::Misfit::from)?)
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<SpeedSums>> {
        Some(Speed::compute(self, pictures.level, pictures.chroma.clone()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::plane::AnyPlane;
    use crate::backend::cpu::tests::{Picture, content};
    use crate::frame::BitDepth;
    use crate::metrics::options::Options;
    use crate::metrics::speed::{Method, SpeedOptions};
    use crate::random::noise;

    fn geometry(width: usize, height: usize, bits: u32) -> Geometry {
        let depth = BitDepth::new(bits).unwrap();
        Geometry { width, height, depth, chroma: Some((width, height)) }
    }

    fn layout(options: SpeedOptions, width: usize, height: usize, bits: u32) -> Layout {
        options.scaling().unwrap().layout(geometry(width, height, bits)).unwrap()
    }

    fn numbers<'a, T: Sample>(plane: Plane<'a, T>, layout: &Layout) -> Samples<'a, T> {
        Samples { plane, unit: layout.unit }
    }

    /// Returns texture with grain, which is finer in the reference.
    fn textured(component: usize, distorted: bool, width: usize, height: usize, bits: u32) -> Picture {
        Picture::new(width, height, bits, |x, y| {
            let texture = (x * x / 9 + y * 7 + x * y / 16) % (120 + 40 * component);
            let grain = noise(2 * component as u32 + u32::from(distorted), x, y);
            (texture as u32 + (grain >> if distorted { 25 } else { 27 })) << (bits - 8)
        })
    }

    /// Computes the statistics of `[Cb, Cr]`, each of the reference and the distorted picture.
    fn compute(level: Level, options: SpeedOptions, pictures: &[[Picture; 2]; 2]) -> ChromaStatistics {
        let Picture { width, height, depth, .. } = pictures[0][0];
        let work = SpeedWork { scalings: vec![options.scaling().unwrap()], sigmas: vec![options.sigma()] };
        let speed = Speed::new(&work, geometry(width, height, depth.bits())).unwrap();
        let samples = pictures.each_ref().map(|pair| pair.each_ref().map(|p| (p.bytes(), p.words())));
        let planes = samples.each_ref().map(|pair| {
            let [a, b] = pair.each_ref().map(|(bytes, words)| match depth.bits() {
                8 => AnyPlane::U8(bytes.plane()),
                _ => AnyPlane::U16(words.plane()),
            });
            PlaneGroup::new(a, [b, a]).unwrap()
        });
        let [found, itself] = speed.compute(level, planes).try_into().unwrap();
        for [reference, distorted] in itself[0].0.each_ref() {
            assert_eq!(reference, distorted);
        }
        found.into_iter().next().unwrap()
    }

    /// Compares with the numpy reference of the specification, which equals libvmaf to the last bit.
    #[test]
    fn known_scores() {
        let expected = [
            (320, 181, 8, "", [41.49763870239258, 35.05150604248047, 38.274574279785156]),
            (
                400,
                176,
                10,
                "speed_nn_floor=0.1 speed_sigma_nn=0.19 speed_weight_var_mode=5 speed_max_val=45",
                [45.0, 39.859840393066406, 44.56646728515625],
            ),
            (
                333,
                263,
                16,
                "speed_nn_floor=0.1 speed_sigma_nn=0.19 speed_weight_var_mode=5 speed_max_val=100 speed_prescale=0.8 speed_prescale_method=bilinear",
                [49.137271881103516, 51.76054382324219, 50.44890594482422],
            ),
            (
                241,
                170,
                8,
                "speed_prescale=1.5 speed_prescale_method=bicubic speed_kernelscale=1.5 speed_weight_var_mode=3",
                [53.54325866699219, 33.940677642822266, 43.741966247558594],
            ),
            (
                430,
                250,
                12,
                "speed_prescale=0.75 speed_prescale_method=lanczos4 speed_weight_var_mode=4",
                [37.984954833984375, 42.62931823730469, 40.30713653564453],
            ),
            (
                301,
                280,
                10,
                "speed_prescale=1.2 speed_prescale_method=nearest speed_kernelscale=3 speed_weight_var_mode=6 speed_max_val=900",
                [52.744834899902344, 51.144874572753906, 51.944854736328125],
            ),
            (
                177,
                177,
                8,
                "speed_weight_var_mode=1",
                [40.87322998046875, 29.175216674804688, 35.02422332763672],
            ),
        ];
        for (width, height, bits, text, scores) in expected {
            let mut options = SpeedOptions::default();
            for (name, value) in text.split(' ').filter_map(|option| option.split_once('=')) {
                assert_eq!(options.set(name, value), Ok(true));
            }
            let pictures = [0, 1].map(|c| [false, true].map(|d| textured(c, d, width, height, bits)));
            for level in Level::available() {
                let found = options.scores(&compute(level, options, &pictures));
                assert_eq!([found.u, found.v, found.uv], scores, "{level:?} {width}x{height} {bits} {text}");
            }
        }
    }

    #[test]
    fn planes_without_texture_are_left_out() {
        let (width, height) = (320, 180);
        let flat = || Picture::new(width, height, 8, |_, _| 90);
        let [a, b] = [false, true].map(|d| textured(0, d, width, height, 8));
        let options = SpeedOptions { max_val: 30.0, ..Default::default() };
        let scores = |pictures| options.scores(&compute(Level::detect(), options, &pictures));
        let both = scores([[a.clone(), b.clone()], [a.clone(), b.clone()]]);
        assert_eq!([both.u, both.v, both.uv], [30.0; 3]);
        let one = scores([[flat(), b.clone()], [a.clone(), b.clone()]]);
        assert_eq!([one.u, one.v, one.uv], [0.0, 30.0, 30.0]);
        let other = scores([[a.clone(), b.clone()], [flat(), flat()]]);
        assert_eq!([other.u, other.v, other.uv], [30.0, 0.0, 30.0]);
        let none = scores([[flat(), b.clone()], [a, flat()]]);
        assert_eq!([none.u, none.v, none.uv], [0.0; 3]);
    }

    #[test]
    fn equal_pictures_score_zero() {
        let options = SpeedOptions::default();
        let pictures = [0, 1].map(|c| [textured(c, true, 320, 180, 10), textured(c, true, 320, 180, 10)]);
        let scores = options.scores(&compute(Level::detect(), options, &pictures));
        assert_eq!([scores.u, scores.v, scores.uv], [0.0; 3]);
    }

    #[test]
    fn scalings_share_a_frame() {
        let plain = SpeedOptions::default();
        let half = SpeedOptions { prescale: 0.5, prescale_method: Method::Bilinear, ..plain };
        let pictures = [0, 1].map(|c| [false, true].map(|d| textured(c, d, 360, 330, 8)));
        let samples = pictures.each_ref().map(|pair| pair.each_ref().map(Picture::bytes));
        let planes = samples.each_ref().map(|[a, b]| PlaneGroup::U8(a.plane(), vec![b.plane()]));
        let scalings = vec![plain.scaling().unwrap(), half.scaling().unwrap()];
        let work = SpeedWork { scalings, sigmas: vec![plain.sigma()] };
        let level = Level::detect();
        let found = Speed::new(&work, geometry(360, 330, 8)).unwrap().compute(level, planes);
        assert_eq!(found, [[compute(level, plain, &pictures), compute(level, half, &pictures)]]);
    }

    /// Computes the small image of a plane that is not resampled, by the specification.
    fn naive(layout: &Layout, picture: &Picture) -> Vec<f32> {
        let (width, height, samples) = (picture.width, picture.height, picture.samples());
        let radius = (layout.low_pass.len() / 2) as isize;
        let filtered = |sample: &dyn Fn(isize) -> f32| {
            (-radius..).zip(&layout.low_pass).fold(0f32, |sum, (k, tap)| sum + tap * sample(k))
        };
        let scale = (1 << (picture.depth.bits() - 8)) as f32;
        let at = |x: isize, y: isize| {
            f32::from(samples[reflect(y, height) * width + reflect(x, width)]) / scale - 128.0
        };
        let small = |i: usize| {
            let (x, y) = (16 * (i % (width / 16)) as isize, 16 * (i / (width / 16)) as isize);
            filtered(&|l| filtered(&|k| at(x + l, y + k)))
        };
        (0..width / 16 * (height / 16)).map(small).collect()
    }

    #[test]
    fn small_images_are_those_of_the_specification_at_every_size_and_depth() {
        for (i, n) in (80..=131).enumerate() {
            for (width, height) in [(n, 80 + n % 9), (80 + n % 7, n)] {
                for bits in [8, 9 + i as u32 % 8] {
                    let kernel_scale = if i % 3 == 0 { 3.0 } else { 1.0 };
                    let layout =
                        layout(SpeedOptions { kernel_scale, ..Default::default() }, width, height, bits);
                    let [picture, _] = content(i, width, height, bits);
                    let expected = naive(&layout, &picture);
                    for level in Level::available() {
                        let found = match bits {
                            8 => downscale(level, &layout, numbers(picture.bytes().plane(), &layout)),
                            _ => downscale(level, &layout, numbers(picture.words().plane(), &layout)),
                        };
                        assert_eq!(found, expected, "{level:?} {width}x{height} {bits}");
                    }
                }
            }
        }
    }

    #[test]
    fn resampled_planes_are_clamped_like_others() {
        let (width, height) = (200, 180);
        for prescale_method in [Method::Nearest, Method::Bilinear, Method::Bicubic, Method::Lanczos4] {
            let options = SpeedOptions { prescale: 0.8, prescale_method, ..Default::default() };
            let layout = layout(options, width, height, 10);
            let [picture, _] = content(3, width, height, 10);
            let samples = picture.samples();
            let in_range = Plane::new(&samples, width, height, width).unwrap();
            for level in Level::available() {
                let found = downscale(level, &layout, numbers(picture.words().plane(), &layout));
                let expected = downscale(level, &layout, numbers(in_range, &layout));
                assert_eq!(found, expected, "{level:?} {prescale_method:?}");
            }
        }
    }

    #[test]
    fn covariances_are_summed_up_in_raster_order() {
        for (i, (columns, rows)) in [(5, 5), (5, 20), (10, 15), (35, 10), (60, 30)].into_iter().enumerate() {
            let layout = layout(SpeedOptions::default(), 16 * columns, 16 * rows, 8);
            let sample = |j| (noise(i as u32, j % columns, j / columns) as i32) as f32 / (1u32 << 24) as f32;
            let image: Vec<f32> = (0..columns * rows).map(sample).collect();
            let means = means(&layout, &image);
            let (width, height) = layout.window();
            let at = |e: usize, place: usize| {
                let (x, y) = (place % width + e % BLOCK, place / width + e / BLOCK);
                image[y * columns + x]
            };
            let sum = |a: usize| (0..width * height).fold(0f32, |sum, place| sum + at(a, place));
            for level in Level::available() {
                let found = covariance(level, &layout, &image, means);
                for a in 0..ELEMENTS {
                    assert_eq!(means[a], sum(a) / (width * height) as f32);
                    for b in 0..ELEMENTS {
                        let deviation = |e: usize, p| f64::from(at(e, p)) - f64::from(means[e]);
                        let product = |sum: f64, p| sum + deviation(a, p) * deviation(b, p);
                        let sum = (0..width * height).fold(0.0, product);
                        let expected = (sum / (width * height) as f64) as f32;
                        assert_eq!(found[a][b], expected, "{level:?} {columns}x{rows}");
                    }
                }
            }
        }
    }
}
