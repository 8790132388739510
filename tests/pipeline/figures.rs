// SPDX-License-Identifier: MPL-2.0

//! Statistics and their properties: they can be read at any time, and their values are right.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use gst::prelude::*;

use crate::common::clip::clips;
use crate::common::gate::Gate;
use crate::common::rig::{Rig, Streaming};
use crate::common::{FRAME, Input, coarse, entries, moving, sides, until};
use crate::process::{Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    questions_are_answered_while_a_frame_is_worked_on,
    statistics_are_read_while_a_frame_is_computed,
    computing_may_take_long,
    each_reference_frame_counts_once,
    scores_of_the_metrics_file_say_what_they_cover,
    the_time_of_the_last_score_is_that_of_a_pad,
    a_meta_has_the_section_of_each_rendition,
    looking_at_pictures_costs_no_feature
];

/// Returns the answer to `ask` on another thread; panics if it takes more than a minute.
#[track_caller]
fn meanwhile<T: Send + 'static>(what: &str, ask: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(ask()));
    let answer = receiver.recv_timeout(Duration::from_secs(60));
    answer.unwrap_or_else(|_| panic!("{what} waits for the work on a frame"))
}

/// While the element is blocked reading a frame, every property can still be read and set, and every query is answered.
fn questions_are_answered_while_a_frame_is_worked_on() {
    let both = sides(4);
    let rig = Rig::offline(&[]).with_renditions(&["other"]).play();
    let push = |t: usize, distorted: &gst::Sample| {
        rig.push("dist_0", &both.1.0[t]);
        rig.push("dist_sink", distorted);
        rig.push("ref_sink", &both.0.0[t]);
    };
    (0..3).for_each(|t| push(t, &both.1.0[t]));
    rig.wait_scores(4);
    let gate = Gate::closed();
    push(3, &gate.input(&both.1).0[3]);
    gate.wait_until_read();
    let (element, pad) = (rig.element.clone(), rig.pad("dist_sink"));
    let stats = meanwhile("stats", move || element.property::<gst::Structure>("stats"));
    assert_eq!(stats.get::<u64>("frames-scored"), Ok(2));
    let stats = meanwhile("stats of a pad", move || pad.property::<Option<gst::Structure>>("stats"));
    assert_eq!(stats.unwrap().get::<u64>("frames-scored"), Ok(2));
    for name in ["backend-name", "device-name"] {
        let element = rig.element.clone();
        meanwhile(name, move || element.property::<Option<String>>(name));
    }
    for pad in ["ref_sink", "dist_sink", "dist_0", "src"] {
        let pad = rig.pad(pad);
        let caps = meanwhile("a caps query", move || pad.query_caps(None));
        assert!(!caps.is_empty());
    }
    let src = rig.pad("src");
    assert!(meanwhile("a latency query", move || src.query(gst::query::Latency::new().get_mut().unwrap())));
    let element = rig.element.clone();
    meanwhile("a property", move || {
        element.set_property("alarm-low", 50.0);
        element.static_pad("dist_0").unwrap().set_property("label", "another");
    });
    let element = rig.element.clone();
    meanwhile("reset-stats", move || element.emit_by_name::<()>("reset-stats", &[]));
    gate.open();
    rig.end();
    rig.finish().unwrap();
}

/// Frames that take long to compute. At least one of many reads of the statistics returns while a frame is computed.
fn statistics_are_read_while_a_frame_is_computed() {
    let draw = |t, x, y| moving(t, x % 64, y % 48);
    let reference = Input::drawn_at((1920, 1080), 4, draw);
    let distorted = Input::drawn_at((1920, 1080), 4, |t, x, y| coarse(draw(t, x, y)));
    // The software device would take minutes.
    let rig = Rig::offline(&[("backend", "cpu"), ("features", "ciede"), ("threads", "1")]).play();
    let gate = Gate::open_from_the_start();
    let streams = [("ref_sink", &reference), ("dist_sink", &gate.input(&distorted))]
        .map(|(pad, input)| rig.streaming(pad, input));
    let mut answered = 0;
    until(|| {
        let before = gate.is_being_read();
        rig.stats();
        answered += usize::from(before && gate.is_being_read());
        answered > 0 || rig.log().eos
    });
    assert!(answered > 0, "nothing was answered while a frame was computed");
    streams.into_iter().for_each(Streaming::join);
    rig.finish().unwrap();
}

fn sample(text: &str, name: &str) -> Option<f64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .map(|value| value.parse().unwrap())
}

/// Plays two inputs and writes the metrics file for each frame. Returns its last text.
fn metrics(properties: &[(&str, &str)], inputs: &[(&str, &Input)], folder: &Path) -> String {
    let path = folder.join("hipvmaf.prom");
    let written = [("metrics-filename", path.to_str().unwrap()), ("window-interval", "40000000")];
    let labels = &["other"][..inputs.len() - 2];
    let rig = Rig::offline(&[properties, &written].concat()).with_renditions(labels).play();
    rig.run(inputs).unwrap();
    rig.element.set_state(gst::State::Null).unwrap();
    fs::read_to_string(path).unwrap()
}

/// The slowest frame takes at least as long as the mean; the histogram has no upper limit.
fn computing_may_take_long() {
    let draw = |t, x, y| moving(t, x % 64, y % 48);
    let [reference, distorted] = [draw, |t, x, y| coarse(moving(t, x % 64, y % 48))]
        .map(|draw| Input::drawn_at((1920, 1080), 4, draw));
    let folder = tempfile::tempdir().unwrap();
    // These take more than a tenth of a second per frame even on fast CPUs.
    let properties =
        [("backend", "cpu"), ("threads", "1"), ("features", "ciede;cambi;psnr_hvs"), ("ms-ssim", "true")];
    let text = metrics(&properties, &[("ref_sink", &reference), ("dist_sink", &distorted)], folder.path());
    let figure = |name: &str| sample(&text, name).unwrap_or_else(|| panic!("no {name} in {text}"));
    let mean = figure("hipvmaf_compute_seconds_sum") / figure("hipvmaf_compute_seconds_count");
    assert!(mean > 0.11, "a faster machine needs more work: {mean}");
    let slowest = figure(r#"hipvmaf_compute_seconds{quantile="0.99"}"#);
    // The histogram's buckets have a relative error.
    assert!(slowest > 0.9 * mean, "{slowest} is less than the mean, {mean}");
}

fn each_reference_frame_counts_once() {
    let both = sides(40);
    let folder = tempfile::tempdir().unwrap();
    let inputs = [("ref_sink", &both.0), ("dist_sink", &both.1.keep(|t| t != 4 && t != 5))];
    let text = metrics(&[("missing-frame", "repeat")], &inputs, folder.path());
    let count = |result: &str| {
        sample(
            &text,
            &format!(r#"hipvmaf_frames_total{{pad="dist_sink",label="dist_sink",result="{result}"}}"#),
        )
        .unwrap()
    };
    assert_eq!(["scored", "repeated", "unpaired", "skipped"].map(count), [38.0, 2.0, 0.0, 0.0]);
}

fn scores_of_the_metrics_file_say_what_they_cover() {
    let both = sides(10);
    let folder = tempfile::tempdir().unwrap();
    let text = metrics(&[], &[("ref_sink", &both.0), ("dist_sink", &both.1)], folder.path());
    let help = text.lines().find_map(|line| line.strip_prefix("# HELP hipvmaf_score ")).unwrap();
    assert!(help.contains("last window") && help.contains("since the start"), "{help}");
}

fn the_time_of_the_last_score_is_that_of_a_pad() {
    let both = sides(10);
    let folder = tempfile::tempdir().unwrap();
    // The other rendition has no frame in common with the reference.
    let elsewhere = both.1.retimed(|t| Some(gst::ClockTime::from_seconds(100) + FRAME * t as u64));
    let inputs = [("ref_sink", &both.0), ("dist_sink", &both.1), ("dist_0", &elsewhere)];
    let text = metrics(&[], &inputs, folder.path());
    let name = "hipvmaf_last_score_timestamp_seconds";
    let of = |pad: &str| sample(&text, &format!(r#"{name}{{pad="{pad}",label="{pad}"}}"#));
    assert!(of("dist_sink").is_some_and(|time| time > 1.7e9), "{text}");
    assert_eq!((of("dist_0"), sample(&text, name)), (None, None));
}

fn a_meta_has_the_section_of_each_rendition() {
    let both = sides(10);
    let other = both.1.with_caps(|caps| caps.set("framerate", gst::Fraction::new(50, 1)));
    let changing = Input([&both.1.0[..5], &other.0[5..]].concat());
    let rig = Rig::offline(&[]).with_renditions(&["changing"]).play();
    let inputs = [("ref_sink", &both.0), ("dist_sink", &both.1), ("dist_0", &changing)];
    let report = rig.run(&inputs).unwrap();
    for (t, buffer) in report.buffers.iter().enumerate() {
        let sections: Vec<_> = entries(buffer).iter().map(|entry| entry.get::<u32>("section").ok()).collect();
        assert_eq!(sections, [Some(0), Some(u32::from(t >= 5))], "frame {t}");
    }
    for frame in &report.frames {
        assert_eq!(frame.section, u32::from(frame.pad == "dist_0" && frame.index >= 5));
    }
}

/// Alarms and alignment read only luma. Features that read chroma are still computed.
fn looking_at_pictures_costs_no_feature() {
    let clip = clips().into_iter().find(|clip| clip.name == "97x71_420_8bit").unwrap();
    let [reference, distorted] = [false, true].map(|distorted| Input::planar(&clip, distorted));
    let run = |properties: &[(&str, &str)], align: &str| {
        let all = [&[("features", "psnr;ciede")], properties].concat();
        let rig = Rig::offline(&all);
        rig.pad("dist_sink").set_property_from_str("align", align);
        let report = rig.play().run(&[("ref_sink", &reference), ("dist_sink", &distorted)]).unwrap();
        report.frames.iter().map(|frame| frame.features.clone()).collect::<Vec<_>>()
    };
    let expected = run(&[], "off");
    assert!(
        ["psnr_cb", "psnr_cr", "ciede2000"].iter().all(|name| expected[0].iter().any(|(of, _)| of == name))
    );
    assert_eq!(run(&[("freeze-time", "1000000000")], "off"), expected);
    assert_eq!(run(&[("black-time", "1000000000")], "off"), expected);
    assert_eq!(run(&[], "detect"), expected);
}
