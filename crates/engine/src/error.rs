// SPDX-License-Identifier: MPL-2.0

//! Errors between a pair and its score.

use crate::backend::BackendError;
use crate::metrics::OptionsError;

/// An error between a pair and its score.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// An error of the backend.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// Invalid options of a model or feature.
    #[error(transparent)]
    Options(OptionsError),
    /// Two models have the same name and would have the same columns.
    #[error("the model {0} is given twice")]
    DuplicateModel(String),
}
