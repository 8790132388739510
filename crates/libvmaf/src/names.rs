// SPDX-License-Identifier: MPL-2.0

//! Names of scores: those under which they are stored, and the short ones that reports have.

/// Names that begin so and end in `_score` have a short form.
const FAMILIES: [(&str, &str, &[&str]); 5] = [
    (
        "VMAF_integer_feature_",
        "integer_",
        &[
            "adm2",
            "aim",
            "adm3",
            "motion",
            "motion2",
            "motion3",
            "vif_scale0",
            "vif_scale1",
            "vif_scale2",
            "vif_scale3",
        ],
    ),
    (
        "VMAF_feature_",
        "",
        &[
            "adm2",
            "aim",
            "adm3",
            "adm_scale0",
            "adm_scale1",
            "adm_scale2",
            "adm_scale3",
            "motion",
            "motion2",
            "motion3",
            "vif_scale0",
            "vif_scale1",
            "vif_scale2",
            "vif_scale3",
        ],
    ),
    ("Cambi_feature_", "", &["cambi"]),
    ("Speed_chroma_feature_", "", &["speed_chroma_u", "speed_chroma_v", "speed_chroma_uv"]),
    ("Speed_temporal_feature_", "", &["speed_temporal"]),
];

/// Returns the short form of a name, or the name.
pub fn alias(name: &[u8]) -> Vec<u8> {
    let short = FAMILIES.iter().find_map(|(family, prefix, members)| {
        let member = name.strip_prefix(family.as_bytes())?.strip_suffix(b"_score")?;
        members.iter().any(|known| known.as_bytes() == member).then(|| [prefix.as_bytes(), member].concat())
    });
    short.unwrap_or_else(|| name.to_vec())
}

/// Returns the name under which a feature with default options is stored, from its short form.
pub fn stored(short: &str) -> String {
    let long = FAMILIES.iter().find_map(|(family, prefix, members)| {
        let member = short.strip_prefix(prefix)?;
        members.contains(&member).then(|| format!("{family}{member}_score"))
    });
    long.unwrap_or_else(|| short.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_short_and_a_stored_form() {
        for (stored_name, short) in [
            ("VMAF_integer_feature_adm2_score", "integer_adm2"),
            ("VMAF_integer_feature_vif_scale3_score", "integer_vif_scale3"),
            ("VMAF_integer_feature_motion_score", "integer_motion"),
            ("VMAF_feature_adm_scale0_score", "adm_scale0"),
            ("VMAF_feature_vif_scale0_score", "vif_scale0"),
            ("Cambi_feature_cambi_score", "cambi"),
            ("Speed_chroma_feature_speed_chroma_uv_score", "speed_chroma_uv"),
            ("VMAF_integer_feature_motion_sad_score", "VMAF_integer_feature_motion_sad_score"),
            ("integer_adm_scale0", "integer_adm_scale0"),
            ("VMAF_feature_motion2_score", "motion2"),
            ("cambi_source", "cambi_source"),
            ("psnr_y", "psnr_y"),
        ] {
            assert_eq!(alias(stored_name.as_bytes()), short.as_bytes());
            assert_eq!(stored(short), stored_name);
        }
        assert_eq!(alias(b"VMAF_feature_adm4_score"), b"VMAF_feature_adm4_score");
    }
}
