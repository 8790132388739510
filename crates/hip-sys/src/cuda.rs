// SPDX-License-Identifier: MPL-2.0

//! HIP's functions on top of NVIDIA's CUDA driver.
//!
//! The numbers of errors and flags and most signatures agree, so most of HIP's functions are the driver's own. The
//! others are small functions here. Handles and device addresses are pointers, as in HIP; the driver's
//! `CUdeviceptr` is an integer of the same size and is passed in the same way.
//!
//! Safety: every function under HIP's name requires the same as HIP's function, which is the same as the driver's:
//! valid pointers, live handles, and memory that is left alone until a stream has got there.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use crate::constants::*;
use crate::library::Library;
use crate::{HipError, LoadError, Piece};

type CUdevice = c_int;
type CUcontext = *mut c_void;
type CUlibrary = *mut c_void;

/// Defines a table of the driver's functions.
macro_rules! table {
    ($(#[$table_meta:meta])* struct $table:ident {
        required { $($(#[$required_meta:meta])* fn $required:ident($($required_arg:ty),*);)* }
        optional { $($(#[$optional_meta:meta])* fn $optional:ident($($optional_arg:ty),*);)* }
    }) => {
        $(#[$table_meta])*
        struct $table {
            $($(#[$required_meta])* $required: unsafe extern "C" fn($($required_arg),*) -> HipError,)*
            $($(#[$optional_meta])* $optional: Option<unsafe extern "C" fn($($optional_arg),*) -> HipError>,)*
        }

        impl $table {
            fn resolve(library: &Library) -> Result<Self, LoadError> {
                // SAFETY: the types are those of the driver's documentation; its functions keep their types, as a
                // change of type comes with a new name (_v2).
                unsafe {
                    Ok(Self {
                        $($required: library.required(stringify!($required))?,)*
                        $($optional: library.optional(stringify!($optional)),)*
                    })
                }
            }
        }
    };
}

table! {
    /// The driver's functions that do not fit HIP's signatures.
    struct Driver {
        required {
            fn cuInit(c_uint);
            fn cuDeviceGetCount(*mut c_int);
            fn cuDeviceGet(*mut CUdevice, c_int);
            fn cuDeviceGetAttribute(*mut c_int, c_int, CUdevice);
            fn cuDeviceGetName(*mut c_char, c_int, CUdevice);
            fn cuDeviceGetPCIBusId(*mut c_char, c_int, CUdevice);
            fn cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
            fn cuCtxGetCurrent(*mut CUcontext);
            fn cuCtxSetCurrent(CUcontext);
            fn cuCtxSynchronize();
            fn cuCtxGetDevice(*mut CUdevice);
            fn cuStreamGetCtx(hipStream_t, *mut CUcontext);
            fn cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
            fn cuMemcpyAsync(*mut c_void, *const c_void, usize, hipStream_t);
            fn cuMemcpy2DAsync_v2(*const CUDA_MEMCPY2D, hipStream_t);
            fn cuMemcpyPeerAsync(*mut c_void, CUcontext, *const c_void, CUcontext, usize, hipStream_t);
            fn cuMemsetD8Async(*mut c_void, u8, usize, hipStream_t);
            fn cuEventCreate(*mut hipEvent_t, c_uint);
            fn cuPointerGetAttribute(*mut c_void, c_int, *const c_void);
            fn cuModuleLoadData(*mut hipModule_t, *const c_void);
            fn cuModuleUnload(hipModule_t);
            fn cuModuleGetFunction(*mut hipFunction_t, hipModule_t, *const c_char);
        }
        optional {
            /// (library, image, JIT options, their values, count, library options, their values, count)
            fn cuLibraryLoadData(
                *mut CUlibrary, *const c_void, *mut c_int, *mut *mut c_void, c_uint, *mut c_int, *mut *mut c_void,
                c_uint
            );
            fn cuLibraryGetModule(*mut hipModule_t, CUlibrary);
            fn cuLibraryUnload(CUlibrary);
            fn cuGraphInstantiateWithFlags(*mut hipGraphExec_t, hipGraph_t, u64);
            /// (to, from, sizes, count, attributes, index of the first copy of each attribute, count, failed copy,
            /// stream)
            fn cuMemcpyBatchAsync(
                *const *mut c_void, *const *const c_void, *const usize, usize, *const CUmemcpyAttributes, *const usize,
                usize, *mut usize, hipStream_t
            );
        }
    }
}

/// Defines a table of the driver's functions that are equivalent to HIP's, and methods of [`Cuda`] under HIP's names.
macro_rules! forwarded {
    (
        required { $($hip:ident = $driver:literal($($arg:ident: $type:ty),*);)* }
        optional { $($hip_optional:ident = $driver_optional:literal($($optional_arg:ident: $optional_type:ty),*);)* }
    ) => {
        /// The driver's functions that fit HIP's signatures, under HIP's names.
        struct Forwarded {
            $($hip: unsafe extern "C" fn($($type),*) -> HipError,)*
            $($hip_optional: Option<unsafe extern "C" fn($($optional_type),*) -> HipError>,)*
        }

        impl Forwarded {
            fn resolve(library: &Library) -> Result<Self, LoadError> {
                // SAFETY: the types are those of the driver's documentation; its functions keep their types, as a
                // change of type comes with a new name (_v2).
                unsafe {
                    Ok(Self {
                        $($hip: library.required($driver)?,)*
                        $($hip_optional: library.optional($driver_optional),)*
                    })
                }
            }
        }

        #[allow(clippy::missing_safety_doc, reason = "said above for all of them")]
        #[allow(clippy::too_many_arguments, reason = "that many has HIP")]
        impl Cuda {
            $(pub(crate) unsafe fn $hip(&self, $($arg: $type),*) -> HipError {
                // SAFETY: the driver's function requires the same as HIP's, which the caller has promised.
                unsafe { (self.forwarded.$hip)($($arg),*) }
            })*
            $(pub(crate) unsafe fn $hip_optional(&self, $($optional_arg: $optional_type),*) -> HipError {
                match self.forwarded.$hip_optional {
                    // SAFETY: the driver's function requires the same as HIP's, which the caller has promised.
                    Some(function) => unsafe { function($($optional_arg),*) },
                    None => HipError::NOT_SUPPORTED,
                }
            })*
        }
    };
}

forwarded! {
    required {
        hipInit = "cuInit"(flags: c_uint);
        hipDriverGetVersion = "cuDriverGetVersion"(version: *mut c_int);
        hipRuntimeGetVersion = "cuDriverGetVersion"(version: *mut c_int);
        hipMemGetInfo = "cuMemGetInfo_v2"(free: *mut usize, total: *mut usize);
        hipMalloc = "cuMemAlloc_v2"(address: *mut *mut c_void, size: usize);
        hipFree = "cuMemFree_v2"(address: *mut c_void);
        hipHostFree = "cuMemFreeHost"(address: *mut c_void);
        hipStreamCreateWithPriority = "cuStreamCreateWithPriority"(
            stream: *mut hipStream_t, flags: c_uint, priority: c_int
        );
        hipStreamDestroy = "cuStreamDestroy_v2"(stream: hipStream_t);
        hipStreamSynchronize = "cuStreamSynchronize"(stream: hipStream_t);
        hipStreamQuery = "cuStreamQuery"(stream: hipStream_t);
        hipStreamWaitEvent = "cuStreamWaitEvent"(stream: hipStream_t, event: hipEvent_t, flags: c_uint);
        hipEventDestroy = "cuEventDestroy_v2"(event: hipEvent_t);
        hipEventRecord = "cuEventRecord"(event: hipEvent_t, stream: hipStream_t);
        hipEventSynchronize = "cuEventSynchronize"(event: hipEvent_t);
        hipEventQuery = "cuEventQuery"(event: hipEvent_t);
        hipEventElapsedTime = "cuEventElapsedTime"(milliseconds: *mut f32, from: hipEvent_t, to: hipEvent_t);
        hipModuleLaunchKernel = "cuLaunchKernel"(
            function: hipFunction_t, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
            block_z: c_uint, shared: c_uint, stream: hipStream_t, arguments: *mut *mut c_void, extra: *mut *mut c_void
        );
    }
    optional {
        hipDeviceSynchronize = "cuCtxSynchronize"();
        hipHostRegister = "cuMemHostRegister_v2"(address: *mut c_void, size: usize, flags: c_uint);
        hipHostUnregister = "cuMemHostUnregister"(address: *mut c_void);
        hipStreamAddCallback = "cuStreamAddCallback"(
            stream: hipStream_t, callback: hipStreamCallback_t, argument: *mut c_void, flags: c_uint
        );
        hipStreamBeginCapture = "cuStreamBeginCapture_v2"(stream: hipStream_t, mode: c_int);
        hipStreamEndCapture = "cuStreamEndCapture"(stream: hipStream_t, graph: *mut hipGraph_t);
        hipGraphGetNodes = "cuGraphGetNodes"(graph: hipGraph_t, nodes: *mut hipGraphNode_t, count: *mut usize);
        hipGraphLaunch = "cuGraphLaunch"(exec: hipGraphExec_t, stream: hipStream_t);
        hipGraphExecDestroy = "cuGraphExecDestroy"(exec: hipGraphExec_t);
        hipGraphDestroy = "cuGraphDestroy"(graph: hipGraph_t);
        hipImportExternalMemory = "cuImportExternalMemory"(
            memory: *mut hipExternalMemory_t, description: *const c_void
        );
        hipExternalMemoryGetMappedBuffer = "cuExternalMemoryGetMappedBuffer"(
            address: *mut *mut c_void, memory: hipExternalMemory_t, description: *const c_void
        );
        hipDestroyExternalMemory = "cuDestroyExternalMemory"(memory: hipExternalMemory_t);
    }
}

#[repr(C)]
struct CUDA_MEMCPY2D {
    source: Side,
    destination: Side,
    width_in_bytes: usize,
    height: usize,
}

#[repr(C)]
struct Side {
    x_in_bytes: usize,
    y: usize,
    memory_type: c_int,
    host: *const c_void,
    device: *const c_void,
    array: *const c_void,
    pitch: usize,
}

impl Side {
    fn new(memory_type: c_int, address: *const c_void, pitch: usize) -> Self {
        let array = std::ptr::null();
        Self { x_in_bytes: 0, y: 0, memory_type, host: address, device: address, array, pitch }
    }
}

/// How pieces of memory are copied. Places are hints for memory that the driver does not know.
#[repr(C)]
struct CUmemcpyAttributes {
    source_order: c_int,
    source_place: [c_int; 2],
    destination_place: [c_int; 2],
    flags: c_uint,
}

const CU_MEMCPY_SRC_ACCESS_ORDER_STREAM: c_int = 1;
const CU_MEMORYTYPE_HOST: c_int = 1;
const CU_MEMORYTYPE_DEVICE: c_int = 2;
const CU_MEMORYTYPE_UNIFIED: c_int = 4;
const CU_POINTER_ATTRIBUTE_CONTEXT: c_int = 1;
const CU_POINTER_ATTRIBUTE_MEMORY_TYPE: c_int = 2;
const CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: c_int = 9;

/// HIP's number of an attribute and the driver's.
const ATTRIBUTES: [(c_int, c_int); 11] = [
    (hipDeviceAttributeIntegrated, 18),
    (hipDeviceAttributeComputeCapabilityMajor, 75),
    (hipDeviceAttributeMaxThreadsPerBlock, 1),
    (hipDeviceAttributeComputeCapabilityMinor, 76),
    (hipDeviceAttributeMultiprocessorCount, 16),
    (hipDeviceAttributePciBusId, 33),
    (hipDeviceAttributePciDeviceId, 34),
    (hipDeviceAttributePciDomainID, 50),
    (hipDeviceAttributeMaxSharedMemoryPerBlock, 8),
    (hipDeviceAttributeWarpSize, 10),
    (hipDeviceAttributeMemoryPoolsSupported, 115),
];

/// Converts the result of several calls to a status.
fn status(result: Result<(), HipError>) -> HipError {
    result.err().unwrap_or(HipError::SUCCESS)
}

struct Context(CUcontext);
// SAFETY: a context is a handle that any thread may use, and it is never destroyed.
unsafe impl Send for Context {}

/// The flags that HIP and CUDA share. HIP's further flags concern caches that NVIDIA keeps coherent.
const COMMON_FLAGS: c_uint = 7;

/// The functions that load a library, get its module in the current context, and unload it.
type Libraries = (
    unsafe extern "C" fn(
        *mut CUlibrary,
        *const c_void,
        *mut c_int,
        *mut *mut c_void,
        c_uint,
        *mut c_int,
        *mut *mut c_void,
        c_uint,
    ) -> HipError,
    unsafe extern "C" fn(*mut hipModule_t, CUlibrary) -> HipError,
    unsafe extern "C" fn(CUlibrary) -> HipError,
);

/// An open driver.
pub(crate) struct Cuda {
    driver: Driver,
    forwarded: Forwarded,
    /// The devices' primary contexts. Each is retained at its first use and then kept.
    contexts: Mutex<BTreeMap<c_int, Context>>,
}

impl Cuda {
    pub(crate) fn resolve(library: &Library) -> Result<Self, LoadError> {
        Ok(Self {
            driver: Driver::resolve(library)?,
            forwarded: Forwarded::resolve(library)?,
            contexts: Mutex::default(),
        })
    }

    /// Returns true if all functions of graphs exist.
    pub(crate) fn graphs(&self) -> bool {
        let Forwarded { hipStreamBeginCapture: begin, hipStreamEndCapture: end, .. } = self.forwarded;
        let Forwarded { hipGraphLaunch: launch, hipGraphExecDestroy: destroy, .. } = self.forwarded;
        let instantiate = self.driver.cuGraphInstantiateWithFlags.is_some();
        let all = begin.is_some() && end.is_some() && launch.is_some() && destroy.is_some();
        all && instantiate && self.forwarded.hipGraphDestroy.is_some()
    }

    /// Returns true if all functions for external memory exist.
    pub(crate) fn external_memory(&self) -> bool {
        self.forwarded.hipImportExternalMemory.is_some()
            && self.forwarded.hipExternalMemoryGetMappedBuffer.is_some()
            && self.forwarded.hipDestroyExternalMemory.is_some()
    }

    /// Returns the functions of libraries, which replace modules if the driver has them (CUDA 12): it compiles several
    /// libraries in parallel, but modules one after another.
    fn libraries(&self) -> Option<Libraries> {
        let driver = &self.driver;
        Some((driver.cuLibraryLoadData?, driver.cuLibraryGetModule?, driver.cuLibraryUnload?))
    }

    /// Returns the driver's handle of a device.
    fn device(&self, ordinal: c_int) -> Result<CUdevice, HipError> {
        let mut device = 0;
        // SAFETY: the pointer is valid for a write; the driver refuses numbers that it does not know.
        unsafe { (self.driver.cuDeviceGet)(&mut device, ordinal) }.ok()?;
        Ok(device)
    }

    /// Returns the device's primary context.
    fn context(&self, ordinal: c_int) -> Result<CUcontext, HipError> {
        let mut contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = contexts.get(&ordinal) {
            return Ok(context.0);
        }
        let mut context = std::ptr::null_mut();
        // SAFETY: the pointer is valid for a write, and the device is one that the driver has named.
        unsafe {
            (self.driver.cuInit)(0).ok()?;
            (self.driver.cuDevicePrimaryCtxRetain)(&mut context, self.device(ordinal)?).ok()?;
        }
        contexts.insert(ordinal, Context(context));
        Ok(context)
    }

    /// Returns the current context of the calling thread; null if there is none.
    pub(crate) fn current(&self) -> Result<CUcontext, HipError> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the address is valid for a write.
        unsafe { (self.driver.cuCtxGetCurrent)(&mut context) }.ok().map(|()| context)
    }

    /// Makes an earlier context current again. The driver has a stack of contexts for each thread. This sets its top; a
    /// null pointer removes the context that was set while the stack was empty. So the stack is as before.
    pub(crate) fn set_current(&self, context: CUcontext) -> Result<(), HipError> {
        // SAFETY: the driver refuses a context that was destroyed since.
        unsafe { (self.driver.cuCtxSetCurrent)(context) }.ok()
    }

    /// Makes the context of a stream the current one, as events can only be recorded in a stream of their own context.
    ///
    /// # Safety
    ///
    /// The stream must be live.
    pub(crate) unsafe fn enter_stream(&self, stream: hipStream_t) -> Result<(), HipError> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the caller's stream is live, the address is valid for a write, and a live stream's context is live.
        unsafe {
            (self.driver.cuStreamGetCtx)(stream, &mut context).ok()?;
            (self.driver.cuCtxSetCurrent)(context).ok()
        }
    }

    /// Copies pieces of memory in the order of a stream, and in any order among themselves.
    ///
    /// # Safety
    ///
    /// The same as for a copy of each piece.
    pub(crate) unsafe fn copy_pieces(&self, pieces: &[Piece], stream: hipStream_t) -> Result<(), HipError> {
        let copy = self.driver.cuMemcpyBatchAsync.ok_or(HipError::NOT_SUPPORTED)?;
        let to: Vec<_> = pieces.iter().map(|piece| piece.to as *mut c_void).collect();
        let from: Vec<_> = pieces.iter().map(|piece| piece.from as *const c_void).collect();
        let sizes: Vec<_> = pieces.iter().map(|piece| piece.size).collect();
        let attributes = CUmemcpyAttributes {
            source_order: CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
            source_place: [0; 2],
            destination_place: [0; 2],
            flags: 0,
        };
        let (to, from, sizes, count) = (to.as_ptr(), from.as_ptr(), sizes.as_ptr(), pieces.len());
        let mut failed = 0;
        // SAFETY: the arrays are that long; the first attributes, which are the only ones, are of all copies from the first on.
        // The caller has promised the rest.
        unsafe { copy(to, from, sizes, count, &attributes, &0, 1, &mut failed, stream) }.ok()
    }

    /// Waits for all work in the context that owns an address. That context is current afterwards.
    pub(crate) fn synchronize_owner(&self, address: *const c_void) -> Result<(), HipError> {
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: the driver looks the address up and reads nothing there; it writes a context, and those with
        // memory are live.
        unsafe {
            (self.driver.cuPointerGetAttribute)(
                (&raw mut context).cast(),
                CU_POINTER_ATTRIBUTE_CONTEXT,
                address,
            )
            .ok()?;
            (self.driver.cuCtxSetCurrent)(context).ok()?;
            (self.driver.cuCtxSynchronize)().ok()
        }
    }
}

/// HIP's functions without an equivalent function of the driver.
#[allow(clippy::missing_safety_doc, reason = "said above for all of them")]
impl Cuda {
    pub(crate) unsafe fn hipGetDeviceCount(&self, count: *mut c_int) -> HipError {
        // SAFETY: the caller's pointer is valid for a write; initialising takes flags only.
        let count = || unsafe {
            (self.driver.cuInit)(0).ok()?;
            (self.driver.cuDeviceGetCount)(count).ok()
        };
        status(count())
    }

    pub(crate) unsafe fn hipSetDevice(&self, ordinal: c_int) -> HipError {
        // SAFETY: contexts that are retained here stay live.
        status(
            self.context(ordinal).and_then(|context| unsafe { (self.driver.cuCtxSetCurrent)(context) }.ok()),
        )
    }

    /// Finds the device of the current context, which may be that of other code.
    pub(crate) unsafe fn hipGetDevice(&self, ordinal: *mut c_int) -> HipError {
        let (mut device, mut count) = (0, 0);
        // SAFETY: the addresses are valid for writes.
        let found = unsafe {
            (self.driver.cuCtxGetDevice)(&mut device)
                .ok()
                .and_then(|()| (self.driver.cuDeviceGetCount)(&mut count).ok())
        };
        let number = || (0..count).find(|number| self.device(*number) == Ok(device));
        let number = found.and_then(|()| number().ok_or(HipError::INVALID_DEVICE));
        // SAFETY: the caller's pointer is valid for a write.
        status(number.map(|number| unsafe { ordinal.write(number) }))
    }

    pub(crate) unsafe fn hipDeviceGetAttribute(
        &self,
        value: *mut c_int,
        attribute: c_int,
        ordinal: c_int,
    ) -> HipError {
        let Some((_, number)) = ATTRIBUTES.iter().find(|(hip, _)| *hip == attribute) else {
            return HipError::INVALID_VALUE;
        };
        // SAFETY: the caller's pointer is valid for a write, and the device is one that the driver has named.
        let get = |device| unsafe { (self.driver.cuDeviceGetAttribute)(value, *number, device) }.ok();
        status(self.device(ordinal).and_then(get))
    }

    pub(crate) unsafe fn hipDeviceGetName(&self, name: *mut c_char, size: c_int, ordinal: c_int) -> HipError {
        // SAFETY: the caller has this many bytes for the name, and the device is one that the driver has named.
        let get = |device| unsafe { (self.driver.cuDeviceGetName)(name, size, device) }.ok();
        status(self.device(ordinal).and_then(get))
    }

    pub(crate) unsafe fn hipDeviceGetPCIBusId(
        &self,
        id: *mut c_char,
        size: c_int,
        ordinal: c_int,
    ) -> HipError {
        // SAFETY: the caller has this many bytes for the text, and the device is one that the driver has named.
        let get = |device| unsafe { (self.driver.cuDeviceGetPCIBusId)(id, size, device) }.ok();
        status(self.device(ordinal).and_then(get))
    }

    pub(crate) unsafe fn hipHostMalloc(
        &self,
        address: *mut *mut c_void,
        size: usize,
        flags: c_uint,
    ) -> HipError {
        // SAFETY: the caller's pointer is valid for a write.
        unsafe { (self.driver.cuMemHostAlloc)(address, size, flags & COMMON_FLAGS) }
    }

    pub(crate) unsafe fn hipEventCreateWithFlags(&self, event: *mut hipEvent_t, flags: c_uint) -> HipError {
        // SAFETY: the caller's pointer is valid for a write.
        unsafe { (self.driver.cuEventCreate)(event, flags & COMMON_FLAGS) }
    }

    /// Ignores `_kind`, as the driver finds the kinds of memory from the addresses.
    pub(crate) unsafe fn hipMemcpyAsync(
        &self,
        to: *mut c_void,
        from: *const c_void,
        size: usize,
        _kind: c_int,
        stream: hipStream_t,
    ) -> HipError {
        // SAFETY: the caller leaves both ranges alone until the live stream has got there.
        unsafe { (self.driver.cuMemcpyAsync)(to, from, size, stream) }
    }

    #[allow(clippy::too_many_arguments, reason = "that many has HIP")]
    pub(crate) unsafe fn hipMemcpy2DAsync(
        &self,
        to: *mut c_void,
        to_pitch: usize,
        from: *const c_void,
        from_pitch: usize,
        width_in_bytes: usize,
        height: usize,
        kind: c_int,
        stream: hipStream_t,
    ) -> HipError {
        let (source, destination) = match kind {
            hipMemcpyHostToHost => (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST),
            hipMemcpyHostToDevice => (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE),
            hipMemcpyDeviceToHost => (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST),
            hipMemcpyDeviceToDevice => (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE),
            hipMemcpyDefault => (CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_UNIFIED),
            _ => return HipError::INVALID_MEMCPY_DIRECTION,
        };
        let copy = CUDA_MEMCPY2D {
            source: Side::new(source, from, from_pitch),
            destination: Side::new(destination, to, to_pitch),
            width_in_bytes,
            height,
        };
        // SAFETY: the caller leaves both rectangles alone until the live stream has got there; the description is read
        // before the call returns.
        unsafe { (self.driver.cuMemcpy2DAsync_v2)(&copy, stream) }
    }

    pub(crate) unsafe fn hipMemcpyPeerAsync(
        &self,
        to: *mut c_void,
        to_device: c_int,
        from: *const c_void,
        from_device: c_int,
        size: usize,
        stream: hipStream_t,
    ) -> HipError {
        let contexts = self.context(to_device).and_then(|to| Ok((to, self.context(from_device)?)));
        status(contexts.and_then(|(to_context, from_context)| {
            // SAFETY: the caller leaves both ranges alone until the live stream has got there; contexts that are retained
            // here stay live.
            unsafe { (self.driver.cuMemcpyPeerAsync)(to, to_context, from, from_context, size, stream) }.ok()
        }))
    }

    /// Uses the lowest byte, as HIP does.
    pub(crate) unsafe fn hipMemsetAsync(
        &self,
        address: *mut c_void,
        value: c_int,
        size: usize,
        stream: hipStream_t,
    ) -> HipError {
        // SAFETY: the caller leaves the range alone until the live stream has got there.
        unsafe { (self.driver.cuMemsetD8Async)(address, value as u8, size, stream) }
    }

    pub(crate) unsafe fn hipModuleLoadData(
        &self,
        module: *mut hipModule_t,
        image: *const c_void,
    ) -> HipError {
        let Some((load, get_module, unload)) = self.libraries() else {
            // SAFETY: the caller's pointer is valid for a write, and the image is whole.
            return unsafe { (self.driver.cuModuleLoadData)(module, image) };
        };
        let null: *mut c_void = std::ptr::null_mut();
        let (mut loaded, mut compiled) = (null, null);
        // SAFETY: the caller's pointer is valid for a write, and the image is complete and stays in place. Without
        // options, the driver reads no other arguments. A library that could not be compiled is owned here.
        let mut load = || unsafe {
            load(&mut loaded, image, null.cast(), null.cast(), 0, null.cast(), null.cast(), 0).ok()?;
            // Compiles now instead of at the first launch.
            if let Err(error) = get_module(&mut compiled, loaded).ok() {
                let _ = unload(loaded);
                return Err(error);
            }
            module.write(loaded);
            Ok(())
        };
        status(load())
    }

    pub(crate) unsafe fn hipModuleUnload(&self, module: hipModule_t) -> HipError {
        match self.libraries() {
            // SAFETY: the caller's handle from `hipModuleLoadData` is a library that is no longer used.
            Some((_, _, unload)) => unsafe { unload(module) },
            // SAFETY: the caller's handle from `hipModuleLoadData` is a module that is no longer used.
            None => unsafe { (self.driver.cuModuleUnload)(module) },
        }
    }

    pub(crate) unsafe fn hipModuleGetFunction(
        &self,
        function: *mut hipFunction_t,
        module: hipModule_t,
        name: *const c_char,
    ) -> HipError {
        let mut inner = module;
        if let Some((_, get_module, _)) = self.libraries() {
            // SAFETY: the caller's handle from `hipModuleLoadData` is a live library.
            if let Err(error) = unsafe { get_module(&mut inner, module) }.ok() {
                return error;
            }
        }
        // SAFETY: the caller's pointer is valid for a write, the name ends with a zero, and the module is live.
        unsafe { (self.driver.cuModuleGetFunction)(function, inner, name) }
    }

    pub(crate) unsafe fn hipGraphInstantiate(
        &self,
        exec: *mut hipGraphExec_t,
        graph: hipGraph_t,
        _error_node: *mut *mut c_void,
        _log: *mut c_char,
        _log_size: usize,
    ) -> HipError {
        match self.driver.cuGraphInstantiateWithFlags {
            // SAFETY: the caller's pointer is valid for a write, and the graph is live.
            Some(instantiate) => unsafe { instantiate(exec, graph, 0) },
            None => HipError::NOT_SUPPORTED,
        }
    }

    pub(crate) unsafe fn hipPointerGetAttributes(
        &self,
        attributes: *mut c_void,
        address: *const c_void,
    ) -> HipError {
        let ask = |number| {
            let mut value = MaybeUninit::<c_int>::zeroed();
            // SAFETY: both attributes are numbers of 32 bits; the driver looks the address up and reads nothing there.
            // Zeroed memory is a number even if nothing is written.
            unsafe {
                (self.driver.cuPointerGetAttribute)(value.as_mut_ptr().cast(), number, address).ok()?;
                Ok(value.assume_init())
            }
        };
        // The driver numbers host and device memory like ROCm 6.
        let both = ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            .and_then(|kind| Ok((kind, ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)?)));
        status(both.map(|(kind, device)| {
            // SAFETY: the caller's pointer is valid for HIP's structure, which begins with these two.
            unsafe { attributes.cast::<[c_int; 2]>().write([kind, device]) }
        }))
    }

    /// Reports success, as the driver stores no error per thread.
    pub(crate) unsafe fn hipGetLastError(&self) -> HipError {
        HipError::SUCCESS
    }

    /// Fails, as the driver has the properties for [`arch_name`](crate::Api::arch_name) as attributes.
    pub(crate) unsafe fn hipGetDevicePropertiesR0600(&self, _: *mut c_void, _: c_int) -> HipError {
        HipError::NOT_SUPPORTED
    }

    /// Fails, as the driver has the properties for [`arch_name`](crate::Api::arch_name) as attributes.
    pub(crate) unsafe fn hipGetDeviceProperties(&self, _: *mut c_void, _: c_int) -> HipError {
        HipError::NOT_SUPPORTED
    }
}
