// SPDX-License-Identifier: MPL-2.0

//! The backend on the CPU: the same algorithms generic over a vector type, compiled for several
//! instruction sets and chosen once at run time.

mod adm;
mod backend;
mod motion;
mod psnr;
pub mod simd;
mod vif;

pub use backend::Cpu;
