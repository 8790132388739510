// SPDX-License-Identifier: MPL-2.0

//! Checks the output files: they must differ from each other and from all inputs.

use std::path::{Path, PathBuf};

use watch::output::{self, Identity};

use super::args::Args;
use super::rendition::{self, Rendition};
use super::source::Input;
use crate::error::Error;

/// Returns an error if an output is an input or another output under any name. Inputs are files given by path or
/// `file:` URI, and models.
pub fn check(args: &Args, reference: &Input, renditions: &[(String, Rendition)]) -> Result<(), Error> {
    let videos = rendition::inputs(reference, renditions).flat_map(Input::files);
    let models = args.models.iter().map(PathBuf::from);
    let read = videos.chain(models).filter_map(|path| output::identity(&path).zip(Some(path)));
    let mut taken: Vec<(Identity, String)> =
        read.map(|(identity, path)| (identity, format!("the input {}", path.display()))).collect();
    for (option, path) in outputs(args, renditions) {
        let Some(identity) = output::identity(&path) else { continue };
        if let Some((_, what)) = taken.iter().find(|(of, _)| *of == identity) {
            let path = path.display();
            return Err(Error::Usage(format!("{option} {path} would overwrite {what}; name another file")));
        }
        taken.push((identity, format!("{option} {}", path.display())));
    }
    Ok(())
}

/// Returns the output files, each with its option.
fn outputs(args: &Args, renditions: &[(String, Rendition)]) -> Vec<(&'static str, PathBuf)> {
    let of_others = |path: &Path| {
        let labels = renditions.iter().skip(1).map(|(label, _)| label.as_str());
        labels.map(|label| gsthipvmaf::results::of_rendition(path, label, 1)).collect::<Vec<_>>()
    };
    let results = args.results.iter().flat_map(|path| std::iter::once(path.clone()).chain(of_others(path)));
    let report = args.report.iter().map(|path| ("--report", path.clone()));
    let summary = args.summary.iter().map(|path| ("--summary", path.clone()));
    results.map(|path| ("--results", path)).chain(report).chain(summary).collect()
}
