// SPDX-License-Identifier: MPL-2.0

//! Where pairs are computed: on a GPU that has proven itself, or on the CPU. A GPU is opened when a context needs it, and is
//! counted as busy from then until the context ends.

use std::collections::VecDeque;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use engine::audit::{Audit, Verify};
use engine::backend::cpu::Cpu;
use engine::backend::hip::Hip;
use engine::backend::{Backend, BackendError, Group};
use engine::frame::Geometry;
use engine::metrics::Work;
use gpu::Selection;

use crate::Errno;
use crate::flight::Pair;
use crate::locked::Busy;
use crate::log::{Level, log};
use crate::threads;

/// Pairs on a GPU at a time.
const DEPTH: usize = 4;
/// Share of the pairs that the CPU computes again, as in the element.
const VERIFIED: f64 = 0.001;

/// About the time that it takes to open a GPU. A context that has not computed for as long does not open one: there are programs
/// that make thousands of contexts with a pair or a few each, for which the CPU is faster. All others lose less than that.
pub const OPENING_TIME: Duration = Duration::from_millis(300);

/// Where a context may compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// On the CPU first, and then on a GPU ([`OPENING_TIME`]).
    Auto,
    /// On a GPU; without one there are no scores.
    Hip,
    /// On this GPU, whose CUDA context the caller has given; if it fails, on the CPU.
    Given(Selection),
    /// On the CPU.
    Cpu,
}

impl Choice {
    /// Reads `HIPVMAF_BACKEND`.
    pub fn from_environment() -> Self {
        match std::env::var_os("HIPVMAF_BACKEND") {
            None => Self::Auto,
            Some(text) if text.is_empty() || text == "auto" => Self::Auto,
            Some(text) if text == "hip" => Self::Hip,
            Some(text) if text == "cpu" => Self::Cpu,
            Some(text) => {
                let text = text.display();
                log(
                    Level::Warning,
                    format_args!(
                        "HIPVMAF_BACKEND is '{text}', which is none of auto, hip and cpu: auto is used"
                    ),
                );
                Self::Auto
            }
        }
    }
}

/// The pairs that a backend is set up for.
#[derive(Clone)]
pub struct Task {
    pub work: Work,
    pub geometry: Geometry,
    /// Computing threads of the CPU.
    pub threads: u32,
    /// Only some pairs have scores.
    pub subsamples: bool,
}

impl Task {
    /// Prepares the CPU. `previous`: the latest pairs, the last one first.
    pub fn cpu(&self, previous: &VecDeque<Pair>) -> Result<Cpu, BackendError> {
        let threads = self.threads as usize;
        let refused = |_| BackendError::Threads { threads, reason: "there are too many".into() };
        let mut cpu = Cpu::on(threads::pool(threads).map_err(refused)?).cold();
        cpu.prepare(&self.work, self.geometry, &[None])?;
        for pair in self.earlier(previous) {
            recall(&mut cpu, pair.on_host()?.history(&self.work))?;
        }
        Ok(cpu)
    }

    /// Opens and prepares the first of the selected GPUs that passes its self-test.
    pub fn gpu(&self, selection: &Selection) -> Result<Hip, BackendError> {
        let mut failed = vec![];
        let mut first = None;
        loop {
            let mut hip = match Hip::open_besides(selection, DEPTH, &failed) {
                Ok(hip) => hip,
                Err(error) => return Err(first.unwrap_or(error)),
            };
            hip.expect_history(self.subsamples);
            match hip.prepare(&self.work, self.geometry, &[None]) {
                Ok(()) => return Ok(hip),
                Err(error) if error.is_device() => {
                    log(Level::Warning, format_args!("the {hip} is not used, as {error}"));
                    failed.extend(hip.gpu().map(|gpu| gpu.info()));
                    first.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns how many earlier pairs metrics look back on.
    pub fn lookback(&self) -> usize {
        self.work.lags().max(self.work.history())
    }

    /// Returns the pairs that metrics look back on, the last one last.
    pub fn earlier<'a>(
        &self,
        previous: &'a VecDeque<Pair>,
    ) -> impl DoubleEndedIterator<Item = &'a Pair> + use<'a> {
        previous.iter().take(self.lookback()).rev()
    }
}

/// Gives a backend what later pairs need of an earlier one.
fn recall(backend: &mut dyn Backend, group: Group<'_>) -> Result<(), BackendError> {
    let ticket = backend.submit(group)?;
    backend.wait(ticket).map(drop)
}

/// A GPU that a thread opens and prepares, while the CPU computes. The end of this waits for the thread, as a process must not
/// end while a runtime is being opened.
pub struct Opening(Option<JoinHandle<Result<Hip, BackendError>>>);

impl Opening {
    /// Starts the thread.
    pub fn new(task: Task) -> Result<Self, BackendError> {
        let thread = Builder::new()
            .name("vmaf-gpu".into())
            .spawn(move || task.gpu(&Selection::default()).inspect_err(warn_without_gpu));
        let refused = |error: std::io::Error| BackendError::Threads { threads: 1, reason: error.to_string() };
        Ok(Self(Some(thread.map_err(refused)?)))
    }

    /// Returns true if the GPU is there, or cannot be had.
    pub fn is_done(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the GPU. Without one, the log says why.
    pub fn end(mut self) -> Option<Hip> {
        self.0.take()?.join().ok()?.ok()
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // A panic has printed its message.
        let _ = self.0.take().map(JoinHandle::join);
    }
}

/// A GPU that computes for a context, with the audit of its sums.
pub struct Gpu {
    pub backend: Hip,
    pub audit: Audit,
    pub busy: Busy,
}

impl Gpu {
    /// Takes a GPU that is prepared, and says in the log which one it is.
    pub fn new(mut backend: Hip, task: &Task, previous: &VecDeque<Pair>) -> Result<Self, BackendError> {
        for pair in task.earlier(previous) {
            recall(&mut backend, pair.history(&task.work))?;
        }
        log(Level::Info, format_args!("scoring on the {backend}: {}", backend.why()));
        let mut audit = Audit::new(Verify { patient: true, ..Verify::at_random(verified(), 0) });
        audit.prepare(&task.work, task.geometry, &[None], backend.gpu());
        for pair in task.earlier(previous) {
            audit.precede(&pair.history(&task.work));
        }
        let busy = Busy::on(backend.gpu().cloned());
        Ok(Self { backend, audit, busy })
    }
}

/// Returns the share of pairs that the CPU computes again: that of `HIPVMAF_VERIFY`, if it is set.
fn verified() -> f64 {
    let Some(text) = std::env::var_os("HIPVMAF_VERIFY").filter(|text| !text.is_empty()) else {
        return VERIFIED;
    };
    let share = text.to_str().and_then(|text| text.parse().ok());
    share.filter(|share| (0.0..=1.0).contains(share)).unwrap_or_else(|| {
        log(
            Level::Warning,
            format_args!(
                "HIPVMAF_VERIFY is '{}', which is no number from 0 to 1: {VERIFIED} is used",
                text.display()
            ),
        );
        VERIFIED
    })
}

/// Writes to the log why no GPU is used.
pub fn warn_without_gpu(error: &BackendError) {
    let level = match error {
        BackendError::Device(gpu::Error::NoDevice(_)) => Level::Info,
        _ => Level::Warning,
    };
    log(level, format_args!("scoring on the CPU: {error}"));
}

/// Returns the code for an error of a backend, which is written to the log.
pub fn failed(error: &BackendError) -> Errno {
    log(Level::Error, format_args!("pictures could not be scored: {error}"));
    match error {
        BackendError::Threads { .. } => Errno::MEMORY,
        _ => Errno::INVALID,
    }
}
