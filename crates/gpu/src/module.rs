// SPDX-License-Identifier: MPL-2.0

//! Loaded code objects.

use hip_sys::{Api, HipError, hipModule_t};

use crate::code::Image;

/// The driver is older than the version of the PTX.
const CUDA_UNSUPPORTED_PTX_VERSION: HipError = HipError::from_code(222);

/// The kernels of one module on one device, which unloads them when it is closed.
pub struct Module {
    pub(crate) handle: hipModule_t,
    target: &'static str,
}

// SAFETY: a handle that any thread may use that has set the device, which every use does.
unsafe impl Send for Module {}
// SAFETY: nothing is changed through a shared reference, and HIP's functions may be called side by side.
unsafe impl Sync for Module {}

impl Module {
    /// Loads the first image that the current device of this thread takes; `None` if it takes none.
    pub(crate) fn load(api: &Api, images: &[Image]) -> Result<Option<Self>, HipError> {
        for &Image { target, code } in images {
            let mut handle = std::ptr::null_mut();
            // SAFETY: the address is valid for a write. The creator of the image has promised that the code is
            // complete, and it is never freed.
            match unsafe { api.hipModuleLoadData(&mut handle, code.as_ptr().cast()) } {
                // Not for this GPU, or not for this version of the runtime. The next image may be.
                HipError::NO_BINARY_FOR_GPU
                | HipError::INVALID_IMAGE
                | HipError::INVALID_DEVICE_FUNCTION
                | HipError::INVALID_KERNEL_FILE
                // The error of ROCm up to 5.7.
                | HipError::SHARED_OBJECT_INIT_FAILED
                | CUDA_UNSUPPORTED_PTX_VERSION => {}
                status => return status.ok().map(|()| Some(Self { handle, target })),
            }
        }
        Ok(None)
    }

    /// Returns the target of the loaded image.
    pub fn target(&self) -> &'static str {
        self.target
    }

    /// Unloads it from the current device of this thread.
    ///
    /// # Safety
    ///
    /// None of its kernels may be used any more.
    pub(crate) unsafe fn unload(&self, api: &Api) {
        // SAFETY: the handle is live, as this is called once, and the caller has promised that it is no longer used. An
        // error cannot be handled.
        let _ = unsafe { api.hipModuleUnload(self.handle) };
    }
}
