// SPDX-License-Identifier: MPL-2.0

//! Whether the machine has any computing time left: frames that are missing where it has none are not the fault of those
//! who sent them.
//!
//! Two figures of the kernel tell, once a second: how much of the time the CPUs were idle, and how much of it this process
//! took. The second one counts where the process may use fewer CPUs than there are, as in a container.
//!
//! Both are of all streams of a process, which look only once between them: the kernel adds the second one up over all threads,
//! and 440 streams have 3,500.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// What was so before a pause as long as this, in which no stream played, says nothing of the present.
const LONG: Duration = Duration::from_secs(3);
/// Share of the computing time that is as good as nothing.
const LITTLE: f64 = 0.05;
/// Ticks of a second in `/proc`, on every architecture of Linux.
const TICKS: f64 = 100.0;

/// What the kernel has counted up to a moment, in seconds.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    /// Idle time of all CPUs together.
    idle: f64,
    /// Computing time of this process.
    own: f64,
}

impl Reading {
    /// From `/proc/uptime` and `/proc/self/stat`.
    fn parse(at: Instant, uptime: &str, stat: &str) -> Option<Self> {
        let idle = uptime.split_whitespace().nth(1)?.parse().ok()?;
        // The name of the program may have spaces and brackets; what follows it is counted from the third field on.
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

/// Whether there was no computing time left in the last second or two. To be asked often: it looks once a second. Where the
/// kernel does not tell, there is always time left.
pub fn is_exhausted(now: Instant) -> bool {
    static LOAD: LazyLock<Mutex<Load>> = LazyLock::new(Mutex::default);
    static EXHAUSTED: AtomicBool = AtomicBool::new(false);
    // Nobody waits for somebody else to look.
    if let Ok(mut load) = LOAD.try_lock() {
        EXHAUSTED.store(load.is_exhausted(now), Ordering::Relaxed);
    }
    EXHAUSTED.load(Ordering::Relaxed)
}

/// The load of the machine.
#[derive(Debug)]
struct Load {
    /// CPUs that this process may use.
    cpus: f64,
    last: Option<Reading>,
    /// Nothing was left between the last looks.
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

    /// What is said for each second, of idle time and of this process's time.
    fn seconds(cpus: usize, times: &[(f64, f64)]) -> Vec<bool> {
        let mut load = Load { cpus: cpus as f64, ..Load::default() };
        let mut reading = Reading { at: Instant::now(), idle: 1000.0, own: 10.0 };
        load.take(reading);
        let said = times.iter().map(|(idle, own)| {
            let Reading { at, idle: before, own: spent } = reading;
            reading = Reading { at: at + INTERVAL, idle: before + idle, own: spent + own };
            load.take(reading);
            // Not due again.
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
        // A minute later, of which most was idle.
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
