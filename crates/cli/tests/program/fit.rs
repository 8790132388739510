// SPDX-License-Identifier: MPL-2.0

//! Mismatches are reported before scoring.

use std::path::Path;

use serde_json::Value;

use crate::common::{Ended, encode, hipvmaf, run};

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

/// Encodes a moving picture as 50 fields per second, well and badly; and the pictures at the times of all fields, and
/// of the first field of each frame.
fn fields(folder: &Path) -> [String; 4] {
    let [original, encoded, all, half] =
        ["original.mkv", "encoded.mkv", "all.mkv", "half.mkv"].map(|name| path(folder, name));
    let film = |rate: u32, then: &str, bitrate: u32, name: &str| {
        run(&format!(
            "videotestsrc num-buffers={} horizontal-speed={} ! video/x-raw,format=I420,width=160,height=96,framerate={rate}/1 \
             ! {then} bitrate={bitrate} ! h264parse ! matroskamux ! filesink location={name}",
            rate * 8 / 5,
            200 / rate
        ));
    };
    let interlaced = "interlace field-pattern=1:1 ! x264enc interlaced=true";
    film(50, interlaced, 3000, &original);
    film(50, interlaced, 60, &encoded);
    film(50, "x264enc", 3000, &all);
    film(25, "x264enc", 3000, &half);
    [original, encoded, all, half]
}

fn score(args: &[&str]) -> Ended {
    let mut command = hipvmaf("score");
    command.args(args);
    Ended::of(command)
}

/// Returns the numbers of frames and their mean scores.
fn scored(args: &[&str]) -> (Ended, Vec<(u64, f64)>) {
    let ended = score(&[args, &["--json"]].concat());
    assert!(ended.status.success(), "{}", ended.stderr);
    let printed: Value = serde_json::from_str(&ended.stdout).unwrap();
    let figures = printed["renditions"].as_array().unwrap().iter().map(|rendition| {
        let mean = rendition["pooled"]["vmaf_v0.6.1"]["mean"].as_f64().unwrap();
        (rendition["frames"].as_u64().unwrap(), mean)
    });
    let figures = figures.collect();
    (ended, figures)
}

#[test]
fn interlaced_video_is_deinterlaced_to_the_rate_of_the_other_side() {
    let folder = tempfile::tempdir().unwrap();
    let [original, encoded, all, half] = fields(folder.path());
    let (ended, figures) = scored(&[&original, &original, &encoded]);
    assert_eq!(ended.stderr.matches("each field becomes a frame").count(), 3, "{}", ended.stderr);
    assert!(figures[0].0 >= 78 && figures[0].1 > 97.0, "{figures:?}");
    assert!(figures[1].0 >= 78 && figures[1].1 < figures[0].1, "{figures:?}");

    // The provenance contains the steps.
    let results = path(folder.path(), "results.json");
    let (ended, _) = scored(&[&half, &original, "--results", &results, "--offset", "0.004"]);
    let results: Value = serde_json::from_slice(&std::fs::read(results).unwrap()).unwrap();
    let printed: Value = serde_json::from_str(&ended.stdout).unwrap();
    for extra in [&results["provenance"]["extra"], &printed["provenance"]["extra"]] {
        assert_eq!(extra["findings"][0], format!("{original}: it is interlaced"));
        let steps = extra["steps"].as_array().unwrap();
        assert!(steps[0].as_str().unwrap().contains("deinterlaced by GStreamer"), "{steps:?}");
        assert_eq!(steps[1], format!("{original}: taken to be late by 0.004 s"));
    }
    assert_eq!(printed["steps"][0]["kind"], "deinterlace");

    // If frames of other times were compared, the moving picture would score close to zero.
    let (_, figures) = scored(&[&original, &all]);
    assert!(figures[0].0 >= 78 && figures[0].1 > 60.0, "{figures:?}");
    let (ended, figures) = scored(&[&half, &original]);
    assert!(ended.stderr.contains("the first field of each frame"), "{}", ended.stderr);
    assert!(figures[0].0 >= 38 && figures[0].1 > 60.0, "{figures:?}");
}

#[test]
fn videos_of_another_rate_are_brought_to_that_of_the_original() {
    let folder = tempfile::tempdir().unwrap();
    let [_, _, all, half] = fields(folder.path());
    let (_, figures) = scored(&[&all, &half]);
    assert_eq!(figures[0].0, 40);
    // Every second frame is a repetition.
    let (ended, mapped) = scored(&[&all, &half, "--rate"]);
    assert!(mapped[0].0 >= 78 && mapped[0].1 < figures[0].1, "{mapped:?} {figures:?}");
    assert!(
        ended.stderr.contains(
            "half.mkv: 40 frames of the original have no partner in it and are compared with the one before"
        ),
        "{}",
        ended.stderr
    );
    let (_, mapped) = scored(&[&half, &all, "--rate"]);
    assert!(mapped[0].0 >= 39 && mapped[0].1 > 90.0, "{mapped:?}");
    let (ended, _) = scored(&[&half, &half, "--rate"]);
    assert!(!ended.stderr.contains("videorate"), "{}", ended.stderr);
}

#[test]
fn an_offset_is_found_before_scoring() {
    let folder = tempfile::tempdir().unwrap();
    let [film, late] = ["film", "late"].map(|name| path(folder.path(), name));
    [&film, &late].iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    run(&format!(
        "videotestsrc num-buffers=100 pattern=snow ! video/x-raw,format=GRAY8,width=8,height=6,framerate=25/1 \
         ! videoscale method=catrom ! video/x-raw,width=160,height=96 ! pngenc ! multifilesink location={late}/%03d.png"
    ));
    for frame in 3..100 {
        std::fs::copy(format!("{late}/{frame:03}.png"), format!("{film}/{frame:03}.png")).unwrap();
    }
    let [film, late] = [film, late].map(|folder| folder + "/%03d.png");
    let (ended, figures) = scored(&[&film, &late]);
    assert!(figures[0].0 == 97 && figures[0].1 > 99.9, "{figures:?}");
    assert!(
        ended.stderr.contains("it is late by 0.120 s; 3 frames of it have no partner"),
        "{}",
        ended.stderr
    );
    let (ended, figures) = scored(&[&late, &film]);
    assert!(figures[0].0 == 97 && figures[0].1 > 99.9, "{figures:?}");
    assert!(ended.stderr.contains("it is early by 0.120 s; 3 frames of the original"), "{}", ended.stderr);
    assert_eq!(score(&[&film, &late, "--strict"]).status.code(), Some(3));
    assert!(!score(&[&film, &late, "--offset", "0.12"]).stderr.contains("its frames are paired"));
    assert!(!score(&[&film, &film]).stderr.contains("it is"));
    let (ended, figures) = scored(&[&film, &late, "--align", "auto"]);
    assert!(figures[0].0 == 97 && figures[0].1 > 99.9, "{figures:?}");
    let printed: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(printed["renditions"][0]["offset"], 0.12);
}

#[test]
fn strict_refuses_what_would_be_mended() {
    let folder = tempfile::tempdir().unwrap();
    let [original, encoded, all, half] = fields(folder.path());
    for (videos, what) in [([&original, &encoded], "interlaced"), ([&all, &half], "frames per second")] {
        let ended = score(&[videos[0], videos[1], "--strict"]);
        assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
        assert!(ended.stderr.contains(what) && !ended.stdout.contains("scored"), "{}", ended.stderr);
    }
    assert_eq!(score(&[&all, &all, "--strict"]).status.code(), Some(0));
}

#[test]
fn hdr_is_not_compared_with_sdr_unless_that_is_meant() {
    let folder = tempfile::tempdir().unwrap();
    let [hdr, sdr] = ["hdr.mp4", "sdr.mp4"].map(|name| path(folder.path(), name));
    encode(hdr.as_ref(), "format=I420_10LE,colorimetry=bt2100-pq", 500);
    encode(sdr.as_ref(), "format=I420_10LE,colorimetry=bt709", 500);
    let ended = score(&[&hdr, &sdr]);
    assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("sdr.mp4 is SDR") && ended.stderr.contains("--colorimetry ignore"));
    let ended = score(&[&hdr, &sdr, "--colorimetry", "ignore"]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("it is SDR (bt709), and the original HDR (bt2100-pq)"), "{}", ended.stderr);
}
