// SPDX-License-Identifier: MPL-2.0

//! Metrics that no model reads: their results through the engine equal libvmaf's to the last bit.

use std::sync::Arc;

use gpu::Selection;
use hipvmaf_engine::EngineError;
use hipvmaf_engine::backend::cpu::Cpu;
use hipvmaf_engine::backend::hip::Hip;
use hipvmaf_engine::backend::{Backend, BackendError};
use hipvmaf_engine::frame::{BitDepth, Component, Geometry, Picture, Samples};
use hipvmaf_engine::metrics::feature::Feature;
use hipvmaf_engine::model::ScoreOptions;
use hipvmaf_engine::plan::Plan;
use hipvmaf_engine::session::{Session, Tag, Totals};
use hipvmaf_engine::video::{Colorimetry, FrameRate, Matrix, Video};

use crate::clip::{Clip, clips};

/// Opens the backend that the environment selects.
pub fn backend() -> Box<dyn Backend> {
    match std::env::var("HIPVMAF_TEST_BACKEND").as_deref() {
        Ok("hip") => Box::new(Hip::open(&Selection::default(), 2).unwrap()),
        _ => Box::new(Cpu::new(2).unwrap()),
    }
}

/// Returns all features of an extractor with these options.
fn features(name: &str, options: &[(&str, &str)]) -> Vec<Feature> {
    Feature::resolve(name, options.iter().copied()).unwrap().extractor.features(false)
}

/// Prepares a session for frames of a geometry.
pub fn session(features: &[Feature], geometry: Geometry) -> Result<Session, EngineError> {
    let plan = Plan::new(vec![], features, ScoreOptions::default()).unwrap();
    let mut session = Session::new(Arc::new(plan), backend(), 1);
    session.prepare(geometry, &[None]).map(|()| session)
}

/// Returns the geometry of the frames of a clip.
pub fn geometry(clip: &Clip) -> Geometry {
    let (half_w, half_h) = clip.halved;
    let chroma =
        Some((clip.width.div_ceil(1 << u32::from(half_w)), clip.height.div_ceil(1 << u32::from(half_h))));
    let depth = BitDepth::new(clip.depth).unwrap();
    Geometry { width: clip.width, height: clip.height, depth, chroma }
}

/// Returns the components of a frame in memory, each with its stride.
fn components(clip: &Clip, t: usize, distorted: bool) -> [(Vec<u8>, usize); 3] {
    let size = geometry(clip).sample_size();
    clip.planes(t, distorted).map(|plane| {
        let bytes = plane.data.iter().flat_map(|v| v.to_le_bytes().into_iter().take(size));
        (bytes.collect(), plane.width * size)
    })
}

fn picture<'a>(geometry: Geometry, components: &'a [(Vec<u8>, usize); 3]) -> Picture<'a> {
    let (w, h) = geometry.chroma.unwrap();
    let component = |i: usize, width, height| Component {
        samples: Samples::Host(&components[i].0),
        width,
        height,
        stride: components[i].1,
        step: 1,
        shift: 0,
    };
    let chroma = Some([component(1, w, h), component(2, w, h)]);
    Picture { luma: component(0, geometry.width, geometry.height), chroma, lease: None }
}

/// Returns all values of a clip frame by frame, their totals, and the session.
pub fn run(clip: &Clip, features: &[Feature]) -> (Session, Vec<Vec<f64>>, Totals) {
    let geometry = geometry(clip);
    let mut session = session(features, geometry).unwrap();
    let mut values = vec![];
    for t in 0..clip.frames {
        while !session.room() {
            values.extend(session.collect().unwrap());
        }
        let [reference, distorted] = [false, true].map(|distorted| components(clip, t, distorted));
        let distorted = vec![(0, picture(geometry, &distorted))];
        session.submit(Tag::default(), picture(geometry, &reference), distorted).unwrap();
    }
    while session.in_flight() > 0 {
        values.extend(session.collect().unwrap());
    }
    session.end_run(false);
    values.extend(session.collect().unwrap());
    let mut totals = Totals::default();
    values.iter().for_each(|pair| totals += &pair.totals);
    let values = values.into_iter().map(|pair| pair.values.unwrap()).collect();
    (session, values, totals)
}

pub fn the_classic_metrics_are_libvmafs_on_every_clip() {
    for clip in clips() {
        let mut wanted = features("psnr_y", &[("enable_mse", "true"), ("enable_apsnr", "true")]);
        wanted.extend(features("float_ssim", &[("enable_lcs", "true")]));
        wanted.extend(features("ciede2000", &[]));
        if clip.width.min(clip.height) >= 176 {
            wanted.extend(features("float_ms_ssim", &[("enable_lcs", "true")]));
        }
        if clip.depth <= 12 {
            wanted.extend(features("psnr_hvs", &[]));
        }
        let (session, values, totals) = run(&clip, &wanted);
        assert_eq!(session.plan().columns.len(), wanted.len());
        for (t, values) in values.iter().enumerate() {
            for (name, value) in session.plan().columns.iter().zip(values) {
                let golden = clip.golden["features"][t][name].as_f64().unwrap();
                // libvmaf sums colour differences in doubles; the sum here is more exact.
                let tolerance = if name == "ciede2000" { 1e-11 } else { 0.0 };
                let of = format!("{}, frame {t}: {name} is {value}, not {golden}", clip.name);
                assert!((value - golden).abs() <= tolerance, "{of}");
            }
        }
        let aggregates = totals.aggregates(session.plan(), geometry(&clip));
        assert_eq!(aggregates.len(), 3);
        for (name, value) in aggregates {
            assert_eq!(Some(value), clip.golden["aggregates"][&*name].as_f64(), "{}: {name}", clip.name);
        }
    }
}

/// Both metrics read the undecimated picture, whose sums are computed once.
pub fn ssim_and_ms_ssim_share_what_they_have_in_common() {
    let clip = clips().into_iter().find(|clip| clip.width.min(clip.height) >= 176).unwrap();
    let lcs = [("enable_lcs", "true")];
    let (alone, together) = (features("float_ms_ssim", &lcs), {
        let mut both = features("float_ssim", &lcs);
        both.extend(features("float_ms_ssim", &lcs));
        both
    });
    let ((_, alone, _), (_, together, _)) = (run(&clip, &alone), run(&clip, &together));
    for (alone, together) in alone.iter().zip(&together) {
        assert_eq!(together[4..], alone[..]);
        assert_eq!(together[1], alone[1], "luminance of the first scale");
    }
}

pub fn frames_that_a_metric_is_not_defined_for_are_refused() {
    let depth = |bits| BitDepth::new(bits).unwrap();
    let plain = Geometry { width: 175, height: 300, depth: depth(8), chroma: Some((87, 150)) };
    let cases = [
        ("float_ms_ssim", &[][..], plain, "the MS-SSIM metric needs frames of at least 176x176"),
        ("float_ssim", &[("scale", "10")], Geometry { width: 100, ..plain }, "at least 110x110"),
        (
            "float_ssim",
            &[],
            Geometry { width: 10, ..plain },
            "the SSIM metric needs frames of at least 11x11",
        ),
        (
            "adm2",
            &[],
            Geometry { height: 16, ..plain },
            "the float ADM metric needs frames of at least 17x17",
        ),
        ("psnr_hvs", &[], Geometry { chroma: None, ..plain }, "the PSNR-HVS metric needs chroma"),
        ("ciede2000", &[], Geometry { chroma: None, ..plain }, "the CIEDE2000 metric needs chroma"),
        ("psnr_hvs", &[], Geometry { width: 15, chroma: Some((7, 150)), ..plain }, "at least 16x16"),
        ("psnr_hvs", &[], Geometry { width: 7, chroma: Some((7, 300)), ..plain }, "at least 8x8"),
        ("psnr_hvs", &[], Geometry { depth: depth(16), ..plain }, "at most 12 bits, these have 16"),
        (
            "xpsnr_y",
            &[],
            Geometry { depth: depth(15), ..plain },
            "the XPSNR metric takes samples of at most 14 bits",
        ),
        (
            "ssimulacra2",
            &[],
            Geometry { width: 7, ..plain },
            "the SSIMULACRA2 metric needs frames of at least 8x8",
        ),
        (
            "ssimulacra2",
            &[],
            Geometry { chroma: Some((43, 300)), ..plain },
            "these frames have 43x300 samples",
        ),
    ];
    for (name, options, geometry, reason) in cases {
        let Err(EngineError::Backend(error)) = session(&features(name, options), geometry) else {
            panic!("{name} {geometry:?}")
        };
        assert!(!matches!(error, BackendError::Device(_)));
        assert!(error.to_string().contains(reason), "{error}");
    }
}

pub fn rgb_is_refused_by_metrics_of_luma() {
    let depth = BitDepth::new(8).unwrap();
    let geometry = Geometry { width: 176, height: 176, depth, chroma: Some((176, 176)) };
    let colorimetry = Colorimetry { matrix: Some(Matrix::Rgb), ..Colorimetry::default() };
    let video = Video { colorimetry, ..Video::default() };
    for name in
        ["VMAF_integer_feature_vif_scale0_score", "psnr_y", "psnr_cb", "xpsnr_y", "ciede2000", "ssimulacra2"]
    {
        let features = [features(name, &[]), features("cvvdp_q", &[])].concat();
        let plan = Plan::new(vec![], &features, ScoreOptions::default()).unwrap();
        let takes_rgb = plan.work.takes_rgb();
        let mut session = Session::new(Arc::new(plan), backend(), 1);
        let rate = FrameRate::new(25, 1);
        session.set_video(Video { rate, ..video });
        match session.prepare(geometry, &[None]) {
            Ok(()) => assert!(takes_rgb && name == "ssimulacra2", "{name}"),
            Err(error) => {
                let error = error.to_string();
                let metric = name.split('_').find(|part| ["vif", "psnr", "xpsnr"].contains(part));
                assert!(!takes_rgb && error.contains(metric.unwrap_or("ciede")), "{name}: {error}");
                assert!(error.contains("convert both videos to Y'CbCr"), "{error}");
            }
        }
        session.set_video(Video { rate, ..Video::default() });
        session.prepare(geometry, &[None]).unwrap();
    }
}
