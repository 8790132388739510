// SPDX-License-Identifier: MPL-2.0

//! What can go wrong between us and a GPU.

use hip_sys::HipError;

/// Why the GPU cannot be used, now or any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("this build of the plugin has no GPU code: {0}")]
    NoKernels(&'static str),
    #[error("there is no usable GPU: {0}")]
    NoDevice(String),
    #[error("there is no {0}; {1}")]
    NoSuchDevice(String, String),
    #[error("{device} is a {arch}, for which this build of the plugin has no code that its runtime takes")]
    NoCode { device: String, arch: String },
    #[error("{device} has no memory left for {bytes} bytes of {what}")]
    OutOfMemory { device: String, what: &'static str, bytes: usize },
    #[error("{device} was lost: {call} returned {error}; the process has to be started again to use it")]
    Lost { device: String, call: &'static str, error: HipError },
    #[error("{device}: {call} returned {error}")]
    Call { device: String, call: &'static str, error: HipError },
    #[error("the process was forked after the GPU was opened; open it in the child process only")]
    Forked,
    #[error("{0}")]
    Unsupported(String),
}
