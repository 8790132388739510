// SPDX-License-Identifier: MPL-2.0

//! Who computes groups again, for all sessions of the process.
//!
//! A session has one group in a thousand computed again. A CPU backend of its own would do nothing in between, but keep its
//! memory: some 30 MB for pictures of 1920x1080, or 6 GB for 220 channels, which the system has to find while they play. So all
//! sessions that want as many threads share one clerk, which has one backend for all groups of a kind.
//!
//! Pictures are lent, and whoever lent them may have few. So one thread, of ordinary priority, copies the pictures of all
//! orders as they come. Another has them computed one after the other, on threads of the lowest priority.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};

use gpu::Stream;

use crate::backend::cpu::Cpu;
use crate::backend::{Backend, BackendError, Group, hip};
use crate::frame::{Component, Geometry, Leased, Picture, Samples};
use crate::metrics::{FrameSums, Work};
use crate::scale::Scaling;

/// Kinds of groups that a clerk has a backend for. With more, the one that was used longest ago makes room.
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

/// An order, and through which pictures come that are on a GPU.
type Lent = (Order<Arc<Leased>>, Option<Arc<Stream>>);

/// What the thread that copies is asked for.
enum Errand {
    Copy(Box<Lent>),
    /// Answer once all orders before were copied.
    Settle(SyncSender<()>),
}

/// The threads that copy and compute.
pub struct Clerk {
    /// Present until they are to end.
    errands: Option<Sender<Errand>>,
    threads: Vec<JoinHandle<()>>,
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
        let (errands, orders) = mpsc::channel();
        let (to, copied) = mpsc::channel();
        let spare = Spare::default();
        let copies = spare.clone();
        let copying = Builder::new().name("hipvmaf-copy".into()).spawn(move || copy(orders, &copies, &to))?;
        // From here on it ends if the other does not begin, as it has no more errands.
        let mut clerk = Self { errands: Some(errands), threads: vec![copying] };
        let mut calculators = Calculators { threads, spare, prepared: vec![] };
        let compute = move || copied.into_iter().for_each(|order| calculators.answer(order));
        clerk.threads.push(Builder::new().name("hipvmaf-verify".into()).spawn(compute)?);
        Ok(clerk)
    }

    /// Has a group computed, whose pictures come through that stream if they are on a GPU; `None` if there is no thread any
    /// more.
    pub fn compute(&self, order: Order<Arc<Leased>>, downloads: Option<Arc<Stream>>) -> Option<()> {
        self.errands.as_ref()?.send(Errand::Copy(Box::new((order, downloads)))).ok()
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
        self.threads.drain(..).for_each(|thread| thread.join().unwrap_or(()));
    }
}

/// The thread that copies.
fn copy(errands: Receiver<Errand>, spare: &Spare, to: &Sender<Order<Own>>) {
    gpu::Visit::for_good();
    for errand in errands {
        match errand {
            // Whoever asked may have gone.
            Errand::Settle(asked) => asked.send(()).unwrap_or(()),
            Errand::Copy(lent) if lent.0.asks.strong_count() == 0 => {}
            Errand::Copy(lent) => {
                let (order, downloads) = *lent;
                let answer = order.to.clone();
                match order.copy(downloads.as_deref(), spare) {
                    // Fails only if the other thread died.
                    Ok(copied) => to.send(copied).unwrap_or(()),
                    Err(err) => answer.send(Err(err)).unwrap_or(()),
                }
            }
        }
    }
}

impl Order<Arc<Leased>> {
    /// Copies its pictures. Whoever lent them has them back then.
    fn copy(self, downloads: Option<&Stream>, spare: &Spare) -> Result<Order<Own>, BackendError> {
        let Self { kind, earlier, reference, distorted, history_only, asks, to } = self;
        let size = kind.geometry.sample_size();
        let own = |leased: &Arc<Leased>| Own::copy(spare.take(), leased.picture(), size, downloads);
        let earlier = earlier.iter().map(own).collect::<Result<_, _>>()?;
        let reference = own(&reference)?;
        let distorted = distorted.iter().map(|(i, leased)| Ok((*i, own(leased)?)));
        let distorted = distorted.collect::<Result<_, BackendError>>()?;
        Ok(Order { kind, earlier, reference, distorted, history_only, asks, to })
    }
}

/// The backends that compute groups again.
struct Calculators {
    threads: usize,
    spare: Spare,
    /// For which groups there is one, that which was used last at the end.
    prepared: Vec<(Arc<Kind>, Cpu)>,
}

impl Calculators {
    fn answer(&mut self, order: Order<Own>) {
        if order.asks.strong_count() == 0 {
            return;
        }
        let answer = self.compute(&order);
        let Order { earlier, reference, distorted, to, .. } = order;
        self.spare
            .give(earlier.into_iter().chain([reference]).chain(distorted.into_iter().map(|(_, own)| own)));
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
                let mut cpu = match self.prepared.first() {
                    Some((_, other)) => Cpu::beside(other),
                    None => Cpu::in_background(self.threads)?,
                };
                self.prepared.drain(..(self.prepared.len() + 1).saturating_sub(KINDS));
                cpu.prepare(&kind.work, kind.geometry, &kind.renditions)?;
                (kind.clone(), cpu)
            }
        };
        self.prepared.push(prepared);
        self.prepared.last_mut().map(|(_, cpu)| cpu).ok_or(BackendError::NotPrepared)
    }
}

/// Memory for pictures. Giving it back each time would have the system take pages from a process that a GPU works for.
#[derive(Clone, Default)]
struct Spare(Arc<Mutex<Vec<Vec<u8>>>>);

impl Spare {
    fn pieces(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Vec<u8> {
        self.pieces().pop().unwrap_or_default()
    }

    fn give(&self, pictures: impl Iterator<Item = Own>) {
        let mut pieces = self.pieces();
        pieces.extend(pictures.map(|own| own.bytes));
        pieces.truncate(SPARE);
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

    #[test]
    fn groups_of_a_kind_share_a_backend() {
        let mut calculators = Calculators { threads: 1, spare: Spare::default(), prepared: vec![] };
        let mut used = |renditions| {
            calculators.of(&kind(renditions)).unwrap();
            calculators.prepared.iter().map(|(kind, _)| kind.renditions.len()).collect::<Vec<_>>()
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
