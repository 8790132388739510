// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/xpsnr.hip`.

use gpu::{Error, Kernel, Stream, arguments};

use super::metric::{Addresses, Metric, Pairs, Setup};
use super::shared::shared;
use crate::backend::BackendError;
use crate::metrics;
use crate::metrics::xpsnr::{Activity, BlockPlane, Blocks, Weighing, XpsnrSums, XpsnrWork};

const THREADS: u32 = 128;
/// Sums of a block.
const SUMS: usize = 5;

shared! {
    "xpsnr.hip"
    /// The sizes of the planes and their blocks: columns and rows.
    #[derive(Default)]
    struct XpsnrLayout: 48 {
        [0] luma: [i32; 2],
        [8] block: i32,
        /// Blocks in a row.
        [12] columns: i32,
        /// Chroma in memory, zeros without chroma.
        [16] present: [i32; 2],
        /// Chroma with the column and row that repeat the last ones.
        [24] whole: [i32; 2],
        [32] chroma_block: [i32; 2],
        [40] bits: u32,
        [44] second_order: u32,
    }
}

impl XpsnrLayout {
    fn new(blocks: &Blocks, bits: u32, second_order: bool) -> Self {
        let pair = |(a, b): (usize, usize)| [a as i32, b as i32];
        let BlockPlane { whole, block: (block, _), .. } = blocks.luma;
        let sizes = |BlockPlane { present, whole, block }| (pair(present), pair(whole), pair(block));
        let (present, whole_chroma, chroma_block) = blocks.chroma.map(sizes).unwrap_or_default();
        Self {
            luma: pair(whole),
            block: block as i32,
            columns: blocks.columns as i32,
            present,
            whole: whole_chroma,
            chroma_block,
            bits,
            second_order: u32::from(second_order),
        }
    }
}

pub struct Xpsnr {
    kernel: Kernel,
    blocks: Blocks,
    weighing: Weighing,
    layout: XpsnrLayout,
}

impl Metric for Xpsnr {
    type Of = metrics::xpsnr::Xpsnr;
    const WIDE: bool = true;

    fn modules(_work: &XpsnrWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["xpsnr"]
    }

    fn prepare(work: &XpsnrWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let blocks = Blocks::of(setup.geometry);
        let name = match blocks.step {
            1 => setup.by_sample("xpsnr_u8", "xpsnr_u16"),
            _ => setup.by_sample("xpsnr_large_u8", "xpsnr_large_u16"),
        };
        let layout = XpsnrLayout::new(&blocks, setup.geometry.depth.bits(), work.second_order);
        let kernel = Kernel::new(setup.device, "xpsnr", name, THREADS)?;
        let weighing = Weighing::new(blocks, setup.geometry.depth.bits());
        Ok(Self { kernel, blocks, weighing, layout })
    }

    fn sums(&self) -> usize {
        SUMS * self.blocks.count()
    }

    /// Launches the kernel for each pair. Activities depend only on the reference, so only the first pair has them.
    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let layout = self.layout;
        let grid = (self.blocks.columns as u32, self.blocks.rows as u32);
        for i in 0..pairs.count {
            let Addresses { frame, sums, .. } = pairs.pair(i);
            let activity = u32::from(i == 0 && self.blocks.weighted);
            // SAFETY: the parameters of all kernels in the file.
            unsafe { self.kernel.launch(stream, grid, arguments![frame, layout, activity, sums])? };
        }
        Ok(())
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<XpsnrSums> {
        fn blocks(sums: &[u64]) -> std::slice::Iter<'_, [u64; SUMS]> {
            sums.as_chunks().0.iter()
        }
        let activity =
            |[spatial, temporal, ..]: &[u64; SUMS]| Activity { spatial: *spatial, temporal: *temporal };
        let weights = self.weighing.weights(blocks(sums.first().copied().unwrap_or_default()).map(activity));
        let errors = |[_, _, y, cb, cr]: &[u64; SUMS]| [*y, *cb, *cr];
        let pair = |sums: &&[u64]| self.weighing.sums(&weights, blocks(sums).map(errors));
        sums.iter().map(pair).collect()
    }
}
