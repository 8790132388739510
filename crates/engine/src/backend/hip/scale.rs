// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/scale.hip`.

use std::sync::Arc;

use gpu::{Device, DeviceBuffer, Error, Kernel, Stream, arguments};

use super::frame::{ALIGNMENT, HvPlane};
use super::shared::shared;
use crate::frame::Geometry;
use crate::scale::{self, Scaling, shifts};

/// Output columns per block.
const THREADS: u32 = 256;
/// Rows per block of the first kernel.
const ROWS: usize = 4;

shared! {
    "scale.hip"
    /// The output samples of one axis.
    struct ScaleAxis: 24 {
        [0] first: u64,
        [8] weights: u64,
        [16] size: i32,
        [20] taps: i32,
    }
}

impl ScaleAxis {
    /// Appends the tables of an axis to the upload. Addresses count from the upload's beginning.
    fn new(axis: &scale::Axis, tables: &mut Vec<u8>) -> Self {
        let mut put = |word: u32| tables.extend(word.to_ne_bytes());
        (0..axis.len()).for_each(|i| put(axis.first(i) as u32));
        for k in 0..axis.taps() {
            (0..axis.len()).for_each(|i| put(i32::from(axis.weights(i)[k]) as u32));
        }
        let (size, taps) = (axis.len(), axis.taps());
        let first = (tables.len() - 4 * size * (1 + taps)) as u64;
        Self { first, weights: first + 4 * size as u64, size: size as i32, taps: taps as i32 }
    }

    fn at(self, tables: u64) -> Self {
        Self { first: self.first + tables, weights: self.weights + tables, ..self }
    }
}

/// Tables for planes of one size.
struct Tables {
    source_rows: usize,
    columns: ScaleAxis,
    rows: ScaleAxis,
}

impl Tables {
    fn new(source_rows: usize, [columns, rows]: [scale::Axis; 2], tables: &mut Vec<u8>) -> Self {
        Self { source_rows, columns: ScaleAxis::new(&columns, tables), rows: ScaleAxis::new(&rows, tables) }
    }

    /// Returns the bytes of a row of the output.
    fn stride(&self, sample_size: usize) -> usize {
        (self.columns.size as usize * sample_size).next_multiple_of(ALIGNMENT as usize)
    }

    /// Returns the bytes of the output.
    fn size(&self, sample_size: usize) -> usize {
        (self.stride(sample_size) * self.rows.size as usize).next_multiple_of(256)
    }
}

/// Scales the pictures of one rendition.
pub struct Scaler {
    source: Geometry,
    along: Kernel,
    down: Kernel,
    luma: Tables,
    chroma: Option<Tables>,
    tables: DeviceBuffer,
}

impl Scaler {
    pub fn new(device: &Arc<Device>, scaling: &Scaling) -> Result<Self, Error> {
        let source = scaling.source();
        let [along, down] = match source.sample_size() {
            1 => ["scale_rows_u8", "scale_columns_u8"],
            _ => ["scale_rows_u16", "scale_columns_u16"],
        };
        let mut tables = vec![];
        let luma = Tables::new(source.height, scaling.luma(), &mut tables);
        let chroma = source.chroma.zip(scaling.chroma());
        let chroma = chroma.map(|((_, height), axes)| Tables::new(height, axes, &mut tables));
        Ok(Self {
            source,
            along: Kernel::new(device, "scale", along, THREADS)?,
            down: Kernel::new(device, "scale", down, THREADS)?,
            luma,
            chroma,
            tables: DeviceBuffer::holding(device, "tables", &tables)?,
        })
    }

    /// Returns the size of the pictures before scaling.
    pub fn source(&self) -> Geometry {
        self.source
    }

    /// Returns the bytes of device memory for a scaled picture and the intermediate rows.
    pub fn room(&self) -> usize {
        let size = self.source.sample_size();
        let chroma = self.chroma.as_ref().map_or(0, |chroma| 2 * chroma.size(size));
        self.luma.size(size) + chroma + 4 * self.luma.columns.size as usize * self.luma.source_rows
    }

    /// Puts the work for one picture into a stream: Y, and Cb and Cr if they exist. Returns the scaled planes, which
    /// are at the beginning of `room`. All of `room` must stay unchanged until they were read.
    pub fn launch(&self, stream: &Stream, planes: [HvPlane; 3], room: u64) -> Result<[HvPlane; 3], Error> {
        let size = self.source.sample_size();
        let bits = self.source.depth.bits();
        let shifts = shifts(self.source.depth);
        let tables = self.chroma.as_ref();
        let sizes =
            [Some(&self.luma), tables, tables].map(|tables| tables.map_or(0, |t| t.size(size)) as u64);
        let between = room + sizes.iter().sum::<u64>();
        let mut out = [HvPlane::default(); 3];
        let mut address = room;
        for (i, plane) in planes.into_iter().enumerate().filter(|(_, plane)| plane.data != 0) {
            let Some(tables) = (if i == 0 { Some(&self.luma) } else { self.chroma.as_ref() }) else {
                continue;
            };
            let [columns, rows] = [tables.columns, tables.rows].map(|axis| axis.at(self.tables.address()));
            let (width, blocks) = (columns.size, (columns.size as u32).div_ceil(THREADS));
            let (source_rows, stride) = (tables.source_rows as i32, tables.stride(size) as u32);
            let grid = (blocks, tables.source_rows.div_ceil(ROWS) as u32);
            let along = arguments![plane, source_rows, bits, columns, shifts[0], between, width];
            // SAFETY: the parameters of scale_rows_u8 and scale_rows_u16.
            unsafe { self.along.launch(stream, grid, along)? };
            let down = arguments![between, width, width, bits, rows, shifts[1], address, stride];
            // SAFETY: the parameters of scale_columns_u8 and scale_columns_u16.
            unsafe { self.down.launch(stream, (blocks, rows.size as u32), down)? };
            out[i] = HvPlane { data: address, stride, shift: 0, step: 1 };
            address += sizes[i];
        }
        Ok(out)
    }
}
