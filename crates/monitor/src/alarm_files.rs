// SPDX-License-Identifier: MPL-2.0

//! What is kept of alarms besides the scores: pictures, and what the sources have sent.

use std::io;
use std::path::Path;

use super::gallery::Gallery;
use super::incidents::Incidents;

/// Where it is kept.
#[derive(Clone)]
pub struct Evidence {
    pub gallery: Gallery,
    /// Only where files stay.
    pub incidents: Option<Incidents>,
}

impl Evidence {
    /// In this folder, with incidents of so many bytes, or for as long as the program runs.
    pub fn open(folder: Option<&Path>, most: u64) -> io::Result<Self> {
        let incidents = folder.map(|folder| Incidents::open(folder, most)).transpose()?;
        Ok(Self { gallery: Gallery::open(folder)?, incidents })
    }
}
