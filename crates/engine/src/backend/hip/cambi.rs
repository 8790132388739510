// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/cambi.hip`.

use std::sync::Arc;

use gpu::{Device, DeviceBuffer, Error, Kernel, Stream, arguments};

use super::metric::{Addresses, Metric, Pairs, Setup};
use super::shared::{bytes_of, shared};
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::cambi::{
    self, CambiAnalysis, CambiPicture, CambiPlan, CambiSums, CambiWork, Contrast, MAX_WINDOW, RECIPROCALS,
    SCALES, ScaleSums, nearest,
};

const FLAT_THREADS: u32 = 256;
/// Samples per block.
const FLAT_TILE: (usize, usize) = (128, 16);
const MODE_THREADS: u32 = 128;
/// Threads per block; also the columns whose pixels a block counts.
const CONTRAST_THREADS: u32 = 128;
/// Largest windows of the kernels for contrast values.
const CONTRAST: [(usize, &str); 3] =
    [(17, "cambi_contrast5"), (33, "cambi_contrast9"), (65, "cambi_contrast17")];
/// Height of a tile in windows: more rows save work, more tiles fill the GPU.
const WINDOWS: usize = 2;
const TOP_THREADS: u32 = 1024;
/// Most steps in a shape.
const MAX_STEPS: usize = 32;
/// Sums of a scale: of the contrast values, of how many are not 0, and of the largest.
const SUMS: usize = 3;

shared! {
    "cambi.hip"
    /// Parameters for finding the flat areas of a picture.
    struct CambiFlat: 32 {
        [0] width: i32,
        [4] height: i32,
        [8] bits: u32,
        [12] distorted: u32,
        [16] anti_dither: u32,
        [20] halved: u32,
        [24] limit: u32,
        [28] stride: u32,
    }
}

shared! {
    "cambi.hip"
    struct CambiScale: 32 {
        [0] width: i32,
        [4] height: i32,
        [8] stride: u32,
        [12] samples: u32,
        [16] values: u32,
        [20] top: u32,
        [24] block: u32,
        [28] tiles: u32,
    }
}

shared! {
    "cambi.hip"
    #[derive(Default)]
    struct CambiStep: 12 {
        [0] above: i32,
        [4] up_to: i32,
        [8] weight: i32,
    }
}

shared! {
    "cambi.hip"
    /// The shape of the work for one picture.
    struct CambiShape: 17468 {
        [0] scale: [CambiScale; SCALES],
        [160] step: [CambiStep; MAX_STEPS],
        [544] steps: i32,
        [548] first: i32,
        [552] last: i32,
        [556] radius: i32,
        [560] rows: i32,
        [564] reciprocal: [f32; MAX_WINDOW * MAX_WINDOW + 1],
    }
}

/// Returns the samples from row to row of the pictures of a scale.
fn stride(scale: &cambi::CambiScale) -> usize {
    scale.width.next_multiple_of(128)
}

/// The work for one picture of a pair.
struct Side {
    flat: Kernel,
    mode: Kernel,
    contrast: Kernel,
    top: Kernel,
    args: CambiFlat,
    scales: [cambi::CambiScale; SCALES],
    /// Blocks of the kernel for contrast values.
    tiles: u32,
    /// A [`CambiShape`].
    shape: DeviceBuffer,
    /// Columns and rows of the samples to use, if the picture is resized.
    picks: Option<DeviceBuffer>,
}

impl Side {
    fn new(
        device: &Arc<Device>,
        plan: &CambiPlan,
        picture: &CambiPicture,
        geometry: Geometry,
        distorted: bool,
    ) -> Result<Self, Error> {
        let CambiPicture { width, height, window, ref scales, flat_limit } = *picture;
        let kernel = |name, threads| Kernel::new(device, "cambi", name, threads);
        let rows = WINDOWS * window;
        let across = CONTRAST_THREADS as usize - (window - 1);
        let (mut samples, mut values, mut tiles) = (0, 0, 0);
        let scale = scales.map(|scale| {
            let cambi::CambiScale { width, height, top } = scale;
            let beside = width.div_ceil(across);
            let shape = CambiScale {
                width: width as i32,
                height: height as i32,
                stride: stride(&scale) as u32,
                samples: samples as u32,
                values: values as u32,
                top: top as u32,
                block: tiles as u32,
                tiles: beside as u32,
            };
            samples += stride(&scale) * height;
            values += (width * height).next_multiple_of(4);
            tiles += beside * height.div_ceil(rows);
            shape
        });
        let mut step = [CambiStep::default(); MAX_STEPS];
        for (step, Contrast { above, up_to, weight }) in step.iter_mut().zip(&plan.contrasts) {
            *step = CambiStep { above: *above, up_to: *up_to, weight: *weight };
        }
        let (above, last) = plan.active();
        let shape = CambiShape {
            scale,
            step,
            steps: plan.contrasts.len() as i32,
            first: above + 1,
            last,
            radius: (window / 2) as i32,
            rows: rows as i32,
            reciprocal: *RECIPROCALS,
        };

        let resized = (width, height) != (geometry.width, geometry.height);
        let picks =
            resized.then(|| [nearest(geometry.width, width), nearest(geometry.height, height)].concat());
        let picks = picks.map(|picks| DeviceBuffer::holding(device, "a table", bytes_of(&picks)));
        let bits = geometry.depth.bits();
        let (_, contrast) = CONTRAST.iter().find(|(largest, _)| window <= *largest).unwrap_or(&CONTRAST[2]);
        Ok(Self {
            flat: kernel(if bits == 8 { "cambi_flat_u8" } else { "cambi_flat_u16" }, FLAT_THREADS)?,
            mode: kernel("cambi_mode", MODE_THREADS)?,
            contrast: kernel(contrast, CONTRAST_THREADS)?,
            top: kernel("cambi_top", TOP_THREADS)?,
            args: CambiFlat {
                width: width as i32,
                height: height as i32,
                bits,
                distorted: distorted.into(),
                anti_dither: plan.anti_dither.into(),
                halved: plan.halved.into(),
                limit: flat_limit,
                stride: stride(&scales[0]) as u32,
            },
            scales: *scales,
            tiles: tiles as u32,
            shape: DeviceBuffer::holding(device, "a table", bytes_of(&[shape]))?,
            picks: picks.transpose()?,
        })
    }

    /// Returns the bytes of the unfiltered first scale, of the filtered scales, and of the contrast values.
    fn room(&self) -> [usize; 3] {
        let samples = |scale: &cambi::CambiScale| stride(scale) * scale.height * 2;
        let values = |scale: &cambi::CambiScale| (scale.width * scale.height).next_multiple_of(4) * 4;
        let all = |size: fn(&cambi::CambiScale) -> usize| self.scales.iter().map(size).sum::<usize>();
        [samples(&self.scales[0]), all(samples), all(values)].map(|size| size.next_multiple_of(256))
    }

    fn launch(&self, stream: &Stream, frame: u64, scratch: u64, sums: u64) -> Result<(), Error> {
        let [base, filtered, _] = self.room();
        let samples = scratch + base as u64;
        let values = samples + filtered as u64;
        let (args, shape) = (self.args, self.shape.address());
        let picks = self.picks.as_ref().map_or(0, DeviceBuffer::address);
        let (width, height) = (args.width as usize, args.height as usize);
        let grid = (width.div_ceil(FLAT_TILE.0) as u32, height.div_ceil(FLAT_TILE.1) as u32);
        // SAFETY: the parameters of cambi_flat_u8 and cambi_flat_u16.
        unsafe { self.flat.launch(stream, grid, arguments![frame, args, picks, scratch])? };
        let (mut from, mut from_stride, mut step, mut to) = (scratch, args.stride, 1u32, samples);
        for scale in &self.scales {
            let (width, height, stride) = (scale.width as i32, scale.height as i32, stride(scale) as u32);
            let grid = (scale.width.div_ceil(MODE_THREADS as usize) as u32, scale.height as u32);
            // SAFETY: the parameters of cambi_mode.
            unsafe {
                self.mode.launch(
                    stream,
                    grid,
                    arguments![from, from_stride, step, width, height, to, stride],
                )?;
            }
            (from, from_stride, step) = (to, stride, 2);
            to += u64::from(stride) * scale.height as u64 * 2;
        }
        // SAFETY: the parameters of the kernels for contrast values, and of cambi_top.
        unsafe {
            self.contrast.launch(stream, (self.tiles, 1), arguments![shape, samples, values, sums])?;
            self.top.launch(stream, (SCALES as u32, 1), arguments![shape, values, sums])
        }
    }

    fn read(&self, sums: &[u64]) -> ScaleSums {
        std::array::from_fn(|s| {
            let [total, nonzero, largest] = [0, 1, 2].map(|i| sums[s * SUMS + i]);
            if nonzero <= self.scales[s].top as u64 { total } else { largest }
        })
    }
}

struct Analysis {
    /// The distorted picture, and the reference if it is analysed.
    sides: Vec<Side>,
}

impl Analysis {
    fn new(device: &Arc<Device>, plan: CambiPlan, geometry: Geometry) -> Result<Self, Error> {
        let distorted = Side::new(device, &plan, &plan.distorted, geometry, true)?;
        let source = plan.source.as_ref().map(|source| Side::new(device, &plan, source, geometry, false));
        Ok(Self { sides: std::iter::once(Ok(distorted)).chain(source).collect::<Result<_, _>>()? })
    }

    /// Launches the kernels for some sides of a pair, beginning with the first.
    fn launch_sides(&self, stream: &Stream, at: Addresses, sides: &[Side]) -> Result<(), Error> {
        let Addresses { frame, mut scratch, mut sums } = at;
        for side in sides {
            side.launch(stream, frame, scratch, sums)?;
            scratch += side.room().iter().sum::<usize>() as u64;
            sums += (SCALES * SUMS * 8) as u64;
        }
        Ok(())
    }

    fn scratch(&self) -> usize {
        self.sides.iter().flat_map(|side| side.room()).sum::<usize>().next_multiple_of(256)
    }

    fn sums(&self) -> usize {
        self.sides.len() * SCALES * SUMS
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        self.launch_sides(stream, pairs.first, &self.sides)?;
        (1..pairs.count).try_for_each(|i| self.launch_sides(stream, pairs.pair(i), &self.sides[..1]))
    }

    /// Reads the sums of a pair. Those of the reference are with the first pair.
    fn read(&self, own: &[u64], first: &[u64]) -> CambiSums {
        let distorted = self.sides[0].read(&own[..SCALES * SUMS]);
        let source = self.sides.get(1).map(|source| source.read(&first[SCALES * SUMS..]));
        CambiSums { distorted, source }
    }
}

/// The analyses, which run one after another.
pub struct Cambi(Vec<Analysis>);

impl Metric for Cambi {
    type Of = metrics::cambi::Cambi;

    fn modules(_work: &CambiWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["cambi"]
    }

    fn prepare(work: &CambiWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let analysis = |analysis: &CambiAnalysis| -> Result<_, BackendError> {
            let plan = analysis.plan(setup.geometry).map_err(metrics::Misfit::from)?;
            Ok(Analysis::new(setup.device, plan, setup.geometry)?)
        };
        Ok(Self(work.analyses.iter().map(analysis).collect::<Result<_, _>>()?))
    }

    fn scratch(&self) -> usize {
        self.0.iter().map(Analysis::scratch).sum()
    }

    fn sums(&self) -> usize {
        self.0.iter().map(Analysis::sums).sum()
    }

    fn launch(&self, stream: &Stream, mut pairs: Pairs) -> Result<(), Error> {
        for analysis in &self.0 {
            analysis.launch(stream, pairs)?;
            pairs.first.scratch += analysis.scratch() as u64;
            pairs.first.sums += analysis.sums() as u64 * 8;
        }
        Ok(())
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<Vec<CambiSums>> {
        let mut pairs = vec![vec![]; sums.len()];
        let mut at = 0;
        for analysis in &self.0 {
            let range = at..at + analysis.sums();
            at = range.end;
            for (pair, own) in pairs.iter_mut().zip(sums) {
                pair.push(analysis.read(&own[range.clone()], &sums[0][range.clone()]));
            }
        }
        pairs
    }
}
