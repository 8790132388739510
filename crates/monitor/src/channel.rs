// SPDX-License-Identifier: MPL-2.0

//! A channel on a thread of its own: a failure is handled in its channel and affects no other.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::alarm_files::AlarmFiles;
use super::alarms::{Alarm, CHANNEL};
use super::backoff::Backoff;
use super::pipeline::{End, Pipeline};
use super::settings::Channel;
use super::state::{Shared, State, Status};
use score::redact;

/// Longest sleep of the thread before it checks for a stop request.
const TICK: Duration = Duration::from_millis(100);

/// A channel and the thread that watches it.
pub struct Watched {
    wanted: Wanted,
    pub state: Shared,
    stop: Arc<AtomicBool>,
    thread: Thread,
}

/// Settings of a channel, which may change while it runs.
#[derive(Clone)]
pub struct Wanted(Arc<Mutex<(Channel, bool)>>);

impl Wanted {
    fn new(channel: Channel) -> Self {
        Self(Arc::new(Mutex::new((channel, false))))
    }

    /// Returns the settings.
    pub fn get(&self) -> Channel {
        self.0.lock().0.clone()
    }

    /// Returns the settings if they have changed since the last call.
    pub fn changed(&self) -> Option<Channel> {
        let mut wanted = self.0.lock();
        std::mem::take(&mut wanted.1).then(|| wanted.0.clone())
    }

    fn set(&self, channel: Channel) {
        *self.0.lock() = (channel, true);
    }
}

/// Thread of a channel. It returns the table of latencies if these were measured.
pub type Thread = JoinHandle<Option<String>>;

impl Watched {
    /// Starts to watch, with alarms of an earlier run of the program, after the previous thread has ended, since both may use the same addresses.
    pub fn start(
        channel: Channel,
        alarm_files: AlarmFiles,
        alarms: Vec<Alarm>,
        measure: bool,
        before: Option<Thread>,
    ) -> io::Result<Self> {
        let mut state = State::new(&channel);
        state.resume(alarms, Instant::now());
        let state = Shared::new(state.into());
        let stop = Arc::new(AtomicBool::new(false));
        let wanted = Wanted::new(channel);
        let thread = {
            let (wanted, state, stop) = (wanted.clone(), state.clone(), stop.clone());
            thread::Builder::new().name("channel".into()).spawn(move || {
                if let Some(before) = before {
                    // The result belongs to a channel that was removed.
                    let _ = before.join();
                }
                Task { wanted, alarm_files, state, stop, measure }.run()
            })?
        };
        Ok(Self { wanted, state, stop, thread })
    }

    /// Returns the settings.
    pub fn channel(&self) -> Channel {
        self.wanted.get()
    }

    /// Changes settings that need no restart.
    pub fn adapt(&self, channel: Channel) {
        self.state.lock().adapt(&channel);
        self.wanted.set(channel);
    }

    /// Returns true if the channel has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Requests the end of the thread, without waiting.
    pub fn stop(self) -> Thread {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
    }
}

/// Data of the thread.
struct Task {
    wanted: Wanted,
    alarm_files: AlarmFiles,
    state: Shared,
    stop: Arc<AtomicBool>,
    measure: bool,
}

impl Task {
    /// Watches until a stop request or the end of the streams.
    fn run(self) -> Option<String> {
        let mut backoff = Backoff::new(self.wanted.get().longest_pause());
        let mut failing = false;
        let mut latencies = None;
        loop {
            let mut well = || {
                backoff.reset();
                if std::mem::take(&mut failing) {
                    self.state.lock().clear(CHANNEL, CHANNEL, "scoring has resumed".into());
                }
            };
            // After a panic, which is a bug of this program, the channel is restarted.
            let end = catch_unwind(AssertUnwindSafe(|| self.attempt(&mut well, &mut latencies)));
            let why = match end.unwrap_or_else(|_| End::Failed("internal error: a thread panicked".into())) {
                End::Stopped => {
                    self.state.lock().stopped(Status::Ended, "the channel was removed");
                    return latencies;
                }
                End::Ended => {
                    self.state.lock().stopped(Status::Ended, "the streams have ended");
                    return latencies;
                }
                End::Failed(why) => why,
            };
            let pause = backoff.next_pause();
            self.failed(redact::quoted(&why), !std::mem::replace(&mut failing, true));
            if self.pause(pause) {
                return latencies;
            }
            self.state.lock().restarts += 1;
        }
    }

    fn attempt(&self, well: &mut dyn FnMut(), latencies: &mut Option<String>) -> End {
        let pipeline = Pipeline::new(&self.wanted.get(), self.state.clone(), &self.alarm_files, self.measure);
        let mut pipeline = match pipeline {
            Ok(pipeline) => pipeline,
            Err(error) => return End::Failed(error.to_string()),
        };
        let end = pipeline.run(&self.stop, &self.wanted, well);
        *latencies = pipeline.latency().map(|latency| latency.table().to_string());
        pipeline.close();
        end
    }

    /// Marks the channel as down.
    fn failed(&self, why: String, is_new: bool) {
        let mut state = self.state.lock();
        state.stopped(Status::Down, "the channel failed");
        if is_new {
            state.raise(CHANNEL, CHANNEL, why.clone(), None);
        }
        state.reason = Some(why);
    }

    /// Waits. Returns true on a stop request.
    fn pause(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.stop.load(Ordering::Relaxed) {
            thread::sleep(TICK);
        }
        self.stop.load(Ordering::Relaxed)
    }
}
