// SPDX-License-Identifier: MPL-2.0

//! From pictures as they lie in memory to planes.
//!
//! Planar 8-bit samples are borrowed where they are. Everything else (interleaved chroma, more than 8 bits,
//! samples in the high bits) is unpacked row by row, which also keeps samples inside the range of their depth.

use crate::backend::cpu::plane::{AnyPlane, Frame, Plane};
use crate::frame::{BitDepth, Component, Picture, Samples};

/// Whether all samples of a component can be read.
pub fn is_readable(component: &Component<'_>, depth: BitDepth) -> bool {
    let Component { samples: Samples::Host(data), width, height, stride, step, .. } = *component else {
        return false;
    };
    let size = if depth.bits() == 8 { 1 } else { 2 };
    let row = (width.saturating_sub(1) * step + 1) * size;
    let all = height.checked_sub(1).and_then(|rows| stride.checked_mul(rows)?.checked_add(row));
    stride >= row && all.is_some_and(|all| all <= data.len())
}

/// The plane of a component whose samples need not be unpacked.
pub fn as_it_lies<'a>(component: &Component<'a>, depth: BitDepth) -> Option<AnyPlane<'a>> {
    match *component {
        Component { samples: Samples::Host(data), width, height, stride, step: 1, .. }
            if depth.bits() == 8 =>
        {
            Plane::new(data, width, height, stride).map(AnyPlane::U8)
        }
        _ => None,
    }
}

/// Unpacked samples of one component.
#[derive(Default)]
pub struct Unpacked {
    width: usize,
    height: usize,
    samples: Unpacking,
}

/// Room for unpacked samples: in `bytes` for 8-bit video, in `words` (and `wide`) for deeper video.
#[derive(Default)]
struct Unpacking {
    wide: bool,
    bytes: Vec<u8>,
    words: Vec<u16>,
}

impl Unpacked {
    /// Copies the samples of a component, as far as they can be read.
    pub fn copy(&mut self, component: &Component<'_>, depth: BitDepth) {
        let Component { samples, width, height, stride, step, shift } = *component;
        (self.width, self.height) = (width, height);
        let Unpacking { wide, bytes, words } = &mut self.samples;
        *wide = depth.bits() > 8;
        bytes.clear();
        words.clear();
        let Samples::Host(data) = samples else { return };
        for row in (0..height).map_while(|y| data.get(y * stride..)) {
            if !*wide && step == 1 {
                bytes.extend_from_slice(&row[..width.min(row.len())]);
            } else if !*wide {
                bytes.extend(row.iter().step_by(step).take(width));
            } else {
                let max = depth.max() as u16;
                let samples = row.chunks(2 * step).take(width).filter_map(|sample| sample.first_chunk());
                words.extend(samples.map(|sample| (u16::from_le_bytes(*sample) >> shift).min(max)));
            }
        }
    }

    /// The plane; `None` where samples are missing.
    pub fn plane(&self) -> Option<AnyPlane<'_>> {
        let Self { width, height, samples: Unpacking { wide, bytes, words } } = self;
        match wide {
            true => Plane::new(words, *width, *height, *width).map(AnyPlane::U16),
            false => Plane::new(bytes, *width, *height, *width).map(AnyPlane::U8),
        }
    }

    /// The plane of a component, where it lies or unpacked here; `None` where samples are missing.
    pub fn import<'a>(&'a mut self, component: &Component<'a>, depth: BitDepth) -> Option<AnyPlane<'a>> {
        as_it_lies(component, depth).or_else(|| {
            self.copy(component, depth);
            self.plane()
        })
    }
}

/// Turns pictures into planes, and keeps the room for that.
#[derive(Default)]
pub struct Importer([Unpacked; 3]);

impl Importer {
    /// The picture's planes, with Cb and Cr if asked for; `None` when the picture is smaller than it says or not
    /// in host memory.
    pub fn import<'a>(
        &'a mut self,
        picture: &Picture<'a>,
        depth: BitDepth,
        chroma: bool,
    ) -> Option<Frame<'a>> {
        let [y, cb, cr] = &mut self.0;
        let luma = y.import(&picture.luma, depth)?;
        let chroma = match &picture.chroma {
            Some([b, r]) if chroma => Some([cb.import(b, depth)?, cr.import(r, depth)?]),
            _ => None,
        };
        Some(Frame { luma, chroma })
    }
}
