// SPDX-License-Identifier: MPL-2.0

//! Scores video files against their reference, several in one pass.
//!
//! [`Input`] is what can be opened, [`Video::probe`] says what it is, and [`score`](fn@score) compares the renditions of a
//! [`Job`] and hands out the scores of each frame as they come. The command itself ([`command`]) makes the job of its
//! arguments, shows how far it is, and prints what came of it.

mod args;
mod boxes;
mod check;
pub mod command;
mod convert;
mod crop;
mod damage;
pub(crate) mod decoders;
mod format;
mod fragments;
mod look;
mod looks;
mod missing;
pub(crate) mod model;
mod outputs;
mod padding;
mod pairing;
mod plot;
mod probe;
mod progress;
mod reader;
mod rendition;
mod report;
pub(crate) mod run;
mod scores;
mod source;
mod span;
mod steps;
mod summary;
mod table;
mod treatment;

pub use args::Args;
pub use check::{Checked, Finding, check};
pub use convert::Conversion;
pub use pairing::{Kept, Method, Pairing, Placed, Timing, Timings};
pub(crate) use pairing::{middle, timeline};
pub use probe::Video;
pub use reader::Raw;
pub use rendition::{Encoding, Rendition};
pub use run::{Event, Job, Outcome, score};
pub use scores::{Frame, Pooled, Scores};
pub(crate) use source::check_uri;
pub use source::{Decoder, Input};
pub use span::{Position, Span};
pub use steps::Step;
pub use treatment::{Fields, Margins, Orientation, Resize, Treatment};
