// SPDX-License-Identifier: MPL-2.0

//! Safe owners of the objects of a GPU's runtime, through HIP: AMD's runtime, or the same calls on NVIDIA's driver.
//!
//! No runtime is linked. The installed ones are opened by the first call of [`devices`], [`Device::open`] or
//! [`Ownership::new`]. All users in the process share a [`Device`], and an [`Ownership`] counts how many sessions work
//! on it. [`DeviceBuffer`], [`ForeignBuffer`], [`Pinned`], [`Stream`], [`Event`], [`Graph`], [`Kernel`], [`External`] and [`Registered`]
//! free their objects when they are dropped. This crate contains no kernels: it loads the code objects that its user's
//! [`Code`] has for a GPU. Functions restore the thread's current device when they return ([`ContextGuard`]).

mod code;
mod context_guard;
mod deferred_free;
mod device;
mod driver_lock;
mod error;
mod external;
mod foreign;
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
pub use foreign::{ForeignBuffer, ForeignContext};
pub use graph::Graph;
pub use hip_sys::{HipError, Piece, Vendor};
pub use kernel::Kernel;
pub use memory::{DeviceBuffer, Direction, Pinned, Rectangle, copy, copy_pieces, copy_rectangle, zero};
pub use module::Module;
pub use ownership::Ownership;
pub use registered::Registered;
pub use runtime::{DeviceInfo, Selection, devices, owner, ranked, selected};
pub use stream::{Event, Profile, Stream};
