// SPDX-License-Identifier: MPL-2.0

//! The interface of metrics in this backend. A metric is prepared with working memory for one group and computes the
//! sums of one group after another. Work that depends on the reference alone is done once for all distorted pictures.

use super::simd::Level;
use crate::backend::BackendError;
use crate::backend::cpu::plane::{AnyPlane, PlaneGroup, PlanePair};
use crate::frame::{BitDepth, Geometry};
use crate::metrics::{self, FrameSums, Work};

/// The parameters that metrics are prepared for.
pub struct Setup {
    pub geometry: Geometry,
    /// Largest number of distorted pictures in a group.
    pub renditions: usize,
    /// Largest number of bands of a picture, at least 1.
    pub bands: usize,
}

/// The pictures of a group as planes of one geometry.
#[derive(Clone)]
pub struct Pictures<'a> {
    pub level: Level,
    pub depth: BitDepth,
    /// Number of bands, which may run in parallel: from 1 to that of the [`Setup`].
    pub bands: usize,
    pub luma: PlaneGroup<'a>,
    /// Cb and Cr, if a metric reads them and all pictures have them.
    pub chroma: Option<[PlaneGroup<'a>; 2]>,
    /// The reference's luma paired with that of one and two pictures ago, as far as the run reaches back.
    pub earlier: Vec<PlanePair<'a>>,
    /// The rendition of each distorted picture; empty if the reference is compared with itself.
    pub renditions: &'a [usize],
    /// Number of groups before this one in its run.
    pub run: usize,
}

impl<'a> Pictures<'a> {
    /// Returns the pictures with chroma planes of the size of this geometry, which may be smaller; `None` if they have it.
    fn within(&self, geometry: Geometry) -> Option<Self> {
        let (size, [cb, cr]) = (geometry.chroma?, self.chroma.as_ref()?);
        let chroma = [cb.within(size), cr.within(size)];
        (cb.size() != size).then(|| Self { chroma: Some(chroma), ..self.clone() })
    }

    /// Returns the number of distorted pictures.
    pub fn distorted(&self) -> usize {
        match &self.luma {
            PlaneGroup::U8(_, distorted) => distorted.len(),
            PlaneGroup::U16(_, distorted) => distorted.len(),
        }
    }
}

/// The work of a metric.
pub type WorkOf<M> = <<M as Metric>::Of as metrics::Metric>::Work;
/// The sums of a metric.
pub type SumsOf<M> = <<M as Metric>::Of as metrics::Metric>::Sums;

/// A prepared metric. It is registered in [`METRICS`](super::METRICS).
pub trait Metric: Sized + Send + 'static {
    /// The metric that it computes.
    type Of: metrics::Metric;
    /// True if later pairs need its sums of pairs that are not scored.
    const HISTORY: bool = false;

    fn prepare(work: &WorkOf<Self>, setup: &Setup) -> Result<Self, BackendError>;

    /// Takes the pictures of a group into the metric's history. It comes before [`Metric::compute`], and for groups that
    /// only serve as history too.
    fn remember(&mut self, _pictures: &Pictures<'_>) {}

    /// Computes the sums of each distorted picture on the threads of the current pool; `None` if the pictures differ
    /// from the prepared ones.
    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<SumsOf<Self>>>;
}

/// A metric with the sums of the last group, without its type.
pub trait DynMetric: Send {
    fn has_history(&self) -> bool;
    fn remember(&mut self, pictures: &Pictures<'_>);
    fn compute(&mut self, pictures: &Pictures<'_>);
    /// Moves the sums of the last group to `out`; `None` if there are none.
    fn take(&mut self, out: &mut [FrameSums]) -> Option<()>;
}

struct WithSums<M: Metric> {
    metric: M,
    /// The part of pictures that it reads.
    part: Geometry,
    sums: Option<Vec<SumsOf<M>>>,
}

impl<M: Metric> DynMetric for WithSums<M> {
    fn has_history(&self) -> bool {
        M::HISTORY
    }

    fn remember(&mut self, pictures: &Pictures<'_>) {
        self.metric.remember(pictures.within(self.part).as_ref().unwrap_or(pictures));
    }

    fn compute(&mut self, pictures: &Pictures<'_>) {
        self.sums = self.metric.compute(pictures.within(self.part).as_ref().unwrap_or(pictures));
    }

    fn take(&mut self, out: &mut [FrameSums]) -> Option<()> {
        let sums = self.sums.take().filter(|sums| sums.len() == out.len())?;
        out.iter_mut().zip(sums).for_each(|(out, sums)| out.put::<M::Of>(sums));
        Some(())
    }
}

/// Prepares a metric if the work asks for it.
type Prepare = fn(&Work, &Setup) -> Result<Option<Box<dyn DynMetric>>, BackendError>;

/// An entry of this backend's list of metrics.
#[derive(Clone, Copy)]
pub struct Registration {
    pub prepare: Prepare,
}

impl Registration {
    pub const fn of<M: Metric>() -> Self {
        let prepare: Prepare = |work, setup| {
            let part = <M::Of as metrics::Metric>::part(setup.geometry);
            let setup = Setup { geometry: part, ..*setup };
            let prepared = work.get::<M::Of>().map(|work| M::prepare(work, &setup)).transpose()?;
            let metric = |metric| Box::new(WithSums::<M> { metric, part, sums: None }) as Box<dyn DynMetric>;
            Ok(prepared.map(metric))
        };
        Self { prepare }
    }
}

/// Evaluates an expression for the planes of a `PlanePair` or `PlaneGroup` of either sample type.
macro_rules! typed {
    ($kind:ident: $planes:expr, |$a:pat_param, $b:pat_param| $body:expr) => {
        match $planes {
            $crate::backend::cpu::plane::$kind::U8($a, $b) => $body,
            $crate::backend::cpu::plane::$kind::U16($a, $b) => $body,
        }
    };
}
pub(super) use typed;

/// Combines a plane of the reference with those of the distorted pictures.
pub fn group<'a>(
    reference: AnyPlane<'a>,
    distorted: impl IntoIterator<Item = AnyPlane<'a>>,
) -> Result<PlaneGroup<'a>, BackendError> {
    PlaneGroup::new(reference, distorted).ok_or(BackendError::Unlike)
}
