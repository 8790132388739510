// SPDX-License-Identifier: MPL-2.0

//! Whether a video is late, found before it is scored: a frame that is compared with its neighbour scores like a bad one.
//!
//! The first seconds of both sides are compared as the element does it with `align`, and nothing is said unless that is
//! sure. To find it afterwards, in the scores of hours, is what this spares.

use engine::frame::{BitDepth, Component, Samples};
use gst::ClockTime;
use watch::align::{Aligner, Estimate};
use watch::thumbnail::Thumbnail;

use super::check::Finding;
use super::look::{Look, Picture};
use super::probe::Video;
use super::rendition::Rendition;
use super::run::Job;
use super::source::Input;
use super::span::Span;
use super::treatment::Treatment;
use crate::interrupt;

/// How many frames of each video are looked at: most offsets are found by half of them.
const FRAMES: usize = 150;
/// The largest offset that is looked for, in frames, which is what the element looks for unless told otherwise.
const RANGE: u32 = 25;

/// A frame by its running time.
type Seen = (ClockTime, Thumbnail);

/// What is found of the renditions of a job that are there; `videos` are the renditions, and the original's frames last so
/// long. Videos that cannot be looked at are passed over, as scoring them says why.
pub fn find(job: &Job, videos: &[Option<Video>], frame: ClockTime) -> Vec<Finding> {
    let mut reference = None;
    let mut findings = vec![];
    for (((_, rendition), treatment), video) in job.renditions.iter().zip(&job.treatments).zip(videos) {
        let (Rendition::Input(input), Some(video)) = (rendition, video) else { continue };
        // What is live does not begin anew.
        if video.duration.is_none() {
            continue;
        }
        let reference =
            reference.get_or_insert_with(|| begin(&job.reference, job.treatment).unwrap_or_default());
        let Some(distorted) = begin(input, *treatment) else { continue };
        let found = compare(reference, &distorted, frame).filter(|found| found.frames != 0);
        findings.extend(found.map(|found| finding(video, found)));
    }
    findings
}

/// The first frames of a video.
fn begin(input: &Input, treatment: Treatment) -> Option<Vec<Seen>> {
    // A part of a few frames does not tell, and what follows does.
    let span = treatment.span.map(|span| Span { to: None, ..span });
    let look = Look::open(input, Treatment { span, ..treatment }).ok()?;
    let mut seen = vec![];
    while seen.len() < FRAMES && interrupt::caught().is_none() {
        let Some(picture) = look.next().ok()? else { break };
        seen.push((picture.time, thumbnail(&picture)?));
    }
    Some(seen)
}

fn thumbnail(picture: &Picture) -> Option<Thumbnail> {
    let (width, height) = picture.size();
    let samples = Samples::Host(picture.samples());
    let luma = Component { samples, width, height, stride: picture.stride(), step: 1, shift: 0 };
    Thumbnail::new(&luma, BitDepth::new(8)?)
}

/// Lets both videos go on in step.
fn compare(reference: &[Seen], distorted: &[Seen], frame: ClockTime) -> Option<Estimate> {
    let mut aligner = Aligner::new(RANGE, frame.nseconds());
    let mut distorted = distorted.iter().peekable();
    for (time, thumbnail) in reference {
        aligner.push_reference(time.nseconds(), thumbnail);
        while let Some((at, thumbnail)) = distorted.next_if(|(at, _)| at <= time) {
            aligner.push_distorted(at.nseconds(), thumbnail);
        }
    }
    aligner.estimate().filter(|found| found.confidence > 0.0)
}

fn finding(video: &Video, found: Estimate) -> Finding {
    let (seconds, frames) = (found.offset as f64 / 1e9, found.frames.unsigned_abs());
    let when = if found.frames > 0 { "late" } else { "early" };
    let text = format!(
        "it seems to be {when} by {frames} frames ({:.3} s): --offset {seconds:.6} compares accordingly, and --align auto \
         looks for it all along",
        seconds.abs()
    );
    Finding { video: video.input.clone(), kind: "offset", text }
}
