// SPDX-License-Identifier: MPL-2.0

//! The GStreamer element: the only place that knows GStreamer.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use gst::prelude::*;
use gst::subclass::prelude::ObjectSubclassIsExt;

mod action;
mod alignment;
mod cadence;
mod caps;
mod caps_wait;
mod display;
mod downstream;
mod error;
mod heads;
mod heatmap;
mod imp;
mod input;
mod memory;
mod messages;
mod metas;
mod negotiation;
mod overload;
mod pad_health;
mod pads;
mod progress;
mod pushing;
mod record;
mod reference;
mod rendition;
mod report;
mod run;
mod schedule;
mod scores;
mod settings;
mod stall_watchdog;
mod start;
mod state;
mod steps;
mod streaming;
mod streams;
mod tally;
mod threads;
mod time;
mod upcoming;
mod upstream;
mod work;
mod worker;

pub use pads::{Align, HipVmafPad};
pub use report::{event, exact, message, meta, results};
pub use settings::{
    Backend, Colorimetry, LogLevel, MissingFrame, OnResultsError, OnWrongScore, Output, Overload, Pairing,
    PoolMethod, ResultsFormat, ScaleMethod, Vendor,
};

static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new(
        "hipvmaf",
        gst::DebugColorFlags::empty(),
        Some("Full-reference video quality (VMAF and classic metrics)"),
    )
});

/// Data behind a mutex stays valid even if a thread died holding it: every change is made whole or not seen.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

glib::wrapper! {
    /// The element `hipvmaf`: scores a distorted video stream against its reference.
    ///
    /// Reference frames go in at `ref_sink` and leave at `src` untouched (or as [`Output`] says), with a
    /// [`ScoreMeta`](meta::ScoreMeta); the video to be scored goes in at `dist_sink`. Scores are posted as
    /// [`VMAF` messages](message).
    pub struct HipVmaf(ObjectSubclass<imp::HipVmaf>)
        @extends gst_base::Aggregator, gst::Element, gst::Object,
        @implements gst::ChildProxy;
}

impl HipVmaf {
    /// Returns what the metrics file of a started element contains.
    pub fn figures(&self) -> Option<watch::prometheus::Figures> {
        lock(&self.imp().run().state).as_ref().map(state::State::figures)
    }
}

/// Registers the element and its meta with a plugin.
pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    meta::register();
    gst::Element::register(Some(plugin), "hipvmaf", gst::Rank::NONE, HipVmaf::static_type())
}
