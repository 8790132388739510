// SPDX-License-Identifier: MPL-2.0

//! `score --summary`: a CSV file with a row for each encode.

use std::path::{Path, PathBuf};

use watch::output::Output;

use super::metric::Unit;
use super::probe::Video;
use super::scores::{Figures, Pooled, Scores};
use crate::error::Error;

/// Columns before those of the metrics.
const COLUMNS: [&str; 14] = [
    "reference",
    "encoding",
    "file",
    "series",
    "codec",
    "width",
    "height",
    "frames_per_second",
    "bytes",
    "seconds",
    "kbit_s",
    "frames",
    "unpaired",
    "coverage",
];

/// A summary to be written.
pub struct SummaryFile {
    path: PathBuf,
    output: Output,
}

impl SummaryFile {
    /// Creates the file before scoring, to report errors early.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let output = Output::create(path).map_err(|error| failed(path, &error))?;
        Ok(Self { path: path.to_owned(), output })
    }

    /// Writes the rows.
    pub fn write(
        self,
        reference: &Video,
        videos: &[Option<Video>],
        renditions: &[Scores],
    ) -> Result<(), Error> {
        let written = text(reference, videos, renditions).and_then(|text| self.output.write(&text));
        written.map_err(|error| failed(&self.path, &error))
    }
}

fn failed(path: &Path, why: &std::io::Error) -> Error {
    Error::Failed(format!("cannot write the summary {}: {why}", path.display()))
}

fn text(reference: &Video, videos: &[Option<Video>], renditions: &[Scores]) -> std::io::Result<Vec<u8>> {
    let mut csv = csv::Writer::from_writer(vec![]);
    let columns = |scores: &Scores| scores.all_figures().iter().flat_map(columns).collect::<Vec<_>>();
    // A rendition without frames knows no models.
    let names = renditions.iter().map(columns).max_by_key(Vec::len).unwrap_or_default();
    csv.write_record(COLUMNS.into_iter().chain(names.iter().map(|(name, _)| name.as_str())))?;
    for (scores, video) in renditions.iter().zip(videos) {
        let own = columns(scores);
        let value = |name: &String| own.iter().find(|(of, _)| of == name).and_then(|(_, value)| *value);
        let values =
            names.iter().map(|(name, _)| value(name).map_or_else(String::new, |value| format!("{value:.6}")));
        csv.write_record(about(reference, video.as_ref(), scores).into_iter().chain(values))?;
    }
    csv.into_inner().map_err(|error| std::io::Error::other(error.to_string()))
}

fn about(reference: &Video, video: Option<&Video>, scores: &Scores) -> [String; COLUMNS.len()] {
    let rung = &scores.rung;
    let of_coded =
        |figure: &dyn Fn(&super::Coded) -> String| rung.coded.as_ref().map_or_else(String::new, figure);
    let rate = video.map_or(reference.rate, |video| video.rate);
    [
        reference.input.clone(),
        scores.label.clone(),
        video.map_or_else(String::new, |video| video.input.clone()),
        rung.series.clone(),
        video.map_or_else(|| rung.series.clone(), |video| video.codec.clone()),
        rung.size.0.to_string(),
        rung.size.1.to_string(),
        rate.map_or_else(String::new, |rate| format!("{}/{}", rate.numer(), rate.denom())),
        of_coded(&|coded| coded.bytes.to_string()),
        of_coded(&|coded| format!("{:.3}", coded.seconds)),
        of_coded(&|coded| format!("{:.3}", coded.rate())),
        scores.frames.len().to_string(),
        scores.unpaired()[0].to_string(),
        format!("{:.6}", scores.coverage()),
    ]
}

/// Returns the columns of a model or feature, each with its value if there is one.
fn columns(figures: &Figures) -> Vec<(String, Option<f64>)> {
    let metric = &figures.metric;
    let of_frames = |name: &str, figure: fn(&Pooled) -> f64| {
        (format!("{}_{name}", metric.name), figures.frames.as_ref().map(figure))
    };
    let mut columns = vec![
        of_frames("mean", |p| p.mean),
        of_frames("min", |p| p.min),
        of_frames("p1", |p| p.p1),
        of_frames("p5", |p| p.p5),
        of_frames("p50", |p| p.p50),
    ];
    match metric.unit {
        // A JOD is that of all frames together.
        Unit::Jod => columns[0] = (metric.aggregate(), figures.overall),
        _ => columns.extend(figures.overall.map(|overall| (metric.aggregate(), Some(overall)))),
    }
    columns
}
