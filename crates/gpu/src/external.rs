// SPDX-License-Identifier: MPL-2.0

//! Memory of other programs or drivers that is passed as a file descriptor, such as the kernel's DMA buffers.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use hip_sys::{ExternalMemoryBufferDesc, ExternalMemoryHandleDesc, hipExternalMemory_t};

use crate::device::Device;
use crate::error::Error;
use crate::pool::Waste;

/// Memory behind a file descriptor, mapped for a GPU.
pub struct External {
    device: Arc<Device>,
    memory: hipExternalMemory_t,
    address: *mut c_void,
}

// SAFETY: a handle and an address, which any thread may use that has set the device.
unsafe impl Send for External {}
// SAFETY: nothing is changed through a shared reference.
unsafe impl Sync for External {}

impl External {
    /// Imports the first `size` bytes behind a file descriptor. The caller keeps the descriptor.
    pub fn import(device: &Arc<Device>, fd: BorrowedFd<'_>, size: usize) -> Result<Self, Error> {
        let api = device.enter()?;
        if !api.external_memory() {
            return Err(Error::Unsupported(format!("{} cannot import memory", api.library())));
        }
        let failed = |err| Error::Unsupported(format!("cannot duplicate a file descriptor: {err}"));
        let fd = fd.try_clone_to_owned().map_err(failed)?;
        let inode = Inode::of(fd.as_raw_fd())?;
        let fd = fd.into_raw_fd();
        let description = ExternalMemoryHandleDesc::opaque_fd(fd, size as u64);
        let mut memory = std::ptr::null_mut();
        // SAFETY: the address is valid for a write, and the descriptor is open.
        let status = unsafe { api.hipImportExternalMemory(&mut memory, description.as_ptr()) };
        // By HIP's manual an import takes ownership of the descriptor, but AMD's runtime leaves it open.
        if Inode::of(fd).ok() == Some(inode) {
            // SAFETY: it is open and owned here: the duplicate from above.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        device.check("hipImportExternalMemory", status)?;
        let mut external = Self { device: device.clone(), memory, address: std::ptr::null_mut() };
        let part = ExternalMemoryBufferDesc::new(0, size as u64);
        // SAFETY: the address is valid for a write, and the memory was imported above.
        let status =
            unsafe { api.hipExternalMemoryGetMappedBuffer(&mut external.address, memory, part.as_ptr()) };
        device.check("hipExternalMemoryGetMappedBuffer", status)?;
        Ok(external)
    }

    /// Returns true if it was imported for this GPU.
    pub fn is_on(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// Returns the device address of the first byte.
    pub fn address(&self) -> u64 {
        self.address as u64
    }
}

impl Drop for External {
    fn drop(&mut self) {
        // SAFETY: both are live and no longer read: the code that passed the address to the GPU has promised to keep
        // the memory until the GPU is done.
        unsafe { self.device.deferred_free().discard(Waste::Import(self.memory, self.address)) };
    }
}

/// The file behind a descriptor. Duplicates of a descriptor have equal inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inode(u64, u64);

impl Inode {
    /// Finds the file behind an open file descriptor.
    pub fn of(fd: RawFd) -> Result<Self, Error> {
        let failed = |err| Error::Unsupported(format!("cannot inspect a file descriptor: {err}"));
        let metadata = std::fs::metadata(format!("/proc/self/fd/{fd}")).map_err(failed)?;
        Ok(Self(metadata.dev(), metadata.ino()))
    }
}
