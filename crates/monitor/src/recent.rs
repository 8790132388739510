// SPDX-License-Identifier: MPL-2.0

//! The latest of many entries, for readers that ask from time to time what is new.

use std::collections::VecDeque;

/// The latest entries, up to `MOST`, and the number of all so far. Entries are known by their numbers, as clocks are set.
#[derive(Clone, Debug)]
pub struct Recent<T, const MOST: usize> {
    /// Oldest first.
    entries: VecDeque<T>,
    count: u64,
}

impl<T, const MOST: usize> Default for Recent<T, MOST> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), count: 0 }
    }
}

impl<T, const MOST: usize> Recent<T, MOST> {
    /// Adds an entry.
    pub fn push(&mut self, entry: T) {
        self.entries.push_back(entry);
        self.count += 1;
        if self.entries.len() > MOST {
            self.entries.pop_front();
        }
    }

    /// Returns the number of all entries so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the entries, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.entries.iter()
    }

    /// Returns the last `most` entries, oldest first.
    pub fn last(&self, most: usize) -> impl Iterator<Item = &T> {
        self.entries.iter().skip(self.entries.len().saturating_sub(most))
    }

    /// Returns the entries after the first `count`, as far as they are kept, oldest first.
    pub fn since(&self, count: u64) -> impl Iterator<Item = &T> {
        self.last(usize::try_from(self.count.saturating_sub(count)).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_get_what_is_new_and_kept() {
        let mut recent = Recent::<u32, 3>::default();
        let since = |recent: &Recent<u32, 3>, count| recent.since(count).copied().collect::<Vec<_>>();
        (0..2).for_each(|entry| recent.push(entry));
        assert_eq!((since(&recent, 0), since(&recent, 1), since(&recent, 2)), (vec![0, 1], vec![1], vec![]));
        (2..9).for_each(|entry| recent.push(entry));
        assert_eq!((recent.count(), since(&recent, 2), since(&recent, 8)), (9, vec![6, 7, 8], vec![8]));
        assert!(recent.last(2).eq(&[7, 8]) && recent.iter().rev().eq(&[8, 7, 6]));
    }
}
