// SPDX-License-Identifier: MPL-2.0

//! What lets the element work on while a GPU computes: a thread that waits for results, and a way for the
//! streaming task to wait for whatever comes first.

use std::io;
use std::sync::mpsc::{self, Sender, SyncSender};
use std::sync::{Condvar, Mutex};
use std::thread::{Builder, JoinHandle};

use engine::backend::Completion;

use super::lock;

/// Counts whatever may let somebody go on: frames that arrive, results.
#[derive(Default)]
pub struct Progress {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Progress {
    pub fn made(&self) {
        *lock(&self.count) += 1;
        self.changed.notify_all();
    }

    /// Returns when `ready` does, which is asked again after each progress. No lock is held meanwhile.
    pub fn wait_until(&self, ready: impl Fn() -> bool) {
        let mut seen = *lock(&self.count);
        while !ready() {
            let count = self.changed.wait_while(lock(&self.count), |count| *count == seen);
            seen = *count.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

enum Job {
    Collect(Completion),
    Answer(SyncSender<()>),
}

/// The thread that waits for results and collects them, in order. Ends when dropped.
pub struct Collector {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    /// `collect` is called after each completion handed in.
    pub fn new(collect: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let thread = Builder::new().name("hipvmaf-collect".into()).spawn(move || {
            for job in queue {
                match job {
                    Job::Collect(completion) => {
                        completion();
                        collect();
                    }
                    // Whoever asked may have gone.
                    Job::Answer(to) => to.send(()).unwrap_or_default(),
                }
            }
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Has `collect` called once `completion` returns. Results are collected in the order of these calls.
    pub fn collect_after(&self, completion: Completion) {
        self.send(Job::Collect(completion));
    }

    /// A receiver that hears when everything handed in before is collected.
    pub fn settled(&self) -> mpsc::Receiver<()> {
        let (to, from) = mpsc::sync_channel(1);
        self.send(Job::Answer(to));
        from
    }

    fn send(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // Fails only if the thread died; then nobody waits for it either.
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
