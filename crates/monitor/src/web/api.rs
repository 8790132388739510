// SPDX-License-Identifier: MPL-2.0

//! The API: present and past state of the channels.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval};

use super::App;
use crate::alarms::{Alarm, CHANNEL};
use crate::history::{Bucket, HOUR, History};
use crate::mutes::Mute;
use crate::scale::Scale;
use crate::segments::Segment;
use crate::source::check_name;
use crate::state::{self, Curve, REFERENCE, VERDICTS, wall_clock};
use crate::webhook::MUTE;

/// Interval of the event stream.
const INTERVAL: Duration = Duration::from_secs(1);
/// Largest number of listeners, which leaves connections for other requests.
const LISTENERS: usize = 128;
/// Windows in a sparkline.
const SPARK: usize = 120;
/// Default time range in seconds.
const USUAL: f64 = 3600.0;
const MOST_POINTS: usize = 5000;
const MOST_EVENTS: usize = 5000;

pub fn routes() -> Router<App> {
    let listeners = Arc::new(Semaphore::new(LISTENERS));
    Router::new()
        .route("/api/channels", get(channels))
        .route("/api/channels/{name}", get(channel))
        .route("/api/channels/{name}/history", get(past))
        .route("/api/channels/{name}/history.csv", get(table))
        .route("/api/channels/{name}/events", get(events))
        .route("/api/channels/{name}/segments", get(segments))
        .route("/api/channels/{name}/alarms/{number}/acknowledge", post(acknowledge))
        .route("/api/channels/{name}/mute", post(mute))
        .route("/api/stills/{number}/{kind}", get(still))
        .route("/api/stream", get(move |app| listen(app, listeners.clone())))
}

/// A range of time.
#[derive(Deserialize)]
struct Span {
    /// Seconds since 1970.
    from: Option<f64>,
    /// Seconds since 1970.
    to: Option<f64>,
    /// Largest number of points or events.
    limit: Option<usize>,
}

impl Span {
    /// Returns both ends in seconds since 1970.
    fn range(&self) -> (f64, f64) {
        let finite = |time: Option<f64>| time.filter(|time| time.is_finite());
        let to = finite(self.to).unwrap_or_else(wall_clock).max(0.0);
        (finite(self.from).unwrap_or(to - USUAL).max(0.0), to)
    }
}

async fn channels(State(app): State<App>) -> Json<Value> {
    Json(overview(&app))
}

/// Returns all channels, worst first, and the state of the history.
fn overview(app: &App) -> Value {
    let mut all: Vec<_> = app.channel_set.states().iter().map(|state| summary(app, &state.lock())).collect();
    let key = |channel: &Value| {
        let score = channel["score"].as_f64().unwrap_or(f64::INFINITY);
        (VERDICTS.iter().position(|state| channel["state"] == *state), score)
    };
    all.sort_by(|a, b| {
        let ((a, left), (b, right)) = (key(a), key(b));
        a.cmp(&b).then(left.total_cmp(&right))
    });
    json!({ "time": wall_clock(), "login": app.login, "history": app.history.shown(),
            "webhooks": app.deliveries.shown(), "channels": all })
}

#[derive(Serialize)]
struct Summary<'a> {
    state: &'static str,
    score: Option<f64>,
    #[serde(flatten)]
    channel: Shown<'a>,
}

/// Further fields of a channel.
#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    reason: &'a Option<String>,
    restarts: u64,
    model: &'a str,
    backend: &'a str,
    score_of: &'a str,
    scale: Scale,
    alarm_low: Option<f64>,
    /// Active alarms, oldest first.
    alarms: Vec<&'a Alarm>,
    /// Time until which it is muted.
    muted: Option<Mute>,
    streams: Vec<ShownStream<'a>>,
}

#[derive(Serialize)]
struct ShownStream<'a> {
    #[serde(flatten)]
    stream: &'a state::Stream,
    last: Option<state::Point>,
    /// Means of the latest windows.
    spark: Vec<f64>,
}

fn summary(app: &App, state: &state::State) -> Value {
    let stream = |stream| ShownStream { stream, last: stream.last, spark: spark(stream) };
    let shown = Shown {
        name: &state.name,
        reason: &state.reason,
        restarts: state.restarts,
        model: &state.model,
        backend: &state.backend,
        score_of: &state.score_of,
        scale: Scale::of(&state.score_of),
        alarm_low: state.alarm_low,
        alarms: state.alarms.iter().collect(),
        muted: app.mutes.of(state, wall_clock()),
        streams: state.streams().map(stream).collect(),
    };
    // Every field can be represented in JSON; NaN becomes null.
    serde_json::to_value(Summary { state: state.verdict(), score: state.score(), channel: shown })
        .unwrap_or_default()
}

fn spark(stream: &state::Stream) -> Vec<f64> {
    // More decimals cannot be seen.
    stream.history.last(SPARK).map(|point| (point.mean * 1e3).round() / 1e3).collect()
}

async fn channel(State(app): State<App>, Path(name): Path<String>) -> Response {
    match app.channel_set.state(&name) {
        Some(state) => {
            let state = state.lock();
            let mut channel = summary(&app, &state);
            channel["events"] = json!(state.events.iter().take(100).collect::<Vec<_>>());
            Json(channel).into_response()
        }
        None => unknown(),
    }
}

/// Name of the user who changes something.
#[derive(Deserialize)]
struct By {
    by: String,
}

#[derive(Deserialize)]
struct Muting {
    /// Seconds since 1970; without it the mute ends.
    until: Option<f64>,
    by: String,
}

/// Returns the answer to a name that cannot be.
fn refused(by: &str) -> Option<Response> {
    let error = check_name(by).err()?;
    Some((StatusCode::UNPROCESSABLE_ENTITY, format!("{error}\n")).into_response())
}

/// Acknowledges an alarm. Foreign pages cannot send JSON, so they cannot do this through a browser.
async fn acknowledge(
    State(app): State<App>,
    Path((name, number)): Path<(String, u64)>,
    Json(By { by }): Json<By>,
) -> Response {
    if let Some(refused) = refused(&by) {
        return refused;
    }
    let Some(state) = app.channel_set.state(&name) else { return unknown() };
    match state.lock().acknowledge(number, &by) {
        true => StatusCode::NO_CONTENT.into_response(),
        false => (StatusCode::NOT_FOUND, "there is no such alarm any more\n").into_response(),
    }
}

/// Mutes a channel until a time, or no longer.
async fn mute(State(app): State<App>, Path(name): Path<String>, Json(muting): Json<Muting>) -> Response {
    let Muting { until, by } = muting;
    if let Some(refused) = refused(&by) {
        return refused;
    }
    let Some(state) = app.channel_set.state(&name) else { return unknown() };
    let until = until.filter(|until| *until > wall_clock());
    let text = match until {
        Some(until) => format!("muted until {} UTC by {by}", date(until)),
        None => format!("not muted any more, by {by}"),
    };
    if let Err(error) = app.mutes.set(&name, until.map(|until| Mute { until, by })) {
        let text = format!("the mute will not survive a restart: {error}\n");
        return (StatusCode::INTERNAL_SERVER_ERROR, text).into_response();
    }
    state.lock().note(CHANNEL, MUTE, text);
    StatusCode::NO_CONTENT.into_response()
}

/// Formats a time in UTC.
fn date(time: f64) -> String {
    let date = glib::DateTime::from_unix_utc(time as i64).and_then(|time| time.format("%Y-%m-%d %H:%M"));
    date.map_or_else(|_| "a time".into(), Into::into)
}

fn unknown() -> Response {
    (StatusCode::NOT_FOUND, "there is no such channel\n").into_response()
}

/// An error of a question to the history.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

fn failed(error: Failure) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("the history cannot be read: {error}\n")).into_response()
}

/// Reads the history of a channel on a blocking thread.
pub async fn ask<T: Send + 'static>(
    app: App,
    name: String,
    question: impl FnOnce(&History, &str) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Response> {
    let known = app.channel_set.state(&name).is_some();
    let asked = tokio::task::spawn_blocking(move || {
        let known = known || !app.history.labels(&name)?.is_empty();
        let answer = if known { Some(question(&app.history, &name)?) } else { None };
        Ok::<_, Failure>(answer)
    });
    match asked.await {
        Ok(Ok(answer)) => answer.ok_or_else(unknown),
        Ok(Err(error)) => Err(failed(error)),
        Err(error) => Err(failed(error.into())),
    }
}

/// Returns columns for charts: times, then mean, minimum and alarm of each rendition, and the curves beside them.
async fn past(State(app): State<App>, Path(name): Path<String>, Query(span): Query<Span>) -> Response {
    let (from, to) = span.range();
    let most = span.limit.unwrap_or(1000).clamp(1, MOST_POINTS);
    let kept = app.history.keep().as_secs_f64();
    let read = move |history: &History, channel: &str| {
        let mut all = vec![];
        for label in history.labels(channel)? {
            let buckets = history.points(channel, &label, from, to, most)?;
            let column = |of: fn(&Bucket) -> Value| buckets.iter().map(of).collect::<Vec<_>>();
            all.push(json!({
                "label": label,
                "time": column(|bucket| json!(bucket.time)),
                "mean": column(|bucket| json!(bucket.mean)),
                "min": column(|bucket| json!(bucket.min)),
                "alarm": column(|bucket| json!(bucket.alarm)),
            }));
        }
        let mut curves = vec![];
        for label in std::iter::once(REFERENCE.to_owned()).chain(history.labels(channel)?) {
            for curve in Curve::ALL {
                let values = history.curve(channel, &label, curve, [from, to], most)?;
                if !values.is_empty() {
                    let (time, value): (Vec<_>, Vec<_>) = values.into_iter().unzip();
                    curves.push(json!({ "label": label, "curve": curve, "time": time, "value": value }));
                }
            }
        }
        // Longest usual time between points; beyond the windows that are kept, there is one for each hour.
        let step = if from < wall_clock() - kept { HOUR } else { 1.0 };
        Ok(json!({ "from": from, "to": to, "step": step, "renditions": all, "curves": curves }))
    };
    ask(app, name, read).await.map_or_else(|response| response, |answer| Json(answer).into_response())
}

/// Returns all windows of a time range as CSV.
async fn table(State(app): State<App>, Path(name): Path<String>, Query(span): Query<Span>) -> Response {
    let (from, to) = span.range();
    let read = move |history: &History, channel: &str| {
        let mut table = csv::Writer::from_writer(vec![]);
        table.write_record(["time", "rendition", "mean", "min", "p5", "alarm"])?;
        for label in history.labels(channel)? {
            let mut result = Ok(());
            history.each(channel, &label, from, to, |point| {
                let score =
                    |score: f64| if score.is_finite() { format!("{score:.3}") } else { String::new() };
                let row = [
                    format!("{:.3}", point.time),
                    label.clone(),
                    score(point.mean),
                    score(point.min),
                    score(point.p5),
                    u8::from(point.alarm).to_string(),
                ];
                if result.is_ok() {
                    result = table.write_record(row);
                }
            })?;
            result?;
        }
        Ok(table.into_inner()?)
    };
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"history.csv\""),
    ];
    ask(app, name, read).await.map_or_else(|response| response, |text| (headers, text).into_response())
}

async fn events(State(app): State<App>, Path(name): Path<String>, Query(span): Query<Span>) -> Response {
    let (from, to) = span.range();
    let most = span.limit.unwrap_or(200).clamp(1, MOST_EVENTS);
    let read = move |history: &History, channel: &str| Ok(history.events(channel, from, to, most)?);
    ask(app, name, read).await.map_or_else(|response| response, |answer| Json(answer).into_response())
}

/// Returns the latest segments of a time range, newest first.
async fn segments(State(app): State<App>, Path(name): Path<String>, Query(span): Query<Span>) -> Response {
    let (from, to) = span.range();
    let most = span.limit.unwrap_or(200).clamp(1, MOST_EVENTS);
    let Some(state) = app.channel_set.state(&name) else { return unknown() };
    let state = state.lock();
    let newest = state.segments.iter().rev().filter(|segment| (from..=to).contains(&segment.begin));
    Json(newest.take(most).map(Segment::shown).collect::<Vec<_>>()).into_response()
}

/// Returns a picture of a still: reference, rendition or damage.
async fn still(State(app): State<App>, Path((number, kind)): Path<(u64, String)>) -> Response {
    let read = move || app.still_store.path(number, &kind).and_then(|path| std::fs::read(path).ok());
    match tokio::task::spawn_blocking(read).await {
        Ok(Some(picture)) => {
            let headers =
                [(header::CONTENT_TYPE, "image/jpeg"), (header::CACHE_CONTROL, "private, max-age=86400")];
            (headers, picture).into_response()
        }
        _ => (StatusCode::NOT_FOUND, "there is no such picture\n").into_response(),
    }
}

/// Sends all channels repeatedly.
async fn listen(State(app): State<App>, listeners: Arc<Semaphore>) -> Response {
    let Ok(slot) = listeners.try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many listeners\n").into_response();
    };
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stream = stream::unfold((app, ticks, slot), |(app, mut ticks, slot)| async move {
        ticks.tick().await;
        let event = Event::default().data(overview(&app).to_string());
        Some((Ok::<_, Infallible>(event), (app, ticks, slot)))
    });
    Sse::new(stream).into_response()
}
