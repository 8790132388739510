// SPDX-License-Identifier: MPL-2.0

//! Video that cannot be compared with the reference, from a source that feeds both sides: the element posts the error, whatever
//! caps upstream offers.

use gst::prelude::*;

use crate::common::rig::Rig;
use crate::common::{Input, coarse, init, moving, sides};
use crate::process::{Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    a_size_that_does_not_suit_is_an_error_where_one_source_feeds_both_sides,
    frames_that_may_have_been_on_their_way_hold_up_nothing,
    a_frame_of_the_former_size_that_is_compared_with_nothing_is_no_failure
];

/// Plays a launch line up to an error of the element.
fn error_of(line: &str) -> String {
    init();
    let pipeline = gst::parse::launch(line).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let mut texts = vec![];
    for message in pipeline.bus().unwrap().iter_timed(gst::ClockTime::from_seconds(60)) {
        match message.view() {
            gst::MessageView::Error(error) => {
                texts.push(error.error().message().to_string());
                if error.src().is_some_and(|src| src.name() == "h") {
                    break;
                }
            }
            gst::MessageView::Eos(_) => break,
            _ => {}
        }
    }
    pipeline.set_state(gst::State::Null).unwrap();
    texts.pop().unwrap_or_else(|| panic!("{line}: no error"))
}

/// A decoder offers any size, an encoder holds frames, and the source would wait for them.
fn a_size_that_does_not_suit_is_an_error_where_one_source_feeds_both_sides() {
    let queue = "queue max-size-buffers=200 max-size-bytes=0 max-size-time=0";
    for (chain, said) in [
        (
            "jpegenc ! rtpjpegpay mtu=60000 ! rtpjpegdepay ! jpegdec ! videoconvert ! video/x-raw,format=I420",
            "320x184",
        ),
        ("videoscale ! video/x-raw,width=160,height=96 ! jpegenc ! jpegdec ! queue", "160x96"),
        ("videoscale ! video/x-raw,width=160,height=96", "160x96"),
        // Encoders and decoders pass caps queries on.
        ("videoscale ! video/x-raw,width=160,height=96 ! x264enc tune=zerolatency ! avdec_h264", "160x96"),
        ("videoconvert ! video/x-raw,format=Y444 ! x264enc tune=zerolatency ! avdec_h264", "Y444"),
    ] {
        for live in ["false", "true"] {
            let line = format!(
                "videotestsrc num-buffers=90 is-live={live} ! \
                 video/x-raw,format=I420,width=320,height=180,framerate=50/1 ! tee name=t \
                 t. ! {queue} ! h.ref_sink t. ! {queue} ! {chain} ! h.dist_sink \
                 hipvmaf name=h backend=cpu ! fakesink"
            );
            let text = error_of(&line);
            assert!(text.contains(said), "{chain}, live: {live}: {text}");
        }
    }
}

/// Upstream offers the right caps and never sends them. Its source feeds both sides in turn, without a queue.
fn frames_that_may_have_been_on_their_way_hold_up_nothing() {
    let (reference, _) = sides(8);
    let large = Input::drawn_at((96, 64), 8, |t, x, y| coarse(moving(t, x, y)));
    let rig = Rig::offline(&[]).play();
    let upstream = rig.pad("dist_sink").peer().unwrap();
    upstream.add_probe(gst::PadProbeType::QUERY_UPSTREAM, |_, info| {
        match info.query_mut().map(|query| query.view_mut()) {
            Some(gst::QueryViewMut::Caps(query)) => {
                query.set_result(&query.filter_owned().unwrap_or_else(gst::Caps::new_any));
                gst::PadProbeReturn::Handled
            }
            _ => gst::PadProbeReturn::Ok,
        }
    });
    rig.push_pairs(&reference.0, &large.0);
    rig.end();
    let failure = rig.finish().unwrap_err();
    assert!(failure.text.contains("96x64"), "{}", failure.text);
}

/// If a reference frame is lost just before both sides change their size, its partner with the old size has no reference.
fn a_frame_of_the_former_size_that_is_compared_with_nothing_is_no_failure() {
    let small = sides(8);
    let large = [moving as fn(usize, usize, usize) -> u8, |t, x, y| coarse(moving(t, x, y))]
        .map(|draw| Input::drawn_at((96, 64), 8, draw));
    let switched =
        |small: &Input, large: &Input| small.keep(|t| t < 4).0.into_iter().chain(large.keep(|t| t >= 4).0);
    // The last reference frame of the former size is lost.
    let reference = Input(switched(&small.0, &large[0]).collect()).keep(|t| t != 3);
    let distorted = Input(switched(&small.1, &large[1]).collect());
    // A decoder cannot change the size of its stream.
    let mut rig = Rig::offline(&[]);
    let fixed = gst::ElementFactory::make("identity").build().unwrap();
    rig.insert(std::slice::from_ref(&fixed), "dist_sink");
    fixed.static_pad("sink").unwrap().add_probe(gst::PadProbeType::QUERY_UPSTREAM, |pad, info| {
        let caps = pad.current_caps();
        match (info.query_mut().map(|query| query.view_mut()), caps) {
            (Some(gst::QueryViewMut::Caps(query)), Some(caps)) => {
                let filter = query.filter_owned();
                query.set_result(&filter.map_or(caps.clone(), |filter| filter.intersect(&caps)));
                gst::PadProbeReturn::Handled
            }
            _ => gst::PadProbeReturn::Ok,
        }
    });
    let rig = rig.play();
    let report = rig.run(&[("ref_sink", &reference), ("dist_sink", &distorted)]);
    let report = report.unwrap_or_else(|failure| panic!("{}", failure.text));
    assert_eq!(report.frames.len(), 7);
}
