// SPDX-License-Identifier: MPL-2.0

//! Where video comes from: files, URIs and image sequences, decoded by what GStreamer has for them.

use std::path::Path;

use clap::ValueEnum;
use gst::prelude::*;

use super::treatment::Treatment;
use crate::error::Error;

/// A video that is there.
#[derive(Clone, Debug)]
pub struct Input {
    /// As the user wrote it.
    given: String,
    uri: String,
}

impl Input {
    /// A URI, a file, or an image sequence (`frames_%04d.png`) of so many frames per second.
    pub fn new(given: &str, image_rate: gst::Fraction) -> Result<Self, Error> {
        let uri = if given.contains("://") {
            given.to_owned()
        } else {
            let path = std::path::absolute(given).map_err(|error| format!("{given}: {error}"))?;
            let uri = glib::filename_to_uri(&path, None).map_err(|error| format!("{given}: {error}"))?;
            match sequence_start(&path) {
                Some(start) => format!(
                    "imagesequence{}?start-index={start}&framerate={}/{}",
                    uri.trim_start_matches("file"),
                    image_rate.numer(),
                    image_rate.denom()
                ),
                None => uri.into(),
            }
        };
        Ok(Self { given: given.to_owned(), uri })
    }

    /// What the user wrote.
    pub fn given(&self) -> &str {
        &self.given
    }

    /// For GStreamer.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Its last part, which is what tells encodings in a folder apart.
    pub fn name(&self) -> String {
        let path = if self.given.contains("://") { self.given.split(['?', '#']).next() } else { None };
        let path = path.unwrap_or(&self.given).trim_end_matches('/');
        path.rsplit('/').next().unwrap_or(path).to_owned()
    }
}

/// The number of the first image, where the path is the pattern of a sequence and not a file.
fn sequence_start(path: &Path) -> Option<u64> {
    let (before, rest) = path.file_name()?.to_str()?.split_once('%')?;
    let (width, after) = rest.split_once('d')?;
    if path.exists() || !width.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number = |name: &str| {
        let number = name.strip_prefix(before)?.strip_suffix(after)?;
        number.bytes().all(|digit| digit.is_ascii_digit()).then(|| number.parse().ok())?
    };
    let names = path.parent()?.read_dir().ok()?.flatten();
    names.filter_map(|entry| number(entry.file_name().to_str()?)).min()
}

/// Which decoders are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Decoder {
    /// What GStreamer ranks highest, which may be hardware
    #[default]
    Auto,
    /// Software alone
    Software,
    /// Hardware through VA-API, where it can
    Va,
    /// Hardware of NVIDIA, where it can
    Nv,
}

impl Decoder {
    /// Has GStreamer prefer these decoders, for the whole process.
    pub fn prefer(self) -> Result<(), Error> {
        let plugin = match self {
            Self::Auto | Self::Software => return Ok(()),
            Self::Va => "va",
            Self::Nv => "nvcodec",
        };
        let features = gst::Registry::get().features_by_plugin(plugin).into_iter();
        let decoders: Vec<_> = features
            .filter_map(|feature| feature.downcast::<gst::ElementFactory>().ok())
            .filter(|factory| factory.has_type(gst::ElementFactoryType::DECODER))
            .collect();
        if decoders.is_empty() {
            let why = format!("GStreamer's plugin {plugin} has no decoder for a GPU of this machine");
            return Err(Error::Failed(format!("{why}; try --decoder auto")));
        }
        decoders.iter().for_each(|decoder| decoder.set_rank(gst::Rank::PRIMARY + 512));
        Ok(())
    }
}

/// Has a video decoded and sent to an element that comes before hipvmaf. Nothing is converted that hipvmaf takes as it is: a
/// converter would bring one side to what the other has without a word, HDR video to 8 bits for instance, where hipvmaf
/// says what does not fit together.
pub fn decode(
    pipeline: &gst::Pipeline,
    input: &Input,
    treatment: Treatment,
    next: &gst::Element,
) -> Result<(), Error> {
    let Treatment { decoder, span, .. } = treatment;
    let source = gst::ElementFactory::make("uridecodebin")
        .property("uri", input.uri())
        .property("force-sw-decoders", decoder == Decoder::Software)
        .build()?;
    pipeline.add(&source)?;
    let next = treatment.before(pipeline, next)?;
    let sink = next.static_pad("sink").ok_or("what comes after the decoder has no pad named sink")?;
    let name = input.given().to_owned();
    source.connect_pad_added({
        let (sink, name) = (sink.clone(), name.clone());
        move |source, pad| match link(source, pad, &sink, &name) {
            Ok(true) => span.iter().for_each(|span| span.apply(pad)),
            Ok(false) => {}
            Err(err) => gst::element_error!(source, gst::CoreError::Pad, ("{name}: {err}")),
        }
    });
    source.connect_no_more_pads(move |source| {
        if !sink.is_linked() {
            gst::element_error!(source, gst::StreamError::WrongType, ("{name} has no video"));
        }
    });
    Ok(())
}

/// Whether the pad has the video, which is sent on then.
fn link(decoder: &gst::Element, pad: &gst::Pad, sink: &gst::Pad, name: &str) -> Result<bool, Error> {
    let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
    if sink.is_linked() || caps.structure(0).is_none_or(|s| s.name() != "video/x-raw") {
        return Ok(false);
    }
    if takes(&caps)? {
        pad.link(sink).map_err(refused)?;
        return Ok(true);
    }
    let convert = gst::ElementFactory::make("videoconvert").build()?;
    let pipeline = decoder.parent().and_downcast::<gst::Bin>().ok_or("the decoder is in no pipeline")?;
    pipeline.add(&convert)?;
    let ends = ["sink", "src"].map(|name| convert.static_pad(name));
    let [Some(input), Some(output)] = ends else { return Err("videoconvert lacks a pad".into()) };
    report(&convert, &output, format!("{name} is {}, which hipvmaf does not take", format_of(&caps)));
    output.link(sink).map_err(refused)?;
    convert.sync_state_with_parent()?;
    pad.link(&input).map_err(refused)?;
    Ok(true)
}

fn refused(error: gst::PadLinkError) -> Error {
    Error::Failed(error.to_string())
}

/// Whether the element takes video of this format, in this memory or, as decoders can be asked for, in that of the system.
fn takes(caps: &gst::Caps) -> Result<bool, Error> {
    let factory = gst::ElementFactory::find("hipvmaf").ok_or("there is no element hipvmaf")?;
    let mut of_system = caps.copy();
    of_system.make_mut().set_features_simple(None);
    Ok([caps, &of_system].into_iter().any(|caps| factory.can_sink_any_caps(caps)))
}

/// Warns of the conversion once it is known what to.
fn report(convert: &gst::Element, output: &gst::Pad, why: String) {
    let convert = convert.downgrade();
    output.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        let Some(gst::EventView::Caps(event)) = info.event().map(|event| event.view()) else {
            return gst::PadProbeReturn::Ok;
        };
        if let Some(convert) = convert.upgrade() {
            let format = format_of(&event.caps_owned());
            gst::element_warning!(convert, gst::StreamError::Format, ("{why}: it is converted to {format}"));
        }
        gst::PadProbeReturn::Remove
    });
}

fn format_of(caps: &gst::Caps) -> String {
    let format = caps.structure(0).and_then(|s| s.get::<String>("format").ok());
    format.unwrap_or_else(|| caps.to_string())
}

/// Ends the stream at the inputs of the element, after the frames that it has got. What was read and decoded ahead of
/// that is not scored any more.
pub fn end_stream(element: &gst::Element) {
    for source in element.sink_pads().iter().filter_map(|pad| pad.peer()) {
        // Between two frames.
        source.add_probe(gst::PadProbeType::IDLE, |source, _| {
            if let Some(sink) = source.peer() {
                // Refused only by a pad that has seen its end.
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
        Input::new(given, gst::Fraction::new(25, 1)).unwrap()
    }

    #[test]
    fn inputs_become_uris() {
        assert_eq!(input("/films/a film.mkv").uri(), "file:///films/a%20film.mkv");
        assert_eq!(input("https://host/a.mp4?b=c").uri(), "https://host/a.mp4?b=c");
        assert_eq!(input("https://host/a.mp4?b=c/d").name(), "a.mp4");
        assert_eq!(input("films/a.mkv").name(), "a.mkv");
        let folder = tempfile::tempdir().unwrap();
        let pattern = folder.path().join("f_%03d.png");
        let pattern = pattern.to_str().unwrap();
        assert!(input(pattern).uri().starts_with("file://"), "there are no images");
        for name in ["f_012.png", "f_007.png", "f_x.png"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let uri = input(pattern).uri().to_owned();
        assert!(
            uri.starts_with("imagesequence://") && uri.ends_with("f_%2503d.png?start-index=7&framerate=25/1")
        );
    }
}
