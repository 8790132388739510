// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/ordered.hip`: sums in single precision, row by row. A metric writes planes of terms to its scratch,
//! and has their sums computed.

use std::sync::Arc;

use gpu::{Device, DeviceBuffer, Error, Kernel, Stream, arguments};

use super::metric::Pairs;
use super::shared::{bytes_of, shared};

const THREADS: u32 = 128;
/// Rows of a block.
const ROWS: u32 = 32;

shared! {
    "ordered.hip"
    /// A plane of terms. Places are in units of 4 bytes from the scratch of the pair.
    #[derive(Debug)]
    pub struct HvTerms: 24 {
        /// Place of the first term.
        [0] terms: u32,
        /// Distance from row to row.
        [4] stride: u32,
        [8] width: u32,
        [12] height: u32,
        /// Place of the sums of the rows.
        [16] rows: u32,
        /// Index of the sum among those of the pair.
        [20] sum: u32,
    }
}

impl HvTerms {
    /// Takes scratch for a plane, after `used` units of 4 bytes that are taken already.
    pub fn take(used: &mut u32, (width, height): (usize, usize), sum: usize) -> Self {
        let (width, height, stride) = (width as u32, height as u32, width.next_multiple_of(4) as u32);
        let terms = used.next_multiple_of(4);
        let rows = terms + stride * height;
        *used = rows + height.next_multiple_of(4);
        Self { terms, stride, width, height, rows, sum: sum as u32 }
    }
}

/// The sums of planes of terms.
pub struct Ordered {
    rows: Kernel,
    sums: Kernel,
    planes: DeviceBuffer,
    count: u32,
    /// Blocks of the highest plane.
    blocks: u32,
}

impl Ordered {
    /// The file in `kernels/`.
    pub const MODULE: &'static str = "ordered";

    /// Prepares for these planes of each pair.
    pub fn new(device: &Arc<Device>, planes: &[HvTerms]) -> Result<Self, Error> {
        Ok(Self {
            rows: Kernel::new(device, Self::MODULE, "ordered_rows", THREADS)?,
            sums: Kernel::new(device, Self::MODULE, "ordered_sums", THREADS)?,
            planes: DeviceBuffer::holding(device, "a table", bytes_of(planes))?,
            count: planes.len() as u32,
            blocks: planes.iter().map(|plane| plane.height.div_ceil(ROWS)).max().unwrap_or(0),
        })
    }

    /// Describes terms whose sums of rows are in the scratch already, for [`total`](Self::total). `rows`: place of the first.
    pub fn rows_at(rows: u32, height: usize, sum: usize) -> HvTerms {
        HvTerms { terms: 0, stride: 0, width: 0, height: height as u32, rows, sum: sum as u32 }
    }

    /// Adds the sums of rows of one pair. Each sum is the bits of a single.
    pub fn total(&self, stream: &Stream, scratch: u64, sums: u64) -> Result<(), Error> {
        let (planes, no_pitch) = (self.planes.address(), 0u32);
        // SAFETY: the parameters of ordered_sums.
        unsafe {
            let given = arguments![planes, no_pitch, scratch, no_pitch, sums];
            self.sums.launch(stream, (self.count, 1), given)
        }
    }

    /// Adds the terms of all pairs. Each sum is the bits of a single. `pitch`: distance of the scratch of two pairs, in units
    /// of 4 bytes.
    pub fn launch(&self, stream: &Stream, pairs: Pairs, pitch: u32) -> Result<(), Error> {
        let (planes, count, pairs_count) = (self.planes.address(), self.count, pairs.count as u32);
        let (scratch, sums, sums_pitch) = (pairs.first.scratch, pairs.first.sums, (pairs.pitch / 8) as u32);
        // SAFETY: the parameters of ordered_rows and ordered_sums.
        unsafe {
            let grid = (self.blocks, count * pairs_count);
            self.rows.launch(stream, grid, arguments![planes, count, pitch, scratch])?;
            let given = arguments![planes, pitch, scratch, sums_pitch, sums];
            self.sums.launch(stream, (count, pairs_count), given)
        }
    }
}
