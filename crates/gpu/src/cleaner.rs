// SPDX-License-Identifier: MPL-2.0

//! The thread that frees what nobody uses any more. The runtimes have a thread that frees memory wait until all streams of
//! the process are done: the threads that feed the streams must not be the ones.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use crate::error::Error;
use crate::pool::{PATIENCE, Pool, Waste};
use crate::runtime::DeviceInfo;
use crate::visit::Visit;

/// The pool of a device, and what tells the thread that there is something to do.
pub(crate) struct Reserve {
    info: &'static DeviceInfo,
    pool: Mutex<Pool>,
    changed: Condvar,
    /// Held by whoever frees.
    freeing: Mutex<()>,
}

impl Reserve {
    pub(crate) fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has something freed soon.
    ///
    /// # Safety
    ///
    /// It must be live, and used by nobody any more.
    pub(crate) unsafe fn discard(&self, waste: Waste) {
        // SAFETY: the caller has promised it.
        unsafe { self.pool().discard(waste) };
        self.changed.notify_one();
    }

    /// Has page-locked memory freed soon, until no more than `limit` bytes of it are idle.
    pub(crate) fn limit_locked(&self, limit: usize) {
        if self.pool().limit_locked(limit) {
            self.changed.notify_one();
        }
    }

    /// Frees what is idle, on the calling thread, and waits for what is being freed.
    pub(crate) fn clear(&self) {
        self.free(Pool::all);
    }

    fn run(&self) {
        Visit::for_good();
        loop {
            self.free(|pool| pool.due(Instant::now()));
            let pool = self.pool();
            if pool.closed {
                return;
            }
            // What becomes idle meanwhile is looked at when this time is over: nobody has to be woken for it.
            let nothing_to_do = |pool: &mut Pool| !pool.closed && !pool.has_waste();
            drop(self.changed.wait_timeout_while(pool, PATIENCE, nothing_to_do));
        }
    }

    fn free(&self, take: impl FnOnce(&mut Pool) -> Vec<Waste>) {
        let _one_at_a_time = self.freeing.lock().unwrap_or_else(PoisonError::into_inner);
        let waste = take(&mut self.pool());
        if waste.is_empty() {
            return;
        }
        for waste in waste {
            // A child process, which has nothing to free, has no such thread.
            let Some(api) = self.info.release() else { return };
            // SAFETY: whoever put it there has promised that it is live and unused.
            unsafe { waste.free(&api) };
        }
    }
}

/// The running thread of a device.
pub(crate) struct Cleaner {
    pub(crate) reserve: Arc<Reserve>,
    thread: Option<JoinHandle<()>>,
}

impl Cleaner {
    pub(crate) fn new(info: &'static DeviceInfo) -> Result<Self, Error> {
        let reserve = Arc::new(Reserve {
            info,
            pool: Mutex::default(),
            changed: Condvar::new(),
            freeing: Mutex::default(),
        });
        let its = reserve.clone();
        let thread = Builder::new().name("hipvmaf-free".into()).spawn(move || its.run());
        let failed = |err| Error::Unsupported(format!("cannot start a thread: {err}"));
        Ok(Self { reserve, thread: Some(thread.map_err(failed)?) })
    }

    /// Ends the thread and frees everything.
    pub(crate) fn close(&mut self) {
        self.reserve.pool().closed = true;
        self.reserve.changed.notify_one();
        self.thread.take().map(JoinHandle::join);
        self.reserve.clear();
    }

    /// Forgets the thread in a child process, where it does not run.
    pub(crate) fn forget(&mut self) {
        std::mem::forget(self.thread.take());
    }
}
