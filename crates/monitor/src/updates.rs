// SPDX-License-Identifier: MPL-2.0

//! What is new in the channels since one last looked: for the history, the webhooks and the lines that are printed.
//!
//! A channel that is changed has a new state, and the old one may still get something: its thread takes a while to end. So a
//! state is followed until nobody else has it, and what came last is not lost.

use std::sync::Arc;

use super::state::{Counts, Entry, Point, Shared, lock};

/// What is new in a channel.
pub struct News {
    pub channel: String,
    /// The address that is told of its alarms.
    pub webhook: Option<String>,
    pub windows: Vec<Window>,
    /// The oldest first.
    pub events: Vec<Entry>,
}

/// A window of a rendition.
pub struct Window {
    pub label: String,
    pub point: Point,
    /// Of the rendition so far.
    pub counts: Counts,
    /// The alarms that are raised.
    pub raised: Vec<&'static str>,
}

/// What was seen of the channels so far.
#[derive(Default)]
pub struct Follower(Vec<Followed>);

struct Followed {
    state: Shared,
    /// How many events were seen.
    events: u64,
    /// When the last window ended, by rendition.
    times: Vec<f64>,
}

impl Follower {
    /// What is new in these channels, and in those of before that are not gone yet.
    pub fn look(&mut self, states: &[Shared]) -> Vec<News> {
        for state in states {
            if !self.0.iter().any(|followed| Arc::ptr_eq(&followed.state, state)) {
                self.0.push(Followed { state: state.clone(), events: 0, times: vec![] });
            }
        }
        let mut news = vec![];
        self.0.retain_mut(|followed| {
            // Looked at before: whoever has it now may add something after.
            let gone = Arc::strong_count(&followed.state) == 1;
            news.extend(followed.look());
            !gone
        });
        news
    }
}

impl Followed {
    fn look(&mut self) -> Option<News> {
        let state = lock(&self.state);
        self.times.resize(state.renditions.len(), f64::NEG_INFINITY);
        let mut windows = vec![];
        for (stream, time) in state.renditions.iter().zip(&mut self.times) {
            let new = stream.history.iter().filter(|point| point.time > *time);
            windows.extend(new.map(|point| Window {
                label: stream.label.clone(),
                point: *point,
                counts: stream.counts,
                raised: stream.raised(),
            }));
            *time = stream.history.back().map_or(*time, |point| point.time);
        }
        let events: Vec<_> = state.events_since(self.events).cloned().collect();
        self.events = state.event_count;
        let any = !windows.is_empty() || !events.is_empty();
        any.then(|| News { channel: state.name.clone(), webhook: state.webhook.clone(), windows, events })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::State;

    fn state(name: &str) -> Shared {
        Shared::new(State { name: name.into(), ..State::default() }.into())
    }

    fn note(state: &Shared, text: &str) {
        lock(state).note("low", "alarm", "raised", text.into());
    }

    fn texts(news: &[News]) -> Vec<(&str, &str)> {
        let all = news.iter().flat_map(|news| news.events.iter().map(|event| (&*news.channel, &*event.text)));
        all.collect()
    }

    #[test]
    fn each_event_is_new_once() {
        let mut follower = Follower::default();
        let states = [state("a"), state("b")];
        note(&states[0], "1");
        note(&states[0], "2");
        assert_eq!(texts(&follower.look(&states)), [("a", "1"), ("a", "2")]);
        assert!(follower.look(&states).is_empty());
        note(&states[1], "3");
        assert_eq!(texts(&follower.look(&states)), [("b", "3")]);
    }

    #[test]
    fn what_a_channel_leaves_that_was_changed_is_seen() {
        let mut follower = Follower::default();
        let (old, new) = (state("a"), state("a"));
        follower.look(std::slice::from_ref(&old));
        note(&old, "before the change");
        note(&new, "by the new one");
        let seen = follower.look(std::slice::from_ref(&new));
        assert_eq!(texts(&seen), [("a", "before the change"), ("a", "by the new one")]);
        note(&old, "by the thread that ends");
        drop(old);
        assert_eq!(texts(&follower.look(std::slice::from_ref(&new))), [("a", "by the thread that ends")]);
        assert_eq!(follower.0.len(), 1, "the old state is still there");
    }

    #[test]
    fn a_state_in_the_place_of_another_is_another() {
        let mut follower = Follower::default();
        for number in 0..100 {
            let state = state("a");
            note(&state, &number.to_string());
            let seen = follower.look(std::slice::from_ref(&state));
            assert_eq!(texts(&seen), [("a", &*number.to_string())]);
            drop(state);
        }
    }
}
