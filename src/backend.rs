// SPDX-License-Identifier: MPL-2.0

//! The border between the engine and whatever does the per-pixel work.
//!
//! A backend returns sums, not scores: plain numbers of one frame pair, integers wherever the
//! specification allows. Features, history and models exist once, on the other side, so backends
//! that agree in their sums agree in every score.

use crate::frame::{Frame, Geometry};
use crate::metrics::{FrameSums, Work};

/// What can go wrong in a backend.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("the {metric} metric needs frames of at least {min}x{min}, these are {width}x{height}")]
    TooSmall { metric: &'static str, min: usize, width: usize, height: usize },
    #[error("the two frames of a pair differ in size or sample type")]
    Unlike,
    #[error("no frame size was prepared")]
    NotPrepared,
    #[error("no frame pair was submitted under this ticket, or its sums were fetched before")]
    UnknownTicket,
    #[error("cannot start {threads} worker threads: {reason}")]
    Threads { threads: usize, reason: String },
}

/// Names a submitted pair until its sums are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// One reference frame and the distorted frame to compare with it, both of the prepared geometry.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    pub reference: Frame<'a>,
    pub distorted: Frame<'a>,
    /// Only keep history (motion, PSNR) up to date; the frame's score is not wanted (subsampling).
    pub history_only: bool,
}

/// Computes the sums of frame pairs. Pairs are submitted and fetched in stream order.
pub trait Backend: Send {
    /// Short name for users: `cpu`, `hip`.
    fn name(&self) -> &'static str;

    /// Sets what to compute for frames of which size; forgets all earlier frames.
    fn prepare(&mut self, work: &Work, geometry: Geometry) -> Result<(), BackendError>;

    /// Starts work on a pair. The frames may be released when this returns.
    fn submit(&mut self, pair: &Pair<'_>) -> Result<Ticket, BackendError>;

    /// Waits for the sums of a submitted pair; each ticket can be redeemed once.
    fn wait(&mut self, ticket: Ticket) -> Result<FrameSums, BackendError>;

    /// Forgets the kept reference frames: the next pair starts a new run and has no motion.
    fn reset(&mut self);
}
