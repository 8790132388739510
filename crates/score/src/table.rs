// SPDX-License-Identifier: MPL-2.0

//! Tables for the terminal.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::UTF8_BORDERS_ONLY};

use super::ladder::{Ladder, Point, Series};
use super::metric::Unit;
use super::run::Outcome;
use super::scenes;
use super::scores::{Figures, Frame, Pooled, Scores};

/// Rows of the tables over time.
const ROWS: usize = 16;
/// Longest bar in the table over time.
const BAR: usize = 40;
/// Width where there is no terminal.
const USUAL: usize = 80;

/// Formats the results in lines of at most `width` columns. A single rendition gets tables over time; every rendition
/// gets its worst frames and a summary. The ladder has the rates.
pub fn show(outcome: &Outcome, ladder: Option<&Ladder>, worst: usize, width: usize) -> String {
    let renditions = &outcome.renditions[..];
    let mut text = String::new();
    for scores in renditions.iter().filter(|scores| !scores.frames.is_empty()) {
        let name = if let [_] = renditions { String::new() } else { format!(" of {}", scores.label) };
        if renditions.len() == 1 {
            let _ = writeln!(text, "{}\n", course(scores, &equal_parts(&scores.frames), width));
            if !outcome.cuts.is_empty() {
                let (title, scenes) = listed_scenes(scores, scenes::divide(&scores.frames, &outcome.cuts));
                let _ = writeln!(text, "{title}\n{}\n", course(scores, &scenes, width));
            }
        }
        if worst > 0 {
            let _ = writeln!(text, "Worst frames{name}\n{}\n", worst_frames(scores, worst, width));
        }
    }
    for scores in renditions {
        let (frames, [unpaired, _]) = (scores.frames.len(), scores.unpaired());
        let coded =
            scores.rung.coded.map(|coded| format!("; {:.0} kbit/s", coded.rate())).unwrap_or_default();
        let _ =
            writeln!(text, "{}: {frames} frames scored, {unpaired} without a partner{coded}", scores.label);
    }
    let _ = write!(text, "{}", summary(renditions, width));
    if let Some(ladder) = ladder {
        let _ = write!(text, "\n\nRates by {}\n{}", ladder.metric, rates(ladder, renditions, width));
        let _ = write!(
            text,
            "{}",
            compared(ladder, width).map_or_else(String::new, |table| format!("\n{table}"))
        );
    }
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

/// Lists the encodings of a ladder by series and rate.
fn rates(ladder: &Ladder, renditions: &[Scores], width: usize) -> Table {
    let all: Vec<_> =
        ladder.series.iter().flat_map(|series| series.encodings.iter().map(move |of| (series, of))).collect();
    let of = |point: &Point| renditions.iter().find(|scores| scores.label == point.label);
    let size = |point: &Point| {
        of(point).map_or_else(none, |scores| format!("{}x{}", scores.rung.size.0, scores.rung.size.1))
    };
    let bytes = |point: &Point| {
        of(point)
            .and_then(|scores| scores.rung.coded)
            .map_or_else(none, |coded| format!("{:.2}", coded.bytes as f64 / 1e6))
    };
    let columns = vec![
        Column::text("encoding", all.iter().map(|(_, of)| of.label.clone())),
        Column::numbers("kbit/s", all.iter().map(|(_, of)| format!("{:.0}", of.rate))),
        Column::numbers("quality", all.iter().map(|(_, of)| format!("{:.2}", of.quality))),
        Column::text("hull", all.iter().map(|(_, of)| if of.on_hull { "yes" } else { "" }.to_owned())),
        Column::numbers("MB", all.iter().map(|(_, of)| bytes(of))),
        Column::text("size", all.iter().map(|(_, of)| size(of))),
        Column::text("series", all.iter().map(|(series, _)| series.name.clone())),
    ];
    table(columns, 4, width)
}

/// Compares the series: their rates with that of the first, and at the target. `None` if there is nothing to say.
fn compared(ladder: &Ladder, width: usize) -> Option<Table> {
    let series = &ladder.series;
    let target = series.iter().find_map(|series| series.target.as_ref());
    if series.len() < 2 && target.is_none() {
        return None;
    }
    let bd_rate = |of: &Series| of.bd_rate.map_or_else(none, |percent| format!("{percent:+.2} %"));
    let mut columns = vec![Column::text("series", series.iter().map(|of| of.name.clone()))];
    if let [first, _, ..] = &series[..] {
        columns.push(Column::numbers(&format!("BD-rate to {}", first.name), series.iter().map(bd_rate)));
    }
    if let Some(target) = target {
        let rate = |of: &Series| of.target.as_ref()?.rate.map(|rate| format!("{rate:.0}"));
        let encoding = |of: &Series| of.target.as_ref()?.encoding.clone();
        columns.push(Column::numbers(
            &format!("kbit/s at {}", target.quality),
            series.iter().map(|of| rate(of).unwrap_or_else(none)),
        ));
        columns.push(Column::text("reached by", series.iter().map(|of| encoding(of).unwrap_or_else(none))));
    }
    let needed = columns.len();
    Some(table(columns, needed, width))
}

/// Divides frames into parts of equally many.
fn equal_parts(frames: &[Frame]) -> Vec<&[Frame]> {
    frames.chunks(frames.len().div_ceil(ROWS).max(1)).collect()
}

/// Returns the scenes to list, in order of time, and a title: of many scenes the worst ones.
fn listed_scenes<'a>(scores: &Scores, scenes: Vec<&'a [Frame]>) -> (String, Vec<&'a [Frame]>) {
    let count = scenes.len();
    if count <= ROWS {
        return ("Scenes".into(), scenes);
    }
    let worth = |scene: &[Frame]| {
        let first = scores.figures(scene).into_iter().next();
        let sign = if first.as_ref().is_some_and(|of| of.metric.more_is_worse()) { -1.0 } else { 1.0 };
        first.and_then(|of| of.frames).map_or(f64::INFINITY, |p| sign * p.mean)
    };
    let mut scenes: Vec<_> = scenes.into_iter().map(|scene| (worth(scene), scene)).collect();
    scenes.sort_by(|a, b| a.0.total_cmp(&b.0));
    scenes.truncate(ROWS);
    let mut scenes: Vec<_> = scenes.into_iter().map(|(_, scene)| scene).collect();
    scenes.sort_by_key(|scene| scene[0].index);
    (format!("The {ROWS} worst of {count} scenes"), scenes)
}

/// Lists parts of the video with mean and lowest score.
fn course(scores: &Scores, parts: &[&[Frame]], width: usize) -> Table {
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

    use super::super::ladder::{Coded, Rung, ladders};
    use super::*;

    fn outcome(renditions: Vec<Scores>, cuts: &[u64]) -> Outcome {
        let cuts = cuts.iter().map(|ms| ClockTime::from_mseconds(*ms)).collect();
        Outcome { renditions, provenance: None, signal: None, failure: None, damaged: vec![], cuts }
    }

    fn scores(label: &str) -> Scores {
        let mut scores = Scores::new(
            label.into(),
            vec!["vmaf_v1.0.16_hfr_1d5h_2160".into()],
            vec!["ssimulacra2".into(), "cvvdp_q".into(), "psnr_y".into()],
        );
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
                let text = show(&outcome(renditions.clone(), &[200]), None, 3, width);
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
        let text = show(&outcome(vec![scores("film.mkv")], &[]), None, 0, 80);
        let row = text.lines().find(|line| line.contains(" cvvdp ")).unwrap();
        assert!(row.contains(" – "), "{row}");
        assert!(!row.contains(" 0.3"), "{row}");
    }

    #[test]
    fn scenes_have_rows_and_of_many_the_worst() {
        let text = |cuts: &[u64]| show(&outcome(vec![scores("film.mkv")], cuts), None, 0, 80);
        let few = text(&[400, 1200]);
        assert!(few.contains("Scenes\n") && few.contains(" 10-29 "), "{few}");
        let many = text(&(1..20).map(|i| 80 * i).collect::<Vec<_>>());
        assert!(many.contains("The 16 worst of 20 scenes"), "{many}");
        // Scores fall with time.
        assert!(many.contains(" 38-39 ") && many.contains(" 8-9 ") && !many.contains(" 6-7 "), "{many}");
        assert!(!text(&[]).contains("cene"));
    }

    #[test]
    fn rates_fit_and_are_compared() {
        let coded = |kbits: u64| Some(Coded { bytes: kbits * 125, seconds: 1.0 });
        let rung =
            |series: &str, kbits| Rung { series: series.into(), size: (1920, 1080), coded: coded(kbits) };
        let all: Vec<_> = [
            ("avc a.mp4", 4000, 20.0),
            ("avc b.mp4", 1000, 0.0),
            ("avc c.mp4", 2000, 10.0),
            ("av1 a.mp4", 2000, 20.0),
            ("av1 b.mp4", 500, 0.0),
            ("av1 c.mp4", 1000, 10.0),
        ]
        .map(|(label, kbits, more)| {
            let mut scores = Scores { rung: rung(&label[..3], kbits), ..scores(label) };
            scores.frames.iter_mut().for_each(|frame| frame.scores[0] += more);
            scores
        })
        .into();
        let all = outcome(all, &[]);
        let ladders = ladders(&all.renditions);
        for width in [60, 80] {
            let text = show(&all, ladders.first(), 0, width);
            let in_tables = text.lines().filter(|line| line.starts_with('│'));
            assert!(in_tables.into_iter().all(|line| line.chars().count() <= width), "{text}");
            for shown in ["BD-rate to avc", "-50.00 %", "reached by", "; 4000 kbit/s", " yes "] {
                assert!(text.contains(shown), "{shown}: {text}");
            }
        }
    }
}
