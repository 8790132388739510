// SPDX-License-Identifier: MPL-2.0

//! The program from the outside.

mod archive;
mod bad_days;
mod common;
mod crop;
mod delay;
mod ends;
mod errors;
mod fit;
mod formats;
mod ladder;
mod lists;
mod looks;
mod monitor;
mod names;
mod outputs;
mod pairs;
mod readers;
mod report;
mod scores;
mod signals;
mod sound;
