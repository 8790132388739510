// SPDX-License-Identifier: MPL-2.0

//! Eigenvalues of one covariance as libvmaf computes them, for tests.

use super::{EPSILON, MAX_SWEEPS, WIDTH, drop_small, hypot, norm, padded, shift, sign};
use crate::metrics::speed::{Covariance, ELEMENTS};

/// Computes the eigenvalues of a covariance, in no particular order.
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

/// Computes the diagonal and subdiagonal of the tridiagonal matrix that is similar to a covariance.
fn tridiagonal(covariance: &Covariance) -> ([f32; ELEMENTS], [f32; ELEMENTS - 1]) {
    let mut a = padded(covariance);
    let mut e = [0.0; ELEMENTS - 1];
    for i in 0..ELEMENTS - 2 {
        // The rest of the matrix stays symmetric, so a row serves as the column.
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

/// Computes the cosine and sine of the rotation that turns `z` to zero.
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

/// Applies one step of the implicit QR algorithm to a tridiagonal matrix without zeros beside its diagonal.
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
