// SPDX-License-Identifier: MPL-2.0

//! The JSON object of `score --json`.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::check::Finding;
use super::model::Choice;
use super::probe::Video;
use super::run::Outcome;
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
            renditions: renditions.map(|(scores, video)| rendition(scores, video.as_ref(), worst)).collect(),
            interrupted: outcome.signal.is_some(),
            error: outcome.failure.as_ref().map(ToString::to_string),
            provenance: outcome.provenance.as_deref().map_or(Value::Null, object),
        }
    }
}

fn rendition(scores: &Scores, video: Option<&Video>, worst: usize) -> Value {
    let figures = scores.all_figures();
    let pooled: Map<_, _> =
        figures.iter().filter_map(|of| Some((of.metric.name.clone(), json!(of.frames?)))).collect();
    let aggregates: Map<_, _> =
        figures.iter().filter_map(|of| Some((of.metric.aggregate(), json!(of.overall?)))).collect();
    let frame = |frame: &&Frame| {
        let values = scores.metrics().zip(&frame.scores);
        let scores: Map<_, _> =
            values.map(|(metric, value)| (metric.name.clone(), json!(metric.of_frame(*value)))).collect();
        json!({"frame": frame.index, "time": frame.time.nseconds() as f64 / 1e9, "scores": scores})
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
        "pooled": pooled,
        "aggregates": aggregates,
        "worst": scores.worst(worst).iter().map(frame).collect::<Vec<_>>(),
    })
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
