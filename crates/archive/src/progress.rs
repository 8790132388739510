// SPDX-License-Identifier: MPL-2.0

//! Progress of a run: how many chunks are done, the rate, and the time left.

use std::time::Duration;

/// Chunks of a run, and the time that those took that are done.
pub struct Progress {
    /// Number of chunks that are scored at a time.
    jobs: usize,
    chunks: usize,
    done: usize,
    /// Frames of the chunks that have not ended; `None` if the frames of a chunk are unknown.
    left: Option<u64>,
    /// Frames of the chunks that are done, and the time that they took together.
    scored: u64,
    taken: Duration,
}

impl Progress {
    /// Begins a run of chunks with these numbers of frames, where 0 is an unknown number.
    pub fn new(jobs: usize, chunks: &[u64]) -> Self {
        let left = (!chunks.contains(&0)).then(|| chunks.iter().sum());
        Self { jobs, chunks: chunks.len(), done: 0, left, scored: 0, taken: Duration::ZERO }
    }

    /// Notes a chunk that could not be scored.
    pub fn fail(&mut self, frames: u64) {
        self.left = self.left.map(|left| left.saturating_sub(frames));
    }

    /// Notes a chunk that was scored, and returns a line for the user.
    pub fn add(&mut self, frames: u64, took: Duration) -> String {
        self.fail(frames);
        self.done += 1;
        self.scored += frames;
        self.taken += took;
        let chunks = format!("{} of {} chunks", self.done, self.chunks);
        // Chunks that are still being scored count neither for the frames nor for the time.
        let rate = self.jobs as f64 * self.scored as f64 / self.taken.as_secs_f64();
        match self.left {
            Some(left) if left > 0 && rate.is_finite() && rate > 0.0 => {
                format!("{chunks}, {rate:.0} frames per second, {} left", time(left as f64 / rate))
            }
            _ => chunks,
        }
    }
}

/// Formats a time in its two largest units.
fn time(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_what_has_not_ended() {
        let mut progress = Progress::new(2, &[1500, 1500, 1500, 900_000, 1500]);
        let minute = Duration::from_secs(60);
        // Both jobs have scored as much by then.
        assert_eq!(progress.add(1500, minute), "1 of 5 chunks, 50 frames per second, 5 h 1 min left");
        progress.fail(900_000);
        assert_eq!(progress.add(1500, minute / 3), "2 of 5 chunks, 75 frames per second, 40 s left");
        assert_eq!(progress.add(1500, minute), "3 of 5 chunks, 64 frames per second, 23 s left");
        assert_eq!(progress.add(1500, minute), "4 of 5 chunks");
    }

    #[test]
    fn unknown_lengths_have_no_time_left() {
        let mut progress = Progress::new(1, &[1500, 0]);
        assert_eq!(progress.add(1500, Duration::from_secs(1)), "1 of 2 chunks");
        assert_eq!(time(61.0), "1 min 1 s");
    }
}
