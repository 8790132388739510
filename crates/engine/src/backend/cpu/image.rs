// SPDX-License-Identifier: MPL-2.0

//! Pictures whose rows are read as singles, for metrics in single precision.

use super::plane::{Plane, Sample};

/// A picture whose rows can be read as singles.
pub trait Image: Copy + Send + Sync {
    /// Returns width and height.
    fn size(&self) -> (usize, usize);
    /// Reads columns 0, 1 and so on of row `y`.
    fn read(&self, y: usize, to: &mut [f32]);
}

/// A plane in the range of 8 bits, less 128.
#[derive(Clone, Copy)]
pub struct Centred<'a, T> {
    plane: Plane<'a, T>,
    unit: f32,
}

impl<'a, T> Centred<'a, T> {
    /// Wraps a plane. `unit`: the factor that scales samples to the range of 8 bits.
    pub fn new(plane: Plane<'a, T>, unit: f32) -> Self {
        Self { plane, unit }
    }
}

impl<T: Sample> Image for Centred<'_, T> {
    fn size(&self) -> (usize, usize) {
        (self.plane.width(), self.plane.height())
    }

    #[inline(always)]
    fn read(&self, y: usize, to: &mut [f32]) {
        for (to, sample) in to.iter_mut().zip(self.plane.row(y).iter()) {
            let sample: i32 = sample.into();
            *to = sample as f32 * self.unit - 128.0;
        }
    }
}

/// A filtered or smaller picture.
#[derive(Clone, Debug, Default)]
pub struct Singles {
    /// Row by row.
    pub samples: Vec<f32>,
    pub width: usize,
    pub height: usize,
}

impl Singles {
    /// Creates a picture of zeros.
    pub fn new((width, height): (usize, usize)) -> Self {
        Self { samples: vec![0.0; width * height], width, height }
    }
}

impl Image for &Singles {
    fn size(&self) -> (usize, usize) {
        (self.width, self.height)
    }

    #[inline(always)]
    fn read(&self, y: usize, to: &mut [f32]) {
        to.copy_from_slice(&self.samples[y * self.width..][..to.len()]);
    }
}
