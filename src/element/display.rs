// SPDX-License-Identifier: MPL-2.0

//! The video that leaves where the output is the distorted video.

use super::rendition::Shown;

/// The distorted frame on display, which leaves again where the next one is missing, as a viewer would see it.
#[derive(Default)]
pub struct Display {
    last: Option<Shown>,
    /// The caps that were announced last.
    caps: Option<gst::Caps>,
}

impl Display {
    /// Returns the frame that leaves in place of a reference frame, with its times: the one that was found, or else the last
    /// one. The caps come with it where they are new. There is none before the first. `fps` is the rate of the reference, at
    /// which frames leave.
    pub fn frame(
        &mut self,
        found: Option<Shown>,
        reference: &gst::BufferRef,
        fps: gst::Fraction,
    ) -> Option<(gst::Buffer, Option<gst::Caps>)> {
        let mut announced = None;
        if let Some(found) = found {
            let mut caps = found.caps.clone()?;
            caps.make_mut().set("framerate", fps);
            self.last = Some(found);
            if self.caps.as_ref() != Some(&caps) {
                announced = Some(caps.clone());
                self.caps = Some(caps);
            }
        }
        let mut buffer = self.last.as_ref()?.buffer.clone();
        let to = buffer.make_mut();
        to.set_pts(reference.pts());
        to.set_dts(reference.dts());
        to.set_duration(reference.duration());
        to.set_offset(reference.offset());
        to.set_offset_end(reference.offset_end());
        Some((buffer, announced))
    }

    /// Takes the frame on display, so that upstream gets its memory back.
    pub fn take(&mut self) -> Option<Shown> {
        self.last.take()
    }

    /// Puts a frame on display, unless there is one.
    pub fn put(&mut self, frame: Option<Shown>) {
        self.last = frame.or(self.last.take());
    }
}
