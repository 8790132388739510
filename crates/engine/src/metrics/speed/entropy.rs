// SPDX-License-Identifier: MPL-2.0

//! The entropies of blocks: sums of logarithms, rounded to single precision after each.
//!
//! Nearly all of what is computed here is thrown away by that rounding, so a logarithm of a few operations, of which
//! compilers do several at a time, decides it as well as the library's does: unless the sum is all but half way between two
//! numbers, which shows, and then the library is asked.

use std::f32::consts::FRAC_1_SQRT_2;
use std::f64::consts::LOG2_E;

use super::ELEMENTS;

/// log2(2 pi e)
pub const LOG2_2PIE: f64 = 4.094191170361282;
/// Blocks that are done at once.
const GROUP: usize = 16;
/// How far a sum may be off: twice what a logarithm is, and far more than what the two additions are rounded by, in the
/// library's way and in this one. The sums are below 2^13, where doubles are 2^-40 apart.
const DOUBT: f64 = 6e-11;

/// The entropies of blocks of the given variances.
pub fn entropies(eigenvalues: &[f32; ELEMENTS], variances: &[f32], sigma: f32) -> Vec<f32> {
    let mut entropies = Vec::with_capacity(variances.len());
    for variances in variances.chunks(GROUP) {
        let mut group = [0.0; GROUP];
        group[..variances.len()].copy_from_slice(variances);
        let sums = sums(eigenvalues, &group, sigma);
        let decided = |(variance, sum): (&f32, Option<f32>)| {
            sum.unwrap_or_else(|| exact(eigenvalues, *variance, sigma))
        };
        entropies.extend(variances.iter().zip(sums).map(decided));
    }
    entropies
}

/// The entropy of a block as libvmaf computes it.
fn exact(eigenvalues: &[f32; ELEMENTS], variance: f32, sigma: f32) -> f32 {
    eigenvalues.iter().fold(0.0, |sum, value| {
        (f64::from(sum) + (f64::from(positive(*value) * variance + sigma).log2() + LOG2_2PIE)) as f32
    })
}

fn positive(eigenvalue: f32) -> f32 {
    if eigenvalue < 0.0 { 0.0 } else { eigenvalue }
}

/// The same of several blocks; `None` where it is in doubt.
fn sums(eigenvalues: &[f32; ELEMENTS], variances: &[f32; GROUP], sigma: f32) -> [Option<f32>; GROUP] {
    #[cfg(target_arch = "x86_64")]
    {
        /// # Safety
        ///
        /// The CPU must have AVX-512F and AVX-512DQ.
        #[target_feature(enable = "avx512f,avx512dq")]
        fn avx512(
            eigenvalues: &[f32; ELEMENTS],
            variances: &[f32; GROUP],
            sigma: f32,
        ) -> [Option<f32>; GROUP] {
            sums_of(eigenvalues, variances, sigma)
        }
        /// # Safety
        ///
        /// The CPU must have AVX2.
        #[target_feature(enable = "avx2")]
        fn avx2(eigenvalues: &[f32; ELEMENTS], variances: &[f32; GROUP], sigma: f32) -> [Option<f32>; GROUP] {
            sums_of(eigenvalues, variances, sigma)
        }
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
            // SAFETY: the CPU has AVX-512F and AVX-512DQ.
            return unsafe { avx512(eigenvalues, variances, sigma) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has AVX2.
            return unsafe { avx2(eigenvalues, variances, sigma) };
        }
    }
    sums_of(eigenvalues, variances, sigma)
}

#[inline(always)]
fn sums_of(eigenvalues: &[f32; ELEMENTS], variances: &[f32; GROUP], sigma: f32) -> [Option<f32>; GROUP] {
    let mut sums = [0f32; GROUP];
    let mut doubts = [0u32; GROUP];
    for value in eigenvalues {
        let value = positive(*value);
        for i in 0..GROUP {
            let x = value * variances[i] + sigma;
            let sum = f64::from(sums[i]) + (log2(x) + LOG2_2PIE);
            let (below, above) = ((sum - DOUBT) as f32, (sum + DOUBT) as f32);
            let normal = (f32::MIN_POSITIVE..=f32::MAX).contains(&x);
            doubts[i] |= u32::from((below != above) | !normal);
            sums[i] = below;
        }
    }
    std::array::from_fn(|i| (doubts[i] == 0).then_some(sums[i]))
}

/// The logarithm of a normal positive number, less than 3e-11 off: the series of 2 artanh((m - 1) / (m + 1)) of its mantissa
/// m, which is taken from the root of one half to that of two.
#[inline(always)]
fn log2(x: f32) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits as i32).wrapping_sub(FRAC_1_SQRT_2.to_bits() as i32) >> 23;
    let mantissa = f64::from(f32::from_bits(bits.wrapping_sub((exponent as u32) << 23)));
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut series = 0.0;
    for n in [11, 9, 7, 5, 3, 1] {
        series = series * square + 2.0 * LOG2_E / f64::from(n);
    }
    f64::from(exponent) + s * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_as_close_as_is_promised() {
        for bits in (f32::MIN_POSITIVE.to_bits()..f32::INFINITY.to_bits()).step_by(4099) {
            let x = f32::from_bits(bits);
            let error = log2(x) - f64::from(x).log2();
            assert!(error.abs() < 3e-11, "{x:e} {error:e}");
        }
    }

    proptest::proptest! {
        #[test]
        fn entropies_are_those_of_the_library(
            eigenvalues in proptest::collection::vec(-1f32..1e4, ELEMENTS),
            variances in proptest::collection::vec(0f32..1e3, 1..40),
            sigma in 0.1f32..2.0,
        ) {
            let eigenvalues: [f32; ELEMENTS] = eigenvalues.try_into().unwrap();
            let found = entropies(&eigenvalues, &variances, sigma);
            let expected: Vec<f32> = variances.iter().map(|v| exact(&eigenvalues, *v, sigma)).collect();
            assert_eq!(found, expected);
        }
    }

    /// A sum half way between two singles is decided by digits that the logarithm here does not have.
    #[test]
    fn what_is_in_doubt_is_left_to_the_library() {
        let eigenvalues = [1.0; ELEMENTS];
        for variance in [-1.0, f32::NAN, f32::INFINITY, f32::MAX, -0.29, 1e-45] {
            let mut variances = [2.0; GROUP];
            variances[3] = variance;
            let found = entropies(&eigenvalues, &variances, if variance == 1e-45 { 0.0 } else { 0.29 });
            let expected = exact(&eigenvalues, variance, if variance == 1e-45 { 0.0 } else { 0.29 });
            assert_eq!(found[3].to_bits(), expected.to_bits(), "{variance}");
        }
        let doubtful = (0..200_000u32).map(|i| f32::from_bits(0x3f80_0000 + 41 * i));
        let groups: Vec<f32> = doubtful.collect();
        let groups =
            groups.chunks_exact(GROUP).map(|group| sums(&eigenvalues, group.try_into().unwrap(), 0.29));
        assert!(groups.flatten().any(|sum| sum.is_none()), "it does happen");
    }
}
