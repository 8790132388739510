// SPDX-License-Identifier: MPL-2.0

//! Takes what is new in the channels into the history, each second.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::history::History;
use super::state::{Entry, Point, Shared, lock, wall_clock};

const INTERVAL: Duration = Duration::from_secs(1);
const PRUNED: Duration = Duration::from_secs(600);

/// What was taken so far.
pub struct Recorder {
    history: Arc<History>,
    /// By the address of the state, as a channel that is changed has another under the same name.
    seen: HashMap<usize, Seen>,
    points: Vec<(String, String, Point)>,
    events: Vec<(String, Entry)>,
    written: Instant,
    pruned: Option<Instant>,
    /// The history could not be written last time.
    failing: bool,
}

/// How much of a channel was taken.
#[derive(Clone, Default)]
struct Seen {
    events: u64,
    /// When the last window ended, by rendition.
    times: Vec<f64>,
}

impl Recorder {
    pub fn new(history: Arc<History>) -> Self {
        Self {
            history,
            seen: HashMap::new(),
            points: vec![],
            events: vec![],
            written: Instant::now(),
            pruned: None,
            failing: false,
        }
    }

    /// Takes what is new, and writes it if the last time was a while ago. The events among it, with their channels.
    pub fn record(&mut self, states: &[Shared]) -> Vec<(String, Entry)> {
        let mut events = vec![];
        let mut seen = HashMap::new();
        for shared in states {
            let address = Arc::as_ptr(shared).addr();
            let state = lock(shared);
            let mut last = self.seen.remove(&address).unwrap_or_default();
            last.times.resize(state.renditions.len(), f64::NEG_INFINITY);
            for (stream, time) in state.renditions.iter().zip(&mut last.times) {
                let new = stream.history.iter().filter(|point| point.time > *time);
                self.points.extend(new.map(|point| (state.name.clone(), stream.label.clone(), *point)));
                *time = stream.history.back().map_or(*time, |point| point.time);
            }
            events.extend(state.events_since(last.events).map(|event| (state.name.clone(), event.clone())));
            last.events = state.event_count;
            seen.insert(address, last);
        }
        self.seen = seen;
        self.events.extend_from_slice(&events);
        if self.written.elapsed() >= INTERVAL {
            self.flush();
        }
        events
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
