// SPDX-License-Identifier: MPL-2.0

//! From GStreamer buffers to the pictures of [`engine::frame`]. Nothing is copied or converted here.

use std::ops::Range;
use std::sync::Arc;

use engine::frame::{BitDepth, Component, Geometry, Lease, Picture, Samples};
use gpu::Device;
use gst_video::prelude::*;
use gst_video::video_frame::Readable;
use gst_video::{VideoFrame, VideoInfo};

use super::super::CAT;
use super::super::metas::{self, Crop, MetaError};
use super::allocator::PinnedAllocator;
use super::device_memory::{DeviceFrame, DeviceMemoryError, DevicePlane, ImportCache, Kind};
use super::registered;

/// The position of one component in a frame.
#[derive(Clone, Copy)]
pub struct Layout {
    pub plane: u32,
    /// Bytes before the first sample of a row.
    pub offset: usize,
    /// Samples from one sample to the next.
    pub step: usize,
    /// Unused low bits.
    pub shift: u32,
    /// Column and row of the first sample that is read, in samples of the component.
    first: (usize, usize),
    width: usize,
    height: usize,
    /// Powers of two by which the component has fewer columns, and rows, than luma.
    subsampling: (u32, u32),
    /// Bytes.
    pub sample_size: usize,
}

impl Layout {
    pub fn new(info: &VideoInfo, index: usize) -> Self {
        let format = info.format_info();
        let bytes = info.comp_depth(index as u8).div_ceil(8) as usize;
        Self {
            plane: format.plane()[index],
            // Either no offset or that of the second sample; GStreamer 1.22 gives 1 byte even where
            // samples have two (P010, P012).
            offset: if format.poffset()[index] > 0 { bytes } else { 0 },
            step: format.pixel_stride()[index] as usize / bytes,
            shift: format.shift()[index],
            first: (0, 0),
            subsampling: (format.w_sub()[index], format.h_sub()[index]),
            width: format.scale_width(index as u8, info.width()) as usize,
            height: format.scale_height(index as u8, info.height()) as usize,
            sample_size: bytes,
        }
    }

    /// Returns the layout of a part of the frame. Subsampled components begin with the sample that the first one of luma shares, and
    /// so do those of `videocrop`.
    pub fn within(self, crop: Option<Crop>) -> Self {
        let Some(Crop { x, y, width, height }) = crop else { return self };
        let (columns, rows) = self.subsampling;
        let (width, height) = (width.div_ceil(1 << columns), height.div_ceil(1 << rows));
        Self { first: (x >> columns, y >> rows), width, height, ..self }
    }

    /// Returns the bytes of the plane before the first sample that is read.
    pub fn start(&self, stride: usize) -> Option<usize> {
        let (column, row) = self.first;
        stride.checked_mul(row)?.checked_add(column * self.step * self.sample_size + self.offset)
    }

    /// Returns the bytes of the plane up to behind the last sample that is read; nothing when rows overlap.
    fn end(&self, stride: usize) -> Option<usize> {
        let Self { offset, step, first: (column, row), width, height, sample_size, .. } = *self;
        let length = offset + ((column + width).saturating_sub(1) * step + 1) * sample_size;
        (stride >= length).then_some(())?;
        stride.checked_mul((row + height).saturating_sub(1))?.checked_add(length)
    }

    fn component<'a>(&self, mapped: &'a Mapped) -> Option<Component<'a>> {
        let Self { plane, step, shift, width, height, .. } = *self;
        let component = |samples, stride| Component { samples, width, height, stride, step, shift };
        match &mapped.frame {
            MappedFrame::Host(frame, _) => {
                let stride = usize::try_from(*frame.plane_stride().get(plane as usize)?).ok()?;
                let samples = frame.plane_data(plane).ok()?.get(self.start(stride)?..)?;
                Some(component(Samples::Host(samples), stride))
            }
            MappedFrame::Device(frame) => {
                let DevicePlane { address, size, stride } = frame.plane(plane)?;
                (self.end(stride)? <= size).then_some(())?;
                Some(component(Samples::Device(address.offset(self.start(stride)?)), stride))
            }
        }
    }

    /// Kernels read whole rows, with what follows the samples.
    fn has_whole_rows(&self, frame: &DeviceFrame) -> bool {
        let end = |plane: DevicePlane| {
            self.start(plane.stride)?.checked_sub(self.offset)?.checked_add(plane.stride * self.height)
        };
        frame.plane(self.plane).is_some_and(|plane| end(plane).is_some_and(|end| end <= plane.size))
    }
}

/// A buffer whose samples can be read, and the part of it that is its picture.
pub struct Mapped {
    frame: MappedFrame,
    crop: Option<Crop>,
}

/// The samples of a buffer, where they are.
enum MappedFrame {
    /// A frame in the system's memory, which the GPU can read on its own within these addresses: page-locked memory.
    Host(Arc<VideoFrame<Readable>>, Range<usize>),
    /// A frame in the GPU's memory, or imported for it.
    Device(Arc<DeviceFrame>),
}

/// Why a buffer cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("is smaller than its caps say")]
    Small,
    #[error("lies in {}, {source}; bring the video to system memory before: {}", .kind.feature(), .kind.download())]
    Device { kind: Kind, source: DeviceMemoryError },
    #[error(transparent)]
    Meta(#[from] MetaError),
}

/// Describes the frames of one pad as pictures.
pub struct Importer {
    info: VideoInfo,
    luma: Layout,
    chroma: Option<[Layout; 2]>,
    imported: ImportCache,
}

impl Importer {
    /// Makes an importer for frames with caps of this format; `chroma`: something looks at Cb and Cr. Of R'G'B', G is in the
    /// place of luma, and B and R are in those of Cb and Cr.
    pub fn new(info: &VideoInfo, chroma: bool) -> Self {
        let chroma = chroma && info.format_info().n_components() >= 3;
        let [luma, cb, cr] = if info.format_info().is_rgb() { [1, 2, 0] } else { [0, 1, 2] };
        Self {
            info: info.clone(),
            luma: Layout::new(info, luma),
            chroma: chroma.then(|| [Layout::new(info, cb), Layout::new(info, cr)]),
            imported: ImportCache::default(),
        }
    }

    /// Returns true if frames of this format are those that the importer was made for.
    pub fn suits(&self, info: &VideoInfo) -> bool {
        self.info == *info
    }

    /// Makes a buffer's samples readable for the GPU that scores them, or for the CPU.
    pub fn map(&mut self, buffer: gst::Buffer, gpu: Option<&Arc<Device>>) -> Result<Mapped, ImportError> {
        let crop = metas::crop(&buffer, &self.info)?;
        let frame = self.map_frame(buffer, gpu)?;
        Ok(Mapped { frame, crop })
    }

    fn map_frame(
        &mut self,
        buffer: gst::Buffer,
        gpu: Option<&Arc<Device>>,
    ) -> Result<MappedFrame, ImportError> {
        match (gpu, Kind::of(&buffer)) {
            (Some(gpu), Some(Kind::DmaBuf)) if gpu.info().imports_external_memory() => {
                match DeviceFrame::import(buffer.clone(), &self.info, gpu, &mut self.imported) {
                    Ok(frame) => return Ok(MappedFrame::Device(Arc::new(frame))),
                    // The CPU can map most of them.
                    Err(err) => gst::debug!(CAT, "a DMA buffer is mapped for the CPU, {err}"),
                }
            }
            (Some(gpu), Some(kind @ (Kind::Hip | Kind::Cuda))) => {
                return DeviceFrame::map(buffer, kind, &self.info, gpu)
                    .map(|frame| MappedFrame::Device(Arc::new(frame)))
                    .map_err(|source| ImportError::Device { kind, source });
            }
            // Device memory that no GPU of ours is there for copies itself to system memory when it is mapped.
            _ => {}
        }
        let pinned = gpu.and_then(|gpu| {
            let ours = PinnedAllocator::has_made(&buffer, gpu).then_some(0..usize::MAX);
            ours.or_else(|| registered::locked(&buffer, gpu))
        });
        let frame = VideoFrame::from_buffer_readable(buffer, &self.info).map_err(|_| ImportError::Small)?;
        Ok(MappedFrame::Host(Arc::new(frame), pinned.unwrap_or(0..0)))
    }

    /// The picture in a frame, or `None` when the frame is smaller than its caps say.
    pub fn picture<'a>(&self, mapped: &'a Mapped) -> Option<Picture<'a>> {
        let luma = self.luma.within(mapped.crop);
        let chroma = self.chroma.map(|layouts| layouts.map(|layout| layout.within(mapped.crop)));
        let lease = match &mapped.frame {
            MappedFrame::Host(frame, pinned) => {
                // SAFETY: no thread writes to the frame while it is mapped and its buffer shared.
                let lease = unsafe { Lease::new(frame.clone()) };
                // SAFETY: what is page-locked of the frame's memory is so for as long as the memory lives.
                Some(unsafe { lease.pinned_within(pinned.clone()) })
            }
            MappedFrame::Device(frame) => {
                let mut layouts = [luma].into_iter().chain(chroma.into_iter().flatten());
                let in_place = frame.in_place && layouts.all(|layout| layout.has_whole_rows(frame));
                // SAFETY: as above.
                let lease = unsafe { Lease::new(frame.clone()) };
                // SAFETY: the frame's memory keeps the streams.
                let lease =
                    frame.producers.iter().fold(lease, |lease, stream| unsafe { lease.produced_on(*stream) });
                Some(if in_place { lease.in_place() } else { lease })
            }
        };
        let chroma = match chroma {
            Some([cb, cr]) => Some([cb.component(mapped)?, cr.component(mapped)?]),
            None => None,
        };
        Some(Picture { luma: luma.component(mapped)?, chroma, lease })
    }
}

/// Returns a format as the engine describes it.
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
