// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/float_adm.hip`.

use gpu::{DeviceBuffer, Error, Kernel, Stream, arguments};

use super::inverse::inverses;
use super::metric::{Addresses, Metric, Pairs, Setup};
use super::ordered::{HvTerms, Ordered};
use super::shared::{bytes_of, shared};
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::adm::{AdmScale, scales};
use crate::metrics::float_adm::{self, BandSums, FloatAdmPassSums, FloatAdmSums, FloatAdmWork};

const THREADS: u32 = 256;
/// Coefficients per block of the transform, and of masking.
const TRANSFORM_TILE: (usize, usize) = (32, 8);
const MASK_TILE: (usize, usize) = (32, 16);
/// Alignment of rows, in numbers.
const ALIGNED: usize = 32;
/// Number of sums of a set of terms, [scale][band].
const SUMS: usize = 12;
/// Sets of terms: of the reference, of the restored detail, of the additive part.
const SETS: usize = 3;

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
        [36] bands: u32,
        [40] terms: u32,
        [44] terms_stride: u32,
        [48] area: u32,
        [52] tile: u32,
        [56] across: u32,
    }
}

shared! {
    "float_adm.hip"
    /// All scales, and where data lies.
    #[derive(Default)]
    struct FloatAdmLayout: 252 {
        [0] scales: [FloatAdmScale; 4],
        [240] picture: u32,
        [244] set: u32,
        [248] pair: u32,
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
    /// Lays out the bands of a picture, and the terms of a pair behind those of so many pictures. Also returns the planes of
    /// the terms, set by set.
    fn new(geometry: Geometry, pictures: usize) -> (Self, Vec<HvTerms>) {
        let mut layout = Self::default();
        let shapes = scales(geometry.width, geometry.height);
        let mut input = (geometry.width, geometry.height);
        let mut tile = 0;
        for (to, scale) in layout.scales.iter_mut().zip(&shapes) {
            let AdmScale { width, height, ref rows, ref columns, .. } = *scale;
            let stride = width.next_multiple_of(ALIGNED);
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
                bands: layout.picture,
                tile: tile as u32,
                across: across as u32,
                ..Default::default()
            };
            layout.picture += (4 * stride * height) as u32;
            tile += across * rows.len().div_ceil(MASK_TILE.1);
            input = (width, height);
        }
        let first = pictures as u32 * layout.picture;
        let mut used = first;
        let planes: Vec<_> = (0..SETS * SUMS)
            .map(|sum| {
                let AdmScale { rows, columns, .. } = &shapes[sum % SUMS / 3];
                HvTerms::take(&mut used, (columns.len(), rows.len()), sum)
            })
            .collect();
        for (scale, bands) in layout.scales.iter_mut().zip(planes.chunks(3)) {
            scale.terms = bands[0].terms - first;
            scale.terms_stride = bands[0].stride;
            scale.area = bands[1].terms - bands[0].terms;
        }
        layout.set = planes[SUMS].terms - planes[0].terms;
        layout.pair = used - first;
        (layout, planes)
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
    work: FloatAdmWork,
    /// For each pass the sums of the reference, and those of a pair.
    ordered: Vec<[Ordered; 2]>,
    layout: FloatAdmLayout,
    /// The host's approximate inverses; `None` if it divides.
    table: Option<DeviceBuffer>,
    bits: u32,
    renditions: usize,
}

impl FloatAdm {
    /// Returns the bytes of the bands of all pictures.
    fn bands(&self) -> usize {
        (1 + self.renditions) * self.layout.picture as usize * size_of::<f32>()
    }
}

impl Metric for FloatAdm {
    type Of = metrics::float_adm::FloatAdm;
    const WIDE: bool = true;

    fn modules(_work: &FloatAdmWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["float_adm", Ordered::MODULE]
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
        let kernel = |name| Kernel::new(device, "float_adm", name, THREADS);
        let (layout, planes) = FloatAdmLayout::new(setup.geometry, 1 + setup.renditions);
        let ordered = |(i, pass): (usize, &float_adm::FloatAdmPass)| {
            let of_pass = |plane: &HvTerms| HvTerms { sum: plane.sum + (i * SETS * SUMS) as u32, ..*plane };
            let planes: Vec<_> = planes.iter().map(of_pass).collect();
            let (reference, own) = planes.split_at(SUMS);
            let own = if pass.aim { own } else { &own[..SUMS] };
            Ok::<_, Error>([Ordered::new(device, reference)?, Ordered::new(device, own)?])
        };
        Ok(Self {
            first: kernel(setup.by_sample("float_adm_u8", "float_adm_u16"))?,
            transform: kernel("float_adm_transform")?,
            mask: kernel("float_adm_mask")?,
            work: work.clone(),
            ordered: work.passes.iter().enumerate().map(ordered).collect::<Result<_, _>>()?,
            layout,
            table,
            bits: setup.geometry.depth.bits(),
            renditions: setup.renditions,
        })
    }

    fn scratch(&self) -> usize {
        self.bands() + self.renditions * self.layout.pair as usize * size_of::<f32>()
    }

    fn sums(&self) -> usize {
        SETS * SUMS * self.work.passes.len()
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let Addresses { frame, scratch: bands, .. } = pairs.first;
        let (layout, bits, count) = (self.layout, self.bits, pairs.count as u32);
        let (picture, terms) = (layout.picture, bands + self.bands() as u64);
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
        for (pass, [of_reference, own]) in self.work.passes.iter().zip(&self.ordered) {
            let pass = FloatAdmPass::from(pass);
            let of_mask = arguments![layout, pass, table, bands, terms];
            // SAFETY: the parameters of float_adm_mask.
            unsafe { self.mask.launch(stream, (layout.mask_tiles(), count), of_mask)? };
            of_reference.launch(stream, Pairs { count: 1, ..pairs }, layout.pair)?;
            own.launch(stream, pairs, layout.pair)?;
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
                reference: bands(&sums[0][i * SETS * SUMS..]),
                restored: bands(&own[(i * SETS + 1) * SUMS..]),
                additive: pass.aim.then(|| bands(&own[(i * SETS + 2) * SUMS..])),
            });
            sums.collect()
        };
        sums.iter().map(|own| pair(own)).collect()
    }
}
