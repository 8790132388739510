// SPDX-License-Identifier: MPL-2.0

//! The command `score`: makes a job from its arguments, runs it, and prints the results.

use std::path::Path;
use std::process::ExitCode;

use gst::ClockTime;
use gsthipvmaf::{Align, Colorimetry, ScaleMethod};

use super::args::{Args, Pair};
use super::check::{self, Checked, Finding};
use super::crop::{self, Crop, Cut};
use super::format::{self, Seen};
use super::frame_info::FrameInfo;
use super::job::Job;
use super::ladder::{self, Coded, Rung};
use super::model::{self, Choice};
use super::pairing::{self, File, Kept, Pairing, Timeline, Wanted};
use super::preset::Requested;
use super::progress::Progress;
use super::property::Nick;
use super::rendition::{self, Rendition};
use super::report::Report;
use super::run::{self, Outcome};
use super::scores::Scores;
use super::steps::{self, Step};
use super::summary::Summary;
use super::summary_file::SummaryFile;
use super::time_range::{Position, TimeRange};
use super::{Input, Preprocessing, Timings, Video, outputs, padding, source, table};
use crate::error::{Error, exit_code};
use crate::{interrupt, output};

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    crate::init()?;
    interrupt::watch()?;
    let prepared = match (prepare(args), interrupt::caught()) {
        (Err(_), Some(signal)) => return Ok(exit_code(signal)),
        (prepared, _) => prepared?,
    };
    let Prepared { video, distorted, models, advice, checked, steps, job, pairings, rungs, .. } = prepared;
    advice.iter().for_each(|advice| eprintln!("note: {advice}"));
    for choice in &models {
        choice.why.iter().for_each(|why| eprintln!("model {}: {why}", choice.name));
    }
    print_findings(&checked.findings, args.strict)?;
    steps.iter().for_each(|step| eprintln!("step: {}: {}", step.video, step.text));
    if let Some(signal) = interrupt::caught() {
        return Ok(exit_code(signal));
    }
    let count = args.worst_in_report(job.renditions.len());
    let report = args.report.as_deref().map(|path| Report::create(path, &job, count)).transpose()?;
    let rows = args.summary.as_deref().map(SummaryFile::create).transpose()?;
    let mut progress = Progress::new(video.duration, job.preprocessing.time_range);
    let watch = |element: &gst::Element| report.iter().for_each(|report| report.worst.watch(element));
    let outcome = run::score_with(&job, &watch, &mut |event| progress.show(event));
    progress.end();
    let mut outcome = outcome?;
    note_pairings(args, &mut outcome, pairings);
    note_rungs(&mut outcome, rungs);
    for (video, text) in &outcome.damaged {
        eprintln!("warning: {video}: {text}");
    }
    let summary =
        Summary::new(&video, &distorted, &models, &checked.findings, &steps, &outcome, args.worst());
    if args.json {
        output::print_json(&summary)?;
    }
    let scored = outcome.renditions.iter().any(|scores| !scores.frames.is_empty());
    let report = report.filter(|_| scored);
    let report = report.map_or(Ok(()), |report| report.write(&summary, &outcome.renditions));
    let rows = rows.filter(|_| scored);
    let written = rows.map_or(Ok(()), |rows| rows.write(&video, &distorted, &outcome.renditions));
    end(args, outcome, report.and(written))
}

/// A job with the decisions behind it.
pub struct Prepared {
    video: Video,
    distorted: Vec<Option<Video>>,
    models: Vec<Choice>,
    advice: Option<String>,
    /// Findings of the checks.
    pub checked: Checked,
    /// Steps applied to the videos.
    steps: Vec<Step>,
    /// The job.
    pub job: Job,
    /// Pairing of each rendition, as far as it was examined.
    pub pairings: Vec<Option<Pairing>>,
    /// Place of each rendition in a ladder.
    rungs: Vec<Rung>,
    /// Timelines of the original and of the renditions, as far as they were read.
    pub timelines: Vec<Option<Timeline>>,
}

impl Prepared {
    /// Returns the damage found in the videos so far.
    pub fn damaged(&self) -> Vec<String> {
        source::damage_lines(self.job.inputs())
    }
}

/// Decisions of an earlier examination.
#[derive(Clone, Copy)]
pub struct Decided<'a> {
    /// The pairing.
    pub kept: &'a Kept,
    /// Only a part is scored, so the files are not read to their end.
    pub in_part: bool,
}

/// Makes a job from the arguments.
pub fn prepare(args: &Args) -> Result<Prepared, Error> {
    prepare_as(args, None)
}

/// Makes a job from the arguments, with earlier decisions if there are any.
pub fn prepare_as(args: &Args, decided: Option<Decided>) -> Result<Prepared, Error> {
    // Errors in the command line are reported before any file is opened.
    if !model::is_open(&args.models) && args.models != [model::NONE] {
        model::choose(&args.models, None)?;
    }
    let renditions = renditions(args)?;
    let reference = Input::new(&args.reference, args.image_rate, args.raw)?;
    outputs::check(args, &reference, &renditions)?;
    args.decoder.prefer()?;
    let prepared = examine(args, decided, reference.clone(), renditions.clone());
    prepared.map_err(|error| source::explain_damage(error, rendition::inputs(&reference, &renditions)))
}

/// Examines the videos.
fn examine(
    args: &Args,
    decided: Option<Decided>,
    reference: Input,
    renditions: Vec<(String, Rendition)>,
) -> Result<Prepared, Error> {
    let in_part = decided.is_some_and(|decided| decided.in_part);
    let Opened { video, frame_info, timeline } = open(args, in_part, &reference)?;
    let opened = renditions.iter().map(|(_, rendition)| match rendition {
        Rendition::Input(input) => open(args, in_part, input).map(Some),
        Rendition::Encoding(_) => Ok(None),
    });
    let opened = opened.collect::<Result<Vec<_>, _>>()?;
    let all = Shown {
        reference: (&video, &frame_info),
        renditions: opened
            .iter()
            .map(|opened| opened.as_ref().map(|of| (&of.video, &of.frame_info)))
            .collect(),
    };
    let distorted: Vec<_> = opened.iter().map(|opened| Some(opened.as_ref()?.video.clone())).collect();
    let requested = Requested::of(args, &video)?;
    let models = model::choose(&requested.models, Some(&video))?;
    let scale = args.scale.is_none().then(|| SCALE.to_string());
    let ignore_colours = args.colorimetry.0 == Colorimetry::Ignore;
    let formats = format::plan(all.reference, &all.renditions, ignore_colours)?;
    let (cuts, found) = cuts(args, &reference, &renditions, &all)?;
    let (of_reference, of_renditions) = cuts.split_first().ok_or("nothing is cut")?;
    // The size of the frames that reach the element.
    let original = of_reference.of(&video, &video);
    let cut = distorted.iter().zip(of_renditions).map(|(own, cut)| Some(cut.of(own.as_ref()?, &original)));
    let cut: Vec<_> = cut.collect();
    let mut checked = check::check(&original, &cut, scale.as_deref(), ignore_colours)?;
    checked.findings.splice(0..0, formats.findings.iter().cloned().chain(found));
    let part = time_range(args, &video, timeline.as_ref())?;
    let rungs = rungs(args, &renditions, &opened, (video.width, video.height), part);
    let mut job = job(args, reference, renditions, &models, &requested.features, part, &checked);
    for (i, (preprocessing, own)) in job.rendition_preprocessing.iter_mut().zip(&cut).enumerate() {
        let own = own.as_ref().filter(|_| args.rate);
        preprocessing.rate = own.and_then(|own| checked.rate(&original, i, own));
    }
    (job.preprocessing.conversion, job.preprocessing.orientation) =
        (formats.reference, frame_info.orientation);
    for ((preprocessing, conversion), opened) in
        job.rendition_preprocessing.iter_mut().zip(formats.renditions).zip(&opened)
    {
        let orientation = opened.as_ref().and_then(|opened| opened.frame_info.orientation);
        (preprocessing.conversion, preprocessing.orientation) = (conversion, orientation);
    }
    let rendition_preprocessing =
        std::iter::once(&mut job.preprocessing).chain(&mut job.rendition_preprocessing);
    let method = of_videoscale(args.scale.unwrap_or(SCALE).0);
    rendition_preprocessing.zip(&cuts).for_each(|(preprocessing, cut)| cut.apply(preprocessing, method));
    let size = Some((original.width, original.height));
    let sizes = job.renditions.iter().zip(&cut).map(|((_, rendition), video)| match rendition {
        Rendition::Encoding(encoding) => encoding.size().or(size),
        Rendition::Input(_) => video.as_ref().map(|video| (video.width, video.height)),
    });
    let sizes: Vec<_> = std::iter::once(size).chain(sizes).collect();
    let file = |video, timeline| File { video, timeline };
    let files = opened.iter().map(|opened| opened.as_ref().map(|of| file(&of.video, of.timeline.as_ref())));
    let files: Vec<_> = files.collect();
    let pairings = match decided {
        Some(Decided { kept, .. }) => keep(args, kept, &mut job),
        None => pair(args, &mut job, &file(&video, timeline.as_ref()), &files)?,
    };
    let mut steps = job.steps(&sizes);
    for (pairing, video) in pairings.iter().zip(&distorted) {
        let (Some(pairing), Some(video)) = (pairing, video) else { continue };
        // The pairing reports missing frames individually.
        checked.findings.retain(|finding| finding.video != video.input || finding.kind != "duration");
        checked.findings.extend(pairing.finding(video));
        steps.push(pairing.step(video));
    }
    let damaged = ("damaged", source::damage_lines(job.inputs()));
    job.extra_provenance = steps::lines(&checked.findings, &steps).into_iter().chain([damaged]).collect();
    let of_renditions = opened.into_iter().map(|opened| opened.and_then(|opened| opened.timeline));
    let timelines = std::iter::once(timeline).chain(of_renditions).collect();
    let advice = requested.advice(&video).filter(|_| !models.is_empty());
    Ok(Prepared { video, distorted, models, advice, checked, steps, job, pairings, rungs, timelines })
}

/// Returns the place of each rendition in a ladder: its series, size and rate.
fn rungs(
    args: &Args,
    renditions: &[(String, Rendition)],
    opened: &[Option<Opened>],
    original: (u32, u32),
    part: Option<TimeRange>,
) -> Vec<Rung> {
    let names: Vec<_> = args.distorted.iter().map(|given| named(given).0).collect();
    let rung = |(i, ((_, rendition), opened)): (usize, (&(String, Rendition), &Option<Opened>))| {
        let (input, opened) = match (rendition, opened) {
            (Rendition::Encoding(encoding), _) => {
                let size = encoding.size().unwrap_or(original);
                return Rung { series: "x264".into(), size, coded: None };
            }
            (Rendition::Input(input), Some(opened)) => (input, opened),
            (Rendition::Input(_), None) => return Rung::default(),
        };
        let name = names.get(i).copied().flatten();
        let is_series = |name: &&str| names.iter().filter(|other| **other == Some(*name)).count() > 1;
        let codec = || opened.video.codec.split(" (").next().unwrap_or_default();
        Rung {
            series: name.filter(is_series).unwrap_or_else(codec).to_owned(),
            size: (opened.video.width, opened.video.height),
            coded: coded(input, opened.timeline.as_ref(), part),
        }
    };
    renditions.iter().zip(opened).enumerate().map(rung).collect()
}

/// Returns what a file takes in the part to score.
fn coded(input: &Input, timeline: Option<&Timeline>, part: Option<TimeRange>) -> Option<Coded> {
    let is_here = input.uri().is_some_and(|uri| uri.starts_with("file://"));
    match timeline {
        Some(timeline) => timeline.coded(part),
        // Files that are paired without an examination.
        None if is_here => Timeline::read(input)?.coded(part),
        None => None,
    }
}

/// Reads the times of the frames of a file, and corrects the container's values for its rate and duration.
fn read_timeline(args: &Args, input: &Input, video: &mut Video) -> Option<Timeline> {
    if args.pair == Pair::Time || !pairing::is_repeatable(input, video) {
        return None;
    }
    let timeline = Timeline::read(input)?;
    if !video.interlaced {
        video.rate = timeline.rate(video.rate);
    }
    video.indexed &= !Timeline::exceeds(&timeline.frames, video.duration);
    video.duration = timeline.end();
    Some(timeline)
}

/// Decides how the renditions are paired, unless the user has decided.
fn pair(
    args: &Args,
    job: &mut Job,
    reference: &File,
    renditions: &[Option<File>],
) -> Result<Vec<Option<Pairing>>, Error> {
    let is_set = args.offset != 0.0 || args.properties.iter().any(|(name, _)| name == "pairing");
    let kind = Wanted { repeats: args.rate, all: args.min_coverage.is_some(), ..Wanted::default() };
    let wanted = match args.pair {
        Pair::Number => {
            job.properties.push(("pairing".into(), "index".into()));
            None
        }
        Pair::Time => None,
        Pair::Auto => Some(kind).filter(|_| !is_set),
        Pair::Picture => Some(Wanted { by_picture: true, ..kind }),
    };
    let Some(wanted) = wanted else { return Ok(vec![None; renditions.len()]) };
    let pairings = pairing::plan(job, reference, renditions, wanted)?;
    let files = renditions.iter().zip(&pairings).filter(|(file, _)| file.is_some());
    let all = files.into_iter().all(|(_, pairing)| pairing.is_some());
    settle(args, job, all);
    Ok(pairings)
}

/// Applies an earlier pairing to a job.
fn keep(args: &Args, kept: &Kept, job: &mut Job) -> Vec<Option<Pairing>> {
    kept.apply(job);
    settle(args, job, true);
    vec![Some(kept.pairing.clone())]
}

/// Sets the element's properties for a pairing. `all` means that each rendition that can be examined is paired.
fn settle(args: &Args, job: &mut Job, all: bool) {
    if args.rate && job.timings.any() {
        job.properties.push(("missing-frame".into(), "repeat".into()));
    }
    if all {
        job.align = Align::Off;
    }
}

/// Adds the pairings to the scores.
fn note_pairings(args: &Args, outcome: &mut Outcome, pairings: Vec<Option<Pairing>>) {
    for (scores, pairing) in outcome.renditions.iter_mut().zip(pairings) {
        let offset = pairing.as_ref().filter(|_| args.align.0 != Align::Off).map(|pairing| pairing.offset);
        scores.offset = offset.map(|offset| (offset * 1e9).round() as i64).or(scores.offset);
        scores.pairing = pairing;
    }
}

/// Adds the places in a ladder to the scores.
fn note_rungs(outcome: &mut Outcome, rungs: Vec<Rung>) {
    for (scores, rung) in outcome.renditions.iter_mut().zip(rungs) {
        let encoded = scores.rung.coded;
        scores.rung = Rung { coded: rung.coded.or(encoded), ..rung };
    }
}

/// An opened video.
struct Opened {
    /// The video as it is displayed.
    video: Video,
    frame_info: FrameInfo,
    timeline: Option<Timeline>,
}

fn open(args: &Args, in_part: bool, input: &Input) -> Result<Opened, Error> {
    let video = Video::probe(input)?;
    let frame_info =
        FrameInfo::of(input, &video, Preprocessing { decoder: args.decoder, ..Preprocessing::default() })?;
    let mut video = frame_info.shown(video);
    let timeline = if in_part { None } else { read_timeline(args, input, &mut video) };
    Ok(Opened { video, frame_info, timeline })
}

/// The videos that exist as files.
struct Shown<'a> {
    reference: Seen<'a>,
    renditions: Vec<Option<Seen<'a>>>,
}

/// Returns how the original and each rendition are cropped, and the findings about that.
fn cuts(
    args: &Args,
    reference: &Input,
    renditions: &[(String, Rendition)],
    all: &Shown,
) -> Result<(Vec<Cut>, Vec<Finding>), Error> {
    let Some(crop) = args.crop else { return Ok(padding::find(all.reference, &all.renditions)) };
    let bars = |input: &Input, (video, frame_info): Seen| match crop {
        Crop::Auto => {
            let (decoder, orientation) = (args.decoder, frame_info.orientation);
            crop::find_bars(input, video, Preprocessing { decoder, orientation, ..Preprocessing::default() })
        }
        Crop::Given(_) => Ok(None),
    };
    let of_reference = bars(reference, all.reference)?;
    let seen = renditions.iter().zip(&all.renditions).map(|((_, rendition), seen)| match (rendition, seen) {
        (Rendition::Input(input), Some(seen)) => Ok(Some((seen.0, bars(input, *seen)?))),
        _ => Ok(None),
    });
    let seen = seen.collect::<Result<Vec<_>, Error>>()?;
    crop::plan(crop, (all.reference.0, of_reference), &seen)
}

/// Default scaling method.
const SCALE: Nick<ScaleMethod> = Nick(ScaleMethod::Bicubic);

/// Returns the most similar method of GStreamer's `videoscale`.
fn of_videoscale(method: ScaleMethod) -> &'static str {
    match method {
        ScaleMethod::Bilinear => "bilinear2",
        ScaleMethod::None | ScaleMethod::Bicubic => "catrom",
        ScaleMethod::Lanczos => "lanczos",
    }
}

/// Prints findings. With `strict` they are an error.
pub fn print_findings(findings: &[Finding], strict: bool) -> Result<(), Error> {
    let lines: Vec<_> =
        findings.iter().map(|finding| format!("{}: {}", finding.video, finding.text)).collect();
    if strict && !lines.is_empty() {
        return Err(Error::Refused(format!("--strict rejects the following:\n{}", lines.join("\n"))));
    }
    lines.iter().for_each(|line| eprintln!("note: {line}"));
    Ok(())
}

/// Divides `NAME=FILE`. A file with such a name, or a URI with a query, is no name and file.
fn named(given: &str) -> (Option<&str>, &str) {
    match given.split_once('=') {
        Some((name, file))
            if !name.is_empty() && !file.is_empty() && !name.contains('/') && !Path::new(given).exists() =>
        {
            (Some(name), file)
        }
        _ => (None, given),
    }
}

/// Returns the renditions with unique labels: their names, with the file where it is that of a series, and then with a
/// number.
fn renditions(args: &Args) -> Result<Vec<(String, Rendition)>, Error> {
    let names: Vec<_> = args.distorted.iter().map(|given| named(given)).collect();
    let label = |name: Option<&str>, rendition: &Rendition| match name {
        Some(name) if names.iter().filter(|(other, _)| *other == Some(name)).count() > 1 => {
            format!("{name} {}", rendition.label())
        }
        Some(name) => name.to_owned(),
        None => rendition.label(),
    };
    let inputs = names.iter().map(|(name, file)| {
        let input = Input::new(file, args.image_rate, args.raw);
        input.map(|input| (*name, Rendition::Input(input)))
    });
    let encodings = args.encodings.iter().map(|encoding| Ok((None, Rendition::Encoding(*encoding))));
    let mut labelled: Vec<(String, Rendition)> = vec![];
    for rendition in inputs.chain(encodings) {
        let (name, rendition) = rendition?;
        let label = label(name, &rendition);
        let taken = |label: &str| labelled.iter().any(|(other, _)| other == label);
        let numbered = (2..).map(|number: u32| format!("{label} ({number})"));
        let free = std::iter::once(label.clone()).chain(numbered).find(|label| !taken(label));
        labelled.push((free.unwrap_or(label), rendition));
    }
    Ok(labelled)
}

fn job(
    args: &Args,
    reference: Input,
    renditions: Vec<(String, Rendition)>,
    models: &[Choice],
    features: &[String],
    time_range: Option<TimeRange>,
    checked: &Checked,
) -> Job {
    let own = |name: &str, value: String| (name.to_owned(), value);
    let mut properties = vec![
        own("scale-method", args.scale.unwrap_or(SCALE).to_string()),
        own("colorimetry", args.colorimetry.to_string()),
        own("backend", args.backend.to_string()),
        own("threads", args.threads.to_string()),
        own("results-provenance", (!args.no_provenance).to_string()),
    ];
    if !features.is_empty() {
        properties.push(own("features", features.join(";")));
    }
    properties.extend(args.properties.iter().cloned());
    let preprocessing =
        |fields| Preprocessing { decoder: args.decoder, time_range, fields, ..Preprocessing::default() };
    Job {
        reference,
        renditions,
        models: models.iter().map(|choice| choice.name.clone()).collect(),
        properties,
        offset: (args.offset * 1e9) as i64,
        align: args.align.0,
        extra_provenance: vec![],
        results: args.results.clone(),
        preprocessing: preprocessing(checked.reference),
        rendition_preprocessing: checked.renditions.iter().copied().map(preprocessing).collect(),
        timings: Timings::default(),
    }
}

fn time_range(args: &Args, video: &Video, timeline: Option<&Timeline>) -> Result<Option<TimeRange>, Error> {
    // With a variable rate, the position of a frame is looked up.
    let time = |position: Position| match (position, timeline) {
        (Position::Frame(number), Some(timeline)) if video.rate.is_none() => timeline.begin(number),
        _ => position.time(video.rate),
    };
    let from = args.from.map(time).transpose()?;
    let to = match (args.frames, timeline) {
        (Some(count), Some(timeline)) if video.rate.is_none() => {
            Some(timeline.begin(timeline.number(from.unwrap_or_default()) + count)?)
        }
        (Some(count), _) => {
            let length = time(Position::Frame(count))?;
            Some(from.unwrap_or_default().checked_add(length).ok_or("there is no such frame")?)
        }
        (None, _) => args.to.map(time).transpose()?,
    };
    if from.is_none() && to.is_none() {
        return Ok(None);
    }
    let from = from.unwrap_or_default();
    if to.is_some_and(|to| to <= from) {
        return Err(Error::Usage("the range to score ends before it begins (--from, --to)".into()));
    }
    if video.duration.is_some_and(|duration| from >= duration) {
        let duration = video.duration.unwrap_or_default();
        return Err(Error::Usage(format!(
            "--from is after the end of {}: it has {duration:.3}",
            video.input
        )));
    }
    // An eighth of a frame: more than any rounding, and less than the distance of two frames.
    let frame = time(Position::Frame(1)).unwrap_or(ClockTime::from_mseconds(16));
    Ok(Some(TimeRange { from, to, slack: frame / 8, seek: video.indexed }))
}

/// Prints the results, and returns the exit code. `report` is the result of writing the report.
fn end(args: &Args, outcome: Outcome, report: Result<(), Error>) -> Result<ExitCode, Error> {
    let frames: Vec<_> = outcome.renditions.iter().map(|scores| scores.frames.len()).collect();
    let scored = frames.iter().any(|count| *count > 0);
    if outcome.signal.is_some() {
        let count = frames.first().copied().unwrap_or_default();
        eprintln!("interrupted: the scores are those of the first {count} frames");
    }
    if scored {
        let complete = outcome.failure.is_none() && outcome.signal.is_none();
        show(args, &outcome, complete)?;
        report?;
        print_written(args, args.report.as_deref().into_iter().chain(args.summary.as_deref()))?;
    }
    match (outcome.failure, outcome.signal) {
        (Some(failure), _) => Err(failure),
        (None, Some(signal)) => Ok(exit_code(signal)),
        (None, None) => match outcome.renditions.iter().find(|scores| scores.frames.is_empty()) {
            Some(Scores { label, .. }) => Err(Error::Failed(format!(
                "no frame of {label} was scored: it shares no moment in time with the original. \
                 --pair number compares frames by their numbers, --offset by another time"
            ))),
            None if !outcome.damaged.is_empty() => {
                Err(Error::Damaged("the scores are those of damaged videos, as said above".into()))
            }
            None => check_coverage(args, &outcome.renditions).map(|()| ExitCode::SUCCESS),
        },
    }
}

/// Fails if fewer frames of the original were scored than `--min-coverage` demands.
fn check_coverage(args: &Args, renditions: &[Scores]) -> Result<(), Error> {
    let Some(least) = args.min_coverage else { return Ok(()) };
    match renditions.iter().find(|scores| scores.coverage() < least) {
        Some(scores) => Err(Error::Failed(format!(
            "only {:.1} % of the original's frames were scored with {}, and --min-coverage is {:.1} %; check that the \
             encode is complete and that the timestamps of both videos match",
            100.0 * scores.coverage(),
            scores.label,
            100.0 * least
        ))),
        None => Ok(()),
    }
}

fn show(args: &Args, outcome: &Outcome, complete: bool) -> Result<(), Error> {
    if !args.json {
        let ladders = ladder::ladders(&outcome.renditions);
        output::print(table::show(outcome, ladders.first(), args.worst(), table::width()))?;
    }
    let results = args.results.as_ref().map(|path| match complete || watch::output::is_stream(path) {
        true => path.clone(),
        false => format!("{}.partial", path.display()).into(),
    });
    print_written(args, results.as_deref())
}

fn print_written<'a>(args: &Args, files: impl IntoIterator<Item = &'a Path>) -> Result<(), Error> {
    files.into_iter().filter(|_| !args.json).try_for_each(|path| {
        let text = format!("{} written", path.display());
        output::print(text)
    })
}
