// SPDX-License-Identifier: MPL-2.0

//! Alarms that do not flap: a condition must last before it is reported, and be over for a while before it is
//! called over.

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

/// Alarm on a value that is too low for too long.
#[derive(Clone, Debug)]
pub struct LowAlarm {
    low: f64,
    clear: f64,
    latch: Latch,
}

impl LowAlarm {
    /// Raised by values below `low`, cleared by values of at least `clear`, which counts as `low` if it is lower.
    pub fn new(low: f64, clear: f64, raise_hold: Hold, clear_hold: Hold) -> Self {
        Self { low, clear: clear.max(low), latch: Latch::new(raise_hold, clear_hold) }
    }

    /// Whether there is an alarm.
    pub fn is_raised(&self) -> bool {
        self.latch.is_raised()
    }

    /// This alarm in the place of an older one with other levels or holds: what was raised stays so until values reach
    /// the clearing level of this one.
    pub fn reconfigured(self, old: &Self) -> Self {
        Self { latch: self.latch.reconfigured(&old.latch), ..self }
    }

    /// The value that `state` is compared with.
    pub fn threshold(&self, state: State) -> f64 {
        match state {
            State::Raised => self.low,
            State::Cleared => self.clear,
        }
    }

    /// Takes the value of a running time in ns.
    pub fn update(&mut self, running_time: u64, value: f64) -> Option<Change> {
        self.latch.update(running_time, value < self.low, value >= self.clear)
    }
}

/// Alarm on reference frames that find no distorted frame.
#[derive(Clone, Debug)]
pub struct Dropout(Latch);

impl Default for Dropout {
    /// Raised after 3 frames or [`Dropout::TIME`] without a pair, cleared by the next pair.
    fn default() -> Self {
        Self(Latch::new(Hold { time: Self::TIME, frames: Some(3) }, Hold::NONE))
    }
}

impl Dropout {
    /// 200 ms.
    pub const TIME: u64 = 200_000_000;

    /// Whether there is an alarm.
    pub fn is_raised(&self) -> bool {
        self.0.is_raised()
    }

    /// Takes a reference frame by its running time in ns, and whether it had a distorted frame.
    pub fn update(&mut self, running_time: u64, paired: bool) -> Option<Change> {
        self.0.update(running_time, !paired, paired)
    }

    /// Nothing at all came from `since` to `now`, running times in ns.
    pub fn silence(&mut self, since: u64, now: u64) -> Option<Change> {
        self.update(since, false).or_else(|| self.update(now, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;
    const FRAME: u64 = SECOND / 25;

    fn alarm() -> LowAlarm {
        LowAlarm::new(70.0, 75.0, Hold::time(2 * SECOND), Hold::time(5 * SECOND))
    }

    /// All changes that values of 25 frames per second make, as (state, since, frame).
    fn changes(values: impl IntoIterator<Item = f64>) -> Vec<(State, u64, u64)> {
        let mut alarm = alarm();
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

    #[test]
    fn clearing_below_low_is_not_possible() {
        let mut alarm = LowAlarm::new(70.0, -1.0, Hold::NONE, Hold::NONE);
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
            assert_eq!(dropout.update(0, true), None);
            let missing = (1..=10).find(|i| dropout.update(i * frame, false).is_some());
            assert_eq!(missing, Some(raised + 1));
            assert!(dropout.is_raised());
            let change = dropout.update(11 * frame, true);
            assert_eq!(change, Some(Change { state: State::Cleared, since: 11 * frame }));
        }
    }

    proptest! {
        /// Changes alternate, whatever the times and values.
        #[test]
        fn changes_alternate(input in proptest::collection::vec((any::<u64>(), 60.0..80.0f64), 0..200), hold: u64) {
            let mut alarm = LowAlarm::new(70.0, 75.0, Hold { time: hold, frames: Some(3) }, Hold::NONE);
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
