// SPDX-License-Identifier: MPL-2.0

//! The worker that scores: a thread of its own owns the session, and with it the backend and all memory of a GPU.
//!
//! Nobody who holds the element's lock waits for pictures to be looked at. The element hands over [`Job`]s in the order
//! of the stream and hears of the results as [`News`], on the worker's thread; both carry the number of the reference
//! frame, so it does not matter how far the streaming task has got in the meantime. CPU and GPU are driven alike: groups
//! are submitted as long as the backend takes more. Another thread waits for them, oldest first, and has each collected
//! by one more job: so a group that comes in the meantime need not wait until an older one is done.
//!
//! Where there are more groups than the backend takes, the next is submitted before it is told what has come of the one that
//! is done: until then its place on the GPU is empty.

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
use engine::metrics::damage::{Damage, DamageSums};
use engine::scale::Scaling;
use engine::session::{PairScore, Session, Verdict, Wrong};
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

/// A buffer and the format of its frame.
#[derive(Clone)]
pub struct Frame {
    pub buffer: gst::Buffer,
    pub info: Arc<VideoInfo>,
}

/// A reference frame with the distorted frames to compare with it, by number of their rendition.
#[derive(Clone)]
pub struct Group {
    /// Number of the reference frame.
    pub index: u64,
    pub running_time: ClockTime,
    pub reference: Frame,
    pub distorted: Vec<(u64, Frame)>,
}

/// What the session is set up for.
#[derive(Clone)]
pub struct Setup {
    pub geometry: Geometry,
    /// Numbers of the renditions, and how their pictures are scaled.
    pub renditions: Vec<(u64, Option<Scaling>)>,
    /// Frames that are about to come: a GPU can be chosen by where they are.
    pub heads: Vec<gst::Buffer>,
    /// Scores may take their time: all groups that are chosen are computed again.
    pub patient: bool,
}

/// What the element asks for.
enum Job {
    Prepare(Setup),
    Group(Group),
    EndRun {
        rendition: u64,
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

/// What the worker has to tell.
pub enum News {
    /// The next result of a rendition; its frames come in order.
    Scored { rendition: u64, index: u64, score: PairScore },
    /// Where the distorted frame is damaged, if that was looked for.
    Damaged { rendition: u64, index: u64, damage: Option<DamageSums> },
    /// A distorted frame cannot be read; those after it neither, until it is [tried again](Jobs::retry). The reason comes with
    /// the first.
    Failed { rendition: u64, index: u64, reason: Option<ImportError> },
    /// A frame was computed again by the CPU; what was wrong, if anything was.
    Verified { rendition: u64, index: u64, running_time: ClockTime, wrong: Option<Wrong> },
    /// So many groups were to be computed again, and the CPU did not get round to it.
    NotVerified(u64),
    /// A group is done; how long it took, if it was computed.
    Done(Option<Duration>),
    /// The backend that is used from now on: its name, how many groups it takes, and its GPU.
    Backend(Used),
    /// Nothing more will come.
    Error(Error),
}

/// What scores.
#[derive(Clone)]
pub struct Used {
    pub name: &'static str,
    /// Groups that can be handed over before the first of them is done. One more than a GPU works on, so that the next is at
    /// hand when one of those is done; the CPU counts such a one itself.
    pub depth: usize,
    pub gpu: Option<Arc<Device>>,
    /// What exactly computes.
    pub made_by: Vec<(&'static str, String)>,
}

impl Used {
    pub fn of(session: &Session) -> Self {
        Self {
            name: session.backend_name(),
            depth: session.depth() + usize::from(session.gpu().is_some()),
            gpu: session.gpu().cloned(),
            made_by: session.made_by(),
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

    /// Ends a rendition's run of unbroken pairs; `broken` says that pairs are missing.
    pub fn end_run(&self, rendition: u64, broken: bool) {
        self.send(Job::EndRun { rendition, broken });
    }

    /// Has this share of the groups to come computed again.
    pub fn verify(&self, share: f64, on_wrong: OnWrongScore) {
        self.send(Job::Verify { share, on_wrong });
    }

    /// The frames of a rendition that failed can be read again.
    pub fn retry(&self, rendition: u64) {
        self.send(Job::Retry { rendition });
    }

    fn send(&self, job: Job) {
        // Fails only if the thread died; then nobody waits for it either.
        let _ = self.0.send(job);
    }
}

/// The worker's thread. Everything handed over before is done and told when it is gone.
pub struct Scoring {
    jobs: Jobs,
    /// Joined when this is dropped.
    thread: Thread,
}

impl Scoring {
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
            audits: vec![],
            on_wrong: OnWrongScore::default(),
            distrust,
            recent: VecDeque::new(),
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

    /// A receiver that hears when everything handed over before is done and told; `None` on the worker's own thread,
    /// which cannot wait for itself.
    pub fn settled(&self) -> Option<Receiver<()>> {
        let (to, from) = mpsc::sync_channel(1);
        (!self.thread.is_current()).then(|| {
            self.jobs.send(Job::Settle(to));
            from
        })
    }
}

impl Drop for Scoring {
    fn drop(&mut self) {
        self.jobs.send(Job::End);
    }
}

/// What it takes to begin again with another backend, as long as the first has not shown that it works.
struct Trial {
    fallback: Fallback,
    /// What was done since the session was set up.
    taken: Vec<Taken>,
}

#[derive(Clone)]
enum Taken {
    Group(Group),
    EndRun { track: usize, broken: bool },
}

/// A rendition as the session knows it.
struct Track {
    rendition: u64,
    failed: bool,
    /// The last run of the rendition was broken off, and no pair has come since.
    broken: bool,
    /// The next pair is the first after a break that the session has forgotten.
    resumes: bool,
    /// Numbers of the frames whose scores, and whose damage, are still to come.
    scores: VecDeque<u64>,
    damages: VecDeque<u64>,
}

/// Number of a group in the order of submission.
type Ticket = u64;

/// A group that the backend works on.
struct InFlight {
    ticket: Ticket,
    since: Instant,
}

/// A group that is computed again.
struct Audited {
    /// As the session calls it.
    number: u64,
    index: u64,
    running_time: ClockTime,
    /// Numbers of its renditions, in order.
    renditions: Vec<u64>,
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
            gpu::Visit::for_good();
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

    /// Nobody waits for groups before this one any more.
    fn settle(&self, before: Ticket) {
        self.settled.store(before, Ordering::Relaxed);
    }
}

/// What describes the frames of each stream as pictures, by number of the rendition; `None` for the reference.
type Importers = Vec<(Option<u64>, Importer)>;

/// What lives on the worker's thread.
struct Worker {
    queue: Receiver<Job>,
    /// Jobs that came while something was waited for.
    held: VecDeque<Job>,
    waiter: Waiter,
    /// Number of the next group.
    next: Ticket,
    session: Session,
    /// What the session is set up for.
    setup: Option<Setup>,
    trial: Option<Trial>,
    /// Groups whose verdict is outstanding.
    audits: Vec<Audited>,
    on_wrong: OnWrongScore,
    distrust: Distrust,
    /// The last groups of the run, as many as metrics look back, where another backend may have to go on.
    recent: VecDeque<Group>,
    /// What is told of a GPU that was found out, once another backend has taken over and the last score that it had a part
    /// in was told: those that follow are right.
    withheld: Vec<News>,
    /// Number of the last frame that it has computed.
    last_of_gpu: Option<u64>,
    /// As long as it is to be found out, the GPUs of which it may be the one with the video in its memory.
    follow: Option<Selection>,
    copiers: usize,
    tracks: Vec<Track>,
    groups: VecDeque<InFlight>,
    importers: Importers,
    /// An error was told; nothing more is done.
    failed: bool,
    /// What is to be told.
    news: Vec<News>,
    deliver: Box<dyn Fn(Vec<News>) + Send>,
}

impl Worker {
    fn run(mut self) {
        gpu::Visit::for_good();
        loop {
            if !self.withheld.is_empty() && self.session.gpu().is_some() {
                self.attempt(Self::replace_backend);
            }
            self.tell();
            let job = self.held.pop_front().or_else(|| self.queue.recv().ok());
            match job.unwrap_or(Job::End) {
                Job::End => return self.drain(),
                Job::Settle(to) => {
                    self.drain();
                    // Whoever asked may have gone.
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
                Job::Group(_) if self.failed => self.news.push(News::Done(None)),
                Job::Prepare(_) | Job::EndRun { .. } if self.failed => {}
                Job::Prepare(setup) => {
                    self.drain();
                    self.attempt(|worker| worker.prepare(setup));
                }
                Job::Group(group) => {
                    // Another backend may take over while this waits, and be full as well.
                    while self.is_full() {
                        self.attempt(Self::wait);
                    }
                    self.attempt(|worker| worker.submit(group));
                }
                Job::EndRun { rendition, broken } => {
                    let track = self.tracks.iter().position(|track| track.rendition == rendition);
                    self.attempt(|worker| track.map_or(Ok(()), |track| worker.end_run(track, broken)));
                }
            }
        }
    }

    /// Waits for everything that was submitted, and tells it.
    fn drain(&mut self) {
        while !self.groups.is_empty() {
            self.attempt(Self::wait);
        }
        self.tell();
        self.attempt(|worker| {
            worker.session.settle_audit();
            worker.collect()
        });
        self.tell();
    }

    /// The backend takes no other group until one is collected.
    fn is_full(&self) -> bool {
        !self.groups.is_empty() && !self.session.room()
    }

    /// Tells what there is to tell.
    fn tell(&mut self) {
        if !self.news.is_empty() {
            (self.deliver)(std::mem::take(&mut self.news));
        }
    }

    /// Waits for a group and collects it. Other jobs are put off.
    fn wait(&mut self) -> Result<(), Error> {
        self.tell();
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

    /// Does something; what goes wrong is told, unless another backend can take over.
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
            self.news.extend(self.groups.drain(..).map(|_| News::Done(None)));
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
                Taken::Group(group) => {
                    while self.is_full() {
                        self.wait()?;
                    }
                    self.submit(group)?;
                }
                Taken::EndRun { track, broken } => self.end_run(track, broken)?,
            }
        }
        Ok(())
    }

    /// Goes on with the CPU, in the middle of a run: the GPU computes something else. What was handed to it by now is told
    /// before that.
    fn replace_backend(&mut self) -> Result<(), Error> {
        while !self.groups.is_empty() {
            self.wait()?;
        }
        let backend = (self.distrust)().map_err(EngineError::from)?;
        self.importers.clear();
        let chroma = self.session.plan().work.chroma();
        let mut mapped = vec![];
        for group in std::mem::take(&mut self.recent) {
            let input = |frame: &Frame| -> Result<(Importer, Mapped), ImportError> {
                let mut importer = Importer::new(&frame.info, chroma);
                let mapped = importer.map(frame.buffer.clone(), None)?;
                Ok((importer, mapped))
            };
            let unreadable = |source| Error::Buffer { pad: REFERENCE.into(), source };
            let reference = input(&group.reference).map_err(unreadable)?;
            let track = |rendition| self.tracks.iter().position(|track| track.rendition == rendition);
            let distorted = group
                .distorted
                .iter()
                .filter_map(|(rendition, frame)| Some((track(*rendition)?, input(frame).ok()?)));
            mapped.push((reference, distorted.collect::<Vec<_>>()));
        }
        let groups = mapped.iter().filter_map(|(reference, distorted)| {
            fn picture((importer, mapped): &(Importer, Mapped)) -> Option<Picture<'_>> {
                importer.picture(mapped)
            }
            let distorted = distorted.iter().filter_map(|(track, input)| Some((*track, picture(input)?)));
            let distorted = distorted.collect::<Vec<_>>();
            let reference = picture(reference)?;
            (!distorted.is_empty()).then_some(backend::Group { reference, distorted, history_only: true })
        });
        self.session.take_over(backend, groups.collect())?;
        self.last_of_gpu = self.tracks.iter().filter_map(|track| track.scores.back()).max().copied();
        self.news.push(News::Backend(Used::of(&self.session)));
        self.collect()
    }

    /// Sets the session up. Nothing is in flight.
    fn prepare(&mut self, mut setup: Setup) -> Result<(), Error> {
        // Looked at once and not kept, as whoever sends them may have no more than a few.
        let heads = std::mem::take(&mut setup.heads);
        // Told even if it fails: with another backend it is tried again.
        self.setup = Some(setup.clone());
        if let Some(selection) = self.follow.take() {
            self.follow(&selection, &heads)?;
        }
        drop(heads);
        if let Some(trial) = &mut self.trial {
            trial.taken.clear();
        }
        // The session forgets the runs before, but not those who read the scores.
        let resumes = |rendition| {
            self.tracks.iter().any(|track| track.rendition == rendition && (track.broken || track.resumes))
        };
        let track = |(rendition, _): &(u64, Option<Scaling>)| Track {
            rendition: *rendition,
            failed: false,
            broken: false,
            resumes: resumes(*rendition),
            scores: VecDeque::new(),
            damages: VecDeque::new(),
        };
        self.tracks = setup.renditions.iter().map(track).collect();
        self.importers.clear();
        self.audits.clear();
        self.recent.clear();
        self.session.set_patient(setup.patient);
        self.session.set_copiers(if setup.patient { self.copiers } else { 1 });
        let scalings: Vec<_> = setup.renditions.iter().map(|(_, scaling)| *scaling).collect();
        let begun = Instant::now();
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

    /// Hands a group to the session, without the frames that cannot be read.
    fn submit(&mut self, group: Group) -> Result<(), Error> {
        let since = Instant::now();
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
                    self.tracks[track].broken = true;
                    self.session.end_run(track, true);
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
                    self.tracks[*track].broken = true;
                    self.session.end_run(*track, true);
                    let reason = Some(ImportError::Small);
                    self.news.push(News::Failed { rendition: *rendition, index: group.index, reason });
                }
            }
        }
        let tracks: Vec<usize> = pictures.iter().map(|(track, _)| *track).collect();
        if tracks.is_empty() {
            self.news.push(News::Done(None));
            return self.collect();
        }
        let index = group.index;
        if let Some(trial) = &mut self.trial {
            let readable = |(rendition, _): &(u64, Frame)| mapped.iter().any(|(_, of, _)| of == rendition);
            let distorted = group.distorted.iter().filter(|frame| readable(frame)).cloned().collect();
            trial.taken.push(Taken::Group(Group { distorted, ..group.clone() }));
        }
        let damage = self.session.plan().work.get::<Damage>().is_some();
        for track in tracks {
            self.tracks[track].broken = false;
            self.tracks[track].scores.push_back(index);
            if damage {
                self.tracks[track].damages.push_back(index);
            }
        }
        self.session.submit(reference, pictures)?;
        if let Some(number) = self.session.audited() {
            let renditions = mapped.iter().map(|(_, rendition, _)| *rendition).collect();
            let running_time = group.running_time;
            self.audits.push(Audited { number, index, running_time, renditions });
        }
        if self.on_wrong == OnWrongScore::Cpu && gpu.is_some() {
            self.recent.push_back(group);
            let more = self.recent.len().saturating_sub(self.session.lookback());
            self.recent.drain(..more);
        }
        let ticket = self.next;
        self.next += 1;
        self.groups.push_back(InFlight { ticket, since });
        let completion = self.session.completion().ok_or(BackendError::NotPrepared);
        self.waiter.wait_for(ticket, completion.map_err(EngineError::from)?);
        // Where groups are done faster than threads take turns, most are done by now.
        self.collect()
    }

    fn end_run(&mut self, track: usize, broken: bool) -> Result<(), Error> {
        if let Some(trial) = &mut self.trial {
            trial.taken.push(Taken::EndRun { track, broken });
        }
        self.tracks[track].broken = broken;
        self.session.end_run(track, broken);
        if self.session.is_fresh() {
            self.recent.clear();
        }
        self.collect()
    }

    /// Takes what is complete.
    fn collect(&mut self) -> Result<(), Error> {
        let collected = self.session.collect();
        while let Some((track, damage)) = self.session.take_damage() {
            let Some(track) = self.tracks.get_mut(track) else { continue };
            let index = track.damages.pop_front();
            self.news.extend(index.map(|index| News::Damaged { rendition: track.rendition, index, damage }));
        }
        for score in collected.iter().flatten() {
            let Some(track) = self.tracks.get_mut(score.rendition) else { continue };
            let index = track.scores.pop_front();
            let mut score = score.clone();
            score.discont |= std::mem::take(&mut track.resumes);
            let scored = |index| News::Scored { rendition: track.rendition, index, score };
            self.news.extend(index.map(scored));
        }
        self.collect_verdicts();
        while self.groups.len() > self.session.in_flight() {
            let Some(group) = self.groups.pop_front() else { break };
            self.waiter.settle(group.ticket + 1);
            self.news.push(News::Done(Some(group.since.elapsed())));
            // It works.
            self.trial = None;
        }
        collected.map(|_| ()).map_err(Error::from)
    }

    /// Takes what has come of computing groups again.
    fn collect_verdicts(&mut self) {
        while let Some(Verdict { number, wrong }) = self.session.take_verdict() {
            let Some(at) = self.audits.iter().position(|audited| audited.number == number) else { continue };
            let Audited { index, running_time, renditions, .. } = self.audits.remove(at);
            let is_wrong = wrong.iter().any(Option::is_some);
            let told = renditions.into_iter().zip(wrong);
            let told =
                told.map(|(rendition, wrong)| News::Verified { rendition, index, running_time, wrong });
            match self.on_wrong {
                OnWrongScore::Cpu if is_wrong => self.withheld.extend(told),
                _ => self.news.extend(told),
            }
        }
        let waits = |track: &Track| track.scores.front().is_some_and(|next| Some(*next) <= self.last_of_gpu);
        if self.session.gpu().is_none() && !self.tracks.iter().any(waits) {
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
