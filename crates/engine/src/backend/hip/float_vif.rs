// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/float_vif.hip`.

use gpu::{Error, Kernel, Stream, arguments};

use super::frame::HvPlanes;
use super::metric::{Addresses, Metric, Pairs, Setup};
use super::ordered::Ordered;
use super::shared::shared;
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::float_vif::{FilteringWork, FloatVifSums, FloatVifWork, Layout, SCALES, Variant};

const THREADS: u32 = 128;
/// Taps of the longest filter.
const TAPS: usize = 17;
/// Rows of a strip.
const ROWS: usize = 8;
/// Sums of a variant: numerator and denominator of each scale.
const SUMS: usize = 2 * SCALES;
/// Columns and rows of a smaller scale per block.
const SMALL_TILE: (usize, usize) = (60, 8);

shared! {
    "float_vif.hip"
    /// One scale of a picture pair.
    #[derive(Default)]
    struct FloatVifScale: 40 {
        /// Null for luma of the frame.
        [0] planes: HvPlanes,
        /// Memory for the sums of rows.
        [24] rows: u64,
        [32] width: i32,
        [36] height: i32,
    }
}

shared! {
    "float_vif.hip"
    /// The parameters of the strips of all scales.
    struct FloatVifStrips: 480 {
        [0] scales: [FloatVifScale; SCALES],
        /// Number of the first block of each scale.
        [160] first: [u32; SCALES],
        [176] taps: [[f32; TAPS]; SCALES],
        [448] gain_limit: f32,
        [452] flat_factor: f32,
        [456] noise_limit: f32,
        /// Inverse of the noise, or 0.
        [460] inverse: f32,
        [464] unused: u32,
        [472] noise: f64,
    }
}

shared! {
    "float_vif.hip"
    /// The parameters of a smaller scale.
    struct FloatVifHalving: 128 {
        /// Null for luma of the frame.
        [0] from: HvPlanes,
        [24] to: HvPlanes,
        /// Size of the larger scale.
        [48] width: i32,
        [52] height: i32,
        [56] taps: [f32; TAPS],
        [124] unused: u32,
    }
}

/// Names the options without kernels.
const RARE: &str = "float_vif with vif_kernelscale or vif_prescale";

/// Scratch of a pair.
struct Memory {
    /// Scales 1 to 3.
    planes: [HvPlanes; SCALES],
    /// Sums of rows, of all scales one after another.
    rows: u64,
}

pub struct FloatVif {
    halve: Kernel,
    quarter: Kernel,
    eighth: Kernel,
    strips: Kernel,
    ordered: Ordered,
    geometry: Geometry,
    layout: Layout,
    taps: [[f32; TAPS]; SCALES],
    /// Rows of each scale that have sums.
    heights: [usize; SCALES],
    variants: Vec<Variant>,
}

impl FloatVif {
    fn memory(&self, scratch: u64) -> Memory {
        let mut room = scratch;
        let mut planes = [HvPlanes::default(); SCALES];
        for (planes, (width, height)) in planes[1..].iter_mut().zip(&self.layout.sizes[1..]) {
            *planes = HvPlanes::take(&mut room, width * height * size_of::<f32>(), *width, 1);
        }
        Memory { planes, rows: room }
    }

    /// Launches the smaller scales of a pair, of the reference too if `first`.
    fn halve(&self, stream: &Stream, frame: u64, memory: &Memory, first: bool) -> Result<(), Error> {
        for scale in 1..SCALES {
            let ((width, height), size) = (self.layout.sizes[scale - 1], self.layout.sizes[scale]);
            let given = FloatVifHalving {
                from: memory.planes[scale - 1],
                to: memory.planes[scale],
                width: width as i32,
                height: height as i32,
                taps: self.taps[scale],
                unused: 0,
            };
            let pictures = if first { 2 } else { 1 };
            let grid =
                ((pictures * size.0.div_ceil(SMALL_TILE.0)) as u32, size.1.div_ceil(SMALL_TILE.1) as u32);
            let bits = self.geometry.depth.bits();
            // SAFETY: the parameters of float_vif_halve_u8 and float_vif_halve_u16, of float_vif_quarter and of
            // float_vif_eighth.
            unsafe {
                match scale {
                    1 => self.halve.launch(stream, grid, arguments![frame, bits, given])?,
                    2 => self.quarter.launch(stream, grid, arguments![given])?,
                    _ => self.eighth.launch(stream, grid, arguments![given])?,
                }
            }
        }
        Ok(())
    }

    /// Launches the sums of a pair for a variant.
    fn sum(
        &self,
        stream: &Stream,
        frame: u64,
        memory: &Memory,
        variant: &Variant,
        sums: u64,
    ) -> Result<(), Error> {
        let heights = self.heights;
        let mut given = FloatVifStrips {
            scales: [FloatVifScale::default(); SCALES],
            first: [0; SCALES],
            taps: self.taps,
            gain_limit: variant.gain_limit,
            flat_factor: variant.flat_factor(),
            noise_limit: variant.noise_limit(),
            inverse: variant.exact_inverse().unwrap_or(0.0),
            unused: 0,
            noise: variant.noise,
        };
        let (mut rows, mut blocks) = (memory.rows, 0);
        for (scale, height) in heights.into_iter().enumerate() {
            given.scales[scale] = FloatVifScale {
                planes: memory.planes[scale],
                rows,
                width: self.layout.sizes[scale].0 as i32,
                height: height as i32,
            };
            given.first[scale] = blocks;
            rows += (2 * height * size_of::<f32>()) as u64;
            blocks += height.div_ceil(ROWS) as u32;
        }
        let bits = self.geometry.depth.bits();
        // SAFETY: the parameters of float_vif_strips_u8 and float_vif_strips_u16.
        unsafe { self.strips.launch(stream, (blocks, 1), arguments![frame, bits, given])? };
        self.ordered.total(stream, memory.rows, sums)
    }
}

impl Metric for FloatVif {
    type Of = metrics::float_vif::FloatVif;
    const WIDE: bool = true;

    fn modules(_work: &FloatVifWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["float_vif", Ordered::MODULE]
    }

    fn prepare(work: &FloatVifWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let [FilteringWork { filtering, scale0, variants }] = &work.filterings[..] else {
            return Err(BackendError::CpuOnly(RARE));
        };
        if !filtering.is_default() {
            return Err(BackendError::CpuOnly(RARE));
        }
        let layout = filtering.layout(setup.geometry);
        let mut taps = [[0.0; TAPS]; SCALES];
        for (to, from) in taps.iter_mut().zip(&layout.taps) {
            to[..from.len()].copy_from_slice(from);
        }
        let mut heights = layout.sizes.map(|(_, height)| height);
        if !scale0 {
            heights[0] = 0;
        }
        let (mut planes, mut row) = (vec![], 0);
        for sum in 0..SUMS {
            let height = heights[sum / 2];
            planes.push(Ordered::rows_at(row, height, sum));
            row += height as u32;
        }
        let kernel = |name| Kernel::new(setup.device, "float_vif", name, THREADS);
        Ok(Self {
            halve: kernel(setup.by_sample("float_vif_halve_u8", "float_vif_halve_u16"))?,
            quarter: kernel("float_vif_quarter")?,
            eighth: kernel("float_vif_eighth")?,
            strips: kernel(setup.by_sample("float_vif_strips_u8", "float_vif_strips_u16"))?,
            ordered: Ordered::new(setup.device, &planes)?,
            geometry: setup.geometry,
            layout,
            taps,
            heights,
            variants: variants.clone(),
        })
    }

    fn scratch(&self) -> usize {
        let Memory { rows, .. } = self.memory(0);
        rows as usize + self.heights.iter().sum::<usize>() * 2 * size_of::<f32>()
    }

    fn sums(&self) -> usize {
        SUMS * self.variants.len()
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        // The pairs share their scratch, so they run one after the other.
        for i in 0..pairs.count {
            let Addresses { frame, scratch, sums } = pairs.pair(i);
            let memory = self.memory(scratch);
            self.halve(stream, frame, &memory, i == 0)?;
            for (variant, place) in self.variants.iter().zip(0u64..) {
                self.sum(stream, frame, &memory, variant, sums + place * (SUMS * 8) as u64)?;
            }
        }
        Ok(())
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<FloatVifSums> {
        let single = |bits: u64| f32::from_bits(bits as u32);
        let variant = |sums: &[u64]| std::array::from_fn(|i| [single(sums[2 * i]), single(sums[2 * i + 1])]);
        sums.iter().map(|sums| vec![sums.chunks_exact(SUMS).map(variant).collect()]).collect()
    }
}
