// SPDX-License-Identifier: MPL-2.0

//! The GPU backend: several groups of pictures are in flight, each in an in-flight slot.
//!
//! Only the reference's luma is needed after its group, for the motion of later groups. It has memory of its own.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gpu::{ContextGuard, Device, DeviceBuffer, DeviceInfo, Error, Ownership, Selection, Stream};

use super::completion::{self, GroupShape, PendingSums, ReadJob, SumsReader};
use super::frame::{HvFrame, HvPlane};
use super::metric::{self, Chains, Overlap, Setup};
use super::pictures::{Luma, PictureBuffers, Placer, Rooms, Uploads, in_place, room};
use super::scale::Scaler;
use super::self_test::{self, SelfTest};
use super::shared::bytes_of;
use super::slot::{InFlight, InFlightSlot};
use super::{METRICS, images};
use crate::backend::warm_up::WarmUp;
use crate::backend::{Backend, BackendError, Completion, Group, Ticket, check_size};
use crate::frame::Geometry;
use crate::metrics::{FrameSums, Work};
use crate::scale::Scaling;

/// Groups in flight in a self-test: enough for one that waits for results of another stream.
const TEST_DEPTH: usize = 2;

/// The GPU backend.
pub struct Hip {
    device: Arc<Device>,
    /// Counts this session as load of the GPU; `None` in a self-test.
    ownership: Option<Ownership>,
    depth: usize,
    /// How long a thread polls for a group before it sleeps.
    spin_limit: Duration,
    copiers: usize,
    /// Groups are expected that only serve as history.
    history: bool,
    prepared: Option<Prepared>,
    /// Number of the next group's ticket.
    next: u64,
    self_test: Option<SelfTest>,
}

impl Hip {
    /// Opens the least loaded of the selected GPUs ([`Ownership`]) for `depth` groups in flight (at least 1).
    pub fn open(selection: &Selection, depth: usize) -> Result<Self, BackendError> {
        Self::open_besides(selection, depth, &[])
    }

    /// Opens a GPU like [`Hip::open`], but none of `others`.
    pub fn open_besides(
        selection: &Selection,
        depth: usize,
        others: &[&'static DeviceInfo],
    ) -> Result<Self, BackendError> {
        let ownership = images::ownership(selection, others)?;
        Ok(Self::new(ownership.device().clone(), Some(ownership), depth.max(1)))
    }

    fn new(device: Arc<Device>, ownership: Option<Ownership>, depth: usize) -> Self {
        // With one group at a time, the waiting thread has nothing else to do and needs the sums soon.
        let spin_limit = if depth == 1 { completion::SPIN_LIMIT } else { Duration::ZERO };
        let (copiers, history, prepared, next, self_test) = (1, false, None, 0, None);
        Self { device, ownership, depth, spin_limit, copiers, history, prepared, next, self_test }
    }

    /// Explains, for a log, why this GPU was chosen.
    pub fn why(&self) -> &str {
        self.ownership.as_ref().map_or("", Ownership::why)
    }

    /// Returns the result of the self-test for the prepared work.
    pub fn self_test(&self) -> Option<SelfTest> {
        self.self_test
    }

    /// Prepares a GPU for a self-test: the same as for scoring, but without a self-test. `overlap`: the setting to be
    /// tested.
    fn untested(
        device: &Arc<Device>,
        work: &Work,
        geometry: Geometry,
        overlap: Overlap,
        renditions: &[Option<Scaling>],
    ) -> Result<Self, BackendError> {
        let flight = (TEST_DEPTH, overlap, Duration::ZERO);
        let prepared = Some(Prepared::new(device, work, geometry, flight, renditions)?);
        Ok(Self { prepared, ..Self::new(device.clone(), None, TEST_DEPTH) })
    }

    /// Computes a group in every in-flight slot and discards the sums.
    fn warm_up(&mut self, geometry: Geometry, renditions: &[Option<Scaling>]) -> Result<(), BackendError> {
        if renditions.is_empty() {
            return Ok(());
        }
        let warm_up = WarmUp::new(geometry, renditions);
        // Every in-flight slot computes a group, and every buffer for a kept reference picture is used once.
        let kept = self.prepared.as_ref().map_or(0, |prepared| prepared.lumas.len());
        let mut tickets = VecDeque::new();
        for _ in 0..kept.max(self.depth) {
            if tickets.len() == self.depth
                && let Some(oldest) = tickets.pop_front()
            {
                self.wait(oldest)?;
            }
            tickets.push_back(self.submit(warm_up.group())?);
        }
        tickets.into_iter().try_for_each(|ticket| self.wait(ticket).map(|_| ()))?;
        self.reset();
        let history = self.history;
        self.prepared.as_mut().map_or(Ok(()), |prepared| prepared.settle(history))
    }

    /// Computes a group only to time its kernels. Returns their names in the order of launches, and the mean
    /// milliseconds of `runs` in a row. If launching takes longer than the kernel, the time is that of the launch.
    pub fn profile(&mut self, group: Group<'_>, runs: u32) -> Result<Vec<(String, f32)>, BackendError> {
        let ticket = self.submit(group)?;
        let Prepared { slots, chains, .. } = self.prepared.as_mut().ok_or(BackendError::NotPrepared)?;
        let slot = ticket.0 as usize % slots.len();
        let times = slots[slot].profile(chains, runs);
        // The kernels have added to the sums several times, so these are meaningless.
        self.wait(ticket)?;
        Ok(times?)
    }
}

impl fmt::Display for Hip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} GPU {}", self.device.info().vendor, self.device.info())
    }
}

impl Backend for Hip {
    fn name(&self) -> &'static str {
        "hip"
    }

    fn gpu(&self) -> Option<&Arc<Device>> {
        Some(&self.device)
    }

    fn made_by(&self) -> Vec<(&'static str, String)> {
        let info = self.device.info();
        let code = self.device.module("frame").map_or("", |module| module.target());
        vec![
            ("backend", self.name().into()),
            ("device", info.to_string()),
            ("runtime", info.runtime()),
            ("code", code.into()),
            ("self-test", self.self_test.map_or("", SelfTest::name).into()),
        ]
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn prepare(
        &mut self,
        work: &Work,
        geometry: Geometry,
        renditions: &[Option<Scaling>],
    ) -> Result<(), BackendError> {
        let _context = ContextGuard::new();
        self.prepared = None;
        let overlap = Overlap::of(self.depth);
        let device = &self.device;
        let untested = |geometry, renditions: &[_]| {
            let hip = Self::untested(device, work, geometry, overlap, renditions)?;
            Ok(Box::new(hip) as Box<dyn Backend>)
        };
        self.self_test = Some(self_test::pass(device, work, geometry, overlap, renditions, &untested)?);
        let flight = (self.depth, overlap, self.spin_limit);
        self.prepared = Some(Prepared::new(&self.device, work, geometry, flight, renditions)?);
        let warmed = self.warm_up(geometry, renditions);
        if warmed.is_err() {
            self.prepared = None;
        }
        warmed
    }

    fn submit(&mut self, group: Group<'_>) -> Result<Ticket, BackendError> {
        let _context = ContextGuard::new();
        let prepared = self.prepared.as_mut().ok_or(BackendError::NotPrepared)?;
        let ticket = Ticket(self.next);
        prepared.submit(ticket, group, self.copiers)?;
        self.next += 1;
        Ok(ticket)
    }

    fn expect_history(&mut self, expected: bool) {
        self.history = expected;
    }

    fn set_copiers(&mut self, threads: usize) {
        self.copiers = threads;
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<FrameSums>>, BackendError> {
        let prepared = self.prepared.as_mut().ok_or(BackendError::NotPrepared)?;
        prepared.poll(ticket)
    }

    fn completion(&self, ticket: Ticket) -> Option<Completion> {
        let prepared = self.prepared.as_ref()?;
        let slot = &prepared.slots[ticket.0 as usize % prepared.slots.len()];
        let pending = slot.in_flight.as_ref().and_then(|group| group.pending.clone());
        let done = slot.done.clone();
        let reader = prepared.reader.is_some();
        Some(Box::new(move || match pending {
            Some(pending) if reader => pending.wait(),
            Some(pending) => pending.read(),
            None => {
                // The caller meets the same error when it fetches the sums.
                let _ = done.synchronize();
            }
        }))
    }

    fn reset(&mut self) {
        if let Some(prepared) = &mut self.prepared {
            prepared.reset();
        }
    }
}

/// State for frames of one geometry.
struct Prepared {
    device: Arc<Device>,
    /// Stream that copies pictures from the host.
    uploads: Arc<Stream>,
    geometry: Geometry,
    chains: Arc<Chains>,
    /// Reading the sums of a group takes too long for the thread that fetches them.
    reads_long: bool,
    /// Reads them if many groups are in flight; otherwise the waiting threads do.
    reader: Option<SumsReader>,
    lags: usize,
    /// Earlier pictures of each stream that metrics keep.
    history: usize,
    /// Successive frames of each rendition up to the last group, as far as they matter.
    ages: Vec<usize>,
    chroma: bool,
    /// Scales the pictures of each rendition; `None` if they have the reference's size.
    scalers: Vec<Option<Scaler>>,
    /// Bytes of all pictures in one of the picture buffers.
    room: usize,
    /// Bytes of a scaled picture.
    scaled: usize,
    slots: Vec<InFlightSlot>,
    lumas: Vec<Luma>,
    /// The picture buffers that every slot has, and the bytes for the luma of a reference picture.
    provided: (Vec<Rooms>, usize),
    /// Groups submitted in the present run.
    run: usize,
    /// Ticket of the last group.
    last: Option<Ticket>,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // Memory that is freed or returned to a pool must not be in use.
        for slot in &self.slots {
            let _ = slot.stream.synchronize();
        }
        self.reader = None;
        let pending = self.slots.iter().filter_map(|slot| slot.in_flight.as_ref()?.pending.as_ref());
        pending.for_each(|pending| pending.read());
    }
}

impl Prepared {
    fn new(
        device: &Arc<Device>,
        work: &Work,
        geometry: Geometry,
        (depth, overlap, spin_limit): (usize, Overlap, Duration),
        renditions: &[Option<Scaling>],
    ) -> Result<Self, BackendError> {
        work.check(geometry)?;
        let setup = Setup { device, work, geometry, renditions: renditions.len(), slots: depth, overlap };
        load_modules(&setup, renditions)?;
        let chains = Arc::new(metric::prepare(&setup)?);
        let reads_long = chains.iter().flatten().any(|metric| metric.reads_long());
        let reader = (reads_long && overlap != Overlap::Little).then(SumsReader::new).transpose()?;
        let (lags, history, ages) = (work.lags(), work.history(), vec![0; renditions.len()]);
        let scaler = |scaling: &Option<Scaling>| scaling.map(|s| Scaler::new(device, &s)).transpose();
        let scalers = renditions.iter().map(scaler).collect::<Result<Vec<_>, _>>()?;
        let scaled = scalers.iter().flatten().map(Scaler::room).max().unwrap_or(0);
        let slot = |_| InFlightSlot::new(device, &chains, renditions.len(), spin_limit);
        let slots = (0..depth).map(slot).collect::<Result<_, _>>()?;
        let sources = scalers.iter().flatten().map(|scaler| room(scaler.source()));
        let room = room(geometry) + sources.max().unwrap_or(0).max(room(geometry));
        let lumas = (0..depth + lags).map(|_| Luma::new(device)).collect::<Result<_, _>>()?;
        let chroma = work.chroma() && geometry.chroma.is_some();
        let uploads = Stream::uploads(device)?;
        let device = device.clone();
        let (run, last) = (0, None);
        Ok(Self {
            device,
            uploads,
            geometry,
            chains,
            reads_long,
            reader,
            lags,
            history,
            ages,
            chroma,
            scalers,
            room,
            scaled,
            slots,
            lumas,
            provided: (vec![], 0),
            run,
            last,
        })
    }

    fn submit(&mut self, ticket: Ticket, group: Group<'_>, copiers: usize) -> Result<(), BackendError> {
        let slot = ticket.0 as usize % self.slots.len();
        self.check(&self.slots[slot], &group)?;
        let started = self.start(ticket, &group, copiers).and_then(|()| Ok(self.provide(ticket)?));
        if started.is_err() {
            // The streams may already read the pictures, whose leases end here. On a lost device nothing is read.
            let _ = self.uploads.synchronize();
            let _ = self.slots[slot].stream.synchronize();
            return started;
        }
        let history_only = group.is_history_only();
        let Group { reference, distorted, .. } = group;
        let count = distorted.len().max(1);
        let pictures = distorted.into_iter().map(|(_, picture)| picture).chain([reference]);
        let leases = pictures.filter_map(|picture| picture.lease).collect();
        let slot = &mut self.slots[slot];
        let info = GroupShape { count, history_only, run: self.run };
        let pending = self.reads_long.then(|| {
            let (chains, sums) = (self.chains.clone(), slot.sums.clone());
            PendingSums::new(slot.done.clone(), ReadJob { chains, sums, group: info })
        });
        if let (Some(reader), Some(pending)) = (&self.reader, &pending) {
            reader.read(pending);
        }
        slot.in_flight = Some(InFlight { ticket, info, pending, leases });
        self.run += 1;
        self.last = Some(ticket);
        Ok(())
    }

    /// Rejects a group that differs from the prepared geometry, or whose slot is not free.
    fn check(&self, slot: &InFlightSlot, group: &Group<'_>) -> Result<(), BackendError> {
        let Group { reference, distorted, .. } = group;
        if slot.in_flight.is_some() || slot.buffers.is_empty() || distorted.len() > slot.buffers.len() {
            return Err(BackendError::Full);
        }
        check_size(reference, self.geometry)?;
        distorted.iter().try_for_each(|(rendition, picture)| {
            let scaler = self.scalers.get(*rendition).ok_or(BackendError::NotPrepared)?.as_ref();
            check_size(picture, scaler.map_or(self.geometry, Scaler::source))
        })
    }

    /// Puts the work for a group into the stream of its slot.
    fn start(&mut self, ticket: Ticket, group: &Group<'_>, copiers: usize) -> Result<(), BackendError> {
        let Group { reference, distorted, .. } = group;
        let n = ticket.0 as usize;
        let lumas = self.lumas.len();
        let slot = n % self.slots.len();
        let InFlightSlot { stream, arrived, buffers, .. } = &mut self.slots[slot];
        let mut frame = HvFrame::default();
        let luma = &mut self.lumas[n % lumas];
        let (size, room, device) = (self.geometry.sample_size(), self.room, &self.device);
        buffers.iter_mut().for_each(|buffers| buffers.used = 0);
        let mut uploads = Uploads::through(&self.uploads);
        let mut first =
            Placer { device, size, room, stream, buffers: &mut buffers[0], index: 0, uploads: &mut uploads };
        first.await_producer(reference)?;
        frame.reference[0] =
            first.place(reference.luma, reference.lease.as_ref(), &mut Some(&mut luma.buffer))?;
        if self.chroma {
            [frame.reference[1], frame.reference[2]] = first.place_chroma(reference)?;
        }
        let mut placed = vec![];
        for (index, (_, picture)) in distorted.iter().enumerate() {
            let (buffers, uploads) = (&mut buffers[index], &mut uploads);
            let mut placer = Placer { device, size, room, stream, buffers, index, uploads };
            placer.await_producer(picture)?;
            let mut planes = [HvPlane::default(); 3];
            planes[0] = placer.place(picture.luma, picture.lease.as_ref(), &mut None)?;
            if self.chroma {
                [planes[1], planes[2]] = placer.place_chroma(picture)?;
            }
            placed.push(planes);
        }
        uploads.finish(stream, arrived, buffers, copiers)?;

        luma.plane = frame.reference[0];
        // A copy stays valid after the buffer it was made of.
        let in_place = in_place(&reference.luma, reference.lease.as_ref());
        luma.lease = reference.lease.clone().filter(|_| in_place);
        luma.written =
            !in_place || reference.lease.as_ref().is_some_and(|lease| !lease.producers().is_empty());
        if luma.written {
            luma.ready.record(stream)?;
        }
        for lag in 1..=self.lags.min(self.run) {
            let earlier = &self.lumas[(n - lag) % lumas];
            frame.earlier[lag - 1] = earlier.plane;
            if earlier.written {
                stream.wait_for(&earlier.ready)?;
            }
        }
        frame.place = (n % (self.history + self.slots.len())) as u32;
        for (rendition, age) in self.ages.iter_mut().enumerate() {
            let here = distorted.iter().any(|(present, _)| *present == rendition);
            *age = if here { (*age + 1).min(self.history + 1) } else { 0 };
        }
        let mut taken = vec![(0, frame.reference)];
        let InFlightSlot { stream, buffers, frames, .. } = &mut self.slots[slot];
        for (i, ((rendition, _), planes)) in distorted.iter().zip(placed).enumerate() {
            frame.distorted = match &self.scalers[*rendition] {
                Some(scaler) => scaler.launch(stream, planes, buffers[i].scaled(device, self.scaled)?)?,
                None => planes,
            };
            taken.push((1 + rendition, frame.distorted));
            let age = self.ages[*rendition];
            let like = distorted.iter().position(|(other, _)| self.ages[*other] == age).unwrap_or(i);
            (frame.age, frame.rendition, frame.like) = (age as u32, *rendition as u32, like as u32);
            let bytes = bytes_of(std::slice::from_ref(&frame));
            frames.bytes_mut()[i * bytes.len()..][..bytes.len()].copy_from_slice(bytes);
        }
        if distorted.is_empty() {
            frame.distorted = frame.reference;
            let bytes = bytes_of(std::slice::from_ref(&frame));
            frames.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        }
        if self.chains.iter().flatten().any(|metric| metric.keeps()) {
            self.remember(n, &taken)?;
        }
        let slot = &mut self.slots[slot];
        slot.start(distorted.len().max(1), &self.chains, group.is_history_only())?;
        Ok(slot.done.record(&slot.stream)?)
    }

    /// Adds the pictures of group `n` to the histories of metrics, and makes the group wait for those of all groups before
    /// it.
    fn remember(&self, n: usize, pictures: &[(usize, [HvPlane; 3])]) -> Result<(), Error> {
        let slots = self.slots.len();
        let InFlightSlot { stream, remembered, .. } = &self.slots[n % slots];
        self.chains.iter().flatten().try_for_each(|metric| metric.remember(stream, n, pictures))?;
        if let Some(last) = self.last {
            stream.wait_for(&self.slots[last.0 as usize % slots].remembered)?;
        }
        remembered.record(stream)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<FrameSums>>, BackendError> {
        let n = ticket.0 as usize;
        let slots = self.slots.len();
        let slot = &mut self.slots[n % slots];
        if slot.in_flight.as_ref().is_none_or(|frame| frame.ticket != ticket) {
            return Err(BackendError::UnknownTicket);
        }
        let pending = slot.in_flight.as_ref().and_then(|group| group.pending.as_ref());
        if let Some(pending) = pending.filter(|_| self.reader.is_none())
            && slot.done.is_done()?
        {
            pending.read();
        }
        let read = match pending.map(|pending| pending.take()) {
            Some(None) => return Ok(None),
            Some(Some(sums)) => Some(sums?),
            None if !slot.done.is_done()? => return Ok(None),
            None => None,
        };
        let Some(group) = slot.in_flight.take() else { return Err(BackendError::UnknownTicket) };
        let sums = read.unwrap_or_else(|| completion::read(&self.chains, &slot.sums, group.info));
        // No later group reads the luma of this frame.
        if let Some(oldest) = n.checked_sub(self.lags) {
            let lumas = self.lumas.len();
            self.lumas[oldest % lumas].lease = None;
        }
        Ok(Some(sums))
    }

    /// Gives every slot the picture buffers that this group has needed. Later groups will probably need the same and
    /// should not wait for memory.
    fn provide(&mut self, ticket: Ticket) -> Result<(), Error> {
        let n = ticket.0 as usize;
        let (slots, lumas) = (self.slots.len(), self.lumas.len());
        let rooms = || self.slots[n % slots].buffers.iter().map(PictureBuffers::rooms);
        let luma = self.lumas[n % lumas].buffer.as_ref().map_or(0, DeviceBuffer::size);
        if rooms().eq(self.provided.0.iter().copied()) && luma == self.provided.1 {
            return Ok(());
        }
        self.provided = (rooms().collect(), luma);
        for slot in &mut self.slots {
            for (buffers, rooms) in slot.buffers.iter_mut().zip(&self.provided.0) {
                buffers.make(*rooms, &self.device, self.room)?;
            }
        }
        for other in self.lumas.iter_mut().filter(|other| luma > 0 && other.buffer.is_none()) {
            other.buffer = Some(DeviceBuffer::new(&self.device, "a picture", luma)?);
        }
        Ok(())
    }

    /// Allocates the rest after warming up. Picture buffers of the warm-up that real pictures may not need return to
    /// the pool, where they are available for the first of them.
    fn settle(&mut self, history: bool) -> Result<(), BackendError> {
        for slot in &mut self.slots {
            slot.record_others(&self.chains, history)?;
            for buffers in &mut slot.buffers {
                (buffers.staging, buffers.pictures) = (None, None);
                if self.scaled > 0 {
                    buffers.scaled(&self.device, self.scaled)?;
                }
            }
        }
        self.lumas.iter_mut().for_each(|luma| luma.buffer = None);
        self.provided = (vec![], 0);
        Ok(())
    }

    fn reset(&mut self) {
        self.run = 0;
        self.ages.fill(0);
        // Groups in flight may read them, at the latest the last one.
        let slots = self.slots.len();
        let last = self.last.and_then(|last| self.slots[last.0 as usize % slots].in_flight.as_mut());
        let leases = self.lumas.iter_mut().filter_map(|luma| luma.lease.take());
        match last {
            Some(last) => last.leases.extend(leases),
            None => drop(leases.collect::<Vec<_>>()),
        }
    }
}

/// Loads the modules for the work in parallel, since a driver that compiles needs time for each.
fn load_modules(setup: &Setup<'_>, renditions: &[Option<Scaling>]) -> Result<(), Error> {
    let metrics = METRICS.iter().flat_map(|metric| (metric.modules)(setup));
    let scale = renditions.iter().any(Option::is_some).then_some("scale");
    let modules = metrics.chain(scale).chain(["frame"]);
    std::thread::scope(|scope| {
        let loads: Vec<_> =
            modules.map(|module| scope.spawn(move || setup.device.module(module).map(|_| ()))).collect();
        // A panic has printed its message. The module is requested again later, which reports the error.
        loads.into_iter().try_for_each(|load| load.join().unwrap_or(Ok(())))
    })
}
