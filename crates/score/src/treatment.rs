// SPDX-License-Identifier: MPL-2.0

//! What is done to a video between its decoder and the element, by elements of GStreamer.
//!
//! Each step is one that the user has asked for or was told of, and says itself what it is ([`Treatment::steps`]): scores
//! depend on it as on the settings of the element, so it is told with what made them.

use std::fmt;

use gst::prelude::*;

use super::convert::{Conversion, Convert};
use super::source::Decoder;
use super::span::Span;
use crate::error::Error;

/// Which fields of interlaced video become frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// Each, at twice the rate.
    All,
    /// The first of each frame, at this rate of frames.
    First(gst::Fraction),
}

/// What is cut off of frames, in samples of luma.
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

    /// The smaller ones on each side.
    pub fn least(self, other: Self) -> Self {
        Self {
            left: self.left.min(other.left),
            right: self.right.min(other.right),
            top: self.top.min(other.top),
            bottom: self.bottom.min(other.bottom),
        }
    }

    /// Those of the other where they are larger by no more than this.
    pub fn or_near(self, other: Self, by: Self) -> Self {
        let side = |own: u32, other: u32, by: u32| if own < other && other - own <= by { other } else { own };
        Self {
            left: side(self.left, other.left, by.left),
            right: side(self.right, other.right, by.right),
            top: side(self.top, other.top, by.top),
            bottom: side(self.bottom, other.bottom, by.bottom),
        }
    }

    /// Not larger, and such that no sample of subsampled colour is cut in two.
    pub fn even(self) -> Self {
        self.each(|of| of & !1, |of| of & !1)
    }

    /// Those of frames of one size where the frames are scaled to another one, rounded down.
    pub fn scaled(self, from: (u32, u32), to: (u32, u32)) -> Self {
        let scale = |of: u32, from: u32, to: u32| {
            u32::try_from(u64::from(of) * u64::from(to) / u64::from(from.max(1))).unwrap_or(u32::MAX)
        };
        self.each(|of| scale(of, from.0, to.0), |of| scale(of, from.1, to.1))
    }

    /// The same, if that is at even numbers of whole samples.
    pub fn exactly(self, from: (u32, u32), to: (u32, u32)) -> Option<Self> {
        let scaled = self.scaled(from, to);
        (scaled == scaled.even() && scaled.scaled(to, from) == self).then_some(scaled)
    }

    /// What they leave of frames of this size; nothing if they leave nothing.
    pub fn left_of(self, (width, height): (u32, u32)) -> Option<(u32, u32)> {
        let left =
            |length: u32, a: u32, b: u32| length.checked_sub(a)?.checked_sub(b).filter(|left| *left > 0);
        Some((left(width, self.left, self.right)?, left(height, self.top, self.bottom)?))
    }
}

/// Another size that frames are brought to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    /// Width.
    pub width: u32,
    /// Height.
    pub height: u32,
    /// By the name that `videoscale` has for it.
    pub method: &'static str,
}

/// How pictures are turned or mirrored to be shown.
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
    /// By the value of GStreamer's tag `image-orientation`; nothing if pictures are shown as they are.
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

    /// Width becomes height.
    pub fn swaps(self) -> bool {
        matches!(self, Self::Right | Self::Left | Self::Transposed | Self::Transversed)
    }

    /// What `videoflip` calls it.
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

/// How a video is brought to what is scored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Treatment {
    /// Which decoders are used.
    pub decoder: Decoder,
    /// The part to score, if not all of it.
    pub span: Option<Span>,
    /// It is deinterlaced.
    pub fields: Option<Fields>,
    /// Its samples are brought to this format.
    pub conversion: Option<Conversion>,
    /// Its pictures are turned.
    pub orientation: Option<Orientation>,
    /// It is brought to this rate of frames.
    pub rate: Option<gst::Fraction>,
    /// It is brought to this size before it is cut.
    pub resize: Option<Resize>,
    /// What is cut off.
    pub margins: Margins,
}

impl Treatment {
    /// What is done to the frames, in order: a kind and a text each.
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
                "brought to {}/{} frames a second by GStreamer's videorate, which repeats frames or leaves them out",
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

    /// Puts what it takes before an element. What frames are to be sent to then.
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
            // Its first frame is that of the stream, wherever that begins.
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

/// Puts an element before another one that makes frames of fields: of each by itself, so that frames get the time of their
/// field. Methods that look at several fields give frames of GStreamer 1.22 the times of others.
fn deinterlace(pipeline: &gst::Pipeline, fields: Fields, next: &gst::Element) -> Result<gst::Element, Error> {
    let element = gst::ElementFactory::make("deinterlace")
        .property_from_str("method", "linear")
        .property_from_str("fields", "all")
        .build()?;
    pipeline.add(&element)?;
    match fields {
        Fields::All => element.link(next)?,
        Fields::First(rate) => {
            // Which field is the first is known to the element alone, so it makes both into frames.
            let half = gst::ElementFactory::make("videorate").property("drop-only", true).build()?;
            let caps = gst_video::VideoCapsBuilder::new().framerate(rate).build();
            pipeline.add(&half)?;
            element.link(&half)?;
            half.link_filtered(next, &caps)?;
        }
    }
    Ok(element)
}

/// Puts an element before another one that turns pictures. What follows is not told that they were to be turned.
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
                // Taken rather than dropped: GStreamer 1.22 lets go of events that are dropped twice.
                info.data = None;
                gst::PadProbeReturn::Handled
            }
            _ => gst::PadProbeReturn::Ok,
        }
    });
    Ok(element)
}

/// Puts an element before another one that cuts frames, in the system's memory: elsewhere it would only note where to cut.
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

/// Puts an element before another one that scales frames as they are shown, whatever shape their samples had.
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
