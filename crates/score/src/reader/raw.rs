// SPDX-License-Identifier: MPL-2.0

//! Raw video in the format of `--raw`.

use std::path::Path;
use std::str::FromStr;

use gst_video::{VideoFormat, VideoFormatFlags, VideoFormatInfo};

use super::planes::{Header, Samples};

/// File extensions of raw video.
const ENDINGS: [&str; 8] = ["yuv", "raw", "rgb", "nv12", "p010", "gray", "i420", "bin"];

/// Format of raw video: `1920x1080:yuv420p10le:25`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw {
    width: u32,
    height: u32,
    samples: Samples,
    rate: gst::Fraction,
}

impl Raw {
    /// Returns the equivalent header.
    pub fn header(&self) -> Header {
        let Self { width, height, samples, rate } = *self;
        Header { width, height, samples, rate, ..Header::default() }
    }
}

impl FromStr for Raw {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(':');
        let (Some(size), Some(format), rate, None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err("write raw video as WIDTHxHEIGHT:FORMAT:RATE, such as 1920x1080:yuv420p:25");
        };
        let size = size.split_once('x').and_then(|(width, height)| {
            let number = |text: &str| text.parse().ok().filter(|number| (1..=1 << 15).contains(number));
            Some((number(width)?, number(height)?))
        });
        let (width, height) = size.ok_or("the size of raw video is written as WIDTHxHEIGHT")?;
        let samples = samples(format).ok_or(
            "the format of raw video is one of ffmpeg's names, such as yuv420p, yuv422p10le, nv12, gray or rgb24",
        )?;
        let rate = frames_per_second(rate.unwrap_or("25"))?;
        Ok(Self { width, height, samples, rate })
    }
}

/// Parses frames per second.
pub fn frames_per_second(text: &str) -> Result<gst::Fraction, &'static str> {
    let (numer, denom) = text.split_once('/').unwrap_or((text, "1"));
    match [numer, denom].map(|number| number.parse().ok().filter(|number| (1..1_000_000).contains(number))) {
        [Some(numer), Some(denom)] => Ok(gst::Fraction::new(numer, denom)),
        _ => Err("a rate is written as 25 or 24000/1001"),
    }
}

/// Returns true if a file with this name contains raw video.
pub fn is_name(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}

/// Parses a pixel format of ffmpeg or GStreamer.
fn samples(name: &str) -> Option<Samples> {
    let format = match name {
        "nv12" => VideoFormat::Nv12,
        "nv21" => VideoFormat::Nv21,
        "p010" | "p010le" => VideoFormat::P01010le,
        "gray" => VideoFormat::Gray8,
        "rgb24" => VideoFormat::Rgb,
        "bgr24" => VideoFormat::Bgr,
        "rgba" => VideoFormat::Rgba,
        "bgra" => VideoFormat::Bgra,
        "yuyv422" => VideoFormat::Yuy2,
        "uyvy422" => VideoFormat::Uyvy,
        _ => {
            let planar = |name: &str| {
                let (subsampling, bits) = name.split_once('p')?;
                Samples::new(subsampling, if bits.is_empty() { 8 } else { bits.parse().ok()? })
            };
            let bits = |name: &str| Samples::new("mono", name.parse().ok()?);
            let name = name.strip_suffix("le").unwrap_or(name);
            return match (name.strip_prefix("yuv"), name.strip_prefix("gray")) {
                (Some(name), _) => planar(name),
                (_, Some(name)) => bits(name),
                _ => of_gstreamer(name),
            };
        }
    };
    let bits = if format == VideoFormat::P01010le { 10 } else { 8 };
    Some(Samples::as_is(format, bits))
}

fn of_gstreamer(name: &str) -> Option<Samples> {
    gst::init().ok()?;
    let format: VideoFormat = name.parse().ok()?;
    let is_pixels = !matches!(format, VideoFormat::Unknown | VideoFormat::Encoded)
        && !VideoFormatInfo::from_format(format).flags().contains(VideoFormatFlags::COMPLEX);
    let bits = VideoFormatInfo::from_format(format).depth().first().copied();
    Some(Samples::as_is(format, bits.filter(|_| is_pixels)?))
}
