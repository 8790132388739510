// SPDX-License-Identifier: MPL-2.0

//! The HTML page: its parts, and the data for its script.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::metric::Metric;
use super::super::scores::Scores;
use super::super::summary::Summary;
use super::worst::Still;
use crate::error::Error;

/// Style of the chart library uPlot.
pub const UPLOT_CSS: &str = include_str!("../../assets/uplot/uPlot.min.css");
/// Script of the chart library uPlot.
pub const UPLOT_JS: &str = include_str!("../../assets/uplot/uPlot.iife.min.js");
/// Colours, text and tables of pages.
pub const BASE_CSS: &str = include_str!("../../assets/report/base.css");
const PAGE: &str = include_str!("../../assets/report/page.html");
/// Contents of the placeholders in double braces.
const PARTS: [(&str, &str); 5] = [
    ("uPlot.min.css", UPLOT_CSS),
    ("base.css", BASE_CSS),
    ("page.css", include_str!("../../assets/report/page.css")),
    ("uPlot.iife.min.js", UPLOT_JS),
    ("page.js", include_str!("../../assets/report/page.js")),
];

/// Data for the script.
#[derive(Serialize)]
struct Data<'a> {
    #[serde(flatten)]
    summary: &'a Summary<'a>,
    /// Models, then features.
    metrics: Vec<Metric>,
    /// Numbers of the reference frames compared with any rendition.
    frames: Vec<i32>,
    /// Times of these frames in seconds.
    times: Vec<f64>,
    /// For each rendition and metric: the value of each of these frames.
    curves: Vec<BTreeMap<String, Vec<Option<f64>>>>,
    /// For each rendition: stills of its worst frames, worst first.
    stills: &'a [Vec<Still>],
}

/// Rounds to a number of decimals.
fn rounded(value: f64, decimals: usize) -> f64 {
    let scale = 10_f64.powi(i32::try_from(decimals).unwrap_or_default());
    (value * scale).round() / scale
}

impl<'a> Data<'a> {
    fn new(summary: &'a Summary<'a>, renditions: &'a [Scores], stills: &'a [Vec<Still>]) -> Self {
        let all = renditions.iter().flat_map(|scores| &scores.frames);
        let times: BTreeMap<i32, f64> =
            all.map(|frame| (frame.index, rounded(frame.time.nseconds() as f64 / 1e9, 3))).collect();
        let curve = |scores: &'a Scores, column: usize, metric: &Metric| {
            // Finer than what is printed, and short: most of the page are these figures.
            let decimals = metric.unit.decimals() + 1;
            let value = |values: &Vec<f64>| {
                let value = values.get(column).map(|value| metric.of_frame(*value));
                value.filter(|value| value.is_finite()).map(|value| rounded(value, decimals))
            };
            let scored: BTreeMap<i32, Option<f64>> =
                scores.frames.iter().map(|frame| (frame.index, value(&frame.scores))).collect();
            times.keys().map(|frame| scored.get(frame).copied().flatten()).collect()
        };
        let curves = renditions.iter().map(|scores| {
            let metrics = scores.metrics().enumerate();
            metrics.map(|(i, metric)| (metric.name.clone(), curve(scores, i, &metric))).collect()
        });
        let scored = renditions.iter().find(|scores| !scores.frames.is_empty()).or(renditions.first());
        Self {
            summary,
            metrics: scored.into_iter().flat_map(Scores::metrics).collect(),
            frames: times.keys().copied().collect(),
            times: times.values().copied().collect(),
            curves: curves.collect(),
            stills,
        }
    }
}

/// Returns the entire page.
pub fn html(summary: &Summary, renditions: &[Scores], stills: &[Vec<Still>]) -> Result<String, Error> {
    // Without `<`, the data cannot close its HTML element.
    let data = serde_json::to_string(&Data::new(summary, renditions, stills))?.replace('<', "\\u003c");
    let mut page = String::with_capacity(data.len() + 100_000);
    for piece in PAGE.split("{{") {
        let Some((name, rest)) = piece.split_once("}}") else {
            page.push_str(piece);
            continue;
        };
        let part = PARTS.iter().find(|(part, _)| *part == name).map_or(data.as_str(), |(_, text)| text);
        page.push_str(part);
        page.push_str(rest);
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use gst::ClockTime;
    use serde_json::{Value, json};

    use super::super::super::ladder::Rung;
    use super::super::super::probe::Video;
    use super::super::super::run::Outcome;
    use super::super::super::scores::Frame;
    use super::*;

    #[test]
    fn scores_that_are_missing_or_no_numbers_are_gaps() {
        let frame = |index: i32, score| Frame {
            index,
            time: ClockTime::from_mseconds(40 * index as u64),
            scores: vec![score],
        };
        let scores = |label: &str, frames| Scores {
            label: label.into(),
            models: vec!["model".into()],
            features: vec![],
            frames,
            offset: None,
            rung: Rung::default(),
            pairing: None,
            aggregates: vec![],
            sections: vec![],
        };
        let a = scores("</script><b>", vec![frame(0, f64::NAN), frame(1, 1.0 / 3.0)]);
        let b = scores("<!-- &amp;", vec![frame(1, f64::INFINITY), frame(3, 50.0)]);
        let renditions = vec![a, b, scores("none", vec![])];
        let outcome = Outcome {
            renditions,
            provenance: None,
            signal: None,
            failure: None,
            damaged: vec![],
            cuts: vec![],
        };
        let video = Video::like("</script>", 64, 64);
        let summary = Summary::new(&video, &[None, None, None], &[], &[], &[], &outcome, 5);
        let page = html(&summary, &outcome.renditions, &[vec![], vec![], vec![]]).unwrap();
        assert_eq!(page.matches("</script>").count(), 3);
        let (_, data) = page.split_once("id=\"data\">").unwrap();
        let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
        assert_eq!((&data["frames"], &data["times"]), (&json!([0, 1, 3]), &json!([0.0, 0.04, 0.12])));
        assert_eq!(data["curves"][0]["model"], json!([null, 0.333, null]));
        assert_eq!(data["curves"][1]["model"], json!([null, null, 50.0]));
        assert_eq!(data["renditions"][0]["label"], "</script><b>");
    }
}
