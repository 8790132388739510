// SPDX-License-Identifier: MPL-2.0

//! The GPUs of this machine with the properties that decide which one is used, for programs that list them.

use std::fmt;

use gpu::{Device, DeviceInfo, Selection};
use serde::Serialize;

use super::images::{open, remedy, supports};

/// A GPU as its runtime reports it, and the result of opening it.
#[derive(Serialize)]
pub struct Gpu {
    vendor: String,
    number: i32,
    name: String,
    arch: String,
    pci: String,
    discrete: bool,
    compute_units: u32,
    /// The library, and the versions of driver and runtime.
    runtime: String,
    /// This build has code for it.
    supported: bool,
    opened: Option<Opened>,
    /// The reason why it could not be opened although there is code for it.
    pub error: Option<String>,
}

#[derive(Serialize)]
struct Opened {
    /// Target of the code that was loaded.
    code: String,
    free_bytes: usize,
    total_bytes: usize,
}

impl Opened {
    fn new(device: &Device) -> Result<Self, gpu::Error> {
        let (free_bytes, total_bytes) = device.memory()?;
        Ok(Self { code: device.module("frame")?.target().into(), free_bytes, total_bytes })
    }
}

impl Gpu {
    fn new(info: &DeviceInfo) -> Self {
        let supported = supports(info);
        let opened = supported.then(|| open(&info.selection()).and_then(|device| Opened::new(&device)));
        let (opened, error) = match opened.transpose() {
            Ok(opened) => (opened, None),
            Err(err) => (None, Some(err.to_string())),
        };
        Self {
            vendor: info.vendor.to_string(),
            number: info.ordinal,
            name: info.name.clone(),
            arch: info.arch.clone(),
            pci: info.pci.clone(),
            discrete: !info.integrated,
            compute_units: info.compute_units,
            runtime: info.runtime(),
            supported,
            opened,
            error,
        }
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vendor, number, name, arch, pci, compute_units, .. } = self;
        let kind = if self.discrete { "discrete" } else { "part of the processor" };
        write!(f, "{vendor} {number}: {name} ({arch}, {pci}), {kind}, {compute_units} compute units, ")?;
        let gib = |bytes: usize| bytes as f64 / f64::from(1 << 30);
        match (&self.opened, &self.error) {
            (Some(Opened { code, free_bytes, total_bytes }), _) => {
                let (free, total) = (gib(*free_bytes), gib(*total_bytes));
                write!(f, "{free:.1} of {total:.1} GiB free, code {code}")?;
            }
            (None, Some(error)) => write!(f, "cannot be opened: {error}")?,
            (None, None) => write!(f, "no code for it in this build: {}", remedy(arch))?,
        }
        write!(f, "; {}", self.runtime)
    }
}

/// Returns all GPUs, the preferred one first. The error explains why there is none.
pub fn gpus() -> Result<Vec<Gpu>, gpu::Error> {
    let devices = gpu::devices();
    if devices.is_empty() {
        open(&Selection::default())?;
    }
    Ok(gpu::ranked(devices).into_iter().map(Gpu::new).collect())
}
