// SPDX-License-Identifier: MPL-2.0

//! The fixed-point logarithm of VIF: by table, or by curves on CPUs with slow table look-ups.

#[cfg(target_arch = "x86_64")]
use super::simd::{Avx2, Avx512};
use super::simd::{Lanes, Portable};
#[cfg(target_arch = "x86_64")]
use crate::metrics::vif::LOG2_CURVES;
use crate::metrics::vif::LOG2_STEPS;

/// Lanes with the logarithm of the table.
pub(super) trait Log2: Lanes {
    /// Returns the table's logarithm of unsigned numbers of at least 2^16, plus `LOG2_BIAS`; any number for smaller
    /// ones.
    ///
    /// # Safety
    ///
    /// The CPU must have the instruction set of these lanes, as for all operations of [`Lanes`].
    #[inline(always)]
    unsafe fn log2(a: Self::I) -> Self::I {
        // SAFETY: the CPU has the instructions, as the caller has promised; an index of 12 bits is inside the table's
        // 4096 entries.
        unsafe {
            let bits = Self::leading_bits(a);
            let index = Self::and(Self::shr::<11>(bits), Self::splat(4095));
            let entry = Self::gather(LOG2_STEPS.as_ptr(), index);
            Self::shr::<4>(Self::add(Self::and(Self::shr::<8>(bits), Self::splat(!0x7ff8)), entry))
        }
    }
}

impl Log2 for Portable {}

#[cfg(target_arch = "x86_64")]
impl<const VNNI: bool> Log2 for Avx2<VNNI> {}

#[cfg(target_arch = "x86_64")]
impl<const VNNI: bool> Log2 for Avx512<VNNI> {
    /// Computes the logarithm by curves instead of the table: three look-ups in registers take a third of the time of
    /// one in memory.
    #[inline(always)]
    unsafe fn log2(a: Self::I) -> Self::I {
        use std::arch::x86_64::*;
        // SAFETY: the CPU has AVX-512, as the caller has promised, and each curve's coefficients fill two vectors.
        unsafe {
            let bits = Self::leading_bits(a);
            let segment = Self::shr::<18>(bits);
            let one = Self::splat(1f32.to_bits() as i32);
            let scaled = Self::or(Self::and(bits, Self::splat(0x3ff << 8)), one);
            let z = _mm512_sub_ps(_mm512_castsi512_ps(scaled), _mm512_set1_ps(1.0 + 1.0 / 64.0));
            let [c0, c1, c2] = LOG2_CURVES.each_ref().map(|c| c.as_ptr());
            let c2 = _mm512_permutex2var_ps(_mm512_loadu_ps(c2), segment, _mm512_loadu_ps(c2.add(16)));
            let c1 = _mm512_permutex2var_ps(_mm512_loadu_ps(c1), segment, _mm512_loadu_ps(c1.add(16)));
            let c0 = _mm512_permutex2var_ps(_mm512_loadu_ps(c0), segment, _mm512_loadu_ps(c0.add(16)));
            let curve = _mm512_fmadd_ps(z, _mm512_fmadd_ps(z, c2, c1), c0);
            let whole = Self::and(Self::shr::<12>(bits), Self::splat(!0x7ff));
            Self::add(whole, _mm512_cvtps_epi32(curve))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::simd::{Level, dispatch};
    use crate::metrics::vif::{LOG2_BIAS, log2_table};

    /// # Safety
    ///
    /// The CPU must have the instructions of `V`, which `dispatch!` sees to.
    #[inline(always)]
    unsafe fn all<V: Log2>(numbers: &mut [u32]) {
        for chunk in numbers.chunks_exact_mut(V::N) {
            let p = chunk.as_mut_ptr().cast::<i32>();
            // SAFETY: the chunk is a vector.
            unsafe { V::store(p, V::log2(V::load(p))) };
        }
    }
    dispatch!(fn log2[](numbers: &mut [u32]) -> () = all[]);

    #[test]
    fn every_entry_of_the_table_at_every_magnitude() {
        let table = log2_table();
        for level in Level::available() {
            for shift in 1..=16 {
                // Bits below the leading sixteen are ignored.
                let rest = (1u32 << shift) - 1;
                for low in [0, rest] {
                    let mut numbers: Vec<u32> = (32768..65536).map(|i| i << shift | low).collect();
                    log2(level, &mut numbers);
                    for (found, entry) in numbers.into_iter().zip(&table) {
                        assert_eq!(found as i32 - LOG2_BIAS, i32::from(*entry) + 2048 * shift, "{level:?}");
                    }
                }
            }
        }
    }
}
