// SPDX-License-Identifier: MPL-2.0

//! Reproducible pseudo-random numbers: equal arguments and seeds give equal numbers, also in later releases.

/// Generates the numbers of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub struct SplitMix64(pub u64);

const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

impl SplitMix64 {
    /// Returns the next number.
    #[expect(clippy::should_implement_trait, reason = "the sequence has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(INCREMENT);
        finalize(self.0)
    }
}

/// Mixes the bits of a number.
fn finalize(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// Hashes a number to one from 0 to below 1, evenly distributed for each seed.
pub fn unit_hash(seed: u64, number: u64) -> f64 {
    let bits = finalize(seed.wrapping_add(number.wrapping_mul(INCREMENT)));
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns white noise of 32 bits for a pixel.
pub fn noise(seed: u32, x: usize, y: usize) -> u32 {
    let mut hash = seed.wrapping_mul(0x9e37_79b9) ^ (x as u32) << 16 ^ y as u32;
    for _ in 0..2 {
        hash = (hash ^ hash >> 16).wrapping_mul(0x7feb_352d);
    }
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_paper() {
        let mut random = SplitMix64(1_234_567);
        let numbers = [(); 3].map(|()| random.next());
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
