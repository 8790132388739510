// SPDX-License-Identifier: MPL-2.0

//! From pictures as they lie in memory to planes.
//!
//! Planar 8-bit samples are borrowed where they are. Everything else (interleaved chroma, more than 8 bits,
//! samples in the high bits) is unpacked row by row, which also keeps samples inside the range of their depth.

use crate::frame::{AnyPlane, BitDepth, Component, Frame, Picture, Plane, Samples};

/// Unpacked samples of one component.
#[derive(Default)]
struct Scratch {
    bytes: Vec<u8>,
    words: Vec<u16>,
}

impl Scratch {
    /// `None` when the samples do not fill the component, or are not in host memory.
    fn import<'a>(&'a mut self, component: &Component<'a>, depth: BitDepth) -> Option<AnyPlane<'a>> {
        let Component { samples: Samples::Host(data), width, height, stride, step, shift } = *component
        else {
            return None;
        };
        if depth.bits() == 8 && step == 1 {
            return Plane::new(data, width, height, stride).map(AnyPlane::U8);
        }
        let row = |y: usize| data.get(y * stride..);
        if depth.bits() == 8 {
            self.bytes.clear();
            for y in 0..height {
                self.bytes.extend(row(y)?.iter().step_by(step).take(width));
            }
            Plane::new(&self.bytes, width, height, width).map(AnyPlane::U8)
        } else {
            let max = depth.max() as u16;
            self.words.clear();
            for y in 0..height {
                let samples = row(y)?.chunks(2 * step).take(width);
                self.words.extend(
                    samples
                        .filter_map(|sample| sample.first_chunk())
                        .map(|sample| (u16::from_le_bytes(*sample) >> shift).min(max)),
                );
            }
            Plane::new(&self.words, width, height, width).map(AnyPlane::U16)
        }
    }
}

/// Turns pictures into planes, and keeps the room for that.
#[derive(Default)]
pub struct Importer([Scratch; 3]);

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
