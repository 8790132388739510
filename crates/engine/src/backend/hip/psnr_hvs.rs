// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/psnr_hvs.hip`.

use gpu::{DeviceBuffer, Error, Kernel, Stream, arguments};

use super::metric::{Addresses, Metric, Pairs, Setup};
use super::shared::shared;
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::psnr_hvs::{BLOCK, PsnrHvsSums, PsnrHvsWork, TABLES, blocks};

const THREADS: u32 = 64;
const SUM_THREADS: u32 = 1024;

shared! {
    "psnr_hvs.hip"
    /// Where the errors of Y, Cb and Cr begin in the scratch, in errors, and how many blocks each plane has.
    #[derive(Default)]
    struct HvsErrors: 24 {
        [0] first: [u32; 3],
        [12] blocks: [u32; 3],
    }
}

pub struct PsnrHvs {
    errors: Kernel,
    sum: Kernel,
    tables: DeviceBuffer,
    /// Blocks in a row of Y, Cb and Cr.
    columns: [u32; 3],
    layout: HvsErrors,
    bits: u32,
    renditions: usize,
}

impl PsnrHvs {
    /// Errors of a pair.
    fn errors(&self) -> usize {
        let blocks: usize = self.layout.blocks.iter().map(|blocks| *blocks as usize).sum();
        blocks * BLOCK * BLOCK
    }
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
        let sizes = [(width, height), chroma, chroma];
        let mut layout = HvsErrors::default();
        let mut first = 0;
        for (i, (width, height)) in sizes.into_iter().enumerate() {
            layout.first[i] = first;
            layout.blocks[i] = (blocks(width) * blocks(height)) as u32;
            first += layout.blocks[i] * (BLOCK * BLOCK) as u32;
        }
        let weights = TABLES.iter().flat_map(|tables| [tables.csf, tables.mask]);
        let tables: Vec<u8> =
            weights.flat_map(|table| table.into_iter().flatten().flat_map(f32::to_ne_bytes)).collect();
        let name = setup.by_sample("psnr_hvs_u8", "psnr_hvs_u16");
        Ok(Self {
            errors: Kernel::new(device, "psnr_hvs", name, THREADS)?,
            sum: Kernel::new(device, "psnr_hvs", "psnr_hvs_sum", SUM_THREADS)?,
            tables: DeviceBuffer::holding(device, "a table", &tables)?,
            columns: sizes.map(|(width, _)| blocks(width) as u32),
            layout,
            bits: depth.bits(),
            renditions: setup.renditions,
        })
    }

    fn scratch(&self) -> usize {
        self.renditions * self.errors() * size_of::<f32>()
    }

    fn sums(&self) -> usize {
        3
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let Addresses { frame, scratch, sums } = pairs.first;
        let (layout, tables) = (self.layout, self.tables.address());
        let (count, pitch, sums_pitch) = (pairs.count as u32, self.errors() as u32, (pairs.pitch / 8) as u32);
        for (component, columns) in (0u32..).zip(self.columns) {
            let (first, blocks) = (layout.first[component as usize], layout.blocks[component as usize]);
            let errors = scratch + u64::from(first) * size_of::<f32>() as u64;
            let arguments =
                arguments![frame, component, self.bits, columns, blocks, tables, count, pitch, errors];
            // SAFETY: the parameters of psnr_hvs_u8 and psnr_hvs_u16.
            unsafe { self.errors.launch(stream, (blocks.div_ceil(THREADS), 1), arguments)? };
        }
        // SAFETY: the parameters of psnr_hvs_sum.
        unsafe { self.sum.launch(stream, (3, count), arguments![scratch, layout, pitch, sums_pitch, sums]) }
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<PsnrHvsSums> {
        sums.iter().map(|sums| [0, 1, 2].map(|i| sums[i] as u32)).collect()
    }
}
