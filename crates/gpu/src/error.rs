// SPDX-License-Identifier: MPL-2.0

//! What can go wrong between us and a GPU.

use hip_sys::HipError;

/// Why the GPU cannot be used, now or any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No runtime has a device, for these reasons.
    #[error("there is no usable GPU: {0}")]
    NoDevice(String),
    /// There is not the GPU that is wanted; what there is instead.
    #[error("there is no {0}; {1}")]
    NoSuchDevice(String, String),
    /// The program has no code for this GPU.
    #[error("this build has no code for {device} ({arch}): {remedy}")]
    NoCode {
        /// The name of the GPU.
        device: String,
        /// The target that the runtime names for it, such as `gfx1100` or `sm_90`.
        arch: String,
        /// What to do.
        remedy: String,
    },
    /// The runtime takes none of the code that the program has for this GPU.
    #[error(
        "{device} is a {arch}, and its runtime takes none of the code that this build has for it; a newer one may"
    )]
    CodeRefused {
        /// The name of the GPU.
        device: String,
        /// The target that the runtime names for it, such as `gfx1100` or `sm_90`.
        arch: String,
    },
    /// The memory of the GPU, or what may be page-locked of the host's, is used up.
    #[error("{device} has no memory left for {bytes} bytes of {what}")]
    OutOfMemory {
        /// The name of the GPU.
        device: String,
        /// What the memory was for.
        what: &'static str,
        /// How much it was.
        bytes: usize,
    },
    /// The GPU was there, and is no more.
    #[error("{device} was lost: {call} returned {error}; the process has to be started again to use it")]
    Lost {
        /// The name of the GPU.
        device: String,
        /// What was being done.
        call: &'static str,
        /// What the runtime says.
        error: HipError,
    },
    /// The runtime refused.
    #[error("{device}: {call} returned {error}")]
    Call {
        /// The name of the GPU.
        device: String,
        /// What was being done.
        call: &'static str,
        /// What the runtime says.
        error: HipError,
    },
    /// A runtime that a parent process opened is of no use in its children.
    #[error("the process was forked after the GPU was opened; open it in the child process only")]
    Forked,
    /// The runtime or the system cannot do that.
    #[error("{0}")]
    Unsupported(String),
}
