// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/ciede.hip`.

use gpu::{Error, Kernel, Stream, arguments};

use super::metric::{Addresses, Metric, Pairs, Setup};
use super::shared::shared;
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::ciede::{CiedeWork, Range, fixed_sum};

shared! {
    "ciede.hip"
    /// Converts samples to fractions.
    struct CiedeRange: 32 {
        [0] black: f64,
        [8] luma: f64,
        [16] grey: f64,
        [24] chroma: f64,
    }
}

impl From<Range> for CiedeRange {
    fn from(Range { black, luma, grey, chroma }: Range) -> Self {
        Self { black, luma, grey, chroma }
    }
}

const THREADS: u32 = 128;
/// Luma samples per block.
const TILE: (usize, usize) = (128, 4);

pub struct Ciede {
    kernel: Kernel,
    /// Kernel for groups of several distorted pictures.
    group: Kernel,
    geometry: Geometry,
    chroma: (usize, usize),
}

impl Metric for Ciede {
    type Of = metrics::ciede::Ciede;
    const WIDE: bool = true;

    fn modules(_work: &CiedeWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["ciede"]
    }

    fn prepare(_work: &CiedeWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let geometry = setup.geometry;
        let name = setup.by_sample("ciede_u8", "ciede_u16");
        let kernel = |name: &str| Kernel::new(setup.device, "ciede", name, THREADS);
        let (kernel, group) = (kernel(name)?, kernel(&format!("{name}_group"))?);
        Ok(Self { kernel, group, geometry, chroma: geometry.chroma.unwrap_or_default() })
    }

    fn sums(&self) -> usize {
        1
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let Addresses { frame, sums, .. } = pairs.first;
        let (count, pitch) = (pairs.count as u32, (pairs.pitch / 8) as u32);
        let kernel = if count > 1 { &self.group } else { &self.kernel };
        let Geometry { width, height, depth, .. } = self.geometry;
        let (range, bias, bits) =
            (CiedeRange::from(Range::new(depth)), fixed_sum(self.geometry).bias(), depth.bits());
        let extents = [width, height, self.chroma.0, self.chroma.1].map(|extent| extent as i32);
        let [w, h, chroma_width, chroma_height] = extents;
        let grid = (width.div_ceil(TILE.0) as u32, height.div_ceil(TILE.1) as u32);
        let arguments =
            arguments![frame, bits, w, h, chroma_width, chroma_height, range, bias, count, pitch, sums];
        // SAFETY: the parameters of the kernels.
        unsafe { kernel.launch(stream, grid, arguments) }
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<u64> {
        sums.iter().map(|sums| sums[0]).collect()
    }
}
