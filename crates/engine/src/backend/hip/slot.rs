// SPDX-License-Identifier: MPL-2.0

//! In-flight slots: a stream and working memory for one group, and recorded graphs of everything that groups of some size
//! need.

use std::sync::Arc;
use std::time::Duration;

use gpu::{Device, DeviceBuffer, Error, Event, Graph, Kernel, Pinned, Profile, Stream, arguments, zero};

use super::early::{Early, Part};
use super::frame::HvFrame;
use super::host::{GroupInfo, Reading};
use super::metric::{Addresses, Chains, Pairs, Task};
use super::pictures::PictureBuffers;
use crate::backend::Ticket;
use crate::frame::Lease;

/// A group in flight.
pub struct InFlight {
    pub ticket: Ticket,
    pub info: GroupInfo,
    /// How its sums are read, where that is not left to whoever collects them.
    pub reading: Option<Arc<Reading>>,
    /// Leases of the pictures' memory, which is read until the group is done.
    pub leases: Vec<Lease>,
}

/// An in-flight slot: what one group needs while it is computed.
pub struct InFlightSlot {
    pub stream: Stream,
    /// What came from the host for the group is there.
    pub arrived: Event,
    pub done: Arc<Event>,
    begin: Kernel,
    end: Kernel,
    /// The structures that tell the kernels where the pictures of each pair are, and the sums; on the host's side.
    pub frames: Pinned,
    pub sums: Arc<Pinned>,
    /// Sums that take long to be read, before the others are there; if somebody stays awake to read them.
    pub early: Option<Arc<Early>>,
    tell: Kernel,
    /// The structures and the sums on the GPU's side, and the scratch.
    on_device: DeviceBuffer,
    /// Recorded work for each number of pairs in a group, from 1: for scored groups, and for those that only serve as
    /// history. `None` where it is not recorded, or the runtime knows no graphs.
    graphs: Vec<[Option<Graph>; 2]>,
    /// Room for the pictures of the group, one for each distorted picture.
    pub buffers: Vec<PictureBuffers>,
    pub in_flight: Option<InFlight>,
}

/// Threads of the kernels of `kernels/frame.hip`.
const FRAME_THREADS: u32 = 128;

impl InFlightSlot {
    /// `patience`: how long a thread that waits for the group stays awake.
    pub fn new(
        device: &Arc<Device>,
        chains: &Chains,
        renditions: usize,
        patience: Duration,
    ) -> Result<Self, Error> {
        let early = || Early::new(device, chains, renditions);
        let early = (!patience.is_zero()).then(early).transpose()?.flatten().map(Arc::new);
        // What the CPU still has to work on is to be there early, and takes little of the GPU.
        let stream = if early.is_some() { Stream::urgent(device)? } else { Stream::new(device)? };
        let sums = renditions * sums_room(chains);
        let scratch: usize = chains.iter().flatten().map(|task| scratch_room(&**task)).sum();
        let size = frames_room(renditions) + sums + scratch;
        let on_device = DeviceBuffer::new(device, "working memory", size)?;
        // SAFETY: the buffer is that long and belongs to this slot, whose work comes later in the stream.
        unsafe { zero(&stream, on_device.address(), size)? };
        let mut slot = Self {
            stream,
            arrived: Event::new(device)?,
            done: Arc::new(Event::for_host(device, patience)?),
            begin: Kernel::new(device, "frame", "frame_begin", FRAME_THREADS)?,
            end: Kernel::new(device, "frame", "frame_end", FRAME_THREADS)?,
            frames: Pinned::coherent(device.clone(), frames_room(renditions))?,
            sums: Arc::new(Pinned::coherent(device.clone(), sums)?),
            early,
            tell: Kernel::new(device, "frame", "frame_tell", FRAME_THREADS)?,
            on_device,
            graphs: (0..renditions).map(|_| [None, None]).collect(),
            buffers: (0..renditions).map(|_| PictureBuffers::default()).collect(),
            in_flight: None,
        };
        slot.record(renditions, chains, false)?;
        Ok(slot)
    }

    /// Records what groups of fewer pairs need, too, and those that only serve as history where such are expected: it takes
    /// memory, and a moment, which none of them has when it comes.
    pub fn record_others(&mut self, chains: &Chains, history: bool) -> Result<(), Error> {
        if !self.records() {
            return Ok(());
        }
        for count in 1..=self.graphs.len() {
            if self.graphs[count - 1][0].is_none() {
                self.record(count, chains, false)?;
            }
            if history {
                self.record(count, chains, true)?;
            }
        }
        Ok(())
    }

    /// The runtime knows graphs, as the first could be recorded.
    fn records(&self) -> bool {
        self.graphs.last().is_some_and(|[first, _]| first.is_some())
    }

    /// Starts the work for the pairs whose structures are in place.
    pub fn start(&mut self, count: usize, chains: &Chains, history_only: bool) -> Result<(), Error> {
        if let Some(early) = &self.early {
            early.forget();
        }
        let which = usize::from(history_only);
        if self.records() && self.graphs[count - 1][which].is_none() {
            self.record(count, chains, history_only)?;
        }
        match &self.graphs[count - 1][which] {
            // SAFETY: it works on the memory of the slot, and on pictures that wait until the group is done.
            Some(graph) => unsafe { graph.launch(&self.stream) },
            None => self.launch(count, chains, history_only, &[]),
        }
    }

    /// Times the kernels for the group in flight.
    pub fn profile(&mut self, chains: &Chains, runs: u32) -> Result<Vec<(String, f32)>, Error> {
        self.stream.synchronize()?;
        let profiling = Stream::profiling(self.stream.device(), Profile::new(runs))?;
        let stream = std::mem::replace(&mut self.stream, profiling);
        let count = self.in_flight.as_ref().map_or(1, |group| group.info.count);
        let launched = self.launch(count, chains, false, &[]);
        let profiling = std::mem::replace(&mut self.stream, stream);
        profiling.synchronize()?;
        launched?;
        profiling.profile().map_or(Ok(vec![]), Profile::times)
    }

    /// Makes a graph of the work for so many pairs, each chain of metrics but the trunk in a branch of its own where that is worth
    /// it.
    fn record(&mut self, count: usize, chains: &Chains, history_only: bool) -> Result<(), Error> {
        let device = self.stream.device();
        let branches = if Graph::has_branches(device) { chains.len().saturating_sub(1) } else { 0 };
        let branches = (0..branches).map(|_| Branch::new(device)).collect::<Result<Vec<_>, _>>()?;
        let graph = Graph::record(&self.stream, || self.launch(count, chains, history_only, &branches))?;
        self.graphs[count - 1][usize::from(history_only)] = graph;
        Ok(())
    }

    /// Which chain is the trunk, that begins before the others: one with sums that somebody reads early, or else the first.
    fn trunk(&self, chains: &Chains, history_only: bool) -> usize {
        let early = self.early.is_some() && !history_only;
        chains.iter().position(|chain| early && chain.iter().any(|task| task.reads_long())).unwrap_or(0)
    }

    /// Puts the work for so many pairs into the stream, and into those of the branches as far as there are any.
    fn launch(
        &self,
        count: usize,
        chains: &Chains,
        history_only: bool,
        branches: &[Branch],
    ) -> Result<(), Error> {
        let stream = &self.stream;
        let frame = self.on_device.address();
        let sums = frame + frames_room(self.buffers.len()) as u64;
        let used: u32 = chains.iter().flatten().map(|task| task.sums() as u32).sum();
        let (given, room) = (self.frames.address(), sums_room(chains));
        let (grid, pitch) = ((count as u32, 1), room as u32 / 8);
        // SAFETY: the parameters of frame_begin.
        unsafe { self.begin.launch(stream, grid, arguments![given, frame, sums, used, pitch])? };
        let scratch = sums + (self.buffers.len() * room) as u64;
        let first = Addresses { frame, scratch, sums };
        let mut pairs = Pairs { first, count, pitch: room as u64, halves: None };
        // The chains with where their data begins, and how many metrics before have sums that take long to be read.
        let (mut places, mut long) = (vec![], 0);
        for chain in chains {
            places.push((chain, pairs, long));
            for task in chain {
                pairs = pairs.after(&**task);
                long += usize::from(task.reads_long());
            }
        }
        let trunk = self.trunk(chains, history_only);
        places[..=trunk].rotate_right(1);
        for (i, (chain, mut pairs, mut long)) in places.into_iter().enumerate() {
            let on = i.checked_sub(1).and_then(|i| branches.get(i)).map_or(stream, |branch| &branch.stream);
            for (j, task) in chain.iter().enumerate() {
                pairs.halves = pairs.halves.or_else(|| task.halves(pairs));
                let wanted = !history_only || task.has_history();
                if wanted {
                    task.launch_first(on, pairs)?;
                }
                if (i, j) == (0, 0) {
                    branches.iter().try_for_each(|branch| branch.fork_from(stream))?;
                }
                if wanted {
                    let early = self.early.as_ref().filter(|_| task.reads_long());
                    let tell = |part: Part| {
                        let Some(early) = early else { return Ok(()) };
                        let (from, n) = (pairs.first.sums, task.sums() as u32);
                        let (taken, told) = early.addresses(from - sums, part, long);
                        // SAFETY: the parameters of frame_tell.
                        unsafe { self.tell.launch(on, grid, arguments![from, taken, n, pitch, told]) }
                    };
                    task.launch_ahead(on, pairs)?;
                    tell(Part::Ahead)?;
                    task.launch(on, pairs)?;
                    tell(Part::All)?;
                }
                pairs = pairs.after(&**task);
                long += usize::from(task.reads_long());
            }
        }
        for branch in branches {
            branch.join.record(&branch.stream)?;
            stream.wait_for(&branch.join)?;
        }
        let taken = self.sums.address();
        // SAFETY: the parameters of frame_end.
        unsafe { self.end.launch(stream, grid, arguments![sums, taken, used, pitch]) }
    }
}

impl Pairs {
    /// The same for the metric after this one.
    fn after(mut self, task: &dyn Task) -> Self {
        self.first.scratch += scratch_room(task) as u64;
        self.first.sums += task.sums() as u64 * 8;
        self
    }
}

/// A branch of a graph that is being recorded.
struct Branch {
    stream: Stream,
    fork: Event,
    join: Event,
}

impl Branch {
    fn new(device: &Arc<Device>) -> Result<Self, Error> {
        Ok(Self { stream: Stream::new(device)?, fork: Event::new(device)?, join: Event::new(device)? })
    }

    /// It begins after what is in this stream so far.
    fn fork_from(&self, stream: &Stream) -> Result<(), Error> {
        self.fork.record(stream)?;
        self.stream.wait_for(&self.fork)
    }
}

/// Bytes of the structures of so many pairs.
fn frames_room(count: usize) -> usize {
    (count * size_of::<HvFrame>()).next_multiple_of(256)
}

fn scratch_room(task: &dyn Task) -> usize {
    task.scratch().next_multiple_of(256)
}

/// Bytes of the sums of one pair.
pub fn sums_room(chains: &Chains) -> usize {
    chains.iter().flatten().map(|task| task.sums() * 8).sum::<usize>().next_multiple_of(256)
}
