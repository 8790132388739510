// SPDX-License-Identifier: MPL-2.0

//! Deferred free: a thread frees memory that is no longer used.
//!
//! The runtimes block a thread that frees memory until all streams of the process are done, so the threads that feed
//! the streams must not do it. They still have to wait for the [driver lock](crate::driver_lock) meanwhile. So memory
//! that is only idle is freed slowly.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::context_guard::ContextGuard;
use crate::error::Error;
use crate::pool::{IDLE_BLOCK_LIFETIME, Pool, Waste};
use crate::runtime::DeviceInfo;

/// Pause after freeing an idle block, as a multiple of the time that it took. The driver blocks all other calls
/// meanwhile, which takes long under load. Freeing 376 blocks at once cost 220 live channels 9 % of their frames for
/// five seconds. With a twentieth of the time spent on freeing, it was 1 to 2 % for six seconds.
const PAUSE: u32 = 100;

/// The pool of a device, shared with the thread that frees.
pub(crate) struct DeferredFree {
    info: &'static DeviceInfo,
    pool: Mutex<Pool>,
    changed: Condvar,
    /// Held while blocks are freed.
    freeing: Mutex<()>,
}

impl DeferredFree {
    pub(crate) fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock()
    }

    /// Queues memory to be freed.
    ///
    /// # Safety
    ///
    /// It must be live and no longer used.
    pub(crate) unsafe fn discard(&self, waste: Waste) {
        // SAFETY: the caller has promised it.
        unsafe { self.pool().discard(waste) };
        self.changed.notify_one();
    }

    /// Queues idle page-locked memory to be freed until at most `limit` bytes of it are left.
    pub(crate) fn limit_locked(&self, limit: usize) {
        if self.pool().limit_locked(limit) {
            self.changed.notify_one();
        }
    }

    /// Frees all idle memory on the calling thread, and waits for the thread that is freeing.
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
            let mut pool = self.pool();
            if pool.closed {
                return;
            }
            // Blocks that become old during the pause are freed after it, so no wake-up is needed for them.
            let now = Instant::now();
            let pause = if pool.has_old(now) { pace.left(now) } else { IDLE_BLOCK_LIFETIME };
            let nothing_to_do = |pool: &mut Pool| !pool.closed && !pool.has_waste();
            self.changed.wait_while_for(&mut pool, nothing_to_do, pause);
        }
    }

    /// Frees the memory that `take` takes from the pool. Returns false if there is none.
    fn free(&self, take: impl FnOnce(&mut Pool) -> Vec<Waste>) -> bool {
        let _one_at_a_time = self.freeing.lock();
        let waste = take(&mut self.pool());
        let some = !waste.is_empty();
        for waste in waste {
            // A child process has nothing to free and no such thread.
            let Some(api) = self.info.release() else { break };
            // SAFETY: the caller of `discard` or `put` has promised that it is live and unused.
            unsafe { waste.free(&api) };
        }
        some
    }
}

/// The time at which the next old block may be freed.
struct Pace {
    next: Instant,
}

impl Pace {
    /// Returns the remaining time.
    fn left(&self, now: Instant) -> Duration {
        self.next.saturating_duration_since(now)
    }

    /// Sets the next time after a block was freed between these times.
    fn freed(&mut self, begun: Instant, now: Instant) {
        self.next = now + now.saturating_duration_since(begun) * PAUSE;
    }
}

/// The thread of a device.
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

    /// Forgets the thread in a child process, in which it does not run.
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
