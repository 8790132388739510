// SPDX-License-Identifier: MPL-2.0

//! Colour differences after CIEDE2000.
//!
//! Roots, sines, exponentials and arc tangents consist of additions, multiplications, divisions and square roots, which
//! every machine rounds alike. So the sum is the same on each level and on GPUs. These functions are accurate to about
//! one unit in the last place of a double, and the results are rounded to single precision. So colours and differences
//! nearly always equal those of libvmaf. `kernels/ciede.hip` has the same functions.
//!
//! There are no branches on samples, so the compiler vectorises the loops over the columns of a row.

use super::metric::{Metric, Pictures, Setup};
use super::simd::{Lanes, Level, dispatch};
use crate::backend::BackendError;
use crate::backend::cpu::plane::{Plane, PlaneGroup, Sample};
use crate::frame::BitDepth;
use crate::metrics;
use crate::metrics::ciede::{CiedeWork, Range, fixed_sum};
use rayon::prelude::*;
use std::f64::consts::{FRAC_1_PI, FRAC_PI_2, FRAC_PI_4, LOG2_E, PI};

/// Rows of a part.
const BAND: usize = 8;

/// Y, Cb and Cr of a picture; chroma may have half the columns, half the rows.
pub type Planes<'a, T> = [Plane<'a, T>; 3];

/// Sums the differences of each distorted picture from the reference, each with this bias. All pictures have the same
/// size and depth. Runs in the current rayon pool.
pub fn difference<T: Sample>(
    level: Level,
    reference: Planes<T>,
    distorted: &[Planes<T>],
    depth: BitDepth,
    bias: f64,
) -> Vec<u64> {
    let bands = reference[0].height().div_ceil(BAND);
    let work = |i| band::<T>(level, reference, distorted, i * BAND, Range::new(depth), bias);
    let add = |a: Vec<u64>, b: Vec<u64>| a.into_iter().zip(b).map(|(a, b)| a.wrapping_add(b)).collect();
    (0..bands).into_par_iter().with_max_len(1).map(work).reduce(|| vec![0; distorted.len()], add)
}

dispatch!(fn band[T: Sample](
    reference: Planes<'_, T>, distorted: &[Planes<'_, T>], from: usize, range: Range, bias: f64,
) -> Vec<u64> = process[T]);

/// Computes the part of the sums from row `from`.
///
/// # Safety
///
/// The CPU must have the instructions of `V`, which `dispatch!` sees to.
#[inline(always)]
unsafe fn process<V: Lanes, T: Sample>(
    reference: Planes<'_, T>,
    distorted: &[Planes<'_, T>],
    from: usize,
    range: Range,
    bias: f64,
) -> Vec<u64> {
    let luma = reference[0];
    let n = luma.width();
    let [mut one, mut two] = [(); 2].map(|_| [(); 3].map(|_| vec![0.0; n]));
    let mut sums = vec![0u64; distorted.len()];
    for y in from..luma.height().min(from + BAND) {
        colours(&reference, y, range, &mut one);
        let [l1, a1, b1] = &one;
        let [l1, a1, b1] = [&l1[..n], &a1[..n], &b1[..n]];
        for (picture, sum) in distorted.iter().zip(&mut sums) {
            colours(picture, y, range, &mut two);
            let [l2, a2, b2] = &two;
            let [l2, a2, b2] = [&l2[..n], &a2[..n], &b2[..n]];
            for x in 0..n {
                let difference = delta_e([l1[x], a1[x], b1[x]], [l2[x], a2[x], b2[x]]);
                *sum = sum.wrapping_add((f64::from(difference) + bias).to_bits());
            }
        }
    }
    sums
}

/// Returns the samples of a component at each luma sample of row `y`. If the component is shorter, its last sample is
/// repeated.
#[inline(always)]
fn expand<T: Sample>(plane: &Plane<'_, T>, luma: Plane<'_, T>, y: usize, to: &mut [f32]) {
    let half = |component: usize, luma: usize| usize::from(component < luma);
    let (right, down) = (half(plane.width(), luma.width()), half(plane.height(), luma.height()));
    let row = plane.row((y >> down).min(plane.height() - 1));
    for (x, to) in to.iter_mut().enumerate() {
        let sample: i32 = row.at((x >> right).min(row.len() - 1)).into();
        *to = sample as f32;
    }
}

/// Converts row `y` of a picture from YCbCr (BT.709) to Lab.
#[inline(always)]
fn colours<T: Sample>(picture: &Planes<'_, T>, y: usize, range: Range, to: &mut [Vec<f32>; 3]) {
    for component in 0..3 {
        expand(&picture[component], picture[0], y, &mut to[component]);
    }
    let [y, u, v] = to;
    let n = y.len();
    let (y, u, v) = (&mut y[..n], &mut u[..n], &mut v[..n]);
    for x in 0..n {
        [y[x], u[x], v[x]] = lab([y[x], u[x], v[x]], range);
    }
}

#[inline(always)]
fn lab([y, u, v]: [f32; 3], range: Range) -> [f32; 3] {
    let y = (f64::from(y) - range.black) * range.luma;
    let u = (f64::from(u) - range.grey) * range.chroma;
    let v = (f64::from(v) - range.grey) * range.chroma;
    let r = linear(y + 1.28033 * v);
    let g = linear((y - 0.21482 * u) - 0.38059 * v);
    let b = linear(y + 2.12798 * u);
    let x = (r * 0.4124564390896921 + g * 0.357576077643909) + b * 0.18043748326639894;
    let y = (r * 0.21267285140562248 + g * 0.715152155287818) + b * 0.07217499330655958;
    let z = (r * 0.019333895582329317 + g * 0.119192025881303) + b * 0.9503040785363677;
    let (x, y, z) = (lightness(x * (1.0 / 0.95047)), lightness(y), lightness(z * (1.0 / 1.08883)));
    [(116.0 * y - 16.0) as f32, (500.0 * (x - y)) as f32, (200.0 * (y - z)) as f32]
}

/// Returns the linear value of a gamma corrected colour component; black is 0 and white 1 in both.
#[inline(always)]
fn linear(t: f64) -> f64 {
    const LIMIT: f64 = 10.0 / 255.0;
    let high = larger(t, LIMIT);
    let base = (high + 0.055) * (1.0 / 1.055);
    // To the power of 2.4.
    let square = base * base;
    let power = square * fifth_root(square);
    if t > LIMIT { power } else { t * (1.0 / 12.92) }
}

/// Applies the function between tristimulus values and Lab.
#[inline(always)]
fn lightness(t: f64) -> f64 {
    const LIMIT: f64 = 216.0 / 24389.0;
    let root = cube_root(larger(t, LIMIT));
    let value = if t > LIMIT { root } else { ((24389.0 / 27.0) * t + 16.0) * (1.0 / 116.0) };
    f64::from(value as f32)
}

/// Computes the CIEDE2000 difference of two Lab colours, with a weight of 0.65 for lightness and 4 for hue.
#[inline(always)]
fn delta_e([l1, a1, b1]: [f32; 3], [l2, a2, b2]: [f32; 3]) -> f32 {
    const POWER: f64 = 6103515625.0; // 25^7
    let d = f64::from;
    let length = |a: f32, b: f32| (d(a) * d(a) + d(b) * d(b)).sqrt() as f32;
    let (dl, mean_l) = (l2 - l1, (l1 + l2) / 2.0);
    let (c1, c2) = (length(a1, b1), length(a2, b2));
    let p7 = seventh_power(d((c1 + c2) / 2.0));
    let k = 1.0 - (p7 / (p7 + POWER)).sqrt();
    let ap1 = (d(a1) + d(a1 / 2.0) * k) as f32;
    let ap2 = (d(a2) + d(a2 / 2.0) * k) as f32;
    let (cp1, cp2) = (length(ap1, b1), length(ap2, b2));
    let (mean_c, dc) = ((cp1 + cp2) / 2.0, cp2 - cp1);

    let q = d(mean_l - 50.0);
    let sl = (1.0 + (0.015 * (q * q)) / (20.0 + q * q).sqrt()) as f32;
    let sc = (1.0 + 0.045 * d(mean_c)) as f32;

    let (h1, h2) = (hue(b1, ap1), hue(b2, ap2));
    let far = d(h1 - h2).abs() > PI;
    let dh = h2 - h1;
    let turn = if h2 <= h1 { 2.0 * PI } else { -2.0 * PI };
    let dh = if far { (d(dh) + turn) as f32 } else { dh };
    let dh = if (c1 == 0.0) | (c2 == 0.0) { 0.0 } else { dh };
    let dh = ((2.0 * d(cp1 * cp2).sqrt()) * sin_cos(d(dh) / 2.0)[0]) as f32;
    let sum = h1 + h2;
    let mean_h = if far { ((d(sum) + 2.0 * PI) / 2.0) as f32 } else { sum / 2.0 };

    // Cosines of multiples of the hue, each with its own shift.
    let [s, c] = sin_cos(d(mean_h));
    let (c_2, s_2) = (c * c - s * s, 2.0 * (s * c));
    let (c_3, s_3) = (c_2 * c - s_2 * s, s_2 * c + c_2 * s);
    let (c_4, s_4) = (c_2 * c_2 - s_2 * s_2, 2.0 * (s_2 * c_2));
    // cos and sin of 30, 6 and 63 degrees.
    let t = 1.0 - 0.17 * (c * 0.8660254037844387 + s * 0.5)
        + 0.24 * c_2
        + 0.32 * (c_3 * 0.9945218953682733 - s_3 * 0.10452846326765347)
        - 0.20 * (c_4 * 0.45399049973954675 + s_4 * 0.8910065241883679);
    let sh = (1.0 + (0.015 * d(mean_c)) * d(t as f32)) as f32;

    let degrees = (d(mean_h) * (180.0 / PI)) as f32;
    let g = ((d(degrees) - 275.0) * (1.0 / 25.0)) as f32;
    let e = (60.0 * exp(-d(g * g))) as f32;
    let turn = (d(e) * (PI / 180.0)) as f32;
    let p = seventh_power(d(mean_c)) as f32;
    let fraction = p / (p + POWER as f32);
    let rt = ((-2.0 * d(fraction).sqrt()) * sin_cos(d(turn))[0]) as f32;

    let li = dl / (0.65 * sl);
    let ch = dc / sc;
    let hu = dh / (4.0 * sh);
    let cross = (rt * ch) * hu;
    (((d(li) * d(li) + d(ch) * d(ch)) + d(hu) * d(hu)) + d(cross)).sqrt() as f32
}

/// Returns the hue angle of a colour, 0 to 2 pi.
#[inline(always)]
fn hue(b: f32, a: f32) -> f32 {
    let angle = atan2(b, a) as f32;
    let angle = if angle < 0.0 { (f64::from(angle) + 2.0 * PI) as f32 } else { angle };
    if (a == 0.0) & (b == 0.0) { 0.0 } else { angle }
}

#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

#[inline(always)]
fn seventh_power(x: f64) -> f64 {
    let square = x * x;
    (square * square) * (square * x)
}

// Roots begin with one over the root, in single precision: Newton's method needs no division for that, and each of its
// three steps squares the error of the first guess. Then one step of Halley's method in double precision cubes the
// remaining error of some units in the last place of a single. Its quotient is a small correction, so one more Newton
// step from the single suffices for the divisor.

/// Guesses a power with an error of some percent: the logarithm of a number is nearly linear in its bits.
#[inline(always)]
fn guess(t: f32, exponent: f32, offset: f32) -> f32 {
    let bits = t.to_bits() as i32 as f32;
    f32::from_bits((bits * exponent + offset) as i32 as u32)
}

/// Computes the cube root of a number between 1e-30 and 1e30.
#[inline(always)]
fn cube_root(t: f64) -> f64 {
    let single = t as f32;
    let mut y = guess(single, -1.0 / 3.0, 1_419_917_116.0);
    for _ in 0..3 {
        y *= (4.0 - single * ((y * y) * y)) * (1.0 / 3.0);
    }
    let r = f64::from(single * (y * y));
    let inverse = f64::from(((y * y) * y) * (1.0 / 3.0));
    let cube = (r * r) * r;
    let inverse = inverse * (2.0 - (2.0 * cube + t) * inverse);
    r + r * ((t - cube) * inverse)
}

/// Computes the fifth root of a number between 1e-30 and 1e30.
#[inline(always)]
fn fifth_root(t: f64) -> f64 {
    let single = t as f32;
    let mut y = guess(single, -0.2, 1_277_950_000.0);
    for _ in 0..3 {
        let square = y * y;
        y *= (6.0 - single * ((square * square) * y)) * 0.2;
    }
    let square = y * y;
    let r = f64::from(single * (square * square));
    let inverse = f64::from(((square * square) * y) * 0.2);
    let square = r * r;
    let power = (square * square) * r;
    let inverse = inverse * (2.0 - (3.0 * power + 2.0 * t) * inverse);
    r + r * ((t - power) * inverse)
}

/// Added to a number, it leaves the nearest integer in the lowest bits.
const TO_INTEGER: f64 = 6755399441055744.0; // 1.5 x 2^52

/// Computes `e^x` for `x` between -700 and 700.
#[inline(always)]
fn exp(x: f64) -> f64 {
    // ln 2 in two parts, the first of 32 bits.
    const LN_2: [f64; 2] = [0.6931471803691238, 1.9082149292705877e-10];
    let integer = x * LOG2_E + TO_INTEGER;
    let k = integer - TO_INTEGER;
    let r = (x - k * LN_2[0]) - k * LN_2[1];
    let mut sum = 1.0 / 6227020800.0; // 1 / 13!
    for factorial in [479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0]
    {
        sum = sum * r + 1.0 / factorial;
    }
    sum = (sum * r + 0.5) * (r * r) + r + 1.0;
    sum * f64::from_bits(integer.to_bits().wrapping_add(1023) << 52)
}

/// Computes sine and cosine of an angle between -100 and 100.
#[inline(always)]
fn sin_cos(x: f64) -> [f64; 2] {
    // A quarter turn in two parts, the first of 33 bits.
    const QUARTER: [f64; 2] = [1.5707963267341256, 6.077100506506192e-11];
    let integer = x * (2.0 * FRAC_1_PI) + TO_INTEGER;
    let k = integer - TO_INTEGER;
    let r = (x - k * QUARTER[0]) - k * QUARTER[1];
    let square = r * r;
    let mut sin = 1.0 / 355687428096000.0; // 1 / 17!
    for factorial in [-1307674368000.0, 6227020800.0, -39916800.0, 362880.0, -5040.0, 120.0, -6.0] {
        sin = sin * square + 1.0 / factorial;
    }
    let sin = r + r * (square * sin);
    let mut cos = 1.0 / 20922789888000.0; // 1 / 16!
    for factorial in [-87178291200.0, 479001600.0, -3628800.0, 40320.0, -720.0, 24.0, -2.0] {
        cos = cos * square + 1.0 / factorial;
    }
    let cos = 1.0 + square * cos;
    let quadrant = integer.to_bits();
    let (a, b) = if quadrant & 1 == 0 { (sin, cos) } else { (cos, sin) };
    [if quadrant & 2 == 0 { a } else { -a }, if (quadrant + 1) & 2 == 0 { b } else { -b }]
}

/// Computes the angle of a point, -pi to pi. At the origin the result is meaningless.
#[inline(always)]
fn atan2(y: f32, x: f32) -> f64 {
    const TO_INTEGER: f32 = 12582912.0; // 1.5 x 2^23
    let (ax, ay) = (x.abs(), y.abs());
    let steep = ay > ax;
    let (low, high) = if steep { (ax, ay) } else { (ay, ax) };
    // Starts from the nearest of five angles, whose tangents are quarters.
    let k = ((low / high) * 4.0 + TO_INTEGER) - TO_INTEGER;
    let near = if k == 1.0 { 0.24497866312686414 } else { 0.0 };
    let near = if k == 2.0 { 0.46364760900080615 } else { near };
    let near = if k == 3.0 { 0.6435011087932844 } else { near };
    let near = if k == 4.0 { FRAC_PI_4 } else { near };
    let (k, low, high) = (f64::from(k), f64::from(low), f64::from(high));
    let tangent = k * 0.25;
    let z = (low - tangent * high) / (high + tangent * low);
    let square = z * z;
    let mut sum = 1.0 / 17.0;
    for divisor in [-15.0, 13.0, -11.0, 9.0, -7.0, 5.0, -3.0] {
        sum = sum * square + 1.0 / divisor;
    }
    let angle = near + (z + z * (square * sum));
    let angle = if steep { FRAC_PI_2 - angle } else { angle };
    let angle = if x < 0.0 { PI - angle } else { angle };
    if y < 0.0 { -angle } else { angle }
}

/// CIEDE2000, with the bias of its sums.
pub struct Ciede {
    bias: f64,
}

impl Metric for Ciede {
    type Of = metrics::ciede::Ciede;

    fn prepare(_work: &CiedeWork, setup: &Setup) -> Result<Self, BackendError> {
        Ok(Self { bias: fixed_sum(setup.geometry).bias() })
    }

    fn compute(&mut self, pictures: &Pictures<'_>) -> Option<Vec<u64>> {
        fn planes<T: Copy>(y: &[T], cb: &[T], cr: &[T]) -> Vec<[T; 3]> {
            y.iter().zip(cb).zip(cr).map(|((y, cb), cr)| [*y, *cb, *cr]).collect()
        }
        let Pictures { level, depth, .. } = *pictures;
        let [cb, cr] = pictures.chroma.as_ref()?;
        match (&pictures.luma, cb, cr) {
            (PlaneGroup::U8(y, ys), PlaneGroup::U8(cb, cbs), PlaneGroup::U8(cr, crs)) => {
                Some(difference(level, [*y, *cb, *cr], &planes(ys, cbs, crs), depth, self.bias))
            }
            (PlaneGroup::U16(y, ys), PlaneGroup::U16(cb, cbs), PlaneGroup::U16(cr, crs)) => {
                Some(difference(level, [*y, *cb, *cr], &planes(ys, cbs, crs), depth, self.bias))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::tests::{Picture, content};
    use crate::frame::Geometry;
    use crate::metrics::ciede::{fixed_sum, score};

    /// The specification with the functions of the standard library.
    mod naive {
        use super::*;

        pub fn lab([y, u, v]: [u16; 3], bits: u32) -> [f32; 3] {
            let k = f64::from(1u32 << (bits - 8));
            let y = (f64::from(y) - 16.0 * k) * (1.0 / (219.0 * k));
            let [u, v] = [u, v].map(|x| (f64::from(x) - 128.0 * k) * (1.0 / (224.0 * k)));
            let rgb = [y + 1.28033 * v, y - 0.21482 * u - 0.38059 * v, y + 2.12798 * u];
            let linear = |t: f64| {
                if t > 10.0 / 255.0 { ((t + 0.055) * (1.0 / 1.055)).powf(2.4) } else { t * (1.0 / 12.92) }
            };
            let [r, g, b] = rgb.map(linear);
            let f = |t: f64| {
                let limit = 216.0 / 24389.0;
                let f =
                    if t > limit { t.powf(1.0 / 3.0) } else { ((24389.0 / 27.0) * t + 16.0) * (1.0 / 116.0) };
                f64::from(f as f32)
            };
            let x =
                f((r * 0.4124564390896921 + g * 0.357576077643909 + b * 0.18043748326639894)
                    * (1.0 / 0.95047));
            let y = f(r * 0.21267285140562248 + g * 0.715152155287818 + b * 0.07217499330655958);
            let z =
                f((r * 0.019333895582329317 + g * 0.119192025881303 + b * 0.9503040785363677)
                    * (1.0 / 1.08883));
            [(116.0 * y - 16.0) as f32, (500.0 * (x - y)) as f32, (200.0 * (y - z)) as f32]
        }

        pub fn delta_e([l1, a1, b1]: [f32; 3], [l2, a2, b2]: [f32; 3]) -> f32 {
            let d = f64::from;
            let sq = |x: f32| d(x) * d(x);
            let length = |a: f32, b: f32| (sq(a) + sq(b)).sqrt() as f32;
            let (c1, c2) = (length(a1, b1), length(a2, b2));
            let p7 = d((c1 + c2) / 2.0).powf(7.0);
            let k = 1.0 - (p7 / (p7 + 6103515625.0)).sqrt();
            let [ap1, ap2] = [a1, a2].map(|a| (d(a) + d(a / 2.0) * k) as f32);
            let (cp1, cp2) = (length(ap1, b1), length(ap2, b2));
            let mc = (cp1 + cp2) / 2.0;
            let q = (l1 + l2) / 2.0 - 50.0;
            let sl = (1.0 + (0.015 * sq(q)) / (20.0 + sq(q)).sqrt()) as f32;
            let sc = (1.0 + 0.045 * d(mc)) as f32;
            let hue = |b: f32, a: f32| {
                let h = d(b).atan2(d(a)) as f32;
                if h < 0.0 { (d(h) + 2.0 * PI) as f32 } else { h }
            };
            let (h1, h2) = (hue(b1, ap1), hue(b2, ap2));
            let far = d(h1 - h2).abs() > PI;
            let dh = match (c1 == 0.0 || c2 == 0.0, far) {
                (true, _) => 0.0,
                (_, false) => h2 - h1,
                _ if h2 <= h1 => (d(h2 - h1) + 2.0 * PI) as f32,
                _ => (d(h2 - h1) - 2.0 * PI) as f32,
            };
            let dh = ((2.0 * d(cp1 * cp2).sqrt()) * (d(dh) / 2.0).sin()) as f32;
            let hm = d(if far { ((d(h1 + h2) + 2.0 * PI) / 2.0) as f32 } else { (h1 + h2) / 2.0 });
            let t = 1.0 - 0.17 * (hm - PI / 6.0).cos()
                + 0.24 * (2.0 * hm).cos()
                + 0.32 * (3.0 * hm + PI / 30.0).cos()
                - 0.20 * (4.0 * hm - 7.0 * PI / 20.0).cos();
            let sh = (1.0 + (0.015 * d(mc)) * d(t as f32)) as f32;
            let g = ((d((hm * (180.0 / PI)) as f32) - 275.0) * (1.0 / 25.0)) as f32;
            let e = (60.0 * (-d(g * g)).exp()) as f32;
            let r = (d(e) * (PI / 180.0)) as f32;
            let p = mc.powf(7.0);
            let rt = ((-2.0 * d(p / (p + 6103515625.0)).sqrt()) * d(r).sin()) as f32;
            let (li, ch, hu) = ((l2 - l1) / (0.65 * sl), (cp2 - cp1) / sc, dh / (4.0 * sh));
            (sq(li) + sq(ch) + sq(hu) + d((rt * ch) * hu)).sqrt() as f32
        }

        /// Computes the score with a sum of doubles in raster order.
        pub fn score(pictures: &[[Picture; 3]; 2]) -> f64 {
            let luma = &pictures[0][0];
            let samples = pictures.each_ref().map(|picture| picture.each_ref().map(Picture::samples));
            let colour = |side: usize, x: usize, y: usize| {
                let at = |i: usize| {
                    let plane = &pictures[side][i];
                    let x = if plane.width < luma.width { x / 2 } else { x };
                    let y = if plane.height < luma.height { y / 2 } else { y };
                    samples[side][i][y.min(plane.height - 1) * plane.width + x.min(plane.width - 1)]
                };
                lab([at(0), at(1), at(2)], luma.depth.bits())
            };
            let mut sum = 0.0;
            for y in 0..luma.height {
                for x in 0..luma.width {
                    sum += f64::from(delta_e(colour(0, x, y), colour(1, x, y)));
                }
            }
            45.0 - 20.0 * (sum / (luma.width * luma.height) as f64).log10()
        }
    }

    fn check(pictures: &[[Picture; 3]; 2]) {
        let [luma, cb, _] = &pictures[0];
        let chroma = Some((cb.width, cb.height));
        let geometry = Geometry { width: luma.width, height: luma.height, depth: luma.depth, chroma };
        let bias = fixed_sum(geometry).bias();
        let [a, b] = pictures;
        let sums = |level, n: usize| match luma.depth.bits() {
            8 => {
                let samples = [a, b, a].map(|picture| picture.each_ref().map(Picture::bytes));
                let planes = samples.each_ref().map(|picture| picture.each_ref().map(|p| p.plane()));
                difference(level, planes[0], &planes[1..=n], luma.depth, bias)
            }
            _ => {
                let samples = [a, b, a].map(|picture| picture.each_ref().map(Picture::words));
                let planes = samples.each_ref().map(|picture| picture.each_ref().map(|p| p.plane()));
                difference(level, planes[0], &planes[1..=n], luma.depth, bias)
            }
        };
        // Alone, and before the reference itself.
        let sum = sums(Level::detect(), 1)[0];
        let itself = (0..luma.width * luma.height).fold(0, |sum: u64, _| sum.wrapping_add(bias.to_bits()));
        for level in Level::available() {
            assert_eq!(sums(level, 1), [sum], "{level:?} {geometry:?}");
            assert_eq!(sums(level, 2), [sum, itself], "{level:?} {geometry:?}");
        }
        let (found, expected) = (score(sum, geometry), naive::score(pictures));
        assert!((found - expected).abs() < 1e-9 || found == expected, "{geometry:?} {found} {expected}");
    }

    #[test]
    fn equals_the_specification_at_every_size_format_and_depth() {
        for (i, n) in (2..=40).enumerate() {
            let (width, height) = (n, 2 + n % 7);
            let (w, h) = [(width / 2, height / 2), (width / 2, height), (width, height)][i % 3];
            for bits in [8, 10, 12, 16] {
                let [a, b] = content(i, width, height, bits);
                let [[cb1, cb2], [cr1, cr2]] = [i + 1, i + 2].map(|seed| content(seed, w, h, bits));
                check(&[[a, cb1, cr1], [b, cb2, cr2]]);
            }
        }
    }

    #[test]
    fn functions_are_right_to_the_last_digits() {
        let near = |found: f64, expected: f64, unit: f64| {
            assert!((found - expected).abs() <= unit * 4e-16, "{found} {expected}");
        };
        for i in 0..20_000 {
            let t = 0.008 * (f64::from(i) * 3.2e-4).exp();
            near(cube_root(t), t.cbrt(), t.cbrt());
            near(fifth_root(t), t.powf(0.2), t.powf(0.2));
            let x = f64::from(i) * 2.1e-3 - 21.0;
            let [s, c] = sin_cos(x);
            near(s, x.sin(), 1.0);
            near(c, x.cos(), 1.0);
            near(exp(-x.abs() * 5.0), (-x.abs() * 5.0).exp(), (-x.abs() * 5.0).exp());
            let (b, a) = ((i * 37 % 401) as f32 * 0.7 - 140.0, (i % 311) as f32 - 155.0);
            near(atan2(b, a), f64::from(b).atan2(f64::from(a)), 4.0);
        }
    }
}
