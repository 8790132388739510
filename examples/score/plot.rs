// SPDX-License-Identifier: MPL-2.0

//! The score over time as a picture.

use std::error::Error;
use std::path::Path;

use gsthipvmaf::message::FrameMessage;
use plotters::prelude::*;

/// Draws a line for each model into an SVG file.
pub fn draw(path: &Path, frames: &[FrameMessage]) -> Result<(), Box<dyn Error>> {
    let seconds = |frame: &FrameMessage| frame.stream_time.unwrap_or_default().nseconds() as f64 / 1e9;
    let ends = [frames.first(), frames.last()].map(|frame| frame.map_or(0.0, seconds));
    let scores = frames.iter().flat_map(|frame| frame.models.iter().map(|(_, score)| *score));
    // From the ten below the lowest score, to 100 at least.
    let bottom = (scores.clone().fold(f64::INFINITY, f64::min) / 10.0).floor() * 10.0;
    let top = scores.fold(100.0, f64::max);

    let area = SVGBackend::new(path, (1000, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(48)
        .build_cartesian_2d(ends[0]..ends[1], bottom..top)?;
    chart.configure_mesh().x_desc("seconds").y_desc("VMAF").light_line_style(TRANSPARENT).draw()?;
    for (number, (model, _)) in frames[0].models.iter().enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        let points = frames.iter().map(|frame| (seconds(frame), frame.models[number].1));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(model)
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
