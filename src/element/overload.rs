// SPDX-License-Identifier: MPL-2.0

//! The alarms of a machine that does not keep up with its streams. Frames that it skips are an `overload`, and not a dropout
//! of their streams.

use gst::ClockTime;
use watch::alarm::{Announcement, Change, Grouped, Hold, Latch, State};

use super::pad_health::grouped;
use super::report::event::{Event, EventMessage};

/// Why frames were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Pairs come faster than they can be scored.
    Scoring,
    /// Frames are missing, and no CPU was idle.
    Machine,
    /// Downstream does not take what is pushed.
    Downstream,
}

impl Cause {
    /// Returns the alarm that is raised.
    fn event(self) -> Event {
        match self {
            Self::Scoring | Self::Machine => Event::Overload,
            Self::Downstream => Event::DownstreamBlocked,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Scoring => {
                "pairs come faster than they are scored; subsample=2 scores every second one, a GPU more of them"
            }
            Self::Machine => {
                "no CPU of this machine is idle, and frames come too late or not at all; run fewer streams on it"
            }
            Self::Downstream => {
                "what comes after src does not take frames as fast as they come; look at the elements there, or have some \
                 dropped by a queue with leaky=downstream after src"
            }
        }
    }
}

/// Raised by the first frame that the machine has no time for, cleared once there was none for a second. What downstream
/// holds up is an alarm of its own.
#[derive(Default)]
pub struct OverloadAlarm {
    overload: Held,
    blocked: Held,
}

/// Frames that were held up, for causes of one kind.
struct Held {
    latch: Latch,
    grouped: Grouped,
    /// Frames that were concerned since the alarm was reported as raised.
    frames: u64,
    /// The last frame that was there and not scored.
    left_out: Option<ClockTime>,
}

impl Default for Held {
    fn default() -> Self {
        let latch = Latch::new(Hold::NONE, Hold::time(ClockTime::SECOND.nseconds()));
        Self { latch, grouped: Grouped::default(), frames: 0, left_out: None }
    }
}

impl OverloadAlarm {
    /// Frames that were there were left out within the last second. Frames that are missing do not count, or they would
    /// excuse themselves for ever.
    pub fn is_recent(&self, now: ClockTime) -> bool {
        self.overload.is_recent(now) || self.is_blocked(now)
    }

    /// Downstream has held up frames within the last second.
    pub fn is_blocked(&self, now: ClockTime) -> bool {
        self.blocked.is_recent(now)
    }

    /// Takes a frame, and why it was left out or is missing, should that be the machine's doing or downstream's. Returns
    /// the events to post.
    pub fn frame(&mut self, at: ClockTime, cause: Option<Cause>) -> Vec<EventMessage> {
        let of = |kind: Event| cause.filter(|cause| cause.event() == kind);
        let overload = self.overload.take(Event::Overload, at, of(Event::Overload), 1);
        let blocked = self.blocked.take(Event::DownstreamBlocked, at, of(Event::DownstreamBlocked), 1);
        overload.into_iter().chain(blocked).collect()
    }

    /// Takes note that a push has not returned by now. Returns the event to post.
    pub fn stuck(&mut self, now: ClockTime) -> Option<EventMessage> {
        self.blocked.take(Event::DownstreamBlocked, now, Some(Cause::Downstream), 0)
    }

    /// Returns the events that are due by the time that has passed.
    pub fn advance(&mut self, now: ClockTime) -> Vec<EventMessage> {
        self.grouped(now, |grouped| grouped.advance(now.nseconds()))
    }

    /// Returns the events that are still due, as nothing more comes.
    pub fn end(&mut self, now: ClockTime) -> Vec<EventMessage> {
        self.grouped(now, |grouped| grouped.end(now.nseconds()))
    }

    fn grouped(
        &mut self,
        now: ClockTime,
        announced: impl Fn(&mut Grouped) -> Option<Announcement>,
    ) -> Vec<EventMessage> {
        let kinds = [(Event::Overload, &mut self.overload), (Event::DownstreamBlocked, &mut self.blocked)];
        let event = |(kind, held): (Event, &mut Held)| {
            let announced = announced(&mut held.grouped)?;
            Some(held.event(kind, now, announced, None))
        };
        kinds.into_iter().filter_map(event).collect()
    }
}

impl Held {
    fn is_recent(&self, now: ClockTime) -> bool {
        let since = |left_out| now.checked_sub(left_out);
        self.left_out.and_then(since).is_some_and(|time| time < ClockTime::SECOND)
    }

    /// Takes so many frames that were held up for this cause, or a frame that was not.
    fn take(
        &mut self,
        kind: Event,
        at: ClockTime,
        cause: Option<Cause>,
        frames: u64,
    ) -> Option<EventMessage> {
        if let Some(cause) = cause {
            self.frames += frames;
            if cause != Cause::Machine {
                self.left_out = Some(at);
            }
        }
        let change = self.latch.update(at.nseconds(), cause.is_some(), cause.is_none())?;
        let announced = self.grouped.take(at.nseconds(), change)?;
        Some(self.event(kind, at, announced, cause))
    }

    fn event(
        &mut self,
        kind: Event,
        at: ClockTime,
        announced: Announcement,
        cause: Option<Cause>,
    ) -> EventMessage {
        let over = matches!(announced.change, Change { state: State::Cleared, .. });
        let count = over.then(|| std::mem::take(&mut self.frames));
        let reason = cause.map(|cause| cause.reason().into());
        EventMessage { count, reason, ..grouped(kind, at, announced) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_downstream_holds_up_is_no_overload() {
        let mut alarm = OverloadAlarm::default();
        let second = ClockTime::from_seconds;
        let of = |announced: &EventMessage| (announced.event, announced.state.name(), announced.count);
        assert_eq!(alarm.stuck(second(1)).as_ref().map(of), Some((Event::DownstreamBlocked, "raised", None)));
        assert_eq!(alarm.stuck(second(2)), None);
        assert!(alarm.is_recent(second(2)));
        assert_eq!(alarm.frame(second(2), Some(Cause::Downstream)), []);
        assert_eq!(alarm.frame(second(3), None), []);
        let announced = alarm.frame(second(4), None);
        assert_eq!(
            announced.iter().map(of).collect::<Vec<_>>(),
            [(Event::DownstreamBlocked, "cleared", Some(1))]
        );
    }

    #[test]
    fn an_overload_that_comes_and_goes_is_reported_with_its_frames() {
        let mut alarm = OverloadAlarm::default();
        let mut announced = vec![];
        // Two frames of each three seconds, half a minute long.
        for frame in 0..2000u64 {
            let at = ClockTime::from_mseconds(40 * frame);
            let cause = (frame < 750 && frame % 75 < 2).then_some(Cause::Scoring);
            announced.extend(alarm.frame(at, cause));
            announced.extend(alarm.advance(at));
        }
        let announced: Vec<_> =
            announced.into_iter().map(|t| (t.state.name(), t.times, t.count, t.reason.is_some())).collect();
        let expected = [
            ("raised", Some(1), None, true),
            ("cleared", Some(1), Some(2), false),
            ("raised", Some(1), None, true),
            ("cleared", Some(9), Some(18), false),
        ];
        assert_eq!(announced, expected);
    }
}
