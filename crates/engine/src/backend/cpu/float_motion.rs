// SPDX-License-Identifier: MPL-2.0

//! Differences of blurred pictures, by the definition of `metrics/float_motion.rs`.
//!
//! The loops over the columns of a row have no branches, so the compiler vectorises them.

use rayon::prelude::*;

use super::filter::mirror;
use super::image::{Centred, Image};
use super::metric::{Metric, Pictures, Setup, typed};
use super::ordered::{ROWS, Terms, total};
use super::simd::{Lanes, Level, dispatch};
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Plane, PlaneGroup, Sample};
use crate::metrics;
use crate::metrics::float_motion::{Difference, Filter, FloatMotionSums, FloatMotionWork, TAPS, half, mean};
use crate::metrics::speed::{self, Method};

/// Rows of a part.
const BAND: usize = 32;
/// Rows and columns around a sample that its filter reads.
const REACH: usize = TAPS / 2;

/// A filtered plane, row by row.
struct Blurred {
    width: usize,
    values: Vec<f32>,
}

impl Blurred {
    /// Filters a plane. Runs in the current rayon pool.
    fn new<T: Sample>(level: Level, plane: Plane<'_, T>, filter: Filter, unit: f32) -> Self {
        let picture = Centred::new(plane, unit);
        let (width, height) = picture.size();
        let mut values = vec![0.0; width * height];
        let bands = values.par_chunks_mut(width * BAND).with_max_len(1).enumerate();
        bands.for_each(|(i, out)| blur::<T>(level, picture, i * BAND, filter.taps(), out));
        Self { width, values }
    }

    fn height(&self) -> usize {
        self.values.len() / self.width
    }

    /// Returns the plane at half its size.
    fn halved(&self) -> Self {
        let [x, y] = [self.width, self.height()].map(|n| speed::resampled(Method::Bilinear, n, half(n)));
        let row = |rows: &[speed::Sample]| {
            x.chunks_exact(2).map(|columns| self.at(columns, rows)).collect::<Vec<_>>()
        };
        Self { width: half(self.width), values: y.par_chunks_exact(2).flat_map_iter(row).collect() }
    }

    /// Interpolates between samples.
    fn at(&self, columns: &[speed::Sample], rows: &[speed::Sample]) -> f32 {
        let mut sum = 0.0;
        for y in rows {
            for x in columns {
                sum += y.weight * x.weight * self.values[y.index as usize * self.width + x.index as usize];
            }
        }
        sum
    }

    /// Returns the mean absolute difference to another plane of the same size.
    fn difference(&self, level: Level, other: &Self) -> f32 {
        let part = |(a, b): (&[f32], &[f32])| sad(level, a, b, self.width);
        let size = self.width * BAND;
        let bands: Vec<_> =
            self.values.par_chunks(size).zip(other.values.par_chunks(size)).map(part).collect();
        mean(total(bands.iter().flatten()), (self.width, self.height()))
    }
}

/// Computes a difference of two planes.
fn difference<T: Sample>(level: Level, planes: [Plane<'_, T>; 2], kind: Difference, unit: f32) -> f32 {
    let [a, b] = planes;
    if kind.half {
        let [a, b] = planes.map(|plane| Blurred::new(level, plane, kind.filter, unit));
        return of_blurred(level, &a, &b, true);
    }
    let bands = a.height().div_ceil(BAND);
    let pictures = planes.map(|plane| Centred::new(plane, unit));
    let part = |i| band::<T>(level, pictures, i * BAND, kind.filter.taps());
    let rows: Vec<_> = (0..bands).into_par_iter().with_max_len(1).map(part).collect();
    mean(total(rows.iter().flatten()), (b.width(), b.height()))
}

/// Computes the difference of two filtered planes, to which that of their halves is added if `half`.
fn of_blurred(level: Level, a: &Blurred, b: &Blurred, half: bool) -> f32 {
    let difference = a.difference(level, b);
    if half { difference + a.halved().difference(level, &b.halved()) } else { difference }
}

dispatch!(fn band[T: Sample](
    pictures: [Centred<'_, T>; 2], from: usize, taps: [f32; TAPS],
) -> Vec<f32> = process[T]);

/// Returns the sums of the absolute differences of the rows from `from` on.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process<V: Lanes, T: Sample>(
    pictures: [Centred<'_, T>; 2],
    from: usize,
    taps: [f32; TAPS],
) -> Vec<f32> {
    let (width, height) = pictures[0].size();
    let mut values = [vec![], vec![]];
    for side in 0..2 {
        values[side] = vec![0.0; width * (height.min(from + BAND) - from)];
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe { blur_rows::<V, T>(pictures[side], from, taps, &mut values[side]) };
    }
    // SAFETY: as above.
    unsafe { differences::<V>(&values[0], &values[1], width) }
}

dispatch!(fn blur[T: Sample](
    picture: Centred<'_, T>, from: usize, taps: [f32; TAPS], out: &mut [f32],
) -> () = blur_rows[T]);

/// Filters the rows from `from` on that fill `out`.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn blur_rows<V: Lanes, T: Sample>(
    picture: Centred<'_, T>,
    from: usize,
    taps: [f32; TAPS],
    out: &mut [f32],
) {
    let (width, height) = picture.size();
    let mut lines: [Vec<f32>; TAPS] = std::array::from_fn(|_| vec![0.0; width]);
    let mut column = vec![0.0; width + 2 * REACH];
    let mut ready = 0;
    for (row, out) in out.chunks_exact_mut(width).enumerate() {
        while ready < row + TAPS {
            let y = mirror((from + ready) as isize - REACH as isize, height);
            picture.read(y, &mut lines[ready % TAPS]);
            ready += 1;
        }
        let mut rows = [&lines[0][..]; TAPS];
        for k in 0..TAPS {
            rows[k] = &lines[(row + k) % TAPS];
        }
        filter(rows, taps, &mut column[REACH..][..width]);
        for i in 1..=REACH {
            column[REACH - i] = column[REACH + i];
            column[REACH + width - 1 + i] = column[REACH + width - 1 - i];
        }
        let mut columns = [&column[..]; TAPS];
        for k in 0..TAPS {
            columns[k] = &column[k..];
        }
        filter(columns, taps, out);
    }
}

/// Adds the products of five lines with the taps.
#[inline(always)]
fn filter(lines: [&[f32]; TAPS], taps: [f32; TAPS], to: &mut [f32]) {
    let n = to.len();
    let mut values = lines;
    for k in 0..TAPS {
        values[k] = &lines[k][..n];
    }
    for x in 0..n {
        let mut sum = 0.0;
        for k in 0..TAPS {
            sum += taps[k] * values[k][x];
        }
        to[x] = sum;
    }
}

dispatch!(fn sad[](a: &[f32], b: &[f32], width: usize) -> Vec<f32> = differences[]);

/// Returns the sums of the absolute differences of rows.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn differences<V: Lanes>(a: &[f32], b: &[f32], width: usize) -> Vec<f32> {
    let mut terms = Terms::new(width);
    let rows = a.len() / width;
    let mut sums = Vec::with_capacity(rows);
    for (row, (a, b)) in a.chunks_exact(width).zip(b.chunks_exact(width)).enumerate() {
        for ((to, a), b) in terms.row(row % ROWS).iter_mut().zip(a).zip(b) {
            *to = (a - b).abs();
        }
        if row % ROWS == ROWS - 1 || row == rows - 1 {
            sums.extend(&terms.sums()[..row % ROWS + 1]);
        }
    }
    sums
}

/// Filtered Cb and Cr of a picture.
type Chroma = [Blurred; 2];

/// Motion of the reference, which all distorted pictures of a group share.
pub struct FloatMotion {
    work: FloatMotionWork,
    /// Cb and Cr of the present and of the previous group for each kind of difference, as far as they are needed.
    chroma: Vec<[Option<Chroma>; 2]>,
    /// Number of the next group in the run.
    next: usize,
}

impl FloatMotion {
    /// Computes a difference to the picture before.
    fn compare(&self, pictures: &Pictures<'_>, index: usize) -> Option<f64> {
        let Pictures { level, depth, .. } = *pictures;
        let (pair, kind, unit) = (*pictures.earlier.first()?, self.work[index], depth.unit());
        let luma = typed!(PlanePair: pair, |a, b| difference(level, [a, b], kind, unit));
        let mut sum = f64::from(luma);
        if kind.chroma {
            let [Some(present), Some(previous)] = &self.chroma[index] else { return None };
            for (a, b) in previous.iter().zip(present) {
                sum += f64::from(of_blurred(level, a, b, kind.half));
            }
        }
        Some(sum)
    }
}

impl Metric for FloatMotion {
    type Of = metrics::float_motion::FloatMotion;
    const HISTORY: bool = true;

    fn prepare(work: &FloatMotionWork, _setup: &Setup) -> Result<Self, BackendError> {
        Ok(Self { work: work.clone(), chroma: work.iter().map(|_| [None, None]).collect(), next: 0 })
    }

    fn remember(&mut self, pictures: &Pictures<'_>) {
        let goes_on = pictures.run > 0 && pictures.run == self.next;
        let Pictures { level, depth, .. } = *pictures;
        for (kind, kept) in self.work.iter().zip(&mut self.chroma).filter(|(kind, _)| kind.chroma) {
            let blurred = |planes: &PlaneGroup<'_>| typed!(PlaneGroup: planes, |plane, _| Blurred::new(level, *plane, kind.filter, depth.unit()));
            kept[1] = kept[0].take().filter(|_| goes_on);
            kept[0] = pictures.chroma.as_ref().map(|chroma| chroma.each_ref().map(blurred));
        }
        self.next = pictures.run + 1;
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<FloatMotionSums>> {
        let sums: Vec<_> = (0..self.work.len()).map(|index| self.compare(pictures, index)).collect();
        Some(vec![sums; pictures.distorted()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::tests::{Picture, content, planes};

    /// Computes the definition in plain loops.
    fn naive(pictures: &[Picture; 2], kind: Difference) -> f32 {
        let (width, height) = (pictures[0].width, pictures[0].height);
        let taps = kind.filter.taps();
        let blurred = pictures.each_ref().map(|picture| {
            let scale = 2f32.powi(picture.depth.bits() as i32 - 8);
            let samples: Vec<_> =
                picture.samples().into_iter().map(|v| f32::from(v) / scale - 128.0).collect();
            let along = |values: &[f32], dx: usize, dy: usize| -> Vec<f32> {
                let at =
                    |i: usize, k: usize, n: usize| if n > 1 { mirror((i + k) as isize - 2, n) } else { i };
                let value = |i: usize| {
                    let (x, y) = (i % width, i / width);
                    (0..TAPS).fold(0f32, |sum, k| {
                        let (x, y) = if dx == 1 { (at(x, k, width), y) } else { (x, at(y, k, height)) };
                        sum + taps[k] * values[y * width + x]
                    })
                };
                assert_eq!(dx + dy, 1);
                (0..values.len()).map(value).collect()
            };
            along(&along(&samples, 0, 1), 1, 0)
        });
        let difference = |planes: [&[f32]; 2], width: usize| {
            let rows = planes[0].chunks(width).zip(planes[1].chunks(width));
            let row =
                |(a, b): (&[f32], &[f32])| a.iter().zip(b).fold(0f32, |sum, (a, b)| sum + (a - b).abs());
            rows.map(row).fold(0f32, |sum, row| sum + row) / planes[0].len() as f32
        };
        let full = difference(blurred.each_ref().map(|plane| &plane[..]), width);
        if !kind.half {
            return full;
        }
        let (w, h) = (half(width), half(height));
        let halved = blurred.each_ref().map(|plane| -> Vec<f32> {
            let place = |i: usize, from: usize, to: usize| {
                let at = ((i as f64 + 0.5) * f64::from(from as f32 / to as f32) - 0.5) as f32;
                let (low, high) = (at.floor() as usize, (at.ceil() as usize).min(from - 1));
                (low, high, at - low as f32)
            };
            let value = |i: usize| {
                let ((x1, x2, dx), (y1, y2, dy)) = (place(i % w, width, w), place(i / w, height, h));
                let at = |x: usize, y: usize| plane[y * width + x];
                (1.0 - dy) * (1.0 - dx) * at(x1, y1)
                    + (1.0 - dy) * dx * at(x2, y1)
                    + dy * (1.0 - dx) * at(x1, y2)
                    + dy * dx * at(x2, y2)
            };
            (0..w * h).map(value).collect()
        });
        full + difference(halved.each_ref().map(|plane| &plane[..]), w)
    }

    #[test]
    fn equals_the_definition_at_every_size_and_depth() {
        let sizes = (3..=40).flat_map(|n| [(n, 3 + n % 7), (3 + n % 5, n), (n, 31 + n % 5)]);
        for (i, (width, height)) in sizes.chain([(131, 200)]).enumerate() {
            let filter = [Filter::Five, Filter::Three, Filter::None][i % 3];
            for bits in [8, 9 + i as u32 % 8, 16] {
                let kind = Difference { filter, half: i % 2 == 1, chroma: false };
                let pictures = content(i, width, height, bits);
                let expected = naive(&pictures, kind);
                for level in Level::available() {
                    let unit = pictures[0].depth.unit();
                    let found =
                        planes!(&pictures, |planes| difference(level, [planes[0], planes[1]], kind, unit));
                    assert_eq!(found, expected, "{level:?} {width}x{height} {bits} {kind:?}");
                }
            }
        }
    }
}
