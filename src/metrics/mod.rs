// SPDX-License-Identifier: MPL-2.0

//! The metrics without their pixel work: options, tables, and the formulas that turn the raw sums of
//! a backend into features. Pure functions, shared by every backend.

pub mod adm;
pub mod feature;
pub mod motion;
pub mod options;
pub mod psnr;
pub mod speed;
pub mod vif;

use adm::{AdmSums, AdmWork};
use motion::{MotionSums, MotionWork};
use psnr::{PsnrSums, PsnrWork};
use speed::{SpeedSums, SpeedWork};
use vif::{VifSums, VifWork};

/// What a backend computes for each pair: the smallest set that serves every requested feature.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    pub vif: Option<VifWork>,
    pub adm: Option<AdmWork>,
    pub motion: Option<MotionWork>,
    pub psnr: Option<PsnrWork>,
    pub speed: Option<SpeedWork>,
}

impl Work {
    /// It looks at Cb and Cr, where the frames have them.
    pub fn chroma(&self) -> bool {
        self.psnr.is_some_and(|psnr| psnr.chroma) || self.speed.is_some()
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
    pub speed: Option<SpeedSums>,
}
