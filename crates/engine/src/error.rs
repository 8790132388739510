// SPDX-License-Identifier: MPL-2.0

//! What can go wrong between a pair and its score.

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
