// SPDX-License-Identifier: MPL-2.0

//! Launches the kernels of `kernels/vif.h`.

use gpu::{DeviceBuffer, Error, Kernel, Stream, arguments};

use super::frame::HvPlanes;
use super::metric::{Addresses, Metric, Overlap, Pairs, Setup, is_large};
use super::shared::{bytes_of, shared};
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::vif::{LOG2_STEPS, VifScaleSums, VifSums, VifWork};

/// Most gain limits in one launch.
const MAX_GAINS: usize = 4;
/// Sums of one scale.
const SUMS: usize = 8;

/// How a kernel divides a picture: threads per block, pixels per tile, and tiles per block from top to bottom.
struct Shape {
    threads: u32,
    tile: (usize, usize),
    tiles: usize,
}

/// Returns true if scale 0 uses tensor cores, one distorted picture after the other.
fn on_tensor_cores(bits: u32, target: &str) -> bool {
    bits <= 12 && target.starts_with("sm_80")
}

impl Shape {
    /// Returns the shape of a scale's kernel, as in `kernels/vif.h` and `kernels/vif_mma.h`. `target` is a GPU target
    /// of this crate's `build.rs`. More tiles per block save work, more blocks keep the GPU busy. A group that overlaps
    /// with no others is done sooner with one tile per block, or two at the second scale.
    fn new(scale: usize, geometry: Geometry, target: &str, overlap: Overlap) -> Self {
        let nvidia = target.starts_with("sm_");
        let alone = overlap == Overlap::Little;
        let one_or = |tiles| if alone { 1 } else { tiles };
        let (threads, tile, tiles) = match scale {
            0 if on_tensor_cores(geometry.depth.bits(), target) => {
                (128, (if alone { 128 } else { 256 }, 64), 1)
            }
            0 if nvidia => (256, (240, 8), one_or(4)),
            0 => (128, (112, 8), one_or(2)),
            1 => (128, (120, 4), if is_large(geometry) && !alone { 4 } else { 2 }),
            _ => (128, (124, 4), one_or(2)),
        };
        Self { threads, tile, tiles }
    }
}

shared! {
    "vif.h"
    /// Parameters of a kernel besides the pictures.
    struct VifArgs: 72 {
        [0] width: i32,
        [4] height: i32,
        [8] bits: u32,
        [12] gains: u32,
        [16] gain_limits: [f64; MAX_GAINS],
        [48] whole_limits: [u32; MAX_GAINS],
        [64] pictures: u32,
        [68] pitch: u32,
    }
}

struct Scale {
    /// Kernel for one distorted picture.
    kernel: Kernel,
    /// Kernel for several distorted pictures at a time, if groups may have several and it is faster.
    group: Option<Kernel>,
    grid: (u32, u32),
    width: usize,
    height: usize,
}

impl Scale {
    fn new(setup: &Setup<'_>, scale: usize) -> Result<Self, Error> {
        let Setup { device, geometry, overlap, .. } = *setup;
        let (width, height) = (geometry.width >> scale, geometry.height >> scale);
        let bits = geometry.depth.bits();
        let (image, name) = match scale {
            0 if bits == 8 => ("vif0_u8", "vif0_u8"),
            0 => ("vif0_u16", "vif0_u16"),
            1 => ("vif", "vif1"),
            2 => ("vif", "vif2"),
            _ => ("vif", "vif3"),
        };
        let target = device.module(image)?.target();
        let one_by_one = scale == 0 && on_tensor_cores(bits, target);
        let name = if one_by_one && bits > 8 { "vif0_u12" } else { name };
        let Shape { threads, tile, tiles } = Shape::new(scale, geometry, target, overlap);
        let grid = (width.div_ceil(tile.0) as u32, height.div_ceil(tile.1 * tiles) as u32);
        let kernel = |image, name: &str| Kernel::new(device, image, name, threads);
        let group = || kernel("vif_group", &format!("{name}_group"));
        let kernel = kernel(image, name)?;
        let group = (setup.several() && !one_by_one).then(group).transpose()?;
        Ok(Self { kernel, group, grid, width, height })
    }

    /// Returns the kernel that takes the most of these distorted pictures at a time, and how many it takes.
    fn kernel(&self, pictures: usize) -> (&Kernel, usize) {
        match &self.group {
            Some(group) if pictures > 1 => (group, pictures),
            _ => (&self.kernel, 1),
        }
    }

    /// Returns the samples from row to row of the planes of this scale.
    fn stride(&self) -> usize {
        self.width.next_multiple_of(128)
    }

    /// Returns the bytes of one plane.
    fn size(&self) -> usize {
        self.stride() * self.height * 2
    }
}

pub struct Vif {
    scales: [Scale; 4],
    log2_steps: DeviceBuffer,
    work: VifWork,
    bits: u32,
    renditions: usize,
}

impl Vif {
    /// Divides the gain limits into those of each launch.
    fn launches(&self) -> std::slice::Chunks<'_, f64> {
        self.work.gain_limits.chunks(MAX_GAINS)
    }
}

impl Metric for Vif {
    type Of = metrics::vif::Vif;
    const WIDE: bool = true;

    fn modules(_work: &VifWork, setup: &Setup<'_>) -> Vec<&'static str> {
        let first = setup.by_sample("vif0_u8", "vif0_u16");
        [first, "vif"].into_iter().chain(setup.several().then_some("vif_group")).collect()
    }

    fn prepare(work: &VifWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let scale = |scale| Scale::new(setup, scale);
        let steps: Vec<u16> = LOG2_STEPS.iter().map(|step| *step as u16).collect();
        Ok(Self {
            scales: [scale(0)?, scale(1)?, scale(2)?, scale(3)?],
            log2_steps: DeviceBuffer::holding(setup.device, "a table", bytes_of(&steps))?,
            work: work.clone(),
            bits: setup.geometry.depth.bits(),
            renditions: setup.renditions,
        })
    }

    fn scratch(&self) -> usize {
        self.scales[1..].iter().map(|scale| (1 + self.renditions) * scale.size()).sum()
    }

    fn sums(&self) -> usize {
        self.launches().len() * 4 * SUMS
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let log2_steps = self.log2_steps.address();
        for (i, limits) in self.launches().enumerate() {
            let mut planes = HvPlanes::default();
            let mut room = pairs.first.scratch;
            for (s, scale) in self.scales.iter().enumerate() {
                let below = self.scales.get(s + 1);
                let take =
                    |scale: &Scale| HvPlanes::take(&mut room, scale.size(), scale.stride(), pairs.count);
                let next = below.map_or_else(HvPlanes::default, take);
                let wanted = s > 0 || self.work.scale0;
                let mut args = VifArgs {
                    width: scale.width as i32,
                    height: scale.height as i32,
                    bits: self.bits,
                    gains: if wanted { limits.len() as u32 } else { 0 },
                    gain_limits: [0.0; MAX_GAINS],
                    whole_limits: [0; MAX_GAINS],
                    pictures: 0,
                    pitch: (pairs.pitch / 8) as u32,
                };
                args.gain_limits[..limits.len()].copy_from_slice(limits);
                let whole = |limit: &f64| if limit.fract() == 0.0 { *limit as u32 } else { 0 };
                args.whole_limits.iter_mut().zip(limits).for_each(|(to, limit)| *to = whole(limit));
                let mut first = 0;
                while first < pairs.count {
                    let (kernel, count) = scale.kernel(pairs.count - first);
                    let Addresses { frame, sums, .. } = pairs.pair(first);
                    let sums = sums + (i * 4 * SUMS * 8) as u64;
                    let planes = planes.at(first, scale.size());
                    let next = below.map_or(next, |scale| next.at(first, scale.size()));
                    args.pictures = count as u32;
                    let arguments: &mut [_] = match s {
                        0 => arguments![frame, args, next, log2_steps, sums],
                        _ => arguments![planes, args, next, log2_steps, sums],
                    };
                    // SAFETY: the parameters of vif0_u8, vif0_u12 and vif0_u16, or of vif1 to vif3, and of their groups.
                    unsafe { kernel.launch(stream, scale.grid, arguments)? };
                    first += count;
                }
                planes = next;
            }
        }
        Ok(())
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<VifSums> {
        sums.iter().map(|sums| self.pair(sums)).collect()
    }
}

impl Vif {
    /// Reads the sums of a pair.
    fn pair(&self, sums: &[u64]) -> VifSums {
        let gain = |sums: &[u64], gain: usize| {
            std::array::from_fn(|s| {
                let sum = |i: usize| sums[s * SUMS + i] as i64;
                VifScaleSums {
                    den_log: sum(0),
                    flat_count: sum(1),
                    flat_energy: sum(2),
                    num_log: sum(4 + gain),
                }
            })
        };
        let launches = self.launches().zip(sums.chunks(4 * SUMS));
        launches.flat_map(|(limits, sums)| (0..limits.len()).map(move |g| gain(sums, g))).collect()
    }
}
