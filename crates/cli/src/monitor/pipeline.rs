// SPDX-License-Identifier: MPL-2.0

//! The pipeline around the element.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst::{ClockTime, MessageView, Structure};
use gsthipvmaf::event::EventMessage;
use gsthipvmaf::message::VmafMessage;

use super::Align;
use super::Args;
use super::branch::{Branch, Change, ENDED};
use super::latency::Latency;
use super::source::Source;
use super::state::{Counts, Shared, State, Status, Stream, lock};
use crate::interrupt;

pub struct Monitor {
    pipeline: gst::Pipeline,
    element: gst::Element,
    bus: gst::Bus,
    /// The branch of the reference, and after it those of the renditions.
    branches: Vec<Branch>,
    stall: Duration,
    state: Shared,
    latency: Option<Latency>,
    /// Where the element writes its figures for Prometheus.
    metrics: tempfile::TempDir,
}

impl Monitor {
    pub fn new(args: &Args) -> Result<Self, Box<dyn Error>> {
        let metrics = tempfile::tempdir()?;
        let element = element(args, &metrics)?;
        let pipeline = gst::Pipeline::new();
        // Encoders and links keep frames for a while; the reference has to wait for them here.
        let feed = gst::ElementFactory::make("tee").property("allow-not-linked", true).build()?;
        let buffer = holding_queue()?;
        let sink = gst::ElementFactory::make("fakesink").property("async", false).build()?;
        pipeline.add_many([&feed, &buffer, &element, &sink])?;
        feed.link(&buffer)?;
        buffer.link_pads(None, &element, Some("ref_sink"))?;
        element.link(&sink)?;

        let sink = feed.static_pad("sink").ok_or("tee has no sink pad")?;
        let stream = |label: &str, pad: &str, source: &Source| Stream {
            label: label.into(),
            pad: pad.into(),
            source: source.to_string(),
            ..Stream::default()
        };
        let mut state = State {
            model: args.models[0].clone(),
            alarm_low: args.alarm_low,
            reference: stream("reference", "ref_sink", &args.reference.source),
            ..State::default()
        };
        if let Source::Encode(_) = args.reference.source {
            return Err("x264 encodes the reference, it cannot be the reference".into());
        }
        let mut branches = vec![Branch::new(args.reference.clone(), sink, None)];
        for (i, named) in args.renditions.iter().enumerate() {
            let pad = match i {
                0 => element.static_pad("dist_sink"),
                _ => element.request_pad_simple("dist_%u"),
            };
            let pad = pad.ok_or("the element has no pad for this rendition")?;
            pad.set_property("label", &named.label);
            pad.set_property_from_str(
                "align",
                match args.align {
                    Align::Off => "off",
                    Align::Detect => "detect",
                    Align::Auto => "auto",
                },
            );
            let buffer = holding_queue()?;
            pipeline.add(&buffer)?;
            buffer.static_pad("src").ok_or("queue has no source pad")?.link(&pad)?;
            let sink = buffer.static_pad("sink").ok_or("queue has no sink pad")?;
            let feed = matches!(named.source, Source::Encode(_)).then(|| feed.clone());
            branches.push(Branch::new(named.clone(), sink, feed));
            state.renditions.push(stream(&named.label, &pad.name(), &named.source));
        }
        let bus = pipeline.bus().ok_or("the pipeline has no bus")?;
        interrupt::tell(&bus)?;
        Ok(Self {
            latency: args.latency.then(|| Latency::new(&element, &bus)),
            pipeline,
            element,
            bus,
            branches,
            stall: Duration::from_secs_f64(args.stall),
            state: Shared::new(state.into()),
            metrics,
        })
    }

    pub fn state(&self) -> Shared {
        self.state.clone()
    }

    /// The element's figures for Prometheus.
    pub fn metrics(&self) -> PathBuf {
        metrics_file(&self.metrics)
    }

    pub fn latency(&self) -> Option<&Latency> {
        self.latency.as_ref()
    }

    pub fn start(&mut self) -> Result<(), Box<dyn Error>> {
        for branch in &mut self.branches {
            branch.insert(&self.pipeline)?;
        }
        // A source that cannot be opened is taken out, to be tried again; only other errors end the program.
        let mut attempts = self.branches.len();
        while let Err(err) = self.pipeline.set_state(gst::State::Playing) {
            self.follow(Duration::ZERO)?;
            attempts = attempts.checked_sub(1).ok_or(err)?;
        }
        Ok(())
    }

    pub fn stop(&self) -> Result<(), Box<dyn Error>> {
        self.pipeline.set_state(gst::State::Null)?;
        Ok(())
    }

    /// Follows the pipeline for a while. Whether it goes on.
    pub fn tick(&mut self, time: Duration) -> Result<bool, Box<dyn Error>> {
        if !self.follow(time)? {
            return Ok(false);
        }
        let mut state = lock(&self.state);
        for (i, branch) in self.branches.iter_mut().enumerate() {
            let change = branch.tick(&self.pipeline, self.stall);
            let stream = if i == 0 { &mut state.reference } else { &mut state.renditions[i - 1] };
            stream.status = match (branch.is_down(), branch.frames()) {
                (true, _) => Status::Down,
                (false, 0) => Status::Starting,
                _ => Status::Running,
            };
            stream.restarts += u64::from(change == Change::Restarted);
            let label = stream.label.clone();
            match change {
                Change::None => {}
                Change::Stalled => state.note(&label, "source", "raised", "it delivers nothing".into()),
                Change::Restarted => state.note(&label, "source", "info", "started again".into()),
            }
        }
        let time = self.pipeline.current_running_time().unwrap_or_default();
        state.now = time.mseconds() as f64 / 1e3;
        state.backend = backend(&self.element);
        for pad in self.element.sink_pads().iter().filter(|pad| pad.has_property("stats")) {
            if let (Some(stats), Some(stream)) =
                (pad.property::<Option<Structure>>("stats"), state.stream(&pad.name()))
            {
                stream.counts = counts(&stats);
            }
        }
        Ok(true)
    }

    /// Reads the bus for a while. Whether the pipeline goes on.
    fn follow(&mut self, time: Duration) -> Result<bool, Box<dyn Error>> {
        let end = Instant::now() + time;
        loop {
            let left = ClockTime::try_from(end.saturating_duration_since(Instant::now()))?;
            let Some(message) = self.bus.timed_pop(left) else { return Ok(true) };
            match message.view() {
                MessageView::Element(element) => self.said(&message, element.structure()),
                MessageView::Error(error) => {
                    let text = error.error().message().to_string();
                    if !self.failed(&message, &text) {
                        return Err(text.into());
                    }
                }
                MessageView::Latency(_) => {
                    // Refused only by a pipeline that stops.
                    let _ = self.pipeline.recalculate_latency();
                }
                // The latter tells of a signal.
                MessageView::Eos(_) | MessageView::Application(_) => return Ok(false),
                _ => {}
            }
        }
    }

    /// Takes what an element says.
    fn said(&mut self, message: &gst::Message, structure: Option<&gst::StructureRef>) {
        let Some(structure) = structure else { return };
        if structure.name() == ENDED {
            self.failed(message, "the stream has ended");
        } else if let Ok(event) = EventMessage::try_from(structure) {
            lock(&self.state).event(&event);
        } else if let Ok(VmafMessage::Window(window)) = VmafMessage::try_from(structure) {
            lock(&self.state).window(&window);
        }
    }

    /// Takes the failed source out, if it was one.
    fn failed(&mut self, message: &gst::Message, text: &str) -> bool {
        let Some(source) = message.src() else { return false };
        let Some(i) = self.branches.iter().position(|branch| branch.owns(source)) else {
            // An error of a source that was taken out meanwhile.
            return !source.has_as_ancestor(&self.pipeline);
        };
        self.branches[i].remove(&self.pipeline);
        let label = if i == 0 { "reference" } else { &self.branches[i].source.label };
        lock(&self.state).note(label, "source", "raised", text.into());
        true
    }
}

fn element(args: &Args, metrics: &tempfile::TempDir) -> Result<gst::Element, Box<dyn Error>> {
    let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
    Ok(gst::ElementFactory::make("hipvmaf")
        .property("force-live", true)
        .property("attach-meta", false)
        .property("model-filename", &args.models[0])
        .property("extra-models", args.models[1..].join(";"))
        .property_from_str("backend", &args.backend)
        .property("latency", args.wait * 1_000_000)
        .property("window", nanoseconds(args.window.max(1.0)))
        .property("alarm-low", args.alarm_low.unwrap_or(-1.0))
        .property("alarm-clear", args.alarm_clear.unwrap_or(-1.0))
        .property("alarm-hold", nanoseconds(args.alarm_hold))
        .property("clear-hold", nanoseconds(args.clear_hold))
        .property("alarm-share", args.alarm_share)
        .property("freeze-time", nanoseconds(args.freeze.unwrap_or(0.0)))
        .property("black-time", nanoseconds(args.black.unwrap_or(0.0)))
        .property("frame-message", args.latency)
        .property("metrics-filename", metrics_file(metrics).to_str())
        .build()?)
}

fn metrics_file(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("hipvmaf.prom")
}

fn holding_queue() -> Result<gst::Element, glib::BoolError> {
    gst::ElementFactory::make("queue")
        .property("max-size-buffers", 0u32)
        .property("max-size-bytes", 0u32)
        .property("max-size-time", 5 * ClockTime::SECOND.nseconds())
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
