// SPDX-License-Identifier: MPL-2.0

//! Metrics besides the models: what scores, windows and alarms follow, and histories of pictures through change.

use std::fs;

use crate::common::clip::{Samples, clips};
use crate::common::rig::Rig;
use crate::common::{FRAME, Input, Report, coarse, init, moving, score, sides};
use crate::process::{Function, functions};
use gst::prelude::*;
use gst_video::{VideoCapsBuilder, VideoFormat, VideoFormatInfo};
use gsthipvmaf::event::{Event, EventState};
use gsthipvmaf::message::{FrameMessage, ScoreState, Values};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    the_score_is_what_the_property_names,
    metrics_need_no_model,
    rgb_is_scored_by_metrics_that_take_it,
    rgb_is_refused_where_it_is_not_taken,
    scores_that_are_not_computed_are_refused,
    the_jod_of_frames_together_is_no_mean,
    alarms_are_in_the_unit_of_the_score,
    figures_of_frames_together_begin_anew_with_another_size,
    streams_that_come_and_go_change_no_score_of_others,
    histories_begin_anew_after_a_flush
];

/// The metrics that keep pictures of their own, or read more than luma.
const METRICS: &str = "xpsnr;ssimulacra2;cvvdp";

fn value(values: &Values, name: &str) -> Option<f64> {
    values.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
}

fn the_score_is_what_the_property_names() {
    let both = sides(6);
    let features = ("features", "psnr;xpsnr;ssimulacra2");
    for name in ["psnr_y", "xpsnr_y", "ssimulacra2", "vmaf_v0.6.1neg"] {
        let properties = [features, ("score", name), ("extra-models", "vmaf_v0.6.1neg")];
        let report = score(&properties, &both.0, &both.1).unwrap();
        let of = |frame: &FrameMessage| value(&frame.features, name).or(value(&frame.models, name));
        for (frame, meta) in report.frames.iter().zip(report.metas()) {
            assert_eq!((frame.model.as_str(), Some(frame.score)), (name, of(frame)));
            assert_eq!(meta.scores[0].score, Some(frame.score));
        }
        let scores = report.scores();
        let [pooled] = &report.pooled[..] else { panic!("{:?}", report.pooled) };
        let mean = scores.iter().sum::<f64>() / scores.len() as f64;
        assert_eq!(pooled.model, name);
        assert!((pooled.score - mean).abs() < 1e-9 && pooled.score == pooled.stats.mean, "{pooled:?}");
        assert_eq!(pooled.stats.min, scores.iter().copied().fold(f64::MAX, f64::min));
        let stats = report.stats.unwrap();
        assert_eq!(stats.get::<f64>("score-last"), Ok(scores[5]));
    }
}

fn metrics_need_no_model() {
    let both = sides(4);
    let hdr = |input: &Input| input.with_caps(|caps| caps.set("colorimetry", "bt2100-pq"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scores.json");
    let features = ("features", "cvvdp=display=standard_hdr_pq;xpsnr");
    let properties = [("model-filename", "none"), features, ("results-filename", path.to_str().unwrap())];
    let rig = Rig::offline(&properties).play();
    let report = rig.run(&[("ref_sink", &hdr(&both.0)), ("dist_sink", &hdr(&both.1))]).unwrap();
    assert_eq!(rig.log().warnings, [""; 0], "models that are not used are not warned of");
    rig.element.set_state(gst::State::Null).unwrap();
    let name = "cvvdp_q_display_standard_hdr_pq";
    for frame in &report.frames {
        assert!(frame.models.is_empty());
        // Of a frame, it is a distortion, and is called so.
        assert_eq!((frame.model.as_str(), Some(frame.score)), (name, value(&frame.features, name)));
    }
    let [pooled] = &report.pooled[..] else { panic!("{:?}", report.pooled) };
    assert_eq!(pooled.model, "cvvdp_display_standard_hdr_pq");
    assert_eq!(Some(pooled.score), value(&pooled.aggregates, &pooled.model));
    assert!(pooled.score < 9.0, "{}", pooled.score);
    let file: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let written = file["aggregate_metrics"][&pooled.model].as_f64().unwrap();
    assert!((written - pooled.score).abs() < 1e-6, "{written}");
    let metrics = file["frames"][0]["metrics"].as_object().unwrap();
    assert!(metrics.contains_key(name) && !metrics.contains_key("vmaf"), "{metrics:?}");
}

/// Returns both sides of a clip as R'G'B', whose G, B and R are the clip's Y, Cb and Cr with fewer bits.
fn rgb(format: VideoFormat, frames: usize) -> (Input, Input) {
    init();
    let clip = clips().into_iter().find(|clip| clip.name == "97x71_444_12bit").unwrap();
    let bits = VideoFormatInfo::from_format(format).depth()[0];
    let side = |distorted: bool| {
        let picture = |t: usize| {
            let [g, b, r] = clip.planes(t, distorted).map(|plane| {
                let data = plane.data.iter().map(|sample| sample >> (12 - bits)).collect();
                Samples { data, ..plane }
            });
            [r, g, b]
        };
        Input::pictures(format, (clip.width, clip.height), (0..frames).map(picture))
    };
    (side(false), side(true))
}

const RGB: [VideoFormat; 3] = [VideoFormat::Gbr, VideoFormat::Gbr10le, VideoFormat::Gbr12le];

/// The expected values are those of the references in Python of both metrics.
fn rgb_is_scored_by_metrics_that_take_it() {
    let expected = [
        ([40.79505503911353, 32.26634778257137], [53.425391134162105, 53.23305552606535]),
        ([40.93911452786335, 32.378974078623], [53.077878492833115, 52.87682292933462]),
        ([40.96929355304422, 32.41466605767512], [52.99639141745607, 52.79272676490206]),
    ];
    let properties = [("model-filename", "none"), ("features", "ssimulacra2;cvvdp")];
    for (format, (ssimulacra2, q)) in RGB.into_iter().zip(expected) {
        let (reference, distorted) = rgb(format, 2);
        let report = score(&properties, &reference, &distorted).unwrap();
        assert_eq!(report.frames.len(), 2);
        for (t, frame) in report.frames.iter().enumerate() {
            let of = |name| value(&frame.features, name).unwrap();
            assert_eq!(of("ssimulacra2"), ssimulacra2[t], "{format}, frame {t}");
            let found = of("cvvdp_q");
            assert!((found - q[t]).abs() < 1e-12 * q[t], "{format}, frame {t}: {found}, not {}", q[t]);
        }
        let provenance = report.pooled[0].provenance.as_ref().unwrap();
        let reading = |name: &str| provenance.get::<String>(name).unwrap();
        assert_eq!(reading("ssimulacra2"), "matrix rgb, full range, transfer srgb, primaries 709");
        let cvvdp = reading("cvvdp");
        assert!(cvvdp.ends_with(", matrix rgb, full range, 25/1 frames per second"), "{cvvdp}");
    }
}

fn rgb_is_refused_where_it_is_not_taken() {
    let takes = |properties: &[(&str, &str)], pad: &str| {
        let rig = Rig::offline(properties).play();
        let caps = rig.pad(pad).query_caps(None);
        rig.element.set_state(gst::State::Null).unwrap();
        RGB.map(|format| caps.can_intersect(&VideoCapsBuilder::new().format(format).build()))
    };
    let both = [("model-filename", "none"), ("features", "ssimulacra2;cvvdp")];
    let with_psnr = [("model-filename", "none"), ("features", "ssimulacra2;psnr")];
    let heatmap = [both[0], both[1], ("output", "heatmap")];
    let (reference, distorted) = rgb(VideoFormat::Gbr, 2);
    for pad in ["ref_sink", "dist_sink"] {
        assert_eq!(takes(&both, pad), [true; 3]);
        for properties in [&[][..], &with_psnr, &heatmap] {
            assert_eq!(takes(properties, pad), [false; 3], "{properties:?}");
        }
    }
    let refused = |properties: &[(&str, &str)], reference: &Input| {
        score(properties, reference, &distorted).unwrap_err().error.to_string()
    };
    for (properties, metric) in [(&[][..], "the adm metric"), (&with_psnr, "the psnr metric")] {
        let text = refused(properties, &reference);
        assert!(text.contains(metric) && text.contains("convert both videos to Y'CbCr"), "{text}");
        assert!(text.contains("videoconvert"), "{text}");
    }
    let text = refused(&heatmap, &reference);
    assert!(text.contains("heat maps are Y'CbCr") && text.contains("videoconvert"), "{text}");
    // Y'CbCr has the planes of R'G'B', and is not compared with it.
    let clip = clips().into_iter().find(|clip| clip.name == "97x71_444_12bit").unwrap();
    let picture = |t: usize| {
        clip.planes(t, false).map(|plane| {
            let data = plane.data.iter().map(|sample| sample >> 4).collect();
            Samples { data, ..plane }
        })
    };
    let ycbcr = Input::pictures(VideoFormat::Y444, (clip.width, clip.height), (0..2).map(picture));
    let text = refused(&both, &ycbcr);
    assert!(text.contains("GBR") && text.contains("format=Y444"), "{text}");
}

fn scores_that_are_not_computed_are_refused() {
    let both = sides(2);
    let refused =
        |properties: &[(&str, &str)]| score(properties, &both.0, &both.1).unwrap_err().error.to_string();
    let text = refused(&[("features", "xpsnr"), ("score", "cvvdp")]);
    assert!(text.contains("cvvdp") && text.contains("vmaf_v0.6.1") && text.contains("xpsnr_y"), "{text}");
    let text = refused(&[("model-filename", "none")]);
    assert!(text.contains("model-filename") && text.contains("features"), "{text}");
    let text = refused(&[("model-filename", "none"), ("features", "psnr"), ("conf-interval", "true")]);
    assert!(text.contains("conf-interval") && text.contains("vmaf_b_v0.6.3"), "{text}");
}

/// Computes the JOD of frames from their distortions, as ColorVideoVDP defines it.
fn jod(distortions: impl Iterator<Item = f64> + Clone) -> f64 {
    const EPSILON: f64 = 1e-5;
    let sum: f64 = distortions.clone().map(|q| (q + EPSILON).powi(2) - EPSILON.powi(2)).sum();
    let q = (sum / distortions.count() as f64 + EPSILON).sqrt() - EPSILON.sqrt();
    let (factor, power) = (0.0439569391310215, 0.9302042722702026);
    10.0 - factor * if q <= 0.1 { 0.1f64.powf(power - 1.0) * q } else { q.powf(power) }
}

fn the_jod_of_frames_together_is_no_mean() {
    let reference = Input::drawn(20, moving);
    let distorted =
        Input::drawn(20, |t, x, y| if t % 10 < 3 { coarse(moving(t, x, y)) } else { moving(t, x, y) });
    let window = [("window", "400000000"), ("window-interval", "200000000")];
    let properties = [&[("features", "cvvdp"), ("score", "cvvdp")][..], &window].concat();
    let report = score(&properties, &reference, &distorted).unwrap();
    let q = |frame: &FrameMessage| value(&frame.features, "cvvdp_q").unwrap();
    let all = jod(report.frames.iter().map(q));
    let [pooled] = &report.pooled[..] else { panic!("{:?}", report.pooled) };
    assert!((pooled.score - all).abs() < 1e-6, "{}, not {all}", pooled.score);
    assert_eq!((pooled.model.as_str(), pooled.score), ("cvvdp", pooled.stats.mean));
    assert_eq!(value(&pooled.aggregates, "cvvdp"), Some(pooled.score));
    let worst = report.frames.iter().map(q).fold(0.0, f64::max);
    assert!((pooled.stats.min - jod([worst].into_iter())).abs() < 1e-6, "{}", pooled.stats.min);
    assert!(pooled.stats.min < pooled.score && pooled.score < pooled.stats.max);
    let mean = report.frames.iter().map(|frame| jod([q(frame)].into_iter())).sum::<f64>() / 20.0;
    assert!((mean - all).abs() > 0.1, "the test could not tell a mean from a JOD");

    assert_eq!(report.windows.len(), 3);
    for window in &report.windows {
        let end = window.running_time.unwrap();
        let within = end.saturating_sub(window.duration.unwrap())..end;
        let frames = report.frames.iter().filter(|frame| within.contains(&frame.running_time.unwrap()));
        let expected = jod(frames.map(q));
        assert!((window.score - expected).abs() < 1e-6, "{} up to {end}, not {expected}", window.score);
        assert_eq!((window.model.as_str(), window.score), ("cvvdp", window.stats.mean));
        assert_eq!(window.features, [("cvvdp".into(), window.score)]);
    }
    let stats = report.stats.unwrap();
    assert_eq!(stats.get::<f64>("score-mean"), Ok(pooled.score));
    let aggregates = stats.get::<gst::Structure>("aggregates").unwrap();
    assert_eq!(aggregates.get::<f64>("cvvdp"), Ok(pooled.score));
}

fn alarms_are_in_the_unit_of_the_score() {
    let (reference, good) = (Input::drawn(60, moving), |t: usize| !(10..40).contains(&t));
    let sample = |t: usize, x, y| if good(t) { moving(t, x, y) } else { coarse(moving(t, x, y)) };
    let distorted = Input::drawn(60, sample);
    let holds = [("alarm-hold", "400000000"), ("clear-hold", "400000000")];
    for (name, feature, low) in
        [("xpsnr_y", "xpsnr", "40"), ("cvvdp", "cvvdp", "8.5"), ("ssimulacra2", "ssimulacra2", "90")]
    {
        let properties = [&[("features", feature), ("score", name), ("alarm-low", low)][..], &holds].concat();
        let report = score(&properties, &reference, &distorted).unwrap();
        let alarms: Vec<_> = report.events.iter().filter(|event| event.event == Event::Alarm).collect();
        let states: Vec<_> = alarms.iter().map(|event| event.state).collect();
        assert_eq!(states, [EventState::Raised, EventState::Cleared], "{name}");
        let low: f64 = low.parse().unwrap();
        let values: Vec<_> = alarms.iter().map(|event| event.value.unwrap()).collect();
        assert!(values[0] < low && values[1] >= low, "{name}: {values:?}");
        assert_eq!(alarms[0].threshold, Some(low));
    }
}

/// Errors of pictures of several sizes have no figure together.
fn figures_of_frames_together_begin_anew_with_another_size() {
    let small = sides(10);
    let draw = |coarsely: bool| {
        Input::drawn_at((96, 64), 10, |t, x, y| {
            let sample = moving(t, x % 64, y % 48);
            if coarsely { sample / 8 * 8 + 4 } else { sample }
        })
    };
    let large = (draw(false), draw(true));
    let features = [("features", "psnr=enable_apsnr=true;xpsnr;cvvdp")];
    let properties = [&features[..], &[("window", "4000000000"), ("window-interval", "200000000")]].concat();
    let alone = score(&features, &large.0, &large.1).unwrap();
    let report = score(&properties, &small.0.then(&large.0), &small.1.then(&large.1)).unwrap();
    let expected = &alone.pooled[0].aggregates;
    assert!(expected.len() > 6, "{expected:?}");
    let of_small = score(&features, &small.0, &small.1).unwrap();
    assert_eq!(report.pooled[0].aggregates, of_small.pooled[0].aggregates);
    assert_eq!(report.pooled[1].aggregates, *expected);
    let stats = report.stats.unwrap().get::<gst::Structure>("aggregates").unwrap();
    for (name, value) in expected {
        assert_eq!(stats.get::<f64>(name), Ok(*value), "{name}");
    }
    let last = report.windows.last().unwrap();
    assert!(last.counts.scored > 10, "the window covers frames of both sizes");
    assert_ne!(last.aggregates, of_small.pooled[0].aggregates);
}

/// Returns the values of frames that count, by the number of their frame.
fn counted(report: &Report, pad: &str) -> Vec<(i32, Values)> {
    let frames = report.frames.iter().filter(|frame| frame.pad == pad && frame.state == ScoreState::Scored);
    frames.map(|frame| (frame.index, frame.features.clone())).collect()
}

/// Frames at 25 per second on which a frame depends, itself not counted.
const HISTORY: i32 = 8;

/// Histories begin anew where streams come. Until they are whole, nothing counts, so that what counts is what it would be had
/// no stream come or gone.
fn streams_that_come_and_go_change_no_score_of_others() {
    const FRAMES: usize = 50;
    let both = sides(FRAMES);
    let properties = [("features", METRICS), ("model-filename", "none")];
    let expected = counted(&score(&properties, &both.0, &both.1).unwrap(), "dist_sink");
    assert_eq!(expected.len(), FRAMES);
    let within = |counts: fn(i32) -> bool| -> Vec<_> {
        expected.iter().filter(|(index, _)| counts(*index)).cloned().collect()
    };
    let mut rig = Rig::offline(&properties).play();
    rig.push_pairs(&both.0.0[..10], &both.1.0[..10]);
    rig.request();
    for t in 10..30 {
        rig.push("dist_0", &both.1.0[t]);
        rig.push("ref_sink", &both.0.0[t]);
        rig.push("dist_sink", &both.1.0[t]);
    }
    rig.wait(|log| log.report.scores_of("dist_0").len() == 20);
    rig.release("dist_0");
    rig.push_pairs(&both.0.0[30..], &both.1.0[30..]);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(counted(&report, "dist_0"), within(|t| (10 + HISTORY..30).contains(&t)));
    assert_eq!(counted(&report, "dist_sink"), within(|t| !(10..10 + HISTORY).contains(&t)));
    assert_eq!(report.frames.len(), FRAMES + 20, "values that do not count are reported as well");
}

fn histories_begin_anew_after_a_flush() {
    let both = sides(24);
    let properties = [("features", METRICS), ("model-filename", "none")];
    let again = score(&properties, &both.0.keep(|t| t >= 12), &both.1.keep(|t| t >= 12)).unwrap();
    let rig = Rig::offline(&properties).play();
    rig.push_pairs(&both.0.0[..12], &both.1.0[..12]);
    rig.wait_scores(12);
    rig.flush_all();
    for pad in ["ref_sink", "dist_sink"] {
        rig.begin_segment(pad, FRAME * 12, gst::ClockTime::ZERO);
    }
    rig.push_pairs(&both.0.0[12..], &both.1.0[12..]);
    rig.end();
    let report = rig.finish().unwrap();
    let after: Vec<_> = counted(&report, "dist_sink").split_off(12);
    let values =
        |frames: Vec<(i32, Values)>| frames.into_iter().map(|(_, values)| values).collect::<Vec<_>>();
    assert_eq!(values(after), values(counted(&again, "dist_sink")));
    assert_eq!(report.pooled[1].aggregates, again.pooled[0].aggregates);
}
