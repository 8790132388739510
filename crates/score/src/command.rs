// SPDX-License-Identifier: MPL-2.0

//! The command `score`: makes a job of its arguments, runs it, and prints what came of it.

use std::path::Path;
use std::process::ExitCode;

use gst::ClockTime;

use super::args::{Align, Args, Colorimetry, Pair, Scale, nick};
use super::check::{self, Checked, Finding};
use super::crop::{self, Crop, Cut};
use super::format::{self, Seen};
use super::looks::Looks;
use super::model::{self, Choice};
use super::pairing::{self, File, Kept, Pairing, Timeline, Wanted};
use super::plot::Plot;
use super::progress::Progress;
use super::rendition::{self, Rendition};
use super::report::Report;
use super::run::{self, Job, Outcome};
use super::scores::Scores;
use super::span::{Position, Span};
use super::steps::{self, Step};
use super::summary::Summary;
use super::{Input, Timings, Treatment, Video, damage, outputs, padding, table};
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
    let Prepared { video, distorted, models, checked, steps, job, pairings } = prepared;
    for choice in &models {
        choice.why.iter().for_each(|why| eprintln!("model {}: {why}", choice.name));
    }
    tell(&checked.findings, args.strict)?;
    steps.iter().for_each(|step| eprintln!("step: {}: {}", step.video, step.text));
    if let Some(signal) = interrupt::caught() {
        return Ok(exit_code(signal));
    }
    let report = args.report.as_deref().map(|path| Report::create(path, &job, args.worst)).transpose()?;
    let plot = args.plot.as_deref().map(Plot::create).transpose()?;
    let mut progress = Progress::new(video.duration, job.treatment.span);
    let watch = |element: &gst::Element| report.iter().for_each(|report| report.worst.watch(element));
    let outcome = run::score_with(&job, &watch, &mut |event| progress.show(event));
    progress.end();
    let mut outcome = outcome?;
    note_pairings(args, &mut outcome, pairings);
    for (video, text) in &outcome.damaged {
        eprintln!("warning: {video}: {text}");
    }
    let summary = Summary::new(&video, &distorted, &models, &checked.findings, &steps, &outcome, args.worst);
    if args.json {
        output::print_json(&summary)?;
    }
    let report = report.filter(|_| outcome.renditions.iter().any(|scores| !scores.frames.is_empty()));
    let report = report.map_or(Ok(()), |report| report.write(&summary, &outcome.renditions));
    end(args, outcome, plot, report)
}

/// A job, and what decided about it.
pub struct Prepared {
    video: Video,
    distorted: Vec<Option<Video>>,
    models: Vec<Choice>,
    /// What was found before scoring.
    pub checked: Checked,
    /// What is done to the videos.
    steps: Vec<Step>,
    /// What is to be scored.
    pub job: Job,
    /// How each rendition is paired, where that was looked for.
    pub pairings: Vec<Option<Pairing>>,
}

impl Prepared {
    /// What is damaged in the videos, as far as they were read.
    pub fn damaged(&self) -> Vec<String> {
        damage::lines(self.job.inputs())
    }
}

/// What was decided about a job before.
#[derive(Clone, Copy)]
pub struct Decided<'a> {
    /// How its frames are paired.
    pub kept: &'a Kept,
    /// Only a part of it is scored, so its files are not read to their end.
    pub in_part: bool,
}

/// Makes the job of the arguments.
pub fn prepare(args: &Args) -> Result<Prepared, Error> {
    prepare_as(args, None)
}

/// Makes the job of the arguments, as it was decided.
pub fn prepare_as(args: &Args, decided: Option<Decided>) -> Result<Prepared, Error> {
    // What is wrong with the command line is said before anything is opened.
    if !model::is_open(&args.models) {
        model::choose(&args.models, None)?;
    }
    let renditions = renditions(args)?;
    let reference = Input::new(&args.reference, args.image_rate, args.raw)?;
    outputs::check(args, &reference, &renditions)?;
    args.decoder.prefer()?;
    let prepared = examine(args, decided, reference.clone(), renditions.clone());
    prepared.map_err(|error| damage::explain(error, rendition::inputs(&reference, &renditions)))
}

/// Looks at the videos.
fn examine(
    args: &Args,
    decided: Option<Decided>,
    reference: Input,
    renditions: Vec<(String, Rendition)>,
) -> Result<Prepared, Error> {
    let in_part = decided.is_some_and(|decided| decided.in_part);
    let Opened { video, looks, timeline } = open(args, in_part, &reference)?;
    let opened = renditions.iter().map(|(_, rendition)| match rendition {
        Rendition::Input(input) => open(args, in_part, input).map(Some),
        Rendition::Encoding(_) => Ok(None),
    });
    let opened = opened.collect::<Result<Vec<_>, _>>()?;
    let all = Shown {
        reference: (&video, &looks),
        renditions: opened.iter().map(|opened| opened.as_ref().map(|of| (&of.video, &of.looks))).collect(),
    };
    let distorted: Vec<_> = opened.iter().map(|opened| Some(opened.as_ref()?.video.clone())).collect();
    let models = model::choose(&args.models, Some(&video))?;
    let scale = args.scale.is_none().then(|| nick(SCALE));
    let ignore_colours = args.colorimetry == Colorimetry::Ignore;
    let formats = format::plan(all.reference, &all.renditions, ignore_colours)?;
    let (cuts, found) = cuts(args, &reference, &renditions, &all)?;
    let (of_reference, of_renditions) = cuts.split_first().ok_or("nothing is cut")?;
    // As they come to the element.
    let original = of_reference.of(&video, &video);
    let cut = distorted.iter().zip(of_renditions).map(|(own, cut)| Some(cut.of(own.as_ref()?, &original)));
    let cut: Vec<_> = cut.collect();
    let mut checked = check::check(&original, &cut, scale.as_deref(), ignore_colours)?;
    checked.findings.splice(0..0, formats.findings.iter().cloned().chain(found));
    let part = span(args, &video, timeline.as_ref())?;
    let mut job = job(args, reference, renditions, &models, part, &checked)?;
    for (i, (treatment, own)) in job.treatments.iter_mut().zip(&cut).enumerate() {
        let own = own.as_ref().filter(|_| args.rate);
        treatment.rate = own.and_then(|own| checked.rate(&original, i, own));
    }
    (job.treatment.conversion, job.treatment.orientation) = (formats.reference, looks.orientation);
    for ((treatment, conversion), opened) in job.treatments.iter_mut().zip(formats.renditions).zip(&opened) {
        let orientation = opened.as_ref().and_then(|opened| opened.looks.orientation);
        (treatment.conversion, treatment.orientation) = (conversion, orientation);
    }
    let treatments = std::iter::once(&mut job.treatment).chain(&mut job.treatments);
    let method = args.scale.unwrap_or(SCALE).of_videoscale();
    treatments.zip(&cuts).for_each(|(treatment, cut)| cut.apply(treatment, method));
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
    let mut steps = steps::of(&job, &sizes);
    for (pairing, video) in pairings.iter().zip(&distorted) {
        let (Some(pairing), Some(video)) = (pairing, video) else { continue };
        // What one of them lacks is told frame by frame.
        checked.findings.retain(|finding| finding.video != video.input || finding.kind != "duration");
        checked.findings.extend(pairing.finding(video));
        steps.push(pairing.step(video));
    }
    let damaged = ("damaged", damage::lines(job.inputs()));
    job.extra_provenance = steps::lines(&checked.findings, &steps).into_iter().chain([damaged]).collect();
    Ok(Prepared { video, distorted, models, checked, steps, job, pairings })
}

/// Reads when the frames of a file are, and corrects what its container says of their rate and of its length.
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

/// Decides how the renditions are paired, unless the user has.
fn pair(
    args: &Args,
    job: &mut Job,
    reference: &File,
    renditions: &[Option<File>],
) -> Result<Vec<Option<Pairing>>, Error> {
    let is_set = args.offset != 0.0 || args.properties.iter().any(|(name, _)| name == "pairing");
    let wanted = match args.pair {
        Pair::Number => {
            job.properties.push(("pairing".into(), "index".into()));
            None
        }
        Pair::Time => None,
        Pair::Auto => Some(Wanted { by_picture: false, repeats: args.rate }).filter(|_| !is_set),
        Pair::Picture => Some(Wanted { by_picture: true, repeats: args.rate }),
    };
    let Some(wanted) = wanted else { return Ok(vec![None; renditions.len()]) };
    let pairings = pairing::plan(job, reference, renditions, wanted)?;
    let files = renditions.iter().zip(&pairings).filter(|(file, _)| file.is_some());
    let all = files.into_iter().all(|(_, pairing)| pairing.is_some());
    settle(args, job, all);
    Ok(pairings)
}

/// Has a job pair its frames as it was decided.
fn keep(args: &Args, kept: &Kept, job: &mut Job) -> Vec<Option<Pairing>> {
    kept.apply(job);
    settle(args, job, true);
    vec![Some(kept.pairing.clone())]
}

/// Has the element do its part. `all` videos that can be are paired.
fn settle(args: &Args, job: &mut Job, all: bool) {
    if args.rate && job.timings.any() {
        job.properties.push(("missing-frame".into(), "repeat".into()));
    }
    if all {
        job.align = nick(Align::Off);
    }
}

/// Notes with the scores how their frames were paired.
fn note_pairings(args: &Args, outcome: &mut Outcome, pairings: Vec<Option<Pairing>>) {
    for (scores, pairing) in outcome.renditions.iter_mut().zip(pairings) {
        let offset = pairing.as_ref().filter(|_| args.align != Align::Off).map(|pairing| pairing.offset);
        scores.offset = offset.map(|offset| (offset * 1e9).round() as i64).or(scores.offset);
        scores.pairing = pairing;
    }
}

/// What is known of a video before it is scored.
struct Opened {
    /// As it is shown.
    video: Video,
    looks: Looks,
    timeline: Option<Timeline>,
}

fn open(args: &Args, in_part: bool, input: &Input) -> Result<Opened, Error> {
    let video = Video::probe(input)?;
    let looks = Looks::of(input, &video, Treatment { decoder: args.decoder, ..Treatment::default() })?;
    let mut video = video.shown(&looks);
    let timeline = if in_part { None } else { read_timeline(args, input, &mut video) };
    Ok(Opened { video, looks, timeline })
}

/// The videos that are there.
struct Shown<'a> {
    reference: Seen<'a>,
    renditions: Vec<Option<Seen<'a>>>,
}

/// How the original and each of the others are cut, and what was found for that.
fn cuts(
    args: &Args,
    reference: &Input,
    renditions: &[(String, Rendition)],
    all: &Shown,
) -> Result<(Vec<Cut>, Vec<Finding>), Error> {
    let Some(crop) = args.crop else { return Ok(padding::find(all.reference, &all.renditions)) };
    let bars = |input: &Input, (video, looks): Seen| match crop {
        Crop::Auto => {
            let (decoder, orientation) = (args.decoder, looks.orientation);
            crop::look(input, video, Treatment { decoder, orientation, ..Treatment::default() })
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

/// How other sizes are scaled, if it is not said.
const SCALE: Scale = Scale::Bicubic;

/// Says what was found.
pub fn tell(findings: &[Finding], strict: bool) -> Result<(), Error> {
    let lines: Vec<_> =
        findings.iter().map(|finding| format!("{}: {}", finding.video, finding.text)).collect();
    if strict && !lines.is_empty() {
        return Err(Error::Refused(format!("--strict accepts none of this:\n{}", lines.join("\n"))));
    }
    lines.iter().for_each(|line| eprintln!("note: {line}"));
    Ok(())
}

/// The videos to score. Those of one name are told apart by what the user wrote, and by their number.
fn renditions(args: &Args) -> Result<Vec<(String, Rendition)>, Error> {
    let inputs =
        args.distorted.iter().map(|given| Input::new(given, args.image_rate, args.raw).map(Rendition::Input));
    let encodings = args.encodings.iter().map(|encoding| Ok(Rendition::Encoding(*encoding)));
    let mut named: Vec<(String, Rendition)> = vec![];
    for rendition in inputs.chain(encodings) {
        let rendition = rendition?;
        let label = rendition.label();
        let taken = |label: &str| named.iter().any(|(other, _)| other == label);
        let numbered = (2..).map(|number: u32| format!("{label} ({number})"));
        let free = std::iter::once(label.clone()).chain(numbered).find(|label| !taken(label));
        named.push((free.unwrap_or(label), rendition));
    }
    Ok(named)
}

fn job(
    args: &Args,
    reference: Input,
    renditions: Vec<(String, Rendition)>,
    models: &[Choice],
    span: Option<Span>,
    checked: &Checked,
) -> Result<Job, Error> {
    let own = |name: &str, value: String| (name.to_owned(), value);
    let mut properties = vec![
        own("scale-method", nick(args.scale.unwrap_or(SCALE))),
        own("colorimetry", nick(args.colorimetry)),
        own("backend", args.backend.clone()),
        own("threads", args.threads.to_string()),
        own("results-provenance", (!args.no_provenance).to_string()),
    ];
    if !args.features.is_empty() {
        properties.push(own("features", args.features.join(";")));
    }
    properties.extend(args.properties.iter().cloned());
    let treatment = |fields| Treatment { decoder: args.decoder, span, fields, ..Treatment::default() };
    Ok(Job {
        reference,
        renditions,
        models: models.iter().map(|choice| choice.name.clone()).collect(),
        properties,
        offset: (args.offset * 1e9) as i64,
        align: nick(args.align),
        extra_provenance: vec![],
        results: args.results.clone(),
        treatment: treatment(checked.reference),
        treatments: checked.renditions.iter().copied().map(treatment).collect(),
        timings: Timings::default(),
    })
}

fn span(args: &Args, video: &Video, timeline: Option<&Timeline>) -> Result<Option<Span>, Error> {
    // Frames of a rate that varies are found where they are.
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
        return Err(Error::Usage("the part to score ends before it begins (--from, --to)".into()));
    }
    if video.duration.is_some_and(|duration| from >= duration) {
        let duration = video.duration.unwrap_or_default();
        return Err(Error::Usage(format!(
            "--from is behind the end of {}: it has {duration:.3}",
            video.input
        )));
    }
    // An eighth of a frame: more than any rounding, and less than frames are apart.
    let frame = time(Position::Frame(1)).unwrap_or(ClockTime::from_mseconds(16));
    Ok(Some(Span { from, to, slack: frame / 8, seek: video.indexed }))
}

/// Prints what came of it, and says how it has ended. `report` is how the report has.
fn end(
    args: &Args,
    outcome: Outcome,
    plot: Option<Plot>,
    report: Result<(), Error>,
) -> Result<ExitCode, Error> {
    let frames: Vec<_> = outcome.renditions.iter().map(|scores| scores.frames.len()).collect();
    let scored = frames.iter().any(|count| *count > 0);
    if outcome.signal.is_some() {
        let count = frames.first().copied().unwrap_or_default();
        eprintln!("interrupted: the scores are those of the first {count} frames");
    }
    if scored {
        let complete = outcome.failure.is_none() && outcome.signal.is_none();
        show(args, &outcome.renditions, plot, complete)?;
        report?;
        tell_written(args, args.report.as_deref())?;
    }
    match (outcome.failure, outcome.signal) {
        (Some(failure), _) => Err(failure),
        (None, Some(signal)) => Ok(exit_code(signal)),
        (None, None) => match outcome.renditions.iter().find(|scores| scores.frames.is_empty()) {
            Some(Scores { label, .. }) => Err(Error::Failed(format!(
                "no frame of {label} was scored: it shares no moment in time with the original. \
                 --pair number compares frames by their numbers, --offset by another time"
            ))),
            None if outcome.damaged.is_empty() => Ok(ExitCode::SUCCESS),
            None => Err(Error::Damaged("the scores are those of damaged videos, as said above".into())),
        },
    }
}

fn show(args: &Args, renditions: &[Scores], plot: Option<Plot>, complete: bool) -> Result<(), Error> {
    if !args.json {
        output::print(table::show(renditions, args.worst))?;
    }
    plot.map_or(Ok(()), |plot| plot.write(renditions))?;
    let results = args.results.as_ref().map(|path| match complete || watch::output::is_stream(path) {
        true => path.clone(),
        false => format!("{}.partial", path.display()).into(),
    });
    let results = results.as_deref();
    tell_written(args, results.into_iter().chain(args.plot.as_deref()))
}

fn tell_written<'a>(args: &Args, files: impl IntoIterator<Item = &'a Path>) -> Result<(), Error> {
    files.into_iter().filter(|_| !args.json).try_for_each(|path| {
        let text = format!("{} written", path.display());
        output::print(text)
    })
}
