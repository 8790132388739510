// SPDX-License-Identifier: MPL-2.0

//! Pictures that froze or went black on their way, told apart from stills and dark scenes of the programme by
//! looking at the reference too.

use crate::alarm::{Change, Hold, Latch};
use crate::thumbnail::Thumbnail;

/// When moving or visible pictures count as back: not at a single one, as a decoder without its reference
/// frames may show anything.
const RECOVERY: Hold = Hold { time: 200_000_000, frames: Some(3) };

/// So many times the level of a freeze must the reference have changed to be called moving.
const MOVING: f64 = 4.0;

/// A change of less than this part of the reference's is none: an encoder that gets a frozen picture refines
/// it, and each of its keyframes differs a little.
const FLICKER: f64 = 1.0 / 16.0;

/// Less luma than this in a black picture is no difference to a dark one. From 0 to 1; 2.6 steps of 8 bits.
const DARKER: f64 = 0.01;

/// Alarm on distorted pictures that stand still while those of the reference move.
///
/// Both sides are compared with what they were when the distorted picture stopped, not with their previous
/// pictures: slow movement adds up, noise does not. Being means of large cells the thumbnails do not show
/// noise and grain, so these neither hide a freeze nor count as movement, and what moves in a still scene must
/// be large enough to be called movement: by default 0.4 steps of 8-bit luma on average, such as a
/// hundredth of the picture that changes by 40 steps. A clock or ticker inserted after the freeze hides it
/// if it changes that much.
#[derive(Clone, Debug)]
pub struct Freeze {
    level: f64,
    latch: Latch,
    /// The reference picture and the distorted picture at the frame where the distorted picture stopped.
    anchor: Option<(Thumbnail, Thumbnail)>,
}

impl Freeze {
    /// Changes of the mean absolute luma of less than `level`, on the scale of 8-bit samples, count as none.
    /// Raised after `hold` ns.
    pub fn new(level: f64, hold: u64) -> Self {
        Self { level, latch: Latch::new(Hold::time(hold), RECOVERY), anchor: None }
    }

    /// Whether there is an alarm.
    pub fn is_raised(&self) -> bool {
        self.latch.is_raised()
    }

    /// This alarm in the place of an older one with another level or hold: what was raised stays so, and pictures are
    /// still compared with those at which the old one has seen the distorted picture stop.
    pub fn reconfigured(self, old: &Self) -> Self {
        Self { latch: self.latch.reconfigured(&old.latch), anchor: old.anchor.clone(), ..self }
    }

    /// Takes a pair by its running time in ns.
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

/// Alarm on distorted pictures that are black while those of the reference are not.
#[derive(Clone, Debug)]
pub struct Black {
    level: f64,
    latch: Latch,
}

impl Black {
    /// Pictures with a mean luma below `level`, from 0 to 1, are black. Raised after `hold` ns.
    pub fn new(level: f64, hold: u64) -> Self {
        Self { level, latch: Latch::new(Hold::time(hold), RECOVERY) }
    }

    /// Whether there is an alarm.
    pub fn is_raised(&self) -> bool {
        self.latch.is_raised()
    }

    /// This alarm in the place of an older one with another level or hold: what was raised stays so.
    pub fn reconfigured(self, old: &Self) -> Self {
        Self { latch: self.latch.reconfigured(&old.latch), ..self }
    }

    /// Takes a pair by its running time in ns.
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
    use super::*;
    use crate::alarm::State;

    const FRAME: u64 = 40_000_000;
    const HOLD: u64 = 25 * FRAME;

    /// A thumbnail of such 8-bit values, off by up to `noise`.
    fn picture(value: impl Fn(usize, usize) -> f64, noise: f64, seed: usize) -> Thumbnail {
        Thumbnail::synthetic(|x, y| {
            let random = ((x + y * 32 + seed * 576) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            value(x, y) + noise * (random as f64 / f64::from(1 << 23) - 1.0)
        })
    }

    fn scene(position: f64) -> impl Fn(usize, usize) -> f64 {
        move |x, y| 120.0 + 60.0 * ((x as f64 + position) * 0.5).sin() * (y as f64 * 0.3).cos()
    }

    /// Changes as (state, since, frame) when `pair` gives the positions of the scene on both sides.
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
        // Changes below the level from picture to picture, on both sides.
        assert_eq!(freezes(1000, 0.0, |i| (i as f64 * 0.004, i as f64 * 0.004)), []);
        // Every second picture is shown twice, or all of them a second too late.
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
        // The picture is a little brighter every half second.
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
