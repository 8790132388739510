// SPDX-License-Identifier: MPL-2.0

//! Errors: the element posts each error once, with the right domain and a remedy, and stops.

use crate::common::clip::{Clip, clips};
use crate::common::{Failure, Input, init, score};
use crate::process::{Function, functions};
use glib::error::ErrorDomain;
use gst::prelude::*;
use gst_video::VideoFormat;

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    an_unknown_model_lists_the_known_ones,
    a_faulty_model_file_is_named_with_reason_and_position,
    settings_that_contradict_each_other_are_refused,
    a_faulty_list_of_features_is_refused_with_what_is_allowed,
    different_sizes_are_refused_with_what_to_insert,
    different_depth_or_chroma_is_refused_with_what_to_insert,
    the_side_with_fewer_bits_is_to_be_converted,
    colours_that_are_coded_in_another_way_are_refused_with_what_to_insert,
    colours_are_compared_as_far_as_both_sides_name_them,
    unsupported_caps_are_refused_with_what_to_insert,
    frames_under_the_minimum_are_refused_with_the_minimum,
    a_buffer_that_is_too_small_is_refused,
    frames_that_cannot_be_timed_are_refused,
    buffers_without_caps_are_refused,
    a_results_path_that_cannot_be_written_stops_before_the_first_frame,
    gst_launch_fails_with_the_message,
    a_short_film_that_does_not_suit_is_an_error
];

fn clip() -> Clip {
    clips().into_iter().find(|clip| clip.name == "176x144_420_8bit").unwrap()
}

fn fail(properties: &[(&str, &str)]) -> Failure {
    let clip = clip();
    score(properties, &Input::planar(&clip, false), &Input::planar(&clip, true)).unwrap_err()
}

/// Asserts that the error is of this kind, and that its text contains all of these.
#[track_caller]
fn assert_failure<E: ErrorDomain + PartialEq + std::fmt::Debug>(failure: Failure, kind: E, texts: &[&str]) {
    assert_eq!(failure.error.kind::<E>(), Some(kind), "{failure:?}");
    for text in texts {
        assert!(failure.text.contains(text), "`{text}` is not in: {}", failure.text);
    }
}

fn an_unknown_model_lists_the_known_ones() {
    for property in ["model-filename", "extra-models"] {
        let texts = ["vmaf_v9", "vmaf_v0.6.1", "vmaf_4k_v0.6.1neg", "vmaf_b_v0.6.3", "path"];
        assert_failure(fail(&[(property, "vmaf_v9")]), gst::ResourceError::NotFound, &texts);
    }
    assert_failure(fail(&[("model-filename", "")]), gst::LibraryError::Settings, &["model-filename"]);
}

fn a_faulty_model_file_is_named_with_reason_and_position() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = include_str!("../../models/vmaf_v0.6.1.json");
    let cases = [
        ("syntax.json", "{\n  \"model_dict\": nonsense\n}".to_owned(), "line 2"),
        ("truncated.json", good[..good.len() / 2].to_owned(), "line"),
        ("no_model.json", "{}".to_owned(), "model_dict"),
        ("support_vector.json", good.replace("total_sv 211", "total_sv 212"), "line"),
        (
            "feature.json",
            good.replace("VMAF_integer_feature_adm2_score", "VMAF_feature_adm_score"),
            "not supported",
        ),
        ("type.json", good.replace("LIBSVMNUSVR", "RANDOMFOREST"), "model_type"),
    ];
    for (name, text, reason) in cases {
        let path = file(name, &text);
        assert_failure(fail(&[("model-filename", &path)]), gst::ResourceError::Read, &[name, reason]);
    }
    let folder = folder.path().to_str().unwrap();
    assert_failure(fail(&[("model-filename", folder)]), gst::ResourceError::OpenRead, &[folder, "directory"]);
}

fn settings_that_contradict_each_other_are_refused() {
    assert_failure(
        fail(&[("conf-interval", "true")]),
        gst::LibraryError::Settings,
        &["conf-interval", "vmaf_v0.6.1", "vmaf_b_v0.6.3"],
    );
    assert_failure(
        fail(&[("enc-bitdepth", "5")]),
        gst::LibraryError::Settings,
        &["enc-bitdepth", "`5`", "an integer from 6 to 16"],
    );
    assert_failure(
        fail(&[("extra-models", "vmaf_v0.6.1neg;vmaf_v0.6.1neg")]),
        gst::LibraryError::Settings,
        &["vmaf_v0.6.1neg", "twice"],
    );
}

fn a_faulty_list_of_features_is_refused_with_what_is_allowed() {
    for (features, texts) in [
        ("psnr;vmaf", ["`vmaf`", "adm, ", "psnr"]),
        ("psnr=peak=1", ["`psnr=peak=1`", "no option `peak`", "reduced_hbd_peak"]),
        ("vif=vif_enhn_gain_limit=0.5", ["vif_enhn_gain_limit is `0.5`", "1 to 100", "features"]),
        ("adm=adm_norm_view_dist=1", ["adm_norm_view_dist", "3240", "1080"]),
    ] {
        assert_failure(fail(&[("features", features)]), gst::LibraryError::Settings, &texts);
    }
}

fn different_sizes_are_refused_with_what_to_insert() {
    let small = clips().into_iter().find(|clip| clip.name == "97x71_420_8bit").unwrap();
    let failure = score(&[], &Input::planar(&clip(), false), &Input::planar(&small, true)).unwrap_err();
    let texts = ["176x144", "97x71", "videoscale ! video/x-raw,width=176,height=144", "scale-method"];
    assert_failure(failure, gst::StreamError::Format, &texts);
}

fn different_depth_or_chroma_is_refused_with_what_to_insert() {
    let deep = clips().into_iter().find(|clip| clip.name == "176x144_420_10bit").unwrap();
    for distorted in [Input::planar(&deep, true), Input::new(&clip(), true, VideoFormat::Y444)] {
        let failure = score(&[], &Input::planar(&clip(), false), &distorted).unwrap_err();
        assert_failure(
            failure,
            gst::StreamError::Format,
            &["I420", "videoconvert ! video/x-raw,format=I420"],
        );
    }
}

/// Converting to fewer bits would change the samples that are compared.
fn the_side_with_fewer_bits_is_to_be_converted() {
    let deep = clips().into_iter().find(|clip| clip.name == "176x144_420_10bit").unwrap();
    for (reference, distorted, side) in
        [(&clip(), &deep, "convert the reference"), (&deep, &clip(), "distorted video first")]
    {
        let failure =
            score(&[], &Input::planar(reference, false), &Input::planar(distorted, true)).unwrap_err();
        assert_failure(
            failure,
            gst::StreamError::Format,
            &[side, "videoconvert ! video/x-raw,format=I420_10LE"],
        );
    }
}

/// Returns the clip with these colours in its caps.
fn tagged(distorted: bool, colorimetry: Option<&str>) -> Input {
    Input::planar(&clip(), distorted).with_caps(|caps| match colorimetry {
        Some(colorimetry) => caps.set("colorimetry", colorimetry),
        None => caps.structure_mut(0).unwrap().remove_field("colorimetry"),
    })
}

fn colours_that_are_coded_in_another_way_are_refused_with_what_to_insert() {
    // Colorimetry as range:matrix:transfer:primaries; 1:3:5:1 is bt709.
    let cases = [
        ("bt709", "1:3:5:1", "differ in range;", "videoconvert ! video/x-raw,colorimetry=bt709;"),
        ("bt709", "2:4:5:1", "differ in matrix;", "videoconvert ! video/x-raw,colorimetry=bt709;"),
        ("bt709", "2:3:14:1", "differ in transfer;", "videoconvert gamma-mode=remap ! "),
        ("bt709", "2:3:5:7", "differ in primaries;", "videoconvert primaries-mode=fast ! "),
        (
            "bt2100-pq",
            "bt709",
            "differ in matrix, transfer, primaries;",
            "videoconvert gamma-mode=remap primaries-mode=fast ! video/x-raw,colorimetry=bt2100-pq;",
        ),
    ];
    for (reference, distorted, what, hint) in cases {
        let both = [tagged(false, Some(reference)), tagged(true, Some(distorted))];
        let failure = score(&[], &both[0], &both[1]).unwrap_err();
        assert_failure(failure, gst::StreamError::Format, &["dist_sink", what, hint, "colorimetry=ignore"]);
        score(&[("colorimetry", "ignore")], &both[0], &both[1]).unwrap();
    }
}

fn colours_are_compared_as_far_as_both_sides_name_them() {
    let scores = score(&[], &tagged(false, None), &tagged(true, None)).unwrap().scores();
    for (reference, distorted) in [
        (Some("bt709"), None),
        (None, Some("bt2100-pq")),
        // An unknown matrix, and unknown primaries.
        (Some("bt709"), Some("2:0:5:1")),
        (Some("2:3:5:0"), Some("bt709")),
        // BT.601 and BT.709 have the same transfer function.
        (Some("2:3:5:1"), Some("2:3:16:1")),
    ] {
        let report = score(&[], &tagged(false, reference), &tagged(true, distorted)).unwrap();
        assert_eq!(report.scores(), scores, "{reference:?}, {distorted:?}");
    }
}

fn unsupported_caps_are_refused_with_what_to_insert() {
    let clip = clip();
    let packed = |distorted| Input::new(&clip, distorted, VideoFormat::Ayuv);
    let planar = |distorted| Input::planar(&clip, distorted);
    for (reference, distorted) in [(packed(false), planar(true)), (planar(false), packed(true))] {
        let failure = score(&[], &reference, &distorted).unwrap_err();
        assert_failure(
            failure,
            gst::StreamError::Format,
            &["AYUV", "videoconvert ! video/x-raw,format=I420"],
        );
    }
}

fn frames_under_the_minimum_are_refused_with_the_minimum() {
    crate::common::init();
    for (size, ok) in [((33, 33), true), ((32, 64), false), ((64, 32), false), ((1, 1), false)] {
        let clip = Clip { width: size.0, height: size.1, ..clip() };
        let result = score(&[], &Input::planar(&clip, false), &Input::planar(&clip, true));
        match result {
            Ok(_) => assert!(ok, "{size:?}"),
            Err(failure) => {
                assert!(!ok, "{failure:?}");
                let texts = [&format!("{}x{}", size.0, size.1), "at least"];
                assert_failure(failure, gst::StreamError::Format, &texts.map(|text| text as &str));
            }
        }
    }
}

fn a_buffer_that_is_too_small_is_refused() {
    let clip = clip();
    let mut distorted = Input::planar(&clip, true);
    let mut buffer = gst::Buffer::with_size(100).unwrap();
    buffer.make_mut().set_pts(crate::common::FRAME * 2);
    distorted.0[2] =
        gst::Sample::builder().buffer(&buffer).caps(&distorted.0[2].caps_owned().unwrap()).build();
    let failure = score(&[], &Input::planar(&clip, false), &distorted).unwrap_err();
    assert_failure(failure, gst::StreamError::Failed, &["dist_sink", "smaller"]);
}

fn frames_that_cannot_be_timed_are_refused() {
    let clip = clip();
    let untimed = |distorted| {
        let mut input = Input::planar(&clip, distorted).retimed(|_| None);
        for sample in &mut input.0 {
            let mut caps = sample.caps_owned().unwrap();
            caps.make_mut().set("framerate", gst::Fraction::new(0, 1));
            let buffer = sample.buffer_owned().unwrap();
            *sample = gst::Sample::builder().buffer(&buffer).caps(&caps).build();
        }
        input
    };
    let failure = score(&[], &untimed(false), &untimed(true)).unwrap_err();
    assert_failure(failure, gst::StreamError::Failed, &["timestamp", "ref_sink", "frame rate"]);
}

fn buffers_without_caps_are_refused() {
    let clip = clip();
    let mut distorted = Input::planar(&clip, true);
    for sample in &mut distorted.0 {
        *sample = gst::Sample::builder().buffer(&sample.buffer_owned().unwrap()).build();
    }
    let failure = score(&[], &Input::planar(&clip, false), &distorted).unwrap_err();
    assert_failure(failure, gst::StreamError::Format, &["no caps", "dist_sink"]);
}

fn a_results_path_that_cannot_be_written_stops_before_the_first_frame() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for path in [inside("missing/results.json"), inside("")] {
        let failure = fail(&[("results-filename", &path)]);
        assert_failure(failure, gst::ResourceError::OpenWrite, &[&path, "results-filename"]);
    }
}

/// gst-launch ends with a failure and does not hang.
fn gst_launch_fails_with_the_message() {
    let folder = plugin_folder();
    let launch = |pipeline: &str| {
        let run = std::process::Command::new("gst-launch-1.0")
            .args(pipeline.split_whitespace())
            .env("GST_PLUGIN_PATH", folder.path())
            .env("GST_REGISTRY", folder.path().join("registry"))
            .env("HIPVMAF_HIP_LIBRARY", "/nowhere/libamdhip64.so")
            .env("HIPVMAF_CUDA_LIBRARY", "/nowhere/libcuda.so")
            .output()
            .unwrap();
        // gst-launch writes warnings to stdout and errors to stderr.
        let text = [run.stdout, run.stderr].concat();
        (run.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let sources = "videotestsrc num-buffers=2 ! video/x-raw,width=64,height=64 ! h.ref_sink \
                   videotestsrc num-buffers=2 ! video/x-raw,width=64,height=64 ! h.dist_sink";
    let (ok, text) = launch(&format!("{sources} hipvmaf name=h ! fakesink"));
    assert!(ok, "{text}");
    let (ok, text) = launch(&format!("{sources} hipvmaf name=h device-id=3 ! fakesink"));
    assert!(ok && text.contains("device-id=3 cannot be used, so the CPU scores"), "{text}");
    let cases = [
        (format!("{sources} hipvmaf name=h model-filename=vmaf_v9 ! fakesink"), "no built-in model"),
        (format!("{sources} hipvmaf name=h backend=hip ! fakesink"), "no usable GPU"),
        (format!("{sources} hipvmaf name=h backend=hip device-id=3 ! fakesink"), "no usable GPU"),
        (format!("{sources} hipvmaf name=h results-filename=/nowhere/r.json ! fakesink"), "/nowhere/r.json"),
        (
            sources.replace("width=64,height=64 ! h.dist", "width=48,height=48 ! h.dist")
                + " hipvmaf name=h ! fakesink",
            "videoscale",
        ),
        (sources.replace("width=64", "width=20") + " hipvmaf name=h ! fakesink", "at least"),
    ];
    for (pipeline, reason) in cases {
        let (ok, text) = launch(&pipeline);
        assert!(!ok && text.contains(reason), "{pipeline}\n{text}");
        assert!(!text.contains("panicked"), "{text}");
    }
}

/// A decoder accepts any format in a caps query, and then has that of the file.
fn a_short_film_that_does_not_suit_is_an_error() {
    init();
    let film =
        |format| format!("videotestsrc num-buffers=30 ! video/x-raw,format={format},width=320,height=180");
    let line = format!(
        "{} ! score.ref_sink {} ! x264enc tune=zerolatency ! avdec_h264 ! score.dist_sink \
         hipvmaf name=score backend=cpu ! fakesink",
        film("I420"),
        film("I420_10LE")
    );
    let pipeline = gst::parse::launch(&line).unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let end = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &kinds).unwrap();
    pipeline.set_state(gst::State::Null).unwrap();
    let gst::MessageView::Error(error) = end.view() else { panic!("{end:?}") };
    assert!(error.error().message().contains("I420_10LE"), "{}", error.error());
}

/// Returns a folder that contains only the plugin of this build.
fn plugin_folder() -> tempfile::TempDir {
    let test = std::env::current_exe().unwrap();
    let plugin = test.with_file_name("libgsthipvmaf.so");
    assert!(plugin.exists(), "no {}", plugin.display());
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(plugin, folder.path().join("libgsthipvmaf.so")).unwrap();
    folder
}
