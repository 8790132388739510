// SPDX-License-Identifier: MPL-2.0

//! AVX2, with AVX-VNNI or without: eight lanes.

use super::{Lanes, each};
use std::arch::asm;
use std::arch::x86_64::*;

/// Needs `avx2` and `fma`, and for VNNI `avxvnni`.
#[derive(Clone, Copy)]
pub(crate) struct Avx2<const VNNI: bool>;

type I = __m256i;
type L = [__m256i; 2];
type D = [__m256d; 2];
type F = __m256;

/// 2^52 + 2^31. A double whose low word is a signed integer plus 2^31 equals that integer plus this constant.
const MAGIC: f64 = 4503601774854144.0;

/// Combines the low words of the 64-bit lanes of `even` with those of `odd` between them.
///
/// # Safety
///
/// The CPU must have AVX2.
#[inline(always)]
unsafe fn interleave(even: I, odd: I) -> I {
    // SAFETY: the CPU has AVX2, as the caller has promised.
    unsafe { _mm256_blend_epi32::<0b1010_1010>(even, _mm256_slli_epi64::<32>(odd)) }
}

/// Adds the products of both halves of each lane to `sum`. It does not use the intrinsic, for the same reason as the
/// AVX-512 version.
///
/// # Safety
///
/// The CPU must have AVX2 and AVX-VNNI.
#[target_feature(enable = "avx2,avxvnni")]
#[inline]
fn dot16(mut sum: I, a: I, b: I) -> I {
    // SAFETY: the instruction exists in this function, and touches nothing but these registers.
    unsafe {
        asm!("{{vex}} vpdpwssd {0}, {1}, {2}", inout(ymm_reg) sum, in(ymm_reg) a, in(ymm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

#[rustfmt::skip]
#[allow(unsafe_op_in_unsafe_fn, reason = "thin wrappers: the contract of the trait is that of each line")]
impl<const VNNI: bool> Lanes for Avx2<VNNI> {
    const N: usize = 8;
    const REGISTERS: usize = 16;
    type I = I;
    type L = L;
    type D = D;
    type F = F;
    type M = I;

    #[inline(always)] unsafe fn splat(x: i32) -> I { _mm256_set1_epi32(x) }
    #[inline(always)] unsafe fn load(p: *const i32) -> I { _mm256_loadu_si256(p.cast()) }
    #[inline(always)] unsafe fn load16(p: *const u16) -> I { _mm256_loadu_si256(p.cast()) }
    #[inline(always)] unsafe fn load16_u8(p: *const u8) -> I { _mm256_cvtepu8_epi16(_mm_loadu_si128(p.cast())) }
    #[inline(always)] unsafe fn load_i16(p: *const i16) -> I { _mm256_cvtepi16_epi32(_mm_loadu_si128(p.cast())) }
    #[inline(always)] unsafe fn store(p: *mut i32, a: I) { _mm256_storeu_si256(p.cast(), a) }
    #[inline(always)] unsafe fn store16(p: *mut u16, a: I) { _mm256_storeu_si256(p.cast(), a) }
    #[inline(always)] unsafe fn store_low16(p: *mut u16, a: I) {
        let low = _mm256_and_si256(a, _mm256_set1_epi32(0xffff));
        let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(low, low));
        _mm_storeu_si128(p.cast(), _mm256_castsi256_si128(packed))
    }
    #[inline(always)] unsafe fn gather(table: *const u32, index: I) -> I {
        _mm256_i32gather_epi32::<4>(table.cast(), index)
    }

    #[inline(always)] unsafe fn add(a: I, b: I) -> I { _mm256_add_epi32(a, b) }
    #[inline(always)] unsafe fn sub(a: I, b: I) -> I { _mm256_sub_epi32(a, b) }
    #[inline(always)] unsafe fn mul(a: I, b: I) -> I { _mm256_mullo_epi32(a, b) }
    #[inline(always)] unsafe fn and(a: I, b: I) -> I { _mm256_and_si256(a, b) }
    #[inline(always)] unsafe fn or(a: I, b: I) -> I { _mm256_or_si256(a, b) }
    #[inline(always)] unsafe fn xor(a: I, b: I) -> I { _mm256_xor_si256(a, b) }
    #[inline(always)] unsafe fn shl<const K: u32>(a: I) -> I { _mm256_sll_epi32(a, _mm_cvtsi32_si128(K as i32)) }
    #[inline(always)] unsafe fn shr<const K: u32>(a: I) -> I { _mm256_srl_epi32(a, _mm_cvtsi32_si128(K as i32)) }
    #[inline(always)] unsafe fn sra<const K: u32>(a: I) -> I { _mm256_sra_epi32(a, _mm_cvtsi32_si128(K as i32)) }
    #[inline(always)] unsafe fn shl_by(a: I, k: u32) -> I { _mm256_sll_epi32(a, _mm_cvtsi32_si128(k as i32)) }
    #[inline(always)] unsafe fn shr_by(a: I, k: u32) -> I { _mm256_srl_epi32(a, _mm_cvtsi32_si128(k as i32)) }
    #[inline(always)] unsafe fn sra_by(a: I, k: u32) -> I { _mm256_sra_epi32(a, _mm_cvtsi32_si128(k as i32)) }
    #[inline(always)] unsafe fn min(a: I, b: I) -> I { _mm256_min_epi32(a, b) }
    #[inline(always)] unsafe fn max(a: I, b: I) -> I { _mm256_max_epi32(a, b) }
    #[inline(always)] unsafe fn abs(a: I) -> I { _mm256_abs_epi32(a) }

    #[inline(always)] unsafe fn madd16(a: I, b: I) -> I { _mm256_madd_epi16(a, b) }
    #[inline(always)] unsafe fn dot16(sum: I, a: I, b: I) -> I {
        if VNNI { dot16(sum, a, b) } else { Self::add(sum, Self::madd16(a, b)) }
    }
    #[inline(always)] unsafe fn add16(a: I, b: I) -> I { _mm256_add_epi16(a, b) }
    #[inline(always)] unsafe fn sub16(a: I, b: I) -> I { _mm256_sub_epi16(a, b) }
    #[inline(always)] unsafe fn mul16(a: I, b: I) -> I { _mm256_mullo_epi16(a, b) }
    #[inline(always)] unsafe fn mulhi_u16(a: I, b: I) -> I { _mm256_mulhi_epu16(a, b) }
    #[inline(always)] unsafe fn mulhi16(a: I, b: I) -> I { _mm256_mulhi_epi16(a, b) }
    #[inline(always)] unsafe fn mul_round16(a: I, b: I) -> I { _mm256_mulhrs_epi16(a, b) }
    #[inline(always)] unsafe fn min16(a: I, b: I) -> I { _mm256_min_epi16(a, b) }
    #[inline(always)] unsafe fn min_u16(a: I, b: I) -> I { _mm256_min_epu16(a, b) }
    #[inline(always)] unsafe fn max16(a: I, b: I) -> I { _mm256_max_epi16(a, b) }
    #[inline(always)] unsafe fn abs16(a: I) -> I { _mm256_abs_epi16(a) }
    #[inline(always)] unsafe fn eq16(a: I, b: I) -> I { _mm256_cmpeq_epi16(a, b) }
    #[inline(always)] unsafe fn zip16(a: I, b: I) -> [I; 2] { [_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)] }
    #[inline(always)] unsafe fn unzip16(a: [I; 2]) -> I { _mm256_packs_epi32(a[0], a[1]) }
    #[inline(always)] unsafe fn widen16(a: I) -> [I; 2] {
        [_mm256_cvtepi16_epi32(_mm256_castsi256_si128(a)), _mm256_cvtepi16_epi32(_mm256_extracti128_si256::<1>(a))]
    }
    #[inline(always)] unsafe fn widen_u16(a: I) -> [I; 2] {
        [_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)), _mm256_cvtepu16_epi32(_mm256_extracti128_si256::<1>(a))]
    }
    #[inline(always)] unsafe fn blend16(a: I, b: I) -> I { _mm256_blend_epi16::<0b1010_1010>(a, b) }

    #[inline(always)] unsafe fn gt(a: I, b: I) -> I { _mm256_cmpgt_epi32(a, b) }
    #[inline(always)] unsafe fn first(n: usize) -> I {
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n.min(8) as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
    }
    #[inline(always)] unsafe fn both(a: I, b: I) -> I { _mm256_and_si256(a, b) }
    #[inline(always)] unsafe fn except(a: I, b: I) -> I { _mm256_andnot_si256(b, a) }
    #[inline(always)] unsafe fn any(m: I) -> bool { _mm256_testz_si256(m, m) == 0 }
    #[inline(always)] unsafe fn count(m: I) -> u32 { _mm256_movemask_ps(_mm256_castsi256_ps(m)).count_ones() }
    #[inline(always)] unsafe fn select(m: I, a: I, b: I) -> I { _mm256_blendv_epi8(b, a, m) }
    #[inline(always)] unsafe fn keep(m: I, a: I) -> I { _mm256_and_si256(m, a) }

    #[inline(always)] unsafe fn leading_bits(a: I) -> I {
        // Clearing the bit 17 below the highest one keeps rounding from carrying into the 16 leading bits. Half of the
        // number fits the signed conversion, and adding one to the exponent doubles it again.
        let exact = _mm256_srli_epi32::<1>(_mm256_andnot_si256(_mm256_srli_epi32::<17>(a), a));
        let bits = _mm256_castps_si256(_mm256_cvtepi32_ps(exact));
        _mm256_add_epi32(bits, _mm256_set1_epi32(1 << 23))
    }
    #[inline(always)] unsafe fn mul_bits(a: I, b: I) -> I {
        _mm256_castps_si256(_mm256_mul_ps(_mm256_cvtepi32_ps(a), _mm256_castsi256_ps(b)))
    }
    #[inline(always)] unsafe fn sum(a: I) -> i64 { Self::sum64(Self::widen(a)) }

    #[inline(always)] unsafe fn mul_wide(a: I, b: I) -> L {
        [_mm256_mul_epi32(a, b), _mm256_mul_epi32(_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b))]
    }
    #[inline(always)] unsafe fn mul_wide_u(a: I, b: I) -> L {
        [_mm256_mul_epu32(a, b), _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b))]
    }
    #[inline(always)] unsafe fn mul_low(a: L, b: I) -> L {
        [_mm256_mul_epi32(a[0], b), _mm256_mul_epi32(a[1], _mm256_srli_epi64::<32>(b))]
    }
    #[inline(always)] unsafe fn widen(a: I) -> L {
        let sign = _mm256_srai_epi32::<31>(a);
        let odd = _mm256_blend_epi32::<0b1010_1010>(_mm256_srli_epi64::<32>(a), sign);
        [interleave(a, sign), odd]
    }
    #[inline(always)] unsafe fn widen_u(a: I) -> L {
        [_mm256_and_si256(a, _mm256_set1_epi64x(0xffff_ffff)), _mm256_srli_epi64::<32>(a)]
    }
    #[inline(always)] unsafe fn splat64(x: i64) -> L { [_mm256_set1_epi64x(x); 2] }
    #[inline(always)] unsafe fn add64(a: L, b: L) -> L { [_mm256_add_epi64(a[0], b[0]), _mm256_add_epi64(a[1], b[1])] }
    #[inline(always)] unsafe fn sub64(a: L, b: L) -> L { [_mm256_sub_epi64(a[0], b[0]), _mm256_sub_epi64(a[1], b[1])] }
    #[inline(always)] unsafe fn and64(a: L, b: L) -> L { [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])] }
    #[inline(always)] unsafe fn shr64<const K: u32>(a: L) -> L {
        let k = _mm_cvtsi32_si128(K as i32);
        [_mm256_srl_epi64(a[0], k), _mm256_srl_epi64(a[1], k)]
    }
    #[inline(always)] unsafe fn sra64_by(a: L, k: u32) -> L {
        // The logical shift of x + 2^63 is that of x plus 2^(63-k), with x now taken as signed.
        let (k, bias) = (_mm_cvtsi32_si128(k as i32), _mm256_set1_epi64x(i64::MIN));
        let back = _mm256_srl_epi64(bias, k);
        let (even, odd) = (_mm256_xor_si256(a[0], bias), _mm256_xor_si256(a[1], bias));
        [_mm256_sub_epi64(_mm256_srl_epi64(even, k), back), _mm256_sub_epi64(_mm256_srl_epi64(odd, k), back)]
    }
    #[inline(always)] unsafe fn low(a: L) -> I { interleave(a[0], a[1]) }
    #[inline(always)] unsafe fn high(a: L) -> I {
        _mm256_blend_epi32::<0b1010_1010>(_mm256_srli_epi64::<32>(a[0]), a[1])
    }
    #[inline(always)] unsafe fn sum64(a: L) -> i64 {
        let four = _mm256_add_epi64(a[0], a[1]);
        let two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256::<1>(four));
        _mm_cvtsi128_si64(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two)))
    }

    #[inline(always)] unsafe fn splat_f32(x: f32) -> F { _mm256_set1_ps(x) }
    #[inline(always)] unsafe fn load_f32(p: *const f32) -> F { _mm256_loadu_ps(p) }
    #[inline(always)] unsafe fn store_f32(p: *mut f32, a: F) { _mm256_storeu_ps(p, a) }
    #[inline(always)] unsafe fn to_f32(a: I) -> F { _mm256_cvtepi32_ps(a) }
    #[inline(always)] unsafe fn add_f32(a: F, b: F) -> F { _mm256_add_ps(a, b) }
    #[inline(always)] unsafe fn sub_f32(a: F, b: F) -> F { _mm256_sub_ps(a, b) }
    #[inline(always)] unsafe fn mul_f32(a: F, b: F) -> F { _mm256_mul_ps(a, b) }
    #[inline(always)] unsafe fn fma_f32(a: F, b: F, c: F) -> F { _mm256_fmadd_ps(a, b, c) }
    #[inline(always)] unsafe fn div_f32(a: F, b: F) -> F { _mm256_div_ps(a, b) }
    #[inline(always)] unsafe fn sqrt_f32(a: F) -> F { _mm256_sqrt_ps(a) }
    #[inline(always)] unsafe fn estimate_inverse(a: F) -> F { _mm256_rcp_ps(a) }
    #[inline(always)] unsafe fn min_f32(a: F, b: F) -> F { _mm256_min_ps(a, b) }
    #[inline(always)] unsafe fn max_f32(a: F, b: F) -> F { _mm256_max_ps(a, b) }
    #[inline(always)] unsafe fn abs_f32(a: F) -> F { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
    #[inline(always)] unsafe fn gt_f32(a: F, b: F) -> I { _mm256_castps_si256(_mm256_cmp_ps::<_CMP_GT_OQ>(a, b)) }
    #[inline(always)] unsafe fn ge_f32(a: F, b: F) -> I { _mm256_castps_si256(_mm256_cmp_ps::<_CMP_GE_OQ>(a, b)) }
    #[inline(always)] unsafe fn keep_f32(m: I, a: F) -> F { _mm256_and_ps(_mm256_castsi256_ps(m), a) }
    #[inline(always)] unsafe fn select_f32(m: I, a: F, b: F) -> F { _mm256_blendv_ps(b, a, _mm256_castsi256_ps(m)) }
    #[inline(always)] unsafe fn widen_f32(a: F) -> D {
        [_mm256_cvtps_pd(_mm256_castps256_ps128(a)), _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(a))]
    }
    #[inline(always)] unsafe fn narrow_f64(a: D) -> F { _mm256_set_m128(_mm256_cvtpd_ps(a[1]), _mm256_cvtpd_ps(a[0])) }

    #[inline(always)] unsafe fn transpose_f32(from: *const f32, to: *mut f32, stride: usize) {
        // Part c of four rows has their columns c and c + 4.
        let mut parts = [[_mm256_setzero_ps(); 4]; 2];
        for g in 0..2 {
            let rows = each!(r in [0, 1, 2, 3] => _mm256_loadu_ps(from.add((4 * g + r) * stride)));
            let [a, b] = [_mm256_unpacklo_ps(rows[0], rows[1]), _mm256_unpacklo_ps(rows[2], rows[3])];
            let [c, d] = [_mm256_unpackhi_ps(rows[0], rows[1]), _mm256_unpackhi_ps(rows[2], rows[3])];
            let [a, b, c, d] = each!(x in [a, b, c, d] => _mm256_castps_pd(x));
            parts[g] = each!(x in [
                _mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b), _mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d),
            ] => _mm256_castpd_ps(x));
        }
        for c in 0..4 {
            let [a, b] = [parts[0][c], parts[1][c]];
            _mm256_storeu_ps(to.add(c * stride), _mm256_permute2f128_ps::<0x20>(a, b));
            _mm256_storeu_ps(to.add((c + 4) * stride), _mm256_permute2f128_ps::<0x31>(a, b));
        }
    }

    #[inline(always)] unsafe fn splat_f64(x: f64) -> D { [_mm256_set1_pd(x); 2] }
    #[inline(always)] unsafe fn load_f64(p: *const f64) -> D { [_mm256_loadu_pd(p), _mm256_loadu_pd(p.add(4))] }
    #[inline(always)] unsafe fn store_f64(p: *mut f64, a: D) { _mm256_storeu_pd(p, a[0]); _mm256_storeu_pd(p.add(4), a[1]) }
    #[inline(always)] unsafe fn to_f64(a: I) -> D {
        let biased = _mm256_xor_si256(a, _mm256_set1_epi32(i32::MIN));
        let high = _mm256_set1_epi64x(0x4330_0000_0000_0000);
        let even = _mm256_blend_epi32::<0b1010_1010>(biased, high);
        let odd = _mm256_or_si256(_mm256_srli_epi64::<32>(biased), high);
        let magic = _mm256_set1_pd(MAGIC);
        [_mm256_sub_pd(_mm256_castsi256_pd(even), magic), _mm256_sub_pd(_mm256_castsi256_pd(odd), magic)]
    }
    #[inline(always)] unsafe fn from_f32(a: I) -> D {
        let sorted = _mm256_permutevar8x32_epi32(a, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
        [_mm256_cvtps_pd(_mm_castsi128_ps(_mm256_castsi256_si128(sorted))), _mm256_cvtps_pd(_mm_castsi128_ps(_mm256_extracti128_si256::<1>(sorted)))]
    }
    #[inline(always)] unsafe fn to_f32_f64(a: L) -> D {
        let mut x = [0i64; 8];
        _mm256_storeu_si256(x.as_mut_ptr().cast(), a[0]);
        _mm256_storeu_si256(x[4..].as_mut_ptr().cast(), a[1]);
        let even = _mm_setr_ps(x[0] as f32, x[1] as f32, x[2] as f32, x[3] as f32);
        let odd = _mm_setr_ps(x[4] as f32, x[5] as f32, x[6] as f32, x[7] as f32);
        [_mm256_cvtps_pd(even), _mm256_cvtps_pd(odd)]
    }
    #[inline(always)] unsafe fn trunc(a: D) -> I {
        let (even, odd) = (_mm256_cvttpd_epi32(a[0]), _mm256_cvttpd_epi32(a[1]));
        let low = _mm256_castsi128_si256(_mm_unpacklo_epi32(even, odd));
        _mm256_inserti128_si256::<1>(low, _mm_unpackhi_epi32(even, odd))
    }
    #[inline(always)] unsafe fn add_f64(a: D, b: D) -> D { [_mm256_add_pd(a[0], b[0]), _mm256_add_pd(a[1], b[1])] }
    #[inline(always)] unsafe fn sub_f64(a: D, b: D) -> D { [_mm256_sub_pd(a[0], b[0]), _mm256_sub_pd(a[1], b[1])] }
    #[inline(always)] unsafe fn mul_f64(a: D, b: D) -> D { [_mm256_mul_pd(a[0], b[0]), _mm256_mul_pd(a[1], b[1])] }
    #[inline(always)] unsafe fn div_f64(a: D, b: D) -> D { [_mm256_div_pd(a[0], b[0]), _mm256_div_pd(a[1], b[1])] }
    #[inline(always)] unsafe fn min_f64(a: D, b: D) -> D { [_mm256_min_pd(a[0], b[0]), _mm256_min_pd(a[1], b[1])] }
    #[inline(always)] unsafe fn max_f64(a: D, b: D) -> D { [_mm256_max_pd(a[0], b[0]), _mm256_max_pd(a[1], b[1])] }
    #[inline(always)] unsafe fn floor_f64(a: D) -> D { [_mm256_floor_pd(a[0]), _mm256_floor_pd(a[1])] }
    #[inline(always)] unsafe fn to_bits(a: D) -> L { [_mm256_castpd_si256(a[0]), _mm256_castpd_si256(a[1])] }
    #[inline(always)] unsafe fn from_bits(a: L) -> D { [_mm256_castsi256_pd(a[0]), _mm256_castsi256_pd(a[1])] }
    #[inline(always)] unsafe fn ge_f64(a: D, b: D) -> I {
        let even = _mm256_castpd_si256(_mm256_cmp_pd::<_CMP_GE_OQ>(a[0], b[0]));
        let odd = _mm256_castpd_si256(_mm256_cmp_pd::<_CMP_GE_OQ>(a[1], b[1]));
        _mm256_blend_epi32::<0b1010_1010>(even, odd)
    }
}
