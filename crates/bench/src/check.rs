// SPDX-License-Identifier: MPL-2.0

//! The comparison of the GPU with the CPU: sums and scores, bit for bit.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::EngineError;
use engine::backend::cpu::Cpu;
use engine::backend::hip::{self, Hip};
use engine::backend::{Backend, BackendError, Completion, Group, Ticket};
use engine::frame::BitDepth;
use engine::metrics::FrameSums;
use engine::plan::Plan;
use engine::random::noise;
use engine::session::{PairScore, Session, Tag};
use gpu::Device;
use serde::Serialize;

use crate::Args;
use crate::clip::{Clip, Content, Format, Place, video};

const CONTENTS: [Content; 4] = [Content::Natural, Content::Noise, Content::Extremes, Content::Flat];
const PLACES: [Place; 3] = [Place::Device, Place::Pinned, Place::Host];
/// Bit depths to check.
const DEPTHS: [u32; 3] = [8, 10, 12];
/// Smallest side of random sizes: ADM's minimum.
const SMALLEST: usize = 33;
/// Pairs of each clip: enough for motion over two frames, and for each in-flight slot to be used twice.
const PAIRS: usize = 5;

/// One comparison.
struct Case {
    format: Format,
    content: Content,
    place: Place,
    in_flight: usize,
    /// Every n-th pair is scored.
    subsample: u32,
    seed: u32,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, content, place, in_flight, subsample, .. } = self;
        let Format { width, height, depth, align, interleaved, high } = format;
        let bits = depth.bits();
        write!(f, "{width}x{height}, {bits} bit, {content:?}, {place:?} memory, {in_flight} in flight, ")?;
        write!(f, "subsample {subsample}, align {align}, interleaved {interleaved}, high {high}")
    }
}

/// The result of the comparisons.
#[derive(Serialize)]
pub struct Checked {
    device: String,
    /// Number of clips to compare.
    planned: usize,
    /// Number of clips that were compared.
    clips: usize,
    /// Number of clips that both the CPU and the GPU reject for the same reason, such as a size below a metric's
    /// minimum.
    refused: usize,
    /// The clips that differ, each with its differences.
    pub differing: Vec<String>,
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, planned, clips, refused, differing } = self;
        match differing.len() {
            0 => write!(f, "{device}: {clips} clips, sums and scores equal those of the CPU")?,
            count => write!(f, "{device}: {count} of {clips} clips differ from the CPU")?,
        }
        if *refused > 0 {
            write!(f, "; {refused} were refused by both")?;
        }
        let left = planned - clips - refused;
        if left > 0 { write!(f, "; there was no time for {left}") } else { Ok(()) }
    }
}

/// A comparison that failed.
#[derive(Debug)]
struct Failed {
    case: String,
    reason: Box<dyn Error>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.case, self.reason)
    }
}

impl Error for Failed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.reason)
    }
}

/// Compares all clips that the arguments select, until the time is up. Prints each difference to stderr at once.
pub fn check(args: &Args, plan: &Arc<Plan>, time: Duration) -> Result<Checked, Box<dyn Error>> {
    let start = Instant::now();
    let device = hip::open(&args.selection())?;
    let sizes = args.check_sizes().into_iter().flat_map(|size| {
        DEPTHS.into_iter().flat_map(move |depth| CONTENTS.map(|content| (size, depth, content)))
    });
    let mut random = Random(0);
    let planned: Vec<_> = sizes.chain((0..args.check_random()).map(|_| random.clip())).collect();
    if planned.is_empty() {
        return Err("there is nothing to check".into());
    }
    let mut checked = Checked {
        device: device.info().to_string(),
        planned: planned.len(),
        clips: 0,
        refused: 0,
        differing: vec![],
    };
    for (seed, (size, depth, content)) in planned.into_iter().enumerate() {
        if checked.clips > 0 && start.elapsed() > time {
            break;
        }
        let case = random.case(size, depth, content, seed as u32)?;
        let failed = |reason| Failed { case: case.to_string(), reason };
        let Some(differences) = case.compare(plan, &device).map_err(failed)? else {
            checked.refused += 1;
            continue;
        };
        checked.clips += 1;
        if !differences.is_empty() {
            let differing = format!("{case}: {}", differences.join(", "));
            eprintln!("{differing}");
            checked.differing.push(differing);
        }
    }
    Ok(checked)
}

/// Pseudo-random numbers, the same in each run.
struct Random(u32);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 += 1;
        noise(self.0, 0, 0) as usize % limit
    }

    fn of<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        choices[self.below(N)]
    }

    /// Returns a size, sometimes the smallest one, a bit depth and a content.
    fn clip(&mut self) -> ((usize, usize), u32, Content) {
        let mut side = || {
            let most = self.of([8, 100, 700]);
            SMALLEST + self.below(most)
        };
        ((side(), side()), self.of(DEPTHS), self.of(CONTENTS))
    }

    fn case(
        &mut self,
        (width, height): (usize, usize),
        depth: u32,
        content: Content,
        seed: u32,
    ) -> Result<Case, Box<dyn Error>> {
        let depth = BitDepth::new(depth).ok_or("no such depth")?;
        let align = self.of([2, 16, 256]);
        let (interleaved, high) = (self.below(2) == 0, self.below(2) == 0);
        Ok(Case {
            format: Format { width, height, depth, align, interleaved, high },
            content,
            place: self.of(PLACES),
            in_flight: 1 + self.below(PAIRS),
            subsample: self.of([1, 1, 1, 2]),
            seed,
        })
    }
}

/// Fetches the oldest sums.
fn next(
    backend: &mut dyn Backend,
    tickets: &mut VecDeque<Ticket>,
) -> Result<Option<Vec<FrameSums>>, BackendError> {
    tickets.pop_front().map(|ticket| backend.wait(ticket)).transpose()
}

impl Case {
    /// Returns the differences; `None` if both reject the clip.
    fn compare(&self, plan: &Arc<Plan>, device: &Arc<Device>) -> Result<Option<Vec<String>>, Box<dyn Error>> {
        let clip = Clip::new(self.format, self.content, PAIRS, self.seed);
        let on_cpu = self.run(Box::new(Cpu::new(0)?), plan, &clip);
        let clip = clip.moved(self.place, device)?;
        let hip = Hip::open(&device.info().selection(), self.in_flight)?;
        let on_gpu = self.run(Box::new(hip), plan, &clip);
        let (on_cpu, on_gpu) = match (on_cpu, on_gpu) {
            (Err(cpu), Err(gpu)) if cpu.to_string() == gpu.to_string() => return Ok(None),
            (cpu, gpu) => (cpu?, gpu?),
        };
        let mut differences = vec![];
        for (index, (cpu, gpu)) in on_cpu.0.iter().zip(&on_gpu.0).enumerate() {
            let metrics = cpu.differences(gpu).into_iter();
            differences.extend(metrics.map(|metric| format!("{metric} of pair {index}")));
        }
        if on_cpu.0.len() != PAIRS || on_gpu.0.len() != PAIRS {
            differences.push("number of sums".into());
        }
        let scores = |scores: &[PairScore]| -> Vec<_> {
            let bits = |values: &Vec<f64>| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            scores.iter().map(|score| (score.discont, score.values.as_ref().map(bits))).collect()
        };
        if on_cpu.1.len() != PAIRS || scores(&on_cpu.1) != scores(&on_gpu.1) {
            differences.push("scores".into());
        }
        Ok(Some(differences))
    }

    /// Computes the sums and the scores with a backend.
    fn run(
        &self,
        mut backend: Box<dyn Backend>,
        plan: &Arc<Plan>,
        clip: &Clip,
    ) -> Result<(Vec<FrameSums>, Vec<PairScore>), EngineError> {
        let geometry = clip.geometry();
        backend.prepare(&plan.work.suited(&video(), geometry), geometry, &[None])?;
        let mut tickets = VecDeque::new();
        let mut sums = vec![];
        for index in 0..clip.len() {
            if tickets.len() == backend.depth() {
                sums.extend(next(&mut *backend, &mut tickets)?.into_iter().flatten());
            }
            let history_only = !index.is_multiple_of(self.subsample as usize);
            tickets.push_back(backend.submit(Group { history_only, ..clip.group(index) })?);
        }
        while let Some(fetched) = next(&mut *backend, &mut tickets)? {
            sums.extend(fetched);
        }
        let mut session = Session::new(plan.clone(), backend, self.subsample);
        session.set_video(video());
        session.prepare(geometry, &[None])?;
        let mut scores = vec![];
        let mut completions = VecDeque::new();
        for index in 0..clip.len() {
            while !session.room() {
                completions.pop_front().into_iter().flatten().for_each(|complete: Completion| complete());
                scores.extend(session.collect()?);
            }
            let group = clip.group(index);
            session.submit(Tag::default(), group.reference, group.distorted)?;
            completions.push_back(session.completion());
        }
        completions.into_iter().flatten().for_each(|complete| complete());
        session.end_run(false);
        scores.extend(session.collect()?);
        Ok((sums, scores))
    }
}
