// SPDX-License-Identifier: MPL-2.0

//! What kernels know of the pictures of a frame pair: the structures of `kernels/frame.h`.

/// One component in device memory; `HvPlane`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Plane {
    /// First sample: a multiple of [`ALIGNMENT`] where `step` is 1; 0 where there is none.
    pub address: u64,
    /// Bytes from row to row: a multiple of [`ALIGNMENT`] where `step` is 1, and all of it readable.
    pub stride: u32,
    /// Unused low bits of a 16-bit sample.
    pub shift: u16,
    /// Samples from one sample to the next.
    pub step: u16,
}

/// Bytes that rows of planes are aligned to.
pub const ALIGNMENT: u64 = 16;

/// The pictures of one pair; `HvFrame`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Frame {
    /// Y, Cb and Cr.
    pub reference: [Plane; 3],
    pub distorted: [Plane; 3],
    /// Luma of the reference one and two frames ago.
    pub earlier: [Plane; 2],
}

impl Frame {
    /// As the kernels see it.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: plain numbers without padding.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }
}

/// What one kernel hands to the next: a plane of the reference and one of the distorted picture, or of several in a row;
/// `VifPlanes` and `AdmPlanes`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Planes {
    pub reference: u64,
    pub distorted: u64,
    /// Elements from row to row, a multiple of 8.
    pub stride: u32,
}

impl Planes {
    /// Takes room for planes of `size` bytes of the reference and `pictures` distorted pictures; no planes where that is
    /// 0.
    pub fn take(room: &mut u64, size: usize, stride: usize, pictures: usize) -> Self {
        if size == 0 {
            return Self::default();
        }
        let reference = *room;
        *room += ((1 + pictures) * size) as u64;
        Self { reference, distorted: reference + size as u64, stride: stride as u32 }
    }

    /// The same for the distorted pictures from one on.
    pub fn at(self, picture: usize, size: usize) -> Self {
        Self { distorted: self.distorted + (picture * size) as u64, ..self }
    }
}

const _: () = assert!(size_of::<Plane>() == 16 && size_of::<Frame>() == 128);
