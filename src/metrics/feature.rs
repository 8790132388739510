// SPDX-License-Identifier: MPL-2.0

//! Features by name: which extractor yields them under which options, and the key they are reported under.

use super::adm::AdmOptions;
use super::motion::MotionOptions;
use super::options::{OptionError, Options};
use super::psnr::PsnrOptions;
use super::vif::VifOptions;

/// A metric with its options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extractor {
    Adm(AdmOptions),
    Motion(MotionOptions),
    Psnr(PsnrOptions),
    Vif(VifOptions),
}

impl Extractor {
    /// The extractor that libvmaf calls by this name, with default options.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|extractor| extractor.name() == name)
    }

    /// All extractors with default options.
    pub fn all() -> impl Iterator<Item = Self> {
        let at = |i: usize| NAMES[i].1.extractor();
        let first = move |i: &usize| !(0..*i).any(|other| at(other).name() == at(*i).name());
        (0..NAMES.len()).filter(first).map(at)
    }

    /// Its name in libvmaf, and in the property `features`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Adm(_) => "adm",
            Self::Motion(_) => "motion",
            Self::Psnr(_) => "psnr",
            Self::Vif(_) => "vif",
        }
    }

    /// Names of its options.
    pub fn options(&self) -> Vec<&'static str> {
        match self {
            Self::Adm(_) => AdmOptions::names(),
            Self::Motion(_) => MotionOptions::names(),
            Self::Psnr(_) => PsnrOptions::names(),
            Self::Vif(_) => VifOptions::names(),
        }
    }

    /// Both yield the same features under the same names. As in libvmaf, options that names do not mention
    /// make no difference: whoever asks first decides on them.
    pub fn is_same(&self, other: &Self) -> bool {
        self.name() == other.name() && self.suffix() == other.suffix()
    }

    /// Sets an option from text; `false` when this extractor has no option of that name.
    pub fn set(&mut self, name: &str, text: &str) -> Result<bool, OptionError> {
        match self {
            Self::Adm(options) => options.set(name, text),
            Self::Motion(options) => options.set(name, text),
            Self::Psnr(options) => options.set(name, text),
            Self::Vif(options) => options.set(name, text),
        }
    }

    /// What libvmaf appends to the names of all features of this extractor, see [`Options::suffix`].
    pub fn suffix(&self) -> String {
        match self {
            Self::Adm(options) => options.suffix(),
            Self::Motion(options) => options.suffix(),
            Self::Psnr(options) => options.suffix(),
            Self::Vif(options) => options.suffix(),
        }
    }

    /// What this extractor yields: everything, less `aim` and `adm3` unless `aim` says they are computed.
    pub fn features(&self, aim: bool) -> Vec<Feature> {
        let mine =
            |output: Output| std::mem::discriminant(&output.extractor()) == std::mem::discriminant(self);
        let computed = |output| aim || !matches!(output, Output::Aim | Output::Adm3);
        let feature = |&(name, output): &(&str, Output)| Feature {
            extractor: *self,
            output,
            key: format!("{name}{}", self.suffix()),
        };
        NAMES.iter().filter(|(_, output)| mine(*output) && computed(*output)).map(feature).collect()
    }
}

/// One of the numbers that an extractor yields for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Adm2,
    Aim,
    Adm3,
    /// Scale 0..=3.
    AdmScale(usize),
    MotionSad,
    Motion2,
    Motion3,
    PsnrY,
    PsnrCb,
    PsnrCr,
    /// Scale 0..=3.
    VifScale(usize),
}

impl Output {
    /// The extractor that yields this output, with default options.
    pub fn extractor(self) -> Extractor {
        match self {
            Self::Adm2 | Self::Aim | Self::Adm3 | Self::AdmScale(_) => Extractor::Adm(Default::default()),
            Self::MotionSad | Self::Motion2 | Self::Motion3 => Extractor::Motion(Default::default()),
            Self::PsnrY | Self::PsnrCb | Self::PsnrCr => Extractor::Psnr(Default::default()),
            Self::VifScale(_) => Extractor::Vif(Default::default()),
        }
    }
}

/// Reported names without option suffix. `integer_X` is called `VMAF_integer_feature_X_score` in models.
const NAMES: [(&str, Output); 17] = [
    ("integer_adm2", Output::Adm2),
    ("integer_aim", Output::Aim),
    ("integer_adm3", Output::Adm3),
    ("integer_adm_scale0", Output::AdmScale(0)),
    ("integer_adm_scale1", Output::AdmScale(1)),
    ("integer_adm_scale2", Output::AdmScale(2)),
    ("integer_adm_scale3", Output::AdmScale(3)),
    // The one long name for which libvmaf has no short form.
    ("VMAF_integer_feature_motion_sad_score", Output::MotionSad),
    ("integer_motion2", Output::Motion2),
    ("integer_motion3", Output::Motion3),
    ("psnr_y", Output::PsnrY),
    ("psnr_cb", Output::PsnrCb),
    ("psnr_cr", Output::PsnrCr),
    ("integer_vif_scale0", Output::VifScale(0)),
    ("integer_vif_scale1", Output::VifScale(1)),
    ("integer_vif_scale2", Output::VifScale(2)),
    ("integer_vif_scale3", Output::VifScale(3)),
];

/// Why a feature cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureError {
    #[error("the feature {0} is not supported yet; supported are those of integer ADM, motion, VIF and PSNR")]
    Unsupported(String),
    #[error("the option {0}")]
    Option(#[from] OptionError),
}

/// A number per frame: what computes it, and what it is called.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    pub extractor: Extractor,
    pub output: Output,
    /// Name in libvmaf's logs: the short feature name and the options that differ from their defaults,
    /// as in `integer_vif_scale0_egl_1`. Features with equal keys are the same feature.
    pub key: String,
}

impl Feature {
    /// Finds a feature by its name in a model (`VMAF_integer_feature_adm2_score`) or its short name
    /// (`integer_adm2`). Options that its extractor does not have are ignored, as libvmaf ignores them.
    pub fn resolve<'a>(
        name: &str,
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, FeatureError> {
        let internal = name.strip_prefix("VMAF_integer_feature_").and_then(|s| s.strip_suffix("_score"));
        let named = |short: &str| {
            short == name || internal.is_some_and(|stem| short.strip_prefix("integer_") == Some(stem))
        };
        let Some(&(short, output)) = NAMES.iter().find(|(short, _)| named(short)) else {
            return Err(FeatureError::Unsupported(name.to_string()));
        };
        let mut extractor = output.extractor();
        for (option, text) in options {
            extractor.set(option, text)?;
        }
        let key = format!("{short}{}", extractor.suffix());
        Ok(Self { extractor, output, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, options: &[(&str, &str)]) -> String {
        Feature::resolve(name, options.iter().copied()).unwrap().key
    }

    #[test]
    fn keys_are_those_of_libvmaf() {
        assert_eq!(key("VMAF_integer_feature_adm2_score", &[]), "integer_adm2");
        assert_eq!(key("integer_adm2", &[("adm_enhn_gain_limit", "1")]), "integer_adm2_egl_1");
        assert_eq!(
            key("VMAF_integer_feature_vif_scale0_score", &[("vif_enhn_gain_limit", "1.0")]),
            "integer_vif_scale0_egl_1"
        );
        assert_eq!(
            key("integer_vif_scale0", &[("vif_skip_scale0", "true"), ("vif_enhn_gain_limit", "1")]),
            "integer_vif_scale0_egl_1_ssclz"
        );
        assert_eq!(key("integer_motion2", &[("motion_force_zero", "true")]), "integer_motion2_force_0");
        let hfr = [
            ("motion_max_val", "18"),
            ("motion_moving_average", "true"),
            ("motion_five_frame_window", "true"),
        ];
        assert_eq!(key("VMAF_integer_feature_motion3_score", &hfr), "integer_motion3_mffw_mmxv_18_mma");
        assert_eq!(
            key("VMAF_integer_feature_motion_sad_score", &hfr),
            "VMAF_integer_feature_motion_sad_score_mffw_mmxv_18_mma"
        );
        assert_eq!(
            key(
                "VMAF_integer_feature_adm3_score",
                &[
                    ("adm_ref_display_height", "2160"),
                    ("adm_norm_view_dist", "1.5"),
                    ("adm_csf_mode", "2"),
                    ("adm_dlm_weight", "0.7"),
                    ("adm_enhn_gain_limit", "1"),
                    ("adm_noise_weight", "0.02"),
                    ("adm_min_val", "0.5"),
                ]
            ),
            "integer_adm3_csf_2_dlmw_0.7_egl_1_min_0.5_nw_0.02_nvd_1.5_rdh_2160"
        );
    }

    #[test]
    fn defaults_unknown_and_unnamed_options_leave_the_key_alone() {
        let plain = [("adm_enhn_gain_limit", "100"), ("cambi_max_val", "17"), ("adm_skip_aim", "true")];
        assert_eq!(key("integer_adm2", &plain), "integer_adm2");
        assert_eq!(key("psnr_y", &[("reduced_hbd_peak", "true")]), "psnr_y");
    }

    #[test]
    fn options_reach_the_extractor() {
        let feature = Feature::resolve("integer_vif_scale3", [("vif_enhn_gain_limit", "1.5")]).unwrap();
        assert_eq!(feature.output, Output::VifScale(3));
        assert_eq!(
            feature.extractor,
            Extractor::Vif(VifOptions { enhn_gain_limit: 1.5, ..Default::default() })
        );
    }

    #[test]
    fn unknown_features_and_bad_options_are_refused() {
        for name in ["Cambi_feature_cambi_score", "VMAF_feature_adm2_score", "VMAF_integer_feature_", ""] {
            let error = Feature::resolve(name, []).unwrap_err();
            assert_eq!(error, FeatureError::Unsupported(name.to_string()));
        }
        let error = Feature::resolve("integer_adm2", [("adm_enhn_gain_limit", "0.5")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the option adm_enhn_gain_limit is `0.5`, but must be a number from 1 to 100"
        );
    }
}
