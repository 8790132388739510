// SPDX-License-Identifier: MPL-2.0

//! How long kernels take.

use std::sync::{Mutex, PoisonError};

use crate::error::Error;
use crate::stream::{Event, Stream};

/// The kernels launched into a stream, each several times in a row between two events.
pub struct Profile {
    runs: u32,
    launches: Mutex<Vec<(String, [Event; 2])>>,
}

impl Profile {
    /// Has every kernel run `runs` times (at least once).
    pub fn new(runs: u32) -> Self {
        Self { runs: runs.max(1), launches: Mutex::default() }
    }

    /// Repeats the launch of a kernel.
    pub fn launch(
        &self,
        stream: &Stream,
        kernel: &str,
        launch: impl Fn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let [from, to] = [Event::timed(stream.device())?, Event::timed(stream.device())?];
        from.record(stream)?;
        (0..self.runs).try_for_each(|_| launch())?;
        to.record(stream)?;
        let mut launches = self.launches.lock().unwrap_or_else(PoisonError::into_inner);
        launches.push((kernel.to_owned(), [from, to]));
        Ok(())
    }

    /// The mean milliseconds of each launch, in order. The stream must be done.
    pub fn times(&self) -> Result<Vec<(String, f32)>, Error> {
        let launches = self.launches.lock().unwrap_or_else(PoisonError::into_inner);
        let mean = |(kernel, [from, to]): &(String, [Event; 2])| {
            Ok((kernel.clone(), to.since(from)? / self.runs as f32))
        };
        launches.iter().map(mean).collect()
    }
}
