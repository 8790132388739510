// SPDX-License-Identifier: MPL-2.0

//! Serialized events and negotiation: caps and segments arrive downstream in order, and upstream is asked for suitable caps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gst::prelude::*;

use crate::common::rig::Rig;
use crate::common::{FRAME, Input, coarse, is_asleep, moving, sides, thread_id, until};
use crate::process::{Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    caps_outlive_a_flush_before_the_first_frame_has_left,
    new_caps_outlive_a_flush_of_their_first_frames,
    the_segment_after_a_flush_is_the_new_one,
    distorted_frames_leave_under_their_own_caps,
    a_scaler_may_come_before_the_reference,
    a_scaler_waits_for_the_reference_whatever_has_come_before,
    the_next_element_may_ask_for_other_caps
];

const SMALL: (usize, usize) = (64, 48);
const LARGE: (usize, usize) = (96, 64);

/// Returns both sides of a clip of this size.
fn sized(size: (usize, usize), frames: usize) -> (Input, Input) {
    let distorted = Input::drawn_at(size, frames, |t, x, y| coarse(moving(t, x, y)));
    (Input::drawn_at(size, frames, moving), distorted)
}

/// Flushes all pads as a seek does, and begins a segment at this frame.
fn seek(rig: &Rig, frame: usize) {
    rig.flush_all();
    for pad in ["ref_sink", "dist_sink"] {
        rig.begin_segment(pad, FRAME * frame as u64, FRAME * frame as u64);
    }
}

/// The last pair has been taken and waits for its score with the frame after it.
fn wait_until_taken(rig: &Rig) {
    until(|| rig.stats().get::<u64>("in-flight") == Ok(1));
}

fn caps_outlive_a_flush_before_the_first_frame_has_left() {
    let both = sides(6);
    let rig = Rig::offline(&[]).play();
    rig.push_pairs(&both.0.0[..1], &both.1.0[..1]);
    wait_until_taken(&rig);
    seek(&rig, 1);
    rig.push_pairs(&both.0.0[1..], &both.1.0[1..]);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.buffers.len(), 5);
    rig.log().assert_fits();
}

fn new_caps_outlive_a_flush_of_their_first_frames() {
    let (small, large) = (sized(SMALL, 4), sized(LARGE, 8));
    let rig = Rig::offline(&[]).play();
    rig.push_pairs(&small.0.0, &small.1.0);
    let moved = |input: &Input| input.retimed(|t| Some(FRAME * (t as u64 + 4)));
    let (reference, distorted) = (moved(&large.0), moved(&large.1));
    rig.push_pairs(&reference.0[..1], &distorted.0[..1]);
    // The new caps have flushed out the frames before them.
    rig.wait_buffers(4);
    wait_until_taken(&rig);
    seek(&rig, 5);
    rig.push_pairs(&reference.0[1..], &distorted.0[1..]);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.buffers.len(), 4 + 7);
    rig.log().assert_fits();
    assert_eq!(rig.log().caps.len(), 2, "{:?}", rig.log().caps);
}

/// Frames after a flush leave in their own segment, not in that of the frames that were dropped.
fn the_segment_after_a_flush_is_the_new_one() {
    let both = sides(8);
    let rig = Rig::offline(&[]).play();
    rig.push_pairs(&both.0.0[..2], &both.1.0[..2]);
    rig.wait_buffers(1);
    for pad in ["ref_sink", "dist_sink"] {
        rig.begin_segment(pad, FRAME * 2, FRAME * 2);
    }
    rig.push_pairs(&both.0.0[2..3], &both.1.0[2..3]);
    rig.wait_buffers(2);
    seek(&rig, 4);
    rig.push_pairs(&both.0.0[4..], &both.1.0[4..]);
    rig.end();
    rig.finish().unwrap();
    let log = rig.log();
    log.assert_fits();
    for (buffer, under) in
        log.report.buffers.iter().zip(&log.under).filter(|(b, _)| b.pts() >= Some(FRAME * 4))
    {
        assert_eq!(under.segment.as_ref().unwrap().start(), Some(FRAME * 4), "{buffer:?}");
    }
}

/// New caps may arrive at the pad while frames with the old caps wait there and in the element.
fn distorted_frames_leave_under_their_own_caps() {
    let (reference, small) = sides(8);
    let large = sized(LARGE, 8).1;
    let rig = Rig::offline(&[("output", "distorted"), ("scale-method", "bicubic")]).play();
    for t in 0..4 {
        rig.push("dist_sink", &small.0[t]);
        if t == 3 {
            rig.push_caps("dist_sink", &large.0[4]);
        }
        rig.push("ref_sink", &reference.0[t]);
    }
    for t in 4..8 {
        rig.push("dist_sink", &large.0[t]);
        rig.push("ref_sink", &reference.0[t]);
    }
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.buffers.len(), 8);
    rig.log().assert_fits();
    let announced: Vec<_> = rig.log().caps.iter().map(|(at, _)| *at).collect();
    assert_eq!(announced, [0, 4]);
}

fn scaler(queued: bool) -> Vec<gst::Element> {
    let make = |name: &str| gst::ElementFactory::make(name).build().unwrap();
    let names = if queued { &["videoscale", "queue"][..] } else { &["videoscale"] };
    names.iter().map(|name| make(name)).collect()
}

/// Returns the scores when a scaler in front of the pad knows the size of the reference before it starts.
fn scaled(reference: &Input, distorted: &Input) -> Vec<f64> {
    let mut rig = Rig::offline(&[]);
    let caps = reference.0[0].caps_owned().unwrap();
    let filter = gst::ElementFactory::make("capsfilter").property("caps", &caps).build().unwrap();
    let elements = [scaler(false), vec![filter]].concat();
    rig.insert(&elements, "dist_sink");
    rig.play().run(&[("ref_sink", reference), ("dist_sink", distorted)]).unwrap().scores()
}

/// A converter upstream scales to the size of the reference, whichever of the two comes first.
fn a_scaler_may_come_before_the_reference() {
    const FRAMES: usize = 10;
    let (reference, _) = sides(FRAMES);
    // The shape is the same, because videoscale would add borders otherwise.
    let distorted = sized((128, 96), FRAMES).1;
    let expected = scaled(&reference, &distorted);
    assert_eq!(expected.len(), FRAMES);
    for queued in [false, true] {
        let mut rig = Rig::offline(&[]);
        rig.insert(&scaler(queued), "dist_sink");
        let rig = rig.play();
        // It may have to wait until its size is known; this is enough to come first.
        let first = rig.pushing("dist_sink", &distorted.0[0]);
        let taken = first.recv_timeout(Duration::from_millis(200));
        let references = rig.streaming("ref_sink", &reference);
        taken.unwrap_or_else(|_| first.recv_timeout(Duration::from_secs(60)).unwrap()).unwrap();
        rig.streaming("dist_sink", &distorted.keep(|t| t > 0)).join();
        references.join();
        let report = rig.finish().unwrap_or_else(|failure| panic!("queued: {queued}: {}", failure.text));
        assert_eq!(report.scores(), expected, "queued: {queued}");
        assert_eq!(report.buffers.len(), FRAMES);
    }
}

/// The order in which the pads are linked does not matter, nor does an earlier caps query; decoders add their pads in any
/// order.
fn a_scaler_waits_for_the_reference_whatever_has_come_before() {
    let (reference, distorted) = (sized(SMALL, 1).0, sized((128, 96), 1).1);
    for before in ["another thread asks", "the stream is linked", "the reference is not linked"] {
        let mut rig = Rig::offline(&[]);
        let elements = scaler(false);
        rig.insert(&elements, "dist_sink");
        let rig = rig.play();
        let (ours, its) = (elements[0].static_pad("sink").unwrap(), rig.pad("ref_sink"));
        let [our_source, its_source] = [&ours, &its].map(|pad| pad.peer().unwrap());
        match before {
            "another thread asks" => {
                std::thread::scope(|scope| scope.spawn(|| ours.query_caps(None)).join().unwrap());
            }
            "the stream is linked" => {
                our_source.unlink(&ours).unwrap();
                our_source.link(&ours).unwrap();
            }
            _ => its_source.unlink(&its).unwrap(),
        }
        let (asking, gone_on) = (thread_id(), AtomicBool::new(false));
        let begin = |pad: &str, input: &Input| {
            rig.push_event(pad, gst::event::StreamStart::new(pad));
            rig.push_caps(pad, &input.0[0]);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                until(|| is_asleep(asking) || gone_on.load(Ordering::Acquire));
                if !its.is_linked() {
                    its_source.link(&its).unwrap();
                }
                begin("ref_sink", &reference);
            });
            begin("dist_sink", &distorted);
            gone_on.store(true, Ordering::Release);
        });
        let caps = rig.pad("dist_sink").current_caps().unwrap();
        assert_eq!(caps.structure(0).unwrap().get::<i32>("width"), Ok(64), "{before}");
    }
}

fn the_next_element_may_ask_for_other_caps() {
    let (reference, distorted) = sides(2);
    for (output, pad) in [("reference", "ref_sink"), ("distorted", "dist_sink")] {
        let rig = Rig::offline(&[("output", output)]).play();
        rig.push_pairs(&reference.0, &distorted.0);
        rig.wait_buffers(1);
        let asked = || {
            let log = rig.log();
            log.upstream.iter().filter(|(to, kind)| to == pad && *kind == gst::EventType::Reconfigure).count()
        };
        let before = asked();
        rig.send_upstream(gst::event::Reconfigure::new());
        assert_eq!(asked(), before + 1, "{output}");
    }
}
