// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/ssim.hip`.

use std::sync::Arc;

use gpu::{Device, Error, Kernel, Stream, arguments};

use super::frame::HvPlanes;
use super::metric::{Addresses, Metric, Overlap, Pairs, Setup};
use super::shared::shared;
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::ssim::{MapSums, SCALES, SsimSums, SsimWork, WINDOW_SIZE, decimated, factor, fixed_sum};

/// Threads of a block of the decimations.
const THREADS: u32 = 128;
/// Samples of a tile of the means.
const BOX_TILE: (usize, usize) = (32, 4);
/// Columns that a block of the window, and of the low pass, walks down.
const MAP_COLUMNS: usize = 32;
const LOW_PASS_COLUMNS: usize = THREADS as usize;
/// Rows that a block of one of the filters walks down: more rows save work, more blocks fill the GPU.
#[derive(Clone, Copy)]
struct Rows {
    luma: usize,
    decimated: usize,
}

/// Those of the window, and of the low pass. The window takes 32 rows in a step, ten of them before its first place.
/// Decimated pictures are little work, and wait for each other.
const fn rows(overlap: Overlap) -> (Rows, Rows) {
    match overlap {
        Overlap::Little => (Rows { luma: 54, decimated: 22 }, Rows { luma: 12, decimated: 12 }),
        Overlap::Some | Overlap::Much => {
            (Rows { luma: 118, decimated: 54 }, Rows { luma: 28, decimated: 12 })
        }
    }
}

shared! {
    "ssim.h"
    /// What a place of the window keeps of the reference.
    struct SsimMoments: 8 {
        [0] mean: f32,
        [4] square: f32,
    }
}

/// One of the filters as two kernels: for luma, and for decimated pictures.
struct Kernels {
    luma: Kernel,
    decimated: Kernel,
    columns: usize,
    rows: Rows,
}

impl Kernels {
    /// The grid for results of this size, and the rows of a block.
    fn grid(&self, decimated: bool, width: usize, height: usize) -> ((u32, u32), i32) {
        let rows = if decimated { self.rows.decimated } else { self.rows.luma };
        ((width.div_ceil(self.columns) as u32, height.div_ceil(rows) as u32), rows as i32)
    }
}

/// The name of a kernel for luma samples.
fn luma(name: &str, geometry: Geometry) -> String {
    format!("{name}_{}", if geometry.depth.bits() == 8 { "u8" } else { "u16" })
}

/// A picture pair: that of the frame, or a decimated one.
#[derive(Clone, Copy)]
struct Pictures {
    planes: Option<HvPlanes>,
    size: (usize, usize),
    /// Room for what windows keep of the reference, 0 if nobody reads it.
    kept: u64,
}

/// The kernels for a pair of a group.
struct Filters {
    map: Kernels,
    low_pass: Kernels,
    means: Kernel,
    geometry: Geometry,
}

pub struct Ssim {
    first: Filters,
    /// The kernels for the pairs of a group after the first, if groups have any.
    later: Option<Filters>,
    work: SsimWork,
}

impl Filters {
    /// Those of the first pair, or of a later one.
    fn new(device: &Arc<Device>, later: bool, geometry: Geometry, overlap: Overlap) -> Result<Self, Error> {
        // Of each picture it and its squares are filtered, and the product.
        let (suffix, quantities) = if later { ("_later", 3) } else { ("", 5) };
        let (map_rows, low_pass_rows) = rows(overlap);
        let kernels = |name: &str, threads, columns, rows| -> Result<Kernels, Error> {
            let name = format!("{name}{suffix}");
            let kernel = |name: &str| Kernel::new(device, "ssim", name, threads);
            Ok(Kernels { luma: kernel(&luma(&name, geometry))?, decimated: kernel(&name)?, columns, rows })
        };
        Ok(Self {
            map: kernels("ssim_map", MAP_COLUMNS as u32 * quantities, MAP_COLUMNS, map_rows)?,
            low_pass: kernels("ssim_low_pass", THREADS, LOW_PASS_COLUMNS, low_pass_rows)?,
            means: Kernel::new(device, "ssim", &luma(&format!("ssim_box{suffix}"), geometry), THREADS)?,
            geometry,
        })
    }

    fn map(&self, stream: &Stream, at: Addresses, from: Pictures, sums: u64) -> Result<(), Error> {
        let Pictures { planes, size, kept } = from;
        let places = [size.0, size.1].map(|extent| extent - (WINDOW_SIZE - 1));
        let (grid, rows) = self.map.grid(planes.is_some(), places[0], places[1]);
        let (bits, w, h) = (self.geometry.depth.bits(), size.0 as i32, size.1 as i32);
        let bias = fixed_sum(size).bias();
        match planes {
            // SAFETY: the parameters of ssim_map_u8, ssim_map_u16, and those of later pairs.
            None => unsafe {
                self.map.luma.launch(stream, grid, arguments![at.frame, bits, w, h, rows, bias, kept, sums])
            },
            // SAFETY: the parameters of ssim_map and ssim_map_later.
            Some(planes) => unsafe {
                self.map.decimated.launch(stream, grid, arguments![planes, w, h, rows, bias, kept, sums])
            },
        }
    }

    fn low_pass(&self, stream: &Stream, at: Addresses, from: Pictures, to: HvPlanes) -> Result<(), Error> {
        let Pictures { planes, size, .. } = from;
        let (width, height) = decimated(size.0, size.1, 2);
        let (grid, rows) = self.low_pass.grid(planes.is_some(), width, height);
        let (bits, w, h) = (self.geometry.depth.bits(), size.0 as i32, size.1 as i32);
        match planes {
            // SAFETY: the parameters of ssim_low_pass_u8, ssim_low_pass_u16, and those of later pairs.
            None => unsafe {
                self.low_pass.luma.launch(stream, grid, arguments![at.frame, bits, w, h, rows, to])
            },
            // SAFETY: the parameters of ssim_low_pass and ssim_low_pass_later.
            Some(planes) => unsafe {
                self.low_pass.decimated.launch(stream, grid, arguments![planes, w, h, rows, to])
            },
        }
    }

    fn means(&self, stream: &Stream, at: Addresses, factor: usize, to: Pictures) -> Result<(), Error> {
        let Geometry { width, height, depth, .. } = self.geometry;
        let grid = (to.size.0.div_ceil(BOX_TILE.0) as u32, to.size.1.div_ceil(BOX_TILE.1) as u32);
        let planes = to.planes.unwrap_or_default();
        let (bits, factor) = (depth.bits(), factor as i32);
        let [w, h, w2, h2] = [width, height, to.size.0, to.size.1].map(|extent| extent as i32);
        // SAFETY: the parameters of ssim_box_u8, ssim_box_u16, and those of later pairs.
        unsafe { self.means.launch(stream, grid, arguments![at.frame, bits, w, h, factor, w2, h2, planes]) }
    }
}

impl Ssim {
    /// Whether pictures are compared as they are: by SSIM of factor 1, or by the first scale of MS-SSIM.
    fn plain(&self) -> bool {
        self.work.multi_scale || self.work.scales.iter().any(|scale| factor(*scale, self.first.geometry) == 1)
    }

    /// Sizes of all decimated pictures, in the order in which they take room: of SSIM, then of MS-SSIM.
    fn decimated(&self) -> Vec<(usize, usize)> {
        let Geometry { width, height, .. } = self.first.geometry;
        let factors = self.work.scales.iter().map(|scale| factor(*scale, self.first.geometry));
        let scales = factors.filter(|factor| *factor > 1).map(|factor| decimated(width, height, factor));
        let next = |size: &(usize, usize)| Some(decimated(size.0, size.1, 2));
        let pyramid = std::iter::successors(Some((width, height)), next).skip(1).take(SCALES - 1);
        scales.chain(pyramid.filter(|_| self.work.multi_scale)).collect()
    }

    /// Bytes of what the windows of a picture keep of the reference for later pairs.
    fn kept(&self, (width, height): (usize, usize)) -> usize {
        let places = (width - (WINDOW_SIZE - 1)) * (height - (WINDOW_SIZE - 1));
        self.later.as_ref().map_or(0, |_| places * size_of::<SsimMoments>())
    }
}

/// Bytes of one decimated picture.
fn bytes((width, height): (usize, usize)) -> usize {
    width * height * size_of::<f32>()
}

impl Metric for Ssim {
    type Of = metrics::ssim::Ssim;

    fn modules(_work: &SsimWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["ssim"]
    }

    fn prepare(work: &SsimWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let filters = |later| Filters::new(setup.device, later, setup.geometry, setup.overlap);
        let later = setup.several().then(|| filters(true)).transpose()?;
        Ok(Self { first: filters(false)?, later, work: work.clone() })
    }

    fn scratch(&self) -> usize {
        let Geometry { width, height, .. } = self.first.geometry;
        let whole = if self.plain() { self.kept((width, height)) } else { 0 };
        let decimated = self.decimated().into_iter().map(|size| 2 * bytes(size) + self.kept(size));
        whole + decimated.sum::<usize>()
    }

    /// How many sums a pair has: for pictures as they are, each scale of the work, and scales 1 to 4 of MS-SSIM.
    fn sums(&self) -> usize {
        (1 + self.work.scales.len() + SCALES - 1) * size_of::<MapSums>() / 8
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let geometry = self.first.geometry;
        let Geometry { width, height, .. } = geometry;
        for i in 0..pairs.count {
            let filters = self.later.as_ref().filter(|_| i > 0).unwrap_or(&self.first);
            let at = pairs.pair(i);
            let sums = |slot: usize| at.sums + (slot * size_of::<MapSums>()) as u64;
            let mut room = at.scratch;
            let keep = |room: &mut u64, size| {
                let kept = if pairs.count > 1 { *room } else { 0 };
                *room += self.kept(size) as u64;
                kept
            };
            let take = |room: &mut u64, size| {
                let planes = Some(HvPlanes::take(room, bytes(size), size.0, 1));
                Pictures { planes, size, kept: keep(room, size) }
            };
            let mut whole = Pictures { planes: None, size: (width, height), kept: 0 };
            if self.plain() {
                whole.kept = keep(&mut room, whole.size);
                filters.map(stream, at, whole, sums(0))?;
            }
            for (i, scale) in self.work.scales.iter().enumerate() {
                let factor = factor(*scale, geometry);
                if factor > 1 {
                    let small = take(&mut room, decimated(width, height, factor));
                    filters.means(stream, at, factor, small)?;
                    filters.map(stream, at, small, sums(1 + i))?;
                }
            }
            let mut above = whole;
            for scale in (1..SCALES).filter(|_| self.work.multi_scale) {
                let this = take(&mut room, decimated(above.size.0, above.size.1, 2));
                filters.low_pass(stream, at, above, this.planes.unwrap_or_default())?;
                filters.map(stream, at, this, sums(self.work.scales.len() + scale))?;
                above = this;
            }
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
        let scale = |(i, scale): (usize, &u32)| {
            slot(if factor(*scale, self.first.geometry) == 1 { 0 } else { 1 + i })
        };
        let scales = self.work.scales.iter().enumerate().map(scale).collect();
        let pyramid = |scale: usize| slot(if scale == 0 { 0 } else { self.work.scales.len() + scale });
        SsimSums { scales, multi_scale: self.work.multi_scale.then(|| std::array::from_fn(pyramid)) }
    }
}
