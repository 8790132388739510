// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/psnr.hip`.

use gpu::{Error, Kernel, Stream, arguments};

use super::metric::{Addresses, Metric, Pairs, Setup};
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::psnr::{PsnrSums, PsnrWork};

const THREADS: u32 = 256;
/// Size of a block: this many bytes of this many rows.
const TILE: (usize, usize) = (512, 16);

pub struct Psnr {
    kernel: Kernel,
    geometry: Geometry,
    /// Sizes of the compared planes.
    planes: Vec<(usize, usize)>,
}

impl Metric for Psnr {
    type Of = metrics::psnr::Psnr;
    const HISTORY: bool = true;
    const WIDE: bool = true;

    fn modules(_work: &PsnrWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["psnr"]
    }

    fn prepare(work: &PsnrWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let geometry = setup.geometry;
        let name = setup.by_sample("psnr_u8", "psnr_u16");
        let chroma = geometry.chroma.filter(|_| work.chroma);
        let planes = std::iter::once((geometry.width, geometry.height)).chain(chroma).chain(chroma).collect();
        Ok(Self { kernel: Kernel::new(setup.device, "psnr", name, THREADS)?, geometry, planes })
    }

    fn sums(&self) -> usize {
        3
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

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<PsnrSums> {
        let chroma = self.planes.len() == 3;
        let pair = |sums: &&[u64]| PsnrSums { y: sums[0], chroma: chroma.then_some([sums[1], sums[2]]) };
        sums.iter().map(pair).collect()
    }
}
