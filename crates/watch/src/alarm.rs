// SPDX-License-Identifier: MPL-2.0

//! Alarms that do not flap: a condition must last before it is reported, and be over for a while before it is
//! called over.

use std::collections::VecDeque;

/// How long a condition must last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// How long the condition must last, in ns, from the first frame that has it to the last.
    pub time: u64,
    /// So many frames in a row that have the condition are enough too, however little time they took.
    pub frames: Option<u32>,
}

impl Hold {
    /// No hold: the first frame with the condition is enough.
    pub const NONE: Self = Self::time(0);

    /// A hold of so many ns.
    pub const fn time(time: u64) -> Self {
        Self { time, frames: None }
    }
}

/// Whether there is an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is an alarm from now on.
    Raised,
    /// The alarm is over.
    Cleared,
}

/// An alarm was raised or cleared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Whether the alarm was raised or cleared.
    pub state: State,
    /// Running time in ns since when it has been so: that of the first frame of the hold.
    pub since: u64,
}

/// A row of frames with a condition.
#[derive(Clone, Copy, Debug)]
struct Row {
    since: u64,
    frames: u32,
}

/// Raises an alarm when one condition has held, and clears it when another has.
#[derive(Clone, Debug)]
pub struct Latch {
    raise: Hold,
    clear: Hold,
    raised: bool,
    row: Option<Row>,
}

impl Latch {
    /// An alarm that is raised and cleared when its conditions have held for so long.
    pub fn new(raise: Hold, clear: Hold) -> Self {
        Self { raise, clear, raised: false, row: None }
    }

    /// Whether there is an alarm.
    pub fn is_raised(&self) -> bool {
        self.raised
    }

    /// This latch in the place of an older one with other holds: an alarm stays raised, and a hold that has begun goes
    /// on.
    pub fn reconfigured(self, old: &Self) -> Self {
        Self { raised: old.raised, row: old.row, ..self }
    }

    /// Takes the conditions at a running time in ns: for raising the alarm, and for clearing it. Time that steps
    /// back starts the hold again.
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

/// Parts that a hold is divided into. Frames of a part are counted together, so a long hold takes no more memory than a
/// short one; with fewer frames than parts each frame counts by itself.
const PARTS: u64 = 1024;

/// Frames that were counted together.
#[derive(Clone, Copy, Debug)]
struct Part {
    since: u64,
    frames: u64,
    /// Frames that have the condition, and the running time of the first of them.
    hits: u64,
    first_hit: Option<u64>,
    /// Frames that have the opposite condition.
    against: u64,
}

/// How many of the frames of the last while have a condition, and how many the opposite one. The while is a hold, or a
/// little longer: it begins with the last frame that is at least the hold old.
#[derive(Clone, Debug, Default)]
struct Recent {
    parts: VecDeque<Part>,
    frames: u64,
    hits: u64,
    against: u64,
}

impl Recent {
    /// Takes a frame by its running time in ns. Time that steps back begins anew.
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

    /// Running time of the first frame that has the condition, once this share of the frames of a whole hold has it, and
    /// not as many have the opposite one.
    fn holds(&self, running_time: u64, hold: u64, share: f64) -> Option<u64> {
        let first = self.parts.front()?;
        let whole = running_time - first.since >= hold;
        let needed = share * self.frames as f64;
        let decided = self.hits as f64 >= needed && (self.against as f64) < needed;
        self.parts.iter().find_map(|part| part.first_hit).filter(|_| whole && decided)
    }
}

/// When values raise an alarm, and when they clear it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowLevels {
    /// Values below this are low.
    pub low: f64,
    /// Values of at least this are good; counts as `low` if it is lower.
    pub clear: f64,
    /// Nanoseconds over which the share of low values is looked at.
    pub raise_hold: u64,
    /// Nanoseconds over which the share of good values is looked at; fewer than that share must be low.
    pub clear_hold: u64,
    /// Share of the values of a hold that decides, above 0 and at most 1. With 1, a single value between is enough to begin
    /// the hold anew.
    pub share: f64,
}

/// Alarm on values of which too many are low. A share decides, not a row of values, as encodings at low rates have a good
/// picture every second or two, with each key frame.
#[derive(Clone, Debug)]
pub struct LowAlarm {
    levels: LowLevels,
    raised: bool,
    recent: Recent,
}

impl LowAlarm {
    /// An alarm that is not raised.
    pub fn new(levels: LowLevels) -> Self {
        let clear = levels.clear.max(levels.low);
        Self { levels: LowLevels { clear, ..levels }, raised: false, recent: Recent::default() }
    }

    /// Whether there is an alarm.
    pub fn is_raised(&self) -> bool {
        self.raised
    }

    /// This alarm in the place of an older one with other levels or holds: what was raised stays so until values reach
    /// the clearing level of this one, and a hold that has begun goes on.
    pub fn reconfigured(self, old: &Self) -> Self {
        Self { raised: old.raised, recent: old.recent.clone(), ..self }
    }

    /// The value that `state` is compared with.
    pub fn threshold(&self, state: State) -> f64 {
        match state {
            State::Raised => self.levels.low,
            State::Cleared => self.levels.clear,
        }
    }

    /// Takes the value of a running time in ns. One that is not a number is neither low nor good.
    pub fn update(&mut self, running_time: u64, value: f64) -> Option<Change> {
        self.take(running_time, value < self.levels.low, value >= self.levels.clear)
    }

    /// Takes a frame without a value, which is as bad as a low one.
    pub fn missing(&mut self, running_time: u64) -> Option<Change> {
        self.take(running_time, true, false)
    }

    fn take(&mut self, running_time: u64, low: bool, good: bool) -> Option<Change> {
        let LowLevels { raise_hold, clear_hold, share, .. } = self.levels;
        // Good frames keep no alarm from being raised; a share of low ones that would raise it keeps it from being
        // cleared.
        let (hold, hit, against) =
            if self.raised { (clear_hold, good, low) } else { (raise_hold, low, false) };
        self.recent.push(running_time, hit, against, hold);
        let since = self.recent.holds(running_time, hold, share).filter(|_| hit)?;
        self.raised = !self.raised;
        self.recent = Recent::default();
        Some(Change { state: if self.raised { State::Raised } else { State::Cleared }, since })
    }
}

/// How long something must have been quiet, in ns, before it is told of by itself again.
pub const CALM: u64 = 10_000_000_000;

/// A change that is to be told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told {
    /// What has changed.
    pub change: Change,
    /// How often the alarm was raised since it was told to be.
    pub times: u64,
}

/// Groups the changes of an alarm that comes and goes, so that dozens a minute become a few with a count. An alarm is told
/// as soon as it is raised, and as soon as it is cleared if it comes alone. One that comes again within [`CALM`] is told to
/// be over only when it has not been raised for so long.
#[derive(Clone, Debug, Default)]
pub struct Grouped {
    /// Told to be raised.
    raised: bool,
    times: u64,
    /// It has come again soon, and is not told to be over at once.
    flaps: bool,
    /// When it was told to be over last.
    told_over: Option<u64>,
    /// It is over since this time, which is not told yet.
    over: Option<(u64, Change)>,
}

/// Whether [`CALM`] has passed since then. Streams are a little ahead of one another; time that steps back by as much is a
/// new beginning.
pub fn is_calm(since: u64, now: u64) -> bool {
    now.abs_diff(since) >= CALM
}

impl Grouped {
    /// Whether there is an alarm as far as was told.
    pub fn is_raised(&self) -> bool {
        self.raised
    }

    /// Takes a change at a running time in ns. What is to be told now.
    pub fn take(&mut self, now: u64, change: Change) -> Option<Told> {
        match change.state {
            State::Raised if self.raised => {
                self.over = None;
                self.times += 1;
                None
            }
            State::Raised => {
                let flaps = self.told_over.is_some_and(|at| !is_calm(at, now));
                *self = Self { raised: true, times: 1, flaps, ..Self::default() };
                Some(Told { change, times: 1 })
            }
            State::Cleared => {
                self.over = Some((now, change)).filter(|_| self.raised);
                let alone = !self.flaps && self.times == 1;
                if alone { self.end(now) } else { None }
            }
        }
    }

    /// Takes the time that has passed. What is to be told now.
    pub fn advance(&mut self, now: u64) -> Option<Told> {
        let (at, _) = self.over?;
        if is_calm(at, now) { self.end(now) } else { None }
    }

    /// Nothing more comes: what is still to be told.
    pub fn end(&mut self, now: u64) -> Option<Told> {
        let (_, change) = self.over?;
        let times = self.times;
        *self = Self { told_over: Some(now), ..Self::default() };
        Some(Told { change, times })
    }
}

/// Alarm on reference frames that find no distorted frame.
///
/// Whether frames are missing is one question, who is to blame another: where the machine has no time for its streams, it
/// is not they that have dropped out. Such an outage is excused, and told only if it lasts longer than the excuse.
#[derive(Clone, Debug)]
pub struct Dropout {
    latch: Latch,
    /// Since when frames have been missing.
    since: Option<u64>,
    /// That was not excused.
    blamed: bool,
    grouped: Grouped,
}

impl Default for Dropout {
    /// Raised after 3 frames or [`Dropout::TIME`] without a pair, cleared by the next pair.
    fn default() -> Self {
        let latch = Latch::new(Hold { time: Self::TIME, frames: Some(3) }, Hold::NONE);
        Self { latch, since: None, blamed: false, grouped: Grouped::default() }
    }
}

impl Dropout {
    /// 200 ms.
    pub const TIME: u64 = 200_000_000;

    /// Whether frames have been missing for some time, up to now.
    pub fn is_missing(&self) -> bool {
        self.latch.is_raised()
    }

    /// Whether frames have been missing for some time and that was excused so far.
    pub fn is_excused(&self) -> bool {
        self.latch.is_raised() && !self.blamed
    }

    /// Whether there is an alarm as far as was told.
    pub fn is_raised(&self) -> bool {
        self.grouped.is_raised()
    }

    /// Takes a reference frame by its running time in ns, and whether it had a distorted frame; `excused` says that it
    /// could not have been in time. What is to be told now.
    pub fn update(&mut self, running_time: u64, paired: bool, excused: bool) -> Option<Told> {
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

    /// Nothing at all came from `since` to `now`, running times in ns.
    pub fn silence(&mut self, since: u64, now: u64, excused: bool) -> Option<Told> {
        self.update(since, false, excused).or_else(|| self.update(now, false, excused))
    }

    /// Takes the time that has passed. What is to be told now.
    pub fn advance(&mut self, now: u64) -> Option<Told> {
        self.grouped.advance(now)
    }

    /// Nothing more comes: what is still to be told.
    pub fn end(&mut self, now: u64) -> Option<Told> {
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

    /// All changes that values of 25 frames per second make, as (state, since, frame).
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
        // Between the two levels the alarm stays as it is.
        let values = row(60.0, 60).chain(row(74.9, 500)).chain(row(75.0, 125)).chain(row(74.9, 1));
        assert_eq!(changes(values), [(State::Raised, 0, 50)]);
        assert_eq!(changes(row(f64::NAN, 500)), []);
    }

    /// A key frame every two seconds, as encoders at low rates make them.
    fn pumping(frames: usize) -> impl Iterator<Item = f64> {
        (0..frames).map(|i| if i % 50 == 0 { 80.0 } else { 30.0 })
    }

    #[test]
    fn single_good_frames_do_not_save_a_bad_stream() {
        assert_eq!(changes(pumping(500)), []);
        let share = LowAlarm::new(LowLevels { share: 0.5, ..LEVELS });
        assert_eq!(changes_of(share.clone(), pumping(500)), [(State::Raised, 1, 50 + 1)]);
        // Nor do single bad frames keep it from being good again.
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
    fn missing_frames_count_as_low_where_they_are_told() {
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
            let told = dropout.update(11 * frame, true, false);
            let change = Change { state: State::Cleared, since: 11 * frame };
            assert_eq!(told, Some(Told { change, times: 1 }));
        }
    }

    #[test]
    fn an_outage_is_told_only_beyond_its_excuse() {
        let mut dropout = Dropout::default();
        // As long as it is excused.
        assert!((0..20).all(|i| dropout.update(i * FRAME, false, true).is_none()));
        assert!(dropout.is_missing() && dropout.is_excused() && !dropout.is_raised());
        assert_eq!(dropout.update(20 * FRAME, true, true), None);
        assert!(!dropout.is_missing() && !dropout.is_excused());
        // It goes on when the excuse is over.
        assert!((21..30).all(|i| dropout.update(i * FRAME, false, true).is_none()));
        let raised = Change { state: State::Raised, since: 21 * FRAME };
        assert_eq!(dropout.update(30 * FRAME, false, false), Some(Told { change: raised, times: 1 }));
        assert!(dropout.is_raised() && !dropout.is_excused());
        // An excuse that comes later takes nothing back.
        assert_eq!(dropout.update(31 * FRAME, false, true), None);
        let cleared = Change { state: State::Cleared, since: 32 * FRAME };
        assert_eq!(dropout.update(32 * FRAME, true, true), Some(Told { change: cleared, times: 1 }));
    }

    /// All that is told of an alarm that is raised and cleared at these seconds, as (second, state, times).
    fn told(seconds: &[(u64, u64)], end: u64) -> Vec<(u64, State, u64)> {
        let mut grouped = Grouped::default();
        let mut all = vec![];
        for now in 0..end {
            let mut tell = |told: Option<Told>| all.extend(told.map(|t| (now, t.change.state, t.times)));
            tell(grouped.advance(now * SECOND));
            for (raised, cleared) in seconds {
                let since = now * SECOND;
                if *raised == now {
                    tell(grouped.take(since, Change { state: State::Raised, since }));
                }
                if *cleared == now {
                    tell(grouped.take(since, Change { state: State::Cleared, since }));
                }
            }
        }
        all
    }

    #[test]
    fn what_comes_alone_is_told_at_once_and_what_flaps_in_groups() {
        use State::{Cleared, Raised};
        let alone = [(1, Raised, 1), (3, Cleared, 1), (20, Raised, 1), (21, Cleared, 1)];
        assert_eq!(told(&[(1, 3), (20, 21)], 100), alone);
        let every_two: Vec<_> = (0..30).map(|i| (2 * i, 2 * i + 1)).collect();
        let grouped = [(0, Raised, 1), (1, Cleared, 1), (2, Raised, 1), (69, Cleared, 29)];
        assert_eq!(told(&every_two, 100), grouped);
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
        /// Changes alternate, whatever the times and values.
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
