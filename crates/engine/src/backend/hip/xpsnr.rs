// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/xpsnr.hip`.

use std::sync::Arc;

use gpu::{Error, Kernel, Stream, arguments};

use super::metric::{Addresses, Metric, Pairs, Setup};
use super::shared::shared;
use crate::backend::BackendError;
use crate::metrics;
use crate::metrics::xpsnr::{Activity, BlockPlane, Blocks, XpsnrSums, XpsnrWork};

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
        Ok(Self { kernel: Kernel::new(setup.device, "xpsnr", name, THREADS)?, blocks, layout })
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
        let activities = sums.first().map(|sums| sums.as_chunks::<SUMS>().0).unwrap_or_default();
        let activity = activities.iter().map(|sums| Activity { spatial: sums[0], temporal: sums[1] });
        let activity: Arc<[Activity]> = activity.collect();
        let pair = |sums: &&[u64]| {
            let blocks = sums.as_chunks::<SUMS>().0.iter();
            let errors = blocks.map(|[_, _, y, cb, cr]| [*y, *cb, *cr]).collect();
            XpsnrSums { activity: activity.clone(), errors }
        };
        sums.iter().map(pair).collect()
    }
}
