// SPDX-License-Identifier: MPL-2.0

//! Pipelines that hang: a warning names the pad without frames, the place where frames wait, and the remedy.

use gst::ClockTime;
use gst::prelude::*;
use gsthipvmaf::event::{Event, EventMessage, EventState};

use crate::common::rig::Rig;
use crate::common::{FRAME, init, sides};
use crate::process::{Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    a_pad_that_is_not_linked_is_named,
    a_queue_that_is_missing_or_too_short_is_named,
    the_queue_that_the_warning_names_mends_it,
    a_stall_is_over_when_it_moves_and_may_come_again,
    a_live_pad_that_never_delivers_is_named,
    a_pipeline_that_is_not_meant_to_move_does_not_stall,
    pads_that_have_ended_do_not_stall,
    a_ladder_goes_on_without_the_pad_that_has_stalled
];

/// A short limit, in wall time, which tests cannot control.
const SOON: (&str, &str) = ("stall-time", "100000000");
/// A limit that no test reaches, for the time in which a test is set up.
const NOT_YET: (&str, &str) = ("stall-time", "3600000000000");

fn set(rig: &Rig, (property, value): (&str, &str)) {
    rig.element.set_property_from_str(property, value);
}

fn stalls(events: &[EventMessage]) -> Vec<(EventState, &str)> {
    let stalled = events.iter().filter(|event| event.event == Event::Stalled);
    stalled.map(|event| (event.state, event.pad.as_str())).collect()
}

/// Plays a launch line until the element reports a stall. Returns the warnings up to then, and the event.
fn hang(sources: &str) -> (Vec<String>, EventMessage) {
    init();
    let line = format!("{sources} hipvmaf name=score backend=cpu stall-time=500000000 ! fakesink");
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let (mut warnings, mut event) = (vec![], None);
    let bus = pipeline.bus().unwrap();
    while event.is_none() || warnings.is_empty() {
        let message = bus.timed_pop(ClockTime::from_seconds(60)).expect("a stall in a minute");
        match message.view() {
            gst::MessageView::Element(element) => {
                let parsed = EventMessage::try_from(element.structure().unwrap());
                event = event.or(parsed.ok().filter(|event| event.event == Event::Stalled));
            }
            gst::MessageView::Warning(warning) => warnings.push(warning.error().message().to_string()),
            gst::MessageView::Error(error) => panic!("{error:?}"),
            gst::MessageView::Eos(_) => panic!("it does not hang"),
            _ => {}
        }
    }
    pipeline.set_state(gst::State::Null).unwrap();
    (warnings, event.unwrap())
}

const FILM: &str = "videotestsrc num-buffers=400 ! video/x-raw,width=1280,height=720,framerate=25/1";
/// An encoder that returns its first frame after fifty.
const ENCODER: &str = "x264enc rc-lookahead=50 speed-preset=ultrafast ! avdec_h264";

fn a_pad_that_is_not_linked_is_named() {
    let (warnings, event) = hang(&format!("{FILM} ! score.ref_sink"));
    assert_eq!((event.state, event.pad.as_str()), (EventState::Raised, "dist_sink"));
    for said in ["dist_sink", "not linked", "frames wait at ref_sink"] {
        assert!(warnings[0].contains(said), "`{said}` is not in: {}", warnings[0]);
    }
    let (warnings, event) = hang(&format!("{FILM} ! score.dist_sink"));
    assert_eq!((event.pad.as_str(), warnings[0].contains("at dist_sink")), ("ref_sink", true));
}

fn a_queue_that_is_missing_or_too_short_is_named() {
    let branch = format!("film. ! queue ! {ENCODER} ! score.dist_sink");
    for queue in ["", "queue !"] {
        let (warnings, event) =
            hang(&format!("{FILM} ! tee name=film film. ! {queue} score.ref_sink {branch}"));
        assert_eq!((event.state, event.pad.as_str()), (EventState::Raised, "dist_sink"));
        for said in ["dist_sink", "max-size-buffers=0 max-size-bytes=0 max-size-time=", "before ref_sink"] {
            assert!(warnings[0].contains(said), "`{said}` is not in: {}", warnings[0]);
        }
    }
}

/// The pipeline with the queue that the warning suggests plays to its end.
fn the_queue_that_the_warning_names_mends_it() {
    init();
    let line = format!(
        "{FILM} ! tee name=film \
         film. ! queue max-size-buffers=0 max-size-bytes=0 max-size-time=5000000000 ! score.ref_sink \
         film. ! queue ! {ENCODER} ! score.dist_sink \
         hipvmaf name=score backend=cpu subsample=50 stall-time=20000000000 ! fakesink"
    );
    let pipeline = gst::parse::launch(&line).unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error, gst::MessageType::Warning];
    let end = pipeline.bus().unwrap().timed_pop_filtered(ClockTime::from_seconds(120), &kinds).unwrap();
    assert_eq!(end.type_(), gst::MessageType::Eos, "{end:?}");
    pipeline.set_state(gst::State::Null).unwrap();
}

fn a_stall_is_over_when_it_moves_and_may_come_again() {
    let both = sides(4);
    let rig = Rig::offline(&[NOT_YET]).play();
    for t in 0..2 {
        rig.push("ref_sink", &both.0.0[2 * t]);
        set(&rig, SOON);
        rig.wait(|log| stalls(&log.report.events).len() == 2 * t + 1);
        set(&rig, NOT_YET);
        rig.push("dist_sink", &both.1.0[2 * t]);
        // The pad that has delivered waits for the other.
        rig.push("dist_sink", &both.1.0[2 * t + 1]);
        rig.push("ref_sink", &both.0.0[2 * t + 1]);
        rig.wait(|log| stalls(&log.report.events).contains(&(EventState::Cleared, "dist_sink")));
        rig.wait(|log| stalls(&log.report.events).len() == 2 * t + 2);
    }
    rig.end();
    let report = rig.finish().unwrap();
    let [raised, cleared] = [(EventState::Raised, "dist_sink"), (EventState::Cleared, "dist_sink")];
    assert_eq!(stalls(&report.events), [raised, cleared, raised, cleared]);
    assert_eq!(report.events.iter().find(|event| event.event == Event::Stalled).unwrap().running_time, None);
    assert_eq!(rig.log().warnings.len(), 2);
    assert_eq!(report.frames.len(), 4);
}

/// A live pipeline goes on without the stream and posts an event.
fn a_live_pad_that_never_delivers_is_named() {
    let both = sides(3);
    let rig = Rig::live(&[SOON, ("attach-meta", "false")]).play();
    for t in 0..3 {
        rig.push("ref_sink", &both.0.0[t]);
        rig.advance_to(FRAME * t as u64);
    }
    rig.wait_buffers(3);
    let frames = sides(2000).0;
    let mut t = 3;
    while stalls(&rig.log().report.events).is_empty() {
        assert!(t < 2000, "{:?}", rig.log().report.events);
        rig.push("ref_sink", &frames.0[t]);
        rig.advance_to(FRAME * t as u64);
        t += 1;
    }
    assert_eq!(stalls(&rig.log().report.events), [(EventState::Raised, "dist_sink")]);
    rig.wait(|log| {
        log.warnings.iter().any(|warning| warning.contains("dist_sink") && warning.contains("source"))
    });
}

/// No stall is reported while the pipeline is paused, while downstream blocks, or with `stall-time=0`. The stall of another
/// pipeline that started later proves that the time is over.
fn a_pipeline_that_is_not_meant_to_move_does_not_stall() {
    let both = sides(6);
    let fill = |rig: &Rig| {
        rig.push("ref_sink", &both.0.0[0]);
        rig.push("dist_sink", &both.1.0[0]);
        rig.push("ref_sink", &both.0.0[1]);
        rig.push("dist_sink", &both.1.0[1]);
        rig.wait_buffers(1);
        rig.push("ref_sink", &both.0.0[2]);
    };
    let paused = Rig::offline(&[NOT_YET]).play();
    fill(&paused);
    paused.element.set_state(gst::State::Paused).unwrap();
    let off = Rig::offline(&[("stall-time", "0")]).play();
    fill(&off);
    let blocked = Rig::offline(&[NOT_YET, ("attach-meta", "false")]).play();
    blocked.close();
    blocked.push("ref_sink", &both.0.0[0]);
    blocked.push("dist_sink", &both.1.0[0]);
    blocked.wait(|log| log.blocked);
    let live = Rig::live(&[NOT_YET]);
    live.element.set_state(gst::State::Paused).unwrap();
    live.push("ref_sink", &both.0.0[0]);
    [&paused, &blocked, &live].iter().for_each(|rig| set(rig, SOON));
    for _ in 0..2 {
        let other = Rig::offline(&[SOON]).play();
        other.push("ref_sink", &both.0.0[0]);
        other.wait(|log| !stalls(&log.report.events).is_empty());
    }
    let of = |rig: &Rig| stalls(&rig.log().report.events).len();
    assert_eq!([of(&paused), of(&off), of(&blocked), of(&live)], [0; 4]);
    // The stall is reported as soon as `stall-time` is set.
    set(&off, SOON);
    off.wait(|log| stalls(&log.report.events) == [(EventState::Raised, "dist_sink")]);
}

/// No stall is reported while no frame has arrived at any pad, or at a pad after its EOS.
fn pads_that_have_ended_do_not_stall() {
    let both = sides(2);
    let rig = Rig::offline(&[NOT_YET]).play();
    rig.push("ref_sink", &both.0.0[0]);
    rig.end_of("dist_sink");
    rig.wait_buffers(1);
    set(&rig, SOON);
    let other = Rig::offline(&[SOON]).play();
    other.push("ref_sink", &both.0.0[0]);
    other.wait(|log| !stalls(&log.report.events).is_empty());
    assert_eq!(stalls(&rig.log().report.events), []);
    rig.end();
    rig.finish().unwrap();
}

/// One of two renditions is released.
fn a_ladder_goes_on_without_the_pad_that_has_stalled() {
    let both = sides(12);
    let mut rig = Rig::offline(&[NOT_YET]).with_renditions(&["silent"]).play();
    rig.push("dist_0", &both.1.0[0]);
    rig.push_pairs(&both.0.0[..2], &both.1.0[..2]);
    set(&rig, SOON);
    rig.wait(|log| {
        stalls(&log.report.events) == [(EventState::Raised, "dist_0")] && !log.warnings.is_empty()
    });
    assert!(rig.log().warnings[0].contains("dist_0"));
    rig.release("dist_0");
    rig.push_pairs(&both.0.0[2..], &both.1.0[2..]);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.scores_of("dist_sink").len(), 12);
    rig.log().assert_fits();
}
