// SPDX-License-Identifier: MPL-2.0

//! XPSNR: a signal-to-noise ratio whose squared errors are weighted, block by block, by how busy the reference is there in
//! space and time.
//!
//! Defined as FFmpeg's filter `xpsnr` computes it where it reads its pictures rightly (C. Helmrich et al., ITU Journal ICT
//! Discoveries 3(1), 2020). Backends count per block, in integers. Weights and sums over the blocks, which [`Weighing`]
//! computes for all backends, are binary64 in a fixed order.

use super::extractor::{About, Extract};
use super::metric::{Metric, Misfit};
use super::options::{Options, Row, choice};
use super::score::{OptionsError, Scorer, Source, plain};
use super::work::{FrameSums, Work};
use crate::frame::Geometry;
use crate::video::Video;

/// Highest depth for which it is defined.
const MAX_BITS: u32 = 14;
/// Largest number of samples with the high pass of single samples; above it is one of 2x2 samples.
const MOST_SINGLE: usize = 2048 * 1152;
/// Largest number of samples whose weights are smoothed.
const MOST_SMOOTHED: usize = 640 * 480;
/// From so many frames per second on, temporal activity is a difference of second order.
const SECOND_ORDER_FPS: u32 = 32;
/// FFmpeg forgets the spatial activity of a block whose region ends at this column or before, in large pictures.
const NARROW: usize = 12;

/// Options of `xpsnr`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct XpsnrOptions {
    /// `xpsnr_inf=inf`: planes without error are infinite, not as with an error of 1.
    pub infinite: bool,
    /// `xpsnr_narrow_blocks=ffmpeg`: narrow blocks of pictures above 2048x1152 have no spatial activity, as in FFmpeg.
    pub ffmpeg_blocks: bool,
}

/// The pixel work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XpsnrWork {
    /// Temporal activity is the difference to two earlier pictures, not to one.
    pub second_order: bool,
}

/// Activities of the reference's luma in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Sum of the absolute values of the high pass.
    pub spatial: u64,
    /// Twice the sum of the absolute differences to earlier pictures.
    pub temporal: u64,
}

/// Weighted sums of squared errors of Y, Cb and Cr; zeros for planes that are not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XpsnrSums {
    /// Those of the definition.
    pub correct: [u64; 3],
    /// Those with narrow blocks as in FFmpeg.
    pub ffmpeg: [u64; 3],
}

/// A plane and its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlane {
    /// Size of the plane in memory.
    pub present: (usize, usize),
    /// Size with the column and row that are missing in memory and repeat the last ones.
    pub whole: (usize, usize),
    /// Size of a block; the last ones of a row or column may be smaller.
    pub block: (usize, usize),
}

/// The division of pictures into blocks. A block has the same index in each plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Blocks in a row.
    pub columns: usize,
    /// Rows of blocks.
    pub rows: usize,
    /// Luma. Block sizes are multiples of 4.
    pub luma: BlockPlane,
    /// Cb and Cr.
    pub chroma: Option<BlockPlane>,
    /// Blocks have weights. Otherwise there is one block.
    pub weighted: bool,
    /// Width of the border without spatial activity, and the step of the high pass: 1 or 2.
    pub step: usize,
}

impl Blocks {
    /// Divides pictures of this geometry. Subsampled chroma planes of odd sizes lack their last column or row.
    pub fn of(geometry: Geometry) -> Self {
        let luma = (geometry.width, geometry.height);
        let chroma = geometry.chroma.filter(|(width, height)| width * height > 0);
        let chroma = chroma.zip(geometry.subsampled()).map(|((width, height), (columns, rows))| {
            let whole = |extent: usize, of: usize, halved| if halved { of.div_ceil(2) } else { extent };
            ((width, height), (whole(width, luma.0, columns), whole(height, luma.1, rows)))
        });
        Self::new(luma, chroma)
    }

    /// Divides pictures with luma of this size, and chroma with these sizes in memory and as a whole.
    pub fn new(luma: (usize, usize), chroma: Option<((usize, usize), (usize, usize))>) -> Self {
        let (width, height) = luma;
        let size = 4 * (32.0 * relative(luma).sqrt() + 0.5) as usize;
        let weighted = size > 0;
        let size = if weighted { size } else { width.max(height).next_multiple_of(4) };
        let of_chroma = |(present, whole): (_, (usize, usize))| {
            let block = (size * whole.0 / width, size * whole.1 / height);
            BlockPlane { present, whole, block }
        };
        Self {
            columns: width.div_ceil(size),
            rows: height.div_ceil(size),
            luma: BlockPlane { present: luma, whole: luma, block: (size, size) },
            chroma: chroma.map(of_chroma),
            weighted,
            step: if width * height > MOST_SINGLE { 2 } else { 1 },
        }
    }

    /// Returns the number of blocks.
    pub fn count(&self) -> usize {
        self.columns * self.rows
    }

    /// Returns the columns or rows of a luma block that have spatial activity, from the block's first on. `extent`: of luma.
    fn region(&self, block: usize, extent: usize) -> (usize, usize, usize) {
        let size = self.luma.block.0;
        let length = size.min(extent - block * size);
        let first = if block == 0 { self.step } else { 0 };
        let last = block * size + length == extent;
        (length, first, length.saturating_sub(if last { self.step } else { 0 }))
    }

    fn planes(&self) -> [Option<BlockPlane>; 3] {
        [Some(self.luma), self.chroma, self.chroma]
    }
}

/// Returns the number of samples relative to 3840x2160.
fn relative((width, height): (usize, usize)) -> f64 {
    (width * height) as f64 / (3840.0 * 2160.0)
}

/// The step from the counts of blocks to weighted sums.
#[derive(Clone, Copy, Debug)]
pub struct Weighing {
    blocks: Blocks,
    gain: f64,
    /// Least activity.
    least: f64,
}

/// The weights of the blocks of a reference picture, in raster order.
pub struct Weights {
    correct: Vec<f64>,
    /// Those with narrow blocks as in FFmpeg; `None` if they are the same.
    ffmpeg: Option<Vec<f64>>,
}

impl Weighing {
    /// Creates it for pictures with these blocks and samples of this many bits.
    pub fn new(blocks: Blocks, bits: u32) -> Self {
        let relative = relative(blocks.luma.whole);
        let square = (1u64 << (2 * bits - 9)) as f64;
        Self {
            blocks,
            gain: (16.0 * square / 0.00001f64.max(relative).sqrt()).sqrt(),
            least: f64::from(1u32 << (bits - 6)),
        }
    }

    /// Returns the weights of blocks with these activities; none for pictures without weights.
    pub fn weights(&self, activity: impl ExactSizeIterator<Item = Activity> + Clone) -> Weights {
        if !self.blocks.weighted {
            return Weights { correct: vec![], ffmpeg: None };
        }
        let forgets = (0..self.blocks.columns).any(|column| self.forgets(column));
        let ffmpeg = forgets.then(|| self.weights_of(activity.clone(), true));
        Weights { correct: self.weights_of(activity, false), ffmpeg }
    }

    fn weights_of(&self, activity: impl Iterator<Item = Activity>, ffmpeg: bool) -> Vec<f64> {
        let Blocks { columns, luma, .. } = self.blocks;
        let weight = |(k, activity): (usize, _)| self.weight(k % columns, k / columns, activity, ffmpeg);
        let mut weights: Vec<_> = activity.enumerate().map(weight).collect();
        if luma.whole.0 * luma.whole.1 <= MOST_SMOOTHED && columns > 1 {
            smooth(&mut weights, columns);
        }
        weights
    }

    /// Returns true if FFmpeg forgets the spatial activity of the blocks in this column.
    fn forgets(&self, column: usize) -> bool {
        let (_, left, right) = self.blocks.region(column, self.blocks.luma.whole.0);
        self.blocks.step == 2 && left < right && right <= NARROW
    }

    /// Returns the weight of a block before smoothing.
    fn weight(&self, column: usize, row: usize, activity: Activity, ffmpeg: bool) -> f64 {
        let (width, left, right) = self.blocks.region(column, self.blocks.luma.whole.0);
        let (height, top, bottom) = self.blocks.region(row, self.blocks.luma.whole.1);
        if right <= left || bottom <= top {
            return 1.0;
        }
        let spatial = if ffmpeg && self.forgets(column) { 0 } else { activity.spatial };
        let spatial = spatial as f64 / ((right - left) as f64 * (bottom - top) as f64);
        let both = spatial + activity.temporal as f64 / (width as f64 * height as f64);
        1.0 / both.max(self.least)
    }

    /// Returns the weighted sums of a pair. `errors`: squared errors of Y, Cb and Cr of each block.
    pub fn sums(&self, weights: &Weights, errors: impl Iterator<Item = [u64; 3]> + Clone) -> XpsnrSums {
        if !self.blocks.weighted {
            let plain = errors.fold([0; 3], |sum, errors| [0, 1, 2].map(|i| sum[i] + errors[i]));
            return XpsnrSums { correct: plain, ffmpeg: plain };
        }
        let correct = self.weighted(&weights.correct, errors.clone());
        let ffmpeg = weights.ffmpeg.as_ref().map_or(correct, |weights| self.weighted(weights, errors));
        XpsnrSums { correct, ffmpeg }
    }

    fn weighted(&self, weights: &[f64], errors: impl Iterator<Item = [u64; 3]>) -> [u64; 3] {
        // The order is part of the definition.
        let mut totals = [0.0; 3];
        for (errors, weight) in errors.zip(weights) {
            for (total, error) in totals.iter_mut().zip(errors) {
                *total += error as f64 * weight;
            }
        }
        totals.map(|total| if total > 0.0 { (total * self.gain + 0.5) as u64 } else { 0 })
    }
}

/// The step from weighted sums to decibels.
#[derive(Clone, Copy, Debug)]
struct Scoring {
    options: XpsnrOptions,
    blocks: Blocks,
    /// Largest sample.
    peak: u64,
}

impl Scoring {
    fn new(options: XpsnrOptions, blocks: Blocks, bits: u32) -> Self {
        Self { options, blocks, peak: (1 << bits) - 1 }
    }

    /// Returns the weighted sums that the options choose.
    fn weighted(&self, sums: &XpsnrSums) -> [u64; 3] {
        if self.options.ffmpeg_blocks { sums.ffmpeg } else { sums.correct }
    }

    /// Returns the decibels of a plane whose weighted error has this root.
    fn decibels(&self, plane: BlockPlane, distance: f64) -> f64 {
        let (width, height) = plane.whole;
        let largest = (width as u64 * height as u64 * self.peak * self.peak) as f64;
        10.0 * (largest / (distance * distance)).log10()
    }

    /// Limits decibels of a plane to those of the least error, unless infinity is wanted.
    fn capped(&self, plane: BlockPlane, decibels: f64) -> f64 {
        if self.options.infinite { decibels } else { decibels.min(self.decibels(plane, 1.0)) }
    }

    /// Returns the decibels of Y, Cb and Cr; `None` for planes that are not there.
    fn planes(&self, sums: &XpsnrSums) -> [Option<f64>; 3] {
        let weighted = self.weighted(sums);
        let planes = self.blocks.planes();
        [0, 1, 2].map(|i| {
            let plane = planes[i]?;
            Some(self.capped(plane, self.decibels(plane, (weighted[i] as f64).sqrt())))
        })
    }

    /// Returns what a pair adds to the figures of the stream.
    fn totals(&self, sums: Option<&XpsnrSums>) -> Totals {
        let Some(sums) = sums else { return Totals::default() };
        let weighted = self.weighted(sums);
        let planes = self.blocks.planes();
        let plane = |i: usize| {
            let Some(plane) = planes[i] else { return PlaneTotals::default() };
            let distance = (weighted[i] as f64).sqrt();
            let decibels = self.decibels(plane, distance);
            let (infinite, decibels) = if weighted[i] == 0 { (1, 0.0) } else { (0, decibels) };
            PlaneTotals { distances: split(distance), decibels: split(decibels), infinite }
        };
        Totals { frames: 1, planes: [plane(0), plane(1), plane(2)] }
    }

    /// Returns the decibels of a plane in all pairs.
    fn aggregate(&self, plane: BlockPlane, frames: u64, totals: PlaneTotals) -> f64 {
        let (frames, distances) = (frames as f64, join(totals.distances));
        let decibels = if distances >= frames {
            self.decibels(plane, distances / frames)
        } else if totals.infinite > 0 {
            f64::INFINITY
        } else {
            join(totals.decibels) / frames
        };
        self.capped(plane, decibels)
    }
}

/// Limits each weight to the largest of its neighbours to the left and above, which are limited already, and to the right.
fn smooth(weights: &mut [f64], columns: usize) {
    for k in 0..weights.len() {
        let column = k % columns;
        let last = k + 1 == weights.len();
        if last && k < columns {
            return;
        }
        let mut limit: f64 = 0.0;
        if column > 0 {
            limit = limit.max(weights[k - 1]);
        }
        if column + 1 < columns {
            limit = limit.max(weights[k + 1]);
        }
        if k >= columns {
            limit = limit.max(weights[k - columns]);
        }
        weights[k] = weights[k].min(limit);
    }
}

/// Figures of the stream as integers, so that parts of a stream can be added in any order.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    frames: u64,
    planes: [PlaneTotals; 3],
}

#[derive(Clone, Copy, Debug, Default)]
struct PlaneTotals {
    /// The roots of the weighted errors: whole numbers and fractions.
    distances: [u64; 2],
    /// The decibels, without those that are infinite.
    decibels: [u64; 2],
    /// Number of pairs with infinite decibels.
    infinite: u64,
}

impl Totals {
    /// Numbers of a plane.
    const OF_PLANE: usize = 5;

    fn numbers(self) -> Vec<u64> {
        let plane = |plane: PlaneTotals| {
            let PlaneTotals { distances: [a, b], decibels: [c, d], infinite } = plane;
            [a, b, c, d, infinite]
        };
        [self.frames].into_iter().chain(self.planes.into_iter().flat_map(plane)).collect()
    }

    fn of(numbers: &[u64]) -> Option<Self> {
        let (frames, numbers) = numbers.split_first()?;
        let (planes, _) = numbers.as_chunks::<{ Self::OF_PLANE }>();
        let planes: &[[u64; Self::OF_PLANE]; 3] = planes.try_into().ok()?;
        let plane = |[a, b, c, d, infinite]: [u64; Self::OF_PLANE]| PlaneTotals {
            distances: [a, b],
            decibels: [c, d],
            infinite,
        };
        Some(Self { frames: *frames, planes: planes.map(plane) })
    }
}

/// Units of a fraction in [`split`]: fine enough for 1e-12, and coarse enough for the sum of 16 million.
const UNITS: f64 = (1u64 << 40) as f64;

/// Splits a number into a whole number, which may be negative, and units of a fraction.
fn split(number: f64) -> [u64; 2] {
    let whole = number.floor();
    [whole as i64 as u64, ((number - whole) * UNITS).round() as u64]
}

/// Returns the number of sums of whole numbers and fractions.
fn join([whole, fraction]: [u64; 2]) -> f64 {
    whole as i64 as f64 + fraction as f64 / UNITS
}

/// Combines the decibels of Y, Cb and Cr into the least and into two kinds of weighted means. Those need chroma.
fn combined(planes: [Option<f64>; 3]) -> [Option<f64>; 3] {
    let [y, cb, cr] = planes;
    let least = planes.into_iter().flatten().reduce(f64::min);
    let (Some(y), Some(cb), Some(cr)) = (y, cb, cr) else { return [least, None, None] };
    let error = |decibels: f64| 10f64.powf(-0.1 * decibels);
    let errors = (4.0 * error(y) + error(cb) + error(cr)) / 6.0;
    let of_errors = if errors > 0.0 { -10.0 * errors.log10() } else { f64::INFINITY };
    [least, Some((4.0 * y + cb + cr) / 6.0), Some(of_errors)]
}

/// XPSNR.
pub struct Xpsnr;

impl Metric for Xpsnr {
    const NAME: &'static str = "xpsnr";
    type Work = XpsnrWork;
    type Sums = XpsnrSums;
    const HALF_SAMPLES: bool = true;

    /// Rates that are unknown or variable have differences of the first order.
    fn suit(work: &mut XpsnrWork, video: &Video, _geometry: Geometry) {
        work.second_order = video.rate.is_some_and(|rate| rate.num() / rate.den() >= SECOND_ORDER_FPS);
    }

    fn readings(work: &XpsnrWork, _geometry: Geometry) -> Vec<String> {
        let frames = if work.second_order { "two frames" } else { "the frame" };
        vec![format!("compared with {frames} before")]
    }

    fn chroma(_work: &XpsnrWork) -> bool {
        true
    }

    fn lags(work: &XpsnrWork) -> usize {
        1 + usize::from(work.second_order)
    }

    fn check(_work: &XpsnrWork, geometry: Geometry) -> Result<(), Misfit> {
        let bits = geometry.depth.bits();
        let deep = Misfit::TooDeep { metric: "XPSNR", max: MAX_BITS, bits };
        if bits > MAX_BITS { Err(deep) } else { Ok(()) }
    }
}

impl Options for XpsnrOptions {
    const EXTRACTOR: &'static str = "xpsnr";
    const TABLE: &'static [Row<Self>] = &[
        choice!("xpsnr_inf", "inf", infinite, INFINITY),
        choice!("xpsnr_narrow_blocks", "narrow", ffmpeg_blocks, NARROW_BLOCKS),
    ];
}

/// Values of `xpsnr_inf`.
const INFINITY: [(&str, bool); 2] = [("cap", false), ("inf", true)];
/// Values of `xpsnr_narrow_blocks`.
const NARROW_BLOCKS: [(&str, bool); 2] = [("correct", false), ("ffmpeg", true)];

/// Identifies a feature of [`XpsnrOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XpsnrOutput {
    /// Y, Cb or Cr (0..=2).
    Plane(usize),
    /// The least of the planes, or one of the weighted means (0..=2).
    Combined(usize),
}

impl Extract for XpsnrOptions {
    type Output = XpsnrOutput;
    const FEATURES: &'static [(&'static str, XpsnrOutput)] = &[
        ("xpsnr_y", XpsnrOutput::Plane(0)),
        ("xpsnr_cb", XpsnrOutput::Plane(1)),
        ("xpsnr_cr", XpsnrOutput::Plane(2)),
        ("xpsnr_min", XpsnrOutput::Combined(0)),
        ("xpsnr_weighted", XpsnrOutput::Combined(1)),
        ("xpsnr_weighted_mse", XpsnrOutput::Combined(2)),
    ];
    const ABOUT: &'static [About] = &[About {
        reported: "`xpsnr_y`, `xpsnr_cb`, `xpsnr_cr`, `xpsnr_min`, `xpsnr_weighted`, `xpsnr_weighted_mse`",
        tells: "mean squared error, weighted by how busy the reference is in space and time; up to 14 bits",
        range: "dB",
        equal: "that of an error of 1: 111.3 (luma of 1080p, 8 bits)",
        source: "C. Helmrich et al., ITU Journal ICT Discoveries 2020",
    }];

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        work.set::<Xpsnr>(XpsnrWork { second_order: true });
        Ok(Box::new(XpsnrSource(*self)))
    }
}

#[derive(Clone, Copy, Debug)]
struct XpsnrSource(XpsnrOptions);

impl XpsnrSource {
    fn scoring(&self, geometry: Geometry) -> Scoring {
        Scoring::new(self.0, Blocks::of(geometry), geometry.depth.bits())
    }
}

impl Source for XpsnrSource {
    fn scorer(&self, geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        let scoring = self.scoring(geometry);
        Ok(plain(move |sums| {
            let planes = sums.get::<Xpsnr>().map(|sums| scoring.planes(sums)).unwrap_or_default();
            let combined = combined(planes);
            let value = |output| match output {
                XpsnrOutput::Plane(i) => planes[i],
                XpsnrOutput::Combined(i) => combined[i],
            };
            XpsnrOptions::values(|output| value(output).unwrap_or(f64::NAN))
        }))
    }

    fn totals(&self, sums: &FrameSums, geometry: Geometry) -> Vec<u64> {
        self.scoring(geometry).totals(sums.get::<Xpsnr>()).numbers()
    }

    fn aggregates(&self, totals: &[u64], geometry: Geometry) -> Vec<(&'static str, f64)> {
        let Some(Totals { frames: frames @ 1.., planes: totals }) = Totals::of(totals) else { return vec![] };
        let scoring = self.scoring(geometry);
        let planes = scoring.blocks.planes();
        let planes = [0, 1, 2].map(|i| planes[i].map(|plane| scoring.aggregate(plane, frames, totals[i])));
        let names =
            ["axpsnr_y", "axpsnr_cb", "axpsnr_cr", "axpsnr_min", "axpsnr_weighted", "axpsnr_weighted_mse"];
        let values = planes.into_iter().chain(combined(planes));
        names.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::BitDepth;
    use crate::video::FrameRate;

    fn geometry(width: usize, height: usize, bits: u32, chroma: Option<(usize, usize)>) -> Geometry {
        Geometry { width, height, depth: BitDepth::new(bits).unwrap(), chroma }
    }

    #[test]
    fn blocks_have_the_sizes_of_the_specification() {
        let of = |width, height| {
            let Blocks { columns, rows, luma, step, .. } = Blocks::of(geometry(width, height, 8, None));
            (luma.block.0, columns, rows, step)
        };
        for (width, height, expected) in [
            (176, 144, (8, 22, 18, 1)),
            (640, 360, (20, 32, 18, 1)),
            (1280, 720, (44, 30, 17, 1)),
            (1920, 1080, (64, 30, 17, 1)),
            (2560, 1440, (84, 31, 18, 2)),
            (3840, 2160, (128, 30, 17, 2)),
            (4096, 2160, (132, 32, 17, 2)),
            (7680, 4320, (256, 30, 17, 2)),
        ] {
            assert_eq!(of(width, height), expected, "{width}x{height}");
        }
        assert!(Blocks::of(geometry(45, 45, 8, None)).weighted);
        let small = Blocks::of(geometry(44, 46, 8, None));
        assert!(!small.weighted && small.count() == 1);
    }

    #[test]
    fn chroma_of_odd_sizes_repeats_its_last_samples() {
        let chroma = |width, height, chroma| Blocks::of(geometry(width, height, 8, Some(chroma))).chroma;
        let odd = chroma(97, 67, (48, 33)).unwrap();
        assert_eq!((odd.present, odd.whole, odd.block), ((48, 33), (49, 34), (2, 2)));
        let wide = chroma(97, 67, (48, 67)).unwrap();
        assert_eq!((wide.whole, wide.block), ((49, 67), (2, 4)));
        assert_eq!(chroma(97, 67, (97, 67)).unwrap().whole, (97, 67));
        assert_eq!(chroma(1, 3000, (0, 1500)), None, "there is nothing to repeat");
    }

    #[test]
    fn weights_are_limited_by_their_neighbours() {
        let smoothed = |weights: &[f64], columns| {
            let mut weights = weights.to_vec();
            smooth(&mut weights, columns);
            weights
        };
        // The first has only a right neighbour, the second the limited first; the last of a single row is left as it is.
        assert_eq!(smoothed(&[9.0, 4.0, 3.0, 7.0], 4), [4.0, 4.0, 3.0, 7.0]);
        // The row below is limited by the row above, whose weights are limited before.
        assert_eq!(smoothed(&[9.0, 4.0, 8.0, 9.0], 2), [4.0, 4.0, 8.0, 8.0]);
        assert_eq!(smoothed(&[1.0, 2.0, 8.0, 3.0, 9.0, 9.0], 2), [1.0, 1.0, 3.0, 3.0, 9.0, 9.0]);
    }

    #[test]
    fn order_follows_the_frame_rate() {
        for (rate, second_order) in [
            (None, false),
            (FrameRate::new(25, 1), false),
            (FrameRate::new(30000, 1001), false),
            (FrameRate::new(3199, 100), false),
            (FrameRate::new(32, 1), true),
            (FrameRate::new(60000, 1001), true),
        ] {
            let mut work = XpsnrWork { second_order: true };
            Xpsnr::suit(&mut work, &Video { rate, ..Video::default() }, geometry(64, 64, 8, None));
            assert_eq!(work.second_order, second_order, "{rate:?}");
            assert_eq!(Xpsnr::lags(&work), 1 + usize::from(second_order));
        }
    }

    /// Returns the sums of pairs of 64x64 luma samples without activity, each with this error in its first block.
    fn scored(options: XpsnrOptions, errors: &[u64]) -> (Vec<f64>, Vec<(&'static str, f64)>) {
        let geometry = geometry(64, 64, 8, None);
        let source = XpsnrSource(options);
        let weighing = Weighing::new(Blocks::of(geometry), 8);
        let weights = weighing.weights(vec![Activity::default(); weighing.blocks.count()].into_iter());
        let mut scorer = source.scorer(geometry).unwrap();
        let mut ready = std::collections::VecDeque::new();
        let mut totals = vec![0; source.totals(&FrameSums::default(), geometry).len()];
        for error in errors {
            let mut sums = FrameSums::default();
            sums.put::<Xpsnr>(weighing.sums(&weights, [[*error, 0, 0]].into_iter()));
            scorer.push(&sums, 0, &mut ready);
            let more = source.totals(&sums, geometry);
            totals
                .iter_mut()
                .zip(more)
                .for_each(|(total, more): (&mut u64, _)| *total = total.wrapping_add(more));
        }
        (ready.iter().map(|values| values[0]).collect(), source.aggregates(&totals, geometry))
    }

    #[test]
    fn planes_without_error_score_as_with_an_error_of_one() {
        let limit = 10.0 * (64.0 * 64.0 * 255.0 * 255.0f64).log10();
        let (values, aggregates) = scored(XpsnrOptions::default(), &[0, 0]);
        assert_eq!(values, [limit, limit]);
        assert_eq!(aggregates, [("axpsnr_y", limit), ("axpsnr_min", limit)]);
        let (values, aggregates) = scored(XpsnrOptions { infinite: true, ..Default::default() }, &[0, 900]);
        assert!(values[0].is_infinite() && values[1].is_finite());
        assert!(aggregates[0].1.is_finite(), "the mean distance counts");
        let (_, aggregates) = scored(XpsnrOptions { infinite: true, ..Default::default() }, &[0, 0]);
        assert_eq!(aggregates[0].1, f64::INFINITY);
    }

    #[test]
    fn aggregates_are_of_mean_distances() {
        let (values, aggregates) = scored(XpsnrOptions::default(), &[400, 900, 2500]);
        let distance = |decibels: &f64| (64.0 * 64.0 * 255.0 * 255.0 / 10f64.powf(decibels / 10.0)).sqrt();
        let mean = values.iter().map(distance).sum::<f64>() / 3.0;
        let expected = 10.0 * (64.0 * 64.0 * 255.0 * 255.0 / (mean * mean)).log10();
        assert!((aggregates[0].1 - expected).abs() < 1e-11, "{aggregates:?}, not {expected}");
        assert_eq!(scored(XpsnrOptions::default(), &[]).1, []);
    }

    #[test]
    fn numbers_are_split_and_joined() {
        for number in [0.0, 1.0, 0.3, -16.49, 1234567.890625, 4294967296.5] {
            assert!((join(split(number)) - number).abs() < 1e-12, "{number}");
        }
        let [a, b] = [split(-3.75), split(1.5)];
        assert_eq!(join([a[0].wrapping_add(b[0]), a[1] + b[1]]), -2.25);
    }

    #[test]
    fn weighted_means_need_chroma() {
        let [least, weighted, of_errors] = combined([Some(40.0), Some(38.0), Some(42.0)]);
        assert_eq!((least, weighted), (Some(38.0), Some(40.0)));
        assert!((of_errors.unwrap() - 39.846_506_872_809).abs() < 1e-9, "{of_errors:?}");
        assert_eq!(combined([Some(40.0), None, None]), [Some(40.0), None, None]);
    }

    #[test]
    fn narrow_blocks_of_large_pictures_can_be_those_of_ffmpeg() {
        let blocks = Blocks::of(geometry(4096, 2160, 8, None));
        let weight = |ffmpeg_blocks, column| {
            let activity = Activity { spatial: 1 << 30, temporal: 0 };
            Weighing::new(blocks, 8).weight(column, 1, activity, ffmpeg_blocks)
        };
        assert!(weight(false, 31) < 0.25);
        assert_eq!(weight(true, 31), 0.25);
        assert_eq!(weight(true, 30), weight(false, 30));
    }
}
