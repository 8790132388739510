// SPDX-License-Identifier: MPL-2.0

//! Which GPUs there are.
//!
//! Found out when somebody first asks, never before. A runtime that has devices is kept for the rest of the process; one
//! that has none, or is not there, is tried again whenever somebody asks: drivers are loaded and devices appear while a
//! service runs.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::sync::Once;

use hip_sys::{Api, HipError};
use once_cell::sync::OnceCell;

use crate::error::Error;
use crate::module::Code;

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
    library: &'static Library,
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
    /// Whether it can read the memory behind file descriptors ([`External`](crate::External)). NVIDIA's driver
    /// takes its own only, not those of the kernel's DMA buffers.
    pub fn imports_external_memory(&self) -> bool {
        self.vendor == Vendor::Amd && self.library.api.external_memory()
    }

    /// Whether an address is in its memory.
    pub fn owns(&self, address: u64) -> bool {
        hip_sys::device_of(&self.library.api, address as *const c_void) == Ok(Some(self.ordinal))
    }

    /// The library that drives it, with the versions that it reports of its driver and of itself.
    pub fn runtime(&self) -> String {
        let (mut driver, mut runtime) = (0, 0);
        // SAFETY: both addresses are valid for writes. Where a call fails there is a zero.
        unsafe {
            let _ = (self.library.api.hipDriverGetVersion)(&mut driver);
            let _ = (self.library.api.hipRuntimeGetVersion)(&mut runtime);
        }
        format!("{} {driver} {runtime}", self.library.api.library)
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
    /// In a child process, a runtime that the parent opened is of no use.
    fn check_process(&self) -> Result<(), Error> {
        if self.process == std::process::id() { Ok(()) } else { Err(Error::Forked) }
    }
}

/// What is known of a vendor's runtime. Both are kept once they are there: a library stays open as long as the process.
struct Runtime {
    vendor: Vendor,
    load: fn() -> Result<Api, hip_sys::LoadError>,
    library: OnceCell<Library>,
    devices: OnceCell<Vec<DeviceInfo>>,
}

static RUNTIMES: [Runtime; 2] =
    [Runtime::new(Vendor::Amd, hip_sys::load_amd), Runtime::new(Vendor::Nvidia, hip_sys::load_nvidia)];

impl Runtime {
    const fn new(vendor: Vendor, load: fn() -> Result<Api, hip_sys::LoadError>) -> Self {
        Self { vendor, load, library: OnceCell::new(), devices: OnceCell::new() }
    }

    /// Its devices, at least one.
    fn devices(&'static self) -> Result<&'static [DeviceInfo], Error> {
        let problem = Error::NoDevice;
        let devices = self.devices.get_or_try_init(|| {
            let open = || Ok(Library { api: (self.load)()?, process: std::process::id() });
            let library = self
                .library
                .get_or_try_init(open)
                .map_err(|err: hip_sys::LoadError| problem(err.to_string()))?;
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

/// The devices of one runtime.
fn find(library: &'static Library, vendor: Vendor) -> Result<Vec<DeviceInfo>, String> {
    let api = &library.api;
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
                library,
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

/// The device to use.
pub(crate) fn select(selection: &Selection, code: &dyn Code) -> Result<&'static DeviceInfo, Error> {
    if let Some(reason) = code.missing() {
        return Err(Error::NoKernels(reason));
    }
    let (mut devices, mut problems) = (vec![], vec![]);
    for runtime in &RUNTIMES {
        match runtime.devices() {
            Ok(found) => devices.extend(found),
            Err(Error::NoDevice(problem)) => problems.push(problem),
            Err(error) => return Err(error),
        }
    }
    devices.iter().try_for_each(|info| info.library.check_process())?;
    let mut candidates = devices.iter().filter(|info| selection.takes(info)).peekable();
    let first = candidates.peek().copied();
    if let Some(usable) = candidates.find(|info| code.covers(&info.arch)) {
        return Ok(usable);
    }
    Err(match first {
        Some(info) => Error::NoCode { device: info.name.clone(), arch: info.arch.clone() },
        None if devices.is_empty() => Error::NoDevice(problems.join("; ")),
        None => {
            let present: Vec<_> =
                devices.iter().map(|i| format!("{} {}: {i}", i.vendor, i.ordinal)).collect();
            Error::NoSuchDevice(selection.to_string(), format!("there is {}", present.join(", ")))
        }
    })
}
