// SPDX-License-Identifier: MPL-2.0

//! Heat maps through the engine: of damage, and of the differences that ColorVideoVDP sees.

use std::sync::Arc;

use hipvmaf_engine::frame::{BitDepth, Component, Geometry, Picture, Samples};
use hipvmaf_engine::heatmap::{HeatSums, Heatmap};
use hipvmaf_engine::metrics::feature_list;
use hipvmaf_engine::model::ScoreOptions;
use hipvmaf_engine::plan::Plan;
use hipvmaf_engine::session::{Session, Tag};
use hipvmaf_engine::video::{FrameRate, Video};

use crate::clip::clips;
use crate::cvvdp::{geometry as geometry_of, picture as picture_of};
use crate::features::backend;

/// Features without those of ColorVideoVDP, and with them.
const DAMAGE: &str = "psnr";
const VISIBLE: &str = "psnr;cvvdp";

/// Computes the sums of the heat maps of a pair of frames, shown this many times.
fn sums(features: &str, geometry: Geometry, pair: [Picture<'_>; 2], times: usize) -> HeatSums {
    let extractors = feature_list::parse(features, &[]).unwrap();
    let features: Vec<_> = extractors.iter().flat_map(|extractor| extractor.features(true)).collect();
    let mut plan = Plan::new(vec![], &features, ScoreOptions::default()).unwrap();
    plan.add_heat_map();
    let mut session = Session::new(Arc::new(plan), backend(), 1);
    session.set_video(Video { rate: FrameRate::new(25, 1), ..Video::default() });
    session.prepare(geometry, &[None]).unwrap();
    let mut last = None;
    for _ in 0..times {
        let [reference, distorted] = pair.clone();
        session.submit(Tag::default(), reference, vec![(0, distorted)]).unwrap();
        while session.in_flight() > 0 {
            session.collect().unwrap();
        }
        last = session.take_heat();
    }
    last.and_then(|(_, _, sums)| sums).unwrap()
}

const WIDTH: usize = 160;
const HEIGHT: usize = 96;

/// Computes the levels of heat of pictures of these samples at the centres of cells.
fn levels(features: &str, pictures: [&dyn Fn(usize, usize, usize) -> u8; 2]) -> Vec<u8> {
    let depth = BitDepth::new(8).unwrap();
    let geometry = Geometry { width: WIDTH, height: HEIGHT, depth, chroma: Some((WIDTH, HEIGHT)) };
    let planes = pictures.map(|sample| {
        [0, 1, 2].map(|c| -> Vec<u8> {
            let places = (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| (x, y)));
            places.map(|(x, y)| sample(c, x, y)).collect()
        })
    });
    let pair = planes.each_ref().map(|planes| {
        let [luma, cb, cr] = planes.each_ref().map(|plane| Component {
            samples: Samples::Host(plane),
            width: WIDTH,
            height: HEIGHT,
            stride: WIDTH,
            step: 1,
            shift: 0,
        });
        Picture { luma, chroma: Some([cb, cr]), lease: None }
    });
    let map = Heatmap::new(geometry, Some(&sums(features, geometry, pair, 1)));
    let mut levels = [0; WIDTH];
    let rows = (8..HEIGHT).step_by(16);
    rows.flat_map(|y| {
        map.row(y, 1, &mut levels);
        levels[8..].iter().step_by(16).copied().collect::<Vec<_>>()
    })
    .collect()
}

fn texture(c: usize, x: usize, y: usize) -> u8 {
    let grain = (x * 7919 + y * 104_729 + x * y * 31) % 41;
    if c == 0 { (60 + x / 4 + y / 3 + grain) as u8 } else { 128 }
}

pub fn equal_pictures_are_cold() {
    for features in [DAMAGE, VISIBLE] {
        assert_eq!(levels(features, [&texture, &texture]), [0; 60]);
    }
}

/// At half the size, such stripes are as grey as what they became.
pub fn stripes_of_one_sample_that_were_flattened_are_hot() {
    for down in [false, true] {
        let stripes = |c: usize, x: usize, y: usize| {
            let odd = if down { y } else { x } % 2 == 1;
            if c == 0 && odd { 160 } else { 96 + 32 * u8::from(c > 0) }
        };
        let flat = |_: usize, _: usize, _: usize| 128;
        // On the display, they are hardly visible.
        for (features, least) in [(DAMAGE, 200), (VISIBLE, 15)] {
            let levels = levels(features, [&stripes, &flat]);
            assert!(levels.iter().all(|level| *level > least), "{features}: {levels:?}");
        }
    }
}

/// The scale is the same for each picture.
pub fn more_damage_is_hotter() {
    let quantised =
        |step: u8| move |c: usize, x, y| if c == 0 { texture(c, x, y) / step * step } else { 128 };
    for features in [DAMAGE, VISIBLE] {
        let means = [6, 16, 40].map(|step| {
            let levels = levels(features, [&texture, &quantised(step)]);
            levels.iter().map(|level| f64::from(*level)).sum::<f64>() / levels.len() as f64
        });
        assert!(means.windows(2).all(|pair| pair[1] > 1.5 * pair[0]), "{features}: {means:?}");
        assert!(means[0] < 60.0 && means[2] > 140.0, "{features}: {means:?}");
    }
}

/// ColorVideoVDP also sees colours, and the heat is where the difference is.
pub fn visible_differences_are_where_they_are() {
    let tinted = |c: usize, x: usize, y: usize| {
        if c > 0 && (96..128).contains(&x) && (32..64).contains(&y) { 136 } else { texture(c, x, y) }
    };
    assert_eq!(levels(DAMAGE, [&texture, &tinted]), [0; 60]);
    let levels = levels(VISIBLE, [&texture, &tinted]);
    for (i, level) in levels.iter().enumerate() {
        let expected = match (i % 10, i / 10) {
            (6 | 7, 2 | 3) => 120..=200,
            (0..3, _) => 0..=3,
            _ => 0..=60,
        };
        assert!(expected.contains(level), "cell {i}: {levels:?}");
    }
}

/// The expected values follow from the differences of all bands in the definition's reference in Python.
pub fn visible_differences_are_those_of_the_definition() {
    let clip = clips().into_iter().find(|clip| clip.name == "176x144_420_8bit").unwrap();
    let geometry = geometry_of(&clip);
    let [reference, distorted] = [false, true].map(|distorted| clip.bytes(0, distorted));
    let pair = [picture_of(&clip, &reference), picture_of(&clip, &distorted)];
    let HeatSums::Visible(heat) = sums(VISIBLE, geometry, pair, 1) else { panic!("another map") };
    let map = heat.map(geometry);
    assert_eq!(map.len(), 99);
    for (cell, expected) in [
        (0, 0.0727053554950448),
        (7, 0.03887288548447217),
        (49, 0.13947594930117582),
        (60, 0.27233579992385665),
        (98, 0.015549788693677336),
    ] {
        assert!((map[cell] - expected).abs() < 1e-5, "cell {cell}: {} instead of {expected}", map[cell]);
    }
}
