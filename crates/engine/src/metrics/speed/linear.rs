// SPDX-License-Identifier: MPL-2.0

//! The linear algebra behind the statistics of a plane, operation by operation as in libvmaf.
//!
//! All loops run over the columns of a row innermost, so that compilers can take several columns at a time: each
//! column keeps its own order of additions. Terms that are zero whatever the input are left out.

use super::{BLOCK, Covariance, ELEMENTS};

/// Numbers below are taken for zero, be it an eigenvalue or a diagonal element.
pub const EPSILON: f64 = 1e-6;
/// Sweeps after which eigenvalues are taken as they are.
const MAX_SWEEPS: usize = 500;
/// Columns of a matrix, with some beyond the last for whole vectors.
const WIDTH: usize = ELEMENTS.next_multiple_of(4);
/// Blocks whose systems are solved at once.
const GROUP: usize = 16;

type Row = [f32; WIDTH];
type Matrix = [Row; ELEMENTS];

fn hypot(a: f32, b: f32) -> f32 {
    (a * a + b * b).sqrt()
}

/// Root of the sum of squares, from the first to the last.
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

/// The eigenvalues of a covariance, in no particular order.
pub fn eigenvalues(covariance: &Covariance) -> [f32; ELEMENTS] {
    let (mut d, mut e) = tridiagonal(covariance);
    drop_small(&d, &mut e);
    let mut last = ELEMENTS - 1;
    let mut sweeps = 0;
    while last > 0 && sweeps < MAX_SWEEPS {
        if e[last - 1] == 0.0 {
            last -= 1;
            continue;
        }
        let first = e[..last].iter().rposition(|e| *e == 0.0).map_or(0, |zero| zero + 1);
        let (d, e) = (&mut d[first..=last], &mut e[first..last]);
        sweep(d, e);
        drop_small(d, e);
        sweeps += 1;
    }
    d
}

/// Diagonal and subdiagonal of the tridiagonal matrix that a covariance is similar to.
fn tridiagonal(covariance: &Covariance) -> ([f32; ELEMENTS], [f32; ELEMENTS - 1]) {
    let mut a = padded(covariance);
    let mut e = [0.0; ELEMENTS - 1];
    for i in 0..ELEMENTS - 2 {
        // What is left of the matrix stays symmetric, so a row serves as the column.
        let s = i + 1;
        let column = a[i];
        e[i] = column[s];
        let below = norm(column[s + 1..ELEMENTS].iter().copied());
        if below == 0.0 {
            continue;
        }
        let alpha = column[s];
        let beta = -sign(alpha) * hypot(alpha, below);
        let tau = (beta - alpha) / beta;
        e[i] = beta;
        let mut v = [0.0; WIDTH];
        for j in s + 1..ELEMENTS {
            v[j] = column[j] / (alpha - beta);
        }
        v[s] = 1.0;
        let mut x = [0.0; WIDTH];
        for l in s..ELEMENTS {
            for j in 0..WIDTH {
                x[j] += (tau * a[l][j]) * v[l];
            }
        }
        x[..s].fill(0.0);
        let product = (s..ELEMENTS).fold(0f32, |sum, j| sum + x[j] * v[j]);
        let g = (-0.5 * f64::from(tau) * f64::from(product)) as f32;
        for j in s..ELEMENTS {
            x[j] += g * v[j];
        }
        for j in s..ELEMENTS {
            for l in 0..WIDTH {
                a[j][l] -= x[j] * v[l] + v[j] * x[l];
            }
        }
    }
    e[ELEMENTS - 2] = a[ELEMENTS - 1][ELEMENTS - 2];
    (std::array::from_fn(|i| a[i][i]), e)
}

/// Clears elements beside the diagonal that are as good as zero.
fn drop_small(d: &[f32], e: &mut [f32]) {
    for (e, d) in e.iter_mut().zip(d.windows(2)) {
        if f64::from(e.abs()) < EPSILON * f64::from(d[0].abs() + d[1].abs()) {
            *e = 0.0;
        }
    }
}

/// Cosine and sine of the rotation that turns `z` to zero.
fn rotation(x: f32, z: f32) -> (f32, f32) {
    let inverse = |t: f32| (1.0 / f64::from(1.0 + t * t).sqrt()) as f32;
    if z == 0.0 {
        (1.0, 0.0)
    } else if z.abs() > x.abs() {
        let t = -x / z;
        let s = inverse(t);
        (s * t, s)
    } else {
        let t = -z / x;
        let c = inverse(t);
        (c, c * t)
    }
}

/// The shift of a sweep: the eigenvalue of the last two rows that is nearer to the last element.
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

/// One step of the implicit QR algorithm on a tridiagonal matrix without zeros beside its diagonal.
fn sweep(d: &mut [f32], e: &mut [f32]) {
    let n = d.len();
    let mut mu = shift(d[n - 2], d[n - 1], e[n - 2]);
    if EPSILON * f64::from(mu.abs()) > f64::from(d[0].abs() + e[0].abs()) {
        mu = 0.0;
    }
    let (mut x, mut z) = (d[0] - mu, e[0]);
    let (mut ap, mut bp, mut aq) = (d[0], e[0], d[1]);
    let mut bq = if n > 2 { e[1] } else { 0.0 };
    let (mut bk, mut zk) = (0.0, 0.0);
    for k in 0..n - 1 {
        let (c, s) = rotation(x, z);
        let before = c * bk - s * zk;
        let (m1, m2) = (c * ap - s * bp, s * aq - c * bp);
        let (m3, m4) = (s * ap + c * bp, s * bp + c * aq);
        d[k] = c * m1 + s * m2;
        if k > 0 {
            e[k - 1] = before;
        }
        bk = c * m3 - s * m4;
        zk = -s * bq;
        ap = s * m3 + c * m4;
        bp = c * bq;
        if k + 2 < n {
            aq = d[k + 2];
            e[k + 1] = bp;
        }
        if k + 3 < n {
            bq = e[k + 2];
        }
        (x, z) = (bk, zk);
    }
    d[n - 1] = ap;
    e[n - 2] = bk;
}

/// A row of a product of matrices: that row of the first, times the second.
fn row_product<const N: usize>(p: &[f32], q: &[[f32; N]]) -> [f32; N] {
    let mut sum = [0.0; N];
    for (p, q) in p.iter().zip(q) {
        for j in 0..N {
            sum[j] += p * q[j];
        }
    }
    sum
}

/// The transposed orthogonal factor of a covariance by Householder's reflections, multiplied out.
fn orthogonal(covariance: &Covariance) -> Matrix {
    let mut z = padded(covariance);
    let mut q = [[0.0; WIDTH]; ELEMENTS];
    for (i, row) in q.iter_mut().enumerate() {
        row[i] = 1.0;
    }
    for k in 0..ELEMENTS - 1 {
        let mut v: [f32; ELEMENTS] = std::array::from_fn(|i| if i < k { 0.0 } else { z[i][k] });
        // The sign is that of the covariance, not of what has become of it.
        v[k] += sign(covariance[k][k]) * norm(v[k..].iter().copied());
        let length = norm(v[k..].iter().copied());
        for v in &mut v[k..] {
            *v /= length;
        }
        // Rows and columns before k are those of the identity, in the reflection and what it is applied to.
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

/// The variance fields of the blocks of an image, `None` if the covariance is singular: the mean over a block of
/// the product of its samples with the solution of the system that has them on its right-hand side.
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
