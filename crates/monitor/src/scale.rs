// SPDX-License-Identifier: MPL-2.0

//! Scales of the values that scores, alarms and charts follow.

use score::{Metric, Unit};
use serde::Serialize;

/// Usual range and unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Scale {
    /// Lower end of charts.
    pub low: f64,
    /// Upper end of charts.
    pub high: f64,
    /// Empty for values without a unit.
    pub unit: &'static str,
}

impl Scale {
    /// Returns the scale of a value: a model, a key of a feature, or `cvvdp`.
    pub fn of(value: &str) -> Self {
        let unit = match value {
            _ if is_model(value) => Unit::Score,
            // The figure of all frames, with the suffix of its options.
            _ if value.starts_with("cvvdp") => Unit::Jod,
            _ => Metric::feature(value).unit,
        };
        match unit {
            Unit::Jod | Unit::Still => Self { low: 0.0, high: 10.0, unit: "JOD" },
            Unit::Decibel => Self { low: 20.0, high: 60.0, unit: "dB" },
            Unit::Share => Self { low: 0.0, high: 1.0, unit: "" },
            Unit::Score | Unit::Amount => Self { low: 0.0, high: 100.0, unit: "" },
        }
    }
}

fn is_model(value: &str) -> bool {
    value.is_empty() || value.contains("vmaf") || value.ends_with(".json")
}

/// Returns the heading of a value in lines and tables.
pub fn title(value: &str) -> &str {
    if is_model(value) { "VMAF" } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_units() {
        for (value, unit, high, heading) in [
            ("vmaf_v0.6.1", "", 100.0, "VMAF"),
            ("/models/mine.json", "", 100.0, "VMAF"),
            ("xpsnr", "dB", 60.0, "xpsnr"),
            ("psnr_y", "dB", 60.0, "psnr_y"),
            ("cvvdp", "JOD", 10.0, "cvvdp"),
            ("ssimulacra2", "", 100.0, "ssimulacra2"),
            ("ssim", "", 1.0, "ssim"),
            ("float_ms_ssim", "", 1.0, "float_ms_ssim"),
            ("ciede2000", "dB", 60.0, "ciede2000"),
        ] {
            let scale = Scale::of(value);
            assert_eq!((scale.unit, scale.high, title(value)), (unit, high, heading), "{value}");
        }
    }
}
