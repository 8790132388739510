// SPDX-License-Identifier: MPL-2.0

//! The backend: several groups of frames in flight, each in a lane of its own.
//!
//! A lane has a stream and working memory, and recorded graphs of everything that groups of some size need. Only the
//! reference's luma outlives its group, for the motion of the next; it lies in a slot of its own.

use std::fmt;
use std::sync::Arc;

use gpu::{
    Device, DeviceBuffer, Direction, Error, Event, Graph, Kernel, Pinned, Profile, Rectangle, Selection,
    Stream, arguments, copy, copy_rectangle, zero,
};

use super::adm::Adm;
use super::cambi::Cambi;
use super::ciede::Ciede;
use super::frame::{ALIGNMENT, HvFrame, HvPlane};
use super::images;
use super::motion::Motion;
use super::psnr::Psnr;
use super::psnr_hvs::PsnrHvs;
use super::scale::Scaler;
use super::shared::bytes_of;
use super::speed::Speed;
use super::ssim::Ssim;
use super::vif::Vif;
use crate::backend::{Backend, BackendError, Completion, Group, Ticket, check, check_size};
use crate::frame::{BitDepth, Component, Geometry, Lease, Picture, Samples};
use crate::metrics::{FrameSums, Work};
use crate::scale::Scaling;

/// Where a metric finds its data, as addresses in device memory.
#[derive(Clone, Copy)]
pub struct Addresses {
    /// The [`HvFrame`] of the pair.
    pub frame: u64,
    /// Room for what is handed from kernel to kernel; zeroed once, before the first frame.
    pub scratch: u64,
    /// The sums, zeroed before each frame.
    pub sums: u64,
}

/// The pairs of a reference picture and one or more distorted ones.
#[derive(Clone, Copy)]
pub struct Pairs {
    pub first: Addresses,
    /// At least 1. Their frames lie in a row.
    pub count: usize,
    /// From the sums of a pair to those of the next.
    pub pitch: u64,
}

impl Pairs {
    /// One of them.
    pub fn pair(&self, i: usize) -> Addresses {
        let Addresses { frame, scratch, sums } = self.first;
        let i = i as u64;
        Addresses { frame: frame + i * size_of::<HvFrame>() as u64, scratch, sums: sums + i * self.pitch }
    }
}

/// The work for one metric on frames of one geometry.
pub trait Metric: Send {
    /// Bytes of scratch, for all pairs of a group together.
    fn scratch(&self) -> usize {
        0
    }

    /// How many sums it has.
    fn sums(&self) -> usize;

    /// It is computed for pairs that are not scored as well.
    fn needs_history(&self) -> bool {
        false
    }

    /// Puts the work for the pairs of a group into a stream. What depends on the reference only need not be repeated.
    fn launch(&self, stream: &Stream, pairs: Pairs) -> Result<(), Error>;

    /// Takes the sums of a frame that had `run` frames before it.
    fn read(&self, sums: &[u64], run: usize, out: &mut FrameSums);

    /// Takes the sums of all pairs of a group.
    fn read_all(&self, sums: &[&[u64]], run: usize, out: &mut [FrameSums]) {
        sums.iter().zip(out).for_each(|(sums, out)| self.read(sums, run, out));
    }
}

/// Computes on a GPU.
pub struct Hip {
    device: Arc<Device>,
    depth: usize,
    prepared: Option<Prepared>,
    /// Of the next group.
    next: u64,
}

impl Hip {
    /// Opens the GPU that is wanted, for `depth` pairs in flight (at least 1).
    pub fn open(selection: &Selection, depth: usize) -> Result<Self, BackendError> {
        Ok(Self { device: images::open(selection)?, depth: depth.max(1), prepared: None, next: 0 })
    }

    /// Submits a group and waits for it, only to time its kernels: the names in the order of launches, and the mean
    /// milliseconds of `runs` in a row. Beside the kernels' own time that is the launch's, should it take longer.
    pub fn profile(&mut self, group: Group<'_>, runs: u32) -> Result<Vec<(String, f32)>, BackendError> {
        let ticket = self.submit(group)?;
        let prepared = self.prepared.as_mut().ok_or(BackendError::NotPrepared)?;
        let times = prepared.profile(ticket, runs);
        // The sums have piled up and mean nothing.
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

    fn depth(&self) -> usize {
        self.depth
    }

    fn prepare(
        &mut self,
        work: &Work,
        geometry: Geometry,
        renditions: &[Option<Scaling>],
    ) -> Result<(), BackendError> {
        self.prepared = None;
        self.prepared = Some(Prepared::new(&self.device, work, geometry, self.depth, renditions)?);
        Ok(())
    }

    fn submit(&mut self, group: Group<'_>) -> Result<Ticket, BackendError> {
        let prepared = self.prepared.as_mut().ok_or(BackendError::NotPrepared)?;
        let ticket = Ticket(self.next);
        prepared.submit(ticket, group)?;
        self.next += 1;
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<FrameSums>>, BackendError> {
        let prepared = self.prepared.as_mut().ok_or(BackendError::NotPrepared)?;
        prepared.poll(ticket)
    }

    fn completion(&self, ticket: Ticket) -> Option<Completion> {
        let prepared = self.prepared.as_ref()?;
        let done = prepared.lanes[ticket.0 as usize % prepared.lanes.len()].done.clone();
        Some(Box::new(move || {
            // An error is met again by whoever asks for the sums.
            let _ = done.synchronize();
        }))
    }

    fn reset(&mut self) {
        if let Some(prepared) = &mut self.prepared {
            prepared.reset();
        }
    }
}

/// A group in flight.
struct InFlight {
    ticket: Ticket,
    /// Distorted pictures.
    count: usize,
    history_only: bool,
    /// Frames before it in its run.
    run: usize,
    /// Of memory that is read until the group is done.
    leases: Vec<Lease>,
}

/// What one group in flight needs.
struct Lane {
    stream: Stream,
    done: Arc<Event>,
    begin: Kernel,
    end: Kernel,
    /// The structures that tell the kernels where the pictures of each pair are, and the sums; on the host's side.
    frames: Pinned,
    sums: Pinned,
    /// The same, and the scratch.
    on_device: DeviceBuffer,
    /// For each size of a group, from 1: for scored pairs, and for those that only serve as history. `None`: not
    /// recorded, or not known to the runtime.
    graphs: Vec<[Option<Graph>; 2]>,
    /// For each distorted picture.
    desks: Vec<Desk>,
    in_flight: Option<InFlight>,
}

/// Room for one distorted picture of a group; the reference's belongs to the first.
#[derive(Default)]
struct Desk {
    /// Pictures on their way to the GPU, and there; made when the first one comes by this way. With the bytes taken.
    staging: Option<Pinned>,
    staged: usize,
    pictures: Option<DeviceBuffer>,
    used: usize,
    /// The scaled picture, made with the first one.
    scaled: Option<DeviceBuffer>,
}

/// The luma of a reference frame.
struct Slot {
    /// Made when the first one is copied.
    buffer: Option<DeviceBuffer>,
    plane: HvPlane,
    /// The luma was put there by the GPU, which is done at `ready`.
    written: bool,
    ready: Event,
    /// Of memory that is read in place.
    lease: Option<Lease>,
}

/// What is set up for the frames of one geometry.
struct Prepared {
    device: Arc<Device>,
    geometry: Geometry,
    metrics: Vec<Box<dyn Metric>>,
    lags: usize,
    chroma: bool,
    /// For each rendition, what scales its pictures if they are.
    scalers: Vec<Option<Scaler>>,
    /// Bytes that all pictures of a desk take, and the scaled one.
    room: usize,
    scaled: usize,
    lanes: Vec<Lane>,
    slots: Vec<Slot>,
    /// Groups submitted in the present run.
    run: usize,
    /// The group submitted last.
    last: Option<Ticket>,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // What is freed or goes back to a pool must not be in use any more.
        for lane in &self.lanes {
            let _ = lane.stream.synchronize();
        }
    }
}

impl Prepared {
    fn new(
        device: &Arc<Device>,
        work: &Work,
        geometry: Geometry,
        depth: usize,
        renditions: &[Option<Scaling>],
    ) -> Result<Self, BackendError> {
        check(work, geometry)?;
        load_modules(device, work, geometry.depth, renditions)?;
        let (alone, several) = (depth <= 2, renditions.len() > 1);
        let mut metrics: Vec<Box<dyn Metric>> = vec![];
        if let Some(vif) = &work.vif {
            metrics.push(Box::new(Vif::new(device, vif, work.damage, geometry, alone, renditions.len())?));
        }
        if let Some(work) = &work.adm {
            metrics.push(Box::new(Adm::new(device, work, geometry, alone, several)?));
        }
        if let Some(work) = work.motion {
            metrics.push(Box::new(Motion::new(device, work, geometry)?));
        }
        if let Some(work) = work.psnr {
            metrics.push(Box::new(Psnr::new(device, work, geometry)?));
        }
        if let Some(work) = &work.speed {
            metrics.push(Box::new(Speed::new(device, work, geometry)?));
        }
        for work in &work.cambi {
            metrics.push(Box::new(Cambi::new(device, work.plan(geometry)?, geometry)?));
        }
        if let Some(work) = &work.ssim {
            metrics.push(Box::new(Ssim::new(device, work, geometry, alone, several)?));
        }
        if work.psnr_hvs {
            metrics.push(Box::new(PsnrHvs::new(device, geometry, renditions.len())?));
        }
        if work.ciede {
            metrics.push(Box::new(Ciede::new(device, geometry)?));
        }
        let lags = work.motion.map_or(0, |motion| motion.lags());
        let scaler = |scaling: &Option<Scaling>| scaling.map(|s| Scaler::new(device, &s)).transpose();
        let scalers = renditions.iter().map(scaler).collect::<Result<Vec<_>, _>>()?;
        let scaled = scalers.iter().flatten().map(Scaler::room).max().unwrap_or(0);
        let lane = |_| Lane::new(device, &metrics, renditions.len());
        let lanes = (0..depth).map(lane).collect::<Result<_, _>>()?;
        let sources = scalers.iter().flatten().map(|scaler| room(scaler.source()));
        let room = room(geometry) + sources.max().unwrap_or(0).max(room(geometry));
        let slots = (0..depth + lags).map(|_| Slot::new(device)).collect::<Result<_, _>>()?;
        let chroma = work.chroma() && geometry.chroma.is_some();
        let device = device.clone();
        let (run, last) = (0, None);
        Ok(Self { device, geometry, metrics, lags, chroma, scalers, room, scaled, lanes, slots, run, last })
    }

    fn submit(&mut self, ticket: Ticket, group: Group<'_>) -> Result<(), BackendError> {
        let Group { reference, distorted, history_only } = group;
        let n = ticket.0 as usize;
        let slots = self.slots.len();
        let lane = n % self.lanes.len();
        let Lane { stream, desks, in_flight, .. } = &mut self.lanes[lane];
        if in_flight.is_some() || !(1..=desks.len()).contains(&distorted.len()) {
            return Err(BackendError::Full);
        }
        check_size(&reference, self.geometry)?;
        for (rendition, picture) in &distorted {
            let scaler = self.scalers.get(*rendition).ok_or(BackendError::NotPrepared)?.as_ref();
            check_size(picture, scaler.map_or(self.geometry, Scaler::source))?;
        }
        for desk in &mut *desks {
            (desk.used, desk.staged) = (0, 0);
        }
        let mut frame = HvFrame::default();
        let slot = &mut self.slots[n % slots];
        let (size, room) = (self.geometry.sample_size(), self.room);
        let mut first = Placer { device: &self.device, size, room, stream, desk: &mut desks[0] };
        first.await_producer(&reference)?;
        frame.reference[0] =
            first.place(reference.luma, reference.lease.as_ref(), &mut Some(&mut slot.buffer))?;
        if self.chroma {
            [frame.reference[1], frame.reference[2]] = first.place_chroma(&reference)?;
        }
        slot.plane = frame.reference[0];
        // A copy outlives the buffer it was made of.
        let in_place = in_place(&reference.luma, reference.lease.as_ref());
        slot.lease = reference.lease.clone().filter(|_| in_place);
        slot.written = !in_place || reference.lease.as_ref().is_some_and(|lease| lease.producer.is_some());
        if slot.written {
            slot.ready.record(stream)?;
        }
        for lag in 1..=self.lags.min(self.run) {
            let earlier = &self.slots[(n - lag) % slots];
            frame.earlier[lag - 1] = earlier.plane;
            if earlier.written {
                self.lanes[lane].stream.wait_for(&earlier.ready)?;
            }
        }
        let lane = &mut self.lanes[lane];
        for (i, (rendition, picture)) in distorted.iter().enumerate() {
            let Lane { stream, desks, frames, .. } = &mut *lane;
            let mut placer = Placer { device: &self.device, size, room, stream, desk: &mut desks[i] };
            placer.await_producer(picture)?;
            let mut planes = [HvPlane::default(); 3];
            planes[0] = placer.place(picture.luma, picture.lease.as_ref(), &mut None)?;
            if self.chroma {
                [planes[1], planes[2]] = placer.place_chroma(picture)?;
            }
            frame.distorted = match &self.scalers[*rendition] {
                Some(scaler) => scaler.launch(stream, planes, placer.scaled(self.scaled)?)?,
                None => planes,
            };
            let bytes = bytes_of(std::slice::from_ref(&frame));
            frames.bytes_mut()[i * bytes.len()..][..bytes.len()].copy_from_slice(bytes);
        }
        let count = distorted.len();
        lane.start(count, &self.metrics, history_only)?;
        lane.done.record(&lane.stream)?;
        let pictures = distorted.into_iter().map(|(_, picture)| picture).chain([reference]);
        let leases = pictures.filter_map(|picture| picture.lease).collect();
        lane.in_flight = Some(InFlight { ticket, count, history_only, run: self.run, leases });
        self.run += 1;
        self.last = Some(ticket);
        Ok(())
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<FrameSums>>, BackendError> {
        let n = ticket.0 as usize;
        let lanes = self.lanes.len();
        let lane = &mut self.lanes[n % lanes];
        if lane.in_flight.as_ref().is_none_or(|frame| frame.ticket != ticket) {
            return Err(BackendError::UnknownTicket);
        }
        if !lane.done.is_done()? {
            return Ok(None);
        }
        let Some(group) = lane.in_flight.take() else { return Err(BackendError::UnknownTicket) };
        let sum = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        let room = sums_room(&self.metrics);
        let sums = lane.sums.bytes()[..group.count * room].chunks_exact(8).map(sum).collect::<Vec<u64>>();
        let mut out = vec![FrameSums::default(); group.count];
        let mut at = 0;
        for metric in &self.metrics {
            let range = at..at + metric.sums();
            at = range.end;
            if group.history_only && !metric.needs_history() {
                continue;
            }
            let of_pair = |i: usize| &sums[i * room / 8..][range.clone()];
            let pairs: Vec<_> = (0..group.count).map(of_pair).collect();
            metric.read_all(&pairs, group.run, &mut out);
        }
        // Nothing compares with the luma of this frame any more.
        if let Some(oldest) = n.checked_sub(self.lags) {
            let slots = self.slots.len();
            self.slots[oldest % slots].lease = None;
        }
        Ok(Some(out))
    }

    /// Times the kernels for a pair that is in flight.
    fn profile(&mut self, ticket: Ticket, runs: u32) -> Result<Vec<(String, f32)>, Error> {
        let lanes = self.lanes.len();
        let lane = &mut self.lanes[ticket.0 as usize % lanes];
        lane.stream.synchronize()?;
        let profiling = Stream::profiling(&self.device, Profile::new(runs))?;
        let stream = std::mem::replace(&mut lane.stream, profiling);
        let count = lane.in_flight.as_ref().map_or(1, |group| group.count);
        let launched = lane.launch(count, &self.metrics, false, &[]);
        let profiling = std::mem::replace(&mut lane.stream, stream);
        profiling.synchronize()?;
        launched?;
        profiling.profile().map_or(Ok(vec![]), Profile::times)
    }

    fn reset(&mut self) {
        self.run = 0;
        // Frames in flight may read them, the last one at the latest.
        let lanes = self.lanes.len();
        let last = self.last.and_then(|last| self.lanes[last.0 as usize % lanes].in_flight.as_mut());
        let leases = self.slots.iter_mut().filter_map(|slot| slot.lease.take());
        match last {
            Some(last) => last.leases.extend(leases),
            None => drop(leases.collect::<Vec<_>>()),
        }
    }
}

/// Loads what the work needs side by side: a driver that compiles takes its time for each.
fn load_modules(
    device: &Arc<Device>,
    work: &Work,
    depth: BitDepth,
    renditions: &[Option<Scaling>],
) -> Result<(), Error> {
    let [vif0, adm0, motion] = match depth.bits() {
        8 => ["vif0_u8", "adm0_u8", "motion_u8"],
        _ => ["vif0_u16", "adm0_u16", "motion_u16"],
    };
    let passes = work.adm.as_ref().is_some_and(Adm::needs_passes);
    let several = renditions.len() > 1;
    let needed = [
        (vif0, work.vif.is_some()),
        ("vif", work.vif.is_some()),
        ("vif_group", work.vif.is_some() && several),
        ("damage", work.damage && work.vif.is_some()),
        (adm0, work.adm.is_some() && !passes),
        ("adm", work.adm.is_some()),
        ("adm_passes", passes),
        ("adm_group", work.adm.is_some() && !passes && several),
        ("adm_passes_group", passes && several),
        (motion, work.motion.is_some()),
        ("psnr", work.psnr.is_some()),
        ("speed", work.speed.is_some()),
        ("cambi", !work.cambi.is_empty()),
        ("ssim", work.ssim.is_some()),
        ("psnr_hvs", work.psnr_hvs),
        ("ciede", work.ciede),
        ("scale", renditions.iter().any(Option::is_some)),
        ("frame", true),
    ];
    std::thread::scope(|scope| {
        let loads: Vec<_> = needed
            .into_iter()
            .filter(|(_, needed)| *needed)
            .map(|(metric, _)| scope.spawn(move || device.module(metric).map(|_| ())))
            .collect();
        // A thread that died would have had its say on stderr; the module is asked for again below.
        loads.into_iter().try_for_each(|load| load.join().unwrap_or(Ok(())))
    })
}

impl Slot {
    fn new(device: &Arc<Device>) -> Result<Self, Error> {
        Ok(Self {
            buffer: None,
            plane: HvPlane::default(),
            written: false,
            ready: Event::new(device)?,
            lease: None,
        })
    }
}

/// Threads of the kernels of `kernels/frame.hip`.
const FRAME_THREADS: u32 = 128;

impl Lane {
    fn new(device: &Arc<Device>, metrics: &[Box<dyn Metric>], renditions: usize) -> Result<Self, Error> {
        let stream = Stream::new(device)?;
        let sums = renditions * sums_room(metrics);
        let size = frames_room(renditions) + sums + metrics.iter().map(|m| scratch_room(&**m)).sum::<usize>();
        let on_device = DeviceBuffer::new(device, "working memory", size)?;
        // SAFETY: the buffer is that long and belongs to this lane, whose work comes later in the stream.
        unsafe { zero(&stream, on_device.address(), size)? };
        let mut lane = Self {
            stream,
            done: Arc::new(Event::new(device)?),
            begin: Kernel::new(device, "frame", "frame_begin", FRAME_THREADS)?,
            end: Kernel::new(device, "frame", "frame_end", FRAME_THREADS)?,
            frames: Pinned::new(device.clone(), frames_room(renditions))?,
            sums: Pinned::new(device.clone(), sums)?,
            on_device,
            graphs: (0..renditions).map(|_| [None, None]).collect(),
            desks: (0..renditions).map(|_| Desk::default()).collect(),
            in_flight: None,
        };
        // Others when they are needed.
        lane.record(renditions, metrics, false)?;
        Ok(lane)
    }

    /// Starts the work for the pairs whose structures are in place.
    fn start(&mut self, count: usize, metrics: &[Box<dyn Metric>], history_only: bool) -> Result<(), Error> {
        let which = usize::from(history_only);
        // The first was recorded if the runtime knows graphs.
        let records = self.graphs.last().is_some_and(|[first, _]| first.is_some());
        if records && self.graphs[count - 1][which].is_none() {
            self.record(count, metrics, history_only)?;
        }
        match &self.graphs[count - 1][which] {
            // SAFETY: it works on the lane's memory, and on pictures that wait until the group is done.
            Some(graph) => unsafe { graph.launch(&self.stream) },
            None => self.launch(count, metrics, history_only, &[]),
        }
    }

    /// Makes a graph of the work for so many pairs, each metric in a branch of its own.
    fn record(&mut self, count: usize, metrics: &[Box<dyn Metric>], history_only: bool) -> Result<(), Error> {
        let device = self.stream.device();
        let branches: Vec<_> =
            metrics.iter().skip(1).map(|_| Branch::new(device)).collect::<Result<_, _>>()?;
        let graph = Graph::record(&self.stream, || self.launch(count, metrics, history_only, &branches))?;
        self.graphs[count - 1][usize::from(history_only)] = graph;
        Ok(())
    }

    /// Puts the work for so many pairs into the stream, and into those of the branches as far as there are any.
    fn launch(
        &self,
        count: usize,
        metrics: &[Box<dyn Metric>],
        history_only: bool,
        branches: &[Branch],
    ) -> Result<(), Error> {
        let stream = &self.stream;
        let frame = self.on_device.address();
        let sums = frame + frames_room(self.desks.len()) as u64;
        let used: u32 = metrics.iter().map(|metric| metric.sums() as u32).sum();
        let (given, room) = (self.frames.address(), sums_room(metrics));
        let (grid, pitch) = ((count as u32, 1), room as u32 / 8);
        // SAFETY: the parameters of frame_begin.
        unsafe { self.begin.launch(stream, grid, arguments![given, frame, sums, used, pitch])? };
        for branch in branches {
            branch.fork.record(stream)?;
            branch.stream.wait_for(&branch.fork)?;
        }
        let scratch = sums + (self.desks.len() * room) as u64;
        let mut pairs = Pairs { first: Addresses { frame, scratch, sums }, count, pitch: room as u64 };
        for (i, metric) in metrics.iter().enumerate() {
            let branch =
                i.checked_sub(1).and_then(|i| branches.get(i)).map_or(stream, |branch| &branch.stream);
            if !history_only || metric.needs_history() {
                metric.launch(branch, pairs)?;
            }
            pairs.first.scratch += scratch_room(&**metric) as u64;
            pairs.first.sums += metric.sums() as u64 * 8;
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
}

/// Bytes of the structures of so many pairs.
fn frames_room(count: usize) -> usize {
    (count * size_of::<HvFrame>()).next_multiple_of(256)
}

fn scratch_room(metric: &dyn Metric) -> usize {
    metric.scratch().next_multiple_of(256)
}

/// Bytes of the sums of one pair.
fn sums_room(metrics: &[Box<dyn Metric>]) -> usize {
    metrics.iter().map(|metric| metric.sums() * 8).sum::<usize>().next_multiple_of(256)
}

/// Brings pictures to where kernels can read them, in the order of a stream.
struct Placer<'a> {
    device: &'a Arc<Device>,
    /// Bytes of a sample.
    size: usize,
    /// Bytes that all pictures of a desk take.
    room: usize,
    stream: &'a Stream,
    desk: &'a mut Desk,
}

/// Bytes of a row as it lies, and rows.
#[derive(Clone, Copy)]
struct Extent {
    width: usize,
    rows: usize,
}

impl Extent {
    fn pitch(self) -> usize {
        self.width.next_multiple_of(256)
    }

    fn size(self) -> usize {
        self.pitch() * self.rows
    }
}

impl Placer<'_> {
    /// Has the stream wait until the picture was written.
    fn await_producer(&self, picture: &Picture<'_>) -> Result<(), Error> {
        let Some(stream) = picture.lease.as_ref().and_then(|lease| lease.producer) else { return Ok(()) };
        // SAFETY: whoever made the lease has promised that its producer lives as long.
        unsafe { self.stream.wait_for_stream(stream) }
    }

    /// Where kernels find a component, and those that follow its samples if it is interleaved. A copy goes to `to`,
    /// or else to the desk.
    fn place(
        &mut self,
        component: Component<'_>,
        lease: Option<&Lease>,
        to: &mut Option<&mut Option<DeviceBuffer>>,
    ) -> Result<HvPlane, BackendError> {
        let Component { samples, width, height, stride, step, shift } = component;
        let size = self.size;
        let plane = |data: u64, stride: usize| HvPlane {
            data,
            stride: stride as u32,
            shift: shift as u16,
            step: step as u16,
        };
        if let Samples::Device(address) = samples
            && in_place(&component, lease)
        {
            return Ok(plane(address.get(), stride));
        }
        let extent = Extent { width: width * step * size, rows: height };
        let address = match to {
            Some(buffer) => match buffer {
                Some(buffer) => buffer.address(),
                None => buffer.insert(DeviceBuffer::new(self.device, "a picture", extent.size())?).address(),
            },
            None => self.room(extent)?,
        };
        self.copy(samples, stride, lease, extent, address)?;
        Ok(plane(address, extent.pitch()))
    }

    /// Where kernels find Cb and Cr; interleaved, they share a copy.
    fn place_chroma(&mut self, picture: &Picture<'_>) -> Result<[HvPlane; 2], BackendError> {
        let [cb, cr] = picture.chroma.ok_or(BackendError::Picture("hip"))?;
        let lease = picture.lease.as_ref();
        if cb.step == 1 {
            return Ok([self.place(cb, lease, &mut None)?, self.place(cr, lease, &mut None)?]);
        }
        let size = self.size;
        let address = |component: &Component<'_>| match component.samples {
            Samples::Host(bytes) => bytes.as_ptr() as u64,
            Samples::Device(address) => address.get(),
        };
        let swapped = address(&cr) < address(&cb);
        let first = self.place(if swapped { cr } else { cb }, lease, &mut None)?;
        let second = HvPlane { data: first.data + size as u64, ..first };
        Ok(if swapped { [second, first] } else { [first, second] })
    }

    /// Room at the desk for a copy.
    fn room(&mut self, extent: Extent) -> Result<u64, Error> {
        let buffer = match &mut self.desk.pictures {
            Some(buffer) => buffer,
            none => none.insert(DeviceBuffer::new(self.device, "pictures", self.room)?),
        };
        let address = buffer.address() + self.desk.used as u64;
        self.desk.used += extent.size();
        Ok(address)
    }

    /// Room of so many bytes for the desk's scaled picture.
    fn scaled(&mut self, size: usize) -> Result<u64, Error> {
        let buffer = match &mut self.desk.scaled {
            Some(buffer) => buffer,
            none => none.insert(DeviceBuffer::new(self.device, "a scaled picture", size)?),
        };
        Ok(buffer.address())
    }

    /// Copies rows to device memory.
    fn copy(
        &mut self,
        from: Samples<'_>,
        stride: usize,
        lease: Option<&Lease>,
        extent: Extent,
        to: u64,
    ) -> Result<(), BackendError> {
        let Extent { width, rows } = extent;
        let to = Rectangle { address: to, pitch: extent.pitch() };
        let at = |address| Rectangle { address, pitch: stride };
        let stream = self.stream;
        match from {
            Samples::Device(address) => {
                let from = at(address.get());
                // SAFETY: pictures in device memory have leases, which are kept until the group is done, as is the copy.
                unsafe { copy_rectangle(stream, to, from, width, rows, Direction::DeviceToDevice)? };
            }
            Samples::Host(bytes) => {
                if rows > 0 && bytes.len() < (rows - 1) * stride + width {
                    return Err(BackendError::Picture("hip"));
                }
                if lease.is_some() {
                    let from = at(bytes.as_ptr() as u64);
                    // SAFETY: all rows are there, as was checked above, and the lease is kept until the group is done, as is
                    // the copy.
                    unsafe { copy_rectangle(stream, to, from, width, rows, Direction::HostToDevice)? };
                } else {
                    let staged = self.stage(bytes, stride, extent)?;
                    let size = extent.size();
                    // SAFETY: the picture buffers have room for that much, and wait for the next group of this lane.
                    unsafe { copy(stream, to.address, staged, size, Direction::HostToDevice)? };
                }
            }
        }
        Ok(())
    }

    /// Copies rows into page-locked memory.
    fn stage(&mut self, bytes: &[u8], stride: usize, extent: Extent) -> Result<u64, Error> {
        let staging = match &mut self.desk.staging {
            Some(staging) => staging,
            none => none.insert(Pinned::new(self.device.clone(), self.room)?),
        };
        let start = self.desk.staged;
        self.desk.staged += extent.size();
        let rows = staging.bytes_mut()[start..start + extent.size()].chunks_mut(extent.pitch());
        for (to, from) in rows.zip(bytes.chunks(stride)) {
            to[..extent.width].copy_from_slice(&from[..extent.width]);
        }
        Ok(staging.address() + start as u64)
    }
}

/// Whether kernels read a component where it lies.
fn in_place(component: &Component<'_>, lease: Option<&Lease>) -> bool {
    let Samples::Device(address) = component.samples else { return false };
    let aligned =
        || address.get().is_multiple_of(ALIGNMENT) && (component.stride as u64).is_multiple_of(ALIGNMENT);
    lease.is_some_and(|lease| lease.in_place) && (component.step > 1 || aligned())
}

/// Bytes that all planes of a picture take.
fn room(geometry: Geometry) -> usize {
    let size = geometry.sample_size();
    let plane = |(width, rows): (usize, usize)| Extent { width: width * size, rows }.size();
    let luma = plane((geometry.width, geometry.height));
    let chroma =
        geometry.chroma.map_or(0, |(width, rows)| plane((2 * width, rows)).max(2 * plane((width, rows))));
    luma + chroma
}
