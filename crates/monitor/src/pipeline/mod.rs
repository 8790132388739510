// SPDX-License-Identifier: MPL-2.0

//! The pipeline of a channel: the element, a queue before each of its pads, and the sources that come and go.

mod bus;
mod incident;

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst::{ClockTime, Structure};

use incident::Running;

use crate::branch::Branch;
use crate::clock::{self, LEAD};
use crate::config::Channel;
use crate::evidence::Evidence;
use crate::films::{Answer, Films};
use crate::health::{Change, SETTLED};
use crate::incidents::Incidents;
use crate::latency::Latency;
use crate::source::{Named, Source};
use crate::state::{Counts, Shared, Status, Stream, lock, pad};
use crate::stills::Stills;

/// How often the sources are looked at.
const TICK: Duration = Duration::from_millis(200);
/// How long to wait for a pipeline to stop.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a pipeline has ended.
pub enum End {
    /// It was told to.
    Stopped,
    /// The reference and the renditions have ended.
    Ended,
    /// It cannot go on, and why.
    Failed(String),
}

pub struct Pipeline {
    pipeline: gst::Pipeline,
    element: gst::Element,
    bus: gst::Bus,
    /// The branch of the reference, and after it those of the renditions.
    branches: Vec<Branch>,
    /// How those that are files are paired.
    films: Films,
    /// When the first frame of sources that have an end is shown.
    start: Option<ClockTime>,
    state: Shared,
    latency: Option<Latency>,
    stills: Option<Stills>,
    incidents: Option<Incidents>,
    incident: Option<Running>,
    /// For how long an incident goes on.
    length: Duration,
}

impl Pipeline {
    /// The element writes its figures for Prometheus into the file `metrics`.
    pub fn new(
        channel: &Channel,
        metrics: &Path,
        state: Shared,
        evidence: &Evidence,
        measure: bool,
    ) -> Result<Self, Box<dyn Error>> {
        let element = channel.element()?;
        element.set_property("metrics-filename", metrics.to_str());
        element.set_property("frame-message", measure || channel.stills);
        let pipeline = gst::Pipeline::new();
        clock::give(&pipeline);
        let feed = gst::ElementFactory::make("tee").property("allow-not-linked", true).build()?;
        let buffer = holding_queue()?;
        let sink = gst::ElementFactory::make("fakesink").property("async", false).build()?;
        pipeline.add_many([&feed, &buffer, &element, &sink])?;
        feed.link(&buffer)?;
        buffer.link_pads(None, &element, Some("ref_sink"))?;
        element.link(&sink)?;

        let sink = feed.static_pad("sink").ok_or("tee has no sink pad")?;
        let reference = Named { label: "reference".into(), source: channel.reference.clone() };
        let mut branches = vec![Branch::new(reference, sink, None, channel)];
        for (i, named) in channel.renditions.iter().enumerate() {
            let name = pad(i);
            let pad = element.static_pad(&name).or_else(|| element.request_pad_simple(&name));
            let pad = pad.ok_or("the element has no pad for this rendition")?;
            pad.set_property("label", &named.label);
            pad.set_property_from_str("align", &channel.align.to_string());
            let buffer = holding_queue()?;
            pipeline.add(&buffer)?;
            buffer.static_pad("src").ok_or("queue has no source pad")?.link(&pad)?;
            let sink = buffer.static_pad("sink").ok_or("queue has no sink pad")?;
            let feed = matches!(named.source, Source::Encode(_)).then(|| feed.clone());
            branches.push(Branch::new(named.clone(), sink, feed, channel));
        }
        let bus = pipeline.bus().ok_or("the pipeline has no bus")?;
        let latency = measure.then(|| Latency::new(&element, &bus));
        let stills = channel.stills.then(|| Stills::new(&element, evidence.gallery.clone()));
        let incidents = evidence.incidents.clone();
        // Sources come once it runs, so that none of them keeps it from running.
        pipeline.set_state(gst::State::Playing)?;
        let files = channel.renditions.iter().map(|named| named.source.file());
        Ok(Self {
            pipeline,
            element,
            bus,
            films: Films::new(channel.reference.file(), files),
            branches,
            start: None,
            state,
            latency,
            stills,
            incidents,
            incident: None,
            length: channel.incidents,
        })
    }

    /// Scores until told to stop, or to the end of the streams. Calls `well` once frames have come for a while.
    pub fn run(&mut self, stop: &AtomicBool, well: &mut dyn FnMut()) -> End {
        let mut flowing = None;
        loop {
            let stopped = || stop.load(Ordering::Relaxed).then_some(End::Stopped);
            if let Some(end) = stopped().or_else(|| self.look()).or_else(|| self.follow()) {
                self.keep(true);
                return end;
            }
            self.keep(false);
            if self.branches[0].status() == Status::Running
                && flowing.get_or_insert_with(Instant::now).elapsed() > SETTLED
            {
                well();
            }
        }
    }

    /// How long scores took, if that was to be measured.
    pub fn latency(&self) -> Option<&Latency> {
        self.latency.as_ref()
    }

    /// Ends. A source that does not stop is left behind after a while.
    pub fn close(self) {
        let (stopped, wait) = mpsc::channel();
        let pipeline = self.pipeline;
        thread::spawn(move || {
            // It is gone in any case.
            let _ = pipeline.set_state(gst::State::Null);
            let _ = stopped.send(());
        });
        let _ = wait.recv_timeout(PATIENCE);
    }

    /// Looks at the sources, puts those in that it is time for, and notes how things are.
    fn look(&mut self) -> Option<End> {
        // The reference is the last to be put in, so that its first frames have something to be compared with.
        for i in (0..self.branches.len()).rev() {
            let branch = &mut self.branches[i];
            match branch.look() {
                Change::None => {}
                Change::Stalled => {
                    if let Some(end) = self.fail(i, "it delivers nothing") {
                        return Some(end);
                    }
                }
                Change::Recovered { after, attempts } => {
                    let times =
                        if attempts == 1 { "one attempt".into() } else { format!("{attempts} attempts") };
                    let text = format!("it delivers again, after {} s and {times}", after.as_secs());
                    lock(&self.state).note(&branch.source.label, "source", "cleared", text);
                }
            }
            if self.branches[i].is_due()
                && let Some(end) = self.start(i)
            {
                return Some(end);
            }
        }
        self.note();
        None
    }

    /// Puts a source in, unless what it waits for is not there.
    fn start(&mut self, i: usize) -> Option<End> {
        if self.branches[i].lacks_file() {
            let news = self.branches[i].miss();
            return if news {
                self.fail(i, "there is no such file; it is played once it appears")
            } else {
                None
            };
        }
        let timing = match self.pair(i) {
            Answer::Wait => return None,
            Answer::Paired(timing) => timing,
            Answer::Failed(why) => return self.fail(i, &why),
        };
        let now = self.pipeline.current_running_time().unwrap_or_default() + LEAD;
        let reference = &self.branches[0];
        let start = if reference.source.source.is_live() {
            now
        } else {
            // A film and its encodings are shown from the same moment on, so that they pair whenever one of them appears.
            if self.start.is_none() && !reference.lacks_file() {
                self.start = Some(now);
            }
            self.start?
        };
        if let Some(stream) = lock(&self.state).streams_mut().nth(i) {
            stream.restarts += u64::from(stream.status == Status::Down);
        }
        match self.branches[i].insert(&self.pipeline, start, timing) {
            Ok(()) => None,
            Err(error) => self.fail(i, &error.to_string()),
        }
    }

    /// Says what times the frames of a source get. A film begins once all files beside it are looked at.
    fn pair(&mut self, i: usize) -> Answer {
        let is_film = self.branches[0].source.source.file().is_some();
        let answer = match (i.checked_sub(1), self.branches[i].source.source.file()) {
            (None, _) => Answer::Paired(self.films.film()),
            (Some(_), Some(_)) if is_film && self.branches[0].lacks_file() => Answer::Wait,
            (Some(rendition), Some(file)) => self.films.ask(rendition, file),
            (Some(_), None) => Answer::Paired(None),
        };
        let begins = is_film && self.start.is_none() && self.films.are_looked_at();
        if begins && matches!(answer, Answer::Paired(_)) { Answer::Wait } else { answer }
    }

    /// Takes a source out that has failed. The end of the channel, if it cannot go on without.
    fn fail(&mut self, i: usize, text: &str) -> Option<End> {
        let branch = &mut self.branches[i];
        let text = branch.source.source.redact(text);
        let begins = branch.fail(&self.pipeline);
        let mut state = lock(&self.state);
        if begins {
            state.note(&branch.source.label, "source", "raised", text.clone());
        }
        if let Some(stream) = state.streams_mut().nth(i) {
            stream.failures += 1;
            stream.reason = Some(text.clone());
        }
        // A film begins anew, and what is compared with it as well.
        let film = i == 0 && !branch.source.source.is_live() && self.start.is_some();
        film.then(|| End::Failed(format!("the reference has failed: {text}")))
    }

    /// Notes how the sources and the element are.
    fn note(&mut self) {
        let mut state = lock(&self.state);
        let mut news = false;
        for (stream, branch) in state.streams_mut().zip(&self.branches) {
            let status = branch.status();
            news |= stream.status != status;
            stream.status = status;
            if matches!(status, Status::Running | Status::Ended) {
                stream.reason = None;
            }
        }
        let runs = |stream: &Stream| stream.status == Status::Running;
        if state.status != Status::Running && runs(&state.reference) && state.renditions.iter().any(runs) {
            state.status = Status::Running;
            state.reason = None;
        }
        state.backend = backend(&self.element);
        for pad in self.element.sink_pads().iter().filter(|pad| pad.has_property("stats")) {
            if let (Some(stats), Some(stream)) =
                (pad.property::<Option<Structure>>("stats"), state.stream(&pad.name()))
            {
                stream.counts = counts(&stats);
            }
        }
        drop(state);
        if news {
            // Sources that have come may be later than those before. Refused only by a pipeline that stops.
            let _ = self.pipeline.recalculate_latency();
        }
    }
}

/// Encoders and links keep frames for a while; the others have to wait for them. What is too much is dropped: a queue that
/// blocks would hold up the source, also when it is to stop.
fn holding_queue() -> Result<gst::Element, glib::BoolError> {
    gst::ElementFactory::make("queue")
        .property("max-size-buffers", 0u32)
        .property("max-size-bytes", 0u32)
        .property("max-size-time", 5 * ClockTime::SECOND.nseconds())
        .property_from_str("leaky", "downstream")
        .build()
}

fn backend(element: &gst::Element) -> String {
    let name = |property| element.property::<Option<String>>(property);
    [name("backend-name"), name("device-name")].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn counts(stats: &gst::StructureRef) -> Counts {
    let count = |name| stats.get(name).unwrap_or_default();
    Counts {
        scored: count("frames-scored"),
        unpaired: count("frames-unpaired"),
        skipped: count("frames-skipped"),
        unmatched: count("dist-unmatched"),
    }
}
