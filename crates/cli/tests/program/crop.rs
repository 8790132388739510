// SPDX-License-Identifier: MPL-2.0

//! Cropped areas are not scored, and nothing else is missing.

use std::path::Path;

use serde_json::Value;

use crate::common::{Ended, frames, hipvmaf, run};

/// A picture without bars.
const PICTURE: &str = "videotestsrc num-buffers=30 pattern=smpte75 horizontal-speed=3 \
                       ! video/x-raw,format=I420,width=160,height=80,framerate=25/1";
/// A bad encode of it.
const CODED: &str = "x264enc bitrate=20 speed-preset=ultrafast ! avdec_h264";
const BARS: &str = "videobox top=-20 bottom=-20 fill=black";

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

/// Stores the output of a pipeline losslessly.
fn keep(folder: &Path, name: &str, pipeline: &str) -> String {
    let path = path(folder, name);
    run(&format!("{pipeline} ! avenc_ffv1 ! matroskamux ! filesink location={path}"));
    path
}

fn score(args: &[&str]) -> Ended {
    let mut command = hipvmaf("score");
    command.args(args);
    Ended::of(command)
}

/// Returns the scores of all frames, and the printed JSON.
#[track_caller]
fn scored(folder: &Path, args: &[&str]) -> (Vec<Value>, Value) {
    let results = path(folder, "results.json");
    let ended = score(&[args, &["--results", &results, "--json"]].concat());
    assert!(ended.status.success(), "{}", ended.stderr);
    let metrics = frames(results.as_ref()).iter().map(|frame| frame["metrics"].clone()).collect();
    (metrics, serde_json::from_str(&ended.stdout).unwrap())
}

#[test]
fn bars_are_cut_off_on_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let picture = keep(folder, "picture.mkv", PICTURE);
    let coded = keep(folder, "coded.mkv", &format!("{PICTURE} ! {CODED}"));
    let film = keep(folder, "film.mkv", &format!("{PICTURE} ! {BARS}"));
    let boxed = keep(folder, "boxed.mkv", &format!("filesrc location={coded} ! decodebin ! {BARS}"));
    let (expected, _) = scored(folder, &[&picture, &coded]);
    assert_eq!(expected.len(), 30);

    // With bars on both sides, and on one side, which makes the shapes differ.
    for (reference, distorted) in [(&film, &boxed), (&film, &coded), (&picture, &boxed)] {
        let (scores, printed) = scored(folder, &[reference, distorted, "--crop", "auto"]);
        assert!(scores == expected, "{reference} {distorted}");
        let kinds = |of: &str| {
            let all = printed[of].as_array().unwrap().iter();
            let kinds = all.map(|of| of["kind"].as_str().unwrap().to_owned());
            kinds.filter(|kind| kind != "pairing").collect::<Vec<_>>()
        };
        let cut = [reference, distorted].iter().filter(|video| [&&film, &&boxed].contains(video)).count();
        assert_eq!(
            (kinds("findings"), kinds("steps")),
            (vec!["bars".to_owned(); cut], vec!["crop".to_owned(); cut])
        );
        let extra = printed["provenance"]["extra"]["steps"][0].as_str().unwrap();
        assert!(extra.ends_with("cropped by 0 left, 0 right, 20 at the top, 20 at the bottom"), "{extra}");
    }
    let (scores, _) = scored(folder, &[&film, &boxed, "--crop", "0:0:20:20"]);
    assert!(scores == expected);
    assert!(scored(folder, &[&film, &boxed]).0 != expected, "bars count unless they are cut off");

    // Together with a video that allows only the common crop.
    let logo = keep(
        folder,
        "logo.mkv",
        &format!(
            "{PICTURE} ! {BARS} ! all. videotestsrc num-buffers=30 pattern=white \
             ! video/x-raw,width=20,height=6,framerate=25/1 ! all. \
             compositor name=all sink_1::xpos=10 sink_1::ypos=6 ! video/x-raw,format=I420,colorimetry=bt601"
        ),
    );
    let (_, printed) = scored(folder, &[&film, &boxed, &logo, "--crop", "auto"]);
    let step = |i: usize| printed["steps"][i]["text"].as_str().unwrap().to_owned();
    assert!((0..3).all(|i| step(i).ends_with(", 6 at the top, 20 at the bottom")), "{}", printed["steps"]);

    assert_eq!(score(&[&film, &boxed, "--crop", "auto", "--strict"]).status.code(), Some(3));
    for (margins, what) in
        [("0:0:60:60", "leaves nothing"), ("0:0:1:1", "even"), ("all", "LEFT:RIGHT:TOP:BOTTOM")]
    {
        let ended = score(&[&film, &boxed, "--crop", margins]);
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(what), "{}", ended.stderr);
    }
}

#[test]
fn encodings_of_another_size_are_cut_at_the_same_place() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let film = keep(folder, "film.mkv", &format!("{PICTURE} ! {BARS}"));
    // Half the size has bars of 10 lines, three quarters has 15, which is odd.
    for (name, size, cut, by) in [
        ("half.mkv", "width=80,height=60", "10 at the top, 10 at the bottom", "by hipvmaf"),
        ("odd.mkv", "width=120,height=90", "20 at the top, 20 at the bottom", "GStreamer's videoscale"),
    ] {
        let small = keep(
            folder,
            name,
            &format!("{PICTURE} ! {BARS} ! videoscale method=lanczos ! video/x-raw,{size}"),
        );
        let (scores, printed) = scored(folder, &[&film, &small, "--crop", "auto"]);
        assert_eq!(scores.len(), 30);
        let steps = printed["steps"].to_string();
        assert!(steps.contains(cut) && steps.contains(by), "{steps}");
        let mean = printed["renditions"][0]["pooled"]["vmaf_v0.6.1"]["mean"].as_f64().unwrap();
        assert!(mean > 60.0, "the pictures lie on one another: {mean}");
    }
    // An encode of the original is made from the cropped original.
    let (_, printed) = scored(folder, &[&film, "--x264", "80x40:500", "--crop", "auto"]);
    assert!(printed["steps"].to_string().contains("scaled from 80x40 to 160x80"), "{}", printed["steps"]);
}

#[test]
fn a_film_without_a_picture_is_not_cropped() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let black = keep(folder, "black.mkv", &PICTURE.replace("smpte75", "black"));
    let (scores, printed) = scored(folder, &[&black, &black, "--crop", "auto"]);
    assert_eq!((scores.len(), printed["steps"].as_array().map(Vec::len)), (30, Some(1)));
    assert_eq!(printed["steps"][0]["kind"], "pairing");
    assert!(printed["findings"][0]["text"].as_str().unwrap().contains("too dark"));
}
