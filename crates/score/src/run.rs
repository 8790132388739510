// SPDX-License-Identifier: MPL-2.0

//! Builds the pipeline, runs it, and collects the element's messages.

use std::sync::Arc;

use gst::prelude::*;
use gst::{ClockTime, MessageView, Structure};
use gsthipvmaf::event::{self, EventMessage};
use gsthipvmaf::message::{FrameMessage, VmafMessage};
use parking_lot::Mutex;

use super::job::Job;
use super::ladder::Coded;
use super::rendition::Rendition;
use super::scenes::Cuts;
use super::scores::Scores;
use super::source;
use crate::error::Error;
use crate::model::NONE as NO_MODEL;
use crate::{interrupt, property};

/// Words of the element, with their replacements in the program's texts.
const WORDS: [(&str, &str); 13] = [
    ("; check the property results-filename", ""),
    ("(results-filename)", "(--results)"),
    ("; check the property metrics-filename", ""),
    (
        "; put videorate before the one that is to be changed if that is not meant",
        "; --rate brings it to the rate of the original",
    ),
    ("; turn both first: videoflip method=automatic", ""),
    (". If only one of them was turned already, turn the other as well: videoflip method=automatic", ""),
    (
        "; convert the video first: videoconvert ! video/x-raw,format=I420",
        "; convert the file first, as to yuv420p",
    ),
    ("; put deinterlace before it on both sides", ""),
    ("unpaired and dist-unmatched", "without a partner"),
    ("the video on ref_sink", "the original"),
    ("ref_sink", "the original"),
    // Said once, before scoring.
    (". ColorVideoVDP knows HDR: features=cvvdp=display=standard_hdr_pq", ""),
    (". ColorVideoVDP knows HDR: features=cvvdp=display=standard_hdr_hlg", ""),
];

/// An event while scoring.
pub enum Event<'a> {
    /// A frame of the rendition with this number was scored.
    Frame(usize, &'a FrameMessage),
    /// An event of a rendition.
    Noticed(&'a EventMessage),
    /// A warning.
    Warning(&'a str),
}

/// Result of a job.
pub struct Outcome {
    /// Scores of each rendition.
    pub renditions: Vec<Scores>,
    /// Provenance, as reported by the element.
    pub provenance: Option<Structure>,
    /// Signal that ended the job early.
    pub signal: Option<i32>,
    /// Error that ended the job early.
    pub failure: Option<Error>,
    /// Damaged videos, as the user wrote them, with descriptions.
    pub damaged: Vec<(String, String)>,
    /// Times of the cuts of the original, as far as its frames were seen in system memory.
    pub cuts: Vec<ClockTime>,
}

/// Scores the renditions of a job in one pass, until its end or a signal. After an error, the result has the scores
/// so far.
pub fn score(job: &Job, heard: &mut dyn FnMut(Event)) -> Result<Outcome, Error> {
    score_with(job, &|_| {}, heard)
}

/// Scores, after `prepare` has changed the element.
pub fn score_with(
    job: &Job,
    prepare: &dyn Fn(&gst::Element),
    heard: &mut dyn FnMut(Event),
) -> Result<Outcome, Error> {
    crate::init()?;
    let pipeline = build(job)?;
    pipeline.by_name("score").iter().for_each(prepare);
    let cuts = Cuts::default();
    pipeline.by_name("score").iter().for_each(|element| cuts.watch(element));
    let encoders = job.renditions.iter().enumerate().map(|(i, _)| pipeline.by_name(&encoder(i)));
    let encoded: Vec<_> = encoders.map(|encoder| encoder.map(|encoder| Encoded::watch(&encoder))).collect();
    let bus = pipeline.bus().ok_or("the pipeline has no bus")?;
    interrupt::post_to(&bus)?;
    let started = pipeline.set_state(gst::State::Playing);
    // If the start failed, the reason is on the bus already.
    let timeout = if started.is_ok() { ClockTime::NONE } else { Some(ClockTime::ZERO) };
    let mut run = Run::new(job, &pipeline);
    for message in bus.iter_timed(timeout) {
        if run.follow(&message, heard) {
            break;
        }
    }
    if let Err(error) = started {
        run.outcome.failure.get_or_insert(error.into());
    }
    pipeline.set_state(gst::State::Null)?;
    let mut outcome = run.outcome;
    outcome.cuts = cuts.times();
    for (scores, encoded) in outcome.renditions.iter_mut().zip(encoded) {
        scores.rung.coded = encoded.and_then(|encoded| encoded.coded());
    }
    outcome.damaged = source::damaged(job.inputs());
    outcome.failure = outcome.failure.map(|error| source::explain_damage(error, job.inputs()));
    Ok(outcome)
}

/// Returns the name of the encoder of a rendition.
fn encoder(rendition: usize) -> String {
    format!("encoder{rendition}")
}

/// Bytes and times of what an encoder has made.
#[derive(Clone, Default)]
struct Encoded(Arc<Mutex<(u64, Option<ClockTime>, ClockTime)>>);

impl Encoded {
    fn watch(encoder: &gst::Element) -> Self {
        let encoded = Self::default();
        for pad in encoder.src_pads() {
            let encoded = encoded.clone();
            pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
                info.buffer().iter().for_each(|buffer| encoded.add(buffer));
                gst::PadProbeReturn::Ok
            });
        }
        encoded
    }

    fn add(&self, buffer: &gst::BufferRef) {
        let (bytes, begin, end) = &mut *self.0.lock();
        *bytes += buffer.size() as u64;
        if let Some(time) = buffer.pts() {
            *begin = Some(begin.map_or(time, |begin| begin.min(time)));
            *end = (*end).max(time + buffer.duration().unwrap_or_default());
        }
    }

    fn coded(&self) -> Option<Coded> {
        let (bytes, begin, end) = *self.0.lock();
        let seconds = end.saturating_sub(begin?).nseconds() as f64 / 1e9;
        (seconds > 0.0).then_some(Coded { bytes, seconds })
    }
}

/// Queue for frames that wait for slower renditions. It never holds more than an encoder does, since the queues
/// before the encoders are limited, and frames of files are read on demand.
const WAIT: &str = "queue max-size-buffers=0 max-size-bytes=0 max-size-time=0";

fn build(job: &Job) -> Result<gst::Pipeline, Error> {
    let encodes = job.renditions.iter().any(|(_, rendition)| matches!(rendition, Rendition::Encoding(_)));
    // Without encoders, full queues block the decoders.
    let reference = if encodes { format!("tee name=ref ref. ! {WAIT}") } else { "queue name=ref".into() };
    let branches = job.renditions.iter().enumerate().map(|(i, (_, rendition))| {
        let pad = if i == 0 { "dist_sink" } else { "dist_%u" };
        match rendition {
            Rendition::Input(_) => format!("queue name=wait{i} ! score.{pad} "),
            Rendition::Encoding(encoding) => {
                format!("{}{WAIT} ! score.{pad} ", encoding.description(&encoder(i)))
            }
        }
    });
    let description = format!(
        "{reference} ! score.ref_sink {} hipvmaf name=score frame-message=true attach-meta=false ! fakesink",
        branches.collect::<String>()
    );
    let pipeline =
        gst::parse::launch(&description)?.downcast::<gst::Pipeline>().map_err(|_| "not a pipeline")?;
    let element = |name: &str| {
        pipeline.by_name(name).ok_or_else(|| Error::Failed(format!("no element {name} in the pipeline")))
    };
    source::decode(&pipeline, &job.reference, job.preprocessing, &element("ref")?)?;
    let sink = |name: &str| {
        let pad = element(name)?.static_pad("sink");
        pad.ok_or_else(|| Error::Failed(format!("{name} has no pad named sink")))
    };
    let inputs = job.renditions.iter().enumerate().map(|(i, (_, rendition))| match rendition {
        Rendition::Input(_) => sink(&format!("wait{i}")).map(Some),
        Rendition::Encoding(_) => Ok(None),
    });
    job.timings.apply(&sink("ref")?, &inputs.collect::<Result<Vec<_>, _>>()?);
    for (i, (_, rendition)) in job.renditions.iter().enumerate() {
        if let Rendition::Input(input) = rendition {
            let preprocessing = job.rendition_preprocessing.get(i).copied().unwrap_or_default();
            source::decode(&pipeline, input, preprocessing, &element(&format!("wait{i}"))?)?;
        }
    }
    set_up(job, &element("score")?)?;
    note_damage(job, &element("score")?);
    Ok(pipeline)
}

/// Adds the damage to the results, including damage found while scoring, which is known at the end of each stream.
fn note_damage(job: &Job, element: &gst::Element) {
    let videos: Arc<Vec<_>> = Arc::new(job.inputs().cloned().collect());
    for pad in element.sink_pads() {
        let (videos, element) = (videos.clone(), element.downgrade());
        pad.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
            if info.event().is_some_and(|event| event.type_() == gst::EventType::Eos)
                && let Some(element) = element.upgrade()
            {
                let found = source::damage_lines(videos.iter());
                let pads = element.sink_pads().into_iter().filter(|pad| pad.has_property("damaged"));
                pads.filter(|_| !found.is_empty())
                    .for_each(|pad| pad.set_property("damaged", found.join("\n")));
            }
            gst::PadProbeReturn::Ok
        });
    }
}

fn set_up(job: &Job, element: &gst::Element) -> Result<(), Error> {
    let model = job.models.first().map_or(NO_MODEL, String::as_str);
    let others = job.models.get(1..).unwrap_or_default();
    element.set_property("model-filename", model);
    element.set_property("extra-models", others.join(";"));
    for (name, value) in &job.properties {
        property::set(element, name, value).map_err(Error::Usage)?;
    }
    let said = job.extra_provenance.iter().filter(|(_, lines)| !lines.is_empty());
    let said = said.map(|(name, lines)| (*name, gst::Array::new(lines).to_send_value()));
    element.set_property("extra-provenance", Structure::from_iter("extra", said));
    if let Some(path) = &job.results {
        element.set_property("on-results-error", gsthipvmaf::OnResultsError::Error);
        let path = path.to_str().ok_or("the name of the results file is not UTF-8")?;
        element.set_property("results-filename", path);
    }
    // In the order of their request.
    let pads = element.sink_pads().into_iter().filter(|pad| pad.has_property("label"));
    for (i, (pad, (label, _))) in pads.zip(&job.renditions).enumerate() {
        pad.set_property("label", label);
        if job.timings.has(i) {
            continue;
        }
        pad.set_property("ts-offset", -job.offset);
        pad.set_property("align", job.align);
    }
    Ok(())
}

/// A running job.
struct Run<'a> {
    element: Option<gst::Element>,
    /// Pads of the renditions, in order.
    pads: Vec<glib::GString>,
    outcome: Outcome,
    job: &'a Job,
}

impl<'a> Run<'a> {
    fn new(job: &'a Job, pipeline: &gst::Pipeline) -> Self {
        let element = pipeline.by_name("score");
        let pads = element.iter().flat_map(|element| element.sink_pads());
        Self {
            pads: pads.filter(|pad| pad.has_property("label")).map(|pad| pad.name()).collect(),
            outcome: Outcome {
                renditions: job
                    .renditions
                    .iter()
                    .map(|(label, _)| Scores::new(label.clone(), vec![], job.features()))
                    .collect(),
                provenance: None,
                signal: None,
                failure: None,
                damaged: vec![],
                cuts: vec![],
            },
            element,
            job,
        }
    }

    /// Handles a message. Returns true if it is the last.
    fn follow(&mut self, message: &gst::Message, heard: &mut dyn FnMut(Event)) -> bool {
        match message.view() {
            MessageView::Element(element) => {
                let Some(structure) = element.structure() else { return false };
                if let Ok(message) = VmafMessage::try_from(structure) {
                    self.said(message, heard);
                } else if let Ok(event) = EventMessage::try_from(structure) {
                    self.happened(&event, heard);
                }
            }
            MessageView::Warning(warning) => heard(Event::Warning(&self.redact(warning.error().message()))),
            MessageView::Application(application) => {
                let signal = application.structure().and_then(|structure| structure.get("signal").ok());
                self.outcome.signal = signal;
                self.incomplete("interrupted");
                self.element.iter().for_each(source::end_stream);
            }
            MessageView::Error(error) => {
                let failure = self.explain(error);
                self.incomplete(&failure.to_string());
                self.outcome.failure = Some(failure);
                return true;
            }
            MessageView::Eos(_) => return true,
            _ => {}
        }
        false
    }

    fn said(&mut self, message: VmafMessage, heard: &mut dyn FnMut(Event)) {
        let place = |pad: &str| self.pads.iter().position(|name| name == pad);
        match message {
            VmafMessage::Frame(frame) => {
                let Some(number) = place(&frame.pad) else { return };
                heard(Event::Frame(number, &frame));
                self.outcome.renditions[number].push(&frame);
            }
            VmafMessage::Pooled(pooled) => {
                let Some(number) = place(&pooled.pad) else { return };
                if pooled.provenance.is_some() {
                    self.outcome.provenance.clone_from(&pooled.provenance);
                }
                self.outcome.renditions[number].end_section(pooled);
            }
            VmafMessage::Window(_) => {}
        }
    }

    fn happened(&mut self, event: &EventMessage, heard: &mut dyn FnMut(Event)) {
        let number = self.pads.iter().position(|name| *name == event.pad);
        if let (Some(number), event::Event::Alignment, Some(offset)) = (number, event.event, event.offset) {
            self.outcome.renditions[number].offset = Some(offset);
        }
        heard(Event::Noticed(event));
    }

    /// Returns the text of an error message with its file, followed by the hint: the debug text after its first line,
    /// which only gives a place in the code.
    fn explain(&self, error: &gst::message::Error) -> Error {
        let debug = error.debug().unwrap_or_default();
        let hint = debug.split_once('\n').map_or("", |(_, hint)| hint);
        let whose = std::iter::successors(error.src().cloned(), |object| object.parent())
            .filter_map(|object| {
                object.find_property("uri").map(|_| object.property::<Option<String>>("uri"))
            })
            .flatten()
            .find_map(|uri| self.job.inputs().find(|input| input.uri() == Some(uri.as_str())));
        let text = format!("{}\n{hint}", error.error().message());
        let text = self.redact(text.trim_end());
        Error::Failed(match whose {
            Some(input) if !text.contains(input.given()) => format!("{}: {text}", input.given()),
            _ => text,
        })
    }

    /// Marks the results as incomplete, with the reason.
    fn incomplete(&self, why: &str) {
        let pads = self.element.iter().flat_map(|element| element.sink_pads());
        pads.filter(|pad| pad.has_property("incomplete")).for_each(|pad| pad.set_property("incomplete", why));
    }

    /// Returns a text of the element in the program's words, without credentials.
    fn redact(&self, text: &str) -> String {
        let labels = self.pads.iter().zip(&self.job.renditions);
        let text = labels.fold(text.to_owned(), |text, (pad, (label, _))| {
            text.replace(&format!("the distorted video on {pad}"), label).replace(pad.as_str(), label)
        });
        let text = WORDS.iter().fold(text, |text, (of_element, ours)| text.replace(of_element, ours));
        self.job.inputs().fold(text, |text, input| input.redact(&text))
    }
}
