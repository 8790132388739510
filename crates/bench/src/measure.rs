// SPDX-License-Identifier: MPL-2.0

//! Throughput and latency of scoring.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::EngineError;
use engine::backend::Backend;
use engine::backend::cpu::Cpu;
use engine::backend::hip::{self, Hip};
use engine::plan::Plan;
use engine::session::{Session, Tag};
use gpu::{Device, Selection};
use serde::Serialize;

use crate::clip::{Clip, Content, Place, video};
use crate::{Args, BackendChoice};

/// Seconds until caches are filled and clocks have risen.
pub const WARM_UP: f64 = 0.5;

/// One session with pictures of its own.
pub struct Stream {
    session: Session,
    clip: Clip,
    /// Number of pairs submitted so far.
    submitted: usize,
}

impl Stream {
    /// Prepares a stream on this GPU, or on the CPU.
    pub fn new(args: &Args, plan: &Arc<Plan>, device: Option<&Arc<Device>>) -> Result<Self, Box<dyn Error>> {
        let clip = Clip::new(args.format(), Content::Natural, args.pairs, 1);
        let (clip, backend): (_, Box<dyn Backend>) = match device {
            Some(device) => {
                let hip = Hip::open(&device.info().selection(), args.in_flight())?;
                (clip.moved(args.memory, device)?, Box::new(hip))
            }
            None => (clip, Box::new(Cpu::new(args.threads)?)),
        };
        let mut session = Session::new(plan.clone(), backend, 1);
        session.set_copiers(args.threads());
        session.set_video(video());
        session.prepare(clip.geometry(), &vec![None; args.renditions])?;
        Ok(Self { session, clip, submitted: 0 })
    }

    /// Scores groups for some time, at least one, with `in_flight` of them in flight. Returns the milliseconds from the
    /// submission of each to its sums.
    pub fn run(
        &mut self,
        duration: Duration,
        in_flight: usize,
        renditions: usize,
    ) -> Result<Vec<f64>, EngineError> {
        // A backend may allow fewer.
        let in_flight = in_flight.min(self.session.depth());
        let mut waiting = VecDeque::new();
        let mut latencies = vec![];
        let start = Instant::now();
        let mut on = true;
        loop {
            while on && waiting.len() < in_flight {
                let group = self.clip.group_of(self.submitted, renditions);
                let submitted = Instant::now();
                self.session.submit(Tag::default(), group.reference, group.distorted)?;
                self.submitted += 1;
                waiting.push_back((submitted, self.session.completion()));
            }
            on = start.elapsed() < duration;
            let Some((submitted, completion)) = waiting.pop_front() else { return Ok(latencies) };
            if let Some(completion) = completion {
                completion();
            }
            latencies.push(submitted.elapsed().as_secs_f64() * 1e3);
            self.session.collect()?;
        }
    }
}

/// Milliseconds that this share of the pairs did not exceed.
#[derive(Serialize)]
pub struct Latency {
    p50: f64,
    p95: f64,
    p99: f64,
}

impl Latency {
    pub fn new(mut latencies: Vec<f64>) -> Self {
        latencies.sort_by(f64::total_cmp);
        let rank = |percent: usize| (latencies.len() * percent).div_ceil(100).saturating_sub(1);
        let at = |percent| latencies.get(rank(percent)).copied().unwrap_or(f64::NAN);
        Self { p50: at(50), p95: at(95), p99: at(99) }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p50 {:.3}  p95 {:.3}  p99 {:.3} ms", self.p50, self.p95, self.p99)
    }
}

/// Pairs per second of each run, in increasing order.
#[derive(Serialize)]
#[serde(transparent)]
pub struct Rates(Vec<f64>);

impl Rates {
    pub fn new(mut rates: Vec<f64>) -> Self {
        rates.sort_by(f64::total_cmp);
        Self(rates)
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |i: usize| self.0.get(i).copied().unwrap_or(f64::NAN);
        let runs = self.0.len();
        let (least, median, most) = (at(0), at(runs / 2), at(runs.saturating_sub(1)));
        write!(f, "{median:.1} fps, {runs} runs {least:.1} to {most:.1}")
    }
}

/// The settings of a measurement.
#[derive(Serialize)]
pub struct Setting {
    pub width: usize,
    pub height: usize,
    pub depth: u32,
    pub models: Vec<String>,
    pub features: String,
    pub memory: String,
    pub in_flight: usize,
    pub streams: usize,
    pub renditions: usize,
}

impl Setting {
    /// Takes the settings from the arguments, with frames in this memory.
    pub fn new(args: &Args, memory: Place) -> Self {
        Self {
            width: args.size.0,
            height: args.size.1,
            depth: args.depth.bits(),
            models: args.models.clone(),
            features: args.features.clone(),
            memory: format!("{memory:?}").to_lowercase(),
            in_flight: args.in_flight(),
            streams: args.streams,
            renditions: args.renditions,
        }
    }
}

/// The result of a measurement.
#[derive(Serialize)]
pub struct Report {
    /// The name of the device, and for a GPU the target of its code and its PCI address.
    device: String,
    #[serde(flatten)]
    setting: Setting,
    pairs: usize,
    clip_mib: f64,
    /// All streams together.
    fps: Rates,
    latency: Latency,
    alone: Latency,
    kernels: Kernels,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, setting, pairs, clip_mib, fps, .. } = self;
        let Setting { width, height, depth, features, memory, in_flight, streams, renditions, .. } = setting;
        let models = setting.models.join(", ");
        let comma = if features.is_empty() { "" } else { ", " };
        writeln!(f, "{device}")?;
        writeln!(f, "{width}x{height}, {depth} bit, {models}{comma}{features}")?;
        writeln!(f, "{pairs} pairs ({clip_mib:.0} MiB of luma a stream) in {memory} memory")?;
        if *renditions > 1 {
            writeln!(f, "{renditions} distorted pictures for each reference picture, a pair each")?;
        }
        writeln!(f, "streams {streams}, in flight {in_flight}: {fps}")?;
        writeln!(f, "latency    {}", self.latency)?;
        writeln!(f, "alone      {}", self.alone)?;
        self.kernels.fmt(f)
    }
}

/// Milliseconds of each launch, in order.
#[derive(Serialize)]
#[serde(transparent)]
pub struct Kernels(Vec<(String, f32)>);

impl fmt::Display for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: f32 = self.0.iter().map(|(_, ms)| ms).sum();
        for (kernel, ms) in &self.0 {
            writeln!(f, "{:9.2} us  {kernel}", ms * 1e3)?;
        }
        if !self.0.is_empty() {
            writeln!(f, "{:9.2} us  all kernels, one after another", total * 1e3)?;
        }
        Ok(())
    }
}

/// Opens the GPU to measure; `None` to measure the CPU.
fn open(args: &Args) -> Result<Option<Arc<Device>>, gpu::Error> {
    if args.backend == BackendChoice::Cpu {
        return Ok(None);
    }
    match (args.backend, hip::open(&args.selection())) {
        (BackendChoice::Auto, Err(why)) => {
            eprintln!("No GPU can be used, so this is the CPU: {why}");
            Ok(None)
        }
        (_, device) => device.map(Some),
    }
}

/// Measures with the settings of the arguments. No run begins after the time is up, but there is at least one.
pub fn measure(args: &Args, plan: &Arc<Plan>, time: Duration) -> Result<Report, Box<dyn Error>> {
    let begin = Instant::now();
    let device = open(args)?;
    let device = device.as_ref();
    let streams = (0..args.streams).map(|_| Stream::new(args, plan, device));
    let mut streams = streams.collect::<Result<Vec<_>, _>>()?;
    run_all(&mut streams, args, args.seconds().min(WARM_UP))?;
    let mut fps = vec![];
    let mut latencies = vec![];
    for run in 0..args.runs() {
        if run > 0 && begin.elapsed() > time {
            break;
        }
        let start = Instant::now();
        let run = run_all(&mut streams, args, args.seconds())?.concat();
        fps.push((run.len() * args.renditions) as f64 / start.elapsed().as_secs_f64());
        latencies.extend(run);
    }
    let stream = streams.first_mut().ok_or("no stream to measure")?;
    let alone = stream.run(Duration::from_secs_f64(args.seconds()), 1, args.renditions)?;
    let clip = &stream.clip;
    let memory = if device.is_some() { args.memory } else { Place::Host };
    Ok(Report {
        device: match device.map(|device| device.info()) {
            Some(info) => info.to_string(),
            None => stream.session.made_by().into_iter().map(|(_, is)| is).collect::<Vec<_>>().join(", "),
        },
        setting: Setting::new(args, memory),
        pairs: clip.len(),
        clip_mib: clip.size() as f64 / 1_048_576.0,
        fps: Rates::new(fps),
        latency: Latency::new(latencies),
        alone: Latency::new(alone),
        kernels: match device {
            Some(device) => kernels(args, &device.info().selection(), plan, clip)?,
            None => Kernels(vec![]),
        },
    })
}

/// Runs streams in parallel for this many seconds. Returns the latencies of the groups of each.
pub fn run_all(streams: &mut [Stream], args: &Args, seconds: f64) -> Result<Vec<Vec<f64>>, Box<dyn Error>> {
    let duration = Duration::from_secs_f64(seconds);
    let runs: Vec<_> = std::thread::scope(|scope| {
        let run = |stream: &'_ mut Stream| stream.run(duration, args.in_flight(), args.renditions);
        let threads: Vec<_> = streams.iter_mut().map(|stream| scope.spawn(move || run(stream))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    runs.into_iter().map(|run| Ok(run.map_err(|_| "the thread of a stream died")??)).collect()
}

/// Times each kernel for one pair.
fn kernels(args: &Args, selection: &Selection, plan: &Plan, clip: &Clip) -> Result<Kernels, Box<dyn Error>> {
    if args.repeat == 0 {
        return Ok(Kernels(vec![]));
    }
    let mut hip = Hip::open(selection, 1)?;
    let work = plan.work.suited(&video(), clip.geometry());
    hip.prepare(&work, clip.geometry(), &vec![None; args.renditions])?;
    // Motion depends on at most two earlier frames.
    for index in 0..2 {
        let ticket = hip.submit(clip.group_of(index, args.renditions))?;
        hip.wait(ticket)?;
    }
    Ok(Kernels(hip.profile(clip.group_of(2, args.renditions), args.repeat)?))
}

/// Times each kernel without another measurement. On a slow GPU, there are fewer launches, for about this time.
pub fn kernels_alone(args: &Args, plan: &Arc<Plan>, time: Duration) -> Result<Kernels, Box<dyn Error>> {
    let device = hip::open(&args.selection())?;
    let mut stream = Stream::new(args, plan, Some(&device))?;
    let warm_up = Duration::from_secs_f64(args.seconds().min(WARM_UP));
    let latencies = stream.run(warm_up, 1, args.renditions)?;
    let affordable = time.as_secs_f64() * 1e3 / Latency::new(latencies).p50;
    let repeat = args.repeat.min((affordable as u32).max(1));
    kernels(&Args { repeat, ..args.clone() }, &device.info().selection(), plan, &stream.clip)
}

/// Pairs that are scored one after another after the first, to measure one when everything is warm.
const LATER: usize = 15;

/// Measures the milliseconds of each step from a fresh process to scores.
pub fn start(args: &Args, plan: &Arc<Plan>) -> Result<Vec<(&'static str, f64)>, Box<dyn Error>> {
    let clip = Clip::new(args.format(), Content::Natural, 2, 1);
    let mut steps = vec![];
    let mut last = Instant::now();
    let mut step = |name| {
        steps.push((name, last.elapsed().as_secs_f64() * 1e3));
        last = Instant::now();
    };
    gpu::devices();
    step("load the runtime, find GPUs");
    let device = hip::open(&args.selection())?;
    step("open the GPU");
    let hip = Hip::open(&device.info().selection(), args.in_flight())?;
    let mut session = Session::new(plan.clone(), Box::new(hip), 1);
    session.set_video(video());
    session.prepare(clip.geometry(), &vec![None; args.renditions])?;
    step("load the kernels, set up");
    let mut stream = Stream { session, clip, submitted: 0 };
    let mut pairs = |count| -> Result<Vec<f64>, EngineError> {
        let pairs = (0..count).map(|_| stream.run(Duration::ZERO, 1, args.renditions));
        Ok(pairs.collect::<Result<Vec<_>, _>>()?.concat())
    };
    steps.extend(pairs(1)?.into_iter().map(|ms| ("first pair", ms)));
    steps.push(("a later pair, median", Latency::new(pairs(LATER)?).p50));
    Ok(steps)
}
