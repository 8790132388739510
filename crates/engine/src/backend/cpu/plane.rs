// SPDX-License-Identifier: MPL-2.0

//! Pictures as the metrics see them: samples of more than 8 bits sit in the low bits of a `u16` and never exceed the
//! maximum of their depth. [`Picture`](crate::frame::Picture)s make no such promise. A look at all of their samples would
//! read all of a picture from memory once more, a seventh of the time of version 1. So a plane knows the maximum, and its
//! [`Row`]s clamp what is read of them.

/// A sample type of a plane: `u8` for 8-bit video, `u16` for everything deeper.
pub trait Sample:
    Copy + Default + Into<i32> + Into<u32> + Send + Sync + Ord + std::fmt::Debug + 'static
{
    /// The largest number of this type.
    const MAX: Self;

    /// The low bits of a number.
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
    /// A plane of the samples in `data`; `None` when the rows do not fit or overlap (`stride < width`).
    pub fn new(data: &'a [T], width: usize, height: usize, stride: usize) -> Option<Self> {
        let needed = match height {
            0 => 0,
            h => stride.checked_mul(h - 1)?.checked_add(width)?,
        };
        (stride >= width && data.len() >= needed).then_some(Self { data, width, height, stride, max: T::MAX })
    }

    /// The same, with larger samples of more than 8 bits read as this one.
    pub fn clamped(self, max: T) -> Self {
        Self { max, ..self }
    }

    /// The largest sample that can be read.
    pub fn max(&self) -> T {
        self.max
    }

    /// Samples of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Row `y` from the top, exactly `width` samples.
    #[inline]
    pub fn row(&self, y: usize) -> Row<'a, T> {
        let start = y * self.stride;
        Row { memory: &self.data[start..start + self.width], max: self.max }
    }

    /// Row `y` for `prefetch` to ask for, as it lies in memory; nothing where there is no such row.
    #[inline]
    pub fn ahead(&self, y: usize) -> &'a [T] {
        if y < self.height { self.row(y).memory() } else { &[] }
    }

    /// The rows two pairs after the one that begins with row `pair`, which is counted from the top of the picture or,
    /// below 0, mirrored there: the next to be read but one.
    #[inline]
    pub fn pair_ahead(&self, pair: isize) -> [&'a [T]; 2] {
        [self.ahead((pair + 4).unsigned_abs()), self.ahead((pair + 5).unsigned_abs())]
    }
}

/// Bytes of a line of the cache.
const LINE: usize = 64;

/// Asks for the line of the cache that begins among the `n` numbers from `x` on of a row, at most a line's worth, if
/// one does, as it will be read soon: CPUs foresee numbers that follow each other, not the step from one row to
/// another. Whoever works on a row calls this for each vector of it: a CPU has room for a dozen lines on their way, and
/// waits when it is asked for a whole row at once.
#[inline(always)]
pub fn prefetch<T>(row: &[T], x: usize, n: usize) {
    if let Some(line) = line_among::<T>(x, n).and_then(|start| row.get(start..)) {
        prefetch_line(line);
    }
}

/// The first number of the line that begins among the `n` from `x` on; lines are counted from the beginning of the row.
#[inline(always)]
fn line_among<T>(x: usize, n: usize) -> Option<usize> {
    let start = x.next_multiple_of(const { LINE / size_of::<T>() });
    (start < x + n).then_some(start)
}

/// Asks for a line of the cache.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch_line<T>(line: &[T]) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: every x86-64 has the instruction, which reads nothing.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
}

/// No other CPU has been measured.
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
    /// A row of samples that all are in range.
    #[inline]
    pub fn new(memory: &'a [T]) -> Self {
        Self { memory, max: T::MAX }
    }

    /// How many samples there are.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a row without samples is none")]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// A sample as it lies in memory, clamped.
    #[inline]
    pub fn clamp(&self, sample: T) -> T {
        if size_of::<T>() == 1 { sample } else { sample.min(self.max) }
    }

    /// Sample `x` from the left.
    #[inline]
    pub fn at(&self, x: usize) -> T {
        self.clamp(self.memory[x])
    }

    /// All samples from the left.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = T> {
        self.memory.iter().map(move |sample| self.clamp(*sample))
    }

    /// Parts of so many samples, of which the last may have fewer.
    #[inline]
    pub fn chunks(self, size: usize) -> impl Iterator<Item = Self> {
        self.memory.chunks(size).map(move |memory| Self { memory, ..self })
    }

    /// What lies in memory, for those who clamp it themselves.
    #[inline]
    pub fn memory(&self) -> &'a [T] {
        self.memory
    }

    /// The largest sample that can be read.
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
    /// A pair of planes; `None` when they differ in size or sample type.
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
    /// A group of planes; `None` when one differs from the reference in size or sample type.
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
}

/// One picture: luma, and the two chroma planes where the caller has them.
///
/// Chroma planes have the size libvmaf gives them: a subsampled axis of `n` luma samples has
/// `floor(n / 2)` chroma samples.
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

    /// Wherever somebody begins, and however wide vectors are.
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
