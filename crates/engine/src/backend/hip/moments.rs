// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/moments.hip`.

use gpu::{Error, Kernel, Stream, arguments};

use super::metric::{Metric, Pairs, Setup};
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::moments::{MomentSums, MomentWork, Moments as Definition, PictureMoments};

const THREADS: u32 = 256;
/// Size of a block: this many bytes of this many rows.
const TILE: (usize, usize) = (512, 16);
/// Sums of integers. Behind them are the sums of squares that are not exact.
const SUMS: usize = 5;
/// Kinds of squares.
const KINDS: usize = 3;

pub struct Moments {
    sums: Kernel,
    /// Adds squares in order; `None` if all sums are exact.
    ordered: Option<Kernel>,
    geometry: Geometry,
    work: MomentWork,
}

impl Metric for Moments {
    type Of = metrics::moments::Moments;
    const WIDE: bool = true;

    fn modules(_work: &MomentWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["moments"]
    }

    fn prepare(work: &MomentWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let kernel = |name| Kernel::new(setup.device, "moments", name, THREADS);
        let ordered = (!Definition::is_exact(setup.geometry)).then(|| kernel("moments_ordered"));
        let sums = kernel(setup.by_sample("moments_u8", "moments_u16"))?;
        Ok(Self { sums, ordered: ordered.transpose()?, geometry: setup.geometry, work: *work })
    }

    fn sums(&self) -> usize {
        SUMS + KINDS
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let (frame, sums) = (pairs.first.frame, pairs.first.sums);
        let (count, pitch) = (pairs.count as u32, (pairs.pitch / 8) as u32);
        let columns = self.geometry.width * self.geometry.sample_size();
        let grid = (columns.div_ceil(TILE.0) as u32, self.geometry.height.div_ceil(TILE.1) as u32 * count);
        let (width, height) = (self.geometry.width as i32, self.geometry.height as i32);
        let bits = self.geometry.depth.bits();
        // SAFETY: the parameters of moments_u8, moments_u16 and moments_ordered.
        unsafe {
            let given = arguments![frame, width, height, bits, pitch, sums];
            self.sums.launch(stream, grid, given)?;
            if let Some(ordered) = &self.ordered {
                let given = arguments![frame, width, height, bits, pitch, sums];
                ordered.launch(stream, (KINDS as u32, count), given)?;
            }
        }
        Ok(())
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<MomentSums> {
        let squares = |sums: &[u64], kind: usize| match sums[SUMS + kind] {
            0 => sums[2 * kind] as f64,
            ordered => f64::from_bits(ordered),
        };
        let MomentWork { error, moments } = self.work;
        let picture = |sums: &[u64], kind: usize| match moments {
            true => PictureMoments { first: sums[2 * kind - 1] as f64, second: squares(sums, kind) },
            false => PictureMoments::default(),
        };
        let pair = |sums: &&[u64]| MomentSums {
            error: if error { squares(sums, 0) } else { 0.0 },
            reference: picture(sums, 1),
            distorted: picture(sums, 2),
        };
        sums.iter().map(pair).collect()
    }
}
