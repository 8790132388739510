// SPDX-License-Identifier: MPL-2.0

//! The SVG plot of the scores over time.

use std::path::{Path, PathBuf};

use plotters::prelude::*;
use watch::output::Output;

use super::scores::{Frame, Scores};
use crate::error::Error;

/// A plot.
pub struct Plot {
    path: PathBuf,
    output: Output,
}

impl Plot {
    /// Creates the file before scoring, to report errors early.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let output = Output::create(path).map_err(|error| failed(path, &error))?;
        Ok(Self { path: path.to_owned(), output })
    }

    /// Writes the plot.
    pub fn write(self, renditions: &[Scores]) -> Result<(), Error> {
        let svg = draw(renditions).map_err(|error| failed(&self.path, &*error))?;
        self.output.write(svg.as_bytes()).map_err(|error| failed(&self.path, &error))
    }
}

fn failed(path: &Path, why: &dyn std::error::Error) -> Error {
    Error::Failed(format!("cannot draw {}: {why}", path.display()))
}

/// Draws a line for each model of each rendition.
fn draw(renditions: &[Scores]) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    draw_into(&mut svg, renditions)?;
    Ok(svg)
}

fn draw_into(svg: &mut String, renditions: &[Scores]) -> Result<(), Box<dyn std::error::Error>> {
    let seconds = |frame: &Frame| frame.time.nseconds() as f64 / 1e9;
    let frames = || renditions.iter().flat_map(|scores| &scores.frames);
    let first = frames().map(seconds).fold(f64::INFINITY, f64::min);
    let last = frames().map(seconds).fold(first, f64::max);
    // Features have other scales.
    let of = |scores: &Scores| {
        let models = scores.models.len();
        scores
            .frames
            .iter()
            .flat_map(move |frame| frame.scores.iter().copied().take(models))
            .collect::<Vec<_>>()
    };
    let scores = || renditions.iter().flat_map(of);
    // From the multiple of ten below the lowest score to at least 100.
    let bottom = (scores().fold(f64::INFINITY, f64::min) / 10.0).floor() * 10.0;
    let top = scores().fold(100.0, f64::max);

    let area = SVGBackend::with_string(svg, (1000, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(48)
        .build_cartesian_2d(first..last, bottom..top)?;
    chart.configure_mesh().x_desc("seconds").y_desc("VMAF").light_line_style(TRANSPARENT).draw()?;
    let lines =
        renditions.iter().flat_map(|scores| (0..scores.models.len()).map(move |model| (scores, model)));
    for (number, (scores, model)) in lines.enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        let points = scores.frames.iter().map(|frame| (seconds(frame), frame.scores[model]));
        let name = match renditions {
            [_] => scores.models[model].clone(),
            _ => format!("{}, {}", scores.label, scores.models[model]),
        };
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(area.present()?)
}
