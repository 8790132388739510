// SPDX-License-Identifier: MPL-2.0

//! The CPU backend: several groups are in flight on the threads of a pool.
//!
//! A group whose pictures are all leased is queued and computed as soon as an in-flight slot is free; its parts run on
//! all idle threads. A group with borrowed pictures is computed during its submission.
//!
//! If each thread can have its own group, pictures are not divided into bands: at the border of two bands filters do
//! some work twice, which costs 1 to 2 % of v1's time with two bands.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::import::is_readable;
use super::luma::{Luma, Spare};
use super::metric::Setup;
use super::simd::Level;
use super::slot::{BorrowedGroup, Slot, SlotConfig};
use crate::backend::warm_up::WarmUp;
use crate::backend::{Backend, BackendError, Completion, Group, SumsResult, Ticket, check_size, guarded};
use crate::frame::{Geometry, Leased, Picture};
use crate::metrics::{FrameSums, Work};
use crate::scale::Scaling;

/// Most in-flight slots. More would only need more memory.
const MAX_SLOTS: usize = 5;

/// A group that waits for a slot.
struct QueuedGroup {
    ticket: Ticket,
    luma: Arc<Luma>,
    /// The distorted pictures, each with the number of its rendition.
    distorted: Vec<(usize, Leased)>,
    earlier: Vec<Arc<Luma>>,
    /// Number of groups before this one in its run.
    run: usize,
    history_only: bool,
}

impl QueuedGroup {
    fn compute(&self, plan: &SlotConfig, bands: usize, slot: &mut Slot) -> SumsResult {
        let reference = self.luma.picture().ok_or(BackendError::Picture("cpu"))?;
        let distorted = self.distorted.iter().map(|(rendition, leased)| (*rendition, leased.picture()));
        let (distorted, earlier) = (distorted.collect(), &self.earlier[..]);
        let luma = Some(&*self.luma);
        let Self { run, history_only, .. } = *self;
        slot.compute(plan, &BorrowedGroup { reference, luma, distorted, earlier, bands, run, history_only })
    }
}

/// State that changes while groups are computed.
struct QueueState {
    /// Waiting groups in the order of submission.
    waiting: VecDeque<QueuedGroup>,
    /// Slots without a group.
    idle: Vec<Slot>,
    /// The outcome of each group that was not fetched; `None` while it is computed.
    outcomes: HashMap<Ticket, Option<SumsResult>>,
}

/// State that the threads share.
struct GroupQueue {
    plan: SlotConfig,
    spare: Arc<Spare>,
    slots: usize,
    threads: usize,
    state: Mutex<QueueState>,
    /// Notified when a group is finished.
    finished: Condvar,
}

impl GroupQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, QueueState>) -> MutexGuard<'a, QueueState> {
        self.finished.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of bands for the pictures of a group that has just got a slot.
    fn bands(&self, state: &QueueState) -> usize {
        bands(self.threads, self.slots, self.slots - state.idle.len() + state.waiting.len())
    }

    /// Takes back the slot of a computed group and stores the outcome. Returns true if another group waits.
    fn finish(&self, ticket: Ticket, slot: Slot, outcome: SumsResult) -> bool {
        let mut state = self.state();
        state.idle.push(slot);
        state.outcomes.insert(ticket, Some(outcome));
        self.finished.notify_all();
        !state.waiting.is_empty()
    }
}

/// Returns the number of bands per picture for this number of threads and unfinished groups.
///
/// If there are fewer groups than threads, every picture gets as many bands as there are threads: with two bands, eight
/// threads score 10 to 14 % less than with eight, because the last parts are longer.
fn bands(threads: usize, slots: usize, groups: usize) -> usize {
    if groups.min(slots) >= threads { 1 } else { threads }
}

/// Computes the next waiting group if a slot is free. Otherwise the thread that finishes next computes it.
fn compute_next(shared: Arc<GroupQueue>) {
    let mut state = shared.state();
    let QueueState { waiting, idle, .. } = &mut *state;
    let Some(mut slot) = (!waiting.is_empty()).then(|| idle.pop()).flatten() else { return };
    let Some(queued) = waiting.pop_front() else { return idle.push(slot) };
    let bands = shared.bands(&state);
    drop(state);
    // A panic may leave a slot half written. That is harmless, as each group overwrites all of it.
    let outcome = guarded(|| queued.compute(&shared.plan, bands, &mut slot)).flatten();
    let ticket = queued.ticket;
    // Pictures are released before the sums can be fetched.
    drop(queued);
    if shared.finish(ticket, slot, outcome) {
        rayon::spawn(move || compute_next(shared));
    }
}

/// State for frames of one geometry.
struct Prepared {
    shared: Arc<GroupQueue>,
    /// Luma of the latest reference pictures of the run, the most recent one first, as many as a metric looks back.
    history: VecDeque<Arc<Luma>>,
    /// Groups submitted in the present run.
    run: usize,
}

impl Drop for Prepared {
    /// Waits for the groups that have a slot; drops the others.
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.waiting.clear();
        while state.idle.len() < self.shared.slots {
            state = self.shared.wait(state);
        }
        state.outcomes.clear();
        self.shared.finished.notify_all();
    }
}

/// The CPU backend.
pub struct Cpu {
    level: Level,
    /// Dropped before the threads.
    prepared: Option<Prepared>,
    pool: Arc<ThreadPool>,
    next: u64,
    /// A group of noise is computed before the first group.
    warms_up: bool,
}

impl Cpu {
    /// Creates a backend with `threads` threads; 0 for one per CPU.
    pub fn new(threads: usize) -> Result<Self, BackendError> {
        let pool = ThreadPoolBuilder::new().thread_name(|i| format!("hipvmaf-{i}"));
        Ok(Self::on(Arc::new(build(pool, threads)?)))
    }

    /// Creates a backend on the threads of a pool, which may have other work as well.
    pub fn on(pool: Arc<ThreadPool>) -> Self {
        Self { level: Level::detect(), prepared: None, pool, next: 0, warms_up: true }
    }

    /// Leaves out the warm-up, which takes as long as a pair: for callers of which many have only one pair.
    pub fn cold(self) -> Self {
        Self { warms_up: false, ..self }
    }

    /// Returns the number of in-flight slots. One thread computes one group at a time. Several threads need one group
    /// more than there are threads, as the last parts of a group leave some of them idle. `ordered`: each group needs
    /// the one before.
    fn slots(&self, ordered: bool) -> usize {
        match self.pool.current_num_threads() {
            _ if ordered => 1,
            1 => 1,
            threads => (threads + 1).min(MAX_SLOTS),
        }
    }
}

/// Creates a thread with the lowest priority, for work that is not urgent.
pub fn low_priority_thread(name: &'static str) -> Result<ThreadPool, BackendError> {
    let pool = ThreadPoolBuilder::new().thread_name(|_| name.into());
    build(pool.start_handler(|_| lower_priority()), 1)
}

fn build(pool: ThreadPoolBuilder, threads: usize) -> Result<ThreadPool, BackendError> {
    let refused = |err: ThreadPoolBuildError| BackendError::Threads { threads, reason: err.to_string() };
    pool.num_threads(threads).build().map_err(refused)
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU, {} instructions, {} threads", self.level.name(), self.pool.current_num_threads())
    }
}

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn made_by(&self) -> Vec<(&'static str, String)> {
        vec![("backend", self.name().into()), ("instructions", self.level.name().into())]
    }

    /// Allows one group to wait while all slots are busy.
    fn depth(&self) -> usize {
        self.slots(false) + 1
    }

    fn prepare(
        &mut self,
        work: &Work,
        geometry: Geometry,
        renditions: &[Option<Scaling>],
    ) -> Result<(), BackendError> {
        self.prepared = None;
        work.check(geometry)?;
        // All threads work on a group that is alone.
        let threads = self.pool.current_num_threads();
        let setup = Setup { geometry, renditions: renditions.len(), bands: threads };
        let plan = SlotConfig::new(self.level, work, geometry, renditions);
        let slots = self.slots(work.history() > 0);
        let idle = (0..slots).map(|_| Slot::new(work, &setup));
        let mut idle = idle.collect::<Result<Vec<_>, _>>()?;
        if let Some(first) = idle.last_mut().filter(|_| self.warms_up && !renditions.is_empty()) {
            let warm_up = WarmUp::new(geometry, renditions);
            let group = warm_up.group();
            let distorted = group.distorted.iter().map(|(rendition, picture)| (*rendition, picture));
            let group = BorrowedGroup {
                reference: &group.reference,
                luma: None,
                distorted: distorted.collect(),
                earlier: &[],
                bands: threads,
                run: 0,
                history_only: false,
            };
            // The other slots are cold only in their own memory, which costs less than half a group's time.
            self.pool.install(|| guarded(|| first.compute(&plan, &group)).flatten())?;
        }
        let state = QueueState { waiting: VecDeque::new(), idle, outcomes: HashMap::new() };
        let shared = GroupQueue {
            plan,
            spare: Arc::default(),
            slots,
            threads,
            state: Mutex::new(state),
            finished: Condvar::new(),
        };
        self.prepared = Some(Prepared { shared: Arc::new(shared), history: VecDeque::new(), run: 0 });
        Ok(())
    }

    fn submit(&mut self, group: Group<'_>) -> Result<Ticket, BackendError> {
        let depth = self.depth();
        let Prepared { shared, history, run } = self.prepared.as_mut().ok_or(BackendError::NotPrepared)?;
        let plan = &shared.plan;
        let history_only = group.is_history_only();
        let Group { reference, distorted, .. } = group;
        if distorted.len() > plan.scalers.len() || shared.state().outcomes.len() >= depth {
            return Err(BackendError::Full);
        }
        check(&reference, plan.geometry, plan.chroma)?;
        for (rendition, picture) in &distorted {
            check(picture, plan.source(*rendition)?, plan.chroma)?;
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        let run = std::mem::replace(run, *run + 1);
        let earlier: Vec<_> = history.iter().cloned().collect();
        let leased = |(rendition, picture): &(usize, _)| Some((*rendition, Leased::new(picture)?));
        let leased = Leased::new(&reference).zip(distorted.iter().map(leased).collect::<Option<Vec<_>>>());
        let depth = plan.geometry.depth;
        let luma = if let Some((leased, distorted)) = leased {
            let luma = Arc::new(Luma::leased(leased, depth, &shared.spare));
            let queued = QueuedGroup { ticket, luma: luma.clone(), distorted, earlier, run, history_only };
            let mut state = shared.state();
            state.outcomes.insert(ticket, None);
            state.waiting.push_back(queued);
            drop(state);
            let shared = shared.clone();
            self.pool.spawn(move || compute_next(shared));
            Some(luma)
        } else {
            // Later groups need it for motion, after the picture was released.
            let luma = (plan.lags > 0).then(|| Arc::new(Luma::copied(&reference.luma, depth, &shared.spare)));
            let mut state = shared.state();
            let mut slot = loop {
                // In the order of submission, which a slot with history needs.
                match state.waiting.is_empty().then(|| state.idle.pop()).flatten() {
                    Some(slot) => break slot,
                    None => state = shared.wait(state),
                }
            };
            let bands = shared.bands(&state);
            drop(state);
            let outcome = guarded(|| {
                let group = BorrowedGroup {
                    reference: &reference,
                    luma: luma.as_deref(),
                    distorted: distorted.iter().map(|(rendition, picture)| (*rendition, picture)).collect(),
                    earlier: &earlier,
                    bands,
                    run,
                    history_only,
                };
                self.pool.install(|| slot.compute(plan, &group))
            })
            .flatten();
            if shared.finish(ticket, slot, outcome) {
                let shared = shared.clone();
                self.pool.spawn(move || compute_next(shared));
            }
            luma
        };
        history.extend(luma);
        history.rotate_right(1.min(history.len()));
        history.truncate(plan.lags);
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<FrameSums>>, BackendError> {
        let Prepared { shared, .. } = self.prepared.as_ref().ok_or(BackendError::NotPrepared)?;
        let mut state = shared.state();
        match state.outcomes.remove(&ticket).ok_or(BackendError::UnknownTicket)? {
            Some(outcome) => outcome.map(Some),
            None => {
                state.outcomes.insert(ticket, None);
                Ok(None)
            }
        }
    }

    fn completion(&self, ticket: Ticket) -> Option<Completion> {
        let shared = self.prepared.as_ref()?.shared.clone();
        Some(Box::new(move || {
            let mut state = shared.state();
            while let Some(None) = state.outcomes.get(&ticket) {
                state = shared.wait(state);
            }
        }))
    }

    fn reset(&mut self) {
        if let Some(prepared) = &mut self.prepared {
            prepared.history.clear();
            prepared.run = 0;
        }
    }
}

/// Gives the calling thread the lowest priority. If the system refuses, the priority stays.
fn lower_priority() {
    const LOWEST: libc::c_int = 19;
    // SAFETY: only takes numbers. On Linux, 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST) };
}

/// Rejects a picture that has another size or cannot be read.
fn check(picture: &Picture<'_>, geometry: Geometry, chroma: bool) -> Result<(), BackendError> {
    check_size(picture, geometry)?;
    let components = picture.chroma.iter().flatten().filter(|_| chroma).chain([&picture.luma]);
    let readable = components.into_iter().all(|component| is_readable(component, geometry.depth));
    readable.then_some(()).ok_or(BackendError::Picture("cpu"))
}

#[cfg(test)]
mod tests {
    use super::bands;

    #[test]
    fn pictures_are_whole_where_each_thread_has_one() {
        for (threads, slots, groups, expected) in
            [(1, 1, 1, 1), (2, 3, 1, 2), (2, 3, 2, 1), (2, 3, 4, 1), (4, 5, 3, 4), (4, 5, 4, 1), (8, 5, 9, 8)]
        {
            assert_eq!(bands(threads, slots, groups), expected, "{threads} {slots} {groups}");
        }
    }
}
