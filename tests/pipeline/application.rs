// SPDX-License-Identifier: MPL-2.0

//! Applications that take their time for a message, and those that call the element while they have one.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gst::prelude::*;

use crate::common::rig::Rig;
use crate::common::{FRAME, seek_to_start, sides, until};

/// How long something that has to happen may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

fn is_frame(message: &gst::Message, index: i32) -> bool {
    let structure = message.structure();
    structure.is_some_and(|s| s.get("type") == Ok("frame") && s.get("index") == Ok(index))
}

/// A handler that does not return from the message of this frame before the sender is dropped, and tells when it has it.
fn block(rig: &Rig, index: i32) -> (Sender<()>, Receiver<()>) {
    let (release, wait) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let (wait, tell) = (Mutex::new(wait), Mutex::new(tell));
    rig.on_message(move |message| {
        if is_frame(message, index) {
            tell.lock().unwrap().send(()).unwrap();
            // An error: the sender is gone.
            let _ = wait.lock().unwrap().recv();
        }
    });
    (release, told)
}

/// Each frame leaves at its time, and the clock never asks for the same time twice, while the handler has the first message.
#[test]
fn live_video_does_not_wait_for_a_handler() {
    const FRAMES: usize = 12;
    let both = sides(FRAMES);
    for attach_meta in ["true", "false"] {
        let window = [("window", "100000000"), ("window-interval", "100000000")];
        let rig = Rig::live(&[&[("attach-meta", attach_meta)], &window[..]].concat());
        let (release, has) = block(&rig, 0);
        let rig = rig.play();
        for t in 0..FRAMES {
            if t > 0 {
                rig.advance_to(FRAME * t as u64);
            }
            rig.push("ref_sink", &both.0.0[t]);
            rig.push("dist_sink", &both.1.0[t]);
            if t == 2 {
                has.recv_timeout(STEP_TIMEOUT).unwrap();
            }
        }
        // The last waits for the score of its neighbour.
        rig.wait(|log| log.report.buffers.len() >= FRAMES - 1);
        assert!(rig.stats().get::<u64>("messages-waiting").unwrap() > 1);
        drop(release);
        rig.end();
        let report = rig.finish().unwrap();
        let frames: Vec<_> = report.frames.iter().map(|frame| frame.index).collect();
        assert_eq!(frames, (0..FRAMES as i32).collect::<Vec<_>>(), "nothing was dropped");
        assert_eq!((report.buffers.len(), report.pooled.len()), (FRAMES, 1));
        let stats = report.stats.unwrap();
        assert_eq!((stats.get("messages-waiting"), stats.get("messages-dropped")), (Ok(0u64), Ok(0u64)));
    }
}

/// Where the video can wait, messages about a frame come before it, and nothing is dropped.
#[test]
fn a_file_waits_for_the_handler() {
    const FRAMES: usize = 40;
    let both = sides(FRAMES);
    let rig = Rig::offline(&[]);
    let (release, has) = block(&rig, 3);
    let rig = rig.play();
    let streams =
        [("ref_sink", &both.0), ("dist_sink", &both.1)].map(|(pad, input)| rig.streaming(pad, input));
    has.recv_timeout(STEP_TIMEOUT).unwrap();
    assert!(rig.now(|log| log.report.buffers.len()) <= 3);
    drop(release);
    streams.into_iter().for_each(|stream| stream.join());
    let report = rig.finish().unwrap();
    assert_eq!((report.frames.len(), report.buffers.len()), (FRAMES, FRAMES));
    for (t, before) in rig.log().messages_before_buffers.iter().enumerate() {
        assert!(*before > t, "frame {t} left after {before} messages");
    }
    assert_eq!(report.stats.unwrap().get::<u64>("messages-dropped"), Ok(0));
}

/// What is called from the handler of a message.
type Call = fn(&gst::Element);

fn stop(element: &gst::Element) {
    element.set_state(gst::State::Null).unwrap();
}

const CALLS: [(&str, Call); 7] = [
    ("stats", |element| drop(element.property::<gst::Structure>("stats"))),
    ("settings", |element| element.set_property("alarm-low", 50.0)),
    ("reset", |element| element.emit_by_name::<()>("reset-stats", &[])),
    ("release", |element| element.release_request_pad(&element.static_pad("dist_0").unwrap())),
    ("request", |element| drop(element.request_pad_simple("dist_%u").unwrap())),
    ("seek", |element| {
        element.send_event(seek_to_start());
    }),
    ("stop", stop),
];

/// Calls the element from the handler of the first message of a kind; hears when the call has returned.
fn call(rig: &Rig, kind: impl Fn(&gst::Message) -> bool + Send + Sync + 'static, call: Call) -> Receiver<()> {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(Some(tell));
    let element = rig.element.clone();
    rig.on_message(move |message| {
        if kind(message)
            && let Some(tell) = tell.lock().unwrap().take()
        {
            call(&element);
            tell.send(()).unwrap();
        }
    });
    told
}

/// Of an error and of a frame, which other threads have made.
#[test]
fn the_element_may_be_called_from_any_handler() {
    let both = sides(12);
    for of_error in [true, false] {
        for (name, what) in CALLS {
            let rig = Rig::offline(&[("missing-frame", "error")]).with_renditions(&["other"]);
            let kind = move |message: &gst::Message| match of_error {
                true => message.type_() == gst::MessageType::Error,
                false => is_frame(message, 2),
            };
            let returned = call(&rig, kind, what);
            let rig = Arc::new(rig.play());
            let inputs = [
                ("ref_sink", both.0.clone()),
                ("dist_sink", both.1.keep(|t| t != 8)),
                ("dist_0", both.1.clone()),
            ];
            let streams = inputs.map(|(pad, input)| rig.streaming(pad, &input));
            let done = returned.recv_timeout(STEP_TIMEOUT);
            assert!(done.is_ok(), "{name} has not returned, of an error: {of_error}");
            rig.element.set_state(gst::State::Null).unwrap();
            streams.into_iter().for_each(|stream| stream.join());
        }
    }
}

/// The thread that writes files has something to say, and the handler stops the element.
#[test]
fn a_handler_may_stop_the_element_when_a_file_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let rig = Rig::offline(&[("results-filename", path.to_str().unwrap())]);
    let returned = call(&rig, |message| message.type_() == gst::MessageType::Warning, stop);
    let rig = rig.play();
    // Nothing is scored, so there are no results.
    rig.end_of("dist_sink");
    rig.push("ref_sink", &sides(1).0.0[0]);
    rig.end_of("ref_sink");
    returned.recv_timeout(STEP_TIMEOUT).unwrap();
    // And it plays again.
    until(|| rig.element.set_state(gst::State::Playing).is_ok());
}

/// Upstream posts an error too when it hears of this one.
#[test]
fn the_cause_of_an_error_comes_before_upstream_hears_of_it() {
    let both = sides(4);
    let rig = Rig::offline(&[("missing-frame", "error")]).play();
    rig.end_of("dist_sink");
    let mut t = 0;
    while rig.try_push("ref_sink", &both.0.0[t]).is_ok() {
        t = (t + 1) % 4;
    }
    assert!(rig.now(|log| log.error.is_some()));
}
