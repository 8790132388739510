// SPDX-License-Identifier: MPL-2.0

//! Row buffers. All are padded so that vectors may run over the end of a row.

use crate::cpu::simd::Lanes;

/// Padding before the first column of a [`Mid`] line.
pub(super) const LEAD: usize = 32;
/// Padding behind a row: more than two vectors of any width.
const TAIL: usize = 128;

/// Elements from one padded row of `width` to the next.
fn stride(width: usize) -> usize {
    (width + TAIL).next_multiple_of(32)
}

/// Coefficient types: 16 bits at scale 0, 32 bits at the others.
pub(super) trait Coef: Copy + Default + Send + 'static {
    /// Halves of the vertically filtered rows and of the approximation.
    const HALVES: usize;
    /// Reads `N` coefficients.
    ///
    /// # Safety
    ///
    /// Needs the instructions of `V` and `N` elements at `p`.
    unsafe fn load<V: Lanes>(p: *const Self) -> V::I;
    /// Writes `N` coefficients.
    ///
    /// # Safety
    ///
    /// Needs the instructions of `V` and `N` elements at `p`.
    unsafe fn store<V: Lanes>(p: *mut Self, a: V::I);
}

impl Coef for i16 {
    const HALVES: usize = 1;

    #[inline(always)]
    unsafe fn load<V: Lanes>(p: *const Self) -> V::I {
        // SAFETY: as the caller promises.
        unsafe { V::load_i16(p) }
    }

    #[inline(always)]
    unsafe fn store<V: Lanes>(p: *mut Self, a: V::I) {
        // SAFETY: as the caller promises.
        unsafe { V::store_low16(p.cast(), a) }
    }
}

impl Coef for i32 {
    const HALVES: usize = 2;

    #[inline(always)]
    unsafe fn load<V: Lanes>(p: *const Self) -> V::I {
        // SAFETY: as the caller promises.
        unsafe { V::load(p) }
    }

    #[inline(always)]
    unsafe fn store<V: Lanes>(p: *mut Self, a: V::I) {
        // SAFETY: as the caller promises.
        unsafe { V::store(p, a) }
    }
}

/// A vertically filtered row in halves: column `x` at `LEAD + x`, mirrored columns around.
#[derive(Debug)]
pub(super) struct Mid {
    pub halves: [Vec<i16>; 2],
}

impl Mid {
    pub fn new(width: usize) -> Self {
        Self { halves: [0, 1].map(|_| vec![0; LEAD + stride(width)]) }
    }
}

/// Rows of the three bands h, v, d.
#[derive(Debug)]
pub(super) struct Rows<C> {
    data: Vec<C>,
    stride: usize,
}

impl<C: Coef> Rows<C> {
    pub fn new(width: usize) -> Self {
        Self { data: vec![C::default(); 3 * stride(width)], stride: stride(width) }
    }

    /// The row of band `index`: 0 for h, 1 for v, 2 for d.
    #[inline(always)]
    pub fn band(&self, index: usize) -> &[C] {
        &self.data[index * self.stride..][..self.stride]
    }

    #[inline(always)]
    pub fn band_mut(&mut self, index: usize) -> &mut [C] {
        &mut self.data[index * self.stride..][..self.stride]
    }
}

/// A row of 32-bit values whose column 0 stands at index 1.
pub(super) fn row32(width: usize) -> Vec<i32> {
    vec![0; 1 + stride(width)]
}

/// The a band of one scale, in halves.
#[derive(Debug)]
pub(super) struct Approximation {
    pub halves: [Vec<i16>; 2],
    pub width: usize,
    pub height: usize,
    pub stride: usize,
}

impl Approximation {
    /// `halves` is 1 where values fit 16 bits, else 2.
    pub fn new(width: usize, height: usize, halves: usize) -> Self {
        let stride = stride(width);
        let plane = |half| vec![0; if half < halves { stride * height } else { 0 }];
        Self { halves: [plane(0), plane(1)], width, height, stride }
    }

    pub fn rows_mut(&mut self) -> ApproximationRows<'_> {
        let [lower, upper] = &mut self.halves;
        ApproximationRows { halves: [lower, upper], stride: self.stride }
    }
}

/// Some rows of an [`Approximation`] to be written.
pub(super) struct ApproximationRows<'a> {
    halves: [&'a mut [i16]; 2],
    stride: usize,
}

impl ApproximationRows<'_> {
    /// No rows: for the last scale, whose approximation nobody needs.
    pub fn none() -> Self {
        Self { halves: [&mut [], &mut []], stride: 0 }
    }

    /// The first `rows` rows, and the others.
    pub fn split_at(self, rows: usize) -> (Self, Self) {
        let stride = self.stride;
        let [lower, upper] = self.halves.map(|half| half.split_at_mut((rows * stride).min(half.len())));
        (Self { halves: [lower.0, upper.0], stride }, Self { halves: [lower.1, upper.1], stride })
    }

    /// Row `y` in halves, `None` for rows of [`ApproximationRows::none`].
    pub fn row(&mut self, y: usize) -> Option<[&mut [i16]; 2]> {
        let stride = self.stride;
        let [lower, upper] = &mut self.halves;
        let lower = lower.get_mut(y * stride..).filter(|rest| !rest.is_empty())?;
        Some([&mut lower[..stride], upper.get_mut(y * stride..).unwrap_or_default()])
    }
}
