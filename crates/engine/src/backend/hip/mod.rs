// SPDX-License-Identifier: MPL-2.0

//! The GPU backend.
//!
//! `backend.rs` runs groups of pictures through the kernels of `kernels/`, whose code is in `images.rs`. Each metric
//! has a file here that launches its kernels, and is registered in `METRICS`.

mod adm;
mod ansnr;
mod backend;
mod cambi;
mod capabilities;
mod ciede;
mod completion;
mod cvvdp;
mod damage;
mod fetch;
mod float_adm;
mod float_motion;
mod float_vif;
mod frame;
mod images;
mod inverse;
mod metric;
mod moments;
mod motion;
mod ordered;
mod pictures;
mod psnr;
mod psnr_hvs;
mod scale;
mod self_test;
mod shared;
mod slot;
mod speed;
mod speed_temporal;
mod ssim;
mod ssimulacra2;
mod targets;
mod vif;
mod xpsnr;

pub use backend::Hip;
pub use capabilities::{Gpu, gpus};
pub(crate) use fetch::fetch;
pub use images::{built_for, open, supports};
pub use self_test::{SelfTest, SelfTestFailure};

use crate::metrics;
use metric::Registration;

/// All metrics in the order of their launches. A missing metric is a compile error.
static METRICS: [Registration; metrics::METRICS.len()] = [
    Registration::of::<vif::Vif>(),
    Registration::of::<float_vif::FloatVif>(),
    Registration::of::<damage::Damage>(),
    Registration::of::<adm::Adm>(),
    Registration::of::<float_adm::FloatAdm>(),
    Registration::of::<motion::Motion>(),
    Registration::of::<float_motion::FloatMotion>(),
    Registration::of::<psnr::Psnr>(),
    Registration::of::<moments::Moments>(),
    Registration::of::<ansnr::Ansnr>(),
    Registration::of::<xpsnr::Xpsnr>(),
    Registration::of::<speed::Speed>(),
    Registration::of::<speed_temporal::SpeedTemporal>(),
    Registration::of::<cambi::Cambi>(),
    Registration::of::<ssim::Ssim>(),
    Registration::of::<psnr_hvs::PsnrHvs>(),
    Registration::of::<ciede::Ciede>(),
    Registration::of::<ssimulacra2::Ssimulacra2>(),
    Registration::of::<cvvdp::Cvvdp>(),
];
