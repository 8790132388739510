// SPDX-License-Identifier: MPL-2.0

//! Symmetric filters on pairs of neighbouring 16-bit samples (one multiply-add each), and their row buffers.
//!
//! Vertically, a pair is two rows of one column. Both rows of an output pair read the same input pairs, one with its
//! taps shifted by a row. Horizontally, a pair is two columns of one row, and an even output column reads the same
//! input pairs as the odd one after it. Unsigned 16-bit operands become signed by flipping their highest bit. This
//! subtracts 2^31 from every sum, because the taps sum to 2^16; the initial value of the sums compensates for it (all
//! modulo 2^32).

use super::simd::Lanes;
use crate::backend::cpu::plane::{Row, Sample};
use crate::metrics::vif::TAPS;
use std::ops::Range;

/// Samples to which every buffered row is rounded up: two vectors of the widest lanes.
pub(super) const BLOCK: usize = 32;
/// Room for mirrored samples on each side of a buffered row.
pub(super) const PAD: usize = 32;
/// Pairs that one output of the longest filter reads.
const STEPS: usize = 9;
/// The compensation for flipping.
pub(super) const FLIPPED: u32 = 1 << 31;

/// A symmetric filter as multipliers of sample pairs.
pub(super) struct Filter {
    /// Even distance from the centre to the first pair.
    pub radius: usize,
    /// For pair `s`, which begins at `2 s - radius`: two taps for the output at an even position, then two taps for the
    /// output at the odd position after it. The first tap is in the low half of the number.
    pub taps: [[i32; 2]; STEPS],
    /// The taps are halved to fit 16 bits.
    halved: bool,
}

impl Filter {
    const fn new(taps: &[u16]) -> Self {
        let centre = taps.len() / 2;
        let radius = centre.next_multiple_of(2);
        let halved = taps[centre] > i16::MAX as u16;
        let mut pairs = [[0; 2]; STEPS];
        let mut k = 0;
        while k < taps.len() {
            let tap = if halved { taps[k] / 2 } else { taps[k] } as i32;
            let even = k + radius - centre;
            let odd = even + 1;
            pairs[even / 2][0] |= tap << (16 * (even % 2));
            pairs[odd / 2][1] |= tap << (16 * (odd % 2));
            k += 1;
        }
        Self { radius, taps: pairs, halved }
    }
}

/// The filter of each scale.
pub(super) const FILTERS: [Filter; 4] =
    [Filter::new(TAPS[0]), Filter::new(TAPS[1]), Filter::new(TAPS[2]), Filter::new(TAPS[3])];

/// 64 bytes that a vector load reads from a single cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Line {
    _lanes: [i32; 16],
}

impl Line {
    /// Creates lines with room for `bytes` bytes.
    pub fn zeroed(bytes: usize) -> Vec<Self> {
        vec![Self { _lanes: [0; 16] }; bytes.div_ceil(64)]
    }
}

/// Returns the number of 16-bit samples from one buffered row to the next.
pub(super) fn row_stride(width: usize) -> usize {
    width.next_multiple_of(BLOCK) + 2 * PAD
}

/// Reflects index `i` at the first and the last of `n` rows.
pub(super) fn mirror(i: isize, n: usize) -> usize {
    let i = i.unsigned_abs();
    if i < n { i } else { (2 * (n - 1)).saturating_sub(i) }
}

/// Loads `2 N` samples of a row from column `x`; zeros after its end.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn load_samples<V: Lanes, T: Sample>(row: Row<'_, T>, x: usize) -> V::I {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe {
        let samples = load_numbers::<V, T>(row.memory(), x);
        if size_of::<T>() == 1 { samples } else { V::min_u16(samples, V::splat16(row.max().into())) }
    }
}

/// Loads `2 N` numbers of a line from position `x`; zeros after its end.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn load_numbers<V: Lanes, T: Sample>(line: &[T], x: usize) -> V::I {
    let rest = &line[x..];
    // SAFETY: the caller has promised that the CPU has the instructions, and 2 N numbers follow either place.
    unsafe {
        if rest.len() >= 2 * V::N {
            load::<V, T>(rest.as_ptr())
        } else {
            let mut tail = [T::default(); BLOCK];
            tail[..rest.len()].copy_from_slice(rest);
            load::<V, T>(tail.as_ptr())
        }
    }
}

/// Loads `2 N` numbers, widened to 16 bits.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, and `2 N` numbers must follow `from`.
#[inline(always)]
unsafe fn load<V: Lanes, T: Sample>(from: *const T) -> V::I {
    // SAFETY: the caller has promised that; the cast is to the actual type of T.
    unsafe { if size_of::<T>() == 1 { V::load16_u8(from.cast()) } else { V::load16(from.cast()) } }
}

/// Returns the initial value that makes the filtered sum larger by `bias`.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn bias<V: Lanes, const TAPS: usize>(bias: u32) -> V::I {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe { V::splat((bias >> u32::from(FILTERS[TAPS].halved)) as i32) }
}

/// Undoes the halving of the taps.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn whole<V: Lanes, const TAPS: usize>(sum: V::I) -> V::I {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe { if FILTERS[TAPS].halved { V::shl::<1>(sum) } else { sum } }
}

/// Rows of flipped or signed 16-bit numbers, to filter at `2 N` columns. Parts of the filter can be placed between
/// parts of other work that uses other ports of the CPU.
pub(super) struct Horizontal<V: Lanes, const TAPS: usize, const ROWS: usize> {
    from: [*const u16; ROWS],
    sums: [[V::I; 2]; ROWS],
}

impl<V: Lanes, const TAPS: usize, const ROWS: usize> Horizontal<V, TAPS, ROWS> {
    const STEPS: usize = FILTERS[TAPS].radius + 1;
    /// True if there are enough registers for the sums of several rows and for the work between them. Otherwise all
    /// parts are added at the end, one row after the other.
    const SIDE_BY_SIDE: bool = V::REGISTERS >= 32;

    /// Begins to filter rows at these positions. `begin`: initial values of the sums.
    ///
    /// # Safety
    ///
    /// The CPU must have the instructions of `V`. From each place on there must be `2 N` numbers, and `PAD` more on
    /// either side of them, for as long as this is used.
    #[inline(always)]
    pub unsafe fn new(from: [*const u16; ROWS], begin: [u32; ROWS]) -> Self {
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe {
            let mut sums = [[V::splat(0); 2]; ROWS];
            for row in 0..ROWS {
                sums[row] = [bias::<V, TAPS>(begin[row]); 2];
            }
            Self { from, sums }
        }
    }

    /// Adds pairs of some rows.
    ///
    /// # Safety
    ///
    /// As for [`Horizontal::new`].
    #[inline(always)]
    unsafe fn add(&mut self, rows: Range<usize>, steps: Range<usize>) {
        // SAFETY: the caller has promised that the CPU has the instructions, and PAD numbers before and after those at
        // each place.
        unsafe {
            for s in steps {
                let [even, odd] = FILTERS[TAPS].taps[s];
                let taps = [V::splat(even), V::splat(odd)];
                for row in rows.clone() {
                    let pairs = V::load16(self.from[row].sub(const { FILTERS[TAPS].radius }).add(2 * s));
                    for side in 0..2 {
                        self.sums[row][side] = V::dot16(self.sums[row][side], pairs, taps[side]);
                    }
                }
            }
        }
    }

    /// Adds part `PART` of `PARTS`, [pinned](Lanes::pin) between the code before and after it.
    ///
    /// # Safety
    ///
    /// As for [`Horizontal::new`].
    #[inline(always)]
    pub unsafe fn add_part<const PART: usize, const PARTS: usize>(&mut self) {
        if Self::SIDE_BY_SIDE {
            // SAFETY: as the caller has promised.
            unsafe {
                self.add(0..ROWS, Self::STEPS * PART / PARTS..Self::STEPS * (PART + 1) / PARTS);
                for sums in &mut self.sums {
                    *sums = V::pin(*sums);
                }
            }
        }
    }

    /// Returns the sums of the even and of the odd columns of each row after all parts were added.
    ///
    /// # Safety
    ///
    /// As for [`Horizontal::new`].
    #[inline(always)]
    pub unsafe fn sums(mut self) -> [[V::I; 2]; ROWS] {
        // SAFETY: as the caller has promised.
        unsafe {
            if !Self::SIDE_BY_SIDE {
                for row in 0..ROWS {
                    self.add(row..row + 1, 0..Self::STEPS);
                }
            }
            self.whole()
        }
    }

    /// Returns the present sums.
    ///
    /// # Safety
    ///
    /// As for [`Horizontal::new`].
    #[inline(always)]
    unsafe fn whole(mut self) -> [[V::I; 2]; ROWS] {
        for sum in self.sums.as_flattened_mut() {
            // SAFETY: the CPU has the instructions, as the caller has promised.
            *sum = unsafe { whole::<V, TAPS>(*sum) };
        }
        self.sums
    }
}

/// Filters a row of flipped or signed 16-bit numbers at `2 N` columns. Returns the sums of the even and of the odd
/// ones.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. From `from` on there must be `2 N` numbers, and `PAD` more on either side
/// of them.
#[inline(always)]
pub(super) unsafe fn horizontal<V: Lanes, const TAPS: usize>(from: *const u16, begin: u32) -> [V::I; 2] {
    // SAFETY: the caller has promised that the CPU has the instructions, and PAD numbers before and after those at
    // `from`.
    unsafe {
        let mut row = Horizontal::<V, TAPS, 1>::new([from], [begin]);
        row.add(0..1, 0..Horizontal::<V, TAPS, 1>::STEPS);
        let [sums] = row.whole();
        sums
    }
}

/// Mirrors `radius` numbers at both ends of a row.
///
/// # Safety
///
/// `row` must point to more than `radius` numbers, `width` of them, with room for `radius` more on either side.
#[inline(always)]
pub(super) unsafe fn extend(row: *mut u16, width: usize, radius: usize) {
    // SAFETY: PAD numbers may be written on either side of the row.
    unsafe {
        let last = row.add(width - 1);
        for k in 1..=radius {
            *row.sub(k) = *row.add(k);
            *last.add(k) = *last.sub(k);
        }
    }
}
