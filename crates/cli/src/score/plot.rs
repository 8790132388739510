// SPDX-License-Identifier: MPL-2.0

//! The scores over time as a picture.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::scores::{Frame, Scores};

/// Draws a line for each model of each rendition into an SVG file.
pub fn draw(path: &Path, renditions: &[Scores]) -> Result<(), Box<dyn Error>> {
    let seconds = |frame: &Frame| frame.time.nseconds() as f64 / 1e9;
    let frames = || renditions.iter().flat_map(|scores| &scores.frames);
    let first = frames().map(seconds).fold(f64::INFINITY, f64::min);
    let last = frames().map(seconds).fold(first, f64::max);
    let scores = || frames().flat_map(|frame| frame.scores.iter().copied());
    // From the ten below the lowest score, to 100 at least.
    let bottom = (scores().fold(f64::INFINITY, f64::min) / 10.0).floor() * 10.0;
    let top = scores().fold(100.0, f64::max);

    let area = SVGBackend::new(path, (1000, 400)).into_drawing_area();
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
