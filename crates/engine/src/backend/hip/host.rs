// SPDX-License-Identifier: MPL-2.0

//! The CPU's part of a group: what is left to do once the GPU is done with it.
//!
//! Most metrics leave a few numbers, which whoever asks for the sums reads on the spot. [`SpEED`](super::speed) leaves linear
//! algebra that takes longer than the GPU takes for a frame. So a thread of its own waits for the groups, oldest first, and
//! hands each to a pool as soon as the GPU is done: several groups are worked on side by side, and nobody who submits or
//! collects groups is held up by any of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};

use gpu::{Event, Pinned, Visit};
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::metric::Chains;
use super::slot::sums_room;
use crate::backend::BackendError;
use crate::metrics::FrameSums;

/// The threads on which the CPU does its part, for all backends of the process: as many as there are processors.
pub fn pool() -> Result<&'static ThreadPool, BackendError> {
    static POOL: OnceLock<Result<ThreadPool, ThreadPoolBuildError>> = OnceLock::new();
    let build = || ThreadPoolBuilder::new().thread_name(|i| format!("hipvmaf-host-{i}")).build();
    POOL.get_or_init(build).as_ref().map_err(|err| BackendError::Threads {
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        reason: err.to_string(),
    })
}

/// A group as whoever reads its sums has to know it.
#[derive(Clone, Copy)]
pub struct GroupInfo {
    /// How many distorted pictures it has.
    pub count: usize,
    pub history_only: bool,
    /// How many groups came before in the run.
    pub run: usize,
}

/// Makes the sums of a group of what its kernels have left.
pub fn read(chains: &Chains, left: &[u64], group: GroupInfo) -> Vec<FrameSums> {
    let room = sums_room(chains) / 8;
    let mut out = vec![FrameSums::default(); group.count];
    let mut at = 0;
    for task in chains.iter().flatten() {
        let range = at..at + task.sums();
        at = range.end;
        if group.history_only && !task.has_history() {
            continue;
        }
        let pairs: Vec<_> = left.chunks(room).map(|pair| &pair[range.clone()]).collect();
        task.read(&pairs, group.run, &mut out);
    }
    out
}

/// What the kernels have left of so many pairs.
pub fn left(chains: &Chains, sums: &Pinned, count: usize) -> Vec<u64> {
    let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    sums.bytes()[..count * sums_room(chains)].chunks_exact(8).map(number).collect()
}

/// What comes of reading a group's sums, for whoever collects them and for whoever waits.
#[derive(Default)]
pub struct Outcome {
    known: Mutex<Known>,
    changed: Condvar,
}

#[derive(Default)]
enum Known {
    #[default]
    NotYet,
    Sums(Result<Vec<FrameSums>, BackendError>),
    Taken,
}

impl Outcome {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, sums: Result<Vec<FrameSums>, BackendError>) {
        *self.lock() = Known::Sums(sums);
        self.changed.notify_all();
    }

    /// Waits until something has come of it.
    pub fn wait(&self) {
        let not_yet = |known: &mut Known| matches!(known, Known::NotYet);
        drop(self.changed.wait_while(self.lock(), not_yet).unwrap_or_else(PoisonError::into_inner));
    }

    /// What has come of it, once.
    pub fn take(&self) -> Option<Result<Vec<FrameSums>, BackendError>> {
        let mut known = self.lock();
        match std::mem::replace(&mut *known, Known::Taken) {
            Known::NotYet => {
                *known = Known::NotYet;
                None
            }
            Known::Sums(sums) => Some(sums),
            Known::Taken => Some(Err(BackendError::UnknownTicket)),
        }
    }
}

/// A group on its way through the GPU.
struct Order {
    outcome: Arc<Outcome>,
    done: Arc<Event>,
    sums: Arc<Pinned>,
    group: GroupInfo,
}

/// The thread that waits for groups and has their sums read.
pub struct Reader {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// For groups that go through these kernels.
    pub fn new(chains: Arc<Chains>) -> Result<Self, BackendError> {
        let pool = pool()?;
        let (orders, queue) = mpsc::channel();
        let thread = Builder::new().name("hipvmaf-read".into()).spawn(move || run(pool, &chains, &queue));
        let thread = thread.map_err(|err| BackendError::Threads { threads: 1, reason: err.to_string() })?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    /// Has the sums of a group read, which are there when `done` is signalled and stay there until something has come of it.
    pub fn order(&self, done: &Arc<Event>, sums: &Arc<Pinned>, group: GroupInfo) -> Arc<Outcome> {
        let outcome = Arc::new(Outcome::default());
        let order = Order { outcome: outcome.clone(), done: done.clone(), sums: sums.clone(), group };
        if self.orders.as_ref().is_none_or(|orders| orders.send(order).is_err()) {
            outcome.tell(Err(BackendError::Panicked));
        }
        outcome
    }
}

impl Drop for Reader {
    /// All groups were read afterwards, or will be without anything of the GPU.
    fn drop(&mut self) {
        self.orders = None;
        self.thread.take().map(JoinHandle::join);
    }
}

fn run(pool: &'static ThreadPool, chains: &Arc<Chains>, queue: &Receiver<Order>) {
    Visit::for_good();
    for Order { outcome, done, sums, group } in queue {
        if let Err(err) = done.synchronize() {
            outcome.tell(Err(err.into()));
            continue;
        }
        // The next group may be written there as soon as this one was collected.
        let (left, chains) = (left(chains, &sums, group.count), chains.clone());
        pool.spawn(move || {
            let read = catch_unwind(AssertUnwindSafe(|| read(&chains, &left, group)));
            // What it holds of the GPU is gone before anybody hears of it.
            drop(chains);
            outcome.tell(read.map_err(|_| BackendError::Panicked));
        });
    }
}
