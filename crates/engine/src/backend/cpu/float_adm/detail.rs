// SPDX-License-Identifier: MPL-2.0

//! Decoupling, masking and the sums of rows.

use std::ops::Range;

use super::transform::{Bands, PADDING};
use crate::backend::cpu::simd::{Lanes, dispatch};
use crate::metrics::adm::AdmScale;
use crate::metrics::float_adm::{BandSums, CENTRE, COS_SQUARED, EPSILON, FloatAdmPass, NEIGHBOUR};

/// One pass over one scale of a pair.
pub struct Masking<'a> {
    pub scale: &'a AdmScale,
    pub reference: &'a Bands,
    pub distorted: &'a Bands,
    pub pass: &'a FloatAdmPass,
    /// The weights of the bands h, v and d.
    pub weights: [f32; 3],
}

/// The sums of a row: restored detail, additive part.
pub type RowSums = [BandSums; 2];

/// The magnitudes of the weighted coefficients of a row, for the bands h, v and d. They begin with the column before the
/// first scored one and end with that after the last one, and have padding for a vector.
struct Part {
    magnitudes: [Vec<f32>; 3],
    /// The amounts that they add to the threshold of neighbours, without padding.
    shares: [Vec<f32>; 3],
}

impl Part {
    fn new(columns: usize) -> Self {
        let rows = |padding| [(); 3].map(|_| vec![0.0; columns + 2 + padding]);
        Self { magnitudes: rows(PADDING), shares: rows(0) }
    }

    /// Computes the shares from the magnitudes of columns `columns` of the row.
    #[inline(always)]
    fn share(&mut self, columns: Range<usize>) {
        let n = self.shares[0].len();
        for (magnitudes, shares) in self.magnitudes.iter().zip(&mut self.shares) {
            for (share, magnitude) in shares[columns.clone()].iter_mut().zip(&magnitudes[columns.clone()]) {
                *share = (NEIGHBOUR * f64::from(*magnitude)) as f32;
            }
            // Beyond the first column lies the second one, beyond the last one the last one.
            if columns.start > 0 {
                shares[0] = shares[2];
            }
            if columns.end < n {
                shares[n - 1] = shares[n - 2];
            }
        }
    }
}

/// Raises to the power of the pass.
#[inline(always)]
fn raise(row: &mut [f32], pass: &FloatAdmPass) {
    if pass.is_cubic() {
        row.iter_mut().for_each(|x| *x = *x * *x * *x);
    } else {
        row.iter_mut().for_each(|x| *x = x.powf(pass.exponent as f32));
    }
}

/// Sums rows from the left to the right, side by side.
#[inline(always)]
fn sum_rows<const N: usize>(rows: [&[f32]; N], n: usize) -> [f32; N] {
    let mut all = rows;
    for i in 0..N {
        all[i] = &rows[i][..n];
    }
    let mut sums = [0.0; N];
    for x in 0..n {
        for i in 0..N {
            sums[i] += all[i][x];
        }
    }
    sums
}

dispatch!(
    /// Computes the sums of rows of the reference.
    pub fn reference_rows[](
        rows: Range<usize>, scale: &AdmScale, bands: &Bands, pass: &FloatAdmPass, weights: [f32; 3],
    ) -> Vec<BandSums> = process_reference[]
);

/// Computes the sums of rows of the reference.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process_reference<V: Lanes>(
    rows: Range<usize>,
    scale: &AdmScale,
    bands: &Bands,
    pass: &FloatAdmPass,
    weights: [f32; 3],
) -> Vec<BandSums> {
    let n = scale.columns.len();
    let mut terms = [vec![0.0; n], vec![0.0; n], vec![0.0; n]];
    let mut sums = Vec::with_capacity(rows.len());
    for y in rows {
        let [_, h, v, d] = bands.row(y);
        for (band, row) in [h, v, d].into_iter().enumerate() {
            for (term, x) in terms[band].iter_mut().zip(&row[scale.columns.clone()]) {
                *term = (weights[band] * x).abs();
            }
            raise(&mut terms[band], pass);
        }
        sums.push(sum_rows([&terms[0], &terms[1], &terms[2]], n));
    }
    sums
}

dispatch!(
    /// Computes the sums of scored rows.
    pub fn mask_rows[](rows: Range<usize>, masking: &Masking) -> Vec<RowSums> = process[]
);

/// Computes the sums of scored rows.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process<V: Lanes>(rows: Range<usize>, masking: &Masking<'_>) -> Vec<RowSums> {
    let Masking { scale, pass, .. } = *masking;
    let n = scale.columns.len();
    // The parts of a row, restored and additive, of three rows by number modulo 3.
    let mut ring = [(); 3].map(|_| [Part::new(n), Part::new(n)]);
    let mut threshold = vec![0.0; n];
    let mut terms = [(); 6].map(|_| vec![0.0; n]);
    let mut sums = Vec::with_capacity(rows.len());
    let mut next = rows.start.saturating_sub(1);
    for y in rows {
        while next < scale.height.min(y + 2) {
            // SAFETY: the instructions are promised.
            unsafe { split_row::<V>(masking, next, &mut ring[next % 3]) };
            next += 1;
        }
        let above = if y == 0 { 1 } else { y - 1 };
        let below = if y + 1 == scale.height { y } else { y + 1 };
        let kinds = if pass.aim { 2 } else { 1 };
        for kind in 0..kinds {
            let [above, here, below] = [above, y, below].map(|y| &ring[y % 3][1 - kind]);
            threshold.fill(0.0);
            if pass.masks {
                for band in 0..3 {
                    let [above, side, below] = [above, here, below].map(|part| &part.shares[band][..]);
                    add_threshold(above, side, below, &here.magnitudes[band], &mut threshold);
                }
            }
            for band in 0..3 {
                let terms = &mut terms[3 * kind + band];
                exceed(&ring[y % 3][kind].magnitudes[band], &threshold, terms);
                raise(terms, pass);
            }
        }
        let [a, b, c, d, e, f] = &terms;
        sums.push(if pass.aim {
            let [a, b, c, d, e, f] = sum_rows([a, b, c, d, e, f], n);
            [[a, b, c], [d, e, f]]
        } else {
            [sum_rows([a, b, c], n), [0.0; 3]]
        });
    }
    sums
}

/// Adds the threshold of one band, whose rows begin with the column before that of the first threshold.
#[inline(always)]
fn add_threshold(above: &[f32], here: &[f32], below: &[f32], own: &[f32], to: &mut [f32]) {
    let n = to.len();
    let (above, here, below, own) = (&above[..n + 2], &here[..n + 2], &below[..n + 2], &own[..n + 2]);
    for x in 0..n {
        let before = above[x] + above[x + 1] + above[x + 2] + here[x];
        let sum = (f64::from(before) + CENTRE * f64::from(own[x + 1])) as f32;
        to[x] += sum + here[x + 2] + below[x] + below[x + 1] + below[x + 2];
    }
}

/// Computes by how much magnitudes exceed the threshold.
#[inline(always)]
fn exceed(magnitudes: &[f32], threshold: &[f32], to: &mut [f32]) {
    let n = to.len();
    let (magnitudes, threshold) = (&magnitudes[1..=n], &threshold[..n]);
    for x in 0..n {
        let rest = magnitudes[x] - threshold[x];
        to[x] = if rest < 0.0 { 0.0 } else { rest };
    }
}

/// Divides the coefficients of row `y` into restored detail and additive part.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn split_row<V: Lanes>(masking: &Masking<'_>, y: usize, parts: &mut [Part; 2]) {
    let Masking { scale, reference, distorted, pass, weights } = *masking;
    let columns = scale.halo_columns();
    // Column 0 of the parts is the one before the first scored one.
    let first = columns.start + 1 - scale.columns.start;
    let n = columns.len();
    let [_, h, v, d] = reference.row(y);
    let o = [&h[columns.start..], &v[columns.start..], &d[columns.start..]];
    let [_, h, v, d] = distorted.row(y);
    let t = [&h[columns.start..], &v[columns.start..], &d[columns.start..]];
    let [restored, additive] = parts;
    for x in (0..n).step_by(V::N) {
        // SAFETY: the instructions are promised, and rows are padded for a vector after their end.
        unsafe {
            let load = |row: &[f32]| V::load_f32(row[x..][..V::N].as_ptr());
            let o = [load(o[0]), load(o[1]), load(o[2])];
            let t = [load(t[0]), load(t[1]), load(t[2])];
            let near = is_near::<V>([o[0], o[1]], [t[0], t[1]]);
            for band in 0..3 {
                let r = restore::<V>(o[band], t[band], near, pass.gain_limit);
                let a = V::sub_f32(t[band], r);
                let weight = V::splat_f32(weights[band]);
                for (part, value) in [(&mut *restored, r), (&mut *additive, a)] {
                    let to = part.magnitudes[band][first + x..][..V::N].as_mut_ptr();
                    V::store_f32(to, V::abs_f32(V::mul_f32(weight, value)));
                }
            }
        }
    }
    if pass.masks {
        additive.share(first..first + n);
        if pass.aim {
            restored.share(first..first + n);
        }
    }
}

/// Selects the lanes whose vectors of the bands h and v differ by less than one degree.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn is_near<V: Lanes>(o: [V::F; 2], t: [V::F; 2]) -> V::M {
    // SAFETY: the instructions are promised.
    unsafe {
        let dot = |a: [V::F; 2], b: [V::F; 2]| V::add_f32(V::mul_f32(a[0], b[0]), V::mul_f32(a[1], b[1]));
        let product = dot(o, t);
        let limit = V::mul_f32(V::mul_f32(V::splat_f32(COS_SQUARED), dot(o, o)), dot(t, t));
        let same_side = V::ge_f32(product, V::splat_f32(0.0));
        V::both(same_side, V::ge_f32(V::mul_f32(product, product), limit))
    }
}

/// Returns the restored part of `t`.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[inline(always)]
unsafe fn restore<V: Lanes>(o: V::F, t: V::F, near: V::M, gain_limit: f64) -> V::F {
    // SAFETY: the instructions are promised.
    unsafe {
        let zero = V::splat_f32(0.0);
        let k = quotient::<V>(t, V::add_f32(o, V::splat_f32(EPSILON)));
        // A quotient that is no number stays, as in libvmaf.
        let k = V::min_f32(V::splat_f32(1.0), V::max_f32(zero, k));
        let r = V::mul_f32(k, o);
        let whole = gain_limit as f32;
        let gained = if f64::from(whole) == gain_limit {
            // The product in doubles is exact, so that rounding it is rounding the product of singles.
            V::mul_f32(r, V::splat_f32(whole))
        } else {
            V::narrow_f64(V::mul_f64(V::widen_f32(r), V::splat_f64(gain_limit)))
        };
        let up = V::both(near, V::gt_f32(r, zero));
        let down = V::both(near, V::gt_f32(zero, r));
        let r = V::select_f32(up, V::min_f32(gained, t), r);
        V::select_f32(down, V::max_f32(gained, t), r)
    }
}

/// Computes `n / d` as libvmaf does on x86-64: by the processor's estimate of the inverse and one Newton step.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn quotient<V: Lanes>(n: V::F, d: V::F) -> V::F {
    // SAFETY: the instructions are promised.
    unsafe {
        let estimate = V::estimate_inverse(d);
        let error = V::sub_f32(V::splat_f32(1.0), V::mul_f32(d, estimate));
        V::mul_f32(n, V::add_f32(estimate, V::mul_f32(estimate, error)))
    }
}

/// Computes `n / d`, as libvmaf does on all but x86-64.
///
/// # Safety
///
/// The CPU must have the instructions of `V`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn quotient<V: Lanes>(n: V::F, d: V::F) -> V::F {
    // SAFETY: the instructions are promised.
    unsafe { V::div_f32(n, d) }
}
