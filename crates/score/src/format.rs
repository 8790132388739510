// SPDX-License-Identifier: MPL-2.0

//! Chooses the common format of both sides.
//!
//! Scoring compares samples of equal depth and subsampling. Different depths are converted to the larger one, which
//! is lossless, and different subsampling to the coarser one, whose detail the encode has lost anyway. A difference
//! in range is converted if tags and samples agree about it, and rejected if they contradict each other.

use gst_video::{VideoColorMatrix, VideoFormat, VideoFormatInfo};

use super::check::Finding;
use super::convert::Conversion;
use super::frame_info::{Evidence, FrameInfo};
use super::probe::Video;
use super::source;
use crate::error::Error;

/// A video, and the properties of its decoded frames.
pub type Seen<'a> = (&'a Video, &'a FrameInfo);

/// Conversions of the original and of each rendition.
#[derive(Debug, Default)]
pub struct Formats {
    /// Conversion of the original.
    pub reference: Option<Conversion>,
    /// Conversions of the renditions.
    pub renditions: Vec<Option<Conversion>>,
    /// Findings about the differences.
    pub findings: Vec<Finding>,
}

/// Bit depth, and horizontal and vertical chroma subsampling; no subsampling for luma only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    bits: u32,
    chroma: Option<(u32, u32)>,
}

impl Shape {
    fn of(format: VideoFormatInfo) -> Self {
        let chroma = match () {
            () if format.is_gray() => None,
            () if format.is_rgb() => Some((0, 0)),
            () => Some((format.w_sub()[1], format.h_sub()[1])),
        };
        Self { bits: format.depth()[0], chroma }
    }

    /// Returns the common shape of two videos.
    fn meet(self, other: Self) -> Self {
        let chroma = match (self.chroma, other.chroma) {
            (Some(a), Some(b)) => Some((a.0.max(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        Self { bits: self.bits.max(other.bits), chroma }
    }

    /// Returns a planar format for it; shapes without a format use the next larger one.
    fn format(self) -> VideoFormat {
        match (self.chroma, self.bits) {
            (None, ..=8) => VideoFormat::Gray8,
            (None, _) => VideoFormat::Gray16Le,
            (Some((0, 0)), ..=8) => VideoFormat::Y444,
            (Some((0, 0)), ..=10) => VideoFormat::Y44410le,
            (Some((0, 0)), _) => VideoFormat::Y44412le,
            (Some((1, 0)), ..=8) => VideoFormat::Y42b,
            (Some((1, 0)), ..=10) => VideoFormat::I42210le,
            (Some((1, 0)), _) => VideoFormat::I42212le,
            (Some(_), ..=8) => VideoFormat::I420,
            (Some(_), ..=10) => VideoFormat::I42010le,
            (Some(_), _) => VideoFormat::I42012le,
        }
    }
}

/// Which of two videos has the larger range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    Same,
    Reference,
    Rendition,
}

/// Compares the formats. `ignore_colours` accepts differences in range.
pub fn plan(reference: Seen, renditions: &[Option<Seen>], ignore_colours: bool) -> Result<Formats, Error> {
    let mut findings = vec![];
    let mut ranges = vec![];
    for seen in renditions {
        ranges.push(match seen {
            Some(seen) if !ignore_colours => range(reference, *seen, &mut findings)?,
            _ => Range::Same,
        });
    }
    // ffmpeg converts both to limited range.
    let reference_is_wide = ranges.contains(&Range::Reference);
    let is_wide = |range: Range| range == Range::Rendition || reference_is_wide && range == Range::Same;
    let all = || std::iter::once(reference).chain(renditions.iter().copied().flatten());
    let is_rgb = |frame_info: &FrameInfo| frame_info.info.format_info().is_rgb();
    let shape = all().map(|(_, frame_info)| Shape::of(frame_info.info.format_info())).reduce(Shape::meet);
    let mut shape = shape.unwrap_or(Shape { bits: 8, chroma: None });
    // Rotation would swap the directions of the subsampling.
    if shape.chroma == Some((1, 0)) && all().any(|(_, frame_info)| frame_info.orientation.is_some()) {
        shape.chroma = Some((1, 1));
    }
    let format = shape.format();
    let mut others = all().filter(|(_, frame_info)| !is_rgb(frame_info)).peekable();
    let has_others = others.peek().is_some();
    let matrix =
        others.clone().map(|(_, frame_info)| frame_info.matrix()).find(|of| *of != VideoColorMatrix::Unknown);
    let is_full = has_others
        && !ranges.iter().any(|of| *of != Range::Same)
        && others.all(|(_, frame_info)| frame_info.says_full());
    let convert = |(_, frame_info): Seen, is_wide: bool| -> Result<Option<Conversion>, Error> {
        let from = frame_info.info.format();
        let is_narrowed = is_wide && !is_rgb(frame_info);
        let is_progressive = frame_info.info.is_interlaced() && !frame_info.is_combed;
        let fits =
            Shape::of(frame_info.info.format_info()) == Shape::of(VideoFormatInfo::from_format(format));
        // `videoflip` needs planar formats.
        let turns = frame_info.orientation.is_none() || from == format;
        let matrix = matrix.unwrap_or(VideoColorMatrix::Bt601);
        let is_needed =
            is_rgb(frame_info) || is_narrowed || is_progressive || !fits || !turns || !source::takes(from)?;
        Ok(is_needed.then_some(Conversion { from, format, is_narrowed, is_full, matrix, is_progressive }))
    };
    let of_reference = convert(reference, reference_is_wide)?;
    let of_renditions = renditions.iter().zip(&ranges).map(|(seen, range)| match seen {
        Some(seen) => convert(*seen, is_wide(*range)),
        None => Ok(None),
    });
    let of_renditions = of_renditions.collect::<Result<Vec<_>, _>>()?;
    findings.extend(all().filter(|(_, frame_info)| is_rgb(frame_info)).map(|(video, frame_info)| {
        finding(
            video,
            "format",
            format!("its samples are red, green and blue ({})", frame_info.info.format()),
        )
    }));
    findings.extend(renditions.iter().flatten().filter_map(|seen| differs(*seen, reference)));
    findings.extend(all().filter_map(turned));
    findings.extend(all().filter_map(whole));
    Ok(Formats { reference: of_reference, renditions: of_renditions, findings })
}

fn finding(video: &Video, kind: &'static str, text: String) -> Finding {
    Finding { video: video.input.clone(), kind, text }
}

fn differs((video, frame_info): Seen, (_, reference): Seen) -> Option<Finding> {
    let [own, others] = [frame_info, reference].map(|frame_info| frame_info.info.format_info());
    let differ = Shape::of(own) != Shape::of(others) && !own.is_rgb() && !others.is_rgb();
    let text = format!("its samples are {}, and those of the original {}", named(own), named(others));
    differ.then(|| finding(video, "format", text))
}

fn named(format: VideoFormatInfo) -> String {
    let Shape { bits, chroma } = Shape::of(format);
    let chroma = match chroma {
        None => "grey",
        Some((0, 0)) => "4:4:4",
        Some((1, 0)) => "4:2:2",
        Some((1, 1)) => "4:2:0",
        Some((2, 0)) => "4:1:1",
        Some(_) => "of another subsampling",
    };
    format!("{chroma} of {bits} bits ({})", format.name())
}

fn turned((video, frame_info): Seen) -> Option<Finding> {
    let orientation = frame_info.orientation?;
    Some(finding(video, "orientation", format!("its file says that its pictures are shown {orientation}")))
}

fn whole((video, frame_info): Seen) -> Option<Finding> {
    let text = "it is flagged as interlaced, but its pictures are progressive and are used as such";
    (frame_info.info.is_interlaced() && !frame_info.is_combed)
        .then(|| finding(video, "interlaced", text.into()))
}

/// Returns which side has the larger range, by tags that are verified with the samples.
fn range(reference: Seen, rendition: Seen, findings: &mut Vec<Finding>) -> Result<Range, Error> {
    let (original, frame_info) = (reference.1, rendition.1);
    if [original, frame_info].iter().any(|frame_info| frame_info.info.format_info().is_rgb()) {
        return Ok(Range::Same);
    }
    let (wide, narrow, side) = match (original.says_full(), frame_info.says_full()) {
        (true, true) => return Ok(Range::Same),
        (true, false) => (reference, rendition, Range::Reference),
        (false, true) => (rendition, reference, Range::Rendition),
        (false, false) => return Ok(untagged(reference, rendition, findings)),
    };
    let said = format!("{} is tagged as full range, and {} is not", wide.0.input, narrow.0.input);
    match wide.1.range_against(narrow.1) {
        Evidence::Alike if narrow.1.is_outside() => {
            let text = "it is not tagged as full range, but its samples are";
            findings.push(finding(narrow.0, "range", text.into()));
            Ok(Range::Same)
        }
        Evidence::Alike => Err(Error::Refused(format!(
            "{said}, and the samples of both are alike: one of them is shown with other levels than the other. Say in the \
             files what their range is, or have the samples compared as they are: --colorimetry ignore"
        ))),
        Evidence::Wider | Evidence::None => {
            findings.push(finding(wide.0, "range", said));
            Ok(side)
        }
    }
}

/// Compares two files that are untagged or tagged as limited.
fn untagged(reference: Seen, rendition: Seen, findings: &mut Vec<Finding>) -> Range {
    for (wide, narrow, side) in
        [(reference, rendition, Range::Reference), (rendition, reference, Range::Rendition)]
    {
        if wide.1.is_outside() && wide.1.range_against(narrow.1) == Evidence::Wider {
            let text =
                format!("its samples have the full range, and those of {} the limited one", narrow.0.input);
            findings.push(finding(wide.0, "range", text));
            return side;
        }
    }
    Range::Same
}
