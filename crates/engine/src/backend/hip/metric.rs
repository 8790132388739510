// SPDX-License-Identifier: MPL-2.0

//! What a metric is to this backend: prepared for frames of one geometry, it puts its kernels for a group into a stream,
//! and reads its sums once they are there. It does for all pairs at once what depends on the reference only.

use std::sync::Arc;

use gpu::{Device, Error, Stream};

use super::frame::{HvFrame, HvPlanes};
use crate::backend::{BackendError, Halves};
use crate::frame::Geometry;
use crate::metrics::{self, FrameSums, Work};

/// What metrics are prepared for.
pub struct Setup<'a> {
    pub device: &'a Arc<Device>,
    /// That of all metrics.
    pub work: &'a Work,
    pub geometry: Geometry,
    /// The most distorted pictures of a group.
    pub renditions: usize,
    pub overlap: Overlap,
}

/// How far groups overlap on the GPU, which decides what is worth more: that one is done soon, or that it takes little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// Hardly: a group is to be done soon, even if that takes more of the GPU.
    Little,
    Some,
    /// So far that other groups fill all gaps.
    Much,
}

impl Overlap {
    /// That of so many groups in flight.
    pub fn of(in_flight: usize) -> Self {
        match in_flight {
            0..=2 => Self::Little,
            3..=7 => Self::Some,
            _ => Self::Much,
        }
    }
}

/// Pictures so large that their kernels have blocks enough even where work is divided coarsely: those above 1080p.
pub fn is_large(geometry: Geometry) -> bool {
    geometry.width * geometry.height > 1920 * 1088
}

impl Setup<'_> {
    /// Groups have more than one pair.
    pub fn several(&self) -> bool {
        self.renditions > 1
    }

    /// The one of the two that goes with the size of a sample.
    pub fn by_sample<T>(&self, byte: T, word: T) -> T {
        if self.geometry.sample_size() == 1 { byte } else { word }
    }
}

/// Where a metric finds its data, as addresses in device memory.
#[derive(Clone, Copy)]
pub struct Addresses {
    /// The [`HvFrame`] of the pair.
    pub frame: u64,
    /// Room for what is handed from kernel to kernel; zeroed once, before the first frame.
    pub scratch: u64,
    /// The sums, zeroed before each frame.
    pub sums: u64,
}

/// Pictures at half their size: the reference, and the distorted ones in a row.
#[derive(Clone, Copy)]
pub struct HalfPictures {
    pub planes: HvPlanes,
    pub width: usize,
    pub height: usize,
    /// Bytes from one distorted picture to the next.
    pub size: usize,
}

/// The pairs of a reference picture and one or more distorted ones.
#[derive(Clone, Copy)]
pub struct Pairs {
    pub first: Addresses,
    /// How many pairs there are, at least 1. Their [`HvFrame`]s lie in a row.
    pub count: usize,
    /// Bytes from the sums of a pair to those of the next.
    pub pitch: u64,
    /// The pictures at half their size, for metrics that need them.
    pub halves: Option<HalfPictures>,
}

impl Pairs {
    /// Addresses of pair `i`, from 0.
    pub fn pair(&self, i: usize) -> Addresses {
        let Addresses { frame, scratch, sums } = self.first;
        let i = i as u64;
        Addresses { frame: frame + i * size_of::<HvFrame>() as u64, scratch, sums: sums + i * self.pitch }
    }
}

/// The work of a metric.
pub type WorkOf<M> = <<M as Metric>::Of as metrics::Metric>::Work;
/// The sums of a metric.
pub type SumsOf<M> = <<M as Metric>::Of as metrics::Metric>::Sums;

/// A metric, prepared. It is registered in [`METRICS`](super::METRICS).
pub trait Metric: Sized + Send + Sync + 'static {
    /// Which metric it is.
    type Of: metrics::Metric;
    /// Later pairs need its sums of pairs that are not scored, too.
    const HISTORY: bool = false;
    const HALVES: Halves = Halves::Ignored;
    /// Reading the sums takes so long that it is not left to whoever collects them ([`host`](super::host)).
    const LONG_READ: bool = false;
    /// Its kernels fill the GPU, by and large: beside others of the same group they only take turns.
    const WIDE: bool = false;

    /// The files in `kernels/` that it takes kernels of, without their extension.
    fn modules(work: &WorkOf<Self>, setup: &Setup<'_>) -> Vec<&'static str>;

    fn prepare(work: &WorkOf<Self>, setup: &Setup<'_>) -> Result<Self, BackendError>;

    /// Bytes of scratch, for all pairs of a group together.
    fn scratch(&self) -> usize {
        0
    }

    /// How many sums a pair has.
    fn sums(&self) -> usize;

    /// Puts the first of the work for the pairs of a group into a stream: what spreads over the GPU where the rest does not, so
    /// that other metrics had better wait for it if this one is to be done soon.
    fn launch_first(&self, _stream: &Stream, _pairs: Pairs) -> Result<(), Error> {
        Ok(())
    }

    /// Puts the work for those sums behind it that [`read_ahead`](Self::read_ahead) makes something of.
    fn launch_ahead(&self, _stream: &Stream, _pairs: Pairs) -> Result<(), Error> {
        Ok(())
    }

    /// Puts the rest of the work behind that, which is all of it for most metrics.
    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error>;

    /// Where the metric leaves the pictures at half their size, if it makes them.
    fn halves(&self, _pairs: Pairs) -> Option<HalfPictures> {
        None
    }

    /// Finds what takes long of sums of which not all are there yet, and keeps it for the next [`read`](Self::read), which
    /// uses it only if it is of the sums that are there then.
    fn read_ahead(&self, _sums: &[&[u64]]) {}

    /// Reads the sums of each pair of a group that had `run` groups before it in its run.
    fn read(&self, sums: &[&[u64]], run: usize) -> Vec<SumsOf<Self>>;
}

/// A metric for whoever does not know its type.
pub trait Task: Send + Sync {
    fn has_history(&self) -> bool;
    fn reads_long(&self) -> bool;
    fn is_wide(&self) -> bool;
    fn halves_are(&self) -> Halves;
    fn scratch(&self) -> usize;
    fn sums(&self) -> usize;
    fn launch_first(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error>;
    fn launch_ahead(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error>;
    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error>;
    fn halves(&self, pairs: Pairs) -> Option<HalfPictures>;
    fn read_ahead(&self, sums: &[&[u64]]);
    fn read(&self, sums: &[&[u64]], run: usize, out: &mut [FrameSums]);
}

impl<M: Metric> Task for M {
    fn has_history(&self) -> bool {
        M::HISTORY
    }

    fn reads_long(&self) -> bool {
        M::LONG_READ
    }

    fn is_wide(&self) -> bool {
        M::WIDE
    }

    fn halves_are(&self) -> Halves {
        M::HALVES
    }

    fn scratch(&self) -> usize {
        Metric::scratch(self)
    }

    fn sums(&self) -> usize {
        Metric::sums(self)
    }

    fn launch_first(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        Metric::launch_first(self, stream, pairs)
    }

    fn launch_ahead(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        Metric::launch_ahead(self, stream, pairs)
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        Metric::launch(self, stream, pairs)
    }

    fn halves(&self, pairs: Pairs) -> Option<HalfPictures> {
        Metric::halves(self, pairs)
    }

    fn read_ahead(&self, sums: &[&[u64]]) {
        Metric::read_ahead(self, sums);
    }

    fn read(&self, sums: &[&[u64]], run: usize, out: &mut [FrameSums]) {
        out.iter_mut().zip(Metric::read(self, sums, run)).for_each(|(out, sums)| out.put::<M::Of>(sums));
    }
}

/// Prepares a metric if the work asks for it.
type Prepare = fn(&Setup<'_>) -> Result<Option<Box<dyn Task>>, BackendError>;

/// A metric in the list of this backend.
#[derive(Clone, Copy)]
pub struct Registration {
    pub name: &'static str,
    pub modules: fn(&Setup<'_>) -> Vec<&'static str>,
    pub prepare: Prepare,
}

impl Registration {
    pub const fn of<M: Metric>() -> Self {
        let prepare: Prepare = |setup| {
            let metric = setup.work.get::<M::Of>().map(|work| M::prepare(work, setup)).transpose()?;
            Ok(metric.map(|metric| Box::new(metric) as Box<dyn Task>))
        };
        Self {
            name: <M::Of as metrics::Metric>::NAME,
            modules: |setup| setup.work.get::<M::Of>().map_or(vec![], |work| M::modules(work, setup)),
            prepare,
        }
    }
}

/// Metrics that need what another one makes come after it; otherwise, each is on its own. Where groups overlap much, those that
/// fill the GPU are one chain: next to each other they only compete for registers, shared memory and cache.
pub type Chains = Vec<Vec<Box<dyn Task>>>;

/// Prepares what the work asks for.
pub fn prepare(setup: &Setup<'_>) -> Result<Chains, BackendError> {
    let mut chains: Chains = vec![];
    for registration in &super::METRICS {
        let Some(task) = (registration.prepare)(setup)? else { continue };
        let needed = task.halves_are() == Halves::Needed;
        let joins = |before: &dyn Task| {
            if needed {
                before.halves_are() == Halves::Made
            } else {
                setup.overlap == Overlap::Much && task.is_wide() && before.is_wide()
            }
        };
        match chains.iter_mut().find(|chain| chain.iter().any(|task| joins(&**task))) {
            Some(chain) => chain.push(task),
            None if needed => return Err(BackendError::Incomplete { metric: registration.name }),
            None => chains.push(vec![task]),
        }
    }
    Ok(chains)
}
