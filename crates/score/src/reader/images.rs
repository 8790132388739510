// SPDX-License-Identifier: MPL-2.0

//! Image sequences: one file per frame. PNG with 8 and 16 bits is decoded here, other formats by GStreamer.

use std::fmt;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::vec;

use gst_video::prelude::*;
use gst_video::{VideoCapsBuilder, VideoFormat, VideoFrame, VideoInfo};
use png::{BitDepth, ColorType, Transformations};

use super::super::decoders;
use super::Frames;

/// First bytes of a file.
pub const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Pictures, one per frame.
#[derive(Debug)]
pub struct Images {
    paths: Vec<PathBuf>,
    rate: gst::Fraction,
    kind: Kind,
    /// Missing numbers between the first and the last.
    missing: u64,
}

#[derive(Debug)]
enum Kind {
    /// Decoded here to this format.
    Png(VideoInfo),
    /// Compressed, for a decoder.
    Coded(gst::Caps),
}

impl Images {
    /// Returns the paths in order.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Opens pictures in order; at least one.
    pub fn new(paths: Vec<PathBuf>, rate: gst::Fraction) -> Result<Self, String> {
        let first = paths.first().ok_or("there are no pictures")?;
        let failed = |why: String| format!("{}: {why}", first.display());
        let data = fs::read(first).map_err(|error| failed(error.to_string()))?;
        if let Some(why) = decoders::refusal(&data) {
            return Err(failed(why));
        }
        let kind = if data.starts_with(PNG) {
            Kind::Png(Picture::open(first).map_err(failed)?.info(rate)?)
        } else {
            let found = gst_base::functions::type_find_helper_for_data(None::<&gst::Object>, &data);
            let (mut caps, _) = found.map_err(|_| failed("it is not a readable picture".into()))?;
            caps.make_mut().set("framerate", rate);
            Kind::Coded(caps)
        };
        Ok(Self { paths, rate, kind, missing: 0 })
    }

    /// Finds the pictures of a pattern such as `frames_%04d.png`. Returns `None` if the path is not a pattern, or
    /// names a file.
    pub fn of_pattern(pattern: &Path, rate: gst::Fraction) -> Result<Option<Self>, String> {
        let Some((paths, missing)) = find(pattern) else { return Ok(None) };
        if paths.is_empty() {
            return Err("there are no such pictures".into());
        }
        Ok(Some(Self { missing, ..Self::new(paths, rate)? }))
    }

    /// Returns true if a decoder is needed.
    pub fn is_coded(&self) -> bool {
        matches!(self.kind, Kind::Coded(_))
    }

    /// Returns how many numbers are missing between the first and the last.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    pub fn caps(&self) -> gst::Caps {
        match &self.kind {
            Kind::Png(info) => info.to_caps().unwrap_or_else(|_| VideoCapsBuilder::new().build()),
            Kind::Coded(caps) => caps.clone(),
        }
    }

    pub fn rate(&self) -> gst::Fraction {
        self.rate
    }

    pub fn count(&self) -> u64 {
        self.paths.len() as u64
    }

    pub fn open(&self) -> Box<dyn Frames> {
        let info = match &self.kind {
            Kind::Png(info) => Some(info.clone()),
            Kind::Coded(_) => None,
        };
        Box::new(InOrder { paths: self.paths.clone().into_iter(), info })
    }
}

impl fmt::Display for Images {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &self.kind {
            Kind::Png(_) => f.write_str("PNG"),
            Kind::Coded(caps) => f.write_str(&gst_pbutils::pb_utils_get_codec_description(caps)),
        }
    }
}

/// Returns the files of a pattern in order of their numbers, and how many numbers are missing. `%d` or `%04d` stands
/// for the number; the folder is taken literally.
fn find(pattern: &Path) -> Option<(Vec<PathBuf>, u64)> {
    let (before, rest) = pattern.file_name()?.to_str()?.split_once('%')?;
    let (width, after) = rest.split_once('d')?;
    if pattern.exists() || !width.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let width: usize = if width.is_empty() { 0 } else { width.parse().ok()? };
    let number = |name: &str| {
        let digits = name.strip_prefix(before)?.strip_suffix(after)?;
        // As printf writes it: zero-padded to the width, and not longer than necessary.
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        let as_printed =
            digits.len() == width || digits.len() > width && !digits.starts_with('0') || digits == "0";
        (is_number && as_printed).then(|| digits.parse::<u64>().ok())?
    };
    let folder = pattern.parent()?.read_dir().ok()?.flatten();
    let mut found: Vec<_> =
        folder.filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path()))).collect();
    found.sort();
    let time_range = found.first().zip(found.last()).map_or(0, |(first, last)| last.0 - first.0 + 1);
    let missing = time_range.saturating_sub(found.len() as u64);
    Some((found.into_iter().map(|(_, path)| path).collect(), missing))
}

struct InOrder {
    paths: vec::IntoIter<PathBuf>,
    /// Required format, for pictures that are decoded here.
    info: Option<VideoInfo>,
}

impl Frames for InOrder {
    fn next(&mut self) -> Result<Option<gst::Buffer>, String> {
        let Some(path) = self.paths.next() else { return Ok(None) };
        let buffer = match &self.info {
            Some(info) => Picture::open(&path).and_then(|picture| picture.decode(info)),
            None => fs::read(&path).map(gst::Buffer::from_slice).map_err(|error| error.to_string()),
        };
        buffer.map(Some).map_err(|why| format!("{}: {why}", path.display()))
    }
}

/// A PNG file.
struct Picture(png::Reader<BufReader<File>>);

impl Picture {
    fn open(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let mut decoder = png::Decoder::new(BufReader::new(file));
        // Expands palettes to colours, and fewer than 8 bits to 8.
        decoder.set_transformations(Transformations::EXPAND);
        decoder.read_info().map(Self).map_err(|error| error.to_string())
    }

    fn info(&self, rate: gst::Fraction) -> Result<VideoInfo, String> {
        let (colours, depth) = self.0.output_color_type();
        let is_grey = matches!(colours, ColorType::Grayscale | ColorType::GrayscaleAlpha);
        let format = match (is_grey, depth) {
            (true, BitDepth::Sixteen) => VideoFormat::Gray16Le,
            (true, _) => VideoFormat::Gray8,
            (false, BitDepth::Sixteen) => VideoFormat::Rgba64Le,
            (false, _) => VideoFormat::Rgb,
        };
        let size = self.0.info().size();
        let info = VideoInfo::builder(format, size.0, size.1).fps(rate);
        info.build().map_err(|error| error.to_string())
    }

    /// Decodes the picture without alpha, which is not displayed by itself.
    fn decode(mut self, info: &VideoInfo) -> Result<gst::Buffer, String> {
        let own = self.info(info.fps())?;
        if (own.format(), own.width(), own.height()) != (info.format(), info.width(), info.height()) {
            let name = |of: &VideoInfo| format!("{}x{} {}", of.width(), of.height(), of.format());
            return Err(format!("it is {}, and the first picture {}", name(&own), name(info)));
        }
        let size = self.0.output_buffer_size().ok_or("it is too large")?;
        let mut samples = vec![0; size];
        let shape = self.0.next_frame(&mut samples).map_err(|error| error.to_string())?;
        let bytes = if shape.bit_depth == BitDepth::Sixteen { 2 } else { 1 };
        let buffer = gst::Buffer::with_size(info.size()).map_err(|error| error.to_string())?;
        let frame = VideoFrame::from_buffer_writable(buffer, info);
        let mut frame = frame.map_err(|_| "there is no memory for a frame")?;
        let stride = frame.plane_stride().first().and_then(|stride| usize::try_from(*stride).ok());
        let to = frame.plane_data_mut(0).map_err(|error| error.to_string())?;
        let pixel = (info.comp_pstride(0) as usize, shape.color_type.samples() * bytes);
        let rows = samples.chunks(shape.line_size).zip(to.chunks_mut(stride.unwrap_or(1).max(1)));
        rows.take(info.height() as usize).for_each(|(from, to)| copy_row(from, to, pixel, bytes));
        Ok(frame.into_buffer())
    }
}

/// Copies pixels of different sizes. A missing alpha sample becomes opaque, a surplus one is dropped.
fn copy_row(from: &[u8], to: &mut [u8], (to_size, from_size): (usize, usize), bytes: usize) {
    for (from, to) in from.chunks_exact(from_size).zip(to.chunks_exact_mut(to_size)) {
        if bytes == 1 {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            continue;
        }
        to.fill(0xff);
        for (to, from) in to.as_chunks_mut::<2>().0.iter_mut().zip(from.as_chunks::<2>().0) {
            *to = [from[1], from[0]];
        }
    }
}
