// SPDX-License-Identifier: MPL-2.0

//! The border between the engine and whatever does the per-pixel work.
//!
//! A backend returns sums, not scores: plain numbers of one frame pair, integers wherever the
//! specification allows. Features, history and models exist once, on the other side, so backends
//! that agree in their sums agree in every score.

pub mod cpu;
pub mod hip;

use std::sync::Arc;

use gpu::Device;

use crate::frame::{Component, Geometry, Picture};
use crate::metrics::cambi::CambiError;
use crate::metrics::speed::Misfit;
use crate::metrics::{FrameSums, Work, adm, motion, psnr_hvs, ssim, vif};
use crate::scale::Scaling;

/// What can go wrong in a backend.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("the {metric} metric needs frames of at least {min}x{min}, these are {width}x{height}")]
    TooSmall { metric: &'static str, min: usize, width: usize, height: usize },
    #[error(transparent)]
    Cambi(#[from] CambiError),
    #[error("the {metric} metric needs chroma, these frames are grey")]
    NoChroma { metric: &'static str },
    #[error("the {metric} metric takes samples of at most {max} bits, these have {bits}")]
    TooDeep { metric: &'static str, max: u32, bits: u32 },
    #[error("the {metric} metric needs chroma planes of at least {min}x{min}, these are {width}x{height}")]
    ChromaTooSmall { metric: &'static str, min: usize, width: usize, height: usize },
    #[error("a frame differs in size or sample type from what was prepared")]
    Unlike,
    #[error("no frame size was prepared")]
    NotPrepared,
    #[error("a picture is smaller than its format says, or lies in memory that the {0} backend cannot read")]
    Picture(&'static str),
    #[error("more frames were submitted than the backend can work on")]
    Full,
    #[error("no frames were submitted under this ticket, or its sums were fetched before")]
    UnknownTicket,
    #[error("cannot start {threads} worker threads: {reason}")]
    Threads { threads: usize, reason: String },
    #[error(transparent)]
    Device(#[from] gpu::Error),
}

impl BackendError {
    /// The backend's device is the trouble, not what was asked of it.
    pub fn is_device(&self) -> bool {
        matches!(self, Self::Device(_))
    }

    /// The device was there, and is no more.
    pub fn is_device_lost(&self) -> bool {
        matches!(self, Self::Device(gpu::Error::Lost { .. }))
    }
}

/// Refuses frames for which a metric is not defined; CAMBI and SpEED chroma refuse theirs when they are set up.
pub fn check(work: &Work, geometry: Geometry) -> Result<(), BackendError> {
    let Geometry { width, height, depth, chroma } = geometry;
    let too_small = |metric, min| Err(BackendError::TooSmall { metric, min, width, height });
    for (metric, wanted, min) in [
        ("VIF", work.vif.is_some(), vif::MIN_SIZE),
        ("ADM", work.adm.is_some(), adm::MIN_SIZE),
        ("motion", work.motion.is_some(), motion::MIN_SIZE),
    ] {
        if wanted && width.min(height) < min {
            return too_small(metric, min);
        }
    }
    if let Some(work) = &work.ssim {
        for scale in &work.scales {
            let factor = ssim::factor(*scale, geometry);
            let (width, height) = ssim::decimated(width, height, factor);
            if width.min(height) < ssim::WINDOW_SIZE {
                return too_small("SSIM", ssim::WINDOW_SIZE * factor);
            }
        }
        if work.multi_scale && width.min(height) < ssim::MULTI_SCALE_MIN_SIZE {
            return too_small("MS-SSIM", ssim::MULTI_SCALE_MIN_SIZE);
        }
    }
    for (metric, _) in [("PSNR-HVS", work.psnr_hvs), ("CIEDE2000", work.ciede)].iter().filter(|(_, on)| *on) {
        match chroma {
            Some((w, h)) if w.min(h) > 0 => {}
            _ => return Err(BackendError::NoChroma { metric }),
        }
    }
    if let (true, Some((w, h))) = (work.psnr_hvs, chroma) {
        if w.min(h) < psnr_hvs::BLOCK {
            let subsampled = w < width || h < height;
            return too_small("PSNR-HVS", psnr_hvs::BLOCK << u32::from(subsampled));
        }
        if depth.bits() > psnr_hvs::MAX_BITS {
            return Err(BackendError::TooDeep {
                metric: "PSNR-HVS",
                max: psnr_hvs::MAX_BITS,
                bits: depth.bits(),
            });
        }
    }
    Ok(())
}

/// Refuses a picture of another size than this.
pub fn check_size(picture: &Picture<'_>, geometry: Geometry) -> Result<(), BackendError> {
    let size = |component: &Component<'_>| (component.width, component.height);
    let luma = size(&picture.luma) == (geometry.width, geometry.height);
    let chroma = picture.chroma.iter().flatten().all(|component| Some(size(component)) == geometry.chroma);
    (luma && chroma).then_some(()).ok_or(BackendError::Unlike)
}

impl From<Misfit> for BackendError {
    fn from(misfit: Misfit) -> Self {
        let metric = "SpEED chroma";
        match misfit {
            Misfit::NoChroma => Self::NoChroma { metric },
            Misfit::TooSmall { width, height, min } => Self::ChromaTooSmall { metric, min, width, height },
        }
    }
}

/// Names a submitted group until its sums are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// Returns when the sums of a group are there, or when they never will be. For a thread of its own: it needs no
/// access to the backend.
pub type Completion = Box<dyn FnOnce() + Send>;

/// One reference picture of the prepared geometry, and the distorted pictures to compare with it.
#[derive(Clone)]
pub struct Group<'a> {
    pub reference: Picture<'a>,
    /// At least one, each with the number of its rendition, and no more than were prepared for.
    pub distorted: Vec<(usize, Picture<'a>)>,
    /// Only keep history (motion, PSNR) up to date; the frame's score is not wanted (subsampling).
    pub history_only: bool,
}

impl<'a> Group<'a> {
    /// With one distorted picture, of the only rendition, to be scored.
    pub fn pair(reference: Picture<'a>, distorted: Picture<'a>) -> Self {
        Self { reference, distorted: vec![(0, distorted)], history_only: false }
    }
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

    /// How many submitted groups it works on while the caller goes on; 0 if it computes them in `submit`.
    fn depth(&self) -> usize {
        0
    }

    /// Sets what to compute for frames of which size, and for each rendition how its pictures are brought to that
    /// size, unless they have it; forgets all earlier frames.
    fn prepare(
        &mut self,
        work: &Work,
        geometry: Geometry,
        renditions: &[Option<Scaling>],
    ) -> Result<(), BackendError>;

    /// Starts work on a group. Pictures without a lease may be released when this returns.
    fn submit(&mut self, group: Group<'_>) -> Result<Ticket, BackendError>;

    /// The sums of a submitted group, for each of its distorted pictures, or `None` while they are being computed.
    /// Sums can be had once.
    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<FrameSums>>, BackendError>;

    /// How to wait for the sums of a submitted group; `None` from a backend that computes them in `submit`.
    fn completion(&self, _ticket: Ticket) -> Option<Completion> {
        None
    }

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
