// SPDX-License-Identifier: MPL-2.0

//! The neighbours of the element: sources upstream, a sink downstream and the bus. They send what they see to a channel.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gst::ClockTime;
use gst::prelude::*;
use gsthipvmaf::meta::{NAME as META, ScoreMeta};

/// An output of the element that a neighbour has seen.
pub enum Seen {
    Message(gst::Structure),
    Error(String),
    Left(Left),
    Eos,
}

/// A buffer that has left.
pub struct Left {
    /// The running time by the segment of the buffer; `None` outside of it.
    pub running_time: Option<ClockTime>,
    /// A fault that the buffer shows by itself.
    pub fault: Option<String>,
    pub meta: Option<ScoreMeta>,
    /// The pad and the state of each entry of the metadata, also of those that the parser does not know.
    pub entries: Vec<(String, String)>,
}

enum Job {
    Frame(gst::Caps, gst::Buffer),
    Event(gst::Event),
    Segment {
        start: ClockTime,
        base: ClockTime,
    },
    /// A gap at this running time.
    Gap(ClockTime),
    /// Starts the stream anew: stream-start, caps and segment.
    Restart,
}

/// A job, and the output that does it.
type Work = (Arc<Mutex<Output>>, Job);

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Work>,
    busy: bool,
    ended: bool,
}

/// A source with a thread, which does its jobs one after the other, as fast as the pads take them.
pub struct Source {
    pub pad: gst::Pad,
    output: Arc<Mutex<Output>>,
    queue: Arc<(Mutex<Queue>, Condvar)>,
    /// The thread; `None` if another source has it.
    thread: Option<JoinHandle<()>>,
}

/// A pad that sends, and the state of its stream.
struct Output {
    pad: gst::Pad,
    /// Seconds of stream time per second of running time.
    rate: f64,
    caps: Option<gst::Caps>,
    /// The timestamp and the running time at which the segment begins.
    start: ClockTime,
    base: ClockTime,
    /// The segment event is pending, because it has to follow the caps.
    announce: bool,
}

/// Runs the jobs of a queue, on its thread.
fn run(queue: &(Mutex<Queue>, Condvar)) {
    while let Some((output, job)) = next(queue) {
        output.lock().unwrap_or_else(PoisonError::into_inner).work(job);
    }
}

fn next((queue, changed): &(Mutex<Queue>, Condvar)) -> Option<Work> {
    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    queue.busy = false;
    changed.notify_all();
    loop {
        if queue.ended {
            return None;
        }
        if let Some(work) = queue.jobs.pop_front() {
            queue.busy = true;
            return Some(work);
        }
        queue = changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

impl Output {
    fn announce(&mut self) {
        if std::mem::take(&mut self.announce) {
            let mut segment = gst::FormattedSegment::<ClockTime>::new();
            segment.set_start(self.start);
            segment.set_time(self.start);
            segment.set_base(self.base);
            segment.set_rate(self.rate);
            self.pad.push_event(gst::event::Segment::new(&segment));
        }
    }

    fn timestamp(&self, time: ClockTime) -> ClockTime {
        self.start + self.stream_time(time.saturating_sub(self.base))
    }

    /// Returns a duration in stream time.
    fn stream_time(&self, time: ClockTime) -> ClockTime {
        ClockTime::from_nseconds((time.nseconds() as f64 * self.rate) as u64)
    }

    fn work(&mut self, job: Job) {
        // Results are ignored: a refused buffer was flushed, or its pad was released or has ended. Errors arrive on the bus.
        match job {
            Job::Frame(caps, mut buffer) => {
                if self.caps.as_ref() != Some(&caps) {
                    self.pad.push_event(gst::event::Caps::new(&caps));
                    self.caps = Some(caps);
                }
                self.announce();
                let fields = buffer.make_mut();
                fields.set_pts(fields.pts().map(|time| self.timestamp(time)));
                fields.set_duration(fields.duration().map(|time| self.stream_time(time)));
                let _ = self.pad.push(buffer);
            }
            Job::Event(event) => {
                self.pad.push_event(event);
            }
            // A gap needs caps before it.
            Job::Gap(_) if self.caps.is_none() => {}
            Job::Gap(time) => {
                self.announce();
                let gap = gst::event::Gap::builder(self.timestamp(time));
                let gap = gap.duration(self.stream_time(super::pictures::FRAME));
                self.pad.push_event(gap.build());
            }
            Job::Segment { start, base } => {
                (self.start, self.base, self.announce) = (start, base, true);
                if self.caps.is_some() {
                    self.announce();
                }
            }
            Job::Restart => {
                self.caps = None;
                self.pad.push_event(gst::event::StreamStart::new(&self.pad.name()));
            }
        }
    }
}

impl Source {
    /// Makes a source for this pad, at this rate. It has a thread of its own, or shares that of another source, as behind a
    /// tee.
    pub fn new(to: &gst::Pad, live: bool, rate: f64, shared: Option<&Self>) -> Self {
        let pad = gst::Pad::builder(gst::PadDirection::Src)
            .name(format!("for_{}", to.name()))
            .query_function(move |pad, parent, query| match query.view_mut() {
                gst::QueryViewMut::Latency(latency) => {
                    latency.set(live, ClockTime::ZERO, ClockTime::NONE);
                    true
                }
                // GStreamer 1.22 reads the caps of a pad without template while another thread may change them.
                gst::QueryViewMut::Caps(query) => {
                    let any = gst::Caps::new_any();
                    query.set_result(&query.filter_owned().unwrap_or(any));
                    true
                }
                _ => gst::Pad::query_default(pad, parent, query),
            })
            .event_function(|_, _, _| true)
            .build();
        pad.set_active(true).expect("a new pad");
        pad.link(to).expect("the pad is free");
        let (start, base) = (ClockTime::ZERO, ClockTime::ZERO);
        let output = Output { pad: pad.clone(), rate, caps: None, start, base, announce: false };
        let output = Arc::new(Mutex::new(output));
        let queue = shared.map_or_else(Arc::default, |shared| shared.queue.clone());
        let of_thread = queue.clone();
        let thread = shared.is_none().then(|| std::thread::spawn(move || run(&of_thread)));
        Self { pad, output, queue, thread }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        let (queue, changed) = &*self.queue;
        let result = change(&mut queue.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
        result
    }

    fn add(&self, job: Job) {
        self.change(|queue| queue.jobs.push_back((self.output.clone(), job)));
    }

    /// Starts the stream. Its frames begin at this running time, with any timestamp.
    pub fn restart(&self, start: ClockTime, base: ClockTime) {
        self.add(Job::Restart);
        self.segment(start, base);
    }

    pub fn segment(&self, start: ClockTime, base: ClockTime) {
        self.add(Job::Segment { start, base });
    }

    /// Sends a frame of this running time, converted to a timestamp.
    pub fn frame(&self, caps: gst::Caps, buffer: gst::Buffer) {
        self.add(Job::Frame(caps, buffer));
    }

    pub fn gap(&self, time: ClockTime) {
        self.add(Job::Gap(time));
    }

    pub fn end(&self) {
        self.add(Job::Event(gst::event::Eos::new()));
    }

    /// Returns the number of pending jobs.
    pub fn backlog(&self) -> usize {
        self.change(|queue| queue.jobs.len() + usize::from(queue.busy))
    }

    /// Returns the number of pending jobs, or 0 if another source counts them for the shared thread.
    pub fn own_backlog(&self) -> usize {
        self.thread.as_ref().map_or(0, |_| self.backlog())
    }

    /// Drops the pending jobs while the pad is flushing, and waits for the current one.
    pub fn forget(&self) {
        // The start of the stream is kept.
        self.change(|queue| queue.jobs.retain(|(_, job)| matches!(job, Job::Restart)));
        let (queue, changed) = &*self.queue;
        let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_while(queue, |queue| queue.busy).unwrap_or_else(PoisonError::into_inner));
    }

    pub fn flush_start(&self, seqnum: gst::Seqnum) {
        self.pad.push_event(gst::event::FlushStart::builder().seqnum(seqnum).build());
    }

    pub fn flush_stop(&self, seqnum: gst::Seqnum) {
        self.pad.push_event(gst::event::FlushStop::builder(true).seqnum(seqnum).build());
    }
}

impl Drop for Source {
    /// Ends the thread. The pad is inactive from here on.
    fn drop(&mut self) {
        let _ = self.pad.set_active(false);
        self.change(|queue| {
            queue.ended = true;
            queue.jobs.clear();
        });
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A gate at which downstream buffers wait while it is closed.
#[derive(Default)]
pub struct Door {
    shut: Mutex<bool>,
    changed: Condvar,
}

impl Door {
    pub fn shut(&self, shut: bool) {
        *self.shut.lock().unwrap_or_else(PoisonError::into_inner) = shut;
        self.changed.notify_all();
    }

    pub fn is_shut(&self) -> bool {
        *self.shut.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self) {
        let shut = self.shut.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(shut, |shut| *shut).unwrap_or_else(PoisonError::into_inner));
    }
}

/// Makes the sink for this pad. It takes all buffers while the door is open, and checks them.
pub fn sink(src: &gst::Pad, sender: Sender<Seen>, door: Arc<Door>) -> gst::Pad {
    let (left, ended) = (sender.clone(), sender);
    let sink = gst::Pad::builder(gst::PadDirection::Sink)
        .name("sink")
        .chain_function(move |pad, _, buffer| {
            door.pass();
            // The receiver is gone at the end.
            let _ = left.send(Seen::Left(look(pad, &buffer)));
            Ok(gst::FlowSuccess::Ok)
        })
        .event_function(move |_, _, event| {
            if event.type_() == gst::EventType::Eos {
                let _ = ended.send(Seen::Eos);
            }
            true
        })
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
        .build();
    src.link(&sink).expect("both are free");
    sink.set_active(true).expect("a new pad");
    sink
}

fn look(pad: &gst::Pad, buffer: &gst::BufferRef) -> Left {
    let info = pad.current_caps().and_then(|caps| gst_video::VideoInfo::from_caps(&caps).ok());
    let fault = match info {
        None => Some("a buffer left without caps".to_owned()),
        Some(info) if info.size() != buffer.size() => {
            let (width, height) = (info.width(), info.height());
            Some(format!("{} bytes left under caps of {width}x{height}", buffer.size()))
        }
        Some(_) => None,
    };
    let segment = pad.sticky_event::<gst::event::Segment>(0);
    let segment = segment.and_then(|event| event.segment().clone().downcast::<ClockTime>().ok());
    let entries = gst::meta::CustomMeta::from_buffer(buffer, META).ok().map(|meta| {
        let entries = meta.structure().get::<gst::Structure>("scores");
        let text = |entry: &gst::StructureRef, name: &str| entry.get::<String>(name).unwrap_or_default();
        let entry = |value: &gst::glib::SendValue| {
            value.get::<&gst::StructureRef>().map(|entry| (text(entry, "pad"), text(entry, "state")))
        };
        entries
            .map(|entries| entries.iter().filter_map(|(_, value)| entry(value).ok()).collect())
            .unwrap_or_default()
    });
    Left {
        running_time: segment.and_then(|segment| segment.to_running_time(buffer.pts())),
        fault,
        meta: ScoreMeta::from_buffer(buffer),
        entries: entries.unwrap_or_default(),
    }
}

/// The time that a slow application takes for a message.
const SLOW: Duration = Duration::from_millis(2);

/// Makes a bus that reads the element's messages, slowly while `slow` is set.
pub fn bus(sender: Sender<Seen>, slow: Arc<AtomicBool>) -> gst::Bus {
    let bus = gst::Bus::new();
    bus.set_sync_handler(move |_, message| {
        if slow.load(Ordering::Relaxed) {
            std::thread::sleep(SLOW);
        }
        let seen = match message.view() {
            gst::MessageView::Element(element) => {
                element.structure().map(|structure| Seen::Message(structure.to_owned()))
            }
            gst::MessageView::Error(error) => Some(Seen::Error(error.error().to_string())),
            _ => None,
        };
        if let Some(seen) = seen {
            let _ = sender.send(seen);
        }
        gst::BusSyncReply::Drop
    });
    bus
}

/// Returns both ends of a channel.
pub fn channel() -> (Sender<Seen>, mpsc::Receiver<Seen>) {
    mpsc::channel()
}

/// A count of steps. The test fails as a hang when it stops growing.
#[derive(Default)]
pub struct Heartbeat(AtomicUsize);

impl Heartbeat {
    pub fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn beats(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
