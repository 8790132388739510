// SPDX-License-Identifier: MPL-2.0

//! The pipeline of a channel: the element, a queue before each pad, and sources that can be replaced.

mod bus;
mod curves;
mod incident;

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst::{ClockTime, Structure};

use curves::Curves;
pub use curves::DELAY;
use incident::Running;

use crate::alarm_files::AlarmFiles;
use crate::alarms::{CHANNEL, SOURCE};
use crate::branch::Branch;
use crate::channel::Wanted;
use crate::clock::{self, LEAD};
use crate::health::{Change, SETTLED};
use crate::incidents::Incidents;
use crate::latency::Latency;
use crate::pairings::{Answer, Pairings};
use crate::settings::Channel;
use crate::source::{Named, Source};
use crate::state::{Counts, REFERENCE, Shared, Status, Stream, pad};
use crate::stills::Stills;

/// Interval of the checks of the sources.
const TICK: Duration = Duration::from_millis(200);
/// Longest wait for the pipeline to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Reason why a pipeline ended.
pub enum End {
    /// Stop request.
    Stopped,
    /// End of the reference and the renditions.
    Ended,
    /// Failure of the entire channel.
    Failed(String),
}

pub struct Pipeline {
    pipeline: gst::Pipeline,
    element: gst::Element,
    bus: gst::Bus,
    /// The branch of the reference, then those of the renditions.
    branches: Vec<Branch>,
    /// Pairing of the renditions that are files.
    pairings: Pairings,
    /// Running time at which sources of finite length begin.
    start: Option<ClockTime>,
    state: Shared,
    latency: Option<Latency>,
    stills: Option<Stills>,
    incidents: Option<Incidents>,
    incident: Option<Running>,
    curves: Curves,
    /// Length of an incident before and after its alarms.
    length: Duration,
}

impl Pipeline {
    /// Builds the pipeline.
    pub fn new(
        channel: &Channel,
        state: Shared,
        alarm_files: &AlarmFiles,
        measure: bool,
    ) -> Result<Self, Box<dyn Error>> {
        let element = channel.element()?;
        element.set_property("frame-message", measure || channel.stills);
        state.lock().element.set(element.downcast_ref());
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
        let reference = Named { label: REFERENCE.into(), source: channel.reference.clone() };
        let mut branches = vec![Branch::new(reference, sink, None, channel)];
        for (i, named) in channel.renditions.iter().enumerate() {
            let name = pad(i);
            let pad = element.static_pad(&name).or_else(|| element.request_pad_simple(&name));
            let pad = pad.ok_or("the element has no pad for this rendition")?;
            pad.set_property("label", &named.label);
            pad.set_property("align", channel.align.0);
            pad.set_property("align-range", channel.align_range.0);
            let buffer = holding_queue()?;
            pipeline.add(&buffer)?;
            buffer.static_pad("src").ok_or("queue has no source pad")?.link(&pad)?;
            let sink = buffer.static_pad("sink").ok_or("queue has no sink pad")?;
            let feed = matches!(named.source, Source::Encode(_)).then(|| feed.clone());
            branches.push(Branch::new(named.clone(), sink, feed, channel));
        }
        let bus = pipeline.bus().ok_or("the pipeline has no bus")?;
        let latency = measure.then(|| Latency::new(&element, &bus));
        let stills = channel.stills.then(|| Stills::new(&element, alarm_files.still_store.clone()));
        let incidents = alarm_files.incidents.clone();
        // Sources are inserted once it runs, so that none of them can block its start.
        if let Err(error) = pipeline.set_state(gst::State::Playing) {
            // The element says why.
            let message = bus.pop_filtered(&[gst::MessageType::Error]);
            return Err(match message.as_ref().map(|message| message.view()) {
                Some(gst::MessageView::Error(error)) => error.error().message().into(),
                _ => error.into(),
            });
        }
        let files = channel.renditions.iter().map(|named| named.source.file());
        Ok(Self {
            pipeline,
            element,
            bus,
            pairings: Pairings::new(channel.reference.file(), files),
            branches,
            start: None,
            state,
            latency,
            stills,
            incidents,
            incident: None,
            curves: Curves::new(channel),
            length: channel.incident_length(),
        })
    }

    /// Takes settings that need no restart.
    fn adapt(&mut self, channel: &Channel) {
        // They were checked with another element.
        let _ = channel.tune(&self.element);
        for (i, named) in channel.renditions.iter().enumerate() {
            if let Some(pad) = self.element.static_pad(&pad(i)) {
                pad.set_property("label", &named.label);
            }
        }
        self.curves.adapt(channel);
        let labels = channel.renditions.iter().map(|named| Some(&named.label));
        for (branch, label) in self.branches.iter_mut().zip(std::iter::once(None).chain(labels)) {
            branch.adapt(channel, label);
        }
        for (branch, named) in self.branches.iter_mut().skip(1).zip(&channel.renditions) {
            if branch.source.source != named.source {
                branch.replace(named.source.clone(), channel, &self.pipeline);
                self.state.lock().clear(&named.label, SOURCE, "it has another source now".into());
            }
        }
    }

    /// Scores until a stop request or the end of the streams, with the latest wanted settings. Calls `well` after
    /// frames have arrived for a while.
    pub fn run(&mut self, stop: &AtomicBool, wanted: &Wanted, well: &mut dyn FnMut()) -> End {
        let mut flowing = None;
        loop {
            let stopped = || stop.load(Ordering::Relaxed).then_some(End::Stopped);
            if let Some(end) = stopped().or_else(|| self.check_sources()).or_else(|| self.follow()) {
                self.keep(true);
                return end;
            }
            self.keep(false);
            if let Some(channel) = wanted.changed() {
                self.adapt(&channel);
            }
            if self.branches[0].status() == Status::Running
                && flowing.get_or_insert_with(Instant::now).elapsed() > SETTLED
            {
                well();
            }
        }
    }

    /// Returns the measured latencies, if any.
    pub fn latency(&self) -> Option<&Latency> {
        self.latency.as_ref()
    }

    /// Stops the pipeline. After a timeout, a source that does not stop is abandoned.
    pub fn close(self) {
        let (stopped, wait) = mpsc::channel();
        let pipeline = self.pipeline;
        thread::spawn(move || {
            // It is dropped in any case.
            let _ = pipeline.set_state(gst::State::Null);
            let _ = stopped.send(());
        });
        let _ = wait.recv_timeout(STOP_TIMEOUT);
    }

    /// Checks the sources, inserts those that are due, and updates the state.
    fn check_sources(&mut self) -> Option<End> {
        // The reference comes last, so that its first frames have partners.
        for i in (0..self.branches.len()).rev() {
            let branch = &mut self.branches[i];
            match branch.check() {
                Change::None => {}
                Change::Stalled => {
                    if let Some(end) = self.fail(i, "no frames arrive") {
                        return Some(end);
                    }
                }
                Change::Recovered { after, attempts } => {
                    let times =
                        if attempts == 1 { "one attempt".into() } else { format!("{attempts} attempts") };
                    let text = format!("frames arrive again, after {} s and {times}", after.as_secs());
                    self.state.lock().clear(&branch.source.label, SOURCE, text);
                }
            }
            if self.branches[i].is_due()
                && let Some(end) = self.start(i)
            {
                return Some(end);
            }
        }
        self.note();
        self.watch_curves();
        None
    }

    /// Inserts a source, unless a file that it needs is missing.
    fn start(&mut self, i: usize) -> Option<End> {
        if self.branches[i].lacks_file() {
            let is_new = self.branches[i].miss();
            return if is_new {
                self.fail(i, "the file does not exist; it is played when it appears")
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
            // A file reference and its renditions share a start time, so that they pair whenever one of them appears.
            if self.start.is_none() && !reference.lacks_file() {
                self.start = Some(now);
            }
            self.start?
        };
        if let Some(stream) = self.state.lock().streams_mut().nth(i) {
            stream.restarts += u64::from(stream.status == Status::Down);
        }
        match self.branches[i].insert(&self.pipeline, start, timing) {
            Ok(()) => None,
            Err(error) => self.fail(i, &error.to_string()),
        }
    }

    /// Returns the times for the frames of a source. A file reference waits until all its renditions are examined.
    fn pair(&mut self, i: usize) -> Answer {
        let is_file = self.branches[0].source.source.file().is_some();
        let were_pending = self.pairings.are_pending();
        let answer = match (i.checked_sub(1), self.branches[i].source.source.file()) {
            (None, _) => Answer::Paired(self.pairings.reference_timing()),
            (Some(_), Some(_)) if is_file && self.branches[0].lacks_file() => Answer::Wait,
            (Some(rendition), Some(file)) => self.pairings.ask(rendition, file),
            (Some(_), None) => Answer::Paired(None),
        };
        let are_pending = self.pairings.are_pending();
        if are_pending && !were_pending {
            let text = "files are examined before they are shown, which can take as long as decoding them";
            self.state.lock().note(CHANNEL, CHANNEL, text.into());
        }
        let begins = is_file && self.start.is_none() && are_pending;
        if begins && matches!(answer, Answer::Paired(_)) { Answer::Wait } else { answer }
    }

    /// Removes a source that failed. Returns the end of the channel if it cannot continue.
    fn fail(&mut self, i: usize, text: &str) -> Option<End> {
        let branch = &mut self.branches[i];
        let text = branch.source.source.redact(text);
        let begins = branch.fail(&self.pipeline);
        let mut state = self.state.lock();
        if begins {
            state.raise(&branch.source.label, SOURCE, text.clone(), None);
        }
        if let Some(stream) = state.streams_mut().nth(i) {
            stream.failures += 1;
            stream.reason = Some(text.clone());
        }
        // A file reference begins anew, together with its renditions.
        let ends = i == 0 && !branch.source.source.is_live() && self.start.is_some();
        ends.then(|| End::Failed(format!("the reference has failed: {text}")))
    }

    /// Updates the state of the sources and the element.
    fn note(&mut self) {
        let mut state = self.state.lock();
        let mut changed = false;
        for (stream, branch) in state.streams_mut().zip(&self.branches) {
            let status = branch.status();
            changed |= stream.status != status;
            stream.status = status;
            stream.silent = branch.is_silent();
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
                stream.offset = stats.get::<i64>("offset").ok().map(|offset| offset as f64 / 1e9);
            }
        }
        state.settle(Instant::now());
        drop(state);
        if changed {
            // New sources may have a larger latency. Fails only if the pipeline is stopping.
            let _ = self.pipeline.recalculate_latency();
        }
    }
}

/// Creates a queue that delays the other sources for those with latency. When it is full it drops frames: a queue
/// that blocks would also block the source when it is to stop.
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
