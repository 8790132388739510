// SPDX-License-Identifier: MPL-2.0

//! Statistics of the last seconds of an endless stream.
//!
//! Running time is divided into slices of one interval, or of several if the window would have more than
//! `MAX_SLICES`. A window keeps the scores of its frames, eight bytes each, so its percentiles are exact.

use engine::session::StreamTotals;

use crate::counts::Counts;
use crate::summary::{Summary, Values};

/// Largest number of slices in a window.
const MAX_SLICES: u64 = 60;

/// A window that has ended.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Running time of its end in ns, a multiple of the interval.
    pub end: u64,
    /// Statistics of its scores.
    pub summary: Summary<Values>,
    /// Totals of its scored pairs.
    pub totals: StreamTotals,
    /// Its other counts.
    pub counts: Counts,
}

#[derive(Clone, Debug, Default)]
struct Slice {
    /// Number of the slice of running time; the ring reuses places.
    number: u64,
    summary: Summary<Values>,
    totals: StreamTotals,
    counts: Counts,
}

/// Collects scores and counts, and returns their statistics once per interval.
#[derive(Debug)]
pub struct Window {
    interval: u64,
    /// Intervals per slice.
    intervals: u64,
    slices: Box<[Slice]>,
    /// The interval in progress.
    current: Option<u64>,
}

impl Window {
    /// Creates a window of `length` that advances by `interval`, both in ns. The length is rounded up to whole
    /// intervals, and with more than 60 of them it is accurate to a slice, which is 1/30.
    pub fn new(length: u64, interval: u64) -> Self {
        let interval = interval.max(1);
        let needed = length.div_ceil(interval).max(1);
        let intervals = needed.div_ceil(MAX_SLICES);
        let slices = needed.div_ceil(intervals) as usize;
        Self { interval, intervals, slices: vec![Slice::default(); slices].into(), current: None }
    }

    /// Adds the score and the totals of the frame with this running time in ns. A frame of an interval that has ended
    /// counts in the current one. Call [`Self::advance`] with this time first.
    pub fn push(&mut self, running_time: u64, score: f64, totals: &StreamTotals) {
        if let Some(slice) = self.slice(running_time) {
            slice.summary.push(score);
            slice.totals += totals;
        }
    }

    /// Adds counts at this running time, as [`Self::push`] adds a score.
    pub fn count(&mut self, running_time: u64, counts: Counts) {
        if let Some(slice) = self.slice(running_time) {
            slice.counts += counts;
        }
    }

    /// Notes that no frame before `now`, a running time in ns, will follow. Returns the statistics of the interval
    /// that this ends; call it until it returns `None`. If time jumps over several intervals, only the first and the
    /// last of them are returned. If it steps back, nothing changes: each interval ends once.
    pub fn advance(&mut self, now: u64) -> Option<Figures> {
        let ended = now / self.interval;
        let current = *self.current.get_or_insert(ended);
        if ended <= current {
            return None;
        }
        // After the window at `current`, the next one is at `ended - 1`, the last that is over.
        self.current = Some((ended - 1).max(current + 1));
        Some(self.figures(current))
    }

    /// Begins again, for a stream whose running time does.
    pub fn restart(&mut self) {
        self.slices.fill(Slice::default());
        self.current = None;
    }

    /// Returns the statistics of the window that ends with this interval.
    fn figures(&self, interval: u64) -> Figures {
        let newest = interval / self.intervals;
        let oldest = (newest + 1).saturating_sub(self.slices.len() as u64);
        let mut figures = Figures { end: (interval + 1).saturating_mul(self.interval), ..Figures::default() };
        // In order of time: the ring begins after the place of the newest slice.
        let (later, earlier) = self.slices.split_at(self.place(newest) + 1);
        for slice in earlier.iter().chain(later).filter(|s| (oldest..=newest).contains(&s.number)) {
            figures.summary.merge(&slice.summary);
            figures.totals += &slice.totals;
            figures.counts += slice.counts;
        }
        figures
    }

    fn place(&self, number: u64) -> usize {
        (number % self.slices.len() as u64) as usize
    }

    /// Returns the slice of this time, or the current one for earlier times; `None` if a later slice has replaced it.
    fn slice(&mut self, running_time: u64) -> Option<&mut Slice> {
        let interval = (running_time / self.interval).max(self.current.unwrap_or(0));
        let number = interval / self.intervals;
        let place = self.place(number);
        let slice = &mut self.slices[place];
        if slice.number < number {
            *slice = Slice { number, ..Slice::default() };
        }
        (slice.number == number).then_some(slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn ends(window: &mut Window, now: u64) -> Vec<(u64, u64)> {
        let figures = std::iter::from_fn(|| window.advance(now));
        figures.map(|f| (f.end / SECOND, f.summary.pool.pooled().map_or(0, |p| p.count))).collect()
    }

    #[test]
    fn figures_cover_the_last_seconds() {
        let mut window = Window::new(3 * SECOND, SECOND);
        let mut all = vec![];
        for i in 0..=250 {
            let time = i * SECOND / 50;
            all.extend(ends(&mut window, time));
            window.push(time, i as f64 / 10.0, &StreamTotals::default());
        }
        assert_eq!(all, [(1, 50), (2, 100), (3, 150), (4, 150), (5, 150)]);
        let figures = window.advance(6 * SECOND).unwrap();
        let pooled = figures.summary.pool.pooled().unwrap();
        assert_eq!((pooled.count, pooled.min, pooled.max), (101, 15.0, 25.0));
        assert_eq!(figures.summary.percentile(50.0), 20.0);
    }

    #[test]
    fn silence_is_reported() {
        let mut window = Window::new(2 * SECOND, SECOND);
        assert!(window.advance(0).is_none());
        window.push(0, 50.0, &StreamTotals::default());
        let counts = Counts {
            unpaired: 2,
            skipped: 3,
            repeated: 4,
            dist_unmatched: 5,
            aligning: 6,
            discont: 9,
            verified: 7,
            wrong: 8,
            ..Counts::default()
        };
        window.count(1, counts);
        let figures = window.advance(SECOND).unwrap();
        assert_eq!(figures.counts, counts);
        assert_eq!(ends(&mut window, 2 * SECOND), [(2, 1)]);
        assert_eq!(ends(&mut window, 3 * SECOND), [(3, 0)]);
        assert_eq!(ends(&mut window, 4 * SECOND), [(4, 0)]);
    }

    #[test]
    fn leaps_are_reported_at_both_ends() {
        let mut window = Window::new(2 * SECOND, SECOND);
        assert_eq!(ends(&mut window, 7 * SECOND), []);
        window.push(7 * SECOND, 50.0, &StreamTotals::default());
        let hours = 10_000 * SECOND;
        assert_eq!(ends(&mut window, hours), [(8, 1), (10_000, 0)]);
        window.push(hours, 50.0, &StreamTotals::default());
        // Late frames count in the open interval.
        assert_eq!(ends(&mut window, hours - SECOND), []);
        window.push(hours - SECOND, 50.0, &StreamTotals::default());
        assert_eq!(ends(&mut window, 0), []);
        window.push(0, 50.0, &StreamTotals::default());
        assert_eq!(ends(&mut window, hours + SECOND), [(10_001, 3)]);
        window.restart();
        assert_eq!(ends(&mut window, 0), []);
        window.push(0, 50.0, &StreamTotals::default());
        assert_eq!(ends(&mut window, SECOND), [(1, 1)]);
    }

    #[test]
    fn long_windows_of_short_intervals_stay_small() {
        let mut window = Window::new(3600 * SECOND, SECOND / 10);
        assert!(window.slices.len() as u64 <= MAX_SLICES);
        let mut last = 0;
        for time in (0..2 * 3600).map(|s| s * SECOND) {
            while let Some(figures) = window.advance(time) {
                last = figures.summary.pool.pooled().unwrap().count;
            }
            window.push(time, 50.0, &StreamTotals::default());
        }
        assert!((3600 - 60..=3600 + 60).contains(&last), "{last}");
    }

    proptest! {
        /// Every window of up to 60 intervals contains exactly the frames of its time.
        #[test]
        fn figures_equal_those_of_a_list(
            steps in proptest::collection::vec((0u64..50, 0.0..100.0f64), 1..200),
            length in 1u64..100,
            interval in 2u64..30,
        ) {
            let mut window = Window::new(length, interval);
            let length = length.div_ceil(interval) * interval;
            let mut frames = vec![];
            let mut now = 0;
            for (step, score) in steps {
                now += step;
                while let Some(figures) = window.advance(now) {
                    let within = |time: &u64| *time < figures.end && time + length >= figures.end;
                    let mut expected = Summary::<Values>::default();
                    frames.iter().filter(|(t, _)| within(t)).for_each(|(_, score)| expected.push(*score));
                    let (got, expected) = (figures.summary.pool.pooled(), expected.pool.pooled());
                    prop_assert_eq!(got.map(|p| (p.count, p.min, p.max)), expected.map(|p| (p.count, p.min, p.max)));
                    prop_assert_eq!(figures.end % interval, 0);
                }
                window.push(now, score, &StreamTotals::default());
                frames.push((now, score));
            }
        }

        #[test]
        fn any_times_are_taken(
            times in proptest::collection::vec((any::<u64>(), any::<f64>()), 1..50),
            length: u64,
            interval: u64,
        ) {
            let mut window = Window::new(length, interval);
            let mut last = 0;
            for (time, score) in times {
                let figures: Vec<_> = std::iter::from_fn(|| window.advance(time)).take(3).collect();
                prop_assert!(figures.len() <= 2);
                for figures in figures {
                    prop_assert!(figures.end > last || figures.end == u64::MAX, "each interval ends once");
                    last = figures.end;
                }
                window.push(time, score, &StreamTotals::default());
                window.count(time, Counts { unpaired: 1, ..Counts::default() });
            }
        }
    }
}
