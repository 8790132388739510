// SPDX-License-Identifier: MPL-2.0

//! The fixed-point logarithm of VIF: by table, or by curves on CPUs with slow table look-ups.

#[cfg(target_arch = "x86_64")]
use super::simd::{Avx2, Avx512};
use super::simd::{Lanes, Portable};
use crate::metrics::vif::LOG2_STEPS;

/// [`LOG2_STEPS`] as parabolas, for machines that look up 32 entries in registers.
///
/// Scale a number to `[1, 2)` and cut it to 15 fraction bits. Let `s` be the five highest of these bits and `z` the
/// distance from the middle of that segment (-1/64 to 1/64). Then `c0[s] + z (c1[s] + z c2[s])` in binary32, rounded to
/// an integer, is the table's entry less 30720. The coefficients were fitted by linear programming so that all 32768
/// values stay 5e-4 away from the next rounding boundary, which is more than single precision loses here.
#[cfg(target_arch = "x86_64")]
static LOG2_CURVES: [[f32; 32]; 3] = [
    [
        45.811283, 135.35178, 222.25839, 306.6831, 388.76263, 468.62244, 546.38, 622.1435, 696.0128,
        768.07794, 838.43604, 907.1485, 974.30273, 1039.964, 1104.199, 1167.0663, 1228.6227, 1288.9235,
        1348.0187, 1405.9528, 1462.776, 1518.5262, 1573.242, 1626.9647, 1679.7273, 1731.5651, 1782.5088,
        1832.5865, 1881.8331, 1930.272, 1977.9282, 2024.8275,
    ],
    [
        2909.2192, 2822.5813, 2740.7737, 2663.5044, 2590.2705, 2521.4746, 2455.5117, 2393.5627, 2334.663,
        2278.9026, 2224.875, 2173.4617, 2124.6245, 2077.9077, 2033.4098, 1990.5891, 1949.5223, 1910.1923,
        1872.288, 1835.9224, 1800.926, 1767.3789, 1734.7605, 1703.4249, 1673.4167, 1644.343, 1616.5878,
        1588.8986, 1562.878, 1537.2096, 1512.8838, 1488.8783,
    ],
    [
        -1443.1927, -1352.0267, -1258.8944, -1206.6193, -1185.9381, -1082.7372, -1005.818, -973.7844,
        -921.93585, -826.2672, -867.94714, -797.3488, -741.062, -720.3752, -721.21826, -675.24817, -643.5583,
        -603.68054, -596.91125, -555.7179, -549.3854, -535.7191, -495.8052, -489.75418, -456.99124,
        -465.88684, -453.67517, -400.6574, -417.48096, -431.93915, -387.73083, -376.7388,
    ],
];

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
