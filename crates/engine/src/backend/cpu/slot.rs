// SPDX-License-Identifier: MPL-2.0

//! An in-flight slot: everything that one group needs while it is computed. Slots share nothing that changes, so groups
//! in different slots may be computed at the same time.

use rayon::prelude::*;

use super::METRICS;
use super::import::{Importer, Unpacked};
use super::luma::Luma;
use super::metric::{Pictures, Setup, Task, group};
use super::scale::{Scaled, Scaler};
use super::simd::Level;
use crate::backend::cpu::plane::{Frame, PlanePair};
use crate::backend::{BackendError, Halves};
use crate::frame::{Geometry, Picture};
use crate::metrics::{FrameSums, Work};
use crate::scale::Scaling;

/// What all slots have in common.
pub struct Plan {
    pub level: Level,
    pub geometry: Geometry,
    /// Some metric looks at Cb and Cr.
    pub chroma: bool,
    /// How many earlier reference pictures some metric looks at.
    pub lags: usize,
    /// How the pictures of each rendition are scaled; `None` where they have the reference's size.
    pub scalers: Vec<Option<(Scaling, Scaler)>>,
}

impl Plan {
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

    /// The geometry of the pictures of a rendition.
    pub fn source(&self, rendition: usize) -> Result<Geometry, BackendError> {
        let scaler = self.scalers.get(rendition).ok_or(BackendError::NotPrepared)?;
        Ok(scaler.as_ref().map_or(self.geometry, |(scaling, _)| scaling.source()))
    }
}

/// A group whose pictures are there while it is computed.
pub struct Group<'a> {
    pub reference: &'a Picture<'a>,
    /// The reference's luma, if later groups will look at it too.
    pub luma: Option<&'a Luma>,
    /// The distorted pictures, each with the number of its rendition.
    pub distorted: Vec<(usize, &'a Picture<'a>)>,
    /// The luma of the reference one and two pictures ago, as far as the run reaches back.
    pub earlier: &'a [std::sync::Arc<Luma>],
    /// Into how many bands its pictures are divided.
    pub bands: usize,
    pub history_only: bool,
}

/// Working memory, and the metrics with theirs. Each group overwrites what the one before has left.
pub struct Slot {
    /// Metrics that need what another one makes come after it; otherwise, each is on its own.
    chains: Vec<Vec<Box<dyn Task>>>,
    for_reference: [Unpacked; 3],
    for_distorted: Vec<(Importer, Scaled)>,
}

impl Slot {
    pub fn new(work: &Work, setup: &Setup) -> Result<Self, BackendError> {
        let mut chains: Vec<Vec<Box<dyn Task>>> = vec![];
        for registration in &METRICS {
            let Some(task) = (registration.prepare)(work, setup)? else { continue };
            match task.halves_are() {
                Halves::Needed => {
                    let made = |chain: &&mut Vec<Box<dyn Task>>| chain[0].halves_are() == Halves::Made;
                    let chain = chains.iter_mut().find(made);
                    chain.ok_or(BackendError::Incomplete { metric: registration.name })?.push(task);
                }
                Halves::Ignored | Halves::Made => chains.push(vec![task]),
            }
        }
        let for_distorted = (0..setup.renditions).map(|_| Default::default()).collect();
        Ok(Self { chains, for_reference: Default::default(), for_distorted })
    }

    /// The sums of each distorted picture, or those of the reference compared with itself if there are none, on the
    /// threads of the current pool.
    pub fn compute(&mut self, plan: &Plan, given: &Group<'_>) -> Result<Vec<FrameSums>, BackendError> {
        let Self { chains, for_reference, for_distorted } = self;
        let Plan { level, geometry: Geometry { depth, .. }, chroma, .. } = *plan;
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
        let pictures = Pictures {
            level,
            depth,
            bands: given.bands,
            luma: group(luma, frames.iter().map(|frame| frame.luma))?,
            chroma: planes.transpose()?,
            earlier: earlier.collect::<Result<_, _>>()?,
            halves: vec![],
        };
        let wanted = |task: &dyn Task| !given.history_only || task.has_history();
        chains.par_iter_mut().with_max_len(1).filter(|chain| wanted(&*chain[0])).for_each(|chain| {
            let Some((first, others)) = chain.split_first_mut() else { return };
            first.compute(&pictures);
            if !others.is_empty() {
                let halves = first.halves(1 + pictures.distorted());
                let pictures = Pictures { halves, ..pictures.clone() };
                others.iter_mut().for_each(|task| task.compute(&pictures));
            }
        });
        let mut sums = vec![FrameSums::default(); frames.len()];
        let tasks = chains.iter_mut().filter(|chain| wanted(&*chain[0])).flatten();
        for task in tasks {
            task.take(&mut sums).ok_or(BackendError::Unlike)?;
        }
        Ok(sums)
    }
}
