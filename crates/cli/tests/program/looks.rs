// SPDX-License-Identifier: MPL-2.0

//! Properties of frames: depth, chroma, range, orientation, padding and fields. The same pictures without the
//! difference give the expected scores.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{Ended, hipvmaf, run};

const SIZE: (usize, usize) = (128, 96);
const FRAMES: usize = 8;

/// Returns luma of a moving picture, in 8-bit limited range; `noise` is the amount of error.
fn luma(frame: usize, (x, y): (usize, usize), noise: usize) -> u8 {
    let wave = 40 + (x * 3 + y * 2 + frame * 9) % 160 + if (x / 16 + y / 24) % 2 == 0 { 20 } else { 0 };
    (wave + (x * 31 + y * 17 + frame * 13) % (noise + 1) - noise / 2).min(235) as u8
}

/// Writes Y4M planes from a function of frame and place, with subsampled chroma.
fn y4m(
    path: &Path,
    colours: &str,
    (width, height): (usize, usize),
    sample: &dyn Fn(usize, usize, usize) -> u16,
) {
    let samples = colours.split(' ').next().unwrap();
    let is_wide = samples.contains('p');
    let chroma = if samples.starts_with("444") {
        1
    } else if samples.starts_with("422") {
        2
    } else {
        4
    };
    let bits = samples.split_once('p').map_or(8, |(_, rest)| rest[..2].parse().unwrap());
    let mut file = format!("YUV4MPEG2 W{width} H{height} F25:1 A1:1 C{colours}\n").into_bytes();
    for frame in 0..FRAMES {
        file.extend_from_slice(b"FRAME\n");
        let luma =
            (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| sample(frame, x, y));
        let chroma = if samples == "mono" { 0 } else { width * height / chroma * 2 };
        let neutral = vec![1_u16 << (bits - 1); chroma];
        for value in luma.chain(neutral) {
            match is_wide {
                true => file.extend_from_slice(&value.to_le_bytes()),
                false => file.push(value as u8),
            }
        }
    }
    fs::write(path, file).unwrap();
}

fn plain(folder: &Path, name: &str, colours: &str, noise: usize) -> PathBuf {
    let path = folder.join(name);
    let shift = if colours.contains("p10") {
        2
    } else if colours.contains("p12") {
        4
    } else {
        0
    };
    y4m(&path, colours, SIZE, &|frame, x, y| u16::from(luma(frame, (x, y), noise)) << shift);
    path
}

#[track_caller]
fn summary(reference: &Path, distorted: &Path, more: &[&str]) -> Value {
    let mut command = hipvmaf("score");
    command.args([reference, distorted]).args(["--backend", "cpu", "--json"]).args(more);
    let ended = Ended::of(command);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

#[track_caller]
fn mean(summary: &Value) -> f64 {
    assert_eq!(summary["renditions"][0]["frames"], FRAMES as u64);
    summary["renditions"][0]["pooled"]["vmaf_v0.6.1"]["mean"].as_f64().unwrap()
}

/// Returns the kinds of findings or steps, except for pairing.
fn kinds(summary: &Value, of: &str) -> Vec<String> {
    let all = summary[of].as_array().unwrap().iter();
    let kinds = all.map(|of| of["kind"].as_str().unwrap().to_owned());
    kinds.filter(|kind| kind != "pairing").collect()
}

#[track_caller]
fn refused(reference: &Path, distorted: &Path, more: &[&str]) -> String {
    let mut command = hipvmaf("score");
    command.args([reference, distorted]).args(["--backend", "cpu"]).args(more);
    let ended = Ended::of(command);
    assert_eq!(ended.status.code(), Some(3), "{}{}", ended.stdout, ended.stderr);
    ended.stderr
}

#[test]
fn other_depths_and_chroma_are_brought_to_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (reference, distorted, both) in [
        ("420", "420p10", "420p10"),
        ("420p10", "420", "420p10"),
        ("422p10", "420", "420p10"),
        ("444", "420", "420"),
        ("420p12", "420p10", "420p12"),
        ("mono", "420", "420"),
    ] {
        let other =
            summary(&plain(folder, "r.y4m", reference, 0), &plain(folder, "d.y4m", distorted, 9), &[]);
        let same = summary(&plain(folder, "sr.y4m", both, 0), &plain(folder, "sd.y4m", both, 9), &[]);
        assert_eq!(mean(&other), mean(&same), "{reference} {distorted}");
        assert_eq!(kinds(&other, "findings"), ["format"], "{reference} {distorted}");
        assert!(kinds(&other, "steps").iter().all(|kind| kind == "convert"), "{reference} {distorted}");
        assert!(kinds(&same, "steps").is_empty(), "{both}");
        let said = refused(&folder.join("r.y4m"), &folder.join("d.y4m"), &["--strict"]);
        assert!(said.contains("d.y4m: its samples are"), "{said}");
    }
}

/// Writes the same pictures with another range.
fn ranged(folder: &Path, name: &str, tag: &str, noise: usize, is_full: bool) -> PathBuf {
    let path = folder.join(name);
    let colours = if tag.is_empty() { "420".to_owned() } else { format!("420 XCOLORRANGE={tag}") };
    y4m(&path, &colours, SIZE, &|frame, x, y| {
        let value = f64::from(luma(frame, (x, y), noise));
        let full = ((value - 50.0) * 255.0 / 170.0).round().clamp(0.0, 255.0);
        (if is_full { full } else { (16.0 + full * 219.0 / 255.0).round() }) as u16
    });
    path
}

#[test]
fn ranges_are_converted_or_refused_by_tags_and_samples() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let limited = ranged(folder, "limited.y4m", "", 9, false);
    let expected = mean(&summary(&ranged(folder, "r.y4m", "", 0, false), &limited, &[]));
    // With and without a tag, on both sides.
    for tag in ["FULL", ""] {
        let full = ranged(folder, "full.y4m", tag, 0, true);
        let converted = summary(&full, &limited, &[]);
        assert!((mean(&converted) - expected).abs() < 0.01, "{tag}: {} and {expected}", mean(&converted));
        assert_eq!(kinds(&converted, "findings"), ["range"], "{tag}");
        assert_eq!(kinds(&converted, "steps"), ["convert"], "{tag}");
        refused(&full, &limited, &["--strict"]);
    }
    // A full-range encode is converted to limited range as well.
    let full = ranged(folder, "fd.y4m", "FULL", 9, true);
    let converted = summary(&ranged(folder, "r.y4m", "", 0, false), &full, &[]);
    assert!((mean(&converted) - expected).abs() < 0.01, "{} and {expected}", mean(&converted));
    assert_eq!(converted["steps"][0]["text"], "as I420, full range to limited");
    // The same samples, with contradicting tags.
    let tagged = ranged(folder, "tagged.y4m", "FULL", 0, false);
    let plain = ranged(folder, "plain.y4m", "", 0, false);
    let said = refused(&plain, &tagged, &[]);
    assert!(said.contains("tagged.y4m is tagged as full range"), "{said}");
    assert!(mean(&summary(&plain, &tagged, &["--colorimetry", "ignore"])) > 95.0);
    // Samples that are possible only in full range need no tag.
    let [tagged, plain] =
        [("t.y4m", "FULL"), ("p.y4m", "")].map(|(name, tag)| ranged(folder, name, tag, 0, true));
    let same = summary(&plain, &tagged, &[]);
    assert_eq!((kinds(&same, "findings"), kinds(&same, "steps").len()), (vec!["range".to_owned()], 0));
}

/// Writes a matrix into a file's track header.
fn turn(film: &Path, [a, b, c, d]: [i32; 4]) {
    let mut file = fs::read(film).unwrap();
    let header = file.windows(4).position(|name| name == b"tkhd").unwrap();
    let matrix: Vec<u8> = [a, b, 0, c, d, 0, 0, 0, 1 << 30].into_iter().flat_map(i32::to_be_bytes).collect();
    file[header + 44..][..matrix.len()].copy_from_slice(&matrix);
    fs::write(film, file).unwrap();
}

#[test]
fn pictures_are_turned_as_they_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let upright = plain(folder.path(), "upright.y4m", "420", 0);
    let distorted = plain(folder.path(), "d.y4m", "420", 9);
    let expected = mean(&summary(&upright, &distorted, &[]));
    // The operation that undoes the rotation, and the matrix in the track header for it.
    const ONE: i32 = 1 << 16;
    for (name, undone, matrix) in [
        ("right", "90l", [0, ONE, -ONE, 0]),
        ("half", "180", [-ONE, 0, 0, -ONE]),
        ("left", "90r", [0, -ONE, ONE, 0]),
        ("mirrored", "horiz", [-ONE, 0, 0, ONE]),
    ] {
        let film = folder.path().join(format!("{name}.mov"));
        run(&format!(
            "filesrc location={} ! y4mdec ! videoflip video-direction={undone} ! video/x-raw,format=I420 \
             ! x264enc quantizer=0 pass=quant ! qtmux ! filesink location={}",
            upright.display(),
            film.display()
        ));
        turn(&film, matrix);
        let turned = summary(&film, &distorted, &[]);
        assert_eq!(mean(&turned), expected, "{name}");
        assert_eq!(kinds(&turned, "findings"), ["orientation"], "{name}");
        assert_eq!(kinds(&turned, "steps"), ["orientation"], "{name}");
        refused(&film, &distorted, &["--strict"]);
        // Both sides may be rotated.
        assert!(mean(&summary(&film, &film, &[])) > 95.0, "{name}");
    }
}

#[test]
fn lines_that_fill_a_block_are_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let [of_picture, padded] = [(128, 90), (128, 96)];
    let write = |name: &str, size: (usize, usize), noise: usize| {
        let path = folder.join(name);
        y4m(&path, "420", size, &|frame, x, y| u16::from(luma(frame, (x, y.min(of_picture.1 - 1)), noise)));
        path
    };
    let [reference, distorted] =
        [("r.y4m", 0), ("d.y4m", 9)].map(|(name, noise)| write(name, of_picture, noise));
    let [long_reference, long] =
        [("lr.y4m", 0), ("ld.y4m", 9)].map(|(name, noise)| write(name, padded, noise));
    let expected = mean(&summary(&reference, &distorted, &[]));
    for (reference, distorted) in [(&reference, &long), (&long_reference, &distorted)] {
        let cut = summary(reference, distorted, &[]);
        assert_eq!(mean(&cut), expected);
        assert_eq!(kinds(&cut, "findings"), ["padding"]);
        assert_eq!(kinds(&cut, "steps"), ["crop"]);
    }
    // A picture that was scaled to the padded height is scaled back.
    let scaled = folder.join("scaled.y4m");
    y4m(&scaled, "420", padded, &|frame, x, y| u16::from(luma(frame, (x, y * of_picture.1 / padded.1), 0)));
    assert_eq!(kinds(&summary(&reference, &scaled, &[]), "steps"), ["scale"]);
}

#[test]
fn fields_are_made_into_frames_where_they_are_of_two_moments() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, fields: &str, noise: usize, is_moving: bool| {
        let path = folder.path().join(name);
        // Every second row is half a frame later.
        y4m(&path, &format!("420 I{fields}"), SIZE, &|frame, x, y| {
            let later = if is_moving && y % 2 == 1 { 12 } else { 0 };
            u16::from(luma(frame, (x + frame * 24 + later, y), noise))
        });
        path
    };
    let [reference, distorted] =
        [("r.y4m", 0), ("d.y4m", 9)].map(|(name, noise)| write(name, "p", noise, false));
    let expected = mean(&summary(&reference, &distorted, &[]));
    let segmented = summary(&reference, &write("psf.y4m", "t", 9, false), &[]);
    assert_eq!(mean(&segmented), expected);
    assert_eq!(kinds(&segmented, "findings"), ["interlaced"]);
    assert_eq!(kinds(&segmented, "steps"), ["convert"]);
    let fields = summary(&write("i.y4m", "t", 0, true), &write("id.y4m", "t", 9, true), &[]);
    assert_eq!(kinds(&fields, "steps"), ["deinterlace", "deinterlace"]);
}
