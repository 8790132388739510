// SPDX-License-Identifier: MPL-2.0

//! Outputs never destroy other files.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::thread;

use serde_json::Value;

use crate::common::{Ended, hipvmaf, run};

/// Writes a film of four frames.
fn film(path: &Path) {
    run(&format!(
        "videotestsrc num-buffers=4 pattern=ball ! video/x-raw,format=I420,width=64,height=48,framerate=25/1 \
         ! matroskamux ! filesink location={}",
        path.display()
    ));
}

fn score(folder: &Path, more: &[&str]) -> Ended {
    let mut program = hipvmaf("score");
    program.current_dir(folder).args(["film.mkv", "film.mkv", "--backend", "cpu"]).args(more);
    Ended::of(program)
}

#[test]
fn no_input_and_no_other_output_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    film(&folder.join("film.mkv"));
    fs::write(folder.join("model.json"), include_str!("../../../../models/vmaf_v0.6.1.json")).unwrap();
    fs::hard_link(folder.join("film.mkv"), folder.join("hard.html")).unwrap();
    symlink("film.mkv", folder.join("soft.html")).unwrap();
    let before = fs::read(folder.join("film.mkv")).unwrap();
    for outputs in [
        ["--report", "film.mkv"].as_slice(),
        &["--report", "./film.mkv"],
        &["--report", "soft.html"],
        &["--report", "hard.html"],
        &["--model", "model.json", "--results", "model.json"],
        &["--results", "new.json", "--report", "./new.json"],
        &["--results", "new.json", "--report", "new.json"],
    ] {
        let ended = score(folder, outputs);
        assert_eq!(ended.status.code(), Some(2), "{outputs:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("would overwrite"), "{}", ended.stderr);
    }
    assert_eq!(fs::read(folder.join("film.mkv")).unwrap(), before);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 4, "something was written");
}

#[test]
fn devices_pipes_and_links_are_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    film(&folder.join("film.mkv"));
    symlink("page", folder.join("report.html")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.join("pipe.json")).status().unwrap().success());
    // With another writer, the pipe has its reader before the program looks, and does not end before that.
    let writer = fs::File::options().read(true).write(true).open(folder.join("pipe.json")).unwrap();
    let pipe = fs::File::open(folder.join("pipe.json")).unwrap();
    let reader = thread::spawn(move || std::io::read_to_string(pipe).unwrap());
    let ended = score(folder, &["--results", "pipe.json", "--report", "report.html", "--json"]);
    assert!(ended.status.success(), "{}", ended.stderr);
    drop(writer);
    let results: Value = serde_json::from_str(&reader.join().unwrap()).unwrap();
    assert_eq!(results["frames"].as_array().unwrap().len(), 4);
    assert!(fs::metadata(folder.join("pipe.json")).unwrap().file_type().is_fifo());
    assert!(folder.join("report.html").is_symlink());
    assert!(fs::read_to_string(folder.join("page")).unwrap().contains("<html"));
    symlink("/dev/null", folder.join("null.html")).unwrap();
    let ended = score(folder, &["--report", "null.html"]);
    assert!(ended.status.success() && folder.join("null.html").is_symlink(), "{}", ended.stderr);
}

/// Known before scoring if possible; output that the reader does not take is not lost silently.
#[test]
fn pipes_without_a_reader_and_full_disks_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    film(&folder.join("film.mkv"));
    assert!(Command::new("mkfifo").arg(folder.join("pipe.json")).status().unwrap().success());
    symlink("/dev/full", folder.join("full.json")).unwrap();
    for (option, path, why) in [
        ("--results", "pipe.json", "nothing reads from the pipe"),
        ("--report", "pipe.json", "nothing reads from the pipe"),
        ("--results", "full.json", "No space left"),
        ("--report", "full.json", "No space left"),
        ("--report", ".", "it is a folder"),
    ] {
        let ended = score(folder, &[option, path]);
        assert_eq!(ended.status.code(), Some(1), "{option} {path}: {}", ended.stderr);
        assert!(ended.stderr.contains(why) && ended.stderr.contains(path), "{}", ended.stderr);
    }
}

/// Requested features appear in the table and the report, too.
#[test]
fn features_are_in_tables_json_and_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    film(&folder.join("film.mkv"));
    let asked = ["--feature", "psnr", "--report", "report.html"];
    let printed: Value =
        serde_json::from_str(&score(folder, &[&asked[..], &["--json"]].concat()).stdout).unwrap();
    let rendition = &printed["renditions"][0];
    assert_eq!(rendition["pooled"]["psnr_y"]["mean"], 60.0);
    assert_eq!(rendition["worst"][0]["scores"]["psnr_cb"], 60.0);
    assert!(score(folder, &asked).stdout.contains(" psnr_y "));
    let page = crate::report::data(&folder.join("report.html"));
    let shown: Vec<_> =
        page["metrics"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
    assert_eq!(shown, ["vmaf_v0.6.1", "psnr_y", "psnr_cb", "psnr_cr"]);
    assert_eq!(page["curves"][0]["psnr_y"], serde_json::json!([60.0, 60.0, 60.0, 60.0]));
}
