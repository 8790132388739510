// SPDX-License-Identifier: MPL-2.0

//! Stills: the reference, the rendition and a heatmap of the damage, as JPEG files in a folder.
//!
//! A separate pipeline on a separate thread makes them, a few at a time; scoring does not wait.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::{fs, io, thread};

use gst::ClockTime;
use gst::prelude::*;

use super::state::wall_clock;

/// Names of the pictures of a still, which are also their file names.
pub const KINDS: [&str; 3] = ["reference", "distorted", "heatmap"];
/// Number of stills to keep; the oldest are removed.
const MOST: usize = 300;
/// Number of stills made at the same time; further ones are skipped.
const WORKERS: usize = 2;
const ENCODE_TIMEOUT: ClockTime = ClockTime::from_seconds(30);

/// A frame of the reference and of the rendition.
#[derive(Clone, Debug)]
pub struct Shot {
    pub reference: gst::Sample,
    pub distorted: gst::Sample,
}

/// The folder of stills.
#[derive(Clone)]
pub struct StillStore(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    /// Removed at the end of the program if no folder was given.
    _temporary: Option<tempfile::TempDir>,
    last: AtomicU64,
    working: AtomicUsize,
}

impl StillStore {
    /// Opens a folder and creates it if needed, or creates a temporary one.
    pub fn open(folder: Option<&Path>) -> io::Result<Self> {
        let temporary = if folder.is_none() { Some(tempfile::tempdir()?) } else { None };
        let folder = folder.or(temporary.as_ref().map(tempfile::TempDir::path)).unwrap_or(Path::new("."));
        let folder = folder.join("stills");
        fs::create_dir_all(&folder)?;
        let inner =
            Inner { folder, _temporary: temporary, last: AtomicU64::new(0), working: AtomicUsize::new(0) };
        Ok(Self(Arc::new(inner)))
    }

    /// Returns the path of a picture if it exists.
    pub fn path(&self, number: u64, kind: &str) -> Option<PathBuf> {
        let path = self.0.folder.join(number.to_string()).join(format!("{kind}.jpg"));
        (KINDS.contains(&kind) && path.exists()).then_some(path)
    }

    /// Starts to make a still. Returns its number, or `None` if too many are being made.
    pub fn add(&self, shot: Shot) -> Option<u64> {
        let inner = self.0.clone();
        if inner.working.fetch_add(1, Ordering::Relaxed) >= WORKERS {
            inner.working.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let now = (wall_clock() * 1e3) as u64;
        let last = inner.last.fetch_max(now, Ordering::Relaxed);
        let number = if last < now { now } else { inner.last.fetch_add(1, Ordering::Relaxed) + 1 };
        thread::spawn(move || {
            // On failure there is no still, and nothing else depends on it.
            let _ = make(&inner.folder, number, &shot).and_then(|()| prune(&inner.folder));
            inner.working.fetch_sub(1, Ordering::Relaxed);
        });
        Some(number)
    }
}

type Failure = Box<dyn std::error::Error>;

/// Makes the pictures in a temporary folder, which is renamed when it is complete.
fn make(folder: &Path, number: u64, shot: &Shot) -> Result<(), Failure> {
    let part = tempfile::Builder::new().prefix(".part").tempdir_in(folder)?;
    let pipeline = gst::parse::launch(
        "appsrc name=reference format=time ! tee name=r  appsrc name=distorted format=time ! tee name=d \
         r. ! queue ! score.ref_sink  d. ! queue ! score.dist_sink \
         hipvmaf name=score backend=cpu threads=1 output=heatmap scale-method=bicubic colorimetry=ignore \
         ! videoconvert ! jpegenc ! filesink name=heatmap_file \
         r. ! queue ! videoconvert ! jpegenc ! filesink name=reference_file \
         d. ! queue ! videoconvert ! jpegenc ! filesink name=distorted_file",
    )?;
    let pipeline = pipeline.downcast::<gst::Pipeline>().map_err(|_| "not a pipeline")?;
    for kind in KINDS {
        let sink = pipeline.by_name(&format!("{kind}_file")).ok_or("there is no sink")?;
        sink.set_property("location", part.path().join(format!("{kind}.jpg")).to_str());
    }
    for (name, sample) in [("reference", &shot.reference), ("distorted", &shot.distorted)] {
        let source = pipeline.by_name(name).and_then(|source| source.downcast::<gst_app::AppSrc>().ok());
        let source = source.ok_or("there is no source")?;
        source.set_caps(sample.caps_owned().as_ref());
        let mut buffer = sample.buffer_owned().ok_or("the frame has no picture")?;
        {
            let buffer = buffer.make_mut();
            buffer.set_pts(ClockTime::ZERO);
            buffer.set_dts(None);
        }
        pipeline.set_state(gst::State::Playing)?;
        source.push_buffer(buffer)?;
        source.end_of_stream()?;
    }
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let message = pipeline.bus().and_then(|bus| bus.timed_pop_filtered(ENCODE_TIMEOUT, &kinds));
    pipeline.set_state(gst::State::Null)?;
    match message.as_ref().map(|message| message.type_()) {
        Some(gst::MessageType::Eos) => Ok(fs::rename(part.keep(), folder.join(number.to_string()))?),
        _ => Err("the pictures could not be made".into()),
    }
}

fn prune(folder: &Path) -> Result<(), Failure> {
    let names = fs::read_dir(folder)?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut numbers: Vec<u64> = names.filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let surplus = numbers.len().saturating_sub(MOST);
    numbers
        .iter()
        .take(surplus)
        .try_for_each(|number| Ok(fs::remove_dir_all(folder.join(number.to_string()))?))
}
