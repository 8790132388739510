// SPDX-License-Identifier: MPL-2.0

//! The definition of a metric: the types of its pixel work and its sums, and properties that follow from the work
//! alone. The extractors that request the work and the backends that compute the sums refer to these.

use std::error::Error;
use std::fmt::Debug;

use crate::frame::Geometry;
use crate::video::Video;

/// A metric, as a type without values. It is registered in [`METRICS`](super::registry::METRICS).
pub trait Metric: 'static {
    /// Its name in logs.
    const NAME: &'static str;
    /// The work of a backend for all users of the metric together.
    type Work: Clone + PartialEq + Debug + Send + Sync;
    /// The sums of one pair: plain numbers without history.
    type Sums: Clone + PartialEq + Debug + Send + Sync;

    /// True if the sums depend on the reference pictures alone, so that those of one pair hold for each pair of a
    /// group.
    const OF_REFERENCE: bool = false;

    /// True if it reads the last column and row of subsampled chroma that belong to one luma sample only, where they are
    /// there. libvmaf's metrics do not.
    const HALF_SAMPLES: bool = false;

    /// True if it is defined for R'G'B' too.
    const TAKES_RGB: bool = false;

    /// Returns the part of frames that it reads.
    fn part(geometry: Geometry) -> Geometry {
        if Self::HALF_SAMPLES { geometry } else { geometry.without_half_samples() }
    }

    /// Adds to the work what depends on the stream. Until then the work has the longest history.
    fn suit(_work: &mut Self::Work, _video: &Video, _geometry: Geometry) {}

    /// Returns why its values may not be meant for a stream with these properties, and what to do.
    fn doubt(_work: &Self::Work, _video: &Video) -> Option<String> {
        None
    }

    /// Describes how it reads this stream, as far as values depend on that: a text for each of its variants.
    fn readings(_work: &Self::Work, _geometry: Geometry) -> Vec<String> {
        vec![]
    }

    /// Returns true if it reads Cb and Cr, where the frames have them.
    fn chroma(_work: &Self::Work) -> bool {
        false
    }

    /// Returns how many earlier reference pictures it reads.
    fn lags(_work: &Self::Work) -> usize {
        0
    }

    /// Returns how many earlier pictures of every stream it reads, the distorted ones too. It keeps them itself.
    fn history(_work: &Self::Work) -> usize {
        0
    }

    /// Rejects frames for which it is not defined.
    fn check(_work: &Self::Work, _geometry: Geometry) -> Result<(), Misfit> {
        Ok(())
    }
}

/// Reasons why a metric is not defined for frames.
#[derive(Debug, thiserror::Error)]
pub enum Misfit {
    /// The frames are too small.
    #[error("the {metric} metric needs frames of at least {min}x{min}, these are {width}x{height}")]
    TooSmall {
        /// The metric as users call it.
        metric: &'static str,
        /// The smallest width and height.
        min: usize,
        /// The width of these frames.
        width: usize,
        /// The height of these frames.
        height: usize,
    },
    /// The metric needs chroma.
    #[error("the {metric} metric needs chroma, these frames are grey")]
    NoChroma {
        /// The metric as users call it.
        metric: &'static str,
    },
    /// The bit depth is too high.
    #[error("the {metric} metric takes samples of at most {max} bits, these have {bits}")]
    TooDeep {
        /// The metric as users call it.
        metric: &'static str,
        /// The highest bit depth.
        max: u32,
        /// The bit depth of these frames.
        bits: u32,
    },
    /// The chroma planes are too small.
    #[error("the {metric} metric needs chroma planes of at least {min}x{min}, these are {width}x{height}")]
    ChromaTooSmall {
        /// The metric as users call it.
        metric: &'static str,
        /// The smallest width and height.
        min: usize,
        /// The width of these planes.
        width: usize,
        /// The height of these planes.
        height: usize,
    },
    /// The metric needs Y'CbCr.
    #[error(
        "the {metric} metric takes Y'CbCr, these frames are R'G'B'; convert both videos to Y'CbCr before, as with videoconvert"
    )]
    Rgb {
        /// The metric, by its name in logs.
        metric: &'static str,
    },
    /// A reason that only this metric has.
    #[error(transparent)]
    Other(Box<dyn Error + Send + Sync>),
}

impl Misfit {
    /// Rejects frames smaller than `min` if `smaller` is true.
    pub(super) fn too_small(
        smaller: bool,
        metric: &'static str,
        min: usize,
        Geometry { width, height, .. }: Geometry,
    ) -> Result<(), Self> {
        if smaller { Err(Self::TooSmall { metric, min, width, height }) } else { Ok(()) }
    }

    /// Rejects frames with a side below `min`.
    pub(super) fn at_least(metric: &'static str, min: usize, geometry: Geometry) -> Result<(), Self> {
        Self::too_small(geometry.width.min(geometry.height) < min, metric, min, geometry)
    }
}
