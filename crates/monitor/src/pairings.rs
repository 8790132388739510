// SPDX-License-Identifier: MPL-2.0

//! Pairing of files with a file as reference, as `score` does it.
//!
//! Files are examined before they are shown, on a separate thread, because this can take as long as decoding them.
//! The result gives the frames of each file the times of their partners.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use score::command;
use score::{Args, Fields, Kept, Timing};

/// Held during an examination, so that files are examined one after the other: each takes all CPUs, which live channels need.
static EXAMINATION: Mutex<()> = Mutex::new(());
/// Longest wait for another examination: files on a server that hangs must not hold up all others.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);

/// Timings of the reference and of a rendition; `None` if timestamps pair their frames.
type Timings = Option<[Arc<Timing>; 2]>;

/// State of a rendition.
enum Plan {
    /// Not a file that is paired with a file.
    Other,
    /// Not examined yet.
    Unknown,
    /// Being examined.
    Asked(Receiver<Result<Timings, String>>),
    /// Decided.
    Known(Timings),
}

/// Answer to the question for a pairing.
#[derive(Debug)]
pub enum Answer {
    /// Ask again later.
    Wait,
    /// Times for the frames of the file; `None` to keep its own.
    Paired(Option<Arc<Timing>>),
    /// The files cannot be paired, for this reason.
    Failed(String),
}

/// The pairings of a channel.
pub struct Pairings {
    reference: Option<PathBuf>,
    plans: Vec<Plan>,
}

impl Pairings {
    /// Creates the pairings of a reference and its renditions, as far as they are files.
    pub fn new<'a>(reference: Option<&Path>, files: impl Iterator<Item = Option<&'a Path>>) -> Self {
        let plan = |file: Option<&Path>| {
            if reference.is_some() && file.is_some() { Plan::Unknown } else { Plan::Other }
        };
        Self { reference: reference.map(Path::to_owned), plans: files.map(plan).collect() }
    }

    /// Returns how the frames of a rendition are paired. Its file and that of the reference must exist.
    pub fn ask(&mut self, rendition: usize, file: &Path) -> Answer {
        let (Some(plan), Some(reference)) = (self.plans.get_mut(rendition), &self.reference) else {
            return Answer::Paired(None);
        };
        if matches!(plan, Plan::Unknown) {
            *plan = Plan::Asked(look(reference.clone(), file.to_owned()));
        }
        let Plan::Asked(answer) = plan else { return Answer::Paired(plan.timing(1)) };
        match answer.try_recv() {
            Ok(Ok(timings)) => {
                *plan = Plan::Known(timings);
                Answer::Paired(plan.timing(1))
            }
            Ok(Err(why)) => {
                *plan = Plan::Unknown;
                Answer::Failed(why)
            }
            Err(TryRecvError::Empty) => Answer::Wait,
            Err(TryRecvError::Disconnected) => {
                *plan = Plan::Unknown;
                Answer::Failed("internal error: a thread panicked".into())
            }
        }
    }

    /// Returns true while files are being examined.
    pub fn are_pending(&self) -> bool {
        self.plans.iter().any(|plan| matches!(plan, Plan::Asked(_)))
    }

    /// Returns the times for the frames of the reference. Frames that no rendition has are left out, as in `score`.
    pub fn reference_timing(&self) -> Option<Arc<Timing>> {
        let mut timings = self.plans.iter().map(|plan| plan.timing(0));
        let first = timings.next()??;
        timings.try_fold(first, |sum, timing| Some(Arc::new(sum.or(&*timing?))))
    }
}

impl Plan {
    /// Returns the times for the reference (0) or the rendition (1), unless they keep their own.
    fn timing(&self, side: usize) -> Option<Arc<Timing>> {
        match self {
            Self::Known(timings) => timings.as_ref().map(|timings| timings[side].clone()),
            _ => None,
        }
    }
}

/// Examines two files on a thread of its own.
fn look(reference: PathBuf, file: PathBuf) -> Receiver<Result<Timings, String>> {
    let (decided, answer) = mpsc::channel();
    // Without a thread the channel closes, which counts as a failure.
    let _ = thread::Builder::new().name("pairing".into()).spawn(move || {
        let _turn = EXAMINATION.try_lock_for(TURN_TIMEOUT);
        // Fails only if the monitored channel has ended.
        let _ = decided.send(decide(&reference, &file));
    });
    answer
}

/// Decides how two files are paired.
fn decide(reference: &Path, file: &Path) -> Result<Timings, String> {
    // Pipes can be read only once.
    if [reference, file].iter().any(|path| !path.is_file()) {
        return Ok(None);
    }
    let args = Args::of_files([reference, file]).map_err(|error| error.to_string())?;
    let prepared = command::prepare(&args).map_err(|error| error.to_string())?;
    let Some(pairing) = prepared.pairings.first().and_then(Option::as_ref) else {
        return Err(format!("{} and {} could not be examined", reference.display(), file.display()));
    };
    let job = &prepared.job;
    let mut rendition_preprocessing = job.rendition_preprocessing.iter().chain([&job.preprocessing]);
    if rendition_preprocessing.any(|preprocessing| matches!(preprocessing.fields, Some(Fields::First(_)))) {
        return Err(format!(
            "one of {} and {} is interlaced and the other is not: deinterlace it first, or compare them with hipvmaf score",
            reference.display(),
            file.display()
        ));
    }
    let timings = Kept::of(job, pairing).frames;
    Ok(timings.map(|timings| timings.map(|timing| Arc::new(timing.found_by_position()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_streams_have_their_own_times() {
        let file = Path::new("/nowhere");
        let mut live = Pairings::new(None, [Some(file), None].into_iter());
        assert!(matches!(live.ask(0, file), Answer::Paired(None)) && !live.are_pending());
        let mut pairings = Pairings::new(Some(file), [Some(file), None].into_iter());
        assert!(matches!(pairings.ask(1, file), Answer::Paired(None)) && !pairings.are_pending());
        assert!(pairings.reference_timing().is_none());
    }
}
