// SPDX-License-Identifier: MPL-2.0

//! Pairing with `--rate`: a video of another rate is compared as a player displays it. Each frame of the original is
//! paired with the frame on display at its time, as ffmpeg's filter `fps` chooses it.

use super::align::Sides;
use super::decide::{Method, Plan};

/// Pairs each reference frame of a plan by time with the last distorted frame that is closest to it. A plan by
/// picture is changed, too, if rates differ and times explain nearly all of its pairs: of two frames equally close in
/// time, either may look more similar.
pub fn by_display(plan: &mut Plan, sides: &Sides) {
    let [own, other] = [true, false].map(|of_reference| sides.typical(of_reference));
    let half = own as i64 / 2;
    // Pictures determine the offset to half a frame. Files that begin together have an exact one.
    let together = [sides.late(), 0];
    let offset =
        together.into_iter().find(|offset| (offset - plan.offset).abs() < half).unwrap_or(plan.offset);
    let times: Vec<_> = sides.distorted.iter().map(|shot| shot.time as i64 - offset).collect();
    let pairs = plan.pairs.iter().zip(sides.reference).filter_map(|(j, shot)| Some(((*j)?, shot)));
    let near = pairs.clone().filter(|(j, shot)| (times[*j] - shot.time as i64).abs() <= half * 3 / 2).count();
    let timed = own.abs_diff(other) * 100 > own && near * 10 >= pairs.count() * 9;
    match plan.method {
        Method::Time => {}
        Method::Picture if timed => plan.method = Method::Time,
        Method::Picture | Method::Number => return,
    }
    plan.offset = offset;
    let mut taken = vec![false; times.len()];
    for (pair, shot) in plan.pairs.iter_mut().zip(sides.reference) {
        let behind = times.partition_point(|time| *time < shot.time as i64 + half);
        let last = behind.checked_sub(1).filter(|j| times[*j] >= shot.time as i64 - half && !taken[*j]);
        *pair = last;
        last.into_iter().for_each(|j| taken[j] = true);
    }
    plan.repeated.retain(|j| !taken[*j]);
    let repeated = &plan.repeated;
    plan.extra = (0..taken.len()).filter(|j| !taken[*j] && !repeated.contains(j)).collect();
}

#[cfg(test)]
mod tests {
    use super::super::scan::{CELLS, Shot, Small};
    use super::*;

    fn shots(times: impl IntoIterator<Item = u64>) -> Vec<Shot> {
        let of = |time: u64| Shot { time, position: time, picture: Small([0; CELLS]) };
        times.into_iter().map(|ms| of(ms * 1_000_000)).collect()
    }

    fn plan(method: Method, pairs: Vec<Option<usize>>) -> Plan {
        Plan { method, offset: 0, confidence: 1.0, pairs, decimated: false, repeated: vec![], extra: vec![] }
    }

    fn displayed(reference: &[Shot], distorted: &[Shot]) -> (Vec<Option<usize>>, Vec<usize>) {
        let mut plan = plan(Method::Time, vec![None; reference.len()]);
        by_display(&mut plan, &Sides { reference, distorted });
        (plan.pairs, plan.extra)
    }

    /// A few pairs by picture that differ from those by time are ignored; lost frames with rewritten timestamps are
    /// not.
    #[test]
    fn times_count_where_they_explain_the_pictures() {
        let film = shots((0..20).map(|i| 40 * i));
        let slower = shots((0..16).map(|j| 50 * j));
        let times: Vec<_> = (0..20).map(|i| Some((40 * i + 25) / 50).filter(|j| *j < 16)).collect();
        let mut odd = plan(Method::Picture, times);
        (odd.pairs[9], odd.offset) = (Some(8), 7_000_000);
        by_display(&mut odd, &Sides { reference: &film, distorted: &slower });
        assert_eq!(
            (odd.method, odd.offset, odd.pairs[9], odd.pairs[10]),
            (Method::Time, 0, Some(7), Some(8))
        );
        let lost: Vec<_> =
            (0..20_usize).map(|i| if i < 5 { Some(i) } else { i.checked_sub(1).filter(|_| i > 5) }).collect();
        let mut made_constant = plan(Method::Picture, lost.clone());
        by_display(&mut made_constant, &Sides { reference: &film, distorted: &film[..19] });
        assert_eq!((made_constant.method, made_constant.pairs), (Method::Picture, lost));
    }

    /// A frame half way between two is paired with the later one, as in ffmpeg's filter.
    #[test]
    fn frames_are_those_on_display() {
        let film = shots((0..4).map(|i| 40 * i));
        let (pairs, extra) = displayed(&film, &shots((0..8).map(|j| 20 * j)));
        assert_eq!(pairs, [Some(0), Some(2), Some(4), Some(6)]);
        assert_eq!(extra, [1, 3, 5, 7]);
        let (pairs, extra) = displayed(&film, &shots([0, 15, 70, 125]));
        assert_eq!(pairs, [Some(1), None, Some(2), Some(3)]);
        assert_eq!(extra, [0]);
    }
}
