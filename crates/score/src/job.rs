// SPDX-License-Identifier: MPL-2.0

//! Describes a comparison: the videos, and how they are compared.

use std::path::PathBuf;

use engine::metrics::feature_list;
use gsthipvmaf::Align;

use super::pairing::retime::Timings;
use super::preprocessing::Preprocessing;
use super::rendition::{self, Rendition};
use super::source::Input;
use super::steps::Step;

/// A comparison.
#[derive(Clone, Debug)]
pub struct Job {
    /// The original.
    pub reference: Input,
    /// Renditions with the labels for messages and results.
    pub renditions: Vec<(String, Rendition)>,
    /// Built-in names or files of models; at least one.
    pub models: Vec<String>,
    /// Further properties of the element as text, in order.
    pub properties: Vec<(String, String)>,
    /// Delay of the renditions in nanoseconds.
    pub offset: i64,
    /// How an offset between the videos is treated.
    pub align: Align,
    /// Further lines for the provenance, by category.
    pub extra_provenance: Vec<(&'static str, Vec<String>)>,
    /// Results file, in the format of its extension; further renditions get their own files.
    pub results: Option<PathBuf>,
    /// Preprocessing of the original.
    pub preprocessing: Preprocessing,
    /// Preprocessing of each rendition; not used for encodes made from the original.
    pub rendition_preprocessing: Vec<Preprocessing>,
    /// Times of the frames if they were paired by examination; otherwise frames with the same time belong together.
    pub timings: Timings,
}

impl Job {
    /// Returns the names of the features that were requested in addition to the models'.
    pub fn features(&self) -> Vec<String> {
        let list = self.properties.iter().filter(|(name, _)| name == "features");
        // The element reports errors in the list.
        let extractors = list.flat_map(|(_, list)| feature_list::parse(list, &[]).unwrap_or_default());
        extractors.flat_map(|extractor| extractor.features(true)).map(|feature| feature.key).collect()
    }

    /// Returns the steps before the comparison. `sizes` are the known sizes of the reference and the renditions before the element
    /// scales them.
    pub fn steps(&self, sizes: &[Option<(u32, u32)>]) -> Vec<Step> {
        let mut steps = vec![];
        let mut add = |video: &str, kind, text| steps.push(Step { video: video.to_owned(), kind, text });
        for (kind, text) in self.preprocessing.steps() {
            add(self.reference.given(), kind, text);
        }
        let of_reference = sizes.first().copied().flatten();
        let scale = self.properties.iter().rev().find(|(name, _)| name == "scale-method");
        for (i, (label, rendition)) in self.renditions.iter().enumerate() {
            let video = rendition.given().unwrap_or(label);
            for (kind, text) in self.rendition_preprocessing.get(i).map(|of| of.steps()).unwrap_or_default() {
                add(video, kind, text);
            }
            let size = sizes.get(i + 1).copied().flatten();
            if let (Some(own), Some(others), Some((_, method))) = (size, of_reference, scale)
                && own != others
            {
                let text = format!(
                    "scaled from {}x{} to {}x{} by hipvmaf ({method})",
                    own.0, own.1, others.0, others.1
                );
                add(video, "scale", text);
            }
            if self.offset != 0 {
                let when = if self.offset > 0 { "late" } else { "early" };
                let text = format!("taken to be {when} by {} s", self.offset.unsigned_abs() as f64 / 1e9);
                add(video, "offset", text);
            }
        }
        steps
    }

    /// Returns all existing videos, the original first.
    pub fn inputs(&self) -> impl Iterator<Item = &Input> + Clone {
        rendition::inputs(&self.reference, &self.renditions)
    }
}
