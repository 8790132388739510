// SPDX-License-Identifier: MPL-2.0

//! The scores equal those of the element, for any range, order and output format.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Ended, encode, frames, hipvmaf, run};

/// Writes a film, and an encode with a quarter of its size.
fn clips(folder: &Path) -> [String; 2] {
    let [film, small] = ["film.mkv", "small.mp4"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    run(&format!(
        "videotestsrc num-buffers=60 pattern=ball ! video/x-raw,format=I420,width=320,height=180,framerate=25/1 \
         ! tee name=film \
         film. ! queue max-size-buffers=0 max-size-time=0 max-size-bytes=0 ! x264enc bitrate=2000 key-int-max=10 \
         ! matroskamux ! filesink location={film} \
         film. ! queue max-size-buffers=0 max-size-time=0 max-size-bytes=0 ! videoscale \
         ! video/x-raw,width=160,height=90 ! x264enc bitrate=60 key-int-max=10 ! mp4mux ! filesink location={small}"
    ));
    [film, small]
}

/// Scores, and returns the printed JSON.
#[track_caller]
fn summary(args: &[&str]) -> Value {
    let mut command = hipvmaf("score");
    command.args(args).arg("--json");
    let ended = Ended::of(command);
    assert!(ended.status.success(), "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn scores_are_those_of_the_element() {
    let folder = tempfile::tempdir().unwrap();
    let [film, small] = clips(folder.path());
    let [ours, element] = ["ours.json", "element.json"].map(|name| folder.path().join(name));
    let printed = summary(&[
        &film,
        &small,
        &film,
        "--results",
        ours.to_str().unwrap(),
        "--feature",
        "psnr",
        "--feature",
        "float_ssim=enable_lcs=true",
        "--model",
        "vmaf_v0.6.1",
        "--model",
        "vmaf_v0.6.1neg",
    ]);
    run(&format!(
        "filesrc location={film} ! decodebin ! queue ! score.ref_sink \
         filesrc location={small} ! decodebin ! queue ! score.dist_sink \
         hipvmaf name=score scale-method=bicubic extra-models=vmaf_v0.6.1neg \
           features=psnr;float_ssim=enable_lcs=true results-filename={} ! fakesink",
        element.display()
    ));
    assert_eq!(frames(&ours).len(), 60);
    assert_eq!(frames(&ours), frames(&element));
    let results: Value = serde_json::from_slice(&fs::read(&element).unwrap()).unwrap();
    let of_small = &printed["renditions"][0];
    assert_eq!((&of_small["label"], &of_small["frames"]), (&"small.mp4".into(), &60.into()));
    for model in ["vmaf_v0.6.1", "vmaf_v0.6.1neg"] {
        for figure in ["min", "max", "mean", "harmonic_mean"] {
            // Files have six decimals.
            let [ours, theirs] = [&of_small["pooled"], &results["pooled_metrics"]]
                .map(|pooled| pooled[model][figure].as_f64().map(|score| format!("{score:.6}")).unwrap());
            assert_eq!(ours, theirs, "{figure}");
        }
    }
    let worst = of_small["worst"].as_array().unwrap();
    assert_eq!(worst.len(), 5);
    assert_eq!(worst[0]["scores"]["vmaf_v0.6.1"], of_small["pooled"]["vmaf_v0.6.1"]["min"]);
    // The other rendition has its own file.
    assert_eq!(frames(&folder.path().join("ours.film.mkv.json")).len(), 60);
}

/// Figures of all frames together are those of the element: JODs have no mean.
#[test]
fn figures_of_all_frames_together_are_no_means() {
    let folder = tempfile::tempdir().unwrap();
    let [film, small] = clips(folder.path());
    let [results, page] =
        ["r.json", "r.html"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    let metrics = ["--feature", "cvvdp", "--feature", "xpsnr", "--feature", "ssimulacra2", "--frames", "20"];
    let printed =
        summary(&[&[&film, &small, "--results", &results, "--report", &page], &metrics[..]].concat());
    let written: Value = serde_json::from_slice(&fs::read(&results).unwrap()).unwrap();
    let of_small = &printed["renditions"][0];
    let together = &written["aggregate_metrics"];
    for (name, value) in of_small["aggregates"].as_object().unwrap() {
        let [ours, theirs] = [value, &together[name]].map(|value| value.as_f64().unwrap());
        assert!((ours - theirs).abs() < 2e-6, "{name}: {ours}, not {theirs}");
    }
    assert!(of_small["aggregates"]["cvvdp"].as_f64().unwrap() < 9.99, "{of_small}");
    assert_eq!(of_small["pooled"]["cvvdp"]["mean"], of_small["aggregates"]["cvvdp"]);
    assert!(of_small["pooled"].get("cvvdp_q").is_none(), "{of_small}");
    // Frames have their own JOD, and the worst of them is the lowest.
    let page = crate::report::data(page.as_ref());
    let jods = page["curves"][0]["cvvdp"].as_array().unwrap().iter().map(|jod| jod.as_f64().unwrap());
    let lowest = of_small["pooled"]["cvvdp"]["min"].as_f64().unwrap();
    assert!((jods.fold(10.0, f64::min) - lowest).abs() < 0.0001 && lowest < 9.99, "{lowest}");
    let mut command = hipvmaf("score");
    command.args([&film, &small]).args(metrics).env("COLUMNS", "80");
    let ended = Ended::of(command);
    let table = ended.stdout;
    let row =
        |name: &str| table.lines().find(|line| line.contains(&format!(" small.mp4   {name} "))).unwrap();
    assert!(row("cvvdp").contains(" – ") && row("cvvdp").contains(" JOD "), "{table}");
    assert!(row("ssimulacra2").contains('.') && row("xpsnr_y").contains('.'), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}

#[test]
fn metrics_need_no_model() {
    let folder = tempfile::tempdir().unwrap();
    let [film, small] = clips(folder.path());
    let page = folder.path().join("r.html").to_str().unwrap().to_owned();
    let printed = summary(&[
        &film,
        &small,
        "--model",
        "none",
        "--feature",
        "cvvdp",
        "--frames",
        "30",
        "--report",
        &page,
    ]);
    let of_small = &printed["renditions"][0];
    assert_eq!(printed["models"], serde_json::json!([]));
    assert_eq!(of_small["pooled"].as_object().unwrap().keys().collect::<Vec<_>>(), ["cvvdp"]);
    // The worst frames are those of the lowest JOD, in the list and in the pictures.
    let lowest = &of_small["pooled"]["cvvdp"]["min"];
    assert_eq!(&of_small["worst"][0]["scores"]["cvvdp"], lowest);
    let page = crate::report::data(page.as_ref());
    assert_eq!(page["stills"][0][0]["frame"], of_small["worst"][0]["frame"]);
    let shown = page["stills"][0][0]["score"].as_f64().unwrap();
    assert!((shown - lowest.as_f64().unwrap()).abs() < 1e-9, "{shown}, not {lowest}");
}

#[test]
fn results_without_provenance_are_those_of_every_run() {
    let folder = tempfile::tempdir().unwrap();
    let [film, small] = clips(folder.path());
    for ending in ["json", "xml", "csv"] {
        let files = ["1", "2", "0"].map(|threads| {
            let path = folder.path().join(format!("{threads}.{ending}"));
            summary(&[
                &film,
                &small,
                "--no-provenance",
                "--threads",
                threads,
                "--results",
                path.to_str().unwrap(),
            ]);
            fs::read_to_string(path).unwrap()
        });
        assert!(files[0] == files[1] && files[0] == files[2], "{ending}");
        for of_run in ["fps", "provenance", "instructions", "verified"] {
            assert!(!files[0].contains(of_run), "{ending} has {of_run}");
        }
    }
}

#[test]
fn a_part_has_the_scores_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let [film, small] = clips(folder.path());
    // Streams without a container cannot seek, and are read from the beginning.
    let raw = folder.path().join("raw.h264").to_str().unwrap().to_owned();
    run(&format!(
        "filesrc location={small} ! qtdemux ! h264parse ! video/x-h264,stream-format=byte-stream \
         ! filesink location={raw}"
    ));
    let score = |distorted: &str, part: &[&str]| {
        let path = folder.path().join("part.json");
        summary(&[&[&film, distorted, "--results", path.to_str().unwrap()], part].concat());
        frames(&path)
    };
    let whole = score(&small, &[]);
    for distorted in [&small, &raw] {
        for part in [["--from", "23", "--frames", "20"], ["--from", "0.92s", "--to", "0:01.72"]] {
            let scored = score(distorted, &part);
            assert_eq!(scored.len(), 20, "{part:?}");
            let of = |frame: &Value| (frame["timestamp"].clone(), frame["metrics"].clone());
            assert_eq!(of(&scored[0]).0, of(&whole[23]).0);
            // The first frame of a part has no predecessor, so it may differ.
            for (scored, whole) in scored[1..].iter().zip(&whole[24..42]) {
                assert_eq!(of(scored), of(whole), "{distorted} {part:?}");
            }
        }
    }
    assert_eq!(score(&small, &["--from", "50"]).len(), 10);
}

#[test]
fn image_sequences_are_videos() {
    let folder = tempfile::tempdir().unwrap();
    let film = folder.path().join("film.mp4");
    encode(&film, "format=I420", 300);
    run(&format!(
        "filesrc location={} ! decodebin ! videoconvert ! video/x-raw,format=GRAY8 ! identity eos-after=20 ! pngenc \
         ! multifilesink index=7 location={}/f_%03d.png",
        film.display(),
        folder.path().display()
    ));
    let pattern = folder.path().join("f_%03d.png").to_str().unwrap().to_owned();
    let printed = summary(&[&pattern, &pattern, "--image-rate", "24000/1001", "--model", "vmaf_v0.6.1"]);
    assert_eq!(printed["reference"]["rate"], "24000/1001");
    assert!(printed["renditions"][0]["frames"].as_u64().unwrap() >= 19, "{printed}");
}

#[test]
fn the_model_is_that_of_size_and_rate() {
    let folder = tempfile::tempdir().unwrap();
    let [film, small] = clips(folder.path());
    let mut command = hipvmaf("score");
    command.args([&film, &small, "--frames", "3", "--model", "auto", "--model", "auto-v0"]);
    let ended = Ended::of(command);
    assert!(
        ended.stderr.contains("model vmaf_v1.0.16_3d0h: the original is 320x180 at 25"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stdout.contains(" vmaf_v1.0.16_3d0h ") && ended.stdout.contains(" vmaf_v0.6.1 "),
        "{}",
        ended.stdout
    );
}
