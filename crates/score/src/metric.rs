// SPDX-License-Identifier: MPL-2.0

//! Metrics: the units in which their figures are pooled, printed and drawn.

use engine::metrics::jod_of_frame;
use serde::Serialize;

/// Unit of a metric's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Points, of which 100 are the best: VMAF and SSIMULACRA2, which may be negative.
    Score,
    /// Decibels.
    Decibel,
    /// Just-objectionable differences of all frames together, of which 10 are the best; a frame has a distortion.
    Jod,
    /// Just-objectionable differences of each frame as a still picture.
    Still,
    /// An amount of damage or movement: 0 is the least.
    Amount,
    /// A number near 1 for equal pictures.
    Share,
}

/// A model or a feature, as its figures are shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Metric {
    /// Name for users.
    pub name: String,
    /// Unit of its figures.
    pub unit: Unit,
}

impl Metric {
    /// Returns a model.
    pub fn model(name: &str) -> Self {
        Self { name: name.to_owned(), unit: Unit::Score }
    }

    /// Returns a feature by its name in messages.
    pub fn feature(key: &str) -> Self {
        let begins = |with: &[&str]| with.iter().any(|with| key.starts_with(with));
        if let Some(suffix) = key.strip_prefix(DISTORTION) {
            return Self { name: format!("{JOD}{suffix}"), unit: Unit::Jod };
        }
        let unit = if begins(&["cvvdp_still"]) {
            Unit::Still
        } else if begins(&["psnr", "xpsnr", "float_psnr", "float_ansnr", "float_anpsnr", "ciede"]) {
            Unit::Decibel
        } else if begins(&["ssimulacra2"]) {
            Unit::Score
        } else if begins(&[
            "cambi",
            "mse",
            "speed_chroma",
            "aim",
            "speed_temporal",
            "float_moment",
            "motion",
            "integer_aim",
            "integer_motion",
            "VMAF_integer_feature_motion",
        ]) {
            Unit::Amount
        } else {
            Unit::Share
        };
        Self { name: key.to_owned(), unit }
    }

    /// Returns the name of the figure of all frames together, if it is no mean.
    pub fn aggregate(&self) -> String {
        match self.unit {
            Unit::Jod => self.name.clone(),
            _ => format!("a{}", self.name),
        }
    }

    /// Converts a frame's value to the unit.
    pub fn of_frame(&self, value: f64) -> f64 {
        if self.unit == Unit::Jod { jod_of_frame(value) } else { value }
    }

    /// Returns true if a higher value is a worse one.
    pub fn more_is_worse(&self) -> bool {
        self.unit == Unit::Amount
    }
}

impl Unit {
    /// Returns the number of decimals to print.
    pub fn decimals(self) -> usize {
        match self {
            Self::Score | Self::Decibel => 2,
            Self::Jod | Self::Still | Self::Amount => 3,
            Self::Share => 4,
        }
    }

    /// Returns the figure for which a bar has its full length.
    pub fn full(self) -> Option<f64> {
        match self {
            Self::Score => Some(100.0),
            Self::Decibel => Some(60.0),
            Self::Jod | Self::Still => Some(10.0),
            Self::Share => Some(1.0),
            Self::Amount => None,
        }
    }
}

/// Name of ColorVideoVDP's figure of all frames together, and of its distortion of a frame.
const JOD: &str = "cvvdp";
const DISTORTION: &str = "cvvdp_q";

#[cfg(test)]
mod tests {
    use engine::metrics::feature_list;

    use super::*;

    #[test]
    fn every_metric_has_its_unit() {
        let list = "psnr=enable_mse=true;xpsnr;ssimulacra2;cvvdp;cvvdp=still=true;float_ssim;float_ms_ssim;psnr_hvs;ciede;cambi;speed_chroma;adm;float_adm;vif;motion;\
                    float_psnr;float_ansnr;float_moment;float_motion;speed_temporal";
        let features = feature_list::parse(list, &[]).unwrap().into_iter().flat_map(|of| of.features(true));
        for key in features.map(|feature| feature.key) {
            let expected = match key.as_str() {
                "ssimulacra2" => Unit::Score,
                "cvvdp_q" => Unit::Jod,
                "cvvdp_still" => Unit::Still,
                _ if key.contains("psnr") || key == "float_ansnr" || key == "ciede2000" => Unit::Decibel,
                _ if key.contains("ssim") || key.contains("adm") || key.contains("vif") => Unit::Share,
                _ => Unit::Amount,
            };
            assert_eq!(Metric::feature(&key).unit, expected, "{key}");
        }
    }

    #[test]
    fn aggregates_have_the_suffix_of_their_feature() {
        let names = |key: &str| (Metric::feature(key).name, Metric::feature(key).aggregate());
        assert_eq!(names("psnr_y"), ("psnr_y".into(), "apsnr_y".into()));
        assert_eq!(names("xpsnr_cb_inf_1"), ("xpsnr_cb_inf_1".into(), "axpsnr_cb_inf_1".into()));
        assert_eq!(names("cvvdp_q_x"), ("cvvdp_x".into(), "cvvdp_x".into()));
    }

    #[test]
    fn jods_fall_from_ten() {
        let of_frame = |q| Metric::feature("cvvdp_q").of_frame(q);
        assert!(of_frame(0.0) == 10.0 && of_frame(1.0) < 10.0 && of_frame(20.0) < of_frame(1.0));
    }
}
