// SPDX-License-Identifier: MPL-2.0

//! A random generator that repeats its numbers for the same seed.

use std::ops::Range;

use engine::random::SplitMix64;

pub struct Random(SplitMix64);

impl Random {
    /// Returns a generator for this number of a world.
    pub fn new(seed: u64, world: u64) -> Self {
        let mut random = SplitMix64(seed ^ world.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        Self(random)
    }

    /// Returns a number of the range.
    pub fn within(&mut self, range: Range<usize>) -> usize {
        range.start + (self.0.next() % (range.end - range.start) as u64) as usize
    }

    /// Returns true in this many of a hundred cases.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.within(0..100) < percent
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.within(0..of.len())]
    }
}
