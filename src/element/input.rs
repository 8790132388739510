// SPDX-License-Identifier: MPL-2.0

//! One sink pad: what stands at its head, when, and how to read it.

use std::sync::Arc;

use engine::frame::Picture;
use gpu::Device;
use gst::ClockTime;
use gst::prelude::*;
use gst_base::AggregatorPad;
use gst_base::prelude::*;
use gst_video::{VideoInfo, VideoTimeCodeMeta};
use watch::thumbnail::Thumbnail;

use super::error::Error;
use super::import::{ImportError, Importer, Mapped, geometry};
use super::pairing::{Frame, Head};
use super::settings::Pairing;

/// A sink pad.
pub struct Input {
    pub pad: AggregatorPad,
    pub info: Option<VideoInfo>,
    /// For the format of `info`; made when its first frame is compared.
    importer: Option<Importer>,
    /// Timestamp of the next buffer, should it have none.
    next_pts: Option<ClockTime>,
    /// Frames taken since the last flush.
    taken: u64,
}

/// When a buffer is due.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub timestamp: ClockTime,
    /// `None` outside the segment.
    pub running_time: Option<ClockTime>,
    pub stream_time: Option<ClockTime>,
}

impl Input {
    pub fn new(pad: AggregatorPad) -> Self {
        Self { pad, info: None, importer: None, next_pts: None, taken: 0 }
    }

    pub fn name(&self) -> String {
        self.pad.name().to_string()
    }

    /// From the frame rate in the caps, the highest where it varies.
    pub fn frame_duration(&self) -> Option<ClockTime> {
        let info = self.info.as_ref()?;
        let duration = |fps: gst::Fraction| {
            (fps.numer() > 0 && fps.denom() > 0)
                .then(|| ClockTime::SECOND.mul_div_round(fps.denom() as u64, fps.numer() as u64))
                .flatten()
        };
        duration(info.fps()).or_else(|| {
            let caps = self.pad.current_caps()?;
            duration(caps.structure(0)?.get("max-framerate").ok()?)
        })
    }

    /// How long the frame at the head lasts, as far as anything says so.
    pub fn head_duration(&self) -> Option<ClockTime> {
        self.frame_duration().or_else(|| self.pad.peek_buffer()?.duration())
    }

    pub fn times(&self, buffer: &gst::BufferRef) -> Result<Times, Error> {
        let missing = || Error::Timestamp(self.name());
        let segment = self.pad.segment().downcast::<ClockTime>().map_err(|_| missing())?;
        let timestamp = match (buffer.pts(), self.frame_duration()) {
            (Some(pts), _) => pts,
            (None, Some(_)) => self.next_pts.or(segment.start()).unwrap_or(ClockTime::ZERO),
            (None, None) => return Err(missing()),
        };
        Ok(Times {
            timestamp,
            running_time: segment.to_running_time(timestamp),
            stream_time: segment.to_stream_time(timestamp),
        })
    }

    /// What stands at the head, `offset` nanoseconds later than it says. Buffers outside the segment are dropped on
    /// the way.
    pub fn head(&mut self, pairing: Pairing, offset: i64) -> Result<Head, Error> {
        while let Some(buffer) = self.pad.peek_buffer() {
            let gap = buffer.size() == 0 && buffer.flags().contains(gst::BufferFlags::GAP);
            if let Some(running_time) = self.times(&buffer)?.running_time {
                // A gap is where it ends.
                let length = buffer.duration().or(self.frame_duration()).filter(|_| gap);
                let time = running_time.saturating_add(length.unwrap_or(ClockTime::ZERO)).nseconds();
                let at = time.saturating_add_signed(offset);
                let key = match pairing {
                    Pairing::RunningTime => Some((time as i64).saturating_add(offset)),
                    Pairing::Index => Some(self.taken as i64 + i64::from(gap)),
                    Pairing::Timecode => time_code(&buffer).map(|time| time.saturating_add(offset)),
                    Pairing::ReferenceTimestamp => {
                        let meta = buffer.meta::<gst::ReferenceTimestampMeta>();
                        meta.map(|meta| (meta.timestamp().nseconds() as i64).saturating_add(offset))
                    }
                };
                let frame = Frame { at: ClockTime::from_nseconds(at), key };
                return Ok(if gap { Head::Gap(frame) } else { Head::Frame(frame) });
            }
            self.pop();
        }
        Ok(if self.pad.is_eos() { Head::Eos } else { Head::Empty })
    }

    /// Running time of whatever stands at the head.
    pub fn head_time(&self) -> Option<ClockTime> {
        let buffer = self.pad.peek_buffer()?;
        self.times(&buffer).ok()?.running_time
    }

    /// Takes the frame at the head.
    pub fn take(&mut self) -> Option<gst::Buffer> {
        self.taken += 1;
        self.pop()
    }

    fn pop(&mut self) -> Option<gst::Buffer> {
        let buffer = self.pad.pop_buffer()?;
        let duration = buffer.duration().or(self.frame_duration());
        let timestamp = self.times(&buffer).ok().map(|times| times.timestamp);
        self.next_pts = timestamp.zip(duration).map(|(time, duration)| time.saturating_add(duration));
        Some(buffer)
    }

    /// A new segment or what follows a flush: frames without timestamps are counted from its start.
    pub fn restart(&mut self) {
        self.next_pts = None;
        self.taken = 0;
    }

    /// Takes the format of the frames to come. Whether it is a new one.
    pub fn set_info(&mut self, info: VideoInfo) -> bool {
        self.importer = None;
        self.info.replace(info.clone()).is_some_and(|old| old != info)
    }

    /// The samples of a frame; `chroma` says whether anything looks at Cb and Cr.
    pub fn map(
        &mut self,
        buffer: gst::Buffer,
        gpu: Option<&Arc<Device>>,
        chroma: bool,
    ) -> Result<Mapped, Error> {
        let Some(info) = &self.info else { return Err(Error::NoCaps(self.name())) };
        let importer = self.importer.get_or_insert_with(|| Importer::new(info, chroma));
        importer.map(buffer, gpu).map_err(|source| Error::Buffer { pad: self.pad.name().into(), source })
    }

    /// The luma of a frame in small; `None` if the processor cannot read it. Memory of a GPU is brought to it.
    pub fn thumbnail(&mut self, buffer: &gst::Buffer) -> Option<Thumbnail> {
        let depth = geometry(self.info.as_ref()?)?.depth;
        let mapped = self.map(buffer.clone(), None, false).ok()?;
        Thumbnail::new(&self.picture(&mapped).ok()?.luma, depth)
    }

    pub fn picture<'a>(&self, mapped: &'a Mapped) -> Result<Picture<'a>, Error> {
        let picture = self.importer.as_ref().and_then(|importer| importer.picture(mapped));
        picture.ok_or_else(|| Error::Buffer { pad: self.name(), source: ImportError::Small })
    }
}

/// Nanoseconds since midnight of a buffer's time code.
fn time_code(buffer: &gst::BufferRef) -> Option<i64> {
    let code = buffer.meta::<VideoTimeCodeMeta>()?.tc();
    i64::try_from(code.time_since_daily_jam().nseconds()).ok()
}
