// SPDX-License-Identifier: MPL-2.0

//! The backends through the interface of the engine.

#[allow(dead_code, reason = "the tests of the plugin need more of it")]
#[path = "../../../../tests/pipeline/common/clip.rs"]
mod clip;
mod device;
mod features;
mod gpu;
mod sums;
