// SPDX-License-Identifier: MPL-2.0

//! Pairing by time codes and by the clocks of reference timestamps.

use gst::ClockTime;
use gst_video::{ValidVideoTimeCode, VideoTimeCodeFlags, VideoTimeCodeMeta};

use crate::common::{FRAME, Input, score, sides};
use crate::process::{Function, functions};

/// Tests in this process.
pub const TESTS: &[Function] = functions![
    time_codes_of_every_rate_go_on_over_midnight,
    reference_timestamps_are_those_of_a_clock_that_both_sides_have,
    reference_timestamps_of_other_clocks_pair_nothing,
    results_have_the_time_codes_of_the_reference
];

const FRAMES: usize = 10;
/// The first frame of a day, with five before it.
const MIDNIGHT: usize = 5;

/// Returns frames with time codes at this rate, with the last frames before midnight and the first after it.
fn with_time_codes(input: &Input, fps: (i32, i32), flags: VideoTimeCodeFlags) -> Input {
    let fps = gst::Fraction::new(fps.0, fps.1);
    let last = (fps.numer() as u32).div_ceil(fps.denom() as u32) - MIDNIGHT as u32;
    input.with_caps(|caps| caps.set("framerate", fps)).changed(|t, buffer| {
        let mut code = ValidVideoTimeCode::new(fps, None, flags, 23, 59, 59, last, 0).unwrap();
        code.add_frames(t as i64);
        VideoTimeCodeMeta::add(buffer, &code);
    })
}

/// Rates slightly below the nominal rate of their time codes, whose day is longer than 24 hours.
fn time_codes_of_every_rate_go_on_over_midnight() {
    let both = sides(FRAMES);
    let (none, drop) = (VideoTimeCodeFlags::empty(), VideoTimeCodeFlags::DROP_FRAME);
    let rates = [
        ((25, 1), none),
        ((30, 1), none),
        ((24000, 1001), none),
        ((30000, 1001), none),
        ((30000, 1001), drop),
        ((60000, 1001), none),
        ((60000, 1001), drop),
    ];
    for (fps, flags) in rates {
        let coded = |input: &Input| with_time_codes(input, fps, flags);
        for lost in [MIDNIGHT - 1, MIDNIGHT] {
            let without = |input: &Input| input.keep(|t| t != lost);
            let run = |reference: &Input, distorted: &Input| {
                let report = score(&[("pairing", "timecode")], reference, distorted).unwrap();
                (
                    report.scores(),
                    report.pooled[0].counts.unpaired,
                    report.stats.unwrap().get::<u64>("dist-unmatched").unwrap(),
                )
            };
            let mut whole = score(&[], &both.0, &both.1).unwrap().scores();
            whole.remove(lost);
            let found = run(&coded(&both.0), &without(&coded(&both.1)));
            assert_eq!(found, (whole, 1, 0), "{fps:?} {flags:?}: no distorted frame {lost}");
            let unbroken = score(&[], &without(&both.0), &without(&both.1)).unwrap().scores();
            let found = run(&without(&coded(&both.0)), &coded(&both.1));
            assert_eq!(found, (unbroken, 0, 1), "{fps:?} {flags:?}: no reference frame {lost}");
        }
    }
}

/// Adds a reference timestamp of each of these clocks, in this order. Each clock has a time of its own.
fn stamped(input: &Input, clocks: &[&str]) -> Input {
    input.changed(|t, buffer| {
        for clock in clocks {
            let hours = if *clock == "timestamp/x-ntp" { 1 } else { 5 };
            let time = ClockTime::from_seconds(hours * 3600) + FRAME * t as u64;
            gst::ReferenceTimestampMeta::add(buffer, &gst::Caps::new_empty_simple(*clock), time, None);
        }
    })
}

const NTP: &str = "timestamp/x-ntp";
const UNIX: &str = "timestamp/x-unix";

fn reference_timestamps_are_those_of_a_clock_that_both_sides_have() {
    let both = sides(FRAMES);
    let expected = score(&[], &both.0, &both.1).unwrap().scores();
    for (reference, distorted) in [
        (&[NTP, UNIX][..], &[UNIX, NTP][..]),
        (&[NTP, UNIX], &[UNIX]),
        (&[UNIX], &[NTP, UNIX]),
        (&[NTP], &[NTP]),
    ] {
        let sides = (stamped(&both.0, reference), stamped(&both.1, distorted));
        let report = score(&[("pairing", "reference-timestamp")], &sides.0, &sides.1).unwrap();
        assert_eq!(report.scores(), expected, "{reference:?} {distorted:?}");
    }
}

/// Equal times of different clocks are no pair.
fn reference_timestamps_of_other_clocks_pair_nothing() {
    let both = sides(FRAMES);
    let time = |input: &Input, clock: &str| {
        let clock = gst::Caps::new_empty_simple(clock);
        input.changed(|t, buffer| {
            gst::ReferenceTimestampMeta::add(buffer, &clock, FRAME * t as u64, None);
        })
    };
    let report =
        score(&[("pairing", "reference-timestamp")], &time(&both.0, NTP), &time(&both.1, UNIX)).unwrap();
    assert_eq!((report.scores(), report.pooled[0].counts.unpaired), (vec![], FRAMES as u64));
}

/// Time codes are written in the usual form: drop-frame codes have a semicolon.
fn results_have_the_time_codes_of_the_reference() {
    let both = sides(FRAMES);
    let drop = VideoTimeCodeFlags::DROP_FRAME;
    let reference = with_time_codes(&both.0, (30000, 1001), drop);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let distorted = both.1.with_caps(|caps| caps.set("framerate", gst::Fraction::new(30000, 1001)));
    score(&[("results-filename", path.to_str().unwrap())], &reference, &distorted).unwrap();
    let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let codes: Vec<_> =
        json["frames"].as_array().unwrap().iter().map(|row| row["time_code"].as_str().unwrap()).collect();
    assert_eq!(codes[MIDNIGHT - 1..=MIDNIGHT], ["23:59:59;29", "00:00:00;00"]);
}
