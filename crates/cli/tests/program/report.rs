// SPDX-License-Identifier: MPL-2.0

//! The HTML report: its data equal the results, and its pictures show the stated frames.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Ended, frames, hipvmaf, run};

const MODELS: [&str; 2] = ["vmaf_v0.6.1", "vmaf_v0.6.1neg"];
const SIZE: (usize, usize) = (320, 180);

/// Returns the data of a report's script.
#[track_caller]
pub fn data(page: &Path) -> Value {
    let page = fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (3, 3));
    let (_, data) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

/// Writes a film of three seconds, and an encode with a quarter of its size. Their names are difficult for HTML.
fn clips(folder: &Path) -> [String; 2] {
    let [film, small] = ["a <", "b &amp;\" <!--"].map(|name| folder.join(name));
    [&film, &small].iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let [film, small] = [film.join("script>.mkv"), small.join("'\"<b>&.mp4")];
    let path = |path: &Path| path.to_str().unwrap().replace('"', "\\\"");
    run(&format!(
        "videotestsrc num-buffers=75 pattern=ball ! video/x-raw,format=I420,width={},height={},framerate=25/1 \
         ! tee name=film \
         film. ! queue max-size-buffers=0 max-size-time=0 max-size-bytes=0 ! x264enc bitrate=2000 key-int-max=10 \
         ! matroskamux ! filesink location=\"{}\" \
         film. ! queue max-size-buffers=0 max-size-time=0 max-size-bytes=0 ! videoscale \
         ! video/x-raw,width=160,height=90 ! x264enc bitrate=30 key-int-max=10 ! mp4mux ! filesink location=\"{}\"",
        SIZE.0,
        SIZE.1,
        path(&film),
        path(&small)
    ));
    [film, small].map(|path| path.to_str().unwrap().to_owned())
}

#[track_caller]
fn score(args: &[&str]) {
    // An alias of the command.
    let mut command = hipvmaf("ladder");
    command.args(args);
    let ended = Ended::of(command);
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(!ended.stderr.contains("warning"), "{}", ended.stderr);
}

/// Returns the luma of a JPEG in a data URI.
fn luma(folder: &Path, uri: &Value) -> Vec<u8> {
    let coded = uri.as_str().unwrap().strip_prefix("data:image/jpeg;base64,").unwrap();
    let [jpeg, grey] = ["still.jpeg", "still.grey"].map(|name| folder.join(name));
    fs::write(&jpeg, glib::base64_decode(coded)).unwrap();
    run(&format!(
        "filesrc location={} ! jpegparse ! jpegdec ! videoconvert ! {} ! filesink location={}",
        jpeg.display(),
        grey_caps(),
        grey.display()
    ));
    fs::read(grey).unwrap()
}

fn grey_caps() -> String {
    format!("video/x-raw,format=GRAY8,width={},height={}", SIZE.0, SIZE.1)
}

/// Returns the luma of all frames of a pipeline.
fn film(folder: &Path, pipeline: &str) -> Vec<Vec<u8>> {
    let path = folder.join("film.grey");
    run(&format!("{pipeline} ! videoconvert ! {} ! filesink location={}", grey_caps(), path.display()));
    fs::read(path).unwrap().chunks(SIZE.0 * SIZE.1).map(<[u8]>::to_vec).collect()
}

fn difference(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| f64::from(a.abs_diff(*b))).sum::<f64>() / a.len() as f64
}

/// Asserts that a picture shows this frame, by comparison with all frames of the film.
#[track_caller]
fn assert_is(picture: &[u8], film: &[Vec<u8>], frame: usize) {
    let differences: Vec<_> = film.iter().map(|other| difference(picture, other)).collect();
    let nearest = differences.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(differences[frame] < 3.0 && differences[frame] <= nearest + 0.05, "{frame}: {differences:?}");
}

#[test]
fn the_page_has_the_scores_and_pictures_of_the_worst_frames() {
    let folder = tempfile::tempdir().unwrap();
    let [original, small] = clips(folder.path());
    let [page, results] = ["page.html", "results.json"].map(|name| folder.path().join(name));
    score(&[
        &original,
        &small,
        "--x264",
        "60",
        "--model",
        MODELS[0],
        "--model",
        MODELS[1],
        "--report",
        page.to_str().unwrap(),
        "--results",
        results.to_str().unwrap(),
    ]);
    let data = data(&page);
    let labels = ["'\"<b>&.mp4", "60 kbit/s"];
    assert_eq!(data["reference"]["input"], original);
    for (i, label) in labels.into_iter().enumerate() {
        assert_eq!(data["renditions"][i]["label"], label);
        let written = match i {
            0 => frames(&results),
            _ => frames(&folder.path().join("results.60 kbit_s.json")),
        };
        assert_eq!(written.len(), 75);
        for model in MODELS {
            let curve = data["curves"][i][model].as_array().unwrap();
            assert_eq!(curve.len(), written.len());
            for (shown, frame) in curve.iter().zip(&written) {
                let [shown, score] = [shown, &frame["metrics"][model]].map(|value| value.as_f64().unwrap());
                assert!((shown - score).abs() < 0.0006, "{shown}, not {score}");
            }
        }
        // The worst frame of each second, worst first.
        let mut worst: Vec<_> = written
            .chunks(25)
            .map(|second| {
                let score = |frame: &&Value| frame["metrics"][MODELS[0]].as_f64().unwrap();
                second.iter().min_by(|a, b| score(a).total_cmp(&score(b))).unwrap()
            })
            .map(|frame| (frame["metrics"][MODELS[0]].as_f64().unwrap(), frame["frameNum"].as_u64().unwrap()))
            .collect();
        worst.sort_by(|a, b| a.0.total_cmp(&b.0));
        let shown: Vec<_> =
            data["stills"][i].as_array().unwrap().iter().map(|still| &still["frame"]).collect();
        assert_eq!(shown, worst.iter().map(|(_, frame)| *frame).collect::<Vec<_>>());
    }

    let decode = |path: &str| format!("filesrc location=\"{}\" ! decodebin", path.replace('"', "\\\""));
    let references = film(folder.path(), &decode(&original));
    let distorted = film(folder.path(), &format!("{} ! videoscale method=catrom", decode(&small)));
    let heatmaps = film(
        folder.path(),
        &format!(
            "{} ! queue ! score.ref_sink {} ! queue ! score.dist_sink \
             hipvmaf name=score scale-method=bicubic output=heatmap",
            decode(&original),
            decode(&small)
        ),
    );
    for still in data["stills"][0].as_array().unwrap() {
        let frame = still["frame"].as_u64().unwrap() as usize;
        assert_eq!(still["time"].as_f64().unwrap(), frame as f64 / 25.0);
        for (kind, film) in [("reference", &references), ("distorted", &distorted), ("heatmap", &heatmaps)] {
            assert_is(&luma(folder.path(), &still["pictures"][kind]), film, frame);
        }
    }
}

#[test]
fn one_frame_is_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let [original, small] = clips(folder.path());
    let page = folder.path().join("page.html");
    score(&[&original, &small, "--from", "30", "--frames", "1", "--report", page.to_str().unwrap()]);
    let data = data(&page);
    assert_eq!((data["times"][0].as_f64(), data["times"].as_array().unwrap().len()), (Some(1.2), 1));
    let picture = luma(folder.path(), &data["stills"][0][0]["pictures"]["reference"]);
    assert_eq!(picture.len(), SIZE.0 * SIZE.1);
}
