// SPDX-License-Identifier: MPL-2.0

//! The queue of messages to the application, and the thread that posts them in their order. A handler of the bus may take as
//! long as it likes, and may call the element: no other thread of the element waits in it.
//!
//! In a live pipeline nothing waits for the application: where the queue is full, the message that is worth least is dropped
//! and counted. In all others a frame waits until the messages before it were taken, and so does, in the end,
//! upstream: no more come than those of the frames that are in the element. See `docs/element.md` for what applications can
//! rely on.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::error::Error;
use super::progress::Progress;
use super::report::{event, message};
use super::threads::Thread;
use super::{CAT, lock};

/// Messages that may wait in a live pipeline.
const QUEUE: usize = 1024;
/// The time that a live pipeline waits for the application at the end of the stream, and at the stop.
pub const LIVE_END: Duration = Duration::from_secs(2);
/// The time that the application may take for a single message when a pipeline that is not live stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The priority of a message when the queue is full: the first kinds are dropped first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// The score of a frame, which is in the meta and the results too.
    Frame,
    Qos,
    Window,
    Event,
    /// Pooled figures, warnings, errors and changes of the latency are few, and never dropped.
    Kept,
}

impl Worth {
    fn of(message: &gst::Message) -> Self {
        let structure = match message.view() {
            gst::MessageView::Qos(_) => return Self::Qos,
            gst::MessageView::Element(_) => message.structure(),
            _ => None,
        };
        let Some(structure) = structure else { return Self::Kept };
        let kind = structure.get::<&str>("type").unwrap_or_default();
        match (structure.name().as_str(), kind) {
            (message::NAME, "frame") => Self::Frame,
            (message::NAME, "window") => Self::Window,
            (event::NAME, _) => Self::Event,
            _ => Self::Kept,
        }
    }
}

/// Returns true for messages that wait in the queue. The others are answered while they are posted, as `need-context`, or
/// belong to the thread that posts them, as `stream-status`.
pub fn is_queued(message: &gst::Message) -> bool {
    use gst::MessageType as Type;
    [Type::Element, Type::Error, Type::Warning, Type::Info, Type::Qos, Type::Latency]
        .contains(&message.type_())
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Worth, gst::Message)>,
    /// The application has a message and has not returned yet.
    is_posting: bool,
    /// Messages that were posted.
    posted: u64,
    dropped: u64,
    live: bool,
    /// The thread ends once it has posted what waits.
    ended: bool,
    /// The thread has panicked.
    broken: bool,
}

impl Queue {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && !self.is_posting || self.broken
    }

    /// Drops the oldest of the messages that are worth least.
    fn drop_one(&mut self) {
        let least = self.waiting.iter().map(|(worth, _)| *worth).min();
        let least = least.filter(|least| *least < Worth::Kept);
        let at = self.waiting.iter().position(|(worth, _)| Some(*worth) == least);
        if at.and_then(|at| self.waiting.remove(at)).is_some() {
            if self.dropped == 0 {
                gst::warning!(
                    CAT,
                    "the application does not keep up with the messages, and some are dropped"
                );
            }
            self.dropped += 1;
        }
    }
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// The queue and the thread that posts, from start to stop.
pub struct Messages {
    shared: Arc<Shared>,
    thread: Mutex<Option<Thread>>,
}

/// Messages in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// The messages in the queue, and the one that the application is handling.
    pub waiting: u64,
    pub dropped: u64,
}

impl Counts {
    pub fn add_to(self, mut stats: gst::Structure) -> gst::Structure {
        stats.set("messages-waiting", self.waiting);
        stats.set("messages-dropped", self.dropped);
        stats
    }
}

impl Messages {
    /// `post` is called on the thread. Each message that was posted is progress.
    pub fn new(
        progress: Arc<Progress>,
        post: impl Fn(gst::Message) + Send + 'static,
        report: impl FnOnce(Error) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (of_run, of_panic) = (shared.clone(), shared.clone());
        let of_broken = progress.clone();
        let run = move || {
            while let Some(message) = of_run.next() {
                post(message);
                of_run.posted();
                progress.made();
            }
        };
        let broken = move |err| {
            lock(&of_panic.queue).broken = true;
            of_panic.changed.notify_all();
            of_broken.made();
            report(err);
        };
        let thread = Thread::start("hipvmaf-message", broken, run)?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Puts a message into the queue, or returns it where no thread takes it.
    pub fn post(&self, message: gst::Message) -> Result<(), gst::Message> {
        let mut queue = lock(&self.shared.queue);
        if queue.broken {
            return Err(message);
        }
        queue.waiting.push_back((Worth::of(&message), message));
        if queue.live && queue.waiting.len() > QUEUE {
            queue.drop_one();
        }
        drop(queue);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Says whether a clock drives the pipeline.
    pub fn set_live(&self, live: bool) {
        lock(&self.shared.queue).live = live;
    }

    pub fn is_live(&self) -> bool {
        lock(&self.shared.queue).live
    }

    /// Returns true if the application has returned from all messages.
    pub fn is_idle(&self) -> bool {
        lock(&self.shared.queue).is_idle()
    }

    pub fn counts(&self) -> Counts {
        let queue = lock(&self.shared.queue);
        let waiting = queue.waiting.len() + usize::from(queue.is_posting);
        Counts { waiting: waiting as u64, dropped: queue.dropped }
    }

    pub fn reset_counts(&self) {
        lock(&self.shared.queue).dropped = 0;
    }

    /// Waits until what waits is posted, within reason, and ends the thread. A handler that has called this is not waited
    /// for: the rest comes once it has returned. What is given up counts as dropped.
    pub fn finish(&self) {
        lock(&self.shared.queue).ended = true;
        self.shared.changed.notify_all();
        let Some(thread) = lock(&self.thread).take() else { return };
        if thread.is_current() {
            return;
        }
        let begun = Instant::now();
        let mut queue = lock(&self.shared.queue);
        loop {
            let (posted, limit) = match queue.live {
                true => (None, LIVE_END.saturating_sub(begun.elapsed())),
                false => (Some(queue.posted), DRAIN_TIMEOUT),
            };
            let waits =
                |queue: &mut Queue| !queue.is_idle() && posted.is_none_or(|posted| posted == queue.posted);
            let waited = self.shared.changed.wait_timeout_while(queue, limit, waits);
            let timeout;
            (queue, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if queue.is_idle() {
                break;
            }
            if timeout.timed_out() {
                let left = std::mem::take(&mut queue.waiting).len() as u64;
                gst::warning!(
                    CAT,
                    "the application has not returned from a message; {left} more are dropped"
                );
                queue.dropped += left;
                return thread.detach();
            }
        }
    }
}

impl Shared {
    /// Waits for the next message to post; `None` at the end.
    fn next(&self) -> Option<gst::Message> {
        let waits = |queue: &mut Queue| queue.waiting.is_empty() && !queue.ended;
        let queue = self.changed.wait_while(lock(&self.queue), waits);
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        let (_, message) = queue.waiting.pop_front()?;
        queue.is_posting = true;
        Some(message)
    }

    /// Notes that the application has returned from the message.
    fn posted(&self) {
        let mut queue = lock(&self.queue);
        queue.is_posting = false;
        queue.posted += 1;
        drop(queue);
        self.changed.notify_all();
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::*;

    fn named(name: &str, kind: &str, number: usize) -> gst::Message {
        let number = number as u64;
        let structure = gst::Structure::builder(name).field("type", kind).field("number", number).build();
        gst::message::Element::new(structure)
    }

    fn is(message: &gst::Message) -> (String, u64) {
        let structure = message.structure().unwrap();
        let kind = structure.get::<String>("type").unwrap();
        (kind, structure.get("number").unwrap())
    }

    /// An application that does not return from the first message before the sender is dropped, and what it has by then.
    fn blocked() -> (Messages, Sender<()>, Receiver<(String, u64)>) {
        gst::init().unwrap();
        let (release, wait) = mpsc::channel();
        let (sender, posted) = mpsc::channel();
        let post = move |message: gst::Message| {
            // An error: the sender is gone.
            let _: Result<(), _> = wait.recv();
            sender.send(is(&message)).unwrap();
        };
        let messages = Messages::new(Arc::default(), post, |err| panic!("{err}")).unwrap();
        messages.post(named(message::NAME, "pooled", 0)).unwrap();
        while !lock(&messages.shared.queue).is_posting {
            std::thread::yield_now();
        }
        (messages, release, posted)
    }

    #[test]
    fn what_is_worth_least_is_dropped_in_live_pipelines() {
        let (messages, release, posted) = blocked();
        messages.set_live(true);
        let kinds = [(event::NAME, "event"), (message::NAME, "window"), (message::NAME, "frame")];
        for number in 0..QUEUE / 2 {
            kinds.iter().for_each(|(name, kind)| messages.post(named(name, kind, number)).unwrap());
        }
        // There is room for all events and windows, and no frame.
        assert_eq!(
            (messages.counts().waiting, messages.counts().dropped),
            (1 + QUEUE as u64, QUEUE as u64 / 2)
        );
        messages.post(named(message::NAME, "pooled", 1)).unwrap();
        messages.post(named(event::NAME, "event", QUEUE / 2)).unwrap();
        assert_eq!(messages.counts().dropped, QUEUE as u64 / 2 + 2);
        drop(release);
        messages.finish();
        let posted: Vec<_> = posted.iter().collect();
        let of = |kind: &str| -> Vec<u64> {
            posted.iter().filter(|(of, _)| of == kind).map(|(_, number)| *number).collect()
        };
        let last = QUEUE as u64 / 2;
        assert_eq!((of("pooled"), of("frame")), (vec![0, 1], vec![]));
        assert_eq!((of("window"), of("event")), ((2..last).collect(), (0..=last).collect()));
    }

    #[test]
    fn nothing_is_dropped_in_others() {
        let (messages, release, posted) = blocked();
        (1..2 * QUEUE).for_each(|number| messages.post(named(message::NAME, "frame", number)).unwrap());
        assert!(!messages.is_idle());
        drop(release);
        messages.finish();
        assert!(messages.is_idle() && messages.counts().dropped == 0);
        assert!(posted.iter().map(|(_, number)| number).eq(0..2 * QUEUE as u64));
    }

    /// The handler may stop the element. Later messages are posted once it has returned.
    #[test]
    fn a_handler_may_end_the_thread_that_it_is_on() {
        gst::init().unwrap();
        let (give, given) = mpsc::channel::<Arc<Messages>>();
        let (sender, posted) = mpsc::channel();
        let post = move |message: gst::Message| {
            if let Ok(messages) = given.try_recv() {
                messages.post(named(message::NAME, "frame", 1)).unwrap();
                messages.finish();
            }
            sender.send(is(&message).1).unwrap();
        };
        let messages = Arc::new(Messages::new(Arc::default(), post, |err| panic!("{err}")).unwrap());
        give.send(messages.clone()).unwrap();
        messages.post(named(message::NAME, "frame", 0)).unwrap();
        drop(messages);
        assert_eq!(posted.iter().collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn messages_come_by_themselves_where_the_thread_has_panicked() {
        gst::init().unwrap();
        let (sender, posted) = mpsc::channel();
        let report = move |err: Error| sender.send(err.to_string()).unwrap();
        let messages = Messages::new(Arc::default(), |_| panic!("deaf"), report).unwrap();
        messages.post(named(message::NAME, "frame", 0)).unwrap();
        assert!(posted.recv().unwrap().contains("deaf"));
        assert!(messages.post(named(message::NAME, "frame", 1)).is_err() && messages.is_idle());
    }
}
