// SPDX-License-Identifier: MPL-2.0

//! Which GPUs there are.
//!
//! Found out when somebody first asks, never before. A runtime that has devices is kept for the rest of the process; one
//! that has none, or is not there, is tried again whenever somebody asks: drivers are loaded and devices appear while a
//! service runs.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::sync::Once;

use hip_sys::{Api, HipError, LoadError, Vendor};
use once_cell::sync::OnceCell;

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

    /// The functions that drive it.
    pub(crate) fn api(&self) -> Result<&'static Api, Error> {
        self.library.check_process()?;
        Ok(&self.library.api)
    }
}

/// Which GPU is wanted; by default the first that can be used.
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

/// What is known of a vendor's runtime. Both are kept once they are there: a library stays open as long as the process.
struct Runtime {
    vendor: Vendor,
    library: OnceCell<Library>,
    devices: OnceCell<Vec<DeviceInfo>>,
}

static RUNTIMES: [Runtime; 2] = [Runtime::new(Vendor::Amd), Runtime::new(Vendor::Nvidia)];

impl Runtime {
    const fn new(vendor: Vendor) -> Self {
        Self { vendor, library: OnceCell::new(), devices: OnceCell::new() }
    }

    /// The devices of this runtime, at least one.
    fn devices(&'static self) -> Result<&'static [DeviceInfo], Error> {
        let problem = Error::NoDevice;
        let devices = self.devices.get_or_try_init(|| {
            let open = || Ok(Library { api: load(self.vendor)?, process: std::process::id() });
            let library =
                self.library.get_or_try_init(open).map_err(|err: LoadError| problem(err.to_string()))?;
            library.check_process()?;
            find(library, self.vendor).map_err(problem)
        })?;
        Ok(devices)
    }

    /// The devices that were found before.
    fn known(&'static self) -> &'static [DeviceInfo] {
        self.devices.get().map_or(&[], Vec::as_slice)
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

/// The devices of one runtime.
fn find(library: &'static Library, vendor: Vendor) -> Result<Vec<DeviceInfo>, String> {
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
    (0..count)
        .map(|ordinal| {
            Ok(DeviceInfo {
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
            })
        })
        .collect()
}

/// All GPUs of this machine. Opens the runtimes that are not open yet.
pub fn devices() -> Vec<&'static DeviceInfo> {
    RUNTIMES.iter().filter_map(|runtime| runtime.devices().ok()).flatten().collect()
}

/// The GPU in whose memory an address is; `None` for the host's memory and what no runtime knows. Opens the runtimes at
/// the first call only: it may be asked for every frame.
pub fn owner(address: u64) -> Option<&'static DeviceInfo> {
    static OPENED: Once = Once::new();
    OPENED.call_once(|| drop(devices()));
    RUNTIMES.iter().flat_map(Runtime::known).find(|info| info.owns(address))
}

/// All GPUs, and why runtimes have none to offer. An error in a child process, whose parent opened a runtime.
pub(crate) fn survey() -> Result<(Vec<&'static DeviceInfo>, Vec<String>), Error> {
    let (mut devices, mut problems): (Vec<&DeviceInfo>, _) = (vec![], vec![]);
    for runtime in &RUNTIMES {
        match runtime.devices() {
            Ok(found) => devices.extend(found),
            Err(Error::NoDevice(problem)) => problems.push(problem),
            Err(error) => return Err(error),
        }
    }
    devices.iter().try_for_each(|info| info.library.check_process())?;
    Ok((devices, problems))
}
