// SPDX-License-Identifier: MPL-2.0

//! The checks: memory does not grow, and every frame is scored or reported.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gst::ClockTime;
use gsthipvmaf::event::{Event, EventMessage, EventState};
use gsthipvmaf::message::FrameMessage;

use crate::number::LOWEST_PSNR;

/// Samples of allocated memory at even distances.
///
/// The allocator keeps freed memory, so the resident size shows nothing. The allocated size shows a leak in its minima: a
/// leak raises them, and a full queue does not. On a busy machine queues may stay full, so a test with queues takes its
/// samples while no frame arrives.
#[derive(Default)]
pub struct Memory(Vec<f64>);

/// The allowed growth from the third quarter of the samples to the last, in MiB.
const GROWTH: f64 = 1.0;
/// The least number of samples for a result: the minimum of fewer than three in a quarter is noise.
const SAMPLES: usize = 4 * 3;

impl Memory {
    /// Takes a sample in MiB.
    pub fn sample(&mut self) {
        // SAFETY: mallinfo2 only reads.
        let info = unsafe { libc::mallinfo2() };
        self.0.push((info.uordblks + info.hblkhd) as f64 / 1048576.0);
    }

    /// Returns the minima of the third and of the last quarter, in which all permanent memory is allocated.
    fn late(&self) -> (f64, f64) {
        let least = |samples: &[f64]| samples.iter().copied().reduce(f64::min).unwrap_or_default();
        let quarter = self.0.len() / 4;
        let (before, last) = self.0.split_at(3 * quarter);
        (least(&before[2 * quarter..]), least(last))
    }

    /// Returns the figures to print: the growth where there are enough samples.
    pub fn summary(&self) -> String {
        let (before, last) = self.late();
        if self.0.len() < SAMPLES {
            format!("memory {last:.1} MiB")
        } else {
            format!("memory {before:.1} MiB, at the end {last:.1} MiB")
        }
    }

    /// Returns a fault if memory still grows. Needs enough samples.
    pub fn fault(&self, part: &str) -> Option<String> {
        let (before, last) = self.late();
        (self.0.len() >= SAMPLES && last > before + GROWTH)
            .then(|| format!("{part}: memory has grown from {before:.1} to {last:.1} MiB"))
    }
}

/// A reference frame that was seen.
struct Frame {
    number: u64,
    scored: bool,
}

/// A rendition's pending frames, by running time, and the counts of the others.
#[derive(Default)]
pub struct Rendition {
    pub label: String,
    reference: BTreeMap<ClockTime, Frame>,
    distorted: BTreeMap<ClockTime, u64>,
    /// Frames that were lost on purpose.
    injected: BTreeSet<ClockTime>,
    /// Frames without a score that no event has reported yet.
    unreported: BTreeSet<ClockTime>,
    /// Gaps that events have reported.
    reported: VecDeque<Gap>,
    failures: VecDeque<Failure>,
    pub faults: Vec<String>,
    pub counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub reference: u64,
    pub arrived: u64,
    pub scored: u64,
    pub injected: u64,
    /// The number of frames in gap events.
    pub reported: u64,
    pub gaps: u64,
    /// Frames without a score while the stream could not be scored. If the packets with a new size are lost, the decoder
    /// goes on with the old one.
    pub failed: u64,
}

/// A part of the stream that cannot be scored, after one reference frame and up to another.
struct Failure {
    after: Option<ClockTime>,
    until: Option<ClockTime>,
}

impl Failure {
    fn holds(&self, at: ClockTime) -> bool {
        self.after.is_none_or(|after| after < at) && self.until.is_none_or(|until| at <= until)
    }
}

/// The frames of a gap event, from the first to the last. All of them are missing in a single gap, some of them if the event
/// reports several gaps.
struct Gap {
    first: ClockTime,
    last: ClockTime,
    single: bool,
}

impl Gap {
    fn holds(&self, at: ClockTime) -> bool {
        (self.first..=self.last).contains(&at)
    }
}

/// The time for which frames are remembered.
const MEMORY: ClockTime = ClockTime::from_seconds(20);
/// The number of faults that are listed.
const FAULTS: usize = 10;

impl Rendition {
    pub fn new(label: String) -> Self {
        Self { label, ..Self::default() }
    }

    fn fault(&mut self, text: String) {
        if self.faults.len() < FAULTS {
            self.faults.push(format!("{}: {text}", self.label));
        }
    }

    /// Records a reference frame at the element.
    pub fn reference(&mut self, at: ClockTime, number: Option<u64>) {
        let Some(number) = number else {
            return self.fault(format!("the reference frame at {at} has no number"));
        };
        self.counts.reference += 1;
        self.reference.insert(at, Frame { number, scored: false });
        let horizon = at.saturating_sub(MEMORY);
        while let Some(entry) = self.reference.first_entry()
            && *entry.key() < horizon
        {
            let (at, frame) = entry.remove_entry();
            self.settle(at, &frame);
        }
        self.distorted = self.distorted.split_off(&horizon);
        self.injected = self.injected.split_off(&horizon);
        while self.reported.front().is_some_and(|gap| gap.last < horizon) {
            self.reported.pop_front();
        }
        let is_over = |failure: &Failure| failure.until.is_some_and(|until| until < horizon);
        while self.failures.front().is_some_and(is_over) {
            self.failures.pop_front();
        }
    }

    fn settle(&mut self, at: ClockTime, frame: &Frame) {
        let reported = self.reported.iter().any(|gap| gap.holds(at));
        let alone = self.reported.iter().any(|gap| gap.single && gap.holds(at));
        match (frame.scored, reported) {
            (true, true) if alone => {
                self.fault(format!("frame {} was scored and reported as missing", frame.number))
            }
            (false, false) if self.failures.iter().any(|failure| failure.holds(at)) => {
                self.counts.failed += 1
            }
            (false, false) => {
                self.unreported.insert(at);
            }
            (true, _) | (false, true) => {}
        }
        if frame.scored && self.injected.contains(&at) {
            self.fault(format!("frame {} was scored and never sent", frame.number));
        }
    }

    /// Records a distorted frame at the element.
    pub fn distorted(&mut self, at: ClockTime, number: Option<u64>) {
        match number {
            Some(number) => {
                self.counts.arrived += 1;
                self.distorted.insert(at, number);
            }
            None => self.fault(format!("the distorted frame at {at} has no number")),
        }
    }

    /// Records that the packets of this frame were lost.
    pub fn lose(&mut self, at: ClockTime) {
        if self.injected.insert(at) {
            self.counts.injected += 1;
        }
    }

    /// Checks a score of the element.
    pub fn scored(&mut self, message: &FrameMessage) {
        self.counts.scored += 1;
        let frame = message.running_time.and_then(|at| self.reference.get_mut(&at));
        let Some(frame) = frame else { return self.fault(format!("unknown frame in {message:?}")) };
        let twice = std::mem::replace(&mut frame.scored, true);
        let number = frame.number;
        if twice {
            self.fault(format!("frame {number} was scored twice"));
        }
        let partner = message.dist_running_time.and_then(|at| self.distorted.get(&at)).copied();
        if partner != Some(number) {
            self.fault(format!("frame {number} was compared with {partner:?}"));
        }
        // A low PSNR shows a wrong pair even if the numbers in the message are right.
        if let Some(psnr) = message.psnr_y.filter(|psnr| *psnr < LOWEST_PSNR) {
            self.fault(format!("frame {number} was compared with another, PSNR is {psnr:.1} dB"));
        }
    }

    /// Checks an event of the element.
    pub fn event(&mut self, event: &EventMessage) {
        match (event.event, event.state) {
            (Event::Unpaired, _) => {}
            (Event::Failed, EventState::Raised) => {
                return self.failures.push_back(Failure { after: event.running_time, until: None });
            }
            (Event::Failed, EventState::Cleared) => {
                if let Some(failure) = self.failures.back_mut() {
                    failure.until = event.running_time;
                }
                return;
            }
            _ => return,
        }
        let (Some(first), Some(last)) = (event.since, event.running_time) else { return };
        let times = event.times.unwrap_or(1);
        self.counts.gaps += times;
        self.counts.reported += event.count.unwrap_or(0);
        let gap = Gap { first, last, single: times == 1 };
        self.unreported.retain(|at| !gap.holds(*at));
        self.reported.push_back(gap);
    }

    /// Checks the end. `unpaired` and `unmatched` are the element's counts.
    pub fn end(&mut self, unpaired: u64, unmatched: u64) {
        for (at, frame) in std::mem::take(&mut self.reference) {
            self.settle(at, &frame);
        }
        let Counts { reference, arrived, scored, reported, failed, .. } = self.counts;
        if let Some(first) = self.unreported.first() {
            self.fault(format!(
                "{} frames were lost and not reported, the first at {first}",
                self.unreported.len()
            ));
        }
        if reported != unpaired || scored + unpaired + failed != reference {
            self.fault(format!(
                "of {reference} frames {scored} were scored and {failed} could not be; {unpaired} were counted as missing, \
                 {reported} reported"
            ));
        }
        let dropped = arrived.checked_sub(scored + unmatched);
        if dropped.is_none_or(|dropped| dropped > failed) {
            self.fault(format!(
                "of {arrived} distorted frames {scored} were scored and {failed} at most could not be, {unmatched} found no partner"
            ));
        }
    }
}
