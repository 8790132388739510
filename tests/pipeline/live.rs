// SPDX-License-Identifier: MPL-2.0

//! Live pipelines, with a clock that the tests move: latency, deadlines, and inputs that come and go.

use crate::common::gate::Gate;
use crate::common::rig::Rig;
use crate::common::{FRAME, Input, score, scores_within, sides, until};
use gst::ClockTime;
use gst::prelude::*;
use gst_base::prelude::*;
use gsthipvmaf::event::{Event, EventMessage, EventState};
use gsthipvmaf::meta::ScoreState;

use crate::process::{Function, functions};
use ScoreState::{Late, Scored, Unpaired};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    the_latency_is_that_of_the_lookahead_and_a_frame,
    without_meta_there_is_no_latency,
    the_latency_follows_the_frame_rate,
    frames_that_vary_in_length_make_the_latency_of_the_longest,
    a_negative_offset_adds_to_the_latency,
    the_offset_may_change_while_playing,
    the_distorted_input_may_drop_out_and_return,
    a_single_lost_frame_is_no_dropout,
    the_reference_may_drop_out_and_return,
    without_distorted_video_each_frame_leaves_at_its_deadline,
    force_live_works_to_the_clock_with_sources_that_are_not_live,
    inactive_pads_may_be_ignored_until_they_deliver,
    an_inactive_pad_may_end_while_it_is_ignored,
    late_pairs_are_skipped_and_reported,
    an_overload_leaves_the_scores_of_other_pairs_as_they_are,
    a_blockage_ends_when_a_second_was_in_time,
    a_blocked_downstream_is_reported_and_windows_go_on,
    a_worker_that_has_no_time_is_an_overload,
    the_time_before_the_element_was_added_is_no_dropout,
    a_blockage_is_not_blamed_on_the_streams,
    dropouts_that_come_and_go_are_reported_in_groups,
    nothing_is_skipped_where_it_is_forbidden,
    a_late_distorted_frame_is_dropped_and_does_not_shift_the_others,
    a_flush_begins_a_section_and_drops_the_frames_on_their_way,
    silence_of_both_inputs_is_reported_and_windows_go_on,
    inputs_that_never_come_are_reported,
    a_second_live_run_is_like_the_first
];

/// The latency of a 25 fps stream: the score needs the next frame, and that has to arrive.
const LATENCY: ClockTime = ClockTime::from_mseconds(80);

fn ms(time: u64) -> ClockTime {
    ClockTime::from_mseconds(time)
}

/// Pushes frames at their time into both pads, except those that are left out.
fn play_live(
    rig: &Rig,
    sides: &(Input, Input),
    frames: std::ops::Range<usize>,
    lost: impl Fn(&str, usize) -> bool,
) {
    for t in frames {
        if t > 0 {
            rig.advance_to(FRAME * t as u64);
        }
        for (pad, input) in [("ref_sink", &sides.0), ("dist_sink", &sides.1)] {
            if !lost(pad, t) {
                rig.push(pad, &input.0[t]);
            }
        }
    }
}

fn with_fps(input: &Input, fps: i32) -> Input {
    input.with_caps(|caps| caps.set("framerate", gst::Fraction::new(fps, 1)))
}

/// Returns the scores of an unbroken run of frames.
fn scores_of_run(sides: &(Input, Input), run: std::ops::Range<usize>) -> Vec<f64> {
    let keep = |input: &Input| input.keep(|t| run.contains(&t));
    score(&[], &keep(&sides.0), &keep(&sides.1)).unwrap().scores()
}

fn brief(event: &EventMessage) -> (Event, EventState, &str, Option<ClockTime>, Option<ClockTime>) {
    (event.event, event.state, &event.pad, event.since, event.running_time)
}

fn the_latency_is_that_of_the_lookahead_and_a_frame() {
    let (reference, _) = sides(1);
    for (fps, latency) in [(25, 80), (50, 40), (30, 66), (1, 2000)] {
        let rig = Rig::live(&[]).play();
        rig.push("ref_sink", &with_fps(&reference, fps).0[0]);
        rig.wait(|log| log.latency_changes > 0);
        assert_eq!(rig.latency().mseconds(), latency, "{fps} frames per second");
        assert_eq!(rig.deadline(), rig.latency());
    }
}

fn without_meta_there_is_no_latency() {
    let (reference, _) = sides(1);
    let rig = Rig::live(&[("attach-meta", "false")]).play();
    rig.push("ref_sink", &reference.0[0]);
    rig.expire(ClockTime::ZERO);
    rig.wait_buffers(1);
    assert_eq!((rig.latency(), rig.log().latency_changes), (ClockTime::ZERO, 0));
}

fn the_latency_follows_the_frame_rate() {
    let (reference, distorted) = sides(3);
    let rig = Rig::live(&[]).play();
    rig.push_pairs(&reference.0[..1], &distorted.0[..1]);
    rig.wait(|log| log.latency_changes > 0);
    assert_eq!(rig.latency(), LATENCY);
    rig.push("ref_sink", &with_fps(&reference, 50).0[1]);
    rig.wait(|log| log.latency_changes > 1);
    assert_eq!(rig.latency(), ms(40));
    rig.push("ref_sink", &with_fps(&reference, 10).0[2]);
    // The frame before waits for its partner.
    rig.expire(ms(80));
    rig.wait(|log| log.latency_changes > 2);
    assert_eq!(rig.latency(), ms(200));
}

fn frames_that_vary_in_length_make_the_latency_of_the_longest() {
    let (reference, _) = sides(3);
    let reference = reference.with_caps(|caps| caps.set("framerate", gst::Fraction::new(0, 1)));
    let reference = reference.changed(|i, buffer| buffer.set_duration(ms([40, 100, 20][i])));
    let rig = Rig::live(&[]).play();
    // The duration of the first frame is not known before it arrives.
    rig.push("ref_sink", &reference.0[0]);
    rig.expire(ClockTime::ZERO);
    rig.wait_buffers(1);
    assert_eq!(rig.latency(), ms(80));
    rig.push("ref_sink", &reference.0[1]);
    rig.expire(ms(40 + 80));
    rig.wait(|log| log.latency_changes > 1);
    assert_eq!(rig.latency(), ms(200));
    rig.push("ref_sink", &reference.0[2]);
    rig.expire(ms(80 + 200));
    rig.wait_buffers(3);
    assert_eq!((rig.latency(), rig.log().latency_changes), (ms(200), 2));
}

/// A distorted stream with a negative `ts-offset` is paired only if the reference waits for it.
fn a_negative_offset_adds_to_the_latency() {
    let both = sides(8);
    let late = both.1.retimed(|t| Some(FRAME * t as u64 + ms(100)));
    let rig = Rig::live(&[]);
    rig.pad("dist_sink").set_property("ts-offset", -100_000_000i64);
    let rig = rig.play();
    rig.push("ref_sink", &both.0.0[0]);
    rig.wait(|log| log.latency_changes > 0);
    assert_eq!(rig.latency(), LATENCY + ms(100));
    assert_eq!(rig.deadline(), LATENCY + ms(100));
    rig.push("ref_sink", &both.0.0[1]);
    rig.advance_to(ms(100));
    rig.push("dist_sink", &late.0[0]);
    rig.advance_to(ms(140));
    rig.push("dist_sink", &late.0[1]);
    let report = rig.wait_buffers(1);
    assert_eq!(report.states(), [Scored]);
    assert_eq!(report.scores(), scores_within(&both, 0..1));
}

fn the_offset_may_change_while_playing() {
    let (reference, distorted) = sides(3);
    let rig = Rig::live(&[]).play();
    rig.push_pairs(&reference.0[..2], &distorted.0[..2]);
    // Both pairs were taken.
    rig.wait_scores(1);
    rig.pad("dist_sink").set_property("ts-offset", -120_000_000i64);
    rig.push_pairs(&reference.0[2..], &distorted.retimed(|t| Some(FRAME * (t as u64 + 3))).0[2..]);
    rig.wait(|log| log.latency_changes > 1);
    assert_eq!(rig.latency(), LATENCY + ms(120));
}

fn the_distorted_input_may_drop_out_and_return() {
    let both = sides(16);
    let rig = Rig::live(&[]).play();
    play_live(&rig, &both, 0..16, |pad, t| pad == "dist_sink" && (4..9).contains(&t));
    rig.end();
    let report = rig.finish().unwrap();
    // The last frame before the gap left before the gap was known.
    let states = [vec![Scored; 3], vec![Late], vec![Unpaired; 5], vec![Scored; 7]].concat();
    assert_eq!(report.states(), states);
    assert_eq!(report.scores(), [scores_within(&both, 0..4), scores_within(&both, 9..16)].concat());
    let events: Vec<_> = report.events.iter().map(brief).collect();
    assert_eq!(
        events,
        [
            (Event::Dropout, EventState::Raised, "dist_sink", Some(FRAME * 4), Some(FRAME * 6)),
            (Event::Dropout, EventState::Cleared, "dist_sink", Some(FRAME * 9), Some(FRAME * 9)),
            (Event::Unpaired, EventState::Info, "dist_sink", Some(FRAME * 4), Some(FRAME * 8)),
        ]
    );
    assert_eq!(report.events[2].count, Some(5));
    assert_eq!((report.pooled[0].counts.scored, report.pooled[0].counts.unpaired), (11, 5));
}

fn a_single_lost_frame_is_no_dropout() {
    let both = sides(8);
    let rig = Rig::live(&[]).play();
    play_live(&rig, &both, 0..8, |pad, t| pad == "dist_sink" && t == 4);
    rig.end();
    let report = rig.finish().unwrap();
    let events: Vec<_> = report.events.iter().map(brief).collect();
    assert_eq!(events, [(Event::Unpaired, EventState::Info, "dist_sink", Some(FRAME * 4), Some(FRAME * 4))]);
}

fn the_reference_may_drop_out_and_return() {
    let both = sides(14);
    let rig = Rig::live(&[]).play();
    play_live(&rig, &both, 0..14, |pad, t| pad == "ref_sink" && (3..8).contains(&t));
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.buffers.len(), 9);
    let events: Vec<_> = report.events.iter().map(brief).collect();
    assert_eq!(
        events,
        [
            (Event::Dropout, EventState::Raised, "ref_sink", Some(FRAME * 3), Some(FRAME * 5)),
            (Event::Dropout, EventState::Cleared, "ref_sink", Some(FRAME * 8), Some(FRAME * 8)),
        ]
    );
    assert_eq!(report.stats.unwrap().get::<u64>("dist-unmatched"), Ok(5));
    // The frames beside the missing reference frames are in no summary.
    let pooled = &report.pooled[0];
    assert_eq!((pooled.counts.scored, pooled.counts.discont, pooled.counts.unpaired), (7, 2, 0));
}

/// Each frame leaves at its own deadline, driven by the clock alone.
fn without_distorted_video_each_frame_leaves_at_its_deadline() {
    let both = sides(6);
    let rig = Rig::live(&[]).play();
    for t in 0..6 {
        rig.push("ref_sink", &both.0.0[t]);
        rig.expire(FRAME * t as u64 + LATENCY);
        let report = rig.wait_buffers(t + 1);
        assert_eq!((report.buffers.len(), report.states()[t]), (t + 1, Unpaired));
    }
}

fn force_live_works_to_the_clock_with_sources_that_are_not_live() {
    let both = sides(2);
    let rig = Rig::offline(&[("force-live", "true")]).play();
    rig.push("ref_sink", &both.0.0[0]);
    rig.expire(LATENCY);
    assert_eq!(rig.wait_buffers(1).states(), [Unpaired]);
}

fn inactive_pads_may_be_ignored_until_they_deliver() {
    let both = sides(6);
    let rig = Rig::live(&[("ignore-inactive-pads", "true")]).play();
    rig.push("ref_sink", &both.0.0[0]);
    rig.expire(LATENCY);
    rig.wait_buffers(1);
    // From now on the element does not wait for the pad, though the clock stands still.
    rig.push("ref_sink", &both.0.0[1]);
    rig.push("ref_sink", &both.0.0[2]);
    assert_eq!(rig.wait_buffers(3).states(), [Unpaired; 3]);
    // But once it has delivered, it is waited for.
    rig.push("dist_sink", &both.1.0[3]);
    for t in 3..6 {
        rig.push("ref_sink", &both.0.0[t]);
        if t > 3 {
            rig.push("dist_sink", &both.1.0[t]);
        }
    }
    assert_eq!(rig.wait_buffers(5).states()[3..], [Scored; 2]);
}

/// The base class handles events between calls of the element only, so the element must not wait through them.
fn an_inactive_pad_may_end_while_it_is_ignored() {
    let both = sides(3);
    let rig = Rig::live(&[("ignore-inactive-pads", "true")]).play();
    rig.push("ref_sink", &both.0.0[0]);
    rig.expire(LATENCY);
    rig.wait_buffers(1);
    rig.end_of("ref_sink");
    let ended = rig.pad("ref_sink").downcast::<gst_base::AggregatorPad>().unwrap();
    // The element has something at all pads that it waits for from then on.
    until(|| ended.is_eos());
    rig.end_of("dist_sink");
    assert_eq!(rig.finish().unwrap().buffers.len(), 1);
}

/// Returns a rig whose downstream is too slow, as a slow encoder is.
fn overloaded(overload: &str) -> (Rig, (Input, Input)) {
    let both = sides(40);
    let properties =
        [("attach-meta", "false"), ("latency", "200000000"), ("overload", overload), ("max-in-flight", "64")];
    let rig = Rig::live(&properties).play();
    rig.close();
    rig.push_pairs(&both.0.0[..1], &both.1.0[..1]);
    rig.wait(|log| log.blocked);
    rig.push_pairs(&both.0.0[1..3], &both.1.0[1..3]);
    rig.clock.set_time(ms(1000));
    rig.open();
    rig.wait_buffers(3);
    (rig, both)
}

fn late_pairs_are_skipped_and_reported() {
    for overload in ["auto", "skip"] {
        let (rig, both) = overloaded(overload);
        // Frames that arrive in time are scored again.
        rig.push_pairs(&both.0.0[25..30], &both.1.0[25..30]);
        rig.end();
        let report = rig.finish().unwrap();
        let indices: Vec<_> = report.frames.iter().map(|frame| frame.index).collect();
        assert_eq!(indices, [0, 3, 4, 5, 6, 7]);
        assert_eq!(report.buffers.len(), 8);
        assert_eq!(report.scores()[2..], scores_of_run(&both, 25..30)[1..]);
        // The first of them comes after a gap in the reference, and is in no summary.
        let pooled = &report.pooled[0];
        assert_eq!((pooled.counts.scored, pooled.counts.discont, pooled.counts.skipped), (5, 1, 2));
        assert!(!report.frames[0].discont && report.frames[1].discont);
        let log = rig.log();
        let dropped = log.qos.iter().map(|message| match message.view() {
            gst::MessageView::Qos(qos) => {
                let (_, dropped) = qos.stats();
                (qos.get().1, dropped.value())
            }
            _ => unreachable!(),
        });
        let dropped: Vec<(Option<ClockTime>, i64)> = dropped.collect();
        assert_eq!(dropped, [(Some(FRAME), 1), (Some(FRAME * 2), 2)]);
        let events: Vec<_> = report.events.iter().map(brief).collect();
        let expected = (Event::DownstreamBlocked, EventState::Raised, "src", Some(FRAME), Some(FRAME));
        assert_eq!(events, [expected]);
    }
}

/// Pairs that are skipped in an overload do not lower the scores beside them, because the reference frames are still read.
fn an_overload_leaves_the_scores_of_other_pairs_as_they_are() {
    let both = sides(30);
    let whole = score(&[], &both.0, &both.1).unwrap().scores();
    let gate = Gate::closed();
    let properties = [("attach-meta", "false"), ("latency", "200000000"), ("max-in-flight", "1")];
    let rig = Rig::live(&properties).play();
    rig.push_pairs(&both.0.0[..4], &both.1.0[..4]);
    rig.push_pairs(&both.0.0[4..5], &gate.input(&both.1).0[4..5]);
    gate.wait_until_read();
    for t in 5..20 {
        rig.advance_to(FRAME * t as u64);
        rig.push_pairs(&both.0.0[t..=t], &both.1.0[t..=t]);
    }
    gate.open();
    for t in 20..30 {
        rig.advance_to(FRAME * t as u64);
        rig.push_pairs(&both.0.0[t..=t], &both.1.0[t..=t]);
    }
    rig.end();
    let report = rig.finish().unwrap();
    assert!(report.pooled[0].counts.skipped > 0, "nothing was left out");
    let unmarked = report.frames.iter().filter(|frame| !frame.discont);
    for frame in unmarked.clone() {
        assert_eq!(frame.common.score, whole[frame.index as usize], "frame {}", frame.index);
    }
    assert!(unmarked.count() > 8, "{:?}", report.frames.len());
}

fn a_blockage_ends_when_a_second_was_in_time() {
    let (rig, both) = overloaded("auto");
    for t in 25..40 {
        rig.push_pairs(&both.0.0[t..=t], &both.1.0[t..=t]);
    }
    let later = |input: &Input| input.retimed(|t| Some(FRAME * (40 + t as u64)));
    let (reference, distorted) = (later(&both.0), later(&both.1));
    rig.push_pairs(&reference.0[..20], &distorted.0[..20]);
    rig.end();
    let report = rig.finish().unwrap();
    let events: Vec<_> = report.events.iter().map(brief).collect();
    assert_eq!(
        events[1..],
        [(Event::DownstreamBlocked, EventState::Cleared, "src", Some(FRAME * 25), Some(FRAME * 50))]
    );
}

/// A push that blocks is reported while it lasts, and windows go on. The watchdog polls often if `stall-time` is short.
fn a_blocked_downstream_is_reported_and_windows_go_on() {
    let both = sides(60);
    let properties = [("attach-meta", "false"), ("window", "1000000000"), ("stall-time", "80000000")];
    let rig = Rig::live(&properties).play();
    rig.close();
    rig.push_pairs(&both.0.0[..1], &both.1.0[..1]);
    rig.wait(|log| log.blocked);
    for second in 1..6 {
        rig.clock.set_time(ms(1000 * second));
        rig.wait(|log| log.report.windows.len() >= second as usize);
    }
    rig.wait(|log| !log.report.events.is_empty());
    let log = rig.log();
    let events: Vec<_> =
        log.report.events.iter().map(|event| (event.event, event.state, event.pad.clone())).collect();
    assert_eq!(events, [(Event::DownstreamBlocked, EventState::Raised, "src".into())]);
    let ends: Vec<_> =
        log.report.windows.iter().map(|window| window.running_time.unwrap().seconds()).collect();
    assert_eq!(ends, [1, 2, 3, 4, 5]);
    drop(log);
    rig.open();
    for second in [6, 7, 8] {
        rig.clock.set_time(ms(1000 * second));
        let input = |input: &Input| input.retimed(|t| Some(FRAME * t as u64 + ms(1000 * second)));
        let (reference, distorted) = (input(&both.0), input(&both.1));
        rig.push_pairs(&reference.0[..1], &distorted.0[..1]);
        rig.wait(|log| log.report.buffers.len() as u64 > second - 5);
    }
    rig.wait(|log| log.report.events.len() > 1);
    let log = rig.log();
    let cleared = &log.report.events[1];
    assert_eq!((cleared.event, cleared.state), (Event::DownstreamBlocked, EventState::Cleared));
}

/// Frames that the worker has no time for are an overload, not a blocked downstream.
fn a_worker_that_has_no_time_is_an_overload() {
    let both = sides(40);
    let rig = Rig::live(&[("attach-meta", "false"), ("latency", "200000000")]).play();
    let gate = Gate::closed();
    let gated = gate.input(&both.1);
    rig.push("ref_sink", &both.0.0[0]);
    rig.push("dist_sink", &gated.0[0]);
    gate.wait_until_read();
    for t in 1..30 {
        rig.clock.set_time(FRAME * t as u64);
        rig.push("ref_sink", &both.0.0[t]);
        rig.push("dist_sink", &both.1.0[t]);
    }
    rig.clock.set_time(ms(5000));
    gate.open();
    rig.wait(|log| !log.report.events.is_empty());
    let log = rig.log();
    let first = &log.report.events[0];
    assert_eq!(
        (first.event, first.state, first.pad.as_str()),
        (Event::Overload, EventState::Raised, "ref_sink")
    );
    assert!(first.reason.as_ref().unwrap().contains("subsample"));
}

/// An element that is added to a running pipeline does not report the time before.
fn the_time_before_the_element_was_added_is_no_dropout() {
    let both = sides(10);
    let start = ClockTime::from_seconds(600);
    let rig = Rig::live(&[]);
    rig.clock.set_time(start);
    let rig = rig.play();
    let later = |input: &Input| input.retimed(|t| Some(start + FRAME * t as u64));
    let sides = (later(&both.0), later(&both.1));
    for t in 0..10 {
        rig.advance_to(start + FRAME * t as u64);
        rig.push_pairs(&sides.0.0[t..=t], &sides.1.0[t..=t]);
    }
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!((report.events, report.frames.len()), (vec![], 10));
    // A stream that never starts is reported after 5 s.
    let rig = Rig::live(&[]);
    rig.clock.set_time(start);
    let rig = rig.play();
    rig.expire(start + ms(5000));
    rig.wait(|log| log.report.events.len() == 2);
    let log = rig.log();
    let since: Vec<_> = log.report.events.iter().map(|event| (event.event, event.since)).collect();
    assert_eq!(since, [(Event::Dropout, Some(start)); 2]);
}

/// Frames that are missing while pairs are skipped are no dropout, unless they are still missing after that.
fn a_blockage_is_not_blamed_on_the_streams() {
    let (rig, both) = overloaded("auto");
    for t in 20..24u64 {
        rig.push("ref_sink", &both.0.0[t as usize]);
        rig.advance_to(FRAME * t + ms(200));
    }
    rig.wait_buffers(7);
    let events = |rig: &Rig| {
        rig.log().report.events.iter().map(|event| (event.event, event.state)).collect::<Vec<_>>()
    };
    assert_eq!(events(&rig), [(Event::DownstreamBlocked, EventState::Raised)]);
    assert!(rig.log().report.events[0].reason.as_ref().unwrap().contains("leaky=downstream"));
    for t in 24..30u64 {
        rig.push("ref_sink", &both.0.0[t as usize]);
        rig.advance_to(FRAME * t + ms(200));
    }
    rig.wait_buffers(13);
    // One second after the last skipped pair, that at 40 ms.
    let log = rig.log();
    let dropout = log.report.events.iter().find(|event| event.event == Event::Dropout).unwrap();
    assert_eq!((dropout.pad.as_str(), dropout.since), ("dist_sink", Some(FRAME * 20)));
    assert_eq!(dropout.running_time, Some(FRAME * 27));
}

/// One frame in eight is lost for half a minute, four at a time.
fn dropouts_that_come_and_go_are_reported_in_groups() {
    let frames = sides(800);
    let rig = Rig::offline(&[]).play();
    let lossy = frames.1.keep(|t| t % 32 < 28 || t > 780);
    let report = rig.run(&[("ref_sink", &frames.0), ("dist_sink", &lossy)]).unwrap();
    let of = |kind| report.events.iter().filter(move |event| event.event == kind);
    let dropouts: Vec<_> = of(Event::Dropout).map(|event| (event.state, event.times)).collect();
    let [raised, cleared] = [EventState::Raised, EventState::Cleared];
    assert_eq!(dropouts[..3], [(raised, Some(1)), (cleared, Some(1)), (raised, Some(1))]);
    assert_eq!(dropouts[3..], [(cleared, Some(23))]);
    assert!(of(Event::Unpaired).count() <= 5, "{:?}", report.events);
    assert_eq!(of(Event::Unpaired).map(|event| event.times.unwrap()).sum::<u64>(), 24);
    assert_eq!(of(Event::Unpaired).map(|event| event.count.unwrap()).sum::<u64>(), 96);
}

fn nothing_is_skipped_where_it_is_forbidden() {
    let (rig, both) = overloaded("wait");
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.scores(), scores_of_run(&both, 0..3));
    assert_eq!((report.pooled[0].counts.skipped, rig.log().qos.len()), (0, 0));
}

fn a_late_distorted_frame_is_dropped_and_does_not_shift_the_others() {
    let both = sides(10);
    let rig = Rig::live(&[]).play();
    play_live(&rig, &both, 0..7, |pad, t| pad == "dist_sink" && t == 4);
    // Its reference frame left at 240 ms.
    rig.push("dist_sink", &both.1.0[4]);
    play_live(&rig, &both, 7..10, |_, _| false);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.pooled[0].counts.unpaired, 1);
    assert_eq!(report.stats.as_ref().unwrap().get::<u64>("dist-unmatched"), Ok(1));
    assert_eq!(report.scores(), [scores_within(&both, 0..4), scores_within(&both, 5..10)].concat());
}

/// A flush, as of a seek.
fn a_flush_begins_a_section_and_drops_the_frames_on_their_way() {
    let both = sides(10);
    let rig = Rig::live(&[]).play();
    play_live(&rig, &both, 0..4, |_, _| false);
    rig.wait_buffers(3);
    rig.flush_all();
    for pad in ["ref_sink", "dist_sink"] {
        rig.begin_segment(pad, FRAME * 4, FRAME * 4);
    }
    rig.clock.set_time(FRAME * 4);
    rig.push_pairs(&both.0.0[4..5], &both.1.0[4..5]);
    play_live(&rig, &both, 5..10, |_, _| false);
    rig.end();
    let report = rig.finish().unwrap();
    let times: Vec<_> = report.buffers.iter().filter_map(|buffer| buffer.pts()).collect();
    assert_eq!(times, [0, 1, 2, 4, 5, 6, 7, 8, 9].map(|t| FRAME * t));
    assert_eq!(report.scores(), [scores_of_run(&both, 0..4), scores_of_run(&both, 4..10)].concat());
    let pooled: Vec<_> =
        report.pooled.iter().map(|p| (p.reason.as_str(), p.section, p.counts.scored)).collect();
    // The next frame of the last one before the flush is unknown, so it is in no summary.
    assert_eq!(pooled, [("flush", 0, 3), ("eos", 1, 6)]);
}

fn silence_of_both_inputs_is_reported_and_windows_go_on() {
    let both = sides(40);
    let rig = Rig::live(&[("window", "400000000"), ("window-interval", "400000000")]).play();
    play_live(&rig, &both, 0..10, |_, _| false);
    // The last frame lasts until 400 ms.
    rig.advance_to(ms(1300));
    rig.wait(|log| log.report.windows.len() == 3);
    let events: Vec<_> = rig.log().report.events.clone();
    let raised = |pad| (Event::Dropout, EventState::Raised, pad, Some(ms(400)), Some(ms(600)));
    assert_eq!(events.iter().map(brief).collect::<Vec<_>>(), [raised("ref_sink"), raised("dist_sink")]);
    play_live(&rig, &both, 33..40, |_, _| false);
    rig.end();
    let report = rig.finish().unwrap();
    let cleared = |pad| (Event::Dropout, EventState::Cleared, pad, Some(ms(1320)), Some(ms(1320)));
    let later: Vec<_> = report.events[2..].iter().map(brief).collect();
    assert_eq!(later, [cleared("ref_sink"), cleared("dist_sink")]);
    let windows: Vec<_> =
        report.windows.iter().map(|w| (w.running_time.unwrap().mseconds(), w.counts.scored)).collect();
    // The next frame of the last one before the silence is unknown.
    assert_eq!(windows, [(400, 9), (800, 0), (1200, 0)]);
    assert_eq!(report.frames.len(), 17);
}

fn inputs_that_never_come_are_reported() {
    let both = sides(10);
    let rig = Rig::live(&[("window", "1000000000"), ("overload", "wait")]).play();
    // Sources need time to connect.
    rig.expire(ms(5000));
    rig.wait(|log| log.report.events.len() == 2);
    let raised = |pad| (Event::Dropout, EventState::Raised, pad, Some(ms(0)), Some(ms(5000)));
    let events = rig.log().report.events.clone();
    assert_eq!(events.iter().map(brief).collect::<Vec<_>>(), [raised("ref_sink"), raised("dist_sink")]);
    rig.expire(ms(6000));
    rig.wait(|log| log.report.windows.last().is_some_and(|w| w.running_time == Some(ms(6000))));
    let late = both.0.0.iter().zip(&both.1.0).map(|(reference, distorted)| {
        [reference, distorted].map(|sample| {
            let mut buffer = sample.buffer_owned().unwrap();
            let pts = buffer.pts().unwrap() + ms(6000);
            buffer.make_mut().set_pts(pts);
            gst::Sample::builder().buffer(&buffer).caps(&sample.caps_owned().unwrap()).build()
        })
    });
    for [reference, distorted] in late {
        rig.push("ref_sink", &reference);
        rig.push("dist_sink", &distorted);
    }
    rig.end();
    let report = rig.finish().unwrap();
    let cleared = |pad| (Event::Dropout, EventState::Cleared, pad, Some(ms(6000)), Some(ms(6000)));
    let later: Vec<_> = report.events[2..].iter().map(brief).collect();
    assert_eq!(later, [cleared("ref_sink"), cleared("dist_sink")]);
    assert_eq!(report.frames.len(), 10);
}

fn a_second_live_run_is_like_the_first() {
    let both = sides(8);
    let rig = Rig::live(&[]).play();
    play_live(&rig, &both, 0..5, |_, t| t == 2);
    rig.wait_buffers(2);
    rig.element.set_base_time(rig.clock.time());
    rig.restart();
    // Some frames of the first run may have left while it was being stopped.
    let before = rig.log().report.buffers.len();
    let start = rig.clock.time();
    for t in 0..8 {
        if t > 0 {
            rig.advance_to(start + FRAME * t as u64);
        }
        rig.push("ref_sink", &both.0.0[t]);
        rig.push("dist_sink", &both.1.0[t]);
    }
    rig.end();
    let report = rig.finish().unwrap();
    let last = report.pooled.last().unwrap();
    assert_eq!((last.section, last.counts.scored, last.counts.unpaired), (0, 8, 0));
    let indices: Vec<_> = report.metas()[before..].iter().map(|meta| meta.index).collect();
    assert_eq!(indices, (0..8).collect::<Vec<_>>());
    let scores = report.scores();
    assert_eq!(scores[scores.len() - 8..], scores_of_run(&both, 0..8));
}
