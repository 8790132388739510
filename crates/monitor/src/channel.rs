// SPDX-License-Identifier: MPL-2.0

//! A channel that is watched, on a thread of its own: whatever fails there is tried again there, and concerns no other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, io};

use super::backoff::Backoff;
use super::config::Channel;
use super::evidence::Evidence;
use super::pipeline::{End, Pipeline};
use super::state::{Shared, State, Status, lock};
use score::redact;

/// How long the thread sleeps at most before it looks whether it is to stop.
const TICK: Duration = Duration::from_millis(100);

/// A channel and the thread that watches it.
pub struct Watched {
    pub channel: Channel,
    pub state: Shared,
    /// The element's figures for Prometheus, while there are any.
    pub metrics: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Thread,
}

/// The thread of a channel. It leaves the table of latencies, if these were to be measured.
pub type Thread = JoinHandle<Option<String>>;

impl Watched {
    /// Starts to watch, once the thread before has ended, which may use the same addresses.
    pub fn start(
        channel: Channel,
        metrics: PathBuf,
        evidence: Evidence,
        measure: bool,
        before: Option<Thread>,
    ) -> io::Result<Self> {
        let state = Shared::new(State::new(&channel).into());
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (channel, metrics, state, stop) =
                (channel.clone(), metrics.clone(), state.clone(), stop.clone());
            thread::Builder::new().name("channel".into()).spawn(move || {
                if let Some(before) = before {
                    // What it leaves belongs to a channel that is gone.
                    let _ = before.join();
                }
                Task { channel, metrics, evidence, state, stop, measure }.run()
            })?
        };
        Ok(Self { channel, state, metrics, stop, thread })
    }

    /// Whether it has come to its end by itself.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Has it end, without waiting for that.
    pub fn stop(self) -> Thread {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
    }
}

/// What the thread works with.
struct Task {
    channel: Channel,
    metrics: PathBuf,
    evidence: Evidence,
    state: Shared,
    stop: Arc<AtomicBool>,
    measure: bool,
}

impl Task {
    /// Watches until told to stop, or until the streams have ended.
    fn run(self) -> Option<String> {
        let mut backoff = Backoff::new(self.channel.retry);
        let mut failing = false;
        let mut latencies = None;
        loop {
            let mut well = || {
                backoff.reset();
                if std::mem::take(&mut failing) {
                    lock(&self.state).note("channel", "channel", "cleared", "it is scored again".into());
                }
            };
            // A panic is a fault of ours, and no reason to watch no longer.
            let end = catch_unwind(AssertUnwindSafe(|| self.attempt(&mut well, &mut latencies)));
            let why = match end.unwrap_or_else(|_| End::Failed("there was a fault in this program".into())) {
                End::Stopped => {
                    lock(&self.state).stopped(Status::Ended, "it is no longer watched");
                    return latencies;
                }
                End::Ended => {
                    lock(&self.state).stopped(Status::Ended, "the streams have ended");
                    return latencies;
                }
                End::Failed(why) => why,
            };
            let pause = backoff.next_pause();
            self.failed(redact::quoted(&why), !std::mem::replace(&mut failing, true));
            if self.pause(pause) {
                return latencies;
            }
            lock(&self.state).restarts += 1;
        }
    }

    fn attempt(&self, well: &mut dyn FnMut(), latencies: &mut Option<String>) -> End {
        let pipeline =
            Pipeline::new(&self.channel, &self.metrics, self.state.clone(), &self.evidence, self.measure);
        let mut pipeline = match pipeline {
            Ok(pipeline) => pipeline,
            Err(error) => return End::Failed(error.to_string()),
        };
        let end = pipeline.run(&self.stop, well);
        *latencies = pipeline.latency().map(|latency| latency.table().to_string());
        pipeline.close();
        remove(&self.metrics);
        end
    }

    /// Notes that the channel is down.
    fn failed(&self, why: String, news: bool) {
        let mut state = lock(&self.state);
        state.stopped(Status::Down, "the channel has failed");
        if news {
            state.note("channel", "channel", "raised", why.clone());
        }
        state.reason = Some(why);
    }

    /// Waits. Whether to stop.
    fn pause(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.stop.load(Ordering::Relaxed) {
            thread::sleep(TICK);
        }
        self.stop.load(Ordering::Relaxed)
    }
}

/// Old figures must not be taken for new ones.
fn remove(metrics: &Path) {
    // It may not have been written yet.
    let _ = fs::remove_file(metrics);
}
