// SPDX-License-Identifier: MPL-2.0

//! The choice of pairs, for all kinds of timestamps, rates, segments and caps.

use crate::common::rig::Rig;
use crate::common::{FPS, FRAME, Input, Report, deep, score, scores_within, sides};
use gst::ClockTime;
use gst::prelude::*;
use gst_video::{ValidVideoTimeCode, VideoTimeCodeFlags, VideoTimeCodeMeta};
use gsthipvmaf::event::Event;
use gsthipvmaf::meta::ScoreState;

use crate::process::{Function, functions};
use std::ops::Range;

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    gap_events_count_as_missing_frames,
    a_new_segment_goes_on_where_the_last_has_ended,
    segments_of_the_two_sides_may_differ,
    frames_outside_the_segment_are_left_out,
    new_caps_of_one_side_begin_its_section_only,
    new_caps_of_the_reference_go_downstream_with_their_first_frame,
    caps_that_are_repeated_change_nothing,
    a_flush_of_one_distorted_pad_changes_no_scores,
    a_flush_of_the_reference_alone_leaves_its_frames_out,
    windows_go_back_after_a_flush_of_the_reference_in_another_section,
    the_tolerance_may_change_while_playing,
    timestamps_may_be_missing_on_one_side,
    paused_and_playing_again_goes_on,
    frames_before_playing_are_not_lost,
    times_that_jump_on_both_sides_break_nothing,
    a_jump_on_one_side_leaves_frames_unpaired_and_pairs_no_wrong_ones,
    jitter_on_both_sides_changes_nothing,
    flagged_discontinuities_are_not_breaks,
    a_reference_of_twice_the_frame_rate_is_half_unpaired,
    a_distorted_stream_of_twice_the_frame_rate_gives_the_same_scores,
    frames_of_varying_length_are_paired_by_their_times,
    interlaced_video_is_refused_with_what_to_insert,
    pairing_by_number_does_not_look_at_times,
    a_gap_keeps_its_number,
    time_codes_pair_frames_over_midnight,
    frames_without_what_pairs_them_are_left_out,
    reference_timestamps_pair_frames_within_the_tolerance,
    a_missing_frame_may_be_what_a_viewer_saw,
    a_missing_frame_may_be_an_error,
    ten_bits_score_as_eight_do
];

const FRAMES: usize = 10;

fn ms(time: u64) -> ClockTime {
    ClockTime::from_mseconds(time)
}

fn scores_of_run(sides: &(Input, Input), run: Range<usize>) -> Vec<f64> {
    let keep = |input: &Input| input.keep(|t| run.contains(&t));
    score(&[], &keep(&sides.0), &keep(&sides.1)).unwrap().scores()
}

/// Returns the scores of all frames except for that of this number.
fn scores_without(sides: &(Input, Input), lost: usize) -> Vec<f64> {
    [scores_within(sides, 0..lost), scores_within(sides, lost + 1..FRAMES)].concat()
}

fn with_fps(input: &Input, fps: i32) -> Input {
    input.with_caps(|caps| caps.set("framerate", gst::Fraction::new(fps, 1)))
}

fn pooled(report: &Report) -> Vec<(&str, &str, u32, u64)> {
    report.pooled.iter().map(|p| (p.pad.as_str(), p.reason.as_str(), p.section, p.counts.scored)).collect()
}

fn gap_events_count_as_missing_frames() {
    let both = sides(FRAMES);
    for gap in ["ref_sink", "dist_sink"] {
        let rig = Rig::offline(&[]).play();
        for t in 0..FRAMES {
            for (pad, input) in [("ref_sink", &both.0), ("dist_sink", &both.1)] {
                if pad == gap && t == 4 {
                    rig.push_event(pad, gst::event::Gap::builder(FRAME * 4).duration(FRAME).build());
                } else {
                    rig.push(pad, &input.0[t]);
                }
            }
        }
        rig.end();
        let report = rig.finish().unwrap();
        if gap == "dist_sink" {
            assert_eq!(report.scores(), scores_without(&both, 4));
            assert_eq!(report.states()[4], ScoreState::Unpaired);
            assert_eq!((report.events[0].event, report.events[0].count), (Event::Unpaired, Some(1)));
        } else {
            let lost = (both.0.keep(|t| t != 4), both.1.keep(|t| t != 4));
            assert_eq!(report.scores(), score(&[], &lost.0, &lost.1).unwrap().scores());
            assert_eq!(report.buffers.len(), FRAMES - 1);
        }
    }
}

fn a_new_segment_goes_on_where_the_last_has_ended() {
    let both = sides(FRAMES);
    let start = ClockTime::from_seconds(100);
    let rig = Rig::offline(&[]).play();
    rig.push_pairs(&both.0.0[..5], &both.1.0[..5]);
    for pad in ["ref_sink", "dist_sink"] {
        rig.begin_segment(pad, start, FRAME * 5);
    }
    let moved = |input: &Input| input.keep(|t| t >= 5).retimed(|t| Some(start + FRAME * t as u64));
    rig.push_pairs(&moved(&both.0).0, &moved(&both.1).0);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.scores(), score(&[], &both.0, &both.1).unwrap().scores());
    for (t, frame) in report.frames.iter().enumerate() {
        let time = if t < 5 { FRAME * t as u64 } else { start + FRAME * (t as u64 - 5) };
        assert_eq!((frame.timestamp, frame.stream_time), (Some(time), Some(time)));
        assert_eq!(frame.running_time, Some(FRAME * t as u64));
    }
    let log = rig.log();
    let segments: Vec<_> = log.segments.iter().map(|(at, segment)| (*at, segment.start())).collect();
    assert_eq!(segments, [(0, Some(ClockTime::ZERO)), (5, Some(start))], "before the frame it is for");
}

/// The two sides need not have the same timestamps, only the same running times.
fn segments_of_the_two_sides_may_differ() {
    let both = sides(FRAMES);
    let rig = Rig::offline(&[]).play();
    rig.push_pairs(&both.0.0[..5], &both.1.0[..5]);
    let start = ClockTime::from_seconds(7);
    rig.begin_segment("dist_sink", start, FRAME * 5);
    let moved = both.1.keep(|t| t >= 5).retimed(|t| Some(start + FRAME * t as u64));
    rig.push_pairs(&both.0.0[5..], &moved.0);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.scores(), score(&[], &both.0, &both.1).unwrap().scores());
    assert_eq!(rig.log().segments.len(), 1);
}

fn frames_outside_the_segment_are_left_out() {
    let both = sides(FRAMES);
    let rig = Rig::offline(&[]).play();
    rig.push_pairs(&both.0.0[..2], &both.1.0[..2]);
    for pad in ["ref_sink", "dist_sink"] {
        rig.begin_segment(pad, FRAME * 4, FRAME * 2);
    }
    rig.push_pairs(&both.0.0[2..], &both.1.0[2..]);
    rig.end();
    let report = rig.finish().unwrap();
    let times: Vec<_> = report.buffers.iter().filter_map(|buffer| buffer.pts()).collect();
    assert_eq!(times, [0, 1, 4, 5, 6, 7, 8, 9].map(|t| FRAME * t));
    assert_eq!((report.frames.len(), report.pooled[0].counts.unpaired), (8, 0));
}

fn new_caps_of_one_side_begin_its_section_only() {
    let both = sides(FRAMES);
    let third = with_fps(&both.1, 50);
    let change = |input: &Input| Input([&both.1.0[..5], &input.0[5..]].concat());
    let rig = Rig::offline(&[]).with_renditions(&["other"]).play();
    let inputs = [("ref_sink", &both.0), ("dist_sink", &both.1), ("dist_0", &change(&third))];
    let report = rig.run(&inputs).unwrap();
    let mut found = pooled(&report);
    found.sort();
    assert_eq!(found, [("dist_0", "caps", 0, 5), ("dist_0", "eos", 1, 5), ("dist_sink", "eos", 0, 10)]);
    assert_eq!(report.scores_of("dist_sink"), score(&[], &both.0, &both.1).unwrap().scores());
    // The section ends as a stream does, and the next has the motion of the reference.
    let sections = [scores_of_run(&both, 0..5), scores_within(&both, 5..10)].concat();
    assert_eq!(report.scores_of("dist_0"), sections);
}

fn new_caps_of_the_reference_go_downstream_with_their_first_frame() {
    let both = sides(FRAMES);
    let change = |input: &Input| Input([&input.0[..5], &with_fps(input, 50).0[5..]].concat());
    let report = score(&[], &change(&both.0), &both.1).unwrap();
    assert_eq!(pooled(&report), [("dist_sink", "caps", 0, 5), ("dist_sink", "eos", 1, 5)]);
    let rig = Rig::offline(&[]).play();
    rig.run(&[("ref_sink", &change(&both.0)), ("dist_sink", &both.1)]).unwrap();
    let log = rig.log();
    let caps: Vec<_> = log
        .caps
        .iter()
        .map(|(at, caps)| (*at, caps.structure(0).unwrap().get::<gst::Fraction>("framerate").unwrap()))
        .collect();
    assert_eq!(caps, [(0, gst::Fraction::new(25, 1)), (5, gst::Fraction::new(50, 1))]);
}

/// Equal caps begin no section.
fn caps_that_are_repeated_change_nothing() {
    let both = sides(FRAMES);
    let rig = Rig::offline(&[]).play();
    rig.push_pairs(&both.0.0[..5], &both.1.0[..5]);
    for (pad, input) in [("ref_sink", &both.0), ("dist_sink", &both.1)] {
        rig.push_event(pad, gst::event::Caps::new(&input.0[0].caps_owned().unwrap()));
    }
    rig.push_pairs(&both.0.0[5..], &both.1.0[5..]);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.scores(), score(&[], &both.0, &both.1).unwrap().scores());
    assert_eq!(report.pooled.len(), 1);
}

fn a_flush_of_one_distorted_pad_changes_no_scores() {
    let both = sides(FRAMES);
    let rig = Rig::offline(&[]).with_renditions(&["other"]).play();
    let push = |frames: Range<usize>| {
        for t in frames {
            rig.push("ref_sink", &both.0.0[t]);
            rig.push("dist_sink", &both.1.0[t]);
            rig.push("dist_0", &both.1.0[t]);
        }
    };
    push(0..5);
    // All pairs are taken when the last but one has its scores.
    rig.wait_scores(8);
    rig.flush("dist_0");
    rig.begin_segment("dist_0", ClockTime::ZERO, ClockTime::ZERO);
    push(5..10);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.scores_of("dist_sink"), score(&[], &both.0, &both.1).unwrap().scores());
    assert_eq!(report.scores_of("dist_0"), report.scores_of("dist_sink"));
    assert_eq!(report.buffers.len(), FRAMES);
}

fn a_flush_of_the_reference_alone_leaves_its_frames_out() {
    let both = sides(FRAMES);
    let rig = Rig::offline(&[]).play();
    rig.push_pairs(&both.0.0[..5], &both.1.0[..5]);
    rig.wait_scores(4);
    rig.push("ref_sink", &both.0.0[5]);
    rig.flush("ref_sink");
    rig.begin_segment("ref_sink", ClockTime::ZERO, ClockTime::ZERO);
    for t in 6..FRAMES {
        rig.push("ref_sink", &both.0.0[t]);
        if t == 6 {
            rig.push("dist_sink", &both.1.0[5]);
        }
        rig.push("dist_sink", &both.1.0[t]);
    }
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(
        report.scores(),
        scores_of_run(&both, 0..5).into_iter().chain(scores_of_run(&both, 6..10)).collect::<Vec<_>>()
    );
    assert_eq!(report.stats.unwrap().get::<u64>("dist-unmatched"), Ok(1));
    // The next frame of the last one before the flush is unknown, so it is in no summary.
    let sections: Vec<_> =
        report.pooled.iter().map(|of| (of.section, of.reason.as_str(), of.counts.scored)).collect();
    assert_eq!(sections, [(0, "flush", 4), (1, "eos", 4)]);
}

fn windows_go_back_after_a_flush_of_the_reference_in_another_section() {
    let both = sides(12);
    let rig = Rig::offline(&[("window", "200000000"), ("window-interval", "200000000")]).play();
    rig.push_pairs(&both.0.0[..7], &both.1.0[..7]);
    // The motion of frame 5 is that of both neighbours, so frame 6 is taken by then.
    rig.wait_scores(6);
    rig.wait(|log| log.report.windows.len() == 1);
    rig.flush("ref_sink");
    rig.begin_segment("ref_sink", ClockTime::ZERO, ClockTime::ZERO);
    rig.push("dist_sink", &both.1.0[7]);
    for t in 0..12 {
        rig.push("ref_sink", &both.0.0[t]);
        if t > 7 {
            rig.push("dist_sink", &both.1.0[t]);
        }
    }
    rig.end();
    let report = rig.finish().unwrap();
    let ends: Vec<_> =
        report.windows.iter().map(|w| (w.section, w.running_time.unwrap().mseconds())).collect();
    assert_eq!(ends, [(0, 200), (1, 200), (1, 400)]);
}

fn the_tolerance_may_change_while_playing() {
    let both = sides(FRAMES);
    let late = both.1.retimed(|t| Some(FRAME * t as u64 + ms(15)));
    let rig = Rig::offline(&[]).play();
    rig.push_pairs(&both.0.0[..5], &late.0[..5]);
    rig.wait_scores(4);
    rig.element.set_property("pairing-tolerance", ms(10).nseconds());
    rig.push_pairs(&both.0.0[5..], &late.0[5..]);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.scores(), scores_within(&both, 0..5));
    assert_eq!((report.pooled[0].counts.scored, report.pooled[0].counts.unpaired), (5, 5));
}

fn timestamps_may_be_missing_on_one_side() {
    let both = sides(FRAMES);
    let expected = score(&[], &both.0, &both.1).unwrap().scores();
    let bare = |input: &Input| input.retimed(|_| None);
    assert_eq!(score(&[], &bare(&both.0), &both.1).unwrap().scores(), expected);
    assert_eq!(score(&[], &both.0, &bare(&both.1)).unwrap().scores(), expected);
}

fn paused_and_playing_again_goes_on() {
    let both = sides(FRAMES);
    let rig = Rig::offline(&[]).play();
    rig.push_pairs(&both.0.0[..5], &both.1.0[..5]);
    for state in [gst::State::Paused, gst::State::Playing] {
        rig.element.set_state(state).unwrap();
    }
    rig.push_pairs(&both.0.0[5..], &both.1.0[5..]);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.scores(), score(&[], &both.0, &both.1).unwrap().scores());
}

fn frames_before_playing_are_not_lost() {
    let both = sides(FRAMES);
    let rig = Rig::offline(&[]);
    rig.element.set_state(gst::State::Paused).unwrap();
    rig.push_pairs(&both.0.0[..5], &both.1.0[..5]);
    rig.element.set_state(gst::State::Playing).unwrap();
    rig.push_pairs(&both.0.0[5..], &both.1.0[5..]);
    rig.end();
    assert_eq!(rig.finish().unwrap().scores(), score(&[], &both.0, &both.1).unwrap().scores());
}

fn times_that_jump_on_both_sides_break_nothing() {
    let both = sides(FRAMES);
    let expected = score(&[], &both.0, &both.1).unwrap().scores();
    let forwards = |t: usize| Some(FRAME * t as u64 + if t < 5 { ClockTime::ZERO } else { ms(3_600_000) });
    let backwards = |t: usize| Some(FRAME * t as u64 + if t < 5 { ms(3_600_000) } else { ClockTime::ZERO });
    for times in [&forwards as &dyn Fn(usize) -> Option<ClockTime>, &backwards] {
        let report = score(&[], &both.0.retimed(times), &both.1.retimed(times)).unwrap();
        assert_eq!(report.scores(), expected);
        assert_eq!((report.buffers.len(), report.pooled[0].counts.unpaired), (FRAMES, 0));
    }
}

fn a_jump_on_one_side_leaves_frames_unpaired_and_pairs_no_wrong_ones() {
    let both = sides(FRAMES);
    let jump =
        |t: usize| Some(FRAME * t as u64 + if (3..6).contains(&t) { ms(3_600_000) } else { ClockTime::ZERO });
    let report = score(&[], &both.0, &both.1.retimed(jump)).unwrap();
    assert_eq!(report.scores(), scores_within(&both, 0..3), "the first of them waits for its reference");
    assert_eq!((report.pooled[0].counts.scored, report.pooled[0].counts.unpaired), (3, 7));
    let back = |t: usize| Some(if (3..6).contains(&t) { ms(t as u64) } else { FRAME * t as u64 });
    let report = score(&[], &both.0, &both.1.retimed(back)).unwrap();
    let others = [scores_within(&both, 0..3), scores_within(&both, 6..10)].concat();
    assert_eq!(report.scores(), others);
    assert_eq!(report.stats.unwrap().get::<u64>("dist-unmatched"), Ok(3));
}

fn jitter_on_both_sides_changes_nothing() {
    let both = sides(FRAMES);
    let jitter = |seed: usize| {
        move |t: usize| Some(ms(100) + FRAME * t as u64 + ms([0, 9, 3, 7, 5][(t * seed) % 5]) - ms(4))
    };
    let report = score(&[], &both.0.retimed(jitter(1)), &both.1.retimed(jitter(2))).unwrap();
    assert_eq!(report.scores(), score(&[], &both.0, &both.1).unwrap().scores());
}

fn flagged_discontinuities_are_not_breaks() {
    let both = sides(FRAMES);
    let flagged = |input: &Input| {
        input.changed(|t, buffer| {
            if t == 5 {
                buffer.set_flags(gst::BufferFlags::DISCONT | gst::BufferFlags::RESYNC);
            }
        })
    };
    let report = score(&[], &flagged(&both.0), &flagged(&both.1)).unwrap();
    assert_eq!(report.scores(), score(&[], &both.0, &both.1).unwrap().scores());
    assert!(report.buffers[5].flags().contains(gst::BufferFlags::DISCONT));
}

fn a_reference_of_twice_the_frame_rate_is_half_unpaired() {
    let both = sides(FRAMES);
    let double = Input((0..2 * FRAMES).map(|i| both.0.0[i / 2].clone()).collect());
    let double = with_fps(&double, 50).retimed(|i| Some(FRAME * i as u64 / 2));
    let double = double.changed(|_, buffer| buffer.set_duration(FRAME / 2));
    let report = score(&[], &double, &both.1).unwrap();
    let alone: Vec<f64> = (0..FRAMES).flat_map(|t| scores_of_run(&both, t..t + 1)).collect();
    assert_eq!(report.scores(), alone);
    assert_eq!((report.pooled[0].counts.scored, report.pooled[0].counts.unpaired), (10, 10));
    // With `missing-frame=repeat`, each frame counts for as long as it is shown.
    let repeated = score(&[("missing-frame", "repeat")], &double, &both.1).unwrap();
    assert_eq!(
        (
            repeated.pooled[0].counts.scored,
            repeated.pooled[0].counts.repeated,
            repeated.pooled[0].counts.unpaired
        ),
        (20, 10, 0)
    );
    assert!(repeated.frames.iter().all(|frame| frame.repeated == (frame.index % 2 == 1)));
}

fn a_distorted_stream_of_twice_the_frame_rate_gives_the_same_scores() {
    let both = sides(FRAMES);
    let double = Input((0..2 * FRAMES).map(|i| both.1.0[i / 2].clone()).collect());
    let double = with_fps(&double, 50).retimed(|i| Some(FRAME * i as u64 / 2));
    let report = score(&[], &both.0, &double).unwrap();
    assert_eq!(report.scores(), score(&[], &both.0, &both.1).unwrap().scores());
    assert_eq!(report.stats.unwrap().get::<u64>("dist-unmatched"), Ok(FRAMES as u64));
}

fn frames_of_varying_length_are_paired_by_their_times() {
    let both = sides(FRAMES);
    let times = [0, 40, 100, 110, 200, 210, 220, 300, 400, 420];
    let vary = |input: &Input| {
        let input = input.retimed(|t| Some(ms(times[t]))).changed(|_, buffer| buffer.set_duration(None));
        input.with_caps(|caps| {
            caps.set("framerate", gst::Fraction::new(0, 1));
            caps.set("max-framerate", gst::Fraction::new(100, 1));
        })
    };
    let both_vary = (vary(&both.0), vary(&both.1));
    let report = score(&[], &both_vary.0, &both_vary.1).unwrap();
    assert_eq!(report.scores(), score(&[], &both.0, &both.1).unwrap().scores());
    let lost = score(&[], &both_vary.0, &both_vary.1.keep(|t| t != 3)).unwrap();
    assert_eq!(lost.scores(), scores_without(&both, 3));
}

fn interlaced_video_is_refused_with_what_to_insert() {
    let both = sides(2);
    let interlaced = |input: &Input| input.with_caps(|caps| caps.set("interlace-mode", "interleaved"));
    let cases = [
        ("ref_sink", (interlaced(&both.0), both.1.clone())),
        ("dist_sink", (both.0.clone(), interlaced(&both.1))),
    ];
    for (pad, (reference, distorted)) in cases {
        let failure = score(&[], &reference, &distorted).unwrap_err();
        assert_eq!(failure.error.kind(), Some(gst::StreamError::Format));
        assert!(failure.text.contains("deinterlace") && failure.text.contains(pad), "{}", failure.text);
    }
}

fn pairing_by_number_does_not_look_at_times() {
    let both = sides(FRAMES);
    let wild = both.1.retimed(|t| Some(ms([900, 3, 77, 5000, 1, 2, 60, 700, 8, 9][t])));
    let report = score(&[("pairing", "index")], &both.0, &wild).unwrap();
    assert_eq!(report.scores(), score(&[], &both.0, &both.1).unwrap().scores());
    assert_eq!(report.pooled[0].counts.unpaired, 0);
    assert_eq!(report.frames[0].dist_running_time, Some(ms(900)));
}

fn a_gap_keeps_its_number() {
    let both = sides(FRAMES);
    let gap = both.1.changed(|t, buffer| {
        if t == 4 {
            buffer.remove_all_memory();
            buffer.set_flags(gst::BufferFlags::GAP);
        }
    });
    let report = score(&[("pairing", "index")], &both.0, &gap).unwrap();
    assert_eq!(report.scores(), scores_without(&both, 4));
}

/// Adds time codes from this many frames after 23:59:59:20.
fn with_time_codes(input: &Input, later: usize) -> Input {
    input.changed(|t, buffer| {
        let (fps, none) = (gst::Fraction::new(FPS as i32, 1), VideoTimeCodeFlags::empty());
        let mut code = ValidVideoTimeCode::new(fps, None, none, 23, 59, 59, 20, 0).unwrap();
        code.add_frames((t + later) as i64);
        VideoTimeCodeMeta::add(buffer, &code);
    })
}

fn time_codes_pair_frames_over_midnight() {
    let both = sides(FRAMES);
    let expected = score(&[], &both.0, &both.1).unwrap().scores();
    // The distorted video has other timestamps.
    let moved = both.1.retimed(|t| Some(ms(12_345) + FRAME * t as u64));
    let timecode = [("pairing", "timecode")];
    let report = score(&timecode, &with_time_codes(&both.0, 0), &with_time_codes(&moved, 0)).unwrap();
    assert_eq!(report.scores(), expected);
    // The first distorted frames and the last reference frames are missing.
    let reference = with_time_codes(&both.0, 0).keep(|t| t < 8);
    let distorted = with_time_codes(&moved, 0).keep(|t| t >= 2);
    let report = score(&timecode, &reference, &distorted).unwrap();
    assert_eq!(report.scores(), scores_of_run(&both, 0..8)[2..]);
    assert_eq!(report.pooled[0].counts.unpaired, 2);
}

fn frames_without_what_pairs_them_are_left_out() {
    let both = sides(FRAMES);
    let strip = |input: &Input, lost: usize| {
        let with = with_time_codes(input, 0);
        Input(
            with.0
                .iter()
                .zip(&input.0)
                .enumerate()
                .map(|(t, (with, without))| if t == lost { without.clone() } else { with.clone() })
                .collect(),
        )
    };
    let timecode = [("pairing", "timecode")];
    let report = score(&timecode, &with_time_codes(&both.0, 0), &strip(&both.1, 4)).unwrap();
    assert_eq!(report.scores(), scores_without(&both, 4));
    let report = score(&timecode, &strip(&both.0, 4), &with_time_codes(&both.1, 0)).unwrap();
    assert_eq!(report.scores(), scores_without(&both, 4));
    assert_eq!((report.buffers.len(), report.pooled[0].counts.unpaired), (FRAMES, 1));
    // Without time codes nothing is scored, and nothing hangs.
    let report = score(&timecode, &both.0, &both.1).unwrap();
    assert_eq!((report.pooled[0].counts.scored, report.pooled[0].counts.unpaired), (0, 10));
}

fn reference_timestamps_pair_frames_within_the_tolerance() {
    let both = sides(FRAMES);
    let ntp = gst::Caps::new_empty_simple("timestamp/x-ntp");
    let stamped = |input: &Input, off: u64| {
        input.changed(|t, buffer| {
            let time = ClockTime::from_seconds(3_900_000_000) + FRAME * t as u64 + ms(off);
            gst::ReferenceTimestampMeta::add(buffer, &ntp, time, None);
        })
    };
    let moved = both.1.retimed(|t| Some(ms(777) + FRAME * t as u64));
    let reference = stamped(&both.0, 0);
    let by_stamp = |tolerance: &str, off| {
        let properties = [("pairing", "reference-timestamp"), ("pairing-tolerance", tolerance)];
        score(&properties, &reference, &stamped(&moved, off)).unwrap()
    };
    let expected = score(&[], &both.0, &both.1).unwrap().scores();
    assert_eq!(by_stamp("5000000", 4).scores(), expected);
    assert_eq!(by_stamp("5000000", 5).scores(), expected);
    assert_eq!(by_stamp("5000000", 6).pooled[0].counts.scored, 0);
    assert_eq!(by_stamp("18446744073709551615", 19).scores(), expected);
}

fn a_missing_frame_may_be_what_a_viewer_saw() {
    let both = sides(FRAMES);
    let report = score(&[("missing-frame", "repeat")], &both.0, &both.1.keep(|t| t != 4)).unwrap();
    let seen = Input((0..FRAMES).map(|t| both.1.0[if t == 4 { 3 } else { t }].clone()).collect());
    let seen = seen.retimed(|t| Some(FRAME * t as u64));
    assert_eq!(report.scores(), score(&[], &both.0, &seen).unwrap().scores());
    let repeated: Vec<_> = report.frames.iter().filter(|frame| frame.repeated).collect();
    assert_eq!((repeated.len(), repeated[0].index), (1, 4));
    assert_eq!(repeated[0].dist_running_time, Some(FRAME * 3));
    assert_eq!((report.pooled[0].counts.repeated, report.pooled[0].counts.unpaired), (1, 0));
    // There is no frame to repeat before the first.
    let report = score(&[("missing-frame", "repeat")], &both.0, &both.1.keep(|t| t >= 2)).unwrap();
    assert_eq!((report.pooled[0].counts.scored, report.pooled[0].counts.unpaired), (8, 2));
}

fn a_missing_frame_may_be_an_error() {
    let both = sides(FRAMES);
    let failure = score(&[("missing-frame", "error")], &both.0, &both.1.keep(|t| t != 4)).unwrap_err();
    for text in ["dist_sink", "missing-frame", "0:00:00.160"] {
        assert!(failure.text.contains(text), "`{text}` is not in: {}", failure.text);
    }
    assert!(score(&[("missing-frame", "error")], &both.0, &both.1).is_ok());
}

/// Rows of ten-bit samples have twice the bytes, and are read to their end.
fn ten_bits_score_as_eight_do() {
    let both = sides(FRAMES);
    let eight = score(&[("psnr", "true")], &both.0, &both.1).unwrap();
    let ten = score(&[("psnr", "true")], &deep(&both.0), &deep(&both.1)).unwrap();
    for (eight, ten) in eight.frames.iter().zip(&ten.frames) {
        assert!((eight.score - ten.score).abs() < 0.5, "{} and {}", eight.score, ten.score);
    }
}
