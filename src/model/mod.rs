// SPDX-License-Identifier: MPL-2.0

//! Models: from features to scores.
