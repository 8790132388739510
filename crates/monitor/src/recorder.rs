// SPDX-License-Identifier: MPL-2.0

//! Takes what is new in the channels into the history, each second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::history::History;
use super::news::News;
use super::state::{Entry, Point, wall_clock};

const INTERVAL: Duration = Duration::from_secs(1);
const PRUNED: Duration = Duration::from_secs(600);

/// What is still to be written.
pub struct Recorder {
    history: Arc<History>,
    points: Vec<(String, String, Point)>,
    events: Vec<(String, Entry)>,
    written: Instant,
    pruned: Option<Instant>,
    /// The history could not be written last time.
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

    /// Takes what is new, and writes it if the last time was a while ago.
    pub fn record(&mut self, news: &[News]) {
        for News { channel, windows, events, .. } in news {
            let points = windows.iter().map(|window| (channel.clone(), window.label.clone(), window.point));
            self.points.extend(points);
            self.events.extend(events.iter().map(|event| (channel.clone(), event.clone())));
        }
        if self.written.elapsed() >= INTERVAL {
            self.flush();
        }
    }

    /// Writes what was taken. What cannot be written is lost, and scoring goes on.
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
            eprintln!("error: cannot write the history, and go on without: {error}");
        }
        self.failing = result.is_err();
    }
}
