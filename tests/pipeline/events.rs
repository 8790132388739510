// SPDX-License-Identifier: MPL-2.0

//! Serialized events: those of the reference leave between the same frames as they arrived, those of distorted streams do not
//! leave.

use gst::prelude::*;

use crate::common::rig::{Log, Rig};
use crate::common::{FRAME, sides};
use crate::process::{Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    events_keep_their_place_between_frames,
    events_keep_their_place_in_live_pipelines,
    the_end_of_a_segment_comes_after_the_last_score,
    a_stream_may_begin_with_a_gap
];

const FRAMES: usize = 10;

fn custom(name: &str) -> gst::Event {
    gst::event::CustomDownstream::new(gst::Structure::new_empty(name))
}

fn toc() -> gst::Event {
    let mut toc = gst::Toc::new(gst::TocScope::Global);
    toc.get_mut().unwrap().append_entry(gst::TocEntry::new(gst::TocEntryType::Chapter, "1"));
    gst::event::Toc::new(&toc, false)
}

fn tag(title: &str) -> gst::Event {
    let mut tags = gst::TagList::new();
    tags.get_mut().unwrap().add::<gst::tags::Title>(&title, gst::TagMergeMode::Append);
    gst::event::Tag::new(tags)
}

/// The names of events that left, each with the number of buffers before it.
fn left(log: &Log) -> Vec<(usize, String)> {
    let name = |event: &gst::Event| match event.structure() {
        Some(structure) if event.type_() == gst::EventType::CustomDownstream => structure.name().to_string(),
        _ => event.type_().name().to_string(),
    };
    log.others.iter().map(|(buffers, _, event)| (*buffers, name(event))).collect()
}

fn expected(events: &[(usize, &str)]) -> Vec<(usize, String)> {
    events.iter().map(|(buffers, name)| (*buffers, (*name).to_string())).collect()
}

fn events_keep_their_place_between_frames() {
    let both = sides(FRAMES);
    for attach_meta in ["true", "false"] {
        let rig = Rig::offline(&[("attach-meta", attach_meta)]).play();
        rig.push_pairs(&both.0.0[..4], &both.1.0[..4]);
        for event in [custom("cue"), custom("GstForceKeyUnit"), tag("mine"), toc()] {
            rig.push_event("ref_sink", event);
        }
        for event in [custom("other"), tag("other"), toc()] {
            rig.push_event("dist_sink", event);
        }
        rig.push_pairs(&both.0.0[4..6], &both.1.0[4..6]);
        // A frame is missing on both sides.
        for pad in ["dist_sink", "ref_sink"] {
            rig.push_event(pad, gst::event::Gap::builder(FRAME * 6).duration(FRAME).build());
        }
        rig.push_pairs(&both.0.0[7..], &both.1.0[7..]);
        rig.end();
        rig.finish().unwrap();
        let log = rig.log();
        log.assert_fits();
        let events = [(4, "cue"), (4, "GstForceKeyUnit"), (4, "tag"), (4, "toc"), (6, "gap")];
        assert_eq!(left(&log), expected(&events), "attach-meta={attach_meta}");
    }
}

/// In live pipelines too: if a frame leaves without its score, the events after it still leave after it.
fn events_keep_their_place_in_live_pipelines() {
    let both = sides(4);
    let rig = Rig::live(&[]).play();
    for t in 0..4 {
        if t > 0 {
            rig.advance_to(FRAME * t as u64);
        }
        rig.push("ref_sink", &both.0.0[t]);
        rig.push_event("ref_sink", custom(&format!("after-{t}")));
    }
    rig.advance_to(FRAME * 5);
    let events = [(1, "after-0"), (2, "after-1"), (3, "after-2"), (4, "after-3")];
    rig.wait(|log| left(log) == expected(&events));
}

/// The segment-done event leaves once, after the last frame and its score, though both sides send it.
fn the_end_of_a_segment_comes_after_the_last_score() {
    let both = sides(FRAMES);
    for attach_meta in ["true", "false"] {
        let rig = Rig::offline(&[("attach-meta", attach_meta)]).play();
        for pass in 1..3 {
            rig.push_pairs(&both.0.0, &both.1.0);
            for pad in ["ref_sink", "dist_sink"] {
                rig.push_event(pad, gst::event::SegmentDone::new(FRAME * FRAMES as u64));
            }
            rig.wait(|log| log.others.len() == pass);
            let next = FRAME * (pass * FRAMES) as u64;
            for pad in ["ref_sink", "dist_sink"] {
                rig.begin_segment(pad, gst::ClockTime::ZERO, next);
            }
        }
        let log = rig.log();
        let seen: Vec<_> =
            log.others.iter().map(|(buffers, scores, event)| (*buffers, *scores, event.type_())).collect();
        let done = |pass: usize| (pass * FRAMES, pass * FRAMES, gst::EventType::SegmentDone);
        assert_eq!(seen, [done(1), done(2)], "attach-meta={attach_meta}");
    }
}

/// A sink downstream prerolls on the first frame, or on a gap event.
fn a_stream_may_begin_with_a_gap() {
    let both = sides(2);
    let rig = Rig::offline(&[]);
    rig.element.set_state(gst::State::Paused).unwrap();
    for (pad, input) in [("ref_sink", &both.0), ("dist_sink", &both.1)] {
        rig.push_event(pad, gst::event::StreamStart::new(pad));
        rig.push_caps(pad, &input.0[0]);
        rig.begin_segment(pad, gst::ClockTime::ZERO, gst::ClockTime::ZERO);
        rig.push_event(pad, tag(pad));
        rig.push_event(pad, gst::event::Gap::builder(gst::ClockTime::ZERO).duration(FRAME).build());
    }
    rig.wait(|log| left(log) == expected(&[(0, "tag"), (0, "gap")]));
    let announced = || rig.now(|log| (log.caps.len(), log.segments.len()));
    assert_eq!(announced(), (1, 1));
    rig.element.set_state(gst::State::Playing).unwrap();
    rig.push_pairs(&both.0.0[1..], &both.1.0[1..]);
    rig.end();
    assert_eq!(rig.finish().unwrap().buffers.len(), 1);
    rig.log().assert_fits();
    assert_eq!(announced(), (1, 1));
}
