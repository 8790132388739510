// SPDX-License-Identifier: MPL-2.0

//! The backend: prepared scratch, the threads, and the metrics side by side.

use std::collections::VecDeque;
use std::fmt;

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::adm::Adm;
use super::cambi::Cambi;
use super::import::Importer;
use super::scale::{Scaled, Scaler};
use super::simd::Level;
use super::speed::Speed;
use super::ssim::Ssim;
use super::vif::Vif;
use crate::backend::{Backend, BackendError, Group, Ticket, check, check_size};
use crate::frame::{AnyPlane, BitDepth, Frame, Geometry, Plane, PlaneGroup, PlanePair, Sample};
use crate::metrics::damage::DamageSums;
use crate::metrics::motion::{MotionSums, MotionWork};
use crate::metrics::psnr::{PsnrSums, PsnrWork};
use crate::metrics::psnr_hvs::{self, PsnrHvsSums};
use crate::metrics::vif::VifSums;
use crate::metrics::{FrameSums, Work, ciede};
use crate::scale::Scaling;

/// Evaluates an expression for the planes of a `PlanePair` or `PlaneGroup` of either sample type.
macro_rules! typed {
    ($kind:ident: $planes:expr, |$a:pat_param, $b:pat_param| $body:expr) => {
        match $planes {
            $kind::U8($a, $b) => $body,
            $kind::U16($a, $b) => $body,
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
    geometry: Geometry,
    /// For each rendition, how its pictures are scaled if they are.
    scalers: Vec<Option<(Scaling, Scaler)>>,
    vif: Option<Vif>,
    damage: bool,
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
    for_distorted: Vec<(Importer, Scaled)>,
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

    fn prepare(
        &mut self,
        work: &Work,
        geometry: Geometry,
        renditions: &[Option<Scaling>],
    ) -> Result<(), BackendError> {
        let Geometry { width, height, depth, .. } = geometry;
        let count = renditions.len();
        check(work, geometry)?;
        // Enough parts that threads finish together, and no more: filters work twice on the rows at seams.
        let bands = match self.pool.current_num_threads() {
            1 => 1,
            threads => 8 * threads,
        };
        // `check` has refused what these refuse.
        let vif = work.vif.as_ref().and_then(|work| Vif::new(work, width, height, depth, count, bands));
        let adm = work.adm.as_ref().and_then(|work| Adm::new(work, width, height, depth, count, bands));
        let cambi =
            work.cambi.iter().map(|work| Cambi::new(work, geometry, bands)).collect::<Result<_, _>>()?;
        let speed = work.speed.as_ref().map(|work| Speed::new(work, geometry)).transpose()?;
        let lags = work.motion.map_or(0, |motion| motion.lags());
        self.prepared = Some(Prepared {
            motion: work.motion,
            psnr: work.psnr,
            chroma: work.chroma(),
            geometry,
            scalers: renditions
                .iter()
                .map(|s| s.map(|scaling| (scaling, Scaler::new(&scaling, bands))))
                .collect(),
            vif,
            damage: work.damage,
            adm,
            cambi,
            ssim: work.ssim.as_ref().map(|work| Ssim::new(work, geometry, count)),
            psnr_hvs: work.psnr_hvs,
            ciede: work.ciede.then(|| ciede::fixed_sum(geometry).bias()),
            speed,
            earlier: (0..lags).map(|_| Kept::default()).collect(),
            run: 0,
        });
        self.for_distorted.resize_with(count, Default::default);
        self.done = None;
        Ok(())
    }

    fn submit(&mut self, group: Group<'_>) -> Result<Ticket, BackendError> {
        let Self { level, pool, for_reference, for_distorted, .. } = self;
        let prepared = self.prepared.as_mut().ok_or(BackendError::NotPrepared)?;
        let Prepared { geometry, chroma, .. } = *prepared;
        let unreadable = || BackendError::Picture("cpu");
        if group.distorted.len() > for_distorted.len() {
            return Err(BackendError::Full);
        }
        check_size(&group.reference, geometry)?;
        let reference =
            for_reference.import(&group.reference, geometry.depth, chroma).ok_or_else(unreadable)?;
        let sums = pool.install(|| {
            let distorted = group.distorted.iter().zip(for_distorted).map(|((rendition, picture), room)| {
                let (importer, scaled) = room;
                let scaler = prepared.scalers.get(*rendition).ok_or(BackendError::NotPrepared)?;
                check_size(picture, scaler.as_ref().map_or(geometry, |(scaling, _)| scaling.source()))?;
                let frame = importer.import(picture, geometry.depth, chroma).ok_or_else(unreadable)?;
                match scaler {
                    Some((_, scaler)) => scaler.scale(*level, &frame, scaled).ok_or(BackendError::Unlike),
                    None => Ok(frame),
                }
            });
            let distorted = distorted.collect::<Result<Vec<_>, _>>()?;
            prepared.compute(*level, &reference, &distorted, group.history_only)
        })?;
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
    PlanePair::new(a, b).map(|planes| typed!(PlanePair: planes, |a, b| super::psnr::sse(level, a, b)))
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
        let Self {
            motion,
            psnr,
            geometry,
            vif,
            damage,
            adm,
            cambi,
            ssim,
            psnr_hvs,
            ciede,
            speed,
            earlier,
            run,
            ..
        } = self;
        let depth = geometry.depth;
        let luma = PlaneGroup::new(reference.luma, distorted.iter().map(|frame| frame.luma));
        let luma = &luma.ok_or(BackendError::Unlike)?;
        let chroma = |i: usize| {
            let planes = distorted.iter().map(|frame| Some(frame.chroma?[i]));
            PlaneGroup::new(reference.chroma?[i], planes.collect::<Option<Vec<_>>>()?)
        };
        let scored = !history_only;
        let colour = || Some([luma.clone(), chroma(0)?, chroma(1)?]);
        let colour = scored.then(colour).flatten();
        let colour = colour.as_ref();
        let sad = |lag: usize| {
            let kept = earlier.get(lag - 1).filter(|_| lag <= *run)?;
            let planes = kept.pair(reference.luma)?;
            Some(typed!(PlanePair: planes, |a, b| super::motion::sad(level, a, b, depth)))
        };
        let sse = |distorted: &Frame<'_>| {
            let psnr = psnr.as_ref()?;
            let chroma = reference.chroma.zip(distorted.chroma).filter(|_| psnr.chroma);
            let chroma = chroma.and_then(|(r, d)| Some([sse(level, r[0], d[0])?, sse(level, r[1], d[1])?]));
            Some(PsnrSums { y: sse(level, reference.luma, distorted.luma)?, chroma })
        };
        let ((((vif, damage), adm), (ssim, cambi)), ((psnr, motion), (psnr_hvs, ciede, speed))) = rayon::join(
            || {
                rayon::join(
                    || {
                        let vif = vif.as_mut().filter(|_| scored);
                        let adm = adm.as_mut().filter(|_| scored);
                        rayon::join(
                            || vif.map(|vif| information(level, vif, luma, *damage)).unwrap_or_default(),
                            || adm.map(|adm| typed!(PlaneGroup: luma, |r, d| adm.compute(level, *r, d))),
                        )
                    },
                    || {
                        let ssim = ssim.as_mut().filter(|_| scored);
                        let cambi = if scored { cambi.as_mut_slice() } else { &mut [] };
                        let banding =
                            |cambi: &mut Cambi| typed!(PlaneGroup: luma, |r, d| cambi.compute(level, *r, d));
                        rayon::join(
                            || {
                                ssim.and_then(
                                    |ssim| typed!(PlaneGroup: luma, |r, d| ssim.compute(level, *r, d)),
                                )
                            },
                            || cambi.iter_mut().map(banding).collect::<Vec<_>>(),
                        )
                    },
                )
            },
            || {
                let psnr: Vec<_> = distorted.iter().map(sse).collect();
                let motion = motion.map(|motion| MotionSums {
                    lag1: motion.lag1.then(|| sad(1)).flatten(),
                    lag2: motion.lag2.then(|| sad(2)).flatten(),
                });
                let psnr_hvs = colour.filter(|_| *psnr_hvs).map(|planes| hvs_errors(level, planes));
                let ciede = ciede.zip(colour).map(|(bias, planes)| difference(level, planes, depth, bias));
                let speed = speed.as_ref().zip(colour);
                let speed = speed.map(|(speed, [_, cb, cr])| speed.compute(level, [cb.clone(), cr.clone()]));
                ((psnr, motion), (psnr_hvs, ciede, speed))
            },
        );
        if let Some(mut oldest) = self.earlier.pop_back() {
            oldest.copy(reference.luma);
            self.earlier.push_front(oldest);
            self.run += 1;
        }
        let (mut vif, mut damage) = (vif.into_iter(), damage.into_iter());
        let mut adm = adm.into_iter().flatten();
        let mut ssim = ssim.into_iter().flatten();
        let mut cambi: Vec<_> = cambi.into_iter().map(Vec::into_iter).collect();
        let mut psnr_hvs = psnr_hvs.into_iter().flatten();
        let mut ciede = ciede.into_iter().flatten();
        let mut speed = speed.into_iter().flatten();
        let sums = psnr.into_iter().map(|psnr| FrameSums {
            vif: vif.next(),
            damage: damage.next(),
            adm: adm.next(),
            motion,
            psnr,
            ssim: ssim.next(),
            psnr_hvs: psnr_hvs.next(),
            ciede: ciede.next(),
            speed: speed.next(),
            cambi: cambi.iter_mut().filter_map(Iterator::next).collect(),
        });
        Ok(sums.collect())
    }
}

/// VIF of each distorted picture, and where it is damaged if that is asked for.
fn information(
    level: Level,
    vif: &mut Vif,
    luma: &PlaneGroup<'_>,
    damage: bool,
) -> (Vec<VifSums>, Vec<DamageSums>) {
    let sums = typed!(PlaneGroup: luma, |r, d| vif.compute(level, *r, d)).unwrap_or_default();
    let halves = if damage { vif.halves(sums.len()) } else { vec![] };
    let Some((reference, distorted)) = halves.split_first() else { return (sums, vec![]) };
    let windows = distorted.iter().map(|distorted| super::damage::windows([*reference, *distorted]));
    (sums, windows.collect())
}

/// PSNR-HVS of Y, Cb and Cr, of each distorted picture.
fn hvs_errors(level: Level, planes: &[PlaneGroup<'_>; 3]) -> Vec<PsnrHvsSums> {
    let plane = |i: usize| {
        let tables = &psnr_hvs::TABLES[i];
        typed!(PlaneGroup: &planes[i], |r, d| super::psnr_hvs::errors(level, *r, d, tables))
    };
    let (y, (cb, cr)) = rayon::join(|| plane(0), || rayon::join(|| plane(1), || plane(2)));
    y.into_iter().zip(cb).zip(cr).map(|((y, cb), cr)| [y, cb, cr]).collect()
}

/// CIEDE2000 of each distorted picture, of none where the planes differ in sample type.
fn difference(level: Level, planes: &[PlaneGroup<'_>; 3], depth: BitDepth, bias: f64) -> Vec<u64> {
    fn pictures<T: Copy>(y: &[T], cb: &[T], cr: &[T]) -> Vec<[T; 3]> {
        y.iter().zip(cb).zip(cr).map(|((y, cb), cr)| [*y, *cb, *cr]).collect()
    }
    match planes {
        [PlaneGroup::U8(y, ys), PlaneGroup::U8(cb, cbs), PlaneGroup::U8(cr, crs)] => {
            super::ciede::difference(level, [*y, *cb, *cr], &pictures(ys, cbs, crs), depth, bias)
        }
        [PlaneGroup::U16(y, ys), PlaneGroup::U16(cb, cbs), PlaneGroup::U16(cr, crs)] => {
            super::ciede::difference(level, [*y, *cb, *cr], &pictures(ys, cbs, crs), depth, bias)
        }
        _ => vec![],
    }
}
