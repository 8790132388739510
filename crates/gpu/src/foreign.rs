// SPDX-License-Identifier: MPL-2.0

//! CUDA contexts of the application, and memory in them, for applications that write pictures there themselves.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use hip_sys::{Current, HipError, Vendor, hipMemcpyDeviceToHost};

use crate::context_guard::{ContextGuard, Entered};
use crate::error::Error;
use crate::runtime::{DeviceInfo, Selection, selected};

/// A CUDA context of the application. It is current for a thread only during a call.
pub struct ForeignContext {
    info: &'static DeviceInfo,
    context: Current,
}

impl ForeignContext {
    /// Finds the GPU of a context. Null stands for the primary context of the first GPU.
    ///
    /// # Errors
    ///
    /// There is no GPU of NVIDIA, or the driver refuses the context.
    ///
    /// # Safety
    ///
    /// The pointer is null or a `CUcontext`. The application does not destroy it as long as this or memory in it is used.
    pub unsafe fn new(context: *mut c_void) -> Result<Self, Error> {
        let gpus = selected(&Selection { vendor: Some(Vendor::Nvidia), ordinal: None });
        let [first, ..] = gpus[..] else { return Err(Error::NoDevice("none of NVIDIA was found".into())) };
        let api = ContextGuard::new().enter(first.api()?);
        if context.is_null() {
            // SAFETY: takes a number, which the driver gave.
            check(first, "cuCtxSetCurrent", unsafe { api.hipSetDevice(first.ordinal) }.ok())?;
        } else {
            check(first, "cuCtxSetCurrent", api.set_current(Current::context(context)))?;
        }
        let mut ordinal = 0;
        // SAFETY: the address is valid for a write.
        check(first, "cuCtxGetDevice", unsafe { api.hipGetDevice(&mut ordinal) }.ok())?;
        let context = api.current().unwrap_or(Current::context(context));
        let info = gpus.iter().copied().find(|info| info.ordinal == ordinal);
        let info = info.ok_or_else(|| Error::NoDevice(format!("number {ordinal} cannot be used")))?;
        Ok(Self { info, context })
    }

    /// Returns the GPU.
    pub fn info(&self) -> &'static DeviceInfo {
        self.info
    }

    /// Returns the `CUcontext`.
    pub fn as_ptr(&self) -> *mut c_void {
        self.context.as_context()
    }

    /// Makes the context current until the result is dropped.
    fn enter(&self) -> Result<Entered, Error> {
        let api = ContextGuard::new().enter(self.info.api()?);
        check(self.info, "cuCtxSetCurrent", api.set_current(self.context))?;
        Ok(api)
    }

    /// Waits for all work of the context.
    pub fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: takes nothing.
        let done = unsafe { self.enter()?.hipDeviceSynchronize() };
        check(self.info, "cuCtxSynchronize", done.ok())
    }

    /// Copies device memory to the host, after all work of the context.
    ///
    /// # Safety
    ///
    /// So many bytes can be read in the context's GPU at this address.
    pub unsafe fn read(&self, from: u64, to: &mut [u8]) -> Result<(), Error> {
        let api = self.enter()?;
        let (from, size) = (from as *const c_void, to.len());
        // SAFETY: the caller has promised it, and the slice is left alone until the work is done.
        unsafe {
            check(self.info, "cuCtxSynchronize", api.hipDeviceSynchronize().ok())?;
            let to = to.as_mut_ptr().cast();
            let copied = api.hipMemcpyAsync(to, from, size, hipMemcpyDeviceToHost, null_mut());
            let done = api.hipStreamSynchronize(null_mut());
            check(self.info, "cuMemcpyAsync", copied.ok().and(done.ok()))
        }
    }
}

/// Converts the status of a call in a context of the application, whose errors are not those of the GPU.
fn check(info: &DeviceInfo, call: &'static str, status: Result<(), HipError>) -> Result<(), Error> {
    status.map_err(|error| Error::Call { device: info.name.clone(), call, error })
}

/// Device memory that was allocated in a context of the application.
pub struct ForeignBuffer {
    context: Arc<ForeignContext>,
    address: NonNull<c_void>,
}

// SAFETY: an address, which any thread may use that makes the context current.
unsafe impl Send for ForeignBuffer {}
// SAFETY: nothing is changed through a shared reference.
unsafe impl Sync for ForeignBuffer {}

impl ForeignBuffer {
    /// Allocates memory, all of it zero.
    pub fn new(context: &Arc<ForeignContext>, size: usize) -> Result<Self, Error> {
        let api = context.enter()?.holding(context.info.driver_lock.exclusive());
        let mut address = null_mut();
        // SAFETY: the address is valid for a write.
        let status = unsafe { api.hipMalloc(&mut address, size.max(1)) };
        if status == HipError::OUT_OF_MEMORY {
            let device = context.info.name.clone();
            return Err(Error::OutOfMemory { device, what: "a picture", bytes: size });
        }
        check(context.info, "cuMemAlloc", status.ok())?;
        let refused = || Error::NoDevice("the driver has given no memory".into());
        let buffer = Self { context: context.clone(), address: NonNull::new(address).ok_or_else(refused)? };
        // SAFETY: new, and that long.
        unsafe {
            let zeroed = api.hipMemsetAsync(address, 0, size, null_mut()).ok();
            check(context.info, "cuMemsetD8Async", zeroed.and(api.hipStreamSynchronize(null_mut()).ok()))?;
        }
        Ok(buffer)
    }

    /// Returns the context that the memory is in.
    pub fn context(&self) -> &Arc<ForeignContext> {
        &self.context
    }

    /// Returns the device address of the first byte.
    pub fn address(&self) -> u64 {
        self.address.as_ptr() as u64
    }
}

impl Drop for ForeignBuffer {
    fn drop(&mut self) {
        // If the context is gone, so is the memory.
        let Ok(api) = self.context.enter() else { return };
        let api = api.holding(self.context.info.driver_lock.exclusive());
        // SAFETY: allocated in this context, and nothing uses it any more. There is nothing to do about an error.
        let _ = unsafe { api.hipFree(self.address.as_ptr()) };
    }
}
