// SPDX-License-Identifier: MPL-2.0

//! What is to be done, as `plan` has written it down: titles with the hashes of their files, and chunks.
//!
//! ```text
//! DIR/manifest.json           the plan
//! DIR/pairing/NAME.json       which frames of a title belong together
//! DIR/chunks/NAME/1.jsonl     what is scored
//! DIR/work/NAME/1.…           what is being scored, and why it could not be
//! ```

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use engine::metrics::feature_list;
use engine::model::{Model, ScoreOptions};
use engine::plan::Plan;
use gst::ClockTime;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::seam::Window;
use score::error::Error;
use score::{self, Kept};

const FILE: &str = "manifest.json";
/// Of the manifest and of the chunks' files.
const VERSION: u32 = 2;

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
    /// Arguments of `score`, but for the files.
    pub options: Vec<String>,
    /// Models by the hash of their files.
    pub models: Vec<(String, String)>,
    /// Why it cannot be scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Why it is not cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
    /// How its frames are paired, where that was looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairing: Option<Paired>,
    /// What is damaged in its videos, as far as they were read for the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
    /// Frames before and behind a chunk that its scores depend on.
    pub lead_in: usize,
    pub look_ahead: usize,
    pub chunks: Vec<Chunk>,
}

/// How the frames of a title are paired.
#[derive(Clone, Deserialize, Serialize)]
pub struct Paired {
    /// By what.
    pub method: score::Method,
    /// By how many seconds the distorted frames are late.
    pub offset: f64,
    /// How sure the pictures are of it, from 0 to 1.
    pub confidence: f64,
    /// Of the file that has all of it.
    sha256: String,
}

/// An input file.
#[derive(Clone, Default, Deserialize, Serialize)]
pub struct Source {
    pub path: String,
    bytes: u64,
    /// Nanoseconds since 1970.
    modified: u64,
    sha256: String,
}

/// What is scored at a time.
#[derive(Clone, Deserialize, Serialize)]
pub struct Chunk {
    /// From 1.
    pub number: usize,
    /// Where it is in the title; nothing if it is the whole title.
    pub part: Option<Part>,
}

/// A part of a title. Times are those of the reference, in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Part {
    /// The first frame, and the one behind the last.
    pub frames: (u64, u64),
    /// Where the first frame begins.
    pub from: u64,
    /// Where the next chunk begins.
    pub to: Option<u64>,
    /// What it has in common with the chunk before, and with the next.
    pub head: Option<Window>,
    pub tail: Option<Window>,
    /// By how much time stamps may be earlier than they should be.
    pub slack: u64,
}

impl Part {
    /// A frame of this time belongs to the part.
    pub fn has(&self, time: u64) -> bool {
        let time = time + self.slack;
        time >= self.from && self.to.is_none_or(|to| time < to)
    }

    /// What has to be decoded, from so much earlier on than need be.
    pub fn span(&self, earlier: u64) -> score::Span {
        let from = self.head.map_or(0, |head| head.from.saturating_sub(earlier));
        score::Span {
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
            .map_err(|error| failed(format!("{error}; hipvmaf archive plan LIST -o DIR makes it")))?;
        let manifest: Self = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
        if manifest.version != VERSION {
            return Err(failed(format!("is of version {}, not {VERSION}; plan again", manifest.version)));
        }
        Ok(manifest)
    }

    /// All chunks in their order.
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

/// Writes a file that others see as a whole or not at all.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // Others may work on it, as far as the mask of the process lets them.
    let mode = fs::Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new().permissions(mode).tempfile_in(folder)?;
    file.write_all(text)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}

impl Title {
    /// What `score` would be given.
    pub fn args(&self, more: &[String]) -> Result<score::Args, Error> {
        // Names that begin with a dash are no options.
        let files = ["--".to_owned(), self.reference.path.clone(), self.distorted.path.clone()];
        let line = self.options.iter().chain(more).chain(&files);
        score::Args::parse(line.map(Into::into)).map_err(|error| {
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default();
            Error::Usage(format!("{}: {}", self.name, first.trim_start_matches("error: ")))
        })
    }

    /// Writes down how its frames are paired.
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

    /// Reads how its frames are paired, where that was written down.
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

    /// What is computed of each frame.
    pub fn plan(&self) -> Result<Plan, Error> {
        let args = self.args(&[])?;
        let failed = |error: String| Error::Usage(format!("{}: {error}", self.name));
        let models = args.models.iter().map(|name| Model::load(name)).collect::<Result<Vec<_>, _>>();
        let features = feature_list::parse(&args.features.join(";"), &[]);
        let features = features.map_err(|error| failed(error.to_string()))?;
        let features: Vec<_> = features.iter().flat_map(|extractor| extractor.features(true)).collect();
        let models = models.map_err(|error| failed(error.to_string()))?;
        Plan::new(models, &features, ScoreOptions::default()).map_err(|error| failed(error.to_string()))
    }

    /// Models by the hash of their files, as they are now.
    pub fn hashes(plan: &Plan) -> Vec<(String, String)> {
        let models = plan.models.iter().map(|planned| &planned.model);
        models.map(|model| (model.name().to_owned(), model.sha256().to_owned())).collect()
    }

    /// What the scores of a chunk depend on, in one hash.
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

    /// Refuses inputs that are not those that were planned with.
    pub fn check_inputs(&self) -> Result<(), Error> {
        self.reference.check()?;
        self.distorted.check()?;
        let now = Self::hashes(&self.plan()?);
        match self.models.iter().zip(&now).find(|(planned, now)| planned != now) {
            Some(((name, _), _)) => Err(changed(name)),
            None => Ok(()),
        }
    }

    /// Where the results of a chunk are.
    pub fn result(&self, folder: &Path, chunk: &Chunk) -> PathBuf {
        folder.join("chunks").join(&self.name).join(format!("{}.jsonl", chunk.number))
    }

    /// Where what is of a chunk in work is.
    pub fn work(&self, folder: &Path, chunk: &Chunk, what: &str) -> PathBuf {
        folder.join("work").join(&self.name).join(format!("{}.{what}", chunk.number))
    }

    /// What users call a chunk.
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
    /// A file as it is now.
    pub fn of(path: &Path) -> io::Result<Self> {
        let (bytes, modified) = Self::look(path)?;
        let mut hash = Sha256::new();
        io::copy(&mut File::open(path)?, &mut hash)?;
        let path = path.to_str().ok_or_else(|| io::Error::other("the path is not UTF-8"))?.to_owned();
        Ok(Self { path, bytes, modified, sha256: hex(hash) })
    }

    /// A file that cannot be read.
    pub fn lost(path: &Path) -> Self {
        Self { path: path.to_string_lossy().into(), ..Self::default() }
    }

    fn look(path: &Path) -> io::Result<(u64, u64)> {
        let about = fs::metadata(path)?;
        if !about.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        let modified = about.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok((about.len(), u64::try_from(modified.as_nanos()).unwrap_or_default()))
    }

    /// Refuses another file of the same name. It is read for that only if its time or size says that it may be another.
    pub fn check(&self) -> Result<(), Error> {
        let path = Path::new(&self.path);
        let failed = |error: io::Error| Error::Failed(format!("{}: {error}", self.path));
        if Self::look(path).map_err(failed)? == (self.bytes, self.modified) {
            return Ok(());
        }
        if Self::of(path).map_err(failed)?.sha256 == self.sha256 { Ok(()) } else { Err(changed(&self.path)) }
    }
}
