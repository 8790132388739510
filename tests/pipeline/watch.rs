// SPDX-License-Identifier: MPL-2.0

//! Monitoring beyond single scores: windows, alarms, failures of the picture, statistics, the metrics file.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::common::rig::Rig;
use crate::common::{FRAME, Input, Report, coarse, moving, score, sides, until};
use crate::process::{Function, functions};
use gst::ClockTime;
use gst::prelude::*;
use gsthipvmaf::event::{Event, EventMessage, EventState};
use gsthipvmaf::message::PooledMessage;

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    windows_have_the_figures_of_their_frames,
    windows_count_what_was_not_scored,
    windows_go_on_when_nothing_can_be_scored,
    there_are_no_windows_unless_asked_for,
    good_key_frames_do_not_hide_a_bad_stream,
    frames_without_a_partner_may_count_as_low,
    low_scores_raise_an_alarm_and_good_ones_clear_it,
    alarms_do_not_flap,
    alarms_can_be_set_while_playing,
    a_frozen_picture_is_distinguished_from_bad_coding,
    a_black_picture_is_distinguished_from_a_dark_scene,
    picture_alarms_are_off_unless_asked_for,
    statistics_can_be_reset,
    reset_without_a_stream_does_nothing,
    statistics_have_every_field,
    the_metrics_file_is_replaced_once_per_interval,
    a_metrics_file_that_cannot_be_replaced_is_a_warning_and_no_end,
    settings_that_contradict_each_other_are_refused,
    values_out_of_range_are_refused
];

fn ms(time: u64) -> ClockTime {
    ClockTime::from_mseconds(time)
}

/// Returns a time in nanoseconds, as properties have it.
fn ns(time: ClockTime) -> String {
    time.nseconds().to_string()
}

/// Returns frames of which some are badly coded.
fn partly_bad(frames: usize, bad: impl Fn(usize) -> bool) -> (Input, Input) {
    let distorted = |t: usize, x, y| if bad(t) { coarse(moving(t, x, y)) } else { moving(t, x, y) };
    (Input::drawn(frames, moving), Input::drawn(frames, distorted))
}

fn brief(event: &EventMessage) -> (Event, EventState, Option<ClockTime>, Option<ClockTime>) {
    (event.event, event.state, event.since, event.running_time)
}

/// Returns the scores of the frames within the window.
fn scores_within(report: &Report, window: &PooledMessage) -> Vec<f64> {
    let end = window.running_time.unwrap();
    let start = end.saturating_sub(window.duration.unwrap());
    let within = |time: ClockTime| (start..end).contains(&time);
    report.frames.iter().filter(|f| within(f.running_time.unwrap())).map(|f| f.score).collect()
}

#[track_caller]
fn assert_window(report: &Report, window: &PooledMessage) {
    let scores = scores_within(report, window);
    let mean = scores.iter().sum::<f64>() / scores.len() as f64;
    let end = window.running_time;
    assert_eq!(window.counts.scored, scores.len() as u64, "the window up to {end:?}");
    assert!((window.stats.mean - mean).abs() < 1e-9, "{} and {mean} at {end:?}", window.stats.mean);
    assert_eq!(window.score, window.stats.mean);
    assert_eq!(window.stats.min, scores.iter().copied().fold(f64::MAX, f64::min));
    assert_eq!(window.stats.max, scores.iter().copied().fold(f64::MIN, f64::max));
    let mut sorted = scores;
    sorted.sort_by(f64::total_cmp);
    let median = sorted[(sorted.len() - 1) / 2];
    assert!((window.stats.p50 - median).abs() <= 0.05, "{} and {median}", window.stats.p50);
}

fn windows_have_the_figures_of_their_frames() {
    let both = partly_bad(40, |t| (t / 7) % 2 == 1);
    for (length, interval) in [(200, 200), (400, 200), (600, 200), (960, 120)] {
        let properties = [("window", ns(ms(length))), ("window-interval", ns(ms(interval)))];
        let properties = properties.each_ref().map(|(name, value)| (*name, value.as_str()));
        let report = score(&properties, &both.0, &both.1).unwrap();
        let ends: Vec<_> = report.windows.iter().map(|w| w.running_time.unwrap().mseconds()).collect();
        let expected: Vec<u64> = (1..=(39 * 40 / interval)).map(|i| i * interval).collect();
        assert_eq!(ends, expected, "{length} ms");
        for window in &report.windows {
            assert_eq!((window.reason.as_str(), window.pad.as_str()), ("interval", "dist_sink"));
            assert_window(&report, window);
        }
        let stats = report.stats.as_ref().unwrap();
        assert_eq!(stats.get::<f64>("window-mean"), Ok(report.windows.last().unwrap().stats.mean));
    }
}

fn windows_count_what_was_not_scored() {
    let both = sides(40);
    let properties = [("window", "400000000"), ("window-interval", "400000000"), ("pool-method", "min")];
    let report = score(&properties, &both.0, &both.1.keep(|t| !(12..15).contains(&t))).unwrap();
    let counts: Vec<_> = report.windows.iter().map(|w| (w.counts.scored, w.counts.unpaired)).collect();
    assert_eq!(counts, [(10, 0), (7, 3), (10, 0)]);
    assert!(
        report.windows.iter().all(|window| window.score == window.stats.min && window.pool_method == "min")
    );
}

fn windows_go_on_when_nothing_can_be_scored() {
    let both = sides(40);
    let properties = [("window", "200000000"), ("window-interval", "200000000"), ("overload", "wait")];
    let rig = Rig::live(&properties).play();
    for t in 0..40 {
        if t > 0 {
            rig.advance_to(FRAME * t as u64);
        }
        rig.push("ref_sink", &both.0.0[t]);
        if !(10..30).contains(&t) {
            rig.push("dist_sink", &both.1.0[t]);
        }
    }
    rig.end();
    let report = rig.finish().unwrap();
    let windows: Vec<_> = report
        .windows
        .iter()
        .map(|w| (w.running_time.unwrap().mseconds(), w.counts.scored, w.counts.unpaired))
        .collect();
    assert_eq!(
        windows,
        [(200, 5, 0), (400, 5, 0), (600, 0, 5), (800, 0, 5), (1000, 0, 5), (1200, 0, 5), (1400, 5, 0)]
    );
    assert!(report.windows[2].score.is_nan(), "no score is not a score of zero");
}

fn there_are_no_windows_unless_asked_for() {
    let both = sides(40);
    assert!(score(&[("window-interval", "40000000")], &both.0, &both.1).unwrap().windows.is_empty());
}

/// One good frame is enough to keep this alarm from being raised.
const ALARM: [(&str, &str); 5] = [
    ("alarm-low", "65"),
    ("alarm-clear", "80"),
    ("alarm-hold", "200000000"),
    ("clear-hold", "320000000"),
    ("alarm-share", "1"),
];

fn good_key_frames_do_not_hide_a_bad_stream() {
    let both = partly_bad(80, |t| (20..60).contains(&t) && t % 5 > 0);
    let raised = |share: &str| {
        let properties = [&ALARM[..4], &[("alarm-share", share)]].concat();
        let report = score(&properties, &both.0, &both.1).unwrap();
        report.events.iter().map(|event| (event.event, event.state, event.since)).collect::<Vec<_>>()
    };
    assert_eq!(raised("1"), []);
    let cleared = (Event::Alarm, EventState::Cleared);
    let [first, second] = raised("0.5")[..] else { panic!("{:?}", raised("0.5")) };
    assert_eq!(first, (Event::Alarm, EventState::Raised, Some(FRAME * 21)));
    assert_eq!((second.0, second.1), cleared);
}

fn frames_without_a_partner_may_count_as_low() {
    let both = sides(60);
    let distorted = both.1.keep(|t| t % 3 == 0 || t < 10);
    let alarms = |unpaired: &str| {
        let properties = [("alarm-low", "1"), ("alarm-hold", "400000000"), ("alarm-unpaired", unpaired)];
        let report = score(&properties, &both.0, &distorted).unwrap();
        let alarms = report.events.iter().filter(|event| event.event == Event::Alarm);
        alarms.map(|event| (event.state, event.since, event.value)).collect::<Vec<_>>()
    };
    assert_eq!(alarms("false"), []);
    assert_eq!(alarms("true"), [(EventState::Raised, Some(FRAME * 10), None)]);
}

fn low_scores_raise_an_alarm_and_good_ones_clear_it() {
    let both = partly_bad(60, |t| (10..30).contains(&t));
    let report = score(&ALARM, &both.0, &both.1).unwrap();
    let bad = |frame: &usize| (10..30).contains(frame);
    for (t, score) in report.scores().iter().enumerate() {
        assert!(if bad(&t) { *score < 65.0 } else { *score >= 80.0 }, "frame {t}: {score}");
    }
    let events: Vec<_> = report.events.iter().map(brief).collect();
    assert_eq!(
        events,
        [
            (Event::Alarm, EventState::Raised, Some(FRAME * 10), Some(FRAME * 15)),
            (Event::Alarm, EventState::Cleared, Some(FRAME * 30), Some(FRAME * 38)),
        ]
    );
    let value = |i: usize, frame: usize| (report.events[i].value, Some(report.scores()[frame]));
    assert_eq!(value(0, 15).0, value(0, 15).1);
    assert_eq!(value(1, 38).0, value(1, 38).1);
    assert_eq!((report.events[0].threshold, report.events[1].threshold), (Some(65.0), Some(80.0)));
    assert_eq!(report.stats.unwrap().get::<bool>("alarm"), Ok(false));
}

fn alarms_do_not_flap() {
    // The bad frames last for less than `alarm-hold`, or the good ones for less than `clear-hold`.
    let both = partly_bad(60, |t| t % 10 < 5);
    let report = score(&ALARM, &both.0, &both.1).unwrap();
    assert_eq!(report.events, []);
    let both = partly_bad(60, |t| t < 10 || t % 10 < 4);
    let report = score(&ALARM, &both.0, &both.1).unwrap();
    assert_eq!(report.events.len(), 1);
    assert_eq!(report.stats.unwrap().get::<bool>("alarm"), Ok(true));
}

fn alarms_can_be_set_while_playing() {
    let both = partly_bad(60, |_| true);
    let rig = Rig::offline(&[]).play();
    rig.push_pairs(&both.0.0[..20], &both.1.0[..20]);
    rig.wait_scores(19);
    for (name, value) in ALARM {
        rig.element.set_property_from_str(name, value);
    }
    rig.push_pairs(&both.0.0[20..], &both.1.0[20..]);
    rig.end();
    let report = rig.finish().unwrap();
    let [event] = &report.events[..] else { panic!("{:?}", report.events) };
    assert_eq!((event.event, event.state), (Event::Alarm, EventState::Raised));
    // The alarm is raised with the score of frame 19, which is known with frame 20.
    assert_eq!(event.since, Some(FRAME * 19));
}

const PICTURE: [(&str, &str); 2] = [("freeze-time", "400000000"), ("black-time", "400000000")];

fn a_frozen_picture_is_distinguished_from_bad_coding() {
    let reference = Input::drawn(60, moving);
    let frozen = |t: usize| if (10..30).contains(&t) { 10 } else { t };
    let report = score(&PICTURE, &reference, &Input::drawn(60, |t, x, y| moving(frozen(t), x, y))).unwrap();
    let events: Vec<_> = report.events.iter().map(brief).collect();
    assert_eq!(
        events,
        [
            (Event::Freeze, EventState::Raised, Some(FRAME * 11), Some(FRAME * 21)),
            (Event::Freeze, EventState::Cleared, Some(FRAME * 30), Some(FRAME * 32)),
        ]
    );
    assert_eq!(report.events[0].threshold, Some(0.1));
    let damaged = Input::drawn(60, |t, x, y| coarse(moving(t, x, y)));
    assert_eq!(score(&PICTURE, &reference, &damaged).unwrap().events, []);
    // A picture that is still in the reference as well is not frozen.
    let still = Input::drawn(60, |t, x, y| moving(frozen(t), x, y));
    assert_eq!(score(&PICTURE, &still, &still).unwrap().events, []);
}

fn a_black_picture_is_distinguished_from_a_dark_scene() {
    let reference = Input::drawn(60, moving);
    let dark = |t: usize, x, y| if (10..30).contains(&t) { 16 } else { moving(t, x, y) };
    let dark = Input::drawn(60, dark);
    let report = score(&[PICTURE[1]], &reference, &dark).unwrap();
    let events: Vec<_> = report.events.iter().map(brief).collect();
    assert_eq!(
        events,
        [
            (Event::Black, EventState::Raised, Some(FRAME * 10), Some(FRAME * 20)),
            (Event::Black, EventState::Cleared, Some(FRAME * 30), Some(FRAME * 32)),
        ]
    );
    assert_eq!(report.events[0].threshold, Some(0.07));
    assert!((report.events[0].value.unwrap() - 16.0 / 255.0).abs() < 0.001, "{:?}", report.events[0]);
    assert_eq!(score(&PICTURE, &dark, &dark).unwrap().events, []);
}

fn picture_alarms_are_off_unless_asked_for() {
    let reference = Input::drawn(60, moving);
    let black = Input::drawn(60, |_, _, _| 16);
    assert_eq!(score(&[], &reference, &black).unwrap().events, []);
}

fn statistics_can_be_reset() {
    let both = partly_bad(40, |t| t < 20);
    let rig = Rig::offline(&[]).play();
    rig.push_pairs(&both.0.0[..20], &both.1.0[..20]);
    rig.wait_scores(19);
    let before = rig.stats();
    assert_eq!(before.get::<u64>("frames-scored"), Ok(19));
    rig.element.emit_by_name::<()>("reset-stats", &[]);
    let after = rig.stats();
    assert_eq!(after.get::<u64>("frames-scored"), Ok(0));
    assert!(!after.has_field("score-mean"));
    rig.push_pairs(&both.0.0[20..], &both.1.0[20..]);
    rig.end();
    let report = rig.finish().unwrap();
    // Resetting the statistics does not end the run.
    assert_eq!(report.scores(), score(&[], &both.0, &both.1).unwrap().scores());
    let pooled: Vec<_> =
        report.pooled.iter().map(|p| (p.reason.as_str(), p.section, p.counts.scored)).collect();
    assert_eq!(pooled, [("reset", 0, 19), ("eos", 1, 21)]);
    assert_eq!(report.stats.as_ref().unwrap().get::<u64>("frames-scored"), Ok(21));
    let min = report.scores()[19..].iter().copied().fold(f64::MAX, f64::min);
    assert_eq!(report.stats.unwrap().get::<f64>("score-min"), Ok(min));
}

fn reset_without_a_stream_does_nothing() {
    let rig = Rig::offline(&[]);
    rig.element.emit_by_name::<()>("reset-stats", &[]);
    assert_eq!(rig.log().report.pooled.len(), 0);
}

fn statistics_have_every_field() {
    let both = sides(30);
    let properties = [("window", "400000000"), ("window-interval", "200000000")];
    let report = score(&properties, &both.0, &both.1.keep(|t| t != 4)).unwrap();
    let stats = report.stats.as_ref().unwrap();
    let counts = [
        ("frames-scored", 29),
        ("frames-unpaired", 1),
        ("frames-skipped", 0),
        ("frames-repeated", 0),
        ("dist-unmatched", 0),
        ("sections", 1),
        ("in-flight", 0),
    ];
    for (name, count) in counts {
        assert_eq!(stats.get::<u64>(name), Ok(count), "{name}");
    }
    let pooled = report.pooled[0].stats;
    for (name, value) in [
        ("min", pooled.min),
        ("max", pooled.max),
        ("mean", pooled.mean),
        ("harmonic-mean", pooled.harmonic_mean),
        ("p1", pooled.p1),
        ("p5", pooled.p5),
        ("p10", pooled.p10),
        ("p50", pooled.p50),
    ] {
        assert_eq!(stats.get::<f64>(format!("score-{name}").as_str()), Ok(value), "{name}");
        assert!(stats.get::<f64>(format!("window-{name}").as_str()).is_ok(), "{name}");
    }
    assert_eq!(stats.get::<f64>("score-last").ok(), report.scores().last().copied());
    assert!(stats.get::<u64>("compute-time-mean").unwrap() > 0);
}

/// Returns the samples of a Prometheus text by name and labels; panics if it is none.
fn samples(path: &Path) -> HashMap<String, f64> {
    let text = fs::read_to_string(path).unwrap();
    let mut samples = HashMap::new();
    let mut types = HashMap::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (kind, name, rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            assert!(["HELP", "TYPE"].contains(&kind) && !rest.is_empty(), "{line}");
            if kind == "TYPE" {
                assert!(["counter", "gauge", "summary"].contains(&rest), "{line}");
                assert!(types.insert(name.to_owned(), rest.to_owned()).is_none(), "{line}: twice");
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        let family = name.split('{').next().unwrap();
        let family = ["_sum", "_count"].iter().find_map(|end| family.strip_suffix(end)).unwrap_or(family);
        assert!(types.contains_key(family), "{line} has no type");
        assert!(samples.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{line}: twice");
    }
    assert!(text.is_empty() || text.ends_with('\n'));
    samples
}

fn the_metrics_file_is_replaced_once_per_interval() {
    let both = sides(40);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hipvmaf.prom");
    let properties = [("metrics-filename", path.to_str().unwrap()), ("window-interval", "200000000")];
    let rig = Rig::offline(&properties);
    rig.pad("dist_sink").set_property("label", "720p \"main\"\\\n");
    let rig = rig.play();
    assert!(!samples(&path).is_empty(), "known to be possible before the first frame");
    let scored = |samples: &HashMap<String, f64>| {
        let name = r#"hipvmaf_frames_total{pad="dist_sink",label="720p \"main\"\\\n",result="scored"}"#;
        samples.get(name).copied().filter(|scored| *scored > 0.0)
    };
    let mut seen = vec![];
    for t in 0..40 {
        rig.push_pairs(&both.0.0[t..=t], &both.1.0[t..=t]);
        rig.wait_scores(t);
        // A thread of its own writes the file, with the first score of each interval.
        if t > 0 && (t - 1) % 5 == 0 {
            until(|| scored(&samples(&path)) == Some(t as f64));
        }
        seen.extend(scored(&samples(&path)));
    }
    rig.end();
    let report = rig.finish().unwrap();
    seen.dedup();
    assert!(seen.is_sorted() && seen.len() >= 7, "{seen:?}");
    assert!(seen.iter().all(|count| *count as u64 % 5 == 1), "with the first score of an interval: {seen:?}");
    let samples = samples(&path);
    assert_eq!(scored(&samples), Some(36.0));
    let alarm =
        samples.keys().find(|name| name.starts_with("hipvmaf_alarm") && name.contains("dropout")).unwrap();
    assert!(samples[alarm] == 0.0 && alarm.contains("720p"), "{alarm}");
    let mean = report.scores()[..36].iter().sum::<f64>() / 36.0;
    let name =
        samples.keys().find(|name| name.starts_with("hipvmaf_score") && name.contains("\"mean\"")).unwrap();
    assert!(name.contains(r#"label="720p \"main\"\\\n""#), "{name}");
    assert!((samples[name] - mean).abs() < 1e-9);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
}

fn a_metrics_file_that_cannot_be_replaced_is_a_warning_and_no_end() {
    let both = sides(40);
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let path = inner.join("hipvmaf.prom");
    let properties = [("metrics-filename", path.to_str().unwrap()), ("window-interval", "200000000")];
    let rig = Rig::offline(&properties).play();
    fs::remove_dir_all(&inner).unwrap();
    let report = rig.run(&[("ref_sink", &both.0), ("dist_sink", &both.1)]).unwrap();
    assert_eq!(report.frames.len(), 40);
    assert_eq!(rig.log().warnings.len(), 1, "said once");
}

fn refusal(properties: &[(&str, &str)]) -> String {
    let both = sides(2);
    score(properties, &both.0, &both.1).unwrap_err().text
}

#[track_caller]
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

fn settings_that_contradict_each_other_are_refused() {
    assert_says(
        &refusal(&[("alarm-low", "70"), ("alarm-clear", "60")]),
        &["alarm-clear", "60", "alarm-low", "70"],
    );
    assert_says(
        &refusal(&[("window", "500000000"), ("window-interval", "1000000000")]),
        &["window", "500000000", "window-interval", "1000000000"],
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let path = path.to_str().unwrap();
    assert_says(
        &refusal(&[("metrics-filename", path), ("results-filename", path)]),
        &["metrics-filename", "results-filename"],
    );
    let missing = folder.path().join("missing/metrics.prom");
    let missing = missing.to_str().unwrap();
    assert_says(&refusal(&[("metrics-filename", missing)]), &["metrics-filename", missing]);
}

/// Values out of a property's range are refused, however they are set.
fn values_out_of_range_are_refused() {
    let rig = Rig::offline(&[]);
    let values: [(&str, glib::Value); 11] = [
        ("alarm-low", 110.5.to_value()),
        ("alarm-low", (-1.5).to_value()),
        ("alarm-clear", 111.0.to_value()),
        ("window-interval", 999_999u64.to_value()),
        ("freeze-level", 256.0.to_value()),
        ("freeze-level", (-0.1).to_value()),
        ("black-level", 1.1.to_value()),
        ("subsample", 0u32.to_value()),
        ("subsample", 129u32.to_value()),
        ("max-in-flight", 65u32.to_value()),
        ("device-id", (-2i32).to_value()),
    ];
    for (name, value) in values {
        let set = std::panic::AssertUnwindSafe(|| rig.element.set_property_from_value(name, &value));
        let panic = std::panic::catch_unwind(set).expect_err(name);
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains(name) && text.contains("out of range"), "{text}");
    }
}
