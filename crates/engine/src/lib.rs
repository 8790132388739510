// SPDX-License-Identifier: MPL-2.0

//! Perceptual video quality of pictures in memory: VMAF and the classic metrics, on CPUs and GPUs.
//!
//! From frame pairs to scores: what to compute ([`plan`]), the walk of each pair through a backend and
//! the models ([`session`]), the features in its sums ([`scorer`]). Damage becomes visible as colours ([`heatmap`]).

pub mod backend;
mod error;
pub mod frame;
pub mod heatmap;
pub mod metrics;
pub mod model;
pub mod plan;
pub mod scale;
pub mod scorer;
pub mod session;

pub use error::EngineError;
