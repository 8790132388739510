// SPDX-License-Identifier: MPL-2.0

//! The HIP runtime API as a table of functions, opened at run time: from AMD's `libamdhip64`
//! ([`load_amd`]) or on top of NVIDIA's CUDA driver ([`load_nvidia`]).
//!
//! ```no_run
//! let hip = hipvmaf_hip_sys::load_amd()?;
//! let mut devices = 0;
//! // SAFETY: the pointer is valid for a write.
//! let status = unsafe { (hip.hipGetDeviceCount)(&mut devices) };
//! println!("{}: {devices} devices ({status})", hip.library);
//! # Ok::<(), hipvmaf_hip_sys::LoadError>(())
//! ```
//!
//! Names, arguments and numbers are those of HIP 5.2 to 7, where they are the same. Functions that a
//! runtime may lack are `Option`s. Nothing here panics, and nothing is loaded before it is asked for.

#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]

mod api;
mod cuda;
mod error;
mod library;
mod structs;

pub use api::*;
pub use cuda::load_nvidia;
pub use error::HipError;
pub use library::LoadError;
pub use structs::*;

#[cfg(test)]
mod tests;
