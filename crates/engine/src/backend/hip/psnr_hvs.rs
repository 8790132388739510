// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/psnr_hvs.hip`.

use gpu::{DeviceBuffer, Error, Kernel, Stream, arguments};

use super::metric::{Addresses, Metric, Pairs, Setup};
use super::shared::{bytes_of, shared};
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::psnr_hvs::{BLOCK, PsnrHvsSums, PsnrHvsWork, TABLES, blocks};

const THREADS: u32 = 64;
const SUM_THREADS: u32 = 1024;

/// Fewest threads in a wave.
const LEAST_WAVE: u32 = 32;

shared! {
    "psnr_hvs.hip"
    /// The layout of the scratch of a distorted picture: for Y, Cb and Cr, the offsets in units of 4 bytes, and the
    /// numbers of blocks, in a row and altogether.
    #[derive(Default)]
    struct HvsLayout: 72 {
        /// The errors of the blocks.
        [0] errors: [u32; 3],
        /// The approximate total of each block.
        [12] totals: [u32; 3],
        /// The approximate total of each wave of blocks.
        [24] waves: [u32; 3],
        /// The amount that each block adds to the bits of the sum, of 8 bytes.
        [36] additions: [u32; 3],
        [48] columns: [u32; 3],
        [60] blocks: [u32; 3],
    }
}

shared! {
    "psnr_hvs.hip"
    /// The factors of an error and of a squared coefficient, and the reciprocal of the latter.
    #[derive(Default)]
    struct HvsWeights: 16 {
        [0] error: f32,
        [4] mask: f32,
        [8] inverse: f32,
        [12] unused: f32,
    }
}

impl HvsLayout {
    /// Lays out the scratch for planes of these sizes. Also returns its size for a distorted picture.
    fn new(planes: [(usize, usize); 3]) -> (Self, u32) {
        let mut layout = Self {
            columns: planes.map(|(width, _)| blocks(width) as u32),
            blocks: planes.map(|(width, height)| (blocks(width) * blocks(height)) as u32),
            ..Self::default()
        };
        let mut used = 0;
        let mut take = |count: u32| {
            let first = used;
            used += count.next_multiple_of(2);
            first
        };
        for (i, blocks) in layout.blocks.into_iter().enumerate() {
            layout.errors[i] = take(blocks * (BLOCK * BLOCK) as u32);
            layout.totals[i] = take(blocks);
            layout.waves[i] = take(blocks.next_multiple_of(THREADS) / LEAST_WAVE);
            layout.additions[i] = take(2 * blocks);
        }
        (layout, used)
    }

    /// Returns the number of thread blocks, with one thread for each block of the picture.
    fn tiles(&self) -> u32 {
        self.blocks.iter().map(|blocks| blocks.div_ceil(THREADS)).sum()
    }
}

pub struct PsnrHvs {
    errors: Kernel,
    additions: Kernel,
    sum: Kernel,
    tables: DeviceBuffer,
    layout: HvsLayout,
    /// Distance of the scratch of two distorted pictures, in units of 4 bytes.
    pitch: u32,
    bits: u32,
    renditions: usize,
}

impl Metric for PsnrHvs {
    type Of = metrics::psnr_hvs::PsnrHvs;

    fn modules(_work: &PsnrHvsWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["psnr_hvs"]
    }

    fn prepare(_work: &PsnrHvsWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let Geometry { width, height, depth, chroma } = setup.geometry;
        let device = setup.device;
        let chroma = chroma.unwrap_or_default();
        let (layout, pitch) = HvsLayout::new([(width, height), chroma, chroma]);
        let weights = TABLES.iter().flat_map(|tables| {
            let pairs = tables.csf.iter().flatten().zip(tables.mask.iter().flatten());
            pairs.map(|(error, mask)| HvsWeights {
                error: *error,
                mask: *mask,
                inverse: 1.0 / mask,
                unused: 0.0,
            })
        });
        let tables = weights.collect::<Vec<_>>();
        let name = setup.by_sample("psnr_hvs_u8", "psnr_hvs_u16");
        Ok(Self {
            errors: Kernel::new(device, "psnr_hvs", name, THREADS)?,
            additions: Kernel::new(device, "psnr_hvs", "psnr_hvs_additions", THREADS)?,
            sum: Kernel::new(device, "psnr_hvs", "psnr_hvs_sum", SUM_THREADS)?,
            tables: DeviceBuffer::holding(device, "a table", bytes_of(&tables))?,
            layout,
            pitch,
            bits: depth.bits(),
            renditions: setup.renditions,
        })
    }

    fn scratch(&self) -> usize {
        self.renditions * self.pitch as usize * size_of::<f32>()
    }

    fn sums(&self) -> usize {
        3
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let Addresses { frame, scratch, sums } = pairs.first;
        let Self { layout, pitch, bits, .. } = *self;
        let (count, tiles, tables) = (pairs.count as u32, layout.tiles(), self.tables.address());
        let sums_pitch = (pairs.pitch / 8) as u32;
        // SAFETY: the parameters of psnr_hvs_u8 and psnr_hvs_u16, psnr_hvs_additions, and psnr_hvs_sum.
        unsafe {
            let of_frame = arguments![frame, bits, layout, tables, count, pitch, scratch];
            self.errors.launch(stream, (tiles, 1), of_frame)?;
            self.additions.launch(stream, (tiles, count), arguments![layout, pitch, scratch])?;
            self.sum.launch(stream, (3, count), arguments![layout, pitch, scratch, sums_pitch, sums])
        }
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<PsnrHvsSums> {
        sums.iter().map(|sums| [0, 1, 2].map(|i| sums[i] as u32)).collect()
    }
}
