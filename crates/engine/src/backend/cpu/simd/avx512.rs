// SPDX-License-Identifier: MPL-2.0

//! AVX-512 (F, BW, DQ, VL), with VNNI or without: sixteen lanes.

use super::{Lanes, each};
use std::arch::asm;
use std::arch::x86_64::*;

/// Needs `avx512f`, `avx512bw`, `avx512dq` and `avx512vl`, and for VNNI `avx512vnni`.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const VNNI: bool>;

type I = __m512i;
type L = [__m512i; 2];
type D = [__m512d; 2];
type F = __m512;
type M = __mmask16;

/// The odd 32-bit lanes.
const ODD: M = 0xaaaa;
/// 2^52 + 2^31. A double whose low word is a signed integer plus 2^31 equals that integer plus this constant.
const MAGIC: f64 = 4503601774854144.0;

/// Adds the products of both halves of each lane to `sum`. It does not use the intrinsic: unless LLVM knows the CPU
/// that it compiles for, it splits that instruction again into the two that it replaces.
///
/// # Safety
///
/// The CPU must have these parts of AVX-512.
#[target_feature(enable = "avx512f,avx512vnni")]
#[inline]
fn dot16(mut sum: I, a: I, b: I) -> I {
    // SAFETY: the instruction exists in this function, and touches nothing but these registers.
    unsafe {
        asm!("vpdpwssd {0}, {1}, {2}", inout(zmm_reg) sum, in(zmm_reg) a, in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// Emits no instruction, but the compiler must assume that it reads and changes these vectors.
///
/// # Safety
///
/// The CPU must have this part of AVX-512.
#[target_feature(enable = "avx512f")]
#[inline]
fn pin([mut a, mut b]: [I; 2]) -> [I; 2] {
    // SAFETY: nothing is executed.
    unsafe {
        asm!("/* {0} {1} */", inout(zmm_reg) a, inout(zmm_reg) b, options(nomem, nostack, preserves_flags));
    }
    [a, b]
}

#[rustfmt::skip]
#[allow(unsafe_op_in_unsafe_fn, reason = "thin wrappers: the contract of the trait is that of each line")]
impl<const VNNI: bool> Lanes for Avx512<VNNI> {
    const N: usize = 16;
    const REGISTERS: usize = 32;
    type I = I;
    type L = L;
    type D = D;
    type F = F;
    type M = M;

    #[inline(always)] unsafe fn splat(x: i32) -> I { _mm512_set1_epi32(x) }
    #[inline(always)] unsafe fn load(p: *const i32) -> I { _mm512_loadu_si512(p.cast()) }
    #[inline(always)] unsafe fn load16(p: *const u16) -> I { _mm512_loadu_si512(p.cast()) }
    #[inline(always)] unsafe fn load16_u8(p: *const u8) -> I { _mm512_cvtepu8_epi16(_mm256_loadu_si256(p.cast())) }
    #[inline(always)] unsafe fn load_i16(p: *const i16) -> I { _mm512_cvtepi16_epi32(_mm256_loadu_si256(p.cast())) }
    #[inline(always)] unsafe fn store(p: *mut i32, a: I) { _mm512_storeu_si512(p.cast(), a) }
    #[inline(always)] unsafe fn store16(p: *mut u16, a: I) { _mm512_storeu_si512(p.cast(), a) }
    #[inline(always)] unsafe fn store_low16(p: *mut u16, a: I) {
        _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(a))
    }
    #[inline(always)] unsafe fn gather(table: *const u32, index: I) -> I {
        _mm512_i32gather_epi32::<4>(index, table.cast())
    }

    #[inline(always)] unsafe fn add(a: I, b: I) -> I { _mm512_add_epi32(a, b) }
    #[inline(always)] unsafe fn sub(a: I, b: I) -> I { _mm512_sub_epi32(a, b) }
    #[inline(always)] unsafe fn mul(a: I, b: I) -> I { _mm512_mullo_epi32(a, b) }
    #[inline(always)] unsafe fn and(a: I, b: I) -> I { _mm512_and_si512(a, b) }
    #[inline(always)] unsafe fn or(a: I, b: I) -> I { _mm512_or_si512(a, b) }
    #[inline(always)] unsafe fn xor(a: I, b: I) -> I { _mm512_xor_si512(a, b) }
    #[inline(always)] unsafe fn shl<const K: u32>(a: I) -> I { _mm512_slli_epi32::<K>(a) }
    #[inline(always)] unsafe fn shr<const K: u32>(a: I) -> I { _mm512_srli_epi32::<K>(a) }
    #[inline(always)] unsafe fn sra<const K: u32>(a: I) -> I { _mm512_srai_epi32::<K>(a) }
    #[inline(always)] unsafe fn shl_by(a: I, k: u32) -> I { _mm512_sllv_epi32(a, _mm512_set1_epi32(k as i32)) }
    #[inline(always)] unsafe fn shr_by(a: I, k: u32) -> I { _mm512_srlv_epi32(a, _mm512_set1_epi32(k as i32)) }
    #[inline(always)] unsafe fn sra_by(a: I, k: u32) -> I { _mm512_srav_epi32(a, _mm512_set1_epi32(k as i32)) }
    #[inline(always)] unsafe fn min(a: I, b: I) -> I { _mm512_min_epi32(a, b) }
    #[inline(always)] unsafe fn max(a: I, b: I) -> I { _mm512_max_epi32(a, b) }
    #[inline(always)] unsafe fn abs(a: I) -> I { _mm512_abs_epi32(a) }

    #[inline(always)] unsafe fn madd16(a: I, b: I) -> I { _mm512_madd_epi16(a, b) }
    #[inline(always)] unsafe fn dot16(sum: I, a: I, b: I) -> I {
        if VNNI { dot16(sum, a, b) } else { Self::add(sum, Self::madd16(a, b)) }
    }
    #[inline(always)] unsafe fn add16(a: I, b: I) -> I { _mm512_add_epi16(a, b) }
    #[inline(always)] unsafe fn sub16(a: I, b: I) -> I { _mm512_sub_epi16(a, b) }
    #[inline(always)] unsafe fn mul16(a: I, b: I) -> I { _mm512_mullo_epi16(a, b) }
    #[inline(always)] unsafe fn mulhi_u16(a: I, b: I) -> I { _mm512_mulhi_epu16(a, b) }
    #[inline(always)] unsafe fn mulhi16(a: I, b: I) -> I { _mm512_mulhi_epi16(a, b) }
    #[inline(always)] unsafe fn mul_round16(a: I, b: I) -> I { _mm512_mulhrs_epi16(a, b) }
    #[inline(always)] unsafe fn min16(a: I, b: I) -> I { _mm512_min_epi16(a, b) }
    #[inline(always)] unsafe fn min_u16(a: I, b: I) -> I { _mm512_min_epu16(a, b) }
    #[inline(always)] unsafe fn max16(a: I, b: I) -> I { _mm512_max_epi16(a, b) }
    #[inline(always)] unsafe fn abs16(a: I) -> I { _mm512_abs_epi16(a) }
    #[inline(always)] unsafe fn eq16(a: I, b: I) -> I { _mm512_movm_epi16(_mm512_cmpeq_epi16_mask(a, b)) }
    #[inline(always)] unsafe fn zip16(a: I, b: I) -> [I; 2] { [_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b)] }
    #[inline(always)] unsafe fn unzip16(a: [I; 2]) -> I { _mm512_packs_epi32(a[0], a[1]) }
    #[inline(always)] unsafe fn widen16(a: I) -> [I; 2] {
        [_mm512_cvtepi16_epi32(_mm512_castsi512_si256(a)), _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64::<1>(a))]
    }
    #[inline(always)] unsafe fn widen_u16(a: I) -> [I; 2] {
        [_mm512_cvtepu16_epi32(_mm512_castsi512_si256(a)), _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64::<1>(a))]
    }
    #[inline(always)] unsafe fn blend16(a: I, b: I) -> I { _mm512_mask_blend_epi16(0xaaaa_aaaa, a, b) }

    #[inline(always)] unsafe fn gt(a: I, b: I) -> M { _mm512_cmpgt_epi32_mask(a, b) }
    #[inline(always)] unsafe fn first(n: usize) -> M { ((1u32 << n.min(16)) - 1) as M }
    #[inline(always)] unsafe fn both(a: M, b: M) -> M { a & b }
    #[inline(always)] unsafe fn except(a: M, b: M) -> M { a & !b }
    #[inline(always)] unsafe fn any(m: M) -> bool { m != 0 }
    #[inline(always)] unsafe fn count(m: M) -> u32 { m.count_ones() }
    #[inline(always)] unsafe fn select(m: M, a: I, b: I) -> I { _mm512_mask_blend_epi32(m, b, a) }
    #[inline(always)] unsafe fn keep(m: M, a: I) -> I { _mm512_maskz_mov_epi32(m, a) }

    #[inline(always)] unsafe fn pin(a: [I; 2]) -> [I; 2] { pin(a) }
    #[inline(always)] unsafe fn pin_f64(a: D) -> D { Self::from_bits(pin(Self::to_bits(a))) }

    #[inline(always)] unsafe fn leading_bits(a: I) -> I {
        _mm512_castps_si512(_mm512_cvt_roundepu32_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(a))
    }
    #[inline(always)] unsafe fn mul_bits(a: I, b: I) -> I {
        _mm512_castps_si512(_mm512_mul_ps(_mm512_cvtepi32_ps(a), _mm512_castsi512_ps(b)))
    }
    #[inline(always)] unsafe fn sum(a: I) -> i64 { Self::sum64(Self::widen(a)) }

    #[inline(always)] unsafe fn mul_wide(a: I, b: I) -> L {
        [_mm512_mul_epi32(a, b), _mm512_mul_epi32(_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b))]
    }
    #[inline(always)] unsafe fn mul_wide_u(a: I, b: I) -> L {
        [_mm512_mul_epu32(a, b), _mm512_mul_epu32(_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b))]
    }
    #[inline(always)] unsafe fn mul_low(a: L, b: I) -> L {
        [_mm512_mul_epi32(a[0], b), _mm512_mul_epi32(a[1], _mm512_srli_epi64::<32>(b))]
    }
    #[inline(always)] unsafe fn widen(a: I) -> L {
        [_mm512_srai_epi64::<32>(_mm512_slli_epi64::<32>(a)), _mm512_srai_epi64::<32>(a)]
    }
    #[inline(always)] unsafe fn widen_u(a: I) -> L {
        [_mm512_maskz_mov_epi32(!ODD, a), _mm512_srli_epi64::<32>(a)]
    }
    #[inline(always)] unsafe fn splat64(x: i64) -> L { [_mm512_set1_epi64(x); 2] }
    #[inline(always)] unsafe fn add64(a: L, b: L) -> L { [_mm512_add_epi64(a[0], b[0]), _mm512_add_epi64(a[1], b[1])] }
    #[inline(always)] unsafe fn sub64(a: L, b: L) -> L { [_mm512_sub_epi64(a[0], b[0]), _mm512_sub_epi64(a[1], b[1])] }
    #[inline(always)] unsafe fn and64(a: L, b: L) -> L { [_mm512_and_si512(a[0], b[0]), _mm512_and_si512(a[1], b[1])] }
    #[inline(always)] unsafe fn shr64<const K: u32>(a: L) -> L { [_mm512_srli_epi64::<K>(a[0]), _mm512_srli_epi64::<K>(a[1])] }
    #[inline(always)] unsafe fn sra64_by(a: L, k: u32) -> L {
        let k = _mm512_set1_epi64(k.into());
        [_mm512_srav_epi64(a[0], k), _mm512_srav_epi64(a[1], k)]
    }
    #[inline(always)] unsafe fn low(a: L) -> I {
        _mm512_mask_blend_epi32(ODD, a[0], _mm512_slli_epi64::<32>(a[1]))
    }
    #[inline(always)] unsafe fn high(a: L) -> I {
        _mm512_mask_blend_epi32(ODD, _mm512_srli_epi64::<32>(a[0]), a[1])
    }
    #[inline(always)] unsafe fn sum64(a: L) -> i64 { _mm512_reduce_add_epi64(_mm512_add_epi64(a[0], a[1])) }

    #[inline(always)] unsafe fn splat_f32(x: f32) -> F { _mm512_set1_ps(x) }
    #[inline(always)] unsafe fn load_f32(p: *const f32) -> F { _mm512_loadu_ps(p) }
    #[inline(always)] unsafe fn store_f32(p: *mut f32, a: F) { _mm512_storeu_ps(p, a) }
    #[inline(always)] unsafe fn to_f32(a: I) -> F { _mm512_cvtepi32_ps(a) }
    #[inline(always)] unsafe fn add_f32(a: F, b: F) -> F { _mm512_add_ps(a, b) }
    #[inline(always)] unsafe fn sub_f32(a: F, b: F) -> F { _mm512_sub_ps(a, b) }
    #[inline(always)] unsafe fn mul_f32(a: F, b: F) -> F { _mm512_mul_ps(a, b) }
    #[inline(always)] unsafe fn fma_f32(a: F, b: F, c: F) -> F { _mm512_fmadd_ps(a, b, c) }
    #[inline(always)] unsafe fn div_f32(a: F, b: F) -> F { _mm512_div_ps(a, b) }
    #[inline(always)] unsafe fn sqrt_f32(a: F) -> F { _mm512_sqrt_ps(a) }
    // The instruction of this width has another estimate.
    #[inline(always)] unsafe fn estimate_inverse(a: F) -> F {
        let low = _mm512_castps256_ps512(_mm256_rcp_ps(_mm512_castps512_ps256(a)));
        _mm512_insertf32x8::<1>(low, _mm256_rcp_ps(_mm512_extractf32x8_ps::<1>(a)))
    }
    #[inline(always)] unsafe fn min_f32(a: F, b: F) -> F { _mm512_min_ps(a, b) }
    #[inline(always)] unsafe fn max_f32(a: F, b: F) -> F { _mm512_max_ps(a, b) }
    #[inline(always)] unsafe fn abs_f32(a: F) -> F { _mm512_abs_ps(a) }
    #[inline(always)] unsafe fn gt_f32(a: F, b: F) -> M { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b) }
    #[inline(always)] unsafe fn ge_f32(a: F, b: F) -> M { _mm512_cmp_ps_mask::<_CMP_GE_OQ>(a, b) }
    #[inline(always)] unsafe fn keep_f32(m: M, a: F) -> F { _mm512_maskz_mov_ps(m, a) }
    #[inline(always)] unsafe fn select_f32(m: M, a: F, b: F) -> F { _mm512_mask_blend_ps(m, b, a) }
    #[inline(always)] unsafe fn widen_f32(a: F) -> D {
        [_mm512_cvtps_pd(_mm512_castps512_ps256(a)), _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(a))]
    }
    #[inline(always)] unsafe fn narrow_f64(a: D) -> F {
        _mm512_insertf32x8::<1>(_mm512_castps256_ps512(_mm512_cvtpd_ps(a[0])), _mm512_cvtpd_ps(a[1]))
    }

    #[inline(always)] unsafe fn transpose_f32(from: *const f32, to: *mut f32, stride: usize) {
        // Part c of four rows has their columns c, c + 4, c + 8 and c + 12.
        let mut parts = [[_mm512_setzero_ps(); 4]; 4];
        for g in 0..4 {
            let rows = each!(r in [0, 1, 2, 3] => _mm512_loadu_ps(from.add((4 * g + r) * stride)));
            let [a, b] = [_mm512_unpacklo_ps(rows[0], rows[1]), _mm512_unpacklo_ps(rows[2], rows[3])];
            let [c, d] = [_mm512_unpackhi_ps(rows[0], rows[1]), _mm512_unpackhi_ps(rows[2], rows[3])];
            let [a, b, c, d] = each!(x in [a, b, c, d] => _mm512_castps_pd(x));
            parts[g] = each!(x in [
                _mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b), _mm512_unpacklo_pd(c, d), _mm512_unpackhi_pd(c, d),
            ] => _mm512_castpd_ps(x));
        }
        for c in 0..4 {
            let halves = each!(g in [0, 2] => [
                _mm512_shuffle_f32x4::<0x44>(parts[g][c], parts[g + 1][c]),
                _mm512_shuffle_f32x4::<0xee>(parts[g][c], parts[g + 1][c]),
            ]);
            for h in 0..2 {
                let [a, b] = [halves[0][h], halves[1][h]];
                _mm512_storeu_ps(to.add((8 * h + c) * stride), _mm512_shuffle_f32x4::<0x88>(a, b));
                _mm512_storeu_ps(to.add((8 * h + 4 + c) * stride), _mm512_shuffle_f32x4::<0xdd>(a, b));
            }
        }
    }

    #[inline(always)] unsafe fn splat_f64(x: f64) -> D { [_mm512_set1_pd(x); 2] }
    #[inline(always)] unsafe fn load_f64(p: *const f64) -> D { [_mm512_loadu_pd(p), _mm512_loadu_pd(p.add(8))] }
    #[inline(always)] unsafe fn store_f64(p: *mut f64, a: D) { _mm512_storeu_pd(p, a[0]); _mm512_storeu_pd(p.add(8), a[1]) }
    #[inline(always)] unsafe fn to_f64(a: I) -> D {
        let biased = _mm512_xor_si512(a, _mm512_set1_epi32(i32::MIN));
        let high = _mm512_set1_epi64(0x4330_0000_0000_0000);
        let even = _mm512_mask_blend_epi32(ODD, biased, high);
        let odd = _mm512_or_si512(_mm512_srli_epi64::<32>(biased), high);
        let magic = _mm512_set1_pd(MAGIC);
        [_mm512_sub_pd(_mm512_castsi512_pd(even), magic), _mm512_sub_pd(_mm512_castsi512_pd(odd), magic)]
    }
    #[inline(always)] unsafe fn from_f32(a: I) -> D {
        let order = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
        let sorted = _mm512_permutexvar_epi32(order, a);
        let odd = _mm512_extracti64x4_epi64::<1>(sorted);
        [
            _mm512_cvtps_pd(_mm256_castsi256_ps(_mm512_castsi512_si256(sorted))),
            _mm512_cvtps_pd(_mm256_castsi256_ps(odd)),
        ]
    }
    #[inline(always)] unsafe fn to_f32_f64(a: L) -> D {
        [_mm512_cvtps_pd(_mm512_cvtepi64_ps(a[0])), _mm512_cvtps_pd(_mm512_cvtepi64_ps(a[1]))]
    }
    #[inline(always)] unsafe fn trunc(a: D) -> I {
        Self::low([_mm512_cvttpd_epi64(a[0]), _mm512_cvttpd_epi64(a[1])])
    }
    #[inline(always)] unsafe fn add_f64(a: D, b: D) -> D { [_mm512_add_pd(a[0], b[0]), _mm512_add_pd(a[1], b[1])] }
    #[inline(always)] unsafe fn sub_f64(a: D, b: D) -> D { [_mm512_sub_pd(a[0], b[0]), _mm512_sub_pd(a[1], b[1])] }
    #[inline(always)] unsafe fn mul_f64(a: D, b: D) -> D { [_mm512_mul_pd(a[0], b[0]), _mm512_mul_pd(a[1], b[1])] }
    #[inline(always)] unsafe fn div_f64(a: D, b: D) -> D { [_mm512_div_pd(a[0], b[0]), _mm512_div_pd(a[1], b[1])] }
    #[inline(always)] unsafe fn min_f64(a: D, b: D) -> D { [_mm512_min_pd(a[0], b[0]), _mm512_min_pd(a[1], b[1])] }
    #[inline(always)] unsafe fn max_f64(a: D, b: D) -> D { [_mm512_max_pd(a[0], b[0]), _mm512_max_pd(a[1], b[1])] }
    #[inline(always)] unsafe fn floor_f64(a: D) -> D { [_mm512_roundscale_pd::<_MM_FROUND_TO_NEG_INF>(a[0]), _mm512_roundscale_pd::<_MM_FROUND_TO_NEG_INF>(a[1])] }
    #[inline(always)] unsafe fn to_bits(a: D) -> L { [_mm512_castpd_si512(a[0]), _mm512_castpd_si512(a[1])] }
    #[inline(always)] unsafe fn from_bits(a: L) -> D { [_mm512_castsi512_pd(a[0]), _mm512_castsi512_pd(a[1])] }
    #[inline(always)] unsafe fn ge_f64(a: D, b: D) -> M {
        let even = _mm512_movm_epi64(_mm512_cmp_pd_mask::<_CMP_GE_OQ>(a[0], b[0]));
        let odd = _mm512_movm_epi64(_mm512_cmp_pd_mask::<_CMP_GE_OQ>(a[1], b[1]));
        _mm512_movepi32_mask(_mm512_mask_blend_epi32(ODD, even, odd))
    }
}
