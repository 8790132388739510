// SPDX-License-Identifier: MPL-2.0

//! Output without a terminal: a line for each event, and for each window or each minute, and a summary at the end.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::scale;
use super::state::{Entry, Shared, State, VERDICTS, wall_clock};
use super::updates::{Update, Window};
use score::error::Error;
use score::output::print;

/// Interval of the lines about all channels, and of the limit of events.
const MINUTE: Duration = Duration::from_secs(60);
/// Number of events printed a minute, so that a log with many unsteady channels stays below 1 MB an hour.
const MOST_EVENTS: usize = 60;

/// Kind of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Log {
    /// Events, at most 60 a minute, and a line a minute.
    Events,
    /// Events and windows.
    Windows,
}

/// The printed lines.
pub struct Lines {
    log: Log,
    minute: Instant,
    /// Events of this minute.
    events: usize,
}

impl Lines {
    /// Begins to print.
    pub fn new(log: Log) -> Self {
        Self { log, minute: Instant::now(), events: 0 }
    }

    /// Prints what is new.
    pub fn show(&mut self, states: &[Shared], updates: &[Update]) -> Result<(), Error> {
        self.lines(states, updates, Instant::now()).iter().try_for_each(print)
    }

    /// Returns the lines about what is new. With a single channel its name is left out.
    fn lines(&mut self, states: &[Shared], updates: &[Update], now: Instant) -> Vec<String> {
        let mut lines = vec![];
        for update in updates {
            let channel = if states.len() == 1 { String::new() } else { format!("{}  ", update.channel) };
            for event in &update.events {
                self.events += 1;
                if self.log == Log::Windows || self.events <= MOST_EVENTS {
                    lines.push(event_line(&channel, event));
                }
            }
            if self.log == Log::Windows {
                let title = scale::title(&update.score_of);
                lines.extend(update.windows.iter().map(|window| window_line(&channel, title, window)));
            }
        }
        if self.log == Log::Events && now.saturating_duration_since(self.minute) >= MINUTE {
            lines.push(minute_line(states, self.events.saturating_sub(MOST_EVENTS)));
            (self.minute, self.events) = (now, 0);
        }
        lines
    }
}

/// Formats the state of all channels.
fn minute_line(states: &[Shared], unprinted: usize) -> String {
    let mut line = format!("{}Z  channels:", clock(wall_clock()));
    let verdicts: Vec<_> = states.iter().map(|state| state.lock().verdict()).collect();
    for verdict in VERDICTS {
        let count = verdicts.iter().filter(|other| **other == verdict).count();
        if count > 0 {
            // Writing to a string does not fail.
            let _ = write!(line, " {count} {verdict},");
        }
    }
    line.truncate(line.trim_end_matches(',').len());
    let lowest = states.iter().filter_map(|state| {
        let state = state.lock();
        Some((state.score()?, state.name.clone()))
    });
    if let Some((lowest, name)) = lowest.min_by(|a, b| a.0.total_cmp(&b.0)) {
        let _ = write!(line, "; lowest {} {name}", score(lowest));
    }
    if unprinted > 0 {
        let _ = write!(line, "; {unprinted} more events are in the history");
    }
    line
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
    let Entry { time, label, kind, state, text, about, .. } = event;
    let cause = about.as_ref().and_then(|about| about.follows.as_ref());
    format!(
        "{}Z  {channel}{label:<10}  {kind} {state}{}{text}{}",
        clock(*time),
        if text.is_empty() { "" } else { ": " },
        cause.map_or(String::new(), |cause| format!(" (follows from the failure of {cause})"))
    )
}

fn window_line(channel: &str, title: &str, window: &Window) -> String {
    let Window { label, point, counts, raised } = window;
    let line = format!(
        "{}Z  {channel}{label:<10}  {title} {:>6}  lowest {:>6}  scored {}  unpaired {}  skipped {}  {}",
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
    fn a_log_of_events_has_no_windows_and_a_limit() {
        let states: Vec<Shared> =
            ["a", "b"].map(|name| Shared::new(State { name: name.into(), ..State::default() }.into())).into();
        let event = |i: usize| Entry {
            time: 0.0,
            label: "low".into(),
            kind: "alarm".into(),
            state: "raised".into(),
            text: i.to_string(),
            still: None,
            about: None,
        };
        let point = Point { time: 0.0, mean: 50.0, min: 40.0, p5: 45.0, alarm: false };
        let window = || Window { label: "low".into(), point, counts: Counts::default(), raised: vec![] };
        let update = || Update {
            channel: "a".into(),
            addresses: vec![],
            webhook_events: vec![],
            score_of: "vmaf_v0.6.1".into(),
            windows: vec![window()],
            events: (0..MOST_EVENTS + 3).map(event).collect(),
            alarms: None,
            values: vec![],
            segments: vec![],
        };
        let mut lines = Lines::new(Log::Events);
        let first = lines.lines(&states, &[update()], lines.minute);
        assert!(first.len() == MOST_EVENTS && first.iter().all(|line| line.contains("alarm raised")));
        let next = lines.lines(&states, &[], lines.minute + MINUTE);
        let [next] = &next[..] else { panic!("{next:?}") };
        assert!(next.ends_with("channels: 2 starting; 3 more events are in the history"), "{next}");
        assert_eq!(lines.lines(&states, &[update()], lines.minute).len(), MOST_EVENTS);
        let mut lines = Lines::new(Log::Windows);
        assert_eq!(lines.lines(&states, &[update()], lines.minute + MINUTE).len(), MOST_EVENTS + 4);
    }

    #[test]
    fn lines_have_no_nan() {
        let point = Point { time: 3725.0, mean: f64::NAN, min: f64::INFINITY, p5: f64::NAN, alarm: false };
        let window = Window { label: "low".into(), point, counts: Counts::default(), raised: vec![] };
        let line = window_line("", "VMAF", &window);
        assert_eq!(
            line,
            "01:02:05Z  low         VMAF      -  lowest      -  scored 0  unpaired 0  skipped 0"
        );
    }
}
