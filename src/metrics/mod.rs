// SPDX-License-Identifier: MPL-2.0

//! The metrics without their pixel work: options, tables, and the formulas that turn the raw sums of
//! a backend into features. Pure functions, shared by every backend.

pub mod adm;
pub mod feature;
pub mod feature_list;
pub mod motion;
pub mod options;
pub mod psnr;
pub mod vif;

use std::fmt::Debug;

use adm::{AdmSums, AdmWork};
use motion::{MotionSums, MotionWork};
use psnr::{PsnrSums, PsnrWork};
use vif::{VifSums, VifWork};

/// What a backend computes for each pair: the smallest set that serves every requested feature.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    pub vif: Option<VifWork>,
    pub adm: Option<AdmWork>,
    pub motion: Option<MotionWork>,
    pub psnr: Option<PsnrWork>,
}

impl Work {
    /// The metrics that are computed, by name.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, &dyn Debug)> {
        fn part<T: Debug>(work: &Option<T>) -> Option<&dyn Debug> {
            work.as_ref().map(|work| work as &dyn Debug)
        }
        let parts = [
            ("vif", part(&self.vif)),
            ("adm", part(&self.adm)),
            ("motion", part(&self.motion)),
            ("psnr", part(&self.psnr)),
        ];
        parts.into_iter().filter_map(|(name, work)| Some((name, work?)))
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
}
