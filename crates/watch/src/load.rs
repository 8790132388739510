// SPDX-License-Identifier: MPL-2.0

//! Detects that the machine has no computing time left, because frames missing for this reason are not the fault of
//! their sources.
//!
//! Once per second it reads two values from the kernel: the idle time of the CPUs, and the time used by this process.
//! The second one matters if the process may use only some of the CPUs, as in a container.
//!
//! Both values are common to all streams of a process, which read them only once between them: the kernel sums the
//! second one over all threads, and 440 streams have 3,500.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Interval of the readings.
const INTERVAL: Duration = Duration::from_secs(1);
/// After a pause as long as this without any stream, older readings say nothing about the present.
const LONG: Duration = Duration::from_secs(3);
/// Share of the computing time below which none is left.
const LITTLE: f64 = 0.05;
/// Ticks per second in `/proc`, on every architecture of Linux.
const TICKS: f64 = 100.0;

/// Values of the kernel at one moment, in seconds.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    /// Idle time of all CPUs.
    idle: f64,
    /// Computing time of this process.
    own: f64,
}

impl Reading {
    /// Parses `/proc/uptime` and `/proc/self/stat`.
    fn parse(at: Instant, uptime: &str, stat: &str) -> Option<Self> {
        let idle = uptime.split_whitespace().nth(1)?.parse().ok()?;
        // The program name may contain spaces and brackets; the fields after it begin with the third.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<_> = fields.split_whitespace().collect();
        let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
        Some(Self { at, idle, own: (ticks(14)? + ticks(15)?) / TICKS })
    }

    fn now(at: Instant) -> Option<Self> {
        let read = |path| fs::read_to_string(path).ok();
        Self::parse(at, &read("/proc/uptime")?, &read("/proc/self/stat")?)
    }
}

/// Returns true if there was no computing time left in the last second or two. Call it often: it reads once per
/// second. If the kernel gives no values, there is always time left.
pub fn is_exhausted(now: Instant) -> bool {
    static LOAD: LazyLock<Mutex<Load>> = LazyLock::new(Mutex::default);
    static EXHAUSTED: AtomicBool = AtomicBool::new(false);
    // Callers do not wait for another thread's reading.
    if let Ok(mut load) = LOAD.try_lock() {
        EXHAUSTED.store(load.is_exhausted(now), Ordering::Relaxed);
    }
    EXHAUSTED.load(Ordering::Relaxed)
}

/// Load of the machine.
#[derive(Debug)]
struct Load {
    /// CPUs that this process may use.
    cpus: f64,
    last: Option<Reading>,
    /// No time was left between the latest readings.
    exhausted: [bool; 2],
}

impl Default for Load {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { cpus: cpus as f64, last: None, exhausted: [false; 2] }
    }
}

impl Load {
    fn is_exhausted(&mut self, now: Instant) -> bool {
        if self.last.is_none_or(|last| now.saturating_duration_since(last.at) >= INTERVAL)
            && let Some(reading) = Reading::now(now)
        {
            self.take(reading);
        }
        self.exhausted.contains(&true)
    }

    fn take(&mut self, reading: Reading) {
        if let Some(last) = self.last.replace(reading) {
            let passed = reading.at.saturating_duration_since(last.at);
            let all = self.cpus * passed.as_secs_f64();
            let (idle, own) = (reading.idle - last.idle, reading.own - last.own);
            let before = self.exhausted[0] && passed < LONG;
            self.exhausted = [idle < LITTLE * all || own > (1.0 - LITTLE) * all, before];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "42 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 8 0 123 456 789";

    #[test]
    fn the_kernel_is_understood() {
        let now = Instant::now();
        let reading = Reading::parse(now, "23717.73 15071.05\n", STAT).unwrap();
        assert_eq!((reading.idle, reading.own), (15071.05, 2.0));
        for (uptime, stat) in [("", STAT), ("1 x", STAT), ("1 2", ""), ("1 2", "42 (a) S 1 2")] {
            assert!(Reading::parse(now, uptime, stat).is_none(), "{uptime:?} {stat:?}");
        }
        if cfg!(target_os = "linux") {
            assert!(Reading::now(now).is_some());
        }
    }

    /// Returns the result for each second, from idle time and this process's time.
    fn seconds(cpus: usize, times: &[(f64, f64)]) -> Vec<bool> {
        let mut load = Load { cpus: cpus as f64, ..Load::default() };
        let mut reading = Reading { at: Instant::now(), idle: 1000.0, own: 10.0 };
        load.take(reading);
        let said = times.iter().map(|(idle, own)| {
            let Reading { at, idle: before, own: spent } = reading;
            reading = Reading { at: at + INTERVAL, idle: before + idle, own: spent + own };
            load.take(reading);
            // Not due yet.
            load.is_exhausted(reading.at + INTERVAL / 2)
        });
        said.collect()
    }

    #[test]
    fn what_was_before_a_pause_does_not_count() {
        let mut load = Load { cpus: 1.0, ..Load::default() };
        let at = Instant::now();
        let mut take = |seconds, idle| load.take(Reading { at: at + seconds * INTERVAL, idle, own: 0.0 });
        take(0, 0.0);
        take(1, 0.0);
        // A minute later, mostly idle.
        take(61, 50.0);
        assert_eq!(load.exhausted, [false; 2]);
    }

    #[test]
    fn no_time_is_left_where_nothing_is_idle_or_all_is_ours() {
        assert_eq!(seconds(2, &[(1.0, 0.9), (0.05, 0.1), (0.0, 1.9)]), [false, true, true]);
        // Two of many CPUs.
        assert_eq!(seconds(2, &[(60.0, 1.5), (60.0, 1.95)]), [false, true]);
        // For two seconds.
        assert_eq!(seconds(2, &[(0.0, 0.0), (2.0, 0.0), (2.0, 0.0)]), [true, true, false]);
    }
}
