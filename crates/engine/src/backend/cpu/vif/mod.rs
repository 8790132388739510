// SPDX-License-Identifier: MPL-2.0

//! Visual information fidelity, streamed in bands of rows: four rows at a time go through the vertical filters, the
//! horizontal filters, the statistics and the decimation while they are in cache.
//!
//! Several distorted pictures share the reference. The first one is processed together with it; the others (`FIRST` is
//! false) use the means and variances of the reference that were kept.
//!
//! The vertical filters are in [`vertical`], the steps after them in [`statistics`].

mod statistics;
mod vertical;

use self::statistics::statistics;
use self::vertical::{PLANES, Pairs, ROWS, decimate, interleave, vertical8, vertical16};
use super::filter::{BLOCK, FILTERS, Line, PAD, extend, mirror, row_stride};
use super::log2::Log2;
use super::metric::{Metric, Pictures, Setup, typed};
use super::simd::{Level, dispatch};
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Plane, Sample};
use crate::frame::{BitDepth, Geometry};
use crate::metrics;
use crate::metrics::vif::{MIN_SIZE, VifScaleSums, VifSums, VifWork};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Row pairs that four rows of the longest filter read.
const PAIRS: usize = 10;

/// Row buffers of one thread.
struct Scratch {
    /// [`PAIRS`] row pairs of the reference, and after them those of each distorted picture. Each block of columns has
    /// the pairs of the even columns, then those of the odd ones.
    ring: Vec<Line>,
    /// Vertically filtered rows: [`ROWS`] times [`PLANES`]. Earlier, the rows to decimate.
    rows: Vec<Line>,
    /// Means and variances of the reference in [`ROWS`] rows, if more than one distorted picture needs them.
    kept: Vec<Line>,
    /// For each gain limit, a vector of the numerators and two vectors with the explained variance of a block of
    /// pixels.
    numerators: Vec<Line>,
}

impl Scratch {
    fn new(width: usize, gain_limits: usize, renditions: usize) -> Self {
        let kept = if renditions > 1 { ROWS * kept_stride(width) * 4 } else { 0 };
        Self {
            ring: Line::zeroed((1 + renditions) * PAIRS * slot(width) * 4),
            rows: Line::zeroed(ROWS * PLANES * row_stride(width) * 2),
            kept: Line::zeroed(kept),
            numerators: Line::zeroed(gain_limits * 3 * 64),
        }
    }
}

/// Returns the numbers from one row pair of the ring to the next: a cache line more than the columns, as pairs of some
/// widths would otherwise compete for the same cache lines.
fn slot(width: usize) -> usize {
    width.next_multiple_of(BLOCK) + 16
}

/// Returns the numbers from one row of kept means and variances to the next.
fn kept_stride(width: usize) -> usize {
    2 * width.next_multiple_of(BLOCK)
}

/// The pictures at a scale above 0, the reference first.
struct Octave {
    planes: Vec<Vec<u16>>,
    width: usize,
    height: usize,
    stride: usize,
}

impl Octave {
    /// Creates pictures of half of `width` and `height`, with padding for whole vectors and an odd last row.
    fn below(width: usize, height: usize, pictures: usize) -> Self {
        let stride = width.next_multiple_of(BLOCK) / 2;
        let planes = vec![vec![0; stride * height.div_ceil(2)]; pictures];
        Self { planes, width: width / 2, height: height / 2, stride }
    }

    /// Returns the first `pictures` pictures.
    fn planes(&self, pictures: usize) -> Vec<Plane<'_, u16>> {
        let planes = self.planes.iter().take(pictures);
        planes.filter_map(|plane| Plane::new(plane, self.width, self.height, self.stride)).collect()
    }
}

/// VIF of a reference and distorted pictures of one size. It owns the pyramid.
pub struct Vif {
    work: VifWork,
    size: (usize, usize),
    depth: BitDepth,
    renditions: usize,
    pyramid: [Octave; 3],
    /// Row buffers that no thread is using.
    idle: Mutex<Vec<Scratch>>,
}

impl Vif {
    /// Prepares for frames of `width` x `height` samples, both at least `MIN_SIZE`, with up to `renditions` distorted
    /// pictures for each reference. Returns `None` if the frames are too small.
    pub fn new(
        work: &VifWork,
        width: usize,
        height: usize,
        depth: BitDepth,
        renditions: usize,
    ) -> Option<Self> {
        if width.min(height) < MIN_SIZE {
            return None;
        }
        let one = Octave::below(width, height, 1 + renditions);
        let two = Octave::below(one.width, one.height, 1 + renditions);
        let three = Octave::below(two.width, two.height, 1 + renditions);
        let idle = Mutex::new(vec![Scratch::new(width, work.gain_limits.len(), renditions)]);
        Some(Self {
            work: work.clone(),
            size: (width, height),
            depth,
            renditions,
            pyramid: [one, two, three],
            idle,
        })
    }

    /// Computes the sums of each distorted luma plane with the reference's, of the depth given to [`Vif::new`]; `None`
    /// if they do not have the size given there or are more than that. Runs in the current rayon pool, in about `bands`
    /// bands, at least 1.
    pub fn compute<T: Sample>(
        &mut self,
        level: Level,
        bands: usize,
        reference: Plane<T>,
        distorted: &[Plane<T>],
    ) -> Option<Vec<VifSums>> {
        let planes: Vec<_> = [&[reference], distorted].concat();
        let n = planes.len();
        if planes.iter().any(|plane| (plane.width(), plane.height()) != self.size) || n > 1 + self.renditions
        {
            return None;
        }
        let mut sums = vec![vec![[VifScaleSums::default(); 4]; self.work.gain_limits.len()]; distorted.len()];
        let (work, idle, width, renditions) = (&self.work, &self.idle, self.size.0, self.renditions);
        let run = Run { level, work, idle, bands, width, renditions };
        let [one, two, three] = &mut self.pyramid;
        run.scale::<T, 0, 1>(&planes, self.depth.bits(), Some(one), &mut sums);
        run.scale::<u16, 1, 2>(&one.planes(n), 16, Some(two), &mut sums);
        run.scale::<u16, 2, 3>(&two.planes(n), 16, Some(three), &mut sums);
        run.scale::<u16, 3, 3>(&three.planes(n), 16, None, &mut sums);
        Some(sums)
    }
}

impl Metric for Vif {
    type Of = metrics::vif::Vif;

    fn prepare(work: &VifWork, setup: &Setup) -> Result<Self, BackendError> {
        let Geometry { width, height, depth, .. } = setup.geometry;
        let vif = Self::new(work, width, height, depth, setup.renditions);
        vif.ok_or(BackendError::NotPrepared)
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<VifSums>> {
        typed!(PlaneGroup: &pictures.luma, |r, d| {
            Vif::compute(self, pictures.level, pictures.bands, *r, d)
        })
    }
}

/// Settings that the scales of a frame share.
struct Run<'a> {
    level: Level,
    work: &'a VifWork,
    idle: &'a Mutex<Vec<Scratch>>,
    bands: usize,
    width: usize,
    renditions: usize,
}

impl Run<'_> {
    /// Sums one scale of these planes, the reference first, and computes the next one. Samples have `bits` bits; those
    /// above scale 0 have 16.
    fn scale<T: Sample, const SCALE: usize, const NEXT: usize>(
        &self,
        planes: &[Plane<T>],
        bits: u32,
        next: Option<&mut Octave>,
        sums: &mut [VifSums],
    ) {
        let height = planes[0].height();
        let rows = height.div_ceil(self.bands).next_multiple_of(ROWS);
        let mut parts: Vec<_> = (0..height).step_by(rows).map(|_| None).collect();
        if let Some(Octave { planes: next, stride, .. }) = next {
            for plane in next.iter_mut().take(planes.len()) {
                for (part, rows) in parts.iter_mut().zip(plane.chunks_mut(*stride * rows / 2)) {
                    let (planes, _) = part.get_or_insert_with(|| (vec![], *stride));
                    planes.push(rows);
                }
            }
        }
        let work = |(i, next): (usize, Option<Next<'_>>)| {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let taken = idle.pop();
            drop(idle);
            let mut scratch = taken
                .unwrap_or_else(|| Scratch::new(self.width, self.work.gain_limits.len(), self.renditions));
            let sums = band::<T, SCALE, NEXT>(
                self.level,
                Band {
                    level: self.level,
                    planes,
                    bits,
                    rows: i * rows..height.min((i + 1) * rows),
                    gain_limits: &self.work.gain_limits,
                    statistics: SCALE > 0 || self.work.scale0,
                    next,
                },
                &mut scratch,
            );
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
            sums
        };
        let bands: Vec<Vec<BandSums>> = parts.into_par_iter().enumerate().with_max_len(1).map(work).collect();
        for band in bands {
            for (sums, parts) in sums.iter_mut().zip(band) {
                for (sum, part) in sums.iter_mut().zip(parts) {
                    sum[SCALE] += part;
                }
            }
        }
    }
}

/// For each picture, the destination of a part's rows of the next scale, and their stride.
type Next<'a> = (Vec<&'a mut [u16]>, usize);

/// Sums of a part of a scale, for each gain limit.
type BandSums = Vec<VifScaleSums>;

/// A part of a scale for one thread.
struct Band<'a, T> {
    level: Level,
    /// Planes of the reference, which is the first, and of at least one distorted picture.
    planes: &'a [Plane<'a, T>],
    bits: u32,
    /// Rows of the part, which begins at a multiple of [`ROWS`].
    rows: Range<usize>,
    gain_limits: &'a [f64],
    statistics: bool,
    next: Option<Next<'a>>,
}

dispatch!(fn band[T: Sample, const SCALE: usize, const NEXT: usize](
    band: Band<'_, T>, scratch: &mut Scratch,
) -> Vec<BandSums> = process[T, SCALE, NEXT]);

/// Computes the sums of a band for each distorted picture.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process<V: Log2, T: Sample, const SCALE: usize, const NEXT: usize>(
    mut band: Band<'_, T>,
    scratch: &mut Scratch,
) -> Vec<BandSums> {
    let planes = band.planes;
    let (width, height) = (planes[0].width(), planes[0].height());
    let pair_count = const { FILTERS[SCALE].radius + 2 };
    let slot = slot(width);
    let ring = scratch.ring.as_mut_ptr().cast::<i32>();
    let first = (band.rows.start as isize - const { FILTERS[SCALE].radius as isize }) / 2;
    let mut sums = vec![vec![VifScaleSums::default(); band.gain_limits.len()]; planes.len() - 1];
    let mut ready = 0;
    // SAFETY: the CPU has the instructions, as the caller has promised. The ring holds PAIRS slots of the widest
    // scale for each picture; a slot covers the width rounded up to whole vectors. It is only read where it has been
    // written.
    unsafe {
        for y in band.rows.clone().step_by(ROWS) {
            let group = (y - band.rows.start) / 2;
            while ready < group + pair_count {
                let pair = 2 * (first + ready as isize);
                for (i, plane) in planes.iter().enumerate() {
                    let lines = [plane.row(mirror(pair, height)), plane.row(mirror(pair + 1, height))];
                    let at = ring.add((i * PAIRS + ready % pair_count) * slot);
                    interleave::<V, T>(at, lines, plane.pair_ahead(pair), band.bits);
                }
                ready += 1;
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                if i == 0 {
                    four_rows::<T, SCALE, NEXT, true>(band.level, &mut band, scratch, 1, y, sums);
                } else {
                    four_rows::<T, SCALE, NEXT, false>(band.level, &mut band, scratch, 1 + i, y, sums);
                }
            }
        }
    }
    if let Some((first, others)) = sums.split_first_mut() {
        for (sum, first) in others.iter_mut().flat_map(|sums| sums.iter_mut().zip(&*first)) {
            (sum.den_log, sum.flat_count) = (first.den_log, first.flat_count);
        }
    }
    sums
}

// Kept apart from the function around it, which would contain it twice: compilers would need far longer for that.
dispatch!(vnni fn four_rows[T: Sample, const SCALE: usize, const NEXT: usize, const FIRST: bool](
    band: &mut Band<'_, T>, scratch: &mut Scratch, i: usize, y: usize, sums: &mut [VifScaleSums],
) -> () = process_four_rows[T, SCALE, NEXT, FIRST]);

/// Decimates four rows from `y` on, and sums them for distorted picture `i`, which is 1 for the first.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process_four_rows<V: Log2, T: Sample, const SCALE: usize, const NEXT: usize, const FIRST: bool>(
    band: &mut Band<'_, T>,
    scratch: &mut Scratch,
    i: usize,
    y: usize,
    sums: &mut [VifScaleSums],
) {
    let (width, bits) = (band.planes[0].width(), band.bits);
    let stride = row_stride(width);
    let rows = scratch.rows.as_mut_ptr().cast::<u16>();
    let kept = (band.planes.len() > 2).then(|| scratch.kept.as_mut_ptr().cast::<i32>());
    let (pair_count, group) = (const { FILTERS[SCALE].radius + 2 }, (y - band.rows.start) / 2);
    let slot = slot(width);
    let ring = scratch.ring.as_ptr().cast::<i32>();
    let mut pairs = [ring; PAIRS];
    for (s, pair) in pairs[..pair_count].iter_mut().enumerate() {
        *pair = ring.wrapping_add((group + s) % pair_count * slot);
    }
    let pairs = Pairs { reference: &pairs, apart: i * PAIRS * slot };
    // SAFETY: the CPU has the instructions, as the caller has promised. The ring holds PAIRS slots for each picture,
    // and the rows hold ROWS * PLANES strides of the widest scale; a stride covers the width rounded up to whole
    // vectors and PAD samples more on either side. Both are only read where they have been written (or zeroed when
    // they were made). For several distorted pictures ROWS strides are kept.
    unsafe {
        if let Some((planes, next_stride)) = &mut band.next {
            let at = group * *next_stride;
            decimate::<V, SCALE, NEXT, FIRST>(pairs, rows, width, bits, (planes, i), at, *next_stride);
        }
        if band.statistics {
            for x in (0..width).step_by(2 * V::N) {
                if size_of::<T>() == 1 {
                    vertical8::<V, FIRST>(pairs, x, rows.add(PAD + x), stride);
                } else {
                    vertical16::<V, SCALE, FIRST>(pairs, x, rows.add(PAD + x), stride, bits);
                }
            }
            for row in 0..ROWS.min(band.rows.end - y) {
                let from = rows.add(row * PLANES * stride + PAD);
                for plane in 0..PLANES {
                    extend(from.add(plane * stride), width, FILTERS[SCALE].radius);
                }
                let kept = kept.map(|kept| kept.wrapping_add(row * kept_stride(width)));
                let numerators = scratch.numerators.as_mut_ptr().cast::<i32>();
                statistics::<V, SCALE, FIRST>(from, stride, width, kept, band.gain_limits, numerators, sums);
            }
        }
    }
}

#[cfg(test)]
mod naive;

#[cfg(test)]
mod tests {
    use super::naive::naive;
    use super::*;
    use crate::backend::cpu::tests::{Picture, content, group, planes, synthetic};
    use crate::metrics::vif::VifOptions;

    fn run(level: Level, pictures: &[Picture], work: &VifWork, bands: usize) -> Vec<VifSums> {
        let Picture { width, height, depth, .. } = pictures[0];
        let mut vif = Vif::new(work, width, height, depth, 3).unwrap();
        planes!(pictures, |p| vif.compute(level, bands, p[0], &p[1..]).unwrap())
    }

    fn check(pair: &[Picture; 2], work: &VifWork, bands: usize) {
        let pictures = group(pair);
        let expected = [1, 2, 3].map(|i| naive([&pictures[0], &pictures[i]], work));
        for level in Level::available() {
            for n in 1..=expected.len() {
                let (w, h, depth) = (pair[0].width, pair[0].height, pair[0].depth);
                let found = run(level, &pictures[..=n], work, bands);
                assert_eq!(found, expected[..n], "{level:?} {w}x{h} {depth:?} {bands}");
            }
        }
    }

    #[test]
    fn known_sums_of_synthetic_frames() {
        let work = VifWork { gain_limits: vec![100.0], scale0: true };
        let expected = [
            (8, [0.5683950185775757, 0.99435955286026, 0.9979311227798462, 0.9983858466148376]),
            (10, [0.37429991364479065, 0.9960730075836182, 0.9988610744476318, 0.9984826445579529]),
            (12, [0.17268498241901398, 0.993869960308075, 0.9963793754577637, 0.9963874220848083]),
            (16, [0.997290313243866, 0.999994695186615, 0.9999958872795105, 0.9999945163726807]),
        ];
        for level in Level::available() {
            for (bits, scores) in expected {
                let sums = run(level, &synthetic(0, bits), &work, 3);
                assert_eq!(VifOptions::default().scores(&sums[0][0]), scores, "{level:?} {bits}");
            }
        }
    }

    #[test]
    fn equals_the_specification_at_every_size() {
        let work = VifWork { gain_limits: vec![100.0], scale0: true };
        let sizes = (16..=71).flat_map(|n| [(n, 16 + n % 7), (16 + n % 5, n)]);
        for (i, (width, height)) in sizes.enumerate() {
            let bits = [8, 10, 12, 16][i / 2 % 4];
            check(&content(i, width, height, bits), &work, 1 + i % 5);
        }
    }

    #[test]
    fn equals_the_specification_for_all_content_depths_and_limits() {
        let work = VifWork { gain_limits: vec![1.0, 100.0, 1.2], scale0: true };
        for i in 0..48 {
            check(&content(i, 67, 34, 8 + i as u32 % 9), &work, 2);
        }
        check(&content(0, 67, 34, 8), &VifWork { scale0: false, ..work }, 1);
    }

    #[test]
    fn frames_of_another_size_are_refused() {
        let work = VifWork { gain_limits: vec![100.0], scale0: true };
        let [r, d] = content(0, 32, 24, 8);
        let mut vif = Vif::new(&work, 24, 32, r.depth, 1).unwrap();
        assert_eq!(vif.compute(Level::detect(), 1, r.bytes().plane(), &[d.bytes().plane()]), None);
    }

    #[test]
    fn too_small_frames_are_refused() {
        let work = VifWork { gain_limits: vec![100.0], scale0: true };
        let depth = BitDepth::new(8).unwrap();
        assert!(Vif::new(&work, 16, 15, depth, 1).is_none());
        assert!(Vif::new(&work, 15, 16, depth, 1).is_none());
    }
}
