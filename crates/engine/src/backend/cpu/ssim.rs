// SPDX-License-Identifier: MPL-2.0

//! Structural similarity, streamed in bands of rows: each row goes through the horizontal window, and the last eleven
//! of these through the vertical one and the statistics.
//!
//! Every product is rounded to single precision and added to a double, tap by tap, as libvmaf does. The loops over the
//! columns of a row are plain: columns are independent, and the compiler vectorises the loops for each level.

use super::image::{Image, Singles};
use super::metric::{Metric, Pictures, Setup, typed};
use super::simd::{Lanes, Level, dispatch};
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Plane, Sample};
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::ssim::{
    C1, C2, C3, LOW_PASS, LOW_PASS_SIZE, MapSums, SCALES, SsimSums, SsimWork, WINDOW, WINDOW_SIZE, decimated,
    factor, fixed_sum, mirror, unit,
};
use rayon::prelude::*;
use std::ops::Range;

/// Rows of a part that is filtered by the window, which reads some more rows.
const BAND: usize = 64;
/// Rows of a part that is decimated.
const DECIMATED_BAND: usize = 16;

/// Samples, and the factor that scales them to the range of 8 bits.
#[derive(Clone, Copy)]
struct Scaled<'a, T>(Plane<'a, T>, f32);

impl<T: Sample> Image for Scaled<'_, T> {
    fn size(&self) -> (usize, usize) {
        (self.0.width(), self.0.height())
    }

    #[inline(always)]
    fn read(&self, y: usize, to: &mut [f32]) {
        for (to, sample) in to.iter_mut().zip(self.0.row(y).iter()) {
            let sample: i32 = sample.into();
            *to = sample as f32 * self.1;
        }
    }
}

/// SSIM of a reference and distorted pictures of one size. It owns the decimated pictures, the reference's first.
pub struct Ssim {
    geometry: Geometry,
    /// The factor and the decimated pictures for each scale of the work; `None` if pictures are not decimated.
    scales: Vec<Option<(usize, Vec<Singles>)>>,
    /// Scales 1 to 4 of MS-SSIM.
    pyramid: Option<[Vec<Singles>; SCALES - 1]>,
    /// True for scales of MS-SSIM that have all terms.
    all_terms: [bool; SCALES],
}

impl Ssim {
    /// Prepares for frames for which it is defined, with up to `renditions` distorted pictures for each reference.
    pub fn new(work: &SsimWork, geometry: Geometry, renditions: usize) -> Self {
        let Geometry { width, height, .. } = geometry;
        let pictures = |size| vec![Singles::new(size); 1 + renditions];
        let scale = |scale: &u32| {
            let factor = factor(*scale, geometry);
            (factor > 1).then(|| (factor, pictures(decimated(width, height, factor))))
        };
        let mut size = (width, height);
        let mut next = || {
            size = decimated(size.0, size.1, 2);
            pictures(size)
        };
        Self {
            geometry,
            scales: work.scales.iter().map(scale).collect(),
            pyramid: work.multi_scale.then(|| [(); SCALES - 1].map(|_| next())),
            all_terms: std::array::from_fn(|scale| work.all_terms(scale, geometry)),
        }
    }

    /// Computes the sums of each distorted luma plane with the reference's, no more than were given to [`Ssim::new`];
    /// `None` if they do not have the size given there. Runs in the current rayon pool.
    pub fn compute<T: Sample>(
        &mut self,
        level: Level,
        reference: Plane<T>,
        distorted: &[Plane<T>],
    ) -> Option<Vec<SsimSums>> {
        let Geometry { width, height, .. } = self.geometry;
        let planes = [&[reference], distorted].concat();
        if planes.iter().any(|plane| (plane.width(), plane.height()) != (width, height)) {
            return None;
        }
        let unit = unit(self.geometry);
        let whole: Vec<_> = planes.into_iter().map(|plane| Scaled(plane, unit)).collect();
        let mut sums = vec![SsimSums { scales: vec![], multi_scale: None }; distorted.len()];
        // SSIM of factor 1 and the first scale of MS-SSIM use the pictures without decimation.
        let plain = self.pyramid.is_some() || self.scales.iter().any(Option::is_none);
        let plain = if plain { map_sums(level, &whole, self.all_terms[0]) } else { vec![] };
        for scale in &mut self.scales {
            let decimated = scale.as_mut().map(|(factor, pictures)| {
                for (to, from) in pictures.iter_mut().zip(&whole) {
                    to.fill(|rows, to| box_band(level, *from, *factor, rows, to));
                }
                let pictures: Vec<_> = pictures.iter().take(whole.len()).collect();
                map_sums(level, &pictures, true)
            });
            for (sums, map) in sums.iter_mut().zip(decimated.as_ref().unwrap_or(&plain)) {
                sums.scales.push(*map);
            }
        }
        if let Some(pyramid) = &mut self.pyramid {
            for (sums, plain) in sums.iter_mut().zip(&plain) {
                sums.multi_scale = Some([*plain; SCALES]);
            }
            for scale in 1..SCALES {
                let (above, this) = pyramid.split_at_mut(scale - 1);
                for (i, (to, whole)) in this[0].iter_mut().zip(&whole).enumerate() {
                    to.fill(|rows, to| match above.last() {
                        None => low_pass_band(level, *whole, rows, to),
                        Some(above) => low_pass_band(level, &above[i], rows, to),
                    });
                }
                let pictures: Vec<_> = this[0].iter().take(whole.len()).collect();
                for (sums, map) in sums.iter_mut().zip(map_sums(level, &pictures, self.all_terms[scale])) {
                    sums.multi_scale.iter_mut().for_each(|scales| scales[scale] = map);
                }
            }
        }
        Some(sums)
    }
}

impl Singles {
    /// Computes the picture in parts. `part` gets the rows and their destination.
    fn fill(&mut self, part: impl Fn(Range<usize>, &mut [f32]) + Sync) {
        let (width, height) = (self.width, self.height);
        let bands = self.samples.par_chunks_mut(DECIMATED_BAND * width).enumerate().with_max_len(1);
        bands.for_each(|(i, to)| part(i * DECIMATED_BAND..height.min((i + 1) * DECIMATED_BAND), to));
    }
}

/// Computes the sums of each picture with the first one: of all terms, or of contrast and structure.
fn map_sums<I: Image>(level: Level, pictures: &[I], all_terms: bool) -> Vec<MapSums> {
    let (width, height) = pictures[0].size();
    let places = height - (WINDOW_SIZE - 1);
    let bias = fixed_sum((width, height)).bias();
    let distorted = pictures.len() - 1;
    let work = |scratch: &mut Scratch, i: usize| {
        let rows = i * BAND..places.min((i + 1) * BAND);
        map_band(level, pictures, rows, bias, all_terms, scratch)
    };
    let add = |mut a: Vec<MapSums>, b: Vec<MapSums>| {
        a.iter_mut().zip(&b).for_each(|(a, b)| accumulate_sums(a, b));
        a
    };
    let bands = (0..places.div_ceil(BAND)).into_par_iter().with_max_len(1);
    let sums = bands.map_init(|| Scratch::new(width, distorted), work);
    sums.reduce(|| vec![MapSums::default(); distorted], add)
}

fn accumulate_sums(sums: &mut MapSums, more: &MapSums) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum = sum.wrapping_add(*more);
    }
}

/// Row buffers of one thread.
struct Scratch {
    /// The reference and its squares.
    reference: Windowed<2>,
    /// A distorted picture, its squares, and its products with the reference.
    distorted: Vec<Windowed<3>>,
}

/// Rows of planes that go through the window together.
struct Windowed<const PLANES: usize> {
    /// The present row of each plane.
    samples: [Vec<f32>; PLANES],
    /// The last eleven rows of each plane after the horizontal window, by row number modulo 11.
    ring: [[Vec<f32>; WINDOW_SIZE]; PLANES],
    /// A row of each plane after the horizontal and the vertical window.
    filtered: [Vec<f32>; PLANES],
}

impl Scratch {
    fn new(width: usize, distorted: usize) -> Self {
        Self {
            reference: Windowed::new(width),
            distorted: (0..distorted).map(|_| Windowed::new(width)).collect(),
        }
    }
}

impl<const PLANES: usize> Windowed<PLANES> {
    fn new(width: usize) -> Self {
        let row = || vec![0.0; width];
        let filtered = || vec![0.0; width - (WINDOW_SIZE - 1)];
        Self {
            samples: [(); PLANES].map(|_| row()),
            ring: [(); PLANES].map(|_| [(); WINDOW_SIZE].map(|_| filtered())),
            filtered: [(); PLANES].map(|_| filtered()),
        }
    }

    /// Applies the horizontal window to the samples, which are those of row `y`.
    #[inline(always)]
    fn across(&mut self, y: usize) {
        for plane in 0..PLANES {
            let row = &self.samples[plane];
            let mut taps = [&row[..]; WINDOW_SIZE];
            for k in 0..WINDOW_SIZE {
                taps[k] = &row[k..];
            }
            window(taps, &mut self.ring[plane][y % WINDOW_SIZE]);
        }
    }

    /// Applies the vertical window to eleven rows.
    #[inline(always)]
    fn down(&mut self, first: usize) {
        for plane in 0..PLANES {
            let mut taps = [&self.ring[plane][0][..]; WINDOW_SIZE];
            for k in 0..WINDOW_SIZE {
                taps[k] = &self.ring[plane][(first + k) % WINDOW_SIZE];
            }
            window(taps, &mut self.filtered[plane]);
        }
    }
}

dispatch!(fn map_band[I: Image](
    pictures: &[I], rows: Range<usize>, bias: f64, all_terms: bool, scratch: &mut Scratch,
) -> Vec<MapSums> = process_map[I]);

/// Computes the part of the sums for these rows of window positions.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process_map<V: Lanes, I: Image>(
    pictures: &[I],
    rows: Range<usize>,
    bias: f64,
    all_terms: bool,
    scratch: &mut Scratch,
) -> Vec<MapSums> {
    let Scratch { reference, distorted } = scratch;
    let mut sums = vec![MapSums::default(); distorted.len()];
    for y in rows.start..rows.end + (WINDOW_SIZE - 1) {
        // The first of these rows, once all are there.
        let first = (y + 1).checked_sub(WINDOW_SIZE).filter(|first| *first >= rows.start);
        {
            let [a, aa] = &mut reference.samples;
            pictures[0].read(y, a);
            products(a, a, aa);
        }
        reference.across(y);
        if let Some(first) = first {
            reference.down(first);
        }
        for (i, distorted) in distorted.iter_mut().enumerate() {
            {
                let [b, bb, ab] = &mut distorted.samples;
                pictures[1 + i].read(y, b);
                products(b, b, bb);
                products(&reference.samples[0], b, ab);
            }
            distorted.across(y);
            if let Some(first) = first {
                distorted.down(first);
                let (reference, distorted) = (&reference.filtered, &distorted.filtered);
                let more = if all_terms {
                    statistics::<true>(reference, distorted, bias)
                } else {
                    statistics::<false>(reference, distorted, bias)
                };
                accumulate_sums(&mut sums[i], &more);
            }
        }
    }
    sums
}

#[inline(always)]
fn products(a: &[f32], b: &[f32], to: &mut [f32]) {
    for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
        *to = a * b;
    }
}

/// Applies the window at each column of `to` to the samples of the eleven rows there.
#[inline(always)]
fn window(rows: [&[f32]; WINDOW_SIZE], to: &mut [f32]) {
    let n = to.len();
    let mut taps = rows;
    for k in 0..WINDOW_SIZE {
        taps[k] = &rows[k][..n];
    }
    for x in 0..n {
        let mut sum = 0.0;
        for k in 0..WINDOW_SIZE {
            sum += f64::from(taps[k][x] * WINDOW[k]);
        }
        to[x] = sum as f32;
    }
}

/// Computes the sums of a row of window positions: of all terms, or of contrast and structure.
#[inline(always)]
fn statistics<const ALL: bool>(reference: &[Vec<f32>; 2], distorted: &[Vec<f32>; 3], bias: f64) -> MapSums {
    let n = reference[0].len();
    let [mean1, square1] = [&reference[0][..n], &reference[1][..n]];
    let [mean2, square2, product] = [&distorted[0][..n], &distorted[1][..n], &distorted[2][..n]];
    let mut sums = [0u64; 4];
    for x in 0..n {
        let (m1, m2) = (mean1[x], mean2[x]);
        let variance1 = (square1[x] - m1 * m1).max(0.0);
        let variance2 = (square2[x] - m2 * m2).max(0.0);
        let covariance = product[x] - m1 * m2;
        let deviations = (variance1 * variance2).sqrt();
        let luminance =
            ((2.0 * f64::from(m1)) * f64::from(m2) + f64::from(C1)) / f64::from((m1 * m1 + m2 * m2) + C1);
        let contrast =
            (2.0 * f64::from(deviations) + f64::from(C2)) / f64::from((variance1 + variance2) + C2);
        let covariance = if covariance < 0.0 && deviations <= 0.0 { 0.0 } else { covariance };
        let structure = f64::from((covariance + C3) / (deviations + C3));
        let terms = [(luminance * contrast) * structure, luminance, contrast, structure];
        for i in if ALL { 0 } else { 2 }..4 {
            sums[i] = sums[i].wrapping_add((terms[i] + bias).to_bits());
        }
    }
    sums
}

dispatch!(fn low_pass_band[I: Image](picture: I, rows: Range<usize>, to: &mut [f32]) -> () = process_low_pass[I]);

/// Writes the rows `rows` of the next scale to `to`: every other sample of the picture after the low pass.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process_low_pass<V: Lanes, I: Image>(picture: I, rows: Range<usize>, to: &mut [f32]) {
    const REACH: isize = LOW_PASS_SIZE as isize / 2;
    let (width, height) = picture.size();
    let n = decimated(width, height, 2).0;
    let mut row = vec![0.0; width];
    // The samples from column -4 on, even and odd ones separated, of the last nine rows.
    let mut ring = vec![[vec![0.0; n + LOW_PASS_SIZE / 2], vec![0.0; n + LOW_PASS_SIZE / 2]]; LOW_PASS_SIZE];
    let mut sums = vec![0.0; n];
    let mut ready = 0;
    for (i, to) in to.chunks_exact_mut(n).enumerate() {
        while ready < 2 * i + LOW_PASS_SIZE {
            picture.read(mirror((2 * rows.start + ready) as isize - REACH, height), &mut row);
            let [even, odd] = &mut ring[ready % LOW_PASS_SIZE];
            for (x, (even, odd)) in even.iter_mut().zip(odd).enumerate() {
                let x = 2 * x as isize - REACH;
                *even = row[mirror(x, width)];
                *odd = row[mirror(x + 1, width)];
            }
            ready += 1;
        }
        sums.fill(0.0);
        for v in 0..LOW_PASS_SIZE {
            let halves = &ring[(2 * i + v) % LOW_PASS_SIZE];
            let mut taps = [&halves[0][..]; LOW_PASS_SIZE];
            for u in 0..LOW_PASS_SIZE {
                taps[u] = &halves[u % 2][u / 2..][..n];
            }
            accumulate(taps, &LOW_PASS[v], &mut sums);
        }
        for (to, sum) in to.iter_mut().zip(&sums) {
            *to = *sum as f32;
        }
    }
}

/// Adds a row of the low pass, tap by tap.
#[inline(always)]
fn accumulate(taps: [&[f32]; LOW_PASS_SIZE], weights: &[f32; LOW_PASS_SIZE], sums: &mut [f64]) {
    for x in 0..sums.len() {
        let mut sum = sums[x];
        for u in 0..LOW_PASS_SIZE {
            sum += f64::from(taps[u][x] * weights[u]);
        }
        sums[x] = sum;
    }
}

dispatch!(fn box_band[I: Image](picture: I, factor: usize, rows: Range<usize>, to: &mut [f32]) -> () = process_box[I]);

/// Writes the rows `rows` of a decimated picture to `to`. Its samples are means of `factor` x `factor`. Doubles hold
/// the sums of a box exactly, so they can be added column by column.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process_box<V: Lanes, I: Image>(picture: I, factor: usize, rows: Range<usize>, to: &mut [f32]) {
    let (width, height) = picture.size();
    let n = decimated(width, height, factor).0;
    let weight = 1.0 / (factor * factor) as f32;
    let mut row = vec![0.0; width];
    let mut sums = vec![0.0; width];
    for (y, to) in rows.zip(to.chunks_exact_mut(n)) {
        sums.fill(0.0);
        for v in 0..factor {
            picture.read(mirror((y * factor + v) as isize - (factor / 2) as isize, height), &mut row);
            for (sum, sample) in sums.iter_mut().zip(&row) {
                *sum += f64::from(sample * weight);
            }
        }
        for (x, to) in to.iter_mut().enumerate() {
            let first = (x * factor) as isize - (factor / 2) as isize;
            let mut sum = 0.0;
            for x in first..first + factor as isize {
                sum += sums[mirror(x, width)];
            }
            *to = sum as f32;
        }
    }
}

impl Metric for Ssim {
    type Of = metrics::ssim::Ssim;

    fn prepare(work: &SsimWork, setup: &Setup) -> Result<Self, BackendError> {
        Ok(Self::new(work, setup.geometry, setup.renditions))
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<SsimSums>> {
        typed!(PlaneGroup: &pictures.luma, |r, d| Ssim::compute(self, pictures.level, *r, d))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::tests::{Picture, content, group, planes};
    use crate::metrics::ssim::{MsSsimOptions, SsimOptions};

    /// The specification in plain loops.
    mod naive {
        use super::*;

        /// Samples of a picture, row by row.
        #[derive(Clone)]
        pub struct Map(pub Vec<f32>, pub usize, pub usize);

        impl Map {
            pub fn new(picture: &Picture) -> Self {
                let scale = (1u32 << (picture.depth.bits() - 8)) as f32;
                let samples = picture.samples().into_iter().map(|x| f32::from(x) / scale);
                Self(samples.collect(), picture.width, picture.height)
            }

            fn at(&self, x: isize, y: isize) -> f32 {
                let mirror = |i: isize, n: usize| {
                    let n = n as isize;
                    (if i < 0 {
                        -1 - i
                    } else if i >= n {
                        2 * n - 1 - i
                    } else {
                        i
                    }) as usize
                };
                self.0[mirror(y, self.2) * self.1 + mirror(x, self.1)]
            }

            fn times(&self, other: &Self) -> Self {
                Self(self.0.iter().zip(&other.0).map(|(a, b)| a * b).collect(), self.1, self.2)
            }

            fn window(&self) -> Self {
                let &Self(ref samples, w, h) = self;
                let pass = |samples: &[f32], step: usize, w: usize, h: usize, stride: usize| -> Vec<f32> {
                    let at = |i: usize| {
                        let first = i / w * stride + i % w;
                        let tap = |k: usize| f64::from(samples[first + k * step] * WINDOW[k]);
                        (0..WINDOW_SIZE).fold(0.0, |sum, k| sum + tap(k)) as f32
                    };
                    (0..w * h).map(at).collect()
                };
                let rows = pass(samples, 1, w - 10, h, w);
                Self(pass(&rows, w - 10, w - 10, h - 10, w - 10), w - 10, h - 10)
            }

            pub fn decimated(&self, factor: usize, taps: &[Vec<f32>]) -> Self {
                let n = taps.len();
                let (w, h) = (self.1 / factor + self.1 % 2, self.2 / factor + self.2 % 2);
                let at = |i: usize| {
                    let mut sum = 0.0;
                    for (v, u) in (0..n).flat_map(|v| (0..n).map(move |u| (v, u))) {
                        let place = |i: usize, k: usize| (i * factor + k) as isize - (n / 2) as isize;
                        sum += f64::from(self.at(place(i % w, u), place(i / w, v)) * taps[v][u]);
                    }
                    sum as f32
                };
                Self((0..w * h).map(at).collect(), w, h)
            }

            /// Computes the means of SSIM, luminance, contrast and structure, with sums of doubles in raster order.
            pub fn means(a: &Self, b: &Self) -> [f64; 4] {
                let filtered =
                    [a.clone(), b.clone(), a.times(a), b.times(b), a.times(b)].map(|map| map.window());
                let n = filtered[0].0.len();
                let mut sums = [0.0; 4];
                for i in 0..n {
                    let [m1, m2, q1, q2, q12] = filtered.each_ref().map(|map| map.0[i]);
                    let (s1, s2) = ((q1 - m1 * m1).max(0.0), (q2 - m2 * m2).max(0.0));
                    let mut s12 = q12 - m1 * m2;
                    let x = f64::from(s1 * s2).sqrt() as f32;
                    let l = ((2.0 * f64::from(m1)) * f64::from(m2) + f64::from(C1))
                        / f64::from((m1 * m1 + m2 * m2) + C1);
                    let c = (2.0 * f64::from(x) + f64::from(C2)) / f64::from((s1 + s2) + C2);
                    if s12 < 0.0 && x <= 0.0 {
                        s12 = 0.0;
                    }
                    let s = f64::from((s12 + C3) / (x + C3));
                    for (sum, term) in sums.iter_mut().zip([(l * c) * s, l, c, s]) {
                        *sum += term;
                    }
                }
                sums.map(|sum| f64::from((sum / n as f64) as f32))
            }
        }

        pub fn boxed(map: &Map, factor: usize) -> Map {
            let weight = 1.0 / (factor * factor) as f32;
            if factor == 1 { map.clone() } else { map.decimated(factor, &vec![vec![weight; factor]; factor]) }
        }
    }
    use naive::Map;

    fn run(level: Level, work: &SsimWork, geometry: Geometry, pictures: &[Picture]) -> Vec<SsimSums> {
        let mut ssim = Ssim::new(work, geometry, 3);
        planes!(pictures, |p| ssim.compute(level, p[0], &p[1..]).unwrap())
    }

    fn geometry(picture: &Picture) -> Geometry {
        Geometry { width: picture.width, height: picture.height, depth: picture.depth, chroma: None }
    }

    fn check(pair: &[Picture; 2], scales: &[u32], multi_scale: bool) {
        let geometry = geometry(&pair[0]);
        let work = SsimWork { scales: scales.to_vec(), multi_scale, every_luminance: true };
        let pictures = group(pair);
        let single = |i: usize| {
            run(Level::detect(), &work, geometry, &[pictures[0].clone(), pictures[i].clone()]).remove(0)
        };
        let expected = [1, 2, 3].map(single);
        for level in Level::available() {
            for n in 1..=expected.len() {
                let found = run(level, &work, geometry, &pictures[..=n]);
                assert_eq!(found, expected[..n], "{level:?} {geometry:?}");
            }
        }
        let [sums, ..] = expected;

        let mut maps = pair.each_ref().map(Map::new);
        for (scale, sums) in scales.iter().zip(&sums.scales) {
            let [a, b] = maps.each_ref().map(|map| naive::boxed(map, factor(*scale, geometry)));
            let found = SsimOptions { scale: *scale, ..Default::default() }.scores(sums, geometry);
            let [l, c, s] = found.lcs;
            assert_eq!([found.score, l, c, s], Map::means(&a, &b), "{geometry:?} {scale}");
        }
        let Some(sums) = sums.multi_scale else { return };
        let options = MsSsimOptions { enable_lcs: true, ..Default::default() };
        let found = options.scores(&sums, geometry);
        let taps: Vec<_> = LOW_PASS.iter().map(|row| row.to_vec()).collect();
        for lcs in found.lcs {
            assert_eq!(lcs, Map::means(&maps[0], &maps[1])[1..], "{geometry:?}");
            maps = maps.map(|map| map.decimated(2, &taps));
        }

        // Luminance is left out unless it is requested.
        let work = SsimWork { every_luminance: false, ..work };
        let fewer = run(Level::detect(), &work, geometry, pair).remove(0).multi_scale.unwrap();
        for (scale, (sums, fewer)) in sums.iter().zip(&fewer).enumerate() {
            let all = scale == SCALES - 1 || (scale == 0 && scales.contains(&1));
            assert_eq!(*fewer, if all { *sums } else { [0, 0, sums[2], sums[3]] }, "{scale}");
        }
        let fewer = MsSsimOptions::default().scores(&fewer, geometry);
        assert!(fewer.score.total_cmp(&found.score).is_eq(), "{} {}", fewer.score, found.score);
        assert!(fewer.lcs[..SCALES - 1].iter().all(|[luminance, ..]| luminance.is_nan()));
        assert_eq!(fewer.lcs[SCALES - 1], found.lcs[SCALES - 1]);
    }

    #[test]
    fn equals_the_specification_at_every_size_and_depth() {
        for (i, n) in (11..=75).enumerate() {
            for (width, height) in [(n, 11 + n % 7), (11 + n % 5, n)] {
                for bits in [8, 9 + i as u32 % 8, 16] {
                    check(&content(i, width, height, bits), &[0], false);
                }
            }
        }
        // Covers parts that meet, and a last part of few rows.
        check(&content(1, 40, 150, 8), &[0], false);
    }

    #[test]
    fn equals_the_specification_at_every_factor() {
        for (i, (width, height)) in [(121, 121), (132, 117), (110, 111)].into_iter().enumerate() {
            for bits in [8, 10, 16] {
                check(&content(i, width, height, bits), &[0, 2, 3, 4, 5, 6, 7, 8, 9, 10], false);
            }
        }
        check(&content(3, 410, 385, 8), &[0], false);
    }

    #[test]
    fn equals_the_specification_on_five_scales() {
        let sizes = [(176, 176), (177, 193), (230, 181), (207, 240)];
        for (i, (width, height)) in sizes.into_iter().cycle().take(8).enumerate() {
            let bits = [8, 10, 12, 16][i / 2];
            check(&content(i, width, height, bits), if i % 2 == 0 { &[1] } else { &[2] }, true);
        }
    }
}
