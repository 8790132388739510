// SPDX-License-Identifier: MPL-2.0

//! The element alone: the test acts as its neighbours, its clock and its application, so it decides the order of all
//! events.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use gst::ClockTime;
use gst::prelude::*;
use gst_check::TestClock;
use gsthipvmaf::event::{self, EventMessage};
use gsthipvmaf::message::VmafMessage;

use super::{Failure, Input, Report, init, until};

/// The limit of a wait.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// The caps and the segment of a buffer that left.
#[derive(Clone, Debug)]
pub struct Under {
    pub caps: Option<gst::Caps>,
    pub segment: Option<gst::FormattedSegment<ClockTime>>,
}

/// The output of the element so far.
#[derive(Debug, Default)]
pub struct Log {
    pub report: Report,
    /// The caps and the segment of each buffer of the report.
    pub under: Vec<Under>,
    /// Events as structures.
    pub raw_events: Vec<gst::Structure>,
    /// The number of frame messages before each event.
    pub frames_before_events: Vec<usize>,
    /// The number of frame messages before each buffer.
    pub messages_before_buffers: Vec<usize>,
    /// Upstream events, with the sink pad that they left by.
    pub upstream: Vec<(String, gst::EventType)>,
    /// Downstream segments and caps, each with the number of buffers before it.
    pub segments: Vec<(usize, gst::FormattedSegment<ClockTime>)>,
    pub caps: Vec<(usize, gst::Caps)>,
    /// Other downstream events, each with the number of buffers, and of frame messages, before it.
    pub others: Vec<(usize, usize, gst::Event)>,
    pub qos: Vec<gst::Message>,
    /// The number of latency messages.
    pub latency_changes: usize,
    pub warnings: Vec<String>,
    pub error: Option<glib::Error>,
    pub eos: bool,
    /// Downstream takes no buffers while this is set.
    closed: bool,
    /// A buffer waits for downstream to take it.
    pub blocked: bool,
}

type Handler = Arc<dyn Fn(&gst::Message) + Send + Sync>;

#[derive(Default)]
struct Seen {
    log: Mutex<Log>,
    changed: Condvar,
    /// The application's handler of messages, called once a message is in the log.
    handler: Mutex<Option<Handler>>,
}

impl Seen {
    fn log(&self) -> MutexGuard<'_, Log> {
        // A failed test still has to clean up.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Log) -> T) -> T {
        let result = change(&mut self.log());
        self.changed.notify_all();
        result
    }

    /// Waits until the log fulfils a condition.
    #[track_caller]
    fn wait(&self, until: impl Fn(&Log) -> bool) -> MutexGuard<'_, Log> {
        let (log, timeout) =
            self.changed.wait_timeout_while(self.log(), STEP_TIMEOUT, |log| !until(log)).unwrap();
        if timeout.timed_out() {
            let text = format!("nothing after a minute: {log:#?}");
            drop(log);
            panic!("{text}");
        }
        log
    }
}

/// A neighbour upstream.
struct Source {
    pad: gst::Pad,
    caps: Mutex<Option<gst::Caps>>,
}

impl Source {
    fn end(&self) {
        if self.caps.lock().unwrap().is_none() {
            self.pad.push_event(gst::event::StreamStart::new(&self.pad.name()));
        }
        self.pad.push_event(gst::event::Eos::new());
    }

    fn push(&self, sample: &gst::Sample) -> Result<gst::FlowSuccess, gst::FlowError> {
        let caps = sample.caps_owned().unwrap();
        let last = self.caps.lock().unwrap().replace(caps.clone());
        if last.is_none() {
            self.pad.push_event(gst::event::StreamStart::new(&self.pad.name()));
        }
        if last.as_ref() != Some(&caps) {
            self.pad.push_event(gst::event::Caps::new(&caps));
        }
        if last.is_none() {
            self.pad.push_event(gst::event::Segment::new(&gst::FormattedSegment::<ClockTime>::new()));
        }
        self.pad.push(sample.buffer_owned().unwrap())
    }
}

/// An input that a thread of its own pushes into a pad.
pub struct Streaming {
    taken: Arc<(Mutex<usize>, Condvar)>,
    thread: JoinHandle<()>,
}

impl Streaming {
    /// Waits until the pad has taken, or refused, this many frames.
    #[track_caller]
    pub fn wait_taken(&self, count: usize) {
        let (taken, changed) = &*self.taken;
        let waited = changed.wait_timeout_while(taken.lock().unwrap(), STEP_TIMEOUT, |taken| *taken < count);
        assert!(!waited.unwrap().1.timed_out(), "the pad has not taken {count} frames in a minute");
    }

    pub fn join(self) {
        self.thread.join().unwrap();
    }
}

/// The element and its surroundings.
pub struct Rig {
    pub element: gst::Element,
    pub clock: TestClock,
    seen: Arc<Seen>,
    sources: Vec<(String, Arc<Source>)>,
    sink: gst::Pad,
    /// Elements between sources and pads.
    between: Vec<gst::Element>,
    live: bool,
}

impl Rig {
    /// Makes a live pipeline, whose clock stands at 0.
    pub fn live(properties: &[(&str, &str)]) -> Self {
        Self::new(true, properties)
    }

    /// Makes a pipeline without live sources.
    pub fn offline(properties: &[(&str, &str)]) -> Self {
        Self::new(false, properties)
    }

    fn new(live: bool, properties: &[(&str, &str)]) -> Self {
        init();
        // The default depends on the machine.
        let backend = std::env::var("HIPVMAF_TEST_BACKEND").unwrap_or("cpu".into());
        let factory = gst::ElementFactory::make("hipvmaf").name("h").property("frame-message", true);
        let mut factory = factory.property_from_str("backend", &backend);
        for (name, value) in properties {
            factory = factory.property_from_str(name, value);
        }
        let element = factory.build().unwrap();
        let seen = Arc::new(Seen::default());
        let bus = gst::Bus::new();
        let heard = seen.clone();
        bus.set_sync_handler(move |_, message| {
            heard.change(|log| log.hear(message));
            let handler = heard.handler.lock().unwrap().clone();
            if let Some(handler) = handler {
                handler(message);
            }
            gst::BusSyncReply::Drop
        });
        element.set_bus(Some(&bus));
        let clock = TestClock::new();
        element.set_clock(Some(&clock)).unwrap();
        element.set_base_time(ClockTime::ZERO);
        let sink = sink(&seen);
        element.static_pad("src").unwrap().link(&sink).unwrap();
        sink.set_active(true).unwrap();
        let mut rig = Self { element, clock, seen, sources: vec![], sink, between: vec![], live };
        rig.connect("ref_sink");
        rig.connect("dist_sink");
        rig
    }

    /// Adds distorted pads with these labels.
    pub fn with_renditions(mut self, labels: &[&str]) -> Self {
        for label in labels {
            let pad = self.request();
            pad.set_property("label", label);
        }
        self
    }

    /// Sets a handler for messages, which runs on the thread that posts them.
    pub fn on_message(&self, handler: impl Fn(&gst::Message) + Send + Sync + 'static) {
        *self.seen.handler.lock().unwrap() = Some(Arc::new(handler));
    }

    pub fn play(self) -> Self {
        self.element.set_state(gst::State::Playing).unwrap();
        self
    }

    /// Stops and plays again, with new streams on all pads.
    pub fn restart(&self) {
        self.element.set_state(gst::State::Ready).unwrap();
        for (_, source) in &self.sources {
            source.caps.lock().unwrap().take();
        }
        self.element.set_state(gst::State::Playing).unwrap();
    }

    /// Requests a distorted pad, and links a source to it.
    pub fn request(&mut self) -> gst::Pad {
        let pad = self.element.request_pad_simple("dist_%u").unwrap();
        self.connect(&pad.name());
        pad
    }

    pub fn release(&mut self, pad: &str) {
        let at = self.sources.iter().position(|(name, _)| name == pad).unwrap();
        let (_, source) = self.sources.remove(at);
        let pad = self.pad(pad);
        source.pad.unlink(&pad).unwrap();
        self.element.release_request_pad(&pad);
    }

    pub fn pad(&self, name: &str) -> gst::Pad {
        self.element.static_pad(name).unwrap()
    }

    fn connect(&mut self, name: &str) {
        let live = self.live;
        let (seen, to) = (self.seen.clone(), name.to_owned());
        let pad = gst::Pad::builder(gst::PadDirection::Src)
            .name(format!("for_{name}"))
            .event_function(move |pad, _, event| {
                seen.change(|log| log.upstream.push((to.clone(), event.type_())));
                if event.type_() == gst::EventType::Seek {
                    seek(pad, event.seqnum());
                }
                true
            })
            .query_function(move |pad, parent, query| match query.view_mut() {
                gst::QueryViewMut::Latency(latency) => {
                    latency.set(live, ClockTime::ZERO, ClockTime::NONE);
                    true
                }
                _ => gst::Pad::query_default(pad, parent, query),
            })
            .build();
        pad.set_active(true).unwrap();
        pad.link(&self.pad(name)).unwrap();
        self.sources.push((name.into(), Arc::new(Source { pad, caps: Mutex::default() })));
    }

    fn source(&self, name: &str) -> &Arc<Source> {
        &self.sources.iter().find(|(pad, _)| pad == name).unwrap().1
    }

    /// Pushes a frame into a pad, with its caps if they are new. The pad must have room and accept it.
    #[track_caller]
    pub fn push(&self, pad: &str, sample: &gst::Sample) {
        self.try_push(pad, sample).unwrap();
    }

    /// Pushes a frame that the element may refuse.
    #[track_caller]
    pub fn try_push(&self, pad: &str, sample: &gst::Sample) -> Result<gst::FlowSuccess, gst::FlowError> {
        let taken = self.pushing(pad, sample).recv_timeout(STEP_TIMEOUT);
        taken.unwrap_or_else(|_| panic!("{pad} has not taken a frame in a minute: {:#?}", self.log()))
    }

    /// Starts to push a frame into a pad, on a thread of its own as upstream elements have. The receiver gets the result.
    pub fn pushing(
        &self,
        pad: &str,
        sample: &gst::Sample,
    ) -> mpsc::Receiver<Result<gst::FlowSuccess, gst::FlowError>> {
        let (sender, receiver) = mpsc::channel();
        let (source, sample) = (self.source(pad).clone(), sample.clone());
        // The receiver may be gone.
        std::thread::spawn(move || sender.send(source.push(&sample)));
        receiver
    }

    /// Starts to push an input into a pad, up to its end.
    pub fn streaming(&self, pad: &str, input: &Input) -> Streaming {
        let (source, input) = (self.source(pad).clone(), input.clone());
        let taken = Arc::new((Mutex::new(0), Condvar::new()));
        let counter = taken.clone();
        let thread = std::thread::spawn(move || {
            let all = input.0.iter().all(|sample| {
                let pushed = source.push(sample);
                *counter.0.lock().unwrap() += 1;
                counter.1.notify_all();
                pushed.is_ok()
            });
            if all {
                source.end();
            }
        });
        Streaming { taken, thread }
    }

    /// Sends the caps of a sample to a pad.
    pub fn push_caps(&self, pad: &str, sample: &gst::Sample) {
        let caps = sample.caps_owned().unwrap();
        self.push_event(pad, gst::event::Caps::new(&caps));
        *self.source(pad).caps.lock().unwrap() = Some(caps);
    }

    /// Sends an event upstream from the sink.
    pub fn send_upstream(&self, event: gst::Event) {
        assert!(self.sink.push_event(event));
    }

    pub fn push_event(&self, pad: &str, event: gst::Event) {
        assert!(self.source(pad).pad.push_event(event));
    }

    /// Begins a segment in which the timestamp `start` has this running time.
    pub fn begin_segment(&self, pad: &str, start: ClockTime, running_time: ClockTime) {
        let mut segment = gst::FormattedSegment::<ClockTime>::new();
        segment.set_start(start);
        segment.set_time(start);
        segment.set_base(running_time);
        self.push_event(pad, gst::event::Segment::new(&segment));
    }

    pub fn flush(&self, pad: &str) {
        self.push_event(pad, gst::event::FlushStart::new());
        self.push_event(pad, gst::event::FlushStop::new(true));
    }

    /// Flushes all pads, as a seek does.
    pub fn flush_all(&self) {
        let seqnum = gst::Seqnum::next();
        let events = [
            gst::event::FlushStart::builder().seqnum(seqnum).build(),
            gst::event::FlushStop::builder(true).seqnum(seqnum).build(),
        ];
        for event in events {
            for (_, source) in &self.sources {
                assert!(source.pad.push_event(event.clone()));
            }
        }
    }

    /// Pushes frames into both pads in turn, as two live sources do.
    pub fn push_pairs(&self, reference: &[gst::Sample], distorted: &[gst::Sample]) {
        for (reference, distorted) in reference.iter().zip(distorted) {
            self.push("ref_sink", reference);
            self.push("dist_sink", distorted);
        }
    }

    pub fn end(&self) {
        for (_, source) in &self.sources {
            source.end();
        }
    }

    /// Ends the stream of one pad.
    pub fn end_of(&self, pad: &str) {
        self.source(pad).end();
    }

    /// Inserts elements between a pad and its source.
    pub fn insert(&mut self, elements: &[gst::Element], pad: &str) {
        let (source, sink) = (self.source(pad).pad.clone(), self.pad(pad));
        source.unlink(&sink).unwrap();
        let mut last = source;
        for element in elements {
            last.link(&element.static_pad("sink").unwrap()).unwrap();
            last = element.static_pad("src").unwrap();
        }
        last.link(&sink).unwrap();
        for element in elements.iter().rev() {
            element.set_state(gst::State::Playing).unwrap();
        }
        self.between.extend(elements.iter().cloned());
    }

    /// Plays all inputs to the end, each as fast as its pad takes it.
    pub fn run(&self, inputs: &[(&str, &Input)]) -> Result<Report, Failure> {
        std::thread::scope(|scope| {
            for (pad, input) in inputs {
                let source = self.source(pad);
                scope.spawn(move || {
                    // Pushing is refused once the element has failed, or the reference has ended.
                    if input.0.iter().all(|sample| source.push(sample).is_ok()) {
                        source.end();
                    }
                });
            }
        });
        self.finish()
    }

    /// Waits for the end of the streams and returns the report.
    #[track_caller]
    pub fn finish(&self) -> Result<Report, Failure> {
        let log = self.seen.wait(|log| log.eos || log.error.is_some());
        if let Some(error) = &log.error {
            let (error, text) = (error.clone(), error.message().to_string());
            let failure = Failure { error, text, events: log.report.events.clone() };
            drop(log);
            self.element.set_state(gst::State::Null).unwrap();
            return Err(failure);
        }
        let report = log.report.clone();
        drop(log);
        Ok(Report { stats: Some(self.stats()), ..report })
    }

    pub fn stats(&self) -> gst::Structure {
        self.element.property("stats")
    }

    /// Waits until the log fulfils a condition.
    #[track_caller]
    pub fn wait(&self, until: impl Fn(&Log) -> bool) {
        drop(self.seen.wait(until));
    }

    /// Returns the result of a function of the log.
    pub fn now<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        look(&self.seen.log())
    }

    /// Waits until this many buffers have left in all, and for their messages.
    #[track_caller]
    pub fn wait_buffers(&self, count: usize) -> Report {
        drop(self.seen.wait(|log| log.report.buffers.len() >= count));
        self.log().report.clone()
    }

    /// Returns everything that came out so far, once all pending messages have been posted.
    pub fn log(&self) -> MutexGuard<'_, Log> {
        until(|| self.stats().get::<u64>("messages-waiting").unwrap_or(0) == 0);
        self.seen.log()
    }

    /// Waits until this many scores have been posted in all.
    #[track_caller]
    pub fn wait_scores(&self, count: usize) {
        self.wait(|log| log.report.frames.len() >= count);
    }

    /// Blocks downstream until it flushes.
    pub fn close(&self) {
        self.seen.change(|log| log.closed = true);
    }

    /// Unblocks downstream.
    pub fn open(&self) {
        self.seen.change(|log| log.closed = false);
    }

    /// Returns the time until which an idle element waits for more frames.
    #[track_caller]
    pub fn deadline(&self) -> ClockTime {
        let (found, ids) = self.clock.timed_wait_for_multiple_pending_ids(1, 60_000);
        assert!(found, "the element does not wait for the clock after a minute: {:#?}", self.log());
        ids[0].time()
    }

    /// Moves the clock to a time, through all deadlines before it. The element must wait for a later one afterwards.
    ///
    /// Panics if the element waits again and again for a time that has passed, which would be a busy loop on a real clock.
    #[track_caller]
    pub fn advance_to(&self, time: ClockTime) {
        let mut in_vain = 0;
        loop {
            let deadline = self.deadline();
            if deadline > time {
                break;
            }
            in_vain = if deadline <= self.clock.time() { in_vain + 1 } else { 0 };
            assert!(in_vain < 100, "a busy loop: woken for {deadline} again and again");
            // The time may have passed already.
            self.clock.set_time(deadline.max(self.clock.time()));
            self.clock.process_next_clock_id();
        }
        self.clock.set_time(time);
    }

    /// Moves the clock to the next deadline, which is known.
    #[track_caller]
    pub fn expire(&self, deadline: ClockTime) {
        assert_eq!(self.deadline(), deadline);
        self.clock.set_time(deadline);
        self.clock.process_next_clock_id();
    }

    /// Returns the latency in the element's answer to a latency query.
    pub fn latency(&self) -> ClockTime {
        let mut query = gst::query::Latency::new();
        assert!(self.pad("src").query(&mut query));
        let (live, min, _) = query.result();
        assert_eq!(live, self.live);
        min
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.open();
        let _ = self.element.set_state(gst::State::Null);
        for element in &self.between {
            let _ = element.set_state(gst::State::Null);
        }
        let _ = self.sink.set_active(false);
    }
}

impl Log {
    /// Asserts that every buffer left with caps of its size, within its segment.
    #[track_caller]
    pub fn assert_fits(&self) {
        for (i, (buffer, under)) in self.report.buffers.iter().zip(&self.under).enumerate() {
            let caps = under.caps.as_ref().unwrap_or_else(|| panic!("buffer {i} left without caps"));
            let info = gst_video::VideoInfo::from_caps(caps).unwrap();
            assert_eq!(buffer.size(), info.size(), "buffer {i} is not of the caps {caps}");
            let segment = under.segment.as_ref().unwrap_or_else(|| panic!("buffer {i} left without segment"));
            assert!(
                segment.to_running_time(buffer.pts()).is_some(),
                "buffer {i}: {buffer:?} is not in {segment:?}"
            );
        }
    }

    /// Returns the events of this kind as (state, pad, reason).
    pub fn events_of(&self, kind: &str) -> Vec<(String, String, Option<String>)> {
        let text = |event: &gst::Structure, field: &str| event.get::<String>(field).unwrap_or_default();
        let of_kind = self.raw_events.iter().filter(|event| text(event, "event") == kind);
        of_kind.map(|event| (text(event, "state"), text(event, "pad"), event.get("reason").ok())).collect()
    }

    fn hear(&mut self, message: &gst::Message) {
        match message.view() {
            gst::MessageView::Element(element) => {
                let structure = element.structure().unwrap();
                if structure.name() == event::NAME {
                    self.raw_events.push(structure.to_owned());
                    self.frames_before_events.push(self.report.frames.len());
                    return self.report.events.push(EventMessage::try_from(structure).unwrap());
                }
                match VmafMessage::try_from(structure).unwrap() {
                    VmafMessage::Frame(frame) => self.report.frames.push(frame),
                    VmafMessage::Pooled(pooled) => self.report.pooled.push(pooled),
                    VmafMessage::Window(window) => self.report.windows.push(window),
                }
            }
            gst::MessageView::Qos(_) => self.qos.push(message.copy()),
            gst::MessageView::Latency(_) => self.latency_changes += 1,
            gst::MessageView::Warning(warning) => self.warnings.push(warning.error().message().into()),
            // The first error is the cause of the others.
            gst::MessageView::Error(error) => {
                self.error.get_or_insert(error.error());
            }
            _ => {}
        }
    }
}

/// Seeks as a source does: flushes on the calling thread, and begins a new segment.
fn seek(pad: &gst::Pad, seqnum: gst::Seqnum) {
    pad.push_event(gst::event::FlushStart::builder().seqnum(seqnum).build());
    pad.push_event(gst::event::FlushStop::builder(true).seqnum(seqnum).build());
    let segment = gst::FormattedSegment::<ClockTime>::new();
    pad.push_event(gst::event::Segment::builder(&segment).seqnum(seqnum).build());
}

fn sink(seen: &Arc<Seen>) -> gst::Pad {
    let (taken, events) = (seen.clone(), seen.clone());
    gst::Pad::builder(gst::PadDirection::Sink)
        .name("sink")
        .chain_function(move |pad, _, buffer| {
            taken.change(|log| log.blocked = log.closed);
            let log = taken.log();
            let mut log = taken.changed.wait_while(log, |log| log.closed).unwrap();
            log.blocked = false;
            let segment = pad.sticky_event::<gst::event::Segment>(0);
            let segment = segment.and_then(|event| event.segment().clone().downcast().ok());
            log.under.push(Under { caps: pad.current_caps(), segment });
            let messages = log.report.frames.len();
            log.messages_before_buffers.push(messages);
            log.report.buffers.push(buffer);
            drop(log);
            taken.changed.notify_all();
            Ok(gst::FlowSuccess::Ok)
        })
        .event_function(move |_, _, event| {
            events.change(|log| {
                let before = log.report.buffers.len();
                match event.view() {
                    gst::EventView::Caps(caps) => log.caps.push((before, caps.caps_owned())),
                    gst::EventView::Segment(segment) => {
                        log.segments.push((before, segment.segment().clone().downcast().unwrap()));
                    }
                    gst::EventView::Eos(_) => log.eos = true,
                    gst::EventView::FlushStart(_) => log.closed = false,
                    gst::EventView::FlushStop(_) => log.eos = false,
                    gst::EventView::StreamStart(_) => {}
                    _ => {
                        let frames = log.report.frames.len();
                        log.others.push((before, frames, event));
                    }
                }
            });
            true
        })
        // By default, only the first caps are accepted.
        .query_function(|pad, parent, query| match query.view_mut() {
            gst::QueryViewMut::AcceptCaps(query) => {
                query.set_result(true);
                true
            }
            gst::QueryViewMut::Caps(query) => {
                let any = gst::Caps::new_any();
                query.set_result(&query.filter_owned().unwrap_or(any));
                true
            }
            _ => gst::Pad::query_default(pad, parent, query),
        })
        .build()
}
