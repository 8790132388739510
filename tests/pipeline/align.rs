// SPDX-License-Identifier: MPL-2.0

//! Offsets between the two sides, found by their pictures.

use crate::common::rig::Rig;
use crate::common::{FRAME, Input, Report, moving};
use crate::process::{Function, functions};
use gst::ClockTime;
use gst::prelude::*;
use gsthipvmaf::event::{Event, EventMessage, EventState};
use gsthipvmaf::message::FrameMessage;
use gsthipvmaf::meta::{ScoreMeta, ScoreState};
use serde_json::Value;

/// Tests in this process.
pub const TESTS: &[Function] = functions![
    an_offset_is_detected_and_reported,
    without_asking_nothing_is_looked_for,
    auto_pairs_the_frames_that_belong_together,
    scores_of_pairs_that_may_be_wrong_count_nowhere,
    a_run_that_was_paired_wrongly_is_named,
    an_offset_that_is_known_is_used_at_once,
    a_search_without_success_ends,
    the_end_of_a_search_is_reported_with_any_frame,
    a_search_begins_anew_where_time_does,
    ambiguous_pictures_give_no_offset
];

const FRAMES: usize = 150;

/// Returns the same pictures, this many frames late.
fn late(frames: i64) -> (Input, Input) {
    let start = 40;
    let reference = Input::drawn(FRAMES, |t, x, y| moving(t + start, x, y));
    let distorted = Input::drawn(FRAMES, |t, x, y| moving((t as i64 + start as i64 - frames) as usize, x, y));
    (reference, distorted)
}

fn run(align: &str, sides: &(Input, Input)) -> (Rig, Report) {
    let rig = Rig::offline(&[]);
    let pad = rig.pad("dist_sink");
    pad.set_property_from_str("align", align);
    pad.set_property("align-range", 12u32);
    let rig = rig.play();
    let report = rig.run(&[("ref_sink", &sides.0), ("dist_sink", &sides.1)]).unwrap();
    (rig, report)
}

fn found(report: &Report) -> Vec<&EventMessage> {
    report.events.iter().filter(|event| event.event == Event::Alignment).collect()
}

fn an_offset_is_detected_and_reported() {
    for frames in [3, -7, 0] {
        let (rig, report) = run("detect", &late(frames));
        let [event] = found(&report)[..] else { panic!("{:?}", report.events) };
        assert_eq!((event.state, event.pad.as_str()), (EventState::Info, "dist_sink"));
        assert_eq!(event.offset, Some(frames * FRAME.nseconds() as i64));
        assert!((0.75..=1.0).contains(&event.value.unwrap()), "{event:?}");
        let stats: gst::Structure = rig.pad("dist_sink").property("stats");
        assert_eq!(stats.get::<i64>("offset"), Ok(frames * FRAME.nseconds() as i64));
        // Detection alone does not change the pairing.
        assert_eq!(report.scores().len(), FRAMES);
    }
}

fn without_asking_nothing_is_looked_for() {
    let (rig, report) = run("off", &late(3));
    assert!(report.events.is_empty());
    let stats: gst::Structure = rig.pad("dist_sink").property("stats");
    assert!(!stats.has_field("offset"));
}

fn auto_pairs_the_frames_that_belong_together() {
    for frames in [3, -7] {
        let (_, report) = run("auto", &late(frames));
        let [event] = found(&report)[..] else { panic!("{:?}", report.events) };
        assert_eq!(event.offset, Some(frames * FRAME.nseconds() as i64));
        let since = event.running_time.unwrap() + FRAME * 16;
        let later: Vec<_> = report.frames.iter().filter(|frame| frame.running_time >= Some(since)).collect();
        assert!(later.len() > 20, "{frames}: {}", later.len());
        let identical = run("off", &late(0)).1;
        for frame in &later {
            let same = identical.frames.iter().find(|other| other.index == frame.index).unwrap();
            // The last frames have no frame after them.
            if !frame.discont {
                assert_eq!(frame.score, same.score, "frame {} of {frames}", frame.index);
            }
        }
        // Scores from before the offset was found are in no summary: their state is `aligning`.
        let (before, after): (Vec<_>, Vec<_>) =
            report.frames.iter().partition(|frame| frame.state == ScoreState::Aligning);
        assert!(before.iter().all(|frame| frame.running_time <= event.running_time));
        assert!(after.iter().all(|frame| frame.running_time > event.running_time));
        assert!(
            before.len() > 20 && before.iter().skip(1).all(|frame| frame.score < 90.0),
            "{:?}",
            report.scores()
        );
        let [pooled] = &report.pooled[..] else { panic!("{:?}", report.pooled) };
        assert_eq!((pooled.counts.aligning, pooled.counts.scored), (before.len() as u64, after.len() as u64));
        let lowest = after.iter().map(|frame| frame.score).fold(f64::INFINITY, f64::min);
        assert_eq!(pooled.stats.min, lowest);
        assert!(pooled.counts.coverage() < 0.8, "{}", pooled.counts.coverage());
    }
}

/// Scores of uncertain pairs are in no window, alarm, statistic, results file or metadata.
fn scores_of_pairs_that_may_be_wrong_count_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    for provisional in [false, true] {
        let path = folder.path().join(format!("{provisional}.json"));
        let properties = [
            ("window", "1000000000"),
            ("alarm-low", "90"),
            ("alarm-hold", "0"),
            ("results-filename", path.to_str().unwrap()),
            ("results-provisional", if provisional { "true" } else { "false" }),
        ];
        let rig = Rig::offline(&properties);
        rig.pad("dist_sink").set_property_from_str("align", "auto");
        let both = late(3);
        let rig = rig.play();
        let report = rig.run(&[("ref_sink", &both.0), ("dist_sink", &both.1)]).unwrap();
        let (aligning, scored): (Vec<_>, Vec<_>) =
            report.frames.iter().partition(|frame| frame.state == ScoreState::Aligning);
        assert!(aligning.len() > 20 && aligning[5].score < 90.0);
        assert!(report.events.iter().all(|event| event.event != Event::Alarm), "{:?}", report.events);
        for window in &report.windows {
            let end = window.running_time.unwrap();
            let of = |frames: &[&FrameMessage]| {
                let within = |at: ClockTime| at < end && at + ClockTime::SECOND >= end;
                frames.iter().filter(|frame| frame.running_time.is_some_and(within)).count() as u64
            };
            assert_eq!((window.counts.scored, window.counts.aligning), (of(&scored), of(&aligning)), "{end}");
        }
        let stats: gst::Structure = rig.pad("dist_sink").property("stats");
        assert_eq!(stats.get::<u64>("frames-aligning"), Ok(aligning.len() as u64));
        let states: Vec<_> = report
            .buffers
            .iter()
            .map(|buffer| ScoreMeta::from_buffer(buffer).unwrap().scores[0].state)
            .collect();
        assert_eq!(states.iter().filter(|state| **state == ScoreState::Aligning).count(), aligning.len());
        let json: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let rows = json["frames"].as_array().unwrap();
        let marked = rows.iter().filter(|row| row["state"] == "aligning").count();
        assert_eq!(marked, if provisional { aligning.len() } else { 0 });
        assert_eq!(rows.len() - marked, scored.len());
        assert_eq!(json["offset"], 3 * FRAME.nseconds());
        assert_eq!(json["frame_counts"]["aligning"], aligning.len());
        // To the decimals of the file.
        let mean = json["pooled_metrics"]["vmaf"]["mean"].as_f64().unwrap();
        assert!((mean - report.pooled[0].stats.mean).abs() < 1e-6);
    }
}

/// The distorted video jumps by five frames. The event names the pairs that were wrong until the jump was found.
fn a_run_that_was_paired_wrongly_is_named() {
    const JUMP: usize = 120;
    let rig = Rig::offline(&[]);
    let pad = rig.pad("dist_sink");
    pad.set_property_from_str("align", "auto");
    let shown = |t: usize| t + 40 - if t < JUMP { 2 } else { 7 };
    let reference = Input::drawn(240, |t, x, y| moving(t + 40, x, y));
    let distorted = Input::drawn(240, |t, x, y| moving(shown(t), x, y));
    let rig = rig.play();
    let report = rig.run(&[("ref_sink", &reference), ("dist_sink", &distorted)]).unwrap();
    let named: Vec<_> = report.events.iter().filter(|event| event.event == Event::Mispaired).collect();
    let [event] = named[..] else { panic!("{:?}", report.events) };
    let found = found(&report)[1];
    assert_eq!((event.state, event.offset), (EventState::Info, Some(7 * FRAME.nseconds() as i64)));
    assert_eq!((event.offset, event.running_time), (found.offset, found.running_time));
    // The distorted frame of the jump was paired with the reference frame two frames before.
    let first = FRAME * (JUMP as u64 - 2);
    let since = event.since.unwrap();
    assert!(since >= first && since <= first + FRAME * 6, "{since} of {first}");
    // Pairs whose scores were pending at the time are excluded too.
    let after =
        |frame: &&FrameMessage| frame.running_time >= Some(since) && frame.running_time <= event.running_time;
    let wrong: Vec<_> = report.frames.iter().filter(after).collect();
    assert_eq!(wrong.last().unwrap().state, ScoreState::Aligning);
}

/// An offset that was found with `align=detect` is applied as soon as `align` is set to apply it.
fn an_offset_that_is_known_is_used_at_once() {
    let rig = Rig::offline(&[]);
    let pad = rig.pad("dist_sink");
    pad.set_property_from_str("align", "detect");
    let both = late(3);
    let rig = rig.play();
    for t in 0..100 {
        rig.push("dist_sink", &both.1.0[t]);
        rig.push("ref_sink", &both.0.0[t]);
    }
    rig.wait(|log| log.report.events.iter().any(|event| event.event == Event::Alignment));
    rig.wait_scores(99);
    pad.set_property_from_str("align", "auto");
    let rest = |input: &Input| Input(input.0[100..].to_vec());
    let (reference, distorted) = (rest(&both.0), rest(&both.1));
    let report = rig.run(&[("ref_sink", &reference), ("dist_sink", &distorted)]).unwrap();
    let identical = run("off", &late(0)).1;
    let later = report.frames.iter().filter(|frame| frame.index >= 100 && !frame.discont);
    let same = |index| identical.frames.iter().find(|frame| frame.index == index).unwrap().score;
    assert!(later.clone().count() > 30);
    assert!(later.clone().all(|frame| frame.score == same(frame.index)));
}

/// The search ends after half a minute of still pictures, and the pad is watched all the same. When the pictures move at last,
/// an event reports the pairs that were wrong.
fn a_search_without_success_ends() {
    const STILL: usize = 800;
    let draw = |late: usize| {
        Input::drawn(STILL + 100, move |t, x, y| {
            moving(if t < STILL { 0 } else { t - STILL + 20 - late }, x, y)
        })
    };
    let rig = Rig::offline(&[]);
    rig.pad("dist_sink").set_property_from_str("align", "auto");
    let rig = rig.play();
    let report = rig.run(&[("ref_sink", &draw(0)), ("dist_sink", &draw(4))]).unwrap();
    let events = found(&report);
    let [given_up, found] = events[..] else { panic!("{:?}", report.events) };
    assert_eq!((given_up.offset, given_up.running_time), (None, Some(ClockTime::from_seconds(30))));
    assert!(given_up.reason.as_ref().unwrap().contains("align-range"));
    assert_eq!(found.offset, Some(4 * FRAME.nseconds() as i64));
    let states: Vec<_> = report.frames.iter().map(|frame| frame.state).collect();
    assert_eq!(states.iter().position(|state| *state == ScoreState::Scored), Some(750));
    let wrong = report.events.iter().find(|event| event.event == Event::Mispaired).unwrap();
    assert_eq!((wrong.since, wrong.running_time), (given_up.running_time, found.running_time));
}

/// The search ends at a frame that is missing on one side and is replaced by the frame before.
fn the_end_of_a_search_is_reported_with_any_frame() {
    let still = Input::drawn(760, |_, x, y| moving(0, x, y));
    let rig = Rig::offline(&[("missing-frame", "repeat")]);
    rig.pad("dist_sink").set_property_from_str("align", "auto");
    let lossy = still.keep(|t| t != 750);
    let report = rig.play().run(&[("ref_sink", &still), ("dist_sink", &lossy)]).unwrap();
    let at: Vec<_> = found(&report).iter().map(|event| (event.offset, event.running_time)).collect();
    assert_eq!(at, [(None, Some(ClockTime::from_seconds(30)))]);
}

/// Running time jumps back when a source plays its file again.
fn a_search_begins_anew_where_time_does() {
    let still = |from: u64, frames| {
        let input = Input::drawn(frames, |_, x, y| moving(0, x, y));
        input.retimed(move |t| Some(ClockTime::from_seconds(from) + FRAME * t as u64))
    };
    let rig = Rig::offline(&[]);
    rig.pad("dist_sink").set_property_from_str("align", "auto");
    let rig = rig.play();
    for sample in still(3600, 4).0 {
        rig.push("dist_sink", &sample);
        rig.push("ref_sink", &sample);
    }
    rig.wait_scores(3);
    for pad in ["ref_sink", "dist_sink"] {
        rig.begin_segment(pad, ClockTime::ZERO, ClockTime::ZERO);
    }
    let again = still(0, 760);
    let report = rig.run(&[("ref_sink", &again), ("dist_sink", &again)]).unwrap();
    assert_eq!(report.frames.last().unwrap().state, ScoreState::Scored);
    assert_eq!(found(&report).last().unwrap().running_time, Some(ClockTime::from_seconds(30)));
}

fn ambiguous_pictures_give_no_offset() {
    let still = |t: usize| Input::drawn(FRAMES, move |_, x, y| moving(t, x, y));
    let (_, report) = run("auto", &(still(0), still(0)));
    assert!(found(&report).is_empty());
    assert_eq!(report.frames.len(), FRAMES);
    // The offset of these pairs is unknown.
    assert_eq!((report.pooled[0].counts.scored, report.pooled[0].counts.aligning), (0, FRAMES as u64));
}
