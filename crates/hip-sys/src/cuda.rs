// SPDX-License-Identifier: MPL-2.0

//! The same table on top of NVIDIA's CUDA driver.
//!
//! Error numbers, flags and most signatures agree, so most fields are the driver's own functions. The
//! others are small functions here. Handles and device addresses are pointers, as in HIP; the driver's
//! `CUdeviceptr` is an integer of the same size and is passed in the same way.

use std::collections::BTreeMap;
use std::ffi::{OsString, c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::api::table;
use crate::library::{Library, explicit};
use crate::structs::PointerAttributes;
use crate::*;

type CUdevice = c_int;
type CUcontext = *mut c_void;
type CUlibrary = *mut c_void;

table! {
    /// The driver's functions that do not fit HIP's signatures.
    struct Driver {
        fields {}
        required {
            fn cuInit(c_uint);
            fn cuDeviceGetCount(*mut c_int);
            fn cuDeviceGet(*mut CUdevice, c_int);
            fn cuDeviceGetAttribute(*mut c_int, c_int, CUdevice);
            fn cuDeviceGetName(*mut c_char, c_int, CUdevice);
            fn cuDeviceGetPCIBusId(*mut c_char, c_int, CUdevice);
            fn cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
            fn cuCtxSetCurrent(CUcontext);
            fn cuCtxSynchronize();
            fn cuStreamGetCtx(hipStream_t, *mut CUcontext);
            fn cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
            fn cuMemcpyAsync(*mut c_void, *const c_void, usize, hipStream_t);
            fn cuMemcpy2DAsync_v2(*const CUDA_MEMCPY2D, hipStream_t);
            fn cuMemcpyPeerAsync(*mut c_void, CUcontext, *const c_void, CUcontext, usize, hipStream_t);
            fn cuMemsetD8Async(*mut c_void, u8, usize, hipStream_t);
            fn cuEventCreate(*mut hipEvent_t, c_uint);
            fn cuPointerGetAttribute(*mut c_void, c_int, *const c_void);
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
        }
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

/// Opens NVIDIA's CUDA driver: `$HIPVMAF_CUDA_LIBRARY` and nothing else if that is set, else
/// `libcuda.so.1`. One driver serves a process: the functions go to the one that was opened first.
pub fn load_nvidia() -> Result<Api, LoadError> {
    nvidia_from(&[explicit("HIPVMAF_CUDA_LIBRARY").unwrap_or_else(|| "libcuda.so.1".into())])
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

pub(crate) fn nvidia_from(candidates: &[OsString]) -> Result<Api, LoadError> {
    let library = Library::open(candidates)?;
    // SAFETY: the types are those of the driver's documentation; its functions keep their types, as a
    // change of type comes with a new name (_v2).
    unsafe {
        let driver = Driver::resolve(&library)?;
        let instantiate = driver.cuGraphInstantiateWithFlags.is_some();
        let libraries = driver.libraries().is_some();
        let api = Api {
            library: library.name.clone(),
            vendor: Vendor::Nvidia,

            hipInit: driver.cuInit,
            hipDriverGetVersion: library.required("cuDriverGetVersion")?,
            hipRuntimeGetVersion: library.required("cuDriverGetVersion")?,
            hipGetDeviceCount: get_device_count,
            hipSetDevice: set_device,
            hipDeviceGetAttribute: device_get_attribute,
            hipDeviceGetName: device_get_name,
            hipDeviceGetPCIBusId: device_get_pci_bus_id,
            hipMemGetInfo: library.required("cuMemGetInfo_v2")?,

            hipMalloc: library.required("cuMemAlloc_v2")?,
            hipFree: library.required("cuMemFree_v2")?,
            hipHostMalloc: host_malloc,
            hipHostFree: library.required("cuMemFreeHost")?,
            hipMemcpyAsync: memcpy_async,
            hipMemcpy2DAsync: memcpy_2d_async,
            hipMemsetAsync: memset_async,

            hipStreamCreateWithFlags: library.required("cuStreamCreate")?,
            hipStreamDestroy: library.required("cuStreamDestroy_v2")?,
            hipStreamSynchronize: library.required("cuStreamSynchronize")?,
            hipStreamQuery: library.required("cuStreamQuery")?,
            hipStreamWaitEvent: library.required("cuStreamWaitEvent")?,
            hipEventCreateWithFlags: event_create_with_flags,
            hipEventDestroy: library.required("cuEventDestroy_v2")?,
            hipEventRecord: library.required("cuEventRecord")?,
            hipEventSynchronize: library.required("cuEventSynchronize")?,
            hipEventQuery: library.required("cuEventQuery")?,
            hipEventElapsedTime: library.required("cuEventElapsedTime")?,

            hipModuleLoadData: if libraries {
                library_load_data
            } else {
                library.required("cuModuleLoadData")?
            },
            hipModuleUnload: if libraries { library_unload } else { library.required("cuModuleUnload")? },
            hipModuleGetFunction: if libraries { library_get_function } else { driver.cuModuleGetFunction },
            hipModuleLaunchKernel: library.required("cuLaunchKernel")?,
            hipGetLastError: get_last_error,

            hipGetDevicePropertiesR0600: None,
            hipGetDeviceProperties: None,
            hipDeviceSynchronize: library.optional("cuCtxSynchronize"),
            hipMemcpyPeerAsync: Some(memcpy_peer_async),
            hipHostRegister: library.optional("cuMemHostRegister_v2"),
            hipHostUnregister: library.optional("cuMemHostUnregister"),
            hipPointerGetAttributes: Some(pointer_get_attributes),
            hipStreamAddCallback: library.optional("cuStreamAddCallback"),

            hipStreamBeginCapture: library.optional("cuStreamBeginCapture_v2"),
            hipStreamEndCapture: library.optional("cuStreamEndCapture"),
            hipGraphInstantiate: if instantiate { Some(graph_instantiate) } else { None },
            hipGraphLaunch: library.optional("cuGraphLaunch"),
            hipGraphExecDestroy: library.optional("cuGraphExecDestroy"),
            hipGraphDestroy: library.optional("cuGraphDestroy"),

            hipImportExternalMemory: library.optional("cuImportExternalMemory"),
            hipExternalMemoryGetMappedBuffer: library.optional("cuExternalMemoryGetMappedBuffer"),
            hipDestroyExternalMemory: library.optional("cuDestroyExternalMemory"),
        };
        DRIVER.get_or_init(|| driver);
        Ok(api)
    }
}

fn driver() -> Result<&'static Driver, HipError> {
    DRIVER.get().ok_or(HipError::NOT_INITIALIZED)
}

/// The status of a function that stops at the first error.
fn status(result: Result<(), HipError>) -> HipError {
    result.err().unwrap_or(HipError::SUCCESS)
}

/// The driver's handle of a device.
fn device(driver: &Driver, ordinal: c_int) -> Result<CUdevice, HipError> {
    let mut device = 0;
    // SAFETY: the pointer is valid for a write.
    unsafe { (driver.cuDeviceGet)(&mut device, ordinal) }.ok()?;
    Ok(device)
}

struct Context(CUcontext);
// SAFETY: a context is a handle that any thread may use.
unsafe impl Send for Context {}

/// The device's primary context, retained when it is first asked for and then kept.
fn context(driver: &Driver, ordinal: c_int) -> Result<CUcontext, HipError> {
    static RETAINED: Mutex<BTreeMap<c_int, Context>> = Mutex::new(BTreeMap::new());
    let mut retained = RETAINED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(context) = retained.get(&ordinal) {
        return Ok(context.0);
    }
    let mut context = std::ptr::null_mut();
    // SAFETY: the pointer is valid for a write.
    unsafe {
        (driver.cuInit)(0).ok()?;
        (driver.cuDevicePrimaryCtxRetain)(&mut context, device(driver, ordinal)?).ok()?;
    }
    retained.insert(ordinal, Context(context));
    Ok(context)
}

/// What loads and unloads a library, and gives its module in the current context.
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

impl Driver {
    /// Libraries stand in for modules where the driver has them (CUDA 12): it compiles several of them at a time,
    /// but modules one after another.
    fn libraries(&self) -> Option<Libraries> {
        Some((self.cuLibraryLoadData?, self.cuLibraryGetModule?, self.cuLibraryUnload?))
    }
}

/// Makes the context of a stream the current one, as events can only be recorded in a stream of their own context.
pub(crate) fn enter_stream(stream: hipStream_t) -> Result<(), HipError> {
    let driver = driver()?;
    let mut context = std::ptr::null_mut();
    // SAFETY: the caller's stream is live, and the address valid for a write.
    unsafe {
        (driver.cuStreamGetCtx)(stream, &mut context).ok()?;
        (driver.cuCtxSetCurrent)(context).ok()
    }
}

/// Waits for everything in the context that an address belongs to, and leaves that context current.
pub(crate) fn synchronize_owner(address: *const c_void) -> Result<(), HipError> {
    let driver = driver()?;
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: the driver looks the address up and reads nothing there; the result is a context.
    unsafe {
        (driver.cuPointerGetAttribute)((&raw mut context).cast(), CU_POINTER_ATTRIBUTE_CONTEXT, address)
            .ok()?;
        (driver.cuCtxSetCurrent)(context).ok()?;
        (driver.cuCtxSynchronize)().ok()
    }
}

// The functions of the table. SAFETY, for all of them: pointers are passed on, and the caller of the
// table promises what HIP asks of them, which is what the driver asks.

unsafe extern "C" fn get_device_count(count: *mut c_int) -> HipError {
    status((|| {
        let driver = driver()?;
        unsafe {
            (driver.cuInit)(0).ok()?;
            (driver.cuDeviceGetCount)(count).ok()
        }
    })())
}

unsafe extern "C" fn set_device(ordinal: c_int) -> HipError {
    status((|| {
        let driver = driver()?;
        let context = context(driver, ordinal)?;
        unsafe { (driver.cuCtxSetCurrent)(context) }.ok()
    })())
}

unsafe extern "C" fn device_get_attribute(value: *mut c_int, attribute: c_int, ordinal: c_int) -> HipError {
    status((|| {
        let driver = driver()?;
        let (_, number) =
            ATTRIBUTES.iter().find(|(hip, _)| *hip == attribute).ok_or(HipError::INVALID_VALUE)?;
        unsafe { (driver.cuDeviceGetAttribute)(value, *number, device(driver, ordinal)?) }.ok()
    })())
}

unsafe extern "C" fn device_get_name(name: *mut c_char, size: c_int, ordinal: c_int) -> HipError {
    status((|| {
        let driver = driver()?;
        unsafe { (driver.cuDeviceGetName)(name, size, device(driver, ordinal)?) }.ok()
    })())
}

unsafe extern "C" fn device_get_pci_bus_id(id: *mut c_char, size: c_int, ordinal: c_int) -> HipError {
    status((|| {
        let driver = driver()?;
        unsafe { (driver.cuDeviceGetPCIBusId)(id, size, device(driver, ordinal)?) }.ok()
    })())
}

/// The flags that both know; HIP's further ones are about caches that NVIDIA keeps coherent.
const COMMON_FLAGS: c_uint = 7;

unsafe extern "C" fn host_malloc(address: *mut *mut c_void, size: usize, flags: c_uint) -> HipError {
    status(
        driver()
            .and_then(|driver| unsafe { (driver.cuMemHostAlloc)(address, size, flags & COMMON_FLAGS).ok() }),
    )
}

unsafe extern "C" fn event_create_with_flags(event: *mut hipEvent_t, flags: c_uint) -> HipError {
    status(driver().and_then(|driver| unsafe { (driver.cuEventCreate)(event, flags & COMMON_FLAGS).ok() }))
}

unsafe extern "C" fn memcpy_async(
    destination: *mut c_void,
    source: *const c_void,
    size: usize,
    _kind: c_int,
    stream: hipStream_t,
) -> HipError {
    // The driver sees from the addresses where they are.
    status(
        driver().and_then(|driver| unsafe { (driver.cuMemcpyAsync)(destination, source, size, stream).ok() }),
    )
}

unsafe extern "C" fn memcpy_2d_async(
    destination: *mut c_void,
    destination_pitch: usize,
    source: *const c_void,
    source_pitch: usize,
    width_in_bytes: usize,
    height: usize,
    kind: c_int,
    stream: hipStream_t,
) -> HipError {
    let (from, to) = match kind {
        hipMemcpyHostToHost => (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST),
        hipMemcpyHostToDevice => (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE),
        hipMemcpyDeviceToHost => (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST),
        hipMemcpyDeviceToDevice => (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE),
        hipMemcpyDefault => (CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_UNIFIED),
        _ => return HipError::INVALID_MEMCPY_DIRECTION,
    };
    let copy = CUDA_MEMCPY2D {
        source: Side::new(from, source, source_pitch),
        destination: Side::new(to, destination, destination_pitch),
        width_in_bytes,
        height,
    };
    status(driver().and_then(|driver| unsafe { (driver.cuMemcpy2DAsync_v2)(&copy, stream).ok() }))
}

unsafe extern "C" fn memcpy_peer_async(
    destination: *mut c_void,
    destination_device: c_int,
    source: *const c_void,
    source_device: c_int,
    size: usize,
    stream: hipStream_t,
) -> HipError {
    status((|| {
        let driver = driver()?;
        let (to, from) = (context(driver, destination_device)?, context(driver, source_device)?);
        unsafe { (driver.cuMemcpyPeerAsync)(destination, to, source, from, size, stream) }.ok()
    })())
}

unsafe extern "C" fn memset_async(
    address: *mut c_void,
    value: c_int,
    size: usize,
    stream: hipStream_t,
) -> HipError {
    // HIP takes the lowest byte too.
    status(
        driver()
            .and_then(|driver| unsafe { (driver.cuMemsetD8Async)(address, value as u8, size, stream).ok() }),
    )
}

unsafe extern "C" fn library_load_data(library: *mut hipModule_t, image: *const c_void) -> HipError {
    status((|| {
        let (load, get_module, unload) = driver()?.libraries().ok_or(HipError::NOT_SUPPORTED)?;
        let null: *mut c_void = std::ptr::null_mut();
        let (mut loaded, mut module) = (null, null);
        unsafe {
            load(&mut loaded, image, null.cast(), null.cast(), 0, null.cast(), null.cast(), 0).ok()?;
            // Compiles now, not when a kernel is launched.
            if let Err(error) = get_module(&mut module, loaded).ok() {
                let _ = unload(loaded);
                return Err(error);
            }
            library.write(loaded);
        }
        Ok(())
    })())
}

unsafe extern "C" fn library_get_function(
    function: *mut hipFunction_t,
    library: hipModule_t,
    name: *const c_char,
) -> HipError {
    status((|| {
        let driver = driver()?;
        let (_, get_module, _) = driver.libraries().ok_or(HipError::NOT_SUPPORTED)?;
        let mut module = std::ptr::null_mut();
        unsafe {
            get_module(&mut module, library).ok()?;
            (driver.cuModuleGetFunction)(function, module, name).ok()
        }
    })())
}

unsafe extern "C" fn library_unload(library: hipModule_t) -> HipError {
    status((|| {
        let (_, _, unload) = driver()?.libraries().ok_or(HipError::NOT_SUPPORTED)?;
        unsafe { unload(library) }.ok()
    })())
}

unsafe extern "C" fn graph_instantiate(
    exec: *mut hipGraphExec_t,
    graph: hipGraph_t,
    _error_node: *mut *mut c_void,
    _log: *mut c_char,
    _log_size: usize,
) -> HipError {
    status((|| {
        let instantiate = driver()?.cuGraphInstantiateWithFlags.ok_or(HipError::NOT_SUPPORTED)?;
        unsafe { instantiate(exec, graph, 0) }.ok()
    })())
}

unsafe extern "C" fn pointer_get_attributes(attributes: *mut c_void, address: *const c_void) -> HipError {
    status((|| {
        let driver = driver()?;
        let ask = |number| {
            let mut value = MaybeUninit::<c_int>::zeroed();
            unsafe {
                (driver.cuPointerGetAttribute)(value.as_mut_ptr().cast(), number, address).ok()?;
                Ok(value.assume_init())
            }
        };
        // The driver numbers host and device memory like ROCm 6.
        let kind = ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE)?;
        let device = ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)?;
        unsafe { attributes.cast::<PointerAttributes>().write(PointerAttributes::new(kind, device)) };
        Ok(())
    })())
}

/// The driver keeps no error per thread.
unsafe extern "C" fn get_last_error() -> HipError {
    HipError::SUCCESS
}
