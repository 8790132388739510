// SPDX-License-Identifier: MPL-2.0

//! The command `archive plan`: examines each title and divides it into chunks.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::list::{self, Entry};
use super::manifest::{Chunk, Manifest, Part, Source, Title, Window};
use score::command;
use score::error::Error;
use score::output;
use score::timeline::{self, Frame, Timeline};
use score::{Input, Kept, Placed, Timing, Video, middle};

#[derive(clap::Args)]
pub struct Args {
    /// CSV with the header name,reference,distorted, or JSON objects. Further columns are options of `score`. Paths
    /// are relative to the list
    list: PathBuf,
    /// Folder for the plan; every machine that scores must see it
    #[arg(short = 'o', long = "output", value_name = "DIR")]
    folder: PathBuf,
    /// Length of a chunk
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    chunk: f64,
    /// Do not cut this title; may be repeated
    #[arg(long, value_name = "NAME")]
    whole: Vec<String>,
    /// Model for titles that name none, as for `score`; may be repeated
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<String>,
    /// Further metric for titles that name none, as for `score`; may be repeated
    #[arg(long = "feature", value_name = "NAME[=OPTION=VALUE[:…]]")]
    features: Vec<String>,
}

fn seconds(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|s| (0.1..1e6).contains(s)).ok_or("not a number of seconds of at least 0.1")
}

/// Options whose meaning does not depend on a frame's position.
const OF_FRAMES: [&str; 6] = ["model", "feature", "scale", "colorimetry", "image-rate", "strict"];

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    score::init()?;
    let entries = list::read(&args.list)?;
    if let Some(name) = args.whole.iter().find(|name| !entries.iter().any(|entry| entry.name == **name)) {
        return Err(Error::Usage(format!("--whole {name}: the list has no such title")));
    }
    let failed = |error| Error::Failed(format!("cannot write into {}: {error}", args.folder.display()));
    std::fs::create_dir_all(&args.folder).map_err(failed)?;
    let base = std::path::absolute(&args.list)?;
    let base = base.parent().unwrap_or(Path::new("/"));
    let mut titles = vec![];
    for entry in &entries {
        let title = title(args, base, entry)?;
        let name = &title.name;
        title.findings.iter().for_each(|text| eprintln!("note: {name}: {text}"));
        title.damaged.iter().for_each(|text| eprintln!("warning: {name}: {text}"));
        match (&title.problem, &title.whole) {
            (Some(problem), _) => eprintln!("{name}: cannot be scored: {problem}"),
            (None, Some(why)) => eprintln!("{name}: is not cut: {why}"),
            (None, None) => {}
        }
        titles.push(title);
    }
    let chunks: usize = titles.iter().map(|title| title.chunks.len()).sum();
    let lost = titles.iter().filter(|title| title.problem.is_some()).count();
    Manifest::new(titles).write(&args.folder)?;
    let of_lost = if lost > 0 { format!(", {lost} of which cannot be scored") } else { String::new() };
    output::print(format_args!("{} titles{of_lost}, {chunks} chunks", entries.len()))?;
    Ok(ExitCode::SUCCESS)
}

fn title(args: &Args, base: &Path, entry: &Entry) -> Result<Title, Error> {
    let mut given = entry.options.clone();
    for (name, values) in [("model", &args.models), ("feature", &args.features)] {
        if !entry.options.iter().any(|(option, _)| option == name) {
            given.extend(values.iter().map(|value| (name.to_owned(), value.clone())));
        }
    }
    let mut title = Title {
        name: entry.name.clone(),
        reference: Source::lost(&base.join(&entry.reference)),
        distorted: Source::lost(&base.join(&entry.distorted)),
        options: given.iter().flat_map(|(name, value)| option(name, value)).collect(),
        models: vec![],
        problem: None,
        whole: None,
        pairing: None,
        frames: 0,
        findings: vec![],
        damaged: vec![],
        lead_in: 0,
        look_ahead: 0,
        chunks: vec![],
    };
    // A wrong option is a mistake in the list and ends the command. A wrong file concerns its title only.
    title.args(&[])?;
    if let Err(problem) = examine(args, &mut title, &given) {
        if let Error::Usage(_) = problem {
            return Err(Error::Usage(format!("{}: {problem}", entry.name)));
        }
        title.problem = Some(problem.to_string());
    }
    Ok(title)
}

fn option(name: &str, value: &str) -> Vec<String> {
    if value.is_empty() { vec![format!("--{name}")] } else { vec![format!("--{name}={value}")] }
}

fn examine(args: &Args, title: &mut Title, given: &[(String, String)]) -> Result<(), Error> {
    for source in [&mut title.reference, &mut title.distorted] {
        let path = source.path.clone();
        *source = Source::of(path.as_ref()).map_err(|error| Error::Failed(format!("{path}: {error}")))?;
    }
    let score = title.args(&[])?;
    let inputs = [&title.reference, &title.distorted]
        .map(|source| Input::new(&source.path, score.image_rate, score.raw));
    let [reference, distorted] = inputs;
    let (reference, distorted) = (reference?, distorted?);
    let videos = [Video::probe(&reference)?, Video::probe(&distorted)?];
    // Replaces `auto` and relative paths by names that are valid on every machine.
    let models = score::model::choose(&score.models, Some(&videos[0]))?;
    let absolute = |name: &String| match Path::new(name) {
        path if path.is_file() => std::path::absolute(path).map(|path| path.to_string_lossy().into_owned()),
        _ => Ok(name.clone()),
    };
    title.options.retain(|option| !option.starts_with("--model="));
    for choice in &models {
        title.options.push(format!("--model={}", absolute(&choice.name)?));
    }
    let plan = title.plan()?;
    title.models = title.hashes(&plan)?;
    (title.lead_in, title.look_ahead) = (plan.lookback().max(plan.work.history()), plan.lookahead());
    // Also done for titles that are not cut, so that problems are reported now and files are examined only once.
    let mut prepared = command::prepare(&title.args(&[])?)?;
    title.damaged = prepared.damaged();
    let findings = prepared.checked.findings.iter();
    title.findings = findings.map(|finding| format!("{}: {}", finding.video, finding.text)).collect();
    if score.strict && !title.findings.is_empty() {
        let findings = std::mem::take(&mut title.findings).join("; ");
        return Err(Error::Refused(format!("--strict rejects the following: {findings}")));
    }
    let timeline = prepared.timelines.first().and_then(Option::as_ref);
    title.frames = timeline.map_or(0, |timeline| timeline.frames.len() as u64);
    let kept = prepared.pairings.first().and_then(Option::as_ref);
    let kept = kept.map(|pairing| Kept::of(&prepared.job, pairing));
    kept.iter().try_for_each(|kept| title.keep(&args.folder, kept))?;
    let of_all = given.iter().find(|(name, _)| !OF_FRAMES.contains(&name.as_str()));
    let parts = match of_all {
        _ if args.whole.contains(&title.name) => Err("requested with --whole".into()),
        Some((name, _)) => Err(format!("--{name} depends on the whole title")),
        None => kept
            .as_ref()
            .ok_or_else(|| "its frames could not be examined".into())
            .and_then(|kept| {
                let timelines = std::mem::take(&mut prepared.timelines);
                Sides::of([&reference, &distorted], &videos, &timelines, kept)
            })
            .and_then(|Sides { frame, reference, distorted }| {
                let cutter =
                    Cutter { frame, lead_in: title.lead_in.max(1), look_ahead: title.look_ahead.max(1) };
                cutter.cut(&reference, &distorted, args.chunk)
            }),
    };
    let parts = parts.unwrap_or_else(|why| {
        title.whole = Some(why);
        vec![None]
    });
    title.chunks = (1..).zip(parts).map(|(number, part)| Chunk { number, part }).collect();
    Ok(())
}

/// Returns an error for videos in which frames cannot be found by time.
fn cuttable(video: &Video) -> Result<(), String> {
    let input = &video.input;
    if !video.indexed {
        return Err(format!("the container of {input} has no index"));
    }
    if video.interlaced { Err(format!("{input} is interlaced")) } else { Ok(()) }
}

/// The frames of both videos, at the times by which they are paired.
struct Sides {
    /// Frame duration in nanoseconds.
    frame: u64,
    reference: Vec<Frame>,
    distorted: Vec<Frame>,
}

impl Sides {
    /// Returns the times of the frames, paired as decided. Timelines that were read before are not read again.
    fn of(
        inputs: [&Input; 2],
        videos: &[Video; 2],
        timelines: &[Option<Timeline>],
        kept: &Kept,
    ) -> Result<Self, String> {
        let frames = |i: usize| {
            let (input, video) = (inputs[i], &videos[i]);
            cuttable(video)?;
            let frames = match timelines.get(i) {
                Some(Some(timeline)) => timeline.frames.clone(),
                _ => timeline::frames(input).map_err(|error| format!("{}: {error}", input.given()))?,
            };
            match Timeline::exceeds(&frames, video.duration) {
                true => {
                    Err(format!("the last frame of {} is after the end given in its container", video.input))
                }
                false => Ok(frames),
            }
        };
        let (reference, distorted) = (frames(0)?, frames(1)?);
        if let Some(both) = &kept.frames {
            return Self::planned(&reference, both);
        }
        let frame = videos[0].frames_per_second().map(|rate| (1e9 / rate) as u64);
        let frame = frame.ok_or_else(|| format!("the frame rate of {} varies", videos[0].input))?;
        Ok(Self { frame, reference, distorted })
    }

    /// Returns the frames to score if the pairing is by more than timestamps.
    fn planned(all: &[Frame], [reference, distorted]: &[Timing; 2]) -> Result<Self, String> {
        let slack = reference.slack();
        let place = |placed: Placed| {
            // Chunks must find the reference frames at the same times as the whole title does.
            if placed.time.abs_diff(placed.position) > slack {
                return Err("the timestamps of the original do not begin at its first frame".to_owned());
            }
            let near = all.partition_point(|frame| frame.time + slack < placed.position);
            Ok(Frame { time: placed.time, key: all.get(near).is_some_and(|frame| frame.key) })
        };
        let reference = reference.placed()?.into_iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let distorted = distorted.placed()?.into_iter();
        let distorted = distorted.map(|placed| Frame { time: placed.time, key: false }).collect();
        let distances = reference.windows(2).map(|pair| pair[1].time - pair[0].time).collect();
        let frame = middle(distances).ok_or("it has no frames to cut at")?;
        Ok(Self { frame, reference, distorted })
    }
}

struct Cutter {
    /// Frame duration in nanoseconds.
    frame: u64,
    lead_in: usize,
    look_ahead: usize,
}

impl Cutter {
    /// Divides the frames into parts of about this many seconds. Returns the reason if there is only one.
    fn cut(
        &self,
        reference: &[Frame],
        distorted: &[Frame],
        seconds: f64,
    ) -> Result<Vec<Option<Part>>, String> {
        let wanted = ((seconds * 1e9).round() as u64 / self.frame.max(1)).max(1) as usize;
        let slack = self.frame / 8;
        // At the end of the stream, the number of surplus frames that are read depends on the machine.
        if let (Some(last), Some(further)) = (reference.last(), distorted.last())
            && further.time > last.time + slack
        {
            return Err("the distorted video is longer than the reference".into());
        }
        let mut cuts: Vec<usize> = vec![];
        let mut next = wanted;
        // The last part has at least half of the length.
        while next + wanted / 2 < reference.len() {
            let last = cuts.last().copied().unwrap_or(0);
            // A part must be clearly longer than its overlaps.
            let least = last + 2 * (self.lead_in + self.look_ahead) + 2;
            match self.place(reference, distorted, next.max(least), wanted / 2) {
                Some(at) => {
                    cuts.push(at);
                    next = at + wanted;
                }
                None => next += wanted,
            }
        }
        if cuts.is_empty() {
            return Err(match reference.len() > wanted + wanted / 2 {
                true => "the videos have no common frame times to cut at".into(),
                false => "it is short".into(),
            });
        }
        let boundary = |cut: &usize| Window {
            from: reference[cut - self.lead_in].time,
            to: reference[cut + self.look_ahead].time,
        };
        let begins = std::iter::once(None).chain(cuts.iter().map(Some));
        let ends = cuts.iter().map(Some).chain([None]);
        let parts = begins.zip(ends).map(|(from, to)| Part {
            frames: (from.map_or(0, |at| *at as u64), to.map_or(reference.len(), |at| *at) as u64),
            from: from.map_or(0, |at| reference[*at].time),
            to: to.map(|at| reference[*at].time),
            head: from.map(boundary),
            tail: to.map(boundary),
            slack,
        });
        Ok(parts.map(Some).collect())
    }

    /// Returns the frame to cut at: at `wanted` or shortly after. A lead-in that begins right after a key frame needs
    /// the least decoding.
    fn place(
        &self,
        reference: &[Frame],
        distorted: &[Frame],
        wanted: usize,
        further: usize,
    ) -> Option<usize> {
        let last = (wanted + further).min(reference.len().checked_sub(self.look_ahead + 1)?);
        let fits = |at: &usize| self.fits(reference, distorted, *at);
        let behind_key = |at: &usize| at.checked_sub(self.lead_in + 1).is_some_and(|i| reference[i].key);
        let places = || (wanted..=last).filter(fits);
        places().find(behind_key).or_else(|| places().next())
    }

    /// Returns true if all frames around `at` have partners and regular times.
    fn fits(&self, reference: &[Frame], distorted: &[Frame], at: usize) -> bool {
        let slack = self.frame / 8;
        let Some(first) = at.checked_sub(self.lead_in + 1) else { return false };
        let Some(around) = reference.get(first..=at + self.look_ahead) else { return false };
        let partner = distorted.partition_point(|frame| frame.time + slack < around[0].time);
        let Some(partners) = distorted.get(partner..partner + around.len()) else { return false };
        let together = |(a, b): (&Frame, &Frame)| a.time.abs_diff(b.time) < slack;
        let regular = |pair: &[Frame]| (pair[1].time - pair[0].time).abs_diff(self.frame) < slack;
        around.iter().zip(partners).all(together) && around.windows(2).all(regular)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUTTER: Cutter = Cutter { frame: 40, lead_in: 1, look_ahead: 1 };

    fn frames(times: impl Iterator<Item = u64>) -> Vec<Frame> {
        times.enumerate().map(|(i, time)| Frame { time, key: i % 10 == 0 }).collect()
    }

    fn cuts(reference: &[Frame], distorted: &[Frame], frames: u64) -> Result<Vec<(u64, u64)>, String> {
        let parts = CUTTER.cut(reference, distorted, (frames * 40) as f64 / 1e9)?;
        Ok(parts.into_iter().map(|part| part.unwrap().frames).collect())
    }

    #[test]
    fn titles_are_cut_behind_key_frames() {
        let film = frames((0..60).map(|i| 40 * i));
        assert_eq!(cuts(&film, &film, 15), Ok(vec![(0, 22), (22, 42), (42, 60)]));
        assert_eq!(cuts(&film, &film, 59).unwrap_err(), "it is short");
        let part = CUTTER.cut(&film, &film, 15.0 * 40e-9).unwrap()[1].unwrap();
        assert_eq!(
            (part.head, part.tail),
            (Some(Window { from: 840, to: 920 }), Some(Window { from: 1640, to: 1720 }))
        );
        assert!(part.has(880) && part.has(876) && !part.has(840) && !part.has(1676));
    }

    #[test]
    fn titles_are_not_cut_where_frames_have_no_partners() {
        let film = frames((0..60).map(|i| 40 * i));
        let lacks = frames((0..60).filter(|i| !(20..24).contains(i)).map(|i| 40 * i));
        assert_eq!(cuts(&film, &lacks, 15), Ok(vec![(0, 15), (15, 32), (32, 52), (52, 60)]));
        let short = frames((0..30).map(|i| 40 * i));
        assert_eq!(cuts(&film, &short, 15), Ok(vec![(0, 22), (22, 60)]), "the rest has no partners");
        let long = frames((0..61).map(|i| 40 * i));
        assert!(cuts(&film, &long, 15).unwrap_err().contains("longer"));
        let half = frames((0..30).map(|i| 80 * i));
        assert!(cuts(&film, &half, 15).is_err());
        let varying = frames((0..60).map(|i| 40 * i + 8 * (i % 2)));
        assert!(cuts(&varying, &varying, 15).is_err());
    }
}
