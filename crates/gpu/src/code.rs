// SPDX-License-Identifier: MPL-2.0

//! The code that a program runs on GPUs.

/// A code object for AMD, or PTX for NVIDIA, that a runtime may load.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    pub(crate) target: &'static str,
    pub(crate) code: &'static [u8],
}

impl Image {
    /// Wraps code that was compiled for `target`, such as `gfx1100` or `sm_80`.
    ///
    /// # Safety
    ///
    /// The runtime trusts the code: `code` must be a complete code object of AMD's format, or PTX with a zero at
    /// its end.
    pub const unsafe fn new(target: &'static str, code: &'static [u8]) -> Self {
        Self { target, code }
    }
}

/// Modules of kernels, compiled for several GPU targets.
pub trait Code: Sync {
    /// Returns true if there is code for a GPU, given its name in [`DeviceInfo::arch`](crate::DeviceInfo::arch).
    fn covers(&self, arch: &str) -> bool;

    /// Returns the advice for a GPU without code, as the end of a sentence.
    fn remedy(&self, arch: &str) -> String;

    /// Returns a small module that is loaded when a GPU is opened. If the runtime rejects it, another GPU is opened.
    fn probe(&self) -> Option<&'static str> {
        None
    }

    /// Returns the images of a module that a GPU may take, best first. `arch` is its name in
    /// [`DeviceInfo::arch`](crate::DeviceInfo::arch).
    fn images(&self, module: &str, arch: &str) -> Vec<Image>;
}
