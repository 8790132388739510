// SPDX-License-Identifier: MPL-2.0

//! The backend: prepared scratch, the threads, and the metrics side by side.

use std::collections::VecDeque;
use std::fmt;

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::adm::Adm;
use super::cambi::Cambi;
use super::import::Importer;
use super::simd::Level;
use super::speed::Speed;
use super::ssim::Ssim;
use super::vif::Vif;
use crate::backend::{Backend, BackendError, Group, Ticket, check};
use crate::frame::{AnyPlane, BitDepth, Frame, Geometry, Plane, PlanePair, Sample};
use crate::metrics::motion::{MotionSums, MotionWork};
use crate::metrics::psnr::{PsnrSums, PsnrWork};
use crate::metrics::psnr_hvs::{self, PsnrHvsSums};
use crate::metrics::{FrameSums, Work, ciede};

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
    cambi: Vec<Cambi>,
    ssim: Option<Ssim>,
    psnr_hvs: bool,
    /// The bias of the colour differences.
    ciede: Option<f64>,
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
        check(work, geometry)?;
        // Enough parts that threads finish together, and no more: filters work twice on the rows at seams.
        let bands = match self.pool.current_num_threads() {
            1 => 1,
            threads => 8 * threads,
        };
        // `check` has refused what these refuse.
        let vif = work.vif.as_ref().and_then(|work| Vif::new(work, width, height, depth, bands));
        let adm = work.adm.as_ref().and_then(|work| Adm::new(work, width, height, depth, bands));
        let cambi =
            work.cambi.iter().map(|work| Cambi::new(work, geometry, bands)).collect::<Result<_, _>>()?;
        let speed = work.speed.as_ref().map(|work| Speed::new(work, geometry)).transpose()?;
        let lags = work.motion.map_or(0, |motion| motion.lags());
        self.prepared = Some(Prepared {
            motion: work.motion,
            psnr: work.psnr,
            chroma: work.chroma(),
            depth,
            vif,
            adm,
            cambi,
            ssim: work.ssim.as_ref().map(|work| Ssim::new(work, geometry)),
            psnr_hvs: work.psnr_hvs,
            ciede: work.ciede.then(|| ciede::fixed_sum(geometry).bias()),
            speed,
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
        let (depth, chroma) = (prepared.depth, prepared.chroma);
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
        let Self { motion, psnr, depth, vif, adm, cambi, ssim, psnr_hvs, ciede, speed, earlier, run, .. } =
            self;
        let sad = |lag: usize| {
            let kept = earlier.get(lag - 1).filter(|_| lag <= *run)?;
            Some(typed!(kept.pair(reference.luma)?, |a, b| super::motion::sad(level, a, b, *depth)))
        };
        let pair = |distorted: &Frame<'_>| {
            let luma = PlanePair::new(reference.luma, distorted.luma).ok_or(BackendError::Unlike)?;
            let vif = vif.as_mut().filter(|_| !history_only);
            let adm = adm.as_mut().filter(|_| !history_only);
            let speed = speed.as_ref().filter(|_| !history_only);
            let ssim = ssim.as_mut().filter(|_| !history_only);
            let cambi = if history_only { &mut [] } else { cambi.as_mut_slice() };
            let colour = reference.chroma.zip(distorted.chroma).filter(|_| !history_only);
            let colour = colour.and_then(|([cb1, cr1], [cb2, cr2])| {
                Some([luma, PlanePair::new(cb1, cb2)?, PlanePair::new(cr1, cr2)?])
            });
            let (((vif, adm), (ssim, cambi)), (psnr, (psnr_hvs, ciede, speed))) = rayon::join(
                || {
                    rayon::join(
                        || {
                            rayon::join(
                                || vif.and_then(|vif| typed!(luma, |r, d| vif.compute(level, r, d))),
                                || adm.map(|adm| typed!(luma, |r, d| adm.compute(level, r, d))),
                            )
                        },
                        || {
                            let compute = |cambi: &mut Cambi| typed!(luma, |r, d| cambi.compute(level, r, d));
                            rayon::join(
                                || ssim.and_then(|ssim| typed!(luma, |r, d| ssim.compute(level, [r, d]))),
                                || cambi.iter_mut().map(compute).collect(),
                            )
                        },
                    )
                },
                || {
                    let psnr = psnr.and_then(|psnr| {
                        let chroma = reference.chroma.zip(distorted.chroma).filter(|_| psnr.chroma);
                        let chroma = chroma
                            .and_then(|(r, d)| Some([sse(level, r[0], d[0])?, sse(level, r[1], d[1])?]));
                        Some(PsnrSums { y: sse(level, reference.luma, distorted.luma)?, chroma })
                    });
                    let psnr_hvs = colour.filter(|_| *psnr_hvs).map(|planes| hvs_errors(level, planes));
                    let ciede =
                        ciede.zip(colour).and_then(|(bias, planes)| difference(level, planes, *depth, bias));
                    let speed = speed.and_then(|speed| {
                        let ([u0, v0], [u1, v1]) = (reference.chroma?, distorted.chroma?);
                        let pairs = [PlanePair::new(u0, u1)?, PlanePair::new(v0, v1)?];
                        Some(speed.compute(level, pairs))
                    });
                    (psnr, (psnr_hvs, ciede, speed))
                },
            );
            Ok::<_, BackendError>(FrameSums {
                vif,
                adm,
                motion: None,
                psnr,
                ssim,
                psnr_hvs,
                ciede,
                speed,
                cambi,
            })
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

/// PSNR-HVS of Y, Cb and Cr.
fn hvs_errors(level: Level, planes: [PlanePair<'_>; 3]) -> PsnrHvsSums {
    let plane = |i: usize| {
        let tables = &psnr_hvs::TABLES[i];
        typed!(planes[i], |a, b| super::psnr_hvs::errors(level, [a, b], tables))
    };
    let (y, (cb, cr)) = rayon::join(|| plane(0), || rayon::join(|| plane(1), || plane(2)));
    [y, cb, cr]
}

/// CIEDE2000, `None` where the planes differ in sample type.
fn difference(level: Level, planes: [PlanePair<'_>; 3], depth: BitDepth, bias: f64) -> Option<u64> {
    match planes {
        [PlanePair::U8(y1, y2), PlanePair::U8(u1, u2), PlanePair::U8(v1, v2)] => {
            Some(super::ciede::difference(level, [[y1, u1, v1], [y2, u2, v2]], depth, bias))
        }
        [PlanePair::U16(y1, y2), PlanePair::U16(u1, u2), PlanePair::U16(v1, v2)] => {
            Some(super::ciede::difference(level, [[y1, u1, v1], [y2, u2, v2]], depth, bias))
        }
        _ => None,
    }
}
