// SPDX-License-Identifier: MPL-2.0

//! Short clips of synthetic content in any kind of memory.

use std::sync::Arc;

use clap::ValueEnum;
use engine::backend::Group;
use engine::frame::{BitDepth, Component, DeviceAddress, Geometry, Lease, Picture, Samples};
use engine::random::noise;
use engine::video::{FrameRate, Video};
use gpu::{Device, DeviceBuffer, Pinned};
use rayon::prelude::*;

/// Returns what metrics are to know about the clips: 25 frames per second.
pub fn video() -> Video {
    Video { rate: FrameRate::new(25, 1), ..Video::default() }
}

/// Memory of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// Memory of the GPU, read where it is
    Device,
    /// Page-locked memory, which the GPU copies on its own
    Pinned,
    /// Ordinary memory
    Host,
}

/// Content of pictures.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// Moving texture with smooth and detailed areas and with grain. The distorted picture is blurred and has other
    /// grain.
    Natural,
    /// White noise, with samples above the maximum of their depth if the sample type allows them.
    Noise,
    /// Random black and white pixels.
    Extremes,
    /// One grey level for each picture.
    Flat,
}

/// The memory layout of a picture.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    pub width: usize,
    pub height: usize,
    pub depth: BitDepth,
    /// Rows begin at multiples of this many bytes.
    pub align: usize,
    /// Cb and Cr are interleaved.
    pub interleaved: bool,
    /// Samples are in the high bits.
    pub high: bool,
}

impl Format {
    /// Returns the geometry, which is 4:2:0.
    pub fn geometry(&self) -> Geometry {
        let Self { width, height, depth, .. } = *self;
        Geometry { width, height, depth, chroma: Some((width / 2, height / 2)) }
    }

    fn shift(&self) -> u32 {
        if self.high && self.depth.bits() > 8 { 16 - self.depth.bits() } else { 0 }
    }
}

/// The place of a component in its picture.
#[derive(Clone, Copy)]
struct Part {
    start: usize,
    width: usize,
    height: usize,
    stride: usize,
    step: usize,
}

/// The memory of a picture.
enum Memory {
    Device(Arc<DeviceBuffer>),
    Pinned(Arc<Pinned>),
    Host(Arc<Vec<u8>>),
}

/// Pairs of pictures.
pub struct Clip {
    format: Format,
    parts: [Part; 3],
    pairs: Vec<[Memory; 2]>,
}

/// Luma that resembles a scene, larger than the picture so that it can move.
struct Texture {
    width: usize,
    samples: Vec<u16>,
}

/// Samples that a texture extends beyond the picture.
const MARGIN: usize = 128;

impl Texture {
    fn new(width: usize, height: usize, seed: u32) -> Self {
        let width = width + MARGIN;
        let mut samples = vec![0; width * (height + MARGIN)];
        samples.par_chunks_mut(width).enumerate().for_each(|(y, row)| {
            for (x, sample) in row.iter_mut().enumerate() {
                // Interpolates smoothly between random values at the corners of a grid.
                let layer = |cell: usize| {
                    let corner = |i, j| (noise(seed + cell as u32, x / cell + i, y / cell + j) >> 8) as f32;
                    let part = |v: usize| (v % cell) as f32 / cell as f32;
                    let across = |j| corner(0, j) + (corner(1, j) - corner(0, j)) * part(x);
                    (across(0) + (across(1) - across(0)) * part(y)) / 16_777_216.0
                };
                let coarse = layer(160);
                let detail = if coarse > 0.45 { 1.0 } else { 0.1 };
                let value = 0.6 * coarse + detail * (0.25 * layer(24) + 0.15 * layer(5));
                *sample = (value * 60_000.0) as u16;
            }
        });
        Self { width, samples }
    }

    fn at(&self, x: usize, y: usize) -> u32 {
        self.samples[y * self.width + x].into()
    }
}

impl Clip {
    /// Creates a clip in ordinary memory.
    pub fn new(format: Format, content: Content, pairs: usize, seed: u32) -> Self {
        let Geometry { width, height, chroma, .. } = format.geometry();
        let size = format.geometry().sample_size();
        let mut end = 0;
        let mut plane = |width: usize, height: usize, step: usize| {
            let stride = (width * step * size).next_multiple_of(format.align);
            let part = Part { start: end, width, height, stride, step };
            end += (stride * height).next_multiple_of(format.align.max(16));
            part
        };
        let luma = plane(width, height, 1);
        let (width, height) = chroma.unwrap_or_default();
        let parts = if format.interleaved {
            let cb = plane(width, height, 2);
            [luma, cb, Part { start: cb.start + size, ..cb }]
        } else {
            [luma, plane(width, height, 1), plane(width, height, 1)]
        };
        let texture = Texture::new(format.width, format.height, seed);
        let picture = |time: usize, which: u32| {
            let mut bytes = vec![0; end];
            for (component, part) in parts.iter().enumerate() {
                let seed = seed + (time as u32 * 2 + which) * 3 + component as u32;
                for y in 0..part.height {
                    for x in 0..part.width {
                        let sample = content.sample(&format, &texture, (time, which, seed), x, y);
                        let at = part.start + y * part.stride + x * part.step * size;
                        bytes[at..at + size].copy_from_slice(&sample.to_le_bytes()[..size]);
                    }
                }
            }
            Memory::Host(Arc::new(bytes))
        };
        let pairs = (0..pairs).into_par_iter().map(|time| [picture(time, 0), picture(time, 1)]).collect();
        Self { format, parts, pairs }
    }

    /// Copies it to other memory.
    pub fn moved(self, place: Place, device: &Arc<Device>) -> Result<Self, gpu::Error> {
        let moved = |memory| {
            Ok(match (place, memory) {
                (Place::Device, Memory::Host(bytes)) => {
                    Memory::Device(Arc::new(DeviceBuffer::holding(device, "a clip", &bytes)?))
                }
                (Place::Pinned, Memory::Host(bytes)) => {
                    let mut pinned = Pinned::new(device.clone(), bytes.len())?;
                    pinned.bytes_mut()[..bytes.len()].copy_from_slice(&bytes);
                    Memory::Pinned(Arc::new(pinned))
                }
                (_, memory) => memory,
            })
        };
        let pairs = self.pairs.into_iter().map(|[r, d]| Ok([moved(r)?, moved(d)?]));
        Ok(Self { pairs: pairs.collect::<Result<_, gpu::Error>>()?, ..self })
    }

    pub fn geometry(&self) -> Geometry {
        self.format.geometry()
    }

    /// Returns the number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Returns the bytes of all luma.
    pub fn size(&self) -> usize {
        self.pairs.len() * 2 * self.parts[0].stride * self.parts[0].height
    }

    /// Returns a pair; the first follows the last.
    pub fn group(&self, index: usize) -> Group<'_> {
        self.group_of(index, 1)
    }

    /// Returns a reference picture with `renditions` distorted ones: its own and those of the following pairs.
    pub fn group_of(&self, index: usize, renditions: usize) -> Group<'_> {
        let pair = |i: usize| &self.pairs[(index + i) % self.pairs.len()];
        let distorted = (0..renditions).map(|i| (i, self.picture(&pair(i)[1])));
        Group { reference: self.picture(&pair(0)[0]), distorted: distorted.collect(), history_only: false }
    }

    fn picture<'a>(&self, memory: &'a Memory) -> Picture<'a> {
        let component = |part: Part| {
            let samples = match memory {
                Memory::Device(buffer) => {
                    // SAFETY: the buffer is as long as the parts, and the lease below keeps it.
                    Samples::Device(unsafe { DeviceAddress::new(buffer.address() + part.start as u64) })
                }
                Memory::Pinned(pinned) => Samples::Host(&pinned.bytes()[part.start..]),
                Memory::Host(bytes) => Samples::Host(&bytes[part.start..]),
            };
            let Part { width, height, stride, step, .. } = part;
            Component { samples, width, height, stride, step, shift: self.format.shift() }
        };
        Picture {
            luma: component(self.parts[0]),
            chroma: Some([component(self.parts[1]), component(self.parts[2])]),
            lease: match memory {
                // SAFETY: nothing changes a clip.
                Memory::Device(buffer) => Some(unsafe { Lease::new(buffer.clone()) }.in_place()),
                // SAFETY: nothing changes a clip, and the memory is page-locked.
                Memory::Pinned(pinned) => Some(unsafe { Lease::new(pinned.clone()).pinned() }),
                // SAFETY: nothing changes a clip.
                Memory::Host(bytes) => Some(unsafe { Lease::new(bytes.clone()) }),
            },
        }
    }
}

impl Content {
    /// Returns a sample as it is stored in memory.
    fn sample(
        self,
        format: &Format,
        texture: &Texture,
        (time, which, seed): (usize, u32, u32),
        x: usize,
        y: usize,
    ) -> u16 {
        let max = format.depth.max();
        let white = noise(seed, x, y);
        let value = match self {
            Self::Natural => {
                let (x, y) = (x + 3 * time % 96, y + 2 * time % 96);
                let scene = if which == 0 {
                    texture.at(x, y)
                } else {
                    (0..4).map(|i| texture.at(x + i, y + i)).sum::<u32>() / 4
                };
                (scene + (white >> 22)) >> (16 - format.depth.bits())
            }
            Self::Noise if max > 255 && white.is_multiple_of(16) => return (white >> 16) as u16,
            Self::Noise => white >> (32 - format.depth.bits()),
            Self::Extremes => max * (white >> 31),
            Self::Flat => noise(seed, 0, 0) >> (32 - format.depth.bits()),
        };
        (value.min(max) as u16) << format.shift()
    }
}
