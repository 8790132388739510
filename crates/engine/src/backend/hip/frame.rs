// SPDX-License-Identifier: MPL-2.0

//! The structures of `kernels/frame.h`, which describe the pictures of a frame pair to kernels.

use super::shared::shared;

shared! {
    "frame.h"
    /// One component in device memory.
    #[derive(Debug, Default)]
    pub struct HvPlane: 16 {
        /// First sample: a multiple of [`ALIGNMENT`] if `step` is 1; 0 if there is no such component.
        [0] data: u64,
        /// Bytes from row to row: a multiple of [`ALIGNMENT`] if `step` is 1. All of these bytes are readable.
        [8] stride: u32,
        /// Unused low bits of a 16-bit sample.
        [12] shift: u16,
        /// Samples from one sample to the next.
        [14] step: u16,
    }
}

/// Alignment of the rows of planes in bytes.
pub const ALIGNMENT: u64 = 16;

shared! {
    "frame.h"
    /// The pictures of one pair.
    #[derive(Debug, Default)]
    pub struct HvFrame: 144 {
        /// Y, Cb and Cr.
        [0] reference: [HvPlane; 3],
        [48] distorted: [HvPlane; 3],
        /// Luma of the reference one and two frames ago.
        [96] earlier: [HvPlane; 2],
        /// Place of the group in the history of metrics that keep one.
        [128] place: u32,
        /// Successive frames of the pair up to this one, as far as it matters.
        [132] age: u32,
        [136] rendition: u32,
        /// The first pair of the group with this age.
        [140] like: u32,
    }
}

shared! {
    "frame.h"
    /// Planes that one kernel passes to another: one of the reference and one of the distorted picture, or consecutive
    /// ones of several distorted pictures.
    #[derive(Debug, Default)]
    pub struct HvPlanes: 24 {
        [0] reference: u64,
        [8] distorted: u64,
        /// Elements from row to row.
        [16] stride: u32,
    }
}

impl HvPlanes {
    /// Takes memory for planes of `size` bytes of the reference and `pictures` distorted pictures; none if `size` is 0.
    pub fn take(room: &mut u64, size: usize, stride: usize, pictures: usize) -> Self {
        if size == 0 {
            return Self::default();
        }
        let reference = *room;
        *room += ((1 + pictures) * size) as u64;
        Self { reference, distorted: reference + size as u64, stride: stride as u32 }
    }

    /// Returns the planes without those of the first `picture` distorted pictures. `size`: bytes of a plane.
    pub fn at(self, picture: usize, size: usize) -> Self {
        Self { distorted: self.distorted + (picture * size) as u64, ..self }
    }
}
