// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/ssim.hip`.

use std::sync::Arc;

use super::backend::{Addresses, Metric};
use super::device::Device;
use super::error::Error;
use super::frame::Planes;
use super::module::{Kernel, arguments};
use super::stream::Stream;
use crate::frame::Geometry;
use crate::metrics::FrameSums;
use crate::metrics::ssim::{MapSums, SCALES, SsimSums, SsimWork, WINDOW_SIZE, decimated, factor, fixed_sum};

const THREADS: u32 = 128;
/// Samples of a tile of the means.
const BOX_TILE: (usize, usize) = (32, 4);
/// Rows that a block of the window or of the low pass walks down, when frames overlap and when they do not.
const MAP_ROWS: [usize; 2] = [54, 22];
const LOW_PASS_ROWS: [usize; 2] = [28, 12];

/// One of the kernels, for luma and for decimated pictures.
struct Kernels {
    luma: Kernel,
    decimated: Kernel,
    /// Rows of a block.
    rows: usize,
}

impl Kernels {
    fn new(device: &Arc<Device>, name: &str, geometry: Geometry, rows: usize) -> Result<Self, Error> {
        let kernel = |name: &str| Kernel::new(device, "ssim", name, THREADS);
        Ok(Self { luma: kernel(&of_luma(name, geometry))?, decimated: kernel(name)?, rows })
    }

    fn grid(&self, width: usize, height: usize) -> (u32, u32) {
        (width.div_ceil(THREADS as usize) as u32, height.div_ceil(self.rows) as u32)
    }
}

/// The name of a kernel for luma samples.
fn of_luma(name: &str, geometry: Geometry) -> String {
    format!("{name}_{}", if geometry.depth.bits() == 8 { "u8" } else { "u16" })
}

/// A picture pair: that of the frame, or a decimated one.
#[derive(Clone, Copy)]
struct Pictures {
    planes: Option<Planes>,
    size: (usize, usize),
}

pub struct Ssim {
    map: Kernels,
    low_pass: Kernels,
    means: Kernel,
    work: SsimWork,
    geometry: Geometry,
}

impl Ssim {
    /// `alone`: frames hardly overlap.
    pub fn new(
        device: &Arc<Device>,
        work: &SsimWork,
        geometry: Geometry,
        alone: bool,
    ) -> Result<Self, Error> {
        let alone = usize::from(alone);
        Ok(Self {
            map: Kernels::new(device, "ssim_map", geometry, MAP_ROWS[alone])?,
            low_pass: Kernels::new(device, "ssim_low_pass", geometry, LOW_PASS_ROWS[alone])?,
            means: Kernel::new(device, "ssim", &of_luma("ssim_box", geometry), THREADS)?,
            work: work.clone(),
            geometry,
        })
    }

    /// Whether pictures are compared as they are: by SSIM of factor 1, or by the first scale of MS-SSIM.
    fn plain(&self) -> bool {
        self.work.multi_scale || self.work.scales.iter().any(|scale| factor(*scale, self.geometry) == 1)
    }

    /// Sizes of all decimated pictures, in the order in which they take room: of SSIM, then of MS-SSIM.
    fn decimated(&self) -> Vec<(usize, usize)> {
        let Geometry { width, height, .. } = self.geometry;
        let factors = self.work.scales.iter().map(|scale| factor(*scale, self.geometry));
        let scales = factors.filter(|factor| *factor > 1).map(|factor| decimated(width, height, factor));
        let next = |size: &(usize, usize)| Some(decimated(size.0, size.1, 2));
        let pyramid = std::iter::successors(Some((width, height)), next).skip(1).take(SCALES - 1);
        scales.chain(pyramid.filter(|_| self.work.multi_scale)).collect()
    }

    fn launch_map(&self, stream: &Stream, at: Addresses, from: Pictures, sums: u64) -> Result<(), Error> {
        let Pictures { planes, size } = from;
        let grid = self.map.grid(size.0 - (WINDOW_SIZE - 1), size.1 - (WINDOW_SIZE - 1));
        let (bits, w, h, rows) =
            (self.geometry.depth.bits(), size.0 as i32, size.1 as i32, self.map.rows as i32);
        let bias = fixed_sum(size).bias();
        match planes {
            // SAFETY: the parameters of ssim_map_u8 and ssim_map_u16.
            None => unsafe {
                self.map.luma.launch(stream, grid, arguments![at.frame, bits, w, h, rows, bias, sums])
            },
            // SAFETY: the parameters of ssim_map.
            Some(planes) => unsafe {
                self.map.decimated.launch(stream, grid, arguments![planes, w, h, rows, bias, sums])
            },
        }
    }

    fn launch_low_pass(
        &self,
        stream: &Stream,
        at: Addresses,
        from: Pictures,
        to: Planes,
    ) -> Result<(), Error> {
        let Pictures { planes, size } = from;
        let (width, height) = decimated(size.0, size.1, 2);
        let grid = self.low_pass.grid(width, height);
        let (bits, w, h, rows) =
            (self.geometry.depth.bits(), size.0 as i32, size.1 as i32, self.low_pass.rows as i32);
        match planes {
            // SAFETY: the parameters of ssim_low_pass_u8 and ssim_low_pass_u16.
            None => unsafe {
                self.low_pass.luma.launch(stream, grid, arguments![at.frame, bits, w, h, rows, to])
            },
            // SAFETY: the parameters of ssim_low_pass.
            Some(planes) => unsafe {
                self.low_pass.decimated.launch(stream, grid, arguments![planes, w, h, rows, to])
            },
        }
    }

    fn launch_means(&self, stream: &Stream, at: Addresses, factor: usize, to: Pictures) -> Result<(), Error> {
        let Geometry { width, height, depth, .. } = self.geometry;
        let grid = (to.size.0.div_ceil(BOX_TILE.0) as u32, to.size.1.div_ceil(BOX_TILE.1) as u32);
        let planes = to.planes.unwrap_or_default();
        let (bits, factor) = (depth.bits(), factor as i32);
        let [w, h, w2, h2] = [width, height, to.size.0, to.size.1].map(|extent| extent as i32);
        // SAFETY: the parameters of ssim_box_u8 and ssim_box_u16.
        unsafe { self.means.launch(stream, grid, arguments![at.frame, bits, w, h, factor, w2, h2, planes]) }
    }
}

/// Bytes of one decimated picture.
fn bytes((width, height): (usize, usize)) -> usize {
    width * height * size_of::<f32>()
}

impl Metric for Ssim {
    fn scratch(&self) -> usize {
        self.decimated().into_iter().map(|size| 2 * bytes(size)).sum()
    }

    /// Those of pictures as they are, of each scale of the work, and of the other scales of MS-SSIM.
    fn sums(&self) -> usize {
        (1 + self.work.scales.len() + SCALES - 1) * size_of::<MapSums>() / 8
    }

    fn launch(&self, stream: &Stream, at: Addresses) -> Result<(), Error> {
        let sums = |slot: usize| at.sums + (slot * size_of::<MapSums>()) as u64;
        let mut room = at.scratch;
        let mut take =
            |size| Pictures { planes: Some(Planes::take(&mut room, bytes(size), size.0, 1)), size };
        let Geometry { width, height, .. } = self.geometry;
        let whole = Pictures { planes: None, size: (width, height) };
        if self.plain() {
            self.launch_map(stream, at, whole, sums(0))?;
        }
        for (i, scale) in self.work.scales.iter().enumerate() {
            let factor = factor(*scale, self.geometry);
            if factor > 1 {
                let small = take(decimated(width, height, factor));
                self.launch_means(stream, at, factor, small)?;
                self.launch_map(stream, at, small, sums(1 + i))?;
            }
        }
        let mut above = whole;
        for scale in (1..SCALES).filter(|_| self.work.multi_scale) {
            let this = take(decimated(above.size.0, above.size.1, 2));
            self.launch_low_pass(stream, at, above, this.planes.unwrap_or_default())?;
            self.launch_map(stream, at, this, sums(self.work.scales.len() + scale))?;
            above = this;
        }
        Ok(())
    }

    fn read(&self, sums: &[u64], _run: usize, out: &mut FrameSums) {
        let slot = |i: usize| -> MapSums { std::array::from_fn(|k| sums[4 * i + k]) };
        let scale =
            |(i, scale): (usize, &u32)| slot(if factor(*scale, self.geometry) == 1 { 0 } else { 1 + i });
        let scales = self.work.scales.iter().enumerate().map(scale).collect();
        let pyramid = |scale: usize| slot(if scale == 0 { 0 } else { self.work.scales.len() + scale });
        out.ssim = Some(SsimSums {
            scales,
            multi_scale: self.work.multi_scale.then(|| std::array::from_fn(pyramid)),
        });
    }
}
