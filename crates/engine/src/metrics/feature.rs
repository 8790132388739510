// SPDX-License-Identifier: MPL-2.0

//! Features by name: which extractor yields them under which options, and the key they are reported under.

use super::adm::AdmOptions;
use super::cambi::CambiOptions;
use super::ciede::CiedeOptions;
use super::motion::MotionOptions;
use super::options::{OptionError, Options};
use super::psnr::PsnrOptions;
use super::psnr_hvs::PsnrHvsOptions;
use super::speed::SpeedOptions;
use super::ssim::{MsSsimOptions, SsimOptions};
use super::vif::VifOptions;

/// A metric with its options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extractor {
    Adm(AdmOptions),
    Cambi(CambiOptions),
    Ciede(CiedeOptions),
    Motion(MotionOptions),
    MsSsim(MsSsimOptions),
    Psnr(PsnrOptions),
    PsnrHvs(PsnrHvsOptions),
    Speed(SpeedOptions),
    Ssim(SsimOptions),
    Vif(VifOptions),
}

/// The same for the options of every extractor.
macro_rules! with_options {
    ($extractor:expr, $options:ident => $value:expr) => {
        match $extractor {
            Extractor::Adm($options) => $value,
            Extractor::Cambi($options) => $value,
            Extractor::Ciede($options) => $value,
            Extractor::Motion($options) => $value,
            Extractor::MsSsim($options) => $value,
            Extractor::Psnr($options) => $value,
            Extractor::PsnrHvs($options) => $value,
            Extractor::Speed($options) => $value,
            Extractor::Ssim($options) => $value,
            Extractor::Vif($options) => $value,
        }
    };
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
        with_options!(self, options => options.extractor())
    }

    /// Names of its options.
    pub fn options(&self) -> Vec<&'static str> {
        with_options!(self, options => options.names())
    }

    /// Both yield the same features under the same names. As in libvmaf, options that names do not mention
    /// make no difference: whoever asks first decides on them.
    pub fn is_same(&self, other: &Self) -> bool {
        self.name() == other.name() && self.suffix() == other.suffix()
    }

    /// Sets an option from text; `false` when this extractor has no option of that name.
    pub fn set(&mut self, name: &str, text: &str) -> Result<bool, OptionError> {
        with_options!(self, options => options.set(name, text))
    }

    /// What libvmaf appends to the names of all features of this extractor, see [`Options::suffix`].
    pub fn suffix(&self) -> String {
        with_options!(self, options => options.suffix())
    }

    /// The option that is off and without which this extractor does not yield an output of its own.
    fn lacks(&self, output: Output) -> Option<&'static str> {
        let needs = |option, on: bool| (!on).then_some(option);
        match (self, output) {
            (Self::Cambi(options), Output::CambiSource | Output::CambiFullReference) => {
                needs("full_ref", options.full_ref)
            }
            (Self::Psnr(options), Output::Psnr(1..)) => needs("enable_chroma", options.enable_chroma),
            (Self::Psnr(options), Output::Mse(0)) => needs("enable_mse", options.enable_mse),
            (Self::Psnr(options), Output::Mse(_)) => {
                needs("enable_chroma", options.enable_chroma).or(needs("enable_mse", options.enable_mse))
            }
            (Self::Ssim(options), Output::SsimTerm(_)) => needs("enable_lcs", options.enable_lcs),
            (Self::MsSsim(options), Output::MsSsimTerm { .. }) => needs("enable_lcs", options.enable_lcs),
            _ => None,
        }
    }

    /// What this extractor yields: everything that its options ask for, less `aim` and `adm3` unless `aim` says they
    /// are computed.
    pub fn features(&self, aim: bool) -> Vec<Feature> {
        let mine =
            |output: Output| std::mem::discriminant(&output.extractor()) == std::mem::discriminant(self);
        let computed =
            |output| (aim || !matches!(output, Output::Aim | Output::Adm3)) && self.lacks(output).is_none();
        let feature = |&(name, output): &(&str, Output)| Feature {
            extractor: *self,
            output,
            key: self.key(name, output),
        };
        NAMES.iter().filter(|(_, output)| mine(*output) && computed(*output)).map(feature).collect()
    }

    /// The key of a feature of this extractor, from its name in [`NAMES`].
    fn key(&self, name: &str, output: Output) -> String {
        match output {
            // libvmaf never mentions options here.
            Output::CambiSource | Output::CambiFullReference => name.to_string(),
            _ => format!("{name}{}", self.suffix()),
        }
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
    Cambi,
    CambiSource,
    CambiFullReference,
    Ciede2000,
    MotionSad,
    Motion2,
    Motion3,
    MsSsim,
    /// The mean of the luminance, contrast or structure term (0..=2) of a scale (0..=4).
    MsSsimTerm {
        term: usize,
        scale: usize,
    },
    /// Mean squared error of Y, Cb or Cr (0..=2).
    Mse(usize),
    /// Y, Cb or Cr (0..=2).
    Psnr(usize),
    PsnrHvs,
    /// Y, Cb or Cr (0..=2).
    PsnrHvsPlane(usize),
    SpeedU,
    SpeedV,
    SpeedUv,
    Ssim,
    /// The mean of the luminance, contrast or structure term (0..=2).
    SsimTerm(usize),
    /// Scale 0..=3.
    VifScale(usize),
}

impl Output {
    /// The extractor that yields this output, with default options as far as these do.
    pub fn extractor(self) -> Extractor {
        match self {
            Self::Adm2 | Self::Aim | Self::Adm3 | Self::AdmScale(_) => Extractor::Adm(Default::default()),
            Self::Cambi => Extractor::Cambi(Default::default()),
            Self::CambiSource | Self::CambiFullReference => {
                Extractor::Cambi(CambiOptions { full_ref: true, ..Default::default() })
            }
            Self::Ciede2000 => Extractor::Ciede(Default::default()),
            Self::MotionSad | Self::Motion2 | Self::Motion3 => Extractor::Motion(Default::default()),
            Self::MsSsim | Self::MsSsimTerm { .. } => Extractor::MsSsim(Default::default()),
            Self::Mse(_) | Self::Psnr(_) => Extractor::Psnr(Default::default()),
            Self::PsnrHvs | Self::PsnrHvsPlane(_) => Extractor::PsnrHvs(Default::default()),
            Self::SpeedU | Self::SpeedV | Self::SpeedUv => Extractor::Speed(Default::default()),
            Self::Ssim | Self::SsimTerm(_) => Extractor::Ssim(Default::default()),
            Self::VifScale(_) => Extractor::Vif(Default::default()),
        }
    }
}

/// Reported names without option suffix. `integer_X` is called `VMAF_integer_feature_X_score` in models, `cambi` is
/// [`CAMBI`], and `speed_X` is `Speed_chroma_feature_speed_X_score`.
const NAMES: [(&str, Output); 51] = [
    ("integer_adm2", Output::Adm2),
    ("integer_aim", Output::Aim),
    ("integer_adm3", Output::Adm3),
    ("integer_adm_scale0", Output::AdmScale(0)),
    ("integer_adm_scale1", Output::AdmScale(1)),
    ("integer_adm_scale2", Output::AdmScale(2)),
    ("integer_adm_scale3", Output::AdmScale(3)),
    ("cambi", Output::Cambi),
    ("cambi_source", Output::CambiSource),
    ("cambi_full_reference", Output::CambiFullReference),
    // The one long name for which libvmaf has no short form.
    ("VMAF_integer_feature_motion_sad_score", Output::MotionSad),
    ("integer_motion2", Output::Motion2),
    ("integer_motion3", Output::Motion3),
    ("ciede2000", Output::Ciede2000),
    ("float_ms_ssim", Output::MsSsim),
    ("float_ms_ssim_l_scale0", Output::MsSsimTerm { term: 0, scale: 0 }),
    ("float_ms_ssim_l_scale1", Output::MsSsimTerm { term: 0, scale: 1 }),
    ("float_ms_ssim_l_scale2", Output::MsSsimTerm { term: 0, scale: 2 }),
    ("float_ms_ssim_l_scale3", Output::MsSsimTerm { term: 0, scale: 3 }),
    ("float_ms_ssim_l_scale4", Output::MsSsimTerm { term: 0, scale: 4 }),
    ("float_ms_ssim_c_scale0", Output::MsSsimTerm { term: 1, scale: 0 }),
    ("float_ms_ssim_c_scale1", Output::MsSsimTerm { term: 1, scale: 1 }),
    ("float_ms_ssim_c_scale2", Output::MsSsimTerm { term: 1, scale: 2 }),
    ("float_ms_ssim_c_scale3", Output::MsSsimTerm { term: 1, scale: 3 }),
    ("float_ms_ssim_c_scale4", Output::MsSsimTerm { term: 1, scale: 4 }),
    ("float_ms_ssim_s_scale0", Output::MsSsimTerm { term: 2, scale: 0 }),
    ("float_ms_ssim_s_scale1", Output::MsSsimTerm { term: 2, scale: 1 }),
    ("float_ms_ssim_s_scale2", Output::MsSsimTerm { term: 2, scale: 2 }),
    ("float_ms_ssim_s_scale3", Output::MsSsimTerm { term: 2, scale: 3 }),
    ("float_ms_ssim_s_scale4", Output::MsSsimTerm { term: 2, scale: 4 }),
    ("psnr_y", Output::Psnr(0)),
    ("psnr_cb", Output::Psnr(1)),
    ("psnr_cr", Output::Psnr(2)),
    ("mse_y", Output::Mse(0)),
    ("mse_cb", Output::Mse(1)),
    ("mse_cr", Output::Mse(2)),
    ("psnr_hvs_y", Output::PsnrHvsPlane(0)),
    ("psnr_hvs_cb", Output::PsnrHvsPlane(1)),
    ("psnr_hvs_cr", Output::PsnrHvsPlane(2)),
    ("psnr_hvs", Output::PsnrHvs),
    ("speed_chroma_u", Output::SpeedU),
    ("speed_chroma_v", Output::SpeedV),
    ("speed_chroma_uv", Output::SpeedUv),
    ("float_ssim", Output::Ssim),
    ("float_ssim_l", Output::SsimTerm(0)),
    ("float_ssim_c", Output::SsimTerm(1)),
    ("float_ssim_s", Output::SsimTerm(2)),
    ("integer_vif_scale0", Output::VifScale(0)),
    ("integer_vif_scale1", Output::VifScale(1)),
    ("integer_vif_scale2", Output::VifScale(2)),
    ("integer_vif_scale3", Output::VifScale(3)),
];

/// What models call `cambi`.
const CAMBI: &str = "Cambi_feature_cambi_score";

/// Names of all extractors.
pub fn names() -> String {
    let mut names: Vec<_> = Extractor::all().map(|extractor| extractor.name()).collect();
    names.sort_unstable();
    names.join(", ")
}

/// Why a feature cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureError {
    #[error("the feature {0} is not supported; supported are those of {list}", list = names())]
    Unsupported(String),
    #[error("the feature {feature} needs the option {option}")]
    Disabled { feature: &'static str, option: &'static str },
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
        let speed = name.strip_prefix("Speed_chroma_feature_").and_then(|s| s.strip_suffix("_score"));
        let named = |short: &str| {
            short == name
                || short == "cambi" && name == CAMBI
                || internal.is_some_and(|stem| short.strip_prefix("integer_") == Some(stem))
                || speed.is_some_and(|stem| short.starts_with("speed_chroma_") && short == stem)
        };
        let Some(&(short, output)) = NAMES.iter().find(|(short, _)| named(short)) else {
            return Err(FeatureError::Unsupported(name.to_string()));
        };
        let mut extractor = output.extractor();
        for (option, text) in options {
            extractor.set(option, text)?;
        }
        if let Some(option) = extractor.lacks(output) {
            return Err(FeatureError::Disabled { feature: short, option });
        }
        let key = extractor.key(short, output);
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
        assert_eq!(feature.output, Output::VifScale(3));
        assert_eq!(
            feature.extractor,
            Extractor::Vif(VifOptions { enhn_gain_limit: 1.5, ..Default::default() })
        );
    }

    #[test]
    fn unknown_features_and_bad_options_are_refused() {
        for name in ["Cambi_feature_banding_score", "VMAF_feature_adm2_score", "VMAF_integer_feature_", ""] {
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
