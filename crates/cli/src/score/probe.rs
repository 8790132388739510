// SPDX-License-Identifier: MPL-2.0

//! What a video is, found out before it is scored.

use gst::ClockTime;
use gst::prelude::*;
use gst_pbutils::prelude::*;
use gst_video::{VideoColorimetry, VideoTransferFunction};
use serde::Serialize;

use super::source::Input;
use crate::error::Error;

/// How long a source may take to say what it is.
const PATIENCE: ClockTime = ClockTime::from_seconds(30);
/// Containers whose index says where a moment is. Others guess it.
const INDEXED: [&str; 3] = ["video/quicktime", "video/x-matroska", "video/webm"];

/// A video as its container and its stream describe it.
#[derive(Clone, Debug, Serialize)]
pub struct Video {
    /// As the user wrote it.
    pub input: String,
    /// Width of the pictures.
    pub width: u32,
    /// Height of the pictures.
    pub height: u32,
    /// Frames per second as a fraction, unless it varies or is not known.
    #[serde(serialize_with = "fraction")]
    pub rate: Option<gst::Fraction>,
    /// In seconds, if it is known.
    #[serde(serialize_with = "seconds")]
    pub duration: Option<ClockTime>,
    /// Shape of a sample.
    #[serde(skip)]
    pub aspect: gst::Fraction,
    /// Its frames are made of two fields.
    pub interlaced: bool,
    /// The stream says that it is HDR (PQ or HLG).
    pub hdr: bool,
    /// How colours are coded, if the stream says so.
    pub colorimetry: Option<String>,
    /// How the stream is coded.
    pub codec: String,
    /// Its container has an index to seek by.
    #[serde(skip)]
    pub indexed: bool,
}

fn fraction<S: serde::Serializer>(rate: &Option<gst::Fraction>, s: S) -> Result<S::Ok, S::Error> {
    rate.map(|rate| format!("{}/{}", rate.numer(), rate.denom())).serialize(s)
}

fn seconds<S: serde::Serializer>(time: &Option<ClockTime>, s: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.nseconds() as f64 / 1e9).serialize(s)
}

impl Video {
    /// Looks at the beginning of a video.
    pub fn probe(input: &Input) -> Result<Self, Error> {
        let failed = |why: String| Error::Failed(format!("{}: {why}", input.given()));
        let info = gst_pbutils::Discoverer::new(PATIENCE)?.discover_uri(input.uri());
        let info = info.map_err(|error| failed(error.message().into()))?;
        let streams = info.video_streams();
        let Some(video) = streams.first() else {
            return Err(Error::Failed(format!("{} has no video", input.given())));
        };
        let container =
            info.stream_info().filter(|stream| stream.is::<gst_pbutils::DiscovererContainerInfo>());
        let container = container.and_then(|stream| stream.caps());
        let of_container = container.as_ref().and_then(|caps| caps.structure(0)).map(|s| s.name().as_str());
        let rate = video.framerate();
        let caps = video.caps();
        let colorimetry = caps.as_ref().and_then(|caps| caps.structure(0)?.get::<String>("colorimetry").ok());
        let transfer = colorimetry.as_deref().and_then(|text| text.parse::<VideoColorimetry>().ok());
        let transfer = transfer.map(|colorimetry| colorimetry.transfer());
        Ok(Self {
            input: input.given().to_owned(),
            width: video.width(),
            height: video.height(),
            rate: Some(rate).filter(|rate| rate.numer() > 0 && rate.denom() > 0),
            duration: info.duration().filter(|duration| *duration > ClockTime::ZERO),
            aspect: video.par(),
            interlaced: video.is_interlaced(),
            hdr: transfer.is_some_and(|of| {
                matches!(of, VideoTransferFunction::Smpte2084 | VideoTransferFunction::AribStdB67)
            }),
            colorimetry,
            codec: caps
                .map_or(String::new(), |caps| gst_pbutils::pb_utils_get_codec_description(&caps).into()),
            indexed: of_container.is_some_and(|name| INDEXED.contains(&name)),
        })
    }

    /// One of this size, to test with.
    #[cfg(test)]
    pub(super) fn like(input: &str, width: u32, height: u32) -> Self {
        Self {
            input: input.into(),
            width,
            height,
            rate: None,
            duration: None,
            aspect: gst::Fraction::new(1, 1),
            interlaced: false,
            hdr: false,
            colorimetry: None,
            codec: String::new(),
            indexed: false,
        }
    }

    /// Frames per second, if they are known and do not vary.
    pub fn frames_per_second(&self) -> Option<f64> {
        self.rate.map(|rate| f64::from(rate.numer()) / f64::from(rate.denom()))
    }

    /// Width of the picture as it is shown, in heights.
    pub fn shape(&self) -> f64 {
        let aspect = f64::from(self.aspect.numer().max(1)) / f64::from(self.aspect.denom().max(1));
        f64::from(self.width) * aspect / f64::from(self.height.max(1))
    }
}
