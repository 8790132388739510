// SPDX-License-Identifier: MPL-2.0

//! The interface of metrics in this backend. A metric is prepared for frames of one geometry, puts its kernels for a
//! group into a stream, and reads its sums when they are there. Work that depends on the reference alone is done once
//! for all pairs.

use std::sync::Arc;

use gpu::{Device, Error, Stream};

use super::frame::{HvFrame, HvPlane};
use crate::backend::BackendError;
use crate::frame::Geometry;
use crate::metrics::{self, FrameSums, Work};

/// The parameters that metrics are prepared for.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    pub device: &'a Arc<Device>,
    /// The work of all metrics.
    pub work: &'a Work,
    pub geometry: Geometry,
    /// Largest number of distorted pictures in a group.
    pub renditions: usize,
    /// Groups in flight.
    pub slots: usize,
    pub overlap: Overlap,
}

/// How many groups overlap on the GPU. It decides whether latency or total work matters more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// Hardly any: a group should be done soon, even if that takes more of the GPU.
    Little,
    Some,
    /// So many that other groups fill all gaps.
    Much,
}

impl Overlap {
    /// Returns the overlap for this number of groups in flight.
    pub fn of(in_flight: usize) -> Self {
        match in_flight {
            0..=2 => Self::Little,
            3..=7 => Self::Some,
            _ => Self::Much,
        }
    }
}

/// Returns true for pictures above 1080p: their kernels have enough blocks even if the work is divided coarsely.
pub fn is_large(geometry: Geometry) -> bool {
    geometry.width * geometry.height > 1920 * 1088
}

impl Setup<'_> {
    /// Returns true if groups may have more than one pair.
    pub fn several(&self) -> bool {
        self.renditions > 1
    }

    /// Returns `byte` or `word`, by the size of a sample.
    pub fn by_sample<T>(&self, byte: T, word: T) -> T {
        if self.geometry.sample_size() == 1 { byte } else { word }
    }
}

/// The data of a metric, as addresses in device memory.
#[derive(Clone, Copy)]
pub struct Addresses {
    /// The [`HvFrame`] of the pair.
    pub frame: u64,
    /// Memory for data that is passed from kernel to kernel; zeroed once, before the first frame.
    pub scratch: u64,
    /// The sums, zeroed before each frame.
    pub sums: u64,
}

/// The pairs of a reference picture with one or more distorted ones.
#[derive(Clone, Copy)]
pub struct Pairs {
    pub first: Addresses,
    /// Number of pairs, at least 1. Their [`HvFrame`]s are consecutive.
    pub count: usize,
    /// Bytes from the sums of a pair to those of the next.
    pub pitch: u64,
}

impl Pairs {
    /// Returns the addresses of pair `i`, from 0.
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

/// A prepared metric. It is registered in [`METRICS`](super::METRICS).
pub trait Metric: Sized + Send + Sync + 'static {
    /// The metric that it computes.
    type Of: metrics::Metric;
    /// True if later pairs need its sums of pairs that are not scored.
    const HISTORY: bool = false;
    /// True if reading the sums takes too long for the thread that fetches them ([`completion`](super::completion)).
    const LONG_READ: bool = false;
    /// True if it takes pictures by [`Metric::remember`].
    const KEEPS: bool = false;
    /// True if its kernels nearly fill the GPU, so that beside other such kernels of the group they only take turns.
    const WIDE: bool = false;

    /// Returns the files in `kernels/` that contain its kernels, without their extension.
    fn modules(work: &WorkOf<Self>, setup: &Setup<'_>) -> Vec<&'static str>;

    fn prepare(work: &WorkOf<Self>, setup: &Setup<'_>) -> Result<Self, BackendError>;

    /// Returns the bytes of scratch for all pairs of a group together.
    fn scratch(&self) -> usize {
        0
    }

    /// Returns the number of sums of a pair.
    fn sums(&self) -> usize;

    /// Puts the conversion of the pictures of a group into a stream, for a history that later groups read: of the reference
    /// (stream 0) and of renditions, from stream 1 on. It comes before [`Metric::launch`], and for groups that only serve
    /// as history too. The work of later groups is done after it. `place`: the number of the group.
    fn remember(
        &self,
        _stream: &Stream,
        _place: usize,
        _pictures: &[(usize, [HvPlane; 3])],
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Puts the work for the pairs of a group into a stream.
    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error>;

    /// Reads the sums of each pair of a group that had `run` groups before it in its run.
    fn read(&self, sums: &[&[u64]], run: usize) -> Vec<SumsOf<Self>>;
}

/// A metric without its type.
pub trait DynMetric: Send + Sync {
    fn has_history(&self) -> bool;
    fn reads_long(&self) -> bool;
    fn keeps(&self) -> bool;
    fn is_wide(&self) -> bool;
    fn scratch(&self) -> usize;
    fn sums(&self) -> usize;
    fn remember(
        &self,
        stream: &Stream,
        place: usize,
        pictures: &[(usize, [HvPlane; 3])],
    ) -> Result<(), Error>;
    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error>;
    fn read(&self, sums: &[&[u64]], run: usize, out: &mut [FrameSums]);
}

impl<M: Metric> DynMetric for M {
    fn has_history(&self) -> bool {
        M::HISTORY
    }

    fn reads_long(&self) -> bool {
        M::LONG_READ
    }

    fn keeps(&self) -> bool {
        M::KEEPS
    }

    fn is_wide(&self) -> bool {
        M::WIDE
    }

    fn scratch(&self) -> usize {
        Metric::scratch(self)
    }

    fn sums(&self) -> usize {
        Metric::sums(self)
    }

    fn remember(
        &self,
        stream: &Stream,
        place: usize,
        pictures: &[(usize, [HvPlane; 3])],
    ) -> Result<(), Error> {
        Metric::remember(self, stream, place, pictures)
    }

    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error> {
        Metric::launch(self, stream, pairs)
    }

    fn read(&self, sums: &[&[u64]], run: usize, out: &mut [FrameSums]) {
        out.iter_mut().zip(Metric::read(self, sums, run)).for_each(|(out, sums)| out.put::<M::Of>(sums));
    }
}

/// Prepares a metric if the work asks for it.
type Prepare = fn(&Setup<'_>) -> Result<Option<Box<dyn DynMetric>>, BackendError>;

/// An entry of this backend's list of metrics.
#[derive(Clone, Copy)]
pub struct Registration {
    pub name: &'static str,
    pub modules: fn(&Setup<'_>) -> Vec<&'static str>,
    pub prepare: Prepare,
}

impl Registration {
    pub const fn of<M: Metric>() -> Self {
        let prepare: Prepare = |setup| {
            let setup = Setup { geometry: <M::Of as metrics::Metric>::part(setup.geometry), ..*setup };
            let metric = setup.work.get::<M::Of>().map(|work| M::prepare(work, &setup)).transpose()?;
            Ok(metric.map(|metric| Box::new(metric) as Box<dyn DynMetric>))
        };
        Self {
            name: <M::Of as metrics::Metric>::NAME,
            modules: |setup| setup.work.get::<M::Of>().map_or(vec![], |work| M::modules(work, setup)),
            prepare,
        }
    }
}

/// Chains of metrics that run one after the other. If groups overlap much, the metrics that fill the GPU are one chain:
/// side by side they would only compete for registers, shared memory and cache. All others are alone.
pub type Chains = Vec<Vec<Box<dyn DynMetric>>>;

/// Returns the bytes of the sums of one pair.
pub fn sums_room(chains: &Chains) -> usize {
    chains.iter().flatten().map(|metric| metric.sums() * 8).sum::<usize>().next_multiple_of(256)
}

/// Prepares the metrics of the work.
pub fn prepare(setup: &Setup<'_>) -> Result<Chains, BackendError> {
    let mut chains: Chains = vec![];
    for registration in &super::METRICS {
        let Some(metric) = (registration.prepare)(setup)? else { continue };
        let joins = setup.overlap == Overlap::Much && metric.is_wide();
        match chains.iter_mut().find(|chain| joins && chain.iter().any(|before| before.is_wide())) {
            Some(chain) => chain.push(metric),
            None => chains.push(vec![metric]),
        }
    }
    Ok(chains)
}
