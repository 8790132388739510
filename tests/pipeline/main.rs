// SPDX-License-Identifier: MPL-2.0

//! Real video through the public element, in real pipelines.

mod common;
mod element;
mod errors;
mod features;
mod gpu;
mod memory;
mod peer;
mod results;
mod scores;
mod sums;
