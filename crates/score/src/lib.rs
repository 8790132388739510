// SPDX-License-Identifier: MPL-2.0

//! Scores video files against their reference, several in one pass.
//!
//! An [`Input`] names a video, [`Video::probe`] describes it, and [`score`](fn@score) compares the renditions of a [`Job`] with
//! their reference and returns the scores of each frame as they are computed. The command `hipvmaf score` ([`command`]) makes
//! the job from its arguments, shows the progress, and prints the results.
//!
//! The modules that the other commands use as well are here, too: errors and exit codes, signals, standard output, and texts
//! without credentials.

mod args;
mod bd;
mod boxes;
mod check;
pub mod command;
mod convert;
mod crop;
mod damage;
pub mod decoders;
pub mod error;
mod format;
mod fragments;
mod frame_info;
pub mod interrupt;
mod job;
mod ladder;
mod metric;
mod missing;
pub mod model;
pub mod output;
mod outputs;
mod padding;
mod pairing;
mod preprocessing;
mod preset;
mod preview;
mod probe;
mod progress;
pub mod property;
mod reader;
pub mod redact;
mod rendition;
mod report;
mod run;
mod scenes;
mod scores;
mod source;
mod steps;
mod summary;
mod summary_file;
mod table;
mod time_range;

pub use args::Args;
pub use check::{Checked, Finding, check};
pub use convert::Conversion;
pub use decoders::Decoder;
pub use job::Job;
pub use ladder::{Coded, Rung};
pub use metric::{Metric, Unit};
pub use pairing::{Kept, Method, Pairing, Placed, Timing, Timings, middle, timeline};
pub use preprocessing::{Fields, Margins, Orientation, Preprocessing, Resize};
pub use probe::Video;
pub use reader::Raw;
pub use rendition::{Encoding, Rendition};
pub use report::{BASE_CSS, UPLOT_CSS, UPLOT_JS};
pub use run::{Event, Outcome, score, score_with};
pub use scores::{Figures, Frame, Pooled, Scores};
pub use source::{Input, check_uri};
pub use steps::Step;
pub use time_range::{Position, TimeRange};

/// Version and commit of the program.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-", env!("COMMIT_ID"));

/// Initialises GStreamer and registers the element. Idempotent.
pub fn init() -> Result<(), error::Error> {
    gst::init()?;
    decoders::prefer_exact();
    Ok(gsthipvmaf::plugin_register_static()?)
}
