// SPDX-License-Identifier: MPL-2.0

//! Cuts of the original, found on small pictures of its frames on their way to be scored.

use std::sync::Arc;

use engine::frame::{BitDepth, Component, Samples};
use gst::ClockTime;
use gst::prelude::*;
use gst_video::{VideoFormatFlags, VideoFrameExt as _, VideoFrameRef, VideoInfo};
use parking_lot::Mutex;
use watch::thumbnail::Thumbnail;

use super::scores::Frame;
use super::time_range::stream_time;

/// Frames around a cut, on each side, that differ much less from those before them.
const AROUND: usize = 4;
/// Least difference at a cut, in 8-bit steps, and in relation to the differences around it.
const LEAST: f64 = 4.0;
const RATIO: f64 = 2.5;
/// The same for a very large difference, beside which there may be movement.
const LARGE: f64 = 30.0;
const RATIO_OF_LARGE: f64 = 1.5;

/// Watches the frames of the original.
#[derive(Clone, Default)]
pub struct Cuts(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    last: Option<Thumbnail>,
    /// Time of each frame, and its difference from the frame before.
    differences: Vec<(ClockTime, f64)>,
}

impl Cuts {
    /// Begins to watch.
    pub fn watch(&self, element: &gst::Element) {
        let Some(pad) = element.static_pad("ref_sink") else { return };
        let cuts = self.clone();
        pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
            if let (Some(buffer), Some(caps)) = (info.buffer(), pad.current_caps())
                && let Some(thumbnail) = thumbnail(buffer, &caps)
            {
                cuts.0.lock().see(stream_time(pad, buffer).unwrap_or_default(), thumbnail);
            }
            gst::PadProbeReturn::Ok
        });
    }

    /// Returns the times of the first frames of scenes, except of the first scene.
    pub fn times(&self) -> Vec<ClockTime> {
        let seen = self.0.lock();
        let differences: Vec<_> = seen.differences.iter().map(|(_, difference)| *difference).collect();
        find(&differences).into_iter().map(|number| seen.differences[number].0).collect()
    }
}

impl Seen {
    fn see(&mut self, time: ClockTime, thumbnail: Thumbnail) {
        let difference = self.last.as_ref().map_or(0.0, |last| last.difference(&thumbnail));
        self.differences.push((time, difference));
        self.last = Some(thumbnail);
    }
}

/// Returns the numbers of the frames that begin a scene. A flash is no cut: it differs from the frames on both sides.
fn find(differences: &[f64]) -> Vec<usize> {
    let is_cut = |number: &usize| {
        let around = number.saturating_sub(AROUND)..differences.len().min(number + AROUND + 1);
        let others = around.filter(|other| other != number).map(|other| differences[other]);
        let (own, others) = (differences[*number], others.fold(0.0, f64::max));
        own > LEAST && own > RATIO * others || own > LARGE && own > RATIO_OF_LARGE * others
    };
    (1..differences.len()).filter(is_cut).collect()
}

/// Divides frames at the cuts.
pub fn divide<'a>(mut frames: &'a [Frame], cuts: &[ClockTime]) -> Vec<&'a [Frame]> {
    let mut scenes = vec![];
    for cut in cuts {
        let (scene, rest) = frames.split_at(frames.partition_point(|frame| frame.time < *cut));
        scenes.push(scene);
        frames = rest;
    }
    scenes.push(frames);
    scenes.retain(|scene| !scene.is_empty());
    scenes
}

/// Makes a small picture of a frame in system memory.
fn thumbnail(buffer: &gst::BufferRef, caps: &gst::CapsRef) -> Option<Thumbnail> {
    let memory = caps.features(0)?;
    let info = VideoInfo::from_caps(caps)
        .ok()
        .filter(|_| memory.is_equal(&gst::CAPS_FEATURES_MEMORY_SYSTEM_MEMORY))?;
    let of_format = info.format_info();
    if !of_format.flags().intersects(VideoFormatFlags::YUV | VideoFormatFlags::GRAY) {
        return None;
    }
    let depth = BitDepth::new(*of_format.depth().first()?)?;
    let frame = VideoFrameRef::<&gst::BufferRef>::from_buffer_ref_readable(buffer, &info).ok()?;
    let luma = Component {
        samples: Samples::Host(frame.plane_data(0).ok()?),
        width: frame.width() as usize,
        height: frame.height() as usize,
        stride: usize::try_from(*frame.plane_stride().first()?).ok()?,
        step: 1,
        shift: *of_format.shift().first()?,
    };
    Thumbnail::new(&luma, depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_stand_out_from_movement_and_flashes() {
        let with = |changes: &[(usize, f64)]| {
            let mut differences = vec![1.0; 40];
            changes.iter().for_each(|(number, difference)| differences[*number] = *difference);
            find(&differences)
        };
        assert_eq!(with(&[(10, 20.0), (25, 5.0)]), [10, 25]);
        // A flash of one frame, fast movement, and frames shown twice.
        assert_eq!(with(&[(10, 40.0), (11, 40.0)]), [0; 0]);
        assert_eq!(with(&[(9, 8.0), (10, 12.0), (11, 9.0)]), [0; 0]);
        assert_eq!(find(&[0.0, 6.0].repeat(10)), [0; 0]);
        // Between moving pictures.
        assert_eq!(with(&[(9, 8.0), (10, 40.0), (11, 12.0)]), [10]);
        assert_eq!(find(&[]), [0; 0]);
    }

    #[test]
    fn scenes_have_all_frames_once() {
        let frame = |index: i32| Frame { index, time: ClockTime::from_seconds(index as u64), scores: vec![] };
        let frames: Vec<_> = (0..6).map(frame).collect();
        let cuts = [2, 2, 5, 9].map(ClockTime::from_seconds);
        let scenes: Vec<_> = divide(&frames, &cuts)
            .iter()
            .map(|scene| scene.iter().map(|frame| frame.index).collect::<Vec<_>>())
            .collect();
        assert_eq!(scenes, [vec![0, 1], vec![2, 3, 4], vec![5]]);
    }
}
