// SPDX-License-Identifier: MPL-2.0

//! The health of one rendition beside its single scores: the rolling window, gaps, and the alarms.

use std::collections::VecDeque;

use engine::session::StreamTotals;
use gst::ClockTime;
use watch::alarm::{Announcement, Change, Dropout, LowAlarm, State, is_calm};
use watch::counts::Counts;
use watch::outage::{Black, Freeze};
use watch::thumbnail::Thumbnail;
use watch::window::{Figures, Window};

use super::report::event::{Event, EventMessage, EventState};
use super::settings::WatchSettings;
use super::time::running;

/// Reference frames without a distorted frame: a gap, or several that are reported together.
#[derive(Clone, Copy, Debug)]
struct Gap {
    since: ClockTime,
    last: ClockTime,
    frames: u64,
    /// The number of gaps.
    times: u64,
}

/// Watches one rendition.
#[derive(Debug)]
pub struct PadHealth {
    watch: WatchSettings,
    window: Option<Window>,
    /// Counts for windows that may not have begun: scores come later than the frames.
    counts: VecDeque<(ClockTime, Counts)>,
    /// Figures of the last window.
    figures: Option<Figures>,
    score: Option<LowAlarm>,
    freeze: Option<Freeze>,
    black: Option<Black>,
    dropout: Dropout,
    /// The gap that has not ended.
    gap: Option<Gap>,
    /// Gaps that have ended and are to be reported.
    gaps: Option<Gap>,
    /// When gaps were reported last.
    gaps_reported: Option<ClockTime>,
}

impl PadHealth {
    pub fn new(watch: &WatchSettings) -> Self {
        let mut health = Self {
            watch: *watch,
            window: None,
            counts: VecDeque::new(),
            figures: None,
            score: None,
            freeze: None,
            black: None,
            dropout: Dropout::default(),
            gap: None,
            gaps: None,
            gaps_reported: None,
        };
        health.begin_window();
        // Nothing is raised yet, so there is nothing to report.
        health.set_alarms(ClockTime::ZERO);
        health
    }

    /// Goes on with other settings. What is raised stays raised, and is cleared by the new settings; what is not watched
    /// any more is cleared, and reported with the running time of now.
    pub fn configure(&mut self, watch: &WatchSettings, now: ClockTime) -> Vec<EventMessage> {
        let old = std::mem::replace(&mut self.watch, *watch);
        if old == *watch {
            return vec![];
        }
        if (old.window, old.window_interval) != (watch.window, watch.window_interval) {
            self.begin_window();
        }
        self.set_alarms(now)
    }

    fn begin_window(&mut self) {
        let WatchSettings { window, window_interval, .. } = self.watch;
        self.window = (window > 0).then(|| Window::new(window, window_interval));
        self.counts.clear();
        self.figures = None;
    }

    fn set_alarms(&mut self, now: ClockTime) -> Vec<EventMessage> {
        let WatchSettings { alarm_low, freeze_time, freeze_level, black_time, black_level, .. } = self.watch;
        let levels = self.watch.low_levels();
        let before = self.alarms();
        set(&mut self.score, alarm_low >= 0.0, LowAlarm::new(levels), LowAlarm::reconfigured);
        set(&mut self.freeze, freeze_time > 0, Freeze::new(freeze_level, freeze_time), Freeze::reconfigured);
        set(&mut self.black, black_time > 0, Black::new(black_level, black_time), Black::reconfigured);
        let after = self.alarms();
        let ended = before
            .into_iter()
            .filter(|(event, raised)| *raised && !after.iter().any(|(other, _)| other == event));
        let cleared = |kind| event(kind, now, Change { state: State::Cleared, since: now.nseconds() });
        ended.map(|(kind, _)| cleared(kind)).collect()
    }

    /// Pictures have to be shown to [`PadHealth::pictures`].
    pub fn wants_pictures(&self) -> bool {
        self.freeze.is_some() || self.black.is_some()
    }

    /// Takes a reference frame and whether it had a distorted frame; `excused`: it could not have been in time.
    pub fn frame(&mut self, at: ClockTime, paired: bool, excused: bool) -> Vec<EventMessage> {
        let mut events = vec![];
        if let Some(announced) = self.dropout.update(at.nseconds(), paired, excused) {
            events.push(grouped(Event::Dropout, at, announced));
        }
        if paired {
            self.end_gap();
            events.extend(self.report_gaps(at));
        } else {
            let gap = self.gap.get_or_insert(Gap { since: at, last: at, frames: 0, times: 1 });
            gap.last = at;
            gap.frames += 1;
        }
        events
    }

    /// Nothing came from either side since then.
    pub fn silence(&mut self, since: ClockTime, now: ClockTime, excused: bool) -> Option<EventMessage> {
        let announced = self.dropout.silence(since.nseconds(), now.nseconds(), excused)?;
        Some(grouped(Event::Dropout, now, announced))
    }

    /// Ends the gap that may be open. It is reported with others if they come in quick succession.
    fn end_gap(&mut self) {
        if let Some(gap) = self.gap.take() {
            self.gaps = Some(match self.gaps.take() {
                Some(Gap { since, frames, times, .. }) => {
                    Gap { since, last: gap.last, frames: frames + gap.frames, times: times + 1 }
                }
                None => gap,
            });
        }
    }

    /// Returns the event that reports the gaps that have ended, unless there was one shortly before.
    fn report_gaps(&mut self, now: ClockTime) -> Option<EventMessage> {
        let calm = |announced: ClockTime| is_calm(announced.nseconds(), now.nseconds());
        let gap = self.gaps.take_if(|_| self.gaps_reported.is_none_or(calm))?;
        self.gaps_reported = Some(now);
        Some(EventMessage {
            event: Event::Unpaired,
            state: EventState::Info,
            running_time: Some(gap.last),
            since: Some(gap.since),
            count: Some(gap.frames),
            times: Some(gap.times),
            ..EventMessage::default()
        })
    }

    /// Ends the section, and returns the events that are still due. The last frame was at `now`.
    pub fn end_section(&mut self, now: ClockTime) -> Vec<EventMessage> {
        self.end_gap();
        self.gaps_reported = None;
        let over = self.dropout.end(now.nseconds()).map(|announced| grouped(Event::Dropout, now, announced));
        self.report_gaps(now).into_iter().chain(over).collect()
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

    /// Takes the score of a frame, and the totals of its pair.
    pub fn scored(&mut self, at: ClockTime, score: f64, totals: &StreamTotals) -> Option<EventMessage> {
        if let Some(window) = &mut self.window {
            window.push(at.nseconds(), score, totals);
        }
        let change = self.score.as_mut()?.update(at.nseconds(), score)?;
        Some(EventMessage { value: Some(score), ..self.alarm(at, change) })
    }

    fn alarm(&self, at: ClockTime, change: Change) -> EventMessage {
        let threshold = self.score.as_ref().map(|alarm| alarm.threshold(change.state));
        EventMessage { threshold, ..event(Event::Alarm, at, change) }
    }

    /// Unpaired frames count as low scores.
    fn minds_unpaired(&self) -> bool {
        self.score.is_some() && self.watch.alarm_unpaired
    }

    /// Takes what else became of a frame.
    pub fn count(&mut self, at: ClockTime, counts: Counts) {
        if self.window.is_none() && !self.minds_unpaired() || counts == Counts::default() {
            return;
        }
        // Counts that follow from a score come later than those that are known at once of the frames after it.
        let place = self.counts.partition_point(|(other, _)| *other <= at);
        self.counts.insert(place, (at, counts));
    }

    /// Time begins anew: what was not counted yet will not be reached again.
    pub fn restart(&mut self) {
        self.counts.clear();
        self.window.iter_mut().for_each(Window::restart);
    }

    /// No score of a frame before `now` is still to come. The figures of windows that have ended by then, and what was
    /// noticed.
    pub fn advance(&mut self, now: ClockTime) -> (Vec<Figures>, Vec<EventMessage>) {
        let (mut ended, mut events) = (vec![], vec![]);
        events.extend(self.report_gaps(now));
        events.extend(
            self.dropout.advance(now.nseconds()).map(|announced| grouped(Event::Dropout, now, announced)),
        );
        while let Some((at, counts)) = self.counts.front().copied().filter(|(at, _)| *at <= now) {
            self.counts.pop_front();
            if let Some(window) = &mut self.window {
                ended.extend(std::iter::from_fn(|| window.advance(at.nseconds())));
                window.count(at.nseconds(), counts);
            }
            if counts.unpaired > 0 && self.watch.alarm_unpaired {
                let change = self.score.as_mut().and_then(|alarm| alarm.missing(at.nseconds()));
                events.extend(change.map(|change| self.alarm(at, change)));
            }
        }
        if let Some(window) = &mut self.window {
            ended.extend(std::iter::from_fn(|| window.advance(now.nseconds())));
        }
        if let Some(last) = ended.last() {
            self.figures = Some(last.clone());
        }
        (ended, events)
    }

    /// Frames have been missing for some time.
    pub fn is_dropped_out(&self) -> bool {
        self.dropout.is_missing()
    }

    /// Frames have been missing for some time, which is not the fault of their stream.
    pub fn is_excused(&self) -> bool {
        self.dropout.is_excused()
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

/// Sets up an alarm with new settings. It keeps the state of the old one.
fn set<T>(alarm: &mut Option<T>, wanted: bool, new: T, reconfigured: impl FnOnce(T, &T) -> T) {
    *alarm = match alarm.take() {
        Some(old) if wanted => Some(reconfigured(new, &old)),
        None if wanted => Some(new),
        _ => None,
    };
}

/// Returns the event of an alarm whose changes are reported in groups.
pub fn grouped(kind: Event, at: ClockTime, announced: Announcement) -> EventMessage {
    EventMessage { times: Some(announced.times), ..event(kind, at, announced.change) }
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
        since: Some(running(change.since)),
        ..EventMessage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(frame: u64) -> ClockTime {
        ClockTime::from_mseconds(40 * frame)
    }

    fn watch() -> WatchSettings {
        WatchSettings { alarm_low: 70.0, alarm_hold: SECOND, clear_hold: SECOND, ..WatchSettings::default() }
    }

    fn states(events: impl IntoIterator<Item = EventMessage>) -> Vec<(Event, EventState)> {
        events.into_iter().map(|event| (event.event, event.state)).collect()
    }

    /// Twenty-five frames a second of this score, from one frame on to before another.
    fn scores(health: &mut PadHealth, frames: std::ops::Range<u64>, score: f64) -> Vec<(Event, EventState)> {
        states(frames.filter_map(|frame| health.scored(at(frame), score, &StreamTotals::default())))
    }

    #[test]
    fn a_raised_alarm_survives_new_settings_and_is_cleared_by_them() {
        let mut health = PadHealth::new(&watch());
        assert_eq!(scores(&mut health, 0..30, 50.0), [(Event::Alarm, EventState::Raised)]);
        let others = [
            WatchSettings { alarm_low: 60.0, ..watch() },
            WatchSettings { alarm_clear: 80.0, ..watch() },
            WatchSettings { alarm_hold: 2 * SECOND, ..watch() },
            WatchSettings { window: SECOND, ..watch() },
            WatchSettings { freeze_time: SECOND, ..watch() },
        ];
        for other in others {
            assert_eq!(health.configure(&other, at(30)), []);
            assert_eq!(scores(&mut health, 30..90, 50.0), [], "raised already");
        }
        health.configure(&WatchSettings { alarm_low: 40.0, ..watch() }, at(90));
        assert_eq!(scores(&mut health, 90..120, 50.0), [(Event::Alarm, EventState::Cleared)]);
    }

    #[test]
    fn gaps_in_quick_succession_are_reported_together() {
        let mut health = PadHealth::new(&watch());
        let mut announced = vec![];
        // One frame in five is missing for 20 seconds, and one a little later.
        for frame in 0..1000 {
            let paired = !(frame < 500 && frame % 5 == 4 || frame == 900);
            let mut events = health.frame(at(frame), paired, false);
            events.extend(health.advance(at(frame)).1);
            announced
                .extend(events.into_iter().map(|event| (frame, event.times.unwrap(), event.count.unwrap())));
        }
        assert_eq!(announced, [(5, 1, 1), (255, 50, 50), (505, 49, 49), (901, 1, 1)]);
        assert_eq!(health.end_section(at(1000)), []);
        health.frame(at(1001), false, false);
        assert_eq!(health.end_section(at(1001))[0].since, Some(at(1001)));
    }

    /// Counts that follow from a score come after those that are known at once of later frames.
    #[test]
    fn counts_that_come_late_are_not_lost() {
        let mut health = PadHealth::new(&WatchSettings { window: SECOND, ..watch() });
        let counts = |unpaired, skipped| Counts { unpaired, skipped, ..Counts::default() };
        health.advance(at(0));
        health.count(at(3), counts(1, 0));
        health.count(at(2), counts(0, 1));
        let (ended, _) = health.advance(at(25));
        assert_eq!(ended.iter().map(|figures| figures.counts).collect::<Vec<_>>(), [counts(1, 1)]);
    }

    #[test]
    fn what_is_not_watched_any_more_is_cleared() {
        let mut health = PadHealth::new(&watch());
        scores(&mut health, 0..30, 50.0);
        let events = health.configure(&WatchSettings { alarm_low: -1.0, ..watch() }, at(30));
        assert_eq!(events[0].running_time, Some(at(30)));
        assert_eq!(states(events), [(Event::Alarm, EventState::Cleared)]);
        assert_eq!(scores(&mut health, 30..90, 50.0), []);
        // An alarm that was not raised has nothing to clear.
        health.configure(&watch(), at(90));
        assert_eq!(health.configure(&WatchSettings { alarm_low: -1.0, ..watch() }, at(91)), []);
    }
}
