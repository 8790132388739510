// SPDX-License-Identifier: MPL-2.0

//! The border between the engine and whatever does the per-pixel work.
//!
//! A backend returns sums, not scores: plain numbers of one frame pair, integers wherever the
//! specification allows. Features, history and models exist once, on the other side, so backends
//! that agree in their sums agree in every score.

pub mod cpu;
pub mod hip;
mod known;
mod warm_up;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use gpu::Device;

use crate::frame::{Component, Geometry, Picture};
use crate::metrics::{FrameSums, Misfit, Work};
use crate::scale::Scaling;

/// What can go wrong in a backend.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// Frames for which a metric is not defined.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// A plan of somebody's own making, in which a metric lacks what it builds on.
    #[error("the work for {metric} needs that of another metric, which is not there")]
    Incomplete {
        /// The metric that cannot be computed.
        metric: &'static str,
    },
    /// Pictures of a size that was not prepared for.
    #[error("a frame differs in size or sample type from what was prepared")]
    Unlike,
    /// A group without anything prepared.
    #[error("no frame size was prepared")]
    NotPrepared,
    /// A picture that the backend of this name cannot read whole.
    #[error("a picture is smaller than its format says, or lies in memory that the {0} backend cannot read")]
    Picture(&'static str),
    /// More groups than the backend's depth, or more renditions than were prepared for.
    #[error("more frames were submitted than the backend can work on")]
    Full,
    /// A ticket that no submitted group has any more.
    #[error("no frames were submitted under this ticket, or its sums were fetched before")]
    UnknownTicket,
    /// The system gives no threads.
    #[error("cannot start {threads} worker threads: {reason}")]
    Threads {
        /// How many there should have been.
        threads: usize,
        /// What the system says.
        reason: String,
    },
    /// A fault of this crate.
    #[error("a worker thread panicked, see standard error")]
    Panicked,
    /// The GPU does not compute what the CPU does.
    #[error(transparent)]
    SelfTest(#[from] Box<hip::SelfTestFailure>),
    /// What the GPU refused, or could not do.
    #[error(transparent)]
    Device(#[from] gpu::Error),
}

impl BackendError {
    /// The backend's device is the trouble, not what was asked of it.
    pub fn is_device(&self) -> bool {
        matches!(self, Self::Device(_) | Self::SelfTest(_))
    }

    /// The device was there, and is no more.
    pub fn is_device_lost(&self) -> bool {
        matches!(self, Self::Device(gpu::Error::Lost { .. }))
    }
}

/// What work comes to, unless it panics. What it leaves in the middle has to be as good as any.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, BackendError> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| BackendError::Panicked)
}

/// Refuses a picture of another size than this.
pub fn check_size(picture: &Picture<'_>, geometry: Geometry) -> Result<(), BackendError> {
    let size = |component: &Component<'_>| (component.width, component.height);
    let luma = size(&picture.luma) == (geometry.width, geometry.height);
    let chroma = picture.chroma.iter().flatten().all(|component| Some(size(component)) == geometry.chroma);
    (luma && chroma).then_some(()).ok_or(BackendError::Unlike)
}

/// Names a submitted group until its sums are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// Returns when the sums of a group are there, or when they never will be. For a thread of its own: it needs no
/// access to the backend.
pub type Completion = Box<dyn FnOnce() + Send>;

/// One reference picture of the prepared geometry, and the distorted pictures to compare with it.
#[derive(Clone)]
pub struct Group<'a> {
    /// The picture that the distorted ones are compared with.
    pub reference: Picture<'a>,
    /// The distorted pictures, each with the number of its rendition, no more than were prepared for. Without any, the
    /// group is history only, and its one answer is that of the reference compared with itself.
    pub distorted: Vec<(usize, Picture<'a>)>,
    /// Computes only the sums with history (motion, PSNR); the frame's score is not wanted (subsampling).
    pub history_only: bool,
}

impl<'a> Group<'a> {
    /// Returns true if only the sums with history are computed.
    pub fn is_history_only(&self) -> bool {
        self.history_only || self.distorted.is_empty()
    }

    /// A group with one distorted picture, of rendition 0, to be scored.
    pub fn pair(reference: Picture<'a>, distorted: Picture<'a>) -> Self {
        Self { reference, distorted: vec![(0, distorted)], history_only: false }
    }
}

/// What a metric has to do with the pictures at half their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Halves {
    /// The metric has nothing to do with them.
    Ignored,
    /// The metric makes them on its way.
    Made,
    /// The metric looks at those that another metric has made, and is computed after it.
    Needed,
}

/// Computes the sums of groups of frames. Groups are submitted and fetched in stream order. What depends on the
/// reference only is done once for a group.
pub trait Backend: Send {
    /// Short name for users: `cpu`, `hip`.
    fn name(&self) -> &'static str;

    /// The GPU it computes on, which can read pictures in its own memory.
    fn gpu(&self) -> Option<&Arc<Device>> {
        None
    }

    /// What exactly computes, for whoever wants to have it again: names and texts, the backend's own name first. Whole once
    /// a frame size was prepared.
    fn made_by(&self) -> Vec<(&'static str, String)> {
        vec![("backend", self.name().into())]
    }

    /// How many groups may be submitted before sums are fetched, at least 1.
    fn depth(&self) -> usize;

    /// Sets what to compute for frames of which size, and for each rendition how its pictures are brought to that
    /// size, unless they have it. Waits for the groups in flight and forgets all earlier frames. When it returns, all
    /// is warm: memory was touched, threads and graphs were used, so that the first group takes no longer than others.
    fn prepare(
        &mut self,
        work: &Work,
        geometry: Geometry,
        renditions: &[Option<Scaling>],
    ) -> Result<(), BackendError>;

    /// Whether groups will come that only serve as history: [`Backend::prepare`] gets ready for them, too.
    fn expect_history(&mut self, _expected: bool) {}

    /// How many threads may copy a picture that lies where the device cannot read it. One is least work, more are sooner done.
    fn set_copiers(&mut self, _threads: usize) {}

    /// Starts work on a group. Pictures without a lease may be released when this returns, so a backend may have to
    /// compute before that; with leases for all pictures it returns at once.
    fn submit(&mut self, group: Group<'_>) -> Result<Ticket, BackendError>;

    /// The sums of a submitted group, for each of its distorted pictures (one for a group without), or `None` while they are being computed.
    /// Sums can be had once. Neither computes nor waits.
    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<FrameSums>>, BackendError>;

    /// How to wait for the sums of a submitted group; `None` where no frame size was prepared.
    fn completion(&self, ticket: Ticket) -> Option<Completion>;

    /// Waits for the sums of a submitted group.
    fn wait(&mut self, ticket: Ticket) -> Result<Vec<FrameSums>, BackendError> {
        if let Some(completion) = self.completion(ticket) {
            completion();
        }
        self.poll(ticket)?.ok_or(BackendError::UnknownTicket)
    }

    /// Forgets the kept reference frames: the next group starts a new run and has no motion.
    fn reset(&mut self);
}
