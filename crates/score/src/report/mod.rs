// SPDX-License-Identifier: MPL-2.0

//! `score --report`: a comparison as a self-contained HTML page.
//!
//! The page contains the scores of all frames, so that a reader can zoom in to single frames. uPlot draws the charts,
//! and handles hours of video without reduction. Names from GStreamer and file names are data for the page's script,
//! which uses them as text and never as markup.
//!
//! The pictures of the worst frames are taken while scoring (see [`worst`]), since a source may not be readable
//! twice, and encodes made for the run are not stored.

mod page;
mod picture;
mod worst;

use std::path::{Path, PathBuf};

use watch::output::Output;

use super::job::Job;
use super::scores::Scores;
use super::summary::Summary;
use crate::error::Error;
pub use page::{BASE_CSS, UPLOT_CSS, UPLOT_JS};
pub use worst::Worst;

/// A report to be written.
pub struct Report {
    path: PathBuf,
    output: Output,
    /// Collects the worst frames.
    pub worst: Worst,
}

impl Report {
    /// Creates the file before scoring, to report errors early. The report will have pictures of `worst` frames of
    /// each rendition.
    pub fn create(path: &Path, job: &Job, worst: usize) -> Result<Self, Error> {
        let output = Output::create(path).map_err(|error| failed(path, &error))?;
        Ok(Self { path: path.to_owned(), output, worst: Worst::new(job, worst) })
    }

    /// Writes the report.
    pub fn write(self, summary: &Summary, renditions: &[Scores]) -> Result<(), Error> {
        let page = page::html(summary, renditions, &self.worst.finish())?;
        self.output.write(page.as_bytes()).map_err(|error| failed(&self.path, &error))
    }
}

fn failed(path: &Path, why: &std::io::Error) -> Error {
    Error::Failed(format!("cannot write the report {}: {why}", path.display()))
}
