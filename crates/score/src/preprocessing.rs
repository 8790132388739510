// SPDX-License-Identifier: MPL-2.0

//! Preprocessing of a video between its decoder and the element, by GStreamer elements.
//!
//! Each step was requested by the user or is reported to the user, and describes itself ([`Preprocessing::steps`]).
//! Scores depend on it, so it is part of the provenance.

use std::fmt;

use gst::prelude::*;

use super::convert::{Conversion, Convert};
use super::decoders::Decoder;
use super::time_range::TimeRange;
use crate::error::Error;

/// Fields that become frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// Each field, at twice the frame rate.
    All,
    /// The first field of each frame, at this frame rate.
    First(gst::Fraction),
}

/// Crop of a frame, in luma samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Margins {
    /// Columns.
    pub left: u32,
    /// Columns.
    pub right: u32,
    /// Rows.
    pub top: u32,
    /// Rows.
    pub bottom: u32,
}

impl Margins {
    fn each(self, columns: impl Fn(u32) -> u32, rows: impl Fn(u32) -> u32) -> Self {
        let Self { left, right, top, bottom } = self;
        Self { left: columns(left), right: columns(right), top: rows(top), bottom: rows(bottom) }
    }

    /// Returns the smaller value of each side.
    pub fn least(self, other: Self) -> Self {
        Self {
            left: self.left.min(other.left),
            right: self.right.min(other.right),
            top: self.top.min(other.top),
            bottom: self.bottom.min(other.bottom),
        }
    }

    /// Takes values of `other` that are larger by no more than `by`.
    pub fn or_near(self, other: Self, by: Self) -> Self {
        let side = |own: u32, other: u32, by: u32| if own < other && other - own <= by { other } else { own };
        Self {
            left: side(self.left, other.left, by.left),
            right: side(self.right, other.right, by.right),
            top: side(self.top, other.top, by.top),
            bottom: side(self.bottom, other.bottom, by.bottom),
        }
    }

    /// Rounds down to even values, so that no chroma sample is divided.
    pub fn even(self) -> Self {
        self.each(|of| of & !1, |of| of & !1)
    }

    /// Scales the values from one frame size to another, rounded down.
    pub fn scaled(self, from: (u32, u32), to: (u32, u32)) -> Self {
        let scale = |of: u32, from: u32, to: u32| {
            u32::try_from(u64::from(of) * u64::from(to) / u64::from(from.max(1))).unwrap_or(u32::MAX)
        };
        self.each(|of| scale(of, from.0, to.0), |of| scale(of, from.1, to.1))
    }

    /// Scales the values if the results are even integers.
    pub fn exactly(self, from: (u32, u32), to: (u32, u32)) -> Option<Self> {
        let scaled = self.scaled(from, to);
        (scaled == scaled.even() && scaled.scaled(to, from) == self).then_some(scaled)
    }

    /// Returns the remaining size, or `None` if nothing remains.
    pub fn left_of(self, (width, height): (u32, u32)) -> Option<(u32, u32)> {
        let left =
            |length: u32, a: u32, b: u32| length.checked_sub(a)?.checked_sub(b).filter(|left| *left > 0);
        Some((left(width, self.left, self.right)?, left(height, self.top, self.bottom)?))
    }
}

/// A new frame size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    /// Width.
    pub width: u32,
    /// Height.
    pub height: u32,
    /// Method of `videoscale`.
    pub method: &'static str,
}

/// Rotation or mirroring for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orientation {
    /// By 90° clockwise.
    Right,
    /// By 180°.
    Half,
    /// By 90° counterclockwise.
    Left,
    /// Left and right are swapped.
    Mirrored,
    /// Top and bottom are swapped.
    Upside,
    /// Mirrored at the diagonal from the upper left.
    Transposed,
    /// Mirrored at the diagonal from the upper right.
    Transversed,
}

impl Orientation {
    /// Parses GStreamer's tag `image-orientation`. Returns `None` for unrotated pictures.
    pub fn of_tag(tag: &str) -> Option<Self> {
        Some(match tag {
            "rotate-90" => Self::Right,
            "rotate-180" => Self::Half,
            "rotate-270" => Self::Left,
            "flip-rotate-0" => Self::Mirrored,
            "flip-rotate-90" => Self::Transposed,
            "flip-rotate-180" => Self::Upside,
            "flip-rotate-270" => Self::Transversed,
            _ => return None,
        })
    }

    /// Returns true if width and height are swapped.
    pub fn swaps(self) -> bool {
        matches!(self, Self::Right | Self::Left | Self::Transposed | Self::Transversed)
    }

    /// Returns the value for `videoflip`.
    fn direction(self) -> &'static str {
        match self {
            Self::Right => "90r",
            Self::Half => "180",
            Self::Left => "90l",
            Self::Mirrored => "horiz",
            Self::Upside => "vert",
            Self::Transposed => "ul-lr",
            Self::Transversed => "ur-ll",
        }
    }
}

impl fmt::Display for Orientation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Right => "turned by 90° clockwise",
            Self::Half => "turned by 180°",
            Self::Left => "turned by 90° counterclockwise",
            Self::Mirrored => "mirrored, left to right",
            Self::Upside => "mirrored, top to bottom",
            Self::Transposed => "mirrored at the diagonal from the upper left",
            Self::Transversed => "mirrored at the diagonal from the upper right",
        })
    }
}

/// Everything that is done to a video before scoring.
#[derive(Clone, Copy, Debug, Default)]
pub struct Preprocessing {
    /// Decoders to use.
    pub decoder: Decoder,
    /// Range to score; `None` for the entire video.
    pub time_range: Option<TimeRange>,
    /// Deinterlacing.
    pub fields: Option<Fields>,
    /// Conversion of the format.
    pub conversion: Option<Conversion>,
    /// Rotation.
    pub orientation: Option<Orientation>,
    /// New frame rate.
    pub rate: Option<gst::Fraction>,
    /// New size before cropping.
    pub resize: Option<Resize>,
    /// Crop.
    pub margins: Margins,
}

impl Preprocessing {
    /// Returns the steps in order, with category and description.
    pub fn steps(&self) -> Vec<(&'static str, String)> {
        let mut steps = vec![];
        match self.fields {
            Some(Fields::All) => steps.push((
                "deinterlace",
                "deinterlaced by GStreamer (method linear), each field becomes a frame".to_owned(),
            )),
            Some(Fields::First(rate)) => steps.push((
                "deinterlace",
                format!(
                    "deinterlaced by GStreamer (method linear), the first field of each frame becomes a frame, {}/{} a second",
                    rate.numer(),
                    rate.denom()
                ),
            )),
            None => {}
        }
        if let Some(rate) = self.rate {
            let text = format!(
                "brought to {}/{} frames a second by GStreamer's videorate, which repeats or drops frames",
                rate.numer(),
                rate.denom()
            );
            steps.push(("rate", text));
        }
        steps.extend(self.conversion.map(|conversion| ("convert", conversion.to_string())));
        if let Some(orientation) = self.orientation {
            steps.push((
                "orientation",
                format!("{orientation}, as it is to be shown, by GStreamer's videoflip"),
            ));
        }
        if let Some(Resize { width, height, method }) = self.resize {
            let text = format!("scaled to {width}x{height} by GStreamer's videoscale ({method})");
            steps.push(("scale", text));
        }
        if self.margins != Margins::default() {
            let Margins { left, right, top, bottom } = self.margins;
            let text =
                format!("cropped by {left} left, {right} right, {top} at the top, {bottom} at the bottom");
            steps.push(("crop", text));
        }
        steps
    }

    /// Inserts the elements before `next`, and returns the element to link to.
    pub(super) fn before(
        &self,
        pipeline: &gst::Pipeline,
        next: &gst::Element,
    ) -> Result<gst::Element, Error> {
        let mut next = next.clone();
        if self.margins != Margins::default() {
            next = crop(pipeline, self.margins, &next)?;
        }
        if let Some(resize) = self.resize {
            next = scale(pipeline, resize, &next)?;
        }
        if let Some(orientation) = self.orientation {
            next = turn(pipeline, orientation, &next)?;
        }
        if let Some(conversion) = self.conversion {
            let element = Convert::new(conversion);
            pipeline.add(&element)?;
            element.link(&next)?;
            next = element.upcast();
        }
        if let Some(rate) = self.rate {
            // Keeps the first frame at its own time.
            let element = gst::ElementFactory::make("videorate").property("skip-to-first", true).build()?;
            pipeline.add(&element)?;
            element.link_filtered(&next, &gst_video::VideoCapsBuilder::new().framerate(rate).build())?;
            next = element;
        }
        if let Some(fields) = self.fields {
            next = deinterlace(pipeline, fields, &next)?;
        }
        Ok(next)
    }
}

/// Inserts a deinterlacer. It uses each field by itself, because methods over several fields give wrong timestamps in
/// GStreamer 1.22.
fn deinterlace(pipeline: &gst::Pipeline, fields: Fields, next: &gst::Element) -> Result<gst::Element, Error> {
    let element = gst::ElementFactory::make("deinterlace")
        .property_from_str("method", "linear")
        .property_from_str("fields", "all")
        .build()?;
    pipeline.add(&element)?;
    match fields {
        Fields::All => element.link(next)?,
        Fields::First(rate) => {
            // Only the element knows which field is first, so it outputs both, and every second frame is dropped.
            let half = gst::ElementFactory::make("videorate").property("drop-only", true).build()?;
            let caps = gst_video::VideoCapsBuilder::new().framerate(rate).build();
            pipeline.add(&half)?;
            element.link(&half)?;
            half.link_filtered(next, &caps)?;
        }
    }
    Ok(element)
}

/// Inserts a rotation. The orientation tag is removed after it.
fn turn(
    pipeline: &gst::Pipeline,
    orientation: Orientation,
    next: &gst::Element,
) -> Result<gst::Element, Error> {
    let element = gst::ElementFactory::make("videoflip")
        .property_from_str("video-direction", orientation.direction())
        .build()?;
    pipeline.add(&element)?;
    element.link(next)?;
    let source = element.static_pad("src").ok_or("videoflip has no pad")?;
    source.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, |_, info| {
        match info.event().map(|event| event.view()) {
            Some(gst::EventView::Tag(event))
                if event.tag().get::<gst::tags::ImageOrientation>().is_some() =>
            {
                // Taken instead of dropped, since GStreamer 1.22 frees dropped events twice.
                info.data = None;
                gst::PadProbeReturn::Handled
            }
            _ => gst::PadProbeReturn::Ok,
        }
    });
    Ok(element)
}

/// Inserts a crop. It needs system memory; with other memory it would only attach metadata.
fn crop(pipeline: &gst::Pipeline, margins: Margins, next: &gst::Element) -> Result<gst::Element, Error> {
    let pixels = |of: u32| i32::try_from(of).unwrap_or(i32::MAX);
    let element = gst::ElementFactory::make("videocrop")
        .property("left", pixels(margins.left))
        .property("right", pixels(margins.right))
        .property("top", pixels(margins.top))
        .property("bottom", pixels(margins.bottom))
        .build()?;
    let system = gst::ElementFactory::make("capsfilter")
        .property("caps", gst_video::VideoCapsBuilder::new().build())
        .build()?;
    pipeline.add_many([&system, &element])?;
    gst::Element::link_many([&system, &element, next])?;
    Ok(system)
}

/// Inserts a scaler for the displayed shape, ignoring the pixel aspect ratio.
fn scale(pipeline: &gst::Pipeline, resize: Resize, next: &gst::Element) -> Result<gst::Element, Error> {
    let element = gst::ElementFactory::make("videoscale")
        .property_from_str("method", resize.method)
        .property("add-borders", false)
        .build()?;
    pipeline.add(&element)?;
    let (width, height) =
        [resize.width, resize.height].map(|of| i32::try_from(of).unwrap_or(i32::MAX)).into();
    let caps = gst_video::VideoCapsBuilder::new().width(width).height(height).build();
    element.link_filtered(next, &caps)?;
    Ok(element)
}
