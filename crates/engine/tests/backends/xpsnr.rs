// SPDX-License-Identifier: MPL-2.0

//! XPSNR through sessions: the check values of its specification, and values that do not depend on how a stream is divided.

use std::sync::Arc;

use hipvmaf_engine::frame::{BitDepth, Geometry, Picture};
use hipvmaf_engine::metrics::feature::Feature;
use hipvmaf_engine::model::ScoreOptions;
use hipvmaf_engine::plan::Plan;
use hipvmaf_engine::random::noise;
use hipvmaf_engine::session::{Session, Tag};
use hipvmaf_engine::video::{FrameRate, Video};

use crate::features::backend;

/// Samples of a frame, plane after plane.
type Bytes = Vec<u8>;

fn session(geometry: Geometry, fps: u32, renditions: usize, subsample: u32) -> Session {
    let features = Feature::resolve("xpsnr_y", []).unwrap().extractor.features(false);
    let plan = Plan::new(vec![], &features, ScoreOptions::default()).unwrap();
    let mut session = Session::new(Arc::new(plan), backend(), subsample);
    session.set_video(Video { rate: FrameRate::new(fps, 1), ..Video::default() });
    session.prepare(geometry, &vec![None; renditions]).unwrap();
    assert_eq!(session.lags(), if fps < 32 { 1 } else { 2 });
    session
}

/// Scores frames, each a reference with the renditions that have a frame for it. Returns the values of each rendition.
fn score<'a>(
    session: &mut Session,
    geometry: Geometry,
    frames: impl IntoIterator<Item = (&'a Bytes, Vec<(usize, &'a Bytes)>)>,
) -> Vec<Vec<Option<Vec<f64>>>> {
    let mut pairs = vec![];
    for (reference, distorted) in frames {
        while !session.room() {
            pairs.extend(session.collect().unwrap());
        }
        let picture = |bytes| Picture::packed(bytes, geometry).unwrap();
        let distorted = distorted.into_iter().map(|(i, bytes)| (i, picture(bytes))).collect();
        session.submit(Tag::default(), picture(reference), distorted).unwrap();
    }
    while session.in_flight() > 0 {
        pairs.extend(session.collect().unwrap());
    }
    let mut values = vec![vec![]; 1 + pairs.iter().map(|pair| pair.rendition).max().unwrap_or(0)];
    pairs.into_iter().for_each(|pair| values[pair.rendition].push(pair.values));
    values
}

/// Fills all planes by a function of component, column and row.
fn filled(geometry: Geometry, sample: impl Fn(usize, usize, usize) -> u32) -> Bytes {
    let chroma = geometry.chroma;
    let planes = [Some((geometry.width, geometry.height)), chroma, chroma];
    let mut bytes = vec![];
    for (p, (width, height)) in planes.into_iter().flatten().enumerate() {
        for (x, y) in (0..height).flat_map(|y| (0..width).map(move |x| (x, y))) {
            bytes.extend(&sample(p, x, y).to_le_bytes()[..geometry.sample_size()]);
        }
    }
    bytes
}

/// Returns the frames for which the specification has check values.
fn synthetic(geometry: Geometry, t: usize) -> [Bytes; 2] {
    let max = geometry.depth.max();
    let reference = |p: usize, x: usize, y: usize| {
        let x = x + 5 * t;
        ((3 * x * x + 5 * y + 7 * x * y + 11 * p * (x + y)) / 16) as u32 & max
    };
    let distorted = |p: usize, x: usize, y: usize| {
        let step = ((31 * (x + 5 * t) + 17 * y + p) % 23) as u32;
        (reference(p, x, y) + (step << (geometry.depth.bits() - 8))).min(max)
    };
    [filled(geometry, reference), filled(geometry, distorted)]
}

fn geometry(width: usize, height: usize, bits: u32, chroma: (usize, usize)) -> Geometry {
    Geometry { width, height, depth: BitDepth::new(bits).unwrap(), chroma: Some(chroma) }
}

/// Weighted errors of Y, Cb and Cr, and the decibels of Y, of successive frames.
pub fn is_that_of_its_specification() {
    let small = geometry(96, 64, 8, (48, 32));
    let cases = [
        (
            small,
            25,
            &[
                ([819434u64, 203467, 203844], 26.880175881302),
                ([699110, 176941, 175114], 27.569860536128),
                ([577904, 144902, 140967], 28.396758674172),
            ][..],
        ),
        (
            small,
            60,
            &[
                ([819434, 203467, 203844], 26.880175881302),
                ([1031253, 266475, 261216], 25.881663429331),
                ([1039446, 262959, 251041], 25.847296355622),
            ],
        ),
        (
            geometry(97, 67, 10, (97, 67)),
            50,
            &[
                ([45309572, 45298599, 45098826], 21.764078445939),
                ([85646876, 85164430, 84620604], 18.998862778453),
                ([423785651, 419290900, 408068164], 12.054515565872),
            ],
        ),
        (
            geometry(642, 480, 12, (321, 480)),
            25,
            &[
                ([3840855389, 1922710662, 1922778507], 31.288561216676),
                ([6495493962, 3250934400, 3249585865], 29.006718942354),
            ],
        ),
        (
            geometry(2050, 1152, 10, (1025, 576)),
            25,
            &[
                ([627955177, 156999462, 157011449], 35.950289623592),
                ([963730644, 240954639, 240968720], 34.090019389865),
            ],
        ),
        (
            geometry(2051, 1153, 8, (1026, 577)),
            25,
            &[
                ([38102830, 9543327, 9546949], 36.059180954344),
                ([55716443, 13957519, 13962175], 34.408919457392),
            ],
        ),
        (geometry(44, 46, 8, (22, 23)), 25, &[([322923, 82574, 82691], 26.101918905489)]),
    ];
    for (geometry, fps, expected) in cases {
        let frames: Vec<_> = (0..expected.len()).map(|t| synthetic(geometry, t)).collect();
        let frames = frames.iter().map(|[reference, distorted]| (reference, vec![(0, distorted)]));
        let values = score(&mut session(geometry, fps, 1, 1), geometry, frames).remove(0);
        for (t, (values, (weighted, y))) in values.iter().zip(expected).enumerate() {
            let values = values.as_ref().unwrap();
            let of = format!("{geometry:?}, {fps} fps, frame {t}: {values:?}");
            assert!((values[0] - y).abs() < 1e-11, "{of}");
            let chroma = geometry.chroma.unwrap();
            let planes = [(geometry.width, geometry.height), chroma, chroma];
            for (i, ((width, height), weighted)) in planes.into_iter().zip(weighted).enumerate() {
                let largest = (width * height) as f64 * f64::from(geometry.depth.max()).powi(2);
                let expected = 10.0 * (largest / *weighted as f64).log10();
                assert!((values[i] - expected).abs() < 1e-11, "{of}");
            }
            assert_eq!(values[3], values[..3].iter().copied().fold(f64::INFINITY, f64::min), "{of}");
            assert_eq!(values[4], (4.0 * values[0] + values[1] + values[2]) / 6.0, "{of}");
        }
        assert_eq!(values.len(), expected.len());
    }
}

/// Frames that are not scored are history of those that are: at the beginning of a chunk, between scored frames, and where a
/// rendition lacks them.
pub fn of_parts_is_that_of_the_whole() {
    let geometry = geometry(161, 90, 8, (80, 45));
    let frame = |seed: u32| {
        let sample = |p: usize, x: usize, y: usize| {
            let texture = (3 * x + 7 * y + (x * y + 11 * seed as usize) / 9 + 40 * p) as u32 & 0x7f;
            texture + (noise(seed, x, y) >> 28)
        };
        filled(geometry, sample)
    };
    let frames: Vec<_> = (0..9).map(|t| [frame(3 * t), frame(3 * t + 1), frame(3 * t + 2)]).collect();
    for fps in [25, 50] {
        let all = frames.iter().map(|[r, a, b]| (r, vec![(0, a), (1, b)]));
        let whole = score(&mut session(geometry, fps, 2, 1), geometry, all);
        let (first, lead_in) = (4, if fps == 25 { 1 } else { 2 });
        let chunk = |lead_in: usize| {
            let before = frames[first - lead_in..first].iter().map(|[r, ..]| (r, vec![]));
            let scored = frames[first..].iter().map(|[r, _, b]| (r, vec![(0, b)]));
            score(&mut session(geometry, fps, 1, 1), geometry, before.chain(scored)).remove(0)
        };
        assert_eq!(chunk(lead_in), whole[1][first..], "{fps} fps");
        assert_ne!(chunk(lead_in - 1)[0], whole[1][first], "{fps} fps");
        let some = frames.iter().map(|[r, a, b]| (r, vec![(0, a), (1, b)]));
        let some = score(&mut session(geometry, fps, 2, 3), geometry, some);
        for (t, values) in some[1].iter().enumerate() {
            assert_eq!(*values, whole[1][t].clone().filter(|_| t % 3 == 0), "{fps} fps, frame {t}");
        }
        let lacking = frames.iter().enumerate().map(|(t, [r, a, b])| match t {
            3 | 4 => (r, vec![(1, b)]),
            _ => (r, vec![(1, b), (0, a)]),
        });
        let lacking = score(&mut session(geometry, fps, 2, 1), geometry, lacking);
        assert_eq!(lacking[1], whole[1]);
        assert_eq!(lacking[0][3..], whole[0][5..]);
    }
}
