// SPDX-License-Identifier: MPL-2.0

//! Chunk boundaries: proves that a chunk equals the same part of the whole video.
//!
//! A chunk and the next one both decode a few frames, from different key frames. The time and a checksum of the
//! samples of each of these frames are recorded where they enter the element. If both chunks recorded the same, both
//! equal the whole video there.

use std::sync::Arc;

use gst::ClockTime;
use gst::prelude::*;
use gst_video::prelude::*;
use gst_video::{VideoFrameRef, VideoInfo};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::manifest::{Part, Window, hex};
use score::error::Error;

/// Time and checksum of each frame in a window.
type Frames = Vec<(u64, String)>;

/// Frames that a chunk has decoded at one of its ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Boundary {
    pub reference: Frames,
    pub distorted: Frames,
}

impl Boundary {
    /// Describes the first difference between two neighbours, if there is one.
    pub fn difference(&self, next: &Self) -> Option<String> {
        let sides = [
            ("reference", &self.reference, &next.reference),
            ("distorted video", &self.distorted, &next.distorted),
        ];
        sides.into_iter().find_map(|(side, ours, next)| {
            let other = ours.iter().zip(next).find(|(ours, next)| ours != next);
            match other {
                Some(((time, _), (next, _))) if time != next => Some(format!(
                    "a frame of the {side} is at {time} ns in one and at {next} ns in the other"
                )),
                Some(((time, _), _)) => {
                    Some(format!("the frames of the {side} at {time} ns have other samples"))
                }
                None if ours.len() != next.len() => {
                    Some(format!("one has {} frames of the {side}, the other {}", ours.len(), next.len()))
                }
                None => None,
            }
        })
    }

    /// Returns true if every frame has a partner, so that pairing does not depend on frames outside.
    pub fn is_paired(&self, slack: u64) -> bool {
        let pairs = self.reference.iter().zip(&self.distorted);
        self.reference.len() == self.distorted.len()
            && !self.reference.is_empty()
            && pairs
                .into_iter()
                .all(|((reference, _), (distorted, _))| reference.abs_diff(*distorted) <= slack)
    }
}

/// Record of the frames that entered the element.
#[derive(Default)]
pub struct Notes {
    /// Reference frames before the part, and in it.
    pub before: u64,
    pub own: u64,
    /// Distorted frames in the part.
    pub distorted: u64,
    pub head: Boundary,
    pub tail: Boundary,
    /// The video format changes.
    pub changed: bool,
    /// Reason why frames could not be examined.
    pub problem: Option<String>,
}

/// Records the frames that enter the element.
#[derive(Clone, Default)]
pub struct Tap(Arc<Mutex<Notes>>);

impl Tap {
    /// Takes the record.
    pub fn take(&self) -> Notes {
        std::mem::take(&mut self.0.lock())
    }

    /// Begins to record the frames on the pads of an element.
    pub fn watch(&self, element: &gst::Element, part: Part) {
        for pad in element.sink_pads() {
            let (tap, is_reference) = (self.clone(), pad.name() == "ref_sink");
            let info = Mutex::new(None::<VideoInfo>);
            let mask = gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM;
            pad.add_probe(mask, move |pad, probe| {
                let mut info = info.lock();
                if let Some(gst::EventView::Caps(caps)) = probe.event().map(|event| event.view()) {
                    let new = VideoInfo::from_caps(caps.caps()).ok();
                    if info.is_some() && *info != new {
                        tap.0.lock().changed = true;
                    }
                    *info = new;
                }
                if let (Some(buffer), Some(info)) = (probe.buffer(), &*info)
                    && let Err(error) = tap.note(pad, buffer, info, is_reference, part)
                {
                    tap.0.lock().problem.get_or_insert(error.to_string());
                }
                gst::PadProbeReturn::Ok
            });
        }
    }

    fn note(
        &self,
        pad: &gst::Pad,
        buffer: &gst::BufferRef,
        info: &VideoInfo,
        is_reference: bool,
        part: Part,
    ) -> Result<(), Error> {
        let time = running_time(pad, buffer).ok_or("a frame has no time")?.nseconds();
        let late = time + part.slack;
        let within = |window: Option<Window>| window.is_some_and(|w| (w.from..w.to).contains(&late));
        let (head, tail) = (within(part.head), within(part.tail));
        let sum = if head || tail { checksum(buffer, info)? } else { String::new() };
        let mut notes = self.0.lock();
        if is_reference {
            notes.before += u64::from(late < part.from);
            notes.own += u64::from(part.has(time));
        } else {
            notes.distorted += u64::from(part.has(time));
        }
        let notes = &mut *notes;
        for (within, boundary) in [(head, &mut notes.head), (tail, &mut notes.tail)] {
            if within {
                let frames = if is_reference { &mut boundary.reference } else { &mut boundary.distorted };
                frames.push((time, sum.clone()));
            }
        }
        Ok(())
    }
}

fn running_time(pad: &gst::Pad, buffer: &gst::BufferRef) -> Option<ClockTime> {
    let event = pad.sticky_event::<gst::event::Segment>(0)?;
    event.segment().downcast_ref::<ClockTime>()?.to_running_time(buffer.pts()?)
}

/// Returns the checksum of the visible samples, wherever they are stored.
fn checksum(buffer: &gst::BufferRef, info: &VideoInfo) -> Result<String, Error> {
    let frame = VideoFrameRef::from_buffer_ref_readable(buffer, info)?;
    let mut hash = Sha256::new();
    let format = frame.format_info();
    let components = 0..info.n_components();
    for plane in 0..frame.n_planes() {
        let of_plane = components.clone().filter(|i| format.plane()[*i as usize] == plane);
        let ends = of_plane.map(|i| {
            let (width, stride) = (frame.comp_width(i) as usize, frame.comp_pstride(i).max(0) as usize);
            let sample = (frame.comp_depth(i) as usize).div_ceil(8);
            // Packed formats without whole bytes per sample have no pixel stride: the entire row counts.
            let end = frame.comp_poffset(i) as usize + width.saturating_sub(1) * stride + sample;
            (frame.comp_height(i) as usize, if stride == 0 { usize::MAX } else { end })
        });
        let (height, width) = ends.fold((0, 0), |(h, w), (height, width)| (h.max(height), w.max(width)));
        let stride = frame.plane_stride()[plane as usize].unsigned_abs() as usize;
        for row in frame.plane_data(plane)?.chunks(stride.max(1)).take(height) {
            hash.update(row.get(..width.min(row.len())).unwrap_or(row));
        }
    }
    Ok(hex(hash))
}
