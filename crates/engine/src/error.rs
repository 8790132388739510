// SPDX-License-Identifier: MPL-2.0

//! What can go wrong between a pair and its score.

use crate::backend::BackendError;
use crate::metrics::OptionsError;

/// What can go wrong between a pair and its score.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// What the backend refused, or could not do.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// Options of a model or feature that cannot be used.
    #[error(transparent)]
    Options(OptionsError),
    /// Two models of one name would have the same columns.
    #[error("the model {0} is given twice")]
    DuplicateModel(String),
}
