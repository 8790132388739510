// SPDX-License-Identifier: MPL-2.0

//! What can be wrong with a model.

use std::io;

use super::{MAX_BYTES, builtin};
use crate::metrics::feature::FeatureError;

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The name is neither that of a built-in model nor that of a file.
    #[error(
        "there is no built-in model and no file called {name}; built in are {}, and a path to a model file \
         is also allowed", builtin::names().collect::<Vec<_>>().join(", ")
    )]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The file is there and cannot be read.
    #[error("cannot read the model file {path}: {source}")]
    Read {
        /// Path of the file.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// The file is larger than any model can be.
    #[error("the model file {path} is larger than {MAX_BYTES} bytes")]
    TooLarge {
        /// Path of the file.
        path: String,
    },
    /// The file is not a model.
    #[error("model {origin}, at {member}: {problem}")]
    Content {
        /// Path of the file, or the name the model was given.
        origin: String,
        /// The place in the file, as in `2.model_dict.slopes[1]`; `.` is the whole file.
        member: String,
        /// What is wrong there.
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
    /// A value that makes no sense.
    #[error("expected {0}")]
    Expected(String),
    /// The text of the regressor is not one.
    #[error("line {line} of the regressor: {reason}")]
    Regressor {
        /// Number of the line within the text of the regressor, from 1.
        line: usize,
        /// What is wrong there.
        reason: String,
    },
    /// A feature that there is not, or with options that it does not have.
    #[error(transparent)]
    Feature(#[from] FeatureError),
}
