// SPDX-License-Identifier: MPL-2.0

//! Row buffers. All are padded, so that vectors may extend beyond the end of a row.

use crate::backend::cpu::simd::Lanes;
use std::ops::{Deref, DerefMut};

/// Elements before the first column of rows that are read from before it, in whole cache lines.
pub(super) const LEAD: usize = 32;
/// Padding after a row: more than two vectors of any width.
const TAIL: usize = 128;

/// Elements from one padded row of `width` to the next.
fn stride(width: usize) -> usize {
    (width + TAIL).next_multiple_of(32)
}

/// Elements that begin on a cache line. Vectors that cross a line take twice as long to read.
#[derive(Debug)]
pub(super) struct Aligned<T> {
    data: Vec<T>,
    start: usize,
}

impl<T: Copy + Default> Aligned<T> {
    fn new(len: usize) -> Self {
        const LINE: usize = 64;
        let data = vec![T::default(); len + LINE / size_of::<T>()];
        // The elements do not move during the life of the vector.
        let start = data.as_ptr().addr().wrapping_neg() % LINE / size_of::<T>();
        Self { data, start }
    }
}

impl<T> Aligned<T> {
    /// Returns the address of element `index`, without the bounds check of slicing.
    #[inline(always)]
    pub fn at(&self, index: usize) -> *const T {
        self.data.as_ptr().wrapping_add(self.start + index)
    }

    /// Returns the address of element `index` for writing.
    #[inline(always)]
    pub fn at_mut(&mut self, index: usize) -> *mut T {
        self.data.as_mut_ptr().wrapping_add(self.start + index)
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        &self.data[self.start..]
    }
}

impl<T> DerefMut for Aligned<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.data[self.start..]
    }
}

/// Coefficient types: 16 bits at scale 0, 32 bits at the others.
pub(super) trait Coef: Copy + Default + Send + 'static {
    /// Number of halves of the vertically filtered rows and of the approximation.
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

/// A vertically filtered row in halves: column `x` at `LEAD + x`, mirrored columns on both sides.
#[derive(Debug)]
pub(super) struct Mid {
    pub halves: [Aligned<i16>; 2],
}

impl Mid {
    pub fn new(width: usize) -> Self {
        Self { halves: [0, 1].map(|_| Aligned::new(LEAD + stride(width))) }
    }
}

/// Rows of the three bands h, v, d.
#[derive(Debug)]
pub(super) struct Rows<C> {
    data: Aligned<C>,
    stride: usize,
}

impl<C: Coef> Rows<C> {
    pub fn new(width: usize) -> Self {
        Self { data: Aligned::new(3 * stride(width)), stride: stride(width) }
    }

    /// Returns the address of column `x` of band `band`: 0 for h, 1 for v, 2 for d.
    #[inline(always)]
    pub fn at(&self, band: usize, x: usize) -> *const C {
        self.data.at(band * self.stride + x)
    }

    /// Returns the addresses of column `x` of each band before a loop, since the compiler must assume that writes in
    /// the loop change this structure.
    #[inline(always)]
    pub fn bands(&self, x: usize) -> [*const C; 3] {
        [self.at(0, x), self.at(1, x), self.at(2, x)]
    }

    /// Returns the address of column `x` of band `band` for writing.
    #[inline(always)]
    pub fn at_mut(&mut self, band: usize, x: usize) -> *mut C {
        self.data.at_mut(band * self.stride + x)
    }
}

/// Creates a row of 32-bit values with column `x` at `LEAD + x`.
pub(super) fn row32(width: usize) -> Aligned<i32> {
    Aligned::new(LEAD + stride(width))
}

/// The a band of one scale, in halves.
#[derive(Debug)]
pub(super) struct Approximation {
    pub halves: [Aligned<i16>; 2],
    pub width: usize,
    pub height: usize,
    pub stride: usize,
}

impl Approximation {
    /// Creates a band. `halves` is 1 if values fit 16 bits, else 2.
    pub fn new(width: usize, height: usize, halves: usize) -> Self {
        let stride = stride(width);
        let plane = |half| Aligned::new(if half < halves { stride * height } else { 0 });
        Self { halves: [plane(0), plane(1)], width, height, stride }
    }

    pub fn rows_mut(&mut self) -> ApproximationRows<'_> {
        let halves = self.halves.each_mut().map(|half| &mut half[..]);
        ApproximationRows { halves, stride: self.stride }
    }
}

/// Some rows of an [`Approximation`], for writing.
pub(super) struct ApproximationRows<'a> {
    halves: [&'a mut [i16]; 2],
    stride: usize,
}

impl ApproximationRows<'_> {
    /// Returns no rows: for the last scale, whose approximation is not needed.
    pub fn none() -> Self {
        Self { halves: [&mut [], &mut []], stride: 0 }
    }

    /// Splits off the first `rows` rows.
    pub fn split_at(self, rows: usize) -> (Self, Self) {
        let stride = self.stride;
        let [lower, upper] = self.halves.map(|half| half.split_at_mut((rows * stride).min(half.len())));
        (Self { halves: [lower.0, upper.0], stride }, Self { halves: [lower.1, upper.1], stride })
    }

    /// Returns row `y` in halves; `None` for [`ApproximationRows::none`].
    pub fn row(&mut self, y: usize) -> Option<[&mut [i16]; 2]> {
        let stride = self.stride;
        let [lower, upper] = &mut self.halves;
        let lower = lower.get_mut(y * stride..).filter(|rest| !rest.is_empty())?;
        Some([&mut lower[..stride], upper.get_mut(y * stride..).unwrap_or_default()])
    }
}
