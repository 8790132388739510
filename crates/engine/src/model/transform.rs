// SPDX-License-Identifier: MPL-2.0

//! The score transform: a polynomial, a piecewise linear curve, and bounds by the untransformed score.

use serde::de::{Deserialize, Deserializer};

use super::present::present;

/// The member `score_transform` of a model.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Transform {
    /// The model applies it by default.
    pub enabled: bool,
    #[serde(deserialize_with = "present")]
    p0: Option<f64>,
    #[serde(deserialize_with = "present")]
    p1: Option<f64>,
    #[serde(deserialize_with = "present")]
    p2: Option<f64>,
    /// Points `[x, y]` of the curve.
    pub knots: Vec<[f64; 2]>,
    #[serde(deserialize_with = "true_text")]
    out_lte_in: bool,
    #[serde(deserialize_with = "true_text")]
    out_gte_in: bool,
}

/// Deserialises the string `"true"`, which libvmaf requires for these switches.
fn true_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    String::deserialize(deserializer).map(|text| text == "true")
}

impl Transform {
    /// Applies the transform to a score.
    pub fn apply(&self, score: f64) -> f64 {
        let mut y = score;
        if self.p0.or(self.p1).or(self.p2).is_some() {
            y = 0.0;
            y += self.p0.unwrap_or(0.0);
            if let Some(p1) = self.p1 {
                y += p1 * score;
            }
            if let Some(p2) = self.p2 {
                y += p2 * score * score;
            }
        }
        if self.knots.len() > 1 {
            y = piecewise_linear(&self.knots, y);
        }
        if self.out_lte_in && y > score {
            y = score;
        }
        if self.out_gte_in && y < score {
            y = score;
        }
        y
    }
}

/// Evaluates the curve through the knots at `x`. At a knot the later segment wins; the first and the last segment
/// extend beyond the ends. The first segment that does not ascend ends the curve.
fn piecewise_linear(knots: &[[f64; 2]], x: f64) -> f64 {
    let mut y = 0.0;
    let last = knots.len() - 2;
    for (i, segment) in knots.windows(2).enumerate() {
        let &[[x0, y0], [x1, y1]] = segment else { break };
        if !(x0 < x1 && y0 <= y1) {
            break;
        }
        if (x0 <= x && x <= x1) || (i == 0 && x < x0) || (i == last && x > x1) {
            y = if y0 == y1 {
                y0
            } else if x0 == 0.0 {
                (y1 - y0) / x1 * x + y0
            } else {
                let slope = (y1 - y0) / (x1 - x0);
                slope * x + (y0 - x0 * slope)
            };
        }
    }
    y
}
