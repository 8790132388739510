// SPDX-License-Identifier: MPL-2.0

//! The reference: its pad, the numbers and times of its frames, and how long nothing has come.

use std::sync::Arc;

use gst::ClockTime;
use gst::prelude::*;
use gst_base::AggregatorPad;
use gst_video::VideoTimeCodeMeta;
use watch::alarm::Dropout;

use super::downstream::Stamp;
use super::error::Error;
use super::input::{Input, Item, keys};
use super::pad_health::grouped;
use super::report::event::{Event, EventMessage};
use super::settings::Pairing;
use super::time::running;
use super::upcoming::Upcoming;

/// The time that sources may take for their first frame before that is a dropout.
const START: ClockTime = ClockTime::from_seconds(5);

/// The reference pad and the time line that its frames make.
pub struct Reference {
    pub input: Input,
    next_index: u64,
    /// The key of the frame that was taken last, where distorted frames can still be compared with it.
    pub last_key: Option<i64>,
    /// Running time of the latest frame that was taken.
    pub last_time: Option<ClockTime>,
    /// Running time at which the element began to play: what was before is not its business.
    begun: ClockTime,
    /// Running time up to which frames of any side have come, if any has.
    silent_since: Option<ClockTime>,
    /// Running time up to which silence since then was seen to.
    silent_until: ClockTime,
    /// Distorted frames that find no reference frame.
    dropout: Dropout,
}

impl Reference {
    pub fn new(pad: AggregatorPad, upcoming: Arc<Upcoming>) -> Self {
        Self {
            input: Input::new(pad, upcoming),
            next_index: 0,
            last_key: None,
            last_time: None,
            begun: ClockTime::ZERO,
            silent_since: None,
            silent_until: ClockTime::ZERO,
            dropout: Dropout::default(),
        }
    }

    /// The element begins to play. It may have been added to a pipeline that has played for a while.
    pub fn begin(&mut self, now: ClockTime) {
        if self.silent_since.is_none() {
            self.begun = now;
        }
    }

    /// Frames were taken since the start.
    pub fn has_begun(&self) -> bool {
        self.next_index > 0
    }

    /// Returns the number that the next frame gets.
    pub fn next_index(&self) -> u64 {
        self.next_index
    }

    /// Numbers the frame that is about to be taken, unless it is being flushed. `wild`: its timestamp is that of the frame
    /// before for all that runs by time.
    pub fn stamp(&mut self, buffer: &gst::BufferRef, wild: bool) -> Result<Option<Stamp>, Error> {
        let Some(times) = self.input.times(buffer)? else { return Ok(None) };
        let known = self.last_time.unwrap_or(ClockTime::ZERO);
        let running_time = times.running_time.filter(|_| !wild).unwrap_or(known);
        let duration = self.input.duration_of(buffer);
        let stamp = Stamp {
            index: self.next_index,
            timestamp: Some(times.timestamp),
            stream_time: times.stream_time,
            running_time,
            duration,
            lasts: duration.map(|duration| times.pace.running(duration)).or(self.input.cadence.typical()),
            time_code: buffer.meta::<VideoTimeCodeMeta>().map(|meta| meta.tc().to_string().into()),
        };
        self.next_index += 1;
        self.last_time = Some(running_time.max(known));
        Ok(Some(stamp))
    }

    /// Returns how far apart frames are at least, by what is known of them: by the timestamps and the caps, or else by how
    /// long the head says that it lasts, and by the frame behind the head, where that is closer. Alone it says nothing, as
    /// frames may be missing before it.
    pub fn distance(&self, head: &Item, behind: Option<&Item>) -> Option<ClockTime> {
        let lasts = || Some(self.input.pace().running(self.input.duration_of(&head.buffer)?));
        let known = self.input.cadence.close().or_else(lasts)?;
        let next = behind.and_then(|behind| behind.at.checked_sub(head.at)).filter(|next| !next.is_zero());
        Some(next.map_or(known, |next| next.min(known)))
    }

    /// Notes the head that is about to be taken, for those that follow it.
    pub fn note(&mut self, head: &Item, pairing: Pairing) {
        self.last_key = match pairing {
            Pairing::RunningTime | Pairing::Index | Pairing::Timecode => keys(pairing, head, head)[0],
            // The key depends on the clocks of both sides.
            Pairing::ReferenceTimestamp => None,
        };
        self.input.cadence.push(head.at);
    }

    /// Forgets the frames before a flush: those after it have nothing to do with them.
    pub fn restart(&mut self) {
        self.input.restart();
        self.last_key = None;
        self.last_time = None;
    }

    /// A reference frame has come, or (`present` is false) a distorted one that has none; `excused`: it could not have been
    /// in time.
    pub fn seen(&mut self, at: ClockTime, present: bool, excused: bool) -> Option<EventMessage> {
        let announced = self.dropout.update(at.nseconds(), present, excused)?;
        Some(self.event(grouped(Event::Dropout, at, announced)))
    }

    /// Frames have been missing for some time, which is not the fault of their stream.
    pub fn is_excused(&self) -> bool {
        self.dropout.is_excused()
    }

    /// Returns the event that is due by the time that has passed.
    pub fn advance(&mut self, now: ClockTime) -> Option<EventMessage> {
        let announced = self.dropout.advance(now.nseconds())?;
        Some(self.event(grouped(Event::Dropout, now, announced)))
    }

    /// Returns the event that is still due, as nothing more comes.
    pub fn end(&mut self, now: ClockTime) -> Option<EventMessage> {
        let announced = self.dropout.end(now.nseconds())?;
        Some(self.event(grouped(Event::Dropout, now, announced)))
    }

    /// A frame of some side has come that lasts until then.
    pub fn heard(&mut self, at: ClockTime, duration: Option<ClockTime>) {
        let until = at.saturating_add(duration.unwrap_or(ClockTime::ZERO));
        self.silent_since = Some(until);
        self.silent_until = until;
    }

    /// Returns for how long nothing may come before that is a dropout. A stream whose frames come when something changes may
    /// pause, and one whose frames have not shown how far apart they are is waited for as at the start.
    fn dropout_time(&self) -> ClockTime {
        let least = running(Dropout::TIME);
        match self.input.cadence.longest_pause() {
            _ if self.silent_since.is_none() || self.input.cadence.varies() => START,
            None => START,
            Some(pause) => pause.max(least),
        }
    }

    /// Returns the running time at which silence is to be looked at: once it is a dropout, and then at the end of each
    /// `interval`, where there are windows.
    pub fn beat(&self, interval: Option<u64>) -> Option<ClockTime> {
        let dropout = self.silent_since.unwrap_or(self.begun).saturating_add(self.dropout_time());
        if self.silent_until < dropout {
            return Some(dropout);
        }
        let interval = interval?.max(1);
        let next = (self.silent_until.nseconds() / interval).saturating_add(1).saturating_mul(interval);
        Some(running(next))
    }

    /// Nothing has come up to now: since when, and what is to be reported of the reference.
    pub fn silence(&mut self, now: ClockTime, excused: bool) -> (ClockTime, Option<EventMessage>) {
        let since = self.silent_since.unwrap_or(self.begun);
        self.silent_until = now;
        let announced = self.dropout.silence(since.nseconds(), now.nseconds(), excused);
        (since, announced.map(|announced| self.event(grouped(Event::Dropout, now, announced))))
    }

    /// Something that happened to the reference.
    pub fn event(&self, event: EventMessage) -> EventMessage {
        let pad = self.input.pad.name();
        EventMessage { pad: pad.to_string(), label: pad.to_string(), ..event }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(time: u64) -> ClockTime {
        ClockTime::from_mseconds(time)
    }

    /// After each silence that was handled, the next deadline is later, so the clock does not wake the element in
    /// vain.
    #[test]
    fn each_beat_is_later_than_the_silence_that_was_seen_to() {
        gst::init().unwrap();
        let template = gst::PadTemplate::new(
            "sink",
            gst::PadDirection::Sink,
            gst::PadPresence::Always,
            &gst::Caps::new_any(),
        );
        let pad = gst::PadBuilder::<AggregatorPad>::from_template(&template.unwrap()).build();
        let mut reference = Reference::new(pad, Arc::default());
        assert_eq!(reference.beat(None), Some(START));
        let (since, event) = reference.silence(START, false);
        assert_eq!((since, event.map(|event| event.event)), (ClockTime::ZERO, Some(Event::Dropout)));
        assert_eq!(reference.beat(None), None);
        assert_eq!(reference.beat(Some(ms(1000).nseconds())), Some(ms(6000)));
        // Frames that have not shown how far apart they are are waited for as at the start.
        reference.heard(ms(6960), Some(ms(40)));
        assert_eq!(reference.beat(None), Some(ms(12_000)));
        [6960, 7000].into_iter().for_each(|time| reference.input.cadence.push(ms(time)));
        reference.heard(ms(7000), Some(ms(40)));
        assert_eq!(reference.beat(None), Some(ms(7240)));
        for now in [7240, 7999, 8000, 8001, 20_000] {
            reference.silence(ms(now), false);
            assert!(reference.beat(Some(ms(1000).nseconds())) > Some(ms(now)));
        }
    }
}
