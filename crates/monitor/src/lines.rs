// SPDX-License-Identifier: MPL-2.0

//! Output without a terminal: a line for each window and each event, and a summary at the end.

use std::fmt::Write as _;

use super::state::{Entry, Shared, State};
use super::updates::{Update, Window};
use score::error::Error;
use score::output::print;

/// Prints new windows and events. With a single channel its name is left out.
pub fn show(updates: &[Update], one: bool) -> Result<(), Error> {
    for update in updates {
        let channel = if one { String::new() } else { format!("{}  ", update.channel) };
        update.events.iter().try_for_each(|event| print(event_line(&channel, event)))?;
        update.windows.iter().try_for_each(|window| print(window_line(&channel, window)))?;
    }
    Ok(())
}

/// Formats a time of day in UTC.
pub fn clock(time: f64) -> String {
    let seconds = time.rem_euclid(86_400.0) as u32;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Formats a score; a dash if there is none.
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

fn window_line(channel: &str, window: &Window) -> String {
    let Window { label, point, counts, raised } = window;
    let line = format!(
        "{}Z  {channel}{label:<10}  VMAF {:>6}  lowest {:>6}  scored {}  unpaired {}  skipped {}  {}",
        clock(point.time),
        score(point.mean),
        score(point.min),
        counts.scored,
        counts.unpaired,
        counts.skipped,
        raised.join(" "),
    );
    line.trim_end().into()
}

/// Summarises all channels.
pub fn summary(states: &[Shared]) -> String {
    let mut text = String::new();
    for state in states {
        // Writing to a string does not fail.
        let _ = of_channel(&mut text, &state.lock());
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
    use crate::state::{Counts, Point};

    #[test]
    fn lines_have_no_nan() {
        let point = Point { time: 3725.0, mean: f64::NAN, min: f64::INFINITY, p5: f64::NAN, alarm: false };
        let window = Window { label: "low".into(), point, counts: Counts::default(), raised: vec![] };
        let line = window_line("", &window);
        assert_eq!(
            line,
            "01:02:05Z  low         VMAF      -  lowest      -  scored 0  unpaired 0  skipped 0"
        );
    }
}
