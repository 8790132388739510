// SPDX-License-Identifier: MPL-2.0

//! Groups that a GPU has computed, computed again by the CPU.
//!
//! Backends agree to the last bit, so a GPU that has begun to compute something else is found out by computing a small
//! share of its groups again. Which groups these are is decided by a hash of their number and a seed: they are spread at
//! random, and the same seed chooses the same groups again. A thread copies the pictures of a chosen group, so that whoever
//! lent them has them back soon, and has a CPU backend of its own compute them on threads of the lowest priority. What the
//! CPU cannot keep up with is left out, or waited for where nobody is in a hurry.
//!
//! The [`Session`](crate::session::Session) hands groups in and compares the sums.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{Builder, JoinHandle};

use gpu::Device;

use crate::backend::cpu::Cpu;
use crate::backend::{Backend, BackendError, Group, hip};
use crate::frame::{Component, Geometry, Leased, Picture, Samples};
use crate::metrics::{FrameSums, Work};
use crate::scale::Scaling;

/// Groups that may wait for the CPU beside the one that it computes, where others wait in turn. Elsewhere none do: whoever
/// lent their pictures may have few.
const WAITING: usize = 2;

/// How to verify.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verify {
    /// Share of the groups, from 0 to 1.
    pub share: f64,
    /// Chooses the groups.
    pub seed: u64,
    /// Every group that is chosen is verified, even if others have to wait; else those are left out that the CPU cannot keep
    /// up with.
    pub patient: bool,
    /// Threads of the CPU, at least 1.
    pub threads: usize,
}

/// Chooses groups and has them computed again.
pub(crate) struct Audit {
    verify: Verify,
    /// What groups are at present.
    setting: Option<Arc<Setting>>,
    /// Groups so far.
    offered: u64,
    /// The first group of the present kind.
    first: u64,
    /// The references of the last groups of the run, as many as some metric looks back, the last one first. Those that no
    /// chosen group needs are not kept.
    earlier: VecDeque<Option<Arc<Leased>>>,
    clerk: Option<Clerk>,
    /// Orders without an answer.
    waiting: usize,
    answers: HashMap<u64, Answer>,
    left_out: u64,
}

/// What all groups of one geometry have in common.
struct Setting {
    work: Work,
    geometry: Geometry,
    renditions: Vec<Option<Scaling>>,
    /// The GPU that the pictures may be on.
    gpu: Option<Arc<Device>>,
}

/// The sums that the CPU has for a group.
type Answer = Result<Vec<FrameSums>, BackendError>;

/// The thread that computes groups again.
struct Clerk {
    orders: Option<Sender<Order>>,
    answers: Receiver<(u64, Answer)>,
    thread: Option<JoinHandle<()>>,
}

/// A group to compute, and the references of those before it, the last one first.
struct Order {
    number: u64,
    setting: Arc<Setting>,
    earlier: Vec<Arc<Leased>>,
    reference: Leased,
    distorted: Vec<(usize, Leased)>,
    history_only: bool,
}

impl Audit {
    pub fn new(verify: Verify) -> Self {
        Self {
            verify,
            setting: None,
            offered: 0,
            first: 0,
            earlier: VecDeque::new(),
            clerk: None,
            waiting: 0,
            answers: HashMap::new(),
            left_out: 0,
        }
    }

    pub fn set_share(&mut self, share: f64) {
        self.verify.share = share;
    }

    pub fn set_patient(&mut self, patient: bool) {
        self.verify.patient = patient;
    }

    /// Takes groups of this kind from now on. Answers that are outstanding are of no use any more.
    pub fn prepare(
        &mut self,
        work: &Work,
        geometry: Geometry,
        renditions: &[Option<Scaling>],
        gpu: Option<&Arc<Device>>,
    ) {
        let (work, renditions, gpu) = (work.clone(), renditions.to_vec(), gpu.cloned());
        self.setting = Some(Arc::new(Setting { work, geometry, renditions, gpu }));
        self.first = self.offered;
        self.answers.clear();
        self.reset();
    }

    /// The next group is the first of a run.
    pub fn reset(&mut self) {
        self.earlier.clear();
    }

    /// How many groups were chosen and not verified since this was asked last.
    pub fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    /// One more group was chosen and is not verified.
    pub fn leave_out(&mut self) {
        self.left_out += 1;
    }

    fn is_chosen(&self, number: u64) -> bool {
        // The finalizer of SplitMix64, of which the upper bits make a number from 0 to 1.
        let mut hash = self.verify.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((hash ^ hash >> 31) >> 11) as f64 / (1u64 << 53) as f64) < self.verify.share
    }

    /// Looks at the next group; its number if it is being computed again.
    pub fn offer(&mut self, group: &Group<'_>) -> Option<u64> {
        let number = self.offered;
        self.offered += 1;
        let setting = self.setting.clone()?;
        let lags = setting.work.lags();
        let ordered = self.is_chosen(number) && self.order(number, setting, group).is_some();
        if self.is_chosen(number) && !ordered {
            self.left_out += 1;
        }
        let needed = (1..=lags as u64).any(|later| self.is_chosen(number + later));
        let kept = needed.then(|| Leased::new(&group.reference)).flatten();
        self.earlier.push_front(kept.map(Arc::new));
        self.earlier.truncate(lags);
        ordered.then_some(number)
    }

    /// Has a group computed; `None` where that cannot be.
    fn order(&mut self, number: u64, setting: Arc<Setting>, group: &Group<'_>) -> Option<()> {
        self.hear();
        if !self.verify.patient && self.waiting > 0 {
            return None;
        }
        while self.waiting > WAITING {
            self.await_answer()?;
        }
        let leased = |(rendition, picture): &(usize, Picture<'_>)| Some((*rendition, Leased::new(picture)?));
        let order = Order {
            number,
            setting,
            earlier: self.earlier.iter().cloned().collect::<Option<_>>()?,
            reference: Leased::new(&group.reference)?,
            distorted: group.distorted.iter().map(leased).collect::<Option<_>>()?,
            history_only: group.history_only,
        };
        if self.clerk.is_none() {
            self.clerk = Clerk::new(self.verify.threads).ok();
        }
        self.clerk.as_ref()?.orders.as_ref()?.send(order).ok()?;
        self.waiting += 1;
        Some(())
    }

    /// Takes the answers that are there.
    fn hear(&mut self) {
        while let Some(Ok((number, answer))) = self.clerk.as_ref().map(|clerk| clerk.answers.try_recv()) {
            self.take(number, answer);
        }
    }

    fn await_answer(&mut self) -> Option<()> {
        let (number, answer) = self.clerk.as_ref()?.answers.recv().ok()?;
        self.take(number, answer);
        Some(())
    }

    fn take(&mut self, number: u64, answer: Answer) {
        self.waiting -= 1;
        // Nobody asks for others any more.
        if number >= self.first {
            self.answers.insert(number, answer);
        }
    }

    /// The CPU's sums of a group, if they are known by now.
    pub fn answer(&mut self, number: u64) -> Option<Answer> {
        self.hear();
        self.answers.remove(&number)
    }

    /// As if the CPU had just come to these sums.
    #[cfg(test)]
    pub fn learn(&mut self, number: u64, sums: Vec<FrameSums>) {
        self.answers.insert(number, Ok(sums));
    }

    /// Waits for all answers, if there is time for that.
    pub fn settle(&mut self) {
        while self.verify.patient && self.waiting > 0 && self.await_answer().is_some() {}
    }
}

impl Clerk {
    fn new(threads: usize) -> io::Result<Self> {
        let (orders, queue) = mpsc::channel();
        let (to, answers) = mpsc::channel();
        let run = move || {
            gpu::Visit::for_good();
            let mut calculator = Calculator { threads, prepared: None, spare: vec![] };
            for order in queue {
                let Order { number, .. } = order;
                if to.send((number, calculator.compute(order))).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("hipvmaf-verify".into()).spawn(run)?;
        Ok(Self { orders: Some(orders), answers, thread: Some(thread) })
    }
}

impl Drop for Clerk {
    /// What it has copied from a GPU is gone afterwards.
    fn drop(&mut self) {
        self.orders = None;
        self.thread.take().map(JoinHandle::join);
    }
}

/// The backend that computes groups again.
struct Calculator {
    threads: usize,
    prepared: Option<(Arc<Setting>, Cpu)>,
    /// Memory for pictures. Giving it back each time would have the system take pages from a process that a GPU works for.
    spare: Vec<Vec<u8>>,
}

impl Calculator {
    fn compute(&mut self, order: Order) -> Answer {
        let Order { setting, earlier, reference, distorted, history_only, .. } = order;
        let spare = &mut self.spare;
        let mut own = |leased: &Leased| {
            let bytes = spare.pop().unwrap_or_default();
            Own::copy(bytes, leased.picture(), setting.geometry, setting.gpu.as_ref())
        };
        let earlier_own = earlier.iter().map(|leased| own(leased)).collect::<Result<Vec<_>, _>>()?;
        let reference_own = own(&reference)?;
        let distorted_own = distorted
            .iter()
            .map(|(i, leased)| Ok((*i, own(leased)?)))
            .collect::<Result<Vec<_>, BackendError>>()?;
        // Whoever lent them has them back.
        drop((earlier, reference, distorted));
        let cpu = self.prepare(&setting)?;
        cpu.reset();
        let distorted = || distorted_own.iter().map(|(i, own)| (*i, own.picture())).collect();
        for own in earlier_own.iter().rev() {
            let group = Group { reference: own.picture(), distorted: distorted(), history_only: true };
            let ticket = cpu.submit(group)?;
            cpu.wait(ticket)?;
        }
        let group = Group { reference: reference_own.picture(), distorted: distorted(), history_only };
        let ticket = cpu.submit(group)?;
        let sums = cpu.wait(ticket);
        let all = earlier_own
            .into_iter()
            .chain([reference_own])
            .chain(distorted_own.into_iter().map(|(_, own)| own));
        self.spare.extend(all.map(|own| own.bytes));
        sums
    }

    fn prepare(&mut self, setting: &Arc<Setting>) -> Result<&mut Cpu, BackendError> {
        let suits = |(prepared, _): &(Arc<Setting>, Cpu)| Arc::ptr_eq(prepared, setting);
        if !self.prepared.as_ref().is_some_and(suits) {
            self.prepared = None;
            self.spare.clear();
            let mut cpu = Cpu::in_background(self.threads)?;
            cpu.prepare(&setting.work, setting.geometry, &setting.renditions)?;
            self.prepared = Some((setting.clone(), cpu));
        }
        self.prepared.as_mut().map(|(_, cpu)| cpu).ok_or(BackendError::NotPrepared)
    }
}

/// A picture in memory of our own, rows without gaps.
struct Own {
    bytes: Vec<u8>,
    /// Where each component begins, and what it is like.
    parts: Vec<(usize, Component<'static>)>,
}

impl Own {
    /// A copy in this memory, whatever is in it.
    fn copy(
        mut bytes: Vec<u8>,
        picture: &Picture<'_>,
        like: Geometry,
        gpu: Option<&Arc<Device>>,
    ) -> Result<Self, BackendError> {
        let size = like.sample_size();
        let components: Vec<_> =
            [picture.luma].into_iter().chain(picture.chroma.into_iter().flatten()).collect();
        let row = |component: &Component<'_>| (component.width.saturating_sub(1) * component.step + 1) * size;
        let total = components.iter().map(|component| row(component) * component.height).sum();
        bytes.clear();
        bytes.reserve(total);
        let mut parts = vec![];
        let on_device = |component: &Component<'_>| matches!(component.samples, Samples::Device(_));
        let fetched = match gpu {
            Some(gpu) if components.iter().any(on_device) => Some(hip::fetch(gpu, picture, size)?),
            _ => None,
        };
        for (i, component) in components.iter().enumerate() {
            let row = row(component);
            let Component { width, height, stride, step, shift, .. } = *component;
            parts.push((
                bytes.len(),
                Component { samples: Samples::Host(&[]), width, height, stride: row, step, shift },
            ));
            match (component.samples, fetched.as_ref().and_then(|fetched| fetched.get(i))) {
                (_, Some(rows)) => bytes.extend_from_slice(rows),
                (Samples::Host(samples), None) => {
                    for y in 0..height {
                        let row = samples.get(y * stride..).and_then(|samples| samples.get(..row));
                        bytes.extend_from_slice(row.ok_or(BackendError::Picture("cpu"))?);
                    }
                }
                (Samples::Device(_), None) => return Err(BackendError::Picture("cpu")),
            }
        }
        Ok(Self { bytes, parts })
    }

    fn picture(&self) -> Picture<'_> {
        let component = |(start, like): &(usize, Component<'static>)| {
            let Component { width, height, stride, step, shift, .. } = *like;
            let samples = Samples::Host(&self.bytes[*start..]);
            Component { samples, width, height, stride, step, shift }
        };
        let chroma = match &self.parts[..] {
            [_, cb, cr] => Some([component(cb), component(cr)]),
            _ => None,
        };
        Picture { luma: component(&self.parts[0]), chroma, lease: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audit(share: f64, seed: u64) -> Audit {
        Audit::new(Verify { share, seed, patient: true, threads: 1 })
    }

    #[test]
    fn a_share_of_the_groups_is_chosen() {
        let chosen = |share, seed| {
            let audit = audit(share, seed);
            (0..100_000).filter(move |number| audit.is_chosen(*number)).collect::<Vec<_>>()
        };
        assert!(chosen(0.0, 1).is_empty());
        assert_eq!(chosen(1.0, 1).len(), 100_000);
        for seed in 0..20 {
            let some = chosen(0.01, seed);
            // The binomial distribution's standard deviation is 31.
            assert!((840..=1160).contains(&some.len()), "{} of 100,000", some.len());
            assert_eq!(some, chosen(0.01, seed));
            assert_ne!(some, chosen(0.01, seed + 1));
        }
    }
}
