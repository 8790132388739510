// SPDX-License-Identifier: MPL-2.0

//! Signals, and notifications to systemd. Without systemd these do nothing.

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
    /// Watchdog timeout of systemd, if it is enabled.
    watchdog: Option<Duration>,
    /// Time of the last watchdog notification.
    last_ping: Option<Instant>,
}

impl Service {
    /// Handles signals from now on: SIGINT and SIGTERM, the second of which ends the program at once, and SIGHUP.
    pub fn watch() -> io::Result<Self> {
        let [stop, reload] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            // In this order, so that the first signal does not count as the second.
            flag::register_conditional_default(signal, stop.clone())?;
            flag::register(signal, stop.clone())?;
        }
        flag::register(SIGHUP, reload.clone())?;
        Ok(Self { stop, reload, watchdog: sd_notify::watchdog_enabled(), last_ping: None })
    }

    pub fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns true if SIGHUP arrived since the last call.
    pub fn is_to_reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }

    pub fn ready(&self) {
        notify(&[NotifyState::Ready]);
    }

    pub fn reloading(&self) {
        // Newer versions of systemd require the time.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => notify(&[NotifyState::Reloading, now]),
            Err(_) => notify(&[NotifyState::Reloading]),
        }
    }

    pub fn stopping(&self) {
        notify(&[NotifyState::Stopping]);
    }

    /// Notifies the watchdog that the main loop runs.
    pub fn alive(&mut self) {
        let is_time =
            |within: Duration| self.last_ping.is_none_or(|reported| reported.elapsed() > within / 3);
        if self.watchdog.is_some_and(is_time) {
            self.last_ping = Some(Instant::now());
            notify(&[NotifyState::Watchdog]);
        }
    }
}

fn notify(states: &[NotifyState]) {
    // Nothing depends on the notification.
    let _ = sd_notify::notify(states);
}
