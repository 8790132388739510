// SPDX-License-Identifier: MPL-2.0

//! Planes as the metrics need them: samples of more than 8 bits are in the low bits of a `u16` and never exceed the
//! maximum of their depth. [`Picture`](crate::frame::Picture)s do not guarantee this. Checking all samples first would
//! read each picture from memory once more, which costs a seventh of v1's time. So a plane knows the maximum, and its
//! [`Row`]s clamp samples when they are read.

/// A sample type of a plane: `u8` for 8-bit video, `u16` for everything deeper.
pub trait Sample:
    Copy + Default + Into<i32> + Into<u32> + Send + Sync + Ord + std::fmt::Debug + 'static
{
    /// The largest number of this type.
    const MAX: Self;

    /// Returns the low bits of a number.
    fn low(value: i32) -> Self;
}

impl Sample for u8 {
    const MAX: Self = Self::MAX;

    fn low(value: i32) -> Self {
        value as u8
    }
}

impl Sample for u16 {
    const MAX: Self = Self::MAX;

    fn low(value: i32) -> Self {
        value as u16
    }
}

/// A borrowed picture plane: `height` rows of `width` samples, `stride` samples apart.
#[derive(Clone, Copy, Debug)]
pub struct Plane<'a, T> {
    data: &'a [T],
    width: usize,
    height: usize,
    stride: usize,
    max: T,
}

impl<'a, T: Sample> Plane<'a, T> {
    /// Creates a plane of the samples in `data`; `None` if the rows do not fit or overlap (`stride < width`).
    pub fn new(data: &'a [T], width: usize, height: usize, stride: usize) -> Option<Self> {
        let needed = match height {
            0 => 0,
            h => stride.checked_mul(h - 1)?.checked_add(width)?,
        };
        (stride >= width && data.len() >= needed).then_some(Self { data, width, height, stride, max: T::MAX })
    }

    /// Returns the same plane, with larger samples of more than 8 bits read as `max`.
    pub fn clamped(self, max: T) -> Self {
        Self { max, ..self }
    }

    /// Returns the largest sample that can be read.
    pub fn max(&self) -> T {
        self.max
    }

    /// Returns the part of the plane with at most this size.
    fn within(self, (width, height): (usize, usize)) -> Self {
        Self { width: self.width.min(width), height: self.height.min(height), ..self }
    }

    /// Returns the number of samples in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Returns row `y` from the top, exactly `width` samples.
    #[inline]
    pub fn row(&self, y: usize) -> Row<'a, T> {
        let start = y * self.stride;
        Row { memory: &self.data[start..start + self.width], max: self.max }
    }

    /// Returns row `y` in memory for `prefetch`; empty if there is no such row.
    #[inline]
    pub fn ahead(&self, y: usize) -> &'a [T] {
        if y < self.height { self.row(y).memory() } else { &[] }
    }

    /// Returns the rows of the pair after the next, to prefetch them. `pair` is the first row of the present pair,
    /// counted from the top of the picture or, below 0, mirrored there.
    #[inline]
    pub fn pair_ahead(&self, pair: isize) -> [&'a [T]; 2] {
        [self.ahead((pair + 4).unsigned_abs()), self.ahead((pair + 5).unsigned_abs())]
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches the cache line that begins among the `n` numbers from `x` on of a row, at most a line's worth. CPUs
/// predict reads of consecutive numbers, but not the step from one row to another. Callers prefetch one line for each
/// vector of a row, because a CPU holds only about a dozen lines in flight and stalls if a whole row is requested at
/// once.
#[inline(always)]
pub fn prefetch<T>(row: &[T], x: usize, n: usize) {
    if let Some(line) = line_among::<T>(x, n).and_then(|start| row.get(start..)) {
        prefetch_line(line);
    }
}

/// Returns the first number of the line that begins among the `n` from `x` on. Lines are counted from the beginning of
/// the row.
#[inline(always)]
fn line_among<T>(x: usize, n: usize) -> Option<usize> {
    let start = x.next_multiple_of(const { LINE / size_of::<T>() });
    (start < x + n).then_some(start)
}

/// Prefetches a cache line.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch_line<T>(line: &[T]) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: every x86-64 has the instruction, which reads nothing.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
}

/// Does nothing: other CPUs have not been measured.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn prefetch_line<T>(_line: &[T]) {}

/// Samples of a row, clamped as they are read.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a, T> {
    memory: &'a [T],
    max: T,
}

impl<'a, T: Sample> Row<'a, T> {
    /// Creates a row whose samples are all in range.
    #[inline]
    pub fn new(memory: &'a [T]) -> Self {
        Self { memory, max: T::MAX }
    }

    /// Returns the number of samples.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a row without samples is none")]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Clamps a sample read from memory.
    #[inline]
    pub fn clamp(&self, sample: T) -> T {
        if size_of::<T>() == 1 { sample } else { sample.min(self.max) }
    }

    /// Returns sample `x` from the left.
    #[inline]
    pub fn at(&self, x: usize) -> T {
        self.clamp(self.memory[x])
    }

    /// Iterates over all samples from the left.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = T> {
        self.memory.iter().map(move |sample| self.clamp(*sample))
    }

    /// Iterates over parts of `size` samples; the last may have fewer.
    #[inline]
    pub fn chunks(self, size: usize) -> impl Iterator<Item = Self> {
        self.memory.chunks(size).map(move |memory| Self { memory, ..self })
    }

    /// Returns the samples in memory. Callers have to clamp them.
    #[inline]
    pub fn memory(&self) -> &'a [T] {
        self.memory
    }

    /// Returns the largest sample that can be read.
    #[inline]
    pub fn max(&self) -> T {
        self.max
    }
}

/// A plane of either sample type.
#[derive(Clone, Copy, Debug)]
pub enum AnyPlane<'a> {
    /// A plane of 8-bit video.
    U8(Plane<'a, u8>),
    /// A plane of video with 9 to 16 bits.
    U16(Plane<'a, u16>),
}

/// Two planes of one sample type, to be compared.
#[derive(Clone, Copy, Debug)]
pub enum PlanePair<'a> {
    /// Two planes of 8-bit video.
    U8(Plane<'a, u8>, Plane<'a, u8>),
    /// Two planes of video with 9 to 16 bits.
    U16(Plane<'a, u16>, Plane<'a, u16>),
}

impl<'a> PlanePair<'a> {
    /// Pairs two planes; `None` if they differ in size or sample type.
    pub fn new(a: AnyPlane<'a>, b: AnyPlane<'a>) -> Option<Self> {
        fn alike<T: Sample>(a: &Plane<'_, T>, b: &Plane<'_, T>) -> bool {
            (a.width, a.height) == (b.width, b.height)
        }
        match (a, b) {
            (AnyPlane::U8(a), AnyPlane::U8(b)) if alike(&a, &b) => Some(Self::U8(a, b)),
            (AnyPlane::U16(a), AnyPlane::U16(b)) if alike(&a, &b) => Some(Self::U16(a, b)),
            _ => None,
        }
    }
}

/// A reference plane and planes to compare with it, all of one size and sample type.
#[derive(Clone, Debug)]
pub enum PlaneGroup<'a> {
    /// A reference plane and distorted planes of 8-bit video.
    U8(Plane<'a, u8>, Vec<Plane<'a, u8>>),
    /// A reference plane and distorted planes of video with 9 to 16 bits.
    U16(Plane<'a, u16>, Vec<Plane<'a, u16>>),
}

impl<'a> PlaneGroup<'a> {
    /// Groups planes; `None` if one differs from the reference in size or sample type.
    pub fn new(reference: AnyPlane<'a>, distorted: impl IntoIterator<Item = AnyPlane<'a>>) -> Option<Self> {
        let pairs = distorted.into_iter().map(|plane| PlanePair::new(reference, plane));
        Some(match reference {
            AnyPlane::U8(reference) => {
                let byte = |pair| if let Some(PlanePair::U8(_, plane)) = pair { Some(plane) } else { None };
                Self::U8(reference, pairs.map(byte).collect::<Option<_>>()?)
            }
            AnyPlane::U16(reference) => {
                let word = |pair| if let Some(PlanePair::U16(_, plane)) = pair { Some(plane) } else { None };
                Self::U16(reference, pairs.map(word).collect::<Option<_>>()?)
            }
        })
    }

    /// Returns the size of the planes.
    pub fn size(&self) -> (usize, usize) {
        match self {
            Self::U8(plane, _) => (plane.width, plane.height),
            Self::U16(plane, _) => (plane.width, plane.height),
        }
    }

    /// Returns the part of the planes with at most this size.
    pub fn within(&self, size: (usize, usize)) -> Self {
        match self {
            Self::U8(reference, distorted) => {
                Self::U8(reference.within(size), distorted.iter().map(|plane| plane.within(size)).collect())
            }
            Self::U16(reference, distorted) => {
                Self::U16(reference.within(size), distorted.iter().map(|plane| plane.within(size)).collect())
            }
        }
    }
}

/// The planes of one picture: luma, and the two chroma planes if they are needed.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Y.
    pub luma: AnyPlane<'a>,
    /// Cb and Cr.
    pub chroma: Option<[AnyPlane<'a>; 2]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests all start positions and vector widths.
    #[test]
    fn every_line_of_a_row_is_asked_for_once() {
        fn check<T>(first: usize, n: usize) {
            let (end, line) = (first + 40 * n, LINE / size_of::<T>());
            let asked: Vec<_> = (first..end).step_by(n).filter_map(|x| line_among::<T>(x, n)).collect();
            let lines: Vec<_> = (first..end).filter(|x| x % line == 0).collect();
            assert_eq!(asked, lines, "{first} {n} {line}");
        }
        for first in 0..70 {
            for n in [8, 16, 32] {
                check::<u8>(first, n);
                check::<u16>(first, n);
            }
        }
    }
}
