// SPDX-License-Identifier: MPL-2.0

//! The transfer of pictures to memory that kernels can read. Pictures on the GPU are read in place if possible. Other
//! pictures are copied; rows in host memory that is not page-locked are first copied to memory that is. Some rows of a
//! picture may be page-locked and others not.
//!
//! Those first copies are the price of ordinary memory: one thread needs as much time for a pair of pictures as the GPU
//! does for ten. So all rows of a group that need them are collected first and then copied by several threads,
//! including the submitting one.
//!
//! Copies from page-locked memory of all groups go through one stream of the device ([`Stream::uploads`]), those of a
//! group in one batch: between two separate copies the bus is idle, for a tenth of the time that a picture of 1920x1080
//! takes.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use gpu::{
    Device, DeviceBuffer, Direction, Error, Event, Piece, Pinned, Rectangle, Stream, Vendor, copy_pieces,
    copy_rectangle,
};

use super::completion;
use super::frame::{ALIGNMENT, HvPlane};
use crate::backend::BackendError;
use crate::frame::{Component, Geometry, Lease, Picture, Samples};

/// Bytes that a thread copies at a time. More would leave threads idle at the end.
const BAND: usize = 128 << 10;
/// Bytes that justify another thread: fewer are copied before it has woken up.
const SHARE: usize = 256 << 10;
/// Alignment of the rows of a copy in bytes: two of the sectors that GPUs read at a time.
const SECTORS: usize = 64;

/// Buffers for one distorted picture of a group. The reference shares those of the first.
#[derive(Default)]
pub struct PictureBuffers {
    /// Page-locked memory for pictures on their way to the GPU; allocated at the first use.
    pub staging: Option<Pinned>,
    /// Device memory for copied pictures; allocated at the first use.
    pub pictures: Option<DeviceBuffer>,
    /// Bytes of `pictures` in use.
    pub used: usize,
    /// Device memory for the scaled picture; allocated at the first use.
    pub scaled: Option<DeviceBuffer>,
}

/// The picture buffers that are allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rooms {
    staging: bool,
    pictures: bool,
}

impl PictureBuffers {
    /// Returns which buffers are allocated.
    pub fn rooms(&self) -> Rooms {
        Rooms { staging: self.staging.is_some(), pictures: self.pictures.is_some() }
    }

    /// Allocates the missing ones of `rooms`, with `size` bytes each.
    pub fn make(&mut self, rooms: Rooms, device: &Arc<Device>, size: usize) -> Result<(), Error> {
        if rooms.staging && self.staging.is_none() {
            self.staging = Some(Pinned::new(device.clone(), size)?);
        }
        if rooms.pictures && self.pictures.is_none() {
            self.pictures = Some(DeviceBuffer::new(device, "pictures", size)?);
        }
        Ok(())
    }

    /// Returns the address of the buffer for the scaled picture, which has at least `size` bytes.
    pub fn scaled(&mut self, device: &Arc<Device>, size: usize) -> Result<u64, Error> {
        let buffer = match &mut self.scaled {
            Some(buffer) => buffer,
            none => none.insert(DeviceBuffer::new(device, "a scaled picture", size)?),
        };
        Ok(buffer.address())
    }
}

/// The luma of a reference picture.
pub struct Luma {
    /// Device memory for a copy of the luma; allocated at the first use.
    pub buffer: Option<DeviceBuffer>,
    pub plane: HvPlane,
    /// The GPU writes the luma; it is done at `ready`.
    pub written: bool,
    pub ready: Event,
    /// Lease of the picture's memory if the luma is read in place.
    pub lease: Option<Lease>,
}

impl Luma {
    pub fn new(device: &Arc<Device>) -> Result<Self, Error> {
        Ok(Self {
            buffer: None,
            plane: HvPlane::default(),
            written: false,
            ready: Event::new(device)?,
            lease: None,
        })
    }
}

/// Rows in ordinary memory that have to be copied into staging memory.
struct Rows<'p> {
    /// Index of their [`PictureBuffers`].
    buffers: usize,
    from: &'p [u8],
    stride: usize,
    extent: Extent,
    /// Their final device address.
    to: u64,
}

/// The copies from the host for a group.
pub struct Uploads<'a, 'p> {
    /// The stream for the copies.
    stream: &'a Stream,
    /// Some copies have begun.
    begun: bool,
    /// Copies from page-locked memory.
    pieces: Vec<Piece>,
    /// Rows that have to be copied into page-locked memory first, in the order of their place there.
    staged: Vec<Rows<'p>>,
}

/// Rows that a thread copies at a time.
struct Band<'a> {
    to: &'a mut [u8],
    from: &'a [u8],
    stride: usize,
    extent: Extent,
}

impl Band<'_> {
    fn copy(self) {
        let Extent { width, .. } = self.extent;
        for (to, from) in self.to.chunks_mut(self.extent.pitch).zip(self.from.chunks(self.stride)) {
            to[..width].copy_from_slice(&from[..width]);
        }
    }
}

impl<'a> Uploads<'a, '_> {
    /// Begins without copies. `stream`: the stream for them.
    pub fn through(stream: &'a Stream) -> Self {
        Self { stream, begun: false, pieces: vec![], staged: vec![] }
    }

    /// Adds rows of page-locked memory. If the source and the copy have the same pitch, they are one piece of the
    /// batch.
    ///
    /// # Safety
    ///
    /// The same as for [`copy_rectangle`], until the group is done.
    unsafe fn copy(
        &mut self,
        to: Rectangle,
        from: Rectangle,
        width: usize,
        rows: usize,
    ) -> Result<(), Error> {
        if to.pitch == from.pitch {
            let size = rows.saturating_sub(1) * to.pitch + width;
            self.pieces.push(Piece { to: to.address, from: from.address, size });
            return Ok(());
        }
        self.begun = true;
        // SAFETY: promised by the caller.
        unsafe { copy_rectangle(self.stream, to, from, width, rows, Direction::HostToDevice) }
    }

    /// Copies rows in ordinary memory with at most `copiers` threads, and makes the group's stream wait for all copies
    /// from the host. `arrived` marks their end.
    pub fn finish(
        mut self,
        group: &Stream,
        arrived: &Event,
        buffers: &mut [PictureBuffers],
        copiers: usize,
    ) -> Result<(), BackendError> {
        self.send()?;
        let mut bands = vec![];
        let mut bytes = 0;
        let mut rows = std::mem::take(&mut self.staged).into_iter().peekable();
        for (i, buffers) in buffers.iter_mut().enumerate() {
            let Some(staging) = &mut buffers.staging else { continue };
            let mut address = staging.address();
            let mut room = staging.bytes_mut();
            while let Some(Rows { from, stride, extent, to, .. }) = rows.next_if(|rows| rows.buffers == i) {
                let (mut here, rest) = std::mem::take(&mut room).split_at_mut(extent.size());
                self.pieces.push(Piece { to, from: address, size: extent.size() });
                (room, address, bytes) = (rest, address + extent.size() as u64, bytes + extent.size());
                let at_a_time = BAND.checked_div(extent.pitch).unwrap_or(0).max(1);
                let mut from = from;
                while !here.is_empty() {
                    let (to, more) = here.split_at_mut(here.len().min(at_a_time * extent.pitch));
                    let (band, behind) = from.split_at(from.len().min(at_a_time * stride));
                    bands.push(Band { to, from: band, stride, extent });
                    (here, from) = (more, behind);
                }
            }
        }
        match copiers.min(bytes / SHARE) {
            0 | 1 => bands.into_iter().for_each(Band::copy),
            threads => {
                let bands = Mutex::new(bands.into_iter());
                let next = || bands.lock().unwrap_or_else(PoisonError::into_inner).next();
                let copy = || std::iter::from_fn(next).for_each(Band::copy);
                completion::pool()?.in_place_scope(|scope| {
                    (1..threads).for_each(|_| scope.spawn(|_| copy()));
                    copy();
                });
            }
        }
        self.send()?;
        if self.begun {
            arrived.record(self.stream)?;
            group.wait_for(arrived)?;
        }
        Ok(())
    }

    /// Submits the pieces so far.
    fn send(&mut self) -> Result<(), Error> {
        self.begun |= !self.pieces.is_empty();
        let pieces = std::mem::take(&mut self.pieces);
        // SAFETY: the callers have promised it for page-locked pictures. Staged rows are in picture buffers, which are
        // large enough and not reused before the next group of this slot.
        unsafe { copy_pieces(self.stream, &pieces, Direction::HostToDevice) }
    }
}

/// Makes pictures readable for kernels in the order of the group's stream. Copies from the host are there only after
/// [`Uploads::finish`].
pub struct Placer<'a, 'u, 'p> {
    pub device: &'a Arc<Device>,
    /// Bytes of a sample.
    pub size: usize,
    /// Bytes of all pictures in one of the [`PictureBuffers`].
    pub room: usize,
    pub stream: &'a Stream,
    pub buffers: &'a mut PictureBuffers,
    /// Index of the buffers in the group.
    pub index: usize,
    pub uploads: &'a mut Uploads<'u, 'p>,
}

/// The shape of a copy: bytes per row, number of rows, and bytes from row to row.
#[derive(Clone, Copy)]
struct Extent {
    width: usize,
    rows: usize,
    pitch: usize,
}

impl Extent {
    /// Chooses the pitch of a copy of rows that are `stride` bytes apart. The copy has the same stride if that is
    /// aligned and fits the buffer, because then it is made in one piece.
    fn new(width: usize, rows: usize, stride: usize) -> Self {
        let widest = Self::widest(width);
        let as_it_is = (width..=widest).contains(&stride) && stride.is_multiple_of(SECTORS);
        Self { width, rows, pitch: if as_it_is { stride } else { widest } }
    }

    fn size(self) -> usize {
        self.pitch * self.rows
    }

    /// Returns the largest pitch.
    fn widest(width: usize) -> usize {
        width.next_multiple_of(256)
    }

    /// Returns the bytes that suffice for any pitch.
    fn room(width: usize, rows: usize) -> usize {
        Self::widest(width) * rows
    }
}

impl<'p> Placer<'_, '_, 'p> {
    /// Makes the stream wait until the picture is written.
    pub fn await_producer(&self, picture: &Picture<'_>) -> Result<(), Error> {
        let producers = picture.lease.iter().flat_map(Lease::producers);
        // SAFETY: the creator of the lease has promised that the streams live as long as the lease.
        producers.copied().try_for_each(|stream| unsafe { self.stream.wait_for_stream(stream) })
    }

    /// Returns the address and layout of a component for kernels; that of an interleaved one includes the component
    /// between its samples. A copy goes to `to`, or else to the picture buffers.
    pub fn place(
        &mut self,
        component: Component<'p>,
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
        let extent = Extent::new(width * step * size, height, stride);
        let address = match to {
            Some(buffer) => match buffer {
                Some(buffer) => buffer.address(),
                None => {
                    let room = Extent::room(extent.width, extent.rows);
                    buffer.insert(DeviceBuffer::new(self.device, "a picture", room)?).address()
                }
            },
            None => self.room(extent)?,
        };
        self.copy(samples, stride, lease, extent, address)?;
        Ok(plane(address, extent.pitch))
    }

    /// Returns the addresses and layouts of Cb and Cr. Interleaved components share a copy.
    pub fn place_chroma(&mut self, picture: &Picture<'p>) -> Result<[HvPlane; 2], BackendError> {
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

    /// Reserves memory in the picture buffers for a copy.
    fn room(&mut self, extent: Extent) -> Result<u64, Error> {
        let buffer = match &mut self.buffers.pictures {
            Some(buffer) => buffer,
            none => none.insert(DeviceBuffer::new(self.device, "pictures", self.room)?),
        };
        let address = buffer.address() + self.buffers.used as u64;
        self.buffers.used += extent.size().next_multiple_of(256);
        Ok(address)
    }

    /// Copies rows to device memory.
    fn copy(
        &mut self,
        from: Samples<'p>,
        stride: usize,
        lease: Option<&Lease>,
        extent: Extent,
        to: u64,
    ) -> Result<(), BackendError> {
        let Extent { width, rows, pitch } = extent;
        let to = Rectangle { address: to, pitch };
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
                let first = bytes.as_ptr() as usize;
                let is_written = lease.is_some_and(|lease| !lease.producers().is_empty());
                let pinned = lease.filter(|_| self.copies_at_once(stride)).map(Lease::pinned_part);
                let pinned = pinned.map_or(0..0, |part| rows_within(part, first, stride, extent));
                let target = |row: usize| to.address + (row * to.pitch) as u64;
                if !pinned.is_empty() {
                    let from = at((first + pinned.start * stride) as u64);
                    let to = Rectangle { address: target(pinned.start), ..to };
                    // SAFETY: all rows are there, as was checked above, and the lease is kept until the group is done, as is
                    // the copy.
                    unsafe {
                        if is_written {
                            // Uses the group's own stream, so that other groups do not wait for the producer.
                            copy_rectangle(stream, to, from, width, pinned.len(), Direction::HostToDevice)?;
                        } else {
                            self.uploads.copy(to, from, width, pinned.len())?;
                        }
                    }
                }
                for left in [0..pinned.start, pinned.end..rows].into_iter().filter(|left| !left.is_empty()) {
                    if self.buffers.staging.is_none() {
                        self.buffers.staging = Some(Pinned::new(self.device.clone(), self.room)?);
                    }
                    let (from, to) = (&bytes[left.start * stride..], target(left.start));
                    let extent = Extent { rows: left.len(), ..extent };
                    self.uploads.staged.push(Rows { buffers: self.index, from, stride, extent, to });
                }
            }
        }
        Ok(())
    }

    /// Returns true if rows with this stride are copied in one command. AMD's runtime issues a command per row unless
    /// the stride is a multiple of 4; then packing them on the CPU is faster.
    fn copies_at_once(&self, stride: usize) -> bool {
        self.device.info().vendor != Vendor::Amd || stride.is_multiple_of(4)
    }
}

/// Returns the rows that lie entirely within these addresses. The rows are `stride` bytes apart, and the first begins
/// at `first`. An empty result is 0..0.
fn rows_within(addresses: &Range<usize>, first: usize, stride: usize, extent: Extent) -> Range<usize> {
    let stride = stride.max(1);
    let start = addresses.start.saturating_sub(first).div_ceil(stride);
    // Bytes from the end of the first row to the end of the addresses, if that row fits.
    let behind = addresses.end.checked_sub(first.saturating_add(extent.width));
    let end = behind.map_or(0, |behind| (behind / stride).saturating_add(1)).min(extent.rows);
    if start < end { start..end } else { 0..0 }
}

/// Returns true if kernels can read a component in place.
pub fn in_place(component: &Component<'_>, lease: Option<&Lease>) -> bool {
    let Samples::Device(address) = component.samples else { return false };
    let aligned =
        || address.get().is_multiple_of(ALIGNMENT) && (component.stride as u64).is_multiple_of(ALIGNMENT);
    lease.is_some_and(|lease| lease.is_in_place()) && (component.step > 1 || aligned())
}

/// Returns the bytes of all planes of a picture.
pub fn room(geometry: Geometry) -> usize {
    let size = geometry.sample_size();
    let plane = |(width, rows): (usize, usize)| Extent::room(width * size, rows);
    let luma = plane((geometry.width, geometry.height));
    let chroma =
        geometry.chroma.map_or(0, |(width, rows)| plane((2 * width, rows)).max(2 * plane((width, rows))));
    luma + chroma
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_takes_no_more_than_its_room() {
        for width in 0..600 {
            for stride in 0..1500 {
                let Extent { pitch, .. } = Extent::new(width, 3, stride);
                assert!(pitch >= width && pitch.is_multiple_of(SECTORS), "{width} {stride}");
                assert!(3 * pitch <= Extent::room(width, 3), "{width} {stride}");
                assert!(stride != width || pitch == stride || !stride.is_multiple_of(SECTORS));
            }
        }
    }

    #[test]
    fn rows_are_within_when_all_of_their_bytes_are() {
        let stride = 10;
        let extent = Extent::new(7, 5, stride);
        let is_in = |addresses: &Range<usize>, row: usize| {
            let bytes = 100 + row * stride..100 + row * stride + extent.width;
            addresses.start <= bytes.start && bytes.end <= addresses.end
        };
        for start in 90..160 {
            for end in start..170 {
                let rows = rows_within(&(start..end), 100, stride, extent);
                let expected: Vec<_> = (0..extent.rows).filter(|row| is_in(&(start..end), *row)).collect();
                assert_eq!(rows.collect::<Vec<_>>(), expected, "{start}..{end}");
            }
        }
        assert_eq!(rows_within(&(0..usize::MAX), 100, stride, extent), 0..5);
        assert_eq!(rows_within(&(0..0), 100, stride, extent), 0..0);
    }
}
