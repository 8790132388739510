// SPDX-License-Identifier: MPL-2.0

//! Detects sources that stop delivering, and schedules retries.
//!
//! An outage begins with the first failure and ends after frames have arrived for a while. It causes exactly two
//! events, however often the source is retried, so that a long outage does not push other events out of the list.

use std::time::{Duration, Instant};

use super::backoff::Backoff;

/// Time for which frames must arrive before an outage ends.
pub const SETTLED: Duration = Duration::from_secs(10);

/// Time without frames after which a source may have died.
const SILENCE: Duration = Duration::from_millis(700);

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    None,
    /// No frames arrived for too long.
    Stalled,
    /// An outage has ended, with its length and the number of attempts.
    Recovered {
        after: Duration,
        attempts: u64,
    },
}

/// An outage.
#[derive(Clone, Copy, Debug)]
struct Outage {
    since: Instant,
    attempts: u64,
}

/// Health of a source.
#[derive(Debug)]
pub struct Health {
    stall: Duration,
    backoff: Backoff,
    outage: Option<Outage>,
    /// Time of the next attempt.
    retry: Option<Instant>,
    /// Number of frames at the last change, and its time.
    seen: (u64, Instant),
    /// Time since which frames arrive.
    flowing: Option<Instant>,
}

impl Health {
    /// Creates the health of a source that stalls after `stall` without frames, and is retried after at most `retry`.
    pub fn new(stall: Duration, retry: Duration, now: Instant) -> Self {
        Self { stall, backoff: Backoff::new(retry), outage: None, retry: None, seen: (0, now), flowing: None }
    }

    /// Changes the times.
    pub fn adapt(&mut self, stall: Duration, retry: Duration) {
        self.stall = stall;
        self.backoff.limit(retry);
    }

    /// Notes that the source was inserted.
    pub fn started(&mut self, frames: u64, now: Instant) {
        self.retry = None;
        self.flowing = None;
        self.seen = (frames, now);
        if let Some(outage) = &mut self.outage {
            outage.attempts += 1;
        }
    }

    /// Notes a failure. Returns true if it begins an outage.
    pub fn failed(&mut self, now: Instant) -> bool {
        self.retry = Some(now + self.backoff.next_pause());
        self.flowing = None;
        let begins = self.outage.is_none();
        self.outage.get_or_insert(Outage { since: now, attempts: 0 });
        begins
    }

    /// Returns true if the source has failed and has delivered nothing since.
    pub fn is_down(&self) -> bool {
        self.outage.is_some() && self.flowing.is_none()
    }

    /// Returns true if the source is to be inserted, for the first time or again.
    pub fn is_due(&self, now: Instant) -> bool {
        self.retry.is_none_or(|retry| retry <= now)
    }

    /// Returns true if frames arrive.
    pub fn is_flowing(&self) -> bool {
        self.flowing.is_some()
    }

    /// Returns true if no frame has arrived for a moment.
    pub fn is_silent(&self, now: Instant) -> bool {
        self.flowing.is_none() || now.saturating_duration_since(self.seen.1) > SILENCE
    }

    /// Checks the number of frames delivered so far. `must_deliver` is false while silence is normal.
    pub fn check(&mut self, frames: u64, must_deliver: bool, now: Instant) -> Change {
        if self.retry.is_some() {
            return Change::None;
        }
        if frames != self.seen.0 {
            self.seen = (frames, now);
            self.flowing.get_or_insert(now);
        } else if now.saturating_duration_since(self.seen.1) > self.stall {
            self.flowing = None;
            if must_deliver {
                return Change::Stalled;
            }
        }
        let settled = self.flowing.is_some_and(|since| now.saturating_duration_since(since) >= SETTLED);
        if !settled {
            return Change::None;
        }
        self.backoff.reset();
        self.outage.take().map_or(Change::None, |outage| Change::Recovered {
            after: now.saturating_duration_since(outage.since),
            attempts: outage.attempts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(5);
    const TICK: Duration = Duration::from_millis(200);

    /// Reported changes of a source.
    #[derive(Debug, Default, PartialEq)]
    struct Reported {
        outages: u64,
        retries: u64,
        recovered: Vec<Change>,
    }

    /// Simulates a source through phases: seconds, and if it delivers in them.
    fn watch(phases: &[(u64, bool)]) -> Reported {
        let mut now = Instant::now();
        let mut health = Health::new(STALL, Duration::from_secs(60), now);
        let (mut frames, mut reported) = (0, Reported::default());
        for (seconds, delivers) in phases {
            for _ in 0..seconds * 5 {
                now += TICK;
                frames += u64::from(*delivers);
                match health.check(frames, true, now) {
                    Change::Stalled => reported.outages += u64::from(health.failed(now)),
                    Change::None if health.is_down() && health.is_due(now) && health.retry.is_some() => {
                        health.started(frames, now);
                        reported.retries += 1;
                    }
                    Change::None => {}
                    recovered => reported.recovered.push(recovered),
                }
            }
        }
        reported
    }

    #[test]
    fn a_source_that_delivers_is_left_alone() {
        assert_eq!(watch(&[(1000, true)]), Reported::default());
        assert_eq!(watch(&[(10, true), (4, false), (10, true)]), Reported::default());
    }

    #[test]
    fn a_night_without_the_source_is_one_outage() {
        let reported = watch(&[(10, true), (36_000, false), (100, true)]);
        assert_eq!(reported.outages, 1);
        assert!((500..1200).contains(&reported.retries), "{reported:?}");
        let [Change::Recovered { after, attempts }] = reported.recovered[..] else { panic!("{reported:?}") };
        assert!(after.as_secs() > 36_000 && attempts == reported.retries, "{reported:?}");
    }

    #[test]
    fn a_source_that_comes_and_goes_is_one_outage_until_it_stays() {
        assert_eq!(watch(&[(5, true), (10, false)].repeat(20)).outages, 1);
        assert_eq!(watch(&[(90, true), (10, false)].repeat(20)).outages, 20);
    }
}
