// SPDX-License-Identifier: MPL-2.0

//! The active alarms of a channel: severity, beginning, acknowledgement, and which of them follow from another.
//!
//! A sender that dies causes a drop-out of each rendition, often low scores and frozen pictures, and, once frames have been
//! missing for long enough, the failure of the source. Only that failure is announced. So alarms of streams that have just
//! fallen silent are held back until the source has failed, which explains them, or delivers again.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::audio;
use super::pipeline::DELAY;
use super::state::{Entry, State, wall_clock};

/// Kind of alarm: a source has failed.
pub const SOURCE: &str = "source";
/// Kind of alarm, and label: the whole channel has failed.
pub const CHANNEL: &str = "channel";
/// Kinds of alarms that follow from a failed source.
const FOLLOWING: [&str; 10] = [
    "alarm",
    "freeze",
    "black",
    "dropout",
    "stalled",
    "other-programme",
    DELAY,
    audio::MISSING,
    audio::SILENCE,
    audio::LOUDNESS,
];
/// Time, beyond that for a silent source to fail, after which an alarm of an earlier run ends if it is not raised again.
const RESUME_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for which a drop-out is held back, after which a dead sender shows.
const DROPOUT_HOLD: Duration = Duration::from_secs(1);
/// Time beyond that for a silent source to fail, after which alarms are held back no longer.
const FAILURE_TIMEOUT: Duration = Duration::from_secs(5);

/// Severity of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A fault of this machine or of the settings; the pictures may be good.
    Minor,
    /// A rendition is bad or missing.
    Major,
    /// The reference or the whole channel is missing.
    Critical,
}

/// An acknowledgement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Acknowledged {
    pub by: String,
    /// Seconds since 1970.
    pub time: f64,
}

/// An active alarm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alarm {
    #[serde(flatten)]
    pub about: About,
    pub label: String,
    pub kind: String,
    pub text: String,
    /// Number of its still.
    pub still: Option<u64>,
    pub acknowledged: Option<Acknowledged>,
    /// Time since which it is held back.
    #[serde(skip)]
    held: Option<Instant>,
    /// Time until which an alarm of an earlier run of the program is waited for to be raised again.
    #[serde(skip)]
    resumed: Option<Instant>,
}

/// Part of an alarm that its events have, too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Number of the alarm.
    pub alarm: u64,
    pub severity: Severity,
    /// Beginning of the alarm, in seconds since 1970.
    pub since: f64,
    /// Label of the stream whose failure explains the alarm.
    pub follows: Option<String>,
}

impl Alarm {
    /// Returns true if it was announced.
    pub fn is_announced(&self) -> bool {
        self.held.is_none() && self.about.follows.is_none()
    }

    /// Returns true if its beginning is an event already.
    pub fn has_begun(&self) -> bool {
        self.held.is_none()
    }

    fn entry(&self, state: &str, text: String) -> Entry {
        Entry {
            time: wall_clock(),
            label: self.label.clone(),
            kind: self.kind.clone(),
            state: state.into(),
            text,
            // Pictures are of the beginning.
            still: self.still.filter(|_| state == "raised"),
            about: Some(self.about.clone()),
        }
    }

    /// Returns the event of its beginning.
    fn beginning(&self) -> Entry {
        Entry { time: self.about.since, ..self.entry("raised", self.text.clone()) }
    }
}

impl State {
    /// Begins an alarm, unless it is active. Its event may be held back.
    pub fn raise(&mut self, label: &str, kind: &str, text: String, still: Option<u64>) {
        if let Some(alarm) = self.alarms.iter_mut().find(|alarm| alarm.label == label && alarm.kind == kind) {
            alarm.resumed = None;
            return;
        }
        let since = wall_clock();
        self.alarm_number = (self.alarm_number + 1).max((since * 1e6) as u64);
        let about =
            About { alarm: self.alarm_number, severity: self.severity(label, kind), since, follows: None };
        let held = FOLLOWING.contains(&kind).then(Instant::now);
        let (label, kind) = (label.to_owned(), kind.to_owned());
        let alarm = Alarm { about, label, kind, text, still, acknowledged: None, held, resumed: None };
        if held.is_none() {
            self.add(alarm.beginning());
        }
        self.alarms.push(alarm);
        self.settle(Instant::now());
    }

    /// Ends an alarm if it is active.
    pub fn clear(&mut self, label: &str, kind: &str, text: String) {
        let Some(at) = self.alarms.iter().position(|alarm| alarm.label == label && alarm.kind == kind) else {
            return;
        };
        let alarm = self.alarms.remove(at);
        if alarm.held.is_some() {
            self.add(alarm.beginning());
        }
        self.add(alarm.entry("cleared", text));
    }

    /// Goes on with the alarms of an earlier run of the program, which it did not end.
    pub fn resume(&mut self, alarms: Vec<Alarm>, now: Instant) {
        let until = Some(now + self.stall + RESUME_TIMEOUT);
        self.alarm_number = alarms.iter().map(|alarm| alarm.about.alarm).fold(self.alarm_number, u64::max);
        self.alarms.extend(alarms.into_iter().map(|alarm| Alarm { resumed: until, ..alarm }));
    }

    /// Ends alarms of an earlier run that were not raised again.
    fn end_resumed(&mut self, now: Instant) {
        let is_over = |alarm: &&Alarm| alarm.resumed.is_some_and(|until| until <= now);
        let over: Vec<_> = self.alarms.iter().filter(is_over).cloned().collect();
        for alarm in over {
            self.clear(
                &alarm.label,
                &alarm.kind,
                "it has not come again since the monitor was started".into(),
            );
        }
    }

    /// Announces alarms that were held back and those that no failure explains any more.
    pub fn settle(&mut self, now: Instant) {
        self.end_resumed(now);
        for i in 0..self.alarms.len() {
            let alarm = &self.alarms[i];
            let cause = if FOLLOWING.contains(&&*alarm.kind) { self.cause(&alarm.label) } else { None };
            let begins = match alarm.held {
                Some(held) => {
                    let held = now.saturating_duration_since(held);
                    let hold = if alarm.kind == "dropout" { DROPOUT_HOLD } else { Duration::ZERO };
                    let is_over = held >= self.stall + FAILURE_TIMEOUT;
                    cause.is_some() || is_over || (held >= hold && !self.is_silent(&alarm.label))
                }
                None => alarm.about.follows.is_some() && cause.is_none(),
            };
            if begins {
                let alarm = &mut self.alarms[i];
                alarm.held = None;
                alarm.about.follows = cause;
                let entry = alarm.beginning();
                self.add(entry);
            }
        }
    }

    /// Acknowledges an active alarm. Returns false if there is none of this number.
    pub fn acknowledge(&mut self, number: u64, by: &str) -> bool {
        let Some(alarm) = self.alarms.iter_mut().find(|alarm| alarm.about.alarm == number) else {
            return false;
        };
        alarm.acknowledged = Some(Acknowledged { by: by.into(), time: wall_clock() });
        let entry = alarm.entry("acknowledged", by.into());
        self.add(entry);
        true
    }

    fn severity(&self, label: &str, kind: &str) -> Severity {
        match kind {
            "overload" | "downstream-blocked" | "timestamp-jump" => Severity::Minor,
            CHANNEL | "device-lost" => Severity::Critical,
            audio::MISSING | audio::SILENCE => Severity::Major,
            _ if label == self.reference.label => Severity::Critical,
            _ => Severity::Major,
        }
    }

    /// Returns the label of a failure that explains alarms of this stream.
    fn cause(&self, label: &str) -> Option<String> {
        let explains = |alarm: &&Alarm| match &*alarm.kind {
            CHANNEL => true,
            SOURCE => alarm.label == label || alarm.label == self.reference.label,
            _ => false,
        };
        self.alarms.iter().find(explains).map(|alarm| alarm.label.clone())
    }

    /// Returns true if the stream or the reference has just fallen silent.
    fn is_silent(&self, label: &str) -> bool {
        self.streams().any(|stream| stream.silent && (stream.label == label || stream.pad == "ref_sink"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Stream;

    fn channel() -> State {
        let stream =
            |label: &str, pad: &str| Stream { label: label.into(), pad: pad.into(), ..Stream::default() };
        State {
            reference: stream("reference", "ref_sink"),
            renditions: vec![stream("high", "dist_sink"), stream("low", "dist_0")],
            stall: Duration::from_secs(10),
            ..State::default()
        }
    }

    /// Returns the events, oldest first: label, kind, state and cause.
    fn events(state: &State) -> Vec<(String, String, String, Option<String>)> {
        let of = |entry: &Entry| {
            let follows = entry.about.as_ref().and_then(|about| about.follows.clone());
            (entry.label.clone(), entry.kind.clone(), entry.state.clone(), follows)
        };
        state.events.iter().rev().map(of).collect()
    }

    fn event(
        label: &str,
        kind: &str,
        state: &str,
        follows: Option<&str>,
    ) -> (String, String, String, Option<String>) {
        (label.into(), kind.into(), state.into(), follows.map(Into::into))
    }

    #[test]
    fn a_dead_reference_is_one_incident() {
        let mut state = channel();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        for label in ["reference", "high", "low"] {
            state.raise(label, "dropout", "3 frames".into(), None);
        }
        state.reference.silent = true;
        state.settle(at(5));
        assert!(events(&state).is_empty());
        state.raise("reference", SOURCE, "no frames arrive".into(), None);
        state.raise("low", "alarm", "20, threshold 70".into(), None);
        let first = event("reference", SOURCE, "raised", None);
        let following = |label, kind, is| event(label, kind, is, Some("reference"));
        let rest = ["reference", "high", "low"].map(|label| following(label, "dropout", "raised"));
        let rest = [&rest[..], &[following("low", "alarm", "raised")]].concat();
        assert_eq!(events(&state), [&[first][..], &rest].concat());
        assert_eq!(state.alarms.iter().filter(|alarm| alarm.is_announced()).count(), 1);
        assert_eq!(state.alarms.iter().map(|alarm| alarm.about.severity).max(), Some(Severity::Critical));

        state.events.clear();
        state.reference.silent = false;
        state.clear("high", "dropout", String::new());
        state.clear("reference", SOURCE, "frames arrive again".into());
        state.settle(at(60));
        // An alarm that outlasts its cause is announced.
        let after = [following("high", "dropout", "cleared"), event("reference", SOURCE, "cleared", None)];
        let left = [("reference", "dropout"), ("low", "dropout"), ("low", "alarm")];
        let left = left.map(|(label, kind)| event(label, kind, "raised", None));
        assert_eq!(events(&state), [&after[..], &left].concat());
    }

    #[test]
    fn a_gap_of_a_living_sender_is_announced() {
        let mut state = channel();
        let begin = Instant::now();
        state.raise("low", "dropout", "3 frames".into(), None);
        assert!(events(&state).is_empty());
        state.settle(begin + DROPOUT_HOLD * 2);
        assert_eq!(events(&state), [event("low", "dropout", "raised", None)]);
        // One that ends before it is clear is announced at its end.
        state.raise("high", "dropout", "3 frames".into(), None);
        state.clear("high", "dropout", String::new());
        let both = ["raised", "cleared"].map(|is| event("high", "dropout", is, None));
        assert_eq!(events(&state)[1..], both);
        // One of a source that stays silent and does not fail, as one that is made from the reference, comes late.
        state.renditions[0].silent = true;
        state.raise("high", "alarm", "20".into(), None);
        state.settle(begin + Duration::from_secs(10));
        assert_eq!(events(&state).len(), 3);
        state.settle(begin + Duration::from_secs(30));
        assert_eq!(events(&state)[3..], [event("high", "alarm", "raised", None)]);
        // Silence of another rendition is no reason to wait.
        state.raise("low", "freeze", String::new(), None);
        assert_eq!(events(&state)[4..], [event("low", "freeze", "raised", None)]);
    }

    #[test]
    fn alarms_go_on_after_a_restart_of_the_program() {
        let mut before = channel();
        before.raise("reference", SOURCE, "no frames arrive".into(), None);
        before.raise("low", "overload", String::new(), None);
        let number = before.alarms[0].about.alarm;
        before.acknowledge(number, "anna");
        let stored = serde_json::to_vec(&before.alarms).unwrap();

        let (mut state, begin) = (channel(), Instant::now());
        state.resume(serde_json::from_slice(&stored).unwrap(), begin);
        assert_eq!(state.alarms.iter().filter(|alarm| alarm.is_announced()).count(), 2);
        // It goes on under its number, is not announced again, and stays acknowledged.
        state.raise("reference", SOURCE, "no frames arrive".into(), None);
        state.settle(begin + Duration::from_secs(60));
        assert_eq!(events(&state), []);
        state.settle(begin + Duration::from_secs(80));
        assert_eq!(events(&state), [event("low", "overload", "cleared", None)]);
        let [alarm] = &state.alarms[..] else { panic!("{:?}", state.alarms) };
        assert_eq!(
            (alarm.about.alarm, alarm.acknowledged.as_ref().map(|by| &*by.by)),
            (number, Some("anna"))
        );
        state.clear("reference", SOURCE, "frames arrive again".into());
        assert!(state.alarms.is_empty() && events(&state).len() == 2);
    }

    #[test]
    fn an_alarm_is_acknowledged_by_its_number() {
        let mut state = channel();
        state.raise("low", "overload", String::new(), None);
        state.raise("low", "overload", String::new(), None);
        let [alarm] = &state.alarms[..] else { panic!("{:?}", state.alarms) };
        let number = alarm.about.alarm;
        assert!(alarm.about.severity == Severity::Minor && !state.acknowledge(number + 1, "anna"));
        assert!(state.acknowledge(number, "anna"));
        assert_eq!(state.alarms[0].acknowledged.as_ref().map(|by| &*by.by), Some("anna"));
        assert_eq!(events(&state)[1..], [event("low", "overload", "acknowledged", None)]);
    }
}
