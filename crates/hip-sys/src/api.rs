// SPDX-License-Identifier: MPL-2.0

//! The runtime's functions under HIP's names, for the library of either vendor.

use std::ffi::{OsString, c_char, c_int, c_uint, c_void};
use std::path::Path;

use crate::constants::*;
use crate::cuda::Cuda;
use crate::library::Library;
use crate::structs::{ARCH_OFFSET, ARCH_OFFSET_R0600, PROPERTIES_SIZE, PointerAttributes, arch_in};
use crate::structs::{MEMORY_TYPE_DEVICE, MEMORY_TYPE_DEVICE_5, MEMORY_TYPE_UNREGISTERED};
use crate::{HipError, LoadError, Piece};

/// The vendor of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// AMD's HIP runtime.
    Amd,
    /// NVIDIA's CUDA driver.
    Nvidia,
}

impl std::fmt::Display for Vendor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Amd => "AMD",
            Self::Nvidia => "NVIDIA",
        })
    }
}

/// Defines the table of AMD's functions, and methods of [`Api`] that call them or their equivalents on NVIDIA.
macro_rules! functions {
    (
        required { $($(#[$required_meta:meta])* fn $required:ident($($required_arg:ident: $required_type:ty),*);)* }
        optional { $($(#[$optional_meta:meta])* fn $optional:ident($($optional_arg:ident: $optional_type:ty),*);)* }
    ) => {
        /// The functions of AMD's library, as far as its release has them.
        struct Hip {
            $($required: unsafe extern "C" fn($($required_type),*) -> HipError,)*
            $($optional: Option<unsafe extern "C" fn($($optional_type),*) -> HipError>,)*
        }

        impl Hip {
            fn resolve(library: &Library) -> Result<Self, LoadError> {
                // SAFETY: the types are those of HIP's headers, which a test compares with an installed copy. They do
                // not change between releases; a change comes under a new name.
                unsafe {
                    Ok(Self {
                        $($required: library.required(stringify!($required))?,)*
                        $($optional: library.optional(stringify!($optional)),)*
                    })
                }
            }
        }

        /// HIP's functions under their own names. Each returns its status; use it instead of `hipGetLastError`.
        /// Functions that the library lacks return [`HipError::NOT_SUPPORTED`].
        ///
        /// On NVIDIA a thread has no device until it has called [`hipSetDevice`](Self::hipSetDevice). That call costs
        /// little, so make it first whenever a thread may be new.
        #[allow(clippy::too_many_arguments, reason = "that many has HIP")]
        impl Api {
            $(
                $(#[$required_meta])*
                ///
                /// # Safety
                ///
                /// Pointers must be valid for the function's reads and writes, until the stream has got there if it takes
                /// one; handles must be live.
                pub unsafe fn $required(&self, $($required_arg: $required_type),*) -> HipError {
                    match &self.functions {
                        // SAFETY: the caller has promised what HIP requires.
                        Functions::Hip(hip) => unsafe { (hip.$required)($($required_arg),*) },
                        // SAFETY: the caller's promise is all that the driver's side asks for.
                        Functions::Cuda(cuda) => unsafe { cuda.$required($($required_arg),*) },
                    }
                }
            )*
            $(
                $(#[$optional_meta])*
                ///
                /// # Safety
                ///
                /// Pointers must be valid for the function's reads and writes, until the stream has got there if it takes
                /// one; handles must be live.
                pub unsafe fn $optional(&self, $($optional_arg: $optional_type),*) -> HipError {
                    match &self.functions {
                        Functions::Hip(hip) => match hip.$optional {
                            // SAFETY: the caller has promised what HIP requires.
                            Some(function) => unsafe { function($($optional_arg),*) },
                            None => HipError::NOT_SUPPORTED,
                        },
                        // SAFETY: the caller's promise is all that the driver's side asks for.
                        Functions::Cuda(cuda) => unsafe { cuda.$optional($($optional_arg),*) },
                    }
                }
            )*
        }

        /// The functions with the types of their arguments.
        #[cfg(test)]
        pub(crate) const REQUIRED: &[(&str, &[&str])] =
            &[$((stringify!($required), &[$(stringify!($required_type)),*]),)*];
        #[cfg(test)]
        pub(crate) const OPTIONAL: &[(&str, &[&str])] =
            &[$((stringify!($optional), &[$(stringify!($optional_type)),*]),)*];
    };
}

functions! {
    required {
        /// Initialises the runtime; `flags` is 0.
        fn hipInit(flags: c_uint);
        /// Gets the version of the driver.
        fn hipDriverGetVersion(version: *mut c_int);
        /// Gets the version of the runtime.
        fn hipRuntimeGetVersion(version: *mut c_int);
        /// Counts the devices. Without one, the status is [`HipError::NO_DEVICE`].
        fn hipGetDeviceCount(count: *mut c_int);
        /// Makes a device current for the calling thread.
        fn hipSetDevice(device: c_int);
        /// Gets the current device of the calling thread; see [`Api::current`].
        fn hipGetDevice(device: *mut c_int);
        /// Gets a property of a device: one of `hipDeviceAttribute…`.
        fn hipDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
        /// Gets the name of a device as marketed.
        fn hipDeviceGetName(name: *mut c_char, size: c_int, device: c_int);
        /// Gets the PCI address of a device: `0000:03:00.0`.
        fn hipDeviceGetPCIBusId(id: *mut c_char, size: c_int, device: c_int);
        /// Gets the free and the total bytes of the thread's device.
        fn hipMemGetInfo(free: *mut usize, total: *mut usize);

        /// Allocates device memory.
        fn hipMalloc(address: *mut *mut c_void, size: usize);
        /// Frees device memory.
        fn hipFree(address: *mut c_void);
        /// Allocates page-locked host memory; `flags` are `hipHostMalloc…`.
        fn hipHostMalloc(address: *mut *mut c_void, size: usize, flags: c_uint);
        /// Frees page-locked host memory.
        fn hipHostFree(address: *mut c_void);
        /// Copies in the order of a stream; `kind` is one of `hipMemcpy…`.
        fn hipMemcpyAsync(to: *mut c_void, from: *const c_void, size: usize, kind: c_int, stream: hipStream_t);
        /// Copies `height` rows of `width` bytes in the order of a stream.
        fn hipMemcpy2DAsync(
            to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize,
            kind: c_int, stream: hipStream_t
        );
        /// Fills memory with the lowest byte of `value` in the order of a stream.
        fn hipMemsetAsync(address: *mut c_void, value: c_int, size: usize, stream: hipStream_t);

        /// Creates a stream; `flags` are `hipStream…`. Kernels of a stream with a lower priority number start first; 0
        /// is the default, and numbers out of range are clamped.
        fn hipStreamCreateWithPriority(stream: *mut hipStream_t, flags: c_uint, priority: c_int);
        /// Destroys a stream once its work is done.
        fn hipStreamDestroy(stream: hipStream_t);
        /// Waits for all work in a stream.
        fn hipStreamSynchronize(stream: hipStream_t);
        /// Queries whether a stream's work is done; if not, the status is [`HipError::NOT_READY`].
        fn hipStreamQuery(stream: hipStream_t);
        /// Makes later work of a stream wait for an event; `flags` is 0.
        fn hipStreamWaitEvent(stream: hipStream_t, event: hipEvent_t, flags: c_uint);
        /// Creates an event; `flags` are `hipEvent…`.
        fn hipEventCreateWithFlags(event: *mut hipEvent_t, flags: c_uint);
        /// Destroys an event; waiting streams are not affected.
        fn hipEventDestroy(event: hipEvent_t);
        /// Marks the present end of a stream's work.
        fn hipEventRecord(event: hipEvent_t, stream: hipStream_t);
        /// Waits for the work that an event marks.
        fn hipEventSynchronize(event: hipEvent_t);
        /// Queries whether the work that an event marks is done; if not, the status is [`HipError::NOT_READY`].
        fn hipEventQuery(event: hipEvent_t);
        /// Gets the milliseconds between two events that are done.
        fn hipEventElapsedTime(milliseconds: *mut f32, from: hipEvent_t, to: hipEvent_t);

        /// Loads a code object. The image must stay where it is until the module is unloaded.
        fn hipModuleLoadData(module: *mut hipModule_t, image: *const c_void);
        /// Unloads a module.
        fn hipModuleUnload(module: hipModule_t);
        /// Finds the kernel with this name.
        fn hipModuleGetFunction(function: *mut hipFunction_t, module: hipModule_t, name: *const c_char);
        /// Launches a kernel: the grid in blocks, the block in threads, bytes of dynamic shared memory. `arguments` are
        /// addresses of values of the kernel's parameter types; `extra` is null.
        fn hipModuleLaunchKernel(
            function: hipFunction_t, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
            block_z: c_uint, shared: c_uint, stream: hipStream_t, arguments: *mut *mut c_void, extra: *mut *mut c_void
        );
        /// Clears the last error that the runtime stores for this thread.
        fn hipGetLastError();
    }

    optional {
        /// Gets the properties in ROCm 6's layout; see [`arch_name`](Api::arch_name).
        fn hipGetDevicePropertiesR0600(properties: *mut c_void, device: c_int);
        /// Gets the properties in ROCm 5's layout, in newer runtimes too.
        fn hipGetDeviceProperties(properties: *mut c_void, device: c_int);
        /// Waits for all work of the thread's device.
        fn hipDeviceSynchronize();
        /// Copies from one device to another.
        fn hipMemcpyPeerAsync(
            to: *mut c_void, to_device: c_int, from: *const c_void, from_device: c_int, size: usize,
            stream: hipStream_t
        );
        /// Page-locks existing memory; `flags` are `hipHostRegister…`.
        fn hipHostRegister(address: *mut c_void, size: usize, flags: c_uint);
        /// Unlocks memory that was page-locked by [`hipHostRegister`](Self::hipHostRegister).
        fn hipHostUnregister(address: *mut c_void);
        /// Gets the properties of an address; see [`device_of`](Api::device_of).
        fn hipPointerGetAttributes(attributes: *mut c_void, address: *const c_void);
        /// Calls a function when a stream gets there; it must not call HIP. `flags` is 0.
        fn hipStreamAddCallback(
            stream: hipStream_t, callback: hipStreamCallback_t, argument: *mut c_void, flags: c_uint
        );

        /// Begins to record the work that is put into a stream; `mode` is one of `hipStreamCaptureMode…`. A library has
        /// all functions of graphs or none: [`Api::graphs`].
        fn hipStreamBeginCapture(stream: hipStream_t, mode: c_int);
        /// Ends the recording of a stream, which yields a graph.
        fn hipStreamEndCapture(stream: hipStream_t, graph: *mut hipGraph_t);
        /// Counts the nodes of a recording if `nodes` is null.
        fn hipGraphGetNodes(graph: hipGraph_t, nodes: *mut hipGraphNode_t, count: *mut usize);
        /// Instantiates a graph; the last three arguments are null, null and 0.
        fn hipGraphInstantiate(
            exec: *mut hipGraphExec_t, graph: hipGraph_t, error_node: *mut *mut c_void, log: *mut c_char,
            log_size: usize
        );
        /// Launches a graph in the order of a stream.
        fn hipGraphLaunch(exec: hipGraphExec_t, stream: hipStream_t);
        /// Destroys an instantiated graph.
        fn hipGraphExecDestroy(exec: hipGraphExec_t);
        /// Destroys a recording.
        fn hipGraphDestroy(graph: hipGraph_t);

        /// Imports memory, by an [`ExternalMemoryHandleDesc`](crate::ExternalMemoryHandleDesc). A library has all
        /// functions for external memory or none: [`Api::external_memory`].
        fn hipImportExternalMemory(memory: *mut hipExternalMemory_t, description: *const c_void);
        /// Gets the address of a part of imported memory, by an
        /// [`ExternalMemoryBufferDesc`](crate::ExternalMemoryBufferDesc).
        fn hipExternalMemoryGetMappedBuffer(
            address: *mut *mut c_void, memory: hipExternalMemory_t, description: *const c_void
        );
        /// Releases imported memory.
        fn hipDestroyExternalMemory(memory: hipExternalMemory_t);
    }
}

/// A vendor's library, opened.
pub struct Api {
    library: String,
    functions: Functions,
}

/// The current device (HIP) or context (CUDA) of a thread. A context may belong to other code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Current(Place);

// SAFETY: a number or a handle, which any thread may use.
unsafe impl Send for Current {}
// SAFETY: as above.
unsafe impl Sync for Current {}

impl Current {
    /// Names a context of CUDA that other code has made. NVIDIA's driver refuses one that is no longer there.
    pub fn context(context: *mut c_void) -> Self {
        Self(Place::Context(context))
    }

    /// Returns the context of CUDA; null for a device of HIP.
    pub fn as_context(self) -> *mut c_void {
        match self.0 {
            Place::Context(context) => context,
            Place::Device(_) => std::ptr::null_mut(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Device(c_int),
    Context(*mut c_void),
}

enum Functions {
    Hip(Box<Hip>),
    Cuda(Box<Cuda>),
}

/// The names of AMD's library, newest first. Two major versions do not work in one process, so only the first that can
/// be opened is used.
const NAMES: [&str; 4] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];

/// Returns the paths to try for AMD's library: first the search of the dynamic loader, then ROCm's folders.
pub(crate) fn amd_candidates(folders: &[OsString]) -> Vec<OsString> {
    let in_folders = folders.iter().flat_map(|folder| {
        NAMES.iter().map(|name| Path::new(folder).join("lib").join(name).into_os_string())
    });
    NAMES.iter().map(OsString::from).chain(in_folders).collect()
}

impl Api {
    /// Opens a vendor's library where it usually is. AMD's HIP runtime is `libamdhip64.so.7` to `.5`, also under
    /// `$ROCM_PATH/lib`, `$HIP_PATH/lib` and `/opt/rocm/lib`; NVIDIA's driver is `libcuda.so.1`.
    ///
    /// This runs the library's initialisers, and its first call opens the GPU: not for code that only lists what is
    /// installed. The library stays open as long as the process.
    pub fn load(vendor: Vendor) -> Result<Self, LoadError> {
        match vendor {
            Vendor::Amd => {
                let variables = ["ROCM_PATH", "HIP_PATH"].into_iter().filter_map(std::env::var_os);
                let folders: Vec<_> =
                    variables.filter(|path| !path.is_empty()).chain(["/opt/rocm".into()]).collect();
                Self::first(vendor, &amd_candidates(&folders))
            }
            Vendor::Nvidia => Self::first(vendor, &["libcuda.so.1".into()]),
        }
    }

    /// Opens this library, which must be the vendor's or compatible with it.
    pub fn load_from(vendor: Vendor, library: impl Into<OsString>) -> Result<Self, LoadError> {
        Self::first(vendor, &[library.into()])
    }

    /// Opens the first of these libraries that the dynamic loader accepts.
    pub(crate) fn first(vendor: Vendor, candidates: &[OsString]) -> Result<Self, LoadError> {
        let library = Library::open(candidates)?;
        let functions = match vendor {
            Vendor::Amd => Functions::Hip(Box::new(Hip::resolve(&library)?)),
            Vendor::Nvidia => Functions::Cuda(Box::new(Cuda::resolve(&library)?)),
        };
        Ok(Self { library: library.name, functions })
    }

    /// Returns the library as it was opened, for messages.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// Returns the vendor of the library.
    pub fn vendor(&self) -> Vendor {
        match self.functions {
            Functions::Hip(_) => Vendor::Amd,
            Functions::Cuda(_) => Vendor::Nvidia,
        }
    }

    /// Returns true if all functions of graphs exist.
    pub fn graphs(&self) -> bool {
        match &self.functions {
            Functions::Hip(hip) => {
                hip.hipStreamBeginCapture.is_some()
                    && hip.hipStreamEndCapture.is_some()
                    && hip.hipGraphInstantiate.is_some()
                    && hip.hipGraphLaunch.is_some()
                    && hip.hipGraphExecDestroy.is_some()
                    && hip.hipGraphDestroy.is_some()
            }
            Functions::Cuda(cuda) => cuda.graphs(),
        }
    }

    /// Returns true if all functions for external memory exist.
    pub fn external_memory(&self) -> bool {
        match &self.functions {
            Functions::Hip(hip) => {
                hip.hipImportExternalMemory.is_some()
                    && hip.hipExternalMemoryGetMappedBuffer.is_some()
                    && hip.hipDestroyExternalMemory.is_some()
            }
            Functions::Cuda(cuda) => cuda.external_memory(),
        }
    }

    /// Returns the GPU target of a device: `gfx90a:sramecc+:xnack-`, or `sm_90` on NVIDIA.
    pub fn arch_name(&self, device: c_int) -> Result<String, HipError> {
        let Functions::Hip(hip) = &self.functions else {
            let number = |attribute| {
                let mut value = 0;
                // SAFETY: the pointer is valid for a write.
                unsafe { self.hipDeviceGetAttribute(&mut value, attribute, device) }.ok().map(|()| value)
            };
            let major = number(hipDeviceAttributeComputeCapabilityMajor)?;
            return Ok(format!("sm_{major}{}", number(hipDeviceAttributeComputeCapabilityMinor)?));
        };
        // A 64-bit type, as the structure contains pointers.
        let mut properties = vec![0u64; PROPERTIES_SIZE / 8];
        let (get, offset) = match (hip.hipGetDevicePropertiesR0600, hip.hipGetDeviceProperties) {
            (Some(get), _) => (get, ARCH_OFFSET_R0600),
            (None, Some(get)) => (get, ARCH_OFFSET),
            (None, None) => return Err(HipError::NOT_SUPPORTED),
        };
        // SAFETY: the buffer is valid for writes and larger than the structure of any release.
        unsafe { get(properties.as_mut_ptr().cast(), device) }.ok()?;
        let bytes: Vec<u8> = properties.into_iter().flat_map(u64::to_ne_bytes).collect();
        arch_in(&bytes, offset).ok_or(HipError::NOT_FOUND)
    }

    /// Returns the device that owns an address; `None` for host memory.
    pub fn device_of(&self, address: *const c_void) -> Result<Option<c_int>, HipError> {
        let device_memory = if self.is_rocm_5() { MEMORY_TYPE_DEVICE_5 } else { MEMORY_TYPE_DEVICE };
        let attributes = self.attributes(address)?.filter(|attributes| attributes.kind == device_memory);
        Ok(attributes.map(|attributes| attributes.device))
    }

    /// Returns true if the memory at an address was allocated by the runtime or registered with it.
    pub fn knows(&self, address: *const c_void) -> Result<bool, HipError> {
        let known = |kind| self.is_rocm_5() || kind != MEMORY_TYPE_UNREGISTERED;
        Ok(self.attributes(address)?.is_some_and(|attributes| known(attributes.kind)))
    }

    /// Returns the runtime's properties of an address; `None` for memory that it does not know. From ROCm 6 on, such
    /// memory has a type as well.
    fn attributes(&self, address: *const c_void) -> Result<Option<PointerAttributes>, HipError> {
        let mut attributes = PointerAttributes::new(0, 0);
        // SAFETY: the buffer is valid for writes and larger than the structure of any release; nothing is read at the
        // address.
        match unsafe { self.hipPointerGetAttributes((&raw mut attributes).cast(), address) } {
            HipError::SUCCESS => Ok(Some(attributes)),
            HipError::INVALID_VALUE => Ok(None),
            error => Err(error),
        }
    }

    /// Returns true for ROCm 5. The numbers of memory types changed in ROCm 6, which also introduced the R0600
    /// properties.
    fn is_rocm_5(&self) -> bool {
        matches!(&self.functions, Functions::Hip(hip) if hip.hipGetDevicePropertiesR0600.is_none())
    }

    /// Returns the current device or context of the calling thread.
    pub fn current(&self) -> Result<Current, HipError> {
        match &self.functions {
            Functions::Hip(hip) => {
                let mut device = 0;
                // SAFETY: the address is valid for a write.
                unsafe { (hip.hipGetDevice)(&mut device) }.ok().map(|()| Current(Place::Device(device)))
            }
            Functions::Cuda(cuda) => cuda.current().map(|context| Current(Place::Context(context))),
        }
    }

    /// Makes an earlier device or context current again for the calling thread.
    pub fn set_current(&self, current: Current) -> Result<(), HipError> {
        match (&self.functions, current.0) {
            // SAFETY: takes a number.
            (Functions::Hip(hip), Place::Device(device)) => unsafe { (hip.hipSetDevice)(device) }.ok(),
            (Functions::Cuda(cuda), Place::Context(context)) => cuda.set_current(context),
            _ => Err(HipError::INVALID_VALUE),
        }
    }

    /// Waits for all work that may still write to this memory of the current device, in any context. On NVIDIA, another
    /// context may be current afterwards, so set the device again.
    pub fn synchronize_owner(&self, address: *const c_void) -> Result<(), HipError> {
        match &self.functions {
            // SAFETY: takes nothing.
            Functions::Hip(_) => unsafe { self.hipDeviceSynchronize() }.ok(),
            Functions::Cuda(cuda) => cuda.synchronize_owner(address),
        }
    }

    /// Copies pieces of memory in the order of a stream, and in any order among themselves. [`HipError::NOT_SUPPORTED`] with
    /// NVIDIA's drivers before CUDA 12.8, and with AMD's, whose `hipMemcpyBatchAsync` has nothing in its favour: it takes them
    /// one after the other.
    ///
    /// # Safety
    ///
    /// All pieces must be valid memory, and left alone until the live stream has got there.
    pub unsafe fn copy_pieces(&self, pieces: &[Piece], stream: hipStream_t) -> Result<(), HipError> {
        match &self.functions {
            Functions::Hip(_) => Err(HipError::NOT_SUPPORTED),
            // SAFETY: the caller has promised it.
            Functions::Cuda(cuda) => unsafe { cuda.copy_pieces(pieces, stream) },
        }
    }

    /// Makes `stream` wait for the present work of `producer`, a stream of the same device. On NVIDIA it may belong to
    /// another context, which is current afterwards, so set the device again.
    ///
    /// # Safety
    ///
    /// Both streams must be live.
    pub unsafe fn wait_for_stream(&self, stream: hipStream_t, producer: hipStream_t) -> Result<(), HipError> {
        if let Functions::Cuda(cuda) = &self.functions {
            // SAFETY: the caller's stream is live.
            unsafe { cuda.enter_stream(producer)? };
        }
        let mut event = std::ptr::null_mut();
        // SAFETY: the address is valid for a write, the caller's streams are live, and the event is from the first call
        // until the last. It may be destroyed while a stream waits for it.
        unsafe {
            self.hipEventCreateWithFlags(&mut event, hipEventDisableTiming).ok()?;
            let recorded = self.hipEventRecord(event, producer).ok();
            let waited = recorded.and_then(|()| self.hipStreamWaitEvent(stream, event, 0).ok());
            waited.and(self.hipEventDestroy(event).ok())
        }
    }
}
