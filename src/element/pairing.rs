// SPDX-License-Identifier: MPL-2.0

//! Which frames belong together: the decision alone, free of pads and buffers.

use gst::ClockTime;

/// A frame at the head of a sink pad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Running time, which says when it has waited long enough.
    pub at: ClockTime,
    /// What partners have in common: nanoseconds, or a number. `None` where the frame does not carry it.
    pub key: Option<i64>,
}

/// What stands at the head of a sink pad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    Frame(Frame),
    /// There are no frames up to here.
    Gap(Frame),
    /// Nothing has arrived yet.
    Empty,
    /// Nothing will arrive any more.
    Eos,
}

/// When frames belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Largest difference of their keys.
    pub tolerance: u64,
    /// Keys start again from 0 after this, as time codes do at midnight.
    pub period: Option<i64>,
    /// Running time up to which frames have waited long enough, in live pipelines.
    pub deadline: Option<ClockTime>,
}

/// What to do with the heads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take the reference head, and the heads of these renditions.
    Take(Vec<bool>),
    /// The head of this rendition has no reference frame: drop it.
    Drop(usize),
    /// More input is needed.
    Wait,
    /// The reference has ended.
    Finished,
}

/// What to do with one rendition's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pair,
    Drop,
    /// The reference head has no partner here and will get none.
    Unpaired,
    Wait,
}

/// Decides on the heads of the reference and of all renditions.
///
/// A distorted frame belongs to a reference frame when it is less than `tolerance` earlier or at most
/// `tolerance` later: with half a frame as tolerance, each distorted frame has one possible partner even
/// when its stream runs at twice the rate. A reference frame at or before `deadline` no longer waits.
pub fn step(reference: Head, renditions: &[Head], rule: &Rule) -> Step {
    let due = |frame: &Frame| rule.deadline.is_some_and(|deadline| frame.at <= deadline);
    let reference = match reference {
        Head::Frame(frame) => frame,
        Head::Empty | Head::Gap(_) => {
            // Without its reference a frame waits no longer than the reference would.
            let late = |head: &Head| matches!(head, Head::Frame(frame) | Head::Gap(frame) if due(frame));
            return renditions.iter().position(late).map_or(Step::Wait, Step::Drop);
        }
        Head::Eos => return Step::Finished,
    };
    let fates: Vec<_> = renditions.iter().map(|head| fate(&reference, head, rule)).collect();
    if let Some(drop) = fates.iter().position(|fate| *fate == Fate::Drop) {
        Step::Drop(drop)
    } else if fates.contains(&Fate::Wait) && !due(&reference) {
        Step::Wait
    } else {
        Step::Take(fates.iter().map(|fate| *fate == Fate::Pair).collect())
    }
}

fn fate(reference: &Frame, head: &Head, rule: &Rule) -> Fate {
    let (distorted, is_gap) = match head {
        Head::Frame(frame) => (frame, false),
        Head::Gap(end) => (end, true),
        Head::Empty => return Fate::Wait,
        Head::Eos => return Fate::Unpaired,
    };
    let (Some(reference), Some(distorted)) = (reference.key, distorted.key) else {
        return if distorted.key.is_none() { Fate::Drop } else { Fate::Unpaired };
    };
    let late = i128::from(distorted) - i128::from(reference);
    let late = match rule.period.map(i128::from) {
        Some(period) => (late + period / 2).rem_euclid(period) - period / 2,
        None => late,
    };
    let tolerance = i128::from(rule.tolerance);
    match late {
        late if is_gap => {
            if late <= tolerance {
                Fate::Drop
            } else {
                Fate::Unpaired
            }
        }
        0 => Fate::Pair,
        late if late < 0 => {
            if -late < tolerance {
                Fate::Pair
            } else {
                Fate::Drop
            }
        }
        late => {
            if late <= tolerance {
                Fate::Pair
            } else {
                Fate::Unpaired
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FRAME: u64 = 40;
    const MS: u64 = 1_000_000;

    /// A frame of so many milliseconds.
    fn at(time: u64) -> Head {
        Head::Frame(Frame { at: ClockTime::from_mseconds(time), key: Some((time * MS) as i64) })
    }

    /// Pairs two finished streams the way the element does; returns the pairs, the unpaired reference
    /// frames and the dropped distorted ones.
    fn pair(reference: &[u64], distorted: &[u64], tolerance: u64) -> (Vec<(u64, u64)>, Vec<u64>, Vec<u64>) {
        let head = |times: &[u64]| times.first().map_or(Head::Eos, |t| at(*t));
        let rule = Rule { tolerance: tolerance * MS, period: None, deadline: None };
        let (mut r, mut d) = (reference, distorted);
        let (mut pairs, mut unpaired, mut dropped) = (vec![], vec![], vec![]);
        loop {
            match step(head(r), &[head(d)], &rule) {
                Step::Take(taken) if taken == [true] => {
                    pairs.push((r[0], d[0]));
                    (r, d) = (&r[1..], &d[1..]);
                }
                Step::Drop(0) => {
                    dropped.push(d[0]);
                    d = &d[1..];
                }
                Step::Take(taken) if taken == [false] => {
                    unpaired.push(r[0]);
                    r = &r[1..];
                }
                Step::Finished => return (pairs, unpaired, dropped),
                step => unreachable!("{step:?} for two finished streams"),
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
        let rule = Rule { tolerance: 20 * MS, period: None, deadline: Some(ClockTime::from_mseconds(80)) };
        let none = Rule { deadline: None, ..rule };
        assert_eq!(step(at(80), &[Head::Empty], &rule), Step::Take(vec![false]));
        assert_eq!(step(at(81), &[Head::Empty], &rule), Step::Wait);
        assert_eq!(step(at(80), &[Head::Empty], &none), Step::Wait);
        assert_eq!(step(Head::Empty, &[at(81)], &rule), Step::Wait);
        assert_eq!(step(Head::Empty, &[at(80)], &rule), Step::Drop(0));
    }

    #[test]
    fn renditions_wait_for_each_other_until_the_deadline() {
        let rule = Rule { tolerance: 20 * MS, period: None, deadline: None };
        assert_eq!(step(at(80), &[at(80), Head::Empty], &rule), Step::Wait);
        assert_eq!(step(at(80), &[at(80), Head::Eos], &rule), Step::Take(vec![true, false]));
        assert_eq!(step(at(80), &[at(80), at(40)], &rule), Step::Drop(1));
        let due = Rule { deadline: Some(ClockTime::from_mseconds(80)), ..rule };
        assert_eq!(step(at(80), &[at(80), Head::Empty], &due), Step::Take(vec![true, false]));
        assert_eq!(step(at(80), &[], &rule), Step::Take(vec![]));
    }

    #[test]
    fn a_gap_tells_at_once_that_frames_are_missing() {
        let rule = Rule { tolerance: 20 * MS, period: None, deadline: None };
        let Head::Frame(end) = at(120) else { unreachable!("it is one") };
        let gap = [Head::Gap(end)];
        assert_eq!(step(at(40), &gap, &rule), Step::Take(vec![false]));
        assert_eq!(step(at(80), &gap, &rule), Step::Take(vec![false]));
        assert_eq!(step(at(120), &gap, &rule), Step::Drop(0));
        assert_eq!(step(Head::Empty, &gap, &rule), Step::Wait);
    }

    #[test]
    fn time_codes_go_on_over_midnight() {
        const DAY: i64 = 24 * 3600 * 1_000_000_000;
        let rule = Rule { tolerance: 20 * MS, period: Some(DAY), deadline: None };
        let code = |key| Head::Frame(Frame { at: ClockTime::ZERO, key });
        let midnight = code(Some(0));
        assert_eq!(step(midnight, &[code(Some(DAY - 1000))], &rule), Step::Take(vec![true]));
        assert_eq!(step(midnight, &[code(Some(DAY - 40 * MS as i64))], &rule), Step::Drop(0));
        assert_eq!(step(midnight, &[code(Some(40 * MS as i64))], &rule), Step::Take(vec![false]));
        assert_eq!(step(midnight, &[code(None)], &rule), Step::Drop(0));
        assert_eq!(step(code(None), &[midnight], &rule), Step::Take(vec![false]));
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
