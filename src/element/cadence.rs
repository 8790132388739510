// SPDX-License-Identifier: MPL-2.0

//! The distance of a stream's frames, from its caps and from its timestamps.
//!
//! RTP, RTSP and WebRTC have no frame rate in their caps, decoders announce twice the rate of some files, and screen
//! captures send a frame only when something changes. Pairing, waiting and the detection of missing frames depend on the
//! distance of frames, so it is taken from the timestamps wherever they disagree with the caps.

use std::collections::VecDeque;

use gst::ClockTime;

/// The number of distances that are remembered.
const REMEMBERED: usize = 24;
/// From how many distances on they outweigh the caps.
const ENOUGH: usize = 4;

/// The distances of the frames of one stream, in running time.
#[derive(Debug, Default)]
pub struct Cadence {
    /// The constant distance that the caps announce.
    announced: Option<ClockTime>,
    /// The caps announce a rate that varies.
    varies: bool,
    last: Option<ClockTime>,
    /// The last distances, oldest first, in nanoseconds.
    distances: VecDeque<u64>,
}

impl Cadence {
    /// Takes what the caps announce: the distance of frames at a constant rate, and whether the rate varies.
    pub fn announce(&mut self, constant: Option<ClockTime>, varies: bool) {
        if (self.announced, self.varies) != (constant, varies) {
            *self = Self { announced: constant, varies, last: self.last, ..Self::default() };
        }
    }

    /// Takes the running time of the next frame.
    pub fn push(&mut self, at: ClockTime) {
        let distance = self.last.replace(at).and_then(|last| at.checked_sub(last));
        if let Some(distance) = distance.filter(|distance| !distance.is_zero()) {
            self.distances.push_back(distance.nseconds());
            if self.distances.len() > REMEMBERED {
                self.distances.pop_front();
            }
        }
    }

    /// The frames to come have nothing to do with those before.
    pub fn restart(&mut self) {
        *self = Self { announced: self.announced, varies: self.varies, ..Self::default() };
    }

    /// Returns the distance that this share of the remembered ones does not exceed.
    fn quantile(&self, share: f64) -> Option<ClockTime> {
        let mut sorted: Vec<_> = self.distances.iter().copied().collect();
        sorted.sort_unstable();
        let place = (sorted.len().checked_sub(1)? as f64 * share) as usize;
        sorted.get(place).copied().map(ClockTime::from_nseconds)
    }

    /// Returns the distance that most frames have: what the caps announce, unless the timestamps show another one.
    pub fn typical(&self) -> Option<ClockTime> {
        let seen = self.quantile(0.5);
        let disagree =
            |announced: ClockTime, seen: ClockTime| self.distances.len() >= ENOUGH && !alike(announced, seen);
        match (self.announced, seen) {
            (Some(announced), Some(seen)) if disagree(announced, seen) => Some(seen),
            (announced, seen) => announced.or(seen),
        }
    }

    /// Returns a distance that frames are hardly ever closer than, by which the frames of a stream of varying rate can be
    /// distinguished.
    pub fn close(&self) -> Option<ClockTime> {
        let near = self.quantile(0.25);
        match (self.announced, near) {
            // Timestamps that jitter around what the caps announce do not narrow it.
            (Some(announced), _) if self.typical() == Some(announced) => Some(announced),
            (Some(announced), near) => Some(near.map_or(announced, |near| near.min(announced))),
            (None, near) => near,
        }
    }

    /// Returns for how long a stream may have no frame that has frames at distances like those so far; `None` as long as
    /// nothing is known of them.
    pub fn longest_pause(&self) -> Option<ClockTime> {
        let longest = self.distances.iter().max().copied().map(ClockTime::from_nseconds);
        let typical = self.typical()?;
        let regular = longest.is_none_or(|longest| longest <= typical.saturating_mul(2));
        Some(if regular { typical } else { longest.unwrap_or(typical).saturating_mul(2) })
    }

    /// Returns true if the stream announces that its rate varies, so that a pause means nothing.
    pub fn varies(&self) -> bool {
        self.varies
    }

    /// Returns true if frames are missing before this one: those so far come at regular distances, and this one comes
    /// later.
    pub fn is_gap(&self, at: ClockTime) -> bool {
        let Some(distance) = self.last.and_then(|last| at.checked_sub(last)) else { return false };
        let Some(typical) = self.typical().filter(|_| !self.varies) else { return false };
        let seen = self.distances.len();
        let regular =
            self.distances.iter().filter(|one| alike(typical, ClockTime::from_nseconds(**one))).count();
        // One distance is enough where it is what the caps announce.
        let known =
            if self.announced.is_some_and(|announced| alike(announced, typical)) { 1 } else { ENOUGH };
        seen >= known && regular * 4 >= seen * 3 && distance > typical * 3 / 2
    }
}

/// Returns true for distances that differ by no more than a quarter.
pub fn alike(a: ClockTime, b: ClockTime) -> bool {
    a.absdiff(b) <= a.max(b) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(time: u64) -> ClockTime {
        ClockTime::from_mseconds(time)
    }

    fn cadence(announced: Option<u64>, times: impl IntoIterator<Item = u64>) -> Cadence {
        let mut cadence = Cadence::default();
        cadence.announce(announced.map(ms), false);
        times.into_iter().for_each(|time| cadence.push(ms(time)));
        cadence
    }

    #[test]
    fn timestamps_outweigh_caps_that_they_contradict() {
        let every = |distance: u64, count: u64| (0..count).map(move |i| i * distance);
        assert_eq!(cadence(None, []).typical(), None);
        assert_eq!(cadence(Some(40), []).typical(), Some(ms(40)));
        assert_eq!(cadence(None, every(20, 2)).typical(), Some(ms(20)));
        assert_eq!(cadence(Some(40), every(20, 10)).typical(), Some(ms(20)));
        assert_eq!(cadence(Some(40), every(20, 10)).close(), Some(ms(20)));
        assert_eq!(cadence(Some(20), every(40, 10)).typical(), Some(ms(40)));
        // Jitter is no other rate, nor are frames that are missing.
        let jitter = [0, 45, 76, 124, 158, 203, 237, 282];
        assert_eq!(cadence(Some(40), jitter).close(), Some(ms(40)));
        let lost = [0, 20, 60, 80, 100, 160, 180, 200, 220, 240];
        assert_eq!(cadence(None, lost).typical(), Some(ms(20)));
    }

    #[test]
    fn frames_are_missing_only_where_others_are_regular() {
        let regular = (0..8).map(|i| i * 20);
        assert!(cadence(None, regular.clone()).is_gap(ms(180)));
        assert!(!cadence(None, regular.clone()).is_gap(ms(160)));
        assert!(!cadence(None, [0, 20]).is_gap(ms(60)));
        assert!(cadence(Some(20), [0, 20]).is_gap(ms(60)));
        assert!(!cadence(Some(20), [0]).is_gap(ms(40)));
        assert!(!cadence(Some(20), (0..8).map(|i| i * 40)).is_gap(ms(320)));
        assert!(!cadence(None, [0, 20, 300, 320, 900, 920, 940, 2000]).is_gap(ms(2500)));
    }

    #[test]
    fn pauses_are_as_long_as_those_before() {
        assert_eq!(cadence(None, [0]).longest_pause(), None);
        assert_eq!(cadence(None, [0, 500, 1000]).longest_pause(), Some(ms(500)));
        assert_eq!(cadence(None, [0, 20, 40, 60, 560]).longest_pause(), Some(ms(1000)));
    }
}
