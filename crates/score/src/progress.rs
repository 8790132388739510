// SPDX-License-Identifier: MPL-2.0

//! Progress display, only in a terminal.

use std::time::Duration;

use gst::ClockTime;
use gsthipvmaf::event::{self, EventMessage};
use indicatif::{ProgressBar, ProgressStyle};

use super::run::Event;
use super::time_range::TimeRange;

/// Time and share of the work before an estimate.
const LEAST_TIME: Duration = Duration::from_secs(3);
const LEAST_SHARE: f64 = 0.02;

/// A progress bar with speed and remaining time.
pub struct Progress {
    bar: ProgressBar,
    from: ClockTime,
    /// Frames of the first rendition.
    frames: u64,
}

impl Progress {
    /// Creates a bar for a part of the reference, whose duration may be unknown.
    pub fn new(duration: Option<ClockTime>, time_range: Option<TimeRange>) -> Self {
        let from = time_range.map_or(ClockTime::ZERO, |time_range| time_range.from);
        let end = time_range.and_then(|time_range| time_range.to).into_iter().chain(duration).min();
        let template = if end.is_some() { "{bar:24} {percent:>3} %  {msg}" } else { "{spinner} {msg}" };
        let bar = match end {
            Some(end) => ProgressBar::new(end.saturating_sub(from).mseconds()),
            None => ProgressBar::no_length(),
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        Self { bar: bar.with_style(style), from, frames: 0 }
    }

    /// Shows an event.
    pub fn show(&mut self, event: Event) {
        match event {
            Event::Frame(0, frame) => {
                self.frames += 1;
                let rate = self.frames as f64 / self.bar.elapsed().as_secs_f64();
                let time = frame.stream_time.unwrap_or_default() + frame.duration.unwrap_or_default();
                self.bar.set_position(time.saturating_sub(self.from).mseconds());
                let share =
                    self.bar.length().map_or(0.0, |all| self.bar.position() as f64 / all.max(1) as f64);
                let left = time_left(self.bar.elapsed(), share);
                let left = left.map_or_else(String::new, |left| format!(", {left} left"));
                let score = frame.models.first().map(|(_, score)| format!(", {score:.2}"));
                let score = score.unwrap_or_default();
                let text = format!("frame {}{score}, {rate:.0} per second{left}", frame.index);
                self.bar.set_message(text);
            }
            Event::Frame(..) => {}
            Event::Noticed(event) => {
                if let Some(text) = said(event) {
                    self.bar.suspend(|| eprintln!("note: {}: {text}", event.label));
                }
            }
            Event::Warning(text) => self.bar.suspend(|| eprintln!("warning: {text}")),
        }
    }

    /// Removes the bar.
    pub fn end(self) {
        self.bar.finish_and_clear();
    }
}

/// Returns the time left as minutes and seconds, once there is enough to judge by: a start is slower than the rest.
fn time_left(elapsed: Duration, share: f64) -> Option<String> {
    if elapsed < LEAST_TIME || share < LEAST_SHARE {
        return None;
    }
    let seconds = (elapsed.as_secs_f64() * (1.0 - share).max(0.0) / share).round() as u64;
    Some(format!("{}:{:02}", seconds / 60, seconds % 60))
}

/// Describes events that affect the interpretation of scores. The table counts frames without a partner.
fn said(message: &EventMessage) -> Option<String> {
    match (message.event, message.offset, message.reason.as_ref()) {
        (event::Event::Alignment, Some(offset), _) => {
            let when = if offset < 0 { "early" } else { "late" };
            Some(format!(
                "its pictures show that it is {when} by {:.3} s",
                offset.unsigned_abs() as f64 / 1e9
            ))
        }
        (event::Event::Mispaired, ..) => {
            let [since, until] = [message.since, message.running_time].map(Option::unwrap_or_default);
            Some(format!(
                "scores from {since:.3} to {until:.3} are for wrong pairs, because its offset has changed"
            ))
        }
        (event::Event::Alignment | event::Event::WrongScore, _, Some(reason)) => Some(reason.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_need_something_to_judge_by() {
        let left = |seconds, share| time_left(Duration::from_secs(seconds), share);
        assert_eq!((left(1, 0.5), left(60, 0.0), left(60, 0.01)), (None, None, None));
        assert_eq!(left(30, 0.25).as_deref(), Some("1:30"));
        assert_eq!(left(10, 1.1).as_deref(), Some("0:00"));
    }
}
