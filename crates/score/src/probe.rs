// SPDX-License-Identifier: MPL-2.0

//! Examines a video before it is scored.

use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use gst::ClockTime;
use gst::prelude::*;
use gst_pbutils::DiscovererInfo;
use gst_pbutils::prelude::*;
use gst_video::{VideoColorimetry, VideoInfo, VideoTransferFunction};
use serde::Serialize;

use super::decoders::Decoders;
use super::preprocessing::Preprocessing;
use super::preview::Preview;
use super::reader::Reader;
use super::source::Input;
use super::{damage, missing};
use crate::error::Error;
use crate::interrupt;

/// Longest wait for a source.
const OPEN_TIMEOUT: ClockTime = ClockTime::from_seconds(30);
/// Containers with an exact index. Others estimate positions.
const INDEXED: [&str; 3] = ["video/quicktime", "video/x-matroska", "video/webm"];

/// Containers with an exact duration.
const WITH_DURATION: [&str; 5] =
    ["video/quicktime", "video/x-matroska", "video/webm", "video/x-flv", "video/x-msvideo"];
/// Interval of the checks for signals.
const LOOK: Duration = Duration::from_millis(20);

/// Properties of a video, from its container and its stream.
#[derive(Clone, Debug, Serialize)]
pub struct Video {
    /// The video as the user wrote it.
    pub input: String,
    /// Width of the pictures.
    pub width: u32,
    /// Height of the pictures.
    pub height: u32,
    /// Frames per second, unless they vary or are unknown.
    #[serde(serialize_with = "fraction")]
    pub rate: Option<gst::Fraction>,
    /// Duration, if it is known.
    #[serde(serialize_with = "seconds")]
    pub duration: Option<ClockTime>,
    /// Pixel aspect ratio.
    #[serde(skip)]
    pub aspect: gst::Fraction,
    /// Frames consist of two fields.
    pub interlaced: bool,
    /// The stream is tagged as HDR (PQ or HLG).
    pub hdr: bool,
    /// Colorimetry of the stream, if it is tagged.
    pub colorimetry: Option<String>,
    /// Codec.
    pub codec: String,
    /// The container has an index.
    #[serde(skip)]
    pub indexed: bool,
    /// Missing numbers in an image sequence.
    #[serde(skip)]
    pub missing: u64,
}

fn fraction<S: serde::Serializer>(rate: &Option<gst::Fraction>, s: S) -> Result<S::Ok, S::Error> {
    rate.map(|rate| format!("{}/{}", rate.numer(), rate.denom())).serialize(s)
}

fn seconds<S: serde::Serializer>(time: &Option<ClockTime>, s: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.nseconds() as f64 / 1e9).serialize(s)
}

impl Video {
    /// Examines the beginning of a video.
    pub fn probe(input: &Input) -> Result<Self, Error> {
        let failed = |why: String| Error::Failed(format!("{}: {}", input.given(), input.redact(&why)));
        if let Some(reader) = input.reader() {
            return Self::of_reader(input, reader);
        }
        let uri = input.uri().unwrap_or_default();
        if let Some(why) = input.files().first().and_then(|path| damage::without_index(path)) {
            return Err(Error::Damaged(format!("{}: it is damaged: {why}", input.given())));
        }
        let info = discover(uri).map_err(|error| match error {
            Error::Damaged(why) => Error::Damaged(format!("{}: {why}", input.given())),
            error => failed(error.to_string()),
        })?;
        let streams = info.video_streams();
        let Some(video) = streams.first() else {
            return Err(Error::Failed(format!("{} has no video", input.given())));
        };
        let container =
            info.stream_info().filter(|stream| stream.is::<gst_pbutils::DiscovererContainerInfo>());
        let container = container.and_then(|stream| stream.caps());
        let of_container = container.as_ref().and_then(|caps| caps.structure(0)).map(|s| s.name().as_str());
        let has_end = of_container.is_some_and(|name| WITH_DURATION.contains(&name));
        let duration = info.duration().filter(|_| has_end);
        // The audio may be longer than the pictures.
        let share = if info.audio_streams().is_empty() { 100 } else { 90 };
        input.damage().expect(duration.and_then(|duration| duration.mul_div_floor(share, 100)));
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
            missing: 0,
        })
    }

    /// Describes a video that the program reads itself.
    fn of_reader(input: &Input, reader: &Reader) -> Result<Self, Error> {
        let caps = if reader.is_coded() {
            let preview = Preview::open(input, Preprocessing::default())?;
            preview.next()?;
            preview.caps().ok_or_else(|| Error::Failed(format!("{} has no pictures", input.given())))?
        } else {
            reader.caps()
        };
        let info = VideoInfo::from_caps(&caps)?;
        Ok(Self {
            input: input.given().to_owned(),
            width: info.width(),
            height: info.height(),
            rate: Some(reader.rate()),
            duration: reader.duration(),
            aspect: info.par(),
            interlaced: info.is_interlaced(),
            hdr: false,
            colorimetry: caps.structure(0).and_then(|s| s.get("colorimetry").ok()),
            codec: reader.to_string(),
            indexed: false,
            missing: reader.missing(),
        })
    }

    /// Returns a video of this size for tests.
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
            missing: 0,
        }
    }

    /// Returns the frames per second if they are known and constant.
    pub fn frames_per_second(&self) -> Option<f64> {
        self.rate.map(|rate| f64::from(rate.numer()) / f64::from(rate.denom()))
    }

    /// Returns the name of the HDR transfer function.
    pub fn hdr_transfer(&self) -> Option<&'static str> {
        let colorimetry = self.colorimetry.as_deref()?.parse::<VideoColorimetry>().ok()?;
        match colorimetry.transfer() {
            VideoTransferFunction::Smpte2084 => Some("PQ"),
            VideoTransferFunction::AribStdB67 => Some("HLG"),
            _ => None,
        }
    }

    /// Returns the display aspect ratio.
    pub fn shape(&self) -> f64 {
        let aspect = f64::from(self.aspect.numer().max(1)) / f64::from(self.aspect.denom().max(1));
        f64::from(self.width) * aspect / f64::from(self.height.max(1))
    }
}

/// Lets GStreamer examine a video until a signal arrives.
fn discover(uri: &str) -> Result<DiscovererInfo, Error> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let uri = uri.to_owned();
    thread::Builder::new().name("probe".into()).spawn(move || {
        // After a signal the receiver is gone.
        let _ = sender.send(discover_to_the_end(&uri));
    })?;
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(info) => return info,
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err("it could not be examined".into()),
            Err(mpsc::RecvTimeoutError::Timeout) if interrupt::caught().is_some() => {
                return Err("interrupted while it was opened".into());
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
}

fn discover_to_the_end(uri: &str) -> Result<DiscovererInfo, Error> {
    let discoverer = gst_pbutils::Discoverer::new(OPEN_TIMEOUT)?;
    let decoders = Arc::new(OnceLock::new());
    let lacks = Arc::new(OnceLock::new());
    discoverer.connect_source_setup({
        let (decoders, lacks) = (decoders.clone(), lacks.clone());
        move |_, source| {
            let top = std::iter::successors(source.parent(), |object| object.parent()).last();
            decoders.get_or_init(|| top.and_downcast_ref().map(Decoders::set_up));
            let Some(bus) = top.and_downcast::<gst::Pipeline>().and_then(|pipeline| pipeline.bus()) else {
                return;
            };
            bus.enable_sync_message_emission();
            let lacks = lacks.clone();
            bus.connect_sync_message(Some("element"), move |_, message| {
                missing::of(message).into_iter().for_each(|what| drop(lacks.set(what)));
            });
        }
    });
    let error = match discoverer.discover_uri(uri) {
        Ok(info) if !info.video_streams().is_empty() => return Ok(info),
        Ok(info) if info.result() == gst_pbutils::DiscovererResult::Timeout && lacks.get().is_none() => {
            return Err(Error::Failed(format!("nothing has come of it within {} s", OPEN_TIMEOUT.seconds())));
        }
        Ok(info) => return lacks.get().map_or(Ok(info), |what| Err(Error::Failed(what.clone()))),
        Err(error) => error,
    };
    if let Some(what) = lacks.get() {
        return Err(Error::Failed(what.clone()));
    }
    let said = error.message().to_owned();
    if !matches!(error.kind(), Some(gst::StreamError::Demux | gst::StreamError::Decode)) {
        let stuck = decoders.get().and_then(|decoders| decoders.as_ref()?.stuck());
        return Err(Error::Failed(stuck.unwrap_or(said)));
    }
    Err(Error::Damaged(format!("it is damaged: {said}")))
}
