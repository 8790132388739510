// SPDX-License-Identifier: MPL-2.0

//! Results files in the schema of libvmaf's own writers (json, xml, csv).
//!
//! Rows are streamed into a file with `.partial` behind the name of the target, which takes the target's name when the
//! results are complete: a reader never sees half a file, and memory does not grow with the stream. Rows that were
//! written are never thrown away: results that cannot be completed stay there with their complete rows and the reason,
//! and so do those of a process that was killed, but for the rows of the last moments. As long as it is written the
//! file is locked, which keeps others from writing it, by whatever path.
//!
//! Devices and pipes get the rows as they come. Nothing can be changed there later: the frame rate is left out, and rows
//! that come after the end have no place.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Read as _, Seek, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engine::model::pool::{Pool, Pooled};
use engine::plan::{Plan, PlannedModel};
use watch::output::Place;

pub use super::super::settings::FileFormat;
use super::exact::LineOf;
use super::message::ScoreState;
use super::provenance::Provenance;
pub use super::rows::{Ending, Format, Heading, Row};

/// A value that a row has besides those of metrics and models.
struct Member {
    name: &'static str,
    /// The value, if the frame has one. Each is in CSV.
    value: fn(&Row) -> Option<serde_json::Value>,
    /// Returns true if JSON and XML have the value, too. They leave out what is the rule.
    is_listed: fn(&Row) -> bool,
}

/// The values of a row besides those of metrics and models, in order.
const MEMBERS: &[Member] = &[
    Member { name: "timestamp", value: |row| Some(row.timestamp?.nseconds().into()), is_listed: |_| true },
    Member {
        name: "running_time",
        value: |row| Some(row.running_time.nseconds().into()),
        is_listed: |_| true,
    },
    Member { name: "time_code", value: |row| Some(row.time_code.as_deref()?.into()), is_listed: |_| true },
    Member {
        name: "state",
        value: |row| Some(row.state.name().into()),
        is_listed: |row| row.state != ScoreState::Scored,
    },
    Member { name: "section", value: |row| Some(row.section.into()), is_listed: |row| row.section > 0 },
    Member { name: "offset", value: |row| Some(row.offset.into()), is_listed: |_| false },
    Member {
        name: "coverage",
        value: |row| Some(format!("{:.6}", row.coverage).into()),
        is_listed: |_| false,
    },
];

/// Columns of a CSV file after [`MEMBERS`]: what is compared.
const STREAMS: &str = "label,reference,distorted,";

/// Name of the only model.
const ONLY_MODEL: &str = "vmaf";

const VERSION: &str = concat!("hipvmaf ", env!("CARGO_PKG_VERSION"));

/// Returns the names of the columns. A model that is the only one is called `vmaf`, as libvmaf and ffmpeg call it unless they
/// are given a name; which one it was is in the provenance.
pub fn columns(plan: &Plan) -> Vec<String> {
    let mut columns = plan.columns.clone();
    if let [PlannedModel { model, column, .. }] = plan.models.as_slice() {
        for name in columns.iter_mut().skip(*column) {
            *name = name.replacen(model.name(), ONLY_MODEL, 1);
        }
    }
    columns
}

impl Ending {
    /// Returns the texts of the application about the results, by the name that they have in them.
    fn said(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let said = [("incomplete", &self.incomplete), ("damaged", &self.damaged)];
        said.into_iter().filter_map(|(name, what)| Some((name, what.as_deref()?)))
    }
}

/// A results file being written.
pub struct Results {
    out: BufWriter<File>,
    path: PathBuf,
    /// The path is a device or a pipe, which is written under its own name.
    stream: bool,
    /// The origin of the scores and the speed are in the file.
    provenance: bool,
    /// The file has another name by now, or is to stay.
    settled: bool,
    format: FileFormat,
    /// Name and pooled values of each column; empty until the first row is due.
    columns: Vec<(String, Pool)>,
    /// Texts of the last columns of all rows of a CSV file: label, reference and distorted video, and provenance.
    of_csv: [String; 4],
    /// The backend at the beginning.
    backend: Vec<(Cow<'static, str>, String)>,
    rows: u64,
    started: Instant,
    /// The time from the start to the last end.
    taken: Duration,
    /// The position of the frame rate, which is written at the end.
    fps_at: u64,
    /// Bytes so far.
    length: u64,
    /// The ends of the last rows that may not have reached the disk, and of some before: on a full disk, rows make room for
    /// the end of the file.
    ends: VecDeque<u64>,
}

/// Bytes before the end of the file within which the ends of rows are known.
const KNOWN: u64 = 1 << 16;

impl Results {
    /// Creates the file, so that a path that cannot be written is known before the first frame. Rows that an earlier run
    /// has left there are kept under another name, which comes as well.
    pub fn create(given: &Path, format: FileFormat, provenance: bool) -> io::Result<(Self, Option<PathBuf>)> {
        let (file, path, kept) = match Place::of(given)? {
            Place::File(path) => {
                let (file, kept) = create_locked(&partial(&path))?;
                (file, Some(path), kept)
            }
            Place::Stream(file) => (file, None, None),
        };
        let results = Self {
            out: BufWriter::new(file),
            stream: path.is_none(),
            path: path.unwrap_or_else(|| given.to_owned()),
            provenance,
            settled: false,
            format,
            columns: vec![],
            of_csv: Default::default(),
            backend: vec![],
            rows: 0,
            started: Instant::now(),
            taken: Duration::ZERO,
            fps_at: 0,
            length: 0,
            ends: VecDeque::new(),
        };
        Ok((results, kept))
    }

    /// Returns the path of the complete file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Nothing was scored yet.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Writes what comes before the first row.
    pub fn begin(&mut self, heading: Heading) -> io::Result<()> {
        let exact = LineOf::Heading(&heading).text()?;
        let Heading { columns, pad, label, reference, distorted, provenance } = heading;
        self.started = Instant::now();
        self.columns = columns.into_iter().map(|name| (name, Pool::default())).collect();
        self.of_csv = [label.clone(), reference.to_string(), distorted.to_string(), provenance.to_string()]
            .map(|text| csv_field(&text));
        self.backend.clone_from(&provenance.backend);
        // Splits the header around the `fps` value, which is patched in at the end.
        let fps = |head: String, [before, after]: [String; 2], rest: String| match self.provenance
            && !self.stream
        {
            true => ((head.len() + before.len()) as u64, head + &before + &after + &rest),
            false => (0, head + &rest),
        };
        let (fps_at, text) = match self.format {
            FileFormat::Json => {
                let side = |format: &Format| serde_json::Value::from_iter(format.fields());
                let (reference, distorted) = (side(&reference), side(&distorted));
                let (pad, label) = (json_string(&pad), json_string(&label));
                let made = match self.provenance {
                    true => format!("\n  \"provenance\": {},", provenance.to_json()),
                    false => String::new(),
                };
                fps(
                    format!("{{\n  \"version\": \"{VERSION}\",\n"),
                    ["  \"fps\": ".into(), format!("{:>FPS_WIDTH$},\n", 0)],
                    format!(
                        "  \"streams\": {{\n    \"pad\": {pad},\n    \"label\": {label},\n    \
                         \"reference\": {reference},\n    \"distorted\": {distorted}\n  }},{made}\n  \
                         \"frames\": ["
                    ),
                )
            }
            FileFormat::Xml => {
                let Format { width, height, .. } = reference;
                let (pad, label) = (xml_text(&pad), xml_text(&label));
                let (reference, distorted) =
                    (xml_attributes(reference.fields()), xml_attributes(distorted.fields()));
                let made = if self.provenance { xml_provenance(&provenance) } else { String::new() };
                fps(
                    format!(
                        "<VMAF version=\"{VERSION}\">\n  \
                         <params qualityWidth=\"{width}\" qualityHeight=\"{height}\" />\n"
                    ),
                    ["  <fyi fps=\"".into(), format!("{:0>FPS_WIDTH$}\" />\n", 0)],
                    format!(
                        "  <streams pad=\"{pad}\" label=\"{label}\">\n    \
                         <reference{reference} />\n    <distorted{distorted} />\n  </streams>\n{made}  <frames>\n"
                    ),
                )
            }
            FileFormat::Csv => {
                let names: String = self.columns.iter().map(|(name, _)| csv_field(name) + ",").collect();
                let made = if self.provenance { "provenance," } else { "" };
                let members: Vec<_> = MEMBERS.iter().map(|member| member.name).collect();
                let members = members.join(",");
                (0, format!("Frame,{names}{members},{STREAMS}{made}\n"))
            }
            FileFormat::Exact => (0, exact),
        };
        self.fps_at = fps_at;
        self.put(&text)
    }

    /// One row: the frame's number, where it is in time, and a value for each column.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        if self.settled {
            self.resume()?;
        }
        let columns = || self.columns.iter().map(|(name, _)| name).zip(&row.values);
        let index = row.index;
        let listed = MEMBERS.iter().filter(|member| (member.is_listed)(row));
        let listed = listed.filter_map(|member| Some((member.name, (member.value)(row)?)));
        let text = match self.format {
            FileFormat::Json => {
                let value = |(name, value): (&String, &f64)| {
                    format!("\n        {}: {}", json_string(name), json_number(*value))
                };
                let values = columns().map(value).collect::<Vec<_>>().join(",");
                let members: String =
                    listed.map(|(name, value)| format!("      \"{name}\": {value},\n")).collect();
                let comma = if self.rows > 0 { "," } else { "" };
                format!(
                    "{comma}\n    {{\n      \"frameNum\": {index},\n{members}      \"metrics\": {{{values}\n      }}\n    }}"
                )
            }
            FileFormat::Xml => {
                let value =
                    |(name, value): (&String, &f64)| format!(" {}=\"{}\"", xml_name(name), number(*value));
                let values: String = columns().map(value).collect();
                format!("    <frame frameNum=\"{index}\"{values}{} />\n", xml_attributes(listed))
            }
            FileFormat::Csv => {
                let values: String = row.values.iter().map(|value| number(*value) + ",").collect();
                let text = |value: serde_json::Value| {
                    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
                };
                let members =
                    MEMBERS.iter().map(|member| (member.value)(row).map(text).unwrap_or_default() + ",");
                let [label, reference, distorted, provenance] = &self.of_csv;
                let made = if self.provenance { format!("{provenance},") } else { String::new() };
                let members: String = members.collect();
                format!("{index},{values}{members}{label},{reference},{distorted},{made}\n")
            }
            FileFormat::Exact => LineOf::Row(row).text()?,
        };
        self.put(&text)?;
        if row.state == ScoreState::Scored {
            for ((_, pool), value) in self.columns.iter_mut().zip(&row.values) {
                pool.push(*value);
            }
        }
        self.rows += 1;
        self.ends.push_back(self.length);
        while self.ends.front().is_some_and(|end| self.length - end > KNOWN) {
            self.ends.pop_front();
        }
        Ok(())
    }

    /// Writes the pooled values and those of the whole stream, and gives the file its name; without a row there is no file.
    /// More rows may come: then it is written anew, with those that it has. Where that fails, [`Results::abandon`] can still
    /// keep what was written.
    pub fn finish(&mut self, ending: &Ending) -> io::Result<()> {
        self.taken = self.started.elapsed();
        if self.rows == 0 {
            self.settled = true;
            self.remove();
            return Ok(());
        }
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = match self.format {
            FileFormat::Json => self.json_end(&mut text, ending),
            FileFormat::Xml => self.xml_end(&mut text, ending),
            FileFormat::Exact => text.write_str(&LineOf::Ending(ending).text()?),
            FileFormat::Csv => {
                let said = ending.said().map(|(name, what)| csv_said(name, what));
                said.into_iter().try_for_each(|line| text.write_str(&line))
            }
        };
        self.put(&text)?;
        self.out.flush()?;
        if !self.stream {
            fill_in(self.out.get_ref(), self.fps())?;
            self.out.get_ref().sync_all()?;
            if ending.incomplete.is_none() {
                fs::rename(self.partial(), &self.path)?;
            }
        }
        self.settled = true;
        Ok(())
    }

    /// Goes on after the end with what there was, in a file beside the complete one, which it takes the place of at the next
    /// end.
    fn resume(&mut self) -> io::Result<()> {
        if self.stream && self.rows > 0 {
            return Err(io::Error::new(io::ErrorKind::NotSeekable, "rows cannot be added to what was sent"));
        }
        if self.stream {
            self.settled = false;
            return Ok(());
        }
        // A file without rows may have got its header since.
        self.out.flush()?;
        let rows = self.ends.back().copied().unwrap_or(self.length);
        let (file, _) = create_locked(&self.partial())?;
        let mut complete = self.out.get_ref();
        complete.seek(SeekFrom::Start(0))?;
        io::copy(&mut complete.take(rows), &mut &file)?;
        self.out = BufWriter::new(file);
        self.length = rows;
        self.settled = false;
        self.set_taken(self.taken);
        Ok(())
    }

    /// The results are complete, or nothing was scored by the end.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// Sets the time that the work took in other places, from which the speed is computed.
    pub fn set_taken(&mut self, taken: Duration) {
        self.started = Instant::now().checked_sub(taken).unwrap_or(self.started);
    }

    /// Writes the rows so far to the disk, so that they outlive the process.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Keeps the complete rows, with the reason why no more follow; the file in which they are. Without a row there is
    /// nothing to keep.
    pub fn abandon(mut self, reason: &str) -> io::Result<Option<PathBuf>> {
        let end = match self.format {
            FileFormat::Json => format!("\n  ],\n  \"incomplete\": {}\n}}\n", json_string(reason)),
            FileFormat::Xml => {
                format!("  </frames>\n  <incomplete reason=\"{}\" />\n</VMAF>\n", xml_text(reason))
            }
            FileFormat::Csv => csv_said("incomplete", reason),
            FileFormat::Exact => String::new(),
        };
        if self.stream {
            // A reader of the rows up to there finds the failure at their end.
            let _ = if self.rows > 0 { self.put(&end).and_then(|()| self.out.flush()) } else { Ok(()) };
            return Ok(None);
        }
        let (partial, mut ends) = (self.partial(), std::mem::take(&mut self.ends));
        let fps = self.fps();
        // The rest of the buffer may not find room, and is given up; only the file counts.
        let _ = self.out.flush();
        let anew = BufWriter::new(self.out.get_ref().try_clone()?);
        let (file, _) = std::mem::replace(&mut self.out, anew).into_parts();
        let file = &file;
        let written = file.metadata()?.len();
        ends.retain(|end| *end <= written);
        let Some(last) = ends.back().copied() else {
            self.rows = 0;
            return Ok(None);
        };
        if close(file, last, &end).is_err() {
            let makes_room = |row: &&u64| **row + end.len() as u64 <= last;
            let row = ends.iter().rev().find(makes_room).or(ends.front()).copied().unwrap_or(last);
            close(file, row, &end)?;
        }
        fill_in(file, fps)?;
        Ok(Some(partial))
    }

    /// Returns the path of the incomplete file.
    pub fn partial(&self) -> PathBuf {
        if self.stream { self.path.clone() } else { partial(&self.path) }
    }

    /// Removes the file without rows, which is of no use.
    fn remove(&self) {
        if !self.stream {
            // A partial file that stays does no harm.
            let _ = fs::remove_file(self.partial());
        }
    }

    fn put(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.length += text.len() as u64;
        Ok(())
    }

    /// Returns the frame rate and its position in the file, if the format has one.
    fn fps(&self) -> Option<(u64, String)> {
        let fps = format!("{:.2}", self.rows as f64 / self.started.elapsed().as_secs_f64().max(1e-6));
        let text = match self.format {
            FileFormat::Xml => format!("{fps:0>FPS_WIDTH$}"),
            _ => format!("{fps:>FPS_WIDTH$}"),
        };
        (self.fps_at > 0).then_some((self.fps_at, text))
    }

    /// Numbers of frames. Which of them the CPU has computed again is of the run, as its speed is.
    fn counts<'a>(&'a self, ending: &'a Ending) -> impl Iterator<Item = (&'a str, u64)> {
        let of_run = |name: &str| ["verified", "wrong"].contains(&name);
        let counts = ending.frames.iter().map(|(name, count)| (name.as_ref(), *count));
        counts.filter(move |(name, _)| self.provenance || !of_run(name))
    }

    fn json_end(&self, text: &mut String, ending: &Ending) -> std::fmt::Result {
        write!(text, "\n  ],\n  \"pooled_metrics\": {{")?;
        for (i, (name, pool)) in self.columns.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(text, "{comma}\n    {}: {{", json_string(name))?;
            for (i, (key, value)) in pooled(pool).enumerate() {
                let comma = if i > 0 { "," } else { "" };
                write!(text, "{comma}\n      \"{key}\": {}", json_number(value))?;
            }
            write!(text, "\n    }}")?;
        }
        write!(text, "\n  }},\n  \"aggregate_metrics\": {{")?;
        for (i, (name, value)) in ending.aggregates.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(text, "{comma}\n    {}: {}", json_string(name), json_number(*value))?;
        }
        // Written if another backend has taken over.
        let backend = serde_json::Value::from_iter(
            ending.backend.iter().map(|(name, value)| (name.as_ref(), value.as_str())),
        );
        let changed = if !self.provenance || ending.backend == self.backend {
            String::new()
        } else {
            format!(",\n  \"backend_at_end\": {backend}")
        };
        let frames = serde_json::Value::from_iter(self.counts(ending));
        let (offset, coverage) = (ending.offset, number(ending.coverage));
        let said = ending.said().map(|(name, what)| format!(",\n  \"{name}\": {}", json_string(what)));
        let said: String = said.collect();
        write!(
            text,
            "\n  }},\n  \"offset\": {offset},\n  \"coverage\": {coverage},\n  \"frame_counts\": {frames}{changed}{said}\n}}\n"
        )
    }

    fn xml_end(&self, text: &mut String, ending: &Ending) -> std::fmt::Result {
        writeln!(text, "  </frames>\n  <pooled_metrics>")?;
        for (name, pool) in &self.columns {
            write!(text, "    <metric name=\"{}\"", xml_text(name))?;
            for (key, value) in pooled(pool) {
                write!(text, " {key}=\"{}\"", number(value))?;
            }
            writeln!(text, " />")?;
        }
        write!(text, "  </pooled_metrics>\n  <aggregate_metrics")?;
        for (name, value) in &ending.aggregates {
            write!(text, " {}=\"{}\"", xml_name(name), number(*value))?;
        }
        let frames = xml_attributes(self.counts(ending).map(|(name, count)| (name, count.into())));
        let (offset, coverage) = (ending.offset, number(ending.coverage));
        writeln!(text, " />\n  <coverage offset=\"{offset}\" coverage=\"{coverage}\"{frames} />")?;
        if self.provenance && ending.backend != self.backend {
            let fields = ending.backend.iter().map(|(name, value)| (name.as_ref(), value.as_str().into()));
            writeln!(text, "  <backend_at_end{} />", xml_attributes(fields))?;
        }
        for (name, what) in ending.said() {
            writeln!(text, "  <{name} reason=\"{}\" />", xml_text(what))?;
        }
        writeln!(text, "</VMAF>")
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        if !self.settled && self.rows == 0 {
            self.remove();
        }
    }
}

/// Returns the name of the results file of a further rendition: that of the first with a label before its extension, and
/// with a number from the second of this label on.
pub fn of_rendition(path: &Path, label: &str, number: u32) -> PathBuf {
    // With `.partial` and numbers behind it, the name still is one that file systems take.
    let room = 230_usize.saturating_sub(path.file_name().map_or(0, |name| name.len()));
    let mut label = label.replace(['/', '\0'], "_");
    label.truncate(label.floor_char_boundary(room));
    if number > 1 {
        label += &format!("-{number}");
    }
    match path.extension() {
        Some(extension) => path.with_extension(format!("{label}.{}", extension.display())),
        None => path.with_extension(label),
    }
}

fn partial(path: &Path) -> PathBuf {
    with_ending(path, ".partial")
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut path = OsString::from(path);
    path.push(ending);
    path.into()
}

/// Makes an empty file that no other process writes as long as it is open. A file of that name is renamed, and its new name
/// returned as well.
fn create_locked(path: &Path) -> io::Result<(File, Option<PathBuf>)> {
    let mut kept = None;
    loop {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let reason = "another element is writing it, which needs a file of its own";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, reason));
            }
            // Not every file system knows locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        // A process that had it locked before may have renamed it in the meantime.
        let (ours, named) = (file.metadata()?, fs::metadata(path));
        if !named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())) {
            continue;
        }
        if !ours.is_file() {
            let reason = format!("{} is no regular file", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        if ours.len() == 0 {
            return Ok((file, kept));
        }
        let free = (1..).map(|number: u32| with_ending(path, &format!(".{number}")));
        if let Some(free) = free.into_iter().find(|free| !free.exists()) {
            fs::rename(path, &free)?;
            kept = Some(free);
        }
    }
}

/// Ends a file with this text, after so many bytes of it.
fn close(mut file: &File, from: u64, end: &str) -> io::Result<()> {
    file.set_len(from)?;
    file.seek(SeekFrom::Start(from))?;
    file.write_all(end.as_bytes())?;
    file.sync_all()
}

/// Puts a text in the place that was kept free for it.
fn fill_in(mut file: &File, text: Option<(u64, String)>) -> io::Result<()> {
    let Some((at, text)) = text else { return Ok(()) };
    file.seek(SeekFrom::Start(at))?;
    file.write_all(text.as_bytes())
}

/// Characters kept free for the frame rate, which is known only at the end.
const FPS_WIDTH: usize = 12;

/// Pooled values with the names of libvmaf's schema.
fn pooled(pool: &Pool) -> impl Iterator<Item = (&'static str, f64)> {
    let named =
        |p: Pooled| [("min", p.min), ("max", p.max), ("mean", p.mean), ("harmonic_mean", p.harmonic_mean)];
    pool.pooled().into_iter().flat_map(named)
}

/// libvmaf prints 6 decimals, and 16 when the fraction starts with more than 5 zeros.
fn number(value: f64) -> String {
    let fraction = value.abs().fract();
    if fraction != 0.0 && fraction < 1e-6 { format!("{value:.16}") } else { format!("{value:.6}") }
}

fn json_number(value: f64) -> String {
    if value.is_finite() { number(value) } else { "null".into() }
}

fn json_string(text: &str) -> serde_json::Value {
    serde_json::Value::from(text)
}

/// Model names become attribute names: characters that XML does not allow there turn into `_`.
fn xml_name(name: &str) -> String {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let name: String = name.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_alphabetic() || c == '_') { name } else { format!("_{name}") }
}

fn xml_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

/// Named values as the attributes of an element.
fn xml_attributes<'a>(fields: impl IntoIterator<Item = (&'a str, serde_json::Value)>) -> String {
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), xml_text);
    fields.into_iter().map(|(name, value)| format!(" {name}=\"{}\"", text(&value))).collect()
}

fn xml_provenance(provenance: &Provenance) -> String {
    let attributes = xml_attributes(provenance.fields().map(|(name, value)| (name, value.into())));
    let model = |(name, hash): &(String, String)| {
        format!("    <model name=\"{}\" sha256=\"{hash}\" />\n", xml_text(name))
    };
    let models: String = provenance.models.iter().map(model).collect();
    let settings = xml_attributes(
        provenance.settings.iter().map(|(name, value)| (name.as_ref(), value.as_str().into())),
    );
    let extra = provenance.extra.iter().flat_map(|(name, lines)| lines.iter().map(move |line| (name, line)));
    let extra = extra
        .map(|(name, line)| format!("    <extra name=\"{}\">{}</extra>\n", xml_text(name), xml_text(line)));
    let extra: String = extra.collect();
    format!("  <provenance{attributes}>\n{models}    <settings{settings} />\n{extra}  </provenance>\n")
}

fn csv_said(name: &str, what: &str) -> String {
    format!("# {name}: {}\n", what.replace('\n', " "))
}

fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::super::provenance::named;
    use engine::session::Totals;
    use gst::ClockTime;

    use super::super::exact;
    use super::*;

    fn heading(columns: &[&str]) -> Heading {
        let format = |width, height, format| Format {
            width,
            height,
            format: String::from(format),
            frame_rate: "25/1".into(),
            colorimetry: "bt709".into(),
        };
        Heading {
            columns: columns.iter().map(|name| name.to_string()).collect(),
            pad: "dist_0".into(),
            label: "my \"720p\", & more".into(),
            reference: format(160, 90, "I420"),
            distorted: format(80, 46, "NV12"),
            provenance: Provenance {
                backend: named(&[("backend", "hip".into()), ("device", "GPU <1>".into())]),
                models: vec![("my model".into(), "ab01".into())],
                settings: named(&[("features", "psnr;ssim".into())]),
                extra: vec![("steps".into(), vec!["crop 4 < 8".into(), "rate".into()])],
            },
        }
    }

    /// A row of 25 frames per second, the first of which carry a time code and do not count.
    fn row(index: u64, values: &[f64]) -> Row {
        Row {
            index,
            timestamp: (index > 0).then(|| ClockTime::from_mseconds(40 * index)),
            running_time: ClockTime::from_mseconds(40 * index),
            time_code: (index == 0).then(|| "10:00:00:00".into()),
            section: 0,
            offset: 80_000_000,
            state: if index == 0 { ScoreState::Aligning } else { ScoreState::Scored },
            coverage: 0.75,
            values: values.to_vec(),
            totals: Totals::default(),
        }
    }

    fn ending(aggregates: &[(&'static str, f64)]) -> Ending {
        Ending {
            aggregates: named(aggregates),
            offset: 80_000_000,
            coverage: 0.5,
            frames: named(&[("scored", 2), ("unpaired", 1), ("aligning", 1)]),
            backend: named(&[("backend", "cpu".into())]),
            incomplete: None,
            damaged: None,
        }
    }

    fn write(format: FileFormat, rows: &[[f64; 2]]) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let (mut results, _) = Results::create(&path, format, true).unwrap();
        results.begin(heading(&["integer_adm2", "my <\"model\">"])).unwrap();
        for (i, values) in rows.iter().enumerate() {
            results.row(&row(i as u64, values)).unwrap();
            assert!(!path.exists(), "visible before it is complete");
        }
        if results.is_empty() {
            drop(results);
        } else {
            results.finish(&ending(&[("apsnr_y", 34.5)])).unwrap();
            drop(results);
        }
        assert!(std::fs::read_dir(folder.path()).unwrap().count() <= 1, "temporary file left behind");
        std::fs::read_to_string(path).ok()
    }

    const ROWS: [[f64; 2]; 2] = [[0.5, 80.25], [1.0, f64::NAN]];

    /// Results that are put together from exact lines are those that were written at once.
    #[test]
    fn exact_lines_make_the_file_of_the_whole() {
        const ROWS: [[f64; 2]; 3] = [[0.1 + 0.2, f64::INFINITY], [1.0 / 3.0, f64::NAN], [-0.0, 5e-324]];
        let lines = write(FileFormat::Exact, &ROWS).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let (mut results, _) = Results::create(&path, FileFormat::Xml, false).unwrap();
        let mut bits = vec![];
        for line in exact::read(lines.as_bytes()) {
            match line.unwrap() {
                exact::Line::Heading(heading) => results.begin(*heading).unwrap(),
                exact::Line::Row(row) => {
                    results.row(&row).unwrap();
                    bits.extend(row.values.iter().map(|value| value.to_bits()));
                }
                exact::Line::Ending(ending) => results.finish(&ending).unwrap(),
            }
        }
        assert_eq!(bits, ROWS.as_flattened().iter().map(|value| value.to_bits()).collect::<Vec<_>>());
        let whole = write(FileFormat::Xml, &ROWS).unwrap();
        let of_run = |line: &&str| {
            !["fps=", "provenance", "<model ", "settings", "<extra", "backend_at"]
                .iter()
                .any(|of| line.contains(of))
        };
        assert!(whole.lines().filter(of_run).eq(std::fs::read_to_string(path).unwrap().lines()));
    }

    #[test]
    fn json_parses_with_libvmafs_members() {
        let json: serde_json::Value = serde_json::from_str(&write(FileFormat::Json, &ROWS).unwrap()).unwrap();
        assert_eq!(json["frames"][1]["frameNum"], 1);
        assert_eq!(json["frames"][0]["metrics"]["my <\"model\">"], 80.25);
        assert!(json["frames"][1]["metrics"]["my <\"model\">"].is_null());
        assert_eq!(json["pooled_metrics"]["integer_adm2"]["mean"], 1.0);
        assert_eq!(json["pooled_metrics"]["integer_adm2"]["min"], 1.0);
        assert!(json["fps"].as_f64().unwrap() > 0.0);
        assert_eq!(json["aggregate_metrics"]["apsnr_y"], 34.5);
        let expected = serde_json::json!({ "width": 80, "height": 46, "format": "NV12", "frame_rate": "25/1", "colorimetry": "bt709" });
        assert_eq!(
            (&json["streams"]["label"], &json["streams"]["distorted"]),
            (&"my \"720p\", & more".into(), &expected)
        );
        assert_eq!((&json["offset"], &json["coverage"]), (&80_000_000.into(), &0.5.into()));
        assert_eq!(
            (&json["frame_counts"]["unpaired"], &json["frame_counts"]["aligning"]),
            (&1.into(), &1.into())
        );
        let made_by = &json["provenance"];
        assert_eq!((&made_by["device"], &made_by["models"]["my model"]), (&"GPU <1>".into(), &"ab01".into()));
        assert_eq!(
            (&made_by["settings"]["features"], &json["backend_at_end"]["backend"]),
            (&"psnr;ssim".into(), &"cpu".into())
        );
        assert_eq!(made_by["extra"], serde_json::json!({"steps": ["crop 4 < 8", "rate"]}));
        let of = |frame: usize, name: &str| json["frames"][frame][name].clone();
        assert_eq!((of(0, "time_code"), of(0, "state")), ("10:00:00:00".into(), "aligning".into()));
        assert_eq!((of(1, "timestamp"), of(1, "running_time")), (40_000_000.into(), 40_000_000.into()));
        assert!(of(0, "timestamp").is_null() && of(1, "state").is_null());
    }

    #[test]
    fn csv_has_a_header_and_a_row_per_frame() {
        let csv = write(FileFormat::Csv, &ROWS).unwrap();
        let made_by = heading(&[]).provenance.to_string();
        assert!(made_by.ends_with("sha256=ab01; features=psnr;ssim; steps=crop 4 < 8 | rate;"), "{made_by}");
        assert!(made_by.contains("backend=hip; device=GPU <1>; my model "));
        let what = format!(
            "0,80000000,0.750000,\"my \"\"720p\"\", & more\",160x90 I420 25/1 bt709,80x46 NV12 25/1 bt709,{made_by},"
        );
        assert_eq!(
            csv,
            format!(
                "Frame,integer_adm2,\"my <\"\"model\"\">\",timestamp,running_time,time_code,state,section,offset,coverage,\
                 label,reference,distorted,provenance,\n\
                 0,0.500000,80.250000,,0,10:00:00:00,aligning,{what}\n\
                 1,1.000000,NaN,40000000,40000000,,scored,{what}\n"
            )
        );
    }

    #[test]
    fn xml_escapes_what_users_name() {
        let xml = write(FileFormat::Xml, &ROWS).unwrap();
        assert!(xml.contains("<params qualityWidth=\"160\" qualityHeight=\"90\" />"));
        assert!(xml.contains(
            "<frame frameNum=\"1\" integer_adm2=\"1.000000\" my___model__=\"NaN\" timestamp=\"40000000\" running_time=\"40000000\" />"
        ));
        assert!(xml.contains(
            "<streams pad=\"dist_0\" label=\"my &quot;720p&quot;, &amp; more\">\n    <reference width=\"160\""
        ));
        assert!(
            xml.contains("<coverage offset=\"80000000\" coverage=\"0.500000\" scored=\"2\" unpaired=\"1\"")
        );
        for said in [
            "<provenance version=\"",
            " backend=\"hip\" device=\"GPU &lt;1>\">\n    <model name=\"my model\" sha256=\"ab01\" />\n",
            "    <settings features=\"psnr;ssim\" />\n    <extra name=\"steps\">crop 4 &lt; 8</extra>\n",
            "  <backend_at_end backend=\"cpu\" />\n</VMAF>\n",
        ] {
            assert!(xml.contains(said), "{said}\nis not in\n{xml}");
        }
        assert!(xml.contains("<aggregate_metrics apsnr_y=\"34.500000\" />"));
        assert!(xml.contains("<metric name=\"my &lt;&quot;model&quot;>\" min="));
    }

    /// After a seek. The file is complete at each end, and has the name in between too.
    #[test]
    fn rows_after_the_end_are_added() {
        use FileFormat::{Csv, Exact, Json, Xml};
        for format in [Json, Xml, Csv, Exact] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("results");
            let names = || std::fs::read_dir(folder.path()).unwrap().count();
            let read = || std::fs::read_to_string(&path).unwrap();
            let create = || Results::create(&path, format, false).unwrap().0;
            let add = |results: &mut Results, rows: std::ops::Range<u64>| {
                rows.for_each(|i| results.row(&Row { section: 1, ..row(i, &[0.5, i as f64]) }).unwrap());
            };
            let mut whole = create();
            whole.begin(heading(&["integer_adm2", "vmaf"])).unwrap();
            add(&mut whole, 0..9);
            whole.finish(&ending(&[])).unwrap();
            let expected = read();
            std::fs::remove_file(&path).unwrap();
            // Nothing was scored at the first end.
            let mut parts = create();
            parts.finish(&ending(&[])).unwrap();
            assert_eq!(names(), 0);
            parts.begin(heading(&["integer_adm2", "vmaf"])).unwrap();
            for end in [3, 6, 9] {
                add(&mut parts, end - 3..end - 1);
                assert_eq!(names(), if end == 3 { 1 } else { 2 });
                add(&mut parts, end - 1..end);
                parts.finish(&ending(&[])).unwrap();
                assert_eq!((names(), parts.is_settled()), (1, true));
            }
            assert_eq!(read(), expected, "{format:?}");
            drop(parts);
            assert_eq!(read(), expected);
        }
    }

    #[test]
    fn nothing_is_left_of_a_stream_without_frames_or_with_an_error() {
        assert_eq!(write(FileFormat::Json, &[]), None);
        let folder = tempfile::tempdir().unwrap();
        drop(Results::create(&folder.path().join("results"), FileFormat::Csv, true).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// The rows of a file whose results could not be completed, as a reader of the format sees them.
    fn abandoned(format: FileFormat, limit: Option<u64>) -> (String, u64) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let (mut results, _) = Results::create(&path, format, true).unwrap();
        results.begin(heading(&["integer_adm2", "vmaf"])).unwrap();
        for i in 0..1000 {
            results.row(&row(i, &[0.5, i as f64])).unwrap();
        }
        if let Some(limit) = limit {
            // A full disk truncates the file anywhere, and nothing follows.
            results.out.flush().unwrap();
            results.out.get_ref().set_len(limit).unwrap();
        }
        let partial = results.abandon("the disk is \"full\"").unwrap().unwrap();
        assert!(!path.exists() && partial.to_str().unwrap().ends_with("/results.partial"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "temporary file left behind");
        let text = std::fs::read_to_string(partial).unwrap();
        let rows = text.matches(match format {
            FileFormat::Json => "frameNum\"",
            FileFormat::Xml => "<frame ",
            _ => ",0.500000,",
        });
        let rows = rows.count() as u64;
        (text, rows)
    }

    #[test]
    fn results_that_are_cut_off_keep_their_complete_rows_and_say_why() {
        for format in [FileFormat::Json, FileFormat::Xml, FileFormat::Csv] {
            let (text, rows) = abandoned(format, None);
            assert_eq!(rows, 1000, "{format:?}");
            for limit in [text.len() as u64 - 100, text.len() as u64 - 10_000] {
                let (text, rows) = abandoned(format, Some(limit));
                assert!((500..1000).contains(&rows), "{format:?}: {rows}");
                match format {
                    FileFormat::Json => {
                        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
                        assert_eq!(json["frames"].as_array().unwrap().len() as u64, rows);
                        assert_eq!(json["incomplete"], "the disk is \"full\"");
                    }
                    FileFormat::Xml => {
                        assert!(text.ends_with(
                            " />\n  </frames>\n  <incomplete reason=\"the disk is &quot;full&quot;\" />\n</VMAF>\n"
                        ));
                    }
                    _ => assert!(text.ends_with(",\n# incomplete: the disk is \"full\"\n")),
                }
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let (results, _) = Results::create(&folder.path().join("results"), FileFormat::Csv, true).unwrap();
        assert_eq!(results.abandon("nothing came").unwrap(), None);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn rows_of_a_run_that_did_not_end_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.csv");
        let create = || Results::create(&path, FileFormat::Csv, true).unwrap();
        for run in 0..3 {
            let (mut results, kept) = create();
            let name = |number| folder.path().join(format!("results.csv.partial.{number}"));
            assert_eq!(kept, (run > 0).then(|| name(run)));
            results.begin(heading(&["vmaf"])).unwrap();
            results.row(&row(run, &[50.0])).unwrap();
            results.flush().unwrap();
            if run > 0 {
                let text = fs::read_to_string(name(run)).unwrap();
                assert!(
                    text.lines().nth(1).unwrap().starts_with(&format!("{},50.000000,", run - 1)),
                    "{text}"
                );
            }
            // A killed process leaves the file as it is.
            results.settled = true;
        }
        let (mut results, _) = create();
        results.begin(heading(&["vmaf"])).unwrap();
        results.row(&row(0, &[50.0])).unwrap();
        results.finish(&ending(&[])).unwrap();
        assert!(path.exists() && !results.partial().exists());
    }

    #[test]
    fn a_file_is_written_by_one_at_a_time_whatever_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.csv");
        let other = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &other).unwrap();
        let (results, _) = Results::create(&path, FileFormat::Csv, true).unwrap();
        for path in [path.clone(), folder.path().join("./results.csv"), other.join("results.csv")] {
            let err = Results::create(&path, FileFormat::Csv, true).err().unwrap();
            assert_eq!(err.kind(), io::ErrorKind::ResourceBusy, "{}", path.display());
        }
        drop(results);
        Results::create(&path, FileFormat::Csv, true).unwrap();
    }

    #[test]
    fn numbers_print_as_libvmaf_prints_them() {
        assert_eq!(number(83.856284000421), "83.856284");
        assert_eq!(number(3.4e-7), "0.0000003400000000");
        assert_eq!(number(100.0), "100.000000");
        assert_eq!(number(-1.5), "-1.500000");
    }
}
