// SPDX-License-Identifier: MPL-2.0

//! Sums in single precision in a fixed order: the terms of each row from left to right, then the sums of the rows from the
//! first to the last. Each addition waits for the one before, so several rows are added side by side.

/// Rows that are added side by side.
pub const ROWS: usize = 8;

/// Terms of some rows.
pub struct Terms {
    width: usize,
    terms: Vec<f32>,
}

impl Terms {
    /// Makes room for [`ROWS`] rows.
    pub fn new(width: usize) -> Self {
        Self { width, terms: vec![0.0; width * ROWS] }
    }

    /// Returns row `i` of them.
    #[inline(always)]
    pub fn row(&mut self, i: usize) -> &mut [f32] {
        &mut self.terms[i * self.width..][..self.width]
    }

    /// Adds the terms of each row.
    #[inline(always)]
    pub fn sums(&self) -> [f32; ROWS] {
        let mut rows = [&self.terms[..0]; ROWS];
        for i in 0..ROWS {
            rows[i] = &self.terms[i * self.width..][..self.width];
        }
        let mut sums = [0f32; ROWS];
        for x in 0..self.width {
            for i in 0..ROWS {
                sums[i] += rows[i][x];
            }
        }
        sums
    }
}

/// Adds the sums of rows.
pub fn total<'a>(rows: impl IntoIterator<Item = &'a f32>) -> f32 {
    rows.into_iter().fold(0.0, |sum, row| sum + row)
}
