// SPDX-License-Identifier: MPL-2.0

//! Which GPUs there are. Found out once in a process, when it is first asked for; never by looking at the plugin.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::sync::OnceLock;

use hip_sys::{Api, HipError};

use super::error::Error;
use super::images;

/// Who made a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Amd,
    Nvidia,
}

impl fmt::Display for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Amd => "AMD",
            Self::Nvidia => "NVIDIA",
        })
    }
}

/// A GPU that a runtime reports.
pub struct DeviceInfo {
    pub(super) api: &'static Api,
    /// The runtime's number, after `HIP_VISIBLE_DEVICES` and its like.
    pub ordinal: i32,
    pub vendor: Vendor,
    /// As marketed.
    pub name: String,
    /// `gfx90a:sramecc+:xnack-`, or `sm_90` on NVIDIA.
    pub arch: String,
    /// `0000:03:00.0`
    pub pci: String,
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.name, self.arch, self.pci)
    }
}

impl DeviceInfo {
    /// Whether it can read the memory behind file descriptors ([`External`](super::External)). NVIDIA's driver
    /// takes its own only, not those of the kernel's DMA buffers.
    pub fn imports_external_memory(&self) -> bool {
        self.vendor == Vendor::Amd && self.api.external_memory()
    }

    /// Whether an address is in its memory.
    pub fn owns(&self, address: u64) -> bool {
        hip_sys::device_of(self.api, address as *const c_void) == Ok(Some(self.ordinal))
    }

    /// The library that drives it, with the versions that it reports of its driver and of itself.
    pub fn runtime(&self) -> String {
        let (mut driver, mut runtime) = (0, 0);
        // SAFETY: both addresses are valid for writes. Where a call fails there is a zero.
        unsafe {
            let _ = (self.api.hipDriverGetVersion)(&mut driver);
            let _ = (self.api.hipRuntimeGetVersion)(&mut runtime);
        }
        format!("{} {driver} {runtime}", self.api.library)
    }

    /// Whether this build of the plugin has code for it.
    pub fn is_supported(&self) -> bool {
        images::covers(&self.arch)
    }
}

/// Which GPU is wanted; by default the first that can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
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

/// What was found.
struct Runtime {
    process: u32,
    devices: Vec<DeviceInfo>,
    /// Why a runtime has none to offer.
    problems: Vec<String>,
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut runtime = Runtime { process: std::process::id(), devices: vec![], problems: vec![] };
        for (vendor, api) in [(Vendor::Amd, hip_sys::load_amd()), (Vendor::Nvidia, hip_sys::load_nvidia())] {
            match api {
                // The library stays open as long as the process, and so does its table.
                Ok(api) => match find(Box::leak(Box::new(api)), vendor) {
                    Ok(devices) => runtime.devices.extend(devices),
                    Err(problem) => runtime.problems.push(problem),
                },
                Err(err) => runtime.problems.push(err.to_string()),
            }
        }
        runtime
    })
}

/// The devices of one runtime.
fn find(api: &'static Api, vendor: Vendor) -> Result<Vec<DeviceInfo>, String> {
    let problem = |call: &str, error: HipError| format!("{}: {call} returned {error}", api.library);
    let mut count: c_int = 0;
    // SAFETY: the address is valid for a write.
    match unsafe { (api.hipInit)(0).ok().and_then(|()| (api.hipGetDeviceCount)(&mut count).ok()) } {
        Ok(()) if count > 0 => {}
        Ok(()) | Err(HipError::NO_DEVICE | HipError::INVALID_DEVICE) => {
            return Err(format!("{} finds no device", api.library));
        }
        Err(error) => return Err(problem("hipGetDeviceCount", error)),
    }
    let text = |call: &str, get: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> HipError, ordinal| {
        let mut text = [0; 256];
        // SAFETY: the text is written within the size given; the last byte stays zero.
        unsafe { get(text.as_mut_ptr(), text.len() as c_int - 1, ordinal).ok() }
            .map_err(|error| problem(call, error))?;
        // SAFETY: ends with a zero at the latest in the last byte.
        Ok::<_, String>(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    };
    (0..count)
        .map(|ordinal| {
            Ok(DeviceInfo {
                api,
                ordinal,
                vendor,
                name: text("hipDeviceGetName", api.hipDeviceGetName, ordinal)?,
                arch: hip_sys::arch_name(api, ordinal)
                    .map_err(|error| problem("reading the processor's name", error))?,
                pci: text("hipDeviceGetPCIBusId", api.hipDeviceGetPCIBusId, ordinal)?,
            })
        })
        .collect()
}

/// All GPUs of this machine, those without code in this build too. Opens the runtimes at the first call.
pub fn devices() -> &'static [DeviceInfo] {
    &runtime().devices
}

/// The GPU in whose memory an address is; `None` for the host's memory and what no runtime knows.
pub fn owner(address: u64) -> Option<&'static DeviceInfo> {
    devices().iter().find(|info| info.owns(address))
}

/// In a child process, a runtime that the parent opened is of no use.
pub(super) fn check_process() -> Result<(), Error> {
    if runtime().process == std::process::id() { Ok(()) } else { Err(Error::Forked) }
}

/// The device to use.
pub(super) fn select(selection: &Selection) -> Result<&'static DeviceInfo, Error> {
    if let Some(reason) = images::MISSING {
        return Err(Error::NoKernels(reason));
    }
    let runtime = runtime();
    check_process()?;
    let candidates = || runtime.devices.iter().filter(|info| selection.takes(info));
    if let Some(usable) = candidates().find(|info| info.is_supported()) {
        return Ok(usable);
    }
    Err(match candidates().next() {
        Some(info) => Error::NoCode { device: info.name.clone(), arch: info.arch.clone() },
        None if runtime.devices.is_empty() => Error::NoDevice(runtime.problems.join("; ")),
        None => {
            let present: Vec<_> =
                runtime.devices.iter().map(|i| format!("{} {}: {i}", i.vendor, i.ordinal)).collect();
            Error::NoSuchDevice(selection.to_string(), format!("there is {}", present.join(", ")))
        }
    })
}
