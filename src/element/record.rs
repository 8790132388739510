// SPDX-License-Identifier: MPL-2.0

//! The counts and scores of one distorted stream: of the open section, since the last reset, and since the start.

use std::time::SystemTime;

use engine::model::pool::Pool;
use engine::session::StreamTotals;
use gst::ClockTime;
use watch::counts::Counts;
use watch::summary::Summary;

use super::downstream::Stamp;
use super::settings::PoolMethod;
use super::time::StreamTime;

/// The open section.
#[derive(Default)]
struct Section {
    counts: Counts,
    /// Scores that are followed.
    summary: Summary,
    totals: StreamTotals,
    /// Values of the scored frames, a pool for each column of the plan.
    pools: Vec<Pool>,
    /// Duration of all scored frames together.
    duration: Option<StreamTime>,
    /// Stamp of the last reference frame.
    last: Option<Stamp>,
    /// Windows have ended in it.
    has_windows: bool,
}

/// A section that has ended.
pub struct Ended {
    /// The time at which its last frame ends.
    pub timestamp: Option<ClockTime>,
    pub stream_time: Option<ClockTime>,
    pub running_time: ClockTime,
    /// Duration of all scored frames together.
    pub duration: ClockTime,
    /// The pooled value of each column of the plan.
    pub values: Vec<f64>,
    pub counts: Counts,
    /// Scores that are followed.
    pub summary: Summary,
    pub totals: StreamTotals,
}

/// A frame whose score counts.
pub struct ScoredFrame<'a> {
    pub stamp: &'a Stamp,
    /// A value for each column of the plan.
    pub values: &'a [f64],
    /// The score that is followed.
    pub score: f64,
    pub totals: &'a StreamTotals,
    /// The distorted frame was used before.
    pub repeated: bool,
}

/// The counts and scores of one distorted stream.
#[derive(Default)]
pub struct Record {
    /// Counts caps changes, flushes and resets.
    section_number: u32,
    section: Section,
    /// Counts since the start or the last reset, of sections that have ended.
    counts: Counts,
    /// Scored frames since then that were compared with a distorted frame used before.
    scored_again: u64,
    /// Scores that are followed, since then.
    summary: Summary,
    /// Totals of scored pairs since then.
    totals: StreamTotals,
    last_score: Option<f64>,
    /// When the last score was made, in seconds since 1970.
    last_score_time: Option<f64>,
    /// Counts since the start, resets or not, of sections that have ended.
    run: Counts,
    /// Totals of all pairs of the results file.
    results_totals: StreamTotals,
}

impl Record {
    /// Takes the next reference frame of the section.
    pub fn stamped(&mut self, stamp: &Stamp) {
        self.section.last = Some(stamp.clone());
    }

    /// Counts frames by what became of them.
    pub fn count(&mut self, counts: Counts) {
        self.section.counts += counts;
    }

    /// Takes what a pair adds to the figures of all pairs of the results, whether or not it is scored.
    pub fn add_totals(&mut self, totals: &StreamTotals) {
        self.results_totals += totals;
    }

    /// Takes the values of a frame.
    pub fn scored(&mut self, frame: &ScoredFrame) {
        let ScoredFrame { stamp, values, score, totals, repeated } = *frame;
        let section = &mut self.section;
        section.counts.scored += 1;
        self.scored_again += u64::from(repeated);
        section.duration = match (section.duration, stamp.duration) {
            (Some(sum), Some(duration)) => Some(sum.saturating_add(duration)),
            (sum, duration) => sum.or(duration),
        };
        section.pools.resize(values.len(), Pool::default());
        for (pool, value) in section.pools.iter_mut().zip(values) {
            pool.push(*value);
        }
        section.summary.push(score);
        section.totals += totals;
        self.summary.push(score);
        self.totals += totals;
        self.last_score = Some(score);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.last_score_time = now.ok().map(|time| time.as_secs_f64());
    }

    /// Notes that a window has ended in the section.
    pub fn has_window(&mut self) {
        self.section.has_windows = true;
    }

    /// Returns the figures of the open section; `None` without frames. Call [`Record::begin_section`] next.
    pub fn end_section(&self, method: PoolMethod) -> Option<Ended> {
        let section = &self.section;
        let last = section.last.as_ref()?;
        let end = |time: Option<StreamTime>| {
            let time = time?;
            Some(last.duration.map_or(time, |duration| time.saturating_add(duration)).0)
        };
        Some(Ended {
            timestamp: end(last.timestamp),
            stream_time: end(last.stream_time),
            running_time: last.running_time.saturating_add(last.lasts.unwrap_or(ClockTime::ZERO)),
            duration: section.duration.map_or(ClockTime::ZERO, |duration| duration.0),
            values: section.pools.iter().map(|pool| method.of(pool)).collect(),
            counts: section.counts,
            summary: section.summary.clone(),
            totals: section.totals.clone(),
        })
    }

    /// Begins the next section. It has a number of its own if the last one had frames, or windows: frames after a flush may
    /// be earlier, and windows go back in another section only.
    pub fn begin_section(&mut self) {
        let section = std::mem::take(&mut self.section);
        self.counts += section.counts;
        self.run += section.counts;
        self.section_number += u32::from(section.last.is_some() || section.has_windows);
    }

    /// Forgets what was counted and scored since the last reset.
    pub fn reset(&mut self) {
        self.counts = Counts::default();
        self.scored_again = 0;
        self.summary = Summary::default();
        self.totals = StreamTotals::default();
        self.last_score = None;
    }

    /// Returns the number of the open section.
    pub fn section_number(&self) -> u32 {
        self.section_number
    }

    /// Returns the number of sections that have frames.
    pub fn sections(&self) -> u64 {
        u64::from(self.section_number) + u64::from(self.section.last.is_some())
    }

    /// Returns the counts since the start or the last reset, the open section included.
    pub fn counts(&self) -> Counts {
        let mut counts = self.counts;
        counts += self.section.counts;
        counts
    }

    /// Returns the number of scored frames among [`Record::counts`] that were compared with a distorted frame used before.
    pub fn scored_again(&self) -> u64 {
        self.scored_again
    }

    /// Returns the counts since the start, resets or not: those of the results file.
    pub fn run_counts(&self) -> Counts {
        let mut counts = self.run;
        counts += self.section.counts;
        counts
    }

    /// Returns the scores since the start or the last reset.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Returns the totals of scored pairs since the start or the last reset.
    pub fn totals(&self) -> &StreamTotals {
        &self.totals
    }

    /// Returns the last score since the start or the last reset.
    pub fn last_score(&self) -> Option<f64> {
        self.last_score
    }

    /// Returns when the last score was made, in seconds since 1970.
    pub fn last_score_time(&self) -> Option<f64> {
        self.last_score_time
    }

    /// Returns the totals of all pairs of the results file.
    pub fn results_totals(&self) -> &StreamTotals {
        &self.results_totals
    }
}
