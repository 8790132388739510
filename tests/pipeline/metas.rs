// SPDX-License-Identifier: MPL-2.0

//! Metas and tags that change how a buffer is shown: crop rectangles, overlays, transformations and orientations; and the
//! answers to allocation queries about them.

use gst::prelude::*;
use gst_video::prelude::*;
use gst_video::video_meta::{VideoAffineTransformationMeta, VideoOverlayCompositionMeta};
use gst_video::{
    VideoCropMeta, VideoFormat, VideoFrameFlags, VideoFrameRef, VideoInfo, VideoMeta,
    VideoOverlayComposition, VideoOverlayFormatFlags, VideoOverlayRectangle,
};
use gsthipvmaf::event::{Event, EventState};
use gsthipvmaf::message::{FrameMessage, VmafMessage};
use gsthipvmaf::meta::ScoreMeta;

use crate::common::clip::{Clip, Samples, clips};
use crate::common::rig::Rig;
use crate::common::{Bench, Input, Report, coarse, init, moving, score, sides};
use crate::process::{Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    a_cropped_frame_is_scored_on_its_part,
    what_leaves_keeps_its_rectangle,
    a_rectangle_may_change_while_the_video_plays,
    pictures_of_other_sizes_are_refused_and_scaled_as_such,
    a_heat_map_shows_the_part,
    a_frozen_part_is_noticed,
    what_is_not_honoured_is_refused,
    metas_that_change_nothing_are_no_trouble,
    upstream_is_offered_what_is_honoured,
    features_that_are_not_read_are_neither_accepted_nor_offered,
    what_comes_after_the_element_changes_no_score,
    overlays_before_the_element_are_blended,
    orientations_that_differ_are_refused,
    an_orientation_may_change_while_the_video_plays,
    a_crop_that_moves_on_one_side_only_is_seen_in_the_score
];

/// The column and row of the first luma sample, and the width and height.
type Rect = (usize, usize, usize, usize);

fn clip(name: &str) -> Clip {
    clips().into_iter().find(|clip| clip.name == name).unwrap()
}

/// Returns this part of the pictures of one side of a clip, in frames of that size.
fn cut(clip: &Clip, distorted: bool, format: VideoFormat, (x, y, width, height): Rect) -> Input {
    let part = |planes: [Samples; 3]| {
        let mut component = 0;
        planes.map(|plane| {
            let (columns, rows) =
                if component == 0 { (0, 0) } else { (clip.halved.0 as u32, clip.halved.1 as u32) };
            component += 1;
            let (width, height) = (width.div_ceil(1 << columns), height.div_ceil(1 << rows));
            let rows = plane.data.chunks(plane.width).skip(y >> rows).take(height);
            let first = x >> columns;
            let data: Vec<u16> = rows.flat_map(|row| row[first..first + width].to_vec()).collect();
            Samples { width, data }
        })
    };
    let pictures = (0..clip.frames).map(|t| part(clip.planes(t, distorted)));
    Input::pictures(format, (width, height), pictures)
}

/// The ways in which a part of a frame is marked.
#[derive(Clone, Copy, Debug)]
enum Marks {
    /// As `videocrop` and decoders do: caps have the size of the part, and [`VideoMeta`] that of the frame.
    Videocrop,
    /// Caps have the size of the frame.
    WholeCaps,
}

/// Returns frames with a crop rectangle.
fn cropped(input: &Input, marks: Marks, rect: impl Fn(usize) -> Rect) -> Input {
    let info = VideoInfo::from_caps(input.0[0].caps().unwrap()).unwrap();
    let mark = |(t, sample): (usize, &gst::Sample)| {
        let (x, y, width, height) = rect(t);
        let mut caps = sample.caps_owned().unwrap();
        let mut buffer = sample.buffer_owned().unwrap();
        let new = buffer.make_mut();
        if let Marks::Videocrop = marks {
            VideoMeta::add(new, VideoFrameFlags::empty(), info.format(), info.width(), info.height())
                .unwrap();
            caps.make_mut().set("width", width as i32);
            caps.make_mut().set("height", height as i32);
        }
        VideoCropMeta::add(new, (x as u32, y as u32, width as u32, height as u32));
        gst::Sample::builder().buffer(&buffer).caps(&caps).build()
    };
    Input(input.0.iter().enumerate().map(mark).collect())
}

/// Numbers by their names.
type Named = Vec<(String, f64)>;

/// Everything that was computed of each frame.
fn values(report: &Report) -> Vec<[Named; 2]> {
    report.frames.iter().map(|frame| [frame.models.clone(), frame.features.clone()]).collect()
}

fn a_cropped_frame_is_scored_on_its_part() {
    const PSNR: [(&str, &str); 1] = [("psnr", "true")];
    for (name, format) in [
        ("176x144_420_8bit", VideoFormat::I420),
        ("176x144_420_8bit", VideoFormat::Nv12),
        ("176x144_420_10bit", VideoFormat::P01010le),
        ("232x168_444_8bit", VideoFormat::Y444),
    ] {
        let clip = Clip { frames: 4, ..clip(name) };
        let whole = [false, true].map(|distorted| Input::new(&clip, distorted, format));
        // In the middle, at the edge of the frame, and at odd chroma positions.
        for rect in [(16, 8, 96, 80), (clip.width - 100, clip.height - 90, 100, 90), (5, 3, 101, 75)] {
            let parts = [false, true].map(|distorted| cut(&clip, distorted, format, rect));
            let expected = values(&score(&PSNR, &parts[0], &parts[1]).unwrap());
            assert_eq!(expected.len(), clip.frames);
            for marks in [Marks::Videocrop, Marks::WholeCaps] {
                let marked = [0, 1].map(|i| cropped(&whole[i], marks, |_| rect));
                for (reference, distorted) in
                    [(&marked[0], &marked[1]), (&marked[0], &parts[1]), (&parts[0], &marked[1])]
                {
                    let report = score(&PSNR, reference, distorted).unwrap();
                    assert_eq!(values(&report), expected, "{name} {format} {rect:?} {marks:?}");
                }
            }
        }
    }
}

/// The reference is passed on unchanged.
fn what_leaves_keeps_its_rectangle() {
    let clip = Clip { frames: 3, ..clip("176x144_420_8bit") };
    let rect = (16, 8, 96, 80);
    let marked =
        [false, true].map(|distorted| cropped(&Input::planar(&clip, distorted), Marks::Videocrop, |_| rect));
    for output in ["reference", "distorted"] {
        let properties = [("output", output), ("attach-frames", "true")];
        let report = score(&properties, &marked[0], &marked[1]).unwrap();
        assert_eq!(report.buffers.len(), 3, "{output}");
        for buffer in &report.buffers {
            assert_eq!(buffer.meta::<VideoCropMeta>().unwrap().rect(), (16, 8, 96, 80), "{output}");
            let frame = ScoreMeta::frame(buffer, "dist_sink").unwrap();
            let of_frame = frame.buffer().unwrap().meta::<VideoCropMeta>().map(|meta| meta.rect());
            assert_eq!(of_frame, Some((16, 8, 96, 80)), "{output}");
        }
    }
}

/// A crop rectangle may move. A new size begins a section, as new caps do.
fn a_rectangle_may_change_while_the_video_plays() {
    let clip = Clip { frames: 8, ..clip("176x144_420_8bit") };
    let format = VideoFormat::I420;
    let whole = [false, true].map(|distorted| Input::planar(&clip, distorted));
    let same_size = |t: usize| (2 * t, t, 96, 80);
    let other_size = |t: usize| if t < 4 { (0, 0, 96, 80) } else { (8, 8, 112, 96) };
    let rectangles: [&dyn Fn(usize) -> Rect; 2] = [&same_size, &other_size];
    for (rect, sections) in rectangles.into_iter().zip([&[8u64][..], &[4, 4]]) {
        let part = |distorted: bool, t: usize| cut(&clip, distorted, format, rect(t)).0[t].clone();
        let parts = [false, true].map(|distorted| Input((0..8).map(|t| part(distorted, t)).collect()));
        let expected = score(&[], &parts[0], &parts[1]).unwrap();
        for marks in [Marks::WholeCaps, Marks::Videocrop] {
            let marked = [0, 1].map(|i| cropped(&whole[i], marks, rect));
            let rig = Rig::offline(&[]).play();
            let report = rig.run(&[("ref_sink", &marked[0]), ("dist_sink", &marked[1])]);
            let report = report.unwrap_or_else(|failure| panic!("{}", failure.text));
            assert_eq!(values(&report), values(&expected), "{marks:?}");
            let frames: Vec<_> = report.pooled.iter().map(|pooled| pooled.counts.scored).collect();
            assert_eq!(frames, sections, "{marks:?}");
        }
    }
}

/// The sizes of the cropped pictures count, not those of the caps.
fn pictures_of_other_sizes_are_refused_and_scaled_as_such() {
    let clip = Clip { frames: 3, ..clip("176x144_420_8bit") };
    let whole = [false, true].map(|distorted| Input::planar(&clip, distorted));
    let rect = (0, 0, 88, 72);
    let part = cropped(&whole[1], Marks::WholeCaps, |_| rect);
    let failure = score(&[], &whole[0], &part).unwrap_err();
    assert_eq!(failure.error.kind(), Some(gst::StreamError::Format));
    assert!(failure.text.contains("176x144") && failure.text.contains("88x72"), "{}", failure.text);
    let scaled = [("scale-method", "bicubic")];
    let expected = score(&scaled, &whole[0], &cut(&clip, true, VideoFormat::I420, rect)).unwrap();
    assert_eq!(values(&score(&scaled, &whole[0], &part).unwrap()), values(&expected));
}

/// Samples of a planar frame of 8 bits, plane by plane.
fn planes(buffer: &gst::BufferRef, info: &VideoInfo) -> Vec<Vec<u8>> {
    let frame = VideoFrameRef::from_buffer_ref_readable(buffer, info).unwrap();
    let plane = |i: u32| {
        let (width, height) = (frame.comp_width(i) as usize, frame.comp_height(i) as usize);
        let rows = frame.plane_data(i).unwrap().chunks(frame.plane_stride()[i as usize] as usize);
        rows.take(height).flat_map(|row| row[..width].to_vec()).collect()
    };
    (0..info.n_planes()).map(plane).collect()
}

fn a_heat_map_shows_the_part() {
    let clip = Clip { frames: 4, ..clip("176x144_420_8bit") };
    let rect = (17, 9, 96, 80);
    let info = VideoInfo::builder(VideoFormat::I420, 96, 80).build().unwrap();
    let [parts, marked] = [false, true].map(|marked| {
        [false, true].map(|distorted| match marked {
            false => cut(&clip, distorted, VideoFormat::I420, rect),
            true => cropped(&Input::planar(&clip, distorted), Marks::WholeCaps, |_| rect),
        })
    });
    let heatmap = [("output", "heatmap")];
    let expected = score(&heatmap, &parts[0], &parts[1]).unwrap();
    let rig = Rig::offline(&heatmap).play();
    let report = rig.run(&[("ref_sink", &marked[0]), ("dist_sink", &marked[1])]).unwrap();
    assert_eq!(report.buffers.len(), 4);
    for (buffer, expected) in report.buffers.iter().zip(&expected.buffers) {
        assert!(buffer.meta::<VideoCropMeta>().is_none());
        assert_eq!(planes(buffer, &info), planes(expected, &info));
    }
    rig.log().assert_fits();
}

/// Freeze detection sees only the part of the picture in the crop: it is frozen while the frame around it moves.
fn a_frozen_part_is_noticed() {
    let moves = |t: usize, x: usize, y: usize| moving(t, x, y);
    let frozen = |t: usize, x: usize, y: usize| {
        let inside = (32..96).contains(&x) && (32..80).contains(&y);
        moving(if inside { t.min(4) } else { t }, x, y)
    };
    let [reference, distorted] =
        [Input::drawn_at((128, 112), 30, moves), Input::drawn_at((128, 112), 30, frozen)]
            .map(|input| cropped(&input, Marks::Videocrop, |_| (32, 32, 64, 48)));
    let report = score(&[("freeze-time", "400000000")], &reference, &distorted).unwrap();
    let raised = report.events.iter().find(|event| event.event == Event::Freeze);
    assert_eq!(raised.map(|event| event.state), Some(EventState::Raised), "{:?}", report.events);
}

fn overlay() -> VideoOverlayComposition {
    let info = VideoInfo::builder(VideoFormat::Bgra, 16, 16).build().unwrap();
    let mut pixels = gst::Buffer::from_mut_slice(vec![0xff; info.size()]);
    let flags = VideoFrameFlags::empty();
    VideoMeta::add(pixels.get_mut().unwrap(), flags, VideoFormat::Bgra, 16, 16).unwrap();
    let flags = VideoOverlayFormatFlags::empty();
    let rectangle = VideoOverlayRectangle::new_raw(&pixels, 8, 8, 16, 16, flags);
    VideoOverlayComposition::new([&rectangle]).unwrap()
}

/// Returns inputs that would have to be changed before display, from the third frame on, each with parts of the error.
fn troubles(input: &Input) -> [(&'static str, Input, [&'static str; 2]); 3] {
    init();
    let overlay = overlay();
    let flipped = [[1.0, 0.0, 0.0, 0.0], [0.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]];
    let late = |change: &dyn Fn(&mut gst::BufferRef)| {
        input.changed(|t, buffer| {
            if t >= 2 {
                change(buffer);
            }
        })
    };
    let overlaid = late(&|buffer| {
        VideoOverlayCompositionMeta::add(buffer, &overlay);
    });
    let turned = late(&|buffer| {
        VideoAffineTransformationMeta::add(buffer, Some(&flipped));
    });
    let outside = late(&|buffer| {
        VideoCropMeta::add(buffer, (8, 0, 64, 48));
    });
    [
        ("overlay", overlaid, ["GstVideoOverlayCompositionMeta", "video/x-raw"]),
        ("transformation", turned, ["GstVideoAffineTransformationMeta", "transform"]),
        ("outside", outside, ["64x48 at 8,0", "videocrop"]),
    ]
}

fn what_is_not_honoured_is_refused() {
    let (reference, distorted) = sides(8);
    for (name, trouble, said) in troubles(&distorted) {
        for (pad, both) in [("dist_sink", (&reference, &trouble)), ("ref_sink", (&trouble, &distorted))] {
            let failure = score(&[], both.0, both.1).unwrap_err();
            for said in said.iter().chain(&[pad]) {
                assert!(failure.text.contains(said), "{name}: `{said}` is not in: {}", failure.text);
            }
        }
        let rig = Rig::offline(&[]).with_renditions(&["troubled"]).play();
        let inputs = [("ref_sink", &reference), ("dist_sink", &distorted), ("dist_0", &trouble)];
        let report = rig.run(&inputs).unwrap_or_else(|failure| panic!("{name}: {}", failure.text));
        assert_eq!((report.scores_of("dist_sink").len(), report.scores_of("dist_0").len()), (8, 2), "{name}");
        let log = rig.log();
        let failed = log.events_of("failed");
        assert_eq!(failed.len(), 1, "{name}: {failed:?}");
        assert!(failed[0].2.as_ref().unwrap().contains(said[0]), "{name}: {failed:?}");
        assert_eq!(log.warnings.len(), 1, "{name}: {:?}", log.warnings);
    }
}

fn metas_that_change_nothing_are_no_trouble() {
    let (reference, distorted) = sides(4);
    let marked = distorted.changed(|_, buffer| {
        VideoAffineTransformationMeta::add(buffer, None);
        VideoCropMeta::add(buffer, (0, 0, 64, 48));
    });
    let expected = score(&[], &reference, &distorted).unwrap().scores();
    assert_eq!(score(&[], &reference, &marked).unwrap().scores(), expected);
}

/// Returns the metas that a sink pad offers upstream, if downstream offers these.
fn offered(rig: &Rig, pad: &str) -> Vec<glib::Type> {
    let mut query = gst::query::Allocation::new(rig.pad(pad).current_caps().as_ref(), false);
    assert!(rig.pad(pad).query(&mut query));
    query.allocation_metas().map(|(api, _)| api).collect()
}

fn upstream_is_offered_what_is_honoured() {
    let (reference, distorted) = sides(2);
    let (video, crop) = (VideoMeta::meta_api(), VideoCropMeta::meta_api());
    for (output, attach, sink_crops, on_reference, on_distorted) in [
        ("reference", false, false, vec![video], vec![video, crop]),
        ("reference", false, true, vec![video, crop], vec![video, crop]),
        // The application that receives the frames may ignore crop rectangles.
        ("reference", true, true, vec![video, crop], vec![video]),
        ("distorted", false, false, vec![video, crop], vec![video]),
        ("distorted", false, true, vec![video, crop], vec![video, crop]),
        ("heatmap", false, false, vec![video, crop], vec![video, crop]),
    ] {
        let attach = ("attach-frames", if attach { "true" } else { "false" });
        let rig = Rig::offline(&[("output", output), attach]).play();
        let sink = rig.pad("src").peer().unwrap();
        sink.add_probe(gst::PadProbeType::QUERY_DOWNSTREAM, move |_, info| {
            match info.query_mut().map(|query| query.view_mut()) {
                Some(gst::QueryViewMut::Allocation(query)) => {
                    query.add_allocation_meta::<VideoOverlayCompositionMeta>(None);
                    query.add_allocation_meta::<VideoMeta>(None);
                    query.add_allocation_meta::<VideoAffineTransformationMeta>(None);
                    if sink_crops {
                        query.add_allocation_meta::<VideoCropMeta>(None);
                    }
                    gst::PadProbeReturn::Handled
                }
                _ => gst::PadProbeReturn::Ok,
            }
        });
        rig.push_pairs(&reference.0[..1], &distorted.0[..1]);
        let found = [offered(&rig, "ref_sink"), offered(&rig, "dist_sink")];
        assert_eq!(found, [on_reference, on_distorted], "{output}, {attach:?}, crop: {sink_crops}");
    }
}

fn features_that_are_not_read_are_neither_accepted_nor_offered() {
    let rig = Rig::offline(&[]).play();
    let caps = |features: &str| {
        let text = format!("video/x-raw{features}, format=I420, width=64, height=48, framerate=25/1");
        text.parse::<gst::Caps>().unwrap()
    };
    for pad in ["ref_sink", "dist_sink"] {
        let pad = rig.pad(pad);
        for read in ["", "(memory:HIPMemory)", "(memory:CUDAMemory)", "(memory:DMABuf)"] {
            assert!(pad.query_accept_caps(&caps(read)), "{read}");
        }
        for other in [
            "(memory:SystemMemory, meta:GstVideoOverlayComposition)",
            "(memory:DMABuf, meta:GstVideoOverlayComposition)",
            "(meta:GstVideoGLTextureUploadMeta)",
            "(memory:GLMemory)",
        ] {
            assert!(!pad.query_accept_caps(&caps(other)), "{other}");
            assert!(pad.query_caps(Some(&caps(other))).is_empty(), "{other}");
        }
    }
}

/// Plays a launch line to its end. Returns the messages of its frames.
fn play(line: &str, before: impl Fn(&gst::Pipeline)) -> Vec<FrameMessage> {
    init();
    let pipeline = gst::parse::launch(line).unwrap().downcast::<gst::Pipeline>().unwrap();
    before(&pipeline);
    pipeline.set_state(gst::State::Playing).unwrap();
    let mut frames = vec![];
    for message in pipeline.bus().unwrap().iter_timed(gst::ClockTime::from_seconds(60)) {
        match message.view() {
            gst::MessageView::Element(element) => {
                if let Some(Ok(VmafMessage::Frame(frame))) = element.structure().map(VmafMessage::try_from) {
                    frames.push(frame);
                }
            }
            gst::MessageView::Error(error) => panic!("{line}: {error:?}"),
            gst::MessageView::Eos(_) => break,
            _ => {}
        }
    }
    pipeline.set_state(gst::State::Null).unwrap();
    frames
}

const SOURCE: &str =
    "videotestsrc num-buffers=6 pattern=ball ! video/x-raw,format=I420,width=320,height=180,framerate=25/1";

/// Video sinks accept crop metas, so `videocrop` before the reference only adds one.
fn what_comes_after_the_element_changes_no_score() {
    let scores = |sink: &str, side: &str| -> Vec<(f64, Option<f64>)> {
        let crop = "videocrop left=80 right=80 top=45 bottom=45";
        let line = format!(
            "{SOURCE} ! tee name=t t. ! queue ! {crop} ! h.ref_sink \
             t. ! queue ! {crop} ! {side} videobalance brightness=0.000001 ! video/x-raw,format=I420 ! h.dist_sink \
             hipvmaf name=h backend=cpu psnr=true frame-message=true ! {sink}"
        );
        play(&line, |_| {}).iter().map(|frame| (frame.score, frame.psnr_y)).collect()
    };
    for side in ["", "identity !"] {
        let expected = scores("fakesink", side);
        assert_eq!(expected.len(), 6);
        assert!(expected.iter().all(|(_, psnr)| *psnr == Some(60.0)), "{expected:?}");
        assert_eq!(scores("fakevideosink sync=false", side), expected);
    }
}

/// `textoverlay` attaches overlays if the peer accepts them, and blends them otherwise.
fn overlays_before_the_element_are_blended() {
    for sink in ["fakesink", "fakevideosink sync=false"] {
        let line = format!(
            "{SOURCE} ! tee name=t t. ! queue ! overlaycomposition name=ref ! h.ref_sink \
             t. ! queue ! h.dist_sink t. ! queue ! overlaycomposition name=dist ! h.dist_0 \
             hipvmaf name=h backend=cpu psnr=true frame-message=true ! {sink}"
        );
        let draw = |pipeline: &gst::Pipeline| {
            for name in ["ref", "dist"] {
                let overlay = overlay();
                let element = pipeline.by_name(name).unwrap();
                element.connect("draw", false, move |_| Some(overlay.to_value()));
            }
        };
        let frames = play(&line, draw);
        let psnr = |pad: &str| -> Vec<_> {
            frames.iter().filter(|frame| frame.pad == pad).map(|frame| frame.psnr_y.unwrap()).collect()
        };
        assert_eq!(psnr("dist_0"), [60.0; 6], "{sink}");
        assert_eq!(psnr("dist_sink").len(), 6, "{sink}");
        assert!(psnr("dist_sink").iter().all(|psnr| *psnr < 50.0), "{sink}: {frames:?}");
    }
}

fn tag(rig: &Rig, pad: &str, orientation: &str) {
    let mut tags = gst::TagList::new();
    tags.get_mut().unwrap().add::<gst::tags::ImageOrientation>(&orientation, gst::TagMergeMode::Replace);
    rig.push_event(pad, gst::event::Tag::new(tags));
}

/// Plays frames with an orientation tag on each side, or with none.
fn turned(orientations: [Option<&str>; 2], labels: &[&str]) -> (Result<Report, String>, Vec<String>) {
    let (reference, distorted) = sides(6);
    let rig = Rig::offline(&[]).with_renditions(labels).play();
    let pads = ["ref_sink", "dist_sink"];
    for (pad, input) in pads.into_iter().zip([&reference, &distorted]) {
        rig.push_event(pad, gst::event::StreamStart::new(pad));
        rig.push_caps(pad, &input.0[0]);
        rig.push_event(pad, gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    }
    for (pad, orientation) in pads.into_iter().zip(orientations) {
        orientation.into_iter().for_each(|orientation| tag(&rig, pad, orientation));
    }
    let mut inputs = vec![("ref_sink", &reference), ("dist_sink", &distorted)];
    inputs.extend(labels.iter().map(|_| ("dist_0", &distorted)));
    let report = rig.run(&inputs).map_err(|failure| failure.text);
    let warnings = rig.log().warnings.clone();
    (report, warnings)
}

/// Pictures are compared as they are stored, which is right as long as both sides have the same orientation.
fn orientations_that_differ_are_refused() {
    let upright = Some("rotate-0");
    let turn = Some("rotate-180");
    for orientations in [[None, None], [turn, turn], [upright, None], [None, upright]] {
        let (report, warnings) = turned(orientations, &[]);
        assert_eq!(report.map(|report| report.frames.len()), Ok(6), "{orientations:?}");
        assert!(warnings.is_empty(), "{orientations:?}: {warnings:?}");
    }
    for orientations in [[turn, upright], [upright, turn], [turn, Some("rotate-90")]] {
        let text = turned(orientations, &[]).0.unwrap_err();
        for said in ["rotate-180", "dist_sink", "videoflip"] {
            assert!(text.contains(said), "{orientations:?}: `{said}` is not in: {text}");
        }
        let (report, warnings) = turned(orientations, &["untagged"]);
        assert_eq!(report.unwrap().scores_of("dist_0").len(), 6);
        assert!(warnings.iter().any(|warning| warning.contains("dist_sink")), "{warnings:?}");
    }
    for (orientations, said) in [([turn, None], "ref_sink"), ([None, turn], "dist_sink")] {
        let (report, warnings) = turned(orientations, &[]);
        assert_eq!(report.map(|report| report.frames.len()), Ok(6), "{orientations:?}");
        let [warning] = &warnings[..] else { panic!("{orientations:?}: {warnings:?}") };
        assert!(["rotate-180", "videoflip", said].iter().all(|said| warning.contains(said)), "{warning}");
    }
}

/// A stream that was refused is scored again when its orientation matches.
fn an_orientation_may_change_while_the_video_plays() {
    let (reference, distorted) = sides(12);
    let rig = Rig::offline(&[]).with_renditions(&["turned"]).play();
    let push = |t: usize| {
        for (pad, input) in [("dist_0", &distorted), ("ref_sink", &reference), ("dist_sink", &distorted)] {
            rig.push(pad, &input.0[t]);
        }
    };
    push(0);
    tag(&rig, "ref_sink", "rotate-0");
    tag(&rig, "dist_0", "rotate-90");
    (1..6).for_each(push);
    tag(&rig, "dist_0", "rotate-0");
    (6..12).for_each(push);
    rig.end();
    let report = rig.finish().unwrap();
    let indices = |pad: &str| -> Vec<_> {
        report.frames.iter().filter(|frame| frame.pad == pad).map(|frame| frame.index as usize).collect()
    };
    assert_eq!(indices("dist_sink"), (0..12).collect::<Vec<_>>());
    assert_eq!(indices("dist_0"), [0, 6, 7, 8, 9, 10, 11]);
    let states: Vec<_> = rig.log().events_of("failed").into_iter().map(|(state, ..)| state).collect();
    assert_eq!(states, ["raised", "cleared"]);
}

/// The cropped part is compared. The frame is the same on both sides.
fn a_crop_that_moves_on_one_side_only_is_seen_in_the_score() {
    let whole = Input::drawn_at((96, 80), 6, |t, x, y| coarse(moving(t, x, y)));
    let marked = |rect: Rect| cropped(&whole, Marks::Videocrop, move |_| rect);
    let mean = |other: Rect| {
        let report = Bench::new(&[]).run(&marked((8, 8, 64, 48)), &marked(other)).unwrap();
        report.scores().iter().sum::<f64>() / 6.0
    };
    assert!(mean((8, 8, 64, 48)) > 90.0 && mean((24, 24, 64, 48)) < 60.0);
}
