// SPDX-License-Identifier: MPL-2.0

//! Whoever is upstream and downstream of the element, and hears its messages. What they see goes through a channel.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gst::ClockTime;
use gst::prelude::*;
use gsthipvmaf::meta::{NAME as META, ScoreMeta};

/// What a neighbour has seen.
pub enum Seen {
    Message(gst::Structure),
    Error(String),
    Left(Left),
    Eos,
}

/// A buffer that has left.
pub struct Left {
    /// By the segment that it left in; `None` outside of it.
    pub running_time: Option<ClockTime>,
    /// What is wrong with it by itself.
    pub fault: Option<String>,
    pub meta: Option<ScoreMeta>,
    /// Pad and state of each entry of the meta, whether or not the parser knows it.
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
    /// The stream is introduced anew.
    Restart,
}

/// A job, and what it is done with.
type Work = (Arc<Mutex<Output>>, Job);

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Work>,
    busy: bool,
    ended: bool,
}

/// A source with a thread, which does one thing after the other, as long as the pads take them.
pub struct Source {
    pub pad: gst::Pad,
    output: Arc<Mutex<Output>>,
    queue: Arc<(Mutex<Queue>, Condvar)>,
    /// `None` where the thread is that of another source.
    thread: Option<JoinHandle<()>>,
}

/// What was sent on a pad.
struct Output {
    pad: gst::Pad,
    /// Seconds of the stream in a second of the pipeline.
    rate: f64,
    caps: Option<gst::Caps>,
    /// Timestamp and running time that the segment begins with.
    start: ClockTime,
    base: ClockTime,
    /// The segment is still to be announced, as it comes after caps.
    announce: bool,
}

/// Does what is queued, on its thread.
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

    /// A duration of the stream.
    fn stream_time(&self, time: ClockTime) -> ClockTime {
        ClockTime::from_nseconds((time.nseconds() as f64 * self.rate) as u64)
    }

    fn work(&mut self, job: Job) {
        // What is refused was flushed or released meanwhile, or the stream has ended; errors come by the bus.
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
            // Nobody knows of what, before there are caps.
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
    /// Upstream of this pad, at this rate. It shares the thread of another, as behind a tee, or has one of its own.
    pub fn new(to: &gst::Pad, live: bool, rate: f64, shared: Option<&Self>) -> Self {
        let pad = gst::Pad::builder(gst::PadDirection::Src)
            .name(format!("for_{}", to.name()))
            .query_function(move |pad, parent, query| match query.view_mut() {
                gst::QueryViewMut::Latency(latency) => {
                    latency.set(live, ClockTime::ZERO, ClockTime::NONE);
                    true
                }
                // GStreamer 1.22 itself looks at caps of a pad without template that another thread may be changing.
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

    /// Introduces the stream; its frames begin at this running time, with some timestamp.
    pub fn restart(&self, start: ClockTime, base: ClockTime) {
        self.add(Job::Restart);
        self.segment(start, base);
    }

    pub fn segment(&self, start: ClockTime, base: ClockTime) {
        self.add(Job::Segment { start, base });
    }

    /// A frame of this running time, which its buffer has as timestamp.
    pub fn frame(&self, caps: gst::Caps, buffer: gst::Buffer) {
        self.add(Job::Frame(caps, buffer));
    }

    pub fn gap(&self, time: ClockTime) {
        self.add(Job::Gap(time));
    }

    pub fn end(&self) {
        self.add(Job::Event(gst::event::Eos::new()));
    }

    /// Things that are still to be done.
    pub fn backlog(&self) -> usize {
        self.change(|queue| queue.jobs.len() + usize::from(queue.busy))
    }

    /// The same, or none where another source counts them, whose thread it shares.
    pub fn own_backlog(&self) -> usize {
        self.thread.as_ref().map_or(0, |_| self.backlog())
    }

    /// Forgets what is still to be done, while the pad takes nothing, and waits for what is being done.
    pub fn forget(&self) {
        // But not that the stream has to be introduced.
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
    /// The pad takes nothing any more by now.
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

/// Downstream of the element takes buffers, or has them wait.
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

/// Downstream of this pad. It takes everything while the door is open, and looks at it.
pub fn sink(src: &gst::Pad, tell: Sender<Seen>, door: Arc<Door>) -> gst::Pad {
    let (left, ended) = (tell.clone(), tell);
    let sink = gst::Pad::builder(gst::PadDirection::Sink)
        .name("sink")
        .chain_function(move |pad, _, buffer| {
            door.pass();
            // Nobody listens any more at the end.
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

/// How long an application that is slow takes for a message.
const SLOW: Duration = Duration::from_millis(2);

/// Hears what the element says, at length while `slow`.
pub fn bus(tell: Sender<Seen>, slow: Arc<AtomicBool>) -> gst::Bus {
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
            let _ = tell.send(seen);
        }
        gst::BusSyncReply::Drop
    });
    bus
}

/// Both ends of the channel.
pub fn channel() -> (Sender<Seen>, mpsc::Receiver<Seen>) {
    mpsc::channel()
}

/// Counts steps, so that somebody notices when they stop.
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
