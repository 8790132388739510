// SPDX-License-Identifier: MPL-2.0

//! Signals, and what systemd is told. Without systemd nobody is told anything.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// The process as a service.
pub struct Service {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    /// How long systemd waits for a sign of life, if it does.
    watchdog: Option<Duration>,
    /// When it was given last.
    told: Option<Instant>,
}

impl Service {
    /// Catches signals from now on: SIGINT and SIGTERM, of which the second one ends the program at once, and SIGHUP.
    pub fn watch() -> io::Result<Self> {
        let [stop, reload] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal is not yet the second.
            flag::register_conditional_default(signal, stop.clone())?;
            flag::register(signal, stop.clone())?;
        }
        flag::register(SIGHUP, reload.clone())?;
        Ok(Self { stop, reload, watchdog: sd_notify::watchdog_enabled(), told: None })
    }

    pub fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether SIGHUP has come since this was asked last.
    pub fn is_to_reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }

    pub fn ready(&self) {
        tell(&[NotifyState::Ready]);
    }

    pub fn reloading(&self) {
        // Newer versions of systemd want to know when.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(_) => tell(&[NotifyState::Reloading]),
        }
    }

    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// The main loop has come by.
    pub fn alive(&mut self) {
        let is_time = |within: Duration| self.told.is_none_or(|told| told.elapsed() > within / 3);
        if self.watchdog.is_some_and(is_time) {
            self.told = Some(Instant::now());
            tell(&[NotifyState::Watchdog]);
        }
    }
}

fn tell(states: &[NotifyState]) {
    // Nothing depends on whether it is heard.
    let _ = sd_notify::notify(states);
}
