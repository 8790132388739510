// SPDX-License-Identifier: MPL-2.0

//! The backend: prepared scratch, the threads, and the metrics side by side.

use std::collections::VecDeque;
use std::fmt;

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::adm::Adm;
use super::import::Importer;
use super::simd::Level;
use super::speed::Speed;
use super::vif::Vif;
use crate::backend::{Backend, BackendError, Pair, Ticket};
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
    /// Some metric looks at Cb and Cr.
    chroma: bool,
    depth: BitDepth,
    vif: Option<Vif>,
    adm: Option<Adm>,
    speed: Option<Speed>,
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
    /// For the reference and the distorted pictures.
    importers: [Importer; 2],
    /// Results that were not fetched yet; at most one, as work is done when `submit` returns.
    done: Option<(Ticket, FrameSums)>,
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
            importers: Default::default(),
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

    fn prepare(&mut self, work: &Work, geometry: Geometry) -> Result<(), BackendError> {
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
        let speed = work.speed.as_ref().map(|work| Speed::new(work, geometry)).transpose()?;
        let lags = work.motion.map_or(0, |motion| motion.lags());
        self.prepared = Some(Prepared {
            motion: work.motion,
            psnr: work.psnr,
            chroma: work.chroma(),
            depth,
            vif: vif.transpose()?,
            adm: adm.transpose()?,
            speed,
            earlier: (0..lags).map(|_| Kept::default()).collect(),
            run: 0,
        });
        self.done = None;
        Ok(())
    }

    fn submit(&mut self, pair: Pair<'_>) -> Result<Ticket, BackendError> {
        let Self { level, pool, importers: [for_reference, for_distorted], .. } = self;
        let prepared = self.prepared.as_mut().ok_or(BackendError::NotPrepared)?;
        let (depth, chroma) = (prepared.depth, prepared.chroma);
        let unreadable = || BackendError::Picture("cpu");
        let frames = [
            for_reference.import(&pair.reference, depth, chroma).ok_or_else(unreadable)?,
            for_distorted.import(&pair.distorted, depth, chroma).ok_or_else(unreadable)?,
        ];
        let sums = pool.install(|| prepared.compute(*level, &frames, pair.history_only))?;
        let ticket = Ticket(self.next);
        self.next += 1;
        self.done = Some((ticket, sums));
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<FrameSums>, BackendError> {
        let done = self.done.take_if(|(done, _)| *done == ticket);
        done.map(|(_, sums)| Some(sums)).ok_or(BackendError::UnknownTicket)
    }

    fn reset(&mut self) {
        if let Some(prepared) = &mut self.prepared {
            prepared.run = 0;
        }
    }
}

impl Prepared {
    /// All metrics of one pair, side by side on the threads of the current pool.
    fn compute(
        &mut self,
        level: Level,
        [reference, distorted]: &[Frame<'_>; 2],
        history_only: bool,
    ) -> Result<FrameSums, BackendError> {
        let luma = PlanePair::new(reference.luma, distorted.luma).ok_or(BackendError::Unlike)?;
        let Self { motion, psnr, depth, vif, adm, speed, earlier, run, .. } = self;
        let vif = vif.as_mut().filter(|_| !history_only);
        let adm = adm.as_mut().filter(|_| !history_only);
        let speed = speed.as_ref().filter(|_| !history_only);
        let sad = |lag: usize| {
            let kept = earlier.get(lag - 1).filter(|_| lag <= *run)?;
            Some(typed!(kept.pair(reference.luma)?, |a, b| super::motion::sad(level, a, b, *depth)))
        };
        let sse =
            |a, b| PlanePair::new(a, b).map(|planes| typed!(planes, |a, b| super::psnr::sse(level, a, b)));
        let ((vif, adm), (motion, psnr, speed)) = rayon::join(
            || {
                rayon::join(
                    || vif.and_then(|vif| typed!(luma, |r, d| vif.compute(level, r, d))),
                    || adm.map(|adm| typed!(luma, |r, d| adm.compute(level, r, d))),
                )
            },
            || {
                let motion = motion.map(|motion| MotionSums {
                    lag1: motion.lag1.then(|| sad(1)).flatten(),
                    lag2: motion.lag2.then(|| sad(2)).flatten(),
                });
                let psnr = psnr.and_then(|psnr| {
                    let chroma = reference.chroma.zip(distorted.chroma).filter(|_| psnr.chroma);
                    let chroma = chroma.and_then(|(r, d)| Some([sse(r[0], d[0])?, sse(r[1], d[1])?]));
                    Some(PsnrSums { y: sse(reference.luma, distorted.luma)?, chroma })
                });
                let speed = speed.and_then(|speed| {
                    let ([u0, v0], [u1, v1]) = (reference.chroma?, distorted.chroma?);
                    let pairs = [PlanePair::new(u0, u1)?, PlanePair::new(v0, v1)?];
                    Some(speed.compute(level, pairs))
                });
                (motion, psnr, speed)
            },
        );
        if let Some(mut oldest) = self.earlier.pop_back() {
            oldest.copy(reference.luma);
            self.earlier.push_front(oldest);
            self.run += 1;
        }
        Ok(FrameSums { vif, adm, motion, psnr, speed })
    }
}
