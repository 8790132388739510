// SPDX-License-Identifier: MPL-2.0

//! The table of scores, by name and index.

use crate::Errno;
use crate::log::{Level, log};

/// Indices from here on are refused: a column takes memory up to its highest index.
pub const INDEX_LIMIT: u32 = 1 << 27;

/// The scores of one name.
pub struct Column {
    pub name: Vec<u8>,
    /// By index; the length doubles from 8, as reports depend on it.
    scores: Vec<Option<f64>>,
}

impl Column {
    /// The score at an index.
    pub fn score(&self, index: u32) -> Option<f64> {
        self.scores.get(index as usize).copied().flatten()
    }

    /// How many indices there is room for.
    pub fn capacity(&self) -> usize {
        self.scores.len()
    }

    fn append(&mut self, score: f64, index: u32) -> Result<(), Errno> {
        let needed = index as usize + 1;
        if needed > self.scores.len() {
            let capacity = needed.next_power_of_two().max(8);
            self.scores.try_reserve_exact(capacity - self.scores.len()).map_err(|_| Errno::MEMORY)?;
            self.scores.resize(capacity, None);
        }
        let cell = self.scores.get_mut(index as usize).ok_or(Errno::MEMORY)?;
        if cell.is_some() {
            let name = String::from_utf8_lossy(&self.name);
            log(
                Level::Warning,
                format_args!("feature \"{name}\" cannot be overwritten at index {}", index as i32),
            );
            return Err(Errno::INVALID);
        }
        *cell = Some(score);
        Ok(())
    }
}

/// All columns in the order of their first scores, and the figures of all pairs together.
#[derive(Default)]
pub struct Collector {
    columns: Vec<Column>,
    aggregates: Vec<(&'static str, f64)>,
    /// Computing time of the process at the first and at the latest score.
    times: Option<(f64, f64)>,
}

impl Collector {
    /// The columns in the order of their first scores.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The figures of all pairs together.
    pub fn aggregates(&self) -> &[(&'static str, f64)] {
        &self.aggregates
    }

    /// Adds a score; one that is there cannot be replaced.
    pub fn append(&mut self, name: &[u8], score: f64, index: u32) -> Result<(), Errno> {
        if index >= INDEX_LIMIT {
            return Err(Errno::INVALID);
        }
        let begin = self.times.map_or_else(clock, |(begin, _)| begin);
        let column = match self.columns.iter().position(|column| column.name == name) {
            Some(known) => known,
            None => {
                self.columns.push(Column { name: name.to_vec(), scores: vec![None; 8] });
                self.columns.len() - 1
            }
        };
        let appended = self.columns[column].append(score, index);
        self.times = Some((begin, clock()));
        appended
    }

    /// The score of a name at an index.
    pub fn score(&self, name: &[u8], index: u32) -> Option<f64> {
        self.columns.iter().find(|column| column.name == name)?.score(index)
    }

    /// Adds a figure of all pairs together; one that is there cannot be replaced by another value.
    pub fn set_aggregate(&mut self, name: &'static str, value: f64) -> Result<(), Errno> {
        match self.aggregates.iter().find(|(known, _)| *known == name) {
            Some((_, old)) if *old == value => Ok(()),
            Some(_) => Err(Errno::INVALID),
            None => {
                self.aggregates.push((name, value));
                Ok(())
            }
        }
    }

    /// Computing seconds of the process between the first and the latest score.
    pub fn seconds(&self) -> f64 {
        let (begin, end) = self.times.unwrap_or_default();
        end - begin
    }
}

/// Computing seconds of the process.
fn clock() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure can be written to.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_kept_by_name_and_index_and_not_replaced() {
        let mut collector = Collector::default();
        assert_eq!(collector.append(b"a", 1.0, 9), Ok(()));
        assert_eq!(collector.append(b"b", 2.0, 0), Ok(()));
        assert_eq!(collector.append(b"a", 3.0, 9), Err(Errno::INVALID));
        assert_eq!(collector.append(b"a", 3.0, u32::MAX), Err(Errno::INVALID));
        assert_eq!(collector.score(b"a", 9), Some(1.0));
        assert_eq!((collector.score(b"a", 8), collector.score(b"c", 0)), (None, None));
        let capacities: Vec<_> = collector.columns().iter().map(Column::capacity).collect();
        assert_eq!(capacities, [16, 8]);
    }

    #[test]
    fn aggregates_are_set_once() {
        let mut collector = Collector::default();
        assert_eq!(collector.set_aggregate("a", 1.0), Ok(()));
        assert_eq!(collector.set_aggregate("a", 1.0), Ok(()));
        assert_eq!(collector.set_aggregate("a", 2.0), Err(Errno::INVALID));
        assert_eq!(collector.aggregates(), [("a", 1.0)]);
    }
}
