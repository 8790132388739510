// SPDX-License-Identifier: MPL-2.0

//! SSIMULACRA2 through sessions: the check values of its specification. Its sums on a GPU equal the CPU's for all
//! layouts of chroma.

use std::sync::Arc;

use gpu::Selection;
use hipvmaf_engine::backend::cpu::Cpu;
use hipvmaf_engine::backend::hip::Hip;
use hipvmaf_engine::backend::{Backend, Group};
use hipvmaf_engine::frame::{BitDepth, Geometry, Picture};
use hipvmaf_engine::metrics::feature::Feature;
use hipvmaf_engine::metrics::{FrameSums, Work};
use hipvmaf_engine::model::ScoreOptions;
use hipvmaf_engine::plan::Plan;
use hipvmaf_engine::random::noise;
use hipvmaf_engine::session::{Session, Tag};
use hipvmaf_engine::video::{ChromaSite, Colorimetry, Matrix, Primaries, Range, Transfer, Video};

use crate::features::backend;

/// Options of the extractor.
type Options = &'static [(&'static str, &'static str)];

/// Returns a plan with a feature for each of the options.
fn plan(options: &[Options]) -> Plan {
    let feature = |options: &Options| {
        Feature::resolve("ssimulacra2", options.iter().copied()).unwrap().extractor.features(false)
    };
    let features: Vec<_> = options.iter().flat_map(feature).collect();
    Plan::new(vec![], &features, ScoreOptions::default()).unwrap()
}

/// Fills all planes by a function of component, column and row.
fn filled(geometry: Geometry, sample: impl Fn(usize, usize, usize) -> u32) -> Vec<u8> {
    let planes = [Some((geometry.width, geometry.height)), geometry.chroma, geometry.chroma];
    let mut bytes = vec![];
    for (p, (width, height)) in planes.into_iter().flatten().enumerate() {
        for (x, y) in (0..height).flat_map(|y| (0..width).map(move |x| (x, y))) {
            bytes.extend(&sample(p, x, y).to_le_bytes()[..geometry.sample_size()]);
        }
    }
    bytes
}

/// Scores the frame of the specification. Returns a value for each of the options.
fn scores(geometry: Geometry, video: Video, options: &[Options]) -> Vec<f64> {
    let most = geometry.depth.max();
    let unit = 1 << (geometry.depth.bits() - 8);
    let reference = |p: usize, x: usize, y: usize| {
        ((3 * x * x + 5 * y + 7 * x * y + 11 * p * (x + y)) / 16) as u32 % (most + 1)
    };
    let distorted = |p: usize, x: usize, y: usize| {
        (reference(p, x, y) + ((31 * x + 17 * y + p) % 23) as u32 * unit).min(most)
    };
    let (reference, distorted) = (filled(geometry, reference), filled(geometry, distorted));
    let mut session = Session::new(Arc::new(plan(options)), backend(), 1);
    session.set_video(video);
    session.prepare(geometry, &[None]).unwrap();
    let picture = |bytes| Picture::packed(bytes, geometry).unwrap();
    session.submit(Tag::default(), picture(&reference), vec![(0, picture(&distorted))]).unwrap();
    let mut pairs = vec![];
    while session.in_flight() > 0 {
        pairs.extend(session.collect().unwrap());
    }
    pairs.remove(0).values.unwrap()
}

fn geometry(width: usize, height: usize, bits: u32, chroma: Option<(usize, usize)>) -> Geometry {
    Geometry { width, height, depth: BitDepth::new(bits).unwrap(), chroma }
}

/// By options, by tags of the stream, and by options that differ from the tags.
pub fn is_that_of_its_specification() {
    let tagged = |colorimetry| Video { colorimetry, ..Video::default() };
    let bt709 = tagged(Colorimetry { matrix: Some(Matrix::Bt709), ..Colorimetry::default() });
    let uhd = Colorimetry {
        range: Some(Range::Limited),
        matrix: Some(Matrix::Bt2020),
        transfer: Some(Transfer::Bt709),
        primaries: Some(Primaries::Bt2020),
    };
    let top_left = Some(ChromaSite { h_cosited: true, v_cosited: true });
    let centre = Some(ChromaSite { h_cosited: false, v_cosited: false });
    let full = Colorimetry {
        range: Some(Range::Full),
        matrix: Some(Matrix::Bt601),
        transfer: Some(Transfer::Srgb),
        primaries: Some(Primaries::Bt709),
    };
    let plain = Video::default();
    let by_options: Options = &[("site", "topleft"), ("matrix", "2020"), ("primaries", "2020")];
    let rgb: Options = &[("range", "full"), ("matrix", "601"), ("transfer", "srgb")];
    let in_centre: Options =
        &[("site", "center"), ("matrix", "709"), ("range", "limited"), ("transfer", "bt1886")];
    let cases = [
        (geometry(96, 64, 8, Some((48, 32))), bt709, &[][..], 0x4046_7110_a8b2_c1c0),
        (geometry(97, 67, 10, Some((49, 34))), plain, by_options, 0x4033_e1ef_b47e_0f68),
        (
            geometry(97, 67, 10, Some((49, 34))),
            Video { chroma_site: top_left, ..tagged(uhd) },
            &[],
            0x4033_e1ef_b47e_0f68,
        ),
        (geometry(160, 120, 8, Some((160, 120))), plain, rgb, 0x404b_04dd_02ba_6298),
        (geometry(160, 120, 8, Some((160, 120))), tagged(full), &[], 0x404b_04dd_02ba_6298),
        (
            geometry(200, 130, 12, Some((100, 130))),
            Video { chroma_site: centre, ..bt709 },
            &[],
            0x4041_b567_9f7d_b100,
        ),
        (
            geometry(200, 130, 12, Some((100, 130))),
            Video { chroma_site: top_left, ..tagged(full) },
            in_centre,
            0x4041_b567_9f7d_b100,
        ),
        (geometry(64, 48, 8, None), plain, &[], 0x4056_fc94_75fa_98dd),
        (geometry(8, 8, 8, Some((4, 4))), bt709, &[], 0x4055_cf1a_fe8e_20d9),
    ];
    for (geometry, video, options, expected) in cases {
        let found = scores(geometry, video, &[options]);
        assert_eq!(found, [f64::from_bits(expected)], "{geometry:?} {video:?} {options:?}");
    }
    // Several options in one pass.
    let all = scores(
        geometry(160, 120, 8, Some((160, 120))),
        tagged(full),
        &[&[], &[("transfer", "gamma22")], rgb],
    );
    assert_eq!([all[0], all[2]], [f64::from_bits(0x404b_04dd_02ba_6298); 2]);
    assert_ne!(all[1], all[0]);
}

/// The expected values are those of the specification's reference in Python, with its line between entries of a table of light.
/// With its table for codes of pictures, it has 69.8312 for the first and 29.9258 for the last. The matrix and the position of
/// chroma make no difference.
pub fn of_rgb_is_that_of_its_specification() {
    let tagged = |transfer, range| {
        let colorimetry = Colorimetry { range, matrix: Some(Matrix::Rgb), transfer, primaries: None };
        Video { colorimetry, ..Video::default() }
    };
    let srgb = Some(Transfer::Srgb);
    let limited: Options = &[("range", "limited"), ("transfer", "bt1886"), ("primaries", "2020")];
    let ignored: Options = &[("matrix", "2020"), ("site", "topleft"), ("transfer", "bt1886")];
    let cases = [
        ((160, 120, 8), tagged(srgb, None), &[][..], 0x4051_7532_229d_93da),
        ((160, 120, 8), tagged(srgb, Some(Range::Full)), &[], 0x4051_7532_229d_93da),
        ((97, 67, 10), tagged(None, None), limited, 0x4048_0df1_e55c_68e0),
        ((96, 64, 12), tagged(None, None), &[], 0x403d_ed19_0b11_05e0),
        ((96, 64, 12), tagged(srgb, None), ignored, 0x403d_ed19_0b11_05e0),
    ];
    for ((width, height, bits), video, options, expected) in cases {
        let geometry = geometry(width, height, bits, Some((width, height)));
        let found = scores(geometry, video, &[options]);
        assert_eq!(found, [f64::from_bits(expected)], "{geometry:?} {video:?} {options:?}");
    }
}

/// Several distorted pictures and several conversions, sizes around those of blocks and tiles.
pub fn equals_the_processors() {
    let options: [Options; 4] = [
        &[],
        &[("site", "topleft"), ("matrix", "2020"), ("primaries", "2020"), ("range", "full")],
        &[("site", "center"), ("transfer", "srgb"), ("primaries", "p3"), ("matrix", "fcc")],
        &[("transfer", "gamma28"), ("primaries", "470bg"), ("matrix", "240")],
    ];
    let sizes: [(usize, usize); 9] =
        [(8, 8), (9, 13), (31, 8), (64, 65), (127, 15), (128, 66), (129, 33), (137, 130), (67, 259)];
    for (i, (width, height)) in sizes.into_iter().enumerate() {
        let bits = [8, 10, 12, 8, 16, 9][i % 6];
        let chroma = [
            Some((width.div_ceil(2), height.div_ceil(2))),
            Some((width / 2, height / 2)),
            Some((width.div_ceil(2), height)),
            None,
            Some((width, height)),
            Some((width, height / 2)),
        ];
        let geometry = geometry(width, height, bits, chroma[(i + i / 6) % 6]);
        let matrix = (geometry.chroma == Some((width, height))).then_some(Matrix::Rgb);
        let matrices = std::iter::once(None).chain(matrix.map(Some));
        let video = |matrix| Video {
            colorimetry: Colorimetry { matrix, ..Colorimetry::default() },
            ..Video::default()
        };
        let most = geometry.depth.max();
        let picture = |which: u32| {
            filled(geometry, |p, x, y| {
                let grain = noise(which * 3 + p as u32, x, y);
                let texture = ((x * x / 9 + y * 7 + x * y / 16 + 40 * p) % 200) as u32;
                match (i % 3, which) {
                    (0, 2) => grain & most,
                    (1, _) => most * ((x / 5 + y / (3 + which as usize)) % 2) as u32,
                    _ => ((texture << (bits - 8)) + (grain >> (27 - which) << (bits - 8)) / 2).min(most),
                }
            })
        };
        let pictures = [0, 1, 2].map(picture);
        let work = plan(&[options[i % 4], options[(i + 1) % 4]]).work;
        let works: Vec<_> = matrices.map(|matrix| work.suited(&video(matrix), geometry)).collect();
        let sums = |work: &Work, backend: &mut dyn Backend, distorted: &[Vec<u8>]| -> Vec<FrameSums> {
            backend.prepare(work, geometry, &vec![None; distorted.len()]).unwrap();
            let picture = |bytes| Picture::packed(bytes, geometry).unwrap();
            let others = distorted.iter().map(|bytes| picture(bytes)).enumerate().collect();
            let group = Group { reference: picture(&pictures[0]), distorted: others, history_only: false };
            let ticket = backend.submit(group).unwrap();
            backend.wait(ticket).unwrap()
        };
        let cases = works.iter().flat_map(|work| [&pictures[1..], &pictures[2..]].map(|of| (work, of)));
        for (work, distorted) in cases {
            let expected = sums(work, &mut Cpu::new(1).unwrap(), distorted);
            let found = sums(work, &mut Hip::open(&Selection::default(), 1).unwrap(), distorted);
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(expected.difference(found), None, "{geometry:?}");
            }
            assert_eq!(found.len(), expected.len());
        }
    }
}
