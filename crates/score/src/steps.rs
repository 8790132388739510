// SPDX-License-Identifier: MPL-2.0

//! Steps applied to the videos before the comparison, as text for users and for the provenance.

use serde::Serialize;

use super::check::Finding;

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

/// Returns findings and steps as lines for the provenance.
pub fn lines(findings: &[Finding], steps: &[Step]) -> Vec<(&'static str, Vec<String>)> {
    let findings = findings.iter().map(|of| format!("{}: {}", of.video, of.text));
    let steps = steps.iter().map(|of| format!("{}: {}", of.video, of.text));
    vec![("findings", findings.collect()), ("steps", steps.collect())]
}
