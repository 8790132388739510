// SPDX-License-Identifier: MPL-2.0

//! Functions in double precision for the tables, as series of fixed length: C libraries differ in their last digits.

use std::f64::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E, PI};

/// Computes the binary logarithm of a normal number above zero.
pub fn log2(x: f64) -> f64 {
    let bits = x.to_bits();
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1022 << 52);
    let exponent = (bits >> 52) as f64 - 1022.0;
    let (m, e) =
        if mantissa < FRAC_1_SQRT_2 { (mantissa * 2.0, exponent - 1.0) } else { (mantissa, exponent) };
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut sum = 1.0 / 23.0;
    for j in (0..=10).rev() {
        sum = sum * z + 1.0 / f64::from(2 * j + 1);
    }
    e + ((s + s) * sum) * LOG2_E
}

/// Computes `2^y` for `y` between -1000 and 1000.
pub fn exp2(y: f64) -> f64 {
    let n = (y + 0.5).floor();
    let r = (y - n) * LN_2;
    let mut sum = 1.0;
    for j in (1..=14).rev() {
        sum = 1.0 + (sum * r) / f64::from(j);
    }
    sum * f64::from_bits(((n as i64 + 1023) << 52) as u64)
}

/// Computes `x^y` for `x` not below zero.
pub fn pow(x: f64, y: f64) -> f64 {
    if x == 0.0 { 0.0 } else { exp2(y * log2(x)) }
}

/// Computes the cosine of `k / n` turns.
pub fn cos_turn(k: i64, n: i64) -> f64 {
    let num = 2 * k.rem_euclid(n);
    let num = if num > n { 2 * n - num } else { num };
    let (num, sign) = if 2 * num > n { (n - num, -1.0) } else { (num, 1.0) };
    let x = PI * num as f64 / n as f64;
    let z = x * x;
    let mut sum = 1.0;
    for j in (1..=13).rev() {
        sum = 1.0 - (sum * z) / f64::from((2 * j - 1) * (2 * j));
    }
    sign * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_right_to_the_last_digits() {
        let near = |found: f64, expected: f64, unit: f64| {
            assert!((found - expected).abs() <= unit * 1.5e-15, "{found} {expected}");
        };
        for i in 1..2000 {
            let x = f64::from(i) * 0.37;
            near(log2(x), x.log2(), x.log2().abs().max(1.0));
            near(exp2(x / 10.0 - 40.0), (x / 10.0 - 40.0).exp2(), (x / 10.0 - 40.0).exp2() * 20.0);
            near(cos_turn(i.into(), 61), (f64::from(i % 61) / 61.0 * 2.0 * PI).cos(), 2.0);
            near(cos_turn((-i).into(), 61), cos_turn(i.into(), 61), 0.0);
        }
        assert_eq!([log2(1.0), log2(8.0), exp2(5.0), pow(0.0, 3.0)], [0.0, 3.0, 32.0, 0.0]);
    }
}
