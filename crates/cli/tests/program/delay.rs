// SPDX-License-Identifier: MPL-2.0

//! `hipvmaf monitor`: the delay of renditions, and renditions that show another programme.

use gst::prelude::*;
use serde_json::Value;

use crate::common::send;
use crate::monitor::{Monitor, stream};

/// Senders of a film to one port, half a second later to another, and of another film to a third.
fn senders(ports: [u16; 3]) -> gst::Pipeline {
    gst::init().unwrap();
    let [first, late, other] = ports;
    let film = |motion: &str| {
        format!(
            "videotestsrc is-live=true pattern=ball motion={motion} ! video/x-raw,format=I420,width=160,height=90,framerate=25/1 \
             ! x264enc tune=zerolatency speed-preset=ultrafast bitrate=300 key-int-max=25"
        )
    };
    let send = |port: u16| {
        format!("mpegtsmux alignment=7 ! udpsink host=127.0.0.1 port={port} sync=false async=false")
    };
    let description = format!(
        "{} ! tee name=t t. ! queue ! {} \
         t. ! queue max-size-buffers=0 max-size-bytes=0 max-size-time=0 min-threshold-time=500000000 ! {} \
         {} ! {}",
        film("wavy"),
        send(first),
        send(late),
        film("hsweep"),
        send(other),
    );
    let pipeline = gst::parse::launch(&description).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    pipeline
}

/// Another source of a live rendition touches no other stream.
#[test]
fn a_source_is_replaced_alone() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("channels.toml");
    let write = |port: u16| {
        let renditions = format!("[\"kept=x264:300\", \"moved=udp://127.0.0.1:{port}\"]");
        let text = format!(
            "[[channel]]\nname = \"a\"\nreference = \"test:160x90@25\"\nrenditions = {renditions}\nstall = 1\n"
        );
        std::fs::write(&config, text).unwrap();
    };
    write(47_044);
    let mut monitor = Monitor::start(&["--config", config.to_str().unwrap()]);
    let down = |channel: &Value| {
        let alarms = channel["alarms"].as_array().unwrap();
        alarms.iter().any(|alarm| alarm["label"] == "moved" && alarm["kind"] == "source")
    };
    let scored = |channel: &Value| stream(channel, "kept")["counts"]["scored"].as_u64().unwrap();
    let before = monitor.poll("/api/channels/a", |channel| down(channel) && scored(channel) > 0);
    let sender = senders([47_045, 47_046, 47_047]);
    write(47_045);
    send("HUP", &monitor.child);
    monitor.wait_for(&["channels reloaded; changed: a"]);
    let after = monitor.poll("/api/channels/a", |channel| stream(channel, "moved")["status"] == "running");
    assert!(
        scored(&after) >= scored(&before) && after["restarts"] == 0 && !down(&after),
        "{before:#}\n{after:#}"
    );
    assert!(stream(&after, "moved")["source"].as_str().unwrap().ends_with(":47045"), "{after:#}");
    sender.set_state(gst::State::Null).unwrap();
}

#[test]
fn delays_are_measured_and_another_programme_is_found() {
    let sender = senders([47_041, 47_042, 47_043]);
    let monitor = Monitor::start(&[
        "udp://127.0.0.1:47041",
        "late=udp://127.0.0.1:47042",
        "other=udp://127.0.0.1:47043",
        "--align",
        "detect",
        "--alarm-delay",
        "0.3",
        "--wait",
        "1000",
        "--stills",
        "false",
    ]);
    let has = |channel: &Value, label: &str, kind: &str| {
        let alarms = channel["alarms"].as_array().unwrap();
        alarms.iter().any(|alarm| alarm["label"] == label && alarm["kind"] == kind)
    };
    let channel = monitor.poll("/api/channels/live", |channel| {
        has(channel, "late", "delay") && has(channel, "other", "other-programme")
    });
    assert!(!has(&channel, "late", "other-programme") && !has(&channel, "other", "delay"), "{channel:#}");
    let offset = stream(&channel, "late")["offset"].as_f64().unwrap();
    assert!((0.42..0.58).contains(&offset) && stream(&channel, "other")["offset"].is_null(), "{channel:#}");
    let texts: Vec<_> =
        channel["alarms"].as_array().unwrap().iter().map(|alarm| alarm["text"].to_string()).collect();
    assert!(texts.iter().any(|text| text.contains(" ms, threshold 300 ms")), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("at no offset of up to 25 frames")), "{texts:?}");

    let curve =
        monitor.poll("/api/channels/live/history?limit=5000", |history| !history["curves"][0].is_null());
    let curve = &curve["curves"][0];
    assert_eq!((&curve["label"], &curve["curve"]), (&"late".into(), &"delay".into()));
    assert!((0.42..0.58).contains(&curve["value"][0].as_f64().unwrap()), "{curve:#}");
    let metrics = monitor.get("/metrics");
    let raised = |line: &str| line.contains("kind=\"other-programme\"") && line.ends_with(" 1");
    assert!(metrics.lines().any(|line| line.starts_with("hipvmaf_alarm{") && raised(line)), "{metrics}");
    sender.set_state(gst::State::Null).unwrap();
}
