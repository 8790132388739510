// SPDX-License-Identifier: MPL-2.0

//! The backend: prepared scratch, the threads, and the metrics side by side.

use std::collections::VecDeque;
use std::fmt;

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::adm::Adm;
use super::import::Importer;
use super::simd::Level;
use super::vif::Vif;
use crate::backend::{Backend, BackendError, Group, Ticket};
use crate::frame::{AnyPlane, BitDepth, Frame, Geometry, Plane, PlanePair, Sample};
use crate::metrics::motion::{self, MotionSums, MotionWork};
use crate::metrics::psnr::{PsnrSums, PsnrWork};
use crate::metrics::{FrameSums, Work, adm, vif};

/// Evaluates an expression for two planes of either sample type.
macro_rules! typed {
    ($pair:expr, |$a:ident, $b:ident| $body:expr) => {
        match $pair {
            PlanePair::U8($a, $b) => $body,
            PlanePair::U16($a, $b) => $body,
        }
    };
}

/// The samples of a plane, kept beyond the frame it came from.
#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    words: Vec<u16>,
}

impl Kept {
    fn copy(&mut self, plane: AnyPlane<'_>) {
        fn rows<T: Sample>(plane: Plane<'_, T>, samples: &mut Vec<T>) {
            samples.clear();
            (0..plane.height()).for_each(|y| samples.extend_from_slice(plane.row(y)));
        }
        match plane {
            AnyPlane::U8(plane) => rows(plane, &mut self.bytes),
            AnyPlane::U16(plane) => rows(plane, &mut self.words),
        }
    }

    /// Beside the plane of a later frame of the same geometry.
    fn pair<'a>(&'a self, later: AnyPlane<'a>) -> Option<PlanePair<'a>> {
        let kept = match later {
            AnyPlane::U8(p) => AnyPlane::U8(Plane::new(&self.bytes, p.width(), p.height(), p.width())?),
            AnyPlane::U16(p) => AnyPlane::U16(Plane::new(&self.words, p.width(), p.height(), p.width())?),
        };
        PlanePair::new(kept, later)
    }
}

/// What is set up for the frames of one geometry.
struct Prepared {
    motion: Option<MotionWork>,
    psnr: Option<PsnrWork>,
    depth: BitDepth,
    vif: Option<Vif>,
    adm: Option<Adm>,
    /// Luma of the latest reference frames, as many as motion looks back, the last one first.
    earlier: VecDeque<Kept>,
    /// How many of them belong to the present run.
    run: usize,
}

/// Computes on the processor.
pub struct Cpu {
    level: Level,
    pool: ThreadPool,
    prepared: Option<Prepared>,
    for_reference: Importer,
    for_distorted: Vec<Importer>,
    /// Results that were not fetched yet; at most one, as work is done when `submit` returns.
    done: Option<(Ticket, Vec<FrameSums>)>,
    next: u64,
}

impl Cpu {
    /// `threads`: how many to compute with; 0 for one per processor.
    pub fn new(threads: usize) -> Result<Self, BackendError> {
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("hipvmaf-{i}"))
            .build()
            .map_err(|err| BackendError::Threads { threads, reason: err.to_string() })?;
        Ok(Self {
            level: Level::detect(),
            pool,
            prepared: None,
            for_reference: Importer::default(),
            for_distorted: vec![],
            done: None,
            next: 0,
        })
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU, {} instructions, {} threads", self.level.name(), self.pool.current_num_threads())
    }
}

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn prepare(&mut self, work: &Work, geometry: Geometry, renditions: usize) -> Result<(), BackendError> {
        let Geometry { width, height, depth, .. } = geometry;
        // Enough parts that threads finish together, and no more: filters work twice on the rows at seams.
        let bands = match self.pool.current_num_threads() {
            1 => 1,
            threads => 8 * threads,
        };
        let too_small = |metric, min| BackendError::TooSmall { metric, min, width, height };
        let vif = work
            .vif
            .as_ref()
            .map(|work| Vif::new(work, width, height, depth, bands).ok_or(too_small("VIF", vif::MIN_SIZE)));
        let adm = work
            .adm
            .as_ref()
            .map(|work| Adm::new(work, width, height, depth, bands).ok_or(too_small("ADM", adm::MIN_SIZE)));
        if work.motion.is_some() && width.min(height) < motion::MIN_SIZE {
            return Err(too_small("motion", motion::MIN_SIZE));
        }
        let lags = work.motion.map_or(0, |motion| motion.lags());
        self.prepared = Some(Prepared {
            motion: work.motion,
            psnr: work.psnr,
            depth,
            vif: vif.transpose()?,
            adm: adm.transpose()?,
            earlier: (0..lags).map(|_| Kept::default()).collect(),
            run: 0,
        });
        self.for_distorted.resize_with(renditions, Importer::default);
        self.done = None;
        Ok(())
    }

    fn submit(&mut self, group: Group<'_>) -> Result<Ticket, BackendError> {
        let Self { level, pool, for_reference, for_distorted, .. } = self;
        let prepared = self.prepared.as_mut().ok_or(BackendError::NotPrepared)?;
        let (depth, chroma) = (prepared.depth, prepared.psnr.is_some_and(|psnr| psnr.chroma));
        let unreadable = || BackendError::Picture("cpu");
        if group.distorted.len() > for_distorted.len() {
            return Err(BackendError::Full);
        }
        let reference = for_reference.import(&group.reference, depth, chroma).ok_or_else(unreadable)?;
        let distorted = group
            .distorted
            .iter()
            .zip(for_distorted)
            .map(|(picture, importer)| importer.import(picture, depth, chroma).ok_or_else(unreadable));
        let distorted = distorted.collect::<Result<Vec<_>, _>>()?;
        let sums = pool.install(|| prepared.compute(*level, &reference, &distorted, group.history_only))?;
        let ticket = Ticket(self.next);
        self.next += 1;
        self.done = Some((ticket, sums));
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<FrameSums>>, BackendError> {
        let done = self.done.take_if(|(done, _)| *done == ticket);
        done.map(|(_, sums)| Some(sums)).ok_or(BackendError::UnknownTicket)
    }

    fn reset(&mut self) {
        if let Some(prepared) = &mut self.prepared {
            prepared.run = 0;
        }
    }
}

/// Sum of squared differences of two planes.
fn sse(level: Level, a: AnyPlane<'_>, b: AnyPlane<'_>) -> Option<u64> {
    PlanePair::new(a, b).map(|planes| typed!(planes, |a, b| super::psnr::sse(level, a, b)))
}

impl Prepared {
    /// All metrics of one group, side by side on the threads of the current pool.
    fn compute(
        &mut self,
        level: Level,
        reference: &Frame<'_>,
        distorted: &[Frame<'_>],
        history_only: bool,
    ) -> Result<Vec<FrameSums>, BackendError> {
        let Self { motion, psnr, depth, vif, adm, earlier, run } = self;
        let sad = |lag: usize| {
            let kept = earlier.get(lag - 1).filter(|_| lag <= *run)?;
            Some(typed!(kept.pair(reference.luma)?, |a, b| super::motion::sad(level, a, b, *depth)))
        };
        let pair = |distorted: &Frame<'_>| {
            let luma = PlanePair::new(reference.luma, distorted.luma).ok_or(BackendError::Unlike)?;
            let vif = vif.as_mut().filter(|_| !history_only);
            let adm = adm.as_mut().filter(|_| !history_only);
            let ((vif, adm), psnr) = rayon::join(
                || {
                    rayon::join(
                        || vif.and_then(|vif| typed!(luma, |r, d| vif.compute(level, r, d))),
                        || adm.map(|adm| typed!(luma, |r, d| adm.compute(level, r, d))),
                    )
                },
                || {
                    psnr.and_then(|psnr| {
                        let chroma = reference.chroma.zip(distorted.chroma).filter(|_| psnr.chroma);
                        let chroma = chroma
                            .and_then(|(r, d)| Some([sse(level, r[0], d[0])?, sse(level, r[1], d[1])?]));
                        Some(PsnrSums { y: sse(level, reference.luma, distorted.luma)?, chroma })
                    })
                },
            );
            Ok::<_, BackendError>(FrameSums { vif, adm, motion: None, psnr })
        };
        let (sums, motion) = rayon::join(
            || distorted.iter().map(pair).collect::<Result<Vec<_>, _>>(),
            || {
                motion.map(|motion| MotionSums {
                    lag1: motion.lag1.then(|| sad(1)).flatten(),
                    lag2: motion.lag2.then(|| sad(2)).flatten(),
                })
            },
        );
        if let Some(mut oldest) = self.earlier.pop_back() {
            oldest.copy(reference.luma);
            self.earlier.push_front(oldest);
            self.run += 1;
        }
        Ok(sums?.into_iter().map(|sums| FrameSums { motion, ..sums }).collect())
    }
}
