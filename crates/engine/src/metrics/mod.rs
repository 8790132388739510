// SPDX-License-Identifier: MPL-2.0

//! The metrics without their pixel work: options, tables, and the formulas that turn a backend's sums into features.
//! These are pure functions that all backends share.
//!
//! Each metric has a file here and is registered in `registry`, where other code finds it by name. The backends compute
//! its sums, each in a file per metric as well.

pub(crate) mod adm;
pub(crate) mod ansnr;
pub(crate) mod cambi;
pub(crate) mod ciede;
pub(crate) mod cvvdp;
pub mod damage;
mod extractor;
pub mod feature;
pub mod feature_list;
pub(crate) mod fixed;
pub(crate) mod float_adm;
pub(crate) mod float_motion;
pub(crate) mod float_vif;
mod metric;
pub(crate) mod moments;
pub(crate) mod motion;
mod null;
pub(crate) mod options;
pub mod pairwise;
pub(crate) mod psnr;
pub(crate) mod psnr_hvs;
mod registry;
mod score;
pub(crate) mod speed;
pub(crate) mod ssim;
pub(crate) mod ssimulacra2;
pub(crate) mod vif;
mod work;
pub(crate) mod xpsnr;

pub use cvvdp::{jod_of_frame, jod_of_frames};
pub use extractor::Extractor;
pub(crate) use metric::Metric;
pub use metric::Misfit;
pub use options::format_g;
pub(crate) use registry::METRICS;
pub use score::OptionsError;
pub(crate) use score::{Pooled, Scorer, Source, Values};
pub use work::{Difference, FrameSums, Work};
