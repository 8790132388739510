// SPDX-License-Identifier: MPL-2.0

//! What is damaged in a video, found while it is read.
//!
//! Demuxers and decoders of GStreamer pass over damage and go on, and say so in their debug log alone. So that log is read:
//! what is listed here is said of damaged files only. Pictures that a decoder marks as corrupted, and a film that ends
//! before its time, are damage too. What comes before the first good picture is none: a recording may begin anywhere.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use gst::prelude::*;
use gst::{ClockTime, DebugCategory, DebugLevel};

use super::boxes::Boxes;
use super::source::Input;
use crate::error::Error;

/// Who says what of damaged files: a category of the debug log, and a part of the text.
const TELLING: [(&str, &str); 9] = [
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
/// How many different texts are kept.
const TEXTS: usize = 3;
/// By how much the last picture may end before the film does: containers do not agree on where that is.
const EARLY: ClockTime = ClockTime::SECOND;

/// The damage of a video. Copies are of the same video, which may be read several times.
#[derive(Clone, Debug, Default)]
pub struct Damage(Arc<Mutex<Found>>);

#[derive(Debug, Default)]
struct Found {
    /// How long it is to be at least.
    duration: Option<ClockTime>,
    /// What was said.
    said: Vec<String>,
    /// What was said of this video or of another that was read at the same time.
    perhaps: Vec<String>,
    /// Pictures of the last time that it was read, and those that were marked of them.
    frames: u64,
    corrupted: u64,
    /// Where its last picture ended.
    end: Option<ClockTime>,
}

/// An element or a pad that reads a video.
struct Watched {
    /// By which the debug log names it.
    address: usize,
    /// An address may come again once its object is gone.
    object: glib::WeakRef<gst::Object>,
    video: Weak<Mutex<Found>>,
}

static WATCHED: Mutex<Vec<Watched>> = Mutex::new(vec![]);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Damage {
    /// Says how long the video is to be at least.
    pub fn expect(&self, duration: Option<ClockTime>) {
        lock(&self.0).duration = duration;
    }

    /// Listens to what the elements in a bin say.
    pub fn listen(&self, bin: &gst::Bin) {
        static LISTENING: Once = Once::new();
        LISTENING.call_once(|| {
            // It would print what is listened to.
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
            let mut watched = lock(&WATCHED);
            watched.retain(|of| of.object.upgrade().is_some());
            watched.extend(objects);
            drop(watched);
            // A category is there once its plugin is.
            for category in TELLING.iter().filter_map(|(name, _)| DebugCategory::get(name)) {
                category.set_threshold(category.threshold().max(DebugLevel::Warning));
            }
        });
    }

    /// Looks at the pictures that come out of a pad, and where the last ends if that is to be the end of the film.
    pub fn watch(&self, pad: &gst::Pad, to_the_end: bool) {
        let of = self.0.clone();
        {
            let mut found = lock(&of);
            (found.frames, found.corrupted) = (0, 0);
        }
        let mask = gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM;
        let last = Mutex::new(None::<ClockTime>);
        pad.add_probe(mask, move |pad, info| {
            match &info.data {
                Some(gst::PadProbeData::Buffer(buffer)) => {
                    let end = buffer.pts().map(|pts| pts + buffer.duration().unwrap_or_default());
                    let mut last = lock(&last);
                    *last = end.max(*last);
                    lock(&of).frame(buffer.flags().contains(gst::BufferFlags::CORRUPTED));
                }
                Some(gst::PadProbeData::Event(event))
                    if to_the_end && event.type_() == gst::EventType::Eos =>
                {
                    let segment = pad.sticky_event::<gst::event::Segment>(0);
                    let segment =
                        segment.as_ref().and_then(|event| event.segment().downcast_ref::<ClockTime>());
                    let end =
                        segment.zip(*lock(&last)).and_then(|(segment, end)| segment.to_stream_time(end));
                    lock(&of).end = end;
                }
                _ => {}
            }
            gst::PadProbeReturn::Ok
        });
    }

    /// What is damaged, if anything is, or `perhaps` is.
    fn found(&self, perhaps: bool) -> Option<String> {
        let found = lock(&self.0);
        let Found { said, frames, corrupted, .. } = &*found;
        let early = found.end.zip(found.duration).filter(|(end, duration)| *end + EARLY < *duration);
        let early = early.map(|(end, duration)| format!("its pictures end at {end:.3} of {duration:.3}"));
        let marked = (*corrupted > 0).then(|| format!("{corrupted} of them are marked as corrupted"));
        let said = (!said.is_empty()).then(|| format!("what reads it says: {}", said.join("; ")));
        let others = (perhaps && !found.perhaps.is_empty())
            .then(|| format!("what reads it, or another video, says: {}", found.perhaps.join("; ")));
        let texts: Vec<_> = [early, marked, said, others].into_iter().flatten().collect();
        (!texts.is_empty())
            .then(|| format!("it is damaged: {frames} pictures could be decoded; {}", texts.join("; ")))
    }
}

/// What is damaged: the inputs, as the user wrote them, and the text on each.
pub fn of<'a>(inputs: impl Iterator<Item = &'a Input> + Clone) -> Vec<(String, String)> {
    let found = |perhaps| {
        let text = |input: &Input| Some((input.given().to_owned(), input.damage().found(perhaps)?));
        inputs.clone().filter_map(text).collect::<Vec<_>>()
    };
    // What may be of either is of the one that is known to be damaged.
    Some(found(false)).filter(|found| !found.is_empty()).unwrap_or_else(|| found(true))
}

/// The same, a line for each input.
pub fn lines<'a>(inputs: impl Iterator<Item = &'a Input> + Clone) -> Vec<String> {
    of(inputs).into_iter().map(|(video, text)| format!("{video}: {text}")).collect()
}

/// Returns the error, with what is damaged where that may be the cause.
pub fn explain<'a>(error: Error, inputs: impl Iterator<Item = &'a Input> + Clone) -> Error {
    let damaged: Vec<_> = lines(inputs).into_iter().map(|line| format!("\n{line}")).collect();
    match error {
        Error::Failed(why) | Error::Refused(why) if !damaged.is_empty() => {
            Error::Damaged(why + &damaged.concat())
        }
        error => error,
    }
}

impl Found {
    fn frame(&mut self, is_corrupted: bool) {
        // A beginning that depends on what was before it is none that was damaged.
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

/// What is wrong with an MP4 file that lacks its index, which many write last. Without it nothing can be read.
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

/// Takes a line of the debug log.
fn heard(category: DebugCategory, level: DebugLevel, object: Option<usize>, text: Option<&str>) {
    let (Some(text), true) = (text, level <= DebugLevel::Warning) else { return };
    let name = category.name();
    if !TELLING.iter().any(|(of, part)| *of == name && text.contains(part)) {
        return;
    }
    let mut videos: Vec<Arc<Mutex<Found>>> = vec![];
    for watched in lock(&WATCHED).iter().filter(|of| object.is_none_or(|object| object == of.address)) {
        let video = watched.object.upgrade().and_then(|_| watched.video.upgrade());
        videos.extend(video.filter(|video| !videos.iter().any(|known| Arc::ptr_eq(known, video))));
    }
    let text = text.trim_start_matches(|c: char| c == ':' || c.is_ascii_digit() || c == ' ');
    let text = text.trim_start_matches("error: ").trim();
    // libav does not name its decoder.
    let perhaps = videos.len() > 1;
    videos.iter().for_each(|video| lock(video).say(text, perhaps));
}
