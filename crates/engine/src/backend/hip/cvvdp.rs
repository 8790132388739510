// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/cvvdp.hip`.
//!
//! The opponent colours of the latest pictures of all streams are in a ring that all groups in flight share. A group
//! writes its own place before its recorded work, and reads those of earlier groups.

use gpu::{DeviceBuffer, Error, Kernel, Stream, arguments};

use super::frame::HvPlane;
use super::metric::{Metric, Pairs, Setup};
use super::shared::{bytes_of, shared};
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::cvvdp::heat::starts;
use crate::metrics::cvvdp::tables::{BLUR, Front, Level, Masking, Tables};
use crate::metrics::cvvdp::{CHANNELS, CvvdpSums, CvvdpWork, Eotf, fraction};

const THREADS: u32 = 256;
/// Columns and rows of a tile of masking.
const TILE: [usize; 2] = [64, 32];
/// Columns of the smaller picture of a group of threads, rows that it reduces to, and groups of a block.
const GROUP_COLUMNS: usize = 30;
const GROUP_ROWS: usize = 4;
const GROUPS: u32 = THREADS / 32;
/// Threads that reduce all small levels, and the most groups of such a level.
const REST_THREADS: u32 = 1024;
const REST_GROUPS: u32 = 96;
/// Samples that a thread filters.
const GROUP: usize = 4;
/// Opponent colours.
const COLOURS: usize = 3;

shared! {
    "cvvdp.hip"
    /// The conversion of samples. Of pairs of numbers, the first is for luma.
    struct CvvdpFront: 152 {
        [0] low: [i32; 2],
        [8] high: [i32; 2],
        [16] scale: [f32; 2],
        [24] offset: [f32; 2],
        [32] matrix: [f32; 4],
        [48] colours: [[f32; 3]; 3],
        [84] offsets: [f32; 3],
        [96] hlg: [f32; 3],
        [108] gamma: f32,
        [112] peak: f32,
        [116] eotf: u32,
        /// Chroma of pictures that have none.
        [120] grey: f32,
        [124] cosited: [u32; 2],
        [132] width: i32,
        [136] height: i32,
        [140] chroma_width: i32,
        [144] chroma_height: i32,
        /// 1 for R'G'B', of which red and blue are without luma.
        [148] is_rgb: u32,
    }
}

shared! {
    "cvvdp.hip"
    /// The constants of masking.
    struct CvvdpMasking: 268 {
        [0] horizontal: [f32; BLUR],
        [52] vertical: [f32; BLUR],
        [104] powers: [f32; CHANNELS],
        [120] cross: [[f32; CHANNELS]; CHANNELS],
        [184] offsets: [f32; CHANNELS],
        [200] small_gain: f32,
        [204] power: f32,
        [208] zero: f32,
        [212] top: f32,
        [216] epsilon: f32,
        [220] two_epsilons: f32,
        [224] nodes: [f32; 2],
        [232] strength: [f32; CHANNELS],
        [248] base_strength: [f32; CHANNELS],
        [264] no_strength: f32,
    }
}

shared! {
    "cvvdp.hip"
    /// A level of the pyramid.
    struct CvvdpLevel: 48 {
        [0] scale: f64,
        /// Places count floats from the beginning of a pair's memory.
        [8] planes: u64,
        [16] results: u64,
        [24] width: i32,
        [28] height: i32,
        [32] pitch: u32,
        /// Numbers of the first blocks of the kernels for all bands.
        [36] contrasts: u32,
        [40] tiles: u32,
        /// Where the cells of the heat map begin among the sums; 0 if there are none.
        [44] heat: u32,
    }
}

impl CvvdpFront {
    fn new(front: &Front, geometry: Geometry) -> Self {
        let Front { luma, chroma, .. } = front;
        let middle = ((chroma.low + chroma.high).div_ceil(2) * 16) as f32;
        let (chroma_width, chroma_height) = geometry.chroma.unwrap_or_default();
        Self {
            low: [luma.low as i32, chroma.low as i32],
            high: [luma.high as i32, chroma.high as i32],
            scale: [luma.scale, chroma.scale],
            offset: [luma.offset, chroma.offset],
            matrix: front.matrix,
            colours: front.colours,
            offsets: front.offsets,
            hlg: front.hlg,
            gamma: front.gamma,
            peak: front.peak,
            eotf: match front.eotf {
                Eotf::Srgb => 0,
                Eotf::Pq => 1,
                Eotf::Hlg => 2,
            },
            grey: middle.mul_add(chroma.scale, chroma.offset),
            cosited: front.cosited.map(u32::from),
            width: geometry.width as i32,
            height: geometry.height as i32,
            chroma_width: chroma_width as i32,
            chroma_height: chroma_height as i32,
            is_rgb: front.is_rgb.into(),
        }
    }
}

impl CvvdpMasking {
    fn new(masking: &Masking) -> Self {
        Self {
            horizontal: masking.horizontal,
            vertical: masking.vertical,
            powers: masking.powers,
            cross: masking.cross,
            offsets: masking.offsets,
            small_gain: masking.small,
            power: masking.power,
            zero: masking.zero,
            top: masking.top,
            epsilon: masking.epsilon,
            two_epsilons: masking.two_epsilons,
            nodes: masking.nodes,
            strength: masking.strength.weights,
            base_strength: masking.strength.base,
            no_strength: masking.strength.zero,
        }
    }
}

/// The levels, and what they need together.
struct Layout {
    levels: Vec<CvvdpLevel>,
    /// Floats of a pair.
    pair: usize,
    /// Blocks of the contrasts and of masking, of all bands.
    contrasts: u32,
    tiles: u32,
    /// Sums of a pair: four of each band, and of the base; then the cells of the heat map, if it is asked for.
    sums: usize,
}

/// Returns the number of groups of threads that reduce a plane to a level.
fn groups(level: &CvvdpLevel) -> u32 {
    let (width, height) = (level.width as usize, level.height as usize);
    (width.div_ceil(GROUP_COLUMNS) * height.div_ceil(GROUP_ROWS)) as u32
}

impl Layout {
    fn new(all: &[Level], heat: bool) -> Self {
        let channels = CHANNELS * all.len();
        let cells = starts(all.iter().map(|level| (level.width, level.height)).filter(|_| heat));
        let sums = channels + cells.last().copied().unwrap_or(0);
        // The first block of the contrasts is that of the base.
        let mut layout = Self { levels: vec![], pair: 0, contrasts: 1, tiles: 0, sums };
        for (i, level) in all.iter().enumerate() {
            let (width, height) = (level.width, level.height);
            let pitch = (width * height).next_multiple_of(GROUP);
            let planes = layout.pair;
            layout.pair += 4 * CHANNELS * pitch;
            layout.levels.push(CvvdpLevel {
                scale: (1u64 << fraction(width, height)) as f64,
                planes: planes as u64,
                results: (planes + 2 * CHANNELS * pitch) as u64,
                width: width as i32,
                height: height as i32,
                pitch: pitch as u32,
                contrasts: layout.contrasts,
                tiles: layout.tiles,
                heat: if heat { (channels + cells[i]) as u32 } else { 0 },
            });
            if i + 1 < all.len() {
                let groups = width.div_ceil(2).div_ceil(GROUP_COLUMNS) * height.div_ceil(2);
                layout.contrasts += (groups as u32).div_ceil(GROUPS);
                layout.tiles += (width.div_ceil(TILE[0]) * height.div_ceil(TILE[1])) as u32;
            }
        }
        layout
    }
}

pub struct Cvvdp {
    front: Kernel,
    filter: Kernel,
    reduce: Kernel,
    reduce_rest: Kernel,
    contrast: Kernel,
    mask: Kernel,
    samples: CvvdpFront,
    masking: CvvdpMasking,
    layout: Layout,
    /// Weights of the frames, the levels, and the sensitivity of each level.
    taps: DeviceBuffer,
    frames: u32,
    levels: DeviceBuffer,
    sensitivity: DeviceBuffer,
    geometry: Geometry,
    /// Opponent colours of the latest pictures: places, streams, planes.
    ring: DeviceBuffer,
    places: usize,
    streams: usize,
}

impl Cvvdp {
    fn bands(&self) -> usize {
        self.layout.levels.len() - 1
    }

    fn pitch(&self) -> u32 {
        self.layout.levels[0].pitch
    }
}

impl Metric for Cvvdp {
    type Of = metrics::cvvdp::Cvvdp;
    const KEEPS: bool = true;
    const WIDE: bool = true;

    fn modules(_work: &CvvdpWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["cvvdp"]
    }

    fn prepare(work: &CvvdpWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let Setup { device, geometry, .. } = *setup;
        let tables = Tables::new(work, geometry)?;
        let layout = Layout::new(&tables.levels, work.heat);
        let kernel = |name: &str, threads| Kernel::new(device, "cvvdp", name, threads);
        let (places, streams) = (tables.taps.len() - 1 + setup.slots, 1 + setup.renditions);
        let ring = places * streams * COLOURS * layout.levels[0].pitch as usize * size_of::<f32>();
        let sensitivity = tables.levels.iter().flat_map(|level| {
            level
                .sensitivity
                .iter()
                .flatten()
                .zip(level.steps.iter().flatten())
                .map(|(value, step)| [*value, *step])
        });
        let sensitivity: Vec<_> = sensitivity.collect();
        Ok(Self {
            front: kernel(setup.by_sample("cvvdp_front_u8", "cvvdp_front_u16"), THREADS)?,
            filter: kernel("cvvdp_filter", THREADS)?,
            reduce: kernel("cvvdp_reduce", THREADS)?,
            reduce_rest: kernel("cvvdp_reduce_rest", REST_THREADS)?,
            contrast: kernel("cvvdp_contrast", THREADS)?,
            mask: kernel(if work.heat { "cvvdp_mask_heat" } else { "cvvdp_mask" }, THREADS)?,
            samples: CvvdpFront::new(&tables.front, geometry),
            masking: CvvdpMasking::new(&tables.masking),
            taps: DeviceBuffer::holding(device, "a table", bytes_of(&tables.taps))?,
            frames: tables.taps.len() as u32,
            levels: DeviceBuffer::holding(device, "a table", bytes_of(&layout.levels))?,
            sensitivity: DeviceBuffer::holding(device, "a table", bytes_of(&sensitivity))?,
            layout,
            geometry,
            ring: DeviceBuffer::new(device, "a history", ring)?,
            places,
            streams,
        })
    }

    fn remember(
        &self,
        stream: &Stream,
        place: usize,
        pictures: &[(usize, [HvPlane; 3])],
    ) -> Result<(), Error> {
        let CvvdpFront { width, height, .. } = self.samples;
        let grid = ((width as u32).div_ceil(2 * THREADS), height as u32);
        let pitch = self.pitch();
        let size = COLOURS * pitch as usize * size_of::<f32>();
        for (of, planes) in pictures {
            let at = place % self.places * self.streams + of;
            let out = self.ring.address() + (at * size) as u64;
            let bits = self.geometry.depth.bits();
            let arguments = arguments![*planes, bits, self.samples, pitch, out];
            // SAFETY: the parameters of cvvdp_front_u8 and cvvdp_front_u16.
            unsafe { self.front.launch(stream, grid, arguments)? };
        }
        Ok(())
    }

    fn scratch(&self) -> usize {
        (self.streams - 1) * self.layout.pair * size_of::<f32>()
    }

    fn sums(&self) -> usize {
        self.layout.sums
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        let (frame, memory, sums) = (pairs.first.frame, pairs.first.scratch, pairs.first.sums);
        let count = pairs.count as u32;
        let (bands, pitch, pair) = (self.bands() as u32, (pairs.pitch / 8) as u32, self.layout.pair as u64);
        let (ring, taps, levels) = (self.ring.address(), self.taps.address(), self.levels.address());
        let (places, streams, plane) = (self.places as u32, self.streams as u32, self.pitch());
        let grid = (plane.div_ceil(GROUP as u32 * THREADS), 2 * count);
        let arguments = arguments![frame, ring, taps, self.frames, places, streams, plane, pair, memory];
        // SAFETY: the parameters of cvvdp_filter.
        unsafe { self.filter.launch(stream, grid, arguments)? };
        let (mut level, planes) = (1u32, 2 * CHANNELS as u32 * count);
        while level <= bands {
            let groups = groups(&self.layout.levels[level as usize]);
            if groups <= REST_GROUPS {
                let arguments = arguments![frame, levels, level, bands, pair, memory];
                // SAFETY: the parameters of cvvdp_reduce_rest.
                unsafe { self.reduce_rest.launch(stream, (1, planes), arguments)? };
                break;
            }
            let grid = (groups.div_ceil(GROUPS), planes);
            // SAFETY: the parameters of cvvdp_reduce.
            unsafe { self.reduce.launch(stream, grid, arguments![frame, levels, level, pair, memory])? };
            level += 1;
        }
        let (grid, tables) = ((self.layout.contrasts, count), self.sensitivity.address());
        let arguments = arguments![frame, levels, tables, self.masking, bands, pair, memory, pitch, sums];
        // SAFETY: the parameters of cvvdp_contrast.
        unsafe { self.contrast.launch(stream, grid, arguments)? };
        let grid = (self.layout.tiles, count);
        let arguments = arguments![levels, self.masking, bands, pair, memory, pitch, sums];
        // SAFETY: the parameters of cvvdp_mask and cvvdp_mask_heat.
        unsafe { self.mask.launch(stream, grid, arguments) }
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<CvvdpSums> {
        let four = |sums: &[u64]| std::array::from_fn(|i| sums[i]);
        let pair = |sums: &&[u64]| {
            let (bands, others) = sums.split_at(CHANNELS * self.bands());
            let (base, heat) = others.split_at(CHANNELS);
            let bands = bands.chunks_exact(CHANNELS).map(four).collect();
            CvvdpSums::new(bands, four(base), heat.to_vec(), self.geometry)
        };
        sums.iter().map(pair).collect()
    }
}
