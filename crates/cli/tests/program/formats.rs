// SPDX-License-Identifier: MPL-2.0

//! Conversions, and formats that are rejected.

use std::path::Path;

use crate::common::{Ended, encode, frames, hipvmaf, run};

#[test]
fn depths_that_are_equal_are_not_converted() {
    let folder = tempfile::tempdir().unwrap();
    let [hdr, low] = ["hdr.mp4", "low.mp4"].map(|name| folder.path().join(name));
    let pq = "format=I420_10LE,colorimetry=bt2100-pq";
    encode(&hdr, pq, 500);
    encode(&low, pq, 20);
    let [program, element] = ["program.json", "element.json"].map(|name| folder.path().join(name));
    let mut score = hipvmaf("score");
    score.args([&hdr, &low]).arg("--results").arg(&program);
    let ended = Ended::of(score);
    assert!(ended.status.success() && !ended.stderr.contains("converted"), "{}", ended.stderr);
    let input = |path: &Path, pad: &str| {
        let path = path.display();
        format!("filesrc location={path} ! qtdemux ! avdec_h264 ! video/x-raw,{pq} ! queue ! score.{pad} ")
    };
    run(&format!(
        "{}{} hipvmaf name=score results-filename={} ! fakesink",
        input(&hdr, "ref_sink"),
        input(&low, "dist_sink"),
        element.display()
    ));
    assert_eq!(frames(&program).len(), 400);
    assert_eq!(frames(&program), frames(&element));
}

#[test]
fn a_conversion_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let film = folder.path().join("film.mov");
    run(&format!(
        "videotestsrc num-buffers=10 ! video/x-raw,format=RGB,width=160,height=90,framerate=25/1 ! pngenc \
         ! qtmux ! filesink location={}",
        film.display()
    ));
    for program in ["score", "ladder"] {
        let mut command = hipvmaf(program);
        command.args([&film, &film]);
        let ended = Ended::of(command);
        assert!(ended.status.success(), "{}", ended.stderr);
        let finding = "film.mov: its samples are red, green and blue (RGB)";
        let step = "film.mov: converted from RGB to Y444 by BT.601";
        assert_eq!(ended.stderr.matches(finding).count(), 2, "{}", ended.stderr);
        assert_eq!(ended.stderr.matches(step).count(), 2, "{}", ended.stderr);
    }
}

#[test]
fn a_file_without_video_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let sound = folder.path().join("sound.wav");
    run(&format!("audiotestsrc num-buffers=10 ! wavenc ! filesink location={}", sound.display()));
    for program in ["score", "ladder"] {
        let mut command = hipvmaf(program);
        command.args([&sound, &sound]);
        let ended = Ended::of(command);
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stdout);
        assert!(ended.stderr.contains("sound.wav has no video"), "{}", ended.stderr);
    }
}
