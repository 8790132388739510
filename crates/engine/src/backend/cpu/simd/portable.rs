// SPDX-License-Identifier: MPL-2.0

//! Lanes as plain arrays: the reference, and code that other architectures can vectorise. On x86-64, compilers do not
//! vectorise sums of 16-bit products or the code around them. So the operations of the filters use SSE2 there, which
//! every such CPU has.

use super::Lanes;

/// Four lanes in arrays, which need no instruction set. They fill a register of 128 bits; more lanes would take
/// compilers much longer.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

const N: usize = 4;
type I = [i32; N];
type L = [i64; N];
type D = [f64; N];
type F = [f32; N];

/// An array whose element `$i` is `$e`.
macro_rules! lanes {
    ($i:ident => $e:expr) => {{
        let mut lanes = [Default::default(); N];
        for $i in 0..N {
            lanes[$i] = $e;
        }
        lanes
    }};
}

/// Applies an expression to each pair of 16-bit halves of the vectors `$a` and `$b`, seen as the type `$t`.
macro_rules! halves {
    ($a:ident, $b:ident, |$x:ident: $t:ty, $y:ident| $e:expr) => {
        lanes!(i => {
            let half = |$x: $t, $y: $t| ($e) as u16 as u32;
            let low = half($a[i] as $t, $b[i] as $t);
            let high = half(($a[i] >> 16) as $t, ($b[i] >> 16) as $t);
            (low | high << 16) as i32
        })
    };
}

/// `name: intrinsic = plain;` defines an operation twice, the plain one as a function of two vectors.
macro_rules! operations {
    ($($name:ident: $sse2:ident = |$a:ident, $b:ident| $plain:expr;)*) => {
        #[cfg(any(test, not(target_arch = "x86_64")))]
        mod plain {
            use super::{I, N};

            $(#[inline(always)]
            pub fn $name($a: I, $b: I) -> I {
                $plain
            })*
        }

        #[cfg(target_arch = "x86_64")]
        mod sse2 {
            use super::I;
            use std::arch::x86_64::*;
            use std::mem::transmute;

            $(#[inline(always)]
            pub fn $name(a: I, b: I) -> I {
                // SAFETY: every x86-64 CPU has SSE2, and both types are 128 bits that may have any value.
                unsafe { transmute::<__m128i, I>($sse2(transmute::<I, __m128i>(a), transmute::<I, __m128i>(b))) }
            })*
        }

        /// An operation, plain and with SSE2.
        #[cfg(all(test, target_arch = "x86_64"))]
        type Twins = (&'static str, fn(I, I) -> I, fn(I, I) -> I);
        #[cfg(all(test, target_arch = "x86_64"))]
        const TWINS: &[Twins] = &[$((stringify!($name), plain::$name, sse2::$name)),*];
    };
}

operations! {
    add: _mm_add_epi32 = |a, b| lanes!(i => a[i].wrapping_add(b[i]));
    sub: _mm_sub_epi32 = |a, b| lanes!(i => a[i].wrapping_sub(b[i]));
    and: _mm_and_si128 = |a, b| lanes!(i => a[i] & b[i]);
    or: _mm_or_si128 = |a, b| lanes!(i => a[i] | b[i]);
    xor: _mm_xor_si128 = |a, b| lanes!(i => a[i] ^ b[i]);
    madd16: _mm_madd_epi16 = |a, b| lanes!(i => {
        let low = i32::from(a[i] as i16) * i32::from(b[i] as i16);
        low.wrapping_add((a[i] >> 16) * (b[i] >> 16))
    });
    add16: _mm_add_epi16 = |a, b| halves!(a, b, |x: u16, y| x.wrapping_add(y));
    sub16: _mm_sub_epi16 = |a, b| halves!(a, b, |x: u16, y| x.wrapping_sub(y));
    excess_u16: _mm_subs_epu16 = |a, b| halves!(a, b, |x: u16, y| x.saturating_sub(y));
    mul16: _mm_mullo_epi16 = |a, b| halves!(a, b, |x: u16, y| x.wrapping_mul(y));
    mulhi_u16: _mm_mulhi_epu16 = |a, b| halves!(a, b, |x: u16, y| (u32::from(x) * u32::from(y)) >> 16);
    mulhi16: _mm_mulhi_epi16 = |a, b| halves!(a, b, |x: i16, y| (i32::from(x) * i32::from(y)) >> 16);
    min16: _mm_min_epi16 = |a, b| halves!(a, b, |x: i16, y| x.min(y));
    max16: _mm_max_epi16 = |a, b| halves!(a, b, |x: i16, y| x.max(y));
}

#[cfg(not(target_arch = "x86_64"))]
use plain as native;
#[cfg(target_arch = "x86_64")]
use sse2 as native;

fn mask(x: bool) -> i32 {
    -i32::from(x)
}

#[rustfmt::skip]
#[allow(unsafe_op_in_unsafe_fn, reason = "thin wrappers: the contract of the trait is that of each line")]
impl Lanes for Portable {
    const N: usize = N;
    const REGISTERS: usize = 16;
    type I = I;
    type L = L;
    type D = D;
    type F = F;
    type M = I;

    #[inline(always)] unsafe fn splat(x: i32) -> I { [x; N] }
    #[inline(always)] unsafe fn load(p: *const i32) -> I { p.cast::<I>().read_unaligned() }
    #[inline(always)] unsafe fn load16(p: *const u16) -> I {
        lanes!(i => (u32::from(*p.add(2 * i)) | u32::from(*p.add(2 * i + 1)) << 16) as i32)
    }
    #[inline(always)] unsafe fn load16_u8(p: *const u8) -> I {
        lanes!(i => i32::from(*p.add(2 * i)) | i32::from(*p.add(2 * i + 1)) << 16)
    }
    #[inline(always)] unsafe fn load_i16(p: *const i16) -> I { lanes!(i => i32::from(*p.add(i))) }
    #[inline(always)] unsafe fn store(p: *mut i32, a: I) { p.cast::<I>().write_unaligned(a) }
    #[inline(always)] unsafe fn store16(p: *mut u16, a: I) {
        for i in 0..N {
            *p.add(2 * i) = a[i] as u16;
            *p.add(2 * i + 1) = (a[i] >> 16) as u16;
        }
    }
    #[inline(always)] unsafe fn store_low16(p: *mut u16, a: I) { for i in 0..N { *p.add(i) = a[i] as u16; } }
    #[inline(always)] unsafe fn gather(table: *const u32, index: I) -> I {
        lanes!(i => *table.add(index[i] as usize) as i32)
    }

    #[inline(always)] unsafe fn add(a: I, b: I) -> I { native::add(a, b) }
    #[inline(always)] unsafe fn sub(a: I, b: I) -> I { native::sub(a, b) }
    #[inline(always)] unsafe fn mul(a: I, b: I) -> I { lanes!(i => a[i].wrapping_mul(b[i])) }
    #[inline(always)] unsafe fn and(a: I, b: I) -> I { native::and(a, b) }
    #[inline(always)] unsafe fn or(a: I, b: I) -> I { native::or(a, b) }
    #[inline(always)] unsafe fn xor(a: I, b: I) -> I { native::xor(a, b) }
    #[inline(always)] unsafe fn shl<const K: u32>(a: I) -> I { lanes!(i => a[i] << K) }
    #[inline(always)] unsafe fn shr<const K: u32>(a: I) -> I { lanes!(i => (a[i] as u32 >> K) as i32) }
    #[inline(always)] unsafe fn sra<const K: u32>(a: I) -> I { lanes!(i => a[i] >> K) }
    #[inline(always)] unsafe fn shl_by(a: I, k: u32) -> I { lanes!(i => a[i] << k) }
    #[inline(always)] unsafe fn shr_by(a: I, k: u32) -> I { lanes!(i => (a[i] as u32 >> k) as i32) }
    #[inline(always)] unsafe fn sra_by(a: I, k: u32) -> I { lanes!(i => a[i] >> k) }
    #[inline(always)] unsafe fn min(a: I, b: I) -> I { lanes!(i => a[i].min(b[i])) }
    #[inline(always)] unsafe fn max(a: I, b: I) -> I { lanes!(i => a[i].max(b[i])) }
    #[inline(always)] unsafe fn abs(a: I) -> I { lanes!(i => a[i].wrapping_abs()) }

    #[inline(always)] unsafe fn madd16(a: I, b: I) -> I { native::madd16(a, b) }
    #[inline(always)] unsafe fn add16(a: I, b: I) -> I { native::add16(a, b) }
    #[inline(always)] unsafe fn sub16(a: I, b: I) -> I { native::sub16(a, b) }
    #[inline(always)] unsafe fn mul16(a: I, b: I) -> I { native::mul16(a, b) }
    #[inline(always)] unsafe fn mulhi_u16(a: I, b: I) -> I { native::mulhi_u16(a, b) }
    #[inline(always)] unsafe fn mulhi16(a: I, b: I) -> I { native::mulhi16(a, b) }
    #[inline(always)] unsafe fn mul_round16(a: I, b: I) -> I {
        halves!(a, b, |x: i16, y| (i32::from(x) * i32::from(y) + (1 << 14)) >> 15)
    }
    #[inline(always)] unsafe fn min16(a: I, b: I) -> I { native::min16(a, b) }
    // SSE2 has this only for signed numbers.
    #[inline(always)] unsafe fn min_u16(a: I, b: I) -> I { native::sub16(a, native::excess_u16(a, b)) }
    #[inline(always)] unsafe fn max16(a: I, b: I) -> I { native::max16(a, b) }
    #[inline(always)] unsafe fn abs16(a: I) -> I { halves!(a, a, |x: i16, _y| x.wrapping_abs()) }
    #[inline(always)] unsafe fn eq16(a: I, b: I) -> I { halves!(a, b, |x: u16, y| if x == y { 0xffff } else { 0 }) }
    #[inline(always)] unsafe fn zip16(a: I, b: I) -> [I; 2] {
        [lanes!(i => a[i] & 0xffff | b[i] << 16), lanes!(i => (a[i] as u32 >> 16) as i32 | b[i] & !0xffff)]
    }
    #[inline(always)] unsafe fn unzip16(a: [I; 2]) -> I {
        let clamp = |x: i32| x.clamp(i16::MIN.into(), i16::MAX.into());
        lanes!(i => clamp(a[0][i]) & 0xffff | clamp(a[1][i]) << 16)
    }
    #[inline(always)] unsafe fn widen16(a: I) -> [I; 2] {
        [0, N / 2].map(|h| lanes!(i => { let x = a[h + i / 2]; if i % 2 == 0 { i32::from(x as i16) } else { x >> 16 } }))
    }
    #[inline(always)] unsafe fn widen_u16(a: I) -> [I; 2] { Self::widen16(a).map(|a| lanes!(i => a[i] & 0xffff)) }
    #[inline(always)] unsafe fn blend16(a: I, b: I) -> I { lanes!(i => a[i] & 0xffff | b[i] & !0xffff) }

    #[inline(always)] unsafe fn gt(a: I, b: I) -> I { lanes!(i => mask(a[i] > b[i])) }
    #[inline(always)] unsafe fn first(n: usize) -> I { lanes!(i => mask(i < n)) }
    #[inline(always)] unsafe fn both(a: I, b: I) -> I { Self::and(a, b) }
    #[inline(always)] unsafe fn except(a: I, b: I) -> I { lanes!(i => a[i] & !b[i]) }
    #[inline(always)] unsafe fn any(m: I) -> bool { m.iter().fold(0, |all, x| all | x) != 0 }
    #[inline(always)] unsafe fn count(m: I) -> u32 { m.iter().map(|x| x.unsigned_abs()).sum() }
    #[inline(always)] unsafe fn select(m: I, a: I, b: I) -> I { lanes!(i => a[i] & m[i] | b[i] & !m[i]) }
    #[inline(always)] unsafe fn keep(m: I, a: I) -> I { Self::and(m, a) }

    #[inline(always)] unsafe fn leading_bits(a: I) -> I {
        // Clearing the bit 17 below the highest one keeps rounding from carrying into the 16 leading bits.
        lanes!(i => { let x = a[i] as u32; ((x & !(x >> 17)) as f32).to_bits() as i32 })
    }
    #[inline(always)] unsafe fn mul_bits(a: I, b: I) -> I {
        lanes!(i => (a[i] as f32 * f32::from_bits(b[i] as u32)).to_bits() as i32)
    }
    #[inline(always)] unsafe fn sum(a: I) -> i64 { a.iter().map(|x| i64::from(*x)).sum() }

    #[inline(always)] unsafe fn mul_wide(a: I, b: I) -> L { lanes!(i => i64::from(a[i]) * i64::from(b[i])) }
    #[inline(always)] unsafe fn mul_wide_u(a: I, b: I) -> L {
        lanes!(i => (u64::from(a[i] as u32) * u64::from(b[i] as u32)) as i64)
    }
    #[inline(always)] unsafe fn mul_low(a: L, b: I) -> L { lanes!(i => i64::from(a[i] as i32) * i64::from(b[i])) }
    #[inline(always)] unsafe fn widen(a: I) -> L { lanes!(i => i64::from(a[i])) }
    #[inline(always)] unsafe fn widen_u(a: I) -> L { lanes!(i => i64::from(a[i] as u32)) }
    #[inline(always)] unsafe fn splat64(x: i64) -> L { [x; N] }
    #[inline(always)] unsafe fn add64(a: L, b: L) -> L { lanes!(i => a[i].wrapping_add(b[i])) }
    #[inline(always)] unsafe fn sub64(a: L, b: L) -> L { lanes!(i => a[i].wrapping_sub(b[i])) }
    #[inline(always)] unsafe fn and64(a: L, b: L) -> L { lanes!(i => a[i] & b[i]) }
    #[inline(always)] unsafe fn shr64<const K: u32>(a: L) -> L { lanes!(i => (a[i] as u64 >> K) as i64) }
    #[inline(always)] unsafe fn sra64_by(a: L, k: u32) -> L { lanes!(i => a[i] >> k) }
    #[inline(always)] unsafe fn low(a: L) -> I { lanes!(i => a[i] as i32) }
    #[inline(always)] unsafe fn high(a: L) -> I { lanes!(i => (a[i] >> 32) as i32) }
    #[inline(always)] unsafe fn sum64(a: L) -> i64 { a.iter().fold(0, |s, x| s.wrapping_add(*x)) }

    #[inline(always)] unsafe fn splat_f32(x: f32) -> F { [x; N] }
    #[inline(always)] unsafe fn load_f32(p: *const f32) -> F { p.cast::<F>().read_unaligned() }
    #[inline(always)] unsafe fn store_f32(p: *mut f32, a: F) { p.cast::<F>().write_unaligned(a) }
    #[inline(always)] unsafe fn to_f32(a: I) -> F { lanes!(i => a[i] as f32) }
    #[inline(always)] unsafe fn add_f32(a: F, b: F) -> F { lanes!(i => a[i] + b[i]) }
    #[inline(always)] unsafe fn sub_f32(a: F, b: F) -> F { lanes!(i => a[i] - b[i]) }
    #[inline(always)] unsafe fn mul_f32(a: F, b: F) -> F { lanes!(i => a[i] * b[i]) }
    #[inline(always)] unsafe fn fma_f32(a: F, b: F, c: F) -> F { lanes!(i => a[i].mul_add(b[i], c[i])) }
    #[inline(always)] unsafe fn div_f32(a: F, b: F) -> F { lanes!(i => a[i] / b[i]) }
    #[inline(always)] unsafe fn sqrt_f32(a: F) -> F { lanes!(i => a[i].sqrt()) }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)] unsafe fn estimate_inverse(a: F) -> F {
        use std::arch::x86_64::{_mm_loadu_ps, _mm_rcp_ps, _mm_storeu_ps};
        let mut estimate = a;
        _mm_storeu_ps(estimate.as_mut_ptr(), _mm_rcp_ps(_mm_loadu_ps(a.as_ptr())));
        estimate
    }
    #[inline(always)] unsafe fn min_f32(a: F, b: F) -> F { lanes!(i => if a[i] < b[i] { a[i] } else { b[i] }) }
    #[inline(always)] unsafe fn max_f32(a: F, b: F) -> F { lanes!(i => if a[i] > b[i] { a[i] } else { b[i] }) }
    #[inline(always)] unsafe fn gt_f32(a: F, b: F) -> I { lanes!(i => mask(a[i] > b[i])) }
    #[inline(always)] unsafe fn abs_f32(a: F) -> F { lanes!(i => a[i].abs()) }
    #[inline(always)] unsafe fn ge_f32(a: F, b: F) -> I { lanes!(i => mask(a[i] >= b[i])) }
    #[inline(always)] unsafe fn keep_f32(m: I, a: F) -> F { lanes!(i => f32::from_bits(a[i].to_bits() & m[i] as u32)) }
    #[inline(always)] unsafe fn select_f32(m: I, a: F, b: F) -> F { lanes!(i => if m[i] != 0 { a[i] } else { b[i] }) }
    #[inline(always)] unsafe fn widen_f32(a: F) -> D { lanes!(i => f64::from(a[i])) }
    #[inline(always)] unsafe fn narrow_f64(a: D) -> F { lanes!(i => a[i] as f32) }

    #[inline(always)] unsafe fn transpose_f32(from: *const f32, to: *mut f32, stride: usize) {
        let mut rows = [[0.0; N]; N];
        for i in 0..N {
            rows[i] = Self::load_f32(from.add(i * stride));
        }
        for i in 0..N {
            Self::store_f32(to.add(i * stride), lanes!(j => rows[j][i]));
        }
    }

    #[inline(always)] unsafe fn splat_f64(x: f64) -> D { [x; N] }
    #[inline(always)] unsafe fn load_f64(p: *const f64) -> D { p.cast::<D>().read_unaligned() }
    #[inline(always)] unsafe fn store_f64(p: *mut f64, a: D) { p.cast::<D>().write_unaligned(a) }
    #[inline(always)] unsafe fn to_f64(a: I) -> D { lanes!(i => f64::from(a[i])) }
    #[inline(always)] unsafe fn from_f32(a: I) -> D { lanes!(i => f64::from(f32::from_bits(a[i] as u32))) }
    #[inline(always)] unsafe fn to_f32_f64(a: L) -> D { lanes!(i => f64::from(a[i] as f32)) }
    #[inline(always)] unsafe fn trunc(a: D) -> I { lanes!(i => a[i] as i32) }
    #[inline(always)] unsafe fn add_f64(a: D, b: D) -> D { lanes!(i => a[i] + b[i]) }
    #[inline(always)] unsafe fn sub_f64(a: D, b: D) -> D { lanes!(i => a[i] - b[i]) }
    #[inline(always)] unsafe fn mul_f64(a: D, b: D) -> D { lanes!(i => a[i] * b[i]) }
    #[inline(always)] unsafe fn div_f64(a: D, b: D) -> D { lanes!(i => a[i] / b[i]) }
    #[inline(always)] unsafe fn min_f64(a: D, b: D) -> D { lanes!(i => if a[i] < b[i] { a[i] } else { b[i] }) }
    #[inline(always)] unsafe fn max_f64(a: D, b: D) -> D { lanes!(i => if a[i] > b[i] { a[i] } else { b[i] }) }
    #[inline(always)] unsafe fn floor_f64(a: D) -> D { lanes!(i => a[i].floor()) }
    #[inline(always)] unsafe fn to_bits(a: D) -> L { lanes!(i => a[i].to_bits() as i64) }
    #[inline(always)] unsafe fn from_bits(a: L) -> D { lanes!(i => f64::from_bits(a[i] as u64)) }
    #[inline(always)] unsafe fn ge_f64(a: D, b: D) -> I { lanes!(i => mask(a[i] >= b[i])) }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::TWINS;

    proptest::proptest! {
        #[test]
        fn operations_with_sse2_are_the_plain_ones(a: [i32; 4], b: [i32; 4]) {
            let lowest = [i32::MIN, 0x8000_8000_u32 as i32, -1, 0x8000];
            for (a, b) in [(a, b), (a, lowest), (lowest, lowest)] {
                for (name, plain, sse2) in TWINS {
                    assert_eq!(plain(a, b), sse2(a, b), "{name} {a:?} {b:?}");
                }
            }
        }
    }
}
