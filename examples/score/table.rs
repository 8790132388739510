// SPDX-License-Identifier: MPL-2.0

//! Tables for the terminal.

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use gst::ClockTime;
use gsthipvmaf::message::FrameMessage;

use crate::pipeline::Scores;

/// Rows of the table that shows the course of the whole video.
const ROWS: usize = 16;

/// Prints the course of the score, the worst frames and the pooled scores.
pub fn print(scores: &Scores, worst: usize) {
    println!("{}", course(&scores.frames));
    if worst > 0 {
        println!("\nWorst frames\n{}", worst_frames(&scores.frames, worst));
    }
    for pooled in &scores.pooled {
        let mut table = table(&["model", &pooled.pool_method.replace('_', " ")]);
        for (model, score) in &pooled.models {
            table.add_row([model.clone(), format!("{score:.6}")]);
        }
        println!("\n{} frames scored, {} without a partner\n{table}", pooled.frames, pooled.unpaired);
        let s = &pooled.stats;
        println!(
            "{}: lowest {:.2}, 1 % below {:.2}, 5 % below {:.2}, median {:.2}, highest {:.2}, harmonic mean {:.2}",
            pooled.model, s.min, s.p1, s.p5, s.p50, s.max, s.harmonic_mean
        );
    }
}

/// Stretches of equally many frames, each with its mean and its lowest score.
fn course(frames: &[FrameMessage]) -> Table {
    let mut table = table(&["from", "frames", "mean", "lowest", ""]);
    for part in frames.chunks(frames.len().div_ceil(ROWS)) {
        let mean = part.iter().map(|frame| frame.score).sum::<f64>() / part.len() as f64;
        let lowest = part.iter().map(|frame| frame.score).fold(f64::INFINITY, f64::min);
        table.add_row([
            clock(&part[0]),
            format!("{}-{}", part[0].index, part[part.len() - 1].index),
            format!("{mean:.2}"),
            format!("{lowest:.2}"),
            "█".repeat((mean / 2.5).round() as usize),
        ]);
    }
    align(&mut table, 1..4);
    table
}

fn worst_frames(frames: &[FrameMessage], count: usize) -> Table {
    let mut order: Vec<_> = frames.iter().collect();
    order.sort_by(|a, b| a.score.total_cmp(&b.score));
    let models = frames[0].models.iter().map(|(model, _)| model.as_str());
    let mut table = table(&["frame", "time"].into_iter().chain(models).collect::<Vec<_>>());
    for frame in order.into_iter().take(count) {
        let scores = frame.models.iter().map(|(_, score)| format!("{score:.2}"));
        table.add_row([frame.index.to_string(), clock(frame)].into_iter().chain(scores));
    }
    align(&mut table, 0..1);
    align(&mut table, 2..frames[0].models.len() + 2);
    table
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(header);
    table
}

fn align(table: &mut Table, columns: std::ops::Range<usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// Where the frame is in the video, with milliseconds.
fn clock(frame: &FrameMessage) -> String {
    format!("{:.3}", frame.stream_time.unwrap_or(ClockTime::ZERO))
}
