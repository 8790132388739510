// SPDX-License-Identifier: MPL-2.0

//! The delay line: reference frames on their way through the element, waiting for their scores.

use std::collections::VecDeque;
use std::time::Instant;

use engine::metrics::damage::DamageSums;
use gst::ClockTime;
use gst_video::VideoInfo;

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

/// What became of a frame and its counterpart in one rendition.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Submitted at this time, waiting for its score.
    Pending {
        since: Instant,
        dist_running_time: ClockTime,
        /// The distorted frame was used before.
        repeated: bool,
    },
    Unpaired,
    Skipped,
    /// A value for each column of the plan.
    Scored(Vec<f64>),
}

impl Outcome {
    fn is_pending(&self) -> bool {
        matches!(self, Self::Pending { .. })
    }
}

/// What is known of a frame's damage.
#[derive(Debug, Default)]
pub enum Damage {
    /// Nothing will be.
    #[default]
    None,
    /// The frame was submitted.
    Pending,
    Known(DamageSums),
}

impl Damage {
    fn is_pending(&self) -> bool {
        matches!(self, Self::Pending)
    }
}

/// What a frame is painted with that leaves as a heat map.
#[derive(Debug)]
pub struct Heat {
    /// Of the frame.
    pub info: VideoInfo,
    pub damage: Damage,
}

/// A reference frame and what became of it.
pub struct Delayed {
    pub stamp: Stamp,
    /// By number of the rendition.
    pub outcomes: Vec<(u64, Outcome)>,
    /// `None` once it has left.
    pub buffer: Option<gst::Buffer>,
    /// Only for heat maps, until the frame leaves.
    pub heat: Option<Heat>,
    /// What to do downstream before the buffer leaves.
    pub announce: Vec<Action>,
}

impl Delayed {
    fn is_pending(&self) -> bool {
        self.outcomes.iter().any(|(_, outcome)| outcome.is_pending())
    }

    fn is_damage_pending(&self) -> bool {
        self.heat.as_ref().is_some_and(|heat| heat.damage.is_pending())
    }
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

    /// The stamp of the oldest frame that waits for its score of a rendition, and what is known; scores arrive in
    /// stream order.
    pub fn oldest_pending(&mut self, rendition: u64) -> Option<(&Stamp, &mut Outcome)> {
        self.frames.iter_mut().find_map(|Delayed { stamp, outcomes, .. }| {
            let (_, outcome) =
                outcomes.iter_mut().find(|(n, outcome)| *n == rendition && outcome.is_pending())?;
            Some((&*stamp, outcome))
        })
    }

    /// Takes what is known of the damage of the oldest frame that waits for it; maps arrive in stream order. A frame
    /// that has left without has no use for it any more.
    pub fn set_damage(&mut self, damage: Option<DamageSums>) {
        let mut heats = self.frames.iter_mut().filter_map(|frame| frame.heat.as_mut());
        if let Some(heat) = heats.find(|heat| heat.damage.is_pending()) {
            heat.damage = damage.map_or(Damage::None, Damage::Known);
        }
    }

    /// Takes the next frame that can leave: its outcome is known, it is due at `deadline`, or buffers are
    /// not held back (`hold` is false) but for what they are painted with. A frame that leaves while pending stays
    /// in line for its score.
    pub fn pop(&mut self, hold: bool, deadline: Option<ClockTime>) -> Option<Delayed> {
        while self
            .frames
            .front()
            .is_some_and(|frame| frame.buffer.is_none() && !frame.is_pending() && !frame.is_damage_pending())
        {
            self.frames.pop_front();
        }
        let next = self.frames.iter_mut().find(|frame| frame.buffer.is_some())?;
        let due = deadline.is_some_and(|deadline| next.stamp.running_time <= deadline);
        if (hold && next.is_pending() || next.is_damage_pending()) && !due {
            return None;
        }
        let heat = next.heat.as_mut().map(|heat| Heat {
            info: heat.info.clone(),
            damage: match &heat.damage {
                Damage::Pending => Damage::None,
                Damage::None | Damage::Known(_) => std::mem::take(&mut heat.damage),
            },
        });
        Some(Delayed {
            stamp: next.stamp.clone(),
            outcomes: next.outcomes.clone(),
            buffer: next.buffer.take(),
            heat,
            announce: std::mem::take(&mut next.announce),
        })
    }

    /// Running time of the oldest frame that has not left.
    pub fn next_time(&self) -> Option<ClockTime> {
        self.frames.iter().find(|frame| frame.buffer.is_some()).map(|frame| frame.stamp.running_time)
    }

    /// Frames that wait for a score.
    pub fn pending(&self) -> usize {
        self.frames.iter().filter(|frame| frame.is_pending()).count()
    }

    /// Gives up the buffers; frames that wait for their score stay in line for it.
    pub fn drop_buffers(&mut self) {
        for frame in &mut self.frames {
            frame.buffer = None;
        }
    }

    /// Gives up the scores of a rendition.
    pub fn forget(&mut self, rendition: u64) {
        for frame in &mut self.frames {
            frame.outcomes.retain(|(n, _)| *n != rendition);
        }
    }
}
