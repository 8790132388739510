// SPDX-License-Identifier: MPL-2.0

//! The command `archive merge`: joins the results of chunks into results of titles.
//!
//! The rows of all chunks pass in order through the element's own writer, without the overlaps and with the frame
//! numbers of the whole title. So every pooled value equals that of the whole title. The summary of all titles has the
//! same values.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use engine::session::Totals;
use gsthipvmaf::exact::Line;
use gsthipvmaf::message::ScoreState;
use gsthipvmaf::results::{Ending, FileFormat, Heading, Results, Row};
use watch::output::Place;

use super::chunk::{self, Head, Scored};
use super::manifest::{Chunk, Manifest, Title};
use super::summary::{self, Row as SummaryRow};
use super::{as_whole, complete_unless, repair, word};
use score::error::Error;
use score::{Frame, Scores, output};

#[derive(clap::Args)]
pub struct Args {
    /// Folder of the plan
    pub folder: PathBuf,
    /// Folder for the results: one file NAME.json per title, and summary.csv and summary.html of all titles
    #[arg(short = 'o', long = "output", value_name = "OUT")]
    pub output: PathBuf,
    /// Omit version, backend and speed, so that results of two runs can be compared
    #[arg(long)]
    pub no_provenance: bool,
}

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    score::init()?;
    let manifest = Manifest::read(&args.folder)?;
    std::fs::create_dir_all(&args.output)
        .map_err(|error| Error::Failed(format!("cannot create {}: {error}", args.output.display())))?;
    let (mut written, mut damaged) = (0, 0);
    let mut rows = vec![];
    for title in &manifest.titles {
        match merge(args, title) {
            Ok(Merged { row, damaged: texts }) => {
                written += 1;
                damaged += usize::from(!texts.is_empty());
                texts.iter().for_each(|text| eprintln!("warning: {}: {text}", title.name));
                rows.push(row);
            }
            Err(error) => {
                eprintln!("error: {}: {error}", title.name);
                rows.push(SummaryRow::missing(title, error.to_string()));
            }
        }
    }
    summary::write(&args.output, rows)?;
    output::print(format_args!("{written} of {} titles written", manifest.titles.len()))?;
    Ok(complete_unless(written == manifest.titles.len(), damaged > 0))
}

/// A title that was written.
struct Merged {
    /// Its row in the summary.
    row: SummaryRow,
    /// Damage in its videos.
    damaged: Vec<String>,
}

/// Writes the results of a title.
fn merge(args: &Args, title: &Title) -> Result<Merged, Error> {
    if let Some(problem) = &title.problem {
        return Err(Error::Failed(format!("could not be planned: {problem}")));
    }
    let mut chunks = vec![];
    for chunk in &title.chunks {
        let Some(scored) = Scored::open(&args.folder, title, chunk)? else {
            let why = chunk::why_missing(&args.folder, title, chunk);
            return Err(Error::Failed(format!("chunk {} is missing: {why}", title.chunk_name(chunk))));
        };
        chunks.push((chunk, scored));
    }
    let heads: Vec<_> = chunks.iter().map(|(chunk, scored)| (*chunk, &scored.head)).collect();
    heads.windows(2).try_for_each(|pair| check_boundary(&args.folder, title, pair[0].1, pair[1]))?;
    heads.iter().try_for_each(|(chunk, head)| check(args, title, chunk, head))?;
    let folder = tempfile::Builder::new().prefix(".hipvmaf-").tempdir_in(&args.output)?;
    let path = folder.path().join("results.json");
    let (results, _) = Results::create(&path, FileFormat::Json, !args.no_provenance)?;
    let mut damaged: Vec<String> = vec![];
    for text in heads.iter().flat_map(|(_, head)| &head.damaged) {
        if !damaged.contains(text) {
            damaged.push(text.clone());
        }
    }
    let taken: f64 = heads.iter().map(|(_, head)| head.taken).sum();
    let row = Whole {
        title,
        figures: Figures::of(title)?,
        results,
        taken,
        damaged: &damaged,
        heading: None,
        index: 0,
        totals: Totals::default(),
        ending: None,
    }
    .write(chunks)
    .map_err(|why| Error::Failed(format!("{why}; {}", as_whole(&args.folder, title))))?;
    let target = args.output.join(format!("{}.json", title.name));
    match Place::of(&target)? {
        Place::File(target) => std::fs::rename(&path, target)?,
        Place::Stream(mut out) => drop(std::io::copy(&mut File::open(&path)?, &mut out)?),
    }
    Ok(Merged { row, damaged })
}

/// Returns an error unless a chunk goes on where the one before it ends.
fn check_boundary(
    folder: &Path,
    title: &Title,
    before: &Head,
    (chunk, head): (&Chunk, &Head),
) -> Result<(), Error> {
    let Some(mismatch) = repair::mismatch(before, head) else { return Ok(()) };
    let name = title.chunk_name(chunk);
    Err(Error::Failed(format!(
        "chunk {name} {mismatch}; repair it with: hipvmaf archive run {} {}",
        word(&folder.to_string_lossy()),
        word(&name)
    )))
}

/// Returns an error if a chunk cannot be a part of a whole.
fn check(args: &Args, title: &Title, chunk: &Chunk, head: &Head) -> Result<(), Error> {
    let Some(part) = chunk.part else { return Ok(()) };
    let name = title.chunk_name(chunk);
    let failed =
        |why: &str| Err(Error::Failed(format!("chunk {name}: {why}; {}", as_whole(&args.folder, title))));
    if head.changed {
        return failed("the video format changes inside it");
    }
    for (window, boundary) in [(part.head, &head.head), (part.tail, &head.tail)] {
        if window.is_some() && !boundary.is_paired(part.slack * 2) {
            return failed("frames at its ends have no partners");
        }
    }
    Ok(())
}

/// Values of the frames of a title for the summary.
struct Figures {
    /// Columns of the models, then of the features that were asked for.
    columns: Vec<usize>,
    scores: Scores,
}

impl Figures {
    fn of(title: &Title) -> Result<Self, Error> {
        let plan = title.plan()?;
        let models = plan.models.iter().map(|planned| (planned.model.name().to_owned(), planned.column));
        let (models, mut columns): (Vec<_>, Vec<_>) = models.unzip();
        let features = title.features()?;
        let features = features.into_iter().filter_map(|key| {
            let column = plan.columns.iter().position(|name| *name == key)?;
            Some((key, column))
        });
        let (features, others): (Vec<_>, Vec<_>) = features.unzip();
        columns.extend(others);
        Ok(Self { columns, scores: Scores::new(title.name.clone(), models, features) })
    }

    fn add(&mut self, row: &Row) {
        if row.state == ScoreState::Scored {
            let value = |column: &usize| row.values.get(*column).copied().unwrap_or(f64::NAN);
            self.scores.frames.push(Frame {
                index: i32::try_from(row.index).unwrap_or(i32::MAX),
                time: row.running_time,
                scores: self.columns.iter().map(value).collect(),
            });
        }
    }

    /// Returns the row of the summary.
    fn end(mut self, title: &Title, ending: &Ending, damaged: &[String]) -> SummaryRow {
        let count =
            |name: &str| ending.frames.iter().find(|(of, _)| of == name).map_or(0, |(_, count)| *count);
        let aggregates = ending.aggregates.iter();
        self.scores.aggregates = aggregates.map(|(name, value)| (name.to_string(), *value)).collect();
        SummaryRow::scored(title, &self.scores, damaged, ["scored", "unpaired"].map(count))
    }
}

/// A title that is being joined.
struct Whole<'a> {
    title: &'a Title,
    figures: Figures,
    results: Results,
    taken: f64,
    /// Damage in its videos, from all chunks.
    damaged: &'a [String],
    heading: Option<Heading>,
    /// Number of the next chunk's first frame.
    index: u64,
    totals: Totals,
    ending: Option<Ending>,
}

impl Whole<'_> {
    /// Writes the chunks, and returns the title's row in the summary.
    fn write(mut self, chunks: Vec<(&Chunk, Scored)>) -> Result<SummaryRow, Error> {
        for (chunk, scored) in chunks {
            let head = scored.head.clone();
            let mut rows = 0;
            for line in scored.lines().skip_while(|line| !matches!(line, Ok(Line::Heading(_)))) {
                match (line?, chunk.part) {
                    (Line::Heading(heading), _) => self.begin(*heading)?,
                    (Line::Row(row), None) => self.row(&row)?,
                    (Line::Row(mut row), Some(part)) if part.has(row.running_time.nseconds()) => {
                        let own = head.before..head.before + head.own;
                        if !own.contains(&row.index) || row.state != ScoreState::Scored {
                            return Err("its frames are not where they were planned".into());
                        }
                        row.index = row.index - head.before + self.index;
                        rows += 1;
                        self.totals += &row.totals;
                        self.row(&row)?;
                    }
                    (Line::Row(_), Some(_)) => {}
                    (Line::Ending(ending), None) => self.ending = Some(ending),
                    (Line::Ending(ending), Some(_)) => self.add(ending, &head, rows)?,
                }
            }
            self.index += head.own;
        }
        self.finish()
    }

    fn row(&mut self, row: &Row) -> Result<(), Error> {
        self.figures.add(row);
        Ok(self.results.row(row)?)
    }

    fn begin(&mut self, mut heading: Heading) -> Result<(), Error> {
        let Some(first) = &self.heading else {
            let extra = &mut heading.provenance.extra;
            extra.retain(|(name, _)| name != "damaged");
            if !self.damaged.is_empty() {
                extra.push(("damaged".into(), self.damaged.to_owned()));
            }
            self.results.begin(heading.clone())?;
            self.heading = Some(heading);
            return Ok(());
        };
        // Chunks may come from different machines.
        let provenance = first.provenance.clone();
        if *first == (Heading { provenance, ..heading }) {
            Ok(())
        } else {
            Err("its chunks have different formats".into())
        }
    }

    /// Adds the counts of a part, for its own frames only.
    fn add(&mut self, ending: Ending, head: &Head, rows: u64) -> Result<(), Error> {
        let mut frames = ending.frames.clone();
        for (name, count) in &mut frames {
            match name.as_ref() {
                "scored" => *count = rows,
                "unpaired" => *count = head.own.saturating_sub(rows),
                // Frames in the overlap have partners. Only if more was decoded is it unknown which chunk an
                // unmatched frame belongs to.
                "dist_unmatched" if head.earlier > 0.0 && *count > 0 => {
                    return Err("frames without a partner may belong to the chunk before".into());
                }
                "dist_unmatched" | "verified" | "wrong" => {}
                name if *count > 0 => return Err(format!("frames are {name}").into()),
                _ => {}
            }
        }
        match &mut self.ending {
            None => self.ending = Some(Ending { frames, ..ending }),
            Some(whole) => {
                if whole.offset != ending.offset {
                    return Err("its chunks have different offsets".into());
                }
                whole.frames.iter_mut().zip(&frames).for_each(|((_, sum), (_, count))| *sum += count);
                whole.backend = ending.backend;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<SummaryRow, Error> {
        let (Some(mut ending), Some(heading)) = (self.ending, self.heading) else {
            return Err("its chunks have no frames".into());
        };
        if self.title.chunks.len() > 1 {
            let count =
                |name: &str| ending.frames.iter().find(|(of, _)| of == name).map_or(0, |(_, count)| *count);
            let all = count("scored") + count("unpaired");
            ending.coverage = count("scored") as f64 / all.max(1) as f64;
            ending.damaged = Some(self.damaged.join("\n")).filter(|damaged| !damaged.is_empty());
            ending.aggregates = heading.aggregates(&self.title.plan()?, &self.totals);
        }
        self.results.set_taken(Duration::try_from_secs_f64(self.taken).unwrap_or_default());
        self.results.finish(&ending)?;
        Ok(self.figures.end(self.title, &ending, self.damaged))
    }
}
