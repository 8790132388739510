// SPDX-License-Identifier: MPL-2.0

//! What kernels know of the pictures of a frame pair: the structures of `kernels/frame.h`.

use super::shared::shared;

shared! {
    "frame.h"
    /// One component in device memory.
    #[derive(Debug, Default)]
    pub struct HvPlane: 16 {
        /// First sample: a multiple of [`ALIGNMENT`] where `step` is 1; 0 where there is none.
        [0] data: u64,
        /// Bytes from row to row: a multiple of [`ALIGNMENT`] where `step` is 1, and all of it readable.
        [8] stride: u32,
        /// Unused low bits of a 16-bit sample.
        [12] shift: u16,
        /// Samples from one sample to the next.
        [14] step: u16,
    }
}

/// Bytes that rows of planes are aligned to.
pub const ALIGNMENT: u64 = 16;

shared! {
    "frame.h"
    /// The pictures of one pair.
    #[derive(Debug, Default)]
    pub struct HvFrame: 128 {
        /// Y, Cb and Cr.
        [0] reference: [HvPlane; 3],
        [48] distorted: [HvPlane; 3],
        /// Luma of the reference one and two frames ago.
        [96] earlier: [HvPlane; 2],
    }
}

shared! {
    "frame.h"
    /// What one kernel hands to the next: a plane of the reference and one of the distorted picture, or of several in a
    /// row.
    #[derive(Debug, Default)]
    pub struct HvPlanes: 24 {
        [0] reference: u64,
        [8] distorted: u64,
        /// Elements from row to row.
        [16] stride: u32,
    }
}

impl HvPlanes {
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

    /// The planes with those of the distorted pictures from number `picture` on; `size` is the bytes of a plane.
    pub fn at(self, picture: usize, size: usize) -> Self {
        Self { distorted: self.distorted + (picture * size) as u64, ..self }
    }
}
