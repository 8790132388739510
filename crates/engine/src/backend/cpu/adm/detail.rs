// SPDX-License-Identifier: MPL-2.0

//! The steps from the detail coefficients of one row to its sums: decoupling, masking threshold, cubes.
//!
//! Scale 0 works in 16-bit lanes ([`Detail`] for `i16`), the others in 32 and 64 bits. Both compute exactly the
//! integers of the specification; comments prove each shortcut.

use super::lines::{Coef, Rows};
use crate::backend::cpu::simd::{Lanes, each};
use crate::metrics::adm::{BandSums, COS_SQUARED, CubeShifts};

/// Restored part and additive rest of a row, for one gain limit.
pub(super) struct Split<C> {
    pub restored: Rows<C>,
    pub additive: Rows<C>,
}

impl<C> Split<C> {
    /// Returns the signal and the masker.
    pub fn roles(&self, additive: bool) -> (&Rows<C>, &Rows<C>) {
        if additive { (&self.additive, &self.restored) } else { (&self.restored, &self.additive) }
    }
}

/// Coefficients up to this value are restored without rounding; see [`restore`].
const EXACT: i32 = 16384;

/// The operations that differ between scale 0 and the others.
pub(super) trait Detail: Coef {
    /// Bits by which the threshold is scaled up to the weighted signal, for h, v, d.
    const THRESHOLD_SHIFT: [u32; 3];

    /// Splits `n` distorted coefficients into restored part and rest, once for each gain limit.
    ///
    /// # Safety
    ///
    /// Needs the instructions of `V` and padded rows of at least `n` coefficients.
    unsafe fn decouple<V: Lanes>(
        reference: &Rows<Self>,
        distorted: &Rows<Self>,
        n: usize,
        gains: &[f64],
        out: &mut [Split<Self>],
    );

    /// Computes the parts of the masking threshold that `n` masker coefficients contribute, summed over the bands: to
    /// their neighbours (`side`), and beyond that to themselves (`centre`).
    ///
    /// # Safety
    ///
    /// Needs the instructions of `V`, padded rows of at least `n` coefficients and as much room for the terms.
    unsafe fn mask<V: Lanes>(
        masker: &Rows<Self>,
        weights: [u32; 2],
        n: usize,
        side: *mut i32,
        centre: *mut i32,
    );

    /// Computes the absolute weighted signal.
    ///
    /// # Safety
    ///
    /// Needs the instructions of `V`.
    unsafe fn weigh<V: Lanes>(signal: V::I, weight: u32) -> V::I;
}

impl Detail for i16 {
    const THRESHOLD_SHIFT: [u32; 3] = [10, 10, 12];

    /// Computes in 16 bits, which suffice: up to [`EXACT`] there is no ratio to compute, and a limit beyond 16 bits has no effect. Rows
    /// with larger coefficients, or with fractional gain limits, use the general function.
    #[inline(always)]
    unsafe fn decouple<V: Lanes>(
        reference: &Rows<Self>,
        distorted: &Rows<Self>,
        n: usize,
        gains: &[f64],
        out: &mut [Split<Self>],
    ) {
        // SAFETY: the instructions and the size of the rows are promised.
        unsafe {
            let zero = V::splat(0);
            let mut largest = zero;
            let directed = gains.iter().any(|gain| *gain != 1.0);
            let (reference_bands, distorted_bands) = (reference.bands(0), distorted.bands(0));
            for x in (0..n).step_by(2 * V::N) {
                let o = each!(band in [0, 1, 2] => V::load16(reference_bands[band].add(x).cast()));
                let t = each!(band in [0, 1, 2] => V::load16(distorted_bands[band].add(x).cast()));
                let same = if directed { same_direction16::<V>(o, t) } else { zero };
                for band in 0..3 {
                    let (o, t) = (o[band], t[band]);
                    largest = V::max16(largest, V::abs16(o));
                    for (gain, out) in gains.iter().zip(&mut *out) {
                        let bound = V::splat16((32767.0 / gain) as i32);
                        let short = V::max16(V::min16(o, bound), V::sub16(zero, bound));
                        let enhanced = V::mul16(short, V::splat16(*gain as i32));
                        let limit = V::xor(o, V::and(same, V::xor(o, enhanced)));
                        let r = V::max16(V::min16(t, V::max16(limit, zero)), V::min16(limit, zero));
                        V::store16(out.restored.at_mut(band, x).cast(), r);
                        V::store16(out.additive.at_mut(band, x).cast(), V::sub16(t, r));
                    }
                }
            }
            let [first, second] = V::widen16(largest);
            let over = each!(m in [first, second] => V::any(V::gt(m, V::splat(EXACT))));
            if over[0] || over[1] || gains.iter().any(|gain| gain.fract() != 0.0) {
                decouple::<V, Self>(reference, distorted, n, gains, out);
            }
        }
    }

    /// Uses rounded 16-bit multiplication. It has the shift of the specification once a factor is stated in units of 2^-15:
    /// 4369/4096 = 1 + 2184/32768, 8738/4096 = 2 + 4368/32768. The whole parts are added, and wrap where the
    /// specification narrows.
    #[inline(always)]
    unsafe fn mask<V: Lanes>(
        masker: &Rows<Self>,
        weights: [u32; 2],
        n: usize,
        side: *mut i32,
        centre: *mut i32,
    ) {
        // SAFETY: the instructions and the size of the rows are promised.
        unsafe {
            let [hv, d] = [weights[0] as i32, weights[1] as i32];
            let masker = masker.bands(0);
            let [whole_hv, whole_d] = each!(q in [hv, d] => V::splat(if q >= 1 << 15 { -1 } else { 0 }));
            for x in (0..n).step_by(2 * V::N) {
                let [h, v, m] = each!(band in [0, 1, 2] => V::load16(masker[band].add(x).cast()));
                let [h, v] = each!(m in [h, v] => {
                    V::abs16(V::add16(V::mul_round16(m, V::splat16(hv & 0x7fff)), V::and(m, whole_hv)))
                });
                // (q m + 65535) >> 17 is the negative of a floor shifted by 16, halved rounding up.
                let negative = V::sub16(V::splat(0), m);
                let floor = V::add16(V::mulhi16(negative, V::splat16(d)), V::and(negative, whole_d));
                let diagonal = V::abs16(V::mul_round16(floor, V::splat16(1 << 14)));
                let sides = each!(c in [h, v, diagonal] => V::add16(c, V::mul_round16(c, V::splat16(2184))));
                let centres = each!(c in [h, v, diagonal] => {
                    V::widen16(V::add16(V::add16(c, c), V::mul_round16(c, V::splat16(4368))))
                });
                // Two sides still fit unsigned 16 bits.
                let (two, one) = (V::widen_u16(V::add16(sides[0], sides[1])), V::widen_u16(sides[2]));
                for part in 0..2 {
                    let x = x + part * V::N;
                    let sum = V::add(two[part], one[part]);
                    let total = V::add(V::add(centres[0][part], centres[1][part]), centres[2][part]);
                    V::store(side.add(x), sum);
                    V::store(centre.add(x), V::sub(total, sum));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn weigh<V: Lanes>(signal: V::I, weight: u32) -> V::I {
        // SAFETY: as the caller promises.
        unsafe { V::abs(V::mul(signal, V::splat(weight as i32))) }
    }
}

impl Detail for i32 {
    const THRESHOLD_SHIFT: [u32; 3] = [0; 3];

    #[inline(always)]
    unsafe fn decouple<V: Lanes>(
        reference: &Rows<Self>,
        distorted: &Rows<Self>,
        n: usize,
        gains: &[f64],
        out: &mut [Split<Self>],
    ) {
        // SAFETY: as the caller promises.
        unsafe { decouple::<V, Self>(reference, distorted, n, gains, out) }
    }

    #[inline(always)]
    unsafe fn mask<V: Lanes>(
        masker: &Rows<Self>,
        weights: [u32; 2],
        n: usize,
        side: *mut i32,
        centre: *mut i32,
    ) {
        let masker = masker.bands(0);
        for x in (0..n).step_by(V::N) {
            // SAFETY: the instructions and the size of the rows are promised.
            unsafe {
                let mut sides = V::splat(0);
                let mut centres = V::splat(0);
                for band in 0..3 {
                    let m = V::load(masker[band].add(x));
                    let c = V::abs(weighted::<V>(m, weights[band / 2]));
                    // libvmaf's rounding constant is minus one half.
                    let [side, centre] = each!(factor in [143165577, 286331153] => {
                        V::high(V::sub64(V::mul_wide_u(c, V::splat(factor)), V::splat64(1 << 31)))
                    });
                    sides = V::add(sides, side);
                    centres = V::add(centres, centre);
                }
                V::store(side.add(x), sides);
                V::store(centre.add(x), V::sub(centres, sides));
            }
        }
    }

    #[inline(always)]
    unsafe fn weigh<V: Lanes>(signal: V::I, weight: u32) -> V::I {
        // SAFETY: as the caller promises.
        unsafe { V::abs(weighted::<V>(signal, weight)) }
    }
}

/// Computes `(weight a + 2^27) >> 28`, wrapped to 32 bits.
///
/// # Safety
///
/// Needs the instructions of `V`.
#[inline(always)]
unsafe fn weighted<V: Lanes>(a: V::I, weight: u32) -> V::I {
    // SAFETY: as the caller promises. The low 32 bits do not depend on the kind of the shift.
    unsafe { V::low(V::shr64::<28>(V::add64(V::mul_wide(a, V::splat(weight as i32)), V::splat64(1 << 27)))) }
}

/// Decouples any coefficients with any gain limits, `N` at a time.
///
/// # Safety
///
/// Needs the instructions of `V` and padded rows of at least `n` coefficients.
#[inline(always)]
unsafe fn decouple<V: Lanes, C: Coef>(
    reference: &Rows<C>,
    distorted: &Rows<C>,
    n: usize,
    gains: &[f64],
    out: &mut [Split<C>],
) {
    let (reference, distorted) = (reference.bands(0), distorted.bands(0));
    for x in (0..n).step_by(V::N) {
        // SAFETY: the instructions and the size of the rows are promised.
        unsafe {
            let o = each!(band in [0, 1, 2] => C::load::<V>(reference[band].add(x)));
            let t = each!(band in [0, 1, 2] => C::load::<V>(distorted[band].add(x)));
            let zero = V::splat_f64(0.0);
            let [dot, oo, tt] = each!(pair in [(o, t), (o, o), (t, t)] => {
                V::add64(V::mul_wide(pair.0[0], pair.1[0]), V::mul_wide(pair.0[1], pair.1[1]))
            });
            let same = same_direction::<V>(dot, oo, tt);
            for band in 0..3 {
                let (o, t) = (o[band], t[band]);
                let plain = restore::<V>(o, t);
                let wide = V::to_f64(plain);
                for (gain, out) in gains.iter().zip(&mut *out) {
                    // Enhanced detail counts up to the limit, and never against the sign of the reference.
                    let limit = V::mul_f64(wide, V::splat_f64(*gain));
                    let most = V::min_f64(V::to_f64(t), V::max_f64(limit, zero));
                    let enhanced = V::trunc(V::max_f64(most, V::min_f64(limit, zero)));
                    let r = V::select(same, enhanced, plain);
                    C::store::<V>(out.restored.at_mut(band, x), r);
                    C::store::<V>(out.additive.at_mut(band, x), V::sub(t, r));
                }
            }
        }
    }
}

/// Tests whether the vectors (h, v) of reference and distorted point in the same direction within a degree, from their
/// inner product and their squared lengths.
///
/// # Safety
///
/// Needs the instructions of `V`.
#[inline(always)]
unsafe fn same_direction<V: Lanes>(dot: V::L, oo: V::L, tt: V::L) -> V::M {
    // SAFETY: as the caller promises.
    unsafe {
        let [d, o, t] = each!(x in [dot, oo, tt] => V::to_f32_f64(x));
        let limit = V::mul_f64(V::mul_f64(V::splat_f64(COS_SQUARED), o), t);
        V::both(V::ge_f64(d, V::splat_f64(0.0)), V::ge_f64(V::mul_f64(d, d), limit))
    }
}

/// Does the same as [`same_direction`] for 16-bit coefficients. A true lane has all bits set.
///
/// # Safety
///
/// Needs the instructions of `V`.
#[inline(always)]
unsafe fn same_direction16<V: Lanes>(o: [V::I; 3], t: [V::I; 3]) -> V::I {
    // SAFETY: as the caller promises.
    unsafe {
        let (o, t) = (V::zip16(o[0], o[1]), V::zip16(t[0], t[1]));
        V::unzip16(each!(part in [0, 1] => {
            let [dot, oo, tt] = each!(pair in [(o, t), (o, o), (t, t)] => {
                V::widen(V::madd16(pair.0[part], pair.1[part]))
            });
            V::keep(same_direction::<V>(dot, oo, tt), V::splat(-1))
        }))
    }
}

/// Computes how far the distorted coefficient `t` restores the reference `o`: the ratio of both, clamped to 0..=1 and
/// rounded to 15 bits with a reciprocal of limited precision, times `o`.
///
/// Up to [`EXACT`], all this rounding amounts to less than one half, and the result is `t` clamped to the range from 0
/// to `o`. Proof: with m = |o| and 0 <= |t| <= m, the reciprocal is low by e < 1, the ratio is rounded by 1/2 at most,
/// and the product is off by less than `m² e / 2^30 + m / 2^16 <= 1/2`.
///
/// # Safety
///
/// Needs the instructions of `V`.
#[inline(always)]
unsafe fn restore<V: Lanes>(o: V::I, t: V::I) -> V::I {
    // SAFETY: as the caller promises.
    unsafe {
        let zero = V::splat(0);
        let clamped = V::max(V::min(t, V::max(o, zero)), V::min(o, zero));
        let m = V::abs(o);
        let large = V::gt(m, V::splat(EXACT));
        if !V::any(large) {
            return clamped;
        }
        const EXPONENT: i64 = 0x7ff << 52;
        let half = V::splat_f64(0.5);
        // m rounded to 15 significant bits, half up: the exponent and a mantissa of 2^14..2^15.
        let rounded = V::add64(V::to_bits(V::to_f64(m)), V::splat64(1 << 37));
        let exponent = V::and64(rounded, V::splat64(EXPONENT));
        let fraction = V::and64(rounded, V::splat64(!EXPONENT & !((1 << 38) - 1)));
        let mantissa = V::from_bits(V::add64(fraction, V::splat64((1023 + 14) << 52)));
        // Correctly rounded division cannot reach the next integer, as quotients stay 2^-15 away.
        let reciprocal = V::floor_f64(V::div_f64(V::splat_f64((1 << 30) as f64), mantissa));
        // In units in which the ratio of equal numbers is 2^15.
        let scale = V::sub64(V::splat64(1022 << 52), exponent);
        let reciprocal = V::from_bits(V::add64(V::to_bits(reciprocal), scale));
        let sign = V::sra::<31>(o);
        let towards = V::to_f64(V::sub(V::xor(t, sign), sign));
        let ratio = V::floor_f64(V::add_f64(V::mul_f64(reciprocal, towards), half));
        let ratio = V::min_f64(V::max_f64(ratio, V::splat_f64(0.0)), V::splat_f64(32768.0));
        let product = V::mul_f64(ratio, V::mul_f64(V::to_f64(o), V::splat_f64(1.0 / 32768.0)));
        V::select(large, V::trunc(V::floor_f64(V::add_f64(product, half))), clamped)
    }
}

/// Sums the cubes of `n` reference coefficients of a row, rounded.
///
/// # Safety
///
/// Needs the instructions of `V` and padded rows of at least `first + n` coefficients.
#[inline(always)]
pub(super) unsafe fn reference_sums<V: Lanes, C: Detail>(
    reference: &Rows<C>,
    first: usize,
    n: usize,
    shifts: &CubeShifts,
) -> BandSums {
    // SAFETY: the instructions and the size of the rows are promised.
    unsafe {
        let mut sums = [V::splat64(0); 3];
        for x in (0..n).step_by(V::N) {
            for (band, sum) in sums.iter_mut().enumerate() {
                let u = V::abs(C::load::<V>(reference.at(band, first + x)));
                let u = V::keep(V::first(n - x), u);
                // libvmaf's rounding constant is a full unit here.
                let unit = if shifts.square[band] > 0 { 1 << shifts.square[band] } else { 0 };
                *sum = V::add64(*sum, cube::<V>(u, unit, shifts.square[band], shifts.cube[band]));
            }
        }
        each!(sum in [sums[0], sums[1], sums[2]] => round_shift(V::sum64(sum), shifts.row))
    }
}

/// The terms of a row's thresholds.
pub(super) struct Threshold {
    /// Side terms of the rows above, here and below, from the column before the first scored one.
    pub sides: [*const i32; 3],
    /// Centre terms from the first scored column.
    pub centre: *const i32,
}

/// Sums the cubes of `n` signal coefficients of a row, as far as they exceed the threshold, rounded.
///
/// # Safety
///
/// Needs the instructions of `V`, padded rows of at least `first + n` coefficients and as many terms.
#[inline(always)]
pub(super) unsafe fn signal_sums<V: Lanes, C: Detail>(
    signal: &Rows<C>,
    threshold: &Threshold,
    weights: [u32; 2],
    first: usize,
    n: usize,
    shifts: &CubeShifts,
) -> BandSums {
    let weights = [weights[0], weights[0], weights[1]];
    // SAFETY: the instructions and the size of the rows are promised.
    unsafe {
        let signal = signal.bands(first);
        let mut sums = [V::splat64(0); 3];
        for x in (0..n).step_by(V::N) {
            let mut limit = V::load(threshold.centre.add(x));
            for side in threshold.sides {
                for column in 0..3 {
                    limit = V::add(limit, V::load(side.add(x + column)));
                }
            }
            for band in 0..3 {
                let s = C::load::<V>(signal[band].add(x));
                let limit = V::shl_by(limit, C::THRESHOLD_SHIFT[band]);
                let rest = V::max(V::sub(C::weigh::<V>(s, weights[band]), limit), V::splat(0));
                let rest = V::keep(V::first(n - x), rest);
                let (square, third) = (shifts.square[band], shifts.cube[band]);
                sums[band] = V::add64(sums[band], cube::<V>(rest, (1 << square) >> 1, square, third));
            }
        }
        each!(sum in [sums[0], sums[1], sums[2]] => round_shift(V::sum64(sum), shifts.row))
    }
}

/// Computes `((x x + unit) >> square) x >> third`, with the last shift rounded, for x from 0 to 2^31 - 1. The scaled
/// square wraps to 32 bits.
///
/// # Safety
///
/// Needs the instructions of `V`.
#[inline(always)]
unsafe fn cube<V: Lanes>(x: V::I, unit: i64, square: u32, third: u32) -> V::L {
    // SAFETY: as the caller promises.
    unsafe {
        let squared = V::sra64_by(V::add64(V::mul_wide(x, x), V::splat64(unit)), square);
        V::sra64_by(V::add64(V::mul_low(squared, x), V::splat64((1 << third) >> 1)), third)
    }
}

/// Shifts right, rounding half up.
fn round_shift(x: i64, shift: u32) -> i64 {
    x.wrapping_add((1 << shift) >> 1) >> shift
}
