// SPDX-License-Identifier: MPL-2.0

//! Scales of the values that scores, alarms and charts follow.

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
        let is = |names: &[&str]| names.iter().any(|name| value.starts_with(name));
        if is(&["cvvdp"]) {
            Self { low: 0.0, high: 10.0, unit: "JOD" }
        } else if is(&["psnr", "xpsnr", "apsnr", "axpsnr"]) {
            Self { low: 20.0, high: 60.0, unit: "dB" }
        } else if is(&["ssim_", "ms_ssim"]) || value == "ssim" {
            Self { low: 0.0, high: 1.0, unit: "" }
        } else {
            Self { low: 0.0, high: 100.0, unit: "" }
        }
    }
}

/// Returns the heading of a value in lines and tables.
pub fn title(value: &str) -> &str {
    let is_model = value.is_empty() || value.contains("vmaf") || value.ends_with(".json");
    if is_model { "VMAF" } else { value }
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
        ] {
            let scale = Scale::of(value);
            assert_eq!((scale.unit, scale.high, title(value)), (unit, high, heading), "{value}");
        }
    }
}
