// SPDX-License-Identifier: MPL-2.0

//! Integer ADM: rows stream through transform, decoupling, masking and pooling; only the a bands are
//! kept as planes.
//!
//! A frame is cut into bands of rows, one per worker and scale, that rayon spreads over its threads.
//! Each band transforms the two rows that its masking needs from its neighbours once more.

mod detail;
mod lines;
mod transform;

use crate::cpu::Level;
use crate::cpu::simd::{Lanes, dispatch};
use crate::frame::{BitDepth, Plane, Sample};
use crate::metrics::adm::{self, AdmPassSums, AdmScale, AdmSums, AdmWork, BandSums, MIN_SIZE};
use detail::{Detail, Split, Threshold};
use lines::{Approximation, ApproximationRows, Mid, Rows, row32};
use std::ops::Range;
use transform::{Coarse, Luma, Source};

/// Cost of a scored row in units of a row of which only the approximation is needed.
const SCORED_COST: usize = 4;

/// ADM of frames of one size, with all its memory.
pub struct Adm {
    plan: Plan,
    depth: BitDepth,
    /// Whether each pass has an additive numerator.
    passes: Vec<bool>,
    /// The a bands of scales 0 to 2, of the reference and of the distorted frame.
    approximations: [[Approximation; 2]; 3],
    bands: Vec<Band>,
}

/// What is the same for all bands.
struct Plan {
    scales: [AdmScale; 4],
    /// Distinct gain limits.
    gains: Vec<f64>,
    numerators: Vec<Numerator>,
}

/// One masked sum: of the restored part of each pass, and of its additive part where wanted.
struct Numerator {
    gain: usize,
    weights: [[u32; 2]; 4],
    /// The additive part is the signal and the restored one masks it; otherwise the reverse.
    additive: bool,
}

/// One worker's share of the rows of each scale, its row buffers and its sums.
struct Band {
    rows: [Range<usize>; 4],
    /// Vertically filtered rows: low-pass, high-pass.
    mid: [Mid; 2],
    fine: Lines<i16>,
    coarse: Lines<i32>,
    /// Terms of the masking threshold, for each numerator.
    terms: Vec<Terms>,
    /// Scales 0 to 3: the denominator, then the numerators.
    sums: [Vec<BandSums>; 4],
}

/// Detail coefficients of a row.
struct Lines<C> {
    reference: Rows<C>,
    distorted: Rows<C>,
    /// Of the current row and the one above, by row number modulo 2, for each gain limit.
    split: [Vec<Split<C>>; 2],
}

/// Column 0 of each row is the column before the first scored one, if there is one; it stands at index 1.
struct Terms {
    /// Three rows, by row number modulo 3.
    side: [Vec<i32>; 3],
    /// Two rows, by row number modulo 2.
    centre: [Vec<i32>; 2],
}

impl<C: Detail> Lines<C> {
    fn new(width: usize, gains: usize) -> Self {
        let rows = || Rows::new(width);
        let split = |_| (0..gains).map(|_| Split { restored: rows(), additive: rows() }).collect();
        Self { reference: rows(), distorted: rows(), split: [0, 1].map(split) }
    }
}

/// Coefficient types that have their row buffers in a [`Band`].
trait Buffered: Detail {
    fn lines<'a>(fine: &'a mut Lines<i16>, coarse: &'a mut Lines<i32>) -> &'a mut Lines<Self>;
}

impl Buffered for i16 {
    fn lines<'a>(fine: &'a mut Lines<i16>, _coarse: &'a mut Lines<i32>) -> &'a mut Lines<Self> {
        fine
    }
}

impl Buffered for i32 {
    fn lines<'a>(_fine: &'a mut Lines<i16>, coarse: &'a mut Lines<i32>) -> &'a mut Lines<Self> {
        coarse
    }
}

impl Adm {
    /// Work on frames of `width` x `height` samples of `depth`, both extents at least [`MIN_SIZE`], in
    /// up to `bands` parts that may run at the same time. `None` when the frames are too small.
    pub fn new(work: &AdmWork, width: usize, height: usize, depth: BitDepth, bands: usize) -> Option<Self> {
        if width.min(height) < MIN_SIZE {
            return None;
        }
        let mut gains: Vec<f64> = work.passes.iter().map(|pass| pass.gain_limit).collect();
        gains.sort_by(f64::total_cmp);
        gains.dedup();
        let mut numerators = Vec::new();
        for pass in &work.passes {
            let gain = gains.partition_point(|gain| *gain < pass.gain_limit);
            let numerator = |additive| Numerator { gain, weights: pass.weights, additive };
            numerators.push(numerator(false));
            numerators.extend(pass.aim.then(|| numerator(true)));
        }
        let scales = adm::scales(width, height);
        let approximation = |scale: usize, halves| {
            [0, 1].map(|_| Approximation::new(scales[scale].width, scales[scale].height, halves))
        };
        let approximations = [approximation(0, 1), approximation(1, 2), approximation(2, 2)];
        let bands = (0..bands.max(1))
            .map(|band| Band {
                rows: scales.each_ref().map(|scale| share(scale, band, bands.max(1))),
                mid: [0, 1].map(|_| Mid::new(width)),
                fine: Lines::new(scales[0].width, gains.len()),
                coarse: Lines::new(scales[1].width, gains.len()),
                terms: numerators.iter().map(|_| Terms::new(scales[0].width)).collect(),
                sums: [0; 4].map(|_| vec![BandSums::default(); 1 + numerators.len()]),
            })
            .collect();
        let passes = work.passes.iter().map(|pass| pass.aim).collect();
        Some(Self { plan: Plan { scales, gains, numerators }, depth, passes, approximations, bands })
    }

    /// The sums of one pair of luma planes of the size and depth given to [`Adm::new`]. Runs in the
    /// current rayon pool.
    pub fn compute<T: Sample>(&mut self, level: Level, reference: Plane<T>, distorted: Plane<T>) -> AdmSums {
        let bits = self.depth.bits();
        let luma = [reference, distorted].map(|plane| Luma { plane, middle: 1 << (bits - 1) });
        let Self { plan, approximations: [one, two, three], bands, .. } = self;
        let run = |scale, shifts| Run { level, plan, scale, shifts };
        run(0, [bits, 16]).spread::<_, i16>(bands, luma, one.each_mut().map(Approximation::rows_mut));
        run(1, [0, 15]).spread::<_, i32>(
            bands,
            one.each_ref().map(Coarse::<1>),
            two.each_mut().map(Approximation::rows_mut),
        );
        run(2, [16, 16]).spread::<_, i32>(
            bands,
            two.each_ref().map(Coarse::<2>),
            three.each_mut().map(Approximation::rows_mut),
        );
        run(3, [16, 15]).spread::<_, i32>(
            bands,
            three.each_ref().map(Coarse::<2>),
            [0; 2].map(|_| ApproximationRows::none()),
        );
        self.total()
    }

    /// Adds up the sums of the bands.
    fn total(&self) -> AdmSums {
        let sum = |index: usize| {
            std::array::from_fn(|scale| {
                std::array::from_fn(|band| {
                    self.bands.iter().fold(0i64, |sum, part| sum.wrapping_add(part.sums[scale][index][band]))
                })
            })
        };
        let mut next = 0;
        let mut following = || {
            next += 1;
            sum(next)
        };
        let passes = self
            .passes
            .iter()
            .map(|aim| AdmPassSums { restored: following(), additive: aim.then(&mut following) })
            .collect();
        AdmSums { reference: sum(0), passes }
    }
}

impl Terms {
    fn new(width: usize) -> Self {
        Self { side: [0; 3].map(|_| row32(width)), centre: [0; 2].map(|_| row32(width)) }
    }
}

/// The rows of part `index` of `count`, of about equal cost.
fn share(scale: &AdmScale, index: usize, count: usize) -> Range<usize> {
    let extra = SCORED_COST - 1;
    let scored_before = |y: usize| y.clamp(scale.rows.start, scale.rows.end) - scale.rows.start;
    let total = scale.height + extra * scale.rows.len();
    let edge = |index: usize| {
        (0..scale.height)
            .find(|y| (y + extra * scored_before(*y)) * count >= total * index)
            .unwrap_or(scale.height)
    };
    edge(index)..if index + 1 == count { scale.height } else { edge(index + 1) }
}

/// One scale of a frame pair.
#[derive(Clone, Copy)]
struct Run<'a> {
    level: Level,
    plan: &'a Plan,
    scale: usize,
    /// Of the vertical and of the horizontal filters.
    shifts: [u32; 2],
}

impl Run<'_> {
    /// Runs the bands at the same time as far as the pool has threads; `out` begins with the rows of the first.
    fn spread<S: Source, C: Buffered>(
        self,
        bands: &mut [Band],
        sources: [S; 2],
        out: [ApproximationRows; 2],
    ) {
        match bands {
            [] => {}
            [band] => process_band::<S, C>(self.level, self, band, sources, out),
            _ => {
                let (left, right) = bands.split_at_mut(bands.len() / 2);
                let rows = right[0].rows[self.scale].start - left[0].rows[self.scale].start;
                let [reference, distorted] = out.map(|out| out.split_at(rows));
                rayon::join(
                    || self.spread::<S, C>(left, sources, [reference.0, distorted.0]),
                    || self.spread::<S, C>(right, sources, [reference.1, distorted.1]),
                );
            }
        }
    }
}

dispatch!(fn process_band[S: Source, C: Buffered](
    run: Run, band: &mut Band, sources: [S; 2], out: [ApproximationRows; 2]
) -> () = process[S, C]);

/// All rows of a band, from the source to its sums and to the rows of the approximation.
///
/// # Safety
///
/// Needs the instructions of `V`.
#[inline(always)]
unsafe fn process<V: Lanes, S: Source, C: Buffered>(
    run: Run<'_>,
    band: &mut Band,
    sources: [S; 2],
    mut out: [ApproximationRows<'_>; 2],
) {
    let Plan { scales, gains, numerators } = run.plan;
    let scale = &scales[run.scale];
    let Band { rows, mid, fine, coarse, terms, sums } = band;
    let (rows, sums) = (rows[run.scale].clone(), &mut sums[run.scale]);
    let lines = C::lines(fine, coarse);
    sums.fill(BandSums::default());

    let scored = rows.start.max(scale.rows.start)..rows.end.min(scale.rows.end);
    let halo = match scored.is_empty() {
        true => 0..0,
        false => scored.start.saturating_sub(1)..(scored.end + 1).min(scale.height),
    };
    let columns = scale.halo_columns();
    let (first, n) = (scale.columns.start - columns.start, scale.columns.len());
    let all =
        if scored.is_empty() { rows.clone() } else { rows.start.min(halo.start)..rows.end.max(halo.end) };

    for y in all {
        let detail = halo.contains(&y).then_some(scale);
        let targets = [&mut lines.reference, &mut lines.distorted];
        for ((source, out), target) in sources.into_iter().zip(&mut out).zip(targets) {
            let approximation = if rows.contains(&y) { out.row(y - rows.start) } else { None };
            if approximation.is_none() && detail.is_none() {
                continue;
            }
            // SAFETY: the instructions are promised; `y` is a row of this scale.
            unsafe {
                transform::vertical::<V, S, C>(source, y, run.shifts[0], detail, mid);
                if let Some(approximation) = approximation {
                    transform::approximate::<V, C>(&mid[0], scale.width, run.shifts[1], approximation);
                }
                if let Some(scale) = detail {
                    transform::details::<V, C>(mid, scale, run.shifts[1], target);
                }
            }
        }
        if detail.is_none() {
            continue;
        }
        // SAFETY: the instructions are promised; rows are padded for `columns`, of which the scored
        // ones are a part.
        unsafe {
            if scored.contains(&y) {
                add(
                    &mut sums[0],
                    detail::reference_sums::<V, C>(&lines.reference, first, n, &scale.reference),
                );
            }
            let split = &mut lines.split[y % 2];
            C::decouple::<V>(&lines.reference, &lines.distorted, columns.len(), gains, split);
            for (numerator, terms) in numerators.iter().zip(&mut *terms) {
                let (_, masker) = split[numerator.gain].roles(numerator.additive);
                let (side, centre) = (&mut terms.side[y % 3], &mut terms.centre[y % 2]);
                C::mask::<V>(
                    masker,
                    numerator.weights[run.scale],
                    columns.len(),
                    &mut side[1..],
                    &mut centre[1..],
                );
                // Masking mirrors at the ends of a band like the transform.
                if columns.start == 0 {
                    side[0] = side[2];
                }
                if columns.end == scale.width {
                    side[columns.len() + 1] = side[columns.len()];
                }
            }
            // The row above now has all its neighbours; so has this one at the bottom of the frame.
            let ready = y.saturating_sub(1)..if y + 1 == scale.height { y + 1 } else { y };
            for y in ready.filter(|y| scored.contains(y)) {
                let neighbours = [y.abs_diff(1), y, (y + 1).min(scale.height - 1)];
                let split = &lines.split[y % 2];
                for ((numerator, terms), sum) in numerators.iter().zip(&*terms).zip(&mut sums[1..]) {
                    let (signal, _) = split[numerator.gain].roles(numerator.additive);
                    let threshold = Threshold {
                        sides: neighbours.map(|y| &terms.side[y % 3][first..]),
                        centre: &terms.centre[y % 2][first..],
                    };
                    let weights = numerator.weights[run.scale];
                    add(
                        sum,
                        detail::signal_sums::<V, C>(signal, &threshold, weights, first, n, &scale.numerator),
                    );
                }
            }
        }
    }
}

fn add(sum: &mut BandSums, row: BandSums) {
    for (sum, row) in sum.iter_mut().zip(row) {
        *sum = sum.wrapping_add(row);
    }
}
