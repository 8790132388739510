// SPDX-License-Identifier: MPL-2.0

//! The synthetic clips of `tests/data/golden.json`, whose scores were computed with libvmaf's scalar C path.
//!
//! The formulas are those of `tests/tools/clips.py`, which explains them.

use serde_json::Value;

/// A pair of videos and their golden values.
pub struct Clip {
    /// A name such as `97x71_422_10bit`.
    pub name: String,
    pub width: usize,
    pub height: usize,
    /// Bits per sample.
    pub depth: u32,
    /// If the chroma planes have half the columns, and half the rows.
    pub halved: (bool, bool),
    pub frames: usize,
    /// The upper half is a slow ramp, dithered in the reference and in bands in the distorted video.
    pub banded: bool,
    /// The clip's entry in `golden.json`: `features`, `scores`, `bootstrap`, each with an item per frame.
    pub golden: Value,
}

/// A plane without padding, with the samples in the low bits.
pub struct Samples {
    pub width: usize,
    pub data: Vec<u16>,
}

/// Returns all clips.
pub fn clips() -> Vec<Clip> {
    let golden: Value = serde_json::from_str(include_str!("../../data/golden.json")).unwrap();
    let entries = golden.as_object().unwrap();
    entries.iter().map(|(name, entry)| Clip::new(name, entry)).collect()
}

impl Clip {
    /// Returns a banded clip without golden values.
    pub fn banded(width: usize, height: usize, depth: u32, chroma: &str, frames: usize) -> Self {
        Self {
            name: format!("{width}x{height}_{chroma}_{depth}bit"),
            width,
            height,
            depth,
            halved: (chroma != "444", chroma == "420"),
            frames,
            banded: true,
            golden: Value::Null,
        }
    }

    fn new(name: &str, entry: &Value) -> Self {
        let number = |key: &str| entry[key].as_u64().unwrap() as usize;
        let chroma = entry["chroma"].as_str().unwrap();
        Self {
            name: name.to_owned(),
            width: number("width"),
            height: number("height"),
            depth: number("depth") as u32,
            halved: (chroma != "444", chroma == "420"),
            frames: number("frames"),
            banded: entry["banded"].as_bool().unwrap(),
            golden: entry.clone(),
        }
    }

    /// Returns the planes Y, Cb and Cr of a frame. A halved axis of `n` samples has `ceil(n / 2)`, as in files and GStreamer
    /// buffers; libvmaf reads `floor(n / 2)` of them.
    pub fn planes(&self, t: usize, distorted: bool) -> [Samples; 3] {
        std::array::from_fn(|plane| {
            let (half_w, half_h) = if plane == 0 { (false, false) } else { self.halved };
            let (width, height) =
                (self.width.div_ceil(1 << half_w as u32), self.height.div_ceil(1 << half_h as u32));
            let mut data = reference(plane as u32, t as u32, width, height);
            if distorted {
                data = data.chunks_exact(width).flat_map(|row| distort(row, t)).collect();
            }
            if self.banded {
                let ramp = ramp(plane as u32, t as u32, width, height / 2, !distorted);
                data[..ramp.len()].copy_from_slice(&ramp);
            }
            data.iter_mut().for_each(|v| *v >>= 16 - self.depth);
            Samples { width, data }
        })
    }

    /// Returns a frame in the layout of a raw video file: the planes one after the other, 16-bit samples in little endian.
    pub fn bytes(&self, t: usize, distorted: bool) -> Vec<u8> {
        let size = if self.depth > 8 { 2 } else { 1 };
        let planes = self.planes(t, distorted);
        let samples = planes.iter().flat_map(|plane| &plane.data);
        samples.flat_map(|v| v.to_le_bytes().into_iter().take(size)).collect()
    }
}

fn noise(x: u32, y: u32, seed: u32) -> u32 {
    let h = x.wrapping_mul(0x9E37_79B1) ^ y.wrapping_mul(0x85EB_CA77) ^ seed.wrapping_mul(0xC2B2_AE3D);
    let h = (h ^ h >> 15).wrapping_mul(0x2C1B_3C6D);
    let h = (h ^ h >> 12).wrapping_mul(0x297A_2D39);
    h ^ h >> 15
}

fn reference(plane: u32, t: u32, width: usize, height: usize) -> Vec<u16> {
    let sample = |x: u32, y: u32| {
        if (height as u32 / 4..height as u32 / 3).contains(&y) {
            if (x + 64 - t) % 64 >= 54 {
                return u16::MAX;
            }
            if (x + t) % 64 < 10 {
                return 0;
            }
        }
        let moved = x + t / 2;
        let ramp = (2 * x + y + 3 * t) % 256;
        let gradient = ramp.min(255 - ramp) * 160;
        let blocks = noise(moved >> 2, y >> 2, 1 + plane) & 0x1FFF;
        let grain = noise(moved, y, 4 + plane) & 0xFFF;
        let still = noise(x, y, 7 + 3 * t + plane) & 0x1FF;
        (12288 + gradient + blocks + grain + still) as u16
    };
    (0..height as u32).flat_map(|y| (0..width as u32).map(move |x| sample(x, y))).collect()
}

/// Returns a ramp that rises by a 256th of the range every 24 columns.
fn ramp(plane: u32, t: u32, width: usize, height: usize, dithered: bool) -> Vec<u16> {
    let sample = |x: u32, y: u32| {
        let dither = if dithered { noise(x, y, 10 + 3 * t + plane) & 0x1FF } else { 0 };
        (16384 + (x + y / 4 + t) / 24 * 256 + dither) as u16
    };
    (0..height as u32).flat_map(|y| (0..width as u32).map(move |x| sample(x, y))).collect()
}

fn distort(row: &[u16], t: usize) -> impl Iterator<Item = u16> {
    let at = |x: usize| i32::from(row[x.saturating_sub(3).min(row.len() - 1)]);
    let step = 2048 << (t % 3);
    (0..row.len()).map(move |x| {
        let v = i32::from(row[x]);
        let blur = (x..x + 7).map(at).sum::<i32>() / 7;
        let d = if x < row.len() * 2 / 3 { blur } else { v + ((v - blur) >> 2) };
        ((d + step / 2).div_euclid(step) * step).clamp(0, 65535) as u16
    })
}

/// Scores mean nothing if the formulas give other frames. [`clips`] does not check this, because every test calls it, in every
/// process.
pub fn the_frames_are_those_that_the_scores_belong_to() {
    for clip in clips() {
        for (side, distorted) in [("ref", false), ("dist", true)] {
            let crc = (0..clip.frames).fold(0, |crc, t| crc32(crc, &clip.bytes(t, distorted)));
            let expected = clip.golden["crc32"][side].as_u64();
            assert_eq!(Some(crc.into()), expected, "the {side} frames of {}", clip.name);
        }
    }
}

/// Returns the CRC-32 of zlib, continued from `crc`.
fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!crc, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |c, _| if c & 1 == 1 { c >> 1 ^ 0xEDB8_8320 } else { c >> 1 })
    })
}
