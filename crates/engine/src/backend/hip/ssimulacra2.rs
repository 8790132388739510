// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/ssimulacra2.hip`.

use gpu::{DeviceBuffer, Error, Kernel, Stream, arguments};

use super::metric::{Addresses, Metric, Pairs, Setup};
use super::shared::{bytes_of, shared};
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::ssimulacra2::{
    ChromaConversion, Conversion, PairSums, REACH, SCALES, Sampling, Ssimulacra2Work, scales,
};

const THREADS: u32 = 256;
/// Width and height of the part of a picture that a block converts.
const BLOCK: usize = 32;
/// Size of the part of a channel that a block compares.
const TILE: (usize, usize) = (32, 64);
/// Columns of zeros before a row.
const MARGIN: usize = 8;

shared! {
    "ssimulacra2.hip"
    /// The conversion of samples to light.
    #[derive(Default)]
    struct Ssimulacra2Conversion: 160 {
        [0] black: i32,
        [4] luma: f32,
        [8] grey: i32,
        [12] red_cr: f32,
        [16] green_cb: f32,
        [20] green_cr: f32,
        [24] blue_cb: f32,
        /// Weights of five successive chroma samples for an even and an odd place.
        [28] columns: [[i32; 5]; 2],
        [68] rows: [[i32; 5]; 2],
        /// 1 if chroma is not subsampled along the axis.
        [108] whole_columns: u32,
        [112] whole_rows: u32,
        /// 2 for R'G'B', of which red and blue are without luma.
        [116] has_chroma: u32,
        [120] has_primaries: u32,
        [124] primaries: [[f32; 3]; 3],
    }
}

shared! {
    "ssimulacra2.hip"
    /// One scale of a picture.
    #[derive(Default)]
    struct Ssimulacra2Scale: 28 {
        /// Elements from the start of the picture to the first sample of X.
        [0] offset: u32,
        /// Elements from X to Y, and from Y to B.
        [4] plane: u32,
        /// Elements from row to row.
        [8] pitch: u32,
        [12] width: i32,
        [16] height: i32,
        /// Tiles in a row.
        [20] columns: u32,
        /// Number of the first tile.
        [24] first: u32,
    }
}

shared! {
    "ssimulacra2.hip"
    /// All scales of a picture.
    struct Ssimulacra2Layout: 172 {
        [0] at: [Ssimulacra2Scale; SCALES],
        /// Elements of a picture.
        [168] picture: u32,
    }
}

impl From<&Conversion> for Ssimulacra2Conversion {
    fn from(conversion: &Conversion) -> Self {
        let Conversion { black, luma, ref chroma, ref primaries, .. } = *conversion;
        let mut to = Self { black, luma, ..Self::default() };
        if let Some(ChromaConversion { columns, rows, is_rgb, grey, red_cr, green_cb, green_cr, blue_cb }) =
            *chroma
        {
            let whole = |sampling| u32::from(sampling == Sampling::Whole);
            to = Self { grey, red_cr, green_cb, green_cr, blue_cb, has_chroma: 1 + u32::from(is_rgb), ..to };
            (to.columns, to.rows) = (weights(columns), weights(rows));
            (to.whole_columns, to.whole_rows) = (whole(columns), whole(rows));
        }
        if let Some(primaries) = *primaries {
            to = Self { primaries, has_primaries: 1, ..to };
        }
        to
    }
}

/// Returns the weights of the chroma samples from two before to two behind that of an even and an odd place.
fn weights(sampling: Sampling) -> [[i32; 5]; 2] {
    [0, 1].map(|place| {
        let (taps, first) = sampling.taps(place);
        let mut weights = [0; 5];
        for (tap, at) in taps.into_iter().zip((first + 2) as usize..5) {
            weights[at] = tap;
        }
        weights
    })
}

impl Ssimulacra2Layout {
    /// Lays out a picture. Also returns the number of tiles. Around the samples of each plane are zeros, as many as the
    /// blur of whole tiles reads.
    fn new(geometry: Geometry) -> (Self, u32) {
        let mut at = [Ssimulacra2Scale { first: u32::MAX, ..Default::default() }; SCALES];
        let (mut used, mut tiles) = (0, 0);
        for (at, (width, height)) in at.iter_mut().zip(scales(geometry.width, geometry.height)) {
            let columns = width.div_ceil(TILE.0);
            let rows = height.div_ceil(TILE.1);
            let pitch = MARGIN + columns * TILE.0 + MARGIN;
            let plane = pitch * (rows * TILE.1 + 2 * REACH);
            *at = Ssimulacra2Scale {
                offset: (used + pitch * REACH + MARGIN) as u32,
                plane: plane as u32,
                pitch: pitch as u32,
                width: width as i32,
                height: height as i32,
                columns: columns as u32,
                first: tiles,
            };
            used += 3 * plane;
            tiles += (columns * rows) as u32;
        }
        (Self { at, picture: used as u32 }, tiles)
    }
}

pub struct Ssimulacra2 {
    convert: Kernel,
    compare: Kernel,
    geometry: Geometry,
    layout: Ssimulacra2Layout,
    tiles: u32,
    /// The conversions, each with the table of its curve.
    conversions: Vec<(Ssimulacra2Conversion, DeviceBuffer)>,
    renditions: usize,
}

impl Metric for Ssimulacra2 {
    type Of = metrics::ssimulacra2::Ssimulacra2;
    const WIDE: bool = true;

    fn modules(_work: &Ssimulacra2Work, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["ssimulacra2"]
    }

    fn prepare(work: &Ssimulacra2Work, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let geometry = setup.geometry;
        let kernel = |name| Kernel::new(setup.device, "ssimulacra2", name, THREADS);
        let conversions = work.conversions(geometry)?;
        let conversions = conversions.iter().map(|conversion| {
            let table = DeviceBuffer::holding(setup.device, "a table", bytes_of(&conversion.curve.table()))?;
            Ok((conversion.into(), table))
        });
        let (layout, tiles) = Ssimulacra2Layout::new(geometry);
        Ok(Self {
            convert: kernel(setup.by_sample("ssimulacra2_convert_u8", "ssimulacra2_convert_u16"))?,
            compare: kernel("ssimulacra2_compare")?,
            geometry,
            layout,
            tiles,
            conversions: conversions.collect::<Result<_, Error>>()?,
            renditions: setup.renditions,
        })
    }

    /// Returns the bytes of the pictures in XYB. Conversions use them one after another.
    fn scratch(&self) -> usize {
        (1 + self.renditions) * self.layout.picture as usize * size_of::<f32>()
    }

    fn sums(&self) -> usize {
        self.conversions.len() * size_of::<PairSums>() / 8
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let Addresses { frame, scratch, sums } = pairs.first;
        let Geometry { width, height, depth, chroma } = self.geometry;
        let (chroma_width, chroma_height) = chroma.unwrap_or_default();
        let (chroma_width, chroma_height) = (chroma_width as i32, chroma_height as i32);
        let (layout, bits, count) = (self.layout, depth.bits(), pairs.count as u32);
        let blocks = (width.div_ceil(BLOCK) as u32 * (1 + count), height.div_ceil(BLOCK) as u32);
        let pitch = (pairs.pitch / 8) as u32;
        for (i, (conversion, table)) in self.conversions.iter().enumerate() {
            let (conversion, table) = (*conversion, table.address());
            let sums = sums + (i * size_of::<PairSums>()) as u64;
            let arguments =
                arguments![frame, bits, chroma_width, chroma_height, conversion, table, layout, scratch];
            // SAFETY: the parameters of ssimulacra2_convert_u8 and ssimulacra2_convert_u16, and of ssimulacra2_compare.
            unsafe {
                self.convert.launch(stream, blocks, arguments)?;
                let grid = (self.tiles, 3 * count);
                self.compare.launch(stream, grid, arguments![scratch, layout, pitch, sums])?;
            }
        }
        Ok(())
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<Vec<PairSums>> {
        sums.iter().map(|sums| self.pair(sums)).collect()
    }
}

impl Ssimulacra2 {
    /// Reads the sums of a pair.
    fn pair(&self, sums: &[u64]) -> Vec<PairSums> {
        let all = sums.chunks_exact(size_of::<PairSums>() / 8).take(self.conversions.len());
        let mut pairs = vec![PairSums::default(); self.conversions.len()];
        for (pair, sums) in pairs.iter_mut().zip(all) {
            let flat = pair.as_flattened_mut().as_flattened_mut().as_flattened_mut();
            flat.copy_from_slice(sums);
        }
        pairs
    }
}
