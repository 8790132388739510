// SPDX-License-Identifier: MPL-2.0

//! The audit: the CPU recomputes a random share of the groups that a GPU has computed.
//!
//! Backends agree to the last bit, so a GPU that begins to compute wrong sums is found by recomputing a small share of its
//! groups. A hash of the group's number and a seed chooses them: they are spread at random, and the same seed chooses the same
//! groups again. All sessions of the process share the pool that computes them. Groups that it has no time for are skipped
//! unless the session is patient.
//!
//! The [`Session`](crate::session::Session), or another user of a backend, offers groups and compares the sums.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Instant;

use gpu::{Device, Stream};

use crate::backend::{BackendError, Group, SumsResult};
use crate::frame::{Geometry, Picture};
use crate::metrics::{FrameSums, Work};
use crate::random::unit_hash;
use crate::scale::Scaling;

mod pool;

use pool::{AuditPool, Earlier, GroupKind, Pictures, Task};

/// Settings of the audit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verify {
    /// Share of the groups, from 0 to 1.
    pub share: f64,
    /// Chooses the groups.
    pub seed: u64,
    /// Verifies every chosen group, even if the session has to wait. Otherwise groups are skipped while the CPU is busy.
    pub patient: bool,
    /// CPU threads, at least 1, each with its own group. Sessions with equal numbers share them.
    pub threads: usize,
}

impl Verify {
    /// Verifies a share of the groups, which a new seed chooses. `threads`: 0 for as many as keep up with a GPU at a share
    /// of a few hundredths, and leave CPUs for others.
    pub fn at_random(share: f64, threads: usize) -> Self {
        let seed = RandomState::new().hash_one(Instant::now());
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, |cpus| cpus.get().div_ceil(2)).min(8),
            wanted => wanted,
        };
        Self { share, seed, patient: false, threads }
    }
}

/// Chooses groups and has them recomputed.
pub struct Audit {
    verify: Verify,
    /// The kind of the present groups.
    kind: Option<Arc<GroupKind>>,
    /// Stream that copies pictures from the GPU.
    downloads: Option<Arc<Stream>>,
    /// Number of groups so far.
    offered: u64,
    /// Number of the first group of the present kind.
    first: u64,
    /// The run's latest groups, the most recent one first, as many as a metric looks back. Only those are copied that a
    /// chosen group needs.
    earlier: VecDeque<Option<Earlier>>,
    /// `None` until the first task.
    pool: Option<Arc<AuditPool>>,
    /// Tasks hold weak references; replacing it gives up their results.
    wanted: Arc<()>,
    /// Numbers of the tasks without a result, in the order in which results arrive.
    waiting: VecDeque<(u64, Receiver<SumsResult>)>,
    results: HashMap<u64, SumsResult>,
    skipped: u64,
}

impl Audit {
    /// Creates an audit, which has no groups before [`Audit::prepare`].
    pub fn new(verify: Verify) -> Self {
        Self {
            verify,
            kind: None,
            downloads: None,
            offered: 0,
            first: 0,
            earlier: VecDeque::new(),
            pool: None,
            wanted: Arc::new(()),
            waiting: VecDeque::new(),
            results: HashMap::new(),
            skipped: 0,
        }
    }

    /// Sets the share of later groups that are recomputed.
    pub fn set_share(&mut self, share: f64) {
        self.verify.share = share;
    }

    /// Sets [`Verify::patient`] for later groups.
    pub fn set_patient(&mut self, patient: bool) {
        self.verify.patient = patient;
    }

    /// Prepares for groups of this kind. Outstanding results are discarded.
    pub fn prepare(
        &mut self,
        work: &Work,
        geometry: Geometry,
        renditions: &[Option<Scaling>],
        gpu: Option<&Arc<Device>>,
    ) {
        let (work, renditions) = (work.clone(), renditions.to_vec());
        self.kind = Some(Arc::new(GroupKind { work, geometry, renditions }));
        // Without a stream, groups with pictures on the GPU are skipped.
        self.downloads = gpu.and_then(|gpu| Stream::downloads(gpu).ok());
        self.first = self.offered;
        self.results.clear();
        self.reset();
    }

    /// Begins a new run with the next group.
    pub fn reset(&mut self) {
        self.earlier.clear();
    }

    /// Returns how many chosen groups were skipped since the last call.
    pub fn take_skipped(&mut self) -> u64 {
        std::mem::take(&mut self.skipped)
    }

    /// Counts one more chosen group that is not verified.
    pub fn skip(&mut self) {
        self.skipped += 1;
    }

    fn is_chosen(&self, number: u64) -> bool {
        unit_hash(self.verify.seed, number) < self.verify.share
    }

    /// Adds a group to the run that the backend has taken before the first one.
    pub fn precede(&mut self, group: &Group<'_>) {
        self.remember(self.offered, &group.reference, &group.distorted);
    }

    /// Copies the pictures of a group with this number if a later one that is chosen needs them.
    fn remember(&mut self, number: u64, reference: &Picture<'_>, distorted: &[(usize, Picture<'_>)]) {
        let Some(kind) = self.kind.clone() else { return };
        let history = kind.work.history();
        let most = kind.work.lags().max(history);
        let needed = (1..=most as u64).any(|later| self.is_chosen(number + later));
        let distorted = if history > 0 { distorted } else { &[] };
        let kept = needed.then(|| {
            let (size, downloads) = (kind.geometry.sample_size(), self.downloads.clone());
            self.pool()?.keep(Pictures::leased(reference, distorted)?, size, downloads)
        });
        self.earlier.push_front(kept.flatten());
        self.earlier.truncate(most);
    }

    fn pool(&mut self) -> Option<&Arc<AuditPool>> {
        if self.pool.is_none() {
            self.pool = AuditPool::of(self.verify.threads).ok();
        }
        self.pool.as_ref()
    }

    /// Counts the next group. Returns its number if it is being recomputed.
    pub fn offer(&mut self, group: &Group<'_>) -> Option<u64> {
        let number = self.offered;
        self.offered += 1;
        let submitted = self.is_chosen(number) && self.submit(number, group).is_some();
        if self.is_chosen(number) && !submitted {
            self.skipped += 1;
        }
        self.remember(number, &group.reference, &group.distorted);
        submitted.then_some(number)
    }

    /// Gives a group to the pool. Returns `None` if that is impossible or the pool is busy.
    fn submit(&mut self, number: u64, group: &Group<'_>) -> Option<()> {
        self.receive();
        self.pool()?;
        if self.verify.patient {
            while self.waiting.len() > self.verify.threads {
                self.await_result();
            }
        } else if self.pool.as_ref()?.is_busy() {
            return None;
        }
        let (result, sums) = mpsc::channel();
        let task = Task {
            kind: self.kind.clone()?,
            earlier: self.earlier.iter().cloned().collect::<Option<_>>()?,
            pictures: Pictures::leased(&group.reference, &group.distorted)?,
            history_only: group.history_only,
            wanted: Arc::downgrade(&self.wanted),
            result,
        };
        self.pool.as_ref()?.compute(task, self.downloads.clone())?;
        self.waiting.push_back((number, sums));
        Some(())
    }

    /// Takes all results that have arrived.
    fn receive(&mut self) {
        while let Some((_, sums)) = self.waiting.front() {
            match sums.try_recv() {
                Ok(sums) => self.take(sums),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.take(Err(BackendError::Panicked)),
            }
        }
    }

    fn await_result(&mut self) {
        if let Some((_, sums)) = self.waiting.front() {
            let sums = sums.recv().unwrap_or(Err(BackendError::Panicked));
            self.take(sums);
        }
    }

    /// Takes the result of the oldest task that waits for one.
    fn take(&mut self, sums: SumsResult) {
        // Results of an earlier kind are discarded.
        if let Some((number, _)) = self.waiting.pop_front().filter(|(number, _)| *number >= self.first) {
            self.results.insert(number, sums);
        }
    }

    /// Returns the CPU's sums of a group once they have arrived.
    pub fn result(&mut self, number: u64) -> Option<Result<Vec<FrameSums>, BackendError>> {
        self.receive();
        self.results.remove(&number)
    }

    /// Waits for the CPU's sums of a group; `None` if the group is not being recomputed.
    pub fn wait(&mut self, number: u64) -> Option<Result<Vec<FrameSums>, BackendError>> {
        while !self.results.contains_key(&number) && !self.waiting.is_empty() {
            self.await_result();
        }
        self.results.remove(&number)
    }

    /// Inserts sums as if the CPU had computed them.
    #[cfg(test)]
    pub fn insert(&mut self, number: u64, sums: Vec<FrameSums>) {
        self.results.insert(number, Ok(sums));
    }

    /// Waits for all results if the session is patient.
    pub fn settle(&mut self) {
        while self.verify.patient && !self.waiting.is_empty() {
            self.await_result();
        }
    }
}

impl Drop for Audit {
    /// Waits until no leased picture is in use.
    fn drop(&mut self) {
        self.wanted = Arc::new(());
        self.earlier.clear();
        if let Some(pool) = &self.pool {
            pool.settle();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audit(share: f64, seed: u64) -> Audit {
        Audit::new(Verify { share, seed, patient: true, threads: 1 })
    }

    #[test]
    fn a_share_of_the_groups_is_chosen() {
        let chosen = |share, seed| {
            let audit = audit(share, seed);
            (0..100_000).filter(move |number| audit.is_chosen(*number)).collect::<Vec<_>>()
        };
        assert!(chosen(0.0, 1).is_empty());
        assert_eq!(chosen(1.0, 1).len(), 100_000);
        for seed in 0..20 {
            let some = chosen(0.01, seed);
            // The binomial distribution's standard deviation is 31.
            assert!((840..=1160).contains(&some.len()), "{} of 100,000", some.len());
            assert_eq!(some, chosen(0.01, seed));
            assert_ne!(some, chosen(0.01, seed + 1));
        }
    }
}
