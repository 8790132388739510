// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/ssim.hip`.

use gpu::{Error, Kernel, Stream, arguments};

use super::frame::HvPlanes;
use super::metric::{Addresses, Metric, Overlap, Pairs, Setup};
use super::shared::shared;
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::ssim::{MapSums, SCALES, SsimSums, SsimWork, WINDOW_SIZE, decimated, factor, fixed_sum};

/// Threads per block of the decimations.
const THREADS: u32 = 128;
/// Samples that the window reads at once.
const GROUP: usize = 4;
/// Samples per tile of the means.
const BOX_TILE: (usize, usize) = (32, 4);
/// Columns per block of the window and of the low pass. Four threads of the low pass compute only inputs of others.
const WINDOW_COLUMNS: usize = 32;
const LOW_PASS_COLUMNS: usize = THREADS as usize - 4;
/// Most picture pairs in a launch of the window.
const PAIRS: usize = 8;
/// A setting of a filter's blocks, for luma and for decimated pictures.
#[derive(Clone, Copy)]
struct PerPicture {
    luma: usize,
    decimated: usize,
}

impl PerPicture {
    fn of(self, decimated: bool) -> usize {
        if decimated { self.decimated } else { self.luma }
    }
}

/// Returns the rows per block of the window, and of the low pass. More rows save work, more blocks fill the GPU. The
/// window processes 32 rows in a step, ten of them before its first position. The low pass produces a row in each of an
/// even number of steps, after four without result; decimated pictures wait for each other there. Beside VIF, only few
/// blocks of the low pass fit on the GPU, and fewer blocks cost VIF less time. Without VIF, more blocks are done
/// sooner.
fn rows(setup: &Setup<'_>) -> (PerPicture, PerPicture) {
    let beside_vif = setup.work.get::<metrics::vif::Vif>().is_some();
    match setup.overlap {
        Overlap::Little => (PerPicture { luma: 54, decimated: 22 }, PerPicture { luma: 12, decimated: 4 }),
        Overlap::Some => (PerPicture { luma: 118, decimated: 54 }, PerPicture { luma: 28, decimated: 6 }),
        Overlap::Much if beside_vif => {
            (PerPicture { luma: 214, decimated: 150 }, PerPicture { luma: 270, decimated: 54 })
        }
        Overlap::Much => (PerPicture { luma: 214, decimated: 150 }, PerPicture { luma: 60, decimated: 20 }),
    }
}

shared! {
    "ssim.h"
    /// Data of the reference that is kept for a position of the window.
    struct SsimMoments: 8 {
        [0] mean: f32,
        [4] square: f32,
    }
}

shared! {
    "ssim.h"
    /// A picture pair for the window.
    #[derive(Default)]
    struct SsimPair: 72 {
        /// Decimated pictures; null for luma of the frame.
        [0] planes: HvPlanes,
        /// Memory for data of the reference, 0 if it is not read.
        [24] kept: u64,
        [32] sums: u64,
        [40] bias: f64,
        [48] width: i32,
        [52] height: i32,
        /// Rows per block.
        [56] rows: i32,
        /// Blocks in a row.
        [60] columns: u32,
        /// Number of its first block.
        [64] first: u32,
        /// 1 if the sums of SSIM and luminance are needed.
        [68] all_terms: u32,
    }
}

shared! {
    "ssim.h"
    /// The picture pairs of a launch.
    struct SsimPairs: 576 {
        [0] at: [SsimPair; PAIRS],
    }
}

/// Returns the name of a kernel for luma samples.
fn luma(name: &str, geometry: Geometry) -> String {
    format!("{name}_{}", if geometry.depth.bits() == 8 { "u8" } else { "u16" })
}

/// A picture pair: luma of the frame, or decimated pictures.
#[derive(Clone, Copy)]
struct Pictures {
    planes: Option<HvPlanes>,
    size: (usize, usize),
    /// Memory for data of the reference, 0 if it is not read.
    kept: u64,
    /// The sums of SSIM and luminance are needed.
    all_terms: bool,
}

/// Addresses of the data of one pair of a group. Later pairs than the first only process the distorted picture.
#[derive(Clone, Copy)]
struct Turn {
    at: Addresses,
    first: bool,
}

impl Turn {
    /// Returns the grid of a decimation with results of this size: the blocks of one picture, followed by those of the
    /// other.
    fn grid(self, (width, height): (usize, usize), tile: (usize, usize)) -> (u32, u32) {
        let pictures = if self.first { 2 } else { 1 };
        ((pictures * width.div_ceil(tile.0)) as u32, height.div_ceil(tile.1) as u32)
    }
}

pub struct Ssim {
    windows: Kernel,
    /// The windows of the pairs of a group after the first, if groups may have several pairs.
    later_windows: Option<Kernel>,
    window_rows: PerPicture,
    low_pass: Kernel,
    decimated_low_pass: Kernel,
    low_pass_rows: PerPicture,
    means: Kernel,
    geometry: Geometry,
    work: SsimWork,
}

impl Ssim {
    /// Launches the windows of all picture pairs, each given with the offset of its sums.
    fn windows(&self, stream: &Stream, turn: Turn, pairs: &[(Pictures, u64)]) -> Result<(), Error> {
        let Turn { at, first } = turn;
        let kernel = self.later_windows.as_ref().filter(|_| !first).unwrap_or(&self.windows);
        let bits = self.geometry.depth.bits();
        for pairs in pairs.chunks(PAIRS) {
            let none = SsimPair { first: u32::MAX, ..SsimPair::default() };
            let mut given = SsimPairs { at: [none; PAIRS] };
            let mut blocks = 0;
            for (given, (Pictures { planes, size, kept, all_terms }, sums)) in given.at.iter_mut().zip(pairs)
            {
                let rows = self.window_rows.of(planes.is_some());
                let places = [size.0, size.1].map(|extent| extent - (WINDOW_SIZE - 1));
                let columns = places[0].div_ceil(WINDOW_COLUMNS) as u32;
                *given = SsimPair {
                    planes: planes.unwrap_or_default(),
                    kept: *kept,
                    sums: *sums,
                    bias: fixed_sum(*size).bias(),
                    width: size.0 as i32,
                    height: size.1 as i32,
                    rows: rows as i32,
                    columns,
                    first: blocks,
                    all_terms: u32::from(*all_terms),
                };
                blocks += columns * places[1].div_ceil(rows) as u32;
            }
            // SAFETY: the parameters of ssim_map_u8, ssim_map_u16, and those of later pairs.
            unsafe { kernel.launch(stream, (blocks, 1), arguments![at.frame, bits, given])? };
        }
        Ok(())
    }

    fn low_pass(&self, stream: &Stream, turn: Turn, from: Pictures, to: Pictures) -> Result<(), Error> {
        let rows = self.low_pass_rows.of(from.planes.is_some());
        let grid = turn.grid(to.size, (LOW_PASS_COLUMNS, rows));
        let [w, h, rows] = [from.size.0, from.size.1, rows].map(|extent| extent as i32);
        let (bits, out) = (self.geometry.depth.bits(), to.planes.unwrap_or_default());
        match from.planes {
            // SAFETY: the parameters of ssim_low_pass_u8 and ssim_low_pass_u16.
            None => unsafe {
                self.low_pass.launch(stream, grid, arguments![turn.at.frame, bits, w, h, rows, out])
            },
            // SAFETY: the parameters of ssim_low_pass.
            Some(planes) => unsafe {
                self.decimated_low_pass.launch(stream, grid, arguments![planes, w, h, rows, out])
            },
        }
    }

    fn means(&self, stream: &Stream, turn: Turn, factor: usize, to: Pictures) -> Result<(), Error> {
        let Geometry { width, height, depth, .. } = self.geometry;
        let grid = turn.grid(to.size, BOX_TILE);
        let (bits, factor, out) = (depth.bits(), factor as i32, to.planes.unwrap_or_default());
        let [w, h, w2, h2] = [width, height, to.size.0, to.size.1].map(|extent| extent as i32);
        // SAFETY: the parameters of ssim_box_u8 and ssim_box_u16.
        unsafe { self.means.launch(stream, grid, arguments![turn.at.frame, bits, w, h, factor, w2, h2, out]) }
    }

    /// Returns true if pictures are compared without decimation: by SSIM of factor 1, or by the first scale of MS-SSIM.
    fn plain(&self) -> bool {
        self.work.multi_scale || self.work.scales.iter().any(|scale| factor(*scale, self.geometry) == 1)
    }

    /// Returns the sizes of all decimated pictures in the order of their memory: those of SSIM, then of MS-SSIM.
    fn decimated(&self) -> Vec<(usize, usize)> {
        let Geometry { width, height, .. } = self.geometry;
        let factors = self.work.scales.iter().map(|scale| factor(*scale, self.geometry));
        let scales = factors.filter(|factor| *factor > 1).map(|factor| decimated(width, height, factor));
        let next = |size: &(usize, usize)| Some(decimated(size.0, size.1, 2));
        let pyramid = std::iter::successors(Some((width, height)), next).skip(1).take(SCALES - 1);
        scales.chain(pyramid.filter(|_| self.work.multi_scale)).collect()
    }

    /// Returns the bytes of the reference data that the windows of a picture keep for later pairs.
    fn kept(&self, (width, height): (usize, usize)) -> usize {
        let places = (width - (WINDOW_SIZE - 1)) * (height - (WINDOW_SIZE - 1));
        let kept = (places * size_of::<SsimMoments>()).next_multiple_of(GROUP * size_of::<f32>());
        self.later_windows.as_ref().map_or(0, |_| kept)
    }
}

/// Returns the samples in a row of a decimated picture, in whole groups.
fn stride((width, _): (usize, usize)) -> usize {
    width.next_multiple_of(GROUP)
}

/// Returns the bytes of one decimated picture.
fn bytes(size: (usize, usize)) -> usize {
    stride(size) * size.1 * size_of::<f32>()
}

impl Metric for Ssim {
    type Of = metrics::ssim::Ssim;

    fn modules(_work: &SsimWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["ssim"]
    }

    fn prepare(work: &SsimWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let geometry = setup.geometry;
        let kernel = |name: &str, threads| Kernel::new(setup.device, "ssim", name, threads);
        // Each picture and its squares are filtered, and the product of both pictures.
        let windows =
            |name: &str, quantities| kernel(&luma(name, geometry), WINDOW_COLUMNS as u32 * quantities);
        let (window_rows, low_pass_rows) = rows(setup);
        Ok(Self {
            windows: windows("ssim_map", 5)?,
            later_windows: setup.several().then(|| windows("ssim_map_later", 3)).transpose()?,
            window_rows,
            low_pass: kernel(&luma("ssim_low_pass", geometry), THREADS)?,
            decimated_low_pass: kernel("ssim_low_pass", THREADS)?,
            low_pass_rows,
            means: kernel(&luma("ssim_box", geometry), THREADS)?,
            geometry,
            work: work.clone(),
        })
    }

    fn scratch(&self) -> usize {
        let Geometry { width, height, .. } = self.geometry;
        let whole = if self.plain() { self.kept((width, height)) } else { 0 };
        let decimated = self.decimated().into_iter().map(|size| 2 * bytes(size) + self.kept(size));
        whole + decimated.sum::<usize>()
    }

    /// Returns the number of sums of a pair: for undecimated pictures, each scale of the work, and scales 1 to 4 of
    /// MS-SSIM.
    fn sums(&self) -> usize {
        (1 + self.work.scales.len() + SCALES - 1) * size_of::<MapSums>() / 8
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let Geometry { width, height, .. } = self.geometry;
        for i in 0..pairs.count {
            let at = pairs.pair(i);
            let turn = Turn { at, first: i == 0 };
            let sums = |slot: usize| at.sums + (slot * size_of::<MapSums>()) as u64;
            let mut room = at.scratch;
            let keep = |room: &mut u64, size| {
                let kept = if pairs.count > 1 { *room } else { 0 };
                *room += self.kept(size) as u64;
                kept
            };
            let take = |room: &mut u64, size, all_terms| {
                let planes = Some(HvPlanes::take(room, bytes(size), stride(size), 1));
                Pictures { planes, size, kept: keep(room, size), all_terms }
            };
            // The windows run after all decimations in one launch, which fills the GPU.
            let mut all = Vec::new();
            let all_terms = |scale: usize| self.work.all_terms(scale, self.geometry);
            let mut whole =
                Pictures { planes: None, size: (width, height), kept: 0, all_terms: all_terms(0) };
            if self.plain() {
                whole.kept = keep(&mut room, whole.size);
                all.push((whole, sums(0)));
            }
            for (i, scale) in self.work.scales.iter().enumerate() {
                let factor = factor(*scale, self.geometry);
                if factor > 1 {
                    let small = take(&mut room, decimated(width, height, factor), true);
                    self.means(stream, turn, factor, small)?;
                    all.push((small, sums(1 + i)));
                }
            }
            let mut above = whole;
            for scale in (1..SCALES).filter(|_| self.work.multi_scale) {
                let this = take(&mut room, decimated(above.size.0, above.size.1, 2), all_terms(scale));
                self.low_pass(stream, turn, above, this)?;
                all.push((this, sums(self.work.scales.len() + scale)));
                above = this;
            }
            self.windows(stream, turn, &all)?;
        }
        Ok(())
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<SsimSums> {
        sums.iter().map(|sums| self.pair(sums)).collect()
    }
}

impl Ssim {
    /// Reads the sums of a pair.
    fn pair(&self, sums: &[u64]) -> SsimSums {
        let slot = |i: usize| -> MapSums { std::array::from_fn(|k| sums[4 * i + k]) };
        let scale =
            |(i, scale): (usize, &u32)| slot(if factor(*scale, self.geometry) == 1 { 0 } else { 1 + i });
        let scales = self.work.scales.iter().enumerate().map(scale).collect();
        let pyramid = |scale: usize| slot(if scale == 0 { 0 } else { self.work.scales.len() + scale });
        SsimSums { scales, multi_scale: self.work.multi_scale.then(|| std::array::from_fn(pyramid)) }
    }
}
