// SPDX-License-Identifier: MPL-2.0

//! The command `archive run`: scores chunks on this machine, several at a time.
//!
//! A single chunk is scored in this process. Several chunks get one process each, which is this program again with
//! the name of the chunk, so a decoder that crashes harms no other chunk. Schedulers use the same command, with the
//! name of a chunk or with a share of all chunks.

use std::path::PathBuf;
use std::process::{Child, ExitCode, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::chunk::{self, Completion, RunOptions};
use super::manifest::{Chunk, Manifest, Title};
use super::progress::Progress;
use super::{complete_unless, repair};
use gsthipvmaf::Backend;
use score::error::{DAMAGED, Error, exit_code};
use score::property::Nick;
use score::{interrupt, output};

#[derive(clap::Args)]
pub struct Args {
    /// Folder of the plan
    folder: PathBuf,
    /// NAME/NUMBER for a chunk, NAME for all chunks of a title; default: all missing chunks
    chunks: Vec<String>,
    /// Score every N-th chunk, beginning with number I (from 0): the share of one of N machines
    #[arg(long, value_name = "I/N", conflicts_with = "chunks")]
    share: Option<Share>,
    /// Number of chunks to score at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    jobs: u16,
    /// Number of further attempts for a chunk that fails
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,
    #[command(flatten)]
    hardware: Hardware,
}

/// Hardware options of a run. The scores do not depend on them.
#[derive(Clone, clap::Args)]
pub struct Hardware {
    /// Where pixels are processed
    #[arg(long, default_value = "auto")]
    backend: Nick<Backend>,
    /// Decoders to use, as for `score`
    #[arg(long, default_value = "auto", value_name = "auto|software|va|nv")]
    decoder: String,
    /// CPU threads per chunk; 0 divides the cores among the chunks
    #[arg(long, default_value_t = 0)]
    threads: u32,
}

impl Hardware {
    /// Returns the options as arguments, also for `score`.
    pub fn options(&self) -> Vec<String> {
        let Self { backend, decoder, threads } = self;
        vec![format!("--backend={backend}"), format!("--decoder={decoder}"), format!("--threads={threads}")]
    }
}

/// One of several equal shares of a plan's chunks. It does not depend on what is scored already.
#[derive(Clone, Copy)]
pub struct Share {
    index: usize,
    of: usize,
}

impl FromStr for Share {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        let (index, of) = numbers.ok_or("not two numbers, as 0/8")?;
        if index < of {
            Ok(Self { index, of })
        } else {
            Err("shares are counted from 0: of 8 the last is 7/8")
        }
    }
}

type Named<'a> = (&'a Title, &'a Chunk);

impl Args {
    /// Returns the arguments for all missing chunks.
    pub fn all(folder: PathBuf, jobs: u16, retries: u32, hardware: Hardware) -> Self {
        Self { folder, chunks: vec![], share: None, jobs, retries, hardware }
    }
}

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    score::init()?;
    interrupt::watch()?;
    let manifest = Manifest::read(&args.folder)?;
    let (wanted, mut all): (Vec<Named>, _) = match args.share {
        Some(Share { index, of }) => (manifest.chunks().skip(index).step_by(of).collect(), true),
        None => wanted(args, &manifest)?,
    };
    // With retries, even a single chunk gets its own process, since it may crash.
    if let ([(title, chunk)], true, 0) = (&wanted[..], all, args.retries) {
        return one(args, title, chunk);
    }
    let (mut missing, mut damaged) = (vec![], false);
    for (title, chunk) in wanted {
        // Results of files that have changed since are no longer valid.
        if repair::missing(&args.folder, title, chunk)?.is_some() || title.check_inputs().is_err() {
            missing.push((title, chunk));
        } else {
            damaged |= print_damage(args, title, chunk)?;
        }
    }
    let scored = several(args, &missing)?;
    all &= scored.all;
    damaged |= scored.damaged;
    Ok(interrupt::caught().map_or(complete_unless(all, damaged), exit_code))
}

/// Returns the requested chunks, and false if a requested title has none because it could not be planned.
fn wanted<'a>(args: &Args, manifest: &'a Manifest) -> Result<(Vec<Named<'a>>, bool), Error> {
    let titles = manifest.titles.iter();
    let of = |title: &'a Title| title.chunks.iter().map(move |chunk| (title, chunk));
    let mut chunks: Vec<Named<'a>> = vec![];
    let mut all = true;
    for title in titles.clone() {
        let names = |chunk: &Chunk| args.chunks.iter().any(|name| *name == title.chunk_name(chunk));
        let is_named = args.chunks.is_empty() || args.chunks.contains(&title.name);
        chunks.extend(of(title).filter(|(_, chunk)| is_named || names(chunk)));
        if let (true, Some(problem)) = (is_named, &title.problem) {
            eprintln!(
                "error: {}: could not be planned: {problem}; plan again once it can be read",
                title.name
            );
            all = false;
        }
    }
    let is_known = |name: &&String| {
        let mut titles = titles.clone();
        titles.any(|title| {
            title.name == **name || of(title).any(|(_, chunk)| title.chunk_name(chunk) == **name)
        })
    };
    match args.chunks.iter().find(|name| !is_known(name)) {
        Some(name) => {
            Err(Error::Usage(format!("the plan has no {name}; hipvmaf archive status lists its chunks")))
        }
        None => Ok((chunks, all)),
    }
}

fn one(args: &Args, title: &Title, chunk: &Chunk) -> Result<ExitCode, Error> {
    let name = title.chunk_name(chunk);
    let how = RunOptions { options: args.hardware.options(), earlier: 0.0 };
    let named = |error: Error| match error.within(&name) {
        // The exit code for damage says that scores exist.
        Error::Damaged(why) => Error::Failed(why),
        error => error,
    };
    match chunk::run(&args.folder, title, chunk, &how).map_err(named)? {
        Completion::Scored => output::print(format_args!("{name} scored"))?,
        Completion::AlreadyValid => {}
        Completion::Interrupted(signal) => return Ok(exit_code(signal)),
    }
    if let Completion::Interrupted(signal) =
        repair::run(&args.folder, title, chunk, &how.options).map_err(named)?
    {
        return Ok(exit_code(signal));
    }
    Ok(complete_unless(true, print_damage(args, title, chunk)?))
}

/// Prints the damage in the videos of a scored chunk, and returns true if there is any.
fn print_damage(args: &Args, title: &Title, chunk: &Chunk) -> Result<bool, Error> {
    let texts = chunk::damage(&args.folder, title, chunk)?;
    texts.iter().for_each(|text| eprintln!("warning: {}: {text}", title.chunk_name(chunk)));
    Ok(!texts.is_empty())
}

/// Result of scoring several chunks.
struct Totals {
    /// All chunks were scored.
    all: bool,
    /// Some of the videos are damaged.
    damaged: bool,
}

/// Scores chunks, each in its own process.
fn several(args: &Args, chunks: &[Named]) -> Result<Totals, Error> {
    let program = std::env::current_exe()?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let jobs = usize::from(args.jobs).min(chunks.len()).max(1);
    let hardware = &args.hardware;
    let backend = hardware.backend.to_string();
    let threads = match hardware.threads {
        0 if jobs > 1 => (cores / jobs).max(1).to_string(),
        threads => threads.to_string(),
    };
    let start = |(title, chunk): &Named| {
        let mut command = std::process::Command::new(&program);
        command.args(["archive", "run", "--backend", &backend, "--decoder", &hardware.decoder]);
        command.args(["--threads", &threads, "--"]);
        command.arg(&args.folder).arg(title.chunk_name(chunk)).stdin(Stdio::null()).spawn()
    };
    let frames: Vec<_> = chunks.iter().map(|(title, chunk)| title.frames_of(chunk)).collect();
    let progress = Mutex::new(Progress::new(jobs, &frames));
    let (next, done, damaged) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    // Returns true if the chunk was scored.
    let attempt = |named: &Named| match start(named).and_then(wait) {
        Ok(Some(code)) if code == 0 || code == i32::from(DAMAGED) => {
            done.fetch_add(1, Ordering::Relaxed);
            damaged.fetch_or(code != 0, Ordering::Relaxed);
            true
        }
        Ok(_) => false,
        Err(error) => {
            eprintln!("error: {}: {error}", named.0.chunk_name(named.1));
            false
        }
    };
    let work = || {
        while let Some(named) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (frames, begun) = (named.0.frames_of(named.1), Instant::now());
            let is_scored = (0..=args.retries).any(|_| interrupt::caught().is_none() && attempt(named));
            if interrupt::caught().is_some() {
                return;
            }
            let mut progress = progress.lock();
            match is_scored {
                true => eprintln!("{}", progress.add(frames, begun.elapsed())),
                false => progress.fail(frames),
            }
        }
    };
    thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
    Ok(Totals { all: done.into_inner() == chunks.len(), damaged: damaged.into_inner() })
}

/// Waits for a process and returns its exit code. Kills it after a signal to this process, which leaves no invalid
/// files.
fn wait(mut child: Child) -> std::io::Result<Option<i32>> {
    const LOOK: Duration = Duration::from_millis(20);
    loop {
        if let Some(status) = child.try_wait()? {
            if status.code().is_none() {
                return Err(std::io::Error::other(format!(
                    "the process that scored it was ended by a signal: {status}"
                )));
            }
            return Ok(status.code());
        }
        if interrupt::caught().is_some() {
            child.kill()?;
        }
        thread::sleep(LOOK);
    }
}
