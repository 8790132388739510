// SPDX-License-Identifier: MPL-2.0

use serde_json::Value;

use super::*;
use crate::metrics::feature;

fn table(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// Collects all numbers of a score in one row.
fn flat(score: Score) -> Vec<f64> {
    let mut row = vec![score.score];
    if let Some(bootstrap) = score.bootstrap {
        row.extend(bootstrap.members);
        row.extend([bootstrap.bagging, bootstrap.stddev, bootstrap.ci_lo, bootstrap.ci_hi]);
    }
    row
}

/// Compares with scores of libvmaf 3.2.0. The features are libvmaf's too, or those of the specification's references,
/// which also gave the scores of the `hfr` models other than `hfr_3d0h`. The v1 models have scores for larger frames.
#[test]
fn built_in_models_score_as_libvmaf_does() {
    let rows = table(include_str!("testdata/golden.json"));
    // The members of this collection are those of `vmaf_b_v0.6.3`.
    for name in builtin::names().filter(|name| *name != "vmaf_float_b_v0.6.3") {
        let model = Model::load(name).unwrap();
        let rows: Vec<_> = rows.iter().filter(|row| row["scores"].get(name).is_some()).collect();
        assert!(!rows.is_empty(), "{name}");
        for row in rows {
            let feature = |feature: &Feature| row["features"][&feature.key].as_f64().unwrap();
            let values: Vec<f64> = model.features().iter().map(feature).collect();
            let score = flat(model.score(&values, ScoreOptions::default()));
            assert_eq!(score, numbers(&row["scores"][name]), "{name}, {}", row["frame"]);
        }
    }
}

/// libvmaf's files of these models have the same figures.
#[test]
fn float_models_read_other_features_only() {
    for (float, fixed) in [
        ("vmaf_float_v0.6.1", "vmaf_v0.6.1"),
        ("vmaf_float_v0.6.1neg", "vmaf_v0.6.1neg"),
        ("vmaf_float_4k_v0.6.1", "vmaf_4k_v0.6.1"),
        ("vmaf_float_b_v0.6.3", "vmaf_b_v0.6.3"),
    ] {
        let [float, fixed] = [float, fixed].map(|name| Model::load(name).unwrap());
        let keys =
            |model: &Model| model.features().iter().map(|feature| feature.key.clone()).collect::<Vec<_>>();
        let expected: Vec<_> = keys(&fixed).iter().map(|key| key.replace("integer_", "")).collect();
        assert_eq!(keys(&float), expected);
        let values = [0.9, 4.0, 0.4, 0.6, 0.7, 0.8];
        let options = ScoreOptions::default();
        assert_eq!(flat(float.score(&values, options)), flat(fixed.score(&values, options)));
    }
}

#[test]
fn features_come_in_the_order_of_the_regressor_without_repeats() {
    let keys = |name| -> Vec<String> {
        Model::load(name).unwrap().features().iter().map(|feature| feature.key.clone()).collect()
    };
    let scales =
        |suffix: &str| (0..4).map(|scale| format!("integer_vif_scale{scale}{suffix}")).collect::<Vec<_>>();
    let plain = [vec!["integer_adm2".into(), "integer_motion2".into()], scales("")].concat();
    let no_gain = [vec!["integer_adm2_egl_1".into(), "integer_motion2".into()], scales("_egl_1")].concat();
    assert_eq!(keys("vmaf_v0.6.1"), plain);
    assert_eq!(keys("vmaf_b_v0.6.3.json"), plain);
    assert_eq!(keys("vmaf_v0.6.1neg"), no_gain);
    assert_eq!(keys("vmaf_4k_v0.6.1neg"), no_gain);
    let v1 = |motion: &str| {
        let speed = "speed_chroma_uv_mxv_45_nnf_0.1_ps_0.5_psm_bilinear_snn_0.19_wvm_5";
        let adm = "integer_adm3_csf_2_dlmw_0.7_egl_1_min_0.5_nw_0.02_rdh_2160";
        ["cambi_hrs_1080_cmxv_17_vlt_0.06", speed, adm, motion].map(String::from)
    };
    assert_eq!(keys("vmaf_v1.0.16_3d0h_2160"), v1("integer_motion3_mmxv_18"));
    assert_eq!(keys("vmaf_v1.0.16_hfr_3d0h_2160"), v1("integer_motion3_mffw_mmxv_18_mma"));
}

#[test]
fn clip_and_transform_are_up_to_the_user() {
    // Only these models reach more than 100, and they always apply the transform.
    let perfect = [0.0, 0.0, 1.0, 10.0];
    let uhd = Model::load("vmaf_v1.0.16_3d0h_2160").unwrap();
    let score = |clip, transform| uhd.score(&perfect, ScoreOptions { clip, transform }).score;
    assert!(score(true, false) > 100.0 && score(true, false) <= 110.0);
    assert_eq!(score(true, false), score(true, true));
    assert_eq!(score(true, false), score(false, false).min(110.0));

    let model = Model::load("vmaf_v0.6.1").unwrap();
    let score = |clip, transform| {
        model.score(&[1.0, 30.0, 1.0, 1.0, 1.0, 1.0], ScoreOptions { clip, transform }).score
    };
    assert_eq!(score(true, false), 100.0);
    assert!(score(false, false) > 100.0);
    let frame = [0.9, 2.0, 0.5, 0.8, 0.85, 0.9];
    let phone = |transform| model.score(&frame, ScoreOptions { clip: true, transform }).score;
    let plain = phone(false);
    assert_eq!(phone(true), 1.70674692 + 1.72643844 * plain + -0.00705305 * plain * plain);
}

#[test]
fn a_missing_or_nan_feature_makes_the_score_nan() {
    for name in ["vmaf_v0.6.1", "vmaf_b_v0.6.3"] {
        let model = Model::load(name).unwrap();
        for values in [&[0.9, 2.0][..], &[0.9, f64::NAN, 0.5, 0.8, 0.85, 0.9]] {
            assert!(flat(model.score(values, ScoreOptions::default())).iter().all(|number| number.is_nan()));
        }
    }
}

/// Tests models of all shapes that no shipped model has. The scores were computed by the numpy reference of the
/// specification, which agrees with libvmaf.
#[test]
fn predictor_agrees_with_the_reference() {
    for row in table(include_str!("testdata/synthetic.json")) {
        let definition: Definition = serde_json::from_value(row["model_dict"].clone()).unwrap();
        let predictor = Predictor::new(&definition).unwrap();
        for case in row["cases"].as_array().unwrap() {
            let [clip, transform] = ["clip", "transform"].map(|name| case[name].as_bool().unwrap());
            let raw = predictor.raw(numbers(&case["values"]));
            let score = predictor.finish(raw, ScoreOptions { clip, transform });
            assert_eq!(Some(score), case["score"].as_f64(), "{}\n{case}", row["model_dict"]);
        }
    }
}

#[test]
fn transforms_agree_with_the_reference() {
    for row in table(include_str!("testdata/transforms.json")) {
        let transform: transform::Transform = serde_json::from_value(row["transform"].clone()).unwrap();
        for case in row["cases"].as_array().unwrap() {
            let case = numbers(case);
            assert_eq!(transform.apply(case[0]), case[1], "{} of {}", row["transform"], case[0]);
        }
    }
}

/// The smallest model. The tests below edit it.
const SMALL: &str = r#"{"model_dict": {
    "norm_type": "none",
    "feature_names": ["VMAF_integer_feature_adm2_score", "VMAF_integer_feature_motion2_score"],
    "model": "svm_type nu_svr\nkernel_type rbf\ngamma 0.5\nnr_class 2\ntotal_sv 1\nrho -1\nSV\n1 1:1\n"
}}"#;

fn small_with(member: &str) -> String {
    SMALL.replace(r#""norm_type": "none""#, &format!(r#""norm_type": "none", {member}"#))
}

#[test]
fn options_of_the_file_reach_the_features() {
    let text = small_with(
        r#""feature_opts_dicts": [{"adm_enhn_gain_limit": 1.23456789, "adm_csf_mode": 2, "motion_max_val": 9,
            "adm_skip_scale0": true, "adm_dlm_weight": "0.25"}]"#,
    );
    let model = Model::from_json("test", text.as_bytes()).unwrap();
    let keys: Vec<&str> = model.features().iter().map(|feature| feature.key.as_str()).collect();
    assert_eq!(keys, ["integer_adm2_csf_2_dlmw_0.25_egl_1.23457_ssz", "integer_motion2"]);
}

#[test]
fn members_of_a_collection_count_in_order_and_share_features() {
    let member =
        |name: &str| small_with(r#""model_type": "BOOTSTRAP_LIBSVMNUSVR""#).replace("feature_motion2", name);
    let (a, b) = (member("feature_motion2"), member("feature_aim"));
    let text = format!(r#"{{"1": 0, "0": {a}, "x": null, "0": [], "1": {b}, "3": {a}, "2": {a}, "3": {a}}}"#);
    let model = Model::from_json("test", text.as_bytes()).unwrap();
    let keys: Vec<&str> = model.features().iter().map(|feature| feature.key.as_str()).collect();
    assert_eq!(keys, ["integer_adm2", "integer_motion2", "integer_aim"]);
    let bootstrap = model.score(&[1.0, 0.0, 2.0], ScoreOptions::default()).bootstrap.unwrap();
    let far = (-0.5f64 * 4.0).exp() + 1.0;
    assert_eq!(bootstrap.members, [far, 2.0, 2.0]);
}

#[test]
fn what_is_wrong_with_a_model_is_said_with_its_place() {
    let collection = |second: &str| format!(r#"{{"0": {SMALL}, "1": {second}}}"#);
    let svr_text = SMALL.replace("gamma 0.5", "gamma x");
    // As in libvmaf's `nflx_v1`.
    let other = SMALL.replace("VMAF_integer_feature_motion2_score", "VMAF_feature_ansnr_score");
    let unsupported = format!(
        "at model_dict.feature_names[1]: the feature VMAF_feature_ansnr_score is not supported; supported are those of {}",
        feature::names()
    );
    let knots = format!(r#""score_transform": {{"knots": [{}]}}"#, ["[0, 0]"; 11].join(", "));
    for (text, message) in [
        (String::new(), "at .: EOF while parsing a value at line 1 column 0"),
        (
            SMALL[..100].into(),
            "at model_dict.feature_names[1]: EOF while parsing a string at line 3 column 58",
        ),
        (format!("{SMALL}x"), "at .: trailing characters at line 5 column 3"),
        (
            "[]".into(),
            "at .: invalid type: sequence, expected an object with the member `model_dict`, or with the models `0`, `1`, … at line 1 column 0",
        ),
        ("{}".into(), "at .: neither a `model_dict` nor at least two models `0`, `1`, … at line 1 column 2"),
        (SMALL.replace("norm_type", "x"), "at model_dict: missing field `norm_type` at line 5 column 1"),
        (
            SMALL.replace("none", "x"),
            "at model_dict.norm_type: unknown variant `x`, expected `linear_rescale` or `none` at line 2 column 20",
        ),
        (
            SMALL.replace("none", "linear_rescale"),
            "at model_dict.slopes: expected 3 numbers: for the score and each feature",
        ),
        (
            small_with(r#""slopes": [1, "2"]"#),
            "at model_dict.slopes[1]: invalid type: string \"2\", expected f64 at line 2 column 42",
        ),
        (
            small_with(r#""score_clip": null"#),
            "at model_dict.score_clip: invalid type: null, expected an array of length 2 at line 2 column 43",
        ),
        (
            small_with(r#""score_transform": {"p0": null}"#),
            "at model_dict.score_transform.p0: invalid type: null, expected f64 at line 2 column 55",
        ),
        (
            small_with(r#""score_transform": {"out_gte_in": true}"#),
            "at model_dict.score_transform.out_gte_in: invalid type: boolean `true`, expected a string at line 2 column 63",
        ),
        (small_with(&knots), "at model_dict.score_transform.knots: expected at most 10 knots"),
        (
            small_with(r#""model_type": "SVC""#),
            "at model_dict.model_type: unknown variant `SVC`, expected one of `LIBSVMNUSVR`, `BOOTSTRAP_LIBSVMNUSVR`, `RESIDUEBOOTSTRAP_LIBSVMNUSVR` at line 2 column 44",
        ),
        (
            small_with(r#""chroma_correction_parameter": 120"#),
            "at model_dict.chroma_correction_parameter: expected a number but 0, and one feature each with adm3 and speed_chroma in its name",
        ),
        (
            small_with(r#""feature_opts_dicts": [{}, {}, {}]"#),
            "at model_dict.feature_opts_dicts: expected no more objects than there are features",
        ),
        (
            small_with(r#""feature_opts_dicts": [{}, {"a": [1]}]"#),
            "at model_dict.feature_opts_dicts[1].a: expected a number, a boolean or a string at line 2 column 62",
        ),
        (
            small_with(r#""feature_opts_dicts": [{}, {"motion_max_val": 20000}]"#),
            "at model_dict.feature_opts_dicts[1]: the option motion_max_val is `20000`, but must be a number from 0 to 10000",
        ),
        (
            SMALL.replace(
                r#"["VMAF_integer_feature_adm2_score", "VMAF_integer_feature_motion2_score"]"#,
                "[]",
            ),
            "at model_dict.feature_names: expected 1 to 64 names",
        ),
        (other, &unsupported),
        (svr_text, "at model_dict.model: line 3 of the regressor: `x` is no number"),
        (
            collection("7"),
            "at 1: invalid type: integer `7`, expected an object with the member `model_dict` at line 5 column 10",
        ),
        (
            collection(SMALL),
            "at 1.model_dict.model_type: expected a bootstrap type, the same for all members",
        ),
    ] {
        let error = Model::from_json("test", text.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), format!("model test, {message}"));
    }
}

#[test]
fn models_that_cannot_be_read_have_different_errors() {
    let unknown = Model::load("vmaf_v9").unwrap_err().to_string();
    assert!(unknown.contains("vmaf_v9") && unknown.contains("vmaf_4k_v0.6.1neg") && unknown.contains("path"));

    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    assert!(matches!(Model::load(&path("")).unwrap_err(), ModelError::Read { .. }));

    std::fs::write(path("my.model.json"), SMALL).unwrap();
    assert_eq!(Model::load(&path("my.model.json")).unwrap().name(), "my.model");

    std::fs::write(path("broken.json"), "{").unwrap();
    let broken = Model::load(&path("broken.json")).unwrap_err().to_string();
    assert!(broken.contains(&path("broken.json")) && broken.ends_with("line 1 column 1"), "{broken}");

    std::fs::File::create(path("big")).unwrap().set_len(MAX_BYTES + 1).unwrap();
    assert!(matches!(Model::load(&path("big")).unwrap_err(), ModelError::TooLarge { .. }));
}

proptest::proptest! {
    /// Replaced, removed or doubled bytes never cause a panic, whether the model still loads or not.
    #[test]
    fn damaged_models_never_panic(edits in proptest::collection::vec((0usize..2000, 0u8..3, 0u8..128), 1..6)) {
        let transform = r#""score_clip": [0, 100], "score_transform": {"p1": 2, "knots": [[0, 0], [9, 9]]}"#;
        let small = small_with(&format!(r#""model_type": "BOOTSTRAP_LIBSVMNUSVR", {transform}"#));
        let mut text = format!(r#"{{"0": {small}, "1": {small}, "2": {small}}}"#).into_bytes();
        for (place, edit, byte) in edits {
            let place = place % text.len();
            match edit {
                0 => text[place] = byte,
                1 => { text.remove(place); }
                _ => text.insert(place, text[place]),
            }
        }
        if let Ok(model) = Model::from_json("damaged", &text) {
            model.score(&vec![0.5; model.features().len()], ScoreOptions { clip: true, transform: true });
        }
    }
}
