// SPDX-License-Identifier: MPL-2.0

//! libvmaf's C interface on the engine. [`ffi`] has the functions, `cuda` those of `libvmaf_cuda.h`; everything behind them is
//! safe Rust, but for the memory of pictures.
//!
//! libvmaf is a table of scores, by name and index, that callers and extractors fill in any order: `collector`. Pairs go
//! through `reader`, which has several of them computed at a time by a GPU or the CPU (`flight`, `backend`); models are
//! evaluated from the table when a score is asked for: `predict`.

mod backend;
mod collector;
mod context;
mod cuda;
mod dictionary;
pub mod ffi;
mod flight;
mod locked;
mod log;
mod model;
mod names;
mod number;
mod picture;
mod predict;
mod reader;
mod registered;
mod report;
mod threads;

pub use cuda::{
    VmafCudaConfiguration, VmafCudaPictureConfiguration, VmafCudaState, vmaf_cuda_fetch_preallocated_picture,
    vmaf_cuda_import_state, vmaf_cuda_preallocate_pictures, vmaf_cuda_state_init,
};
pub use ffi::*;
pub use picture::VmafPicture;

/// An error as the C interface has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Errno(i32);

impl Errno {
    /// An argument, or a state that does not allow the call.
    const INVALID: Self = Self(-libc::EINVAL);
    /// Memory, threads.
    const MEMORY: Self = Self(-libc::ENOMEM);
}
