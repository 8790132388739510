// SPDX-License-Identifier: MPL-2.0

//! Options by name, as callers collect them.

use std::ffi::CStr;

use crate::number::normalised;

/// Names and values in the order in which they were set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dictionary(Vec<(String, String)>);

impl Dictionary {
    /// Sets an option, in place of an earlier value. Numbers are rewritten as C prints them in single precision.
    pub fn set(&mut self, key: &CStr, value: &CStr) {
        let key = key.to_string_lossy();
        let value = normalised(value).unwrap_or_else(|| value.to_string_lossy().into_owned());
        match self.0.iter_mut().find(|(other, _)| *other == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.into_owned(), value)),
        }
    }

    /// The options in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}
