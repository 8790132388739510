// SPDX-License-Identifier: MPL-2.0

//! Blocks of memory that wait to be used again: the runtimes wait for all streams of the process when memory is freed, so
//! nothing is freed while anybody streams.

use std::collections::HashMap;
use std::ffi::{c_uint, c_void};
use std::ptr::NonNull;

use hip_sys::{Api, HipError, hipHostMallocCoherent, hipHostMallocMapped, hipHostMallocPortable};

/// Which memory a block is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// The device's.
    Device,
    /// The host's page-locked memory, for copies.
    Host,
    /// The host's page-locked memory that kernels read and write. On AMD that which is for copies is cached by the GPU:
    /// what kernels write there is seen after the stream was waited for, but not for sure after an event.
    Coherent,
}

const COHERENT: c_uint = hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent;

impl Kind {
    /// A new block, and how that went.
    pub(crate) fn allocate(self, api: &Api, size: usize) -> (&'static str, HipError, *mut c_void) {
        let mut address = std::ptr::null_mut();
        // SAFETY: the address is valid for a write.
        let (call, status) = unsafe {
            match self {
                Self::Device => ("hipMalloc", api.hipMalloc(&mut address, size)),
                Self::Host => ("hipHostMalloc", api.hipHostMalloc(&mut address, size, hipHostMallocPortable)),
                Self::Coherent => ("hipHostMalloc", api.hipHostMalloc(&mut address, size, COHERENT)),
            }
        };
        if self != Self::Device && !address.is_null() {
            // SAFETY: new, and that long. What the CPU reads has to be filled once.
            unsafe { std::ptr::write_bytes(address.cast::<u8>(), 0, size) };
        }
        (call, status, address)
    }

    /// Frees a block.
    ///
    /// # Safety
    ///
    /// The address must be one that `allocate` returned for this kind, and nobody may use it any more.
    unsafe fn free(self, api: &Api, address: NonNull<c_void>) {
        // SAFETY: the caller has promised that the block is of this kind, live and unused. There is nothing to do about
        // an error.
        let _ = unsafe {
            match self {
                Self::Device => api.hipFree(address.as_ptr()),
                Self::Host | Self::Coherent => api.hipHostFree(address.as_ptr()),
            }
        };
    }
}

/// Blocks that are free for now, by size.
#[derive(Default)]
pub(crate) struct Pool {
    free: HashMap<(Kind, usize), Vec<NonNull<c_void>>>,
}

// SAFETY: the addresses are of memory that belongs to the pool alone, and any thread may free it.
unsafe impl Send for Pool {}

impl Pool {
    /// A free block of this size.
    pub(crate) fn take(&mut self, kind: Kind, size: usize) -> Option<NonNull<c_void>> {
        self.free.get_mut(&(kind, size)).and_then(Vec::pop)
    }

    /// Takes a block back.
    ///
    /// # Safety
    ///
    /// The block must be of this kind and size, live, and used by nobody any more.
    pub(crate) unsafe fn put(&mut self, kind: Kind, size: usize, block: NonNull<c_void>) {
        self.free.entry((kind, size)).or_default().push(block);
    }

    /// Frees everything, on the device that is set for this thread.
    pub(crate) fn clear(&mut self, api: &Api) {
        for ((kind, _), blocks) in self.free.drain() {
            for block in blocks {
                // SAFETY: whoever put the block here has promised that it is of this kind, live and unused.
                unsafe { kind.free(api, block) };
            }
        }
    }
}
