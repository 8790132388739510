// SPDX-License-Identifier: MPL-2.0

//! `hipvmaf`: full-reference perceptual video quality in GStreamer.
//!
//! The plugin brings the element `hipvmaf`. Applications that link this crate register it with
//! [`plugin_register_static`] and read its results through [`message`], [`event`] and [`meta`].

mod element;

use element::register as plugin_init;
pub use element::{
    Align, Backend, Colorimetry, HipVmaf, HipVmafPad, LogLevel, MissingFrame, OnResultsError, OnWrongScore,
    Output, Overload, Pairing, PoolMethod, ResultsFormat, ScaleMethod, Vendor, event, exact, message, meta,
    results,
};

gst::plugin_define!(
    hipvmaf,
    env!("CARGO_PKG_DESCRIPTION"),
    plugin_init,
    concat!(env!("CARGO_PKG_VERSION"), "-", env!("COMMIT_ID")),
    "MPL-2.0",
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_REPOSITORY"),
    env!("BUILD_REL_DATE")
);
