// SPDX-License-Identifier: MPL-2.0

//! `hipvmaf monitor`: channels, sources that fail and return, its web server, and restarts.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Ended, encode, hipvmaf, run, send};
use crate::names::{list, some_names};
use crate::pairs::{Shown, film, write};

/// Longest wait for an expected event.
pub const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// A running monitor; dropping it kills it.
pub struct Monitor {
    pub child: Child,
    /// Its output so far, and the channel for further lines.
    pub seen: Vec<String>,
    lines: Receiver<String>,
    pub address: String,
}

impl Monitor {
    /// Starts a monitor that raises an alarm and sends it to this address.
    #[track_caller]
    pub fn with_webhook(address: &str) -> Self {
        let alarm = ["--alarm-low", "99", "--alarm-hold", "1"];
        Self::start(&[&["test:160x90@25", "low=x264:50"], &alarm[..], &["--webhook", address]].concat())
    }

    #[track_caller]
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = hipvmaf("monitor");
        command.args(["--plain", "--listen", "127.0.0.1:0"]).args(arguments);
        Self::run(command)
    }

    #[track_caller]
    pub fn run(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (send, lines) = channel();
        let outputs: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for output in outputs {
            let send = send.clone();
            thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                lines.map(|line| send.send(line)).take_while(Result::is_ok).count()
            });
        }
        let mut monitor = Self { child, seen: vec![], lines, address: String::new() };
        let line = monitor.wait_for(&["http://", " shows the scores"]);
        let address = line.strip_prefix("http://").unwrap().split('/').next().unwrap();
        monitor.address = address.replace("0.0.0.0", "127.0.0.1");
        monitor
    }

    /// Returns the next line that contains all of these words.
    #[track_caller]
    pub fn wait_for(&mut self, words: &[&str]) -> String {
        let end = Instant::now() + EVENT_TIMEOUT;
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.seen.push(line.clone());
            if words.iter().all(|word| line.contains(word)) {
                return line;
            }
        }
        panic!("no line with {words:?} has come:\n{}", self.seen.join("\n"));
    }

    /// Returns the status and the rest of an answer; `head` has further header lines.
    #[track_caller]
    pub fn ask(&self, method: &str, path: &str, head: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {length}\r\n{head}\r\n{body}",
            self.address
        );
        let answer = request(&self.address, &text);
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> String {
        let (status, answer) = self.ask("GET", path, "", "");
        assert_eq!(status, 200, "{path}: {answer}");
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    #[track_caller]
    pub fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path)).unwrap()
    }

    /// Repeats a request until its answer is good.
    #[track_caller]
    pub fn poll(&self, path: &str, good: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + EVENT_TIMEOUT;
        loop {
            let answer = self.json(path);
            if good(&answer) {
                return answer;
            }
            assert!(Instant::now() < end, "{path} stays {answer:#}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ends the monitor, and returns the rest of its output.
    #[track_caller]
    pub fn end(mut self) -> String {
        send("TERM", &self.child);
        while let Ok(line) = self.lines.recv_timeout(EVENT_TIMEOUT) {
            self.seen.push(line);
        }
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{}", self.seen.join("\n"));
        self.seen.join("\n")
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a file of channels, each with further lines.
fn write_config(path: &Path, channels: &[(&str, &str, &str)]) {
    let text = channels.iter().map(|(name, reference, renditions)| {
        format!("[[channel]]\nname = {name:?}\nreference = {reference:?}\nrenditions = [{renditions:?}]\nretry = 2\n")
    });
    fs::write(path, text.collect::<String>()).unwrap();
}

pub fn stream<'a>(channel: &'a Value, label: &str) -> &'a Value {
    channel["streams"].as_array().unwrap().iter().find(|stream| stream["label"] == label).unwrap()
}

#[test]
fn what_cannot_be_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let [config, token] = ["channels.toml", "token"].map(|name| folder.path().join(name));
    fs::write(
        &config,
        "[[channel]]\nname = \"a\"\nreference = \"test:\"\nrenditions = [\"x264:1\"]\ncolour = 1\n",
    )
    .unwrap();
    fs::write(&token, "short").unwrap();
    let [config, token] = [config.to_str().unwrap(), token.to_str().unwrap()];
    let wrong: &[(&[&str], &str)] = &[
        (&["test:", "x264:abc"], "x264:abc is not a bit rate"),
        (&["test:foo", "x264:300"], "test:foo is not a test pattern"),
        (&["x264:300", "test:"], "cannot be the reference"),
        (&["test:", "a=x264:300", "a=x264:600"], "two streams are named \"a\""),
        (&["test:", "nothing://host"], "nothing://host: no plugin"),
        (&["test:", "http://"], "it has no host"),
        (&["test:", "imagesequence://%s"], "frames_%04d.png"),
        (&["test:", "x264:300", "--set", "colour=red"], "no property colour"),
        (&["test:", "x264:300", "--alarm-low", "70", "--alarm-clear", "60"], "is below alarm-low"),
        (&["test:", "x264:300", "--alarm-hold", "-1"], "-1"),
        (&["test:", "x264:300", "--model", "vmaf_v9"], "vmaf_v9"),
        (&["test:", "x264:300", "--listen", "0.0.0.0:0"], "needs --token-file"),
        (&["test:", "x264:300", "--listen", "0.0.0.0:0", "--token-file", token], "has no token"),
        (&["test:", "x264:300", "--webhook", "ftp://host"], "a webhook is"),
        (&["test:", "x264:300", "--incidents", "5"], "--incidents needs --state"),
        (&["test:"], "no renditions"),
        (&[], "Usage"),
        (&["--config", config], "line 5: unknown field `colour`"),
        (&["--check-config", config], "line 5: unknown field `colour`"),
        (&["--config", config, "test:", "x264:300"], "cannot be used with"),
    ];
    for (arguments, what) in wrong {
        let mut command = hipvmaf("monitor");
        command.args(*arguments);
        let ended = Ended::of(command);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?} {}", ended.stderr);
        assert!(ended.stderr.contains(what), "{arguments:?} {}", ended.stderr);
    }
}

#[test]
fn a_channel_that_lacks_its_film_fails_alone_and_plays_it_once_it_appears() {
    let folder = tempfile::tempdir().unwrap();
    let [config, film, same, made] =
        ["channels.toml", "film.mp4", "same.mp4", "made.mp4"].map(|name| folder.path().join(name));
    encode(&made, "format=I420", 500);
    let same_source = format!("same={}", same.display());
    write_config(
        &config,
        &[("live", "test:160x90@25", "low=x264:300"), ("films", film.to_str().unwrap(), &same_source)],
    );
    let mut monitor = Monitor::start(&["--config", config.to_str().unwrap()]);
    monitor.wait_for(&["films", "reference", "the file does not exist"]);
    monitor.wait_for(&["live", "VMAF"]);
    fs::copy(&made, folder.path().join("part")).unwrap();
    fs::rename(folder.path().join("part"), &film).unwrap();
    monitor.poll("/api/channels/films", |channel| stream(channel, "reference")["status"] == "running");
    // The encode appears later, and is compared with the same times of the film.
    fs::rename(&made, &same).unwrap();
    let scored = |channel: &Value| stream(channel, "same")["last"]["min"].as_f64().is_some();
    let films = monitor.poll("/api/channels/films", scored);
    let lowest = stream(&films, "same")["last"]["min"].as_f64().unwrap();
    assert!(lowest > 90.0, "{films:#}");
    let live = monitor.json("/api/channels/live");
    assert_eq!(
        (&live["restarts"], &stream(&live, "reference")["failures"]),
        (&0.into(), &0.into()),
        "{live:#}"
    );
    let summary = monitor.end();
    assert!(summary.contains("films: 0 restarts") && summary.contains("1 failure, 1 restart"), "{summary}");
    assert!(!summary.contains("NaN"), "{summary}");
}

/// One begins later, one has lost frames without gaps in its timestamps, and one is another film.
#[test]
fn files_are_paired_with_their_film_as_score_pairs_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = |name: &str| folder.join(format!("{name}.mkv")).display().to_string();
    let make = |name: &str, kbits: u32, shown: &Shown| {
        let coder = format!("x264enc speed-preset=superfast bitrate={kbits} key-int-max=12 ! h264parse");
        write(shown, &format!("{coder} ! matroskamux ! filesink location={}", file(name)));
    };
    make("film", 4000, &film(0..180));
    make("cut", 800, &film(12..180));
    make("joined", 800, &film((0..180).filter(|number| !(30..36).contains(number))));
    run(&format!(
        "videotestsrc num-buffers=180 pattern=zone-plate kx2=20 ky2=20 kt=5 ! video/x-raw,width=128,height=96,framerate=25/1 \
         ! x264enc speed-preset=superfast ! matroskamux ! filesink location={}",
        file("other")
    ));
    let [reference, cut, joined, other] =
        [("", "film"), ("cut=", "cut"), ("joined=", "joined"), ("other=", "other")]
            .map(|(label, name)| format!("{label}{}", file(name)));
    let mut monitor = Monitor::start(&[&reference, &cut, &joined, &other, "--window", "1", "--wait", "2000"]);
    monitor.wait_for(&["other.mkv", "film.mkv", "no way of pairing"]);
    // Windows before the first frame have no mean.
    let means = |channel: &Value, label: &str| -> Vec<f64> {
        stream(channel, label)["spark"].as_array().unwrap().iter().filter_map(Value::as_f64).collect()
    };
    let name = monitor.json("/api/channels")["channels"][0]["name"].as_str().unwrap().to_owned();
    let path = format!("/api/channels/{name}");
    let channel =
        monitor.poll(&path, |channel| ["cut", "joined"].iter().all(|of| means(channel, of).len() > 3));
    for label in ["cut", "joined"] {
        let means = means(&channel, label);
        assert!(means.iter().all(|mean| *mean > 80.0), "{label}: {means:?}");
    }
    assert_eq!(stream(&channel, "other")["counts"]["scored"], 0);
}

/// Each channel of a file has a unique name, and films in folders of this name.
#[test]
fn channels_may_have_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let can_be = |name: &String| name.len() <= 100 && !name.contains(char::is_control);
    let names: Vec<_> = some_names().into_iter().filter(can_be).collect();
    // In basic strings of TOML, every character may be escaped.
    let toml = |text: &str| -> String { text.chars().map(|c| format!("\\U{:08X}", u32::from(c))).collect() };
    let channels = names.iter().map(|name| {
        list(folder, std::slice::from_ref(name));
        let file = |side: &str| toml(&format!("{}/{name}/{name}.{side}.y4m", folder.display()));
        let (name, reference, distorted) = (toml(name), file("r"), file("d"));
        format!(
            "[[channel]]\nname = \"{name}\"\nreference = \"{reference}\"\nrenditions = [\"copy={distorted}\"]\n\
             backend = \"cpu\"\nstills = false\n"
        )
    });
    let config = folder.join("channels %s$(id).toml");
    fs::write(&config, channels.collect::<String>()).unwrap();
    let state = folder.join("state %n'");
    let (config, state) = (config.to_str().unwrap(), state.to_str().unwrap());
    let monitor = Monitor::start(&["--config", config, "--state", state]);
    let ended = |channels: &Value| {
        channels["channels"].as_array().unwrap().iter().all(|channel| channel["state"] == "ended")
    };
    let shown = monitor.poll("/api/channels", ended);
    let shown = shown["channels"].as_array().unwrap();
    for name in &names {
        let channel = shown.iter().find(|channel| channel["name"] == name.as_str());
        let channel = channel.unwrap_or_else(|| panic!("{name:?} is not shown"));
        let streams = channel["streams"].as_array().unwrap();
        assert!(streams.iter().all(|stream| stream["failures"] == 0), "{channel:#}");
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        assert_eq!(monitor.json(&format!("/api/channels/{encoded}"))["name"], name.as_str());
    }
    monitor.end();
}

#[test]
fn a_reload_touches_only_what_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("channels.toml");
    write_config(
        &config,
        &[
            ("kept", "test:160x90@25", "a=x264:300"),
            ("changed", "test:160x90@25", "a=x264:300"),
            ("gone", "test:160x90@25", "a=x264:300"),
        ],
    );
    let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    let (send_line, lines) = channel();
    thread::spawn(move || {
        let mut buffer = [0; 500];
        while let Ok(length) = socket.recv(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.lines().any(|line| send_line.send(line.to_owned()).is_err()) {
                return;
            }
        }
    });
    let mut command = hipvmaf("monitor");
    command.args(["--plain", "--listen", "127.0.0.1:0", "--config", config.to_str().unwrap()]);
    command.env("NOTIFY_SOCKET", folder.path().join("notify")).env("WATCHDOG_USEC", "1000000");
    let mut monitor = Monitor::run(command);
    let received = |what: &str| while lines.recv_timeout(EVENT_TIMEOUT).unwrap() != what {};
    received("READY=1");
    received("WATCHDOG=1");
    for name in ["kept", "changed", "gone"] {
        monitor.poll(&format!("/api/channels/{name}"), |channel| channel["score"].is_f64());
    }
    let before = monitor.json("/api/channels/kept");

    write_config(
        &config,
        &[
            ("new", "test:160x90@25", "a=x264:300"),
            ("changed", "test:160x90@25", "b=x264:200"),
            ("kept", "test:160x90@25", "a=x264:300"),
        ],
    );
    send("HUP", &monitor.child);
    received("RELOADING=1");
    received("READY=1");
    monitor.wait_for(&["started: new; restarted: changed; stopped: gone"]);
    for name in ["new", "changed"] {
        monitor.poll(&format!("/api/channels/{name}"), |channel| channel["score"].is_f64());
    }
    assert_eq!(monitor.json("/api/channels/changed")["streams"][1]["label"], "b");
    assert_eq!(monitor.ask("GET", "/api/channels/gone", "", "").0, 404);
    let scored = |channel: &Value| stream(channel, "a")["counts"]["scored"].as_u64().unwrap();
    let kept = monitor.json("/api/channels/kept");
    assert!(scored(&kept) > scored(&before) && kept["restarts"] == 0, "{before:#}\n{kept:#}");

    fs::write(&config, "[[channel]]\nname = 1\n").unwrap();
    send("HUP", &monitor.child);
    monitor.wait_for(&["the channels were not reloaded", "line 2"]);
    assert_eq!(monitor.json("/api/channels")["channels"].as_array().unwrap().len(), 3);
    send("TERM", &monitor.child);
    received("STOPPING=1");
}

#[test]
fn the_history_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let arguments = [
        "test:160x90@25",
        "low=x264:50",
        "--alarm-low",
        "99",
        "--alarm-hold",
        "1",
        "--state",
        state.to_str().unwrap(),
    ];
    let monitor = Monitor::start(&arguments);
    let means = |history: &Value| -> Vec<Value> {
        let renditions = history["renditions"].as_array().unwrap();
        renditions.first().map_or(vec![], |low| low["mean"].as_array().unwrap().clone())
    };
    let path = "/api/channels/live/history?limit=5000";
    let before = means(&monitor.poll(path, |history| means(history).len() >= 3));
    let raised = |events: &Value| {
        events.as_array().unwrap().iter().any(|e| e["kind"] == "alarm" && e["state"] == "raised")
    };
    monitor.poll("/api/channels/live/events", raised);
    monitor.poll("/api/channels", |overview| overview["history"]["waiting"] == 0);
    // By SIGKILL, which it cannot handle.
    drop(monitor);

    let monitor = Monitor::start(&arguments);
    let after = means(&monitor.json(path));
    assert_eq!(after[..before.len()], before[..]);
    assert!(raised(&monitor.json("/api/channels/live/events")));
    let table = monitor.get("/api/channels/live/history.csv");
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("time,rendition,mean,min,p5,alarm"));
    assert!(lines.next().is_some_and(|line| line.split(',').nth(1) == Some("low")), "{table}");
    assert!(table.lines().count() > before.len(), "{table}");
    monitor.end();
}

#[test]
fn there_are_pictures_of_an_alarm_and_of_the_worst_frame() {
    let monitor =
        Monitor::start(&["test:160x90@25", "low=x264:50", "--alarm-low", "99", "--alarm-hold", "1"]);
    let seen = monitor.poll("/api/channels/live", |channel| stream(channel, "low")["worst"].is_object());
    let alarm = seen["events"].as_array().unwrap().iter().find(|event| event["kind"] == "alarm").unwrap();
    for number in [&alarm["still"], &stream(&seen, "low")["worst"]["still"]] {
        for kind in ["reference", "distorted", "heatmap"] {
            let path = format!("/api/stills/{number}/{kind}");
            // The still is made after the event is sent.
            let end = Instant::now() + EVENT_TIMEOUT;
            while monitor.ask("GET", &path, "", "").0 == 404 && Instant::now() < end {
                thread::sleep(Duration::from_millis(50));
            }
            let (status, answer) = monitor.ask("GET", &path, "", "");
            assert!(
                status == 200 && answer.contains("image/jpeg") && answer.contains("JFIF"),
                "{path} {status}"
            );
        }
    }
    let wrong =
        ["/api/stills/1/reference", "/api/stills/x/reference", "/api/stills/1/..%2F..%2Fhistory.redb"];
    assert!(wrong.iter().all(|path| matches!(monitor.ask("GET", path, "", "").0, 400 | 404)));
}

#[test]
fn what_was_sent_around_an_alarm_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let [film, state] = ["film.mp4", "state"].map(|name| folder.path().join(name));
    encode(&film, "format=I420", 500);
    let [film, state] = [film.to_str().unwrap(), state.to_str().unwrap()];
    let mut monitor = Monitor::start(&[
        film,
        "low=x264:10",
        "--alarm-low",
        "99",
        "--alarm-hold",
        "1",
        "--incidents",
        "2",
        "--state",
        state,
    ]);
    monitor.wait_for(&["low", "alarm raised"]);
    let end = Instant::now() + EVENT_TIMEOUT;
    let is_alarm = |alarm: &Value| alarm["label"] == "low" && alarm["kind"] == "alarm";
    let (incident, received) = loop {
        let folders = fs::read_dir(format!("{state}/incidents")).unwrap().flatten().map(|entry| entry.path());
        // While an incident is written, its folder has another name.
        let complete = folders.filter(|path| !path.to_str().unwrap().contains(".part"));
        let read = |path: PathBuf| {
            let text = fs::read(path.join("incident.json")).unwrap();
            (path, serde_json::from_slice::<Value>(&text).unwrap())
        };
        let mut found = complete.map(read);
        if let Some(found) =
            found.find(|(_, received)| received["alarms"].as_array().unwrap().iter().any(is_alarm))
        {
            break found;
        }
        assert!(Instant::now() < end, "nothing was kept");
        thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(received["channel"], "live");
    let files = received["files"].as_array().unwrap();
    let streams: Vec<_> = files.iter().map(|file| file["stream"].as_str().unwrap()).collect();
    assert_eq!(streams, ["reference", "low"]);
    for file in files {
        let path = incident.join(file["file"].as_str().unwrap());
        run(&format!(
            "filesrc location={} ! matroskademux ! h264parse ! avdec_h264 ! fakesink",
            path.display()
        ));
    }
}

/// Answers the next request to a server with a status, and returns its body.
fn answer(server: &TcpListener, status: &'static str) -> Value {
    serde_json::from_slice(&answer_with(server, |_| status)).unwrap()
}

/// Answers the next request with a status that depends on its first line, and returns its body.
pub fn answer_with(server: &TcpListener, status: impl Fn(&str) -> &'static str) -> Vec<u8> {
    let mut stream = server.accept().unwrap().0;
    stream.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line).unwrap();
    let status = status(&line);
    line.clear();
    while reader.read_line(&mut line).unwrap() > 2 {
        if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    stream
        .write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").as_bytes())
        .unwrap();
    body
}

#[test]
fn an_alarm_is_sent_until_the_webhook_accepts_it() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/services/hunter2?token=hunter2", server.local_addr().unwrap());
    let monitor = Monitor::with_webhook(&address);
    let alarm = |received: &Value| received["kind"] == "alarm";
    let first = answer(&server, "503 Service Unavailable");
    let again = answer(&server, "200 OK");
    assert_eq!(first, again);
    let mut received = again;
    while !alarm(&received) {
        received = answer(&server, "200 OK");
    }
    assert_eq!(
        (&received["channel"], &received["label"], &received["state"]),
        (&"live".into(), &"low".into(), &"raised".into())
    );
    for kind in ["reference", "distorted", "heatmap"] {
        // The first bytes of a JPEG, in base64.
        assert!(
            received["stills"][kind].as_str().is_some_and(|picture| picture.starts_with("/9j/")),
            "{received:#}"
        );
    }
    // Subscribers receive the end of a removed channel's alarms.
    let last = thread::spawn(move || {
        loop {
            let received = answer(&server, "200 OK");
            if alarm(&received)
                && received["state"] == "cleared"
                && received["text"] == "the channel was removed"
            {
                return;
            }
        }
    });
    let printed = monitor.end();
    assert!(printed.contains("alarm cleared: the channel was removed"), "{printed}");
    last.join().unwrap();
    assert!(!printed.contains("hunter2"));
}

/// The drop-outs of a dead reference follow from its failure, and are not sent.
#[test]
fn a_dead_sender_is_one_incident() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/", server.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["udp://127.0.0.1:47033", "a=test:160x90@25", "b=test:160x90@25", "--stall", "6"];
    let mut command = hipvmaf("monitor");
    command.args(["--plain", "--listen", "127.0.0.1:0", "--webhook", &address]).args(arguments);
    command.arg("--state").arg(folder.path());
    let monitor = Monitor::run(command);
    let followers = |channel: &Value| {
        let alarms = channel["alarms"].as_array().unwrap();
        alarms.iter().filter(|alarm| alarm["follows"] == "reference" && alarm["kind"] == "dropout").count()
    };
    let channel = monitor.poll("/api/channels/live", |channel| followers(channel) > 0);
    let alarm = |channel: &Value| {
        let alarms = channel["alarms"].as_array().unwrap().clone();
        let [alarm] = &alarms.into_iter().filter(|alarm| alarm["follows"].is_null()).collect::<Vec<_>>()[..]
        else {
            panic!("{channel:#}")
        };
        alarm.clone()
    };
    let cause = alarm(&channel);
    assert_eq!((&cause["severity"], &cause["kind"]), (&"critical".into(), &"source".into()));
    let first = answer(&server, "200 OK");
    assert_eq!(
        (&first["kind"], &first["label"], &first["state"]),
        (&"source".into(), &"reference".into(), &"raised".into())
    );
    assert_eq!((&first["alarm"], &first["severity"]), (&cause["alarm"], &"critical".into()));

    // Foreign pages can send forms, but no JSON.
    let json = "Content-Type: application/json\r\n";
    let acknowledge = format!("/api/channels/live/alarms/{}/acknowledge", cause["alarm"]);
    assert_eq!(
        monitor.ask("POST", &acknowledge, "Content-Type: text/plain\r\n", "{\"by\": \"anna\"}").0,
        415
    );
    assert_eq!(monitor.ask("POST", &acknowledge, json, "{\"by\": \"\"}").0, 422);
    assert_eq!(
        monitor.ask("POST", "/api/channels/live/alarms/1/acknowledge", json, "{\"by\": \"anna\"}").0,
        404
    );
    assert_eq!(monitor.ask("POST", &acknowledge, json, "{\"by\": \"anna\"}").0, 204);
    // The drop-outs were not sent, so this is the second message.
    let second = answer(&server, "200 OK");
    assert_eq!(
        (&second["state"], &second["text"], &second["alarm"]),
        (&"acknowledged".into(), &"anna".into(), &cause["alarm"])
    );
    assert_eq!(alarm(&monitor.json("/api/channels/live"))["acknowledged"]["by"], "anna");

    let body = "{\"until\": 4000000000, \"by\": \"bo\"}";
    assert_eq!(monitor.ask("POST", "/api/channels/live/mute", json, body).0, 204);
    let muted = monitor.json("/api/channels/live")["muted"].clone();
    assert_eq!((&muted["by"], &muted["until"]), (&"bo".into(), &4e9.into()));
    assert!(monitor.get("/metrics").contains("\nhipvmaf_channel_muted{channel=\"live\"} 1\n"));
    assert_eq!(answer(&server, "200 OK")["kind"], "mute");
    monitor.poll("/api/channels", |overview| overview["webhooks"][0]["delivered"] == 3);
    drop(server);
    kept_by_a_kill(monitor, &address, folder.path(), &arguments, &cause);
    let state = folder.path().to_str().unwrap();
    let again = Monitor::start(&["test:160x90@25", "low=x264:300", "--state", state]);
    assert_eq!(again.json("/api/channels/live")["muted"], muted);
    assert_eq!(again.ask("POST", "/api/channels/live/mute", json, "{\"by\": \"bo\"}").0, 204);
    assert!(again.json("/api/channels/live")["muted"].is_null());
}

/// After SIGKILL, the incident goes on under its number, acknowledged, and its end is delivered.
#[track_caller]
fn kept_by_a_kill(monitor: Monitor, address: &str, folder: &Path, arguments: &[&str], cause: &Value) {
    monitor.poll("/api/channels", |overview| overview["history"]["waiting"] == 0);
    let state = folder.to_str().unwrap();
    // By SIGKILL, which it cannot handle.
    drop(monitor);
    let again = Monitor::start(&[arguments, &["--webhook", address, "--state", state][..]].concat());
    let channel = again.json("/api/channels/live");
    let alarms = channel["alarms"].as_array().unwrap();
    let same = alarms.iter().find(|alarm| alarm["alarm"] == cause["alarm"]).unwrap();
    assert_eq!(
        (&same["acknowledged"]["by"], &same["since"]),
        (&"anna".into(), &cause["since"]),
        "{channel:#}"
    );
    // The source fails again, which is no other alarm.
    again.poll("/api/channels/live", |channel| stream(channel, "reference")["failures"] != 0);
    let sources = again.json("/api/channels/live")["alarms"].as_array().unwrap().clone();
    assert_eq!(sources.iter().filter(|alarm| alarm["kind"] == "source").count(), 1);
    again.end();
}

/// Alarms that were not delivered before SIGKILL are delivered by the next run, in their order.
#[test]
fn undelivered_alarms_outlive_a_kill() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/hunter2", server.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap();
    let start = || {
        Monitor::start(&[
            "udp://127.0.0.1:47034",
            "a=udp://127.0.0.1:47035",
            "--stall",
            "1",
            "--webhook",
            &address,
            "--state",
            state,
        ])
    };
    let monitor = start();
    let sources = |channel: &Value| -> Vec<Value> {
        let alarms = channel["alarms"].as_array().unwrap().iter();
        alarms.filter(|alarm| alarm["kind"] == "source").map(|alarm| alarm["alarm"].clone()).collect()
    };
    let raised = sources(&monitor.poll("/api/channels/live", |channel| !sources(channel).is_empty()));
    // The server takes no connections yet.
    monitor.poll("/api/channels", |overview| overview["webhooks"][0]["waiting"].as_u64() > Some(0));
    monitor.poll("/api/channels", |overview| overview["history"]["waiting"] == 0);
    drop(monitor);
    let bytes = fs::read(folder.path().join("history.redb")).unwrap();
    assert!(!bytes.windows(7).any(|bytes| bytes == b"hunter2"));

    let again = start();
    let (send, received) = channel();
    thread::spawn(move || while send.send(answer(&server, "200 OK")).is_ok() {});
    again.poll("/api/channels", |overview| overview["webhooks"][0]["delivered"].as_u64() > Some(0));
    let received: Vec<_> = received.try_iter().collect();
    let is_first = |message: &&Value| message["alarm"] == raised[0] && message["state"] == "raised";
    assert!(received.iter().any(|message| is_first(&message)), "{raised:?} {received:#?}");
}

/// Returns the paths of all fields of an answer.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if !path.ends_with("streams[].alarms") => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                if !value.is_object() && !value.is_array() {
                    found.insert(path.clone());
                }
                paths(value, &path, found);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            items.iter().for_each(|item| paths(item, &format!("{path}[]"), found));
        }
        _ => {
            found.insert(path.into());
        }
    }
}

/// The table in docs/live.md has all fields, and no others.
#[test]
fn the_api_is_documented() {
    let docs = include_str!("../../../../docs/live.md");
    let (_, table) = docs.split_once("\n### Fields of the API\n").unwrap();
    let (table, _) = table.split_once("\n### ").unwrap();
    let rows =
        table.lines().filter(|line| line.starts_with("| `")).map(|line| line.split(" | ").next().unwrap());
    let documented: BTreeSet<_> =
        rows.flat_map(|row| row.split('`').skip(1).step_by(2)).map(String::from).collect();

    let address = "http://127.0.0.1:9/";
    let monitor = Monitor::with_webhook(address);
    let is_full = |channel: &Value| {
        let low = stream(channel, "low");
        !channel["alarms"][0].is_null() && low["worst"].is_object() && low["last"].is_object()
    };
    let channel = monitor.poll("/api/channels/live", is_full);
    let json = "Content-Type: application/json\r\n";
    let path = format!("/api/channels/live/alarms/{}/acknowledge", channel["alarms"][0]["alarm"]);
    assert_eq!(monitor.ask("POST", &path, json, "{\"by\": \"anna\"}").0, 204);
    let body = "{\"until\": 4000000000, \"by\": \"anna\"}";
    assert_eq!(monitor.ask("POST", "/api/channels/live/mute", json, body).0, 204);
    let mut channel = monitor.json("/api/channels/live");
    let mut found = BTreeSet::new();
    let mut overview = monitor.json("/api/channels");
    paths(&channel["events"].take(), "events", &mut found);
    channel.as_object_mut().unwrap().remove("events");
    overview["channels"] = Value::Array(vec![channel]);
    paths(&overview, "", &mut found);
    let objects = ["muted", "alarms[].acknowledged", "streams[].last", "streams[].worst"];
    let is_object = |path: &String| objects.iter().any(|object| *path == format!("channels[].{object}"));
    found.retain(|path| !is_object(path));
    let missing: Vec<_> = found.symmetric_difference(&documented).collect();
    assert!(missing.is_empty(), "in one only: {missing:#?}");
}

#[test]
fn the_unit_is_confined() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/deploy/hipvmaf-monitor.service");
    let checked =
        Command::new("systemd-analyze").args(["security", "--offline=yes", "--threshold=30", unit]).output();
    // Only systems with systemd can say.
    let Ok(checked) = checked else { return };
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

/// Alarms, windows and figures are of a feature, in dB, without a model.
#[test]
fn scores_can_be_of_a_feature() {
    let features = ["--model", "none", "--set", "features=xpsnr", "--score", "xpsnr_y", "--stills", "false"];
    let mut command = hipvmaf("monitor");
    command.args(["--plain", "--listen", "127.0.0.1:0", "test:160x90@25", "low=x264:50"]).args(features);
    command.args(["--alarm-low", "55", "--alarm-hold", "1"]);
    let mut monitor = Monitor::run(command);
    monitor.wait_for(&["alarm raised", "threshold 55"]);
    monitor.wait_for(&["low", "xpsnr_y", "lowest"]);
    let channel = monitor.poll("/api/channels/live", |channel| channel["score"].is_f64());
    let score = channel["score"].as_f64().unwrap();
    assert!((10.0..55.0).contains(&score), "{channel:#}");
    assert_eq!((&channel["score_of"], &channel["scale"]["unit"]), (&"xpsnr_y".into(), &"dB".into()));
    let metrics = monitor.get("/metrics");
    assert!(
        metrics.lines().any(|line| line.starts_with("hipvmaf_score{") && line.contains("xpsnr_y")),
        "{metrics}"
    );

    let mut wrong = Monitor::start(&["test:160x90@25", "low=x264:50", "--score", "xpsnr_y"]);
    wrong.wait_for(&["channel raised", "xpsnr_y"]);
}

#[test]
fn a_webhook_can_be_tested() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/hunter2", server.local_addr().unwrap());
    let test = |address: &str| {
        let mut command = hipvmaf("monitor");
        command.args(["test:", "x264:300", "--test-webhook", "--webhook", address]);
        Ended::of(command)
    };
    let answers = thread::spawn(move || [answer(&server, "200 OK"), answer(&server, "500 Error")]);
    let [good, bad] = [(); 2].map(|()| test(&address));
    assert!(good.status.success() && good.stdout.ends_with(": delivered\n"), "{}", good.stdout);
    assert!(bad.status.code() == Some(1) && bad.stdout.contains("500"), "{} {}", bad.stdout, bad.stderr);
    assert!(!(good.stdout + &bad.stdout).contains("hunter2"));
    assert_eq!(answers.join().unwrap()[0]["kind"], "test");
}

#[test]
fn undelivered_alarms_are_reported() {
    // A server that does not respond: connections wait to be accepted.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/", server.local_addr().unwrap());
    let mut monitor = Monitor::with_webhook(&address);
    monitor.wait_for(&["alarm raised"]);
    let printed = monitor.end();
    assert!(printed.contains("did not receive the last alarms (2)"), "{printed}");
}

#[test]
fn credentials_are_nowhere() {
    let monitor = Monitor::start(&[
        "test:160x90@25",
        "low=x264:300",
        "srt://127.0.0.1:47019?mode=caller&passphrase=hunter2hunter2&streamid=hunter2stream",
        "camera=rtsp://hunter2user:hunter2word@127.0.0.1:47020/live",
        "push=rtmp://127.0.0.1:47021/app/hunter2key",
        "--stall",
        "2",
    ]);
    monitor.poll("/api/channels/live", |channel| {
        channel["streams"].as_array().unwrap().iter().skip(2).all(|stream| stream["failures"] != 0)
    });
    let pages = [
        "/api/channels",
        "/api/channels/live",
        "/api/channels/live/events",
        "/metrics",
        "/",
        "/channel?name=live",
    ];
    let answers = pages.map(|page| monitor.get(page)).concat();
    assert!(answers.contains("srt://127.0.0.1:47019?…") && answers.contains("rtsp://127.0.0.1:47020/live"));
    let all = answers + &monitor.end();
    assert!(!all.contains("hunter2"), "{all}");
}

#[test]
fn others_need_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "0123456789abcdef0123\n").unwrap();
    let mut command = hipvmaf("monitor");
    command.args(["--plain", "--listen", "0.0.0.0:0", "test:160x90@25", "low=x264:300"]);
    command.arg("--token-file").arg(&token);
    let monitor = Monitor::run(command);
    let status = |path, head| monitor.ask("GET", path, head, "").0;
    for path in ["/metrics", "/api/channels", "/api/stream", "/", "/channel", "/assets/uplot.js"] {
        assert_eq!(status(path, ""), 401, "{path}");
        assert_eq!(status(path, "Authorization: Bearer 0123456789abcdef0124\r\n"), 401, "{path}");
        assert_eq!(status(path, "Accept: text/html\r\n"), 303, "{path}");
    }
    let deep = monitor.ask("GET", "/channel?name=a%20b", "Accept: text/html\r\n", "").1;
    let login = deep.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
    assert_eq!(login, "/login?next=/channel?name=a%2520b");
    assert_eq!(status("/metrics", "Authorization: Bearer 0123456789abcdef0123\r\n"), 200);
    assert_eq!(status("/healthz", ""), 200);

    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    assert_eq!(status("/login", ""), 200);
    assert_eq!(monitor.ask("POST", "/login", form, "token=wrong").0, 401);
    let (given, answer) = monitor.ask("POST", login, form, "token=0123456789abcdef0123");
    assert!(given == 303 && answer.contains("location: /channel?name=a%20b\r\n"), "{answer}");
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.contains("HttpOnly") && !cookie.contains("0123456789abcdef0123"), "{cookie}");
    let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    assert_eq!(status("/api/channels", &cookie), 200);
    assert_eq!(monitor.ask("GET", "/logout", &cookie, "").0, 405);
    let (left, answer) = monitor.ask("POST", "/logout", &cookie, "");
    assert!(left == 303 && answer.contains("set-cookie: hipvmaf=; Path=/; Max-Age=0;"), "{answer}");
}

/// A page of a foreign host, whose name leads to this machine, reads nothing.
#[test]
fn foreign_hosts_are_refused() {
    let monitor = Monitor::start(&["test:160x90@25", "low=x264:300"]);
    let status = |path: &str, host: &str| {
        let answer = request(
            &monitor.address,
            &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
        );
        answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    for path in ["/", "/api/channels", "/api/stream", "/metrics", "/assets/common.js"] {
        assert_eq!(status(path, "evil.example:8080"), 421, "{path}");
    }
    assert_eq!((status("/api/channels", "localhost:1"), status("/healthz", "evil.example")), (200, 200));
}

/// Returns the answer to a request.
fn request(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = vec![];
    stream.read_to_end(&mut answer).unwrap();
    // Pictures are not text.
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn nothing_can_be_changed_through_the_api() {
    let monitor = Monitor::start(&["test:160x90@25", "low=x264:300"]);
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        for path in ["/api/channels", "/api/channels/live", "/api/channels/live/history", "/metrics", "/"] {
            assert_eq!(monitor.ask(method, path, "", "{}").0, 405, "{method} {path}");
        }
    }
    assert_eq!(monitor.ask("GET", "/api/channels/none", "", "").0, 404);
    assert_eq!(monitor.ask("GET", "/api/channels/live/history?from=x", "", "").0, 400);
    assert_eq!(monitor.ask("GET", "/../etc/passwd", "", "").0, 404);
}

#[test]
fn clients_that_do_not_read_do_not_block_others() {
    let monitor = Monitor::start(&["test:160x90@25", "low=x264:300"]);
    let stalled: Vec<_> = (0..200)
        .map(|i| {
            let mut stream = TcpStream::connect(&monitor.address).unwrap();
            // Some open the endless stream, some request a page repeatedly, and some never finish their request.
            let request = match i % 3 {
                0 => "GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n".into(),
                1 => "GET /assets/uplot.js HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(50),
                _ => "GET / HTTP/1.1\r\nHost: ".to_owned(),
            };
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    monitor.poll("/api/channels", |overview| overview["channels"][0]["score"].is_f64());
    let metrics = monitor.get("/metrics");
    for sample in
        ["channel_up{channel=\"live\"} 1", "score{channel=\"live\",pad=\"dist_sink\",label=\"low\",model="]
    {
        assert!(metrics.contains(&format!("\nhipvmaf_{sample}")), "no {sample} in\n{metrics}");
    }
    drop(stalled);
}
