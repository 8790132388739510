// SPDX-License-Identifier: MPL-2.0

//! The property `output`: the element passes on the reference, the distorted video or a heatmap of the damage.

use gst::ClockTime;
use gst::prelude::*;
use gst_video::prelude::*;
use gst_video::{VideoFormat, VideoFrameRef, VideoInfo};
use gsthipvmaf::meta::{ScoreMeta, ScoreState};

use crate::common::clip::Clip;
use crate::common::rig::Rig;
use crate::common::{Bench, FRAME, Input, coarse, moving, score, sides};

use crate::process::{Function, functions};
use ScoreState::{Late, Scored, Unpaired};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    like_pictures_are_only_dimmed_in_every_format,
    damage_is_in_colour_where_it_is_and_in_its_own_frame,
    visible_differences_are_in_colour_where_cvvdp_is_computed,
    a_heat_map_carries_what_its_frame_carries,
    frames_that_are_not_compared_are_only_dimmed,
    a_heat_map_changes_no_score,
    distorted_frames_leave_in_the_reference_s_time_with_their_scores,
    the_last_distorted_frame_stands_in_for_a_lost_one,
    the_first_of_several_is_shown,
    without_meta_a_heat_map_takes_one_frame,
    a_heat_map_leaves_at_its_deadline_whatever_is_known,
    new_caps_change_the_heat_map,
    downstream_decides_the_format_of_what_it_gets,
    a_run_with_another_output_follows,
    the_frames_that_were_compared_go_along_where_they_are_wanted
];

const HEATMAP: (&str, &str) = ("output", "heatmap");
const DISTORTED: (&str, &str) = ("output", "distorted");

fn info(sample: &gst::Sample) -> VideoInfo {
    VideoInfo::from_caps(sample.caps().unwrap()).unwrap()
}

/// Returns the samples of each component, without unused bits.
fn samples(buffer: &gst::BufferRef, info: &VideoInfo) -> Vec<Vec<u16>> {
    let frame = VideoFrameRef::from_buffer_ref_readable(buffer, info).unwrap();
    let format = info.format_info();
    let component = |i: usize| {
        let (plane, step) = (format.plane()[i], format.pixel_stride()[i] as usize);
        let (stride, data) =
            (frame.plane_stride()[plane as usize] as usize, frame.plane_data(plane).unwrap());
        let size = format.depth()[i].div_ceil(8) as usize;
        let first = if format.poffset()[i] > 0 { size } else { 0 };
        let (width, height) =
            (format.scale_width(i as u8, info.width()), format.scale_height(i as u8, info.height()));
        let at = move |x: usize, y: usize| y * stride + first + x * step;
        let sample = |at: usize| match size {
            1 => data[at].into(),
            _ => u16::from_le_bytes([data[at], data[at + 1]]) >> format.shift()[i],
        };
        (0..height as usize).flat_map(|y| (0..width as usize).map(move |x| at(x, y))).map(sample).collect()
    };
    (0..format.n_components() as usize).map(component).collect()
}

/// Returns the picture as the heatmap shows it where nothing is damaged.
fn dimmed(mut picture: Vec<Vec<u16>>, info: &VideoInfo) -> Vec<Vec<u16>> {
    let depth = info.comp_depth(0);
    // Grey formats use all of their range unless their caps say otherwise.
    let (black, grey) = (if info.n_components() == 1 { 0 } else { 16 << (depth - 8) }, 128 << (depth - 8));
    for luma in &mut picture[0] {
        let above = f64::from(*luma) - f64::from(black);
        *luma = (f64::from(black) + above * 0.4 + 0.5).floor() as u16;
    }
    picture[1..].iter_mut().for_each(|chroma| chroma.fill(grey));
    picture
}

/// Returns true if the picture is that of the reference, dimmed and without colours.
fn is_dimmed(buffer: &gst::BufferRef, reference: &gst::Sample) -> bool {
    let info = info(reference);
    let expected = dimmed(samples(reference.buffer().unwrap(), &info), &info);
    // With 16 bits, gains are rounded to less than a sample.
    let rounding = u16::from(info.comp_depth(0) == 16);
    let planes = samples(buffer, &info);
    planes.iter().flatten().zip(expected.iter().flatten()).all(|(a, b)| a.abs_diff(*b) <= rounding)
}

fn like_pictures_are_only_dimmed_in_every_format() {
    use VideoFormat::*;
    for (depth, chroma, formats) in [
        (8, "420", &[I420, Yv12, Nv12, Nv21, Gray8][..]),
        (8, "422", &[Y42b]),
        (8, "444", &[Y444]),
        (10, "420", &[I42010le, P01010le]),
        (12, "444", &[Y44412le]),
        (16, "420", &[Gray16Le]),
    ] {
        let clip = Clip::banded(97, 71, depth, chroma, 2);
        for format in formats {
            let reference = Input::new(&clip, false, *format);
            let report = score(&[HEATMAP], &reference, &reference).unwrap();
            assert_eq!(report.buffers.len(), 2);
            for (buffer, reference) in report.buffers.iter().zip(&reference.0) {
                assert!(is_dimmed(buffer, reference), "{format}");
            }
            let damaged = score(&[HEATMAP], &reference, &Input::new(&clip, true, *format)).unwrap();
            assert!(!is_dimmed(&damaged.buffers[1], &reference.0[1]), "{format}");
        }
    }
}

/// Returns grey video with a texture, which is missing in a rectangle of the `damaged` frames.
fn textured(damaged: impl Fn(usize) -> bool) -> Input {
    let inside = |x: usize, y: usize| RECTANGLE[0].contains(&x) && RECTANGLE[1].contains(&y);
    film(|t, x, y| if damaged(t) && inside(x, y) { 100 } else { moving(t, x, y) }, |_, _, _| 128)
}

/// Returns video with these samples of luma, and of both components of chroma, by frame, column and row.
fn film(luma: impl Fn(usize, usize, usize) -> u8, chroma: impl Fn(usize, usize, usize) -> u8) -> Input {
    let info =
        VideoInfo::builder(VideoFormat::I420, 192, 160).fps(gst::Fraction::new(25, 1)).build().unwrap();
    let caps = info.to_caps().unwrap();
    let frame = |t: usize| {
        let mut data = vec![0; info.size()];
        let (of_luma, of_chroma) = data.split_at_mut(192 * 160);
        of_luma.iter_mut().enumerate().for_each(|(i, sample)| *sample = luma(t, i % 192, i / 192));
        of_chroma.iter_mut().enumerate().for_each(|(i, sample)| *sample = chroma(t, i % 96, i / 96 % 80));
        let mut buffer = gst::Buffer::from_mut_slice(data);
        buffer.get_mut().unwrap().set_pts(FRAME * t as u64);
        gst::Sample::builder().buffer(&buffer).caps(&caps).build()
    };
    Input((0..4).map(frame).collect())
}

const RECTANGLE: [std::ops::Range<usize>; 2] = [64..112, 64..96];

fn damage_is_in_colour_where_it_is_and_in_its_own_frame() {
    crate::common::init();
    let reference = textured(|_| false);
    // Several frames wait for their scores.
    let report = score(&[HEATMAP], &reference, &textured(|t| t == 1)).unwrap();
    let info = info(&reference.0[0]);
    for (t, (buffer, reference)) in report.buffers.iter().zip(&reference.0).enumerate() {
        if t != 1 {
            assert!(is_dimmed(buffer, reference), "frame {t}");
            continue;
        }
        let found = samples(buffer, &info);
        let expected = dimmed(samples(reference.buffer().unwrap(), &info), &info);
        for (at, (blue, red)) in found[1].iter().zip(&found[2]).enumerate() {
            let place = [at % 96 * 2, at / 96 * 2];
            let near = |margin: isize| {
                let inside = |(at, range): (usize, &std::ops::Range<usize>)| {
                    at as isize >= range.start as isize - margin
                        && (at as isize) < range.end as isize + margin
                };
                place.into_iter().zip(&RECTANGLE).all(inside)
            };
            let luma = place[1] * 192 + place[0];
            if near(-8) {
                let colour = blue.abs_diff(128) + red.abs_diff(128);
                assert!(colour > 20, "{place:?}: {blue} {red}");
            } else if !near(40) {
                assert_eq!((*red, *blue, found[0][luma]), (128, 128, expected[0][luma]), "{place:?}");
            }
        }
    }
}

/// With ColorVideoVDP among the features, the map shows the differences that it sees, such as those of colours.
fn visible_differences_are_in_colour_where_cvvdp_is_computed() {
    crate::common::init();
    let reference = textured(|_| false);
    let tinted = film(moving, |t, x, y| {
        let inside = (32..56).contains(&x) && (32..48).contains(&y);
        if t > 0 && inside { 200 } else { 128 }
    });
    let plain = score(&[HEATMAP], &reference, &tinted).unwrap();
    assert!(plain.buffers.iter().zip(&reference.0).all(|(buffer, reference)| is_dimmed(buffer, reference)));
    let report = score(&[HEATMAP, ("features", "cvvdp")], &reference, &tinted).unwrap();
    assert!(is_dimmed(&report.buffers[0], &reference.0[0]), "before the difference");
    let found = samples(&report.buffers[3], &info(&reference.0[0]));
    let colour = |x: usize, y: usize| {
        let at = y / 2 * 96 + x / 2;
        found[1][at].abs_diff(128) + found[2][at].abs_diff(128)
    };
    assert!(colour(88, 80) > 20, "{}", colour(88, 80));
    assert!(colour(8, 8) < 8, "{}", colour(8, 8));
}

/// Scores, timestamps and all other metadata stay with their frame.
fn a_heat_map_carries_what_its_frame_carries() {
    let (reference, distorted) = sides(5);
    let reference = reference.changed(|t, buffer| {
        let time = ClockTime::from_seconds(t as u64);
        let caps = gst::Caps::new_empty_simple("timestamp/x-test");
        gst::ReferenceTimestampMeta::add(buffer, &caps, time, ClockTime::NONE);
        buffer.set_offset(t as u64 + 7);
    });
    let plain = score(&[], &reference, &distorted).unwrap();
    let report = score(&[HEATMAP], &reference, &distorted).unwrap();
    assert_eq!(report.scores(), plain.scores());
    assert_eq!(report.metas(), plain.metas());
    for (t, (buffer, plain)) in report.buffers.iter().zip(&plain.buffers).enumerate() {
        let times = |b: &gst::Buffer| (b.pts(), b.dts(), b.duration(), b.offset(), b.flags());
        assert_eq!(times(buffer), times(plain));
        let meta = buffer.meta::<gst::ReferenceTimestampMeta>().unwrap();
        assert_eq!(meta.timestamp(), ClockTime::from_seconds(t as u64));
        assert_eq!(buffer.size(), plain.size());
    }
}

fn frames_that_are_not_compared_are_only_dimmed() {
    let (reference, distorted) = sides(6);
    let report = score(&[HEATMAP], &reference, &distorted.keep(|t| t != 2)).unwrap();
    assert_eq!(report.states()[2], Unpaired);
    let dimmed = |report: &crate::common::Report| {
        let pairs = report.buffers.iter().zip(&reference.0);
        pairs.map(|(buffer, reference)| is_dimmed(buffer, reference)).collect::<Vec<_>>()
    };
    assert_eq!(dimmed(&report), [false, false, true, false, false, false]);
    let report = score(&[HEATMAP, ("subsample", "2")], &reference, &distorted).unwrap();
    assert_eq!(dimmed(&report), [false, true, false, true, false, true]);
}

/// The map needs no feature that the model reads.
fn a_heat_map_changes_no_score() {
    let clip = Clip::banded(240, 216, 8, "420", 2);
    let [reference, distorted] = [false, true].map(|distorted| Input::planar(&clip, distorted));
    let model = ("model-filename", "vmaf_v1.0.16_3d0h");
    let plain = score(&[model], &reference, &distorted).unwrap();
    let report = score(&[model, HEATMAP], &reference, &distorted).unwrap();
    assert_eq!(report.scores(), plain.scores());
    assert!(!is_dimmed(&report.buffers[0], &reference.0[0]));
}

fn distorted_frames_leave_in_the_reference_s_time_with_their_scores() {
    let clip = Clip::banded(96, 64, 8, "420", 5);
    let reference = Input::new(&clip, false, VideoFormat::I420);
    let late = ClockTime::from_mseconds(5);
    let distorted = Input::new(&clip, true, VideoFormat::Nv12).retimed(|t| Some(FRAME * t as u64 + late));
    let plain = score(&[], &reference, &distorted).unwrap();
    let rig = Rig::offline(&[DISTORTED]).play();
    let report = rig.run(&[("ref_sink", &reference), ("dist_sink", &distorted)]).unwrap();
    assert_eq!((report.metas(), report.scores()), (plain.metas(), plain.scores()));
    assert_eq!(report.buffers.len(), 5);
    for (t, buffer) in report.buffers.iter().enumerate() {
        assert_eq!(buffer.pts(), Some(FRAME * t as u64));
        assert_eq!(buffer.duration(), Some(FRAME));
        let sent = distorted.0[t].buffer().unwrap().map_readable().unwrap();
        assert_eq!(*buffer.map_readable().unwrap(), *sent, "frame {t}");
    }
    let caps = rig.log().caps.clone();
    assert_eq!(caps.len(), 1, "{caps:?}");
    assert_eq!(VideoInfo::from_caps(&caps[0].1).unwrap().format(), VideoFormat::Nv12);
}

fn the_last_distorted_frame_stands_in_for_a_lost_one() {
    let (reference, distorted) = sides(5);
    let report = score(&[DISTORTED], &reference, &distorted.keep(|t| t != 0 && t != 3)).unwrap();
    let pts: Vec<_> = report.buffers.iter().map(|buffer| buffer.pts().unwrap() / FRAME.nseconds()).collect();
    assert_eq!(
        pts.iter().map(|pts| pts.nseconds()).collect::<Vec<_>>(),
        [1, 2, 3, 4],
        "nothing to show before"
    );
    assert_eq!(report.states(), [Scored, Scored, Unpaired, Scored]);
    for (buffer, shown) in report.buffers.iter().zip([1, 2, 2, 4]) {
        let sent = distorted.0[shown].buffer().unwrap().map_readable().unwrap();
        assert_eq!(*buffer.map_readable().unwrap(), *sent);
    }
}

/// With several distorted streams, the output is that of `dist_sink`.
fn the_first_of_several_is_shown() {
    let (reference, distorted) = sides(4);
    for output in [HEATMAP, DISTORTED] {
        let rig = Rig::offline(&[output]).with_renditions(&["other"]).play();
        let report =
            rig.run(&[("ref_sink", &reference), ("dist_sink", &reference), ("dist_0", &distorted)]).unwrap();
        assert_eq!(report.buffers.len(), 4);
        for (buffer, sample) in report.buffers.iter().zip(&reference.0) {
            let sent = sample.buffer().unwrap().map_readable().unwrap();
            assert!(is_dimmed(buffer, sample) || *buffer.map_readable().unwrap() == *sent, "{output:?}");
        }
    }
}

/// Without score metadata, a heat map needs no next frame, so the latency is one frame.
fn without_meta_a_heat_map_takes_one_frame() {
    let (reference, distorted) = sides(2);
    let rig = Rig::live(&[HEATMAP, ("attach-meta", "false")]).play();
    rig.push_pairs(&reference.0[..1], &distorted.0[..1]);
    let report = rig.wait_buffers(1);
    assert!(!is_dimmed(&report.buffers[0], &reference.0[0]));
    assert!(ScoreMeta::from_buffer(&report.buffers[0]).is_none());
    assert_eq!(rig.latency(), FRAME);
}

fn a_heat_map_leaves_at_its_deadline_whatever_is_known() {
    let (reference, distorted) = sides(2);
    let rig = Rig::live(&[HEATMAP]).play();
    // The score needs the next frame; the damage does not.
    rig.push_pairs(&reference.0[..1], &distorted.0[..1]);
    rig.expire(2 * FRAME);
    let report = rig.wait_buffers(1);
    assert_eq!(report.states(), [Late]);
    // No distorted frame comes.
    rig.push("ref_sink", &reference.0[1]);
    rig.expire(3 * FRAME);
    let report = rig.wait_buffers(2);
    assert_eq!(report.states(), [Late, Unpaired]);
    assert!(is_dimmed(&report.buffers[1], &reference.0[1]));
}

fn new_caps_change_the_heat_map() {
    let (small, damaged) = sides(3);
    let clip = Clip::banded(97, 71, 10, "422", 2);
    let [large, distorted] = [false, true].map(|distorted| Input::planar(&clip, distorted));
    let reference = small.then(&large);
    let report = score(&[HEATMAP], &reference, &damaged.then(&distorted)).unwrap();
    let sizes: Vec<_> = report.buffers.iter().map(|buffer| buffer.size()).collect();
    assert_eq!(sizes, reference.0.iter().map(|sample| info(sample).size()).collect::<Vec<_>>());
    assert_eq!(report.states(), [Scored; 5]);
}

/// Converters before the pad whose frames leave learn which caps downstream accepts.
fn downstream_decides_the_format_of_what_it_gets() {
    for (output, asked) in [("heatmap", "ref_sink"), ("distorted", "dist_sink")] {
        let rig = Rig::offline(&[("output", output)]);
        let sink = gst::ElementFactory::make("capsfilter")
            .property_from_str("caps", "video/x-raw,format=NV12,width=64");
        let filter = sink.build().unwrap();
        let src = rig.pad("src");
        src.unlink(&src.peer().unwrap()).unwrap();
        src.link(&filter.static_pad("sink").unwrap()).unwrap();
        let caps = rig.pad(asked).query_caps(None);
        let alike = |s: &gst::StructureRef| {
            s.get("width") == Ok(64) && matches!(s.get("format"), Ok("NV12" | "DMA_DRM"))
        };
        assert!(!caps.is_empty() && caps.iter().all(alike), "{output}: {caps}");
        src.unlink(&src.peer().unwrap()).unwrap();
    }
}

fn a_run_with_another_output_follows() {
    let (reference, distorted) = sides(3);
    let bench = Bench::new(&[]);
    for output in ["reference", "heatmap", "distorted", "reference"] {
        bench.pipeline.set_state(gst::State::Null).unwrap();
        bench.element.set_property_from_str("output", output);
        let report = bench.run(&reference, &distorted).unwrap();
        let plane = |buffer: &gst::BufferRef| buffer.map_readable().unwrap()[0];
        let pixel = plane(&report.buffers[2]);
        let expected = match output {
            "reference" => plane(reference.0[2].buffer().unwrap()),
            "distorted" => coarse(moving(2, 0, 0)),
            _ => continue,
        };
        assert_eq!(pixel, expected, "{output}");
    }
}

fn the_frames_that_were_compared_go_along_where_they_are_wanted() {
    let (reference, distorted) = sides(8);
    let distorted = distorted.keep(|t| t != 3);
    let frames = |attach| {
        let report = score(&[("attach-frames", attach)], &reference, &distorted).unwrap();
        let frame = |buffer: &gst::Buffer| ScoreMeta::frame(buffer, "dist_sink");
        report.buffers.iter().map(frame).collect::<Vec<_>>()
    };
    let mut sent = distorted.0.iter();
    for (t, frame) in frames("true").into_iter().enumerate() {
        let expected = if t == 3 { None } else { sent.next() };
        assert_eq!(
            frame.as_ref().map(|frame| (frame.buffer(), frame.caps())),
            expected.map(|sent| (sent.buffer(), sent.caps())),
            "{t}"
        );
    }
    assert!(frames("false").iter().all(Option::is_none));
}
