// SPDX-License-Identifier: MPL-2.0

//! Sources of video: files, URIs and image sequences.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gst::prelude::*;
use gst_video::VideoFormat;
use tempfile::NamedTempFile;

use super::damage::Damage;
use super::decoders::{self, Decoder, Decoders};
use super::fragments;
use super::preprocessing::Preprocessing;
use super::reader::{Images, Raw, Reader, Stream, spool};
use crate::error::Error;
use crate::redact;

/// An existing video.
#[derive(Clone, Debug)]
pub struct Input {
    whole: String,
    /// The name without credentials.
    given: String,
    origin: Origin,
    damage: Damage,
}

/// How a video is read.
#[derive(Clone, Debug)]
enum Origin {
    /// By GStreamer.
    Uri(String),
    /// By the program itself.
    Reader(Reader),
    /// By GStreamer, from a copy of a stream. The copy is removed with its last user.
    Copy(String, #[expect(dead_code, reason = "it is there to be dropped")] Arc<NamedTempFile>),
}

impl Input {
    /// Opens a URI, a file, standard input (`-`), a FIFO, or an image sequence (`frames_%04d.png`) with this frame
    /// rate.
    pub fn new(given: &str, image_rate: gst::Fraction, raw: Option<Raw>) -> Result<Self, Error> {
        let origin = Origin::new(given, image_rate, raw)
            .map_err(|why| Error::Failed(format!("{}: {}", redact::uri(given), redact::text(&why, given))));
        Ok(Self {
            whole: given.to_owned(),
            given: redact::uri(given),
            origin: origin?,
            damage: Damage::default(),
        })
    }

    /// Returns the user's text, without credentials in a URI.
    pub fn given(&self) -> &str {
        &self.given
    }

    /// Removes the video's credentials from a text.
    pub fn redact(&self, text: &str) -> String {
        redact::text(text, &self.whole)
    }

    /// Returns the URI for GStreamer, unless the program reads the video itself.
    pub fn uri(&self) -> Option<&str> {
        match &self.origin {
            Origin::Uri(uri) | Origin::Copy(uri, _) => Some(uri),
            Origin::Reader(_) => None,
        }
    }

    /// Returns the program's own reader, if it has one for the video.
    pub fn reader(&self) -> Option<&Reader> {
        match &self.origin {
            Origin::Reader(reader) => Some(reader),
            Origin::Uri(_) | Origin::Copy(..) => None,
        }
    }

    /// Returns true if the video can be read only once, and so cannot be examined before scoring.
    pub fn is_stream(&self) -> bool {
        self.reader().is_some_and(Reader::is_stream)
    }

    /// Returns the damage found so far.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Returns the files of the video.
    pub fn files(&self) -> Vec<PathBuf> {
        if let Some(Reader::Images(images)) = self.reader() {
            return images.paths().to_owned();
        }
        match glib::filename_from_uri(&self.whole) {
            Ok((path, _)) => vec![path],
            Err(_) if self.whole.contains("://") => vec![],
            Err(_) => vec![self.whole.clone().into()],
        }
    }

    /// Returns the last part of the name, which distinguishes encodes in a folder.
    pub fn name(&self) -> String {
        let path = if self.given.contains("://") { self.given.split(['?', '#']).next() } else { None };
        let path = path.unwrap_or(&self.given).trim_end_matches('/');
        path.rsplit('/').next().unwrap_or(path).to_owned()
    }
}

impl Origin {
    fn new(given: &str, rate: gst::Fraction, raw: Option<Raw>) -> Result<Self, String> {
        let of_uri = given.starts_with("file://").then(|| glib::filename_from_uri(given).ok()).flatten();
        if of_uri.is_none() && given.contains("://") {
            check_uri(given)?;
            return Ok(Self::Uri(given.to_owned()));
        }
        let path = of_uri.map_or_else(|| given.into(), |(path, _)| path);
        if let Some(stream) = Stream::open(&path)? {
            return Self::of_stream(stream, rate, raw);
        }
        let path = std::path::absolute(path).map_err(|error| error.to_string())?;
        if let Some(images) = Images::of_pattern(&path, rate)? {
            return Ok(Self::Reader(Reader::Images(images.into())));
        }
        let head = head(&path);
        if let Some(why) = decoders::refusal(&head) {
            return Err(why);
        }
        match Reader::of_file(&path, &head, raw, rate)? {
            Some(reader) => Ok(Self::Reader(reader)),
            None => Ok(Self::Uri(uri(&path)?)),
        }
    }

    fn of_stream(mut stream: Stream, rate: gst::Fraction, raw: Option<Raw>) -> Result<Self, String> {
        if let Some(why) = decoders::refusal(stream.peek(decoders::HEAD)?) {
            return Err(why);
        }
        match Reader::of_stream(stream, raw, rate)? {
            Ok(reader) => Ok(Self::Reader(reader)),
            Err(stream) => {
                let copy = spool(stream)?;
                Ok(Self::Copy(uri(copy.path())?, copy.into()))
            }
        }
    }
}

/// Rejects URIs that would crash or block GStreamer: web addresses without a host, and those of its reader for image
/// sequences.
pub fn check_uri(uri: &str) -> Result<(), String> {
    let (scheme, rest) = uri.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    if scheme.eq_ignore_ascii_case("imagesequence") {
        return Err("write image sequences as file names, such as frames_%04d.png".into());
    }
    let is_web = ["http", "https"].iter().any(|web| scheme.eq_ignore_ascii_case(web));
    if is_web && (host.is_empty() || host.starts_with(':')) { Err("it has no host".into()) } else { Ok(()) }
}

fn uri(path: &Path) -> Result<String, String> {
    glib::filename_to_uri(path, None).map(String::from).map_err(|error| error.to_string())
}

/// Reads the first bytes of a file. An unreadable file gives nothing here, and an error when it is opened.
fn head(path: &Path) -> Vec<u8> {
    let mut head = vec![];
    let file = File::open(path).and_then(|file| file.take(decoders::HEAD as u64).read_to_end(&mut head));
    file.map_or(vec![], |_| head)
}

/// Returns the damaged inputs, as the user wrote them, with descriptions.
pub fn damaged<'a>(inputs: impl Iterator<Item = &'a Input> + Clone) -> Vec<(String, String)> {
    let found = |perhaps| {
        let text = |input: &Input| Some((input.given().to_owned(), input.damage().found(perhaps)?));
        inputs.clone().filter_map(text).collect::<Vec<_>>()
    };
    // An ambiguous message is attributed to an input that is known to be damaged.
    Some(found(false)).filter(|found| !found.is_empty()).unwrap_or_else(|| found(true))
}

/// Returns one line for each damaged input.
pub fn damage_lines<'a>(inputs: impl Iterator<Item = &'a Input> + Clone) -> Vec<String> {
    damaged(inputs).into_iter().map(|(video, text)| format!("{video}: {text}")).collect()
}

/// Adds the damage to an error, since it may be the cause.
pub fn explain_damage<'a>(error: Error, inputs: impl Iterator<Item = &'a Input> + Clone) -> Error {
    let damaged: Vec<_> = damage_lines(inputs).into_iter().map(|line| format!("\n{line}")).collect();
    match error {
        Error::Failed(why) | Error::Refused(why) if !damaged.is_empty() => {
            Error::Damaged(why + &damaged.concat())
        }
        error => error,
    }
}

/// Decodes a video and sends it to an element before hipvmaf. No converter is inserted for formats that hipvmaf
/// accepts: it would silently adapt one side to the other, for example reduce HDR video to 8 bits, where hipvmaf
/// reports the mismatch.
pub fn decode(
    pipeline: &gst::Pipeline,
    input: &Input,
    preprocessing: Preprocessing,
    next: &gst::Element,
) -> Result<Decoders, Error> {
    let Preprocessing { decoder, time_range, .. } = preprocessing;
    let next = preprocessing.before(pipeline, next)?;
    let sink = next.static_pad("sink").ok_or("what comes after the decoder has no pad named sink")?;
    let name = input.given().to_owned();
    let send = {
        let (sink, name) = (sink.clone(), name.clone());
        let damage = input.damage().clone();
        move |source: &gst::Element, pad: &gst::Pad| match link(pad, &caps_of(pad), &sink) {
            Ok(true) => {
                damage.watch(pad, time_range.is_none());
                time_range.iter().for_each(|time_range| time_range.apply(pad));
            }
            Ok(false) => {}
            Err(err) => gst::element_error!(source, gst::CoreError::Pad, ("{name}: {err}")),
        }
    };
    let source = match input.reader() {
        None => {
            let source = gst::ElementFactory::make("uridecodebin")
                .property("uri", input.uri())
                .property("force-sw-decoders", decoder == Decoder::Software)
                .build()?;
            pipeline.add(&source)?;
            fragments::open_end(&source, input.uri());
            source
        }
        Some(reader) => {
            let source = reader.element(input.given())?;
            pipeline.add(&source)?;
            if !reader.is_coded() {
                let pad = source.static_pad("src").ok_or("a reader has no pad")?;
                return if link(&pad, &reader.caps(), &sink)? {
                    time_range.iter().for_each(|time_range| time_range.apply(&pad));
                    Ok(Decoders::default())
                } else {
                    Err(Error::Failed(format!("{name} has no video")))
                };
            }
            let decode = gst::ElementFactory::make("decodebin").build()?;
            pipeline.add(&decode)?;
            source.link(&decode)?;
            decode
        }
    };
    let decoders = source.downcast_ref().map(Decoders::set_up).unwrap_or_default();
    source.downcast_ref().iter().for_each(|bin| input.damage().listen(bin));
    source.connect_pad_added(send);
    source.connect_no_more_pads(move |source| {
        if !sink.is_linked() {
            gst::element_error!(source, gst::StreamError::WrongType, ("{name} has no video"));
        }
    });
    Ok(decoders)
}

fn caps_of(pad: &gst::Pad) -> gst::Caps {
    pad.current_caps().unwrap_or_else(|| pad.query_caps(None))
}

/// Links the pad if it carries the video, and returns true then.
fn link(pad: &gst::Pad, caps: &gst::Caps, sink: &gst::Pad) -> Result<bool, Error> {
    if sink.is_linked() || caps.structure(0).is_none_or(|s| s.name() != "video/x-raw") {
        return Ok(false);
    }
    pad.link(sink).map_err(|error| Error::Failed(error.to_string()))?;
    Ok(true)
}

/// Returns true if the element accepts this format.
pub fn takes(format: VideoFormat) -> Result<bool, Error> {
    let factory = gst::ElementFactory::find("hipvmaf").ok_or("there is no element hipvmaf")?;
    Ok(factory.can_sink_any_caps(&gst_video::VideoCapsBuilder::new().format(format).build()))
}

/// Ends the stream at the element's inputs after its current frames. Frames that were decoded ahead are not scored.
pub fn end_stream(element: &gst::Element) {
    for source in element.sink_pads().iter().filter_map(|pad| pad.peer()) {
        // Waits until no frame is being sent.
        source.add_probe(gst::PadProbeType::IDLE, |source, _| {
            if let Some(sink) = source.peer() {
                // Fails only if the stream has ended already.
                let _ = sink.send_event(gst::event::Eos::new());
            }
            gst::PadProbeReturn::Remove
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(given: &str) -> Input {
        Input::new(given, gst::Fraction::new(25, 1), None).unwrap()
    }

    #[test]
    fn inputs_become_uris() {
        assert_eq!(input("/films/a film.mkv").uri(), Some("file:///films/a%20film.mkv"));
        assert_eq!(input("file:///films/a%20film.mkv").uri(), Some("file:///films/a%20film.mkv"));
        assert_eq!(input("https://host/a.mp4?b=c").uri(), Some("https://host/a.mp4?b=c"));
        assert_eq!(input("https://host/a.mp4?b=c/d").name(), "a.mp4");
        assert_eq!(input("films/a.mkv").name(), "a.mkv");
    }
}
