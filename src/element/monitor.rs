// SPDX-License-Identifier: MPL-2.0

//! What is watched of one rendition besides single scores: the rolling window, gaps, and the alarms.

use std::collections::VecDeque;

use gst::ClockTime;
use watch::alarm::{Change, Dropout, Hold, LowAlarm, State};
use watch::outage::{Black, Freeze};
use watch::thumbnail::Thumbnail;
use watch::window::{Counts, Figures, Window};

use super::event::{Event, EventMessage, EventState};
use super::settings::Watch;

/// Reference frames without a distorted frame, since when.
#[derive(Clone, Copy, Debug)]
struct Gap {
    since: ClockTime,
    last: ClockTime,
    frames: u64,
}

/// Watches one rendition.
#[derive(Debug)]
pub struct Monitor {
    watch: Watch,
    window: Option<Window>,
    /// What is to be counted in windows that may not have begun: scores come later than the frames.
    counts: VecDeque<(ClockTime, Counts)>,
    /// Figures of the last window.
    figures: Option<Figures>,
    score: Option<LowAlarm>,
    freeze: Option<Freeze>,
    black: Option<Black>,
    dropout: Dropout,
    gap: Option<Gap>,
}

impl Monitor {
    pub fn new(watch: &Watch) -> Self {
        let hold = Hold::time;
        Self {
            watch: *watch,
            window: (watch.window > 0).then(|| Window::new(watch.window, watch.window_interval)),
            counts: VecDeque::new(),
            figures: None,
            score: (watch.alarm_low >= 0.0).then(|| {
                let (raise, clear) = (hold(watch.alarm_hold), hold(watch.clear_hold));
                LowAlarm::new(watch.alarm_low, watch.clear_level(), raise, clear)
            }),
            freeze: (watch.freeze_time > 0).then(|| Freeze::new(watch.freeze_level, watch.freeze_time)),
            black: (watch.black_time > 0).then(|| Black::new(watch.black_level, watch.black_time)),
            dropout: Dropout::default(),
            gap: None,
        }
    }

    /// Starts afresh if the settings have changed.
    pub fn configure(&mut self, watch: &Watch) {
        if *watch != self.watch {
            let (dropout, gap) = (self.dropout.clone(), self.gap);
            *self = Self { dropout, gap, ..Self::new(watch) };
        }
    }

    /// Pictures have to be shown to [`Monitor::pictures`].
    pub fn wants_pictures(&self) -> bool {
        self.freeze.is_some() || self.black.is_some()
    }

    /// Takes a reference frame and whether it had a distorted frame.
    pub fn frame(&mut self, at: ClockTime, paired: bool) -> Vec<EventMessage> {
        let mut events = vec![];
        if let Some(change) = self.dropout.update(at.nseconds(), paired) {
            events.push(event(Event::Dropout, at, change));
        }
        if paired {
            events.extend(self.end_gap());
        } else {
            let gap = self.gap.get_or_insert(Gap { since: at, last: at, frames: 0 });
            gap.last = at;
            gap.frames += 1;
        }
        events
    }

    /// Nothing came from either side since then.
    pub fn silence(&mut self, since: ClockTime, now: ClockTime) -> Option<EventMessage> {
        let change = self.dropout.silence(since.nseconds(), now.nseconds())?;
        Some(event(Event::Dropout, now, change))
    }

    /// Reports the gap that has ended, if there was one.
    pub fn end_gap(&mut self) -> Option<EventMessage> {
        let gap = self.gap.take()?;
        Some(EventMessage {
            event: Event::Unpaired,
            state: EventState::Info,
            running_time: Some(gap.last),
            since: Some(gap.since),
            count: Some(gap.frames),
            ..EventMessage::default()
        })
    }

    /// Takes the pictures of a pair.
    pub fn pictures(
        &mut self,
        at: ClockTime,
        reference: &Thumbnail,
        distorted: &Thumbnail,
    ) -> Vec<EventMessage> {
        let time = at.nseconds();
        let freeze = self.freeze.as_mut().and_then(|freeze| freeze.update(time, reference, distorted));
        let black = self.black.as_mut().and_then(|black| black.update(time, reference, distorted));
        let level = |event, level: f64, value| EventMessage { threshold: Some(level), value, ..event };
        let freeze = freeze.map(|change| event(Event::Freeze, at, change));
        let black = black.map(|change| event(Event::Black, at, change));
        freeze
            .map(|event| level(event, self.watch.freeze_level, None))
            .into_iter()
            .chain(black.map(|event| level(event, self.watch.black_level, Some(distorted.mean()))))
            .collect()
    }

    /// Takes the score of a frame.
    pub fn scored(&mut self, at: ClockTime, score: f64) -> Option<EventMessage> {
        if let Some(window) = &mut self.window {
            window.push(at.nseconds(), score);
        }
        let alarm = self.score.as_mut()?;
        let change = alarm.update(at.nseconds(), score)?;
        let threshold = Some(alarm.threshold(change.state));
        Some(EventMessage { value: Some(score), threshold, ..event(Event::Alarm, at, change) })
    }

    /// Takes what else became of a frame.
    pub fn count(&mut self, at: ClockTime, counts: Counts) {
        if self.window.is_none() || counts == Counts::default() {
            return;
        }
        // Time that steps back does not reach those again.
        if self.counts.back().is_some_and(|(last, _)| *last > at) {
            self.counts.clear();
        }
        self.counts.push_back((at, counts));
    }

    /// No score of a frame before `now` is still to come. The figures of windows that have ended by then.
    pub fn advance(&mut self, now: ClockTime) -> Vec<Figures> {
        let Some(window) = &mut self.window else { return vec![] };
        let mut ended = vec![];
        while let Some((at, counts)) = self.counts.front().copied().filter(|(at, _)| *at <= now) {
            self.counts.pop_front();
            ended.extend(std::iter::from_fn(|| window.advance(at.nseconds())));
            window.count(at.nseconds(), counts);
        }
        ended.extend(std::iter::from_fn(|| window.advance(now.nseconds())));
        if let Some(last) = ended.last() {
            self.figures = Some(last.clone());
        }
        ended
    }

    /// Frames have been missing for some time.
    pub fn is_dropped_out(&self) -> bool {
        self.dropout.is_raised()
    }

    /// Figures of the last window that has ended.
    pub fn figures(&self) -> Option<&Figures> {
        self.figures.as_ref()
    }

    /// The alarms that are watched, and whether they are raised.
    pub fn alarms(&self) -> Vec<(Event, bool)> {
        let score = self.score.as_ref().map(|alarm| (Event::Alarm, alarm.is_raised()));
        let freeze = self.freeze.as_ref().map(|alarm| (Event::Freeze, alarm.is_raised()));
        let black = self.black.as_ref().map(|alarm| (Event::Black, alarm.is_raised()));
        let dropout = Some((Event::Dropout, self.dropout.is_raised()));
        [score, freeze, black, dropout].into_iter().flatten().collect()
    }
}

/// An alarm that has changed at a frame.
pub fn event(event: Event, at: ClockTime, change: Change) -> EventMessage {
    EventMessage {
        event,
        state: match change.state {
            State::Raised => EventState::Raised,
            State::Cleared => EventState::Cleared,
        },
        running_time: Some(at),
        since: Some(ClockTime::from_nseconds(change.since)),
        ..EventMessage::default()
    }
}
