// SPDX-License-Identifier: MPL-2.0

//! Detects damage in a video while it is read.
//!
//! GStreamer's demuxers and decoders skip damage and report it only in their debug log. So this module reads the log;
//! the listed messages appear for damaged files only. Corrupted flags on pictures and a premature end count as
//! damage, too. Anything before the first good picture does not: a recording may begin anywhere.

use std::path::Path;
use std::sync::{Arc, Once, Weak};

use gst::prelude::*;
use gst::{ClockTime, DebugCategory, DebugLevel};
use parking_lot::Mutex;

use super::boxes::Boxes;

/// Debug categories, and parts of messages, that indicate damage.
const DAMAGE: [(&str, &str); 9] = [
    ("videodecoder", "error: "),
    ("qtdemux", "short read"),
    ("flvdemux", "partial pull got"),
    ("flvdemux", "unsupported tag type"),
    ("avidemux", "truncated file"),
    ("matroskareadcommon", "Dropping short buffer"),
    ("h264parse", "broken/invalid nal Type: 1 "),
    ("h264parse", "broken/invalid nal Type: 5 "),
    ("libav", "error while decoding MB"),
];
/// Number of different messages kept.
const TEXTS: usize = 3;
/// Tolerance for the end of the last picture, which containers define differently.
const EARLY: ClockTime = ClockTime::SECOND;

/// Damage of a video. Clones refer to the same video, which may be read several times.
#[derive(Clone, Debug, Default)]
pub struct Damage(Arc<Mutex<Found>>);

#[derive(Debug, Default)]
struct Found {
    /// Shortest expected duration.
    duration: Option<ClockTime>,
    /// Messages about this video.
    said: Vec<String>,
    /// Messages about this video or another one that was read at the same time.
    perhaps: Vec<String>,
    /// Pictures in the latest pass, and those of them with a corrupted flag.
    frames: u64,
    corrupted: u64,
    /// End of its last picture.
    end: Option<ClockTime>,
}

/// An element or pad that reads a video.
struct Watched {
    /// Address, by which the debug log names it.
    address: usize,
    /// The object itself, since its address may be reused later.
    object: glib::WeakRef<gst::Object>,
    video: Weak<Mutex<Found>>,
}

static WATCHED: Mutex<Vec<Watched>> = Mutex::new(vec![]);

impl Damage {
    /// Sets the shortest expected duration.
    pub fn expect(&self, duration: Option<ClockTime>) {
        self.0.lock().duration = duration;
    }

    /// Watches the messages of the elements in a bin.
    pub fn listen(&self, bin: &gst::Bin) {
        static LISTENING: Once = Once::new();
        LISTENING.call_once(|| {
            // Otherwise GStreamer would print the messages, too.
            if std::env::var_os("GST_DEBUG").is_none() {
                gst::log::remove_default_log_function();
            }
            gst::log::add_log_function(|category, level, _, _, _, object, message| {
                let text = message.get();
                heard(
                    category,
                    level,
                    object.map(|object| object.as_ptr() as usize),
                    text.as_ref().map(|text| text.as_str()),
                );
            });
        });
        let of = Arc::downgrade(&self.0);
        bin.connect_deep_element_added(move |_, _, element| {
            let pads = element.pads().into_iter().map(|pad| pad.upcast());
            let objects = pads.chain([element.clone().upcast()]).map(|object: gst::Object| Watched {
                address: object.as_ptr() as usize,
                object: object.downgrade(),
                video: of.clone(),
            });
            let mut watched = WATCHED.lock();
            watched.retain(|of| of.object.upgrade().is_some());
            watched.extend(objects);
            drop(watched);
            // A category exists only after its plugin is loaded.
            for category in DAMAGE.iter().filter_map(|(name, _)| DebugCategory::get(name)) {
                category.set_threshold(category.threshold().max(DebugLevel::Warning));
            }
        });
    }

    /// Watches the pictures that leave a pad. With `to_the_end`, the last one must end with the video.
    pub fn watch(&self, pad: &gst::Pad, to_the_end: bool) {
        let of = self.0.clone();
        {
            let mut found = of.lock();
            (found.frames, found.corrupted) = (0, 0);
        }
        let mask = gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM;
        let last = Mutex::new(None::<ClockTime>);
        pad.add_probe(mask, move |pad, info| {
            match &info.data {
                Some(gst::PadProbeData::Buffer(buffer)) => {
                    let end = buffer.pts().map(|pts| pts + buffer.duration().unwrap_or_default());
                    let mut last = last.lock();
                    *last = end.max(*last);
                    of.lock().frame(buffer.flags().contains(gst::BufferFlags::CORRUPTED));
                }
                Some(gst::PadProbeData::Event(event))
                    if to_the_end && event.type_() == gst::EventType::Eos =>
                {
                    let segment = pad.sticky_event::<gst::event::Segment>(0);
                    let segment =
                        segment.as_ref().and_then(|event| event.segment().downcast_ref::<ClockTime>());
                    let end =
                        segment.zip(*last.lock()).and_then(|(segment, end)| segment.to_stream_time(end));
                    of.lock().end = end;
                }
                _ => {}
            }
            gst::PadProbeReturn::Ok
        });
    }

    /// Describes the damage, if there is any. `perhaps` includes messages that may be about another video.
    pub fn found(&self, perhaps: bool) -> Option<String> {
        let found = self.0.lock();
        let Found { said, frames, corrupted, .. } = &*found;
        let early = found.end.zip(found.duration).filter(|(end, duration)| *end + EARLY < *duration);
        let early = early.map(|(end, duration)| format!("its pictures end at {end:.3} of {duration:.3}"));
        let marked = (*corrupted > 0).then(|| format!("{corrupted} of them are marked as corrupted"));
        let said = (!said.is_empty()).then(|| format!("its reader reports: {}", said.join("; ")));
        let others = (perhaps && !found.perhaps.is_empty())
            .then(|| format!("the reader of it or of another video reports: {}", found.perhaps.join("; ")));
        let texts: Vec<_> = [early, marked, said, others].into_iter().flatten().collect();
        (!texts.is_empty())
            .then(|| format!("it is damaged: {frames} pictures could be decoded; {}", texts.join("; ")))
    }
}

impl Found {
    fn frame(&mut self, is_corrupted: bool) {
        // Leading pictures may be incomplete because they depend on earlier ones.
        if self.frames > 0 || !is_corrupted {
            self.frames += 1;
            self.corrupted += u64::from(is_corrupted);
        }
    }

    fn say(&mut self, text: &str, perhaps: bool) {
        let texts = if perhaps { &mut self.perhaps } else { &mut self.said };
        if self.frames > 0 && texts.len() < TEXTS && !texts.iter().any(|said| said == text) {
            texts.push(text.to_owned());
        }
    }
}

/// Reports an MP4 file without its index. Recorders often write it last, and without it nothing can be read.
pub fn without_index(path: &Path) -> Option<String> {
    let mut boxes = Boxes::open(path)?;
    if boxes.next()?.name != *b"ftyp" || boxes.any(|of| of.name == *b"moov") {
        return None;
    }
    let (length, least) = boxes.ends()?;
    let cut = if least > length {
        format!(": {length} bytes are there of at least {least}")
    } else {
        String::new()
    };
    Some(format!("its index (moov) is missing, as it was not written to its end{cut}"))
}

/// Handles a line of the debug log.
fn heard(category: DebugCategory, level: DebugLevel, object: Option<usize>, text: Option<&str>) {
    let (Some(text), true) = (text, level <= DebugLevel::Warning) else { return };
    let name = category.name();
    if !DAMAGE.iter().any(|(of, part)| *of == name && text.contains(part)) {
        return;
    }
    let mut videos: Vec<Arc<Mutex<Found>>> = vec![];
    for watched in WATCHED.lock().iter().filter(|of| object.is_none_or(|object| object == of.address)) {
        let video = watched.object.upgrade().and_then(|_| watched.video.upgrade());
        videos.extend(video.filter(|video| !videos.iter().any(|known| Arc::ptr_eq(known, video))));
    }
    let text = text.trim_start_matches(|c: char| c == ':' || c.is_ascii_digit() || c == ' ');
    let text = text.trim_start_matches("error: ").trim();
    // Messages of libav do not name the decoder.
    let perhaps = videos.len() > 1;
    videos.iter().for_each(|video| video.lock().say(text, perhaps));
}
