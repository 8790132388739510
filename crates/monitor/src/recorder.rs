// SPDX-License-Identifier: MPL-2.0

//! Writes updates into the history, once a second, on a thread of its own: a slow disk delays nothing else.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::alarms::Alarm;
use super::history::History;
use super::settings::Channel;
use super::state::wall_clock;
use super::updates::Update;

const INTERVAL: Duration = Duration::from_secs(1);
const PRUNED: Duration = Duration::from_secs(600);
/// Longest wait for the last write.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Prefix of the names of active alarms.
const ALARMS: &str = "alarms/";

/// Keeps the active alarms of a channel for the next run of the program.
fn keep_alarms(history: &History, channel: &str, alarms: &[Alarm]) {
    // Alarms can be represented in JSON.
    let value =
        Some(alarms).filter(|alarms| !alarms.is_empty()).and_then(|alarms| serde_json::to_vec(alarms).ok());
    history.keep_value(format!("{ALARMS}{channel}"), value);
}

/// Returns the alarms, by channel, that the last run of the program did not end. Those of channels that are gone are removed.
pub fn resumed(history: &History, channels: &[Channel]) -> BTreeMap<String, Vec<Alarm>> {
    let kept = history.kept_values(ALARMS).unwrap_or_else(|error| {
        eprintln!("error: the active alarms of the last run cannot be read: {error}");
        vec![]
    });
    let mut resumed = BTreeMap::new();
    for (name, value) in kept {
        let channel = name[ALARMS.len()..].to_owned();
        match serde_json::from_slice(&value) {
            Ok(alarms) if channels.iter().any(|wanted| wanted.name == channel) => {
                resumed.insert(channel, alarms);
            }
            _ => history.keep_value(name, None),
        }
    }
    resumed
}

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
        for Update { channel, windows, events, alarms, values, .. } in updates {
            let points = windows.iter().map(|window| (channel.clone(), window.label.clone(), window.point));
            self.history.add(points, events.iter().map(|event| (channel.clone(), event.clone())));
            self.history.add_values(channel, values);
            if let Some(alarms) = alarms {
                keep_alarms(&self.history, channel, alarms);
            }
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
