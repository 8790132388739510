// SPDX-License-Identifier: MPL-2.0

//! One chunk: scored as `score` does, into a file that is there as a whole or not at all.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use gst::ClockTime;
use gsthipvmaf::exact::{self, Line};
use serde::{Deserialize, Serialize};

use super::manifest::{Chunk, Title};
use super::seam::{Seam, Tap};
use score::command::{self, Decided, Prepared};
use score::error::Error;
use score::{self, Outcome};

/// The first line of a chunk's file; those of the element follow.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Head {
    /// What it was made of.
    pub key: String,
    /// How long it took, in seconds.
    pub taken: f64,
    /// From how much earlier on it was decoded than need be, in seconds.
    pub earlier: f64,
    /// Reference frames before the chunk, and of it.
    pub before: u64,
    pub own: u64,
    /// What it has in common with its neighbours.
    pub head: Seam,
    pub tail: Seam,
    /// The format changes on the way.
    pub changed: bool,
    /// What is damaged in the videos.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
}

/// What a chunk's file has.
pub struct Scored {
    pub head: Head,
    file: BufReader<File>,
}

impl Scored {
    /// The results of a chunk, if there are any that are complete and of what was planned.
    pub fn open(folder: &Path, title: &Title, chunk: &Chunk) -> Result<Option<Self>, Error> {
        let path = title.result(folder, chunk);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::Failed(format!("{}: {error}", path.display()))),
        };
        if !is_ended(&mut file)? {
            return Ok(None);
        }
        let mut file = BufReader::new(file);
        let mut line = String::new();
        file.read_line(&mut line)?;
        let head = serde_json::from_str::<Head>(&line).ok();
        let key = title.key(chunk)?;
        Ok(head.filter(|head| head.key == key).map(|head| Self { head, file }))
    }

    /// What the element has written.
    pub fn lines(self) -> impl Iterator<Item = io::Result<Line>> {
        exact::read(self.file)
    }
}

/// A file is as it was written: it has its last line.
fn is_ended(file: &mut File) -> io::Result<bool> {
    const LAST: u64 = 1 << 16;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST)))?;
    let mut end = vec![];
    io::Read::read_to_end(file, &mut end)?;
    file.seek(SeekFrom::Start(0))?;
    let last = end.strip_suffix(b"\n").and_then(|end| end.rsplit(|byte| *byte == b'\n').next());
    Ok(last.is_some_and(|line| line.starts_with(b"{\"ending\":") && line.ends_with(b"}")))
}

/// Where and how a chunk is scored, which its scores do not depend on.
pub struct How {
    /// Arguments of `score`.
    pub options: Vec<String>,
    /// From how much earlier on to decode than need be, in seconds.
    pub earlier: f64,
}

/// What came of it.
pub enum Came {
    /// It is there.
    Done,
    /// It was there.
    Valid,
    /// A signal has come before.
    Interrupted(i32),
}

/// Scores a chunk unless it is there. Others that want to score it at a time wait for it.
pub fn run(folder: &Path, title: &Title, chunk: &Chunk, how: &How) -> Result<Came, Error> {
    let failed = |error: io::Error| Error::Failed(format!("cannot write into {}: {error}", folder.display()));
    for path in [title.result(folder, chunk), title.work(folder, chunk, "lock")] {
        path.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
    }
    let lock = File::create(title.work(folder, chunk, "lock")).map_err(failed)?;
    // Not every file system knows locks. Without them a chunk may be scored twice at a time, each in files of its own.
    let own = match lock.lock() {
        Ok(()) => String::new(),
        Err(_) => format!("{:016x}.", RandomState::new().hash_one(std::process::id())),
    };
    let why = title.work(folder, chunk, "failed");
    // What cannot be noted is printed at least.
    let note = |text: String| fs::write(&why, text).unwrap_or_default();
    // All that is left of a process that is killed, or of a machine that goes.
    note(format!(
        "was begun by process {} on {}, which has not ended it",
        std::process::id(),
        glib::host_name()
    ));
    let files = Files::of(folder, title, chunk, &own);
    // Of a process that was killed.
    files.remove();
    let came = score_missing(folder, title, chunk, how, &files);
    // What is not complete is of no use, and there may be no room for it.
    files.remove();
    match &came {
        Ok(_) => {
            let _ = fs::remove_file(why);
        }
        Err(error) => note(error.to_string()),
    }
    came
}

/// Files of a chunk that is being scored.
struct Files {
    /// What the element writes, and what it calls that until it is complete.
    rows: PathBuf,
    partial: PathBuf,
    /// The chunk's file.
    result: PathBuf,
}

impl Files {
    /// `own` is in their names where others may write at a time.
    fn of(folder: &Path, title: &Title, chunk: &Chunk, own: &str) -> Self {
        let of = |what: &str| title.work(folder, chunk, &format!("{own}{what}"));
        Self { rows: of("rows"), partial: of("rows.partial"), result: of("result") }
    }

    fn remove(&self) {
        for file in [&self.rows, &self.partial, &self.result] {
            // Most are not there.
            let _ = fs::remove_file(file);
        }
    }
}

fn score_missing(
    folder: &Path,
    title: &Title,
    chunk: &Chunk,
    how: &How,
    files: &Files,
) -> Result<Came, Error> {
    title.check_inputs()?;
    if how.earlier <= 0.0 && Scored::open(folder, title, chunk)?.is_some() {
        return Ok(Came::Valid);
    }
    score(folder, title, chunk, how, files)
}

fn score(folder: &Path, title: &Title, chunk: &Chunk, how: &How, files: &Files) -> Result<Came, Error> {
    let started = Instant::now();
    let args = title.args(&how.options)?;
    let kept = title.kept(folder)?;
    let decided = kept.as_ref().map(|kept| Decided { kept, in_part: chunk.part.is_some() });
    let Prepared { mut job, checked, .. } = command::prepare_as(&args, decided)?;
    if args.strict {
        command::tell(&checked.findings, true)?;
    }
    job.results = Some(files.rows.clone());
    job.properties.push(("results-format".into(), "exact".into()));
    let tap = Tap::default();
    if let Some(part) = chunk.part {
        let earlier = (how.earlier * 1e9) as u64;
        let span = part.span(earlier);
        job.treatments.iter_mut().chain([&mut job.treatment]).for_each(|of| of.span = Some(span));
        if let Some(kept) = &kept {
            kept.apply_part(&mut job, span.from.nseconds(), span.to.map(ClockTime::nseconds));
        }
    }
    let prepare = |element: &gst::Element| chunk.part.iter().for_each(|part| tap.watch(element, *part));
    let outcome = score::score_with(&job, &prepare, &mut |_| {})?;
    if let Some(signal) = outcome.signal {
        return Ok(Came::Interrupted(signal));
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
            return Err("it has other frames than when the files were looked at".into());
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
        let mut out = BufWriter::new(File::create(&files.result)?);
        out.write_all((serde_json::to_string(&head)? + "\n").as_bytes())?;
        io::copy(&mut lines, &mut out)?;
        out.flush()?;
        out.get_ref().sync_all()?;
        fs::rename(&files.result, &result)?;
        File::open(result.parent().unwrap_or(folder))?.sync_all()
    };
    write().map_err(|error| Error::Failed(format!("cannot write {}: {error}", result.display())))?;
    Ok(Came::Done)
}

/// What is damaged in the videos of a chunk: of a part, what is known of the whole title goes first.
fn damaged(title: &Title, chunk: &Chunk, outcome: &Outcome) -> Vec<String> {
    let planned = if chunk.part.is_some() { &title.damaged[..] } else { &[] };
    let known = |video: &str| planned.iter().any(|line| line.starts_with(&format!("{video}: ")));
    let found = outcome.damaged.iter().filter(|(video, _)| !known(video));
    planned.iter().cloned().chain(found.map(|(video, text)| format!("{video}: {text}"))).collect()
}

/// What is damaged in the videos of a chunk that is there.
pub fn damage(folder: &Path, title: &Title, chunk: &Chunk) -> Result<Vec<String>, Error> {
    Ok(Scored::open(folder, title, chunk)?.map(|scored| scored.head.damaged).unwrap_or_default())
}

/// Why a chunk is not there, as far as that is known.
pub fn why_missing(folder: &Path, title: &Title, chunk: &Chunk) -> String {
    let busy = File::open(title.work(folder, chunk, "lock"))
        .is_ok_and(|lock| matches!(lock.try_lock(), Err(fs::TryLockError::WouldBlock)));
    if busy {
        return "is being scored".into();
    }
    match fs::read_to_string(title.work(folder, chunk, "failed")) {
        Ok(why) if why.is_empty() => "was begun, and there was no room to note what came of it".into(),
        Ok(why) => why,
        Err(_) => "is not scored yet".into(),
    }
}
