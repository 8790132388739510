// SPDX-License-Identifier: MPL-2.0

//! Defines the content of results files: the streams first, a row for each frame, and the figures that are known at the end.

use std::borrow::Cow;
use std::sync::Arc;

use engine::session::Totals;
use gst::ClockTime;
use gst_video::VideoInfo;
use serde::{Deserialize, Serialize};

use super::super::caps::ratio;
use super::lossless;
use super::message::ScoreState;
use super::provenance::Provenance;

/// Names and formats of the streams, so that the file can be read alone.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Heading {
    /// Names of the metrics and models, in the order of the values of a row.
    pub columns: Vec<String>,
    /// Sink pad of the distorted stream.
    pub pad: String,
    /// The user's name for it.
    pub label: String,
    /// Formats of the streams when the first frames were compared.
    pub reference: Format,
    pub distorted: Format,
    pub provenance: Provenance,
}

/// Format of one of the streams.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Format {
    pub width: u32,
    pub height: u32,
    /// Pixel format, as in caps.
    pub format: String,
    /// Frames per second as a fraction; 0/1 where it varies or is not known.
    pub frame_rate: String,
    pub colorimetry: String,
}

impl Format {
    pub fn of(info: &VideoInfo) -> Self {
        Self {
            width: info.width(),
            height: info.height(),
            format: info.format().to_str().to_string(),
            frame_rate: ratio(&info.fps()),
            colorimetry: info.colorimetry().to_string(),
        }
    }

    /// The members by name.
    pub fn fields(&self) -> [(&'static str, serde_json::Value); 5] {
        [
            ("width", self.width.into()),
            ("height", self.height.into()),
            ("format", self.format.as_str().into()),
            ("frame_rate", self.frame_rate.as_str().into()),
            ("colorimetry", self.colorimetry.as_str().into()),
        ]
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { width, height, format, frame_rate, colorimetry } = self;
        write!(f, "{width}x{height} {format} {frame_rate} {colorimetry}")
    }
}

/// A scored frame.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Row {
    /// Number of the reference frame.
    pub index: u64,
    #[serde(with = "lossless::time")]
    pub timestamp: Option<ClockTime>,
    #[serde(with = "lossless::time")]
    pub running_time: ClockTime,
    #[serde(with = "lossless::text")]
    pub time_code: Option<Arc<str>>,
    /// By how many nanoseconds the distorted frame was taken to be late.
    pub offset: i64,
    pub state: ScoreState,
    /// Section of the distorted stream: what comes after a seek, new caps or a reset is another one.
    #[serde(default)]
    pub section: u32,
    /// Share of the reference frames so far that were scored.
    pub coverage: f64,
    /// A value for each column.
    #[serde(with = "lossless::numbers")]
    pub values: Vec<f64>,
    /// Sums that the frame adds to the figures of all frames together.
    pub totals: Totals,
}

/// Figures that are known at the end.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Ending {
    /// Figures of all pairs together.
    #[serde(with = "lossless::named")]
    pub aggregates: Vec<(Cow<'static, str>, f64)>,
    /// By how many nanoseconds the distorted video was taken to be late.
    pub offset: i64,
    /// Share of the reference frames that were scored.
    pub coverage: f64,
    /// Numbers of frames by what became of them.
    pub frames: Vec<(Cow<'static, str>, u64)>,
    /// The backend at the end.
    pub backend: Vec<(Cow<'static, str>, String)>,
    /// Why there is more to score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// Damage of the videos.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}
