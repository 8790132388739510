// SPDX-License-Identifier: MPL-2.0

//! Pictures in the caller's memory.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// Bits per sample, 8 to 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitDepth(u8);

impl BitDepth {
    /// Creates a depth of `bits` bits; `None` outside 8..=16.
    pub const fn new(bits: u32) -> Option<Self> {
        if bits >= 8 && bits <= 16 { Some(Self(bits as u8)) } else { None }
    }

    /// Returns the number of bits, 8..=16.
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// Returns the largest sample value, `2^bits - 1`.
    pub const fn max(self) -> u32 {
        (1 << self.0) - 1
    }

    /// Returns the factor from samples to steps of 8 bits.
    pub fn unit(self) -> f32 {
        1.0 / (1u32 << (self.0 - 8)) as f32
    }
}

/// Size and sample depth that all frames of a stream share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Luma samples per row.
    pub width: usize,
    /// Luma rows.
    pub height: usize,
    /// Bits of all samples.
    pub depth: BitDepth,
    /// Chroma size, `None` for grey formats. With an odd number of luma samples, subsampled chroma may be rounded up, as it
    /// is in memory, or down.
    pub chroma: Option<(usize, usize)>,
}

impl Geometry {
    /// Returns the bytes of a sample.
    pub fn sample_size(&self) -> usize {
        if self.depth.bits() == 8 { 1 } else { 2 }
    }

    /// Returns whether chroma has fewer columns, and fewer rows, than luma; `None` for grey formats.
    pub fn subsampled(&self) -> Option<(bool, bool)> {
        self.chroma.map(|(width, height)| (width < self.width, height < self.height))
    }

    /// Returns the same without the last column and row of subsampled chroma that belong to one luma sample only. libvmaf
    /// does not look at these.
    pub fn without_half_samples(self) -> Self {
        let down = |chroma: usize, luma: usize| if chroma < luma { chroma.min(luma / 2) } else { chroma };
        let chroma = self.chroma.map(|(width, height)| (down(width, self.width), down(height, self.height)));
        Self { chroma, ..self }
    }
}

/// An address in the memory of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAddress(u64);

impl DeviceAddress {
    /// Wraps an address that a GPU may read.
    ///
    /// # Safety
    ///
    /// The memory there must be readable by the GPU of the backend that gets it, up to the end of the component it
    /// belongs to, and stay so while the [`Lease`] of the picture is held.
    pub unsafe fn new(address: u64) -> Self {
        Self(address)
    }

    /// Returns the address as a number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Returns the address `bytes` after this one, in the same memory.
    pub fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// The first sample of a component.
#[derive(Clone, Copy, Debug)]
pub enum Samples<'a> {
    /// The bytes from the first sample on, in host memory.
    Host(&'a [u8]),
    /// The address of the first sample, in the memory of a GPU.
    Device(DeviceAddress),
}

/// One component (luma, Cb or Cr) of a picture in memory. Samples have one byte, or two in little-endian order if the
/// depth is above 8 bits.
#[derive(Clone, Copy, Debug)]
pub struct Component<'a> {
    /// The samples, from the first one on.
    pub samples: Samples<'a>,
    /// Samples per row.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// Bytes from one row to the next.
    pub stride: usize,
    /// Samples from one sample to the next: 1, or 2 in interleaved chroma.
    pub step: usize,
    /// Unused low bits of each sample.
    pub shift: u32,
}

/// Keeps the memory of a picture unchanged after the call that passes the picture.
#[derive(Clone)]
pub struct Lease {
    _keep: Arc<dyn Any + Send + Sync>,
    pinned: Range<usize>,
    producers: Vec<usize>,
    in_place: bool,
}

impl Lease {
    /// Creates a lease that keeps memory unchanged while `keep` lives. It makes no further statement about the memory.
    ///
    /// # Safety
    ///
    /// As long as `keep` lives, the samples of every picture that carries this lease, or a clone of it, must stay where
    /// they are, unchanged, and readable for all threads.
    pub unsafe fn new(keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { _keep: keep, pinned: 0..0, producers: vec![], in_place: false }
    }

    /// Declares the memory as page-locked host memory, which a GPU can copy from directly.
    ///
    /// # Safety
    ///
    /// The memory must be page-locked for as long as the lease keeps it.
    pub unsafe fn pinned(self) -> Self {
        // SAFETY: promised by the caller for all of the memory, whatever its address.
        unsafe { self.pinned_within(0..usize::MAX) }
    }

    /// Declares the part of the memory within these addresses as page-locked host memory.
    ///
    /// # Safety
    ///
    /// That part of the memory must be page-locked for as long as the lease keeps it.
    pub unsafe fn pinned_within(self, addresses: Range<usize>) -> Self {
        Self { pinned: addresses, ..self }
    }

    /// Declares that this stream of the GPU's runtime may still be writing the picture. Several calls add several
    /// streams.
    ///
    /// # Safety
    ///
    /// The stream must live for as long as the lease keeps the memory.
    pub unsafe fn produced_on(mut self, stream: usize) -> Self {
        if !self.producers.contains(&stream) {
            self.producers.push(stream);
        }
        self
    }

    /// Declares that kernels can read the device memory in place. Memory of another context has to be copied first.
    pub fn in_place(self) -> Self {
        Self { in_place: true, ..self }
    }

    /// Returns the addresses within which a GPU can copy from the memory directly; empty by default.
    pub fn pinned_part(&self) -> &Range<usize> {
        &self.pinned
    }

    /// Returns the streams that may still be writing the picture.
    pub fn producers(&self) -> &[usize] {
        &self.producers
    }

    /// Returns true if kernels can read the memory in place.
    pub fn is_in_place(&self) -> bool {
        self.in_place
    }
}

/// A picture in memory.
#[derive(Clone)]
pub struct Picture<'a> {
    /// Y.
    pub luma: Component<'a>,
    /// Cb and Cr, if the picture has them.
    pub chroma: Option<[Component<'a>; 2]>,
    /// Keeps the samples unchanged after the call. Without a lease they are in host memory and borrowed for the call.
    pub lease: Option<Lease>,
}

impl<'a> Picture<'a> {
    /// Describes a picture in host memory with its planes one after another without gaps, as in files of raw video.
    /// Returns `None` if there are not enough bytes.
    pub fn packed(bytes: &'a [u8], geometry: Geometry) -> Option<Self> {
        let size = geometry.sample_size();
        let mut rest = bytes;
        let mut component = |width: usize, height: usize| {
            let (plane, others) = rest.split_at_checked(width.checked_mul(height)?.checked_mul(size)?)?;
            rest = others;
            let samples = Samples::Host(plane);
            Some(Component { samples, width, height, stride: width * size, step: 1, shift: 0 })
        };
        let luma = component(geometry.width, geometry.height)?;
        let chroma = match geometry.chroma {
            Some((width, height)) => Some([component(width, height)?, component(width, height)?]),
            None => None,
        };
        Some(Self { luma, chroma, lease: None })
    }
}

/// A picture with its lease, which keeps the samples unchanged.
pub(crate) struct Leased(Picture<'static>);

impl Leased {
    /// Copies the description and the lease of a picture; `None` if it has no lease.
    pub fn new(picture: &Picture<'_>) -> Option<Self> {
        let lease = picture.lease.clone()?;
        let component = |component: Component<'_>| {
            let samples = match component.samples {
                Samples::Host(bytes) => {
                    // SAFETY: the creator of the lease has promised that the samples stay in place, unchanged, while it
                    // is held. It is held in this structure, and the samples are borrowed no longer than that.
                    Samples::Host(unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) })
                }
                Samples::Device(address) => Samples::Device(address),
            };
            let Component { width, height, stride, step, shift, .. } = component;
            Component { samples, width, height, stride, step, shift }
        };
        let chroma = picture.chroma.map(|chroma| chroma.map(component));
        Some(Self(Picture { luma: component(picture.luma), chroma, lease: Some(lease) }))
    }

    /// Returns the picture, for at most the life of `self`.
    pub fn picture(&self) -> &Picture<'_> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_samples_are_left_out_of_subsampled_chroma() {
        let depth = BitDepth::new(8).unwrap();
        let without =
            |(width, height), chroma| Geometry { width, height, depth, chroma }.without_half_samples().chroma;
        for (chroma, expected) in [
            ((49, 34), (48, 33)),
            ((48, 33), (48, 33)),
            ((49, 67), (48, 67)),
            ((97, 34), (97, 33)),
            ((97, 67), (97, 67)),
        ] {
            assert_eq!(without((97, 67), Some(chroma)), Some(expected));
        }
        assert_eq!(without((96, 64), Some((48, 32))), Some((48, 32)));
        assert_eq!(without((97, 67), None), None);
    }

    #[test]
    fn packed_planes_follow_each_other() {
        let depth = BitDepth::new(10).unwrap();
        let geometry = Geometry { width: 5, height: 3, depth, chroma: Some((2, 1)) };
        let bytes: Vec<u8> = (0..30 + 4 + 4).collect();
        let picture = Picture::packed(&bytes, geometry).unwrap();
        let [cb, cr] = picture.chroma.unwrap();
        for (component, from, to) in [(picture.luma, 0, 30), (cb, 30, 34), (cr, 34, 38)] {
            let Samples::Host(samples) = component.samples else { panic!("not in the host's memory") };
            assert_eq!(samples, &bytes[from..to]);
            assert_eq!((component.stride, component.step, component.shift), (component.width * 2, 1, 0));
        }
        assert!(Picture::packed(&bytes[1..], geometry).is_none());
        assert!(Picture::packed(&bytes, Geometry { width: usize::MAX, ..geometry }).is_none());
    }
}
