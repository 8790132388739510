// SPDX-License-Identifier: MPL-2.0

//! Scales pictures to the size of the reference, as defined in [`crate::scale`].
//!
//! Bands of output rows run in parallel. Each keeps as many filtered source rows as one output row needs. Along a row,
//! two neighbouring samples are multiplied at a time as signed 16-bit numbers. This subtracts 2^15 from each sample and
//! thus a constant from each sum.

use rayon::prelude::*;

use super::simd::{Lanes, Level, dispatch};
use crate::backend::cpu::plane::{AnyPlane, Frame, Plane, Row, Sample};
use crate::frame::BitDepth;
use crate::scale::{Axis, ONE, Scaling, shifts};

/// Columns are rounded up to a multiple of this, the lanes of the widest vectors.
const BLOCK: usize = 16;

/// Columns of the output, laid out for vectors.
struct Columns {
    /// The first source column of each output column.
    first: Vec<i32>,
    /// Weights of two neighbouring source samples in each number, the first one in its low half: first the weights of
    /// the first two samples for all output columns, then those of the next two, and so on.
    weights: Vec<Vec<i32>>,
}

impl Columns {
    fn new(axis: &Axis) -> Self {
        let stride = axis.len().next_multiple_of(BLOCK);
        let mut first = vec![0; stride];
        let mut weights = vec![vec![0; stride]; axis.taps().div_ceil(2)];
        for x in 0..axis.len() {
            first[x] = axis.first(x) as i32;
            for (k, weight) in axis.weights(x).iter().enumerate() {
                weights[k / 2][x] |= i32::from(*weight as u16) << (16 * (k % 2));
            }
        }
        Self { first, weights }
    }
}

/// Tables for planes of one size.
struct Tables {
    source: (usize, usize),
    width: usize,
    columns: Columns,
    rows: Axis,
    depth: BitDepth,
}

impl Tables {
    fn new(source: (usize, usize), [columns, rows]: [Axis; 2], depth: BitDepth) -> Self {
        Self { source, width: columns.len(), columns: Columns::new(&columns), rows, depth }
    }
}

/// Samples of one scaled plane.
#[derive(Default)]
struct Scratch {
    bytes: Vec<u8>,
    words: Vec<u16>,
}

/// Memory for a scaled picture.
#[derive(Default)]
pub struct Scaled([Scratch; 3]);

/// Scales the pictures of one rendition.
pub struct Scaler {
    luma: Tables,
    chroma: Option<Tables>,
}

impl Scaler {
    /// Creates the tables for the part of the picture that the scaling uses.
    pub fn new(scaling: &Scaling) -> Self {
        let source = scaling.source();
        let luma = Tables::new((source.width, source.height), scaling.luma(), source.depth);
        let chroma = source.chroma.zip(scaling.chroma());
        let chroma = chroma.map(|(size, axes)| Tables::new(size, axes, source.depth));
        Self { luma, chroma }
    }

    /// Scales a picture in the current rayon pool, each plane in `bands` bands. Returns `None` if it does not have the
    /// prepared size.
    pub fn scale<'a>(
        &self,
        level: Level,
        bands: usize,
        frame: &Frame<'_>,
        to: &'a mut Scaled,
    ) -> Option<Frame<'a>> {
        let [y, cb, cr] = &mut to.0;
        let run = Run { level, bands };
        let luma = run.plane(&self.luma, frame.luma, y)?;
        let chroma = match (&self.chroma, frame.chroma) {
            (Some(tables), Some([b, r])) => Some([run.plane(tables, b, cb)?, run.plane(tables, r, cr)?]),
            _ => None,
        };
        Some(Frame { luma, chroma })
    }
}

/// How the planes of a picture are scaled.
struct Run {
    level: Level,
    bands: usize,
}

impl Run {
    fn plane<'a>(&self, tables: &Tables, plane: AnyPlane<'_>, to: &'a mut Scratch) -> Option<AnyPlane<'a>> {
        match plane {
            AnyPlane::U8(plane) => self.samples(tables, plane, &mut to.bytes).map(AnyPlane::U8),
            AnyPlane::U16(plane) => self.samples(tables, plane, &mut to.words).map(AnyPlane::U16),
        }
    }

    fn samples<'a, T: Sample>(
        &self,
        tables: &Tables,
        plane: Plane<'_, T>,
        to: &'a mut Vec<T>,
    ) -> Option<Plane<'a, T>> {
        let (width, height) = (tables.width, tables.rows.len());
        ((plane.width(), plane.height()) == tables.source).then_some(())?;
        to.resize(width * height, T::default());
        let rows = height.div_ceil(self.bands);
        to.par_chunks_mut(rows * width)
            .enumerate()
            .for_each(|(i, to)| band::<T>(self.level, tables, plane, i * rows, to));
        Plane::new(to, width, height, width)
    }
}

dispatch!(fn band[T: Sample](tables: &Tables, plane: Plane<'_, T>, from: usize, to: &mut [T]) -> ()
    = scale_band[T]);

/// Scales the output rows from `from` on.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn scale_band<V: Lanes, T: Sample>(tables: &Tables, plane: Plane<'_, T>, from: usize, to: &mut [T]) {
    let Tables { width, columns, rows, depth, .. } = tables;
    let shifts = shifts(*depth);
    let stride = columns.first.len();
    let mut pairs = vec![0; plane.width()];
    let mut line = vec![0; stride];
    // Source row y is kept at y modulo the number of rows.
    let mut kept = vec![0; rows.taps() * stride];
    let mut weighted = vec![(0, 0); rows.taps()];
    let mut next = 0;
    for (y, to) in (from..).zip(to.chunks_mut(*width)) {
        let first = rows.first(y);
        for y in first.max(next)..first + rows.taps() {
            let kept = &mut kept[y % rows.taps() * stride..][..stride];
            // SAFETY: the CPU has the instructions, as the caller has promised. All windows lie inside the row.
            unsafe { filter_row::<V, T>(plane.row(y), columns, shifts[0], &mut pairs, kept) };
        }
        next = first + rows.taps();
        for (k, (weighted, weight)) in weighted.iter_mut().zip(rows.weights(y)).enumerate() {
            *weighted = ((first + k) % rows.taps() * stride, i32::from(*weight));
        }
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe { filter_columns::<V>(&kept, &weighted, shifts[1], depth.max() as i32, &mut line) };
        for (to, sample) in to.iter_mut().zip(&line) {
            *to = T::low(*sample);
        }
    }
}

/// Filters a source row into the columns of the output.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. The windows of all columns must lie inside the row, whose pairs there
/// must be as many of.
#[inline(always)]
unsafe fn filter_row<V: Lanes, T: Sample>(
    row: Row<'_, T>,
    columns: &Columns,
    shift: u32,
    pairs: &mut [u32],
    to: &mut [i32],
) {
    let sample = |sample: T| Into::<u32>::into(row.clamp(sample));
    let signed = |low: T, high: T| (sample(low) | sample(high) << 16) ^ 0x8000_8000;
    for (pair, two) in pairs.iter_mut().zip(row.memory().windows(2)) {
        *pair = signed(two[0], two[1]);
    }
    if let (Some(pair), Some(last)) = (pairs.last_mut(), row.memory().last()) {
        // Its other half is multiplied only with weights of 0.
        *pair = signed(*last, *last);
    }
    for (i, to) in to.chunks_exact_mut(V::N).enumerate() {
        let x = i * V::N;
        // SAFETY: the CPU has the instructions, as the caller has promised; tables have whole vectors, and windows
        // lie inside the row.
        unsafe {
            let first = V::load(columns.first[x..x + V::N].as_ptr());
            let mut sum = V::splat((ONE << 15) + (1 << (shift - 1)));
            for (k, weights) in columns.weights.iter().enumerate() {
                let samples = V::gather(pairs.as_ptr(), V::add(first, V::splat(2 * k as i32)));
                sum = V::add(sum, V::madd16(samples, V::load(weights[x..x + V::N].as_ptr())));
            }
            V::store(to.as_mut_ptr(), V::sra_by(sum, shift));
        }
    }
}

/// Computes an output row from the kept rows that it needs and their weights.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn filter_columns<V: Lanes>(
    kept: &[i32],
    weighted: &[(usize, i32)],
    shift: u32,
    max: i32,
    to: &mut [i32],
) {
    for (i, to) in to.chunks_exact_mut(V::N).enumerate() {
        let x = i * V::N;
        // SAFETY: the CPU has the instructions, as the caller has promised; rows have whole vectors.
        unsafe {
            let mut sum = V::splat(1 << (shift - 1));
            for (row, weight) in weighted {
                let samples = V::load(kept[row + x..row + x + V::N].as_ptr());
                sum = V::add(sum, V::mul(samples, V::splat(*weight)));
            }
            let sample = V::max(V::min(V::sra_by(sum, shift), V::splat(max)), V::splat(0));
            V::store(to.as_mut_ptr(), sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backend::cpu::tests::{Picture, content};
    use crate::frame::Geometry;
    use crate::scale::Method;

    /// Computes the definition sample by sample.
    fn naive(samples: &[u16], width: usize, [columns, rows]: &[Axis; 2], depth: BitDepth) -> Vec<u16> {
        let rounded = |sum: i64, shift: u32| (sum + (1 << (shift - 1))) >> shift;
        let sum = |axis: &Axis, i: usize, at: &dyn Fn(usize) -> i64| -> i64 {
            let weights = axis.weights(i).iter().enumerate();
            weights.map(|(k, weight)| i64::from(*weight) * at(axis.first(i) + k)).sum()
        };
        let [along, down] = shifts(depth);
        let filtered =
            |x: usize, y: usize| rounded(sum(columns, x, &|x| i64::from(samples[y * width + x])), along);
        let sample =
            |x, y| rounded(sum(rows, y, &|y| filtered(x, y)), down).clamp(0, depth.max().into()) as u16;
        (0..rows.len())
            .flat_map(|y| (0..columns.len()).map(move |x| (x, y)))
            .map(|(x, y)| sample(x, y))
            .collect()
    }

    fn check(method: Method, picture: &Picture, (width, height): (usize, usize), bands: usize) {
        let depth = picture.depth;
        let geometry = |width, height| Geometry { width, height, depth, chroma: None };
        let source = geometry(picture.width, picture.height);
        let scaling = Scaling::new(method, source, geometry(width, height), (true, false)).unwrap();
        let expected = naive(&picture.samples(), picture.width, &scaling.luma(), depth);
        let scaler = Scaler::new(&scaling);
        let (bytes, words) = (picture.bytes(), picture.words());
        for level in Level::available() {
            let luma = match depth.bits() {
                8 => AnyPlane::U8(bytes.plane()),
                _ => AnyPlane::U16(words.plane()),
            };
            let mut scaled = Scaled::default();
            let frame = Frame { luma, chroma: None };
            let found = match scaler.scale(level, bands, &frame, &mut scaled).unwrap().luma {
                AnyPlane::U8(plane) => (0..height).flat_map(|y| plane.row(y).iter()).map(u16::from).collect(),
                AnyPlane::U16(plane) => (0..height).flat_map(|y| plane.row(y).iter()).collect::<Vec<_>>(),
            };
            assert_eq!(found, expected, "{level:?} {scaling:?}");
        }
    }

    const METHODS: [Method; 3] = [Method::Bilinear, Method::Bicubic, Method::Lanczos];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn equals_the_definition_at_every_size_and_depth(
            (seed, method) in (0..16usize, 0..3usize),
            from in (16..90usize, 16..90usize),
            to in (16..90usize, 16..90usize),
            (bits, bands) in (8..17u32, 1..20usize),
        ) {
            let [picture, _] = content(seed, from.0, from.1, bits);
            check(METHODS[method], &picture, to, bands);
        }
    }

    /// Black and white at the steepest edges overshoot most.
    #[test]
    fn the_largest_sums_fit() {
        for method in METHODS {
            for (from, to) in [((16, 256), (256, 16)), ((256, 16), (16, 256)), ((31, 33), (47, 77))] {
                for step in 1..4 {
                    let steps =
                        Picture::new(from.0, from.1, 16, |x, y| 0xffff * ((x / step + y / step) % 2) as u32);
                    check(method, &steps, to, 3);
                }
            }
        }
    }
}
