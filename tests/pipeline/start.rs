// SPDX-License-Identifier: MPL-2.0

//! The first moments of live pipelines, before the clock means anything.

use std::fs;

use gst::ClockTime;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gsthipvmaf::event::{self, EventMessage};
use gsthipvmaf::message::VmafMessage;

use crate::common::rig::Rig;
use crate::common::{FRAME, init, is_asleep, sides, until};
use crate::process::{Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] =
    functions![a_clock_without_base_time_says_nothing, nothing_is_missed_while_a_sink_starts];

/// A pipeline that is about to play has a clock, which shows the uptime of the system, but no base time yet.
fn a_clock_without_base_time_says_nothing() {
    const UPTIME: ClockTime = ClockTime::from_seconds(3600);
    let both = sides(6);
    let rig = Rig::live(&[("overload", "wait")]).with_renditions(&["other"]);
    rig.clock.set_time(UPTIME);
    rig.element.set_state(gst::State::Paused).unwrap();
    let pads = ["ref_sink", "dist_sink", "dist_0"];
    for pad in pads {
        rig.push_event(pad, gst::event::StreamStart::new(pad));
    }
    // A wait for this clock would begin within a second, and would end at once.
    for _ in 0..3 {
        if rig.clock.timed_wait_for_multiple_pending_ids(1, 1000).0 {
            rig.clock.process_next_clock_id();
        }
    }
    rig.element.set_base_time(UPTIME);
    rig.element.set_state(gst::State::Playing).unwrap();
    for t in 0..6 {
        if t > 0 {
            rig.clock.set_time(UPTIME + FRAME * t as u64);
        }
        for (pad, input) in pads.into_iter().zip([&both.0, &both.1, &both.1]) {
            rig.push(pad, &input.0[t]);
        }
    }
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.events, []);
    assert_eq!(report.frames.len(), 12);
}

mod imp {
    use std::sync::{LazyLock, OnceLock};

    use gst::glib;
    use gst::subclass::prelude::*;
    use gst_base::subclass::prelude::*;

    /// A function that runs before the sink goes to PLAYING.
    pub type Before = Box<dyn Fn() + Send + Sync>;

    #[derive(Default)]
    pub struct SlowSink {
        pub before: OnceLock<Before>,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for SlowSink {
        const NAME: &'static str = "SlowSink";
        type Type = super::SlowSink;
        type ParentType = gst_base::BaseSink;
    }

    impl ObjectImpl for SlowSink {}
    impl GstObjectImpl for SlowSink {}

    impl ElementImpl for SlowSink {
        fn pad_templates() -> &'static [gst::PadTemplate] {
            static TEMPLATES: LazyLock<[gst::PadTemplate; 1]> = LazyLock::new(|| {
                let any = gst::Caps::new_any();
                let (direction, presence) = (gst::PadDirection::Sink, gst::PadPresence::Always);
                [gst::PadTemplate::new("sink", direction, presence, &any).unwrap()]
            });
            &*TEMPLATES
        }

        fn change_state(
            &self,
            transition: gst::StateChange,
        ) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
            if let (gst::StateChange::PausedToPlaying, Some(before)) = (transition, self.before.get()) {
                before();
            }
            self.parent_change_state(transition)
        }
    }

    impl BaseSinkImpl for SlowSink {
        fn render(&self, _: &gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
            Ok(gst::FlowSuccess::Ok)
        }
    }
}

gst::glib::wrapper! {
    /// A sink that is slow to go to PLAYING, as one is that has to open a device.
    pub struct SlowSink(ObjectSubclass<imp::SlowSink>)
        @extends gst_base::BaseSink, gst::Element, gst::Object;
}

/// Returns the streaming thread of the element `starting`. GStreamer names it after the element and its pad.
fn streaming_thread() -> Option<i32> {
    let name =
        |thread: &i32| fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
    let threads = fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let mut numbers = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    numbers.find(|thread| name(thread).trim() == "starting:src")
}

/// A pipeline sets the clock on all its elements at once, but the base time on each only when that goes to PLAYING. Elements
/// before a slow sink therefore get it much later than the clock.
fn nothing_is_missed_while_a_sink_starts() {
    init();
    let source =
        "videotestsrc is-live=true ! video/x-raw,format=I420,width=64,height=48,framerate=25/1 ! queue";
    let line = format!(
        "hipvmaf name=starting backend=cpu frame-message=true {source} ! starting.ref_sink {source} ! starting.dist_sink \
         {source} ! starting.dist_0"
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let element = pipeline.by_name("starting").unwrap();
    let sink: SlowSink = gst::glib::Object::builder().property("async", false).build();
    pipeline.add(&sink).unwrap();
    element.link(&sink).unwrap();
    let pad = element.static_pad("ref_sink").unwrap();
    let before = move || {
        // Events arrive in PAUSED too. They wake the streaming thread, which looks for something to do.
        let event = gst::event::CustomDownstream::new(gst::Structure::new_empty("hello"));
        pad.peer().unwrap().push_event(event);
        // The element finds nothing to do and waits again.
        until(|| streaming_thread().is_some_and(is_asleep));
    };
    assert!(sink.imp().before.set(Box::new(before)).is_ok());
    pipeline.set_state(gst::State::Playing).unwrap();
    let mut events = vec![];
    let mut scored = 0;
    for message in pipeline.bus().unwrap().iter_timed(ClockTime::from_seconds(60)) {
        match message.view() {
            gst::MessageView::Element(element) => {
                let structure = element.structure().unwrap();
                if structure.name() == event::NAME {
                    events.push(EventMessage::try_from(structure).unwrap());
                } else if let Ok(VmafMessage::Frame(_)) = VmafMessage::try_from(structure) {
                    scored += 1;
                }
            }
            gst::MessageView::Error(error) => panic!("{error:?}"),
            _ => {}
        }
        if scored == 20 {
            break;
        }
    }
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(scored, 20, "{events:?}");
    // A busy machine may lose frames, but not before the first, and no event may have the time of the clock.
    let absurd = |event: &&EventMessage| event.running_time > Some(ClockTime::from_seconds(60));
    assert_eq!(events.iter().find(absurd), None);
}
