// SPDX-License-Identifier: MPL-2.0

//! The backend on the GPU.
//!
//! `backend.rs` puts a frame pair through the kernels of `kernels/`, which the other files launch, one file for each
//! metric; `images.rs` has the code of these kernels.

mod adm;
mod backend;
mod cambi;
mod ciede;
mod frame;
mod images;
mod motion;
mod psnr;
mod psnr_hvs;
mod scale;
mod shared;
mod speed;
mod ssim;
mod vif;

pub use backend::Hip;
pub use images::{MISSING, open, supports};
