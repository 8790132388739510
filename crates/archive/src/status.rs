// SPDX-License-Identifier: MPL-2.0

//! The command `archive status`: lists what is complete, and what is missing and why.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::chunk;
use super::manifest::{Manifest, Title};
use super::{complete_unless, repair};
use score::error::Error;
use score::output;

#[derive(Serialize)]
struct Of<'a> {
    name: &'a str,
    complete: bool,
    /// Number of planned chunks.
    chunks: usize,
    /// Reason why the title cannot be scored.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
    /// Reason why the title is not cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    whole: Option<&'a str>,
    missing: Vec<Missing>,
    /// Damage found in its videos so far.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    damaged: Vec<String>,
}

#[derive(Serialize)]
struct Missing {
    chunk: String,
    why: String,
}

pub fn run(folder: &Path, json: bool) -> Result<ExitCode, Error> {
    let manifest = Manifest::read(folder)?;
    let titles = manifest.titles.iter().map(|title| of(folder, title)).collect::<Result<Vec<_>, _>>()?;
    let all = titles.iter().all(|title| title.complete);
    let damaged = titles.iter().any(|title| !title.damaged.is_empty());
    if json {
        output::print_json(&serde_json::json!({"complete": all, "titles": titles}))?;
        return Ok(complete_unless(all, damaged));
    }
    for title in &titles {
        for text in &title.damaged {
            output::print(format_args!("{}: {text}", title.name))?;
        }
    }
    for title in titles.iter().filter(|title| !title.complete) {
        if let Some(problem) = title.problem {
            output::print(format_args!("{}: could not be planned: {problem}", title.name))?;
        }
        for Missing { chunk, why } in &title.missing {
            output::print(format_args!("{chunk}: {why}"))?;
        }
    }
    let done = titles.iter().filter(|title| title.complete).count();
    let (chunks, missing) = titles
        .iter()
        .fold((0, 0), |(all, missing), title| (all + title.chunks, missing + title.missing.len()));
    output::print(format_args!(
        "{done} of {} titles and {} of {chunks} chunks are complete",
        titles.len(),
        chunks - missing
    ))?;
    Ok(complete_unless(all, damaged))
}

fn of<'a>(folder: &Path, title: &'a Title) -> Result<Of<'a>, Error> {
    let (mut missing, mut damaged) = (vec![], title.damaged.clone());
    for chunk in &title.chunks {
        if let Some(why) = repair::missing(folder, title, chunk)? {
            missing.push(Missing { chunk: title.chunk_name(chunk), why });
            continue;
        }
        let found = chunk::damage(folder, title, chunk)?;
        let new: Vec<_> = found.into_iter().filter(|text| !damaged.contains(text)).collect();
        damaged.extend(new);
    }
    Ok(Of {
        name: &title.name,
        complete: title.problem.is_none() && missing.is_empty(),
        chunks: title.chunks.len(),
        problem: title.problem.as_deref(),
        whole: title.whole.as_deref(),
        missing,
        damaged,
    })
}
