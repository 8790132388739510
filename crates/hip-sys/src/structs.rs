// SPDX-License-Identifier: MPL-2.0

//! The structures of HIP's functions.
//!
//! These structures have grown from release to release. So the runtime always gets more zeroed space than any release
//! needs, and only fields that have never moved are used.

use std::ffi::{c_int, c_uint, c_void};

use crate::constants::hipExternalMemoryHandleTypeOpaqueFd;

/// Offset of `gcnArchName` in `hipDeviceProp_t` of ROCm 6 and later (`R0600`), and of earlier releases.
pub(crate) const ARCH_OFFSET_R0600: usize = 1160;
pub(crate) const ARCH_OFFSET: usize = 396;
/// Several times the size of the largest known `hipDeviceProp_t` (1472 bytes).
pub(crate) const PROPERTIES_SIZE: usize = 8192;

/// Finds the GPU target's name at its offset, or elsewhere if a later release has moved it.
pub(crate) fn arch_in(properties: &[u8], offset: usize) -> Option<String> {
    let text = |bytes: &[u8]| {
        let name = bytes.split(|byte| *byte == 0).next()?;
        name.starts_with(b"gfx").then(|| String::from_utf8_lossy(name).into_owned())
    };
    properties
        .get(offset..)
        .and_then(text)
        .or_else(|| properties.windows(3).position(|w| w == b"gfx").and_then(|at| text(&properties[at..])))
}

/// `hipPointerAttribute_t`: its first two fields, and padding.
#[repr(C)]
pub(crate) struct PointerAttributes {
    pub(crate) kind: c_int,
    pub(crate) device: c_int,
    rest: [u64; 15],
}

impl PointerAttributes {
    pub(crate) fn new(kind: c_int, device: c_int) -> Self {
        Self { kind, device, rest: [0; 15] }
    }
}

/// `hipMemoryTypeDevice` of ROCm 5, and of ROCm 6 and later.
pub(crate) const MEMORY_TYPE_DEVICE_5: c_int = 1;
pub(crate) const MEMORY_TYPE_DEVICE: c_int = 2;
/// `hipMemoryTypeUnregistered` of ROCm 6 and later.
pub(crate) const MEMORY_TYPE_UNREGISTERED: c_int = 0;

/// A piece of memory to copy, for [`Api::copy_pieces`](crate::Api::copy_pieces).
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Address of the first byte of the destination.
    pub to: u64,
    /// Address of the first byte of the source.
    pub from: u64,
    /// Size in bytes.
    pub size: usize,
}

/// `hipExternalMemoryHandleDesc`: the memory behind a file descriptor.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct ExternalMemoryHandleDesc {
    pub(crate) kind: c_int,
    gap: c_int,
    pub(crate) fd: c_int,
    handle_rest: [c_int; 3],
    pub(crate) size: u64,
    pub(crate) flags: c_uint,
    reserved: [c_uint; 23],
}

impl ExternalMemoryHandleDesc {
    /// Describes `size` bytes behind an opaque descriptor. On NVIDIA a successful import takes ownership of the
    /// descriptor.
    pub fn opaque_fd(fd: c_int, size: u64) -> Self {
        let kind = hipExternalMemoryHandleTypeOpaqueFd;
        Self { kind, gap: 0, fd, handle_rest: [0; 3], size, flags: 0, reserved: [0; 23] }
    }

    /// Returns the structure for `hipImportExternalMemory`.
    pub fn as_ptr(&self) -> *const c_void {
        (&raw const *self).cast()
    }
}

/// `hipExternalMemoryBufferDesc`: a part of external memory.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct ExternalMemoryBufferDesc {
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) flags: c_uint,
    reserved: [c_uint; 27],
}

impl ExternalMemoryBufferDesc {
    /// Describes the `size` bytes from `offset` on.
    pub fn new(offset: u64, size: u64) -> Self {
        Self { offset, size, flags: 0, reserved: [0; 27] }
    }

    /// Returns the structure for `hipExternalMemoryGetMappedBuffer`.
    pub fn as_ptr(&self) -> *const c_void {
        (&raw const *self).cast()
    }
}
