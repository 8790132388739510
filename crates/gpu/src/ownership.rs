// SPDX-License-Identifier: MPL-2.0

//! Ownership of GPUs: chooses the GPU of a session and counts the sessions of each.
//!
//! Each session of this process holds an [`Ownership`], so the load by this process is known. The load by others shows
//! only in the free memory, which is queried if nothing else decides.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use crate::code::Code;
use crate::device::{Device, candidates};
use crate::error::Error;
use crate::runtime::{DeviceInfo, Selection};

/// Differences of free memory up to this many bytes are ignored, as a runtime takes some itself, and not the same on
/// each GPU.
const TRIFLE: usize = 128 << 20;

/// A GPU for one session, counted as its load until this is dropped.
pub struct Ownership {
    device: Arc<Device>,
    why: String,
    _session: Session,
}

impl Ownership {
    /// Opens, or shares, the least loaded of the selected GPUs that take the code, but none of `others`.
    ///
    /// A discrete GPU is preferred to an integrated one, whatever their load. Then compute units per session of this
    /// process decide, including the new session, and then free memory. Among equals the lower number wins, AMD's
    /// first. A lost GPU comes last.
    ///
    /// # Errors
    ///
    /// The error of the first GPU if none can be opened, or the reason why there is none.
    pub fn new(
        selection: &Selection,
        code: &'static dyn Code,
        others: &[&'static DeviceInfo],
    ) -> Result<Self, Error> {
        let mut left = candidates(selection, code)?;
        left.retain(|info| !others.iter().any(|other| std::ptr::eq(*other, *info)));
        let chosen = std::iter::from_fn(|| {
            let (session, why) = Session::begin(&left)?;
            left.retain(|info| !std::ptr::eq(*info, session.0));
            Some((session.0, (session, why)))
        });
        let (device, (session, why)) = Device::first_of(chosen, code)?;
        Ok(Self { device, why, _session: session })
    }

    /// Returns the GPU.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Explains, for a log, why this GPU was chosen.
    pub fn why(&self) -> &str {
        &self.why
    }
}

/// A session that is counted as load of a GPU.
struct Session(&'static DeviceInfo);

impl Session {
    /// Counts a session for the least loaded GPU and explains the choice; `None` if there is no GPU.
    fn begin(left: &[&'static DeviceInfo]) -> Option<(Self, String)> {
        // Serialised, so that each choice counts the sessions before it.
        static CHOICE: Mutex<()> = Mutex::new(());
        let _one_at_a_time = CHOICE.lock();
        let loads: Vec<_> = left.iter().map(|info| Load::of(info)).collect();
        let mut said: Vec<_> = left.iter().zip(&loads).map(|(info, load)| load.describe(info)).collect();
        let chosen = least(&loads, |i| {
            let free = left[i].free_memory().unwrap_or(0);
            said[i] += &format!(", {} MiB free", free >> 20);
            free
        })?;
        let info = left[chosen];
        info.sessions.fetch_add(1, Relaxed);
        let why = match &said[..] {
            [_] => "no other GPU matches the settings".into(),
            all => format!("the least busy of {}", all.join("; ")),
        };
        Some((Self(info), why))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Relaxed);
    }
}

/// Properties that decide between GPUs and are free to query.
struct Load {
    lost: bool,
    integrated: bool,
    compute_units: u32,
    /// Sessions of this process.
    sessions: usize,
}

impl Load {
    fn of(info: &DeviceInfo) -> Self {
        let (lost, sessions) = (info.lost.load(Relaxed), info.sessions.load(Relaxed));
        Self { lost, integrated: info.integrated, compute_units: info.compute_units, sessions }
    }

    fn describe(&self, info: &DeviceInfo) -> String {
        let lost = if self.lost { ", which was lost" } else { "" };
        let sessions = if self.sessions == 1 { "session" } else { "sessions" };
        format!("{} {}{lost}: {} {sessions} of this process", info.vendor, info.ordinal, self.sessions)
    }

    /// Orders the better GPU for another session first.
    fn cmp(&self, other: &Self) -> Ordering {
        // Compares compute units per session without a division. Unknown units count as 1.
        let units = |load: &Self| u64::from(load.compute_units.max(1));
        let sessions = |load: &Self| load.sessions as u64 + 1;
        let share = (units(other) * sessions(self)).cmp(&(units(self) * sessions(other)));
        (self.lost, self.integrated).cmp(&(other.lost, other.integrated)).then(share)
    }
}

/// Returns the index of the least loaded GPU. Queries free memory only of those that are equal otherwise.
fn least(loads: &[Load], mut free: impl FnMut(usize) -> usize) -> Option<usize> {
    let best = loads.iter().min_by(|a, b| a.cmp(b))?;
    let equals: Vec<_> = (0..loads.len()).filter(|i| loads[*i].cmp(best).is_eq()).collect();
    match equals[..] {
        [only] => Some(only),
        _ => {
            let free: Vec<_> = equals.iter().map(|i| free(*i)).collect();
            let most = free.iter().max()?;
            let first = free.iter().position(|bytes| most - bytes <= TRIFLE)?;
            Some(equals[first])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chooses among GPUs with these compute units and sessions. Also returns which were queried for free memory.
    fn choice(gpus: &[(u32, usize)], free: &[usize]) -> (usize, Vec<usize>) {
        let load = |(compute_units, sessions): &(u32, usize)| Load {
            lost: false,
            integrated: false,
            compute_units: *compute_units,
            sessions: *sessions,
        };
        among(&gpus.iter().map(load).collect::<Vec<_>>(), free)
    }

    fn among(loads: &[Load], free: &[usize]) -> (usize, Vec<usize>) {
        let mut asked = vec![];
        let chosen = least(loads, |i| {
            asked.push(i);
            free[i] << 20
        });
        (chosen.unwrap(), asked)
    }

    #[test]
    fn sessions_of_this_process_count_before_memory() {
        assert_eq!(choice(&[(132, 1), (132, 0)], &[9000, 10]), (1, vec![]));
        assert_eq!(choice(&[(132, 3), (132, 2), (132, 4)], &[0; 3]), (1, vec![]));
        // Only equal GPUs are queried, and a small difference is ignored.
        assert_eq!(choice(&[(132, 1), (132, 0), (132, 0)], &[9000, 1000, 2000]), (2, vec![1, 2]));
        assert_eq!(choice(&[(132, 0), (132, 0)], &[1023, 1024]), (0, vec![0, 1]));
        assert_eq!(choice(&[(132, 0)], &[0]), (0, vec![]));
        assert_eq!(least(&[], |_| 0), None);
    }

    #[test]
    fn a_larger_gpu_takes_more_sessions() {
        let mut gpus = [(132, 0), (40, 0)];
        let mut order = vec![];
        for _ in 0..8 {
            let (chosen, _) = choice(&gpus, &[0, 0]);
            gpus[chosen].1 += 1;
            order.push(chosen);
        }
        assert_eq!(order, [0, 0, 0, 1, 0, 0, 0, 1]);
        // The runtime reports no compute units.
        assert_eq!(choice(&[(0, 0), (1, 1)], &[0, 0]), (0, vec![]));
    }

    #[test]
    fn kinds_are_not_weighed_against_each_other() {
        let load = |lost, integrated, sessions| Load { lost, integrated, compute_units: 20, sessions };
        assert_eq!(among(&[load(false, true, 0), load(false, false, 50)], &[9000, 0]), (1, vec![]));
        assert_eq!(among(&[load(true, false, 0), load(false, false, 5)], &[9000, 0]), (1, vec![]));
        assert_eq!(among(&[load(true, false, 0), load(false, true, 5)], &[9000, 0]), (1, vec![]));
    }
}
