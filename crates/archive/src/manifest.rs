// SPDX-License-Identifier: MPL-2.0

//! The plan in a folder: titles with the hashes of their files, and chunks.
//!
//! ```text
//! DIR/manifest.json           the plan
//! DIR/pairing/NAME.json       which frames of a title belong together
//! DIR/chunks/NAME/1.jsonl     results of a chunk
//! DIR/work/NAME/1.…           a chunk being scored, and why scoring failed
//! ```

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use engine::metrics::{Extractor, feature_list};
use engine::model::{Model, ScoreOptions};
use engine::plan::Plan;
use gst::ClockTime;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use score::error::Error;
use score::{self, Kept};

const FILE: &str = "manifest.json";
/// Format version of the manifest and of the chunks' files.
const VERSION: u32 = 3;

/// The plan.
#[derive(Deserialize, Serialize)]
pub struct Manifest {
    version: u32,
    pub titles: Vec<Title>,
}

/// A title of the list.
#[derive(Clone, Deserialize, Serialize)]
pub struct Title {
    pub name: String,
    pub reference: Source,
    pub distorted: Source,
    /// Arguments of `score`, without the files.
    pub options: Vec<String>,
    /// Models with the hashes of their files, and features with those of their options, which a file may be read for.
    pub models: Vec<(String, String)>,
    /// Reason why the title cannot be scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Reason why the title is not cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
    /// How its frames are paired; `None` if that was not examined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairing: Option<Paired>,
    /// Number of frames of the reference; 0 if it is unknown.
    pub frames: u64,
    /// Differences between its videos, as `score` notes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// Damage found in its videos while planning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
    /// Frames before and after a chunk that its scores depend on.
    pub lead_in: usize,
    pub look_ahead: usize,
    pub chunks: Vec<Chunk>,
}

/// How the frames of a title are paired.
#[derive(Clone, Deserialize, Serialize)]
pub struct Paired {
    /// Method that pairs the frames.
    pub method: score::Method,
    /// Seconds by which the distorted frames are late.
    pub offset: f64,
    /// Confidence from the pictures, 0 to 1.
    pub confidence: f64,
    /// Hash of the file that lists all pairs.
    sha256: String,
}

/// An input file.
#[derive(Clone, Default, Deserialize, Serialize)]
pub struct Source {
    pub path: String,
    bytes: u64,
    /// Modification time in nanoseconds since 1970.
    modified: u64,
    sha256: String,
}

/// A unit of work.
#[derive(Clone, Deserialize, Serialize)]
pub struct Chunk {
    /// Number in the title, from 1.
    pub number: usize,
    /// Position in the title; `None` for a whole title.
    pub part: Option<Part>,
}

/// Range of reference times, in nanoseconds, in which neighbouring chunks decode the same frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Window {
    pub from: u64,
    pub to: u64,
}

/// A part of a title. Times are those of the reference, in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Part {
    /// Index of the first frame, and of the one after the last.
    pub frames: (u64, u64),
    /// Time of the first frame.
    pub from: u64,
    /// Time at which the next chunk begins.
    pub to: Option<u64>,
    /// Frames shared with the previous chunk, and with the next.
    pub head: Option<Window>,
    pub tail: Option<Window>,
    /// Tolerance for early timestamps.
    pub slack: u64,
}

impl Part {
    /// Returns true if a frame at this time belongs to the part.
    pub fn has(&self, time: u64) -> bool {
        let time = time + self.slack;
        time >= self.from && self.to.is_none_or(|to| time < to)
    }

    /// Returns the range to decode, beginning earlier by this many nanoseconds than necessary.
    pub fn time_range(&self, earlier: u64) -> score::TimeRange {
        let from = self.head.map_or(0, |head| head.from.saturating_sub(earlier));
        score::TimeRange {
            from: ClockTime::from_nseconds(from),
            to: self.tail.map(|tail| ClockTime::from_nseconds(tail.to)),
            slack: ClockTime::from_nseconds(self.slack),
            seek: true,
        }
    }
}

impl Manifest {
    pub fn new(titles: Vec<Title>) -> Self {
        Self { version: VERSION, titles }
    }

    pub fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(FILE);
        let failed = |why: String| Error::Failed(format!("{}: {why}", path.display()));
        let text = fs::read(&path)
            .map_err(|error| failed(format!("{error}; create it with: hipvmaf archive plan LIST -o DIR")))?;
        let manifest: Self = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
        if manifest.version != VERSION {
            return Err(failed(format!("is of version {}, not {VERSION}; plan again", manifest.version)));
        }
        Ok(manifest)
    }

    /// Returns all chunks in order.
    pub fn chunks(&self) -> impl Iterator<Item = (&Title, &Chunk)> {
        self.titles.iter().flat_map(|title| title.chunks.iter().map(move |chunk| (title, chunk)))
    }

    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(FILE);
        let text = serde_json::to_string_pretty(self)? + "\n";
        replace(&path, text.as_bytes())
            .map_err(|error| Error::Failed(format!("cannot write {}: {error}", path.display())))
    }
}

/// Writes a file so that readers see it complete or not at all.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // Other users may write here, within the umask of the process.
    let mode = fs::Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new().permissions(mode).tempfile_in(folder)?;
    file.write_all(text)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}

impl Title {
    /// Returns the arguments that `score` would get.
    pub fn args(&self, more: &[String]) -> Result<score::Args, Error> {
        // After `--`, names may begin with a dash.
        let files = ["--".to_owned(), self.reference.path.clone(), self.distorted.path.clone()];
        let line = self.options.iter().chain(more).chain(&files);
        score::Args::parse(line.map(Into::into)).map_err(|error| {
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default();
            Error::Usage(format!("{}: {}", self.name, first.trim_start_matches("error: ")))
        })
    }

    /// Writes the pairing of the title's frames to its file.
    pub fn keep(&mut self, folder: &Path, kept: &Kept) -> Result<(), Error> {
        let text = serde_json::to_vec(kept)?;
        let path = self.pairing_file(folder);
        let write = || {
            fs::create_dir_all(path.parent().unwrap_or(folder))?;
            replace(&path, &text)
        };
        write().map_err(|error| Error::Failed(format!("cannot write {}: {error}", path.display())))?;
        let score::Pairing { method, offset, confidence, .. } = kept.pairing;
        self.pairing =
            Some(Paired { method, offset, confidence, sha256: hex(Sha256::new_with_prefix(&text)) });
        Ok(())
    }

    /// Reads the pairing of the title's frames; `None` if the plan has none.
    pub fn kept(&self, folder: &Path) -> Result<Option<Kept>, Error> {
        let Some(paired) = &self.pairing else { return Ok(None) };
        let path = self.pairing_file(folder);
        let text = fs::read(&path)
            .map_err(|error| Error::Failed(format!("{}: {error}; plan again", path.display())))?;
        if hex(Sha256::new_with_prefix(&text)) != paired.sha256 {
            return Err(changed(&path.display().to_string()));
        }
        Ok(Some(serde_json::from_slice(&text)?))
    }

    fn pairing_file(&self, folder: &Path) -> PathBuf {
        folder.join("pairing").join(format!("{}.json", self.name))
    }

    /// Returns the plan of what is computed for each frame.
    pub fn plan(&self) -> Result<Plan, Error> {
        let args = self.args(&[])?;
        let failed = |error: String| Error::Usage(format!("{}: {error}", self.name));
        let models = args.models.iter().map(|name| Model::load(name)).collect::<Result<Vec<_>, _>>();
        let features = self.extractors(&args)?;
        let features: Vec<_> = features.iter().flat_map(|extractor| extractor.features(true)).collect();
        let models = models.map_err(|error| failed(error.to_string()))?;
        Plan::new(models, &features, ScoreOptions::default()).map_err(|error| failed(error.to_string()))
    }

    /// Returns the names of the features that were asked for.
    pub fn features(&self) -> Result<Vec<String>, Error> {
        let extractors = self.extractors(&self.args(&[])?)?;
        let features = extractors.iter().flat_map(|extractor| extractor.features(true));
        Ok(features.map(|feature| feature.key).collect())
    }

    fn extractors(&self, args: &score::Args) -> Result<Vec<Extractor>, Error> {
        let extractors = feature_list::parse(&args.features.join(";"), &[]);
        extractors.map_err(|error| Error::Usage(format!("{}: {error}", self.name)))
    }

    /// Returns the models with the current hashes of their files, and the features with those of their options.
    pub fn hashes(&self, plan: &Plan) -> Result<Vec<(String, String)>, Error> {
        let models = plan.models.iter().map(|planned| &planned.model);
        let models = models.map(|model| (model.name().to_owned(), model.sha256().to_owned()));
        let hash = |extractor: Extractor| {
            (extractor.name().to_owned(), hex(Sha256::new_with_prefix(format!("{extractor:?}"))))
        };
        Ok(models.chain(self.extractors(&self.args(&[])?)?.into_iter().map(hash)).collect())
    }

    /// Returns one hash of everything that the scores of a chunk depend on.
    pub fn key(&self, chunk: &Chunk) -> Result<String, Error> {
        let part = serde_json::to_string(&chunk.part)?;
        let parts = [&self.reference.sha256, &self.distorted.sha256, &part, env!("CARGO_PKG_VERSION")];
        let models = self.models.iter().flat_map(|(name, hash)| [name.as_str(), hash.as_str()]);
        let options = self.options.iter().map(String::as_str);
        let pairing = self.pairing.iter().map(|paired| paired.sha256.as_str());
        let mut hash = Sha256::new();
        for text in parts.into_iter().map(AsRef::as_ref).chain(models).chain(options).chain(pairing) {
            let text: &str = text;
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        Ok(hex(hash))
    }

    /// Returns an error if an input differs from the one that was planned.
    pub fn check_inputs(&self) -> Result<(), Error> {
        self.reference.check()?;
        self.distorted.check()?;
        let now = self.hashes(&self.plan()?)?;
        match self.models.iter().zip(&now).find(|(planned, now)| planned != now) {
            Some(((name, _), _)) => Err(changed(name)),
            None => Ok(()),
        }
    }

    /// Returns the path of a chunk's results.
    pub fn result(&self, folder: &Path, chunk: &Chunk) -> PathBuf {
        folder.join("chunks").join(&self.name).join(format!("{}.jsonl", chunk.number))
    }

    /// Returns the path of a temporary file of a chunk.
    pub fn work(&self, folder: &Path, chunk: &Chunk, what: &str) -> PathBuf {
        folder.join("work").join(&self.name).join(format!("{}.{what}", chunk.number))
    }

    /// Returns the number of reference frames in a chunk; 0 if it is unknown.
    pub fn frames_of(&self, chunk: &Chunk) -> u64 {
        chunk.part.map_or(self.frames, |part| part.frames.1.saturating_sub(part.frames.0))
    }

    /// Returns the name of a chunk for users.
    pub fn chunk_name(&self, chunk: &Chunk) -> String {
        format!("{}/{}", self.name, chunk.number)
    }
}

fn changed(what: &str) -> Error {
    Error::Failed(format!("{what} has changed since it was planned with; plan again"))
}

pub fn hex(hash: Sha256) -> String {
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Source {
    /// Reads the current state of a file.
    pub fn of(path: &Path) -> io::Result<Self> {
        let (bytes, modified) = Self::stat(path)?;
        let mut hash = Sha256::new();
        io::copy(&mut File::open(path)?, &mut hash)?;
        let path = path.to_str().ok_or_else(|| io::Error::other("the path is not UTF-8"))?.to_owned();
        Ok(Self { path, bytes, modified, sha256: hex(hash) })
    }

    /// Returns an entry for a file that was not read.
    pub fn lost(path: &Path) -> Self {
        Self { path: path.to_string_lossy().into(), ..Self::default() }
    }

    fn stat(path: &Path) -> io::Result<(u64, u64)> {
        let about = fs::metadata(path)?;
        if !about.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        let modified = about.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok((about.len(), u64::try_from(modified.as_nanos()).unwrap_or_default()))
    }

    /// Returns an error if the file has changed. Its content is hashed only if its time or size differs.
    pub fn check(&self) -> Result<(), Error> {
        let path = Path::new(&self.path);
        let failed = |error: io::Error| Error::Failed(format!("{}: {error}", self.path));
        if Self::stat(path).map_err(failed)? == (self.bytes, self.modified) {
            return Ok(());
        }
        if Self::of(path).map_err(failed)?.sha256 == self.sha256 { Ok(()) } else { Err(changed(&self.path)) }
    }
}
