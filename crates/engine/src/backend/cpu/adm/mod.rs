// SPDX-License-Identifier: MPL-2.0

//! Integer ADM: rows stream through transform, decoupling, masking and pooling; only the a bands are kept as planes.
//! Each row of the reference is transformed once for all distorted pictures.
//!
//! A frame is divided into bands of rows, one per worker and scale, which rayon distributes over its threads. Each band
//! also transforms the two rows of its neighbours that its masking needs.

mod detail;
mod lines;
mod transform;

use crate::backend::BackendError;
use crate::backend::cpu::metric::{Metric, Pictures, Setup, typed};
use crate::backend::cpu::plane::{Plane, Sample};
use crate::backend::cpu::simd::Level;
use crate::backend::cpu::simd::{Lanes, dispatch};
use crate::frame::{BitDepth, Geometry};
use crate::metrics;
use crate::metrics::adm::{self, AdmPassSums, AdmScale, AdmSums, AdmWork, BandSums, MIN_SIZE};
use detail::{Detail, Split, Threshold};
use lines::{Aligned, Approximation, ApproximationRows, LEAD, Mid, Rows, row32};
use std::ops::Range;
use transform::{Coarse, Luma, Source};

/// Cost of a scored row in units of a row of which only the approximation is needed.
const SCORED_COST: usize = 4;

/// ADM of frames of one size, with all its memory.
pub struct Adm {
    plan: Plan,
    depth: BitDepth,
    /// For each pass, true if it has an additive numerator.
    passes: Vec<bool>,
    /// The a bands of scales 0 to 2, of the reference and of each distorted picture.
    approximations: [Vec<Approximation>; 3],
    bands: Vec<Band>,
}

/// Settings that all bands share.
struct Plan {
    scales: [AdmScale; 4],
    /// Distinct gain limits.
    gains: Vec<f64>,
    numerators: Vec<Numerator>,
}

/// One masked sum: of the restored part of a pass, or of its additive part.
struct Numerator {
    gain: usize,
    weights: [[u32; 2]; 4],
    /// The restored part masks the additive part; otherwise the reverse.
    additive: bool,
}

/// One worker's share of the rows of each scale, with its row buffers and its sums.
struct Band {
    rows: [Range<usize>; 4],
    /// Vertically filtered rows: low-pass, high-pass.
    mid: [Mid; 2],
    fine: Lines<i16>,
    coarse: Lines<i32>,
    /// Terms of the masking threshold: for each distorted picture, for each numerator.
    terms: Vec<Vec<Terms>>,
    /// Sums of scales 0 to 3.
    sums: [Sums; 4],
}

/// Sums of a band.
struct Sums {
    denominator: BandSums,
    /// Sums of the numerators: for each distorted picture, for each numerator of the plan.
    numerators: Vec<Vec<BandSums>>,
}

/// Detail coefficients of a row.
struct Lines<C> {
    reference: Rows<C>,
    /// Coefficients of the present distorted picture. All pictures use this buffer in turn.
    distorted: Rows<C>,
    /// Decoupled coefficients: for each distorted picture, of the current row and the row above it (by row number
    /// modulo 2), for each gain limit.
    splits: Vec<[Vec<Split<C>>; 2]>,
}

/// Rows of terms of the masking threshold. Column 0 of each is the column before the first scored one, if there is one.
struct Terms {
    /// Contributions of coefficients to their neighbours' threshold, in three rows by row number modulo 3.
    side: [Aligned<i32>; 3],
    /// Additional contributions of coefficients to their own threshold, in two rows by row number modulo 2.
    centre: [Aligned<i32>; 2],
}

impl<C: Detail> Lines<C> {
    fn new(width: usize, gains: usize, renditions: usize) -> Self {
        let rows = || Rows::new(width);
        let split = |_| (0..gains).map(|_| Split { restored: rows(), additive: rows() }).collect();
        let splits = (0..renditions).map(|_| [0, 1].map(split)).collect();
        Self { reference: rows(), distorted: rows(), splits }
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
    /// Prepares for frames of `width` x `height` samples of `depth`, both sides at least [`MIN_SIZE`], with up to
    /// `renditions` distorted pictures for each reference, divided into at most `bands` bands. Returns `None` if the
    /// frames are too small.
    pub fn new(
        work: &AdmWork,
        width: usize,
        height: usize,
        depth: BitDepth,
        renditions: usize,
        bands: usize,
    ) -> Option<Self> {
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
            let one = |_| Approximation::new(scales[scale].width, scales[scale].height, halves);
            (0..1 + renditions).map(one).collect()
        };
        let approximations = [approximation(0, 1), approximation(1, 2), approximation(2, 2)];
        let bands = (0..bands.max(1))
            .map(|_| Band {
                rows: [const { 0..0 }; 4],
                mid: [0, 1].map(|_| Mid::new(width)),
                fine: Lines::new(scales[0].width, gains.len(), renditions),
                coarse: Lines::new(scales[1].width, gains.len(), renditions),
                terms: (0..renditions)
                    .map(|_| numerators.iter().map(|_| Terms::new(scales[0].width)).collect())
                    .collect(),
                sums: [0; 4].map(|_| Sums {
                    denominator: BandSums::default(),
                    numerators: vec![vec![BandSums::default(); numerators.len()]; renditions],
                }),
            })
            .collect();
        let passes = work.passes.iter().map(|pass| pass.aim).collect();
        Some(Self { plan: Plan { scales, gains, numerators }, depth, passes, approximations, bands })
    }

    /// Computes the sums of each distorted luma plane. All planes must have the size and depth given to [`Adm::new`],
    /// and there must be no more of them and of `bands` than given there. Runs in the current rayon pool.
    pub fn compute<T: Sample>(
        &mut self,
        level: Level,
        bands: usize,
        reference: Plane<T>,
        distorted: &[Plane<T>],
    ) -> Vec<AdmSums> {
        fn rows(pictures: &mut [Approximation]) -> Vec<ApproximationRows<'_>> {
            pictures.iter_mut().map(Approximation::rows_mut).collect()
        }
        let bits = self.depth.bits();
        let planes = [&[reference], distorted].concat();
        let n = planes.len();
        let luma: Vec<_> = planes.into_iter().map(|plane| Luma { plane, middle: 1 << (bits - 1) }).collect();
        let Self { plan, approximations, bands: all, .. } = self;
        let bands = bands.clamp(1, all.len());
        let bands = &mut all[..bands];
        let count = bands.len();
        for (i, band) in bands.iter_mut().enumerate() {
            band.rows = plan.scales.each_ref().map(|scale| share(scale, i, count));
        }
        let [one, two, three] = approximations.each_mut().map(|pictures| {
            let n = n.min(pictures.len());
            &mut pictures[..n]
        });
        let run = |scale, shifts| Run { level, plan, scale, shifts };
        run(0, [bits, 16]).spread::<_, i16>(bands, &luma, rows(one));
        let one: Vec<_> = one.iter().map(Coarse::<1>).collect();
        run(1, [0, 15]).spread::<_, i32>(bands, &one, rows(two));
        let two: Vec<_> = two.iter().map(Coarse::<2>).collect();
        run(2, [16, 16]).spread::<_, i32>(bands, &two, rows(three));
        let three: Vec<_> = three.iter().map(Coarse::<2>).collect();
        let none = three.iter().map(|_| ApproximationRows::none()).collect();
        run(3, [16, 15]).spread::<_, i32>(bands, &three, none);
        let renditions = 0..three.len() - 1;
        renditions.map(|rendition| self.total(count, rendition)).collect()
    }

    /// Adds up the sums of the bands.
    fn total(&self, bands: usize, rendition: usize) -> AdmSums {
        let sum = |of: &dyn Fn(&Sums) -> BandSums| {
            std::array::from_fn(|scale| {
                let mut sum = BandSums::default();
                self.bands[..bands].iter().for_each(|band| add(&mut sum, of(&band.sums[scale])));
                sum
            })
        };
        let mut numerators =
            (0..self.plan.numerators.len()).map(|i| sum(&|sums| sums.numerators[rendition][i]));
        let mut following = || numerators.next().unwrap_or_default();
        let passes = self
            .passes
            .iter()
            .map(|aim| AdmPassSums { restored: following(), additive: aim.then(&mut following) })
            .collect();
        AdmSums { reference: sum(&|sums| sums.denominator), passes }
    }
}

impl Metric for Adm {
    type Of = metrics::adm::Adm;

    fn prepare(work: &AdmWork, setup: &Setup) -> Result<Self, BackendError> {
        let Geometry { width, height, depth, .. } = setup.geometry;
        let adm = Self::new(work, width, height, depth, setup.renditions, setup.bands);
        adm.ok_or(BackendError::NotPrepared)
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<AdmSums>> {
        Some(typed!(PlaneGroup: &pictures.luma, |r, d| {
            Adm::compute(self, pictures.level, pictures.bands, *r, d)
        }))
    }
}

impl Terms {
    fn new(width: usize) -> Self {
        Self { side: [0; 3].map(|_| row32(width)), centre: [0; 2].map(|_| row32(width)) }
    }
}

/// Returns the rows of part `index` of `count` parts of about equal cost.
fn share(scale: &AdmScale, index: usize, count: usize) -> Range<usize> {
    let extra = SCORED_COST - 1;
    let scored = &scale.rows;
    let total = scale.height + extra * scored.len();
    // Returns the first row that has `index` parts of the cost before it.
    let edge = |index: usize| {
        let cost = (total * index).div_ceil(count);
        let among_scored = scored.start + cost.saturating_sub(scored.start).div_ceil(SCORED_COST);
        cost.min(among_scored).max(cost.saturating_sub(extra * scored.len()))
    };
    edge(index)..if index + 1 == count { scale.height } else { edge(index + 1) }
}

/// One scale of the pictures of a frame.
#[derive(Clone, Copy)]
struct Run<'a> {
    level: Level,
    plan: &'a Plan,
    scale: usize,
    /// Bits by which the vertical and the horizontal filters shift their sums right.
    shifts: [u32; 2],
}

impl Run<'_> {
    /// Runs the bands in parallel on the threads of the pool. `out` begins with the rows of the first band. The first
    /// picture is the reference.
    fn spread<S: Source, C: Buffered>(self, bands: &mut [Band], sources: &[S], out: Vec<ApproximationRows>) {
        match bands {
            [] => {}
            [band] => process_band::<S, C>(self.level, self, band, sources, out),
            _ => {
                let (left, right) = bands.split_at_mut(bands.len() / 2);
                let rows = right[0].rows[self.scale].start - left[0].rows[self.scale].start;
                let (above, below) = out.into_iter().map(|out| out.split_at(rows)).unzip();
                rayon::join(
                    || self.spread::<S, C>(left, sources, above),
                    || self.spread::<S, C>(right, sources, below),
                );
            }
        }
    }
}

dispatch!(vnni fn process_band[S: Source, C: Buffered](
    run: Run, band: &mut Band, sources: &[S], out: Vec<ApproximationRows>
) -> () = process[S, C]);

/// Processes all rows of a band, from the source to its sums and to the rows of the approximation.
///
/// # Safety
///
/// Needs the instructions of `V`.
#[inline(always)]
unsafe fn process<V: Lanes, S: Source, C: Buffered>(
    run: Run<'_>,
    band: &mut Band,
    sources: &[S],
    mut out: Vec<ApproximationRows<'_>>,
) {
    let (Some((reference, distorted)), Some((first_out, other_out))) =
        (sources.split_first(), out.split_first_mut())
    else {
        return;
    };
    let scale = &run.plan.scales[run.scale];
    let Band { rows, mid, fine, coarse, terms, sums } = band;
    let (rows, sums) = (rows[run.scale].clone(), &mut sums[run.scale]);
    let lines = C::lines(fine, coarse);
    sums.denominator = BandSums::default();
    sums.numerators.iter_mut().for_each(|sums| sums.fill(BandSums::default()));

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
        let own = rows.contains(&y).then(|| y - rows.start);
        let (shifts, width) = (run.shifts, scale.width);
        // SAFETY: the instructions are promised; `y` is a row of this scale.
        unsafe {
            let out = own.and_then(|y| first_out.row(y));
            transform_row::<V, S, C>(*reference, y, width, shifts, detail, mid, out, &mut lines.reference);
        }
        if scored.contains(&y) {
            // SAFETY: the instructions are promised; rows are padded for `columns`, of which the scored ones are a
            // part.
            let row = unsafe { detail::reference_sums::<V, C>(&lines.reference, first, n, &scale.reference) };
            add(&mut sums.denominator, row);
        }
        for (i, (source, out)) in distorted.iter().zip(&mut *other_out).enumerate() {
            // SAFETY: as above.
            unsafe {
                let out = own.and_then(|y| out.row(y));
                transform_row::<V, S, C>(*source, y, width, shifts, detail, mid, out, &mut lines.distorted);
            }
            if detail.is_none() {
                continue;
            }
            // SAFETY: as above; `y` is a row with details.
            unsafe { pool_row::<V, C>(&run, &scored, y, i, lines, &mut terms[i], &mut sums.numerators[i]) };
        }
    }
}

/// Decouples and masks row `y` of distorted picture `i`, and sums the rows that now have all their neighbours.
///
/// # Safety
///
/// Needs the instructions of `V`, and `lines` with the details of row `y`.
#[inline(always)]
unsafe fn pool_row<V: Lanes, C: Buffered>(
    run: &Run<'_>,
    scored: &Range<usize>,
    y: usize,
    i: usize,
    lines: &mut Lines<C>,
    terms: &mut [Terms],
    sums: &mut [BandSums],
) {
    let Plan { scales, gains, numerators } = run.plan;
    let scale = &scales[run.scale];
    let columns = scale.halo_columns();
    let (first, n) = (scale.columns.start - columns.start, scale.columns.len());
    let splits = &mut lines.splits[i];
    // SAFETY: the instructions are promised; rows are padded for `columns`, of which the scored ones are a part.
    unsafe {
        let split = &mut splits[y % 2];
        C::decouple::<V>(&lines.reference, &lines.distorted, columns.len(), gains, split);
        for (numerator, terms) in numerators.iter().zip(&mut *terms) {
            let (_, masker) = split[numerator.gain].roles(numerator.additive);
            let (side, centre) = (&mut terms.side[y % 3], &mut terms.centre[y % 2]);
            let weights = numerator.weights[run.scale];
            C::mask::<V>(masker, weights, columns.len(), side.at_mut(LEAD), centre.at_mut(LEAD));
            // Masking mirrors at the ends of a band, as the transform does.
            if columns.start == 0 {
                side[LEAD - 1] = side[LEAD + 1];
            }
            if columns.end == scale.width {
                side[LEAD + columns.len()] = side[LEAD + columns.len() - 1];
            }
        }
        // The row above now has all its neighbours. At the bottom of the frame, this row has them too.
        let ready = y.saturating_sub(1)..if y + 1 == scale.height { y + 1 } else { y };
        for y in ready.filter(|y| scored.contains(y)) {
            let neighbours = [y.abs_diff(1), y, (y + 1).min(scale.height - 1)];
            let split = &splits[y % 2];
            for ((numerator, terms), sum) in numerators.iter().zip(&*terms).zip(&mut *sums) {
                let (signal, _) = split[numerator.gain].roles(numerator.additive);
                let threshold = Threshold {
                    sides: neighbours.map(|y| terms.side[y % 3].at(LEAD - 1 + first)),
                    centre: terms.centre[y % 2].at(LEAD + first),
                };
                let weights = numerator.weights[run.scale];
                let row =
                    detail::signal_sums::<V, C>(signal, &threshold, weights, first, n, &scale.numerator);
                add(sum, row);
            }
        }
    }
}

/// Transforms row `y` of a picture. Writes its part of the approximation to `out`, unless that is empty, and its
/// details.
///
/// # Safety
///
/// Needs the instructions of `V`, and `y` a row of the scale.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn transform_row<V: Lanes, S: Source, C: Detail>(
    source: S,
    y: usize,
    width: usize,
    shifts: [u32; 2],
    detail: Option<&AdmScale>,
    mid: &mut [Mid; 2],
    out: Option<[&mut [i16]; 2]>,
    details: &mut Rows<C>,
) {
    if out.is_none() && detail.is_none() {
        return;
    }
    // SAFETY: as the caller promises.
    unsafe {
        transform::vertical::<V, S, C>(source, y, shifts[0], detail, mid);
        if let Some(out) = out {
            transform::approximate::<V, C>(&mid[0], width, shifts[1], out);
        }
        if let Some(scale) = detail {
            transform::details::<V, C>(mid, scale, shifts[1], details);
        }
    }
}

fn add(sum: &mut BandSums, row: BandSums) {
    for (sum, row) in sum.iter_mut().zip(row) {
        *sum = sum.wrapping_add(row);
    }
}

#[cfg(test)]
mod naive;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::tests::{Picture, content, group, planes};
    use crate::metrics::adm::{AdmOptions, AdmScorer, CsfMode};
    use crate::random;

    const V1: AdmOptions = AdmOptions {
        csf_diag_scale: 1.0,
        csf_mode: CsfMode::Blend,
        csf_scale: 1.0,
        dlm_weight: 0.7,
        enhn_gain_limit: 1.0,
        min_val: 0.5,
        noise_weight: 0.02,
        norm_view_dist: 3.0,
        ref_display_height: 1080,
        skip_aim: false,
        skip_scale0: false,
    };

    fn work(options: &[(AdmOptions, bool)]) -> AdmWork {
        AdmWork { passes: options.iter().map(|(options, aim)| options.pass(*aim).unwrap()).collect() }
    }

    /// Returns the work of v0 and v1 models together, with one unusual set of options.
    fn several() -> AdmWork {
        let neg = AdmOptions { enhn_gain_limit: 1.0, ..AdmOptions::default() };
        let odd = AdmOptions { enhn_gain_limit: 1.2, norm_view_dist: 4.5, ..AdmOptions::default() };
        work(&[(AdmOptions::default(), true), (neg, false), (V1, true), (odd, true)])
    }

    fn run(level: Level, pictures: &[Picture], work: &AdmWork, bands: usize) -> Vec<AdmSums> {
        let Picture { width, height, depth, .. } = pictures[0];
        let mut adm = Adm::new(work, width, height, depth, 3, bands).unwrap();
        planes!(pictures, |p| adm.compute(level, bands, p[0], &p[1..]))
    }

    fn check(pair: &[Picture; 2], work: &AdmWork, bands: usize) {
        let pictures = group(pair);
        let samples = pictures.each_ref().map(Picture::samples);
        let (size, bits) = ((pair[0].width, pair[0].height, pair[0].depth), pair[0].depth.bits());
        let expected = [1, 2, 3].map(|i| naive::sums(work, &samples[0], &samples[i], size.0, bits));
        for level in Level::available() {
            for n in 1..=expected.len() {
                let found = run(level, &pictures[..=n], work, bands);
                assert_eq!(found, expected[..n], "{level:?} {size:?} {bands}");
            }
        }
    }

    /// Returns the frames for which the specification of VIF and motion has check values, in any size.
    fn synthetic(width: usize, height: usize, bits: u32) -> [Picture; 2] {
        let reference = move |x: usize, y: usize| ((3 * x * x + 5 * y + 7 * x * y) / 16 % (1 << bits)) as u32;
        let noise = move |x: usize, y: usize| (((31 * x + 17 * y) % 23) << (bits - 8)) as u32;
        let distorted = move |x, y| (reference(x, y) + noise(x, y)).min((1 << bits) - 1);
        [Picture::new(width, height, bits, reference), Picture::new(width, height, bits, distorted)]
    }

    #[test]
    fn equals_the_specification_at_every_size() {
        let work = work(&[(AdmOptions::default(), false)]);
        let sizes = (33..=71).flat_map(|n| [(n, 33 + n % 7), (33 + n % 5, n)]);
        for (i, (width, height)) in sizes.chain([(175, 34), (197, 40), (532, 33), (40, 197)]).enumerate() {
            check(&content(i, width, height, [8, 10, 12, 16][i / 2 % 4]), &work, 1 + i % 5);
        }
    }

    #[test]
    fn equals_the_specification_for_all_content_depths_and_passes() {
        let (work, whole) = (several(), work(&[(AdmOptions::default(), true), (V1, true)]));
        for i in 0..24 {
            check(&content(i, 77, 50, 8 + i as u32 % 9), &work, 1 + i % 3);
            check(&content(i, 77, 50, 8 + i as u32 % 9), &whole, 2);
        }
        let [frame, _] = content(6, 77, 50, 10);
        check(&[frame.clone(), frame], &work, 2);
    }

    /// Covers coefficients beyond the shortcut of [`detail`], and masking terms that wrap at 16 bits.
    #[test]
    fn equals_the_specification_for_patterns_of_full_contrast() {
        // Uses only whole gain limits: any other limit avoids the shortcut everywhere.
        let work = work(&[(AdmOptions::default(), true), (V1, true)]);
        let patterns: [fn(usize, usize) -> bool; 5] = [
            |x, _| x % 2 == 0,
            |_, y| y % 2 == 0,
            |x, y| (x + y) % 2 == 0,
            |x, y| [false, true, true, false, true, false][x % 6] == (y % 16 < 8),
            |x, y| x / 16 % 2 == y / 8 % 2,
        ];
        for (i, pattern) in patterns.iter().enumerate() {
            let other = patterns[(i + 1) % patterns.len()];
            for bits in [8, 16] {
                let reference = Picture::new(84, 70, bits, |x, y| if pattern(x, y) { !0 } else { 0 });
                // Noise around the reference gives ratios of all sizes to its large coefficients.
                let near = |x, y| {
                    (random::noise(i as u32, x, y) & ((1 << (bits - 1)) - 1))
                        | if pattern(x, y) { 1 << (bits - 1) } else { 0 }
                };
                let far = |x, y| if other(x, y) { !0 } else { 0 };
                check(&[reference.clone(), Picture::new(84, 70, bits, near)], &work, 2);
                check(&[reference, Picture::new(84, 70, bits, far)], &work, 1);
            }
        }
    }

    #[test]
    fn threads_do_not_change_the_sums() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let (pictures, work) = (group(&content(6, 120, 90, 8)), several());
        for level in Level::available() {
            let spread = pool.install(|| run(level, &pictures, &work, 7));
            assert_eq!(spread, run(level, &pictures, &work, 1));
        }
    }

    #[test]
    fn a_frame_does_not_depend_on_earlier_ones() {
        let work = several();
        let [first, second] = [content(3, 64, 48, 8), content(6, 64, 48, 8)];
        for level in Level::available() {
            let mut adm = Adm::new(&work, 64, 48, first[0].depth, 2, 3).unwrap();
            planes!(&group(&first)[..3], |p| adm.compute(level, 3, p[0], &p[1..]));
            for bands in [2, 1, 3] {
                let again = planes!(&second, |p| adm.compute(level, bands, p[0], &p[1..]));
                assert_eq!(again, run(level, &second, &work, 2));
            }
        }
    }

    /// Compares with the reference implementation of the specification, which equals libvmaf's C code.
    #[test]
    fn known_scores_of_synthetic_frames() {
        let odd =
            AdmOptions { enhn_gain_limit: 1.2, skip_scale0: true, noise_weight: 1.0, ..Default::default() };
        let sets = [AdmOptions::default(), V1, odd];
        #[rustfmt::skip]
        let expected = [
            ((48, 40, 8), [
                [0.9901869734082726, 0.013653448028899227, 0.9882667626896866, 0.9551555162490866, 0.9820722343427648, 0.9996881042762087, 0.9982487324305722],
                [0.9890859016988179, 0.010104823300007261, 0.9893286841991704, 0.9574469730360885, 0.9775042220603655, 0.9957774003785747, 0.9954595360860562],
                [0.9955485904673558, 0.005059736957697694, 0.995244426754829, 0.0, 0.9857775362892304, 0.9996997429253711, 0.9983780150289286],
            ]),
            ((61, 53, 10), [
                [0.9878325196276173, 0.023538741498697745, 0.9821468890644598, 0.9577831660625912, 0.9683057550537196, 0.99012498734435, 1.0014351380620936],
                [0.9863967373794064, 0.016885434960819602, 0.9854120856773385, 0.9608268844601088, 0.9661198974758266, 0.9883323133899129, 0.9945567085543918],
                [0.9923871565643192, 0.010104327797411014, 0.991141414383454, 0.0, 0.9770295370856816, 0.9912750798919012, 1.0013225609727094],
            ]),
            ((48, 40, 12), [
                [0.9839767977250048, 0.17261977597375333, 0.9056785108756258, 1.0014058047980219, 0.944170594885535, 0.9798089798648111, 0.996980096760482],
                [0.980684665888931, 0.1358738731244972, 0.9457171041849025, 0.999095456144959, 0.9485986987056281, 0.9681553152705638, 0.9898274319709514],
                [0.9883043226232008, 0.05623599834279178, 0.9660341621402044, 0.0, 0.9812055903222243, 0.9873662013856699, 0.9980136967218486],
            ]),
            ((61, 53, 16), [
                [0.9875523660427189, 0.2951200099093327, 0.846216178066693, 1.0, 0.9957867231562664, 0.9677914054715229, 0.9640242883803662],
                [0.9846542649591352, 0.2714414755103302, 0.9078255428182955, 1.0, 0.9961640788919, 0.9632538271372323, 0.9527861792083894],
                [0.9931985032169612, 0.09369137538995939, 0.9497535639135009, 0.0, 0.9986690868532321, 0.9894927771935256, 0.9868115121757295],
            ]),
        ];
        for level in Level::available() {
            for ((width, height, bits), scores) in expected {
                let work = work(&sets.map(|o| (o, true)));
                let sums = run(level, &synthetic(width, height, bits), &work, 2).remove(0);
                for ((options, pass), expected) in sets.into_iter().zip(&sums.passes).zip(scores) {
                    let scorer = AdmScorer::new(options, width, height).unwrap();
                    let got = scorer.scores(&sums.reference, pass);
                    let [s0, s1, s2, s3] = got.scale;
                    let got = [got.adm2, got.aim.unwrap(), got.adm3.unwrap(), s0, s1, s2, s3];
                    assert_eq!(got, expected, "{level:?} {width}x{height} {bits}");
                }
            }
        }
    }

    #[test]
    fn too_small_frames_are_refused() {
        let depth = BitDepth::new(8).unwrap();
        assert!(Adm::new(&several(), 33, 32, depth, 1, 1).is_none());
        assert!(Adm::new(&several(), 32, 33, depth, 1, 1).is_none());
    }
}
