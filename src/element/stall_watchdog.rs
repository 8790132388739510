// SPDX-License-Identifier: MPL-2.0

//! Notices that nothing moves because one sink pad has nothing while frames wait at another: a pad that is not linked, or a
//! queue that is full before the encoder on the other branch gives back its first frame. The base class waits for all pads in
//! silence, so a thread looks now and then.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::error::Error;
use super::lock;
use super::threads::Thread;

/// The state of a pad, by the wall clock.
#[derive(Debug)]
pub struct Quiet {
    /// Buffers that had been taken from the pad by the last look.
    taken: u64,
    /// When it last had something, or was not waited for.
    since: Instant,
    stalled: bool,
}

impl Default for Quiet {
    fn default() -> Self {
        Self { taken: 0, since: Instant::now(), stalled: false }
    }
}

impl Quiet {
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Takes how many buffers were taken from the pad so far, and whether it has one or needs none. Whether it has moved.
    pub fn look(&mut self, now: Instant, taken: u64, has: bool) -> bool {
        let moved = has || taken != self.taken;
        self.taken = taken;
        if moved {
            self.since = now;
        }
        moved
    }

    /// Nothing moves, and is not meant to: waiting begins anew.
    pub fn rest(&mut self, now: Instant) {
        self.since = now;
    }

    /// Returns whether the pad has had nothing for so long; `None` if that has not changed. `excepted`: it does not count now.
    pub fn judge(&mut self, now: Instant, limit: Option<Duration>, excepted: bool) -> Option<bool> {
        let quiet = now.saturating_duration_since(self.since);
        let stalled = match limit {
            None => false,
            Some(limit) if quiet >= limit => self.stalled || !excepted,
            // The pad has delivered, unless only the limit was raised.
            Some(_) => self.stalled && !quiet.is_zero(),
        };
        (std::mem::replace(&mut self.stalled, stalled) != stalled).then_some(stalled)
    }
}

/// A thread that calls now and then, until it is dropped.
pub struct StallWatchdog {
    shared: Arc<(Mutex<Shared>, Condvar)>,
    /// Joined when this is dropped.
    _thread: Thread,
}

#[derive(Clone, Copy)]
struct Shared {
    interval: Duration,
    ended: bool,
}

/// A stall is noticed so many times more exactly than it takes.
const LOOKS: u32 = 8;

impl StallWatchdog {
    /// `look` is called on the thread, often enough for stalls of `limit`.
    pub fn new(
        limit: Option<Duration>,
        look: impl Fn() + Send + 'static,
        report: impl FnOnce(Error) + Send + 'static,
    ) -> io::Result<Self> {
        let shared =
            Arc::new((Mutex::new(Shared { interval: interval(limit), ended: false }), Condvar::new()));
        let with = shared.clone();
        let run = move || {
            let (shared, changed) = &*with;
            loop {
                let Shared { interval, .. } = *lock(shared);
                let same = |shared: &mut Shared| !shared.ended && shared.interval == interval;
                let waited = changed.wait_timeout_while(lock(shared), interval, same);
                let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                if now.ended {
                    return;
                }
                drop(now);
                if timeout.timed_out() {
                    look();
                }
            }
        };
        Ok(Self { shared, _thread: Thread::start("hipvmaf-watch", report, run)? })
    }

    pub fn set_limit(&self, limit: Option<Duration>) {
        lock(&self.shared.0).interval = interval(limit);
        self.shared.1.notify_all();
    }
}

/// Returns how often to look. Where stalls do not matter, downstream still may block.
fn interval(limit: Option<Duration>) -> Duration {
    let longest = Duration::from_secs(1);
    limit.map_or(longest, |limit| (limit / LOOKS).clamp(Duration::from_millis(10), longest))
}

impl Drop for StallWatchdog {
    fn drop(&mut self) {
        lock(&self.shared.0).ended = true;
        self.shared.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pad_stalls_once_and_moves_again() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let limit = Some(Duration::from_secs(5));
        let mut quiet = Quiet { taken: 0, since: begin, stalled: false };
        let mut look = |now, taken, has, excepted| {
            quiet.look(now, taken, has);
            quiet.judge(now, limit, excepted)
        };
        assert_eq!(look(at(4), 0, false, false), None);
        // Taken in between.
        assert_eq!(look(at(5), 1, false, false), None);
        assert_eq!(look(at(10), 1, false, true), None);
        assert_eq!(look(at(11), 1, false, false), Some(true));
        assert_eq!(look(at(12), 1, false, false), None);
        // Known already, whatever the others do.
        assert_eq!(look(at(13), 1, false, true), None);
        assert_eq!(look(at(14), 1, true, false), Some(false));
        assert_eq!(look(at(15), 1, true, false), None);
        assert_eq!(look(at(20), 1, false, false), Some(true));
        quiet.rest(at(21));
        assert_eq!(quiet.judge(at(22), limit, false), None);
        assert_eq!(quiet.judge(at(22), None, false), Some(false));
    }
}
