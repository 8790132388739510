// SPDX-License-Identifier: MPL-2.0

//! Audio of the streams of a channel: alarms and curves.

use std::time::{Duration, Instant};

use super::Pipeline;
use crate::audio::{Alarms, Limits};
use crate::settings::Channel;
use crate::state::Curve;

/// Interval of the values of a curve.
const INTERVAL: Duration = Duration::from_secs(1);

/// State of the audio of a channel.
pub(super) struct Sound {
    /// Of the reference, then those of the renditions.
    alarms: Vec<Alarms>,
    limits: Limits,
    /// Time of the last look.
    seen: Instant,
    /// Time of the last values of the curves.
    valued: Instant,
}

impl Sound {
    pub(super) fn new(channel: &Channel) -> Self {
        let alarms = (0..=channel.renditions.len()).map(|_| Alarms::default()).collect();
        Self { alarms, limits: Limits::of(channel), seen: Instant::now(), valued: Instant::now() }
    }

    pub(super) fn adapt(&mut self, channel: &Channel) {
        self.limits = Limits::of(channel);
    }
}

impl Pipeline {
    /// Raises and clears alarms about audio, and notes its loudness.
    pub(super) fn listen(&mut self) {
        let now = Instant::now();
        let sound = &mut self.sound;
        let seconds = now.saturating_duration_since(std::mem::replace(&mut sound.seen, now)).as_secs_f64();
        let is_due = now.saturating_duration_since(sound.valued) >= INTERVAL;
        if is_due {
            sound.valued = now;
        }
        for (i, branch) in self.branches.iter_mut().enumerate() {
            let heard = branch.heard();
            let mut state = self.state.lock();
            if let Some(stream) = state.streams_mut().nth(i) {
                stream.audio = heard.as_ref().map(|heard| heard.present);
                stream.loudness = heard.as_ref().and_then(|heard| heard.short);
            }
            let Some(heard) = heard else { continue };
            if let Some(loudness) = heard.short.filter(|_| is_due) {
                state.value(i, Curve::Loudness, loudness);
            }
            let Some((reference, renditions)) = sound.alarms.split_first_mut() else { return };
            let changes = match i.checked_sub(1).and_then(|i| renditions.get_mut(i)) {
                Some(rendition) => rendition.update(&heard, Some(reference), seconds, &sound.limits),
                None => reference.update(&heard, None, seconds, &sound.limits),
            };
            changes.into_iter().for_each(|change| state.alarm(i, change.kind, change.raised, change.text));
        }
    }
}
