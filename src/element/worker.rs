// SPDX-License-Identifier: MPL-2.0

//! The worker that scores: a thread of its own owns the session, and with it the backend and all memory of a GPU.
//!
//! No thread that holds the element's lock waits for pictures to be looked at. The element hands over [`Job`]s in the order of
//! the stream and gets the results as [`News`], on the worker's thread; both carry the number of the reference frame, so it
//! does not matter how far the streaming task has got in the meantime. CPU and GPU are driven alike: groups are submitted as
//! long as the backend takes more. Another thread waits for them, oldest first, and has each collected by one more job: so a
//! group that comes in the meantime need not wait until an older one is done.
//!
//! Where there are more groups than the backend takes, the next is submitted before the results of the one that is done are
//! delivered: until then its place on the GPU is empty.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::time::{Duration, Instant};

use engine::EngineError;
use engine::backend::hip::Hip;
use engine::backend::{self, Backend, BackendError, Completion};
use engine::frame::{Geometry, Picture};
use engine::heatmap::HeatSums;
use engine::scale::Scaling;
use engine::session::{PairScore, Session, Tag, Verdict, Wrong};
use engine::video::Video;
use gpu::{Device, DeviceInfo, Selection};
use gst::ClockTime;
use gst_video::VideoInfo;

use super::CAT;
use super::error::Error;
use super::memory::device_memory::gpu_of;
use super::memory::import::{ImportError, Importer, Mapped};
use super::pads::REFERENCE;
use super::settings::OnWrongScore;
use super::threads::Thread;

/// Makes the backend to go on with when one fails before its first sums, on this GPU. It may be another GPU, which may fail
/// as well.
pub type Fallback = Box<
    dyn FnMut(&BackendError, Option<&'static DeviceInfo>) -> Result<Box<dyn Backend>, BackendError> + Send,
>;

/// Makes the backend to go on with when a GPU has computed something else than the CPU.
pub type Distrust = Box<dyn Fn() -> Result<Box<dyn Backend>, BackendError> + Send>;

/// A buffer and the format that its caps say. Its picture may be a part of it.
#[derive(Clone)]
pub struct Frame {
    pub buffer: gst::Buffer,
    pub info: Arc<VideoInfo>,
}

/// A reference frame with the distorted frames to compare with it, by number of their rendition. Without any, it is
/// history: motion compares the reference frames beside it.
#[derive(Clone)]
pub struct Group {
    /// Number of the reference frame.
    pub index: u64,
    pub running_time: ClockTime,
    pub reference: Frame,
    pub distorted: Vec<(u64, Frame)>,
}

/// Set-up of the session.
#[derive(Clone)]
pub struct Setup {
    pub geometry: Geometry,
    pub video: Video,
    /// Numbers of the renditions, and how their pictures are scaled.
    pub renditions: Vec<(u64, Option<Scaling>)>,
    /// Frames that are about to come: a GPU can be chosen by where they are.
    pub heads: Vec<gst::Buffer>,
    /// Scores may take their time: all groups that are chosen are computed again.
    pub patient: bool,
}

/// Requests of the element.
enum Job {
    Prepare(Setup),
    Group(Group),
    /// Complete the scores of a rendition without the reference frames to come.
    Finish {
        rendition: u64,
        broken: bool,
    },
    /// Reference frames are missing.
    Gap,
    /// End the run of reference frames.
    EndRun {
        broken: bool,
    },
    Retry {
        rendition: u64,
    },
    /// Compute this share of the groups again, and do this where something else comes of it.
    Verify {
        share: f64,
        on_wrong: OnWrongScore,
    },
    /// Collect this group, which was waited for.
    Collect(Ticket),
    /// Groups are not waited for any more, as the thread that does so has panicked.
    Broken(Error),
    /// Answer once everything before is done.
    Settle(SyncSender<()>),
    End,
}

/// Reports of the worker.
pub enum News {
    /// The next result of a rendition; its frames come in order.
    Scored { rendition: u64, index: u64, score: PairScore },
    /// The damage of the distorted frame, if it was computed.
    Damaged { rendition: u64, index: u64, damage: Option<HeatSums> },
    /// A distorted frame cannot be read; those after it neither, until it is [tried again](Jobs::retry). The reason comes with
    /// the first.
    Failed { rendition: u64, index: u64, reason: Option<ImportError> },
    /// A frame was computed again by the CPU; what was wrong, if anything was.
    Verified { rendition: u64, index: u64, running_time: ClockTime, wrong: Option<Wrong> },
    /// The number of groups that the CPU had no time to audit.
    NotVerified(u64),
    /// A group is done: whether it had pairs, and how long it took, if it was computed.
    Done { pairs: bool, taken: Option<Duration> },
    /// The backend that is used from now on: its name, how many groups it takes, and its GPU.
    Backend(Used),
    /// Nothing more will come.
    Error(Error),
}

/// The backend that scores.
#[derive(Clone)]
pub struct Used {
    pub name: &'static str,
    /// Groups that can be handed over before the first of them is done. One more than a GPU works on, so that the next is at
    /// hand when one of those is done; the CPU counts such a one itself.
    pub depth: usize,
    pub gpu: Option<Arc<Device>>,
    /// Names and values that say exactly what computes, and how metrics read the stream.
    pub made_by: Vec<(&'static str, String)>,
}

impl Used {
    pub fn of(session: &Session) -> Self {
        Self {
            name: session.backend_name(),
            depth: session.depth() + usize::from(session.gpu().is_some()),
            gpu: session.gpu().cloned(),
            made_by: session.made_by().into_iter().chain(session.readings()).collect(),
        }
    }
}

/// Hands jobs to the worker, which does them in the order of these calls. None of them waits.
#[derive(Clone)]
pub struct Jobs(Sender<Job>);

impl Jobs {
    /// Sets the session up for frames to come, once all before are done.
    pub fn prepare(&self, setup: Setup) {
        self.send(Job::Prepare(setup));
    }

    pub fn submit(&self, group: Group) {
        self.send(Job::Group(group));
    }

    /// Completes the scores of a rendition that wait for later reference frames; `broken` says that its stream does not end.
    pub fn finish(&self, rendition: u64, broken: bool) {
        self.send(Job::Finish { rendition, broken });
    }

    /// Says that reference frames are missing between those before and those to come.
    pub fn gap(&self) {
        self.send(Job::Gap);
    }

    /// Ends the row of reference frames; `broken` says that some are missing.
    pub fn end_run(&self, broken: bool) {
        self.send(Job::EndRun { broken });
    }

    /// Sets the share of the groups to come that is computed again.
    pub fn verify(&self, share: f64, on_wrong: OnWrongScore) {
        self.send(Job::Verify { share, on_wrong });
    }

    /// The frames of a rendition that failed can be read again.
    pub fn retry(&self, rendition: u64) {
        self.send(Job::Retry { rendition });
    }

    fn send(&self, job: Job) {
        // Fails only if the worker's thread died; then no thread waits for it either.
        let _ = self.0.send(job);
    }
}

/// Handle on the worker's thread. Everything handed over before is done and reported when it is dropped.
pub struct WorkerThread {
    jobs: Jobs,
    /// Joined when this is dropped.
    thread: Thread,
}

impl WorkerThread {
    /// `follow`: of these GPUs one can be chosen by where the first frames are. `copiers`: threads that may copy a picture, where scores
    /// may take their time and many are to be had. `distrust` makes the CPU's backend, to go on with
    /// where a GPU is found out. `deliver` is called on the worker's thread, and so is `broken` if that panics.
    pub fn new(
        session: Session,
        fallback: Option<Fallback>,
        distrust: Distrust,
        follow: Option<Selection>,
        copiers: usize,
        deliver: impl Fn(Vec<News>) + Send + 'static,
        broken: impl FnOnce(Error) + Send + 'static,
    ) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let jobs = Jobs(jobs);
        let worker = Worker {
            queue,
            held: VecDeque::new(),
            waiter: Waiter::new(jobs.clone())?,
            next: 0,
            session,
            setup: None,
            trial: fallback.map(|fallback| Trial { fallback, taken: vec![] }),
            on_wrong: OnWrongScore::default(),
            distrust,
            history: History::default(),
            withheld: vec![],
            last_of_gpu: None,
            follow,
            copiers,
            tracks: vec![],
            groups: VecDeque::new(),
            importers: vec![],
            failed: false,
            news: vec![],
            deliver: Box::new(deliver),
        };
        let thread = Thread::start("hipvmaf-score", broken, move || worker.run())?;
        Ok(Self { jobs, thread })
    }

    pub fn jobs(&self) -> Jobs {
        self.jobs.clone()
    }

    /// Returns a receiver that hears when everything handed over before is done and reported; `None` on the worker's own
    /// thread, which cannot wait for itself.
    pub fn settled(&self) -> Option<Receiver<()>> {
        let (to, from) = mpsc::sync_channel(1);
        (!self.thread.is_current()).then(|| {
            self.jobs.send(Job::Settle(to));
            from
        })
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        self.jobs.send(Job::End);
    }
}

/// The means to begin again with another backend, as long as the first has not shown that it works.
struct Trial {
    fallback: Fallback,
    /// Requests that were carried out since the session was set up.
    taken: Vec<Taken>,
}

#[derive(Clone)]
enum Taken {
    /// A group, and whether the element waits to hear that it is done.
    Group(Group, bool),
    Gap,
    Finish {
        track: usize,
        broken: bool,
    },
    EndRun {
        broken: bool,
    },
}

/// A rendition as the session knows it.
struct Track {
    rendition: u64,
    failed: bool,
}

/// Number of a group in the order of submission.
type Ticket = u64;

/// A group that the backend works on.
struct InFlight {
    ticket: Ticket,
    since: Instant,
    /// If the element waits to hear that it is done, whether it had pairs.
    counted: Option<bool>,
}

/// The thread that waits for groups, and has each collected once its end was signalled.
struct Waiter {
    /// Dropped first, which ends the thread: what a completion holds of a GPU is gone afterwards.
    groups: Sender<(Ticket, Completion)>,
    /// Groups before this one need not be waited for: they were collected, or given up.
    settled: Arc<AtomicU64>,
    /// Joined when this is dropped, after what has it end.
    _thread: Thread,
}

impl Waiter {
    fn new(jobs: Jobs) -> io::Result<Self> {
        let (groups, queue) = mpsc::channel::<(Ticket, Completion)>();
        let settled = Arc::new(AtomicU64::new(0));
        let seen = settled.clone();
        let worker = jobs.clone();
        let run = move || {
            gpu::ContextGuard::for_thread();
            for (ticket, completion) in queue {
                // A group that was collected with an older one has left its in-flight slot, and what is signalled there
                // is the end of a later group.
                if ticket >= seen.load(Ordering::Relaxed) {
                    completion();
                    jobs.send(Job::Collect(ticket));
                }
            }
        };
        let thread = Thread::start("hipvmaf-wait", move |err| worker.send(Job::Broken(err)), run)?;
        Ok(Self { groups, settled, _thread: thread })
    }

    fn wait_for(&self, ticket: Ticket, completion: Completion) {
        // Fails only if the thread has panicked.
        let _ = self.groups.send((ticket, completion));
    }

    /// Stops waiting for groups before this one.
    fn settle(&self, before: Ticket) {
        self.settled.store(before, Ordering::Relaxed);
    }
}

/// Readers of the frames of each stream as pictures, by number of the rendition; `None` for the reference.
type Importers = Vec<(Option<u64>, Importer)>;

/// Reference frames that pairs to come may need.
#[derive(Default)]
struct History {
    /// The last reference frames of the run, oldest first, as many as scores depend on and one more.
    recent: VecDeque<Group>,
    /// The number of the last ones that were not submitted to the session, because no pair has needed them so far.
    unsubmitted: usize,
    /// Pairs were submitted since the run began.
    has_pairs: bool,
    /// The number of reference frames that the last pair still waits for.
    waited_for: usize,
}

/// Data of the worker's thread.
struct Worker {
    queue: Receiver<Job>,
    /// Jobs that came while something was waited for.
    held: VecDeque<Job>,
    waiter: Waiter,
    /// Number of the next group.
    next: Ticket,
    session: Session,
    /// The present set-up of the session.
    setup: Option<Setup>,
    trial: Option<Trial>,
    on_wrong: OnWrongScore,
    distrust: Distrust,
    history: History,
    /// Reports on a GPU that computed wrong scores. They are delivered once another backend has taken over and the last score
    /// that the GPU had a part in was delivered: those that follow are right.
    withheld: Vec<News>,
    /// Number of the last frame that it has computed.
    last_of_gpu: Option<u64>,
    /// The GPUs of which one may have the video in its memory, until that is known.
    follow: Option<Selection>,
    copiers: usize,
    tracks: Vec<Track>,
    groups: VecDeque<InFlight>,
    importers: Importers,
    /// An error was reported; nothing more is done.
    failed: bool,
    /// Reports that are to be delivered.
    news: Vec<News>,
    deliver: Box<dyn Fn(Vec<News>) + Send>,
}

impl Worker {
    fn run(mut self) {
        gpu::ContextGuard::for_thread();
        loop {
            if !self.withheld.is_empty() && self.session.gpu().is_some() {
                self.attempt(Self::replace_backend);
            }
            self.deliver_news();
            let job = self.held.pop_front().or_else(|| self.queue.recv().ok());
            match job.unwrap_or(Job::End) {
                Job::End => return self.drain(),
                Job::Settle(to) => {
                    self.drain();
                    // With them goes what was imported of DMA buffers, whose producer may want to free them.
                    self.importers.clear();
                    // The thread that asked may have gone.
                    to.send(()).unwrap_or_default();
                }
                Job::Collect(ticket) => self.attempt(|worker| worker.collect_waited(ticket)),
                Job::Broken(err) => self.attempt(|_| Err(err)),
                Job::Retry { rendition } => {
                    let tracks = self.tracks.iter_mut().filter(|track| track.rendition == rendition);
                    tracks.for_each(|track| track.failed = false);
                }
                Job::Verify { share, on_wrong } => {
                    self.session.set_verified_share(share);
                    self.on_wrong = on_wrong;
                }
                Job::Group(group) if self.failed => self.done(&group),
                Job::Prepare(_) | Job::Gap | Job::Finish { .. } | Job::EndRun { .. } if self.failed => {}
                Job::Prepare(setup) => {
                    self.attempt(|worker| worker.end_run(false));
                    self.drain();
                    // The session forgets the frames before. Those that are still of use are submitted again with the next
                    // pair.
                    self.history.unsubmitted = self.history.recent.len();
                    self.history.waited_for = 0;
                    self.attempt(|worker| worker.prepare(setup));
                    if self.history.has_pairs {
                        self.session.has_lost_pictures();
                    }
                }
                Job::Group(group) => self.follow_reference(group),
                Job::Gap if self.history.unsubmitted == 0 => self.attempt(Self::gap),
                // The session has not had the frames before the gap.
                Job::Gap => {
                    self.forget_reference();
                    self.attempt(|worker| worker.end_run(true));
                }
                Job::Finish { rendition, broken } => {
                    let track = self.tracks.iter().position(|track| track.rendition == rendition);
                    self.attempt(|worker| track.map_or(Ok(()), |track| worker.finish(track, broken)));
                }
                Job::EndRun { broken } => {
                    self.forget_reference();
                    self.attempt(|worker| worker.end_run(broken));
                }
            }
        }
    }

    /// Submits the next reference frame, with what it is compared with and with the frames before that the session lacks.
    /// Frames without a partner are submitted only as far as a pair before waits for them: a rendition that is gone for
    /// hours costs no computing time.
    fn follow_reference(&mut self, group: Group) {
        // The frame may have been submitted before, to complete the scores of an earlier setup.
        if self.history.recent.back().is_some_and(|last| last.index == group.index) {
            self.history.recent.pop_back();
            self.history.unsubmitted = self.history.unsubmitted.saturating_sub(1);
        }
        let history = Group { distorted: vec![], ..group.clone() };
        let lookback = self.session.lookback();
        let is_pair = !group.distorted.is_empty();
        let submitted = is_pair || self.history.waited_for > 0;
        if submitted {
            self.submit_unsubmitted();
            self.history.waited_for =
                if is_pair { self.session.lookahead() as usize } else { self.history.waited_for - 1 };
            self.history.has_pairs |= is_pair;
            self.submit_when_possible(group, true);
        } else {
            self.done(&group);
        }
        self.history.recent.push_back(history);
        self.history.unsubmitted = if submitted { 0 } else { self.history.unsubmitted + 1 };
        // One more than scores depend on, as the last one may come again.
        let more = self.history.recent.len().saturating_sub(lookback + 1);
        self.history.recent.drain(..more);
    }

    /// Submits the last reference frames that the session has not had. Where it lacks others before these, a new run begins
    /// with them: it has as many frames as scores depend on.
    fn submit_unsubmitted(&mut self) {
        if self.history.unsubmitted > self.history.recent.len() {
            self.attempt(|worker| worker.end_run(false));
        }
        let known = self.history.recent.len().saturating_sub(self.history.unsubmitted);
        for group in self.history.recent.iter().skip(known).cloned().collect::<Vec<_>>() {
            self.submit_when_possible(group, false);
        }
        self.history.unsubmitted = 0;
    }

    /// Reports that nothing more comes of a group.
    fn done(&mut self, group: &Group) {
        self.news.push(News::Done { pairs: !group.distorted.is_empty(), taken: None });
    }

    /// The reference frames to come have nothing to do with those before.
    fn forget_reference(&mut self) {
        self.history = History::default();
    }

    /// Submits a group once there is room. `counted`: the element waits to hear that it is done.
    fn submit_when_possible(&mut self, group: Group, counted: bool) {
        // Another backend may take over while this waits, and be full as well.
        while self.is_full() {
            self.attempt(Self::wait);
        }
        if self.failed && counted {
            self.done(&group);
        }
        self.attempt(|worker| worker.submit(group, counted));
    }

    /// Waits for everything that was submitted, and delivers its results.
    fn drain(&mut self) {
        while !self.groups.is_empty() {
            self.attempt(Self::wait);
        }
        self.deliver_news();
        self.attempt(|worker| {
            worker.session.settle_audit();
            worker.collect()
        });
        self.deliver_news();
    }

    /// The backend takes no other group until one is collected.
    fn is_full(&self) -> bool {
        !self.groups.is_empty() && !self.session.room()
    }

    /// Delivers the reports.
    fn deliver_news(&mut self) {
        if !self.news.is_empty() {
            (self.deliver)(std::mem::take(&mut self.news));
        }
    }

    /// Waits for a group and collects it. Other jobs are put off.
    fn wait(&mut self) -> Result<(), Error> {
        self.deliver_news();
        loop {
            match self.queue.recv() {
                Ok(Job::Collect(ticket)) => return self.collect_waited(ticket),
                Ok(Job::Broken(err)) => return Err(err),
                Ok(job) => self.held.push_back(job),
                Err(_) => return Err(EngineError::from(BackendError::UnknownTicket).into()),
            }
        }
    }

    /// Collects a group that was waited for, unless that is done.
    fn collect_waited(&mut self, ticket: Ticket) -> Result<(), Error> {
        let is_there = |worker: &Self| worker.groups.iter().any(|group| group.ticket == ticket);
        if is_there(self) {
            self.collect()?;
            if is_there(self) {
                return Err(EngineError::from(BackendError::UnknownTicket).into());
            }
        }
        Ok(())
    }

    /// Does some work. An error is reported, unless another backend can take over.
    fn attempt(&mut self, work: impl FnOnce(&mut Self) -> Result<(), Error>) {
        if self.failed {
            return;
        }
        let mut result = work(self);
        while let Err(Error::Engine(EngineError::Backend(err))) = &result
            && err.is_device()
            && let Some(trial) = self.trial.take()
        {
            result = self.fall_back(trial, err);
        }
        if let Err(err) = result {
            self.failed = true;
            self.waiter.settle(self.next);
            self.news.push(News::Error(err));
            let counted = self.groups.drain(..).filter_map(|group| group.counted);
            self.news.extend(counted.map(|pairs| News::Done { pairs, taken: None }));
        }
    }

    /// Begins again with another backend: nothing has come of this one.
    fn fall_back(&mut self, mut trial: Trial, err: &BackendError) -> Result<(), Error> {
        let failed = self.session.gpu().map(|gpu| gpu.info());
        let backend = (trial.fallback)(err, failed).map_err(EngineError::from)?;
        self.session.set_backend(backend);
        self.groups.clear();
        self.waiter.settle(self.next);
        self.news.push(News::Backend(Used::of(&self.session)));
        let taken = std::mem::take(&mut trial.taken);
        self.trial = Some(trial);
        let Some(setup) = self.setup.take() else { return Ok(()) };
        self.follow = None;
        let done = self.prepare(setup).and_then(|()| self.redo(&taken));
        if done.is_err()
            && let Some(trial) = &mut self.trial
        {
            trial.taken = taken;
        }
        done
    }

    /// Does again what was done since the session was set up.
    fn redo(&mut self, taken: &[Taken]) -> Result<(), Error> {
        for taken in taken.iter().cloned() {
            match taken {
                Taken::Group(group, counted) => {
                    while self.is_full() {
                        self.wait()?;
                    }
                    self.submit(group, counted)?;
                }
                Taken::Gap => self.gap()?,
                Taken::Finish { track, broken } => self.finish(track, broken)?,
                Taken::EndRun { broken } => self.end_run(broken)?,
            }
        }
        Ok(())
    }

    /// Goes on with the CPU, in the middle of a run: the GPU computes something else. Results of groups that it has by now are
    /// delivered before that.
    fn replace_backend(&mut self) -> Result<(), Error> {
        while !self.groups.is_empty() {
            self.wait()?;
        }
        let backend = (self.distrust)().map_err(EngineError::from)?;
        self.importers.clear();
        let chroma = self.session.plan().work.chroma();
        let mut mapped = vec![];
        let submitted = self.history.recent.len().saturating_sub(self.history.unsubmitted);
        let needed = self.session.lags().min(submitted);
        for Group { reference: Frame { buffer, info }, .. } in
            self.history.recent.range(submitted - needed..submitted)
        {
            let mut importer = Importer::new(info, chroma);
            let unreadable = |source| Error::Buffer { pad: REFERENCE.into(), source };
            let reference = importer.map(buffer.clone(), None).map_err(unreadable)?;
            mapped.push((importer, reference));
        }
        let groups = mapped.iter().filter_map(|(importer, reference)| {
            let reference = importer.picture(reference)?;
            Some(backend::Group { reference, distorted: vec![], history_only: true })
        });
        self.session.take_over(backend, groups.collect())?;
        self.last_of_gpu = self.history.recent.back().map(|last| last.index);
        self.news.push(News::Backend(Used::of(&self.session)));
        self.collect()
    }

    /// Sets the session up. Nothing is in flight.
    fn prepare(&mut self, mut setup: Setup) -> Result<(), Error> {
        // Looked at once and not kept, as upstream may have no more than a few.
        let heads = std::mem::take(&mut setup.heads);
        // Kept even if it fails: with another backend it is tried again.
        self.setup = Some(setup.clone());
        if let Some(selection) = self.follow.take() {
            self.follow(&selection, &heads)?;
        }
        drop(heads);
        if let Some(trial) = &mut self.trial {
            trial.taken.clear();
        }
        let track = |(rendition, _): &(u64, Option<Scaling>)| Track { rendition: *rendition, failed: false };
        self.tracks = setup.renditions.iter().map(track).collect();
        self.importers.clear();
        self.session.set_patient(setup.patient);
        self.session.set_copiers(if setup.patient { self.copiers } else { 1 });
        let scalings: Vec<_> = setup.renditions.iter().map(|(_, scaling)| *scaling).collect();
        let begun = Instant::now();
        self.session.set_video(setup.video);
        self.session.prepare(setup.geometry, &scalings)?;
        gst::debug!(
            CAT,
            "prepared for {:?}, {} renditions, in {:?}",
            setup.geometry,
            scalings.len(),
            begun.elapsed()
        );
        self.news.push(News::Backend(Used::of(&self.session)));
        Ok(())
    }

    /// Goes on with the GPU that has these frames in its memory, if it is one of those that may be used.
    fn follow(&mut self, selection: &Selection, buffers: &[gst::Buffer]) -> Result<(), Error> {
        let owner = buffers.iter().find_map(|buffer| gpu_of(buffer)).filter(|owner| selection.takes(owner));
        let (Some(owner), Some(gpu)) = (owner, self.session.gpu()) else { return Ok(()) };
        if !std::ptr::eq(owner, gpu.info()) {
            let hip = Hip::open(&owner.selection(), self.session.depth()).map_err(EngineError::from)?;
            gst::info!(CAT, "scoring on the {hip}, which has the video in its memory");
            self.session.set_backend(Box::new(hip));
            self.news.push(News::Backend(Used::of(&self.session)));
        }
        Ok(())
    }

    /// Hands a group to the session, without the frames that cannot be read. `counted`: the element waits to hear that it is
    /// done.
    fn submit(&mut self, group: Group, counted: bool) -> Result<(), Error> {
        let since = Instant::now();
        let pairs = !group.distorted.is_empty();
        let chroma = self.session.plan().work.chroma();
        let gpu = self.session.gpu().cloned();
        let mut map = |input: Option<u64>, frame: &Frame| -> Result<Mapped, ImportError> {
            self.importers.retain(|(of, importer)| *of != input || importer.suits(&frame.info));
            let found = self.importers.iter().position(|(of, _)| *of == input);
            let at = found.unwrap_or(self.importers.len());
            if found.is_none() {
                self.importers.push((input, Importer::new(&frame.info, chroma)));
            }
            self.importers[at].1.map(frame.buffer.clone(), gpu.as_ref())
        };
        let unreadable = |source| Error::Buffer { pad: REFERENCE.into(), source };
        let reference = map(None, &group.reference).map_err(unreadable)?;
        let mut mapped: Vec<(usize, u64, Mapped)> = vec![];
        for (rendition, frame) in &group.distorted {
            let Some(track) = self.tracks.iter().position(|track| track.rendition == *rendition) else {
                continue;
            };
            if self.tracks[track].failed {
                self.news.push(News::Failed { rendition: *rendition, index: group.index, reason: None });
                continue;
            }
            match map(Some(*rendition), frame) {
                Ok(frame) => mapped.push((track, *rendition, frame)),
                Err(reason) => {
                    self.tracks[track].failed = true;
                    self.news.push(News::Failed {
                        rendition: *rendition,
                        index: group.index,
                        reason: Some(reason),
                    });
                }
            }
        }
        fn picture<'a>(importers: &Importers, input: Option<u64>, mapped: &'a Mapped) -> Option<Picture<'a>> {
            importers.iter().find(|(of, _)| *of == input)?.1.picture(mapped)
        }
        let reference =
            picture(&self.importers, None, &reference).ok_or_else(|| unreadable(ImportError::Small))?;
        let mut pictures: Vec<(usize, Picture<'_>)> = vec![];
        for (track, rendition, frame) in &mapped {
            match picture(&self.importers, Some(*rendition), frame) {
                Some(picture) => pictures.push((*track, picture)),
                None => {
                    self.tracks[*track].failed = true;
                    let reason = Some(ImportError::Small);
                    self.news.push(News::Failed { rendition: *rendition, index: group.index, reason });
                }
            }
        }
        if pictures.is_empty() && self.session.lookback() == 0 {
            if counted {
                self.done(&group);
            }
            return self.collect();
        }
        if let Some(trial) = &mut self.trial {
            let readable = |(rendition, _): &(u64, Frame)| mapped.iter().any(|(_, of, _)| of == rendition);
            let distorted = group.distorted.iter().filter(|frame| readable(frame)).cloned().collect();
            trial.taken.push(Taken::Group(Group { distorted, ..group.clone() }, counted));
        }
        let tag = Tag { index: group.index, time: group.running_time.nseconds() };
        self.session.submit(tag, reference, pictures)?;
        let ticket = self.next;
        self.next += 1;
        self.groups.push_back(InFlight { ticket, since, counted: counted.then_some(pairs) });
        let completion = self.session.completion().ok_or(BackendError::NotPrepared);
        self.waiter.wait_for(ticket, completion.map_err(EngineError::from)?);
        // If groups are done faster than threads take turns, most are done by now.
        self.collect()
    }

    fn gap(&mut self) -> Result<(), Error> {
        if let Some(trial) = &mut self.trial {
            trial.taken.push(Taken::Gap);
        }
        self.session.gap();
        self.collect()
    }

    fn finish(&mut self, track: usize, broken: bool) -> Result<(), Error> {
        if let Some(trial) = &mut self.trial {
            trial.taken.push(Taken::Finish { track, broken });
        }
        self.session.finish(track, broken);
        self.collect()
    }

    fn end_run(&mut self, broken: bool) -> Result<(), Error> {
        if let Some(trial) = &mut self.trial {
            trial.taken.push(Taken::EndRun { broken });
        }
        self.session.end_run(broken);
        self.collect()
    }

    /// Takes what is complete.
    fn collect(&mut self) -> Result<(), Error> {
        let collected = self.session.collect();
        let rendition = |track: usize| self.tracks.get(track).map(|track| track.rendition);
        while let Some((track, Tag { index, .. }, damage)) = self.session.take_heat() {
            let damaged = |rendition| News::Damaged { rendition, index, damage };
            self.news.extend(rendition(track).map(damaged));
        }
        for score in collected.iter().flatten() {
            let scored = |rendition| News::Scored { rendition, index: score.tag.index, score: score.clone() };
            self.news.extend(rendition(score.rendition).map(scored));
        }
        self.collect_verdicts();
        while self.groups.len() > self.session.in_flight() {
            let Some(group) = self.groups.pop_front() else { break };
            self.waiter.settle(group.ticket + 1);
            let taken = Some(group.since.elapsed());
            self.news.extend(group.counted.map(|pairs| News::Done { pairs, taken }));
            // The backend works.
            self.trial = None;
        }
        collected.map(|_| ()).map_err(Error::from)
    }

    /// Takes what has come of computing groups again.
    fn collect_verdicts(&mut self) {
        while let Some(Verdict { tag, wrong }) = self.session.take_verdict() {
            let is_wrong = wrong.iter().any(|(_, wrong)| wrong.is_some());
            let running_time = ClockTime::from_nseconds(tag.time);
            let verified = wrong.into_iter().filter_map(|(track, wrong)| {
                let rendition = self.tracks.get(track)?.rendition;
                Some(News::Verified { rendition, index: tag.index, running_time, wrong })
            });
            match self.on_wrong {
                OnWrongScore::Cpu if is_wrong => self.withheld.extend(verified),
                _ => self.news.extend(verified),
            }
        }
        let is_of_gpu = |tag: Tag| Some(tag.index) <= self.last_of_gpu;
        if self.session.gpu().is_none() && !self.session.owes(is_of_gpu) {
            self.news.append(&mut self.withheld);
        }
        match self.session.take_left_out() {
            0 => {}
            groups => self.news.push(News::NotVerified(groups)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_thread_that_waits_reaches_the_worker() {
        let (jobs, queue) = mpsc::channel();
        let waiter = Waiter::new(Jobs(jobs)).unwrap();
        waiter.wait_for(0, Box::new(|| panic!("no completion")));
        let Job::Broken(err) = queue.recv().unwrap() else { panic!("another job came") };
        let text = err.to_string();
        assert!(text.contains("hipvmaf-wait") && text.contains("no completion"), "{text}");
    }
}
