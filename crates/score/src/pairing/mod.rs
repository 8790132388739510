// SPDX-License-Identifier: MPL-2.0

//! Pairs the frames of files before scoring.
//!
//! A timestamp of 0 does not mean the same instant in two files: containers count from the first frame of any stream,
//! edit lists and fragments shift, streams are joined and cut, and converters drop and repeat frames. So both files
//! are decoded ([`scan`]), frames with the same content are matched ([`align`]), a plan is made from these matches,
//! numbers and timestamps ([`decide`]), and frames get the times of their partners on their way to the element
//! ([`retime`]).

mod align;
mod decide;
mod display;
mod kept;
mod outcome;
pub mod retime;
mod scan;
pub mod timeline;

use std::sync::Arc;

use gst::ClockTime;

use super::job::Job;
use super::preprocessing::Preprocessing;
use super::probe::Video;
use super::rendition::Rendition;
use super::source::Input;
use super::time_range::TimeRange;
use crate::error::Error;
use crate::interrupt;
use align::Sides;
pub use decide::Method;
use decide::Plan;
pub use kept::{Kept, Placed};
pub use outcome::Pairing;
pub use retime::{Timing, Timings};
pub use scan::middle;
use scan::{Limit, Shot};
pub use timeline::Timeline;

/// Up to this number of frames, all are examined. Longer videos with equal timestamps on both sides are sampled.
const FEW: usize = 3000;
/// Frames examined at the beginning of a long video, or of a stream of unknown duration; number and length of the
/// other samples, and their length where the pictures of a short one are too similar or too damaged to tell.
const BEGINNING: usize = 100;
const LONG_BEGINNING: usize = 750;
const PLACES: u64 = 8;
const PLACE: ClockTime = ClockTime::from_mseconds(600);
const LONG_PLACE: ClockTime = ClockTime::from_seconds(8);
/// Length examined after the scored range.
const BEHIND: ClockTime = ClockTime::from_seconds(15);

/// Requested kind of pairing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Only by picture.
    pub by_picture: bool,
    /// Replace missing frames by the one before, as a player would.
    pub repeats: bool,
    /// Send all frames of the original to the element, so that those without a partner count.
    pub all: bool,
}

/// Returns true if a video can be read more than once.
pub fn is_repeatable(input: &Input, video: &Video) -> bool {
    let is_here = input.uri().is_none_or(|uri| uri.starts_with("file://"));
    !input.is_stream() && (is_here || video.duration.is_some())
}

/// A file and its properties.
pub struct File<'a> {
    pub video: &'a Video,
    pub timeline: Option<&'a Timeline>,
}

/// Pairs the renditions of a job with its original, and sets the job's timings. The result is `None` for renditions
/// that were not examined.
pub fn plan(
    job: &mut Job,
    reference: &File,
    renditions: &[Option<File>],
    wanted: Wanted,
) -> Result<Vec<Option<Pairing>>, Error> {
    let mut pairings = vec![None; renditions.len()];
    if !is_repeatable(&job.reference, reference.video) {
        return Ok(pairings);
    }
    let mut whole = None;
    let mut plans: Vec<Option<(Plan, Vec<Shot>)>> = vec![];
    for (i, file) in renditions.iter().enumerate() {
        plans.push(None);
        let (Some((_, Rendition::Input(input))), Some(file)) = (job.renditions.get(i), file) else {
            continue;
        };
        if !is_repeatable(input, file.video) || interrupt::caught().is_some() {
            continue;
        }
        let preprocessing = plain(job.rendition_preprocessing.get(i).copied().unwrap_or_default());
        if let Some(confidence) =
            sampled(job, reference, (input, preprocessing), file).filter(|_| !wanted.by_picture)
        {
            pairings[i] = Some(Pairing::of_times(confidence));
            continue;
        }
        let limit = Limit {
            frames: None,
            until: job.preprocessing.time_range.and_then(|time_range| time_range.to).map(|to| to + BEHIND),
        };
        let both = std::thread::scope(|scope| {
            let other = whole
                .is_none()
                .then(|| scope.spawn(|| scan::scan(&job.reference, plain(job.preprocessing), limit)));
            let own = scan::scan(input, preprocessing, limit);
            let other =
                other.map(|other| other.join().unwrap_or_else(|_| Err("the examination failed".into())));
            (other, own)
        });
        if let Some(shots) = both.0 {
            whole = Some(shots.unwrap_or_default());
        }
        // Reading errors are reported when the file is scored.
        let (Some(whole), Ok(own)) = (&whole, both.1) else { continue };
        if whole.is_empty() || own.is_empty() || interrupt::caught().is_some() {
            continue;
        }
        let sides = Sides { reference: whole, distorted: &own };
        let plan = decide::decide(&sides, wanted.by_picture);
        let mut plan = plan.map_err(|_| unlike(&job.reference, input))?;
        if wanted.repeats {
            display::by_display(&mut plan, &sides);
        }
        plans[i] = Some((plan, own));
    }
    if let Some(whole) = &whole {
        effect(job, whole, &plans, wanted, &mut pairings);
    }
    Ok(pairings)
}

/// Removes range and rate, to examine all frames as they are.
fn plain(preprocessing: Preprocessing) -> Preprocessing {
    Preprocessing { time_range: None, rate: None, ..preprocessing }
}

fn unlike(reference: &Input, input: &Input) -> Error {
    Error::Refused(format!(
        "the pictures of {} are not those of {}: no way of pairing their frames explains them. Name the files that belong \
         together, or say how frames are paired: --pair number or --pair time",
        input.given(),
        reference.given()
    ))
}

/// Compares samples of long videos. Returns the confidence if frames with the same time belong together; `None` if
/// they do not, or if all frames have to be examined.
fn sampled(
    job: &Job,
    reference: &File,
    (input, preprocessing): (&Input, Preprocessing),
    file: &File,
) -> Option<f64> {
    let times = file.timeline.zip(reference.timeline);
    if times.is_some_and(|(own, other)| other.frames.len() <= FEW || !own.is_regular() || !own.agrees(other))
    {
        return None;
    }
    let compare = |time_range: Option<TimeRange>, limit: Limit| {
        let of = |input: &Input, preprocessing: Preprocessing| {
            scan::scan(input, Preprocessing { time_range, ..preprocessing }, limit).ok()
        };
        let reference = of(&job.reference, plain(job.preprocessing))?;
        let distorted = of(input, preprocessing)?;
        let sides = Sides { reference: &reference, distorted: &distorted };
        let plan = decide::decide(&sides, false).ok()?;
        let is_long = limit.frames.is_none_or(|frames| reference.len() == frames);
        (is_long && is_timed(&plan, &reference, &distorted)).then_some(plan.confidence)
    };
    let beginning = if times.is_some() { BEGINNING } else { LONG_BEGINNING };
    let mut least = compare(None, Limit { frames: Some(beginning), until: None })?;
    if let Some((_, other)) = times
        && reference.video.indexed
        && file.video.indexed
    {
        let end = other.frames.last()?.time;
        let slack = ClockTime::from_nseconds(other.distance()? / 8);
        for place in 1..PLACES {
            let from = ClockTime::from_nseconds(end / PLACES * place);
            let compare = |length| {
                let time_range = TimeRange { from, to: Some(from + length), slack, seek: true };
                compare(Some(time_range), Limit::default())
            };
            least = least.min(compare(PLACE).or_else(|| compare(LONG_PLACE))?);
        }
    }
    Some(least)
}

/// Applies plans to a job.
fn effect(
    job: &mut Job,
    whole: &[Shot],
    plans: &[Option<(Plan, Vec<Shot>)>],
    wanted: Wanted,
    pairings: &mut [Option<Pairing>],
) {
    let part = part(whole, job.preprocessing.time_range);
    for (pairing, plan) in pairings.iter_mut().zip(plans) {
        if let Some((plan, shots)) = plan {
            *pairing = Some(Pairing::of(plan, shots.len(), part.clone(), wanted.repeats));
        }
    }
    if plans.iter().flatten().all(|(plan, shots)| is_timed(plan, whole, shots)) {
        return;
    }
    // A reference frame can only be omitted for all renditions, because motion is a feature of the original.
    let planned = || plans.iter().flatten();
    let all = job.renditions.len() == planned().count();
    // A frame missing at the end counts as missing; before the beginning it is not part of the motion.
    let before = |pairs: &[Option<usize>], i: usize| pairs[part.start..=i].iter().all(Option::is_none);
    let leaves = |i: usize| {
        let leaves = |plan: &Plan| plan.pairs[i].is_none() && (plan.decimated || before(&plan.pairs, i));
        all && !wanted.all && !wanted.repeats && planned().all(|(plan, _)| leaves(plan))
    };
    let kept: Vec<_> = (0..whole.len()).map(|i| part.contains(&i) && !leaves(i)).collect();
    let left_out = part.clone().filter(|i| !kept[*i]).count() as u64;
    for pairing in pairings.iter_mut().flatten() {
        pairing.left_out = [left_out, (pairing.repeated.len() + pairing.unmatched.len()) as u64];
    }
    let encodes = job.renditions.iter().any(|(_, rendition)| matches!(rendition, Rendition::Encoding(_)));
    let most = (!encodes).then(|| fastest(whole));
    let times = whole.iter().enumerate().map(|(i, shot)| kept[i].then_some(shot.time)).collect();
    job.preprocessing.time_range = None;
    let positions = |shots: &[Shot]| shots.iter().map(|shot| shot.position).collect();
    let timing = |times, keeps_segments, shots: &[Shot]| {
        Arc::new(Timing { times, positions: positions(shots), keeps_segments, most, by_position: None })
    };
    let reference = Some(timing(times, true, whole));
    let renditions = plans
        .iter()
        .map(|plan| {
            plan.as_ref().map(|(plan, shots)| {
                let mut times = vec![None; shots.len()];
                for (i, j) in plan.pairs.iter().enumerate().filter_map(|(i, j)| Some((i, (*j)?))) {
                    times[j] = kept[i].then_some(whole[i].time);
                }
                timing(times, false, shots)
            })
        })
        .collect();
    job.timings = Timings { reference, renditions };
    for (i, preprocessing) in job.rendition_preprocessing.iter_mut().enumerate() {
        if job.timings.has(i) {
            (preprocessing.time_range, preprocessing.rate) = (None, None);
        }
    }
}

/// Returns the reference frames to score.
fn part(whole: &[Shot], time_range: Option<TimeRange>) -> std::ops::Range<usize> {
    let Some(TimeRange { from, to, slack, .. }) = time_range else { return 0..whole.len() };
    let before = |moment: ClockTime| {
        whole.partition_point(|shot| shot.position + slack.nseconds() < moment.nseconds())
    };
    before(from)..to.map_or(whole.len(), before)
}

/// Returns true if timestamps alone give the pairs of a plan, since they are regular and equal.
fn is_timed(plan: &Plan, whole: &[Shot], shots: &[Shot]) -> bool {
    let sides = Sides { reference: whole, distorted: shots };
    let (first, distance) = (whole[0].time, sides.typical(true));
    let slack = (distance / 8).max(1_100_000).min(distance / 4);
    let regular = |(i, shot): (usize, &Shot)| {
        let expected = first as f64 + average(whole) * i as f64;
        (shot.time as f64 - expected).abs() <= slack as f64
    };
    let in_order = |(i, partner): (usize, &Option<usize>)| *partner == Some(i).filter(|i| *i < shots.len());
    plan.pairs.iter().enumerate().all(in_order)
        && whole.iter().zip(shots).all(|(a, b)| a.time.abs_diff(b.time) <= slack)
        && whole.iter().enumerate().all(regular)
}

fn average(shots: &[Shot]) -> f64 {
    let length = shots.last().map_or(0, |last| last.time) - shots.first().map_or(0, |first| first.time);
    length as f64 / shots.len().saturating_sub(1).max(1) as f64
}

/// Returns the highest frame rate, for caps.
fn fastest(shots: &[Shot]) -> (i32, i32) {
    let distances = shots.windows(2).map(|pair| pair[1].time - pair[0].time);
    let least = distances.min().unwrap_or(40_000_000).clamp(1_000_000, 1_000_000_000);
    (i32::try_from(1_000_000_000u64.div_ceil(least)).unwrap_or(1000), 1)
}
