// SPDX-License-Identifier: MPL-2.0

//! Frozen and black pictures, distinguished from still and dark scenes by means of the reference.

use crate::alarm::{Change, Hold, Latch};
use crate::thumbnail::Thumbnail;

/// Hold for moving or visible pictures. A single one is not sufficient, because a decoder without its reference
/// frames may output anything.
const RECOVERY: Hold = Hold { time: 200_000_000, frames: Some(3) };

/// The reference counts as moving if it changed by this many times the level of a freeze.
const MOVING: f64 = 4.0;

/// Smaller changes than this part of the reference's do not count: an encoder refines a frozen picture, and each of
/// its key frames differs slightly.
const FLICKER: f64 = 1.0 / 16.0;

/// Smaller differences in luma do not distinguish a black picture from a dark one. From 0 to 1; 2.6 steps of 8 bits.
const DARKER: f64 = 0.01;

/// An alarm for distorted pictures that stand still while the reference moves.
///
/// Both sides are compared with their pictures at the beginning of the freeze, not with the previous ones: slow
/// movement adds up, and noise does not. Thumbnails are means of large cells without noise and grain, so these
/// neither hide a freeze nor count as movement. A movement in a still scene must be large enough: by default 0.4
/// steps of 8-bit luma on average, for example one hundredth of the picture that changes by 40 steps. A clock or
/// ticker inserted after the freeze hides it if it changes that much.
#[derive(Clone, Debug)]
pub struct Freeze {
    level: f64,
    latch: Latch,
    /// The reference and distorted pictures at the beginning of the freeze.
    anchor: Option<(Thumbnail, Thumbnail)>,
}

impl Freeze {
    /// Changes of the mean absolute luma below `level`, on the scale of 8-bit samples, do not count. Raises after
    /// `hold` ns.
    pub fn new(level: f64, hold: u64) -> Self {
        Self { level, latch: Latch::new(Hold::time(hold), RECOVERY), anchor: None }
    }

    /// Returns true while the alarm is raised.
    pub fn is_raised(&self) -> bool {
        self.latch.is_raised()
    }

    /// Returns this alarm with the state of an older one: an alarm stays raised, and the comparison is still with the
    /// pictures at the beginning of the freeze.
    pub fn reconfigured(self, old: &Self) -> Self {
        Self { latch: self.latch.reconfigured(&old.latch), anchor: old.anchor.clone(), ..self }
    }

    /// Adds a pair by its running time in ns.
    pub fn update(
        &mut self,
        running_time: u64,
        reference: &Thumbnail,
        distorted: &Thumbnail,
    ) -> Option<Change> {
        let mut change = None;
        if let Some((reference_then, distorted_then)) = &self.anchor {
            let moved = reference.difference(reference_then);
            let still = distorted.difference(distorted_then) < self.level.max(moved * FLICKER);
            change = self.latch.update(running_time, still && moved >= MOVING * self.level, !still);
            if still || self.latch.is_raised() {
                return change;
            }
        }
        self.anchor = Some((reference.clone(), distorted.clone()));
        change
    }
}

/// An alarm for black distorted pictures while the reference is not black.
#[derive(Clone, Debug)]
pub struct Black {
    level: f64,
    latch: Latch,
}

impl Black {
    /// Pictures with a mean luma below `level`, from 0 to 1, are black. Raises after `hold` ns.
    pub fn new(level: f64, hold: u64) -> Self {
        Self { level, latch: Latch::new(Hold::time(hold), RECOVERY) }
    }

    /// Returns true while the alarm is raised.
    pub fn is_raised(&self) -> bool {
        self.latch.is_raised()
    }

    /// Returns this alarm with the state of an older one: an alarm stays raised.
    pub fn reconfigured(self, old: &Self) -> Self {
        Self { latch: self.latch.reconfigured(&old.latch), ..self }
    }

    /// Adds a pair by its running time in ns.
    pub fn update(
        &mut self,
        running_time: u64,
        reference: &Thumbnail,
        distorted: &Thumbnail,
    ) -> Option<Change> {
        let (reference, distorted) = (reference.mean(), distorted.mean());
        let black = distorted < self.level;
        let lost = black && reference >= self.level && reference - distorted >= DARKER;
        self.latch.update(running_time, lost, !black)
    }
}

#[cfg(test)]
mod tests {
    use engine::random::unit_hash;

    use super::*;
    use crate::alarm::State;

    const FRAME: u64 = 40_000_000;
    const HOLD: u64 = 25 * FRAME;

    /// Returns a thumbnail of 8-bit values with noise of up to `noise`.
    fn picture(value: impl Fn(usize, usize) -> f64, noise: f64, seed: usize) -> Thumbnail {
        Thumbnail::synthetic(|x, y| {
            value(x, y) + noise * (2.0 * unit_hash(seed as u64, (x + y * 32) as u64) - 1.0)
        })
    }

    fn scene(position: f64) -> impl Fn(usize, usize) -> f64 {
        move |x, y| 120.0 + 60.0 * ((x as f64 + position) * 0.5).sin() * (y as f64 * 0.3).cos()
    }

    /// Returns the changes as (state, since, frame), where `pair` gives the positions of the scene on both sides.
    fn freezes(frames: usize, noise: f64, pair: impl Fn(usize) -> (f64, f64)) -> Vec<(State, u64, usize)> {
        let mut freeze = Freeze::new(0.1, HOLD);
        let changes = (0..frames).filter_map(|i| {
            let (reference, distorted) = pair(i);
            let reference = picture(scene(reference), noise, 2 * i);
            let distorted = picture(scene(distorted), noise / 2.0, 2 * i + 1);
            let change = freeze.update(i as u64 * FRAME, &reference, &distorted)?;
            Some((change.state, change.since / FRAME, i))
        });
        changes.collect()
    }

    #[test]
    fn freeze_is_raised_and_cleared() {
        let stops = |i: usize| (i as f64, (if (50..100).contains(&i) { 50 } else { i }) as f64);
        for noise in [0.0, 0.1] {
            let expected = [(State::Raised, 51, 76), (State::Cleared, 100, 102)];
            assert_eq!(freezes(150, noise, stops), expected, "{noise}");
        }
    }

    #[test]
    fn stills_and_slow_scenes_do_not_freeze() {
        assert_eq!(freezes(200, 0.1, |_| (0.0, 0.0)), []);
        // Changes from picture to picture below the level, on both sides.
        assert_eq!(freezes(1000, 0.0, |i| (i as f64 * 0.004, i as f64 * 0.004)), []);
        // Every second picture is repeated, or all of them are a second late.
        assert_eq!(freezes(200, 0.1, |i| (i as f64, (i & !1) as f64)), []);
        assert_eq!(freezes(200, 0.1, |i| (i as f64, i.saturating_sub(25) as f64)), []);
    }

    #[test]
    fn freeze_of_a_slow_scene_is_seen() {
        let changes = freezes(1000, 0.0, |i| (i as f64 * 0.004, 0.0));
        assert!(matches!(changes[..], [(State::Raised, ..)]), "{changes:?}");
    }

    #[test]
    fn keyframes_of_a_frozen_picture_do_not_hide_it() {
        // The picture becomes slightly brighter every half second.
        let mut freeze = Freeze::new(0.1, HOLD);
        let raised = (0..100).any(|i| {
            let pulse = if i % 12 == 0 { 0.5 } else { 0.0 };
            let distorted = picture(|x, y| scene(0.0)(x, y) + pulse, 0.0, 0);
            freeze.update(i * FRAME, &picture(scene(i as f64), 0.0, 0), &distorted).is_some()
        });
        assert!(raised);
    }

    #[test]
    fn black_is_raised_only_where_the_reference_is_not() {
        let grey = |value: f64| picture(move |_, _| value, 0.0, 0);
        let run = |reference: f64, distorted: &dyn Fn(u64) -> f64| {
            let mut black = Black::new(0.07, HOLD);
            let changes = (0..200).filter_map(|i| {
                let change = black.update(i * FRAME, &grey(reference), &grey(distorted(i)))?;
                Some((change.state, change.since / FRAME, i))
            });
            changes.collect::<Vec<_>>()
        };
        let fails = |i| if (50..100).contains(&i) { 16.0 } else { 80.0 };
        assert_eq!(run(80.0, &fails), [(State::Raised, 50, 75), (State::Cleared, 100, 102)]);
        assert_eq!(run(16.0, &|_| 16.0), []);
        assert_eq!(run(18.5, &|_| 17.5), []);
        assert_eq!(run(80.0, &|_| 40.0), []);
        // Shorter than the hold.
        assert_eq!(run(80.0, &|i| if i % 25 == 0 { 80.0 } else { 16.0 }), []);
    }
}
