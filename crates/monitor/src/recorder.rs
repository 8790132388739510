// SPDX-License-Identifier: MPL-2.0

//! Writes updates into the history, once a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::history::History;
use super::state::{Entry, Point, wall_clock};
use super::updates::Update;

const INTERVAL: Duration = Duration::from_secs(1);
const PRUNED: Duration = Duration::from_secs(600);

/// Updates to be written.
pub struct Recorder {
    history: Arc<History>,
    points: Vec<(String, String, Point)>,
    events: Vec<(String, Entry)>,
    written: Instant,
    pruned: Option<Instant>,
    /// The last write failed.
    failing: bool,
}

impl Recorder {
    pub fn new(history: Arc<History>) -> Self {
        Self {
            history,
            points: vec![],
            events: vec![],
            written: Instant::now(),
            pruned: None,
            failing: false,
        }
    }

    /// Collects updates, and writes them if the last write was long enough ago.
    pub fn record(&mut self, updates: &[Update]) {
        for Update { channel, windows, events, .. } in updates {
            let points = windows.iter().map(|window| (channel.clone(), window.label.clone(), window.point));
            self.points.extend(points);
            self.events.extend(events.iter().map(|event| (channel.clone(), event.clone())));
        }
        if self.written.elapsed() >= INTERVAL {
            self.flush();
        }
    }

    /// Writes the collected updates. If this fails they are lost, and scoring continues.
    pub fn flush(&mut self) {
        self.written = Instant::now();
        let mut result = self.history.record(&self.points, &self.events);
        self.points.clear();
        self.events.clear();
        if self.pruned.is_none_or(|last| last.elapsed() > PRUNED) {
            self.pruned = Some(Instant::now());
            result = result.and_then(|()| self.history.prune(wall_clock()));
        }
        if let Err(error) = &result
            && !self.failing
        {
            eprintln!("error: cannot write the history, so the latest scores are not kept: {error}");
        }
        self.failing = result.is_err();
    }
}
