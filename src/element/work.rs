// SPDX-License-Identifier: MPL-2.0

//! The work that was handed to the [worker](super::worker) and is not done.

use std::sync::Arc;

use engine::backend::hip;
use engine::plan::Plan;
use engine::scale::Scaling;
use engine::video::Video;
use gpu::Selection;
use gst::ClockTime;

use super::CAT;
use super::memory::device_memory::Kind;
use super::memory::import::geometry;
use super::worker::{Frame, Group, Jobs, Setup, Used};

/// The number of reference frames, beyond the groups in flight, that may wait for the worker to follow their motion.
const HISTORY: usize = 8;

/// The worker as the state sees it.
pub struct Work {
    pub plan: Arc<Plan>,
    pub jobs: Jobs,
    pub used: Used,
    /// The GPU that scores, or the last one that did.
    pub gpu: Option<String>,
    /// The GPUs of which the memory of the first frames chooses one.
    follow: Option<Selection>,
    /// Groups with pairs that the worker has and has not done.
    in_flight: usize,
    /// Reference frames without partners that it has and has not done.
    history_in_flight: usize,
    /// The session is set up for the frames of this section.
    pub prepared: bool,
}

impl Work {
    pub fn new(plan: Arc<Plan>, jobs: Jobs, used: Used, follow: Option<Selection>) -> Self {
        Self { plan, jobs, used, gpu: None, follow, in_flight: 0, history_in_flight: 0, prepared: false }
    }

    /// Returns true if the next pair can be handed over without waiting for one before.
    pub fn has_room(&self) -> bool {
        self.in_flight < self.used.depth
    }

    /// Returns true if the next reference frame without partners can be handed over without loss. The limit leaves one free for
    /// the frame that ends the history before the session is set up anew.
    pub fn has_history_room(&self) -> bool {
        self.history_in_flight < self.used.depth + HISTORY
    }

    /// Returns true if no pair waits for its score.
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Takes note that a group is done. `pairs`: it had distorted frames.
    pub fn done(&mut self, pairs: bool) {
        let count = if pairs { &mut self.in_flight } else { &mut self.history_in_flight };
        *count = count.saturating_sub(1);
    }

    /// Takes the backend that is used from now on.
    pub fn uses(&mut self, used: Used) {
        self.gpu = used.gpu.as_ref().map(|gpu| gpu.info().to_string()).or(self.gpu.take());
        self.used = used;
    }

    /// Returns the kinds of memory that frames can lie in, beside the system's.
    pub fn memories(&self) -> Vec<Kind> {
        let Some(gpu) = &self.used.gpu else { return vec![] };
        let suits = |kind: &Kind| {
            kind.suits(gpu.info())
                || self.follow.is_some_and(|all| {
                    gpu::selected(&all).into_iter().any(|info| hip::supports(info) && kind.suits(info))
                })
        };
        Kind::ALL.into_iter().filter(suits).collect()
    }

    /// Returns how many frames the session may hold for those that follow.
    pub fn held(&self) -> u32 {
        self.used.depth as u32 + self.plan.lookback() as u32
    }

    /// Hands over a reference frame with its partners. Without any, the worker goes on with the motion of the reference, as far
    /// as it keeps up.
    pub fn submit(&mut self, index: u64, at: ClockTime, reference: Frame, distorted: Vec<(u64, Frame)>) {
        if distorted.is_empty() {
            if self.plan.lookback() == 0 {
                return;
            }
            if self.history_in_flight > self.used.depth + HISTORY {
                gst::debug!(CAT, "frame {index} is missing in the history of the reference");
                self.jobs.end_run(true);
                return;
            }
            self.history_in_flight += 1;
        } else {
            self.in_flight += 1;
        }
        self.jobs.submit(Group { index, running_time: at, reference, distorted });
    }

    /// Sets the session up for the format of the reference and for these renditions; it forgets all history for that. `heads`:
    /// frames that are about to come. `patient`: scores may take their time. Returns false if nothing can read the format.
    pub fn prepare(
        &mut self,
        reference: &gst_video::VideoInfo,
        video: Video,
        renditions: Vec<(u64, Option<Scaling>)>,
        heads: Vec<gst::Buffer>,
        patient: bool,
    ) -> bool {
        let Some(geometry) = geometry(reference) else { return false };
        gst::info!(CAT, "scoring {geometry:?}, {video:?}: {renditions:?}");
        self.follow = None;
        self.jobs.prepare(Setup { geometry, video, renditions, heads, patient });
        self.prepared = true;
        true
    }
}
