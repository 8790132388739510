// SPDX-License-Identifier: MPL-2.0

//! The backend: groups on their way through the threads, several at a time.
//!
//! A group whose pictures stay where they are is queued, and computed as soon as there is an in-flight slot for it; its
//! parts run on whichever threads are idle. One whose pictures are only borrowed is computed while it is submitted.
//!
//! Where each thread can have a group of its own, pictures stay whole: filters work twice on the rows at the seams of bands,
//! which is 1 to 2 % of version 1 with two bands.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::import::is_readable;
use super::luma::{Luma, Spare};
use super::metric::Setup;
use super::simd::Level;
use super::slot::{self, Plan, Slot};
use crate::backend::warm_up::WarmUp;
use crate::backend::{Backend, BackendError, Completion, Group, Ticket, check_size, guarded};
use crate::frame::{Geometry, Leased, Picture};
use crate::metrics::{FrameSums, Work};
use crate::scale::Scaling;

/// Most in-flight slots: more would only take more memory.
const MAX_SLOTS: usize = 5;

/// The sums of a group, or why there are none.
type Outcome = Result<Vec<FrameSums>, BackendError>;

/// A group that waits for a slot.
struct Job {
    ticket: Ticket,
    luma: Arc<Luma>,
    /// The distorted pictures, each with the number of its rendition.
    distorted: Vec<(usize, Leased)>,
    earlier: Vec<Arc<Luma>>,
    history_only: bool,
}

impl Job {
    fn compute(&self, plan: &Plan, bands: usize, slot: &mut Slot) -> Outcome {
        let reference = self.luma.picture().ok_or(BackendError::Picture("cpu"))?;
        let distorted = self.distorted.iter().map(|(rendition, leased)| (*rendition, leased.picture()));
        let (distorted, earlier) = (distorted.collect(), &self.earlier[..]);
        let luma = Some(&*self.luma);
        let history_only = self.history_only;
        slot.compute(plan, &slot::Group { reference, luma, distorted, earlier, bands, history_only })
    }
}

/// What changes while groups are computed.
struct State {
    /// Groups in the order of submission.
    waiting: VecDeque<Job>,
    /// Slots without a group.
    idle: Vec<Slot>,
    /// The sums of all groups that were not fetched, or why there are none; `None` until that is known.
    outcomes: HashMap<Ticket, Option<Outcome>>,
}

/// What the threads share.
struct Shared {
    plan: Plan,
    spare: Arc<Spare>,
    slots: usize,
    threads: usize,
    state: Mutex<State>,
    /// A group was finished.
    finished: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.finished.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Into how many bands to divide the pictures of a group that was just given a slot.
    fn bands(&self, state: &State) -> usize {
        bands(self.threads, self.slots, self.slots - state.idle.len() + state.waiting.len())
    }

    /// Takes back a slot whose group was computed, and the outcome; says whether another group waits.
    fn finish(&self, ticket: Ticket, slot: Slot, outcome: Outcome) -> bool {
        let mut state = self.state();
        state.idle.push(slot);
        state.outcomes.insert(ticket, Some(outcome));
        self.finished.notify_all();
        !state.waiting.is_empty()
    }
}

/// Into how many bands so many threads divide a picture, when there are so many groups that are not finished.
///
/// Fewer bands than threads would not do where there is a group for some of the threads only: eight threads score 10 to 14 %
/// less with two bands than with eight, as the parts that are left last are longer.
fn bands(threads: usize, slots: usize, groups: usize) -> usize {
    if groups.min(slots) >= threads { 1 } else { threads }
}

/// Computes the next group that waits, if there is a slot for it. Whoever has no slot leaves it to the thread that
/// finishes next.
fn compute_next(shared: Arc<Shared>) {
    let mut state = shared.state();
    let State { waiting, idle, .. } = &mut *state;
    let Some(mut slot) = (!waiting.is_empty()).then(|| idle.pop()).flatten() else { return };
    let Some(job) = waiting.pop_front() else { return idle.push(slot) };
    let bands = shared.bands(&state);
    drop(state);
    // A slot that is left in the middle is as good as any: groups overwrite all of it.
    let outcome = guarded(|| job.compute(&shared.plan, bands, &mut slot)).flatten();
    let ticket = job.ticket;
    // Whoever fetches the sums finds the pictures released.
    drop(job);
    if shared.finish(ticket, slot, outcome) {
        rayon::spawn(move || compute_next(shared));
    }
}

/// What is set up for the frames of one geometry.
struct Prepared {
    shared: Arc<Shared>,
    /// Luma of the latest reference pictures of the present run, as many as some metric looks back, the last one first.
    history: VecDeque<Arc<Luma>>,
}

impl Drop for Prepared {
    /// Groups that have a slot are computed to their end.
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

/// Computes on the CPU.
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
    /// `threads`: how many to compute with; 0 for as many as there are CPUs.
    pub fn new(threads: usize) -> Result<Self, BackendError> {
        let pool = ThreadPoolBuilder::new().thread_name(|i| format!("hipvmaf-{i}"));
        Ok(Self::on(Arc::new(build(pool, threads)?)))
    }

    /// Computes on these threads, beside what else they do.
    pub fn on(pool: Arc<ThreadPool>) -> Self {
        Self { level: Level::detect(), prepared: None, pool, next: 0, warms_up: true }
    }

    /// Leaves out the warm-up, which takes as long as a pair: for callers of which many have only one pair.
    pub fn cold(self) -> Self {
        Self { warms_up: false, ..self }
    }

    /// In-flight slots. A thread computes a group by itself; several need one group more than they are, as the last
    /// parts of a group leave some of them idle.
    fn slots(&self) -> usize {
        match self.pool.current_num_threads() {
            1 => 1,
            threads => (threads + 1).min(MAX_SLOTS),
        }
    }
}

/// A thread of this name for what can wait: it gets computing time that nobody else wants.
pub fn late_thread(name: &'static str) -> Result<ThreadPool, BackendError> {
    let pool = ThreadPoolBuilder::new().thread_name(|_| name.into());
    build(pool.start_handler(|_| yield_to_others()), 1)
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

    /// One group waits while all slots are taken.
    fn depth(&self) -> usize {
        self.slots() + 1
    }

    fn prepare(
        &mut self,
        work: &Work,
        geometry: Geometry,
        renditions: &[Option<Scaling>],
    ) -> Result<(), BackendError> {
        self.prepared = None;
        work.check(geometry)?;
        // Threads finish a group together when it is alone.
        let threads = self.pool.current_num_threads();
        let setup = Setup { geometry, renditions: renditions.len(), bands: threads };
        let plan = Plan::new(self.level, work, geometry, renditions);
        let slots = (0..self.slots()).map(|_| Slot::new(work, &setup));
        let mut idle = slots.collect::<Result<Vec<_>, _>>()?;
        if let Some(first) = idle.last_mut().filter(|_| self.warms_up && !renditions.is_empty()) {
            let warm_up = WarmUp::new(geometry, renditions);
            let group = warm_up.group();
            let distorted = group.distorted.iter().map(|(rendition, picture)| (*rendition, picture));
            let group = slot::Group {
                reference: &group.reference,
                luma: None,
                distorted: distorted.collect(),
                earlier: &[],
                bands: threads,
                history_only: false,
            };
            // What other slots find cold is their own memory, which takes less than half a group's time.
            self.pool.install(|| guarded(|| first.compute(&plan, &group)).flatten())?;
        }
        let state = State { waiting: VecDeque::new(), idle, outcomes: HashMap::new() };
        let shared = Shared {
            plan,
            spare: Arc::default(),
            slots: self.slots(),
            threads,
            state: Mutex::new(state),
            finished: Condvar::new(),
        };
        self.prepared = Some(Prepared { shared: Arc::new(shared), history: VecDeque::new() });
        Ok(())
    }

    fn submit(&mut self, group: Group<'_>) -> Result<Ticket, BackendError> {
        let depth = self.depth();
        let Prepared { shared, history } = self.prepared.as_mut().ok_or(BackendError::NotPrepared)?;
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
        let earlier: Vec<_> = history.iter().cloned().collect();
        let leased = |(rendition, picture): &(usize, _)| Some((*rendition, Leased::new(picture)?));
        let leased = Leased::new(&reference).zip(distorted.iter().map(leased).collect::<Option<Vec<_>>>());
        let depth = plan.geometry.depth;
        let luma = if let Some((leased, distorted)) = leased {
            let luma = Arc::new(Luma::leased(leased, depth, &shared.spare));
            let job = Job { ticket, luma: luma.clone(), distorted, earlier, history_only };
            let mut state = shared.state();
            state.outcomes.insert(ticket, None);
            state.waiting.push_back(job);
            drop(state);
            let shared = shared.clone();
            self.pool.spawn(move || compute_next(shared));
            Some(luma)
        } else {
            // Motion compares with it later, which is after the picture was released.
            let luma = (plan.lags > 0).then(|| Arc::new(Luma::copied(&reference.luma, depth, &shared.spare)));
            let mut state = shared.state();
            let mut slot = loop {
                match state.idle.pop() {
                    Some(slot) => break slot,
                    None => state = shared.wait(state),
                }
            };
            let bands = shared.bands(&state);
            drop(state);
            let outcome = guarded(|| {
                let group = slot::Group {
                    reference: &reference,
                    luma: luma.as_deref(),
                    distorted: distorted.iter().map(|(rendition, picture)| (*rendition, picture)).collect(),
                    earlier: &earlier,
                    bands,
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
        }
    }
}

/// Gives the calling thread the lowest priority. Where the system refuses, it stays as it is.
fn yield_to_others() {
    const LOWEST: libc::c_int = 19;
    // SAFETY: takes numbers. On Linux, 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST) };
}

/// Refuses a picture of another size, and one that cannot be read.
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
