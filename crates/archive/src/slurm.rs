// SPDX-License-Identifier: MPL-2.0

//! Slurm: a job array scores, and a second job merges after the array has ended for any reason.
//!
//! Each task of the array has a fixed share of the plan's chunks, so a task that runs again has the same work. Only
//! tasks with missing chunks are submitted. Slurm restarts a task if its machine fails. A task whose process fails or
//! is killed requeues itself while retries are left, and may run on another machine then.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use sha2::{Digest as _, Sha256};

use super::manifest::{Manifest, hex};
use super::submit::Args;
use super::{complete, merge, repair, word};
use score::error::Error;
use score::output;

/// Submits the missing chunks. The exit code is a failure if some titles cannot be scored.
pub fn submit(args: &Args) -> Result<ExitCode, Error> {
    score::init()?;
    let folder = std::path::absolute(&args.merge.folder)?;
    let manifest = Manifest::read(&folder)?;
    let (missing, all) = missing(&folder, &manifest)?;
    if missing.is_empty() {
        return merge::run(&args.merge);
    }
    // The name is the same for each submission of a plan, so that a running one is found.
    let mut hash = Sha256::new();
    hash.update(folder.as_os_str().as_encoded_bytes());
    let name = format!("hipvmaf-{:.12}", hex(hash));
    let queue = ask(Command::new("squeue").args(["--noheader", "--me", "--format=%A", "--name", &name]), "")?;
    if let Some(job) = queue.split_whitespace().next() {
        return Err(Error::Failed(format!(
            "the plan was submitted before, as job {job}; wait for its end, or cancel it: scancel --name={name}"
        )));
    }
    let logs = folder.join("logs");
    fs::create_dir_all(&logs)
        .map_err(|error| Error::Failed(format!("cannot create {}: {error}", logs.display())))?;
    let sbatch = |log: &str, script: &str, more: &[String]| {
        let mut command = Command::new("sbatch");
        let log = log_option(&logs, log);
        command.args(["--parsable", "--requeue", "--open-mode=append", "--job-name", &name, &log]);
        command.args(more).args(&args.options);
        // With several clusters, the name of the cluster follows.
        ask(&mut command, script).map(|said| said.trim().split(';').next().unwrap_or_default().to_owned())
    };
    let tasks = manifest.chunks().count().min(args.tasks as usize).max(1);
    let handed: BTreeSet<_> = missing.iter().map(|index| index % tasks).collect();
    let array: Vec<_> = handed.iter().map(ToString::to_string).collect();
    let mut more = vec![format!("--array={}", array.join(","))];
    more.extend(args.gres.iter().map(|gres| format!("--gres={gres}")));
    let array = sbatch("%A_%a.log", &score_script(args, &folder, tasks)?, &more)?;
    let merged = sbatch("%j.log", &merge_script(args, &folder)?, &[format!("--dependency=afterany:{array}")])
        .map_err(|error| {
            Error::Failed(format!("{error}; job {array} scores, but its results will not be merged; run the command again after its end"))
        })?;
    output::print(format_args!(
        "{} chunks submitted as job {array} with {} tasks; job {merged} merges them; logs are in {}",
        missing.len(),
        handed.len(),
        logs.display()
    ))?;
    Ok(complete(all))
}

/// Returns the option for the log file of each task. Slurm replaces words that begin with a percent sign. It replaces
/// none in a path with a backslash, so all tasks share one log there.
fn log_option(logs: &Path, name: &str) -> String {
    let logs = logs.display().to_string();
    if logs.contains('\\') {
        return format!("--output={logs}/slurm.log");
    }
    format!("--output={}/{name}", logs.replace('%', "%%"))
}

/// Returns the numbers of the missing chunks that can be scored, and false if some titles cannot be scored.
fn missing(folder: &Path, manifest: &Manifest) -> Result<(Vec<usize>, bool), Error> {
    let mut lost = BTreeSet::new();
    for title in &manifest.titles {
        let problem = match &title.problem {
            Some(problem) => Err(Error::Failed(format!("could not be planned: {problem}"))),
            None => title.check_inputs(),
        };
        if let Err(problem) = problem {
            eprintln!("error: {}: {problem}", title.name);
            lost.insert(&title.name);
        }
    }
    let mut missing = vec![];
    for (index, (title, chunk)) in manifest.chunks().enumerate() {
        if !lost.contains(&title.name) && repair::missing(folder, title, chunk)?.is_some() {
            missing.push(index);
        }
    }
    Ok((missing, lost.is_empty()))
}

/// Returns the script of a task. It does not try again after a wrong command line, videos that do not match, or a
/// signal.
fn score_script(args: &Args, folder: &Path, tasks: usize) -> Result<String, Error> {
    let hardware = args.hardware.options();
    let run = program(["archive", "run"].into_iter().chain(hardware.iter().map(String::as_str)), folder)?;
    Ok(format!(
        "#!/bin/sh
{run} --share \"$SLURM_ARRAY_TASK_ID/{tasks}\"
code=$?
case $code in
0 | 2 | 3 | 4 | 130 | 143) ;;
*) [ \"${{SLURM_RESTART_COUNT:-0}}\" -ge {retries} ] || scontrol requeue \"$SLURM_JOB_ID\" ;;
esac
exit $code
",
        retries = args.retries
    ))
}

fn merge_script(args: &Args, folder: &Path) -> Result<String, Error> {
    let out = std::path::absolute(&args.merge.output)?;
    let more = if args.merge.no_provenance { " --no-provenance" } else { "" };
    let merge = program(["archive", "merge"].into_iter(), folder)?;
    Ok(format!("#!/bin/sh\nexec {merge} --output={}{more}\n", quoted(&out)?))
}

/// Returns a command line of this program, quoted for a shell.
fn program<'a>(args: impl Iterator<Item = &'a str>, folder: &Path) -> Result<String, Error> {
    let program = std::env::current_exe()?;
    let words = args.map(PathBuf::from).chain([folder.to_owned()]);
    let words = [program].into_iter().chain(words).map(|word| quoted(&word));
    Ok(words.collect::<Result<Vec<_>, _>>()?.join(" "))
}

fn quoted(path: &Path) -> Result<String, Error> {
    let text =
        path.to_str().ok_or_else(|| Error::Failed(format!("{}: the path is not UTF-8", path.display())));
    text.map(word)
}

/// Runs a command of Slurm and returns its output.
fn ask(command: &mut Command, input: &str) -> Result<String, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: io::Error| {
        Error::Failed(format!("cannot run {name}: {error}; --on slurm needs the commands of Slurm here"))
    };
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input reports an error below.
        let _ = stdin.write_all(input.as_bytes());
    }
    let ended = child.wait_with_output().map_err(failed)?;
    let said = String::from_utf8_lossy(&ended.stderr);
    match ended.status.success() {
        true => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
        false => Err(Error::Failed(format!("{name} failed: {}", said.trim()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_words_of_shells() {
        for text in
            ["/a b/it's $HOME", "plain/2", "", "`id`", "$(id)", "a\\b", "a\nb", "*", "~", "é", "#x", "-n"]
        {
            let said = Command::new("sh").args(["-c", &format!("printf %s {}", word(text))]).output();
            assert_eq!(said.unwrap().stdout, text.as_bytes());
        }
    }

    #[test]
    fn logs_have_names_that_slurm_replaces_nothing_else_in() {
        for (folder, option) in [("/a%j", "--output=/a%%j/%A.log"), ("/a\\b%", "--output=/a\\b%/slurm.log")] {
            assert_eq!(log_option(Path::new(folder), "%A.log"), option);
        }
    }
}
