// SPDX-License-Identifier: MPL-2.0

//! The report of a channel about a day in UTC: availability, scores, worst minutes and alarms, as a page and as CSV.

use std::fmt::Write as _;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;

use super::App;
use super::api::{Failure, ask};
use crate::history::{History, Sum};
use crate::lines::{clock, score};
use crate::state::{Entry, Point, wall_clock};

const DAY: f64 = 86_400.0;
/// Minutes that are listed for each rendition.
const WORST: usize = 10;
const MOST_ALARMS: usize = 1000;
const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em}\
table{border-collapse:collapse;width:100%;margin-bottom:1.5em}th,td{text-align:left;padding:4px 12px 4px 0;border-top:1px solid #8884;\
font-variant-numeric:tabular-nums}";

/// The figures of a day.
struct Report {
    channel: String,
    date: String,
    renditions: Vec<Rendition>,
    /// Alarms that follow from no other, oldest first.
    alarms: Vec<Entry>,
}

struct Rendition {
    label: String,
    sum: Sum,
    /// Share of the day with scores, in per cent.
    availability: f64,
    /// Minutes with the lowest means, in seconds since 1970, and their means.
    worst: Vec<(f64, f64)>,
}

#[derive(Deserialize)]
struct Wanted {
    /// `2026-11-28`; without it yesterday.
    day: Option<String>,
}

/// Returns the routes of reports.
pub fn routes() -> Router<App> {
    Router::new()
        .route("/api/channels/{name}/report", get(page))
        .route("/api/channels/{name}/report.csv", get(table))
}

async fn page(State(app): State<App>, Path(name): Path<String>, Query(wanted): Query<Wanted>) -> Response {
    match report(app, name, wanted).await {
        Ok(report) => Html(report.page()).into_response(),
        Err(response) => response,
    }
}

async fn table(State(app): State<App>, Path(name): Path<String>, Query(wanted): Query<Wanted>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"report.csv\""),
    ];
    match report(app, name, wanted).await {
        Ok(report) => match report.table() {
            Ok(text) => (headers, text).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        },
        Err(response) => response,
    }
}

async fn report(app: App, name: String, wanted: Wanted) -> Result<Report, Response> {
    let now = wall_clock();
    let begin = match wanted.day {
        Some(day) => begin(&day)
            .ok_or((StatusCode::BAD_REQUEST, "a day is written as 2026-11-28\n").into_response())?,
        None => (now / DAY).floor() * DAY - DAY,
    };
    ask(app, name, move |history, channel| Report::new(history, channel, begin, now)).await
}

/// Returns the beginning of a day in seconds since 1970.
fn begin(day: &str) -> Option<f64> {
    let utc = glib::TimeZone::utc();
    let time = glib::DateTime::from_iso8601(&format!("{day}T00:00:00Z"), Some(&utc)).ok()?;
    (day.len() == 10 && time.to_unix() >= 0).then_some(time.to_unix() as f64)
}

impl Report {
    fn new(history: &History, channel: &str, begin: f64, now: f64) -> Result<Self, Failure> {
        // The last microsecond belongs to the day.
        let end = begin + DAY - 1e-6;
        // Each rendition has a window every second, also without frames.
        let seconds = (now - begin).clamp(1.0, DAY);
        let mut renditions = vec![];
        for label in history.labels(channel)? {
            let hours = history.hours(channel, &label, begin, end)?;
            if hours.is_empty() {
                continue;
            }
            let sum = hours.iter().fold(Sum::empty(), |sum, (_, hour)| sum.and(hour));
            let availability = (f64::from(sum.scored) / seconds * 100.0).min(100.0);
            let mut minutes: Vec<(f64, f64, u32)> = vec![];
            history.each(channel, &label, begin, end, |point| add(&mut minutes, &point))?;
            let mut worst: Vec<_> =
                minutes.into_iter().map(|(minute, sum, count)| (minute, sum / f64::from(count))).collect();
            worst.sort_by(|a, b| a.1.total_cmp(&b.1));
            worst.truncate(WORST);
            renditions.push(Rendition { label, sum, availability, worst });
        }
        let mut alarms = history.events(channel, begin, end, MOST_ALARMS)?;
        let is_own = |event: &Entry| {
            event.state != "info" && event.about.as_ref().is_none_or(|about| about.follows.is_none())
        };
        alarms.retain(is_own);
        alarms.reverse();
        let date = glib::DateTime::from_unix_utc(begin as i64)?.format("%Y-%m-%d")?.into();
        Ok(Self { channel: channel.into(), date, renditions, alarms })
    }

    fn table(&self) -> Result<Vec<u8>, csv::Error> {
        let mut table = csv::Writer::from_writer(vec![]);
        table.write_record(["day", "rendition", "availability", "mean", "min", "alarm_share"])?;
        for rendition in &self.renditions {
            let [availability, mean, min, alarmed] = rendition.figures();
            table.write_record([&self.date, &rendition.label, &availability, &mean, &min, &alarmed])?;
        }
        table.into_inner().map_err(|error| error.into_error().into())
    }

    fn page(&self) -> String {
        let (channel, date) = (escape(&self.channel), &self.date);
        let mut html = format!(
            "<!doctype html><html lang=en><meta charset=utf-8><meta name=color-scheme content=\"light dark\">\
             <meta name=viewport content=\"width=device-width\"><title>{channel}, {date}</title><style>{STYLE}</style>\
             <h1>{channel}</h1><p>{date}, times in UTC</p>"
        );
        let rows = self.renditions.iter().map(|rendition| {
            let [availability, mean, min, alarmed] = rendition.figures();
            [rendition.label.clone(), format!("{availability} %"), mean, min, format!("{alarmed} %")]
        });
        rows_of(&mut html, ["rendition", "with scores", "mean", "lowest", "in alarm"], rows);
        let worst = self.renditions.iter().flat_map(|rendition| {
            rendition
                .worst
                .iter()
                .map(|(minute, mean)| [rendition.label.clone(), clock(*minute), score(*mean)])
        });
        html += "<h2>Worst minutes</h2>";
        rows_of(&mut html, ["rendition", "minute", "mean"], worst);
        html += "<h2>Alarms</h2>";
        let alarms = self.alarms.iter().map(|event| {
            let Entry { time, label, kind, state, text, .. } = event;
            [clock(*time), label.clone(), kind.clone(), state.clone(), text.clone()]
        });
        rows_of(&mut html, ["time", "stream", "alarm", "", ""], alarms);
        html
    }
}

impl Rendition {
    /// Returns the availability in per cent, the mean, the lowest score, and the share of alarms in per cent.
    fn figures(&self) -> [String; 4] {
        let share = f64::from(self.sum.alarmed) / f64::from(self.sum.windows.max(1)) * 100.0;
        let mean = self.sum.sum / f64::from(self.sum.scored);
        [format!("{:.2}", self.availability), score(mean), score(self.sum.min), format!("{share:.2}")]
    }
}

/// Adds a window to its minute: beginning, sum and number of means.
fn add(minutes: &mut Vec<(f64, f64, u32)>, point: &Point) {
    if !point.mean.is_finite() {
        return;
    }
    let minute = (point.time / 60.0).floor() * 60.0;
    match minutes.last_mut() {
        Some((last, sum, count)) if *last == minute => {
            *sum += point.mean;
            *count += 1;
        }
        _ => minutes.push((minute, point.mean, 1)),
    }
}

/// Adds a table.
fn rows_of<const N: usize>(html: &mut String, head: [&str; N], rows: impl Iterator<Item = [String; N]>) {
    *html += "<table><tr>";
    // Writing to a string does not fail.
    for text in head {
        let _ = write!(html, "<th>{text}");
    }
    for row in rows {
        *html += "<tr>";
        for text in row {
            let _ = write!(html, "<td>{}", escape(&text));
        }
    }
    *html += "</table>";
}

/// Escapes text for HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_report_has_the_figures_of_its_day() {
        let history = History::open(None, Duration::from_secs(86_400)).unwrap();
        let day = begin("2026-11-28").unwrap();
        let point =
            |time: f64, mean: f64| Point { time, mean, min: mean - 1.0, p5: mean, alarm: mean < 50.0 };
        // A minute of bad scores, an hour of good ones, and the days around it.
        let times = (0..3600).map(|i| day + f64::from(i));
        let points = times.map(|time| point(time, if time < day + 60.0 { 40.0 } else { 90.0 }));
        let others = [day - 1.0, day + DAY].map(|time| point(time, 1.0));
        let points = points.chain(others).map(|point| ("sport".into(), "<high>".into(), point));
        let event = |text: &str, state: &str| {
            let [label, kind, state, text] = ["<high>", "alarm", state, text].map(String::from);
            ("sport".into(), Entry { time: day + 1.0, label, kind, state, text, still: None, about: None })
        };
        history.add(points, [event("bad", "raised"), event("found", "info")].into_iter());
        history.write(None, true);
        let report = Report::new(&history, "sport", day, day + 9.0 * DAY).unwrap();
        let table = String::from_utf8(report.table().unwrap()).unwrap();
        assert_eq!(table.lines().nth(1), Some("2026-11-28,<high>,4.17,89.17,39.00,1.67"));
        assert_eq!(report.renditions[0].worst[..2], [(day, 40.0), (day + 60.0, 90.0)]);
        let page = report.page();
        assert!(page.contains("&lt;high&gt;") && !page.contains("<high>"), "{page}");
        assert!(page.contains("<td>bad") && !page.contains("<td>found"), "{page}");
        for wrong in ["2026-13-01", "yesterday", "", "2026-11-28T", "1969-12-31"] {
            assert_eq!(begin(wrong), None, "{wrong}");
        }
    }
}
