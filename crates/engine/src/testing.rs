// SPDX-License-Identifier: MPL-2.0

//! Internals for this crate's own tests and benchmarks. They are not part of the interface and change without notice.

/// Single steps of the CPU backend, at every level of a machine.
pub mod cpu {
    pub use crate::backend::cpu::adm::Adm;
    pub use crate::backend::cpu::cambi::Analysis;
    pub use crate::backend::cpu::ciede::difference;
    pub use crate::backend::cpu::motion::sad;
    pub use crate::backend::cpu::plane::{AnyPlane, Frame, Plane, PlaneGroup, Sample};
    pub use crate::backend::cpu::psnr::sse;
    pub use crate::backend::cpu::psnr_hvs::errors;
    pub use crate::backend::cpu::scale::{Scaled, Scaler};
    pub use crate::backend::cpu::simd::Level;
    pub use crate::backend::cpu::speed::Speed;
    pub use crate::backend::cpu::ssim::Ssim;
    pub use crate::backend::cpu::vif::Vif;
}

/// The metrics, and the work of backends for them.
pub mod metrics {
    pub use crate::metrics::adm::{Adm, AdmOptions, AdmWork, MIN_SIZE as ADM_MIN_SIZE};
    pub use crate::metrics::cambi::{Cambi, CambiOptions, CambiWork, Eotf};
    pub use crate::metrics::ciede::{Ciede, CiedeWork};
    pub use crate::metrics::damage::{Damage, DamageWork};
    pub use crate::metrics::motion::{Motion, MotionWork};
    pub use crate::metrics::psnr::{Psnr, PsnrWork};
    pub use crate::metrics::psnr_hvs::{PsnrHvs, PsnrHvsWork, TABLES};
    pub use crate::metrics::speed::{Method, Speed, SpeedOptions, SpeedWork};
    pub use crate::metrics::ssim::{Ssim, SsimWork};
    pub use crate::metrics::vif::{Vif, VifWork};
    pub use crate::metrics::xpsnr::{Xpsnr, XpsnrWork};
}
