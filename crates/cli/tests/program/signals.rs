// SPDX-License-Identifier: MPL-2.0

//! Ctrl-C and SIGTERM.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{FRAME, hipvmaf, interrupt, logs_frames, long_film, send};
use crate::report::data;

#[test]
fn score_ends_with_the_scores_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let film = long_film(folder.path());
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let [results, report] =
            ["results.json", "report.html"].map(|name| folder.path().join(signal).join(name));
        fs::create_dir(folder.path().join(signal)).unwrap();
        let mut score = logs_frames(hipvmaf("score"));
        score.args([&film, &film]).arg("--results").arg(&results).arg("--report").arg(&report);
        let ended = interrupt(score, signal, FRAME, 40, true);
        assert_eq!(ended.status.code(), Some(code), "{}", ended.stderr);
        assert!(ended.stderr.contains("interrupted: the scores are those of the first "), "{}", ended.stderr);

        // Its name also shows that it is incomplete.
        let partial = results.with_extension("json.partial");
        let file: Value = serde_json::from_slice(&fs::read(partial).unwrap()).unwrap();
        assert_eq!((file["incomplete"].as_str(), results.exists()), (Some("interrupted"), false));
        let frames = file["frames"].as_array().unwrap().len();
        assert!((39..50_000).contains(&frames), "{frames}");
        assert!(file["pooled_metrics"]["vmaf"]["mean"].is_f64(), "{}", file["pooled_metrics"]);
        assert!(ended.stdout.contains(&format!(": {frames} frames scored")), "{}", ended.stdout);
        let page = data(&report);
        assert_eq!(page["frames"].as_array().unwrap().len(), frames);
        assert_eq!(
            (&page["interrupted"], page["stills"][0].as_array().is_some_and(Vec::is_empty)),
            (&true.into(), false)
        );
    }
}

#[test]
fn ladder_ends_with_the_scores_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let film = long_film(folder.path());
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut ladder = logs_frames(hipvmaf("ladder"));
        ladder.args([&film, &film]).args(["--x264", "320x180:100"]);
        let ended = interrupt(ladder, signal, FRAME, 40, true);
        assert_eq!(ended.status.code(), Some(code), "{}", ended.stderr);
        assert!(ended.stderr.contains("interrupted: "), "{}", ended.stderr);
        for rendition in ["long.h264", "320x180 100 kbit/s"] {
            let start = format!("{rendition}: ");
            let row = ended.stdout.lines().find_map(|line| line.strip_prefix(&start)).unwrap();
            let frames = row.split_whitespace().next().unwrap();
            assert!((30..50_000).contains(&frames.parse().unwrap()), "{row}");
        }
    }
}

#[test]
fn monitor_ends_with_success() {
    for signal in ["INT", "TERM"] {
        let mut monitor = hipvmaf("monitor");
        monitor.args(["test:160x90@25", "low=x264:50", "--plain", "--latency", "--listen", "127.0.0.1:0"]);
        let ended = interrupt(monitor, signal, "VMAF", 1, false);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        assert!(ended.stdout.contains("ms from next frame to score"), "{}", ended.stdout);
    }
}

#[test]
fn read_meta_ends_with_the_scores_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let film = long_film(folder.path());
    let plugin = std::env::current_exe().unwrap().parent().unwrap().join("libgsthipvmaf.so");
    fs::create_dir(folder.path().join("plugins")).unwrap();
    fs::copy(&plugin, folder.path().join("plugins/libgsthipvmaf.so")).unwrap();
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        // The distribution's Python has PyGObject.
        let mut read_meta = Command::new("/usr/bin/python3");
        read_meta
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/read_meta.py"))
            .args([&film, &film]);
        read_meta.env("GST_PLUGIN_PATH", folder.path().join("plugins"));
        read_meta.env("GST_REGISTRY", folder.path().join("registry"));
        let ended = interrupt(read_meta, signal, "message", 40, false);
        assert_eq!(ended.status.code(), Some(code), "{}", ended.stderr);
        let pooled = ended.stdout.lines().find(|line| line.starts_with("pooled: ")).unwrap();
        let frames = pooled.split(", ").nth(1).unwrap().strip_suffix(" frames").unwrap();
        assert!((40..50_000).contains(&frames.parse().unwrap()), "{pooled}");
    }
}

#[test]
fn a_signal_ends_the_waiting_for_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().join("nothing.mp4");
    assert!(Command::new("mkfifo").arg(&nothing).status().unwrap().success());
    // Opening blocks until there is a writer.
    let mut child = hipvmaf("score").args([&nothing, &nothing]).spawn().unwrap();
    let signals_are_caught = || {
        let threads = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
        threads.flatten().any(|thread| {
            fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name == "signals\n")
        })
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !signals_are_caught() {
        assert!(Instant::now() < deadline, "the program does not look for signals");
        thread::sleep(Duration::from_millis(5));
    }
    send("INT", &child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// Results go to a full pipe, so the first signal does not end the program.
#[test]
fn a_second_signal_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let film = long_film(folder.path());
    let pipe = folder.path().join("results.json");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let mut score = logs_frames(hipvmaf("score"));
    score.args([&film, &film]).args(["--pair", "time", "--backend", "cpu", "--results"]).arg(&pipe);
    let mut child = score.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.by_ref().filter(|line| line.contains(FRAME)).take(300).count(), 300);
    let rest = thread::spawn(move || lines.count());
    send("INT", &child);
    send("TERM", &child);
    assert_eq!(child.wait().unwrap().signal(), Some(signal_hook::consts::SIGTERM));
    rest.join().unwrap();
    drop(reader);
}
