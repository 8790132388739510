// SPDX-License-Identifier: MPL-2.0

//! The backend on the GPU.
//!
//! `backend.rs` puts groups of pictures through the kernels of `kernels/`; `images.rs` has their code. Each metric has a file
//! here that launches its kernels, and is registered in `METRICS`.

mod adm;
mod backend;
mod cambi;
mod ciede;
mod damage;
mod early;
mod fetch;
mod frame;
mod host;
mod images;
mod metric;
mod motion;
mod pictures;
mod psnr;
mod psnr_hvs;
mod scale;
mod self_test;
mod shared;
mod slot;
mod speed;
mod ssim;
mod survey;
mod targets;
mod vif;

pub use backend::Hip;
pub(crate) use fetch::fetch;
pub use images::{built_for, open, supports};
pub use self_test::{SelfTest, SelfTestFailure};
pub use survey::{Gpu, gpus};

use crate::metrics;
use metric::Registration;

/// All metrics, in the order of their launches. One that is missing does not compile.
static METRICS: [Registration; metrics::METRICS.len()] = [
    Registration::of::<vif::Vif>(),
    Registration::of::<damage::Damage>(),
    Registration::of::<adm::Adm>(),
    Registration::of::<motion::Motion>(),
    Registration::of::<psnr::Psnr>(),
    Registration::of::<speed::Speed>(),
    Registration::of::<cambi::Cambi>(),
    Registration::of::<ssim::Ssim>(),
    Registration::of::<psnr_hvs::PsnrHvs>(),
    Registration::of::<ciede::Ciede>(),
];
