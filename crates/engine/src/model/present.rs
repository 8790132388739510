// SPDX-License-Identifier: MPL-2.0

//! Optional members of JSON objects.

use serde::de::{Deserialize, Deserializer};

/// Deserialises an optional member that must not be `null` if it is present.
pub(super) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}
