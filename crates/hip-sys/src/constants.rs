// SPDX-License-Identifier: MPL-2.0

//! The handles and numbers of HIP's functions.

use std::ffi::{c_int, c_uint, c_void};

use crate::HipError;

/// A stream, in which work is done in order.
pub type hipStream_t = *mut c_void;
/// An event: a point in a stream.
pub type hipEvent_t = *mut c_void;
/// A loaded code object.
pub type hipModule_t = *mut c_void;
/// A kernel of a module.
pub type hipFunction_t = *mut c_void;
/// Recorded work.
pub type hipGraph_t = *mut c_void;
/// A node of a recording.
pub type hipGraphNode_t = *mut c_void;
/// Recorded work that is ready to launch.
pub type hipGraphExec_t = *mut c_void;
/// Memory of another API.
pub type hipExternalMemory_t = *mut c_void;
/// Called when the earlier work of a stream is done.
pub type hipStreamCallback_t = unsafe extern "C" fn(hipStream_t, HipError, *mut c_void);

macro_rules! constants {
    ($($type:ty { $($(#[$meta:meta])* $name:ident = $value:literal;)* })*) => {
        $($($(#[$meta])* #[doc = concat!("`", stringify!($name), "`")] pub const $name: $type = $value;)*)*

        #[cfg(test)]
        pub(crate) const CONSTANTS: &[(&str, i64)] = &[$($((stringify!($name), $value),)*)*];
    };
}

constants! {
    c_int {
        hipMemcpyHostToHost = 0;
        hipMemcpyHostToDevice = 1;
        hipMemcpyDeviceToHost = 2;
        hipMemcpyDeviceToDevice = 3;
        hipMemcpyDefault = 4;

        hipStreamCaptureModeGlobal = 0;
        hipStreamCaptureModeThreadLocal = 1;
        hipStreamCaptureModeRelaxed = 2;

        hipExternalMemoryHandleTypeOpaqueFd = 1;

        hipDeviceAttributeIntegrated = 16;
        hipDeviceAttributeComputeCapabilityMajor = 23;
        hipDeviceAttributeMaxThreadsPerBlock = 56;
        hipDeviceAttributeComputeCapabilityMinor = 61;
        hipDeviceAttributeMultiprocessorCount = 63;
        hipDeviceAttributePciBusId = 67;
        hipDeviceAttributePciDeviceId = 68;
        hipDeviceAttributePciDomainID = 69;
        hipDeviceAttributeMaxSharedMemoryPerBlock = 74;
        hipDeviceAttributeWarpSize = 87;
        hipDeviceAttributeMemoryPoolsSupported = 88;
    }
    c_uint {
        hipStreamDefault = 0;
        hipStreamNonBlocking = 1;

        hipEventDefault = 0;
        hipEventBlockingSync = 1;
        hipEventDisableTiming = 2;
        hipEventReleaseToSystem = 0x8000_0000;

        hipHostMallocDefault = 0;
        hipHostMallocPortable = 1;
        hipHostMallocMapped = 2;
        hipHostMallocWriteCombined = 4;
        hipHostMallocCoherent = 0x4000_0000;

        hipHostRegisterDefault = 0;
        hipHostRegisterPortable = 1;
        hipHostRegisterMapped = 2;
    }
}
