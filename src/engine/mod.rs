// SPDX-License-Identifier: MPL-2.0

//! From frame pairs to scores: what to compute ([`plan`]), the walk of each pair through a backend and
//! the models ([`session`]), the features in its sums ([`scorer`]), and the figures kept over many frames ([`summary`]).
//!
//! For streams without end: figures of the last seconds ([`window`]), alarms that do not flap ([`alarm`]), and
//! pictures that froze or went black ([`outage`]), seen in small copies of them ([`thumbnail`]), which
//! also tell how late the distorted video is ([`align`]); all of it as text for Prometheus ([`prometheus`]). Damage becomes
//! visible as colours ([`heatmap`]).

pub mod alarm;
pub mod align;
pub mod heatmap;
pub mod outage;
pub mod plan;
pub mod prometheus;
pub mod scorer;
pub mod session;
pub mod summary;
pub mod thumbnail;
pub mod window;

use crate::backend::BackendError;
use crate::metrics::adm::AdmError;
use crate::metrics::speed::SpeedError;

/// What can go wrong between a pair and its score.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("the ADM options of a model or feature cannot be used: {0}")]
    Adm(#[from] AdmError),
    #[error(transparent)]
    Speed(#[from] SpeedError),
    #[error("the model {0} is given twice")]
    DuplicateModel(String),
}
