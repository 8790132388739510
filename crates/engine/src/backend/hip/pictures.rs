// SPDX-License-Identifier: MPL-2.0

//! How pictures get to where kernels can read them: in place where they are on the GPU already, else by a copy, for which
//! host memory that is not page-locked takes a copy of its own.

use std::sync::Arc;

use gpu::{
    Device, DeviceBuffer, Direction, Error, Event, Pinned, Rectangle, Stream, Vendor, copy, copy_rectangle,
};

use rayon::prelude::*;

use super::frame::{ALIGNMENT, HvPlane};
use super::host;
use crate::backend::BackendError;
use crate::frame::{Component, Geometry, Lease, Picture, Samples};

/// Bytes that a thread copies at least: fewer are copied before another one has woken up.
const BAND: usize = 256 << 10;

/// Room for one distorted picture of a group; the reference's belongs to the first.
#[derive(Default)]
pub struct PictureBuffers {
    /// Page-locked memory for pictures on their way to the GPU; made when the first one takes this way.
    pub staging: Option<Pinned>,
    /// Bytes of `staging` that are taken.
    pub staged: usize,
    /// Device memory for pictures that kernels cannot read in place; made when the first one is copied.
    pub pictures: Option<DeviceBuffer>,
    /// Bytes of `pictures` that are taken.
    pub used: usize,
    /// Device memory for the scaled picture; made when the first one is scaled.
    pub scaled: Option<DeviceBuffer>,
}

/// The luma of a reference picture.
pub struct Luma {
    /// Device memory for a copy of the luma; made when the first one is copied.
    pub buffer: Option<DeviceBuffer>,
    pub plane: HvPlane,
    /// The luma was put there by the GPU, which is done at `ready`.
    pub written: bool,
    pub ready: Event,
    /// Lease of the picture's memory, where the luma is read in place.
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

/// Brings pictures to where kernels can read them, in the order of a stream.
pub struct Placer<'a> {
    pub device: &'a Arc<Device>,
    /// Bytes of a sample.
    pub size: usize,
    /// Bytes that all pictures of one of the [`PictureBuffers`] take.
    pub room: usize,
    pub stream: &'a Stream,
    pub buffers: &'a mut PictureBuffers,
    /// The most threads that copy a picture.
    pub copiers: usize,
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
    pub fn await_producer(&self, picture: &Picture<'_>) -> Result<(), Error> {
        let producers = picture.lease.iter().flat_map(Lease::producers);
        // SAFETY: whoever made the lease has promised that its producers live as long.
        producers.copied().try_for_each(|stream| unsafe { self.stream.wait_for_stream(stream) })
    }

    /// Where kernels find a component, and those that follow its samples if it is interleaved. A copy goes to `to`,
    /// or else to the picture buffers.
    pub fn place(
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
    pub fn place_chroma(&mut self, picture: &Picture<'_>) -> Result<[HvPlane; 2], BackendError> {
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

    /// Room in the picture buffers for a copy.
    fn room(&mut self, extent: Extent) -> Result<u64, Error> {
        let buffer = match &mut self.buffers.pictures {
            Some(buffer) => buffer,
            none => none.insert(DeviceBuffer::new(self.device, "pictures", self.room)?),
        };
        let address = buffer.address() + self.buffers.used as u64;
        self.buffers.used += extent.size();
        Ok(address)
    }

    /// Room of so many bytes for the scaled picture.
    pub fn scaled(&mut self, size: usize) -> Result<u64, Error> {
        let buffer = match &mut self.buffers.scaled {
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
                if lease.is_some_and(Lease::is_pinned) && self.copies_at_once(stride) {
                    let from = at(bytes.as_ptr() as u64);
                    // SAFETY: all rows are there, as was checked above, and the lease is kept until the group is done, as is
                    // the copy.
                    unsafe { copy_rectangle(stream, to, from, width, rows, Direction::HostToDevice)? };
                } else {
                    let staged = self.stage(bytes, stride, extent)?;
                    let size = extent.size();
                    // SAFETY: the picture buffers have room for that much, and wait for the next group of this slot.
                    unsafe { copy(stream, to.address, staged, size, Direction::HostToDevice)? };
                }
            }
        }
        Ok(())
    }

    /// Whether rows that are so many bytes apart are copied at once. AMD's runtime copies them one by one, with a command
    /// each, where that is no multiple of 4: the CPU is faster at packing them.
    fn copies_at_once(&self, stride: usize) -> bool {
        self.device.info().vendor != Vendor::Amd || stride.is_multiple_of(4)
    }

    /// Copies rows into page-locked memory, in bands beside each other.
    fn stage(&mut self, bytes: &[u8], stride: usize, extent: Extent) -> Result<u64, BackendError> {
        let staging = match &mut self.buffers.staging {
            Some(staging) => staging,
            none => none.insert(Pinned::new(self.device.clone(), self.room)?),
        };
        let start = self.buffers.staged;
        self.buffers.staged += extent.size();
        let Extent { width, rows } = extent;
        let to = &mut staging.bytes_mut()[start..start + extent.size()];
        let copy_rows = |to: &mut [u8], from: &[u8]| {
            for (to, from) in to.chunks_mut(extent.pitch()).zip(from.chunks(stride)) {
                to[..width].copy_from_slice(&from[..width]);
            }
        };
        match self.copiers.min(extent.size() / BAND) {
            0 | 1 => copy_rows(to, bytes),
            bands => {
                let rows = rows.div_ceil(bands);
                let to = to.par_chunks_mut(rows * extent.pitch()).zip(bytes.par_chunks(rows * stride));
                host::pool()?.install(|| to.for_each(|(to, from)| copy_rows(to, from)));
            }
        }
        Ok(staging.address() + start as u64)
    }
}

/// Whether kernels read a component where it lies.
pub fn in_place(component: &Component<'_>, lease: Option<&Lease>) -> bool {
    let Samples::Device(address) = component.samples else { return false };
    let aligned =
        || address.get().is_multiple_of(ALIGNMENT) && (component.stride as u64).is_multiple_of(ALIGNMENT);
    lease.is_some_and(|lease| lease.is_in_place()) && (component.step > 1 || aligned())
}

/// Bytes that all planes of a picture take.
pub fn room(geometry: Geometry) -> usize {
    let size = geometry.sample_size();
    let plane = |(width, rows): (usize, usize)| Extent { width: width * size, rows }.size();
    let luma = plane((geometry.width, geometry.height));
    let chroma =
        geometry.chroma.map_or(0, |(width, rows)| plane((2 * width, rows)).max(2 * plane((width, rows))));
    luma + chroma
}
