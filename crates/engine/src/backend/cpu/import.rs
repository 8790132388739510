// SPDX-License-Identifier: MPL-2.0

//! The conversion of pictures in memory to planes.
//!
//! Planar samples are borrowed in place and clamped when they are read. All other layouts (interleaved chroma, samples
//! in the high bits, odd addresses) are unpacked row by row.

use crate::backend::cpu::plane::{AnyPlane, Frame, Plane};
use crate::frame::{BitDepth, Component, Picture, Samples};

/// Returns true if all samples of a component can be read.
pub fn is_readable(component: &Component<'_>, depth: BitDepth) -> bool {
    let Component { samples: Samples::Host(data), width, height, stride, step, .. } = *component else {
        return false;
    };
    let size = if depth.bits() == 8 { 1 } else { 2 };
    let row = (width.saturating_sub(1) * step + 1) * size;
    let all = height.checked_sub(1).and_then(|rows| stride.checked_mul(rows)?.checked_add(row));
    stride >= row && all.is_some_and(|all| all <= data.len())
}

/// Returns the plane of a component whose samples need no unpacking.
pub fn as_it_lies<'a>(component: &Component<'a>, depth: BitDepth) -> Option<AnyPlane<'a>> {
    let Component { samples: Samples::Host(data), width, height, stride, step: 1, shift: 0 } = *component
    else {
        return None;
    };
    if depth.bits() == 8 {
        return Plane::new(data, width, height, stride).map(AnyPlane::U8);
    }
    let whole = data.len() / 2 * 2;
    let words = bytemuck::try_cast_slice(&data[..whole]).ok().filter(|_| cfg!(target_endian = "little"))?;
    let stride = stride.is_multiple_of(2).then_some(stride / 2)?;
    let plane = Plane::new(words, width, height, stride)?;
    Some(AnyPlane::U16(plane.clamped(depth.max() as u16)))
}

/// Unpacked samples of one component.
#[derive(Default)]
pub struct Unpacked {
    width: usize,
    height: usize,
    samples: Unpacking,
}

/// Memory for unpacked samples: `bytes` for 8-bit video, `words` (and `wide`) for deeper video.
#[derive(Default)]
struct Unpacking {
    wide: bool,
    bytes: Vec<u8>,
    words: Vec<u16>,
}

impl Unpacked {
    /// Copies the samples of a component as far as they can be read.
    pub fn copy(&mut self, component: &Component<'_>, depth: BitDepth) {
        let Component { samples, width, height, stride, step, shift } = *component;
        (self.width, self.height) = (width, height);
        let Unpacking { wide, bytes, words } = &mut self.samples;
        *wide = depth.bits() > 8;
        bytes.clear();
        words.clear();
        let Samples::Host(data) = samples else { return };
        for row in (0..height).map_while(|y| data.get(y * stride..)) {
            if *wide {
                let max = depth.max() as u16;
                let value = |sample: &[u8; 2]| (u16::from_le_bytes(*sample) >> shift).min(max);
                pick(row.as_chunks().0, width, step, words, value);
            } else {
                pick(row, width, step, bytes, |sample| *sample);
            }
        }
    }

    /// Returns the plane; `None` if samples are missing.
    pub fn plane(&self) -> Option<AnyPlane<'_>> {
        let Self { width, height, samples: Unpacking { wide, bytes, words } } = self;
        match wide {
            true => Plane::new(words, *width, *height, *width).map(AnyPlane::U16),
            false => Plane::new(bytes, *width, *height, *width).map(AnyPlane::U8),
        }
    }

    /// Returns the plane of a component, in place or unpacked here; `None` if samples are missing.
    pub fn import<'a>(&'a mut self, component: &Component<'a>, depth: BitDepth) -> Option<AnyPlane<'a>> {
        as_it_lies(component, depth).or_else(|| {
            self.copy(component, depth);
            self.plane()
        })
    }
}

/// Appends up to `width` samples of a row, each `step` samples after the one before. The compiler vectorises steps of 1
/// and 2.
fn pick<S, T>(row: &[S], width: usize, step: usize, to: &mut Vec<T>, value: impl Fn(&S) -> T) {
    match step {
        1 => to.extend(row.iter().take(width).map(value)),
        2 => {
            // There may be no sample after the last one.
            let (pairs, last) = row[..row.len().min((2 * width).saturating_sub(1))].as_chunks::<2>();
            to.extend(pairs.iter().map(|[sample, _]| value(sample)));
            to.extend(last.first().map(value));
        }
        _ => to.extend(row.iter().step_by(step).take(width).map(value)),
    }
}

/// Converts pictures to planes and owns the memory for that.
#[derive(Default)]
pub struct Importer([Unpacked; 3]);

impl Importer {
    /// Returns the picture's planes, with Cb and Cr if requested; `None` if the picture is smaller than its size says
    /// or not in host memory.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::noise;

    #[test]
    fn samples_are_picked_shifted_and_clamped_in_every_layout() {
        let data: Vec<u8> = (0..4096).map(|i| noise(0, i, 0) as u8).collect();
        for (bits, shift) in [(8, 0), (9, 0), (10, 0), (10, 6), (12, 4), (16, 0)] {
            let depth = BitDepth::new(bits).unwrap();
            let size = if bits == 8 { 1 } else { 2 };
            for step in 1..=4 {
                for width in [1, 2, 15, 16, 17, 40] {
                    let stride = width * step * size + 3;
                    let samples = Samples::Host(&data);
                    let component = Component { samples, width, height: 5, stride, step, shift };
                    let at = |i: usize| {
                        let at = i / width * stride + i % width * step * size;
                        let low = u16::from(data[at]);
                        if size == 1 { low } else { (low | u16::from(data[at + 1]) << 8) >> shift }
                    };
                    let expected: Vec<_> = (0..5 * width).map(|i| at(i).min(depth.max() as u16)).collect();
                    let mut unpacked = Unpacked::default();
                    // No data of an earlier picture may remain.
                    for _ in 0..2 {
                        unpacked.copy(&component, depth);
                        let found: Vec<_> = match unpacked.plane() {
                            Some(AnyPlane::U8(_)) => {
                                unpacked.samples.bytes.iter().map(|x| u16::from(*x)).collect()
                            }
                            _ => unpacked.samples.words.clone(),
                        };
                        assert_eq!(found, expected, "{bits} bits, step {step}, width {width}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_lies_as_planes_do_is_not_copied_and_clamped_when_it_is_read() {
        let (width, height) = (37, 5);
        for bits in [9, 10, 12, 16] {
            let depth = BitDepth::new(bits).unwrap();
            let max = depth.max() as u16;
            // Rows are 40 samples apart, or one byte more.
            for (stride, first) in [(80, 0), (80, 2), (80, 1), (81, 0)] {
                // Position of the sample that is out of range; samples between rows are ignored.
                for (x, y) in [(0, 0), (width - 1, height - 1), (12, 3), (width, 1)] {
                    for excess in [0, 1, 0xffff - max] {
                        let Some(value) = max.checked_add(excess) else { continue };
                        let mut data = vec![0u16; 256];
                        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut data);
                        for at in 0..width * height {
                            let at = first + at / width * stride + at % width * 2;
                            bytes[at..][..2].copy_from_slice(&(noise(7, at, 0) as u16 & max).to_le_bytes());
                        }
                        bytes[first + y * stride + x * 2..][..2].copy_from_slice(&value.to_le_bytes());
                        let samples = Samples::Host(&bytes[first..]);
                        let component = Component { samples, width, height, stride, step: 1, shift: 0 };
                        let mut unpacked = Unpacked::default();
                        let Some(AnyPlane::U16(plane)) = unpacked.import(&component, depth) else { panic!() };
                        for (row, y) in (0..height).map(|y| (plane.row(y), y)) {
                            let bytes = bytes[first + y * stride..].as_chunks().0;
                            let expected = bytes.iter().map(|sample| u16::from_le_bytes(*sample).min(max));
                            assert!(row.iter().eq(expected.take(width)), "{bits} bits, row {y}");
                        }
                        let lies = stride % 2 == 0 && first % 2 == 0;
                        let borrowed = plane.row(0).memory().as_ptr().cast() == bytes[first..].as_ptr();
                        assert_eq!(
                            borrowed, lies,
                            "{bits} bits, {stride} + {first}, {excess} too much at {x}, {y}"
                        );
                    }
                }
            }
        }
    }
}
