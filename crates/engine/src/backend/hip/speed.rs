// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/speed.hip`.

use std::sync::Arc;

use gpu::{Device, DeviceBuffer, Error, Kernel, Stream, arguments};

use super::metric::{Addresses, Metric, Pairs, Setup};
use super::shared::{bytes_of, shared};
use crate::backend::BackendError;
use crate::metrics;
use crate::metrics::speed::{
    self, BLOCK, ChromaStatistics, Covariance, ELEMENTS, Layout, PlaneMoments, PlaneStatistics, Sample,
    SpeedSums, SpeedWork,
};

pub(super) const THREADS: u32 = 128;
/// Threads per block of the kernel for covariances.
const COMPARERS: u32 = 256;
/// Threads per block of the kernel for variances.
const SOLVERS: u32 = 512;
/// Planes of a pair.
pub(super) const PLANES: usize = 4;
/// Samples of the small image per block.
pub(super) const TILE: usize = 32;
/// Number of covariances of a plane. A block computes those of two rows of the block of samples.
const PAIRS: usize = ELEMENTS * (ELEMENTS + 1) / 2;
const PARTS: u32 = (BLOCK * (BLOCK + 1) / 2) as u32;

shared! {
    "speed.hip"
    /// A sample of a plane and its weight.
    struct SpeedSource: 8 {
        [0] index: u32,
        [4] weight: f32,
    }
}

shared! {
    "speed.hip"
    /// Parameters that turn a plane into a small image.
    pub(super) struct SpeedScaling: 56 {
        [0] x: u64,
        [8] y: u64,
        [16] taps: u64,
        [24] width: i32,
        [28] height: i32,
        [32] count: i32,
        [36] spread: i32,
        [40] bits: u32,
        [44] normalised: u32,
        [48] unit: f32,
    }
}

shared! {
    "speed.hip"
    /// Parameters for subtracting the local mean from a small image.
    pub(super) struct SpeedMean: 32 {
        [0] taps: u64,
        [8] width: i32,
        [12] height: i32,
        [16] used: [i32; 2],
        [24] count: i32,
    }
}

/// Tables for one scaling of the planes.
pub(super) struct ScalingTables {
    pub layout: Layout,
    /// Device memory of the tables.
    _tables: DeviceBuffer,
    pub scaling: SpeedScaling,
    mean: SpeedMean,
}

impl ScalingTables {
    pub fn new(device: &Arc<Device>, layout: Layout, bits: u32) -> Result<Self, Error> {
        let mut tables = vec![];
        let mut at = vec![];
        for axis in [&layout.x, &layout.y] {
            at.push(tables.len() as u64);
            let source = |source: &Sample| SpeedSource { index: source.index, weight: source.weight };
            tables.extend(bytes_of(&axis.sources.iter().map(source).collect::<Vec<_>>()));
        }
        for taps in [&layout.low_pass, &layout.local_mean] {
            at.push(tables.len() as u64);
            tables.extend(bytes_of(taps));
        }
        let tables = DeviceBuffer::holding(device, "tables", &tables)?;
        let address = |i: usize| tables.address() + at[i];
        let (width, height) = (layout.x.size as i32, layout.y.size as i32);
        let used = layout.used();
        let scaling = SpeedScaling {
            x: address(0),
            y: address(1),
            taps: address(2),
            width,
            height,
            count: layout.low_pass.len() as i32,
            spread: layout.x.spread as i32,
            bits,
            normalised: layout.normalised.into(),
            unit: layout.unit,
        };
        let mean = SpeedMean {
            taps: address(3),
            width,
            height,
            used: [used.0 as i32, used.1 as i32],
            count: layout.local_mean.len() as i32,
        };
        Ok(Self { scaling, mean, _tables: tables, layout })
    }

    /// Returns the bytes of the small images.
    fn images(&self) -> usize {
        PLANES * self.layout.x.size * self.layout.y.size * size_of::<f32>()
    }

    /// Returns the bytes of the small images less their local means.
    fn fields(&self) -> usize {
        let (width, height) = self.layout.used();
        PLANES * width * height * size_of::<f32>()
    }

    /// Returns the bytes of the scratch of a pair.
    pub fn scratch(&self) -> usize {
        self.images() + self.fields()
    }
}

/// The kernels that compute sums of small images.
pub(super) struct Statistics {
    mean: Kernel,
    covariance: Kernel,
    variances: Kernel,
}

impl Statistics {
    pub fn new(device: &Arc<Device>) -> Result<Self, Error> {
        let kernel = |name, threads| Kernel::new(device, "speed", name, threads);
        Ok(Self {
            mean: kernel("speed_mean", THREADS)?,
            covariance: kernel("speed_covariance", COMPARERS)?,
            variances: kernel("speed_variances", SOLVERS)?,
        })
    }

    /// Computes the sums of `planes` small images: of all, or of those of distorted pictures.
    pub fn launch(
        &self,
        stream: &Stream,
        tables: &ScalingTables,
        planes: u32,
        [images, sums]: [u64; 2],
    ) -> Result<(), Error> {
        let (mean, stride) = (tables.mean, 2 * plane_sums(&tables.layout) as u32);
        let ([width, height], fields) = (mean.used, images + tables.images() as u64);
        let grid = ((width * height) as u32).div_ceil(THREADS);
        // SAFETY: the parameters of speed_mean, and of speed_covariance and speed_variances.
        unsafe {
            self.mean.launch(stream, (grid, planes), arguments![images, mean, planes, fields])?;
            for (kernel, blocks) in [(&self.covariance, PARTS), (&self.variances, 1)] {
                let given = arguments![fields, width, height, stride, planes, sums];
                kernel.launch(stream, (blocks, planes), given)?;
            }
        }
        Ok(())
    }
}

/// Returns the number of sums of a plane. Each holds two singles: first the covariances, then 1 if they are regular,
/// then the variance of each block.
pub(super) fn plane_sums(layout: &Layout) -> usize {
    (PAIRS + 1 + layout.blocks.0 * layout.blocks.1).div_ceil(2)
}

pub struct Speed {
    small: Kernel,
    statistics: Statistics,
    scalings: Vec<ScalingTables>,
    sigmas: Vec<f32>,
}

/// Returns the number of planes that are computed with pair `i`: all for the first pair, later only those of the
/// distorted picture, which are the first half.
fn planes_of(i: usize) -> u32 {
    if i == 0 { PLANES as u32 } else { PLANES as u32 / 2 }
}

/// Returns the sums of the planes of a group in this order: Cb and Cr of the reference, which are with the first pair,
/// then Cb and Cr of each distorted picture.
fn of_planes<'a>(pairs: &'a [&[u64]], at: usize, size: usize) -> impl Iterator<Item = &'a [u64]> {
    let plane = move |sums: &'a [u64], i: usize| &sums[at + i * size..][..size];
    let of = move |sums: &'a [u64], first: usize| [plane(sums, first), plane(sums, first + 2)];
    let reference = pairs.first().into_iter().flat_map(move |sums| of(sums, 0));
    reference.chain(pairs.iter().flat_map(move |sums| of(sums, 1)))
}

impl Metric for Speed {
    type Of = metrics::speed::Speed;
    const LONG_READ: bool = true;

    fn modules(_work: &SpeedWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["speed"]
    }

    fn prepare(work: &SpeedWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let Setup { device, geometry, .. } = *setup;
        let scaling = |scaling: &speed::PlaneScaling| {
            let layout = scaling.layout(geometry).map_err(metrics::Misfit::from)?;
            Ok::<_, BackendError>(ScalingTables::new(device, layout, geometry.depth.bits())?)
        };
        let small = setup.by_sample("speed_small_u8", "speed_small_u16");
        Ok(Self {
            scalings: work.scalings.iter().map(scaling).collect::<Result<_, _>>()?,
            sigmas: work.sigmas.clone(),
            small: Kernel::new(device, "speed", small, THREADS)?,
            statistics: Statistics::new(device)?,
        })
    }

    fn scratch(&self) -> usize {
        self.scalings.iter().map(ScalingTables::scratch).sum()
    }

    fn sums(&self) -> usize {
        self.scalings.iter().map(|scaling| PLANES * plane_sums(&scaling.layout)).sum()
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        // The pairs share their scratch, so they run one after the other.
        (0..pairs.count).try_for_each(|i| {
            let Addresses { frame, scratch: mut images, mut sums } = pairs.pair(i);
            let planes = planes_of(i);
            for tables in &self.scalings {
                let layout = &tables.layout;
                let grid = (layout.x.size.div_ceil(TILE) as u32, planes * layout.y.size as u32);
                let given = arguments![frame, tables.scaling, planes, images];
                // SAFETY: the parameters of speed_small_u8 and speed_small_u16.
                unsafe { self.small.launch(stream, grid, given)? };
                self.statistics.launch(stream, tables, planes, [images, sums])?;
                images += tables.scratch() as u64;
                sums += (PLANES * plane_sums(layout) * 8) as u64;
            }
            Ok(())
        })
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<SpeedSums> {
        let mut pairs = vec![vec![]; sums.len()];
        let mut at = 0;
        for ScalingTables { layout, .. } in &self.scalings {
            let size = plane_sums(layout);
            let planes = of_planes(sums, at, size).map(|sums| moments(layout, sums)).collect();
            let statistics = PlaneStatistics::of(planes, &self.sigmas);
            if let [of_cb, of_cr, distorted @ ..] = &statistics[..] {
                for (pair, distorted) in pairs.iter_mut().zip(distorted.chunks_exact(2)) {
                    let [cb, cr] = [0, 1].map(|i| distorted[i].clone());
                    pair.push(ChromaStatistics([[of_cb.clone(), cb], [of_cr.clone(), cr]]));
                }
            }
            at += PLANES * size;
        }
        pairs
    }
}

/// Reads the covariances of a plane, which are the first singles of its sums.
fn covariance(sums: &[u64]) -> Covariance {
    let numbers: &[f32] = bytemuck::cast_slice(sums);
    let mut covariance = [[0.0; ELEMENTS]; ELEMENTS];
    for a in 0..ELEMENTS {
        for b in 0..=a {
            covariance[a][b] = numbers[a * (a + 1) / 2 + b];
            covariance[b][a] = covariance[a][b];
        }
    }
    covariance
}

/// Reads all sums of a plane.
pub(super) fn moments(layout: &Layout, sums: &[u64]) -> PlaneMoments {
    let numbers: &[f32] = bytemuck::cast_slice(sums);
    let variances = &numbers[PAIRS + 1..][..layout.blocks.0 * layout.blocks.1];
    let variances = (numbers[PAIRS] != 0.0).then(|| variances.to_vec());
    PlaneMoments { covariance: covariance(sums), variances }
}
