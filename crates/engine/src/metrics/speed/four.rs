// SPDX-License-Identifier: MPL-2.0

//! Four singles, one for each of four planes. The long chain of roots and quotients of one plane takes hardly longer
//! for four planes side by side.
//!
//! On x86-64 these are vectors that every such CPU has. Compilers would vectorise arrays too, but here they would take
//! several columns of a matrix at a time and shuffle them.

use std::ops::{Add, Div, Mul, Sub};

/// Number of lanes.
pub const LANES: usize = 4;

#[cfg(target_arch = "x86_64")]
pub use vector::Four;

#[cfg(not(target_arch = "x86_64"))]
pub use plain::Four;

#[cfg(any(test, not(target_arch = "x86_64")))]
mod plain {
    use super::*;

    #[derive(Clone, Copy)]
    pub struct Four([f32; LANES]);

    #[derive(Clone, Copy)]
    pub struct Truth([bool; LANES]);

    impl From<[f32; LANES]> for Four {
        fn from(lanes: [f32; LANES]) -> Self {
            Self(lanes)
        }
    }

    impl From<Four> for [f32; LANES] {
        fn from(four: Four) -> Self {
            four.0
        }
    }

    impl Four {
        fn zip<T>(self, other: Self, f: impl Fn(f32, f32) -> T) -> [T; LANES] {
            std::array::from_fn(|i| f(self.0[i], other.0[i]))
        }

        pub fn abs(self) -> Self {
            Self(self.0.map(f32::abs))
        }

        pub fn sqrt(self) -> Self {
            Self(self.0.map(f32::sqrt))
        }

        pub fn gt(self, other: Self) -> Truth {
            Truth(self.zip(other, |a, b| a > b))
        }

        pub fn is_zero(self) -> Truth {
            Truth(self.0.map(|a| a == 0.0))
        }

        /// Computes one over the root, in double precision.
        pub fn inverse_root(self) -> Self {
            Self(self.0.map(|a| (1.0 / f64::from(a).sqrt()) as f32))
        }

        /// Computes `-a b / 2` in double precision.
        pub fn minus_half_of(self, other: Self) -> Self {
            Self(self.zip(other, |a, b| (-0.5 * f64::from(a) * f64::from(b)) as f32))
        }
    }

    impl Truth {
        /// Returns `a` in the lanes that are true, `b` in the others.
        pub fn choose(self, a: Four, b: Four) -> Four {
            Four(std::array::from_fn(|i| if self.0[i] { a.0[i] } else { b.0[i] }))
        }
    }

    impl Add for Four {
        type Output = Self;
        fn add(self, other: Self) -> Self {
            Self(self.zip(other, |a, b| a + b))
        }
    }

    impl Sub for Four {
        type Output = Self;
        fn sub(self, other: Self) -> Self {
            Self(self.zip(other, |a, b| a - b))
        }
    }

    impl Mul for Four {
        type Output = Self;
        fn mul(self, other: Self) -> Self {
            Self(self.zip(other, |a, b| a * b))
        }
    }

    impl Div for Four {
        type Output = Self;
        fn div(self, other: Self) -> Self {
            Self(self.zip(other, |a, b| a / b))
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod vector {
    use std::arch::x86_64::*;

    use super::*;

    #[derive(Clone, Copy)]
    pub struct Four(__m128);

    #[derive(Clone, Copy)]
    pub struct Truth(__m128);

    impl From<[f32; LANES]> for Four {
        #[inline(always)]
        fn from([a, b, c, d]: [f32; LANES]) -> Self {
            // SAFETY: every x86-64 CPU has SSE.
            Self(unsafe { _mm_setr_ps(a, b, c, d) })
        }
    }

    impl From<Four> for [f32; LANES] {
        #[inline(always)]
        fn from(four: Four) -> Self {
            let mut lanes = [0.0; LANES];
            // SAFETY: every x86-64 CPU has SSE, and the array has room for a vector.
            unsafe { _mm_storeu_ps(lanes.as_mut_ptr(), four.0) };
            lanes
        }
    }

    impl Four {
        #[inline(always)]
        pub fn abs(self) -> Self {
            // SAFETY: every x86-64 CPU has SSE.
            Self(unsafe { _mm_andnot_ps(_mm_set1_ps(-0.0), self.0) })
        }

        #[inline(always)]
        pub fn sqrt(self) -> Self {
            // SAFETY: every x86-64 CPU has SSE.
            Self(unsafe { _mm_sqrt_ps(self.0) })
        }

        #[inline(always)]
        pub fn gt(self, other: Self) -> Truth {
            // SAFETY: every x86-64 CPU has SSE.
            Truth(unsafe { _mm_cmpgt_ps(self.0, other.0) })
        }

        #[inline(always)]
        pub fn is_zero(self) -> Truth {
            // SAFETY: every x86-64 CPU has SSE.
            Truth(unsafe { _mm_cmpeq_ps(self.0, _mm_setzero_ps()) })
        }

        /// Widens the first and the last two lanes.
        #[inline(always)]
        fn widened(self) -> [__m128d; 2] {
            // SAFETY: every x86-64 CPU has SSE2.
            unsafe { [_mm_cvtps_pd(self.0), _mm_cvtps_pd(_mm_movehl_ps(self.0, self.0))] }
        }

        #[inline(always)]
        fn narrowed([a, b]: [__m128d; 2]) -> Self {
            // SAFETY: every x86-64 CPU has SSE2.
            Self(unsafe { _mm_movelh_ps(_mm_cvtpd_ps(a), _mm_cvtpd_ps(b)) })
        }

        /// Computes one over the root, in double precision.
        #[inline(always)]
        pub fn inverse_root(self) -> Self {
            // SAFETY: every x86-64 CPU has SSE2.
            Self::narrowed(self.widened().map(|a| unsafe { _mm_div_pd(_mm_set1_pd(1.0), _mm_sqrt_pd(a)) }))
        }

        /// Computes `-a b / 2` in double precision.
        #[inline(always)]
        pub fn minus_half_of(self, other: Self) -> Self {
            let ([a, b], [c, d]) = (self.widened(), other.widened());
            // SAFETY: every x86-64 CPU has SSE2.
            let product = |a, b| unsafe { _mm_mul_pd(_mm_mul_pd(_mm_set1_pd(-0.5), a), b) };
            Self::narrowed([product(a, c), product(b, d)])
        }
    }

    impl Truth {
        /// Returns `a` in the lanes that are true, `b` in the others.
        #[inline(always)]
        pub fn choose(self, a: Four, b: Four) -> Four {
            // SAFETY: every x86-64 CPU has SSE.
            Four(unsafe { _mm_or_ps(_mm_and_ps(self.0, a.0), _mm_andnot_ps(self.0, b.0)) })
        }
    }

    impl Add for Four {
        type Output = Self;
        #[inline(always)]
        fn add(self, other: Self) -> Self {
            // SAFETY: every x86-64 CPU has SSE.
            Self(unsafe { _mm_add_ps(self.0, other.0) })
        }
    }

    impl Sub for Four {
        type Output = Self;
        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            // SAFETY: every x86-64 CPU has SSE.
            Self(unsafe { _mm_sub_ps(self.0, other.0) })
        }
    }

    impl Mul for Four {
        type Output = Self;
        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            // SAFETY: every x86-64 CPU has SSE.
            Self(unsafe { _mm_mul_ps(self.0, other.0) })
        }
    }

    impl Div for Four {
        type Output = Self;
        #[inline(always)]
        fn div(self, other: Self) -> Self {
            // SAFETY: every x86-64 CPU has SSE.
            Self(unsafe { _mm_div_ps(self.0, other.0) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::plain;
    use super::{Four, LANES};

    /// Evaluates with vectors and with arrays.
    macro_rules! both {
        (|$a:ident, $b:ident| $result:expr, $x:expr, $y:expr) => {{
            let vectors: [f32; LANES] = {
                let ($a, $b) = (Four::from($x), Four::from($y));
                $result.into()
            };
            let arrays: [f32; LANES] = {
                let ($a, $b) = (plain::Four::from($x), plain::Four::from($y));
                $result.into()
            };
            assert_eq!(vectors.map(f32::to_bits), arrays.map(f32::to_bits), "{:?} {:?}", $x, $y);
        }};
    }

    proptest::proptest! {
        #[test]
        fn vectors_do_what_arrays_do(a in -1e9f32..1e9, b in -2f32..2.0, c in 1e-9f32..1e-3, d in 1f32..4.0) {
            for (x, y) in [([a, b, c, d], [d, c, b, a]), ([b, 0.0, -0.0, a], [b, 1.0, c, d])] {
                both!(|x, y| x + y, x, y);
                both!(|x, y| x - y, x, y);
                both!(|x, y| x * y, x, y);
                both!(|x, y| x / (y * y), x, y);
                both!(|x, y| (x * x + y.abs()).sqrt(), x, y);
                both!(|x, y| (x * x + y * y).inverse_root(), x, y);
                both!(|x, y| x.minus_half_of(y), x, y);
                both!(|x, y| x.gt(y).choose(x, y), x, y);
                both!(|x, y| x.is_zero().choose(y, x), x, y);
            }
        }
    }
}
