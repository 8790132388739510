// SPDX-License-Identifier: MPL-2.0

//! Steps applied to the videos before the comparison, as text for users and for the provenance.

use serde::Serialize;

use super::check::Finding;
use super::run::Job;

/// A step applied to a video.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The video as the user wrote it, or the name of an encode.
    pub video: String,
    /// Category: `deinterlace`, `rate`, `convert`, `orientation`, `scale`, `crop`, `offset` or `pairing`.
    pub kind: &'static str,
    /// Description.
    pub text: String,
}

/// Returns the steps of a job. `sizes` are the known sizes of the reference and the renditions before the element
/// scales them.
pub fn of(job: &Job, sizes: &[Option<(u32, u32)>]) -> Vec<Step> {
    let mut steps = vec![];
    let mut add = |video: &str, kind, text| steps.push(Step { video: video.to_owned(), kind, text });
    for (kind, text) in job.preprocessing.steps() {
        add(job.reference.given(), kind, text);
    }
    let of_reference = sizes.first().copied().flatten();
    let scale = job.properties.iter().rev().find(|(name, _)| name == "scale-method");
    for (i, (label, rendition)) in job.renditions.iter().enumerate() {
        let video = rendition.given().unwrap_or(label);
        for (kind, text) in job.rendition_preprocessing.get(i).map(|of| of.steps()).unwrap_or_default() {
            add(video, kind, text);
        }
        let size = sizes.get(i + 1).copied().flatten();
        if let (Some(own), Some(others), Some((_, method))) = (size, of_reference, scale)
            && own != others
        {
            let text =
                format!("scaled from {}x{} to {}x{} by hipvmaf ({method})", own.0, own.1, others.0, others.1);
            add(video, "scale", text);
        }
        if job.offset != 0 {
            let when = if job.offset > 0 { "late" } else { "early" };
            let text = format!("taken to be {when} by {} s", job.offset.unsigned_abs() as f64 / 1e9);
            add(video, "offset", text);
        }
    }
    steps
}

/// Returns findings and steps as lines for the provenance.
pub fn lines(findings: &[Finding], steps: &[Step]) -> Vec<(&'static str, Vec<String>)> {
    let findings = findings.iter().map(|of| format!("{}: {}", of.video, of.text));
    let steps = steps.iter().map(|of| format!("{}: {}", of.video, of.text));
    vec![("findings", findings.collect()), ("steps", steps.collect())]
}
