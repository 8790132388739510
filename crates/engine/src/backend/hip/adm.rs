// SPDX-License-Identifier: MPL-2.0

//! Launches the kernels of `kernels/adm.h`.

use gpu::{Error, Kernel, Stream, arguments};

use super::frame::HvPlanes;
use super::metric::{Addresses, Metric, Overlap, Pairs, Setup, is_large};
use super::shared::shared;
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::adm::{self, AdmPassSums, AdmSums, AdmWork, BandSums, scales};

const ROWS_THREADS: u32 = 128;
/// Coefficients that 32 threads process.
const STRIP: usize = 60;
/// Shift of the horizontal transform, for each scale.
const HORIZONTAL: [u32; 4] = [16, 15, 16, 15];
/// Most passes in one launch.
const MAX_PASSES: usize = 4;
/// Equals `ADM_KEEP_WORDS` in the kernels.
const KEEP_WORDS: [usize; 4] = [3, 6, 6, 6];
/// Number of sums of all scales for one numerator or the denominator.
const SUMS: usize = 12;

shared! {
    "adm_args.h"
    /// The shape of one scale. [`crate::metrics::adm`] explains extents, scored part and shifts.
    struct AdmScale: 68 {
        [0] in_width: i32,
        [4] in_height: i32,
        [8] width: i32,
        [12] height: i32,
        [16] left: i32,
        [20] right: i32,
        [24] top: i32,
        [28] bottom: i32,
        [32] x0: i32,
        [36] y0: i32,
        [40] tile_height: i32,
        [44] cube: [u32; 2],
        [52] reference_square: u32,
        [56] reference_cube: u32,
        [60] horizontal: u32,
        [64] waves: u32,
    }
}

shared! {
    "adm_args.h"
    /// One way of weighting and masking.
    #[derive(Default)]
    struct AdmPass: 24 {
        [0] gain_limit: f64,
        [8] weights: [u32; 2],
        [16] aim: u32,
    }
}

shared! {
    "adm_args.h"
    #[derive(Default)]
    struct AdmPasses: 104 {
        [0] passes: [AdmPass; MAX_PASSES],
        [96] count: u32,
    }
}

shared! {
    "adm_args.h"
    /// The row sums of all scales.
    #[derive(Default)]
    struct AdmRows: 96 {
        [0] first: [u32; 4],
        [16] height: [i32; 4],
        [32] top: [i32; 4],
        [48] bottom: [i32; 4],
        [64] shift: [u32; 4],
        [80] reference_shift: [u32; 4],
    }
}

struct Scale {
    kernel: Kernel,
    /// Kernel for groups of several distorted pictures, and the bytes that one picture keeps for the next.
    group: Option<(Kernel, usize)>,
    shape: AdmScale,
    grid: (u32, u32),
    /// Coefficients from row to row of the low band.
    stride: usize,
    /// Bytes of one low band; 0 if it is not read.
    low_band: usize,
}

pub struct Adm {
    scales: [Scale; 4],
    rows: Kernel,
    rows_shape: AdmRows,
    /// Row sums of a launch.
    row_sums: usize,
    work: AdmWork,
    bits: u32,
}

/// Returns the largest number up to 0 from which tiles of this size also begin at `start`.
fn origin(start: usize, tile: usize) -> i32 {
    start as i32 - (start.div_ceil(tile) * tile) as i32
}

impl Scale {
    /// Creates a scale. `input`: size of the input. `coefficient`: bytes of a coefficient in the low band, 0 if that
    /// band is not read.
    fn new(
        kernel: Kernel,
        group: Option<Kernel>,
        index: usize,
        input: (usize, usize),
        scale: &adm::AdmScale,
        coefficient: usize,
        tiling: &Tiling,
    ) -> Self {
        let adm::AdmScale { width, height, ref rows, ref columns, numerator, reference } = *scale;
        let waves = tiling.waves[index];
        let tile = (tiling.wave / 32 * STRIP, tiling.heights[index]);
        let origin = [origin(columns.start / 2 * 2, tile.0), origin(rows.start, tile.1)];
        let tiles = |extent: usize, origin: i32, tile: usize| {
            (extent + origin.unsigned_abs() as usize).div_ceil(tile) as u32
        };
        let stride = width.next_multiple_of(64);
        let grid = (tiles(width, origin[0], tile.0), tiles(height, origin[1], waves * tile.1));
        let words = (grid.0 * grid.1 * kernel.threads()) as usize * (tile.1 + 2) * KEEP_WORDS[index];
        Self {
            group: group.map(|group| (group, (4 * words).next_multiple_of(16))),
            kernel,
            shape: AdmScale {
                in_width: input.0 as i32,
                in_height: input.1 as i32,
                width: width as i32,
                height: height as i32,
                left: columns.start as i32,
                right: columns.end as i32,
                top: rows.start as i32,
                bottom: rows.end as i32,
                x0: origin[0],
                y0: origin[1],
                tile_height: tile.1 as i32,
                cube: [numerator.cube[0], numerator.cube[2]],
                reference_square: reference.square[0],
                reference_cube: reference.cube[0],
                horizontal: HORIZONTAL[index],
                waves: waves as u32,
            },
            grid,
            stride,
            low_band: (stride * height * coefficient).next_multiple_of(16),
        }
    }

    /// Returns the bytes that one picture of a group keeps for the next.
    fn kept(&self) -> usize {
        self.group.as_ref().map_or(0, |(_, kept)| *kept)
    }
}

impl Adm {
    /// Returns true if the work needs the kernels for several passes and the additive part.
    fn needs_passes(work: &AdmWork) -> bool {
        work.passes.len() > 1 || work.passes.iter().any(|pass| pass.aim)
    }

    /// Divides the passes into those of each launch.
    fn launches(&self) -> std::slice::Chunks<'_, adm::AdmPass> {
        self.work.passes.chunks(MAX_PASSES)
    }
}

/// How kernels divide their work on a GPU.
struct Tiling {
    /// Threads of a wave. Each wave processes a tile.
    wave: usize,
    /// Waves per block, for each scale.
    waves: [usize; 4],
    /// Rows per tile, for each scale.
    heights: [usize; 4],
}

impl Tiling {
    /// Chooses the division. `many`: for the kernels for several passes and the additive part.
    ///
    /// More rows save work, more tiles fill the GPU. Scales that overlap with other groups can have more rows, which
    /// holds for the last scales. The first scale is most of the work and needs many tiles. With blocks of several
    /// waves (`ADM_WAVES` in `adm_args.h`), fewer rows suffice, as there are fewer blocks.
    fn new(setup: &Setup<'_>, many: bool) -> Self {
        let arch = &setup.device.info().arch;
        let single = many || !arch.starts_with("sm_");
        let first = if is_large(setup.geometry) { 14 } else { 8 };
        Self {
            wave: if arch.starts_with("gfx9") { 64 } else { 32 },
            waves: if single { [1; 4] } else { [setup.by_sample(8, 4), 4, 4, 4] },
            heights: match setup.overlap {
                Overlap::Little => [10, 4, 2, 1],
                Overlap::Some => [14, 6, 3, 2],
                Overlap::Much if single => [first, 6, 10, 8],
                Overlap::Much => [first, 6, 5, 4],
            },
        }
    }
}

/// Returns the number of sums for the denominator and the numerators of some passes: restored and additive.
fn kinds(passes: &[adm::AdmPass]) -> usize {
    1 + 2 * passes.len()
}

impl Metric for Adm {
    type Of = metrics::adm::Adm;
    const WIDE: bool = true;

    fn modules(work: &AdmWork, setup: &Setup<'_>) -> Vec<&'static str> {
        let (first, group) = match Self::needs_passes(work) {
            true => ("adm_passes", "adm_passes_group"),
            false => (setup.by_sample("adm0_u8", "adm0_u16"), "adm_group"),
        };
        ["adm", first].into_iter().chain(setup.several().then_some(group)).collect()
    }

    fn prepare(work: &AdmWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let device = setup.device;
        let Geometry { width, height, depth, .. } = setup.geometry;
        let many = Self::needs_passes(work);
        let shapes = scales(width, height);
        let tiling = Tiling::new(setup, many);
        let scale = |s: usize, name: &'static str, coefficient| {
            let input = if s == 0 { (width, height) } else { (shapes[s - 1].width, shapes[s - 1].height) };
            let (image, group, name) = match (many, s) {
                (true, _) => ("adm_passes", "adm_passes_group", format!("{name}_passes")),
                (false, 0) => (name, "adm_group", name.into()),
                (false, _) => ("adm", "adm_group", name.into()),
            };
            let threads = (tiling.wave * tiling.waves[s]) as u32;
            let kernel = Kernel::new(device, image, &name, threads)?;
            let group = || Kernel::new(device, group, &format!("{name}_group"), threads);
            let group = setup.several().then(group).transpose()?;
            Ok::<_, Error>(Scale::new(kernel, group, s, input, &shapes[s], coefficient, &tiling))
        };
        let first = setup.by_sample("adm0_u8", "adm0_u16");
        let scales = [scale(0, first, 2)?, scale(1, "adm1", 4)?, scale(2, "adm2", 4)?, scale(3, "adm2", 0)?];
        let mut rows_shape = AdmRows::default();
        let kinds = kinds(&work.passes[..work.passes.len().min(MAX_PASSES)]);
        let mut first = 0;
        for (s, shape) in shapes.iter().enumerate() {
            rows_shape.first[s] = first;
            rows_shape.height[s] = shape.height as i32;
            rows_shape.top[s] = shape.rows.start as i32;
            rows_shape.bottom[s] = shape.rows.end as i32;
            rows_shape.shift[s] = shape.numerator.row;
            rows_shape.reference_shift[s] = shape.reference.row;
            first += (3 * kinds * shape.height) as u32;
        }
        Ok(Self {
            scales,
            rows: Kernel::new(device, "adm", "adm_rows", ROWS_THREADS)?,
            rows_shape,
            row_sums: first as usize,
            work: work.clone(),
            bits: depth.bits(),
        })
    }

    fn scratch(&self) -> usize {
        (self.row_sums * 8).next_multiple_of(16)
            + self.scales.iter().map(|scale| 2 * scale.low_band + scale.kept()).sum::<usize>()
    }

    fn sums(&self) -> usize {
        self.launches().map(|passes| SUMS * kinds(passes)).sum()
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let mut at = 0;
        for passes in self.launches() {
            for i in 0..pairs.count {
                let Addresses { frame, scratch: rows, sums } = pairs.pair(i);
                let mut room = rows + (self.row_sums * 8).next_multiple_of(16) as u64;
                let mut planes = HvPlanes::default();
                for (s, scale) in self.scales.iter().enumerate() {
                    let next = HvPlanes::take(&mut room, scale.low_band, scale.stride, 1);
                    let keep = room;
                    room += scale.kept() as u64;
                    let mut these = AdmPasses { count: passes.len() as u32, ..Default::default() };
                    for (to, pass) in these.passes.iter_mut().zip(passes) {
                        let adm::AdmPass { gain_limit, weights, aim } = *pass;
                        *to = AdmPass { gain_limit, weights: weights[s], aim: aim.into() };
                    }
                    let row_sums = rows + u64::from(self.rows_shape.first[s]) * 8;
                    let (shape, bits, later) = (scale.shape, self.bits, u32::from(i > 0));
                    let group = scale.group.as_ref().filter(|_| pairs.count > 1);
                    let kernel = group.map_or(&scale.kernel, |(group, _)| group);
                    let arguments: &mut [_] = match s {
                        0 => arguments![frame, next, shape, bits, these, row_sums, keep, later],
                        _ => arguments![planes, next, shape, these, row_sums, keep, later],
                    };
                    // SAFETY: the parameters of the kernels of scale 0, or of the other scales; those without `_group`
                    // lack the last two.
                    unsafe { kernel.launch(stream, scale.grid, arguments)? };
                    planes = next;
                }
                let columns = if Self::needs_passes(&self.work) { 3 * kinds(passes) as u32 } else { 6 };
                let shape = self.rows_shape;
                let sums = sums + at;
                let first = if i > 0 { pairs.first.sums + at } else { 0 };
                // SAFETY: the parameters of adm_rows.
                unsafe { self.rows.launch(stream, (columns, 4), arguments![shape, rows, first, sums])? };
            }
            at += (SUMS * kinds(passes) * 8) as u64;
        }
        Ok(())
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<AdmSums> {
        sums.iter().map(|sums| self.pair(sums)).collect()
    }
}

impl Adm {
    /// Reads the sums of a pair.
    fn pair(&self, sums: &[u64]) -> AdmSums {
        let bands = |sums: &[u64]| -> [BandSums; 4] {
            std::array::from_fn(|scale| std::array::from_fn(|band| sums[3 * scale + band] as i64))
        };
        let mut result = AdmSums { reference: bands(sums), passes: vec![] };
        let mut rest = sums;
        for passes in self.launches() {
            let (these, others) = rest.split_at(SUMS * kinds(passes));
            rest = others;
            // Every launch computes the denominator again.
            for (pass, sums) in passes.iter().zip(these[SUMS..].chunks(2 * SUMS)) {
                result.passes.push(AdmPassSums {
                    restored: bands(sums),
                    additive: pass.aim.then(|| bands(&sums[SUMS..])),
                });
            }
        }
        result
    }
}
