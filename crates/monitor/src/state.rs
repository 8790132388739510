// SPDX-License-Identifier: MPL-2.0

//! State of a channel, from the element's messages and statistics, for all outputs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gst::ClockTime;
use gsthipvmaf::HipVmaf;
use gsthipvmaf::event::{Event, EventMessage, EventState};
use gsthipvmaf::message::PooledMessage;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::alarms::{About, Alarm, CHANNEL, Severity};
use super::mutes::Maintenance;
use super::recent::Recent;
use super::segments::{Segment, Segmenter, composite};
use super::settings::{Channel, EventKind};
use super::source::Source;

/// Label of the reference.
pub const REFERENCE: &str = "reference";
/// Number of points kept for each rendition: five minutes at one per second.
const POINTS: usize = 300;
/// Number of events kept.
const EVENTS: usize = 500;
/// Number of segments kept.
const SEGMENTS: usize = 1000;
/// Number of values kept until they are written.
const VALUES: usize = 2000;

/// Verdicts about a channel, worst first.
pub const VERDICTS: [&str; 6] = ["down", "alarm", "impaired", "starting", "ok", "ended"];

pub type Shared = Arc<Mutex<State>>;

/// Returns the time in seconds since 1970.
pub fn wall_clock() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct State {
    pub name: String,
    pub status: Status,
    /// Reason why the channel is down.
    pub reason: Option<String>,
    /// Restarts of the entire channel.
    pub restarts: u64,
    pub model: String,
    /// `cpu` or `hip`, with the name of the GPU.
    pub backend: String,
    /// Name of the value that scores are of: a model, a feature, or `cvvdp`.
    pub score_of: String,
    pub alarm_low: Option<f64>,
    /// The element, while there is a pipeline.
    #[serde(skip)]
    pub element: glib::WeakRef<HipVmaf>,
    /// Addresses for alarms.
    #[serde(skip)]
    pub addresses: Vec<String>,
    /// Kinds of events for them; empty for all alarms.
    #[serde(skip)]
    pub webhook_events: Vec<EventKind>,
    #[serde(skip)]
    pub maintenance: Vec<Maintenance>,
    /// Time without frames after which a source has failed.
    #[serde(skip)]
    pub stall: Duration,
    /// Active alarms, oldest first.
    pub alarms: Vec<Alarm>,
    /// Number of the last alarm.
    #[serde(skip)]
    pub alarm_number: u64,
    pub reference: Stream,
    pub renditions: Vec<Stream>,
    /// Newest first.
    pub events: VecDeque<Entry>,
    /// Number of events so far.
    pub event_count: u64,
    /// Values beside the scores.
    #[serde(skip)]
    pub values: Recent<Value, VALUES>,
    /// Length of segments in seconds, if they are published.
    #[serde(skip)]
    pub segment_length: Option<f64>,
    #[serde(skip)]
    pub segments: Recent<Segment, SEGMENTS>,
}

/// The reference or a rendition.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stream {
    pub label: String,
    pub pad: String,
    /// Address without credentials.
    pub source: String,
    pub status: Status,
    /// No frame has arrived for a moment.
    #[serde(skip)]
    pub silent: bool,
    /// Reason why the source is down.
    pub reason: Option<String>,
    /// Restarts of the source.
    pub restarts: u64,
    /// Failures, including those of restarts.
    pub failures: u64,
    pub counts: Counts,
    /// Alarms raised so far; true while active.
    pub alarms: BTreeMap<&'static str, bool>,
    /// Delay of the video in seconds, if it was found.
    pub offset: Option<f64>,
    /// Audio is present; `None` if it is not watched.
    pub audio: Option<bool>,
    /// Short-term loudness in LUFS.
    pub loudness: Option<f64>,
    /// The worst frame of the last hour that has a still.
    pub worst: Option<Worst>,
    #[serde(skip)]
    pub last: Option<Point>,
    #[serde(skip)]
    pub history: Recent<Point, POINTS>,
    /// Composite quality of the last window.
    pub quality: Option<f64>,
    #[serde(skip)]
    pub segmenter: Segmenter,
}

/// A frame that has a still.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// Seconds since 1970.
    pub time: f64,
    pub score: f64,
    /// Number of the still.
    pub still: u64,
}

/// Status of a channel or a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    #[default]
    Starting,
    Running,
    /// Failed, and will be retried.
    Down,
    /// At the end of the stream.
    Ended,
}

/// Frames since the start, by result.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    pub scored: u64,
    pub unpaired: u64,
    pub skipped: u64,
    pub unmatched: u64,
}

/// A window. Its scores are NaN if it has none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// End of the window, in seconds since 1970.
    pub time: f64,
    pub mean: f64,
    pub min: f64,
    pub p5: f64,
    /// An alarm was active at its end.
    pub alarm: bool,
}

/// Curves beside the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Curve {
    /// Short-term loudness in LUFS.
    Loudness,
    /// Delay of the video in seconds.
    Delay,
    /// Composite quality from 0 to 100.
    Quality,
}

impl Curve {
    pub const ALL: [Self; 3] = [Self::Loudness, Self::Delay, Self::Quality];

    pub fn name(self) -> &'static str {
        match self {
            Self::Loudness => "loudness",
            Self::Delay => "delay",
            Self::Quality => "quality",
        }
    }
}

/// A value of a curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Seconds since 1970.
    pub time: f64,
    pub label: String,
    pub curve: Curve,
    pub value: f64,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Seconds since 1970.
    pub time: f64,
    pub label: String,
    pub kind: String,
    /// `raised`, `acknowledged`, `cleared` or `info`.
    pub state: String,
    pub text: String,
    /// Number of its still.
    pub still: Option<u64>,
    /// The alarm, unless it is `info`.
    #[serde(flatten)]
    pub about: Option<About>,
}

/// Returns the element's pad for the rendition with this number.
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

    /// Returns the active alarms.
    pub fn raised(&self) -> Vec<&'static str> {
        self.alarms.iter().filter(|(_, raised)| **raised).map(|(name, _)| *name).collect()
    }

    /// Adds a window.
    pub fn add(&mut self, point: Point) {
        self.last = Some(point);
        self.history.push(point);
    }

    /// Returns the mean of the last window, if it has scores.
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
        let mut state = Self {
            name: channel.name.clone(),
            model: channel.models.first().cloned().unwrap_or_default(),
            score_of: channel.score_of(),
            reference: stream(REFERENCE, "ref_sink".into(), &channel.reference),
            renditions: renditions.collect(),
            ..Self::default()
        };
        state.set(channel);
        state
    }

    /// Takes settings that need no restart.
    pub fn adapt(&mut self, channel: &Channel) {
        for (stream, named) in self.renditions.iter_mut().zip(&channel.renditions) {
            stream.source = named.source.to_string();
            let old = std::mem::replace(&mut stream.label, named.label.clone());
            self.alarms
                .iter_mut()
                .filter(|alarm| alarm.label == old)
                .for_each(|alarm| alarm.label = named.label.clone());
        }
        self.set(channel);
    }

    fn set(&mut self, channel: &Channel) {
        self.alarm_low = channel.alarm_low;
        self.addresses = channel.addresses();
        self.webhook_events = channel.webhook_events.clone();
        self.maintenance = channel.maintenance.clone();
        self.stall = channel.stall.0;
        self.segment_length = channel.segment_seconds.map(|length| length.0.as_secs_f64());
    }

    /// Returns the state of the channel as one word of `VERDICTS`.
    pub fn verdict(&self) -> &'static str {
        match self.status {
            Status::Down => "down",
            Status::Ended => "ended",
            _ if self
                .alarms
                .iter()
                .any(|alarm| alarm.is_announced() && alarm.about.severity > Severity::Minor) =>
            {
                "alarm"
            }
            _ if self.streams().any(|stream| stream.status == Status::Down || stream.alarmed()) => "impaired",
            Status::Starting => "starting",
            Status::Running => "ok",
        }
    }

    /// Returns the reference, then the renditions.
    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        std::iter::once(&self.reference).chain(&self.renditions)
    }

    /// Returns the reference, then the renditions.
    pub fn streams_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        std::iter::once(&mut self.reference).chain(&mut self.renditions)
    }

    /// Returns the lowest of the renditions' latest means.
    pub fn score(&self) -> Option<f64> {
        self.renditions.iter().filter_map(Stream::score).min_by(f64::total_cmp)
    }

    /// Returns the stream of a pad.
    pub fn stream(&mut self, pad: &str) -> Option<&mut Stream> {
        self.streams_mut().find(|stream| stream.pad == pad)
    }

    /// Adds a window of a rendition.
    pub fn window(&mut self, window: &PooledMessage) {
        let Some(stream) = self.stream(&window.pad) else { return };
        let point = Point {
            time: wall_clock(),
            mean: window.score,
            min: window.stats.min,
            p5: window.stats.p5,
            alarm: stream.alarmed(),
        };
        stream.add(point);
        self.judge(window, point.time);
    }

    /// Notes the quality of a window. While the reference is missing, that of its renditions is unknown.
    fn judge(&mut self, window: &PooledMessage, time: f64) {
        let Some(i) = self.streams().position(|stream| stream.pad == window.pad) else { return };
        let is_known = self.reference.status == Status::Running && !self.reference.silent;
        let is_overloaded = self.streams().any(|stream| stream.raised().contains(&"overload"));
        let (length, score_of) = (self.segment_length, self.score_of.clone());
        let Some(stream) = self.streams_mut().nth(i) else { return };
        let is_down = stream.status == Status::Down;
        let quality =
            if is_down { Some(0.0) } else { composite(window, &stream.raised(), &score_of, is_overloaded) };
        stream.quality = quality.filter(|_| is_known);
        let (quality, label) = (stream.quality, stream.label.clone());
        let segment = length.and_then(|length| stream.segmenter.add(time, length, window.score, quality));
        if let Some(quality) = quality {
            self.value(i, Curve::Quality, quality);
        }
        if let Some(segment) = segment {
            self.segments.push(Segment { label, score_of, ..segment });
        }
    }

    /// Adds an event of the element, with the number of its still.
    pub fn event(&mut self, event: &EventMessage, still: Option<u64>) {
        let Some(stream) = self.stream(&event.pad) else { return };
        match event.state {
            EventState::Raised | EventState::Cleared => {
                stream.alarms.insert(event.event.name(), event.state == EventState::Raised);
            }
            EventState::Info => {}
        }
        let (label, kind, text) = (stream.label.clone(), event.event.name(), describe(event));
        match event.state {
            EventState::Raised => self.raise(&label, kind, text, still),
            EventState::Cleared => self.clear(&label, kind, text),
            EventState::Info => self.note(&label, kind, text),
        }
    }

    /// Begins or ends an alarm that the monitor itself raises for the stream with this number.
    pub fn alarm(&mut self, i: usize, kind: &'static str, raised: bool, text: String) {
        let Some(stream) = self.streams_mut().nth(i) else { return };
        stream.alarms.insert(kind, raised);
        let label = stream.label.clone();
        if raised {
            self.raise(&label, kind, text, None);
        } else {
            self.clear(&label, kind, text);
        }
    }

    /// Adds a value of a curve to the stream with this number.
    pub fn value(&mut self, i: usize, curve: Curve, value: f64) {
        let Some(stream) = self.streams().nth(i) else { return };
        self.values.push(Value { time: wall_clock(), label: stream.label.clone(), curve, value });
    }

    /// Adds an event that is no alarm.
    pub fn note(&mut self, label: &str, kind: &str, text: String) {
        let (label, kind, state) = (label.into(), kind.into(), "info".into());
        self.add(Entry { time: wall_clock(), label, kind, state, text, still: None, about: None });
    }

    /// Adds an event.
    pub fn add(&mut self, entry: Entry) {
        self.events.push_front(entry);
        self.events.truncate(EVENTS);
        self.event_count += 1;
    }

    /// Notes that the pipeline is gone, and clears its alarms.
    pub fn stopped(&mut self, status: Status, why: &str) {
        self.status = status;
        for stream in self.streams_mut() {
            stream.status = status;
            stream.last = None;
            stream.quality = None;
            stream.offset = None;
            (stream.audio, stream.loudness) = (None, None);
            stream.alarms.values_mut().for_each(|on| *on = false);
        }
        // A channel that has failed is still down when an attempt to start it again fails.
        let ends = |alarm: &&Alarm| status != Status::Down || alarm.kind != CHANNEL;
        let ended: Vec<_> = self.alarms.iter().filter(ends).cloned().collect();
        ended.iter().for_each(|alarm| self.clear(&alarm.label, &alarm.kind, why.into()));
    }

    /// Returns the events after the first `count`, oldest first.
    pub fn events_since(&self, count: u64) -> impl Iterator<Item = &Entry> {
        let new = usize::try_from(self.event_count.saturating_sub(count)).unwrap_or(usize::MAX);
        self.events.iter().take(new).rev()
    }
}

/// Describes an event of the element in words.
fn describe(event: &EventMessage) -> String {
    let seconds = |time: Option<ClockTime>| time.unwrap_or_default().mseconds() as f64 / 1e3;
    match (event.event, event.value, event.threshold, event.count) {
        (Event::OtherProgramme, ..) => event.reason.clone().unwrap_or("the pictures match again".into()),
        (Event::Mispaired, ..) => {
            let length = seconds(event.running_time) - seconds(event.since);
            format!("frames were paired with an old offset for {length:.1} s")
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
