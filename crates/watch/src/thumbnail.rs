// SPDX-License-Identifier: MPL-2.0

//! Pictures of 32 by 18 luma means, for a cheap detection of changes.
//!
//! The means are defined by integer sums over the cells of a grid, so every backend computes the same thumbnail. Cell
//! (c, r) of a picture of `w` by `h` samples covers the columns from `c w / 32` to before `(c + 1) w / 32`. Of the
//! rows from `r h / 18` to before `(r + 1) h / 18`, it covers each [`row_step`]-th, including the first. Entire rows
//! are read because a partly used cache line costs as much as a full one. Omitting rows limits the cost for large
//! pictures, and the hundreds of samples left in a cell still reduce noise to a few percent.

use engine::frame::{BitDepth, Component, Samples};

/// Cells per row.
pub const COLUMNS: usize = 32;
/// Rows of cells.
pub const ROWS: usize = 18;
/// Cells of a thumbnail.
pub const CELLS: usize = COLUMNS * ROWS;

/// Smallest number of sampled rows per cell in large pictures.
const CELL_ROWS: usize = 16;

/// Returns the step between sampled rows for a picture height. It is always odd, so that both fields of interlaced
/// video count.
pub fn row_step(height: usize) -> usize {
    let step = (height / ROWS / CELL_ROWS).max(1);
    (step - 1) | 1
}

/// Returns the first row or column of cell `index` if `cells` divide `length`.
fn edge(index: usize, cells: usize, length: usize) -> usize {
    index * length / cells
}

/// The luma of a picture as 32 x 18 means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thumbnail {
    /// Means of the cells, row by row, in 1/256 of an 8-bit step at any bit depth.
    cells: [u16; CELLS],
    /// Mean of all sampled luma, in 1/256 of an 8-bit step.
    mean: u16,
}

impl Thumbnail {
    /// Computes the thumbnail of luma in host memory. Returns `None` for other memory, or too few samples.
    pub fn new(luma: &Component, depth: BitDepth) -> Option<Self> {
        let Component { samples: Samples::Host(data), width, height, shift, .. } = *luma else {
            return None;
        };
        let mut sums = [0; CELLS];
        let mut columns = vec![0; width];
        for (row, sums) in sums.chunks_exact_mut(COLUMNS).enumerate() {
            columns.fill(0);
            for y in (edge(row, ROWS, height)..edge(row + 1, ROWS, height)).step_by(row_step(height)) {
                let samples = data.get(y * luma.stride..)?;
                if depth.bits() == 8 {
                    add_row(&mut columns, samples, luma.step, |[sample]| u32::from(sample))?;
                } else {
                    let max = depth.max() as u16;
                    add_row(&mut columns, samples, luma.step, |sample| {
                        u32::from((u16::from_le_bytes(sample) >> shift).min(max))
                    })?;
                }
            }
            for (cell, sum) in sums.iter_mut().enumerate() {
                let columns = &columns[edge(cell, COLUMNS, width)..edge(cell + 1, COLUMNS, width)];
                *sum = columns.iter().map(|column| u64::from(*column)).sum();
            }
        }
        Some(Self::from_sums(&sums, width, height, depth))
    }

    /// Computes the thumbnail from the sums of the sampled rows in each cell.
    pub fn from_sums(sums: &[u64; CELLS], width: usize, height: usize, depth: BitDepth) -> Self {
        let scaled = |sum: u64, count: u64| {
            // Cells of tiny pictures may be empty.
            let mean = ((sum << (16 - depth.bits())) + count / 2).checked_div(count).unwrap_or(0);
            mean.min(u64::from(u16::MAX)) as u16
        };
        let rows = |row| (edge(row + 1, ROWS, height) - edge(row, ROWS, height)).div_ceil(row_step(height));
        let columns = |column| edge(column + 1, COLUMNS, width) - edge(column, COLUMNS, width);
        let count = |cell: usize| (rows(cell / COLUMNS) * columns(cell % COLUMNS)) as u64;
        Self {
            cells: std::array::from_fn(|cell| scaled(sums[cell], count(cell))),
            mean: scaled(sums.iter().sum(), (0..CELLS).map(count).sum()),
        }
    }

    /// Returns the means row by row, in 1/256 of an 8-bit step.
    pub fn cells(&self) -> &[u16; CELLS] {
        &self.cells
    }

    /// Returns the mean luma from 0 to 1, relative to the sample type: 8-bit black in limited range is 16/256.
    pub fn mean(&self) -> f64 {
        f64::from(self.mean) / 65536.0
    }

    /// Returns the mean absolute difference of the cells, on the scale of 8-bit samples.
    pub fn difference(&self, other: &Self) -> f64 {
        let differences = self.cells.iter().zip(&other.cells).map(|(a, b)| u64::from(a.abs_diff(*b)));
        differences.sum::<u64>() as f64 / (256 * CELLS) as f64
    }
}

#[cfg(test)]
impl Thumbnail {
    /// Returns a thumbnail with these 8-bit values in its cells, by column and row.
    pub(crate) fn synthetic(value: impl Fn(usize, usize) -> f64) -> Self {
        let sums =
            std::array::from_fn(|cell| (value(cell % COLUMNS, cell / COLUMNS) * 256.0).max(0.0) as u64);
        // One 16-bit sample per cell.
        Self::from_sums(&sums, COLUMNS, ROWS, BitDepth::new(16).unwrap())
    }
}

/// Adds a row of samples of `N` bytes, `step` samples apart, to the sums of the columns. Returns `None` if the row is
/// too short.
fn add_row<const N: usize>(
    columns: &mut [u32],
    row: &[u8],
    step: usize,
    value: impl Fn([u8; N]) -> u32,
) -> Option<()> {
    let samples = row.as_chunks().0;
    if step == 1 {
        let samples = samples.get(..columns.len())?;
        columns.iter_mut().zip(samples).for_each(|(sum, sample)| *sum += value(*sample));
        return Some(());
    }
    let mut samples = samples.iter().step_by(step.max(1));
    columns.iter_mut().try_for_each(|sum| {
        *sum += value(*samples.next()?);
        Some(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: usize) -> u16 {
        engine::random::noise(0, 0, seed) as u16
    }

    /// Computes the means by their definition.
    fn naive(sample: impl Fn(usize, usize) -> u64, width: usize, height: usize, bits: u32) -> Vec<u16> {
        let mut means = vec![];
        for row in 0..18 {
            for column in 0..32 {
                let (mut sum, mut count) = (0, 0);
                for y in (row * height / 18..(row + 1) * height / 18).step_by(row_step(height)) {
                    for x in column * width / 32..(column + 1) * width / 32 {
                        sum += sample(x, y);
                        count += 1;
                    }
                }
                let mean = if count == 0 { 0.0 } else { sum as f64 / count as f64 };
                means.push((mean * f64::from(1u32 << (16 - bits)) + 0.5).floor() as u16);
            }
        }
        means
    }

    #[test]
    fn means_are_those_of_the_definition() {
        for (width, height) in [(1, 1), (31, 17), (32, 18), (33, 19), (160, 90), (417, 959), (64, 2160)] {
            for (bits, shift, step) in [(8, 0, 1), (8, 0, 2), (10, 0, 1), (10, 6, 1), (12, 4, 3), (16, 0, 1)]
            {
                let (depth, size) = (BitDepth::new(bits).unwrap(), if bits == 8 { 1 } else { 2 });
                let stride = width * step * size + 3;
                let data: Vec<u8> = (0..stride * height).map(|i| noise(i) as u8).collect();
                let samples = Samples::Host(&data);
                let luma = Component { samples, width, height, stride, step, shift };
                let thumbnail = Thumbnail::new(&luma, depth).unwrap();
                let sample = |x: usize, y: usize| {
                    let at = y * stride + x * step * size;
                    let raw = if size == 1 {
                        u32::from(data[at])
                    } else {
                        u32::from(u16::from_le_bytes([data[at], data[at + 1]]))
                    };
                    u64::from((raw >> shift).min(depth.max()))
                };
                assert_eq!(
                    thumbnail.cells.as_slice(),
                    naive(sample, width, height, bits),
                    "{width}x{height}, {bits} bit, shift {shift}, step {step}"
                );
                // The last row ends the data.
                let short = &data[..(height - 1) * stride + ((width - 1) * step + 1) * size - 1];
                let short = Component { samples: Samples::Host(short), ..luma };
                let last_sampled = (17 * height / 18..height).step_by(row_step(height)).next_back();
                assert_eq!(Thumbnail::new(&short, depth).is_none(), last_sampled == Some(height - 1));
            }
        }
    }

    #[test]
    fn depths_agree_on_brightness() {
        let (width, height) = (320, 180);
        let of = |bits: u32, value: u16| {
            let data: Vec<u8> = (0..width * height)
                .flat_map(|_| value.to_le_bytes().into_iter().take(if bits == 8 { 1 } else { 2 }))
                .collect();
            let stride = if bits == 8 { width } else { 2 * width };
            let luma = Component { samples: Samples::Host(&data), width, height, stride, step: 1, shift: 0 };
            Thumbnail::new(&luma, BitDepth::new(bits).unwrap()).unwrap()
        };
        let grey = of(8, 100);
        assert_eq!(grey, of(10, 400));
        assert_eq!(grey, of(16, 25600));
        assert_eq!(grey.mean(), 100.0 / 256.0);
        assert_eq!(grey.difference(&of(10, 402)), 0.5);
        assert_eq!(grey.cells()[0], 25600);
    }

    #[test]
    fn rows_are_left_out_of_large_pictures_only() {
        assert_eq!([1, 90, 576, 720, 1080, 2160, 4320].map(row_step), [1, 1, 1, 1, 3, 7, 15]);
    }
}
