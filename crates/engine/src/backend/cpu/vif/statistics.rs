// SPDX-License-Identifier: MPL-2.0

//! The horizontal filters of VIF and the statistics: from vertically filtered rows to variances and a covariance at
//! each pixel, and from these to the sums of a row.
//!
//! Filters use the multipliers of a CPU and little else; statistics use nearly everything else. One after the other
//! they take the time of both, as CPUs do not look that far ahead. So the statistics of a block of columns are placed
//! between parts of the next block's filters and [pinned](Lanes::pin) there.

use crate::backend::cpu::filter::{FLIPPED, Horizontal};
use crate::backend::cpu::log2::Log2;
use crate::backend::cpu::simd::Lanes;
use crate::metrics::vif::{EPSILON, LOG2_BIAS, NOISE, VifScaleSums};

/// Initial value of the sums of low halves: it rounds them when they are added to those of high halves.
const LOW: u32 = FLIPPED + (1 << 15);

/// Evaluates an expression for even and odd columns: two chains of instructions that the CPU interleaves.
macro_rules! sides {
    ($i:ident => $e:expr) => {
        [
            {
                let $i = 0;
                $e
            },
            {
                let $i = 1;
                $e
            },
        ]
    };
}

/// Filters a row of eight planes horizontally and sums its pixels. For the first picture, it writes the reference's
/// means and variances to `kept`, if that is given. For the others, it reads them there and does not sum the terms that
/// depend only on the reference.
///
/// One long function, because filters and statistics are interleaved by hand (see above).
///
/// # Safety
///
/// The CPU must have the instructions of `V`. From `from` on there must be eight rows of scratch of this width,
/// `stride` numbers apart, with their ends mirrored; in `kept` room for four numbers for each column, rounded up to
/// whole vectors; and at `numerators` three vectors for each gain limit.
#[inline(always)]
pub(super) unsafe fn statistics<V: Log2, const SCALE: usize, const FIRST: bool>(
    from: *const u16,
    stride: usize,
    width: usize,
    kept: Option<*mut i32>,
    gain_limits: &[f64],
    numerators: *mut i32,
    sums: &mut [VifScaleSums],
) {
    let Some((limit, more_limits)) = gain_limits.split_first() else { return };
    // SAFETY: the caller has promised that the CPU has the instructions, eight mirrored scratch rows from `from`, a
    // kept row, and three vectors for each gain limit at `numerators`. A lane adds less than 2^16 for each of its pixels,
    // so 32 bits last for 2^15 of them: rows of 2^18 samples.
    unsafe {
        let zero = V::splat(0);
        let mut tally = Tally::<V> { den_log: zero, flat_count: 0, flat_energy: V::splat64(0), numerators };
        for k in 0..gain_limits.len() {
            V::store(tally.numerator(k), zero);
        }
        let mut block = Block::<V>::of([zero; 2], [zero; 2], [zero; 2], [V::first(0); 2]);
        for x in (0..width).step_by(2 * V::N) {
            let plane = |n: usize| from.add(n * stride + x);
            // The reference's mean and square, and the terms of the block before.
            let mut row =
                Horizontal::<V, SCALE, 3>::new([plane(0), plane(2), plane(5)], [FLIPPED, FLIPPED, LOW]);
            if FIRST {
                row.add_part::<0, 3>();
            }
            let cov = sides!(i => V::to_f64(block.cov[i]));
            let gain = block.gain(cov);
            let cov = sides!(i => V::pin_f64(cov[i]));
            if FIRST {
                row.add_part::<1, 3>();
                tally.add_reference(&block);
            }
            let s2 = sides!(i => V::pin_f64(V::to_f64(block.var2[i])));
            let gain = sides!(i => V::pin_f64(gain[i]));
            if FIRST {
                row.add_part::<2, 3>();
            }
            let rest = sides!(i => V::pin_f64(V::sub_f64(s2[i], V::mul_f64(gain[i], cov[i]))));
            let explained = block.explained(gain, *limit);
            let explained = sides!(i => V::pin_f64(explained[i]));
            let [mut m1, high, low] = if FIRST { row.sums() } else { [[zero; 2]; 3] };
            tally.add_flat::<FIRST>(&block);
            for (k, limit) in more_limits.iter().enumerate() {
                let explained = block.explained(gain, *limit);
                for i in 0..2 {
                    V::store(tally.numerator(1 + k).add((1 + i) * V::N), V::trunc(explained[i]));
                }
            }

            // The other planes, and the logarithms of the block before.
            let others = [plane(1), plane(3), plane(6), plane(4), plane(7)];
            let mut row = Horizontal::<V, SCALE, 5>::new(others, [FLIPPED, FLIPPED, LOW, FLIPPED, LOW]);
            row.add_part::<0, 5>();
            let noise = V::pin(noise::<V>(rest));
            row.add_part::<1, 5>();
            let signal = V::pin(sides!(i => V::trunc(explained[i])));
            let mut var1 = sides!(i => V::sub(wide::<V>(high[i], low[i]), square_mean::<V>(m1[i], m1[i])));
            if let Some(kept) = kept {
                let at = sides!(i => kept.add(2 * x + i * 2 * V::N));
                for i in 0..2 {
                    if FIRST {
                        V::store(at[i], m1[i]);
                        V::store(at[i].add(V::N), var1[i]);
                    } else {
                        m1[i] = V::load(at[i]);
                        var1[i] = V::load(at[i].add(V::N));
                    }
                }
            }
            let (m1, var1) = (V::pin(m1), V::pin(var1));
            row.add_part::<2, 5>();
            let log_noise = V::pin(sides!(i => V::log2(noise[i])));
            row.add_part::<3, 5>();
            let logs_of_first = V::pin(logs::<V>(signal, noise, log_noise));
            row.add_part::<4, 5>();
            tally.add_explained(0, logs_of_first);
            for k in 1..gain_limits.len() {
                let signal = sides!(i => V::load(tally.numerator(k).add((1 + i) * V::N)));
                tally.add_explained(k, logs::<V>(signal, noise, log_noise));
            }

            let [m2, yy_high, yy_low, xy_high, xy_low] = row.sums();
            let var2 = sides!(i => V::sub(wide::<V>(yy_high[i], yy_low[i]), square_mean::<V>(m2[i], m2[i])));
            let cov = sides!(i => V::sub(wide::<V>(xy_high[i], xy_low[i]), square_mean::<V>(m1[i], m2[i])));
            block = Block::of(var1, var2, cov, sides!(i => V::first((width - x + 1 - i) / 2)));
        }
        tally.add_block::<FIRST>(&block, gain_limits);
        let den_log = V::sum(tally.den_log);
        for (k, sum) in sums.iter_mut().enumerate() {
            *sum += VifScaleSums {
                num_log: V::sum(V::load(tally.numerator(k))),
                den_log,
                flat_count: i64::from(tally.flat_count),
                flat_energy: V::sum64(tally.flat_energy),
            };
        }
    }
}

/// Combines the sums of the halves into a filtered 32-bit number, rounded down by 16 bits.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn wide<V: Lanes>(high: V::I, low: V::I) -> V::I {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe { V::add(high, V::shr::<16>(low)) }
}

/// Computes `a b` of means with 16 fraction bits, rounded to 16 fraction bits.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn square_mean<V: Lanes>(a: V::I, b: V::I) -> V::I {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe { V::high(V::add64(V::mul_wide_u(a, b), V::splat64(1 << 31))) }
}

/// Returns the noise for this unexplained variance.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn noise<V: Lanes>(rest: [V::D; 2]) -> [V::I; 2] {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe { sides!(i => V::add(V::max(V::trunc(rest[i]), V::splat(0)), V::splat(NOISE))) }
}

/// Returns the logarithms that signals add to the numerator.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn logs<V: Log2>(signal: [V::I; 2], noise: [V::I; 2], log_noise: [V::I; 2]) -> [V::I; 2] {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe { sides!(i => V::sub(V::log2(V::add(signal[i], noise[i])), log_noise[i])) }
}

/// A block of `2 N` pixels.
struct Block<V: Log2> {
    /// Variance of the reference, and the same as doubles.
    var1: [V::I; 2],
    s1: [V::D; 2],
    /// Variance of the distorted picture.
    var2: [V::I; 2],
    /// Covariance; 0 where the reference explains nothing.
    cov: [V::I; 2],
    /// Pixels whose reference has at least the variance of the noise, and those with less.
    busy: [V::M; 2],
    flat: [V::M; 2],
}

/// # Safety
///
/// For all of them the CPU must have the instructions of `V`.
#[allow(clippy::missing_safety_doc, reason = "said above for all of them")]
impl<V: Log2> Block<V> {
    /// Prepares pixels with these variances and covariance. Some may be outside of the picture.
    #[inline(always)]
    unsafe fn of(var1: [V::I; 2], var2: [V::I; 2], cov: [V::I; 2], inside: [V::M; 2]) -> Self {
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe {
            let zero = V::splat(0);
            let busy = sides!(i => V::both(inside[i], V::gt(var1[i], V::splat(NOISE - 1))));
            let var2 = sides!(i => V::max(var2[i], zero));
            let alike = sides!(i => V::both(busy[i], V::gt(V::min(cov[i], var2[i]), zero)));
            Self {
                var1,
                s1: sides!(i => V::to_f64(var1[i])),
                var2,
                cov: sides!(i => V::keep(alike[i], cov[i])),
                busy,
                flat: sides!(i => V::except(inside[i], busy[i])),
            }
        }
    }

    /// Divides `cov` by the reference's variance.
    #[inline(always)]
    unsafe fn gain(&self, cov: [V::D; 2]) -> [V::D; 2] {
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe { sides!(i => V::div_f64(cov[i], V::add_f64(self.s1[i], V::splat_f64(EPSILON)))) }
    }

    /// Computes the variance that the reference explains with the gain up to a limit.
    ///
    /// By Cauchy and Schwarz, allowing for the rounding of the means, `gain cov` and therefore this result stay below
    /// 2^31 if the reference has a variance of at least [`NOISE`]. Otherwise the gain is 0.
    #[inline(always)]
    unsafe fn explained(&self, gain: [V::D; 2], limit: f64) -> [V::D; 2] {
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe {
            let gain = sides!(i => V::min_f64(gain[i], V::splat_f64(limit)));
            sides!(i => V::mul_f64(V::mul_f64(gain[i], gain[i]), self.s1[i]))
        }
    }
}

/// Sums of a row in lanes.
struct Tally<V: Log2> {
    den_log: V::I,
    flat_count: u32,
    flat_energy: V::L,
    /// Three vectors for each gain limit, the first of them the numerator.
    numerators: *mut i32,
}

/// # Safety
///
/// The CPU must have the instructions of `V`, and `numerators` must be valid for all gain limits that are passed.
#[allow(clippy::missing_safety_doc, reason = "said above for all of them")]
impl<V: Log2> Tally<V> {
    /// Adds the terms that depend only on the reference.
    #[inline(always)]
    unsafe fn add_reference(&mut self, block: &Block<V>) {
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe {
            for i in 0..2 {
                let log = V::log2(V::add(block.var1[i], V::splat(NOISE)));
                let log = V::sub(log, V::splat(LOG2_BIAS + 34816));
                self.den_log = V::add(self.den_log, V::keep(block.busy[i], log));
            }
        }
    }

    /// Adds flat pixels and, for the first picture, their number.
    #[inline(always)]
    unsafe fn add_flat<const FIRST: bool>(&mut self, Block { flat, var2, .. }: &Block<V>) {
        // SAFETY: the CPU has the instructions, as the caller has promised.
        unsafe {
            if V::any(flat[0]) || V::any(flat[1]) {
                for i in 0..2 {
                    if FIRST {
                        self.flat_count += V::count(flat[i]);
                    }
                    self.flat_energy = V::add64(self.flat_energy, V::widen_u(V::keep(flat[i], var2[i])));
                }
            }
        }
    }

    /// Returns the address of the numerator of the `k`th gain limit.
    #[inline(always)]
    fn numerator(&self, k: usize) -> *mut i32 {
        self.numerators.wrapping_add(k * 3 * V::N)
    }

    /// Adds to the numerator of the `k`th gain limit.
    #[inline(always)]
    unsafe fn add_explained(&mut self, k: usize, log: [V::I; 2]) {
        // SAFETY: the caller has promised that the CPU has the instructions, and the vectors of the numerators.
        unsafe {
            let numerator = self.numerator(k);
            V::store(numerator, V::add(V::load(numerator), V::add(log[0], log[1])));
        }
    }

    /// Adds a block, one step after the other.
    #[inline(always)]
    unsafe fn add_block<const FIRST: bool>(&mut self, block: &Block<V>, gain_limits: &[f64]) {
        // SAFETY: the caller has promised that the CPU has the instructions, and the vectors of the numerators.
        unsafe {
            self.add_flat::<FIRST>(block);
            if FIRST {
                self.add_reference(block);
            }
            let cov = sides!(i => V::to_f64(block.cov[i]));
            let gain = block.gain(cov);
            let s2 = sides!(i => V::to_f64(block.var2[i]));
            let noise = noise::<V>(sides!(i => V::sub_f64(s2[i], V::mul_f64(gain[i], cov[i]))));
            let log_noise = sides!(i => V::log2(noise[i]));
            for (k, limit) in gain_limits.iter().enumerate() {
                let explained = block.explained(gain, *limit);
                self.add_explained(k, logs::<V>(sides!(i => V::trunc(explained[i])), noise, log_noise));
            }
        }
    }
}
