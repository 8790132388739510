// SPDX-License-Identifier: MPL-2.0

//! The table of functions, the numbers they take, and how AMD's library is found.

use std::ffi::{OsString, c_char, c_int, c_uint, c_void};
use std::path::Path;

use crate::library::{Library, explicit};
use crate::{HipError, LoadError};

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
/// Recorded work, ready to launch.
pub type hipGraphExec_t = *mut c_void;
/// Memory of another API.
pub type hipExternalMemory_t = *mut c_void;
/// Called when the work before it in a stream is done.
pub type hipStreamCallback_t = unsafe extern "C" fn(hipStream_t, HipError, *mut c_void);

/// Makes a struct of function pointers and fills it from a library. `required` functions are plain
/// fields, `optional` ones `Option`s; further fields are given to `resolve`.
macro_rules! table {
    ($(#[$table_meta:meta])* $vis:vis struct $table:ident {
        fields { $($(#[$field_meta:meta])* $field:ident: $field_type:ty,)* }
        required { $($(#[$required_meta:meta])* fn $required:ident($($required_arg:ty),*);)* }
        optional { $($(#[$optional_meta:meta])* fn $optional:ident($($optional_arg:ty),*);)* }
    }) => {
        $(#[$table_meta])*
        #[allow(missing_docs)]
        $vis struct $table {
            $($(#[$field_meta])* $vis $field: $field_type,)*
            $($(#[$required_meta])* $vis $required: unsafe extern "C" fn($($required_arg),*) -> HipError,)*
            $($(#[$optional_meta])* $vis $optional: Option<unsafe extern "C" fn($($optional_arg),*) -> HipError>,)*
        }

        impl $table {
            /// # Safety
            ///
            /// The functions of the library must have the types of the table.
            unsafe fn resolve(library: &Library, $($field: $field_type),*) -> Result<Self, LoadError> {
                // SAFETY: passed on to the caller.
                unsafe {
                    Ok(Self {
                        $($field,)*
                        $($required: library.required(stringify!($required))?,)*
                        $($optional: library.optional(stringify!($optional)),)*
                    })
                }
            }

            /// The functions with the types of their arguments.
            #[cfg(test)]
            #[allow(dead_code)]
            pub(crate) const REQUIRED: &[(&str, &[&str])] =
                &[$((stringify!($required), &[$(stringify!($required_arg)),*]),)*];
            #[cfg(test)]
            #[allow(dead_code)]
            pub(crate) const OPTIONAL: &[(&str, &[&str])] =
                &[$((stringify!($optional), &[$(stringify!($optional_arg)),*]),)*];
        }
    };
}
pub(crate) use table;

/// Whose library is behind a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// AMD's HIP runtime.
    Amd,
    /// NVIDIA's CUDA driver.
    Nvidia,
}

table! {
    /// The HIP functions. Every one returns its status; use that rather than `hipGetLastError`.
    ///
    /// On NVIDIA a thread has no device until it has called `hipSetDevice`, which costs little: call it
    /// first whenever a thread may be a new one.
    pub struct Api {
        fields {
            /// The library as it was opened, for messages.
            library: String,
            /// Whose it is.
            vendor: Vendor,
        }

        required {
            fn hipInit(c_uint);
            fn hipDriverGetVersion(*mut c_int);
            fn hipRuntimeGetVersion(*mut c_int);
            /// Without a device this is `NO_DEVICE`.
            fn hipGetDeviceCount(*mut c_int);
            fn hipSetDevice(c_int);
            /// (value, attribute, device)
            fn hipDeviceGetAttribute(*mut c_int, c_int, c_int);
            /// (text, its size, device)
            fn hipDeviceGetName(*mut c_char, c_int, c_int);
            /// (text, its size, device): "0000:03:00.0"
            fn hipDeviceGetPCIBusId(*mut c_char, c_int, c_int);
            /// (free, total), of the device that is set
            fn hipMemGetInfo(*mut usize, *mut usize);

            fn hipMalloc(*mut *mut c_void, usize);
            fn hipFree(*mut c_void);
            /// (address, size, flags): pinned memory
            fn hipHostMalloc(*mut *mut c_void, usize, c_uint);
            fn hipHostFree(*mut c_void);
            /// (destination, source, size, kind, stream)
            fn hipMemcpyAsync(*mut c_void, *const c_void, usize, c_int, hipStream_t);
            /// (destination, its pitch, source, its pitch, width in bytes, height, kind, stream)
            fn hipMemcpy2DAsync(*mut c_void, usize, *const c_void, usize, usize, usize, c_int, hipStream_t);
            /// (destination, byte, size, stream)
            fn hipMemsetAsync(*mut c_void, c_int, usize, hipStream_t);

            fn hipStreamCreateWithFlags(*mut hipStream_t, c_uint);
            fn hipStreamDestroy(hipStream_t);
            fn hipStreamSynchronize(hipStream_t);
            fn hipStreamQuery(hipStream_t);
            /// (stream, event, 0)
            fn hipStreamWaitEvent(hipStream_t, hipEvent_t, c_uint);
            fn hipEventCreateWithFlags(*mut hipEvent_t, c_uint);
            fn hipEventDestroy(hipEvent_t);
            fn hipEventRecord(hipEvent_t, hipStream_t);
            fn hipEventSynchronize(hipEvent_t);
            fn hipEventQuery(hipEvent_t);
            /// (milliseconds, from, to)
            fn hipEventElapsedTime(*mut f32, hipEvent_t, hipEvent_t);

            /// (module, image): the image must stay where it is until the module is unloaded.
            fn hipModuleLoadData(*mut hipModule_t, *const c_void);
            fn hipModuleUnload(hipModule_t);
            fn hipModuleGetFunction(*mut hipFunction_t, hipModule_t, *const c_char);
            /// (kernel, grid in blocks, block in threads, dynamic shared memory, stream, arguments, null)
            fn hipModuleLaunchKernel(
                hipFunction_t, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, hipStream_t,
                *mut *mut c_void, *mut *mut c_void
            );
            /// Takes away the last error that the runtime remembers for this thread.
            fn hipGetLastError();
        }

        optional {
            /// The properties in ROCm 6's layout; see [`arch_name`](crate::arch_name).
            fn hipGetDevicePropertiesR0600(*mut c_void, c_int);
            /// The properties in ROCm 5's layout, in newer runtimes too.
            fn hipGetDeviceProperties(*mut c_void, c_int);
            fn hipDeviceSynchronize();
            /// (destination, its device, source, its device, size, stream)
            fn hipMemcpyPeerAsync(*mut c_void, c_int, *const c_void, c_int, usize, hipStream_t);
            /// (address, size, flags): pins memory that is there already
            fn hipHostRegister(*mut c_void, usize, c_uint);
            fn hipHostUnregister(*mut c_void);
            /// (attributes, address); see [`device_of`](crate::device_of).
            fn hipPointerGetAttributes(*mut c_void, *const c_void);
            /// (stream, function, its argument, 0): the function must not call HIP.
            fn hipStreamAddCallback(hipStream_t, hipStreamCallback_t, *mut c_void, c_uint);

            /// (stream, mode). The graph functions are there all or not at all: [`Api::graphs`].
            fn hipStreamBeginCapture(hipStream_t, c_int);
            fn hipStreamEndCapture(hipStream_t, *mut hipGraph_t);
            /// (executable graph, graph, null, null, 0)
            fn hipGraphInstantiate(*mut hipGraphExec_t, hipGraph_t, *mut *mut c_void, *mut c_char, usize);
            fn hipGraphLaunch(hipGraphExec_t, hipStream_t);
            fn hipGraphExecDestroy(hipGraphExec_t);
            fn hipGraphDestroy(hipGraph_t);

            /// (memory, [`ExternalMemoryHandleDesc`](crate::ExternalMemoryHandleDesc)). The functions for
            /// external memory are there all or not at all: [`Api::external_memory`].
            fn hipImportExternalMemory(*mut hipExternalMemory_t, *const c_void);
            /// (address, memory, [`ExternalMemoryBufferDesc`](crate::ExternalMemoryBufferDesc))
            fn hipExternalMemoryGetMappedBuffer(*mut *mut c_void, hipExternalMemory_t, *const c_void);
            fn hipDestroyExternalMemory(hipExternalMemory_t);
        }
    }
}

impl Api {
    /// Whether all functions of graphs are there.
    pub fn graphs(&self) -> bool {
        self.hipStreamBeginCapture.is_some()
            && self.hipStreamEndCapture.is_some()
            && self.hipGraphInstantiate.is_some()
            && self.hipGraphLaunch.is_some()
            && self.hipGraphExecDestroy.is_some()
            && self.hipGraphDestroy.is_some()
    }

    /// Whether all functions for external memory are there.
    pub fn external_memory(&self) -> bool {
        self.hipImportExternalMemory.is_some()
            && self.hipExternalMemoryGetMappedBuffer.is_some()
            && self.hipDestroyExternalMemory.is_some()
    }
}

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

        hipHostMallocDefault = 0;
        hipHostMallocPortable = 1;
        hipHostMallocMapped = 2;
        hipHostMallocWriteCombined = 4;

        hipHostRegisterDefault = 0;
        hipHostRegisterPortable = 1;
        hipHostRegisterMapped = 2;
    }
}

/// The names of AMD's library, newest first: two majors in one process do not go together, so the first
/// that can be opened is the one.
const NAMES: [&str; 4] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];

/// Where to look for AMD's library: only in the explicit place if there is one, else by the dynamic
/// loader's own search, then in ROCm's folders.
pub(crate) fn amd_candidates(explicit: Option<OsString>, folders: &[OsString]) -> Vec<OsString> {
    if let Some(path) = explicit {
        return vec![path];
    }
    let in_folders = folders.iter().flat_map(|folder| {
        NAMES.iter().map(|name| Path::new(folder).join("lib").join(name).into_os_string())
    });
    NAMES.iter().map(OsString::from).chain(in_folders).collect()
}

/// Opens AMD's HIP runtime: `$HIPVMAF_HIP_LIBRARY` and nothing else if that is set, else `libamdhip64.so.7`
/// to `.5`, also under `$ROCM_PATH/lib`, `$HIP_PATH/lib` and `/opt/rocm/lib`.
///
/// This runs the library's initialisers, and HIP's first call opens the GPU: not for code that only
/// looks at what is installed.
pub fn load_amd() -> Result<Api, LoadError> {
    let folders: Vec<_> = ["ROCM_PATH", "HIP_PATH"]
        .into_iter()
        .filter_map(self::explicit)
        .chain([OsString::from("/opt/rocm")])
        .collect();
    amd_from(&amd_candidates(explicit("HIPVMAF_HIP_LIBRARY"), &folders))
}

/// The table of the first of these libraries that can be opened.
pub(crate) fn amd_from(candidates: &[OsString]) -> Result<Api, LoadError> {
    let library = Library::open(candidates)?;
    // SAFETY: the types are those of HIP's headers, which a test compares with an installed copy.
    unsafe { Api::resolve(&library, library.name.clone(), Vendor::Amd) }
}
