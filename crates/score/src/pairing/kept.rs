// SPDX-License-Identifier: MPL-2.0

//! A stored pairing of two files, which are examined once and scored later, entirely or in parts.

use std::sync::Arc;

use gst::ClockTime;
use serde::{Deserialize, Serialize};

use super::outcome::Pairing;
use super::retime::{Timing, Timings};
use crate::job::Job;
use crate::time_range::TimeRange;

/// A pairing of two files.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Kept {
    /// The decision.
    pub pairing: Pairing,
    /// Times for the frames of the original and of the other file; `None` if their own timestamps pair them.
    pub frames: Option<[Timing; 2]>,
}

impl Kept {
    /// Returns the pairing of the first rendition of a job.
    pub fn of(job: &Job, pairing: &Pairing) -> Self {
        let timings = job.timings.reference.as_deref();
        let both = timings.zip(job.timings.renditions.first().and_then(|timing| timing.as_deref()));
        let frames = both.map(|(reference, own)| [reference.clone(), own.clone()]);
        Self { pairing: pairing.clone(), frames }
    }

    /// Applies the pairing to a job with one rendition.
    pub fn apply(&self, job: &mut Job) {
        let Some([reference, own]) = self.frames.clone().map(|frames| frames.map(Arc::new)) else { return };
        job.timings = Timings { reference: Some(reference), renditions: vec![Some(own)] };
        job.preprocessing.time_range = None;
        for preprocessing in &mut job.rendition_preprocessing {
            (preprocessing.time_range, preprocessing.rate) = (None, None);
        }
    }

    /// Applies the pairing to the frames from one time to another, and limits reading to these.
    pub fn apply_part(&self, job: &mut Job, from: u64, to: Option<u64>) {
        let Some(frames) = &self.frames else { return };
        let [(reference, time_range), (own, own_span)] =
            frames.each_ref().map(|timing| timing.part(from, to));
        job.timings = Timings { reference: Some(reference.into()), renditions: vec![Some(own.into())] };
        job.preprocessing.time_range = Some(time_range);
        job.rendition_preprocessing
            .iter_mut()
            .for_each(|preprocessing| preprocessing.time_range = Some(own_span));
    }
}

/// A frame to score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Position in the stream, in nanoseconds.
    pub position: u64,
    /// Its new time.
    pub time: u64,
}

impl Timing {
    /// Returns the frames to score in order of time, or the reason why they cannot be found by position.
    pub fn placed(&self) -> Result<Vec<Placed>, String> {
        if self.positions.windows(2).any(|pair| pair[1] <= pair[0]) {
            return Err("its timestamps are ambiguous".into());
        }
        let all = self.positions.iter().zip(&self.times);
        let placed: Vec<_> =
            all.filter_map(|(position, time)| Some(Placed { position: *position, time: (*time)? })).collect();
        match placed.windows(2).all(|pair| pair[0].time < pair[1].time) {
            true => Ok(placed),
            false => Err("its frames are not in order".into()),
        }
    }

    /// Finds frames by their positions, if these are unambiguous.
    pub fn found_by_position(mut self) -> Self {
        self.by_position = self.placed().is_ok().then(|| self.slack());
        self
    }

    /// Merges with another timing of the same reference: keeps the frames that either keeps.
    pub fn or(&self, other: &Self) -> Self {
        let times = self.times.iter().zip(&other.times).map(|(own, other)| own.or(*other)).collect();
        Self { times, ..self.clone() }
    }

    /// Counts the frames whose new times match.
    pub fn count(&self, of: impl Fn(u64) -> bool) -> u64 {
        self.times.iter().flatten().filter(|time| of(**time)).count() as u64
    }

    /// Returns less than half of the smallest distance of two frames.
    pub fn slack(&self) -> u64 {
        let distances = self.positions.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        distances.min().unwrap_or(1_000_000) / 4
    }

    /// Returns the timing of the frames from one time to another, found by position, and their range in the stream.
    fn part(&self, from: u64, to: Option<u64>) -> (Self, TimeRange) {
        let within =
            |time: &Option<u64>| time.is_some_and(|time| time >= from && to.is_none_or(|to| time < to));
        let times: Vec<_> = self.times.iter().map(|time| time.filter(|_| within(time))).collect();
        let first = times.iter().position(Option::is_some);
        let last = times.iter().rposition(Option::is_some);
        // Without any frame, reading begins at its last frame.
        let begin = first.unwrap_or(times.len().saturating_sub(1));
        let position = |i: usize| self.positions.get(i).copied().map(ClockTime::from_nseconds);
        let slack = self.slack();
        let time_range = TimeRange {
            // As in a whole run, the first part begins at the beginning of the stream.
            from: position(begin).filter(|_| from > 0).unwrap_or_default(),
            to: last.and_then(|last| position(last + 1)),
            slack: ClockTime::from_nseconds(slack),
            seek: true,
        };
        (Self { times, by_position: Some(slack), ..self.clone() }, time_range)
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
        let (part, time_range) = whole.part(40, Some(80));
        assert_eq!(part.times, [None, None, Some(40), None, None]);
        assert_eq!((time_range.from.nseconds(), time_range.to.map(ClockTime::nseconds)), (580, Some(620)));
        assert_eq!((part.locate(589), part.locate(580), part.locate(595)), (Some(2), Some(2), None));
        let (part, time_range) = whole.part(40, None);
        assert_eq!(part.times, [None, None, Some(40), Some(80), None]);
        assert_eq!((time_range.from.nseconds(), time_range.to.map(ClockTime::nseconds)), (580, Some(660)));
        let (part, time_range) = whole.part(90, None);
        assert!(part.times.iter().all(Option::is_none));
        assert_eq!((time_range.from.nseconds(), time_range.to), (660, None));
        assert!(timing(&[500, 500], &[Some(0), Some(40)]).placed().is_err());
    }
}
