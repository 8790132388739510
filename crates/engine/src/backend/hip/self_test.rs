// SPDX-License-Identifier: MPL-2.0

//! Whether a GPU computes what the CPU does, found out before it scores anything.
//!
//! Backends agree in every sum to the last bit, so a driver that loses launches, misreads tables or compiles wrong code
//! shows as soon as the kernels of a plan run on a few small pictures. What came of it is kept in the user's cache folder
//! by all that it depends on, so that only the first start pays for it: `hipvmaf/self-test/` below `$XDG_CACHE_HOME`, or
//! below `.cache` in the home folder. `HIPVMAF_SELF_TEST=always` tests once in each process whatever is known, and
//! `never` trusts every GPU.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gpu::Device;
use serde::{Deserialize, Serialize};

use super::backend::Hip;
use super::metric::{Overlap, Setup};
use super::{METRICS, images};
use crate::backend::cpu::Cpu;
use crate::backend::known::{self, Known};
use crate::backend::{Backend, BackendError};
use crate::frame::Geometry;
use crate::metrics::{Difference, FrameSums, Work};
use crate::scale::Scaling;

/// How a GPU has proven itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelfTest {
    /// It was not asked to.
    Skipped,
    /// It has passed the test, in this process.
    Passed,
    /// It has passed the test before, with this driver and this build.
    PassedBefore,
}

impl SelfTest {
    /// In words, for logs and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Passed => "passed",
            Self::PassedBefore => "passed before",
        }
    }
}

/// What a GPU has computed in another way than the CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error(
    "{device} failed its self-test and is not used: {difference}, in frame {frame} of the {picture} picture (kernels: {}); \
     HIPVMAF_SELF_TEST=always tests it again",
    .kernels.join(", ")
)]
pub struct SelfTestFailure {
    /// The GPU, and what drives it.
    pub device: String,
    /// Where the sums differ.
    pub difference: Difference,
    /// The files in `kernels/` that the metric takes kernels of.
    pub kernels: Vec<String>,
    /// Which of the known pictures it was.
    pub picture: String,
    /// Number of the frame, from 0.
    pub frame: usize,
}

/// All that the outcome of a test depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Key {
    device: String,
    /// The library, and the versions of driver and runtime.
    runtime: String,
    /// Version of this crate, and a hash of its kernels.
    build: String,
    /// The code objects that are wanted, if not the best.
    code: String,
    /// Whether graphs are used.
    graphs: String,
    /// What is computed, of pictures of which kind.
    work: String,
}

impl Key {
    fn new(
        device: &Device,
        work: &Work,
        geometry: Geometry,
        overlap: Overlap,
        renditions: &[Option<Scaling>],
    ) -> Self {
        let variable = |name| std::env::var(name).unwrap_or_default();
        let methods: Vec<_> = renditions.iter().flatten().map(|scaling| scaling.method()).collect();
        let (depth, subsampled) = (geometry.depth.bits(), geometry.subsampled());
        let several = renditions.len() > 1;
        Self {
            device: device.info().to_string(),
            runtime: device.info().runtime(),
            build: format!("{} {:016x}", env!("CARGO_PKG_VERSION"), images::hash()),
            code: variable("HIPVMAF_GPU_CODE"),
            graphs: variable("HIPVMAF_GRAPHS"),
            work: format!("{work:?} {depth} {subsampled:?} {several} {overlap:?} {methods:?}"),
        }
    }

    /// The file for the outcome in a folder.
    fn file(&self, folder: &Path) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        folder.join(format!("{:016x}.json", hasher.finish()))
    }
}

/// What is kept of a test.
#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(flatten)]
    key: Key,
    /// What was wrong; nothing where the test was passed.
    failure: Option<Box<SelfTestFailure>>,
}

/// What came of a test.
type Outcome = Result<(), Box<SelfTestFailure>>;
/// What is known of a GPU.
type Verdict = Result<SelfTest, Box<SelfTestFailure>>;

/// The folder that outcomes are kept in.
fn folder() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("hipvmaf/self-test"))
}

/// The outcome that was kept, if there is one.
fn recall(key: &Key) -> Option<Outcome> {
    let text = fs::read(key.file(&folder()?)).ok()?;
    let record: Record = serde_json::from_slice(&text).ok()?;
    (record.key == *key).then(|| record.failure.map_or(Ok(()), Err))
}

/// Keeps an outcome. Where that cannot be done, the next process tests again.
fn keep(key: &Key, outcome: &Outcome) -> io::Result<()> {
    let folder = folder().ok_or(io::ErrorKind::NotFound)?;
    fs::create_dir_all(&folder)?;
    let record = Record { key: key.clone(), failure: outcome.clone().err() };
    // Others see all of it or nothing.
    let mut file = tempfile::NamedTempFile::new_in(&folder)?;
    file.write_all(&serde_json::to_vec_pretty(&record)?)?;
    file.persist(key.file(&folder))?;
    Ok(())
}

/// Has the GPU prove itself for this work, unless it has before.
pub fn pass(
    device: &Arc<Device>,
    work: &Work,
    geometry: Geometry,
    overlap: Overlap,
    renditions: &[Option<Scaling>],
) -> Result<SelfTest, BackendError> {
    /// What this process knows. Locked while a GPU is tested: others who want it for the same work wait.
    static KNOWN: Mutex<Option<HashMap<Key, Verdict>>> = Mutex::new(None);
    let wanted = std::env::var("HIPVMAF_SELF_TEST").unwrap_or_default();
    if wanted == "never" || renditions.is_empty() {
        return Ok(SelfTest::Skipped);
    }
    let key = Key::new(device, work, geometry, overlap, renditions);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if let Some(verdict) = known.get(&key) {
        return Ok(verdict.clone()?);
    }
    let recalled = if wanted == "always" { None } else { recall(&key) };
    let verdict = match recalled {
        Some(outcome) => outcome.map(|()| SelfTest::PassedBefore),
        None => {
            let outcome = test(device, work, geometry, overlap, renditions)?;
            let _ = keep(&key, &outcome);
            outcome.map(|()| SelfTest::Passed)
        }
    };
    known.insert(key, verdict.clone());
    Ok(verdict?)
}

/// Computes the known pictures on the GPU and on the CPU.
fn test(
    device: &Arc<Device>,
    work: &Work,
    geometry: Geometry,
    overlap: Overlap,
    renditions: &[Option<Scaling>],
) -> Result<Outcome, BackendError> {
    for kind in known::KNOWN {
        // Few metrics need pictures that are larger.
        let suits = |scale: &usize| work.check(known::geometry(kind, *scale, geometry)).is_ok();
        let Some(scale) = [1, 2, 4].into_iter().find(suits) else { continue };
        let clip = Known::new(kind, scale, geometry, work.lags() + 1, renditions);
        let mut cpu = Cpu::new(1)?;
        cpu.prepare(work, clip.geometry(), clip.renditions())?;
        let mut hip = Hip::untested(device, work, clip.geometry(), overlap, clip.renditions())?;
        let (expected, got) = (clip.sums(&mut cpu)?, clip.sums(&mut hip)?);
        let differing = |(expected, got): (&FrameSums, &FrameSums)| expected.difference(got);
        let pairs = expected.iter().zip(&got);
        for (frame, (expected, got)) in pairs.enumerate() {
            let Some(difference) = expected.iter().zip(got).find_map(differing) else { continue };
            let setup = Setup {
                device,
                work,
                geometry: clip.geometry(),
                renditions: clip.renditions().len(),
                overlap,
            };
            return Ok(Err(Box::new(SelfTestFailure {
                device: format!("{} with {}", device.info(), device.info().runtime()),
                kernels: kernels(&difference.metric, &setup),
                difference,
                picture: kind.name.into(),
                frame,
            })));
        }
    }
    Ok(Ok(()))
}

/// The files that a metric takes kernels of.
fn kernels(metric: &str, setup: &Setup<'_>) -> Vec<String> {
    let metric = METRICS.iter().find(|registration| registration.name == metric);
    let files = metric.map_or(vec![], |metric| (metric.modules)(setup));
    files.into_iter().map(String::from).collect()
}
