// SPDX-License-Identifier: MPL-2.0

//! Opens libraries and finds their functions.

use std::ffi::OsString;
use std::mem::ManuallyDrop;

use libloading::os::unix::{self, RTLD_LOCAL, RTLD_NOW};

/// Reasons why there is no function table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// None of the libraries could be opened.
    Library {
        /// The names that were tried.
        tried: Vec<String>,
        /// The dynamic loader's error, for the first library that it found, if any.
        reason: String,
    },
    /// The library lacks a function, so it is another library or too old.
    Symbol {
        /// The library as it was opened.
        library: String,
        /// The missing function.
        symbol: String,
    },
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Library { tried, reason } => {
                write!(f, "cannot load any of {}: {reason}", tried.join(", "))
            }
            Self::Symbol { library, symbol } => write!(f, "{library} has no function {symbol}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// An open library. It stays open until the process ends, as GPU runtimes own threads and exit handlers.
pub(crate) struct Library {
    handle: ManuallyDrop<unix::Library>,
    pub(crate) name: String,
}

impl Library {
    /// Opens the first of the libraries that the dynamic loader accepts.
    pub(crate) fn open(candidates: &[OsString]) -> Result<Self, LoadError> {
        let mut absent = None;
        let mut broken = None;
        for candidate in candidates {
            let name = candidate.to_string_lossy().into_owned();
            // SAFETY: the initialisers that run are those of a GPU runtime, named by the user or by the
            // well-known names; they expect to be run by any thread.
            match unsafe { unix::Library::open(Some(candidate), RTLD_NOW | RTLD_LOCAL) } {
                Ok(handle) => return Ok(Self { handle: ManuallyDrop::new(handle), name }),
                Err(error) => {
                    let reason = source_text(&error);
                    // The loader names the library itself if it is missing, and another file if that is missing.
                    let kind = if reason.starts_with(&format!("{name}: cannot open shared object file")) {
                        &mut absent
                    } else {
                        &mut broken
                    };
                    kind.get_or_insert(reason);
                }
            }
        }
        Err(LoadError::Library {
            tried: candidates.iter().map(|name| name.to_string_lossy().into_owned()).collect(),
            reason: broken.or(absent).unwrap_or_default(),
        })
    }

    /// Finds the function with this name.
    ///
    /// # Safety
    ///
    /// `F` must be the function's type.
    pub(crate) unsafe fn required<F: Copy>(&self, symbol: &str) -> Result<F, LoadError> {
        // SAFETY: the caller has promised that `F` is the function's type.
        unsafe { self.optional(symbol) }
            .ok_or_else(|| LoadError::Symbol { library: self.name.clone(), symbol: symbol.to_owned() })
    }

    /// Finds the function with this name, if the library has it.
    ///
    /// # Safety
    ///
    /// `F` must be the function's type.
    pub(crate) unsafe fn optional<F: Copy>(&self, symbol: &str) -> Option<F> {
        // SAFETY: the caller has promised that `F` is the function's type, and the copy of it may outlive the borrow
        // because the library is never closed.
        unsafe { self.handle.get::<F>(symbol.as_bytes()) }.ok().map(|function| *function)
    }
}

/// Returns the dynamic loader's message, which libloading wraps in its own text.
fn source_text(error: &libloading::Error) -> String {
    use std::error::Error;
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}
