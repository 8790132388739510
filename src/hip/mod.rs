// SPDX-License-Identifier: MPL-2.0

//! The backend on the GPU, through HIP: AMD's runtime, or the same calls on NVIDIA's driver.
//!
//! Nothing of a GPU's runtime is linked: `runtime.rs` opens what is there when a device is first asked for.
//! `device.rs`, `stream.rs`, `memory.rs`, `module.rs` and `graph.rs` own what HIP hands out; `backend.rs` puts a
//! frame pair through the kernels of `kernels/`, which the other files launch, one file for each metric.

mod adm;
mod backend;
mod cambi;
mod ciede;
mod device;
mod error;
mod external;
mod frame;
mod graph;
mod images;
mod memory;
mod module;
mod motion;
mod profile;
mod psnr;
mod psnr_hvs;
mod runtime;
mod scale;
mod speed;
mod ssim;
mod stream;
mod vif;

pub use backend::Hip;
pub use device::Device;
pub use error::Error;
pub use external::{External, Inode};
pub use images::MISSING;
pub use memory::{DeviceBuffer, Pinned};
pub use runtime::{DeviceInfo, Selection, Vendor, devices, owner};
