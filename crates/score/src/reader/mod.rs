// SPDX-License-Identifier: MPL-2.0

//! Video that the program reads itself: Y4M, raw video and image sequences.
//!
//! GStreamer 1.22 has no correct reader for most of these: Y4M with more than 8 bits, PNG with 16 bits, file names in
//! printf style. A stream that can be read only once (standard input, a FIFO) is opened once: its header is read for
//! the examination, and its frames for scoring.

mod images;
mod planes;
mod raw;
mod stream;
mod y4m;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use gst::ClockTime;
use gst::prelude::*;

pub use images::Images;
pub use raw::{Raw, frames_per_second};
pub use stream::{Stream, spool};

use planes::Planes;

use crate::error::Error;

/// A video that the program reads itself.
#[derive(Clone, Debug)]
pub enum Reader {
    /// Uncompressed frames of a file or a stream.
    Planes(Arc<Planes>),
    /// One file per frame.
    Images(Arc<Images>),
}

/// Frames in order.
pub trait Frames: Send {
    /// Returns the next frame without a timestamp, or `None` at the end.
    fn next(&mut self) -> Result<Option<gst::Buffer>, String>;
}

impl Reader {
    /// Opens a file if it is in one of these formats.
    pub fn of_file(
        path: &Path,
        head: &[u8],
        raw: Option<Raw>,
        rate: gst::Fraction,
    ) -> Result<Option<Self>, String> {
        if head.starts_with(images::PNG) {
            return Images::new(vec![path.to_owned()], rate).map(|images| Some(Self::Images(images.into())));
        }
        let planes = if head.starts_with(y4m::MAGIC) {
            Planes::of_file(path, |input| y4m::header(input, rate))?
        } else if let Some(raw) = raw.filter(|_| raw::is_name(path)) {
            Planes::of_file(path, |_| Ok(raw.header()))?
        } else {
            return Ok(None);
        };
        Ok(Some(Self::Planes(planes.into())))
    }

    /// Opens a stream if it is in one of these formats. Otherwise it is returned.
    pub fn of_stream(
        mut stream: Stream,
        raw: Option<Raw>,
        rate: gst::Fraction,
    ) -> Result<Result<Self, Stream>, String> {
        let head = stream.peek(y4m::MAGIC.len())?;
        let planes = if head == y4m::MAGIC {
            Planes::of_stream(stream, |input| y4m::header(input, rate))?
        } else if let Some(raw) = raw {
            Planes::of_stream(stream, |_| Ok(raw.header()))?
        } else {
            return Ok(Err(stream));
        };
        Ok(Ok(Self::Planes(planes.into())))
    }

    /// Returns the caps of the output.
    pub fn caps(&self) -> gst::Caps {
        match self {
            Self::Planes(planes) => planes.caps(),
            Self::Images(images) => images.caps(),
        }
    }

    /// Returns the frame rate.
    pub fn rate(&self) -> gst::Fraction {
        match self {
            Self::Planes(planes) => planes.rate(),
            Self::Images(images) => images.rate(),
        }
    }

    /// Returns the duration if it is known.
    pub fn duration(&self) -> Option<ClockTime> {
        self.time(self.count()?)
    }

    /// Returns the number of frames if it is known.
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::Planes(planes) => planes.count(),
            Self::Images(images) => Some(images.count()),
        }
    }

    /// Returns how many numbers of an image sequence are missing.
    pub fn missing(&self) -> u64 {
        match self {
            Self::Planes(_) => 0,
            Self::Images(images) => images.missing(),
        }
    }

    /// Returns true if the video can be read only once.
    pub fn is_stream(&self) -> bool {
        match self {
            Self::Planes(planes) => planes.is_stream(),
            Self::Images(_) => false,
        }
    }

    /// Returns true if the output must be decoded.
    pub fn is_coded(&self) -> bool {
        match self {
            Self::Planes(_) => false,
            Self::Images(images) => images.is_coded(),
        }
    }

    /// Returns the time of a frame.
    pub fn time(&self, number: u64) -> Option<ClockTime> {
        let (numer, denom) = (self.rate().numer(), self.rate().denom());
        let [numer, denom] = [numer, denom].map(|of| u64::try_from(of).ok().filter(|of| *of > 0));
        number.checked_mul(1_000_000_000).map(ClockTime::from_nseconds)?.mul_div_floor(denom?, numer?)
    }

    fn open(&self) -> Result<Box<dyn Frames>, String> {
        match self {
            Self::Planes(planes) => planes.open(),
            Self::Images(images) => Ok(images.open()),
        }
    }

    /// Returns an element that delivers the frames. Errors name the video.
    pub fn element(&self, given: &str) -> Result<gst::Element, Error> {
        let failed = {
            let given = given.to_owned();
            move |why: String| format!("{given}: {why}")
        };
        let mut frames = self.open().map_err(&failed)?;
        let (reader, mut number) = (self.clone(), 0);
        let mut next = move || -> Result<Option<gst::Buffer>, String> {
            let Some(mut buffer) = frames.next()? else { return Ok(None) };
            if let Some(writable) = buffer.get_mut() {
                let [time, end] = [number, number + 1].map(|number| reader.time(number));
                writable.set_pts(time);
                writable.set_duration(end.zip(time).and_then(|(end, time)| end.checked_sub(time)));
            }
            number += 1;
            Ok(Some(buffer))
        };
        let feed = move |source: &gst_app::AppSrc, _| match next() {
            // Fails only if the pipeline is stopping.
            Ok(Some(buffer)) => drop(source.push_buffer(buffer)),
            Ok(None) => drop(source.end_of_stream()),
            Err(why) => gst::element_error!(source, gst::ResourceError::Read, ("{}", failed(why))),
        };
        let source = gst_app::AppSrc::builder()
            .caps(&self.caps())
            .format(gst::Format::Time)
            .callbacks(gst_app::AppSrcCallbacks::builder().need_data(feed).build())
            .build();
        Ok(source.upcast())
    }
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Planes(planes) => planes.fmt(f),
            Self::Images(images) => images.fmt(f),
        }
    }
}
