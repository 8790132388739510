// SPDX-License-Identifier: MPL-2.0

//! The thread that writes files. A disk that is slow, full or gone holds up neither the element nor its state: what is to
//! be written is handed over, and what goes wrong comes back as an error of that file alone.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use watch::prometheus::{self, Figures};

use super::super::error::Error;
use super::results::{Ending, Heading, Results, Row};

/// What can wait to be written. Whoever hands over more waits for the disk, so that memory stays bounded.
const QUEUE: usize = 4096;
/// How long rows may be kept back from their files.
const FLUSH: Duration = Duration::from_secs(1);

/// Something to be written. Results files are known by the number of their rendition.
pub enum Job {
    Open(u64, Results),
    Begin(u64, Box<Heading>),
    Row(u64, Row),
    /// The results are complete.
    Finish(u64, Ending),
    /// The results will not be complete, and why.
    Abandon(u64, String),
    /// Replace the metrics file.
    Metrics(PathBuf, Figures),
    /// Answer once everything before is written.
    Settle(SyncSender<()>),
}

/// The thread as the element sees it. Everything handed over is written before it is gone.
pub struct Writer {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// `report` is called on the thread with what goes wrong.
    pub fn new(report: impl Fn(Error) + Send + 'static) -> io::Result<Self> {
        let (jobs, queue) = mpsc::sync_channel(QUEUE);
        let files = Files { open: vec![], metrics_failed: false, report: Box::new(report) };
        let thread = Builder::new().name("hipvmaf-write".into()).spawn(move || files.run(&queue))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Has something written, after everything before. Waits if the disk is far behind.
    pub fn write(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // Fails only if the thread died; then nothing can be written any more.
            let _ = jobs.send(job);
        }
    }

    /// Waits until everything handed over is written.
    pub fn settle(&self) {
        let (to, from) = mpsc::sync_channel(1);
        self.write(Job::Settle(to));
        // An error means that the thread has ended.
        let _ = from.recv();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What lives on the thread.
struct Files {
    open: Vec<(u64, Results)>,
    /// The metrics file could not be replaced the last time.
    metrics_failed: bool,
    report: Box<dyn Fn(Error) + Send>,
}

impl Files {
    fn run(mut self, queue: &Receiver<Job>) {
        let mut flushed = Instant::now();
        loop {
            // Without files there is nothing to wake up for.
            let job = match self.open.is_empty() {
                true => queue.recv().map_err(RecvTimeoutError::from),
                false => queue.recv_timeout(FLUSH),
            };
            if flushed.elapsed() >= FLUSH {
                self.flush();
                flushed = Instant::now();
            }
            let job = match job {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            match job {
                Job::Open(number, results) => self.open.push((number, results)),
                Job::Begin(number, heading) => self.change(number, |results| results.begin(*heading)),
                Job::Row(number, row) => self.change(number, |results| results.row(&row)),
                Job::Finish(number, ending) => self.finish(number, &ending),
                Job::Abandon(number, reason) => {
                    if let Some(results) = self.take(number) {
                        self.abandon(results, &reason, None);
                    }
                }
                Job::Metrics(path, figures) => {
                    let written = prometheus::replace(&path, &prometheus::render(&figures));
                    let failed = std::mem::replace(&mut self.metrics_failed, written.is_err());
                    // The first failure in a row is reported.
                    if let (Err(source), false) = (written, failed) {
                        (self.report)(Error::Metrics { path, source });
                    }
                }
                // Whoever asked may have gone.
                Job::Settle(to) => to.send(()).unwrap_or_default(),
            }
        }
    }

    /// Has what was written so far outlive the process, however that ends.
    fn flush(&mut self) {
        let numbers: Vec<_> = self.open.iter().map(|(number, _)| *number).collect();
        numbers.into_iter().for_each(|number| self.change(number, Results::flush));
    }

    fn take(&mut self, number: u64) -> Option<Results> {
        let at = self.open.iter().position(|(of, _)| *of == number)?;
        Some(self.open.swap_remove(at).1)
    }

    /// Does something with a file, which is given up if that fails.
    fn change(&mut self, number: u64, work: impl FnOnce(&mut Results) -> io::Result<()>) {
        let Some((_, results)) = self.open.iter_mut().find(|(of, _)| *of == number) else { return };
        if let Err(err) = work(results)
            && let Some(results) = self.take(number)
        {
            let reason = format!("it cannot be written: {err}");
            self.abandon(results, &reason, Some(err));
        }
    }

    fn finish(&mut self, number: u64, ending: &Ending) {
        let Some(mut results) = self.take(number) else { return };
        if results.is_empty() {
            return (self.report)(Error::ResultsEmpty { path: results.path().into() });
        }
        if let Err(err) = results.finish(ending) {
            let reason = format!("it cannot be completed: {err}");
            self.abandon(results, &reason, Some(err));
        }
    }

    /// Keeps what there is; `trouble` is what the disk said, and is reported.
    fn abandon(&self, results: Results, reason: &str, trouble: Option<io::Error>) {
        let (path, partial) = (results.path().to_owned(), results.partial());
        match (results.abandon(reason), trouble) {
            (Ok(_), None) => {}
            (Ok(Some(_)), Some(reason)) => (self.report)(Error::ResultsLost { path, partial, reason }),
            (Ok(None), Some(source)) | (Err(source), _) => (self.report)(Error::Results { path, source }),
        }
    }
}
