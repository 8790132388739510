// SPDX-License-Identifier: MPL-2.0

//! Properties that change while playing or between two runs: each change has its effect, and no other.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use gst::ClockTime;
use gst::prelude::*;
use gsthipvmaf::event::{Event, EventMessage, EventState};
use gsthipvmaf::message::FrameMessage;
use gsthipvmaf::meta::ScoreState;

use crate::common::clip::Clip;
use crate::common::rig::Rig;
use crate::common::{FRAME, Input, Report, coarse, entries, moving, score, scores_within, sides};
use crate::process::{Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    a_stream_that_is_switched_off_holds_nothing_back,
    the_only_stream_may_be_switched_off_and_on,
    a_live_stream_that_is_switched_off_has_its_score_at_once,
    a_stream_that_is_switched_in_the_middle_of_a_step_is_paired_right,
    a_run_that_others_break_is_marked,
    one_group_in_flight_goes_through_changes_as_several_do,
    an_alarm_of_scores_outlives_every_change_of_the_watch,
    alarms_of_pictures_outlive_every_change_of_the_watch,
    an_alarm_that_is_switched_off_is_cleared,
    a_window_outlives_changes_of_alarms,
    a_run_with_other_settings_has_another_latency
];

fn ms(time: u64) -> ClockTime {
    ClockTime::from_mseconds(time)
}

fn scores_of_run(sides: &(Input, Input), run: Range<usize>) -> Vec<f64> {
    let keep = |input: &Input| input.keep(|t| run.contains(&t));
    score(&[], &keep(&sides.0), &keep(&sides.1)).unwrap().scores()
}

fn motion(frame: &FrameMessage) -> f64 {
    frame.features.iter().find(|(name, _)| name == "integer_motion2").unwrap().1
}

/// Asserts the scores of a rendition that was disabled between two runs.
#[track_caller]
fn assert_runs(report: &Report, pad: &str, both: &(Input, Input), runs: [Range<usize>; 2]) {
    let frames: Vec<_> = report.frames.iter().filter(|frame| frame.pad == pad).collect();
    let indices: Vec<_> = frames.iter().map(|frame| frame.index as usize).collect();
    assert_eq!(indices, runs.clone().into_iter().flatten().collect::<Vec<_>>());
    // The first run ends as a stream does. The second starts with the reference's motion at that time.
    let expected = [scores_of_run(both, runs[0].clone()), scores_within(both, runs[1].clone())].concat();
    assert_eq!(report.scores_of(pad), expected);
    // The next reference frame was unknown when the rendition was disabled.
    let marked: Vec<_> =
        frames.iter().filter(|frame| frame.discont).map(|frame| frame.index as usize).collect();
    assert_eq!(marked, [runs[0].end - 1]);
}

/// Each buffer has the entries of the renditions that were enabled when it was taken.
#[track_caller]
fn assert_entries(report: &Report, pad: &str, runs: [Range<usize>; 2]) {
    for (t, buffer) in report.buffers.iter().enumerate() {
        let has = entries(buffer).iter().any(|entry| entry.get::<&str>("pad") == Ok(pad));
        assert_eq!(has, runs.iter().any(|run| run.contains(&t)), "frame {t}");
    }
}

fn a_stream_that_is_switched_off_holds_nothing_back() {
    let both = sides(12);
    let rig = Rig::offline(&[]).with_renditions(&["switched"]).play();
    let push = |frames: Range<usize>| {
        for t in frames {
            rig.push("dist_0", &both.1.0[t]);
            rig.push("ref_sink", &both.0.0[t]);
            rig.push("dist_sink", &both.1.0[t]);
        }
    };
    push(0..4);
    rig.wait_scores(6);
    rig.pad("dist_0").set_property("enabled", false);
    // The score of the last pair is due at once, because no next pair follows.
    rig.wait(|log| log.report.scores_of("dist_0").len() == 4);
    push(4..8);
    // The last frame waits for the score of the other rendition.
    rig.wait_buffers(7);
    rig.wait(|log| log.report.scores_of("dist_sink").len() == 7);
    rig.pad("dist_0").set_property("enabled", true);
    push(8..12);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.buffers.len(), 12);
    assert_eq!(report.scores_of("dist_sink"), score(&[], &both.0, &both.1).unwrap().scores());
    assert_runs(&report, "dist_0", &both, [0..4, 8..12]);
    assert_entries(&report, "dist_0", [0..4, 8..12]);
    let states = report.buffers.iter().flat_map(|buffer| entries(buffer));
    let marked =
        states.into_iter().filter(|entry| entry.get::<&str>("state") != Ok("scored")).collect::<Vec<_>>();
    assert_eq!(marked.len(), 1, "the last pair before it was switched off: {marked:?}");
}

fn the_only_stream_may_be_switched_off_and_on() {
    let both = sides(12);
    let rig = Rig::offline(&[]).play();
    rig.push_pairs(&both.0.0[..4], &both.1.0[..4]);
    rig.wait_scores(3);
    rig.element.static_pad("dist_sink").unwrap().set_property("enabled", false);
    // The frame itself leaves with the next one, which wakes the streaming thread.
    rig.wait_scores(4);
    rig.push_pairs(&both.0.0[4..8], &both.1.0[4..8]);
    rig.wait_buffers(8);
    rig.pad("dist_sink").set_property("enabled", true);
    rig.push_pairs(&both.0.0[8..], &both.1.0[8..]);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.buffers.len(), 12);
    assert_runs(&report, "dist_sink", &both, [0..4, 8..12]);
    assert_entries(&report, "dist_sink", [0..4, 8..12]);
}

fn a_live_stream_that_is_switched_off_has_its_score_at_once() {
    let both = sides(12);
    let rig = Rig::live(&[("overload", "wait")]).with_renditions(&["switched"]).play();
    let play = |frames: Range<usize>| {
        for t in frames {
            if t > 0 {
                rig.advance_to(FRAME * t as u64);
            }
            for (pad, input) in [("dist_0", &both.1), ("ref_sink", &both.0), ("dist_sink", &both.1)] {
                rig.push(pad, &input.0[t]);
            }
        }
    };
    play(0..4);
    rig.wait_scores(6);
    rig.pad("dist_0").set_property("enabled", false);
    rig.wait(|log| log.report.scores_of("dist_0").len() == 4);
    play(4..8);
    rig.wait(|log| log.report.scores_of("dist_sink").len() == 7);
    // Only the last pair of the other rendition waits.
    assert_eq!(rig.stats().get::<u64>("in-flight"), Ok(1));
    rig.pad("dist_0").set_property("enabled", true);
    play(8..12);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.states(), [ScoreState::Scored; 12]);
    assert_runs(&report, "dist_0", &both, [0..4, 8..12]);
    assert_entries(&report, "dist_0", [0..4, 8..12]);
}

/// One of the two streams has only every second frame, so if the element confuses them, it pairs the wrong frames.
fn a_stream_that_is_switched_in_the_middle_of_a_step_is_paired_right() {
    const FRAMES: usize = 400;
    let reference = Input::drawn(FRAMES, moving);
    let distorted = Input::drawn(FRAMES, |t, x, y| coarse(moving(t, x, y)));
    let rig = Rig::offline(&[]).with_renditions(&["whole"]).play();
    let switched = rig.pad("dist_sink");
    let done = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            for enabled in [false, true].into_iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                switched.set_property("enabled", enabled);
            }
        });
        let inputs = [
            ("ref_sink", &reference),
            ("dist_sink", &distorted.keep(|t| t % 2 == 0)),
            ("dist_0", &distorted),
        ];
        let report = rig.run(&inputs);
        done.store(true, Ordering::Relaxed);
        report.unwrap()
    });
    for frame in &report.frames {
        assert_eq!(frame.dist_running_time, frame.running_time, "{} {}", frame.pad, frame.index);
    }
    let whole: Vec<_> =
        report.frames.iter().filter(|frame| frame.pad == "dist_0").map(|frame| frame.index).collect();
    assert_eq!(whole, (0..FRAMES as i32).collect::<Vec<_>>());
}

/// A pad that is added, or a new frame size on one pad, may end the runs of all pads. The frames on both sides of the break
/// are then marked `discont`.
fn a_run_that_others_break_is_marked() {
    let both = sides(12);
    let large = Input::drawn_at((96, 64), 12, |t, x, y| coarse(moving(t, x, y)));
    for joins in [false, true] {
        let labels = if joins { &[][..] } else { &["changing"] };
        let mut rig = Rig::offline(&[("scale-method", "bicubic")]).with_renditions(labels).play();
        for t in 0..12 {
            if t == 6 && joins {
                rig.request();
            }
            let other = if t < 6 { &both.1 } else { &large };
            if t >= 6 || !joins {
                rig.push("dist_0", &other.0[t]);
            }
            rig.push("ref_sink", &both.0.0[t]);
            rig.push("dist_sink", &both.1.0[t]);
        }
        rig.end();
        let report = rig.finish().unwrap();
        let frames: Vec<_> = report.frames.iter().filter(|frame| frame.pad == "dist_sink").collect();
        assert_eq!(frames.len(), 12);
        for frame in &frames[1..] {
            assert!(motion(frame) > 0.0 && !frame.discont, "frame {}, a stream joins: {joins}", frame.index);
        }
    }
}

/// The same holds with `max-in-flight=1`.
fn one_group_in_flight_goes_through_changes_as_several_do() {
    const FRAMES: usize = 8;
    let settings = [("model-filename", "vmaf_v1.0.16_3d0h"), ("scale-method", "bicubic")];
    let [full, half] = [(352, 336), (176, 168)].map(|(width, height)| {
        let clip = Clip { banded: false, ..Clip::banded(width, height, 8, "420", FRAMES) };
        [false, true].map(|distorted| Input::planar(&clip, distorted))
    });
    let alone = [settings[0], settings[1], ("max-in-flight", "1")];
    let rig = Rig::offline(&alone).with_renditions(&["changing"]).play();
    for t in 0..FRAMES {
        // The rendition is disabled for two frames, and has another size in the end.
        rig.pad("dist_0").set_property("enabled", !(2..4).contains(&t));
        let changing = if t < 6 { &full[1] } else { &half[1] };
        for (pad, input) in [("dist_0", changing), ("ref_sink", &full[0]), ("dist_sink", &full[1])] {
            rig.push(pad, &input.0[t]);
        }
        // The score of the last pair waits for the next.
        rig.wait(|log| log.report.scores_of("dist_sink").len() >= t);
    }
    rig.end();
    let report = rig.finish().unwrap();
    let expected = |distorted: &Input, run: Range<usize>| {
        let keep = |input: &Input| input.keep(|t| run.contains(&t));
        score(&settings, &keep(&full[0]), &keep(distorted)).unwrap().scores()
    };
    assert_eq!(report.buffers.len(), FRAMES);
    assert_eq!(report.scores_of("dist_sink"), expected(&full[1], 0..FRAMES));
    let runs = [(&full[1], 0..2), (&full[1], 4..6), (&half[1], 6..8)];
    let changing: Vec<f64> = runs.into_iter().flat_map(|(distorted, run)| expected(distorted, run)).collect();
    assert_eq!(report.scores_of("dist_0"), changing);
}

/// Returns frames of which some are badly coded.
fn partly_bad(frames: usize, bad: impl Fn(usize) -> bool) -> (Input, Input) {
    let distorted = |t: usize, x, y| if bad(t) { coarse(moving(t, x, y)) } else { moving(t, x, y) };
    (Input::drawn(frames, moving), Input::drawn(frames, distorted))
}

const ALARM: [(&str, &str); 4] =
    [("alarm-low", "65"), ("alarm-clear", "80"), ("alarm-hold", "200000000"), ("clear-hold", "320000000")];
const PICTURE: [(&str, &str); 2] = [("freeze-time", "400000000"), ("black-time", "400000000")];

/// Each property of alarms and windows, with a value that makes no difference for these frames.
const CHANGES: [(&str, &str); 10] = [
    ("window", "2000000000"),
    ("window-interval", "500000000"),
    ("alarm-low", "66"),
    ("alarm-clear", "79"),
    ("alarm-hold", "240000000"),
    ("clear-hold", "280000000"),
    ("freeze-time", "440000000"),
    ("freeze-level", "0.11"),
    ("black-time", "440000000"),
    ("black-level", "0.08"),
];

fn states(events: &[EventMessage]) -> Vec<(Event, EventState)> {
    events.iter().map(|event| (event.event, event.state)).collect()
}

/// Plays until an alarm is raised by frames that last up to the fortieth of sixty, then changes a property.
#[track_caller]
fn alarm_changed(
    both: &(Input, Input),
    properties: &[(&str, &str)],
    change: (&str, &str),
) -> Vec<EventMessage> {
    let rig = Rig::offline(properties).play();
    rig.push_pairs(&both.0.0[..25], &both.1.0[..25]);
    rig.wait(|log| !log.report.events.is_empty());
    rig.wait_scores(24);
    rig.element.set_property_from_str(change.0, change.1);
    rig.push_pairs(&both.0.0[25..], &both.1.0[25..]);
    rig.end();
    rig.finish().unwrap().events
}

fn frozen_and_black() -> [(Event, (Input, Input)); 2] {
    let held = |t: usize| if (5..40).contains(&t) { 5 } else { t };
    let reference = Input::drawn(60, moving);
    let frozen = Input::drawn(60, |t, x, y| moving(held(t), x, y));
    let dark = |t: usize, x, y| if (5..40).contains(&t) { 16 } else { moving(t, x, y) };
    let black = (reference.clone(), Input::drawn(60, dark));
    [(Event::Freeze, (reference, frozen)), (Event::Black, black)]
}

fn an_alarm_of_scores_outlives_every_change_of_the_watch() {
    let both = partly_bad(60, |t| (5..40).contains(&t));
    for change in CHANGES {
        let events = alarm_changed(&both, &ALARM, change);
        let expected = [(Event::Alarm, EventState::Raised), (Event::Alarm, EventState::Cleared)];
        assert_eq!(states(&events), expected, "{change:?}");
    }
}

fn alarms_of_pictures_outlive_every_change_of_the_watch() {
    for (i, (event, both)) in frozen_and_black().into_iter().enumerate() {
        for change in CHANGES.into_iter().filter(|(name, _)| !name.starts_with("alarm")) {
            let events = alarm_changed(&both, &PICTURE[i..=i], change);
            // A change may start the detection of the other event, which these pictures may raise too.
            let events: Vec<_> = states(&events).into_iter().filter(|(of, _)| *of == event).collect();
            assert_eq!(events, [(event, EventState::Raised), (event, EventState::Cleared)], "{change:?}");
        }
    }
}

fn an_alarm_that_is_switched_off_is_cleared() {
    let [(_, frozen), (_, black)] = frozen_and_black();
    let bad = partly_bad(60, |t| (5..40).contains(&t));
    let cases = [
        (Event::Alarm, &bad, &ALARM[..], ("alarm-low", "-1")),
        (Event::Freeze, &frozen, &PICTURE[..1], ("freeze-time", "0")),
        (Event::Black, &black, &PICTURE[1..], ("black-time", "0")),
    ];
    for (event, both, properties, off) in cases {
        let events = alarm_changed(both, properties, off);
        assert_eq!(states(&events), [(event, EventState::Raised), (event, EventState::Cleared)], "{off:?}");
        // The alarm is cleared by the change, earlier than by the frames.
        assert!(events[1].running_time < Some(FRAME * 30), "{:?}", events[1]);
    }
}

fn a_window_outlives_changes_of_alarms() {
    let both = sides(40);
    let rig = Rig::offline(&[("window", "400000000"), ("window-interval", "400000000")]).play();
    rig.push_pairs(&both.0.0[..15], &both.1.0[..15]);
    rig.wait_scores(14);
    for (name, value) in ALARM.into_iter().chain(PICTURE) {
        rig.element.set_property_from_str(name, value);
    }
    rig.push_pairs(&both.0.0[15..], &both.1.0[15..]);
    rig.end();
    let report = rig.finish().unwrap();
    let windows: Vec<_> =
        report.windows.iter().map(|w| (w.running_time.unwrap().mseconds(), w.counts.scored)).collect();
    assert_eq!(windows, [(400, 10), (800, 10), (1200, 10)]);
}

fn a_run_with_other_settings_has_another_latency() {
    let (reference, distorted) = sides(2);
    let rig = Rig::live(&[("overload", "wait")]).play();
    rig.push_pairs(&reference.0[..1], &distorted.0[..1]);
    rig.wait(|log| log.latency_changes > 0);
    assert_eq!(rig.latency(), ms(80));
    rig.element.set_state(gst::State::Ready).unwrap();
    rig.element.set_property("attach-meta", false);
    rig.restart();
    // No frame is held back, as in a first run.
    rig.push("ref_sink", &reference.0[0]);
    rig.expire(ClockTime::ZERO);
    rig.wait_buffers(1);
    assert_eq!(rig.latency(), ClockTime::ZERO);
}
