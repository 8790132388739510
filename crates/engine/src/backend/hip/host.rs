// SPDX-License-Identifier: MPL-2.0

//! The CPU's part of a group: what is left to do once the GPU is done with it.
//!
//! Most metrics leave a few numbers, which whoever asks for the sums reads on the spot. [`SpEED`](super::speed) leaves
//! eigenvalues to be found, which takes tens of microseconds. Whoever waits for such a group reads its sums when the GPU is
//! done: threads that would have to wake up for it would take as long. Where many groups are in flight a thread of its own
//! does so, so that nobody who submits or collects groups is held up by any of them, and has a pool help as soon as there is
//! more to do than it can.

use std::ops::Range;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use gpu::{Event, Pinned, Visit};
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::early::{Early, Part};
use super::metric::{Chains, Task};
use super::slot::{InFlightSlot, sums_room};
use crate::backend::{BackendError, guarded};
use crate::metrics::FrameSums;

/// How long a thread that waits for the only group in flight stays awake. Most are done by then; what takes longer takes hardly
/// longer for the thread that has to wake up.
pub const PATIENCE: Duration = Duration::from_millis(1);

/// The threads on which the CPU does its part, for all backends of the process: as many as there are processors.
pub fn pool() -> Result<&'static ThreadPool, BackendError> {
    static POOL: OnceLock<Result<ThreadPool, ThreadPoolBuildError>> = OnceLock::new();
    let build = || ThreadPoolBuilder::new().thread_name(|i| format!("hipvmaf-host-{i}")).build();
    POOL.get_or_init(build).as_ref().map_err(|err| BackendError::Threads {
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        reason: err.to_string(),
    })
}

/// A group as whoever reads its sums has to know it.
#[derive(Clone, Copy)]
pub struct GroupInfo {
    /// How many distorted pictures it has.
    pub count: usize,
    pub history_only: bool,
    /// How many groups came before in the run.
    pub run: usize,
}

/// Makes the sums of a group of what its kernels have left.
pub fn read(chains: &Chains, left: &[u64], group: GroupInfo) -> Vec<FrameSums> {
    let mut out = vec![FrameSums::default(); group.count];
    read_some(chains, left, group, &mut out, |_, _| true);
    out
}

/// Has the metrics whose sums take long find what they can of those that come first.
fn read_ahead(chains: &Chains, early: &[u64], group: GroupInfo) {
    each(chains, early, group, |task, _, pairs| {
        if task.reads_long() {
            task.read_ahead(pairs);
        }
    });
}

/// Makes those that take long of what has come early.
fn read_early(chains: &Chains, early: Vec<u64>, group: GroupInfo) -> ReadEarly {
    let mut sums = vec![FrameSums::default(); group.count];
    read_some(chains, &early, group, &mut sums, |task, _| task.reads_long());
    ReadEarly { left: early, sums }
}

/// Makes the others of all that is left, and once more those of which that is something else.
fn read_rest(chains: &Chains, left: &[u64], group: GroupInfo, early: ReadEarly) -> Vec<FrameSums> {
    let ReadEarly { left: before, mut sums } = early;
    let room = sums_room(chains) / 8;
    let same = |range: Range<usize>| {
        let mut pairs = left.chunks(room).zip(before.chunks(room));
        pairs.all(|(now, before)| now[range.clone()] == before[range.clone()])
    };
    read_some(chains, left, group, &mut sums, |task, range| !task.reads_long() || !same(range));
    sums
}

/// What was made of sums that had come early.
struct ReadEarly {
    left: Vec<u64>,
    sums: Vec<FrameSums>,
}

/// Makes the sums of some metrics only. Whether one is of them may depend on what its kernels have left of each pair.
fn read_some(
    chains: &Chains,
    left: &[u64],
    group: GroupInfo,
    out: &mut [FrameSums],
    wanted: impl Fn(&dyn Task, Range<usize>) -> bool,
) {
    each(chains, left, group, |task, range, pairs| {
        if wanted(task, range) {
            task.read(pairs, group.run, out);
        }
    });
}

/// Goes through the metrics of a group, with where among the sums of a pair theirs are, and those of each pair.
fn each(
    chains: &Chains,
    left: &[u64],
    group: GroupInfo,
    mut with: impl FnMut(&dyn Task, Range<usize>, &[&[u64]]),
) {
    let room = sums_room(chains) / 8;
    let mut at = 0;
    for task in chains.iter().flatten() {
        let range = at..at + task.sums();
        at = range.end;
        if !group.history_only || task.has_history() {
            let pairs: Vec<_> = left.chunks(room).map(|pair| &pair[range.clone()]).collect();
            with(&**task, range, &pairs);
        }
    }
}

/// What the kernels have left of so many pairs.
pub fn left(chains: &Chains, sums: &Pinned, count: usize) -> Vec<u64> {
    let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    sums.bytes()[..count * sums_room(chains)].chunks_exact(8).map(number).collect()
}

/// A group on its way through the GPU, for all who wait for it: one of them reads its sums.
pub struct Reading {
    done: Arc<Event>,
    known: Mutex<Known>,
    changed: Condvar,
}

enum Known {
    NotYet(Order),
    /// Somebody is reading them.
    Soon,
    Sums(Result<Vec<FrameSums>, BackendError>),
    Taken,
}

/// What reading a group takes. None of it is held any longer than that: it is memory of the GPU.
struct Order {
    chains: Arc<Chains>,
    sums: Arc<Pinned>,
    early: Option<Arc<Early>>,
    group: GroupInfo,
}

impl Reading {
    /// Of the sums of a slot that are there when `done` is signalled, and stay there until they were read.
    pub fn new(chains: &Arc<Chains>, slot: &InFlightSlot, group: GroupInfo) -> Arc<Self> {
        let InFlightSlot { done, sums, early, .. } = slot;
        let order = Order { chains: chains.clone(), sums: sums.clone(), early: early.clone(), group };
        let (done, known) = (done.clone(), Mutex::new(Known::NotYet(order)));
        Arc::new(Self { done, known, changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the GPU and reads the sums, unless somebody else has begun to, and then waits for that.
    pub fn read(&self) {
        if matches!(&*self.lock(), Known::NotYet(order) if order.early.is_none()) {
            // It is left to whoever is there first. An error is met again by who reads.
            let _ = self.done.synchronize();
        }
        if let Some(order) = self.begin() {
            self.tell(order.carry_out(&self.done));
        }
        self.wait();
    }

    /// What there is to do, for the first who asks.
    fn begin(&self) -> Option<Order> {
        let mut known = self.lock();
        match std::mem::replace(&mut *known, Known::Soon) {
            Known::NotYet(order) => Some(order),
            other => {
                *known = other;
                None
            }
        }
    }

    fn tell(&self, sums: Result<Vec<FrameSums>, BackendError>) {
        *self.lock() = Known::Sums(sums);
        self.changed.notify_all();
    }

    /// Waits until somebody has read the sums.
    pub fn wait(&self) {
        let not_yet = |known: &mut Known| matches!(known, Known::NotYet(_) | Known::Soon);
        drop(self.changed.wait_while(self.lock(), not_yet).unwrap_or_else(PoisonError::into_inner));
    }

    /// The sums, once.
    pub fn take(&self) -> Option<Result<Vec<FrameSums>, BackendError>> {
        let mut known = self.lock();
        match std::mem::replace(&mut *known, Known::Taken) {
            Known::Sums(sums) => Some(sums),
            Known::Taken => Some(Err(BackendError::UnknownTicket)),
            not_yet => {
                *known = not_yet;
                None
            }
        }
    }
}

impl Order {
    fn carry_out(self, done: &Event) -> Result<Vec<FrameSums>, BackendError> {
        let Self { chains, sums, group, .. } = &self;
        let begin = Instant::now();
        let ahead = self.await_early(done, begin, Part::Ahead);
        let ahead = ahead.map_or(Ok(()), |early| guarded(|| read_ahead(chains, &early, *group)));
        let early = self.await_early(done, begin, Part::All);
        let early = early.map(|early| guarded(|| read_early(chains, early, *group)));
        // Whatever comes of that, nobody goes on before the GPU is done.
        done.synchronize_since(begin)?;
        ahead?;
        let left = left(chains, sums, group.count);
        match early.transpose()? {
            Some(early) => guarded(|| read_rest(chains, &left, *group, early)),
            None => guarded(|| read(chains, &left, *group)),
        }
    }

    /// Waits for a part of what comes early: what the kernels have left by then, unless they are further or take long.
    fn await_early(&self, done: &Event, begin: Instant, part: Part) -> Option<Vec<u64>> {
        let early = self.early.as_ref().filter(|_| !self.group.history_only)?;
        let is_there = |part| early.is_there(part, self.group.count);
        // An error is met again by whoever waits for the end.
        let _ = done.watch(begin, || is_there(part) || is_there(Part::All));
        is_there(part).then(|| early.left(self.group.count))
    }
}

/// The thread that waits for groups and has their sums read.
pub struct Reader {
    readings: Option<Sender<Arc<Reading>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    pub fn new() -> Result<Self, BackendError> {
        let pool = pool()?;
        let (readings, queue) = mpsc::channel();
        let thread = Builder::new().name("hipvmaf-read".into()).spawn(move || run(pool, &queue));
        let thread = thread.map_err(|err| BackendError::Threads { threads: 1, reason: err.to_string() })?;
        Ok(Self { readings: Some(readings), thread: Some(thread) })
    }

    /// Has a group read. Groups come in the order in which the GPU will be done with them.
    pub fn order(&self, reading: &Arc<Reading>) {
        if self.readings.as_ref().is_none_or(|readings| readings.send(reading.clone()).is_err()) {
            reading.tell(Err(BackendError::Panicked));
        }
    }
}

impl Drop for Reader {
    /// All groups were read afterwards, or are about to be.
    fn drop(&mut self) {
        self.readings = None;
        self.thread.take().map(JoinHandle::join);
    }
}

fn run(pool: &'static ThreadPool, queue: &Receiver<Arc<Reading>>) {
    Visit::for_good();
    let mut next = None;
    while let Some(reading) = next.take().or_else(|| queue.recv().ok()) {
        // An error is met again by whoever reads.
        let _ = reading.done.synchronize();
        next = queue.try_recv().ok();
        match next {
            // The GPU may be done with that one, too.
            Some(_) => pool.spawn(move || reading.read()),
            None => reading.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use gpu::{Error, Stream};

    use super::super::metric::{HalfPictures, Pairs};
    use super::*;
    use crate::backend::Halves;

    /// A metric that counts how often it is read.
    struct Counting {
        reads: Arc<AtomicUsize>,
        reads_long: bool,
    }

    impl Task for Counting {
        fn has_history(&self) -> bool {
            false
        }
        fn reads_long(&self) -> bool {
            self.reads_long
        }
        fn is_wide(&self) -> bool {
            false
        }
        fn halves_are(&self) -> Halves {
            Halves::Ignored
        }
        fn scratch(&self) -> usize {
            0
        }
        fn sums(&self) -> usize {
            2
        }
        fn launch_first(&self, _stream: &Stream, _pairs: Pairs) -> Result<(), Error> {
            Ok(())
        }
        fn launch_ahead(&self, _stream: &Stream, _pairs: Pairs) -> Result<(), Error> {
            Ok(())
        }
        fn launch(&self, _stream: &Stream, _pairs: Pairs) -> Result<(), Error> {
            Ok(())
        }
        fn read_ahead(&self, _sums: &[&[u64]]) {}
        fn halves(&self, _pairs: Pairs) -> Option<HalfPictures> {
            None
        }
        fn read(&self, sums: &[&[u64]], _run: usize, _out: &mut [FrameSums]) {
            assert!(sums.iter().all(|pair| pair.len() == 2));
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What was read early counts only as long as it is what is there in the end.
    #[test]
    fn sums_that_came_early_are_read_again_if_they_have_changed() {
        let reads = [false, true].map(|reads_long| (Arc::<AtomicUsize>::default(), reads_long));
        let task = |(reads, reads_long): &(Arc<AtomicUsize>, bool)| {
            Box::new(Counting { reads: reads.clone(), reads_long: *reads_long }) as Box<dyn Task>
        };
        let chains: Chains = reads.iter().map(|reads| vec![task(reads)]).collect();
        let room = sums_room(&chains) / 8;
        let group = GroupInfo { count: 2, history_only: false, run: 0 };
        // Of the second metric in the second pair, and what is nobody's sum.
        for (changed, again) in [(None, 0), (Some(room + 3), 1), (Some(room + 4), 0), (Some(0), 0)] {
            let early = vec![7; 2 * room];
            let mut left = early.clone();
            if let Some(changed) = changed {
                left[changed] += 1;
            }
            let early = read_early(&chains, early, group);
            read_rest(&chains, &left, group, early);
            let [short, long] = [0, 1].map(|i| reads[i].0.swap(0, Ordering::Relaxed));
            assert_eq!((short, long), (1, 1 + again), "{changed:?}");
        }
    }
}
