// SPDX-License-Identifier: MPL-2.0

//! Heat maps: the reference picture, dimmed, with what is damaged in colour, in a frame of its own in the system's
//! memory.

use std::ops::ControlFlow;

use engine::frame::Geometry;
use engine::heatmap::{Encoding, Heatmap, Paint};
use gst::meta::{MetaTransformCopy, tags};
use gst::prelude::*;
use gst_video::prelude::*;
use gst_video::video_frame::{Readable, Writable};
use gst_video::video_meta::tags::Size;
use gst_video::{VideoBufferPool, VideoColorRange, VideoCropMeta, VideoFrame, VideoInfo};

use super::downstream::Damage;
use super::error::Error;
use super::memory::device_memory::Kind;
use super::memory::import::{ImportError, Layout, geometry};
use super::metas::{self, Crop, MetaError};
use super::pads::REFERENCE;

/// Paints frames of one format.
pub struct Painter {
    /// Format of the reference frames that are painted on, by their caps.
    stored: VideoInfo,
    /// Format of their pictures.
    shown: VideoInfo,
    /// Size and format of the painted frames, which are in the system's memory.
    painted: VideoInfo,
    pool: VideoBufferPool,
    geometry: Geometry,
    paints: [Paint; 3],
}

impl Drop for Painter {
    fn drop(&mut self) {
        // Its frames may still be on their way; the last one ends the pool.
        let _ = self.pool.set_active(false);
    }
}

/// Caps of painted frames.
pub fn caps(info: &VideoInfo) -> Result<gst::Caps, Error> {
    info.to_caps().map_err(|err| Error::Painting(err.to_string()))
}

impl Painter {
    /// Makes a painter for frames whose caps and whose pictures are of these formats, with a pool of buffers to paint into.
    pub fn new(stored: &VideoInfo, shown: &VideoInfo) -> Result<Self, Error> {
        if shown.format_info().is_rgb() {
            let convert = "heat maps are Y'CbCr, and the reference is R'G'B'; convert both videos before, as with videoconvert";
            return Err(Error::Painting(convert.into()));
        }
        let failed = |err: glib::BoolError| Error::Painting(err.to_string());
        let caps = caps(shown)?;
        let painted = VideoInfo::from_caps(&caps).map_err(failed)?;
        let pool = VideoBufferPool::new();
        let mut config = pool.config();
        config.set_params(Some(&caps), painted.size() as u32, 0, 0);
        pool.set_config(config).and_then(|()| pool.set_active(true)).map_err(failed)?;
        let geometry =
            geometry(&painted).ok_or_else(|| Error::Painting("its samples have an unknown depth".into()))?;
        let paints = Paint::new(&encoding(&painted));
        Ok(Self { stored: stored.clone(), shown: shown.clone(), painted, pool, geometry, paints })
    }

    /// Returns true if these formats are those that the painter was made for.
    pub fn suits(&self, stored: &VideoInfo, shown: &VideoInfo) -> bool {
        (&self.stored, &self.shown) == (stored, shown)
    }

    /// A reference frame as a heat map, with everything that the frame carries.
    pub fn paint(&self, buffer: gst::Buffer, damage: &Damage) -> Result<gst::Buffer, Error> {
        let kind = Kind::of(&buffer);
        let crop = metas::crop(&buffer, &self.stored).map_err(unreadable)?;
        let from = VideoFrame::from_buffer_readable(buffer, &self.stored).map_err(|_| {
            Error::Painting(match kind {
                Some(kind) => format!(
                    "the reference lies in {}, which the CPU cannot read; bring it to system memory before: {}",
                    kind.feature(),
                    kind.download()
                ),
                None => "a buffer on ref_sink is smaller than its caps say".into(),
            })
        })?;
        let new = self.pool.acquire_buffer(None).map_err(|err| Error::Painting(err.to_string()))?;
        let mut to = VideoFrame::from_buffer_writable(new, &self.painted)
            .map_err(|_| Error::Painting("a new frame cannot be written".into()))?;
        let sums = if let Damage::Known(sums) = damage { Some(sums) } else { None };
        let heatmap = Heatmap::new(self.geometry, sums);
        let components = self.painted.n_components() as usize;
        for (component, paint) in self.paints.iter().enumerate().take(components) {
            self.paint_component(component, paint, &heatmap, (&from, crop), &mut to);
        }
        let mut new = to.into_buffer();
        let frame = from.buffer();
        if let Some(new) = new.get_mut() {
            let what = gst::BufferCopyFlags::FLAGS | gst::BufferCopyFlags::TIMESTAMPS;
            frame.copy_into(new, what, ..).map_err(|err| Error::Painting(err.to_string()))?;
            frame.foreach_meta(|meta| {
                // Places in the whole frame are others in a part of it.
                let misplaced =
                    meta.has_tag::<Size>() && crop.is_some() || meta.api() == VideoCropMeta::meta_api();
                if !meta.has_tag::<tags::Memory>() && !meta.has_tag::<tags::MemoryReference>() && !misplaced {
                    // Some metas cannot be copied, which is no reason to stop.
                    let _ = meta.transform(new, &MetaTransformCopy::new(..));
                }
                ControlFlow::Continue(())
            });
        }
        Ok(new)
    }

    /// All of Y, Cb or Cr, the last sample of an odd size included. `None` where a plane has fewer rows than its format
    /// says, which mapped frames never have.
    fn paint_component(
        &self,
        component: usize,
        paint: &Paint,
        heatmap: &Heatmap,
        (from, crop): (&VideoFrame<Readable>, Option<Crop>),
        to: &mut VideoFrame<Writable>,
    ) -> Option<()> {
        let format = self.painted.format_info();
        let layout = Layout::new(&self.painted, component);
        let Layout { plane, offset, step, shift, sample_size, .. } = layout;
        let width = format.scale_width(component as u8, self.painted.width()) as usize;
        let height = format.scale_height(component as u8, self.painted.height()) as usize;
        let (w_sub, h_sub) = (format.w_sub()[component], format.h_sub()[component]);
        let stride = |strides: &[i32]| usize::try_from(*strides.get(plane as usize)?).ok();
        let (from_stride, to_stride) = (stride(from.plane_stride())?, stride(to.plane_stride())?);
        let from = from.plane_data(plane).ok()?.get(layout.within(crop).start(from_stride)?..)?;
        let to = to.plane_data_mut(plane).ok()?;
        let mut levels = vec![0; width];
        for y in 0..height {
            heatmap.row(y << h_sub, 1 << w_sub, &mut levels);
            let from = from.get(y * from_stride..)?;
            let to = to.get_mut(y * to_stride + offset..)?;
            if sample_size == 1 {
                let samples = to.iter_mut().step_by(step).zip(from.iter().step_by(step)).zip(&levels);
                samples.for_each(|((to, from), level)| *to = paint.apply((*from).into(), *level) as u8);
            } else {
                let samples = to.chunks_mut(2 * step).zip(from.chunks(2 * step)).zip(&levels);
                for ((to, from), level) in samples {
                    if let (Some(to), Some(from)) = (to.first_chunk_mut(), from.first_chunk()) {
                        let painted = paint.apply(u16::from_le_bytes(*from) >> shift, *level);
                        *to = (painted << shift).to_le_bytes();
                    }
                }
            }
        }
        Some(())
    }
}

/// Makes the error about a reference frame whose samples are not its picture.
pub fn unreadable(source: MetaError) -> Error {
    Error::Buffer { pad: REFERENCE.into(), source: ImportError::from(source) }
}

/// Returns the encoding of grey samples in a format.
fn encoding(info: &VideoInfo) -> Encoding {
    let colorimetry = info.colorimetry();
    let range = match colorimetry.range() {
        VideoColorRange::Range0_255 => VideoColorRange::Range0_255,
        _ => VideoColorRange::Range16_235,
    };
    let ([y, cb, cr, _], [of_y, of_cb, of_cr, _]) = info.format_info().range_offsets(range);
    // Grey video has no matrix; its brightness is that of BT.709.
    let (red, blue) = colorimetry.matrix().kr_kb().unwrap_or((0.2126, 0.0722));
    let max = (1 << info.comp_depth(0)) - 1;
    Encoding { red, blue, offset: [y, cb, cr], scale: [of_y, of_cb, of_cr], max }
}
