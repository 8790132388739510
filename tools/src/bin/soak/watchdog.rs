// SPDX-License-Identifier: MPL-2.0

//! Ends the program when nothing makes progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The limit without progress, above that of any step, even on a busy machine.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);

/// A watchdog, which ends the program unless it is fed.
pub struct Watchdog {
    fed: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

impl Watchdog {
    /// Starts a watchdog for a part of the program.
    pub fn new(part: &'static str) -> Self {
        let dog = Self { fed: Arc::default(), ended: Arc::default() };
        let (fed, ended) = (dog.fed.clone(), dog.ended.clone());
        thread::spawn(move || {
            let mut seen = (0, Instant::now());
            while !ended.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(500));
                let now = fed.load(Ordering::Relaxed);
                if now != seen.0 {
                    seen = (now, Instant::now());
                }
                if seen.1.elapsed() > PROGRESS_TIMEOUT {
                    // A hanging thread cannot be stopped. A core dump or GST_DEBUG shows where it hangs.
                    eprintln!("error: {part}: nothing has happened for {} s", PROGRESS_TIMEOUT.as_secs());
                    std::process::abort();
                }
            }
        });
        dog
    }

    pub fn feed(&self) {
        self.fed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}
