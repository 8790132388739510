// SPDX-License-Identifier: MPL-2.0

//! Features by name: the extractor and options that yield them, and the key under which they are reported.

use super::extractor::Extractor;
use super::options::OptionError;

/// Returns the names of all extractors.
pub fn names() -> String {
    let mut names: Vec<_> = Extractor::all().map(|extractor| extractor.name()).collect();
    names.sort_unstable();
    names.join(", ")
}

/// Reasons why a feature is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureError {
    /// There is no feature of this name.
    #[error("the feature {0} is not supported; supported are those of {list}", list = names())]
    Unsupported(String),
    /// The feature requires an option that is off.
    #[error("the feature {feature} needs the option {option}")]
    Disabled {
        /// Its name.
        feature: &'static str,
        /// The required option.
        option: &'static str,
    },
    /// An option has an invalid value.
    #[error("the option {0}")]
    Option(#[from] OptionError),
}

/// A number per frame: its extractor and its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    /// The extractor that computes it, with options.
    pub extractor: Extractor,
    /// Its index among all features of the extractor.
    pub output: usize,
    /// Name in libvmaf's logs: the short feature name and the options that differ from their defaults, as in
    /// `integer_vif_scale0_egl_1`. Features with equal keys are the same feature.
    pub key: String,
}

impl Feature {
    /// Finds a feature by its name in a model (`VMAF_integer_feature_adm2_score`) or its short name (`integer_adm2`).
    /// Like libvmaf, ignores options that its extractor does not have.
    pub fn resolve<'a>(
        name: &str,
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, FeatureError> {
        let Some((mut extractor, output)) = Extractor::yielding(name) else {
            return Err(FeatureError::Unsupported(name.to_string()));
        };
        for (option, text) in options {
            extractor.set(option, text)?;
        }
        if let Some(option) = extractor.lacks(output) {
            return Err(FeatureError::Disabled { feature: extractor.feature(output), option });
        }
        let key = extractor.key(output);
        Ok(Self { extractor, output, key })
    }
}

impl Extractor {
    /// Returns the features that the options of this extractor request; those with pixel work of their own only if
    /// `costly`.
    pub fn features(&self, costly: bool) -> Vec<Feature> {
        let yields = |output: &usize| (costly || !self.is_costly(*output)) && self.lacks(*output).is_none();
        let feature = |output| Feature { extractor: self.clone(), output, key: self.key(output) };
        (0..self.names().len()).filter(yields).map(feature).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::vif::VifOptions;

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
    fn cambi_has_names_of_its_own() {
        let v1 = [
            ("cambi_high_res_speedup", "1080"),
            ("cambi_vis_lum_threshold", "0.06"),
            ("cambi_max_val", "17"),
        ];
        assert_eq!(key("Cambi_feature_cambi_score", &v1), "cambi_hrs_1080_cmxv_17_vlt_0.06");
        assert_eq!(key("cambi", &[("cambi_eotf", "pq"), ("full_ref", "true")]), "cambi_ceot_pq");
        assert_eq!(key("cambi_source", &v1), "cambi_source");

        let keys = |name: &str| {
            let extractor = Feature::resolve(name, []).unwrap().extractor;
            extractor.features(false).into_iter().map(|feature| feature.key).collect::<Vec<_>>()
        };
        assert_eq!(keys("cambi"), ["cambi"]);
        assert_eq!(keys("cambi_full_reference"), ["cambi", "cambi_source", "cambi_full_reference"]);
    }

    #[test]
    fn keys_of_speed_chroma_are_those_of_libvmaf() {
        let v1 = [
            ("speed_weight_var_mode", "5"),
            ("speed_nn_floor", "0.1"),
            ("speed_sigma_nn", "0.19"),
            ("speed_max_val", "45"),
            ("speed_kernelscale", "1.0"),
        ];
        let uv = "Speed_chroma_feature_speed_chroma_uv_score";
        assert_eq!(key(uv, &v1), "speed_chroma_uv_mxv_45_nnf_0.1_snn_0.19_wvm_5");
        let prescaled =
            [&v1[..], &[("speed_prescale", "0.6"), ("speed_prescale_method", "bilinear")]].concat();
        assert_eq!(key(uv, &prescaled), "speed_chroma_uv_mxv_45_nnf_0.1_ps_0.6_psm_bilinear_snn_0.19_wvm_5");
        let error = Feature::resolve(uv, [("speed_prescale_method", "cubic")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the option speed_prescale_method is `cubic`, but must be one of nearest, bilinear, bicubic, lanczos4"
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
        assert_eq!(feature.output, 3);
        let options = VifOptions { enhn_gain_limit: 1.5, ..Default::default() };
        assert_eq!(feature.extractor, Extractor::with(options));
    }

    #[test]
    fn unknown_features_and_bad_options_are_refused() {
        for name in ["Cambi_feature_banding_score", "VMAF_feature_adm4_score", "VMAF_integer_feature_", ""] {
            let error = Feature::resolve(name, []).unwrap_err();
            assert_eq!(error, FeatureError::Unsupported(name.to_string()));
        }
        let error = Feature::resolve("integer_adm2", [("adm_enhn_gain_limit", "0.5")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the option adm_enhn_gain_limit is `0.5`, but must be a number from 1 to 100"
        );
    }

    #[test]
    fn options_decide_what_an_extractor_yields() {
        let keys = |name, options: &[(&str, &str)]| -> Vec<String> {
            let feature = Feature::resolve(name, options.iter().copied()).unwrap();
            feature.extractor.features(false).into_iter().map(|feature| feature.key).collect()
        };
        assert_eq!(keys("psnr_y", &[]), ["psnr_y", "psnr_cb", "psnr_cr"]);
        assert_eq!(
            keys("psnr_y", &[("enable_chroma", "false"), ("enable_mse", "true")]),
            ["psnr_y", "mse_y"]
        );
        assert_eq!(keys("float_ssim", &[]), ["float_ssim"]);
        let lcs = [("enable_lcs", "true"), ("enable_db", "true"), ("scale", "2")];
        assert_eq!(keys("float_ssim", &lcs), ["float_ssim", "float_ssim_l", "float_ssim_c", "float_ssim_s"]);
        assert_eq!(keys("float_ms_ssim", &[("enable_lcs", "true")]).len(), 16);
        assert_eq!(keys("psnr_hvs", &[]), ["psnr_hvs_y", "psnr_hvs_cb", "psnr_hvs_cr", "psnr_hvs"]);
        assert_eq!(keys("ciede2000", &[]), ["ciede2000"]);
        for (name, option) in [("mse_y", "enable_mse"), ("float_ssim_c", "enable_lcs")] {
            let error = Feature::resolve(name, []).unwrap_err();
            assert_eq!(error.to_string(), format!("the feature {name} needs the option {option}"));
        }
    }
}
