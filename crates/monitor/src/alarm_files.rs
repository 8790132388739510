// SPDX-License-Identifier: MPL-2.0

//! Files kept for alarms, besides the scores: stills, and clips of what the sources sent.

use std::io;
use std::path::Path;

use super::incidents::Incidents;
use super::still_store::StillStore;

/// Where stills and clips are stored.
#[derive(Clone)]
pub struct AlarmFiles {
    pub still_store: StillStore,
    /// Only with a folder that outlasts the program.
    pub incidents: Option<Incidents>,
}

impl AlarmFiles {
    /// Opens the folder, with incidents of at most `most` bytes. Without a folder, stills are temporary and there are
    /// no clips.
    pub fn open(folder: Option<&Path>, most: u64) -> io::Result<Self> {
        let incidents = folder.map(|folder| Incidents::open(folder, most)).transpose()?;
        Ok(Self { still_store: StillStore::open(folder)?, incidents })
    }
}
