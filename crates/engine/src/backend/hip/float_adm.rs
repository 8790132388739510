// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/float_adm.hip`.

use gpu::{DeviceBuffer, Error, Kernel, Stream, arguments};

use super::inverse::inverses;
use super::metric::{Addresses, Metric, Pairs, Setup};
use super::shared::{bytes_of, shared};
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::adm::{AdmScale, scales};
use crate::metrics::float_adm::{self, BandSums, FloatAdmPassSums, FloatAdmSums, FloatAdmWork};

const THREADS: u32 = 256;
const SUM_THREADS: u32 = 64;
/// Coefficients per block of the transform, and of masking.
const TRANSFORM_TILE: (usize, usize) = (32, 8);
const MASK_TILE: (usize, usize) = (32, 16);
/// Alignment of rows and columns, in numbers.
const ALIGNED: usize = 32;
/// Number of sums of a pass: of the reference, of the restored detail, of the additive part.
const SUMS: usize = 36;

shared! {
    "float_adm.hip"
    /// The shape of one scale.
    #[derive(Default)]
    struct FloatAdmScale: 60 {
        [0] in_width: i32,
        [4] in_height: i32,
        [8] width: i32,
        [12] height: i32,
        [16] left: i32,
        [20] top: i32,
        [24] columns: i32,
        [28] rows: i32,
        [32] stride: u32,
        [36] pitch: u32,
        [40] bands: u32,
        [44] terms: u32,
        [48] sums: u32,
        [52] tile: u32,
        [56] across: u32,
    }
}

shared! {
    "float_adm.hip"
    /// All scales, and where data lies.
    #[derive(Default)]
    struct FloatAdmLayout: 256 {
        [0] scales: [FloatAdmScale; 4],
        [240] picture: u32,
        [244] terms: u32,
        [248] sums: u32,
        [252] pairs: u32,
    }
}

shared! {
    "float_adm.hip"
    /// One way of weighting and masking.
    struct FloatAdmPass: 48 {
        [0] gain_limit: f64,
        [8] weights: [[f32; 2]; 4],
        [40] masks: u32,
        [44] aim: u32,
    }
}

impl From<&float_adm::FloatAdmPass> for FloatAdmPass {
    fn from(pass: &float_adm::FloatAdmPass) -> Self {
        let float_adm::FloatAdmPass { gain_limit, weights, masks, aim, .. } = *pass;
        Self { gain_limit, weights, masks: masks.into(), aim: aim.into() }
    }
}

impl FloatAdmLayout {
    fn new(geometry: Geometry) -> Self {
        let mut layout = Self::default();
        let mut input = (geometry.width, geometry.height);
        let mut tile = 0;
        for (to, scale) in layout.scales.iter_mut().zip(scales(geometry.width, geometry.height)) {
            let AdmScale { width, height, rows, columns, .. } = scale;
            let stride = width.next_multiple_of(ALIGNED);
            let pitch = rows.len().next_multiple_of(ALIGNED);
            let across = columns.len().div_ceil(MASK_TILE.0);
            *to = FloatAdmScale {
                in_width: input.0 as i32,
                in_height: input.1 as i32,
                width: width as i32,
                height: height as i32,
                left: columns.start as i32,
                top: rows.start as i32,
                columns: columns.len() as i32,
                rows: rows.len() as i32,
                stride: stride as u32,
                pitch: pitch as u32,
                bands: layout.picture,
                terms: layout.terms,
                sums: layout.sums,
                tile: tile as u32,
                across: across as u32,
            };
            layout.picture += (4 * stride * height) as u32;
            layout.terms += (3 * columns.len() * pitch) as u32;
            layout.sums += 3 * rows.len() as u32;
            tile += across * rows.len().div_ceil(MASK_TILE.1);
            input = (width, height);
        }
        layout
    }

    /// Returns the number of blocks that compute terms.
    fn mask_tiles(&self) -> u32 {
        let last = &self.scales[3];
        last.tile + last.across * (last.rows as u32).div_ceil(MASK_TILE.1 as u32)
    }
}

impl FloatAdmScale {
    /// Returns the shape for a transform, which has other tiles, and their number.
    fn transform(self) -> (Self, u32) {
        let across = (self.width as u32).div_ceil(TRANSFORM_TILE.0 as u32);
        (Self { across, ..self }, across * (self.height as u32).div_ceil(TRANSFORM_TILE.1 as u32))
    }
}

pub struct FloatAdm {
    first: Kernel,
    transform: Kernel,
    mask: Kernel,
    rows: Kernel,
    sums: Kernel,
    work: FloatAdmWork,
    layout: FloatAdmLayout,
    /// The host's approximate inverses; `None` if it divides.
    table: Option<DeviceBuffer>,
    bits: u32,
    renditions: usize,
}

/// Bytes of `count` numbers.
fn bytes(count: u32) -> usize {
    count as usize * size_of::<f32>()
}

impl FloatAdm {
    /// Returns the bytes of the bands of all pictures, and of the sets of terms.
    fn room(&self) -> (usize, usize) {
        ((1 + self.renditions) * bytes(self.layout.picture), self.sets() * bytes(self.layout.terms))
    }

    /// Returns the largest number of sets of terms.
    fn sets(&self) -> usize {
        1 + 2 * self.renditions
    }
}

impl Metric for FloatAdm {
    type Of = metrics::float_adm::FloatAdm;
    const WIDE: bool = true;

    fn modules(_work: &FloatAdmWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["float_adm"]
    }

    fn prepare(work: &FloatAdmWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        if work.passes.iter().any(|pass| !pass.is_cubic()) {
            return Err(BackendError::CpuOnly("float_adm with an adm_p_norm other than 3"));
        }
        let Some(inverses) = inverses() else {
            return Err(BackendError::CpuOnly("float_adm with the approximate reciprocal of this processor"));
        };
        let device = setup.device;
        let table = || DeviceBuffer::holding(device, "a table", bytes_of(inverses));
        let table = (!inverses.is_empty()).then(table).transpose()?;
        let kernel = |name, threads| Kernel::new(device, "float_adm", name, threads);
        Ok(Self {
            first: kernel(setup.by_sample("float_adm_u8", "float_adm_u16"), THREADS)?,
            transform: kernel("float_adm_transform", THREADS)?,
            mask: kernel("float_adm_mask", THREADS)?,
            rows: kernel("float_adm_rows", SUM_THREADS)?,
            sums: kernel("float_adm_sums", SUM_THREADS)?,
            work: work.clone(),
            layout: FloatAdmLayout::new(setup.geometry),
            table,
            bits: setup.geometry.depth.bits(),
            renditions: setup.renditions,
        })
    }

    fn scratch(&self) -> usize {
        let (bands, terms) = self.room();
        bands + terms + self.sets() * bytes(self.layout.sums)
    }

    fn sums(&self) -> usize {
        SUMS * self.work.passes.len()
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let Addresses { frame, scratch: bands, sums: to } = pairs.first;
        let pairs_pitch = (pairs.pitch / 8) as u32;
        let count = pairs.count as u32;
        let layout = FloatAdmLayout { pairs: count, ..self.layout };
        let room = self.room();
        let (terms, row_sums) = (bands + room.0 as u64, bands + (room.0 + room.1) as u64);
        let (picture, bits) = (layout.picture, self.bits);
        let table = self.table.as_ref().map_or(0, DeviceBuffer::address);
        for (s, scale) in layout.scales.iter().enumerate() {
            let (shape, tiles) = scale.transform();
            let grid = (tiles, 1 + count);
            // SAFETY: the parameters of float_adm_u8 and float_adm_u16, and of float_adm_transform.
            unsafe {
                match s.checked_sub(1) {
                    None => {
                        self.first.launch(stream, grid, arguments![frame, bits, shape, picture, bands])?
                    }
                    Some(above) => {
                        let above = layout.scales[above];
                        self.transform.launch(stream, grid, arguments![above, shape, picture, bands])?;
                    }
                }
            }
        }
        for (i, pass) in self.work.passes.iter().enumerate() {
            let sets = if pass.aim { 1 + 2 * count } else { 1 + count };
            let pass = FloatAdmPass::from(pass);
            let to = to + (i * SUMS * size_of::<u64>()) as u64;
            let rows = (layout.sums.div_ceil(SUM_THREADS), sets);
            // SAFETY: the parameters of float_adm_mask, float_adm_rows and float_adm_sums.
            unsafe {
                let of_mask = arguments![layout, pass, table, bands, terms];
                self.mask.launch(stream, (layout.mask_tiles(), count), of_mask)?;
                self.rows.launch(stream, rows, arguments![layout, terms, row_sums])?;
                self.sums.launch(stream, (12, sets), arguments![layout, row_sums, pairs_pitch, to])?;
            }
        }
        Ok(())
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<FloatAdmSums> {
        let bands = |sums: &[u64]| -> [BandSums; 4] {
            let at = |scale: usize, band: usize| f32::from_bits(sums[3 * scale + band] as u32);
            std::array::from_fn(|scale| std::array::from_fn(|band| at(scale, band)))
        };
        let pair = |own: &[u64]| {
            let passes = self.work.passes.iter().enumerate();
            let sums = passes.map(|(i, pass)| FloatAdmPassSums {
                // Those of the reference are beside the first pair.
                reference: bands(&sums[0][i * SUMS..]),
                restored: bands(&own[i * SUMS + 12..]),
                additive: pass.aim.then(|| bands(&own[i * SUMS + 24..])),
            });
            sums.collect()
        };
        sums.iter().map(|own| pair(own)).collect()
    }
}
