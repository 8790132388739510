// SPDX-License-Identifier: MPL-2.0

//! The report of `hipvmaf check` and `hipvmaf-bench --report` that the owner of a GPU pastes into an issue: versions,
//! self-tests, a check against the CPU, and speed.
//!
//! On an untested GPU anything may fail: a runtime may abort the process, a kernel may never end, a device may be lost
//! until the process ends. So each section runs in its own process, which is this program with `--part`, with a time
//! limit. A section that fails contains the error, and the others are complete.

use std::env;
use std::error::Error;
use std::io::{self, Read, Write};
use std::iter;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use engine::EngineError;
use engine::backend::hip::{self, Hip, SelfTest};
use engine::backend::{Backend, BackendError};
use engine::frame::BitDepth;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::clip::{Place, video};
use crate::system::System;
use crate::{Args, check, measure};

const CLASSIC: &str = "vmaf_v0.6.1";
const RECENT: &str = "vmaf_v1.0.16_3d0h";

/// Latest time at which a section begins.
const LAST_BEGIN: Duration = Duration::from_secs(90);
/// Latest time at which everything ends.
const END: Duration = Duration::from_secs(115);
/// Time limit of a section.
const PART: Duration = Duration::from_secs(30);
/// Time limit after which a check begins no clip and a measurement no run; kernels are timed for about as long. On all
/// but the slowest GPUs, the work in progress then fits into the rest of [`PART`].
const ENOUGH: Duration = Duration::from_secs(10);
/// Time limit for the remaining output of a process that was killed.
const LEFTOVERS: Duration = Duration::from_secs(1);
/// Lines of standard error that are printed if a process dies.
const LAST_WORDS: usize = 10;
/// Number of differing clips to print. Either many differ or none, so a few are enough.
const DIFFERING: usize = 3;

/// The kind of a section.
#[derive(Clone, Copy)]
enum SectionKind {
    Gpus,
    SelfTest,
    Check,
    Speed,
    Kernels,
}

/// A section.
struct Section {
    kind: SectionKind,
    model: &'static str,
    depth: u32,
    place: Place,
}

/// Returns all sections, the most important ones first, as the time may not suffice for all.
fn parts() -> Vec<Section> {
    let part = |kind, model, depth, place| Section { kind, model, depth, place };
    vec![
        part(SectionKind::Gpus, CLASSIC, 8, Place::Device),
        part(SectionKind::SelfTest, CLASSIC, 8, Place::Device),
        part(SectionKind::SelfTest, CLASSIC, 10, Place::Device),
        part(SectionKind::SelfTest, RECENT, 8, Place::Device),
        part(SectionKind::SelfTest, RECENT, 10, Place::Device),
        part(SectionKind::Check, CLASSIC, 8, Place::Device),
        part(SectionKind::Check, RECENT, 8, Place::Device),
        part(SectionKind::Speed, CLASSIC, 8, Place::Device),
        part(SectionKind::Kernels, CLASSIC, 8, Place::Device),
        part(SectionKind::Speed, CLASSIC, 8, Place::Pinned),
        part(SectionKind::Speed, RECENT, 8, Place::Device),
        part(SectionKind::Speed, RECENT, 8, Place::Pinned),
        part(SectionKind::Speed, CLASSIC, 10, Place::Device),
        part(SectionKind::Speed, CLASSIC, 10, Place::Pinned),
        part(SectionKind::Kernels, RECENT, 8, Place::Device),
    ]
}

/// The result of a section as its process prints it.
#[derive(Default, Serialize, Deserialize)]
struct Answer {
    /// The text for users.
    text: String,
    /// The data for programs.
    result: Option<Value>,
    error: Option<String>,
    /// Further sections on this GPU are useless.
    hopeless: bool,
}

impl Answer {
    fn new(text: String, result: impl Serialize) -> Result<Self, Box<dyn Error>> {
        Ok(Self { text, result: Some(serde_json::to_value(result)?), ..Self::default() })
    }

    fn failed(error: String, hopeless: bool) -> Self {
        Self { error: Some(error), hopeless, ..Self::default() }
    }
}

/// Returns true if an error leaves no usable GPU: it was lost, or there is none.
fn is_hopeless(err: &(dyn Error + 'static)) -> bool {
    iter::successors(Some(err), |&err| err.source()).any(|err| {
        let backend = match err.downcast_ref() {
            Some(EngineError::Backend(err)) => Some(err),
            _ => err.downcast_ref(),
        };
        let gpu = match backend {
            Some(BackendError::Device(err)) => Some(err),
            _ => err.downcast_ref(),
        };
        use gpu::Error::{CodeRefused, Lost, NoCode, NoDevice, NoSuchDevice};
        matches!(gpu, Some(Lost { .. } | NoCode { .. } | CodeRefused { .. } | NoDevice(_) | NoSuchDevice(..)))
    })
}

impl Section {
    /// Returns the name of the kind of section for programs.
    fn name(&self) -> &'static str {
        match self.kind {
            SectionKind::Gpus => "gpus",
            SectionKind::SelfTest => "self-test",
            SectionKind::Check => "check",
            SectionKind::Speed => "speed",
            SectionKind::Kernels => "kernels",
        }
    }

    fn title(&self, args: &Args) -> String {
        let Self { model, depth, place, .. } = self;
        let (width, height) = args.size;
        match self.kind {
            SectionKind::Gpus => "GPUs".into(),
            SectionKind::SelfTest => format!("Self-test, {model}, {depth} bit"),
            SectionKind::Check => format!("Check against the CPU, {model}"),
            SectionKind::Speed => format!("Speed, {model}, {width}x{height}, {depth} bit, {place:?} memory"),
            SectionKind::Kernels => format!("Kernels, {model}, {width}x{height}, {depth} bit"),
        }
    }

    /// Returns `HIPVMAF_SELF_TEST` for its process. Only self-test sections test the GPU, so that a GPU that fails can
    /// still be measured by the others.
    fn self_test(&self) -> &'static str {
        if matches!(self.kind, SectionKind::SelfTest) { "always" } else { "never" }
    }

    /// Returns the program's arguments for the section.
    fn args(&self, args: &Args) -> Result<Args, Box<dyn Error>> {
        Ok(Args {
            models: vec![self.model.into()],
            depth: BitDepth::new(self.depth).ok_or("no such depth")?,
            memory: self.place,
            ..args.brief()
        })
    }

    /// Explains why there is no answer, with the last lines of standard error. A section that opens all GPUs may have
    /// failed because of an unselected one.
    fn died(&self, status: ExitStatus, stderr: &str) -> Answer {
        let lines: Vec<_> = stderr.lines().collect();
        let text = lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n");
        let hopeless = !matches!(self.kind, SectionKind::Gpus);
        Answer { text, ..Answer::failed(format!("the process ended with {status}"), hopeless) }
    }

    /// Runs the section in the present process.
    fn run(&self, args: &Args) -> Result<Answer, Box<dyn Error>> {
        let args = self.args(args)?;
        match self.kind {
            SectionKind::Gpus => gpus(),
            SectionKind::SelfTest => self_test(&args),
            SectionKind::Check => compare(&args),
            SectionKind::Speed => {
                let args = Args { repeat: 0, ..args };
                let report = measure::measure(&args, &args.plan(&[])?, ENOUGH)?;
                Answer::new(report.to_string(), report)
            }
            SectionKind::Kernels => {
                let kernels = measure::kernels_alone(&args, &args.plan(&[])?, ENOUGH)?;
                Answer::new(kernels.to_string(), kernels)
            }
        }
    }
}

fn gpus() -> Result<Answer, Box<dyn Error>> {
    let gpus = hip::gpus()?;
    let lines: Vec<_> = gpus.iter().map(ToString::to_string).collect();
    let error = gpus.iter().find_map(|gpu| gpu.error.clone());
    Ok(Answer { error, ..Answer::new(lines.join("\n"), gpus)? })
}

/// Runs the self-test regardless of stored results.
fn self_test(args: &Args) -> Result<Answer, Box<dyn Error>> {
    let plan = args.plan(&[])?;
    let device = hip::open(&args.selection())?;
    let mut hip = Hip::open(&device.info().selection(), args.in_flight())?;
    let start = Instant::now();
    let geometry = args.format().geometry();
    hip.prepare(&plan.work.suited(&video(), geometry), geometry, &[None])?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let verdict = hip.self_test().map_or("skipped", SelfTest::name);
    Answer::new(
        format!("{hip}: {verdict}, {ms:.0} ms including loading kernels and setting up"),
        json!({"device": hip.to_string(), "verdict": verdict, "milliseconds": ms}),
    )
}

fn compare(args: &Args) -> Result<Answer, Box<dyn Error>> {
    let checked = check::check(args, &args.check_plan()?, ENOUGH)?;
    if checked.differing.is_empty() {
        return Answer::new(checked.to_string(), checked);
    }
    let first: Vec<_> = checked.differing.iter().take(DIFFERING).cloned().collect();
    let error = Some(checked.to_string());
    Ok(Answer { error, ..Answer::new(first.join("\n"), checked)? })
}

/// Prints the result of the section with this number. [`report`] starts this program again with its own arguments and
/// `--part`.
///
/// # Errors
///
/// There is no such section. Errors of the section are part of its result.
pub fn part(args: &Args, number: usize) -> Result<(), Box<dyn Error>> {
    let part = parts().into_iter().nth(number).ok_or("there is no such part")?;
    let failed = |err: Box<dyn Error>| Answer::failed(err.to_string(), is_hopeless(&*err));
    let answer = part.run(args).unwrap_or_else(failed);
    // Starts a new line, as runtimes may have printed text before.
    println!("\n{}", serde_json::to_string(&answer)?);
    Ok(())
}

/// Collects the output of a process until it ends.
fn all_of(mut output: impl Read + Send + 'static) -> io::Result<Receiver<String>> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        let mut bytes = vec![];
        // Output before an error is still useful.
        let _ = output.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    })?;
    Ok(receiver)
}

/// Finds the result in the output of a process.
fn answer_in(output: &str) -> Option<Answer> {
    output.lines().rev().find_map(|line| serde_json::from_str(line).ok())
}

/// Runs a section in its own process.
fn ask(part: &Section, number: usize, limit: Duration) -> io::Result<Answer> {
    let mut child = Command::new(env::current_exe()?)
        .args(env::args_os().skip(1))
        .arg(format!("--part={number}"))
        .env("HIPVMAF_SELF_TEST", part.self_test())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let answer = listen(&mut child, part, limit);
    if answer.is_err() {
        let _ = child.kill();
    }
    answer
}

/// Waits for the result of a process, up to a limit.
fn listen(child: &mut Child, part: &Section, limit: Duration) -> io::Result<Answer> {
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let (stdout, stderr) = (all_of(stdout)?, all_of(stderr)?);
    let ended = stdout.recv_timeout(limit);
    if ended.is_err() {
        child.kill()?;
    }
    // The process may have hung after printing its result.
    let output = ended.clone().or_else(|_| stdout.recv_timeout(LEFTOVERS)).unwrap_or_default();
    let stderr = stderr.recv_timeout(LEFTOVERS).unwrap_or_default();
    eprint!("{stderr}");
    Ok(match (answer_in(&output), ended) {
        (Some(answer), _) => answer,
        (None, Ok(_)) => part.died(child.wait()?, &stderr),
        // The process is not waited for, as one that hangs in a driver cannot be killed.
        (None, Err(_)) => Answer::failed(format!("no answer within {:.0} s", limit.as_secs_f64()), false),
    })
}

/// The result of a section in the report.
#[derive(Serialize)]
struct SectionReport {
    section: &'static str,
    title: String,
    seconds: f64,
    result: Option<Value>,
    error: Option<String>,
    #[serde(skip)]
    text: String,
}

/// The report for programs.
#[derive(Serialize)]
struct Report {
    program: &'static str,
    system: System,
    sections: Vec<SectionReport>,
    seconds: f64,
}

/// The state that decides whether there is a next section.
struct Progress {
    start: Instant,
    /// The section after which further ones are useless.
    hopeless: Option<String>,
}

impl Progress {
    /// Returns the reason to skip the next section.
    fn skipped(&self) -> Option<String> {
        if let Some(title) = &self.hopeless {
            return Some(format!("skipped: no GPU is usable, see \"{title}\""));
        }
        let late = self.start.elapsed() > LAST_BEGIN;
        late.then(|| format!("skipped: {} s have passed", LAST_BEGIN.as_secs()))
    }

    fn section(&mut self, args: &Args, part: &Section, number: usize) -> SectionReport {
        let title = part.title(args);
        let begin = Instant::now();
        let limit = PART.min(END.saturating_sub(self.start.elapsed()));
        let answer = match self.skipped() {
            Some(reason) => Answer::failed(reason, false),
            None => ask(part, number, limit).unwrap_or_else(|err| Answer::failed(err.to_string(), false)),
        };
        if answer.hopeless {
            self.hopeless = Some(title.clone());
        }
        let Answer { text, result, error, .. } = answer;
        SectionReport {
            section: part.name(),
            title,
            seconds: begin.elapsed().as_secs_f64(),
            result,
            error,
            text,
        }
    }
}

/// Prints the report.
///
/// # Errors
///
/// The number of sections that are missing or failed.
pub fn report(args: &Args) -> Result<(), Box<dyn Error>> {
    crate::only_one(args)?;
    let mut progress = Progress { start: Instant::now(), hopeless: None };
    let system = System::new();
    let mut out = io::stdout();
    if !args.device.json {
        // Flushed at once, here and below, so that the output is complete if this process dies.
        writeln!(out, "hipvmaf {}\n{system}", crate::VERSION)?;
    }
    let parts = parts();
    let mut sections = vec![];
    for (number, part) in parts.iter().enumerate() {
        eprintln!("{} of {}: {}", number + 1, parts.len(), part.title(args));
        let section = progress.section(args, part, number);
        if !args.device.json {
            print(&mut out, &section)?;
        }
        sections.push(section);
    }
    let failed = sections.iter().filter(|section| section.error.is_some()).count();
    let seconds = progress.start.elapsed().as_secs_f64();
    if args.device.json {
        let report = Report { program: crate::VERSION, system, sections, seconds };
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        writeln!(out, "\n{} sections in {seconds:.0} s, {failed} failed", parts.len())?;
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} sections failed").into()) }
}

fn print(out: &mut impl Write, section: &SectionReport) -> io::Result<()> {
    writeln!(out, "\n{}", section.title)?;
    let error = section.error.iter().map(|error| format!("FAILED: {error}"));
    let said: Vec<_> = error.chain([section.text.trim_end().to_owned()]).collect();
    said.iter().flat_map(|text| text.lines()).try_for_each(|line| writeln!(out, "  {line}"))?;
    out.flush()
}
