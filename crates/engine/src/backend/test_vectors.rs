// SPDX-License-Identifier: MPL-2.0

//! Small constant clips for comparing backends: a scene with texture and grain, black and white pixels, and a size
//! without common divisors.

use super::{Backend, BackendError, Group};
use crate::frame::{Geometry, Picture};
use crate::metrics::FrameSums;
use crate::random;
use crate::scale::Scaling;

/// The content of a clip, and its size.
#[derive(Clone, Copy)]
pub struct TestVector {
    pub name: &'static str,
    width: usize,
    height: usize,
    content: fn(u32, u32, u32) -> u32,
}

/// All test vectors. They are large enough for nearly every metric.
pub const TEST_VECTORS: [TestVector; 3] = [
    TestVector { name: "natural", width: 256, height: 192, content: natural },
    TestVector { name: "extreme", width: 224, height: 184, content: extreme },
    TestVector { name: "odd", width: 237, height: 181, content: natural },
];

/// From the third rendition on, the work is the same as for the second.
const MOST_RENDITIONS: usize = 2;

/// A clip with one or two renditions.
pub struct TestClip {
    geometry: Geometry,
    renditions: Vec<Option<Scaling>>,
    frames: Vec<[Vec<u8>; 1 + MOST_RENDITIONS]>,
}

impl TestClip {
    /// Creates frames with the sample format of `like`, `scale` times as wide and high as the vector, and renditions
    /// that are scaled like these.
    pub fn new(
        vector: TestVector,
        scale: usize,
        like: Geometry,
        frames: usize,
        renditions: &[Option<Scaling>],
    ) -> Self {
        let geometry = geometry(vector, scale, like);
        let scaled = |scaling: &Option<Scaling>| {
            let scaling = (*scaling)?;
            let source = resized(like, geometry.width * 2 / 3, geometry.height * 3 / 4);
            Scaling::new(scaling.method(), source, geometry, scaling.cosited()).ok()
        };
        let renditions: Vec<_> = renditions.iter().take(MOST_RENDITIONS).map(scaled).collect();
        let source = |i: usize| renditions.get(i).copied().flatten().map_or(geometry, |s| s.source());
        let frame = |t: u32| {
            [(geometry, 0), (source(0), 1), (source(1), 2)]
                .map(|(geometry, damage)| samples(vector, geometry, t, damage))
        };
        let frames = (0..frames as u32).map(frame).collect();
        Self { geometry, renditions, frames }
    }

    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub fn renditions(&self) -> &[Option<Scaling>] {
        &self.renditions
    }

    /// Computes the sums of all frames on a backend that was prepared for them.
    pub fn sums(&self, backend: &mut dyn Backend) -> Result<Vec<Vec<FrameSums>>, BackendError> {
        let source = |i: usize| self.renditions[i].map_or(self.geometry, |scaling| scaling.source());
        let whole = |bytes, geometry| Picture::packed(bytes, geometry).ok_or(BackendError::Unlike);
        let mut sums = vec![];
        for [reference, distorted @ ..] in &self.frames {
            let distorted = distorted.iter().enumerate().take(self.renditions.len());
            let distorted = distorted.map(|(i, bytes)| Ok((i, whole(bytes, source(i))?)));
            let distorted = distorted.collect::<Result<_, BackendError>>()?;
            let reference = whole(reference, self.geometry)?;
            let ticket = backend.submit(Group { reference, distorted, history_only: false })?;
            sums.push(backend.wait(ticket)?);
        }
        Ok(sums)
    }
}

/// Returns the geometry of a vector with the sample format of `like`, `scale` times as wide and high.
pub fn geometry(vector: TestVector, scale: usize, like: Geometry) -> Geometry {
    resized(like, vector.width * scale, vector.height * scale)
}

/// Returns the geometry of pictures of another size with the same sample format.
fn resized(like: Geometry, width: usize, height: usize) -> Geometry {
    let chroma = like.subsampled().map(|(x, y)| (width >> u32::from(x), height >> u32::from(y)));
    Geometry { width, height, chroma, ..like }
}

/// Returns all samples of a picture, plane after plane.
fn samples(vector: TestVector, geometry: Geometry, t: u32, damage: u32) -> Vec<u8> {
    let Geometry { width, height, depth, chroma, .. } = geometry;
    let planes = [Some((width, height)), chroma, chroma];
    let mut bytes = vec![];
    for (plane, (width, height)) in planes.into_iter().flatten().enumerate() {
        for y in 0..height as u32 {
            for x in 0..width as u32 {
                let seed = plane as u32 * 97 + damage * 31 + t;
                let value =
                    damaged((vector.content)(x + 3 * t, y + t, plane as u32), damage, noise(seed, x, y));
                let sample = value >> (16 - depth.bits());
                bytes.extend(&sample.to_le_bytes()[..geometry.sample_size()]);
            }
        }
    }
    bytes
}

/// Damages a sample of 16 bits with coarser steps and grain, for the second rendition more than for the first.
fn damaged(value: u32, damage: u32, noise: u32) -> u32 {
    match damage {
        0 => value,
        _ => ((value & !((1 << (8 + damage)) - 1)) + noise % (700 << damage)).min(0xffff),
    }
}

/// Returns noise for a pixel.
fn noise(seed: u32, x: u32, y: u32) -> u32 {
    random::noise(seed, x as usize, y as usize)
}

/// Returns a pixel of 16 bits of a picture that resembles a scene, with soft areas, edges and grain.
fn natural(x: u32, y: u32, plane: u32) -> u32 {
    // Interpolates linearly between noise at the corners of squares.
    let layer = |side: u32| {
        let corner = |i, j| noise(plane * 13 + side, x / side + i, y / side + j) >> 16;
        let (u, v) = (x % side, y % side);
        let across = |j| (corner(0, j) * (side - u) + corner(1, j) * u) / side;
        (across(0) * (side - v) + across(1) * v) / side
    };
    let edge = if (x / 40 + y / 24).is_multiple_of(3) { 9000 } else { 0 };
    (layer(64) / 2 + layer(9) / 4 + edge + (noise(plane, x, y) >> 16) / 32).min(0xffff)
}

/// Returns a black or white pixel.
fn extreme(x: u32, y: u32, plane: u32) -> u32 {
    let side = 1 + (x / 56 + y / 46) % 4;
    if noise(plane, x / side, y / side) & 1 == 0 { 0 } else { 0xffff }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::BitDepth;

    /// A change here means that other pictures are compared than those that were checked.
    #[test]
    fn the_pictures_are_what_their_names_say() {
        let depth = BitDepth::new(8).unwrap();
        let like = Geometry { width: 1920, height: 1080, depth, chroma: Some((960, 540)) };
        for vector in TEST_VECTORS {
            let clip = TestClip::new(vector, 1, like, 2, &[None, None]);
            let [reference, distorted, worse] = &clip.frames[1];
            let luma = vector.width * vector.height;
            let distinct = |bytes: &[u8]| bytes.iter().collect::<std::collections::BTreeSet<_>>().len();
            if vector.name == "extreme" {
                assert_eq!(distinct(&reference[..luma]), 2);
            } else {
                assert!(distinct(&reference[..luma]) > 100, "{}", distinct(&reference[..luma]));
            }
            let error = |other: &Vec<u8>| {
                reference.iter().zip(other).map(|(a, b)| u64::from(a.abs_diff(*b))).sum::<u64>()
            };
            assert!(error(distorted) > 0 && error(worse) > error(distorted), "{}", vector.name);
            assert_ne!(clip.frames[0][0], *reference, "it moves");
        }
    }
}
