// SPDX-License-Identifier: MPL-2.0

//! Launches the kernels of `kernels/speed.hip` for the changes of luma.

use gpu::{DeviceBuffer, Error, Kernel, Stream, arguments};

use super::frame::HvPlane;
use super::metric::{Addresses, Metric, Pairs, Setup};
use super::shared::shared;
use super::speed::{PLANES, ScalingTables, Statistics, THREADS, TILE, moments, plane_sums};
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics;
use crate::metrics::speed::PlaneStatistics;
use crate::metrics::speed::temporal::{TemporalSums, TemporalWork};

/// Planes of a pair: of the reference and of the distorted picture.
const PAIR: u32 = 2;
/// Their places among the planes that kernels know.
const OF_PAIR: [usize; PAIR as usize] = [1, 3];

shared! {
    "speed.hip"
    /// Luma of the latest pictures of the reference and of all renditions.
    struct SpeedHistory: 24 {
        [0] samples: u64,
        /// Groups of pictures.
        [8] places: u32,
        /// Planes of a group.
        [12] streams: u32,
        /// Samples from plane to plane.
        [16] pitch: u32,
        [20] width: u32,
    }
}

pub struct SpeedTemporal {
    keep: Kernel,
    changes: Kernel,
    statistics: Statistics,
    /// For each kind of change, 1 if distorted pictures change to the reference.
    kinds: Vec<(ScalingTables, u32)>,
    sigmas: Vec<f32>,
    history: SpeedHistory,
    _ring: DeviceBuffer,
    geometry: Geometry,
}

impl Metric for SpeedTemporal {
    type Of = metrics::speed::temporal::SpeedTemporal;
    const HISTORY: bool = true;
    const KEEPS: bool = true;
    const LONG_READ: bool = true;

    fn modules(_work: &TemporalWork, _setup: &Setup<'_>) -> Vec<&'static str> {
        vec!["speed"]
    }

    fn prepare(work: &TemporalWork, setup: &Setup<'_>) -> Result<Self, BackendError> {
        let Setup { device, geometry, .. } = *setup;
        let kernel = |byte, word| Kernel::new(device, "speed", setup.by_sample(byte, word), THREADS);
        let kind = |change: &metrics::speed::temporal::Change| {
            let tables = ScalingTables::new(device, change.layout(geometry)?, geometry.depth.bits())?;
            Ok::<_, BackendError>((tables, u32::from(change.to_reference)))
        };
        // Places of groups are counted in the longest history of all metrics.
        let (places, streams) = (setup.work.history() + setup.slots, 1 + setup.renditions);
        let pitch = (geometry.width * geometry.height).next_multiple_of(16);
        let ring = DeviceBuffer::new(device, "a history", places * streams * pitch * geometry.sample_size())?;
        Ok(Self {
            keep: kernel("speed_keep_u8", "speed_keep_u16")?,
            changes: kernel("speed_changes_u8", "speed_changes_u16")?,
            statistics: Statistics::new(device)?,
            kinds: work.changes.iter().map(kind).collect::<Result<_, _>>()?,
            sigmas: work.sigmas.clone(),
            history: SpeedHistory {
                samples: ring.address(),
                places: places as u32,
                streams: streams as u32,
                pitch: pitch as u32,
                width: geometry.width as u32,
            },
            _ring: ring,
            geometry,
        })
    }

    fn remember(
        &self,
        stream: &Stream,
        place: usize,
        pictures: &[(usize, [HvPlane; 3])],
    ) -> Result<(), Error> {
        let Geometry { width, height, depth, .. } = self.geometry;
        let (bits, grid) = (depth.bits(), ((width as u32).div_ceil(THREADS), height as u32));
        let place = (place % self.history.places as usize) as u32;
        for (of, [luma, ..]) in pictures {
            let of = *of as u32;
            // SAFETY: the parameters of speed_keep_u8 and speed_keep_u16.
            unsafe { self.keep.launch(stream, grid, arguments![*luma, bits, self.history, place, of])? };
        }
        Ok(())
    }

    fn scratch(&self) -> usize {
        self.kinds.iter().map(|(tables, _)| tables.scratch()).sum()
    }

    /// The first one shows whether the others are known.
    fn sums(&self) -> usize {
        1 + self.kinds.iter().map(|(tables, _)| PLANES * plane_sums(&tables.layout)).sum::<usize>()
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        // The pairs share their scratch, so they run one after the other.
        (0..pairs.count).try_for_each(|i| {
            let Addresses { frame, scratch: mut images, sums: known } = pairs.pair(i);
            let mut sums = known + 8;
            for (tables, to_reference) in &self.kinds {
                let tiles = tables.layout.x.size.div_ceil(TILE) as u32;
                let grid = (tiles, PAIR * tables.layout.y.size as u32);
                let (history, to_reference) = (self.history, *to_reference);
                let given = arguments![frame, history, to_reference, tables.scaling, images, known];
                // SAFETY: the parameters of speed_changes_u8 and speed_changes_u16.
                unsafe { self.changes.launch(stream, grid, given)? };
                self.statistics.launch(stream, tables, PAIR, [images, sums])?;
                images += tables.scratch() as u64;
                sums += (PLANES * plane_sums(&tables.layout) * 8) as u64;
            }
            Ok(())
        })
    }

    fn read(&self, sums: &[&[u64]], _run: usize) -> Vec<TemporalSums> {
        let mut pairs: Vec<TemporalSums> = sums.iter().map(|sums| (sums[0] == 1).then(Vec::new)).collect();
        let mut at = 1;
        for (ScalingTables { layout, .. }, _) in &self.kinds {
            let size = plane_sums(layout);
            for (pair, sums) in pairs.iter_mut().zip(sums) {
                let Some(kinds) = pair else { continue };
                let planes = OF_PAIR.map(|plane| moments(layout, &sums[at + plane * size..][..size]));
                let statistics = PlaneStatistics::of(planes.into(), &self.sigmas);
                kinds.extend(<[PlaneStatistics; 2]>::try_from(statistics));
            }
            at += PLANES * size;
        }
        pairs
    }
}
