// SPDX-License-Identifier: MPL-2.0

//! Peak signal-to-noise ratio from sums of squared errors.

/// Options of the PSNR extractor; names and ranges as in libvmaf 3.2.0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PsnrOptions {
    pub enable_chroma: bool,
    pub enable_mse: bool,
    pub enable_apsnr: bool,
    pub reduced_hbd_peak: bool,
    pub min_sse: f64,
}

impl Default for PsnrOptions {
    fn default() -> Self {
        Self {
            enable_chroma: true,
            enable_mse: false,
            enable_apsnr: false,
            reduced_hbd_peak: false,
            min_sse: 0.0,
        }
    }
}

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
