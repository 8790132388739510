// SPDX-License-Identifier: MPL-2.0

//! Loaded code objects.

use hip_sys::{Api, HipError, hipModule_t};

use crate::code::Image;

/// The driver is older than the text form of the kernels.
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
    /// Loads the first image that the device takes which is set for this thread; `None` if it takes none.
    pub(crate) fn load(api: &Api, images: &[Image]) -> Result<Option<Self>, HipError> {
        for &Image { target, code } in images {
            let mut handle = std::ptr::null_mut();
            // SAFETY: the address is valid for a write. Whoever made the image has promised that the code is whole, and
            // it lives for ever.
            match unsafe { api.hipModuleLoadData(&mut handle, code.as_ptr().cast()) } {
                // Not for this GPU, or not for this version of the runtime: the next may be.
                HipError::NO_BINARY_FOR_GPU
                | HipError::INVALID_IMAGE
                | HipError::INVALID_DEVICE_FUNCTION
                | HipError::INVALID_KERNEL_FILE
                // What ROCm says of them up to 5.7.
                | HipError::SHARED_OBJECT_INIT_FAILED
                | CUDA_UNSUPPORTED_PTX_VERSION => {}
                status => return status.ok().map(|()| Some(Self { handle, target })),
            }
        }
        Ok(None)
    }

    /// What the image that was loaded was compiled for.
    pub fn target(&self) -> &'static str {
        self.target
    }

    /// Unloads it from the device that is set for this thread.
    ///
    /// # Safety
    ///
    /// None of its kernels may be used any more.
    pub(crate) unsafe fn unload(&self, api: &Api) {
        // SAFETY: the handle is live, as this is called once, and the caller has promised that nobody needs it. There
        // is nothing to do about an error.
        let _ = unsafe { api.hipModuleUnload(self.handle) };
    }
}
