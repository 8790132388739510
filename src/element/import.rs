// SPDX-License-Identifier: MPL-2.0

//! From GStreamer buffers to the pictures of [`crate::frame`]. Nothing is copied or converted here.

use gst_video::prelude::*;
use gst_video::video_frame::Readable;
use gst_video::{VideoFrame, VideoInfo};

use crate::frame::{BitDepth, Component, Geometry, Picture, Samples};

/// Where one component (luma, Cb or Cr) lies in a frame.
#[derive(Clone, Copy)]
struct Layout {
    plane: u32,
    /// Bytes before the first sample of a row.
    offset: usize,
    /// Samples from one sample to the next.
    step: usize,
    /// Unused low bits.
    shift: u32,
    width: usize,
    height: usize,
}

impl Layout {
    fn new(info: &VideoInfo, index: usize) -> Self {
        let format = info.format_info();
        let bytes = info.comp_depth(index as u8).div_ceil(8) as usize;
        Self {
            plane: format.plane()[index],
            // Either no offset or that of the second sample; GStreamer 1.22 gives 1 byte even where
            // samples have two (P010, P012).
            offset: if format.poffset()[index] > 0 { bytes } else { 0 },
            step: format.pixel_stride()[index] as usize / bytes,
            shift: format.shift()[index],
            // Rounded down, as libvmaf does: the last chroma sample of an odd size is not looked at.
            width: info.width() as usize >> format.w_sub()[index],
            height: info.height() as usize >> format.h_sub()[index],
        }
    }

    fn component<'a>(&self, frame: &'a VideoFrame<Readable>) -> Option<Component<'a>> {
        let Self { plane, offset, step, shift, width, height } = *self;
        let samples = Samples::Host(frame.plane_data(plane).ok()?.get(offset..)?);
        let stride = usize::try_from(*frame.plane_stride().get(plane as usize)?).ok()?;
        Some(Component { samples, width, height, stride, step, shift })
    }
}

/// Describes the frames of one pad as pictures.
pub struct Importer {
    info: VideoInfo,
    luma: Layout,
    chroma: Option<[Layout; 2]>,
}

impl Importer {
    /// For frames of this format; `chroma` says whether anything looks at Cb and Cr.
    pub fn new(info: &VideoInfo, chroma: bool) -> Self {
        let chroma = chroma && info.format_info().n_components() >= 3;
        Self {
            info: info.clone(),
            luma: Layout::new(info, 0),
            chroma: chroma.then(|| [Layout::new(info, 1), Layout::new(info, 2)]),
        }
    }

    /// Makes a buffer's samples readable; `None` when it is smaller than its caps say.
    pub fn map(&self, buffer: gst::Buffer) -> Option<VideoFrame<Readable>> {
        VideoFrame::from_buffer_readable(buffer, &self.info).ok()
    }

    /// The picture in a frame, or `None` when the frame is smaller than its caps say.
    pub fn picture<'a>(&self, frame: &'a VideoFrame<Readable>) -> Option<Picture<'a>> {
        let chroma = match &self.chroma {
            Some([cb, cr]) => Some([cb.component(frame)?, cr.component(frame)?]),
            None => None,
        };
        Some(Picture { luma: self.luma.component(frame)?, chroma, lease: None })
    }
}

/// What the engine needs to know about a format.
pub fn geometry(info: &VideoInfo) -> Option<Geometry> {
    let luma = Layout::new(info, 0);
    let chroma = (info.format_info().n_components() >= 3).then(|| Layout::new(info, 1));
    Some(Geometry {
        width: luma.width,
        height: luma.height,
        depth: BitDepth::new(info.comp_depth(0))?,
        chroma: chroma.map(|c| (c.width, c.height)),
    })
}
