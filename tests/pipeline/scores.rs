// SPDX-License-Identifier: MPL-2.0

//! Scores and features through the element equal those of libvmaf's scalar C path to the last bit.

use crate::common::clip::{Clip, clips};
use crate::common::{Bench, Input, Report, score, score_clip};
use crate::process::{Function, functions, passes};
use engine::model::{Model, ScoreOptions};
use gst_video::VideoFormat;
use serde_json::Value;

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    the_confidence_interval_is_libvmafs,
    the_size_of_the_encoding_is_for_cambi,
    single_metrics_have_fields_of_their_own,
    a_model_file_scores_like_the_built_in_model,
    formats_with_the_same_samples_have_the_same_scores,
    chroma_of_odd_sizes_is_whole_where_libvmaf_does_not_say_otherwise,
    grey_video_has_the_luma_scores,
    samples_above_the_depth_count_as_its_maximum,
    clip_and_transform_act_on_the_scores_alone,
    subsampling_keeps_the_scores_of_the_frames_it_keeps,
    pooling_follows_the_method
];

/// Tests for every backend that take long.
pub const LONG: &[Function] = functions![
    all_models_and_features_are_libvmafs_on_every_clip,
    features_by_name_are_libvmafs_on_every_clip,
    floating_point_features_and_models_are_libvmafs
];

/// Tests of the CPU's code.
pub const CPU: &[Function] = functions![every_instruction_set_gives_the_same_scores];

/// Every model that is defined for a clip, the default one first.
fn models(clip: &Clip) -> Vec<&str> {
    let scores = clip.golden["scores"].as_object().unwrap().keys();
    let mut models: Vec<&str> = scores.map(String::as_str).chain(["vmaf_b_v0.6.3"]).collect();
    models.sort_by_key(|name| *name != "vmaf_v0.6.1");
    models
}

/// The clip of this name.
fn clip(name: &str) -> Clip {
    clips().into_iter().find(|clip| clip.name == name).unwrap()
}

/// Asserts that a value the element reported is the golden one, to the last bit.
#[track_caller]
fn assert_golden(clip: &Clip, frame: usize, name: &str, value: f64, golden: &Value) {
    let golden = golden.as_f64().unwrap_or_else(|| panic!("{}: no golden value for {name}", clip.name));
    // libvmaf adds colour differences up in doubles; here their sum is more exact.
    let golden = if name == "ciede2000" && (value - golden).abs() < 1e-11 { value } else { golden };
    assert_eq!(value, golden, "{}, frame {frame}: {name}", clip.name);
}

/// Asserts that everything the element reported about a clip is golden.
fn assert_report(clip: &Clip, report: &Report) {
    assert_eq!(report.frames.len(), clip.frames, "{}", clip.name);
    for (t, frame) in report.frames.iter().enumerate() {
        assert_eq!(frame.index, t as i32);
        for (name, value) in &frame.features {
            assert_golden(clip, t, name, *value, &clip.golden["features"][t][name]);
        }
        for (name, score) in &frame.models {
            let golden = match &clip.golden["scores"][name] {
                Value::Null => &clip.golden["bootstrap"][name][t]["score"],
                scores => &scores[t],
            };
            assert_golden(clip, t, name, *score, golden);
        }
        assert_eq!(frame.models[0], (frame.model.clone(), frame.score));
    }
}

fn all_models_and_features_are_libvmafs_on_every_clip() {
    let mut most = 0;
    for clip in clips() {
        let models = models(&clip);
        let extra = models[1..].join(";");
        most = most.max(models.len());
        for threads in ["1", "2"] {
            let properties = [("extra-models", extra.as_str()), ("psnr", "true"), ("threads", threads)];
            let report = score_clip(&properties, &clip);
            assert_report(&clip, &report);
            assert_eq!(report.frames[0].models.len(), models.len());
            let psnr = clip.golden["features"][0]["psnr_y"].as_f64();
            assert_eq!(report.frames[0].psnr_y, psnr);
        }
    }
    assert_eq!(most, 13);
}

/// Runs the test above once more on each instruction set of this machine.
fn every_instruction_set_gives_the_same_scores() {
    for level in engine::testing::cpu::Level::available() {
        passes(
            "scores::all_models_and_features_are_libvmafs_on_every_clip",
            &[("HIPVMAF_CPU_LEVEL", level.name())],
        );
    }
}

fn the_confidence_interval_is_libvmafs() {
    let clip = clip("176x144_420_8bit");
    let report = score_clip(&[("model-filename", "vmaf_b_v0.6.3"), ("conf-interval", "true")], &clip);
    for (t, frame) in report.frames.iter().enumerate() {
        let golden = &clip.golden["bootstrap"]["vmaf_b_v0.6.3"][t];
        let confidence = frame.confidence.unwrap();
        assert_golden(&clip, t, "ci-low", confidence.low, &golden["score_ci_p95_lo"]);
        assert_golden(&clip, t, "ci-high", confidence.high, &golden["score_ci_p95_hi"]);
        assert_golden(&clip, t, "bootstrap-stddev", confidence.stddev, &golden["score_stddev"]);
    }
    assert!(report.pooled[0].confidence.is_some());
}

/// Features that `golden.json` knows of every clip, by name.
const FEATURES: &str = "psnr=enable_mse=true; float_ssim=enable_lcs=true; vif; vif=vif_enhn_gain_limit=1; motion;
    motion=motion_max_val=18; motion=motion_max_val=18:motion_five_frame_window=true:motion_moving_average=true;
    motion=motion_blend_factor=0.5:motion_blend_offset=1:motion_fps_weight=1.5;
    adm; adm=adm_enhn_gain_limit=1; adm=adm_csf_mode=3:adm_norm_view_dist=5:adm_skip_scale0=true;
    adm=adm_csf_mode=2:adm_dlm_weight=0.7:adm_enhn_gain_limit=1:adm_min_val=0.5:adm_noise_weight=0.02;
    adm=adm_csf_mode=2:adm_dlm_weight=0.7:adm_enhn_gain_limit=1:adm_min_val=0.5:adm_noise_weight=0.02\
        :adm_norm_view_dist=5;
    adm=adm_csf_mode=2:adm_dlm_weight=0.7:adm_enhn_gain_limit=1:adm_min_val=0.5:adm_noise_weight=0.02\
        :adm_norm_view_dist=1.5:adm_ref_display_height=2160;
    adm=adm_csf_mode=2:adm_dlm_weight=0.7:adm_enhn_gain_limit=1:adm_min_val=0.5:adm_noise_weight=0.02\
        :adm_ref_display_height=2160";

/// Those of the clips that are large enough for the v1 models.
const BANDED: &str =
    "; cambi; cambi=cambi_high_res_speedup=1080:cambi_max_val=17:cambi_vis_lum_threshold=0.06;
    speed_chroma;
    speed_chroma=speed_nn_floor=0.1:speed_sigma_nn=0.19:speed_weight_var_mode=5:speed_max_val=45;
    speed_chroma=speed_nn_floor=0.1:speed_sigma_nn=0.19:speed_weight_var_mode=5:speed_max_val=45\
        :speed_prescale=0.6:speed_prescale_method=bilinear;
    speed_chroma=speed_nn_floor=0.1:speed_sigma_nn=0.19:speed_weight_var_mode=5:speed_max_val=45\
        :speed_prescale=0.5:speed_prescale_method=bilinear";

/// All features that `golden.json` knows of a clip.
fn features(clip: &Clip) -> String {
    let more = [
        (clip.depth < 16, "; psnr_hvs; ciede"),
        (clip.width.min(clip.height) >= 176, "; float_ms_ssim=enable_lcs=true"),
        (clip.banded, BANDED),
    ];
    let more = more.into_iter().filter(|(defined, _)| *defined).map(|(_, features)| features);
    std::iter::once(FEATURES).chain(more).collect()
}

fn features_by_name_are_libvmafs_on_every_clip() {
    for clip in clips() {
        let features = features(&clip);
        let report = score_clip(&[("features", &features), ("model-filename", "vmaf_4k_v0.6.1")], &clip);
        assert_report(&clip, &report);
        for (t, frame) in report.frames.iter().enumerate() {
            let mut names: Vec<&String> = frame.features.iter().map(|(name, _)| name).collect();
            let golden = clip.golden["features"][t].as_object().unwrap().keys();
            // Video with 16 bits is scored as grey.
            let colour =
                |name: &str| ["psnr_c", "mse_c", "ciede"].iter().any(|start| name.starts_with(start));
            let asked = |name: &str| {
                (clip.depth < 16 || !colour(name)) && (clip.banded || !name.starts_with("speed_chroma"))
            };
            let mut golden: Vec<&String> = golden.filter(|name| asked(name)).collect();
            names.sort();
            golden.sort();
            assert_eq!(names, golden, "{}", clip.name);
            assert_eq!(frame.psnr_y, None, "the property psnr is off");
        }
        let metas = report.metas();
        let attached = metas.iter().map(|meta| &meta.scores[0].features);
        assert!(attached.eq(report.frames.iter().map(|frame| &frame.features)), "{}", clip.name);
    }
}

/// `enc-width`, `enc-height` and `enc-bitdepth` change the options of CAMBI only. An option in `features` has priority.
fn the_size_of_the_encoding_is_for_cambi() {
    let clip = clip("336x322_420_8bit");
    let properties = [
        ("features", "cambi; cambi=enc_bitdepth=8"),
        ("enc-width", "280"),
        ("enc-height", "250"),
        ("enc-bitdepth", "10"),
    ];
    let report = score_clip(&properties, &clip);
    let features = |name: &str| {
        report
            .frames
            .iter()
            .map(|f| f.features.iter().find(|(n, _)| n == name).unwrap().1)
            .collect::<Vec<_>>()
    };
    let all = features("cambi_encbd_10_ench_250_encw_280");
    assert_ne!(all, features("cambi_encbd_8_ench_250_encw_280"));
    let listed = score_clip(&[("features", "cambi=enc_width=280:enc_height=250:enc_bitdepth=10")], &clip);
    for (frame, listed) in report.frames.iter().zip(&listed.frames) {
        assert!(listed.features.iter().all(|feature| frame.features.contains(feature)));
    }
}

fn single_metrics_have_fields_of_their_own() {
    let clip = clip("189x177_420_8bit");
    let report = score_clip(&[("psnr", "true"), ("ssim", "true"), ("ms-ssim", "true")], &clip);
    for (t, frame) in report.frames.iter().enumerate() {
        let golden = |name: &str| clip.golden["features"][t][name].as_f64();
        assert_eq!(frame.psnr_y, golden("psnr_y"));
        assert_eq!((frame.ssim, frame.ms_ssim), (golden("float_ssim"), golden("float_ms_ssim")));
    }
    let mean = |of: fn(&gsthipvmaf::message::FrameMessage) -> Option<f64>| {
        let sum = report.frames.iter().map(|frame| of(frame).unwrap()).sum::<f64>();
        Some(sum / report.frames.len() as f64)
    };
    assert_eq!((report.pooled[0].ssim, report.pooled[0].ms_ssim), (mean(|f| f.ssim), mean(|f| f.ms_ssim)));
    let off = score_clip(&[], &clip);
    assert_eq!((off.frames[0].psnr_y, off.frames[0].ssim, off.pooled[0].ms_ssim), (None, None, None));
}

/// The values are those of Netflix's library; the models are compared with those in fixed point by the engine's tests.
fn floating_point_features_and_models_are_libvmafs() {
    let golden: Value = serde_json::from_str(include_str!("../data/float.json")).unwrap();
    for name in ["176x144_420_8bit", "97x71_420_8bit", "176x144_420_10bit"] {
        // GPUs have no code for these options.
        let of_clip = golden.as_object().unwrap().iter().filter(|(item, _)| !item.contains("motion_add"));
        let (items, expected): (Vec<_>, Vec<_>) =
            of_clip.filter_map(|(item, clips)| Some((item.as_str(), clips[name].as_object()?))).unzip();
        let properties = [
            ("model-filename", "vmaf_float_v0.6.1"),
            ("extra-models", "vmaf_float_v0.6.1neg;vmaf_float_4k_v0.6.1;vmaf_float_b_v0.6.3"),
            ("features", &*items.join(";")),
        ];
        let report = score_clip(&properties, &clip(name));
        for (t, frame) in report.frames.iter().enumerate() {
            let value = |key: &str| frame.features.iter().find(|(name, _)| name == key).unwrap().1;
            for (key, values) in expected.iter().flat_map(|values| values.iter()) {
                assert_eq!(Some(value(key)), values[t].as_f64(), "{name}: {key} of frame {t}");
            }
            assert_eq!(frame.models.len(), 4);
            for (name, score) in &frame.models {
                let model = Model::load(name).unwrap();
                let values: Vec<_> = model.features().iter().map(|feature| value(&feature.key)).collect();
                assert_eq!(*score, model.score(&values, ScoreOptions::default()).score, "{name}");
            }
        }
    }
}

fn a_model_file_scores_like_the_built_in_model() {
    let clip = clip("97x71_420_8bit");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/models/vmaf_v0.6.1neg.json");
    let report = score_clip(&[("model-filename", path)], &clip);
    assert_report(&clip, &report);
    assert_eq!(report.frames[0].model, "vmaf_v0.6.1neg");
}

/// Pixel formats only differ in where the samples lie.
fn formats_with_the_same_samples_have_the_same_scores() {
    use VideoFormat::*;
    let cases = [
        ("176x144_420_8bit", vec![I420, Yv12, Nv12, Nv21]),
        ("97x71_420_8bit", vec![I420, Yv12, Nv12, Nv21]),
        ("176x144_420_10bit", vec![I42010le, P01010le]),
        ("96x64_420_12bit", vec![I42012le, P012Le]),
    ];
    for (name, formats) in cases {
        let clip = clip(name);
        for reference in &formats {
            for distorted in &formats {
                let inputs = (Input::new(&clip, false, *reference), Input::new(&clip, true, *distorted));
                let report = score(&[("psnr", "true")], &inputs.0, &inputs.1).unwrap();
                assert_report(&clip, &report);
            }
        }
    }
}

/// The distortions are those of ColorVideoVDP's reference in Python, which reads all samples; libvmaf leaves out the last ones.
fn chroma_of_odd_sizes_is_whole_where_libvmaf_does_not_say_otherwise() {
    let expected = [
        60.86723538792593,
        60.46525765860148,
        59.35046572363586,
        57.94926760033425,
        55.41101939574746,
        55.49212542230639,
    ];
    let clip = clip("97x71_420_8bit");
    for format in [VideoFormat::I420, VideoFormat::Nv12] {
        let [reference, distorted] = [false, true].map(|distorted| Input::new(&clip, distorted, format));
        let report = score(&[("features", "cvvdp;psnr")], &reference, &distorted).unwrap();
        for (t, (frame, expected)) in report.frames.iter().zip(expected).enumerate() {
            for (name, value) in &frame.features {
                if name == "cvvdp_q" {
                    assert!((value - expected).abs() < 1e-12 * expected, "{value}, not {expected}");
                } else {
                    assert_golden(&clip, t, name, *value, &clip.golden["features"][t][name]);
                }
            }
            assert!(frame.features.iter().any(|(name, _)| name == "cvvdp_q"));
        }
        let provenance = report.pooled[0].provenance.as_ref().unwrap();
        let reading = provenance.get::<String>("cvvdp").unwrap();
        assert!(reading.contains("standard_4k (sRGB, 200 and 0.2 cd/m2, 250 lux"), "{reading}");
        assert!(
            reading.ends_with("matrix bt709, chroma center, limited range, 25/1 frames per second"),
            "{reading}"
        );
    }
}

fn grey_video_has_the_luma_scores() {
    let clip = clip("176x144_420_8bit");
    let grey = |distorted| Input::new(&clip, distorted, VideoFormat::Gray8);
    let report = score(&[("psnr", "true")], &grey(false), &grey(true)).unwrap();
    assert_report(&clip, &report);
    assert!(report.frames[0].features.iter().all(|(name, _)| name != "psnr_cb"));
}

fn samples_above_the_depth_count_as_its_maximum() {
    let clip = clip("176x144_420_10bit");
    let (reference, distorted) = (Input::planar(&clip, false), Input::planar(&clip, true));
    let spoiled = |spoil: u8| {
        let sample = reference.0[0].clone();
        let mut buffer = sample.buffer_owned().unwrap();
        // The first sample's high byte.
        buffer.make_mut().map_writable().unwrap()[1] = spoil;
        buffer.make_mut().map_writable().unwrap()[0] = 0xff;
        let mut input = reference.clone();
        input.0[0] = gst::Sample::builder().buffer(&buffer).caps(&sample.caps_owned().unwrap()).build();
        score(&[], &input, &distorted).unwrap().scores()
    };
    assert_eq!(spoiled(0xff), spoiled(0x03));
    assert_ne!(spoiled(0xff), spoiled(0x00));
}

fn clip_and_transform_act_on_the_scores_alone() {
    let clip = clip("176x144_420_8bit");
    let same = Input::planar(&clip, false);
    let plain = score_clip(&[], &clip);
    let phone = score_clip(&[("phone-model", "true")], &clip);
    assert_eq!(score_clip(&[("enable-transform", "true")], &clip).scores(), phone.scores());
    for (plain, phone) in plain.frames.iter().zip(&phone.frames) {
        assert_eq!(plain.features, phone.features);
        // The polynomial of the v0.6.1 models.
        let transformed = 1.70674692 + 1.72643844 * plain.score - 0.00705305 * plain.score * plain.score;
        assert!((phone.score - transformed.min(100.0)).abs() < 1e-9 || phone.score >= plain.score);
        assert!(phone.score > plain.score);
    }
    let clipped = score(&[], &same, &same).unwrap().scores();
    let unclipped = score(&[("disable-clip", "true")], &same, &same).unwrap().scores();
    assert!(clipped.iter().all(|score| *score <= 100.0));
    for (clipped, unclipped) in clipped.iter().zip(unclipped) {
        assert_eq!(*clipped, unclipped.min(100.0));
    }
}

/// Frames that are skipped by `subsample` still count for motion.
fn subsampling_keeps_the_scores_of_the_frames_it_keeps() {
    let clip = clip("176x144_420_8bit");
    let all = score_clip(&[], &clip);
    let report = score_clip(&[("subsample", "3")], &clip);
    assert_eq!(report.frames.iter().map(|f| f.index).collect::<Vec<_>>(), [0, 3, 6, 9]);
    for frame in &report.frames {
        let full = &all.frames[frame.index as usize];
        assert_eq!((frame.score, &frame.features), (full.score, &full.features));
    }
    assert_eq!((report.pooled[0].counts.scored, report.pooled[0].counts.skipped), (4, 6));
    assert_eq!(report.buffers.len(), clip.frames);
}

/// The pooled score, with libvmaf's formulas.
fn pooling_follows_the_method() {
    let clip = clip("176x144_420_8bit");
    let (reference, distorted) = (Input::planar(&clip, false), Input::planar(&clip, true));
    let bench = |method| Bench::new(&[("pool-method", method)]).run(&reference, &distorted).unwrap();
    let scores = bench("mean").scores();
    let n = scores.len() as f64;
    let expected = [
        ("min", scores.iter().copied().fold(f64::INFINITY, f64::min)),
        ("max", scores.iter().copied().fold(0.0, f64::max)),
        ("mean", scores.iter().sum::<f64>() / n),
        ("harmonic_mean", n / scores.iter().map(|s| 1.0 / (s + 1.0)).sum::<f64>() - 1.0),
    ];
    for (method, value) in expected {
        let pooled = &bench(method).pooled[0];
        assert_eq!((pooled.score, pooled.pool_method.as_str()), (value, method));
        let stats = pooled.stats;
        assert_eq!([stats.min, stats.max, stats.mean, stats.harmonic_mean], expected.map(|(_, value)| value));
        assert!(stats.min <= stats.p1 && stats.p1 <= stats.p50 && stats.p50 <= stats.max);
    }
}
