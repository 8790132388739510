// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/vif.hip`, and on what that leaves `kernels/damage.hip`.

use std::sync::Arc;

use super::backend::{Addresses, Metric};
use super::device::Device;
use super::error::Error;
use super::frame::Planes;
use super::memory::DeviceBuffer;
use super::module::{Kernel, arguments};
use super::stream::Stream;
use crate::frame::Geometry;
use crate::metrics::FrameSums;
use crate::metrics::damage::{Window, cells};
use crate::metrics::vif::{LOG2_STEPS, VifScaleSums, VifWork};

/// Gain limits of one launch.
const MAX_GAINS: usize = 4;
/// Sums of one scale.
const SUMS: usize = 8;

/// How a kernel divides a picture: threads of a block, pixels of a tile, and tiles that a block walks down.
struct Shape {
    threads: u32,
    tile: (usize, usize),
    tiles: usize,
}

impl Shape {
    /// As `kernels/vif.h` has it; `target` is one of `build.rs`. Alone, a frame is done sooner in more blocks.
    fn new(scale: usize, bits: u32, target: &str, alone: bool) -> Self {
        let nvidia = target.starts_with("sm_");
        let shape = |threads, tile, tiles| Self { threads, tile, tiles: if alone { 1 } else { tiles } };
        match scale {
            0 if bits == 8 && target.starts_with("sm_80") => shape(128, (128, 64), 1),
            0 if nvidia => shape(256, (240, 8), 4),
            0 => shape(128, (112, 8), 2),
            1 => shape(128, (120, 8), 2),
            _ => shape(128, (124, 4), 4),
        }
    }
}

/// `VifArgs`
#[derive(Clone, Copy)]
#[repr(C)]
struct Args {
    width: i32,
    height: i32,
    bits: u32,
    gains: u32,
    gain_limits: [f64; MAX_GAINS],
}

struct Scale {
    kernel: Kernel,
    grid: (u32, u32),
    width: usize,
    height: usize,
}

impl Scale {
    fn new(device: &Arc<Device>, geometry: Geometry, scale: usize, alone: bool) -> Result<Self, Error> {
        let (width, height) = (geometry.width >> scale, geometry.height >> scale);
        let bits = geometry.depth.bits();
        let (image, name) = match scale {
            0 if bits == 8 => ("vif0_u8", "vif0_u8"),
            0 => ("vif0_u16", "vif0_u16"),
            1 => ("vif", "vif1"),
            2 => ("vif", "vif2"),
            _ => ("vif", "vif3"),
        };
        let Shape { threads, tile, tiles } = Shape::new(scale, bits, device.module(image)?.target(), alone);
        let grid = (width.div_ceil(tile.0) as u32, height.div_ceil(tile.1 * tiles) as u32);
        Ok(Self { kernel: Kernel::new(device, image, name, threads)?, grid, width, height })
    }

    /// Samples from row to row of the planes of this scale.
    fn stride(&self) -> usize {
        self.width.next_multiple_of(128)
    }

    /// Bytes of one plane.
    fn size(&self) -> usize {
        self.stride() * self.height * 2
    }
}

/// The damage map.
struct Damage {
    kernel: Kernel,
    grid: (u32, u32),
    cells: usize,
}

impl Damage {
    const THREADS: u32 = 64;
    /// Sums of a cell.
    const SUMS: usize = 2;

    fn new(device: &Arc<Device>, geometry: Geometry) -> Result<Self, Error> {
        let (columns, rows) = cells(geometry);
        let kernel = Kernel::new(device, "damage", "damage", Self::THREADS)?;
        let grid = ((columns as u32).div_ceil(Self::THREADS), rows as u32);
        Ok(Self { kernel, grid, cells: columns * rows })
    }

    /// Looks at the planes of scale 1.
    fn launch(&self, stream: &Stream, planes: Planes, scale: &Scale, sums: u64) -> Result<(), Error> {
        let (w, h) = (scale.width as i32, scale.height as i32);
        // SAFETY: the parameters of damage.
        unsafe { self.kernel.launch(stream, self.grid, arguments![planes, w, h, sums]) }
    }
}

pub struct Vif {
    scales: [Scale; 4],
    damage: Option<Damage>,
    log2_steps: DeviceBuffer,
    work: VifWork,
    bits: u32,
}

impl Vif {
    /// `damage`: the damage map is wanted too. `alone`: frames hardly overlap.
    pub fn new(
        device: &Arc<Device>,
        work: &VifWork,
        damage: bool,
        geometry: Geometry,
        alone: bool,
    ) -> Result<Self, Error> {
        let scale = |scale| Scale::new(device, geometry, scale, alone);
        let steps: Vec<u8> = LOG2_STEPS.iter().flat_map(|step| (*step as u16).to_ne_bytes()).collect();
        Ok(Self {
            scales: [scale(0)?, scale(1)?, scale(2)?, scale(3)?],
            damage: damage.then(|| Damage::new(device, geometry)).transpose()?,
            log2_steps: DeviceBuffer::holding(device, "a table", &steps)?,
            work: work.clone(),
            bits: geometry.depth.bits(),
        })
    }

    /// The gain limits, as many as a launch takes at a time.
    fn launches(&self) -> std::slice::Chunks<'_, f64> {
        self.work.gain_limits.chunks(MAX_GAINS)
    }
}

impl Metric for Vif {
    fn scratch(&self) -> usize {
        self.scales[1..].iter().map(|scale| 2 * scale.size()).sum()
    }

    fn sums(&self) -> usize {
        let damage = self.damage.as_ref().map_or(0, |damage| damage.cells * Damage::SUMS);
        self.launches().len() * 4 * SUMS + damage
    }

    fn launch(&self, stream: &Stream, at: Addresses) -> Result<(), Error> {
        let log2_steps = self.log2_steps.address();
        for (i, limits) in self.launches().enumerate() {
            let sums = at.sums + (i * 4 * SUMS * 8) as u64;
            let mut planes = Planes::default();
            let mut room = at.scratch;
            for (s, scale) in self.scales.iter().enumerate() {
                let next = self.scales.get(s + 1);
                let next = next.map(|next| Planes::take(&mut room, next.size(), next.stride()));
                let next = next.unwrap_or_default();
                let wanted = s > 0 || self.work.scale0;
                let mut args = Args {
                    width: scale.width as i32,
                    height: scale.height as i32,
                    bits: self.bits,
                    gains: if wanted { limits.len() as u32 } else { 0 },
                    gain_limits: [0.0; MAX_GAINS],
                };
                args.gain_limits[..limits.len()].copy_from_slice(limits);
                let arguments: &mut [_] = match s {
                    0 => arguments![at.frame, args, next, log2_steps, sums],
                    _ => arguments![planes, args, next, log2_steps, sums],
                };
                // SAFETY: the parameters of vif0_u8 and vif0_u16, or of vif1 to vif3.
                unsafe { scale.kernel.launch(stream, scale.grid, arguments)? };
                planes = next;
                if let (Some(damage), 0, 0) = (&self.damage, i, s) {
                    let sums = at.sums + (self.launches().len() * 4 * SUMS * 8) as u64;
                    damage.launch(stream, planes, &self.scales[1], sums)?;
                }
            }
        }
        Ok(())
    }

    fn read(&self, sums: &[u64], _run: usize, out: &mut FrameSums) {
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
        let (sums, damage) = sums.split_at(self.launches().len() * 4 * SUMS);
        let window = |cell: &[u64]| Window {
            reference: cell[0] as u32,
            distorted: (cell[0] >> 32) as u32,
            covariance: cell[1] as i32,
        };
        out.damage = self.damage.as_ref().map(|_| damage.chunks_exact(Damage::SUMS).map(window).collect());
        let launches = self.launches().zip(sums.chunks(4 * SUMS));
        out.vif =
            Some(launches.flat_map(|(limits, sums)| (0..limits.len()).map(move |g| gain(sums, g))).collect());
    }
}
