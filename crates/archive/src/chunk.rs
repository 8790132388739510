// SPDX-License-Identifier: MPL-2.0

//! Scores one chunk, as `score` does, into a file that appears complete or not at all.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use gst::ClockTime;
use gsthipvmaf::exact::{self, Line};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::boundary::{Boundary, Tap};
use super::manifest::{Chunk, Title, hex};
use score::command::{self, Decided, Prepared};
use score::error::Error;
use score::{self, Outcome};

/// Header line of a chunk's file. The lines of the element follow it, and the checksum of all of them comes last.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Head {
    /// Hash of everything that the scores depend on.
    pub key: String,
    /// Seconds that scoring took.
    pub taken: f64,
    /// Seconds by which decoding began earlier than necessary.
    pub earlier: f64,
    /// Reference frames before the chunk, and inside it.
    pub before: u64,
    pub own: u64,
    /// Frames that the neighbouring chunks decode as well.
    pub head: Boundary,
    pub tail: Boundary,
    /// The video format changes inside the chunk.
    pub changed: bool,
    /// Damage found in the videos.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
}

/// An opened file of a scored chunk.
pub struct Scored {
    pub head: Head,
    lines: io::Take<BufReader<File>>,
}

impl Scored {
    /// Opens the results of a chunk. Returns `None` unless they are complete and belong to this plan.
    pub fn open(folder: &Path, title: &Title, chunk: &Chunk) -> Result<Option<Self>, Error> {
        let Some(scored) = Self::parse(folder, title, chunk)? else { return Ok(None) };
        Ok((content(&title.result(folder, chunk))? == Content::Intact).then_some(scored))
    }

    /// Reads the header of a chunk's results, without the checksum of the rows.
    pub fn head(folder: &Path, title: &Title, chunk: &Chunk) -> Result<Option<Head>, Error> {
        Ok(Self::parse(folder, title, chunk)?.map(|scored| scored.head))
    }

    fn parse(folder: &Path, title: &Title, chunk: &Chunk) -> Result<Option<Self>, Error> {
        let path = title.result(folder, chunk);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::Failed(format!("{}: {error}", path.display()))),
        };
        let length = file.metadata()?.len();
        let mut file = BufReader::new(file);
        let mut line = vec![];
        file.read_until(b'\n', &mut line)?;
        let head = serde_json::from_slice::<Head>(&line).ok();
        let lines = file.take(length.saturating_sub(line.len() as u64 + Checksum::LENGTH));
        let key = title.key(chunk)?;
        Ok(head.filter(|head| head.key == key).map(|head| Self { head, lines }))
    }

    /// Reads the lines that the element wrote.
    pub fn lines(self) -> impl Iterator<Item = io::Result<Line>> {
        exact::read(self.lines)
    }
}

/// State of a chunk's file.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    /// It was written completely, and has not changed since.
    Intact,
    /// It ends without a checksum.
    Incomplete,
    /// Its rows are not those of its checksum.
    Changed,
}

/// Reads a chunk's file and compares it with its checksum.
fn content(path: &Path) -> io::Result<Content> {
    let mut file = File::open(path)?;
    let Some(length) = file.metadata()?.len().checked_sub(Checksum::LENGTH) else {
        return Ok(Content::Incomplete);
    };
    let mut hash = Sha256::new();
    io::copy(&mut (&mut file).take(length), &mut hash)?;
    let mut last = vec![];
    file.read_to_end(&mut last)?;
    Ok(match serde_json::from_slice::<Checksum>(&last) {
        Ok(Checksum { sha256 }) if sha256 == hex(hash) => Content::Intact,
        Ok(_) => Content::Changed,
        Err(_) => Content::Incomplete,
    })
}

/// Last line of a chunk's file.
#[derive(Deserialize, Serialize)]
struct Checksum {
    /// SHA-256 of everything before this line.
    sha256: String,
}

impl Checksum {
    /// Bytes of the line: `{"sha256":"`, 64 digits, `"}` and a line feed.
    const LENGTH: u64 = 11 + 64 + 3;
}

/// Writes, and computes the checksum of what was written.
struct Summed<T> {
    out: T,
    hash: Sha256,
}

impl<T: Write> Write for Summed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Options of a run that the scores do not depend on.
pub struct RunOptions {
    /// Arguments for `score`.
    pub options: Vec<String>,
    /// Seconds by which decoding begins earlier than necessary.
    pub earlier: f64,
}

/// Result of scoring a chunk.
pub enum Completion {
    /// The chunk was scored now.
    Scored,
    /// Valid results were there already.
    AlreadyValid,
    /// A signal stopped the run.
    Interrupted(i32),
}

/// Scores a chunk unless its results exist. A second process that wants the same chunk waits for the first.
pub fn run(folder: &Path, title: &Title, chunk: &Chunk, how: &RunOptions) -> Result<Completion, Error> {
    let failed = |error: io::Error| Error::Failed(format!("cannot write into {}: {error}", folder.display()));
    for path in [title.result(folder, chunk), title.work(folder, chunk, "lock")] {
        path.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
    }
    let lock = File::create(title.work(folder, chunk, "lock")).map_err(failed)?;
    // Some file systems have no locks. Then two processes may score a chunk at the same time, each into its own
    // files.
    let own = match lock.lock() {
        Ok(()) => String::new(),
        Err(_) => format!("{:016x}.", RandomState::new().hash_one(std::process::id())),
    };
    let why = title.work(folder, chunk, "failed");
    // If the reason cannot be written, the program still prints it.
    let note = |text: String| fs::write(&why, text).unwrap_or_default();
    // This is what remains if the process is killed or the machine fails.
    note(format!(
        "was started by process {} on {}, which has not finished it",
        std::process::id(),
        glib::host_name()
    ));
    let files = Files::of(folder, title, chunk, &own);
    // Left over from a killed process.
    files.remove();
    let completion = score_missing(folder, title, chunk, how, &files);
    // Incomplete files are useless, and the disk may be full.
    files.remove();
    match &completion {
        Ok(_) => {
            let _ = fs::remove_file(why);
        }
        Err(error) => note(error.to_string()),
    }
    completion
}

/// Temporary files of a chunk that is being scored.
struct Files {
    /// File that the element writes, and its name until it is complete.
    rows: PathBuf,
    partial: PathBuf,
    /// The chunk's file.
    result: PathBuf,
}

impl Files {
    /// Puts `own` into the names, for file systems without locks.
    fn of(folder: &Path, title: &Title, chunk: &Chunk, own: &str) -> Self {
        let of = |what: &str| title.work(folder, chunk, &format!("{own}{what}"));
        Self { rows: of("rows"), partial: of("rows.partial"), result: of("result") }
    }

    fn remove(&self) {
        for file in [&self.rows, &self.partial, &self.result] {
            // Most of them do not exist.
            let _ = fs::remove_file(file);
        }
    }
}

fn score_missing(
    folder: &Path,
    title: &Title,
    chunk: &Chunk,
    how: &RunOptions,
    files: &Files,
) -> Result<Completion, Error> {
    title.check_inputs()?;
    if Scored::open(folder, title, chunk)?.is_some_and(|scored| scored.head.earlier >= how.earlier) {
        return Ok(Completion::AlreadyValid);
    }
    score(folder, title, chunk, how, files)
}

fn score(
    folder: &Path,
    title: &Title,
    chunk: &Chunk,
    how: &RunOptions,
    files: &Files,
) -> Result<Completion, Error> {
    let started = Instant::now();
    let args = title.args(&how.options)?;
    let kept = title.kept(folder)?;
    let decided = kept.as_ref().map(|kept| Decided { kept, in_part: chunk.part.is_some() });
    let Prepared { mut job, checked, .. } = command::prepare_as(&args, decided)?;
    if args.strict {
        command::print_findings(&checked.findings, true)?;
    }
    job.results = Some(files.rows.clone());
    job.properties.push(("results-format".into(), "exact".into()));
    let tap = Tap::default();
    if let Some(part) = chunk.part {
        let earlier = (how.earlier * 1e9) as u64;
        let time_range = part.time_range(earlier);
        job.rendition_preprocessing
            .iter_mut()
            .chain([&mut job.preprocessing])
            .for_each(|of| of.time_range = Some(time_range));
        if let Some(kept) = &kept {
            kept.apply_part(&mut job, time_range.from.nseconds(), time_range.to.map(ClockTime::nseconds));
        }
    }
    let prepare = |element: &gst::Element| chunk.part.iter().for_each(|part| tap.watch(element, *part));
    let outcome = score::score_with(&job, &prepare, &mut |_| {})?;
    if let Some(signal) = outcome.signal {
        return Ok(Completion::Interrupted(signal));
    }
    if let Some(failure) = outcome.failure {
        return Err(failure);
    }
    let mut lines = File::open(&files.rows).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::from("no frame was scored; hipvmaf score says more of these files"),
        _ => error.into(),
    })?;
    title.check_inputs()?;
    let notes = tap.take();
    if let Some(problem) = notes.problem {
        return Err(problem.into());
    }
    if let Some((part, [reference, distorted])) =
        chunk.part.zip(kept.as_ref().and_then(|kept| kept.frames.as_ref()))
    {
        let planned = [reference, distorted].map(|timing| timing.count(|time| part.has(time)));
        if planned != [notes.own, notes.distorted] {
            return Err("its frames differ from those that were planned; plan again".into());
        }
    }
    let head = Head {
        key: title.key(chunk)?,
        taken: started.elapsed().as_secs_f64(),
        earlier: how.earlier,
        before: notes.before,
        own: notes.own,
        head: notes.head,
        tail: notes.tail,
        changed: notes.changed,
        damaged: damaged(title, chunk, &outcome),
    };
    let result = title.result(folder, chunk);
    let mut write = || {
        let out = BufWriter::new(File::create(&files.result)?);
        let mut summed = Summed { out, hash: Sha256::new() };
        summed.write_all((serde_json::to_string(&head)? + "\n").as_bytes())?;
        io::copy(&mut lines, &mut summed)?;
        let Summed { mut out, hash } = summed;
        out.write_all((serde_json::to_string(&Checksum { sha256: hex(hash) })? + "\n").as_bytes())?;
        out.flush()?;
        out.get_ref().sync_all()?;
        fs::rename(&files.result, &result)?;
        File::open(result.parent().unwrap_or(folder))?.sync_all()
    };
    write().map_err(|error| Error::Failed(format!("cannot write {}: {error}", result.display())))?;
    Ok(Completion::Scored)
}

/// Returns the damage found in a chunk's videos. For a part of a title, the damage known from the plan comes first.
fn damaged(title: &Title, chunk: &Chunk, outcome: &Outcome) -> Vec<String> {
    let planned = if chunk.part.is_some() { &title.damaged[..] } else { &[] };
    let known = |video: &str| planned.iter().any(|line| line.starts_with(&format!("{video}: ")));
    let found = outcome.damaged.iter().filter(|(video, _)| !known(video));
    planned.iter().cloned().chain(found.map(|(video, text)| format!("{video}: {text}"))).collect()
}

/// Returns the damage noted in the results of a chunk; none if there are no results.
pub fn damage(folder: &Path, title: &Title, chunk: &Chunk) -> Result<Vec<String>, Error> {
    Ok(Scored::head(folder, title, chunk)?.map(|head| head.damaged).unwrap_or_default())
}

/// Returns the reason why a chunk has no results, as far as it is known.
pub fn why_missing(folder: &Path, title: &Title, chunk: &Chunk) -> String {
    let busy = File::open(title.work(folder, chunk, "lock"))
        .is_ok_and(|lock| matches!(lock.try_lock(), Err(fs::TryLockError::WouldBlock)));
    if busy {
        return "is being scored".into();
    }
    if matches!(content(&title.result(folder, chunk)), Ok(Content::Changed)) {
        return "its results were changed after it was scored".into();
    }
    match fs::read_to_string(title.work(folder, chunk, "failed")) {
        Ok(why) if why.is_empty() => "was started, and the disk was too full to record the result".into(),
        Ok(why) => why,
        Err(_) => "is not scored yet".into(),
    }
}
