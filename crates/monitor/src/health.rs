// SPDX-License-Identifier: MPL-2.0

//! Whether a source delivers, and when to try again one that does not.
//!
//! An outage begins with the first failure and is over once frames have come for a while. However often the source is tried
//! in between, it is told twice: a source that is gone for a night does not push everything else out of the list of events.

use std::time::{Duration, Instant};

use super::backoff::Backoff;

/// How long frames have to come before a source counts as well again.
pub const SETTLED: Duration = Duration::from_secs(10);

/// What a look at a source has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    None,
    /// It has delivered nothing for too long.
    Stalled,
    /// An outage is over, that has begun so long ago, and in which the source was tried so often.
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

/// What is known of a source's health.
#[derive(Debug)]
pub struct Health {
    stall: Duration,
    backoff: Backoff,
    outage: Option<Outage>,
    /// When to try again.
    retry: Option<Instant>,
    /// Number of frames when last looked, and since when it is that.
    seen: (u64, Instant),
    /// Since when frames come.
    flowing: Option<Instant>,
}

impl Health {
    /// Of a source that has stalled when it delivers nothing for `stall`, and is tried again after pauses of up to `retry`.
    pub fn new(stall: Duration, retry: Duration, now: Instant) -> Self {
        Self { stall, backoff: Backoff::new(retry), outage: None, retry: None, seen: (0, now), flowing: None }
    }

    /// The source was put in.
    pub fn started(&mut self, frames: u64, now: Instant) {
        self.retry = None;
        self.flowing = None;
        self.seen = (frames, now);
        if let Some(outage) = &mut self.outage {
            outage.attempts += 1;
        }
    }

    /// The source has failed. Whether an outage begins with that.
    pub fn failed(&mut self, now: Instant) -> bool {
        self.retry = Some(now + self.backoff.next_pause());
        self.flowing = None;
        let begins = self.outage.is_none();
        self.outage.get_or_insert(Outage { since: now, attempts: 0 });
        begins
    }

    /// The source has failed, and has delivered nothing since.
    pub fn is_down(&self) -> bool {
        self.outage.is_some() && self.flowing.is_none()
    }

    /// It is time to put the source in, for the first time or again.
    pub fn is_due(&self, now: Instant) -> bool {
        self.retry.is_none_or(|retry| retry <= now)
    }

    /// Frames are coming now.
    pub fn is_flowing(&self) -> bool {
        self.flowing.is_some()
    }

    /// Takes how many frames the source has delivered so far, and whether it is meant to deliver.
    pub fn look(&mut self, frames: u64, must_deliver: bool, now: Instant) -> Change {
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

    /// What was told of a source.
    #[derive(Debug, Default, PartialEq)]
    struct Told {
        outages: u64,
        retries: u64,
        recovered: Vec<Change>,
    }

    /// Watches a source, for so many seconds each in which it delivers or does not.
    fn watch(phases: &[(u64, bool)]) -> Told {
        let mut now = Instant::now();
        let mut health = Health::new(STALL, Duration::from_secs(60), now);
        let (mut frames, mut told) = (0, Told::default());
        for (seconds, delivers) in phases {
            for _ in 0..seconds * 5 {
                now += TICK;
                frames += u64::from(*delivers);
                match health.look(frames, true, now) {
                    Change::Stalled => told.outages += u64::from(health.failed(now)),
                    Change::None if health.is_down() && health.is_due(now) && health.retry.is_some() => {
                        health.started(frames, now);
                        told.retries += 1;
                    }
                    Change::None => {}
                    recovered => told.recovered.push(recovered),
                }
            }
        }
        told
    }

    #[test]
    fn a_source_that_delivers_is_left_alone() {
        assert_eq!(watch(&[(1000, true)]), Told::default());
        assert_eq!(watch(&[(10, true), (4, false), (10, true)]), Told::default());
    }

    #[test]
    fn a_night_without_the_source_is_one_outage() {
        let told = watch(&[(10, true), (36_000, false), (100, true)]);
        assert_eq!(told.outages, 1);
        assert!((500..1200).contains(&told.retries), "{told:?}");
        let [Change::Recovered { after, attempts }] = told.recovered[..] else { panic!("{told:?}") };
        assert!(after.as_secs() > 36_000 && attempts == told.retries, "{told:?}");
    }

    #[test]
    fn a_source_that_comes_and_goes_is_one_outage_until_it_stays() {
        assert_eq!(watch(&[(5, true), (10, false)].repeat(20)).outages, 1);
        assert_eq!(watch(&[(90, true), (10, false)].repeat(20)).outages, 20);
    }
}
