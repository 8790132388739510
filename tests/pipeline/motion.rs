// SPDX-License-Identifier: MPL-2.0

//! Motion is computed from the reference: missing distorted frames and skipped pairs do not change the motion scores of the
//! others.

use crate::common::rig::Rig;
use crate::common::{FRAME, Input, score, sides};
use crate::process::{Function, functions};
use gst::ClockTime;
use gsthipvmaf::meta::ScoreState;

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    pairs_have_the_scores_of_the_whole_stream_whichever_frames_are_missing,
    renditions_that_come_and_go_leave_all_scores_as_they_are,
    pairs_beside_missing_reference_frames_count_nowhere,
    frames_of_varying_distance_are_no_gap
];

/// Tests for the CPU.
pub const CPU: &[Function] = functions![long_gaps_of_the_distorted_side_lose_no_history];

const FRAMES: usize = 12;

fn whole(both: &(Input, Input)) -> Vec<f64> {
    score(&[], &both.0, &both.1).unwrap().scores()
}

fn of(scores: &[f64], frames: impl IntoIterator<Item = usize>) -> Vec<f64> {
    frames.into_iter().map(|frame| scores[frame]).collect()
}

fn pairs_have_the_scores_of_the_whole_stream_whichever_frames_are_missing() {
    let both = sides(FRAMES);
    let whole = whole(&both);
    let kept: [&dyn Fn(usize) -> bool; 5] =
        [&|t| t % 2 == 0, &|t| t % 3 != 1, &|t| t == 6, &|t| t < 4, &|t| t > 7];
    for kept in kept {
        let frames: Vec<_> = (0..FRAMES).filter(|t| kept(*t)).collect();
        let report = score(&[], &both.0, &both.1.keep(kept)).unwrap();
        assert_eq!(report.scores(), of(&whole, frames.iter().copied()), "{frames:?}");
        assert!(report.frames.iter().all(|frame| !frame.discont));
        let pooled = &report.pooled[0];
        assert_eq!(
            (pooled.counts.scored, pooled.counts.unpaired),
            (frames.len() as u64, (FRAMES - frames.len()) as u64)
        );
    }
}

/// A frame that one rendition lacks does not change another's motion score, and a pad that is added while playing starts with
/// the reference's motion at that time.
fn renditions_that_come_and_go_leave_all_scores_as_they_are() {
    let both = sides(FRAMES);
    let whole = whole(&both);
    let mut rig = Rig::offline(&[]).play();
    rig.push_pairs(&both.0.0[..5], &both.1.0[..5]);
    rig.wait_scores(4);
    let pad = rig.request();
    for t in 5..9 {
        for pad in ["ref_sink", "dist_sink", "dist_0"] {
            rig.push(pad, if pad == "ref_sink" { &both.0.0[t] } else { &both.1.0[t] });
        }
    }
    rig.wait_scores(4 + 2 * 3);
    drop(pad);
    rig.release("dist_0");
    rig.push_pairs(&both.0.0[9..], &both.1.0[9..]);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.scores_of("dist_sink"), whole);
    assert_eq!(report.scores_of("dist_0")[..3], whole[5..8]);
    assert!(report.frames.iter().all(|frame| !frame.discont));
}

/// If the reference itself lacks frames, libvmaf compares the remaining ones. The pairs beside the gap are marked `discont` and
/// are in no summary.
fn pairs_beside_missing_reference_frames_count_nowhere() {
    let both = sides(FRAMES);
    let lost = (both.0.keep(|t| t != 5), both.1.keep(|t| t != 5));
    let properties = [("alarm-low", "101"), ("alarm-hold", "0"), ("alarm-share", "1")];
    let report = score(&properties, &lost.0, &lost.1).unwrap();
    let numbered = |input: &Input| input.retimed(|t| Some(FRAME * t as u64));
    assert_eq!(report.scores(), whole(&(numbered(&lost.0), numbered(&lost.1))));
    let marked: Vec<_> =
        report.frames.iter().filter(|frame| frame.discont).map(|frame| frame.index).collect();
    assert_eq!(marked, [4, 5]);
    let states: Vec<_> = report.frames.iter().map(|frame| frame.state).collect();
    assert_eq!((states[3], states[4], states[5], states[6]), {
        use ScoreState::{Discont, Scored};
        (Scored, Discont, Discont, Scored)
    });
    let pooled = &report.pooled[0];
    assert_eq!(
        (pooled.counts.scored, pooled.counts.discont, pooled.counts.unpaired),
        (FRAMES as u64 - 3, 2, 0)
    );
    let scores = report.scores();
    let counted: Vec<_> = (0..scores.len()).filter(|t| !(4..=5).contains(t)).map(|t| scores[t]).collect();
    let mean = counted.iter().sum::<f64>() / counted.len() as f64;
    assert!((pooled.stats.mean - mean).abs() < 1e-9, "{} and {mean}", pooled.stats.mean);
}

/// In files with a variable frame rate, a frame that lasts longer is no gap.
fn frames_of_varying_distance_are_no_gap() {
    let both = sides(FRAMES);
    let times = [0, 40, 100, 110, 200, 210, 220, 300, 400, 420, 430, 900];
    let vary = |input: &Input| input.unannounced().retimed(|t| Some(ClockTime::from_mseconds(times[t])));
    let report = score(&[], &vary(&both.0), &vary(&both.1)).unwrap();
    assert_eq!(report.scores(), whole(&both));
    assert_eq!((report.pooled[0].counts.scored, report.pooled[0].counts.discont), (FRAMES as u64, 0));
}

/// Where scores are waited for, the motion of reference frames without partners is waited for too, even if the element takes
/// them far faster than they are computed.
fn long_gaps_of_the_distorted_side_lose_no_history() {
    let large = |t: usize, x: usize, y: usize| (x * 3 + y + t * 5) as u8;
    let reference = Input::drawn_at((1920, 1080), 50, large);
    let ends = |t: usize| t == 0 || t == 49;
    let report = score(&[], &reference, &reference.keep(ends)).unwrap();
    assert_eq!(report.frames.iter().filter(|frame| frame.discont).count(), 0);
    assert_eq!(report.pooled[0].counts.scored, 2);
}
