// SPDX-License-Identifier: MPL-2.0

//! Real video through the public element, in real pipelines.

mod align;
mod application;
mod change;
mod common;
mod downstream;
mod element;
mod errors;
mod events;
mod failed;
mod faults;
mod figures;
mod gpu;
mod idle;
mod keep;
mod kept;
mod keys;
mod live;
mod memory;
mod metas;
mod motion;
mod output;
mod pairing;
mod peer;
mod placement;
mod ready;
mod reference;
mod registered;
mod renditions;
mod renegotiate;
mod results;
mod scale;
mod scores;
mod self_test;
mod stall;
mod start;
mod timing;
mod verify;
mod watch;
