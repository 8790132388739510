// SPDX-License-Identifier: MPL-2.0

//! Finds mismatches before scoring.
//!
//! A finding is a difference between a video and the original, or a property that prevents scoring a video as it is.
//! Some are corrected, each by a [step](super::Step); others only affect the meaning of the scores. With `--strict`
//! every finding is an error.

use gst::ClockTime;
use serde::Serialize;

use super::preprocessing::Fields;
use super::probe::Video;
use crate::error::Error;

/// Tolerated difference in length, in frames: containers define the end of the last frame differently.
const SAME_LENGTH: f64 = 2.5;

/// A fact about a video that the user should know before reading scores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The video as the user wrote it.
    pub video: String,
    /// Category: `missing`, `format`, `range`, `orientation`, `padding`, `interlaced`, `bars`, `colour`, `size`,
    /// `shape`, `rate`, `duration` or `pairing`.
    pub kind: &'static str,
    /// Description.
    pub text: String,
}

/// Result of the checks before scoring.
#[derive(Debug)]
pub struct Checked {
    /// Findings in the order of the videos.
    pub findings: Vec<Finding>,
    /// Deinterlacing of the original, if needed.
    pub reference: Option<Fields>,
    /// Deinterlacing of each rendition, if needed.
    pub renditions: Vec<Option<Fields>>,
}

impl Checked {
    /// Returns the rate to which a rendition must be converted, or `None` if it has the original's rate.
    pub fn rate(&self, reference: &Video, rendition: usize, video: &Video) -> Option<gst::Fraction> {
        let fields = self.renditions.get(rendition).copied().flatten();
        let others = rate(reference, self.reference)?;
        Some(others).filter(|others| {
            rate(video, fields).is_some_and(|own| !same_rate(per_second(own), per_second(*others)))
        })
    }
}

/// Compares the videos with their original, except those made from it. `scale` is the default scaling method, if the
/// user did not choose one. `ignore_colours` accepts different colour coding.
pub fn check(
    reference: &Video,
    renditions: &[Option<Video>],
    scale: Option<&str>,
    ignore_colours: bool,
) -> Result<Checked, Error> {
    let progressive = std::iter::once(reference).chain(renditions.iter().flatten());
    let rate = progressive.filter(|video| !video.interlaced).find_map(Video::frames_per_second);
    let mut checked = Checked { findings: vec![], reference: fields(reference, rate), renditions: vec![] };
    checked.findings.extend(missing(reference));
    checked.findings.extend(interlaced(reference));
    for video in renditions {
        let fields = video.as_ref().and_then(|video| fields(video, rate));
        checked.renditions.push(fields);
        let Some(video) = video else { continue };
        if video.hdr != reference.hdr && !ignore_colours {
            return Err(Error::Refused(format!(
                "{} is {} and {} is {}: scores of one against the other say nothing. Compare with an original that was \
                 graded for it, or have the samples compared as they are: --colorimetry ignore",
                video.input,
                range(video),
                reference.input,
                range(reference)
            )));
        }
        checked.findings.extend(missing(video));
        checked.findings.extend(interlaced(video));
        checked.findings.extend(colours(video, reference, ignore_colours));
        checked.findings.extend(size(video, reference, scale));
        checked.findings.extend(shape(video, reference));
        checked.findings.extend(rates(video, fields, reference, checked.reference));
        checked.findings.extend(durations(video, reference));
    }
    Ok(checked)
}

/// Returns which fields become frames, where the other videos have this rate: all of them if that is closer to the
/// field rate.
fn fields(video: &Video, rate: Option<f64>) -> Option<Fields> {
    if !video.interlaced {
        return None;
    }
    let own = video
        .rate
        .filter(|_| video.frames_per_second().zip(rate).is_some_and(|(own, rate)| rate < own * 1.5));
    Some(own.map_or(Fields::All, Fields::First))
}

fn finding(video: &Video, kind: &'static str, text: String) -> Option<Finding> {
    Some(Finding { video: video.input.clone(), kind, text })
}

fn interlaced(video: &Video) -> Option<Finding> {
    video.interlaced.then(|| finding(video, "interlaced", "it is interlaced".into())).flatten()
}

fn missing(video: &Video) -> Option<Finding> {
    let text = match video.missing {
        0 => return None,
        1 => "1 picture is missing in its numbers".to_owned(),
        missing => format!("{missing} pictures are missing in its numbers"),
    };
    finding(video, "missing", text + ": those that follow are taken to be the next ones")
}

fn range(video: &Video) -> &'static str {
    if video.hdr { "HDR" } else { "SDR" }
}

/// Returns nothing if the user accepts differences. Without that, the element rejects what would need a conversion.
fn colours(video: &Video, reference: &Video, ignore: bool) -> Option<Finding> {
    let [own, others] = [video, reference].map(|video| video.colorimetry.as_deref());
    let differ = video.hdr != reference.hdr || own.zip(others).is_some_and(|(own, others)| own != others);
    let name = |video: &Video| {
        let coded = video.colorimetry.as_deref().map(|coded| format!(" ({coded})"));
        format!("{}{}", range(video), coded.unwrap_or_default())
    };
    let text = format!(
        "it is {}, and the original {}: samples are compared as they are",
        name(video),
        name(reference)
    );
    (differ && ignore).then(|| finding(video, "colour", text)).flatten()
}

fn size(video: &Video, reference: &Video, scale: Option<&str>) -> Option<Finding> {
    scale?;
    if (video.width, video.height) == (reference.width, reference.height) {
        return None;
    }
    let text = format!(
        "it is {}x{}, and the original {}x{}",
        video.width, video.height, reference.width, reference.height
    );
    finding(video, "size", text)
}

/// Reports shapes that differ by more than a line or two, which encoders crop.
fn shape(video: &Video, reference: &Video) -> Option<Finding> {
    let [own, others] = [video, reference].map(Video::shape);
    let text = format!(
        "its pictures have the shape {own:.3}:1, and those of the original {others:.3}:1: scores suffer from it"
    );
    ((own / others - 1.0).abs() > 0.01).then(|| finding(video, "shape", text)).flatten()
}

fn rates(video: &Video, own: Option<Fields>, reference: &Video, others: Option<Fields>) -> Option<Finding> {
    let (own, others) = (per_second(rate(video, own)?), per_second(rate(reference, others)?));
    let text = format!("it has {own:.6} frames per second, and the original {others:.6}");
    (!same_rate(own, others)).then(|| finding(video, "rate", text)).flatten()
}

/// Returns the frame rate after deinterlacing.
fn rate(video: &Video, fields: Option<Fields>) -> Option<gst::Fraction> {
    let rate = video.rate?;
    let times = if fields == Some(Fields::All) { 2 } else { 1 };
    Some(gst::Fraction::new(rate.numer().checked_mul(times)?, rate.denom()))
}

fn per_second(rate: gst::Fraction) -> f64 {
    f64::from(rate.numer()) / f64::from(rate.denom())
}

fn same_rate(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() <= 1e-4
}

fn durations(video: &Video, reference: &Video) -> Option<Finding> {
    let (own, others) = (video.duration?, reference.duration?);
    let frame = 1.0 / reference.frames_per_second().unwrap_or(25.0);
    let seconds = |time: ClockTime| time.nseconds() as f64 / 1e9;
    let longer = seconds(own) - seconds(others);
    if longer.abs() <= SAME_LENGTH * frame {
        return None;
    }
    let what = if longer > 0.0 { "longer" } else { "shorter" };
    let (by, frames) = (longer.abs(), (longer.abs() / frame).round());
    let text = format!(
        "it is {by:.3} s {what} than the original, some {frames} frames: what one of them lacks is not scored"
    );
    finding(video, "duration", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn video(width: u32, height: u32, rate: i32, interlaced: bool) -> Video {
        Video {
            rate: Some(gst::Fraction::new(rate, 1)),
            duration: Some(ClockTime::from_seconds(10)),
            interlaced,
            ..Video::like("video", width, height)
        }
    }

    fn kinds(reference: &Video, rendition: &Video) -> (Vec<&'static str>, [Option<Fields>; 2]) {
        let checked = check(reference, &[Some(rendition.clone())], Some("bicubic"), false).unwrap();
        let kinds = checked.findings.iter().map(|finding| finding.kind).collect();
        (kinds, [checked.reference, checked.renditions[0]])
    }

    #[test]
    fn equal_videos_have_no_findings() {
        let film = video(1920, 1080, 25, false);
        assert_eq!(kinds(&film, &film), (vec![], [None, None]));
    }

    #[test]
    fn fields_become_frames_of_the_rate_of_the_other_side() {
        let [i25, p25, p50] =
            [(25, true), (25, false), (50, false)].map(|(rate, i)| video(1920, 1080, rate, i));
        let (all, first) = (Some(Fields::All), Some(Fields::First(gst::Fraction::new(25, 1))));
        assert_eq!(kinds(&i25, &i25), (vec!["interlaced"; 2], [all, all]));
        assert_eq!(kinds(&i25, &p50), (vec!["interlaced"], [all, None]));
        assert_eq!(kinds(&i25, &p25), (vec!["interlaced"], [first, None]));
        assert_eq!(kinds(&p25, &i25), (vec!["interlaced"], [None, first]));
        assert_eq!(kinds(&p50, &p25), (vec!["rate"], [None, None]));
    }

    #[test]
    fn differences_are_found() {
        let film = video(1920, 1080, 25, false);
        assert_eq!(kinds(&film, &video(1280, 720, 25, false)).0, ["size"]);
        assert_eq!(kinds(&film, &video(1440, 1080, 25, false)).0, ["size", "shape"]);
        let anamorphic = Video { aspect: gst::Fraction::new(4, 3), ..video(1440, 1080, 25, false) };
        assert_eq!(kinds(&film, &anamorphic).0, ["size"]);
        let short = |ms| Video { duration: Some(ClockTime::from_mseconds(ms)), ..film.clone() };
        assert_eq!(kinds(&film, &short(9_920)).0, Vec::<&str>::new());
        assert_eq!(kinds(&film, &short(9_800)).0, ["duration"]);
        assert_eq!(kinds(&film, &short(10_200)).0, ["duration"]);
        let hdr = Video { hdr: true, ..film.clone() };
        assert!(matches!(check(&film, &[Some(hdr.clone())], None, false), Err(Error::Refused(_))));
        let meant = check(&film, &[Some(hdr)], None, true).unwrap().findings;
        assert_eq!(meant.iter().map(|finding| finding.kind).collect::<Vec<_>>(), ["colour"]);
    }
}
