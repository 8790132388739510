// SPDX-License-Identifier: MPL-2.0

//! What the owner of a GPU pastes into an issue: versions, self-tests, a check against the CPU, how fast it is.
//! It is `hipvmaf check` and `hipvmaf-bench --report`.
//!
//! On a GPU that nobody has tried, anything may go wrong: a runtime aborts the process, a kernel never ends, a device is
//! lost for as long as the process lives. So each section is the work of a process of its own, which is this program with
//! `--part`, and which gets limited time. A section that fails says so in its place, and the others are there.

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

use crate::clip::Place;
use crate::system::System;
use crate::{Args, check, measure};

const CLASSIC: &str = "vmaf_v0.6.1";
const RECENT: &str = "vmaf_v1.0.16_3d0h";

/// No section begins later than this.
const LAST_BEGIN: Duration = Duration::from_secs(90);
/// Everything has ended by then.
const END: Duration = Duration::from_secs(115);
/// The most time for a section.
const PART: Duration = Duration::from_secs(30);
/// A check begins no clip, and a measurement no run, after this; kernels are timed for about as long. On all but the slowest
/// GPUs what they have begun then fits into the rest of [`PART`].
const ENOUGH: Duration = Duration::from_secs(10);
/// How long the output of a process may take to arrive once it was killed.
const LEFTOVERS: Duration = Duration::from_secs(1);
/// Lines of standard error that tell why a process died.
const LAST_WORDS: usize = 10;
/// Clips that differ are many or none: the first tell enough.
const DIFFERING: usize = 3;

/// What a section does.
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

/// All sections; what matters most comes first, as time may be up before the last.
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

/// What a section has found out, as its process says it.
#[derive(Default, Serialize, Deserialize)]
struct Answer {
    /// For people.
    text: String,
    /// For programs.
    result: Option<Value>,
    error: Option<String>,
    /// There is no use in going on with this GPU.
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

/// Whether an error leaves no GPU to go on with: it was lost, or there is none.
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
    /// The name of the kind of section, for programs.
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

    /// `HIPVMAF_SELF_TEST` for its process. A GPU that fails its self-test is to show all the same what it does in the
    /// other sections, so only the self-tests test it.
    fn self_test(&self) -> &'static str {
        if matches!(self.kind, SectionKind::SelfTest) { "always" } else { "never" }
    }

    /// The program's arguments for what the section measures.
    fn args(&self, args: &Args) -> Result<Args, Box<dyn Error>> {
        Ok(Args {
            models: vec![self.model.into()],
            depth: BitDepth::new(self.depth).ok_or("no such depth")?,
            memory: self.place,
            ..args.brief()
        })
    }

    /// Why there is no answer, with the last words. What opens all GPUs may have died of another than the one to be used.
    fn died(&self, status: ExitStatus, stderr: &str) -> Answer {
        let lines: Vec<_> = stderr.lines().collect();
        let text = lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n");
        let hopeless = !matches!(self.kind, SectionKind::Gpus);
        Answer { text, ..Answer::failed(format!("the process ended with {status}"), hopeless) }
    }

    /// Does what the section says, in its own process.
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

/// Has the GPU prove itself, whatever is known of it.
fn self_test(args: &Args) -> Result<Answer, Box<dyn Error>> {
    let plan = args.plan(&[])?;
    let device = hip::open(&args.selection())?;
    let mut hip = Hip::open(&device.info().selection(), args.in_flight())?;
    let start = Instant::now();
    hip.prepare(&plan.work, args.format().geometry(), &[None])?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let verdict = hip.self_test().map_or("skipped", SelfTest::name);
    Answer::new(
        format!("{hip}: {verdict}, {ms:.0} ms with loading the kernels and setting up"),
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

/// Prints the answer of the section with this number, for [`report`], which starts this program again with `--part` beside its
/// other arguments.
///
/// # Errors
///
/// There is no such section. What goes wrong in it is in the answer.
pub fn part(args: &Args, number: usize) -> Result<(), Box<dyn Error>> {
    let part = parts().into_iter().nth(number).ok_or("there is no such part")?;
    let failed = |err: Box<dyn Error>| Answer::failed(err.to_string(), is_hopeless(&*err));
    let answer = part.run(args).unwrap_or_else(failed);
    // A line of its own: runtimes print things too.
    println!("\n{}", serde_json::to_string(&answer)?);
    Ok(())
}

/// All that a process prints, once it does not any more.
fn all_of(mut output: impl Read + Send + 'static) -> io::Result<Receiver<String>> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        let mut bytes = vec![];
        // What comes before an error counts.
        let _ = output.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    })?;
    Ok(receiver)
}

/// The answer in what a process has printed.
fn answer_in(output: &str) -> Option<Answer> {
    output.lines().rev().find_map(|line| serde_json::from_str(line).ok())
}

/// Has a process of its own do the work of a section.
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

/// Waits for the answer of a process, for so long at most.
fn listen(child: &mut Child, part: &Section, limit: Duration) -> io::Result<Answer> {
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let (stdout, stderr) = (all_of(stdout)?, all_of(stderr)?);
    let ended = stdout.recv_timeout(limit);
    if ended.is_err() {
        child.kill()?;
    }
    // It may have answered and then hung.
    let output = ended.clone().or_else(|_| stdout.recv_timeout(LEFTOVERS)).unwrap_or_default();
    let stderr = stderr.recv_timeout(LEFTOVERS).unwrap_or_default();
    eprint!("{stderr}");
    Ok(match (answer_in(&output), ended) {
        (Some(answer), _) => answer,
        (None, Ok(_)) => part.died(child.wait()?, &stderr),
        // Not waited for: what hangs in a driver cannot be killed.
        (None, Err(_)) => Answer::failed(format!("no answer within {:.0} s", limit.as_secs_f64()), false),
    })
}

/// A section of the report.
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

/// What decides whether there is a next section.
struct Progress {
    start: Instant,
    /// The section after which there is no use in going on.
    hopeless: Option<String>,
}

impl Progress {
    /// Why the next section is left out.
    fn left_out(&self) -> Option<String> {
        if let Some(title) = &self.hopeless {
            return Some(format!("left out: \"{title}\" says why there is no GPU to go on with"));
        }
        let late = self.start.elapsed() > LAST_BEGIN;
        late.then(|| format!("left out: {} s were over", LAST_BEGIN.as_secs()))
    }

    fn section(&mut self, args: &Args, part: &Section, number: usize) -> SectionReport {
        let title = part.title(args);
        let begin = Instant::now();
        let limit = PART.min(END.saturating_sub(self.start.elapsed()));
        let answer = match self.left_out() {
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
/// How many sections are missing, or have something wrong in them.
pub fn report(args: &Args) -> Result<(), Box<dyn Error>> {
    crate::only_one(args)?;
    let mut progress = Progress { start: Instant::now(), hopeless: None };
    let system = System::new();
    let mut out = io::stdout();
    if !args.device.json {
        // At once, here and below: it is there if this process ends too.
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
