// SPDX-License-Identifier: MPL-2.0

//! SpEED temporal: the statistics of SpEED of the differences of successive pictures.

use rayon::prelude::*;

use super::filter::load_samples;
use super::metric::{Metric, Pictures, Setup, typed};
use super::simd::{Lanes, each};
use super::speed::{Numbers, moments};
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Plane, Sample};
use crate::metrics;
use crate::metrics::speed::temporal::{TemporalSums, TemporalWork};
use crate::metrics::speed::{Layout, PlaneStatistics};

/// Samples of a plane less those of the next one, in 8-bit steps.
#[derive(Clone, Copy)]
struct Changes<'a, T> {
    before: Plane<'a, u16>,
    now: Plane<'a, T>,
    unit: f32,
}

impl<T: Sample> Numbers for Changes<'_, T> {
    fn width(self) -> usize {
        self.now.width()
    }

    fn at(self, x: usize, y: usize) -> f32 {
        let (before, now): (i32, i32) = (self.before.row(y).at(x).into(), self.now.row(y).at(x).into());
        (before - now) as f32 * self.unit
    }

    #[inline(always)]
    unsafe fn some<V: Lanes>(self, x: usize, y: usize) -> [V::F; 2] {
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe {
            let before = V::widen_u16(load_samples::<V, u16>(self.before.row(y), x));
            let now = V::widen_u16(load_samples::<V, T>(self.now.row(y), x));
            let unit = V::splat_f32(self.unit);
            each!(half in [0, 1] => V::mul_f32(V::to_f32(V::sub(before[half], now[half])), unit))
        }
    }
}

/// Luma of the present picture of a stream, and of the one before; `None` if the stream lacks one.
#[derive(Default)]
struct Stream {
    present: Option<Vec<u16>>,
    before: Option<Vec<u16>>,
}

impl Stream {
    fn take<T: Sample>(&mut self, plane: Option<Plane<'_, T>>) {
        let mut room = self.before.take().unwrap_or_default();
        self.before = self.present.take();
        self.present = plane.map(|plane| {
            room.clear();
            let sample = |sample: T| Into::<u32>::into(sample) as u16;
            (0..plane.height()).for_each(|y| room.extend(plane.row(y).iter().map(sample)));
            room
        });
    }
}

/// SpEED of changes, with the previous picture of all streams.
pub struct SpeedTemporal {
    /// For each kind of change, whether distorted pictures change to the reference.
    changes: Vec<(Layout, bool)>,
    sigmas: Vec<f32>,
    /// The reference, and each rendition.
    streams: Vec<Stream>,
    /// Number of the next group in the run.
    next: usize,
}

impl SpeedTemporal {
    /// Takes the pictures of a group.
    fn take<T: Sample>(&mut self, renditions: &[usize], reference: Plane<'_, T>, distorted: &[Plane<'_, T>]) {
        for (i, stream) in self.streams.iter_mut().enumerate() {
            let of_rendition =
                || Some(distorted[renditions.iter().position(|rendition| 1 + rendition == i)?]);
            stream.take(if i == 0 { Some(reference) } else { of_rendition() });
        }
    }

    /// Computes the statistics of pairs whose pictures both follow others.
    fn sums<T: Sample>(
        &self,
        pictures: &Pictures<'_>,
        reference: Plane<'_, T>,
        distorted: &[Plane<'_, T>],
    ) -> Vec<TemporalSums> {
        let before = |stream: usize| -> Option<Plane<'_, u16>> {
            let samples = self.streams.get(stream)?.before.as_ref()?;
            Plane::new(samples, reference.width(), reference.height(), reference.width())
        };
        let none = || vec![None; distorted.len()];
        let Some(of_reference) = before(0) else { return none() };
        let of_pair = |i: usize| before(1 + pictures.renditions.get(i)?);
        let pairs: Vec<_> = (0..distorted.len()).filter_map(|i| Some((i, of_pair(i)?))).collect();
        if pairs.is_empty() {
            return none();
        }
        let mut sums = none();
        for (layout, to_reference) in &self.changes {
            let of = |before, now| Changes { before, now, unit: layout.unit };
            let others = pairs
                .iter()
                .map(|(i, before)| of(*before, if *to_reference { reference } else { distorted[*i] }));
            let planes: Vec<_> = [of(of_reference, reference)].into_iter().chain(others).collect();
            let moments =
                planes.par_iter().with_max_len(1).map(|plane| moments(pictures.level, layout, *plane));
            let mut statistics = PlaneStatistics::of(moments.collect(), &self.sigmas).into_iter();
            let Some(reference) = statistics.next() else { continue };
            for ((i, _), distorted) in pairs.iter().zip(statistics) {
                sums[*i].get_or_insert_with(Vec::new).push([reference.clone(), distorted]);
            }
        }
        sums
    }
}

impl Metric for SpeedTemporal {
    type Of = metrics::speed::temporal::SpeedTemporal;
    const HISTORY: bool = true;

    fn prepare(work: &TemporalWork, setup: &Setup) -> Result<Self, BackendError> {
        let changes =
            work.changes.iter().map(|change| Ok((change.layout(setup.geometry)?, change.to_reference)));
        Ok(Self {
            changes: changes.collect::<Result<_, metrics::Misfit>>()?,
            sigmas: work.sigmas.clone(),
            streams: (0..=setup.renditions).map(|_| Stream::default()).collect(),
            next: 0,
        })
    }

    fn remember(&mut self, pictures: &Pictures<'_>) {
        if pictures.run == 0 || pictures.run != self.next {
            self.streams.fill_with(Stream::default);
        }
        typed!(PlaneGroup: &pictures.luma, |r, d| self.take(pictures.renditions, *r, d));
        self.next = pictures.run + 1;
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<TemporalSums>> {
        Some(typed!(PlaneGroup: &pictures.luma, |r, d| self.sums(pictures, *r, d)))
    }
}
