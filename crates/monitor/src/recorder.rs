// SPDX-License-Identifier: MPL-2.0

//! Writes updates into the history, once a second, on a thread of its own: a slow disk delays nothing else.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::history::History;
use super::state::wall_clock;
use super::updates::Update;

const INTERVAL: Duration = Duration::from_secs(1);
const PRUNED: Duration = Duration::from_secs(600);
/// Longest wait for the last write.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The thread that writes.
pub struct Recorder {
    history: Arc<History>,
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Recorder {
    /// Starts the thread.
    pub fn new(history: Arc<History>) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let written = history.clone();
        let thread = thread::Builder::new().name("history".into()).spawn(move || {
            let mut pruned: Option<Instant> = None;
            loop {
                let last = stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout);
                let due = pruned.is_none_or(|pruned| pruned.elapsed() > PRUNED);
                written.write(due.then(wall_clock), last);
                if due {
                    pruned = Some(Instant::now());
                }
                if last {
                    return;
                }
            }
        })?;
        Ok(Self { history, stop, thread })
    }

    /// Adds updates to the history.
    pub fn record(&self, updates: &[Update]) {
        for Update { channel, windows, events, values, .. } in updates {
            let points = windows.iter().map(|window| (channel.clone(), window.label.clone(), window.point));
            self.history.add(points, events.iter().map(|event| (channel.clone(), event.clone())));
            self.history.add_values(channel, values);
        }
    }

    /// Writes the last updates, and ends the thread.
    pub fn close(self) {
        drop(self.stop);
        let end = Instant::now() + CLOSE_TIMEOUT;
        while !self.thread.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
        let left = self.history.shown().waiting;
        if left > 0 {
            eprintln!("error: {left} windows and events could not be written into the history");
        }
    }
}
