// SPDX-License-Identifier: MPL-2.0

//! Frames are compared with their partners and no others, independently of the frame rate in caps.

use crate::common::rig::Rig;
use crate::common::{FRAME, Input, Report, score, sides};
use crate::process::{Function, functions};
use gst::ClockTime;
use gsthipvmaf::event::Event;

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    a_lost_frame_shifts_no_pairs_at_any_rate,
    jitter_and_losses_pair_no_others,
    a_file_that_was_slow_once_pairs_no_others,
    lost_frames_shift_no_pairs_at_any_playback_rate,
    wild_timestamps_cost_themselves,
    a_wild_timestamp_costs_itself_where_one_thread_feeds_both_sides,
    numbers_begin_anew_with_each_segment_of_either_side,
    slow_streams_of_no_announced_rate_do_not_drop_out,
    a_frame_far_ahead_of_the_clock_holds_nothing_up
];

const FRAMES: usize = 12;

fn ms(time: u64) -> ClockTime {
    ClockTime::from_mseconds(time)
}

/// Returns the frames at this distance in nanoseconds.
fn every(input: &Input, distance: u64) -> Input {
    input.retimed(|t| Some(ClockTime::from_nseconds(distance * t as u64)))
}

/// Asserts that each frame was compared with that of its time, except for the lost ones, which were not compared.
#[track_caller]
fn assert_partners(report: &Report, lost: &[u64], distance: u64) {
    let expected: Vec<_> = (0..FRAMES as u64).filter(|t| !lost.contains(t)).map(|t| t * distance).collect();
    let times = |time: fn(&gsthipvmaf::message::FrameMessage) -> Option<ClockTime>| -> Vec<_> {
        report.frames.iter().filter_map(time).map(ClockTime::nseconds).collect()
    };
    assert_eq!(times(|frame| frame.common.running_time), expected);
    assert_eq!(times(|frame| frame.dist_running_time), expected);
}

/// RTP and WebRTC announce no rate, and decoders announce wrong ones.
fn a_lost_frame_shifts_no_pairs_at_any_rate() {
    let both = sides(FRAMES);
    let announced: [Option<i32>; 3] = [None, Some(25), Some(100)];
    for distance in [ms(20).nseconds(), 16_666_667, ms(33).nseconds(), ms(500).nseconds()] {
        for announced in announced {
            let of = |input: &Input| {
                let input = every(input, distance);
                let bare = input.unannounced();
                match announced {
                    None => bare,
                    Some(fps) => bare.with_caps(|caps| caps.set("framerate", gst::Fraction::new(fps, 1))),
                }
            };
            for lost in [0, 1, 5] {
                let report = score(
                    &[],
                    &of(&both.0),
                    &of(&both.1.retimed(|t| Some(ms(t as u64)))).keep(|t| t != lost),
                );
                let report = report.unwrap();
                assert_partners(&report, &[lost as u64], distance);
                assert_eq!(report.pooled[0].counts.unpaired, 1, "{distance} {announced:?} {lost}");
            }
        }
    }
}

/// Returns streams without a frame rate, whose timestamps jitter by up to two fifths of a frame.
fn jittering() -> (Input, Input) {
    let both = sides(FRAMES);
    let jitter =
        |seed: u64| move |t: usize| Some(ms(100 + 40 * t as u64) + ms((t as u64 * seed + 3) % 17) - ms(8));
    (both.0.unannounced().retimed(jitter(5)), both.1.unannounced().retimed(jitter(7)))
}

/// Asserts that each frame but the lost one was compared with its partner.
#[track_caller]
fn assert_jittering_partners(report: &Report, lost: usize) {
    let numbers = |time: Option<ClockTime>| (time.unwrap() + ms(20) - ms(100)).nseconds() / FRAME.nseconds();
    for frame in &report.frames {
        assert_eq!(numbers(frame.common.running_time), numbers(frame.dist_running_time), "without {lost}");
    }
    assert_eq!(report.frames.len(), FRAMES - 1, "without {lost}");
}

fn jitter_and_losses_pair_no_others() {
    let (reference, distorted) = jittering();
    for lost in 1..FRAMES - 1 {
        let report = score(&[], &reference, &distorted.keep(|t| t != lost)).unwrap();
        assert_jittering_partners(&report, lost);
    }
}

/// The first pair is decided without the next distorted frame, which arrives late.
fn a_file_that_was_slow_once_pairs_no_others() {
    let (reference, distorted) = jittering();
    for lost in [5, 8] {
        let rig = Rig::offline(&[]).play();
        let streaming = rig.streaming("ref_sink", &reference);
        rig.push("dist_sink", &distorted.0[0]);
        streaming.wait_taken(2);
        let rest = rig.streaming("dist_sink", &distorted.keep(|t| t != 0 && t != lost));
        for streaming in [streaming, rest] {
            streaming.join();
        }
        assert_jittering_partners(&rig.finish().unwrap(), lost);
    }
}

/// If video is played faster, slower or backwards, the distance of frames differs from their duration.
fn lost_frames_shift_no_pairs_at_any_playback_rate() {
    let both = sides(FRAMES);
    for rate in [2.0f64, 8.0, 0.5, -1.0, -2.0] {
        let rig = Rig::offline(&[]).play();
        let end = FRAME * FRAMES as u64;
        for (pad, input) in [("ref_sink", &both.0), ("dist_sink", &both.1)] {
            rig.push_caps(pad, &input.0[0]);
            let mut segment = gst::FormattedSegment::<ClockTime>::new();
            segment.set_rate(rate);
            segment.set_start(ClockTime::ZERO);
            segment.set_stop(end);
            rig.push_event(pad, gst::event::Segment::new(&segment));
        }
        let order: Vec<_> = if rate > 0.0 { (0..FRAMES).collect() } else { (0..FRAMES).rev().collect() };
        let played = |input: &Input, lost: Option<usize>| {
            Input(order.iter().filter(|t| Some(**t) != lost).map(|t| input.0[*t].clone()).collect())
        };
        let report =
            rig.run(&[("ref_sink", &played(&both.0, None)), ("dist_sink", &played(&both.1, Some(4)))]);
        let report = report.unwrap();
        assert_eq!(report.frames.len(), FRAMES - 1, "rate {rate}");
        for frame in &report.frames {
            assert_eq!(frame.common.running_time, frame.dist_running_time, "rate {rate}");
        }
    }
}

/// A frame with a wrong timestamp is lost, but not the frames after it.
fn wild_timestamps_cost_themselves() {
    let both = sides(FRAMES);
    for wild in [ClockTime::MAX - ms(10), ClockTime::from_seconds(7200)] {
        for pads in [&["ref_sink"][..], &["dist_sink"], &["ref_sink", "dist_sink"]] {
            for properties in [&[][..], &[("window", "1000000000")], &[("window", "18446744073709551615")]] {
                let of = |pad: &str, input: &Input| match pads.contains(&pad) {
                    true => input.retimed(|t| Some(if t == 5 { wild } else { FRAME * t as u64 })),
                    false => input.clone(),
                };
                let rig = Rig::offline(properties).play();
                let inputs = (of("ref_sink", &both.0), of("dist_sink", &both.1));
                let report = rig.run(&[("ref_sink", &inputs.0), ("dist_sink", &inputs.1)]).unwrap();
                assert_partners(&report, &[5], FRAME.nseconds());
                assert_eq!(report.buffers.len(), FRAMES, "each frame leaves");
                assert_eq!(report.pooled[0].counts.unpaired, 1);
                assert!(report.windows.len() <= 1, "{:?}", report.windows);
                let jumps = report.events.iter().filter(|event| event.event == Event::TimestampJump);
                let mut jumps: Vec<_> = jumps.map(|event| event.pad.as_str()).collect();
                jumps.sort_by_key(|pad| *pad != "ref_sink");
                assert_eq!(jumps, pads);
            }
        }
    }
}

/// The frame behind it shows that a timestamp is wrong, also if it is the first of a new segment. It comes only after the
/// frames before it were taken.
fn a_wild_timestamp_costs_itself_where_one_thread_feeds_both_sides() {
    let both = sides(FRAMES);
    let wild = |t: usize| Some(FRAME * t as u64 + ms(3_600_000));
    for (side, segment) in
        [("ref_sink", false), ("dist_sink", false), ("ref_sink", true), ("dist_sink", true)]
    {
        let rig = Rig::offline(&[]).play();
        let inputs = [("ref_sink", &both.0), ("dist_sink", &both.1)];
        for (t, (pad, input)) in (0..FRAMES).flat_map(|t| inputs.map(|input| (t, input))) {
            let is_wild = pad == side && [3, 7].contains(&t);
            let input = if is_wild { &input.retimed(wild) } else { input };
            rig.push(pad, &input.0[t]);
            if is_wild && segment {
                rig.push_event(pad, gst::event::Segment::new(&gst::FormattedSegment::<ClockTime>::new()));
            }
        }
        rig.end();
        let report = rig.finish().unwrap();
        let paired: Vec<_> = report.frames.iter().map(|frame| frame.running_time.unwrap()).collect();
        let certain = (0..FRAMES).filter(|t| ![3, 7, 8].contains(t)).map(|t| FRAME * t as u64);
        assert!(certain.clone().all(|time| paired.contains(&time)), "{side} {segment}: {paired:?}");
        assert_eq!(report.pooled[0].counts.unpaired, (FRAMES - paired.len()) as u64);
        let jumps = report.events.iter().filter(|event| event.event == Event::TimestampJump);
        assert!(jumps.clone().count() > 0 && jumps.clone().all(|event| event.pad == side));
    }
}

/// New segments on both sides, as of concat, begin a section; updates of a segment do not.
fn numbers_begin_anew_with_each_segment_of_either_side() {
    let both = sides(FRAMES);
    for updates in [false, true] {
        let rig = Rig::offline(&[("pairing", "index")]).play();
        rig.push_pairs(&both.0.0[..5], &both.1.0[..4]);
        // One side has a frame less before the next segment.
        rig.push("ref_sink", &both.0.0[4]);
        for pad in ["ref_sink", "dist_sink"] {
            let mut segment = gst::FormattedSegment::<ClockTime>::new();
            segment.set_base(if updates { ClockTime::ZERO } else { FRAME * 5 });
            rig.push_event(pad, gst::event::Segment::new(&segment));
        }
        for t in 5..FRAMES {
            rig.push("dist_sink", &both.1.0[t]);
            rig.push("ref_sink", &both.0.0[t]);
        }
        rig.end();
        let report = rig.finish().unwrap();
        let times: Vec<_> = report.frames.iter().map(|frame| frame.index).collect();
        let expected: Vec<_> =
            if updates { (0..11).collect() } else { (0..12).filter(|t| *t != 4).collect() };
        assert_eq!(times, expected, "updates: {updates}");
    }
}

/// Slow streams, such as shared screens, may pause without a dropout.
fn slow_streams_of_no_announced_rate_do_not_drop_out() {
    let both = sides(FRAMES);
    for varies in [false, true] {
        let of = |input: &Input| {
            let input = every(&input.unannounced(), ms(500).nseconds());
            input.with_caps(|caps| {
                if varies {
                    caps.set("max-framerate", gst::Fraction::new(30, 1));
                }
            })
        };
        let (reference, distorted) = (of(&both.0), of(&both.1));
        let rig = Rig::live(&[]).play();
        for t in 0..8 {
            rig.push("ref_sink", &reference.0[t]);
            rig.push("dist_sink", &distorted.0[t]);
            rig.advance_to(ms(500 * (t as u64 + 1) - 10));
        }
        rig.end();
        let report = rig.finish().unwrap();
        assert_eq!(report.events, [], "varies: {varies}");
        assert_eq!(report.frames.len(), 8);
    }
}

/// In live pipelines, a frame far in the future on one side does not block the others.
fn a_frame_far_ahead_of_the_clock_holds_nothing_up() {
    let both = sides(FRAMES);
    // The stream ends after the last frame.
    for (side, wild) in
        [("ref_sink", 4), ("dist_sink", 4), ("ref_sink", FRAMES - 1), ("dist_sink", FRAMES - 1)]
    {
        let rig = Rig::live(&[("window", "200000000"), ("window-interval", "200000000")]).play();
        for t in 0..FRAMES {
            for (pad, input) in [("ref_sink", &both.0), ("dist_sink", &both.1)] {
                let ahead = pad == side && t == wild;
                let at =
                    |t: usize| Some(FRAME * t as u64 + if ahead { ms(3_600_000) } else { ClockTime::ZERO });
                rig.push(pad, &input.retimed(at).0[t]);
            }
            rig.advance_to(FRAME * t as u64 + ms(120));
        }
        rig.end();
        let report = rig.finish().unwrap();
        let frames: Vec<_> = report.frames.iter().map(|frame| frame.index).collect();
        assert_eq!(frames, (0..12).filter(|t| *t != wild as i32).collect::<Vec<_>>(), "{side}");
        let jumps = report.events.iter().filter(|event| event.event == Event::TimestampJump);
        assert_eq!(jumps.map(|event| event.pad.as_str()).collect::<Vec<_>>(), [side]);
        assert!(report.events.iter().all(|event| event.event != Event::Dropout));
        let ends: Vec<_> = report.windows.iter().filter_map(|window| window.common.running_time).collect();
        assert_eq!(ends[..2], [ms(200), ms(400)]);
        assert!(ends.iter().all(|end| *end < ms(1000)), "{ends:?}");
    }
}
