// SPDX-License-Identifier: MPL-2.0

//! Tables for the terminal.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::UTF8_BORDERS_ONLY};

use super::metric::Unit;
use super::scores::{Figures, Frame, Pooled, Scores};

/// Rows of the table over time.
const ROWS: usize = 16;
/// Longest bar in the table over time.
const BAR: usize = 40;
/// Width where there is no terminal.
const USUAL: usize = 80;

/// Formats the results in lines of at most `width` columns. A single rendition gets a table over time; every rendition
/// gets its worst frames and a summary.
pub fn show(renditions: &[Scores], worst: usize, width: usize) -> String {
    let mut text = String::new();
    for scores in renditions.iter().filter(|scores| !scores.frames.is_empty()) {
        let name = if let [_] = renditions { String::new() } else { format!(" of {}", scores.label) };
        if renditions.len() == 1 {
            let _ = writeln!(text, "{}\n", course(scores, width));
        }
        if worst > 0 {
            let _ = writeln!(text, "Worst frames{name}\n{}\n", worst_frames(scores, worst, width));
        }
    }
    for scores in renditions {
        let (frames, [unpaired, _]) = (scores.frames.len(), scores.unpaired());
        let _ = writeln!(text, "{}: {frames} frames scored, {unpaired} without a partner", scores.label);
    }
    let _ = write!(text, "{}", summary(renditions, width));
    text
}

/// Returns the width of the terminal; without one, that of the environment, and otherwise the usual one.
pub fn width() -> usize {
    let of_terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let of_environment = || std::env::var("COLUMNS").ok()?.parse().ok();
    of_terminal.or_else(of_environment).unwrap_or(USUAL)
}

/// A column of a table: its head, its cells, and if numbers are in it.
struct Column {
    head: String,
    cells: Vec<String>,
    is_number: bool,
}

impl Column {
    fn text(head: &str, cells: impl Iterator<Item = String>) -> Self {
        Self { head: head.into(), cells: cells.collect(), is_number: false }
    }

    fn numbers(head: &str, cells: impl Iterator<Item = String>) -> Self {
        Self { is_number: true, ..Self::text(head, cells) }
    }

    fn width(&self) -> usize {
        let cells = std::iter::once(&self.head).chain(&self.cells);
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    }
}

/// Makes a table of the first columns: of the first `needed`, whose texts are wrapped if they have to be, and of as
/// many others as fit.
fn table(mut columns: Vec<Column>, needed: usize, width: usize) -> Table {
    // A cell has a space on both sides, and a line or another space beside it.
    let natural = |columns: &[Column]| 1 + columns.iter().map(|column| column.width() + 3).sum::<usize>();
    while columns.len() > needed && natural(&columns) > width {
        columns.pop();
    }
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(columns.iter().map(|column| &column.head));
    if natural(&columns) > width {
        table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(u16::try_from(width).unwrap_or(u16::MAX));
    }
    let rows = columns.first().map_or(0, |column| column.cells.len());
    for row in 0..rows {
        table.add_row(columns.iter().filter_map(|column| column.cells.get(row)));
    }
    for (number, column) in columns.iter().enumerate().filter(|(_, column)| column.is_number) {
        if let Some(of_table) = table.column_mut(number) {
            of_table.set_cell_alignment(CellAlignment::Right);
            // Numbers are never broken.
            let least = u16::try_from(column.width() + 2).unwrap_or(u16::MAX);
            of_table
                .set_constraint(comfy_table::ColumnConstraint::Absolute(comfy_table::Width::Fixed(least)));
        }
    }
    table
}

/// Lists each model and feature of each rendition.
fn summary(renditions: &[Scores], width: usize) -> Table {
    let rows =
        renditions.iter().flat_map(|scores| scores.all_figures().into_iter().map(|row| (&scores.label, row)));
    let rows: Vec<_> = rows.filter(|(_, row)| row.frames.is_some()).collect();
    let of_frames = |head: &str, figure: fn(&Pooled) -> f64| {
        let cells = rows.iter().map(|(_, row)| number(row.frames.as_ref().map(figure), row.metric.unit));
        Column::numbers(head, cells)
    };
    let mut columns = vec![
        Column::text("encoding", rows.iter().map(|(label, _)| (*label).clone())),
        Column::text("metric", rows.iter().map(|(_, row)| row.metric.name.clone())),
        Column::numbers("mean", rows.iter().map(|(_, row)| mean(row))),
        of_frames("lowest", |p| p.min),
    ];
    if rows.iter().any(|(_, row)| row.overall.is_some()) {
        columns.push(Column::numbers("overall", rows.iter().map(|(_, row)| overall(row))));
    }
    let needed = columns.len();
    columns.extend([
        of_frames("p5", |p| p.p5),
        of_frames("p50", |p| p.p50),
        of_frames("harmonic", |p| p.harmonic_mean),
        of_frames("p1", |p| p.p1),
        of_frames("highest", |p| p.max),
    ]);
    table(columns, needed, width)
}

/// Formats a mean with the decimals of results files. JODs have none.
fn mean(row: &Figures) -> String {
    let mean = row.frames.filter(|_| row.metric.unit != Unit::Jod).map(|p| p.mean);
    mean.map_or_else(none, |mean| format!("{mean:.6}"))
}

fn overall(row: &Figures) -> String {
    match row.metric.unit {
        Unit::Jod => row.overall.map_or_else(none, |value| format!("{value:.3} JOD")),
        unit => number(row.overall, unit),
    }
}

fn none() -> String {
    "–".into()
}

fn number(value: Option<f64>, unit: Unit) -> String {
    value.map_or_else(none, |value| format!("{value:.*}", unit.decimals()))
}

/// Divides the video into parts of equally many frames, with mean and lowest score.
fn course(scores: &Scores, width: usize) -> Table {
    let frames = &scores.frames;
    let parts: Vec<_> = frames.chunks(frames.len().div_ceil(ROWS).max(1)).collect();
    let first = |part: &&[Frame]| scores.figures(part).into_iter().next();
    let figures: Vec<_> = parts.iter().filter_map(first).collect();
    let unit = figures.first().map_or(Unit::Score, |figures| figures.metric.unit);
    let of_frames = |head: &str, figure: fn(&Pooled) -> f64| {
        Column::numbers(head, figures.iter().map(|of| number(of.frames.as_ref().map(figure), unit)))
    };
    let mut columns = vec![
        Column::text("from", parts.iter().map(|part| clock(&part[0]))),
        Column::numbers(
            "frames",
            parts.iter().map(|part| format!("{}-{}", part[0].index, part[part.len() - 1].index)),
        ),
        of_frames("mean", |p| p.mean),
        of_frames("lowest", |p| p.min),
    ];
    let left =
        width.saturating_sub(4 + columns.iter().map(|column| column.width() + 3).sum::<usize>()).min(BAR);
    let bar = |of: &Figures| {
        let share =
            of.frames.as_ref().zip(unit.full()).map_or(0.0, |(p, full)| (p.mean / full).clamp(0.0, 1.0));
        "█".repeat((share * left as f64).round() as usize)
    };
    columns.push(Column::text("", figures.iter().map(bar)));
    table(columns, 4, width)
}

fn worst_frames(scores: &Scores, count: usize, width: usize) -> Table {
    let worst = scores.worst(count);
    let mut columns = vec![
        Column::numbers("frame", worst.iter().map(|frame| frame.index.to_string())),
        Column::text("time", worst.iter().map(|frame| clock(frame))),
    ];
    columns.extend(scores.metrics().enumerate().map(|(i, metric)| {
        let value = |frame: &&Frame| frame.scores.get(i).map(|value| metric.of_frame(*value));
        Column::numbers(&metric.name, worst.iter().map(|frame| number(value(frame), metric.unit)))
    }));
    table(columns, 3, width)
}

/// Formats the time of a frame with milliseconds.
fn clock(frame: &Frame) -> String {
    format!("{:.3}", frame.time)
}

#[cfg(test)]
mod tests {
    use gst::ClockTime;

    use super::*;

    fn scores(label: &str) -> Scores {
        let mut scores =
            Scores::new(label.into(), vec!["ssimulacra2".into(), "cvvdp_q".into(), "psnr_y".into()]);
        scores.models = vec!["vmaf_v1.0.16_hfr_1d5h_2160".into()];
        scores.frames = (0..40)
            .map(|index| Frame {
                index,
                time: ClockTime::from_mseconds(40 * index as u64),
                scores: vec![90.0 - f64::from(index), -3.5, 0.3, 41.25],
            })
            .collect();
        scores.aggregates = vec![("apsnr_y".into(), 41.0)];
        scores
    }

    #[test]
    fn tables_fit_and_keep_means_and_lowest_scores() {
        let long = "a film with a rather long name, 1920x1080, 12000 kbit/s.mkv";
        for width in [60, 80, 120] {
            for renditions in [vec![scores("film.mkv")], vec![scores(long), scores("b.mp4")]] {
                let text = show(&renditions, 3, width);
                assert!(
                    text.lines()
                        .filter(|line| line.starts_with(['│', '┌', '╞']))
                        .all(|line| line.chars().count() <= width),
                    "{text}"
                );
                for shown in ["70.500000", " 51.00 ", "-3.500000", " JOD ", "41.250000", " 41.00 "] {
                    assert!(text.contains(shown), "{shown} at {width}: {text}");
                }
                assert!(text.contains(" highest ") || width < 120 || renditions.len() > 1, "{text}");
                assert!(!text.contains(" p5 ") || width > 80, "{text}");
            }
        }
    }

    #[test]
    fn jods_have_no_mean() {
        let text = show(&[scores("film.mkv")], 0, 80);
        let row = text.lines().find(|line| line.contains(" cvvdp ")).unwrap();
        assert!(row.contains(" – "), "{row}");
        assert!(!row.contains(" 0.3"), "{row}");
    }
}
