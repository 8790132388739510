// SPDX-License-Identifier: MPL-2.0

//! Errors of models.

use std::io;

use super::{MAX_BYTES, builtin};
use crate::metrics::feature::FeatureError;

/// Reasons why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The name is neither a built-in model nor a file.
    #[error(
        "there is no built-in model and no file called {name}; built in are {}, and a path to a model file \
         is also allowed", builtin::names().collect::<Vec<_>>().join(", ")
    )]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// The file exists but cannot be read.
    #[error("cannot read the model file {path}: {source}")]
    Read {
        /// Path of the file.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is larger than any model can be.
    #[error("the model file {path} is larger than {MAX_BYTES} bytes")]
    TooLarge {
        /// Path of the file.
        path: String,
    },
    /// The file is not a valid model.
    #[error("model {origin}, at {member}: {problem}")]
    Content {
        /// Path of the file, or the name the model was given.
        origin: String,
        /// The place in the file, as in `2.model_dict.slopes[1]`; `.` is the whole file.
        member: String,
        /// The reason.
        #[source]
        problem: Problem,
    },
}

/// The error at one place of a model file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Malformed JSON or a value of the wrong type. The text ends with line and column.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// An invalid value.
    #[error("expected {0}")]
    Expected(String),
    /// The text of the regressor is invalid.
    #[error("line {line} of the regressor: {reason}")]
    Regressor {
        /// Line within the text of the regressor, from 1.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// An unknown feature, or a feature with options that it does not have.
    #[error(transparent)]
    Feature(#[from] FeatureError),
}
