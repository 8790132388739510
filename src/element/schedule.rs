// SPDX-License-Identifier: MPL-2.0

//! The decision what to do next, and until when to wait for it, free of pads, buffers and locks.
//!
//! The streaming task and the base class's timer both need to know what comes next: one to do it, the other to wake up for it.
//! If each worked it out for itself, they would disagree sooner or later, and a timer that wakes up for something that the
//! task does not do yet keeps a core busy for ever. So there is one function, [`decide`]: from the head of each pad, the clock
//! and the rules it makes a [`Step`], and a step that waits says until when. That time always lies after the deadline that the
//! decision was made for (a property test holds it), so the clock cannot ask for the same step twice.
//!
//! Frames are paired with the nearest: one that is clearly nearer to its partner than to any other frame at once, others once
//! the frame behind it is known.

use gst::ClockTime;

/// A frame at the head of a sink pad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Running time with the pad's offset, which says when the frame has waited long enough.
    pub at: ClockTime,
    /// The key that partners share: nanoseconds, or a number. `None` where the frame does not carry it.
    pub key: Option<i64>,
}

/// The head of a sink pad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    Frame(Frame),
    /// There are no frames up to here.
    Gap(Frame),
    /// Nothing has arrived yet.
    Empty,
    /// Nothing will arrive any more.
    Eos,
    /// A frame whose timestamp is far ahead of the others of its stream. The frame behind it, which shows whether it is wild,
    /// has not come yet.
    Ahead(ClockTime),
    /// A frame whose timestamp is far ahead of those before and behind it.
    Wild,
}

impl Head {
    /// Running time at which what stands there has waited long enough; `None` for nothing and for the end.
    fn at(&self) -> Option<ClockTime> {
        match self {
            Self::Frame(frame) | Self::Gap(frame) => Some(frame.at),
            Self::Empty | Self::Eos | Self::Ahead(_) | Self::Wild => None,
        }
    }
}

/// The degree to which others wait for a rendition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The rendition's frames are paired, and waited for.
    Active,
    /// The rendition has not delivered for some time: its frames are paired, and in live pipelines waited for only if
    /// no other rendition is active.
    Absent,
    /// The rendition has never delivered, and the user does not want to wait for such pads.
    Ignored,
    /// The rendition is disabled or has failed: its frames are dropped in step with the reference.
    Idle,
}

/// The key of the frame behind the head of a pad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    Key(i64),
    /// There is none that can be compared with the head.
    Nothing,
    /// The next frame has not arrived yet.
    Unknown,
}

/// A rendition as the decision sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    pub role: Role,
    pub head: Head,
    pub behind: Behind,
    /// The key of the reference head in the terms of this rendition, of the reference frame taken before it, and of the one
    /// behind it.
    pub reference_key: Option<i64>,
    pub reference_before: Option<i64>,
    pub reference_behind: Behind,
    /// Frames whose keys differ by no more than this are partners whatever comes behind them.
    pub certain: u64,
}

/// When frames belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Largest difference of their keys; `None` as long as the distance of frames is not known.
    pub tolerance: Option<u64>,
    /// Keys start again from 0 after this, as time codes do at midnight.
    pub period: Option<i64>,
}

/// Everything that a decision depends on, but for the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub reference: Head,
    /// The reference has never delivered, and the user does not want to wait for such pads.
    pub reference_ignored: bool,
    pub sides: Vec<Side>,
    pub live: bool,
    pub rule: Rule,
    /// Running time of the oldest frame that has not left.
    pub leaving: Option<ClockTime>,
    /// Running time at which silence is to be reported next, if nothing comes before.
    pub beat: Option<ClockTime>,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take the reference head, and the heads of the renditions that are marked.
    Take(Vec<bool>),
    /// Drop the head of this rendition, which has no reference frame or is not wanted.
    Drop(usize),
    /// Go on with the size of the head of this rendition, or else of the reference, which is another than before.
    Resize(Option<usize>),
    /// Report that nothing has come up to this running time.
    Silence(ClockTime),
    /// Take this head, of the reference if it is none of a rendition, out of the stream's time: its timestamp is wild.
    Skip(Option<usize>),
    /// Wait for input; where there is a clock, until this running time at the latest.
    Wait(Option<ClockTime>),
    /// The reference has ended.
    Finished,
}

/// The treatment of a rendition's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pair,
    Drop,
    /// The reference head has no partner here and will get none.
    Unpaired,
    Wait,
    /// The decision depends on the frame behind one of the two.
    Look,
}

/// Decides on the heads of the reference and of all renditions. `deadline` is the running time up to which frames have
/// waited long enough; there is none where no clock ends the waiting, or where only arrivals are to be looked at.
///
/// A distorted frame belongs to a reference frame when it is less than the tolerance earlier or at most the tolerance
/// later, and no other frame of either stream is nearer: with half a frame as tolerance, each distorted frame has one
/// possible partner even when its stream runs at twice the rate.
pub fn decide(view: &View, deadline: Option<ClockTime>) -> Step {
    let due = |at: ClockTime| deadline.is_some_and(|deadline| at <= deadline);
    if view.reference == Head::Wild {
        return Step::Skip(None);
    }
    if let Some(i) = view.sides.iter().position(|side| side.head == Head::Wild) {
        return Step::Skip(Some(i));
    }
    match view.reference {
        Head::Eos => Step::Finished,
        Head::Frame(reference) => with_reference(view, reference, due),
        Head::Empty | Head::Gap(_) | Head::Ahead(_) | Head::Wild => {
            // Without its reference a frame waits no longer than the reference would.
            let gone = |side: &Side| side.head.at().is_some_and(|at| due(at) || view.reference_ignored);
            if let Some(i) = view.sides.iter().position(gone) {
                return Step::Drop(i);
            }
            let heads = |idle: bool| {
                let sides = view.sides.iter().filter(move |side| (side.role == Role::Idle) == idle);
                sides.filter_map(|side| side.head.at())
            };
            // Frames that leave or are dropped by and by are a sign of life; frames of disabled renditions are none.
            let frames = heads(false).chain(view.leaving).filter(|at| !due(*at)).min();
            match (frames, view.beat, deadline) {
                (None, Some(beat), Some(now)) if beat <= now => Step::Silence(now),
                (frames, beat, _) => {
                    let next = if frames.is_some() { frames } else { beat };
                    let next = next.into_iter().chain(heads(true)).chain(ahead(view));
                    Step::Wait(next.filter(|at| !due(*at)).min())
                }
            }
        }
    }
}

/// Running times from which on heads that are far ahead no longer are.
fn ahead(view: &View) -> impl Iterator<Item = ClockTime> {
    let heads = view.sides.iter().map(|side| side.head).chain([view.reference]);
    heads.filter_map(|head| if let Head::Ahead(until) = head { Some(until) } else { None })
}

fn with_reference(view: &View, reference: Frame, reached: impl Fn(ClockTime) -> bool) -> Step {
    let due = reached(reference.at);
    // With several renditions, an absent one does not delay the others.
    let scored = view.sides.iter().filter(|side| matches!(side.role, Role::Active | Role::Absent)).count();
    let waited_for = |role: Role| match role {
        Role::Active => true,
        Role::Absent => !view.live || scored < 2,
        // An idle one is not left behind: without live sources, the base class waits for frames on all pads.
        Role::Idle => !view.live,
        Role::Ignored => false,
    };
    let fates: Vec<_> = view
        .sides
        .iter()
        .map(|side| match side.head {
            Head::Empty | Head::Ahead(_) if waited_for(side.role) => Fate::Wait,
            Head::Empty | Head::Ahead(_) => Fate::Unpaired,
            _ if side.role == Role::Idle => Fate::Unpaired,
            _ => match fate(side, view.rule) {
                // The next frame would be too late.
                Fate::Look if due => without_look(side, view.rule),
                fate => fate,
            },
        })
        .collect();
    if let Some(i) = fates.iter().position(|fate| *fate == Fate::Drop) {
        Step::Drop(i)
    } else if fates.iter().any(|fate| matches!(fate, Fate::Wait | Fate::Look)) && !due {
        let leaving = view.leaving.filter(|at| *at < reference.at);
        let until = leaving.unwrap_or(reference.at);
        Step::Wait(ahead(view).filter(|at| !reached(*at)).chain([until]).min())
    } else {
        Step::Take(fates.iter().map(|fate| *fate == Fate::Pair).collect())
    }
}

fn fate(side: &Side, rule: Rule) -> Fate {
    let (distorted, is_gap) = match side.head {
        Head::Frame(frame) => (frame, false),
        Head::Gap(end) => (end, true),
        Head::Empty | Head::Eos | Head::Ahead(_) | Head::Wild => return Fate::Unpaired,
    };
    let (Some(reference), Some(distorted)) = (side.reference_key, distorted.key) else {
        return if distorted.key.is_none() { Fate::Drop } else { Fate::Unpaired };
    };
    let late = rule.late(distorted, reference);
    let tolerance = rule.tolerance.map(i128::from);
    match late {
        late if is_gap && late <= tolerance.unwrap_or(0) => return Fate::Drop,
        late if is_gap || tolerance.is_some_and(|most| late > most) => return Fate::Unpaired,
        late if tolerance.is_some_and(|most| late < 0 && -late >= most) => return Fate::Drop,
        late if late.unsigned_abs() <= side.certain.into() => return Fate::Pair,
        _ => {}
    }
    let nearer = |other: i64, to: i64| rule.late(other, to).abs() < late.abs();
    if late < 0 {
        if side.reference_before.is_some_and(|before| nearer(distorted, before)) {
            return Fate::Drop;
        }
        return match side.behind {
            Behind::Key(behind) if nearer(behind, reference) => Fate::Drop,
            // Without a distance that is known, that of these two counts.
            Behind::Key(behind) if tolerance.is_none() && -2 * late >= rule.late(behind, distorted) => {
                Fate::Drop
            }
            Behind::Key(_) => Fate::Pair,
            Behind::Nothing => without_look(side, rule),
            Behind::Unknown => Fate::Look,
        };
    }
    match side.reference_behind {
        Behind::Key(behind) if nearer(distorted, behind) => Fate::Unpaired,
        Behind::Key(behind) if tolerance.is_none() => match side.behind {
            _ if 2 * late > rule.late(behind, reference) => Fate::Unpaired,
            // The reference may have a gap here: the frames of the rendition may be closer.
            Behind::Key(own) if 2 * late > rule.late(own, distorted) => Fate::Unpaired,
            Behind::Unknown => Fate::Look,
            Behind::Key(_) | Behind::Nothing => Fate::Pair,
        },
        Behind::Key(_) => Fate::Pair,
        Behind::Nothing => without_look(side, rule),
        Behind::Unknown => Fate::Look,
    }
}

/// The fate of a distorted head that may belong to the reference head, where nothing can be known of the frames behind: it
/// does if it is near enough. Where it is not known what is near, it does not.
fn without_look(side: &Side, rule: Rule) -> Fate {
    match (rule.tolerance, side.head, side.reference_key) {
        (None, Head::Frame(Frame { key: Some(key), .. }), Some(reference)) if key < reference => Fate::Drop,
        (None, ..) => Fate::Unpaired,
        (Some(_), ..) => Fate::Pair,
    }
}

impl Rule {
    /// By how much a key is later than another.
    fn late(self, key: i64, than: i64) -> i128 {
        let late = i128::from(key) - i128::from(than);
        match self.period.map(i128::from).filter(|period| *period > 0) {
            Some(period) => (late + period / 2).rem_euclid(period) - period / 2,
            None => late,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FRAME: u64 = 40;
    const MS: u64 = 1_000_000;

    fn ms(time: u64) -> ClockTime {
        ClockTime::from_mseconds(time)
    }

    /// A frame of so many milliseconds.
    fn at(time: u64) -> Head {
        Head::Frame(Frame { at: ms(time), key: Some((time * MS) as i64) })
    }

    fn key(head: Head) -> Option<i64> {
        if let Head::Frame(frame) = head { frame.key } else { None }
    }

    /// Heads behind which nothing is known to come.
    fn view(reference: Head, heads: &[Head], tolerance: u64) -> View {
        let side = |head: &Head| Side {
            role: Role::Active,
            head: *head,
            behind: Behind::Nothing,
            reference_key: key(reference),
            reference_before: None,
            reference_behind: Behind::Nothing,
            certain: tolerance * MS / 2,
        };
        View {
            reference,
            reference_ignored: false,
            sides: heads.iter().map(side).collect(),
            live: true,
            rule: Rule { tolerance: Some(tolerance * MS), period: None },
            leaving: None,
            beat: None,
        }
    }

    fn with_roles(mut view: View, roles: &[Role]) -> View {
        view.sides.iter_mut().zip(roles).for_each(|(side, role)| side.role = *role);
        view
    }

    /// Pairs two finished streams the way the element does; returns the pairs, the unpaired reference
    /// frames and the dropped distorted ones. Without a tolerance, the distance of frames is not known.
    fn pair(
        reference: &[u64],
        distorted: &[u64],
        tolerance: impl Into<Option<u64>>,
    ) -> (Vec<(u64, u64)>, Vec<u64>, Vec<u64>) {
        let tolerance = tolerance.into();
        let head = |times: &[u64]| times.first().map_or(Head::Eos, |t| at(*t));
        let key = |time: &u64| (*time * MS) as i64;
        let behind = |times: &[u64]| times.get(1).map_or(Behind::Nothing, |time| Behind::Key(key(time)));
        let (mut r, mut d) = (reference, distorted);
        let (mut pairs, mut unpaired, mut dropped) = (vec![], vec![], vec![]);
        loop {
            let mut view = view(head(r), &[head(d)], tolerance.unwrap_or(2));
            view.sides[0].behind = behind(d);
            view.sides[0].reference_behind = behind(r);
            view.sides[0].reference_before = reference[..reference.len() - r.len()].last().map(key);
            if tolerance.is_none() {
                view.rule.tolerance = None;
            }
            match decide(&view, None) {
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
    fn the_deadline_ends_the_wait_only_for_frames_it_has_reached() {
        let deadline = Some(ms(80));
        let decide = |reference, head: Head, deadline| decide(&view(reference, &[head], 20), deadline);
        assert_eq!(decide(at(80), Head::Empty, deadline), Step::Take(vec![false]));
        assert_eq!(decide(at(81), Head::Empty, deadline), Step::Wait(Some(ms(81))));
        assert_eq!(decide(at(80), Head::Empty, None), Step::Wait(Some(ms(80))));
        assert_eq!(decide(Head::Empty, at(81), deadline), Step::Wait(Some(ms(81))));
        assert_eq!(decide(Head::Empty, at(80), deadline), Step::Drop(0));
    }

    #[test]
    fn renditions_wait_for_each_other_until_the_deadline() {
        let decide = |heads: &[Head], deadline| decide(&view(at(80), heads, 20), deadline);
        assert_eq!(decide(&[at(80), Head::Empty], None), Step::Wait(Some(ms(80))));
        assert_eq!(decide(&[at(80), Head::Eos], None), Step::Take(vec![true, false]));
        assert_eq!(decide(&[at(80), at(40)], None), Step::Drop(1));
        assert_eq!(decide(&[at(80), Head::Empty], Some(ms(80))), Step::Take(vec![true, false]));
        assert_eq!(decide(&[], None), Step::Take(vec![]));
    }

    /// Only where others are scored, and only live: a file that is slow to come is waited for.
    #[test]
    fn one_that_is_gone_makes_no_others_late() {
        use Role::{Absent, Active, Idle};
        let heads = [at(80), Head::Empty];
        let both = with_roles(view(at(80), &heads, 20), &[Active, Absent]);
        assert_eq!(decide(&both, None), Step::Take(vec![true, false]));
        assert_eq!(decide(&View { live: false, ..both }, None), Step::Wait(Some(ms(80))));
        let alone = with_roles(view(at(80), &heads, 20), &[Idle, Absent]);
        assert_eq!(decide(&alone, None), Step::Wait(Some(ms(80))));
        assert_eq!(decide(&alone, Some(ms(80))), Step::Take(vec![false, false]));
    }

    #[test]
    fn ignored_streams_are_neither_paired_nor_waited_for() {
        use Role::{Active, Idle, Ignored};
        let heads = [Head::Empty, at(80), Head::Empty];
        let idle = with_roles(view(at(80), &heads, 20), &[Idle, Active, Ignored]);
        assert_eq!(decide(&idle, None), Step::Take(vec![false, true, false]));
        // Without live sources, frames are waited for, and the idle rendition stays in step.
        let offline = View { live: false, ..idle };
        assert_eq!(decide(&offline, None), Step::Wait(Some(ms(80))));
        // The frames of an idle rendition do not end a silence.
        let silent = with_roles(view(Head::Empty, &[at(500), Head::Empty], 20), &[Idle, Active]);
        let silent = View { beat: Some(ms(200)), ..silent };
        assert_eq!(decide(&silent, None), Step::Wait(Some(ms(200))));
        assert_eq!(decide(&silent, Some(ms(300))), Step::Silence(ms(300)));
        assert_eq!(decide(&View { beat: Some(ms(900)), ..silent.clone() }, None), Step::Wait(Some(ms(500))));
        assert_eq!(decide(&silent, Some(ms(500))), Step::Drop(0));
    }

    #[test]
    fn frames_are_not_kept_for_a_reference_that_is_ignored() {
        let ignored = View { reference_ignored: true, ..view(Head::Empty, &[at(80)], 20) };
        assert_eq!(decide(&ignored, None), Step::Drop(0));
    }

    #[test]
    fn a_gap_shows_at_once_that_frames_are_missing() {
        let Head::Frame(end) = at(120) else { unreachable!("it is one") };
        let decide = |reference| decide(&view(reference, &[Head::Gap(end)], 20), None);
        assert_eq!(decide(at(40)), Step::Take(vec![false]));
        assert_eq!(decide(at(80)), Step::Take(vec![false]));
        assert_eq!(decide(at(120)), Step::Drop(0));
        assert_eq!(decide(Head::Empty), Step::Wait(Some(ms(120))));
    }

    #[test]
    fn time_codes_go_on_over_midnight() {
        const DAY: i64 = 24 * 3600 * 1_000_000_000;
        let code = |key| Head::Frame(Frame { at: ClockTime::ZERO, key });
        let decide = |reference, distorted| {
            let mut view = view(code(reference), &[code(distorted)], 20);
            view.rule.period = Some(DAY);
            decide(&view, None)
        };
        assert_eq!(decide(Some(0), Some(DAY - 1000)), Step::Take(vec![true]));
        assert_eq!(decide(Some(0), Some(DAY - 40 * MS as i64)), Step::Drop(0));
        assert_eq!(decide(Some(0), Some(40 * MS as i64)), Step::Take(vec![false]));
        assert_eq!(decide(Some(0), None), Step::Drop(0));
        assert_eq!(decide(None, Some(0)), Step::Take(vec![false]));
    }

    fn head() -> impl Strategy<Value = Head> {
        let frame = || {
            (0u64..500, proptest::option::weighted(0.9, -100i64..600))
                .prop_map(|(at, key)| Frame { at: ms(at), key: key.map(|key| key * MS as i64) })
        };
        prop_oneof![
            8 => frame().prop_map(Head::Frame),
            2 => frame().prop_map(Head::Gap),
            1 => (0u64..500).prop_map(|at| Head::Ahead(ms(at))),
            1 => Just(Head::Wild),
            6 => Just(Head::Empty),
            2 => Just(Head::Eos),
        ]
    }

    fn any_view() -> impl Strategy<Value = View> {
        let role = prop_oneof![
            4 => Just(Role::Active),
            1 => Just(Role::Absent),
            1 => Just(Role::Ignored),
            1 => Just(Role::Idle),
        ];
        let key = || proptest::option::weighted(0.9, (-100i64..600).prop_map(|key| key * MS as i64));
        let behind = || {
            prop_oneof![
                2 => (-100i64..900).prop_map(|key| Behind::Key(key * MS as i64)),
                1 => Just(Behind::Nothing),
                1 => Just(Behind::Unknown),
            ]
        };
        let certain = (0u64..30).prop_map(|certain| certain * MS);
        let side = (role, head(), behind(), key(), key(), behind(), certain).prop_map(
            |(role, head, behind, reference_key, reference_before, reference_behind, certain)| Side {
                role,
                head,
                behind,
                reference_key,
                reference_before,
                reference_behind,
                certain,
            },
        );
        let time = || proptest::option::of((0u64..500).prop_map(ms));
        (
            head(),
            any::<bool>(),
            proptest::collection::vec(side, 0..4),
            any::<bool>(),
            proptest::option::weighted(0.9, (0u64..60).prop_map(|tolerance| tolerance * MS)),
            time(),
            time(),
        )
            .prop_map(|(reference, reference_ignored, sides, live, tolerance, leaving, beat)| View {
                reference,
                reference_ignored,
                sides,
                live,
                rule: Rule { tolerance, period: None },
                leaving,
                beat,
            })
    }

    /// One frame lost on one side, at distances that nothing announces: those before and after find their partners.
    #[test]
    fn lost_frames_shift_no_pairs_at_distances_that_are_not_known() {
        for step in [5u64, 16, 20, 33, 500] {
            for lost in 0..6 {
                let all: Vec<_> = (0..8).map(|i| i * step).collect();
                let fewer: Vec<_> = all.iter().copied().filter(|time| *time != lost * step).collect();
                for (reference, distorted) in [(&all, &fewer), (&fewer, &all)] {
                    let (pairs, ..) = pair(reference, distorted, None);
                    assert_eq!(
                        pairs,
                        fewer.iter().map(|time| (*time, *time)).collect::<Vec<_>>(),
                        "{step} {lost}"
                    );
                }
            }
        }
    }

    #[test]
    fn frames_that_have_not_come_are_waited_for_where_they_decide() {
        let decide = |at_head: u64, tolerance, behind, reference_behind, deadline| {
            let mut view = view(at(80), &[at(at_head)], 20);
            view.rule.tolerance = tolerance;
            view.sides[0].behind = behind;
            view.sides[0].reference_behind = reference_behind;
            decide(&view, deadline)
        };
        let (unknown, half) = (Behind::Unknown, Some(20 * MS));
        let wait = Step::Wait(Some(ms(80)));
        let (pair, unpaired) = (Step::Take(vec![true]), Step::Take(vec![false]));
        assert_eq!(decide(89, half, unknown, unknown, None), pair);
        assert_eq!(decide(95, half, unknown, unknown, None), wait);
        assert_eq!(decide(95, half, unknown, unknown, Some(ms(80))), pair);
        assert_eq!(decide(95, half, unknown, Behind::Key(100 * MS as i64), None), unpaired);
        assert_eq!(decide(95, half, unknown, Behind::Key(120 * MS as i64), None), pair);
        assert_eq!(decide(65, half, unknown, unknown, None), wait);
        assert_eq!(decide(65, half, Behind::Key(90 * MS as i64), unknown, None), Step::Drop(0));
        assert_eq!(decide(95, None, unknown, unknown, Some(ms(80))), unpaired);
        // A gap of the reference says nothing about how close the frames of the rendition are.
        let gap = Behind::Key(500 * MS as i64);
        assert_eq!(decide(120, None, unknown, gap, None), wait);
        assert_eq!(decide(120, None, Behind::Key(160 * MS as i64), gap, None), unpaired);
        assert_eq!(decide(95, None, Behind::Key(160 * MS as i64), gap, None), pair);
        assert_eq!(decide(80, None, unknown, unknown, None), pair);
    }

    #[test]
    fn wild_frames_go_first_and_those_ahead_are_waited_for() {
        assert_eq!(decide(&view(Head::Wild, &[Head::Wild], 20), None), Step::Skip(None));
        assert_eq!(decide(&view(at(80), &[at(80), Head::Wild], 20), None), Step::Skip(Some(1)));
        let ahead = Head::Ahead(ms(9000));
        assert_eq!(decide(&view(at(80), &[ahead], 20), None), Step::Wait(Some(ms(80))));
        assert_eq!(decide(&view(at(80), &[ahead], 20), Some(ms(80))), Step::Take(vec![false]));
        assert_eq!(decide(&view(ahead, &[at(80)], 20), Some(ms(80))), Step::Drop(0));
        let silent = View { beat: Some(ms(200)), ..view(ahead, &[Head::Empty], 20) };
        assert_eq!(decide(&silent, Some(ms(300))), Step::Silence(ms(300)));
    }

    proptest! {
        /// However timestamps jitter, frames are paired with their own: whatever is lost on both sides where the distance of
        /// frames is known, and whatever is lost on one side where it is not.
        #[test]
        fn losses_and_jitter_make_no_wrong_pairs(
            step in 10u64..100,
            known in any::<bool>(),
            loser in any::<bool>(),
            frames in proptest::collection::vec((any::<[bool; 2]>(), [0u64..20, 0u64..20]), 1..30),
        ) {
            let side = |side: usize| -> Vec<u64> {
                let there = |lost: [bool; 2]| !lost[side] || !known && loser == (side == 0);
                let there = frames.iter().enumerate().filter(|(_, (lost, _))| there(*lost));
                there.map(|(i, (_, jitter))| (i as u64 + 1) * step + jitter[side] * step / 100).collect()
            };
            let (pairs, ..) = pair(&side(0), &side(1), known.then_some(step / 2));
            for (reference, distorted) in pairs {
                prop_assert_eq!(reference / step, distorted / step);
            }
        }

        /// The clock never asks for the same wait twice: what is due at a deadline is done by then. (What leaves has
        /// left, and the beat has been taken, before the element waits.)
        #[test]
        fn waiting_is_always_for_later(view in any_view(), deadline in 0u64..500) {
            let deadline = ms(deadline);
            let later = |time: Option<ClockTime>| time.filter(|time| *time > deadline);
            let view = View { leaving: later(view.leaving), beat: later(view.beat), ..view };
            if let Step::Wait(Some(until)) = decide(&view, Some(deadline)) {
                prop_assert!(until > deadline);
            }
        }

        /// A deadline ends waits and nothing else: whatever can be done without one is done with one too.
        #[test]
        fn what_needs_no_deadline_is_done_at_any(view in any_view(), deadline in 0u64..500) {
            let without = decide(&view, None);
            let with = decide(&view, Some(ms(deadline)));
            if !matches!(without, Step::Wait(_)) {
                prop_assert!(!matches!(with, Step::Wait(_)), "{:?} became {:?}", without, with);
            }
        }

        /// With a frame at every head and behind it there is always something to do.
        #[test]
        fn full_heads_never_wait(mut view in any_view()) {
            let full = |head: &Head| !matches!(head, Head::Empty | Head::Ahead(_));
            let known = |behind: &mut Behind| {
                if *behind == Behind::Unknown {
                    *behind = Behind::Nothing;
                }
            };
            view.sides.iter_mut().for_each(|side| {
                known(&mut side.behind);
                known(&mut side.reference_behind);
            });
            prop_assume!(matches!(view.reference, Head::Frame(_) | Head::Eos));
            prop_assume!(view.sides.iter().all(|side| full(&side.head) || side.role == Role::Ignored));
            prop_assert!(!matches!(decide(&view, None), Step::Wait(_)));
        }

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
