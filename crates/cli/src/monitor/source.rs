// SPDX-License-Identifier: MPL-2.0

//! Where video comes from.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A source, and what the user calls it.
#[derive(Clone, Debug)]
pub struct Named {
    pub label: String,
    pub source: Source,
}

#[derive(Clone, Debug)]
pub enum Source {
    /// A moving test picture, in real time.
    Test {
        width: u32,
        height: u32,
        fps: u32,
    },
    /// The reference through an encoder and a decoder, in kbit/s.
    Encode(u32),
    Uri(String),
}

impl FromStr for Named {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        // What has the characters of a URI before the sign is one, with a query.
        let named = text.split_once('=').filter(|(label, _)| !label.contains([':', '/', '?']));
        let (label, source) = named.unwrap_or((text, text));
        Ok(Self { label: label.into(), source: Source::parse(source) })
    }
}

impl Source {
    fn parse(text: &str) -> Self {
        if let Some(size) = text.strip_prefix("test:") {
            return Self::test(size).unwrap_or(Self::Test { width: 1280, height: 720, fps: 25 });
        }
        match text.strip_prefix("x264:").and_then(|rate| rate.parse().ok()) {
            Some(rate) => Self::Encode(rate),
            None => Self::Uri(text.into()),
        }
    }

    /// `WIDTHxHEIGHT@FPS`.
    fn test(text: &str) -> Option<Self> {
        let (size, fps) = text.split_once('@')?;
        let (width, height) = size.split_once('x')?;
        let number = |text: &str| text.parse().ok();
        Some(Self::Test { width: number(width)?, height: number(height)?, fps: number(fps)? })
    }

    /// Whether frames of the source come in their own time; others would be read as fast as they can be.
    pub fn is_live(&self) -> bool {
        match self {
            Self::Test { .. } | Self::Encode(_) => true,
            Self::Uri(uri) => {
                ["srt:", "udp:", "rtp:", "rtsp:", "rist:"].iter().any(|live| uri.starts_with(live))
            }
        }
    }

    /// Elements for [`gst::parse`] that end in raw video from the one named `out`; one that takes the reference is
    /// named `in`.
    pub fn description(&self) -> Result<String, String> {
        Ok(match self {
            Self::Test { width, height, fps } => format!(
                "videotestsrc is-live=true pattern=zone-plate kx2=12 ky2=12 kt=2 kxt=4 \
                 ! capsfilter name=out caps=video/x-raw,format=I420,width={width},height={height},framerate={fps}/1"
            ),
            Self::Encode(kbits) => {
                let encoder = encoder(*kbits);
                format!("queue name=in leaky=downstream ! {encoder} ! avdec_h264 ! videoconvert name=out")
            }
            // The frames of a file are sent at their time; a live source that is held up loses packets. Interlaced
            // video is refused by the element, so both sides are deinterlaced where needed.
            Self::Uri(uri) => {
                let uri = if uri.contains("://") { uri.clone() } else { file_uri(uri)? };
                if uri.contains(['"', '\\']) {
                    return Err(format!("{uri}: a URI has no quotes or backslashes"));
                }
                let pace = if self.is_live() { "identity" } else { "clocksync" };
                format!(
                    "uridecodebin uri=\"{uri}\" ! deinterlace mode=auto ! videoconvert ! videoscale \
                     ! {pace} name=out"
                )
            }
        })
    }
}

fn file_uri(path: &str) -> Result<String, String> {
    let path = std::path::absolute(path).map_err(|err| format!("{path}: {err}"))?;
    let uri = glib::filename_to_uri(&path, None);
    uri.map(String::from).map_err(|err| format!("{}: {err}", path.display()))
}

/// An encoder that is there; x264 if it is.
fn encoder(kbits: u32) -> String {
    let there = |name| gst::ElementFactory::find(name).is_some();
    if there("openh264enc") && !there("x264enc") {
        return format!("openh264enc bitrate={} rate-control=bitrate ! h264parse", kbits * 1000);
    }
    format!("x264enc bitrate={kbits} tune=zerolatency speed-preset=veryfast key-int-max=50")
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Test { width, height, fps } => write!(f, "test picture {width}x{height} at {fps}/s"),
            Self::Encode(kbits) => write!(f, "x264 at {kbits} kbit/s"),
            Self::Uri(uri) => f.write_str(uri),
        }
    }
}
