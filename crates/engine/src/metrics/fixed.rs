// SPDX-License-Identifier: MPL-2.0

//! Sums of real numbers that do not depend on the order of their terms.
//!
//! Adding `bias` rounds a term to a multiple of the last place of `bias`. Backends sum the bits of `term + bias` modulo
//! 2^64, as integers. The last place is so small that the sum, less the bits of `bias` for each term, uses nearly all
//! of a signed 64-bit integer. So it is more exact than a sum of doubles.

/// The number of terms, and the power of two below which they stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedSum {
    terms: usize,
    /// Binary digits after the point.
    fraction: u32,
}

impl FixedSum {
    /// Creates the format for a sum of `terms` terms, each below `2^magnitude` in absolute value.
    pub fn new(terms: usize, magnitude: u32) -> Self {
        let room = 62 - magnitude - terms.next_power_of_two().ilog2();
        Self { terms, fraction: room.min(51 - magnitude) }
    }

    /// Returns the number to add to each term before its bits are taken.
    pub fn bias(self) -> f64 {
        f64::from_bits(u64::from(1023 + 52 - self.fraction) << 52 | 1 << 51)
    }

    /// Computes the mean of the terms whose bits sum up to `sum`.
    pub fn mean(self, sum: u64) -> f64 {
        let biases = (self.terms as u64).wrapping_mul(self.bias().to_bits());
        let sum = sum.wrapping_sub(biases).cast_signed() as f64 / (1u64 << self.fraction) as f64;
        sum / self.terms as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_exact_for_few_and_for_many_terms() {
        for terms in [1, 2, 1000, 1 << 21, 1 << 28] {
            for (magnitude, term) in [(1, 1.0), (1, -1.375), (1, 0.1), (10, 1000.25), (10, 0.0)] {
                let fixed = FixedSum::new(terms, magnitude);
                let sum = (terms as u64).wrapping_mul((term + fixed.bias()).to_bits());
                let mean = fixed.mean(sum);
                assert!((mean - term).abs() < 1e-7, "{terms} {magnitude} {term} {mean}");
                assert!(mean == term || term == 0.1);
            }
        }
    }

    #[test]
    fn terms_may_differ() {
        let terms = [0.5, -0.25, 1.0, 0.125];
        let fixed = FixedSum::new(terms.len(), 1);
        let sum = terms.iter().fold(0u64, |sum, term| sum.wrapping_add((term + fixed.bias()).to_bits()));
        assert_eq!(fixed.mean(sum), 1.375 / 4.0);
    }
}
