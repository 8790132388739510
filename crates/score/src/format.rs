// SPDX-License-Identifier: MPL-2.0

//! Which format both sides are brought to.
//!
//! Samples of one depth and subsampling are compared. What differs is brought to the larger depth, which loses nothing,
//! and to the chroma that is subsampled most, which an encoding has already lost. A difference in range is converted where
//! tags and samples say that it is one; where they contradict each other, it is refused.

use gst_video::{VideoColorMatrix, VideoFormat, VideoFormatInfo};

use super::check::Finding;
use super::convert::Conversion;
use super::looks::{Evidence, Looks};
use super::probe::Video;
use super::source;
use crate::error::Error;

/// A video, and what its frames look like.
pub type Seen<'a> = (&'a Video, &'a Looks);

/// What frames are brought to, for the original and each rendition that is there.
#[derive(Debug, Default)]
pub struct Formats {
    /// Of the original.
    pub reference: Option<Conversion>,
    /// Of each rendition.
    pub renditions: Vec<Option<Conversion>>,
    /// What differs.
    pub findings: Vec<Finding>,
}

/// Depth of samples, and subsampling of chroma across and down; none where there is luma alone.
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

    /// What both become.
    fn meet(self, other: Self) -> Self {
        let chroma = match (self.chroma, other.chroma) {
            (Some(a), Some(b)) => Some((a.0.max(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        Self { bits: self.bits.max(other.bits), chroma }
    }

    /// The planes that hold it; what has no name is brought to what comes next.
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

/// Compares the formats. `ignore_colours` says that differences of range are meant.
pub fn plan(reference: Seen, renditions: &[Option<Seen>], ignore_colours: bool) -> Result<Formats, Error> {
    let mut findings = vec![];
    let mut ranges = vec![];
    for seen in renditions {
        ranges.push(match seen {
            Some(seen) if !ignore_colours => range(reference, *seen, &mut findings)?,
            _ => Range::Same,
        });
    }
    // The limited range is what ffmpeg brings both to.
    let reference_is_wide = ranges.contains(&Range::Reference);
    let is_wide = |range: Range| range == Range::Rendition || reference_is_wide && range == Range::Same;
    let all = || std::iter::once(reference).chain(renditions.iter().copied().flatten());
    let is_rgb = |looks: &Looks| looks.info.format_info().is_rgb();
    let shape = all().map(|(_, looks)| Shape::of(looks.info.format_info())).reduce(Shape::meet);
    let mut shape = shape.unwrap_or(Shape { bits: 8, chroma: None });
    // Turned, chroma would be subsampled the other way.
    if shape.chroma == Some((1, 0)) && all().any(|(_, looks)| looks.orientation.is_some()) {
        shape.chroma = Some((1, 1));
    }
    let format = shape.format();
    let mut others = all().filter(|(_, looks)| !is_rgb(looks)).peekable();
    let has_others = others.peek().is_some();
    let matrix = others.clone().map(|(_, looks)| looks.matrix()).find(|of| *of != VideoColorMatrix::Unknown);
    let is_full = has_others
        && !ranges.iter().any(|of| *of != Range::Same)
        && others.all(|(_, looks)| looks.says_full());
    let convert = |(_, looks): Seen, is_wide: bool| -> Result<Option<Conversion>, Error> {
        let from = looks.info.format();
        let is_narrowed = is_wide && !is_rgb(looks);
        let is_progressive = looks.info.is_interlaced() && !looks.is_combed;
        let fits = Shape::of(looks.info.format_info()) == Shape::of(VideoFormatInfo::from_format(format));
        // `videoflip` turns planes.
        let turns = looks.orientation.is_none() || from == format;
        let matrix = matrix.unwrap_or(VideoColorMatrix::Bt601);
        let is_needed =
            is_rgb(looks) || is_narrowed || is_progressive || !fits || !turns || !source::takes(from)?;
        Ok(is_needed.then_some(Conversion { from, format, is_narrowed, is_full, matrix, is_progressive }))
    };
    let of_reference = convert(reference, reference_is_wide)?;
    let of_renditions = renditions.iter().zip(&ranges).map(|(seen, range)| match seen {
        Some(seen) => convert(*seen, is_wide(*range)),
        None => Ok(None),
    });
    let of_renditions = of_renditions.collect::<Result<Vec<_>, _>>()?;
    findings.extend(all().filter(|(_, looks)| is_rgb(looks)).map(|(video, looks)| {
        finding(video, "format", format!("its samples are red, green and blue ({})", looks.info.format()))
    }));
    findings.extend(renditions.iter().flatten().filter_map(|seen| differs(*seen, reference)));
    findings.extend(all().filter_map(turned));
    findings.extend(all().filter_map(whole));
    Ok(Formats { reference: of_reference, renditions: of_renditions, findings })
}

fn finding(video: &Video, kind: &'static str, text: String) -> Finding {
    Finding { video: video.input.clone(), kind, text }
}

fn differs((video, looks): Seen, (_, reference): Seen) -> Option<Finding> {
    let [own, others] = [looks, reference].map(|looks| looks.info.format_info());
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

fn turned((video, looks): Seen) -> Option<Finding> {
    let orientation = looks.orientation?;
    Some(finding(video, "orientation", format!("its file says that its pictures are shown {orientation}")))
}

fn whole((video, looks): Seen) -> Option<Finding> {
    let text = "it says that it is interlaced, and its pictures are not: they are taken for whole ones";
    (looks.info.is_interlaced() && !looks.is_combed).then(|| finding(video, "interlaced", text.into()))
}

/// Which side has the larger range. What tags say is held against the samples.
fn range(reference: Seen, rendition: Seen, findings: &mut Vec<Finding>) -> Result<Range, Error> {
    let (original, looks) = (reference.1, rendition.1);
    if [original, looks].iter().any(|looks| looks.info.format_info().is_rgb()) {
        return Ok(Range::Same);
    }
    let (wide, narrow, side) = match (original.says_full(), looks.says_full()) {
        (true, true) => return Ok(Range::Same),
        (true, false) => (reference, rendition, Range::Reference),
        (false, true) => (rendition, reference, Range::Rendition),
        (false, false) => return Ok(untagged(reference, rendition, findings)),
    };
    let said = format!("{} says that its range is full, and {} does not", wide.0.input, narrow.0.input);
    match wide.1.range_against(narrow.1) {
        Evidence::Alike if narrow.1.is_outside() => {
            let text = "it does not say that its range is full, and its samples show that it is";
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

/// Files that say nothing, or that their range is limited.
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
