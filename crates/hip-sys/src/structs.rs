// SPDX-License-Identifier: MPL-2.0

//! What HIP passes in structures, and questions that need their layouts.
//!
//! These structures have grown from release to release, so the runtime is always given more zeroed space
//! than any release knows, and only fields that have not moved are used.

use std::ffi::{c_int, c_uint, c_void};

use crate::{
    Api, HipError, Vendor, hipDeviceAttributeComputeCapabilityMajor,
    hipDeviceAttributeComputeCapabilityMinor, hipEventDisableTiming, hipExternalMemoryHandleTypeOpaqueFd,
    hipStream_t,
};

/// Where `gcnArchName` is in `hipDeviceProp_t` of ROCm 6 and later (`R0600`), and before.
pub(crate) const ARCH_OFFSET_R0600: usize = 1160;
pub(crate) const ARCH_OFFSET: usize = 396;
/// Several times the largest `hipDeviceProp_t` so far (1472 bytes).
pub(crate) const PROPERTIES_SIZE: usize = 8192;

/// The processor of a device: `gfx90a:sramecc+:xnack-`, or `sm_90` on NVIDIA.
pub fn arch_name(api: &Api, device: c_int) -> Result<String, HipError> {
    if api.vendor == Vendor::Nvidia {
        let [major, minor] =
            [hipDeviceAttributeComputeCapabilityMajor, hipDeviceAttributeComputeCapabilityMinor].map(
                |attribute| {
                    let mut value = 0;
                    // SAFETY: the pointer is valid for a write.
                    unsafe { (api.hipDeviceGetAttribute)(&mut value, attribute, device) }.ok().map(|()| value)
                },
            );
        return Ok(format!("sm_{}{}", major?, minor?));
    }
    // A 64-bit type, as the structure has pointers.
    let mut properties = vec![0u64; PROPERTIES_SIZE / 8];
    let (get, offset) = match (api.hipGetDevicePropertiesR0600, api.hipGetDeviceProperties) {
        (Some(get), _) => (get, ARCH_OFFSET_R0600),
        (None, Some(get)) => (get, ARCH_OFFSET),
        (None, None) => return Err(HipError::NOT_SUPPORTED),
    };
    // SAFETY: the buffer is valid for writes and larger than the structure of any release.
    unsafe { get(properties.as_mut_ptr().cast(), device) }.ok()?;
    let bytes: Vec<u8> = properties.into_iter().flat_map(u64::to_ne_bytes).collect();
    arch_in(&bytes, offset).ok_or(HipError::NOT_FOUND)
}

/// The processor's name at its offset, or wherever it is if a later release moved it.
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

/// `hipPointerAttribute_t`: its first two fields, and room.
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

/// The device in whose memory an address is; `None` for host memory.
#[expect(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "the runtime looks the address up and reads nothing there"
)]
pub fn device_of(api: &Api, address: *const c_void) -> Result<Option<c_int>, HipError> {
    let get = api.hipPointerGetAttributes.ok_or(HipError::NOT_SUPPORTED)?;
    let mut attributes = PointerAttributes::new(0, 0);
    // SAFETY: the buffer is valid for writes and larger than the structure of any release.
    match unsafe { get((&raw mut attributes).cast(), address) } {
        HipError::SUCCESS => {}
        // Memory that the runtime has never seen.
        HipError::INVALID_VALUE => return Ok(None),
        error => return Err(error),
    }
    // The numbers changed in ROCm 6, which is when the R0600 properties came.
    let rocm_5 = api.vendor == Vendor::Amd && api.hipGetDevicePropertiesR0600.is_none();
    let device_memory = if rocm_5 { MEMORY_TYPE_DEVICE_5 } else { MEMORY_TYPE_DEVICE };
    Ok((attributes.kind == device_memory).then_some(attributes.device))
}

/// Waits for all work that may still write to memory of the device that is set, whoever's it is. On NVIDIA,
/// another context may be current after this: set the device again.
pub fn synchronize_owner(api: &Api, address: *const c_void) -> Result<(), HipError> {
    match api.vendor {
        // SAFETY: takes nothing.
        Vendor::Amd => unsafe { (api.hipDeviceSynchronize.ok_or(HipError::NOT_SUPPORTED)?)().ok() },
        Vendor::Nvidia => crate::cuda::synchronize_owner(address),
    }
}

/// Has `stream` wait for the work that is in `producer` now, a stream of the same device. On NVIDIA it may be of
/// another context, which is current after this: set the device again.
///
/// # Safety
///
/// Both streams must be live.
pub unsafe fn wait_for_stream(api: &Api, stream: hipStream_t, producer: hipStream_t) -> Result<(), HipError> {
    if api.vendor == Vendor::Nvidia {
        crate::cuda::enter_stream(producer)?;
    }
    let mut event = std::ptr::null_mut();
    // SAFETY: the caller vouches for the streams. An event may be destroyed while somebody waits for it.
    unsafe {
        (api.hipEventCreateWithFlags)(&mut event, hipEventDisableTiming).ok()?;
        let recorded = (api.hipEventRecord)(event, producer).ok();
        let waited = recorded.and_then(|()| (api.hipStreamWaitEvent)(stream, event, 0).ok());
        waited.and((api.hipEventDestroy)(event).ok())
    }
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
    /// `size` bytes behind an opaque descriptor. On NVIDIA a successful import takes over the descriptor.
    pub fn opaque_fd(fd: c_int, size: u64) -> Self {
        let kind = hipExternalMemoryHandleTypeOpaqueFd;
        Self { kind, gap: 0, fd, handle_rest: [0; 3], size, flags: 0, reserved: [0; 23] }
    }

    /// For `hipImportExternalMemory`.
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
    /// `size` bytes from `offset`.
    pub fn new(offset: u64, size: u64) -> Self {
        Self { offset, size, flags: 0, reserved: [0; 27] }
    }

    /// For `hipExternalMemoryGetMappedBuffer`.
    pub fn as_ptr(&self) -> *const c_void {
        (&raw const *self).cast()
    }
}
