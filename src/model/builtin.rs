// SPDX-License-Identifier: MPL-2.0

//! The models that come with the plugin. Trained by Netflix, BSD-2-Clause-Patent: see `models/README.md`.

/// Names of the built-in models, those of libvmaf.
pub const NAMES: [&str; 5] =
    ["vmaf_v0.6.1", "vmaf_v0.6.1neg", "vmaf_4k_v0.6.1", "vmaf_4k_v0.6.1neg", "vmaf_b_v0.6.3"];

/// A model file, and options to merge into those of all its features.
pub(super) struct Builtin {
    pub json: &'static str,
    pub options: &'static [(&'static str, &'static str)],
}

/// The model of a name in [`NAMES`].
pub(super) fn find(name: &str) -> Option<Builtin> {
    const NO_GAIN: &[(&str, &str)] = &[("adm_enhn_gain_limit", "1"), ("vif_enhn_gain_limit", "1")];
    const UHD: &str = include_str!("../../models/vmaf_4k_v0.6.1.json");
    let (json, options): (_, &[_]) = match name {
        "vmaf_v0.6.1" => (include_str!("../../models/vmaf_v0.6.1.json"), &[]),
        "vmaf_v0.6.1neg" => (include_str!("../../models/vmaf_v0.6.1neg.json"), &[]),
        "vmaf_4k_v0.6.1" => (UHD, &[]),
        "vmaf_4k_v0.6.1neg" => (UHD, NO_GAIN),
        "vmaf_b_v0.6.3" => (include_str!("../../models/vmaf_b_v0.6.3.json"), &[]),
        _ => return None,
    };
    Some(Builtin { json, options })
}
