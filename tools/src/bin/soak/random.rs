// SPDX-License-Identifier: MPL-2.0

/// Pseudo-random numbers that are equal for equal seeds.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        let mut random = engine::random::SplitMix64(self.0);
        let number = random.next();
        self.0 = random.0;
        number
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}
