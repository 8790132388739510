// SPDX-License-Identifier: MPL-2.0

//! The thread that frees what nobody uses any more. The runtimes have a thread that frees memory wait until all streams of
//! the process are done: the threads that feed the streams must not be the ones. They have to wait for it nevertheless
//! ([`turn`](crate::driver_lock)), so that memory which has only grown old goes back little by little.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::context_guard::ContextGuard;
use crate::error::Error;
use crate::pool::{IDLE_BLOCK_LIFETIME, Pool, Waste};
use crate::runtime::DeviceInfo;

/// How many times as long as it takes to free a block nothing is done before the next. The driver keeps everybody else out
/// meanwhile, and takes long where there is much to do: 376 blocks at once cost 220 live channels 9 % of their frames for five
/// seconds, and one in twenty of the time for them, 1 to 2 % for six.
const PAUSE: u32 = 100;

/// The pool of a device, and what tells the thread that there is something to do.
pub(crate) struct DeferredFree {
    info: &'static DeviceInfo,
    pool: Mutex<Pool>,
    changed: Condvar,
    /// Held by whoever frees.
    freeing: Mutex<()>,
}

impl DeferredFree {
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
        ContextGuard::for_thread();
        let mut pace = Pace { next: Instant::now() };
        loop {
            self.free(Pool::take_waste);
            let now = Instant::now();
            if pace.left(now).is_zero() && self.free(|pool| pool.take_old(now).into_iter().collect()) {
                pace.freed(now, Instant::now());
            }
            let pool = self.pool();
            if pool.closed {
                return;
            }
            // What becomes old meanwhile is looked at when this time is over: nobody has to be woken for it.
            let now = Instant::now();
            let pause = if pool.has_old(now) { pace.left(now) } else { IDLE_BLOCK_LIFETIME };
            let nothing_to_do = |pool: &mut Pool| !pool.closed && !pool.has_waste();
            drop(self.changed.wait_timeout_while(pool, pause, nothing_to_do));
        }
    }

    /// Frees what is taken from the pool, if anything is.
    fn free(&self, take: impl FnOnce(&mut Pool) -> Vec<Waste>) -> bool {
        let _one_at_a_time = self.freeing.lock().unwrap_or_else(PoisonError::into_inner);
        let waste = take(&mut self.pool());
        let some = !waste.is_empty();
        for waste in waste {
            // A child process, which has nothing to free, has no such thread.
            let Some(api) = self.info.release() else { break };
            // SAFETY: whoever put it there has promised that it is live and unused.
            unsafe { waste.free(&api) };
        }
        some
    }
}

/// When the next old block may be freed.
struct Pace {
    next: Instant,
}

impl Pace {
    /// Time that is left until then.
    fn left(&self, now: Instant) -> Duration {
        self.next.saturating_duration_since(now)
    }

    /// One was freed, which took from then to now.
    fn freed(&mut self, begun: Instant, now: Instant) {
        self.next = now + now.saturating_duration_since(begun) * PAUSE;
    }
}

/// The running thread of a device.
pub(crate) struct FreeThread {
    pub(crate) deferred: Arc<DeferredFree>,
    thread: Option<JoinHandle<()>>,
}

impl FreeThread {
    pub(crate) fn new(info: &'static DeviceInfo) -> Result<Self, Error> {
        let deferred = Arc::new(DeferredFree {
            info,
            pool: Mutex::default(),
            changed: Condvar::new(),
            freeing: Mutex::default(),
        });
        let its = deferred.clone();
        let thread = Builder::new().name("hipvmaf-free".into()).spawn(move || its.run());
        let failed = |err| Error::Unsupported(format!("cannot start a thread: {err}"));
        Ok(Self { deferred, thread: Some(thread.map_err(failed)?) })
    }

    /// Ends the thread and frees everything.
    pub(crate) fn close(&mut self) {
        self.deferred.pool().closed = true;
        self.deferred.changed.notify_one();
        self.thread.take().map(JoinHandle::join);
        self.deferred.clear();
    }

    /// Forgets the thread in a child process, where it does not run.
    pub(crate) fn forget(&mut self) {
        std::mem::forget(self.thread.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_take_long_to_be_freed_come_seldom() {
        let (begun, took) = (Instant::now(), Duration::from_millis(10));
        let mut pace = Pace { next: begun };
        assert_eq!(pace.left(begun), Duration::ZERO);
        let freed = begun + took;
        pace.freed(begun, freed);
        assert_eq!(pace.left(freed), took * PAUSE);
        assert_eq!(pace.left(freed + took * PAUSE), Duration::ZERO);
    }
}
