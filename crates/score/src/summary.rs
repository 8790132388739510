// SPDX-License-Identifier: MPL-2.0

//! The JSON object of `score --json`.

use gst::ClockTime;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::check::Finding;
use super::ladder::{self, Ladder};
use super::model::Choice;
use super::probe::Video;
use super::run::Outcome;
use super::scenes;
use super::scores::{Frame, Scores};
use super::steps::Step;

/// The printed object.
#[derive(Serialize)]
pub struct Summary<'a> {
    version: &'static str,
    reference: &'a Video,
    models: Vec<Value>,
    /// Mismatches, and the steps applied to the videos.
    findings: &'a [Finding],
    steps: &'a [Step],
    /// Damaged videos.
    damaged: Vec<Value>,
    renditions: Vec<Value>,
    /// The encodings by each metric, with their rates.
    ladders: Vec<Ladder>,
    /// A signal ended the run.
    interrupted: bool,
    error: Option<String>,
    provenance: Value,
}

impl<'a> Summary<'a> {
    pub fn new(
        reference: &'a Video,
        distorted: &[Option<Video>],
        models: &[Choice],
        findings: &'a [Finding],
        steps: &'a [Step],
        outcome: &Outcome,
        worst: usize,
    ) -> Self {
        let models = models.iter().map(|choice| json!({"name": choice.name, "chosen_because": choice.why}));
        let renditions = outcome.renditions.iter().zip(distorted);
        Self {
            version: crate::VERSION,
            reference,
            models: models.collect(),
            findings,
            steps,
            damaged: outcome
                .damaged
                .iter()
                .map(|(video, text)| json!({"video": video, "text": text}))
                .collect(),
            renditions: renditions
                .map(|(scores, video)| rendition(scores, video.as_ref(), &outcome.cuts, worst))
                .collect(),
            ladders: ladder::ladders(&outcome.renditions),
            interrupted: outcome.signal.is_some(),
            error: outcome.failure.as_ref().map(ToString::to_string),
            provenance: outcome.provenance.as_deref().map_or(Value::Null, object),
        }
    }
}

fn rendition(scores: &Scores, video: Option<&Video>, cuts: &[ClockTime], worst: usize) -> Value {
    let figures = scores.all_figures();
    let pooled: Map<_, _> =
        figures.iter().filter_map(|of| Some((of.metric.name.clone(), json!(of.frames?)))).collect();
    let aggregates: Map<_, _> =
        figures.iter().filter_map(|of| Some((of.metric.aggregate(), json!(of.overall?)))).collect();
    let frame = |frame: &&Frame| {
        let values = scores.metrics().zip(&frame.scores);
        let scores: Map<_, _> =
            values.map(|(metric, value)| (metric.name.clone(), json!(metric.of_frame(*value)))).collect();
        json!({"frame": frame.index, "time": seconds(frame.time), "scores": scores})
    };
    json!({
        "label": scores.label,
        "video": video,
        "frames": scores.frames.len(),
        "pairing": scores.pairing,
        "unpaired": scores.unpaired()[0],
        "skipped": scores.count(|section| section.counts.skipped),
        "dist_unmatched": scores.unpaired()[1],
        "offset": scores.offset.map(|offset| offset as f64 / 1e9),
        "series": scores.rung.series,
        "coded": scores.rung.coded.map(|coded| {
            json!({"bytes": coded.bytes, "seconds": coded.seconds, "kbit_s": coded.rate()})
        }),
        "pooled": pooled,
        "aggregates": aggregates,
        "scenes": scenes::divide(&scores.frames, cuts).iter().map(|frames| scene(scores, frames)).collect::<Vec<_>>(),
        "worst": scores.worst(worst).iter().map(frame).collect::<Vec<_>>(),
    })
}

/// Returns a scene: its frames, and mean and lowest value by each metric.
fn scene(scores: &Scores, frames: &[Frame]) -> Value {
    let figures = scores.figures(frames).into_iter();
    let figures: Map<_, _> = figures
        .filter_map(|of| Some((of.metric.name, of.frames.map(|p| json!({"mean": p.mean, "min": p.min}))?)))
        .collect();
    let (first, last) = (&frames[0], &frames[frames.len() - 1]);
    json!({"time": seconds(first.time), "frames": [first.index, last.index], "pooled": figures})
}

fn seconds(time: ClockTime) -> f64 {
    time.nseconds() as f64 / 1e9
}

/// Converts a structure of texts, lists and structures.
fn object(structure: &gst::StructureRef) -> Value {
    let value = |value: &glib::SendValue| {
        if let Ok(inner) = value.get::<gst::Structure>() {
            return object(&inner);
        }
        if let Ok(list) = value.get::<gst::Array>() {
            return list.iter().filter_map(|text| text.get::<String>().ok()).collect();
        }
        value.get::<String>().map_or(Value::Null, Value::from)
    };
    Value::Object(structure.iter().map(|(name, v)| (name.to_string(), value(v))).collect())
}
