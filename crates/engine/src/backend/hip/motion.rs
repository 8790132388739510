// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/motion.h`.

use gpu::{Error, Kernel, Stream, arguments};

use super::metric::{Addresses, Metric, Pairs, Setup};
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::motion::{MotionSums, MotionWork};

const THREADS: u32 = 128;
/// Pixels per block.
const TILE: (usize, usize) = (240, 40);

pub struct Motion {
    kernel: Kernel,
    work: MotionWork,
    geometry: Geometry,
}

impl Metric for Motion {
    type Of = metrics::motion::Motion;
    const HISTORY: bool = true;
    const WIDE: bool = true;

    fn modules(_work: &MotionWork, setup: &Setup<'_>) -> Vec<&'static str> {
        vec![setup.by_sample("motion_u8", "motion_u16")]
    }

    fn prepare(work: &MotionWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let name = setup.by_sample("motion_u8", "motion_u16");
        let kernel = Kernel::new(setup.device, name, name, THREADS)?;
        Ok(Self { kernel, work: *work, geometry: setup.geometry })
    }

    fn sums(&self) -> usize {
        2
    }

    /// Launches the kernels once for all pairs, since motion depends only on the reference.
    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let Addresses { frame, sums, .. } = pairs.first;
        let Geometry { width, height, depth, .. } = self.geometry;
        let bits = depth.bits();
        let grid = (width.div_ceil(TILE.0) as u32, height.div_ceil(TILE.1) as u32);
        for (lag, wanted) in [(1u32, self.work.lag1), (2, self.work.lag2)] {
            if wanted {
                let (width, height, sum) = (width as i32, height as i32, sums + u64::from(lag - 1) * 8);
                // SAFETY: the parameters of motion_u8 and motion_u16.
                unsafe {
                    self.kernel.launch(stream, grid, arguments![frame, lag, width, height, bits, sum])?;
                }
            }
        }
        Ok(())
    }

    fn read(&self, sums: &[&[u64]], run: usize) -> Vec<MotionSums> {
        let sum = |lag: usize, wanted| (wanted && lag <= run).then(|| sums[0][lag - 1]);
        vec![MotionSums { lag1: sum(1, self.work.lag1), lag2: sum(2, self.work.lag2) }; sums.len()]
    }
}
