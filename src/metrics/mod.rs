// SPDX-License-Identifier: MPL-2.0

//! The metrics without their pixel work: options, tables, and the formulas that turn the raw sums of
//! a backend into features. Pure functions, shared by every backend.

pub mod adm;
pub mod ciede;
pub mod feature;
pub mod fixed;
pub mod motion;
pub mod options;
pub mod psnr;
pub mod psnr_hvs;
pub mod ssim;
pub mod vif;

use adm::{AdmSums, AdmWork};
use motion::{MotionSums, MotionWork};
use psnr::{PsnrSums, PsnrWork};
use psnr_hvs::PsnrHvsSums;
use ssim::{SsimSums, SsimWork};
use vif::{VifSums, VifWork};

/// What a backend computes for each pair: the smallest set that serves every requested feature.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    pub vif: Option<VifWork>,
    pub adm: Option<AdmWork>,
    pub motion: Option<MotionWork>,
    pub psnr: Option<PsnrWork>,
    pub ssim: Option<SsimWork>,
    pub psnr_hvs: bool,
    pub ciede: bool,
}

impl Work {
    /// Cb and Cr are looked at, where the frames have them.
    pub fn chroma(&self) -> bool {
        self.psnr.is_some_and(|psnr| psnr.chroma) || self.psnr_hvs || self.ciede
    }
}

/// What a backend computed for one pair: plain numbers, no history.
///
/// A part is present when the [`Work`] asked for it and the pair was not submitted as
/// `history_only` (motion and PSNR are present even then).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameSums {
    pub vif: Option<VifSums>,
    pub adm: Option<AdmSums>,
    pub motion: Option<MotionSums>,
    pub psnr: Option<PsnrSums>,
    pub ssim: Option<SsimSums>,
    pub psnr_hvs: Option<PsnrHvsSums>,
    /// As [`fixed::FixedSum`] adds up the colour differences.
    pub ciede: Option<u64>,
}
