// SPDX-License-Identifier: MPL-2.0

//! How files that are shown beside a film are paired with it: as `score` pairs them.
//!
//! Files are looked at before they are shown, on a thread of their own, as that may take as long as decoding them does. What
//! was decided gives the frames of a file the times of their partners in the film.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

use score::command;
use score::{Args, Fields, Kept, Timing};

/// The timings of the film and of a file that is shown beside it; none where their timestamps pair their frames.
type Timings = Option<[Arc<Timing>; 2]>;

/// What is known of a stream of a channel.
enum Plan {
    /// It is none that is paired with a film.
    Other,
    /// It is not looked at yet.
    Unknown,
    /// It is being looked at.
    Asked(Receiver<Result<Timings, String>>),
    /// What was decided.
    Known(Timings),
}

/// What came of asking for a plan.
#[derive(Debug)]
pub enum Answer {
    /// Ask again later.
    Wait,
    /// The times that the frames of the file get; none for their own.
    Paired(Option<Arc<Timing>>),
    /// The file cannot be paired with the film, and why.
    Failed(String),
}

/// The plans of a channel.
pub struct Films {
    film: Option<PathBuf>,
    plans: Vec<Plan>,
}

impl Films {
    /// Of a reference and its renditions, by the files that they are.
    pub fn new<'a>(film: Option<&Path>, files: impl Iterator<Item = Option<&'a Path>>) -> Self {
        let plan = |file: Option<&Path>| {
            if film.is_some() && file.is_some() { Plan::Unknown } else { Plan::Other }
        };
        Self { film: film.map(Path::to_owned), plans: files.map(plan).collect() }
    }

    /// Asks how the frames of a rendition are paired, whose file is there, and so is the film.
    pub fn ask(&mut self, rendition: usize, file: &Path) -> Answer {
        let (Some(plan), Some(film)) = (self.plans.get_mut(rendition), &self.film) else {
            return Answer::Paired(None);
        };
        if matches!(plan, Plan::Unknown) {
            *plan = Plan::Asked(look(film.clone(), file.to_owned()));
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
                Answer::Failed("there was a fault in this program".into())
            }
        }
    }

    /// Returns true while files are being looked at.
    pub fn are_looked_at(&self) -> bool {
        self.plans.iter().any(|plan| matches!(plan, Plan::Asked(_)))
    }

    /// Returns the times that the frames of the film get: those that no rendition has are left out, as `score` leaves them out.
    pub fn film(&self) -> Option<Arc<Timing>> {
        let mut timings = self.plans.iter().map(|plan| plan.timing(0));
        let first = timings.next()??;
        timings.try_fold(first, |sum, timing| Some(Arc::new(sum.or(&*timing?))))
    }
}

impl Plan {
    /// The times of the film or of the file, where these are not their own.
    fn timing(&self, side: usize) -> Option<Arc<Timing>> {
        match self {
            Self::Known(timings) => timings.as_ref().map(|timings| timings[side].clone()),
            _ => None,
        }
    }
}

/// Looks at two files on a thread that nothing waits for.
fn look(film: PathBuf, file: PathBuf) -> Receiver<Result<Timings, String>> {
    let (decided, answer) = mpsc::channel();
    // Without a thread there is no answer, which is a failure as well.
    let _ = thread::Builder::new().name("films".into()).spawn(move || {
        // Refused by a channel that has ended.
        let _ = decided.send(decide(&film, &file));
    });
    answer
}

/// Decides how two files are paired.
fn decide(film: &Path, file: &Path) -> Result<Timings, String> {
    // Pipes can be read only once.
    if [film, file].iter().any(|path| !path.is_file()) {
        return Ok(None);
    }
    let args = Args::of_files([film, file]).map_err(|error| error.to_string())?;
    let prepared = command::prepare(&args).map_err(|error| error.to_string())?;
    let Some(pairing) = prepared.pairings.first().and_then(Option::as_ref) else {
        return Err(format!("{} and {} could not be looked at", film.display(), file.display()));
    };
    let job = &prepared.job;
    let mut treatments = job.treatments.iter().chain([&job.treatment]);
    if treatments.any(|treatment| matches!(treatment.fields, Some(Fields::First(_)))) {
        return Err(format!(
            "one of {} and {} is interlaced and the other is not: deinterlace it first, or compare them with hipvmaf score",
            film.display(),
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
        let mut live = Films::new(None, [Some(file), None].into_iter());
        assert!(matches!(live.ask(0, file), Answer::Paired(None)) && !live.are_looked_at());
        let mut films = Films::new(Some(file), [Some(file), None].into_iter());
        assert!(matches!(films.ask(1, file), Answer::Paired(None)) && !films.are_looked_at());
        assert!(films.film().is_none());
    }
}
