// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/ciede.hip`.

use std::sync::Arc;

use super::backend::{Addresses, Metric};
use super::device::Device;
use super::error::Error;
use super::module::{Kernel, arguments};
use super::stream::Stream;
use crate::frame::Geometry;
use crate::metrics::FrameSums;
use crate::metrics::ciede::{Range, fixed_sum};

const THREADS: u32 = 128;
/// Luma samples that a block covers.
const TILE: (usize, usize) = (128, 4);

pub struct Ciede {
    kernel: Kernel,
    geometry: Geometry,
    chroma: (usize, usize),
}

impl Ciede {
    /// For frames with chroma.
    pub fn new(device: &Arc<Device>, geometry: Geometry) -> Result<Self, Error> {
        let name = if geometry.depth.bits() == 8 { "ciede_u8" } else { "ciede_u16" };
        let kernel = Kernel::new(device, "ciede", name, THREADS)?;
        Ok(Self { kernel, geometry, chroma: geometry.chroma.unwrap_or_default() })
    }
}

impl Metric for Ciede {
    fn sums(&self) -> usize {
        1
    }

    fn launch(&self, stream: &Stream, at: Addresses) -> Result<(), Error> {
        let Geometry { width, height, depth, .. } = self.geometry;
        let (range, bias, bits) = (Range::new(depth), fixed_sum(self.geometry).bias(), depth.bits());
        let [w, h, cw, ch] = [width, height, self.chroma.0, self.chroma.1].map(|extent| extent as i32);
        let grid = (width.div_ceil(TILE.0) as u32, height.div_ceil(TILE.1) as u32);
        let arguments = arguments![at.frame, bits, w, h, cw, ch, range, bias, at.sums];
        // SAFETY: the parameters of ciede_u8 and ciede_u16.
        unsafe { self.kernel.launch(stream, grid, arguments) }
    }

    fn read(&self, sums: &[u64], _run: usize, out: &mut FrameSums) {
        out.ciede = Some(sums[0]);
    }
}
