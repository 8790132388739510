// SPDX-License-Identifier: MPL-2.0

#![allow(clippy::excessive_precision, reason = "numbers are written as the definition has them")]

use super::tables::Tables;
use super::*;
use crate::frame::BitDepth;

fn geometry(width: usize, height: usize) -> Geometry {
    let depth = BitDepth::new(8).unwrap();
    Geometry { width, height, depth, chroma: Some((width.div_ceil(2), height.div_ceil(2))) }
}

fn tables(display: &str, fps: (u32, u32), width: usize, height: usize) -> Tables {
    let mut options = CvvdpOptions::default();
    assert_eq!(options.set("display", display), Ok(true));
    let mut work = CvvdpWork::new(options);
    let video = Video { rate: FrameRate::new(fps.0, fps.1), ..Video::default() };
    Cvvdp::suit(&mut work, &video, geometry(width, height));
    Tables::new(&work, geometry(width, height)).unwrap()
}

#[test]
fn bands_are_those_of_the_definition() {
    let sizes = [(640, 360), (1280, 720), (1920, 1080), (3840, 2160)];
    for (display, expected) in [
        ("standard_fhd", [8, 8, 8, 8]),
        ("standard_4k", [8, 9, 9, 9]),
        ("standard_phone", [8, 9, 10, 10]),
        ("iphone_12_pro", [8, 9, 10, 11]),
        ("standard_hmd", [7, 7, 7, 7]),
    ] {
        let bands = sizes.map(|(width, height)| tables(display, (25, 1), width, height).levels.len());
        assert_eq!(bands, expected, "{display}");
    }
}

#[test]
fn taps_and_constants_are_those_of_the_definition() {
    for (fps, taps) in [
        ((24_000, 1001), 7),
        ((24, 1), 7),
        ((25, 1), 9),
        ((30, 1), 9),
        ((50, 1), 15),
        ((60_000, 1001), 17),
        ((60, 1), 17),
        ((120, 1), 31),
        ((5, 1), 3),
    ] {
        assert_eq!(tables("standard_4k", fps, 64, 64).taps.len(), taps);
    }
    let Tables { taps, masking, front, .. } = tables("standard_4k", (24, 1), 64, 64);
    assert_eq!(taps[0], [0.0673876107, 0.0244823992, 0.0433340482, -0.133490413]);
    assert_eq!(taps[3], [0.259424418, 0.576652467, 0.46115467, 0.704520643]);
    assert_eq!(taps[4], taps[2]);
    assert_eq!([masking.horizontal[0], masking.horizontal[6]], [0.018544022, 0.13702282]);
    assert_eq!(
        [masking.vertical[0], masking.vertical[6], masking.small],
        [0.0029696606, 0.021942988, 0.16014113]
    );
    assert_eq!(masking.cross[2], [14.043564, 0.4982112, 0.6976921, 0.6757845]);
    assert_eq!([masking.zero, masking.top], [4.766766e-12, 0.002727436]);
    assert_eq!(masking.nodes, [1.4810165, 11.320678]);
    assert!(front.offsets[0] > 0.0);
}

#[test]
fn unknown_displays_and_rates_are_refused() {
    let mut options = CvvdpOptions::default();
    let error = options.set("display", "tv").unwrap_err().to_string();
    assert!(error.contains("display is `tv`") && error.contains("standard_hdr_pq"), "{error}");
    let mut work = CvvdpWork::new(options);
    let check =
        |work: &CvvdpWork, width| Cvvdp::check(work, geometry(width, 8)).map_err(|error| error.to_string());
    assert!(check(&work, 8).unwrap_err().contains("frame rate"));
    work.rate = FrameRate::new(241, 1);
    assert!(check(&work, 8).unwrap_err().contains("240"));
    work.rate = FrameRate::new(240, 1);
    assert_eq!(check(&work, 8), Ok(()));
    assert!(check(&work, 3).unwrap_err().contains("4x4"));
    assert_eq!(Cvvdp::history(&work), MAX_HISTORY);
}

#[test]
fn streams_decide_what_options_leave_open() {
    let video = Video {
        rate: FrameRate::new(25, 1),
        colorimetry: video::Colorimetry {
            range: Some(video::Range::Full),
            matrix: Some(video::Matrix::Bt2020),
            ..Default::default()
        },
        chroma_site: Some(video::ChromaSite { h_cosited: true, v_cosited: false }),
    };
    let work = |options: &[(&str, &str)]| {
        let mut all = CvvdpOptions::default();
        options.iter().for_each(|(name, value)| assert_eq!(all.set(name, value), Ok(true)));
        let mut work = CvvdpWork::new(all);
        Cvvdp::suit(&mut work, &video, geometry(8, 8));
        (work.matrix, work.full, work.cosited)
    };
    assert_eq!(work(&[]), (Matrix::Bt2020, true, [false, false]));
    assert_eq!(
        work(&[("loc", "tag"), ("matrix", "bt709"), ("range", "limited")]),
        (Matrix::Bt709, false, [true, false])
    );
}

/// Values of the reference in Python.
#[test]
fn pooled_jod_is_that_of_the_definition() {
    assert_eq!(jod(0.0), 10.0);
    let qs = [0.3, 1.25, 0.0071, 4.5, 17.0];
    let total = qs.iter().fold([0; 3], |sum: [u64; 3], q| {
        let term = amounts(*q);
        std::array::from_fn(|i| sum[i] + term[i])
    });
    let found = CvvdpSource { still: false, weight: 1.0 }.aggregates(&total, geometry(8, 8));
    let mean = qs.iter().map(|q| (q + 1e-5) * (q + 1e-5) - 1e-10).sum::<f64>() / 5.0;
    let q = (mean + 1e-5f64).sqrt() - 1e-5f64.sqrt();
    assert_eq!(found[0].0, "cvvdp");
    assert!((found[0].1 - (10.0 - JOD_FACTOR * q.powf(JOD_POWER))).abs() < 1e-9, "{found:?}");
    for q in [0.0, 0.05, 1.0, 20.0] {
        let [(_, alone)] =
            CvvdpSource { still: false, weight: 1.0 }.aggregates(&amounts(q), geometry(8, 8))[..]
        else {
            panic!("{q}")
        };
        let value = (CvvdpSource { still: false, weight: 1.0 }.pooled(0).unwrap().of_pair)(q);
        assert!((alone - value).abs() < 1e-6, "{q}: {alone}, not {value}");
    }
    assert_eq!(CvvdpSource { still: false, weight: 1.0 }.aggregates(&[0; 3], geometry(8, 8)), []);
}
