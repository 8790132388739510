// SPDX-License-Identifier: MPL-2.0

//! Properties of the machine that may affect its GPUs.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::thread;

use serde::Serialize;

/// Variables that change which GPU is used and how, from the table in `docs/gpu.md`. Each section of a report sets
/// `HIPVMAF_SELF_TEST` for itself.
const VARIABLES: [&str; 16] = [
    "HIPVMAF_HIP_LIBRARY",
    "HIPVMAF_CUDA_LIBRARY",
    "ROCM_PATH",
    "HIP_PATH",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "CUDA_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION",
    "HIPVMAF_GPU_CODE",
    "HIPVMAF_GRAPHS",
    "CUDA_CACHE_PATH",
    "AMD_LOG_LEVEL",
    "AMD_SERIALIZE_KERNEL",
    "HIP_LAUNCH_BLOCKING",
    "CUDA_LAUNCH_BLOCKING",
];

/// Properties that the system reports. Unknown ones are empty.
#[derive(Serialize)]
pub struct System {
    kernel: String,
    machine: &'static str,
    distribution: String,
    cpu: String,
    /// Logical processors that this program may use.
    cpus: usize,
    environment: BTreeMap<&'static str, String>,
}

impl System {
    pub fn new() -> Self {
        let variable = |name| Some((name, std::env::var_os(name)?.to_string_lossy().into_owned()));
        Self {
            kernel: text("/proc/sys/kernel/osrelease").trim().into(),
            machine: std::env::consts::ARCH,
            distribution: value(&text("/etc/os-release"), "PRETTY_NAME", '=').trim_matches('"').into(),
            cpu: value(&text("/proc/cpuinfo"), "model name", ':').into(),
            cpus: thread::available_parallelism().map_or(0, |count| count.get()),
            environment: VARIABLES.into_iter().filter_map(variable).collect(),
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, machine, distribution, cpu, cpus, environment } = self;
        writeln!(f, "{distribution}, kernel {kernel}, {machine}")?;
        write!(f, "{cpu}, {cpus} logical processors")?;
        environment.iter().try_for_each(|(name, value)| write!(f, "\n{name}={value}"))
    }
}

/// Reads a system file; an empty text if there is none.
fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the first value of a key in lines of keys and values.
fn value<'a>(text: &'a str, key: &str, separator: char) -> &'a str {
    let mut pairs = text.lines().filter_map(|line| line.split_once(separator));
    pairs.find(|(name, _)| name.trim() == key).map_or("", |(_, value)| value.trim())
}
