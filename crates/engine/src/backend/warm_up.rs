// SPDX-License-Identifier: MPL-2.0

//! A group that is computed before the first real one, to touch memory, build tables and load code.

use super::Group;
use crate::frame::{Component, Geometry, Picture, Samples};
use crate::scale::Scaling;

/// Length of the noise before it repeats. No width divides it, so the rows of a picture differ.
const PIECE: usize = 65_537;

/// The pictures of a group of all renditions. They contain noise, because flat areas would not run all code.
pub struct WarmUp {
    reference: Geometry,
    distorted: Vec<Geometry>,
    /// Noise for the largest component; each picture begins one sample later.
    noise: Vec<u8>,
}

impl WarmUp {
    /// Creates pictures of the reference's geometry and of each rendition's, as the backend was prepared for them.
    pub fn new(geometry: Geometry, renditions: &[Option<Scaling>]) -> Self {
        let source = |scaling: &Option<Scaling>| scaling.map_or(geometry, |scaling| scaling.source());
        let distorted: Vec<_> = renditions.iter().map(source).collect();
        let samples = distorted.iter().chain([&geometry]).map(|g| g.width * g.height).max().unwrap_or(0);
        let samples = samples + distorted.len();
        let mut random = 1u32;
        let mut next = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random >> 16 & geometry.depth.max()
        };
        // Repeats a piece, as generating a number takes longer than copying it.
        let piece: Vec<u8> = match geometry.sample_size() {
            1 => (0..PIECE).map(|_| next() as u8).collect(),
            _ => (0..PIECE).flat_map(|_| (next() as u16).to_le_bytes()).collect(),
        };
        let noise = piece.repeat(samples.div_ceil(PIECE));
        Self { reference: geometry, distorted, noise }
    }

    /// Returns the group, which is to be scored.
    pub fn group(&self) -> Group<'_> {
        let distorted = self.distorted.iter().enumerate();
        let distorted = distorted.map(|(i, geometry)| (i, self.picture(*geometry, 1 + i))).collect();
        Group { reference: self.picture(self.reference, 0), distorted, history_only: false }
    }

    fn picture(&self, geometry: Geometry, number: usize) -> Picture<'_> {
        let size = geometry.sample_size();
        let component = |(width, height): (usize, usize)| Component {
            samples: Samples::Host(&self.noise[number * size..]),
            width,
            height,
            stride: width * size,
            step: 1,
            shift: 0,
        };
        let luma = component((geometry.width, geometry.height));
        Picture { luma, chroma: geometry.chroma.map(|size| [component(size); 2]), lease: None }
    }
}
