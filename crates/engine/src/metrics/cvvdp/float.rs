// SPDX-License-Identifier: MPL-2.0

//! The functions of pixels, in single precision. Products and sums are fused only where [`f32::mul_add`] stands.
//! `kernels/cvvdp.hip` has the same functions.

/// Coefficients of [`log2`], and of [`exp2`].
const LOG2: [f32; 8] =
    [1.4426948, -0.72135717, 0.48093945, -0.36008722, 0.28670746, -0.25006905, 0.23689038, -0.14574447];
#[allow(clippy::approx_constant, reason = "a coefficient of an approximation")]
const EXP2: [f32; 6] = [1.0, 0.693147, 0.24022242, 0.055507336, 0.009671513, 0.0013264727];
/// Added to a number, it leaves the nearest integer in the lowest bits.
const TO_INTEGER: f32 = 12582912.0; // 1.5 x 2^23

/// Computes the binary logarithm of a number that is not below 2^-126.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    let bits = x.to_bits().cast_signed();
    let e = (bits.wrapping_sub(0x3f35_04f3)) >> 23;
    let t = f32::from_bits(bits.wrapping_sub(e << 23).cast_unsigned()) - 1.0;
    let mut p = LOG2[7];
    p = p.mul_add(t, LOG2[6]);
    p = p.mul_add(t, LOG2[5]);
    p = p.mul_add(t, LOG2[4]);
    p = p.mul_add(t, LOG2[3]);
    p = p.mul_add(t, LOG2[2]);
    p = p.mul_add(t, LOG2[1]);
    p = p.mul_add(t, LOG2[0]);
    p.mul_add(t, e as f32)
}

/// Computes `2^y`, with `y` limited to -126 and 126.
#[inline(always)]
pub fn exp2(y: f32) -> f32 {
    let y = smaller(larger(y, -126.0), 126.0);
    let integer = y + TO_INTEGER;
    let f = y - (integer - TO_INTEGER);
    let mut p = EXP2[5];
    p = p.mul_add(f, EXP2[4]);
    p = p.mul_add(f, EXP2[3]);
    p = p.mul_add(f, EXP2[2]);
    p = p.mul_add(f, EXP2[1]);
    p = p.mul_add(f, EXP2[0]);
    f32::from_bits(p.to_bits().wrapping_add(integer.to_bits() << 23))
}

/// Computes `x^e` for `x` not below 2^-126.
#[inline(always)]
pub fn pow(x: f32, e: f32) -> f32 {
    exp2(log2(x) * e)
}

#[inline(always)]
pub fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[inline(always)]
pub fn smaller(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_as_exact_as_the_definition_says() {
        for i in 0..200_000u32 {
            let x = f32::from_bits(0x0080_0000 + i * 10_000);
            let exact = f64::from(x).log2();
            let error = (f64::from(log2(x)) - exact).abs();
            assert!(error <= 9.1e-8 + 1.1e-7 * exact.abs(), "{x} {error}");
            let y = i as f32 * 1.26e-3 - 126.0;
            let exact = f64::from(y).exp2();
            assert!((f64::from(exp2(y)) - exact).abs() <= 1.7e-7 * exact, "{y}");
        }
        assert_eq!(
            [log2(1.0), exp2(-126.0), exp2(-999.0), exp2(7.0)],
            [0.0, 2f32.powi(-126), 2f32.powi(-126), 128.0]
        );
    }
}
