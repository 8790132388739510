// SPDX-License-Identifier: MPL-2.0

//! What is done to a video between its decoder and the element, by elements of GStreamer.
//!
//! Each step is one that the user has asked for or was told of, and says itself what it is ([`Treatment::steps`]): scores
//! depend on it as on the settings of the element, so it is told with what made them.

use gst::prelude::*;

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

/// How a video is brought to what is scored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Treatment {
    /// Which decoders are used.
    pub decoder: Decoder,
    /// The part to score, if not all of it.
    pub span: Option<Span>,
    /// It is deinterlaced.
    pub fields: Option<Fields>,
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
        steps
    }

    /// Puts what it takes before an element. What frames are to be sent to then.
    pub(super) fn before(
        &self,
        pipeline: &gst::Pipeline,
        next: &gst::Element,
    ) -> Result<gst::Element, Error> {
        let mut next = next.clone();
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
