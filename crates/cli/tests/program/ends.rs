// SPDX-License-Identifier: MPL-2.0

//! Damaged videos, missing decoders, and signals before scoring.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Ended, hipvmaf, interrupt, run};

/// Writes a film of 100 frames into a container.
fn film(folder: &Path, name: &str, muxer: &str) {
    run(&format!(
        "videotestsrc num-buffers=100 pattern=ball ! video/x-raw,format=I420,width=160,height=90,framerate=25/1 \
         ! x264enc bitrate=300 speed-preset=ultrafast key-int-max=25 ! h264parse ! {muxer} ! filesink location={}",
        folder.join(name).display()
    ));
}

fn score(folder: &Path, distorted: &str) -> Ended {
    let mut program = hipvmaf("score");
    program.current_dir(folder).args(["film.mp4", distorted, "--backend", "cpu", "--json"]);
    program.args(["--results", "results.json"]);
    Ended::of(program)
}

fn results(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("results.json")).unwrap()).unwrap()
}

/// An encode that ends early has the scores of what there is, unless more is demanded.
#[test]
fn the_share_of_the_scored_frames_can_be_demanded() {
    let folder = tempfile::tempdir().unwrap();
    for (name, frames) in [("film.y4m", 10), ("short.y4m", 6)] {
        run(&format!(
            "videotestsrc num-buffers={frames} pattern=ball ! video/x-raw,format=I420,width=160,height=90,framerate=25/1 \
             ! y4menc ! filesink location={}",
            folder.path().join(name).display()
        ));
    }
    let score = |more: &[&str]| {
        let mut program = hipvmaf("score");
        program.current_dir(folder.path()).args(["film.y4m", "short.y4m", "--backend", "cpu"]).args(more);
        Ended::of(program)
    };
    for least in [&[][..], &["--min-coverage", "0.6"]] {
        let ended = score(least);
        assert!(ended.status.success(), "{}", ended.stderr);
    }
    for pair in ["auto", "number", "time", "picture"] {
        let ended = score(&["--min-coverage", "0.61", "--pair", pair]);
        assert_eq!(ended.status.code(), Some(1), "{pair}: {}", ended.stderr);
        assert!(
            ended.stderr.contains("only 60.0 %") && ended.stderr.contains("short.y4m"),
            "{}",
            ended.stderr
        );
        assert!(ended.stdout.contains("vmaf"), "{pair}: the scores are lost");
    }
    let ended = score(&["--min-coverage", "2"]);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
}

/// Some frames of each can be decoded and scored. Exit code 4 means that others cannot.
#[test]
fn damaged_films_are_reported_and_scored_as_far_as_they_go() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    film(folder, "film.mp4", "mp4mux faststart=true");
    film(folder, "film.mkv", "matroskamux");
    film(folder, "film.flv", "flvmux");
    let whole = |name: &str| fs::read(folder.join(name)).unwrap();
    let cut = |name: &str| {
        let mut bytes = whole(name);
        bytes.truncate(bytes.len() * 6 / 10);
        bytes
    };
    let mut garbled = whole("film.mkv");
    let middle = garbled.len() * 4 / 10..garbled.len() / 2;
    garbled[middle].iter_mut().enumerate().for_each(|(i, byte)| *byte ^= (i * 7 % 251) as u8 | 1);
    for (name, bytes, why) in [
        ("cut.mp4", cut("film.mp4"), "short read"),
        ("cut.mkv", cut("film.mkv"), "Dropping short buffer"),
        ("cut.flv", cut("film.flv"), "partial pull"),
        ("garbled.mkv", garbled, "its pictures end at"),
    ] {
        fs::write(folder.join(name), bytes).unwrap();
        let ended = score(folder, name);
        assert_eq!(ended.status.code(), Some(4), "{name}: {}", ended.stderr);
        let printed: Value = serde_json::from_str(&ended.stdout).unwrap();
        let damaged = printed["damaged"].as_array().unwrap();
        assert_eq!(damaged.len(), 1, "{damaged:?}");
        assert_eq!(damaged[0]["video"], name);
        let frames = printed["renditions"][0]["frames"].as_u64().unwrap();
        assert!((10..100).contains(&frames), "{name}: {frames}");
        let text = damaged[0]["text"].as_str().unwrap();
        let decoded = format!("{frames} pictures could be decoded");
        assert!(text.contains(why) && text.contains(&decoded), "{name}: {text}");
        assert!(ended.stderr.contains(text), "{}", ended.stderr);
        let said = format!("{name}: {text}");
        assert_eq!(results(folder)["damaged"].as_str(), Some(&*said), "what was found while it was scored");
    }
    for name in ["film.mp4", "film.mkv", "film.flv"] {
        let ended = score(folder, name);
        assert_eq!(ended.status.code(), Some(0), "{name}: {}", ended.stderr);
        let printed: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(printed["damaged"], Value::Array(vec![]));
        assert_eq!(results(folder).get("damaged"), None);
    }
}

/// An interrupted upload: the index of an MP4 file is at its end.
#[test]
fn a_film_without_its_index_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    film(folder, "film.mp4", "mp4mux");
    let mut bytes = fs::read(folder.join("film.mp4")).unwrap();
    bytes.truncate(bytes.len() / 2);
    fs::write(folder.join("cut.mp4"), bytes).unwrap();
    let ended = score(folder, "cut.mp4");
    assert_eq!(ended.status.code(), Some(4), "{}", ended.stderr);
    assert!(ended.stderr.contains("cut.mp4: it is damaged: its index (moov) is missing"), "{}", ended.stderr);
}

#[test]
fn a_decoder_that_is_missing_is_named_with_its_package() {
    let folder = tempfile::tempdir().unwrap();
    film(folder.path(), "film.mp4", "mp4mux");
    for (without, lacks, package) in [
        ("avdec_h264:NONE,openh264dec:NONE", "H.264", "gstreamer1.0-libav"),
        ("qtdemux:NONE", "demuxer", "gstreamer1.0-plugins-good"),
    ] {
        let mut program = hipvmaf("score");
        program.current_dir(folder.path()).args(["film.mp4", "film.mp4"]);
        let ended = Ended::of({
            program.env("GST_PLUGIN_FEATURE_RANK", without);
            program
        });
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains(lacks) && ended.stderr.contains(package), "{}", ended.stderr);
    }
}

/// A server that accepts connections and sends nothing.
#[test]
fn a_signal_ends_the_opening_of_a_video() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/film.mp4", server.local_addr().unwrap());
    let mut program = hipvmaf("score");
    program.args([&url, &url]).env("GST_DEBUG", "souphttpsrc:DEBUG").env("GST_DEBUG_NO_COLOR", "1");
    let ended = interrupt(program, "INT", "souphttpsrc", 5, true);
    assert_eq!(ended.status.code(), Some(130), "{}", ended.stderr);
}
