// SPDX-License-Identifier: MPL-2.0

//! The HIP runtime API, opened at run time: AMD's `libamdhip64`, or the same functions on top of NVIDIA's CUDA driver.
//!
//! ```no_run
//! use hipvmaf_hip_sys::{Api, Vendor};
//!
//! let hip = Api::load(Vendor::Amd)?;
//! let mut devices = 0;
//! // SAFETY: the pointer is valid for a write.
//! let status = unsafe { hip.hipGetDeviceCount(&mut devices) };
//! println!("{}: {devices} devices ({status})", hip.library());
//! # Ok::<(), hipvmaf_hip_sys::LoadError>(())
//! ```
//!
//! Names, arguments and numbers are those of HIP 5.2 to 7, where they are the same. Nothing here panics, nothing is
//! loaded before it is asked for, and each [`Api`] has its own library: several may be open at a time.

#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]

mod api;
mod constants;
mod cuda;
mod error;
mod library;
mod structs;

pub use api::{Api, Current, Vendor};
pub use constants::*;
pub use error::HipError;
pub use library::LoadError;
pub use structs::{ExternalMemoryBufferDesc, ExternalMemoryHandleDesc, Piece};

#[cfg(test)]
mod tests;
