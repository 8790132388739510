// SPDX-License-Identifier: MPL-2.0

//! Page-locking of memory that belongs to other code.

use std::ffi::c_void;
use std::ops::Range;

use hip_sys::{HipError, Vendor, hipHostRegisterPortable};

use crate::device::Device;
use crate::error::Error;
use crate::runtime::DeviceInfo;

/// Pages of ordinary memory that all GPUs of a runtime can copy from directly, as from [`Pinned`](crate::Pinned)
/// memory. They are unlocked when this is dropped, after the GPU has finished its streams.
///
/// It keeps no [`Device`] open: the locked pages belong to the runtime, which stays as long as the process.
pub struct Registered {
    info: &'static DeviceInfo,
    /// Addresses.
    pages: Range<usize>,
}

impl Registered {
    /// Page-locks these addresses, which must be whole pages. Fails if a page is locked already, or if the system does
    /// not allow more.
    ///
    /// # Safety
    ///
    /// The pages must be ordinary memory of this process, and stay so until the returned value is dropped. They may be
    /// dropped only once no stream reads them any more.
    pub unsafe fn new(device: &Device, pages: Range<usize>) -> Result<Self, Error> {
        let api = device.enter_exclusive()?;
        if device.info().vendor == Vendor::Amd {
            // AMD's runtime would lock memory a second time, and unlock the first lock with the second.
            let new = |address: usize| match api.knows(address as *const c_void) {
                Ok(false) => HipError::SUCCESS,
                Ok(true) => HipError::HOST_MEMORY_ALREADY_REGISTERED,
                Err(error) => error,
            };
            device.check("hipHostRegister", new(pages.start))?;
            device.check("hipHostRegister", new(pages.end.saturating_sub(1)))?;
        }
        // SAFETY: the caller has promised that there is memory in all of the range.
        let status =
            unsafe { api.hipHostRegister(pages.start as *mut c_void, pages.len(), hipHostRegisterPortable) };
        device.check("hipHostRegister", status)?;
        Ok(Self { info: device.info(), pages })
    }

    /// Returns the GPU for which the pages were locked. Other GPUs of its runtime can read them as well.
    pub fn info(&self) -> &'static DeviceInfo {
        self.info
    }

    /// Returns the locked addresses.
    pub fn pages(&self) -> &Range<usize> {
        &self.pages
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(api) = self.info.release() {
            // SAFETY: registered with this address, and once. There is nothing to do about an error: on a lost device
            // nothing is read any more.
            let _ = unsafe { api.hipHostUnregister(self.pages.start as *mut c_void) };
        }
    }
}
