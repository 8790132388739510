// SPDX-License-Identifier: MPL-2.0

//! Ladders: rates, series, scenes, the summary file, presets, and HDR.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Ended, hipvmaf, run};

/// Writes a film of two scenes with one cut, and encodes of it: of two sizes.
fn films(folder: &Path) {
    // One raw file after the other: `concat` waits for encoders that wait for more frames.
    let scenes = [("ball", 24), ("snow", 36)].map(|(pattern, count)| {
        let raw = folder.join(pattern);
        run(&format!(
            "videotestsrc num-buffers={count} pattern={pattern} ! video/x-raw,format=I420,width=320,height=180 \
             ! filesink location={}",
            raw.display()
        ));
        fs::read(raw).unwrap()
    });
    let raw = folder.join("film.i420");
    fs::write(&raw, scenes.concat()).unwrap();
    let encode = |size: &str, encoder: &str, name: &str| {
        format!(
            "film. ! queue max-size-buffers=0 max-size-time=0 max-size-bytes=0 ! videoscale ! video/x-raw,{size} \
             ! {encoder} ! matroskamux ! filesink location={} ",
            folder.join(name).display()
        )
    };
    let (full, half) = ("width=320,height=180", "width=160,height=90");
    let x264 = |kbits: u32| format!("x264enc bitrate={kbits} speed-preset=veryfast key-int-max=25");
    let fast = |kbits: u32| format!("x264enc bitrate={kbits} speed-preset=ultrafast key-int-max=5");
    run(&format!(
        "filesrc location={} ! rawvideoparse format=i420 width=320 height=180 framerate=25/1 ! tee name=film \
         {} {} {} {} {} {} {}",
        raw.display(),
        encode(full, "x264enc bitrate=8000 speed-preset=ultrafast", "film.mkv"),
        encode(half, &x264(150), "a1.mkv"),
        encode(full, &x264(600), "a2.mkv"),
        encode(full, &x264(2500), "a3.mkv"),
        encode(half, &fast(100), "v1.mkv"),
        encode(full, &fast(500), "v2.mkv"),
        encode(full, &fast(2000), "v3.mkv"),
    ));
}

#[track_caller]
fn score(folder: &Path, args: &[&str]) -> Ended {
    let mut program = hipvmaf("score");
    program.current_dir(folder).args(args);
    Ended::of(program)
}

#[track_caller]
fn summary(folder: &Path, args: &[&str]) -> Value {
    let ended = score(folder, &[args, &["--json"]].concat());
    assert!(ended.status.success(), "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn ladders_have_rates_series_and_scenes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    films(folder);
    let encodes = [
        "film.mkv",
        "avc=a1.mkv",
        "avc=a2.mkv",
        "best=a3.mkv",
        "fast=v1.mkv",
        "fast=v2.mkv",
        "fast=v3.mkv",
        "--x264",
        "300",
    ];
    let outputs = ["--summary", "all.csv", "--report", "report.html", "--feature", "xpsnr"];
    let printed = summary(folder, &[&encodes[..], &outputs].concat());
    let renditions = printed["renditions"].as_array().unwrap();
    let text = |name: &str| renditions.iter().map(|of| of[name].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(
        text("label"),
        ["avc a1.mkv", "avc a2.mkv", "best", "fast v1.mkv", "fast v2.mkv", "fast v3.mkv", "300 kbit/s"]
    );
    assert_eq!(text("series"), ["avc", "avc", "H.264", "fast", "fast", "fast", "x264"]);
    for of in renditions {
        let figure = |name: &str| of["coded"][name].as_f64().unwrap();
        assert!((figure("seconds") - 2.4).abs() < 0.1, "{}", of["coded"]);
        assert!((figure("kbit_s") - figure("bytes") * 8.0 / 1000.0 / figure("seconds")).abs() < 1e-6);
    }
    // The stream has all of the file but the container.
    let bytes = renditions[2]["coded"]["bytes"].as_u64().unwrap();
    let file = fs::metadata(folder.join("a3.mkv")).unwrap().len();
    assert!(bytes < file && bytes * 100 > file * 95, "{bytes} of {file}");
    // One cut, between the two patterns.
    for of in renditions {
        let scenes = of["scenes"].as_array().unwrap();
        let frames: Vec<_> = scenes.iter().map(|scene| scene["frames"].clone()).collect();
        assert_eq!(Value::from(frames), serde_json::json!([[0, 23], [24, 59]]), "{of}");
        let means: Vec<_> =
            scenes.iter().map(|scene| scene["pooled"]["vmaf_v0.6.1"]["mean"].as_f64().unwrap()).collect();
        let whole = of["pooled"]["vmaf_v0.6.1"]["mean"].as_f64().unwrap();
        assert!(((means[0] * 24.0 + means[1] * 36.0) / 60.0 - whole).abs() < 1e-9, "{means:?} {whole}");
    }
    let ladder = &printed["ladders"][0];
    assert_eq!(ladder["metric"], "vmaf_v0.6.1");
    assert_eq!(ladder["series"][0]["name"], "avc");
    assert_eq!(ladder["series"][0]["target"]["quality"], 93.0);
    assert_eq!(printed["ladders"].as_array().unwrap().len(), 7, "one for each metric");

    let mut csv = csv::Reader::from_path(folder.join("all.csv")).unwrap();
    let names = csv.headers().unwrap().clone();
    let column =
        |name: &str| names.iter().position(|of| of == name).unwrap_or_else(|| panic!("{name} in {names:?}"));
    let rows: Vec<_> = csv.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 7);
    for (row, of) in rows.iter().zip(renditions) {
        assert_eq!(&row[column("encoding")], of["label"].as_str().unwrap());
        let [written, mean] = [
            row[column("vmaf_v0.6.1_mean")].to_owned(),
            format!("{:.6}", of["pooled"]["vmaf_v0.6.1"]["mean"].as_f64().unwrap()),
        ];
        assert_eq!(written, mean);
        assert_eq!(row[column("bytes")], of["coded"]["bytes"].to_string());
        assert!(!row[column("xpsnr_y_min")].is_empty());
    }
    let page = fs::metadata(folder.join("report.html")).unwrap().len();
    assert!(page < 2_000_000, "{page} bytes");
    let page = crate::report::data(&folder.join("report.html"));
    assert_eq!(page["ladders"], printed["ladders"]);
    assert!(page["stills"].as_array().unwrap().iter().all(|stills| stills.as_array().unwrap().len() == 2));

    let shown = score(
        folder,
        &["film.mkv", "a=a1.mkv", "a=a2.mkv", "a=a3.mkv", "v=v1.mkv", "v=v2.mkv", "v=v3.mkv", "--worst", "0"],
    );
    for expected in ["Rates by vmaf_v0.6.1", "BD-rate to a", "kbit/s at 93", " kbit/s\n"] {
        assert!(shown.stdout.contains(expected), "{expected}: {}", shown.stdout);
    }
    let one = score(folder, &["film.mkv", "a2.mkv", "--from", "10", "--frames", "30"]);
    assert!(one.stdout.contains("Scenes\n") && one.stdout.contains(" 14-29 "), "{}", one.stdout);
}

#[test]
fn files_with_an_equals_sign_are_files() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    films(folder);
    fs::copy(folder.join("a1.mkv"), folder.join("crf=30.mkv")).unwrap();
    let printed =
        summary(folder, &["film.mkv", "crf=30.mkv", "low=crf=30.mkv", "--frames", "2", "--pair", "time"]);
    let labels: Vec<_> =
        printed["renditions"].as_array().unwrap().iter().map(|of| of["label"].clone()).collect();
    assert_eq!(labels, ["crf=30.mkv", "low"]);
    // Of the part.
    assert!(
        printed["renditions"][0]["coded"]["seconds"].as_f64().unwrap() < 0.1,
        "{}",
        printed["renditions"][0]["coded"]
    );
}

#[test]
fn hdr_is_advised_to_be_scored_by_colorvideovdp() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for transfer in ["pq", "hlg"] {
        run(&format!(
            "videotestsrc num-buffers=6 pattern=ball ! video/x-raw,format=I420_10LE,colorimetry=bt2100-{transfer},width=192,height=108,framerate=25/1 \
             ! x264enc bitrate=200 speed-preset=ultrafast ! matroskamux ! filesink location={}/{transfer}.mkv",
            folder.display()
        ));
        let film = format!("{transfer}.mkv");
        let advised = score(folder, &[&film, &film]);
        let option = format!("cvvdp=display=standard_hdr_{transfer}");
        assert_eq!(advised.stderr.matches(&format!("--feature {option} ")).count(), 1, "{}", advised.stderr);
        assert!(advised.stderr.contains("VMAF's models are trained on SDR"), "{}", advised.stderr);
        assert!(!advised.stderr.contains("features="), "{}", advised.stderr);
        let followed = score(folder, &[&film, &film, "--feature", &option]);
        assert!(
            !followed.stderr.contains("--feature") && followed.stdout.contains(" 10.000 JOD "),
            "{}",
            followed.stderr
        );
    }
}

#[test]
fn mistakes_get_the_right_advice() {
    for (args, expected) in [
        (&["--plot", "p.png"][..], "unexpected argument '--plot'"),
        (&["--report", "p.png"], "HTML"),
        (&["--summary", "all.txt"], ".csv"),
        (&["--worst", "-1"], "invalid value '-1' for '--worst"),
        (&["--frames", "-5"], "invalid value '-5' for '--frames"),
        (&["--from", "-3"], "invalid value '-3' for '--from"),
        (&["--min-coverage", "-0.5"], "not a share from 0 to 1"),
        (&["--model", "none"], "--feature"),
        (&["--preset", "tv"], "possible values: hd, 4k, phone, all"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        run(&format!(
            "videotestsrc num-buffers=2 ! video/x-raw,format=I420,width=64,height=48,framerate=25/1 ! matroskamux ! filesink location={}/film.mkv",
            folder.path().display()
        ));
        let ended = score(folder.path(), &[&["film.mkv", "film.mkv"], args].concat());
        assert_eq!(ended.status.code(), Some(2), "{args:?} {}", ended.stderr);
        assert!(
            ended.stderr.contains(expected) && !ended.stderr.contains("-- "),
            "{args:?} {}",
            ended.stderr
        );
    }
}

#[test]
fn presets_are_models_and_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    films(folder);
    let names = |preset: &str| {
        let printed = summary(folder, &["film.mkv", "a1.mkv", "--preset", preset, "--frames", "3"]);
        let pooled = printed["renditions"][0]["pooled"].as_object().unwrap().clone();
        pooled.keys().cloned().collect::<Vec<_>>()
    };
    let has = |found: &[String], name: &str| found.iter().any(|of| of == name);
    let hd = names("hd");
    for name in ["vmaf_v0.6.1", "ssimulacra2", "xpsnr_y", "cvvdp_display_standard_fhd"] {
        assert!(has(&hd, name), "{hd:?}");
    }
    assert!(has(&names("4k"), "vmaf_4k_v0.6.1"));
    let all = names("all");
    for name in ["psnr_y", "float_ms_ssim", "psnr_hvs", "ciede2000", "cambi", "cvvdp"] {
        assert!(has(&all, name), "{all:?}");
    }
}
