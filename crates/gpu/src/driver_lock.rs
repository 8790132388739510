// SPDX-License-Identifier: MPL-2.0

//! Fair read-write lock in front of the driver of a GPU.
//!
//! NVIDIA's driver lets all threads of a process submit work at the same time. A call that creates, destroys or allocates
//! something waits until no thread is inside the driver, but does not stop new submissions. While the GPU gets more work
//! than it can take, some thread is always inside: of 220 channels on a bus that carries 210, none could be stopped and no
//! other could be started.
//!
//! So calls that need the driver for themselves take the write lock, and submissions take the read lock. The lock is fair:
//! neither side starves the other.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The lock of one GPU, shared by all threads.
#[derive(Default)]
pub struct DriverLock(RwLock<()>);

/// Holds the lock until it is dropped. A thread that has one must not ask for another.
#[expect(dead_code, reason = "the guards are only held")]
pub enum DriverGuard {
    Shared(RwLockReadGuard<'static, ()>),
    Exclusive(RwLockWriteGuard<'static, ()>),
}

impl DriverLock {
    /// Takes the lock to submit work, beside other submissions.
    pub fn shared(&'static self) -> DriverGuard {
        DriverGuard::Shared(self.0.read())
    }

    /// Takes the lock alone, to create, destroy, allocate or free something.
    pub fn exclusive(&'static self) -> DriverGuard {
        DriverGuard::Exclusive(self.0.write())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_waiting_exclusive_call_stops_new_submissions() {
        let lock: &'static DriverLock = Box::leak(Box::default());
        let submission = lock.shared();
        let exclusive = thread::spawn(|| drop(lock.exclusive()));
        let limit = Instant::now() + Duration::from_secs(60);
        while lock.0.try_read().is_some() {
            assert!(Instant::now() < limit, "submissions are let in although an exclusive call waits");
            thread::yield_now();
        }
        drop(submission);
        exclusive.join().unwrap();
        // Both kinds of calls are let in again.
        drop((lock.shared(), lock.shared()));
        drop(lock.exclusive());
    }
}
