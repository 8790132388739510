// SPDX-License-Identifier: MPL-2.0

//! The `hipvmaf-event` element message: what happened besides scores, and a typed parser for applications.
//!
//! ```no_run
//! # let bus: gst::Bus = unimplemented!();
//! use gsthipvmaf::event::EventMessage;
//!
//! for message in bus.iter_timed(None) {
//!     if let Some(Ok(event)) = message.structure().map(EventMessage::try_from) {
//!         println!("{} {} on {}", event.event.name(), event.state.name(), event.label);
//!     }
//! }
//! ```

use gst::{ClockTime, Structure, StructureRef};

use super::message::{ParseError, field};
use super::named::named;

/// Name of the message structure.
pub const NAME: &str = "hipvmaf-event";

named! {
    /// Kind of an event.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Event {
        /// The score was below `alarm-low` for `alarm-hold`; it is above `alarm-clear` again.
        #[default]
        Alarm = "alarm",
        /// The distorted picture stands still while the reference moves.
        Freeze = "freeze",
        /// The distorted picture is black while the reference is not.
        Black = "black",
        /// One of the inputs does not deliver.
        Dropout = "dropout",
        /// Reference frames had no distorted frame; posted when the gap has ended.
        Unpaired = "unpaired",
        /// The offset between reference and distorted video was found or has changed; without an offset, `align=auto` has given
        /// up looking for it.
        Alignment = "alignment",
        /// The offset was another one for some time than the one that frames were paired by (`align=auto`): the scores from
        /// `since` to `running-time` are of wrong pairs.
        Mispaired = "mispaired",
        /// The pictures match those of the reference at no offset that was tried (`align`).
        OtherProgramme = "other-programme",
        /// Pairs come faster than they can be scored and are left out, or frames are missing while the machine has no computing
        /// time left.
        Overload = "overload",
        /// Downstream does not take what is pushed, and frames are held up by that.
        DownstreamBlocked = "downstream-blocked",
        /// A pad has had nothing for `stall-time` while frames wait at another one.
        Stalled = "stalled",
        /// A timestamp is far ahead of the others of its stream, or of the clock.
        TimestampJump = "timestamp-jump",
        /// The GPU has computed something else for a frame than the CPU, as [`verify`](crate::HipVmaf) found out.
        WrongScore = "wrong-score",
        /// The GPU is gone; the error that stops the element comes next.
        DeviceLost = "device-lost",
        /// A stream of several cannot be scored, and says why; it can again.
        Failed = "failed",
    }
}

named! {
    /// Says whether an event begins, ends, or happens once.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum EventState {
        #[default]
        Raised = "raised",
        Cleared = "cleared",
        Info = "info",
    }
}

/// Something that happened on a pad.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventMessage {
    pub event: Event,
    pub state: EventState,
    /// Sink pad concerned.
    pub pad: String,
    /// The user's name for its stream; the pad name unless set.
    pub label: String,
    /// Running time at which it was noticed, as a rule that of a reference frame.
    pub running_time: Option<ClockTime>,
    /// Running time since when it has been so.
    pub since: Option<ClockTime>,
    /// The measured value: a score, a level, or the confidence of an alignment.
    pub value: Option<f64>,
    /// The limit that `value` was compared with.
    pub threshold: Option<f64>,
    /// Frames concerned.
    pub count: Option<u64>,
    /// The number of occurrences: gaps, or raises of an alarm since it was reported as raised.
    pub times: Option<u64>,
    /// By how many nanoseconds the distorted video is late.
    pub offset: Option<i64>,
    /// Number of the reference frame.
    pub frame: Option<u64>,
    /// The metric whose sums are wrong.
    pub metric: Option<String>,
    /// The first number of them that differs, by the CPU.
    pub expected: Option<String>,
    /// The value that the GPU has instead.
    pub got: Option<String>,
    /// Why, and what to do.
    pub reason: Option<String>,
}

impl EventMessage {
    pub fn to_structure(&self) -> Structure {
        Structure::builder(NAME)
            .field("event", self.event.name())
            .field("state", self.state.name())
            .field("pad", &self.pad)
            .field("label", &self.label)
            .field_if_some("running-time", self.running_time.map(ClockTime::nseconds))
            .field_if_some("since", self.since.map(ClockTime::nseconds))
            .field_if_some("value", self.value)
            .field_if_some("threshold", self.threshold)
            .field_if_some("count", self.count)
            .field_if_some("times", self.times)
            .field_if_some("offset", self.offset)
            .field_if_some("frame", self.frame)
            .field_if_some("metric", self.metric.as_ref())
            .field_if_some("expected", self.expected.as_ref())
            .field_if_some("got", self.got.as_ref())
            .field_if_some("reason", self.reason.as_ref())
            .build()
    }
}

impl TryFrom<&StructureRef> for EventMessage {
    type Error = ParseError;

    fn try_from(s: &StructureRef) -> Result<Self, ParseError> {
        if s.name() != NAME {
            return Err(ParseError::Name { found: s.name().to_string(), expected: NAME });
        }
        let (event, state) = (field::<String>(s, "event")?, field::<String>(s, "state")?);
        let event = Event::parse(&event).ok_or(ParseError::Type(event))?;
        let state = EventState::parse(&state).ok_or(ParseError::Type(state))?;
        let time = |name| s.get::<u64>(name).ok().map(ClockTime::from_nseconds);
        Ok(Self {
            event,
            state,
            pad: field(s, "pad")?,
            label: field(s, "label")?,
            running_time: time("running-time"),
            since: time("since"),
            value: s.get("value").ok(),
            threshold: s.get("threshold").ok(),
            count: s.get("count").ok(),
            times: s.get("times").ok(),
            offset: s.get("offset").ok(),
            frame: s.get("frame").ok(),
            metric: s.get("metric").ok(),
            expected: s.get("expected").ok(),
            got: s.get("got").ok(),
            reason: s.get("reason").ok(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_the_bus() {
        gst::init().unwrap();
        for &event in Event::ALL {
            for &state in EventState::ALL {
                let message = EventMessage {
                    event,
                    state,
                    pad: "dist_0".into(),
                    label: "720p".into(),
                    running_time: Some(ClockTime::from_seconds(7)),
                    since: Some(ClockTime::from_seconds(5)),
                    value: Some(66.5),
                    threshold: Some(70.0),
                    count: Some(50),
                    times: Some(3),
                    offset: Some(-40_000_000),
                    frame: Some(175),
                    metric: Some("motion".into()),
                    expected: Some("lag1: Some(17)".into()),
                    got: Some("lag1: Some(16)".into()),
                    reason: Some("it is interlaced".into()),
                };
                assert_eq!(EventMessage::try_from(&*message.to_structure()), Ok(message));
            }
        }
        let bare = EventMessage { pad: "ref_sink".into(), ..EventMessage::default() };
        assert_eq!(EventMessage::try_from(&*bare.to_structure()), Ok(bare));
    }

    #[test]
    fn foreign_structures_are_refused_with_the_reason() {
        gst::init().unwrap();
        let parse = |s: &Structure| EventMessage::try_from(&**s).unwrap_err().to_string();
        assert_eq!(parse(&Structure::new_empty("level")), "the structure is named level, not hipvmaf-event");
        let mut unknown = EventMessage::default().to_structure();
        unknown.set("event", "earthquake");
        assert_eq!(parse(&unknown), "unknown message type earthquake");
    }
}
