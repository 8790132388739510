// SPDX-License-Identifier: MPL-2.0

//! Completion on the host: reads the sums of a group once the GPU is done.
//!
//! Most metrics leave a few numbers, which are read when the sums are fetched. [`SpEED`](super::speed) leaves covariances whose
//! eigenvalues the CPU has to find, which takes tens of microseconds. With few groups in flight, the thread that waits for the
//! group reads its sums, since waking another thread would take as long. With many groups, the thread `hipvmaf-read` does, so
//! that threads that submit or fetch groups are not delayed. It uses a pool when groups finish faster than it can read.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use gpu::{ContextGuard, Event, Pinned};
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::metric::{Chains, sums_room};
use crate::backend::{BackendError, SumsResult, guarded};
use crate::metrics::FrameSums;

/// How long a thread polls for the only group in flight before it sleeps. Most groups are done by then; waking up adds little
/// to the time of longer ones.
pub const SPIN_LIMIT: Duration = Duration::from_millis(1);

/// Returns the pool that does the CPU's work for all GPU backends of the process, with a thread for each processor.
pub fn pool() -> Result<&'static ThreadPool, BackendError> {
    static POOL: OnceLock<Result<ThreadPool, ThreadPoolBuildError>> = OnceLock::new();
    let build = || ThreadPoolBuilder::new().thread_name(|i| format!("hipvmaf-host-{i}")).build();
    POOL.get_or_init(build).as_ref().map_err(|err| BackendError::Threads {
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        reason: err.to_string(),
    })
}

/// Describes a group to the code that reads its sums.
#[derive(Clone, Copy)]
pub struct GroupShape {
    /// Number of distorted pictures.
    pub count: usize,
    pub history_only: bool,
    /// Number of earlier groups of the run.
    pub run: usize,
}

/// Makes the sums of a group from the numbers that its kernels have left.
pub fn read(chains: &Chains, sums: &Pinned, group: GroupShape) -> Vec<FrameSums> {
    let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    let room = sums_room(chains);
    let numbers: Vec<_> = sums.bytes()[..group.count * room].chunks_exact(8).map(number).collect();
    let mut out = vec![FrameSums::default(); group.count];
    let mut at = 0;
    for metric in chains.iter().flatten() {
        let range = at..at + metric.sums();
        at = range.end;
        if !group.history_only || metric.has_history() {
            let pairs: Vec<_> = numbers.chunks(room / 8).map(|pair| &pair[range.clone()]).collect();
            metric.read(&pairs, group.run, &mut out);
        }
    }
    out
}

/// The sums of a group in flight, for all threads that wait for them. One of them reads the sums.
pub struct PendingSums {
    done: Arc<Event>,
    stage: Mutex<Stage>,
    changed: Condvar,
}

enum Stage {
    Unread(ReadJob),
    /// A thread is reading them.
    Reading,
    Read(SumsResult),
    Taken,
}

/// Everything that reading needs. It is dropped after reading, as it holds memory of the GPU.
pub struct ReadJob {
    pub chains: Arc<Chains>,
    pub sums: Arc<Pinned>,
    pub group: GroupShape,
}

impl PendingSums {
    /// Describes a group in flight. `done` is signalled when the sums are in memory. They must stay there until they are read.
    pub fn new(done: Arc<Event>, job: ReadJob) -> Arc<Self> {
        Arc::new(Self { done, stage: Mutex::new(Stage::Unread(job)), changed: Condvar::new() })
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the GPU and reads the sums. If another thread has begun to read, waits for that thread.
    pub fn read(&self) {
        // The thread that reads meets the same error again.
        let _ = self.done.synchronize();
        if let Some(job) = self.begin() {
            self.finish(job.run(&self.done));
        }
        self.wait();
    }

    /// Returns the job to the first caller.
    fn begin(&self) -> Option<ReadJob> {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Reading) {
            Stage::Unread(job) => Some(job),
            other => {
                *stage = other;
                None
            }
        }
    }

    fn finish(&self, sums: SumsResult) {
        *self.stage() = Stage::Read(sums);
        self.changed.notify_all();
    }

    /// Waits until a thread has read the sums.
    pub fn wait(&self) {
        let unread = |stage: &mut Stage| matches!(stage, Stage::Unread(_) | Stage::Reading);
        drop(self.changed.wait_while(self.stage(), unread).unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the sums, once; `None` if they are not read yet.
    pub fn take(&self) -> Option<SumsResult> {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Read(sums) => Some(sums),
            Stage::Taken => Some(Err(BackendError::UnknownTicket)),
            unread => {
                *stage = unread;
                None
            }
        }
    }
}

impl ReadJob {
    fn run(self, done: &Event) -> SumsResult {
        done.synchronize()?;
        guarded(|| read(&self.chains, &self.sums, self.group))
    }
}

/// The thread that reads the sums of groups in the order of their completion.
pub struct SumsReader {
    /// `None` tells the thread to end.
    groups: Option<Sender<Arc<PendingSums>>>,
    thread: Option<JoinHandle<()>>,
}

impl SumsReader {
    pub fn new() -> Result<Self, BackendError> {
        let pool = pool()?;
        let (groups, queue) = mpsc::channel();
        let thread = Builder::new().name("hipvmaf-read".into()).spawn(move || run(pool, &queue));
        let thread = thread.map_err(|err| BackendError::Threads { threads: 1, reason: err.to_string() })?;
        Ok(Self { groups: Some(groups), thread: Some(thread) })
    }

    /// Queues a group. Groups must come in the order in which the GPU finishes them.
    pub fn read(&self, group: &Arc<PendingSums>) {
        if self.groups.as_ref().is_none_or(|groups| groups.send(group.clone()).is_err()) {
            group.finish(Err(BackendError::Panicked));
        }
    }
}

impl Drop for SumsReader {
    /// Waits until all groups are read or given to the pool.
    fn drop(&mut self) {
        self.groups = None;
        self.thread.take().map(JoinHandle::join);
    }
}

fn run(pool: &'static ThreadPool, queue: &Receiver<Arc<PendingSums>>) {
    ContextGuard::for_thread();
    let mut next: Option<Arc<PendingSums>> = None;
    while let Some(group) = next.take().or_else(|| queue.recv().ok()) {
        // The thread that reads meets the same error again.
        let _ = group.done.synchronize();
        next = queue.try_recv().ok();
        match next {
            // The GPU may be done with the next group as well.
            Some(_) => pool.spawn(move || group.read()),
            None => group.read(),
        }
    }
}
