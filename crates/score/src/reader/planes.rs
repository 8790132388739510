// SPDX-License-Identifier: MPL-2.0

//! Uncompressed frames: plane after plane, row after row, without padding.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use gst_video::prelude::*;
use gst_video::{
    VideoCapsBuilder, VideoColorMatrix, VideoColorPrimaries, VideoColorRange, VideoColorimetry, VideoFormat,
    VideoFrame, VideoInfo, VideoTransferFunction,
};
use parking_lot::Mutex;

use super::Frames;
use super::stream::Stream;

/// Bytes per read.
const CHUNK: usize = 1 << 20;
/// Largest width and height.
const LARGEST: u32 = 1 << 15;
/// Length of a Y4M frame header without parameters.
const FRAME: u64 = 6;

/// Storage of samples, and their conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Samples {
    /// Output format.
    format: VideoFormat,
    change: Change,
    /// The input is luma only, and the output format has chroma.
    is_grey: bool,
    /// Stored bits per sample, if they are converted.
    stored_bits: u32,
}

/// Conversion of 16-bit samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    /// Add this many bits, which is exact.
    Up(u32),
    /// Round to this many bits fewer.
    Down(u32),
}

impl Samples {
    /// Returns samples in a GStreamer format.
    pub fn as_is(format: VideoFormat, stored_bits: u32) -> Self {
        Self { format, change: Change::None, is_grey: false, stored_bits }
    }

    /// Returns planes with this subsampling (`420`, `422`, `444`, `411`, `mono`) and bit depth, little-endian.
    pub fn new(subsampling: &str, bits: u32) -> Option<Self> {
        let eight = |format| (bits == 8).then(|| Self::as_is(format, 8));
        let is_grey = subsampling == "mono";
        match (subsampling, bits) {
            ("411", _) => return eight(VideoFormat::Y41b),
            ("mono", 16) => return Some(Self::as_is(VideoFormat::Gray16Le, 16)),
            ("mono", 8) => return eight(VideoFormat::Gray8),
            ("420", 8) => return eight(VideoFormat::I420),
            ("422", 8) => return eight(VideoFormat::Y42b),
            ("444", 8) => return eight(VideoFormat::Y444),
            _ => {}
        }
        let (depth, change) = match bits {
            10 | 12 => (bits, Change::None),
            9 | 11 => (bits + 1, Change::Up(1)),
            13..=16 => (12, Change::Down(bits - 12)),
            _ => return None,
        };
        let format = match (subsampling, depth) {
            ("420" | "mono", 10) => VideoFormat::I42010le,
            ("420" | "mono", _) => VideoFormat::I42012le,
            ("422", 10) => VideoFormat::I42210le,
            ("422", _) => VideoFormat::I42212le,
            ("444", 10) => VideoFormat::Y44410le,
            ("444", _) => VideoFormat::Y44412le,
            _ => return None,
        };
        Some(Self { format, change, is_grey, stored_bits: bits })
    }

    fn change(self, row: &mut [u8]) {
        let each = |row: &mut [u8], change: &dyn Fn(u16) -> u16| {
            for sample in row.as_chunks_mut::<2>().0 {
                *sample = change(u16::from_le_bytes(*sample)).to_le_bytes();
            }
        };
        match self.change {
            Change::None => {}
            Change::Up(bits) => each(row, &|sample| sample << bits),
            Change::Down(bits) => each(row, &|sample| {
                let rounded = (u32::from(sample) + (1 << (bits - 1))) >> bits;
                u16::try_from(rounded.min(4095)).unwrap_or(4095)
            }),
        }
    }
}

/// Properties from the header of a file, or from the user.
#[derive(Clone, Debug)]
pub struct Header {
    pub width: u32,
    pub height: u32,
    pub samples: Samples,
    pub rate: gst::Fraction,
    pub aspect: gst::Fraction,
    /// Full range, if it is known.
    pub full_range: Option<bool>,
    /// Interlacing: `interlace-mode` and, if it is constant, `field-order`.
    pub fields: Option<(&'static str, Option<&'static str>)>,
    /// Each frame has a header, as in Y4M.
    pub is_framed: bool,
    /// Length of the file header in bytes.
    pub length: usize,
}

impl Default for Header {
    fn default() -> Self {
        Self {
            width: 0,
            height: 0,
            samples: Samples::as_is(VideoFormat::I420, 8),
            rate: gst::Fraction::new(25, 1),
            aspect: gst::Fraction::new(1, 1),
            full_range: None,
            fields: None,
            is_framed: false,
            length: 0,
        }
    }
}

impl Header {
    /// Sets the interlacing from the Y4M value: `t`, `b`, `m`; others mean progressive.
    pub fn set_fields(&mut self, of_y4m: &str) {
        self.fields = match of_y4m {
            "t" => Some(("interleaved", Some("top-field-first"))),
            "b" => Some(("interleaved", Some("bottom-field-first"))),
            "m" => Some(("mixed", None)),
            _ => None,
        };
    }

    fn caps(&self) -> gst::Caps {
        let mut caps = VideoCapsBuilder::new()
            .format(self.samples.format)
            .width(i32::try_from(self.width).unwrap_or(i32::MAX))
            .height(i32::try_from(self.height).unwrap_or(i32::MAX))
            .framerate(self.rate)
            .pixel_aspect_ratio(self.aspect)
            .build();
        let structure = caps.make_mut().structure_mut(0);
        let Some(structure) = structure else { return caps };
        structure.set("interlace-mode", self.fields.map_or("progressive", |(mode, _)| mode));
        if let Some((_, order)) = self.fields {
            order.iter().for_each(|order| structure.set("field-order", *order));
        }
        if let Some(full) = self.full_range {
            let range = if full { VideoColorRange::Range0_255 } else { VideoColorRange::Range16_235 };
            let (matrix, transfer) = (VideoColorMatrix::Unknown, VideoTransferFunction::Unknown);
            let colours = VideoColorimetry::new(range, matrix, transfer, VideoColorPrimaries::Unknown);
            structure.set("colorimetry", colours.to_string());
        }
        caps
    }

    /// Returns the rows of each plane, and their length in bytes.
    fn planes(&self, info: &VideoInfo) -> Vec<(usize, usize)> {
        let of_plane = |plane| {
            let component = (0..info.n_components()).find(|of| info.comp_plane(*of as u8) == plane)? as u8;
            let row = info.comp_width(component) as usize * info.comp_pstride(component) as usize;
            Some((info.comp_height(component) as usize, row))
        };
        (0..info.n_planes()).filter_map(of_plane).collect()
    }
}

/// Location of the frames.
#[derive(Debug)]
enum Store {
    File(PathBuf),
    /// `None` after it was read.
    Stream(Mutex<Option<Stream>>),
}

/// A video with uncompressed frames.
#[derive(Debug)]
pub struct Planes {
    header: Header,
    info: VideoInfo,
    caps: gst::Caps,
    store: Store,
    count: Option<u64>,
}

impl Planes {
    /// Opens a file after its header was read.
    pub fn of_file(
        path: &Path,
        header: impl Fn(&mut dyn Read) -> Result<Header, String>,
    ) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let length = file.metadata().map_err(|error| error.to_string())?.len();
        let header = header(&mut BufReader::new(file))?;
        Self::new(header, Some(length), Store::File(path.to_owned()))
    }

    /// Opens a stream after its header was read.
    pub fn of_stream(
        mut stream: Stream,
        header: impl Fn(&mut dyn Read) -> Result<Header, String>,
    ) -> Result<Self, String> {
        let header = header(&mut stream)?;
        Self::new(header, None, Store::Stream(Mutex::new(Some(stream))))
    }

    fn new(header: Header, length: Option<u64>, store: Store) -> Result<Self, String> {
        let (width, height) = (header.width, header.height);
        if [width, height].iter().any(|side| !(1..=LARGEST).contains(side)) {
            return Err(format!("its picture size {width}x{height} is not supported"));
        }
        let caps = header.caps();
        let info = VideoInfo::from_caps(&caps).map_err(|error| error.to_string())?;
        let planes = header.planes(&info);
        let planes = if header.samples.is_grey { &planes[..1] } else { &planes[..] };
        let frame: usize = planes.iter().map(|(rows, row)| rows * row).sum();
        let frame = frame as u64 + if header.is_framed { FRAME } else { 0 };
        let count = length.map(|length| length.saturating_sub(header.length as u64) / frame.max(1));
        Ok(Self { header, info, caps, store, count })
    }

    pub fn caps(&self) -> gst::Caps {
        self.caps.clone()
    }

    pub fn rate(&self) -> gst::Fraction {
        self.header.rate
    }

    pub fn count(&self) -> Option<u64> {
        self.count
    }

    pub fn is_stream(&self) -> bool {
        matches!(self.store, Store::Stream(_))
    }

    /// Returns a reader at the first frame.
    pub fn open(&self) -> Result<Box<dyn Frames>, String> {
        let input: Box<dyn Read + Send> = match &self.store {
            Store::File(path) => {
                let mut file = File::open(path).map_err(|error| error.to_string())?;
                let start = std::io::SeekFrom::Start(self.header.length as u64);
                std::io::Seek::seek(&mut file, start).map_err(|error| error.to_string())?;
                Box::new(file)
            }
            Store::Stream(stream) => {
                let stream = stream.lock().take();
                Box::new(stream.ok_or("it is a stream, which can be read only once; give a file")?)
            }
        };
        Ok(Box::new(InOrder {
            input: BufReader::with_capacity(CHUNK, input),
            planes: self.header.planes(&self.info),
            header: self.header.clone(),
            info: self.info.clone(),
        }))
    }
}

impl fmt::Display for Planes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Header { is_framed, samples, .. } = self.header;
        let name = if is_framed { "Y4M" } else { "Raw video" };
        write!(f, "{name}, {} bits", samples.stored_bits)
    }
}

struct InOrder {
    input: BufReader<Box<dyn Read + Send>>,
    header: Header,
    info: VideoInfo,
    planes: Vec<(usize, usize)>,
}

impl InOrder {
    /// Reads a frame header. Returns false at the end.
    fn begins(&mut self) -> Result<bool, String> {
        if self.header.is_framed {
            return match line(&mut self.input)? {
                Some(line) if line.starts_with(b"FRAME") => Ok(true),
                Some(_) => Err("it is not Y4M to its end: a frame has no header".into()),
                None => Ok(false),
            };
        }
        let left = std::io::BufRead::fill_buf(&mut self.input).map_err(|error| error.to_string())?;
        Ok(!left.is_empty())
    }
}

impl Frames for InOrder {
    fn next(&mut self) -> Result<Option<gst::Buffer>, String> {
        if !self.begins()? {
            return Ok(None);
        }
        let samples = self.header.samples;
        let buffer = gst::Buffer::with_size(self.info.size()).map_err(|error| error.to_string())?;
        let frame = VideoFrame::from_buffer_writable(buffer, &self.info);
        let mut frame = frame.map_err(|_| "there is no memory for a frame")?;
        let strides = frame.plane_stride().to_vec();
        for (plane, ((rows, row), stride)) in self.planes.iter().zip(strides).enumerate() {
            let data = frame.plane_data_mut(plane as u32).map_err(|error| error.to_string())?;
            let lines = data.chunks_mut(usize::try_from(stride).unwrap_or(1).max(1)).take(*rows);
            for line in lines.filter_map(|line| line.get_mut(..*row)) {
                if samples.is_grey && plane > 0 {
                    let neutral = 1_u16 << (self.info.comp_depth(0) - 1);
                    line.as_chunks_mut::<2>().0.fill(neutral.to_le_bytes());
                    continue;
                }
                self.input.read_exact(line).map_err(|error| match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => "it ends in the middle of a frame".to_owned(),
                    _ => error.to_string(),
                })?;
                samples.change(line);
            }
        }
        Ok(Some(frame.into_buffer()))
    }
}

/// Longest accepted header.
const LONGEST: usize = 4096;

/// Reads to the end of a line of Y4M; `None` at the end of the file.
pub fn line(input: &mut dyn Read) -> Result<Option<Vec<u8>>, String> {
    let mut line = vec![];
    let mut byte = [0];
    loop {
        match input.read(&mut byte) {
            Ok(0) if line.is_empty() => return Ok(None),
            Ok(0) => return Err("it ends in the middle of a frame".into()),
            Ok(_) if byte[0] == b'\n' => return Ok(Some(line)),
            Ok(_) if line.len() < LONGEST => line.push(byte[0]),
            Ok(_) => return Err("it is not Y4M to its end: a frame has no header".into()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}
