// SPDX-License-Identifier: MPL-2.0

//! The CPU backend: the algorithms are generic over a vector type and compiled for several instruction sets. One of
//! them is chosen at run time.
//!
//! Each metric has a file here and is registered in `METRICS`.

#![allow(clippy::needless_range_loop, reason = "kernels index several small arrays by one constant range")]

pub(crate) mod adm;
pub(crate) mod ansnr;
mod backend;
pub(crate) mod cambi;
pub(crate) mod ciede;
pub(crate) mod cvvdp;
pub(crate) mod damage;
mod filter;
pub(crate) mod float_adm;
pub(crate) mod float_motion;
pub(crate) mod float_vif;
mod image;
mod import;
mod log2;
mod luma;
mod metric;
pub(crate) mod moments;
pub(crate) mod motion;
mod ordered;
pub(crate) mod plane;
pub(crate) mod psnr;
pub(crate) mod psnr_hvs;
pub(crate) mod scale;
pub(crate) mod simd;
mod slot;
pub(crate) mod speed;
pub(crate) mod speed_temporal;
pub(crate) mod ssim;
pub(crate) mod ssimulacra2;
pub(crate) mod vif;
pub(crate) mod xpsnr;

pub use backend::{Cpu, low_priority_thread};

use crate::metrics;
use metric::Registration;

/// All metrics, the slowest first. A missing metric is a compile error.
static METRICS: [Registration; metrics::METRICS.len()] = [
    Registration::of::<cvvdp::Cvvdp>(),
    Registration::of::<float_vif::FloatVif>(),
    Registration::of::<vif::Vif>(),
    Registration::of::<damage::Damage>(),
    Registration::of::<adm::Adm>(),
    Registration::of::<float_adm::FloatAdm>(),
    Registration::of::<ssimulacra2::Ssimulacra2>(),
    Registration::of::<cambi::Cambi>(),
    Registration::of::<ssim::Ssim>(),
    Registration::of::<ciede::Ciede>(),
    Registration::of::<psnr_hvs::PsnrHvs>(),
    Registration::of::<speed::Speed>(),
    Registration::of::<speed_temporal::SpeedTemporal>(),
    Registration::of::<motion::Motion>(),
    Registration::of::<float_motion::FloatMotion>(),
    Registration::of::<psnr::Psnr>(),
    Registration::of::<moments::Moments>(),
    Registration::of::<ansnr::Ansnr>(),
    Registration::of::<xpsnr::Xpsnr>(),
];

#[cfg(test)]
mod tests {
    //! Pictures for the tests of the metrics.

    use crate::backend::cpu::plane::{Plane, Sample};
    use crate::frame::BitDepth;
    use crate::random::noise;

    /// A picture with padding between its rows.
    #[derive(Clone, Debug)]
    pub struct Picture {
        pub width: usize,
        pub height: usize,
        pub depth: BitDepth,
        stride: usize,
        data: Vec<u16>,
    }

    /// A picture in its own sample type.
    pub struct Samples<T> {
        data: Vec<T>,
        size: [usize; 2],
        stride: usize,
        max: T,
    }

    impl<T: Sample> Samples<T> {
        pub fn plane(&self) -> Plane<'_, T> {
            let [width, height] = self.size;
            Plane::new(&self.data, width, height, self.stride).unwrap().clamped(self.max)
        }
    }

    impl Picture {
        /// Computes samples from a function of column and row, wrapped into the depth. The stride depends on the size.
        pub fn new(width: usize, height: usize, bits: u32, sample: impl Fn(usize, usize) -> u32) -> Self {
            let depth = BitDepth::new(bits).unwrap();
            let stride = width + height % 3 * 5;
            let at = |i: usize| (sample(i % stride, i / stride) & depth.max()) as u16;
            Self { width, height, depth, stride, data: (0..stride * height).map(at).collect() }
        }

        pub fn samples(&self) -> Vec<u16> {
            self.data.chunks(self.stride).flat_map(|row| row[..self.width].to_vec()).collect()
        }

        fn as_it_lies<T>(&self, max: T, lies: impl Fn((usize, &u16)) -> T) -> Samples<T> {
            let data = self.data.iter().enumerate().map(lies).collect();
            Samples { data, size: [self.width, self.height], stride: self.stride, max }
        }

        pub fn bytes(&self) -> Samples<u8> {
            self.as_it_lies(u8::MAX, |(_, x)| *x as u8)
        }

        /// Replaces samples of the largest value by larger ones, which must be read as the largest value.
        pub fn words(&self) -> Samples<u16> {
            let max = self.depth.max() as u16;
            self.as_it_lies(max, |(i, x)| if *x == max { max | noise(1, i, 0) as u16 } else { *x })
        }
    }

    /// Returns the frames of index `t` for which the specification has check values.
    pub fn synthetic(t: usize, bits: u32) -> [Picture; 2] {
        let reference = move |x: usize, y: usize| {
            let x = x + 5 * t;
            (((3 * x * x + 5 * y + 7 * x * y) / 16) % (1 << bits)) as u32
        };
        let distorted = move |x: usize, y: usize| {
            let noise = ((31 * (x + 5 * t) + 17 * y) % 23) << (bits - 8);
            (reference(x, y) + noise as u32).min((1 << bits) - 1)
        };
        [Picture::new(48, 32, bits, reference), Picture::new(48, 32, bits, distorted)]
    }

    /// Returns a pair of pictures. The seed chooses the kind of content.
    pub fn content(seed: usize, width: usize, height: usize, bits: u32) -> [Picture; 2] {
        let max = (1u32 << bits) - 1;
        let picture = |which: usize| {
            Picture::new(width, height, bits, |x, y| {
                let white = noise((2 * seed + which) as u32, x, y);
                let faint = white >> 30 << (bits - 8);
                let smooth = ((x * 3 + y * 5) as u32) << (bits - 8);
                match (seed % 8, which) {
                    (0, _) => white,
                    (1, 0) => smooth.min(max),
                    (1, _) => (smooth + faint).min(max),
                    (2, _) => max * ((x / (3 + which) + y / 5) % 2) as u32,
                    (3, _) => max * (white >> 31),
                    (4, 0) => max / 2,
                    (4, _) => white,
                    (5, 0) => white,
                    (5, _) => max / 3,
                    (6, 0) => smooth / 4 + faint,
                    (6, _) => (smooth + 4 * faint).min(max),
                    _ => max * which as u32,
                }
            })
        };
        [picture(0), picture(1)]
    }

    /// Returns the reference of a pair and the pictures to compare with it: its distorted picture, the reference
    /// itself, and the reference upside down.
    pub fn group([reference, distorted]: &[Picture; 2]) -> [Picture; 4] {
        let Picture { width, height, depth, stride, ref data } = *reference;
        let row = |y: usize| &data[y * stride..][..width];
        let turned = Picture::new(width, height, depth.bits(), |x, y| {
            if x < width { row(height - 1 - y)[x].into() } else { 0 }
        });
        [reference.clone(), distorted.clone(), reference.clone(), turned]
    }

    /// `planes!(pictures, |planes| result)`, with planes of the sample type for the depth.
    macro_rules! planes {
        ($pictures:expr, |$planes:ident| $result:expr) => {{
            let pictures: &[$crate::backend::cpu::tests::Picture] = $pictures;
            match pictures[0].depth.bits() {
                8 => {
                    let samples: Vec<_> = pictures.iter().map(|picture| picture.bytes()).collect();
                    let $planes: Vec<_> = samples.iter().map(|samples| samples.plane()).collect();
                    $result
                }
                _ => {
                    let samples: Vec<_> = pictures.iter().map(|picture| picture.words()).collect();
                    let $planes: Vec<_> = samples.iter().map(|samples| samples.plane()).collect();
                    $result
                }
            }
        }};
    }
    pub(super) use planes;
}
