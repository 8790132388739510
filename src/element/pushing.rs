// SPDX-License-Identifier: MPL-2.0

//! Pushes that do not return. They hold up the streaming task, and frames that wait for it are late, which is neither the
//! fault of their stream nor of the worker.

use std::time::{Duration, Instant};

use gst::ClockTime;

/// The time that a push may take in a live pipeline, beyond the time at which a sink shows the frame.
const PUSH_TIMEOUT: ClockTime = ClockTime::SECOND;

/// A push that has not returned.
#[derive(Clone, Copy, Debug)]
struct Push {
    begun: Instant,
    /// Its running time; `None` where no clock runs.
    at: Option<ClockTime>,
}

/// The pushes of the streaming task.
#[derive(Debug, Default)]
pub struct Pushing {
    push: Option<Push>,
    /// Running time of the frames that were due when the last push returned, in live pipelines.
    returned: Option<ClockTime>,
}

impl Pushing {
    pub fn begin(&mut self, begun: Instant, at: Option<ClockTime>) {
        self.push = Some(Push { begun, at });
    }

    pub fn end(&mut self, due: Option<ClockTime>) {
        self.push = None;
        self.returned = due.or(self.returned);
    }

    /// Returns true while downstream has not returned from a push.
    pub fn is_open(&self) -> bool {
        self.push.is_some()
    }

    /// Returns true if a frame that had to be taken by `due` could not be, as downstream had not returned by then.
    pub fn excuses(&self, due: ClockTime) -> bool {
        self.returned.is_some_and(|returned| due <= returned)
    }

    /// Returns true if the push has lasted for too long: by the clock in a live pipeline, where a sink waits for as long as the
    /// `latency` of the pipeline, else for `limit`.
    pub fn is_stuck(
        &self,
        now: Instant,
        limit: Option<Duration>,
        running: Option<ClockTime>,
        latency: Option<ClockTime>,
    ) -> bool {
        let Some(push) = self.push else { return false };
        match latency {
            Some(latency) => {
                let end = push.at.map(|at| at.saturating_add(latency).saturating_add(PUSH_TIMEOUT));
                end.zip(running).is_some_and(|(end, now)| end <= now)
            }
            None => limit.is_some_and(|limit| now.saturating_duration_since(push.begun) >= limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(time: u64) -> ClockTime {
        ClockTime::from_mseconds(time)
    }

    #[test]
    fn a_sink_may_wait_for_the_latency_and_no_longer() {
        let now = Instant::now();
        let mut pushing = Pushing::default();
        let stuck = |pushing: &Pushing, at| pushing.is_stuck(now, None, Some(ms(at)), Some(ms(300)));
        assert!(!stuck(&pushing, 10_000));
        pushing.begin(now, Some(ms(100)));
        assert!(!stuck(&pushing, 1399) && stuck(&pushing, 1400));
        pushing.end(Some(ms(1400)));
        assert!(!stuck(&pushing, 10_000));
        assert!(pushing.excuses(ms(1400)) && !pushing.excuses(ms(1401)));
    }

    #[test]
    fn without_a_deadline_the_wall_clock_counts() {
        let begun = Instant::now();
        let mut pushing = Pushing::default();
        pushing.begin(begun, Some(ms(100)));
        let stuck = |seconds, limit| {
            let now = begun + Duration::from_secs(seconds);
            pushing.is_stuck(now, limit, Some(ms(100)), None)
        };
        let five = Some(Duration::from_secs(5));
        assert_eq!([stuck(4, five), stuck(5, five), stuck(100, None)], [false, true, false]);
    }
}
