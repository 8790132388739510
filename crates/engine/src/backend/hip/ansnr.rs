// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/ansnr.hip`.

use gpu::{Error, Kernel, Stream, arguments};

use super::metric::{Metric, Pairs, Setup};
use super::ordered::{HvTerms, Ordered};
use super::shared::shared;
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::ansnr::{AnsnrSums, AnsnrWork};

const THREADS: u32 = 256;
/// Pixels per block.
const TILE: (usize, usize) = (64, 16);

shared! {
    "ansnr.hip"
    /// Places of the terms in the scratch of a pair, in units of 4 bytes.
    struct AnsnrTerms: 16 {
        [0] signal: u32,
        [4] noise: u32,
        /// Distance from row to row.
        [8] stride: u32,
        /// Distance from pair to pair.
        [12] pitch: u32,
    }
}

pub struct Ansnr {
    kernel: Kernel,
    ordered: Ordered,
    terms: AnsnrTerms,
    geometry: Geometry,
    renditions: usize,
}

impl Metric for Ansnr {
    type Of = metrics::ansnr::Ansnr;

    fn modules(_work: &AnsnrWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["ansnr", Ordered::MODULE]
    }

    fn prepare(_work: &AnsnrWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let Setup { device, geometry, renditions, .. } = *setup;
        let mut pitch = 0;
        let planes = [0, 1].map(|sum| HvTerms::take(&mut pitch, (geometry.width, geometry.height), sum));
        let [signal, noise] = planes.each_ref().map(|plane| plane.terms);
        let terms = AnsnrTerms { signal, noise, stride: planes[0].stride, pitch };
        let name = setup.by_sample("ansnr_u8", "ansnr_u16");
        let kernel = Kernel::new(device, "ansnr", name, THREADS)?;
        Ok(Self { kernel, ordered: Ordered::new(device, &planes)?, terms, geometry, renditions })
    }

    fn scratch(&self) -> usize {
        self.renditions * self.terms.pitch as usize * size_of::<f32>()
    }

    fn sums(&self) -> usize {
        2
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let Geometry { width, height, depth, .. } = self.geometry;
        let (frame, scratch, terms) = (pairs.first.frame, pairs.first.scratch, self.terms);
        let (bits, unit) = (depth.bits(), depth.unit());
        let grid = (width.div_ceil(TILE.0) as u32, (height.div_ceil(TILE.1) * pairs.count) as u32);
        let (width, height) = (width as i32, height as i32);
        // SAFETY: the parameters of ansnr_u8 and ansnr_u16.
        unsafe {
            let given = arguments![frame, width, height, bits, unit, terms, scratch];
            self.kernel.launch(stream, grid, given)?;
        }
        self.ordered.launch(stream, pairs, terms.pitch)
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<AnsnrSums> {
        let single = |bits: u64| f32::from_bits(bits as u32);
        sums.iter().map(|sums| AnsnrSums { signal: single(sums[0]), noise: single(sums[1]) }).collect()
    }
}
