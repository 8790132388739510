// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/motion.h`.

use std::sync::Arc;

use gpu::{Device, Error, Kernel, Stream, arguments};

use super::backend::{Addresses, Metric, Pairs};
use crate::frame::Geometry;
use crate::metrics::FrameSums;
use crate::metrics::motion::{MotionSums, MotionWork};

const THREADS: u32 = 128;
/// Pixels that a block covers.
const TILE: (usize, usize) = (240, 20);

pub struct Motion {
    kernel: Kernel,
    work: MotionWork,
    geometry: Geometry,
}

impl Motion {
    pub fn new(device: &Arc<Device>, work: MotionWork, geometry: Geometry) -> Result<Self, Error> {
        let name = if geometry.depth.bits() == 8 { "motion_u8" } else { "motion_u16" };
        Ok(Self { kernel: Kernel::new(device, name, name, THREADS)?, work, geometry })
    }
}

impl Metric for Motion {
    fn sums(&self) -> usize {
        2
    }

    fn needs_history(&self) -> bool {
        true
    }

    /// It depends on the reference only.
    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let Addresses { frame, sums, .. } = pairs.first;
        let Geometry { width, height, depth, .. } = self.geometry;
        let bits = depth.bits();
        let grid = (width.div_ceil(TILE.0) as u32, height.div_ceil(TILE.1) as u32);
        for (lag, wanted) in [(1u32, self.work.lag1), (2, self.work.lag2)] {
            if wanted {
                let (w, h, sum) = (width as i32, height as i32, sums + u64::from(lag - 1) * 8);
                // SAFETY: the parameters of motion_u8 and motion_u16.
                unsafe {
                    self.kernel.launch(stream, grid, arguments![frame, lag, w, h, bits, sum])?;
                }
            }
        }
        Ok(())
    }

    fn read_all(&self, sums: &[&[u64]], run: usize, out: &mut [FrameSums]) {
        out.iter_mut().for_each(|out| self.read(sums[0], run, out));
    }

    fn read(&self, sums: &[u64], run: usize, out: &mut FrameSums) {
        let sum = |lag: usize, wanted| (wanted && lag <= run).then(|| sums[lag - 1]);
        out.motion = Some(MotionSums { lag1: sum(1, self.work.lag1), lag2: sum(2, self.work.lag2) });
    }
}
