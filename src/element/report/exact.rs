// SPDX-License-Identifier: MPL-2.0

//! Results as lines of JSON that lose nothing: the heading, the rows and the ending, each as it is, with all digits.
//!
//! A video may be scored in parts, in different places. The lines of such files are put together by feeding them to a
//! [`Results`](super::results::Results) of another format, which then is the file of the whole video.

use std::borrow::Cow;
use std::io::{self, BufRead};

use engine::plan::Plan;
use engine::session::Totals;
use gst_video::{VideoFormat, VideoInfo};
use serde::{Deserialize, Serialize};

use super::super::memory::import::geometry;
use super::rows::{Ending, Heading, Row};

/// One line: what comes first, a frame, or what comes last.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// Comes first.
    Heading(Box<Heading>),
    /// A frame.
    Row(Row),
    /// Comes last. Results without it are not complete.
    Ending(Ending),
}

/// Lines by reference, to be written.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LineOf<'a> {
    Heading(&'a Heading),
    Row(&'a Row),
    Ending(&'a Ending),
}

impl LineOf<'_> {
    pub fn text(&self) -> io::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

/// The lines of a file, in order.
pub fn read(file: impl BufRead) -> impl Iterator<Item = io::Result<Line>> {
    file.lines().map(|line| Ok(serde_json::from_str(&line?)?))
}

impl Heading {
    /// The figures of all frames together, from what they have added: frames that this plan has scored.
    pub fn aggregates(&self, plan: &Plan, totals: &Totals) -> Vec<(Cow<'static, str>, f64)> {
        let format = VideoFormat::from_string(&self.reference.format);
        let info = VideoInfo::builder(format, self.reference.width, self.reference.height).build().ok();
        let geometry = info.and_then(|info| geometry(&info));
        geometry.map(|geometry| totals.aggregates(plan, geometry)).unwrap_or_default()
    }
}
