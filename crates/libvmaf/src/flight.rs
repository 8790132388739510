// SPDX-License-Identifier: MPL-2.0

//! Pairs on their way through a backend, which end in the order in which they came.
//!
//! If a GPU fails, the CPU computes the pairs that are on their way, and all later ones. The CPU also computes a share of the
//! pairs a second time ([`audit`](engine::audit)); such a pair ends once both have computed it, and a GPU that computes other
//! sums has failed.

use std::collections::VecDeque;
use std::fmt::Display;
use std::time::Instant;

use engine::audit::Audit;
use engine::backend::{Backend, BackendError, Group, Ticket};
use engine::metrics::{FrameSums, Work};
use gpu::Selection;

use crate::backend::{Choice, Gpu, OPENING_TIME, Opening, Task, warn_without_gpu};
use crate::locked::Busy;
use crate::log::{Level, log};
use crate::picture::Held;

/// So many pairs wait for one that is computed a second time. A GPU computes several hundred while the CPU computes one, and a
/// pair that waits has sums and no pictures.
const MOST: usize = 4096;

/// The pictures of a pair.
#[derive(Clone)]
pub struct Pair {
    pub reference: Held,
    pub distorted: Held,
    /// Only what is never left out is computed.
    pub history_only: bool,
}

impl Pair {
    fn group(&self) -> Group<'static> {
        let Self { reference, distorted, history_only } = self;
        Group { history_only: *history_only, ..Group::pair(reference.picture(), distorted.picture()) }
    }

    /// Returns the pair in memory that the CPU reads.
    pub fn on_host(&self) -> Result<Self, BackendError> {
        let (reference, distorted) = (self.reference.on_host()?, self.distorted.on_host()?);
        Ok(Self { reference, distorted, history_only: self.history_only })
    }

    /// Returns what later pairs need of it.
    pub fn history(&self, work: &Work) -> Group<'static> {
        let distorted = (work.history() > 0).then(|| (0, self.distorted.picture()));
        Group {
            reference: self.reference.picture(),
            distorted: distorted.into_iter().collect(),
            history_only: true,
        }
    }
}

/// A pair at the end of its way.
pub struct Landed {
    pub index: u32,
    /// The extractors whose scores are stored, in this order.
    pub active: Vec<usize>,
    pub sums: Result<FrameSums, BackendError>,
}

/// A pair on its way.
struct Flying {
    index: u32,
    active: Vec<usize>,
    ticket: Option<Ticket>,
    /// The pictures, and the pairs before, the last one first, while another backend may need them.
    pictures: Option<(Pair, VecDeque<Pair>)>,
    sums: Option<Result<FrameSums, BackendError>>,
    /// Its number, if it is computed a second time.
    audit: Option<u64>,
}

/// Where pairs are computed.
enum Place {
    /// The CPU, since then.
    Cpu(Instant),
    /// The CPU, until a GPU is there.
    Opening(Opening),
    Gpu {
        _busy: Busy,
    },
    /// The CPU, as a GPU has failed or there is none.
    OnlyCpu,
}

/// A backend with the pairs that it computes.
pub struct Flight {
    task: Task,
    backend: Box<dyn Backend>,
    place: Place,
    audit: Option<Audit>,
    /// On a GPU, the latest pairs, the last one first.
    previous: VecDeque<Pair>,
    flying: VecDeque<Flying>,
}

impl Flight {
    /// Prepares a GPU, or else the CPU. `previous`: the latest pairs, the last one first.
    pub fn new(task: Task, previous: &VecDeque<Pair>, choice: Choice) -> Result<Self, BackendError> {
        let (place, audit, flying) = (Place::Cpu(Instant::now()), None, VecDeque::new());
        let selection = match choice {
            Choice::Hip => Some(Selection::default()),
            Choice::Given(selection) => Some(selection),
            Choice::Auto | Choice::Cpu => None,
        };
        if let Some(selection) = selection {
            match task.gpu(&selection).and_then(|gpu| Gpu::new(gpu, &task, previous)) {
                Ok(Gpu { backend, audit, busy }) => {
                    let previous = task.earlier(previous).rev().cloned().collect();
                    let (place, audit) = (Place::Gpu { _busy: busy }, Some(audit));
                    return Ok(Self { task, backend: Box::new(backend), place, audit, previous, flying });
                }
                Err(error) if choice == Choice::Hip => return Err(error),
                Err(error) => warn_without_gpu(&error),
            }
        }
        let backend = Box::new(task.cpu(previous)?);
        Ok(Self { task, backend, place, audit, previous: VecDeque::new(), flying })
    }

    fn is_on_gpu(&self) -> bool {
        matches!(self.place, Place::Gpu { .. })
    }

    /// Returns true if a GPU has failed, or could not be opened.
    pub fn is_without_gpu(&self) -> bool {
        matches!(self.place, Place::OnlyCpu)
    }

    /// Begins to open a GPU once the CPU has computed for some time. Returns true when that has ended.
    pub fn expects_gpu(&mut self) -> bool {
        if matches!(self.place, Place::Cpu(since) if since.elapsed() >= OPENING_TIME) {
            self.place = match Opening::new(self.task.clone()) {
                Ok(opening) => Place::Opening(opening),
                Err(error) => {
                    warn_without_gpu(&error);
                    Place::OnlyCpu
                }
            };
        }
        matches!(&self.place, Place::Opening(opening) if opening.is_done())
    }

    /// Goes to the GPU that was opened, if there is one. Nothing may be on its way. `previous`: the latest pairs, the last one
    /// first.
    pub fn go_to_gpu(&mut self, previous: &VecDeque<Pair>) {
        let Place::Opening(opening) = std::mem::replace(&mut self.place, Place::OnlyCpu) else { return };
        let Some(gpu) = opening.end() else { return };
        match Gpu::new(gpu, &self.task, previous) {
            Ok(Gpu { backend, audit, busy }) => {
                self.backend = Box::new(backend);
                self.place = Place::Gpu { _busy: busy };
                self.audit = Some(audit);
                self.previous = self.task.earlier(previous).rev().cloned().collect();
            }
            Err(error) => warn_without_gpu(&error),
        }
    }

    /// Returns true if the pair of an index is on its way.
    pub fn has(&self, index: u32) -> bool {
        self.flying.iter().any(|flying| flying.index == index)
    }

    /// Waits until another pair can be submitted.
    pub fn make_room(&mut self) {
        let computed = |flight: &Self| flight.flying.iter().filter(|flying| flying.sums.is_none()).count();
        while computed(self) >= self.backend.depth() {
            self.fetch();
        }
    }

    /// Returns true if too many pairs wait for the oldest one.
    pub fn is_full(&self) -> bool {
        self.flying.len() >= MOST
    }

    /// Takes a pair, for which there has to be room.
    pub fn submit(&mut self, pair: Pair, index: u32, active: Vec<usize>) {
        let group = if self.is_on_gpu() { Ok(pair.group()) } else { pair.on_host().map(|pair| pair.group()) };
        let audit = self.audit.as_mut().filter(|_| matches!(self.place, Place::Gpu { .. }));
        let audit = audit.zip(group.as_ref().ok()).and_then(|(audit, group)| audit.offer(group));
        let submitted = group.and_then(|group| self.backend.submit(group));
        let pictures = self.is_on_gpu().then(|| {
            let earlier = self.previous.clone();
            self.previous.push_front(pair.clone());
            self.previous.truncate(self.task.lookback());
            (pair, earlier)
        });
        let (ticket, error) = match submitted {
            Ok(ticket) => (Some(ticket), None),
            Err(error) => (None, Some(error)),
        };
        self.flying.push_back(Flying { index, active, ticket, pictures, sums: None, audit });
        if let Some(error) = error {
            self.fail(error);
        }
    }

    /// Computes a pair while nothing else is on its way.
    pub fn compute(&mut self, group: Group<'_>) -> Result<FrameSums, BackendError> {
        let ticket = self.backend.submit(group)?;
        first(self.backend.wait(ticket))
    }

    /// Waits for the sums of the oldest pair that has none.
    fn fetch(&mut self) {
        let Some(flying) = self.flying.iter_mut().find(|flying| flying.sums.is_none()) else { return };
        let ticket = flying.ticket.take().ok_or(BackendError::UnknownTicket);
        match first(ticket.and_then(|ticket| self.backend.wait(ticket))) {
            Ok(sums) => {
                flying.sums = Some(Ok(sums));
                flying.pictures = None;
            }
            Err(error) => self.fail(error),
        }
    }

    /// Goes on after an error of the oldest pair without sums.
    fn fail(&mut self, error: BackendError) {
        if self.is_on_gpu() {
            return self.hand_over(&error);
        }
        if let Some(flying) = self.flying.iter_mut().find(|flying| flying.sums.is_none()) {
            flying.sums = Some(Err(error));
        }
    }

    /// Goes on with the CPU, which computes the pairs without sums, and all later ones.
    fn hand_over(&mut self, reason: &dyn Display) {
        if !self.is_on_gpu() {
            return;
        }
        self.place = Place::OnlyCpu;
        log(Level::Warning, format_args!("scoring on the CPU from here on, as {reason}"));
        let mut left: Vec<_> = self.flying.iter_mut().filter(|flying| flying.sums.is_none()).collect();
        let pictures = left.first().and_then(|flying| flying.pictures.as_ref());
        let previous = std::mem::take(&mut self.previous);
        let mut cpu = self.task.cpu(pictures.map_or(&previous, |(_, earlier)| earlier));
        for flying in &mut left {
            let sums = match (&mut cpu, flying.pictures.take()) {
                (Ok(cpu), Some((pair, _))) => {
                    let ticket = pair.on_host().and_then(|pair| cpu.submit(pair.group()));
                    ticket.and_then(|ticket| cpu.wait(ticket))
                }
                _ => Err(BackendError::NotPrepared),
            };
            flying.sums = Some(first(sums));
            flying.audit = None;
        }
        match cpu {
            Ok(cpu) => self.backend = Box::new(cpu),
            Err(error) => log(Level::Error, format_args!("the CPU cannot go on: {error}")),
        }
    }

    /// Waits for the oldest pair.
    pub fn land(&mut self) -> Option<Landed> {
        while self.flying.front()?.sums.is_none() {
            self.fetch();
        }
        let number = self.flying.front()?.audit;
        let expected = number.and_then(|number| self.audit.as_mut()?.wait(number));
        self.end(expected)
    }

    /// Returns the oldest pair, unless it is on its way.
    pub fn landed(&mut self) -> Option<Landed> {
        let oldest = self.flying.front()?;
        oldest.sums.as_ref()?;
        let expected = match oldest.audit {
            Some(number) => Some(self.audit.as_mut()?.result(number)?),
            None => None,
        };
        self.end(expected)
    }

    /// Takes the oldest pair. `expected`: the sums of the CPU, if they are there.
    fn end(&mut self, expected: Option<Result<Vec<FrameSums>, BackendError>>) -> Option<Landed> {
        let Flying { index, active, mut sums, .. } = self.flying.pop_front()?;
        let expected = expected.and_then(Result::ok).and_then(|sums| sums.into_iter().next());
        if let (Some(expected), Some(Ok(sums))) = (expected, &mut sums)
            && let Some(difference) = expected.difference(sums)
        {
            *sums = expected;
            self.hand_over(&format_args!("the GPU is wrong at index {index}: {difference}"));
        }
        Some(Landed { index, active, sums: sums? })
    }
}

/// Returns the sums of the only pair of a group.
fn first(sums: Result<Vec<FrameSums>, BackendError>) -> Result<FrameSums, BackendError> {
    sums?.into_iter().next().ok_or(BackendError::UnknownTicket)
}
