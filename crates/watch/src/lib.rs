// SPDX-License-Identifier: MPL-2.0

//! Monitoring of endless streams of scores: pure state machines, which get the time as an argument.
//!
//! [`counts`] says what became of frames, [`summary`] computes statistics over many frames, and [`window`] over the last seconds. [`alarm`] raises alarms
//! that do not flap. [`outage`] finds frozen and black pictures in small copies ([`thumbnail`]), from which [`align`]
//! finds the delay of the distorted video, too. [`load`] detects an overloaded machine. [`prometheus`] exports the
//! results as text, and [`output`] writes to files, devices and pipes.

pub mod alarm;
pub mod align;
pub mod compute_time;
pub mod counts;
pub mod load;
pub mod outage;
pub mod output;
pub mod prometheus;
pub mod summary;
pub mod thumbnail;
pub mod window;
