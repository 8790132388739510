// SPDX-License-Identifier: MPL-2.0

//! `hipvmaf`: full-reference perceptual video quality in GStreamer.

pub mod backend;
pub mod cpu;
pub mod engine;
pub mod frame;
pub mod metrics;
pub mod model;
