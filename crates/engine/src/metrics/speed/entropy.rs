// SPDX-License-Identifier: MPL-2.0

//! The entropies of blocks: sums of logarithms, rounded to single precision after each addition.
//!
//! The rounding discards nearly all digits that are computed here. So a fast logarithm that compilers vectorise gives
//! the same result as the library's logarithm, unless a sum lies almost half way between two singles. This case is
//! detected, and the library is used.

use std::f32::consts::FRAC_1_SQRT_2;
use std::f64::consts::LOG2_E;

use super::ELEMENTS;

/// log2(2 pi e)
pub const LOG2_2PIE: f64 = 4.094191170361282;
/// Blocks per call: a picture of 1920x1080 has 72 of them, and one of 3840x2160 has 312.
const GROUP: usize = 24;
/// Bound for the error of a sum: twice the error of a logarithm, and far more than the rounding errors of both
/// additions, here and in the library. The sums are below 2^13, where the distance of doubles is 2^-40.
const DOUBT: f64 = 6e-11;

/// Computes the entropies of blocks of the given variances.
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

/// Computes the entropy of a block exactly as libvmaf does.
fn exact(eigenvalues: &[f32; ELEMENTS], variance: f32, sigma: f32) -> f32 {
    eigenvalues.iter().fold(0.0, |sum, value| {
        (f64::from(sum) + (f64::from(positive(*value) * variance + sigma).log2() + LOG2_2PIE)) as f32
    })
}

fn positive(eigenvalue: f32) -> f32 {
    if eigenvalue < 0.0 { 0.0 } else { eigenvalue }
}

/// Computes the entropies of several blocks; `None` for those in doubt.
fn sums(eigenvalues: &[f32; ELEMENTS], variances: &[f32; GROUP], sigma: f32) -> [Option<f32>; GROUP] {
    #[cfg(target_arch = "x86_64")]
    {
        /// # Safety
        ///
        /// The CPU must have AVX-512F, AVX-512DQ and FMA.
        #[target_feature(enable = "avx512f,avx512dq,fma")]
        fn avx512(
            eigenvalues: &[f32; ELEMENTS],
            variances: &[f32; GROUP],
            sigma: f32,
        ) -> [Option<f32>; GROUP] {
            sums_of::<true>(eigenvalues, variances, sigma)
        }
        /// # Safety
        ///
        /// The CPU must have AVX2 and FMA.
        #[target_feature(enable = "avx2,fma")]
        fn avx2(eigenvalues: &[f32; ELEMENTS], variances: &[f32; GROUP], sigma: f32) -> [Option<f32>; GROUP] {
            sums_of::<true>(eigenvalues, variances, sigma)
        }
        let fma = is_x86_feature_detected!("fma");
        if fma && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
            // SAFETY: the CPU has AVX-512F, AVX-512DQ and FMA.
            return unsafe { avx512(eigenvalues, variances, sigma) };
        }
        if fma && is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has AVX2 and FMA.
            return unsafe { avx2(eigenvalues, variances, sigma) };
        }
    }
    sums_of::<false>(eigenvalues, variances, sigma)
}

/// Computes the sums. `FUSED`: the CPU has fused multiply-add.
#[inline(always)]
fn sums_of<const FUSED: bool>(
    eigenvalues: &[f32; ELEMENTS],
    variances: &[f32; GROUP],
    sigma: f32,
) -> [Option<f32>; GROUP] {
    let mut sums = [0f32; GROUP];
    // Collects bits that differ between the lower and the upper bound of a sum, and the largest argument of a
    // logarithm.
    let mut unsure = [0u64; GROUP];
    let mut most = [0u32; GROUP];
    for value in eigenvalues {
        let value = positive(*value);
        for i in 0..GROUP {
            let x = value * variances[i] + sigma;
            let sum = f64::from(sums[i]) + (log2::<FUSED>(x) + LOG2_2PIE);
            unsure[i] |= rounded(sum - DOUBT) ^ rounded(sum + DOUBT);
            // Negative, too small and NaN arguments become larger than all others.
            most[i] = most[i].max(x.to_bits().wrapping_sub(f32::MIN_POSITIVE.to_bits()));
            sums[i] = sum as f32;
        }
    }
    let normal = |most: u32| most <= f32::MAX.to_bits() - f32::MIN_POSITIVE.to_bits();
    std::array::from_fn(|i| (unsure[i] >> DROPPED == 0 && normal(most[i])).then_some(sums[i]))
}

/// Bits of a double that a single does not have.
const DROPPED: u32 = f64::MANTISSA_DIGITS - f32::MANTISSA_DIGITS;

/// Returns the upper bits of a double after rounding to a single. If two doubles have the same, they are rounded alike
/// and neither lies half way between two singles, where the last bit would decide.
#[inline(always)]
fn rounded(x: f64) -> u64 {
    x.to_bits().wrapping_add(1 << (DROPPED - 1))
}

#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f64, b: f64, c: f64) -> f64 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Computes the logarithm of a normal positive number with an error below 3e-11: the series of 2 artanh((m - 1) / (m +
/// 1)) of its mantissa m, which lies between the roots of one half and of two.
#[inline(always)]
fn log2<const FUSED: bool>(x: f32) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits as i32).wrapping_sub(FRAC_1_SQRT_2.to_bits() as i32) >> 23;
    let mantissa = f64::from(f32::from_bits(bits.wrapping_sub((exponent as u32) << 23)));
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut series = 0.0;
    for n in [11, 9, 7, 5, 3, 1] {
        series = multiply_add::<FUSED>(series, square, 2.0 * LOG2_E / f64::from(n));
    }
    multiply_add::<FUSED>(s, series, f64::from(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_as_close_as_is_promised() {
        for bits in (f32::MIN_POSITIVE.to_bits()..f32::INFINITY.to_bits()).step_by(4099) {
            let x = f32::from_bits(bits);
            for log2 in [log2::<false>(x), log2::<true>(x)] {
                let error = log2 - f64::from(x).log2();
                assert!(error.abs() < 3e-11, "{x:e} {error:e}");
            }
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

    /// A sum half way between two singles is decided by digits that this logarithm does not have.
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
