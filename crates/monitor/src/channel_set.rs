// SPDX-License-Identifier: MPL-2.0

//! All channels that are watched, and what has to happen when they are to be others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use std::{fmt, io};

use super::channel::{Thread, Watched};
use super::config::Channel;
use super::evidence::Evidence;
use super::state::{Shared, lock};

/// How long to wait for channels when the program ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// The channels, in the order in which they were written down. What has one sees channels come and go.
#[derive(Clone)]
pub struct Fleet {
    channels: Arc<Mutex<Vec<Watched>>>,
    /// Where elements write their figures for Prometheus.
    folder: Arc<tempfile::TempDir>,
    /// How many were started.
    count: Arc<AtomicU64>,
    evidence: Evidence,
    measure: bool,
}

/// What a change of the channels has come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub started: Vec<String>,
    pub stopped: Vec<String>,
    /// Stopped and started with other settings.
    pub changed: Vec<String>,
}

impl Fleet {
    /// None so far. `measure` is whether latencies are to be measured.
    pub fn new(evidence: Evidence, measure: bool) -> io::Result<Self> {
        let folder = Arc::new(tempfile::tempdir()?);
        Ok(Self { channels: Arc::default(), folder, count: Arc::default(), evidence, measure })
    }

    /// Has these channels watched and no others. Those that are watched already, and as they are to be, are left alone.
    pub fn set(&self, wanted: Vec<Channel>) -> io::Result<Changes> {
        let mut channels = lock(&self.channels);
        let mut old = std::mem::take(&mut *channels);
        let mut changes = Changes::default();
        for channel in wanted {
            let at = old.iter().position(|watched| watched.channel.name == channel.name);
            let before = at.map(|at| old.remove(at));
            if let Some(watched) = before.as_ref()
                && watched.channel == channel
            {
                channels.extend(before);
                continue;
            }
            let list = if before.is_some() { &mut changes.changed } else { &mut changes.started };
            list.push(channel.name.clone());
            channels.push(self.start(channel, before.map(Watched::stop))?);
        }
        for watched in old {
            changes.stopped.push(watched.channel.name.clone());
            watched.stop();
        }
        Ok(changes)
    }

    fn start(&self, channel: Channel, before: Option<Thread>) -> io::Result<Watched> {
        // A name of its own: the thread before removes its file when it ends.
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let metrics = self.folder.path().join(format!("{number}.prom"));
        Watched::start(channel, metrics, self.evidence.clone(), self.measure, before)
    }

    /// The states of all channels.
    pub fn states(&self) -> Vec<Shared> {
        lock(&self.channels).iter().map(|watched| watched.state.clone()).collect()
    }

    /// The state of a channel.
    pub fn state(&self, name: &str) -> Option<Shared> {
        lock(&self.channels).iter().find(|watched| watched.channel.name == name).map(|w| w.state.clone())
    }

    /// The figures for Prometheus that elements have written, with the name of the channel.
    pub fn figures(&self) -> Vec<(String, String)> {
        let paths: Vec<_> =
            lock(&self.channels).iter().map(|w| (w.channel.name.clone(), w.metrics.clone())).collect();
        let read = |(name, path)| Some((name, std::fs::read_to_string(path).ok()?));
        paths.into_iter().filter_map(read).collect()
    }

    /// Whether there is nothing left to watch.
    pub fn has_ended(&self) -> bool {
        lock(&self.channels).iter().all(Watched::has_ended)
    }

    /// Ends all. The tables of latencies, if these were to be measured.
    pub fn stop(&self) -> Vec<String> {
        let threads: Vec<_> = lock(&self.channels).drain(..).map(Watched::stop).collect();
        let end = Instant::now() + PATIENCE;
        while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < end {
            thread::sleep(Duration::from_millis(20));
        }
        let ended = threads.into_iter().filter(|thread| thread.is_finished());
        ended.filter_map(|thread| thread.join().ok().flatten()).collect()
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let parts = [("started", &self.started), ("changed", &self.changed), ("stopped", &self.stopped)];
        let parts: Vec<_> = parts
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{what}: {}", names.join(", ")))
            .collect();
        match parts.is_empty() {
            true => f.write_str("the channels were read again, nothing has changed"),
            false => write!(f, "the channels were read again; {}", parts.join("; ")),
        }
    }
}
