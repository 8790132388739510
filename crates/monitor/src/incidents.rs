// SPDX-License-Identifier: MPL-2.0

//! Incident clips: a folder for each incident, with a Matroska file of the encoded video of each side, and the alarms
//! as JSON.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io, thread};

use gst::ClockTime;
use gst::prelude::*;
use serde_json::json;

use super::clip_ring::Piece;
use super::state::wall_clock;

/// Longest time for writing a file.
const WRITE_TIMEOUT: ClockTime = ClockTime::from_seconds(60);

type Failure = Box<dyn std::error::Error>;

/// The folder of all incidents.
#[derive(Clone)]
pub struct Incidents(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    /// Largest size of all incidents in bytes; the oldest are removed.
    most: u64,
}

/// Content of an incident.
pub struct Incident {
    pub channel: String,
    /// Streams with alarms, and the names of the alarms.
    pub alarms: Vec<(String, &'static str)>,
    /// Encoded video of each stream, by its name.
    pub streams: Vec<(String, Vec<Piece>)>,
}

impl Incidents {
    /// Opens a folder, and creates it if needed.
    pub fn open(state: &Path, most: u64) -> io::Result<Self> {
        let folder = state.join("incidents");
        fs::create_dir_all(&folder)?;
        Ok(Self(Arc::new(Inner { folder, most })))
    }

    /// Writes an incident on a thread of its own.
    pub fn add(&self, incident: Incident) {
        let inner = self.0.clone();
        thread::spawn(move || {
            let written = write(&inner.folder, &incident).and_then(|()| prune(&inner.folder, inner.most));
            if let Err(error) = written {
                eprintln!("error: cannot write an incident of {}: {error}", incident.channel);
            }
        });
    }
}

/// Writes the files into a temporary folder, which is renamed when it is complete.
fn write(folder: &Path, incident: &Incident) -> Result<(), Failure> {
    let part = tempfile::Builder::new().prefix(".part").tempdir_in(folder)?;
    let mut files = vec![];
    for (i, (label, pieces)) in incident.streams.iter().enumerate() {
        // After a restart or a change of format, a further file begins.
        let same = |a: &Piece, b: &Piece| a.start == b.start && a.sample.caps() == b.sample.caps();
        for (j, pieces) in pieces.chunk_by(same).enumerate() {
            let first = pieces.iter().position(Piece::is_key).unwrap_or(pieces.len());
            if first < pieces.len() {
                // Labels may contain characters that are unsuitable for file names.
                let name = format!("{i}-{j}.mkv");
                mux(&pieces[first..], &part.path().join(&name))?;
                files.push(json!({ "stream": label, "file": name }));
            }
        }
    }
    if files.is_empty() {
        return Ok(());
    }
    let alarms = incident.alarms.iter().map(|(label, kind)| json!({ "label": label, "kind": kind }));
    let alarms: Vec<_> = alarms.collect();
    let time = wall_clock();
    let text = json!({ "channel": incident.channel, "alarms": alarms, "written": time, "files": files });
    fs::write(part.path().join("incident.json"), format!("{text:#}\n"))?;
    Ok(fs::rename(part.keep(), folder.join(format!("{}", (time * 1e3) as u64)))?)
}

fn mux(pieces: &[Piece], path: &Path) -> Result<(), Failure> {
    let parser = &pieces.first().ok_or("there is nothing to write")?.parser;
    let description = format!("appsrc name=in format=time ! {parser} ! matroskamux ! filesink name=out");
    let pipeline = gst::parse::launch(&description)?;
    let pipeline = pipeline.downcast::<gst::Pipeline>().map_err(|_| "not a pipeline")?;
    pipeline.by_name("out").ok_or("there is no sink")?.set_property("location", path.to_str());
    let source = pipeline.by_name("in").and_then(|source| source.downcast::<gst_app::AppSrc>().ok());
    let source = source.ok_or("there is no source")?;
    let begin = pieces.iter().filter_map(|piece| piece.sample.buffer()?.dts_or_pts()).min();
    pipeline.set_state(gst::State::Playing)?;
    for piece in pieces {
        source.set_caps(piece.sample.caps_owned().as_ref());
        let mut buffer = piece.sample.buffer_owned().ok_or("a piece is empty")?;
        {
            let buffer = buffer.make_mut();
            let since = |time: Option<ClockTime>| Some(time?.saturating_sub(begin?));
            buffer.set_pts(since(buffer.pts()));
            buffer.set_dts(since(buffer.dts()));
        }
        source.push_buffer(buffer)?;
    }
    source.end_of_stream()?;
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let message = pipeline.bus().and_then(|bus| bus.timed_pop_filtered(WRITE_TIMEOUT, &kinds));
    pipeline.set_state(gst::State::Null)?;
    match message.as_ref().map(|message| message.view()) {
        Some(gst::MessageView::Eos(_)) => Ok(()),
        Some(gst::MessageView::Error(error)) => Err(error.error().message().into()),
        _ => Err("writing took too long".into()),
    }
}

/// Removes the oldest incidents until the rest fits.
fn prune(folder: &Path, most: u64) -> Result<(), Failure> {
    let mut all = vec![];
    for entry in fs::read_dir(folder)?.flatten() {
        if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok()) {
            let files = fs::read_dir(entry.path())?.flatten();
            let size: u64 = files.filter_map(|file| Some(file.metadata().ok()?.len())).sum();
            all.push((number, size, entry.path()));
        }
    }
    all.sort_unstable_by_key(|(number, ..)| std::cmp::Reverse(*number));
    let mut sum = 0;
    for (_, size, path) in all {
        sum += size;
        if sum > most {
            fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_removed_when_it_is_too_much() {
        let folder = tempfile::tempdir().unwrap();
        for number in [900, 1000, 1100] {
            let path = folder.path().join(number.to_string());
            fs::create_dir(&path).unwrap();
            fs::write(path.join("0-0.mkv"), [0; 100]).unwrap();
        }
        prune(folder.path(), 250).unwrap();
        let left = |number| folder.path().join(number).exists();
        assert_eq!([left("900"), left("1000"), left("1100")], [false, true, true]);
    }
}
