// SPDX-License-Identifier: MPL-2.0

//! `hipvmaf monitor`: the audio of its sources.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::run;
use crate::monitor::{Monitor, stream};

/// Writes 16 seconds of a film with a tone of this amplitude, or without audio.
fn write(path: &Path, amplitude: Option<f64>) {
    let audio = amplitude.map_or(String::new(), |amplitude| {
        format!(
            "audiotestsrc num-buffers=400 samplesperbuffer=1920 volume={amplitude} ! audio/x-raw,rate=48000,channels=2 \
             ! vorbisenc ! mux."
        )
    });
    run(&format!(
        "videotestsrc num-buffers=400 pattern=ball ! video/x-raw,format=I420,width=160,height=90,framerate=25/1 \
         ! x264enc bitrate=300 speed-preset=ultrafast ! h264parse ! matroskamux name=mux ! filesink location={} {audio}",
        path.display()
    ));
}

/// Audio that is missing, silent, of another loudness or of an unknown format is an alarm, and does not touch the pictures.
#[test]
fn audio_is_watched_beside_the_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(format!("{name}.mkv"));
    let all = [
        ("film", Some(0.1)),
        ("same", Some(0.1)),
        ("quiet", Some(0.02)),
        ("silent", Some(0.0)),
        ("none", None),
    ];
    all.iter().for_each(|(name, amplitude)| write(&path(name), *amplitude));
    let known = fs::read(path("same")).unwrap();
    let at = known.windows(8).position(|bytes| bytes == b"A_VORBIS").unwrap();
    fs::write(path("unknown"), [&known[..at], b"A_NOTHIN", &known[at + 8..]].concat()).unwrap();
    let labels = ["same", "quiet", "silent", "none", "unknown"];
    let mut arguments = vec![path("film").display().to_string()];
    arguments.extend(labels.map(|label| format!("{label}={}", path(label).display())));
    arguments.extend(["--segment-seconds", "2"].map(String::from));
    arguments.extend(["--audio", "true", "--audio-hold", "1", "--stills", "false"].map(String::from));
    let monitor = Monitor::start(&arguments.iter().map(|text| &**text).collect::<Vec<_>>());

    let alarms = |channel: &Value| -> Vec<Value> {
        channel["alarms"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|alarm| alarm["kind"] != "dropout")
            .cloned()
            .collect()
    };
    let channel = monitor.poll("/api/channels/live", |channel| alarms(channel).len() == 4);
    for (label, kind, text) in [
        ("quiet", "loudness", "-14.0 LU beside the reference, threshold 3"),
        ("silent", "silence", "-70 LUFS, threshold -60"),
        ("none", "audio-missing", "no audio arrives"),
        ("unknown", "audio-missing", "no audio: "),
    ] {
        let is_it = |alarm: &Value| {
            alarm["label"] == label
                && alarm["kind"] == kind
                && alarm["text"].as_str().unwrap().starts_with(text)
        };
        assert!(alarms(&channel).iter().any(is_it), "{label} {kind}: {channel:#}");
        assert_eq!(stream(&channel, label)["alarms"][kind], true);
    }
    for label in labels {
        let shown = stream(&channel, label);
        let is_good = shown["failures"] == 0 && shown["last"]["min"].as_f64() > Some(90.0);
        assert!(is_good && shown["counts"]["unpaired"] == 0, "{label}: {channel:#}");
    }
    let audio = |label: &str| stream(&channel, label)["audio"].clone();
    assert_eq!([audio("reference"), audio("none")], [true, false].map(Value::from));
    let loudness = |label: &str| stream(&channel, label)["loudness"].as_f64();
    assert!(loudness("reference").unwrap() > loudness("quiet").unwrap() + 10.0 && loudness("none").is_none());

    let history = monitor.json("/api/channels/live/history?limit=5000");
    for label in ["reference", "same", "quiet"] {
        let is_it = |curve: &&Value| curve["label"] == label && curve["curve"] == "loudness";
        let curve = history["curves"].as_array().unwrap().iter().find(is_it);
        assert!(
            curve.is_some_and(|curve| curve["value"].as_array().unwrap().len() > 3),
            "{label}: {history:#}"
        );
    }
    let segments = monitor.poll("/api/channels/live/segments", |segments| !segments[6].is_null());
    for segment in segments.as_array().unwrap() {
        let begin = segment["begin"].as_f64().unwrap();
        assert!(
            begin % 2.0 == 0.0 && segment["vqat"] == serde_json::json!(["VMAF", "MQA-VIDEO"]),
            "{segment}"
        );
        assert!(
            segment["vqas"][1].as_i64() > Some(80) && segment["vqas"][1].as_i64() <= Some(100),
            "{segment}"
        );
    }
    let metrics = monitor.get("/metrics");
    for start in [
        "hipvmaf_audio_up{channel=\"live\",pad=\"dist_2\",label=\"none\"} 0",
        "hipvmaf_audio_loudness_lufs{",
        "hipvmaf_quality{",
    ] {
        assert!(metrics.lines().any(|line| line.starts_with(start)), "{start}\n{metrics}");
    }
}
