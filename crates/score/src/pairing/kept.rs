// SPDX-License-Identifier: MPL-2.0

//! A decision on how two files are paired, to be kept: their frames are looked at once, and scored later, as a whole or in
//! parts.

use std::sync::Arc;

use gst::ClockTime;
use serde::{Deserialize, Serialize};

use super::Pairing;
use super::retime::{Timing, Timings};
use crate::run::Job;
use crate::span::Span;

/// How the frames of two files are paired.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Kept {
    /// What was decided.
    pub pairing: Pairing,
    /// What becomes of the frames of the original and of the other; nothing where their timestamps pair them.
    pub frames: Option<[Timing; 2]>,
}

impl Kept {
    /// Returns the decision on the first rendition of a job.
    pub fn of(job: &Job, pairing: &Pairing) -> Self {
        let timings = job.timings.reference.as_deref();
        let both = timings.zip(job.timings.renditions.first().and_then(|timing| timing.as_deref()));
        let frames = both.map(|(reference, own)| [reference.clone(), own.clone()]);
        Self { pairing: pairing.clone(), frames }
    }

    /// Has a job pair its only rendition so.
    pub fn apply(&self, job: &mut Job) {
        let Some([reference, own]) = self.frames.clone().map(|frames| frames.map(Arc::new)) else { return };
        job.timings = Timings { reference: Some(reference), renditions: vec![Some(own)] };
        job.treatment.span = None;
        for treatment in &mut job.treatments {
            (treatment.span, treatment.rate) = (None, None);
        }
    }

    /// Has a job pair the frames with times from one on to before another so, and read no more than these.
    pub fn apply_part(&self, job: &mut Job, from: u64, to: Option<u64>) {
        let Some(frames) = &self.frames else { return };
        let [(reference, span), (own, own_span)] = frames.each_ref().map(|timing| timing.part(from, to));
        job.timings = Timings { reference: Some(reference.into()), renditions: vec![Some(own.into())] };
        job.treatment.span = Some(span);
        job.treatments.iter_mut().for_each(|treatment| treatment.span = Some(own_span));
    }
}

/// A frame that is scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Where it is in its stream, in nanoseconds.
    pub position: u64,
    /// The time that it gets.
    pub time: u64,
}

impl Timing {
    /// Returns the frames that are scored, in order of their times. An error says why none can be found by its position.
    pub fn placed(&self) -> Result<Vec<Placed>, String> {
        if self.positions.windows(2).any(|pair| pair[1] <= pair[0]) {
            return Err("its frames cannot be told apart by their timestamps".into());
        }
        let all = self.positions.iter().zip(&self.times);
        let placed: Vec<_> =
            all.filter_map(|(position, time)| Some(Placed { position: *position, time: (*time)? })).collect();
        match placed.windows(2).all(|pair| pair[0].time < pair[1].time) {
            true => Ok(placed),
            false => Err("its frames are not in order".into()),
        }
    }

    /// Finds frames by their positions, where these tell them apart.
    pub fn found_by_position(mut self) -> Self {
        self.by_position = self.placed().is_ok().then(|| self.slack());
        self
    }

    /// Returns the same of the film, with the frames that either has.
    pub fn or(&self, other: &Self) -> Self {
        let times = self.times.iter().zip(&other.times).map(|(own, other)| own.or(*other)).collect();
        Self { times, ..self.clone() }
    }

    /// Returns the number of the frames whose new times are these.
    pub fn count(&self, of: impl Fn(u64) -> bool) -> u64 {
        self.times.iter().flatten().filter(|time| of(**time)).count() as u64
    }

    /// Less than half of what any two frames are apart.
    pub fn slack(&self) -> u64 {
        let distances = self.positions.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        distances.min().unwrap_or(1_000_000) / 4
    }

    /// Returns what becomes of the frames with times from one on to before another, found by their positions, and where in
    /// the stream they are.
    fn part(&self, from: u64, to: Option<u64>) -> (Self, Span) {
        let within =
            |time: &Option<u64>| time.is_some_and(|time| time >= from && to.is_none_or(|to| time < to));
        let times: Vec<_> = self.times.iter().map(|time| time.filter(|_| within(time))).collect();
        let first = times.iter().position(Option::is_some);
        let last = times.iter().rposition(Option::is_some);
        // Where it has none, it is read from its last frame on.
        let begin = first.unwrap_or(times.len().saturating_sub(1));
        let position = |i: usize| self.positions.get(i).copied().map(ClockTime::from_nseconds);
        let slack = self.slack();
        let span = Span {
            // As the whole does, the first part begins where the stream does.
            from: position(begin).filter(|_| from > 0).unwrap_or_default(),
            to: last.and_then(|last| position(last + 1)),
            slack: ClockTime::from_nseconds(slack),
            seek: true,
        };
        (Self { times, by_position: Some(slack), ..self.clone() }, span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(positions: &[u64], times: &[Option<u64>]) -> Timing {
        Timing {
            times: times.to_vec(),
            positions: positions.to_vec(),
            keeps_segments: false,
            most: None,
            by_position: None,
        }
    }

    #[test]
    fn parts_are_found_by_positions() {
        let whole = timing(&[500, 540, 580, 620, 660], &[Some(0), None, Some(40), Some(80), None]);
        let placed = whole.placed().unwrap();
        assert_eq!(placed[1], Placed { position: 580, time: 40 });
        let (part, span) = whole.part(40, Some(80));
        assert_eq!(part.times, [None, None, Some(40), None, None]);
        assert_eq!((span.from.nseconds(), span.to.map(ClockTime::nseconds)), (580, Some(620)));
        assert_eq!((part.locate(589), part.locate(580), part.locate(595)), (Some(2), Some(2), None));
        let (part, span) = whole.part(40, None);
        assert_eq!(part.times, [None, None, Some(40), Some(80), None]);
        assert_eq!((span.from.nseconds(), span.to.map(ClockTime::nseconds)), (580, Some(660)));
        let (part, span) = whole.part(90, None);
        assert!(part.times.iter().all(Option::is_none));
        assert_eq!((span.from.nseconds(), span.to), (660, None));
        assert!(timing(&[500, 500], &[Some(0), Some(40)]).placed().is_err());
    }
}
