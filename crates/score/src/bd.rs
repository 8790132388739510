// SPDX-License-Identifier: MPL-2.0

//! Rate-distortion curves, and Bjontegaard's mean difference of rates between two of them.
//!
//! The logarithm of the rate is a function of the quality: piecewise cubic and monotone (PCHIP: F. Fritsch, J. Butland,
//! SIAM J. Sci. Stat. Comput. 1984), so that it does not swing between points that are far apart, as a single polynomial
//! does (C. Herglotz et al., arXiv:2202.12565).

/// Least number of points of curves that are compared.
const POINTS: usize = 3;

/// A rate-distortion curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Rising qualities.
    qualities: Vec<f64>,
    /// Logarithm of the rate at each.
    rates: Vec<f64>,
    /// Derivative at each.
    slopes: Vec<f64>,
}

impl Curve {
    /// Makes a curve of rates and qualities. Points that another one beats are left out. `None` without two others.
    pub fn new(points: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let (rates, qualities): (Vec<_>, Vec<_>) = efficient(points).into_iter().unzip();
        if rates.len() < 2 {
            return None;
        }
        let rates: Vec<f64> = rates.iter().map(|rate| rate.ln()).collect();
        let slopes = slopes(&qualities, &rates);
        Some(Self { qualities, rates, slopes })
    }

    /// Returns the lowest and the highest quality.
    fn range(&self) -> (f64, f64) {
        (self.qualities[0], self.qualities[self.qualities.len() - 1])
    }

    /// Returns the rate at a quality that lies on the curve.
    pub fn rate(&self, quality: f64) -> Option<f64> {
        let (low, high) = self.range();
        (low..=high).contains(&quality).then(|| self.log_rate(quality).exp())
    }

    fn log_rate(&self, quality: f64) -> f64 {
        let after = self.qualities.partition_point(|other| *other <= quality);
        let i = after.clamp(1, self.qualities.len() - 1) - 1;
        let length = self.qualities[i + 1] - self.qualities[i];
        let t = (quality - self.qualities[i]) / length;
        let (t2, t3) = (t * t, t * t * t);
        (2.0 * t3 - 3.0 * t2 + 1.0) * self.rates[i]
            + (t3 - 2.0 * t2 + t) * length * self.slopes[i]
            + (3.0 * t2 - 2.0 * t3) * self.rates[i + 1]
            + (t3 - t2) * length * self.slopes[i + 1]
    }

    /// Integrates the logarithm of the rate. Simpson's rule is exact for the cubic of each piece.
    fn integral(&self, from: f64, to: f64) -> f64 {
        let inner =
            self.qualities.iter().copied().filter(|quality| (from..to).contains(quality) && *quality > from);
        let ends: Vec<_> = std::iter::once(from).chain(inner).chain([to]).collect();
        let piece = |ends: &[f64]| {
            let (a, b) = (ends[0], ends[1]);
            let values = self.log_rate(a) + 4.0 * self.log_rate(f64::midpoint(a, b)) + self.log_rate(b);
            (b - a) / 6.0 * values
        };
        ends.windows(2).map(piece).sum()
    }

    /// Returns Bjontegaard's difference of the rate from an anchor in percent: less than 0 where this curve needs less.
    /// `None` with few points, or without common qualities.
    pub fn bd_rate(&self, anchor: &Self) -> Option<f64> {
        if self.qualities.len().min(anchor.qualities.len()) < POINTS {
            return None;
        }
        let (own, others) = (self.range(), anchor.range());
        let (low, high) = (own.0.max(others.0), own.1.min(others.1));
        let difference = (self.integral(low, high) - anchor.integral(low, high)) / (high - low);
        (low < high).then(|| 100.0 * difference.exp_m1())
    }
}

/// Returns the points that no other point beats, by rising rate and quality.
pub fn efficient(points: impl IntoIterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut points: Vec<_> = points
        .into_iter()
        .filter(|(rate, quality)| *rate > 0.0 && rate.is_finite() && quality.is_finite())
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut best = f64::NEG_INFINITY;
    points.retain(|(_, quality)| {
        let is_better = *quality > best;
        best = best.max(*quality);
        is_better
    });
    points
}

/// Returns the upper convex hull of the points, over the logarithm of the rate, up to the highest quality.
pub fn hull(points: impl IntoIterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut hull: Vec<(f64, f64)> = vec![];
    for point in efficient(points) {
        let slope = |a: (f64, f64), b: (f64, f64)| (b.1 - a.1) / (b.0.ln() - a.0.ln());
        while let [.., a, b] = hull[..]
            && slope(a, b) <= slope(b, point)
        {
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

/// Returns the derivatives that keep a curve monotone between its points.
fn slopes(x: &[f64], y: &[f64]) -> Vec<f64> {
    let lengths: Vec<_> = x.windows(2).map(|x| x[1] - x[0]).collect();
    let rises: Vec<_> = y.windows(2).zip(&lengths).map(|(y, length)| (y[1] - y[0]) / length).collect();
    let (Some(first), Some(last)) = (rises.first(), rises.last()) else { return vec![] };
    if rises.len() == 1 {
        return vec![*first; 2];
    }
    let inner = lengths.windows(2).zip(rises.windows(2)).map(|(h, d)| {
        if d[0] * d[1] <= 0.0 {
            return 0.0;
        }
        let (before, after) = (2.0 * h[1] + h[0], h[1] + 2.0 * h[0]);
        (before + after) / (before / d[0] + after / d[1])
    });
    let n = rises.len();
    let begin = end_slope([lengths[0], lengths[1]], [*first, rises[1]]);
    let end = end_slope([lengths[n - 1], lengths[n - 2]], [*last, rises[n - 2]]);
    std::iter::once(begin).chain(inner).chain([end]).collect()
}

/// Returns the derivative at an end, from three points, with the lengths and rises from there.
fn end_slope(h: [f64; 2], d: [f64; 2]) -> f64 {
    let slope = ((2.0 * h[0] + h[1]) * d[0] - h[0] * d[1]) / (h[0] + h[1]);
    if slope * d[0] <= 0.0 {
        0.0
    } else if d[0] * d[1] <= 0.0 && slope.abs() > 3.0 * d[0].abs() {
        3.0 * d[0]
    } else {
        slope
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(found: Option<f64>, expected: f64) {
        assert!(found.is_some_and(|found| (found - expected).abs() < 1e-6), "{found:?}, not {expected}");
    }

    /// The example of VCEG-M33 and others, with the values of the Python package bjontegaard 1.3.0 (`method="pchip"`).
    #[test]
    fn differences_are_those_of_published_code() {
        let curve = |points: &[(f64, f64)]| Curve::new(points.iter().copied()).unwrap();
        let m33 = curve(&[(686.76, 40.28), (309.58, 37.18), (157.11, 34.24), (85.95, 31.42)]);
        let m33_test = curve(&[(893.34, 40.39), (407.8, 37.21), (204.93, 34.17), (112.75, 31.24)]);
        assert_near(m33_test.bd_rate(&m33), 31.379_878_202_397_627);
        let anchor = curve(&[(9487.76, 40.037), (4593.60, 38.615), (2486.44, 36.845), (1358.24, 34.851)]);
        let test = curve(&[(9787.80, 40.121), (4469.00, 38.651), (2451.52, 36.970), (1356.24, 34.987)]);
        assert_near(test.bd_rate(&anchor), -4.417_485_350_589_045);
        let anchor = curve(&[(400.0, 52.1), (800.0, 70.4), (1500.0, 84.9), (3200.0, 93.2), (7000.0, 97.1)]);
        let test = curve(&[(250.0, 48.0), (600.0, 71.3), (1200.0, 86.2), (2500.0, 94.4), (4000.0, 96.4)]);
        assert_near(test.bd_rate(&anchor), -28.348_991_659_118_305);
        assert_near(anchor.rate(93.0), 3_117.732_815_240_301_5);
        assert_near(anchor.rate(60.0), 532.586_128_401_039_4);
        assert_near(anchor.rate(97.0), 6_836.975_833_759_304);
        assert_eq!((anchor.rate(52.0), anchor.rate(97.2)), (None, None));
    }

    #[test]
    fn a_rate_that_is_half_is_fifty_percent_less() {
        let points = [(1000.0, 60.0), (2000.0, 80.0), (4000.0, 95.0)];
        let whole = Curve::new(points).unwrap();
        let half = Curve::new(points.map(|(rate, quality)| (rate / 2.0, quality))).unwrap();
        assert_near(half.bd_rate(&whole), -50.0);
        assert_near(whole.bd_rate(&half), 100.0);
    }

    #[test]
    fn curves_that_cannot_be_compared_have_no_difference() {
        let low = Curve::new([(100.0, 10.0), (200.0, 20.0), (300.0, 30.0)]).unwrap();
        let high = Curve::new([(100.0, 40.0), (200.0, 50.0), (300.0, 60.0)]).unwrap();
        let short = Curve::new([(100.0, 10.0), (300.0, 30.0)]).unwrap();
        assert_eq!((low.bd_rate(&high), short.bd_rate(&low)), (None, None));
        // A point that costs more and is worse, one of infinite quality, and one without a rate.
        assert!(Curve::new([(100.0, 10.0), (200.0, 9.0), (300.0, f64::INFINITY), (0.0, 5.0)]).is_none());
    }

    #[test]
    fn the_hull_leaves_out_what_lies_below() {
        let points = [(100.0, 50.0), (200.0, 55.0), (400.0, 90.0), (500.0, 80.0), (1600.0, 95.0)];
        assert_eq!(hull(points), [(100.0, 50.0), (400.0, 90.0), (1600.0, 95.0)]);
        assert_eq!(efficient(points), [points[0], points[1], points[2], points[4]]);
    }
}
