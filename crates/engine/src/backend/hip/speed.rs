// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/speed.hip`.

use std::sync::Arc;

use gpu::{Device, DeviceBuffer, Error, Kernel, Stream, arguments};

use super::metric::{Addresses, Metric, Pairs, Setup};
use super::shared::{bytes_of, shared};
use crate::backend::BackendError;
use crate::metrics;
use crate::metrics::speed::{
    self, BLOCK, ChromaStatistics, ELEMENTS, Layout, PlaneMoments, PlaneStatistics, Sample, SpeedSums,
    SpeedWork,
};

const THREADS: u32 = 128;
/// Those of the blocks that find covariances.
const COMPARERS: u32 = 256;
/// Those of the blocks that find variances.
const SOLVERS: u32 = 512;
const PLANES: usize = 4;
/// Samples of the small image in a block.
const TILE: usize = 32;
/// Covariances of a plane, and the blocks that compute them, each those of two rows of the block of samples.
const PAIRS: usize = ELEMENTS * (ELEMENTS + 1) / 2;
const PARTS: u32 = (BLOCK * (BLOCK + 1) / 2) as u32;

shared! {
    "speed.hip"
    /// A sample of a plane and what it counts.
    struct SpeedSource: 8 {
        [0] index: u32,
        [4] weight: f32,
    }
}

shared! {
    "speed.hip"
    /// How a plane becomes a small image.
    struct SpeedScaling: 56 {
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
    /// How a small image becomes one without its local mean.
    struct SpeedMean: 32 {
        [0] taps: u64,
        [8] width: i32,
        [12] height: i32,
        [16] used: [i32; 2],
        [24] count: i32,
    }
}

/// One way of scaling the planes.
struct Scaling {
    layout: Layout,
    /// What `scaling` and `mean` point to.
    _tables: DeviceBuffer,
    scaling: SpeedScaling,
    mean: SpeedMean,
}

impl Scaling {
    fn new(device: &Arc<Device>, layout: Layout, bits: u32) -> Result<Self, Error> {
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

    /// Bytes of the small images.
    fn images(&self) -> usize {
        PLANES * self.layout.x.size * self.layout.y.size * size_of::<f32>()
    }

    /// Bytes of what is left of them without their local mean.
    fn fields(&self) -> usize {
        let (width, height) = self.layout.used();
        PLANES * width * height * size_of::<f32>()
    }
}

/// Sums of a plane, two singles in each: the covariances, whether they are regular, and the variance of each block.
fn plane_sums(layout: &Layout) -> usize {
    (PAIRS + 1 + layout.blocks.0 * layout.blocks.1).div_ceil(2)
}

pub struct Speed {
    small: Kernel,
    mean: Kernel,
    covariance: Kernel,
    variances: Kernel,
    scalings: Vec<Scaling>,
    sigmas: Vec<f32>,
}

impl Speed {
    /// Launches the kernels of one pair for `planes` planes: all [`PLANES`], or half of them, which are those of the
    /// distorted picture; the reference's are done once for a group.
    fn launch_planes(&self, stream: &Stream, at: Addresses, planes: usize) -> Result<(), Error> {
        let (mut scratch, mut sums) = (at.scratch, at.sums);
        let planes = planes as u32;
        for scaling in &self.scalings {
            let (layout, mean) = (&scaling.layout, scaling.mean);
            let tiles = layout.x.size.div_ceil(TILE) as u32;
            let [width, height] = mean.used;
            let stride = 2 * plane_sums(layout) as u32;
            let images = scratch;
            let fields = images + scaling.images() as u64;
            // SAFETY: the parameters of speed_small_u8 and speed_small_u16, speed_mean, speed_covariance, and
            // speed_variances.
            unsafe {
                let grid = (tiles, planes * layout.y.size as u32);
                self.small.launch(stream, grid, arguments![at.frame, scaling.scaling, planes, images])?;
                let grid = ((width * height) as u32).div_ceil(THREADS);
                self.mean.launch(stream, (grid, planes), arguments![images, mean, planes, fields])?;
                let given = arguments![fields, width, height, stride, planes, sums];
                self.covariance.launch(stream, (PARTS, planes), given)?;
                let given = arguments![fields, width, height, stride, planes, sums];
                self.variances.launch(stream, (1, planes), given)?;
            }
            scratch = fields + scaling.fields() as u64;
            sums += (PLANES * plane_sums(layout) * 8) as u64;
        }
        Ok(())
    }
}

impl Metric for Speed {
    type Of = metrics::speed::Speed;
    const LONG_READ: bool = true;

    fn modules(_work: &SpeedWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["speed"]
    }

    fn prepare(work: &SpeedWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let Setup { device, geometry, .. } = *setup;
        let kernel = |name, threads| Kernel::new(device, "speed", name, threads);
        let scaling = |scaling: &speed::Scaling| {
            let layout = scaling.layout(geometry).map_err(metrics::Misfit::from)?;
            Ok::<_, BackendError>(Scaling::new(device, layout, geometry.depth.bits())?)
        };
        Ok(Self {
            scalings: work.scalings.iter().map(scaling).collect::<Result<_, _>>()?,
            sigmas: work.sigmas.clone(),
            small: kernel(setup.by_sample("speed_small_u8", "speed_small_u16"), THREADS)?,
            mean: kernel("speed_mean", THREADS)?,
            covariance: kernel("speed_covariance", COMPARERS)?,
            variances: kernel("speed_variances", SOLVERS)?,
        })
    }

    fn scratch(&self) -> usize {
        self.scalings.iter().map(|scaling| scaling.images() + scaling.fields()).sum()
    }

    fn sums(&self) -> usize {
        self.scalings.iter().map(|scaling| PLANES * plane_sums(&scaling.layout)).sum()
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        self.launch_planes(stream, pairs.first, PLANES)?;
        (1..pairs.count).try_for_each(|i| self.launch_planes(stream, pairs.pair(i), PLANES / 2))
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<SpeedSums> {
        let Some(first) = sums.first() else { return vec![] };
        let mut pairs = vec![vec![]; sums.len()];
        let mut at = 0;
        for Scaling { layout, .. } in &self.scalings {
            let size = plane_sums(layout);
            let plane = |sums: &[u64], i: usize| moments(layout, &sums[at + i * size..][..size]);
            // Those of the reference are with the first pair.
            let reference = [plane(first, 0), plane(first, 2)].into_iter();
            let distorted = sums.iter().flat_map(|sums| [plane(sums, 1), plane(sums, 3)]);
            let statistics = PlaneStatistics::of(reference.chain(distorted).collect(), &self.sigmas);
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

/// What the kernels leave of a plane.
fn moments(layout: &Layout, sums: &[u64]) -> PlaneMoments {
    let halves = |pair: &u64| [f32::from_bits(*pair as u32), f32::from_bits((*pair >> 32) as u32)];
    let numbers: Vec<f32> = sums.iter().flat_map(halves).collect();
    let mut covariance = [[0.0; ELEMENTS]; ELEMENTS];
    for a in 0..ELEMENTS {
        for b in 0..=a {
            covariance[a][b] = numbers[a * (a + 1) / 2 + b];
            covariance[b][a] = covariance[a][b];
        }
    }
    let variances = &numbers[PAIRS + 1..][..layout.blocks.0 * layout.blocks.1];
    PlaneMoments { covariance, variances: (numbers[PAIRS] != 0.0).then(|| variances.to_vec()) }
}
