// SPDX-License-Identifier: MPL-2.0

//! Perceptual video quality of pictures in memory: VMAF and the classic metrics, on CPUs and GPUs.
//!
//! A [`Plan`](plan::Plan) defines the work for some [models](model::Model) and features. A
//! [`Session`](session::Session) takes the frame pairs of a video one after another and returns their scores, which are
//! bit-identical to libvmaf's. A [backend] does the work for each pixel, on the CPU or on a GPU.
//!
//! ```
//! use std::sync::Arc;
//!
//! use hipvmaf_engine::backend::cpu::Cpu;
//! use hipvmaf_engine::frame::{BitDepth, Geometry, Picture};
//! use hipvmaf_engine::model::{Model, ScoreOptions};
//! use hipvmaf_engine::plan::Plan;
//! use hipvmaf_engine::session::{Session, Tag};
//!
//! let depth = BitDepth::new(8).ok_or("8 to 16 bits")?;
//! let geometry = Geometry { width: 64, height: 48, depth, chroma: None };
//! let original: Vec<u8> = (0..64 * 48).map(|i| (i % 64 * 3 + i / 64 % 5 * 10) as u8).collect();
//! let coded: Vec<u8> = original.iter().map(|sample| sample & 0xf0).collect();
//!
//! let plan = Arc::new(Plan::new(vec![Model::load("vmaf_v0.6.1")?], &[], ScoreOptions::default())?);
//! let mut session = Session::new(plan.clone(), Box::new(Cpu::new(1)?), 1);
//! session.prepare(geometry, &[None])?;
//! let picture = |bytes| Picture::packed(bytes, geometry).ok_or("too few bytes");
//! session.submit(Tag::default(), picture(&original)?, vec![(0, picture(&coded)?)])?;
//! session.end_run(false);
//! if let Some(completion) = session.completion() {
//!     completion(); // Waits. Any thread may call it.
//! }
//! for pair in session.collect()? {
//!     let values = pair.values.ok_or("only some pairs were to be scored")?;
//!     println!("VMAF {}", values[plan.models[0].column]);
//!     # assert!(values[plan.models[0].column] > 20.0 && values[plan.models[0].column] < 95.0);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Pictures are borrowed in place from the caller's memory ([`frame`]) and copied only if a backend needs it. Pictures of
//! another size are scaled to the reference's ([`scale`]). A heat map shows where a picture differs visibly from its
//! reference ([`heatmap`]).

pub mod audit;
pub mod backend;
mod error;
pub mod frame;
pub mod heatmap;
pub mod metrics;
pub mod model;
pub mod plan;
pub mod random;
pub mod scale;
pub mod session;
#[cfg(feature = "testing")]
pub mod testing;
pub mod video;

pub use error::EngineError;
