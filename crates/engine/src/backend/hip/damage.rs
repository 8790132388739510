// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/damage.hip`.

use gpu::{Error, Kernel, Stream, arguments};

use super::metric::{HalfPictures, Metric, Pairs, Setup};
use crate::backend::{BackendError, Halves};
use crate::metrics;
use crate::metrics::damage::{DamageSums, DamageWork, Window, cells};

/// Cells of a row per block.
const THREADS: u32 = 64;
/// Sums per cell.
const SUMS: usize = 2;

/// The damage map.
pub struct Damage {
    kernel: Kernel,
    grid: (u32, u32),
    cells: usize,
}

impl Metric for Damage {
    type Of = metrics::damage::Damage;
    const HALVES: Halves = Halves::Needed;

    fn modules(_work: &DamageWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["damage"]
    }

    fn prepare(_work: &DamageWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let (columns, rows) = cells(setup.geometry);
        let kernel = Kernel::new(setup.device, "damage", "damage", THREADS)?;
        Ok(Self { kernel, grid: ((columns as u32).div_ceil(THREADS), rows as u32), cells: columns * rows })
    }

    fn sums(&self) -> usize {
        self.cells * SUMS
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let Some(HalfPictures { planes, width, height, size }) = pairs.halves else { return Ok(()) };
        let (width, height) = (width as i32, height as i32);
        for pair in 0..pairs.count {
            let (planes, sums) = (planes.at(pair, size), pairs.pair(pair).sums);
            // SAFETY: the parameters of damage.
            unsafe { self.kernel.launch(stream, self.grid, arguments![planes, width, height, sums])? };
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
