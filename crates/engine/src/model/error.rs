// SPDX-License-Identifier: MPL-2.0

//! What can be wrong with a model.

use std::io;

use super::{MAX_BYTES, builtin};
use crate::metrics::feature::FeatureError;

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error(
        "there is no built-in model and no file called {name}; built in are {}, and a path to a model file \
         is also allowed", builtin::names().collect::<Vec<_>>().join(", ")
    )]
    Unknown { name: String },
    #[error("cannot read the model file {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("the model file {path} is larger than {MAX_BYTES} bytes")]
    TooLarge { path: String },
    /// `member` is the place in the file, as in `2.model_dict.slopes[1]`; `.` is the whole file.
    #[error("model {origin}, at {member}: {problem}")]
    Content {
        /// Path of the file, or the name the model was given.
        origin: String,
        member: String,
        #[source]
        problem: Problem,
    },
}

/// What is wrong at one place of a model file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Malformed JSON or a value of the wrong type; the text ends in line and column.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("expected {0}")]
    Expected(String),
    /// `line` counts from 1 within the text of the regressor.
    #[error("line {line} of the regressor: {reason}")]
    Regressor { line: usize, reason: String },
    #[error(transparent)]
    Feature(#[from] FeatureError),
}
