// SPDX-License-Identifier: MPL-2.0

//! The CPU's part of a group: what is left to do once the GPU is done with it.
//!
//! Most metrics leave a few numbers, which whoever asks for the sums reads on the spot. [`SpEED`](super::speed) leaves
//! eigenvalues to be found, which takes tens of microseconds. Whoever waits for such a group reads its sums when the GPU is
//! done: threads that would have to wake up for it would take as long. Where many groups are in flight a thread of its own
//! does so, so that nobody who submits or collects groups is held up by any of them, and has a pool help as soon as there is
//! more to do than it can.

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

/// A group on its way through the GPU, for all who wait for it: one of them reads its sums.
pub struct Reading {
    done: Arc<Event>,
    known: Mutex<Known>,
    changed: Condvar,
}

enum Known {
    NotYet(Order),
    /// Somebody is reading them.
    Soon,
    Sums(Result<Vec<FrameSums>, BackendError>),
    Taken,
}

/// What reading a group takes. None of it is held any longer than that: it is memory of the GPU.
struct Order {
    chains: Arc<Chains>,
    sums: Arc<Pinned>,
    group: GroupInfo,
}

impl Reading {
    /// Of sums that are there when `done` is signalled, and stay there until they were read.
    pub fn new(chains: &Arc<Chains>, done: &Arc<Event>, sums: &Arc<Pinned>, group: GroupInfo) -> Arc<Self> {
        let order = Order { chains: chains.clone(), sums: sums.clone(), group };
        let (done, known) = (done.clone(), Mutex::new(Known::NotYet(order)));
        Arc::new(Self { done, known, changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the GPU, and reads the sums unless somebody else has begun to, and then waits for that.
    pub fn read(&self) {
        if matches!(*self.lock(), Known::NotYet(_)) {
            let done = self.done.synchronize();
            if let Some(order) = self.begin() {
                self.tell(done.map_err(BackendError::from).and_then(|()| order.carry_out()));
            }
        }
        self.wait();
    }

    /// What there is to do, for the first who asks.
    fn begin(&self) -> Option<Order> {
        let mut known = self.lock();
        match std::mem::replace(&mut *known, Known::Soon) {
            Known::NotYet(order) => Some(order),
            other => {
                *known = other;
                None
            }
        }
    }

    fn tell(&self, sums: Result<Vec<FrameSums>, BackendError>) {
        *self.lock() = Known::Sums(sums);
        self.changed.notify_all();
    }

    /// Waits until somebody has read the sums.
    pub fn wait(&self) {
        let not_yet = |known: &mut Known| matches!(known, Known::NotYet(_) | Known::Soon);
        drop(self.changed.wait_while(self.lock(), not_yet).unwrap_or_else(PoisonError::into_inner));
    }

    /// The sums, once.
    pub fn take(&self) -> Option<Result<Vec<FrameSums>, BackendError>> {
        let mut known = self.lock();
        match std::mem::replace(&mut *known, Known::Taken) {
            Known::Sums(sums) => Some(sums),
            Known::Taken => Some(Err(BackendError::UnknownTicket)),
            not_yet => {
                *known = not_yet;
                None
            }
        }
    }
}

impl Order {
    fn carry_out(self) -> Result<Vec<FrameSums>, BackendError> {
        let Self { chains, sums, group } = self;
        let read = || read(&chains, &left(&chains, &sums, group.count), group);
        catch_unwind(AssertUnwindSafe(read)).map_err(|_| BackendError::Panicked)
    }
}

/// The thread that waits for groups and has their sums read.
pub struct Reader {
    readings: Option<Sender<Arc<Reading>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    pub fn new() -> Result<Self, BackendError> {
        let pool = pool()?;
        let (readings, queue) = mpsc::channel();
        let thread = Builder::new().name("hipvmaf-read".into()).spawn(move || run(pool, &queue));
        let thread = thread.map_err(|err| BackendError::Threads { threads: 1, reason: err.to_string() })?;
        Ok(Self { readings: Some(readings), thread: Some(thread) })
    }

    /// Has a group read. Groups come in the order in which the GPU will be done with them.
    pub fn order(&self, reading: &Arc<Reading>) {
        if self.readings.as_ref().is_none_or(|readings| readings.send(reading.clone()).is_err()) {
            reading.tell(Err(BackendError::Panicked));
        }
    }
}

impl Drop for Reader {
    /// All groups were read afterwards, or are about to be.
    fn drop(&mut self) {
        self.readings = None;
        self.thread.take().map(JoinHandle::join);
    }
}

fn run(pool: &'static ThreadPool, queue: &Receiver<Arc<Reading>>) {
    Visit::for_good();
    let mut next = None;
    while let Some(reading) = next.take().or_else(|| queue.recv().ok()) {
        // An error is met again by whoever reads.
        let _ = reading.done.synchronize();
        next = queue.try_recv().ok();
        match next {
            // The GPU may be done with that one, too.
            Some(_) => pool.spawn(move || reading.read()),
            None => reading.read(),
        }
    }
}
