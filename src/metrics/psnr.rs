// SPDX-License-Identifier: MPL-2.0

//! Peak signal-to-noise ratio from sums of squared errors.

/// Planes whose squared error is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsnrWork {
    /// Cb and Cr besides luma; ignored where the frames carry no chroma.
    pub chroma: bool,
}

/// Sums of squared errors of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PsnrSums {
    pub y: u64,
    /// Cb and Cr.
    pub chroma: Option<[u64; 2]>,
}
