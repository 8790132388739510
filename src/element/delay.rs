// SPDX-License-Identifier: MPL-2.0

//! The delay line: reference frames on their way through the element, waiting for their scores.

use std::collections::VecDeque;
use std::time::Instant;

use gst::ClockTime;

use super::stream::Action;

/// What identifies a reference frame in messages and metas.
#[derive(Clone, Debug)]
pub struct Stamp {
    /// Number of the reference frame since the element was started.
    pub index: u64,
    pub timestamp: Option<ClockTime>,
    pub stream_time: Option<ClockTime>,
    pub running_time: ClockTime,
    pub duration: Option<ClockTime>,
}

/// What became of a frame.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Submitted at this time, waiting for its score.
    Pending {
        since: Instant,
        dist_running_time: ClockTime,
    },
    Unpaired,
    Skipped,
    /// A value for each column of the plan.
    Scored(Vec<f64>),
}

/// A reference frame and what became of it.
pub struct Delayed {
    pub stamp: Stamp,
    pub outcome: Outcome,
    /// `None` once it has left.
    pub buffer: Option<gst::Buffer>,
    /// What to do downstream before the buffer leaves.
    pub announce: Vec<Action>,
}

/// Reference frames in stream order.
#[derive(Default)]
pub struct DelayLine {
    frames: VecDeque<Delayed>,
}

impl DelayLine {
    pub fn push(&mut self, frame: Delayed) {
        self.frames.push_back(frame);
    }

    /// The oldest frame that waits for its score; scores arrive in stream order.
    pub fn oldest_pending(&mut self) -> Option<&mut Delayed> {
        self.frames.iter_mut().find(|frame| matches!(frame.outcome, Outcome::Pending { .. }))
    }

    /// Takes the next frame that can leave: its outcome is known, it is due at `deadline`, or buffers are
    /// not held back (`hold` is false). A frame that leaves while pending stays in line for its score.
    pub fn pop(&mut self, hold: bool, deadline: Option<ClockTime>) -> Option<Delayed> {
        while self
            .frames
            .front()
            .is_some_and(|f| f.buffer.is_none() && !matches!(f.outcome, Outcome::Pending { .. }))
        {
            self.frames.pop_front();
        }
        let next = self.frames.iter_mut().find(|frame| frame.buffer.is_some())?;
        let pending = matches!(next.outcome, Outcome::Pending { .. });
        let due = deadline.is_some_and(|deadline| next.stamp.running_time <= deadline);
        if pending && hold && !due {
            return None;
        }
        Some(Delayed {
            stamp: next.stamp.clone(),
            outcome: next.outcome.clone(),
            buffer: next.buffer.take(),
            announce: std::mem::take(&mut next.announce),
        })
    }

    /// Running time of the oldest frame that has not left.
    pub fn next_time(&self) -> Option<ClockTime> {
        self.frames.iter().find(|frame| frame.buffer.is_some()).map(|frame| frame.stamp.running_time)
    }

    /// Frames that wait for their score.
    pub fn pending(&self) -> usize {
        self.frames.iter().filter(|frame| matches!(frame.outcome, Outcome::Pending { .. })).count()
    }

    /// Gives up the buffers; frames that wait for their score stay in line for it.
    pub fn drop_buffers(&mut self) {
        for frame in &mut self.frames {
            frame.buffer = None;
        }
    }
}
