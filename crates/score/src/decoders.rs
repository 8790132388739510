// SPDX-License-Identifier: MPL-2.0

//! Decoders and formats with known defects, and how they are handled.
//!
//! Wrong pictures give wrong scores. If GStreamer has several decoders for a format, the one that equals the format's
//! reference decoder is preferred. If it has none, the file is rejected with the name of its format. The lists
//! describe GStreamer 1.22.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use gst::prelude::*;
use parking_lot::Mutex;

use crate::error::Error;

/// A decoder with wrong output: its name, its replacement, and the reason.
struct Inexact {
    element: &'static str,
    instead: &'static str,
    #[expect(dead_code, reason = "it is for readers of the list")]
    reason: &'static str,
}

const INEXACT: [Inexact; 5] = [
    Inexact {
        element: "jpegdec",
        instead: "avdec_mjpeg",
        reason: "its IDCT is the fast one of libjpeg, which changes 43 % of the samples",
    },
    Inexact {
        element: "pngdec",
        instead: "avdec_png",
        reason: "it gives the channels of 16 bits in the wrong order; avdec_png refuses them",
    },
    Inexact { element: "gdkpixbufdec", instead: "avdec_tiff", reason: "it silently reduces 16 bits to 8" },
    Inexact { element: "mpeg2dec", instead: "avdec_mpeg2video", reason: "libmpeg2 has an IDCT of its own" },
    Inexact {
        element: "openexrdec",
        instead: "avdec_exr",
        reason: "it delivers the first picture only; files in this format are refused before",
    },
];

/// Formats that cannot be read correctly: first bytes, name, reason, and advice.
const REFUSED: [(&[u8], &str, &str); 2] = [
    (
        b"\x76\x2f\x31\x01",
        "an OpenEXR picture",
        "linear light is not what is scored. Convert it as it is to be shown, to PNG with 16 bits for instance",
    ),
    (
        b"nut/multimedia container\0",
        "a NUT file",
        "GStreamer's demuxer does not reach its end. Copy it into Matroska (ffmpeg -i FILE -c copy FILE.mkv)",
    ),
];

/// Number of bytes that identify a format.
pub const HEAD: usize = 64;

/// Decoders to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Decoder {
    /// GStreamer's default, which may be hardware
    #[default]
    Auto,
    /// Software only
    Software,
    /// VA-API hardware, if available
    Va,
    /// NVIDIA hardware, if available
    Nv,
}

impl Decoder {
    /// Makes GStreamer prefer these decoders in the entire process.
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

/// Returns why a file with these first bytes cannot be read.
pub fn refusal(head: &[u8]) -> Option<String> {
    let known = REFUSED.iter().find(|(magic, _, _)| head.starts_with(magic));
    let known = known.map(|(_, name, why)| format!("it is {name}, which cannot be read correctly: {why}"));
    known.or_else(|| foreign_ebml(head))
}

/// Rejects EBML headers on which the demuxer of GStreamer 1.22 fails with critical warnings instead of an error.
fn foreign_ebml(head: &[u8]) -> Option<String> {
    const VERSION: u64 = 2;
    let mut rest = head.strip_prefix(b"\x1a\x45\xdf\xa3")?;
    let size = ebml_number(&mut rest)?;
    rest = rest.get(..usize::try_from(size).ok()?.min(rest.len()))?;
    while let Some(first) = rest.first() {
        let (id, after) = rest.split_at_checked(first.leading_zeros() as usize + 1)?;
        rest = after;
        let size = usize::try_from(ebml_number(&mut rest)?).ok()?;
        let (value, after) = rest.split_at_checked(size)?;
        rest = after;
        match id {
            b"\x42\x82" => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                if !matches!(name, b"matroska" | b"webm") {
                    let name = String::from_utf8_lossy(name);
                    return Some(format!(
                        "it is an EBML file of the type {name:?}, and not Matroska or WebM"
                    ));
                }
            }
            b"\x42\x85" if value.iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte)) > VERSION => {
                return Some(format!("it requires a later version of Matroska than {VERSION}"));
            }
            _ => {}
        }
    }
    None
}

/// Reads a number whose length is encoded in its leading zeros.
fn ebml_number(bytes: &mut &[u8]) -> Option<u64> {
    let zeros = bytes.first()?.leading_zeros() as usize;
    let (number, rest) = bytes.split_at_checked(zeros + 1).filter(|_| zeros < 8)?;
    *bytes = rest;
    let first = u64::from(number[0]) & (0x7f >> zeros);
    Some(number[1..].iter().fold(first, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// Prefers exact decoders in the entire process.
pub fn prefer_exact() {
    let find = gst::ElementFactory::find;
    for known in INEXACT {
        if let (Some(inexact), Some(exact)) = (find(known.element), find(known.instead)) {
            exact.set_rank(exact.rank().max(inexact.rank() + 1));
        }
    }
}

/// The decoders of a bin, with the input format of each and if it has delivered pictures.
#[derive(Clone, Default)]
pub struct Decoders {
    all: Arc<Mutex<Vec<(gst::Element, String, bool)>>>,
    /// The pipeline has posted an error.
    failed: Arc<AtomicBool>,
}

impl Decoders {
    /// Sets up the decoders that will be added to a bin.
    pub fn set_up(bin: &gst::Bin) -> Self {
        let decoders = Self::default();
        decoders.hear(bin);
        let all = decoders.clone();
        bin.connect_deep_element_added(move |_, _, element| {
            // GStreamer 1.22 crashes if a libav decoder renders directly into buffers of a format that has no name.
            if element.find_property("direct-rendering").is_some() {
                element.set_property("direct-rendering", false);
            }
            let Some(factory) = element.factory() else { return };
            if factory.name() == "jpegdec" {
                element.set_property_from_str("idct-method", "islow");
            }
            if factory.has_type(gst::ElementFactoryType::DECODER | gst::ElementFactoryType::MEDIA_VIDEO) {
                all.watch(element);
            }
        });
        decoders
    }

    fn watch(&self, decoder: &gst::Element) {
        for (name, is_output) in [("sink", false), ("src", true)] {
            let Some(pad) = decoder.static_pad(name) else { continue };
            let (all, of) = (self.clone(), decoder.downgrade());
            pad.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
                match (info.event().map(|event| event.view()), of.upgrade()) {
                    (Some(gst::EventView::Caps(event)), Some(decoder)) => {
                        all.note(decoder, event.caps(), is_output);
                    }
                    (Some(gst::EventView::Eos(_)), Some(decoder)) if !is_output && all.is_stuck(&decoder) => {
                        // GStreamer 1.22 crashes if a failed libav decoder is drained.
                        info.data = None;
                        return gst::PadProbeReturn::Handled;
                    }
                    _ => {}
                }
                gst::PadProbeReturn::Ok
            });
        }
    }

    fn note(&self, decoder: gst::Element, caps: &gst::CapsRef, is_output: bool) {
        let mut all = self.all.lock();
        match all.iter_mut().find(|(known, _, _)| *known == decoder) {
            Some((_, _, works)) => *works |= is_output,
            None if is_output => {}
            None => {
                let coded = gst_pbutils::pb_utils_get_codec_description(caps);
                all.push((decoder, coded.into(), false));
            }
        }
    }

    /// Notes an error of the bin's pipeline.
    fn hear(&self, bin: &gst::Bin) {
        let top =
            std::iter::successors(Some(bin.clone().upcast::<gst::Object>()), |object| object.parent()).last();
        let Some(bus) = top.and_downcast::<gst::Element>().and_then(|top| top.bus()) else { return };
        bus.enable_sync_message_emission();
        let failed = self.failed.clone();
        bus.connect_sync_message(Some("error"), move |_, _| failed.store(true, Ordering::Relaxed));
    }

    /// Returns true if the pipeline failed before this decoder delivered anything.
    fn is_stuck(&self, decoder: &gst::Element) -> bool {
        let all = self.all.lock();
        let works = all.iter().any(|(known, _, works)| known == decoder && *works);
        self.failed.load(Ordering::Relaxed) && !works
    }

    /// Returns the format that could not be decoded, if this stopped the bin.
    pub fn stuck(&self) -> Option<String> {
        let all = self.all.lock();
        all.iter().find(|(_, _, works)| !works).map(|(_, coded, _)| {
            format!(
                "it is {coded} with a pixel format that GStreamer has no name for; convert it to planes of 8, 10 or 12 bits \
                 (ffmpeg -pix_fmt yuv420p12le for instance), or to PNG"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_foreign_ebml_files_are_refused() {
        let file = |name: &[u8], version: u8| {
            let name = [b"\x42\x82".as_slice(), &[0x80 | name.len() as u8], name].concat();
            // A checksum with a one-byte identifier, and data after the header.
            let body =
                [b"\xbf\x84abcd".as_slice(), &name, b"\x42\x87\x81\x04\x42\x85\x81", &[version]].concat();
            [b"\x1a\x45\xdf\xa3\x01\0\0\0\0\0\0".as_slice(), &[body.len() as u8], &body, b"\x18\x53"].concat()
        };
        assert_eq!(refusal(&file(b"matroska", 2)), None);
        assert_eq!(refusal(&file(b"webm\0\0", 1)), None);
        assert!(refusal(&file(b"matroshka", 2)).is_some_and(|why| why.contains("\"matroshka\"")));
        assert!(refusal(&file(b"matroska", 3)).is_some_and(|why| why.contains("later version")));
        let whole = file(b"matroska", 2);
        assert!((0..whole.len()).all(|end| refusal(&whole[..end]).is_none()));
        assert!((0..32).all(|at| {
            let mut broken = whole.clone();
            broken[at] ^= 0xff;
            refusal(&broken).is_none_or(|why| why.starts_with("it "))
        }));
    }
}
