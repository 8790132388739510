// SPDX-License-Identifier: MPL-2.0

//! What a metric is to this backend: prepared with working memory for one group, it computes the sums of group after
//! group. It does for all distorted pictures at once what depends on the reference only.

use super::simd::Level;
use crate::backend::cpu::plane::{AnyPlane, Plane, PlaneGroup, PlanePair};
use crate::backend::{BackendError, Halves};
use crate::frame::{BitDepth, Geometry};
use crate::metrics::{self, FrameSums, Work};

/// What metrics are prepared for.
pub struct Setup {
    pub geometry: Geometry,
    /// The most distorted pictures of a group.
    pub renditions: usize,
    /// Into how many bands a picture is divided at most, at least 1.
    pub bands: usize,
}

/// The pictures of a group as planes of one geometry.
#[derive(Clone)]
pub struct Pictures<'a> {
    pub level: Level,
    pub depth: BitDepth,
    /// Into how many bands, which may run at the same time, a picture is to be divided: 1 to those of the [`Setup`].
    pub bands: usize,
    pub luma: PlaneGroup<'a>,
    /// Cb and Cr, if some metric looks at them and all pictures have them.
    pub chroma: Option<[PlaneGroup<'a>; 2]>,
    /// The reference's luma beside that of one and two pictures ago, as far as the run reaches back.
    pub earlier: Vec<PlanePair<'a>>,
    /// The pictures at half their size, the reference first; empty for metrics that do not need them.
    pub halves: Vec<Plane<'a, u16>>,
}

impl Pictures<'_> {
    /// How many distorted pictures there are.
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

/// A metric, prepared. It is registered in [`METRICS`](super::METRICS).
pub trait Metric: Sized + Send + 'static {
    /// Which metric it is.
    type Of: metrics::Metric;
    /// Later pairs need its sums of pairs that are not scored, too.
    const HISTORY: bool = false;
    const HALVES: Halves = Halves::Ignored;

    fn prepare(work: &WorkOf<Self>, setup: &Setup) -> Result<Self, BackendError>;

    /// The sums of each distorted picture, on the threads of the current pool; `None` where pictures are not as they
    /// were prepared for.
    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<SumsOf<Self>>>;

    /// The first pictures of the last group at half their size, if it makes them.
    fn halves(&self, _pictures: usize) -> Vec<Plane<'_, u16>> {
        vec![]
    }
}

/// A metric with the sums of the last group, for whoever does not know its type.
pub trait Task: Send {
    fn has_history(&self) -> bool;
    fn halves_are(&self) -> Halves;
    fn compute(&mut self, pictures: &Pictures<'_>);
    fn halves(&self, pictures: usize) -> Vec<Plane<'_, u16>>;
    /// Puts the sums of the last group where they belong; `None` where there are none.
    fn take(&mut self, out: &mut [FrameSums]) -> Option<()>;
}

struct Prepared<M: Metric> {
    metric: M,
    sums: Option<Vec<SumsOf<M>>>,
}

impl<M: Metric> Task for Prepared<M> {
    fn has_history(&self) -> bool {
        M::HISTORY
    }

    fn halves_are(&self) -> Halves {
        M::HALVES
    }

    fn compute(&mut self, pictures: &Pictures<'_>) {
        self.sums = self.metric.compute(pictures);
    }

    fn halves(&self, pictures: usize) -> Vec<Plane<'_, u16>> {
        self.metric.halves(pictures)
    }

    fn take(&mut self, out: &mut [FrameSums]) -> Option<()> {
        let sums = self.sums.take().filter(|sums| sums.len() == out.len())?;
        out.iter_mut().zip(sums).for_each(|(out, sums)| out.put::<M::Of>(sums));
        Some(())
    }
}

/// Prepares a metric if the work asks for it.
type Prepare = fn(&Work, &Setup) -> Result<Option<Box<dyn Task>>, BackendError>;

/// A metric in the list of this backend.
#[derive(Clone, Copy)]
pub struct Registration {
    pub name: &'static str,
    pub prepare: Prepare,
}

impl Registration {
    pub const fn of<M: Metric>() -> Self {
        let prepare: Prepare = |work, setup| {
            let prepared = work.get::<M::Of>().map(|work| M::prepare(work, setup)).transpose()?;
            let task = |metric| Box::new(Prepared::<M> { metric, sums: None }) as Box<dyn Task>;
            Ok(prepared.map(task))
        };
        Self { name: <M::Of as metrics::Metric>::NAME, prepare }
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

/// A plane of the reference beside those of the distorted pictures.
pub fn group<'a>(
    reference: AnyPlane<'a>,
    distorted: impl IntoIterator<Item = AnyPlane<'a>>,
) -> Result<PlaneGroup<'a>, BackendError> {
    PlaneGroup::new(reference, distorted).ok_or(BackendError::Unlike)
}
