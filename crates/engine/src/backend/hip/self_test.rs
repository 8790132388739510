// SPDX-License-Identifier: MPL-2.0

//! The self-test: before a GPU is used, it must reproduce the CPU's sums of small pictures.
//!
//! Backends agree in every sum to the last bit. So a driver that loses launches, misreads tables or compiles wrong code
//! is detected when the kernels of a plan run on a few small pictures. The result is stored in the user's cache folder
//! under a key of everything that it depends on, so only the first start takes the time. The folder is
//! `hipvmaf/self-test/` below `$XDG_CACHE_HOME`, or below `.cache` in the home folder. `HIPVMAF_SELF_TEST=always` tests
//! once in each process regardless of stored results; `never` trusts every GPU.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gpu::Device;
use serde::{Deserialize, Serialize};

use super::metric::{Overlap, Setup};
use super::{METRICS, images};
use crate::backend::cpu::Cpu;
use crate::backend::test_vectors::{self, TestClip};
use crate::backend::{Backend, BackendError};
use crate::frame::Geometry;
use crate::metrics::{Difference, FrameSums, Work};
use crate::scale::Scaling;

/// Result of the self-test of a GPU that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelfTest {
    /// The test was turned off.
    Skipped,
    /// Passed in this process.
    Passed,
    /// Passed earlier, with the same driver and build.
    PassedBefore,
}

impl SelfTest {
    /// Returns the name for logs and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Passed => "passed",
            Self::PassedBefore => "passed before",
        }
    }
}

/// The first difference between the sums of a GPU and those of the CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error(
    "{device} failed its self-test and is not used: {difference}, in frame {frame} of the {picture} picture (kernels: {}); \
     HIPVMAF_SELF_TEST=always tests it again",
    .kernels.join(", ")
)]
pub struct SelfTestFailure {
    /// The GPU and its driver.
    pub device: String,
    /// The difference.
    pub difference: Difference,
    /// The files in `kernels/` with the metric's kernels.
    pub kernels: Vec<String>,
    /// Name of the test picture.
    pub picture: String,
    /// Number of the frame, from 0.
    pub frame: usize,
}

/// Everything that the result depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Key {
    device: String,
    /// The library, and the versions of driver and runtime.
    runtime: String,
    /// Version of this crate, and a hash of its kernels.
    build: String,
    /// The selected code objects, if not the best.
    code: String,
    /// The setting of `HIPVMAF_GRAPHS`.
    graphs: String,
    /// The work, and the kind of pictures.
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

    /// Returns the file in a folder that stores the result.
    fn file(&self, folder: &Path) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        folder.join(format!("{:016x}.json", hasher.finish()))
    }
}

/// A stored result.
#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(flatten)]
    key: Key,
    /// The failure; `None` if the test was passed.
    failure: Option<Box<SelfTestFailure>>,
}

/// Result of running the test.
type Outcome = Result<(), Box<SelfTestFailure>>;
/// Result of the self-test for a GPU and work.
type Verdict = Result<SelfTest, Box<SelfTestFailure>>;

/// Prepares a GPU for pictures of this geometry without a self-test.
pub type Untested<'a> = dyn Fn(Geometry, &[Option<Scaling>]) -> Result<Box<dyn Backend>, BackendError> + 'a;

/// Returns the folder of the stored results.
fn folder() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("hipvmaf/self-test"))
}

/// Reads the stored result, if there is one.
fn recall(key: &Key) -> Option<Outcome> {
    let text = fs::read(key.file(&folder()?)).ok()?;
    let record: Record = serde_json::from_slice(&text).ok()?;
    (record.key == *key).then(|| record.failure.map_or(Ok(()), Err))
}

/// Stores a result. If that fails, the next process tests again.
fn keep(key: &Key, outcome: &Outcome) -> io::Result<()> {
    let folder = folder().ok_or(io::ErrorKind::NotFound)?;
    fs::create_dir_all(&folder)?;
    let record = Record { key: key.clone(), failure: outcome.clone().err() };
    // A temporary file makes the change atomic for other processes.
    let mut file = tempfile::NamedTempFile::new_in(&folder)?;
    file.write_all(&serde_json::to_vec_pretty(&record)?)?;
    file.persist(key.file(&folder))?;
    Ok(())
}

/// Tests the GPU for this work, unless a result is known.
pub fn pass(
    device: &Arc<Device>,
    work: &Work,
    geometry: Geometry,
    overlap: Overlap,
    renditions: &[Option<Scaling>],
    open: &Untested<'_>,
) -> Result<SelfTest, BackendError> {
    /// Results known to this process. Locked during a test, so that other sessions with the same work wait for it.
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
            let outcome = test(device, work, geometry, overlap, renditions, open)?;
            let _ = keep(&key, &outcome);
            outcome.map(|()| SelfTest::Passed)
        }
    };
    known.insert(key, verdict.clone());
    Ok(verdict?)
}

/// Computes the test pictures on the GPU and on the CPU.
fn test(
    device: &Arc<Device>,
    work: &Work,
    geometry: Geometry,
    overlap: Overlap,
    renditions: &[Option<Scaling>],
    open: &Untested<'_>,
) -> Result<Outcome, BackendError> {
    for vector in test_vectors::TEST_VECTORS {
        // A few metrics need larger pictures.
        let suits = |scale: &usize| work.check(test_vectors::geometry(vector, *scale, geometry)).is_ok();
        let Some(scale) = [1, 2, 4].into_iter().find(suits) else { continue };
        let clip =
            TestClip::new(vector, scale, geometry, work.lags().max(work.history().min(2)) + 1, renditions);
        let mut cpu = Cpu::new(1)?;
        cpu.prepare(work, clip.geometry(), clip.renditions())?;
        let mut hip = open(clip.geometry(), clip.renditions())?;
        let (expected, got) = (clip.sums(&mut cpu)?, clip.sums(&mut *hip)?);
        let differing = |(expected, got): (&FrameSums, &FrameSums)| expected.difference(got);
        let pairs = expected.iter().zip(&got);
        for (frame, (expected, got)) in pairs.enumerate() {
            let Some(difference) = expected.iter().zip(got).find_map(differing) else { continue };
            let setup = Setup {
                device,
                work,
                geometry: clip.geometry(),
                renditions: clip.renditions().len(),
                slots: 1,
                overlap,
            };
            return Ok(Err(Box::new(SelfTestFailure {
                device: format!("{} with {}", device.info(), device.info().runtime()),
                kernels: kernels(&difference.metric, &setup),
                difference,
                picture: vector.name.into(),
                frame,
            })));
        }
    }
    Ok(Ok(()))
}

/// Returns the files with the kernels of a metric.
fn kernels(metric: &str, setup: &Setup<'_>) -> Vec<String> {
    let metric = METRICS.iter().find(|registration| registration.name == metric);
    let files = metric.map_or(vec![], |metric| (metric.modules)(setup));
    files.into_iter().map(String::from).collect()
}
