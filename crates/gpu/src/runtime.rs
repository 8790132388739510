// SPDX-License-Identifier: MPL-2.0

//! The GPUs of the machine.
//!
//! They are detected at the first request, never before. A runtime that has devices is kept for the rest of the
//! process. A runtime that is missing or has none is tried again at each request, as drivers may be loaded and devices
//! may appear while a service runs.

use std::cmp::Reverse;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Once, OnceLock};

use hip_sys::{
    Api, HipError, LoadError, Vendor, hipDeviceAttributeIntegrated, hipDeviceAttributeMultiprocessorCount,
};
use nvml_wrapper::Nvml;
use once_cell::sync::OnceCell;

use crate::context_guard::{ContextGuard, Entered};
use crate::driver_lock::DriverLock;
use crate::error::Error;

/// A GPU that a runtime reports.
pub struct DeviceInfo {
    library: &'static Library,
    /// The runtime's number, after `HIP_VISIBLE_DEVICES` and similar variables.
    pub ordinal: i32,
    /// The manufacturer.
    pub vendor: Vendor,
    /// Name of the GPU as marketed.
    pub name: String,
    /// GPU target: `gfx90a:sramecc+:xnack-`, or `sm_90` on NVIDIA.
    pub arch: String,
    /// PCI address: `0000:03:00.0`.
    pub pci: String,
    /// The GPU is part of the processor.
    pub integrated: bool,
    /// Compute units, or multiprocessors on NVIDIA; 0 if the runtime does not report them.
    pub compute_units: u32,
    /// Number of sessions of this process on it ([`Ownership`](crate::Ownership)).
    pub(crate) sessions: AtomicUsize,
    /// The GPU was lost, which is permanent.
    pub(crate) lost: AtomicBool,
    pub(crate) driver_lock: DriverLock,
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.name, self.arch, self.pci)
    }
}

impl DeviceInfo {
    /// Returns true if it can import memory behind file descriptors ([`External`](crate::External)). NVIDIA's driver
    /// imports only its own memory, not the kernel's DMA buffers.
    pub fn imports_external_memory(&self) -> bool {
        self.vendor == Vendor::Amd && self.library.api.external_memory()
    }

    /// Returns true if an address is in its memory.
    pub fn owns(&self, address: u64) -> bool {
        self.library.api.device_of(address as *const c_void) == Ok(Some(self.ordinal))
    }

    /// Returns the library, and the versions of driver and runtime.
    pub fn runtime(&self) -> String {
        let (mut driver, mut runtime) = (0, 0);
        // SAFETY: both addresses are valid for writes. Where a call fails there is a zero.
        unsafe {
            let _ = self.library.api.hipDriverGetVersion(&mut driver);
            let _ = self.library.api.hipRuntimeGetVersion(&mut runtime);
        }
        format!("{} {driver} {runtime}", self.library.api.library())
    }

    /// Returns the selection of exactly this GPU.
    pub fn selection(&self) -> Selection {
        Selection { vendor: Some(self.vendor), ordinal: Some(self.ordinal) }
    }

    /// Returns the free bytes of its memory, considering all processes; `None` if they are unknown. NVIDIA's driver
    /// would create a context of some hundred megabytes on the GPU for this query, so its monitoring library is used.
    /// AMD's runtime initialises itself.
    pub(crate) fn free_memory(&self) -> Option<usize> {
        static NVML: OnceLock<Option<Nvml>> = OnceLock::new();
        if self.vendor == Vendor::Nvidia {
            let open = || Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init().ok();
            let device = NVML.get_or_init(open).as_ref()?.device_by_pci_bus_id(self.pci.as_str()).ok()?;
            return device.memory_info().ok()?.free.try_into().ok();
        }
        let api = ContextGuard::new().enter(self.api().ok()?);
        let (mut free, mut total) = (0, 0);
        // SAFETY: takes a number, which the runtime gave; both addresses are valid for writes.
        let status = unsafe {
            api.hipSetDevice(self.ordinal).ok().and_then(|()| api.hipMemGetInfo(&mut free, &mut total).ok())
        };
        status.ok().map(|()| free)
    }

    /// Returns the functions for destroying and freeing, with the driver lock taken and this device current for the
    /// calling thread. They also work on a lost device. `None` in a child process, which has nothing to free.
    pub(crate) fn release(&'static self) -> Option<Entered> {
        let api = ContextGuard::new().enter(self.api().ok()?);
        // SAFETY: takes a number, which the runtime gave. On a lost device there is nothing to do about the error.
        let _ = unsafe { api.hipSetDevice(self.ordinal) };
        Some(api.holding(self.driver_lock.exclusive()))
    }

    /// Returns the functions of its runtime.
    pub(crate) fn api(&self) -> Result<&'static Api, Error> {
        self.library.check_process()?;
        Ok(&self.library.api)
    }
}

/// Selects GPUs; by default all of them. [`Device::open`](crate::Device::open) and
/// [`Ownership::new`](crate::Ownership::new) choose one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Selects only this vendor.
    pub vendor: Option<Vendor>,
    /// The runtime's number of the device.
    pub ordinal: Option<i32>,
}

impl Selection {
    /// Returns true if a GPU is selected.
    pub fn takes(&self, info: &DeviceInfo) -> bool {
        self.vendor.is_none_or(|vendor| vendor == info.vendor)
            && self.ordinal.is_none_or(|ordinal| ordinal == info.ordinal)
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(vendor) = self.vendor {
            write!(f, "{vendor} ")?;
        }
        f.write_str("GPU")?;
        self.ordinal.map_or(Ok(()), |ordinal| write!(f, " number {ordinal}"))
    }
}

/// An open library of a vendor.
struct Library {
    api: Api,
    /// The process that opened it.
    process: u32,
}

impl Library {
    /// Fails in a child process, where a runtime that the parent has opened cannot be used.
    fn check_process(&self) -> Result<(), Error> {
        if self.process == std::process::id() { Ok(()) } else { Err(Error::Forked) }
    }
}

/// The usable devices of a runtime, and the problems of others.
struct Found {
    devices: Vec<DeviceInfo>,
    problems: Vec<String>,
}

/// The state of a vendor's runtime. Library and devices are kept once they are found, as a library stays open as long
/// as the process.
struct Runtime {
    vendor: Vendor,
    library: OnceCell<Library>,
    found: OnceCell<Found>,
}

static RUNTIMES: [Runtime; 2] = [Runtime::new(Vendor::Amd), Runtime::new(Vendor::Nvidia)];

impl Runtime {
    const fn new(vendor: Vendor) -> Self {
        Self { vendor, library: OnceCell::new(), found: OnceCell::new() }
    }

    /// Returns the devices of this runtime, at least one.
    fn found(&'static self) -> Result<&'static Found, Error> {
        let problem = Error::NoDevice;
        self.found.get_or_try_init(|| {
            let open = || Ok(Library { api: load(self.vendor)?, process: std::process::id() });
            let library =
                self.library.get_or_try_init(open).map_err(|err: LoadError| problem(err.to_string()))?;
            library.check_process()?;
            find(library, self.vendor).map_err(problem)
        })
    }

    /// Returns the devices that were found earlier.
    fn known(&'static self) -> &'static [DeviceInfo] {
        self.found.get().map_or(&[], |found| found.devices.as_slice())
    }
}

/// Opens the library that `$HIPVMAF_HIP_LIBRARY` or `$HIPVMAF_CUDA_LIBRARY` names, else the vendor's usual one.
fn load(vendor: Vendor) -> Result<Api, LoadError> {
    let variable = match vendor {
        Vendor::Amd => "HIPVMAF_HIP_LIBRARY",
        Vendor::Nvidia => "HIPVMAF_CUDA_LIBRARY",
    };
    match std::env::var_os(variable).filter(|path| !path.is_empty()) {
        Some(path) => Api::load_from(vendor, path),
        None => Api::load(vendor),
    }
}

/// Finds the devices of a runtime. A device that cannot be queried does not hide the others.
fn find(library: &'static Library, vendor: Vendor) -> Result<Found, String> {
    let api = &library.api;
    let problem = |call: &str, error: HipError| format!("{}: {call} returned {error}", api.library());
    let mut count: c_int = 0;
    // SAFETY: the address is valid for a write.
    match unsafe { api.hipInit(0).ok().and_then(|()| api.hipGetDeviceCount(&mut count).ok()) } {
        Ok(()) if count > 0 => {}
        Ok(()) | Err(HipError::NO_DEVICE | HipError::INVALID_DEVICE) => {
            return Err(format!("{} finds no device", api.library()));
        }
        Err(error) => return Err(problem("hipGetDeviceCount", error)),
    }
    let text = |call: &str, get: &dyn Fn(*mut c_char, c_int) -> HipError| {
        let mut text = [0; 256];
        // The last byte stays zero.
        get(text.as_mut_ptr(), text.len() as c_int - 1).ok().map_err(|error| problem(call, error))?;
        // SAFETY: ends with a zero at the latest in the last byte.
        Ok::<_, String>(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    };
    let number = |attribute, ordinal| {
        let mut value = 0;
        // SAFETY: the address is valid for a write. Where the call fails there is a zero.
        let _ = unsafe { api.hipDeviceGetAttribute(&mut value, attribute, ordinal) };
        value
    };
    let (mut devices, mut problems) = (vec![], vec![]);
    for ordinal in 0..count {
        let info = || {
            Ok::<_, String>(DeviceInfo {
                library,
                ordinal,
                vendor,
                // SAFETY: the text is valid for writes of the size given.
                name: text("hipDeviceGetName", &|text, size| unsafe {
                    api.hipDeviceGetName(text, size, ordinal)
                })?,
                arch: api.arch_name(ordinal).map_err(|error| problem("reading the GPU's name", error))?,
                // SAFETY: the text is valid for writes of the size given.
                pci: text("hipDeviceGetPCIBusId", &|text, size| unsafe {
                    api.hipDeviceGetPCIBusId(text, size, ordinal)
                })?,
                integrated: number(hipDeviceAttributeIntegrated, ordinal) != 0,
                compute_units: u32::try_from(number(hipDeviceAttributeMultiprocessorCount, ordinal))
                    .unwrap_or(0),
                sessions: AtomicUsize::new(0),
                lost: AtomicBool::new(false),
                driver_lock: DriverLock::default(),
            })
        };
        match info() {
            Ok(info) => devices.push(info),
            Err(problem) => problems.push(format!("device {ordinal} of {problem}")),
        }
    }
    if devices.is_empty() { Err(problems.join("; ")) } else { Ok(Found { devices, problems }) }
}

/// Returns all GPUs of this machine. Opens the runtimes that are not open yet.
pub fn devices() -> Vec<&'static DeviceInfo> {
    selected(&Selection::default())
}

/// Returns the selected GPUs. Opens no runtime of another vendor.
pub fn selected(selection: &Selection) -> Vec<&'static DeviceInfo> {
    let found = runtimes(selection).filter_map(|runtime| runtime.found().ok());
    found.flat_map(|found| &found.devices).filter(|info| selection.takes(info)).collect()
}

/// Sorts GPUs, the best first: discrete before integrated ones, then by compute units. Equal ones keep their order.
pub fn ranked(mut devices: Vec<&'static DeviceInfo>) -> Vec<&'static DeviceInfo> {
    devices.sort_by_key(|info| (info.integrated, Reverse(info.compute_units)));
    devices
}

/// Returns the runtimes that may have a selected GPU.
fn runtimes(selection: &Selection) -> impl Iterator<Item = &'static Runtime> {
    let vendor = selection.vendor;
    RUNTIMES.iter().filter(move |runtime| vendor.is_none_or(|vendor| vendor == runtime.vendor))
}

/// Returns the GPU that owns an address; `None` for host memory and unknown addresses. Only the first call opens the
/// runtimes, as this may be called for every frame.
pub fn owner(address: u64) -> Option<&'static DeviceInfo> {
    static OPENED: Once = Once::new();
    OPENED.call_once(|| drop(devices()));
    RUNTIMES.iter().flat_map(Runtime::known).find(|info| info.owns(address))
}

/// Returns all GPUs of the selected vendors, and the reasons why there are no others. Fails in a child process whose
/// parent has opened a runtime.
pub(crate) fn scan(selection: &Selection) -> Result<(Vec<&'static DeviceInfo>, Vec<String>), Error> {
    let (mut devices, mut problems): (Vec<&DeviceInfo>, Vec<String>) = (vec![], vec![]);
    for runtime in runtimes(selection) {
        match runtime.found() {
            Ok(found) => {
                devices.extend(&found.devices);
                problems.extend(found.problems.iter().cloned());
            }
            Err(Error::NoDevice(problem)) => problems.push(problem),
            Err(error) => return Err(error),
        }
    }
    devices.iter().try_for_each(|info| info.library.check_process())?;
    Ok((devices, problems))
}
