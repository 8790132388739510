// SPDX-License-Identifier: MPL-2.0

//! The programs of examples/, run as a user does.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gst::prelude::*;
use serde_json::Value;

/// Cargo builds examples beside the tests when it is asked for all of them, not with `--test programs` alone.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(path.exists(), "there is no {}: build it with cargo build --example {name}", path.display());
    Command::new(path)
}

/// Runs a pipeline to its end, with the element in it if wanted.
#[track_caller]
fn run(pipeline: &str) {
    gst::init().unwrap();
    gsthipvmaf::plugin_register_static().unwrap();
    let pipeline = gst::parse::launch(pipeline).unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let message = pipeline.bus().unwrap().timed_pop_filtered(None, &kinds).unwrap();
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(message.type_(), gst::MessageType::Eos, "{message:?}");
}

/// An encoding that takes minutes to score: a short one, over and over.
fn long_film(folder: &Path) -> PathBuf {
    let [short, long] = ["short.h264", "long.h264"].map(|name| folder.join(name));
    run(&format!(
        "videotestsrc num-buffers=100 pattern=ball ! video/x-raw,format=I420,width=640,height=360,framerate=25/1 \
         ! x264enc bitrate=500 speed-preset=ultrafast ! video/x-h264,stream-format=byte-stream \
         ! filesink location={}",
        short.display()
    ));
    fs::write(&long, fs::read(&short).unwrap().repeat(500)).unwrap();
    long
}

/// What a program left behind.
struct Ended {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Ended {
    #[track_caller]
    fn of(mut command: Command) -> Self {
        let output = command.stdin(Stdio::null()).output().unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        Self { status: output.status, stdout, stderr }
    }
}

fn send(signal: &str, child: &Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
}

/// Runs a program until it has printed a word this many times to standard output, or to standard error, and sends it a
/// signal then.
#[track_caller]
fn interrupt(mut command: Command, signal: &str, word: &str, times: usize, on_error: bool) -> Ended {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout: Box<dyn Read + Send> = Box::new(child.stdout.take().unwrap());
    let mut stderr: Box<dyn Read + Send> = Box::new(child.stderr.take().unwrap());
    if on_error {
        std::mem::swap(&mut stdout, &mut stderr);
    }
    let other = thread::spawn(move || std::io::read_to_string(stderr).unwrap());
    let mut lines = BufReader::new(stdout).lines().map(Result::unwrap);
    let mut watched: Vec<_> = lines.by_ref().filter(|line| line.contains(word)).take(times).collect();
    assert_eq!(watched.len(), times, "the program ended by itself: {}", other.join().unwrap());
    send(signal, &child);
    watched.extend(lines);
    let (mut stdout, mut stderr) = (watched.join("\n"), other.join().unwrap());
    if on_error {
        std::mem::swap(&mut stdout, &mut stderr);
    }
    Ended { status: child.wait().unwrap(), stdout, stderr }
}

/// What the element logs of each frame that it compares.
fn logs_frames(mut command: Command) -> Command {
    command.env("GST_DEBUG", "hipvmaf:LOG").env("GST_DEBUG_NO_COLOR", "1");
    command
}
const FRAME: &str = " compared";

#[test]
fn score_ends_with_the_scores_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let film = long_film(folder.path());
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let [results, plot] = ["results.json", "plot.svg"].map(|name| folder.path().join(signal).join(name));
        fs::create_dir(folder.path().join(signal)).unwrap();
        let mut score = logs_frames(example("score"));
        score.args([&film, &film]).arg("--results").arg(&results).arg("--plot").arg(&plot);
        let ended = interrupt(score, signal, FRAME, 40, true);
        assert_eq!(ended.status.code(), Some(code), "{}", ended.stderr);
        assert!(ended.stderr.contains("interrupted: the scores are those of the first "), "{}", ended.stderr);

        let file: Value = serde_json::from_slice(&fs::read(&results).unwrap()).unwrap();
        let frames = file["frames"].as_array().unwrap().len();
        assert!((39..50_000).contains(&frames), "{frames}");
        assert!(file["pooled_metrics"]["vmaf_v0.6.1"]["mean"].is_f64(), "{}", file["pooled_metrics"]);
        assert!(ended.stdout.contains(&format!("{frames} frames scored")), "{}", ended.stdout);
        assert!(fs::read_to_string(&plot).unwrap().ends_with("</svg>\n"));
    }
}

#[test]
fn ladder_ends_with_the_scores_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let film = long_film(folder.path());
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut ladder = logs_frames(example("ladder"));
        ladder.args([&film, &film]).args(["--x264", "320x180:100"]);
        let ended = interrupt(ladder, signal, FRAME, 40, true);
        assert_eq!(ended.status.code(), Some(code), "{}", ended.stderr);
        assert!(ended.stderr.contains("interrupted: "), "{}", ended.stderr);
        for rendition in ["long.h264", "320x180 100 kbit/s"] {
            let row = ended.stdout.lines().find(|line| line.contains(rendition)).unwrap();
            let frames = row.split(rendition).nth(1).unwrap().split_whitespace().next().unwrap();
            assert!((39..50_000).contains(&frames.parse().unwrap()), "{row}");
        }
    }
}

#[test]
fn monitor_ends_with_success() {
    for signal in ["INT", "TERM"] {
        let mut monitor = example("monitor");
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
        read_meta.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/read_meta.py")).args([&film, &film]);
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
fn a_second_signal_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().join("nothing.mp4");
    assert!(Command::new("mkfifo").arg(&nothing).status().unwrap().success());
    // To open it takes as long as nobody writes.
    let mut child = example("score").args([&nothing, &nothing]).spawn().unwrap();
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
    send("TERM", &child);
    assert_eq!(child.wait().unwrap().signal(), Some(signal_hook::consts::SIGTERM));
}

/// Encodes a test picture. The element takes a while to be sure that a decoder will not change its format.
fn encode(path: &Path, caps: &str, bitrate: u32) {
    run(&format!(
        "videotestsrc num-buffers=400 pattern=ball ! video/x-raw,{caps},width=160,height=90,framerate=25/1 \
         ! x264enc bitrate={bitrate} speed-preset=ultrafast ! mp4mux ! filesink location={}",
        path.display()
    ));
}

#[test]
fn depths_are_not_converted() {
    let folder = tempfile::tempdir().unwrap();
    let [hdr, low, sdr] = ["hdr.mp4", "low.mp4", "sdr.mp4"].map(|name| folder.path().join(name));
    let pq = "format=I420_10LE,colorimetry=bt2100-pq";
    encode(&hdr, pq, 500);
    encode(&low, pq, 20);
    encode(&sdr, "format=I420,colorimetry=bt709", 500);

    for (reference, distorted, formats) in
        [(&hdr, &sdr, ["I420_10LE", "I420"]), (&sdr, &hdr, ["I420", "I420_10LE"])]
    {
        for program in ["score", "ladder"] {
            let mut command = example(program);
            command.args([reference, distorted]);
            let ended = Ended::of(command);
            assert_eq!(ended.status.code(), Some(1), "{}{}", ended.stdout, ended.stderr);
            let [r, d] = formats;
            let what =
                format!("the reference is {r} and the distorted video on dist_sink is {d}, which differ in");
            assert!(ended.stderr.contains(&what), "{}", ended.stderr);
            assert!(ended.stderr.contains("videoconvert ! video/x-raw,format="), "{}", ended.stderr);
        }
    }

    let [program, element] = ["program.json", "element.json"].map(|name| folder.path().join(name));
    let mut score = example("score");
    score.args([&hdr, &low]).arg("--results").arg(&program);
    let ended = Ended::of(score);
    assert!(ended.status.success() && !ended.stderr.contains("converted"), "{}", ended.stderr);
    let input = |path: &Path, pad: &str| {
        let path = path.display();
        format!("filesrc location={path} ! qtdemux ! avdec_h264 ! video/x-raw,{pq} ! queue ! score.{pad} ")
    };
    run(&format!(
        "{}{} hipvmaf name=score results-filename={} ! fakesink",
        input(&hdr, "ref_sink"),
        input(&low, "dist_sink"),
        element.display()
    ));
    let frames = |path: &Path| {
        let file: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        file["frames"].as_array().unwrap().clone()
    };
    assert_eq!(frames(&program).len(), 400);
    assert_eq!(frames(&program), frames(&element));
}

#[test]
fn a_conversion_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let film = folder.path().join("film.mov");
    run(&format!(
        "videotestsrc num-buffers=10 ! video/x-raw,format=RGB,width=160,height=90,framerate=25/1 ! pngenc \
         ! qtmux ! filesink location={}",
        film.display()
    ));
    for program in ["score", "ladder"] {
        let mut command = example(program);
        command.args([&film, &film]);
        let ended = Ended::of(command);
        assert!(ended.status.success(), "{}", ended.stderr);
        let warning = "film.mov is RGB, which hipvmaf does not take: it is converted to ";
        assert_eq!(ended.stderr.matches(warning).count(), 2, "{}", ended.stderr);
    }
}

#[test]
fn a_file_without_video_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let sound = folder.path().join("sound.wav");
    run(&format!("audiotestsrc num-buffers=10 ! wavenc ! filesink location={}", sound.display()));
    for program in ["score", "ladder"] {
        let mut command = example(program);
        command.args([&sound, &sound]);
        let ended = Ended::of(command);
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stdout);
        assert!(ended.stderr.contains("sound.wav has no video"), "{}", ended.stderr);
    }
}
