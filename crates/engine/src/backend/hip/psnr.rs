// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/psnr.hip`.

use std::sync::Arc;

use gpu::{Device, Error, Kernel, Stream, arguments};

use super::backend::{Addresses, Metric, Pairs};
use crate::frame::Geometry;
use crate::metrics::FrameSums;
use crate::metrics::psnr::{PsnrSums, PsnrWork};

const THREADS: u32 = 256;
/// Samples that a block covers: this many bytes of so many rows.
const TILE: (usize, usize) = (512, 16);

pub struct Psnr {
    kernel: Kernel,
    geometry: Geometry,
    /// Extents of the planes that are compared.
    planes: Vec<(usize, usize)>,
}

impl Psnr {
    pub fn new(device: &Arc<Device>, work: PsnrWork, geometry: Geometry) -> Result<Self, Error> {
        let name = if geometry.depth.bits() == 8 { "psnr_u8" } else { "psnr_u16" };
        let chroma = geometry.chroma.filter(|_| work.chroma);
        let planes = std::iter::once((geometry.width, geometry.height)).chain(chroma).chain(chroma).collect();
        Ok(Self { kernel: Kernel::new(device, "psnr", name, THREADS)?, geometry, planes })
    }
}

impl Metric for Psnr {
    fn sums(&self) -> usize {
        3
    }

    fn needs_history(&self) -> bool {
        true
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let bits = self.geometry.depth.bits();
        for (component, (width, height)) in (0u32..).zip(&self.planes) {
            let columns = width * self.geometry.sample_size();
            let grid = (columns.div_ceil(TILE.0) as u32, height.div_ceil(TILE.1) as u32);
            if grid.0 * grid.1 == 0 {
                continue;
            }
            for i in 0..pairs.count {
                let Addresses { frame, sums, .. } = pairs.pair(i);
                let (w, h, sum) = (*width as i32, *height as i32, sums + u64::from(component) * 8);
                // SAFETY: the parameters of psnr_u8 and psnr_u16.
                unsafe { self.kernel.launch(stream, grid, arguments![frame, component, w, h, bits, sum])? };
            }
        }
        Ok(())
    }

    fn read(&self, sums: &[u64], _run: usize, out: &mut FrameSums) {
        out.psnr =
            Some(PsnrSums { y: sums[0], chroma: (self.planes.len() == 3).then_some([sums[1], sums[2]]) });
    }
}
