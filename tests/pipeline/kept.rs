// SPDX-License-Identifier: MPL-2.0

//! Buffers of upstream's pool: none is kept after the end of a stream, a flush or a DRAIN query.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gst::prelude::*;

use crate::common::rig::Rig;
use crate::common::{Input, sides};
use crate::process::{Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    nothing_is_kept_after_the_end,
    a_stream_that_has_ended_leaves_a_copy_of_its_last_frame,
    nothing_is_kept_after_a_flush,
    nothing_of_a_single_stream_is_kept_after_its_flush,
    nothing_of_a_stream_is_kept_after_a_drain,
    a_drain_goes_on_where_the_frames_go
];

/// Buffers of each pool: as many as the element may hold at once, and a few more.
const BUFFERS: u32 = 24;

/// A pool whose buffers carry the frames of one pad.
struct Frames {
    pool: gst::BufferPool,
    input: Input,
}

impl Frames {
    fn new(input: Input) -> Self {
        let (caps, size) = (input.0[0].caps_owned().unwrap(), input.0[0].buffer().unwrap().size());
        let pool = gst::BufferPool::new();
        let mut config = pool.config();
        config.set_params(Some(&caps), size as u32, 0, BUFFERS);
        pool.set_config(config).unwrap();
        pool.set_active(true).unwrap();
        Self { pool, input }
    }

    /// Returns a frame in a buffer of the pool.
    fn frame(&self, t: usize) -> gst::Sample {
        let sample = &self.input.0[t];
        let mut buffer = self.pool.acquire_buffer(None).unwrap();
        let new = buffer.get_mut().unwrap();
        let old = sample.buffer().unwrap();
        old.copy_into(new, gst::BufferCopyFlags::TIMESTAMPS, ..).unwrap();
        new.copy_from_slice(0, &old.map_readable().unwrap()).unwrap();
        gst::Sample::builder().buffer(&buffer).caps(&sample.caps_owned().unwrap()).build()
    }

    /// Returns the number of buffers that have not been returned.
    fn kept(&self) -> u32 {
        let flags = gst::BufferPoolAcquireFlags::DONTWAIT;
        let params = gst::BufferPoolAcquireParams::with_flags(flags);
        let free: Vec<_> = (0..BUFFERS).map_while(|_| self.pool.acquire_buffer(Some(&params)).ok()).collect();
        BUFFERS - free.len() as u32
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let _ = self.pool.set_active(false);
    }
}

const SETTINGS: [&[(&str, &str)]; 6] = [
    &[],
    &[("missing-frame", "repeat")],
    &[("output", "distorted")],
    &[("output", "heatmap")],
    &[("attach-frames", "true")],
    &[("attach-meta", "false")],
];

/// Returns a rig whose element holds these frames of both sides and of another rendition.
fn playing(settings: &[(&str, &str)], count: usize) -> (Rig, [Frames; 3]) {
    let (reference, distorted) = sides(16);
    let frames = [reference, distorted.clone(), distorted].map(Frames::new);
    let rig = Rig::offline(settings).with_renditions(&["other"]).play();
    push(&rig, &frames, 0..count);
    (rig, frames)
}

const PADS: [&str; 3] = ["ref_sink", "dist_sink", "dist_0"];

fn push(rig: &Rig, frames: &[Frames; 3], range: std::ops::Range<usize>) {
    for t in range {
        for (frames, pad) in frames.iter().zip(PADS) {
            rig.push(pad, &frames.frame(t));
        }
    }
}

/// Returns the number of buffers that the element holds, without those that downstream holds.
fn kept(rig: &Rig, frames: &[Frames; 3]) -> [u32; 3] {
    rig.log().report.buffers.clear();
    [0, 1, 2].map(|i| frames[i].kept())
}

/// Asserts that the element holds no buffer of these pads, apart from those that a thread is about to release.
#[track_caller]
fn assert_released(rig: &Rig, frames: &[Frames; 3], pads: &[usize], case: &str) {
    let end = Instant::now() + Duration::from_secs(5);
    while pads.iter().any(|i| kept(rig, frames)[*i] > 0) {
        assert!(Instant::now() < end, "{case}: {:?} are kept", kept(rig, frames));
        std::thread::yield_now();
    }
}

fn nothing_is_kept_after_the_end() {
    for settings in SETTINGS {
        let (rig, frames) = playing(settings, 6);
        assert_ne!(kept(&rig, &frames), [0; 3], "{settings:?}: frames are on their way");
        rig.end();
        rig.finish().unwrap();
        assert_released(&rig, &frames, &[0, 1, 2], &format!("{settings:?}"));
    }
}

/// A stream that ends before the others gives its buffers back, though its last frame may be repeated.
fn a_stream_that_has_ended_leaves_a_copy_of_its_last_frame() {
    let (rig, frames) = playing(&[("missing-frame", "repeat")], 4);
    rig.end_of("dist_0");
    for t in 4..8 {
        for i in [0, 1] {
            rig.push(PADS[i], &frames[i].frame(t));
        }
    }
    rig.wait(|log| log.report.scores_of("dist_0").len() >= 6);
    rig.wait_buffers(5);
    assert_released(&rig, &frames, &[2], "dist_0 has ended");
    rig.end();
    let report = rig.finish().unwrap();
    let repeated = report.frames.iter().filter(|frame| frame.pad == "dist_0" && frame.repeated).count();
    assert_eq!((report.scores_of("dist_0").len(), repeated), (8, 4));
}

fn nothing_is_kept_after_a_flush() {
    for settings in SETTINGS {
        let (rig, frames) = playing(settings, 6);
        rig.flush_all();
        assert_released(&rig, &frames, &[0, 1, 2], &format!("{settings:?}"));
    }
}

fn nothing_of_a_single_stream_is_kept_after_its_flush() {
    for settings in SETTINGS {
        for (i, pad) in PADS.into_iter().enumerate() {
            let (rig, frames) = playing(settings, 6);
            rig.flush(pad);
            assert_released(&rig, &frames, &[i], &format!("{settings:?}, {pad}"));
        }
    }
}

fn nothing_of_a_stream_is_kept_after_a_drain() {
    for settings in SETTINGS {
        for (i, pad) in PADS.into_iter().enumerate() {
            let (rig, frames) = playing(settings, 6);
            assert!(rig.pad(pad).query(&mut gst::query::Drain::new()), "{settings:?}, {pad}");
            assert_released(&rig, &frames, &[i], &format!("{settings:?}, {pad}"));
            // The stream continues from there, and no frame is lost.
            push(&rig, &frames, 6..10);
            rig.end();
            let report = rig.finish().unwrap();
            for pad in ["dist_sink", "dist_0"] {
                assert_eq!(report.scores_of(pad).len(), 10, "{settings:?}, {pad}");
            }
        }
    }
}

/// Downstream holds frames that have left, so the DRAIN query is forwarded.
fn a_drain_goes_on_where_the_frames_go() {
    for (settings, expected) in [(SETTINGS[0], [1, 1, 1]), (SETTINGS[2], [0, 1, 1])] {
        let (rig, frames) = playing(settings, 4);
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        // Counts the query once, not its return as well.
        let towards = gst::PadProbeType::QUERY_DOWNSTREAM | gst::PadProbeType::PUSH;
        rig.pad("src").peer().unwrap().add_probe(towards, move |_, info| {
            let is_drain = info.query().is_some_and(|query| query.type_() == gst::QueryType::Drain);
            counted.fetch_add(usize::from(is_drain), Ordering::Relaxed);
            gst::PadProbeReturn::Ok
        });
        let asked = || asked.load(Ordering::Relaxed);
        let drains = PADS.map(|pad| {
            assert!(rig.pad(pad).query(&mut gst::query::Drain::new()));
            asked()
        });
        assert_eq!(drains, expected, "{settings:?}");
        drop(frames);
    }
}
