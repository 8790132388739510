// SPDX-License-Identifier: MPL-2.0

//! Whether this machine keeps up with its streams. What it leaves out is an `overload` of its own, and not a dropout of
//! those who sent it.

use gst::ClockTime;
use watch::alarm::{Change, Grouped, Hold, Latch, State, Told};

use super::monitor::grouped;
use super::report::event::{Event, EventMessage};

/// What the machine has no time for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Pairs come faster than they can be scored.
    Scoring,
    /// Frames are missing, and no CPU was idle.
    Machine,
}

impl Cause {
    fn reason(self) -> &'static str {
        match self {
            Self::Scoring => {
                "pairs come faster than they are scored; subsample=2 scores every second one, a GPU more of them"
            }
            Self::Machine => {
                "no CPU of this machine is idle, and frames come too late or not at all; run fewer streams on it"
            }
        }
    }
}

/// Raised by the first frame that the machine has no time for, cleared once there was none for a second.
pub struct Strain {
    latch: Latch,
    grouped: Grouped,
    /// Frames that were concerned since the alarm was told to be raised.
    frames: u64,
    /// The last frame that was there and not scored.
    left_out: Option<ClockTime>,
}

impl Default for Strain {
    fn default() -> Self {
        let latch = Latch::new(Hold::NONE, Hold::time(ClockTime::SECOND.nseconds()));
        Self { latch, grouped: Grouped::default(), frames: 0, left_out: None }
    }
}

impl Strain {
    /// Frames that were there were left out within the last second. Frames that are missing do not count, or they would
    /// excuse themselves for ever.
    pub fn is_recent(&self, now: ClockTime) -> bool {
        let since = |left_out| now.checked_sub(left_out);
        self.left_out.and_then(since).is_some_and(|time| time < ClockTime::SECOND)
    }

    /// Takes a frame, and why it was left out or is missing, should that be the machine's doing. What is to be told.
    pub fn frame(&mut self, at: ClockTime, cause: Option<Cause>) -> Option<EventMessage> {
        self.frames += u64::from(cause.is_some());
        if cause == Some(Cause::Scoring) {
            self.left_out = Some(at);
        }
        let change = self.latch.update(at.nseconds(), cause.is_some(), cause.is_none())?;
        let told = self.grouped.take(at.nseconds(), change)?;
        Some(self.event(at, told, cause))
    }

    /// What is to be told now, by the time that has passed.
    pub fn advance(&mut self, now: ClockTime) -> Option<EventMessage> {
        let told = self.grouped.advance(now.nseconds())?;
        Some(self.event(now, told, None))
    }

    /// Nothing more comes: what is still to be told.
    pub fn end(&mut self, now: ClockTime) -> Option<EventMessage> {
        let told = self.grouped.end(now.nseconds())?;
        Some(self.event(now, told, None))
    }

    fn event(&mut self, at: ClockTime, told: Told, cause: Option<Cause>) -> EventMessage {
        let over = matches!(told.change, Change { state: State::Cleared, .. });
        let count = over.then(|| std::mem::take(&mut self.frames));
        let reason = cause.map(|cause| cause.reason().into());
        EventMessage { count, reason, ..grouped(Event::Overload, at, told) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overload_that_comes_and_goes_is_told_with_its_frames() {
        let mut strain = Strain::default();
        let mut told = vec![];
        // Two frames of each three seconds, half a minute long.
        for frame in 0..2000u64 {
            let at = ClockTime::from_mseconds(40 * frame);
            let cause = (frame < 750 && frame % 75 < 2).then_some(Cause::Scoring);
            told.extend(strain.frame(at, cause));
            told.extend(strain.advance(at));
        }
        let told: Vec<_> =
            told.into_iter().map(|t| (t.state.name(), t.times, t.count, t.reason.is_some())).collect();
        let expected = [
            ("raised", Some(1), None, true),
            ("cleared", Some(1), Some(2), false),
            ("raised", Some(1), None, true),
            ("cleared", Some(9), Some(18), false),
        ];
        assert_eq!(told, expected);
    }
}
