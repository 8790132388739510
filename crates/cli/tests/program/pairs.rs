// SPDX-License-Identifier: MPL-2.0

//! Frames are paired correctly, whatever their timestamps say.
//!
//! Each frame shows its number as a pattern. In frames with different numbers, most samples of a strip differ: their
//! PSNR is below 25 dB, and that of correct pairs is above 30. So the results show which frames were compared.

use std::path::Path;

use gst::ClockTime;
use gst::prelude::*;
use serde_json::Value;

use crate::common::{Ended, frames, hipvmaf};

const WIDTH: usize = 128;
const HEIGHT: usize = 96;
/// Frames of a film, at 25 per second.
const FILM: u32 = 40;
const FRAME: u64 = 40_000_000;

/// Frames: number in the film, and timestamp.
pub type Shown = Vec<(u32, u64)>;

/// Returns the picture with this number: a texture that moves and sometimes stands still, above a strip with the
/// number.
fn picture(number: u32) -> Vec<u8> {
    let scene = number / 25;
    let moved = if (12..20).contains(&number) { 12 } else { number };
    let bits = u64::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let luma = (0..WIDTH * HEIGHT).map(|i| {
        let (x, y) = (i % WIDTH, i / WIDTH);
        if y >= HEIGHT - 16 {
            let bit = bits >> (x / 8 + (y + 16 - HEIGHT) / 8 * 16) & 1;
            return if bit == 1 { 200 } else { 50 };
        }
        let wave = ((x + moved as usize) as f64 / (9.0 + f64::from(scene))).sin() + (y as f64 / 7.0).cos();
        (120.0 + 40.0 * wave) as u8
    });
    luma.chain(std::iter::repeat_n(128, WIDTH * HEIGHT / 2)).collect()
}

/// Returns frames of the film at its rate.
pub fn film(numbers: impl IntoIterator<Item = u32>) -> Shown {
    numbers.into_iter().zip(0..).map(|(number, place)| (number, place * FRAME)).collect()
}

/// Returns frames with their times in the film.
pub fn timed(numbers: impl IntoIterator<Item = u32>) -> Shown {
    numbers.into_iter().map(|number| (number, u64::from(number) * FRAME)).collect()
}

/// Delays frames.
fn later(mut shown: Shown, by: u64) -> Shown {
    shown.iter_mut().for_each(|(_, time)| *time += by);
    shown
}

/// Gives frames varying distances, in a time base that is not a frame rate.
fn varying(mut shown: Shown) -> Shown {
    let jitter = [0, 13, -9, 16, 5, -14, 8];
    for (place, (_, time)) in shown.iter_mut().enumerate().skip(1) {
        *time = time.saturating_add_signed(jitter[place % jitter.len()] * 1_000_000);
    }
    shown
}

/// Writes frames of the film through a part of a pipeline.
#[track_caller]
pub fn write(shown: &Shown, pipeline: &str) {
    write_pictures(shown, (WIDTH, HEIGHT), picture, pipeline);
}

/// Writes frames through a part of a pipeline.
#[track_caller]
fn write_pictures(
    shown: &Shown,
    (width, height): (usize, usize),
    picture: impl Fn(u32) -> Vec<u8>,
    pipeline: &str,
) {
    gst::init().unwrap();
    let constant = shown.windows(2).all(|pair| pair[1].1 - pair[0].1 == FRAME);
    let rate = if constant { "25/1" } else { "0/1" };
    let pipeline = gst::parse::launch(&format!(
        "appsrc name=source format=time caps=video/x-raw,format=I420,width={width},height={height},framerate={rate} \
         ! {pipeline}"
    ));
    let pipeline = pipeline.unwrap().downcast::<gst::Pipeline>().unwrap();
    let source = pipeline.by_name("source").and_downcast::<gst_app::AppSrc>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    for (place, (number, time)) in shown.iter().enumerate() {
        let mut buffer = gst::Buffer::from_slice(picture(*number));
        let new = buffer.get_mut().unwrap();
        new.set_pts(ClockTime::from_nseconds(*time));
        let lasts = shown.get(place + 1).map_or(FRAME, |(_, next)| next - time);
        new.set_duration(ClockTime::from_nseconds(lasts));
        source.push_buffer(buffer).unwrap();
    }
    source.end_of_stream().unwrap();
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let message = pipeline.bus().unwrap().timed_pop_filtered(None, &kinds).unwrap();
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(message.type_(), gst::MessageType::Eos, "{message:?}");
}

const X264: &str = "x264enc pass=quant quantizer=12 speed-preset=ultrafast key-int-max=10";
const WITH_B: &str =
    "x264enc pass=quant quantizer=12 speed-preset=ultrafast bframes=2 b-adapt=false key-int-max=10";
/// Sound from the beginning, so that the video may begin later.
const SOUND: &str =
    "audiotestsrc num-buffers=100 ! audio/x-raw,rate=44100,channels=2 ! avenc_aac ! queue ! mux.";

/// Returns the pipeline that writes a container, and the file to read.
fn container(kind: &str, folder: &Path, name: &str) -> (String, String) {
    let file = |ending: &str| folder.join(format!("{name}.{ending}")).display().to_string();
    let muxed = |coder: &str, muxer: &str, ending: &str| {
        let file = file(ending);
        (format!("{coder} ! {muxer} ! filesink location={file}"), file)
    };
    match kind {
        "mp4" => muxed(WITH_B, "h264parse ! mp4mux", "mp4"),
        "fmp4" => muxed(WITH_B, "h264parse ! mp4mux fragment-duration=300", "mp4"),
        "mkv" => muxed(X264, "h264parse ! matroskamux", "mkv"),
        "mkv+b" => muxed(WITH_B, "h264parse ! matroskamux", "mkv"),
        "webm" => muxed("vp8enc deadline=1 min-quantizer=2 max-quantizer=8", "webmmux", "webm"),
        "ts" => muxed(WITH_B, "h264parse ! mpegtsmux", "ts"),
        "mov" => muxed("avenc_mpeg4 bitrate=4000000", "qtmux", "mov"),
        "flv" => muxed(WITH_B, "h264parse ! flvmux", "flv"),
        "avi" => muxed("avenc_mpeg4 bitrate=4000000", "avimux", "avi"),
        "avi+h264" => muxed(X264, "h264parse ! avimux", "avi"),
        "h264" => muxed(WITH_B, "h264parse ! video/x-h264,stream-format=byte-stream", "h264"),
        "y4m" => muxed("videorate", "y4menc", "y4m"),
        "mp4+sound" => muxed(WITH_B, &format!("h264parse ! queue ! mp4mux name=mux {SOUND} mux."), "mp4"),
        "ts+sound" => muxed(WITH_B, &format!("h264parse ! queue ! mpegtsmux name=mux {SOUND} mux."), "ts"),
        "flv+sound" => muxed(WITH_B, &format!("h264parse ! queue ! flvmux name=mux {SOUND} mux."), "flv"),
        "hls" => {
            let list = file("m3u8");
            let segments = folder.join(format!("{name}%02d.ts"));
            let sink = format!(
                "hlssink2 target-duration=1 max-files=0 playlist-length=0 playlist-location={list} location={}",
                segments.display()
            );
            (format!("{WITH_B} ! h264parse ! {sink}"), list)
        }
        "png" => {
            let pattern = folder.join(format!("{name}_%03d.png")).display().to_string();
            (
                format!(
                    "videoconvert ! video/x-raw,format=GRAY8 ! pngenc ! multifilesink location={pattern}"
                ),
                pattern,
            )
        }
        other => panic!("{other}"),
    }
}

/// Expected pairs, by frame numbers in both files.
#[derive(Debug, Default, PartialEq)]
struct Expected {
    pairs: usize,
    unpaired: Vec<u64>,
    decimated: Vec<u64>,
    /// Contents of the distorted frames that are omitted: of a frame and its repetition, either one.
    left_out: Vec<u64>,
}

impl Expected {
    /// Derives the expectation from the numbers in the frames. Of frames with the same number, the first has the
    /// partner.
    fn of(reference: &Shown, distorted: &Shown) -> Self {
        let mut expected = Self::default();
        let mut taken = vec![];
        for (i, (number, _)) in reference.iter().enumerate() {
            let behind = taken.last().map_or(0, |last| last + 1);
            match distorted.iter().skip(behind).position(|(other, _)| other == number) {
                Some(j) => taken.push(behind + j),
                None => expected.unpaired.push(i as u64),
            }
        }
        expected.pairs = taken.len();
        expected.left_out =
            (0..distorted.len()).filter(|j| !taken.contains(j)).map(|j| u64::from(distorted[j].0)).collect();
        expected
    }
}

/// Compares two files, and describes the first difference from the expectation.
fn wrong(name: &str, files: &[String; 2], [reference, distorted]: [&Shown; 2]) -> Option<String> {
    let expected = &Expected::of(reference, distorted);
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results.json");
    let mut command = hipvmaf("score");
    command.args(files).args(["--feature", "psnr", "--backend", "cpu", "--json", "--results"]).arg(&results);
    let ended = Ended::of(command);
    let printed: Value = match serde_json::from_str(&ended.stdout) {
        Ok(printed) if ended.status.success() => printed,
        _ => return Some(format!("{name}: {}", ended.stderr)),
    };
    let scored: Vec<_> =
        frames(&results).iter().filter_map(|frame| frame["metrics"]["psnr_y"].as_f64()).collect();
    let wrong = scored.iter().filter(|psnr| **psnr < 30.0).count();
    let pairing = &printed["renditions"][0]["pairing"];
    let list = |name: &str| -> Vec<u64> {
        pairing[name].as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
    };
    let mut left_out = [list("repeated"), list("unmatched")].concat();
    left_out.iter_mut().for_each(|j| *j = u64::from(distorted[*j as usize].0));
    left_out.sort_unstable();
    let found =
        Expected { pairs: scored.len(), unpaired: list("unpaired"), decimated: list("decimated"), left_out };
    (wrong > 0 || found != *expected).then(|| {
        format!("{name}: {wrong} wrong pairs, {found:?} instead of {expected:?} {pairing} {scored:.1?}")
    })
}

/// Writes two films and compares them.
fn compare(problems: &mut String, name: &str, [reference, distorted]: [(&str, &Shown); 2]) {
    let folder = tempfile::tempdir().unwrap();
    let files = [("reference", reference), ("distorted", distorted)].map(|(name, (kind, shown))| {
        let (pipeline, file) = container(kind, folder.path(), name);
        write(shown, &pipeline);
        file
    });
    let name = format!("{name}: {} {}", reference.0, distorted.0);
    problems.extend(wrong(&name, &files, [reference.1, distorted.1]).map(|problem| problem + "\n"));
}

/// Returns the frames of a distorted video.
fn changed(how: &str) -> Shown {
    let all = || 0..FILM;
    let lost = |number: &u32| ![7, 8, 23, 31].contains(number);
    let doubled = |number: u32| std::iter::repeat_n(number, 1 + usize::from([5, 22, 30].contains(&number)));
    match how {
        "whole" => film(all()),
        "late" => later(film(all()), 500_000_000),
        "varying" => varying(film(all())),
        "lost" => timed(all().filter(lost)),
        "lost, made constant" => film(all().filter(lost)),
        "doubled" => film(all().flat_map(doubled)),
        "frozen" => film(all().map(|number| if [9, 24, 33].contains(&number) { number - 1 } else { number })),
        "cut" => film(11..FILM),
        "joined, times kept" => timed(11..FILM),
        "short" => film(0..FILM - 9),
        "varying, lost" => varying(timed(all().filter(lost))),
        other => panic!("{other}"),
    }
}

#[test]
fn frames_of_all_containers_are_paired() {
    let mut problems = String::new();
    let original = changed("whole");
    let every = ["whole", "lost, made constant", "doubled", "frozen", "cut", "short"];
    let any_time = ["late", "varying", "lost", "joined, times kept", "varying, lost"];
    let timed = ["mp4", "fmp4", "mkv+b", "webm", "ts", "hls", "mov", "flv"];
    let untimed = ["avi", "avi+h264", "h264", "y4m", "png"];
    for (turn, kind) in timed.into_iter().chain(untimed).enumerate() {
        let mut cases = vec!["whole", every[1 + turn % 5]];
        match kind {
            // GStreamer's muxer ends these files before their last frame if the rate varies.
            "mp4" | "fmp4" => cases.push(["late", "joined, times kept"][turn % 2]),
            _ if timed.contains(&kind) => cases.push(any_time[turn % 5]),
            _ => {}
        }
        for how in cases {
            // The pictures are grey.
            let kind_of_original = if kind == "png" { "png" } else { "mkv" };
            compare(&mut problems, how, [(kind_of_original, &original), (kind, &changed(how))]);
        }
    }
    assert!(problems.is_empty(), "{problems}");
}

#[test]
fn video_may_begin_after_sound() {
    let mut problems = String::new();
    let [original, late] = ["whole", "late"].map(changed);
    for kind in ["mp4+sound", "ts+sound", "flv+sound"] {
        compare(&mut problems, "late", [("mkv", &original), (kind, &late)]);
    }
    compare(&mut problems, "late", [("flv+sound", &late), ("mp4", &original)]);
    assert!(problems.is_empty(), "{problems}");
}

#[test]
fn originals_may_be_odd() {
    let mut problems = String::new();
    for (how, kind) in
        [("varying, lost", "mkv+b"), ("late", "ts"), ("joined, times kept", "fmp4"), ("doubled", "mkv")]
    {
        let original = changed(how);
        compare(&mut problems, how, [(kind, &original), ("mkv+b", &original)]);
        compare(&mut problems, how, [(kind, &original), ("mp4", &changed("whole"))]);
    }
    assert!(problems.is_empty(), "{problems}");
}

/// Returns a noiseless picture with details of all sizes, which moves by half a sample per frame.
fn slow_picture(number: u32) -> Vec<u8> {
    let (width, height) = SLOW;
    let moved = f64::from(number) / 2.0;
    let luma = (0..width * height).map(|i| {
        let (x, y) = ((i % width) as f64 + moved, (i / width) as f64);
        let wave = |k: f64| ((x * (k * 0.7).cos() + y * (k * 1.3).sin()) * 0.02 * k + k).sin() * 14.0;
        (125.0 + (1..10).map(|k| wave(f64::from(k))).sum::<f64>()).clamp(16.0, 235.0) as u8
    });
    luma.chain(std::iter::repeat_n(128, width * height / 2)).collect()
}

const SLOW: (usize, usize) = (192, 112);

#[test]
fn what_is_lost_in_slow_movement_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let [original, encoded] = ["original.mkv", "encoded.mp4"].map(file);
    let pictures: Vec<_> = (0..70).map(slow_picture).collect();
    let written = |shown: &Shown, coder: &str, muxer: &str, file: &str| {
        let pipeline = format!("{coder} ! h264parse ! {muxer} ! filesink location={file}");
        write_pictures(shown, SLOW, |number| pictures[number as usize].clone(), &pipeline);
    };
    let whole = || 0..70;
    written(
        &film(whole()),
        "x264enc pass=quant quantizer=0 speed-preset=ultrafast",
        "matroskamux",
        &original,
    );
    // At 32, the encoder itself moves too unevenly.
    let coder = "x264enc pass=qual quantizer=24 bframes=3 subme=7 threads=1 option-string=cpu-independent=1";
    let frozen = |number| if [25, 48].contains(&number) { number - 1 } else { number };
    let shifted = whole()
        .filter(|number| *number != 20)
        .flat_map(|number| std::iter::repeat_n(number, 1 + usize::from(number == 50)));
    for (numbers, unpaired, shown) in [
        (whole().collect::<Vec<_>>(), vec![], vec![]),
        (whole().map(frozen).collect(), vec![25, 48], vec![24, 47]),
        (whole().filter(|number| *number != 33).collect(), vec![33], vec![]),
        (shifted.collect(), vec![20], vec![50]),
    ] {
        written(&film(numbers.clone()), coder, "mp4mux", &encoded);
        let mut command = hipvmaf("score");
        command.args([&original, &encoded]).args(["--feature", "psnr", "--backend", "cpu", "--json"]);
        let ended = Ended::of(command);
        let printed: Value = serde_json::from_str(&ended.stdout).unwrap();
        let pairing = &printed["renditions"][0]["pairing"];
        assert_eq!(pairing["unpaired"], serde_json::json!(unpaired), "{pairing}");
        // Of a frame and its repetition, either may be omitted.
        let left_out = ["repeated", "unmatched"].iter().flat_map(|kind| pairing[kind].as_array().unwrap());
        let mut left_out: Vec<_> =
            left_out.map(|j| u64::from(numbers[j.as_u64().unwrap() as usize])).collect();
        left_out.sort_unstable();
        assert_eq!(left_out, shown, "{pairing}");
    }
}

/// At one of the places the encode is noise, so that only a longer look tells that its frames have their times. Elsewhere it
/// repeats a frame, which shows that not all frames are examined.
#[test]
fn long_films_are_examined_at_some_places() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let files = ["original.mkv", "encoded.mkv"].map(file);
    let size = (64, 48);
    let picture = |number: u32| -> Vec<u8> {
        let luma = (0..64 * 48).map(|i| (i % 64 + number, i / 64 + number / 25));
        let luma = luma.map(|(x, y)| 60 + (((x * 37) ^ (y * 11)) % 128) as u8);
        luma.chain(std::iter::repeat_n(128, 64 * 48 / 2)).collect()
    };
    let noise = |number: u32| -> Vec<u8> {
        let bits = |i: u32| (number * 10_000 + i).wrapping_mul(0x9e37_79b9) >> 8;
        (0..64 * 48 * 3 / 2).map(|i| 90 + (bits(bits(i)) % 70) as u8).collect()
    };
    let encoded = |number: u32| match number {
        1599..1620 => noise(number),
        2300 => picture(2299),
        _ => picture(number),
    };
    let written = |picture: &dyn Fn(u32) -> Vec<u8>, file: &str| {
        let pipeline = format!("{X264} ! h264parse ! matroskamux ! filesink location={file}");
        write_pictures(&film(0..3200), size, picture, &pipeline);
    };
    written(&picture, &files[0]);
    written(&encoded, &files[1]);
    let mut command = hipvmaf("score");
    command.args(&files).args(["--model", "none", "--feature", "psnr", "--backend", "cpu", "--json"]);
    let ended = Ended::of(command);
    let printed: Value = serde_json::from_str(&ended.stdout).unwrap();
    let pairing = &printed["renditions"][0]["pairing"];
    assert_eq!(
        (&pairing["method"], &pairing["repeated"]),
        (&"number".into(), &serde_json::json!([])),
        "{pairing}"
    );
}

/// Runs ffmpeg. Returns false if no Python with ffmpeg is available.
#[track_caller]
fn ffmpeg(args: &[&str]) -> bool {
    let Ok(python) = std::env::var("HIPVMAF_PYTHON") else { return false };
    let script = "import subprocess, sys, imageio_ffmpeg as i; sys.exit(subprocess.run([i.get_ffmpeg_exe()] + sys.argv[1:]).returncode)";
    let run = std::process::Command::new(python)
        .args(["-c", script, "-v", "error", "-nostdin", "-y"])
        .args(args)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    true
}

/// Options for ffmpeg to copy or encode frames, and the file to read.
const BY_FFMPEG: [(&str, &str, &str); 6] = [
    ("CMAF", "-c copy -f mp4 -movflags cmaf+frag_keyframe+empty_moov", "mp4"),
    ("CMAF with delayed starts", "-c copy -f mp4 -movflags cmaf+frag_keyframe+delay_moov", "mp4"),
    ("DASH", "-c copy -f dash -seg_duration 0.5", "mpd"),
    ("HLS of CMAF", "-c copy -f hls -hls_segment_type fmp4 -hls_time 0.4 -hls_list_size 0", "m3u8"),
    ("webm", "-c:v libvpx-vp9 -crf 10 -b:v 0 -cpu-used 8 -deadline realtime -fps_mode passthrough", "webm"),
    ("flv", "-c:v libx264 -crf 8 -bf 2 -preset veryfast -fps_mode passthrough", "flv"),
];

/// Writes films of the matrix with ffmpeg, and compares them.
fn compare_by_ffmpeg(problems: &mut String, (kind, options, ending): (&str, &str, &str), how: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let [original, source, encoded] = ["original.mkv", "source.mkv", &format!("encoded.{ending}")].map(file);
    let whole = changed("whole");
    let distorted = changed(how);
    for (shown, file) in [(&whole, &original), (&distorted, &source)] {
        write(shown, &format!("{WITH_B} ! h264parse ! matroskamux ! filesink location={file}"));
    }
    let options: Vec<_> = options.split(' ').collect();
    if ffmpeg(&[&["-copyts", "-i", &source], &options[..], &[&encoded]].concat()) {
        let problem = wrong(&format!("{kind}: {how}"), &[original, encoded], [&whole, &distorted]);
        problems.extend(problem.map(|problem| problem + "\n"));
    }
}

#[test]
fn what_ffmpeg_writes_is_paired() {
    let mut problems = String::new();
    let hows = ["lost, made constant", "varying, lost", "frozen", "late", "doubled", "lost"];
    for (kind, how) in BY_FFMPEG.into_iter().zip(hows) {
        compare_by_ffmpeg(&mut problems, kind, "whole");
        compare_by_ffmpeg(&mut problems, kind, how);
    }
    assert!(problems.is_empty(), "{problems}");
}

#[test]
fn rates_that_ffmpeg_converts_are_paired() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let [original, encoded, results] = ["original.mkv", "encoded.mp4", "results.json"].map(file);
    write(&film(0..FILM), &format!("{X264} ! h264parse ! matroskamux ! filesink location={original}"));
    // At 25 frames per second: the number of pairs, and of repetitions.
    for (rate, pairs, repeated) in
        [("24", 38, 0), ("15", 24, 0), ("12.5", 20, 0), ("30", 40, 8), ("50", 40, 40)]
    {
        let rate = format!("fps={rate}");
        if !ffmpeg(&["-i", &original, "-vf", &rate, "-c:v", "libx264", "-crf", "10", "-bf", "2", &encoded]) {
            return;
        }
        let mut command = hipvmaf("score");
        command.args([
            &*original,
            &encoded,
            "--feature",
            "psnr",
            "--backend",
            "cpu",
            "--json",
            "--results",
            &results,
        ]);
        let ended = Ended::of(command);
        let printed: Value = serde_json::from_str(&ended.stdout).unwrap();
        let scored: Vec<_> = frames(Path::new(&results))
            .iter()
            .filter_map(|frame| frame["metrics"]["psnr_y"].as_f64())
            .collect();
        let left_out = printed["renditions"][0]["pairing"]["repeated"].as_array().unwrap().len();
        assert!(scored.iter().all(|psnr| *psnr > 30.0), "{rate} {scored:.1?} {printed}");
        assert_eq!((scored.len(), left_out), (pairs, repeated), "{rate} {printed}");
    }
}

/// All combinations, for changes in the pairing.
#[test]
#[ignore = "takes minutes"]
fn all_is_paired_everywhere() {
    let mut problems = String::new();
    let untimed = ["avi", "avi+h264", "h264", "y4m"];
    let timed = ["mp4", "fmp4", "mkv+b", "webm", "ts", "hls", "mov", "flv"];
    for original in ["mkv", "ts"] {
        for kind in untimed.into_iter().chain(timed) {
            for how in ["whole", "lost, made constant", "doubled", "frozen", "cut", "short"] {
                compare(&mut problems, how, [(original, &changed("whole")), (kind, &changed(how))]);
            }
        }
        for kind in timed {
            for how in ["late", "joined, times kept", "varying", "lost", "varying, lost"] {
                // GStreamer's muxer ends these files before their last frame if the rate varies.
                if !["mp4", "fmp4"].contains(&kind) || ["late", "joined, times kept"].contains(&how) {
                    compare(&mut problems, how, [(original, &changed("whole")), (kind, &changed(how))]);
                }
            }
        }
    }
    for kind in BY_FFMPEG {
        for how in [
            "whole",
            "lost, made constant",
            "doubled",
            "frozen",
            "cut",
            "short",
            "late",
            "joined, times kept",
            "varying",
            "lost",
            "varying, lost",
        ] {
            // GStreamer's dashdemux ends after the manifest's duration, before the last segments of a video that
            // begins late. The program reports these as lost.
            if (kind.0, how) != ("DASH", "joined, times kept") {
                compare_by_ffmpeg(&mut problems, kind, how);
            }
        }
    }
    assert!(problems.is_empty(), "{problems}");
}
