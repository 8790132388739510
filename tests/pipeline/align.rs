// SPDX-License-Identifier: MPL-2.0

//! Offsets between the two sides, found by their pictures.

use crate::common::rig::Rig;
use crate::common::{FRAME, Input, Report, moving};
use gst::prelude::*;
use gsthipvmaf::event::{Event, EventMessage, EventState};

const FRAMES: usize = 150;

/// The same pictures, so many frames late.
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

#[test]
fn an_offset_is_detected_and_reported() {
    for frames in [3, -7, 0] {
        let (rig, report) = run("detect", &late(frames));
        let [event] = found(&report)[..] else { panic!("{:?}", report.events) };
        assert_eq!((event.state, event.pad.as_str()), (EventState::Info, "dist_sink"));
        assert_eq!(event.offset, Some(frames * FRAME.nseconds() as i64));
        assert!((0.75..=1.0).contains(&event.value.unwrap()), "{event:?}");
        let stats: gst::Structure = rig.pad("dist_sink").property("stats");
        assert_eq!(stats.get::<i64>("offset"), Ok(frames * FRAME.nseconds() as i64));
        // Nothing is moved.
        assert_eq!(report.scores().len(), FRAMES);
    }
}

#[test]
fn without_asking_nothing_is_looked_for() {
    let (rig, report) = run("off", &late(3));
    assert!(report.events.is_empty());
    let stats: gst::Structure = rig.pad("dist_sink").property("stats");
    assert!(!stats.has_field("offset"));
}

#[test]
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
            // Those at the end have no successor.
            if !frame.discont {
                assert_eq!(frame.score, same.score, "frame {} of {frames}", frame.index);
            }
        }
        let before = report.frames.iter().filter(|frame| frame.running_time < event.running_time);
        assert!(before.clone().skip(1).all(|frame| frame.score < 90.0), "{:?}", report.scores());
    }
}

#[test]
fn pictures_that_do_not_tell_give_no_offset() {
    let still = |t: usize| Input::drawn(FRAMES, move |_, x, y| moving(t, x, y));
    let (_, report) = run("auto", &(still(0), still(0)));
    assert!(found(&report).is_empty());
    assert_eq!(report.frames.len(), FRAMES);
}
