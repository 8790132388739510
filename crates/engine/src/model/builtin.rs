// SPDX-License-Identifier: MPL-2.0

//! The built-in models. Netflix trained them (BSD-2-Clause-Patent); see `models/README.md`.

use std::borrow::Cow;

/// A model file, and options that are merged into those of all its features.
pub(super) struct Builtin {
    name: &'static str,
    json: &'static str,
    pub options: &'static [(&'static str, &'static str)],
    /// It reads the floating-point features of the same names.
    float: bool,
}

impl Builtin {
    /// Returns the text of the model file.
    pub fn json(&self) -> Cow<'static, str> {
        match self.float {
            true => self.json.replace("VMAF_integer_feature_", "VMAF_feature_").into(),
            false => self.json.into(),
        }
    }
}

const fn builtin(
    name: &'static str,
    json: &'static str,
    options: &'static [(&'static str, &'static str)],
) -> Builtin {
    Builtin { name, json, options, float: false }
}

/// The same model of floating-point features: libvmaf's file differs in their names only.
const fn float(name: &'static str, of: Builtin) -> Builtin {
    Builtin { name, float: true, ..of }
}

macro_rules! file {
    ($name:literal) => {
        include_str!(concat!("../../models/", $name, ".json"))
    };
}

/// Options of the `neg` models: enhancement does not raise the score.
const NO_GAIN: &[(&str, &str)] = &[("adm_enhn_gain_limit", "1"), ("vif_enhn_gain_limit", "1")];
/// Options of the `hfr` models: motion as at half the frame rate.
const HIGH_FRAME_RATE: &[(&str, &str)] =
    &[("motion_five_frame_window", "true"), ("motion_moving_average", "true")];

/// All built-in models. The names are libvmaf's.
static ALL: [Builtin; 17] = [
    builtin("vmaf_v0.6.1", file!("vmaf_v0.6.1"), &[]),
    builtin("vmaf_v0.6.1neg", file!("vmaf_v0.6.1neg"), &[]),
    builtin("vmaf_4k_v0.6.1", file!("vmaf_4k_v0.6.1"), &[]),
    builtin("vmaf_4k_v0.6.1neg", file!("vmaf_4k_v0.6.1"), NO_GAIN),
    builtin("vmaf_b_v0.6.3", file!("vmaf_b_v0.6.3"), &[]),
    float("vmaf_float_v0.6.1", builtin("", file!("vmaf_v0.6.1"), &[])),
    float("vmaf_float_v0.6.1neg", builtin("", file!("vmaf_v0.6.1"), NO_GAIN)),
    float("vmaf_float_4k_v0.6.1", builtin("", file!("vmaf_4k_v0.6.1"), &[])),
    float("vmaf_float_b_v0.6.3", builtin("", file!("vmaf_b_v0.6.3"), &[])),
    builtin("vmaf_v1.0.16_3d0h", file!("vmaf_v1.0.16_3d0h"), &[]),
    builtin("vmaf_v1.0.16_5d0h", file!("vmaf_v1.0.16_5d0h"), &[]),
    builtin("vmaf_v1.0.16_1d5h_2160", file!("vmaf_v1.0.16_1d5h_2160"), &[]),
    builtin("vmaf_v1.0.16_3d0h_2160", file!("vmaf_v1.0.16_3d0h_2160"), &[]),
    builtin("vmaf_v1.0.16_hfr_3d0h", file!("vmaf_v1.0.16_3d0h"), HIGH_FRAME_RATE),
    builtin("vmaf_v1.0.16_hfr_5d0h", file!("vmaf_v1.0.16_5d0h"), HIGH_FRAME_RATE),
    builtin("vmaf_v1.0.16_hfr_1d5h_2160", file!("vmaf_v1.0.16_1d5h_2160"), HIGH_FRAME_RATE),
    builtin("vmaf_v1.0.16_hfr_3d0h_2160", file!("vmaf_v1.0.16_3d0h_2160"), HIGH_FRAME_RATE),
];

/// Returns the names of the built-in models.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|builtin| builtin.name)
}

/// Finds the built-in model with this name.
pub(super) fn find(name: &str) -> Option<&'static Builtin> {
    ALL.iter().find(|builtin| builtin.name == name)
}
