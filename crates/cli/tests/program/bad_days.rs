// SPDX-License-Identifier: MPL-2.0

//! The bad days of a monitor, one after the other in one run: no alarm is lost, no window is recorded twice, and the
//! history is whole.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{hipvmaf, send};
use crate::monitor::{EVENT_TIMEOUT, Monitor, answer_with};

/// A monitor whose disk and clock can be made bad.
struct Shift {
    folder: tempfile::TempDir,
    library: PathBuf,
}

impl Shift {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("bad_days.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/bad_days.c");
        let compiled =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).args([source, "-ldl"]).status();
        assert!(compiled.unwrap().success());
        Self { folder, library }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    #[track_caller]
    fn start(&self) -> Monitor {
        let mut command = hipvmaf("monitor");
        command.args(["--plain", "--listen", "127.0.0.1:0", "--log", "windows"]);
        command.arg("--config").arg(self.path("channels.toml")).arg("--state").arg(self.path("state"));
        command.env("LD_PRELOAD", &self.library);
        command.env("DISK_IS_FULL", self.path("full")).env("CLOCK_IS_BACK", self.path("back"));
        Monitor::run(command)
    }

    /// Makes a condition true while `watch` runs.
    fn while_bad(&self, name: &str, watch: impl FnOnce()) {
        fs::write(self.path(name), "").unwrap();
        watch();
        fs::remove_file(self.path(name)).unwrap();
    }
}

/// Starts a server that takes alarms and refuses everything else. Returns its address and the alarms.
fn server() -> (SocketAddr, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (send, alarms) = channel();
    thread::spawn(move || {
        loop {
            let body = answer_with(&listener, |line| match line.starts_with("POST") {
                true => "200 OK",
                false => "500 Internal Server Error",
            });
            if !body.is_empty() && send.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (address, alarms)
}

/// Returns the windows of a table of the history, with how often each occurs.
fn windows(table: &str) -> HashMap<String, usize> {
    let mut windows = HashMap::new();
    table.lines().skip(1).for_each(|line| *windows.entry(line.to_owned()).or_default() += 1);
    windows
}

fn scored(monitor: &Monitor) -> u64 {
    monitor.json("/api/channels/a")["streams"][1]["counts"]["scored"].as_u64().unwrap()
}

/// Waits for this many further windows.
#[track_caller]
fn wait_for_windows(monitor: &mut Monitor, count: usize) {
    for _ in 0..count {
        monitor.wait_for(&["low", "VMAF"]);
    }
}

#[test]
fn bad_days_lose_and_repeat_nothing() {
    let shift = Shift::new();
    let state = shift.path("state");
    fs::create_dir(&state).unwrap();
    fs::write(state.join("history.redb"), "no database".repeat(1000)).unwrap();
    // Takes connections and never answers.
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let (server, alarms) = server();
    let config = format!(
        "[defaults]\nstills = false\nalarm-low = 99\nalarm-hold = 1\n\
         [[channel]]\nname = \"a\"\nreference = \"test:160x90@25\"\nrenditions = [\"low=x264:50\"]\n\
         webhook = \"http://{}/\"\n\
         [[channel]]\nname = \"b\"\nreference = \"test:160x90@25\"\nrenditions = [\"hls=http://{server}/live.m3u8\"]\n\
         webhook = \"http://{server}/\"\n",
        hanging.local_addr().unwrap()
    );
    fs::write(shift.path("channels.toml"), &config).unwrap();

    let mut monitor = shift.start();
    assert!(
        monitor.seen.iter().any(|line| line.contains("the history cannot be read")),
        "{:?}",
        monitor.seen
    );
    assert!(broken(&state));
    wait_for_windows(&mut monitor, 3);

    // A server that answers 500, as HLS servers do, has been asked twice.
    monitor.poll("/api/channels/b", |channel| channel["streams"][1]["failures"].as_u64() > Some(1));
    let reason = monitor.json("/api/channels/b")["streams"][1]["reason"].clone();
    assert!(reason.as_str().unwrap().contains("HTTP 500"), "{reason}");
    // While one webhook hangs, another receives its alarms.
    let received = alarms.recv_timeout(EVENT_TIMEOUT).unwrap();
    assert_eq!((&received["channel"], &received["kind"]), (&"b".into(), &"source".into()));
    let overview = monitor.json("/api/channels");
    let webhooks = overview["webhooks"].as_array().unwrap();
    let waits = |webhook: &Value| webhook["delivered"] == 0 && webhook["waiting"] != 0;
    assert!(webhooks.len() == 2 && webhooks.iter().any(waits), "{overview:#}");

    shift.while_bad("full", || {
        let full =
            |overview: &Value| overview["history"]["up"] == false && overview["history"]["waiting"] != 0;
        let shown = monitor.poll("/api/channels", full);
        let reason = shown["history"]["reason"].as_str().unwrap();
        assert!(reason.contains("No space left"), "{reason}");
        assert!(monitor.get("/metrics").contains("\nhipvmaf_history_up 0\n"));
        wait_for_windows(&mut monitor, 2);
    });
    monitor.poll("/api/channels", |overview| overview["history"]["up"] == true);
    assert!(monitor.get("/metrics").contains("\nhipvmaf_history_up 1\n"));

    // Other thresholds and labels need no restart.
    let counted = scored(&monitor);
    let changed = config.replace("alarm-low = 99", "alarm-low = 5").replace("hls=", "renamed=");
    fs::write(shift.path("channels.toml"), changed).unwrap();
    send("HUP", &monitor.child);
    monitor.wait_for(&["channels reloaded; changed: a, b"]);
    monitor.wait_for(&["low", "alarm cleared"]);
    assert!(scored(&monitor) >= counted);
    let b = monitor.json("/api/channels/b");
    assert_eq!((&b["streams"][1]["label"], &b["alarm_low"]), (&"renamed".into(), &5.0.into()));
    assert_eq!(b["alarms"][0]["label"], "renamed");

    shift.while_bad("back", || wait_for_windows(&mut monitor, 4));
    wait_for_windows(&mut monitor, 3);

    // All connections are taken by clients that never end their requests.
    let slow = [(); 256].map(|()| {
        let mut stream = TcpStream::connect(&monitor.address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
        stream
    });
    assert_eq!(
        (monitor.ask("GET", "/healthz", "", "").0, monitor.ask("GET", "/metrics", "", "").0),
        (200, 503)
    );
    drop(slow);
    let end = Instant::now() + EVENT_TIMEOUT;
    while monitor.ask("GET", "/metrics", "", "").0 == 503 {
        assert!(Instant::now() < end, "the connections are not free again");
        thread::sleep(Duration::from_millis(50));
    }

    let table = "/api/channels/a/history.csv";
    monitor.poll("/api/channels", |overview| overview["history"]["waiting"] == 0);
    let before = windows(&monitor.get(table));
    let printed = monitor.seen.iter().filter(|line| line.contains("low  ") && line.contains("VMAF")).count();
    assert!(before.len() >= printed && scored(&monitor) > 0, "{printed} printed, {before:?}");
    let source = monitor.json("/api/channels/b")["alarms"][0].clone();
    monitor.poll("/api/channels", |overview| overview["history"]["waiting"] == 0);
    // By SIGKILL, which it cannot handle.
    drop(monitor);
    let monitor = shift.start();
    let after = windows(&monitor.get(table));
    assert!(before.keys().all(|window| after.contains_key(window)), "{before:?}\n{after:?}");
    assert!(after.values().all(|count| *count == 1), "{after:?}");
    // The incident that goes on is the same one.
    let alarm = monitor.json("/api/channels/b")["alarms"][0].clone();
    let of = |alarm: &Value| ["alarm", "label", "kind", "since"].map(|name| alarm[name].clone());
    assert_eq!(of(&alarm), of(&source));
    let events = monitor.json("/api/channels/a/events");
    let raised = |event: &Value| event["kind"] == "alarm" && event["state"] == "raised";
    assert!(events.as_array().unwrap().iter().any(raised), "{events:#}");
}

/// Returns true if a history was set aside.
fn broken(state: &Path) -> bool {
    fs::read_dir(state)
        .unwrap()
        .flatten()
        .any(|entry| entry.file_name().to_str().unwrap().contains(".broken-"))
}
