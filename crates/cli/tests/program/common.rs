// SPDX-License-Identifier: MPL-2.0

//! Clips, and runs of the program to its end or to a signal.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Once;
use std::thread;

use gst::prelude::*;
use serde_json::Value;

/// Returns a command of the program.
pub fn hipvmaf(command: &str) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_hipvmaf"));
    // Critical messages of GLib and GStreamer are bugs of this program.
    program.arg(command).env("G_DEBUG", "fatal-criticals");
    program
}

/// Runs a pipeline to its end. It may contain the element.
#[track_caller]
pub fn run(pipeline: &str) {
    // Only once, although tests run in parallel.
    static READY: Once = Once::new();
    READY.call_once(|| {
        gst::init().unwrap();
        gsthipvmaf::plugin_register_static().unwrap();
    });
    let pipeline = gst::parse::launch(pipeline).unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let message = pipeline.bus().unwrap().timed_pop_filtered(None, &kinds).unwrap();
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(message.type_(), gst::MessageType::Eos, "{message:?}");
}

/// Returns an encode that takes minutes to score: a short one, repeated.
pub fn long_film(folder: &Path) -> PathBuf {
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

/// The output of a program.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    #[track_caller]
    pub fn of(mut command: Command) -> Self {
        let output = command.stdin(Stdio::null()).output().unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        Self { status: output.status, stdout, stderr }
    }
}

pub fn send(signal: &str, child: &Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
}

/// Runs a program until it has printed a word this many times to standard output, or standard error, and then sends a
/// signal.
#[track_caller]
pub fn interrupt(mut command: Command, signal: &str, word: &str, times: usize, on_error: bool) -> Ended {
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

/// Makes the element log each frame that it compares.
pub fn logs_frames(mut command: Command) -> Command {
    command.env("GST_DEBUG", "hipvmaf:LOG").env("GST_DEBUG_NO_COLOR", "1");
    command
}
pub const FRAME: &str = " compared";

/// Encodes a test pattern.
pub fn encode(path: &Path, caps: &str, bitrate: u32) {
    run(&format!(
        "videotestsrc num-buffers=400 pattern=ball ! video/x-raw,{caps},width=160,height=90,framerate=25/1 \
         ! x264enc bitrate={bitrate} speed-preset=ultrafast ! mp4mux ! filesink location={}",
        path.display()
    ));
}

/// Returns the frames of a results file.
#[track_caller]
pub fn frames(path: &Path) -> Vec<Value> {
    let file: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    file["frames"].as_array().unwrap().clone()
}
