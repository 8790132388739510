// SPDX-License-Identifier: MPL-2.0

//! Updates: what is new in the channels since the last check, for the history, the webhooks and the printed lines.
//!
//! When the settings of a channel change, it gets a new state, while the old thread may still write to the old state.
//! So a state is followed until no other reference to it exists, and its last entries are not lost.

use std::sync::Arc;

use super::alarms::Alarm;
use super::segments::Segment;
use super::settings::EventKind;
use super::state::{Counts, Entry, Point, Shared, Value};

/// New windows and events of a channel.
pub struct Update {
    pub channel: String,
    /// Addresses for its alarms.
    pub addresses: Vec<String>,
    /// Kinds of events for them; empty for all alarms.
    pub webhook_events: Vec<EventKind>,
    /// Name of the value that scores are of.
    pub score_of: String,
    pub windows: Vec<Window>,
    /// Oldest first.
    pub events: Vec<Entry>,
    /// Active alarms, if they have changed.
    pub alarms: Option<Vec<Alarm>>,
    pub values: Vec<Value>,
    pub segments: Vec<Segment>,
}

/// A window of a rendition.
pub struct Window {
    pub label: String,
    pub point: Point,
    /// Counts of the rendition so far.
    pub counts: Counts,
    /// Active alarms.
    pub raised: Vec<&'static str>,
}

/// Remembers what was reported of each channel.
#[derive(Default)]
pub struct Follower(Vec<Followed>);

struct Followed {
    state: Shared,
    /// Number of events reported.
    events: u64,
    /// Number of windows reported of each rendition.
    windows: Vec<u64>,
    /// Number of values reported.
    values: u64,
    /// Number of segments reported.
    segments: u64,
    /// Active alarms reported.
    alarms: Vec<Alarm>,
}

impl Follower {
    /// Returns the updates of these channels, and of earlier ones that still exist.
    pub fn updates(&mut self, states: &[Shared]) -> Vec<Update> {
        for state in states {
            if !self.0.iter().any(|followed| Arc::ptr_eq(&followed.state, state)) {
                self.0.push(Followed {
                    state: state.clone(),
                    events: 0,
                    windows: vec![],
                    values: 0,
                    segments: 0,
                    alarms: vec![],
                });
            }
        }
        let mut updates = vec![];
        self.0.retain_mut(|followed| {
            // Checked first, because another owner may still add entries afterwards.
            let gone = Arc::strong_count(&followed.state) == 1;
            updates.extend(followed.update());
            !gone
        });
        updates
    }
}

impl Followed {
    fn update(&mut self) -> Option<Update> {
        let state = self.state.lock();
        self.windows.resize(state.renditions.len(), 0);
        let mut windows = vec![];
        for (stream, count) in state.renditions.iter().zip(&mut self.windows) {
            windows.extend(stream.history.since(*count).map(|point| Window {
                label: stream.label.clone(),
                point: *point,
                counts: stream.counts,
                raised: stream.raised(),
            }));
            *count = stream.history.count();
        }
        let events: Vec<_> = state.events_since(self.events).cloned().collect();
        self.events = state.event_count;
        let values: Vec<_> = state.values.since(self.values).cloned().collect();
        self.values = state.values.count();
        let segments: Vec<_> = state.segments.since(self.segments).cloned().collect();
        self.segments = state.segments.count();
        let alarms: Vec<_> = state.alarms.iter().filter(|alarm| alarm.has_begun()).cloned().collect();
        let alarms = (alarms != self.alarms).then_some(alarms);
        self.alarms = alarms.as_ref().unwrap_or(&self.alarms).clone();
        let any = alarms.is_some()
            || !windows.is_empty()
            || !events.is_empty()
            || !values.is_empty()
            || !segments.is_empty();
        any.then(|| Update {
            channel: state.name.clone(),
            addresses: state.addresses.clone(),
            webhook_events: state.webhook_events.clone(),
            score_of: state.score_of.clone(),
            windows,
            events,
            alarms,
            values,
            segments,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{State, Stream};

    fn state(name: &str) -> Shared {
        Shared::new(State { name: name.into(), ..State::default() }.into())
    }

    fn note(state: &Shared, text: &str) {
        state.lock().note("low", "alarm", text.into());
    }

    fn texts(updates: &[Update]) -> Vec<(&str, &str)> {
        let all = updates
            .iter()
            .flat_map(|update| update.events.iter().map(|event| (&*update.channel, &*event.text)));
        all.collect()
    }

    #[test]
    fn each_event_is_new_once() {
        let mut follower = Follower::default();
        let states = [state("a"), state("b")];
        note(&states[0], "1");
        note(&states[0], "2");
        assert_eq!(texts(&follower.updates(&states)), [("a", "1"), ("a", "2")]);
        assert!(follower.updates(&states).is_empty());
        note(&states[1], "3");
        assert_eq!(texts(&follower.updates(&states)), [("b", "3")]);
    }

    #[test]
    fn windows_are_new_once_whatever_the_clock_does() {
        let mut follower = Follower::default();
        let state = state("a");
        state.lock().renditions = vec![Stream::default()];
        let mut seen = vec![];
        for time in [100.0, 101.0, 101.0, 40.0, 41.0, 99.0, 103.0] {
            let point = Point { time, mean: time, min: time, p5: time, alarm: false };
            state.lock().renditions[0].add(point);
            for _ in 0..2 {
                let updates = follower.updates(std::slice::from_ref(&state));
                seen.extend(updates.iter().flat_map(|update| update.windows.iter().map(|w| w.point.time)));
            }
        }
        assert_eq!(seen, [100.0, 101.0, 101.0, 40.0, 41.0, 99.0, 103.0]);
    }

    #[test]
    fn what_a_channel_leaves_that_was_changed_is_seen() {
        let mut follower = Follower::default();
        let (old, new) = (state("a"), state("a"));
        follower.updates(std::slice::from_ref(&old));
        note(&old, "before the change");
        note(&new, "by the new one");
        let seen = follower.updates(std::slice::from_ref(&new));
        assert_eq!(texts(&seen), [("a", "before the change"), ("a", "by the new one")]);
        note(&old, "by the thread that ends");
        drop(old);
        assert_eq!(texts(&follower.updates(std::slice::from_ref(&new))), [("a", "by the thread that ends")]);
        assert_eq!(follower.0.len(), 1, "the old state is still there");
    }

    #[test]
    fn a_state_in_the_place_of_another_is_another() {
        let mut follower = Follower::default();
        for number in 0..100 {
            let state = state("a");
            note(&state, &number.to_string());
            let seen = follower.updates(std::slice::from_ref(&state));
            assert_eq!(texts(&seen), [("a", &*number.to_string())]);
            drop(state);
        }
    }
}
