// SPDX-License-Identifier: MPL-2.0

//! Video that the program reads itself: Y4M, raw video and image sequences.
//!
//! GStreamer 1.22 has no reader for most of that, or one that is wrong: Y4M beyond 8 bits, PNG with 16 bits, names of
//! images that are made by `printf`. A stream that can be read once (standard input, a FIFO) is opened once: its header is
//! read when the program looks at the video, and its frames when they are scored.

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
pub use raw::Raw;
pub use stream::{Stream, spool};

use planes::Planes;

use crate::error::Error;

/// A video that the program reads itself.
#[derive(Clone, Debug)]
pub enum Reader {
    /// Frames as they are, of a file or a stream.
    Planes(Arc<Planes>),
    /// A file for each frame.
    Images(Arc<Images>),
}

/// Frames in their order.
pub trait Frames: Send {
    /// The next frame without its time; nothing at the end.
    fn next(&mut self) -> Result<Option<gst::Buffer>, String>;
}

impl Reader {
    /// A file in the system, if it is one to be read here.
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

    /// A stream, if it is one to be read here. Otherwise it is given back.
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

    /// What comes of the reader.
    pub fn caps(&self) -> gst::Caps {
        match self {
            Self::Planes(planes) => planes.caps(),
            Self::Images(images) => images.caps(),
        }
    }

    /// Frames per second.
    pub fn rate(&self) -> gst::Fraction {
        match self {
            Self::Planes(planes) => planes.rate(),
            Self::Images(images) => images.rate(),
        }
    }

    /// How long it takes, if that is known.
    pub fn duration(&self) -> Option<ClockTime> {
        self.time(self.count()?)
    }

    /// How many frames there are, if that is known.
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::Planes(planes) => planes.count(),
            Self::Images(images) => Some(images.count()),
        }
    }

    /// How many numbers of an image sequence are missing.
    pub fn missing(&self) -> u64 {
        match self {
            Self::Planes(_) => 0,
            Self::Images(images) => images.missing(),
        }
    }

    /// It can be read once only.
    pub fn is_stream(&self) -> bool {
        match self {
            Self::Planes(planes) => planes.is_stream(),
            Self::Images(_) => false,
        }
    }

    /// What comes of the reader has to be decoded.
    pub fn is_coded(&self) -> bool {
        match self {
            Self::Planes(_) => false,
            Self::Images(images) => images.is_coded(),
        }
    }

    /// When the frame with this number is.
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

    /// An element that delivers the frames; errors are about a video of this name.
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
            // A pipeline that stops takes nothing more.
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
