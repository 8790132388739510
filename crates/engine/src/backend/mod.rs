// SPDX-License-Identifier: MPL-2.0

//! The interface between the engine and the backends, which do the per-pixel work.
//!
//! A backend returns sums instead of scores: plain numbers of one frame pair, integers wherever the specification
//! allows. Features, history and models are computed once, from these sums. So backends that agree in their sums agree
//! in every score.

pub mod cpu;
pub mod hip;
mod test_vectors;
mod warm_up;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use gpu::Device;

use crate::frame::{Component, Geometry, Picture};
use crate::metrics::{FrameSums, Misfit, Work};
use crate::scale::Scaling;

/// Errors of a backend.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// Frames for which a metric is not defined.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// Pictures of another size than prepared.
    #[error("a frame differs in size or sample type from the prepared ones")]
    Unlike,
    /// A group was submitted before the backend was prepared.
    #[error("no frame size was prepared")]
    NotPrepared,
    /// A picture that the backend of this name cannot read completely.
    #[error("a picture is smaller than its format says, or in memory that the {0} backend cannot read")]
    Picture(&'static str),
    /// More groups than the backend's depth, or more renditions than were prepared for.
    #[error("more frames were submitted than the backend can work on")]
    Full,
    /// No group in flight has this ticket.
    #[error("no frames were submitted under this ticket, or its sums were fetched before")]
    UnknownTicket,
    /// The system cannot start threads.
    #[error("cannot start {threads} worker threads: {reason}")]
    Threads {
        /// How many were requested.
        threads: usize,
        /// The error of the system.
        reason: String,
    },
    /// A bug in this crate.
    #[error("a worker thread panicked, see standard error")]
    Panicked,
    /// A metric, or an option of it, for which there is no code on a GPU.
    #[error("{0} is computed on the CPU only")]
    CpuOnly(&'static str),
    /// The GPU computes other sums than the CPU.
    #[error(transparent)]
    SelfTest(#[from] Box<hip::SelfTestFailure>),
    /// An error of the GPU.
    #[error(transparent)]
    Device(#[from] gpu::Error),
}

impl BackendError {
    /// Returns true if another backend may succeed: the device caused the error, not the request.
    pub fn is_device(&self) -> bool {
        matches!(self, Self::Device(_) | Self::SelfTest(_) | Self::CpuOnly(_))
    }

    /// Returns true if the device was lost.
    pub fn is_device_lost(&self) -> bool {
        matches!(self, Self::Device(gpu::Error::Lost { .. }))
    }
}

/// Runs `work` and turns a panic into an error. State that a panic leaves half changed must be harmless.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, BackendError> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| BackendError::Panicked)
}

/// Rejects a picture of another size.
pub fn check_size(picture: &Picture<'_>, geometry: Geometry) -> Result<(), BackendError> {
    let size = |component: &Component<'_>| (component.width, component.height);
    let luma = size(&picture.luma) == (geometry.width, geometry.height);
    let chroma = picture.chroma.iter().flatten().all(|component| Some(size(component)) == geometry.chroma);
    (luma && chroma).then_some(()).ok_or(BackendError::Unlike)
}

/// Identifies a submitted group until its sums are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// The sums of each pair of a group, or why there are none.
pub(crate) type SumsResult = Result<Vec<FrameSums>, BackendError>;

/// Blocks until the sums of a group are there or will never be. It needs no access to the backend, so any thread can
/// call it.
pub type Completion = Box<dyn FnOnce() + Send>;

/// One reference picture of the prepared geometry, and the distorted pictures to compare with it.
#[derive(Clone)]
pub struct Group<'a> {
    /// The picture to compare the distorted ones with.
    pub reference: Picture<'a>,
    /// The distorted pictures, each with the number of its rendition, at most as many as prepared. Without any, the
    /// group is history only, and its single result is that of the reference compared with itself.
    pub distorted: Vec<(usize, Picture<'a>)>,
    /// Computes only the sums with history (motion, PSNR), as subsampling skips the frame's score.
    pub history_only: bool,
}

impl<'a> Group<'a> {
    /// Returns true if only the sums with history are computed.
    pub fn is_history_only(&self) -> bool {
        self.history_only || self.distorted.is_empty()
    }

    /// Creates a group with one distorted picture, of rendition 0, to be scored.
    pub fn pair(reference: Picture<'a>, distorted: Picture<'a>) -> Self {
        Self { reference, distorted: vec![(0, distorted)], history_only: false }
    }
}

/// Computes the sums of groups of frames. Groups are submitted and fetched in stream order. Work that depends on the
/// reference alone is done once per group.
pub trait Backend: Send {
    /// Returns the short name for users: `cpu`, `hip`.
    fn name(&self) -> &'static str;

    /// Returns the GPU of the backend, which can read pictures in its own memory.
    fn gpu(&self) -> Option<&Arc<Device>> {
        None
    }

    /// Describes the backend so that results can be reproduced: names and values, the backend's own name first. It is
    /// complete once a frame size was prepared.
    fn made_by(&self) -> Vec<(&'static str, String)> {
        vec![("backend", self.name().into())]
    }

    /// Returns how many groups may be submitted before sums are fetched, at least 1.
    fn depth(&self) -> usize;

    /// Prepares for this work on frames of this size. `renditions` defines how the pictures of each rendition are
    /// scaled; `None` if they have that size. Waits for the groups in flight and forgets all earlier frames. Warms up
    /// memory, threads and graphs, so that the first group takes no longer than later ones.
    fn prepare(
        &mut self,
        work: &Work,
        geometry: Geometry,
        renditions: &[Option<Scaling>],
    ) -> Result<(), BackendError>;

    /// Sets whether to expect groups that only serve as history, so that [`Backend::prepare`] also prepares for them.
    fn expect_history(&mut self, _expected: bool) {}

    /// Sets how many threads may copy a picture that the device cannot read. One thread is the least work, more threads
    /// are faster.
    fn set_copiers(&mut self, _threads: usize) {}

    /// Starts work on a group. Pictures without a lease may be released when this returns, so the backend may have to
    /// compute first. With leases for all pictures, it returns at once.
    fn submit(&mut self, group: Group<'_>) -> Result<Ticket, BackendError>;

    /// Returns the sums of a submitted group, one per distorted picture (one for a group without), or `None` while they
    /// are computed. The sums are returned once. Neither computes nor waits.
    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<FrameSums>>, BackendError>;

    /// Returns a function that waits for the sums of a submitted group; `None` if no frame size was prepared.
    fn completion(&self, ticket: Ticket) -> Option<Completion>;

    /// Waits for the sums of a submitted group.
    fn wait(&mut self, ticket: Ticket) -> Result<Vec<FrameSums>, BackendError> {
        if let Some(completion) = self.completion(ticket) {
            completion();
        }
        self.poll(ticket)?.ok_or(BackendError::UnknownTicket)
    }

    /// Forgets the kept reference frames. The next group starts a new run and has no motion.
    fn reset(&mut self);
}
