// SPDX-License-Identifier: MPL-2.0

//! What is known of a channel: from the element's messages and statistics, for whoever shows it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use gst::ClockTime;
use gsthipvmaf::event::{Event, EventMessage, EventState};
use gsthipvmaf::message::PooledMessage;
use serde::Serialize;

use super::config::Channel;
use super::source::Source;

/// Points to keep of each rendition: five minutes at one per second.
const POINTS: usize = 300;
/// Events to keep.
const EVENTS: usize = 500;

pub type Shared = Arc<Mutex<State>>;

/// What a thread that died has left behind can still be shown.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seconds since 1970.
pub fn wall_clock() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct State {
    pub name: String,
    pub status: Status,
    /// Why the channel is down.
    pub reason: Option<String>,
    /// How often the channel as a whole was started again.
    pub restarts: u64,
    pub model: String,
    /// `cpu` or `hip`, and the name of the GPU.
    pub backend: String,
    pub alarm_low: Option<f64>,
    /// The address that is told of alarms.
    #[serde(skip)]
    pub webhook: Option<String>,
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
    /// Without credentials.
    pub source: String,
    pub status: Status,
    /// Why it is down.
    pub reason: Option<String>,
    /// How often it was started again.
    pub restarts: u64,
    /// How often it has failed, attempts to start it again included.
    pub failures: u64,
    pub counts: Counts,
    /// Alarms that have been raised so far, and whether they still are.
    pub alarms: BTreeMap<&'static str, bool>,
    /// By how many milliseconds the video is late, if that was looked for and found.
    pub offset: Option<f64>,
    /// The worst frame of the last hour of which there is a picture.
    pub worst: Option<Worst>,
    #[serde(skip)]
    pub last: Option<Point>,
    #[serde(skip)]
    pub history: VecDeque<Point>,
}

/// A frame of which there is a picture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// Seconds since 1970.
    pub time: f64,
    pub score: f64,
    /// The number of the picture.
    pub still: u64,
}

/// Of a channel or a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    #[default]
    Starting,
    Running,
    /// Failed, to be tried again.
    Down,
    /// At its end.
    Ended,
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
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// When it ended, in seconds since 1970.
    pub time: f64,
    pub mean: f64,
    pub min: f64,
    pub p5: f64,
    /// An alarm was raised at its end.
    pub alarm: bool,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Seconds since 1970.
    pub time: f64,
    pub label: String,
    pub kind: String,
    /// `raised`, `cleared` or `info`.
    pub state: String,
    pub text: String,
    /// The number of the picture that there is of it.
    pub still: Option<u64>,
}

/// The pad of the element for the rendition with this number.
pub fn pad(rendition: usize) -> String {
    rendition.checked_sub(1).map_or("dist_sink".into(), |i| format!("dist_{i}"))
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Down => "down",
            Self::Ended => "ended",
        }
    }
}

impl Stream {
    pub fn alarmed(&self) -> bool {
        self.alarms.values().any(|raised| *raised)
    }

    /// The alarms that are raised now.
    pub fn raised(&self) -> Vec<&'static str> {
        self.alarms.iter().filter(|(_, raised)| **raised).map(|(name, _)| *name).collect()
    }

    /// The mean of the last window, if it has frames.
    pub fn score(&self) -> Option<f64> {
        self.last.map(|point| point.mean).filter(|score| score.is_finite())
    }
}

impl State {
    pub fn new(channel: &Channel) -> Self {
        let stream = |label: &str, pad: String, source: &Source| Stream {
            label: label.into(),
            pad,
            source: source.to_string(),
            ..Stream::default()
        };
        let renditions = (0..).zip(&channel.renditions);
        let renditions = renditions.map(|(i, named)| stream(&named.label, pad(i), &named.source));
        Self {
            name: channel.name.clone(),
            model: channel.models.first().cloned().unwrap_or_default(),
            alarm_low: channel.alarm_low,
            webhook: channel.webhook.clone(),
            reference: stream("reference", "ref_sink".into(), &channel.reference),
            renditions: renditions.collect(),
            ..Self::default()
        }
    }

    /// The reference, then the renditions.
    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        std::iter::once(&self.reference).chain(&self.renditions)
    }

    /// The reference, then the renditions.
    pub fn streams_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        std::iter::once(&mut self.reference).chain(&mut self.renditions)
    }

    /// The lowest score of a rendition in its last window.
    pub fn score(&self) -> Option<f64> {
        self.renditions.iter().filter_map(Stream::score).min_by(f64::total_cmp)
    }

    /// The reference or the rendition of a pad.
    pub fn stream(&mut self, pad: &str) -> Option<&mut Stream> {
        self.streams_mut().find(|stream| stream.pad == pad)
    }

    /// Takes a window of a rendition.
    pub fn window(&mut self, window: &PooledMessage) {
        let Some(stream) = self.stream(&window.pad) else { return };
        let point = Point {
            time: wall_clock(),
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

    /// Takes an event of the element, with the number of the picture that there is of it.
    pub fn event(&mut self, event: &EventMessage, still: Option<u64>) {
        let Some(stream) = self.stream(&event.pad) else { return };
        match event.state {
            EventState::Raised | EventState::Cleared => {
                stream.alarms.insert(event.event.name(), event.state == EventState::Raised);
            }
            EventState::Info => {}
        }
        if event.event == Event::Alignment {
            stream.offset = event.offset.map(|offset| offset as f64 / 1e6);
        }
        let label = stream.label.clone();
        self.note(&label, event.event.name(), event.state.name(), describe(event));
        if let Some(entry) = self.events.front_mut() {
            entry.still = still;
        }
    }

    /// Notes that something has happened.
    pub fn note(&mut self, label: &str, kind: &str, state: &str, text: String) {
        let (label, kind, state) = (label.into(), kind.into(), state.into());
        self.events.push_front(Entry { time: wall_clock(), label, kind, state, text, still: None });
        self.events.truncate(EVENTS);
        self.event_count += 1;
    }

    /// The pipeline is gone: nothing is raised any more by the element that watched.
    pub fn stopped(&mut self, status: Status, why: &str) {
        self.status = status;
        let mut raised = vec![];
        for stream in self.streams_mut() {
            stream.status = status;
            stream.last = None;
            stream.offset = None;
            for (kind, on) in stream.alarms.iter_mut().filter(|(_, on)| **on) {
                *on = false;
                raised.push((stream.label.clone(), *kind));
            }
        }
        raised.into_iter().for_each(|(label, kind)| self.note(&label, kind, "cleared", why.into()));
    }

    /// The events that have come since there were `count`, the oldest first.
    pub fn events_since(&self, count: u64) -> impl Iterator<Item = &Entry> {
        let new = usize::try_from(self.event_count.saturating_sub(count)).unwrap_or(usize::MAX);
        self.events.iter().take(new).rev()
    }
}

/// What an event of the element says, in words.
fn describe(event: &EventMessage) -> String {
    let seconds = |time: Option<ClockTime>| time.unwrap_or_default().mseconds() as f64 / 1e3;
    match (event.event, event.value, event.threshold, event.count) {
        (Event::Mispaired, ..) => {
            let length = seconds(event.running_time) - seconds(event.since);
            format!("frames were paired by an old offset for {length:.1} s")
        }
        (_, Some(confidence), None, _) if event.offset.is_some() => {
            format!("{:+.0} ms, confidence {confidence:.2}", event.offset.unwrap_or_default() as f64 / 1e6)
        }
        (_, Some(value), Some(threshold), _) if value.is_finite() => {
            format!("{value:.2}, threshold {threshold}")
        }
        (.., Some(1)) => "1 frame".into(),
        (.., Some(count)) => format!("{count} frames"),
        _ => event.reason.clone().unwrap_or_default(),
    }
}
