// SPDX-License-Identifier: MPL-2.0

//! Pauses before retries: they double each time, up to a limit.
//!
//! A random part of up to half is subtracted from each pause, so that sources lost by one failed server do not all
//! return at the same moment.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);

/// The pauses between attempts.
#[derive(Clone, Debug)]
pub struct Backoff {
    longest: Duration,
    attempts: u32,
}

impl Backoff {
    /// Creates pauses of at most `longest`.
    pub fn new(longest: Duration) -> Self {
        Self { longest, attempts: 0 }
    }

    /// Changes the longest pause.
    pub fn limit(&mut self, longest: Duration) {
        self.longest = longest;
    }

    /// Returns the pause before the next attempt, and counts the attempt.
    pub fn next_pause(&mut self) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.attempts.min(16)).min(self.longest);
        self.attempts = self.attempts.saturating_add(1);
        pause.mul_f64(1.0 - fastrand::f64() / 2.0)
    }

    /// Resets the pauses after a time without failures.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_limit_and_start_over() {
        let mut backoff = Backoff::new(Duration::from_secs(20));
        for round in 0..3 {
            for longest in [1, 2, 4, 8, 16, 20, 20, 20] {
                let longest = Duration::from_secs(longest);
                let pause = backoff.next_pause();
                assert!(pause <= longest && pause >= longest / 2, "{round}: {pause:?} of {longest:?}");
            }
            backoff.reset();
        }
    }

    #[test]
    fn any_number_of_attempts_can_be_made() {
        let mut backoff = Backoff { longest: Duration::from_secs(60), attempts: u32::MAX - 1 };
        for _ in 0..3 {
            assert!(backoff.next_pause() <= Duration::from_secs(60));
        }
    }

    #[test]
    fn pauses_differ() {
        let pauses: Vec<_> = (0..20).map(|_| Backoff::new(Duration::from_secs(60)).next_pause()).collect();
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
    }
}
