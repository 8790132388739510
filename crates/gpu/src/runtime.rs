// SPDX-License-Identifier: MPL-2.0

//! Which GPUs there are.
//!
//! Found out when somebody first asks, never before. A runtime that has devices is kept for the rest of the process; one
//! that has none, or is not there, is tried again whenever somebody asks: drivers are loaded and devices appear while a
//! service runs.

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
    /// The runtime's number, after `HIP_VISIBLE_DEVICES` and its like.
    pub ordinal: i32,
    /// Who made it.
    pub vendor: Vendor,
    /// Name of the GPU as marketed.
    pub name: String,
    /// GPU target: `gfx90a:sramecc+:xnack-`, or `sm_90` on NVIDIA.
    pub arch: String,
    /// PCI address: `0000:03:00.0`.
    pub pci: String,
    /// It is part of the processor, as in many desktop and all mobile ones.
    pub integrated: bool,
    /// Compute units, or multiprocessors on NVIDIA; 0 if the runtime does not say.
    pub compute_units: u32,
    /// How many sessions of this process work on it ([`Ownership`](crate::Ownership)).
    pub(crate) sessions: AtomicUsize,
    /// It was lost, and is for good.
    pub(crate) lost: AtomicBool,
    pub(crate) driver_lock: DriverLock,
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.name, self.arch, self.pci)
    }
}

impl DeviceInfo {
    /// Whether it can read the memory behind file descriptors ([`External`](crate::External)). NVIDIA's driver
    /// takes its own only, not those of the kernel's DMA buffers.
    pub fn imports_external_memory(&self) -> bool {
        self.vendor == Vendor::Amd && self.library.api.external_memory()
    }

    /// Whether an address is in its memory.
    pub fn owns(&self, address: u64) -> bool {
        self.library.api.device_of(address as *const c_void) == Ok(Some(self.ordinal))
    }

    /// The library that drives it, with the versions that it reports of its driver and of itself.
    pub fn runtime(&self) -> String {
        let (mut driver, mut runtime) = (0, 0);
        // SAFETY: both addresses are valid for writes. Where a call fails there is a zero.
        unsafe {
            let _ = self.library.api.hipDriverGetVersion(&mut driver);
            let _ = self.library.api.hipRuntimeGetVersion(&mut runtime);
        }
        format!("{} {driver} {runtime}", self.library.api.library())
    }

    /// What selects this very GPU.
    pub fn selection(&self) -> Selection {
        Selection { vendor: Some(self.vendor), ordinal: Some(self.ordinal) }
    }

    /// Bytes of its memory that nobody has taken, in whichever process; `None` if that is not said. NVIDIA's driver would make a
    /// context on the GPU to tell it, of some hundred megabytes, so its library for monitoring is asked. AMD's runtime sets
    /// itself up.
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

    /// The functions to give things back with, in a turn of its own and with this device set for the calling thread: a lost
    /// device takes them too. None in a child process, which has nothing to give back.
    pub(crate) fn release(&'static self) -> Option<Entered> {
        let api = ContextGuard::new().enter(self.api().ok()?);
        // SAFETY: takes a number, which the runtime gave. On a lost device there is nothing to do about the error.
        let _ = unsafe { api.hipSetDevice(self.ordinal) };
        Some(api.holding(self.driver_lock.exclusive()))
    }

    /// The functions that drive it.
    pub(crate) fn api(&self) -> Result<&'static Api, Error> {
        self.library.check_process()?;
        Ok(&self.library.api)
    }
}

/// Which GPUs are wanted; by default all of them. [`Device::open`](crate::Device::open) and
/// [`Ownership::new`](crate::Ownership::new) say which of those it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only one of this vendor.
    pub vendor: Option<Vendor>,
    /// The runtime's number of the device.
    pub ordinal: Option<i32>,
}

impl Selection {
    /// Whether a GPU is one of those wanted.
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
    /// Fails in a child process: a runtime that the parent opened is of no use there.
    fn check_process(&self) -> Result<(), Error> {
        if self.process == std::process::id() { Ok(()) } else { Err(Error::Forked) }
    }
}

/// The devices of a runtime that can be asked about, and what is wrong with others.
struct Found {
    devices: Vec<DeviceInfo>,
    problems: Vec<String>,
}

/// What is known of a vendor's runtime. Both are kept once they are there: a library stays open as long as the process.
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

    /// The devices of this runtime, at least one.
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

    /// The devices that were found before.
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

/// The devices of one runtime. One that cannot be asked about does not hide the others.
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

/// All GPUs of this machine. Opens the runtimes that are not open yet.
pub fn devices() -> Vec<&'static DeviceInfo> {
    selected(&Selection::default())
}

/// The GPUs that are wanted. Opens no runtime of a vendor that is not.
pub fn selected(selection: &Selection) -> Vec<&'static DeviceInfo> {
    let found = runtimes(selection).filter_map(|runtime| runtime.found().ok());
    found.flat_map(|found| &found.devices).filter(|info| selection.takes(info)).collect()
}

/// The best first: a GPU of its own before one that is part of the processor, and then one with more compute units. Equals
/// stay as they are.
pub fn ranked(mut devices: Vec<&'static DeviceInfo>) -> Vec<&'static DeviceInfo> {
    devices.sort_by_key(|info| (info.integrated, Reverse(info.compute_units)));
    devices
}

/// The runtimes that may have a GPU that is wanted.
fn runtimes(selection: &Selection) -> impl Iterator<Item = &'static Runtime> {
    let vendor = selection.vendor;
    RUNTIMES.iter().filter(move |runtime| vendor.is_none_or(|vendor| vendor == runtime.vendor))
}

/// The GPU in whose memory an address is; `None` for the host's memory and what no runtime knows. Opens the runtimes at
/// the first call only: it may be asked for every frame.
pub fn owner(address: u64) -> Option<&'static DeviceInfo> {
    static OPENED: Once = Once::new();
    OPENED.call_once(|| drop(devices()));
    RUNTIMES.iter().flat_map(Runtime::known).find(|info| info.owns(address))
}

/// All GPUs of the vendors that are wanted, and why there are no others. An error in a child process, whose parent opened a
/// runtime.
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
