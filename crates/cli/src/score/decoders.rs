// SPDX-License-Identifier: MPL-2.0

//! Decoders and formats that are known to deliver wrong pictures, and what is done about each.
//!
//! A score is only as good as the pictures that it is of. Where GStreamer has several decoders for a format, the one
//! that delivers what the format's reference decoder does is preferred; where it has none, the file is refused with the
//! name of its format. The lists are those of GStreamer 1.22.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gst::prelude::*;

/// A decoder that delivers other samples than it should: its name, what is used instead, and why.
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
    Inexact {
        element: "gdkpixbufdec",
        instead: "avdec_tiff",
        reason: "it reduces 16 bits to 8 without a word",
    },
    Inexact { element: "mpeg2dec", instead: "avdec_mpeg2video", reason: "libmpeg2 has an IDCT of its own" },
    Inexact {
        element: "openexrdec",
        instead: "avdec_exr",
        reason: "it delivers the first picture only; files in this format are refused before",
    },
];

/// Formats that nothing here reads as they are: how files begin, what they are called, why, and what to do.
const REFUSED: [(&[u8], &str, &str); 2] = [
    (
        b"\x76\x2f\x31\x01",
        "an OpenEXR picture",
        "linear light is not what is scored. Convert it as it is to be shown, to PNG with 16 bits for instance",
    ),
    (
        b"nut/multimedia container\0",
        "a NUT file",
        "the demuxer of GStreamer does not come to its end. Copy it into Matroska (ffmpeg -i FILE -c copy FILE.mkv)",
    ),
];

/// How many bytes of a file say what it is.
pub const HEAD: usize = 25;

/// Why a file that begins so cannot be read.
pub fn refusal(head: &[u8]) -> Option<String> {
    let (_, name, why) = REFUSED.iter().find(|(magic, _, _)| head.starts_with(magic))?;
    Some(format!("it is {name}, which cannot be read rightly: {why}"))
}

/// Prefers decoders that are exact, for the whole process.
pub fn prefer_exact() {
    let find = gst::ElementFactory::find;
    for known in INEXACT {
        if let (Some(inexact), Some(exact)) = (find(known.element), find(known.instead)) {
            exact.set_rank(exact.rank().max(inexact.rank() + 1));
        }
    }
}

/// The decoders of a bin: what each decodes, once something has come of it to be decoded, and whether pictures have.
#[derive(Clone, Default)]
pub struct Decoders {
    all: Arc<Mutex<Vec<(gst::Element, String, bool)>>>,
    /// The pipeline has posted an error.
    failed: Arc<AtomicBool>,
}

impl Decoders {
    /// Sets up the decoders that will be in a bin.
    pub fn set_up(bin: &gst::Bin) -> Self {
        let decoders = Self::default();
        decoders.hear(bin);
        let all = decoders.clone();
        bin.connect_deep_element_added(move |_, _, element| {
            // GStreamer 1.22 crashes where a decoder of libav draws into its buffers and has no name for the format.
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
                        // GStreamer 1.22 crashes where a decoder of libav that has failed gives out what is left.
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
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        match all.iter_mut().find(|(known, _, _)| *known == decoder) {
            Some((_, _, works)) => *works |= is_output,
            None if is_output => {}
            None => {
                let coded = gst_pbutils::pb_utils_get_codec_description(caps);
                all.push((decoder, coded.into(), false));
            }
        }
    }

    /// Notes whether the pipeline of a bin has failed.
    fn hear(&self, bin: &gst::Bin) {
        let top =
            std::iter::successors(Some(bin.clone().upcast::<gst::Object>()), |object| object.parent()).last();
        let Some(bus) = top.and_downcast::<gst::Element>().and_then(|top| top.bus()) else { return };
        bus.enable_sync_message_emission();
        let failed = self.failed.clone();
        bus.connect_sync_message(Some("error"), move |_, _| failed.store(true, Ordering::Relaxed));
    }

    /// The pipeline has failed before anything has come of the decoder.
    fn is_stuck(&self, decoder: &gst::Element) -> bool {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let works = all.iter().any(|(known, _, works)| known == decoder && *works);
        self.failed.load(Ordering::Relaxed) && !works
    }

    /// What could not be decoded, where it is that which has stopped the bin.
    pub fn stuck(&self) -> Option<String> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(_, _, works)| !works).map(|(_, coded, _)| {
            format!(
                "it is {coded} with a pixel format that GStreamer has no name for; convert it to planes of 8, 10 or 12 bits \
                 (ffmpeg -pix_fmt yuv420p12le for instance), or to PNG"
            )
        })
    }
}
