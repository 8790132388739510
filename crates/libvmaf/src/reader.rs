// SPDX-License-Identifier: MPL-2.0

//! From pictures to scores: pairs are checked, handed to a backend, and their scores stored in the order in which the pairs
//! came.
//!
//! Several pairs are computed at a time ([`flight`](crate::flight)); a query for scores waits for those of the pairs before.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::backend::Group;
use engine::frame::Geometry;
use engine::metrics::pairwise::{FloatMotionRule, MotionRule, PairScorer, Pairwise};
use engine::metrics::{FrameSums, Work};
use engine::video::Video;
use gpu::Selection;

use crate::Errno;
use crate::backend::{Choice, Task, failed};
use crate::collector::{Collector, INDEX_LIMIT};
use crate::flight::{Flight, Landed, Pair};
use crate::log::{Level, log};
use crate::picture::{Format, Held, Shared, View};
use crate::registered::{Refusal, Registered};

/// Names of the figures of all pairs together; planes without samples have none in the engine.
const AGGREGATES: [&str; 3] = ["apsnr_y", "apsnr_cb", "apsnr_cr"];

/// The way in which a registered extractor treats pictures of the present format.
enum Part {
    Refused(Refusal),
    /// It computes nothing.
    Idle,
    Computed(Box<Computed>),
}

struct Computed {
    pairwise: Pairwise,
    scorer: PairScorer,
    motion: Option<MotionRule>,
    float_motion: Option<FloatMotionRule>,
}

/// Computes pairs of one format for the extractors that were registered when it was made.
struct Computing {
    /// `None` if there is nothing to compute.
    flight: Option<Flight>,
    format: Format,
    geometry: Geometry,
    parts: Vec<Part>,
}

/// The extractors that a pair goes through, and the error that ends it.
struct Schedule {
    active: Vec<usize>,
    /// The code that the caller gets.
    error: Option<Errno>,
    /// The extractor that it is about, if libvmaf says so.
    named: Option<usize>,
}

/// The extractors of a context, and the pairs on their way through them.
pub struct Reader {
    threads: u32,
    subsample: u32,
    /// `Cpu` also after a GPU has failed.
    choice: Choice,
    registered: Vec<Registered>,
    /// The format of the first pair.
    format: Option<Format>,
    /// Pairs that were handed over, also those that were refused.
    pairs: u32,
    is_flushed: bool,
    /// The latest pairs, the last one first.
    previous: VecDeque<Pair>,
    computing: Option<Computing>,
    /// A pair could not be computed.
    has_lost: bool,
}

impl Reader {
    /// No extractors, no pairs.
    pub fn new(threads: u32, subsample: u32, choice: Choice) -> Self {
        Self {
            threads,
            subsample,
            choice,
            registered: vec![],
            format: None,
            pairs: 0,
            is_flushed: false,
            previous: VecDeque::new(),
            computing: None,
            has_lost: false,
        }
    }

    /// Computing threads that were asked for.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// Pairs that were handed over.
    pub fn pairs(&self) -> u32 {
        self.pairs
    }

    /// The format of the first pair.
    pub fn format(&self) -> Option<Format> {
        self.format
    }

    /// Every so many pairs have scores that count.
    pub fn subsample(&self) -> u32 {
        self.subsample.max(1)
    }

    /// Scores on the GPU whose CUDA context the caller has given, unless the CPU was chosen.
    pub fn use_gpu(&mut self, selection: Selection) {
        if self.choice != Choice::Cpu {
            self.choice = Choice::Given(selection);
        }
    }

    /// Adds an extractor for the pairs that follow, unless one with the same scores is there.
    pub fn register(&mut self, new: Registered) {
        if self.registered.iter().any(|other| other.is_same(&new)) {
            return;
        }
        self.registered.push(new);
    }

    /// Checks the formats of a pair against each other and against the first pair.
    pub fn check(&mut self, [reference, distorted]: [Format; 2]) -> Result<(), Errno> {
        if self.is_flushed {
            return Err(Errno::INVALID);
        }
        self.pairs = self.pairs.wrapping_add(1);
        let first = *self.format.get_or_insert(reference);
        (reference == distorted && reference == first).then_some(()).ok_or(Errno::INVALID)
    }

    /// Takes a checked pair. `take` takes both pictures away from the caller, who keeps them after an error.
    pub fn read(
        &mut self,
        collector: &mut Collector,
        pair: [View; 2],
        take: impl FnOnce() -> Result<[Arc<Shared>; 2], Errno>,
        index: u32,
    ) -> Result<(), Errno> {
        let format = pair[0].format;
        let geometry = format.geometry().ok_or(Errno::INVALID)?;
        if index >= INDEX_LIMIT {
            return Err(Errno::INVALID);
        }
        self.wait_for(collector, index);
        if self.needs_building() {
            self.drain(collector);
            self.computing = None;
            self.computing = Some(self.build(format, geometry, None)?);
        }
        self.expect_gpu(collector);
        pair.iter().try_for_each(View::wait)?;
        let left_out = !index.is_multiple_of(self.subsample());
        let Schedule { active, error, named } = self.schedule(collector, index, left_out);
        if let Some(error) = error {
            self.compute_apart(collector, &pair, index, &active)?;
            self.warn(named, index);
            return Err(error);
        }
        self.make_room(collector);
        let [reference, distorted] = take()?;
        let [first, second] = pair;
        let (reference, distorted) = (Held::new(first, reference), Held::new(second, distorted));
        let pair = Pair { reference, distorted, history_only: self.is_history(&active) };
        self.submit(pair.clone(), index, active);
        self.warn(named, index);
        self.previous.push_front(pair);
        self.previous.truncate(2);
        Ok(())
    }

    fn warn(&self, named: Option<usize>, index: u32) {
        if let Some(extractor) = named.and_then(|i| self.registered.get(i)) {
            let name = extractor.name();
            let text = format_args!("problem with feature extractor \"{name}\" at index {}", index as i32);
            log(Level::Warning, text);
        }
    }

    /// Returns true if extractors were added since the backend was set up.
    fn needs_building(&mut self) -> bool {
        let Some(computing) = &self.computing else { return true };
        if computing.flight.as_ref().is_some_and(Flight::is_without_gpu) {
            self.choice = Choice::Cpu;
        }
        computing.parts.len() != self.registered.len()
    }

    /// Begins to open a GPU if that is worth its time, and goes on there once it is open.
    fn expect_gpu(&mut self, collector: &mut Collector) {
        let expects = self.choice == Choice::Auto && !self.previous.is_empty();
        if expects && self.flight().is_some_and(Flight::expects_gpu) {
            self.drain(collector);
            let previous = self.previous.clone();
            self.flight().into_iter().for_each(|flight| flight.go_to_gpu(&previous));
        }
    }

    /// Sets up a backend for the registered extractors, or the CPU for some of them. It knows the latest pairs.
    fn build(&self, format: Format, geometry: Geometry, only: Option<&[usize]>) -> Result<Computing, Errno> {
        let mut work = Work::default();
        let mut parts = vec![];
        for (i, registered) in self.registered.iter().enumerate() {
            let wanted = only.is_none_or(|only| only.contains(&i));
            parts.push(match registered.refusal(format, geometry) {
                Some(refusal) => Part::Refused(refusal),
                None if !wanted => Part::Idle,
                None => match registered.plan(&mut work)? {
                    None => Part::Idle,
                    Some(pairwise) => match pairwise.scorer(geometry) {
                        Ok(scorer) => {
                            let (motion, float_motion) = (pairwise.motion(), pairwise.float_motion(&work));
                            Part::Computed(Box::new(Computed { pairwise, scorer, motion, float_motion }))
                        }
                        Err(_) => Part::Refused(Refusal::Format(Errno::INVALID)),
                    },
                },
            });
        }
        let mut flight = None;
        if work.parts().next().is_some() {
            let choice = if only.is_none() { self.choice } else { Choice::Cpu };
            // The interface has no rate and no colorimetry.
            let work = work.suited(&Video::default(), geometry);
            let task = Task { work, geometry, threads: self.threads, subsamples: self.subsample() > 1 };
            flight = Some(Flight::new(task, &self.previous, choice).map_err(|error| failed(&error))?);
        }
        Ok(Computing { flight, format, geometry, parts })
    }

    /// Decides which extractors have scores for a pair: all up to the first that refuses it.
    fn schedule(&mut self, collector: &Collector, index: u32, left_out: bool) -> Schedule {
        let mut schedule = Schedule { active: vec![], error: None, named: None };
        let Some(computing) = &self.computing else { return schedule };
        let mut order: Vec<usize> = (0..self.registered.len()).collect();
        if self.threads > 0 {
            order.sort_by_key(|i| !self.registered[*i].is_immediate());
        }
        for i in order {
            let registered = &mut self.registered[i];
            if left_out && !registered.is_never_left_out() {
                continue;
            }
            let error = match &computing.parts[i] {
                Part::Refused(Refusal::Format(error)) => {
                    registered.complain(computing.format);
                    Some((*error, false))
                }
                Part::Refused(Refusal::Picture(error)) => {
                    registered.is_initialized = true;
                    Some((*error, true))
                }
                Part::Idle => {
                    registered.is_initialized = true;
                    None
                }
                Part::Computed(computed) => {
                    registered.is_initialized = true;
                    let lag = match (&computed.motion, &computed.float_motion) {
                        (Some(rule), _) if !rule.is_zero() => rule.lag(),
                        (None, Some(rule)) if rule.is_zero() => 0,
                        _ => usize::from(registered.compares_with_last()),
                    };
                    let lacks = lag > 0 && index as usize >= lag && self.previous.len() < lag;
                    if !lacks {
                        schedule.active.push(i);
                    }
                    let known =
                        |(_, name): &(usize, String)| collector.score(name.as_bytes(), index).is_some();
                    let count = if computed.motion.is_some() { 1 } else { registered.outputs.len() };
                    let twice = match &computed.float_motion {
                        Some(rule) if !rule.is_zero() => {
                            registered.latest.is_some_and(|(last, _)| last == index)
                        }
                        _ => registered.outputs.iter().take(count).any(known),
                    };
                    (lacks || twice).then_some((Errno::INVALID, true))
                }
            };
            if let Some((error, is_named)) = error {
                // With threads, libvmaf computes later, and nothing comes of the error but that scores are missing.
                let is_known = self.threads == 0 || registered.is_immediate();
                schedule.error = is_known.then_some(error);
                schedule.named = is_named.then_some(i);
                break;
            }
        }
        schedule
    }

    /// Computes a pair of which the caller keeps the pictures, and which is not the predecessor of the next one.
    fn compute_apart(
        &mut self,
        collector: &mut Collector,
        pair: &[View; 2],
        index: u32,
        active: &[usize],
    ) -> Result<(), Errno> {
        if active.is_empty() {
            return Ok(());
        }
        self.drain(collector);
        let format = pair[0].format;
        let geometry = format.geometry().ok_or(Errno::INVALID)?;
        let mut computing = self.build(format, geometry, Some(active))?;
        if let Some(flight) = &mut computing.flight {
            // SAFETY: the caller's structures hold both pictures until the call is over.
            let [first, second] = pair.each_ref().map(|view| unsafe { view.download() });
            let copies = first.and_then(|first| Ok([first, second?])).map_err(|error| failed(&error))?;
            let on_host = |i: usize| copies[i].as_ref().map_or(&pair[i], |(view, _)| view);
            // SAFETY: as above, and the backend computes while they are submitted, as they have no lease.
            let [reference, distorted] = [0, 1].map(|i| unsafe { on_host(i).picture(None) });
            let history_only = self.is_history(active);
            let sums = flight.compute(Group { history_only, ..Group::pair(reference, distorted) });
            let sums = sums.map_err(|error| failed(&error))?;
            store(&mut computing, &mut self.registered, collector, &sums, index, active);
        }
        Ok(())
    }

    fn is_history(&self, active: &[usize]) -> bool {
        active.iter().all(|i| self.registered[*i].is_never_left_out())
    }

    fn flight(&mut self) -> Option<&mut Flight> {
        self.computing.as_mut()?.flight.as_mut()
    }

    fn submit(&mut self, pair: Pair, index: u32, active: Vec<usize>) {
        if let Some(flight) = self.flight() {
            flight.submit(pair, index, active);
        }
    }

    /// Waits until another pair can be submitted.
    fn make_room(&mut self, collector: &mut Collector) {
        self.flight().into_iter().for_each(Flight::make_room);
        while let Some(landed) = self.flight().and_then(Flight::landed) {
            self.store(collector, landed);
        }
        while self.flight().is_some_and(|flight| flight.is_full()) {
            self.collect(collector);
        }
    }

    /// Waits for the oldest pair, and stores its scores. Returns false if there is none.
    fn collect(&mut self, collector: &mut Collector) -> bool {
        let landed = self.flight().and_then(Flight::land);
        landed.map(|landed| self.store(collector, landed)).is_some()
    }

    fn store(&mut self, collector: &mut Collector, Landed { index, active, sums }: Landed) {
        match (sums, &mut self.computing) {
            (Ok(sums), Some(computing)) => {
                store(computing, &mut self.registered, collector, &sums, index, &active);
            }
            (Ok(_), None) => (),
            (Err(error), _) => {
                failed(&error);
                self.has_lost = true;
            }
        }
    }

    /// Waits for all pairs, and stores their scores.
    pub fn drain(&mut self, collector: &mut Collector) {
        while self.collect(collector) {}
    }

    /// Waits for the pair of an index, if it is being computed.
    pub fn wait_for(&mut self, collector: &mut Collector, index: u32) {
        while self.flight().is_some_and(|flight| flight.has(index)) {
            self.collect(collector);
        }
    }

    /// Ends the input: stores what depends on all pairs.
    pub fn flush(&mut self, collector: &mut Collector) -> Result<(), Errno> {
        if self.is_flushed {
            return Err(Errno::INVALID);
        }
        self.drain(collector);
        let mut order: Vec<usize> = (0..self.registered.len()).collect();
        if self.threads > 0 {
            order.sort_by_key(|i| !self.registered[*i].is_immediate());
        }
        let mut fails = self.has_lost;
        for i in order {
            let registered = &self.registered[i];
            if !registered.is_initialized && (self.threads == 0 || registered.is_immediate()) {
                fails = true;
                continue;
            }
            fails |= self.finish(i, collector).is_err();
        }
        if fails {
            return Err(Errno::INVALID);
        }
        self.is_flushed = true;
        Ok(())
    }

    fn finish(&self, extractor: usize, collector: &mut Collector) -> Result<(), Errno> {
        let registered = &self.registered[extractor];
        let Some(Computing { parts, geometry, .. }) = &self.computing else { return Ok(()) };
        let Some(Part::Computed(computed)) = parts.get(extractor) else { return Ok(()) };
        if let Some(rule) = &computed.motion {
            finish_motion(rule, registered, collector);
        }
        if let Some(rule) = &computed.float_motion {
            finish_float_motion(rule, registered, collector);
        }
        if !registered.totals.is_empty() {
            let known = computed.pairwise.aggregates(&registered.totals, *geometry);
            // As libvmaf does it for planes that PSNR lacks.
            let is_psnr = known.iter().any(|(known, _)| AGGREGATES.contains(known));
            let lacks = |name: &&str| is_psnr && !known.iter().any(|(known, _)| known == name);
            let lacking = AGGREGATES.into_iter().filter(lacks).map(|name| (name, f64::NEG_INFINITY));
            for (name, value) in known.iter().copied().chain(lacking) {
                let set = collector.set_aggregate(name, value);
                // Of several variants of another metric, the first one has the name.
                if is_psnr {
                    set?;
                }
            }
        }
        Ok(())
    }

    /// The score of a name that is stored at the flush only, if it cannot change any more: motion as soon as the next pair
    /// is there.
    pub fn early_score(&mut self, collector: &mut Collector, name: &str, index: u32) -> Option<f64> {
        if self.is_flushed {
            return None;
        }
        self.wait_for(collector, index.checked_add(1)?);
        if let Some(score) = collector.score(name.as_bytes(), index) {
            return Some(score);
        }
        let Some(Computing { parts, .. }) = &self.computing else { return None };
        for (registered, part) in self.registered.iter_mut().zip(parts) {
            let Part::Computed(computed) = part else { continue };
            let Some(rule) = &computed.motion else { continue };
            let [(_, difference), (_, motion2), (_, motion3)] = &registered.outputs[..] else { continue };
            if name != motion2 && name != motion3 {
                continue;
            }
            let score = |i: u32| collector.score(difference.as_bytes(), i);
            while score(registered.contiguous).is_some() {
                registered.contiguous += 1;
            }
            let table = MotionTable { rule, count: registered.contiguous, score };
            if index.checked_add(1)? >= table.count || table.count as usize <= rule.lag() {
                return None;
            }
            return if name == motion2 { table.motion2(index) } else { table.motion3(index) };
        }
        None
    }
}

/// Stores the scores of a pair.
fn store(
    computing: &mut Computing,
    registered: &mut [Registered],
    collector: &mut Collector,
    sums: &FrameSums,
    index: u32,
    active: &[usize],
) {
    for i in active {
        let (Some(Part::Computed(computed)), Some(registered)) =
            (computing.parts.get_mut(*i), registered.get_mut(*i))
        else {
            continue;
        };
        if let Some(rule) = &computed.float_motion {
            // One that cannot be stored is named in the log.
            let _ = store_float_motion(rule, registered, collector, sums, index);
            continue;
        }
        let values = match &computed.motion {
            None if index == 0 && registered.compares_with_last() => vec![0.0],
            Some(rule) => {
                let is_first = rule.is_zero() || (index as usize) < rule.lag();
                vec![if is_first { 0.0 } else { rule.difference(sums, computing.geometry) }]
            }
            None => computed.scorer.values(sums),
        };
        let totals = computed.pairwise.totals(sums, computing.geometry);
        registered.totals.resize(totals.len(), 0);
        for (total, more) in registered.totals.iter_mut().zip(totals) {
            *total = total.wrapping_add(more);
        }
        let yielded = registered.outputs.iter().filter(|(_, name)| registered.yields(name, computing.format));
        let scores = yielded.filter_map(|(output, name)| Some((name.clone(), *values.get(*output)?)));
        let fractions = match &computed.motion {
            Some(_) => {
                values.first().map(|value| ("integer_motion".to_string(), *value)).into_iter().collect()
            }
            None => computed.pairwise.fractions(sums, computing.geometry).unwrap_or_default(),
        };
        let fractions =
            fractions.into_iter().filter_map(|(short, value)| Some((registered.fraction(&short)?, value)));
        for (name, value) in scores.chain(fractions) {
            if collector.append(name.as_bytes(), value, index).is_err() && registered.ends_at_first_error() {
                break;
            }
        }
    }
}

/// Motion of contiguous pictures from 0 on, of which only the differences are stored before the flush.
struct MotionTable<'a, F> {
    rule: &'a MotionRule,
    count: u32,
    score: F,
}

impl<F: Fn(u32) -> Option<f64>> MotionTable<'_, F> {
    fn motion2(&self, index: u32) -> Option<f64> {
        let lag = self.rule.lag() as u32;
        if index < lag {
            return Some(0.0);
        }
        if index + 1 >= self.count {
            return (self.score)(index);
        }
        let next = (self.score)(index + 1)?;
        if index + 1 < 2 * lag {
            return Some(next);
        }
        let own = (self.score)(index + 1 - lag)?;
        Some(if own < next { own } else { next })
    }

    /// `motion3` before averaging.
    fn blended(&self, index: u32) -> Option<f64> {
        let lag = self.rule.lag() as u32;
        if index >= lag {
            return Some(self.rule.blend(self.motion2(index)?));
        }
        // Pictures that are compared with none have the value of the first that is.
        if self.count > lag { Some(self.rule.blend((self.score)(lag)?)) } else { Some(0.0) }
    }

    fn motion3(&self, index: u32) -> Option<f64> {
        let own = self.blended(index)?;
        let averages = self.rule.averages() && index >= self.rule.lag() as u32;
        Some(if averages { (own + self.blended(index - 1)?) / 2.0 } else { own })
    }
}

/// Stores `motion2` and `motion3` of contiguous pictures from 0 on.
fn finish_motion(rule: &MotionRule, registered: &Registered, collector: &mut Collector) {
    let [(_, difference), (_, motion2), (_, motion3)] = &registered.outputs[..] else { return };
    let differences: Vec<f64> =
        (0..).map_while(|index| collector.score(difference.as_bytes(), index)).collect();
    let score = |index: u32| differences.get(index as usize).copied();
    let table = MotionTable { rule, count: differences.len() as u32, score };
    for index in 0..table.count {
        for (name, value) in [(motion2, table.motion2(index)), (motion3, table.motion3(index))] {
            if let Some(value) = value {
                // One that is there already stays, as in libvmaf, and is named in the log.
                let _ = collector.append(name.as_bytes(), value, index);
            }
        }
    }
}

/// Stores the scores of floating-point motion that are known once a picture is there.
fn store_float_motion(
    rule: &FloatMotionRule,
    registered: &mut Registered,
    collector: &mut Collector,
    sums: &FrameSums,
    index: u32,
) -> Result<(), Errno> {
    let (motion2, motion, motion3) = match &registered.outputs[..] {
        [(_, motion2), (_, motion), (_, motion3)] => (motion2, Some(motion), motion3),
        [(_, motion2), (_, motion3)] => (motion2, None, motion3),
        _ => return Ok(()),
    };
    let mut append = |name: &str, value: f64, index: u32| collector.append(name.as_bytes(), value, index);
    if rule.is_zero() {
        return [Some(motion2), Some(motion3), motion]
            .into_iter()
            .flatten()
            .try_for_each(|name| append(name, 0.0, index));
    }
    let difference = if index == 0 { 0.0 } else { rule.difference(sums) };
    let before = registered.latest;
    // A picture that comes again has scores already.
    if before.is_none_or(|(last, _)| last != index) {
        registered.latest = Some((index, difference));
    }
    if index == 0 {
        let stored = append(motion2, 0.0, index);
        return motion.map_or(Ok(()), |name| append(name, 0.0, index)).and(stored);
    }
    motion.map_or(Ok(()), |name| append(name, rule.limited(difference), index))?;
    if index == 1 {
        return append(motion3, rule.blended(difference), 0);
    }
    let least =
        before.map_or(difference, |(_, before)| if before < difference { before } else { difference });
    let stored = append(motion2, rule.limited(least), index - 1);
    append(motion3, rule.blended(least), index - 1).and(stored)
}

/// Stores those of the last picture.
fn finish_float_motion(rule: &FloatMotionRule, registered: &Registered, collector: &mut Collector) {
    let [(_, motion2), .., (_, motion3)] = &registered.outputs[..] else { return };
    let Some((index, difference)) = registered.latest else { return };
    if rule.is_zero() {
        return;
    }
    // One that is there already stays, as in libvmaf, and is named in the log.
    if index > 0 {
        let _ = collector.append(motion2.as_bytes(), rule.limited(difference), index);
    }
    let _ = collector.append(motion3.as_bytes(), rule.blended(difference), index);
}
