// SPDX-License-Identifier: MPL-2.0

//! Alarms with hysteresis in time: a condition must last before the alarm is raised, and be absent for a while before
//! it is cleared.

use std::collections::VecDeque;

/// How long a condition must last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Duration in ns, from the first frame with the condition to the last.
    pub time: u64,
    /// This many consecutive frames with the condition are sufficient, too, in any time.
    pub frames: Option<u32>,
}

impl Hold {
    /// No hold: the first frame with the condition is sufficient.
    pub const NONE: Self = Self::time(0);

    /// Returns a hold of this many ns.
    pub const fn time(time: u64) -> Self {
        Self { time, frames: None }
    }
}

/// State of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The alarm begins.
    Raised,
    /// The alarm is over.
    Cleared,
}

/// A change of an alarm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Raised or cleared.
    pub state: State,
    /// Running time in ns of the first frame of the hold.
    pub since: u64,
}

/// Consecutive frames with a condition.
#[derive(Clone, Copy, Debug)]
struct Row {
    since: u64,
    frames: u32,
}

/// Raises an alarm when one condition has lasted, and clears it when another has.
#[derive(Clone, Debug)]
pub struct Latch {
    raise: Hold,
    clear: Hold,
    raised: bool,
    row: Option<Row>,
}

impl Latch {
    /// Creates an alarm with the holds of its two conditions.
    pub fn new(raise: Hold, clear: Hold) -> Self {
        Self { raise, clear, raised: false, row: None }
    }

    /// Returns true while the alarm is raised.
    pub fn is_raised(&self) -> bool {
        self.raised
    }

    /// Returns this latch with the state of an older one: an alarm stays raised, and a hold in progress continues.
    pub fn reconfigured(self, old: &Self) -> Self {
        Self { raised: old.raised, row: old.row, ..self }
    }

    /// Adds a frame by its running time in ns, with the conditions for raising and for clearing. If time steps back,
    /// the hold starts again.
    pub fn update(&mut self, running_time: u64, raise: bool, clear: bool) -> Option<Change> {
        let (condition, hold) = if self.raised { (clear, self.clear) } else { (raise, self.raise) };
        if !condition {
            self.row = None;
            return None;
        }
        let row = self.row.filter(|row| row.since <= running_time);
        let row = row.unwrap_or(Row { since: running_time, frames: 0 });
        let row = Row { frames: row.frames.saturating_add(1), ..row };
        self.row = Some(row);
        let held = running_time - row.since >= hold.time || hold.frames.is_some_and(|n| row.frames >= n);
        held.then(|| {
            self.raised = !self.raised;
            self.row = None;
            Change { state: if self.raised { State::Raised } else { State::Cleared }, since: row.since }
        })
    }
}

/// Number of parts of a hold. Frames of a part are counted together, so a long hold needs no more memory than a short
/// one. With fewer frames than parts, each frame is counted separately.
const PARTS: u64 = 1024;

/// Frames that are counted together.
#[derive(Clone, Copy, Debug)]
struct Part {
    since: u64,
    frames: u64,
    /// Frames with the condition, and the running time of the first of them.
    hits: u64,
    first_hit: Option<u64>,
    /// Frames with the opposite condition.
    against: u64,
}

/// Counts of recent frames with a condition and with its opposite. They cover a hold, or a little more: they begin
/// with the latest frame that is at least as old as the hold.
#[derive(Clone, Debug, Default)]
struct Recent {
    parts: VecDeque<Part>,
    frames: u64,
    hits: u64,
    against: u64,
}

impl Recent {
    /// Adds a frame by its running time in ns. If time steps back, the counts begin again.
    fn push(&mut self, running_time: u64, hit: bool, against: bool, hold: u64) {
        if self.parts.back().is_some_and(|part| part.since > running_time) {
            *self = Self::default();
        }
        if self.parts.back().is_none_or(|part| running_time - part.since >= hold / PARTS) {
            self.parts.push_back(Part {
                since: running_time,
                frames: 0,
                hits: 0,
                first_hit: None,
                against: 0,
            });
        }
        if let Some(part) = self.parts.back_mut() {
            part.frames += 1;
            part.hits += u64::from(hit);
            part.first_hit = part.first_hit.or(hit.then_some(running_time));
            part.against += u64::from(against);
        }
        self.frames += 1;
        self.hits += u64::from(hit);
        self.against += u64::from(against);
        let begins = running_time.checked_sub(hold);
        while self.parts.get(1).is_some_and(|second| begins.is_some_and(|begins| second.since <= begins))
            && let Some(old) = self.parts.pop_front()
        {
            self.frames -= old.frames;
            self.hits -= old.hits;
            self.against -= old.against;
        }
    }

    /// Returns the running time of the first frame with the condition, if the frames cover a hold, this share of them
    /// has the condition, and a smaller share has the opposite.
    fn holds(&self, running_time: u64, hold: u64, share: f64) -> Option<u64> {
        let first = self.parts.front()?;
        let whole = running_time - first.since >= hold;
        let needed = share * self.frames as f64;
        let decided = self.hits as f64 >= needed && (self.against as f64) < needed;
        self.parts.iter().find_map(|part| part.first_hit).filter(|_| whole && decided)
    }
}

/// Levels that raise and clear an alarm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowLevels {
    /// Values below this are low.
    pub low: f64,
    /// Values of at least this are good; at least `low`.
    pub clear: f64,
    /// Nanoseconds over which the share of low values is computed.
    pub raise_hold: u64,
    /// Nanoseconds over which the share of good values is computed; the share of low ones must be smaller.
    pub clear_hold: u64,
    /// Deciding share of the values of a hold, above 0 and at most 1. With 1, a single value between the levels
    /// restarts the hold.
    pub share: f64,
}

/// An alarm for low values. It uses a share and not consecutive values, because encodes at low bit rates have a good
/// picture at each key frame.
#[derive(Clone, Debug)]
pub struct LowAlarm {
    levels: LowLevels,
    raised: bool,
    recent: Recent,
}

impl LowAlarm {
    /// Creates an alarm that is not raised.
    pub fn new(levels: LowLevels) -> Self {
        let clear = levels.clear.max(levels.low);
        Self { levels: LowLevels { clear, ..levels }, raised: false, recent: Recent::default() }
    }

    /// Returns true while the alarm is raised.
    pub fn is_raised(&self) -> bool {
        self.raised
    }

    /// Returns this alarm with the state of an older one: an alarm stays raised until values reach the new level for
    /// clearing, and a hold in progress continues.
    pub fn reconfigured(self, old: &Self) -> Self {
        Self { raised: old.raised, recent: old.recent.clone(), ..self }
    }

    /// Returns the level for a state.
    pub fn threshold(&self, state: State) -> f64 {
        match state {
            State::Raised => self.levels.low,
            State::Cleared => self.levels.clear,
        }
    }

    /// Adds the value at a running time in ns. NaN is neither low nor good.
    pub fn update(&mut self, running_time: u64, value: f64) -> Option<Change> {
        self.take(running_time, value < self.levels.low, value >= self.levels.clear)
    }

    /// Adds a frame without a value, which counts as low.
    pub fn missing(&mut self, running_time: u64) -> Option<Change> {
        self.take(running_time, true, false)
    }

    fn take(&mut self, running_time: u64, low: bool, good: bool) -> Option<Change> {
        let LowLevels { raise_hold, clear_hold, share, .. } = self.levels;
        // Good frames do not prevent an alarm. A share of low frames that would raise it prevents clearing.
        let (hold, hit, against) =
            if self.raised { (clear_hold, good, low) } else { (raise_hold, low, false) };
        self.recent.push(running_time, hit, against, hold);
        let since = self.recent.holds(running_time, hold, share).filter(|_| hit)?;
        self.raised = !self.raised;
        self.recent = Recent::default();
        Some(Change { state: if self.raised { State::Raised } else { State::Cleared }, since })
    }
}

/// Time in ns without changes after which an alarm is announced separately again.
pub const CALM: u64 = 10_000_000_000;

/// A change to announce.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Announcement {
    /// The change.
    pub change: Change,
    /// How often the alarm was raised since it was announced.
    pub times: u64,
}

/// Groups the changes of an intermittent alarm, so that dozens per minute become a few announcements with a count.
/// Raising is announced at once, and so is clearing the first time. If the alarm returns within [`CALM`], its end is
/// announced only after this time without the alarm.
#[derive(Clone, Debug, Default)]
pub struct Grouped {
    /// Announced as raised.
    raised: bool,
    times: u64,
    /// The alarm has returned, so its end is delayed.
    flaps: bool,
    /// Time at which its end was last announced.
    announced_end: Option<u64>,
    /// Time and change of an end that is not announced yet.
    over: Option<(u64, Change)>,
}

/// Returns true if [`CALM`] has passed. Streams are slightly out of step; if time steps back by as much, the group
/// begins again.
pub fn is_calm(since: u64, now: u64) -> bool {
    now.abs_diff(since) >= CALM
}

impl Grouped {
    /// Returns true while the alarm is announced as raised.
    pub fn is_raised(&self) -> bool {
        self.raised
    }

    /// Adds a change at a running time in ns. Returns what to announce now.
    pub fn take(&mut self, now: u64, change: Change) -> Option<Announcement> {
        match change.state {
            State::Raised if self.raised => {
                self.over = None;
                self.times += 1;
                None
            }
            State::Raised => {
                let flaps = self.announced_end.is_some_and(|at| !is_calm(at, now));
                *self = Self { raised: true, times: 1, flaps, ..Self::default() };
                Some(Announcement { change, times: 1 })
            }
            State::Cleared => {
                self.over = Some((now, change)).filter(|_| self.raised);
                let alone = !self.flaps && self.times == 1;
                if alone { self.end(now) } else { None }
            }
        }
    }

    /// Advances the time. Returns what to announce now.
    pub fn advance(&mut self, now: u64) -> Option<Announcement> {
        let (at, _) = self.over?;
        if is_calm(at, now) { self.end(now) } else { None }
    }

    /// Ends the stream. Returns what is still to be announced.
    pub fn end(&mut self, now: u64) -> Option<Announcement> {
        let (_, change) = self.over?;
        let times = self.times;
        *self = Self { announced_end: Some(now), ..Self::default() };
        Some(Announcement { change, times })
    }
}

/// An alarm for reference frames without a distorted frame.
///
/// If this machine is overloaded, missing frames are not the fault of the streams. Such an outage is excused, and
/// announced only if it lasts longer than the overload.
#[derive(Clone, Debug)]
pub struct Dropout {
    latch: Latch,
    /// Time since which frames are missing.
    since: Option<u64>,
    /// An outage that was not excused.
    blamed: bool,
    grouped: Grouped,
}

impl Default for Dropout {
    /// Raises after 3 frames or [`Dropout::TIME`] without a pair, and clears at the next pair.
    fn default() -> Self {
        let latch = Latch::new(Hold { time: Self::TIME, frames: Some(3) }, Hold::NONE);
        Self { latch, since: None, blamed: false, grouped: Grouped::default() }
    }
}

impl Dropout {
    /// 200 ms.
    pub const TIME: u64 = 200_000_000;

    /// Returns true while frames are missing.
    pub fn is_missing(&self) -> bool {
        self.latch.is_raised()
    }

    /// Returns true while frames are missing and the outage is excused.
    pub fn is_excused(&self) -> bool {
        self.latch.is_raised() && !self.blamed
    }

    /// Returns true while the alarm is announced as raised.
    pub fn is_raised(&self) -> bool {
        self.grouped.is_raised()
    }

    /// Adds a reference frame by its running time in ns. `paired` is true if it had a distorted frame, and `excused`
    /// if that could not have been in time. Returns what to announce now.
    pub fn update(&mut self, running_time: u64, paired: bool, excused: bool) -> Option<Announcement> {
        let change = self.latch.update(running_time, !paired, paired);
        match change {
            Some(Change { state: State::Raised, since }) => self.since = Some(since),
            Some(change) => {
                self.since = None;
                if std::mem::take(&mut self.blamed) {
                    return self.grouped.take(running_time, change);
                }
            }
            None => {}
        }
        let since = self.since.filter(|_| !paired && !excused && !self.blamed)?;
        self.blamed = true;
        self.grouped.take(running_time, Change { state: State::Raised, since })
    }

    /// Notes that no frames arrived between two running times in ns.
    pub fn silence(&mut self, since: u64, now: u64, excused: bool) -> Option<Announcement> {
        self.update(since, false, excused).or_else(|| self.update(now, false, excused))
    }

    /// Advances the time. Returns what to announce now.
    pub fn advance(&mut self, now: u64) -> Option<Announcement> {
        self.grouped.advance(now)
    }

    /// Ends the stream. Returns what is still to be announced.
    pub fn end(&mut self, now: u64) -> Option<Announcement> {
        self.grouped.end(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;
    const FRAME: u64 = SECOND / 25;

    const LEVELS: LowLevels =
        LowLevels { low: 70.0, clear: 75.0, raise_hold: 2 * SECOND, clear_hold: 5 * SECOND, share: 1.0 };

    fn alarm() -> LowAlarm {
        LowAlarm::new(LEVELS)
    }

    /// Returns the changes for values at 25 frames per second, as (state, since, frame).
    fn changes(values: impl IntoIterator<Item = f64>) -> Vec<(State, u64, u64)> {
        changes_of(alarm(), values)
    }

    fn changes_of(mut alarm: LowAlarm, values: impl IntoIterator<Item = f64>) -> Vec<(State, u64, u64)> {
        let changes = (0u64..).zip(values).filter_map(|(i, value)| {
            let change = alarm.update(i * FRAME, value)?;
            Some((change.state, change.since / FRAME, i))
        });
        changes.collect()
    }

    fn row(value: f64, frames: usize) -> impl Iterator<Item = f64> {
        std::iter::repeat_n(value, frames)
    }

    #[test]
    fn lasting_values_raise_and_clear() {
        let values = row(90.0, 10).chain(row(60.0, 100)).chain(row(80.0, 200));
        assert_eq!(changes(values), [(State::Raised, 10, 60), (State::Cleared, 110, 235)]);
    }

    #[test]
    fn short_dips_and_values_between_do_nothing() {
        assert_eq!(changes(row(60.0, 50).chain(row(70.0, 1)).chain(row(60.0, 50))), []);
        // Between the levels, the alarm does not change.
        let values = row(60.0, 60).chain(row(74.9, 500)).chain(row(75.0, 125)).chain(row(74.9, 1));
        assert_eq!(changes(values), [(State::Raised, 0, 50)]);
        assert_eq!(changes(row(f64::NAN, 500)), []);
    }

    /// A key frame every two seconds, as encoders at low bit rates produce.
    fn pumping(frames: usize) -> impl Iterator<Item = f64> {
        (0..frames).map(|i| if i % 50 == 0 { 80.0 } else { 30.0 })
    }

    #[test]
    fn single_good_frames_do_not_save_a_bad_stream() {
        assert_eq!(changes(pumping(500)), []);
        let share = LowAlarm::new(LowLevels { share: 0.5, ..LEVELS });
        assert_eq!(changes_of(share.clone(), pumping(500)), [(State::Raised, 1, 50 + 1)]);
        // Single bad frames do not prevent clearing.
        let values = pumping(500).chain((0..500).map(|i| if i % 50 == 0 { 30.0 } else { 80.0 }));
        let changes = changes_of(share, values);
        assert_eq!(changes[1..], [(State::Cleared, 450, 564)]);
    }

    #[test]
    fn the_share_of_a_whole_hold_decides() {
        let half = LowAlarm::new(LowLevels { share: 0.5, ..LEVELS });
        let alternating =
            |low: usize, of: usize| (0..1000).map(move |i| if i % of < low { 60.0 } else { 90.0 });
        assert_eq!(changes_of(half.clone(), alternating(1, 2)).len(), 1);
        assert_eq!(changes_of(half.clone(), alternating(2, 5)), []);
        // A second of bad frames is half of the hold.
        assert_eq!(changes_of(half.clone(), row(90.0, 100).chain(row(60.0, 25)).chain(row(90.0, 100))), []);
        let values = row(90.0, 100).chain(row(60.0, 26)).chain(row(90.0, 100));
        assert_eq!(changes_of(half, values), [(State::Raised, 100, 125)]);
    }

    #[test]
    fn missing_frames_count_as_low_where_they_are_reported() {
        let mut alarm = LowAlarm::new(LowLevels { share: 0.5, ..LEVELS });
        let raised = (0..100u64).find_map(|i| match i % 4 {
            0 => alarm.update(i * FRAME, 90.0),
            _ => alarm.missing(i * FRAME),
        });
        assert_eq!(raised, Some(Change { state: State::Raised, since: FRAME }));
    }

    #[test]
    fn long_holds_take_little_memory_and_are_as_long() {
        let levels = LowLevels { raise_hold: 3600 * SECOND, share: 0.9, ..LEVELS };
        let mut alarm = LowAlarm::new(levels);
        let raised = (0..200_000u64).find(|i| alarm.update(i * FRAME, 60.0).is_some());
        assert_eq!(raised, Some(90_000));
        let mut alarm = LowAlarm::new(levels);
        for i in 0..200_000 {
            alarm.update(i * FRAME, 90.0);
        }
        assert!(alarm.recent.parts.len() as u64 <= PARTS + 2, "{}", alarm.recent.parts.len());
    }

    #[test]
    fn clearing_below_low_is_not_possible() {
        let mut alarm = LowAlarm::new(LowLevels { clear: -1.0, raise_hold: 0, clear_hold: 0, ..LEVELS });
        assert_eq!(alarm.update(0, 60.0), Some(Change { state: State::Raised, since: 0 }));
        assert_eq!(alarm.update(1, 60.0), None);
        assert_eq!(alarm.update(2, 70.0), Some(Change { state: State::Cleared, since: 2 }));
        assert_eq!(alarm.threshold(State::Cleared), 70.0);
    }

    #[test]
    fn time_that_steps_back_starts_the_hold_again() {
        let mut alarm = alarm();
        assert_eq!(alarm.update(100 * SECOND, 60.0), None);
        assert_eq!(alarm.update(0, 60.0), None);
        assert_eq!(alarm.update(SECOND, 60.0), None);
        assert_eq!(alarm.update(2 * SECOND, 60.0), Some(Change { state: State::Raised, since: 0 }));
    }

    #[test]
    fn dropout_counts_frames_or_time() {
        for (frame, raised) in [(FRAME, 2), (SECOND / 10, 2), (SECOND / 5, 1)] {
            let mut dropout = Dropout::default();
            assert_eq!(dropout.update(0, true, false), None);
            let missing = (1..=10).find(|i| dropout.update(i * frame, false, false).is_some());
            assert_eq!(missing, Some(raised + 1));
            assert!(dropout.is_raised() && dropout.is_missing());
            let announced = dropout.update(11 * frame, true, false);
            let change = Change { state: State::Cleared, since: 11 * frame };
            assert_eq!(announced, Some(Announcement { change, times: 1 }));
        }
    }

    #[test]
    fn an_outage_is_announced_only_beyond_its_excuse() {
        let mut dropout = Dropout::default();
        // While it is excused.
        assert!((0..20).all(|i| dropout.update(i * FRAME, false, true).is_none()));
        assert!(dropout.is_missing() && dropout.is_excused() && !dropout.is_raised());
        assert_eq!(dropout.update(20 * FRAME, true, true), None);
        assert!(!dropout.is_missing() && !dropout.is_excused());
        // The hold continues after the excuse.
        assert!((21..30).all(|i| dropout.update(i * FRAME, false, true).is_none()));
        let raised = Change { state: State::Raised, since: 21 * FRAME };
        assert_eq!(dropout.update(30 * FRAME, false, false), Some(Announcement { change: raised, times: 1 }));
        assert!(dropout.is_raised() && !dropout.is_excused());
        // A later excuse does not clear the alarm.
        assert_eq!(dropout.update(31 * FRAME, false, true), None);
        let cleared = Change { state: State::Cleared, since: 32 * FRAME };
        assert_eq!(dropout.update(32 * FRAME, true, true), Some(Announcement { change: cleared, times: 1 }));
    }

    /// Returns the announcements for an alarm that is raised and cleared at these seconds, as (second, state, times).
    fn announced(seconds: &[(u64, u64)], end: u64) -> Vec<(u64, State, u64)> {
        let mut grouped = Grouped::default();
        let mut all = vec![];
        for now in 0..end {
            let mut announce = |announced: Option<Announcement>| {
                all.extend(announced.map(|t| (now, t.change.state, t.times)))
            };
            announce(grouped.advance(now * SECOND));
            for (raised, cleared) in seconds {
                let since = now * SECOND;
                if *raised == now {
                    announce(grouped.take(since, Change { state: State::Raised, since }));
                }
                if *cleared == now {
                    announce(grouped.take(since, Change { state: State::Cleared, since }));
                }
            }
        }
        all
    }

    #[test]
    fn single_changes_are_announced_at_once_and_frequent_ones_in_groups() {
        use State::{Cleared, Raised};
        let alone = [(1, Raised, 1), (3, Cleared, 1), (20, Raised, 1), (21, Cleared, 1)];
        assert_eq!(announced(&[(1, 3), (20, 21)], 100), alone);
        let every_two: Vec<_> = (0..30).map(|i| (2 * i, 2 * i + 1)).collect();
        let grouped = [(0, Raised, 1), (1, Cleared, 1), (2, Raised, 1), (69, Cleared, 29)];
        assert_eq!(announced(&every_two, 100), grouped);
    }

    #[test]
    fn time_that_steps_back_holds_nothing_back() {
        let mut grouped = Grouped::default();
        let change = |state, since| Change { state, since };
        for since in [100, 101] {
            grouped.take(since * SECOND, change(State::Raised, since));
            grouped.take(since * SECOND, change(State::Cleared, since));
        }
        assert!(grouped.is_raised());
        assert!(grouped.advance(102 * SECOND).is_none());
        assert!(grouped.advance(0).is_some());
        assert_eq!(grouped.end(0), None);
    }

    proptest! {
        /// Changes alternate for any times and values.
        #[test]
        fn changes_alternate(input in proptest::collection::vec((any::<u64>(), 60.0..80.0f64), 0..200), hold: u64, share in 0.01..1.0f64) {
            let mut alarm = LowAlarm::new(LowLevels { raise_hold: hold, clear_hold: 0, share, ..LEVELS });
            let mut last = State::Cleared;
            for (time, value) in input {
                if let Some(change) = alarm.update(time, value) {
                    prop_assert_ne!(change.state, last);
                    prop_assert!(change.since <= time);
                    last = change.state;
                    prop_assert_eq!(alarm.is_raised(), last == State::Raised);
                }
            }
        }
    }
}
