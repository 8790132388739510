// SPDX-License-Identifier: MPL-2.0

//! Applications that are slow to handle a message, or call the element from their handler.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gst::prelude::*;

use crate::common::rig::Rig;
use crate::common::{FRAME, seek_to_start, sides, until};
use crate::process::{Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    live_video_does_not_wait_for_a_handler,
    a_file_waits_for_the_handler,
    the_element_may_be_called_from_any_handler,
    a_handler_may_stop_the_element_when_a_file_fails,
    the_cause_of_an_error_comes_before_upstream_hears_of_it
];

/// The limit of a wait.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

fn is_frame(message: &gst::Message, index: i32) -> bool {
    let structure = message.structure();
    structure.is_some_and(|s| s.get("type") == Ok("frame") && s.get("index") == Ok(index))
}

/// Installs a handler that blocks in the message of this frame until the returned sender is dropped. The returned receiver gets
/// a value when the handler has begun.
fn block(rig: &Rig, index: i32) -> (Sender<()>, Receiver<()>) {
    let (release, wait) = mpsc::channel::<()>();
    let (sender, receiver) = mpsc::channel();
    let (wait, sender) = (Mutex::new(wait), Mutex::new(sender));
    rig.on_message(move |message| {
        if is_frame(message, index) {
            sender.lock().unwrap().send(()).unwrap();
            // An error: the sender is gone.
            let _ = wait.lock().unwrap().recv();
        }
    });
    (release, receiver)
}

/// While the handler blocks in the first message, each frame leaves at its deadline, and the element never waits for the same
/// clock time twice.
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
        // The last frame waits for the score of the next.
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

/// In a pipeline without live sources, the messages of a frame are posted before it leaves, and none is dropped.
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

/// A call that an application may make from its message handler.
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

/// Calls the element from the handler of the first message of a kind. The receiver gets a value when the call has returned.
fn call(rig: &Rig, kind: impl Fn(&gst::Message) -> bool + Send + Sync + 'static, call: Call) -> Receiver<()> {
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(Some(sender));
    let element = rig.element.clone();
    rig.on_message(move |message| {
        if kind(message)
            && let Some(sender) = sender.lock().unwrap().take()
        {
            call(&element);
            sender.send(()).unwrap();
        }
    });
    receiver
}

/// Messages of errors and of frames are posted from different threads.
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

/// The handler stops the element in a message from the thread that writes files.
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
    // The element can play again.
    until(|| rig.element.set_state(gst::State::Playing).is_ok());
}

/// Upstream posts an error too when the flow return of the element reaches it.
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
