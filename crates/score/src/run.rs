// SPDX-License-Identifier: MPL-2.0

//! Builds the pipeline, runs it, and collects what the element says on the bus.

use std::path::PathBuf;
use std::sync::Arc;

use engine::metrics::feature_list;
use gst::prelude::*;
use gst::{ClockTime, MessageView, Structure};
use gsthipvmaf::event::{self, EventMessage};
use gsthipvmaf::message::{FrameMessage, VmafMessage};

use super::damage;
use super::pairing::Timings;
use super::rendition::{self, Rendition};
use super::scores::Scores;
use super::source::{self, Input};
use super::treatment::Treatment;
use crate::error::Error;
use crate::{interrupt, property};

/// What is to be compared, and how.
#[derive(Clone, Debug)]
pub struct Job {
    /// The original.
    pub reference: Input,
    /// What is compared with it, each with the label that messages and results have.
    pub renditions: Vec<(String, Rendition)>,
    /// Built-in names or files of models; at least one.
    pub models: Vec<String>,
    /// Further properties of the element, in its order, as text.
    pub properties: Vec<(String, String)>,
    /// By how many nanoseconds the distorted videos are late.
    pub offset: i64,
    /// How the offset is looked for: a value of the pads' property `align`.
    pub align: String,
    /// What else made the scores, for their provenance: lines by what they are about.
    pub extra_provenance: Vec<(&'static str, Vec<String>)>,
    /// Results file in the format of its ending; further renditions have files of their own.
    pub results: Option<PathBuf>,
    /// How the original is read.
    pub treatment: Treatment,
    /// How each rendition is; those that are made of the original are not read.
    pub treatments: Vec<Treatment>,
    /// Which frames belong together, where that was looked for; otherwise those of one time do.
    pub timings: Timings,
}

impl Job {
    /// The names of the features that are asked for besides those that models read.
    fn features(&self) -> Vec<String> {
        let list = self.properties.iter().filter(|(name, _)| name == "features");
        // The element says what is wrong with a list.
        let extractors = list.flat_map(|(_, list)| feature_list::parse(list, &[]).unwrap_or_default());
        extractors.flat_map(|extractor| extractor.features(true)).map(|feature| feature.key).collect()
    }

    /// All videos that are read, the original first.
    pub fn inputs(&self) -> impl Iterator<Item = &Input> + Clone {
        rendition::inputs(&self.reference, &self.renditions)
    }
}

/// What the element says of properties, pads and other elements, and what the program says instead.
const WORDS: [(&str, &str); 10] = [
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
    ("ref_sink", "the original"),
];

/// What is heard of while frames are scored.
pub enum Event<'a> {
    /// A frame of the rendition with this number was scored.
    Frame(usize, &'a FrameMessage),
    /// Something happened to a rendition besides scores.
    Noticed(&'a EventMessage),
    /// Something is odd.
    Warning(&'a str),
}

/// What came of a job.
pub struct Outcome {
    /// Of each rendition.
    pub renditions: Vec<Scores>,
    /// What made the scores, as the element says it.
    pub provenance: Option<Structure>,
    /// The signal that ended it before the end of the stream.
    pub signal: Option<i32>,
    /// Why it ended before that otherwise.
    pub failure: Option<Error>,
    /// What is damaged: videos as the user wrote them, and what was found.
    pub damaged: Vec<(String, String)>,
}

/// Scores the renditions of a job in one pass, to its end or to the signal that comes before. What was scored until an
/// error is there as well.
pub fn score(job: &Job, heard: &mut dyn FnMut(Event)) -> Result<Outcome, Error> {
    score_with(job, &|_| {}, heard)
}

/// Scores, with an element that something was done to before it starts.
pub fn score_with(
    job: &Job,
    prepare: &dyn Fn(&gst::Element),
    heard: &mut dyn FnMut(Event),
) -> Result<Outcome, Error> {
    crate::init()?;
    let pipeline = build(job)?;
    pipeline.by_name("score").iter().for_each(prepare);
    let bus = pipeline.bus().ok_or("the pipeline has no bus")?;
    interrupt::tell(&bus)?;
    let started = pipeline.set_state(gst::State::Playing);
    // What refuses to start has said why on the bus.
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
    outcome.damaged = damage::of(job.inputs());
    outcome.failure = outcome.failure.map(|error| damage::explain(error, job.inputs()));
    Ok(outcome)
}

/// Where frames wait for those of slower renditions. It never holds more than an encoder does, as the queues before the
/// encoders are bounded; frames of files do not come before they are needed.
const WAIT: &str = "queue max-size-buffers=0 max-size-bytes=0 max-size-time=0";

fn build(job: &Job) -> Result<gst::Pipeline, Error> {
    let encodes = job.renditions.iter().any(|(_, rendition)| matches!(rendition, Rendition::Encoding(_)));
    // Without encoders the decoders are held up by queues that are full.
    let reference = if encodes { format!("tee name=ref ref. ! {WAIT}") } else { "queue name=ref".into() };
    let branches = job.renditions.iter().enumerate().map(|(i, (_, rendition))| {
        let pad = if i == 0 { "dist_sink" } else { "dist_%u" };
        match rendition {
            Rendition::Input(_) => format!("queue name=wait{i} ! score.{pad} "),
            Rendition::Encoding(encoding) => format!("{}{WAIT} ! score.{pad} ", encoding.description()),
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
    source::decode(&pipeline, &job.reference, job.treatment, &element("ref")?)?;
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
            let treatment = job.treatments.get(i).copied().unwrap_or_default();
            source::decode(&pipeline, input, treatment, &element(&format!("wait{i}"))?)?;
        }
    }
    set_up(job, &element("score")?)?;
    note_damage(job, &element("score")?);
    Ok(pipeline)
}

/// Has the results say what is damaged, also what was found while frames were scored: that is known at the end of each stream.
fn note_damage(job: &Job, element: &gst::Element) {
    let videos: Arc<Vec<_>> = Arc::new(job.inputs().cloned().collect());
    for pad in element.sink_pads() {
        let (videos, element) = (videos.clone(), element.downgrade());
        pad.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
            if info.event().is_some_and(|event| event.type_() == gst::EventType::Eos)
                && let Some(element) = element.upgrade()
            {
                let found = damage::lines(videos.iter());
                let pads = element.sink_pads().into_iter().filter(|pad| pad.has_property("damaged"));
                pads.filter(|_| !found.is_empty())
                    .for_each(|pad| pad.set_property("damaged", found.join("\n")));
            }
            gst::PadProbeReturn::Ok
        });
    }
}

fn set_up(job: &Job, element: &gst::Element) -> Result<(), Error> {
    let (model, others) = job.models.split_first().ok_or("there is no model to score with")?;
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
    // In the order in which they were asked for.
    let pads = element.sink_pads().into_iter().filter(|pad| pad.has_property("label"));
    for (i, (pad, (label, _))) in pads.zip(&job.renditions).enumerate() {
        pad.set_property("label", label);
        if job.timings.has(i) {
            continue;
        }
        pad.set_property("ts-offset", -job.offset);
        property::set(&pad, "align", &job.align).map_err(Error::Usage)?;
    }
    Ok(())
}

/// A job that runs.
struct Run<'a> {
    element: Option<gst::Element>,
    /// Of the renditions, in their order.
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
                    .map(|(label, _)| Scores::new(label.clone(), job.features()))
                    .collect(),
                provenance: None,
                signal: None,
                failure: None,
                damaged: vec![],
            },
            element,
            job,
        }
    }

    /// Takes a message. Whether it is the last.
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
                self.outcome.renditions[number].sections.push(pooled);
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

    /// The text of an error message, with the file that it is about, and followed by its hint: what comes after the first
    /// line of the debug text, which says where in the code it was posted.
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

    /// Has the results say that they are not complete, and why.
    fn incomplete(&self, why: &str) {
        let pads = self.element.iter().flat_map(|element| element.sink_pads());
        pads.filter(|pad| pad.has_property("incomplete")).for_each(|pad| pad.set_property("incomplete", why));
    }

    /// A text of the element in the words of the program, without the credentials of the inputs.
    fn redact(&self, text: &str) -> String {
        let labels = self.pads.iter().zip(&self.job.renditions);
        let text = labels.fold(text.to_owned(), |text, (pad, (label, _))| {
            text.replace(&format!("the distorted video on {pad}"), label).replace(pad.as_str(), label)
        });
        let text = WORDS.iter().fold(text, |text, (of_element, ours)| text.replace(of_element, ours));
        self.job.inputs().fold(text, |text, input| input.redact(&text))
    }
}
