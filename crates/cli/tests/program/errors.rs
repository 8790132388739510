// SPDX-License-Identifier: MPL-2.0

//! Error texts and exit codes.

use std::fs;

use crate::common::{Ended, encode, hipvmaf};

#[test]
fn exit_codes_tell_failures_from_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (film, text) = (path("film.mp4"), path("text.mp4"));
    encode(film.as_ref(), "format=I420", 300);
    fs::write(&text, "no video at all\n".repeat(100)).unwrap();
    let nowhere = path("nowhere/results.json");
    let wrong: &[(&[&str], i32, &str)] = &[
        (&[&film, &path("missing.mp4")], 1, "missing.mp4: "),
        (&[&path("missing.mp4"), &film], 1, "missing.mp4: "),
        (&[&film, &text], 1, "text.mp4"),
        (&[&film, &film, "--results", &nowhere], 1, "cannot write the results file"),
        (&[&film, &film, "--report", &nowhere], 1, "cannot write the report"),
        (&[&film, &film, "--report", &path("")], 1, "it is a folder"),
        (&[&film, &film, "--results", "results.txt"], 2, ".json, .csv or .xml"),
        (&[&film, &film, "--model", "vmaf_v9"], 2, "vmaf_v9"),
        (&[&film, &film, "--set", "colour=red"], 2, "no property colour"),
        (&[&film, &film, "--set", "subsample=all"], 2, "all is not a value for subsample"),
        (&[&film, &film, "--set", "subsample=0"], 2, "0 is not a value for subsample"),
        (&[&film, &film, "--set", "alarm-low=1000"], 2, "1000 is not a value for alarm-low"),
        (&[&film, &film, "--from", "20s"], 2, "after the end"),
        (&[&film, &film, "--from", "9", "--to", "9"], 2, "ends before it begins"),
        (&[&film], 2, "Usage"),
        (&[], 2, "Usage"),
    ];
    for (args, code, what) in wrong {
        let mut command = hipvmaf("score");
        command.args(*args);
        let ended = Ended::of(command);
        assert_eq!(ended.status.code(), Some(*code), "{args:?} {}", ended.stderr);
        assert!(ended.stderr.contains(what), "{args:?} {}", ended.stderr);
        assert!(!ended.stdout.contains("scored"), "{args:?} {}", ended.stdout);
    }
}

#[test]
fn sides_that_share_no_time_are_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let film = folder.path().join("film.mp4");
    encode(&film, "format=I420", 300);
    let mut command = hipvmaf("score");
    command.args([&film, &film]).args(["--offset", "-1000"]);
    let ended = Ended::of(command);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("--pair number"), "{}", ended.stderr);
}
