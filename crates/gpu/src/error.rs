// SPDX-License-Identifier: MPL-2.0

//! Errors of GPUs.

use hip_sys::HipError;

/// Reasons why a GPU cannot be used, or no longer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No runtime has a device; the reasons.
    #[error("there is no usable GPU: {0}")]
    NoDevice(String),
    /// The selected GPU does not exist; the existing ones.
    #[error("there is no {0}; {1}")]
    NoSuchDevice(String, String),
    /// The program has no code for this GPU.
    #[error("this build has no code for {device} ({arch}): {remedy}")]
    NoCode {
        /// The name of the GPU.
        device: String,
        /// The target that the runtime names for it, such as `gfx1100` or `sm_90`.
        arch: String,
        /// The advice for the user.
        remedy: String,
    },
    /// The runtime rejects all code that the program has for this GPU.
    #[error(
        "the runtime of {device} ({arch}) rejects all code that this build has for it; a newer runtime may accept it"
    )]
    CodeRefused {
        /// The name of the GPU.
        device: String,
        /// The target that the runtime names for it, such as `gfx1100` or `sm_90`.
        arch: String,
    },
    /// The memory of the GPU, or the page-locked memory that the host allows, is used up.
    #[error("{device} has no memory left for {bytes} bytes of {what}")]
    OutOfMemory {
        /// The name of the GPU.
        device: String,
        /// The purpose of the memory.
        what: &'static str,
        /// The requested size.
        bytes: usize,
    },
    /// The GPU was lost.
    #[error("{device} was lost: {call} returned {error}; the process has to be started again to use it")]
    Lost {
        /// The name of the GPU.
        device: String,
        /// The function that failed.
        call: &'static str,
        /// The runtime's error.
        error: HipError,
    },
    /// A function of the runtime failed.
    #[error("{device}: {call} returned {error}")]
    Call {
        /// The name of the GPU.
        device: String,
        /// The function that failed.
        call: &'static str,
        /// The runtime's error.
        error: HipError,
    },
    /// A runtime that a parent process has opened cannot be used in its children.
    #[error("the process was forked after the GPU was opened; open it in the child process only")]
    Forked,
    /// The runtime or the system does not support the request.
    #[error("{0}")]
    Unsupported(String),
}
