// SPDX-License-Identifier: MPL-2.0

//! Real video through the public element, in real pipelines.

mod align;
mod common;
mod element;
mod errors;
mod gpu;
mod live;
mod memory;
mod output;
mod peer;
mod renditions;
mod results;
mod scale;
mod scores;
mod timing;
mod watch;
