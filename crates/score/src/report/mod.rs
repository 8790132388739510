// SPDX-License-Identifier: MPL-2.0

//! `score --report`: a comparison as one page that needs nothing else, to be kept, sent and opened from disk.
//!
//! It has the scores of all frames, not a picture of them, so that a reader can zoom in to the frame; charts are those of
//! uPlot, which draws a film of hours without thinning it. What GStreamer says of names and what users call their files is
//! data for the page's script, which makes text of it and never markup.
//!
//! The pictures of the worst frames are taken while frames are scored (see [`worst`]): what was decoded from a URI that
//! cannot be read twice, or encoded on the way, does not come again.

mod page;
mod picture;
mod worst;

use std::path::{Path, PathBuf};

use watch::output::Output;

use super::run::Job;
use super::scores::Scores;
use super::summary::Summary;
use crate::error::Error;
pub use page::{UPLOT_CSS, UPLOT_JS};
pub use worst::Worst;

/// A page that is to be written.
pub struct Report {
    path: PathBuf,
    output: Output,
    /// Takes the pictures.
    pub worst: Worst,
}

impl Report {
    /// Makes sure that the page can be written, before anything is scored. It is to have pictures of `worst` frames of each
    /// rendition of the job.
    pub fn create(path: &Path, job: &Job, worst: usize) -> Result<Self, Error> {
        let output = Output::create(path).map_err(|error| failed(path, &error))?;
        Ok(Self { path: path.to_owned(), output, worst: Worst::new(job, worst) })
    }

    /// Writes the page.
    pub fn write(self, summary: &Summary, renditions: &[Scores]) -> Result<(), Error> {
        let page = page::html(summary, renditions, &self.worst.finish())?;
        self.output.write(page.as_bytes()).map_err(|error| failed(&self.path, &error))
    }
}

fn failed(path: &Path, why: &std::io::Error) -> Error {
    Error::Failed(format!("cannot write the report {}: {why}", path.display()))
}
