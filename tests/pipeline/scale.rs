// SPDX-License-Identifier: MPL-2.0

//! Distorted video of another size: scaled as the definition says, scored like video that was scaled before.

use engine::frame::{BitDepth, Geometry};
use engine::scale::{Axis, Method, Scaling, shifts};
use gst::prelude::*;
use gst_video::VideoFormat;

use crate::common::clip::{Clip, Samples, clips};
use crate::common::rig::Rig;
use crate::common::{Bench, Failure, Input, Report, planar_format, score};
use crate::process::{Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    video_of_another_size_is_scored_as_if_it_had_been_scaled,
    chroma_is_taken_to_be_where_h264_has_it_unless_caps_say_otherwise,
    renditions_of_several_sizes_are_scored_side_by_side,
    a_stream_may_change_its_size_at_any_time,
    the_reference_may_change_its_size_under_the_distorted_video,
    a_picture_of_the_former_size_is_not_repeated,
    sizes_beyond_reason_are_refused,
    another_depth_or_chroma_is_refused_all_the_same,
    upstream_is_offered_the_size_of_the_reference_and_then_any,
    thumbnails_do_not_depend_on_the_size
];

fn clip(name: &str) -> Clip {
    clips().into_iter().find(|clip| clip.name == name).unwrap()
}

fn geometry(clip: &Clip, (width, height): (usize, usize)) -> Geometry {
    let half = |n: usize, halved: bool| n.div_ceil(1 << u32::from(halved));
    let chroma = Some((half(width, clip.halved.0), half(height, clip.halved.1)));
    Geometry { width, height, depth: BitDepth::new(clip.depth).unwrap(), chroma }
}

/// Returns a plane scaled by the definition.
fn scale_plane(plane: &Samples, [columns, rows]: &[Axis; 2], depth: BitDepth) -> Samples {
    let sum = |axis: &Axis, i: usize, at: &dyn Fn(usize) -> i64| -> i64 {
        axis.weights(i).iter().enumerate().map(|(k, weight)| i64::from(*weight) * at(axis.first(i) + k)).sum()
    };
    let rounded = |sum: i64, shift: u32| (sum + (1 << (shift - 1))) >> shift;
    let [along, down] = shifts(depth);
    let row = |y: usize| -> Vec<i64> {
        let sample = |x: usize| i64::from(plane.data[y * plane.width + x]);
        (0..columns.len()).map(|x| rounded(sum(columns, x, &sample), along)).collect()
    };
    let filtered: Vec<_> = (0..plane.data.len() / plane.width).map(row).collect();
    let sample = &|x: usize, y: usize| {
        rounded(sum(rows, y, &|y| filtered[y][x]), down).clamp(0, depth.max().into()) as u16
    };
    let data = (0..rows.len()).flat_map(|y| (0..columns.len()).map(move |x| sample(x, y))).collect();
    Samples { width: columns.len(), data }
}

fn scale_picture(planes: &[Samples; 3], scaling: &Scaling) -> [Samples; 3] {
    let depth = scaling.source().depth;
    let chroma = scaling.chroma().unwrap();
    let [y, cb, cr] = planes;
    [scale_plane(y, &scaling.luma(), depth), scale_plane(cb, &chroma, depth), scale_plane(cr, &chroma, depth)]
}

/// The reference of a clip; its distorted side made smaller or larger as an encoder's input is; and that side scaled
/// back by this method.
fn sides(clip: &Clip, size: (usize, usize), method: Method, cosited: (bool, bool)) -> [Input; 3] {
    sides_as(planar_format(clip), clip, size, method, cosited)
}

fn sides_as(
    format: VideoFormat,
    clip: &Clip,
    size: (usize, usize),
    method: Method,
    cosited: (bool, bool),
) -> [Input; 3] {
    let full = (clip.width, clip.height);
    let [here, there] = [full, size].map(|size| geometry(clip, size));
    let away = Scaling::new(Method::Bicubic, here, there, cosited).unwrap();
    let back = Scaling::new(method, there, here, cosited).unwrap();
    let resized = |t| scale_picture(&clip.planes(t, true), &away);
    let distorted = Input::pictures(format, size, (0..clip.frames).map(resized));
    let site = if cosited == (false, false) { "jpeg" } else { "mpeg2" };
    let restored = Input::pictures(format, full, (0..clip.frames).map(|t| scale_picture(&resized(t), &back)));
    [Input::new(clip, false, format), distorted.with_caps(|caps| caps.set("chroma-site", site)), restored]
}

/// Returns the models and features of each frame on a pad.
fn values(report: &Report, pad: &str) -> Vec<String> {
    let frames = report.frames.iter().filter(|frame| frame.pad == pad);
    frames.map(|frame| format!("{:?} {:?}", frame.models, frame.features)).collect()
}

fn video_of_another_size_is_scored_as_if_it_had_been_scaled() {
    let methods =
        [("bilinear", Method::Bilinear), ("bicubic", Method::Bicubic), ("lanczos", Method::Lanczos)];
    let cases = [
        ("176x144_420_8bit", VideoFormat::I420, (88, 72)),
        ("176x144_420_8bit", VideoFormat::Nv12, (250, 201)),
        ("176x144_420_10bit", VideoFormat::P01010le, (117, 97)),
        ("176x144_420_10bit", VideoFormat::I42010le, (176, 73)),
        ("97x71_422_10bit", VideoFormat::I42210le, (55, 142)),
        ("97x71_420_8bit", VideoFormat::I420, (49, 35)),
    ];
    for (i, (name, format, size)) in cases.into_iter().enumerate() {
        let (nick, method) = methods[i % 3];
        let cosited = (i % 2 == 0, false);
        let [reference, distorted, restored] = sides_as(format, &clip(name), size, method, cosited);
        let features = ("features", "psnr;ciede");
        let expected = score(&[features], &reference, &restored).unwrap();
        let found = score(&[features, ("scale-method", nick)], &reference, &distorted).unwrap();
        assert_eq!(values(&found, "dist_sink"), values(&expected, "dist_sink"), "{name} {format} {nick}");
        assert_eq!(found.pooled[0].score, expected.pooled[0].score);
        assert_eq!(found.frames.len(), reference.0.len());
    }
}

fn chroma_is_taken_to_be_where_h264_has_it_unless_caps_say_otherwise() {
    let clip = clip("176x144_420_8bit");
    let psnr = |distorted: &Input, method: &[(&str, &str)]| {
        let [reference, ..] = sides(&clip, (88, 72), Method::Bicubic, (true, false));
        let report = score(&[&[("psnr", "true")], method].concat(), &reference, distorted).unwrap();
        values(&report, "dist_sink")
    };
    let scaled = [("scale-method", "bicubic")];
    let [_, left, left_restored] = sides(&clip, (88, 72), Method::Bicubic, (true, false));
    let [_, centre, centre_restored] = sides(&clip, (88, 72), Method::Bicubic, (false, false));
    let unsaid = left.with_caps(|caps| caps.structure_mut(0).unwrap().remove_field("chroma-site"));
    assert_eq!(psnr(&left, &scaled), psnr(&left_restored, &[]));
    assert_eq!(psnr(&unsaid, &scaled), psnr(&left_restored, &[]));
    assert_eq!(psnr(&centre, &scaled), psnr(&centre_restored, &[]));
    assert_ne!(psnr(&centre_restored, &[]), psnr(&left_restored, &[]));
}

fn renditions_of_several_sizes_are_scored_side_by_side() {
    let clip = clip("176x144_420_8bit");
    let [reference, small, small_restored] = sides(&clip, (88, 72), Method::Lanczos, (true, false));
    let [_, smaller, smaller_restored] = sides(&clip, (64, 50), Method::Lanczos, (true, false));
    let same = Input::planar(&clip, true);
    for properties in [vec![], vec![("subsample", "3"), ("psnr", "true")], vec![("threads", "2")]] {
        let scaled = [&properties[..], &[("scale-method", "lanczos")]].concat();
        let rig = Rig::offline(&scaled).with_renditions(&["small", "smaller"]).play();
        let inputs =
            [("ref_sink", &reference), ("dist_sink", &same), ("dist_0", &small), ("dist_1", &smaller)];
        let report = rig.run(&inputs).unwrap();
        for (pad, alone) in [("dist_sink", &same), ("dist_0", &small_restored), ("dist_1", &smaller_restored)]
        {
            let alone = score(&properties, &reference, alone).unwrap();
            assert_eq!(values(&report, pad), values(&alone, "dist_sink"), "{pad} {properties:?}");
        }
    }
}

/// In adaptive streaming, one rendition changes its size: the others go on, and the motion is always that of the reference.
fn a_stream_may_change_its_size_at_any_time() {
    let clip = clip("176x144_420_8bit");
    let [reference, small, small_restored] = sides(&clip, (88, 72), Method::Bicubic, (true, false));
    let [_, other, other_restored] = sides(&clip, (118, 97), Method::Bicubic, (true, false));
    let same = Input::planar(&clip, true);
    let last = reference.0.len() - 2;
    let spans: [&dyn Fn(usize) -> bool; 3] = [&|t| t < 3, &|t| (3..last).contains(&t), &|t| t >= last];
    let cut = |parts: [&Input; 3]| [0, 1, 2].map(|i| parts[i].keep(spans[i]));
    let switching = Input(cut([&small, &other, &same]).into_iter().flat_map(|part| part.0).collect());
    let rig = Rig::offline(&[("scale-method", "bicubic")]).with_renditions(&["switching"]).play();
    let inputs = [("ref_sink", &reference), ("dist_sink", &same), ("dist_0", &switching)];
    let report = rig.run(&inputs).unwrap();
    let whole = |distorted: &Input| values(&score(&[], &reference, distorted).unwrap(), "dist_sink");
    assert_eq!(values(&report, "dist_sink"), whole(&same));
    let mut expected = vec![];
    for (part, ends) in [(&small_restored, 3), (&other_restored, last), (&same, reference.0.len())] {
        // The last frame of a section has the motion of a stream's end.
        let ended = score(&[], &reference.keep(|t| t < ends), &part.keep(|t| t < ends)).unwrap();
        let ended = values(&ended, "dist_sink");
        let begins = expected.len();
        expected.extend(whole(part)[begins..ends - 1].iter().cloned());
        expected.push(ended[ends - 1].clone());
    }
    assert_eq!(values(&report, "dist_0"), expected);
    let sections: Vec<_> =
        report.pooled.iter().map(|p| (p.pad.as_str(), p.reason.as_str(), p.counts.scored)).collect();
    let middle = last as u64 - 3;
    let expected = [
        ("dist_0", "caps", 3),
        ("dist_0", "caps", middle),
        ("dist_sink", "eos", reference.0.len() as u64),
        ("dist_0", "eos", 2),
    ];
    assert_eq!(sections, expected);
}

fn the_reference_may_change_its_size_under_the_distorted_video() {
    let clip = clip("176x144_420_8bit");
    let [reference, small, _] = sides(&clip, (88, 72), Method::Bicubic, (true, false));
    let [other, ..] =
        sides(&Clip { width: 120, height: 98, ..clip }, (60, 49), Method::Bicubic, (true, false));
    let half = reference.0.len() / 2;
    let ranges: [&dyn Fn(usize) -> bool; 2] = [&|t| t < half, &|t| t >= half];
    let parts = [(&reference, ranges[0]), (&other, ranges[1])].map(|(input, range)| input.keep(range));
    let properties = [("scale-method", "lanczos")];
    let runs = parts.iter().zip(ranges).flat_map(|(reference, range)| {
        values(&score(&properties, reference, &small.keep(range)).unwrap(), "dist_sink")
    });
    let runs: Vec<_> = runs.collect();
    let report = score(&properties, &Input(parts.iter().flat_map(|part| part.0.clone()).collect()), &small);
    assert_eq!(values(&report.unwrap(), "dist_sink"), runs);
}

fn a_picture_of_the_former_size_is_not_repeated() {
    let clip = clip("176x144_420_8bit");
    let [reference, small, _] = sides(&clip, (88, 72), Method::Bicubic, (true, false));
    let [_, other, _] = sides(&clip, (118, 97), Method::Bicubic, (true, false));
    // Frame 1 is repeated. After frame 3 the other size begins, in which frame 4 is missing.
    let frames = small.keep(|t| t < 4 && t != 2).0.into_iter().chain(other.keep(|t| t > 4).0);
    let properties = [("scale-method", "bicubic"), ("missing-frame", "repeat")];
    let report = score(&properties, &reference, &Input(frames.collect())).unwrap();
    let indices: Vec<_> = report.frames.iter().map(|frame| frame.index).collect();
    let expected: Vec<_> = (0..reference.0.len() as i32).filter(|index| *index != 4).collect();
    assert_eq!(indices, expected);
    assert!(report.frames.iter().all(|frame| frame.repeated == (frame.index == 2)));
}

fn sizes_beyond_reason_are_refused() {
    let large = Clip { width: 640, height: 64, frames: 2, ..clip("176x144_420_8bit") };
    let reference = Input::planar(&large, false);
    let fail = |width, height| -> Failure {
        let distorted = Input::planar(&Clip { width, height, frames: 2, ..clip("176x144_420_8bit") }, true);
        score(&[("scale-method", "lanczos")], &reference, &distorted).unwrap_err()
    };
    for (width, height, reason) in [(39, 64, "16 times"), (320, 14, "16x16")] {
        let failure = fail(width, height);
        assert_eq!(failure.error.kind(), Some(gst::StreamError::Format), "{failure:?}");
        for text in ["640x64", &format!("{width}x{height}"), "scale-method", reason] {
            assert!(failure.text.contains(text), "`{text}` is not in: {}", failure.text);
        }
    }
}

fn another_depth_or_chroma_is_refused_all_the_same() {
    for (name, format) in [("97x71_422_10bit", "I422_10LE"), ("232x168_444_8bit", "Y444")] {
        let reference = Input::planar(&clip("176x144_420_8bit"), false);
        let failure = score(&[("scale-method", "bicubic")], &reference, &Input::planar(&clip(name), true));
        let failure = failure.unwrap_err();
        assert_eq!(failure.error.kind(), Some(gst::StreamError::Format), "{failure:?}");
        let deeper = if format == "Y444" { "I420" } else { format };
        for text in [format, &format!("videoconvert ! video/x-raw,format={deeper}")] {
            assert!(failure.text.contains(text), "`{text}` is not in: {}", failure.text);
        }
    }
}

/// The size of the reference comes first in the caps: if a decoder can choose it, neither has to scale.
fn upstream_is_offered_the_size_of_the_reference_and_then_any() {
    let offered = |properties: &[(&str, &str)]| {
        let rig = Rig::offline(properties).play();
        rig.push("ref_sink", &Input::planar(&clip("176x144_420_8bit"), false).0[0]);
        let sizes = || {
            let caps = rig.pad("dist_sink").query_caps(None);
            let width = |s: &gst::StructureRef| s.get::<i32>("width").ok();
            caps.iter().map(width).collect::<Vec<_>>()
        };
        // The sizes are known once the element has the caps of the reference.
        while sizes()[0].is_none() {
            std::thread::yield_now();
        }
        let mut sizes = sizes();
        sizes.dedup();
        sizes
    };
    assert_eq!(offered(&[]), [Some(176)]);
    assert_eq!(offered(&[("scale-method", "bilinear")]), [Some(176), None]);
}

fn thumbnails_do_not_depend_on_the_size() {
    let clip = clip("176x144_420_8bit");
    let [reference, small, _] = sides(&clip, (88, 72), Method::Bicubic, (true, false));
    let bench = Bench::new(&[("scale-method", "bicubic"), ("freeze-time", "1"), ("black-time", "1")]);
    bench.element.static_pad("dist_sink").unwrap().set_property_from_str("align", "detect");
    let report = bench.run(&reference, &small).unwrap();
    assert_eq!(report.frames.len(), reference.0.len());
    assert!(report.events.is_empty(), "{:?}", report.events);
}
