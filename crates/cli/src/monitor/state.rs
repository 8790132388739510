// SPDX-License-Identifier: MPL-2.0

//! What is known about the renditions: from the element's messages and statistics, for whoever shows it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use gst::ClockTime;
use gsthipvmaf::event::{Event, EventMessage, EventState};
use gsthipvmaf::message::PooledMessage;
use serde::Serialize;

/// Points to keep of each rendition: ten minutes at one per second.
const POINTS: usize = 600;
/// Events to keep.
const EVENTS: usize = 200;

pub type Shared = Arc<Mutex<State>>;

/// What a thread that died has left behind can still be shown.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct State {
    pub model: String,
    /// `cpu` or `hip`, and the name of the GPU.
    pub backend: String,
    /// Running time in seconds.
    pub now: f64,
    pub alarm_low: Option<f64>,
    pub reference: Stream,
    pub renditions: Vec<Stream>,
    /// The newest first.
    pub events: VecDeque<Entry>,
    /// How many events there have been.
    pub event_count: u64,
}

/// The reference or a rendition.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stream {
    pub label: String,
    pub pad: String,
    pub source: String,
    pub status: Status,
    pub restarts: u64,
    pub counts: Counts,
    /// Alarms that have been raised so far, and whether they still are.
    pub alarms: BTreeMap<&'static str, bool>,
    /// By how many milliseconds the video is late, if that was looked for and found.
    pub offset: Option<f64>,
    pub last: Option<Point>,
    pub history: VecDeque<Point>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    #[default]
    Starting,
    Running,
    /// Failed, to be tried again.
    Down,
}

/// Frames since the start by what became of them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    pub scored: u64,
    pub unpaired: u64,
    pub skipped: u64,
    pub unmatched: u64,
}

/// A window. Without scores, they are not a number.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// Running time of its end, in seconds.
    pub time: f64,
    pub mean: f64,
    pub min: f64,
    pub p5: f64,
    /// An alarm was raised at its end.
    pub alarm: bool,
}

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Seconds since 1970.
    pub time: f64,
    pub label: String,
    pub kind: &'static str,
    /// `raised`, `cleared` or `info`.
    pub state: &'static str,
    pub text: String,
}

impl Stream {
    pub fn alarmed(&self) -> bool {
        self.alarms.values().any(|raised| *raised)
    }

    /// The alarms that are raised now.
    pub fn raised(&self) -> Vec<&'static str> {
        self.alarms.iter().filter(|(_, raised)| **raised).map(|(name, _)| *name).collect()
    }
}

impl State {
    /// The reference or the rendition of a pad.
    pub fn stream(&mut self, pad: &str) -> Option<&mut Stream> {
        std::iter::once(&mut self.reference).chain(&mut self.renditions).find(|stream| stream.pad == pad)
    }

    /// Takes a window of a rendition.
    pub fn window(&mut self, window: &PooledMessage) {
        let Some(stream) = self.stream(&window.pad) else { return };
        let point = Point {
            time: window.running_time.unwrap_or_default().mseconds() as f64 / 1e3,
            mean: window.score,
            min: window.stats.min,
            p5: window.stats.p5,
            alarm: stream.alarmed(),
        };
        stream.last = Some(point);
        stream.history.push_back(point);
        if stream.history.len() > POINTS {
            stream.history.pop_front();
        }
    }

    /// Takes an event of the element.
    pub fn event(&mut self, event: &EventMessage) {
        let Some(stream) = self.stream(&event.pad) else { return };
        match event.state {
            EventState::Raised | EventState::Cleared => {
                stream.alarms.insert(event.event.name(), event.state == EventState::Raised);
            }
            EventState::Info => {}
        }
        let offset = event.offset.map(|offset| offset as f64 / 1e6);
        if event.event == Event::Alignment {
            stream.offset = offset;
        }
        let seconds = |time: Option<ClockTime>| time.unwrap_or_default().mseconds() as f64 / 1e3;
        let text = match (event.event, event.value, event.threshold, event.count) {
            (Event::Mispaired, ..) => {
                format!("from {:.1} to {:.1} s", seconds(event.since), seconds(event.running_time))
            }
            (_, Some(confidence), None, _) if offset.is_some() => {
                format!("{:+.0} ms, confidence {confidence:.2}", offset.unwrap_or_default())
            }
            (_, Some(value), Some(threshold), _) => format!("{value:.2}, threshold {threshold}"),
            (.., Some(1)) => "1 frame".into(),
            (.., Some(count)) => format!("{count} frames"),
            _ => event.reason.clone().unwrap_or_default(),
        };
        let label = stream.label.clone();
        self.note(&label, event.event.name(), event.state.name(), text);
    }

    /// Notes that something has happened.
    pub fn note(&mut self, label: &str, kind: &'static str, state: &'static str, text: String) {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        self.events.push_front(Entry { time, label: label.into(), kind, state, text });
        self.events.truncate(EVENTS);
        self.event_count += 1;
    }

    /// A copy of the state without the windows that ended up to a running time in seconds.
    pub fn since(&self, time: f64) -> Self {
        let mut state = self.clone();
        for stream in &mut state.renditions {
            stream.history.retain(|point| point.time > time);
        }
        state
    }

    /// What the element does not know, for Prometheus.
    pub fn metrics(&self) -> String {
        let mut text = String::from(
            "# HELP hipvmaf_source_restarts_total How often a source was started again.\n\
             # TYPE hipvmaf_source_restarts_total counter\n",
        );
        for stream in std::iter::once(&self.reference).chain(&self.renditions) {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "hipvmaf_source_restarts_total{{pad=\"{}\",label={:?}}} {}",
                stream.pad, stream.label, stream.restarts
            );
        }
        text
    }
}
