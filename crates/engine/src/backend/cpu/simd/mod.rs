// SPDX-License-Identifier: MPL-2.0

//! The vector layer: algorithms are written once over [`Lanes`] and compiled for every instruction set by
//! [`dispatch!`], as memchr does it.
//!
//! A vector `I` has `N` lanes of 32 bits. Operations ending in `16` use it as `2 N` lanes of 16 bits, the low half of
//! each 32-bit lane first. Vectors of 64-bit integers and doubles are pairs: the even lanes of the `I` they belong to,
//! then its odd lanes, so widening never crosses lanes.
//!
//! VNNI does [`Lanes::dot16`] in one instruction, for which AVX2 and AVX-512 need two. Algorithms that spend their time
//! in it are also compiled for CPUs with VNNI; the others use the code for CPUs without.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use portable::Portable;

use std::sync::OnceLock;

/// An instruction set of this machine, as proof that its functions may be called.
///
/// Values come only from [`Level::detect`] and [`Level::available`]. They are ordered from plain to wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(Isa);

/// The instruction sets that algorithms are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Isa {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
}

impl Level {
    /// Returns the level to use: the widest of this machine. In test builds, the environment variable
    /// `HIPVMAF_CPU_LEVEL` can name a lower one (`scalar`, `avx2`, `avxvnni`, `avx512` or `avx512vnni`). It is read once
    /// per process.
    pub fn detect() -> Self {
        static LEVEL: OnceLock<Level> = OnceLock::new();
        *LEVEL.get_or_init(|| {
            let named = || std::env::var("HIPVMAF_CPU_LEVEL").ok();
            let wanted = cfg!(feature = "testing").then(named).flatten();
            Self::available()
                .find(|level| wanted.as_deref() == Some(level.name()))
                .or(Self::available().last())
                .unwrap_or(Self(Isa::Scalar))
        })
    }

    /// Returns every level of this machine, the plain one first.
    pub fn available() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        #[cfg(target_arch = "x86_64")]
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        let levels: &[(Isa, bool)] = &[
            (Isa::Scalar, true),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, avx2),
            #[cfg(target_arch = "x86_64")]
            (Isa::AvxVnni, avx2 && is_x86_feature_detected!("avxvnni")),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, avx512),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512Vnni, avx512 && is_x86_feature_detected!("avx512vnni")),
        ];
        levels.iter().filter(|(_, here)| *here).map(|(isa, _)| Self(*isa)).collect::<Vec<_>>().into_iter()
    }

    /// Returns the name for logs, results and `HIPVMAF_CPU_LEVEL`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Isa::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => "avxvnni",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => "avx512vnni",
        }
    }

    pub(crate) fn isa(self) -> Isa {
        self.0
    }
}

/// Runs an algorithm in a function that is compiled for the instructions of these lanes. The level proves that the
/// machine has them.
#[cfg(target_arch = "x86_64")]
macro_rules! compiled {
    ($name:ident, $features:literal, $lanes:ty, ($($arg:ident: $ty:ty),*) -> $ret:ty
        = $algorithm:ident[$($generics:tt)*][$($params:tt)*]) => {{
        /// # Safety
        ///
        /// The CPU must have these features.
        #[target_feature(enable = $features)]
        #[allow(clippy::too_many_arguments)]
        fn $name<$($generics)*>($($arg: $ty),*) -> $ret {
            // SAFETY: this function is compiled for the instructions of these lanes.
            unsafe { $algorithm::<$lanes, $($params)*>($($arg),*) }
        }
        // SAFETY: the level exists, so the machine has the instructions.
        unsafe { $name::<$($params)*>($($arg),*) }
    }};
}
#[cfg(target_arch = "x86_64")]
pub(crate) use compiled;

/// `dispatch!(fn entry[T: Sample](a: A, b: B) -> R = algorithm[T])` defines the safe `fn entry<T: Sample>(level: Level,
/// a: A, b: B) -> R`, which runs `algorithm::<V, T>(a, b)` with the lanes of the level. The algorithm is an
/// `#[inline(always)] unsafe fn` that requires only the instructions of `V`. `dispatch!(vnni fn ...)` also compiles for
/// VNNI; it is for algorithms that spend their time in [`Lanes::dot16`].
macro_rules! dispatch {
    ($(#[$doc:meta])* $vis:vis fn $name:ident[$($generics:tt)*]($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty
        = $algorithm:ident[$($params:tt)*]) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name<$($generics)*>(level: $crate::backend::cpu::simd::Level, $($arg: $ty),*) -> $ret {
            #[cfg(target_arch = "x86_64")]
            use $crate::backend::cpu::simd::{Avx2, Avx512};
            use $crate::backend::cpu::simd::{Isa, Portable};
            match level.isa() {
                // SAFETY: portable lanes need no instruction set.
                Isa::Scalar => unsafe { $algorithm::<Portable, $($params)*>($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 | Isa::AvxVnni => $crate::backend::cpu::simd::compiled!(
                    avx2, "avx2,fma", Avx2<false>, ($($arg: $ty),*) -> $ret = $algorithm[$($generics)*][$($params)*]
                ),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 | Isa::Avx512Vnni => $crate::backend::cpu::simd::compiled!(
                    avx512, "avx512f,avx512bw,avx512dq,avx512vl", Avx512<false>,
                    ($($arg: $ty),*) -> $ret = $algorithm[$($generics)*][$($params)*]
                ),
            }
        }
    };
    ($(#[$doc:meta])* $vis:vis vnni fn $name:ident[$($generics:tt)*]($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty
        = $algorithm:ident[$($params:tt)*]) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name<$($generics)*>(level: $crate::backend::cpu::simd::Level, $($arg: $ty),*) -> $ret {
            #[cfg(target_arch = "x86_64")]
            use $crate::backend::cpu::simd::{Avx2, Avx512, Isa};
            match level.isa() {
                #[cfg(target_arch = "x86_64")]
                Isa::AvxVnni => $crate::backend::cpu::simd::compiled!(
                    avxvnni, "avx2,fma,avxvnni", Avx2<true>,
                    ($($arg: $ty),*) -> $ret = $algorithm[$($generics)*][$($params)*]
                ),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512Vnni => $crate::backend::cpu::simd::compiled!(
                    avx512vnni, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni", Avx512<true>,
                    ($($arg: $ty),*) -> $ret = $algorithm[$($generics)*][$($params)*]
                ),
                _ => {
                    $crate::backend::cpu::simd::dispatch!(
                        fn plain[$($generics)*]($($arg: $ty),*) -> $ret = $algorithm[$($params)*]
                    );
                    plain::<$($params)*>(level, $($arg),*)
                }
            }
        }
    };
}
pub(crate) use dispatch;

/// `each!(x in [a, b] => f(x))` is `[f(a), f(b)]`. The closure of `[a, b].map` would be compiled without the
/// instruction set of the surrounding function.
macro_rules! each {
    ($x:ident in [$($value:expr),+ $(,)?] => $result:expr) => {
        [$({ let $x = $value; $result }),+]
    };
}
pub(crate) use each;

/// Estimates `1 / x` by the instruction `rcpss`, with 12 bits. Processors differ in the estimate.
#[cfg(target_arch = "x86_64")]
pub(crate) fn estimate_inverse(x: f32) -> f32 {
    use std::arch::x86_64::{_mm_cvtss_f32, _mm_rcp_ss, _mm_set_ss};
    // SAFETY: every x86-64 CPU has SSE.
    unsafe { _mm_cvtss_f32(_mm_rcp_ss(_mm_set_ss(x))) }
}

/// One instruction set: registers and the operations on them.
///
/// # Safety
///
/// Every function may run only on a machine with the instruction set. Functions with pointers read or write whole
/// vectors; pointers need only the alignment of their element.
#[allow(clippy::missing_safety_doc, reason = "said above for all of them")]
pub(crate) trait Lanes: Copy + 'static {
    /// 32-bit lanes of a vector.
    const N: usize;
    /// Number of vectors that fit in registers.
    const REGISTERS: usize;
    /// `N` integers of 32 bits. Each operation defines whether they are signed.
    type I: Copy;
    /// `N` integers of 64 bits.
    type L: Copy;
    /// `N` doubles.
    type D: Copy;
    /// `N` singles.
    type F: Copy;
    /// One truth value per 32-bit lane.
    type M: Copy;

    /// Returns a vector with `x` in all 32-bit lanes.
    unsafe fn splat(x: i32) -> Self::I;
    /// Returns a vector with the low 16 bits of `x` in all 16-bit lanes.
    #[inline(always)]
    unsafe fn splat16(x: i32) -> Self::I {
        // SAFETY: the machine has the instructions, as the caller has promised.
        unsafe { Self::splat(x & 0xffff | x << 16) }
    }
    /// Reads `N` lanes of 32 bits.
    unsafe fn load(p: *const i32) -> Self::I;
    /// Reads `2 N` lanes of 16 bits.
    unsafe fn load16(p: *const u16) -> Self::I;
    /// Reads `2 N` bytes, widened to 16 bits.
    unsafe fn load16_u8(p: *const u8) -> Self::I;
    /// Reads `N` signed 16-bit values, widened to 32 bits.
    unsafe fn load_i16(p: *const i16) -> Self::I;
    /// Writes `N` lanes of 32 bits.
    unsafe fn store(p: *mut i32, a: Self::I);
    /// Writes `2 N` lanes of 16 bits.
    unsafe fn store16(p: *mut u16, a: Self::I);
    /// Writes the low 16 bits of each of the `N` lanes.
    unsafe fn store_low16(p: *mut u16, a: Self::I);
    /// Returns `table[index[i]]` for each lane; every index must be inside the table.
    unsafe fn gather(table: *const u32, index: Self::I) -> Self::I;

    unsafe fn add(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn sub(a: Self::I, b: Self::I) -> Self::I;
    /// Returns the low 32 bits of the product.
    unsafe fn mul(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn xor(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn shl<const K: u32>(a: Self::I) -> Self::I;
    /// Shifts right logically.
    unsafe fn shr<const K: u32>(a: Self::I) -> Self::I;
    /// Shifts right arithmetically.
    unsafe fn sra<const K: u32>(a: Self::I) -> Self::I;
    /// Shifts left by a variable count below 32.
    unsafe fn shl_by(a: Self::I, k: u32) -> Self::I;
    /// Shifts right logically by a variable count below 32.
    unsafe fn shr_by(a: Self::I, k: u32) -> Self::I;
    /// Shifts right arithmetically by a variable count below 32.
    unsafe fn sra_by(a: Self::I, k: u32) -> Self::I;
    /// Returns the signed minimum.
    unsafe fn min(a: Self::I, b: Self::I) -> Self::I;
    /// Returns the signed maximum.
    unsafe fn max(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn abs(a: Self::I) -> Self::I;

    /// Computes `lo(a) lo(b) + hi(a) hi(b)` of the signed 16-bit halves of each lane.
    unsafe fn madd16(a: Self::I, b: Self::I) -> Self::I;
    /// Computes `sum + madd16(a, b)`.
    #[inline(always)]
    unsafe fn dot16(sum: Self::I, a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: the machine has the instructions, as the caller has promised.
        unsafe { Self::add(sum, Self::madd16(a, b)) }
    }
    unsafe fn add16(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn sub16(a: Self::I, b: Self::I) -> Self::I;
    /// Returns the low halves of the 16-bit products.
    unsafe fn mul16(a: Self::I, b: Self::I) -> Self::I;
    /// Returns the high halves of the unsigned 16-bit products.
    unsafe fn mulhi_u16(a: Self::I, b: Self::I) -> Self::I;
    /// Returns the high halves of the signed 16-bit products.
    unsafe fn mulhi16(a: Self::I, b: Self::I) -> Self::I;
    /// Computes `(a b + 2^14) >> 15` of signed 16-bit lanes, not both -2^15.
    unsafe fn mul_round16(a: Self::I, b: Self::I) -> Self::I;
    /// Returns the signed minimum of 16-bit lanes.
    unsafe fn min16(a: Self::I, b: Self::I) -> Self::I;
    /// Returns the unsigned minimum of 16-bit lanes.
    unsafe fn min_u16(a: Self::I, b: Self::I) -> Self::I;
    /// Returns the signed maximum of 16-bit lanes.
    unsafe fn max16(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn abs16(a: Self::I) -> Self::I;
    /// Sets all bits of the 16-bit lanes that are equal, none of the others.
    unsafe fn eq16(a: Self::I, b: Self::I) -> Self::I;
    /// Returns 32-bit lanes with a 16-bit lane of `a` in the low and that of `b` in the high half, in an order that
    /// [`Lanes::unzip16`] restores.
    unsafe fn zip16(a: Self::I, b: Self::I) -> [Self::I; 2];
    /// Returns 16-bit lanes from the 32-bit lanes in the order of [`Lanes::zip16`], saturated.
    unsafe fn unzip16(a: [Self::I; 2]) -> Self::I;
    /// Sign-extends the 16-bit lanes in their order.
    unsafe fn widen16(a: Self::I) -> [Self::I; 2];
    /// Zero-extends the 16-bit lanes in their order.
    unsafe fn widen_u16(a: Self::I) -> [Self::I; 2];
    /// Combines the low half of each lane of `a` with the high half of the same lane of `b`.
    unsafe fn blend16(a: Self::I, b: Self::I) -> Self::I;

    /// Compares `a > b`, signed.
    unsafe fn gt(a: Self::I, b: Self::I) -> Self::M;
    /// Selects the lanes below `n`.
    unsafe fn first(n: usize) -> Self::M;
    unsafe fn both(a: Self::M, b: Self::M) -> Self::M;
    /// Returns the lanes of `a` that are not in `b`.
    unsafe fn except(a: Self::M, b: Self::M) -> Self::M;
    unsafe fn any(m: Self::M) -> bool;
    /// Counts the lanes in the mask.
    unsafe fn count(m: Self::M) -> u32;
    /// Returns `m ? a : b`.
    unsafe fn select(m: Self::M, a: Self::I, b: Self::I) -> Self::I;
    /// Returns `m ? a : 0`.
    unsafe fn keep(m: Self::M, a: Self::I) -> Self::I;

    /// Returns the same vectors. Compilers must compute them before anything that is pinned later. Otherwise they
    /// reorder instructions to use few registers, and separate instructions that would keep all ports of the CPU busy
    /// side by side. Costs nothing.
    #[inline(always)]
    unsafe fn pin(a: [Self::I; 2]) -> [Self::I; 2] {
        a
    }
    /// Does the same as [`Lanes::pin`].
    #[inline(always)]
    unsafe fn pin_f64(a: Self::D) -> Self::D {
        a
    }

    /// Converts an unsigned integer of at least 65536 to binary32 bits that are correct in the exponent and the 15
    /// highest fraction bits: the 16 leading bits of `a` and their position. The rest of the fraction is undefined.
    unsafe fn leading_bits(a: Self::I) -> Self::I;
    /// Multiplies signed lanes, rounded to binary32, by the numbers with the binary32 bits `b`. Returns bits.
    unsafe fn mul_bits(a: Self::I, b: Self::I) -> Self::I;
    /// Returns the sum of the signed lanes.
    unsafe fn sum(a: Self::I) -> i64;

    /// Returns the full products of signed lanes.
    unsafe fn mul_wide(a: Self::I, b: Self::I) -> Self::L;
    /// Returns the full products of unsigned lanes.
    unsafe fn mul_wide_u(a: Self::I, b: Self::I) -> Self::L;
    /// Returns the full products of the low 32 bits of each lane of `a`, signed, with the lanes of `b`.
    unsafe fn mul_low(a: Self::L, b: Self::I) -> Self::L;
    /// Sign-extends.
    unsafe fn widen(a: Self::I) -> Self::L;
    /// Zero-extends.
    unsafe fn widen_u(a: Self::I) -> Self::L;
    unsafe fn splat64(x: i64) -> Self::L;
    unsafe fn add64(a: Self::L, b: Self::L) -> Self::L;
    unsafe fn sub64(a: Self::L, b: Self::L) -> Self::L;
    unsafe fn and64(a: Self::L, b: Self::L) -> Self::L;
    /// Shifts right logically.
    unsafe fn shr64<const K: u32>(a: Self::L) -> Self::L;
    /// Shifts right arithmetically by a variable count below 64.
    unsafe fn sra64_by(a: Self::L, k: u32) -> Self::L;
    /// Returns the low 32 bits of each lane.
    unsafe fn low(a: Self::L) -> Self::I;
    /// Returns the high 32 bits of each lane.
    unsafe fn high(a: Self::L) -> Self::I;
    /// Returns the wrapping sum of the lanes.
    unsafe fn sum64(a: Self::L) -> i64;

    unsafe fn splat_f32(x: f32) -> Self::F;
    /// Reads `N` singles.
    unsafe fn load_f32(p: *const f32) -> Self::F;
    /// Writes `N` singles.
    unsafe fn store_f32(p: *mut f32, a: Self::F);
    /// Converts signed integers to singles, rounding those with more than 24 bits.
    unsafe fn to_f32(a: Self::I) -> Self::F;
    unsafe fn add_f32(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub_f32(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul_f32(a: Self::F, b: Self::F) -> Self::F;
    /// Computes `a b + c` with one rounding.
    unsafe fn fma_f32(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    unsafe fn div_f32(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sqrt_f32(a: Self::F) -> Self::F;
    /// Estimates `1 / a` as the instruction `rcpss` does ([`estimate_inverse`]).
    #[cfg(target_arch = "x86_64")]
    unsafe fn estimate_inverse(a: Self::F) -> Self::F;
    /// Returns `a < b ? a : b`.
    unsafe fn min_f32(a: Self::F, b: Self::F) -> Self::F;
    /// Returns `a > b ? a : b`.
    unsafe fn max_f32(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn abs_f32(a: Self::F) -> Self::F;
    /// Compares `a > b`.
    unsafe fn gt_f32(a: Self::F, b: Self::F) -> Self::M;
    /// Compares `a >= b`.
    unsafe fn ge_f32(a: Self::F, b: Self::F) -> Self::M;
    /// Returns `m ? a : 0`.
    unsafe fn keep_f32(m: Self::M, a: Self::F) -> Self::F;
    /// Returns `m ? a : b`.
    unsafe fn select_f32(m: Self::M, a: Self::F, b: Self::F) -> Self::F;
    /// Converts singles to doubles, in an order that [`Lanes::narrow_f64`] undoes.
    unsafe fn widen_f32(a: Self::F) -> Self::D;
    /// Rounds doubles from [`Lanes::widen_f32`], or computed lane by lane from such, to singles.
    unsafe fn narrow_f64(a: Self::D) -> Self::F;
    /// Reads `N` rows of `N` singles, which begin `stride` apart, and writes their columns as rows of the same stride.
    unsafe fn transpose_f32(from: *const f32, to: *mut f32, stride: usize);

    unsafe fn splat_f64(x: f64) -> Self::D;
    /// Reads `N` doubles, in an order that [`Lanes::store_f64`] undoes.
    unsafe fn load_f64(p: *const f64) -> Self::D;
    /// Writes `N` doubles that were read by [`Lanes::load_f64`], or computed lane by lane from such.
    unsafe fn store_f64(p: *mut f64, a: Self::D);
    /// Converts signed integers to doubles (exact).
    unsafe fn to_f64(a: Self::I) -> Self::D;
    /// Returns the numbers with these binary32 bits.
    unsafe fn from_f32(a: Self::I) -> Self::D;
    /// Rounds 64-bit integers once to binary32, then widens them.
    unsafe fn to_f32_f64(a: Self::L) -> Self::D;
    /// Truncates to signed 32 bits. Values below -2^31 give -2^31; larger ones must be below 2^31.
    unsafe fn trunc(a: Self::D) -> Self::I;
    unsafe fn add_f64(a: Self::D, b: Self::D) -> Self::D;
    unsafe fn sub_f64(a: Self::D, b: Self::D) -> Self::D;
    unsafe fn mul_f64(a: Self::D, b: Self::D) -> Self::D;
    unsafe fn div_f64(a: Self::D, b: Self::D) -> Self::D;
    unsafe fn min_f64(a: Self::D, b: Self::D) -> Self::D;
    unsafe fn max_f64(a: Self::D, b: Self::D) -> Self::D;
    unsafe fn floor_f64(a: Self::D) -> Self::D;
    /// Returns the bits of binary64.
    unsafe fn to_bits(a: Self::D) -> Self::L;
    unsafe fn from_bits(a: Self::L) -> Self::D;
    /// Compares `a >= b`.
    unsafe fn ge_f64(a: Self::D, b: Self::D) -> Self::M;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_and_begin_with_the_plain_one() {
        let levels: Vec<Level> = Level::available().collect();
        assert_eq!(levels[0].name(), "scalar");
        assert!(levels.is_sorted());
        assert!(levels.contains(&Level::detect()));
    }

    /// Runs an operation of two vectors on 16 numbers, in as many vectors as needed.
    macro_rules! lanewise {
        ($level:expr, $x:expr, $y:expr, |$v:ident, $a:ident, $b:ident| $op:expr) => {{
            /// # Safety
            ///
            /// The CPU must have the instructions of the lanes, which `dispatch!` sees to.
            #[inline(always)]
            unsafe fn algorithm<$v: Lanes>(x: &[i32; 16], y: &[i32; 16]) -> [i32; 16] {
                let mut out = [0; 16];
                for i in (0..16).step_by($v::N) {
                    // SAFETY: 16 numbers hold a whole number of vectors.
                    unsafe {
                        let ($a, $b) = ($v::load(x[i..].as_ptr()), $v::load(y[i..].as_ptr()));
                        $v::store(out[i..].as_mut_ptr(), $op);
                    }
                }
                out
            }
            dispatch!(vnni fn run[](x: &[i32; 16], y: &[i32; 16]) -> [i32; 16] = algorithm[]);
            run($level, $x, $y)
        }};
    }

    /// The vector instructions give the estimate of `rcpss` for each of the 2^23 fractions.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn vectors_estimate_inverses_as_single_numbers_do() {
        /// # Safety
        ///
        /// The CPU must have the instructions of the lanes, which `dispatch!` sees to.
        #[inline(always)]
        unsafe fn algorithm<V: Lanes>(first: u32, out: &mut [f32; 16]) {
            let numbers: [f32; 16] = std::array::from_fn(|i| f32::from_bits(first + i as u32));
            for i in (0..16).step_by(V::N) {
                // SAFETY: 16 numbers hold a whole number of vectors.
                unsafe {
                    let estimate = V::estimate_inverse(V::load_f32(numbers[i..].as_ptr()));
                    V::store_f32(out[i..].as_mut_ptr(), estimate);
                }
            }
        }
        dispatch!(fn estimate[](first: u32, out: &mut [f32; 16]) -> () = algorithm[]);
        let ends = [0, 1, 0x00ff_ff00, 0x7e7f_fff0, 0x7eff_fff0, 0x7f7f_fff0, 0x8000_0000, 0xff7f_fff0];
        let all = (0x3f80_0000..0x4000_0000u32).step_by(16).chain(ends);
        for (level, first) in all.flat_map(|first| Level::available().map(move |level| (level, first))) {
            let mut found = [0.0; 16];
            estimate(level, first, &mut found);
            let expected: [f32; 16] =
                std::array::from_fn(|i| estimate_inverse(f32::from_bits(first + i as u32)));
            assert_eq!(found.map(f32::to_bits), expected.map(f32::to_bits), "{level:?} {first:#x}");
        }
    }

    fn each(x: &[i32; 16], y: &[i32; 16], f: impl Fn(i32, i32) -> i32) -> [i32; 16] {
        std::array::from_fn(|i| f(x[i], y[i]))
    }

    proptest::proptest! {
        /// Covers operations that an instruction set lacks and builds from others.
        #[test]
        fn emulated_operations_agree_with_plain_arithmetic(x: [i32; 16], y: [i32; 16]) {
            for level in Level::available() {
                let l = lanewise!(level, &x, &y, |V, a, b| V::low(V::sra64_by(V::mul_wide(a, b), 17)));
                assert_eq!(l, each(&x, &y, |a, b| ((i64::from(a) * i64::from(b)) >> 17) as i32));
                let h = lanewise!(level, &x, &y, |V, a, b| V::high(V::mul_wide_u(a, b)));
                assert_eq!(h, each(&x, &y, |a, b| ((u64::from(a as u32) * u64::from(b as u32)) >> 32) as i32));
                let t = lanewise!(level, &x, &y, |V, a, b| V::trunc(V::div_f64(V::to_f64(a), V::to_f64(b))));
                assert_eq!(t, each(&x, &y, |a, b| (f64::from(a) / f64::from(b)) as i32));
                let m = lanewise!(level, &x, &y, |V, a, b| V::madd16(a, b));
                let halves = |a: i32| (i32::from(a as i16), a >> 16);
                let both = |a, b| {
                    let ((al, ah), (bl, bh)) = (halves(a), halves(b));
                    (al * bl).wrapping_add(ah * bh)
                };
                assert_eq!(m, each(&x, &y, both));
                let dot = lanewise!(level, &x, &y, |V, a, b| V::dot16(b, a, b));
                assert_eq!(dot, each(&x, &y, |a, b| b.wrapping_add(both(a, b))));
                let large = x.map(|x| x | 1 << 16);
                let e = lanewise!(level, &large, &y, |V, a, b| V::xor(
                    V::and(V::shr::<8>(V::leading_bits(a)), b),
                    V::keep(V::ge_f64(V::to_f64(a), V::to_f64(b)), V::splat(-1))
                ));
                assert_eq!(e, each(&large, &y, |a, b| {
                    let key = (142 + 16 - a.leading_zeros()) << 15 | ((a as u32) << a.leading_zeros()) >> 16 & 0x7fff;
                    (key as i32 & b) ^ if a >= b { -1 } else { 0 }
                }));
            }
        }

        #[test]
        fn sixteen_bits_compare_and_singles_multiply(x: [i32; 16], y: [i32; 16]) {
            for level in Level::available() {
                let e = lanewise!(level, &x, &y, |V, a, b| V::eq16(V::and(a, V::splat(0x0001_0003)), V::and(b, V::splat(0x0001_0003))));
                assert_eq!(e, each(&x, &y, |a, b| {
                    let equal = |mask: i32| if (a ^ b) & mask == 0 { 0xffff } else { 0 };
                    equal(3) | equal(0x10000) << 16
                }));
                let m = lanewise!(level, &x, &y, |V, a, b| V::min_u16(a, b));
                assert_eq!(m, each(&x, &y, |a, b| {
                    let least = |shift: u32| i32::from(((a >> shift) as u16).min((b >> shift) as u16));
                    least(0) | least(16) << 16
                }));
                const THIRD: f32 = 1.0 / 3.0;
                let m = lanewise!(level, &x, &y, |V, a, _b| V::mul_bits(a, V::splat(THIRD.to_bits() as i32)));
                assert_eq!(m, each(&x, &y, |a, _| (a as f32 * THIRD).to_bits() as i32));
                let d = lanewise!(level, &x, &y, |V, a, _b| {
                    V::trunc(V::mul_f64(V::from_f32(V::mul_bits(a, V::splat(THIRD.to_bits() as i32))), V::splat_f64(0.5)))
                });
                assert_eq!(d, each(&x, &y, |a, _| (f64::from(a as f32 * THIRD) * 0.5) as i32));
            }
        }

        #[test]
        fn rows_become_columns(x: [i32; 16], y: [i32; 16]) {
            /// # Safety
            ///
            /// The CPU must have the instructions of the lanes, which `dispatch!` sees to.
            #[inline(always)]
            unsafe fn algorithm<V: Lanes>(from: &[[f32; 17]; 16], to: &mut [[f32; 17]; 16]) -> usize {
                // SAFETY: vectors have at most 16 lanes, and both arrays 16 rows.
                unsafe { V::transpose_f32(from[0].as_ptr(), to[0].as_mut_ptr(), 17) };
                V::N
            }
            dispatch!(fn run[](from: &[[f32; 17]; 16], to: &mut [[f32; 17]; 16]) -> usize = algorithm[]);
            let from = std::array::from_fn(|i| std::array::from_fn(|j| (x[i] ^ y[j % 16].rotate_left(7)) as f32));
            for level in Level::available() {
                let mut to = [[0.5; 17]; 16];
                let n = run(level, &from, &mut to);
                for (i, row) in to.iter().enumerate() {
                    for (j, value) in row.iter().enumerate() {
                        assert_eq!(*value, if i < n && j < n { from[j][i] } else { 0.5 }, "{level:?} {i} {j}");
                    }
                }
            }
        }

        #[test]
        fn wide_integers_round_to_single_precision_once(x: [i32; 16], y: [i32; 16]) {
            for level in Level::available() {
                let scaled = lanewise!(level, &x, &y, |V, a, b| {
                    let wide = V::to_f32_f64(V::mul_wide(a, b));
                    V::trunc(V::div_f64(wide, V::splat_f64(8589934592.0)))
                });
                let expect = |a, b| (f64::from((i64::from(a) * i64::from(b)) as f32) / 8589934592.0) as i32;
                assert_eq!(scaled, each(&x, &y, expect));
            }
        }
    }
}
