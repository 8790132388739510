// SPDX-License-Identifier: MPL-2.0

//! In-flight slots: each has a stream, working memory for one group, and recorded graphs of the work for each size of
//! group.

use std::sync::Arc;
use std::time::Duration;

use gpu::{Device, DeviceBuffer, Error, Event, Graph, Kernel, Pinned, Profile, Stream, arguments, zero};

use super::completion::{GroupShape, PendingSums};
use super::frame::HvFrame;
use super::metric::{Addresses, Chains, DynMetric, Pairs, sums_room};
use super::pictures::PictureBuffers;
use crate::backend::Ticket;
use crate::frame::Lease;

/// A group in flight.
pub struct InFlight {
    pub ticket: Ticket,
    pub info: GroupShape,
    /// Reads the sums, unless the thread that fetches them does.
    pub pending: Option<Arc<PendingSums>>,
    /// Leases of the pictures' memory, which is read until the group is done.
    pub leases: Vec<Lease>,
}

/// The memory and objects that one group needs while it is computed.
pub struct InFlightSlot {
    pub stream: Stream,
    /// Marks the end of the copies from the host.
    pub arrived: Event,
    /// Marks the end of what later groups read, of this group and all before it.
    pub remembered: Event,
    pub done: Arc<Event>,
    begin: Kernel,
    end: Kernel,
    /// Host copy of the structures that describe the pictures of each pair.
    pub frames: Pinned,
    pub sums: Arc<Pinned>,
    /// Device memory for the structures, the sums and the scratch.
    on_device: DeviceBuffer,
    /// Recorded work for each number of pairs in a group, from 1: for scored groups, and for those that only serve as
    /// history. `None` if it is not recorded, or if the runtime has no graphs.
    graphs: Vec<[Option<Graph>; 2]>,
    /// Picture buffers, one for each distorted picture.
    pub buffers: Vec<PictureBuffers>,
    pub in_flight: Option<InFlight>,
}

/// Threads per block of the kernels in `kernels/frame.hip`.
const FRAME_THREADS: u32 = 128;

impl InFlightSlot {
    /// Creates a slot. `spin_limit`: how long a thread polls for the group before it sleeps.
    pub fn new(
        device: &Arc<Device>,
        chains: &Chains,
        renditions: usize,
        spin_limit: Duration,
    ) -> Result<Self, Error> {
        let sums = renditions * sums_room(chains);
        let scratch: usize = chains.iter().flatten().map(|metric| scratch_room(&**metric)).sum();
        let size = frames_room(renditions) + sums + scratch;
        let on_device = DeviceBuffer::new(device, "working memory", size)?;
        let stream = Stream::new(device)?;
        // SAFETY: the buffer is that long and belongs to this slot, whose work comes later in the stream.
        unsafe { zero(&stream, on_device.address(), size)? };
        let mut slot = Self {
            stream,
            arrived: Event::new(device)?,
            remembered: Event::new(device)?,
            done: Arc::new(Event::for_host(device, spin_limit)?),
            begin: Kernel::new(device, "frame", "frame_begin", FRAME_THREADS)?,
            end: Kernel::new(device, "frame", "frame_end", FRAME_THREADS)?,
            frames: Pinned::coherent(device.clone(), frames_room(renditions))?,
            sums: Arc::new(Pinned::coherent(device.clone(), sums)?),
            on_device,
            graphs: (0..renditions).map(|_| [None, None]).collect(),
            buffers: (0..renditions).map(|_| PictureBuffers::default()).collect(),
            in_flight: None,
        };
        slot.record(renditions, chains, false)?;
        Ok(slot)
    }

    /// Records the work for groups of fewer pairs and, if they are expected, for groups that only serve as history.
    /// Recording later would take memory and time when such a group comes.
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

    /// Returns true if the runtime has graphs: the first one could be recorded.
    fn records(&self) -> bool {
        self.graphs.last().is_some_and(|[first, _]| first.is_some())
    }

    /// Starts the work for the pairs whose structures are filled in.
    pub fn start(&mut self, count: usize, chains: &Chains, history_only: bool) -> Result<(), Error> {
        let which = usize::from(history_only);
        if self.records() && self.graphs[count - 1][which].is_none() {
            self.record(count, chains, history_only)?;
        }
        match &self.graphs[count - 1][which] {
            // SAFETY: it uses memory of the slot, and pictures that are kept until the group is done.
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

    /// Records the work for `count` pairs as a graph. On devices with branches, each chain of metrics but the first
    /// gets a branch.
    fn record(&mut self, count: usize, chains: &Chains, history_only: bool) -> Result<(), Error> {
        let device = self.stream.device();
        let branches = if Graph::has_branches(device) { chains.len().saturating_sub(1) } else { 0 };
        let branches = (0..branches).map(|_| Branch::new(device)).collect::<Result<Vec<_>, _>>()?;
        let graph = Graph::record(&self.stream, || self.launch(count, chains, history_only, &branches))?;
        self.graphs[count - 1][usize::from(history_only)] = graph;
        Ok(())
    }

    /// Puts the work for `count` pairs into the stream, and into those of the branches if there are any.
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
        let used: u32 = chains.iter().flatten().map(|metric| metric.sums() as u32).sum();
        let (given, room) = (self.frames.address(), sums_room(chains));
        let (grid, pitch) = ((count as u32, 1), room as u32 / 8);
        // SAFETY: the parameters of frame_begin.
        unsafe { self.begin.launch(stream, grid, arguments![given, frame, sums, used, pitch])? };
        let scratch = sums + (self.buffers.len() * room) as u64;
        let first = Addresses { frame, scratch, sums };
        let mut pairs = Pairs { first, count, pitch: room as u64 };
        branches.iter().try_for_each(|branch| branch.fork_from(stream))?;
        for (i, chain) in chains.iter().enumerate() {
            let on = i.checked_sub(1).and_then(|i| branches.get(i)).map_or(stream, |branch| &branch.stream);
            for metric in chain {
                if !history_only || metric.has_history() {
                    metric.launch(on, pairs)?;
                }
                pairs = pairs.after(&**metric);
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
    /// Returns the addresses for the metric after this one.
    fn after(mut self, metric: &dyn DynMetric) -> Self {
        self.first.scratch += scratch_room(metric) as u64;
        self.first.sums += metric.sums() as u64 * 8;
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

    /// Makes the branch begin after the present work of this stream.
    fn fork_from(&self, stream: &Stream) -> Result<(), Error> {
        self.fork.record(stream)?;
        self.stream.wait_for(&self.fork)
    }
}

/// Returns the bytes of the structures of `count` pairs.
fn frames_room(count: usize) -> usize {
    (count * size_of::<HvFrame>()).next_multiple_of(256)
}

fn scratch_room(metric: &dyn DynMetric) -> usize {
    metric.scratch().next_multiple_of(256)
}
