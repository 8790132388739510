// SPDX-License-Identifier: MPL-2.0

//! Sources of video.
//!
//! Parses the addresses of users, and rejects those that cannot exist. Sources differ in three ways: if their end is
//! a failure, if frames arrive before their time, and what their timestamps mean.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;

use super::settings::read_from_text;

use score::check_uri;
use score::redact;

/// A source with its name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Named {
    pub label: String,
    pub source: Source,
}

/// Origin of a video.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Source {
    /// A moving test pattern in real time.
    Test {
        width: u32,
        height: u32,
        fps: u32,
    },
    /// The reference, encoded at this bit rate in kbit/s and decoded again.
    Encode(u32),
    File(PathBuf),
    Uri(String),
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Text with URI characters before the equals sign is a URI with a query.
        let named = text.split_once('=').filter(|(label, _)| !label.contains([':', '/', '?']));
        let Some((label, source)) = named else {
            return Ok(Self { label: redact::uri(text), source: text.parse()? });
        };
        check_name(label)?;
        Ok(Self { label: label.into(), source: source.parse()? })
    }
}

read_from_text!(Named, Source);

/// Checks a name, which appears in addresses, metric labels and log lines.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > 100 || name.contains(|c: char| c.is_control() || c == '/') {
        return Err(format!(
            "{name:?} is no name: it has 1 to 100 bytes, and no slashes or control characters"
        ));
    }
    Ok(())
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(size) = text.strip_prefix("test:") {
            return test(size)
                .ok_or(format!("{text} is not a test pattern: write test: or test:1280x720@25"));
        }
        if let Some(rate) = text.strip_prefix("x264:") {
            let rate = rate.parse().ok().filter(|rate| (1..=1_000_000).contains(rate));
            return rate
                .map(Self::Encode)
                .ok_or(format!("{text} is not a bit rate: write x264:3000 for 3000 kbit/s"));
        }
        if let Some((scheme, _)) = text.split_once("://") {
            let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
            if scheme.is_empty() || !scheme.chars().all(is_scheme) || text.contains(['"', '\\', '\n']) {
                return Err(format!("{} is not a URI", redact::uri(text)));
            }
            check_uri(text).map_err(|why| format!("{}: {why}", redact::uri(text)))?;
            let file = text.strip_prefix("file://").and_then(|_| glib::filename_from_uri(text).ok());
            return Ok(file.map_or_else(|| Self::Uri(text.into()), |(path, _)| Self::File(path)));
        }
        if text.is_empty() {
            return Err("a source is a file, a URI, test: or x264:KBITS, and not empty".into());
        }
        Ok(Self::File(text.into()))
    }
}

/// Parses `WIDTHxHEIGHT@FPS`. An empty text gives the default.
fn test(text: &str) -> Option<Source> {
    if text.is_empty() {
        return Some(Source::Test { width: 1280, height: 720, fps: 25 });
    }
    let (size, fps) = text.split_once('@')?;
    let (width, height) = size.split_once('x')?;
    let number = |text: &str, most| text.parse().ok().filter(|number| (1..=most).contains(number));
    Some(Source::Test {
        width: number(width, 16384)?,
        height: number(height, 16384)?,
        fps: number(fps, 1000)?,
    })
}

impl Source {
    /// Checks if a plugin can read the source. Needs GStreamer; does not connect.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Uri(uri) => reader(uri).map_err(|error| {
                let why = if is_unknown(&error) {
                    "no plugin of GStreamer that is installed reads it"
                } else {
                    error.message()
                };
                format!("{}: {}", redact::uri(uri), redact::text(why, uri))
            }),
            Self::File(path) if path.is_dir() => Err(format!("{} is a folder", path.display())),
            Self::File(path) if !path.exists() => match path.to_str().and_then(|text| text.split_once(':')) {
                Some((scheme, rest)) if is_scheme(scheme) => Err(format!(
                    "{scheme}:{rest} is not a URI: write {scheme}://{}",
                    rest.trim_start_matches('/')
                )),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Returns true if the source is endless, so that its end is a failure.
    pub fn is_live(&self) -> bool {
        match self {
            Self::Test { .. } | Self::Encode(_) => true,
            Self::File(_) => false,
            Self::Uri(uri) => !is_http(uri) || is_adaptive(uri),
        }
    }

    /// Returns true if the source can take the place of another such source while the channel runs.
    pub fn is_replaceable(&self) -> bool {
        matches!(self, Self::Uri(_)) && self.is_live()
    }

    /// Returns true if frames arrive before their time: all frames of a file, segments of adaptive streams in bursts.
    fn is_early(&self) -> bool {
        match self {
            Self::Test { .. } | Self::Encode(_) => false,
            Self::File(_) => true,
            Self::Uri(uri) => is_http(uri),
        }
    }

    /// Returns true if frames are stamped on arrival, as with most live sources.
    pub fn stamps_arrival(&self) -> bool {
        !matches!(self, Self::Uri(uri) if is_http(uri) || uri.starts_with("rtmp"))
    }

    /// Returns the path of a file.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            _ => None,
        }
    }

    /// Removes the source's credentials from a text of GStreamer.
    pub fn redact(&self, text: &str) -> String {
        match self {
            Self::Uri(uri) => redact::text(text, uri),
            _ => redact::quoted(text),
        }
    }

    /// Returns a launch description. Raw video leaves the element named `out`; the reference enters the one named
    /// `in`, if there is one; after the one named `timed`, frames have the timestamps of the source.
    pub fn description(&self) -> Result<String, String> {
        Ok(match self {
            Self::Test { width, height, fps } => format!(
                "videotestsrc is-live=true pattern=zone-plate kx2=12 ky2=12 kt=2 kxt=4 \
                 ! capsfilter name=timed caps=video/x-raw,format=I420,width={width},height={height},framerate={fps}/1 \
                 ! identity name=out"
            ),
            Self::Encode(kbits) => {
                let encoder = encoder(*kbits);
                format!(
                    "queue name=in leaky=downstream ! {encoder} ! h264parse ! avdec_h264 ! videoconvert name=timed ! identity name=out"
                )
            }
            // The element rejects interlaced video, so both sides are deinterlaced if needed. Blocking a live source
            // would lose packets, so only early frames wait for their time.
            Self::File(_) | Self::Uri(_) => {
                let pace = if self.is_early() { "clocksync" } else { "identity" };
                // Files carry an orientation, which players apply.
                let turn = match self {
                    Self::File(_) => "videoconvert ! videoflip video-direction=auto ! ",
                    _ => "",
                };
                let uri = self.uri()?;
                format!(
                    "uridecodebin name=decoder uri=\"{uri}\" ! deinterlace mode=auto ! {turn}videoconvert name=timed ! {pace} name=out"
                )
            }
        })
    }

    fn uri(&self) -> Result<String, String> {
        match self {
            Self::Uri(uri) => Ok(uri.clone()),
            Self::File(path) => file_uri(path),
            Self::Test { .. } | Self::Encode(_) => Err("the source has no address".into()),
        }
    }
}

/// Returns an error unless GStreamer has an element that accepts this URI.
fn reader(uri: &str) -> Result<(), glib::Error> {
    gst::Element::make_from_uri(gst::URIType::Src, uri, None).map(|_| ())
}

fn is_unknown(error: &glib::Error) -> bool {
    error.matches(gst::URIError::UnsupportedProtocol)
}

/// Returns true if a URI can begin like this.
fn is_scheme(scheme: &str) -> bool {
    scheme.chars().all(|c| c.is_ascii_alphanumeric())
        && !reader(&format!("{scheme}://host")).is_err_and(|error| is_unknown(&error))
}

fn is_http(uri: &str) -> bool {
    uri.starts_with("http://") || uri.starts_with("https://")
}

/// Returns true for manifests of HLS and DASH, judging by the name.
fn is_adaptive(uri: &str) -> bool {
    let path = uri.split(['?', '#']).next().unwrap_or(uri);
    [".m3u8", ".m3u", ".mpd"].iter().any(|ending| path.to_ascii_lowercase().ends_with(ending))
}

fn file_uri(path: &Path) -> Result<String, String> {
    let path = std::path::absolute(path).map_err(|err| format!("{}: {err}", path.display()))?;
    let uri = glib::filename_to_uri(&path, None);
    uri.map(String::from).map_err(|err| format!("{}: {err}", path.display()))
}

/// Describes an available encoder, preferably x264.
fn encoder(kbits: u32) -> String {
    let there = |name| gst::ElementFactory::find(name).is_some();
    if there("openh264enc") && !there("x264enc") {
        return format!("openh264enc bitrate={} rate-control=bitrate", kbits.saturating_mul(1000));
    }
    format!("x264enc bitrate={kbits} tune=zerolatency speed-preset=veryfast key-int-max=50")
}

/// Prints the source without credentials.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Test { width, height, fps } => write!(f, "test picture {width}x{height} at {fps}/s"),
            Self::Encode(kbits) => write!(f, "x264 at {kbits} kbit/s"),
            Self::File(path) => path.display().fmt(f),
            Self::Uri(uri) => f.write_str(&redact::uri(uri)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_that_cannot_exist_are_refused() {
        for text in [
            "x264:abc",
            "x264:",
            "x264:0",
            "x264:-1",
            "test:foo",
            "test:0x10@25",
            "test:10x10@",
            "",
            "a b://c",
            "://x",
            "high=",
            "=test:",
            "a\nb=test:",
            "srt://\"x",
            "http://",
            "a=https://:80/x",
            "imagesequence://%s",
        ] {
            assert!(text.parse::<Named>().is_err(), "{text}");
        }
    }

    #[test]
    fn names_stand_before_sources() {
        for (text, label, source) in [
            ("test:", "test:", Source::Test { width: 1280, height: 720, fps: 25 }),
            ("low=x264:300", "low", Source::Encode(300)),
            ("a.mp4", "a.mp4", Source::File("a.mp4".into())),
            ("x=a=b.mp4", "x", Source::File("a=b.mp4".into())),
            ("srt://h:1?mode=caller", "srt://h:1?…", Source::Uri("srt://h:1?mode=caller".into())),
            ("up=srt://h:1?mode=caller", "up", Source::Uri("srt://h:1?mode=caller".into())),
            ("file:///a%20b", "file:///a%20b", Source::File("/a b".into())),
        ] {
            assert_eq!(text.parse(), Ok(Named { label: label.into(), source }), "{text}");
        }
    }

    #[test]
    fn what_has_no_end_is_live() {
        for (text, live) in [
            ("http://h/live.m3u8", true),
            ("https://h/Live.M3U8?token=film.mp4", true),
            ("http://h/manifest.mpd", true),
            ("http://h/film.mp4?list=a.m3u8", false),
            ("rtmp://h/app/key", true),
            ("rtmps://h/app/key", true),
            ("rtsp://h/live", true),
            ("rtsps://h/live", true),
            ("srt://h:1", true),
            ("udp://h:1", true),
            ("film.mp4", false),
            ("test:", true),
        ] {
            assert_eq!(text.parse::<Source>().unwrap().is_live(), live, "{text}");
        }
    }
}
