// SPDX-License-Identifier: MPL-2.0

//! What is printed where there is no terminal: a line for each window and each event, and a summary at the end.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::state::{Entry, Point, Shared, State, Stream, lock};
use crate::error::Error;
use crate::output::print;

/// What was printed so far.
#[derive(Default)]
pub struct Lines {
    /// By the address of the state: the number of events, and when the last windows ended.
    seen: HashMap<usize, (u64, Vec<f64>)>,
}

impl Lines {
    /// Prints what is new.
    pub fn show(&mut self, states: &[Shared]) -> Result<(), Error> {
        let mut seen = HashMap::new();
        for shared in states {
            let address = Arc::as_ptr(shared).addr();
            let state = lock(shared).clone();
            // The channel's name says nothing where there is only one.
            let channel = if states.len() > 1 { format!("{}  ", state.name) } else { String::new() };
            let (events, mut times) = self.seen.remove(&address).unwrap_or_default();
            times.resize(state.renditions.len(), f64::NEG_INFINITY);
            for event in state.events_since(events) {
                print(event_line(&channel, event))?;
            }
            for (stream, time) in state.renditions.iter().zip(&mut times) {
                for point in stream.history.iter().filter(|point| point.time > *time) {
                    print(window_line(&channel, stream, point))?;
                }
                *time = stream.history.back().map_or(*time, |point| point.time);
            }
            seen.insert(address, (state.event_count, times));
        }
        self.seen = seen;
        Ok(())
    }
}

/// The time of day on the clock of UTC.
pub fn clock(time: f64) -> String {
    let seconds = time.rem_euclid(86_400.0) as u32;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// A score, or a dash where there is none.
pub fn score(score: f64) -> String {
    if score.is_finite() { format!("{score:.2}") } else { "-".into() }
}

fn event_line(channel: &str, event: &Entry) -> String {
    let Entry { time, label, kind, state, text, .. } = event;
    format!(
        "{}Z  {channel}{label:<10}  {kind} {state}{}{text}",
        clock(*time),
        if text.is_empty() { "" } else { ": " }
    )
}

fn window_line(channel: &str, stream: &Stream, point: &Point) -> String {
    let counts = stream.counts;
    let raised = stream.raised().join(" ");
    let line = format!(
        "{}Z  {channel}{:<10}  VMAF {:>6}  lowest {:>6}  scored {}  unpaired {}  skipped {}  {raised}",
        clock(point.time),
        stream.label,
        score(point.mean),
        score(point.min),
        counts.scored,
        counts.unpaired,
        counts.skipped,
    );
    line.trim_end().into()
}

/// How the channels have been.
pub fn summary(states: &[Shared]) -> String {
    let mut text = String::new();
    for state in states {
        // Writing to a string does not fail.
        let _ = of_channel(&mut text, &lock(state));
    }
    text.trim_end().into()
}

fn of_channel(text: &mut String, state: &State) -> std::fmt::Result {
    let times = |count: u64, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    writeln!(
        text,
        "{}: {}, {}",
        state.name,
        times(state.restarts, "restart"),
        times(state.event_count, "event")
    )?;
    for stream in state.streams() {
        let trouble = format!("{}, {}", times(stream.failures, "failure"), times(stream.restarts, "restart"));
        let counts = stream.counts;
        match stream.label == state.reference.label {
            true => writeln!(text, "  {:<10}  {trouble}", stream.label)?,
            false => writeln!(
                text,
                "  {:<10}  {trouble}, frames: {} scored, {} unpaired, {} skipped",
                stream.label, counts.scored, counts.unpaired, counts.skipped
            )?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_no_nan() {
        let stream = Stream { label: "low".into(), ..Stream::default() };
        let point = Point { time: 3725.0, mean: f64::NAN, min: f64::INFINITY, p5: f64::NAN, alarm: false };
        let line = window_line("", &stream, &point);
        assert_eq!(
            line,
            "01:02:05Z  low         VMAF      -  lowest      -  scored 0  unpaired 0  skipped 0"
        );
    }
}
