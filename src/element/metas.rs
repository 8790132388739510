// SPDX-License-Identifier: MPL-2.0

//! Metas that change what a buffer means: which part of a frame is its picture, and what would have to be done to the
//! picture before it is shown.
//!
//! A crop rectangle is honoured wherever frames are read. Overlays and transformations are for elements that draw; a
//! buffer with them is refused, as its samples are not what a viewer sees.

use std::sync::Arc;

use gst::prelude::*;
use gst::query::Allocation;
use gst_video::video_meta::{VideoAffineTransformationMeta, VideoOverlayCompositionMeta};
use gst_video::{VideoCropMeta, VideoInfo, VideoMeta};

/// A part of a frame, in luma samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crop {
    pub x: usize,
    pub y: usize,
    pub width: usize,
    pub height: usize,
}

/// Why the samples of a buffer are not its picture.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    #[error(
        "has the crop rectangle {width}x{height} at {x},{y} (GstVideoCropMeta), which is empty or does not lie in its frame \
         of {}x{}; crop the video before: videocrop",
        .frame.0, .frame.1
    )]
    Crop { x: u32, y: u32, width: u32, height: u32, frame: (u32, u32) },
    #[error(
        "carries overlays beside its picture (GstVideoOverlayCompositionMeta), which are not blended here; have the element \
         that adds them blend them: put the caps filter video/x-raw behind it"
    )]
    Overlay,
    #[error(
        "is to be transformed before it is shown (GstVideoAffineTransformationMeta), which is not done here; transform the \
         video before, or remove the element that adds the meta"
    )]
    Transformation,
}

/// Returns the part of a frame that is its picture; `None` where that is the whole frame. `stored` is the format that the
/// caps say.
pub fn crop(buffer: &gst::BufferRef, stored: &VideoInfo) -> Result<Option<Crop>, MetaError> {
    let mut overlays = buffer.iter_meta::<VideoOverlayCompositionMeta>();
    if overlays.any(|meta| meta.overlay().n_rectangles() > 0) {
        return Err(MetaError::Overlay);
    }
    let mut transformations = buffer.iter_meta::<VideoAffineTransformationMeta>();
    if transformations.any(|meta| !is_identity(meta.matrix())) {
        return Err(MetaError::Transformation);
    }
    let Some((x, y, width, height)) = buffer.meta::<VideoCropMeta>().map(|meta| meta.rect()) else {
        return Ok(None);
    };
    let frame = match buffer.meta::<VideoMeta>() {
        Some(meta) => (meta.width(), meta.height()),
        None => (stored.width(), stored.height()),
    };
    let lies_inside = |start: u32, length: u32, all: u32| {
        length > 0 && start.checked_add(length).is_some_and(|end| end <= all)
    };
    if !lies_inside(x, width, frame.0) || !lies_inside(y, height, frame.1) {
        return Err(MetaError::Crop { x, y, width, height, frame });
    }
    let is_whole = (width, height) == frame && frame == (stored.width(), stored.height());
    let [x, y, width, height] = [x, y, width, height].map(|samples| samples as usize);
    Ok((!is_whole).then_some(Crop { x, y, width, height }))
}

/// Returns true if a matrix leaves every sample where it is, but for rounding.
fn is_identity(matrix: &[[f32; 4]; 4]) -> bool {
    let rows = matrix.iter().enumerate();
    let differences = rows.flat_map(|(i, row)| {
        row.iter().enumerate().map(move |(j, value)| value - if i == j { 1.0 } else { 0.0 })
    });
    differences.into_iter().all(|difference| difference.abs() < 1e-6)
}

/// Returns the format of a frame's picture: that of the caps, with the size of the part that is shown.
pub fn shown(buffer: &gst::BufferRef, stored: &Arc<VideoInfo>) -> Result<Arc<VideoInfo>, MetaError> {
    let Some(Crop { x, y, width, height }) = crop(buffer, stored)? else { return Ok(stored.clone()) };
    let [x, y, width, height] = [x, y, width, height].map(|samples| samples as u32);
    if (width, height) == (stored.width(), stored.height()) {
        return Ok(stored.clone());
    }
    let resized = || {
        let mut caps = stored.to_caps().ok()?;
        let structure = caps.make_mut().structure_mut(0)?;
        structure.set("width", i32::try_from(width).ok()?);
        structure.set("height", i32::try_from(height).ok()?);
        VideoInfo::from_caps(&caps).ok().map(Arc::new)
    };
    resized().ok_or(MetaError::Crop { x, y, width, height, frame: (stored.width(), stored.height()) })
}

/// Leaves those metas in an answer of downstream that are honoured here. Others would change what upstream sends.
pub fn keep_honoured(query: &mut Allocation) {
    let honoured = [VideoMeta::meta_api(), VideoCropMeta::meta_api()];
    let offered: Vec<_> = query.allocation_metas().map(|(api, _)| api).collect();
    for (i, api) in offered.into_iter().enumerate().rev() {
        if !honoured.contains(&api) {
            query.remove_nth_allocation_meta(i as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gst_video::{VideoFormat, VideoFrameFlags};

    fn stored() -> Arc<VideoInfo> {
        gst::init().unwrap();
        Arc::new(VideoInfo::builder(VideoFormat::I420, 64, 48).build().unwrap())
    }

    fn cropped(rect: (u32, u32, u32, u32), frame: Option<(u32, u32)>) -> gst::Buffer {
        let mut buffer = gst::Buffer::with_size(1 << 16).unwrap();
        let new = buffer.get_mut().unwrap();
        if let Some((width, height)) = frame {
            let flags = VideoFrameFlags::empty();
            VideoMeta::add(new, flags, VideoFormat::I420, width, height).unwrap();
        }
        VideoCropMeta::add(new, rect);
        buffer
    }

    #[test]
    fn a_rectangle_has_to_lie_in_its_frame() {
        let stored = stored();
        let size = |rect, frame| {
            shown(&cropped(rect, frame), &stored).ok().map(|info| (info.width(), info.height()))
        };
        assert_eq!(size((0, 0, 64, 48), None), Some((64, 48)));
        assert_eq!(size((4, 2, 60, 46), None), Some((60, 46)));
        // The frame may be larger than its caps say, and the picture too.
        assert_eq!(size((16, 16, 64, 48), Some((80, 64))), Some((64, 48)));
        assert_eq!(size((0, 0, 80, 64), Some((80, 64))), Some((80, 64)));
        for rect in [(4, 0, 64, 48), (0, 4, 64, 48), (0, 0, 0, 48), (0, 0, 64, 0), (u32::MAX, 0, 64, 48)] {
            assert_eq!(size(rect, None), None, "{rect:?}");
        }
    }

    #[test]
    fn the_whole_frame_is_no_part() {
        let stored = stored();
        assert_eq!(crop(&cropped((0, 0, 64, 48), None), &stored), Ok(None));
        assert!(crop(&cropped((0, 0, 64, 48), Some((80, 64))), &stored).unwrap().is_some());
        assert!(crop(&cropped((0, 0, 80, 64), Some((80, 64))), &stored).unwrap().is_some());
    }

    #[test]
    fn only_transformations_that_do_something_are_refused() {
        let stored = stored();
        let transformed = |matrix: Option<&[[f32; 4]; 4]>| {
            let mut buffer = gst::Buffer::with_size(1 << 16).unwrap();
            VideoAffineTransformationMeta::add(buffer.get_mut().unwrap(), matrix);
            crop(&buffer, &stored)
        };
        assert_eq!(transformed(None), Ok(None));
        let mut flipped =
            [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
        assert_eq!(transformed(Some(&flipped)), Ok(None));
        flipped[1][1] = -1.0;
        assert_eq!(transformed(Some(&flipped)), Err(MetaError::Transformation));
    }
}
