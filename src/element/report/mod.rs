// SPDX-License-Identifier: MPL-2.0

//! Reports of the element: messages on the bus, metas on buffers, and files, which a thread of its own writes.

pub mod event;
pub mod exact;
pub mod figures;
mod lossless;
pub mod message;
pub mod meta;
mod named;
pub mod provenance;
pub mod results;
pub mod rows;
pub mod writer;
