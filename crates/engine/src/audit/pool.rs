// SPDX-License-Identifier: MPL-2.0

//! Process-wide worker pool that recomputes audited groups.
//!
//! A session has one group in a thousand recomputed. A CPU backend of its own would be idle in between but keep its memory:
//! about 30 MB for pictures of 1920x1080, or 6 GB for 220 channels. So all sessions that ask for the same number of threads
//! share one [`AuditPool`], which starts a [`CpuSlot`] for each group that it computes at the same time.
//!
//! The owners of leased pictures may have few of them. So one thread of normal priority copies the pictures of each task at
//! once and ends the leases. The slots, whose threads have the lowest priority, compute the copies.
//!
//! A task uses one slot with one thread. Several threads would finish it sooner, but the result is not urgent, and for those
//! milliseconds they would disturb the threads that feed GPUs: of 440 live channels some then lost frames.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};

use gpu::Stream;
use rayon::ThreadPool;

use crate::backend::cpu::{self, Cpu};
use crate::backend::{Backend, BackendError, Group, SumsResult, guarded, hip};
use crate::frame::{Component, Geometry, Leased, Picture, Samples};
use crate::metrics::Work;
use crate::scale::Scaling;

/// Prepared backends that a slot keeps. With more, the least recently used one is dropped.
const BACKENDS_PER_SLOT: usize = 4;
/// Picture buffers that are kept for the next copies.
const SPARE_BUFFERS: usize = 16;

/// Describes groups that one prepared backend can compute.
#[derive(PartialEq)]
pub struct GroupKind {
    pub work: Work,
    pub geometry: Geometry,
    pub renditions: Vec<Option<Scaling>>,
}

/// Pictures of a group. `P` is a lease ([`Leased`]) at first and a copy ([`CopiedPicture`]) later.
pub struct Pictures<P> {
    pub reference: P,
    pub distorted: Vec<(usize, P)>,
}

/// Copies of an earlier group's pictures, which later groups depend on. The copying thread provides them.
pub type Earlier = Arc<OnceLock<Pictures<CopiedPicture>>>;

/// A group to recompute, with the groups before it, the most recent one first.
pub struct Task<P> {
    pub kind: Arc<GroupKind>,
    pub earlier: Vec<Earlier>,
    pub pictures: Pictures<P>,
    pub history_only: bool,
    /// Cannot be upgraded any more once the session has given up the result.
    pub wanted: Weak<()>,
    /// Receives the sums.
    pub result: Sender<SumsResult>,
}

/// A request to the copying thread.
enum CopyRequest {
    /// Copy the pictures of a task, those on a GPU through the stream.
    Copy(Box<Task<Leased>>, Option<Arc<Stream>>, OpenTask),
    /// Copy pictures with samples of this many bytes for later tasks.
    Keep(Box<Pictures<Leased>>, usize, Option<Arc<Stream>>, Earlier),
    /// Answer when all earlier requests are done.
    Settle(SyncSender<()>),
}

/// The copying thread and the slots.
pub struct AuditPool {
    /// `None` tells the copying thread to end.
    requests: Option<Sender<CopyRequest>>,
    copying: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl AuditPool {
    /// Returns the pool of the process with this number of threads.
    pub fn of(threads: usize) -> io::Result<Arc<Self>> {
        static POOLS: Mutex<BTreeMap<usize, Weak<AuditPool>>> = Mutex::new(BTreeMap::new());
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(&threads).and_then(Weak::upgrade) {
            return Ok(pool);
        }
        let pool = Arc::new(Self::new(threads)?);
        pools.insert(threads, Arc::downgrade(&pool));
        Ok(pool)
    }

    fn new(threads: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared { threads, queue: Mutex::default(), task_closed: Condvar::new() });
        let (requests, queue) = mpsc::channel();
        let its = shared.clone();
        let copying = Builder::new().name("hipvmaf-copy".into()).spawn(move || copy(queue, &its))?;
        Ok(Self { requests: Some(requests), copying: Some(copying), shared })
    }

    /// Returns true if each slot has a task and one more task waits.
    pub fn is_busy(&self) -> bool {
        self.shared.queue().open > self.shared.threads
    }

    /// Queues a task. Pictures on a GPU are copied through `downloads`. Returns `None` if the copying thread has ended.
    pub fn compute(&self, task: Task<Leased>, downloads: Option<Arc<Stream>>) -> Option<()> {
        let open = OpenTask::new(self.shared.clone());
        self.requests.as_ref()?.send(CopyRequest::Copy(Box::new(task), downloads, open)).ok()
    }

    /// Copies pictures for later tasks. `size`: bytes of a sample. Returns `None` if the copying thread has ended.
    pub fn keep(
        &self,
        pictures: Pictures<Leased>,
        size: usize,
        downloads: Option<Arc<Stream>>,
    ) -> Option<Earlier> {
        let earlier = Earlier::default();
        let request = CopyRequest::Keep(Box::new(pictures), size, downloads, earlier.clone());
        self.requests.as_ref()?.send(request).ok()?;
        Some(earlier)
    }

    /// Waits until the pictures of all tasks so far are copied, so that no lease is left.
    pub fn settle(&self) {
        let (done, settled) = mpsc::sync_channel(1);
        if self.requests.as_ref().is_some_and(|requests| requests.send(CopyRequest::Settle(done)).is_ok()) {
            // An error means that the thread has ended and dropped its leases.
            let _ = settled.recv();
        }
    }
}

impl Drop for AuditPool {
    fn drop(&mut self) {
        self.requests = None;
        self.copying.take().map(JoinHandle::join);
        // Tasks that are being computed have to end; the others are no longer wanted and end at once.
        drop(self.shared.task_closed.wait_while(self.shared.queue(), |queue| queue.open > 0));
    }
}

/// Runs the copying thread.
fn copy(requests: Receiver<CopyRequest>, shared: &Arc<Shared>) {
    gpu::ContextGuard::for_thread();
    for request in requests {
        // The receivers of results may be gone: their sessions have ended.
        match request {
            CopyRequest::Settle(done) => done.send(()).unwrap_or(()),
            CopyRequest::Copy(task, ..) if task.wanted.strong_count() == 0 => {}
            CopyRequest::Keep(.., earlier) if Arc::strong_count(&earlier) == 1 => {}
            CopyRequest::Keep(pictures, size, downloads, earlier) => {
                // Tasks that lack a copy fail.
                if let Ok(copied) = pictures.copy(size, downloads.as_deref(), shared) {
                    earlier.get_or_init(|| copied);
                }
            }
            CopyRequest::Copy(task, downloads, open) => {
                let result = task.result.clone();
                match task.copy(downloads.as_deref(), shared) {
                    Ok(copied) => shared.start(copied, open),
                    Err(err) => result.send(Err(err)).unwrap_or(()),
                }
            }
        }
    }
}

/// The state that the copying thread and the slots share.
struct Shared {
    /// Most slots that may exist.
    threads: usize,
    queue: Mutex<Queue>,
    /// Notified when an open task is closed.
    task_closed: Condvar,
}

/// Counts a task as open until it is dropped, which is when the task has a result.
struct OpenTask(Arc<Shared>);

impl OpenTask {
    fn new(shared: Arc<Shared>) -> Self {
        shared.queue().open += 1;
        Self(shared)
    }
}

impl Drop for OpenTask {
    fn drop(&mut self) {
        self.0.queue().open -= 1;
        self.0.task_closed.notify_all();
    }
}

#[derive(Default)]
struct Queue {
    /// Open tasks, including those that are being copied or computed.
    open: usize,
    waiting: VecDeque<(Task<CopiedPicture>, OpenTask)>,
    /// Idle slots, the most recently used one last.
    idle: Vec<CpuSlot>,
    /// Number of busy slots.
    busy: usize,
    /// Buffers for pictures. Freeing them each time would make the system take pages from a process that feeds a GPU.
    spare: Vec<Vec<u8>>,
}

impl Queue {
    /// Takes an idle slot, preferably one with a backend for this kind, else the most recently used one, so that few slots
    /// hold memory.
    fn take_slot(&mut self, kind: &Arc<GroupKind>) -> Option<CpuSlot> {
        let suits = |slot: &CpuSlot| slot.backends.iter().any(|(prepared, _)| prepared == kind);
        match self.idle.iter().rposition(suits) {
            Some(at) => Some(self.idle.remove(at)),
            None => self.idle.pop(),
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a task on an idle or new slot, or queues it if all slots are busy.
    fn start(self: &Arc<Self>, task: Task<CopiedPicture>, open: OpenTask) {
        let mut queue = self.queue();
        let slot = match queue.take_slot(&task.kind) {
            None if queue.busy >= self.threads => return queue.waiting.push_back((task, open)),
            Some(slot) => Ok(slot),
            None => CpuSlot::new(),
        };
        queue.busy += usize::from(slot.is_ok());
        drop(queue);
        match slot {
            Ok(slot) => slot.work(self.clone(), task, open),
            // The session may have ended.
            Err(err) => task.result.send(Err(err)).unwrap_or(()),
        }
    }

    /// Returns the slot with the next waiting task, or marks the slot idle.
    fn next(&self, slot: CpuSlot) -> Option<(CpuSlot, Task<CopiedPicture>, OpenTask)> {
        let mut queue = self.queue();
        match queue.waiting.pop_front() {
            Some((task, open)) => Some((slot, task, open)),
            None => {
                queue.busy -= 1;
                queue.idle.push(slot);
                None
            }
        }
    }

    fn spare_buffer(&self) -> Vec<u8> {
        self.queue().spare.pop().unwrap_or_default()
    }

    /// Keeps the buffers of pictures for later copies.
    fn keep_buffers(&self, pictures: impl Iterator<Item = CopiedPicture>) {
        let mut queue = self.queue();
        queue.spare.extend(pictures.map(|picture| picture.bytes));
        queue.spare.truncate(SPARE_BUFFERS);
    }
}

impl Pictures<Leased> {
    /// Leases pictures; `None` if one of them cannot be.
    pub fn leased(reference: &Picture<'_>, distorted: &[(usize, Picture<'_>)]) -> Option<Self> {
        let distorted = distorted.iter().map(|(i, picture)| Some((*i, Leased::new(picture)?)));
        Some(Self { reference: Leased::new(reference)?, distorted: distorted.collect::<Option<_>>()? })
    }

    /// Copies the pictures and ends their leases. `size`: bytes of a sample.
    fn copy(
        self,
        size: usize,
        downloads: Option<&Stream>,
        shared: &Shared,
    ) -> Result<Pictures<CopiedPicture>, BackendError> {
        let copy =
            |leased: &Leased| CopiedPicture::new(shared.spare_buffer(), leased.picture(), size, downloads);
        let distorted = self.distorted.iter().map(|(i, leased)| Ok((*i, copy(leased)?)));
        Ok(Pictures {
            reference: copy(&self.reference)?,
            distorted: distorted.collect::<Result<_, BackendError>>()?,
        })
    }
}

impl Pictures<CopiedPicture> {
    fn group(&self, history_only: bool) -> Group<'_> {
        let distorted = self.distorted.iter().map(|(i, picture)| (*i, picture.picture()));
        Group { reference: self.reference.picture(), distorted: distorted.collect(), history_only }
    }
}

impl Task<Leased> {
    /// Copies the pictures and ends their leases.
    fn copy(self, downloads: Option<&Stream>, shared: &Shared) -> Result<Task<CopiedPicture>, BackendError> {
        let Self { kind, earlier, pictures, history_only, wanted, result } = self;
        let pictures = pictures.copy(kind.geometry.sample_size(), downloads, shared)?;
        Ok(Task { kind, earlier, pictures, history_only, wanted, result })
    }
}

/// A thread with the backends that recompute groups on it.
struct CpuSlot {
    thread: Arc<ThreadPool>,
    /// Prepared backends with the groups that they are for, the most recently used one last.
    backends: Vec<(Arc<GroupKind>, Cpu)>,
}

impl CpuSlot {
    fn new() -> Result<Self, BackendError> {
        Ok(Self { thread: Arc::new(cpu::low_priority_thread("hipvmaf-verify")?), backends: vec![] })
    }

    /// Computes this task on the slot's thread, then those that wait.
    fn work(self, shared: Arc<Shared>, task: Task<CopiedPicture>, open: OpenTask) {
        let thread = self.thread.clone();
        thread.spawn(move || {
            let mut next = Some((self, task, open));
            // A task stays open until the slot has its next task or is idle.
            while let Some((mut slot, task, _open)) = next {
                slot.finish(task, &shared);
                next = shared.next(slot);
            }
        });
    }

    /// Computes a task and sends the sums, unless they are no longer wanted.
    fn finish(&mut self, task: Task<CopiedPicture>, shared: &Shared) {
        if task.wanted.strong_count() == 0 {
            return;
        }
        let sums = guarded(|| self.compute(&task)).flatten();
        let Task { earlier, pictures, result, .. } = task;
        // Other tasks may need the earlier ones as well.
        let earlier = earlier.into_iter().filter_map(|earlier| Arc::into_inner(earlier)?.into_inner());
        let all = earlier.chain([pictures]).flat_map(|Pictures { reference, distorted }| {
            distorted.into_iter().map(|(_, picture)| picture).chain([reference])
        });
        shared.keep_buffers(all);
        // The session may have ended.
        let _ = result.send(sums);
    }

    fn compute(&mut self, task: &Task<CopiedPicture>) -> SumsResult {
        let Task { kind, earlier, pictures, history_only, .. } = task;
        let cpu = self.backend(kind)?;
        cpu.reset();
        for earlier in earlier.iter().rev() {
            let earlier = earlier.get().ok_or(BackendError::Picture("cpu"))?;
            let ticket = cpu.submit(earlier.group(true))?;
            cpu.wait(ticket)?;
        }
        let ticket = cpu.submit(pictures.group(*history_only))?;
        cpu.wait(ticket)
    }

    /// Returns the backend for groups of this kind; prepares one if there is none.
    fn backend(&mut self, kind: &Arc<GroupKind>) -> Result<&mut Cpu, BackendError> {
        let found = self.backends.iter().position(|(prepared, _)| prepared == kind);
        let backend = match found {
            Some(at) => self.backends.remove(at),
            None => {
                let mut cpu = Cpu::on(self.thread.clone());
                self.backends.drain(..(self.backends.len() + 1).saturating_sub(BACKENDS_PER_SLOT));
                cpu.prepare(&kind.work, kind.geometry, &kind.renditions)?;
                (kind.clone(), cpu)
            }
        };
        self.backends.push(backend);
        self.backends.last_mut().map(|(_, cpu)| cpu).ok_or(BackendError::NotPrepared)
    }
}

/// A picture in memory of this module, with its rows packed.
pub struct CopiedPicture {
    bytes: Vec<u8>,
    /// The start of each component in `bytes`, and its shape.
    components: Vec<(usize, Component<'static>)>,
}

impl CopiedPicture {
    /// Copies a picture into `bytes`, whose old content is discarded. `size`: bytes of a sample.
    fn new(
        mut bytes: Vec<u8>,
        picture: &Picture<'_>,
        size: usize,
        downloads: Option<&Stream>,
    ) -> Result<Self, BackendError> {
        let components: Vec<_> =
            [picture.luma].into_iter().chain(picture.chroma.into_iter().flatten()).collect();
        let row = |component: &Component<'_>| (component.width.saturating_sub(1) * component.step + 1) * size;
        let total = components.iter().map(|component| row(component) * component.height).sum();
        bytes.clear();
        bytes.reserve(total);
        let mut copied = vec![];
        let on_device = |component: &Component<'_>| matches!(component.samples, Samples::Device(_));
        let fetched = match downloads {
            Some(stream) if components.iter().any(on_device) => Some(hip::fetch(stream, picture, size)?),
            _ => None,
        };
        for (i, component) in components.iter().enumerate() {
            let row = row(component);
            let Component { width, height, stride, step, shift, .. } = *component;
            copied.push((
                bytes.len(),
                Component { samples: Samples::Host(&[]), width, height, stride: row, step, shift },
            ));
            match (component.samples, fetched.as_ref().and_then(|fetched| fetched.get(i))) {
                (_, Some(rows)) => bytes.extend_from_slice(rows),
                (Samples::Host(samples), None) => {
                    for y in 0..height {
                        let row = samples.get(y * stride..).and_then(|samples| samples.get(..row));
                        bytes.extend_from_slice(row.ok_or(BackendError::Picture("cpu"))?);
                    }
                }
                (Samples::Device(_), None) => return Err(BackendError::Picture("cpu")),
            }
        }
        Ok(Self { bytes, components: copied })
    }

    fn picture(&self) -> Picture<'_> {
        let component = |(start, shape): &(usize, Component<'static>)| {
            let Component { width, height, stride, step, shift, .. } = *shape;
            let samples = Samples::Host(&self.bytes[*start..]);
            Component { samples, width, height, stride, step, shift }
        };
        let chroma = match &self.components[..] {
            [_, cb, cr] => Some([component(cb), component(cr)]),
            _ => None,
        };
        Picture { luma: component(&self.components[0]), chroma, lease: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{BitDepth, Lease};
    use crate::metrics::psnr::{Psnr, PsnrWork};

    const SIZE: (usize, usize) = (48, 32);

    fn kind(renditions: usize) -> Arc<GroupKind> {
        let (width, height) = SIZE;
        let geometry = Geometry { width, height, depth: BitDepth::new(8).unwrap(), chroma: None };
        let work = Work::default().with::<Psnr>(PsnrWork { chroma: false });
        Arc::new(GroupKind { work, geometry, renditions: vec![None; renditions] })
    }

    /// Returns a task that compares a picture, which `keep` owns, with itself.
    fn task(keep: &Arc<Vec<u8>>, wanted: &Arc<()>) -> (Task<Leased>, Receiver<SumsResult>) {
        let kind = kind(1);
        let mut picture = Picture::packed(keep, kind.geometry).unwrap();
        // SAFETY: the bytes are never changed.
        picture.lease = Some(unsafe { Lease::new(keep.clone()) });
        let pictures = Pictures::leased(&picture, &[(0, picture.clone())]).unwrap();
        let (result, sums) = mpsc::channel();
        let task = Task {
            kind,
            earlier: vec![],
            pictures,
            history_only: false,
            wanted: Arc::downgrade(wanted),
            result,
        };
        (task, sums)
    }

    #[test]
    fn sessions_with_equal_thread_counts_share_a_pool() {
        let [first, second, other] = [3, 3, 2].map(|threads| AuditPool::of(threads).unwrap());
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &other));
        // The pool ends with its last user.
        let pool = Arc::downgrade(&first);
        drop(first);
        assert!(pool.upgrade().is_some());
        drop(second);
        assert!(pool.upgrade().is_none());
        assert!(!Arc::ptr_eq(&AuditPool::of(3).unwrap(), &other));
    }

    #[test]
    fn leases_end_before_the_sums_are_there() {
        let pool = AuditPool::of(1).unwrap();
        let (keep, wanted) = (Arc::new(vec![7; SIZE.0 * SIZE.1]), Arc::new(()));
        let results: Vec<_> = (0..20)
            .map(|_| {
                let (task, sums) = task(&keep, &wanted);
                pool.compute(task, None).unwrap();
                sums
            })
            .collect();
        pool.settle();
        assert_eq!(Arc::strong_count(&keep), 1);
        for sums in results {
            assert_eq!(sums.recv().unwrap().unwrap().len(), 1);
        }
    }

    #[test]
    fn unwanted_tasks_are_not_computed() {
        let pool = AuditPool::of(1).unwrap();
        let (keep, wanted) = (Arc::new(vec![7; SIZE.0 * SIZE.1]), Arc::new(()));
        let (given_up, no_sums) = task(&keep, &Arc::new(()));
        pool.compute(given_up, None).unwrap();
        let (task, sums) = task(&keep, &wanted);
        pool.compute(task, None).unwrap();
        assert!(sums.recv().unwrap().is_ok());
        assert!(no_sums.recv().is_err());
    }

    /// Computes this many tasks at the same time and returns the number of slots afterwards.
    fn slots_after(pool: &AuditPool, tasks: usize) -> usize {
        let (keep, wanted) = (Arc::new(vec![7; SIZE.0 * SIZE.1]), Arc::new(()));
        let compute = |_| {
            let (task, sums) = task(&keep, &wanted);
            pool.compute(task, None).unwrap();
            sums
        };
        let results: Vec<_> = (0..tasks).map(compute).collect();
        for sums in results {
            assert_eq!(sums.recv().unwrap().unwrap().len(), 1);
        }
        let queue = pool.shared.task_closed.wait_while(pool.shared.queue(), |queue| queue.open > 0).unwrap();
        assert_eq!((queue.busy, queue.waiting.len()), (0, 0));
        queue.idle.len()
    }

    #[test]
    fn consecutive_tasks_use_one_slot() {
        let pool = AuditPool::new(4).unwrap();
        assert_eq!([(); 20].map(|()| slots_after(&pool, 1)), [1; 20]);
    }

    #[test]
    fn there_are_no_more_slots_than_threads() {
        let pool = AuditPool::new(3).unwrap();
        assert!((1..=3).contains(&slots_after(&pool, 50)));
    }

    #[test]
    fn a_pool_is_busy_with_one_task_more_than_it_has_slots() {
        let pool = AuditPool::new(2).unwrap();
        let mut open: Vec<_> = (0..2).map(|_| OpenTask::new(pool.shared.clone())).collect();
        assert!(!pool.is_busy());
        open.push(OpenTask::new(pool.shared.clone()));
        assert!(pool.is_busy());
        open.pop();
        assert!(!pool.is_busy());
    }

    #[test]
    fn a_group_is_given_to_a_slot_that_is_prepared_for_its_kind() {
        let with = |renditions| {
            let mut slot = CpuSlot::new().unwrap();
            slot.backend(&kind(renditions)).unwrap();
            slot
        };
        let mut queue = Queue { idle: [1, 2, 3].map(with).into(), ..Queue::default() };
        let mut take =
            |renditions| queue.take_slot(&kind(renditions)).map(|slot| slot.backends[0].0.renditions.len());
        // No slot is prepared for five renditions; the last one in the list was used last.
        assert_eq!([2, 5, 5, 1].map(&mut take), [Some(2), Some(3), Some(1), None]);
    }

    #[test]
    fn groups_of_a_kind_share_a_backend() {
        let mut slot = CpuSlot::new().unwrap();
        let mut used = |renditions| {
            slot.backend(&kind(renditions)).unwrap();
            slot.backends.iter().map(|(kind, _)| kind.renditions.len()).collect::<Vec<_>>()
        };
        assert_eq!(used(1), [1]);
        assert_eq!(used(1), [1]);
        assert_eq!(used(2), [1, 2]);
        assert_eq!(used(1), [2, 1]);
        // The least recently used one is dropped.
        let all: Vec<_> = (3..3 + BACKENDS_PER_SLOT).map(&mut used).collect();
        assert_eq!(all[BACKENDS_PER_SLOT - 3], [2, 1, 3, 4]);
        assert_eq!(all[BACKENDS_PER_SLOT - 2], [1, 3, 4, 5]);
        assert_eq!(all[BACKENDS_PER_SLOT - 1], [3, 4, 5, 6]);
    }
}
