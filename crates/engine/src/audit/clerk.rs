// SPDX-License-Identifier: MPL-2.0

//! Who computes groups again, for all sessions of the process.
//!
//! A session has one group in a thousand computed again. A CPU backend of its own would do nothing in between, but keep its
//! memory: some 30 MB for pictures of 1920x1080, or 6 GB for 220 channels, which the system has to find while they play. So all
//! sessions that want as many threads share one clerk, which has [calculators](Calculator) for them.
//!
//! Pictures are lent, and whoever lent them may have few. So one thread, of ordinary priority, copies the pictures of all
//! orders as they come. Calculators, whose threads have the lowest priority, compute them.
//!
//! An order takes one calculator, and with it one thread. Several threads would be done with it sooner, which nobody waits for, and
//! for these milliseconds disturb those that feed GPUs: of 440 live channels some then lost frames. Where more orders come
//! than one thread computes, more calculators do, up to as many as there may be threads.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};

use gpu::Stream;
use rayon::ThreadPool;

use crate::backend::cpu::{self, Cpu};
use crate::backend::{Backend, BackendError, Group, guarded, hip};
use crate::frame::{Component, Geometry, Leased, Picture, Samples};
use crate::metrics::{FrameSums, Work};
use crate::scale::Scaling;

/// Kinds of groups that a calculator has a backend for. With more, the one that was used longest ago makes room.
const KINDS: usize = 4;
/// Pieces of memory for pictures that are kept for the next ones.
const SPARE: usize = 16;

/// What groups have in common that one backend can compute.
#[derive(PartialEq)]
pub struct Kind {
    pub work: Work,
    pub geometry: Geometry,
    pub renditions: Vec<Option<Scaling>>,
}

/// The sums that the CPU has for a group.
pub type Answer = Result<Vec<FrameSums>, BackendError>;

/// A group to compute, and the references of those before it, the last one first. Its pictures are lent ([`Leased`]), and then
/// copied ([`Own`]).
pub struct Order<P> {
    pub kind: Arc<Kind>,
    pub earlier: Vec<P>,
    pub reference: P,
    pub distorted: Vec<(usize, P)>,
    pub history_only: bool,
    /// Gone once nobody wants the answer any more.
    pub asks: Weak<()>,
    /// Where the answer goes.
    pub to: Sender<Answer>,
}

/// What the thread that copies is asked for.
enum Errand {
    /// An order, and through which pictures come that are on a GPU.
    Copy(Box<Order<Arc<Leased>>>, Option<Arc<Stream>>, Open),
    /// Answer once all orders before were copied.
    Settle(SyncSender<()>),
}

/// The thread that copies, and the calculators.
pub struct Clerk {
    /// Present until it is to end.
    errands: Option<Sender<Errand>>,
    copying: Option<JoinHandle<()>>,
    office: Arc<Office>,
}

impl Clerk {
    /// That of the process which computes with so many threads.
    pub fn of(threads: usize) -> io::Result<Arc<Self>> {
        static CLERKS: Mutex<BTreeMap<usize, Weak<Clerk>>> = Mutex::new(BTreeMap::new());
        let mut clerks = CLERKS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(clerk) = clerks.get(&threads).and_then(Weak::upgrade) {
            return Ok(clerk);
        }
        let clerk = Arc::new(Self::new(threads)?);
        clerks.insert(threads, Arc::downgrade(&clerk));
        Ok(clerk)
    }

    fn new(threads: usize) -> io::Result<Self> {
        let office = Arc::new(Office { threads, orders: Mutex::default(), fewer: Condvar::new() });
        let (errands, orders) = mpsc::channel();
        let its = office.clone();
        let copying = Builder::new().name("hipvmaf-copy".into()).spawn(move || copy(orders, &its))?;
        Ok(Self { errands: Some(errands), copying: Some(copying), office })
    }

    /// Whether there are as many orders as it can work on, and one more.
    pub fn is_busy(&self) -> bool {
        self.office.orders().open > self.office.threads
    }

    /// Has a group computed, whose pictures come through that stream if they are on a GPU; `None` if there is no thread any
    /// more.
    pub fn compute(&self, order: Order<Arc<Leased>>, downloads: Option<Arc<Stream>>) -> Option<()> {
        let open = Open::new(self.office.clone());
        self.errands.as_ref()?.send(Errand::Copy(Box::new(order), downloads, open)).ok()
    }

    /// Waits until no pictures are lent any more of the orders so far.
    pub fn settle(&self) {
        let (to, settled) = mpsc::sync_channel(1);
        if self.errands.as_ref().is_some_and(|errands| errands.send(Errand::Settle(to)).is_ok()) {
            // An error means that the thread has ended, and lent pictures with it.
            let _ = settled.recv();
        }
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.errands = None;
        self.copying.take().map(JoinHandle::join);
        // Those that are being computed; nobody asks for the others any more.
        drop(self.office.fewer.wait_while(self.office.orders(), |orders| orders.open > 0));
    }
}

/// The thread that copies.
fn copy(errands: Receiver<Errand>, office: &Arc<Office>) {
    gpu::Visit::for_good();
    for errand in errands {
        match errand {
            // Whoever asked may have gone.
            Errand::Settle(asked) => asked.send(()).unwrap_or(()),
            Errand::Copy(order, ..) if order.asks.strong_count() == 0 => {}
            Errand::Copy(order, downloads, open) => {
                let answer = order.to.clone();
                match order.copy(downloads.as_deref(), office) {
                    Ok(copied) => office.take(copied, open),
                    Err(err) => answer.send(Err(err)).unwrap_or(()),
                }
            }
        }
    }
}

/// Where orders lie until a calculator has time for them.
struct Office {
    /// Calculators that there may be.
    threads: usize,
    orders: Mutex<Orders>,
    /// An order is no longer open.
    fewer: Condvar,
}

/// An open order: it has no answer yet.
struct Open(Arc<Office>);

impl Open {
    fn new(office: Arc<Office>) -> Self {
        office.orders().open += 1;
        Self(office)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.orders().open -= 1;
        self.0.fewer.notify_all();
    }
}

#[derive(Default)]
struct Orders {
    /// How many are open, those that are to be copied or are being computed among them.
    open: usize,
    waiting: VecDeque<(Order<Own>, Open)>,
    /// Calculators that have nothing to do; the one that was busy last is the last.
    idle: Vec<Calculator>,
    /// How many calculators are busy.
    busy: usize,
    /// Memory for pictures. Giving it back each time would have the system take pages from a process that a GPU works for.
    spare: Vec<Vec<u8>>,
}

impl Orders {
    /// A calculator for a group of this kind: one that has computed such, or that was busy last, so that what they keep does
    /// not grow.
    fn call(&mut self, kind: &Arc<Kind>) -> Option<Calculator> {
        let knows =
            |calculator: &Calculator| calculator.prepared.iter().any(|(prepared, _)| prepared == kind);
        match self.idle.iter().rposition(knows) {
            Some(at) => Some(self.idle.remove(at)),
            None => self.idle.pop(),
        }
    }
}

impl Office {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has an order computed as soon as there is a calculator for it.
    fn take(self: &Arc<Self>, order: Order<Own>, open: Open) {
        let mut orders = self.orders();
        let calculator = match orders.call(&order.kind) {
            None if orders.busy >= self.threads => return orders.waiting.push_back((order, open)),
            Some(calculator) => Ok(calculator),
            None => Calculator::new(),
        };
        orders.busy += usize::from(calculator.is_ok());
        drop(orders);
        match calculator {
            Ok(calculator) => calculator.work(self.clone(), order, open),
            // Whoever asked may have gone.
            Err(err) => order.to.send(Err(err)).unwrap_or(()),
        }
    }

    /// What is next for a calculator, which otherwise has nothing to do.
    fn next(&self, calculator: Calculator) -> Option<(Calculator, Order<Own>, Open)> {
        let mut orders = self.orders();
        match orders.waiting.pop_front() {
            Some((order, open)) => Some((calculator, order, open)),
            None => {
                orders.busy -= 1;
                orders.idle.push(calculator);
                None
            }
        }
    }

    fn spare(&self) -> Vec<u8> {
        self.orders().spare.pop().unwrap_or_default()
    }

    /// Takes back what pictures were copied into.
    fn keep(&self, pictures: impl Iterator<Item = Own>) {
        let mut orders = self.orders();
        orders.spare.extend(pictures.map(|own| own.bytes));
        orders.spare.truncate(SPARE);
    }
}

impl Order<Arc<Leased>> {
    /// Copies its pictures. Whoever lent them has them back then.
    fn copy(self, downloads: Option<&Stream>, office: &Office) -> Result<Order<Own>, BackendError> {
        let Self { kind, earlier, reference, distorted, history_only, asks, to } = self;
        let size = kind.geometry.sample_size();
        let own = |leased: &Arc<Leased>| Own::copy(office.spare(), leased.picture(), size, downloads);
        let earlier = earlier.iter().map(own).collect::<Result<_, _>>()?;
        let reference = own(&reference)?;
        let distorted = distorted.iter().map(|(i, leased)| Ok((*i, own(leased)?)));
        let distorted = distorted.collect::<Result<_, BackendError>>()?;
        Ok(Order { kind, earlier, reference, distorted, history_only, asks, to })
    }
}

/// A thread, and what it computes groups again with.
struct Calculator {
    thread: Arc<ThreadPool>,
    /// The backends, and for which groups they are; the one that was used last is the last.
    prepared: Vec<(Arc<Kind>, Cpu)>,
}

impl Calculator {
    fn new() -> Result<Self, BackendError> {
        Ok(Self { thread: Arc::new(cpu::late_thread("hipvmaf-verify")?), prepared: vec![] })
    }

    /// Works on this order, and on those that wait when it is done.
    fn work(self, office: Arc<Office>, order: Order<Own>, open: Open) {
        let thread = self.thread.clone();
        thread.spawn(move || {
            let mut next = Some((self, order, open));
            // An order stays open until what comes next was found out.
            while let Some((mut calculator, order, _open)) = next {
                calculator.answer(order, &office);
                next = office.next(calculator);
            }
        });
    }

    fn answer(&mut self, order: Order<Own>, office: &Office) {
        if order.asks.strong_count() == 0 {
            return;
        }
        let answer = guarded(|| self.compute(&order)).flatten();
        let Order { earlier, reference, distorted, to, .. } = order;
        office.keep(earlier.into_iter().chain([reference]).chain(distorted.into_iter().map(|(_, own)| own)));
        // Whoever asked may have gone.
        let _ = to.send(answer);
    }

    fn compute(&mut self, order: &Order<Own>) -> Answer {
        let Order { kind, earlier, reference, distorted, history_only, .. } = order;
        let cpu = self.of(kind)?;
        cpu.reset();
        let distorted = || distorted.iter().map(|(i, own)| (*i, own.picture())).collect();
        for own in earlier.iter().rev() {
            let group = Group { reference: own.picture(), distorted: distorted(), history_only: true };
            let ticket = cpu.submit(group)?;
            cpu.wait(ticket)?;
        }
        let group =
            Group { reference: reference.picture(), distorted: distorted(), history_only: *history_only };
        let ticket = cpu.submit(group)?;
        cpu.wait(ticket)
    }

    /// The backend for groups of this kind.
    fn of(&mut self, kind: &Arc<Kind>) -> Result<&mut Cpu, BackendError> {
        let found = self.prepared.iter().position(|(prepared, _)| prepared == kind);
        let prepared = match found {
            Some(at) => self.prepared.remove(at),
            None => {
                let mut cpu = Cpu::on(self.thread.clone());
                self.prepared.drain(..(self.prepared.len() + 1).saturating_sub(KINDS));
                cpu.prepare(&kind.work, kind.geometry, &kind.renditions)?;
                (kind.clone(), cpu)
            }
        };
        self.prepared.push(prepared);
        self.prepared.last_mut().map(|(_, cpu)| cpu).ok_or(BackendError::NotPrepared)
    }
}

/// A picture in memory of our own, rows without gaps.
struct Own {
    bytes: Vec<u8>,
    /// Where each component begins, and what it is like.
    parts: Vec<(usize, Component<'static>)>,
}

impl Own {
    /// A copy in this memory, whatever is in it. `size`: bytes of a sample.
    fn copy(
        mut bytes: Vec<u8>,
        picture: &Picture<'_>,
        size: usize,
        downloads: Option<&Stream>,
    ) -> Result<Self, BackendError> {
        let components: Vec<_> =
            [picture.luma].into_iter().chain(picture.chroma.into_iter().flatten()).collect();
        let row = |component: &Component<'_>| (component.width.saturating_sub(1) * component.step + 1) * size;
        let total = components.iter().map(|component| row(component) * component.height).sum();
        bytes.clear();
        bytes.reserve(total);
        let mut parts = vec![];
        let on_device = |component: &Component<'_>| matches!(component.samples, Samples::Device(_));
        let fetched = match downloads {
            Some(stream) if components.iter().any(on_device) => Some(hip::fetch(stream, picture, size)?),
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
    use crate::frame::{BitDepth, Lease};
    use crate::metrics::psnr::{Psnr, PsnrWork};

    const SIZE: (usize, usize) = (48, 32);

    fn kind(renditions: usize) -> Arc<Kind> {
        let (width, height) = SIZE;
        let geometry = Geometry { width, height, depth: BitDepth::new(8).unwrap(), chroma: None };
        let work = Work::default().with::<Psnr>(PsnrWork { chroma: false });
        Arc::new(Kind { work, geometry, renditions: vec![None; renditions] })
    }

    /// An order for a picture and itself, which `keep` lends.
    fn order(keep: &Arc<Vec<u8>>, asks: &Arc<()>) -> (Order<Arc<Leased>>, Receiver<Answer>) {
        let kind = kind(1);
        let mut picture = Picture::packed(keep, kind.geometry).unwrap();
        // SAFETY: nobody changes the bytes.
        picture.lease = Some(unsafe { Lease::new(keep.clone()) });
        let leased = || Arc::new(Leased::new(&picture).unwrap());
        let (to, answer) = mpsc::channel();
        let order = Order {
            kind,
            earlier: vec![],
            reference: leased(),
            distorted: vec![(0, leased())],
            history_only: false,
            asks: Arc::downgrade(asks),
            to,
        };
        (order, answer)
    }

    #[test]
    fn who_wants_as_many_threads_has_the_same_clerk() {
        let [first, second, other] = [3, 3, 2].map(|threads| Clerk::of(threads).unwrap());
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &other));
        // The threads end when nobody has use for them.
        let clerk = Arc::downgrade(&first);
        drop(first);
        assert!(clerk.upgrade().is_some());
        drop(second);
        assert!(clerk.upgrade().is_none());
        assert!(!Arc::ptr_eq(&Clerk::of(3).unwrap(), &other));
    }

    #[test]
    fn pictures_are_given_back_before_there_is_an_answer() {
        let clerk = Clerk::of(1).unwrap();
        let (keep, asks) = (Arc::new(vec![7; SIZE.0 * SIZE.1]), Arc::new(()));
        let answers: Vec<_> = (0..20)
            .map(|_| {
                let (order, answer) = order(&keep, &asks);
                clerk.compute(order, None).unwrap();
                answer
            })
            .collect();
        clerk.settle();
        assert_eq!(Arc::strong_count(&keep), 1);
        for answer in answers {
            assert_eq!(answer.recv().unwrap().unwrap().len(), 1);
        }
    }

    #[test]
    fn nobody_computes_what_nobody_asks_for_any_more() {
        let clerk = Clerk::of(1).unwrap();
        let (keep, asks) = (Arc::new(vec![7; SIZE.0 * SIZE.1]), Arc::new(()));
        let (given_up, no_answer) = order(&keep, &Arc::new(()));
        clerk.compute(given_up, None).unwrap();
        let (wanted, answer) = order(&keep, &asks);
        clerk.compute(wanted, None).unwrap();
        assert!(answer.recv().unwrap().is_ok());
        assert!(no_answer.recv().is_err());
    }

    /// Has so many orders computed at the same time, and says how many calculators there are afterwards.
    fn calculators_after(clerk: &Clerk, orders: usize) -> usize {
        let (keep, asks) = (Arc::new(vec![7; SIZE.0 * SIZE.1]), Arc::new(()));
        let compute = |_| {
            let (order, answer) = order(&keep, &asks);
            clerk.compute(order, None).unwrap();
            answer
        };
        let answers: Vec<_> = (0..orders).map(compute).collect();
        for answer in answers {
            assert_eq!(answer.recv().unwrap().unwrap().len(), 1);
        }
        let orders = clerk.office.fewer.wait_while(clerk.office.orders(), |orders| orders.open > 0).unwrap();
        assert_eq!((orders.busy, orders.waiting.len()), (0, 0));
        orders.idle.len()
    }

    #[test]
    fn one_calculator_computes_what_comes_one_after_the_other() {
        let clerk = Clerk::new(4).unwrap();
        assert_eq!([(); 20].map(|()| calculators_after(&clerk, 1)), [1; 20]);
    }

    #[test]
    fn there_are_no_more_calculators_than_threads() {
        let clerk = Clerk::new(3).unwrap();
        assert!((1..=3).contains(&calculators_after(&clerk, 50)));
    }

    #[test]
    fn a_clerk_is_busy_with_one_order_more_than_it_can_work_on() {
        let clerk = Clerk::new(2).unwrap();
        let mut open: Vec<_> = (0..2).map(|_| Open::new(clerk.office.clone())).collect();
        assert!(!clerk.is_busy());
        open.push(Open::new(clerk.office.clone()));
        assert!(clerk.is_busy());
        open.pop();
        assert!(!clerk.is_busy());
    }

    #[test]
    fn a_group_comes_to_a_calculator_that_knows_its_kind() {
        let with = |renditions| {
            let mut calculator = Calculator::new().unwrap();
            calculator.of(&kind(renditions)).unwrap();
            calculator
        };
        let mut orders = Orders { idle: [1, 2, 3].map(with).into(), ..Orders::default() };
        let mut call =
            |renditions| orders.call(&kind(renditions)).map(|found| found.prepared[0].0.renditions.len());
        // Nobody knows five renditions, and the last one was busy last.
        assert_eq!([2, 5, 5, 1].map(&mut call), [Some(2), Some(3), Some(1), None]);
    }

    #[test]
    fn groups_of_a_kind_share_a_backend() {
        let mut calculator = Calculator::new().unwrap();
        let mut used = |renditions| {
            calculator.of(&kind(renditions)).unwrap();
            calculator.prepared.iter().map(|(kind, _)| kind.renditions.len()).collect::<Vec<_>>()
        };
        assert_eq!(used(1), [1]);
        assert_eq!(used(1), [1]);
        assert_eq!(used(2), [1, 2]);
        assert_eq!(used(1), [2, 1]);
        // The one that was used longest ago makes room.
        let all: Vec<_> = (3..3 + KINDS).map(&mut used).collect();
        assert_eq!(all[KINDS - 3], [2, 1, 3, 4]);
        assert_eq!(all[KINDS - 2], [1, 3, 4, 5]);
        assert_eq!(all[KINDS - 1], [3, 4, 5, 6]);
    }
}
