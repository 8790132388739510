// SPDX-License-Identifier: MPL-2.0

//! Activities and squared errors of blocks, for XPSNR.
//!
//! Four rows are processed together from left to right. Sums of two neighbouring columns are kept in 32-bit lanes, which
//! belong to one block, as blocks begin at even columns.

use std::sync::Arc;

use rayon::prelude::*;

use super::filter::{BLOCK, load_samples};
use super::metric::{Metric, Pictures, Setup};
use super::simd::{Lanes, Level, dispatch};
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Plane, PlaneGroup, PlanePair, Row, Sample};
use crate::metrics;
use crate::metrics::xpsnr::{Activity, BlockPlane, Blocks, Weighing, XpsnrSums, XpsnrWork};

/// Rows that are processed together. Blocks of luma have a multiple of them.
const GROUP: usize = 4;
/// Rows of 8-bit samples whose squared errors fit the sum in a 32-bit lane: two in each row, below 2^16 each.
const MOST_ROWS: usize = 1 << 12;

/// The luma of the reference, and what its activities depend on.
struct Input<'a, T> {
    blocks: &'a Blocks,
    luma: Plane<'a, T>,
    /// The luma of the picture before, and of that before it; `None` for a black one.
    earlier: [Option<Plane<'a, T>>; 2],
    second_order: bool,
    masks: &'a Masks,
}

/// Columns of luma, for whole vectors.
struct Masks {
    /// All bits in columns with spatial activity, none in others.
    inside: Vec<u16>,
    /// One in columns of the picture, zero in those after it.
    present: Vec<u16>,
}

impl Masks {
    fn new(blocks: &Blocks) -> Self {
        let (width, border) = (blocks.luma.whole.0, blocks.step);
        let columns = 0..width.next_multiple_of(BLOCK);
        let inside = |x: usize| x >= border && x + border < width;
        Self {
            inside: columns.clone().map(|x| if inside(x) { u16::MAX } else { 0 }).collect(),
            present: columns.map(|x| u16::from(x < width)).collect(),
        }
    }
}

/// Sums of pairs of columns.
struct Pairs(Vec<i32>);

impl Pairs {
    fn new(columns: usize) -> Self {
        Self(vec![0; columns.next_multiple_of(BLOCK) / 2])
    }

    /// Adds to the sums from column `x` on.
    ///
    /// # Safety
    ///
    /// The CPU must have the instructions of `V`.
    #[inline(always)]
    unsafe fn add<V: Lanes>(&mut self, x: usize, sums: V::I) {
        let to = &mut self.0[x / 2..][..V::N];
        // SAFETY: the CPU has the instructions, as the caller has promised, and N numbers are there.
        unsafe { V::store(to.as_mut_ptr(), V::add(V::load(to.as_ptr()), sums)) };
    }

    /// Adds the sums of the first `columns` to those of blocks of this width, and starts again from zero.
    fn move_to(&mut self, columns: usize, block: usize, sums: impl Iterator<Item = u64>) -> Vec<u64> {
        let pairs = self.0[..columns.div_ceil(2)].chunks(block.div_ceil(2));
        let total = |pairs: &[i32]| pairs.iter().map(|pair| u64::from(*pair as u32)).sum::<u64>();
        let sums =
            sums.zip(pairs.map(total).chain(std::iter::repeat(0))).map(|(sum, more)| sum + more).collect();
        self.0.fill(0);
        sums
    }
}

/// Loads `2 N` samples of a row from column `x`. Before its beginning and after its end, the edge samples are repeated.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn load_edged<V: Lanes, T: Sample>(row: Row<'_, T>, x: isize) -> V::I {
    let memory = row.memory();
    let inside = x >= 0 && x as usize + 2 * V::N <= memory.len();
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe {
        if inside {
            return load_samples::<V, T>(row, x as usize);
        }
        let edged = edged(row, x);
        load_samples::<V, T>(Row::new(&edged), 0)
    }
}

/// Returns samples of a row that [`load_edged`] cannot load at once.
#[cold]
fn edged<T: Sample>(row: Row<'_, T>, x: isize) -> [T; BLOCK] {
    let last = row.len() as isize - 1;
    std::array::from_fn(|i| row.at((x + i as isize).clamp(0, last) as usize))
}

/// Successive rows.
type Rows<'a, T, const N: usize> = [Row<'a, T>; N];

/// Returns `N` rows from row `y` on; above and below the plane, those at its edge.
#[inline(always)]
fn rows<T: Sample, const N: usize>(plane: Plane<'_, T>, y: isize) -> Rows<'_, T, N> {
    let last = plane.height() as isize - 1;
    std::array::from_fn(|i| plane.row((y + i as isize).clamp(0, last) as usize))
}

/// Sums the high pass of single samples at `2 N` columns of those of four rows that `inside` selects. `rows` begins one row
/// above. 8 bits.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn single_bytes<V: Lanes, T: Sample>(
    rows: &Rows<'_, T, 6>,
    x: usize,
    inside: [bool; GROUP],
    mask: V::I,
) -> V::I {
    let x = x as isize;
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe {
        let (mut blurred, mut centres) = ([V::splat(0); 6], [V::splat(0); 6]);
        for i in 0..6 {
            centres[i] = load_edged::<V, T>(rows[i], x);
            let beside = V::add16(load_edged::<V, T>(rows[i], x - 1), load_edged::<V, T>(rows[i], x + 1));
            blurred[i] = V::add16(beside, V::add16(centres[i], centres[i]));
        }
        let mut sum = V::splat(0);
        for i in 0..GROUP {
            if inside[i] {
                let middle = V::add16(blurred[i + 1], blurred[i + 1]);
                let blur = V::add16(V::add16(blurred[i], blurred[i + 2]), middle);
                // The samples have 8 bits, so none is shifted into the next lane.
                sum = V::add16(sum, V::abs16(V::sub16(V::shl::<4>(centres[i + 1]), blur)));
            }
        }
        V::madd16(V::and(sum, mask), V::splat16(1))
    }
}

/// Does the same for deeper samples.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn single_words<V: Lanes, T: Sample>(
    rows: &Rows<'_, T, 6>,
    x: usize,
    inside: [bool; GROUP],
    mask: V::I,
) -> V::I {
    /// Returns taps of two columns as a number.
    const fn taps(left: i32, right: i32) -> i32 {
        left & 0xffff | right << 16
    }
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe {
        let masks = [V::sra::<16>(V::shl::<16>(mask)), V::sra::<16>(mask)];
        let mut sum = V::splat(0);
        // Even columns read the pairs of columns that begin one before and one after them, odd ones likewise.
        for odd in 0..2 {
            let x = (x + odd) as isize;
            let mut pairs = [[V::splat(0); 2]; 6];
            for i in 0..6 {
                pairs[i] = [load_edged::<V, T>(rows[i], x - 1), load_edged::<V, T>(rows[i], x + 1)];
            }
            for i in 0..GROUP {
                if inside[i] {
                    let [above, middle, below] = [pairs[i], pairs[i + 1], pairs[i + 2]];
                    let mut f = V::madd16(middle[0], V::splat(taps(-2, 12)));
                    f = V::dot16(f, middle[1], V::splat(taps(-2, 0)));
                    f = V::dot16(f, V::add16(above[0], below[0]), V::splat(taps(-1, -2)));
                    f = V::dot16(f, V::add16(above[1], below[1]), V::splat(taps(-1, 0)));
                    sum = V::add(sum, V::and(V::abs(f), masks[odd]));
                }
            }
        }
        sum
    }
}

/// Sums the high pass of the 2x2 samples at `N` even columns of two rows. `rows` begins two rows above.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn quads<V: Lanes, T: Sample>(rows: &[Row<'_, T>], x: usize, mask: V::I) -> V::I {
    /// Negated taps of outer, next and inner rows, for two columns each.
    const TAPS: [[i32; 3]; 3] = [
        [0x0001_0000, 0x0001_0001, 0x0000_0001],
        [0x0002_0001, 0x0003_0003, 0x0001_0002],
        [0x0003_0001, -12 & 0xffff | -12 << 16, 0x0001_0003],
    ];
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe {
        let mut f = V::splat(0);
        for i in 0..3 {
            for j in 0..3 {
                let x = x as isize + 2 * j as isize - 2;
                let both = V::add16(load_edged::<V, T>(rows[i], x), load_edged::<V, T>(rows[5 - i], x));
                f = V::dot16(f, both, V::splat(TAPS[i][j]));
            }
        }
        V::and(V::abs(f), V::sra::<16>(V::shl::<16>(mask)))
    }
}

/// A row of luma with that of earlier pictures.
#[derive(Clone, Copy)]
struct History<'a, T> {
    now: Row<'a, T>,
    earlier: [Option<Row<'a, T>>; 2],
    second_order: bool,
}

impl<T: Sample> History<'_, T> {
    /// Returns the differences over time at `2 N` columns.
    ///
    /// # Safety
    ///
    /// The CPU must have the instructions of `V`.
    #[inline(always)]
    unsafe fn change<V: Lanes>(&self, x: usize) -> V::I {
        let x = x as isize;
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe {
            let mut change = load_edged::<V, T>(self.now, x);
            if let Some(row) = self.earlier[0] {
                let before = load_edged::<V, T>(row, x);
                change = V::sub16(change, before);
                if self.second_order {
                    change = V::sub16(change, before);
                }
            }
            match self.earlier[1] {
                Some(row) if self.second_order => V::add16(change, load_edged::<V, T>(row, x)),
                _ => change,
            }
        }
    }
}

dispatch!(fn activity[T: Sample](input: &Input<'_, T>, row: usize) -> Vec<Activity> = row_of_activity[T]);

/// Computes the activities of a row of blocks.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn row_of_activity<V: Lanes, T: Sample>(input: &Input<'_, T>, row: usize) -> Vec<Activity> {
    let Input { blocks, luma, earlier, second_order, masks } = *input;
    let (width, height) = blocks.luma.whole;
    let size = blocks.luma.block.0;
    let border = blocks.step;
    let (mut spatial, mut temporal) = (Pairs::new(width), Pairs::new(width));
    for y in (row * size..height.min((row + 1) * size)).step_by(GROUP) {
        let inside = std::array::from_fn(|i| y + i >= border && y + i + border < height);
        let single = rows::<T, 6>(luma, y as isize - 1);
        let quad = rows::<T, 8>(luma, y as isize - 2);
        let now = rows::<T, GROUP>(luma, y as isize);
        let earlier = earlier.map(|plane| plane.map(|plane| rows::<T, GROUP>(plane, y as isize)));
        let history: [_; GROUP] = std::array::from_fn(|i| History {
            now: now[i],
            earlier: earlier.map(|rows| rows.map(|rows| rows[i])),
            second_order,
        });
        let present = GROUP.min(height - y);
        for x in (0..width).step_by(2 * V::N) {
            // SAFETY: the CPU has the instructions, as the caller has promised; the masks hold whole vectors.
            unsafe {
                let mask = V::load16(masks.inside[x..][..2 * V::N].as_ptr());
                let weights = V::load16(masks.present[x..][..2 * V::N].as_ptr());
                let (mut high, mut change) = (V::splat(0), V::splat(0));
                if border == 1 {
                    high = if size_of::<T>() == 1 {
                        single_bytes::<V, T>(&single, x, inside, mask)
                    } else {
                        single_words::<V, T>(&single, x, inside, mask)
                    };
                    for history in &history[..present] {
                        change = V::dot16(change, V::abs16(history.change::<V>(x)), weights);
                    }
                } else {
                    for i in (0..present).step_by(2) {
                        if inside[i] {
                            high = V::add(high, quads::<V, T>(&quad[i..][..6], x, mask));
                        }
                        let (above, below) = (history[i].change::<V>(x), history[i + 1].change::<V>(x));
                        let ones = V::splat16(1);
                        change = V::add(change, V::abs(V::dot16(V::madd16(above, ones), below, ones)));
                    }
                }
                spatial.add::<V>(x, high);
                temporal.add::<V>(x, change);
            }
        }
    }
    let none = || std::iter::repeat_n(0, blocks.columns);
    let (spatial, temporal) = (spatial.move_to(width, size, none()), temporal.move_to(width, size, none()));
    let activity = |(spatial, temporal)| Activity { spatial, temporal: 2 * temporal };
    spatial.into_iter().zip(temporal).map(activity).collect()
}

dispatch!(fn errors[T: Sample](planes: [Plane<'_, T>; 2], blocks: BlockPlane, columns: usize, row: usize) -> Vec<u64>
    = row_of_errors[T]);

/// Computes the squared errors of a row of blocks.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn row_of_errors<V: Lanes, T: Sample>(
    planes: [Plane<'_, T>; 2],
    blocks: BlockPlane,
    columns: usize,
    row: usize,
) -> Vec<u64> {
    let BlockPlane { present: (width, height), whole, block } = blocks;
    let most = if size_of::<T>() == 1 { MOST_ROWS } else { GROUP };
    let mut sums = vec![0; columns];
    let mut repeated = 0;
    let mut pairs = Pairs::new(width);
    let end = whole.1.min((row + 1) * block.1);
    for band in (row * block.1..end).step_by(most) {
        let end = end.min(band + most);
        for y in (band..end).step_by(GROUP) {
            // A row after the end is that of one picture twice, which has no error.
            let rows: [_; GROUP] = std::array::from_fn(|i| {
                let at = (y + i).min(height - 1);
                let other = if y + i < end { 1 } else { 0 };
                [planes[0].row(at), planes[other].row(at)]
            });
            for x in (0..width).step_by(2 * V::N) {
                // SAFETY: the CPU has the instructions, as the caller has promised. Rows read as zero after their end.
                unsafe {
                    let mut sum = V::splat(0);
                    for [a, b] in rows {
                        let error = V::sub16(load_samples::<V, T>(a, x), load_samples::<V, T>(b, x));
                        sum = V::dot16(sum, error, error);
                    }
                    pairs.add::<V>(x, sum);
                }
            }
            if whole.0 > width {
                let error = |[a, b]: [Row<'_, T>; 2]| {
                    let (a, b): (i32, i32) = (a.at(width - 1).into(), b.at(width - 1).into());
                    u64::from(a.abs_diff(b)).pow(2)
                };
                repeated += rows.into_iter().map(error).sum::<u64>();
            }
        }
        sums = pairs.move_to(width, block.0, sums.into_iter());
    }
    if let Some(last) = sums.last_mut() {
        *last += repeated;
    }
    sums
}

/// Computes the activities of all blocks. Runs in the current rayon pool.
fn activities<T: Sample>(level: Level, input: &Input<'_, T>) -> Arc<[Activity]> {
    let rows = (0..input.blocks.rows).into_par_iter();
    rows.map(|row| activity(level, input, row)).collect::<Vec<_>>().concat().into()
}

/// Computes the squared errors of all blocks of two planes. Runs in the current rayon pool.
fn squared<T: Sample>(level: Level, planes: [Plane<'_, T>; 2], of: BlockPlane, blocks: &Blocks) -> Vec<u64> {
    let rows = (0..blocks.rows).into_par_iter();
    rows.map(|row| errors(level, planes, of, blocks.columns, row)).collect::<Vec<_>>().concat()
}

/// XPSNR of the planes that are there.
pub struct Xpsnr {
    blocks: Blocks,
    masks: Masks,
    second_order: bool,
    weighing: Weighing,
}

/// The counts of each block, in raster order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counts {
    /// Shared by all distorted pictures of a group; zeros for pictures without weights.
    activity: Arc<[Activity]>,
    /// Squared errors of Y, Cb and Cr; zeros for planes that are not there.
    errors: Vec<[u64; 3]>,
}

impl Xpsnr {
    /// Counts the blocks of pictures of one sample type. `planes`: for each component, the reference's plane and the distorted
    /// ones.
    fn counts<T: Sample>(
        &self,
        level: Level,
        earlier: [Option<Plane<'_, T>>; 2],
        planes: &[(Plane<'_, T>, &[Plane<'_, T>])],
    ) -> Option<Vec<Counts>> {
        let Self { blocks, masks, second_order, .. } = self;
        let (luma, distorted) = *planes.first()?;
        let input = Input { blocks, luma, earlier, second_order: *second_order, masks };
        let activity = match blocks.weighted {
            true => activities(level, &input),
            false => Arc::from([Activity::default()]),
        };
        let pair = |i: usize| {
            let mut errors = vec![[0; 3]; blocks.count()];
            for (component, (reference, distorted)) in planes.iter().enumerate() {
                let of = if component == 0 { blocks.luma } else { blocks.chroma? };
                let squares = squared(level, [*reference, *distorted.get(i)?], of, blocks);
                errors.iter_mut().zip(squares).for_each(|(errors, square)| errors[component] = square);
            }
            Some(Counts { activity: activity.clone(), errors })
        };
        (0..distorted.len()).map(pair).collect()
    }
}

impl Metric for Xpsnr {
    type Of = metrics::xpsnr::Xpsnr;

    fn prepare(work: &XpsnrWork, setup: &Setup) -> Result<Self, BackendError> {
        let blocks = Blocks::of(setup.geometry);
        let weighing = Weighing::new(blocks, setup.geometry.depth.bits());
        Ok(Self { blocks, masks: Masks::new(&blocks), second_order: work.second_order, weighing })
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<XpsnrSums>> {
        let chroma = match (&pictures.chroma, self.blocks.chroma) {
            (Some([cb, cr]), Some(_)) => vec![cb, cr],
            (_, None) => vec![],
            (None, Some(_)) => return None,
        };
        let planes = || [&pictures.luma].into_iter().chain(chroma.iter().copied());
        macro_rules! counts {
            ($kind:ident) => {{
                let earlier = |i: usize| match pictures.earlier.get(i)? {
                    PlanePair::$kind(earlier, _) => Some(*earlier),
                    _ => None,
                };
                let plane = |group| match group {
                    &PlaneGroup::$kind(reference, ref distorted) => Some((reference, &distorted[..])),
                    _ => None,
                };
                let planes = planes().map(plane).collect::<Option<Vec<_>>>()?;
                self.counts(pictures.level, [earlier(0), earlier(1)], &planes)
            }};
        }
        let counts = match pictures.luma {
            PlaneGroup::U8(..) => counts!(U8)?,
            PlaneGroup::U16(..) => counts!(U16)?,
        };
        let weights = self.weighing.weights(counts.first()?.activity.iter().copied());
        Some(counts.into_iter().map(|of| self.weighing.sums(&weights, of.errors.into_iter())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::tests::{Picture, Samples, content};
    use crate::random::noise;

    /// Reference and distorted planes of each component, and the earlier luma of the reference.
    struct Case {
        blocks: Blocks,
        planes: Vec<[Picture; 2]>,
        earlier: [Option<Picture>; 2],
        second_order: bool,
    }

    impl Case {
        fn sums(&self, level: Level) -> Counts {
            fn of<T: Sample>(level: Level, case: &Case, as_is: impl Fn(&Picture) -> Samples<T>) -> Counts {
                let planes: Vec<_> = case.planes.iter().map(|pair| pair.each_ref().map(&as_is)).collect();
                let earlier = case.earlier.each_ref().map(|picture| picture.as_ref().map(&as_is));
                let planes: Vec<_> =
                    planes.iter().map(|[a, b]| (a.plane(), [b.plane(), a.plane()])).collect();
                let planes: Vec<_> = planes.iter().map(|(a, others)| (*a, &others[..])).collect();
                let earlier = earlier.each_ref().map(|samples| samples.as_ref().map(Samples::plane));
                let masks = Masks::new(&case.blocks);
                let weighing = Weighing::new(case.blocks, case.planes[0][0].depth.bits());
                let xpsnr = Xpsnr { blocks: case.blocks, masks, second_order: case.second_order, weighing };
                let mut sums = xpsnr.counts(level, earlier, &planes).unwrap();
                let itself = sums.pop().unwrap();
                assert_eq!(itself.activity, sums[0].activity);
                assert!(itself.errors.iter().all(|errors| *errors == [0; 3]));
                sums.remove(0)
            }
            match self.planes[0][0].depth.bits() {
                8 => of(level, self, Picture::bytes),
                _ => of(level, self, Picture::words),
            }
        }

        /// Computes the sums one by one, as they are defined.
        fn defined(&self) -> Counts {
            let Blocks { columns, luma, step, .. } = self.blocks;
            let (width, height) = luma.whole;
            let grid = |picture: &Picture| Grid {
                size: (picture.width, picture.height),
                samples: picture.samples(),
            };
            let now = grid(&self.planes[0][0]);
            let earlier = self.earlier.each_ref().map(|picture| picture.as_ref().map(grid));
            let before = |i: usize, x, y| earlier[i].as_ref().map_or(0, |earlier| earlier.at(x, y));
            let change = |x, y| match self.second_order {
                true => now.at(x, y) - 2 * before(0, x, y) + before(1, x, y),
                false => now.at(x, y) - before(0, x, y),
            };
            let v = step as i64;
            let is_inside = |at: i64, extent: usize| at >= v && at < extent as i64 - v;
            let activity = (0..self.blocks.count()).map(|k| {
                let mut activity = Activity::default();
                for (x, y) in part(luma, k, columns).filter(|(x, y)| x % v == 0 && y % v == 0) {
                    if is_inside(x, width) && is_inside(y, height) {
                        let taps = if step == 1 { &SINGLE[..] } else { &QUADS[..] };
                        let sum: i64 = taps.iter().map(|(dx, dy, tap)| tap * now.at(x + dx, y + dy)).sum();
                        activity.spatial += sum.unsigned_abs();
                    }
                    let cell = (0..v * v).map(|i| change(x + i % v, y + i / v)).sum::<i64>();
                    activity.temporal += 2 * cell.unsigned_abs();
                }
                if self.blocks.weighted { activity } else { Activity::default() }
            });
            let mut errors = vec![[0; 3]; self.blocks.count()];
            for (component, pair) in self.planes.iter().enumerate() {
                let plane = if component == 0 { luma } else { self.blocks.chroma.unwrap() };
                let [a, b] = pair.each_ref().map(grid);
                for (k, errors) in errors.iter_mut().enumerate() {
                    let squared = |(x, y)| a.at(x, y).abs_diff(b.at(x, y)).pow(2);
                    errors[component] = part(plane, k, columns).map(squared).sum();
                }
            }
            Counts { activity: activity.collect(), errors }
        }
    }

    /// Samples of which those at the edges are repeated outside.
    struct Grid {
        size: (usize, usize),
        samples: Vec<u16>,
    }

    impl Grid {
        fn at(&self, x: i64, y: i64) -> i64 {
            let (width, height) = self.size;
            let limited = |at: i64, extent: usize| at.clamp(0, extent as i64 - 1) as usize;
            self.samples[limited(y, height) * width + limited(x, width)].into()
        }
    }

    /// Returns the columns and rows of the samples of a block.
    fn part(plane: BlockPlane, k: usize, columns: usize) -> impl Iterator<Item = (i64, i64)> {
        let (width, height) = plane.whole;
        let (left, top) = (k % columns * plane.block.0, k / columns * plane.block.1);
        let (right, bottom) = (width.min(left + plane.block.0), height.min(top + plane.block.1));
        (top..bottom).flat_map(move |y| (left..right).map(move |x| (x as i64, y as i64)))
    }

    /// Columns and rows relative to a sample, and their taps.
    type Tap = (i64, i64, i64);
    #[rustfmt::skip]
    const SINGLE: [Tap; 9] = [
        (-1, -1, -1), (0, -1, -2), (1, -1, -1),
        (-1,  0, -2), (0,  0, 12), (1,  0, -2),
        (-1,  1, -1), (0,  1, -2), (1,  1, -1),
    ];
    #[rustfmt::skip]
    const QUADS: [Tap; 32] = [
        (-1, -2, -1), (0, -2, -1), (1, -2, -1), (2, -2, -1),
        (-2, -1, -1), (-1, -1, -2), (0, -1, -3), (1, -1, -3), (2, -1, -2), (3, -1, -1),
        (-2,  0, -1), (-1,  0, -3), (0,  0, 12), (1,  0, 12), (2,  0, -3), (3,  0, -1),
        (-2,  1, -1), (-1,  1, -3), (0,  1, 12), (1,  1, 12), (2,  1, -3), (3,  1, -1),
        (-2,  2, -1), (-1,  2, -2), (0,  2, -3), (1,  2, -3), (2,  2, -2), (3,  2, -1),
        (-1,  3, -1), (0,  3, -1), (1,  3, -1), (2,  3, -1),
    ];

    /// Creates a case of one kind of content, with chroma that is `halved` in its columns and rows, or grey. `missing`: chroma of
    /// odd sizes lacks its last column and row.
    fn case(
        seed: usize,
        luma: (usize, usize),
        bits: u32,
        halved: Option<(bool, bool)>,
        missing: bool,
    ) -> Case {
        let extent = |whole: usize, halved: bool| match halved {
            true if missing => (whole / 2, whole.div_ceil(2)),
            true => (whole.div_ceil(2), whole.div_ceil(2)),
            false => (whole, whole),
        };
        let chroma = halved.map(|(columns, rows)| {
            let ((width, whole_width), (height, whole_height)) =
                (extent(luma.0, columns), extent(luma.1, rows));
            ((width, height), (whole_width, whole_height))
        });
        let of = |seed, (width, height)| content(seed, width, height, bits);
        let mut planes = vec![of(seed, luma)];
        planes.extend(chroma.iter().flat_map(|(size, _)| [of(seed + 1, *size), of(seed + 2, *size)]));
        let [one, two] = of(seed + 3, luma);
        let earlier = match seed % 3 {
            0 => [Some(one), Some(two)],
            1 => [Some(two), None],
            _ => [None, None],
        };
        Case { blocks: Blocks::new(luma, chroma), planes, earlier, second_order: seed.is_multiple_of(2) }
    }

    #[test]
    fn every_level_counts_as_defined() {
        let layouts = [Some((true, true)), Some((true, false)), Some((false, false)), None];
        // The last two have the high pass of 2x2 samples.
        let sizes = [
            (45, 44),
            (44, 46),
            (97, 67),
            (1, 3000),
            (3000, 1),
            (9, 301),
            (213, 130),
            (642, 481),
            (4099, 577),
            (577, 4099),
        ];
        for (i, size) in sizes.into_iter().enumerate() {
            let large = size.0 * size.1 > 2_000_000;
            for (j, bits) in [8, 9, 10, 12, 14].into_iter().enumerate() {
                if large && j != (i % 2) * 4 {
                    continue;
                }
                let seed = (3 * i + 5 * j) % 24;
                let halved = layouts[(i + j) % 4].filter(|_| size.0.min(size.1) > 1);
                let case = case(seed, size, bits, halved, j % 2 == 0);
                let expected = case.defined();
                for level in Level::available() {
                    let of = format!("{level:?} {size:?} {bits} bits, seed {seed}, {halved:?}");
                    assert!(case.sums(level) == expected, "{of}");
                }
            }
        }
    }

    #[test]
    fn random_pictures_are_counted_as_defined() {
        let random = |i: usize, n: usize| noise(77, i, n) >> 8;
        for i in 0..60 {
            let size = (random(i, 0) as usize % 240 + 1, random(i, 1) as usize % 90 + 1);
            let bits = 8 + random(i, 2) % 7;
            let layout = (size.0 > 1 && size.1 > 1).then_some((random(i, 3) % 2 > 0, random(i, 4) % 2 > 0));
            let case = case(random(i, 5) as usize % 24, size, bits, layout, random(i, 6) % 2 > 0);
            let expected = case.defined();
            for level in Level::available() {
                assert!(case.sums(level) == expected, "{level:?}, case {i}: {size:?} {bits} bits");
            }
        }
    }

    /// Deviations of the largest size in all samples of a block of the largest size.
    #[test]
    fn sums_of_the_largest_values_do_not_overflow() {
        for bits in [8, 14] {
            let flat = |value| Picture::new(2600, 1000, bits, move |_, _| value);
            let blocks = Blocks::new((2600, 1000), None);
            let planes = vec![[flat(u32::MAX), flat(0)]];
            let earlier = [Some(flat(0)), Some(flat(u32::MAX))];
            let case = Case { blocks, planes, earlier, second_order: true };
            let expected = case.defined();
            for level in Level::available() {
                assert!(case.sums(level) == expected, "{level:?} {bits} bits");
            }
        }
    }

    /// Returns component `p` of frame `t` for which the specification has check values.
    fn synthetic(size: (usize, usize), bits: u32, p: usize, t: usize) -> [Picture; 2] {
        let reference = move |x: usize, y: usize| {
            let x = x + 5 * t;
            ((3 * x * x + 5 * y + 7 * x * y + 11 * p * (x + y)) / 16) as u32 % (1 << bits)
        };
        let distorted = move |x: usize, y: usize| {
            let step = ((31 * (x + 5 * t) + 17 * y + p) % 23) << (bits - 8);
            (reference(x, y) + step as u32).min((1 << bits) - 1)
        };
        [Picture::new(size.0, size.1, bits, reference), Picture::new(size.0, size.1, bits, distorted)]
    }

    /// The specification's check values. All but those of 2050x1152, 2051x1153 and 44x46 are also FFmpeg's.
    #[test]
    fn weighted_errors_are_those_of_the_specification() {
        const C420: Option<(bool, bool)> = Some((true, true));
        const C422: Option<(bool, bool)> = Some((true, false));
        const C444: Option<(bool, bool)> = Some((false, false));
        type Row = ((usize, usize), u32, Option<(bool, bool)>, bool, usize, [u64; 3]);
        let rows: [Row; 22] = [
            ((96, 64), 8, C420, false, 0, [819434, 203467, 203844]),
            ((96, 64), 8, C420, false, 1, [699110, 176941, 175114]),
            ((96, 64), 8, C420, false, 2, [577904, 144902, 140967]),
            ((96, 64), 8, C420, true, 1, [1031253, 266475, 261216]),
            ((96, 64), 8, C420, true, 2, [1039446, 262959, 251041]),
            ((96, 64), 10, C420, false, 0, [44500926, 11000179, 11018797]),
            ((96, 64), 10, C420, false, 1, [60119324, 15005815, 15011356]),
            ((96, 64), 10, C420, false, 2, [52386436, 13062850, 13034832]),
            ((97, 67), 10, C444, true, 0, [45309572, 45298599, 45098826]),
            ((97, 67), 10, C444, true, 1, [85646876, 85164430, 84620604]),
            ((97, 67), 10, C444, true, 2, [423785651, 419290900, 408068164]),
            ((642, 480), 12, C422, false, 0, [3840855389, 1922710662, 1922778507]),
            ((642, 480), 12, C422, false, 1, [6495493962, 3250934400, 3249585865]),
            ((642, 480), 12, C422, false, 2, [6156856054, 3078913874, 3076575250]),
            ((2064, 1152), 8, C420, false, 0, [38402372, 9603655, 9607255]),
            ((2064, 1152), 8, C420, false, 1, [56242600, 14065252, 14070409]),
            ((2064, 1152), 8, C420, true, 1, [37862702, 9468537, 9471816]),
            ((2050, 1152), 10, C420, false, 0, [627955177, 156999462, 157011449]),
            ((2050, 1152), 10, C420, false, 1, [963730644, 240954639, 240968720]),
            ((2051, 1153), 8, C420, false, 0, [38102830, 9543327, 9546949]),
            ((2051, 1153), 8, C420, false, 1, [55716443, 13957519, 13962175]),
            ((44, 46), 8, C420, false, 0, [322923, 82574, 82691]),
        ];
        for (size, bits, halved, second_order, t, expected) in rows {
            let chroma = halved.map(|(columns, rows)| {
                let halve = |extent: usize, halved| if halved { extent.div_ceil(2) } else { extent };
                (halve(size.0, columns), halve(size.1, rows))
            });
            let blocks = Blocks::new(size, chroma.map(|size| (size, size)));
            let of = |p: usize| synthetic(if p == 0 { Some(size) } else { chroma }.unwrap(), bits, p, t);
            let luma = |lag| Some(synthetic(size, bits, 0, t.checked_sub(lag)?)[0].clone());
            let planes = vec![of(0), of(1), of(2)];
            let case = Case { blocks, planes, earlier: [luma(1), luma(2)], second_order };
            let weighing = Weighing::new(blocks, bits);
            for level in Level::available() {
                let Counts { activity, errors } = case.sums(level);
                let weights = weighing.weights(activity.iter().copied());
                let sums = weighing.sums(&weights, errors.into_iter());
                assert_eq!(sums.correct, expected, "{level:?} {size:?} {bits} bits, {t}");
            }
        }
    }
}
