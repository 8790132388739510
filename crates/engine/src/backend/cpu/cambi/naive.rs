// SPDX-License-Identifier: MPL-2.0

//! The specification in plain loops.

use crate::backend::cpu::tests::Picture;
use crate::metrics::cambi::{CambiPicture, CambiPlan, RECIPROCALS, SCALES, ScaleSums, nearest};

/// A plane of numbers; those outside are `None`.
struct Numbers {
    width: usize,
    height: usize,
    data: Vec<i32>,
}

impl Numbers {
    fn new(width: usize, height: usize, number: impl Fn(usize, usize) -> i32) -> Self {
        let data = (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| number(x, y));
        Self { width, height, data: data.collect() }
    }

    fn at(&self, x: usize, y: usize) -> i32 {
        self.data[y * self.width + x]
    }

    fn decimated(&self) -> Self {
        Self::new(self.width.div_ceil(2), self.height.div_ceil(2), |x, y| self.at(2 * x, 2 * y))
    }

    /// Returns the positions of the square of side `2 radius + 1` that are inside.
    fn around(&self, x: usize, y: usize, radius: usize) -> impl Iterator<Item = (usize, usize)> {
        let span = move |at: usize, end: usize| at.saturating_sub(radius)..(at + radius + 1).min(end);
        let columns = span(x, self.width);
        span(y, self.height).flat_map(move |y| columns.clone().map(move |x| (x, y)))
    }
}

fn mode(a: i32, b: i32, c: i32) -> i32 {
    match (a == b || a == c, b == c) {
        (true, _) => a,
        (_, true) => b,
        _ => a.min(b).min(c),
    }
}

fn mode_filter(p: &Numbers) -> Numbers {
    let (w, h) = (p.width, p.height);
    let row = Numbers::new(w, h, |x, y| match x == 0 || x == w - 1 {
        true => p.at(x, y),
        false => mode(p.at(x - 1, y), p.at(x, y), p.at(x + 1, y)),
    });
    Numbers::new(w, h, |x, y| match y == 0 || y == h - 1 {
        true => p.at(x, y),
        false => mode(row.at(x, y - 1), row.at(x, y), row.at(x, y + 1)),
    })
}

pub(super) fn naive(plan: &CambiPlan, picture: &CambiPicture, from: &Picture) -> ScaleSums {
    let (w, h, bits) = (picture.width, picture.height, from.depth.bits());
    let samples = from.samples();
    let [columns, rows] = [nearest(from.width, w), nearest(from.height, h)];
    let ten = Numbers::new(w, h, |x, y| {
        let sample = i32::from(samples[rows[y] as usize * from.width + columns[x] as usize]);
        if bits <= 10 { sample << (10 - bits) } else { (sample + (1 << (bits - 11))) >> (bits - 10) }
    });
    let mut p = Numbers::new(w, h, |x, y| {
        let p = |dx, dy| ten.at(x + dx, y + dy);
        match (x + 1 < w, y + 1 < h) {
            _ if !plan.anti_dither => p(0, 0),
            (true, true) => (p(0, 0) + p(1, 0) + p(0, 1) + p(1, 1)) >> 2,
            (false, true) => (p(0, 0) + p(0, 1)) >> 1,
            (true, false) => (p(0, 0) + p(1, 0)) >> 1,
            _ => p(0, 0),
        }
    });
    let flat = Numbers::new(w, h, |x, y| {
        let like = |dx, dy| x + dx >= w || y + dy >= h || p.at(x, y) == p.at(x + dx, y + dy);
        i32::from(like(1, 0) && like(0, 1))
    });
    let mut mask = Numbers::new(w, h, |x, y| {
        let count: i32 = flat.around(x, y, 3).map(|(x, y)| flat.at(x, y)).sum();
        i32::from(count as u32 > picture.flat_limit)
    });
    let mut sums = [0; SCALES];
    for scale in 0..SCALES {
        if scale > 0 || plan.halved {
            (p, mask) = (p.decimated(), mask.decimated());
        }
        p = mode_filter(&p);
        let value = |x: usize, y: usize| {
            let v = p.at(x, y);
            if mask.at(x, y) == 0 || plan.contrasts.iter().all(|c| v > c.up_to || v <= c.above) {
                return 0.0;
            }
            let mut counts = [0i32; 2 * 32 + 1];
            for (x, y) in p.around(x, y, picture.window / 2).filter(|(x, y)| mask.at(*x, *y) == 1) {
                if let Some(count) = counts.get_mut((p.at(x, y) - v + 32) as usize) {
                    *count += 1;
                }
            }
            let contrast = |(i, c): (usize, &crate::metrics::cambi::Contrast)| {
                let m = counts[32 + i + 1].max(counts[32 - i - 1]);
                let seen = v <= c.up_to && v > c.above;
                let product = (c.weight * counts[32] * m) as f32;
                if seen { product * RECIPROCALS[(counts[32] + m) as usize] } else { 0.0 }
            };
            plan.contrasts.iter().enumerate().map(contrast).fold(0.0, f32::max)
        };
        let all = (0..p.height).flat_map(|y| (0..p.width).map(move |x| (x, y)));
        let mut values: Vec<f32> = all.map(|(x, y)| value(x, y)).collect();
        values.sort_by(|a, b| b.total_cmp(a));
        let fixed = |value: &f32| (f64::from(*value) * f64::from(1 << 24)) as u64;
        sums[scale] = values[..picture.scales[scale].top].iter().map(fixed).sum();
    }
    sums
}
