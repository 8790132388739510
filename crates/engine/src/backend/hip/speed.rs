// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/speed.hip`.

use std::sync::{Arc, Mutex, PoisonError};

use gpu::{Device, DeviceBuffer, Error, Kernel, Stream, arguments};

use super::metric::{Addresses, Metric, Pairs, Setup};
use super::shared::{bytes_of, shared};
use crate::backend::BackendError;
use crate::metrics;
use crate::metrics::speed::{
    self, BLOCK, ChromaStatistics, Covariance, ELEMENTS, Eigenvalues, Layout, PlaneMoments, PlaneStatistics,
    Sample, SpeedSums, SpeedWork,
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
    /// What was found ahead of the group that is read next, for each scaling.
    ahead: Mutex<Vec<Eigenvalues>>,
}

impl Speed {
    /// The scalings of a pair, with where their small images, these without their local mean, and their sums are.
    fn places(&self, at: Addresses) -> impl Iterator<Item = (&Scaling, [u64; 3])> {
        let (mut scratch, mut sums) = (at.scratch, at.sums);
        self.scalings.iter().map(move |scaling| {
            let images = scratch;
            let place = [images, images + scaling.images() as u64, sums];
            scratch = place[1] + scaling.fields() as u64;
            sums += (PLANES * plane_sums(&scaling.layout) * 8) as u64;
            (scaling, place)
        })
    }

    /// Launches what makes the small images of pair `i`, less their local means.
    fn launch_fields(&self, stream: &Stream, pairs: Pairs, i: usize) -> Result<(), Error> {
        let (at, planes) = (pairs.pair(i), planes_of(i));
        for (scaling, [images, fields, _]) in self.places(at) {
            let (layout, mean) = (&scaling.layout, scaling.mean);
            let tiles = layout.x.size.div_ceil(TILE) as u32;
            let [width, height] = mean.used;
            // SAFETY: the parameters of speed_small_u8 and speed_small_u16, and of speed_mean.
            unsafe {
                let grid = (tiles, planes * layout.y.size as u32);
                self.small.launch(stream, grid, arguments![at.frame, scaling.scaling, planes, images])?;
                let grid = ((width * height) as u32).div_ceil(THREADS);
                self.mean.launch(stream, (grid, planes), arguments![images, mean, planes, fields])?;
            }
        }
        Ok(())
    }

    /// Launches what makes the covariances of these.
    fn launch_covariances(&self, stream: &Stream, pairs: Pairs, i: usize) -> Result<(), Error> {
        self.launch_sums(&self.covariance, PARTS, stream, pairs, i)
    }

    /// Launches what makes the variances of these, after the covariances.
    fn launch_variances(&self, stream: &Stream, pairs: Pairs, i: usize) -> Result<(), Error> {
        self.launch_sums(&self.variances, 1, stream, pairs, i)
    }

    /// `blocks`: how many there are for a plane.
    fn launch_sums(
        &self,
        kernel: &Kernel,
        blocks: u32,
        stream: &Stream,
        pairs: Pairs,
        i: usize,
    ) -> Result<(), Error> {
        let planes = planes_of(i);
        self.places(pairs.pair(i)).try_for_each(|(Scaling { layout, mean, .. }, [_, fields, sums])| {
            let ([width, height], stride) = (mean.used, 2 * plane_sums(layout) as u32);
            let given = arguments![fields, width, height, stride, planes, sums];
            // SAFETY: the parameters of speed_covariance and speed_variances.
            unsafe { kernel.launch(stream, (blocks, planes), given) }
        })
    }
}

/// The planes that are computed with pair `i`: all, or only those of the distorted picture, which are the first half; the
/// reference's are done once for a group.
fn planes_of(i: usize) -> u32 {
    if i == 0 { PLANES as u32 } else { PLANES as u32 / 2 }
}

/// What planes of the pairs of a group left, in this order: those of the reference, which are with the first pair, and of each
/// distorted picture, Cb and Cr.
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
        let kernel = |name, threads| Kernel::new(device, "speed", name, threads);
        let scaling = |scaling: &speed::Scaling| {
            let layout = scaling.layout(geometry).map_err(metrics::Misfit::from)?;
            Ok::<_, BackendError>(Scaling::new(device, layout, geometry.depth.bits())?)
        };
        Ok(Self {
            scalings: work.scalings.iter().map(scaling).collect::<Result<_, _>>()?,
            sigmas: work.sigmas.clone(),
            ahead: Mutex::default(),
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

    fn launch_first(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        self.launch_fields(stream, pairs, 0)
    }

    /// All but the variances of the last pair: the pairs share their scratch.
    fn launch_ahead(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        self.launch_covariances(stream, pairs, 0)?;
        for i in 1..pairs.count {
            self.launch_variances(stream, pairs, i - 1)?;
            self.launch_fields(stream, pairs, i)?;
            self.launch_covariances(stream, pairs, i)?;
        }
        Ok(())
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        self.launch_variances(stream, pairs, pairs.count - 1)
    }

    fn read_ahead(&self, sums: &[&[u64]]) {
        let mut at = 0;
        let of = |Scaling { layout, .. }: &Scaling| {
            let size = plane_sums(layout);
            let planes = of_planes(sums, at, size);
            at += PLANES * size;
            Eigenvalues::of(planes.map(covariance).collect())
        };
        let ahead = self.scalings.iter().map(of).collect();
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = ahead;
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<SpeedSums> {
        let mut pairs = vec![vec![]; sums.len()];
        let mut ahead =
            std::mem::take(&mut *self.ahead.lock().unwrap_or_else(PoisonError::into_inner)).into_iter();
        let mut at = 0;
        for Scaling { layout, .. } in &self.scalings {
            let size = plane_sums(layout);
            let planes = of_planes(sums, at, size).map(|sums| moments(layout, sums)).collect();
            let statistics = PlaneStatistics::of(planes, ahead.next().unwrap_or_default(), &self.sigmas);
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

/// The covariances of what the kernels leave of a plane: its first singles.
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

/// All that the kernels leave of a plane.
fn moments(layout: &Layout, sums: &[u64]) -> PlaneMoments {
    let numbers: &[f32] = bytemuck::cast_slice(sums);
    let variances = &numbers[PAIRS + 1..][..layout.blocks.0 * layout.blocks.1];
    let variances = (numbers[PAIRS] != 0.0).then(|| variances.to_vec());
    PlaneMoments { covariance: covariance(sums), variances }
}
