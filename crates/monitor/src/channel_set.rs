// SPDX-License-Identifier: MPL-2.0

//! The set of channels, and how it changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use std::{fmt, io};

use parking_lot::Mutex;

use super::alarm_files::AlarmFiles;
use super::alarms::Alarm;
use super::channel::Watched;
use super::settings::Channel;
use super::state::Shared;

/// Longest wait for the channels at the end of the program.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The channels in the order of their definition. Clones share them.
#[derive(Clone)]
pub struct ChannelSet {
    channels: Arc<Mutex<Vec<Watched>>>,
    /// Alarms, by channel, that the last run of the program did not end.
    resumed: Arc<Mutex<BTreeMap<String, Vec<Alarm>>>>,
    alarm_files: AlarmFiles,
    measure: bool,
}

/// Names of the channels that a reload has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub started: Vec<String>,
    pub stopped: Vec<String>,
    /// Restarted with new settings.
    pub changed: Vec<String>,
    /// Went on with new settings.
    pub adapted: Vec<String>,
}

impl ChannelSet {
    /// Creates an empty set. With `measure`, latencies are measured.
    pub fn new(alarm_files: AlarmFiles, resumed: BTreeMap<String, Vec<Alarm>>, measure: bool) -> Self {
        Self { channels: Arc::default(), resumed: Arc::new(Mutex::new(resumed)), alarm_files, measure }
    }

    /// Watches these channels and no others. Channels with unchanged settings continue.
    pub fn set(&self, wanted: Vec<Channel>) -> io::Result<Changes> {
        let mut channels = self.channels.lock();
        let mut old = std::mem::take(&mut *channels);
        let mut changes = Changes::default();
        for channel in wanted {
            let at = old.iter().position(|watched| watched.channel().name == channel.name);
            let before = at.map(|at| old.remove(at));
            if let Some(watched) = before.as_ref()
                && watched.channel().can_become(&channel)
            {
                if watched.channel() != channel {
                    changes.adapted.push(channel.name.clone());
                    watched.adapt(channel);
                }
                channels.extend(before);
                continue;
            }
            let list = if before.is_some() { &mut changes.changed } else { &mut changes.started };
            list.push(channel.name.clone());
            let before = before.map(Watched::stop);
            let alarms = self.resumed.lock().remove(&channel.name).unwrap_or_default();
            channels.push(Watched::start(channel, self.alarm_files.clone(), alarms, self.measure, before)?);
        }
        for watched in old {
            changes.stopped.push(watched.channel().name);
            watched.stop();
        }
        Ok(changes)
    }

    /// Returns the states of all channels.
    pub fn states(&self) -> Vec<Shared> {
        self.channels.lock().iter().map(|watched| watched.state.clone()).collect()
    }

    /// Returns the state of a channel.
    pub fn state(&self, name: &str) -> Option<Shared> {
        self.channels.lock().iter().find(|watched| watched.channel().name == name).map(|w| w.state.clone())
    }

    /// Returns true if every channel has ended.
    pub fn has_ended(&self) -> bool {
        self.channels.lock().iter().all(Watched::has_ended)
    }

    /// Stops all channels. Returns the tables of latencies, if these were measured.
    pub fn stop(&self) -> Vec<String> {
        let threads: Vec<_> = self.channels.lock().drain(..).map(Watched::stop).collect();
        let end = Instant::now() + STOP_TIMEOUT;
        while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < end {
            thread::sleep(Duration::from_millis(20));
        }
        let ended = threads.into_iter().filter(|thread| thread.is_finished());
        ended.filter_map(|thread| thread.join().ok().flatten()).collect()
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let parts = [
            ("started", &self.started),
            ("restarted", &self.changed),
            ("changed", &self.adapted),
            ("stopped", &self.stopped),
        ];
        let parts: Vec<_> = parts
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{what}: {}", names.join(", ")))
            .collect();
        match parts.is_empty() {
            true => f.write_str("channels reloaded, nothing changed"),
            false => write!(f, "channels reloaded; {}", parts.join("; ")),
        }
    }
}
