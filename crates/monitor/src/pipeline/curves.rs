// SPDX-License-Identifier: MPL-2.0

//! Values of the streams beside their scores, with alarms and curves: audio and delay.

use std::time::{Duration, Instant};

use super::Pipeline;
use crate::audio::{Alarms, Heard, Limits};
use crate::hold::Hold;
use crate::settings::Channel;
use crate::state::{Curve, State, Status};

/// Kind of alarm: a rendition is too late or too early.
pub const DELAY: &str = "delay";
/// Interval of the values of a curve.
const INTERVAL: Duration = Duration::from_secs(1);

/// State of a channel.
pub(super) struct Curves {
    /// Of the reference, then those of the renditions.
    streams: Vec<Stream>,
    limits: Limits,
    delay: DelayLimit,
    /// Time of the last look.
    seen: Instant,
    /// Time of the last values of the curves.
    valued: Instant,
}

#[derive(Default)]
struct Stream {
    audio: Alarms,
    delay: Hold,
}

/// Limit of the alarm about delays.
#[derive(Clone, Copy)]
struct DelayLimit {
    /// Largest delay in seconds, to both sides.
    most: Option<f64>,
    /// Seconds after which the alarm is raised, and cleared.
    times: [f64; 2],
}

impl DelayLimit {
    fn of(channel: &Channel) -> Self {
        Self {
            most: channel.alarm_delay.map(|delay| delay.0.as_secs_f64()),
            times: [channel.alarm_hold.0, channel.clear_hold.0].map(|time| time.as_secs_f64()),
        }
    }
}

impl Curves {
    pub(super) fn new(channel: &Channel) -> Self {
        let streams = (0..=channel.renditions.len()).map(|_| Stream::default()).collect();
        let (limits, delay) = (Limits::of(channel), DelayLimit::of(channel));
        Self { streams, limits, delay, seen: Instant::now(), valued: Instant::now() }
    }

    pub(super) fn adapt(&mut self, channel: &Channel) {
        (self.limits, self.delay) = (Limits::of(channel), DelayLimit::of(channel));
    }

    /// Raises and clears alarms about the audio of a stream.
    fn listen(&mut self, i: usize, heard: &Heard, seconds: f64, state: &mut State) {
        let Some((reference, renditions)) = self.streams.split_first_mut() else { return };
        let changes = match i.checked_sub(1).and_then(|i| renditions.get_mut(i)) {
            Some(rendition) => rendition.audio.update(heard, Some(&reference.audio), seconds, &self.limits),
            None => reference.audio.update(heard, None, seconds, &self.limits),
        };
        changes.into_iter().for_each(|change| state.alarm(i, change.kind, change.raised, change.text));
    }

    /// Raises and clears the alarm about the delay of a stream. Without a limit any more, it is cleared.
    fn watch_delay(&mut self, i: usize, delay: f64, seconds: f64, state: &mut State) {
        let DelayLimit { most, times } = self.delay;
        let is_far = most.is_some_and(|most| delay.abs() > most);
        let Some(stream) = self.streams.get_mut(i) else { return };
        if let Some(raised) = stream.delay.update(is_far, seconds, times) {
            let limit = most.map_or(String::new(), |most| format!(", threshold {:.0} ms", most * 1e3));
            state.alarm(i, DELAY, raised, format!("{:+.0} ms{limit}", delay * 1e3));
        }
    }
}

impl Pipeline {
    /// Notes the values of all streams, and raises and clears their alarms.
    pub(super) fn watch_curves(&mut self) {
        let now = Instant::now();
        let curves = &mut self.curves;
        let seconds = now.saturating_duration_since(std::mem::replace(&mut curves.seen, now)).as_secs_f64();
        let is_due = now.saturating_duration_since(curves.valued) >= INTERVAL;
        if is_due {
            curves.valued = now;
        }
        for (i, branch) in self.branches.iter_mut().enumerate() {
            let heard = branch.heard();
            let mut state = self.state.lock();
            let Some(stream) = state.streams_mut().nth(i) else { return };
            stream.audio = heard.as_ref().map(|heard| heard.present);
            stream.loudness = heard.as_ref().and_then(|heard| heard.short);
            let loudness = stream.loudness;
            let delay = stream.offset.filter(|_| stream.status == Status::Running);
            if let Some(heard) = heard {
                curves.listen(i, &heard, seconds, &mut state);
            }
            if let Some(delay) = delay {
                curves.watch_delay(i, delay, seconds, &mut state);
            }
            let values = [(Curve::Loudness, loudness), (Curve::Delay, delay)];
            for (curve, value) in values.into_iter().filter(|_| is_due) {
                value.into_iter().for_each(|value| state.value(i, curve, value));
            }
        }
    }
}
