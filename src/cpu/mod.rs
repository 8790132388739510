// SPDX-License-Identifier: MPL-2.0

//! The backend on the CPU: the same algorithms generic over a vector type, compiled for several
//! instruction sets and chosen once at run time.

pub mod adm;
pub(crate) mod simd;

pub use simd::Level;
