// SPDX-License-Identifier: MPL-2.0

//! Tables for the terminal.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};

use super::scores::{Frame, Scores};

/// Rows of the table over time.
const ROWS: usize = 16;

/// Formats the results. A single rendition gets a table over time; every rendition gets its worst frames and a
/// summary.
pub fn show(renditions: &[Scores], worst: usize) -> String {
    let mut text = String::new();
    for scores in renditions.iter().filter(|scores| !scores.frames.is_empty()) {
        let name = if let [_] = renditions { String::new() } else { format!(" of {}", scores.label) };
        if renditions.len() == 1 {
            let _ = writeln!(text, "{}\n", course(&scores.frames));
        }
        if worst > 0 {
            let _ = writeln!(text, "Worst frames{name}\n{}\n", worst_frames(scores, worst));
        }
    }
    for scores in renditions {
        let (frames, [unpaired, _]) = (scores.frames.len(), scores.unpaired());
        let _ = writeln!(text, "{}: {frames} frames scored, {unpaired} without a partner", scores.label);
    }
    let _ = write!(text, "{}", pooled(renditions));
    text
}

/// Lists each model of each rendition.
fn pooled(renditions: &[Scores]) -> Table {
    let mut table = table(&["encoding", "model", "mean", "harmonic", "lowest", "p1", "p5", "p50", "highest"]);
    for scores in renditions {
        for (number, model) in scores.names().enumerate() {
            let Some(p) = scores.pooled(number) else { continue };
            let figures =
                [p.harmonic_mean, p.min, p.p1, p.p5, p.p50, p.max].map(|score| format!("{score:.2}"));
            let row = [scores.label.clone(), model.clone(), format!("{:.6}", p.mean)];
            table.add_row(row.into_iter().chain(figures));
        }
    }
    align(&mut table, 2..9);
    table
}

/// Divides the video into parts of equally many frames, with mean and lowest score.
fn course(frames: &[Frame]) -> Table {
    let mut table = table(&["from", "frames", "mean", "lowest", ""]);
    for part in frames.chunks(frames.len().div_ceil(ROWS).max(1)) {
        let mean = part.iter().map(Frame::score).sum::<f64>() / part.len() as f64;
        let lowest = part.iter().map(Frame::score).fold(f64::INFINITY, f64::min);
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

fn worst_frames(scores: &Scores, count: usize) -> Table {
    let models = scores.names().map(String::as_str);
    let mut table = table(&["frame", "time"].into_iter().chain(models).collect::<Vec<_>>());
    for frame in scores.worst(count) {
        let values = frame.scores.iter().map(|score| format!("{score:.2}"));
        table.add_row([frame.index.to_string(), clock(frame)].into_iter().chain(values));
    }
    align(&mut table, 0..1);
    align(&mut table, 2..scores.names().count() + 2);
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

/// Formats the time of a frame with milliseconds.
fn clock(frame: &Frame) -> String {
    format!("{:.3}", frame.time)
}
