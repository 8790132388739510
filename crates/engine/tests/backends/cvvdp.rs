// SPDX-License-Identifier: MPL-2.0

//! ColorVideoVDP through the engine: the values of its definition in Python, and its history.

use std::borrow::Cow;
use std::sync::Arc;

use hipvmaf_engine::frame::{BitDepth, Geometry, Picture};
use hipvmaf_engine::metrics::feature_list;
use hipvmaf_engine::model::ScoreOptions;
use hipvmaf_engine::plan::Plan;
use hipvmaf_engine::session::{Session, Tag, Totals};
use hipvmaf_engine::video::{Colorimetry, FrameRate, Matrix, Video};

use crate::clip::{Clip, clips};
use crate::features::backend;

/// A pair of frames; the distorted one by rendition.
type Frame = (Vec<u8>, Vec<(usize, Vec<u8>)>);

/// The values of a rendition; `None` for frames that are not scored.
type Values = Vec<Option<f64>>;

pub fn geometry(clip: &Clip) -> Geometry {
    let (half_w, half_h) = clip.halved;
    let chroma =
        Some((clip.width.div_ceil(1 << u32::from(half_w)), clip.height.div_ceil(1 << u32::from(half_h))));
    Geometry { width: clip.width, height: clip.height, depth: BitDepth::new(clip.depth).unwrap(), chroma }
}

pub fn picture<'a>(clip: &Clip, bytes: &'a [u8]) -> Picture<'a> {
    Picture::packed(bytes, geometry(clip)).unwrap()
}

/// Returns a stream of this rate.
fn at((num, den): (u32, u32)) -> Video {
    Video { rate: FrameRate::new(num, den), ..Video::default() }
}

/// Scores frames of the clip's geometry. Returns the values of each rendition, and the totals of the first.
fn score(
    clip: &Clip,
    options: &str,
    video: Video,
    (renditions, subsample): (usize, u32),
    frames: &[Frame],
) -> (Vec<Values>, Vec<(Cow<'static, str>, f64)>) {
    let features: Vec<_> =
        feature_list::parse(options, &[]).unwrap().iter().flat_map(|e| e.features(true)).collect();
    let plan = Arc::new(Plan::new(vec![], &features, ScoreOptions::default()).unwrap());
    let mut session = Session::new(plan.clone(), backend(), subsample);
    session.set_video(video);
    session.prepare(geometry(clip), &vec![None; renditions]).unwrap();
    let mut pairs = vec![];
    for (reference, distorted) in frames {
        while !session.room() {
            pairs.extend(session.collect().unwrap());
        }
        let distorted = distorted.iter().map(|(rendition, bytes)| (*rendition, picture(clip, bytes)));
        session.submit(Tag::default(), picture(clip, reference), distorted.collect()).unwrap();
    }
    while session.in_flight() > 0 {
        pairs.extend(session.collect().unwrap());
    }
    let mut values = vec![vec![]; renditions];
    let mut totals = Totals::default();
    for pair in pairs {
        if pair.rendition == 0 {
            totals += &pair.totals;
        }
        values[pair.rendition].push(pair.values.map(|values| values[0]));
    }
    let aggregates = totals.aggregates(&plan, geometry(clip));
    (values, aggregates)
}

/// Returns all frames of a clip, with the distorted ones as those of rendition 0.
fn frames(clip: &Clip) -> Vec<Frame> {
    (0..clip.frames).map(|t| (clip.bytes(t, false), vec![(0, clip.bytes(t, true))])).collect()
}

/// The expected values were printed by the definition's reference in Python, to which 0.5.7 is equal to 1e-6 JOD.
pub fn is_that_of_its_definition() {
    let cases = [
        (
            "176x144_420_8bit",
            "cvvdp",
            (25, 1),
            &[
                63.929829087898845,
                63.737373025453046,
                62.458935701578966,
                60.71431058683669,
                56.73615159762466,
                53.212343927667106,
                66.12834256719974,
                47.99765567292692,
                46.90550623847821,
                63.59717470286009,
            ][..],
            8.051627460630932,
        ),
        (
            "96x64_420_12bit",
            "cvvdp=display=standard_hdr_pq:matrix=bt2020",
            (50, 1),
            &[
                97.35378451537251,
                97.1004132291922,
                96.84471289267914,
                96.27579728620815,
                95.01270066447027,
                97.86712356515949,
            ],
            6.909266254020023,
        ),
        (
            "97x71_444_12bit",
            "cvvdp=display=standard_hdr_hlg:range=full",
            (30_000, 1001),
            &[
                56.66053125341146,
                57.46509291572237,
                57.40956209282074,
                57.1278208409987,
                53.268635165041694,
                62.375843401826366,
            ],
            8.096829832272494,
        ),
        (
            "97x71_422_10bit",
            "cvvdp=display=iphone_14_pro:loc=left",
            (12, 1),
            &[
                32.30107429096904,
                31.46687164925437,
                32.64923143505053,
                34.54633301926207,
                86.91070050740134,
                43.616590596761064,
            ],
            8.393809183239721,
        ),
    ];
    for (name, options, rate, expected, jod) in cases {
        let clip = clips().into_iter().find(|clip| clip.name == name).unwrap();
        let (values, aggregates) = score(&clip, options, at(rate), (1, 1), &frames(&clip));
        assert_eq!(values[0].len(), expected.len());
        for (t, (value, expected)) in values[0].iter().zip(expected).enumerate() {
            let value = value.unwrap();
            assert!(
                (value - expected).abs() < 1e-12 * expected,
                "{name}, frame {t}: {value}, not {expected}"
            );
        }
        let [(name, value)] = &aggregates[..] else { panic!("{aggregates:?}") };
        let key = &feature_list::parse(options, &[]).unwrap()[0].features(true)[0].key;
        assert_eq!(format!("cvvdp{}", &key["cvvdp_q".len()..]), *name);
        assert!((value - jod).abs() < 1e-9, "{name}: {value}, not {jod}");
    }
}

/// The expected values are those of the definition's reference in Python, with G, B and R that are converted as luma is. The
/// matrix and the position of chroma make no difference.
pub fn of_rgb_is_that_of_its_definition() {
    let clip = clips().into_iter().find(|clip| clip.name == "97x71_444_12bit").unwrap();
    let cases = [
        (
            "cvvdp=matrix=bt2020:loc=left",
            (25, 1),
            [
                52.99639141745607,
                52.79272676490206,
                53.801725902583804,
                59.187025609241516,
                62.26197289676871,
                65.77616028824617,
            ],
            8.079215866987578,
        ),
        (
            "cvvdp=display=standard_hdr_hlg:range=limited",
            (50, 1),
            [
                76.18515402815332,
                81.11253315304613,
                91.40957037054757,
                101.6359690245515,
                105.02694144442238,
                108.074052261359,
            ],
            6.970892101118496,
        ),
    ];
    for (options, rate, expected, jod) in cases {
        let colorimetry = Colorimetry { matrix: Some(Matrix::Rgb), ..Colorimetry::default() };
        let video = Video { colorimetry, ..at(rate) };
        let (values, aggregates) = score(&clip, options, video, (1, 1), &frames(&clip));
        assert_eq!(values[0].len(), expected.len());
        for (t, (value, expected)) in values[0].iter().zip(expected).enumerate() {
            let value = value.unwrap();
            assert!(
                (value - expected).abs() < 1e-12 * expected,
                "{options}, frame {t}: {value}, not {expected}"
            );
        }
        assert!((aggregates[0].1 - jod).abs() < 1e-9, "{options}: {aggregates:?}, not {jod}");
    }
}

/// The expected values are those of the definition's reference in Python. A frame before or beside does not matter, nor does
/// the rate.
pub fn of_still_pictures_is_their_jod() {
    let cases = [
        ("176x144_420_8bit", "cvvdp=still=true", [8.737626843588467, 8.544224415624916, 7.666436624647088]),
        (
            "97x71_422_10bit",
            "cvvdp=display=standard_hdr_pq:matrix=bt2020:still=true",
            [8.342018999880572, 8.188345478155268, 7.518086178172205],
        ),
    ];
    for (name, options, expected) in cases {
        let clip = clips().into_iter().find(|clip| clip.name == name).unwrap();
        let frames = &frames(&clip)[..expected.len()];
        let features = feature_list::parse(options, &[]).unwrap()[0].features(true);
        let [feature] = &features[..] else { panic!("{features:?}") };
        assert!(feature.key.starts_with("cvvdp_") && feature.key.ends_with("_still"), "{}", feature.key);
        for rate in [(0, 1), (50, 1)] {
            let (values, aggregates) = score(&clip, options, at(rate), (1, 1), frames);
            assert_eq!(aggregates, []);
            for (t, (value, expected)) in values[0].iter().zip(expected).enumerate() {
                let value = value.unwrap();
                assert!((value - expected).abs() < 1e-12 * expected, "{name}, {t}: {value}, not {expected}");
            }
            let alone = score(&clip, options, at(rate), (1, 1), &frames[2..]).0;
            assert_eq!(alone[0][0], values[0][2]);
        }
    }
}

/// Frames that are not scored are history of those that are: at the beginning of a chunk, and between scored frames. So
/// the JOD of a clip follows from the totals of its chunks, exactly. A rendition that comes late is scored as a clip
/// that begins there.
pub fn of_parts_is_that_of_the_whole() {
    let clip = clips().into_iter().find(|clip| clip.name == "96x64_420_12bit").unwrap();
    let all = frames(&clip);
    // Three frames at 8, five at 10 frames a second.
    for (rate, lead_in) in [(8, 2), (10, 4)] {
        let run = |frames: &[Frame], given| score(&clip, "cvvdp", at((rate, 1)), given, frames).0;
        let whole = run(&all, (1, 1)).remove(0);
        let first = 5;
        let chunk = |lead_in: usize| run(&all[first - lead_in..], (1, 1)).remove(0)[lead_in..].to_vec();
        assert_eq!(chunk(lead_in), whole[first..]);
        assert_ne!(chunk(lead_in - 1), whole[first..]);
        let some = run(&all, (1, 2)).remove(0);
        for (t, value) in some.iter().enumerate() {
            assert_eq!(*value, whole[t].filter(|_| t % 2 == 0), "frame {t}");
        }
        let both = all.iter().enumerate().map(|(t, (reference, distorted))| {
            let late = (t >= 2).then(|| (1, distorted[0].1.clone()));
            (reference.clone(), late.into_iter().chain(distorted.clone()).collect())
        });
        let both = run(&both.collect::<Vec<_>>(), (2, 1));
        assert_eq!(both[0], whole);
        assert_eq!(both[1], run(&all[2..], (1, 1))[0]);
    }
}
