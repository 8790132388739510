// SPDX-License-Identifier: MPL-2.0

//! The engine: from frame pairs to scores.
