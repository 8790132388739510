// SPDX-License-Identifier: MPL-2.0

//! Lets the streaming task wait for frames, results or the end, whichever comes first.
//!
//! The base class wakes its task for frames and for the clock only, and cannot be made to wake it for a result. So the task
//! waits here while results are on their way, and each event that may let it go on is counted.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::lock;

/// Counts the events that may let a thread go on.
#[derive(Default)]
pub struct Progress {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Progress {
    pub fn made(&self) {
        *lock(&self.count) += 1;
        self.changed.notify_all();
    }

    /// Returns when `ready` does, which is asked again after each progress, or when the time is over. No lock is held
    /// while it is asked. Whether it is ready.
    pub fn wait_until(&self, limit: Option<Duration>, ready: impl Fn() -> bool) -> bool {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut seen = *lock(&self.count);
        while !ready() {
            let count = lock(&self.count);
            let same = |count: &mut u64| *count == seen;
            seen = match end {
                None => *self.changed.wait_while(count, same).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    let waited = self.changed.wait_timeout_while(count, left, same);
                    let (count, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    if timeout.timed_out() {
                        return false;
                    }
                    *count
                }
            };
        }
        true
    }
}
