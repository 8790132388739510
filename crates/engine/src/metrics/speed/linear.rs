// SPDX-License-Identifier: MPL-2.0

//! The linear algebra behind the statistics of a plane, operation by operation as in libvmaf.
//!
//! Eigenvalues are computed for four planes at a time. The innermost index of all other loops is the column, so that
//! compilers can vectorise: each column keeps its own order of additions. Terms that are zero for every input are left
//! out.

use super::four::{Four, LANES};
use super::{BLOCK, Covariance, ELEMENTS};

/// Smaller eigenvalues and diagonal elements are taken for zero.
pub const EPSILON: f64 = 1e-6;
/// Largest number of sweeps; the eigenvalues are then used as they are.
const MAX_SWEEPS: usize = 500;
/// Columns of a matrix, padded to whole vectors.
const WIDTH: usize = ELEMENTS.next_multiple_of(4);
/// Blocks whose systems are solved at once.
const GROUP: usize = 16;

type Row = [f32; WIDTH];
type Matrix = [Row; ELEMENTS];

fn hypot(a: f32, b: f32) -> f32 {
    (a * a + b * b).sqrt()
}

/// Computes the root of the sum of squares, added from the first to the last.
fn norm(values: impl Iterator<Item = f32>) -> f32 {
    values.fold(0.0, |sum, value| sum + value * value).sqrt()
}

fn sign(x: f32) -> f32 {
    if x >= 0.0 { 1.0 } else { -1.0 }
}

fn padded(covariance: &Covariance) -> Matrix {
    let mut matrix = [[0.0; WIDTH]; ELEMENTS];
    for (row, values) in matrix.iter_mut().zip(covariance) {
        row[..ELEMENTS].copy_from_slice(values);
    }
    matrix
}

/// Computes the eigenvalues of covariances, each set in no particular order.
pub fn eigenvalues<'a>(covariances: &[&'a Covariance]) -> Vec<[f32; ELEMENTS]> {
    let of = |some: &[&'a Covariance]| {
        // Unused lanes repeat the work of the first.
        let (diagonal, beside) = tridiagonal(std::array::from_fn(|i| *some.get(i).unwrap_or(&some[0])));
        diagonalise(diagonal, beside).into_iter().take(some.len())
    };
    covariances.chunks(LANES).flat_map(of).collect()
}

fn splat(value: f32) -> Four {
    [value; LANES].into()
}

/// Computes the diagonals and subdiagonals of the tridiagonal matrices that are similar to the covariances.
fn tridiagonal(covariances: [&Covariance; LANES]) -> ([Four; ELEMENTS], [Four; ELEMENTS - 1]) {
    let element = |i: usize, j: usize| covariances.map(|covariance| covariance[i][j]).into();
    let mut a: [[Four; ELEMENTS]; ELEMENTS] = std::array::from_fn(|i| std::array::from_fn(|j| element(i, j)));
    let zero = splat(0.0);
    let mut e = [zero; ELEMENTS - 1];
    for i in 0..ELEMENTS - 2 {
        // The rest of the matrix stays symmetric, so a row serves as the column.
        let s = i + 1;
        let column = a[i];
        let below = column[s + 1..].iter().fold(zero, |sum, value| sum + *value * *value).sqrt();
        let alpha = column[s];
        let length = (alpha * alpha + below * below).sqrt();
        let beta = zero.gt(alpha).choose(length, splat(-1.0) * length);
        // If all elements below are zero, nothing changes.
        let done = below.is_zero();
        let tau = done.choose(zero, (beta - alpha) / beta);
        e[i] = done.choose(alpha, beta);
        let mut v = [zero; ELEMENTS];
        for j in s + 1..ELEMENTS {
            v[j] = done.choose(zero, column[j] / (alpha - beta));
        }
        v[s] = splat(1.0);
        let mut x = [zero; ELEMENTS];
        for l in s..ELEMENTS {
            for j in s..ELEMENTS {
                x[j] = x[j] + (tau * a[l][j]) * v[l];
            }
        }
        let product = (s..ELEMENTS).fold(zero, |sum, j| sum + x[j] * v[j]);
        let g = tau.minus_half_of(product);
        for j in s..ELEMENTS {
            x[j] = x[j] + g * v[j];
        }
        for j in s..ELEMENTS {
            for l in s..ELEMENTS {
                a[j][l] = a[j][l] - (x[j] * v[l] + v[j] * x[l]);
            }
        }
    }
    e[ELEMENTS - 2] = a[ELEMENTS - 1][ELEMENTS - 2];
    (std::array::from_fn(|i| a[i][i]), e)
}

/// Clears negligible elements beside the diagonal.
fn drop_small(d: &[f32], e: &mut [f32]) {
    for (e, d) in e.iter_mut().zip(d.windows(2)) {
        if f64::from(e.abs()) < EPSILON * f64::from(d[0].abs() + d[1].abs()) {
            *e = 0.0;
        }
    }
}

/// Computes the cosines and sines of the rotations that turn `z` to zero.
#[inline(always)]
fn rotations(x: Four, z: Four) -> (Four, Four) {
    let steep = z.abs().gt(x.abs());
    let t = splat(-1.0) * steep.choose(x, z) / steep.choose(z, x);
    let one = (splat(1.0) + t * t).inverse_root();
    let other = one * t;
    let (c, s) = (steep.choose(other, one), steep.choose(one, other));
    let none = z.is_zero();
    (none.choose(splat(1.0), c), none.choose(splat(0.0), s))
}

/// Computes the shift of a sweep: the eigenvalue of the last two rows that is nearer to the last element.
fn shift(p: f32, r: f32, t: f32) -> f32 {
    let h = (p - r) / 2.0;
    if h > 0.0 {
        r - t * (t / (h + hypot(h, t)))
    } else if h == 0.0 {
        r - t.abs()
    } else {
        r + t * (t / (-h + hypot(h, t)))
    }
}

/// Length of a diagonal, with room for the elements that rotations touch beyond its end.
const ROOM: usize = ELEMENTS + 3;

/// A tridiagonal matrix on its way to a diagonal one.
struct Tridiagonal {
    d: [f32; ROOM],
    /// Element `i + 1` lies beside the diagonal elements `i` and `i + 1`.
    e: [f32; ROOM],
    /// The rows of the present sweep. The elements beside the diagonal are zero at both ends of this range and not in
    /// between.
    first: usize,
    last: usize,
    /// The present row of the sweep.
    k: usize,
    sweeps: usize,
}

/// The state between two rotations, in the names of [`diagonalise`]: x, z, ap, bp, aq, bq.
type Chase<T> = [T; 6];

impl Tridiagonal {
    fn new(d: &[Four; ELEMENTS], e: &[Four; ELEMENTS - 1], lane: usize) -> Self {
        let of_lane = |four: Four| <[f32; LANES]>::from(four)[lane];
        let mut new = Self { d: [0.0; ROOM], e: [0.0; ROOM], first: 0, last: ELEMENTS - 1, k: 0, sweeps: 0 };
        new.d.iter_mut().zip(d).for_each(|(new, d)| *new = of_lane(*d));
        new.e[1..].iter_mut().zip(e).for_each(|(new, e)| *new = of_lane(*e));
        drop_small(&new.d[..ELEMENTS], &mut new.e[1..ELEMENTS]);
        new
    }

    /// Begins a sweep, one step of the implicit QR algorithm. Returns `None` if the matrix is diagonal.
    fn begin(&mut self) -> Option<Chase<f32>> {
        let Self { d, e, .. } = self;
        while self.last > 0 && e[self.last] == 0.0 {
            self.last -= 1;
        }
        if self.last == 0 || self.sweeps == MAX_SWEEPS {
            return None;
        }
        let (first, last) =
            (e[1..=self.last].iter().rposition(|e| *e == 0.0).map_or(0, |i| i + 1), self.last);
        (self.first, self.k) = (first, first);
        let mut mu = shift(d[last - 1], d[last], e[last]);
        if EPSILON * f64::from(mu.abs()) > f64::from(d[first].abs() + e[first + 1].abs()) {
            mu = 0.0;
        }
        Some([d[first] - mu, e[first + 1], d[first], e[first + 1], d[first + 1], e[first + 2]])
    }

    /// Ends a sweep that has reached the last row.
    fn end(&mut self, [x, _, ap, ..]: Chase<f32>) {
        let Self { d, e, first, last, .. } = self;
        (d[*last], e[*last]) = (ap, x);
        // The first rotation wrote to the element before its first row.
        e[*first] = 0.0;
        drop_small(&d[*first..=*last], &mut e[*first + 1..=*last]);
        self.sweeps += 1;
    }
}

/// Computes the diagonals of tridiagonal matrices after elimination of the elements beside them.
///
/// The matrices are independent: each begins its next sweep whenever it has finished one. Only the rotations, which
/// take nearly all of the time and each depend on the one before, are done for all four at once.
fn diagonalise(d: [Four; ELEMENTS], e: [Four; ELEMENTS - 1]) -> [[f32; ELEMENTS]; LANES] {
    let mut matrices: [Tridiagonal; LANES] = std::array::from_fn(|lane| Tridiagonal::new(&d, &e, lane));
    let mut found = [None; LANES];
    let mut chase = [[0.0; LANES]; 6];
    loop {
        for (lane, matrix) in matrices.iter_mut().enumerate() {
            if found[lane].is_none() && matrix.k == matrix.first {
                match matrix.begin() {
                    Some(begin) => (0..6).for_each(|i| chase[i][lane] = begin[i]),
                    None => found[lane] = Some(std::array::from_fn(|i| matrix.d[i])),
                }
            }
            if found[lane].is_some() {
                // This lane continues with zeros.
                (0..6).for_each(|i| chase[i][lane] = 0.0);
                (matrix.first, matrix.k, matrix.last) = (0, 0, ELEMENTS - 1);
            }
        }
        if let [Some(a), Some(b), Some(c), Some(d)] = found {
            return [a, b, c, d];
        }
        let steps = matrices.iter().map(|matrix| matrix.last - matrix.k).min().unwrap_or_default();
        chase = rotate(&mut matrices, chase.map(Four::from), steps).map(<[f32; LANES]>::from);
        for (lane, matrix) in matrices.iter_mut().enumerate() {
            matrix.k += steps;
            if matrix.k == matrix.last {
                matrix.end(chase.map(|of| of[lane]));
                matrix.k = matrix.first;
            }
        }
    }
}

/// Applies the next rotations to all matrices.
fn rotate(
    matrices: &mut [Tridiagonal; LANES],
    [mut x, mut z, mut ap, mut bp, mut aq, mut bq]: Chase<Four>,
    steps: usize,
) -> Chase<Four> {
    for i in 0..steps {
        let (c, s) = rotations(x, z);
        let before = c * x - s * z;
        let (m1, m2) = (c * ap - s * bp, s * aq - c * bp);
        let (m3, m4) = (s * ap + c * bp, s * bp + c * aq);
        let diagonal = c * m1 + s * m2;
        x = c * m3 - s * m4;
        z = splat(-1.0) * s * bq;
        ap = s * m3 + c * m4;
        bp = c * bq;
        let [before, diagonal, beside]: [[f32; LANES]; 3] = [before, diagonal, bp].map(Four::into);
        let [mut next_aq, mut next_bq] = [[0.0; LANES]; 2];
        for (lane, Tridiagonal { d, e, k, .. }) in matrices.iter_mut().enumerate() {
            let k = *k + i;
            e[k] = before[lane];
            d[k] = diagonal[lane];
            e[k + 2] = beside[lane];
            next_aq[lane] = d[k + 2];
            next_bq[lane] = e[k + 3];
        }
        (aq, bq) = (next_aq.into(), next_bq.into());
    }
    [x, z, ap, bp, aq, bq]
}

/// Computes one row of a product of matrices from this row of the first matrix and the whole second matrix.
fn row_product<const N: usize>(p: &[f32], q: &[[f32; N]]) -> [f32; N] {
    let mut sum = [0.0; N];
    for (p, q) in p.iter().zip(q) {
        for j in 0..N {
            sum[j] += p * q[j];
        }
    }
    sum
}

/// Computes the transposed orthogonal factor of a covariance from Householder reflections.
fn orthogonal(covariance: &Covariance) -> Matrix {
    let mut z = padded(covariance);
    let mut q = [[0.0; WIDTH]; ELEMENTS];
    for (i, row) in q.iter_mut().enumerate() {
        row[i] = 1.0;
    }
    for k in 0..ELEMENTS - 1 {
        let mut v: [f32; ELEMENTS] = std::array::from_fn(|i| if i < k { 0.0 } else { z[i][k] });
        // The sign is that of the original covariance, not of the transformed one.
        v[k] += sign(covariance[k][k]) * norm(v[k..].iter().copied());
        let length = norm(v[k..].iter().copied());
        for v in &mut v[k..] {
            *v /= length;
        }
        // Rows and columns before k are those of the identity, both in the reflection and in its operand.
        let (z_before, q_before) = (z, q);
        for i in k..ELEMENTS {
            let mut h = [0.0; ELEMENTS];
            for j in k..ELEMENTS {
                h[j] = (-2.0 * v[i]) * v[j];
            }
            h[i] += 1.0;
            z[i] = row_product(&h[k..], &z_before[k..]);
            q[i] = row_product(&h[k..], &q_before[k..]);
        }
    }
    q
}

/// Computes the variance fields of the blocks of an image; `None` if the covariance is singular. The variance of a
/// block is the mean of the product of its samples with the solution of the system that has them on its right-hand
/// side.
pub fn variances(covariance: &Covariance, image: &[f32], blocks: (usize, usize)) -> Option<Vec<f32>> {
    let q = orthogonal(covariance);
    let covariance = padded(covariance);
    let mut r = [[0.0; WIDTH]; ELEMENTS];
    for (r, q) in r.iter_mut().zip(&q) {
        *r = row_product(&q[..ELEMENTS], &covariance);
    }
    if (0..ELEMENTS).any(|i| f64::from(r[i][i].abs()) < EPSILON) {
        return None;
    }
    let count = blocks.0 * blocks.1;
    let mut variances = Vec::with_capacity(count);
    for first in (0..count).step_by(GROUP) {
        let inside = GROUP.min(count - first);
        let mut y = [[0.0; GROUP]; ELEMENTS];
        for j in 0..inside {
            let (row, column) = ((first + j) / blocks.0, (first + j) % blocks.0);
            for (i, y) in y.iter_mut().enumerate() {
                let (row, column) = (row * BLOCK + i / BLOCK, column * BLOCK + i % BLOCK);
                y[j] = image[row * blocks.0 * BLOCK + column];
            }
        }
        let mut x = [[0.0; GROUP]; ELEMENTS];
        for i in (0..ELEMENTS).rev() {
            let mut t = row_product(&q[i][..ELEMENTS], &y);
            for k in i + 1..ELEMENTS {
                for j in 0..GROUP {
                    t[j] -= x[k][j] * r[i][k];
                }
            }
            for j in 0..GROUP {
                x[i][j] = t[j] / r[i][i];
            }
        }
        let mut sum = [0.0; GROUP];
        for (x, y) in x.iter().zip(&y) {
            for j in 0..GROUP {
                sum[j] += (x[j] * y[j]) / ELEMENTS as f32;
            }
        }
        variances.extend_from_slice(&sum[..inside]);
    }
    Some(variances)
}

#[cfg(test)]
#[path = "naive.rs"]
mod naive;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns covariances for all paths of the algorithm: full ones, some that split into parts after some sweeps or
    /// at once, some of low rank, and zero.
    fn covariances() -> Vec<Covariance> {
        let factor = |kind: usize, i: usize, j: usize| ((kind * 31 + i * 17 + j * j * 7) % 23) as f32 - 11.0;
        let of = |kind: usize, rank: usize, apart: usize| -> Covariance {
            std::array::from_fn(|i| {
                std::array::from_fn(|j| match i / apart == j / apart {
                    true => (0..rank).map(|l| factor(kind, i, l) * factor(kind, j, l)).sum::<f32>() / 25.0,
                    false => 0.0,
                })
            })
        };
        let mut all: Vec<_> = (0..6).map(|kind| of(kind, 25, 25)).collect();
        all.extend([of(1, 25, 5), of(2, 25, 1), of(3, 1, 25), of(4, 6, 13), [[0.0; ELEMENTS]; ELEMENTS]]);
        all
    }

    #[test]
    fn eigenvalues_are_libvmafs_whatever_is_beside() {
        let covariances = covariances();
        let expected: Vec<_> =
            covariances.iter().map(|one| naive::eigenvalues(one).map(f32::to_bits)).collect();
        for step in 1..covariances.len() {
            for count in 1..=LANES + 2 {
                for first in 0..covariances.len() {
                    let which: Vec<_> = (0..count).map(|i| (first + i * step) % covariances.len()).collect();
                    let some: Vec<_> = which.iter().map(|i| &covariances[*i]).collect();
                    let found = eigenvalues(&some).into_iter().map(|values| values.map(f32::to_bits));
                    assert!(found.eq(which.iter().map(|i| expected[*i])), "{which:?}");
                }
            }
        }
    }

    #[test]
    fn eigenvalues_of_what_is_diagonal_are_there_already() {
        let diagonal: Covariance =
            std::array::from_fn(|i| std::array::from_fn(|j| if i == j { 1.0 + i as f32 } else { 0.0 }));
        assert_eq!(eigenvalues(&[&diagonal]), [std::array::from_fn(|i| 1.0 + i as f32)]);
        assert_eq!(eigenvalues(&[]), [[0.0; ELEMENTS]; 0]);
    }
}
