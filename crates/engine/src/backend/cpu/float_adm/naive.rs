// SPDX-License-Identifier: MPL-2.0

//! The definition in plain loops.

use crate::metrics::adm::scales;
use crate::metrics::float_adm::{
    BandSums, CENTRE, COS_SQUARED, EPSILON, FloatAdmPass, FloatAdmPassSums, FloatAdmSums, FloatAdmWork,
    HIGH_PASS, LOW_PASS, NEIGHBOUR,
};

/// A plane of singles, row by row.
#[derive(Clone)]
struct Plane {
    data: Vec<f32>,
    width: usize,
    height: usize,
}

impl Plane {
    fn new((width, height): (usize, usize), at: impl Fn(usize, usize) -> f32) -> Self {
        let data = (0..width * height).map(|i| at(i % width, i / width)).collect();
        Self { data, width, height }
    }

    fn at(&self, x: usize, y: usize) -> f32 {
        self.data[y * self.width + x]
    }

    fn map(&self, f: impl Fn(f32) -> f32) -> Self {
        Self { data: self.data.iter().map(|x| f(*x)).collect(), ..*self }
    }

    /// Applies a filter along columns or rows, and leaves every other row or column out.
    fn filter(&self, taps: &[f32; 4], is_vertical: bool) -> Self {
        let extent = if is_vertical { self.height } else { self.width };
        let place = |i: usize, k: usize| {
            let i = (2 * i + k) as isize - 1;
            let n = extent as isize;
            (if i < 0 {
                -i
            } else if i >= n {
                2 * n - i - 1
            } else {
                i
            }) as usize
        };
        let half = extent.div_ceil(2);
        let size = if is_vertical { (self.width, half) } else { (half, self.height) };
        Self::new(size, |x, y| {
            (0..4).fold(0.0, |sum, k| {
                sum + taps[k] * if is_vertical { self.at(x, place(y, k)) } else { self.at(place(x, k), y) }
            })
        })
    }

    /// Returns the bands a, h, v and d.
    fn transform(&self) -> [Self; 4] {
        let [low, high] = [self.filter(&LOW_PASS, true), self.filter(&HIGH_PASS, true)];
        [
            low.filter(&LOW_PASS, false),
            high.filter(&LOW_PASS, false),
            low.filter(&HIGH_PASS, false),
            high.filter(&HIGH_PASS, false),
        ]
    }
}

#[cfg(target_arch = "x86_64")]
fn quotient(n: f32, d: f32) -> f32 {
    let estimate = crate::backend::cpu::simd::estimate_inverse(d);
    n * (estimate + estimate * (1.0 - d * estimate))
}

#[cfg(not(target_arch = "x86_64"))]
fn quotient(n: f32, d: f32) -> f32 {
    n / d
}

/// Returns the restored parts of the bands h, v and d.
fn restore(o: [f32; 3], t: [f32; 3], gain: f64) -> [f32; 3] {
    let product = o[0] * t[0] + o[1] * t[1];
    let [squares_o, squares_t] = [o, t].map(|x| x[0] * x[0] + x[1] * x[1]);
    let near = product >= 0.0 && product * product >= COS_SQUARED * squares_o * squares_t;
    std::array::from_fn(|i| {
        let r = quotient(t[i], o[i] + EPSILON).clamp(0.0, 1.0) * o[i];
        let (gained, t) = (f64::from(r) * gain, f64::from(t[i]));
        if near && r > 0.0 {
            (if gained < t { gained } else { t }) as f32
        } else if near && r < 0.0 {
            (if gained > t { gained } else { t }) as f32
        } else {
            r
        }
    })
}

fn raise(x: f32, pass: &FloatAdmPass) -> f32 {
    if pass.exponent == 3.0 { x * x * x } else { x.powf(pass.exponent as f32) }
}

/// Sums the bands of one part that the other part masks.
fn masked(
    part: &[Plane; 3],
    other: &[Plane; 3],
    scale: &crate::metrics::adm::AdmScale,
    pass: &FloatAdmPass,
) -> BandSums {
    let at = |plane: &Plane, x: isize, y: isize| {
        let place = |i: isize, n: usize| {
            if i < 0 {
                1
            } else if i >= n as isize {
                n - 1
            } else {
                i as usize
            }
        };
        plane.at(place(x, plane.width), place(y, plane.height))
    };
    let threshold = |x: usize, y: usize| {
        let mut all = 0.0;
        for plane in other {
            let mut sum = 0f32;
            for (v, u) in (0..9isize).map(|i| (i / 3 - 1, i % 3 - 1)) {
                let magnitude = f64::from(at(plane, x as isize + u, y as isize + v));
                if (u, v) == (0, 0) {
                    sum = (f64::from(sum) + CENTRE * magnitude) as f32;
                } else {
                    sum += (NEIGHBOUR * magnitude) as f32;
                }
            }
            all += sum;
        }
        if pass.masks { all } else { 0.0 }
    };
    let mut sums = [0.0; 3];
    for y in scale.rows.clone() {
        let mut row = [0.0; 3];
        for x in scale.columns.clone() {
            let threshold = threshold(x, y);
            for (sum, plane) in row.iter_mut().zip(part) {
                let rest = plane.at(x, y) - threshold;
                *sum += raise(if rest < 0.0 { 0.0 } else { rest }, pass);
            }
        }
        sums.iter_mut().zip(row).for_each(|(sum, row)| *sum += row);
    }
    sums
}

/// Computes the sums of a pair of pictures of this width and depth.
pub fn sums(
    work: &FloatAdmWork,
    reference: &[u16],
    distorted: &[u16],
    width: usize,
    bits: u32,
) -> FloatAdmSums {
    let height = reference.len() / width;
    let unit = (1u32 << (bits - 8)) as f32;
    let mut pictures = [reference, distorted]
        .map(|samples| Plane::new((width, height), |x, y| f32::from(samples[y * width + x]) / unit - 128.0));
    let one = |pass: &FloatAdmPass| FloatAdmPassSums {
        additive: pass.aim.then_some([[0.0; 3]; 4]),
        ..Default::default()
    };
    let mut all: Vec<_> = work.passes.iter().map(one).collect();
    for (s, scale) in scales(width, height).iter().enumerate() {
        let [[a, oh, ov, od], [b, th, tv, td]] = pictures.each_ref().map(Plane::transform);
        pictures = [a, b];
        let (o, t) = ([oh, ov, od], [th, tv, td]);
        for (pass, all) in work.passes.iter().zip(&mut all) {
            let [hv, d] = pass.weights[s];
            let weights = [hv, hv, d];
            let size = (scale.width, scale.height);
            let of = |planes: &[Plane; 3], x, y| planes.each_ref().map(|plane| plane.at(x, y));
            let restored: [Plane; 3] = std::array::from_fn(|i| {
                Plane::new(size, |x, y| restore(of(&o, x, y), of(&t, x, y), pass.gain_limit)[i])
            });
            let additive: [Plane; 3] =
                std::array::from_fn(|i| Plane::new(size, |x, y| t[i].at(x, y) - restored[i].at(x, y)));
            let weigh = |planes: &[Plane; 3]| -> [Plane; 3] {
                std::array::from_fn(|i| planes[i].map(|x| (weights[i] * x).abs()))
            };
            let [o, restored, additive] = [&o, &restored, &additive].map(weigh);
            let none = FloatAdmPass { masks: false, ..*pass };
            all.reference[s] = masked(&o, &o, scale, &none);
            all.restored[s] = masked(&restored, &additive, scale, pass);
            all.additive.iter_mut().for_each(|all| all[s] = masked(&additive, &restored, scale, pass));
        }
    }
    all
}
