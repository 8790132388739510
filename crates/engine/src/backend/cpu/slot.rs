// SPDX-License-Identifier: MPL-2.0

//! An in-flight slot: the memory and metrics that one group needs while it is computed. Slots share no mutable state,
//! so groups in different slots may be computed in parallel.

use rayon::prelude::*;

use super::METRICS;
use super::import::{Importer, Unpacked};
use super::luma::Luma;
use super::metric::{DynMetric, Pictures, Setup, group};
use super::scale::{Scaled, Scaler};
use super::simd::Level;
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Frame, PlanePair};
use crate::frame::{Geometry, Picture};
use crate::metrics::{FrameSums, Work};
use crate::scale::Scaling;

/// Settings that all slots share.
pub struct SlotConfig {
    pub level: Level,
    pub geometry: Geometry,
    /// A metric reads Cb and Cr.
    pub chroma: bool,
    /// Number of earlier reference pictures that a metric reads.
    pub lags: usize,
    /// How the pictures of each rendition are scaled; `None` if they have the reference's size.
    pub scalers: Vec<Option<(Scaling, Scaler)>>,
}

impl SlotConfig {
    pub fn new(level: Level, work: &Work, geometry: Geometry, renditions: &[Option<Scaling>]) -> Self {
        let scaler = |scaling: &Option<Scaling>| scaling.map(|s| (s, Scaler::new(&s)));
        Self {
            level,
            geometry,
            chroma: work.chroma(),
            lags: work.lags(),
            scalers: renditions.iter().map(scaler).collect(),
        }
    }

    /// Returns the geometry of the pictures of a rendition.
    pub fn source(&self, rendition: usize) -> Result<Geometry, BackendError> {
        let scaler = self.scalers.get(rendition).ok_or(BackendError::NotPrepared)?;
        Ok(scaler.as_ref().map_or(self.geometry, |(scaling, _)| scaling.source()))
    }
}

/// A group with borrowed pictures, for the time of its computation.
pub struct BorrowedGroup<'a> {
    pub reference: &'a Picture<'a>,
    /// The reference's luma, if later groups need it too.
    pub luma: Option<&'a Luma>,
    /// The distorted pictures, each with the number of its rendition.
    pub distorted: Vec<(usize, &'a Picture<'a>)>,
    /// The luma of the reference one and two pictures ago, as far as the run reaches back.
    pub earlier: &'a [std::sync::Arc<Luma>],
    /// Number of bands of each picture.
    pub bands: usize,
    /// Number of groups before this one in its run.
    pub run: usize,
    pub history_only: bool,
}

/// Working memory, and the metrics with theirs. Each group overwrites the data of the one before.
pub struct Slot {
    metrics: Vec<Box<dyn DynMetric>>,
    for_reference: [Unpacked; 3],
    for_distorted: Vec<(Importer, Scaled)>,
}

impl Slot {
    pub fn new(work: &Work, setup: &Setup) -> Result<Self, BackendError> {
        let metrics =
            METRICS.iter().filter_map(|registration| (registration.prepare)(work, setup).transpose());
        let for_distorted = (0..setup.renditions).map(|_| Default::default()).collect();
        Ok(Self {
            metrics: metrics.collect::<Result<_, _>>()?,
            for_reference: Default::default(),
            for_distorted,
        })
    }

    /// Computes the sums of each distorted picture, or those of the reference compared with itself if there is none.
    /// Runs on the threads of the current pool.
    pub fn compute(
        &mut self,
        plan: &SlotConfig,
        given: &BorrowedGroup<'_>,
    ) -> Result<Vec<FrameSums>, BackendError> {
        let Self { metrics, for_reference, for_distorted } = self;
        let SlotConfig { level, geometry: Geometry { depth, .. }, chroma, .. } = *plan;
        let unreadable = || BackendError::Picture("cpu");
        let frame = |((rendition, picture), room): (&(usize, &_), _)| -> Result<Frame<'_>, BackendError> {
            let (importer, scaled): &mut (Importer, Scaled) = room;
            let frame = importer.import(picture, depth, chroma).ok_or_else(unreadable)?;
            match plan.scalers.get(*rendition).ok_or(BackendError::NotPrepared)? {
                Some((_, scaler)) => {
                    scaler.scale(level, given.bands, &frame, scaled).ok_or(BackendError::Unlike)
                }
                None => Ok(frame),
            }
        };
        let (of_reference, frames) = rayon::join(
            || {
                let [y, cb, cr] = for_reference;
                let luma = match given.luma {
                    Some(luma) => luma.plane(),
                    None => y.import(&given.reference.luma, depth),
                };
                let chroma = match &given.reference.chroma {
                    Some([b, r]) if chroma => {
                        let (cb, cr) = (cb.import(b, depth), cr.import(r, depth));
                        Some([cb.ok_or_else(unreadable)?, cr.ok_or_else(unreadable)?])
                    }
                    _ => None,
                };
                Ok::<_, BackendError>((luma.ok_or_else(unreadable)?, chroma))
            },
            || given.distorted.par_iter().zip(for_distorted).map(frame).collect::<Result<Vec<_>, _>>(),
        );
        let ((luma, of_reference), mut frames) = (of_reference?, frames?);
        if frames.is_empty() {
            frames.push(Frame { luma, chroma: of_reference });
        }
        let of_distorted = frames.iter().map(|frame| frame.chroma).collect::<Option<Vec<_>>>();
        let planes = of_reference.zip(of_distorted).map(|(reference, distorted)| {
            let component = |i: usize| group(reference[i], distorted.iter().map(|planes| planes[i]));
            Ok::<_, BackendError>([component(0)?, component(1)?])
        });
        let earlier = given.earlier.iter().map(|earlier| {
            let plane = earlier.plane().ok_or_else(unreadable)?;
            PlanePair::new(plane, luma).ok_or(BackendError::Unlike)
        });
        let renditions: Vec<_> = given.distorted.iter().map(|(rendition, _)| *rendition).collect();
        let pictures = Pictures {
            level,
            depth,
            bands: given.bands,
            luma: group(luma, frames.iter().map(|frame| frame.luma))?,
            chroma: planes.transpose()?,
            earlier: earlier.collect::<Result<_, _>>()?,
            renditions: &renditions,
            run: given.run,
        };
        let wanted = |metric: &dyn DynMetric| !given.history_only || metric.has_history();
        metrics.par_iter_mut().with_max_len(1).for_each(|metric| {
            metric.remember(&pictures);
            if wanted(&**metric) {
                metric.compute(&pictures);
            }
        });
        let mut sums = vec![FrameSums::default(); frames.len()];
        for metric in metrics.iter_mut().filter(|metric| wanted(&***metric)) {
            metric.take(&mut sums).ok_or(BackendError::Unlike)?;
        }
        Ok(sums)
    }
}
