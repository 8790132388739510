// SPDX-License-Identifier: MPL-2.0

//! The thread that writes files. A disk that is slow, full or gone holds up neither the element nor its state: what is to
//! be written is handed over, and what goes wrong comes back as an error of that file alone.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use watch::output;
use watch::prometheus::{self, Figures};

use super::super::error::Error;
use super::super::threads::Thread;
use super::results::Results;
use super::rows::{Ending, Heading, Row};

/// The number of jobs in the queue. If it is full, the caller waits for the disk, so that memory stays bounded.
const QUEUE: usize = 4096;
/// The time for which rows may be held back from their files.
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
    /// Dropped first, which ends the thread.
    jobs: SyncSender<Job>,
    _thread: Thread,
}

impl Writer {
    /// `report` is called on the thread with what goes wrong with a file, and `broken` if the thread panics.
    pub fn new(
        report: impl Fn(Error) + Send + 'static,
        broken: impl FnOnce(Error) + Send + 'static,
    ) -> io::Result<Self> {
        let (jobs, queue) = mpsc::sync_channel(QUEUE);
        let files = Files { open: vec![], closed: vec![], metrics_failed: false, report: Box::new(report) };
        let thread = Thread::start("hipvmaf-write", broken, move || {
            block_broken_pipe();
            files.run(&queue);
        })?;
        Ok(Self { jobs, _thread: thread })
    }

    /// Writes something after everything before. Waits if the disk is far behind.
    pub fn write(&self, job: Job) {
        // Fails only if the thread died; then nothing can be written any more.
        let _ = self.jobs.send(job);
    }

    /// Waits until everything handed over is written.
    pub fn settle(&self) {
        let (to, from) = mpsc::sync_channel(1);
        self.write(Job::Settle(to));
        // An error means that the thread has ended.
        let _ = from.recv();
    }
}

/// Makes writes of this thread to a pipe without a reader fail instead of ending the application.
fn block_broken_pipe() {
    // SAFETY: sigemptyset initialises the set, which the other calls only read or change in place; the mask is that of this
    // thread alone. The signal of a write is sent to the thread that writes.
    unsafe {
        let mut signals = std::mem::MaybeUninit::uninit();
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), std::ptr::null_mut());
    }
}

/// Data of the thread.
struct Files {
    /// Results that more rows may come for, those too that are complete for now.
    open: Vec<(u64, Results)>,
    /// Results that were closed as their stream failed, with what is to be said if more rows come for them.
    closed: Vec<(u64, Error)>,
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
                Job::Row(number, row) => {
                    self.change(number, |results| results.row(&row));
                    if let Some(at) = self.closed.iter().position(|(of, _)| *of == number) {
                        (self.report)(self.closed.remove(at).1);
                    }
                }
                Job::Finish(number, ending) => self.finish(number, &ending),
                Job::Abandon(number, reason) => {
                    if let Some(results) = self.take(number) {
                        let (path, kept) = (results.path().to_owned(), results.partial());
                        self.abandon(results, &reason, None);
                        self.closed.push((number, Error::ResultsClosed { path, kept, reason }));
                    }
                }
                Job::Metrics(path, figures) => {
                    let written = output::replace(&path, &prometheus::render(&figures));
                    let failed = std::mem::replace(&mut self.metrics_failed, written.is_err());
                    // The first failure in a row is reported.
                    if let (Err(source), false) = (written, failed) {
                        (self.report)(Error::Metrics { path, source });
                    }
                }
                // The thread that asked may have gone.
                Job::Settle(to) => to.send(()).unwrap_or_default(),
            }
        }
    }

    /// Makes everything written so far outlive the process, however that ends.
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
            if results.is_settled() {
                let path = results.path().to_owned();
                let reason = err.to_string();
                return (self.report)(Error::ResultsClosed { kept: path.clone(), path, reason });
            }
            let reason = format!("it cannot be written: {err}");
            self.abandon(results, &reason, Some(err));
        }
    }

    /// Completes results. More rows may come after a seek.
    fn finish(&mut self, number: u64, ending: &Ending) {
        let Some((_, results)) = self.open.iter_mut().find(|(of, _)| *of == number) else { return };
        if results.is_settled() {
            return;
        }
        let empty = results.is_empty().then(|| Error::ResultsEmpty { path: results.path().into() });
        if let Err(err) = results.finish(ending)
            && let Some(results) = self.take(number)
        {
            let reason = format!("it cannot be completed: {err}");
            return self.abandon(results, &reason, Some(err));
        }
        if let Some(err) = empty {
            (self.report)(err);
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
