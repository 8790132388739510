// SPDX-License-Identifier: MPL-2.0

//! Sums that are read while the GPU is still at work on others.
//!
//! What [`SpEED`](super::speed) leaves takes the CPU long to read, and is there long before [`ADM`](super::adm) is done. Where
//! there is one group in flight at a time, its kernels are followed by one that copies these sums to the host and says so; and
//! whoever waits for the group, and is awake anyway, reads them meanwhile. What takes longest, the eigenvalues, needs the
//! covariances only, so the same is done once more when these are there.
//!
//! Nothing depends on that: once the group is done, what was read early counts only if it is what is there in the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpu::{Device, Error, Pinned};

use super::metric::Chains;
use super::slot::sums_room;

/// The sums of a metric that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Those that something can be found of [ahead](super::metric::Metric::read_ahead), if there are such.
    Ahead,
    All,
}

/// Where such sums are copied to, and numbers that say which are there: of one part after the other, in it of one metric after
/// the other, one for each pair.
pub struct Early {
    memory: Pinned,
    /// Numbers of all pairs' sums.
    room: usize,
    renditions: usize,
    /// How many metrics have such sums.
    metrics: usize,
}

const PARTS: usize = 2;

impl Early {
    /// For groups of up to `renditions` pairs; `None` if no metric has such sums.
    pub fn new(device: &Arc<Device>, chains: &Chains, renditions: usize) -> Result<Option<Self>, Error> {
        let metrics = chains.iter().flatten().filter(|task| task.reads_long()).count();
        if metrics == 0 {
            return Ok(None);
        }
        let room = renditions * sums_room(chains) / 8;
        let memory = Pinned::coherent(device.clone(), 8 * (room + PARTS * metrics * renditions))?;
        Ok(Some(Self { memory, room, renditions, metrics }))
    }

    /// Addresses for the sums of a metric, which lie so many bytes behind all others, and for what says that they are there.
    /// `metric`: how many had such sums before.
    pub fn addresses(&self, behind: u64, part: Part, metric: usize) -> (u64, u64) {
        let told = self.room + (part as usize * self.metrics + metric) * self.renditions;
        (self.memory.address() + behind, self.memory.address() + 8 * told as u64)
    }

    /// What says that they are there.
    fn told(&self) -> &[AtomicU64] {
        &self.memory.numbers()[self.room..][..PARTS * self.metrics * self.renditions]
    }

    /// None are there any more.
    pub fn forget(&self) {
        self.told().iter().for_each(|told| told.store(0, Ordering::Relaxed));
    }

    /// Whether this part of all metrics' sums of so many pairs is there.
    pub fn is_there(&self, part: Part, pairs: usize) -> bool {
        let metrics =
            self.told().chunks(self.renditions).skip(part as usize * self.metrics).take(self.metrics);
        let mut told = metrics.flat_map(|metric| &metric[..pairs]);
        told.all(|told| told.load(Ordering::Acquire) != 0)
    }

    /// What is there of so many pairs, in its place among the sums of all metrics.
    pub fn left(&self, pairs: usize) -> Vec<u64> {
        let numbers = &self.memory.numbers()[..self.room / self.renditions * pairs];
        numbers.iter().map(|number| number.load(Ordering::Relaxed)).collect()
    }
}
