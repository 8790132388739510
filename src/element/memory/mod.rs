// SPDX-License-Identifier: MPL-2.0

//! The memory that frames lie in: how buffers become pictures, what upstream is offered, and which GPU neighbours agreed on.

pub mod allocation;
pub mod allocator;
pub mod context;
pub mod device_memory;
pub mod import;
mod limit;
mod registered;
