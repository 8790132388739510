// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/damage.hip`.

use gpu::{Error, Kernel, Stream, arguments};

use super::metric::{Addresses, Metric, Pairs, Setup};
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::damage::{DamageSums, DamageWork, Window, cells};

const THREADS: u32 = 256;
/// Cells of a row per block.
const CELLS: u32 = 8;
/// Sums per cell.
const SUMS: usize = 2;

/// The damage map.
pub struct Damage {
    kernel: Kernel,
    geometry: Geometry,
}

impl Metric for Damage {
    type Of = metrics::damage::Damage;

    fn modules(_work: &DamageWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["damage"]
    }

    fn prepare(_work: &DamageWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let name = setup.by_sample("damage_u8", "damage_u16");
        Ok(Self { kernel: Kernel::new(setup.device, "damage", name, THREADS)?, geometry: setup.geometry })
    }

    fn sums(&self) -> usize {
        let (columns, rows) = cells(self.geometry);
        columns * rows * SUMS
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let Geometry { width, height, depth, .. } = self.geometry;
        let (columns, rows) = cells(self.geometry);
        let grid = ((columns as u32).div_ceil(CELLS), rows as u32);
        let (width, height, bits) = (width as i32, height as i32, depth.bits());
        for i in 0..pairs.count {
            let Addresses { frame, sums, .. } = pairs.pair(i);
            // SAFETY: the parameters of damage_u8 and damage_u16.
            unsafe { self.kernel.launch(stream, grid, arguments![frame, bits, width, height, sums])? };
        }
        Ok(())
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<DamageSums> {
        let window = |cell: &[u64]| Window {
            reference: cell[0] as u32,
            distorted: (cell[0] >> 32) as u32,
            covariance: cell[1] as i32,
        };
        sums.iter().map(|sums| sums.chunks_exact(SUMS).map(window).collect()).collect()
    }
}
