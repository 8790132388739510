// SPDX-License-Identifier: MPL-2.0

//! VIF's sums exactly as in the specification: whole planes, 64-bit integers, plain loops.

use crate::backend::cpu::tests::Picture;
use crate::metrics::vif::{EPSILON, NOISE, TAPS, VifScaleSums, VifSums, VifWork, log2_table};

/// One scale of both pictures.
struct Naive {
    width: usize,
    height: usize,
    planes: [Vec<u64>; 2],
    bits: u32,
}

fn round(x: u64, shift: u32) -> u64 {
    (x + ((1 << shift) >> 1)) >> shift
}

impl Naive {
    fn filter(&self, taps: &[u16], shifts: [u32; 2], sample: impl Fn(usize) -> u64) -> Vec<u64> {
        let (w, h, centre) = (self.width as isize, self.height as isize, taps.len() as isize / 2);
        let reflect = |i: isize, n: isize| if i.abs() < n { i.abs() } else { 2 * (n - 1) - i };
        let at = |x: isize, y: isize| (reflect(y, h) * w + reflect(x, w)) as usize;
        let taps = || taps.iter().enumerate().map(|(k, tap)| (k as isize - centre, u64::from(*tap)));
        let all = || (0..h).flat_map(|y| (0..w).map(move |x| (x, y)));
        let column = |(x, y)| taps().map(|(k, tap)| tap * sample(at(x, y + k))).sum();
        let rows: Vec<u64> = all().map(column).map(|sum| round(sum, shifts[0])).collect();
        let row = |(x, y)| taps().map(|(k, tap)| tap * rows[at(x + k, y)]).sum();
        all().map(row).map(|sum| round(sum, shifts[1])).collect()
    }

    fn sums(&self, scale: usize, limit: f64, table: &[u16]) -> VifScaleSums {
        let [r, d] = &self.planes;
        let mean = |p: &[u64]| self.filter(TAPS[scale], [self.bits, 0], |i| p[i]);
        let product =
            |p: &[u64], q: &[u64]| self.filter(TAPS[scale], [2 * (self.bits - 8), 16], |i| p[i] * q[i]);
        let (m1, m2, xx, yy, xy) = (mean(r), mean(d), product(r, r), product(d, d), product(r, d));
        let log = |v: i64| {
            let k = 48 - (v as u64).leading_zeros();
            i64::from(table[(v as usize >> k) - 32768]) + 2048 * i64::from(k)
        };
        let noise = i64::from(NOISE);
        let mut sums = VifScaleSums::default();
        for i in 0..r.len() {
            let var1 = xx[i] as i64 - round(m1[i] * m1[i], 32) as i64;
            let var2 = (yy[i] as i64 - round(m2[i] * m2[i], 32) as i64).max(0);
            let cov = xy[i] as i64 - round(m1[i] * m2[i], 32) as i64;
            if var1 < noise {
                sums.flat_count += 1;
                sums.flat_energy += var2;
                continue;
            }
            sums.den_log += log(var1 + noise) - 34816;
            if cov > 0 && var2 > 0 {
                let gain = cov as f64 / (var1 as f64 + EPSILON);
                let noise = ((var2 as f64 - gain * cov as f64) as i64).max(0) + noise;
                let gain = gain.min(limit);
                sums.num_log += log((gain * gain * var1 as f64) as i64 + noise) - log(noise);
            }
        }
        sums
    }

    fn next(&self, scale: usize) -> Self {
        let planes = [0, 1].map(|i| {
            let blurred = self.filter(TAPS[scale + 1], [self.bits, 16], |at| self.planes[i][at]);
            let row = |y: usize| &blurred[y * self.width..(y + 1) * self.width];
            let half = |row: &[u64]| row.iter().step_by(2).take(self.width / 2).copied().collect::<Vec<_>>();
            (0..self.height / 2).flat_map(|y| half(row(2 * y))).collect()
        });
        Self { width: self.width / 2, height: self.height / 2, planes, bits: 16 }
    }
}

pub(super) fn naive(pair: [&Picture; 2], work: &VifWork) -> VifSums {
    let table = log2_table();
    let planes = [0, 1].map(|i| pair[i].samples().into_iter().map(u64::from).collect());
    let mut scale =
        Naive { width: pair[0].width, height: pair[0].height, planes, bits: pair[0].depth.bits() };
    let mut sums = vec![[VifScaleSums::default(); 4]; work.gain_limits.len()];
    for i in 0..4 {
        if i > 0 {
            scale = scale.next(i - 1);
        }
        for (sum, limit) in sums.iter_mut().zip(&work.gain_limits) {
            if i > 0 || work.scale0 {
                sum[i] = scale.sums(i, *limit, &table);
            }
        }
    }
    sums
}
