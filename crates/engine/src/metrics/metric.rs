// SPDX-License-Identifier: MPL-2.0

//! What makes a metric: the types of its pixel work and of its sums, and what follows from the work alone. Everything
//! else of a metric hangs on these: the extractors that ask for the work, the backends that compute the sums.

use std::error::Error;
use std::fmt::Debug;

use crate::frame::Geometry;

/// A metric, by a type without values. It is registered in [`METRICS`](super::registry::METRICS).
pub trait Metric: 'static {
    /// Its name in logs.
    const NAME: &'static str;
    /// What backends compute for all who want something of the metric, together.
    type Work: Clone + PartialEq + Debug + Send + Sync;
    /// What backends compute for one pair: plain numbers, no history.
    type Sums: Clone + PartialEq + Debug + Send + Sync;

    /// True if the sums depend on the reference pictures alone, so that those of one pair hold for each pair of a group.
    const OF_REFERENCE: bool = false;

    /// It looks at Cb and Cr, where the frames have them.
    fn chroma(_work: &Self::Work) -> bool {
        false
    }

    /// How many earlier reference pictures it looks at.
    fn lags(_work: &Self::Work) -> usize {
        0
    }

    /// Refuses frames for which it is not defined.
    fn check(_work: &Self::Work, _geometry: Geometry) -> Result<(), Misfit> {
        Ok(())
    }
}

/// Why a metric is not defined for frames.
#[derive(Debug, thiserror::Error)]
pub enum Misfit {
    /// The frames are too small.
    #[error("the {metric} metric needs frames of at least {min}x{min}, these are {width}x{height}")]
    TooSmall {
        /// The metric as users call it.
        metric: &'static str,
        /// The smallest width and height.
        min: usize,
        /// What these frames have.
        width: usize,
        /// What these frames have.
        height: usize,
    },
    /// The metric compares colours.
    #[error("the {metric} metric needs chroma, these frames are grey")]
    NoChroma {
        /// The metric as users call it.
        metric: &'static str,
    },
    /// The samples are too deep.
    #[error("the {metric} metric takes samples of at most {max} bits, these have {bits}")]
    TooDeep {
        /// The metric as users call it.
        metric: &'static str,
        /// The most bits.
        max: u32,
        /// What these frames have.
        bits: u32,
    },
    /// The chroma planes are too small.
    #[error("the {metric} metric needs chroma planes of at least {min}x{min}, these are {width}x{height}")]
    ChromaTooSmall {
        /// The metric as users call it.
        metric: &'static str,
        /// The smallest width and height.
        min: usize,
        /// What these planes have.
        width: usize,
        /// What these planes have.
        height: usize,
    },
    /// Something that only this metric knows of.
    #[error(transparent)]
    Other(Box<dyn Error + Send + Sync>),
}

impl Misfit {
    /// Frames smaller than this do not fit, where `smaller` says that they are.
    pub(super) fn too_small(
        smaller: bool,
        metric: &'static str,
        min: usize,
        Geometry { width, height, .. }: Geometry,
    ) -> Result<(), Self> {
        if smaller { Err(Self::TooSmall { metric, min, width, height }) } else { Ok(()) }
    }

    /// Frames need this size in either direction.
    pub(super) fn at_least(metric: &'static str, min: usize, geometry: Geometry) -> Result<(), Self> {
        Self::too_small(geometry.width.min(geometry.height) < min, metric, min, geometry)
    }
}
