// SPDX-License-Identifier: MPL-2.0

//! ADM sums exactly as in the specification: whole planes, 64-bit integers, no shortcuts.

use crate::metrics::adm::{
    AdmPassSums, AdmScale, AdmSums, AdmWork, BandSums, COS_SQUARED, HIGH_PASS, LOW_PASS, scales,
};

/// Rows of a band.
type Plane = Vec<Vec<i64>>;

/// Returns the index of a position along an axis of `n` samples, mirrored at both ends.
fn mirror(m: isize, n: usize) -> usize {
    let m = m.unsigned_abs();
    if m >= n { 2 * n - 1 - m } else { m }
}

fn round_shift(x: i64, n: u32) -> i64 {
    if n == 0 { x } else { (x + (1 << (n - 1))) >> n }
}

fn transpose(plane: &Plane) -> Plane {
    (0..plane[0].len()).map(|x| plane.iter().map(|row| row[x]).collect()).collect()
}

fn filter_rows(plane: &Plane, taps: [i16; 4], shift: u32) -> Plane {
    let n = plane.len();
    let tap = |y: usize, k: usize| &plane[mirror(2 * y as isize - 1 + k as isize, n)];
    (0..n.div_ceil(2))
        .map(|y| {
            let sum = |x| (0..4).map(|k| i64::from(taps[k]) * tap(y, k)[x]).sum();
            (0..plane[0].len()).map(|x| round_shift(sum(x), shift)).collect()
        })
        .collect()
}

/// Returns the bands a, h, v, d.
fn transform(plane: &Plane, shifts: [u32; 2]) -> [Plane; 4] {
    let across = |plane: &Plane, taps| transpose(&filter_rows(&transpose(plane), taps, shifts[1]));
    let [low, high] = [LOW_PASS, HIGH_PASS].map(|taps| filter_rows(plane, taps, shifts[0]));
    [across(&low, LOW_PASS), across(&high, LOW_PASS), across(&low, HIGH_PASS), across(&high, HIGH_PASS)]
}

fn ratio(o: i64, t: i64) -> i64 {
    if o == 0 {
        return 32768;
    }
    let excess = (64 - o.unsigned_abs().leading_zeros()).saturating_sub(15);
    let m = round_shift(o.abs(), excess);
    (((1 << 30) / m * t * o.signum() + (1 << (14 + excess))) >> (15 + excess)).clamp(0, 32768)
}

/// Returns the restored part of the coefficients h, v, d at one position.
fn restored(o: [i64; 3], t: [i64; 3], gain: f64) -> [i64; 3] {
    let single = |x: i64| f64::from(x as f32);
    let dot = single(o[0] * t[0] + o[1] * t[1]);
    let lengths = COS_SQUARED * single(o[0] * o[0] + o[1] * o[1]) * single(t[0] * t[0] + t[1] * t[1]);
    let same = dot >= 0.0 && dot * dot >= lengths;
    std::array::from_fn(|band| {
        let (o, t) = (o[band], t[band]);
        let k = ratio(o, t);
        let r = (k * o + 16384) >> 15;
        match o.signum() {
            1 if same && k > 0 => (r as f64 * gain).min(t as f64) as i64,
            -1 if same && k > 0 => (r as f64 * gain).max(t as f64) as i64,
            _ => r,
        }
    })
}

/// Returns the contributions of a masker coefficient to its neighbours' threshold and to its own.
fn terms(scale: usize, band: usize, m: i64, q: i64) -> [i64; 2] {
    if scale > 0 {
        let c = i64::from(((q * m + (1 << 27)) >> 28) as i32).abs();
        return [143165577, 286331153].map(|factor| (factor * c - (1 << 31)) >> 32);
    }
    let c = if band == 2 { (q * m + 65535) >> 17 } else { (q * m + 16384) >> 15 };
    let c = i64::from(c as i16).abs();
    [4369, 8738].map(|factor| i64::from(((factor * c + 2048) >> 12) as i16))
}

fn numerator(
    signal: &[Plane; 3],
    masker: &[Plane; 3],
    q: [u32; 2],
    index: usize,
    scale: &AdmScale,
) -> BandSums {
    let q = [q[0], q[0], q[1]].map(i64::from);
    let terms: Vec<Vec<[i64; 2]>> = (0..scale.height)
        .map(|y| {
            (0..scale.width)
                .map(|x| {
                    let [h, v, d] = [0, 1, 2].map(|band| terms(index, band, masker[band][y][x], q[band]));
                    [h[0] + v[0] + d[0], h[1] + v[1] + d[1]]
                })
                .collect()
        })
        .collect();
    let threshold = |y: usize, x: usize| {
        let near = [-1isize, 0, 1];
        let sides =
            near.into_iter().flat_map(|i| near.map(|j| (i, j))).filter(|at| *at != (0, 0)).map(|(i, j)| {
                terms[mirror(y as isize + i, scale.height)][mirror(x as isize + j, scale.width)][0]
            });
        sides.sum::<i64>() + terms[y][x][1]
    };
    std::array::from_fn(|band| {
        let cube = |y: usize, x: usize| {
            let weighted = q[band] * signal[band][y][x];
            let (weighted, shift) = match index {
                0 => (weighted.abs(), [10, 10, 12][band]),
                _ => (i64::from(((weighted + (1 << 27)) >> 28) as i32).abs(), 0),
            };
            let rest = i64::from((weighted - (threshold(y, x) << shift)) as i32).max(0);
            let square = i64::from(round_shift(rest * rest, scale.numerator.square[band]) as i32);
            round_shift(square * rest, scale.numerator.cube[band])
        };
        rows(scale, scale.numerator.row, cube)
    })
}

fn denominator(o: &[Plane; 3], scale: &AdmScale) -> BandSums {
    let shifts = &scale.reference;
    std::array::from_fn(|band| {
        rows(scale, shifts.row, |y, x| {
            let u = o[band][y][x].abs();
            let square = if shifts.square[band] == 0 {
                u * u
            } else {
                (u * u + (1 << shifts.square[band])) >> shifts.square[band]
            };
            round_shift(square * u, shifts.cube[band])
        })
    })
}

fn rows(scale: &AdmScale, shift: u32, value: impl Fn(usize, usize) -> i64) -> i64 {
    scale.rows.clone().map(|y| round_shift(scale.columns.clone().map(|x| value(y, x)).sum(), shift)).sum()
}

/// Computes the sums of a frame pair given as rows of samples of `bits` bits.
pub fn sums(work: &AdmWork, reference: &[u16], distorted: &[u16], width: usize, bits: u32) -> AdmSums {
    let mut planes = [reference, distorted].map(|samples| -> Plane {
        let middle = 1 << (bits - 1);
        samples.chunks(width).map(|row| row.iter().map(|x| i64::from(*x) - middle).collect()).collect()
    });
    let pass = |aim: bool| AdmPassSums { additive: aim.then_some([[0; 3]; 4]), ..AdmPassSums::default() };
    let mut out =
        AdmSums { reference: [[0; 3]; 4], passes: work.passes.iter().map(|p| pass(p.aim)).collect() };
    for (index, scale) in scales(width, planes[0].len()).iter().enumerate() {
        let shifts = [[bits, 16], [0, 15], [16, 16], [16, 15]][index];
        let [[a, oh, ov, od], [b, th, tv, td]] = planes.each_ref().map(|plane| transform(plane, shifts));
        planes = [a, b];
        let (o, t) = ([oh, ov, od], [th, tv, td]);
        out.reference[index] = denominator(&o, scale);
        for (pass, sums) in work.passes.iter().zip(&mut out.passes) {
            let (mut r, mut a) = (t.clone(), t.clone());
            for y in 0..scale.height {
                for x in 0..scale.width {
                    let at = |bands: &[Plane; 3]| bands.each_ref().map(|band| band[y][x]);
                    let (t, restored) = (at(&t), restored(at(&o), at(&t), pass.gain_limit));
                    for band in 0..3 {
                        r[band][y][x] = restored[band];
                        a[band][y][x] = t[band] - restored[band];
                    }
                }
            }
            sums.restored[index] = numerator(&r, &a, pass.weights[index], index, scale);
            if let Some(additive) = &mut sums.additive {
                additive[index] = numerator(&a, &r, pass.weights[index], index, scale);
            }
        }
    }
    out
}
