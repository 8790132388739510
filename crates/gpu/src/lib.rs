// SPDX-License-Identifier: MPL-2.0

//! Safe owners of what a GPU's runtime hands out, through HIP: AMD's runtime, or the same calls on NVIDIA's driver.
//!
//! No runtime is linked: those that are there are opened when [`devices`], [`Device::open`] or [`Ownership::new`] first asks for
//! one. A [`Device`] is shared by everything in the process that uses it, and a [`Ownership`] counts how many work on it;
//! [`DeviceBuffer`], [`Pinned`], [`Stream`], [`Event`], [`Graph`], [`Kernel`], [`External`] and [`Registered`] give back what
//! they own when they are dropped. What runs on the GPU is not this crate's: it loads the code objects that the [`Code`] of its
//! user has for a GPU. What was set for a thread is set again when a function returns ([`ContextGuard`]).

mod code;
mod context_guard;
mod deferred_free;
mod device;
mod driver_lock;
mod error;
mod external;
mod graph;
mod kernel;
mod memory;
mod module;
mod ownership;
mod pool;
mod registered;
mod runtime;
mod stream;

pub use code::{Code, Image};
pub use context_guard::ContextGuard;
pub use device::Device;
pub use error::Error;
pub use external::{External, Inode};
pub use graph::Graph;
pub use hip_sys::{HipError, Piece, Vendor};
pub use kernel::Kernel;
pub use memory::{DeviceBuffer, Direction, Pinned, Rectangle, copy, copy_pieces, copy_rectangle, zero};
pub use module::Module;
pub use ownership::Ownership;
pub use registered::Registered;
pub use runtime::{DeviceInfo, Selection, devices, owner, ranked, selected};
pub use stream::{Event, Profile, Stream};
