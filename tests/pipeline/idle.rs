// SPDX-License-Identifier: MPL-2.0

//! An element that has nothing to do waits. The test's clock does not move by itself, so what would be a busy loop on
//! a real one shows as a wait for a time that has passed, again and again: `Rig::advance_to` fails there.

use gst::ClockTime;
use gst::prelude::*;
use gsthipvmaf::event::{Event, EventMessage, EventState};
use gsthipvmaf::meta::ScoreState;

use crate::common::rig::{Rig, Streaming};
use crate::common::{FRAME, Input, moving, scores_within, sides};
use crate::process::{Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    an_offset_above_the_latency_is_waited_for,
    an_offset_above_the_latency_may_be_found_by_itself,
    a_dead_rendition_beside_a_disabled_one_is_waited_for,
    silence_is_reported_though_a_disabled_rendition_delivers,
    a_gap_on_one_side_and_a_loss_on_the_other_are_waited_for,
    inactive_pads_may_be_ignored_from_some_time_on
];

fn ms(time: u64) -> ClockTime {
    ClockTime::from_mseconds(time)
}

fn brief(event: &EventMessage) -> (Event, EventState, &str, Option<ClockTime>, Option<ClockTime>) {
    (event.event, event.state, &event.pad, event.since, event.running_time)
}

/// Plays the reference at its times, to its end. The distorted stream starts with the partner of reference frame `early`, and
/// each of its frames arrives before its partner is due.
fn play_reference(rig: &Rig, reference: &Input, distorted: &Streaming, early: usize) {
    for (t, sample) in reference.0.iter().enumerate() {
        if t > 0 {
            rig.advance_to(FRAME * t as u64);
        }
        distorted.wait_taken((t + 1).saturating_sub(early).max(1));
        rig.push("ref_sink", sample);
    }
    rig.end_of("ref_sink");
}

/// A distorted stream that is so early that its frames wait for longer than the latency.
fn an_offset_above_the_latency_is_waited_for() {
    const EARLY: usize = 12;
    let both = sides(24);
    let rig = Rig::live(&[("overload", "wait")]);
    rig.pad("dist_sink").set_property("ts-offset", (FRAME * EARLY as u64).nseconds() as i64);
    let rig = rig.play();
    let early = both.1.keep(|t| t >= EARLY).retimed(|t| Some(FRAME * t as u64));
    let streaming = rig.streaming("dist_sink", &early);
    play_reference(&rig, &both.0, &streaming, EARLY);
    let report = rig.finish().unwrap();
    streaming.join();
    assert_eq!(report.states()[..EARLY], [ScoreState::Unpaired; EARLY]);
    assert_eq!(report.scores(), scores_within(&both, EARLY..24));
}

/// The same offset, found with `align`.
fn an_offset_above_the_latency_may_be_found_by_itself() {
    const FRAMES: usize = 150;
    const EARLY: usize = 7;
    let reference = Input::drawn(FRAMES, moving);
    let distorted = Input::drawn(FRAMES, |t, x, y| moving(t + EARLY, x, y));
    let rig = Rig::live(&[("overload", "wait")]);
    rig.pad("dist_sink").set_property_from_str("align", "auto");
    rig.pad("dist_sink").set_property("align-range", 12u32);
    let rig = rig.play();
    let streaming = rig.streaming("dist_sink", &distorted);
    play_reference(&rig, &reference, &streaming, EARLY);
    let report = rig.finish().unwrap();
    streaming.join();
    let found: Vec<_> = report.events.iter().filter(|event| event.event == Event::Alignment).collect();
    let [found] = found[..] else { panic!("{:?}", report.events) };
    let early = FRAME * EARLY as u64;
    assert_eq!(found.offset, Some(-(early.nseconds() as i64)));
    // From there on the frames wait for their partners.
    let since = found.running_time.unwrap() + early + FRAME;
    let later: Vec<_> = report.frames.iter().filter(|frame| frame.running_time > Some(since)).collect();
    assert!(later.len() > 20, "{}", later.len());
    for frame in later {
        assert_eq!(frame.dist_running_time, frame.running_time);
        assert!(frame.score > 95.0, "frame {}: {}", frame.index, frame.score);
    }
}

fn a_dead_rendition_beside_a_disabled_one_is_waited_for() {
    let both = sides(16);
    let rig = Rig::live(&[("overload", "wait")]).with_renditions(&["off"]);
    rig.pad("dist_0").set_property("enabled", false);
    let rig = rig.play();
    for t in 0..16 {
        if t > 0 {
            rig.advance_to(FRAME * t as u64);
        }
        rig.push("ref_sink", &both.0.0[t]);
        rig.push("dist_0", &both.1.0[t]);
    }
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.states(), [ScoreState::Unpaired; 16]);
    let [raised, unpaired] = &report.events[..] else { panic!("{:?}", report.events) };
    assert_eq!(
        (raised.event, raised.state, raised.pad.as_str()),
        (Event::Dropout, EventState::Raised, "dist_sink")
    );
    assert_eq!((unpaired.event, unpaired.count), (Event::Unpaired, Some(16)));
}

/// The frames of a disabled rendition do not end the silence of the others.
fn silence_is_reported_though_a_disabled_rendition_delivers() {
    let both = sides(40);
    let rig =
        Rig::live(&[("window", "400000000"), ("window-interval", "400000000")]).with_renditions(&["off"]);
    rig.pad("dist_0").set_property("enabled", false);
    let rig = rig.play();
    for t in 0..40 {
        if t > 0 {
            rig.advance_to(FRAME * t as u64);
        }
        if !(10..33).contains(&t) {
            rig.push("ref_sink", &both.0.0[t]);
            rig.push("dist_sink", &both.1.0[t]);
        }
        rig.push("dist_0", &both.1.0[t]);
    }
    rig.end();
    let report = rig.finish().unwrap();
    let raised = |pad| (Event::Dropout, EventState::Raised, pad, Some(ms(400)), Some(ms(600)));
    let cleared = |pad| (Event::Dropout, EventState::Cleared, pad, Some(ms(1320)), Some(ms(1320)));
    let events: Vec<_> = report.events.iter().map(brief).collect();
    assert_eq!(events, [raised("ref_sink"), raised("dist_sink"), cleared("ref_sink"), cleared("dist_sink")]);
    assert_eq!((report.buffers.len(), report.frames.len()), (17, 17));
}

/// The element waits until the end of a gap, even if the reference has no frame there either.
fn a_gap_on_one_side_and_a_loss_on_the_other_are_waited_for() {
    let both = sides(10);
    let rig = Rig::live(&[("overload", "wait")]).play();
    for t in 0..10 {
        let time = FRAME * t as u64;
        if time > rig.clock.time() {
            rig.advance_to(time);
        }
        if t == 4 {
            rig.push_event("dist_sink", gst::event::Gap::builder(FRAME * 4).duration(FRAME).build());
        } else {
            rig.push("ref_sink", &both.0.0[t]);
            rig.push("dist_sink", &both.1.0[t]);
        }
        if t == 4 {
            // Moves the clock past the deadline of a frame.
            rig.advance_to(FRAME * 6 + FRAME / 2);
        }
    }
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!((report.buffers.len(), report.events.len()), (9, 0));
}

fn inactive_pads_may_be_ignored_from_some_time_on() {
    let both = sides(3);
    let rig = Rig::live(&[("overload", "wait")]).play();
    rig.push("ref_sink", &both.0.0[0]);
    rig.expire(ms(80));
    rig.wait_buffers(1);
    rig.element.set_property("ignore-inactive-pads", true);
    rig.push("ref_sink", &both.0.0[1]);
    rig.push("ref_sink", &both.0.0[2]);
    assert_eq!(rig.wait_buffers(3).states(), [ScoreState::Unpaired; 3]);
}
