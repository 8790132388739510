// SPDX-License-Identifier: MPL-2.0

//! Which frames belong together: the decision alone, free of pads and buffers.

use gst::ClockTime;

/// What stands at the head of a sink pad, with its running time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    Frame(ClockTime),
    /// Nothing has arrived yet.
    Empty,
    /// Nothing will arrive any more.
    Eos,
}

/// What to do with the two heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The heads belong together.
    Pair,
    /// The distorted head has no reference frame: drop it.
    DropDistorted,
    /// The reference head has no distorted frame and will get none.
    Unpaired,
    /// More input is needed.
    Wait,
    /// The reference has ended.
    Finished,
}

/// Decides on the two heads.
///
/// A distorted frame belongs to a reference frame when it is less than `tolerance` earlier or at most
/// `tolerance` later: with half a frame as tolerance, each distorted frame has one possible partner even
/// when its stream runs at twice the rate. A reference frame at or before `deadline` no longer waits.
pub fn step(reference: Head, distorted: Head, tolerance: ClockTime, deadline: Option<ClockTime>) -> Step {
    let reference = match reference {
        Head::Frame(time) => time,
        Head::Empty => {
            // Without its reference a frame waits no longer than the reference would.
            let due =
                matches!(distorted, Head::Frame(time) if deadline.is_some_and(|deadline| time <= deadline));
            return if due { Step::DropDistorted } else { Step::Wait };
        }
        Head::Eos => return Step::Finished,
    };
    match distorted {
        Head::Frame(time) if time <= reference => {
            let early = reference - time;
            if early.is_zero() || early < tolerance { Step::Pair } else { Step::DropDistorted }
        }
        Head::Frame(time) if time - reference <= tolerance => Step::Pair,
        Head::Frame(_) | Head::Eos => Step::Unpaired,
        Head::Empty if deadline.is_some_and(|deadline| reference <= deadline) => Step::Unpaired,
        Head::Empty => Step::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FRAME: u64 = 40;

    /// Pairs two finished streams the way the element does; returns the pairs, the unpaired reference
    /// frames and the dropped distorted ones.
    fn pair(reference: &[u64], distorted: &[u64], tolerance: u64) -> (Vec<(u64, u64)>, Vec<u64>, Vec<u64>) {
        let head =
            |times: &[u64]| times.first().map_or(Head::Eos, |t| Head::Frame(ClockTime::from_mseconds(*t)));
        let (mut r, mut d) = (reference, distorted);
        let (mut pairs, mut unpaired, mut dropped) = (vec![], vec![], vec![]);
        loop {
            match step(head(r), head(d), ClockTime::from_mseconds(tolerance), None) {
                Step::Pair => {
                    pairs.push((r[0], d[0]));
                    (r, d) = (&r[1..], &d[1..]);
                }
                Step::DropDistorted => {
                    dropped.push(d[0]);
                    d = &d[1..];
                }
                Step::Unpaired => {
                    unpaired.push(r[0]);
                    r = &r[1..];
                }
                Step::Finished => return (pairs, unpaired, dropped),
                Step::Wait => unreachable!("finished streams never wait"),
            }
        }
    }

    #[test]
    fn twice_the_frame_rate_pairs_every_second_frame() {
        let reference: Vec<_> = (0..5).map(|i| i * FRAME).collect();
        let distorted: Vec<_> = (0..10).map(|i| i * FRAME / 2).collect();
        let (pairs, unpaired, _) = pair(&reference, &distorted, FRAME / 2);
        assert_eq!(pairs, reference.iter().map(|t| (*t, *t)).collect::<Vec<_>>());
        assert!(unpaired.is_empty());
        let (pairs, unpaired, dropped) = pair(&distorted, &reference, FRAME / 4);
        assert_eq!(pairs.len(), 5);
        assert_eq!(unpaired.len(), 5);
        assert!(dropped.is_empty());
    }

    #[test]
    fn deadline_ends_the_wait_only_for_frames_it_has_reached() {
        let at = |t| Head::Frame(ClockTime::from_mseconds(t));
        let tolerance = ClockTime::from_mseconds(20);
        let deadline = Some(ClockTime::from_mseconds(80));
        assert_eq!(step(at(80), Head::Empty, tolerance, deadline), Step::Unpaired);
        assert_eq!(step(at(81), Head::Empty, tolerance, deadline), Step::Wait);
        assert_eq!(step(at(80), Head::Empty, tolerance, None), Step::Wait);
        assert_eq!(step(Head::Empty, at(81), tolerance, deadline), Step::Wait);
        assert_eq!(step(Head::Empty, at(80), tolerance, deadline), Step::DropDistorted);
    }

    proptest! {
        /// Frames lost on either side and jitter under half a frame never pair the wrong frames, and
        /// every frame is accounted for.
        #[test]
        fn losses_and_jitter_never_mispair(frames in proptest::collection::vec((any::<bool>(), any::<bool>(), -19i64..=19), 1..60)) {
            let time = |i: usize| (i as u64 + 1) * FRAME;
            let reference: Vec<_> = (0..frames.len()).filter(|i| frames[*i].0).map(time).collect();
            let distorted: Vec<_> = (0..frames.len())
                .filter(|i| frames[*i].1)
                .map(|i| time(i).saturating_add_signed(frames[i].2))
                .collect();
            let both = frames.iter().filter(|f| f.0 && f.1).count();
            let (pairs, unpaired, dropped) = pair(&reference, &distorted, FRAME / 2);
            prop_assert_eq!(pairs.len(), both);
            for (r, d) in &pairs {
                prop_assert!(r.abs_diff(*d) < FRAME / 2);
            }
            prop_assert_eq!(pairs.len() + unpaired.len(), reference.len());
            prop_assert!(pairs.len() + dropped.len() <= distorted.len());
        }
    }
}
