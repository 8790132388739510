// SPDX-License-Identifier: MPL-2.0

//! One run of the element, from its start to its stop: its state, its threads and files, and what was noted meanwhile.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use super::heatmap::Painter;
use super::memory::allocator::PinnedAllocator;
use super::messages::Messages;
use super::report::writer::Writer;
use super::stall_watchdog::StallWatchdog;
use super::state::State;
use super::worker::WorkerThread;

/// A run. Each start begins with a new one.
#[derive(Default)]
pub struct Run {
    /// Never locked while calling out of the element.
    pub state: Mutex<Option<State>>,
    /// The worker, which outlives the state so that its news are heard.
    pub worker: Mutex<Option<WorkerThread>>,
    pub writer: Mutex<Option<Arc<Writer>>>,
    pub messages: Mutex<Option<Arc<Messages>>>,
    pub watchdog: Mutex<Option<StallWatchdog>>,
    /// The paths of the results files.
    pub results_paths: Mutex<Vec<PathBuf>>,
    /// Allocates page-locked memory of the GPU in use; made when upstream asks for it.
    pub allocator: Mutex<Option<PinnedAllocator>>,
    /// Paints heat maps, for frames of the format that was painted last.
    pub painter: Mutex<Option<Painter>>,
    /// The delay of the sink beyond the running time of a frame, in nanoseconds, from the last latency event.
    pub configured_latency: AtomicU64,
    /// The streaming task is to return.
    pub stopping: AtomicBool,
    /// The error that has ended the run was posted.
    pub reported: AtomicBool,
    /// Results were waited for and did not come.
    pub overdue: AtomicBool,
    /// A frame has left since the start or the last flush.
    pub pushed: AtomicBool,
}
