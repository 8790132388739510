// SPDX-License-Identifier: MPL-2.0

//! The horizontal filters of VIF and the statistics: from vertically filtered rows to variances and a covariance at each
//! pixel, and from these to the sums of a row.

use crate::backend::cpu::filter::{FLIPPED, horizontal};
use crate::backend::cpu::log2::Log2;
use crate::backend::cpu::simd::Lanes;
use crate::metrics::vif::{EPSILON, LOG2_BIAS, NOISE, VifScaleSums};

/// Horizontally filters 32-bit numbers and rounds them down by 16 bits: high halves, and low halves `apart` numbers later.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. From `from` on, and `apart` numbers later, there must be `2 N` numbers,
/// and `PAD` more on either side of them.
#[inline(always)]
unsafe fn horizontal_wide<V: Lanes, const TAPS: usize>(from: *const u16, apart: usize) -> [V::I; 2] {
    // SAFETY: as for either half.
    unsafe {
        let high = horizontal::<V, TAPS>(from, FLIPPED);
        let low = horizontal::<V, TAPS>(from.add(apart), FLIPPED + (1 << 15));
        [V::add(high[0], V::shr::<16>(low[0])), V::add(high[1], V::shr::<16>(low[1]))]
    }
}

/// An expression for even and odd columns: two chains of instructions for the machine to interleave.
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

/// Sums of a row in lanes.
struct Tally<V: Log2> {
    den_log: V::I,
    flat_count: u32,
    flat_energy: V::L,
    /// A vector for each gain limit.
    numerators: *mut i32,
}

/// Horizontally filters a row of eight planes and adds its pixels up. The first picture leaves the reference's means
/// and variances in `kept`, if it is given, where the others find them; these do not add up what depends on the
/// reference only.
///
/// # Safety
///
/// The CPU must have the instructions of `V`. From `from` on there must be eight rows of scratch of this width,
/// `stride` numbers apart, with their ends mirrored; in `kept` room for four numbers for each column, rounded up to
/// whole vectors; and at `numerators` a vector for each gain limit.
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
    // SAFETY: the caller has promised that the CPU has the instructions, eight mirrored scratch rows from `from`, a
    // kept row, and a vector for each gain limit at `numerators`. A lane adds less than 2^16 for each of its pixels,
    // so 32 bits last for 2^15 of them: rows of 2^18 samples.
    unsafe {
        let zero = V::splat(0);
        let mut tally = Tally::<V> { den_log: zero, flat_count: 0, flat_energy: V::splat64(0), numerators };
        for limit in 0..gain_limits.len() {
            V::store(numerators.add(limit * V::N), zero);
        }
        for x in (0..width).step_by(2 * V::N) {
            let from = from.add(x);
            let mut m1 = [zero; 2];
            let mut var1 = [zero; 2];
            if FIRST {
                m1 = horizontal::<V, SCALE>(from, FLIPPED);
                let xx = horizontal_wide::<V, SCALE>(from.add(2 * stride), 3 * stride);
                var1 = sides!(i => V::sub(xx[i], square_mean::<V>(m1[i], m1[i])));
            }
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
            let m2 = horizontal::<V, SCALE>(from.add(stride), FLIPPED);
            let yy = horizontal_wide::<V, SCALE>(from.add(3 * stride), 3 * stride);
            let xy = horizontal_wide::<V, SCALE>(from.add(4 * stride), 3 * stride);
            let inside = sides!(i => V::first((width - x + 1 - i) / 2));
            let var2 = sides!(i => V::max(V::sub(yy[i], square_mean::<V>(m2[i], m2[i])), zero));
            let cov = sides!(i => V::sub(xy[i], square_mean::<V>(m1[i], m2[i])));
            tally.pixels::<FIRST>(var1, var2, cov, inside, gain_limits);
        }
        let den_log = V::sum(tally.den_log);
        for (limit, sum) in sums.iter_mut().enumerate() {
            *sum += VifScaleSums {
                num_log: V::sum(V::load(numerators.add(limit * V::N))),
                den_log,
                flat_count: i64::from(tally.flat_count),
                flat_energy: V::sum64(tally.flat_energy),
            };
        }
    }
}

/// `a b` of means with 16 fraction bits, rounded to as many.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn square_mean<V: Lanes>(a: V::I, b: V::I) -> V::I {
    // SAFETY: the CPU has the instructions, as the caller has promised.
    unsafe { V::high(V::add64(V::mul_wide_u(a, b), V::splat64(1 << 31))) }
}

impl<V: Log2> Tally<V> {
    /// Adds the pixels `inside` with these variances and covariance, of even and odd columns; what depends on the
    /// reference only for the first picture.
    ///
    /// # Safety
    ///
    /// The CPU must have the instructions of `V`. There must be a vector for each gain limit at `numerators`.
    #[inline(always)]
    unsafe fn pixels<const FIRST: bool>(
        &mut self,
        var1: [V::I; 2],
        var2: [V::I; 2],
        cov: [V::I; 2],
        inside: [V::M; 2],
        gain_limits: &[f64],
    ) {
        // SAFETY: the caller has promised that the CPU has the instructions, and the vectors of the numerators.
        unsafe {
            let (zero, noise) = (V::splat(0), V::splat(NOISE));
            let busy = sides!(i => V::both(inside[i], V::gt(var1[i], V::splat(NOISE - 1))));
            let flat = sides!(i => V::except(inside[i], busy[i]));
            if V::any(flat[0]) || V::any(flat[1]) {
                for i in 0..2 {
                    if FIRST {
                        self.flat_count += V::count(flat[i]);
                    }
                    self.flat_energy = V::add64(self.flat_energy, V::widen_u(V::keep(flat[i], var2[i])));
                }
                if !V::any(busy[0]) && !V::any(busy[1]) {
                    return;
                }
            }
            let alike = sides!(i => V::both(busy[i], V::gt(V::min(cov[i], var2[i]), zero)));
            let s1 = sides!(i => V::to_f64(var1[i]));
            let c = sides!(i => V::to_f64(cov[i]));
            let gain = sides!(i => V::div_f64(c[i], V::add_f64(s1[i], V::splat_f64(EPSILON))));
            if FIRST {
                for i in 0..2 {
                    let log = V::sub(V::log2(V::add(var1[i], noise)), V::splat(LOG2_BIAS + 34816));
                    self.den_log = V::add(self.den_log, V::keep(busy[i], log));
                }
            }
            // By Cauchy and Schwarz, allowing for the rounding of the means, `gain cov` and with it the
            // signal stays below 2^31 where the reference has a variance of at least NOISE.
            let s2 = sides!(i => V::to_f64(var2[i]));
            let rest = sides!(i => V::trunc(V::sub_f64(s2[i], V::mul_f64(gain[i], c[i]))));
            let noise = sides!(i => V::add(V::max(rest[i], zero), noise));
            let log_noise = sides!(i => V::log2(noise[i]));
            for (k, limit) in gain_limits.iter().enumerate() {
                let gain = sides!(i => V::min_f64(gain[i], V::splat_f64(*limit)));
                let square = sides!(i => V::mul_f64(gain[i], gain[i]));
                let signal = sides!(i => V::trunc(V::mul_f64(square[i], s1[i])));
                let log = sides!(i => V::sub(V::log2(V::add(signal[i], noise[i])), log_noise[i]));
                let sum = V::add(V::keep(alike[0], log[0]), V::keep(alike[1], log[1]));
                let numerator = self.numerators.add(k * V::N);
                V::store(numerator, V::add(V::load(numerator), sum));
            }
        }
    }
}
