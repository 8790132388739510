// SPDX-License-Identifier: MPL-2.0

//! From GStreamer video frames to the planes of [`crate::frame`].
//!
//! Planar 8-bit samples are borrowed where they lie. Everything else (interleaved chroma, more than
//! 8 bits, samples in the high bits) is unpacked row by row into planes the importer owns, which also
//! keeps samples inside the range of their depth.

use gst_video::prelude::*;
use gst_video::{VideoFrameRef, VideoInfo};

use crate::frame::{AnyPlane, BitDepth, Frame, Geometry, Plane};

/// Where one component (luma, Cb or Cr) lies in a frame.
#[derive(Clone, Copy)]
struct Component {
    plane: u32,
    /// Bytes before the first sample of a row, and from one sample to the next.
    offset: usize,
    step: usize,
    /// Unused low bits.
    shift: u32,
    width: usize,
    height: usize,
}

impl Component {
    fn new(info: &VideoInfo, index: usize) -> Self {
        let format = info.format_info();
        let bytes = info.comp_depth(index as u8).div_ceil(8) as usize;
        Self {
            plane: format.plane()[index],
            // Either no offset or that of the second sample; GStreamer 1.22 gives 1 byte even where
            // samples have two (P010, P012).
            offset: if format.poffset()[index] > 0 { bytes } else { 0 },
            step: format.pixel_stride()[index] as usize,
            shift: format.shift()[index],
            // Rounded down, as libvmaf does: the last chroma sample of an odd size is not looked at.
            width: info.width() as usize >> format.w_sub()[index],
            height: info.height() as usize >> format.h_sub()[index],
        }
    }
}

/// Unpacked samples of one component.
#[derive(Default)]
struct Scratch {
    bytes: Vec<u8>,
    words: Vec<u16>,
}

impl Scratch {
    /// `None` when the buffer is too small for its caps.
    fn import<'a>(
        &'a mut self,
        component: &Component,
        depth: BitDepth,
        frame: &'a VideoFrameRef<&gst::BufferRef>,
    ) -> Option<AnyPlane<'a>> {
        let Component { offset, step, shift, width, height, .. } = *component;
        let data = frame.plane_data(component.plane).ok()?.get(offset..)?;
        let stride = usize::try_from(*frame.plane_stride().get(component.plane as usize)?).ok()?;
        if depth.bits() == 8 && step == 1 {
            return Plane::new(data, width, height, stride).map(AnyPlane::U8);
        }
        let row = |y: usize| data.get(y * stride..).map(|rest| rest.chunks(step).take(width));
        if depth.bits() == 8 {
            self.bytes.clear();
            for y in 0..height {
                self.bytes.extend(row(y)?.map(|sample| sample[0]));
            }
            Plane::new(&self.bytes, width, height, width).map(AnyPlane::U8)
        } else {
            let max = depth.max() as u16;
            self.words.clear();
            for y in 0..height {
                self.words.extend(
                    row(y)?
                        .filter_map(|sample| sample.first_chunk())
                        .map(|sample| (u16::from_le_bytes(*sample) >> shift).min(max)),
                );
            }
            Plane::new(&self.words, width, height, width).map(AnyPlane::U16)
        }
    }
}

/// Turns the frames of one pad into planes.
pub struct Importer {
    depth: BitDepth,
    components: Vec<Component>,
    scratch: [Scratch; 3],
}

impl Importer {
    /// For frames of this format, whose [`geometry`] has this depth; `chroma` says whether anything looks
    /// at Cb and Cr.
    pub fn new(info: &VideoInfo, depth: BitDepth, chroma: bool) -> Self {
        let components = if chroma && info.format_info().n_components() >= 3 { 3 } else { 1 };
        Self {
            depth,
            components: (0..components).map(|index| Component::new(info, index)).collect(),
            scratch: Default::default(),
        }
    }

    /// The frame's planes, or `None` when the buffer is smaller than its caps say.
    pub fn import<'a>(&'a mut self, frame: &'a VideoFrameRef<&gst::BufferRef>) -> Option<Frame<'a>> {
        let depth = self.depth;
        let mut planes = self
            .components
            .iter()
            .zip(&mut self.scratch)
            .map(|(component, scratch)| scratch.import(component, depth, frame));
        let luma = planes.next()??;
        let chroma = match (planes.next(), planes.next()) {
            (Some(cb), Some(cr)) => Some([cb?, cr?]),
            _ => None,
        };
        Some(Frame { luma, chroma })
    }
}

/// What the engine needs to know about a format.
pub fn geometry(info: &VideoInfo) -> Option<Geometry> {
    let luma = Component::new(info, 0);
    let chroma = (info.format_info().n_components() >= 3).then(|| Component::new(info, 1));
    Some(Geometry {
        width: luma.width,
        height: luma.height,
        depth: BitDepth::new(info.comp_depth(0))?,
        chroma: chroma.map(|c| (c.width, c.height)),
    })
}
