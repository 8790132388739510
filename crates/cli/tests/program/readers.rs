// SPDX-License-Identifier: MPL-2.0

//! Video that the program reads itself, in files and streams. The same pictures in another container must have equal
//! scores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{Ended, hipvmaf};

const SIZE: (usize, usize) = (96, 64);
const FRAMES: usize = 6;

/// Returns luma of a moving picture with this bit depth; `noise` is the amount of error.
fn luma(frame: usize, bits: u32, noise: usize) -> Vec<u16> {
    let (width, height) = SIZE;
    let sample = |x: usize, y: usize| {
        let wave = 64 + (x * 5 + y * 3 + frame * 7) % 128;
        (wave + (x * 31 + y * 17 + frame * 13) % (noise + 1)) as u16
    };
    (0..height)
        .flat_map(|y| (0..width).map(move |x| (x, y)))
        .map(|(x, y)| sample(x, y) << (bits - 8))
        .collect()
}

/// Returns a file of planes, with a header for each frame or without any. `chroma` has the luma samples per chroma
/// sample.
fn planes(bits: u32, chroma: &[usize], noise: usize, header: Option<&str>) -> Vec<u8> {
    let mut file = header.map_or(vec![], |colours| {
        format!("YUV4MPEG2 W{} H{} F25:1 Ip A1:1 C{colours}\n", SIZE.0, SIZE.1).into_bytes()
    });
    for frame in 0..FRAMES {
        if header.is_some() {
            file.extend_from_slice(b"FRAME\n");
        }
        let neutral = chroma.iter().flat_map(|part| vec![1_u16 << (bits - 1); SIZE.0 * SIZE.1 / part]);
        for sample in luma(frame, bits, noise).into_iter().chain(neutral) {
            match bits {
                8 => file.push(sample as u8),
                _ => file.extend_from_slice(&sample.to_le_bytes()),
            }
        }
    }
    file
}

fn write(folder: &Path, name: &str, data: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, data).unwrap();
    path
}

fn score(args: &[&Path]) -> Command {
    let mut command = hipvmaf("score");
    command.args(args).args(["--backend", "cpu", "--json"]);
    command
}

/// Returns the number of scored frames, and their mean score.
#[track_caller]
fn mean(command: Command) -> (u64, f64) {
    let ended = Ended::of(command);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    of_json(&ended.stdout)
}

#[track_caller]
fn of_json(text: &str) -> (u64, f64) {
    let summary: serde_json::Value = serde_json::from_str(text).unwrap();
    let rendition = &summary["renditions"][0];
    (rendition["frames"].as_u64().unwrap(), rendition["pooled"]["vmaf_v0.6.1"]["mean"].as_f64().unwrap())
}

#[test]
fn y4m_and_raw_video_of_all_depths_score_alike() {
    let folder = tempfile::tempdir().unwrap();
    let mut eight = None;
    for (colours, format, bits, chroma) in [
        ("420jpeg", "yuv420p", 8, &[4, 4][..]),
        ("422", "yuv422p", 8, &[2, 2]),
        ("444", "yuv444p", 8, &[1, 1]),
        ("mono", "gray", 8, &[]),
        ("420p9", "yuv420p9le", 9, &[4, 4]),
        ("420p10", "yuv420p10le", 10, &[4, 4]),
        ("422p10 XYSCSS=422P10", "yuv422p10le", 10, &[2, 2]),
        ("444p12", "yuv444p12le", 12, &[1, 1]),
        ("mono12", "gray12le", 12, &[]),
        ("420p16", "yuv420p16le", 16, &[4, 4]),
    ] {
        let [reference, distorted] = [("r.y4m", 0), ("d.y4m", 9)]
            .map(|(name, noise)| write(folder.path(), name, &planes(bits, chroma, noise, Some(colours))));
        let framed = mean(score(&[&reference, &distorted]));
        assert_eq!(framed.0, FRAMES as u64, "{colours}");
        let [reference, distorted] = [("r.yuv", 0), ("d.yuv", 9)]
            .map(|(name, noise)| write(folder.path(), name, &planes(bits, chroma, noise, None)));
        let mut raw = score(&[&reference, &distorted]);
        raw.args(["--raw", &format!("{}x{}:{format}:25", SIZE.0, SIZE.1)]);
        assert_eq!(mean(raw), framed, "{colours}");
        // libvmaf's features round slightly differently for each depth.
        let eight = *eight.get_or_insert(framed.1);
        assert!((framed.1 - eight).abs() < 0.1, "{colours}: {} and {eight}", framed.1);
    }
}

#[test]
fn a_truncated_frame_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let whole = planes(8, &[4, 4], 0, Some("420"));
    let reference = write(folder.path(), "r.y4m", &whole);
    let cut = write(folder.path(), "d.y4m", &whole[..whole.len() - 100]);
    let ended = Ended::of(score(&[&reference, &cut]));
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stdout);
    assert!(ended.stderr.contains("d.y4m: it ends in the middle of a frame"), "{}", ended.stderr);
}

/// Runs a command with a file as its standard input, through a pipe.
fn piped(mut command: Command, file: &Path) -> Ended {
    let mut feed = Command::new("cat").arg(file).stdout(Stdio::piped()).spawn().unwrap();
    let output = command.stdin(feed.stdout.take().unwrap()).output().unwrap();
    feed.wait().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    Ended { status: output.status, stdout, stderr }
}

#[test]
fn streams_are_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let [reference, distorted] = [("r.y4m", 0), ("d.y4m", 9)]
        .map(|(name, noise)| write(folder.path(), name, &planes(10, &[4, 4], noise, Some("420p10"))));
    let expected = mean(score(&[&reference, &distorted]));

    for name in ["-", "/dev/stdin"] {
        let ended = piped(score(&[&reference, Path::new(name)]), &distorted);
        assert!(ended.status.success(), "{}", ended.stderr);
        assert_eq!(of_json(&ended.stdout), expected, "{name}");
    }

    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut feed = Command::new("cp").args([&distorted, &fifo]).spawn().unwrap();
    assert_eq!(mean(score(&[&reference, &fifo])), expected);
    assert!(feed.wait().unwrap().success());

    // A container is copied first.
    let film = folder.path().join("film.mkv");
    crate::common::run(&format!(
        "filesrc location={} ! videoparse width=96 height=64 format=i420-10le framerate=25/1 ! avenc_ffv1 \
         ! matroskamux ! filesink location={}",
        write(folder.path(), "d.yuv", &planes(10, &[4, 4], 9, None)).display(),
        film.display()
    ));
    let ended = piped(score(&[&reference, Path::new("-")]), &film);
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(of_json(&ended.stdout), expected);
}

/// Writes grey luma as PNG with its bit depth.
fn png(path: &Path, frame: usize, bits: u32, noise: usize) {
    let file = fs::File::create(path).unwrap();
    let mut encoder = png::Encoder::new(file, SIZE.0 as u32, SIZE.1 as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(if bits == 16 { png::BitDepth::Sixteen } else { png::BitDepth::Eight });
    let samples = luma(frame, bits, noise).into_iter();
    let samples: Vec<u8> = match bits {
        16 => samples.flat_map(u16::to_be_bytes).collect(),
        _ => samples.map(|sample| sample as u8).collect(),
    };
    encoder.write_header().unwrap().write_image_data(&samples).unwrap();
}

fn pictures(folder: &Path, bits: u32, noise: usize) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    (0..FRAMES).for_each(|frame| png(&folder.join(format!("f_{:03}.png", frame + 8)), frame, bits, noise));
    folder.join("f_%03d.png")
}

#[test]
fn png_sequences_score_as_the_same_pictures_in_y4m() {
    let folder = tempfile::tempdir().unwrap();
    for (bits, colours) in [(8, "mono"), (16, "mono16")] {
        let of = |noise: usize| pictures(&folder.path().join(format!("{bits} {noise}")), bits, noise);
        let framed = [("r.y4m", 0), ("d.y4m", 9)]
            .map(|(name, noise)| write(folder.path(), name, &planes(bits, &[], noise, Some(colours))));
        let [reference, distorted] = &framed;
        assert_eq!(mean(score(&[&of(0), &of(9)])), mean(score(&[reference, distorted])), "{bits}");
    }
}

#[test]
fn folders_are_taken_as_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let reference = pictures(&folder.path().join("plain"), 8, 0);
    let expected = mean(score(&[&reference, &pictures(&folder.path().join("other"), 8, 9)]));
    for name in ["a%sb", "a%nb", "s 100%x", "%d", "%%", "a#b?c"] {
        let distorted = pictures(&folder.path().join(name), 8, 9);
        assert_eq!(mean(score(&[&reference, &distorted])), expected, "{name}");
    }
}

#[test]
fn missing_pictures_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let reference = pictures(&folder.path().join("r"), 8, 0);
    let distorted = pictures(&folder.path().join("d"), 8, 9);
    fs::remove_file(folder.path().join("d/f_010.png")).unwrap();
    let ended = Ended::of(score(&[&reference, &distorted]));
    assert!(ended.stderr.contains("1 picture is missing in its numbers"), "{}", ended.stderr);
    let mut strict = score(&[&reference, &distorted]);
    strict.arg("--strict");
    assert_eq!(Ended::of(strict).status.code(), Some(3));
}

#[test]
fn formats_that_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (name, head, format) in [
        ("a.exr", &b"\x76\x2f\x31\x01\x02\0\0\0"[..], "OpenEXR"),
        ("a.nut", b"nut/multimedia container\0N", "NUT"),
        ("a.y4m", b"YUV4MPEG2 W96 H64 F25:1 C555\nFRAME\n", "C555"),
        ("b.y4m", b"YUV4MPEG2 W96 H0 F25:1 C420\nFRAME\n", "96x0"),
        ("a.png", b"\x89PNG\r\n\x1a\nabc", "a.png"),
    ] {
        let path = write(folder.path(), name, head);
        let ended = Ended::of(score(&[&path, &path]));
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains(format), "{}", ended.stderr);
    }
    for device in ["/dev/null", "/dev/zero"] {
        let ended = Ended::of(score(&[Path::new(device), Path::new(device)]));
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains("it is a device, and not a video"), "{}", ended.stderr);
    }
}

#[test]
fn pixel_formats_without_a_name_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    // A 16-bit RGB TIFF file, which libav decodes and GStreamer cannot represent.
    let (width, height) = (16_u32, 8_u32);
    let pixels = vec![0x40_u8; (width * height * 6) as usize];
    let mut file = b"II*\0".to_vec();
    file.extend_from_slice(&(8 + pixels.len() as u32).to_le_bytes());
    file.extend_from_slice(&pixels);
    let entries: [(u16, u16, u32, u32); 9] = [
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, 3, 8 + pixels.len() as u32 + 2 + 9 * 12 + 4),
        (259, 3, 1, 1),
        (262, 3, 1, 2),
        (273, 4, 1, 8),
        (277, 3, 1, 3),
        (278, 4, 1, height),
        (279, 4, 1, pixels.len() as u32),
    ];
    file.extend_from_slice(&9_u16.to_le_bytes());
    for (tag, kind, count, value) in entries {
        file.extend_from_slice(&tag.to_le_bytes());
        file.extend_from_slice(&kind.to_le_bytes());
        file.extend_from_slice(&count.to_le_bytes());
        file.extend_from_slice(&value.to_le_bytes());
    }
    file.extend_from_slice(&[0; 4]);
    file.extend_from_slice(&[16, 0].repeat(3));
    (0..4).for_each(|number| drop(write(folder.path(), &format!("f_{number}.tif"), &file)));
    let pictures = folder.path().join("f_%d.tif");
    let ended = Ended::of(score(&[&pictures, &pictures]));
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("it is TIFF with a pixel format that"), "{}", ended.stderr);
}

#[test]
fn raw_video_is_described_as_a_whole() {
    for wrong in
        ["", "96x64", "96:yuv420p", "0x64:yuv420p:25", "96x64:yuv999p:25", "96x64:yuv420p:0", "96x64:v210:25"]
    {
        let mut command = hipvmaf("score");
        command.args(["a.yuv", "b.yuv", "--raw", wrong]);
        assert_eq!(Ended::of(command).status.code(), Some(2), "{wrong}");
    }
}
