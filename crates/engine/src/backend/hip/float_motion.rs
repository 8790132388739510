// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/float_motion.hip`.

use gpu::{Error, Kernel, Stream, arguments};

use super::metric::{Metric, Pairs, Setup};
use super::ordered::{HvTerms, Ordered};
use super::shared::shared;
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::float_motion::{FloatMotionSums, FloatMotionWork, TAPS, mean};

const THREADS: u32 = 256;
/// Pixels per block.
const TILE: (usize, usize) = (64, 16);

shared! {
    "float_motion.hip"
    /// A filter, and the place of its terms in the scratch, in units of 4 bytes.
    struct FloatMotionTerms: 28 {
        [0] taps: [f32; TAPS],
        [20] terms: u32,
        /// Distance from row to row.
        [24] stride: u32,
    }
}

pub struct FloatMotion {
    kernel: Kernel,
    /// `None` if no difference is wanted.
    ordered: Option<Ordered>,
    /// For each kind of difference.
    terms: Vec<FloatMotionTerms>,
    /// Units of 4 bytes.
    scratch: u32,
    geometry: Geometry,
}

impl Metric for FloatMotion {
    type Of = metrics::float_motion::FloatMotion;
    const HISTORY: bool = true;

    fn modules(_work: &FloatMotionWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["float_motion", Ordered::MODULE]
    }

    fn prepare(work: &FloatMotionWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let Setup { device, geometry, .. } = *setup;
        for difference in work {
            if difference.half {
                return Err(BackendError::CpuOnly("float_motion with motion_add_scale1"));
            }
            if difference.chroma {
                return Err(BackendError::CpuOnly("float_motion with motion_add_uv"));
            }
        }
        let mut scratch = 0;
        let size = (geometry.width, geometry.height);
        let planes: Vec<_> = (0..work.len()).map(|sum| HvTerms::take(&mut scratch, size, sum)).collect();
        let terms = work.iter().zip(&planes).map(|(difference, plane)| FloatMotionTerms {
            taps: difference.filter.taps(),
            terms: plane.terms,
            stride: plane.stride,
        });
        let name = setup.by_sample("float_motion_u8", "float_motion_u16");
        Ok(Self {
            kernel: Kernel::new(device, "float_motion", name, THREADS)?,
            ordered: (!planes.is_empty()).then(|| Ordered::new(device, &planes)).transpose()?,
            terms: terms.collect(),
            scratch,
            geometry,
        })
    }

    fn scratch(&self) -> usize {
        self.scratch as usize * size_of::<f32>()
    }

    fn sums(&self) -> usize {
        self.terms.len()
    }

    /// Launches the kernels once for all pairs, since motion depends only on the reference.
    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let (frame, scratch) = (pairs.first.frame, pairs.first.scratch);
        let Geometry { width, height, depth, .. } = self.geometry;
        let (bits, unit) = (depth.bits(), depth.unit());
        let grid = (width.div_ceil(TILE.0) as u32, height.div_ceil(TILE.1) as u32);
        let (width, height) = (width as i32, height as i32);
        for terms in &self.terms {
            let given = arguments![frame, width, height, bits, unit, *terms, scratch];
            // SAFETY: the parameters of float_motion_u8 and float_motion_u16.
            unsafe { self.kernel.launch(stream, grid, given)? };
        }
        let alone = Pairs { count: 1, ..pairs };
        self.ordered.as_ref().map_or(Ok(()), |ordered| ordered.launch(stream, alone, self.scratch))
    }

    fn read(&self, sums: &[&[u64]], run: usize) -> Vec<FloatMotionSums> {
        let Geometry { width, height, .. } = self.geometry;
        let difference = |bits: &u64| f64::from(mean(f32::from_bits(*bits as u32), (width, height)));
        let of_reference = sums.first().map(|sums| &sums[..self.terms.len()]).unwrap_or_default();
        let of_reference: Vec<_> =
            of_reference.iter().map(|bits| (run > 0).then(|| difference(bits))).collect();
        vec![of_reference; sums.len()]
    }
}
