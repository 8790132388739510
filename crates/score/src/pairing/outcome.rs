// SPDX-License-Identifier: MPL-2.0

//! The pairing of a rendition with the original, as users and results are to know it.

use serde::{Deserialize, Serialize};

use super::decide::{Method, Plan};
use crate::check::Finding;
use crate::probe::Video;
use crate::steps::Step;

/// Number of frames listed in a message.
const NAMED: usize = 12;

/// Pairing of a rendition with the original.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Pairing {
    /// Method.
    pub method: Method,
    /// Delay of its frames in seconds.
    pub offset: f64,
    /// Confidence from the pictures, 0 to 1.
    pub confidence: f64,
    /// Frames of the original that it lacks.
    pub unpaired: Vec<usize>,
    /// Frames of the original that are omitted because it has a lower frame rate.
    pub decimated: Vec<usize>,
    /// Frames that repeat the one before and are omitted.
    pub repeated: Vec<usize>,
    /// Other frames that the original lacks.
    pub unmatched: Vec<usize>,
    /// Missing frames are replaced by the one before.
    pub repeats: bool,
    /// Number of frames of the original, and of the rendition, that are not sent to the element.
    #[serde(skip)]
    pub left_out: [u64; 2],
}

impl Pairing {
    /// Returns a pairing by equal times and numbers.
    pub(super) fn of_times(confidence: f64) -> Self {
        Self {
            method: Method::Number,
            offset: 0.0,
            confidence,
            unpaired: vec![],
            decimated: vec![],
            repeated: vec![],
            unmatched: vec![],
            repeats: false,
            left_out: [0, 0],
        }
    }

    /// Returns the pairing of a plan.
    pub(super) fn of(plan: &Plan, count: usize, part: std::ops::Range<usize>, repeats: bool) -> Self {
        let lost = plan.unpaired().filter(|i| part.contains(i)).map(|i| i - part.start).collect();
        let (decimated, unpaired) = if plan.decimated && !repeats { (lost, vec![]) } else { (vec![], lost) };
        // Distorted frames outside of the range are not reported.
        let before = plan.pairs[..part.start].iter().rev().flatten().next().map_or(0, |j| j + 1);
        let after = plan.pairs[part.end..].iter().flatten().next().copied().unwrap_or(count);
        let within =
            |frames: &[usize]| frames.iter().copied().filter(|j| (before..after).contains(j)).collect();
        Self {
            method: plan.method,
            offset: plan.offset as f64 / 1e9,
            confidence: (plan.confidence * 1e4).round() / 1e4,
            unpaired,
            decimated,
            repeated: within(&plan.repeated),
            unmatched: within(&plan.extra),
            repeats,
            left_out: [0, 0],
        }
    }

    /// Returns the finding about a rendition, if there is any.
    pub fn finding(&self, video: &Video) -> Option<Finding> {
        let mut odd = vec![];
        let mut add = |frames: &[usize], what: &str| {
            if !frames.is_empty() {
                odd.push(format!("{} {what} ({})", count(frames.len()), named(frames)));
            }
        };
        let lacks = if self.repeats {
            "of the original have no partner in it and are compared with the one before"
        } else {
            "of the original have no partner in it"
        };
        add(&self.unpaired, lacks);
        add(&self.decimated, "of the original are left out, as it has fewer frames a second");
        add(&self.repeated, "of it repeat others and are left out");
        add(&self.unmatched, "of it have no partner in the original and are left out");
        if self.method == Method::Time && self.offset.abs() >= 0.000_5 {
            let when = if self.offset > 0.0 { "late" } else { "early" };
            odd.insert(0, format!("it is {when} by {:.3} s", self.offset.abs()));
        }
        let text = odd.join("; ");
        (!odd.is_empty()).then(|| Finding { video: video.input.clone(), kind: "pairing", text })
    }

    /// Returns the step for a rendition.
    pub fn step(&self, video: &Video) -> Step {
        let by = match self.method {
            Method::Number => "number",
            Method::Time => "time",
            Method::Picture => "picture",
        };
        let text =
            format!("its frames are paired with the original by {by} (confidence {:.2})", self.confidence);
        Step { video: video.input.clone(), kind: "pairing", text }
    }
}

fn count(frames: usize) -> String {
    if frames == 1 { "1 frame".into() } else { format!("{frames} frames") }
}

/// Lists the first frames, with ranges for consecutive ones.
fn named(frames: &[usize]) -> String {
    let mut stretches: Vec<(usize, usize)> = vec![];
    for frame in frames {
        match stretches.last_mut() {
            Some((_, last)) if *last + 1 == *frame => *last = *frame,
            _ => stretches.push((*frame, *frame)),
        }
    }
    let text = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    let more = if stretches.len() > NAMED { ", …" } else { "" };
    stretches.iter().take(NAMED).map(text).collect::<Vec<_>>().join(", ") + more
}
