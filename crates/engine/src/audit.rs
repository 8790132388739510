// SPDX-License-Identifier: MPL-2.0

//! Groups that a GPU has computed, computed again by the CPU.
//!
//! Backends agree to the last bit, so a GPU that has begun to compute something else is found out by computing a small
//! share of its groups again. Which groups these are is decided by a hash of their number and a seed: they are spread at
//! random, and the same seed chooses the same groups again. A clerk computes them, which all sessions of the process share.
//! What it cannot keep up with is left out, or waited for where nobody is in a hurry.
//!
//! The [`Session`](crate::session::Session) hands groups in and compares the sums.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};

use gpu::{Device, Stream};

use crate::backend::{BackendError, Group};
use crate::frame::{Geometry, Leased, Picture};
use crate::metrics::Work;
use crate::scale::Scaling;

mod clerk;

use clerk::{Answer, Clerk, Kind, Order};

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
    /// Threads of the CPU, at least 1, with a group each; all sessions of the process that want as many share them.
    pub threads: usize,
}

/// Chooses groups and has them computed again.
pub(crate) struct Audit {
    verify: Verify,
    /// What groups are at present.
    kind: Option<Arc<Kind>>,
    /// Through which pictures come that are on a GPU.
    downloads: Option<Arc<Stream>>,
    /// Groups so far.
    offered: u64,
    /// The first group of the present kind.
    first: u64,
    /// The references of the last groups of the run, as many as some metric looks back, the last one first. Those that no
    /// chosen group needs are not kept.
    earlier: VecDeque<Option<Arc<Leased>>>,
    /// Who computes, from the first order on.
    clerk: Option<Arc<Clerk>>,
    /// Lives as long as somebody wants the answers.
    asks: Arc<()>,
    /// Orders without an answer, with where it will come from. They are answered in order.
    waiting: VecDeque<(u64, Receiver<Answer>)>,
    answers: HashMap<u64, Answer>,
    left_out: u64,
}

impl Audit {
    pub fn new(verify: Verify) -> Self {
        Self {
            verify,
            kind: None,
            downloads: None,
            offered: 0,
            first: 0,
            earlier: VecDeque::new(),
            clerk: None,
            asks: Arc::new(()),
            waiting: VecDeque::new(),
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
        let (work, renditions) = (work.clone(), renditions.to_vec());
        self.kind = Some(Arc::new(Kind { work, geometry, renditions }));
        // Without it, those pictures are left out.
        self.downloads = gpu.and_then(|gpu| gpu.downloads().ok());
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
        let lags = self.kind.as_ref()?.work.lags();
        let ordered = self.is_chosen(number) && self.order(number, group).is_some();
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
    fn order(&mut self, number: u64, group: &Group<'_>) -> Option<()> {
        self.hear();
        if self.clerk.is_none() {
            self.clerk = Clerk::of(self.verify.threads).ok();
        }
        if self.verify.patient {
            while self.waiting.len() > self.verify.threads {
                self.await_answer();
            }
        } else if self.clerk.as_ref()?.is_busy() {
            return None;
        }
        let leased = |picture: &Picture<'_>| Leased::new(picture).map(Arc::new);
        let distorted = group.distorted.iter().map(|(i, picture)| Some((*i, leased(picture)?)));
        let (to, answer) = mpsc::channel();
        let order = Order {
            kind: self.kind.clone()?,
            earlier: self.earlier.iter().cloned().collect::<Option<_>>()?,
            reference: leased(&group.reference)?,
            distorted: distorted.collect::<Option<_>>()?,
            history_only: group.history_only,
            asks: Arc::downgrade(&self.asks),
            to,
        };
        self.clerk.as_ref()?.compute(order, self.downloads.clone())?;
        self.waiting.push_back((number, answer));
        Some(())
    }

    /// Takes the answers that are there.
    fn hear(&mut self) {
        while let Some((_, answer)) = self.waiting.front() {
            match answer.try_recv() {
                Ok(answer) => self.take(answer),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.take(Err(BackendError::Panicked)),
            }
        }
    }

    fn await_answer(&mut self) {
        if let Some((_, answer)) = self.waiting.front() {
            let answer = answer.recv().unwrap_or(Err(BackendError::Panicked));
            self.take(answer);
        }
    }

    /// Takes the answer to the first order that waits for one.
    fn take(&mut self, answer: Answer) {
        // Nobody asks for those of another kind any more.
        if let Some((number, _)) = self.waiting.pop_front().filter(|(number, _)| *number >= self.first) {
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
    pub fn learn(&mut self, number: u64, sums: Vec<crate::metrics::FrameSums>) {
        self.answers.insert(number, Ok(sums));
    }

    /// Waits for all answers, if there is time for that.
    pub fn settle(&mut self) {
        while self.verify.patient && !self.waiting.is_empty() {
            self.await_answer();
        }
    }
}

impl Drop for Audit {
    /// Nothing that was lent is in use afterwards, and what was copied from a GPU is gone from it.
    fn drop(&mut self) {
        self.asks = Arc::new(());
        if let Some(clerk) = self.clerk.as_ref().filter(|_| !self.waiting.is_empty()) {
            clerk.settle();
        }
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
