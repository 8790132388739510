// SPDX-License-Identifier: MPL-2.0

//! The metrics without their pixel work: options, tables, and the formulas that turn the raw sums of
//! a backend into features. Pure functions, shared by every backend.

pub mod adm;
pub mod cambi;
pub mod ciede;
pub mod damage;
pub mod feature;
pub mod feature_list;
pub mod fixed;
pub mod motion;
pub mod options;
pub mod psnr;
pub mod psnr_hvs;
pub mod speed;
pub mod ssim;
pub mod vif;

use std::fmt::Debug;

use adm::{AdmSums, AdmWork};
use cambi::{CambiSums, CambiWork};
use damage::DamageSums;
use motion::{MotionSums, MotionWork};
use psnr::{PsnrSums, PsnrWork};
use psnr_hvs::PsnrHvsSums;
use speed::{SpeedSums, SpeedWork};
use ssim::{SsimSums, SsimWork};
use vif::{VifSums, VifWork};

/// What a backend computes for each pair: the smallest set that serves every requested feature.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    pub vif: Option<VifWork>,
    /// Where the picture is damaged; only with `vif`, whose pictures it looks at.
    pub damage: bool,
    pub adm: Option<AdmWork>,
    pub motion: Option<MotionWork>,
    pub psnr: Option<PsnrWork>,
    pub ssim: Option<SsimWork>,
    pub psnr_hvs: bool,
    pub ciede: bool,
    pub speed: Option<SpeedWork>,
    /// One for each set of options.
    pub cambi: Vec<CambiWork>,
}

impl Work {
    /// Cb and Cr are looked at, where the frames have them.
    pub fn chroma(&self) -> bool {
        self.psnr.is_some_and(|psnr| psnr.chroma) || self.psnr_hvs || self.ciede || self.speed.is_some()
    }

    /// The metrics that are computed, by name.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, &dyn Debug)> {
        fn part<T: Debug>(work: &Option<T>) -> Option<&dyn Debug> {
            work.as_ref().map(|work| work as &dyn Debug)
        }
        let parts = [
            ("vif", part(&self.vif)),
            ("damage", self.damage.then_some(&self.damage)),
            ("adm", part(&self.adm)),
            ("motion", part(&self.motion)),
            ("psnr", part(&self.psnr)),
            ("speed_chroma", part(&self.speed)),
            ("ssim", part(&self.ssim)),
            ("psnr_hvs", self.psnr_hvs.then_some(&self.psnr_hvs)),
            ("ciede", self.ciede.then_some(&self.ciede)),
        ];
        let cambi = self.cambi.iter().map(|work| ("cambi", work as &dyn Debug));
        parts.into_iter().filter_map(|(name, work)| Some((name, work?))).chain(cambi)
    }
}

/// What a backend computed for one pair: plain numbers, no history.
///
/// A part is present when the [`Work`] asked for it and the pair was not submitted as
/// `history_only` (motion and PSNR are present even then).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameSums {
    pub vif: Option<VifSums>,
    pub damage: Option<DamageSums>,
    pub adm: Option<AdmSums>,
    pub motion: Option<MotionSums>,
    pub psnr: Option<PsnrSums>,
    /// For each [`Work::cambi`].
    pub cambi: Vec<CambiSums>,
    pub ssim: Option<SsimSums>,
    pub psnr_hvs: Option<PsnrHvsSums>,
    /// As [`fixed::FixedSum`] adds up the colour differences.
    pub ciede: Option<u64>,
    pub speed: Option<SpeedSums>,
}
